//! The bound of `jbsq:auto` from measured delays.
//!
//! Invariant: the bound is within [`BoundEstimator::MIN`] and [`BoundEstimator::MAX`], and noise
//! around an edge does not flip it.

use std::num::NonZeroU32;

/// Derives the bound of `jbsq:auto` from what is measured.
///
/// A worker that is allowed n requests runs at most n of them per S + D, where S is the service
/// time and D the round trip to the worker and back less the service. It is kept busy from n = 1 +
/// ceil(D/S) on; service times that vary want one more, and that one also covers a D of a quarter
/// of S, where the R2P2 queueing tables have a bound of 2 best. So the rule is
/// `n = 2 + ceil(D/S - 1/4)`, clamped to [`BoundEstimator::MIN`] and [`BoundEstimator::MAX`]: below
/// 2 a worker idles for D after every request, and above 16 the bound hardly differs from full JSQ.
///
/// D and S are moving averages of weight 1/16. The first pair of measurements sets the bound; then
/// it moves when D/S is an eighth past the edge of its step, so that noise around an edge does not
/// flip it. Until both have been measured it is [`BoundEstimator::INITIAL`].
#[derive(Clone, Copy, Debug)]
pub struct BoundEstimator {
    /// Average D, nanoseconds; `None` before the first sample.
    delay_ns: Option<u64>,
    /// Average S, nanoseconds; `None` before the first sample.
    service_ns: Option<u64>,
    /// The bound in force; `None` before the first pair of samples.
    bound: Option<u32>,
}

impl BoundEstimator {
    /// Least bound.
    pub const MIN: u32 = 2;
    /// Largest bound.
    pub const MAX: u32 = 16;
    /// Bound until something is measured: the best one at D = S.
    pub const INITIAL: NonZeroU32 = NonZeroU32::new(4).unwrap();

    /// Nothing measured yet.
    pub fn new() -> Self {
        Self { delay_ns: None, service_ns: None, bound: None }
    }

    /// Takes one round trip to a worker and back, without service, in nanoseconds.
    pub fn sample_delay(&mut self, delay_ns: u64) {
        self.delay_ns = Some(average(self.delay_ns, delay_ns));
        self.update();
    }

    /// Takes one service time in nanoseconds.
    pub fn sample_service(&mut self, service_ns: u64) {
        self.service_ns = Some(average(self.service_ns, service_ns.max(1)));
        self.update();
    }

    /// The bound to use now.
    pub fn bound(&self) -> u32 {
        self.bound.unwrap_or(Self::INITIAL.get())
    }

    /// The average D, nanoseconds.
    pub fn delay_ns(&self) -> Option<u64> {
        self.delay_ns
    }

    /// The average S, nanoseconds.
    pub fn service_ns(&self) -> Option<u64> {
        self.service_ns
    }

    fn update(&mut self) {
        let (Some(delay), Some(service)) = (self.delay_ns, self.service_ns) else {
            return;
        };
        let (delay, service) = (delay.min(SAMPLE_NS_MAX), service.clamp(1, SAMPLE_NS_MAX));
        let bound_at = |eighths: u64| -> u32 {
            let steps = eighths.div_ceil(8 * service);
            u32::try_from(steps).unwrap_or(u32::MAX).saturating_add(2).clamp(Self::MIN, Self::MAX)
        };
        let exact = bound_at((8 * delay).saturating_sub(2 * service));
        let up = bound_at((8 * delay).saturating_sub(3 * service));
        let down = bound_at((8 * delay).saturating_sub(service));
        let bound = self.bound.unwrap_or(exact);
        self.bound = Some(bound.max(up).min(down));
    }
}

impl Default for BoundEstimator {
    fn default() -> Self {
        Self::new()
    }
}

fn average(old: Option<u64>, sample: u64) -> u64 {
    let sample = sample.min(SAMPLE_NS_MAX);
    old.map_or(sample, |old| (old * 15 + sample) / 16)
}

/// Samples above a minute are clocks gone wrong, and 8 of them must fit 64 bits.
const SAMPLE_NS_MAX: u64 = 60_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn check_bound(delay_ns: u64, service_ns: u64, expected: u32) {
        let mut estimator = BoundEstimator::new();
        estimator.sample_delay(delay_ns);
        estimator.sample_service(service_ns);
        assert_eq!(estimator.bound(), expected, "D {delay_ns} S {service_ns}");
    }

    #[test]
    fn bound_follows_the_ratio() {
        check_bound(0, 10_000, 2);
        check_bound(2_000, 10_000, 2);
        check_bound(10_000, 10_000, 3);
        check_bound(15_000, 10_000, 4);
        check_bound(35_000, 10_000, 6);
        check_bound(1_000_000, 1_000, 16);
        check_bound(u64::MAX, 0, 16);
        check_bound(0, u64::MAX, 2);
    }

    #[test]
    fn bound_stays_near_an_edge() {
        let mut estimator = BoundEstimator::new();
        estimator.sample_service(10_000);
        let steps = [
            (15_000, 4),
            (22_900, 4),
            (23_600, 4),
            (12_000, 4),
            (24_000, 5),
            (21_500, 5),
            (21_000, 4),
        ];
        for (delay, expected) in steps {
            estimator.delay_ns = Some(delay);
            estimator.update();
            assert_eq!(estimator.bound(), expected, "D {delay}");
        }
    }

    #[test]
    fn bound_waits_for_both_measurements() {
        let mut estimator = BoundEstimator::new();
        estimator.sample_delay(1_000_000);
        assert_eq!(estimator.bound(), BoundEstimator::INITIAL.get());
    }
}
