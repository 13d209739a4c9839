//! The grammar of distributions, their samples, moments, tails and quantiles.
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

mod grammar;
mod moments;
mod quantiles;
mod sampler;
mod special;

use std::fmt;
use std::sync::Arc;

use rand::Rng;
use thiserror::Error;

use self::grammar::NOT_NEGATIVE;
use self::sampler::Sampler;
use crate::quantity::{QuantityError, Unit};

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
        /// Origin of the samples, for people.
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
    /// Sampler of `form`: what it needs precomputed to be drawn from; always derived from `form`.
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
        NOT_NEGATIVE.check("the constant", offset)?;
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
    pub fn empirical(
        path: &str,
        mut samples: Vec<f64>,
        unit: Unit,
    ) -> Result<Self, DistributionError> {
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
        let (name, parameters) =
            rest.split_once(':').ok_or_else(|| DistributionError::FormUnknown(rest.to_owned()))?;
        if name == "file" {
            let samples = load(parameters).map_err(|reason| DistributionError::Load {
                path: parameters.to_owned(),
                reason,
            })?;
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

    /// Unit of a sample.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Draws a sample in the base unit: finite and not negative.
    #[inline]
    pub fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> f64 {
        (self.offset + self.sampler.draw(&self.form, rng)).max(0.0)
    }

    /// Draws a sample rounded to a whole number of base units, for times and sizes.
    #[inline]
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

    /// The probability that a sample exceeds `x`, which is in the base unit.
    ///
    /// It falls from 1 to 0 and is right-continuous: at a value that has a probability of its own,
    /// that value is not counted.
    pub fn tail(&self, x: f64) -> f64 {
        if x < 0.0 {
            return 1.0;
        }
        match &self.sampler {
            Sampler::Points(points) => points.tail(x - self.offset),
            Sampler::Zipf(ranks) => ranks.tail(x - self.offset),
            _ => self.form.tail(x - self.offset),
        }
    }

    /// The smallest value that is exceeded with a probability of at most `1 - p`, in the base unit:
    /// what [`Distribution::tail`] inverts. It is infinite at 1 for an unbounded form, and `None`
    /// where `p` is not in `[0, 1]`.
    pub fn quantile(&self, p: f64) -> Option<f64> {
        if !(0.0..=1.0).contains(&p) {
            return None;
        }
        let value = match &self.sampler {
            Sampler::Points(points) => points.quantile(p),
            Sampler::Zipf(ranks) => ranks.quantile(p),
            _ => self.form.quantile(p),
        };
        Some((value + self.offset).max(0.0))
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.offset != 0.0 {
            write!(f, "{}+", self.unit.format(self.offset))?;
        }
        self.form.write(self.unit, f)
    }
}

/// Reason why a distribution was refused.
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
        /// Usage of the form.
        usage: &'static str,
        /// Number of parameters that the form takes.
        expected: usize,
        /// Number of parameters that were given.
        given: usize,
    },
    /// A parameter for which the form could not work.
    #[error("{parameter} must be {rule}, but is {value}")]
    OutOfRange {
        /// Name of the parameter.
        parameter: &'static str,
        /// Rule that the parameter must keep.
        rule: &'static str,
        /// Value of the parameter, in the base unit.
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
        /// Origin that the samples should have come from.
        path: String,
    },
    /// The samples of `file:PATH` could not be had.
    #[error("cannot load the samples of {path:?}: {reason}")]
    Load {
        /// The path given.
        path: String,
        /// Reason that the loader gives.
        reason: String,
    },
}

/// The probability that decimals leave to a third value.
fn rest(p1: f64, p2: f64) -> f64 {
    let rest = 1.0 - p1 - p2;
    // What rounding leaves is no probability that anyone wrote.
    if rest < 1e-12 { 0.0 } else { rest }
}

const FORMS: &str = "fixed:V, uni:MAX, exp:MEAN, bimodal:V1:V2:P1, trimodal:V1:V2:V3:P1:P2, \
    lognorm:MU:SIGMA, gamma:SHAPE:SCALE, pareto:LOC:SCALE:SHAPE, gev:LOC:SCALE:SHAPE, zipf:N:S, \
    file:PATH, and V+DIST";
const LOADER_MISSING: &str = "the file form needs a loader, and there is none here";

#[cfg(test)]
mod tests;
