//! Slowdowns of messages over an idle network, by size.
//!
//! Invariant: every recorded slowdown is in exactly one bucket: the first whose largest size is not
//! below the message's.

use tailcut_measure::workload::Workload;

use crate::sojourn::Sojourns;

/// Slowdowns in buckets of sizes.
#[derive(Clone, Debug)]
pub struct Slowdowns {
    /// Ascending by size.
    buckets: Vec<(u64, Sojourns)>,
    /// Over all sizes.
    all: Sojourns,
}

/// The figures of a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// The largest size of its messages, bytes.
    pub size_max: u64,
    /// Messages.
    pub count: u64,
    /// The mean slowdown; not a number without messages, as the others.
    pub mean: f64,
    /// The median slowdown.
    pub p50: f64,
    /// The slowdown that one in a hundred exceeds.
    pub p99: f64,
}

impl Bucket {
    fn of(size_max: u64, found: &Sojourns) -> Self {
        let figures = found.figures(UNIT);
        Self {
            size_max,
            count: found.count(),
            mean: figures.mean,
            p50: figures.p50,
            p99: figures.p99,
        }
    }
}

impl Slowdowns {
    /// Nothing recorded, in buckets up to `sizes`, which ascend; what is larger than all of them
    /// has a bucket of its own.
    pub fn new(sizes: &[u64]) -> Self {
        let last = sizes.last().filter(|&&size| size == u64::MAX).is_none().then_some(u64::MAX);
        let sizes = sizes.iter().copied().chain(last);
        Self { buckets: sizes.map(|size| (size, Sojourns::new())).collect(), all: Sojourns::new() }
    }

    /// Records a message of `len` bytes that took `took_ps` where `ideal_ps` was possible.
    pub fn record(&mut self, len: u64, took_ps: u64, ideal_ps: u64) {
        let bucket = self.buckets.partition_point(|&(size, _)| size < len);
        let ticks = (took_ps as f64 / ideal_ps as f64 * UNIT).round() as u64;
        self.buckets[bucket].1.record(ticks);
        self.all.record(ticks);
    }

    /// The figures of each bucket; a last one without messages is left out.
    pub fn buckets(&self) -> Vec<Bucket> {
        let seen =
            self.buckets.iter().filter(|(size, found)| *size < u64::MAX || found.count() > 0);
        seen.map(|(size_max, found)| Bucket::of(*size_max, found)).collect()
    }

    /// The figures of messages of all sizes.
    pub fn all(&self) -> Bucket {
        Bucket::of(u64::MAX, &self.all)
    }
}

/// The upper sizes of buckets that hold equal shares of a workload's messages, of which the last is
/// cut at 99 % and 99.9 %.
pub fn equal_shares(workload: &Workload) -> Vec<u64> {
    let shares =
        (1..SHARES).map(|share| f64::from(share) / f64::from(SHARES)).chain([0.99, 0.999, 1.0]);
    let mut sizes: Vec<u64> = shares.map(|share| workload.quantile(share)).collect();
    sizes.dedup();
    sizes
}

/// Ticks of a slowdown of one: the histogram's own precision, 0.05 %, is coarser.
const UNIT: f64 = 1e5;
const SHARES: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_in_the_first_bucket_that_holds_it() {
        let mut slowdowns = Slowdowns::new(&[10, 20]);
        for (len, took_ps) in [(1, 100), (10, 200), (11, 300), (21, 400)] {
            slowdowns.record(len, took_ps, 100);
        }
        let found: Vec<(u64, u64, f64)> =
            slowdowns.buckets().iter().map(|it| (it.size_max, it.count, it.mean)).collect();
        assert_eq!(found, [(10, 2, 1.5), (20, 1, 3.0), (u64::MAX, 1, 4.0)]);
        assert_eq!((slowdowns.all().count, slowdowns.all().mean), (4, 2.5));
    }

    #[test]
    fn a_bucket_for_all_larger_ones_shows_only_what_it_has() {
        let slowdowns = Slowdowns::new(&[10, 20]);
        assert_eq!(slowdowns.buckets().iter().map(|it| it.size_max).collect::<Vec<_>>(), [10, 20]);
    }

    #[test]
    fn equal_shares_are_quantiles() {
        let sizes = equal_shares(&Workload::named("w3").expect("it is kept"));
        assert!(sizes.is_sorted() && sizes.contains(&268) && sizes.contains(&31_013));
        assert_eq!(sizes.last(), Some(&15_158_197));
    }
}
