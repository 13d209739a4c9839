//! Quantiles, and the probabilities that they invert.

use super::Form;
use super::special::box_cox;

impl Form {
    /// Without the forms whose points are sorted by the sampler.
    pub(super) fn quantile(&self, p: f64) -> Option<f64> {
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

/// Coles, An Introduction to Statistical Modeling of Extreme Values, equation 3.2.
pub(super) fn extreme_value_cdf(location: f64, scale: f64, shape: f64, x: f64) -> f64 {
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
