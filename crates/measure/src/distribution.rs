//! The grammar of distributions, their samples and their moments.
//!
//! One text names a distribution everywhere: on the command line, in a configuration, in a result.
//! The forms are `fixed:V`, `uni:MAX`, `exp:MEAN`, `bimodal:V1:V2:P1`, `trimodal:V1:V2:V3:P1:P2`,
//! `lognorm:MU:SIGMA`, `gamma:SHAPE:SCALE`, `pareto:LOC:SCALE:SHAPE` (generalised),
//! `gev:LOC:SCALE:SHAPE`, `zipf:N:S`, `file:PATH`, and `V+DIST` for a constant plus any of them.
//! Values carry the unit of what is drawn (see [`Unit`]); shapes and probabilities are plain
//! numbers, and so are the parameters of `lognorm`, which describe the natural logarithm of the
//! value in its base unit.
//!
//! Invariant: a [`Distribution`] works for every parameter that it accepts. Its samples are finite
//! and not negative, and its text parses back to an equal distribution.

use std::f64::consts::PI;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use rand::{Rng, RngExt};
use rand_distr::{Exp1, Gamma, LogNormal, Open01, Zipf};
use thiserror::Error;

use crate::quantity::{MAGNITUDE_MAX, QuantityError, Unit};

/// The family of a distribution and its parameters, in base units (ns, bytes, or one).
///
/// A form is only data; [`Distribution::new`] says whether it can be drawn from.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// Always the same value: `fixed:V`.
    Fixed {
        /// The value, not negative.
        value: f64,
    },
    /// Uniform on `[0, max)`: `uni:MAX`.
    Uniform {
        /// The upper end, above zero.
        max: f64,
    },
    /// Exponential: `exp:MEAN`.
    Exponential {
        /// The mean, above zero.
        mean: f64,
    },
    /// Two values: `bimodal:V1:V2:P1`.
    Bimodal {
        /// The two values, not negative.
        values: [f64; 2],
        /// The probability of the first value.
        probability: f64,
    },
    /// Three values: `trimodal:V1:V2:V3:P1:P2`.
    Trimodal {
        /// The three values, not negative.
        values: [f64; 3],
        /// The probabilities of the first two values; the third has the rest.
        probabilities: [f64; 2],
    },
    /// Log-normal: `lognorm:MU:SIGMA`.
    LogNormal {
        /// The mean of the natural logarithm of the value in its base unit, at most ln 1e18.
        mu: f64,
        /// The standard deviation of that logarithm, 0 to 20.
        sigma: f64,
    },
    /// Gamma: `gamma:SHAPE:SCALE`.
    Gamma {
        /// The shape, 0.001 to 1e9.
        shape: f64,
        /// The scale, above zero; the mean is their product.
        scale: f64,
    },
    /// Generalised Pareto: `pareto:LOC:SCALE:SHAPE`.
    Pareto {
        /// The smallest value, not negative.
        location: f64,
        /// The scale, above zero.
        scale: f64,
        /// The shape, -10 to 10. The mean is infinite from 1, the variance from 1/2.
        shape: f64,
    },
    /// Generalised extreme value: `gev:LOC:SCALE:SHAPE`.
    ExtremeValue {
        /// The location.
        location: f64,
        /// The scale, above zero.
        scale: f64,
        /// The shape, -10 to 10. The mean is infinite from 1, the variance from 1/2.
        shape: f64,
    },
    /// Zipf over the ranks 1 to `ranks`: `zipf:N:S`. The probability of rank r goes as r^-s.
    Zipf {
        /// The number of ranks, 1 to 2^53.
        ranks: u64,
        /// The exponent, 0 to 100.
        exponent: f64,
    },
    /// Drawn from recorded samples, each equally likely: `file:PATH`.
    Empirical {
        /// Where the samples came from, for people.
        path: String,
        /// The samples, ascending, not empty.
        samples: Arc<[f64]>,
    },
}

/// A distribution that can be drawn from: a [`Form`], a constant added to it, and its [`Unit`].
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    form: Form,
    /// Added to every sample; base unit, not negative.
    offset: f64,
    unit: Unit,
    /// What `form` needs precomputed to be drawn from; always derived from `form`.
    sampler: Sampler,
}

impl Distribution {
    /// Checks `form`, so that it can be drawn from.
    ///
    /// # Errors
    ///
    /// The parameter for which it could not work, and the rule that it breaks.
    pub fn new(form: Form, unit: Unit) -> Result<Self, DistributionError> {
        Self::with_offset(0.0, form, unit)
    }

    /// Checks `offset` plus `form`; the text is `V+DIST`. The offset is in the base unit.
    ///
    /// # Errors
    ///
    /// The parameter for which it could not work, and the rule that it breaks.
    pub fn with_offset(offset: f64, form: Form, unit: Unit) -> Result<Self, DistributionError> {
        not_negative("the constant", offset)?;
        form.check(offset)?;
        let sampler = Sampler::new(&form);
        Ok(Self { form, offset, unit, sampler })
    }

    /// A distribution over recorded samples, each equally likely. `path` says where they came
    /// from and must not contain what the grammar cannot carry (it is printed after `file:`).
    ///
    /// # Errors
    ///
    /// No samples, or one that is negative or not finite.
    pub fn empirical(path: &str, mut samples: Vec<f64>, unit: Unit) -> Result<Self, DistributionError> {
        samples.sort_unstable_by(f64::total_cmp);
        let form = Form::Empirical { path: path.to_owned(), samples: samples.into() };
        Self::new(form, unit)
    }

    /// Reads the grammar, except `file:PATH`, which needs [`Distribution::parse_with`].
    ///
    /// # Errors
    ///
    /// What is wrong with the text.
    pub fn parse(text: &str, unit: Unit) -> Result<Self, DistributionError> {
        Self::parse_with(text, unit, |_| Err(LOADER_MISSING.to_owned()))
    }

    /// Reads the grammar; `load` gives the samples of `file:PATH` in the base unit, in any order,
    /// or says why it cannot. This crate does no IO itself.
    ///
    /// # Errors
    ///
    /// What is wrong with the text, or what `load` says.
    pub fn parse_with(
        text: &str,
        unit: Unit,
        load: impl FnOnce(&str) -> Result<Vec<f64>, String>,
    ) -> Result<Self, DistributionError> {
        // A path may hold a plus sign, so only one before the form's name adds a constant.
        let (offset, rest) = match text.split_once('+') {
            Some((offset, rest)) if !offset.contains(':') => (unit.parse(offset)?, rest),
            _ => (0.0, text),
        };
        let (name, parameters) = rest.split_once(':').ok_or_else(|| DistributionError::FormUnknown(rest.to_owned()))?;
        if name == "file" {
            let samples = load(parameters).map_err(|reason| DistributionError::Load { path: parameters.to_owned(), reason })?;
            let loaded = Self::empirical(parameters, samples, unit)?;
            return Self::with_offset(offset, loaded.form, unit);
        }
        Self::with_offset(offset, Form::parse(name, parameters, unit)?, unit)
    }

    /// The family and its parameters.
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// The constant added to every sample, in the base unit.
    pub fn offset(&self) -> f64 {
        self.offset
    }

    /// What a sample measures.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Draws a sample in the base unit: finite and not negative.
    pub fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> f64 {
        let drawn = match &self.sampler {
            Sampler::Constant(value) => *value,
            Sampler::Inverse => self.form.quantile(rng.sample(Open01)).unwrap_or(0.0),
            Sampler::Points(points) => points.quantile(rng.sample(Open01)),
            Sampler::Exponential(mean) => mean * rng.sample::<f64, _>(Exp1),
            Sampler::LogNormal(inner) => rng.sample(inner),
            Sampler::Gamma(inner) => rng.sample(inner),
            Sampler::Zipf(inner, ranks) => rng.sample(inner).min(*ranks),
        };
        (self.offset + drawn).max(0.0)
    }

    /// Draws a sample rounded to a whole number of base units, for times and sizes.
    pub fn sample_whole<R: Rng + ?Sized>(&self, rng: &mut R) -> u64 {
        // The cast saturates.
        self.sample(rng).round() as u64
    }

    /// The mean in the base unit; `None` where it is infinite.
    pub fn mean(&self) -> Option<f64> {
        self.form.mean().map(|mean| mean + self.offset).filter(|mean| mean.is_finite())
    }

    /// The variance in the base unit squared; `None` where it is infinite (or beyond an `f64`).
    pub fn variance(&self) -> Option<f64> {
        self.form.variance().filter(|variance| variance.is_finite())
    }

    /// The smallest value that is not exceeded with probability `p`, where the form has it closed
    /// (all but `lognorm`, `gamma` and `zipf`); infinite at 1 for an unbounded form. `None` also
    /// where `p` is not in `[0, 1]`.
    pub fn quantile(&self, p: f64) -> Option<f64> {
        if !(0.0..=1.0).contains(&p) {
            return None;
        }
        let quantile = match &self.sampler {
            Sampler::Points(points) => Some(points.quantile(p)),
            _ => self.form.quantile(p),
        };
        quantile.map(|value| (value + self.offset).max(0.0))
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.offset != 0.0 {
            write!(f, "{}+", self.unit.format(self.offset))?;
        }
        let value = |value: &f64| self.unit.format(*value);
        match &self.form {
            Form::Fixed { value: v } => write!(f, "fixed:{}", value(v)),
            Form::Uniform { max } => write!(f, "uni:{}", value(max)),
            Form::Exponential { mean } => write!(f, "exp:{}", value(mean)),
            Form::Bimodal { values: [v1, v2], probability } => write!(f, "bimodal:{}:{}:{probability}", value(v1), value(v2)),
            Form::Trimodal { values: [v1, v2, v3], probabilities: [p1, p2] } => {
                let (v1, v2, v3) = (value(v1), value(v2), value(v3));
                write!(f, "trimodal:{v1}:{v2}:{v3}:{p1}:{p2}")
            }
            Form::LogNormal { mu, sigma } => write!(f, "lognorm:{mu}:{sigma}"),
            Form::Gamma { shape, scale } => write!(f, "gamma:{shape}:{}", value(scale)),
            Form::Pareto { location, scale, shape } => write!(f, "pareto:{}:{}:{shape}", value(location), value(scale)),
            Form::ExtremeValue { location, scale, shape } => write!(f, "gev:{}:{}:{shape}", value(location), value(scale)),
            Form::Zipf { ranks, exponent } => write!(f, "zipf:{ranks}:{exponent}"),
            Form::Empirical { path, .. } => write!(f, "file:{path}"),
        }
    }
}

/// Why a distribution was refused.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum DistributionError {
    /// A parameter that is no number of its unit.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// A name that the grammar does not have.
    #[error("{0:?} is no distribution; the forms are {FORMS}")]
    FormUnknown(String),
    /// Too many parameters, or too few.
    #[error("{usage} takes {expected} parameters, but {given} are given")]
    ParameterCount {
        /// How the form is written.
        usage: &'static str,
        /// How many parameters it takes.
        expected: usize,
        /// How many were given.
        given: usize,
    },
    /// A parameter for which the form could not work.
    #[error("{parameter} must be {rule}, but is {value}")]
    OutOfRange {
        /// Which parameter.
        parameter: &'static str,
        /// What it has to be.
        rule: &'static str,
        /// What it is, in the base unit.
        value: f64,
    },
    /// An extreme value distribution whose samples would be negative with a probability above
    /// 1e-9; a smaller one is clamped to zero.
    #[error("gev would be negative with probability {probability:e}; raise LOC or add a constant")]
    Negative {
        /// The probability of a negative value.
        probability: f64,
    },
    /// A `file:PATH` without samples.
    #[error("there are no samples in {path:?}")]
    Empty {
        /// Where they should have come from.
        path: String,
    },
    /// The samples of `file:PATH` could not be had.
    #[error("cannot load the samples of {path:?}: {reason}")]
    Load {
        /// The path given.
        path: String,
        /// What the loader says.
        reason: String,
    },
}

#[derive(Clone, Debug, PartialEq)]
enum Sampler {
    Constant(f64),
    Inverse,
    Points(Points),
    Exponential(f64),
    LogNormal(LogNormal<f64>),
    Gamma(Gamma<f64>),
    /// The number of ranks bounds what rounding could exceed.
    Zipf(Zipf<f64>, f64),
}

impl Sampler {
    /// `form` has been checked, so the library's constructors cannot fail.
    fn new(form: &Form) -> Self {
        match *form {
            Form::Fixed { value } => Sampler::Constant(value),
            Form::Exponential { mean } => Sampler::Exponential(mean),
            Form::Bimodal { values: [v1, v2], probability } => {
                Sampler::Points(Points::new(&[(v1, probability), (v2, 1.0 - probability)]))
            }
            Form::Trimodal { values: [v1, v2, v3], probabilities: [p1, p2] } => {
                Sampler::Points(Points::new(&[(v1, p1), (v2, p2), (v3, rest(p1, p2))]))
            }
            Form::LogNormal { mu, sigma } => Sampler::LogNormal(LogNormal::new(mu, sigma).expect("sigma is checked")),
            Form::Gamma { shape, scale } => Sampler::Gamma(Gamma::new(shape, scale).expect("shape and scale are checked")),
            Form::Zipf { ranks, exponent } => {
                let ranks = ranks as f64;
                let exponent = settled(exponent);
                let inner = Zipf::new(ranks, exponent).expect("ranks and exponent are checked");
                Sampler::Zipf(inner, ranks)
            }
            Form::Uniform { .. } | Form::Pareto { .. } | Form::ExtremeValue { .. } | Form::Empirical { .. } => Sampler::Inverse,
        }
    }
}

/// A few values with their cumulative probabilities, ascending; those without probability left out.
#[derive(Clone, Debug, PartialEq)]
struct Points(Vec<(f64, f64)>);

impl Points {
    fn new(weighted: &[(f64, f64)]) -> Self {
        let mut points: Vec<_> = weighted.iter().copied().filter(|&(_, p)| p > 0.0).collect();
        points.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mut cumulative = 0.0;
        for point in &mut points {
            cumulative += point.1;
            point.1 = cumulative;
        }
        Self(points)
    }

    fn quantile(&self, p: f64) -> f64 {
        let at = self.0.partition_point(|&(_, cumulative)| cumulative < p);
        // Rounding may leave the last cumulative probability short of one.
        self.0[at.min(self.0.len() - 1)].0
    }
}

impl Form {
    fn parse(name: &str, parameters: &str, unit: Unit) -> Result<Self, DistributionError> {
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
                Form::Trimodal { values: [value(v1)?, value(v2)?, value(v3)?], probabilities: [plain(p1)?, plain(p2)?] }
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
                Form::Pareto { location: value(location)?, scale: value(scale)?, shape: plain(shape)? }
            }
            "gev" => {
                let [location, scale, shape] = split("gev:LOC:SCALE:SHAPE", parameters)?;
                Form::ExtremeValue { location: value(location)?, scale: value(scale)?, shape: plain(shape)? }
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
    fn check(&self, offset: f64) -> Result<(), DistributionError> {
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

    fn mean(&self) -> Option<f64> {
        Some(match *self {
            Form::Fixed { value } => value,
            Form::Uniform { max } => max / 2.0,
            Form::Exponential { mean } => mean,
            Form::Bimodal { values: [v1, v2], probability: p } => p * v1 + (1.0 - p) * v2,
            Form::Trimodal { values: [v1, v2, v3], probabilities: [p1, p2] } => p1 * v1 + p2 * v2 + rest(p1, p2) * v3,
            Form::LogNormal { mu, sigma } => (mu + sigma * sigma / 2.0).exp(),
            Form::Gamma { shape, scale } => shape * scale,
            Form::Pareto { shape, .. } | Form::ExtremeValue { shape, .. } if shape >= 1.0 => {
                return None;
            }
            Form::Pareto { location, scale, shape } => location + scale / (1.0 - shape),
            Form::ExtremeValue { location, scale, shape } => location + scale * extreme_value_mean(shape),
            Form::Zipf { ranks, exponent } => power_sum(ranks, exponent - 1.0) / power_sum(ranks, exponent),
            Form::Empirical { ref samples, .. } => mean_of(samples.iter().copied()),
        })
    }

    fn variance(&self) -> Option<f64> {
        Some(match *self {
            Form::Fixed { .. } => 0.0,
            Form::Uniform { max } => max * max / 12.0,
            Form::Exponential { mean } => mean * mean,
            Form::Bimodal { values: [v1, v2], probability: p } => p * (1.0 - p) * (v1 - v2).powi(2),
            Form::Trimodal { values: [v1, v2, v3], probabilities: [p1, p2] } => {
                let mean = self.mean()?;
                p1 * (v1 - mean).powi(2) + p2 * (v2 - mean).powi(2) + rest(p1, p2) * (v3 - mean).powi(2)
            }
            Form::LogNormal { mu, sigma } => {
                let squared = sigma * sigma;
                squared.exp_m1() * (2.0 * mu + squared).exp()
            }
            Form::Gamma { shape, scale } => shape * scale * scale,
            Form::Pareto { shape, .. } | Form::ExtremeValue { shape, .. } if shape >= 0.5 => {
                return None;
            }
            Form::Pareto { scale, shape, .. } => (scale / (1.0 - shape)).powi(2) / (1.0 - 2.0 * shape),
            Form::ExtremeValue { scale, shape, .. } => scale * scale * extreme_value_spread(shape),
            Form::Zipf { ranks, exponent } => {
                let second = power_sum(ranks, exponent - 2.0) / power_sum(ranks, exponent);
                (second - self.mean()?.powi(2)).max(0.0)
            }
            Form::Empirical { ref samples, .. } => {
                let mean = mean_of(samples.iter().copied());
                mean_of(samples.iter().map(|sample| (sample - mean).powi(2)))
            }
        })
    }

    /// Without the forms whose points are sorted by the sampler.
    fn quantile(&self, p: f64) -> Option<f64> {
        Some(match *self {
            Form::Fixed { value } => value,
            Form::Uniform { max } => p * max,
            Form::Exponential { mean } => -mean * (-p).ln_1p(),
            Form::Pareto { location, scale, shape } => location + scale * box_cox(-(-p).ln_1p(), shape),
            Form::ExtremeValue { location, scale, shape } => location + scale * box_cox(-(-p.ln()).ln(), shape),
            Form::Empirical { ref samples, .. } => {
                let rank = (p * samples.len() as f64).ceil() as usize;
                samples[rank.saturating_sub(1).min(samples.len() - 1)]
            }
            Form::Bimodal { .. } | Form::Trimodal { .. } | Form::LogNormal { .. } | Form::Gamma { .. } | Form::Zipf { .. } => {
                return None;
            }
        })
    }
}

fn split<'a, const N: usize>(usage: &'static str, parameters: &'a str) -> Result<[&'a str; N], DistributionError> {
    let parts: Vec<_> = parameters.split(':').collect();
    let given = parts.len();
    parts.try_into().map_err(|_| DistributionError::ParameterCount { usage, expected: N, given })
}

fn out_of_range(parameter: &'static str, rule: &'static str, value: f64) -> DistributionError {
    DistributionError::OutOfRange { parameter, rule, value }
}

fn within(parameter: &'static str, value: f64, (low, high): (f64, f64), rule: &'static str) -> Result<(), DistributionError> {
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

fn not_negative(parameter: &'static str, value: f64) -> Result<(), DistributionError> {
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

/// The probability that decimals leave to a third value.
fn rest(p1: f64, p2: f64) -> f64 {
    let rest = 1.0 - p1 - p2;
    // What rounding leaves is no probability that anyone wrote.
    if rest < 1e-12 { 0.0 } else { rest }
}

fn mean_of(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.map(|value| value / count).sum()
}

/// (e^(shape y) - 1) / shape, whose limit at shape 0 is y.
fn box_cox(y: f64, shape: f64) -> f64 {
    if shape == 0.0 {
        return y;
    }
    (shape * y).exp_m1() / shape
}

/// Coles, An Introduction to Statistical Modeling of Extreme Values, equation 3.2.
fn extreme_value_cdf(location: f64, scale: f64, shape: f64, x: f64) -> f64 {
    let z = (x - location) / scale;
    if shape == 0.0 {
        return (-(-z).exp()).exp();
    }
    let base = 1.0 + shape * z;
    if base <= 0.0 {
        // Below the lower end of a positive shape, above the upper end of a negative one.
        return if shape > 0.0 { 0.0 } else { 1.0 };
    }
    (-(-(shape * z).ln_1p() / shape).exp()).exp()
}

/// The mean at location 0 and scale 1, for a shape below 1.
fn extreme_value_mean(shape: f64) -> f64 {
    if shape.abs() < SHAPE_SMALL {
        return EULER_GAMMA;
    }
    libm::lgamma(1.0 - shape).exp_m1() / shape
}

/// The variance at scale 1, for a shape below 1/2.
fn extreme_value_spread(shape: f64) -> f64 {
    if shape.abs() < SHAPE_SERIES {
        // The first two terms of its series; the third is below 1e-7.
        return PI * PI / 6.0 + shape * (PI * PI * EULER_GAMMA / 3.0 + 2.0 * ZETA_3);
    }
    let first = libm::lgamma(1.0 - shape);
    let second = libm::lgamma(1.0 - 2.0 * shape);
    (2.0 * first).exp() * (second - 2.0 * first).exp_m1() / (shape * shape)
}

/// An exponent within rounding of 1 makes the sampler's closed forms lose every digit.
fn settled(exponent: f64) -> f64 {
    if (exponent - 1.0).abs() < 1e-9 { 1.0 } else { exponent }
}

/// The sum of r^-exponent over the ranks 1 to `ranks`: exact for the first thousand, then by
/// Euler and Maclaurin, whose first neglected term is below 1e-12 of the sum.
fn power_sum(ranks: u64, exponent: f64) -> f64 {
    let term = |rank: f64| rank.powf(-exponent);
    let head: f64 = (1..=ranks.min(HEAD_RANKS)).map(|rank| term(rank as f64)).sum();
    if ranks <= HEAD_RANKS {
        return head;
    }
    let (from, to) = (HEAD_RANKS as f64, ranks as f64);
    let log_ratio = (to / from).ln();
    let integral = from * term(from) * box_cox(log_ratio, 1.0 - exponent);
    let slope = |rank: f64| -exponent * term(rank) / rank;
    head + integral + (term(to) - term(from)) / 2.0 + (slope(to) - slope(from)) / 12.0
}

const FORMS: &str = "fixed:V, uni:MAX, exp:MEAN, bimodal:V1:V2:P1, trimodal:V1:V2:V3:P1:P2, \
    lognorm:MU:SIGMA, gamma:SHAPE:SCALE, pareto:LOC:SCALE:SHAPE, gev:LOC:SCALE:SHAPE, zipf:N:S, \
    file:PATH, and V+DIST";
const LOADER_MISSING: &str = "the file form needs a loader, and there is none here";
const SHAPE_RANGE: (f64, f64) = (-10.0, 10.0);
const SHAPE_RULE: &str = "from -10 to 10";
const RANKS_MAX: f64 = (1u64 << 53) as f64;
const RANKS_RULE: &str = "a whole number from 1 to 2^53";
const NEGATIVE_PROBABILITY_MAX: f64 = 1e-9;
const EULER_GAMMA: f64 = 0.577_215_664_901_532_9;
/// Apery's constant.
const ZETA_3: f64 = 1.202_056_903_159_594_2;
/// Below it the mean's difference cancels more digits than its limit at 0 is away.
const SHAPE_SMALL: f64 = 1e-7;
/// Below it the variance's difference of squares cancels more digits than its series leaves out.
const SHAPE_SERIES: f64 = 1e-4;
const HEAD_RANKS: u64 = 1000;

#[cfg(test)]
mod tests;
