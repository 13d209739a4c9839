//! [`Packet::parse`]: the only way in for bytes from the network.

use zerocopy::FromBytes;
use zerocopy::byteorder::big_endian::U32;

use super::{
    ACKS_MAX, Ack, AckPacket, COMMON_LEN, CommonHeader, CookiePacket, CutoffsPacket, DataHeader,
    GrantPacket, LEVELS, PacketType,
};

/// A coherent packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Common beginning of every packet.
    pub common: &'a CommonHeader,
    /// The rest.
    pub body: Body<'a>,
}

/// Body after the common header.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// Bytes of a message; they lie within its length.
    Data {
        /// The header.
        header: &'a DataHeader,
        /// The bytes, from [`DataHeader::offset`] on.
        payload: &'a [u8],
    },
    /// Permission to send.
    Grant(&'a GrantPacket),
    /// A range has not arrived.
    Resend(Resend),
    /// The RPC is not known.
    RpcUnknown,
    /// Alive.
    Busy,
    /// Priorities for unscheduled bytes.
    Cutoffs(&'a CutoffsPacket),
    /// Debugging.
    Freeze,
    /// The server asks whether it may release the RPC.
    NeedAck,
    /// Finished RPCs besides that of the header; at most [`ACKS_MAX`].
    Ack(&'a [Ack]),
    /// By what requests are to be tagged.
    Cookie(&'a CookiePacket),
}

/// Range that a RESEND asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resend {
    /// The first byte that is missing.
    pub offset: u32,
    /// Number of bytes that are missing, or [`super::RESEND_ALL`].
    pub length: u32,
    /// The priority to send them at, 0 to 7; `None` from the variant that knows no priorities,
    /// whose packet ends before it.
    pub priority: Option<u8>,
}

/// Reason why bytes are not a packet. Each is a counter at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Shorter than its header.
    Truncated,
    /// An unknown type.
    Type,
    /// A message of no bytes, or data outside of it. How long a message may be is for the endpoint
    /// to say.
    Length,
    /// An id, a count of acknowledgements, a priority or a cookie that cannot be.
    Value,
}

impl Malformed {
    /// Number of reasons.
    pub const COUNT: usize = 4;
}

impl<'a> Packet<'a> {
    /// Reads a packet, from the transport header on. Never panics, whatever the bytes. Bytes after
    /// a control packet are ignored, since earlier versions of some were longer.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (common, _) = CommonHeader::ref_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
        // Ids 0 and 1 are nobody's: 0 stands for no acknowledgement.
        if common.sender_id.get() < 2 {
            return Err(Malformed::Value);
        }
        let body = match PacketType::from_byte(common.packet_type).ok_or(Malformed::Type)? {
            PacketType::Data => parse_data(bytes)?,
            PacketType::Grant => parse_grant(bytes)?,
            PacketType::Resend => parse_resend(common, bytes)?,
            PacketType::RpcUnknown => Body::RpcUnknown,
            PacketType::Busy => Body::Busy,
            PacketType::Cutoffs => {
                let (cutoffs, _) =
                    CutoffsPacket::ref_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
                Body::Cutoffs(cutoffs)
            }
            PacketType::Freeze => Body::Freeze,
            PacketType::NeedAck => Body::NeedAck,
            PacketType::Ack => parse_ack(bytes)?,
            PacketType::Cookie => parse_cookie(bytes)?,
        };
        Ok(Self { common, body })
    }

    /// Its type.
    pub fn packet_type(&self) -> PacketType {
        match self.body {
            Body::Data { .. } => PacketType::Data,
            Body::Grant(_) => PacketType::Grant,
            Body::Resend(_) => PacketType::Resend,
            Body::RpcUnknown => PacketType::RpcUnknown,
            Body::Busy => PacketType::Busy,
            Body::Cutoffs(_) => PacketType::Cutoffs,
            Body::Freeze => PacketType::Freeze,
            Body::NeedAck => PacketType::NeedAck,
            Body::Ack(_) => PacketType::Ack,
            Body::Cookie(_) => PacketType::Cookie,
        }
    }

    /// True if a client sent it.
    pub fn is_from_client(&self) -> bool {
        self.common.sender_id.get() & 1 == 0
    }
}

fn parse_data(bytes: &[u8]) -> Result<Body<'_>, Malformed> {
    let (header, payload) = DataHeader::ref_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
    let message_length = header.message_length.get();
    if message_length == 0 {
        return Err(Malformed::Length);
    }
    let end = u64::from(header.offset()) + payload.len() as u64;
    if end > u64::from(message_length) {
        return Err(Malformed::Length);
    }
    Ok(Body::Data { header, payload })
}

fn parse_grant(bytes: &[u8]) -> Result<Body<'_>, Malformed> {
    let (grant, _) = GrantPacket::ref_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
    if usize::from(grant.priority) < LEVELS {
        Ok(Body::Grant(grant))
    } else {
        Err(Malformed::Value)
    }
}

fn parse_resend<'a>(common: &CommonHeader, bytes: &'a [u8]) -> Result<Body<'a>, Malformed> {
    let (range, rest) =
        <[U32; 2]>::ref_from_prefix(&bytes[COMMON_LEN..]).map_err(|_| Malformed::Truncated)?;
    let priority = match rest.first() {
        _ if common.is_stripped() => None,
        None => return Err(Malformed::Truncated),
        Some(&priority) if usize::from(priority) < LEVELS => Some(priority),
        Some(_) => return Err(Malformed::Value),
    };
    let [offset, length] = range.map(U32::get);
    Ok(Body::Resend(Resend { offset, length, priority }))
}

fn parse_ack(bytes: &[u8]) -> Result<Body<'_>, Malformed> {
    let (ack, _) = AckPacket::ref_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
    let count = usize::from(ack.num_acks.get());
    if count > ACKS_MAX { Err(Malformed::Value) } else { Ok(Body::Ack(&ack.acks[..count])) }
}

fn parse_cookie(bytes: &[u8]) -> Result<Body<'_>, Malformed> {
    let (packet, _) = CookiePacket::ref_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
    // 0 stands for none.
    if packet.cookie.get() == 0 || packet.is_demand > 1 {
        Err(Malformed::Value)
    } else {
        Ok(Body::Cookie(packet))
    }
}
