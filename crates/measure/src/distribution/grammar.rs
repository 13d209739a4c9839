//! Grammar of distributions: the forms that it reads, and the parameters that it accepts.
//!
//! One table says how each form is written, and what its parameters are called and may be; reading,
//! writing and checking a form all go by it.
//!
//! Invariant: a form that is accepted can be drawn from, has its moments, and has its quantiles.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use super::quantiles::extreme_value_cdf;
use super::{DistributionError, Form};
use crate::quantity::{MAGNITUDE_MAX, Unit};

/// Rule that a parameter must keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// True if the parameter has the unit of what is drawn; other parameters are plain numbers.
    has_unit: bool,
    low: Bound<f64>,
    /// The highest.
    high: f64,
    /// That, for people.
    text: &'static str,
}

impl Form {
    pub(super) fn parse(
        name: &str,
        parameters: &str,
        unit: Unit,
    ) -> Result<Self, DistributionError> {
        let known = GRAMMAR.iter().find(|(usage, _)| name_of(usage) == name);
        let (usage, rules) =
            known.ok_or_else(|| DistributionError::FormUnknown(name.to_owned()))?;
        let parts: Vec<_> = parameters.split(':').collect();
        let (given, expected) = (parts.len(), rules.len());
        if given != expected {
            return Err(DistributionError::ParameterCount { usage, expected, given });
        }
        let numbers = parts.iter().zip(*rules).map(|(part, (_, rule))| rule.unit(unit).parse(part));
        Self::of(name, &numbers.collect::<Result<Vec<_>, _>>()?)
    }

    /// The form of a name with its numbers, in the order in which they are written.
    fn of(name: &str, numbers: &[f64]) -> Result<Self, DistributionError> {
        Ok(match (name, numbers) {
            ("fixed", &[value]) => Form::Fixed { value },
            ("uni", &[max]) => Form::Uniform { max },
            ("exp", &[mean]) => Form::Exponential { mean },
            ("bimodal", &[v1, v2, probability]) => Form::Bimodal { values: [v1, v2], probability },
            ("trimodal", &[v1, v2, v3, p1, p2]) => {
                Form::Trimodal { values: [v1, v2, v3], probabilities: [p1, p2] }
            }
            ("lognorm", &[mu, sigma]) => Form::LogNormal { mu, sigma },
            ("gamma", &[shape, scale]) => Form::Gamma { shape, scale },
            ("pareto", &[location, scale, shape]) => Form::Pareto { location, scale, shape },
            ("gev", &[location, scale, shape]) => Form::ExtremeValue { location, scale, shape },
            ("zipf", &[ranks, exponent]) if ranks.fract() == 0.0 && ranks >= 0.0 => {
                Form::Zipf { ranks: ranks as u64, exponent }
            }
            ("zipf", &[ranks, _]) => return Err(out_of_range("the ranks of zipf", RANKS, ranks)),
            _ => return Err(DistributionError::FormUnknown(name.to_owned())),
        })
    }

    /// Its name and its numbers, in the order in which they are written; a file has none.
    fn numbers(&self) -> (&'static str, Vec<f64>) {
        match *self {
            Form::Fixed { value } => ("fixed", vec![value]),
            Form::Uniform { max } => ("uni", vec![max]),
            Form::Exponential { mean } => ("exp", vec![mean]),
            Form::Bimodal { values: [v1, v2], probability } => {
                ("bimodal", vec![v1, v2, probability])
            }
            Form::Trimodal { values: [v1, v2, v3], probabilities: [p1, p2] } => {
                ("trimodal", vec![v1, v2, v3, p1, p2])
            }
            Form::LogNormal { mu, sigma } => ("lognorm", vec![mu, sigma]),
            Form::Gamma { shape, scale } => ("gamma", vec![shape, scale]),
            Form::Pareto { location, scale, shape } => ("pareto", vec![location, scale, shape]),
            Form::ExtremeValue { location, scale, shape } => ("gev", vec![location, scale, shape]),
            Form::Zipf { ranks, exponent } => ("zipf", vec![ranks as f64, exponent]),
            Form::Empirical { .. } => ("file", Vec::new()),
        }
    }

    pub(super) fn write(&self, unit: Unit, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Form::Empirical { path, .. } = self {
            return write!(f, "file:{path}");
        }
        let (name, numbers) = self.numbers();
        f.write_str(name)?;
        let mut numbers = numbers.iter().zip(rules(name));
        numbers
            .try_for_each(|(&number, (_, rule))| write!(f, ":{}", rule.unit(unit).format(number)))
    }

    /// Refuses every parameter for which the form could not work.
    pub(super) fn check(&self, offset: f64) -> Result<(), DistributionError> {
        let (name, numbers) = self.numbers();
        for (&number, (parameter, rule)) in numbers.iter().zip(rules(name)) {
            rule.check(parameter, number)?;
        }
        match *self {
            // Decimals such as 0.9 and 0.1 may add up to just above one.
            Form::Trimodal { probabilities: [p1, p2], .. } => plain(0.0, 1.0 + 1e-12, "at most 1")
                .check("the sum of trimodal's P1 and P2", p1 + p2),
            Form::ExtremeValue { location, scale, shape } => {
                let probability = extreme_value_cdf(location, scale, shape, -offset);
                if probability > NEGATIVE_PROBABILITY_MAX {
                    return Err(DistributionError::Negative { probability });
                }
                Ok(())
            }
            Form::Empirical { ref path, ref samples } => check_samples(path, samples),
            _ => Ok(()),
        }
    }
}

impl Rule {
    /// The unit of such a parameter of a distribution of `unit`.
    fn unit(self, unit: Unit) -> Unit {
        if self.has_unit { unit } else { Unit::Plain }
    }

    pub(super) fn check(
        self,
        parameter: &'static str,
        value: f64,
    ) -> Result<(), DistributionError> {
        if (self.low, Bound::Included(self.high)).contains(&value) {
            return Ok(());
        }
        Err(out_of_range(parameter, self, value))
    }
}

fn out_of_range(parameter: &'static str, rule: Rule, value: f64) -> DistributionError {
    DistributionError::OutOfRange { parameter, rule: rule.text, value }
}

fn name_of(usage: &str) -> &str {
    usage.split(':').next().unwrap_or(usage)
}

/// Names and rules of a form's parameters.
fn rules(name: &str) -> &'static [(&'static str, Rule)] {
    GRAMMAR.iter().find(|(usage, _)| name_of(usage) == name).map_or(&[], |(_, rules)| rules)
}

fn check_samples(path: &str, samples: &[f64]) -> Result<(), DistributionError> {
    if samples.is_empty() {
        return Err(DistributionError::Empty { path: path.to_owned() });
    }
    for sample in samples {
        NOT_NEGATIVE.check("each sample of file", *sample)?;
    }
    if !samples.is_sorted() {
        let rule = "the least, as samples ascend";
        let (parameter, value) = ("the first sample of file", samples[0]);
        return Err(DistributionError::OutOfRange { parameter, rule, value });
    }
    Ok(())
}

const fn plain(low: f64, high: f64, text: &'static str) -> Rule {
    Rule { has_unit: false, low: Bound::Included(low), high, text }
}

const fn value(low: Bound<f64>, text: &'static str) -> Rule {
    Rule { has_unit: true, low, high: MAGNITUDE_MAX, text }
}

/// Usage of each form, and its parameters in that order.
const GRAMMAR: [(&str, &[(&str, Rule)]); 10] = [
    ("fixed:V", &[("the value of fixed", NOT_NEGATIVE)]),
    ("uni:MAX", &[("the maximum of uni", POSITIVE)]),
    ("exp:MEAN", &[("the mean of exp", POSITIVE)]),
    (
        "bimodal:V1:V2:P1",
        &[
            ("the first value of bimodal", NOT_NEGATIVE),
            ("the second value of bimodal", NOT_NEGATIVE),
            ("the probability of bimodal", PROBABILITY),
        ],
    ),
    (
        "trimodal:V1:V2:V3:P1:P2",
        &[
            ("the first value of trimodal", NOT_NEGATIVE),
            ("the second value of trimodal", NOT_NEGATIVE),
            ("the third value of trimodal", NOT_NEGATIVE),
            ("the first probability of trimodal", PROBABILITY),
            ("the second probability of trimodal", PROBABILITY),
        ],
    ),
    ("lognorm:MU:SIGMA", &[("the mu of lognorm", MU), ("the sigma of lognorm", SIGMA)]),
    ("gamma:SHAPE:SCALE", &[("the shape of gamma", GAMMA_SHAPE), ("the scale of gamma", POSITIVE)]),
    (
        "pareto:LOC:SCALE:SHAPE",
        &[
            ("the location of pareto", NOT_NEGATIVE),
            ("the scale of pareto", POSITIVE),
            ("the shape of pareto", SHAPE),
        ],
    ),
    (
        "gev:LOC:SCALE:SHAPE",
        &[
            ("the location of gev", LOCATION),
            ("the scale of gev", POSITIVE),
            ("the shape of gev", SHAPE),
        ],
    ),
    ("zipf:N:S", &[("the ranks of zipf", RANKS), ("the exponent of zipf", EXPONENT)]),
];

pub(super) const NOT_NEGATIVE: Rule = value(Bound::Included(0.0), "0 or more, at most 1e18");
const POSITIVE: Rule = value(Bound::Excluded(0.0), "above 0, at most 1e18");
const LOCATION: Rule = value(Bound::Included(-MAGNITUDE_MAX), "finite, at most 1e18");
const PROBABILITY: Rule = plain(0.0, 1.0, "from 0 to 1");
/// The logarithm of [`MAGNITUDE_MAX`].
const MU_MAX: f64 = 41.446_531_673_892_82;
const MU: Rule = plain(-MU_MAX, MU_MAX, "within 41.4 of zero");
const SIGMA: Rule = plain(0.0, 20.0, "from 0 to 20");
const GAMMA_SHAPE: Rule = plain(1e-3, 1e9, "from 0.001 to 1e9");
const SHAPE: Rule = plain(-10.0, 10.0, "from -10 to 10");
const RANKS: Rule = plain(1.0, (1u64 << 53) as f64, "a whole number from 1 to 2^53");
const EXPONENT: Rule = plain(0.0, 100.0, "from 0 to 100");
const NEGATIVE_PROBABILITY_MAX: f64 = 1e-9;
