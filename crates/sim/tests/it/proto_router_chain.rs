//! A router before routers before servers, in virtual time: what comes back, how the load is spread,
//! and what the outer router knows of the servers behind the inner ones.

use std::net::SocketAddr;

use tailcut_proto::node::Time;
use tailcut_proto::r2p2::{Config, Endpoint};
use tailcut_proto::router::{Router, RouterConfig, ServerConfig, ServerState, Speaks};
use tailcut_proto::rpc::{Call, CallOptions, Event, RequestId, Rpc};
use tailcut_sim::impair::Impairment;
use tailcut_sim::member::Member;
use tailcut_sim::network::Network;

const US: Time = 1_000;
const MS: Time = 1_000 * US;
const SERVICE_NS: Time = 100 * US;

/// Outer routers before inner ones, each of which has servers of its own, and a client.
struct Chain {
    network: Network<Member<Endpoint>>,
    outer_count: usize,
    /// Servers of each inner router.
    inner: Vec<usize>,
    /// Requests under way at servers, by the word of their alarm.
    requests: Vec<Option<RequestId>>,
    /// How often each call has run.
    runs: Vec<u32>,
    /// Of each server, requests.
    served: Vec<u64>,
    replied: u64,
    failed: Vec<String>,
}

impl Chain {
    fn new(outer_count: usize, inner: &[usize], impairment: Impairment) -> Self {
        let mut network = Network::new();
        let mut add = |address, member, seed| {
            network.add(address, member, impairment, seed);
        };
        let outer: Vec<SocketAddr> = (0..outer_count).map(|index| address(0, index)).collect();
        let servers: usize = inner.iter().sum();
        for (index, &own) in outer.iter().enumerate() {
            let targets = (0..inner.len()).map(|index| address(1, index));
            add(own, router(targets, &[], 7 + index as u64), 1);
        }
        let mut first = 0;
        for (index, &count) in inner.iter().enumerate() {
            let targets = (first..first + count).map(|index| address(2, index));
            add(address(1, index), router(targets, &outer, 77 + index as u64), 2 + index as u64);
            first += count;
        }
        for index in 0..servers {
            add(address(2, index), endpoint(index as u8, &[]), 100 + index as u64);
        }
        add(address(3, 0), endpoint(99, &outer), 99);
        // Up for longer than any request is old.
        network.run(1_000 * MS, |_| {});
        let (requests, runs, failed) = (Vec::new(), Vec::new(), Vec::new());
        let (inner, served) = (inner.to_vec(), vec![0; servers]);
        Self { network, outer_count, inner, requests, runs, served, replied: 0, failed }
    }

    fn client(&self) -> usize {
        self.network_len() - 1
    }

    fn network_len(&self) -> usize {
        self.outer_count + self.inner.len() + self.served.len() + 1
    }

    /// Calls so often, and whatever comes of it within `time`.
    fn calls(&mut self, count: usize, every_ns: Time, options: CallOptions) {
        for _ in 0..count {
            let (now, place) = (self.network.now(), self.client());
            let number = self.runs.len() as u64;
            self.runs.push(0);
            let payload = number.to_be_bytes().to_vec();
            let (target, deadline) = (address(0, 0), now + 400 * MS);
            let call = Call { target, payload, deadline, context: number, options };
            let client = self.network.node_mut(place).endpoint_mut().expect("the client");
            client.call(now, call).expect("the client has room");
            self.network.flush(place);
            self.run(every_ns);
        }
    }

    fn run(&mut self, time: Time) {
        let until = self.network.now() + time;
        let first = self.outer_count + self.inner.len();
        let Self { network, requests, runs, served, replied, failed, .. } = self;
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
                        served[turn.place - first] += 1;
                        requests.push(Some(id));
                        turn.wake_in(SERVICE_NS, requests.len() as u64 - 1);
                    }
                    Some(Event::Replied { .. }) => *replied += 1,
                    Some(Event::Failed { failure, .. }) => failed.push(format!("{failure:?}")),
                    Some(Event::Cancelled { .. }) => {}
                    None => return,
                }
            }
        });
    }

    fn outer(&self) -> &Router {
        self.network.node(0).router().expect("the first is a router")
    }
}

fn router(
    servers: impl Iterator<Item = SocketAddr>,
    upstreams: &[SocketAddr],
    seed: u64,
) -> Member<Endpoint> {
    let servers = servers.map(|addr| ServerConfig { addr, speaks: Speaks::Extension }).collect();
    let policy = "jbsq:2".parse().expect("a policy");
    let upstreams = upstreams.to_vec();
    let config = RouterConfig { policy, servers, upstreams, seed, ..RouterConfig::default() };
    Member::Router(Box::new(Router::new(0, config).expect("a sound configuration")))
}

fn endpoint(secret: u8, targets: &[SocketAddr]) -> Member<Endpoint> {
    let alternates = targets.to_vec();
    let config = Config { secret: [secret; 16], alternates, ..Config::default() };
    Member::Endpoint(Box::new(Endpoint::new(0, config)))
}

fn address(rank: u8, index: usize) -> SocketAddr {
    ([10, 0, rank, index as u8], 9000).into()
}

const PATH: Impairment = Impairment { delay_ns: 5 * US, ..Impairment::NONE };

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
    // Of two at each server the rest, and of these none waited for a probe.
    assert!(metrics.held >= 150, "{metrics:?}");
    // 200 of 100 us at four servers are 5 ms: nobody needs 20.
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
