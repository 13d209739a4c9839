//! `tailcut gateway`: unmodified clients of existing servers, in front of a router.

mod desk;
mod group;
mod service;
mod window;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{ArgGroup, ValueEnum};
use tailcut_bridge::resp::keys::Groups;
use tailcut_bridge::{FrontKind, Limits, MESSAGE_LEN_MAX};
use tailcut_measure::quantity::Unit;
use tailcut_net::driver::Driver;
use tailcut_net::open::{Opening, Protocol};

use self::desk::{Desk, DeskConfig};
use self::group::{GroupFlag, Targets};
use self::service::Service;
use crate::distribution_file::parse_positive_ns;
use crate::keys::Secured;
use crate::sidecar::{Setup, Sidecar, SidecarFlags};
use crate::{network, output};

/// Take connections of unmodified clients, and make tailcut calls of what they ask
///
/// The other end of `tailcut bridge`: what clients of Redis or HTTP say becomes calls, to a router
/// or to a bridge, and their answers go back in order. Prints `listening 127.0.0.1:6379` when it is
/// ready. SIGINT or SIGTERM takes no new connections, answers what is under way and ends it, with
/// its counters on standard error.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, group(ArgGroup::new("targets").required(true).args(["to", "group"])))]
pub(crate) struct Args {
    /// Where to take connections: tcp://ADDR; port 0 takes a free one
    #[arg(long, value_name = "URL", value_parser = parse_listen)]
    listen: String,
    /// What clients speak
    #[arg(long, value_name = "APP")]
    app: Spoken,
    /// The router, or a bridge. Repeated, the others stand for the first: calls go to the next
    /// where one does not answer (R2P2 only)
    #[arg(long, value_name = "ADDR")]
    to: Vec<String>,
    /// Where what changes something goes, and what always has to go to the same server: the bridge
    /// of the primary, or a router before such [default: --to]
    #[arg(long, value_name = "ADDR")]
    writes_to: Option<String>,
    /// Servers that have some of the keys: the first slot and the last, numbered as in Redis
    /// Cluster, where reads go, and where writes do if that is elsewhere. Repeated until each of
    /// the 16384 slots has a group
    #[arg(long, value_name = "SLOTS=READS[,WRITES]", conflicts_with = "writes_to", value_parser = GroupFlag::parse)]
    group: Vec<GroupFlag>,
    /// What carries calls
    #[arg(long, value_name = "NAME", default_value = "r2p2")]
    transport: Transport,
    /// How long a request may take, with its wait for room
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_positive_ns)]
    timeout: u64,
    /// Connections at a time; more are refused
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    connections: u32,
    /// Requests of a connection that are read and not answered; beyond, it is not read from
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pipeline: u32,
    /// Bytes held for all connections together; beyond, those that have more than their share end
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_memory)]
    memory: usize,
    /// How long a request may take to come, and an answer to be read, before its connection ends
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_positive_ns)]
    client_timeout: u64,
    /// How long a connection may say nothing before it ends [default: for ever, and 75s for http]
    #[arg(long, value_name = "TIME", value_parser = parse_positive_ns)]
    idle_timeout: Option<u64>,
    /// Seal calls by the client's keys in this file (R2P2 and Homa), which is read again when it
    /// changes; `tailcut keys` makes them. All its clients are then one client
    #[arg(long, value_name = "FILE")]
    seal: Option<PathBuf>,
    #[command(flatten)]
    sidecar: SidecarFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Spoken {
    /// Redis' protocol, versions 2 and 3
    Redis,
    /// HTTP/1.1
    Http,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    /// R2P2 over UDP
    R2p2,
    /// Homa inside UDP; no router speaks it
    Homa,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let (targets, groups) = targets(args)?;
    let mut driver = Driver::new(args.sidecar.polling.wait()).context("cannot set up polling")?;
    let any = if targets[0].reads.is_ipv4() {
        IpAddr::from(Ipv4Addr::UNSPECIFIED)
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let secured = Secured::of_client(args.seal.as_deref())?;
    let mut opening = opening(args)?;
    secured.apply(&mut opening);
    opening.add(&mut driver, SocketAddr::new(any, 0)).context("cannot open a port to call from")?;
    let app = match args.app {
        Spoken::Redis => FrontKind::Redis,
        Spoken::Http => FrontKind::Http,
    };
    let config = DeskConfig {
        app,
        targets,
        groups,
        timeout_ns: args.timeout,
        memory_max: args.memory,
        client_ns_max: args.client_timeout,
        idle_ns_max: args.idle_timeout.unwrap_or(match args.app {
            Spoken::Redis => u64::MAX,
            Spoken::Http => HTTP_IDLE_NS,
        }),
        limits: Limits { pipeline_max: args.pipeline as usize, ..Limits::default() },
    };
    let listen = network::resolve(&args.listen)?;
    let mut service = Service::open(driver, listen, args.connections as usize, Desk::new(config))?;
    let admin = args.sidecar.admin.bind()?;
    let setup = Setup {
        command: "gateway",
        prefix: "tailcut_gateway",
        config: shown(args, service.address()?),
    };
    let (mut sidecar, asker) = Sidecar::open(&args.sidecar, &setup, (service.waker(), secured))?;
    output::print(&format!("listening {}\n", service.address()?))?;
    asker.start_admin(admin)?;
    sidecar.life.announce_ready();
    service.run(&mut sidecar)?;
    eprint!("{}", service.snapshot().report("passed on"));
    sidecar.life.end("clients have not been answered, or do not read")
}

/// Flags as others see them.
fn shown(args: &Args, listen: SocketAddr) -> Vec<(&'static str, String)> {
    let mut shown =
        vec![("app", format!("{:?}", args.app).to_lowercase()), ("listen", listen.to_string())];
    if let Some(first) = args.to.first() {
        let writes_to = args.writes_to.as_ref().unwrap_or(first);
        shown.extend([("to", args.to.join(",")), ("writes_to", writes_to.clone())]);
    } else {
        let groups: Vec<_> = args.group.iter().map(GroupFlag::to_string).collect();
        shown.push(("group", groups.join(" ")));
    }
    shown
}

/// Destinations of calls, by group, and the group of each key.
fn targets(args: &Args) -> Result<(Vec<Targets>, Groups)> {
    let (targets, groups) = match &*args.group {
        [] => {
            let targets = Targets::resolve(&args.to[0], args.writes_to.as_deref())
                .context("--to and --writes-to")?;
            (vec![targets], Groups::default())
        }
        _ if args.app == Spoken::Http => bail!("keys are of Redis: --app http has no --group"),
        flags => group::of_flags(flags)?,
    };
    group::check_families(&targets)?;
    Ok((targets, groups))
}

fn opening(args: &Args) -> Result<Opening> {
    let mut opening = Opening::default();
    opening.homa.message_len_max = MESSAGE_LEN_MAX;
    opening.r2p2.message_len_max = MESSAGE_LEN_MAX;
    // Nobody calls it, and a client's keys serve nobody.
    opening.r2p2.serving.is_enabled = false;
    opening.homa.serving.is_enabled = false;
    // What is refused is tried again here, and at a pace of its own.
    opening.r2p2.is_paced = false;
    if args.transport == Transport::Homa {
        if args.to.len() > 1 {
            bail!("Homa has no router to stand for another: name one --to");
        }
        opening.protocol = Protocol::Homa;
    }
    if args.to.len() > 1 {
        let all = args.to.iter().map(|name| network::resolve(name));
        opening.r2p2.alternates = all.collect::<Result<_>>()?;
    }
    let limit_ns = opening.r2p2.lifetime_ns_max;
    if args.timeout > limit_ns {
        bail!("--timeout is {:?} at most", Duration::from_nanos(limit_ns));
    }
    Ok(opening)
}

fn parse_listen(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("tcp://");
    host.map(str::to_owned)
        .ok_or_else(|| "write tcp://ADDR, such as tcp://127.0.0.1:6379".to_owned())
}

fn parse_memory(text: &str) -> Result<usize, String> {
    let size = Unit::Size.parse(text).map_err(|error| error.to_string())?;
    if size < MESSAGE_LEN_MAX as f64 {
        return Err(format!("{MESSAGE_LEN_MAX} bytes, for one message, are the least"));
    }
    Ok(size as usize)
}

/// As servers of HTTP have it.
const HTTP_IDLE_NS: u64 = 75_000_000_000;

const AFTER_HELP: &str = "\
Examples:
  tailcut gateway --listen tcp://127.0.0.1:6379 --app redis --to 10.0.0.1:8000
  tailcut gateway --listen tcp://127.0.0.1:6379 --app redis --to 10.0.0.1:8000 --writes-to 10.0.0.2:8000
  tailcut gateway --listen tcp://127.0.0.1:6379 --app redis --to 10.0.0.1:8000 --seal web.keys
  tailcut gateway --listen tcp://127.0.0.1:6379 --app redis --group 0-8191=10.0.0.1:8000 --group 8192-16383=10.0.1.1:8000
  redis-cli -p 6379 get a";
