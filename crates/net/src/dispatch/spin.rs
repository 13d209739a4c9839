//! How long a thread that has nothing to do spins before it sleeps, learned from the gaps.
//!
//! A sleep costs a wake-up: 13 to 25 us until the thread runs, and some of the waker's time. A spin
//! of that length never costs more than twice the best choice (as [`Wait::SPIN_NS`] says), and where
//! few gaps are that short it is not worth its core either.
//!
//! Invariant: a spin is never longer than the limit it was made with.
//!
//! [`Wait::SPIN_NS`]: crate::driver::Wait::SPIN_NS

/// The time to spin, and the gaps that it was learned from.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpinTime {
    /// The longest spin, nanoseconds.
    max_ns: u64,
    /// The share of recent gaps that a spin of `max_ns` outlasts, in 1/1024; a moving average of
    /// weight 1/16.
    short: u32,
}

impl SpinTime {
    /// Spins for `max_ns` until it has learned better.
    pub(super) fn new(max_ns: u64) -> Self {
        Self { max_ns, short: WHOLE }
    }

    /// How long to spin now, nanoseconds.
    pub(super) fn get(&self) -> u64 {
        if self.short >= WORTH { self.max_ns } else { self.max_ns.min(BRIEF_NS) }
    }

    /// Takes note of a gap, spun or slept through.
    pub(super) fn note_gap(&mut self, gap_ns: u64) {
        let is_short = u32::from(gap_ns <= self.max_ns) * WHOLE;
        self.short = (self.short * 15 + is_short) / 16;
    }
}

const WHOLE: u32 = 1024;

/// From one short gap of eight on, spinning is worth its time.
const WORTH: u32 = WHOLE / 8;

/// The spin of one who expects a long gap: the hand-off of a dispatcher that is just about to give
/// it something.
const BRIEF_NS: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_gaps_end_the_spinning_and_short_ones_bring_it_back() {
        let mut spin = SpinTime::new(20_000);
        assert_eq!(spin.get(), 20_000);
        for _ in 0..40 {
            spin.note_gap(1_000_000);
        }
        assert_eq!(spin.get(), BRIEF_NS);
        for _ in 0..3 {
            spin.note_gap(5_000);
        }
        assert_eq!(spin.get(), 20_000);
    }

    #[test]
    fn a_limit_of_nothing_never_spins() {
        let mut spin = SpinTime::new(0);
        spin.note_gap(0);
        assert_eq!(spin.get(), 0);
    }

    #[test]
    fn one_short_gap_of_four_is_worth_it() {
        let mut spin = SpinTime::new(20_000);
        for gap in 0..100 {
            spin.note_gap(if gap % 4 == 0 { 100 } else { 1_000_000 });
            assert_eq!(spin.get(), 20_000);
        }
    }
}
