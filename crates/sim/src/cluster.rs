//! Clients, a router and servers in virtual time: the whole of R2P2 under faults, with its invariants checked at every step.
//!
//! Servers answer after a service time with the request's bytes in reverse. Requests carry a number, by which the cluster knows
//! how often each ran, wherever it ran.

use std::net::SocketAddr;

use tailcut_proto::node::{Node, Path, Time, Transmit};
use tailcut_proto::r2p2::{Config, Endpoint};
use tailcut_proto::router::{Forward, Router, RouterConfig, ServerConfig, Speaks};
use tailcut_proto::rpc::{Call, CallOptions, Event, Failure, RequestId, Rpc};

use crate::impair::Impairment;
use crate::network::Network;

/// What stands at an address of a cluster.
#[derive(Debug)]
pub enum Member {
    /// A client or a server.
    Endpoint(Box<Endpoint>),
    /// The router.
    Router(Box<Router>),
}

/// A router, servers behind it, and clients before it.
#[derive(Debug)]
pub struct Cluster {
    network: Network<Member>,
    plan: Plan,
    /// Calls that have ended, and how, by number.
    pub outcomes: Vec<(u64, Result<Vec<u8>, Failure>)>,
    /// How often each request ran, by number.
    pub runs: Vec<u32>,
    /// Services under way: when they end, where, and for what.
    services: Vec<(Time, usize, RequestId, Vec<u8>)>,
    begun: u64,
    incarnations: u64,
}

/// What a cluster is made of.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Servers.
    pub servers: usize,
    /// Clients.
    pub clients: usize,
    /// Time between a request and its answer.
    pub service_ns: u64,
    /// Bound of the router's JBSQ.
    pub bound: u32,
    /// How the router forwards.
    pub forward: Forward,
    /// Every path.
    pub impairment: Impairment,
    /// Everything random.
    pub seed: u64,
}

impl Cluster {
    /// The cluster of a plan, up for a second.
    pub fn new(plan: Plan) -> Self {
        let (outcomes, runs, services) = (Vec::new(), Vec::new(), Vec::new());
        let mut cluster = Self { network: Network::new(), plan, outcomes, runs, services, begun: 0, incarnations: 0 };
        let router = cluster.router_node();
        cluster.join(router_address(), router);
        for index in 0..plan.servers {
            let server = cluster.server_node();
            cluster.join(server_address(index), server);
        }
        for index in 0..plan.clients {
            let client = cluster.endpoint(|config| config.serving.is_enabled = false);
            cluster.join(client_address(index), client);
        }
        cluster.run_for(1_000_000_000);
        cluster
    }

    /// The virtual time.
    pub fn now(&self) -> Time {
        self.network.now()
    }

    /// The network's nodes: the router at 0, then the servers, then the clients.
    pub fn network(&mut self) -> &mut Network<Member> {
        &mut self.network
    }

    /// The router.
    pub fn router(&self) -> &Router {
        match self.network.node(0) {
            Member::Router(router) => router,
            Member::Endpoint(_) => panic!("the router stands at place 0"),
        }
    }

    /// A client makes the next call, of `len` bytes; tells its number.
    pub fn call(&mut self, client: usize, len: usize, timeout_ns: u64, options: CallOptions) -> u64 {
        let number = self.begun;
        self.begun += 1;
        let now = self.now();
        let mut payload = number.to_be_bytes().to_vec();
        payload.resize(len.max(8), number as u8);
        let call = Call { target: router_address(), payload, deadline: now + timeout_ns, context: number, options };
        let place = 1 + self.plan.servers + client;
        let Member::Endpoint(endpoint) = self.network.node_mut(place) else { panic!("a client stands at place {place}") };
        endpoint.call(now, call).unwrap_or_else(|error| panic!("call {number}: {error}"));
        self.network.flush(place);
        number
    }

    /// A server dies: what it holds is lost.
    pub fn crash_server(&mut self, index: usize) {
        self.network.set_up(1 + index, false);
        self.services.retain(|(_, place, ..)| *place != 1 + index);
    }

    /// A dead server comes back, knowing nothing.
    pub fn restart_server(&mut self, index: usize) {
        let server = self.server_node();
        self.network.replace(1 + index, server);
    }

    /// The router dies and comes back at once, knowing nothing.
    pub fn restart_router(&mut self) {
        let router = self.router_node();
        self.network.replace(0, router);
    }

    /// Runs for `duration_ns` of virtual time.
    pub fn run_for(&mut self, duration_ns: u64) {
        let until = self.now() + duration_ns;
        loop {
            let ends = self.services.iter().map(|(end, ..)| *end).min().unwrap_or(u64::MAX);
            let next = self.network.next_time().unwrap_or(u64::MAX).min(ends);
            if next > until {
                return self.network.run(until, |_| {});
            }
            self.run_network(next);
            self.end_services();
        }
    }

    fn run_network(&mut self, until: Time) {
        let Self { network, plan, outcomes, runs, services, .. } = self;
        network.run(until, |turn| {
            let (now, place) = (turn.now, turn.place);
            let Member::Endpoint(endpoint) = turn.node else { return };
            while let Some(event) = endpoint.poll_event() {
                match event {
                    Event::Request { id, payload, .. } => {
                        note_run(runs, &payload);
                        services.push((now + plan.service_ns, place, id, payload));
                    }
                    Event::Cancelled { id } => services.retain(|(_, at, service, _)| (*at, *service) != (place, id)),
                    Event::Replied { context, payload, .. } => outcomes.push((context, Ok(payload))),
                    Event::Failed { context, failure, .. } => outcomes.push((context, Err(failure))),
                }
            }
        });
    }

    fn end_services(&mut self) {
        let now = self.now();
        while let Some(position) = self.services.iter().position(|(end, ..)| *end <= now) {
            let (_, place, id, mut payload) = self.services.swap_remove(position);
            payload.reverse();
            if let Member::Endpoint(endpoint) = self.network.node_mut(place) {
                // A request that is gone by now needs no answer.
                let _ = endpoint.reply(now, id, payload);
            }
            self.network.flush(place);
        }
    }

    fn join(&mut self, address: SocketAddr, member: Member) {
        let seed = self.plan.seed.wrapping_mul(1000).wrapping_add(u64::from(address.port()) ^ ip_word(address));
        self.network.add(address, member, self.plan.impairment, seed);
    }

    fn endpoint(&mut self, adjust: impl FnOnce(&mut Config)) -> Member {
        self.incarnations += 1;
        let secret = (u128::from(self.plan.seed) << 64 | u128::from(self.incarnations)).to_be_bytes();
        let mut config = Config { secret, ..Config::default() };
        adjust(&mut config);
        Member::Endpoint(Box::new(Endpoint::new(self.network.now(), config)))
    }

    fn server_node(&mut self) -> Member {
        let is_kept = self.plan.forward == Forward::Keep;
        self.endpoint(|config| config.serving.router = is_kept.then(router_address))
    }

    fn router_node(&mut self) -> Member {
        self.incarnations += 1;
        let servers = (0..self.plan.servers).map(|index| ServerConfig { addr: server_address(index), speaks: Speaks::Extension });
        let config = RouterConfig {
            policy: format!("jbsq:{}", self.plan.bound).parse().unwrap_or_else(|error| panic!("{error}")),
            forward: self.plan.forward,
            servers: servers.collect(),
            seed: self.plan.seed.wrapping_mul(31).wrapping_add(self.incarnations),
            ..RouterConfig::default()
        };
        let router = Router::new(self.network.now(), config).unwrap_or_else(|error| panic!("{error}"));
        Member::Router(Box::new(router))
    }
}

impl Node for Member {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &[u8]) {
        match self {
            Self::Endpoint(node) => node.handle_datagram(now, path, bytes),
            Self::Router(node) => node.handle_datagram(now, path, bytes),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::Endpoint(node) => node.handle_timeout(now),
            Self::Router(node) => node.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        match self {
            Self::Endpoint(node) => node.poll_transmit(now, buffer),
            Self::Router(node) => node.poll_transmit(now, buffer),
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self {
            Self::Endpoint(node) => node.poll_timeout(),
            Self::Router(node) => node.poll_timeout(),
        }
    }
}

fn note_run(runs: &mut Vec<u32>, payload: &[u8]) {
    let number = payload.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)) as usize;
    if runs.len() <= number {
        runs.resize(number + 1, 0);
    }
    runs[number] += 1;
}

fn router_address() -> SocketAddr {
    ([10, 0, 0, 100], 9000).into()
}

fn server_address(index: usize) -> SocketAddr {
    ([10, 0, 1, index as u8], 8000).into()
}

fn client_address(index: usize) -> SocketAddr {
    ([10, 0, 2, index as u8], 33_000).into()
}

fn ip_word(address: SocketAddr) -> u64 {
    match address.ip() {
        std::net::IpAddr::V4(ip) => u64::from(ip.to_bits()),
        std::net::IpAddr::V6(ip) => ip.to_bits() as u64,
    }
}
