//! Was the run stationary: may its samples speak for the time after it?
//!
//! | test | finds |
//! |---|---|
//! | augmented Dickey-Fuller on the mean logarithms of [`WINDOWS`] windows, up to the percentile | a level that wanders or has not settled |
//! | drift between the halves | a level or a tail that has moved |
//!
//! What shows in few, long episodes, such as a server that pauses, is not found here, because
//! between its pauses it is stationary. It is found by the number of independent samples beyond the
//! percentile, see [`BEYOND_MIN`].
//!
//! Invariant: constant latencies are stationary.
//!
//! [`BEYOND_MIN`]: super::quantile::BEYOND_MIN

use super::batches::cells;
use super::dickey_fuller::{DickeyFuller, dickey_fuller};
use super::drift::{Drift, Halved, drift};

/// Results of the tests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stationarity {
    /// Test of the windows' mean logarithms; `None` where they are constant.
    pub dickey_fuller: Option<DickeyFuller>,
    /// The standard deviation of those means: by which share the level moves at all.
    pub spread: f64,
    /// Drift of the second half against the first; `None` for too few samples.
    pub drift: Option<Drift>,
}

impl Stationarity {
    /// True if nothing speaks against stationarity. `tolerance` is the share by which the halves
    /// may differ, and the level may wander, whatever the certainty.
    pub fn holds(&self, tolerance: f64) -> bool {
        let wanders = self.spread > tolerance
            && self.dickey_fuller.is_some_and(|test| test.p_value >= SIGNIFICANCE);
        !wanders && !self.drift.is_some_and(|drift| drift.is_beyond(tolerance))
    }
}

/// Tests a run for the percentile `p`.
pub fn stationarity(run: &mut Halved<'_>, p: f64) -> Stationarity {
    let most = run.whole.percentile(p);
    let logarithm = |latency: f32| f64::from(latency.min(most).max(1.0)).ln();
    let windows = cells(run.whole.samples(), WINDOWS, logarithm);
    let count = windows.len().max(1) as f64;
    let mean = windows.iter().sum::<f64>() / count;
    let spread = (windows.iter().map(|window| (window - mean).powi(2)).sum::<f64>() / count).sqrt();
    Stationarity { dickey_fuller: dickey_fuller(&windows), spread, drift: drift(run, p) }
}

/// Windows that the run is cut into for the level: so long that queues forget within one.
pub const WINDOWS: usize = 128;
const SIGNIFICANCE: f64 = 0.05;
