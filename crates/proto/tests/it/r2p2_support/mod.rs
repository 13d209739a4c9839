//! An R2P2 endpoint alone: a test is its peer, which makes packets by hand and reads what leaves.

use std::net::SocketAddr;

use tailcut_proto::node::{GSO_BYTES_MAX, Node, Path, Source};
use tailcut_proto::r2p2::{Config, Endpoint, Metrics};
use tailcut_proto::rpc::{Call, CallId, CallOptions, Event, Failure, RequestId, Rpc};
use tailcut_wire::r2p2::{
    DropReason, Flags, MessageType, Packet, ReplyRepr, RequestRepr, RpcId, SackBody, Segment,
    SessionId,
};
use zerocopy::IntoBytes;

pub(crate) const MS: u64 = 1_000_000;

/// Payload bytes of a packet here.
pub(crate) const SEGMENT_LEN: u16 = 64;

pub(crate) const ONCE: CallOptions = CallOptions { idempotent: false, fixed: false, v1: false };
pub(crate) const IDEMPOTENT: CallOptions = CallOptions { idempotent: true, ..ONCE };

/// An endpoint and its clock.
pub(crate) struct Solo {
    pub(crate) node: Endpoint,
    pub(crate) now: u64,
}

/// A datagram that has left.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) from: Source,
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

impl Sent {
    pub(crate) fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.bytes).unwrap()
    }

    pub(crate) fn kind(&self) -> (MessageType, u16) {
        (self.packet().message_type, self.packet().index)
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.packet().flags().has(flag)
    }

    /// Its clock as a server echoes it.
    pub(crate) fn clock_us(&self) -> u32 {
        self.packet().request_header().unwrap().client_clock_us.get()
    }

    /// A packet of a server that is about the call of this one.
    pub(crate) fn answer(&self, kind: MessageType) -> ReplyRepr {
        ReplyRepr::control(kind, self.packet().rid, self.packet().rpc_id().unwrap())
    }

    /// An ACK: the packets below `base` have come, and those below `granted` may.
    pub(crate) fn ack(&self, base: u16, granted: u16) -> Vec<u8> {
        self.ack_of(base, granted, &[])
    }

    /// An ACK that tells of packets above `base` too.
    pub(crate) fn ack_of(&self, base: u16, granted: u16, arrived: &[u16]) -> Vec<u8> {
        acked(&self.answer(MessageType::Ack), &sack(base, granted, arrived))
    }

    /// Packet `index` of a reply of `len` bytes.
    pub(crate) fn reply(&self, len: u32, index: u16) -> Vec<u8> {
        replied(&self.answer(MessageType::Response), len, index)
    }

    pub(crate) fn refusal(&self, reason: DropReason) -> Vec<u8> {
        let header = self.answer(MessageType::Drop).header();
        [header.as_bytes(), &[reason as u8]].concat()
    }
}

impl Solo {
    pub(crate) fn new(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config { secret: [9; 16], segment_len: SEGMENT_LEN, ..Config::default() };
        change(&mut config);
        Self { node: Endpoint::new(0, config), now: 1_000 * MS }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        self.node.metrics()
    }

    pub(crate) fn call(&mut self, to: SocketAddr, len: usize, options: CallOptions) -> CallId {
        self.call_within(to, len, options, 1_000 * MS)
    }

    /// Calls with so much time for an answer.
    pub(crate) fn call_within(
        &mut self,
        to: SocketAddr,
        len: usize,
        options: CallOptions,
        within_ns: u64,
    ) -> CallId {
        let payload = (0..len).map(|place| place as u8).collect();
        let deadline = self.now + within_ns;
        let call = Call { target: to, payload, deadline, context: 0, options };
        self.node.call(self.now, call).unwrap()
    }

    /// Calls, and gives the first packet of what it sends for that.
    pub(crate) fn called(&mut self, to: SocketAddr, len: usize, options: CallOptions) -> Sent {
        self.call(to, len, options);
        self.sent().remove(0)
    }

    pub(crate) fn sent(&mut self) -> Vec<Sent> {
        let (mut buffer, mut sent) = (vec![0; GSO_BYTES_MAX], Vec::new());
        while let Some(transmit) = self.node.poll_transmit(self.now, &mut buffer) {
            for bytes in buffer[..transmit.len].chunks(transmit.segment_len) {
                let (from, to) = (transmit.from, transmit.to);
                sent.push(Sent { from, to, bytes: bytes.to_vec() });
            }
        }
        sent
    }

    /// The datagrams of a GSO batch of which the payload is left where it is, if one goes next.
    pub(crate) fn attached(&mut self) -> Option<Vec<Sent>> {
        let mut buffer = vec![0; GSO_BYTES_MAX];
        let (transmit, attached) = self.node.poll_attached(self.now, &mut buffer)?;
        let pieces =
            self.node.attached(&attached).chunks(transmit.segment_len - attached.header_len);
        let datagrams = buffer.chunks(attached.header_len).zip(pieces);
        let whole = datagrams.map(|(header, piece)| [header, piece].concat());
        let (from, to) = (transmit.from, transmit.to);
        Some(whole.map(|bytes| Sent { from, to, bytes }).collect())
    }

    /// Takes a datagram in; what is sent for it.
    pub(crate) fn give(&mut self, from: SocketAddr, bytes: &[u8]) -> Vec<Sent> {
        self.give_along(from.into(), bytes)
    }

    pub(crate) fn give_along(&mut self, path: Path, bytes: &[u8]) -> Vec<Sent> {
        self.node.handle_datagram(self.now, path, &mut bytes.to_vec());
        self.sent()
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, ns: u64) -> Vec<Sent> {
        self.now += ns;
        self.node.handle_timeout(self.now);
        self.sent()
    }

    /// Lets time pass until something is sent, which it gives.
    pub(crate) fn wait(&mut self) -> Vec<Sent> {
        loop {
            self.now = self.now.max(self.node.poll_timeout().expect("something is due"));
            self.node.handle_timeout(self.now);
            let sent = self.sent();
            if !sent.is_empty() {
                return sent;
            }
        }
    }

    /// The next request that the application gets, if there is one.
    pub(crate) fn request(&mut self) -> Option<RequestId> {
        match self.node.poll_event()? {
            Event::Request { id, .. } => Some(id),
            other => panic!("{other:?}"),
        }
    }

    /// The reply that the application gets, if there is one.
    pub(crate) fn reply(&mut self) -> Option<Vec<u8>> {
        match self.node.poll_event()? {
            Event::Replied { payload, .. } => Some(payload),
            other => panic!("{other:?}"),
        }
    }

    /// Reason why a call has failed, if one has.
    pub(crate) fn failure(&mut self) -> Option<Failure> {
        match self.node.poll_event()? {
            Event::Failed { failure, .. } => Some(failure),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn host(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 2, 0, last], 8_000))
}

pub(crate) fn kinds(sent: &[Sent]) -> Vec<(MessageType, u16)> {
    sent.iter().map(Sent::kind).collect()
}

/// Destinations of packets.
pub(crate) fn targets(sent: &[Sent]) -> Vec<SocketAddr> {
    sent.iter().map(|sent| sent.to).collect()
}

pub(crate) fn requests(indexes: impl IntoIterator<Item = u16>) -> Vec<(MessageType, u16)> {
    indexes.into_iter().map(|index| (MessageType::Request, index)).collect()
}

pub(crate) fn sack(base: u16, granted: u16, arrived: &[u16]) -> SackBody {
    let mut bitmap = [0; SackBody::BITMAP_LEN];
    for packet in arrived {
        let bit = usize::from(packet - base - 1);
        bitmap[bit / 8] |= 1 << (bit % 8);
    }
    SackBody { base: base.into(), granted: granted.into(), bitmap }
}

pub(crate) fn acked(repr: &ReplyRepr, sack: &SackBody) -> Vec<u8> {
    [repr.header().as_bytes(), sack.as_bytes()].concat()
}

fn segment(len: u32, index: u16) -> Segment {
    let count = len.div_ceil(SEGMENT_LEN.into()).max(1) as u16;
    Segment { message_len: len, segment_len: SEGMENT_LEN, index, count }
}

/// The bytes of packet `index` of a message of `len`.
fn piece(len: u32, index: u16) -> Vec<u8> {
    let start = u32::from(index) * u32::from(SEGMENT_LEN);
    (start..len.min(start + u32::from(SEGMENT_LEN))).map(|place| place as u8).collect()
}

/// Packet `index` of a reply of `len` bytes, otherwise as `repr`.
pub(crate) fn replied(repr: &ReplyRepr, len: u32, index: u16) -> Vec<u8> {
    let repr = ReplyRepr { segment: segment(len, index), ..*repr };
    [repr.header().as_bytes(), &piece(len, index)].concat()
}

/// A packet of the request with this number in its session, which has a second to be answered.
pub(crate) fn asking(kind: MessageType, sequence: u32) -> RequestRepr {
    let id = RpcId::new(SessionId(1), sequence);
    RequestRepr { deadline_us: 1_000_000, ..RequestRepr::control(kind, sequence as u16, id) }
}

/// Packet `index` of a request of `len` bytes, otherwise as `repr`.
pub(crate) fn asked(repr: &RequestRepr, len: u32, index: u16) -> Vec<u8> {
    let repr = RequestRepr { segment: segment(len, index), ..*repr };
    let piece = piece(len, index);
    let mut bytes = vec![0; repr.header_len() + piece.len()];
    repr.emit(&mut bytes).copy_from_slice(&piece);
    bytes
}

/// Packet 0 of a request of `len` bytes that may run once.
pub(crate) fn ask(sequence: u32, len: u32) -> Vec<u8> {
    asked(&asking(MessageType::Request, sequence), len, 0)
}

/// A client's word on the reply to a request.
pub(crate) fn told(kind: MessageType, sequence: u32, flags: u8, body: &[u8]) -> Vec<u8> {
    let repr = RequestRepr { flags, ..asking(kind, sequence) };
    [repr.header().as_bytes(), body].concat()
}

/// Flags of an idempotent request that is the second of two copies.
pub(crate) const COPY: u8 = Flags::IDEMPOTENT | 0x08;
