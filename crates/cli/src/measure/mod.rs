//! `tailcut measure`: loads a server, says what its latency was, and whether that can be relied on.
//!
//! | module | what it is |
//! |---|---|
//! | `flags` | what is measured: flags and experiment files |
//! | `url` | what a URL says of it |
//! | `metrics` | the result for Prometheus and OpenTelemetry |
//! | `login` | credentials that no command line shows |
//! | `plan` | from there to the experiment |
//! | `progress`, `live` | how far it is: a bar, or a screen |
//! | `reasons` | what the reasons of a verdict mean |
//! | `text`, `page`, `charts` | the result for people |

pub(crate) mod charts;
mod flags;
mod live;
mod login;
mod metrics;
pub(crate) mod page;
mod plan;
mod progress;
pub(crate) mod reasons;
#[cfg(test)]
#[path = "../../../instrument/src/tests/sample.rs"]
pub(crate) mod sample;
pub(crate) mod text;
mod url;
mod written;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};
use tailcut_instrument::agent::spec::Place;
use tailcut_instrument::experiment::Experiment;
use tailcut_instrument::network::{is_private, resolve, unix_path};
use tailcut_instrument::record::Keep;
use tailcut_instrument::result::MeasureResult;
use tailcut_instrument::samples::Samples;
use tailcut_instrument::view::View;
use tailcut_instrument::{csv, hdr, measure};
#[cfg(test)]
use tailcut_instrument::{packet_drops, percentile, result};
use tailcut_measure::quantity::parse_count;

use self::flags::Flags;
use self::live::Live;
use self::progress::progress;
use crate::trace::TraceFlags;
use crate::{apps, output, signals};

/// Load a server or a router, and report its latency with a verdict on it
///
/// An open loop: requests leave on a schedule whatever became of earlier ones, and latency counts
/// from when a request should have left as well as from when it did. The run warms up and measures
/// for as long as it takes to know the percentile; where that cannot be, the verdict says why and
/// what would help, and the exit status is 3.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{AFTER_HELP}\n\n{}", apps::describe()))]
pub(crate) struct Args {
    /// What to measure: redis://HOST or redis://USER:PASSWORD@HOST, rediss://, memcached://,
    /// http://HOST/PATH, https://, h2:// and h2s:// for HTTP/2, grpc://HOST:PORT/SERVICE/METHOD,
    /// grpcs://, postgres://USER:PASSWORD@HOST/DATABASE, each over a Unix socket as
    /// redis+unix:///PATH, or a transport such as r2p2://HOST:PORT with --app; several spread
    /// connections
    #[arg(value_name = "URL")]
    urls: Vec<String>,
    #[command(flatten)]
    experiment: Flags,
    /// Show the run as it happens: rate, percentiles over time, verdict so far; as lines if there
    /// is no terminal
    #[arg(long)]
    live: bool,
    /// Take flags that are not given from an experiment file: TOML, with flags as keys
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
    /// Write the result as metrics to FILE, for Prometheus' node_exporter (textfile collector): a
    /// name that ends in .prom
    #[arg(long, value_name = "FILE")]
    prometheus: Option<String>,
    /// Write the result as metrics of OpenTelemetry (OTLP, JSON) to FILE, or send it to a collector
    /// at http://HOST:4318
    #[arg(long, value_name = "FILE|URL")]
    otlp: Option<String>,
    /// Write every measured request as CSV to FILE, while it is measured
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,
    /// Stop writing after this many requests; later ones are only counted
    #[arg(long, value_name = "N", default_value = "10M", value_parser = parse_count, requires = "samples")]
    samples_max: u64,
    #[command(flatten)]
    trace: TraceFlags,
}

/// Runs the command; the status says what the verdict is.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut own = args.experiment.clone();
    let login = match url::apply(&args.urls, &mut own) {
        Ok(login) => login,
        Err(error) => return Ok(refused(&error)),
    };
    let mut file = args.file.as_deref().map(Flags::read).transpose()?.unwrap_or_default();
    if !args.urls.is_empty() {
        // Another target may be spoken to otherwise.
        file.transport = None;
    }
    let flags = own.over(&file)?;
    if let Err(error) = flags.check() {
        return Ok(refused(&error));
    }
    flags.check_load()?;
    let login = match login::of(&flags, login) {
        Ok(login) => login,
        Err(error) => return Ok(refused(&error)),
    };
    let mut experiment = plan::experiment(&flags)?;
    experiment.job.login = login;
    if let Some(path) = &args.save_experiment {
        std::fs::write(path, flags.to_toml()?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.check {
        output::print("the experiment is valid\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    check_harmless(&flags)?;
    for path in [&args.json, &args.html, &args.hdr, &args.prometheus].into_iter().flatten() {
        output::check_writable(path)?;
    }
    args.otlp.as_deref().map(metrics::check_endpoint).transpose()?;
    experiment.samples =
        args.samples.as_deref().map(|path| Samples::create(path, args.samples_max)).transpose()?;
    experiment.job.trace = args.trace.config()?;
    if experiment.job.trace.is_some() {
        check_traced(&experiment)?;
    }
    experiment.keep = if args.hdr.is_some() { Keep::Both } else { Keep::Intended };
    experiment.command = command_line();
    let raised = Arc::clone(&experiment.is_interrupted);
    signals::on_stop(move || raised.store(true, Ordering::Relaxed))?;
    let mut view = view(args, &experiment);
    let result = measure(experiment, view.as_mut())?;
    drop(view);
    write(args, &result)?;
    // What failed with the samples is said after the result, which is whole without them.
    match result.samples_file.as_ref().and_then(|samples| samples.failed.as_ref()) {
        Some(failed) => bail!("{failed}"),
        None => Ok(status(&result)),
    }
}

/// Says what is wrong with the command line.
fn refused(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}\n\nFor more information, try 'tailcut measure --help'.");
    ExitCode::from(STATUS_USAGE)
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
    if let Some(path) = &args.prometheus {
        metrics::write_prometheus(path, result)?;
    }
    if args.json.as_deref() != Some("-") {
        output::print(&text::describe(result, text::Style::of_stdout()))?;
    }
    // Last: a collector that is not there takes nothing from whoever reads the result here.
    args.otlp.as_deref().map_or(Ok(()), |to| metrics::write_otlp(to, result))
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

fn check_harmless(flags: &Flags) -> Result<()> {
    for name in flags.target.iter().filter(|name| unix_path(name).is_none()) {
        let target = resolve(name)?;
        if !is_private(target.ip()) && !flags.i_own_this_target {
            bail!(
                "{target} is neither on this machine nor in a private network; add --i-own-this-target if it is yours to load"
            );
        }
    }
    Ok(())
}

/// One agent traces, and it runs here.
fn check_traced(experiment: &Experiment) -> Result<()> {
    if !experiment.job.transport.has_endpoints() {
        bail!("--trace is for endpoints of R2P2 and Homa; leave it out, or change --transport");
    }
    if experiment.agents.first().is_none_or(|agent| agent.place != Place::Local) {
        bail!("--trace is of this process; leave it out, or name `local` as the first --agent");
    }
    Ok(())
}

/// The view of the run that the flags ask for.
fn view(args: &Args, experiment: &Experiment) -> Box<dyn View> {
    let title = output::printable(&text::measured(&experiment.config));
    if !args.live {
        return progress(title);
    }
    let job = &experiment.job;
    Box::new(Live::new(&title, experiment.settings.p, job.slice_ns))
}

/// The command line as a shell takes it, without the path of the binary.
fn command_line() -> String {
    let words = env::args_os().skip(1).map(|word| quote(&url::masked(&word.to_string_lossy())));
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

const STATUS_USAGE: u8 = 2;
const STATUS_NOT_TRUSTWORTHY: u8 = 3;
const STATUS_ASSERTION: u8 = 4;

const AFTER_HELP: &str = "\
Examples:
  tailcut measure redis://localhost:6379 --preload --rate 10k
  tailcut measure memcached://localhost --app memcached-binary:etc,keys=100k --preload --rate 50k --connections 16
  tailcut measure http://localhost/index.html --rate 5k --connections 64 --assert 'p99<1ms'
  tailcut measure redis://10.0.0.1 --pattern find:1k:500k --slo 'p99<200us'
  tailcut measure --target 127.0.0.1:8000 --app synthetic:bimodal:10us:1ms:0.99 --rate 20k
  tailcut measure --target 127.0.0.1:8000 --app echo:64 --outstanding 8 --duration 5s --busy-poll
  tailcut measure --transport homa --target 127.0.0.1:50146 --app echo:100 --rate 10k
  tailcut measure redis://localhost --preload --rate 50k --live
  tailcut measure --target 127.0.0.1:8000 --app echo:64 --rate 5k --samples samples.csv
  tailcut measure --experiment redis.toml --check

Exit status: 0 the result can be relied on, 1 it could not be made, 2 the command line is invalid, 3 the result is not
trustworthy, 4 an assertion does not hold.

Sleeping adds the kernel's wake-ups to every latency; where they matter give client and server a core each and --busy-poll.";
