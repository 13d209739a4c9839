//! Clients whose sockets are connected to whom they call: what they hear and send, and what becomes
//! of them when the address goes that they send from.

use std::net::SocketAddr;

use tailcut_net::clock::Clock;
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::{Driver, Wait};
use tailcut_net::open::{Opening, Protocol};
use tailcut_net::udp::{SegmentedSend, UdpPort};
use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::node::Transmit;
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};

use crate::toy::{self, PATIENCE_NS, V4, V6};
use crate::veth::{VethPair, enter, run};

#[test]
fn a_connected_port_hears_its_peer_alone_and_sends_as_others_do() {
    for address in [V4, V6] {
        let [mut port, mut peer, mut stranger] =
            [(); 3].map(|()| toy::port(address, SegmentedSend::On));
        let [to_port, to_peer, to_stranger] =
            [&port, &peer, &stranger].map(|port| port.local_address());
        port.connect(to_peer).expect("a route");
        let batch = Transmit { segment_len: 100, ..Transmit::single(to_peer, 250) };
        port.send(&Transmit::single(to_peer, 30), &[1; 30]);
        port.send(&batch, &[2; 250]);
        for (len, priority) in [(40, 5), (50, 0)] {
            port.frame(0, 0).payload()[..len].fill(3);
            port.queue(&Transmit { priority, ..Transmit::single(to_peer, len) });
        }
        port.flush();
        assert_eq!(receive(&mut peer, 6), [30, 100, 100, 50, 40, 50].map(|len| (to_port, len)));
        port.send(&Transmit::single(to_stranger, 60), &[4; 60]);
        assert_eq!(receive(&mut stranger, 1), [(to_port, 60)], "by its name");
        stranger.send(&Transmit::single(to_port, 70), &[5; 70]);
        peer.send(&Transmit::single(to_port, 80), &[6; 80]);
        assert_eq!(receive(&mut port, 1), [(to_peer, 80)]);
        assert_eq!(port.metrics().datagrams_in, 1);
    }
}

/// A router's servers reply to who has asked the router; over Homa nobody does but who was asked.
#[test]
fn clients_of_homa_alone_hear_only_whom_they_call() {
    for (protocol, heard) in [(Protocol::R2p2, 1), (Protocol::Homa, 0)] {
        let mut target = toy::port(V4, SegmentedSend::On);
        let mut client = client(protocol, target.local_address());
        let local = {
            call(&mut client, target.local_address());
            receive(&mut target, 1)[0].0
        };
        toy::port(V4, SegmentedSend::On).send(&Transmit::single(local, 3), b"hey");
        target.send(&Transmit::single(local, 3), b"you");
        let end = Clock.now() + PATIENCE_NS;
        while client.port(0).metrics().datagrams_in < 1 + heard {
            client.turn().expect("a turn");
            assert!(Clock.now() < end, "{protocol:?}");
        }
        client.turn().expect("a turn");
        assert_eq!(client.port(0).metrics().datagrams_in, 1 + heard, "{protocol:?}");
    }
}

/// A host moves to another address while a client is at work: the call that finds out goes from
/// there.
#[test]
fn a_client_whose_address_goes_calls_from_another() {
    let Some(hosts) = VethPair::create() else { return };
    let near = &hosts.near;
    run("ip", &format!("-n {near} addr add 10.77.0.3/16 dev v{near}")).expect("a second address");
    enter(&hosts.far);
    let opening = Opening { protocol: Protocol::Homa, ..Opening::default() };
    let mut server = Driver::new(Wait::BusyPoll).expect("a driver");
    opening.add(&mut server, "10.77.0.2:0".parse().expect("an address")).expect("a port");
    let target = server.port(0).local_address();
    enter(near);
    let mut client = client(Protocol::Homa, target);
    let first = answered_from(&mut client, &mut server, target);
    assert_eq!(first.ip(), "10.77.0.1".parse::<std::net::IpAddr>().expect("an address"));
    assert_eq!(answered_from(&mut client, &mut server, target), first, "one port");
    run("ip", &format!("-n {near} addr del 10.77.0.1/24 dev v{near}")).expect("it goes");
    let second = answered_from(&mut client, &mut server, target);
    assert_eq!(second.ip(), "10.77.0.3".parse::<std::net::IpAddr>().expect("an address"));
}

/// A driver of an endpoint that only calls.
fn client(protocol: Protocol, target: SocketAddr) -> Driver<Endpoint> {
    let mut opening = Opening { protocol, ..Opening::default() };
    opening.r2p2.serving.is_enabled = false;
    opening.homa.serving.is_enabled = false;
    let mut driver = Driver::new(Wait::BusyPoll).expect("a driver");
    opening.add_towards(&mut driver, target).expect("a port");
    driver
}

fn call(client: &mut Driver<Endpoint>, target: SocketAddr) {
    let now = client.clock().now();
    let options = CallOptions { idempotent: true, ..CallOptions::default() };
    let deadline = now + PATIENCE_NS;
    let call = Call { target, payload: vec![1; 8], deadline, context: 0, options };
    client.node_mut(0).call(now, call).expect("a call");
    client.flush_all(now);
}

/// Makes a call; tells where the server saw it come from.
fn answered_from(
    client: &mut Driver<Endpoint>,
    server: &mut Driver<Endpoint>,
    target: SocketAddr,
) -> SocketAddr {
    call(client, target);
    let mut seen = None;
    loop {
        server
            .turn_with(|_, node, now| {
                while let Some(event) = node.poll_event() {
                    if let Event::Request { id, client, payload, .. } = event {
                        seen = Some(client);
                        node.reply(now, id, payload).expect("a reply");
                    }
                }
            })
            .expect("a turn");
        client.turn().expect("a turn");
        match client.node_mut(0).poll_event() {
            Some(Event::Replied { .. }) => return seen.expect("it was served"),
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }
}

/// So many datagrams: from whom, and how long.
fn receive(port: &mut UdpPort, count: usize) -> Vec<(SocketAddr, usize)> {
    let mut received = Vec::new();
    let end = Clock.now() + PATIENCE_NS;
    while received.len() < count {
        port.recv_burst(|path, bytes| received.push((path.peer, bytes.len()))).expect("a receive");
        assert!(Clock.now() < end, "{received:?}");
    }
    received
}
