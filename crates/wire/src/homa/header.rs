//! Header layouts and the small codes in them. Offsets are those of `docs/protocol/homa.md`.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{ACKS_MAX, FLAGS, LEVELS, URGENT};

/// Packet types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PacketType {
    /// A part of a message.
    Data = 0x10,
    /// Permission to send.
    Grant = 0x11,
    /// A range has not arrived.
    Resend = 0x12,
    /// The RPC is not known here.
    RpcUnknown = 0x13,
    /// Alive, and nothing to send for the moment.
    Busy = 0x14,
    /// Priorities for unscheduled bytes.
    Cutoffs = 0x15,
    /// Debugging; taken and ignored.
    Freeze = 0x16,
    /// The server asks whether it may release an RPC.
    NeedAck = 0x17,
    /// RPCs that the client has finished.
    Ack = 0x18,
    /// A server that asks for cookies tells one. Not of the module, to which it is never sent.
    Cookie = 0x1f,
}

impl PacketType {
    /// The type of byte 11; `None` for any other value.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0x10 => Self::Data,
            0x11 => Self::Grant,
            0x12 => Self::Resend,
            0x13 => Self::RpcUnknown,
            0x14 => Self::Busy,
            0x15 => Self::Cutoffs,
            0x16 => Self::Freeze,
            0x17 => Self::NeedAck,
            0x18 => Self::Ack,
            0x1f => Self::Cookie,
            _ => return None,
        })
    }
}

/// Source and destination of a packet within their hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// The sender's.
    pub source: u16,
    /// The receiver's.
    pub destination: u16,
}

/// The 28 bytes that every packet begins with.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CommonHeader {
    /// Port of the sender.
    pub sport: U16,
    /// Port of the receiver.
    pub dport: U16,
    /// In DATA the offset of the first byte, unless `seg_offset` holds it; segmentation of TCP
    /// rewrites it.
    pub sequence: U32,
    /// 0 when sent, ignored when received.
    pub reserved: [u8; 3],
    /// [`PacketType`].
    pub packet_type: u8,
    /// Length of the header in words of 4 bytes, in the upper nibble, for NICs; ignored when
    /// received.
    pub doff: u8,
    /// [`FLAGS`]; 0 from the variant without grants.
    pub flags: u8,
    /// 0 from the module, which ignores it. In CUTOFFS and DATA a second half of what validates the
    /// peer's address: told there, echoed here.
    pub window: U16,
    /// A partial checksum for NICs; not verified.
    pub checksum: U16,
    /// [`URGENT`]; 0 from the variant without grants.
    pub urgent: U16,
    /// The RPC as the sender numbers it: even from its client, odd from its server.
    pub sender_id: U64,
}

impl CommonHeader {
    /// The header of a packet as the module writes it, the checksum left to the NIC.
    pub fn new(packet_type: PacketType, ports: Ports, sender_id: u64) -> Self {
        let doff = if packet_type == PacketType::Data { 14 << 4 } else { 5 << 4 };
        Self {
            sport: ports.source.into(),
            dport: ports.destination.into(),
            sequence: U32::ZERO,
            reserved: [0; 3],
            packet_type: packet_type as u8,
            doff,
            flags: FLAGS,
            window: U16::ZERO,
            checksum: U16::ZERO,
            urgent: URGENT.into(),
            sender_id: sender_id.into(),
        }
    }

    /// Its ports.
    pub fn ports(&self) -> Ports {
        Ports { source: self.sport.get(), destination: self.dport.get() }
    }

    /// The RPC as the receiver numbers it.
    pub fn local_id(&self) -> u64 {
        self.sender_id.get() ^ 1
    }

    /// True if the sender may be the variant that knows neither grants nor priorities; its DATA
    /// says for certain, see [`DataHeader::is_stripped`].
    pub fn is_stripped(&self) -> bool {
        self.flags == 0 && self.urgent.get() == 0
    }
}

/// A finished RPC.
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
pub struct Ack {
    /// The id that the client gave it, which is even; 0 for none. Odd in a range, to peers that
    /// know the flags: then that of the last of several, and 1.
    pub client_id: U64,
    /// The port of the server; in a range how many RPCs with consecutive ids are finished.
    pub server_port: U16,
}

impl Ack {
    /// Names an RPC.
    pub fn new(client_id: u64, server_port: u16) -> Self {
        Self { client_id: client_id.into(), server_port: server_port.into() }
    }

    /// Names the `count` RPCs of which `last_id` is the last; their server is who gets it.
    pub fn range(last_id: u64, count: u16) -> Self {
        Self::new(last_id | 1, count)
    }

    /// Number of RPCs that a range names; `None` where one is named, or none.
    pub fn range_count(self) -> Option<u16> {
        (self.client_id.get() & 1 != 0).then_some(self.server_port.get())
    }
}

/// The header of a DATA packet. The last three bytes before `seg_offset` are padding to the module;
/// here they carry what peers that understand it tell each other.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DataHeader {
    /// The first 28 bytes.
    pub common: CommonHeader,
    /// Bytes of the whole message, from 1; the module takes up to [`super::MESSAGE_LEN_MAX`].
    pub message_length: U32,
    /// The sender will send bytes below this without a further grant; 0 from the variant without
    /// grants.
    pub incoming: U32,
    /// An RPC that the sender, as a client, has finished.
    pub ack: Ack,
    /// Version of the receiver's cutoffs that the sender knows; 0 for none.
    pub cutoff_version: U16,
    /// Not 0 on a packet that is sent again; then the [`Age`] of the message if
    /// [`DataFlags::KNOWN`] is set.
    pub retransmit: u8,
    /// [`DataFlags`].
    pub flags: u8,
    /// [`TimeLeft`] of the call, on requests.
    pub time_left: U16,
    /// Offset of the first byte, or [`super::OFFSET_IN_SEQUENCE`].
    pub seg_offset: U32,
}

impl DataHeader {
    /// The header of the data from `offset` on, with every optional field zero. The offset is in
    /// both places, so that either rule finds it.
    pub fn new(ports: Ports, sender_id: u64, message_length: u32, offset: u32) -> Self {
        let mut common = CommonHeader::new(PacketType::Data, ports, sender_id);
        common.sequence = offset.into();
        Self {
            common,
            message_length: message_length.into(),
            incoming: U32::ZERO,
            ack: Ack::default(),
            cutoff_version: U16::ZERO,
            retransmit: 0,
            flags: 0,
            time_left: U16::ZERO,
            seg_offset: offset.into(),
        }
    }

    /// Offset of the first byte: after segmentation `seg_offset` holds and `sequence` is stale,
    /// unless the former points to the latter.
    pub fn offset(&self) -> u32 {
        match self.seg_offset.get() {
            super::OFFSET_IN_SEQUENCE => self.common.sequence.get(),
            offset => offset,
        }
    }

    /// True if the sender is the variant that knows neither grants nor priorities. The module
    /// itself says how much it sends without a grant, whatever a NIC or a middlebox makes of the
    /// rest.
    pub fn is_stripped(&self) -> bool {
        self.common.is_stripped() && self.incoming.get() == 0
    }

    /// The flags; none from a sender that does not know them.
    pub fn flags(&self) -> DataFlags {
        let flags = DataFlags(self.flags);
        if flags.has(DataFlags::KNOWN) { flags } else { DataFlags(0) }
    }
}

/// Flags of a DATA packet, in a byte that is padding to the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataFlags(pub u8);

impl DataFlags {
    /// The sender knows the flags; without it the byte means nothing.
    pub const KNOWN: u8 = 0x80;
    /// Request: its client waits for many replies, which shall come with few unscheduled bytes
    /// (SIGCOMM'18 section 3.6).
    pub const INCAST: u8 = 0x01;
    /// The message is a part of a longer one, and begins with a header that says which.
    pub const PART: u8 = 0x02;
    /// Reply: the request is refused; the message is one byte that says why.
    pub const REFUSED: u8 = 0x04;
    /// Request: it may run more than once.
    pub const IDEMPOTENT: u8 = 0x08;
    /// The message is empty, which Homa's cannot be: its one byte means nothing.
    pub const EMPTY: u8 = 0x10;
    /// Packets between the two, which are on one host, may be longer than those of a network.
    pub const LONG: u8 = 0x20;

    /// True if `flag` is set.
    pub fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }
}

/// Time since the first packet of a message went out for the first time, in a byte: 0 on a packet
/// that is not sent again, 255 for unknown, and else 1 plus milliseconds, rounded up: exact below
/// 16, then with 3 bits after the leading one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Age(pub u8);

impl Age {
    /// Sent again after `ns`.
    pub fn of_ns(ns: u64) -> Self {
        let ms = ns.div_ceil(1_000_000);
        if ms < 16 {
            return Self(ms as u8 + 1);
        }
        let exponent = ms.ilog2();
        let rounded = ms.div_ceil(1 << (exponent - 3)) - 8;
        Self((u64::from(exponent - 4) * 8 + rounded + 17).min(255) as u8)
    }

    /// Most nanoseconds that may have passed; `None` when it may be any time.
    pub fn ns_max(self) -> Option<u64> {
        (self.0 != 255).then(|| Self::ns_of(self.0.into()))
    }

    /// Fewest nanoseconds that have passed.
    pub fn ns_min(self) -> u64 {
        Self::ns_of(self.0.saturating_sub(1).into())
    }

    fn ns_of(code: u64) -> u64 {
        1_000_000
            * match code {
                17.. => (8 + (code - 17) % 8) << ((code - 17) / 8 + 1),
                _ => code.saturating_sub(1),
            }
    }
}

/// Time that a caller will still wait, in 16 bits: 4 of exponent and 12 of mantissa, in
/// microseconds, rounded down; 0 for none declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeLeft(pub u16);

impl TimeLeft {
    /// Codes `ns`, at least a microsecond and at most 134 s.
    pub fn of_ns(ns: u64) -> Self {
        let us = (ns / 1000).clamp(1, Self::MANTISSA_MAX << 15);
        let exponent = (64 - us.leading_zeros()).saturating_sub(12);
        Self((exponent << 12) as u16 | (us >> exponent) as u16)
    }

    /// Nanoseconds; `None` when none is declared.
    pub fn ns(self) -> Option<u64> {
        let mantissa = u64::from(self.0) & Self::MANTISSA_MAX;
        (self.0 != 0).then(|| (mantissa << (self.0 >> 12)) * 1000)
    }

    const MANTISSA_MAX: u64 = 0xfff;
}

/// A GRANT packet.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct GrantPacket {
    /// The first 28 bytes.
    pub common: CommonHeader,
    /// Bytes below this may be sent.
    pub offset: U32,
    /// The priority to send them at, 0 to 7.
    pub priority: u8,
}

/// A RESEND packet.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ResendPacket {
    /// The first 28 bytes.
    pub common: CommonHeader,
    /// The first byte that is missing.
    pub offset: U32,
    /// Number of bytes that are missing, or [`super::RESEND_ALL`].
    pub length: U32,
    /// The priority to send them at, 0 to 7.
    pub priority: u8,
}

/// A CUTOFFS packet.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CutoffsPacket {
    /// The first 28 bytes.
    pub common: CommonHeader,
    /// By level: the longest message whose unscheduled bytes go there. The highest level that takes
    /// a message is its.
    pub cutoffs: [U32; LEVELS],
    /// To be told back in DATA.
    pub version: U16,
}

/// An ACK packet.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct AckPacket {
    /// The first 28 bytes; its RPC is finished too.
    pub common: CommonHeader,
    /// Number of `acks` that are meant.
    pub num_acks: U16,
    /// Further finished RPCs.
    pub acks: [Ack; ACKS_MAX],
}

/// A COOKIE packet, which is shorter than any DATA.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CookiePacket {
    /// The first 28 bytes.
    pub common: CommonHeader,
    /// The cookie of the receiver's address, by which it tags requests.
    pub cookie: U64,
    /// 1 where nothing has been done for the packet that this answers; 0 where it was taken, and
    /// the cookie is a newer one.
    pub is_demand: u8,
}

/// Beginning of a message with [`DataFlags::PART`].
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct PartHeader {
    /// The id, as the client numbers it, of the call's first RPC: it carries the first part of the
    /// request, and of the reply.
    pub key: U64,
    /// Bytes of the whole request or reply; 0 in [`PartKind::Fetch`].
    pub total_len: U32,
    /// Offset of this part.
    pub offset: U32,
    /// [`PartKind`].
    pub kind: u8,
    /// 0 when sent, ignored when received.
    pub reserved: [u8; 3],
}

/// Kind of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PartKind {
    /// A part of a request follows.
    Request = 0,
    /// Request: the part of the reply at this offset is wanted.
    Fetch = 1,
    /// A part of a reply follows.
    Reply = 2,
}

impl PartHeader {
    /// Bytes of it.
    pub const LEN: usize = 20;
    /// Bytes of a message in each part of it but the last.
    pub const PART_LEN: usize = super::MESSAGE_LEN_MAX as usize - Self::LEN;

    /// The header of the part at `offset`.
    pub fn new(kind: PartKind, key: u64, total_len: u32, offset: u32) -> Self {
        Self {
            key: key.into(),
            total_len: total_len.into(),
            offset: offset.into(),
            kind: kind as u8,
            reserved: [0; 3],
        }
    }

    /// Splits a message into the header and the part, if they are coherent: the part begins where a
    /// part can and has the length that it must have.
    pub fn split(message: &[u8], kind: PartKind) -> Option<(&Self, &[u8])> {
        let (header, part) = Self::ref_from_prefix(message).ok()?;
        let (total_len, offset) = (header.total_len.get() as usize, header.offset.get() as usize);
        let len = if kind == PartKind::Fetch {
            0
        } else {
            total_len.checked_sub(offset)?.min(Self::PART_LEN)
        };
        let is_coherent =
            header.kind == kind as u8 && offset.is_multiple_of(Self::PART_LEN) && part.len() == len;
        (is_coherent && (kind == PartKind::Fetch || len > 0)).then_some((header, part))
    }
}
