//! R2P2: version 1 as the published reference speaks it, and tailcut's extension of it.
//!
//! | header_size | form | carried on |
//! |---|---|---|
//! | 8 | version 1: [`BaseHeader`] | everything said to or by a version 1 peer |
//! | 48 | + the extension: [`RequestHeader`], [`ReplyHeader`] | every packet between tailcut peers |
//! | 72 | [`RequestHeader`] + [`Route`] | the first packet of a request, so that a router can write in place |
//!
//! All fields are big-endian at fixed offsets; `docs/protocol/r2p2.md` is the normative text.

mod display;
mod emit;
mod header;
mod packet;
pub mod sealed;

pub use emit::{ReplyRepr, RequestRepr, Segment, V1Repr};
pub use header::{
    BaseHeader, ClaimBody, CloneMark, DropReason, FeedbackBody, FeedbackV1, Flags, MessageType,
    Policy, Rejection, ReplyHeader, RequestHeader, Route, RpcId, SackBody, SessionId, Verdict,
    position,
};
pub use packet::{Kind, Malformed, Packet, packet_count, payload_span};

/// First byte of every packet.
pub const MAGIC: u8 = 0xcc;
/// Length of a version 1 header.
pub const BASE_LEN: usize = 8;
/// Length of a header with the extension.
pub const EXTENDED_LEN: usize = 48;
/// Length of a header with the extension and the route block.
pub const ROUTED_LEN: usize = 72;
/// Version of the extension, its byte 21.
pub const EXTENSION_VERSION: u8 = 1;
/// Payload of a full version 1 packet: an Ethernet MTU less the IPv4, UDP and R2P2 headers.
pub const V1_SEGMENT_LEN: usize = 1464;
/// Payload of the first packet of a version 1 request of several packets: a 64-byte Ethernet frame
/// for the router.
pub const V1_FIRST_LEN: usize = 14;
/// Most packets that a version 1 peer accepts in one message; one more aborts the reference.
pub const V1_PACKETS_MAX: u16 = 254;
/// Payload of a version 1 ACK.
pub const V1_ACK: &[u8; 3] = b"ACK";
/// Payload of a version 1 DROP.
pub const V1_DROP: &[u8; 4] = b"DROP";
