//! A percentile and its interval, honest under serial correlation.
//!
//! Which samples exceed the percentile is a series of zeros and ones. The variance of its mean over
//! that of as many independent ones (the inflation) says how many independent samples the run is
//! worth. The interval is the exact one of order statistics for that many (Clopper and Pearson),
//! widened for the variance being an estimate itself: so it is as skewed as a tail is, and needs no
//! density.
//!
//! Invariant: at least ten samples lie beyond a percentile that is given, and its interval contains
//! it.

use thiserror::Error;

use super::batches::{CELLS, cells, long_run};
use super::reference::{beta_quantile, student_within};

/// A percentile with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Percentile, as a share in (0, 1): 0.99 for the p99.
    pub p: f64,
    /// The percentile of the samples, ns.
    pub value_ns: f64,
    /// The lower end of its interval, ns.
    pub low_ns: f64,
    /// The upper end of its interval, ns.
    pub high_ns: f64,
    /// Probability with which such an interval is to contain the truth.
    pub confidence: f64,
    /// Samples that it is from.
    pub samples: u64,
    /// Samples that give the certainty of one independent sample; at least 1.
    pub inflation: f64,
}

impl Estimate {
    /// One for tests, of 1,000 independent samples.
    #[cfg(test)]
    pub(crate) fn with_ends(p: f64, value_ns: f64, (low_ns, high_ns): (f64, f64)) -> Self {
        Self { p, value_ns, low_ns, high_ns, confidence: 0.95, samples: 1_000, inflation: 1.0 }
    }

    /// Number of independent samples that these are worth.
    pub fn effective(&self) -> f64 {
        self.samples as f64 / self.inflation
    }

    /// Number of independent samples on the rarer side of the percentile that these are worth. With
    /// few, the tail is a matter of a few episodes, and neither it nor its interval can be relied
    /// on; see [`BEYOND_MIN`].
    pub fn beyond(&self) -> f64 {
        self.effective() * self.p.min(1.0 - self.p)
    }

    /// Half of the interval's length, ns.
    pub fn half_width_ns(&self) -> f64 {
        (self.high_ns - self.low_ns) / 2.0
    }

    /// Half of the interval's length over the percentile; 0 where both are.
    pub fn half_width_share(&self) -> f64 {
        if self.half_width_ns() == 0.0 { 0.0 } else { self.half_width_ns() / self.value_ns }
    }
}

/// Reason why there is no estimate.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// Fewer than ten samples would lie beyond the percentile.
    #[error("{samples} samples do not support this percentile; it takes {needed}")]
    TooFew {
        /// Samples there are.
        samples: u64,
        /// Samples it takes.
        needed: u64,
    },
    /// Not a share between 0 and 1.
    #[error("a percentile is a share above 0 and below 1, but this is {0}")]
    NoShare(f64),
}

/// Samples in the order of their sending, ns, and the same by size, in as much order as what was
/// asked of them took: so that to ask several percentiles of them costs little more than one.
#[derive(Clone, Debug)]
pub struct Ranked<'a> {
    samples: &'a [f32],
    /// From the first question on.
    ordered: Option<Ordered>,
}

impl<'a> Ranked<'a> {
    /// Ranked `samples` of which nothing has been asked yet.
    pub fn new(samples: &'a [f32]) -> Self {
        Self { samples, ordered: None }
    }

    /// The samples in the order of their sending, ns.
    pub fn samples(&self) -> &'a [f32] {
        self.samples
    }

    /// Estimates the percentile `p`, a share in (0, 1). `confidence` is how often the interval is
    /// to contain the truth, such as 0.95.
    ///
    /// # Errors
    ///
    /// That the samples do not support the percentile, or that it is none.
    pub fn estimate(&mut self, p: f64, confidence: f64) -> Result<Estimate, Unsupported> {
        let needed = samples_needed(p)?;
        let count = self.samples.len() as u64;
        if count < needed {
            return Err(Unsupported::TooFew { samples: count, needed });
        }
        let inflation = self.inflation(p);
        let value = self.percentile(p);
        let freedom = inflation.freedom;
        // A variance that is an estimate widens the interval as if there were fewer samples.
        let widening = (student_within(confidence, freedom)
            / student_within(confidence, FREEDOM_KNOWN))
        .powi(2);
        let effective = count as f64 / (inflation.factor * widening);
        let (below, above) = (effective * p, effective * (1.0 - p));
        let outside = (1.0 - confidence) / 2.0;
        let low = beta_quantile(outside, below, above + 1.0);
        let high = beta_quantile(1.0 - outside, below + 1.0, above);
        Ok(Estimate {
            p,
            value_ns: f64::from(value),
            low_ns: f64::from(self.percentile(low)).min(f64::from(value)),
            high_ns: f64::from(self.percentile(high)).max(f64::from(value)),
            confidence,
            samples: count,
            inflation: inflation.factor,
        })
    }

    /// The percentile `p` of the samples alone; infinite without any.
    pub(super) fn percentile(&mut self, p: f64) -> f32 {
        if self.samples.is_empty() {
            return f32::INFINITY;
        }
        self.ordered.get_or_insert_with(|| Ordered::new(self.samples)).statistic(p)
    }

    /// The largest inflation at the percentile and at those below it with [`WIDER`] times as many
    /// samples beyond.
    ///
    /// Few bursts reach the percentile, and a run that has missed them takes its samples for
    /// independent. The same bursts show at lower percentiles many times more often, with about as
    /// much memory.
    fn inflation(&mut self, p: f64) -> Inflation {
        let known = Inflation { factor: 1.0, freedom: FREEDOM_KNOWN };
        let levels = WIDER
            .iter()
            .map(|wider| 1.0 - (1.0 - p) * wider)
            .filter(|&level| level == p || level >= MEDIAN);
        let at_levels =
            levels.filter_map(|level| inflation_at(self.samples, self.percentile(level), level));
        at_levels.fold(known, |most, at| if at.factor > most.factor { at } else { most })
    }
}

/// Estimates a percentile of `samples` as [`Ranked::estimate`], where one is all that is asked.
///
/// # Errors
///
/// That the samples do not support the percentile, or that it is none.
pub fn estimate(samples: &[f32], p: f64, confidence: f64) -> Result<Estimate, Unsupported> {
    Ranked::new(samples).estimate(p, confidence)
}

/// The samples that it takes to give a percentile at all: so many that ten lie on its rarer side.
///
/// # Errors
///
/// That `p` is not a share above 0 and below 1.
pub fn samples_needed(p: f64) -> Result<u64, Unsupported> {
    if !(p > 0.0 && p < 1.0) {
        return Err(Unsupported::NoShare(p));
    }
    // Rounding of 1 - p must not ask for one more.
    Ok((SAMPLES_BEYOND_MIN / p.min(1.0 - p) - 1e-6).ceil() as u64)
}

/// Inflation by correlation of the variance of the share above the percentile.
struct Inflation {
    factor: f64,
    freedom: f64,
}

fn inflation_at(samples: &[f32], value: f32, p: f64) -> Option<Inflation> {
    let above = cells(samples, CELLS, |sample| f64::from(sample > value));
    let long_run = long_run(&above)?;
    let independent = p * (1.0 - p) / samples.len() as f64;
    Some(Inflation { factor: long_run.variance / independent, freedom: long_run.freedom })
}

/// Samples, not none, in as much order as what was asked of them took.
#[derive(Clone, Debug)]
struct Ordered {
    samples: Vec<f32>,
    /// Indices at which the samples are parted: nothing before one is larger than what lies there,
    /// and nothing after it smaller. Ascending.
    cuts: Vec<usize>,
}

impl Ordered {
    fn new(samples: &[f32]) -> Self {
        Self { samples: samples.to_vec(), cuts: Vec::new() }
    }

    /// The smallest value that at most a share of `1 - p` exceeds.
    fn statistic(&mut self, p: f64) -> f32 {
        let count = self.samples.len();
        let rank = (p * count as f64 - 1e-9).ceil().max(1.0) as usize;
        let index = (rank - 1).min(count - 1);
        if let Err(place) = self.cuts.binary_search(&index) {
            // The others of a tail are close by: what lies beyond the nearest cuts is left alone.
            let from = place.checked_sub(1).map_or(0, |before| self.cuts[before] + 1);
            let to = self.cuts.get(place).copied().unwrap_or(count);
            self.samples[from..to].select_nth_unstable_by(index - from, f32::total_cmp);
            self.cuts.insert(place, index);
        }
        self.samples[index]
    }
}

/// Fewer independent samples beyond the percentile than this make it a matter of a few episodes,
/// whose number, not their spread, is what the interval would need to know.
pub const BEYOND_MIN: f64 = 30.0;
/// Fewer samples beyond a percentile than this leave it to chance.
const SAMPLES_BEYOND_MIN: f64 = 10.0;
/// Factors by which more samples lie beyond the levels at which bursts are looked for. The lowest
/// level comes first, so that the others are looked for above it alone.
const WIDER: [f64; 3] = [10.0, 3.0, 1.0];
/// Below it levels tell of the many, not of the slow.
const MEDIAN: f64 = 0.5;
/// Degrees of freedom at which a variance is as good as known.
const FREEDOM_KNOWN: f64 = 1e6;
