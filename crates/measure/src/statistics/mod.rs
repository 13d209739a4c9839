//! The statistics behind a verdict: intervals, tests, and the decision that a run was stationary.
//!
//! Latencies of consecutive requests resemble each other, because they met the same queue. Every
//! figure here reckons with that; an interval for independent samples would be several times too
//! narrow.
//!
//! | module | question |
//! |---|---|
//! | [`series`] | what is kept: latencies in the order of sending, within a bound |
//! | [`quantile`] | where is the percentile, and how sure is that? |
//! | [`difference`] | do two runs differ? |
//! | [`departures`] | when should the requests of a sender have left, and when did they? |
//! | [`arrival_fit`] | are their gaps those of the distribution, and were they in time? |
//! | [`drift`] | is the second half like the first? |
//! | [`dickey_fuller`] | does the level wander? |
//! | [`stationarity`] | both of these, and the decision |
//! | [`autocorrelation`] | how alike are neighbours? |
//! | [`mod@reference`] | Student's t, the beta and the normal distribution |
//!
//! Invariant: nothing is drawn at random, so the same samples give the same figures; and a
//! percentile that the samples do not support is an error, not a number. The tests agree with SciPy
//! and statsmodels to six digits (`tests/vectors`).

pub mod arrival_fit;
pub mod autocorrelation;
mod batches;
pub mod departures;
pub mod dickey_fuller;
pub mod difference;
pub mod drift;
pub mod quantile;
pub mod reference;
pub mod series;
pub mod stationarity;
