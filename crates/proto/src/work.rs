//! Steps of work: what a packet costs beyond what every packet costs, counted for the fuzz targets
//! and the fault runs that hold it to a bound.
//!
//! A step is some 8 ns: one turn of a loop whose length a peer has a say in, or so many of them as
//! the turn takes, or 128 bytes that are copied. It is counted where debug assertions are on, and
//! with the feature `count-work`; else a call is nothing.

#[cfg(any(feature = "count-work", debug_assertions))]
use std::cell::Cell;

/// Most steps that a packet may take, whatever it says: about 2 us.
pub const STEPS_MAX: u64 = 256;

/// Most steps that a packet may take, of which the longest so far has had `longest` bytes: one more
/// for each 32 bytes by which that is longer than a jumbo frame, as only a host carries it, some of
/// which are copied three times.
pub fn steps_max(longest: usize) -> u64 {
    STEPS_MAX + (longest.saturating_sub(JUMBO_LEN) / 32) as u64
}

/// Bytes of a jumbo frame.
const JUMBO_LEN: usize = 9000;

/// Bytes that are copied in a step.
const COPIED_IN_STEP: usize = 128;

/// Bytes that are cleared in a step.
const CLEARED_IN_STEP: usize = 640;

#[cfg(any(feature = "count-work", debug_assertions))]
thread_local! {
    /// Steps of this thread since [`take`].
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Takes note of `count` steps.
#[inline(always)]
pub(crate) fn step(count: usize) {
    #[cfg(any(feature = "count-work", debug_assertions))]
    STEPS.with(|steps| steps.set(steps.get() + count as u64));
    #[cfg(not(any(feature = "count-work", debug_assertions)))]
    let _ = count;
}

/// Takes note of so many bytes that are copied.
#[inline(always)]
pub(crate) fn copy(bytes: usize) {
    step(bytes / COPIED_IN_STEP);
}

/// Takes note of so many bytes that are cleared.
#[inline(always)]
pub(crate) fn clear(bytes: usize) {
    step(bytes / CLEARED_IN_STEP);
}

/// Steps of this thread since the last call; 0 where they are not counted.
pub fn take() -> u64 {
    #[cfg(any(feature = "count-work", debug_assertions))]
    let steps = STEPS.with(Cell::take);
    #[cfg(not(any(feature = "count-work", debug_assertions)))]
    let steps = 0;
    steps
}
