//! Steps of work: what a packet costs, counted for the fuzz targets that hold it to a bound.
//!
//! A step is one turn of a loop whose length a peer has a say in: some nanoseconds. Without the
//! feature `count-work` nothing is counted, and a call is nothing.

#[cfg(feature = "count-work")]
use std::cell::Cell;

#[cfg(feature = "count-work")]
thread_local! {
    /// Steps of this thread since [`take`].
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Takes note of `count` steps.
#[inline(always)]
#[cfg_attr(not(feature = "count-work"), allow(unused_variables, reason = "it is not counted"))]
pub(crate) fn step(count: usize) {
    #[cfg(feature = "count-work")]
    STEPS.with(|steps| steps.set(steps.get() + count as u64));
}

/// Steps of this thread since the last call.
#[cfg(feature = "count-work")]
pub fn take() -> u64 {
    STEPS.with(Cell::take)
}
