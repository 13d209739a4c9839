//! `tailcut agent`: loads on behalf of a coordinator elsewhere.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use tailcut_instrument::agent::key::Key;
use tailcut_instrument::agent::limits::{Limits, Targets};
use tailcut_instrument::agent::{Activity, Service, listen, serve_stdio};
use tailcut_measure::quantity::parse_rate_per_s;
use tailcut_net::clock::Clock;
use tailcut_proto::node::Time;

use crate::admin::text::{Page, seconds};
use crate::admin::{AdminFlags, Reading};
use crate::life::{Life, LifeFlags};
use crate::{keys, log, network, output};

/// Load servers on behalf of `tailcut measure` on another host
///
/// Takes one coordinator at a time, which must have the same key. It does only what a job
/// describes: it runs no commands and reads no files that the coordinator names. The load ends when
/// the coordinator goes away; SIGINT or SIGTERM lets the coordinator that is there finish. Over
/// ssh, `tailcut measure --agent ssh:HOST` starts it by itself.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Where to listen for a coordinator; port 0 for a free one, which is printed
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: String,
    /// Serve one coordinator on standard input and output, and end with it: what is started over
    /// ssh
    #[arg(long, conflicts_with_all = ["listen", "key_file"])]
    stdio: bool,
    /// The key that coordinator and agent share, or the certificates that they know each other by;
    /// without one it listens on loopback only
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Write a new key to a new file, and end
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "stdio", "key_file", "seal"])]
    make_key: Option<PathBuf>,
    /// R2P2, Homa: a client's keys, by which the loads of coordinators that say --seal are sealed;
    /// read again when the file changes. A coordinator sends none
    #[arg(long, value_name = "FILE")]
    seal: Option<PathBuf>,
    /// Requests per second that it sends at most, whatever a coordinator asks for
    #[arg(long, value_name = "R", default_value = "1M", value_parser = parse_rate_per_s)]
    rate_max: f64,
    /// Load targets outside of loopback and private networks too; only if you own them
    #[arg(long)]
    i_own_these_targets: bool,
    #[command(flatten)]
    life: LifeFlags,
    #[command(flatten)]
    admin: AdminFlags,
}

/// Runs an agent.
pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(path) = &args.make_key {
        return Key::make(path);
    }
    let targets = if args.i_own_these_targets { Targets::Any } else { Targets::Private };
    let limits = Limits { rate_max_per_s: args.rate_max, targets };
    let mut service = Service::new(limits, log::note);
    let keys = args.seal.as_deref().map(keys::of_client).transpose()?;
    if let Some(keys) = &keys {
        service = service.sealed_by(keys.into());
    }
    if args.stdio {
        return serve_stdio(service);
    }
    let address = network::resolve(&args.listen)?;
    let key = args.key_file.as_deref().map(Key::read).transpose()?;
    let admin = args.admin.bind()?;
    let (mut life, activity) = (Life::new(args.life), Activity::default());
    let (teller, told) = mpsc::channel();
    let (stop, door) = (teller.clone(), activity.clone());
    // Nobody listens any more only when the process ends anyway.
    let reload = move || keys::reload(keys.as_ref());
    life.heed_signals(move || stop.send(AgentEvent::Stop).unwrap_or_default(), reload)?;
    thread::Builder::new().name("door".to_owned()).spawn(move || {
        let announce = |bound| Ok(teller.send(AgentEvent::Listening(bound))?);
        let ended = listen(address, key, service, door, &announce);
        teller.send(AgentEvent::Ended(ended)).unwrap_or_default();
    })?;
    let mut admin = Some(admin);
    let started_at = Clock.now();
    loop {
        let Ok(told) = told.recv_timeout(LOOK_INTERVAL) else {
            life.beat(Clock.now());
            continue;
        };
        match told {
            AgentEvent::Listening(bound) => {
                output::print(&format!("listening {bound}\n"))?;
                let (activity, stop) = (activity.clone(), life.stop_flag());
                let read = move || Ok(reading(&activity, &stop, started_at));
                admin.take().map_or(Ok(()), |admin| admin.start(read))?;
                life.announce_ready();
            }
            AgentEvent::Ended(ended) => return ended,
            AgentEvent::Stop => break,
        }
    }
    activity.close();
    while !life.is_over(Clock.now(), || activity.has_coordinator()) {
        thread::park_timeout(LOOK_INTERVAL);
    }
    life.end("there is a coordinator")
}

/// Messages to the main thread from the others.
enum AgentEvent {
    Listening(SocketAddr),
    Ended(Result<()>),
    Stop,
}

fn reading(activity: &Activity, stop: &AtomicBool, started_at: Time) -> Reading {
    let is_draining = stop.load(Ordering::Relaxed);
    let mut page = Page::new("tailcut_agent");
    let uptime_ns = Clock.now().saturating_sub(started_at);
    page.gauge("uptime_seconds", "Time since the start.").value(seconds(uptime_ns));
    page.gauge("draining", "1 while it takes no new coordinator.").value(u8::from(is_draining));
    let is_taken = u8::from(activity.has_coordinator());
    page.gauge("has_coordinator", "1 while it loads for a coordinator.").value(is_taken);
    page.counter("coordinators", "Coordinators that were let in.").value(activity.admitted());
    let help = "Connections that were not let in.";
    page.counter("connections_refused", help).value(activity.refused());
    Reading { unready: is_draining.then_some("draining"), metrics: page.end() }
}

/// Between two looks at whether the coordinator has left, and at the watchdog.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

const AFTER_HELP: &str = "\
Examples:
  tailcut agent --make-key run.key
  tailcut agent --listen 10.0.0.2:7077 --key-file run.key
  tailcut measure --agent tcp:10.0.0.2:7077 --key-file run.key --agent local,role=latency ...

  tailcut measure --agent ssh:me@load-1 --agent ssh:me@load-2 ...";
