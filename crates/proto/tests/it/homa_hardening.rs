//! One Homa endpoint against packets made by hand: the traps of the protocol, forged packets,
//! strangers, peers of other implementations.

mod acks;
mod asked;
mod attached;
mod calls;
mod control;
mod local;
mod long;
mod partials;
mod recovery;
mod sending;
mod served;
mod waiting;

use std::net::SocketAddr;

use tailcut_proto::homa::{Carrier, Config, Cutoffs, Endpoint, GrantPolicy, Link};
use tailcut_proto::node::{GSO_BYTES_MAX, Node, Path, Time};
use tailcut_proto::rpc::{
    AnswerError, Call, CallError, CallOptions, Event, Failure, RequestId, Rpc,
};
use tailcut_wire::homa::{
    Ack, AckPacket, Body, CommonHeader, CutoffsPacket, DataFlags, DataHeader, GrantPacket,
    OFFSET_IN_SEQUENCE, Packet, PacketType, Ports, RESEND_ALL, ResendPacket, TimeLeft, hijack,
    tcp_checksum,
};
use tailcut_wire::r2p2::DropReason;
use zerocopy::IntoBytes;

const MS: Time = 1_000_000;
const SECOND: Time = 1000 * MS;
/// The client of requests made by hand, in a trusted network, and its id for the first of them, as
/// the module numbers.
const CLIENT: &str = "10.0.0.1:32769";
const STRANGER: &str = "192.0.2.1:32769";
const SERVER: &str = "10.0.0.2:99";
const TO_SERVER: Ports = Ports { source: 32_769, destination: 99 };
const TO_CLIENT: Ports = Ports { source: 99, destination: 32_768 };

/// A packet that an endpoint has sent.
#[derive(Debug)]
struct Sent {
    priority: u8,
    bytes: Vec<u8>,
}

struct Lone {
    node: Endpoint,
    now: Time,
    requests: Vec<(RequestId, Vec<u8>, Time)>,
    cancelled: usize,
    replies: Vec<Vec<u8>>,
    failures: Vec<Failure>,
    sent: Vec<Sent>,
}

impl Lone {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config { secret: [9; 16], ..Config::default() };
        config.serving.trusted.push("10.0.0.0/8".parse().unwrap());
        change(&mut config);
        let (requests, replies, failures, sent) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            node: Endpoint::new(0, config),
            now: 100 * SECOND,
            requests,
            cancelled: 0,
            replies,
            failures,
            sent,
        }
    }

    fn give(&mut self, from: &str, packet: &[u8]) {
        self.node.handle_datagram(self.now, path(from), &mut packet.to_vec());
        self.settle();
    }

    fn pass(&mut self, ns: u64) {
        let until = self.now + ns;
        while let Some(at) = self.node.poll_timeout().filter(|&at| at <= until) {
            self.now = at.max(self.now + 1);
            self.node.handle_timeout(self.now);
            self.settle();
        }
        self.now = until;
    }

    fn settle(&mut self) {
        while let Some(event) = self.node.poll_event() {
            match event {
                Event::Request { id, payload, deadline, .. } => {
                    self.requests.push((id, payload, deadline))
                }
                Event::Cancelled { .. } => self.cancelled += 1,
                Event::Replied { payload, .. } => self.replies.push(payload),
                Event::Failed { failure, .. } => self.failures.push(failure),
            }
        }
        self.drain();
    }

    fn drain(&mut self) {
        let mut buffer = vec![0; GSO_BYTES_MAX];
        while let Some(transmit) = self.node.poll_transmit(self.now, &mut buffer) {
            for bytes in buffer[..transmit.len].chunks(transmit.segment_len) {
                self.sent.push(Sent { priority: transmit.priority, bytes: bytes.to_vec() });
            }
        }
    }

    fn call(&mut self, len: usize) -> Result<(), CallError> {
        let (target, deadline) = (SERVER.parse().unwrap(), self.now + SECOND);
        let payload = pattern(len);
        let call = Call { target, payload, deadline, context: 7, options: CallOptions::default() };
        let result = self.node.call(self.now, call).map(|_| ());
        self.settle();
        result
    }

    fn reply(&mut self, len: usize) -> Result<(), AnswerError> {
        let id = self.requests.last().expect("a request has come").0;
        let result = self.node.reply(self.now, id, pattern(len));
        self.settle();
        result
    }

    /// Packets that were sent since this was last asked.
    fn take(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }

    fn take_types(&mut self) -> Vec<PacketType> {
        self.take().iter().map(|sent| Packet::parse(&sent.bytes).unwrap().packet_type()).collect()
    }
}

impl Sent {
    /// Bytes of data; `None` of a control packet.
    fn payload_len(&self) -> Option<usize> {
        matches!(self.packet().body, Body::Data { .. }).then(|| self.data().1.len())
    }

    fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.bytes).unwrap()
    }

    fn data(&self) -> (DataHeader, Vec<u8>) {
        match self.packet().body {
            Body::Data { header, payload } => (*header, payload.to_vec()),
            other => panic!("not data: {other:?}"),
        }
    }
}

/// DATA as the module's client sends it: no marks, the offset in the sequence.
fn request(id: u64, len: u32, offset: u32, bytes: &[u8]) -> Vec<u8> {
    let mut header = DataHeader::new(TO_SERVER, id, len, offset);
    header.seg_offset = OFFSET_IN_SEQUENCE.into();
    header.incoming = len.into();
    header.cutoff_version = 1.into();
    [header.as_bytes(), bytes].concat()
}

/// DATA as a client of our make sends it.
fn marked(id: u64, bytes: &[u8], change: impl FnOnce(&mut DataHeader)) -> Vec<u8> {
    let mut header = DataHeader::new(TO_SERVER, id, bytes.len() as u32, 0);
    header.incoming = header.message_length;
    header.flags = DataFlags::KNOWN;
    header.time_left = TimeLeft::of_ns(SECOND).0.into();
    header.cutoff_version = 1.into();
    change(&mut header);
    [header.as_bytes(), bytes].concat()
}

fn plain(packet_type: PacketType, ports: Ports, id: u64) -> Vec<u8> {
    CommonHeader::new(packet_type, ports, id).as_bytes().to_vec()
}

fn grant(ports: Ports, id: u64, offset: u32, priority: u8) -> Vec<u8> {
    let common = CommonHeader::new(PacketType::Grant, ports, id);
    GrantPacket { common, offset: offset.into(), priority }.as_bytes().to_vec()
}

fn resend(ports: Ports, id: u64, offset: u32, length: u32) -> Vec<u8> {
    let common = CommonHeader::new(PacketType::Resend, ports, id);
    ResendPacket { common, offset: offset.into(), length: length.into(), priority: 3 }
        .as_bytes()
        .to_vec()
}

fn ack(ports: Ports, id: u64, others: &[u64]) -> Vec<u8> {
    let mut acks = [Ack::default(); 5];
    others.iter().zip(&mut acks).for_each(|(&id, ack)| *ack = Ack::new(id, 99));
    let common = CommonHeader::new(PacketType::Ack, ports, id);
    AckPacket { common, num_acks: (others.len() as u16).into(), acks }.as_bytes().to_vec()
}

fn data_of_reply(id: u64, len: u32, offset: u32, bytes: &[u8]) -> Vec<u8> {
    let mut header = DataHeader::new(TO_CLIENT, id | 1, len, offset);
    header.incoming = len.into();
    header.cutoff_version = 1.into();
    [header.as_bytes(), bytes].concat()
}

/// Bytes of a message.
fn pattern(len: usize) -> Vec<u8> {
    let mut bytes = (0..=255).collect::<Vec<u8>>().repeat(len.div_ceil(256));
    bytes.truncate(len);
    bytes
}

/// The id of the first call, as the client numbers it.
fn id_of(sent: &[Sent]) -> u64 {
    sent[0].packet().common.sender_id.get()
}

#[test]
fn a_request_replayed_after_its_acknowledgement_does_not_run_again() {
    let mut server = Lone::new();
    for id in [2, 4, 6] {
        server.give(CLIENT, &request(id, 4, 0, b"ping"));
        server.reply(4).unwrap();
        server.give(CLIENT, &ack(TO_SERVER, id, &[]));
    }
    for id in [2, 4, 6, 2] {
        server.give(CLIENT, &request(id, 4, 0, b"ping"));
    }
    assert_eq!((server.requests.len(), server.node.metrics().duplicate_after_release), (3, 4));
    assert_eq!(server.node.holdings(), Default::default());
    server.give("10.0.0.9:32769", &request(2, 4, 0, b"ping"));
    assert_eq!(server.requests.len(), 4, "another client has ids of its own");
}

/// A message that claims more bytes than one may have is refused at its first packet.
#[test]
fn a_message_that_claims_to_be_longer_than_one_may_be_is_refused() {
    let mut server = Lone::with(|config| config.message_len_max = 1_000_000);
    server.give(CLIENT, &request(2, 1_000_001, 0, &[0; 1000]));
    assert_eq!(
        (server.node.metrics().drops[DropReason::TooLarge as usize], server.node.holdings()),
        (1, Default::default())
    );
    server.give(CLIENT, &request(4, 1_000_000, 0, &[0; 1000]));
    assert_eq!(server.node.holdings().partials, 1);
}

/// The length of an RPC that a peer sends is the peer's to say.
#[test]
fn an_rpc_that_is_longer_than_those_that_are_sent_here_is_taken() {
    let mut server = Lone::with(|config| config.rpc_len_max = 1_000_000);
    server.give(CLIENT, &request(2, 1_000_001, 0, &[0; 1000]));
    assert_eq!(server.node.holdings().partials, 1);
}

#[test]
fn an_rpc_that_is_never_acknowledged_draws_ten_need_acks() {
    let mut server = Lone::new();
    server.give(CLIENT, &request(2, 4, 0, b"ping"));
    server.reply(100).unwrap();
    server.take();
    server.pass(60 * SECOND);
    assert_eq!(server.take_types(), [PacketType::NeedAck; 10]);
    assert_eq!((server.node.holdings(), server.node.poll_timeout()), (Default::default(), None));
    assert_eq!(server.node.metrics().unacknowledged, 1);
}

#[test]
fn acks_come_alone_together_and_with_data() {
    let mut server = Lone::new();
    for id in [2, 4, 6, 8] {
        server.give(CLIENT, &request(id, 4, 0, b"ping"));
        server.reply(4).unwrap();
    }
    assert_eq!(server.node.holdings().requests, 4);
    server.give(CLIENT, &ack(TO_SERVER, 2, &[4]));
    assert_eq!(server.node.holdings().requests, 2);
    server.give(CLIENT, &marked(10, b"ping", |header| header.ack = Ack::new(6, 99)));
    assert_eq!(server.node.holdings().requests, 2, "one went and one came");
    server.give(CLIENT, &marked(12, b"ping", |header| header.ack = Ack::new(8, 98)));
    assert_eq!(server.node.holdings().requests, 3, "8 is not of port 98");
}

/// Two that call each other send replies and requests each; an acknowledgement must reach its
/// server with either.
#[test]
fn who_calls_and_serves_the_same_peer_has_its_calls_acknowledged() {
    let addresses = ["10.0.0.1:99", "10.0.0.2:99"].map(|text| text.parse().unwrap());
    let mut nodes =
        [1, 2].map(|secret| Endpoint::new(0, Config { secret: [secret; 16], ..Config::default() }));
    let mut buffer = vec![0; 2000];
    for round in 0..200 {
        let now = SECOND + 1000 * round;
        for (from, to) in [(0, 1), (1, 0)] {
            let (payload, deadline, options) = (vec![1; 8], now + SECOND, CallOptions::default());
            nodes[from]
                .call(now, Call { target: addresses[to], payload, deadline, context: 0, options })
                .unwrap();
        }
        let mut is_busy = true;
        while std::mem::take(&mut is_busy) {
            for (from, to) in [(0, 1), (1, 0)] {
                while let Some(event) = nodes[from].poll_event() {
                    if let Event::Request { id, .. } = event {
                        nodes[from].reply(now, id, vec![2; 8]).unwrap();
                    }
                }
                while let Some(transmit) = nodes[from].poll_transmit(now, &mut buffer) {
                    is_busy = true;
                    let segments = buffer[..transmit.len].chunks_mut(transmit.segment_len);
                    segments.for_each(|segment| {
                        nodes[to].handle_datagram(now, addresses[from].into(), segment)
                    });
                }
            }
        }
    }
    // Five acknowledgements wait at most.
    assert!(
        nodes.iter().all(|node| node.holdings().requests <= 5),
        "{:?}",
        nodes.map(|node| node.holdings())
    );
}

#[test]
fn both_offset_rules_are_followed() {
    let message: Vec<u8> = (0..200).collect();
    let mut server = Lone::new();
    server.give(CLIENT, &request(2, 200, 100, &message[100..]));
    // Cut by a NIC: the sequence is that of the first part of the GSO batch.
    let mut header = DataHeader::new(TO_SERVER, 2, 200, 0);
    header.incoming = 200.into();
    header.common.sequence = 77.into();
    server.give(CLIENT, &[header.as_bytes(), &message[..100]].concat());
    assert_eq!(server.requests[0].1, message);
}

#[test]
fn hijacked_frames_are_answered_in_the_form_that_the_endpoint_is_configured_for() {
    let (client, server): (SocketAddr, SocketAddr) =
        (CLIENT.parse().unwrap(), SERVER.parse().unwrap());
    let mut packet = request(2, 4, 0, b"ping");
    hijack(&mut packet, client.ip(), server.ip());
    for carrier in [Carrier::Own, Carrier::HijackedTcp { source: server.ip() }] {
        let mut lone = Lone::with(|config| config.carrier = carrier);
        lone.give(CLIENT, &packet);
        lone.reply(4).unwrap();
        let sent = lone.take();
        let (header, payload) = sent.last().unwrap().data();
        let is_hijacked = carrier != Carrier::Own;
        assert_eq!((header.offset(), payload.len()), (0, 4));
        assert_eq!(header.seg_offset.get() == OFFSET_IN_SEQUENCE, is_hijacked);
        for packet in &sent {
            assert_eq!(packet.packet().common.checksum.get() != 0, is_hijacked);
            assert!(!is_hijacked || tcp_checksum(&packet.bytes, server.ip(), client.ip()) == 0);
        }
    }
}

/// A million in all, from whoever knows nothing or one thing less than all.
#[test]
fn forged_control_packets_change_nothing() {
    let mut lone = Lone::with(|config| config.control_len_max = 16);
    lone.call(100_000).unwrap();
    let id = id_of(&lone.take());
    lone.give(CLIENT, &request(2, 4, 0, b"ping"));
    lone.give(CLIENT, &request(4, 4, 0, b"ping"));
    lone.reply(100_000).unwrap();
    lone.take();
    let before = (
        lone.node.holdings(),
        lone.node.metrics().data_bytes_out,
        lone.node.metrics().resent_bytes,
    );
    let (elsewhere, other_port) = ("10.9.9.9:99", Ports { source: 98, ..TO_CLIENT });
    let mut out = 0;
    for round in 0..1_000_000u64 {
        let guess = (id ^ 1).wrapping_add(2 + 2 * round);
        let forged = [
            // The right id from elsewhere, from another port, and a wrong id from the right place.
            (elsewhere, grant(TO_CLIENT, id ^ 1, 100_000, 7)),
            (SERVER, grant(other_port, id ^ 1, 100_000, 7)),
            (SERVER, grant(TO_CLIENT, guess, 100_000, 7)),
            (SERVER, grant(TO_CLIENT, id ^ 1, 100_001, 7)),
            (CLIENT, grant(TO_SERVER, 2, 100_000, 7)),
            (elsewhere, ack(TO_SERVER, 2, &[4])),
            (CLIENT, ack(Ports { source: 5, ..TO_SERVER }, 2, &[4])),
            (CLIENT, ack(TO_SERVER, 6 + 2 * round, &[])),
            (SERVER, plain(PacketType::RpcUnknown, TO_CLIENT, guess)),
            (SERVER, plain(PacketType::RpcUnknown, other_port, id ^ 1)),
            (SERVER, plain(PacketType::RpcUnknown, TO_CLIENT, id ^ 1)),
            (CLIENT, plain(PacketType::RpcUnknown, TO_SERVER, 2)),
            (elsewhere, resend(TO_CLIENT, id ^ 1, 0, RESEND_ALL)),
            (SERVER, resend(other_port, id ^ 1, 0, RESEND_ALL)),
            (SERVER, resend(TO_CLIENT, id ^ 1, 99_999, 2)),
            (SERVER, resend(TO_CLIENT, guess, 0, RESEND_ALL)),
        ];
        let (from, packet) = &forged[round as usize % forged.len()];
        lone.node.handle_datagram(lone.now, path(from), &mut packet.to_vec());
        if round % 16 == 0 {
            lone.drain();
            assert!(
                lone.sent.iter().all(|sent| sent.packet().packet_type() == PacketType::RpcUnknown)
            );
            out += lone.take().iter().map(|sent| sent.bytes.len()).sum::<usize>();
        }
    }
    let after = (
        lone.node.holdings(),
        lone.node.metrics().data_bytes_out,
        lone.node.metrics().resent_bytes,
    );
    assert_eq!(after, before);
    assert!(out <= 1_000_000 * 28, "{out} bytes answered");
    assert!(lone.failures.is_empty() && lone.cancelled == 0);
}

#[test]
fn a_grant_lets_more_go_at_its_priority_and_a_smaller_one_does_nothing() {
    let mut client = Lone::new();
    client.call(100_000).unwrap();
    let sent = client.take();
    let id = id_of(&sent);
    let bytes: usize = sent.iter().map(|sent| sent.data().1.len()).sum();
    assert_eq!(bytes, 40_000, "the module's unscheduled bytes");
    assert!(
        sent.iter().all(|sent| sent.priority == 6),
        "the module's priority for peers that it does not know"
    );
    assert_eq!(
        sent.last().unwrap().data().1.len(),
        40_000 % 1396,
        "a packet ends where the unscheduled bytes do"
    );
    client.give(SERVER, &grant(TO_CLIENT, id ^ 1, 42_000, 3));
    client.give(SERVER, &grant(TO_CLIENT, id ^ 1, 41_000, 2));
    let sent = client.take();
    let found: Vec<(u8, u32, usize)> = sent
        .iter()
        .map(|sent| (sent.priority, sent.data().0.offset(), sent.data().1.len()))
        .collect();
    assert_eq!(found, [(3, 40_000, 1396), (3, 41_396, 604)]);
    assert_eq!(sent[0].data().0.incoming.get(), 42_000);
}

#[test]
fn unscheduled_bytes_go_by_the_peers_cutoffs() {
    let mut client = Lone::new();
    client.call(10).unwrap();
    let id = id_of(&client.take());
    let common = CommonHeader::new(PacketType::Cutoffs, TO_CLIENT, id ^ 1);
    let cutoffs = [0, 0, 0, 0, 1_000_000, 15_000, 2800, 200].map(Into::into);
    client.give(SERVER, CutoffsPacket { common, cutoffs, version: 9.into() }.as_bytes());
    for len in [100, 201, 2801, 15_001] {
        client.call(len).unwrap();
    }
    let sent = client.take();
    let mut levels: Vec<u8> = sent.iter().map(|sent| sent.priority).collect();
    levels.dedup();
    assert_eq!(levels, [7, 6, 5, 4]);
    assert!(sent.iter().all(|sent| sent.data().0.cutoff_version.get() == 9));
}

/// Cutoffs that a server has told, in `ms` of requests of a peer every 50 us that echo none.
fn told_in(server: &mut Lone, from: &str, ms: u64) -> Vec<Sent> {
    for id in 1..=20 * ms {
        server.give(from, &marked(2 * id, b"ping", |header| header.cutoff_version = 0.into()));
        server.now += 50_000;
    }
    let is_cutoffs = |sent: &Sent| sent.packet().packet_type() == PacketType::Cutoffs;
    server.take().into_iter().filter(is_cutoffs).collect()
}

#[test]
fn a_stale_version_draws_the_cutoffs_once_a_millisecond_until_the_address_is_validated() {
    let mut server = Lone::new();
    let cutoffs = told_in(&mut server, STRANGER, 5);
    assert_eq!(cutoffs.len(), 5, "in 5 ms");
    assert_eq!(cutoffs[0].bytes.len(), 62);
    let Body::Cutoffs(packet) = cutoffs[0].packet().body else { panic!("not cutoffs") };
    assert_eq!((packet.cutoffs[7].get(), packet.cutoffs[4].get()), (200, 1_000_000));
    assert_eq!(cutoffs[0].priority, 7, "control packets go at the highest priority");
}

#[test]
fn a_validated_peer_is_told_the_same_cutoffs_after_100_ms() {
    let mut server = Lone::new();
    let cutoffs = told_in(&mut server, CLIENT, 99);
    assert_eq!(cutoffs.len(), 1, "what comes was under way");
    let Body::Cutoffs(packet) = cutoffs[0].packet().body else { panic!("not cutoffs") };
    assert_eq!(packet.version.get(), 1);
    assert_eq!(told_in(&mut server, CLIENT, 2).len(), 1, "they were lost");
}

#[test]
fn who_asks_while_the_server_works_hears_busy_and_who_asks_for_nothing_known_unknown() {
    let mut server = Lone::new();
    server.give(CLIENT, &request(2, 4, 0, b"ping"));
    server.give(CLIENT, &resend(TO_SERVER, 2, 0, RESEND_ALL));
    server.give(CLIENT, &resend(TO_SERVER, 4, 0, RESEND_ALL));
    let sent = server.take();
    let found: Vec<(PacketType, u64)> = sent
        .iter()
        .map(|sent| (sent.packet().packet_type(), sent.packet().common.sender_id.get()))
        .collect();
    assert_eq!(found, [(PacketType::Busy, 3), (PacketType::RpcUnknown, 5)]);
}

#[test]
fn a_range_that_is_asked_for_goes_again_as_far_as_it_was_sent() {
    let mut server = Lone::new();
    server.give(CLIENT, &request(2, 4, 0, b"ping"));
    server.reply(60_000).unwrap();
    server.take();
    server.give(CLIENT, &resend(TO_SERVER, 2, 1396, 3000));
    let sent = server.take();
    let found: Vec<(u8, u32, usize, u8)> = sent
        .iter()
        .map(|sent| {
            (sent.priority, sent.data().0.offset(), sent.data().1.len(), sent.data().0.retransmit)
        })
        .collect();
    assert_eq!(found, [(3, 1396, 1396, 1), (3, 2792, 1396, 1), (3, 4188, 208, 1)]);
    // The grant for this was lost: BUSY, and now it goes for the first time.
    server.give(CLIENT, &resend(TO_SERVER, 2, 40_000, 1396));
    let types = server.take_types();
    assert_eq!(types, [PacketType::Busy, PacketType::Data]);
}

#[test]
fn unknown_is_believed_by_who_has_asked() {
    let mut client = Lone::new();
    client.call(100).unwrap();
    let id = id_of(&client.take());
    let unknown = plain(PacketType::RpcUnknown, TO_CLIENT, id ^ 1);
    client.give(SERVER, &unknown);
    assert!(client.take().is_empty(), "nobody has asked");
    client.pass(2 * MS);
    assert_eq!(client.take_types(), [PacketType::Resend]);
    client.give(SERVER, &unknown);
    client.give(SERVER, &unknown);
    let sent = client.take();
    assert_eq!(sent.len(), 1, "once for each question");
    assert_ne!(sent[0].data().0.retransmit, 0);
}

#[test]
fn need_ack_for_what_has_ended_draws_an_ack_of_80_bytes() {
    let mut client = Lone::new();
    let mut ids = Vec::new();
    for _ in 0..3 {
        client.call(10).unwrap();
        let id = id_of(&client.take());
        client.give(SERVER, &acks::known_reply(id, b"pong"));
        ids.push(id);
    }
    assert_eq!(client.replies.len(), 3);
    client.give(SERVER, &plain(PacketType::NeedAck, TO_CLIENT, ids[2] | 1));
    let sent = client.take();
    let (bytes, packet) = (sent[0].bytes.len(), sent[0].packet());
    let Body::Ack(acks) = packet.body else { panic!("not an ack") };
    let named: Vec<u64> = acks.iter().map(|ack| ack.client_id.get()).collect();
    // The acknowledgement of the first went with the second call, and so on.
    assert_eq!((bytes, packet.common.sender_id.get(), named), (80, ids[2], vec![]));
    assert_eq!(client.node.metrics().acks_piggybacked, 2);
}

#[test]
fn need_ack_for_half_a_reply_draws_a_resend() {
    let mut client = Lone::new();
    client.call(10).unwrap();
    let id = id_of(&client.take());
    client.give(SERVER, &data_of_reply(id, 2000, 0, &[1; 1396]));
    client.now += MS / 4;
    client.give(SERVER, &plain(PacketType::NeedAck, TO_CLIENT, id | 1));
    let sent = client.take();
    let Body::Resend(resend) = sent[0].packet().body else { panic!("not a resend") };
    assert_eq!((resend.offset, resend.length), (1396, 604));
}

/// The bytes that went to and came from a stranger, before it has been validated and after.
#[test]
fn a_stranger_gets_three_bytes_for_one_until_it_tells_the_version_back() {
    let mut server = Lone::new();
    let paid = marked(2, b"ping", |header| header.cutoff_version = 0.into());
    server.give(STRANGER, &paid);
    server.reply(20_000).unwrap();
    server.pass(100 * MS);
    let sent = server.take();
    let got: usize = sent.iter().map(|sent| sent.bytes.len()).sum();
    assert!(got <= 3 * paid.len(), "{got} for {}", paid.len());
    let told = sent.iter().find_map(|sent| match sent.packet().body {
        Body::Cutoffs(packet) => Some((packet.version, packet.common.window)),
        _ => None,
    });
    let (version, tag) = told.expect("it is told what to echo");
    // Half of it can be guessed, and validates nothing.
    for (version, tag) in [(version, 0.into()), (0.into(), tag)] {
        let guess = marked(2, b"ping", |header| {
            (header.cutoff_version, header.common.window) = (version, tag);
        });
        server.give(STRANGER, &guess);
        let got: usize = server.take().iter().map(|sent| sent.bytes.len()).sum();
        assert!(got <= 3 * guess.len(), "{got} for half of the echo");
    }
    let echoed = marked(2, b"ping", |header| {
        (header.cutoff_version, header.common.window) = (version, tag);
    });
    server.give(STRANGER, &echoed);
    let data_len = |sent: &Sent| match sent.packet().body {
        Body::Data { payload, .. } => payload.len(),
        _ => 0,
    };
    let got: usize = server.take().iter().map(data_len).sum();
    assert_eq!((got, server.requests.len()), (20_000, 1));
}

/// The module echoes a version and nothing else, and sends a request again where it is unknown.
#[test]
fn a_stranger_with_the_module_gets_its_reply_after_two_echoes() {
    let mut server = Lone::new();
    let echoing = |version| {
        let mut packet = request(2, 4, 0, b"ping");
        packet[46..48].copy_from_slice(&u16::to_be_bytes(version));
        packet
    };
    let mut version = 0;
    for rounds in 0..2 {
        server.give(STRANGER, &echoing(version));
        if rounds == 0 {
            server.reply(20_000).unwrap();
        }
        let sent = server.take();
        let got: usize = sent.iter().map(|sent| sent.bytes.len()).sum();
        assert!(got <= 3 * 60, "{got} bytes for 60");
        let told = sent.iter().rev().find_map(|sent| match sent.packet().body {
            Body::Cutoffs(packet) => Some(packet.version.get()),
            _ => None,
        });
        version = told.expect("it is told what to echo");
        assert_eq!(sent.last().unwrap().packet().packet_type(), PacketType::RpcUnknown);
    }
    server.give(STRANGER, &echoing(version));
    let got: usize = server.take().iter().filter_map(Sent::payload_len).sum();
    assert_eq!((got, server.requests.len()), (20_000, 1));
}

#[test]
fn a_client_told_the_same_cutoffs_again_proves_its_address() {
    let mut client = Lone::new();
    client.call(10_000).unwrap();
    let id = id_of(&client.take());
    let common = CommonHeader::new(PacketType::Cutoffs, TO_CLIENT, id ^ 1);
    let packet = CutoffsPacket { common, cutoffs: [1_000_000.into(); 8], version: 777.into() };
    client.give(SERVER, packet.as_bytes());
    assert!(client.take().is_empty());
    client.give(SERVER, packet.as_bytes());
    let sent = client.take();
    assert_eq!((sent.len(), sent[0].data().0.cutoff_version.get()), (1, 777));
}

#[test]
fn a_peer_without_grants_is_served_and_called() {
    let strip = |mut bytes: Vec<u8>| {
        bytes[13] = 0;
        bytes[18..20].fill(0);
        bytes
    };
    let message: Vec<u8> = (0..300_000u32).map(|place| place as u8).collect();
    let mut server = Lone::new();
    for (place, part) in message.chunks(1396).enumerate() {
        let header = DataHeader::new(TO_SERVER, 2, 300_000, place as u32 * 1396);
        server.give(CLIENT, &strip([header.as_bytes(), part].concat()));
    }
    assert_eq!(server.requests[0].1, message);
    assert!(
        server
            .take_types()
            .iter()
            .all(|kind| *kind != PacketType::Cutoffs && *kind != PacketType::Grant)
    );
    server.reply(300_000).unwrap();
    let got: usize = server.take().iter().map(|sent| sent.data().1.len()).sum();
    assert_eq!(got, 300_000, "it will not grant, so nothing waits for it");
}

/// RESEND of the variant without grants has neither flags nor a priority, and asks for what it was
/// never granted.
#[test]
fn a_peer_without_grants_gets_what_it_asks_for_at_the_priority_of_its_length() {
    let mut client = Lone::with(|config| config.unscheduled_len = 1396);
    client.call(10_000).unwrap();
    let first = client.take();
    let asked = [
        &plain(PacketType::Resend, TO_CLIENT, id_of(&first) ^ 1)[..],
        &1396u32.to_be_bytes(),
        &8604u32.to_be_bytes(),
    ];
    let mut asked = asked.concat();
    asked[13] = 0;
    asked[18..20].fill(0);
    assert_eq!(asked.len(), 36);
    client.pass(MS);
    client.give(SERVER, &asked);
    let sent = client.take();
    let got: usize = sent.iter().filter_map(Sent::payload_len).sum();
    assert_eq!((first.len(), got), (1, 8604));
    assert!(
        sent.iter().all(|sent| sent.payload_len().is_none() || sent.priority == first[0].priority)
    );
}

#[test]
fn claims_do_not_make_memory() {
    let mut server = Lone::new();
    let claim = |server: &mut Lone, id: u64, offset| {
        let mut header = DataHeader::new(TO_SERVER, id, 1_000_000, offset);
        header.incoming = 1_000_000.into();
        server.give(CLIENT, &[header.as_bytes(), &[1]].concat());
    };
    (1..=1000).for_each(|id| claim(&mut server, 2 * id, 999_999));
    assert_eq!(
        server.node.metrics().protocol_violation,
        1000,
        "beyond what is taken without a grant"
    );
    assert_eq!((server.node.holdings().requests, server.node.holdings().held_bytes), (0, 0));
    (1001..=2000).for_each(|id| claim(&mut server, 2 * id, 99_999));
    let begun = (64 << 20) / 100_000;
    // Some have been granted more.
    let partials = server.node.holdings().partials;
    assert!((begun - 10..=begun).contains(&partials), "{partials}: the rest is over the limit");
    assert!(server.node.holdings().held_bytes <= 64 << 20);
    server.pass(2 * SECOND);
    assert_eq!(server.node.holdings(), Default::default());
}

#[test]
fn a_short_message_overtakes_a_long_one_behind_a_slow_link() {
    let link = Some(Link { bits_per_second: 10_000_000_000, queue_ns_max: 3000, bypass_len: 0 });
    let mut client = Lone::with(|config| config.link = link);
    client.call(40_000).unwrap();
    let before = client.take().len();
    assert!((2..5).contains(&before), "{before} packets wait before the NIC");
    client.call(1000).unwrap();
    client.pass(MS);
    let sent = client.take();
    assert_eq!(sent[0].data().0.message_length.get(), 1000);
    let bytes: usize = sent.iter().map(|sent| sent.data().1.len()).sum();
    assert_eq!(bytes, 41_000 - before * 1396, "and all of it goes in the end");
}

#[test]
fn many_calls_are_marked_and_their_replies_have_few_unscheduled_bytes() {
    let mut client = Lone::with(|config| config.incast.calls_max = 3);
    (0..5).for_each(|_| client.call(10).unwrap());
    let marks: Vec<bool> =
        client.take().iter().map(|sent| sent.data().0.flags().has(DataFlags::INCAST)).collect();
    assert_eq!(marks, [false, false, false, true, true]);
    let mut server = Lone::new();
    server.give(CLIENT, &marked(2, b"ping", |header| header.flags |= DataFlags::INCAST));
    server.reply(10_000).unwrap();
    let sent = server.take();
    assert_eq!(
        (sent.len(), sent[0].data().1.len(), sent[0].data().0.incoming.get()),
        (1, 400, 400)
    );
    server.give(CLIENT, &grant(TO_SERVER, 2, 10_000, 1));
    let got: usize = server.take().iter().map(|sent| sent.data().1.len()).sum();
    assert_eq!(got, 9600);
}

#[test]
fn limits_are_typed_errors_and_refusals() {
    let mut client = Lone::with(|config| (config.calls_max, config.message_len_max) = (2, 1000));
    assert_eq!(client.call(1001), Err(CallError::TooLarge { len: 1001, limit: 1000 }));
    (0..2).for_each(|_| client.call(10).unwrap());
    assert_eq!(client.call(10), Err(CallError::TooManyOutstanding { limit: 2 }));
    let mut server = Lone::with(|config| config.serving.requests_per_client_max = 1);
    server.give(CLIENT, &marked(2, b"ping", |_| {}));
    server.give(CLIENT, &marked(4, b"ping", |_| {}));
    let sent = server.take();
    let (header, payload) = sent[0].data();
    assert!(header.flags().has(DataFlags::REFUSED));
    assert_eq!(DropReason::from_payload(&payload), DropReason::Overload);
    server.reply(4).unwrap();
    server.give(CLIENT, &ack(TO_SERVER, 2, &[]));
    server.give(CLIENT, &marked(4, b"ping", |_| {}));
    assert_eq!(server.requests.len(), 1, "what was refused does not run later");
}

#[test]
fn a_refusal_ends_the_call_for_its_reason() {
    let mut client = Lone::new();
    client.call(10).unwrap();
    let id = id_of(&client.take());
    let mut header = DataHeader::new(TO_CLIENT, id | 1, 1, 0);
    header.flags = DataFlags::KNOWN | DataFlags::REFUSED;
    client.give(SERVER, &[header.as_bytes(), &[DropReason::Overload as u8]].concat());
    assert_eq!(client.failures, [Failure::Refused(DropReason::Overload)]);
}

#[test]
fn a_retransmission_that_may_have_run_before_a_restart_is_refused() {
    let mut server = Lone::new();
    server.node = Endpoint::new(20 * MS, Config::default());
    server.now = 50 * MS;
    let again = |age_code| marked(2, b"ping", |header| header.retransmit = age_code);
    server.give(CLIENT, &again(17 + 8));
    let (header, payload) = server.take()[0].data();
    assert!(header.flags().has(DataFlags::REFUSED));
    assert_eq!(
        (DropReason::from_payload(&payload), server.requests.len()),
        (DropReason::Uncertain, 0)
    );
    // At most 32 ms old, it was first sent 18 ms after the start, which is more than a packet
    // takes.
    server.now = 70 * MS;
    server.give(CLIENT, &again(17 + 8));
    assert_eq!(server.requests.len(), 1);
    server.give(CLIENT, &marked(4, b"ping", |header| header.retransmit = 255));
    assert_eq!(server.requests.len(), 1, "of any age");
}

#[test]
fn deadlines_travel_and_end_what_nobody_waits_for() {
    let mut server = Lone::new();
    server.give(
        CLIENT,
        &marked(2, b"ping", |header| header.time_left = TimeLeft::of_ns(5 * MS).0.into()),
    );
    assert_eq!(server.requests[0].2, server.now + TimeLeft::of_ns(5 * MS).ns().unwrap());
    server.pass(6 * MS);
    assert_eq!((server.cancelled, server.reply(4)), (1, Err(AnswerError::Gone)));
}

#[test]
fn one_id_with_other_ports_is_another_socket_and_disturbs_nothing() {
    let mut server = Lone::new();
    server.give(CLIENT, &request(2, 2000, 0, &[1; 1000]));
    let mut header = DataHeader::new(Ports { source: 7, destination: 99 }, 2, 2000, 1000);
    header.incoming = 2000.into();
    server.give(CLIENT, &[header.as_bytes(), &[9; 1000]].concat());
    assert!(server.requests.is_empty());
    server.give(CLIENT, &request(2, 2000, 1000, &[1; 1000]));
    assert_eq!(server.requests[0].1, vec![1; 2000]);
}

#[test]
fn ids_are_even_and_cannot_be_guessed_from_each_other() {
    let ids = |secret| {
        let mut client = Lone::with(|config| config.secret = secret);
        client.call(10).unwrap();
        id_of(&client.take())
    };
    let (one, other) = (ids([1; 16]), ids([2; 16]));
    assert_eq!((one % 2, other % 2), (0, 0));
    assert!((one ^ other) >> 24 != 0, "their sessions differ");
}

/// A part of a request with `incoming` unscheduled bytes, as the simulations of SIGCOMM'18 cut it.
fn part(id: u64, len: u32, offset: u32, bytes: u32) -> Vec<u8> {
    let mut header = DataHeader::new(TO_SERVER, id, len, offset);
    header.incoming = len.min(9328).into();
    header.cutoff_version = 1.into();
    [header.as_bytes(), &vec![1; bytes as usize]].concat()
}

/// The grants among what was sent: id at the client, offset, priority.
fn grants(sent: &[Sent]) -> Vec<(u64, u32, u8)> {
    let of = |sent: &Sent| match sent.packet().body {
        Body::Grant(grant) => {
            Some((sent.packet().common.local_id(), grant.offset.get(), grant.priority))
        }
        _ => None,
    };
    sent.iter().filter_map(of).collect()
}

fn sigcomm(overcommit: u8) -> impl Fn(&mut Config) {
    move |config| {
        *config = Config {
            secret: [9; 16],
            ..Config::sigcomm(overcommit, Cutoffs::descending(&[469, 5521, 15_267], 1))
        }
    }
}

/// 9328 bytes in seven packets are 10,000 bytes on the wire, and a packet of either kind is 1538:
/// each that comes lets one go.
#[test]
fn sigcomm_grants_a_packet_for_a_packet_and_not_faster_than_the_link() {
    let mut server = Lone::with(sigcomm(4));
    server.give(CLIENT, &part(2, 100_000, 0, 1442));
    assert_eq!(grants(&server.take()), [(2, 9328 + 1456, 0)]);
    server.give(CLIENT, &part(2, 100_000, 1442, 1442));
    assert_eq!(grants(&server.take()), [], "a packet takes 1231 ns");
    server.pass(1230);
    assert_eq!(grants(&server.take()), []);
    server.pass(1);
    assert_eq!(grants(&server.take()), [(2, 9328 + 2 * 1456, 0)]);
    server.pass(10_000);
    assert_eq!(grants(&server.take()), [], "10,000 bytes are in flight");
}

#[test]
fn sigcomm_boosts_the_tail_to_the_level_of_its_length() {
    let mut server = Lone::with(sigcomm(4));
    server.give(CLIENT, &part(2, 12_000, 0, 1442));
    assert_eq!(
        grants(&server.take()),
        [(2, 10_784, 6)],
        "2672 bytes are left, which are more than 469 and less than 5521"
    );
    server.pass(2000);
    server.give(CLIENT, &part(2, 12_000, 1442, 1442));
    assert_eq!(grants(&server.take()), [(2, 12_000, 6)]);
}

#[test]
fn sigcomm_grants_to_as_many_peers_as_overcommitted_the_best_first() {
    let mut server = Lone::with(sigcomm(2));
    let clients = ["10.0.0.11:32769", "10.0.0.12:32769", "10.0.0.13:32769"];
    let mut step = |offset: u32, len: [u32; 3]| {
        (0..3).for_each(|client| {
            server.give(clients[client], &part(2 + 2 * client as u64, len[client], offset, 1442))
        });
        server.pass(2000);
        grants(&server.take()).iter().map(|grant| (grant.0, grant.2)).collect::<Vec<_>>()
    };
    // Alone the first is at the lowest level; the second is better and takes the one above it, and
    // the third is the worst.
    assert_eq!(step(0, [60_000, 50_000, 70_000]), [(2, 0), (4, 1)]);
    assert_eq!(step(1442, [60_000, 50_000, 70_000]), [(2, 0), (4, 1)]);
}

#[test]
fn module_grants_its_share_of_the_window_beyond_what_has_come() {
    let mut server = Lone::new();
    server.give(CLIENT, &part(2, 1_000_000, 0, 1396));
    assert_eq!(grants(&server.take()), [(2, 1396 + 400_000 / 2, 0)]);
    server.give("10.0.0.11:32769", &part(2, 900_000, 0, 1396));
    // A third of the window each, now that there are two; the first has more already.
    assert_eq!(grants(&server.take()), [(2, 1396 + 400_000 / 3, 1)]);
    assert!(server.node.holdings().expected <= 400_000);
}

#[test]
fn the_oldest_message_is_not_starved() {
    let mut server = Lone::with(|config| {
        let (window, incoming_max, fifo_increment) = (20_000, 400_000, 10_000);
        config.grants.policy =
            GrantPolicy::Module { window, incoming_max, fifo_permille: 50, fifo_increment };
        config.grants.overcommit = 1;
    });
    server.give(CLIENT, &part(2, 1_000_000, 0, 1396));
    let (mut oldest, mut priorities) = (1396..21_396, Vec::new());
    server.take();
    for client in 0..40u64 {
        let peer = format!("10.0.1.{client}:32769");
        // Each is better than the oldest, and sends what it is granted; then the oldest does.
        let mut own = 0..9328;
        while own.start < 50_000 {
            let bytes = own.end.min(own.start + 1396) - own.start;
            server.give(&peer, &part(1000, 50_000, own.start, bytes));
            own.start += bytes;
            for (id, offset, priority) in grants(&server.take()) {
                if id == 1000 {
                    own.end = own.end.max(offset);
                } else {
                    oldest.end = oldest.end.max(offset);
                    priorities.push(priority);
                }
            }
        }
        while oldest.start < oldest.end {
            let bytes = oldest.end.min(oldest.start + 1396) - oldest.start;
            server.give(CLIENT, &part(2, 1_000_000, oldest.start, bytes));
            oldest.start += bytes;
        }
        server.take();
    }
    // 40,672 bytes of each of the 40 need grants; a twentieth of them is 81 kB for the oldest, 10
    // kB at a time.
    assert!(priorities.iter().filter(|&&priority| priority == 7).count() >= 8, "{priorities:?}");
}

fn path(from: &str) -> Path {
    from.parse::<SocketAddr>().unwrap().into()
}
