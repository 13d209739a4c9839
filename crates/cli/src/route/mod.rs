//! `tailcut route`: a router between clients and servers.

mod cloner_plane;
pub(crate) mod config;
mod data_plane;
mod discover;
mod emit;
mod facts;
mod netclone;
mod roster;
mod servers;
pub(crate) mod service;

use std::iter;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use tailcut_net::clock::Clock;
use tailcut_net::datapath::{AnyDatapath, Datapath};
use tailcut_net::driver::Driver;
use tailcut_net::entropy;
use tailcut_net::keys::{LiveKeys, Source};
use tailcut_net::open::{DatapathKind, Opening};
use tailcut_net::raw::RawPort;
use tailcut_net::trace::Trace;
use tailcut_proto::policy::{self, PolicySpec};
use tailcut_proto::r2p2::{AskCookies, Prefix};
use tailcut_proto::router::{
    CookieConfig, FilterAt, Forward, OutlierConfig, Router, RouterConfig, RouterError,
};
use tailcut_proto::scheduler::Rank;
use tailcut_proto::sealed::Sealing;

use self::config::CommandLine;
use self::data_plane::{DataPlane, DataPlaneFlags, XDP_SERVERS_MAX};
use self::discover::DiscoverFlags;
use self::emit::EmitFlags;
use self::roster::{Reloaded, Roster};
use self::servers::{ServerFlags, ServerSpec};
use self::service::{Orderers, ROUTER, Service, Setup, Snapshot};
use crate::control::protocol::{Reply, Request};
use crate::control::socket::ControlSocket;
use crate::counters::{self, Counters};
use crate::distribution_file::parse_positive_ns;
use crate::life::Life;
use crate::log::RouterLog;
use crate::place::{self, Place};
use crate::serving::ServingFlags;
use crate::{keys, network, orders, output, pool_key};

/// Route requests to servers, so that none waits behind another while a server is free
///
/// Takes the first packet of each request, places it on a server, and holds it while all are busy.
/// Replies go from the server to the client directly. Prints `listening 127.0.0.1:8000` when it is
/// ready. SIGHUP reads the files again and resolves the servers' names, and changes all or nothing.
/// SIGINT or SIGTERM drains it and ends it, with its counters on standard error.
#[derive(Debug, clap::Args)]
#[command(after_help = after_help())]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigFlags,
    /// Address to route at; port 0 takes a free one, and `systemd` the socket that a socket unit
    /// passes
    #[arg(long, value_name = "ADDR", required_unless_present_any = ["config", "config_example"])]
    listen: Option<String>,
    /// What carries requests and replies
    #[arg(long, value_name = "NAME", default_value = "r2p2")]
    transport: RoutedTransport,
    #[arg(long, value_name = "POLICY")]
    #[arg(help = format!("Where requests go: {} [default: jbsq:auto, and netclone of that transport]", policy::grammar("or")))]
    policy: Option<PolicySpec>,
    #[command(flatten)]
    servers: ServerFlags,
    #[command(flatten)]
    discover: DiscoverFlags,
    /// A router before this one: it may place requests here, and is told what the servers have
    /// together. Port 0 stands for all ports of its host, which a router with several threads
    /// needs. May be repeated
    #[arg(long, value_name = "ADDR")]
    upstream: Vec<String>,
    /// How a request is sent on
    #[arg(long, value_name = "MODE", default_value = "annotate")]
    forward: ForwardMode,
    /// Where the slower of two replies to a cloned request is dropped
    #[arg(long, value_name = "WHERE", default_value = "client")]
    filter: FilterPlace,
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
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = parse_positive_ns)]
    probe_interval: u64,
    /// How long a server may leave probes unanswered before it is taken out of service. One that
    /// has paused for longer gets an eighth more than its pause, and all get 200 ms when more than
    /// half of them are silent. A NetClone server may leave requests unanswered for this long
    /// [default: 24ms, and 1s over netclone]
    #[arg(long, value_name = "TIME", value_parser = parse_positive_ns)]
    silent_after: Option<u64>,
    /// Take a server out of service for a while if it is this many times slower than the others; 0
    /// for never
    #[arg(long, value_name = "N", default_value_t = RouterConfig::default().outliers.factor)]
    slow_factor: u32,
    /// How long a version 1 request counts as outstanding without feedback; longer than the longest
    /// service
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_positive_ns)]
    lease: u64,
    /// Longest that the network carries a datagram: retries of requests that may be older than the
    /// router are refused
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_positive_ns)]
    transit: u64,
    /// Accept only sealed packets, with the routers' keys in this file, which open no payload, and
    /// which is read again when it changes; `tailcut keys` makes them
    #[arg(long, value_name = "FILE")]
    seal: Option<PathBuf>,
    /// When clients must show by a cookie that they receive at their addresses before anything is
    /// done for them: never, under-load (while requests are held, and always for those of several
    /// packets) or always; those of trusted networks never
    #[arg(long, value_name = "WHEN", default_value = "never", value_parser = AskCookies::from_str)]
    cookies: AskCookies,
    /// Network whose addresses cannot be forged, besides loopback: its clients need no cookies. May
    /// be repeated
    #[arg(long, value_name = "PREFIX")]
    trust: Vec<Prefix>,
    /// File with 32 hex digits, that of the servers: a client then needs one cookie for all of them
    #[arg(long, value_name = "FILE")]
    pool_key_file: Option<PathBuf>,
    #[command(flatten)]
    dataplane: DataPlaneFlags,
    #[command(flatten)]
    emit: EmitFlags,
    #[command(flatten)]
    serving: ServingFlags,
}

/// The configuration file.
#[derive(Clone, Debug, clap::Args)]
struct ConfigFlags {
    /// Take flags from a TOML file: each is a key there, and one on the command line goes before
    /// it. SIGHUP and `tailcut control PATH reload` read it again
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the flags and the file, resolve the servers' names, and end: nothing is opened
    #[arg(long)]
    check: bool,
    /// Print a file with all keys, their defaults and what they mean, and end
    #[arg(long)]
    config_example: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ForwardMode {
    /// With the client as the source, by raw sockets: needs CAP_NET_RAW, and serves version 1
    /// clients
    Keep,
    /// From the router, with the client written into the packet: works everywhere
    Annotate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RoutedTransport {
    /// R2P2 over UDP
    R2p2,
    /// NetClone's published format over UDP: the router is its switch
    #[value(name = "netclone")]
    NetClone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FilterPlace {
    /// At the client: replies go there directly
    Client,
    /// Here: replies of one packet come back through the router. Needs --forward keep, and servers
    /// that know it by --router
    Router,
}

impl Args {
    /// Address that it is to listen at.
    fn listen(&self) -> Result<&str> {
        self.listen
            .as_deref()
            .context("no address to route at; name one by --listen, or by the key listen")
    }

    /// Forwarding of requests by this data plane.
    fn forward_by(&self, plane: DataPlane) -> Forward {
        match (self.forward, plane) {
            (ForwardMode::Keep, _) | (_, DataPlane::Xdp) => Forward::Keep,
            (ForwardMode::Annotate, DataPlane::Sockets) => Forward::Annotate,
        }
    }

    /// As far as can be told before the data plane has been tried.
    fn forward(&self) -> Forward {
        self.forward_by(self.dataplane.dataplane)
    }

    /// Refuses what does not go together, and what no router can be made of, before anything is
    /// opened; returns the servers that are named.
    fn check(&self) -> Result<Vec<ServerSpec>> {
        self.serving.check()?;
        let listen = self.listen()?;
        let listen = if place::is_passed(listen) { None } else { Some(network::resolve(listen)?) };
        if self.transport == RoutedTransport::NetClone {
            return netclone::check(self, listen);
        }
        if self.filter == FilterPlace::Router && self.forward() != Forward::Keep {
            bail!(
                "replies come back through a router that keeps the client as the source: take --forward keep, or leave --filter out"
            );
        }
        if self.serving.threads > 1 {
            check_threads(self)?;
        }
        self.dataplane.check(self, listen)?;
        if self.serving.datapath.is_some() && self.dataplane.dataplane == DataPlane::Xdp {
            bail!("--dataplane xdp has the interface: leave --datapath out");
        }
        if self.cookies != AskCookies::Never && self.dataplane.dataplane == DataPlane::Xdp {
            bail!("the XDP program knows no cookies: leave --dataplane or --cookies out");
        }
        let servers = self.servers.resolve(listen)?;
        let is_told = self.control.is_some() || !self.discover.discover.is_empty();
        if servers.is_empty() && !is_told {
            bail!(
                "no server to route to; name one by --server, have them found by --discover, or add some later through --control PATH"
            );
        }
        let is_ranked =
            |server: &ServerSpec| server.rank(self.servers.zone.as_deref()) != Rank::default();
        if self.dataplane.dataplane == DataPlane::Xdp && servers.iter().any(is_ranked) {
            bail!("--dataplane xdp knows neither weights nor zones");
        }
        let keys = self.seal.as_deref().map(keys::look).transpose()?.flatten();
        let seal = keys.map(|keys| Sealing::new(Arc::new(keys), 0));
        let by = self.dataplane.widest();
        let config = router_config(self, (&servers, by), (seal, cookie_config(self)?))?;
        Router::new(0, config).map_err(name_option)?;
        Ok(servers)
    }
}

pub(crate) fn run(args: &Args, line: &CommandLine) -> Result<()> {
    if args.config.config_example {
        return output::print(&line.example());
    }
    let servers = args.check()?;
    if args.config.check {
        let sources = args.discover.discover.len();
        return output::print(&format!(
            "sound: {} servers are named, and {sources} sources of more\n",
            servers.len()
        ));
    }
    if args.emit.emit(args)? {
        return Ok(());
    }
    if args.transport == RoutedTransport::NetClone {
        return netclone::run(args);
    }
    let mut trace = args.serving.trace.create()?;
    let keys = args.seal.as_deref().map(keys::of_router).transpose()?;
    let Opened { mut services, roster, _control } = open(args, line, keys.as_ref())?;
    if let Some(trace) = &mut trace {
        trace.watch(&services[0].driver);
    }
    let admin = args.serving.admin.bind()?;
    for plane in services.iter_mut().filter_map(|service| service.plane.as_mut()) {
        args.dataplane.settle(plane);
    }
    let wakers = services.iter().map(|service| service.driver.waker()).collect();
    let lives = Life::of_loops(args.serving.life, wakers);
    let listen = services[0].setup.listen;
    let traces = iter::once(trace).chain(iter::repeat_with(|| None));
    let loops = services.into_iter().zip(lives).zip(traces);
    let mut loops: Vec<Loop> =
        loops.map(|((service, life), trace)| Loop { service, life, trace }).collect();
    let first = &loops[0].life;
    let reloaded = roster.clone();
    let reload = move || {
        // It has told what is wrong.
        let _ = reloaded.reload();
        keys::reload(keys.as_ref());
    };
    first.heed_signals(first.wake(), reload)?;
    output::print(&format!("listening {listen}\n"))?;
    admin.start(move || Ok(Snapshot::ask(roster.orderers())?.reading(&roster.facts())))?;
    first.announce_ready();
    first.loops().run(&mut loops, Loop::run)?;
    eprint!("{}", report(&loops));
    loops[0].life.end("requests are held, or not known to be concluded")
}

/// The counters of all threads together, and each one's share of the requests.
fn report(loops: &[Loop]) -> String {
    let (mut counters, mut shares) = (Counters::new(), Vec::new());
    for Loop { service, .. } in loops {
        counters::add(&mut counters, &service.counters());
        let received = service.driver.node(ROUTER).metrics().received;
        shares.push(vec![format!("  {}", service.index), received.to_string()]);
    }
    let shares = if shares.len() > 1 {
        format!("packets by thread:\n{}", output::table(&shares, 1))
    } else {
        String::new()
    };
    format!("routed:\n{}{shares}", counters::lines(&counters))
}

/// A router on its thread.
struct Loop {
    service: Service,
    life: Life,
    trace: Option<Trace>,
}

impl Loop {
    fn run(&mut self) -> Result<()> {
        let Self { service, life, trace } = self;
        let mut log = RouterLog::new(service.index);
        loop {
            let turn = service.turn(trace)?;
            let is_draining = life.is_draining();
            service.follow(turn, is_draining);
            if is_draining {
                service.driver.node_mut(ROUTER).close();
            }
            if life.is_over(turn.now, || !service.driver.node(ROUTER).is_idle()) {
                // At the limit of the drain something may be held: who waits for it is told.
                while service.driver.node_mut(ROUTER).refuse_held(turn.now) {
                    service.turn(trace)?;
                }
                service.driver.flush_all(turn.now);
                return Ok(());
            }
            let look_at = log.look(&service.driver, service.front.as_ref(), turn);
            let look_at = look_at.into_iter().chain(service.look_at()).chain(life.look_at()).min();
            service.wait(look_at)?;
        }
    }
}

/// A router that is ready to run, and what gives it orders.
struct Opened {
    /// Services of the threads, one of each.
    services: Vec<Service>,
    roster: Roster,
    /// Its file goes with it.
    _control: Option<ControlSocket>,
}

fn open(args: &Args, line: &CommandLine, keys: Option<&Source>) -> Result<Opened> {
    let doors = Door::open(args)?;
    let listen = doors[0].listen();
    let mut plane = args.dataplane.open(args, listen)?;
    let by = if plane.is_some() { DataPlane::Xdp } else { DataPlane::Sockets };
    let forward = args.forward_by(by);
    let named = args.servers.resolve(Some(listen))?;
    let started_at = Clock.now();
    let setup = Setup { listen, policy: policy(args), forward, started_at };
    let (mut services, mut orderers) = (Vec::new(), Vec::new());
    let name = entropy::seed().context("cannot draw a name")?;
    let cookies = cookie_config(args)?;
    for (index, Door { front, mut port }) in doors.into_iter().enumerate() {
        let mut raw = match forward {
            Forward::Keep if by == DataPlane::Sockets => Some(
                RawPort::open(listen.ip())
                    .map_err(|error| anyhow!("{error}; --forward annotate works without"))?,
            ),
            Forward::Keep | Forward::Annotate => None,
        };
        let wait = args.serving.polling.wait();
        let mut driver = Driver::new(wait).context("cannot set up polling")?;
        let mut config = router_config(args, (&named, by), (keys.map(sealing), cookies.clone()))?;
        if let Some(seal) = &mut config.seal {
            // Clients know the threads by one address.
            let member = u8::try_from(index).context("a sealed router has at most 256 threads")?;
            (seal.name, seal.member) = (Some(name), member);
        }
        let mut router = Router::new(started_at, config).map_err(name_option)?;
        if let Some(plane) = &mut plane {
            raw = plane.share(started_at, &mut router);
            port = args.dataplane.put_behind(plane, port)?;
        }
        let node = driver.add(router, port, raw);
        if let Some(keys) = keys {
            driver.watch_keys(node, keys.into(), None);
        }
        let (orderer, orders) = orders::channel(driver.waker());
        let (named, retired) = (named.clone(), Vec::new());
        let zone = None;
        let mut service = Service {
            index,
            driver,
            front,
            // Of one thread: those of several have none.
            plane: plane.take(),
            setup,
            orders,
            named,
            zone,
            retired,
            retire_at: 0,
        };
        service.rank(started_at, args.servers.zone.clone());
        services.push(service);
        orderers.push(orderer);
    }
    let roster = Roster::start(Orderers::new(orderers), (listen, by), line.clone(), named)?;
    let control = args.control.as_deref();
    let answered_by = roster.clone();
    let keys = keys.map(Source::keys);
    let answer = move |request| answer(request, setup, (&answered_by, keys.as_ref()));
    let control = control.map(|path| ControlSocket::open(path, answer)).transpose()?;
    Ok(Opened { services, roster, _control: control })
}

/// Does what is asked at the control socket.
fn answer(
    request: Request,
    setup: Setup,
    (roster, keys): (&Roster, Option<&LiveKeys>),
) -> Result<Reply> {
    match request {
        Request::Status => {
            let snapshot = Snapshot::ask(roster.orderers())?;
            let seal = keys.map(|keys| keys::status(&keys.current()));
            Ok(Reply::Status(Box::new(snapshot.status(setup, &roster.facts(), seal))))
        }
        Request::Reload => Ok(match roster.reload() {
            Ok(Reloaded { added, gone, changed }) => Reply::Reloaded { added, gone, changed },
            Err(error) => Reply::Error(format!("{error:#}; everything stays as it is")),
        }),
        request => roster.orderers().change(request),
    }
}

/// Ports of a router of one thread.
///
/// With several threads each takes the requests of its sessions at a socket of the shared address,
/// which sends nothing. What it says to servers leaves from a port of its own, so that their
/// feedback comes back to it, and they count it as a router of its own.
struct Door {
    front: Option<AnyDatapath>,
    port: AnyDatapath,
}

impl Door {
    /// One for each thread.
    fn open(args: &Args) -> Result<Vec<Self>> {
        let count = args.serving.threads;
        if count == 1 {
            return Ok(vec![Self { front: None, port: open_port(args)? }]);
        }
        let listen = network::resolve(args.listen()?)?;
        let fronts = Opening::default().bind_group(listen, count.into());
        let fronts = fronts.with_context(|| format!("cannot listen at {listen}"))?;
        let open = |front: AnyDatapath| {
            let own = SocketAddr::new(listen.ip(), 0);
            let port = Opening::default().bind(own).context("cannot open a port to servers")?;
            Ok(Self { front: Some(front), port })
        };
        fronts.into_iter().map(open).collect()
    }

    fn listen(&self) -> SocketAddr {
        self.front.as_ref().unwrap_or(&self.port).local_address()
    }
}

/// The one port of a loop.
fn open_port(args: &Args) -> Result<AnyDatapath> {
    let mut places = Place::read(args.listen()?, 1)?;
    let (Some(place), true) = (places.pop(), places.is_empty()) else {
        bail!("a router has one port, and systemd has passed several sockets");
    };
    let datapath = args.serving.datapath.map_or(DatapathKind::Udp, DatapathKind::Xdp);
    place.open(&Opening { datapath, ..Opening::default() })
}

/// Several threads have several ports towards servers, and sockets of their own making.
fn check_threads(args: &Args) -> Result<()> {
    if args.forward() == Forward::Keep {
        bail!(
            "with the client as the source servers report to one port, which is one thread's: \
             leave --threads out, or take --forward annotate"
        );
    }
    if place::is_passed(args.listen()?) {
        bail!("the threads' sockets are made together: name an address instead of systemd");
    }
    Ok(())
}

fn router_config(
    args: &Args,
    (servers, by): (&[ServerSpec], DataPlane),
    (seal, cookies): (Option<Sealing>, CookieConfig),
) -> Result<RouterConfig> {
    let mut upstreams = Vec::new();
    for name in &args.upstream {
        upstreams.extend(network::resolve_range(name)?);
    }
    let silent_ns = args.silent_after.unwrap_or(RouterConfig::default().silent_ns);
    Ok(RouterConfig {
        policy: policy(args),
        forward: args.forward_by(by),
        filter: match args.filter {
            FilterPlace::Client => FilterAt::Client,
            FilterPlace::Router => FilterAt::Router,
        },
        servers: servers.iter().map(ServerSpec::config).collect(),
        upstreams,
        queue_len_max: args.queue,
        hold_ns_max: args.hold,
        probe_interval_ns: args.probe_interval,
        silent_ns,
        silent_ns_max: RouterConfig::default().silent_ns_max.max(silent_ns),
        outliers: OutlierConfig { factor: args.slow_factor, ..OutlierConfig::DEFAULT },
        lease_ns: args.lease,
        transit_ns_max: args.transit,
        servers_max: match by {
            DataPlane::Sockets => RouterConfig::default().servers_max,
            DataPlane::Xdp => XDP_SERVERS_MAX,
        },
        seed: entropy::seed().context("cannot draw a seed")?,
        seal,
        cookies,
        ..RouterConfig::default()
    })
}

/// The cookies of a router's threads, which clients know by one address.
fn cookie_config(args: &Args) -> Result<CookieConfig> {
    let (now, unix_ns) = Clock.both();
    let own_key = || entropy::secret().context("cannot draw a secret");
    let key = args.pool_key_file.as_deref().map_or_else(own_key, pool_key::read)?;
    let mut cookies = CookieConfig {
        ask: args.cookies,
        key: Some(key),
        clock_ns: unix_ns.saturating_sub(now),
        ..CookieConfig::default()
    };
    cookies.trusted.extend_from_slice(&args.trust);
    Ok(cookies)
}

/// The seal of a router, by this host's clock.
fn sealing(keys: &Source) -> Sealing {
    let (now, unix_ns) = Clock.both();
    Sealing::new(keys.keys().current(), unix_ns.saturating_sub(now))
}

fn policy(args: &Args) -> PolicySpec {
    args.policy.unwrap_or(RouterConfig::default().policy)
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
  tailcut route --listen 10.0.0.1:1000 --transport netclone --server 10.0.0.2:1000 --server 10.0.0.3:1000
  tailcut route --listen 10.0.0.1:8000 --forward keep --server-v1 10.0.0.2:8000+4
  tailcut route --config-example > /etc/tailcut/route.toml
  tailcut route --config /etc/tailcut/route.toml --check

Servers behind `--forward keep` need `tailcut serve --router ADDR`.";
