//! Hosts with two addresses: what answers a datagram leaves from the address where that arrived.

use std::net::SocketAddr;

use crate::pair::Transport;
use tailcut_proto::node::Time;
use tailcut_proto::rpc::{Call, CallOptions, Event};
use tailcut_proto::{homa, r2p2};
use tailcut_sim::impair::Impairment;
use tailcut_sim::network::{Network, Turn};

#[test]
fn r2p2_answers_at_both_addresses() {
    check::<r2p2::Endpoint>(64, Impairment::default());
}

#[test]
fn homa_answers_at_both_addresses() {
    check::<homa::Endpoint>(64, Impairment::default());
}

/// Grants, resends and ACKs too.
#[test]
fn r2p2_mends_losses_at_both_addresses() {
    check::<r2p2::Endpoint>(60_000, lossy());
}

#[test]
fn homa_mends_losses_at_both_addresses() {
    check::<homa::Endpoint>(60_000, lossy());
}

/// Calls of `len` bytes, and as many back, to either address of a server by a client that has two
/// itself: each is answered from the address that was called.
fn check<E: Transport>(len: usize, impairment: Impairment) {
    let mut network = Network::<E>::new();
    for (place, secret) in [(0, [1; 16]), (1, [2; 16])] {
        let node = E::start(E::config(secret));
        network.add(address(1 + place, 1), node, impairment, u64::from(place));
        network.add_address(usize::from(place), address(1 + place, 2).ip());
    }
    let mut answered = Vec::new();
    // What is lost and sent again so soon after the start may have run before it.
    network.run(PATIENCE_NS, |_| {});
    for round in 0..ROUNDS {
        for target in [address(2, 1), address(2, 2)] {
            let (now, context) = (network.local(0), round);
            let deadline = now + PATIENCE_NS;
            let call = Call { target, payload: vec![7; len], deadline, context, options: OPTIONS };
            network.node_mut(0).call(now, call).expect("a call");
        }
        network.flush(0);
        network.run((round + 2) * PATIENCE_NS, |turn| take_events(turn, &mut answered));
    }
    answered.sort_unstable();
    let called = (0..ROUNDS).flat_map(|round| [1, 2].map(|host| (round, address(2, host))));
    assert_eq!(answered, called.collect::<Vec<_>>());
    assert_eq!(network.statistics().stray, 0);
}

fn take_events<E: Transport>(turn: &mut Turn<'_, E>, answered: &mut Vec<(u64, SocketAddr)>) {
    while let Some(event) = turn.node.poll_event() {
        match event {
            Event::Request { id, payload, .. } => {
                turn.node.reply(turn.local, id, payload).expect("a reply");
            }
            Event::Replied { context, server, .. } => answered.push((context, server)),
            Event::Failed { failure, .. } => panic!("a call failed: {failure}"),
            Event::Cancelled { .. } => {}
        }
    }
}

fn lossy() -> Impairment {
    Impairment { loss: 0.02, delay_ns: 5_000, ..Impairment::NONE }
}

fn address(host: u8, interface: u8) -> SocketAddr {
    ([10, interface, 0, host], 9000).into()
}

const OPTIONS: CallOptions = CallOptions { idempotent: false, fixed: false, v1: false };

const ROUNDS: u64 = 20;

/// Longest time that a call, and the run of each round, may take.
const PATIENCE_NS: Time = 1_000_000_000;
