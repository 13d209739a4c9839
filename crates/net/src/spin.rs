//! Spin time of a thread that has nothing to do, before it sleeps: learned from the gaps, and from
//! who else wants its core.
//!
//! A sleep costs a wake-up: 13 to 25 us until the thread runs, and some of the waker's time. A spin
//! of about that length is worth it where gaps are often that short; where few are, it is a waste
//! of the core.
//!
//! What a thread spins for may be another's to do, which wants its core: where client, server and
//! workers share two, yielding between looks answers twice as many calls. Where a stranger computes
//! on that core, a yield costs a slice of the kernel's, milliseconds in which nothing is received;
//! a thread that sleeps there gets the core as soon as it is woken. So it sleeps at once for a
//! while.
//!
//! Invariant: a spin is never longer than the limit it was made with.

use tailcut_proto::node::Time;

use crate::clock::Clock;

/// The time to spin, and what it was learned from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpinTime {
    /// The longest spin, nanoseconds.
    max_ns: u64,
    /// The share of recent gaps that a spin of `max_ns` outlasts, in 1/1024; a moving average of
    /// weight 1/16.
    short: u32,
    /// The core is taken for wanted by a stranger until then.
    wanted_until: Time,
    /// For how long it will be when the next yield takes long.
    wanted_ns: u64,
}

impl SpinTime {
    /// Spins for `max_ns` until it has learned better.
    pub(crate) fn new(max_ns: u64) -> Self {
        Self { max_ns, short: WHOLE, wanted_until: 0, wanted_ns: WANTED_NS_MIN }
    }

    /// Time to spin now, nanoseconds.
    #[inline]
    pub(crate) fn get(&self, now: Time) -> u64 {
        let is_worth_it = self.short >= WORTH && now >= self.wanted_until;
        if is_worth_it { self.max_ns } else { self.max_ns.min(BRIEF_NS) }
    }

    /// Takes note of a gap, spun or slept through.
    #[inline]
    pub(crate) fn note_gap(&mut self, gap_ns: u64) {
        let is_short = u32::from(gap_ns <= self.max_ns) * WHOLE;
        self.short = (self.short * 15 + is_short) / 16;
    }

    /// Yields the core, between two looks. `now` is about the time.
    #[inline]
    pub(crate) fn give_way(&mut self, now: Time) {
        if now >= self.wanted_until {
            std::thread::yield_now();
            self.note_yield(now, Clock.now());
        }
    }

    fn note_yield(&mut self, began_at: Time, ended_at: Time) {
        if ended_at.saturating_sub(began_at) > LONG_NS {
            self.wanted_until = ended_at.saturating_add(self.wanted_ns);
            self.wanted_ns = (self.wanted_ns * 2).min(WANTED_NS_MAX);
        } else if began_at > self.wanted_until.saturating_add(self.wanted_ns) {
            self.wanted_ns = WANTED_NS_MIN;
        }
    }
}

const WHOLE: u32 = 1024;

/// From one short gap of eight on, spinning is worth its time.
const WORTH: u32 = WHOLE / 8;

/// The spin of one who expects a long gap: the hand-off of a dispatcher that is just about to give
/// it something.
const BRIEF_NS: u64 = 1_000;

/// Longer than what others do for this thread: a burst of answers, and two switches.
const LONG_NS: u64 = 300_000;

/// For how long the core is taken for wanted at first, and at most.
const WANTED_NS_MIN: u64 = 100_000_000;
const WANTED_NS_MAX: u64 = 64_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_gaps_end_the_spinning_and_short_ones_bring_it_back() {
        let mut spin = SpinTime::new(20_000);
        assert_eq!(spin.get(0), 20_000);
        for _ in 0..40 {
            spin.note_gap(1_000_000);
        }
        assert_eq!(spin.get(0), BRIEF_NS);
        for _ in 0..3 {
            spin.note_gap(5_000);
        }
        assert_eq!(spin.get(0), 20_000);
    }

    #[test]
    fn a_yield_that_takes_long_ends_the_spinning_for_ever_longer_while_others_compute() {
        let (mut spin, tenth) = (SpinTime::new(20_000), WANTED_NS_MIN);
        spin.note_yield(0, 10_000);
        assert_eq!(spin.get(10_000), 20_000);
        spin.note_yield(0, 3_000_000);
        assert_eq!(spin.get(3_000_000 + tenth - 1), BRIEF_NS);
        let again = 3_000_000 + tenth;
        assert_eq!(spin.get(again), 20_000);
        spin.note_yield(again, again + 3_000_000);
        assert_eq!(spin.wanted_until, again + 3_000_000 + 2 * tenth);
        // The stranger has gone.
        let later = spin.wanted_until + 5 * tenth;
        spin.note_yield(later, later + 1_000);
        spin.note_yield(later, later + 3_000_000);
        assert_eq!(spin.wanted_until, later + 3_000_000 + tenth);
    }

    #[test]
    fn a_limit_of_nothing_never_spins() {
        let mut spin = SpinTime::new(0);
        spin.note_gap(0);
        assert_eq!(spin.get(0), 0);
    }

    #[test]
    fn one_short_gap_of_four_is_worth_it() {
        let mut spin = SpinTime::new(20_000);
        for gap in 0..100 {
            spin.note_gap(if gap % 4 == 0 { 100 } else { 1_000_000 });
            assert_eq!(spin.get(0), 20_000);
        }
    }
}
