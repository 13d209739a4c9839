//! The time that a client keeps between its calls to a target that refuses for overload.
//!
//! It is what the refusal says (retry-after), which the overloaded scheduler finds so that what
//! comes settles a little above what it can serve. Replies shorten it, and it expires when nothing
//! has been refused for a while.

use crate::node::Time;

/// Pacing of calls to a target: the time at which the next may go.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Between two calls, ns; 0 while there is nothing to keep.
    interval_ns: u64,
    /// The next turn.
    pub(super) next_at: Time,
    /// Time of the target's last refusal.
    told_at: Time,
}

/// State of a call's first transmission, or of the next one after a refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Start {
    /// It has been, or is about to.
    #[default]
    Now,
    /// It is sent when its timer goes off.
    Waiting,
    /// Never: it is refused when its timer goes off.
    Refused,
}

impl Pace {
    /// The target refuses, and says what to keep between two calls. `draw` is any number: clients
    /// that are told the same at once do not come back at once.
    pub(super) fn slow_down(&mut self, now: Time, told_ns: u64, draw: u64) {
        // An interval of long ago says nothing about this overload.
        if now >= self.expires_at() {
            *self = Self::default();
        }
        self.interval_ns = self.interval_ns.max(told_ns);
        self.told_at = now;
        // From half of it to one and a half: what was told, on average.
        let away_ns = told_ns / 2 + draw % told_ns.max(1);
        self.next_at = self.next_at.max(now.saturating_add(away_ns));
    }

    /// The target has answered.
    #[inline]
    pub(super) fn speed_up(&mut self) {
        // Rounded up, so that it comes down to 0.
        self.interval_ns -= self.interval_ns.div_ceil(SPEED_UP);
    }

    /// The next turn; `None` where calls need not wait for one.
    #[inline]
    pub(super) fn turn(&self, now: Time) -> Option<Time> {
        let is_kept = self.interval_ns > 0 && now < self.expires_at();
        is_kept.then(|| self.next_at.max(now))
    }

    /// Longest that a new call waits for its turn, with so much left to its deadline: until the
    /// turn after the next, so that none is missed, or for a burst. More would wait behind each
    /// other, at the pace of when they came, and still go when the target says something else.
    pub(super) fn wait_ns_max(&self, left_ns: u64) -> u64 {
        self.interval_ns.max(BURST_NS).min(left_ns / WAIT_DIVISOR)
    }

    /// A call takes the turn at a time.
    pub(super) fn take(&mut self, at: Time) {
        self.next_at = at.saturating_add(self.interval_ns);
    }

    fn expires_at(&self) -> Time {
        self.told_at.saturating_add(self.interval_ns).saturating_add(EXPIRY_NS)
    }
}

/// Longest time that the calls of a burst may wait: the target of a standing queue.
const BURST_NS: u64 = 5_000_000;

/// Share of the time to its deadline for which a call waits for its turn, as a divisor: what it may
/// wait for at the target comes on top.
pub(super) const WAIT_DIVISOR: u64 = 8;

/// A reply shortens the time between calls by one part of so many.
const SPEED_UP: u64 = 8;

/// Time after the last refusal, and one more interval, at which the pace expires.
const EXPIRY_NS: u64 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Time = 1_000_000;

    #[test]
    fn turns_keep_the_interval_that_was_told() {
        let mut pace = Pace::default();
        assert_eq!(pace.turn(MS), None);
        pace.slow_down(MS, 100_000, 50_000);
        assert_eq!(pace.turn(MS), Some(MS + 100_000), "half of it, and what was drawn");
        pace.take(MS + 100_000);
        assert_eq!(pace.turn(MS), Some(MS + 200_000));
        assert_eq!(pace.turn(2 * MS), Some(2 * MS), "nobody has called for long");
    }

    #[test]
    fn replies_shorten_it_and_silence_ends_it() {
        let mut pace = Pace::default();
        pace.slow_down(MS, 800_000, 0);
        pace.speed_up();
        pace.take(2 * MS);
        assert_eq!(pace.turn(2 * MS), Some(2 * MS + 700_000));
        (0..200).for_each(|_| pace.speed_up());
        assert_eq!(pace.turn(2 * MS), None);
        pace.slow_down(3 * MS, 10 * MS, 0);
        assert!(pace.turn(112 * MS).is_some());
        assert_eq!(pace.turn(113 * MS), None);
    }

    /// A new call never waits behind many others, however late its deadline is.
    #[test]
    fn a_call_waits_for_one_turn_or_a_burst() {
        let mut pace = Pace::default();
        pace.slow_down(0, 20 * MS, 0);
        assert_eq!(pace.wait_ns_max(1_000 * MS), 20 * MS);
        assert_eq!(pace.wait_ns_max(80 * MS), 10 * MS, "an eighth of what its deadline leaves");
        let mut pace = Pace::default();
        pace.slow_down(0, MS, 0);
        assert_eq!(pace.wait_ns_max(1_000 * MS), 5 * MS);
    }

    #[test]
    fn what_is_told_again_adds_no_wait() {
        let mut pace = Pace::default();
        (0..100).for_each(|_| pace.slow_down(MS, 400_000, 200_000));
        assert_eq!(pace.turn(MS), Some(MS + 400_000));
    }

    #[test]
    fn what_was_told_before_counts_until_it_has_expired() {
        let wait_ns = |again_at: Time| {
            let mut pace = Pace::default();
            pace.slow_down(0, 20 * MS, 0);
            pace.slow_down(again_at, 10 * MS, 0);
            pace.wait_ns_max(1_000 * MS)
        };
        assert_eq!((wait_ns(119 * MS), wait_ns(120 * MS)), (20 * MS, 10 * MS));
    }
}
