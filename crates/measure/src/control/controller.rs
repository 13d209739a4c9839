//! The controller: where it stands, what a look finds, and what follows.
//!
//! | state | window shows | next |
//! |---|---|---|
//! | warming up | halves that differ, and time is left | warming up, twice as long |
//! | warming up | anything else | measuring |
//! | measuring | see the table of [`super`] | measuring on, warming up, or stopped |

use super::found::{Found, SETTLED, Samples};
use super::totals::Totals;
use super::{
    Correction, Forecast, Known, Leg, Limits, PERCENTILES, Report, Settings, Setup, Step, Window,
};
use crate::objective::{Answer, is_same};
use crate::statistics::drift::{Halved, drift};
use crate::statistics::quantile::Estimate;
use crate::statistics::series::{Series, Timed};
use crate::verdict::{Reason, Verdict};

/// Decides what a run does next; see [`super`] for how to drive it.
#[derive(Clone, Debug)]
pub struct Controller {
    settings: Settings,
    setup: Setup,
    state: State,
    /// Latencies from the intended and from the actual sends of this warm-up leg or measurement.
    intended: Series,
    actual: Series,
    totals: Totals,
    found: Found,
    /// Warm-ups so far, ns.
    warmed_ns: u64,
    /// Measurements given up so far, ns.
    given_up_ns: u64,
    restarts: u32,
    tried: Vec<Correction>,
    is_interrupted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// For the leg's length, ns.
    WarmingUp(u64),
    Measuring,
}

impl Controller {
    /// A controller that has not begun.
    pub fn new(settings: Settings) -> Self {
        let limit = settings.limits.samples_max;
        Self {
            found: Found::of(&mut Samples::new(&[], &[]), &settings),
            setup: settings.setup,
            state: State::Measuring,
            intended: Series::new(limit),
            actual: Series::new(limit),
            totals: Totals::default(),
            warmed_ns: 0,
            given_up_ns: 0,
            restarts: 0,
            tried: Vec::new(),
            is_interrupted: false,
            settings,
        }
    }

    /// The first step.
    pub fn start(&mut self) -> Step {
        self.warm_up(self.settings.limits.warmup_min_ns)
    }

    /// Takes the first samples of a window that is under way, in the order of their intended sends:
    /// for a window that is too long to be kept until its end.
    pub fn handle_samples(&mut self, samples: &[Timed]) {
        for sample in samples {
            self.intended.push(sample.latency_ns);
            self.actual.push(sample.actual_ns());
        }
    }

    /// Step that follows from the window of the step before.
    pub fn handle_window(&mut self, window: &Window) -> Step {
        self.handle_samples(&window.samples);
        self.totals.agents_lost.extend(window.agents_lost.iter().cloned());
        self.is_interrupted |= window.is_interrupted;
        match self.state {
            State::WarmingUp(leg_ns) => self.handle_warm_up(window, leg_ns),
            State::Measuring => {
                self.totals.add(window);
                self.found = Found::of(&mut self.samples(), &self.settings);
                self.look()
            }
        }
    }

    /// The percentile as the last look found it; `None` before the first, and where the samples did
    /// not support it.
    pub fn found(&self) -> Option<Estimate> {
        self.found.intended.ok()
    }

    fn handle_warm_up(&mut self, window: &Window, leg_ns: u64) -> Step {
        self.warmed_ns += window.duration_ns;
        if !self.totals.agents_lost.is_empty() || self.is_interrupted {
            return self.stop();
        }
        let settled = drift(&mut Halved::new(self.intended.samples()), self.settings.p)
            .is_none_or(|drift| !drift.is_beyond(SETTLED));
        let longer_ns = leg_ns.saturating_mul(2).min(self.warmup_left_ns());
        if !settled && longer_ns > 0 {
            self.tried.push(Correction::WarmUp(self.warmed_ns + longer_ns));
            return self.warm_up(longer_ns);
        }
        self.begin();
        self.measure_until(self.settings.limits.measure_min_ns, None)
    }

    /// Judges all that was measured so far.
    fn look(&mut self) -> Step {
        if !self.totals.agents_lost.is_empty() || self.is_interrupted {
            return self.stop();
        }
        if self.found.lateness().is_some() {
            return self.add_connections();
        }
        if self.totals.load_fault().is_some() || self.totals.arrival_fault().is_some() {
            return self.begin_again();
        }
        if let Some(needed_ns) = self.found.shortfall_ns(self.totals.measured_ns) {
            return self.measure_longer(needed_ns);
        }
        if !self.found.is_stationary() {
            return self.begin_again();
        }
        self.stop()
    }

    fn add_connections(&mut self) -> Step {
        let connections =
            self.setup.connections.saturating_mul(2).min(self.settings.limits.connections_max);
        if connections <= self.setup.connections
            || self.warmup_left_ns() < self.settings.limits.warmup_min_ns
        {
            return self.stop();
        }
        self.setup.connections = connections;
        self.tried.push(Correction::Connections(connections));
        self.give_up();
        self.warm_up(self.settings.limits.warmup_min_ns)
    }

    /// Gives the server a longer warm-up, and measures from scratch: what was measured before does
    /// not count.
    fn begin_again(&mut self) -> Step {
        // A server that is beyond its objective by its whole interval, and gets worse, is beyond
        // it.
        let least_ns = self.settings.limits.warmup_min_ns;
        let longer_ns = self.warmed_ns.max(least_ns).min(self.warmup_left_ns());
        let is_used_up =
            self.restarts == self.settings.limits.restarts_max || longer_ns < least_ns.max(1);
        if self.found.answer() == Some(Answer::Missed) || is_used_up {
            return self.stop();
        }
        self.restarts += 1;
        self.tried.push(Correction::Restart);
        self.give_up();
        self.warm_up(longer_ns)
    }

    fn measure_longer(&mut self, needed_ns: u64) -> Step {
        let measured_ns = self.totals.measured_ns;
        let limit_ns =
            self.settings.limits.measure_max_ns.min(measured_ns.saturating_add(self.left_ns()));
        if measured_ns >= limit_ns {
            return self.stop();
        }
        if self.setup.sampling < 1.0 && self.left_ns() >= measured_ns {
            self.setup.sampling =
                (self.setup.sampling * needed_ns as f64 / measured_ns as f64).min(1.0);
            self.tried.push(Correction::Sampling(self.setup.sampling));
            self.give_up();
            self.begin();
            return self.measure_until(measured_ns, None);
        }
        let forecast = Forecast { total_ns: needed_ns, limit_ns };
        // Early forecasts of a queue with a long memory fall short, and some exceed by far.
        let scaled = |factor: f64| (measured_ns as f64 * factor) as u64;
        let until_ns = needed_ns.clamp(scaled(GROWTH_MIN), scaled(GROWTH_MAX)).min(limit_ns);
        self.tried.push(Correction::Measure(until_ns));
        self.measure_until(until_ns, Some(forecast))
    }

    fn warm_up(&mut self, for_ns: u64) -> Step {
        self.begin();
        let for_ns = for_ns.min(self.left_ns());
        self.state = State::WarmingUp(for_ns);
        Step::WarmUp(Leg { for_ns, setup: self.setup, forecast: None })
    }

    fn measure_until(&mut self, until_ns: u64, forecast: Option<Forecast>) -> Step {
        self.state = State::Measuring;
        let until_ns = until_ns.min(self.settings.limits.measure_max_ns);
        let for_ns = until_ns.saturating_sub(self.totals.measured_ns).min(self.left_ns()).max(1);
        Step::Measure(Leg { for_ns, setup: self.setup, forecast })
    }

    fn give_up(&mut self) {
        self.given_up_ns += self.totals.measured_ns;
    }

    fn begin(&mut self) {
        self.intended.clear();
        self.actual.clear();
        self.totals = Totals::default();
        self.found = Found::of(&mut self.samples(), &self.settings);
    }

    /// Time of the run that is left for warm-ups, when each is to be followed by a measurement.
    fn warmup_left_ns(&self) -> u64 {
        let Limits { warmup_max_ns, measure_min_ns, .. } = self.settings.limits;
        warmup_max_ns
            .saturating_sub(self.warmed_ns)
            .min(self.left_ns().saturating_sub(measure_min_ns))
    }

    /// Time that is left for everything.
    fn left_ns(&self) -> u64 {
        let spent_ns = self.warmed_ns + self.given_up_ns + self.totals.measured_ns;
        self.settings.limits.total_max_ns.saturating_sub(spent_ns)
    }

    fn stop(&mut self) -> Step {
        Step::Stop(Box::new(Report {
            verdict: self.verdict(&self.found),
            intended: self.found.intended.ok(),
            actual: self.found.actual.ok(),
            known: self.known(),
            stationarity: self.found.stationarity,
            unanswered: self.totals.unanswered(),
            arrivals: self.totals.arrivals,
            tried: std::mem::take(&mut self.tried),
            measured_ns: self.totals.measured_ns,
            spent_before_ns: self.warmed_ns + self.given_up_ns,
            setup: self.setup,
        }))
    }

    fn samples(&self) -> Samples<'_> {
        Samples::new(self.intended.samples(), self.actual.samples())
    }

    /// The verdict on a percentile.
    fn verdict(&self, found: &Found) -> Verdict {
        let lost =
            self.totals.agents_lost.iter().map(|agent| Reason::AgentLost { agent: agent.clone() });
        let interrupted = self.is_interrupted.then_some(Reason::Interrupted);
        Verdict::from_reasons(lost.chain(interrupted).chain(found.reasons(&self.totals)).collect())
    }

    /// Estimates of the usual percentiles, and of the one that was asked for, with their verdicts.
    fn known(&self) -> Vec<Known> {
        let asked = self.settings.p;
        let usual = PERCENTILES.into_iter().filter(|&p| !is_same(p, asked));
        let mut samples = self.samples();
        let beside = usual.map(|p| Found::beside(p, &mut samples, &self.settings));
        let known = |found: Found| {
            Some(Known { estimate: found.intended.ok()?, verdict: self.verdict(&found) })
        };
        let mut all: Vec<Known> = beside.chain([self.found]).filter_map(known).collect();
        all.sort_by(|a, b| a.estimate.p.total_cmp(&b.estimate.p));
        all
    }
}

/// The least and the most by which a measurement grows from one look to the next.
const GROWTH_MIN: f64 = 1.5;
const GROWTH_MAX: f64 = 8.0;
