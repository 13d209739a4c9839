//! Tails and quantiles.
//!
//! Invariant: the quantile of p is the smallest value whose tail is at most 1 - p.

use super::Form;
use super::special::{box_cox, box_cox_inverse, gamma, normal_tail};

impl Form {
    /// The probability that a sample without its constant exceeds `x`. [`super::sampler::Points`]
    /// and [`super::sampler::Ranks`] have it for the forms that are lists of values.
    pub(super) fn tail(&self, x: f64) -> f64 {
        match *self {
            Form::Fixed { value } => step(x < value),
            Form::Uniform { max } => (1.0 - x / max).clamp(0.0, 1.0),
            Form::Exponential { mean } => (-x.max(0.0) / mean).exp(),
            // Without a spread the logarithm's division has no sign where the value stands.
            Form::LogNormal { mu, sigma: 0.0 } => step(x < mu.exp()),
            Form::LogNormal { mu, sigma } => normal_tail((x.max(0.0).ln() - mu) / sigma),
            Form::Gamma { shape, scale } => gamma(shape, x / scale).1,
            Form::Pareto { location, scale, shape } => {
                (-box_cox_inverse((x - location).max(0.0) / scale, shape)).exp()
            }
            Form::ExtremeValue { location, scale, shape } => {
                -(-(-box_cox_inverse((x - location) / scale, shape)).exp()).exp_m1()
            }
            Form::Empirical { ref samples, .. } => {
                let above = samples.len() - samples.partition_point(|&sample| sample <= x);
                above as f64 / samples.len() as f64
            }
            Form::Bimodal { .. } | Form::Trimodal { .. } | Form::Zipf { .. } => {
                unreachable!("a list of values")
            }
        }
    }

    /// The quantile of the forms that [`Form::tail`] takes.
    #[inline]
    pub(super) fn quantile(&self, p: f64) -> f64 {
        match *self {
            Form::Fixed { value } => value,
            Form::Uniform { max } => p * max,
            Form::Exponential { mean } => -mean * (-p).ln_1p(),
            Form::LogNormal { mu, sigma: 0.0 } => mu.exp(),
            Form::LogNormal { mu, sigma } => (mu + sigma * normal_quantile(p)).exp(),
            Form::Gamma { shape, scale } => gamma_quantile(shape, p) * scale,
            Form::Pareto { location, scale, shape } => {
                location + scale * box_cox(-(-p).ln_1p(), shape)
            }
            Form::ExtremeValue { location, scale, shape } => {
                location + scale * box_cox(-(-p.ln()).ln(), shape)
            }
            Form::Empirical { ref samples, .. } => {
                let rank = (p * samples.len() as f64).ceil() as usize;
                samples[rank.saturating_sub(1).min(samples.len() - 1)]
            }
            Form::Bimodal { .. } | Form::Trimodal { .. } | Form::Zipf { .. } => {
                unreachable!("a list of values")
            }
        }
    }
}

/// Coles, An Introduction to Statistical Modeling of Extreme Values, equation 3.2.
pub(super) fn extreme_value_cdf(location: f64, scale: f64, shape: f64, x: f64) -> f64 {
    (-(-box_cox_inverse((x - location) / scale, shape)).exp()).exp()
}

fn normal_quantile(p: f64) -> f64 {
    if p == 0.0 || p == 1.0 {
        return if p == 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    // Beyond 39 standard deviations an `f64` holds no probability.
    smallest(
        -39.0,
        39.0,
        |z| if p < 0.5 { normal_tail(-z) >= p } else { normal_tail(z) <= 1.0 - p },
    )
}

/// At scale 1. The logarithm is sought, because a small shape has its quantiles hundreds of decades
/// apart.
fn gamma_quantile(shape: f64, p: f64) -> f64 {
    if p == 0.0 || p == 1.0 {
        return if p == 0.0 { 0.0 } else { f64::INFINITY };
    }
    let reached = |logarithm: f64| {
        let (below, above) = gamma(shape, logarithm.exp());
        if p < 0.5 { below >= p } else { above <= 1.0 - p }
    };
    smallest(-745.0, 30.0, reached).exp()
}

/// The smallest number between `low` and `high` for which `reached` holds, as it does from there
/// on.
fn smallest(mut low: f64, mut high: f64, reached: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..BISECTIONS {
        let middle = low + (high - low) / 2.0;
        if reached(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

fn step(is_below: bool) -> f64 {
    if is_below { 1.0 } else { 0.0 }
}

/// Below the spacing of an `f64` in any range searched here.
const BISECTIONS: usize = 64;
