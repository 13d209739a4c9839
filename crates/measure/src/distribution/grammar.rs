//! What the grammar reads, and which parameters it accepts.
//!
//! Invariant: a form that is accepted can be drawn from, has its moments, and has its quantiles.

use std::ops::{Bound, RangeBounds};

use super::quantiles::extreme_value_cdf;
use super::{DistributionError, Form};
use crate::quantity::{MAGNITUDE_MAX, Unit};

impl Form {
    pub(super) fn parse(
        name: &str,
        parameters: &str,
        unit: Unit,
    ) -> Result<Self, DistributionError> {
        let value = |text: &str| unit.parse(text);
        let plain = |text: &str| Unit::Plain.parse(text);
        Ok(match name {
            "fixed" => {
                let [v] = split("fixed:V", parameters)?;
                Form::Fixed { value: value(v)? }
            }
            "uni" => {
                let [max] = split("uni:MAX", parameters)?;
                Form::Uniform { max: value(max)? }
            }
            "exp" => {
                let [mean] = split("exp:MEAN", parameters)?;
                Form::Exponential { mean: value(mean)? }
            }
            "bimodal" => {
                let [v1, v2, p1] = split("bimodal:V1:V2:P1", parameters)?;
                Form::Bimodal { values: [value(v1)?, value(v2)?], probability: plain(p1)? }
            }
            "trimodal" => {
                let [v1, v2, v3, p1, p2] = split("trimodal:V1:V2:V3:P1:P2", parameters)?;
                Form::Trimodal {
                    values: [value(v1)?, value(v2)?, value(v3)?],
                    probabilities: [plain(p1)?, plain(p2)?],
                }
            }
            "lognorm" => {
                let [mu, sigma] = split("lognorm:MU:SIGMA", parameters)?;
                Form::LogNormal { mu: plain(mu)?, sigma: plain(sigma)? }
            }
            "gamma" => {
                let [shape, scale] = split("gamma:SHAPE:SCALE", parameters)?;
                Form::Gamma { shape: plain(shape)?, scale: value(scale)? }
            }
            _ => return Self::parse_tailed(name, parameters, unit),
        })
    }

    fn parse_tailed(name: &str, parameters: &str, unit: Unit) -> Result<Self, DistributionError> {
        let value = |text: &str| unit.parse(text);
        let plain = |text: &str| Unit::Plain.parse(text);
        Ok(match name {
            "pareto" => {
                let [location, scale, shape] = split("pareto:LOC:SCALE:SHAPE", parameters)?;
                Form::Pareto {
                    location: value(location)?,
                    scale: value(scale)?,
                    shape: plain(shape)?,
                }
            }
            "gev" => {
                let [location, scale, shape] = split("gev:LOC:SCALE:SHAPE", parameters)?;
                Form::ExtremeValue {
                    location: value(location)?,
                    scale: value(scale)?,
                    shape: plain(shape)?,
                }
            }
            "zipf" => {
                let [ranks, exponent] = split("zipf:N:S", parameters)?;
                let ranks = plain(ranks)?;
                if ranks.fract() != 0.0 || ranks < 0.0 {
                    return Err(out_of_range("the ranks of zipf", RANKS_RULE, ranks));
                }
                Form::Zipf { ranks: ranks as u64, exponent: plain(exponent)? }
            }
            _ => return Err(DistributionError::FormUnknown(name.to_owned())),
        })
    }

    /// Refuses every parameter for which the form could not work.
    pub(super) fn check(&self, offset: f64) -> Result<(), DistributionError> {
        match self {
            Form::Fixed { value } => not_negative("the value of fixed", *value),
            Form::Uniform { max } => positive("the maximum of uni", *max),
            Form::Exponential { mean } => positive("the mean of exp", *mean),
            Form::Bimodal { values, probability } => {
                not_negative("the first value of bimodal", values[0])?;
                not_negative("the second value of bimodal", values[1])?;
                is_probability("the probability of bimodal", *probability)
            }
            Form::Trimodal { values, probabilities } => check_trimodal(values, probabilities),
            Form::LogNormal { mu, sigma } => {
                let mu_max = MAGNITUDE_MAX.ln();
                within("the mu of lognorm", *mu, (-mu_max, mu_max), "within 41.4 of zero")?;
                within("the sigma of lognorm", *sigma, (0.0, 20.0), "from 0 to 20")
            }
            Form::Gamma { shape, scale } => {
                within("the shape of gamma", *shape, (1e-3, 1e9), "from 0.001 to 1e9")?;
                positive("the scale of gamma", *scale)
            }
            Form::Pareto { location, scale, shape } => {
                not_negative("the location of pareto", *location)?;
                positive("the scale of pareto", *scale)?;
                within("the shape of pareto", *shape, SHAPE_RANGE, SHAPE_RULE)
            }
            Form::ExtremeValue { .. } => self.check_extreme_value(offset),
            Form::Zipf { ranks, exponent } => {
                let ranks = *ranks as f64;
                within("the ranks of zipf", ranks, (1.0, RANKS_MAX), RANKS_RULE)?;
                within("the exponent of zipf", *exponent, (0.0, 100.0), "from 0 to 100")
            }
            Form::Empirical { path, samples } => check_samples(path, samples),
        }
    }

    fn check_extreme_value(&self, offset: f64) -> Result<(), DistributionError> {
        let Form::ExtremeValue { location, scale, shape } = *self else {
            return Ok(());
        };
        let magnitudes = (-MAGNITUDE_MAX, MAGNITUDE_MAX);
        within("the location of gev", location, magnitudes, "finite, at most 1e18")?;
        positive("the scale of gev", scale)?;
        within("the shape of gev", shape, SHAPE_RANGE, SHAPE_RULE)?;
        let probability = extreme_value_cdf(location, scale, shape, -offset);
        if probability > NEGATIVE_PROBABILITY_MAX {
            return Err(DistributionError::Negative { probability });
        }
        Ok(())
    }
}

fn split<'a, const N: usize>(
    usage: &'static str,
    parameters: &'a str,
) -> Result<[&'a str; N], DistributionError> {
    let parts: Vec<_> = parameters.split(':').collect();
    let given = parts.len();
    parts.try_into().map_err(|_| DistributionError::ParameterCount { usage, expected: N, given })
}

fn out_of_range(parameter: &'static str, rule: &'static str, value: f64) -> DistributionError {
    DistributionError::OutOfRange { parameter, rule, value }
}

fn within(
    parameter: &'static str,
    value: f64,
    (low, high): (f64, f64),
    rule: &'static str,
) -> Result<(), DistributionError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(out_of_range(parameter, rule, value))
}

fn positive(parameter: &'static str, value: f64) -> Result<(), DistributionError> {
    let range = (Bound::Excluded(0.0), Bound::Included(MAGNITUDE_MAX));
    if range.contains(&value) {
        return Ok(());
    }
    Err(out_of_range(parameter, "above 0, at most 1e18", value))
}

pub(super) fn not_negative(parameter: &'static str, value: f64) -> Result<(), DistributionError> {
    let rule = "0 or more, at most 1e18";
    within(parameter, value, (0.0, MAGNITUDE_MAX), rule)
}

fn is_probability(parameter: &'static str, value: f64) -> Result<(), DistributionError> {
    within(parameter, value, (0.0, 1.0), "from 0 to 1")
}

fn check_trimodal(values: &[f64; 3], [p1, p2]: &[f64; 2]) -> Result<(), DistributionError> {
    not_negative("the first value of trimodal", values[0])?;
    not_negative("the second value of trimodal", values[1])?;
    not_negative("the third value of trimodal", values[2])?;
    is_probability("the first probability of trimodal", *p1)?;
    is_probability("the second probability of trimodal", *p2)?;
    // Decimals such as 0.9 and 0.1 may add up to just above one.
    let sums = (0.0, 1.0 + 1e-12);
    within("the sum of trimodal's P1 and P2", p1 + p2, sums, "at most 1")
}

fn check_samples(path: &str, samples: &[f64]) -> Result<(), DistributionError> {
    if samples.is_empty() {
        return Err(DistributionError::Empty { path: path.to_owned() });
    }
    for sample in samples {
        not_negative("each sample of file", *sample)?;
    }
    if !samples.is_sorted() {
        let rule = "the least, as samples ascend";
        return Err(out_of_range("the first sample of file", rule, samples[0]));
    }
    Ok(())
}

const SHAPE_RANGE: (f64, f64) = (-10.0, 10.0);
const SHAPE_RULE: &str = "from -10 to 10";
const RANKS_MAX: f64 = (1u64 << 53) as f64;
const RANKS_RULE: &str = "a whole number from 1 to 2^53";
const NEGATIVE_PROBABILITY_MAX: f64 = 1e-9;
