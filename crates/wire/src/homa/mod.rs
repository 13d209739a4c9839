//! Homa as the Linux module speaks it: IP protocol 146, or the same bytes in a UDP datagram.
//!
//! | packet | bytes | says |
//! |---|---|---|
//! | DATA | 56 + data | a part of a message; acknowledges one finished RPC besides |
//! | GRANT | 33 | bytes below this offset may be sent, at this priority |
//! | RESEND | 37, or 36 | this range has not arrived |
//! | RPC_UNKNOWN, BUSY, NEED_ACK, FREEZE | 28 | what their names say |
//! | CUTOFFS | 62 | which priority unscheduled bytes of which messages get |
//! | ACK | 80, always | up to six RPCs are finished |
//! | COOKIE | 37 | by what requests are to be tagged; of this implementation alone |
//!
//! All fields are big-endian at fixed offsets; `docs/protocol/homa.md` is the normative text. The
//! header has the shape of a TCP header so that NICs segment it; [`hijack`] makes such frames, and
//! [`is_hijacked`] tells them from TCP's own. The variant without grants and priorities that was
//! proposed upstream leaves those fields zero or out, and is told by [`CommonHeader::is_stripped`].

mod display;
mod header;
mod hijack;
mod packet;
pub mod sealed;
pub mod tagged;

pub use header::{
    Ack, AckPacket, Age, CommonHeader, CookiePacket, CutoffsPacket, DataFlags, DataHeader,
    GrantPacket, PacketType, PartHeader, PartKind, Ports, ResendPacket, TimeLeft,
};
pub use hijack::{HIJACKED_IP_PROTOCOL, hijack, is_hijacked, tcp_checksum};
pub use packet::{Body, Malformed, Packet, Resend};

/// The IP protocol that IANA has assigned.
pub const IP_PROTOCOL: u8 = 146;
/// UDP port of servers that take Homa inside UDP, unless configured otherwise: the protocol's
/// number among the dynamic ports.
pub const UDP_PORT: u16 = 50_146;
/// Length of the header that every packet begins with.
pub const COMMON_LEN: usize = 28;
/// Length of the header of a DATA packet.
pub const DATA_LEN: usize = 56;
/// Longest message, in bytes.
pub const MESSAGE_LEN_MAX: u32 = 1_000_000;
/// Priority levels of a network; 7 is the highest.
pub const LEVELS: usize = 8;
/// RPCs that an ACK packet names besides the one in its header.
pub const ACKS_MAX: usize = 5;
/// First port of clients; servers have the ports below it.
pub const CLIENT_PORT_MIN: u16 = 0x8000;
/// Length in a RESEND that asks for everything that was sent.
pub const RESEND_ALL: u32 = u32::MAX;
/// `seg_offset` of a DATA packet whose offset stands in `sequence`.
pub const OFFSET_IN_SEQUENCE: u32 = u32::MAX;
/// The first reserved byte of DATA that is [tagged].
pub const TAG_MARK: u8 = 4;
/// Flags that the module writes on every packet: SYN and RST, which no TCP segment has together.
pub const FLAGS: u8 = 0x06;
/// Urgent pointer that the module writes on every packet.
pub const URGENT: u16 = 0xb97d;
