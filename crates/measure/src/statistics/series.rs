//! Latencies in the order in which their requests were sent, within a bound.
//!
//! How alike neighbours are shows only in their order, which a histogram drops. A [`Series`]
//! keeps every latency until its limit; from then on every second one, then every fourth, and so
//! on, evenly by the order of sending. Thinning costs width, never honesty: the interval is that of
//! the samples kept. Histograms are no part of this and stay whole.
//!
//! Invariant: memory is at most four bytes for each sample of the limit, and what is kept is every
//! n-th sample from the first.

/// One reply, as an agent hands it over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timed {
    /// Time at which the request should have left, ns on the clock that all agents of the run
    /// share.
    pub intended_ns: u64,
    /// From then to the reply, ns.
    pub latency_ns: u64,
    /// Delay from the intended to the actual send, ns.
    pub late_ns: u64,
}

impl Timed {
    /// From the actual send to the reply, ns.
    pub fn actual_ns(&self) -> u64 {
        self.latency_ns.saturating_sub(self.late_ns)
    }
}

/// The samples of all agents as one, in the order of their intended sends; equal times keep the
/// order of the agents.
///
/// Replies come back out of order even within one agent, so the parts need no order of their own.
pub fn merge(parts: Vec<Vec<Timed>>) -> Vec<Timed> {
    let mut merged = Vec::with_capacity(parts.iter().map(Vec::len).sum());
    merged.extend(parts.into_iter().flatten());
    // Stable, and linear where the parts are in order already.
    merged.sort_by_key(|sample: &Timed| sample.intended_ns);
    merged
}

/// Latencies in ns, in the order of sending.
#[derive(Clone, Debug)]
pub struct Series {
    kept: Vec<f32>,
    limit: usize,
    /// Every so many samples one is kept; a power of two.
    stride: u64,
    seen: u64,
}

impl Series {
    /// An empty series that keeps at most `limit` samples; of fewer than [`LIMIT_MIN`] that many.
    pub fn new(limit: usize) -> Self {
        Self { kept: Vec::new(), limit: limit.max(LIMIT_MIN), stride: 1, seen: 0 }
    }

    /// Adds the next latency in the order of sending.
    pub fn push(&mut self, latency_ns: u64) {
        if self.seen.is_multiple_of(self.stride) {
            if self.kept.len() == self.limit {
                self.thin();
            }
            // The sample that made it thin may itself fall out.
            if self.seen.is_multiple_of(self.stride) {
                self.kept.push(latency_ns as f32);
            }
        }
        self.seen += 1;
    }

    /// Drops all samples, and keeps every one again.
    pub fn clear(&mut self) {
        (self.stride, self.seen) = (1, 0);
        self.kept.clear();
    }

    /// The samples kept, ns.
    pub fn samples(&self) -> &[f32] {
        &self.kept
    }

    /// Samples added since the last clearing.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// One sample in so many is kept.
    pub fn stride(&self) -> u64 {
        self.stride
    }

    fn thin(&mut self) {
        let mut index = 0_usize;
        self.kept.retain(|_| {
            index += 1;
            index % 2 == 1
        });
        self.stride *= 2;
    }
}

/// The least limit of a series; with fewer samples no percentile of a tail has an interval.
pub const LIMIT_MIN: usize = 1 << 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_its_limit_a_series_keeps_every_nth_sample_from_the_first() {
        let mut series = Series::new(LIMIT_MIN);
        (0..3 * LIMIT_MIN as u64).for_each(|latency_ns| series.push(latency_ns));
        assert_eq!((series.stride(), series.seen()), (4, 3 * LIMIT_MIN as u64));
        let expected: Vec<f32> =
            (0..3 * LIMIT_MIN).step_by(4).map(|latency_ns| latency_ns as f32).collect();
        assert_eq!(series.samples(), expected);
    }

    #[test]
    fn a_cleared_series_keeps_every_sample_again() {
        let mut series = Series::new(LIMIT_MIN);
        (0..=LIMIT_MIN as u64).for_each(|latency_ns| series.push(latency_ns));
        series.clear();
        series.push(7);
        series.push(8);
        assert_eq!((series.samples(), series.stride()), (&[7.0, 8.0][..], 1));
    }

    #[test]
    fn agents_merge_by_the_intended_send() {
        let at = |intended_ns| Timed { intended_ns, ..Timed::default() };
        let merged = merge(vec![vec![at(5), at(1)], vec![at(3)]]);
        assert_eq!(merged, [at(1), at(3), at(5)]);
    }
}
