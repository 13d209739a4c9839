//! Counts of times in buckets of fixed width, for who watches a process while it runs: recording
//! one is an addition, and reading them needs no more than a copy.
//!
//! Two buckets for each doubling from 1 us to 17 s, so that a quantile read from them is wrong by a
//! third at most. Results of measurements come from finer ones.

use crate::node::Time;

/// Times by bucket, and their sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Times of each bucket; the last has no upper bound.
    counts: [u64; BUCKETS],
    /// Sum of all times, ns.
    sum_ns: u64,
}

impl Histogram {
    /// Counts one time.
    #[inline]
    pub fn record(&mut self, ns: Time) {
        self.counts[bucket_of(ns)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// Adds what another has counted.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// Number of times (durations) that have been counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Sum of all times, ns.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The upper bound of each bucket, ns, `None` for the last, and how many times are at most
    /// that.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<Time>, u64)> + '_ {
        self.counts.iter().enumerate().scan(0, |total, (bucket, count)| {
            *total += count;
            Some((upper_ns(bucket), *total))
        })
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], sum_ns: 0 }
    }
}

/// The first bucket whose upper bound is not below `ns`.
#[inline]
fn bucket_of(ns: Time) -> usize {
    if ns <= FIRST_NS {
        return 0;
    }
    // Of a time just above a bound, the bits below decide: bounds belong to the bucket they end.
    let below = ns - 1;
    let octave = below.ilog2();
    let half = (below >> (octave - 1)) & 1;
    let bucket = 2 * (octave - FIRST_NS.ilog2()) as usize + half as usize + 1;
    bucket.min(BUCKETS - 1)
}

fn upper_ns(bucket: usize) -> Option<Time> {
    let octave_ns = FIRST_NS << (bucket / 2);
    (bucket < BUCKETS - 1).then_some(octave_ns + if bucket % 2 == 1 { octave_ns / 2 } else { 0 })
}

/// Upper bound of the first bucket.
const FIRST_NS: Time = 1 << 10;

/// Up to 2^34 ns, about 17 s, and one beyond.
const BUCKETS: usize = 2 * (34 - 10) + 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_that_ends_at_or_above_it() {
        let bounds: Vec<Time> = (0..BUCKETS).filter_map(upper_ns).collect();
        assert_eq!(bounds[..4], [1_024, 1_536, 2_048, 3_072]);
        assert_eq!(bounds.last(), Some(&(1 << 34)));
        let around = bounds.iter().flat_map(|&bound| [bound - 1, bound, bound + 1]);
        for ns in around.chain([0, 1, Time::MAX]) {
            let expected = bounds.partition_point(|&bound| bound < ns);
            assert_eq!(bucket_of(ns), expected, "{ns} ns");
        }
    }

    #[test]
    fn counts_are_cumulative_and_add_up() {
        let mut times = Histogram::default();
        [500, 1_024, 1_500, Time::MAX].into_iter().for_each(|ns| times.record(ns));
        let mut both = times;
        both.add(&times);
        assert_eq!((times.count(), both.count()), (4, 8));
        assert_eq!(both.sum_ns(), Time::MAX, "it stays there");
        let counts: Vec<_> = both.cumulative().collect();
        assert_eq!(counts[..2], [(Some(1_024), 4), (Some(1_536), 6)]);
        assert_eq!(counts.last(), Some(&(None, 8)));
    }

    #[test]
    fn the_sum_is_of_all_times() {
        let mut times = Histogram::default();
        [500, 1_024, 1_500].into_iter().for_each(|ns| times.record(ns));
        let mut both = times;
        both.add(&times);
        assert_eq!((times.sum_ns(), both.sum_ns()), (3_024, 6_048));
    }
}
