//! `tailcut route`: a router between clients and servers.

mod servers;
pub(crate) mod service;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::Driver;
use tailcut_net::entropy;
use tailcut_net::open::Opening;
use tailcut_net::raw::RawPort;
use tailcut_proto::policy::{self, PolicySpec};
use tailcut_proto::router::{Forward, Router, RouterConfig, RouterError, ServerConfig};

use self::servers::ServerFlags;
use self::service::{Order, ROUTER, Service, Setup, Snapshot};
use crate::admin::AdminFlags;
use crate::control::socket::ControlSocket;
use crate::counters;
use crate::distribution_file::parse_positive_ns;
use crate::life::{Life, LifeFlags};
use crate::log::{self, RouterLog};
use crate::network::Polling;
use crate::orders::{self, Orderer};
use crate::output;
use crate::place::Place;
use crate::trace::TraceFlags;

/// Route requests to servers, so that none waits behind another while a server is free
///
/// Takes the first packet of each request, places it on a server, and holds it while all are busy.
/// Replies go from the server to the client directly. Prints `listening 127.0.0.1:8000` when it is
/// ready. SIGHUP resolves the servers' names and reads their file again. SIGINT or SIGTERM drains
/// it and ends it, with its counters on standard error.
#[derive(Debug, clap::Args)]
#[command(after_help = after_help())]
pub(crate) struct Args {
    /// Address to route at; port 0 takes a free one, and `systemd` the socket that a socket unit
    /// passes
    #[arg(long, value_name = "ADDR")]
    listen: String,
    #[arg(long, value_name = "POLICY", default_value = "jbsq:auto")]
    #[arg(help = format!("Where requests go: {}", policy::grammar("or")))]
    policy: PolicySpec,
    #[command(flatten)]
    servers: ServerFlags,
    /// How a request is sent on
    #[arg(long, value_name = "MODE", default_value = "annotate")]
    forward: ForwardMode,
    /// Open a control socket here, for `tailcut control`
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Requests that may be held; more are refused
    #[arg(long, value_name = "N", default_value_t = RouterConfig::default().queue_len_max)]
    queue: usize,
    /// Longest that a request is held
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_positive_ns)]
    hold: u64,
    /// Time between two probes of a server
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_positive_ns)]
    probe_interval: u64,
    /// How long a server may leave probes unanswered before it is taken out of service. One that has
    /// paused for longer gets twice its pause, and all get 200 ms when more than half of them are
    /// silent
    #[arg(long, value_name = "TIME", default_value = "24ms", value_parser = parse_positive_ns)]
    silent_after: u64,
    /// How long a version 1 request counts as outstanding without feedback; longer than the longest
    /// service
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_positive_ns)]
    lease: u64,
    /// Longest that the network carries a datagram: retries of requests that may be older than the
    /// router are refused
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_positive_ns)]
    transit: u64,
    #[command(flatten)]
    life: LifeFlags,
    #[command(flatten)]
    admin: AdminFlags,
    #[command(flatten)]
    polling: Polling,
    #[command(flatten)]
    trace: TraceFlags,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ForwardMode {
    /// With the client as the source, by raw sockets: needs CAP_NET_RAW, and serves version 1
    /// clients
    Keep,
    /// From the router, with the client written into the packet: works everywhere
    Annotate,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let mut trace = args.trace.create()?;
    let Opened { mut service, orderer, _control } = open(&args)?;
    if let Some(trace) = &mut trace {
        trace.watch(&service.driver);
    }
    let (mut life, admin) = (Life::new(args.life), args.admin.bind()?);
    let (waker, listen) = (service.driver.waker(), service.setup.listen);
    let (servers, reloads) = (args.servers.clone(), orderer.clone());
    life.heed_signals(move || waker.wake(), move || reload(&servers, listen, &reloads))?;
    output::print(&format!("listening {listen}\n"))?;
    admin.start(move || Ok(Snapshot::ask(&orderer)?.reading()))?;
    life.announce_ready();
    let mut log = RouterLog::default();
    loop {
        let turn = match &mut trace {
            Some(trace) => {
                let turn = service.driver.turn_observed(trace, |_, _, _| ())?;
                trace.look(&service.driver, turn, |node| log::decisions(&node.metrics()));
                turn
            }
            None => service.driver.turn()?,
        };
        let is_draining = life.is_draining();
        service.follow(turn, is_draining);
        if is_draining {
            service.driver.node_mut(ROUTER).close();
        }
        if life.is_over(turn.now, || !service.driver.node(ROUTER).is_idle()) {
            break;
        }
        let look_at = log.look(&service.driver, turn);
        let look_at = look_at.into_iter().chain(service.look_at()).chain(life.look_at()).min();
        service.driver.wait(None, look_at)?;
    }
    eprint!("routed:\n{}", counters::lines(&service.counters()));
    life.end("requests are held, or not known to be concluded")
}

/// Reads anew which servers there are; a mistake leaves them as they are.
fn reload(flags: &ServerFlags, listen: SocketAddr, orderer: &Orderer<Order>) {
    let apply = || -> Result<(usize, usize)> {
        let servers = flags.resolve(listen)?;
        if servers.is_empty() {
            bail!("no server is named");
        }
        orderer.ask(|reply| Order::Reload(servers, reply))?
    };
    match apply() {
        Ok((added, gone)) => tracing::info!(added, gone, "servers reloaded"),
        Err(error) => eprintln!("tailcut: cannot reload, the servers stay as they are: {error:#}"),
    }
}

/// A router that is ready to run, and what gives it orders.
struct Opened {
    service: Service,
    orderer: Orderer<Order>,
    /// Its file goes with it.
    _control: Option<ControlSocket>,
}

fn open(args: &Args) -> Result<Opened> {
    let forward = match args.forward {
        ForwardMode::Keep => Forward::Keep,
        ForwardMode::Annotate => Forward::Annotate,
    };
    let mut places = Place::read(&args.listen, 1)?;
    let (Some(place), true) = (places.pop(), places.is_empty()) else {
        bail!("a router has one port, and systemd has passed several sockets");
    };
    let port = place.open(&Opening::default())?;
    let listen = port.local_address();
    let raw = match forward {
        Forward::Keep => Some(
            RawPort::open(listen.ip())
                .map_err(|error| anyhow!("{error}; --forward annotate works without"))?,
        ),
        Forward::Annotate => None,
    };
    let named = args.servers.resolve(listen)?;
    let config = router_config(args, forward, named.clone())?;
    let mut driver = Driver::new(args.polling.wait()).context("cannot set up polling")?;
    let started_at = driver.clock().now();
    let router = Router::new(started_at, config).map_err(name_option)?;
    driver.add(router, port, raw);
    let (orderer, orders) = orders::channel(driver.waker());
    let setup = Setup { listen, policy: args.policy, forward, started_at };
    let control = args.control.as_deref();
    let control =
        control.map(|path| ControlSocket::open(path, setup, orderer.clone())).transpose()?;
    let service = Service { driver, setup, orders, named, retired: Vec::new(), retire_at: 0 };
    Ok(Opened { service, orderer, _control: control })
}

fn router_config(
    args: &Args,
    forward: Forward,
    servers: Vec<ServerConfig>,
) -> Result<RouterConfig> {
    if servers.is_empty() && args.control.is_none() {
        bail!(
            "no server to route to; name one by --server, or add some later through --control PATH"
        );
    }
    let secret = entropy::secret().context("cannot draw a secret")?;
    let (seed, _) = secret.split_first_chunk().expect("16 bytes have 8");
    Ok(RouterConfig {
        policy: args.policy,
        forward,
        servers,
        queue_len_max: args.queue,
        hold_ns_max: args.hold,
        probe_interval_ns: args.probe_interval,
        silent_ns: args.silent_after,
        silent_ns_max: RouterConfig::default().silent_ns_max.max(args.silent_after),
        lease_ns: args.lease,
        transit_ns_max: args.transit,
        seed: u64::from_be_bytes(*seed),
        ..RouterConfig::default()
    })
}

/// The configuration's fields by the options that set them.
fn name_option(error: RouterError) -> anyhow::Error {
    match error {
        RouterError::TooLarge { field: "queue_len_max", limit } => {
            anyhow!("--queue must be at most {limit}")
        }
        error => error.into(),
    }
}

fn after_help() -> String {
    format!("Policies:\n{}{EXAMPLES}", policy::help())
}

const EXAMPLES: &str = "
Examples:
  tailcut route --listen 10.0.0.1:8000 --server 10.0.0.2:8000+16 --server 10.0.0.3:8000+16
  tailcut route --listen 10.0.0.1:8000 --policy jbsq:3 --server 10.0.0.2:8000 --control /run/tailcut.sock
  tailcut route --listen 10.0.0.1:8000 --forward keep --server-v1 10.0.0.2:8000+4

Servers behind `--forward keep` need `tailcut serve --router ADDR`.";
