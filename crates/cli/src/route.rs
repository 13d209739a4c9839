//! `tailcut route`: a router between clients and servers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::Driver;
use tailcut_net::entropy;
use tailcut_net::raw::RawPort;
use tailcut_net::udp::SegmentedSend;
use tailcut_proto::node::Time;
use tailcut_proto::policy::{self, PolicySpec};
use tailcut_proto::router::{
    Forward, Router, RouterConfig, RouterError, ServerConfig, ServerState, ServerStatus, Speaks,
};

use crate::control::protocol::{self, Reply, Request};
use crate::control::socket::ControlSocket;
use crate::counters::{self, Counters};
use crate::distribution_file::parse_positive_ns;
use crate::log::{self, RouterLog};
use crate::network::{self, Polling};
use crate::trace::TraceFlags;
use crate::{output, signals};

/// Route requests to servers, so that none waits behind another while a server is free
///
/// Takes the first packet of each request, places it on a server, and holds it while all are busy.
/// Replies go from the server to the client directly. Prints `listening 127.0.0.1:8000` when it is
/// ready, and its counters on standard error when SIGINT or SIGTERM ends it.
#[derive(Debug, clap::Args)]
#[command(after_help = after_help())]
pub(crate) struct Args {
    /// Address to route at; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    listen: String,
    #[arg(long, value_name = "POLICY", default_value = "jbsq:auto")]
    #[arg(help = format!("Where requests go: {}", policy::grammar("or")))]
    policy: PolicySpec,
    /// A server, or ADDR+COUNT for consecutive ports. May be repeated
    #[arg(long, value_name = "ADDR")]
    server: Vec<String>,
    /// The same for servers that speak version 1 only
    #[arg(long, value_name = "ADDR")]
    server_v1: Vec<String>,
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
    /// How long a server may leave probes unanswered before it is taken out of service
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = parse_positive_ns)]
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
    let mut service = open(&args)?;
    if let Some(trace) = &mut trace {
        trace.watch(&service.driver);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (flag, waker) = (stop.clone(), service.driver.waker());
    signals::on_stop(move || {
        flag.store(true, Ordering::Relaxed);
        waker.wake();
    })?;
    output::print(&format!("listening {}\n", service.listen))?;
    let mut log = RouterLog::default();
    while !stop.load(Ordering::Relaxed) {
        let turn = match &mut trace {
            Some(trace) => {
                let turn = service.driver.turn_observed(trace, |_, _, _| ())?;
                trace.look(&service.driver, turn, |node| log::decisions(&node.metrics()));
                turn
            }
            None => service.driver.turn()?,
        };
        service.handle_orders(turn.now);
        let look_at = log.look(&service.driver, turn);
        service.driver.wait(None, look_at)?;
    }
    eprint!("routed:\n{}", counters::lines(&service.counters()));
    Ok(())
}

/// A router, its driver and its control socket.
struct Service {
    driver: Driver<Router>,
    control: Option<ControlSocket>,
    listen: SocketAddr,
    policy: PolicySpec,
    forward: Forward,
    started_at: Time,
}

impl Service {
    fn handle_orders(&mut self, now: Time) {
        while let Some(order) = self.control.as_ref().and_then(ControlSocket::poll_order) {
            let reply = self
                .handle(now, order.request)
                .unwrap_or_else(|error| Reply::Error(format!("{error:#}")));
            // Who has hung up gets no reply.
            let _ = order.reply.try_send(reply);
            self.driver.flush(now);
        }
    }

    fn handle(&mut self, now: Time, request: Request) -> Result<Reply> {
        let router = self.driver.node_mut(ROUTER);
        match request {
            Request::Status => return Ok(Reply::Status(Box::new(self.status(now)))),
            Request::Add { address, speaks } => {
                check_family(self.listen, address)?;
                let speaks =
                    if speaks == protocol::Speaks::V1 { Speaks::V1 } else { Speaks::Extension };
                router.add_server(now, ServerConfig { addr: address, speaks })?;
            }
            Request::Remove { address } => router.remove_server(address)?,
            Request::Drain { address } => router.drain_server(now, address)?,
            Request::Resume { address } => router.resume_server(now, address)?,
        }
        Ok(Reply::Done {})
    }

    fn status(&self, now: Time) -> protocol::Status {
        let status = self.driver.node(ROUTER).status();
        protocol::Status {
            schema: protocol::STATUS_SCHEMA.to_owned(),
            config: protocol::Config {
                listen: self.listen,
                policy: self.policy.to_string(),
                forward: if self.forward == Forward::Keep { "keep" } else { "annotate" }.to_owned(),
            },
            uptime_ns: now.saturating_sub(self.started_at),
            bound: status.bound,
            queue_len: status.queue_len,
            table_len: status.table_len,
            servers: status.servers.iter().map(server_status).collect(),
            counters: self.counters().into_iter().collect(),
        }
    }

    fn counters(&self) -> Counters {
        let port = self.driver.port(ROUTER);
        let mut counters = counters::of_router(&self.driver.node(ROUTER).metrics());
        counters.extend(counters::of_udp(&port.metrics()));
        counters.push(("kernel_drops".to_owned(), port.kernel_drops().map_or(0, u64::from)));
        counters.extend(
            self.driver.raw(ROUTER).map(|raw| counters::of_raw(&raw.metrics())).unwrap_or_default(),
        );
        counters
    }
}

fn open(args: &Args) -> Result<Service> {
    let forward = match args.forward {
        ForwardMode::Keep => Forward::Keep,
        ForwardMode::Annotate => Forward::Annotate,
    };
    let port = network::bind(network::resolve(&args.listen)?, SegmentedSend::On)?;
    let listen = port.local_address();
    let raw = match forward {
        Forward::Keep => Some(
            RawPort::open(listen.ip())
                .map_err(|error| anyhow!("{error}; --forward annotate works without"))?,
        ),
        Forward::Annotate => None,
    };
    let config = router_config(args, listen, forward)?;
    let mut driver = Driver::new(args.polling.wait()).context("cannot set up polling")?;
    let started_at = driver.clock().now();
    let router = Router::new(started_at, config).map_err(name_option)?;
    driver.add(router, port, raw);
    let control = args
        .control
        .as_deref()
        .map(|path| ControlSocket::open(path, driver.waker()))
        .transpose()?;
    Ok(Service { driver, control, listen, policy: args.policy, forward, started_at })
}

fn router_config(args: &Args, listen: SocketAddr, forward: Forward) -> Result<RouterConfig> {
    let mut servers = Vec::new();
    for (texts, speaks) in [(&args.server, Speaks::Extension), (&args.server_v1, Speaks::V1)] {
        for text in texts {
            let addresses = network::resolve_range(text)?;
            addresses.iter().try_for_each(|&address| check_family(listen, address))?;
            servers.extend(addresses.into_iter().map(|addr| ServerConfig { addr, speaks }));
        }
    }
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
        lease_ns: args.lease,
        transit_ns_max: args.transit,
        seed: u64::from_be_bytes(*seed),
        ..RouterConfig::default()
    })
}

/// One socket sends to servers of one family.
fn check_family(listen: SocketAddr, server: SocketAddr) -> Result<()> {
    if listen.is_ipv4() != server.is_ipv4() {
        let family = if listen.is_ipv4() { "IPv4" } else { "IPv6" };
        bail!(
            "the router listens at {listen} and cannot reach {server}; give it an {family} address"
        );
    }
    Ok(())
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

fn server_status(server: &ServerStatus) -> protocol::Server {
    let us = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e3);
    protocol::Server {
        address: server.addr,
        speaks: if server.speaks == Speaks::V1 {
            protocol::Speaks::V1
        } else {
            protocol::Speaks::Extension
        },
        state: match server.state {
            ServerState::InService => protocol::State::InService,
            ServerState::Draining => protocol::State::Draining,
            ServerState::Silent => protocol::State::Silent,
            ServerState::Stopping => protocol::State::Stopping,
        },
        outstanding: server.outstanding,
        placed: server.placed,
        concluded: server.concluded,
        round_trip_us: us(server.rtt_ns),
        service_us: us(server.service_ns),
    }
}

/// The driver's only node.
const ROUTER: usize = 0;

fn after_help() -> String {
    format!("Policies:\n{}{EXAMPLES}", policy::help())
}

const EXAMPLES: &str = "
Examples:
  tailcut route --listen 10.0.0.1:8000 --server 10.0.0.2:8000+16 --server 10.0.0.3:8000+16
  tailcut route --listen 10.0.0.1:8000 --policy jbsq:3 --server 10.0.0.2:8000 --control /run/tailcut.sock
  tailcut route --listen 10.0.0.1:8000 --forward keep --server-v1 10.0.0.2:8000+4

Servers behind `--forward keep` need `tailcut serve --router ADDR`.";
