//! Parts of a sealed packet besides the open one: a mark in the bytes that are reserved, and a
//! trailer.
//!
//! | byte | in a sealed packet | in an answer of who has no key |
//! |---|---|---|
//! | 8 | [`SEALED_MARK`]; 0 in an open one | [`RESET_MARK`] |
//! | 9 | 1 if a packet to a server names it, else 0 | a [`DropReason`](crate::r2p2::DropReason) |
//! | 10 | 1 if the RPC is one that the server has begun, else 0 | 0 |
//! | last 32 | [`Trailer`](crate::r2p2::sealed::Trailer) |
//!
//! What they mean is in `docs/sealed.md`.

use zerocopy::FromBytes;

use super::{AckPacket, COMMON_LEN, CommonHeader, DATA_LEN, PacketType};
use crate::r2p2::sealed::TRAILER_LEN;

/// The first reserved byte of a packet that is sealed.
pub const SEALED_MARK: u8 = 2;
/// The first reserved byte of an RPC_UNKNOWN that says that a server has no key of a packet's
/// epoch.
pub const RESET_MARK: u8 = 3;
/// Place of that byte.
pub const MARK_AT: usize = 8;
/// Place of the byte that says whether a packet names its receiver.
pub const NAMED_AT: usize = 9;
/// Place of the byte that says why there is no key.
pub const REASON_AT: usize = 9;
/// Place of the byte that says whether the server has begun the RPC: it calls its client back.
pub const BACK_AT: usize = 10;

/// True if a datagram has the mark of a sealed packet: all of it, for others may leave something in
/// these bytes.
#[inline]
pub fn is_marked(bytes: &[u8]) -> bool {
    matches!(bytes.get(MARK_AT..MARK_AT + 3), Some([SEALED_MARK, 0 | 1, 0 | 1]))
}

/// True if a datagram has the form of an answer of who has no key.
#[inline]
pub fn is_answer(bytes: &[u8]) -> bool {
    bytes.len() == ANSWER_LEN
        && bytes[MARK_AT] == RESET_MARK
        && header(bytes).is_some_and(|(_, kind)| kind == PacketType::RpcUnknown)
}

/// Bytes of a packet that stay clear, of a type and a length without the trailer: those of DATA up
/// to its payload, all of the others. `None` where a packet is shorter, or longer than any of its
/// type.
pub fn clear_len(packet_type: PacketType, len: usize) -> Option<usize> {
    match packet_type {
        PacketType::Data => (len >= DATA_LEN).then_some(DATA_LEN),
        _ => (COMMON_LEN..=CONTROL_LEN_MAX).contains(&len).then_some(len),
    }
}

/// The header of a packet as it would be if it were open, and its type; `None` for what is no
/// packet.
pub fn header(bytes: &[u8]) -> Option<(&CommonHeader, PacketType)> {
    let (common, _) = CommonHeader::ref_from_prefix(bytes).ok()?;
    Some((common, PacketType::from_byte(common.packet_type)?))
}

/// Bytes of an answer of who has no key.
pub const ANSWER_LEN: usize = COMMON_LEN + TRAILER_LEN;

/// The longest packet that is no DATA.
pub const CONTROL_LEN_MAX: usize = size_of::<AckPacket>();
