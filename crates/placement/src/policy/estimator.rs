//! The bound of `jbsq:auto` from measured delays.
//!
//! Invariant: the bound is within [`BoundEstimator::MIN`] and [`BoundEstimator::MAX`], and noise
//! around an edge does not flip it.

use std::num::NonZeroU32;

/// Measurements of `jbsq:auto`, and the bound that follows where nothing else does: before a server
/// that is alone, and in models that have one bound for all times. Before several,
/// [`super::HeldBounds`] derives from [`BoundEstimator::way`] and [`BoundEstimator::spread`] a
/// bound that follows what is held.
///
/// A worker that is allowed n requests runs at most n of them per S + D, where S is the service
/// time and D the round trip to the worker and back less the service. It is kept busy from n = 1 +
/// ceil(D/S) on; service times that vary want one more, and that one also covers a D of a quarter
/// of S, where the R2P2 queueing tables have a bound of 2 best. So the rule is
/// `n = 2 + ceil(D/S - 1/4)`, clamped to [`BoundEstimator::MIN`] and [`BoundEstimator::MAX`]: below
/// 2 a worker idles for D after every request.
///
/// S is seen where a request finds the server idle, which under load none does. What is seen there
/// is the interval I between conclusions while more requests are held. The server concludes D/I in
/// a round trip (Little's law), which is D/S or, while the bound is what slows it down, less. So
/// D/I times 1 + D/(2 I) stands for D/S, at most four times D/I: from any bound on it grows until
/// the round trip under load is four times D, where at most a fifth of the rate is lost.
///
/// D, S and I are moving averages of weight 1/16. A D above the average counts for four times the
/// average at most, since a server that sleeps or works is late to answer; one below it has half of
/// the weight at once. The first pair of measurements sets the bound; then it moves when D/S is an
/// eighth past the edge of its step, so that noise around an edge does not flip it. Until both have
/// been measured it is [`BoundEstimator::INITIAL`].
#[derive(Clone, Copy, Debug)]
pub struct BoundEstimator {
    /// Average D, nanoseconds; `None` before the first sample.
    delay_ns: Option<u64>,
    /// Average S, nanoseconds; `None` before the first sample.
    service_ns: Option<u64>,
    /// Average I, picoseconds; `None` before the first sample.
    interval_ps: Option<u64>,
    /// Mean deviation of services from S, in S.
    spread: f64,
    /// The bound in force; `None` before the first pair of samples.
    bound: Option<u32>,
}

impl BoundEstimator {
    /// Least bound.
    pub const MIN: u32 = 2;
    /// Largest bound: what a server of 1 us does in the longest round trip of a datacenter.
    pub const MAX: u32 = 256;
    /// Bound until something is measured: the best one at D = S.
    pub const INITIAL: NonZeroU32 = NonZeroU32::new(4).unwrap();

    /// Nothing measured yet.
    pub fn new() -> Self {
        Self {
            delay_ns: None,
            service_ns: None,
            interval_ps: None,
            spread: SPREAD_EXPONENTIAL,
            bound: None,
        }
    }

    /// Takes one round trip to a worker and back, without service, in nanoseconds.
    pub fn sample_delay(&mut self, delay_ns: u64) {
        let delay_ns = delay_ns.min(SAMPLE_NS_MAX);
        self.delay_ns = Some(match self.delay_ns {
            Some(old) if delay_ns < old => old.midpoint(delay_ns),
            Some(old) => average(Some(old), delay_ns.min(4 * old.max(1))),
            None => delay_ns,
        });
        self.update();
    }

    /// Takes one service time in nanoseconds.
    pub fn sample_service(&mut self, service_ns: u64) {
        let service_ns = service_ns.clamp(1, SAMPLE_NS_MAX);
        if let Some(mean_ns) = self.service_ns {
            let deviation = service_ns.abs_diff(mean_ns) as f64 / mean_ns.max(1) as f64;
            self.spread += (deviation.min(SPREAD_MAX) - self.spread) / 64.0;
        }
        self.service_ns = Some(average(self.service_ns, service_ns));
        self.update();
    }

    /// Takes the time in which a server concluded so many requests while others were held.
    pub fn sample_interval(&mut self, time_ns: u64, count: u32) {
        let interval_ps = time_ns.min(SAMPLE_NS_MAX) * 1_000 / u64::from(count.max(1));
        self.interval_ps = Some(average(self.interval_ps, interval_ps.max(1)));
        self.update();
    }

    /// The bound to use now.
    pub fn bound(&self) -> u32 {
        self.bound.unwrap_or(Self::INITIAL.get())
    }

    /// The bound to use where there is one server alone: no other could take what waits there, so
    /// that it may have what it does in 200 us too.
    pub fn bound_alone(&self) -> u32 {
        let count = self.interval_ps.map_or(0, |interval_ps| ALONE_NS * 1_000 / interval_ps);
        self.bound().max(count.min(Self::MAX.into()) as u32)
    }

    /// Requests that a busy server concludes in a round trip, D/I, or D/S where nothing is held;
    /// `None` before they have been measured.
    pub fn way(&self) -> Option<f64> {
        let delay_ns = self.delay_ns? as f64;
        let interval_ns = match self.interval_ps {
            Some(interval_ps) => interval_ps as f64 / 1_000.0,
            None => self.service_ns? as f64,
        };
        Some(delay_ns / interval_ns.max(1e-3))
    }

    /// Spread of services: their mean deviation from the mean, over that of exponential ones.
    pub fn spread(&self) -> f64 {
        self.spread / SPREAD_EXPONENTIAL
    }

    /// The average D, nanoseconds.
    pub fn delay_ns(&self) -> Option<u64> {
        self.delay_ns
    }

    /// The average S, nanoseconds.
    pub fn service_ns(&self) -> Option<u64> {
        self.service_ns
    }

    /// D and S as they stand in the rule, in one unit.
    fn ratio(&self) -> Option<(u64, u64)> {
        let delay_ns = self.delay_ns?;
        let Some(interval_ps) = self.interval_ps else {
            return Some((delay_ns, self.service_ns?));
        };
        let delay_ps = delay_ns * 1_000;
        let gained_ps = u128::from(delay_ps) * u128::from(delay_ps) / u128::from(2 * interval_ps);
        let gained_ps = gained_ps.min(u128::from(3 * delay_ps)) as u64;
        Some((delay_ps + gained_ps, interval_ps))
    }

    fn update(&mut self) {
        let Some((delay, service)) = self.ratio() else {
            return;
        };
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
    old.map_or(sample, |old| (old * 15 + sample) / 16)
}

/// Mean deviation of exponential services from their mean, 2/e of it.
const SPREAD_EXPONENTIAL: f64 = 2.0 / std::f64::consts::E;

/// No more of one service counts.
const SPREAD_MAX: f64 = 8.0;

/// Samples above a minute are clocks gone wrong, and 32 of them must fit 64 bits in picoseconds.
const SAMPLE_NS_MAX: u64 = 60_000_000_000;

/// Time that the work of a server alone may take at once: little against the time in which it is
/// seen to be dead, when what it has is lost.
const ALONE_NS: u64 = 200_000;

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
        // A quarter of S is covered anyway.
        check_bound(12_500, 10_000, 3);
        check_bound(13_000, 10_000, 4);
        check_bound(15_000, 10_000, 4);
        check_bound(35_000, 10_000, 6);
        check_bound(1_000_000, 1_000, 256);
        check_bound(u64::MAX, 0, 256);
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

    /// As servers of `service_ns` that a round trip of `delay_ns` parts from the router, held at
    /// the bound of each time.
    fn check_settled(delay_ns: u64, service_ns: u64, least: u32, most: u32) {
        let mut estimator = BoundEstimator::new();
        estimator.sample_delay(delay_ns);
        for _ in 0..1_000 {
            let in_turn_ns = (delay_ns + service_ns).div_ceil(estimator.bound().into());
            estimator.sample_interval(32 * in_turn_ns.max(service_ns), 32);
        }
        let bound = estimator.bound();
        assert!((least..=most).contains(&bound), "D {delay_ns} S {service_ns}: {bound}");
    }

    #[test]
    fn bound_under_load_fills_the_round_trip() {
        check_settled(1_000, 1_000_000, 2, 2);
        check_settled(10_000, 10_000, 3, 4);
        check_settled(10_000, 1_000, 11, 42);
        check_settled(30_000, 500, 61, 256);
    }

    #[test]
    fn a_late_answer_counts_little_and_an_early_one_at_once() {
        let mut estimator = BoundEstimator::new();
        estimator.sample_delay(16_000);
        estimator.sample_delay(10_000_000);
        assert_eq!(estimator.delay_ns(), Some(19_000));
        estimator.sample_delay(5_000);
        assert_eq!(estimator.delay_ns(), Some(12_000));
    }

    #[test]
    fn services_show_how_much_they_differ() {
        let spread = |services: [u64; 4]| {
            let mut estimator = BoundEstimator::new();
            services.iter().cycle().take(2_000).for_each(|&ns| estimator.sample_service(ns));
            estimator.spread()
        };
        assert_eq!(BoundEstimator::new().spread(), 1.0);
        assert!(spread([1_000; 4]) < 1e-6);
        assert!((0.9..1.4).contains(&spread([100, 300, 800, 2_800])));
        assert!(spread([10, 10, 10, 10_000]) > 1.5);
    }

    #[test]
    fn the_way_is_in_what_a_busy_server_concludes() {
        let mut estimator = BoundEstimator::new();
        estimator.sample_delay(20_000);
        assert_eq!(estimator.way(), None);
        estimator.sample_service(10_000);
        assert_eq!(estimator.way(), Some(2.0));
        estimator.sample_interval(32 * 5_000, 32);
        assert_eq!(estimator.way(), Some(4.0));
    }

    #[test]
    fn a_server_alone_has_what_it_does_in_little_time() {
        let mut estimator = BoundEstimator::new();
        assert_eq!(estimator.bound_alone(), BoundEstimator::INITIAL.get());
        estimator.sample_interval(32_000, 32);
        assert_eq!(estimator.bound_alone(), 200);
        estimator = BoundEstimator::new();
        estimator.sample_interval(32 * 10_000_000, 32);
        assert_eq!(estimator.bound_alone(), BoundEstimator::INITIAL.get());
    }

    /// D/I times 1 + D/(2 I), at most four times D/I.
    #[test]
    fn what_stands_for_the_ratio_grows_with_the_way_up_to_four_times_of_it() {
        for (delay_ns, expected) in [(500, 0.625), (1_000, 1.5), (2_000, 4.0), (10_000, 40.0)] {
            let mut estimator = BoundEstimator::new();
            estimator.sample_delay(delay_ns);
            estimator.sample_interval(32 * 1_000, 32);
            let (delay, interval) = estimator.ratio().unwrap();
            let ratio = delay as f64 / interval as f64;
            assert!((ratio - expected).abs() < 1e-3, "{delay_ns} ns: {ratio}");
        }
    }

    #[test]
    fn a_service_has_a_sixteenth_of_the_weight() {
        let mut estimator = BoundEstimator::new();
        assert_eq!(estimator.service_ns(), None);
        estimator.sample_service(16_000);
        estimator.sample_service(32_000);
        assert_eq!(estimator.service_ns(), Some(17_000));
    }
}
