//! A measurement: one load, or all of a pattern.

use std::sync::atomic::Ordering;
use std::time::SystemTime;

use anyhow::{Context, Result};
use tailcut_measure::objective::{Answer as Judgement, Objective, percentile_name};
use tailcut_measure::quantity::duration;
use tailcut_measure::search::Outcome;
use tailcut_measure::statistics::quantile::estimate;
use tailcut_measure::verdict::Reason;

use super::agent::key::Key;
use super::agent::remote;
use super::agent::spec::{AgentSpec, Place};
use super::coordinator::{AgentSession, Coordinator, Measured, Watch, lost_text};
use super::experiment::{Experiment, Load};
use super::job::Agent;
use super::pattern::{Pattern, RateSchedule};
use super::result::{Assertion, Environment, Host, MeasureResult, Point, SCHEMA, SearchResult};
use super::samples::Samples;
use super::view::View;
use super::{assemble, causes, engine};

/// Makes the measurement, and says whether it can be relied on.
///
/// # Errors
///
/// What keeps it from being made: an agent that cannot be reached, a target that does not answer,
/// an interruption before anything was measured. An agent that is lost in the middle is in the
/// verdict, and a file of samples that could not be written is in the result.
pub fn measure(mut experiment: Experiment, view: &mut dyn View) -> Result<MeasureResult> {
    let started = humantime::format_rfc3339_seconds(now()).to_string();
    let mut runner = Runner { experiment: &mut experiment, view };
    let Answer { hosts, point, assertions, points, search } = match runner.experiment.load {
        Load::Rate(rate_per_s) => measure_one(&mut runner, Some(rate_per_s))?,
        Load::Outstanding(_) => measure_one(&mut runner, None)?,
        Load::Pattern(pattern) => measure_several(pattern, &mut runner)?,
    };
    let Experiment { samples, config, command, .. } = experiment;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(MeasureResult {
        schema: SCHEMA.to_owned(),
        config,
        environment: Environment { version, command, started, hosts },
        point,
        points,
        search,
        assertions,
        samples_file: samples.map(Samples::finish),
    })
}

/// Measurements, one after the other.
struct Runner<'a> {
    experiment: &'a mut Experiment,
    view: &'a mut dyn View,
}

impl Runner<'_> {
    /// Measures a load: without a rate, the closed loop. `None` where somebody interrupted before
    /// anything was measured.
    fn run(&mut self, rate_per_s: Option<f64>) -> Result<Option<Measured>> {
        let jobs = self.experiment.jobs(rate_per_s).into_iter();
        let key = self.experiment.key.as_ref();
        let open = |(spec, job): (AgentSpec, _)| AgentSession::new(open_agent(&spec, key)?, job);
        let sessions = jobs.map(open).collect::<Result<Vec<_>>>()?;
        let Experiment { samples, keep, is_interrupted, settings, .. } = &mut *self.experiment;
        let samples = samples.as_mut();
        let watch = Watch { view: &mut *self.view, samples, keep: *keep, is_interrupted };
        let mut measured = Coordinator::new(sessions, watch).run(settings.clone())?;
        measured.iter_mut().for_each(causes::name_causes);
        Ok(measured)
    }

    fn is_interrupted(&self) -> bool {
        self.experiment.is_interrupted.load(Ordering::Relaxed)
    }
}

/// Result of one load or several.
struct Answer {
    hosts: Vec<Host>,
    point: Point,
    assertions: Vec<Assertion>,
    points: Vec<Point>,
    search: Option<SearchResult>,
}

fn measure_one(runner: &mut Runner<'_>, rate_per_s: Option<f64>) -> Result<Answer> {
    let measured = runner.run(rate_per_s)?.context(INTERRUPTED)?;
    let point = assemble::point(&measured, &runner.experiment.arrivals);
    runner.view.handle_verdict(&point.verdict);
    let assertions = assertions(&runner.experiment.assertions, &measured);
    Ok(Answer { hosts: hosts_of(&measured), point, assertions, points: Vec::new(), search: None })
}

/// Measures the loads of a pattern, up to its end or to where somebody interrupts.
fn measure_several(pattern: Pattern, runner: &mut Runner<'_>) -> Result<Answer> {
    let mut schedule = RateSchedule::new(pattern);
    let (mut hosts, mut points, mut answer) = (Vec::new(), Vec::new(), None);
    let mut cut = None;
    while let Some(rate_per_s) = schedule.next_per_s() {
        let measured = match runner.run(Some(rate_per_s)) {
            Ok(Some(measured)) => measured,
            Ok(None) => break,
            // What was measured until then is not lost with it.
            Err(error) if answer.is_some() => {
                cut = Some(Reason::AgentLost { agent: format!("{error:#}") });
                break;
            }
            Err(error) => return Err(error),
        };
        hosts = hosts_of(&measured);
        let experiment = &*runner.experiment;
        let is_answer =
            advance(&mut schedule, rate_per_s, &measured, experiment.objective.as_ref());
        let mut point = assemble::point(&measured, &experiment.arrivals);
        runner.view.handle_point(&point);
        if is_answer || answer.is_none() {
            answer = Some((point.clone(), assertions(&experiment.assertions, &measured)));
        }
        // The answer has them, and a load more would only make the result longer.
        point.series.iter_mut().for_each(|moment| moment.histograms = None);
        points.push(point);
        cut = measured.sessions.iter().find_map(lost_text).map(|agent| Reason::AgentLost { agent });
        if cut.is_some() || runner.is_interrupted() {
            break;
        }
    }
    let cut = cut.or(runner.is_interrupted().then_some(Reason::Interrupted));
    let (mut point, assertions) =
        answer.context(if cut.is_none() { "the pattern has no load" } else { INTERRUPTED })?;
    if let Some(reason) = cut {
        assemble::note_cut(&mut point, &reason);
    }
    let search = found(&schedule, runner.experiment.objective.as_ref().map(Objective::to_string));
    Ok(Answer { hosts, point, assertions, points, search })
}

/// The time of day, for people.
#[expect(clippy::disallowed_methods, reason = "a report says when it was made")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// An agent of this process, or one elsewhere.
fn open_agent(spec: &AgentSpec, key: Option<&Key>) -> Result<Box<dyn Agent>> {
    match spec.place {
        Place::Local => Ok(engine::local()),
        Place::Tcp(_) | Place::Ssh(_) => remote::connect(spec, key),
    }
}

fn hosts_of(measured: &Measured) -> Vec<Host> {
    measured.sessions.iter().map(|session| session.host.clone()).collect()
}

/// Tells the schedule what a load turned out to be; whether it is the best answer so far.
fn advance(
    schedule: &mut RateSchedule,
    rate_per_s: f64,
    measured: &Measured,
    slo: Option<&Objective>,
) -> bool {
    let report = &measured.report;
    match (schedule, slo) {
        (RateSchedule::Find(search), Some(slo)) => {
            let outcome = Outcome::of(&report.verdict, report.intended, slo);
            search.handle_outcome(rate_per_s, outcome);
            outcome == Outcome::Met
        }
        (RateSchedule::Sweep(sweep), _) => {
            let known = report.intended.filter(|_| report.verdict.is_ok());
            sweep.handle_latency(rate_per_s, known.map(|estimate| estimate.value_ns));
            report.verdict.is_ok()
        }
        _ => report.verdict.is_ok(),
    }
}

fn found(schedule: &RateSchedule, objective: Option<String>) -> Option<SearchResult> {
    let RateSchedule::Find(search) = schedule else { return None };
    let found = search.found();
    let not_met = |is_it: fn(Outcome) -> bool| {
        found.not_met.filter(|&(_, outcome)| is_it(outcome)).map(|(rate_per_s, _)| rate_per_s)
    };
    Some(SearchResult {
        objective: objective.unwrap_or_default(),
        met_per_s: found.met_per_s,
        missed_per_s: not_met(|outcome| outcome == Outcome::Missed),
        not_judged_per_s: not_met(|outcome| outcome != Outcome::Missed),
    })
}

/// Assertions checked against the intervals of what was measured: one holds only where the whole
/// interval says so.
fn assertions(asked: &[Objective], measured: &Measured) -> Vec<Assertion> {
    let check = |objective: &Objective| {
        let known = estimate(measured.record.series.samples(), objective.p, CONFIDENCE);
        let (found, holds) = match known {
            Ok(known) => {
                let [value, low, high] =
                    [known.value_ns, known.low_ns, known.high_ns].map(duration);
                let found =
                    format!("{} is {value}, from {low} to {high}", percentile_name(objective.p));
                (found, objective.judge(&known) == Judgement::Met)
            }
            Err(error) => (error.to_string(), false),
        };
        Assertion { asked: objective.to_string(), found, holds }
    };
    asked.iter().map(check).collect()
}

const CONFIDENCE: f64 = 0.95;

const INTERRUPTED: &str = "interrupted before anything was measured";
