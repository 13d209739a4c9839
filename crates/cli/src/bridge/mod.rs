//! `tailcut bridge`: an existing server behind R2P2 or Homa.

mod service;
mod target;

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use tailcut_bridge::{App, Login, MESSAGE_LEN_MAX, PoolConfig};
use tailcut_instrument::text_file::{self, CONFIG_BYTES_MAX};
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::Driver;
use tailcut_net::open::{Opening, Protocol};
use tailcut_proto::r2p2::{AskCookies, Prefix};

use self::service::{Limits, Service};
use self::target::Target;
use crate::distribution_file::parse_positive_ns;
use crate::keys::Secured;
use crate::place::Place;
use crate::sidecar::{Setup, Sidecar, SidecarFlags};
use crate::{network, output, pool_key};

/// Serve an existing server's protocol over R2P2 or Homa, beside that server
///
/// Takes calls in front and asks the server behind over connections that it keeps. A call ends when
/// the server has answered, so that a router before it knows what the server has. Prints `listening
/// 127.0.0.1:8000` when it is ready; while the server cannot be reached, routers place nothing
/// here. SIGINT or SIGTERM drains it and ends it, with its counters on standard error.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Address to take calls at; port 0 takes a free one, and `systemd` the socket that a socket
    /// unit passes
    #[arg(long, value_name = "ADDR")]
    listen: String,
    /// The server: tcp://HOST:PORT, http://HOST:PORT or unix:PATH
    #[arg(long, value_name = "URL", value_parser = Target::parse)]
    to: Target,
    /// What it speaks
    #[arg(long, value_name = "APP", value_parser = str::parse::<App>)]
    app: App,
    /// What carries calls
    #[arg(long, value_name = "NAME", default_value = "r2p2")]
    transport: Transport,
    /// Requests that the server may have at once; others wait here
    #[arg(long, value_name = "N", default_value = "64")]
    outstanding: NonZeroU32,
    /// Connections to the server [default: 4, and --outstanding for http, whose connections have
    /// one request each]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    connections: Option<u16>,
    /// Requests that the server runs at once, of those that it has: what routers are told [default:
    /// 1, for memcached 4, for http --outstanding]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: Option<u32>,
    /// Requests that may wait; more are refused
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    queue: u32,
    /// How long the server may be silent while it has requests, which is longer than its longest
    /// service: then the connection is given up, and what was on it may have run
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_positive_ns)]
    silence: u64,
    /// File with `PASSWORD` or `USER:PASSWORD` for the server
    #[arg(long, value_name = "FILE")]
    login_file: Option<PathBuf>,
    /// Identity in replies and feedback
    #[arg(long, value_name = "N", default_value_t = 0)]
    server_id: u32,
    /// Router that forwards with the client as the source, to which feedback is sent; one that
    /// annotates need not be named
    #[arg(long, value_name = "ADDR")]
    router: Option<String>,
    /// Network whose addresses cannot be forged, besides loopback: its clients need no address
    /// validation. May be repeated
    #[arg(long, value_name = "PREFIX")]
    trust: Vec<Prefix>,
    /// File with 32 hex digits, the same for all servers behind one router: a client then validates
    /// its address once for all of them
    #[arg(long, value_name = "FILE")]
    pool_key_file: Option<PathBuf>,
    /// When clients must show by a cookie that they receive at their addresses before anything is
    /// done for them: never, under-load (and always for requests of several packets) or always;
    /// those of trusted networks never (not with --seal)
    #[arg(long, value_name = "WHEN", default_value = "never", value_parser = AskCookies::from_str)]
    cookies: AskCookies,
    /// Accept only sealed packets, with the servers' keys in this file (R2P2 and Homa), which is
    /// read again when it changes; `tailcut keys` makes them
    #[arg(long, value_name = "FILE")]
    seal: Option<PathBuf>,
    /// Let clients call only where the policy in this file allows, by the numbers of their keys
    /// (with --seal); it is read again when it changes
    #[arg(long, value_name = "FILE")]
    access: Option<PathBuf>,
    #[command(flatten)]
    sidecar: SidecarFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    /// R2P2 over UDP
    R2p2,
    /// Homa inside UDP; no router speaks it
    Homa,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut driver = Driver::new(args.sidecar.polling.wait()).context("cannot set up polling")?;
    let mut places = Place::read(&args.listen, 1)?;
    let (Some(place), true) = (places.pop(), places.is_empty()) else {
        bail!("a bridge has one port, and systemd has passed several sockets");
    };
    let secured = Secured::of_server(args.seal.as_deref(), args.access.as_deref())?;
    let mut opening = opening(args)?;
    secured.apply(&mut opening);
    place.add(&opening, &mut driver)?;
    let workers = args.workers.unwrap_or(match args.app {
        App::Redis => 1,
        App::Memcached => MEMCACHED_THREADS,
        App::Http => args.outstanding.get(),
    });
    driver.node_mut(0).set_workers(workers as usize);
    let admin = args.sidecar.admin.bind()?;
    let listen = driver.port(0).local_address();
    let setup = Setup {
        command: "bridge",
        prefix: "tailcut_bridge",
        config: vec![
            ("app", args.app.to_string()),
            ("listen", listen.to_string()),
            ("to", args.to.to_string()),
            ("outstanding", args.outstanding.to_string()),
        ],
    };
    let (mut sidecar, asker) = Sidecar::open(&args.sidecar, &setup, (driver.waker(), secured))?;
    let limits = Limits { outstanding: args.outstanding, queue_len_max: args.queue as usize };
    let mut service = Service::open(driver, (args.to.clone(), pool_config(args)?), limits)?;
    output::print(&format!("listening {listen}\n"))?;
    asker.start_admin(admin)?;
    sidecar.life.announce_ready();
    service.run(&mut sidecar)?;
    eprint!("{}", service.snapshot().report("bridged"));
    sidecar.life.end("requests are unanswered, or their replies not received")
}

fn pool_config(args: &Args) -> Result<PoolConfig> {
    let mut config = PoolConfig::new(args.app);
    if args.app == App::Http {
        config.connections = args.outstanding.get() as usize;
    }
    config.connections = args.connections.map_or(config.connections, usize::from);
    config.silence_ns_max = args.silence;
    config.login = args.login_file.as_deref().map(read_login).transpose()?;
    Ok(config)
}

fn opening(args: &Args) -> Result<Opening> {
    let mut opening = Opening::default();
    if args.transport == Transport::Homa {
        opening.protocol = Protocol::Homa;
    }
    let trusted = args.trust.iter().copied();
    opening.homa.message_len_max = MESSAGE_LEN_MAX;
    opening.homa.serving.trusted.extend(trusted.clone());
    opening.r2p2.message_len_max = MESSAGE_LEN_MAX;
    opening.r2p2.serving.trusted.extend(trusted);
    opening.r2p2.pool.server_id = args.server_id;
    opening.r2p2.pool.router = args.router.as_deref().map(network::resolve).transpose()?;
    opening.r2p2.pool.cookies = args.cookies;
    opening.r2p2.pool.key = args.pool_key_file.as_deref().map(pool_key::read).transpose()?;
    Ok(opening)
}

fn read_login(path: &Path) -> Result<Login> {
    let text = text_file::read(path, CONFIG_BYTES_MAX)
        .with_context(|| format!("cannot read the login from {}", path.display()))?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        bail!("{}: the first line is PASSWORD or USER:PASSWORD", path.display());
    }
    let (user, password) = line
        .split_once(':')
        .map_or((None, line), |(user, password)| (Some(user.to_owned()), password));
    Ok(Login { user, password: password.to_owned() })
}

/// Threads of a memcached that nobody has told how many.
const MEMCACHED_THREADS: u32 = 4;

const AFTER_HELP: &str = "\
Examples:
  tailcut bridge --listen 10.0.0.2:8000 --to tcp://127.0.0.1:6379 --app redis
  tailcut bridge --listen 10.0.0.2:8000 --to unix:/run/redis/redis.sock --app redis --outstanding 16
  tailcut route --listen 10.0.0.1:8000 --server 10.0.0.2:8000 --server 10.0.0.3:8000
  tailcut gateway --listen tcp://127.0.0.1:6379 --app redis --to 10.0.0.1:8000
  tailcut bridge --listen 10.0.0.2:8000 --to tcp://127.0.0.1:6379 --app redis --seal servers.keys";
