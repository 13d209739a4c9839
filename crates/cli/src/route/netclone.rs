//! `tailcut route --transport netclone`: NetClone's switch as a process, one loop with the counters
//! of a [`Switch`], and, where it is asked for, a program in the kernel before it. It has no state
//! that outlives it.

use std::net::SocketAddr;
use std::sync::mpsc::SyncSender;

use anyhow::{Context, Result, anyhow, bail};
use tailcut_net::clock::Clock;
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::Driver;
use tailcut_net::entropy;
use tailcut_net::log::DriverLog;
use tailcut_proto::netclone::{Fallback, Switch, SwitchConfig, SwitchMetrics, SwitchServer};
use tailcut_proto::node::Time;
use tailcut_proto::r2p2::AskCookies;
use tailcut_proto::router::{RouterConfig, Speaks};
use tailcut_proto::scheduler::Rank;

use super::cloner_plane::ClonerPlane;
use super::servers::{ServerSpec, check_family};
use super::{Args, FilterPlace, ForwardMode};
use crate::admin::Reading;
use crate::admin::text::{Page, seconds};
use crate::control::protocol::{self, Reply, Request};
use crate::control::socket::ControlSocket;
use crate::counters::{self, Counters, PortSnapshot};
use crate::life::Life;
use crate::orders::{self, Orderer, Orders};
use crate::output;

/// A switch at one moment.
#[derive(Debug)]
struct Snapshot {
    metrics: SwitchMetrics,
    port: Option<PortSnapshot>,
    servers: Vec<SwitchServer>,
    /// Counters of the program in the kernel, where there is one.
    plane: Counters,
    uptime_ns: u64,
    is_draining: bool,
}

/// Order of another thread to the loop.
enum Order {
    /// To fill this in, and give it back.
    Snapshot(Box<Snapshot>, SyncSender<Box<Snapshot>>),
    /// To change one server.
    Change(Request, SyncSender<Reply>),
}

/// Settings that do not change while a switch runs.
#[derive(Clone, Copy, Debug)]
struct Setup {
    listen: SocketAddr,
    fallback: Fallback,
}

/// The loop.
struct Loop {
    driver: Driver<Switch>,
    /// The program before it, where there is one.
    plane: Option<ClonerPlane>,
    orders: Orders<Order>,
    life: Life,
    setup: Setup,
    started_at: Time,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let port = super::open_port(args)?;
    let listen = port.local_address();
    let started_at = Clock.now();
    let config = config(args, Some(listen))?;
    let setup = Setup { listen, fallback: config.fallback };
    let plane = args.dataplane.open_cloner(&config, listen)?;
    let switch = Switch::new(started_at, config)?;
    let mut driver = Driver::new(args.serving.polling.wait()).context("cannot set up polling")?;
    driver.add(switch, port, None);
    let (orderer, orders) = orders::channel(driver.waker());
    let admin = args.serving.admin.bind()?;
    let life = Life::of_loops(args.serving.life, vec![driver.waker()]).remove(0);
    life.heed_signals(life.wake(), || eprintln!("tailcut: {NO_RELOAD}"))?;
    let asked = orderer.clone();
    let answer = move |request| answer(request, setup, &asked);
    let control = args.control.as_deref();
    let _control = control.map(|path| ControlSocket::open(path, answer)).transpose()?;
    output::print(&format!("listening {listen}\n"))?;
    admin.start(move || Ok(Snapshot::ask(&orderer)?.reading()))?;
    life.announce_ready();
    let mut switch = Loop { driver, plane, orders, life, setup, started_at };
    switch.serve()?;
    let mut snapshot = Snapshot::new();
    switch.fill(switch.started_at, &mut snapshot);
    eprint!("routed:\n{}{}", counters::lines(&snapshot.counters()), snapshot.shares());
    switch.life.end("datagrams wait to be sent")
}

/// Does what is asked at the control socket.
fn answer(request: Request, setup: Setup, orderer: &Orderer<Order>) -> Result<Reply> {
    match request {
        Request::Status => Ok(Reply::Status(Box::new(Snapshot::ask(orderer)?.status(setup)))),
        Request::Reload => Ok(Reply::Error(NO_RELOAD.to_owned())),
        request => orderer.ask(|reply| Order::Change(request, reply)),
    }
}

/// Refuses what the format, or a switch, cannot do; returns the servers that are named.
pub(super) fn check(args: &Args, listen: Option<SocketAddr>) -> Result<Vec<ServerSpec>> {
    check_flags(args)?;
    args.dataplane.check_cloner(listen)?;
    Switch::new(0, config(args, listen)?)?;
    args.servers.resolve(listen)
}

fn check_flags(args: &Args) -> Result<()> {
    let is_plain = args.serving.threads == 1
        && args.serving.trace.trace.is_none()
        && matches!(args.forward, ForwardMode::Annotate);
    if !is_plain {
        bail!(
            "--threads, --trace and --forward are R2P2's; leave them out, or take --transport r2p2"
        );
    }
    if args.cookies != AskCookies::Never {
        bail!("NetClone's format has no cookies: leave --cookies out, or take --transport r2p2");
    }
    if args.seal.is_some() {
        bail!("NetClone's format has no sealed form: leave --seal out, or take --transport r2p2");
    }
    let default = RouterConfig::default();
    let has_no_queue = args.queue == default.queue_len_max
        && args.hold == default.hold_ns_max
        && args.lease == default.lease_ns
        && args.transit == default.transit_ns_max;
    if !has_no_queue {
        bail!(
            "a NetClone switch holds nothing and keeps no slots: leave --queue, --hold, --lease and --transit out, or take --transport r2p2"
        );
    }
    if !args.discover.discover.is_empty() || args.servers.zone.is_some() {
        bail!("--discover and --zone are R2P2's; leave them out, or take --transport r2p2");
    }
    let knows_answers_alone = args.probe_interval == default.probe_interval_ns
        && args.slow_factor == default.outliers.factor
        && args.filter == FilterPlace::Client
        && args.upstream.is_empty();
    if !knows_answers_alone {
        bail!(
            "a NetClone switch learns from replies alone, and filters them all: leave --probe-interval, --slow-factor, --filter and --upstream out, or take --transport r2p2"
        );
    }
    Ok(())
}

pub(super) fn config(args: &Args, listen: Option<SocketAddr>) -> Result<SwitchConfig> {
    let named = args.servers.resolve(listen)?;
    if named.iter().any(|server| server.speaks == Speaks::V1) {
        bail!("--server-v1 is R2P2's; take --server");
    }
    if named.iter().any(|server| server.rank(None) != Rank::default()) {
        bail!("weights are R2P2's; leave them out, or take --transport r2p2");
    }
    let fallback = match args.policy.map(|policy| policy.to_string()).as_deref() {
        None | Some("netclone") => Fallback::First,
        Some("netclone+racksched") => Fallback::Shorter,
        Some(other) => {
            return Err(anyhow!(
                "a NetClone switch has --policy netclone or netclone+racksched, not {other}"
            ));
        }
    };
    let silent_ns = args.silent_after.unwrap_or(SwitchConfig::default().silent_ns);
    Ok(SwitchConfig {
        servers: named.iter().map(|server| server.addr).collect(),
        fallback,
        silent_ns,
        seed: entropy::seed().context("cannot draw a seed")?,
        ..SwitchConfig::default()
    })
}

impl Loop {
    fn serve(&mut self) -> Result<()> {
        let mut log = DriverLog::default();
        loop {
            if let Some(plane) = &mut self.plane {
                // Before the switch looks who has been silent for too long.
                plane.look(Clock.now(), self.driver.node_mut(SWITCH));
            }
            let turn = self.driver.turn_with(|_, _, _| {})?;
            while let Some(order) = self.orders.poll() {
                self.handle(turn.now, order);
            }
            if self.life.is_over(turn.now, || !self.driver.node(SWITCH).is_idle()) {
                return Ok(());
            }
            let look_at = log.look(&self.driver, turn, |_, _| []);
            let plane_at = self.plane.as_ref().map(ClonerPlane::look_at);
            let look_at = look_at.into_iter().chain(self.life.look_at()).chain(plane_at).min();
            self.driver.wait(None, look_at)?;
        }
    }

    /// Carries out an order. A thread that has hung up gets no answer.
    fn handle(&mut self, now: Time, order: Order) {
        match order {
            Order::Snapshot(mut snapshot, reply) => {
                self.fill(now, &mut snapshot);
                snapshot.is_draining = self.life.is_draining();
                let _ = reply.try_send(snapshot);
            }
            Order::Change(request, reply) => {
                let changed = self.change(request);
                let answer = changed
                    .map_or_else(|error| Reply::Error(format!("{error:#}")), |()| Reply::Done {});
                let _ = reply.try_send(answer);
            }
        }
    }

    fn change(&mut self, request: Request) -> Result<()> {
        let switch = self.driver.node_mut(SWITCH);
        match request {
            Request::Status | Request::Reload => {}
            Request::Add { speaks: protocol::Speaks::V1, .. } => {
                bail!("--v1 is R2P2's: leave it out")
            }
            Request::Add { address, .. } => {
                check_family(self.setup.listen, address)?;
                let id = switch.add_server(address)?;
                self.plane.as_mut().map_or(Ok(()), |plane| plane.replace(id, address))?;
            }
            Request::Remove { address } => switch.remove_server(address)?,
            Request::Drain { address } => switch.drain_server(address)?,
            Request::Resume { address } => switch.resume_server(address)?,
        }
        if let Some(plane) = &mut self.plane {
            plane.look_soon();
            plane.look(Clock.now(), self.driver.node_mut(SWITCH));
        }
        Ok(())
    }

    fn fill(&self, now: Time, snapshot: &mut Snapshot) {
        let switch = self.driver.node(SWITCH);
        snapshot.metrics = switch.metrics();
        snapshot.port = Some(PortSnapshot::of(self.driver.port(SWITCH)));
        snapshot.servers.clear();
        snapshot.servers.extend(switch.servers().filter(|server| !server.is_removed));
        snapshot.plane = self.plane.iter().flat_map(ClonerPlane::counters).collect();
        snapshot.uptime_ns = now.saturating_sub(self.started_at);
    }
}

impl Snapshot {
    fn new() -> Self {
        Self {
            metrics: SwitchMetrics::default(),
            port: None,
            // So that the loop need not make room.
            servers: Vec::with_capacity(tailcut_wire::netclone::SERVERS_MAX as usize),
            plane: Counters::new(),
            uptime_ns: 0,
            is_draining: false,
        }
    }

    /// Asks the loop for one.
    fn ask(orderer: &Orderer<Order>) -> Result<Box<Self>> {
        orderer.ask(|reply| Order::Snapshot(Box::new(Self::new()), reply))
    }

    fn counters(&self) -> Counters {
        let mut counters = counters::of_switch(&self.metrics);
        counters.extend(self.port.iter().flat_map(PortSnapshot::counters));
        counters.extend(self.plane.iter().cloned());
        counters
    }

    /// For `tailcut control`.
    fn status(&self, setup: Setup) -> protocol::Status {
        let policy = match setup.fallback {
            Fallback::First => "netclone",
            Fallback::Shorter => "netclone+racksched",
        };
        protocol::Status {
            schema: protocol::STATUS_SCHEMA.to_owned(),
            config: protocol::Config {
                listen: setup.listen,
                policy: policy.to_owned(),
                forward: "annotate".to_owned(),
            },
            uptime_ns: self.uptime_ns,
            bound: None,
            queue_len: 0,
            table_len: 0,
            seal: None,
            reloads: protocol::Reloads { done: 0, refused: 0, refusal: None },
            discovery: Vec::new(),
            servers: self.servers.iter().map(server_status).collect(),
            counters: self.counters().into_iter().collect(),
        }
    }

    /// Table of the requests to each server, and of its answers.
    fn shares(&self) -> String {
        let row = |server: &SwitchServer| {
            vec![
                format!("  {}", server.addr),
                server.placed.to_string(),
                server.answered.to_string(),
            ]
        };
        let rows: Vec<_> = self.servers.iter().map(row).collect();
        format!("requests to each server, and its answers:\n{}", output::table(&rows, 1))
    }

    fn reading(&self) -> Reading {
        let is_in_service = |server: &&SwitchServer| !server.is_silent && !server.is_drained;
        let in_service = self.servers.iter().filter(is_in_service).count();
        let unready = match (self.is_draining, in_service) {
            (true, _) => Some("draining"),
            (false, 0) => Some("no server in service"),
            _ => None,
        };
        let mut page = Page::new("tailcut_route");
        page.gauge("uptime_seconds", "Time since the start.").value(seconds(self.uptime_ns));
        page.gauge("draining", "1 while it takes nothing new.").value(u8::from(self.is_draining));
        page.gauge("servers_in_service", "Servers that get requests.").value(in_service);
        let mut loads = page.gauge("server_load_requests", "Waiting there, as it reported last.");
        for server in &self.servers {
            loads.sample(&[("server", &server.addr.to_string())], f64::from(server.load));
        }
        page.counters(&self.counters());
        Reading { unready, metrics: page.end() }
    }
}

/// Status of a server: what waits there stands for what is outstanding, of which the format tells
/// nothing.
fn server_status(server: &SwitchServer) -> protocol::Server {
    protocol::Server {
        address: server.addr,
        speaks: protocol::Speaks::Extension,
        state: match (server.is_drained, server.is_silent) {
            (true, _) => protocol::State::Draining,
            (_, true) => protocol::State::Silent,
            _ => protocol::State::InService,
        },
        outstanding: server.load,
        placed: server.placed,
        concluded: server.answered,
        round_trip_us: None,
        service_us: None,
        weight: 1,
        is_near: true,
    }
}

const NO_RELOAD: &str = "the servers of a NetClone switch change by `tailcut control PATH remove` and `add`, not from files";

/// The driver's only node.
const SWITCH: usize = 0;
