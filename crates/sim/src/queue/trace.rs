//! The gaps of a recorded load, in their order.

use std::sync::Arc;

use rand::RngExt;
use tailcut_measure::generator::Generator;
use thiserror::Error;

/// Gaps between arrivals as they were recorded: what bursts and lulls they have stays as it was,
/// and only their scale follows from the load.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// In any unit.
    gaps: Arc<[f64]>,
    mean: f64,
}

impl Trace {
    /// A trace of these gaps, in any unit.
    ///
    /// # Errors
    ///
    /// Where there are none, where one is negative or not a number, or where all are zero.
    pub fn new(gaps: Vec<f64>) -> Result<Self, TraceError> {
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let are_gaps = gaps.iter().all(|&gap| gap.is_finite() && gap >= 0.0);
        // Of no gaps at all it is not a number.
        let is_trace = are_gaps && mean.is_finite() && mean > 0.0;
        if is_trace { Ok(Self { gaps: gaps.into(), mean }) } else { Err(TraceError) }
    }

    /// The mean gap, above zero.
    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    /// The gaps times a constant, from anywhere on: a run of another seed begins elsewhere.
    pub(super) fn replay(&self, scale: f64, rng: &mut Generator) -> Replay {
        let next = rng.random_range(0..self.gaps.len());
        Replay { gaps: Arc::clone(&self.gaps), next, scale }
    }
}

/// Gaps that cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a trace of arrivals needs gaps, none below zero and one at least above it")]
pub struct TraceError;

/// A trace that is replayed. It never ends: its first gap follows its last.
#[derive(Clone, Debug)]
pub(super) struct Replay {
    gaps: Arc<[f64]>,
    /// Below their number.
    next: usize,
    scale: f64,
}

impl Replay {
    /// The next gap.
    #[inline]
    pub(super) fn draw(&mut self) -> f64 {
        let gap = self.gaps[self.next] * self.scale;
        self.next = (self.next + 1) % self.gaps.len();
        gap
    }
}
