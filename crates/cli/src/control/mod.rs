//! `tailcut control`: looks at a running router, bridge or gateway, and changes a router's servers.

pub(crate) mod protocol;
pub(crate) mod socket;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use self::protocol::{
    LINE_LEN_MAX, Reply, Request, Seal, Server, ServiceStatus, Source, Speaks, State, Status,
};
use crate::counters::{self, Counters};
use crate::{network, output, signals};

/// Look at a running router, bridge or gateway, or change a router's servers
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The control socket, as given to `tailcut route --control`, or to a bridge or gateway
    #[arg(value_name = "PATH")]
    path: PathBuf,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show the servers, the queue and the counters
    Status {
        /// Show them again every second until SIGINT, with what was placed in that second
        #[arg(long, conflicts_with = "json")]
        watch: bool,
        /// Write them as JSON to FILE, or with `-` to standard output and nothing else
        #[arg(long, value_name = "FILE")]
        json: Option<String>,
    },
    /// Make a router read its files and resolve its servers' names again; either all of it takes
    /// effect, or nothing changes and the reason is printed
    Reload,
    /// Take servers into service
    Add {
        /// The server, or ADDR+COUNT for consecutive ports
        #[arg(value_name = "ADDR")]
        address: String,
        /// It speaks version 1 only
        #[arg(long)]
        v1: bool,
    },
    /// Remove servers at once; requests still running there may be refused when clients retry them.
    /// Drain them first
    Remove {
        /// The server, or ADDR+COUNT
        #[arg(value_name = "ADDR")]
        address: String,
    },
    /// Send servers no new requests; those in progress finish as usual
    Drain {
        /// The server, or ADDR+COUNT
        #[arg(value_name = "ADDR")]
        address: String,
        /// Wait until they have nothing outstanding
        #[arg(long)]
        wait: bool,
    },
    /// Give drained servers requests again
    Resume {
        /// The server, or ADDR+COUNT
        #[arg(value_name = "ADDR")]
        address: String,
    },
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let path = &args.path;
    match &args.action {
        Action::Status { watch: true, .. } => watch(path),
        Action::Status { json: Some(file), .. } => {
            let status = match ask(path, Request::Status)? {
                Reply::Status(status) => serde_json::to_value(status)?,
                Reply::Service(status) => serde_json::to_value(status)?,
                reply => return Err(unexpected(reply)),
            };
            output::write_json(file, &status)
        }
        Action::Status { .. } => output::print(&match ask(path, Request::Status)? {
            Reply::Status(status) => describe(&status, None),
            Reply::Service(status) => describe_service(&status),
            reply => return Err(unexpected(reply)),
        }),
        Action::Reload => match ask(path, Request::Reload)? {
            Reply::Reloaded { added, gone, changed } => {
                let changed = if changed.is_empty() {
                    String::new()
                } else {
                    format!("; changed: {}", changed.join(", "))
                };
                output::print(&format!(
                    "reloaded: {added} servers added, {gone} drained{changed}\n"
                ))
            }
            reply => Err(unexpected(reply)),
        },
        Action::Add { address, v1 } => {
            let speaks = if *v1 { Speaks::V1 } else { Speaks::Extension };
            change(path, address, |address| Request::Add { address, speaks })
        }
        Action::Remove { address } => change(path, address, |address| Request::Remove { address }),
        Action::Resume { address } => change(path, address, |address| Request::Resume { address }),
        Action::Drain { address, wait } => {
            change(path, address, |address| Request::Drain { address })?;
            if *wait { wait_until_idle(path, &network::resolve_range(address)?) } else { Ok(()) }
        }
    }
}

fn change(path: &Path, addresses: &str, request: impl Fn(SocketAddr) -> Request) -> Result<()> {
    for address in network::resolve_range(addresses)? {
        match ask(path, request(address))? {
            Reply::Done {} => {}
            reply => return Err(unexpected(reply)),
        }
    }
    Ok(())
}

fn status(path: &Path) -> Result<Status> {
    match ask(path, Request::Status)? {
        Reply::Status(status) => Ok(*status),
        reply => Err(unexpected(reply)),
    }
}

fn ask(path: &Path, request: Request) -> Result<Reply> {
    let connected = UnixStream::connect(path);
    let mut stream = connected.map_err(|error| {
        anyhow!(
            "nobody answers at {0} ({error}); start one by `tailcut route --control {0}`",
            path.display()
        )
    })?;
    let within = if request == Request::Reload { RELOAD_WITHIN } else { ANSWER_WITHIN };
    stream.set_read_timeout(Some(within))?;
    stream.write_all(format!("{}\n", serde_json::to_string(&request)?).as_bytes())?;
    let mut line = String::new();
    let answered = BufReader::new(stream.take(LINE_LEN_MAX)).read_line(&mut line);
    answered.context("it does not answer")?;
    if line.is_empty() {
        bail!("it hung up: it is ending, or busy with other connections");
    }
    serde_json::from_str(&line).context("it answered in a way that this version does not know")
}

fn unexpected(reply: Reply) -> anyhow::Error {
    match reply {
        Reply::Error(error) => anyhow!(error),
        Reply::Service(status) => {
            anyhow!("this is a {}, which has a status and no servers to change", status.command)
        }
        reply => anyhow!("the router answered something else: {reply:?}"),
    }
}

/// Asks until the servers have nothing outstanding, or are gone.
fn wait_until_idle(path: &Path, addresses: &[SocketAddr]) -> Result<()> {
    let stopped = stop_channel()?;
    loop {
        let is_busy =
            |server: &Server| addresses.contains(&server.address) && server.outstanding > 0;
        if !status(path)?.servers.iter().any(is_busy) {
            return Ok(());
        }
        if stopped.recv_timeout(ASK_AGAIN_AFTER).is_ok() {
            bail!("interrupted; the servers stay drained");
        }
    }
}

fn watch(path: &Path) -> Result<()> {
    let stopped = stop_channel()?;
    let clear = if std::io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" };
    let mut earlier = None;
    loop {
        let status = status(path)?;
        output::print(&format!("{clear}{}", describe(&status, earlier.as_ref())))?;
        earlier = Some(status);
        if stopped.recv_timeout(WATCH_EVERY).is_ok() {
            return Ok(());
        }
    }
}

/// Gets a message at SIGINT or SIGTERM.
fn stop_channel() -> Result<mpsc::Receiver<()>> {
    let (stop, stopped) = mpsc::channel();
    // Nobody listens any more only when the command ends anyway.
    signals::on_stop(move || stop.send(()).unwrap_or_default())?;
    Ok(stopped)
}

/// The status of a bridge or a gateway for people.
fn describe_service(status: &ServiceStatus) -> String {
    let ServiceStatus { command, config, uptime_ns, unready, gauges, counters, .. } = status;
    let config: Vec<String> =
        config.iter().map(|(name, value)| format!("  {name} {value}")).collect();
    let all = |values: &BTreeMap<String, u64>| -> Counters {
        values.iter().map(|(name, &count)| (name.clone(), count)).collect()
    };
    let rows: Vec<_> =
        all(gauges).into_iter().map(|(name, value)| vec![name, value.to_string()]).collect();
    format!(
        "{command}{}  up {} s{}\n\n{}\n{}",
        config.concat(),
        uptime_ns / 1_000_000_000,
        unready.as_ref().map_or(String::new(), |reason| format!("  {reason}")),
        output::table(&rows, 1),
        counters::lines(&all(counters)),
    )
}

/// A status for people; `earlier` gives the rates.
fn describe(status: &Status, earlier: Option<&Status>) -> String {
    let config = &status.config;
    let bound = status.bound.map_or(String::new(), |bound| format!(" (bound {bound})"));
    let uptime_s = status.uptime_ns / 1_000_000_000;
    let (queue_len, table_len) = (status.queue_len, status.table_len);
    let counters: Counters =
        status.counters.iter().map(|(name, &count)| (name.clone(), count)).collect();
    let refusal = status.reloads.refusal.as_ref();
    let refusal =
        refusal.map_or(String::new(), |why| format!("the last reload was refused: {why}\n"));
    let seal = status.seal.as_ref().map_or("open".to_owned(), sealed);
    format!(
        "router {}  policy {}{bound}  forward {}  up {uptime_s} s  held {queue_len}  remembered {table_len}\n{seal}\n{refusal}{}\n{}\n{}",
        config.listen,
        config.policy,
        config.forward,
        sources(status),
        servers(status, earlier),
        counters::lines(&counters),
    )
}

/// By which keys a router is sealed.
fn sealed(Seal { group, cipher, epochs, current }: &Seal) -> String {
    let epochs: Vec<_> = epochs.iter().map(u8::to_string).collect();
    format!("sealed  group {group}  {cipher}  epochs {}  current {current}", epochs.join(" "))
}

/// A line for each source of servers.
fn sources(status: &Status) -> String {
    let line = |source: &Source| {
        let state = match (&source.problem, source.is_empty) {
            (Some(problem), _) => format!("away, its servers stay: {problem}"),
            (None, true) => "names nobody, its servers stay for now".to_owned(),
            (None, false) if source.answers == 0 => "has not answered yet".to_owned(),
            (None, false) => "answers".to_owned(),
        };
        format!("from {}: {} servers, {state}\n", source.source, source.servers)
    };
    status.discovery.iter().map(line).collect()
}

fn servers(status: &Status, earlier: Option<&Status>) -> String {
    let mut head = vec![
        "server",
        "speaks",
        "weight",
        "state",
        "outstanding",
        "placed",
        "concluded",
        "round trip",
        "service",
    ];
    head.extend(earlier.map(|_| "placed/s"));
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    let placed_earlier: BTreeMap<_, _> = earlier
        .iter()
        .flat_map(|status| &status.servers)
        .map(|server| (server.address, server.placed))
        .collect();
    let passed_s =
        earlier.map(|earlier| status.uptime_ns.saturating_sub(earlier.uptime_ns) as f64 / 1e9);
    for server in &status.servers {
        let mut row = row(server);
        row.extend(passed_s.map(|passed_s| {
            let before = placed_earlier.get(&server.address).copied().unwrap_or(server.placed);
            format!("{:.0}", server.placed.saturating_sub(before) as f64 / passed_s.max(1e-3))
        }));
        rows.push(row);
    }
    output::table(&rows, 3)
}

fn row(server: &Server) -> Vec<String> {
    let speaks = match server.speaks {
        Speaks::Extension => "extension",
        Speaks::V1 => "version 1",
    };
    let state = match server.state {
        State::Starting => "starting",
        State::InService => "in service",
        State::Draining => "draining",
        State::Silent => "silent",
        State::Stopping => "stopping",
        State::Ejected => "ejected",
    };
    let us = |time: Option<f64>| time.map_or("-".to_owned(), |time| format!("{time:.1} us"));
    vec![
        server.address.to_string(),
        speaks.to_owned(),
        if server.is_near { server.weight.to_string() } else { format!("{} far", server.weight) },
        state.to_owned(),
        server.outstanding.to_string(),
        server.placed.to_string(),
        server.concluded.to_string(),
        us(server.round_trip_us),
        us(server.service_us),
    ]
}

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Names are resolved meanwhile.
const RELOAD_WITHIN: Duration = Duration::from_secs(60);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);
const WATCH_EVERY: Duration = Duration::from_secs(1);

const AFTER_HELP: &str = "\
Examples:
  tailcut control /run/tailcut.sock status --watch
  tailcut control /run/tailcut.sock add 10.0.0.7:8000+8
  tailcut control /run/tailcut.sock drain 10.0.0.7:8000 --wait
  tailcut control /run/tailcut.sock remove 10.0.0.7:8000
  tailcut control /run/tailcut.sock reload

The socket takes one JSON object a line, such as {\"command\":\"status\"} or
{\"command\":\"add\",\"address\":\"10.0.0.7:8000\",\"speaks\":\"extension\"}, and answers each with a line: {\"done\":{}}, {\"status\":{...}} or {\"error\":\"...\"}.";
