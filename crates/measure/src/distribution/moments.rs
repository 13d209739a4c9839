//! The closed means and variances.

use std::f64::consts::PI;

use super::special::power_sum;
use super::{Form, rest};

impl Form {
    pub(super) fn mean(&self) -> Option<f64> {
        Some(match *self {
            Form::Fixed { value } => value,
            Form::Uniform { max } => max / 2.0,
            Form::Exponential { mean } => mean,
            Form::Bimodal { values: [v1, v2], probability: p } => p * v1 + (1.0 - p) * v2,
            Form::Trimodal { values: [v1, v2, v3], probabilities: [p1, p2] } => {
                p1 * v1 + p2 * v2 + rest(p1, p2) * v3
            }
            Form::LogNormal { mu, sigma } => (mu + sigma * sigma / 2.0).exp(),
            Form::Gamma { shape, scale } => shape * scale,
            Form::Pareto { shape, .. } | Form::ExtremeValue { shape, .. } if shape >= 1.0 => {
                return None;
            }
            Form::Pareto { location, scale, shape } => location + scale / (1.0 - shape),
            Form::ExtremeValue { location, scale, shape } => {
                location + scale * extreme_value_mean(shape)
            }
            Form::Zipf { ranks, exponent } => {
                power_sum(ranks, exponent - 1.0) / power_sum(ranks, exponent)
            }
            Form::Empirical { ref samples, .. } => mean_of(samples.iter().copied()),
        })
    }

    pub(super) fn variance(&self) -> Option<f64> {
        Some(match *self {
            Form::Fixed { .. } => 0.0,
            Form::Uniform { max } => max * max / 12.0,
            Form::Exponential { mean } => mean * mean,
            Form::Bimodal { values: [v1, v2], probability: p } => p * (1.0 - p) * (v1 - v2).powi(2),
            Form::Trimodal { values: [v1, v2, v3], probabilities: [p1, p2] } => {
                let mean = self.mean()?;
                p1 * (v1 - mean).powi(2)
                    + p2 * (v2 - mean).powi(2)
                    + rest(p1, p2) * (v3 - mean).powi(2)
            }
            Form::LogNormal { mu, sigma } => {
                let squared = sigma * sigma;
                squared.exp_m1() * (2.0 * mu + squared).exp()
            }
            Form::Gamma { shape, scale } => shape * scale * scale,
            Form::Pareto { shape, .. } | Form::ExtremeValue { shape, .. } if shape >= 0.5 => {
                return None;
            }
            Form::Pareto { scale, shape, .. } => {
                (scale / (1.0 - shape)).powi(2) / (1.0 - 2.0 * shape)
            }
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
}

pub(super) fn mean_of(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.map(|value| value / count).sum()
}

/// The mean at location 0 and scale 1, for a shape below 1.
fn extreme_value_mean(shape: f64) -> f64 {
    if shape.abs() < SHAPE_SMALL {
        return EULER_GAMMA;
    }
    libm::lgamma(1.0 - shape).exp_m1() / shape
}

/// The variance at scale 1, for a shape below 1/2.
pub(super) fn extreme_value_spread(shape: f64) -> f64 {
    if shape.abs() < SHAPE_SERIES {
        // The first two terms of its series; the third is below 1e-7.
        return PI * PI / 6.0 + shape * (PI * PI * EULER_GAMMA / 3.0 + 2.0 * ZETA_3);
    }
    let first = libm::lgamma(1.0 - shape);
    let second = libm::lgamma(1.0 - 2.0 * shape);
    (2.0 * first).exp() * (second - 2.0 * first).exp_m1() / (shape * shape)
}

const EULER_GAMMA: f64 = 0.577_215_664_901_532_9;
/// Apery's constant.
const ZETA_3: f64 = 1.202_056_903_159_594_2;
/// Below it the mean's difference cancels more digits than its limit at 0 is away.
const SHAPE_SMALL: f64 = 1e-7;
/// Below it the variance's difference of squares cancels more digits than its series leaves out.
const SHAPE_SERIES: f64 = 1e-4;
