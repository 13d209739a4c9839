//! Requests of several packets that go to a server at once, without a round trip for its credit.

use std::net::SocketAddr;

use tailcut_proto::node::{GSO_BYTES_MAX, Node};
use tailcut_proto::r2p2::{Config, Endpoint, UNSCHEDULED_PACKETS};
use tailcut_proto::rpc::{Call, CallOptions, Event, RequestId, Rpc};
use tailcut_wire::r2p2::{Flags, MessageType, Packet};

use super::router_bench::MS;

/// A client and a server whose datagrams a test carries.
struct Pair {
    now: u64,
    client: Endpoint,
    server: Endpoint,
    /// Addresses at which each sees the other.
    client_address: SocketAddr,
    server_address: SocketAddr,
}

/// A datagram that has left.
#[derive(Clone, Debug)]
struct Sent {
    to: SocketAddr,
    bytes: Vec<u8>,
}

impl Sent {
    fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.bytes).unwrap()
    }

    fn kind(&self) -> (MessageType, u16) {
        (self.packet().message_type, self.packet().index)
    }
}

impl Pair {
    fn new() -> Self {
        let config = |secret| Config { secret: [secret; 16], ..Config::default() };
        let (client, server) = (Endpoint::new(0, config(1)), Endpoint::new(0, config(2)));
        let (client_address, server_address) = (address(1), address(2));
        Self { now: 1_000 * MS, client, server, client_address, server_address }
    }

    /// A pair of which the client has called before, so that it knows the server.
    fn acquainted() -> Self {
        let mut pair = Self::new();
        pair.call(3_000);
        let first = pair.client_sends();
        assert_eq!(kinds(&first), [(MessageType::Request, 0)], "nobody is known to take more");
        let acks = pair.give_server(first);
        assert_eq!(kinds(&acks), [(MessageType::Ack, 0)]);
        let rest = pair.give_client(acks);
        let answers = pair.give_server(rest);
        let id = pair.request(3_000);
        pair.give_client(answers);
        pair.answer(id);
        pair
    }

    fn call(&mut self, len: usize) {
        let call = Call {
            target: self.server_address,
            payload: (0..len).map(|place| place as u8).collect(),
            deadline: self.now + 1_000 * MS,
            context: 0,
            options: CallOptions::default(),
        };
        self.client.call(self.now, call).unwrap();
    }

    fn client_sends(&mut self) -> Vec<Sent> {
        sent_by(self.now, &mut self.client)
    }

    /// Carries datagrams to the server; what it sends.
    fn give_server(&mut self, datagrams: Vec<Sent>) -> Vec<Sent> {
        for mut sent in datagrams {
            self.server.handle_datagram(self.now, self.client_address.into(), &mut sent.bytes);
        }
        sent_by(self.now, &mut self.server)
    }

    /// Carries datagrams of the server to the client; what that sends.
    fn give_client(&mut self, datagrams: Vec<Sent>) -> Vec<Sent> {
        self.now += 10_000;
        for mut sent in datagrams {
            self.client.handle_datagram(self.now, self.server_address.into(), &mut sent.bytes);
        }
        sent_by(self.now, &mut self.client)
    }

    /// The request that the server has.
    fn request(&mut self, len: usize) -> RequestId {
        let Some(Event::Request { id, payload, .. }) = self.server.poll_event() else {
            panic!("there is a request");
        };
        assert!(payload.iter().enumerate().all(|(place, &byte)| byte == place as u8));
        assert_eq!(payload.len(), len);
        id
    }

    /// Replies, and sees that the client has it.
    fn answer(&mut self, id: RequestId) {
        self.server.reply(self.now, id, vec![5]).unwrap();
        let replies = sent_by(self.now, &mut self.server);
        assert_eq!(kinds(&replies), [(MessageType::Response, 0)]);
        self.give_client(replies);
        assert!(matches!(self.client.poll_event(), Some(Event::Replied { .. })));
    }

    /// A call of so many bytes there and back, and the lengths of the packets' payloads each way.
    fn lens_of_call(&mut self, len: usize) -> (Vec<usize>, Vec<usize>) {
        self.call(len);
        let (mut there, mut back) = (self.client_sends(), Vec::new());
        let (mut lens_there, mut lens_back) = (Vec::new(), Vec::new());
        while !there.is_empty() || !back.is_empty() {
            lens_there.extend(payload_lens(&there, MessageType::Request));
            back.extend(self.give_server(std::mem::take(&mut there)));
            if let Some(Event::Request { id, payload, .. }) = self.server.poll_event() {
                self.server.reply(self.now, id, payload).unwrap();
                back.extend(sent_by(self.now, &mut self.server));
            }
            lens_back.extend(payload_lens(&back, MessageType::Response));
            there.extend(self.give_client(std::mem::take(&mut back)));
        }
        let event = self.client.poll_event();
        let Some(Event::Replied { payload, .. }) = event else { panic!("a reply, not {event:?}") };
        assert!(payload.iter().enumerate().all(|(place, &byte)| byte == place as u8));
        assert_eq!(payload.len(), len);
        (lens_there, lens_back)
    }

    /// The client's next timer goes off; what it sends.
    fn time_out(&mut self) -> Vec<Sent> {
        self.now = self.now.max(self.client.poll_timeout().expect("it has a timer"));
        self.client.handle_timeout(self.now);
        self.client_sends()
    }
}

fn sent_by(now: u64, node: &mut Endpoint) -> Vec<Sent> {
    let (mut buffer, mut sent) = (vec![0; GSO_BYTES_MAX], Vec::new());
    while let Some(transmit) = node.poll_transmit(now, &mut buffer) {
        for bytes in buffer[..transmit.len].chunks(transmit.segment_len) {
            sent.push(Sent { to: transmit.to, bytes: bytes.to_vec() });
        }
    }
    sent
}

fn payload_lens(sent: &[Sent], kind: MessageType) -> Vec<usize> {
    let of_kind = sent.iter().map(Sent::packet).filter(|packet| packet.message_type == kind);
    of_kind.map(|packet| packet.payload.len()).collect()
}

fn kinds(sent: &[Sent]) -> Vec<(MessageType, u16)> {
    sent.iter().map(Sent::kind).collect()
}

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 2, 0, host], 8_000))
}

fn requests(count: u16) -> Vec<(MessageType, u16)> {
    (0..count).map(|index| (MessageType::Request, index)).collect()
}

#[test]
fn a_request_of_some_packets_costs_no_round_trip_and_no_ack() {
    let mut pair = Pair::acquainted();
    for _ in 0..3 {
        pair.call(3_000);
        let sent = pair.client_sends();
        assert_eq!(kinds(&sent), requests(3));
        let is_early = |sent: &Sent| sent.packet().flags().has(Flags::UNSCHEDULED);
        assert_eq!(sent.iter().map(is_early).collect::<Vec<_>>(), [true, true, true]);
        assert!(pair.give_server(sent).is_empty(), "the reply is the answer");
        let id = pair.request(3_000);
        pair.answer(id);
    }
    assert_eq!(pair.client.metrics().resent, 0);
}

#[test]
fn a_long_request_begins_with_what_needs_no_credit() {
    let mut pair = Pair::acquainted();
    pair.call(100_000);
    let sent = pair.client_sends();
    assert_eq!(kinds(&sent), requests(UNSCHEDULED_PACKETS));
    let acks = pair.give_server(sent);
    assert!(!acks.is_empty());
    let rest = pair.give_client(acks);
    assert!(!rest.iter().any(|sent| sent.packet().flags().has(Flags::UNSCHEDULED)));
    assert_eq!(rest[0].packet().index, UNSCHEDULED_PACKETS);
    pair.give_server(rest);
    pair.request(100_000);
}

#[test]
fn a_packet_that_is_lost_is_asked_for() {
    let mut pair = Pair::acquainted();
    pair.call(5_000);
    let mut sent = pair.client_sends();
    sent.remove(1);
    let acks = pair.give_server(sent);
    let mut again = pair.give_client(acks);
    while again.is_empty() {
        again = pair.time_out();
    }
    pair.give_server(again);
    let id = pair.request(5_000);
    pair.server.reply(pair.now, id, vec![5]).unwrap();
    let answers = sent_by(pair.now, &mut pair.server);
    pair.give_client(answers);
    assert!(matches!(pair.client.poll_event(), Some(Event::Replied { .. })));
}

/// The server says nothing to packets that may as well belong to what it has refused.
#[test]
fn a_first_packet_that_is_lost_is_sent_again_and_the_rest_with_it() {
    let mut pair = Pair::acquainted();
    pair.call(3_000);
    let mut sent = pair.client_sends();
    sent.remove(0);
    assert!(pair.give_server(sent).is_empty());
    let first = pair.time_out();
    assert_eq!(kinds(&first), [(MessageType::Request, 0)]);
    let acks = pair.give_server(first);
    let rest = pair.give_client(acks);
    assert_eq!(kinds(&rest), requests(3)[1..]);
    pair.give_server(rest);
    pair.request(3_000);
}

/// A client that asks for the reply is told that the request is there.
#[test]
fn a_request_that_is_asked_for_while_it_waits_is_acknowledged() {
    let mut pair = Pair::acquainted();
    pair.call(3_000);
    let sent = pair.client_sends();
    assert!(pair.give_server(sent).is_empty());
    let again = pair.time_out();
    let acks = pair.give_server(again);
    assert_eq!(acks[0].packet().sack().unwrap().base.get(), u16::MAX);
    let id = pair.request(3_000);
    pair.give_client(acks);
    pair.answer(id);
}

/// A router stands at the address now: it drops all until packet 0 comes again.
#[test]
fn what_a_router_could_not_use_goes_to_the_server_that_it_chose() {
    let mut pair = Pair::acquainted();
    pair.call(3_000);
    let sent = pair.client_sends();
    assert!(sent[0].packet().route().is_none(), "a router cannot place it");
    let first = pair.time_out();
    assert!(first[0].packet().route().is_some());
    let acks = pair.give_server(first);
    pair.now += 10_000;
    for mut ack in acks {
        pair.client.handle_datagram(pair.now, address(3).into(), &mut ack.bytes);
    }
    let rest = pair.client_sends();
    assert_eq!(kinds(&rest), requests(3)[1..]);
    assert!(rest.iter().all(|sent| sent.to == address(3)));
    pair.call(3_000);
    assert_eq!(kinds(&pair.client_sends()), requests(1), "it is known for a router");
}

/// Packets of one even length are one GSO batch; of an odd one, first packets go together.
#[test]
fn packets_of_several_requests_make_few_batches() {
    for (len, batches) in [(1_400, 1), (1_401, 2)] {
        let mut pair = Pair::acquainted();
        (0..3).for_each(|_| pair.call(len));
        let mut buffer = vec![0; GSO_BYTES_MAX];
        let (mut sent, mut counts) = (Vec::new(), Vec::new());
        while let Some(transmit) = pair.client.poll_transmit(pair.now, &mut buffer) {
            counts.push(transmit.datagram_count());
            let chunks = buffer[..transmit.len].chunks(transmit.segment_len);
            sent.extend(chunks.map(|bytes| Sent { to: transmit.to, bytes: bytes.to_vec() }));
        }
        assert_eq!((counts.len(), counts.iter().sum::<usize>()), (batches, 6), "{counts:?}");
        pair.give_server(sent);
        for _ in 0..3 {
            let id = pair.request(len);
            pair.server.reply(pair.now, id, vec![5; len]).unwrap();
        }
        let replies = sent_by(pair.now, &mut pair.server);
        assert_eq!(replies.len(), 6);
        assert!(pair.give_client(replies).is_empty(), "later requests tell that the replies came");
        for _ in 0..3 {
            assert!(matches!(pair.client.poll_event(), Some(Event::Replied { .. })));
        }
    }
}

#[test]
fn a_request_alone_goes_in_one_batch() {
    let mut pair = Pair::acquainted();
    pair.call(1_400);
    let mut buffer = vec![0; GSO_BYTES_MAX];
    let transmit = pair.client.poll_transmit(pair.now, &mut buffer).unwrap();
    assert_eq!(transmit.datagram_count(), 2);
}

/// A pair of which each sees the other at an address of this host.
fn on_one_host() -> Pair {
    let mut pair = Pair::new();
    pair.client_address = "127.0.0.1:30000".parse().unwrap();
    pair.server_address = "[::ffff:127.0.0.1]:8000".parse().unwrap();
    pair
}

/// The first request cannot know whom it reaches; its reply, and all that follows, is long.
#[test]
fn packets_within_a_host_are_long() {
    let mut pair = on_one_host();
    let (there, back) = pair.lens_of_call(40_000);
    let long = vec![13_334, 13_334, 13_332];
    assert_eq!((there.len(), &back), (29, &long));
    assert_eq!(pair.lens_of_call(40_000), (long.clone(), long));
    assert_eq!(pair.lens_of_call(7_000), (vec![7_000], vec![7_000]));
    let (there, back) = pair.lens_of_call(1 << 20);
    assert!([there, back].iter().all(|lens| lens[..65] == [16_000; 65] && lens.len() == 66));
    let (client, server) = (pair.client.metrics(), pair.server.metrics());
    assert_eq!((client.resent, server.resent, server.common.protocol_violation), (0, 0, 0));
}

/// No more bytes of long packets are on their way than of others, whatever their number.
#[test]
fn credit_for_long_packets_is_by_their_bytes() {
    let mut pair = on_one_host();
    pair.lens_of_call(40_000);
    pair.call(1 << 20);
    let sent = pair.client_sends();
    assert_eq!(kinds(&sent), requests(1), "16 560 bytes hold one");
    let acks = pair.give_server(sent);
    let granted = acks.last().unwrap().packet().sack().unwrap().granted.get();
    let credit = Config::default().credit_bytes / 1_380 / 12;
    assert_eq!(usize::from(granted), 1 + credit);
    assert_eq!(pair.give_client(acks).len(), credit);
    assert!(pair.server.holdings().expected <= 75, "in packets of a network");
}

/// Packets are a network's where either sees the other elsewhere, or takes none; what has been long
/// is so no longer when the server has come up with another configuration.
#[test]
fn packets_between_hosts_are_a_networks() {
    let is_short = |pair: &mut Pair| {
        let (there, back) = pair.lens_of_call(40_000);
        there.len() == 29 && back.len() == 29
    };
    for (client, server) in [
        ("10.0.0.1:30000", "127.0.0.1:8000"),
        ("127.0.0.1:30000", "10.0.0.2:8000"),
        ("10.0.0.1:30000", "10.0.0.2:8000"),
    ] {
        let mut pair = Pair::new();
        (pair.client_address, pair.server_address) =
            (client.parse().unwrap(), server.parse().unwrap());
        assert!(is_short(&mut pair) && is_short(&mut pair), "{client} and {server}");
    }
    let none = |secret| Config { local_segment_len: 0, secret: [secret; 16], ..Config::default() };
    let mut pair = on_one_host();
    pair.client = Endpoint::new(0, none(1));
    assert!(is_short(&mut pair) && is_short(&mut pair), "the client takes none");
    let mut pair = on_one_host();
    pair.lens_of_call(10);
    pair.server = Endpoint::new(0, none(3));
    pair.now += 100_000 * MS;
    pair.lens_of_call(10);
    assert!(is_short(&mut pair), "the server takes none any more");
}

/// A router passes on what it is given: a reply from elsewhere is no word of the target.
#[test]
fn packets_to_a_router_are_a_networks() {
    let mut pair = on_one_host();
    let router = pair.server_address;
    pair.call(10);
    let sent = pair.client_sends();
    let replies = {
        pair.give_server(sent);
        let id = pair.request(10);
        pair.server.reply(pair.now, id, vec![5]).unwrap();
        sent_by(pair.now, &mut pair.server)
    };
    assert!(replies[0].packet().flags().has(Flags::LONG));
    pair.server_address = "127.0.0.1:9000".parse().unwrap();
    pair.give_client(replies);
    assert!(matches!(pair.client.poll_event(), Some(Event::Replied { .. })));
    pair.server_address = router;
    pair.call(40_000);
    assert_eq!(payload_lens(&pair.client_sends(), MessageType::Request), [1_380]);
}

/// One of the long packets is lost each time, there or back.
#[test]
fn long_packets_that_are_lost_go_again() {
    for lost in 0..3 {
        let mut pair = on_one_host();
        pair.lens_of_call(10);
        pair.call(40_000);
        let mut there = pair.client_sends();
        if lost < there.len() {
            there.remove(lost);
        }
        let mut turns = 0;
        let id = loop {
            let acks = pair.give_server(there);
            if let Some(Event::Request { id, payload, .. }) = pair.server.poll_event() {
                assert_eq!(payload.len(), 40_000);
                break id;
            }
            there = pair.give_client(acks);
            if there.is_empty() {
                there = pair.time_out();
            }
            turns += 1;
            assert!(turns < 20, "packet {lost}");
        };
        pair.server.reply(pair.now, id, vec![5]).unwrap();
        let replies = sent_by(pair.now, &mut pair.server);
        pair.give_client(replies);
        assert!(matches!(pair.client.poll_event(), Some(Event::Replied { .. })));
    }
}
