//! Latencies and counts, and the percentiles that they support.
//!
//! Every reply is recorded twice: from the intended send time and from the actual one. A client
//! that falls behind its schedule hides its delay from the second (coordinated omission), so the
//! first is the one to report, and a gap between the two says that the client was the bottleneck.
//! Agents ship whole histograms and merge them; percentiles are never averaged.
//!
//! Invariant: recording allocates nothing, and a percentile is given only where at least ten
//! samples lie beyond it.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The two times that a request's latency counts from. It goes with the request and comes back
/// with its outcome, once, which is why it cannot be copied.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "give it back to the run with the request's outcome"]
pub struct Sample {
    /// When the request should have left; ns.
    pub intended_ns: u64,
    /// When it left; ns.
    pub sent_ns: u64,
}

/// What became of requests. Each is counted once, under its outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests that left.
    pub sent: u64,
    /// Requests with a reply; each is one latency sample.
    pub replied: u64,
    /// Requests of which nothing came back, known without a timeout of their own.
    pub lost: u64,
    /// Requests that the server or the router refused.
    pub refused: u64,
    /// Requests that were given up after their timeout.
    pub timeout: u64,
}

impl Counts {
    /// Adds another part's counts.
    pub fn merge(&mut self, other: &Counts) {
        self.sent += other.sent;
        self.replied += other.replied;
        self.lost += other.lost;
        self.refused += other.refused;
        self.timeout += other.timeout;
    }

    /// Requests that were sent and have no outcome yet.
    pub fn unresolved(&self) -> u64 {
        let resolved = self.replied + self.lost + self.refused + self.timeout;
        self.sent.saturating_sub(resolved)
    }
}

/// How a request ended without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// Nothing came back.
    Lost,
    /// The server or the router refused it.
    Refused,
    /// It was given up after its timeout.
    Timeout,
}

impl Failure {
    /// Its stable name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Refused => "refused",
            Self::Timeout => "timeout",
        }
    }
}

/// Latency figures in microseconds, each only where the samples support it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencyUs {
    /// The exact mean; `None` without samples.
    pub mean: Option<f64>,
    /// The median; needs 20 samples.
    pub p50: Option<f64>,
    /// The 90th percentile; needs 100 samples.
    pub p90: Option<f64>,
    /// The 99th percentile; needs 1,000 samples.
    pub p99: Option<f64>,
    /// The 99.9th percentile; needs 10,000 samples.
    pub p999: Option<f64>,
    /// The exact maximum; `None` without samples.
    pub max: Option<f64>,
}

/// What a recorder has to say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// What became of the requests.
    pub counts: Counts,
    /// Latency from the intended send time: what a user would see.
    pub intended: LatencyUs,
    /// Latency from the actual send time: what the client saw.
    pub actual: LatencyUs,
}

/// Records the outcome of every measured request.
#[derive(Clone, Debug)]
pub struct Recorder {
    counts: Counts,
    intended: Latencies,
    actual: Latencies,
}

impl Recorder {
    /// An empty recorder. It takes all its memory (about 0.5 MB) now.
    pub fn new() -> Self {
        Self { counts: Counts::default(), intended: Latencies::new(), actual: Latencies::new() }
    }

    /// Counts a request that left.
    pub fn handle_sent(&mut self) {
        self.counts.sent += 1;
    }

    /// Counts a reply that arrived at `now_ns`, and records both latencies.
    pub fn handle_reply(&mut self, sample: &Sample, now_ns: u64) {
        self.counts.replied += 1;
        self.intended.record(now_ns.saturating_sub(sample.intended_ns));
        self.actual.record(now_ns.saturating_sub(sample.sent_ns));
    }

    /// Counts a request that ended without a reply. It leaves no latency: a summary is to be read
    /// with its counts.
    pub fn handle_failure(&mut self, failure: Failure) {
        self.handle_failures(failure, 1);
    }

    /// Counts `count` requests that ended alike without a reply.
    pub fn handle_failures(&mut self, failure: Failure, count: u64) {
        let counter = match failure {
            Failure::Lost => &mut self.counts.lost,
            Failure::Refused => &mut self.counts.refused,
            Failure::Timeout => &mut self.counts.timeout,
        };
        *counter += count;
    }

    /// Adds every sample and count of another recorder, without loss.
    pub fn merge(&mut self, other: &Recorder) {
        self.counts.merge(&other.counts);
        self.intended.merge(&other.intended);
        self.actual.merge(&other.actual);
    }

    /// What became of the requests so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The figures so far.
    pub fn summary(&self) -> Summary {
        Summary {
            counts: self.counts,
            intended: self.intended.summary(),
            actual: self.actual.summary(),
        }
    }

    /// The histogram of latencies from the intended send time, ns. A value beyond
    /// [`LATENCY_MAX_NS`] counts as that.
    pub fn intended(&self) -> &Histogram<u64> {
        &self.intended.histogram
    }

    /// The histogram of latencies from the actual send time, ns. A value beyond
    /// [`LATENCY_MAX_NS`] counts as that.
    pub fn actual(&self) -> &Histogram<u64> {
        &self.actual.histogram
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

/// Latencies of one kind: their histogram, and what a histogram rounds.
#[derive(Clone, Debug)]
struct Latencies {
    /// ns.
    histogram: Histogram<u64>,
    sum_ns: u128,
    max_ns: u64,
}

impl Latencies {
    fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX_NS, SIGNIFICANT_DIGITS)
            .expect("the bounds and the digits are valid constants");
        Self { histogram, sum_ns: 0, max_ns: 0 }
    }

    fn record(&mut self, latency_ns: u64) {
        self.histogram.saturating_record(latency_ns.min(LATENCY_MAX_NS));
        self.sum_ns += u128::from(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
    }

    fn merge(&mut self, other: &Latencies) {
        self.histogram.add(&other.histogram).expect("all recorders have the same bounds");
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    fn summary(&self) -> LatencyUs {
        let count = self.histogram.len();
        if count == 0 {
            return LatencyUs::default();
        }
        LatencyUs {
            mean: Some(self.sum_ns as f64 / count as f64 / NS_PER_US),
            p50: self.percentile_us(500),
            p90: self.percentile_us(900),
            p99: self.percentile_us(990),
            p999: self.percentile_us(999),
            max: Some(self.max_ns as f64 / NS_PER_US),
        }
    }

    fn percentile_us(&self, per_mille: u32) -> Option<f64> {
        let beyond_per_mille = u64::from(1000 - per_mille);
        if self.histogram.len() < (SAMPLES_BEYOND_MIN * 1000).div_ceil(beyond_per_mille) {
            return None;
        }
        let value_ns = self.histogram.value_at_quantile(f64::from(per_mille) / 1000.0);
        // The histogram gives the upper end of a bucket, which may exceed every sample in it.
        Some(value_ns.min(self.max_ns) as f64 / NS_PER_US)
    }
}

/// The largest latency told apart, 100 s. A larger one counts as this in percentiles, and as
/// itself in the mean and the maximum.
pub const LATENCY_MAX_NS: u64 = 100_000_000_000;
/// Percentiles are within 0.1 %, well below what two runs differ by.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Fewer samples beyond a percentile than this leave it to chance.
const SAMPLES_BEYOND_MIN: u64 = 10;
const NS_PER_US: f64 = 1e3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_counts_from_the_intended_and_from_the_actual_send() {
        let mut recorder = Recorder::new();
        record(&mut recorder, 1_000, 4_000, 9_000);
        let summary = recorder.summary();
        assert_eq!(summary.intended.max, Some(8.0));
        assert_eq!(summary.actual.max, Some(5.0));
    }

    #[test]
    fn without_samples_there_is_no_figure() {
        assert_eq!(Recorder::new().summary(), Summary::default());
    }

    #[test]
    fn a_percentile_needs_ten_samples_beyond_it() {
        check_supported(19, [false, false, false, false]);
        check_supported(20, [true, false, false, false]);
        check_supported(99, [true, false, false, false]);
        check_supported(100, [true, true, false, false]);
        check_supported(999, [true, true, false, false]);
        check_supported(1_000, [true, true, true, false]);
        check_supported(9_999, [true, true, true, false]);
        check_supported(10_000, [true, true, true, true]);
    }

    #[test]
    fn percentiles_are_within_a_thousandth() {
        let summary = ramp(1..=10_000).summary().intended;
        for (value, expected) in [
            (summary.p50, 5_000.0),
            (summary.p90, 9_000.0),
            (summary.p99, 9_900.0),
            (summary.p999, 9_990.0),
        ] {
            let value = value.unwrap();
            assert!((value / expected - 1.0).abs() <= 1e-3, "{value} is not {expected}");
        }
    }

    #[test]
    fn mean_and_maximum_are_exact() {
        let summary = ramp(1..=10_001).summary().intended;
        assert_eq!(summary.mean, Some(5_001.0));
        assert_eq!(summary.max, Some(10_001.0));
    }

    #[test]
    fn parts_merge_into_the_whole() {
        let mut merged = ramp(1..=4_000);
        merged.merge(&ramp(4_001..=10_000));
        assert_eq!(merged.summary(), ramp(1..=10_000).summary());
    }

    #[test]
    fn each_failure_has_its_counter() {
        let mut recorder = Recorder::new();
        for failure in [Failure::Lost, Failure::Refused, Failure::Timeout] {
            recorder.handle_sent();
            recorder.handle_failure(failure);
        }
        recorder.handle_sent();
        let expected = Counts { sent: 4, replied: 0, lost: 1, refused: 1, timeout: 1 };
        assert_eq!(*recorder.counts(), expected);
        assert_eq!(recorder.counts().unresolved(), 1);
    }

    #[test]
    fn a_latency_beyond_the_bound_keeps_its_maximum() {
        let mut recorder = Recorder::new();
        record(&mut recorder, 0, 0, 3 * LATENCY_MAX_NS);
        assert_eq!(recorder.summary().intended.max, Some(300e6));
        assert_eq!(recorder.intended().len(), 1);
    }

    fn record(recorder: &mut Recorder, intended_ns: u64, sent_ns: u64, now_ns: u64) {
        let sample = Sample { intended_ns, sent_ns };
        recorder.handle_sent();
        recorder.handle_reply(&sample, now_ns);
    }

    /// One latency of each whole number of microseconds.
    fn ramp(latencies_us: std::ops::RangeInclusive<u64>) -> Recorder {
        let mut recorder = Recorder::new();
        for latency_us in latencies_us {
            record(&mut recorder, 0, 0, latency_us * 1_000);
        }
        recorder
    }

    fn check_supported(count: u64, supported: [bool; 4]) {
        let summary = ramp(1..=count).summary().intended;
        let given = [summary.p50, summary.p90, summary.p99, summary.p999];
        assert_eq!(given.map(|figure| figure.is_some()), supported, "{count} samples");
        assert!(summary.mean.is_some() && summary.max.is_some());
    }
}
