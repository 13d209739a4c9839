//! Replies that come back through a router: what it asks servers for, forwards and drops.

use std::net::SocketAddr;

use tailcut_proto::node::{Node, Source};
use tailcut_proto::router::{FilterAt, Forward, RouterConfig, Speaks};
use tailcut_wire::r2p2::{
    CloneMark, EXTENDED_LEN, Flags, MessageType, Packet, ReplyRepr, RpcId, Segment, SessionId,
};

use crate::router_bench::{Ask, Bench, Sent, client, route, server};

fn filtering(config: &mut RouterConfig) {
    config.policy = "netclone".parse().unwrap();
    config.forward = Forward::Keep;
    config.filter = FilterAt::Router;
    config.filter_len = 1;
}

fn bench() -> Bench {
    Bench::new(Speaks::Extension, 2, filtering)
}

fn ask(id: u64) -> Ask {
    Ask { flags: Flags::IDEMPOTENT, ..Ask::id(id) }
}

/// A reply of four bytes on its way back.
fn returned(id: u64, mark: CloneMark, waiting: u16) -> Vec<u8> {
    returned_to(client(), id, mark, waiting)
}

fn returned_to(client: SocketAddr, id: u64, mark: CloneMark, waiting: u16) -> Vec<u8> {
    let repr = ReplyRepr {
        segment: Segment { message_len: 4, segment_len: 1_400, ..Segment::CONTROL },
        flags: mark.bits(),
        server_load: waiting + 1,
        server_waiting: waiting,
        ..ReplyRepr::control(MessageType::Response, id as u16, RpcId(id))
    };
    let mut bytes = vec![0; 76];
    repr.emit_returned(client, &mut bytes).copy_from_slice(b"pong");
    bytes
}

/// Packets that a client must get of it.
fn forwarded(id: u64, mark: CloneMark, from: u16) -> Vec<Sent> {
    let mut bytes = returned(id, mark, 0);
    bytes.drain(EXTENDED_LEN..EXTENDED_LEN + 24);
    bytes[1] = 48;
    assert!(Packet::parse(&bytes).unwrap().route().is_none());
    vec![Sent { to: client(), from: Source::Spoofed(server(from)), bytes }]
}

#[test]
fn both_copies_are_asked_back_and_what_is_not_cloned_is_not() {
    let mut bench = bench();
    let sent = bench.send(client(), &ask(7).bytes());
    assert_eq!(sent.iter().map(|sent| route(&sent.bytes).returns).collect::<Vec<_>>(), [1, 1]);
    let once = bench.send(client(), &Ask::id(8).bytes());
    assert_eq!(once.iter().map(|sent| route(&sent.bytes).returns).collect::<Vec<_>>(), [0]);
}

#[test]
fn a_copy_that_the_client_marks_is_not_asked_back() {
    let mut bench = Bench::new(Speaks::Extension, 2, |config| {
        filtering(config);
        config.policy = "random".parse().unwrap();
    });
    bench.send(client(), &ask(7).bytes());
    let copy = Ask { flags: Flags::IDEMPOTENT | CloneMark::Copy.bits(), ..Ask::id(7) };
    let sent = bench.send(client(), &copy.bytes());
    assert_eq!(sent.iter().map(|sent| route(&sent.bytes).returns).collect::<Vec<_>>(), [0]);
}

#[test]
fn nothing_is_asked_back_where_the_client_filters() {
    let mut bench = Bench::new(Speaks::Extension, 2, |config| {
        filtering(config);
        config.filter = FilterAt::Client;
    });
    let sent = bench.send(client(), &ask(7).bytes());
    assert_eq!(sent.iter().map(|sent| route(&sent.bytes).returns).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(bench.send(server(0), &returned(7, CloneMark::Original, 0)), []);
    assert_eq!(bench.metrics().replies_stranger, 1);
}

#[test]
fn the_first_reply_goes_on_from_its_server_and_the_second_is_dropped() {
    let mut bench = bench();
    let first = bench.send(server(1), &returned(7, CloneMark::Copy, 0));
    assert_eq!(first, forwarded(7, CloneMark::Copy, 1));
    assert_eq!(bench.send(server(0), &returned(7, CloneMark::Original, 0)), []);
    let metrics = bench.metrics();
    assert_eq!((metrics.replies_forwarded, metrics.replies_filtered), (1, 1));
}

#[test]
fn two_calls_of_one_cell_lose_no_first_reply() {
    let mut bench = bench();
    let mut count = |id| bench.send(server(0), &returned(id, CloneMark::Original, 0)).len();
    // There are two cells. Each call's first passes; which seconds do follows from the cells.
    let firsts: usize = (1..=100).map(&mut count).sum();
    assert_eq!(firsts, 100);
    let metrics = bench.metrics();
    assert_eq!((metrics.replies_filtered, metrics.filter_evicted), (0, 98));
}

#[test]
fn a_reply_that_is_no_clones_is_not_judged() {
    let mut bench = bench();
    for _ in 0..2 {
        let sent = bench.send(server(0), &returned(7, CloneMark::Single, 0));
        assert_eq!(sent, forwarded(7, CloneMark::Single, 0));
    }
}

#[test]
fn the_load_of_a_dropped_reply_counts() {
    let mut bench = bench();
    bench.send(server(0), &returned(7, CloneMark::Original, 0));
    bench.send(server(1), &returned(7, CloneMark::Copy, 3));
    let waiting = bench.router.servers().map(|server| server.waiting).collect::<Vec<_>>();
    assert_eq!(waiting, [0, 3]);
    // And the next request is not cloned: somebody waits at one of the two.
    assert_eq!(bench.send(client(), &ask(8).bytes()).len(), 1);
    bench.send(server(1), &returned(9, CloneMark::Copy, 0));
    assert_eq!(bench.send(client(), &ask(10).bytes()).len(), 2);
}

#[test]
fn a_router_that_restarts_drops_no_first_reply() {
    let (mut before, mut after) = (bench(), bench());
    before.send(server(0), &returned(7, CloneMark::Original, 0));
    // The other copy's reply finds a new router: it passes, and the client knows it by its id.
    assert_eq!(after.send(server(1), &returned(7, CloneMark::Copy, 0)).len(), 1);
    assert_eq!(after.send(server(1), &returned(8, CloneMark::Copy, 0)).len(), 1);
}

/// A cell keeps an id whose second reply never came: it is no call's of another session or of
/// another client, though the rest is equal.
#[test]
fn a_client_that_restarts_loses_no_first_reply() {
    let mut bench = bench();
    let other = SocketAddr::new(client().ip(), client().port() + 1);
    for sequence in 1..=100 {
        for (session, to) in [(1, client()), (2, client()), (2, other), (1, other)] {
            let id = RpcId::new(SessionId(session), sequence).0;
            let reply = returned_to(to, id, CloneMark::Original, 0);
            assert_eq!(bench.send(server(0), &reply).len(), 1, "{session} {sequence} {to}");
        }
    }
    assert_eq!(bench.metrics().replies_filtered, 0);
}

#[test]
fn replies_of_strangers_and_for_nobody_go_nowhere() {
    let mut bench = bench();
    assert_eq!(bench.send(client(), &returned(7, CloneMark::Original, 0)), []);
    let mut nobody = returned(7, CloneMark::Original, 0);
    nobody[48..66].fill(0);
    assert_eq!(bench.send(server(0), &nobody), []);
    let mut direct = returned(7, CloneMark::Original, 0);
    direct.drain(EXTENDED_LEN..EXTENDED_LEN + 24);
    direct[1] = 48;
    assert_eq!(bench.send(server(0), &direct), []);
    let metrics = bench.metrics();
    assert_eq!(metrics.replies_stranger, 1);
    assert_eq!(metrics.malformed.client_address, 1);
    assert_eq!((metrics.unexpected, metrics.replies_forwarded), (1, 0));
}

#[test]
fn a_reply_for_half_an_address_goes_nowhere() {
    let mut bench = bench();
    // Of the client's route: address or port.
    for half in [48..64, 64..66] {
        let mut bytes = returned(7, CloneMark::Original, 0);
        bytes[half].fill(0);
        assert_eq!(bench.send(server(0), &bytes), []);
    }
    let metrics = bench.metrics();
    assert_eq!((metrics.malformed.client_address, metrics.replies_forwarded), (2, 0));
}

/// It stands for no other: the second, which finds room, is the first to go on.
#[test]
fn a_reply_that_finds_no_room_is_dropped_before_it_is_judged() {
    let mut bench = Bench::new(Speaks::Extension, 2, |config| {
        filtering(config);
        config.outbox_len_max = 1;
    });
    for id in [6, 7] {
        let Bench { router, now } = &mut bench;
        let mut bytes = returned(id, CloneMark::Original, 0);
        router.handle_datagram(*now, server(0).into(), &mut bytes);
    }
    assert_eq!((bench.drain().len(), bench.metrics().outbox_full), (1, 1));
    let second = bench.send(server(1), &returned(7, CloneMark::Copy, 0));
    assert_eq!(second, forwarded(7, CloneMark::Copy, 1));
}
