//! Cost of a hand-off and service time of a job, measured on a sample of the jobs, and the bound
//! that follows.
//!
//! A worker that is allowed b jobs takes max(S, (S + RTT) / b) for each, S being its service time
//! and RTT the time from giving it a job to having it back, less S. So it never waits for the
//! dispatcher from b = ceil(1 + RTT / S) on (`rpcvalet.md` section 6; Concord's rule). Where S is
//! long against RTT a bound of 1, the true single queue, costs next to nothing and commits nothing.
//!
//! Invariant: the bound is between 1 and [`BOUND_MAX`], and noise around an edge does not flip it.

use std::num::NonZeroU32;

use tailcut_proto::node::Time;

/// Moving averages of what is measured, and the bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandOff {
    /// The average RTT, nanoseconds; `None` before the first sample.
    round_trip_ns: Option<u64>,
    /// The average S, nanoseconds; `None` before the first sample.
    service_ns: Option<u64>,
    /// The bound in force; `None` before both were measured.
    bound: Option<u32>,
    /// Jobs until the next sample.
    countdown: u32,
    /// Samples so far, up to [`EAGER_SAMPLES`].
    samples: u32,
}

/// A job on its way whose times are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// Time at which it was given to its worker.
    pub(super) pushed_at: Time,
    /// True if the worker had nothing else and was awake, so that its round trip is a hand-off.
    pub(super) is_hand_off: bool,
}

impl HandOff {
    pub(super) fn new() -> Self {
        Self { round_trip_ns: None, service_ns: None, bound: None, countdown: 0, samples: 0 }
    }

    /// True if the next job is to be a sample.
    #[inline]
    pub(super) fn samples_next(&mut self) -> bool {
        if self.countdown > 0 {
            self.countdown -= 1;
            return false;
        }
        self.countdown = if self.samples < EAGER_SAMPLES { 0 } else { SAMPLE_EVERY - 1 };
        true
    }

    /// Takes what was measured of a job that came back at `now` and took `service_ns`.
    pub(super) fn record(&mut self, sample: Sample, service_ns: u64, now: Time) {
        self.samples = (self.samples + 1).min(EAGER_SAMPLES);
        self.service_ns = Some(average(self.service_ns, service_ns));
        if sample.is_hand_off {
            let there_and_back_ns = now.saturating_sub(sample.pushed_at);
            let round_trip_ns = there_and_back_ns.saturating_sub(service_ns).max(1);
            self.round_trip_ns = Some(average(self.round_trip_ns, round_trip_ns));
        }
        self.update();
    }

    /// The bound that the averages ask for.
    pub(super) fn bound(&self) -> u32 {
        self.bound.unwrap_or(BOUND_INITIAL.get())
    }

    pub(super) fn round_trip_ns(&self) -> Option<u64> {
        self.round_trip_ns
    }

    pub(super) fn service_ns(&self) -> Option<u64> {
        self.service_ns
    }

    fn update(&mut self) {
        let (Some(round_trip), Some(service)) = (self.round_trip_ns, self.service_ns) else {
            return;
        };
        // An edge is passed when both a quarter more and a quarter less of the round trip agree.
        let least = bound_for(round_trip - round_trip / 4, service);
        let most = bound_for(round_trip + round_trip / 4, service);
        let bound = self.bound.unwrap_or_else(|| bound_for(round_trip, service));
        self.bound = Some(bound.clamp(least, most));
    }
}

fn bound_for(round_trip_ns: u64, service_ns: u64) -> u32 {
    let service_ns = service_ns.max(1);
    if round_trip_ns.saturating_mul(LONG_SERVICE) <= service_ns {
        return 1;
    }
    let jobs = round_trip_ns.div_ceil(service_ns).saturating_add(1);
    u32::try_from(jobs).unwrap_or(u32::MAX).min(BOUND_MAX)
}

/// A moving average of weight 1/16, which a single outlier moves by as much again at most.
fn average(old: Option<u64>, sample: u64) -> u64 {
    let Some(old) = old else { return sample };
    (old * 15 + sample.min(old.saturating_mul(16).saturating_add(OUTLIER_NS))) / 16
}

/// The largest bound, and the length of a lane: past it a worker that shares its core with others
/// takes a scheduler's turn for each batch, and longer ones hardly help.
pub const BOUND_MAX: u32 = 16;

/// The bound until something is measured: RPCValet's.
pub(super) const BOUND_INITIAL: NonZeroU32 = NonZeroU32::new(2).unwrap();

/// Services from this many round trips on are long: a bound of 1 costs 5 % of a worker's time at
/// most.
const LONG_SERVICE: u64 = 20;

/// One job of so many is a sample: four readings of the clock, 90 ns, are 1.5 ns a job.
const SAMPLE_EVERY: u32 = 64;

/// The first jobs are all samples.
const EAGER_SAMPLES: u32 = 16;

/// Limit of what an outlier may add to an average that is next to nothing: a sixteenth of 1 ms.
const OUTLIER_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(round_trip_ns: u64, service_ns: u64) -> HandOff {
        let mut hand_off = HandOff::new();
        let sample = Sample { pushed_at: 1_000, is_hand_off: true };
        for _ in 0..100 {
            hand_off.record(sample, service_ns, 1_000 + service_ns + round_trip_ns);
        }
        hand_off
    }

    fn check(round_trip_ns: u64, service_ns: u64, expected: u32) {
        let hand_off = measured(round_trip_ns, service_ns);
        assert_eq!(hand_off.bound(), expected, "RTT {round_trip_ns} S {service_ns}");
    }

    #[test]
    fn the_bound_covers_the_hand_off() {
        check(130, 1_000, 2);
        check(130, 500, 2);
        check(520, 400, 3);
        check(520, 100, 7);
        check(520, 1_000, 2);
        check(1_000_000, 1, 16);
    }

    #[test]
    fn the_bound_is_one_where_services_are_long() {
        check(130, 10_000, 1);
        check(5_000, 200_000_000, 1);
        check(1, 1_000_000, 1);
    }

    #[test]
    fn the_bound_stays_near_an_edge() {
        let mut hand_off = measured(400, 250);
        assert_eq!(hand_off.bound(), 3);
        for round_trip_ns in [510, 490, 520, 480, 590] {
            hand_off.round_trip_ns = Some(round_trip_ns);
            hand_off.update();
            assert_eq!(hand_off.bound(), 3, "{round_trip_ns}");
        }
        hand_off.round_trip_ns = Some(700);
        hand_off.update();
        assert_eq!(hand_off.bound(), 4);
        hand_off.round_trip_ns = Some(510);
        hand_off.update();
        assert_eq!(hand_off.bound(), 4);
    }

    #[test]
    fn only_hand_offs_tell_the_round_trip() {
        let mut hand_off = HandOff::new();
        hand_off.record(Sample { pushed_at: 0, is_hand_off: false }, 1_000, 9_000);
        assert_eq!((hand_off.round_trip_ns(), hand_off.service_ns()), (None, Some(1_000)));
        assert_eq!(hand_off.bound(), BOUND_INITIAL.get());
    }

    #[test]
    fn one_outlier_moves_an_average_by_as_much_again() {
        let mut hand_off = measured(100, 1_000_000);
        hand_off.record(Sample { pushed_at: 0, is_hand_off: true }, 1, 1_000_000_000_000);
        assert!(hand_off.round_trip_ns().is_some_and(|ns| ns < 100_000), "{hand_off:?}");
    }

    #[test]
    fn the_first_jobs_are_samples_and_then_one_of_sixty_four() {
        let mut hand_off = measured(100, 100);
        let sampled = (0..640).filter(|_| hand_off.samples_next()).count();
        assert_eq!(sampled, 10);
        let mut fresh = HandOff::new();
        assert!((0..5).all(|_| fresh.samples_next()));
    }
}
