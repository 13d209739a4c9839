//! Intended send times.
//!
//! An open-loop load sends when its schedule says so, whatever became of earlier requests. The
//! schedule is drawn here, ahead of the clock and apart from it.
//!
//! Invariant: times never decrease, and they do not drift: after n arrivals at rate r the expected
//! time is n / r, because the fraction of a nanosecond that a time leaves out is carried to the
//! next.

use rand::RngExt;
use rand_distr::Exp1;
use thiserror::Error;

use crate::distribution::{Distribution, DistributionError};
use crate::generator::Generator;
use crate::quantity::Unit;

/// The shape of the gaps between arrivals; the rate is given apart.
#[derive(Clone, Debug, PartialEq)]
pub enum Process {
    /// Exponential gaps, as from many independent clients: `poisson`.
    Poisson,
    /// Equal gaps: `fixed`.
    Fixed,
    /// Gaps of any distribution, scaled to the rate; only its shape matters. It is written as in
    /// the grammar of [`Distribution`], with plain numbers.
    Shaped(Distribution),
}

impl Process {
    /// Reads `poisson`, `fixed`, or a distribution such as `pareto:0:16.0292:0.154971`.
    ///
    /// # Errors
    ///
    /// What is wrong with the distribution.
    pub fn parse(text: &str) -> Result<Self, DistributionError> {
        match text {
            "poisson" => Ok(Process::Poisson),
            "fixed" => Ok(Process::Fixed),
            _ => Distribution::parse(text, Unit::Plain).map(Process::Shaped),
        }
    }
}

/// Draws intended send times, in ns relative to the start of the load.
///
/// As an iterator it never ends.
#[derive(Clone, Debug)]
pub struct Arrivals {
    process: Process,
    /// Multiplies a gap of the process into ns.
    scale_ns: f64,
    /// The time of the last arrival, whole ns.
    whole_ns: u64,
    /// Fraction that the last arrival's time leaves out, in `[0, 1)` ns.
    fraction_ns: f64,
    rng: Generator,
}

impl Arrivals {
    /// Arrivals of `process` at `rate_per_s` on average; the first comes one gap after the start.
    ///
    /// # Errors
    ///
    /// A rate that is not in `(0, 1e9]`, or a distribution whose mean is zero or infinite, which
    /// no factor can scale to a rate.
    pub fn new(process: Process, rate_per_s: f64, rng: Generator) -> Result<Self, ArrivalsError> {
        if !(rate_per_s > 0.0 && rate_per_s <= RATE_MAX_PER_S) {
            return Err(ArrivalsError::Rate(rate_per_s));
        }
        let mean_gap = match &process {
            Process::Poisson | Process::Fixed => 1.0,
            Process::Shaped(gaps) => gaps
                .mean()
                .filter(|&mean| mean > 0.0)
                .ok_or_else(|| ArrivalsError::Mean(gaps.to_string()))?,
        };
        Ok(Self {
            process,
            scale_ns: NS_PER_S / rate_per_s / mean_gap,
            whole_ns: 0,
            fraction_ns: 0.0,
            rng,
        })
    }

    /// The next intended send time, ns after the start. It saturates at `u64::MAX`.
    pub fn next_ns(&mut self) -> u64 {
        let gap = match &self.process {
            Process::Poisson => self.rng.sample(Exp1),
            Process::Fixed => 1.0,
            Process::Shaped(gaps) => gaps.sample(&mut self.rng),
        };
        let advance_ns = self.fraction_ns + gap * self.scale_ns;
        self.fraction_ns = advance_ns.fract();
        self.whole_ns = self.whole_ns.saturating_add(advance_ns as u64);
        self.whole_ns
    }
}

impl Iterator for Arrivals {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        Some(self.next_ns())
    }
}

/// Reason why a schedule cannot be drawn.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ArrivalsError {
    /// The rate is not above zero, or beyond one a nanosecond.
    #[error("the rate must be above 0 and at most 1e9 a second, but is {0}")]
    Rate(f64),
    /// The mean gap is zero or infinite.
    #[error("{0} has no mean gap above zero, so it cannot be scaled to a rate")]
    Mean(String),
}

const NS_PER_S: f64 = 1e9;
const RATE_MAX_PER_S: f64 = 1e9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::generator;

    #[test]
    fn fixed_gaps_do_not_drift() {
        // A third of a nanosecond is left out of each gap; a million of them are exact.
        let mut arrivals = arrivals("fixed", 3e6);
        assert_eq!(arrivals.next_ns(), 333);
        assert_eq!(arrivals.next_ns(), 666);
        let last = arrivals.nth(3_000_000 - 3).unwrap();
        assert!(last.abs_diff(1_000_000_000) <= 1, "{last}");
    }

    #[test]
    fn poisson_gaps_have_the_rate_and_the_spread_of_an_exponential() {
        check_gaps("poisson", 1.0);
    }

    #[test]
    fn shaped_gaps_are_scaled_to_the_rate() {
        // The shape 0.154971 has the squared coefficient of variation 1 / (1 - 2 shape).
        check_gaps("pareto:0:16.0292:0.154971", 1.0 / (1.0 - 2.0 * 0.154_971));
    }

    #[test]
    fn uniform_gaps_are_scaled_to_the_rate() {
        check_gaps("uni:7", 1.0 / 3.0);
    }

    #[test]
    fn a_seed_replays_its_schedule() {
        let first: Vec<u64> = arrivals("poisson", 1e6).take(100).collect();
        let second: Vec<u64> = arrivals("poisson", 1e6).take(100).collect();
        assert_eq!(first, second);
    }

    #[test]
    fn a_rate_outside_of_its_range_is_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 2e9] {
            let refused = Arrivals::new(Process::Poisson, rate, generator(1, 0));
            assert!(matches!(refused, Err(ArrivalsError::Rate(_))), "{rate}");
        }
    }

    #[test]
    fn gaps_without_a_mean_are_refused() {
        for text in ["pareto:0:1:1", "fixed:0", "bimodal:0:0:0.5"] {
            let process = Process::parse(text).unwrap();
            let refused = Arrivals::new(process, 1e6, generator(1, 0));
            assert!(matches!(refused, Err(ArrivalsError::Mean(_))), "{text}");
        }
    }

    fn arrivals(process: &str, rate_per_s: f64) -> Arrivals {
        let process = Process::parse(process).unwrap();
        Arrivals::new(process, rate_per_s, generator(5, 0)).unwrap()
    }

    /// The mean gap within five standard errors, and the squared coefficient of variation within
    /// 5 %, of 400,000 gaps at 300 k/s.
    fn check_gaps(process: &str, squared_variation: f64) {
        const COUNT: usize = 400_000;
        let mean_ns = 1e9 / 300e3;
        let times: Vec<u64> = arrivals(process, 300e3).take(COUNT).collect();
        let end_ns = times[COUNT - 1] as f64;
        let error = end_ns / COUNT as f64 / mean_ns - 1.0;
        assert!(error.abs() < 5.0 * (squared_variation / COUNT as f64).sqrt(), "{error}");
        let spread = times
            .windows(2)
            .map(|pair| ((pair[1] - pair[0]) as f64 / mean_ns - 1.0).powi(2))
            .sum::<f64>()
            / COUNT as f64;
        assert!((spread / squared_variation - 1.0).abs() < 0.05, "{spread}");
    }
}
