//! Header layouts and the enumerations in them. Offsets are those of `docs/protocol/r2p2.md`.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bits of [`BaseHeader::flags`]: a packet's position in its message.
pub mod position {
    /// First packet of its message; `p_order` is then the number of packets.
    pub const FIRST: u8 = 0x80;
    /// Last packet of its message.
    pub const LAST: u8 = 0x40;
    /// Both: a message of one packet.
    pub const ONLY: u8 = FIRST | LAST;
}

/// The 8 bytes that every R2P2 packet begins with.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct BaseHeader {
    /// [`super::MAGIC`].
    pub magic: u8,
    /// Bytes before the payload: 8, 48 or 72.
    pub header_size: u8,
    /// Message type in the high nibble, policy in the low one.
    pub type_policy: u8,
    /// [`position`].
    pub flags: u8,
    /// Request id of version 1; between tailcut peers the caller's own index, echoed.
    pub rid: U16,
    /// Packet count on the first packet of a message, 0-based index on the others.
    pub p_order: U16,
}

/// The header of packets towards a server: what a client sends, and a router's PROBE.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RequestHeader {
    /// The first 8 bytes.
    pub base: BaseHeader,
    /// [`RpcId`] of the call.
    pub rpc_id: U64,
    /// Bytes of the whole message that the packet belongs to; 0 on control packets.
    pub message_len: U32,
    /// [`Flags`].
    pub flags: u8,
    /// [`super::EXTENSION_VERSION`].
    pub version: u8,
    /// 0 when sent, ignored when received.
    pub reserved: U16,
    /// The client's clock in microseconds, not 0, on requests, for the echo; 0 otherwise.
    pub client_clock_us: U32,
    /// Microseconds that the caller will still wait, on requests; 0 for no deadline.
    pub deadline_us: U32,
    /// Address token that the server gave, echoed to show that the client receives at its address;
    /// where it gave a cookie ([`Flags::COOKIE`]), the tag of the packet by it; 0 when unknown.
    pub token: U64,
    /// Sequence below which the client has finished every call of this session, on requests; 0
    /// otherwise.
    pub floor: U32,
    /// Payload bytes of every packet of the message but the last; 0 on control packets.
    pub segment_len: U16,
    /// Milliseconds since the packet was first sent, rounded up, on a request with
    /// [`Flags::RETRANSMIT`]; 0 otherwise. A receiver that has been up for less cannot know whether
    /// the request has run.
    pub age_ms: U16,
}

impl RequestHeader {
    /// Age of the request, nanoseconds; [`u64::MAX`] at the end of the field, which tells no more
    /// than that it is as old at least.
    pub fn age_ns(&self) -> u64 {
        match self.age_ms.get() {
            u16::MAX => u64::MAX,
            age_ms => u64::from(age_ms) * 1_000_000,
        }
    }
}

/// The header of packets from a server, and of a router's DROP in its place.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ReplyHeader {
    /// The first 8 bytes.
    pub base: BaseHeader,
    /// [`RpcId`] of the call.
    pub rpc_id: U64,
    /// Bytes of the whole message that the packet belongs to; 0 on control packets.
    pub message_len: U32,
    /// [`Flags`].
    pub flags: u8,
    /// [`super::EXTENSION_VERSION`].
    pub version: u8,
    /// Requests queued or running at the server.
    pub server_load: U16,
    /// The server's configured identity.
    pub server_id: U32,
    /// [`RequestHeader::client_clock_us`] of the latest request packet that the server has of this
    /// call, on replies and ACKs, so that a round trip is measured also from an answer to a
    /// retransmission; 0 for none.
    pub clock_echo_us: U32,
    /// Address token for the client to echo; 0 for none.
    pub token: U64,
    /// Value that the message type adds; 0 otherwise.
    ///
    /// | on | |
    /// |---|---|
    /// | DROP | nanoseconds that the client is to keep between its next calls to who refused |
    /// | ACK with [`Flags::HELD`] | nanoseconds that the request may be held for |
    /// | FEEDBACK of a router that stands for several servers | how many are in service; 0 means 1 |
    pub detail: U32,
    /// Payload bytes of every packet of the message but the last; 0 on control packets.
    pub segment_len: U16,
    /// Number of the requests in `server_load` that wait for a worker; 0 from a server that does
    /// not tell.
    pub server_waiting: U16,
}

/// The route block: 24 bytes after the extension, on the first packet of a request, and on a reply
/// of one packet that goes back through the router.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Route {
    /// The client's address as the router saw it, IPv4 in its IPv6-mapped form; zero from the
    /// client itself.
    pub client_ip: [u8; 16],
    /// The client's port; 0 when no router has written its address here.
    pub client_port: U16,
    /// 1 when a router has written `placement`.
    pub routed: u8,
    /// 1 when the router wants a reply of one packet back, so that it forwards one of two.
    pub returns: u8,
    /// The router's own count of what it has placed on this server, for feedback that heals.
    pub placement: U32,
}

impl Route {
    /// A route block with the address of the client alone.
    pub fn to_client(client: SocketAddr) -> Self {
        let (client_ip, client_port) = written(client);
        Self { client_ip, client_port, ..Self::default() }
    }

    /// The client's address, IPv4 not mapped. The port is 0 where nobody has written it.
    pub fn client(&self) -> SocketAddr {
        read(self.client_ip, self.client_port)
    }
}

/// An address as packets carry it, IPv4 in its IPv6-mapped form.
fn written(address: SocketAddr) -> ([u8; 16], U16) {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    (ip, address.port().into())
}

/// The address that a packet carries, IPv4 not mapped.
fn read(ip: [u8; 16], port: U16) -> SocketAddr {
    SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port.get())
}

/// Type of a packet. Numbers 5 to 10 are taken by HovercRaft and the exactly-once proposal and are
/// refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MessageType {
    /// Data of a request, client to server.
    Request = 0,
    /// Data of a reply, server to client.
    Response = 1,
    /// A server's report to its router.
    Feedback = 2,
    /// A server's acknowledgment of request data, with the window.
    Ack = 3,
    /// A refusal by a server or a router.
    Drop = 4,
    /// Extension: a server's answer to a CLAIM.
    Claimed = 11,
    /// Extension: a client's acknowledgment of reply data, with the window.
    ReplyAck = 12,
    /// Extension: the client no longer wants the reply.
    Cancel = 13,
    /// Extension: a router asks a server for feedback.
    Probe = 14,
    /// Extension: a router that places a request which another may have placed asks the other
    /// servers never to run it.
    Claim = 15,
}

impl MessageType {
    /// The type in a `type_policy` byte, if it is one that tailcut takes.
    pub fn from_byte(type_policy: u8) -> Option<Self> {
        Some(match type_policy >> 4 {
            0 => Self::Request,
            1 => Self::Response,
            2 => Self::Feedback,
            3 => Self::Ack,
            4 => Self::Drop,
            11 => Self::Claimed,
            12 => Self::ReplyAck,
            13 => Self::Cancel,
            14 => Self::Probe,
            15 => Self::Claim,
            _ => return None,
        })
    }

    /// True if packets of it carry bytes of a message: a request or a reply.
    pub fn is_data(self) -> bool {
        matches!(self, Self::Request | Self::Response)
    }

    /// True if packets of the type carry a [`ReplyHeader`], the others a [`RequestHeader`].
    pub fn is_from_server(self) -> bool {
        matches!(self, Self::Response | Self::Feedback | Self::Ack | Self::Drop | Self::Claimed)
    }

    /// True if the type exists only with the extension.
    pub fn needs_extension(self) -> bool {
        matches!(self, Self::ReplyAck | Self::Cancel | Self::Probe | Self::Claim | Self::Claimed)
    }
}

/// Policy that chooses the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Policy {
    /// The router may choose (LB_ROUTE, "unrestricted").
    Unrestricted = 0,
    /// The router must use its first server (FIXED_ROUTE, "sticky").
    Fixed = 1,
}

impl Policy {
    /// The policy in a `type_policy` byte; HovercRaft's 2 and 3 are refused.
    pub fn from_byte(type_policy: u8) -> Option<Self> {
        match type_policy & 0x0f {
            0 => Some(Self::Unrestricted),
            1 => Some(Self::Fixed),
            _ => None,
        }
    }
}

/// The byte that holds both.
pub(super) fn type_policy(kind: MessageType, policy: Policy) -> u8 {
    (kind as u8) << 4 | policy as u8
}

/// Flags of the extension, one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// The request may run more than once: it may be cloned and retried.
    pub const IDEMPOTENT: u8 = 0x01;
    /// The packet has been sent before.
    pub const RETRANSMIT: u8 = 0x02;
    /// On a SACK: send the holes below the highest packet received.
    pub const RESEND: u8 = 0x10;
    /// On a SACK: send everything that is granted and not received.
    pub const RESEND_TAIL: u8 = 0x20;
    /// On a FEEDBACK: the server is stopping and takes no new requests.
    pub const STOPPING: u8 = 0x40;
    /// On what a server says to a client, and on a router's ACK: the token is a cookie, which is
    /// not echoed: first packets of requests bear a tag by it instead.
    pub const COOKIE: u8 = 0x40;
    /// On what a client says to a server and on replies: packets between the two, which are on one
    /// host, may be longer than those of a network.
    pub const LONG: u8 = 0x20;
    /// On packets of a request of several: they were sent before anybody had taken it, to a server.
    pub const UNSCHEDULED: u8 = 0x10;
    /// On a request that may run once: the client has sent it to another router too, which may have
    /// placed it.
    pub const MOVED: u8 = 0x80;
    /// On an ACK of a router: it holds the request, which need not be sent again meanwhile.
    pub const HELD: u8 = 0x80;

    /// True if every bit of `flag` is set.
    pub fn has(self, flag: u8) -> bool {
        self.0 & flag == flag
    }

    /// The clone mark, bits 2 and 3.
    pub fn clone_mark(self) -> CloneMark {
        match self.0 >> 2 & 3 {
            0 => CloneMark::Single,
            1 => CloneMark::Original,
            _ => CloneMark::Copy,
        }
    }

    /// These flags with another clone mark.
    #[must_use]
    pub fn with_clone_mark(self, mark: CloneMark) -> Self {
        Self(self.0 & !Self::CLONE | mark.bits())
    }

    /// Bits of the clone mark.
    const CLONE: u8 = 0x0c;
}

/// Mark of a request that was cloned in the network (NetClone's CLO field).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CloneMark {
    /// Not cloned.
    #[default]
    Single,
    /// The first of two.
    Original,
    /// The second of two.
    Copy,
}

impl CloneMark {
    /// The mark as bits of [`Flags`].
    pub fn bits(self) -> u8 {
        (self as u8) << 2
    }
}

/// A call's identity: a 40-bit random session and a 24-bit sequence in it. The session makes it
/// hard to guess; the sequence lets a server remember every id of a client in one small window.
/// Never reused: a client draws a new session before its sequence wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RpcId(pub u64);

impl RpcId {
    /// Bits of the sequence.
    pub const SEQUENCE_BITS: u32 = 24;
    /// Highest sequence of a session.
    pub const SEQUENCE_MAX: u32 = (1 << Self::SEQUENCE_BITS) - 1;

    /// The id of call `sequence` of `session`.
    pub fn new(session: SessionId, sequence: u32) -> Self {
        Self(session.0 << Self::SEQUENCE_BITS | u64::from(sequence & Self::SEQUENCE_MAX))
    }

    /// The session, 40 bits.
    pub fn session(self) -> SessionId {
        SessionId(self.0 >> Self::SEQUENCE_BITS)
    }

    /// The sequence, 24 bits.
    pub fn sequence(self) -> u32 {
        self.0 as u32 & Self::SEQUENCE_MAX
    }
}

/// The random part of an [`RpcId`], 40 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Payload of an extended ACK or REPLY_ACK: what has arrived, and how far the sender may go.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct SackBody {
    /// Every packet below this index has arrived.
    pub base: U16,
    /// Packets below this index may be sent.
    pub granted: U16,
    /// Bit `i` (from the least significant bit of byte 0): packet `base + 1 + i` has arrived.
    pub bitmap: [u8; SackBody::BITMAP_LEN],
}

impl SackBody {
    /// Bytes of the bitmap.
    pub const BITMAP_LEN: usize = 32;
    /// Bits of the bitmap.
    pub const BITS: u16 = Self::BITMAP_LEN as u16 * 8;

    /// True if packet `index` has arrived, as far as this says.
    pub fn has(&self, index: u16) -> bool {
        let base = self.base.get();
        if index <= base {
            return index < base;
        }
        let bit = usize::from(index - base - 1);
        self.bitmap.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
    }
}

/// Payload of an extended FEEDBACK. All four are absolute, so that a lost or repeated one does no
/// harm: outstanding = (placed - placement_seen) + (received - concluded), in wrapping arithmetic.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct FeedbackBody {
    /// Random at the server's start: another one means that the counts began anew.
    pub epoch: U32,
    /// Highest [`Route::placement`] seen from this router.
    pub placement_seen: U32,
    /// Routed requests received from this router.
    pub received: U32,
    /// Number of these that are finished: answered, refused, cancelled or expired.
    pub concluded: U32,
}

/// Payload of a CLAIM: the client whose request it speaks of. The header has the request's id, and
/// its age.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ClaimBody {
    /// The client's address, IPv4 in its IPv6-mapped form.
    pub client_ip: [u8; 16],
    /// The client's port.
    pub client_port: U16,
}

impl ClaimBody {
    /// The body of a claim of a client's request.
    pub fn of_client(client: SocketAddr) -> Self {
        let (client_ip, client_port) = written(client);
        Self { client_ip, client_port }
    }

    /// The client's address, IPv4 not mapped.
    pub fn client(&self) -> SocketAddr {
        read(self.client_ip, self.client_port)
    }
}

/// A server's answer to a CLAIM: the payload byte of a CLAIMED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// Neither: what ran before the server began to remember may have been it.
    Uncertain = 0,
    /// The server has not run the request, and never will.
    Renounced = 1,
    /// The server has the request, or has run or refused it.
    Seen = 2,
}

impl Verdict {
    /// The verdict in a payload; unknown numbers read as [`Verdict::Uncertain`].
    pub fn from_payload(payload: &[u8]) -> Self {
        match payload.first() {
            Some(1) => Self::Renounced,
            Some(2) => Self::Seen,
            _ => Self::Uncertain,
        }
    }
}

/// Payload of a version 1 FEEDBACK; the header bytes before it, but for the type, are undefined.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct FeedbackV1 {
    /// Request id of the finished RPC.
    pub rid: U16,
    /// Client port of the finished RPC.
    pub client_port: U16,
    /// Client IPv4 address of the finished RPC.
    pub client_ip: [u8; 4],
}

/// Reason why a request was refused: the first payload byte of an extended DROP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DropReason {
    /// Unknown, or a version 1 peer that gives none.
    Unspecified = 0,
    /// A queue or a table was full.
    Overload = 1,
    /// The message is longer than the receiver takes.
    TooLarge = 2,
    /// The id is outside the window in which the server can tell that it has not run yet.
    TooOld = 3,
    /// It waited longer than its deadline or than the router holds requests.
    Expired = 4,
    /// The router has no server in service.
    NoServer = 5,
    /// The application refused it, or does not serve.
    Application = 6,
    /// It may have run at a server that can no longer tell.
    Uncertain = 7,
    /// The reply would exceed what may be sent to an address that is not validated.
    Unvalidated = 8,
    /// The handler panicked: it may have run in part.
    Panicked = 9,
    /// The server is stopping and takes no new requests.
    Stopping = 10,
    /// The handler ended without an answer.
    Unanswered = 11,
    /// Sealed services: whoever was asked has no key of the request's epoch. Nothing has run.
    NoKey = 12,
}

impl DropReason {
    /// Number of reasons.
    pub const COUNT: usize = 13;

    /// The reason in a payload; unknown numbers read as [`DropReason::Unspecified`].
    pub fn from_payload(payload: &[u8]) -> Self {
        match payload.first() {
            Some(1) => Self::Overload,
            Some(2) => Self::TooLarge,
            Some(3) => Self::TooOld,
            Some(4) => Self::Expired,
            Some(5) => Self::NoServer,
            Some(6) => Self::Application,
            Some(7) => Self::Uncertain,
            Some(8) => Self::Unvalidated,
            Some(9) => Self::Panicked,
            Some(10) => Self::Stopping,
            Some(11) => Self::Unanswered,
            Some(12) => Self::NoKey,
            _ => Self::Unspecified,
        }
    }
}

/// The application's own words in a refusal: after the reason, in an extended DROP and in a refused
/// reply of Homa.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection<'a> {
    /// The application's number for why.
    pub code: u32,
    /// Text for people, meant to be UTF-8.
    pub text: &'a [u8],
}

impl<'a> Rejection<'a> {
    /// Bytes before the text: the reason and the code.
    pub const PREFIX_LEN: usize = 5;
    /// Most bytes of text, so that any packet holds them.
    pub const TEXT_LEN_MAX: usize = 1024;

    /// The rejection in a payload; `None` where it is a reason alone.
    pub fn from_payload(payload: &'a [u8]) -> Option<Self> {
        let (code, text) = payload.get(1..)?.split_first_chunk()?;
        Some(Self { code: u32::from_be_bytes(*code), text })
    }

    /// The bytes before the text.
    pub fn prefix(code: u32) -> [u8; 5] {
        let [a, b, c, d] = code.to_be_bytes();
        [DropReason::Application as u8, a, b, c, d]
    }
}
