//! Sojourn times of a simulation: a histogram, the figures of it, and their spread
//! over seeds.
//!
//! Invariant: memory does not grow with the number of requests, and a percentile is within 0.05 %
//! of the exact one.

use hdrhistogram::Histogram;

/// Sojourn times of one run, in ticks.
#[derive(Clone, Debug)]
pub struct Sojourns {
    histogram: Histogram<u64>,
    /// For a mean that the histogram's rounding does not touch.
    sum: f64,
}

/// The figures of a run, in the unit that [`Sojourns::figures`] was given.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// Exceeded by one in ten.
    pub p90: f64,
    /// Exceeded by one in a hundred.
    pub p99: f64,
    /// Exceeded by one in a thousand.
    pub p999: f64,
}

/// A figure over several seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean over the seeds.
    pub value: f64,
    /// The standard error of that mean; `None` for a single seed.
    pub standard_error: Option<f64>,
}

impl Sojourns {
    /// Nothing recorded.
    pub fn new() -> Self {
        let histogram = Histogram::new(SIGNIFICANT_DIGITS).expect("the digits are in range");
        Self { histogram, sum: 0.0 }
    }

    /// Records a sojourn time.
    pub fn record(&mut self, ticks: u64) {
        self.sum += ticks as f64;
        self.histogram
            .record(ticks.min(i64::MAX as u64))
            .expect("the histogram resizes itself up to 2^63");
    }

    /// Sojourns recorded.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The mean in ticks; not a number where nothing was recorded.
    pub fn mean(&self) -> f64 {
        self.sum / self.count() as f64
    }

    /// The smallest recorded time, to the histogram's precision, that at most `1 - p` of all
    /// exceed; ticks. Not a number where nothing was recorded.
    pub fn percentile(&self, p: f64) -> f64 {
        if self.count() == 0 {
            return f64::NAN;
        }
        let bucket = self.histogram.value_at_quantile(p.clamp(0.0, 1.0));
        self.histogram.median_equivalent(bucket) as f64
    }

    /// The share of sojourns above `ticks`.
    pub fn tail(&self, ticks: f64) -> f64 {
        if self.count() == 0 {
            return 0.0;
        }
        let within = self.histogram.count_between(0, ticks.clamp(0.0, i64::MAX as f64) as u64);
        1.0 - within as f64 / self.count() as f64
    }

    /// The figures in units of `unit` ticks; not numbers where nothing was recorded, so that nobody
    /// takes an outage for speed.
    pub fn figures(&self, unit: f64) -> Figures {
        let [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(|p| self.percentile(p) / unit);
        Figures { mean: self.mean() / unit, p50, p90, p99, p999 }
    }
}

impl Default for Sojourns {
    fn default() -> Self {
        Self::new()
    }
}

impl Estimate {
    /// The estimate from the values of several seeds.
    ///
    /// # Panics
    /// Without a value.
    pub fn of(values: &[f64]) -> Self {
        assert!(!values.is_empty(), "an estimate needs a value");
        let count = values.len() as f64;
        let value = values.iter().sum::<f64>() / count;
        if values.len() == 1 {
            return Self { value, standard_error: None };
        }
        let variance =
            values.iter().map(|other| (other - value).powi(2)).sum::<f64>() / (count - 1.0);
        Self { value, standard_error: Some((variance / count).sqrt()) }
    }
}

/// Three digits are 0.05 % from the middle of a bucket; one more would cost a cache miss for each
/// record.
const SIGNIFICANT_DIGITS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_in_their_unit() {
        let mut sojourns = Sojourns::new();
        (1..=1000u64).for_each(|value| sojourns.record(value * 1_000_000));
        let figures = sojourns.figures(1e6);
        assert_eq!(figures.mean, 500.5);
        for (figure, exact) in [
            (figures.p50, 500.0),
            (figures.p90, 900.0),
            (figures.p99, 990.0),
            (figures.p999, 999.0),
        ] {
            assert!((figure / exact - 1.0).abs() < 0.0006, "{figure} {exact}");
        }
        assert!((sojourns.tail(990e6) - 0.01).abs() < 0.0015);
    }

    #[test]
    fn an_estimate_has_the_standard_error_of_its_mean() {
        let estimate = Estimate::of(&[1.0, 2.0, 3.0]);
        assert_eq!(estimate.value, 2.0);
        assert!((estimate.standard_error.unwrap() - (1.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(Estimate::of(&[5.0]), Estimate { value: 5.0, standard_error: None });
    }

    #[test]
    fn nothing_recorded_is_no_number() {
        let Figures { mean, p50, p999, .. } = Sojourns::new().figures(1.0);
        assert!(mean.is_nan() && p50.is_nan() && p999.is_nan());
    }
}
