//! `tailcut measure`: loads a server, says what its latency was, and whether that can be relied on.
//!
//! | module | what it is |
//! |---|---|
//! | `experiment` | what is measured: flags and experiment files |
//! | `pattern` | which loads, one after the other |
//! | `plan` | the jobs of the agents, and when a measurement is good enough |
//! | `job` | what an agent is asked to do, and what it tells |
//! | `engine` | the agent of this process |
//! | `coordinator` | one load over all agents |
//! | `view` | what shows how far it is: `progress`, a bar, or `live`, a screen |
//! | `record` | what a measurement keeps |
//! | `assemble`, `result` | from there to the result |

mod assemble;
pub(crate) mod charts;
mod clocks;
mod coordinator;
mod csv;
pub(crate) mod engine;
mod environment;
mod experiment;
pub(crate) mod hdr;
pub(crate) mod job;
mod live;
pub(crate) mod page;
mod pattern;
pub(crate) mod percentile;
mod plan;
mod progress;
mod record;
pub(crate) mod result;
#[cfg(test)]
pub(crate) mod sample;
mod samples;
pub(crate) mod saved;
pub(crate) mod text;
mod view;
mod written;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use tailcut_measure::objective::{Objective, percentile_name};
use tailcut_measure::quantity::parse_count;
use tailcut_measure::search::Outcome;
use tailcut_measure::statistics::quantile::estimate;
use tailcut_measure::verdict::Reason;

use self::coordinator::{Coordinator, Measured, Seat, Watch, lost_text};
use self::experiment::Experiment;
use self::job::Agent;
use self::live::Live;
use self::pattern::{Course, Pattern};
use self::plan::Plan;
use self::progress::progress;
use self::record::Keep;
use self::result::{Assertion, Environment, Host, MeasureResult, Point, SCHEMA, SearchResult};
use self::samples::Samples;
use self::view::View;
use crate::agent::key::Key;
use crate::agent::remote;
use crate::agent::spec::{AgentSpec, Place};
use crate::network;
use crate::output;
use crate::signals;

/// Load a server or a router, and report its latency with a verdict on it
///
/// An open loop: requests leave on a schedule whatever became of earlier ones, and latency counts
/// from when a request should have left as well as from when it did. The run warms up and measures
/// for as long as it takes to know the percentile; where that cannot be, the verdict says why and
/// what would help, and the exit status is 3.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    experiment: Experiment,
    /// Show the run while it is made: rate, percentiles over time, verdict so far; in lines where
    /// there is no terminal
    #[arg(long)]
    live: bool,
    /// Take what no flag says from an experiment file: TOML, whose keys are the flags
    #[arg(long = "experiment", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Only check the experiment, and load nothing
    #[arg(long)]
    check: bool,
    /// Write the experiment as a file
    #[arg(long, value_name = "FILE")]
    save_experiment: Option<PathBuf>,
    /// Write the result as JSON to FILE, or with `-` to standard output and nothing else
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Write the result as a page for a browser
    #[arg(long, value_name = "FILE")]
    html: Option<String>,
    /// Write the percentile curves as CSV to FILE, and the run over time beside it, to FILE-series
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the histograms as an HdrHistogram log
    #[arg(long, value_name = "FILE")]
    hdr: Option<String>,
    /// Write every measured request as CSV to FILE, while it is measured
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,
    /// Write so many requests at most; those that come later are counted
    #[arg(long, value_name = "N", default_value = "10M", value_parser = parse_count, requires = "samples")]
    samples_max: u64,
}

/// Runs the command; the status says what the verdict is.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let file = args.file.as_deref().map(Experiment::read).transpose()?.unwrap_or_default();
    let experiment = args.experiment.clone().over(file);
    if let Err(error) = experiment.check() {
        eprintln!("error: {error:#}\n\nFor more information, try 'tailcut measure --help'.");
        return Ok(ExitCode::from(STATUS_USAGE));
    }
    experiment.check_load()?;
    let plan = Plan::new(&experiment)?;
    if let Some(path) = &args.save_experiment {
        std::fs::write(path, experiment.to_toml()?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.check {
        output::print("the experiment is in order\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    check_harmless(&experiment)?;
    for path in [&args.json, &args.html, &args.hdr].into_iter().flatten() {
        output::check_writable(path)?;
    }
    let mut samples =
        args.samples.as_deref().map(|path| Samples::create(path, args.samples_max)).transpose()?;
    let outlets = Outlets {
        view: view(args, &plan),
        samples: samples.as_mut(),
        keep: if args.hdr.is_some() { Keep::Both } else { Keep::Intended },
    };
    let mut result = measure(&experiment, &plan, outlets)?;
    // What failed with the samples is said after the result, which is whole without them.
    let mut is_written = Ok(());
    if let Some(samples) = samples {
        let (told, end) = samples.finish();
        (result.samples_file, is_written) = (Some(told), end);
    }
    write(args, &result)?;
    is_written.map(|()| status(&result))
}

/// Writes the result wherever it is wanted.
fn write(args: &Args, result: &MeasureResult) -> Result<()> {
    if let Some(path) = &args.json {
        output::write_json(
            path,
            &serde_json::to_value(result).context("cannot write the result")?,
        )?;
    }
    let write = |path: &str, text: String| {
        std::fs::write(path, text).with_context(|| format!("cannot write {path}"))
    };
    if let Some(path) = &args.html {
        write(path, page::render(result)?)?;
    }
    if let Some(path) = &args.hdr {
        write(path, hdr::log(result)?)?;
    }
    if let Some(path) = &args.csv {
        csv::write(result, path)?;
    }
    if args.json.as_deref() == Some("-") {
        return Ok(());
    }
    output::print(&text::describe(result, text::Style::of_stdout()))
}

/// 0 where the result can be relied on and every assertion holds.
fn status(result: &MeasureResult) -> ExitCode {
    if result.assertions.iter().any(|assertion| !assertion.holds) {
        return ExitCode::from(STATUS_ASSERTION);
    }
    if result.point.verdict.trustworthy {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(STATUS_NOT_TRUSTWORTHY)
    }
}

fn check_harmless(experiment: &Experiment) -> Result<()> {
    for name in &experiment.target {
        let target = network::resolve(name)?;
        if !network::is_private(target.ip()) && !experiment.i_own_this_target {
            bail!(
                "{target} is neither on this machine nor in a private network; add --i-own-this-target if it is yours to load"
            );
        }
    }
    Ok(())
}

/// What shows how far the run is.
fn view(args: &Args, plan: &Plan) -> Box<dyn View> {
    match args.live {
        true => Box::new(Live::new(&plan.title(), plan.settings().p, plan.slice_ns())),
        false => progress(),
    }
}

/// What of a run goes where beside the result.
struct Outlets<'a> {
    view: Box<dyn View>,
    samples: Option<&'a mut Samples>,
    /// Of the run over time.
    keep: Keep,
}

/// Makes measurements, one after the other.
struct Runner<'a> {
    plan: &'a Plan,
    key: Option<Key>,
    outlets: Outlets<'a>,
    is_interrupted: Arc<AtomicBool>,
}

impl Runner<'_> {
    /// Measures a load: without a rate, the closed loop. `None` where somebody interrupted before
    /// anything was measured.
    fn run(&mut self, rate_per_s: Option<f64>) -> Result<Option<Measured>> {
        let jobs = self.plan.jobs(rate_per_s).into_iter();
        let open =
            |(spec, job): (AgentSpec, _)| Seat::new(open_agent(&spec, self.key.as_ref())?, job);
        let seats = jobs.map(open).collect::<Result<Vec<_>>>()?;
        let Outlets { view, samples, keep } = &mut self.outlets;
        let samples = samples.as_deref_mut();
        let watch = Watch {
            view: view.as_mut(),
            samples,
            keep: *keep,
            is_interrupted: &self.is_interrupted,
        };
        Coordinator::new(seats, watch).run(self.plan.settings())
    }

    fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Ordering::Relaxed)
    }
}

/// Measures one load, or all of a pattern.
fn measure(experiment: &Experiment, plan: &Plan, outlets: Outlets<'_>) -> Result<MeasureResult> {
    let started = humantime::format_rfc3339_seconds(now()).to_string();
    let is_interrupted = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&is_interrupted);
    signals::on_stop(move || raised.store(true, Ordering::Relaxed))?;
    let key = experiment.key_file.as_deref().map(Key::read).transpose()?;
    let mut runner = Runner { plan, key, outlets, is_interrupted };
    let Answer { hosts, point, assertions, points, search } = match experiment.pattern {
        None => measure_one(experiment, &mut runner)?,
        Some(pattern) => measure_several(experiment, pattern, &mut runner)?,
    };
    let environment = Environment {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command_line(),
        started,
        hosts,
    };
    let config = serde_json::to_value(experiment).context("cannot write the experiment")?;
    let schema = SCHEMA.to_owned();
    Ok(MeasureResult {
        schema,
        config,
        environment,
        point,
        points,
        search,
        assertions,
        samples_file: None,
    })
}

/// What one load or several have answered.
struct Answer {
    hosts: Vec<Host>,
    point: Point,
    assertions: Vec<Assertion>,
    points: Vec<Point>,
    search: Option<SearchResult>,
}

fn measure_one(experiment: &Experiment, runner: &mut Runner<'_>) -> Result<Answer> {
    let measured = runner.run(runner.plan.rate_per_s())?.context(INTERRUPTED)?;
    let point = assemble::point(&measured, runner.plan.arrivals());
    let assertions = assertions(experiment, &measured);
    Ok(Answer { hosts: hosts_of(&measured), point, assertions, points: Vec::new(), search: None })
}

/// Measures the loads of a pattern, up to its end or to where somebody interrupts.
fn measure_several(
    experiment: &Experiment,
    pattern: Pattern,
    runner: &mut Runner<'_>,
) -> Result<Answer> {
    let mut course = Course::new(pattern);
    let (mut hosts, mut points, mut answer) = (Vec::new(), Vec::new(), None);
    let mut cut = None;
    while let Some(rate_per_s) = course.next_per_s() {
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
        let is_answer = advance(&mut course, rate_per_s, &measured, experiment.slo.as_deref());
        let mut point = assemble::point(&measured, runner.plan.arrivals());
        runner.outlets.view.say(&text::line(&point));
        if is_answer || answer.is_none() {
            answer = Some((point.clone(), assertions(experiment, &measured)));
        }
        // The answer has them, and a load more would only make the result longer.
        point.series.iter_mut().for_each(|moment| moment.histograms = None);
        points.push(point);
        cut = measured.seats.iter().find_map(lost_text).map(|agent| Reason::AgentLost { agent });
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
    let search = found(&course, experiment.slo.as_ref().map(|slo| slo.text().to_owned()));
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
    measured.seats.iter().map(|seat| seat.host.clone()).collect()
}

/// Tells the course what a load turned out to be; whether it is the best answer so far.
fn advance(
    course: &mut Course,
    rate_per_s: f64,
    measured: &Measured,
    slo: Option<&Objective>,
) -> bool {
    match (course, slo) {
        (Course::Find(search), Some(slo)) => {
            let outcome = Outcome::of(&measured.report, slo);
            search.handle_outcome(rate_per_s, outcome);
            outcome == Outcome::Met
        }
        (Course::Sweep(sweep), _) => {
            let known = measured.report.intended.filter(|_| measured.report.verdict.is_ok());
            sweep.handle_latency(rate_per_s, known.map(|estimate| estimate.value_ns));
            measured.report.verdict.is_ok()
        }
        _ => measured.report.verdict.is_ok(),
    }
}

fn found(course: &Course, objective: Option<String>) -> Option<SearchResult> {
    let Course::Find(search) = course else { return None };
    let found = search.found();
    Some(SearchResult {
        objective: objective.unwrap_or_default(),
        met_per_s: found.met_per_s,
        missed_per_s: found.not_met.map(|(rate_per_s, _)| rate_per_s),
    })
}

/// What was asserted, against the intervals of what was measured: one holds only where the whole
/// interval says so.
fn assertions(experiment: &Experiment, measured: &Measured) -> Vec<Assertion> {
    let check = |asked: &written::Written<experiment::ObjectiveText>| {
        let objective: &Objective = asked;
        let known = estimate(measured.record.series.samples(), objective.p, CONFIDENCE);
        let (found, holds) = match known {
            Ok(known) => {
                let [value, low, high] =
                    [known.value_ns, known.low_ns, known.high_ns].map(|ns| ns / 1e3);
                let found = format!(
                    "{} is {value:.1} us, from {low:.1} to {high:.1}",
                    percentile_name(objective.p)
                );
                (found, objective.judge(&known) == tailcut_measure::objective::Answer::Met)
            }
            Err(error) => (error.to_string(), false),
        };
        Assertion { asked: asked.text().to_owned(), found, holds }
    };
    experiment.assert.iter().map(check).collect()
}

/// The command line as a shell takes it, without the path of the binary.
fn command_line() -> String {
    let words = env::args_os().skip(1).map(|word| quote(&word.to_string_lossy()));
    std::iter::once("tailcut".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=+:.,/@%[]".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

const CONFIDENCE: f64 = 0.95;

const INTERRUPTED: &str = "interrupted before anything was measured";

const STATUS_USAGE: u8 = 2;
const STATUS_NOT_TRUSTWORTHY: u8 = 3;
const STATUS_ASSERTION: u8 = 4;

const AFTER_HELP: &str = "\
Examples:
  tailcut measure --transport tcp --target localhost:6379 --app redis --preload --rate 10k
  tailcut measure --transport tcp --target localhost:11211 --app memcached-binary:etc,keys=100k --preload --rate 50k --connections 16
  tailcut measure --transport tcp --target localhost:80 --app http:/ --rate 5k --connections 64 --assert 'p99<1ms'
  tailcut measure --transport tcp --target 10.0.0.1:6379 --app redis --pattern find:1k:500k --slo 'p99<200us'
  tailcut measure --target 127.0.0.1:8000 --app synthetic:bimodal:10us:1ms:0.99 --rate 20k
  tailcut measure --target 127.0.0.1:8000 --app echo:64 --outstanding 8 --duration 5s --busy-poll
  tailcut measure --transport homa --target 127.0.0.1:50146 --app echo:100 --rate 10k
  tailcut measure --transport tcp --target localhost:6379 --app redis --rate 50k --live
  tailcut measure --target 127.0.0.1:8000 --app echo:64 --rate 5k --samples samples.csv
  tailcut measure --experiment redis.toml --check

Exit status: 0 the result can be relied on, 1 it could not be made, 2 the command line makes no sense, 3 the result is not
trustworthy, 4 an assertion does not hold.

Sleeping adds the kernel's wake-ups to every latency; where they matter give client and server a core each and --busy-poll.";
