//! A router before routers before servers, in virtual time: what comes back, how the load is
//! spread, and what the outer router knows of the servers behind the inner ones.

use std::net::SocketAddr;

use tailcut_proto::node::Time;
use tailcut_proto::r2p2::{Cloning, Config, Endpoint, Loser};
use tailcut_proto::router::{Router, RouterConfig, ServerConfig, ServerState, Speaks};
use tailcut_proto::rpc::{Call, CallOptions, Event, RequestId, Rpc};
use tailcut_sim::impair::Impairment;
use tailcut_sim::member::Member;
use tailcut_sim::network::Network;

pub(crate) const US: Time = 1_000;
pub(crate) const MS: Time = 1_000 * US;
pub(crate) const SERVICE_NS: Time = 100 * US;

/// Outer routers before inner ones, each of which has servers of its own, and a client.
pub(crate) struct Chain {
    pub(crate) network: Network<Member<Endpoint>>,
    pub(crate) outer_count: usize,
    /// Servers of each inner router.
    inner: Vec<usize>,
    /// Requests under way at servers, by the word of their alarm.
    requests: Vec<Option<RequestId>>,
    /// Number of times that each call has run.
    pub(crate) runs: Vec<u32>,
    /// Latency of each call that was answered.
    pub(crate) latencies: Vec<Time>,
    /// Requests of each server.
    pub(crate) served: Vec<u64>,
    /// Service time of a request, by server.
    pub(crate) services: Vec<Time>,
    /// Target of the calls: the first outer router.
    pub(crate) target: SocketAddr,
    /// Bytes of a request.
    pub(crate) request_len: usize,
    pub(crate) replied: u64,
    /// Requests of which a server was told that nobody waits for them.
    pub(crate) cancelled: u64,
    pub(crate) failed: Vec<String>,
    /// Time at which each call was made.
    made_at: Vec<Time>,
}

impl Chain {
    fn new(outer_count: usize, inner: &[usize], impairment: Impairment) -> Self {
        let policies = ["jbsq:2"; 2];
        Self::with_policies(outer_count, inner, (policies, Loser::Runs), impairment)
    }

    /// The policies of the outer routers and of the inner ones, and what the client does about the
    /// slower of two copies.
    pub(crate) fn with_policies(
        outer_count: usize,
        inner: &[usize],
        (policies, loser): ([&str; 2], Loser),
        impairment: Impairment,
    ) -> Self {
        let mut network = Network::new();
        let mut add = |address, member, seed| {
            network.add(address, member, impairment, seed);
        };
        let outer: Vec<SocketAddr> = (0..outer_count).map(|index| address(0, index)).collect();
        let servers: usize = inner.iter().sum();
        for (index, &own) in outer.iter().enumerate() {
            let targets = (0..inner.len()).map(|index| address(1, index));
            add(own, router(policies[0], targets, &[], 7 + index as u64), 1);
        }
        let mut first = 0;
        for (index, &count) in inner.iter().enumerate() {
            let targets = (first..first + count).map(|index| address(2, index));
            let member = router(policies[1], targets, &outer, 77 + index as u64);
            add(address(1, index), member, 2 + index as u64);
            first += count;
        }
        for index in 0..servers {
            add(address(2, index), endpoint(index as u8, &[], Loser::Runs), 100 + index as u64);
        }
        add(address(3, 0), endpoint(99, &outer, loser), 99);
        // Up for longer than any request is old.
        network.run(1_000 * MS, |_| {});
        Self {
            network,
            outer_count,
            inner: inner.to_vec(),
            requests: Vec::new(),
            runs: Vec::new(),
            latencies: Vec::new(),
            served: vec![0; servers],
            services: vec![SERVICE_NS; servers],
            target: address(0, 0),
            request_len: 8,
            replied: 0,
            cancelled: 0,
            failed: Vec::new(),
            made_at: Vec::new(),
        }
    }

    fn client(&self) -> usize {
        self.network_len() - 1
    }

    fn network_len(&self) -> usize {
        self.outer_count + self.inner.len() + self.served.len() + 1
    }

    /// Calls so often, and whatever comes of it within `time`.
    pub(crate) fn calls(&mut self, count: usize, every_ns: Time, options: CallOptions) {
        for _ in 0..count {
            let (now, place) = (self.network.now(), self.client());
            let number = self.runs.len() as u64;
            self.runs.push(0);
            self.made_at.push(now);
            let mut payload = number.to_be_bytes().to_vec();
            payload.resize(self.request_len, 7);
            let (target, deadline) = (self.target, now + 400 * MS);
            let call = Call { target, payload, deadline, context: number, options };
            let client = self.network.node_mut(place).endpoint_mut().expect("the client");
            client.call(now, call).expect("the client has room");
            self.network.flush(place);
            self.run(every_ns);
        }
    }

    pub(crate) fn run(&mut self, time: Time) {
        let until = self.network.now() + time;
        let first = self.outer_count + self.inner.len();
        let Self { network, requests, runs, served, failed, .. } = self;
        let (services, made_at, latencies) = (&self.services, &self.made_at, &mut self.latencies);
        let (replied, cancelled) = (&mut self.replied, &mut self.cancelled);
        network.run(until, |turn| {
            if let Some(word) = turn.alarm {
                let id = requests[word as usize].take().expect("a request under way");
                let (now, node) = (turn.now, turn.node.endpoint_mut().expect("a server"));
                let _ = node.reply(now, id, b"done".to_vec());
                return;
            }
            loop {
                let Some(node) = turn.node.endpoint_mut() else { return };
                match node.poll_event() {
                    Some(Event::Request { id, payload, .. }) => {
                        let number = u64::from_be_bytes(*payload.first_chunk().expect("8 bytes"));
                        runs[number as usize] += 1;
                        let server = turn.place - first;
                        served[server] += 1;
                        requests.push(Some(id));
                        turn.wake_in(services[server], requests.len() as u64 - 1);
                    }
                    Some(Event::Replied { context, .. }) => {
                        *replied += 1;
                        latencies.push(turn.now - made_at[context as usize]);
                    }
                    Some(Event::Failed { failure, .. }) => failed.push(format!("{failure:?}")),
                    Some(Event::Cancelled { .. }) => *cancelled += 1,
                    None => return,
                }
            }
        });
    }

    pub(crate) fn outer(&self) -> &Router {
        self.network.node(0).router().expect("the first is a router")
    }

    pub(crate) fn inner(&self, index: usize) -> &Router {
        self.network.node(self.outer_count + index).router().expect("an inner router")
    }
}

fn router(
    policy: &str,
    servers: impl Iterator<Item = SocketAddr>,
    upstreams: &[SocketAddr],
    seed: u64,
) -> Member<Endpoint> {
    let servers = servers.map(|addr| ServerConfig { addr, speaks: Speaks::Extension }).collect();
    let policy = policy.parse().expect("a policy");
    let upstreams = upstreams.to_vec();
    let config = RouterConfig { policy, servers, upstreams, seed, ..RouterConfig::default() };
    Member::Router(Box::new(Router::new(0, config).expect("a sound configuration")))
}

fn endpoint(secret: u8, targets: &[SocketAddr], loser: Loser) -> Member<Endpoint> {
    let (alternates, cloning) = (targets.to_vec(), Cloning { loser, ..Cloning::default() });
    let config = Config { secret: [secret; 16], alternates, cloning, ..Config::default() };
    Member::Endpoint(Box::new(Endpoint::new(0, config)))
}

pub(crate) fn address(rank: u8, index: usize) -> SocketAddr {
    ([10, 0, rank, index as u8], 9000).into()
}

pub(crate) const PATH: Impairment = Impairment { delay_ns: 5 * US, ..Impairment::NONE };

/// Inner routers of three servers and of one: the outer one gives each of the four as much.
#[test]
fn the_load_of_a_router_is_that_of_each_of_its_servers() {
    let mut chain = Chain::new(1, &[3, 1], PATH);
    // Four servers of 100 us, at 80 %.
    chain.calls(4_000, 31 * US, CallOptions::default());
    chain.run(100 * MS);
    assert_eq!((chain.replied, &chain.failed), (4_000, &vec![]));
    assert!(chain.runs.iter().all(|&runs| runs == 1));
    for &served in &chain.served {
        assert!(served.abs_diff(1_000) < 250, "{:?}", chain.served);
    }
    let status = chain.outer().status();
    assert!(status.servers.iter().all(|server| server.outstanding == 0), "{status:?}");
    assert!(status.servers.iter().all(|server| server.state == ServerState::InService));
}

/// A burst waits at the outer router, which knows when an inner one has room.
#[test]
fn a_burst_is_held_where_the_queue_is_one() {
    let mut chain = Chain::new(1, &[2, 2], PATH);
    chain.calls(200, 0, CallOptions::default());
    chain.run(100 * MS);
    assert_eq!(chain.replied, 200, "{:?}", chain.failed);
    let metrics = chain.outer().metrics();
    // The rest of two at each server.
    assert!(metrics.held >= 150, "{metrics:?}");
    // 200 of 100 us at four servers are 5 ms.
    let longest_ns = chain.latencies.iter().max().copied();
    assert!(longest_ns.is_some_and(|longest_ns| longest_ns < 20 * MS), "{longest_ns:?}");
    assert!(chain.served.iter().all(|&served| served >= 40), "{:?}", chain.served);
}

#[test]
fn loss_loses_no_slot_and_runs_nothing_twice() {
    let lossy = Impairment { loss: 0.02, duplicate: 0.02, jitter_ns: 20 * US, ..PATH };
    let mut chain = Chain::new(1, &[2, 2], lossy);
    chain.calls(3_000, 50 * US, CallOptions::default());
    chain.run(2_000 * MS);
    assert!(chain.replied >= 2_990, "{} and {:?}", chain.replied, chain.failed);
    assert!(chain.runs.iter().all(|&runs| runs <= 1));
    let status = chain.outer().status();
    assert!(status.servers.iter().all(|server| server.outstanding == 0), "{status:?}");
}

/// An inner router whose servers have gone asks for nothing, and the other one has all.
#[test]
fn a_router_without_servers_gets_nothing() {
    let mut chain = Chain::new(1, &[1, 1], PATH);
    let server = chain.outer_count + 2;
    chain.network.set_up(server, false);
    chain.run(300 * MS);
    chain.calls(200, 200 * US, CallOptions::default());
    chain.run(100 * MS);
    assert_eq!((chain.replied, chain.served.clone()), (200, vec![0, 200]), "{:?}", chain.failed);
    assert_eq!(chain.outer().status().servers[0].state, ServerState::Stopping);
}

/// One of two outer routers dies: what may run once is claimed of the inner ones, and through them
/// of the servers.
#[test]
fn a_call_that_may_run_once_moves_between_outer_routers() {
    let mut chain = Chain::new(2, &[2, 2], PATH);
    chain.calls(200, 100 * US, CallOptions::default());
    chain.network.set_up(0, false);
    chain.calls(200, 100 * US, CallOptions::default());
    chain.run(500 * MS);
    assert_eq!((chain.replied, &chain.failed), (400, &vec![]));
    assert!(chain.runs.iter().all(|&runs| runs == 1));
    let metrics = chain.network.node(1).router().expect("a router").metrics();
    assert!(metrics.claims_placed > 0, "{metrics:?}");
}
