//! Streams over an endpoint that the test plays: which messages are sent, how those of peers are
//! answered, and what ends a stream.

use std::collections::VecDeque;
use std::net::SocketAddr;

use tailcut_proto::node::{Node, Time};
use tailcut_proto::rpc::{Call, CallId, DropReason, Failure, RequestId, Rpc};
use tailcut_proto::stream::{Config, Fault, Holdings, Metrics, StreamId, Streams};
use tailcut_wire::stream::{
    BLOCKED, FIN, FROM_OPENER, MAGIC, Message, MessageHeader, MessageKind, Reply, ReplyHeader,
    Status,
};
use zerocopy::IntoBytes;

use crate::stream_support::Fake;

const SECOND: Time = 1_000_000_000;
/// Window of the peers of these tests.
const WINDOW: u64 = 1 << 20;
/// Window of this side at first.
const WINDOW_MIN: u64 = 16 << 10;
/// Number that the peers of these tests draw.
const THEIRS: u64 = 77;

/// One side, and everything that its peer does.
struct Side {
    streams: Streams<Fake>,
    fake: Fake,
    now: Time,
}

/// Contents of a message: kind, flags, offset, limit, data.
type Said = (MessageKind, u8, u64, u64, Vec<u8>);

fn peer(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 9000))
}

fn message(
    kind: MessageKind,
    flags: u8,
    numbers: (u64, u64),
    (offset, limit): (u64, u64),
    data: &[u8],
) -> Vec<u8> {
    let header = MessageHeader {
        magic: MAGIC.into(),
        kind: kind as u8,
        flags,
        reserved: [0; 2],
        opener: numbers.0.into(),
        acceptor: numbers.1.into(),
        offset: offset.into(),
        limit: limit.into(),
    };
    [header.as_bytes(), data].concat()
}

fn taken(acceptor: u64, limit: u64) -> Vec<u8> {
    ReplyHeader::new(Reply { status: Status::Taken, acceptor, limit }).as_bytes().to_vec()
}

fn said((_, call): &(CallId, Call)) -> Said {
    let Message { header, kind, data } = Message::parse(&call.payload).expect("a message");
    (kind, header.flags, header.offset.get(), header.limit.get(), data.to_vec())
}

impl Side {
    fn new(adjust: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config { secret: [5; 16], ..Config::default() };
        adjust(&mut config);
        let fake = Fake::default();
        Self { streams: Streams::new(fake.clone(), config), fake, now: SECOND }
    }

    /// Lets the streams see what has happened and send what they have.
    fn turn(&mut self) {
        self.streams.handle_timeout(self.now);
        assert!(self.streams.poll_transmit(self.now, &mut []).is_none());
    }

    fn wait(&mut self, span_ns: Time) {
        self.now += span_ns;
        self.turn();
    }

    /// The one message that is sent now.
    fn sent(&mut self) -> (CallId, Call) {
        self.turn();
        self.fake.next_call().expect("a message")
    }

    fn sends_nothing(&mut self) {
        self.turn();
        if let Some(call) = self.fake.next_call() {
            panic!("it sends {:?}", said(&call));
        }
    }

    fn answer(&mut self, call: &(CallId, Call), result: Result<Vec<u8>, Failure>) {
        self.fake.end(call, result);
        self.turn();
    }

    /// A message of a peer, and what it is answered.
    fn hears(&mut self, from: SocketAddr, message: Vec<u8>) -> Result<Reply, DropReason> {
        self.fake.request(from, message);
        self.turn();
        self.fake
            .next_answer()
            .expect("an answer")
            .map(|bytes| Reply::parse(&bytes).expect("a reply"))
    }

    /// A stream that this side has opened, whose greeting has been answered.
    fn open(&mut self) -> (StreamId, u64) {
        let id = self.streams.connect(self.now, peer(1)).unwrap();
        let open = self.sent();
        let opener = Message::parse(&open.1.payload).unwrap().header.opener.get();
        self.answer(&open, Ok(taken(THEIRS, WINDOW)));
        let greeting = self.sent();
        assert_eq!(said(&greeting).0, MessageKind::Window);
        self.answer(&greeting, Ok(taken(0, WINDOW)));
        (id, opener)
    }

    /// OPEN of a peer; tells the number that this side has drawn.
    fn is_asked(&mut self, from: SocketAddr) -> Reply {
        let open = message(MessageKind::Open, FROM_OPENER, (THEIRS, 0), (0, WINDOW), b"");
        self.hears(from, open).expect("it is answered")
    }

    /// A stream that a peer has opened and this side has accepted.
    fn take(&mut self) -> (StreamId, u64) {
        let reply = self.is_asked(peer(1));
        let greeting =
            message(MessageKind::Window, FROM_OPENER, (THEIRS, reply.acceptor), (0, WINDOW), b"");
        self.hears(peer(1), greeting).expect("it is taken");
        (self.streams.accept().expect("a stream").0, reply.acceptor)
    }

    /// DATA of the opener of a stream that was taken.
    fn hears_data(&mut self, acceptor: u64, offset: u64, flags: u8, data: &[u8]) -> Reply {
        let data = message(
            MessageKind::Data,
            FROM_OPENER | flags,
            (THEIRS, acceptor),
            (offset, WINDOW),
            data,
        );
        self.hears(peer(1), data).expect("it is answered")
    }

    fn read(&mut self, id: StreamId) -> Result<Option<Vec<u8>>, Fault> {
        let mut buffer = [0; 1000];
        Ok(self.streams.read(id, &mut buffer)?.map(|len| buffer[..len].to_vec()))
    }

    fn fault(&self, id: StreamId) -> Option<Fault> {
        self.streams.status(id).expect("a stream").fault
    }

    fn holds_nothing(&mut self) {
        assert_eq!(self.streams.holdings(), Holdings::default());
        self.wait(100 * SECOND);
        self.sends_nothing();
        assert_eq!(self.streams.poll_timeout(), None, "nothing is waited for");
    }
}

#[test]
fn an_opener_asks_greets_and_sends_what_was_written_before() {
    let mut side = Side::new(|_| {});
    let id = side.streams.connect(side.now, peer(1)).unwrap();
    assert_eq!(side.streams.write(id, b"early"), Ok(5));
    let open = side.sent();
    assert_eq!(said(&open), (MessageKind::Open, FROM_OPENER, 0, WINDOW_MIN, vec![]));
    assert_eq!((open.1.target, open.1.options.idempotent), (peer(1), true));
    side.sends_nothing();
    side.answer(&open, Ok(taken(THEIRS, 100)));
    assert!(side.streams.status(id).unwrap().is_open);
    assert_eq!(side.streams.poll_changed(), Some(id));
    let data = side.sent();
    assert_eq!(said(&data), (MessageKind::Data, FROM_OPENER, 0, WINDOW_MIN, b"early".to_vec()));
    assert_eq!(Message::parse(&data.1.payload).unwrap().header.acceptor.get(), THEIRS);
    side.sends_nothing();
}

#[test]
fn an_opener_that_has_nothing_to_say_says_that_it_hears() {
    let mut side = Side::new(|_| {});
    side.open();
    side.sends_nothing();
}

#[test]
fn a_stream_is_offered_when_its_opener_has_shown_that_it_hears() {
    let mut side = Side::new(|_| {});
    let reply = side.is_asked(peer(1));
    assert_eq!((reply.status, reply.limit), (Status::Taken, WINDOW_MIN));
    assert_ne!(reply.acceptor, 0);
    assert_eq!(side.streams.accept(), None);
    for wrong in [(THEIRS, reply.acceptor ^ 1), (THEIRS + 1, reply.acceptor)] {
        let greeting = message(MessageKind::Window, FROM_OPENER, wrong, (0, WINDOW), b"");
        assert_eq!(side.hears(peer(1), greeting).unwrap().status, Status::Gone);
    }
    let right =
        message(MessageKind::Data, FROM_OPENER, (THEIRS, reply.acceptor), (0, WINDOW), b"hello");
    assert_eq!(
        side.hears(peer(2), right.clone()).unwrap().status,
        Status::Gone,
        "from another address"
    );
    let reply = side.hears(peer(1), right).unwrap();
    assert_eq!((reply.status, reply.limit), (Status::Taken, WINDOW_MIN));
    let (id, from) = side.streams.accept().unwrap();
    assert_eq!((from, side.read(id)), (peer(1), Ok(Some(b"hello".to_vec()))));
    side.sends_nothing();
}

#[test]
fn half_open_streams_make_room_and_are_forgotten() {
    let mut side = Side::new(|config| config.half_open_max = 3);
    let numbers: Vec<u64> = (1..=4).map(|host| side.is_asked(peer(host)).acceptor).collect();
    assert_eq!((side.streams.holdings().streams, side.streams.metrics().half_open_dropped), (3, 1));
    let greet = |side: &mut Side, host: u8| {
        let numbers = (THEIRS, numbers[usize::from(host) - 1]);
        side.hears(peer(host), message(MessageKind::Window, FROM_OPENER, numbers, (0, 1), b""))
            .unwrap()
            .status
    };
    assert_eq!((greet(&mut side, 1), greet(&mut side, 2)), (Status::Gone, Status::Taken));
    side.wait(6 * SECOND);
    assert_eq!(greet(&mut side, 3), Status::Gone);
    assert_eq!((side.streams.holdings().streams, side.streams.holdings().half_open), (1, 0));
}

/// A peer opens a stream and shows that it hears: it waits to be accepted.
fn waits(side: &mut Side, from: SocketAddr) -> (u64, u64) {
    let numbers = (THEIRS, side.is_asked(from).acceptor);
    side.hears(from, message(MessageKind::Window, FROM_OPENER, numbers, (0, 1), b"")).unwrap();
    numbers
}

#[test]
fn streams_that_are_reset_before_they_are_accepted_leave_the_others_in_order() {
    let mut side = Side::new(|config| config.backlog_max = 5);
    let numbers: Vec<_> = (1..=5).map(|host| waits(&mut side, peer(host))).collect();
    for host in [3, 1, 5] {
        let numbers = numbers[usize::from(host) - 1];
        side.hears(peer(host), message(MessageKind::Reset, FROM_OPENER, numbers, (0, 0), b""))
            .unwrap();
    }
    assert_eq!(side.streams.holdings().streams, 2);
    for host in 6..=8 {
        waits(&mut side, peer(host));
    }
    assert_eq!(side.is_asked(peer(9)).status, Status::Refused, "five wait again");
    let accepted = std::iter::from_fn(|| side.streams.accept()).map(|(_, from)| from);
    assert_eq!(accepted.collect::<Vec<_>>(), [2, 4, 6, 7, 8].map(peer));
}

#[test]
fn opening_is_refused_where_a_limit_is_reached() {
    let refused = |adjust: fn(&mut Config), taken: usize| {
        let mut side = Side::new(adjust);
        for place in 0..=taken as u64 {
            let numbers = (THEIRS + place, 0);
            let reply = side
                .hears(peer(1), message(MessageKind::Open, FROM_OPENER, numbers, (0, 1), b""))
                .unwrap();
            let expected = if place < taken as u64 { Status::Taken } else { Status::Refused };
            assert_eq!(reply.status, expected, "the {place}th");
            let numbers = (numbers.0, reply.acceptor);
            if expected == Status::Taken {
                side.hears(
                    peer(1),
                    message(MessageKind::Window, FROM_OPENER, numbers, (0, 1), b""),
                )
                .unwrap();
            }
        }
    };
    refused(|config| config.is_listening = false, 0);
    refused(|config| config.backlog_max = 2, 2);
    refused(|config| config.streams_max = 3, 3);
    refused(|config| config.streams_per_peer_max = 4, 4);
    refused(|config| (config.windows_bytes_max, config.window_min) = (500_000, 100_000), 5);
}

#[test]
fn connecting_fails_where_a_limit_is_reached() {
    let mut side = Side::new(|config| config.streams_per_peer_max = 1);
    side.streams.connect(side.now, peer(1)).unwrap();
    assert_eq!(side.streams.connect(side.now, peer(1)), Err(Fault::TooMany));
    assert!(side.streams.connect(side.now, peer(2)).is_ok());
}

#[test]
fn a_refused_or_unanswered_open_is_a_fault() {
    let refused = ReplyHeader::new(Reply { status: Status::Refused, acceptor: 0, limit: 0 })
        .as_bytes()
        .to_vec();
    for (result, fault) in [
        (Ok(refused), Fault::Refused),
        (Err(Failure::Refused(DropReason::Application)), Fault::Refused),
        (Err(Failure::Unreachable), Fault::Lost(Failure::Unreachable)),
        (Ok(b"HTTP/1.1 200 OK".to_vec()), Fault::Broken),
        (Ok(taken(0, 9)), Fault::Broken),
    ] {
        let mut side = Side::new(|_| {});
        let id = side.streams.connect(side.now, peer(1)).unwrap();
        let open = side.sent();
        side.answer(&open, result);
        assert_eq!(side.fault(id), Some(fault));
        assert_eq!((side.read(id), side.streams.write(id, b"x")), (Err(fault), Err(fault)));
        side.streams.close(side.now, id);
        side.sends_nothing();
        side.holds_nothing();
    }
}

#[test]
fn small_writes_wait_for_each_other_and_leave_together() {
    let mut side = Side::new(|_| {});
    let (id, _) = side.open();
    side.streams.write(id, b"one").unwrap();
    let first = side.sent();
    side.streams.write(id, b"two").unwrap();
    side.sends_nothing();
    side.streams.write(id, b"three").unwrap();
    side.answer(&first, Ok(taken(0, WINDOW)));
    let second = side.sent();
    assert_eq!(
        said(&second),
        (MessageKind::Data, FROM_OPENER, 3, WINDOW_MIN, b"twothree".to_vec())
    );
}

#[test]
fn the_peers_limit_stops_a_writer() {
    let mut side = Side::new(|_| {});
    let id = side.streams.connect(side.now, peer(1)).unwrap();
    let open = side.sent();
    assert_eq!(side.streams.write(id, &vec![1; 2 << 20]), Ok(1 << 20));
    side.answer(&open, Ok(taken(THEIRS, 64_000)));
    let data = side.sent();
    side.sends_nothing();
    side.answer(&data, Ok(taken(0, 64_000)));
    side.sends_nothing();
    assert_eq!(side.streams.write(id, &[1; 100_000]), Ok(64_000));
    let window = message(MessageKind::Window, 0, (numbers(&open), THEIRS), (0, 100_000), b"");
    side.hears(peer(1), window).unwrap();
    assert_eq!(said(&side.sent()).4.len(), 36_000);
}

fn numbers(open: &(CallId, Call)) -> u64 {
    Message::parse(&open.1.payload).unwrap().header.opener.get()
}

#[test]
fn a_reader_tells_its_limit_when_it_has_moved_by_half() {
    let mut side = Side::new(|config| (config.window_max, config.window_min) = (1000, 1000));
    let (id, acceptor) = side.take();
    assert_eq!(side.hears_data(acceptor, 0, 0, &[1; 1000]).limit, 1000);
    let mut buffer = [0; 499];
    side.streams.read(id, &mut buffer).unwrap();
    side.sends_nothing();
    side.streams.read(id, &mut buffer[..1]).unwrap();
    assert_eq!(said(&side.sent()), (MessageKind::Window, 0, 0, 1500, vec![]));
    side.streams.read(id, &mut buffer).unwrap();
    side.sends_nothing();
}

#[test]
fn a_window_becomes_longer_when_all_of_it_is_used() {
    let mut side = Side::new(|config| config.window_max = 1_000_000);
    let (id, acceptor) = side.take();
    let mut offset = 0;
    let mut hear = |side: &mut Side, flags| {
        let limit = side.hears_data(acceptor, offset, flags, &[1; 1000]).limit;
        offset += 1000;
        limit
    };
    assert_eq!([0, 0].map(|flags| hear(&mut side, flags)), [WINDOW_MIN; 2]);
    assert_eq!(
        [BLOCKED; 4].map(|flags| hear(&mut side, flags)),
        [4 * WINDOW_MIN, 16 * WINDOW_MIN, 1_000_000, 1_000_000]
    );
    // What was told holds, and what has been read comes on top.
    side.streams.read(id, &mut [0; 6000]).unwrap();
    assert_eq!(hear(&mut side, 0), 1_006_000);
    assert_eq!(side.streams.holdings().windows_bytes, 1_000_000);
}

#[test]
fn a_writer_says_that_the_limit_holds_it_back() {
    let flags_of = |limit: u64, len: usize, is_last: bool| {
        let mut side = Side::new(|_| {});
        let id = side.streams.connect(side.now, peer(1)).unwrap();
        assert_eq!(side.streams.write(id, &vec![1; len]), Ok(len));
        if is_last {
            side.streams.finish(id).unwrap();
        }
        let open = side.sent();
        side.answer(&open, Ok(taken(THEIRS, limit)));
        said(&side.sent()).1
    };
    assert_eq!(flags_of(1000, 999, false), FROM_OPENER);
    assert_eq!(flags_of(1000, 1000, false), FROM_OPENER | BLOCKED);
    assert_eq!(flags_of(1000, 100_000, false), FROM_OPENER | BLOCKED);
    assert_eq!(flags_of(1000, 1000, true), FROM_OPENER | FIN, "it has no more");
}

/// Streams that a host opens, from a port for each 100, until one is refused.
fn flood(side: &mut Side, host: u8) -> usize {
    let before = side.streams.metrics().taken;
    loop {
        let taken = side.streams.metrics().taken;
        let from = SocketAddr::new(peer(host).ip(), 9000 + taken as u16 / 100);
        let numbers = (THEIRS + taken, 0);
        let open = message(MessageKind::Open, FROM_OPENER, numbers, (0, 1), b"");
        let reply = side.hears(from, open).unwrap();
        if reply.status == Status::Refused {
            return (taken - before) as usize;
        }
        let numbers = (numbers.0, reply.acceptor);
        let greeting = message(MessageKind::Window, FROM_OPENER, numbers, (0, 1), b"");
        assert_eq!(side.hears(from, greeting).unwrap().status, Status::Taken);
    }
}

#[test]
fn one_host_leaves_a_quarter_of_the_streams_to_others() {
    let mut side = Side::new(|config| config.streams_max = 1000);
    assert_eq!(flood(&mut side, 1), 751);
    assert_eq!(flood(&mut side, 2), 187);
    assert_eq!(flood(&mut side, 1), 0);
    assert!(flood(&mut side, 3) > 40);
    assert_eq!(side.streams.connect(side.now, peer(1)), Err(Fault::TooMany));
    assert!(side.streams.connect(side.now, peer(4)).is_ok());
}

#[test]
fn streams_that_wait_for_a_port_where_nobody_listens_are_refused() {
    let mut side = Side::new(|_| {});
    let (open, _) = side.open();
    let opening: Vec<StreamId> =
        [1, 1, 2].map(|host| side.streams.connect(side.now, peer(host)).unwrap()).to_vec();
    let calls = [0; 3].map(|_| side.sent());
    side.streams.handle_unreachable(side.now, peer(1));
    let refused = Some(Fault::Refused);
    assert_eq!(
        opening.iter().map(|&id| side.fault(id)).collect::<Vec<_>>(),
        [refused, refused, None]
    );
    assert_eq!(calls.map(|call| side.fake.is_cancelled(call.0)), [true, true, false]);
    assert_eq!(side.fault(open), None, "that may be old, or forged");
    let next = side.streams.connect(side.now, peer(1)).unwrap();
    side.streams.handle_unreachable(side.now, peer(1));
    assert_eq!(side.fault(next), None, "one look was paid for");
    side.now += 1_000_000;
    side.streams.handle_unreachable(side.now, peer(1));
    assert_eq!(side.fault(next), refused);
}

#[test]
fn messages_that_break_the_protocol_end_the_stream() {
    for (offset, len, flags) in [(4, 2, 0), (WINDOW_MIN, 1, 0), (u64::MAX >> 3, 1, 0), (3, 0, FIN)]
    {
        let mut side = Side::new(|_| {});
        let (id, acceptor) = side.take();
        side.hears_data(acceptor, 0, 0, b"abcde");
        assert_eq!(
            side.hears_data(acceptor, offset, flags, &vec![1; len]).status,
            Status::Gone,
            "{len} at {offset}"
        );
        assert_eq!(said(&side.sent()).0, MessageKind::Reset);
        assert_eq!(side.read(id), Ok(Some(b"abcde".to_vec())), "what had come");
        assert_eq!(side.read(id), Err(Fault::Broken));
        assert_eq!(side.hears_data(acceptor, 5, 0, b"f").status, Status::Gone);
    }
}

#[test]
fn what_comes_twice_is_answered_twice_and_changes_nothing() {
    let mut side = Side::new(|_| {});
    assert_eq!(side.is_asked(peer(1)), side.is_asked(peer(1)));
    assert_eq!(side.streams.holdings().streams, 1);
    let (id, acceptor) = side.take();
    for _ in 0..2 {
        assert_eq!(side.hears_data(acceptor, 0, FIN, b"once").status, Status::Taken);
        assert_eq!(side.is_asked(peer(1)).acceptor, acceptor);
    }
    assert_eq!((side.read(id), side.read(id)), (Ok(Some(b"once".to_vec())), Ok(Some(vec![]))));
    assert_eq!(side.streams.accept(), None);
}

#[test]
fn what_is_no_message_is_refused() {
    let mut side = Side::new(|_| {});
    assert_eq!(side.hears(peer(1), b"GET / HTTP/1.1".to_vec()), Err(DropReason::Application));
    assert_eq!(side.streams.metrics().malformed, 1);
}

#[test]
fn a_dead_peer_ends_both_directions() {
    let mut side = Side::new(|_| {});
    let (id, _) = side.open();
    side.streams.write(id, b"anybody?").unwrap();
    let data = side.sent();
    side.answer(&data, Err(Failure::Unreachable));
    let fault = Fault::Lost(Failure::Unreachable);
    assert_eq!(
        (side.read(id), side.streams.write(id, b"x"), side.streams.finish(id)),
        (Err(fault), Err(fault), Err(fault))
    );
    let reset = side.sent();
    assert_eq!(said(&reset).0, MessageKind::Reset);
    side.answer(&reset, Err(Failure::Unreachable));
    side.streams.close(side.now, id);
    side.holds_nothing();
}

#[test]
fn one_direction_goes_on_when_the_other_has_ended() {
    let mut side = Side::new(|_| {});
    let (id, acceptor) = side.take();
    side.hears_data(acceptor, 0, FIN, b"request");
    assert_eq!((side.read(id), side.read(id)), (Ok(Some(b"request".to_vec())), Ok(Some(vec![]))));
    side.streams.write(id, b"reply").unwrap();
    side.streams.finish(id).unwrap();
    assert_eq!(side.streams.write(id, b"more"), Err(Fault::Finished));
    let data = side.sent();
    assert_eq!(said(&data), (MessageKind::Data, FIN, 0, WINDOW_MIN + 7, b"reply".to_vec()));
    assert!(!side.streams.status(id).unwrap().is_finished);
    side.answer(&data, Ok(taken(0, WINDOW)));
    assert!(side.streams.status(id).unwrap().is_finished);
    side.streams.close(side.now, id);
    side.holds_nothing();
}

#[test]
fn a_closed_stream_sends_the_rest_and_waits_for_the_end() {
    let mut side = Side::new(|_| {});
    let (id, acceptor) = side.take();
    side.streams.write(id, b"bye").unwrap();
    side.streams.close(side.now, id);
    let data = side.sent();
    assert_eq!(said(&data).1, FIN);
    side.answer(&data, Ok(taken(0, WINDOW)));
    assert_eq!(side.streams.holdings().streams, 1);
    assert_eq!(side.hears_data(acceptor, 0, FIN, b"").status, Status::Taken);
    side.holds_nothing();
}

#[test]
fn a_stream_closed_before_all_was_read_is_reset() {
    let mut side = Side::new(|_| {});
    let (id, acceptor) = side.take();
    side.hears_data(acceptor, 0, 0, b"unread");
    side.streams.write(id, b"lost").unwrap();
    let data = side.sent();
    side.streams.close(side.now, id);
    assert!(side.fake.is_cancelled(data.0));
    let reset = side.sent();
    assert_eq!(said(&reset).0, MessageKind::Reset);
    side.answer(&reset, Ok(taken(0, 0)));
    side.holds_nothing();
}

#[test]
fn what_comes_after_a_close_is_answered_with_gone() {
    let mut side = Side::new(|_| {});
    let (id, acceptor) = side.take();
    side.streams.close(side.now, id);
    let end = side.sent();
    assert_eq!(side.hears_data(acceptor, 0, 0, b"too late").status, Status::Gone);
    assert!(side.fake.is_cancelled(end.0));
    side.holds_nothing();
}

#[test]
fn a_closed_stream_lingers_no_longer_than_it_may() {
    let mut side = Side::new(|_| {});
    let (id, _) = side.take();
    side.streams.close(side.now, id);
    let end = side.sent();
    side.answer(&end, Ok(taken(0, WINDOW)));
    side.wait(29 * SECOND);
    assert_eq!(side.streams.holdings().streams, 1);
    side.wait(2 * SECOND);
    let reset = side.sent();
    assert_eq!(said(&reset).0, MessageKind::Reset);
    side.answer(&reset, Err(Failure::Deadline));
    side.holds_nothing();
}

#[test]
fn a_reset_ends_both_directions() {
    let mut side = Side::new(|_| {});
    let (id, opener) = side.open();
    let reset = message(MessageKind::Reset, 0, (opener, THEIRS), (0, 0), b"");
    assert_eq!(side.hears(peer(1), reset).unwrap().status, Status::Taken);
    assert_eq!(
        (side.read(id), side.streams.write(id, b"x")),
        (Err(Fault::Reset), Err(Fault::Reset))
    );
    side.sends_nothing();
    side.streams.close(side.now, id);
    side.holds_nothing();
}

#[test]
fn silence_is_asked_about_once_and_then_again() {
    let mut side = Side::new(|_| {});
    let (id, opener) = side.open();
    side.wait(20 * SECOND);
    side.hears(peer(1), message(MessageKind::Window, 0, (opener, THEIRS), (0, 0), b"")).unwrap();
    side.wait(20 * SECOND);
    side.sends_nothing();
    side.wait(11 * SECOND);
    let ask = side.sent();
    assert_eq!(said(&ask).0, MessageKind::Window);
    side.sends_nothing();
    side.answer(&ask, Ok(taken(0, WINDOW)));
    side.wait(31 * SECOND);
    let ask = side.sent();
    let gone =
        ReplyHeader::new(Reply { status: Status::Gone, acceptor: 0, limit: 0 }).as_bytes().to_vec();
    side.answer(&ask, Ok(gone));
    assert_eq!(side.fault(id), Some(Fault::Reset));
}

#[test]
fn a_side_that_stops_listening_resets_what_was_not_accepted() {
    let mut side = Side::new(|_| {});
    let reply = side.is_asked(peer(1));
    side.hears_data(reply.acceptor, 0, 0, b"hello");
    side.streams.stop_listening(side.now);
    let reset = side.sent();
    assert_eq!(said(&reset).0, MessageKind::Reset);
    side.answer(&reset, Ok(taken(0, 0)));
    assert_eq!((side.streams.accept(), side.is_asked(peer(1)).status), (None, Status::Refused));
    side.holds_nothing();
}

#[test]
fn no_more_messages_are_outstanding_than_may_be() {
    let mut side = Side::new(|config| config.messages_max = 2);
    let (id, _) = side.open();
    side.streams.write(id, &[1; 300_000]).unwrap();
    let first = side.sent();
    side.sent();
    side.sends_nothing();
    assert_eq!(side.streams.holdings().messages, 2);
    side.answer(&first, Ok(taken(0, WINDOW)));
    side.sent();
    side.sends_nothing();
}

#[test]
fn streams_are_empty_without_streams_and_messages() {
    let mut side = Side::new(|_| {});
    assert!(side.streams.is_empty());
    let (id, _) = side.open();
    assert!(!side.streams.is_empty(), "a stream, and no message");
    side.streams.reset(side.now, id);
    let reset = side.sent();
    assert!(!side.streams.is_empty(), "a message");
    side.answer(&reset, Ok(taken(0, 0)));
    assert!(side.streams.is_empty());
}

#[test]
fn an_endpoint_without_words_refuses_in_the_place_of_a_rejection() {
    let mut fake = Fake::default();
    fake.reject(SECOND, RequestId(1), 17, b"no").unwrap();
    assert_eq!(fake.next_answer(), Some(Err(DropReason::Application)));
}

#[test]
fn bytes_are_moved_in_and_out_of_a_stream_by_queues() {
    let mut side = Side::new(|_| {});
    let (id, acceptor) = side.take();
    let mut bytes: VecDeque<u8> = b"hello".to_vec().into();
    assert_eq!(side.streams.write_all(id, &mut bytes), Ok(5));
    assert!(bytes.is_empty());
    assert_eq!(said(&side.sent()).4, b"hello");
    let mut into = VecDeque::new();
    assert_eq!(side.streams.read_all(id, &mut into, 9), Ok(None), "nothing has come");
    side.hears_data(acceptor, 0, FIN, b"world");
    assert_eq!(side.streams.read_all(id, &mut into, 9), Ok(Some(5)));
    assert_eq!((into, side.read(id)), (b"world".to_vec().into(), Ok(Some(vec![]))));
}

#[test]
fn a_stream_has_a_place_of_its_own() {
    let mut side = Side::new(|_| {});
    let ids = [1, 2, 3].map(|host| side.streams.connect(side.now, peer(host)).unwrap());
    let mut places = ids.map(StreamId::place).to_vec();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 3);
}

#[test]
fn what_waits_in_both_directions_is_held() {
    let mut side = Side::new(|_| {});
    let (id, acceptor) = side.take();
    side.hears_data(acceptor, 0, 0, b"world");
    side.streams.write(id, b"abc").unwrap();
    assert_eq!(side.streams.holdings().buffered_bytes, 8);
    side.sent();
    assert_eq!(side.streams.holdings().buffered_bytes, 5, "the transport has the rest");
}

#[test]
fn a_farewell_and_a_datagram_are_the_endpoints() {
    let mut side = Side::new(|_| {});
    side.streams.say_farewell();
    assert_eq!(side.fake.farewells(), 1);
    side.fake.request(peer(1), b"GET / HTTP/1.1".to_vec());
    side.streams.handle_datagram(side.now, peer(1).into(), &mut []);
    assert_eq!(side.fake.next_answer(), Some(Err(DropReason::Application)));
}

#[test]
fn a_status_tells_what_may_be_written() {
    let mut side = Side::new(|_| {});
    let writable = |side: &Side, id| side.streams.status(id).unwrap().writable_len as u64;
    let id = side.streams.connect(side.now, peer(1)).unwrap();
    assert_eq!(writable(&side, id), WINDOW_MIN, "before it is open");
    side.streams.write(id, b"hello").unwrap();
    assert_eq!(writable(&side, id), WINDOW_MIN - 5, "and the window stays as it was");
    let open = side.sent();
    side.answer(&open, Ok(taken(THEIRS, WINDOW)));
    assert_eq!(writable(&side, id), WINDOW_MIN - 5, "in flight");
    side.streams.finish(id).unwrap();
    assert_eq!(writable(&side, id), 0);
    let failed = side.streams.connect(side.now, peer(1)).unwrap();
    side.streams.handle_unreachable(side.now, peer(1));
    assert_eq!((side.fault(failed), writable(&side, failed)), (Some(Fault::Refused), 0));
}

#[test]
fn who_has_read_everything_hears_of_no_fault() {
    let mut side = Side::new(|_| {});
    let (id, acceptor) = side.take();
    side.hears_data(acceptor, 0, FIN, b"all");
    let reset = message(MessageKind::Reset, FROM_OPENER, (THEIRS, acceptor), (0, 0), b"");
    side.hears(peer(1), reset).unwrap();
    assert_eq!(side.read(id), Ok(Some(b"all".to_vec())));
    assert_eq!(side.read(id), Ok(Some(vec![])));
    assert_eq!((side.streams.metrics().failed, side.streams.metrics().broken), (1, 0));
}

/// Two open streams, of which the first has the one message in flight that may be.
fn with_one_in_flight() -> (Side, [StreamId; 2]) {
    let mut side = Side::new(|config| config.messages_max = 1);
    let ids = [side.open().0, side.open().0];
    side.streams.write(ids[0], b"hello").unwrap();
    assert_eq!(said(&side.sent()).4, b"hello");
    (side, ids)
}

#[test]
fn a_reset_that_finds_no_room_is_left_out() {
    let (mut side, [_, other]) = with_one_in_flight();
    side.streams.reset(side.now, other);
    side.sends_nothing();
    assert_eq!((side.streams.holdings().messages, side.streams.metrics().resets), (1, 0));
}

#[test]
fn nobody_is_asked_whether_it_is_there_while_no_message_may_be_sent() {
    let (mut side, _) = with_one_in_flight();
    side.wait(31 * SECOND);
    side.sends_nothing();
}

#[test]
fn a_peer_has_as_many_streams_as_are_not_closed() {
    let mut side = Side::new(|config| config.streams_per_peer_max = 2);
    let connect = |side: &mut Side| side.streams.connect(side.now, peer(1));
    let first = connect(&mut side).unwrap();
    connect(&mut side).unwrap();
    side.streams.close(side.now, first);
    let third = connect(&mut side).expect("one is closed");
    assert_eq!(connect(&mut side), Err(Fault::TooMany));
    side.streams.close(side.now, third);
    assert!(connect(&mut side).is_ok());
}

#[test]
fn a_host_gives_its_places_back() {
    let mut side = Side::new(|config| config.streams_max = 1);
    for _ in 0..10 {
        let id = side.streams.connect(side.now, peer(1)).expect("there is a place");
        side.streams.close(side.now, id);
    }
}

#[test]
fn spans_are_those_of_the_configuration() {
    let mut side = Side::new(|config| {
        (config.open_ns_max, config.message_ns_max) = (2 * SECOND, 7 * SECOND);
        config.linger_ns_max = 3 * SECOND;
    });
    let id = side.streams.connect(side.now, peer(1)).unwrap();
    let open = side.sent();
    assert_eq!(open.1.deadline, side.now + 2 * SECOND);
    side.answer(&open, Ok(taken(THEIRS, WINDOW)));
    let greeting = side.sent();
    assert_eq!(greeting.1.deadline, side.now + 7 * SECOND);
    side.answer(&greeting, Ok(taken(0, WINDOW)));
    side.streams.close(side.now, id);
    let end = side.sent();
    side.answer(&end, Ok(taken(0, WINDOW)));
    side.wait(4 * SECOND);
    assert_eq!(said(&side.sent()).0, MessageKind::Reset, "it lingers no longer");
}

#[test]
fn a_half_open_stream_is_waited_for_as_long_as_for_an_answer() {
    let mut side = Side::new(|_| {});
    side.is_asked(peer(1));
    let due = side.streams.poll_timeout().expect("it ends by itself");
    assert!((5 * SECOND..5 * SECOND + (2 << 20)).contains(&(due - side.now)), "{due}");
    side.wait(due - side.now);
    assert_eq!(side.streams.metrics().half_open_dropped, 1);
    side.holds_nothing();
}

#[test]
fn a_stream_is_to_be_looked_at_once_however_much_has_changed() {
    let mut side = Side::new(|_| {});
    let (id, acceptor) = side.take();
    while side.streams.poll_changed().is_some() {}
    side.hears_data(acceptor, 0, 0, b"one");
    side.hears_data(acceptor, 3, 0, b"two");
    assert_eq!([(); 2].map(|()| side.streams.poll_changed()), [Some(id), None]);
    waits(&mut side, peer(2));
    assert_eq!(side.streams.poll_changed(), None, "nobody has accepted it");
}

#[test]
fn an_answer_that_does_not_fit_its_message_breaks_the_protocol() {
    let answer = |status| {
        let reply = Reply { status, acceptor: 0, limit: 0 };
        ReplyHeader::new(reply).as_bytes().to_vec()
    };
    let mut side = Side::new(|_| {});
    let id = side.streams.connect(side.now, peer(1)).unwrap();
    let open = side.sent();
    side.answer(&open, Ok(answer(Status::Gone)));
    assert_eq!(side.fault(id), Some(Fault::Broken));
    let (id, _) = side.open();
    side.streams.write(id, b"hello").unwrap();
    let data = side.sent();
    side.answer(&data, Ok(answer(Status::Refused)));
    assert_eq!(side.fault(id), Some(Fault::Broken));
    assert_eq!((side.streams.metrics().failed, side.streams.metrics().broken), (2, 2));
}

/// Two peers ask and then greet, and `between` happens after the first: how they are answered.
fn greeted(
    adjust: impl FnOnce(&mut Config),
    between: impl FnOnce(&mut Side),
) -> ([Status; 2], Metrics) {
    let mut side = Side::new(adjust);
    let numbers = [1, 2].map(|host| (THEIRS, side.is_asked(peer(host)).acceptor));
    let greet = |side: &mut Side, host: u8, numbers| {
        let greeting = message(MessageKind::Window, FROM_OPENER, numbers, (0, 1), b"");
        side.hears(peer(host), greeting).unwrap().status
    };
    let first = greet(&mut side, 1, numbers[0]);
    between(&mut side);
    ([first, greet(&mut side, 2, numbers[1])], *side.streams.metrics())
}

#[test]
fn limits_hold_when_an_opener_shows_that_it_hears() {
    let check = |adjust: fn(&mut Config), between: fn(&mut Side)| {
        let (statuses, metrics) = greeted(adjust, between);
        assert_eq!(statuses, [Status::Taken, Status::Gone]);
        assert_eq!((metrics.taken, metrics.refused, metrics.gone), (1, 1, 1));
    };
    check(|config| config.backlog_max = 1, |_| {});
    check(|config| config.streams_max = 1, |_| {});
    check(|config| (config.windows_bytes_max, config.window_min) = (1500, 1000), |_| {});
    check(|_| {}, |side| side.streams.stop_listening(side.now));
    assert_eq!(greeted(|_| {}, |_| {}).0, [Status::Taken; 2]);
}

#[test]
fn messages_and_bytes_are_counted() {
    let mut side = Side::new(|_| {});
    let (id, opener) = side.open();
    for bytes in [&b"hello"[..], b"worlds"] {
        side.streams.write(id, bytes).unwrap();
        let data = side.sent();
        side.answer(&data, Ok(taken(0, WINDOW)));
    }
    for (offset, data) in [(7, &b"early"[..]), (0, b"abcdefg")] {
        let data = message(MessageKind::Data, 0, (opener, THEIRS), (offset, WINDOW), data);
        side.hears(peer(1), data).unwrap();
    }
    side.streams.reset(side.now, id);
    side.sent();
    let expected = Metrics {
        opened: 1,
        failed: 1,
        messages_out: 5,
        messages_in: 2,
        bytes_out: 11,
        bytes_in: 12,
        early_bytes: 5,
        windows: 1,
        resets: 1,
        ..Metrics::default()
    };
    assert_eq!(*side.streams.metrics(), expected);
}

/// Half of all windows is kept for streams to come, and of the other one host has three quarters.
#[test]
fn a_window_that_may_not_become_longer_is_counted() {
    let mut side = Side::new(|config| {
        (config.windows_bytes_max, config.window_min) = (100_000, 1_000);
    });
    let (_, acceptor) = side.take();
    let limits = [0, 1, 2, 3].map(|at| side.hears_data(acceptor, at, BLOCKED, b"x").limit);
    assert_eq!(limits, [4_000, 16_000, 38_500, 38_500]);
    assert_eq!(side.streams.metrics().windows_denied, 1);
}

#[test]
fn a_window_that_was_not_written_for_long_becomes_short_again() {
    let mut side = Side::new(|_| {});
    let writable = |side: &Side, id| side.streams.status(id).unwrap().writable_len as u64;
    let (id, _) = side.open();
    side.streams.write(id, &[1; WINDOW_MIN as usize]).unwrap();
    assert_eq!(writable(&side, id), 3 * WINDOW_MIN);
    let data = side.sent();
    side.wait(31 * SECOND);
    assert_eq!(writable(&side, id), 3 * WINDOW_MIN, "it is in use");
    side.answer(&data, Ok(taken(0, WINDOW)));
    assert_eq!(writable(&side, id), 4 * WINDOW_MIN);
    side.wait(31 * SECOND);
    assert_eq!(writable(&side, id), WINDOW_MIN);
}

#[test]
fn streams_that_are_refused_are_counted() {
    let mut side = Side::new(|config| config.is_listening = false);
    for count in 1..=2 {
        let open = message(MessageKind::Open, FROM_OPENER, (THEIRS, 0), (0, 1), b"");
        assert_eq!(side.hears(peer(1), open).map(|reply| reply.status), Ok(Status::Refused));
        assert_eq!(side.streams.metrics().refused, count);
    }
}

/// To the nanosecond, and at a tick of its timers: sooner it would look without end.
#[test]
fn a_peer_is_asked_once_when_nothing_has_been_heard_for_the_keepalive_time() {
    let tick: Time = 1 << 20;
    let mut side = Side::new(|config| config.keepalive_ns = 1_000 * tick);
    side.now = 1_000 * tick;
    side.open();
    side.wait(1_000 * tick - 1);
    side.sends_nothing();
    side.wait(1);
    assert_eq!(said(&side.sent()).0, MessageKind::Window);
    side.sends_nothing();
}
