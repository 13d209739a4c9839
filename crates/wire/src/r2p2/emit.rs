//! The one way out: what a packet says, in host order, and the bytes of it. What is emitted here,
//! [`super::Packet::parse`] takes.

use core::net::SocketAddr;

use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U16;

use super::header::type_policy;
use super::{
    BASE_LEN, BaseHeader, EXTENDED_LEN, EXTENSION_VERSION, Flags, MAGIC, MessageType, Policy,
    ROUTED_LEN, ReplyHeader, RequestHeader, Route, RpcId, position,
};

/// A packet's place in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Bytes of the message.
    pub message_len: u32,
    /// Payload bytes of every packet but the last.
    pub segment_len: u16,
    /// 0-based index of the packet.
    pub index: u16,
    /// Packets of the message.
    pub count: u16,
}

impl Segment {
    /// The place of a control packet, which has no message.
    pub const CONTROL: Self = Self { message_len: 0, segment_len: 0, index: 0, count: 1 };
}

/// A version 1 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V1Repr {
    /// Message type.
    pub kind: MessageType,
    /// Policy that chooses the server.
    pub policy: Policy,
    /// Request id.
    pub rid: u16,
    /// 0-based index of the packet in its message.
    pub index: u16,
    /// Packets of the message.
    pub count: u16,
}

impl V1Repr {
    /// A packet that is a message of its own.
    pub fn control(kind: MessageType, policy: Policy, rid: u16) -> Self {
        Self { kind, policy, rid, index: 0, count: 1 }
    }

    /// The header.
    #[inline]
    pub fn header(&self) -> BaseHeader {
        let first = if self.index == 0 { position::FIRST } else { 0 };
        let last = if self.index + 1 == self.count { position::LAST } else { 0 };
        BaseHeader {
            magic: MAGIC,
            header_size: BASE_LEN as u8,
            type_policy: type_policy(self.kind, self.policy),
            flags: first | last,
            rid: self.rid.into(),
            p_order: if self.index == 0 { self.count } else { self.index }.into(),
        }
    }

    /// Writes the header and gives the room after it, which is the payload's.
    ///
    /// # Panics
    ///
    /// If `room` is shorter than [`BASE_LEN`].
    #[inline]
    pub fn emit<'a>(&self, room: &'a mut [u8]) -> &'a mut [u8] {
        write(room, self.header().as_bytes())
    }
}

/// A packet towards a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRepr {
    /// Message type: one for which [`MessageType::is_from_server`] does not hold.
    pub kind: MessageType,
    /// Policy that chooses the server.
    pub policy: Policy,
    /// The caller's own index of the call.
    pub rid: u16,
    /// The call.
    pub rpc_id: RpcId,
    /// Place in the request.
    pub segment: Segment,
    /// [`super::Flags`].
    pub flags: u8,
    /// [`RequestHeader::client_clock_us`].
    pub client_clock_us: u32,
    /// [`RequestHeader::deadline_us`].
    pub deadline_us: u32,
    /// [`RequestHeader::token`].
    pub token: u64,
    /// [`RequestHeader::floor`].
    pub floor: u32,
    /// [`RequestHeader::age_ms`].
    pub age_ms: u16,
}

impl RequestRepr {
    /// A packet with every optional field zero.
    pub fn control(kind: MessageType, rid: u16, rpc_id: RpcId) -> Self {
        Self {
            kind,
            policy: Policy::Fixed,
            rid,
            rpc_id,
            segment: Segment::CONTROL,
            flags: 0,
            client_clock_us: 0,
            deadline_us: 0,
            token: 0,
            floor: 0,
            age_ms: 0,
        }
    }

    /// Bytes before the payload: the first packet of a request has a route block, unless it goes to
    /// a server and the others with it.
    #[inline]
    pub fn header_len(&self) -> usize {
        let is_first = self.kind == MessageType::Request && self.segment.index == 0;
        let has_route = is_first && self.flags & Flags::UNSCHEDULED == 0;
        if has_route { ROUTED_LEN } else { EXTENDED_LEN }
    }

    /// The header without the route block.
    #[inline]
    pub fn header(&self) -> RequestHeader {
        let Self { kind, policy, rid, segment: Segment { index, count, .. }, .. } = *self;
        let base = V1Repr { kind, policy, rid, index, count }.header();
        RequestHeader {
            base: BaseHeader { header_size: self.header_len() as u8, ..base },
            rpc_id: self.rpc_id.0.into(),
            message_len: self.segment.message_len.into(),
            flags: self.flags,
            version: EXTENSION_VERSION,
            reserved: U16::ZERO,
            client_clock_us: self.client_clock_us.into(),
            deadline_us: self.deadline_us.into(),
            token: self.token.into(),
            floor: self.floor.into(),
            segment_len: self.segment.segment_len.into(),
            age_ms: self.age_ms.into(),
        }
    }

    /// Writes the header, with an empty route block where one belongs, and gives the room after it,
    /// which is the payload's.
    ///
    /// # Panics
    ///
    /// If `room` is shorter than [`RequestRepr::header_len`].
    #[inline]
    pub fn emit<'a>(&self, room: &'a mut [u8]) -> &'a mut [u8] {
        let rest = write(room, self.header().as_bytes());
        match self.header_len() {
            ROUTED_LEN => write(rest, Route::default().as_bytes()),
            _ => rest,
        }
    }
}

/// A packet from a server, or from a router in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyRepr {
    /// Message type: one for which [`MessageType::is_from_server`] holds.
    pub kind: MessageType,
    /// The caller's own index of the call, echoed.
    pub rid: u16,
    /// The call.
    pub rpc_id: RpcId,
    /// Place in the reply.
    pub segment: Segment,
    /// [`super::Flags`].
    pub flags: u8,
    /// [`ReplyHeader::server_load`].
    pub server_load: u16,
    /// [`ReplyHeader::server_waiting`].
    pub server_waiting: u16,
    /// [`ReplyHeader::server_id`].
    pub server_id: u32,
    /// [`ReplyHeader::clock_echo_us`].
    pub clock_echo_us: u32,
    /// [`ReplyHeader::token`].
    pub token: u64,
    /// [`ReplyHeader::detail`].
    pub detail: u32,
}

impl ReplyRepr {
    /// A packet with every optional field zero.
    pub fn control(kind: MessageType, rid: u16, rpc_id: RpcId) -> Self {
        Self {
            kind,
            rid,
            rpc_id,
            segment: Segment::CONTROL,
            flags: 0,
            server_load: 0,
            server_waiting: 0,
            server_id: 0,
            clock_echo_us: 0,
            token: 0,
            detail: 0,
        }
    }

    /// The header.
    #[inline]
    pub fn header(&self) -> ReplyHeader {
        let Self { kind, rid, segment: Segment { index, count, .. }, .. } = *self;
        let base = V1Repr { kind, policy: Policy::Fixed, rid, index, count }.header();
        ReplyHeader {
            base: BaseHeader { header_size: EXTENDED_LEN as u8, ..base },
            rpc_id: self.rpc_id.0.into(),
            message_len: self.segment.message_len.into(),
            flags: self.flags,
            version: EXTENSION_VERSION,
            server_load: self.server_load.into(),
            server_id: self.server_id.into(),
            clock_echo_us: self.clock_echo_us.into(),
            token: self.token.into(),
            detail: self.detail.into(),
            segment_len: self.segment.segment_len.into(),
            server_waiting: self.server_waiting.into(),
        }
    }

    /// Writes the header and gives the room after it, which is the payload's.
    ///
    /// # Panics
    ///
    /// If `room` is shorter than [`EXTENDED_LEN`].
    #[inline]
    pub fn emit<'a>(&self, room: &'a mut [u8]) -> &'a mut [u8] {
        write(room, self.header().as_bytes())
    }

    /// Writes the header of a reply that goes back through its router, which is told the client's
    /// address, and gives the room after it, which is the payload's.
    ///
    /// # Panics
    ///
    /// If `room` is shorter than [`ROUTED_LEN`].
    #[inline]
    pub fn emit_returned<'a>(&self, client: SocketAddr, room: &'a mut [u8]) -> &'a mut [u8] {
        let mut header = self.header();
        header.base.header_size = ROUTED_LEN as u8;
        let rest = write(room, header.as_bytes());
        write(rest, Route::to_client(client).as_bytes())
    }
}

#[inline]
fn write<'a>(room: &'a mut [u8], header: &[u8]) -> &'a mut [u8] {
    let (place, rest) = room.split_at_mut(header.len());
    place.copy_from_slice(header);
    rest
}
