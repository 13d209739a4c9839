//! The clock of a simulated host: off by a constant, and too fast or too slow.
//!
//! Invariant: a clock never runs backwards.

use tailcut_proto::node::Time;

/// A host's clock against virtual time. The default is right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Its time at time 0, ns.
    pub offset_ns: u64,
    /// Drift: parts in 10^9 by which it is too fast; above -10^9.
    pub drift_ppb: i64,
}

impl Clock {
    /// Its time at `now`.
    pub fn local(self, now: Time) -> Time {
        if self == Self::default() {
            return now;
        }
        let drift = i128::from(now) * i128::from(self.drift_ppb) / BILLION;
        u64::try_from(i128::from(now) + i128::from(self.offset_ns) + drift).unwrap_or(u64::MAX)
    }

    /// The first time at which it shows `local` or more.
    pub fn global(self, local: Time) -> Time {
        if self == Self::default() {
            return local;
        }
        let elapsed = i128::from(local.saturating_sub(self.offset_ns));
        let guess = elapsed * BILLION / (BILLION + i128::from(self.drift_ppb));
        let mut time = u64::try_from(guess).unwrap_or(u64::MAX).saturating_sub(2);
        // Both divisions round towards zero, so the guess is off by a few nanoseconds at most.
        while time < u64::MAX && self.local(time) < local {
            time += 1;
        }
        time
    }
}

const BILLION: i128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_clock_shows_the_time() {
        assert_eq!((Clock::default().local(77), Clock::default().global(77)), (77, 77));
    }

    #[test]
    fn a_deadline_of_the_clock_is_met_and_not_missed() {
        for drift_ppb in [-200_000, -1, 0, 1, 200_000] {
            let clock = Clock { offset_ns: 5_000_000, drift_ppb };
            for local in [5_000_001, 5_000_777, 6_000_000, 1_000_000_000_007] {
                let global = clock.global(local);
                assert!(clock.local(global) >= local, "{clock:?} {local}");
                assert!(global == 0 || clock.local(global - 1) < local, "{clock:?} {local}");
            }
        }
    }

    #[test]
    fn what_is_past_at_the_start_is_due_at_once() {
        assert_eq!(Clock { offset_ns: 100, drift_ppb: 0 }.global(50), 0);
    }

    #[test]
    fn the_end_of_time_stays_there() {
        assert_eq!(Clock { offset_ns: 1, drift_ppb: 1000 }.local(u64::MAX), u64::MAX);
        let _ = Clock { offset_ns: 1, drift_ppb: -1000 }.global(u64::MAX);
    }
}
