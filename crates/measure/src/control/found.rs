//! Percentile as the samples of a measurement show it: how well it is known, and what speaks
//! against it.
//!
//! Invariant: a percentile against which nothing speaks is known as well as was asked, from a load
//! that was the one asked for.

use super::totals::{Totals, lateness};
use super::{Settings, Target};
use crate::objective::{Answer, Objective};
use crate::statistics::drift::Halved;
use crate::statistics::quantile::{BEYOND_MIN, Estimate, Ranked, Unsupported};
use crate::statistics::stationarity::{Stationarity, stationarity};
use crate::verdict::Reason;

/// A percentile as a look finds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    p: f64,
    target: Target,
    pub(super) intended: Result<Estimate, Unsupported>,
    pub(super) actual: Result<Estimate, Unsupported>,
    pub(super) stationarity: Stationarity,
}

/// The samples of a measurement, of which percentiles are asked.
#[derive(Clone, Debug)]
pub(super) struct Samples<'a> {
    /// Latencies from the intended sends, ns, in the order of these.
    intended: Halved<'a>,
    /// From the actual sends.
    actual: Ranked<'a>,
}

impl<'a> Samples<'a> {
    pub(super) fn new(intended: &'a [f32], actual: &'a [f32]) -> Self {
        Self { intended: Halved::new(intended), actual: Ranked::new(actual) }
    }
}

impl Found {
    /// The percentile that `settings` ask for.
    pub(super) fn of(samples: &mut Samples<'_>, settings: &Settings) -> Self {
        Self::at(settings.p, settings.target, samples, settings.confidence)
    }

    /// Another percentile, which nobody asked for: known as well as that one was to be, or as is
    /// usual where that was to be decided on.
    pub(super) fn beside(p: f64, samples: &mut Samples<'_>, settings: &Settings) -> Self {
        let target = match settings.target {
            Target::Decision(_) => Settings::new(p).target,
            target => target,
        };
        Self::at(p, target, samples, settings.confidence)
    }

    fn at(p: f64, target: Target, samples: &mut Samples<'_>, confidence: f64) -> Self {
        // Whoever may stop at any of several looks stops at a lucky one, so they share the risk.
        let shared = 1.0 - (1.0 - confidence) / LOOKS;
        let of = |ranked: &mut Ranked<'_>| {
            ranked.estimate(p, shared).map(|found| Estimate { confidence, ..found })
        };
        Self {
            p,
            target,
            intended: of(&mut samples.intended.whole),
            actual: of(&mut samples.actual),
            stationarity: stationarity(&mut samples.intended, p),
        }
    }

    /// Reasons against the percentile, of a measurement that adds up to `totals`.
    pub(super) fn reasons(&self, totals: &Totals) -> Vec<Reason> {
        let mut reasons: Vec<_> = self
            .lateness()
            .into_iter()
            .chain(totals.load_fault())
            .chain(totals.arrival_fault())
            .collect();
        reasons.extend(totals.failures_of_tail(self.p));
        reasons.extend(totals.missing());
        if !self.is_stationary() {
            let moved = self.stationarity.drift.filter(|drift| drift.is_beyond(self.tolerance()));
            reasons.push(Reason::NotStationary { change: moved.map(|drift| drift.largest()) });
        }
        reasons.extend(self.shortfall(totals.measured_ns));
        reasons
    }

    /// Fault of the client, if its own delay is a part of the percentile.
    pub(super) fn lateness(&self) -> Option<Reason> {
        lateness(self.p, self.intended.ok()?.value_ns, self.actual.ok()?.value_ns)
    }

    pub(super) fn is_stationary(&self) -> bool {
        self.stationarity.holds(self.tolerance())
    }

    /// Answer to the objective, where one is to be decided on.
    pub(super) fn answer(&self) -> Option<Answer> {
        self.objective()
            .zip(self.intended.ok())
            .map(|(objective, estimate)| objective.judge(&estimate))
    }

    /// Time to measure in all to reach the target, after `measured_ns`; `None` where it is reached.
    pub(super) fn shortfall_ns(&self, measured_ns: u64) -> Option<u64> {
        match self.shortfall(measured_ns)? {
            Reason::IntervalWide { needed_ns, .. } | Reason::Undecided { needed_ns } => {
                Some(needed_ns)
            }
            Reason::FewEpisodes { beyond, .. } => {
                Some(scaled(measured_ns, BEYOND_MIN / beyond * MARGIN))
            }
            // Far from enough for an interval, but then there is something to go by.
            Reason::SamplesFew { samples, needed, .. } => {
                Some(scaled(measured_ns, 10.0 * needed as f64 / samples.max(1) as f64))
            }
            _ => None,
        }
    }

    /// Reason why the target is not reached.
    fn shortfall(&self, measured_ns: u64) -> Option<Reason> {
        let p = self.p;
        let estimate = match self.intended {
            Ok(estimate) => estimate,
            Err(Unsupported::TooFew { samples, needed }) => {
                return Some(Reason::SamplesFew { p, samples, needed });
            }
            Err(Unsupported::NoShare(_)) => {
                return Some(Reason::SamplesFew { p, samples: 0, needed: u64::MAX });
            }
        };
        let few = || {
            (estimate.beyond() < BEYOND_MIN)
                .then(|| Reason::FewEpisodes { p, beyond: estimate.beyond() })
        };
        if let Some(objective) = self.objective() {
            return few().or_else(|| indecision(&objective, &estimate, measured_ns));
        }
        let asked_ns = match self.target {
            Target::Nanoseconds(width_ns) => width_ns,
            Target::Share(share) => share * estimate.value_ns,
            Target::Decision(_) => f64::INFINITY,
        };
        let excess = estimate.half_width_ns() / asked_ns.max(f64::MIN_POSITIVE);
        if excess <= 1.0 {
            return few();
        }
        let (half_width_share, asked_share) =
            (estimate.half_width_share(), asked_ns / estimate.value_ns);
        let needed_ns = scaled(measured_ns, excess * excess * MARGIN);
        // A few episodes say less than their interval.
        few().or(Some(Reason::IntervalWide { p, half_width_share, asked_share, needed_ns }))
    }

    fn objective(&self) -> Option<Objective> {
        match self.target {
            Target::Decision(objective) => Some(objective),
            _ => None,
        }
    }

    /// The share by which the halves of a run may differ: half of what the percentile is to be
    /// known to.
    fn tolerance(&self) -> f64 {
        match (self.target, self.intended) {
            (Target::Share(share), _) => share / 2.0,
            (Target::Nanoseconds(width_ns), Ok(estimate)) if estimate.value_ns > 0.0 => {
                width_ns / estimate.value_ns / 2.0
            }
            _ => SETTLED,
        }
    }
}

fn indecision(objective: &Objective, estimate: &Estimate, measured_ns: u64) -> Option<Reason> {
    if objective.judge(estimate) != Answer::Undecided {
        return None;
    }
    let distance_ns = (estimate.value_ns - objective.limit_ns as f64)
        .abs()
        .max(estimate.value_ns * UNDECIDED_SHARE);
    let excess = estimate.half_width_ns() / distance_ns;
    Some(Reason::Undecided { needed_ns: scaled(measured_ns, excess * excess * MARGIN) })
}

fn scaled(measured_ns: u64, factor: f64) -> u64 {
    (measured_ns as f64 * factor) as u64
}

/// Halves of a warm-up that differ by less pass for settled, and so do those of a run that is only
/// to decide.
pub(super) const SETTLED: f64 = 0.05;
/// Number of independent looks that the few of a measurement are worth; found by trial on M/M/1 and
/// M/M/4.
const LOOKS: f64 = 2.0;
/// Margin of a forecast, so that it need not be made twice.
const MARGIN: f64 = 1.15;
/// Closer to its limit than this a percentile is not told from it.
const UNDECIDED_SHARE: f64 = 0.01;
