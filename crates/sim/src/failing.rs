//! A router before servers that pause, die and become slow: when it notices, and what that costs.
//!
//! The router is the node of `proto`, driven datagram by datagram. Servers are modelled: a queue
//! before workers, absolute counts, an answer to each probe. Between any two is a fixed delay.
//!
//! | a server | does |
//! |---|---|
//! | sleeps, since it has nothing | nothing before it has woken, and then all that came meanwhile |
//! | pauses | nothing, and then all that came meanwhile; its service takes so much longer |
//! | is down | loses what it has and what comes, and begins anew |
//! | is slow | serves, and takes so many times as long |
//!
//! Invariant: the same configuration gives the same result, to the bit.

use std::collections::VecDeque;
use std::net::SocketAddr;

use tailcut_measure::arrivals::{Arrivals, ArrivalsError, Process};
use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::{Generator, generator};
use tailcut_measure::quantity::Unit;
use tailcut_proto::node::{Node, Time};
use tailcut_proto::router::{
    Router, RouterConfig, RouterMetrics, ServerConfig, ServerState, Speaks,
};
use tailcut_proto::scheduler::Rank;
use tailcut_wire::r2p2::{
    FeedbackBody, Kind, MessageType, Packet, Policy, ReplyRepr, RequestRepr, Route, RpcId, Segment,
    SessionId,
};
use zerocopy::IntoBytes;

use crate::agenda::Agenda;
use crate::sojourn::Sojourns;

/// A router, its servers, and what becomes of them.
#[derive(Clone, Debug)]
pub struct Config {
    /// Servers.
    pub servers: u16,
    /// Workers of each.
    pub workers: u16,
    /// From this time on each server has so many workers. The load stays that of `workers`.
    pub resized: Option<(Time, u16)>,
    /// The way between the router and a server, ns.
    pub delay_ns: u64,
    /// From this time on, for how long a server that has nothing waits for a core when something
    /// comes; ns.
    pub wakes: Option<(Time, Distribution)>,
    /// Service times, ns.
    pub service: Distribution,
    /// Requests over what the servers can do.
    pub load: f64,
    /// The router, but for its servers.
    pub router: RouterConfig,
    /// Time between two pauses of a server on average, exponential, and how long each lasts; ns.
    pub pauses: Option<(u64, u64)>,
    /// Every so long the next server dies, and how long it is down; ns. Nobody dies so late that
    /// [`Run::capacity`] would lack what comes after it.
    pub crashes: Option<(u64, u64)>,
    /// Ranks of the servers, the first of them first; as routers rank servers of which nothing is
    /// said, where it ends.
    pub ranks: Vec<Rank>,
    /// The first server is slow from the first of these on, up to the second, by this factor.
    pub slow: Option<(Time, Time, u64)>,
    /// Length of the run.
    pub length_ns: u64,
    /// Everything random.
    pub seed: u64,
}

/// The findings of a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Times that the router took a server out for silent that was up.
    pub alarms: u64,
    /// For each crash, when it was seen after it, ns.
    pub seen_ns: Vec<u64>,
    /// Crashes that were not seen.
    pub unseen: u64,
    /// Answers in each [`BIN_NS`] after a crash, over what the other servers can do, averaged over
    /// all crashes.
    pub capacity: Vec<f64>,
    /// Time at which the slow server was first ejected after it became slow, ns.
    pub ejected_ns: Option<u64>,
    /// Time at which it had its share again after it had become well, ns.
    pub readmitted_ns: Option<u64>,
    /// Sojourns of what is answered: while nothing is slow, while one server is slow and is not
    /// ejected, while it is ejected.
    pub sojourns: [Sojourns; 3],
    /// Requests offered.
    pub offered: u64,
    /// The router's counters.
    pub metrics: RouterMetrics,
}

impl Config {
    /// Four servers with exponential services of 2 ms at a load of 0.9, and a router with its
    /// defaults.
    ///
    /// # Panics
    ///
    /// Never.
    pub fn new() -> Self {
        Self {
            servers: 4,
            workers: 1,
            resized: None,
            delay_ns: 10_000,
            wakes: None,
            service: Distribution::parse("exp:2ms", Unit::Time).expect("the distribution is one"),
            load: 0.9,
            router: RouterConfig::default(),
            pauses: None,
            crashes: None,
            ranks: Vec::new(),
            slow: None,
            length_ns: 10_000_000_000,
            seed: 1,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    ///
    /// When the load is none.
    pub fn run(&self) -> Result<Run, ArrivalsError> {
        let mean_ns = self.service.mean().unwrap_or(f64::INFINITY);
        let workers = f64::from(self.servers) * f64::from(self.workers);
        let rate_per_s = self.load * workers * 1e9 / mean_ns;
        let arrivals = Arrivals::new(Process::Poisson, rate_per_s, generator(self.seed, ARRIVALS))?;
        let mut pool = Pool::new(self, arrivals);
        pool.run();
        Ok(pool.findings(mean_ns))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

/// An event.
#[derive(Debug)]
enum Event {
    /// The next request comes.
    Arrival,
    /// A datagram reaches a server, or the router from it.
    ToServer(u16, Vec<u8>),
    ToRouter(u16, Vec<u8>),
    /// The service of a server may be over: of this run of it.
    Done(u16, u64),
    /// A server has got a core.
    Wake(u16),
    /// Servers have other workers.
    Resize(u16),
    Pause(u16),
    Resume(u16),
    Crash(u16),
    Restart(u16),
    /// The router has something due.
    Due,
}

/// A server.
#[derive(Debug, Default)]
struct Server {
    epoch: u32,
    seen: u32,
    received: u32,
    concluded: u32,
    /// Arrival time at the router of each request that waits.
    queue: VecDeque<Time>,
    /// Services under way, at most one for each worker.
    services: Vec<Service>,
    /// Number of the last service.
    serial: u64,
    is_paused: bool,
    /// It waits for a core.
    is_waking: bool,
    /// Came while it was paused or waited for a core.
    inbox: Vec<Vec<u8>>,
    /// Time of its death, while it is down.
    down_at: Option<Time>,
    /// The router has seen that.
    is_seen: bool,
}

/// A service.
#[derive(Clone, Copy, Debug)]
struct Service {
    /// Arrival time of the request at the router.
    came_at: Time,
    /// Time at which it ends.
    until: Time,
    /// Its number: another makes what was posted of it void.
    serial: u64,
}

struct Pool<'a> {
    config: &'a Config,
    agenda: Agenda<Event>,
    router: Router,
    servers: Vec<Server>,
    /// Workers of each.
    workers: usize,
    states: Vec<ServerState>,
    arrivals: Arrivals,
    services: Generator,
    wakes: Generator,
    pauses: Vec<Arrivals>,
    /// The time of the router's next event on the agenda; others there are void.
    due_at: Time,
    buffer: Vec<u8>,
    run: Run,
    /// Answers by bin after crashes.
    bins: Vec<u64>,
    crashes: u64,
    number: u64,
}

impl<'a> Pool<'a> {
    fn new(config: &'a Config, arrivals: Arrivals) -> Self {
        let servers = (0..config.servers)
            .map(|index| ServerConfig { addr: address(index), speaks: Speaks::Extension });
        let router =
            RouterConfig { servers: servers.collect(), seed: config.seed, ..config.router.clone() };
        let mut router = Router::new(0, router).unwrap_or_else(|error| panic!("{error}"));
        for (index, &rank) in (0..config.servers).zip(&config.ranks) {
            router.set_rank(0, address(index), rank).expect("it is there");
        }
        let pause = |index: u16, (every_ns, _): (u64, u64)| {
            let draws = generator(config.seed, PAUSES + u64::from(index));
            Arrivals::new(Process::Poisson, 1e9 / every_ns as f64, draws).expect("a rate")
        };
        let pauses = config.pauses.map_or(Vec::new(), |pauses| {
            (0..config.servers).map(|index| pause(index, pauses)).collect()
        });
        let new = |_| Server { epoch: 1, ..Server::default() };
        Self {
            config,
            agenda: Agenda::new(),
            router,
            servers: (0..config.servers).map(new).collect(),
            workers: config.workers.into(),
            states: vec![ServerState::Starting; config.servers.into()],
            arrivals,
            services: generator(config.seed, SERVICES),
            wakes: generator(config.seed, WAKES),
            pauses,
            due_at: 0,
            buffer: vec![0; 9_000],
            run: Run {
                alarms: 0,
                seen_ns: Vec::new(),
                unseen: 0,
                capacity: Vec::new(),
                ejected_ns: None,
                readmitted_ns: None,
                sojourns: [Sojourns::new(), Sojourns::new(), Sojourns::new()],
                offered: 0,
                metrics: RouterMetrics::default(),
            },
            bins: vec![0; BINS],
            crashes: 0,
            number: 0,
        }
    }

    fn run(&mut self) {
        self.agenda.post(0, Event::Due);
        // The router knows its servers by then.
        self.arrivals.next_ns();
        self.agenda.post(WARM_UP_NS, Event::Arrival);
        for index in 0..self.pauses.len() {
            let at = WARM_UP_NS + self.pauses[index].next_ns();
            self.agenda.post(at, Event::Pause(index as u16));
        }
        if let Some((every_ns, _)) = self.config.crashes {
            self.post_crash(every_ns, 0);
        }
        if let Some((at, workers)) = self.config.resized {
            self.agenda.post(at, Event::Resize(workers));
        }
        while let Some((now, event)) = self.agenda.pop() {
            if now > self.config.length_ns {
                return;
            }
            self.take(now, event);
        }
    }

    fn take(&mut self, now: Time, event: Event) {
        match event {
            Event::Arrival => self.arrive(now),
            Event::ToServer(index, bytes) => self.receive(now, index, bytes),
            Event::ToRouter(index, mut bytes) => {
                self.router.handle_datagram(now, address(index).into(), &mut bytes);
                self.drain(now);
            }
            Event::Done(index, serial) => self.finish(now, index, serial),
            Event::Wake(index) => self.wake(now, index),
            Event::Resize(workers) => self.resize(now, workers),
            Event::Pause(index) => self.pause(now, index),
            Event::Resume(index) => self.resume(now, index),
            Event::Crash(index) => self.crash(now, index),
            Event::Restart(index) => self.restart(now, index),
            // Of an earlier deadline that has moved since.
            Event::Due if now != self.due_at => {}
            Event::Due => {
                self.due_at = Time::MAX;
                self.router.handle_timeout(now);
                self.drain(now);
            }
        }
    }

    fn arrive(&mut self, now: Time) {
        self.number += 1;
        self.run.offered += 1;
        let id = RpcId::new(SessionId(self.number >> 20), self.number as u32 & 0xf_ffff);
        let repr = RequestRepr {
            policy: Policy::Unrestricted,
            segment: Segment { message_len: 8, segment_len: 1_400, ..Segment::CONTROL },
            deadline_us: 1_000_000,
            floor: id.sequence().saturating_sub(REMEMBERED),
            ..RequestRepr::control(MessageType::Request, self.number as u16, id)
        };
        let mut bytes =
            [repr.header().as_bytes(), Route::default().as_bytes(), &now.to_le_bytes()].concat();
        self.router.handle_datagram(now, CLIENT.into(), &mut bytes);
        self.drain(now);
        let at = WARM_UP_NS + self.arrivals.next_ns();
        self.agenda.post(at.max(now), Event::Arrival);
    }

    /// Takes what the router sends, and when it wants to be called again.
    fn drain(&mut self, now: Time) {
        while let Some(transmit) = self.router.poll_transmit(now, &mut self.buffer) {
            let Some(index) = index_of(transmit.to) else { continue };
            for bytes in self.buffer[..transmit.len].chunks(transmit.segment_len) {
                let at = now + self.config.delay_ns;
                self.agenda.post(at, Event::ToServer(index, bytes.to_vec()));
            }
        }
        if let Some(at) = self.router.poll_timeout().filter(|&at| at < self.due_at) {
            self.due_at = at.max(now);
            self.agenda.post(self.due_at, Event::Due);
        }
        self.look(now);
    }

    /// Looks at what the router thinks of the servers.
    fn look(&mut self, now: Time) {
        let metrics = self.router.metrics();
        let count = |metrics: &RouterMetrics| {
            let RouterMetrics { servers_silenced, servers_returned, .. } = metrics;
            servers_silenced
                + servers_returned
                + metrics.servers_ejected
                + metrics.servers_readmitted
        };
        if count(&metrics) == count(&self.run.metrics) {
            return;
        }
        let readmitted = self.run.metrics.servers_readmitted;
        self.run.metrics = metrics;
        for (index, status) in self.router.servers().enumerate() {
            let (server, before) = (&mut self.servers[index], self.states[index]);
            self.states[index] = status.state;
            match (status.state, server.down_at) {
                (state, _) if state == before => {}
                (ServerState::Silent, None) => self.run.alarms += 1,
                (ServerState::Silent, Some(at)) if !server.is_seen => {
                    server.is_seen = true;
                    self.run.seen_ns.push(now - at);
                }
                _ => {}
            }
        }
        let Some((from, until, _)) = self.config.slow else { return };
        if self.states[0] == ServerState::Ejected && now >= from {
            self.run.ejected_ns.get_or_insert(now - from);
        }
        if now >= until && metrics.servers_readmitted > readmitted {
            self.run.readmitted_ns.get_or_insert(now - until);
        }
    }

    fn receive(&mut self, now: Time, index: u16, bytes: Vec<u8>) {
        let server = &mut self.servers[usize::from(index)];
        if server.down_at.is_some() {
            return;
        }
        if server.is_paused || server.is_waking {
            return server.inbox.push(bytes);
        }
        if let Some((from, wakes)) = &self.config.wakes
            && now >= *from
            && server.services.is_empty()
        {
            server.is_waking = true;
            server.inbox.push(bytes);
            let at = now + wakes.sample_whole(&mut self.wakes);
            return self.agenda.post(at, Event::Wake(index));
        }
        self.handle(now, index, bytes);
    }

    /// A server reads a datagram.
    fn handle(&mut self, now: Time, index: u16, bytes: Vec<u8>) {
        let server = &mut self.servers[usize::from(index)];
        let Ok(packet) = Packet::parse(&bytes) else { return };
        match (packet.message_type, packet.kind) {
            (MessageType::Request, Kind::Request { route: Some(route), .. }) => {
                let ahead = route.placement.get().wrapping_sub(server.seen) as i32;
                if ahead > 0 || server.seen == 0 {
                    server.seen = route.placement.get();
                }
                server.received += 1;
                let came_at = packet.payload.first_chunk().map_or(0, |at| Time::from_le_bytes(*at));
                server.queue.push_back(came_at);
                self.serve(now, index);
            }
            (MessageType::Probe, _) => {
                if let Ok(placed) = packet.payload.try_into() {
                    server.seen = u32::from_be_bytes(placed);
                }
                self.report(now, index);
            }
            _ => {}
        }
    }

    /// Begins the next service.
    fn serve(&mut self, now: Time, index: u16) {
        let server = &mut self.servers[usize::from(index)];
        if server.services.len() >= self.workers {
            return;
        }
        let Some(came_at) = server.queue.pop_front() else { return };
        let mut service_ns = self.config.service.sample_whole(&mut self.services);
        if let Some((from, until, factor)) = self.config.slow
            && index == 0
            && (from..until).contains(&now)
        {
            service_ns *= factor;
        }
        server.serial += 1;
        let until = now + service_ns;
        server.services.push(Service { came_at, until, serial: server.serial });
        self.agenda.post(until, Event::Done(index, server.serial));
    }

    fn finish(&mut self, now: Time, index: u16, serial: u64) {
        let server = &mut self.servers[usize::from(index)];
        let place = server.services.iter().position(|service| service.serial == serial);
        let Some(place) = place.filter(|_| !server.is_paused) else { return };
        let Service { came_at, .. } = server.services.swap_remove(place);
        server.concluded += 1;
        self.answer(now, came_at);
        self.serve(now, index);
        self.report(now, index);
    }

    fn answer(&mut self, now: Time, came_at: Time) {
        let is_slow =
            self.config.slow.is_some_and(|(from, until, _)| (from..until).contains(&came_at));
        let phase = match (is_slow, self.states[0] == ServerState::Ejected) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 2,
        };
        self.run.sojourns[phase].record(now + self.config.delay_ns - came_at);
        let down_at = self.servers.iter().filter_map(|server| server.down_at).next_back();
        if let Some(bin) = down_at.map(|at| ((now - at) / BIN_NS) as usize)
            && bin < BINS
        {
            self.bins[bin] += 1;
        }
    }

    fn report(&mut self, now: Time, index: u16) {
        let server = &self.servers[usize::from(index)];
        let body = FeedbackBody {
            epoch: server.epoch.into(),
            placement_seen: server.seen.into(),
            received: server.received.into(),
            concluded: server.concluded.into(),
        };
        let repr = ReplyRepr {
            server_load: (server.queue.len() + server.services.len()) as u16,
            server_waiting: server.queue.len() as u16,
            ..ReplyRepr::control(MessageType::Feedback, 0, RpcId(0))
        };
        let bytes = [repr.header().as_bytes(), body.as_bytes()].concat();
        self.agenda.post(now + self.config.delay_ns, Event::ToRouter(index, bytes));
    }

    fn pause(&mut self, now: Time, index: u16) {
        let Some((_, lasts_ns)) = self.config.pauses else { return };
        self.servers[usize::from(index)].is_paused = true;
        self.agenda.post(now + lasts_ns, Event::Resume(index));
    }

    fn resume(&mut self, now: Time, index: u16) {
        let Some((_, lasts_ns)) = self.config.pauses else { return };
        let server = &mut self.servers[usize::from(index)];
        server.is_paused = false;
        for service in &mut server.services {
            server.serial += 1;
            (service.serial, service.until) = (server.serial, service.until + lasts_ns);
            self.agenda.post(service.until, Event::Done(index, service.serial));
        }
        self.catch_up(now, index);
        let at = WARM_UP_NS + self.pauses[usize::from(index)].next_ns();
        self.agenda.post(at.max(now), Event::Pause(index));
    }

    /// A server reads what has come meanwhile, unless it still cannot.
    fn catch_up(&mut self, now: Time, index: u16) {
        let server = &mut self.servers[usize::from(index)];
        if server.is_paused || server.is_waking {
            return;
        }
        for bytes in std::mem::take(&mut server.inbox) {
            self.handle(now, index, bytes);
        }
    }

    fn wake(&mut self, now: Time, index: u16) {
        self.servers[usize::from(index)].is_waking = false;
        self.catch_up(now, index);
    }

    fn resize(&mut self, now: Time, workers: u16) {
        self.workers = workers.into();
        for index in 0..self.config.servers {
            for _ in 0..workers {
                self.serve(now, index);
            }
        }
    }

    fn post_crash(&mut self, at: Time, index: u16) {
        if at + BINS as u64 * BIN_NS <= self.config.length_ns {
            self.agenda.post(at, Event::Crash(index));
        }
    }

    fn crash(&mut self, now: Time, index: u16) {
        let Some((_, down_ns)) = self.config.crashes else { return };
        self.crashes += 1;
        let server = &mut self.servers[usize::from(index)];
        *server = Server {
            epoch: server.epoch + 1,
            serial: server.serial + 1,
            is_paused: server.is_paused,
            is_waking: server.is_waking,
            down_at: Some(now),
            ..Server::default()
        };
        self.agenda.post(now + down_ns, Event::Restart(index));
    }

    fn restart(&mut self, now: Time, index: u16) {
        let Some((every_ns, down_ns)) = self.config.crashes else { return };
        let server = &mut self.servers[usize::from(index)];
        self.run.unseen += u64::from(!server.is_seen);
        (server.down_at, server.is_seen) = (None, false);
        let next = (index + 1) % self.config.servers;
        self.post_crash(now + every_ns - down_ns, next);
    }

    fn findings(mut self, mean_ns: f64) -> Run {
        let others = f64::from(self.config.servers - 1) * f64::from(self.config.workers);
        let others = others * BIN_NS as f64 / mean_ns;
        let all = others * self.crashes.max(1) as f64;
        self.run.capacity = self.bins.iter().map(|&count| count as f64 / all).collect();
        self.run.metrics = self.router.metrics();
        self.run
    }
}

fn address(index: u16) -> SocketAddr {
    ([10, 0, 1, 1], 8_000 + index).into()
}

fn index_of(address: SocketAddr) -> Option<u16> {
    (address.ip() == self::address(0).ip()).then(|| address.port() - 8_000)
}

const CLIENT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 2, 1)), 4_000);

/// Width of a bin of [`Run::capacity`].
pub const BIN_NS: u64 = 10_000_000;

/// Bins of [`Run::capacity`].
const BINS: usize = 50;

const WARM_UP_NS: u64 = 100_000_000;

/// Calls of a session whose end is not told.
const REMEMBERED: u32 = 10_000;

/// Streams of the generator.
const ARRIVALS: u64 = 0;
const SERVICES: u64 = 1;
const WAKES: u64 = 2;
const PAUSES: u64 = 100;
