//! Packets of strangers and broken peers, and that others are served as if there were none.

use tailcut_proto::node::{GSO_BYTES_MAX, Node};
use tailcut_proto::router::Speaks;
use tailcut_proto::rpc::{Event, Rpc};
use tailcut_wire::r2p2::{
    FeedbackBody, MessageType, Packet, ReplyRepr, RequestHeader, RequestRepr, Route, RpcId,
    SessionId,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::hardening::{Lone, request};
use crate::router_bench::{Ask, Bench, client as rclient};

const ROUTER: &str = "10.0.0.9:9000";
const CLIENT: &str = "10.0.0.1:53";

/// A server that trusts nobody but loopback, as by default.
fn server() -> Lone {
    Lone::with(|_| {})
}

fn probe(placed: u32, token: u64) -> Vec<u8> {
    let control = RequestRepr::control(MessageType::Probe, 0, RpcId(0));
    let repr = RequestRepr { token, ..control };
    [repr.header().as_bytes(), &placed.to_be_bytes()].concat()
}

/// Route block that a router writes into a request of [`CLIENT`].
fn route(placement: u32) -> Route {
    let client_ip = std::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets();
    let (routed, client_port) = (1, 53.into());
    Route { routed, client_port, client_ip, placement: placement.into(), ..Route::default() }
}

fn with_token(mut bytes: Vec<u8>, token: u64) -> Vec<u8> {
    RequestHeader::mut_from_prefix(&mut bytes).unwrap().0.token.set(token);
    bytes
}

/// The token in the last packet to `to`.
fn token_told(server: &Lone, to: &str) -> u64 {
    let last = server.sent.iter().rev().find(|(at, _)| at.to_string() == to);
    Packet::parse(&last.expect("it is answered").1).unwrap().token()
}

/// The last report to `to`.
fn report(server: &Lone, to: &str) -> Option<FeedbackBody> {
    let sent = server.sent.iter().rev().filter(|(at, _)| at.to_string() == to);
    sent.filter_map(|(_, bytes)| Packet::parse(bytes).unwrap().feedback().copied()).next()
}

/// A router that has shown that it receives at its address, counted from placement 0.
fn introduce(server: &mut Lone, router: &str) {
    server.give(router, &probe(0, 0));
    let token = token_told(server, router);
    server.give(router, &probe(0, token));
    assert!(report(server, router).is_some());
}

/// Requests that the report says to be at the server.
fn held(server: &Lone) -> (u32, u32) {
    let body = report(server, ROUTER).expect("the router has a report");
    (body.placement_seen.get(), body.received.get() - body.concluded.get())
}

#[test]
fn probes_of_strangers_keep_no_router_out() {
    let mut server = server();
    for place in 0..16 {
        let stranger = format!("10.9.0.{place}:99");
        let before = server.sent.len();
        server.give(&stranger, &probe(1, 0));
        let out: usize = server.sent[before..].iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(out <= 3 * probe(1, 0).len() && report(&server, &stranger).is_none());
        server.give(&stranger, &probe(1, 12_345));
        assert!(report(&server, &stranger).is_none(), "a made-up token");
    }
    introduce(&mut server, ROUTER);
}

#[test]
fn whom_a_stranger_names_gets_nothing() {
    let mut server = server();
    server.give("192.0.2.9:7", &request(1, 0, 4, b"ping", route(1)));
    assert_eq!(server.runs, 0);
    let to: Vec<String> = server.sent.iter().map(|(to, _)| to.to_string()).collect();
    assert_eq!(to, ["192.0.2.9:7"], "the datagram's source alone hears of it");
    introduce(&mut server, ROUTER);
    server.give(ROUTER, &request(1, 0, 4, b"ping", route(1)));
    assert_eq!(server.runs, 1);
    assert!(server.sent.iter().any(|(to, _)| to.to_string() == CLIENT));
}

/// A request of two packets, of which the second never comes.
#[test]
fn a_half_request_takes_no_place_at_the_router() {
    let mut server = server();
    introduce(&mut server, ROUTER);
    let first = |session, placement| request(session, 0, 1388, &[0; 1380], route(placement));
    server.give(ROUTER, &first(1, 1));
    assert_eq!(server.node.holdings().partials, 0, "the address has not been validated");
    assert_eq!(held(&server), (1, 0));
    let token = token_told(&server, CLIENT);
    for placement in 2..10 {
        server.give(ROUTER, &with_token(first(placement.into(), placement), token));
        assert_eq!(held(&server), (placement, 0));
    }
    assert_eq!(server.node.holdings().partials, 8);
    server.pass(60_000_000);
    assert_eq!(server.node.holdings().partials, 0, "its client is gone");
}

#[test]
fn a_client_that_is_known_to_hear_begins_a_long_request_without_its_token() {
    let mut server = server();
    introduce(&mut server, ROUTER);
    let first = |session, placement| request(session, 0, 1388, &[0; 1380], route(placement));
    server.give(ROUTER, &first(1, 1));
    let token = token_told(&server, CLIENT);
    server.give(ROUTER, &with_token(first(1, 2), token));
    server.give(ROUTER, &first(2, 3));
    assert_eq!(server.node.holdings().partials, 2);
}

/// From whatever ports it does.
#[test]
fn who_begins_what_it_does_not_end_leaves_others_room() {
    let mut server = Lone::with(|config| config.serving.partials_max = 16);
    let first = |session| request(session, 0, 1388, &[0; 1380], Route::default());
    let begin = |server: &mut Lone, from: &str, session| {
        server.give(from, &first(session));
        server.node.holdings().partials
    };
    for run in 0..2 {
        for place in 0..40 {
            let from = format!("127.0.0.8:{}", 1 + place % 8);
            begin(&mut server, &from, 100 * run + place);
        }
        let held = server.node.holdings().partials;
        assert_eq!(held, 13, "three times what is left, and one; what has gone counts no more");
        assert_eq!(begin(&mut server, "127.0.0.9:1", 1_000 + run), 14);
        assert_eq!(begin(&mut server, "127.0.1.9:1", 2_000 + run), 15);
        server.pass(60_000_000);
        assert_eq!(server.node.holdings().partials, 0);
    }
}

#[test]
fn a_request_of_several_packets_counts_when_it_is_complete() {
    let mut server = server();
    introduce(&mut server, ROUTER);
    server.give(ROUTER, &request(1, 0, 1388, &[0; 1380], route(1)));
    let token = token_told(&server, CLIENT);
    let mut now = server.now;
    let mut give = |server: &mut Lone, from: &str, bytes: &[u8]| {
        now += 1000;
        server.node.handle_datagram(
            now,
            from.parse::<std::net::SocketAddr>().unwrap().into(),
            &mut bytes.to_vec(),
        );
    };
    let first = with_token(request(1, 0, 1388, &[0; 1380], route(1)), token);
    give(&mut server, ROUTER, &first);
    let second = RequestRepr {
        segment: tailcut_wire::r2p2::Segment {
            message_len: 1388,
            segment_len: 1380,
            index: 1,
            count: 2,
        },
        ..RequestRepr::control(MessageType::Request, 1, RpcId::new(SessionId(1), 0))
    };
    give(&mut server, CLIENT, &[second.header().as_bytes(), &[0; 8]].concat());
    let Some(Event::Request { id, .. }) = server.node.poll_event() else { panic!("it runs") };
    give(&mut server, ROUTER, &probe(1, 0));
    server.give(CLIENT, b"");
    assert_eq!(held(&server), (1, 1));
    server.node.reply(server.now, id, b"pong".to_vec()).unwrap();
    server.give(CLIENT, b"");
    assert_eq!(held(&server), (1, 0));
}

#[test]
fn a_cancel_from_who_has_no_part_changes_nothing() {
    for by in [ROUTER, CLIENT] {
        let mut server = server();
        introduce(&mut server, ROUTER);
        introduce(&mut server, "10.0.0.8:9000");
        let now = server.now;
        let mut give = |from: &str, mut bytes: Vec<u8>| {
            let path = from.parse::<std::net::SocketAddr>().unwrap().into();
            server.node.handle_datagram(now, path, &mut bytes);
            server.node.poll_event()
        };
        let cancel = || {
            let id = RpcId::new(SessionId(1), 0);
            RequestRepr::control(MessageType::Cancel, 1, id).header().as_bytes().to_vec()
        };
        let asked = give(ROUTER, request(1, 0, 4, b"ping", route(1)));
        assert!(matches!(asked, Some(Event::Request { .. })), "{asked:?}");
        for stranger in ["10.0.0.1:54", "192.0.2.1:53", "10.0.0.8:9000"] {
            assert!(give(stranger, cancel()).is_none());
        }
        assert!(matches!(give(by, cancel()), Some(Event::Cancelled { .. })));
    }
}

/// A jump of the sequences, and of the floor with it, ends thousands of calls: some with each
/// packet.
#[test]
fn a_floor_that_jumps_is_followed_in_small_steps() {
    let mut server = server();
    let ask = |sequence, floor: u32| {
        let mut bytes = request(1, sequence, 4, b"ping", Route::default());
        RequestHeader::mut_from_prefix(&mut bytes).unwrap().0.floor.set(floor);
        bytes
    };
    for sequence in 0..1000 {
        server.give(CLIENT, &ask(sequence, 0));
    }
    assert_eq!(server.node.holdings().requests, 1000);
    let mut before = 1000;
    for sequence in 1000..1200 {
        server.give(CLIENT, &ask(sequence, sequence));
        let kept = server.node.holdings().requests;
        assert!(before + 1 - kept <= 8, "{before} and then {kept}");
        before = kept;
    }
    assert_eq!(before, 1, "the last");
}

/// Calls with deadlines of a minute that are over at once.
#[test]
fn a_router_forgets_calls_that_have_ended() {
    let mut bench = Bench::new(Speaks::Extension, 4, |config| {
        config.policy = "rr".parse().expect("a policy");
    });
    let deadline_us = 60_000_000;
    let ask = |sequence: u32| {
        let id = RpcId::new(SessionId(1), sequence).0;
        let mut bytes = Ask { deadline_us, ..Ask::id(id) }.bytes();
        RequestHeader::mut_from_prefix(&mut bytes).unwrap().0.floor.set(sequence);
        bytes
    };
    for sequence in 0..45_000 {
        bench.send(rclient(), &ask(sequence));
        bench.advance(100_000);
        let known = bench.router.table_len();
        assert!(known < 1000, "{known} ids after {sequence} calls, 70 ms of them");
    }
    bench.advance(1_000_000_000);
    assert!(bench.router.table_len() <= 1, "{}", bench.router.table_len());
}

/// A reply, an ACK or a refusal of a call that another server has acknowledged.
#[test]
fn answers_from_who_has_no_part_change_nothing() {
    let mut client = server();
    let (now, target) = (client.now, ROUTER.parse().unwrap());
    let options = tailcut_proto::rpc::CallOptions { idempotent: false, fixed: false, v1: false };
    let call = tailcut_proto::rpc::Call {
        target,
        payload: vec![1; 4],
        deadline: now + 1_000_000_000,
        context: 7,
        options,
    };
    client.node.call(now, call).unwrap();
    client.give("10.0.0.2:8000", b"");
    let (rid, rpc_id) = {
        let packet = Packet::parse(&client.sent[0].1).unwrap();
        (packet.rid, packet.rpc_id().unwrap())
    };
    let say = |kind, body: &[u8]| {
        [ReplyRepr::control(kind, rid, rpc_id).header().as_bytes(), body].concat()
    };
    let have_it = [&[0, 1, 0, 1][..], &[0; 32]].concat();
    let reply = {
        let segment =
            tailcut_wire::r2p2::Segment { message_len: 4, segment_len: 1380, index: 0, count: 1 };
        let repr = ReplyRepr { segment, ..ReplyRepr::control(MessageType::Response, rid, rpc_id) };
        [repr.header().as_bytes(), b"pong"].concat()
    };
    let mut buffer = vec![0; GSO_BYTES_MAX];
    let mut tell = |from: &str, mut bytes: Vec<u8>| {
        let path = from.parse::<std::net::SocketAddr>().unwrap().into();
        client.node.handle_datagram(now, path, &mut bytes);
        while client.node.poll_transmit(now, &mut buffer).is_some() {}
        client.node.poll_event()
    };
    assert!(tell("10.0.0.2:8000", say(MessageType::Ack, &have_it)).is_none());
    for stranger in ["10.0.0.3:8000", "10.0.0.2:8001"] {
        assert!(tell(stranger, reply.clone()).is_none());
        assert!(tell(stranger, say(MessageType::Drop, &[1])).is_none());
        assert!(tell(stranger, say(MessageType::Ack, &[0; 36])).is_none());
    }
    assert!(matches!(tell("10.0.0.2:8000", reply), Some(Event::Replied { .. })));
}
