//! Several short packets between a client and a server in one datagram: under one tag, and one hop
//! tag, so that many small calls cost little more than one.
//!
//! | a datagram of several packets | |
//! |---|---|
//! | header of the first, with [`COALESCED_VERSION`] | clear, associated data |
//! | its payload; the other packets, each as it would be open; the length of each but the last, 2 bytes | encrypted |
//! | trailer | that of a single packet |
//!
//! | who | sends them |
//! |---|---|
//! | a client | to a server that it has named, if that has said that it takes them |
//! | a server | in sessions in which one has come |
//!
//! They are packets of one session: a client's are requests and acknowledgements of replies by the
//! name of the server, a server's are replies and refusals. A router, which places each request by
//! itself, takes none.
//!
//! [`COALESCED_VERSION`]: tailcut_wire::r2p2::sealed::COALESCED_VERSION

use tailcut_wire::r2p2::sealed::{COALESCED_WORD_LEN, FLAGS_OF_ROUTERS, TRAILER_LEN};
use tailcut_wire::r2p2::{
    EXTENDED_LEN, EXTENSION_VERSION, Flags, MAGIC, MessageType, ROUTED_LEN, ReplyHeader,
    RequestHeader, RpcId,
};
use zerocopy::FromBytes;

use super::ClientEpoch;
use super::packet::{FLAGS_AT, ROUTED_AT, addressee, written};
use crate::node::Transmit;

/// Arrangement of the packets of a transmit in datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes of each packet but the last, open.
    packet_len: usize,
    /// Packets of each datagram but the last.
    packets: usize,
}

impl Shape {
    /// In datagrams of so many bytes; `None` where no two fit.
    #[inline]
    pub(super) fn of(transmit: &Transmit, len_max: usize) -> Option<Self> {
        let packet_len = transmit.segment_len.checked_sub(TRAILER_LEN)?;
        let room = len_max.checked_sub(COALESCED_WORD_LEN + TRAILER_LEN)?;
        let packets = room.checked_div(packet_len)?;
        (packets > 1 && transmit.len > transmit.segment_len).then_some(Self { packet_len, packets })
    }

    /// Puts the packets of a datagram together, of those that begin at `from` and end before `end`,
    /// at `to`; gives its length and where the rest begins. A lone one keeps its room for a
    /// trailer, others have one together.
    pub(super) fn gather(
        &self,
        buffer: &mut [u8],
        (from, end): (usize, usize),
        to: usize,
    ) -> (usize, usize) {
        let segment_len = self.packet_len + TRAILER_LEN;
        let rest = (from + self.packets * segment_len).min(end);
        if rest - from <= segment_len {
            buffer.copy_within(from..rest, to);
            return (rest - from, rest);
        }
        let mut at = to;
        for start in (from..rest).step_by(segment_len) {
            let len = segment_len.min(rest - start) - TRAILER_LEN;
            buffer.copy_within(start..start + len, at);
            at += len;
        }
        let word = u16::try_from(self.packet_len).expect("two of them are in a datagram");
        buffer[at..at + COALESCED_WORD_LEN].copy_from_slice(&word.to_be_bytes());
        (at + COALESCED_WORD_LEN + TRAILER_LEN - to, rest)
    }

    /// Bytes of each packet but the last in a datagram that has been gathered; all of one that has
    /// but one.
    pub(super) fn packet_len(&self) -> usize {
        self.packet_len
    }
}

/// The session of packets that a client may send together.
pub(super) fn session_of_client<'a>(packets: impl Iterator<Item = &'a [u8]>) -> Option<u64> {
    let session = |packet: &[u8]| {
        let (kind, rpc_id) = written(packet)?;
        let is_fit = is_for_server(kind) && packet[FLAGS_AT] & Flags::RETRANSMIT == 0;
        is_fit.then(|| rpc_id.session().0)
    };
    all_same(packets.map(session))
}

/// Session and addressee of packets that a server may send together.
pub(super) fn session_of_server<'a>(
    packets: impl Iterator<Item = &'a [u8]>,
) -> Option<(u64, ClientEpoch)> {
    let session = |packet: &[u8]| {
        let (kind, rpc_id) = written(packet)?;
        let is_fit = is_for_client(kind) && usize::from(packet[1]) == EXTENDED_LEN;
        Some((rpc_id.session().0, addressee(packet)?)).filter(|_| is_fit)
    };
    all_same(packets.map(session))
}

fn all_same<T: PartialEq>(mut each: impl Iterator<Item = Option<T>>) -> Option<T> {
    let first = each.next()??;
    each.all(|other| other.as_ref() == Some(&first)).then_some(first)
}

/// The length of each packet but the last, in what has been opened and says that it is of a session
/// and towards a server or from one; `None` where it is not what may be sent together.
pub(super) fn packet_len(bytes: &[u8], session: u64, is_to_server: bool) -> Option<usize> {
    let len = len_of_each(bytes)?;
    let is_fit = |packet: &[u8]| is_part(packet, session, is_to_server);
    bytes[..packets_len(bytes)].chunks(len).all(is_fit).then_some(len)
}

/// Length of each of several packets but the last, as their end tells it.
pub(super) fn len_of_each(bytes: &[u8]) -> Option<usize> {
    let end = bytes.len().checked_sub(COALESCED_WORD_LEN + TRAILER_LEN)?;
    let len = usize::from(u16::from_be_bytes(*bytes[end..].first_chunk()?));
    (len > 0 && len < end).then_some(len)
}

/// Bytes of all packets, in what has been opened.
pub(super) fn packets_len(bytes: &[u8]) -> usize {
    bytes.len() - COALESCED_WORD_LEN - TRAILER_LEN
}

/// True of an open packet that may be one of several: whatever else it may be is not what its seal
/// was looked at for.
fn is_part(packet: &[u8], session: u64, is_to_server: bool) -> bool {
    let Ok((header, _)) = RequestHeader::ref_from_prefix(packet) else { return false };
    let header_len = usize::from(header.base.header_size);
    let has_route = header_len == ROUTED_LEN && is_to_server;
    let is_whole = packet.len() >= header_len && (header_len == EXTENDED_LEN || has_route);
    let is_kind = MessageType::from_byte(header.base.type_policy).is_some_and(if is_to_server {
        is_for_server
    } else {
        is_for_client
    });
    header.base.magic == MAGIC
        && header.version == EXTENSION_VERSION
        && RpcId(header.rpc_id.get()).session().0 == session
        && is_whole
        && is_kind
        && !(is_to_server && packet[FLAGS_AT] & FLAGS_OF_ROUTERS != 0)
        && !(has_route && packet[ROUTED_AT] != 0)
}

fn is_for_server(kind: MessageType) -> bool {
    matches!(kind, MessageType::Request | MessageType::ReplyAck)
}

/// Whoever is asked for its name says it in an ACK, which is for the seal itself: so that goes
/// alone.
fn is_for_client(kind: MessageType) -> bool {
    matches!(kind, MessageType::Response | MessageType::Drop)
}

/// On an ACK by which a server tells its name: it takes several packets in a datagram.
pub(super) fn set_taken(bytes: &mut [u8]) {
    if let Ok((header, _)) = ReplyHeader::mut_from_prefix(bytes) {
        header.segment_len = TAKEN.into();
    }
}

/// True if such an ACK says so. What is left is as nodes know it.
pub(super) fn take_taken(bytes: &mut [u8]) -> bool {
    let Ok((header, _)) = ReplyHeader::mut_from_prefix(bytes) else { return false };
    std::mem::take(&mut header.segment_len).get() == TAKEN
}

/// In `segment_len`, which is else 0 on control packets.
const TAKEN: u16 = 1;
