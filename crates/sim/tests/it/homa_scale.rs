//! Homa with much outstanding between two hosts, without loss: packets for each call, and nothing
//! is sent again however long the queues are.

use std::collections::VecDeque;
use std::net::SocketAddr;

use tailcut_proto::homa::{Config, Endpoint, Metrics};
use tailcut_proto::node::Time;
use tailcut_proto::rpc::{Call, CallOptions, Event, RequestId, Rpc};
use tailcut_sim::fabric::port::Link;
use tailcut_sim::fabric::topology::{Switch, Topology};
use tailcut_sim::impair::Impairment;
use tailcut_sim::network::{Network, Turn};

const US: Time = 1000;
const SECOND: Time = 1_000_000_000;

/// A closed loop between a client and a server that takes one request after the other.
#[derive(Clone, Copy, Debug)]
struct Load {
    outstanding: usize,
    calls: usize,
    request_len: usize,
    reply_len: usize,
    /// Time that the server takes for each request.
    service_ns: u64,
    /// Links, Gbit/s.
    link: f64,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            outstanding: 64,
            calls: 20_000,
            request_len: 100,
            reply_len: 100,
            service_ns: 400,
            link: 100.0,
        }
    }
}

/// The application at both ends.
struct Application {
    load: Load,
    begun: usize,
    replied: usize,
    queue: VecDeque<RequestId>,
    is_working: bool,
}

impl Application {
    fn turn(&mut self, turn: &mut Turn<'_, Endpoint>) {
        let load = self.load;
        if turn.alarm.is_some() {
            let id = self.queue.pop_front().expect("a request is served");
            turn.node.reply(turn.now, id, vec![7; load.reply_len]).expect("its client waits");
            self.is_working = false;
        }
        while let Some(event) = turn.node.poll_event() {
            match event {
                Event::Request { id, .. } => self.queue.push_back(id),
                Event::Replied { payload, .. } => {
                    assert_eq!(payload.len(), load.reply_len);
                    self.replied += 1;
                    self.call(turn.node, turn.now);
                }
                Event::Failed { failure, .. } => {
                    panic!("{load:?}: a call failed: {failure}; {:?}", turn.node.metrics())
                }
                Event::Cancelled { .. } => panic!("a request was withdrawn"),
            }
        }
        if !self.is_working && !self.queue.is_empty() {
            self.is_working = true;
            turn.wake_in(load.service_ns, 0);
        }
    }

    fn call(&mut self, node: &mut Endpoint, now: Time) {
        if self.begun < self.load.calls {
            let payload = vec![5; self.load.request_len];
            let (target, options) = (address(1), CallOptions::default());
            let call = Call { target, payload, deadline: now + 10 * SECOND, context: 0, options };
            node.call(now, call).expect("it is within the limits");
            self.begun += 1;
        }
    }
}

fn address(place: u8) -> SocketAddr {
    ([10, 0, 0, place + 1], 8000).into()
}

/// Counters of the client and the server, and the datagrams that both have sent.
fn run(load: Load) -> ([Metrics; 2], u64) {
    let link = Link::new(load.link, 500);
    let topology = Topology { link, switch: Switch::default(), racks: None };
    let mut network = Network::over(&topology, 2, 1);
    for place in 0..2 {
        let config = Config { secret: [place + 1; 16], ..Config::default() };
        network.add(address(place), Endpoint::new(0, config), Impairment::NONE, 1);
        // What the queues before a device hold.
        network.limit_nic(place.into(), 200_000);
    }
    let (queue, is_working) = (VecDeque::new(), false);
    let mut application = Application { load, begun: 0, replied: 0, queue, is_working };
    // Both have been up for a while, as a server has; its requests need not be refused.
    network.run(SECOND, |_| {});
    for _ in 0..load.outstanding {
        application.call(network.node_mut(0), SECOND);
    }
    network.flush(0);
    while application.replied < load.calls && network.now() < 20 * SECOND {
        let until = network.now() + 100 * US;
        network.run(until, |turn| application.turn(turn));
    }
    assert_eq!(application.replied, load.calls, "every call is answered");
    let until = network.now() + SECOND;
    network.run(until, |turn| application.turn(turn));
    for place in 0..2 {
        assert_eq!(network.node(place).holdings(), Default::default(), "nothing is held for ever");
    }
    ([0, 1].map(|place| *network.node(place).metrics()), network.statistics().sent)
}

/// Bytes that are sent again and questions that are asked, in all.
fn check_quiet(what: &str, metrics: &[Metrics; 2]) {
    for (metrics, place) in metrics.iter().zip(["client", "server"]) {
        let found = (metrics.resent_bytes, metrics.resends, metrics.need_acks, metrics.duplicates);
        assert_eq!(found, (0, 0, 0, 0), "{what}, {place}: {metrics:?}");
    }
}

fn check_small(outstanding: usize) {
    let load = Load { outstanding, ..Load::default() };
    let (metrics, sent) = run(load);
    check_quiet(&format!("{outstanding} outstanding"), &metrics);
    let per_call = sent as f64 / load.calls as f64;
    assert!(per_call < 2.02, "{outstanding} outstanding: {per_call} datagrams a call");
}

#[test]
fn small_calls_are_two_datagrams_however_many_are_outstanding() {
    for outstanding in [1, 64, 256, 512, 1024, 4096] {
        check_small(outstanding);
    }
}

/// All at once, then nothing: there is no request left that could take acknowledgements along.
#[test]
fn a_burst_is_acknowledged_by_ranges() {
    let load = Load { outstanding: 4096, calls: 4096, ..Load::default() };
    let (metrics, sent) = run(load);
    check_quiet("4096 at once", &metrics);
    // A packet acknowledges no more than 16 by ranges, and one by its header.
    assert!(sent < 2 * 4096 + 4096 / 16 + 40, "{sent} datagrams");
}

#[test]
fn long_calls_of_a_cold_client_send_nothing_again() {
    for (outstanding, len) in [(16, 256_000), (16, 1_000_000), (64, 64_000), (256, 20_000)] {
        check_quiet(&format!("{outstanding} of {len} B"), &run_long(outstanding, len, 10.0).0);
    }
}

/// The queue before the device alone, 200 kB, holds more than the first timeout.
#[test]
fn on_a_slow_link_less_than_a_two_hundredth_is_sent_again() {
    for (outstanding, len) in [(16, 256_000), (8, 1_000_000), (256, 20_000)] {
        let (metrics, _) = run_long(outstanding, len, 1.0);
        let sum = |of: fn(&Metrics) -> u64| metrics.iter().map(of).sum::<u64>();
        let (again, all) = (sum(|one| one.resent_bytes), sum(|one| one.data_bytes_out));
        assert!(
            again * 200 < all,
            "{outstanding} of {len} B: {again} of {all} B again; {metrics:?}"
        );
    }
}

fn run_long(outstanding: usize, len: usize, link: f64) -> ([Metrics; 2], u64) {
    let calls = 10 * outstanding;
    run(Load { outstanding, calls, request_len: len, reply_len: len, link, ..Load::default() })
}

/// A server that is much slower than the first timeout of a client that does not know it.
#[test]
fn a_slow_server_is_not_asked_for_what_it_has_not_got_to() {
    let load = Load { outstanding: 1000, calls: 4000, service_ns: 20 * US, ..Load::default() };
    let (metrics, _) = run(load);
    check_quiet("20 ms of queue", &metrics);
}
