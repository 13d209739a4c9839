//! tailcut's extension: each message type, each mark, both forms of a router, IPv4 and IPv6.

use tailcut_wire::r2p2::{
    ClaimBody, DropReason, EXTENDED_LEN, FeedbackBody, Flags, MessageType, Policy, ROUTED_LEN,
    Rejection, ReplyRepr, RequestRepr, Route, RpcId, SackBody, Segment, SessionId, Verdict,
    packet_count, payload_span,
};
use zerocopy::IntoBytes;

use super::capture::Datagram;
use super::message;

/// Every conversation, one after the other.
pub(crate) fn datagrams() -> Vec<Datagram> {
    let annotated = [annotated(), kept(), long_reply(), lost_tail(), refusals(), clones()];
    let others = [over_ipv6(), stopping(), claims(), filtered(), overload(), unscheduled()];
    annotated.into_iter().chain(others).flatten().collect()
}

/// A message of a call, from which its packets are cut.
#[derive(Clone, Copy)]
pub(crate) struct Message {
    /// Request or reply.
    pub(crate) kind: MessageType,
    /// Sequence of the call in [`SESSION`].
    pub(crate) sequence: u32,
    /// Bytes of the message.
    pub(crate) len: u32,
    /// Payload of every packet but the last.
    pub(crate) segment_len: u16,
    /// Flags of every packet.
    pub(crate) flags: u8,
}

impl Message {
    /// A request of `len` bytes in packets of the default size.
    pub(crate) fn request(sequence: u32, len: u32) -> Self {
        Self { kind: MessageType::Request, sequence, len, segment_len: SEGMENT_LEN, flags: 0 }
    }

    /// A reply of `len` bytes in packets of the default size.
    pub(crate) fn reply(sequence: u32, len: u32) -> Self {
        Self { kind: MessageType::Response, ..Self::request(sequence, len) }
    }

    /// This message with `flag` set.
    pub(crate) fn flagged(self, flag: u8) -> Self {
        Self { flags: self.flags | flag, ..self }
    }

    /// Packet `index`; packet 0 of a request has the route block.
    pub(crate) fn packet(self, index: u16) -> Vec<u8> {
        if index == 0 && self.kind == MessageType::Request {
            self.routed(Route::default())
        } else {
            self.unrouted(index)
        }
    }

    /// Packet 0 of a request with what a router wrote.
    pub(crate) fn routed(self, route: Route) -> Vec<u8> {
        [&self.header(0)[..], route.as_bytes(), &self.payload(0)].concat()
    }

    /// Packet `index` with the 48-byte header.
    pub(crate) fn unrouted(self, index: u16) -> Vec<u8> {
        let mut header = self.header(index);
        header[1] = EXTENDED_LEN as u8;
        [&header[..], &self.payload(index)].concat()
    }

    /// The header of packet `index` without the route block.
    fn header(self, index: u16) -> Vec<u8> {
        let (message_len, segment_len) = (self.len, self.segment_len);
        let count = packet_count(message_len, segment_len).expect("a message that fits");
        let segment = Segment { message_len, segment_len, index, count };
        let (rid, rpc_id) = call(self.sequence);
        if self.kind == MessageType::Response {
            let repr = ReplyRepr { segment, flags: self.flags, ..reply(self.kind, self.sequence) };
            return repr.header().as_bytes().to_vec();
        }
        let repr = RequestRepr {
            policy: Policy::Unrestricted,
            segment,
            flags: self.flags,
            deadline_us: 500,
            floor: FLOOR,
            age_ms: Flags(self.flags).has(Flags::RETRANSMIT).into(),
            token: if self.sequence > FLOOR { TOKEN } else { 0 },
            ..RequestRepr::control(self.kind, rid, rpc_id)
        };
        repr.header().as_bytes().to_vec()
    }

    fn payload(self, index: u16) -> Vec<u8> {
        let (offset, len) = payload_span(index, self.len, self.segment_len);
        message(offset, len)
    }
}

/// The header of a control packet.
pub(crate) fn control(kind: MessageType, sequence: u32, flags: u8) -> Vec<u8> {
    if kind.is_from_server() {
        ReplyRepr { flags, ..reply(kind, sequence) }.header().as_bytes().to_vec()
    } else {
        let (rid, rpc_id) = call(sequence);
        let repr = RequestRepr { flags, ..RequestRepr::control(kind, rid, rpc_id) };
        repr.header().as_bytes().to_vec()
    }
}

fn reply(kind: MessageType, sequence: u32) -> ReplyRepr {
    let (rid, rpc_id) = call(sequence);
    ReplyRepr {
        server_id: 4,
        server_load: 2,
        server_waiting: u16::from(kind == MessageType::Feedback),
        token: TOKEN,
        ..ReplyRepr::control(kind, rid, rpc_id)
    }
}

fn call(sequence: u32) -> (u16, RpcId) {
    (0x1000 + sequence as u16, RpcId::new(SESSION, sequence))
}

/// An ACK or REPLY_ACK. What has arrived: the packets below an index, and more above it.
pub(crate) fn sack(
    kind: MessageType,
    sequence: u32,
    arrived: (u16, &[u16]),
    granted: u16,
    flags: u8,
) -> Vec<u8> {
    let (base, more) = arrived;
    let mut body =
        SackBody { base: base.into(), granted: granted.into(), bitmap: [0; SackBody::BITMAP_LEN] };
    for bit in more.iter().map(|index| usize::from(index - base - 1)) {
        body.bitmap[bit / 8] |= 1 << (bit % 8);
    }
    [&control(kind, sequence, flags)[..], body.as_bytes()].concat()
}

/// A single-packet call through a router that sends from its own address, and the feedback for it.
fn annotated() -> Vec<Datagram> {
    let request = Message::request(1, 5).flagged(Flags::IDEMPOTENT);
    let again = request.flagged(Flags::RETRANSMIT);
    let route = Route {
        client_ip: mapped([10, 77, 0, 3]),
        client_port: 33000.into(),
        routed: 1,
        placement: 1.into(),
        returns: 0,
    };
    vec![
        Datagram::new(CLIENT, ROUTER, request.packet(0)),
        Datagram::new(ROUTER, SERVER, request.routed(route)),
        Datagram::new(SERVER, CLIENT, Message::reply(1, 9).packet(0)),
        Datagram::new(SERVER, ROUTER, feedback(1, 1, 1)),
        Datagram::new(CLIENT, ROUTER, again.packet(0)),
        Datagram::new(SERVER, CLIENT, sack(MessageType::Ack, 1, (1, &[]), 1, 0)),
    ]
}

/// A request of four packets through a router that keeps the client's address; packet 1 is lost
/// once.
fn kept() -> Vec<Datagram> {
    let request = Message::request(2, 5000);
    let route = Route { routed: 1, placement: 2.into(), ..Route::default() };
    vec![
        Datagram::new(CLIENT, ROUTER, request.packet(0)),
        Datagram::new(CLIENT, SERVER, request.routed(route)),
        Datagram::new(SERVER, CLIENT, sack(MessageType::Ack, 2, (1, &[]), 4, 0)),
        Datagram::new(CLIENT, SERVER, request.packet(2)),
        Datagram::new(CLIENT, SERVER, request.packet(3)),
        Datagram::new(SERVER, CLIENT, sack(MessageType::Ack, 2, (1, &[2, 3]), 4, Flags::RESEND)),
        Datagram::new(CLIENT, SERVER, request.flagged(Flags::RETRANSMIT).packet(1)),
        Datagram::new(SERVER, CLIENT, sack(MessageType::Ack, 2, (4, &[]), 4, 0)),
        Datagram::new(SERVER, CLIENT, Message::reply(2, 0).packet(0)),
        Datagram::new(ROUTER, SERVER, probe(2)),
        Datagram::new(SERVER, ROUTER, feedback(2, 2, 2)),
    ]
}

/// A reply of 260 packets of 100 bytes, of which the ends are shown: the bitmap's first and last
/// bits.
fn long_reply() -> Vec<Datagram> {
    let reply = Message { segment_len: 100, ..Message::reply(3, 25_950) };
    vec![
        Datagram::new(CLIENT, SERVER, Message::request(3, 64).packet(0)),
        Datagram::new(SERVER, CLIENT, reply.packet(0)),
        Datagram::new(SERVER, CLIENT, reply.packet(2)),
        Datagram::new(SERVER, CLIENT, reply.packet(257)),
        Datagram::new(
            CLIENT,
            SERVER,
            sack(MessageType::ReplyAck, 3, (1, &[2, 257]), 260, Flags::RESEND),
        ),
        Datagram::new(SERVER, CLIENT, reply.flagged(Flags::RETRANSMIT).packet(1)),
        Datagram::new(SERVER, CLIENT, reply.packet(259)),
        Datagram::new(CLIENT, SERVER, sack(MessageType::ReplyAck, 3, (260, &[]), 260, 0)),
    ]
}

/// A request of two packets to a server that has taken longer ones before.
fn unscheduled() -> Vec<Datagram> {
    let request = Message::request(3, 1_500).flagged(Flags::UNSCHEDULED);
    vec![
        Datagram::new(CLIENT, SERVER, request.unrouted(0)),
        Datagram::new(CLIENT, SERVER, request.packet(1)),
        Datagram::new(SERVER, CLIENT, Message::reply(3, 4).packet(0)),
    ]
}

/// A reply whose last packet is lost, and then a caller that gives up.
fn lost_tail() -> Vec<Datagram> {
    vec![
        Datagram::new(
            CLIENT,
            SERVER,
            sack(MessageType::ReplyAck, 4, (2, &[]), 3, Flags::RESEND_TAIL),
        ),
        Datagram::new(SERVER, CLIENT, Message::reply(4, 2801).flagged(Flags::RETRANSMIT).packet(2)),
        Datagram::new(CLIENT, SERVER, control(MessageType::Cancel, 4, 0)),
    ]
}

/// A DROP for each reason, and one with a number that nobody has defined.
fn refusals() -> Vec<Datagram> {
    let reasons = [
        DropReason::Unspecified,
        DropReason::Overload,
        DropReason::TooLarge,
        DropReason::TooOld,
        DropReason::Expired,
        DropReason::NoServer,
        DropReason::Application,
        DropReason::Uncertain,
        DropReason::Unvalidated,
    ];
    let numbers = reasons.iter().map(|&reason| reason as u8).chain([200]);
    numbers
        .map(|number| {
            let header = control(MessageType::Drop, 5, 0);
            Datagram::new(SERVER, CLIENT, [&header[..], &[number]].concat())
        })
        .collect()
}

/// The end of a server: a report that it stops, the reasons of a handler's end, and a refusal in
/// the application's own words.
fn stopping() -> Vec<Datagram> {
    let body = FeedbackBody {
        epoch: 7.into(),
        placement_seen: 3.into(),
        received: 3.into(),
        concluded: 2.into(),
    };
    let report = ReplyRepr {
        flags: Flags::STOPPING,
        ..ReplyRepr::control(MessageType::Feedback, 0, RpcId(0))
    };
    let drop = |payload: &[u8]| {
        let header = control(MessageType::Drop, 9, 0);
        Datagram::new(SERVER, CLIENT, [&header[..], payload].concat())
    };
    let rejection = [&Rejection::prefix(404)[..], b"no such key"].concat();
    vec![
        Datagram::new(SERVER, ROUTER, [report.header().as_bytes(), body.as_bytes()].concat()),
        drop(&[DropReason::Panicked as u8]),
        drop(&[DropReason::Stopping as u8]),
        drop(&[DropReason::Unanswered as u8]),
        drop(&rejection),
        drop(&rejection[..1]),
        drop(&Rejection::prefix(u32::MAX)),
    ]
}

/// A request that a router cloned, its two copies, just before the count of placements wraps, and
/// one that is bound to the first server.
fn clones() -> Vec<Datagram> {
    let request = Message::request(6, 8).flagged(Flags::IDEMPOTENT);
    let route = Route { routed: 1, placement: u32::MAX.into(), ..Route::default() };
    let mut fixed = Message::request(7, 8).packet(0);
    fixed[2] = Policy::Fixed as u8;
    vec![
        Datagram::new(CLIENT, SERVER, request.flagged(0x04).routed(route)),
        Datagram::new(CLIENT, "10.77.0.5:8000", request.flagged(0x08).routed(route)),
        Datagram::new(CLIENT, ROUTER, fixed),
    ]
}

/// A clone whose reply the router wants to see, and that reply on its way there and on.
fn filtered() -> Vec<Datagram> {
    let request = Message::request(10, 8).flagged(Flags::IDEMPOTENT);
    let route = Route { routed: 1, returns: 1, placement: 7.into(), ..Route::default() };
    let client = CLIENT.parse().expect("an address and a port");
    let reply = Message::reply(10, 8).flagged(0x04);
    let mut returned = reply.routed(Route::to_client(client));
    returned[1] = ROUTED_LEN as u8;
    vec![
        Datagram::new(CLIENT, SERVER, request.flagged(0x04).routed(route)),
        Datagram::new(SERVER, ROUTER, returned),
        Datagram::new(SERVER, CLIENT, reply.packet(0)),
    ]
}

/// A request that went to another router first: the router asks a server, which has not run it.
fn claims() -> Vec<Datagram> {
    let moved = Flags::RETRANSMIT | Flags::MOVED;
    let request = Message::request(9, 8).flagged(moved);
    let body = ClaimBody { client_ip: mapped([10, 77, 0, 3]), client_port: 33_000.into() };
    let claim = RequestRepr {
        age_ms: 40,
        ..RequestRepr::control(MessageType::Claim, 0, RpcId::new(SESSION, 9))
    };
    let claimed = |verdict: u8| {
        let header = ReplyRepr::control(MessageType::Claimed, 0, RpcId::new(SESSION, 9)).header();
        Datagram::new(SERVER, ROUTER, [header.as_bytes(), &[verdict]].concat())
    };
    vec![
        Datagram::new(CLIENT, ROUTER, request.packet(0)),
        Datagram::new(ROUTER, SERVER, [claim.header().as_bytes(), body.as_bytes()].concat()),
        claimed(Verdict::Renounced as u8),
        claimed(Verdict::Seen as u8),
        claimed(Verdict::Uncertain as u8),
    ]
}

/// A router under overload: it holds one request and says so, and refuses another.
fn overload() -> Vec<Datagram> {
    let router = |kind, sequence, flags, detail| {
        let (rid, rpc_id) = call(sequence);
        let control = ReplyRepr::control(kind, rid, rpc_id);
        ReplyRepr { flags, detail, clock_echo_us: 77, ..control }.header()
    };
    let body = SackBody { base: 0.into(), granted: 1.into(), bitmap: [0; SackBody::BITMAP_LEN] };
    let held = router(MessageType::Ack, 10, Flags::HELD, 5_000_000);
    let refused = router(MessageType::Drop, 11, 0, 200_000);
    let reason = [DropReason::Overload as u8];
    vec![
        Datagram::new(CLIENT, ROUTER, Message::request(10, 8).packet(0)),
        Datagram::new(ROUTER, CLIENT, [held.as_bytes(), body.as_bytes()].concat()),
        Datagram::new(CLIENT, ROUTER, Message::request(11, 8).packet(0)),
        Datagram::new(ROUTER, CLIENT, [refused.as_bytes(), &reason].concat()),
    ]
}

fn over_ipv6() -> Vec<Datagram> {
    let (client, server) = ("[fd00::3]:33000", "[fd00::4]:8000");
    // What an IPv6 MTU of 1500 leaves after the 72-byte header.
    let request = Message { segment_len: 1380, ..Message::request(8, 1381) };
    vec![
        Datagram::new(client, server, request.packet(0)),
        Datagram::new(server, client, sack(MessageType::Ack, 8, (1, &[]), 2, 0)),
        Datagram::new(client, server, request.packet(1)),
        Datagram::new(server, client, Message::reply(8, 1).packet(0)),
    ]
}

fn feedback(placement_seen: u32, received: u32, concluded: u32) -> Vec<u8> {
    let repr = ReplyRepr { rid: 0, rpc_id: RpcId(0), ..reply(MessageType::Feedback, 0) };
    let body = FeedbackBody {
        epoch: 0xfeed_beef.into(),
        placement_seen: placement_seen.into(),
        received: received.into(),
        concluded: concluded.into(),
    };
    [repr.header().as_bytes(), body.as_bytes()].concat()
}

fn probe(placement: u32) -> Vec<u8> {
    let header = RequestRepr::control(MessageType::Probe, 0, RpcId(0)).header();
    [header.as_bytes(), &placement.to_be_bytes()].concat()
}

fn mapped(ipv4: [u8; 4]) -> [u8; 16] {
    std::net::Ipv4Addr::from(ipv4).to_ipv6_mapped().octets()
}

const SESSION: SessionId = SessionId(0x5e_5510_0001);
const SEGMENT_LEN: u16 = 1400;
const TOKEN: u64 = 0x7083_0000_1111_2222;
const FLOOR: u32 = 1;
const CLIENT: &str = "10.77.0.3:33000";
const ROUTER: &str = "10.77.0.2:8000";
const SERVER: &str = "10.77.0.4:8000";
