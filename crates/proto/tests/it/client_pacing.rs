//! Reaction of a client to a target that refuses for overload, or to a router that holds its call.

use std::net::SocketAddr;

use tailcut_proto::node::{GSO_BYTES_MAX, Node};
use tailcut_proto::r2p2::{Config, Endpoint};
use tailcut_proto::rpc::{Call, CallOptions, Rpc};
use tailcut_wire::r2p2::{DropReason, Flags, MessageType, Packet, ReplyRepr, RpcId, SackBody};
use zerocopy::IntoBytes;

use super::router_bench::MS;

struct Client {
    node: Endpoint,
    now: u64,
}

impl Client {
    fn new() -> Self {
        let config = Config { secret: [9; 16], ..Config::default() };
        Self { node: Endpoint::new(0, config), now: 1_000 * MS }
    }

    fn call(&mut self, idempotent: bool) {
        let call = Call {
            target: target(),
            payload: b"ping".to_vec(),
            deadline: self.now + 1_000 * MS,
            context: 0,
            options: CallOptions { idempotent, ..CallOptions::default() },
        };
        self.node.call(self.now, call).unwrap();
    }

    fn give(&mut self, from: SocketAddr, bytes: &[u8]) {
        self.node.handle_datagram(self.now, from.into(), &mut bytes.to_vec());
    }

    /// Lets time pass until something is due, and does that; nothing leaves.
    fn wait(&mut self) {
        self.now = self.now.max(self.node.poll_timeout().expect("a call has a timer"));
        self.node.handle_timeout(self.now);
    }

    /// The requests that leave now: the number and the id of each.
    fn sent(&mut self) -> Vec<(u16, RpcId)> {
        let mut buffer = vec![0; GSO_BYTES_MAX];
        let mut sent = Vec::new();
        while let Some(transmit) = self.node.poll_transmit(self.now, &mut buffer) {
            for bytes in buffer[..transmit.len].chunks(transmit.segment_len) {
                let packet = Packet::parse(bytes).unwrap();
                assert_eq!((transmit.to, packet.message_type), (target(), MessageType::Request));
                sent.push((packet.rid, packet.rpc_id().unwrap()));
            }
        }
        sent
    }
}

fn target() -> SocketAddr {
    SocketAddr::from(([10, 2, 0, 1], 8_000))
}

/// A DROP for overload that asks for 10 ms between calls.
fn refusal((rid, id): (u16, RpcId)) -> Vec<u8> {
    let repr = ReplyRepr { detail: 10_000_000, ..ReplyRepr::control(MessageType::Drop, rid, id) };
    [repr.header().as_bytes(), &[DropReason::Overload as u8]].concat()
}

/// An ACK of a router that holds a call for 20 ms.
fn held(call: (u16, RpcId)) -> Vec<u8> {
    held_for(call, 20 * MS)
}

fn held_for((rid, id): (u16, RpcId), expected_ns: u64) -> Vec<u8> {
    let repr = ReplyRepr {
        flags: Flags::HELD,
        detail: u32::try_from(expected_ns).unwrap(),
        ..ReplyRepr::control(MessageType::Ack, rid, id)
    };
    let sack = SackBody { base: 0.into(), granted: 1.into(), bitmap: [0; SackBody::BITMAP_LEN] };
    [repr.header().as_bytes(), sack.as_bytes()].concat()
}

/// The refusal finds it in the queue, for its timer went off in the same turn.
#[test]
fn a_refused_call_that_is_about_to_be_sent_again_waits_for_its_turn() {
    let mut client = Client::new();
    // They earn what a call that is tried again costs.
    (0..20).for_each(|_| client.call(true));
    let sent = client.sent();
    assert_eq!(sent.len(), 20);
    client.wait();
    client.give(target(), &refusal(sent[0]));
    assert_eq!(client.node.metrics().retried, 1);
    assert!(!client.sent().contains(&sent[0]), "its turn is later");
    let refused_at = client.now;
    while !client.sent().contains(&sent[0]) {
        client.wait();
    }
    let waited_ns = client.now - refused_at;
    assert!((5 * MS..=16 * MS).contains(&waited_ns), "{waited_ns}");
}

/// As an instrument, which offers its load whatever happens.
#[test]
fn a_client_that_does_not_pace_tries_nothing_again() {
    let config = Config { secret: [9; 16], is_paced: false, ..Config::default() };
    let mut client = Client { node: Endpoint::new(0, config), now: 1_000 * MS };
    (0..20).for_each(|_| client.call(true));
    let sent = client.sent();
    client.give(target(), &refusal(sent[0]));
    let metrics = client.node.metrics();
    assert_eq!((metrics.retried, metrics.refused), (0, 1));
}

/// It was sent twice, and each copy is refused.
#[test]
fn a_second_refusal_of_a_call_that_waits_for_its_turn_says_nothing_new() {
    let mut client = Client::new();
    (0..20).for_each(|_| client.call(true));
    let sent = client.sent();
    client.give(target(), &refusal(sent[0]));
    client.give(target(), &refusal(sent[0]));
    let metrics = client.node.metrics();
    assert_eq!((metrics.retried, metrics.refused, metrics.duplicates), (1, 0, 1));
    let refused_at = client.now;
    while !client.sent().contains(&sent[0]) {
        client.wait();
    }
    let waited_ns = client.now - refused_at;
    assert!((5 * MS..=16 * MS).contains(&waited_ns), "{waited_ns}");
}

#[test]
fn a_router_behind_the_target_may_hold_a_call() {
    let behind = SocketAddr::from(([10, 2, 0, 9], 8_000));
    for idempotent in [false, true] {
        for from in [target(), behind] {
            let mut client = Client::new();
            client.call(idempotent);
            let sent = client.sent();
            client.give(from, &held(sent[0]));
            let metrics = client.node.metrics();
            assert_eq!((metrics.told_held, metrics.protocol_violation), (1, 0), "{from}");
            let told_at = client.now;
            while client.sent().is_empty() {
                client.wait();
            }
            assert!(client.now >= told_at + 20 * MS, "{from}: after {}", client.now - told_at);
        }
    }
}

/// As while all servers are paused, of which the router that says how long it may take knows
/// nothing.
#[test]
fn a_call_that_is_held_for_long_asks_ever_less_often() {
    let mut client = Client::new();
    client.call(false);
    let mut sent = client.sent();
    let (called_at, call) = (client.now, sent[0]);
    let mut asked = 0;
    while client.now < called_at + 500 * MS {
        if sent.contains(&call) {
            asked += 1;
            client.give(target(), &held_for(call, MS));
        }
        client.wait();
        sent = client.sent();
    }
    assert!((6..=14).contains(&asked), "{asked}");
}

/// The packet that placed it, or its reply, may be lost.
#[test]
fn a_held_call_asks_twice_more_before_its_deadline() {
    for held_after in [100 * MS, 400 * MS, 900 * MS] {
        let mut client = Client::new();
        client.call(false);
        let call = client.sent()[0];
        let deadline = client.now + 1_000 * MS;
        client.now += held_after;
        client.give(target(), &held_for(call, MS));
        let mut asked = 0;
        while client.now < deadline && asked < 2 {
            client.wait();
            asked += client.sent().iter().filter(|&&sent| sent == call).count();
        }
        assert_eq!(asked, 2, "held after {held_after}");
    }
}

/// A server has the call, and nobody else may hold it.
#[test]
fn who_has_nothing_to_do_with_a_call_does_not_hold_it() {
    let mut client = Client::new();
    client.call(false);
    let (rid, id) = client.sent()[0];
    let ack = ReplyRepr::control(MessageType::Ack, rid, id).header();
    let sack = SackBody { base: 1.into(), granted: 1.into(), bitmap: [0; SackBody::BITMAP_LEN] };
    client.give(SocketAddr::from(([10, 2, 0, 3], 1)), &[ack.as_bytes(), sack.as_bytes()].concat());
    client.give(SocketAddr::from(([10, 2, 0, 4], 1)), &held((rid, id)));
    let metrics = client.node.metrics();
    assert_eq!((metrics.told_held, metrics.protocol_violation), (0, 1));
}
