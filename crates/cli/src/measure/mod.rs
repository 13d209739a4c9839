//! `tailcut measure`: loads a server and says what its latency was.

mod app;
#[allow(dead_code)]
mod engine;
mod environment;
mod loader;
mod report;
// Written by the engine that replaces `loader`.
#[allow(dead_code)]
pub(crate) mod job;
#[allow(dead_code)]
mod result;

use std::env;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tailcut_measure::arrivals::{Arrivals, Process};
use tailcut_measure::generator::generator;
use tailcut_measure::load::{Phase, Plan, Run};
use tailcut_measure::quantity::{Unit, parse_duration_ns, parse_rate_per_s};
use tailcut_net::driver::Driver;
use tailcut_net::entropy;
use tailcut_net::udp::Coalescing;
use tailcut_proto::node::Time;
use tailcut_proto::r2p2::{Config, Endpoint};
use tailcut_proto::rpc::CallOptions;

use self::app::App;
use self::loader::{Aim, Loader};
use self::report::{Client, Report};
use crate::distribution_file::parse_positive_ns;
use crate::network::{self, Polling};
use crate::output;

/// Load a server or a router, and report its latency
///
/// By default an open loop: requests leave on a schedule whatever became of earlier ones, and latency counts from when a
/// request should have left as well as from when it did. A gap between the two says that the client was the bottleneck. A
/// percentile is given only where ten samples lie beyond it.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The protocol
    #[arg(long, value_name = "NAME", default_value = "r2p2")]
    transport: Transport,
    /// The server, or a router before several
    #[arg(long, value_name = "ADDR")]
    target: String,
    /// What to ask: echo:BYTES, or synthetic:DIST, whose requests carry their service time
    #[arg(long, value_name = "APP", value_parser = App::parse)]
    app: App,
    /// Requests per second on average
    #[arg(long, value_name = "R", value_parser = parse_rate_per_s, required_unless_present = "outstanding")]
    rate: Option<f64>,
    /// Highest rate accepted, against a slip of the keyboard
    #[arg(long, value_name = "R", value_parser = parse_rate_per_s, default_value = "1M")]
    rate_max: f64,
    /// Closed loop instead of --rate: this many requests outstanding at any time. It measures capacity, not users' latency
    #[arg(long, value_name = "N", conflicts_with_all = ["rate", "arrivals"], value_parser = clap::value_parser!(u32).range(1..=16_384))]
    outstanding: Option<u32>,
    /// Gaps between requests: poisson, fixed, or a distribution of plain numbers, whose mean is scaled to the rate
    #[arg(long, value_name = "GAPS", default_value = "poisson", value_parser = Process::parse)]
    arrivals: Process,
    /// How long to measure
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_positive_ns)]
    duration: u64,
    /// How long to load before measuring
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration_ns)]
    warmup: u64,
    /// When to give a request up, counted from when it leaves; at most 60s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_timeout_ns)]
    timeout: u64,
    /// Requests may run more than once: routers may clone them and they may be retried at another server
    #[arg(long)]
    idempotent: bool,
    /// Speak version 1 of R2P2, as the reference implementation does
    #[arg(long)]
    v1: bool,
    /// Seed of arrivals and service times
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the result as JSON to FILE, or with `-` to standard output and nothing else
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Load a target that is neither on this machine nor in a private network
    #[arg(long)]
    i_own_this_target: bool,
    #[command(flatten)]
    polling: Polling,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Transport {
    /// R2P2 over UDP
    R2p2,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let target = network::resolve(&args.target)?;
    check_harmless(args, target)?;
    args.json.as_deref().map_or(Ok(()), output::check_writable)?;
    let mut driver = open(args, target)?;
    let start_ns = driver.clock().now().saturating_add(HEAD_START_NS);
    let run = plan_run(args, start_ns)?;
    let options = CallOptions { idempotent: args.idempotent, fixed: false, v1: args.v1 };
    let aim = Aim { target, timeout_ns: args.timeout, options, calls_max: CALLS_MAX };
    let mut loader = Loader::new(run, aim, args.app.clone(), generator(args.seed, STREAM_SERVICES));
    load(&mut driver, &mut loader, &Progress::new(args))?;
    let client = Client {
        mismatched: loader.mismatched,
        saturated: loader.saturated,
        resent: driver.node(ENDPOINT).metrics().resent,
        sleeps: driver.metrics().sleeps,
        icmp_errors: driver.port(ENDPOINT).metrics().icmp_errors,
        kernel_drops: driver.port(ENDPOINT).kernel_drops().map_or(0, u64::from),
    };
    let (recorder, rates) = loader.run.finish();
    let report = Report::new(config_json(args, target), &recorder, rates, client);
    if let Some(file) = &args.json {
        output::write_json(file, &report.json())?;
    }
    if args.json.as_deref() == Some("-") {
        Ok(())
    } else {
        output::print(&format!("{}\n\n{}", headline(args), report.describe()))
    }
}

/// Turns until the run is done.
fn load(driver: &mut Driver<Endpoint>, loader: &mut Loader, progress: &Progress) -> Result<()> {
    let mut shown_at = 0;
    loop {
        let now = driver.turn_with(|_, endpoint, now| loader.work(endpoint, now))?.now;
        if loader.run.phase(now) == Phase::Done {
            progress.bar.finish_and_clear();
            return Ok(());
        }
        if now >= shown_at {
            progress.show(&loader.run, now);
            shown_at = now.saturating_add(PROGRESS_EVERY_NS);
        }
        let until = loader.run.poll_timeout(now).into_iter().chain(progress.next(shown_at)).min();
        driver.wait(None, until)?;
    }
}

fn check_harmless(args: &Args, target: SocketAddr) -> Result<()> {
    if !network::is_private(target.ip()) && !args.i_own_this_target {
        bail!("{target} is neither on this machine nor in a private network; add --i-own-this-target if it is yours to load");
    }
    if let Some(rate) = args.rate.filter(|&rate| rate > args.rate_max) {
        bail!("--rate {rate} is above {}; raise --rate-max if it is meant", args.rate_max);
    }
    Ok(())
}

fn open(args: &Args, target: SocketAddr) -> Result<Driver<Endpoint>> {
    let any = if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let port = network::bind(SocketAddr::new(any, 0), Coalescing::On)?;
    let mut config = Config { calls_max: CALLS_MAX, ..Config::default() };
    config.secret = entropy::secret().context("cannot draw a secret")?;
    config.credit_bytes = network::credit_bytes(&port)?;
    config.serving.is_enabled = false;
    let mut driver = Driver::new(args.polling.wait()).context("cannot set up polling")?;
    let endpoint = Endpoint::new(driver.clock().now(), config);
    driver.add(endpoint, port, None);
    Ok(driver)
}

fn plan_run(args: &Args, start_ns: Time) -> Result<Run> {
    let drain_ns = args.timeout.saturating_add(DRAIN_SLACK_NS);
    let plan = Plan { start_ns, warmup_ns: args.warmup, duration_ns: args.duration, drain_ns };
    if let Some(outstanding) = args.outstanding {
        return Ok(Run::closed(plan, outstanding as usize));
    }
    let rate = args.rate.context("--rate or --outstanding is needed")?;
    let arrivals = Arrivals::new(args.arrivals.clone(), rate, generator(args.seed, STREAM_ARRIVALS));
    Ok(Run::open(plan, arrivals.context("--arrivals cannot be scaled to --rate")?))
}

fn parse_timeout_ns(text: &str) -> Result<u64, String> {
    match parse_positive_ns(text) {
        Ok(timeout_ns) if timeout_ns > TIMEOUT_NS_MAX => Err("a request waits for 60s at most".to_owned()),
        parsed => parsed,
    }
}

/// A bar on a terminal; nothing elsewhere.
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn new(args: &Args) -> Self {
        let bar = ProgressBar::new(args.warmup.saturating_add(args.duration) / NS_PER_MS);
        let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}").expect("the template is a valid constant");
        bar.set_style(style);
        Self { bar }
    }

    fn show(&self, run: &Run, now: Time) {
        if self.bar.is_hidden() {
            return;
        }
        self.bar.set_position(now.saturating_sub(run.plan().start_ns) / NS_PER_MS);
        let phase = match run.phase(now) {
            Phase::WarmUp => "warming up",
            Phase::Measuring => "measuring",
            Phase::Draining | Phase::Done => "waiting for the last replies",
        };
        self.bar.set_message(format!("{phase}, {} replied, {} outstanding", run.recorder().counts().replied, run.in_flight()));
    }

    /// When to show it again, if anybody sees it.
    fn next(&self, shown_at: Time) -> Option<Time> {
        (!self.bar.is_hidden()).then_some(shown_at)
    }
}

/// Everything that repeats the run.
fn config_json(args: &Args, target: SocketAddr) -> serde_json::Value {
    json!({
        "command": command_line(),
        "version": env!("CARGO_PKG_VERSION"),
        "transport": "r2p2",
        "target": args.target,
        "target_address": target.to_string(),
        "app": args.app.to_string(),
        "rate_per_s": args.rate,
        "outstanding": args.outstanding,
        "arrivals": args.rate.map(|_| process_name(&args.arrivals)),
        "duration_ns": args.duration,
        "warmup_ns": args.warmup,
        "timeout_ns": args.timeout,
        "idempotent": args.idempotent,
        "v1": args.v1,
        "seed": args.seed,
        "polling": args.polling.to_string(),
    })
}

/// What was measured, in a line.
fn headline(args: &Args) -> String {
    let time = |ns: u64| Unit::Time.format(ns as f64);
    let load = match (args.outstanding, args.rate) {
        (Some(outstanding), _) => format!("closed loop, {outstanding} outstanding"),
        (None, rate) => format!("open loop, {} {}/s", process_name(&args.arrivals), rate.unwrap_or_default()),
    };
    let (duration, warmup) = (time(args.duration), time(args.warmup));
    format!("{} at {}: {load}, {duration} after {warmup} of warm-up, seed {}", args.app, args.target, args.seed)
}

fn process_name(process: &Process) -> String {
    match process {
        Process::Poisson => "poisson".to_owned(),
        Process::Fixed => "fixed".to_owned(),
        Process::Shaped(gaps) => gaps.to_string(),
    }
}

/// The command line as a shell takes it, without the path of the binary.
fn command_line() -> String {
    let words = env::args_os().skip(1).map(|word| quote(&word.to_string_lossy()));
    std::iter::once("tailcut".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=+:.,/@%[]".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// The driver's only node.
const ENDPOINT: usize = 0;

/// Calls outstanding at most: the width of their index on the wire.
const CALLS_MAX: usize = 65_535;

/// The endpoint's own limit on deadlines.
const TIMEOUT_NS_MAX: u64 = 60_000_000_000;

/// From now to the start of the load, so that setting up makes no request late.
const HEAD_START_NS: u64 = 10 * NS_PER_MS;

/// The last outcomes come this long after the last timeout at most.
const DRAIN_SLACK_NS: u64 = 100 * NS_PER_MS;

const PROGRESS_EVERY_NS: u64 = 100 * NS_PER_MS;
const NS_PER_MS: u64 = 1_000_000;

/// Streams of the seed.
const STREAM_ARRIVALS: u64 = 0;
const STREAM_SERVICES: u64 = 1;

const AFTER_HELP: &str = "\
Examples:
  tailcut measure --target 127.0.0.1:8000 --app echo:64 --rate 10k
  tailcut measure --target localhost:8000 --app synthetic:bimodal:10us:1ms:0.99 --rate 20k
  tailcut measure --target [::1]:8000 --app echo:64 --outstanding 8 --duration 5s --busy-poll
  tailcut measure --target 10.0.0.1:8000 --app synthetic:fixed:25us --rate 50k --json result.json

Sleeping adds the kernel's wake-ups to every latency; where they matter give client and server
a core each and --busy-poll.";
