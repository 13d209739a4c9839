//! The self-correcting run: how long to warm up, how long to measure, how much to sample, over how
//! many connections; and when to stop, with which verdict.
//!
//! A [`Controller`] does no IO. Its driver loads the server as each [`Step`] says, and hands over
//! what came of it:
//!
//! ```
//! use tailcut_measure::control::{Controller, Settings, Step, Window};
//!
//! // Stands for agents, or for a simulator: loads for so long, and returns the samples in the
//! // order of their intended sends.
//! fn load(for_ns: u64) -> Window {
//!     # use tailcut_measure::load::Rates;
//!     # use tailcut_measure::outcome::Counts;
//!     # use tailcut_measure::statistics::series::Timed;
//!     # let sample = |index: u64| Timed {
//!     #     intended_ns: index * 100_000,
//!     #     latency_ns: 9_000 + index * 7_919 % 1_000,
//!     #     late_ns: 0,
//!     # };
//!     # let count = for_ns / 100_000;
//!     # let rates = Rates { offered_per_s: 1e4, sent_per_s: 1e4, replied_per_s: 1e4 };
//!     # let counts = Counts { sent: count, replied: count, ..Counts::default() };
//!     # let samples = (0..count).map(sample).collect();
//!     # return Window { duration_ns: for_ns, samples, counts, rates, ..Window::default() };
//! }
//!
//! let mut controller = Controller::new(Settings::new(0.99));
//! let mut step = controller.start();
//! let report = loop {
//!     step = match step {
//!         // The load never pauses between legs. Recorders begin anew with the first measuring
//!         // leg after a warm-up.
//!         Step::WarmUp(leg) => controller.handle_window(&load(leg.for_ns)),
//!         Step::Measure(leg) => {
//!             if let Some(forecast) = leg.forecast {
//!                 println!("about {} s in all", forecast.total_ns / 1_000_000_000);
//!             }
//!             controller.handle_window(&load(leg.for_ns))
//!         }
//!         Step::Stop(report) => break report,
//!     };
//! };
//! assert!(report.verdict.is_ok(), "{}", report.verdict);
//! ```
//!
//! | found at a look | what is corrected | if that is used up |
//! |---|---|---|
//! | an agent is lost, or somebody interrupts | nothing | stop |
//! | the client sends late | more connections | stop |
//! | the load is not the one asked for, or is more than is answered | begin again after a longer warm-up | stop |
//! | the interval is too wide, or few independent samples lie beyond the percentile | sample more, measure longer | stop |
//! | narrow enough, but not stationary | begin again after a longer warm-up | stop |
//! | narrow enough and stationary | | stop: ok |
//!
//! Looks are few, at lengths that grow by half at least, because who looks often enough stops on a
//! lucky interval.
//!
//! Invariant: the offered load is never changed; no leg exceeds what the limits leave; a verdict of
//! `ok` has passed every test.

mod controller;
mod found;
mod glance;
mod totals;

pub use self::controller::Controller;
pub use self::glance::Glance;

use thiserror::Error;

use crate::app::ErrorCounts;
use crate::load::Rates;
use crate::objective::Objective;
use crate::outcome::Counts;
use crate::statistics::arrival_fit::ArrivalFit;
use crate::statistics::quantile::Estimate;
use crate::statistics::series::Timed;
use crate::statistics::stationarity::Stationarity;
use crate::verdict::{Reason, Verdict};

/// Settings of a run: what to reach, and within which limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The percentile to know, as a share in (0, 1).
    pub p: f64,
    /// Precision to which the percentile is to be known. Default: to 5 %.
    pub target: Target,
    /// Probability with which the percentile's interval is to contain the truth. Default 0.95.
    pub confidence: f64,
    /// Limits on what may be spent.
    pub limits: Limits,
    /// Setup to begin with.
    pub setup: Setup,
}

impl Settings {
    /// The defaults for the percentile `p`, a share in (0, 1).
    pub fn new(p: f64) -> Self {
        Self {
            p,
            target: Target::Share(0.05),
            confidence: 0.95,
            limits: Limits::default(),
            setup: Setup::default(),
        }
    }

    /// The defaults to decide on `objective`.
    pub fn deciding(objective: Objective) -> Self {
        Self { target: Target::Decision(objective), ..Self::new(objective.p) }
    }
}

/// Condition under which a percentile is known well enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Half of its interval is at most this share of it.
    Share(f64),
    /// Half of its interval is at most so many ns.
    Nanoseconds(f64),
    /// Its interval is on one side of the objective's limit.
    Decision(Objective),
}

/// Limits on what a run may spend.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// The first warm-up, ns. Default 1 s.
    pub warmup_min_ns: u64,
    /// All warm-ups together, ns. Default 20 s.
    pub warmup_max_ns: u64,
    /// The first look, ns of measuring. Default 10 s: what comes round less often than that stays
    /// unseen, so shorten it only for servers without such habits.
    pub measure_min_ns: u64,
    /// One measurement, ns. Default 60 s.
    pub measure_max_ns: u64,
    /// All warm-ups and measurements together, ns. Default without limit. What would exceed it is
    /// not begun: it is never an error.
    pub total_max_ns: u64,
    /// Number of times that a measurement may begin again. Default 2.
    pub restarts_max: u32,
    /// Connections at most. Default: as many as at the beginning.
    pub connections_max: u32,
    /// Samples kept for the intervals, of 8 bytes each; from there on they are thinned evenly, see
    /// [`Series`](crate::statistics::series::Series). Default 4 Mi, 32 MiB.
    pub samples_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            warmup_min_ns: 1_000_000_000,
            warmup_max_ns: 20_000_000_000,
            measure_min_ns: 10_000_000_000,
            measure_max_ns: 60_000_000_000,
            total_max_ns: u64::MAX,
            restarts_max: 2,
            connections_max: 0,
            samples_max: 1 << 22,
        }
    }
}

/// Parameters that the controller may change between measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// Connections over all agents. Default 1.
    pub connections: u32,
    /// The share of the requests that are samples, in (0, 1]. Default 1. It is raised to 1 before a
    /// run is prolonged.
    pub sampling: f64,
}

impl Default for Setup {
    fn default() -> Self {
        Self { connections: 1, sampling: 1.0 }
    }
}

/// Step to take next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Load, and hand over what came of it; none of it counts in a result.
    WarmUp(Leg),
    /// Load, and hand over what came of it.
    Measure(Leg),
    /// Nothing; this is the result.
    Stop(Box<Report>),
}

/// Loading for some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Leg {
    /// Duration, ns.
    pub for_ns: u64,
    /// Over what.
    pub setup: Setup,
    /// Forecast of what reaching the target will take; `None` before the first look.
    pub forecast: Option<Forecast>,
}

/// Forecast of what reaching the target will take, as far as one can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// Measuring in all, what is done included; ns.
    pub total_ns: u64,
    /// Longest measuring in all that the limits allow, ns. Where that is less, the run ends there
    /// and says that it did not reach its target.
    pub limit_ns: u64,
}

/// Result of a leg.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// Duration of the load, ns.
    pub duration_ns: u64,
    /// The replies to requests of this window, of all agents, in the order of their intended sends:
    /// see [`merge`](crate::statistics::series::merge). Less those that
    /// [`Controller::handle_samples`] has had before.
    pub samples: Vec<Timed>,
    /// Counts of all requests of this window by outcome, samples or not.
    pub counts: Counts,
    /// Requests of this window that ended in an error other than those of `counts`.
    pub errors: u64,
    /// These errors by what they say, as far as that is known.
    pub error_counts: ErrorCounts,
    /// Replies of this window that a key is not there.
    pub misses: u64,
    /// Over this window.
    pub rates: Rates,
    /// Fit of the gaps between the sends of each agent.
    pub arrivals: Vec<ArrivalFit>,
    /// Agents that went away, and why.
    pub agents_lost: Vec<String>,
    /// Somebody ended the run, perhaps before the leg was over.
    pub is_interrupted: bool,
}

/// Correction made to reach the target.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum Correction {
    /// The warm-up was prolonged, to so many ns.
    #[error("warmed up for {:.1} s", *.0 as f64 / 1e9)]
    WarmUp(u64),
    /// The measurement began again.
    #[error("began to measure again")]
    Restart,
    /// The measurement was prolonged, to so many ns.
    #[error("measured for {:.1} s", *.0 as f64 / 1e9)]
    Measure(u64),
    /// The share of requests that are samples was raised.
    #[error("sampled {:.1} % of the requests", .0 * 100.0)]
    Sampling(f64),
    /// The number of connections was raised.
    #[error("used {0} connections")]
    Connections(u32),
}

/// A percentile, and whether it may be relied on: where the one that was asked for may not, a lower
/// one often may.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// From the intended send.
    pub estimate: Estimate,
    /// By the measure of the one that was asked for: to that share of it, or to so many ns.
    pub verdict: Verdict,
}

/// Percentiles that every run is asked for, as shares.
pub const PERCENTILES: [f64; 6] = [0.5, 0.9, 0.95, 0.99, 0.999, 0.9999];

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Verdict on whether the result may be relied on.
    pub verdict: Verdict,
    /// The percentile from the intended send: the one to report. `None` where the samples do not
    /// support it.
    pub intended: Option<Estimate>,
    /// The percentile from the actual send.
    pub actual: Option<Estimate>,
    /// The percentile and those of [`PERCENTILES`] that the samples support, from the intended
    /// send, in ascending order.
    pub known: Vec<Known>,
    /// Results of the tests in the last measurement.
    pub stationarity: Stationarity,
    /// Requests of the last measurement without a reply, whether they speak against it or not.
    pub unanswered: Option<Reason>,
    /// The worst fit of a sender's gaps.
    pub arrivals: Option<ArrivalFit>,
    /// Corrections made during the run, in order.
    pub tried: Vec<Correction>,
    /// The last measurement's length, ns.
    pub measured_ns: u64,
    /// All warm-ups and given-up measurements together, ns.
    pub spent_before_ns: u64,
    /// The setup of the last measurement.
    pub setup: Setup,
}
