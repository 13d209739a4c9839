//! The router of a thread, its driver, and what other threads ask of it: each order goes to the
//! routers of all threads, and their answers are put together.
//!
//! | order | from | the loop |
//! |---|---|---|
//! | snapshot | the control socket, the admin port | copies its counters into what it is given |
//! | change | the control socket | changes one server |
//! | reload | SIGHUP | adds and retires servers |
//!
//! A server that a reload no longer names is drained, and removed when it has nothing outstanding,
//! or after a minute; one that speaks something else from then on comes back after that. Servers
//! that `tailcut control` has added are not a reload's to retire.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::SyncSender;

use anyhow::{Context, Result};
use tailcut_net::datapath::{AnyDatapath, Datapath};
use tailcut_net::driver::{Driver, Turn};
use tailcut_net::ebpf::router::COUNT_NAMES;
use tailcut_net::raw::RawMetrics;
use tailcut_net::trace::Trace;
use tailcut_proto::histogram::Histogram;
use tailcut_proto::node::{Node, Time};
use tailcut_proto::policy::PolicySpec;
use tailcut_proto::router::{
    Forward, Router, RouterConfig, RouterError, RouterMetrics, ServerConfig, ServerState,
    ServerStatus, Speaks,
};

use super::data_plane::{self, Plane};
use super::facts::{Facts, SourceFacts};
use super::servers::{SERVERS_MAX, ServerSpec, check_family};
use crate::admin::Reading;
use crate::admin::text::{Family, Page, seconds};
use crate::control::protocol::{self, Reply, Request};
use crate::counters::{self, Counters, PortSnapshot};
use crate::log;
use crate::orders::{Orderer, Orders};

/// Order of another thread to the loop.
pub(crate) enum Order {
    /// To fill this in, and give it back.
    Snapshot(Box<Snapshot>, SyncSender<Box<Snapshot>>),
    /// To change one server.
    Change(Request, SyncSender<Reply>),
    /// To serve these and no others, with these limits; answered with how many have come and gone.
    Reload(Box<Plan>, SyncSender<Result<(usize, usize)>>),
}

/// Settings of a router after a reload.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The servers that flags, files and sources name.
    pub(super) servers: Vec<ServerSpec>,
    /// The router's own zone.
    pub(super) zone: Option<String>,
    /// The limits; of these [`Router::tune`] takes what may change.
    pub(super) limits: RouterConfig,
}

/// A server that is to go when it has nothing outstanding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retired {
    addr: SocketAddr,
    /// Time at which it goes in any case.
    leaves_at: Time,
    /// Successor in its place: the same server, spoken to in another way.
    successor: Option<ServerConfig>,
}

/// The routers of all threads, as other threads order from them.
#[derive(Clone)]
pub(crate) struct Orderers(Vec<Orderer<Order>>);

/// A router at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Counters of each thread.
    parts: Vec<Part>,
    servers: Vec<ServerStatus>,
    queue_len: usize,
    table_len: usize,
    bound: Option<u32>,
    hold_times: Histogram,
    uptime_ns: u64,
    is_draining: bool,
}

/// Counters of the router of one thread.
#[derive(Clone, Copy, Debug)]
struct Part {
    metrics: RouterMetrics,
    port: PortSnapshot,
    /// Counters of the socket that only hears, where there is one.
    front: Option<PortSnapshot>,
    raw: Option<RawMetrics>,
    /// Counters of the program before the router, where there is one.
    plane: Option<[u64; COUNT_NAMES.len()]>,
}

/// Settings that do not change while a router runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(super) listen: SocketAddr,
    pub(super) policy: PolicySpec,
    pub(super) forward: Forward,
    pub(super) started_at: Time,
}

/// The router of one thread.
pub(super) struct Service {
    /// Number of the thread.
    pub(super) index: usize,
    pub(super) driver: Driver<Router>,
    /// Port at which the requests of its sessions arrive, if not the driver's.
    pub(super) front: Option<AnyDatapath>,
    /// Data plane that places requests before the router, where there is one.
    pub(super) plane: Option<Plane>,
    pub(super) setup: Setup,
    pub(super) orders: Orders<Order>,
    /// Servers that flags and file have named last.
    pub(super) named: Vec<ServerSpec>,
    /// The router's own zone.
    pub(super) zone: Option<String>,
    /// Those that are to go.
    pub(super) retired: Vec<Retired>,
    /// Time of the next look at servers that are to go.
    pub(super) retire_at: Time,
}

impl Service {
    /// A turn of its driver, watched where there is a trace.
    #[inline]
    pub(super) fn turn(&mut self, trace: &mut Option<Trace>) -> io::Result<Turn> {
        let Self { driver, front, .. } = self;
        match (front, trace) {
            (None, None) => driver.turn(),
            (None, Some(trace)) => {
                let turn = driver.turn_observed(trace, |_, _, _| ())?;
                trace.look(driver, turn, |node| log::decisions(&node.metrics()));
                Ok(turn)
            }
            (Some(front), _) => {
                let mut health = Ok(0);
                let turn = driver.turn_with(|_, router, now| {
                    health =
                        front.recv_burst(|path, bytes| router.handle_datagram(now, path, bytes));
                })?;
                Ok(Turn { received: turn.received + health?, ..turn })
            }
        }
    }

    /// Passes the time until there is something to do, at most until `until`.
    #[inline]
    pub(super) fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        self.driver.wait(self.front.as_ref().map(Datapath::as_fd), until)
    }

    /// Follows orders, and removes what has been drained for good; to call after each turn.
    #[inline]
    pub(super) fn follow(&mut self, turn: Turn, is_draining: bool) {
        while let Some(order) = self.orders.poll() {
            self.handle(turn.now, order, is_draining);
            self.driver.flush(turn.now);
        }
        if !self.retired.is_empty() && turn.now >= self.retire_at {
            self.remove_retired(turn.now);
        }
    }

    /// Time at which it wants to be called again though nothing happens.
    pub(super) fn look_at(&self) -> Option<Time> {
        (!self.retired.is_empty()).then_some(self.retire_at)
    }

    /// Carries out an order. A thread that has hung up gets no answer.
    fn handle(&mut self, now: Time, order: Order, is_draining: bool) {
        match order {
            Order::Snapshot(mut snapshot, reply) => {
                self.fill(now, &mut snapshot);
                snapshot.is_draining = is_draining;
                let _ = reply.try_send(snapshot);
            }
            Order::Change(request, reply) => {
                let changed = self.change(now, request);
                let answer = changed
                    .map_or_else(|error| Reply::Error(format!("{error:#}")), |()| Reply::Done {});
                let _ = reply.try_send(answer);
            }
            Order::Reload(plan, reply) => {
                let _ = reply.try_send(self.reload(now, *plan));
            }
        }
    }

    fn fill(&self, now: Time, snapshot: &mut Snapshot) {
        let (router, port) = (self.driver.node(ROUTER), self.driver.port(ROUTER));
        snapshot.parts.clear();
        snapshot.parts.push(Part {
            metrics: router.metrics(),
            port: PortSnapshot::of(port),
            front: self.front.as_ref().map(PortSnapshot::of),
            raw: self.driver.raw(ROUTER).map(|raw| raw.metrics()),
            plane: self.plane.as_ref().map(Plane::counts),
        });
        snapshot.servers.clear();
        snapshot.servers.extend(router.servers());
        snapshot.queue_len = router.queue_len();
        snapshot.table_len = router.table_len();
        snapshot.bound = router.bound();
        snapshot.hold_times = *router.hold_times();
        snapshot.uptime_ns = now.saturating_sub(self.setup.started_at);
    }

    /// The counters at the end.
    pub(super) fn counters(&self) -> Counters {
        let mut snapshot = Snapshot::new();
        self.fill(self.setup.started_at, &mut snapshot);
        snapshot.counters()
    }

    fn change(&mut self, now: Time, request: Request) -> Result<()> {
        let listen = self.setup.listen;
        let router = self.driver.node_mut(ROUTER);
        match request {
            Request::Status | Request::Reload => {}
            Request::Add { address, speaks } => {
                check_family(listen, address)?;
                let speaks =
                    if speaks == protocol::Speaks::V1 { Speaks::V1 } else { Speaks::Extension };
                router.add_server(now, ServerConfig { addr: address, speaks })?;
            }
            Request::Remove { address } => router.remove_server(now, address)?,
            Request::Drain { address } => router.drain_server(now, address)?,
            Request::Resume { address } => {
                router.resume_server(now, address)?;
                self.retired.retain(|retired| retired.addr != address);
            }
        }
        Ok(())
    }

    fn reload(&mut self, now: Time, plan: Plan) -> Result<(usize, usize)> {
        let Plan { servers, zone, limits } = plan;
        let router = self.driver.node_mut(ROUTER);
        let is_there = |addr| router.servers().any(|server| server.addr == addr);
        let new = servers.iter().filter(|server| !is_there(server.addr)).count();
        if router.servers().count() + new > limits.servers_max {
            return Err(RouterError::TooManyServers { limit: limits.servers_max }.into());
        }
        // From here on nothing fails.
        router.tune(&limits)?;
        let (mut added, mut gone) = (0, 0);
        for server in &servers {
            match self.named.iter().find(|named| named.addr == server.addr) {
                Some(named) if named.speaks == server.speaks => {}
                Some(_) => self.retire(now, server.addr, Some(server.config())),
                None => {
                    self.admit(now, server.config());
                    added += 1;
                }
            }
        }
        for server in std::mem::take(&mut self.named) {
            if !servers.iter().any(|named| named.addr == server.addr) {
                self.retire(now, server.addr, None);
                gone += 1;
            }
        }
        self.named = servers;
        self.rank(now, zone);
        self.retire_at = now;
        Ok((added, gone))
    }

    /// Ranks the servers as they are named.
    pub(super) fn rank(&mut self, now: Time, zone: Option<String>) {
        self.zone = zone;
        if self.plane.is_some() {
            // It places by bounds that are the same of all.
            return;
        }
        let router = self.driver.node_mut(ROUTER);
        let known: Vec<_> = router.servers().map(|server| (server.addr, server.rank)).collect();
        let mut changed = Vec::new();
        for (addr, rank) in known {
            let named = self.named.iter().find(|named| named.addr == addr);
            let wanted = named.map_or(rank, |named| named.rank(self.zone.as_deref()));
            if wanted != rank {
                changed.push((addr, wanted));
            }
        }
        if !changed.is_empty() {
            // They are there.
            let _ = router.set_ranks(now, &changed);
        }
    }

    /// Takes a server into service that is named from now on.
    fn admit(&mut self, now: Time, server: ServerConfig) {
        let router = self.driver.node_mut(ROUTER);
        if router.add_server(now, server).is_ok() {
            return;
        }
        // `tailcut control` was quicker, or it was about to go.
        let known = router.servers().find(|known| known.addr == server.addr);
        if known.is_some_and(|known| known.speaks != server.speaks) {
            return self.retire(now, server.addr, Some(server));
        }
        // It is there.
        let _ = router.resume_server(now, server.addr);
        self.retired.retain(|retired| retired.addr != server.addr);
    }

    /// Drains a server, to remove it.
    fn retire(&mut self, now: Time, addr: SocketAddr, successor: Option<ServerConfig>) {
        self.retired.retain(|retired| retired.addr != addr);
        // One that `tailcut control` has removed is gone already.
        let _ = self.driver.node_mut(ROUTER).drain_server(now, addr);
        let leaves_at = now.saturating_add(RETIRE_NS_MAX);
        self.retired.push(Retired { addr, leaves_at, successor });
    }

    fn remove_retired(&mut self, now: Time) {
        self.retire_at = now.saturating_add(RETIRE_INTERVAL_NS);
        let router = self.driver.node_mut(ROUTER);
        let mut has_changed = false;
        self.retired.retain(|&Retired { addr, leaves_at, successor }| {
            let found = router.servers().find(|server| server.addr == addr);
            let is_kept = now < leaves_at && found.is_some_and(|server| server.outstanding > 0);
            if !is_kept {
                // One that `tailcut control` has removed is gone already, and one that it has added
                // there since is its own.
                let _ = router.remove_server(now, addr);
                successor.into_iter().for_each(|server| _ = router.add_server(now, server));
                has_changed |= successor.is_some();
            }
            is_kept
        });
        if has_changed {
            let zone = self.zone.take();
            self.rank(now, zone);
        }
    }
}

impl Orderers {
    pub(super) fn new(orderers: Vec<Orderer<Order>>) -> Self {
        Self(orderers)
    }

    /// Changes one server in all loops; the answer is that of the first that does not do it.
    pub(crate) fn change(&self, request: Request) -> Result<Reply> {
        let mut answer = Reply::Done {};
        for orderer in &self.0 {
            let reply = orderer.ask(|reply| Order::Change(request, reply))?;
            if matches!(answer, Reply::Done {}) {
                answer = reply;
            }
        }
        Ok(answer)
    }

    /// Gives all loops these servers and no others; returns how many have come and gone. What one
    /// loop refuses the first does.
    pub(super) fn reload(&self, plan: &Plan) -> Result<(usize, usize)> {
        let mut changed = (0, 0);
        for orderer in &self.0 {
            changed = orderer.ask(|reply| Order::Reload(Box::new(plan.clone()), reply))??;
        }
        Ok(changed)
    }
}

impl Snapshot {
    fn new() -> Self {
        Self {
            parts: Vec::with_capacity(1),
            // So that the loop need not make room.
            servers: Vec::with_capacity(SERVERS_MAX),
            queue_len: 0,
            table_len: 0,
            bound: None,
            hold_times: Histogram::default(),
            uptime_ns: 0,
            is_draining: false,
        }
    }

    /// Asks the loops for one of all.
    pub(crate) fn ask(orderers: &Orderers) -> Result<Box<Self>> {
        let mut all: Option<Box<Self>> = None;
        for orderer in &orderers.0 {
            let empty = Box::new(Self::new());
            let one = orderer.ask(|reply| Order::Snapshot(empty, reply))?;
            match &mut all {
                Some(all) => all.add(&one),
                None => all = Some(one),
            }
        }
        all.context("there is no router")
    }

    /// Adds the router of another thread. A server is in the worst of the states that it has for
    /// any of them.
    fn add(&mut self, other: &Self) {
        self.parts.extend(&other.parts);
        for theirs in &other.servers {
            let Some(ours) = self.servers.iter_mut().find(|server| server.addr == theirs.addr)
            else {
                self.servers.push(*theirs);
                continue;
            };
            if ours.state == ServerState::InService {
                ours.state = theirs.state;
            }
            ours.outstanding += theirs.outstanding;
            ours.placed += theirs.placed;
            ours.concluded += theirs.concluded;
            ours.rtt_ns = ours.rtt_ns.or(theirs.rtt_ns);
            ours.service_ns = ours.service_ns.or(theirs.service_ns);
        }
        self.queue_len += other.queue_len;
        self.table_len += other.table_len;
        self.bound = self.bound.max(other.bound);
        self.hold_times.add(&other.hold_times);
        self.is_draining |= other.is_draining;
    }

    fn counters(&self) -> Counters {
        let mut all = Counters::new();
        for part in &self.parts {
            let mut port = part.port.counters();
            if let Some(front) = &part.front {
                counters::add(&mut port, &front.counters());
            }
            let mut counters = counters::of_router(&part.metrics);
            counters.extend(port);
            counters.extend(part.raw.iter().flat_map(counters::of_raw));
            counters.extend(part.plane.iter().flat_map(data_plane::counters));
            counters::add(&mut all, &counters);
        }
        all
    }

    /// For `tailcut control`.
    pub(super) fn status(
        &self,
        setup: Setup,
        facts: &Facts,
        seal: Option<protocol::Seal>,
    ) -> protocol::Status {
        protocol::Status {
            schema: protocol::STATUS_SCHEMA.to_owned(),
            config: protocol::Config {
                listen: setup.listen,
                policy: setup.policy.to_string(),
                forward: if setup.forward == Forward::Keep { "keep" } else { "annotate" }
                    .to_owned(),
            },
            uptime_ns: self.uptime_ns,
            bound: self.bound,
            queue_len: self.queue_len,
            table_len: self.table_len,
            reloads: protocol::Reloads {
                done: facts.reloads,
                refused: facts.reloads_refused,
                refusal: facts.refusal.clone(),
            },
            seal,
            discovery: facts.sources.iter().map(SourceFacts::status).collect(),
            servers: self.servers.iter().map(server_status).collect(),
            counters: self.counters().into_iter().collect(),
        }
    }

    /// For the admin port.
    pub(super) fn reading(&self, facts: &Facts) -> Reading {
        let in_service =
            self.servers.iter().filter(|server| server.state == ServerState::InService).count();
        let unready = match (self.is_draining, in_service) {
            (true, _) => Some("draining"),
            (false, 0) => Some("no server in service"),
            _ => None,
        };
        Reading { unready, metrics: self.page(in_service, facts) }
    }

    fn page(&self, in_service: usize, facts: &Facts) -> String {
        let mut page = Page::new("tailcut_route");
        page.gauge("uptime_seconds", "Time since the start.").value(seconds(self.uptime_ns));
        page.gauge("draining", "1 while it takes nothing new.").value(u8::from(self.is_draining));
        page.gauge("servers_in_service", "Servers that get requests.").value(in_service);
        page.gauge("held_requests", "Requests that wait for a server.").value(self.queue_len);
        page.gauge("remembered_ids", "RPC ids remembered.").value(self.table_len);
        if let Some(bound) = self.bound {
            page.gauge("bound_requests", "Most requests at one server.").value(bound);
        }
        let mut reloads = page.counter("reloads", "Reloads by what became of them.");
        reloads.sample(&[("result", "done")], facts.reloads);
        reloads.sample(&[("result", "refused")], facts.reloads_refused);
        let help = "1 where what was to be reloaded last is in force.";
        page.gauge("reload_ok", help).value(u8::from(facts.refusal.is_none()));
        write_sources(&mut page, &facts.sources);
        let help = "Time that placed requests were held, 0 where a server was free.";
        page.histogram("hold", help, &self.hold_times);
        self.write_servers(&mut page);
        page.counters(&self.counters());
        page.end()
    }

    fn write_servers(&self, page: &mut Page) {
        let named = self.servers.iter().map(|server| (server.addr.to_string(), server));
        let servers: Vec<(String, &ServerStatus)> = named.collect();
        let mut states = page.gauge("server_state", "1 for the state that the server is in.");
        for (name, server) in &servers {
            for (text, state) in STATES {
                let is_in = u8::from(server.state == state);
                states.sample(&[("server", name), ("state", text)], is_in);
            }
        }
        let help = "Placed and not known to be concluded.";
        let family = page.gauge("server_outstanding_requests", help);
        write_each(family, &servers, |server| Some(f64::from(server.outstanding)));
        let family = page.counter("server_placed", "Requests placed since it was added.");
        write_each(family, &servers, |server| Some(server.placed as f64));
        let family = page.counter("server_concluded", "Of these, known to be concluded.");
        write_each(family, &servers, |server| Some(server.concluded as f64));
        let help = "Average round trip of probes that find it idle.";
        let family = page.gauge("server_round_trip_seconds", help);
        write_each(family, &servers, |server| server.rtt_ns.map(seconds));
        let help = "Workers of weight 1 that it counts as.";
        let family = page.gauge("server_weight", help);
        write_each(family, &servers, |server| Some(server.rank.weight.get().into()));
        let family = page.gauge("server_near", "1 where it is of the zone that is preferred.");
        write_each(family, &servers, |server| Some(u8::from(server.rank.is_near).into()));
        let help = "Average service of requests that find it idle.";
        let family = page.gauge("server_service_seconds", help);
        write_each(family, &servers, |server| server.service_ns.map(seconds));
    }
}

fn write_sources(page: &mut Page, sources: &[SourceFacts]) {
    let servers = page.gauge("discovery_servers", "Servers of the source that are in use.");
    write_source(servers, sources, |source| source.servers as u64);
    let refused = page.gauge("discovery_refused", "Entries of the source that are not servers.");
    write_source(refused, sources, |source| source.refused as u64);
    let up = page.gauge("discovery_up", "1 while it answers.");
    write_source(up, sources, |source| source.problem.is_none().into());
    let help = "1 while its empty answer has not taken effect.";
    let empty = page.gauge("discovery_empty", help);
    write_source(empty, sources, |source| source.is_empty.into());
    let answers = page.counter("discovery_answers", "Answers of the source.");
    write_source(answers, sources, |source| source.answers);
    let failures = page.counter("discovery_failures", "Failed attempts to get an answer.");
    write_source(failures, sources, |source| source.failures);
}

fn write_source(mut family: Family<'_>, sources: &[SourceFacts], value: fn(&SourceFacts) -> u64) {
    for source in sources {
        family.sample(&[("source", &source.source)], value(source));
    }
}

/// Writes a value of each server that has it.
fn write_each(
    mut family: Family<'_>,
    servers: &[(String, &ServerStatus)],
    value: impl Fn(&ServerStatus) -> Option<f64>,
) {
    for (name, server) in servers {
        if let Some(value) = value(server) {
            family.sample(&[("server", name)], value);
        }
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
            ServerState::Starting => protocol::State::Starting,
            ServerState::InService => protocol::State::InService,
            ServerState::Draining => protocol::State::Draining,
            ServerState::Silent => protocol::State::Silent,
            ServerState::Stopping => protocol::State::Stopping,
            ServerState::Ejected => protocol::State::Ejected,
        },
        outstanding: server.outstanding,
        placed: server.placed,
        concluded: server.concluded,
        round_trip_us: us(server.rtt_ns),
        service_us: us(server.service_ns),
        weight: server.rank.weight.get(),
        is_near: server.rank.is_near,
    }
}

/// The states of servers by the names that metrics and the control socket have for them.
const STATES: [(&str, ServerState); 6] = [
    ("starting", ServerState::Starting),
    ("in_service", ServerState::InService),
    ("draining", ServerState::Draining),
    ("silent", ServerState::Silent),
    ("stopping", ServerState::Stopping),
    ("ejected", ServerState::Ejected),
];

/// The driver's only node.
pub(super) const ROUTER: usize = 0;

/// Between two looks at servers that are to go.
const RETIRE_INTERVAL_NS: u64 = 10_000_000;

/// Longest time that a server that has fallen silent with requests outstanding is kept: as long as
/// a router remembers a request.
const RETIRE_NS_MAX: u64 = 60_000_000_000;
