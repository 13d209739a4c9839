//! The one way in: [`Packet::parse`] refuses whatever is not coherent, so that nothing behind it
//! checks lengths again.

use zerocopy::FromBytes;

use super::sealed::{
    COALESCED_VERSION, HOP_VERSION, RESET_VERSION, SEALED_VERSION, TRAILER_LEN, VERSION_AT,
};
use super::{
    BASE_LEN, BaseHeader, ClaimBody, EXTENDED_LEN, EXTENSION_VERSION, FeedbackBody, FeedbackV1,
    Flags, MAGIC, MessageType, Policy, ROUTED_LEN, Rejection, ReplyHeader, RequestHeader, Route,
    RpcId, SackBody, V1_ACK, V1_PACKETS_MAX, position,
};

/// A packet whose header is coherent with itself and with its length.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Form of the header.
    pub kind: Kind<'a>,
    /// Message type.
    pub message_type: MessageType,
    /// Policy that chooses the server.
    pub policy: Policy,
    /// 0-based index of the packet in its message.
    pub index: u16,
    /// Packets of the message; 0 where a version 1 packet does not declare it (all but the first).
    pub count: u16,
    /// True if this is the last packet of its message.
    pub is_last: bool,
    /// The request id of version 1.
    pub rid: u16,
    /// The bytes after the header.
    pub payload: &'a [u8],
}

/// Form of a packet.
#[derive(Clone, Copy, Debug)]
pub enum Kind<'a> {
    /// Version 1: nothing but the base header.
    V1,
    /// With tailcut's extension, towards a server.
    Request {
        /// The header.
        header: &'a RequestHeader,
        /// The route block, on the first packet of a request.
        route: Option<&'a Route>,
    },
    /// With tailcut's extension, from a server or from a router in its place.
    Reply {
        /// The header.
        header: &'a ReplyHeader,
        /// The route block with the client's address, on a reply that goes back through its router.
        route: Option<&'a Route>,
    },
}

/// Reason why bytes are not a packet. Each is a counter at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Shorter than its header.
    Truncated,
    /// The first byte is not 0xcc.
    Magic,
    /// `header_size` is none of 8, 48 and 72, or the route block is where it must not be.
    HeaderSize,
    /// An unknown message type, or one that needs the extension.
    Type,
    /// An unknown policy.
    Policy,
    /// A reserved flag is set.
    Flags,
    /// The flags, the index and the count contradict each other.
    Order,
    /// An unknown version of the extension.
    Version,
    /// The length of the payload contradicts the header.
    Length,
}

impl<'a> Packet<'a> {
    /// Reads a datagram. Never panics, whatever the bytes.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        Self::read(bytes, EXTENSION_VERSION)
    }

    /// Reads a datagram that is open or sealed; of a sealed one the header, and the payload as it
    /// is; of several packets the first. For who watches. Never panics either.
    pub fn parse_clear(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let Some(version @ (SEALED_VERSION | HOP_VERSION | COALESCED_VERSION | RESET_VERSION)) =
            bytes.get(VERSION_AT).copied().filter(|_| usize::from(bytes[1]) >= EXTENDED_LEN)
        else {
            return Self::parse(bytes);
        };
        let end = match version {
            COALESCED_VERSION => Self::first_len(bytes),
            _ => bytes.len().checked_sub(TRAILER_LEN),
        };
        let open = end.and_then(|end| bytes.get(..end)).ok_or(Malformed::Truncated)?;
        Self::read(open, version)
    }

    /// Bytes of the first of several packets in a datagram, as its header says.
    pub fn first_len(bytes: &[u8]) -> Option<usize> {
        let (header, _) = RequestHeader::ref_from_prefix(bytes).ok()?;
        let payload_len = match MessageType::from_byte(header.base.type_policy)? {
            MessageType::ReplyAck => size_of::<SackBody>(),
            _ => header.message_len.get() as usize,
        };
        Some(usize::from(header.base.header_size) + payload_len)
    }

    /// Reads a packet without a trailer; one of the extension has this version.
    #[inline(always)]
    fn read(bytes: &'a [u8], version: u8) -> Result<Self, Malformed> {
        let Ok((base, rest)) = BaseHeader::ref_from_prefix(bytes) else {
            return Err(Malformed::Truncated);
        };
        if base.magic != MAGIC {
            return Err(Malformed::Magic);
        }
        let message_type = MessageType::from_byte(base.type_policy).ok_or(Malformed::Type)?;
        // The reference leaves every other header byte of a FEEDBACK uninitialised.
        if message_type == MessageType::Feedback && rest.len() == size_of::<FeedbackV1>() {
            return Ok(Self::v1_feedback(rest));
        }
        let policy = Policy::from_byte(base.type_policy).ok_or(Malformed::Policy)?;
        if base.flags & !position::ONLY != 0 {
            return Err(Malformed::Flags);
        }
        match usize::from(base.header_size) {
            BASE_LEN => Self::parse_v1(base, rest, message_type, policy),
            EXTENDED_LEN | ROUTED_LEN => {
                Self::parse_extended(bytes, message_type, (policy, version))
            }
            _ => Err(Malformed::HeaderSize),
        }
    }

    /// True if the packet has tailcut's extension.
    #[inline]
    pub fn is_extended(&self) -> bool {
        !matches!(self.kind, Kind::V1)
    }

    /// True if it is part of a request and says that it came through a router.
    pub fn is_routed(&self) -> bool {
        matches!(self.kind, Kind::Request { route: Some(route), .. } if route.routed != 0)
    }

    /// The header of an extended packet towards a server.
    pub fn request_header(&self) -> Option<&'a RequestHeader> {
        match self.kind {
            Kind::Request { header, .. } => Some(header),
            _ => None,
        }
    }

    /// The route block, where the packet has one.
    pub fn route(&self) -> Option<&'a Route> {
        match self.kind {
            Kind::V1 => None,
            Kind::Request { route, .. } | Kind::Reply { route, .. } => route,
        }
    }

    /// The header of an extended packet from a server.
    pub fn reply_header(&self) -> Option<&'a ReplyHeader> {
        match self.kind {
            Kind::Reply { header, .. } => Some(header),
            _ => None,
        }
    }

    /// The call's id; version 1 has none.
    pub fn rpc_id(&self) -> Option<RpcId> {
        self.layout().map(|header| RpcId(header.rpc_id.get()))
    }

    /// The flags; none in version 1.
    pub fn flags(&self) -> Flags {
        Flags(self.layout().map_or(0, |header| header.flags))
    }

    /// The address token, given or echoed; 0 for none.
    pub fn token(&self) -> u64 {
        self.layout().map_or(0, |header| header.token.get())
    }

    /// Bytes of the message, and payload bytes of each of its packets but the last; zeros in
    /// version 1, which declares neither.
    pub fn lengths(&self) -> (u32, u16) {
        self.layout().map_or((0, 0), |header| (header.message_len.get(), header.segment_len.get()))
    }

    /// The acknowledgment and window of an extended ACK or REPLY_ACK.
    pub fn sack(&self) -> Option<&'a SackBody> {
        let is_sack = matches!(self.message_type, MessageType::Ack | MessageType::ReplyAck);
        (is_sack && self.is_extended())
            .then(|| SackBody::ref_from_bytes(self.payload).ok())
            .flatten()
    }

    /// The counts of an extended FEEDBACK.
    pub fn feedback(&self) -> Option<&'a FeedbackBody> {
        let is_feedback = self.message_type == MessageType::Feedback && self.is_extended();
        is_feedback.then(|| FeedbackBody::ref_from_bytes(self.payload).ok()).flatten()
    }

    /// The client of a CLAIM.
    pub fn claim(&self) -> Option<&'a ClaimBody> {
        let is_claim = self.message_type == MessageType::Claim;
        is_claim.then(|| ClaimBody::ref_from_bytes(self.payload).ok()).flatten()
    }

    /// True if the packet carries bytes of a message: a request or a reply.
    pub fn is_data(&self) -> bool {
        self.message_type.is_data()
    }

    /// The extended header read as a request's, for the fields that both directions share.
    #[inline]
    fn layout(&self) -> Option<&'a RequestHeader> {
        match self.kind {
            Kind::V1 => None,
            Kind::Request { header, .. } => Some(header),
            Kind::Reply { header, .. } => Some(zerocopy::transmute_ref!(header)),
        }
    }

    fn v1_feedback(payload: &'a [u8]) -> Self {
        Self {
            kind: Kind::V1,
            message_type: MessageType::Feedback,
            policy: Policy::Unrestricted,
            index: 0,
            count: 1,
            is_last: true,
            rid: 0,
            payload,
        }
    }

    fn parse_v1(
        base: &BaseHeader,
        payload: &'a [u8],
        message_type: MessageType,
        policy: Policy,
    ) -> Result<Self, Malformed> {
        if message_type.needs_extension() {
            return Err(Malformed::Type);
        }
        let (index, count, is_last) = order(base)?;
        if count > V1_PACKETS_MAX || index >= V1_PACKETS_MAX {
            return Err(Malformed::Order);
        }
        let rid = base.rid.get();
        let packet =
            Self { kind: Kind::V1, message_type, policy, index, count, is_last, rid, payload };
        if !packet.is_data() {
            packet.check_control()?;
        }
        Ok(packet)
    }

    #[inline(always)]
    fn parse_extended(
        bytes: &'a [u8],
        message_type: MessageType,
        (policy, version): (Policy, u8),
    ) -> Result<Self, Malformed> {
        let Ok((header, rest)) = RequestHeader::ref_from_prefix(bytes) else {
            return Err(Malformed::Truncated);
        };
        if header.version != version {
            return Err(Malformed::Version);
        }
        let (route, payload) = if usize::from(header.base.header_size) == ROUTED_LEN {
            let (route, payload) =
                Route::ref_from_prefix(rest).map_err(|_| Malformed::Truncated)?;
            (Some(route), payload)
        } else {
            (None, rest)
        };
        let (index, declared_count, is_last) = order(&header.base)?;
        let is_only = index == 0 && is_last;
        let may_have_route = match message_type {
            MessageType::Request => index == 0,
            MessageType::Response => is_only,
            _ => false,
        };
        if route.is_some() && !may_have_route {
            return Err(Malformed::HeaderSize);
        }
        let kind = if message_type.is_from_server() {
            Kind::Reply { header: zerocopy::transmute_ref!(header), route }
        } else {
            Kind::Request { header, route }
        };
        let is_data = message_type.is_data();
        let count = if is_data {
            let count = data_count(header, index, is_last, payload.len())?;
            if declared_count != 0 && declared_count != count {
                return Err(Malformed::Order);
            }
            count
        } else {
            declared_count
        };
        let rid = header.base.rid.get();
        let packet = Self { kind, message_type, policy, index, count, is_last, rid, payload };
        if !is_data {
            packet.check_control()?;
        }
        Ok(packet)
    }

    fn check_control(&self) -> Result<(), Malformed> {
        if self.count != 1 || !self.is_last {
            return Err(Malformed::Order);
        }
        let is_v1 = !self.is_extended();
        let expected = match self.message_type {
            MessageType::Ack if is_v1 => V1_ACK.len(),
            MessageType::Feedback if is_v1 => size_of::<FeedbackV1>(),
            // The payload of a version 1 DROP has no meaning.
            MessageType::Drop if is_v1 => return Ok(()),
            MessageType::Ack | MessageType::ReplyAck => size_of::<SackBody>(),
            MessageType::Feedback => size_of::<FeedbackBody>(),
            MessageType::Probe => 4,
            MessageType::Claim => size_of::<ClaimBody>(),
            MessageType::Claimed => 1,
            MessageType::Cancel => 0,
            MessageType::Drop if self.payload.len() >= Rejection::PREFIX_LEN => {
                let is_within =
                    self.payload.len() <= Rejection::PREFIX_LEN + Rejection::TEXT_LEN_MAX;
                return if is_within { Ok(()) } else { Err(Malformed::Length) };
            }
            MessageType::Drop => 1,
            MessageType::Request | MessageType::Response => return Ok(()),
        };
        if self.payload.len() == expected { Ok(()) } else { Err(Malformed::Length) }
    }
}

/// Packets of a message of `message_len` bytes cut every `segment_len`; `None` where 16 bits do not
/// hold them. An empty message is one packet.
pub fn packet_count(message_len: u32, segment_len: u16) -> Option<u16> {
    // Most messages, which need no division.
    if message_len <= u32::from(segment_len) {
        return Some(1);
    }
    if segment_len == 0 {
        return None;
    }
    let count = message_len.div_ceil(u32::from(segment_len));
    u16::try_from(count).ok().filter(|&count| count < u16::MAX)
}

/// Offset and length of packet `index` in its message; the length is 0 past the end.
pub fn payload_span(index: u16, message_len: u32, segment_len: u16) -> (usize, usize) {
    let offset = index as usize * segment_len as usize;
    let len = (message_len as usize).saturating_sub(offset).min(segment_len as usize);
    (offset, len)
}

/// Index, count (0 where the packet does not declare it) and whether it is the last.
fn order(base: &BaseHeader) -> Result<(u16, u16, bool), Malformed> {
    let is_first = base.flags & position::FIRST != 0;
    let is_last = base.flags & position::LAST != 0;
    let p_order = base.p_order.get();
    if p_order == 0 || (is_first && is_last != (p_order == 1)) {
        return Err(Malformed::Order);
    }
    Ok(if is_first { (0, p_order, is_last) } else { (p_order, 0, is_last) })
}

/// The packet count that an extended data packet implies, if its own length and place agree with
/// it.
fn data_count(
    header: &RequestHeader,
    index: u16,
    is_last: bool,
    payload_len: usize,
) -> Result<u16, Malformed> {
    let message_len = header.message_len.get();
    let segment_len = header.segment_len.get();
    let count = packet_count(message_len, segment_len).ok_or(Malformed::Length)?;
    if index >= count || is_last != (index + 1 == count) {
        return Err(Malformed::Order);
    }
    let (_, len) = payload_span(index, message_len, segment_len);
    if payload_len != len {
        return Err(Malformed::Length);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    /// The reference's own packets: type, policy, index, count, last, rid, payload length.
    fn check(text: &str, expected: (MessageType, Policy, u16, u16, bool, u16, usize)) {
        let bytes = hex(text);
        let packet = Packet::parse(&bytes).unwrap();
        let found = (
            packet.message_type,
            packet.policy,
            packet.index,
            packet.count,
            packet.is_last,
            packet.rid,
            packet.payload.len(),
        );
        assert_eq!(found, expected, "{text}");
        assert!(!packet.is_extended());
    }

    fn check_refused(text: &str, reason: Malformed) {
        assert_eq!(Packet::parse(&hex(text)).unwrap_err(), reason, "{text}");
    }

    #[test]
    fn single_packet_request_of_the_reference() {
        check(
            "cc0800c00001000131323334",
            (MessageType::Request, Policy::Unrestricted, 0, 1, true, 1, 4),
        );
    }

    #[test]
    fn single_packet_reply_of_the_reference() {
        check("cc0811c00001000131323334", (MessageType::Response, Policy::Fixed, 0, 1, true, 1, 4));
    }

    #[test]
    fn three_packet_exchange_of_the_reference() {
        let (request, response) = (MessageType::Request, MessageType::Response);
        check(
            &("cc08008000010004".to_owned() + &"00".repeat(14)),
            (request, Policy::Unrestricted, 0, 4, false, 1, 14),
        );
        check("cc0831c00001000141434b", (MessageType::Ack, Policy::Fixed, 0, 1, true, 1, 3));
        check(
            &("cc08000000010001".to_owned() + &"00".repeat(1464)),
            (request, Policy::Unrestricted, 1, 0, false, 1, 1464),
        );
        check(
            &("cc08004000010003".to_owned() + &"00".repeat(58)),
            (request, Policy::Unrestricted, 3, 0, true, 1, 58),
        );
        check(
            &("cc08118000010003".to_owned() + &"00".repeat(1464)),
            (response, Policy::Fixed, 0, 3, false, 1, 1464),
        );
        check(
            &("cc08114000010002".to_owned() + &"00".repeat(72)),
            (response, Policy::Fixed, 2, 0, true, 1, 72),
        );
    }

    #[test]
    fn feedback_is_known_by_its_type_alone() {
        check(
            "cc002000000000000001a7f87f000001",
            (MessageType::Feedback, Policy::Unrestricted, 0, 1, true, 0, 8),
        );
        check(
            "ccec202cfd7f00000002a7f97f000001",
            (MessageType::Feedback, Policy::Unrestricted, 0, 1, true, 0, 8),
        );
    }

    #[test]
    fn drop_of_the_reference() {
        check("cc0841c00001000144524f50", (MessageType::Drop, Policy::Fixed, 0, 1, true, 1, 4));
    }

    #[test]
    fn empty_payload_is_legal() {
        check("cc0800c000010001", (MessageType::Request, Policy::Unrestricted, 0, 1, true, 1, 0));
    }

    #[test]
    fn what_aborts_the_reference_is_refused() {
        check_refused("", Malformed::Truncated);
        check_refused("cc0800c0000100", Malformed::Truncated);
        check_refused("cd0800c000010001", Malformed::Magic);
        check_refused("ccc800c000010001", Malformed::HeaderSize);
        check_refused("cc0870c000010001", Malformed::Type);
        check_refused("cc0890c000010001", Malformed::Type);
        check_refused("cc0802c000010001", Malformed::Policy);
        check_refused("cc0800c100010001", Malformed::Flags);
        check_refused("cc0800c000010002", Malformed::Order);
        check_refused("cc08008000010001", Malformed::Order);
        check_refused("cc08000000010000", Malformed::Order);
        check_refused("cc080080000100ff", Malformed::Order);
        check_refused("cc080000000100fe", Malformed::Order);
        check_refused("cc08e0c000010001", Malformed::Type);
    }

    #[test]
    fn version_1_control_packets_are_whole_messages() {
        check_refused("cc0831800001000241434b", Malformed::Order);
        check_refused("cc0831000001000141434b", Malformed::Order);
        check_refused("cc0831c0000100014143", Malformed::Length);
        check_refused("cc0841400001000144524f50", Malformed::Order);
        check_refused("cc0820c0000000010001a7f87f0000", Malformed::Length);
        check("cc0841c000010001", (MessageType::Drop, Policy::Fixed, 0, 1, true, 1, 0));
    }

    #[test]
    fn count_of_an_empty_message_is_one() {
        assert_eq!(packet_count(0, 0), Some(1));
        assert_eq!(packet_count(1, 0), None);
        assert_eq!(packet_count(1401, 1400), Some(2));
        assert_eq!(packet_count(u32::MAX, 1), None);
    }

    #[test]
    fn count_leaves_room_for_one_past_the_last_index() {
        assert_eq!(packet_count(65_534, 1), Some(65_534));
        assert_eq!(packet_count(65_535, 1), None);
    }

    use std::borrow::ToOwned;
}
