//! Packets of sealed nodes that strangers have heard, by type.

use std::net::SocketAddr;

use strum::VariantNames;
use tailcut_wire::homa::sealed::{RESET_MARK, is_marked};
use tailcut_wire::homa::{self, COMMON_LEN, PacketType};
use tailcut_wire::r2p2::sealed::{
    COALESCED_VERSION, HOP_VERSION, RESET_VERSION, SEALED_VERSION, TRAILER_LEN, Trailer, VERSION_AT,
};
use tailcut_wire::r2p2::{EXTENDED_LEN, MessageType};
use zerocopy::FromBytes;

use super::plan::{Host, Transport};

/// The types of packets, as they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantNames, strum::EnumCount)]
#[strum(serialize_all = "snake_case")]
#[allow(
    missing_docs,
    reason = "the names of `MessageType`, where one has two meanings both, and Homa's"
)]
pub enum PacketKind {
    Request,
    /// Several requests, and acknowledgements of replies, in one datagram.
    RequestCoalesced,
    Response,
    /// Several replies, and refusals, in one datagram.
    ReplyCoalesced,
    Feedback,
    Ack,
    /// A server's ACK to a router, with its name.
    HopAck,
    /// A router's ACK to a client: it holds the request, or tells its name.
    TellName,
    Drop,
    /// A router's refusal.
    HopDrop,
    Claimed,
    ReplyAck,
    Cancel,
    Probe,
    /// A PROBE that asks for the name of a server.
    NameProbe,
    Claim,
    HomaRequest,
    HomaReply,
    HomaGrant,
    HomaResend,
    /// A RESEND that names nobody.
    HomaQuestion,
    HomaUnknown,
    HomaBusy,
    HomaCutoffs,
    HomaNeedAck,
    HomaAck,
    /// An answer of who has no key of a request's epoch.
    NoKey,
}

/// Packets that were recorded in a run.
#[derive(Debug)]
pub(super) struct Recorder {
    /// Transport of all packets.
    transport: Transport,
    /// By type.
    packets: [Vec<Recorded>; <PacketKind as strum::EnumCount>::COUNT],
    /// All of them so far.
    count: u64,
    /// The last one, where it was kept.
    latest: Option<(usize, usize)>,
}

/// A packet that has reached a host.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    /// The host.
    pub(super) to: Host,
    /// Number of times that the host had died by then.
    pub(super) life: u32,
    /// The source that it had.
    pub(super) from: SocketAddr,
    /// The number of the client whose call it is about, where that is known.
    pub(super) owner: Option<u32>,
    /// The datagram.
    pub(super) bytes: Vec<u8>,
    /// The host had not the keys for it then, or its clock was wrong: to it the packet is lost, and
    /// may be news later. Of an answer of who has no key, that no call went by it.
    pub(super) is_unread: bool,
}

/// Largest permitted effect of a stranger's datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// The effect of the same datagram from its own sender.
    Anything,
    /// It may be counted, and does nothing else.
    Counted,
    /// Nothing.
    Ignored,
}

impl PacketKind {
    /// The type of a packet; `None` of what has not even that.
    pub(super) fn of(transport: Transport, bytes: &[u8]) -> Option<Self> {
        if matches!(transport, Transport::Homa(_)) {
            return Self::of_homa(bytes);
        }
        let is_hop = bytes.get(VERSION_AT) == Some(&HOP_VERSION);
        let is_coalesced = bytes.get(VERSION_AT) == Some(&COALESCED_VERSION);
        Some(match MessageType::from_byte(*bytes.get(TYPE_AT)?)? {
            MessageType::Request | MessageType::ReplyAck if is_coalesced => Self::RequestCoalesced,
            MessageType::Response | MessageType::Drop if is_coalesced => Self::ReplyCoalesced,
            MessageType::Request => Self::Request,
            MessageType::Response => Self::Response,
            MessageType::Feedback => Self::Feedback,
            MessageType::Ack if is_hop && bytes.get(RPC_ID_AT..RPC_ID_AT + 8) == Some(&[0; 8]) => {
                Self::HopAck
            }
            MessageType::Ack if is_hop => Self::TellName,
            MessageType::Ack => Self::Ack,
            MessageType::Drop if is_answer(transport, bytes) => Self::NoKey,
            MessageType::Drop if is_hop => Self::HopDrop,
            MessageType::Drop => Self::Drop,
            MessageType::Claimed => Self::Claimed,
            MessageType::ReplyAck => Self::ReplyAck,
            MessageType::Cancel => Self::Cancel,
            MessageType::Probe if is_hop && names_nobody(bytes) => Self::NameProbe,
            MessageType::Probe => Self::Probe,
            MessageType::Claim => Self::Claim,
        })
    }
}

impl PacketKind {
    /// The type of a packet of Homa.
    pub(super) fn of_homa(bytes: &[u8]) -> Option<Self> {
        let (common, kind) = homa::sealed::header(bytes)?;
        let is_request = common.sender_id.get() & 1 == 0;
        Some(match kind {
            PacketType::Data if is_request => Self::HomaRequest,
            PacketType::Data => Self::HomaReply,
            PacketType::Grant => Self::HomaGrant,
            PacketType::Resend if is_request && common.reserved[1..] == [0; 2] => {
                Self::HomaQuestion
            }
            PacketType::Resend => Self::HomaResend,
            PacketType::RpcUnknown if common.reserved[0] == RESET_MARK => Self::NoKey,
            PacketType::RpcUnknown => Self::HomaUnknown,
            PacketType::Busy => Self::HomaBusy,
            PacketType::Cutoffs => Self::HomaCutoffs,
            PacketType::NeedAck => Self::HomaNeedAck,
            PacketType::Ack => Self::HomaAck,
            PacketType::Freeze | PacketType::Cookie => return None,
        })
    }

    /// True if it may be for a client.
    pub(super) fn is_for_client(self) -> bool {
        matches!(
            self,
            Self::Response
                | Self::ReplyCoalesced
                | Self::Ack
                | Self::Drop
                | Self::HopDrop
                | Self::NoKey
                | Self::TellName
        )
    }
}

/// True of what has the form of an answer of who has no key.
pub(super) fn is_answer(transport: Transport, bytes: &[u8]) -> bool {
    match transport {
        Transport::R2p2 => {
            bytes.len() == ANSWER_LEN && bytes.get(VERSION_AT) == Some(&RESET_VERSION)
        }
        Transport::Homa(_) => {
            bytes.len() == HOMA_ANSWER_LEN && PacketKind::of_homa(bytes) == Some(PacketKind::NoKey)
        }
    }
}

/// True of what may be answered so: a request that is no shorter than the answer.
pub(super) fn may_be_answered(is_homa: bool, bytes: &[u8]) -> bool {
    match is_homa {
        false => {
            let kind = bytes.get(TYPE_AT).and_then(|&byte| MessageType::from_byte(byte));
            bytes.len() >= ANSWER_LEN
                && kind == Some(MessageType::Request)
                && matches!(bytes[VERSION_AT], SEALED_VERSION | COALESCED_VERSION)
        }
        true => {
            let of_client = homa::sealed::header(bytes).filter(|(common, _)| {
                // Not of a call that the server has begun.
                common.sender_id.get() & 1 == 0 && common.reserved[2] == 0
            });
            bytes.len() >= HOMA_ANSWER_LEN
                && is_marked(bytes)
                && matches!(of_client, Some((_, PacketType::Data | PacketType::Resend)))
        }
    }
}

/// True if a packet for one hop has no receiver.
fn names_nobody(bytes: &[u8]) -> bool {
    Trailer::ref_from_suffix(bytes).is_ok_and(|(_, trailer)| trailer.names().1 == 0)
}

impl Recorder {
    /// Nothing of this transport has been recorded yet.
    pub(super) fn new(transport: Transport) -> Self {
        Self { transport, packets: Default::default(), count: 0, latest: None }
    }

    /// A packet has reached a host. Some are kept from the beginning on, others make room.
    pub(super) fn note(
        &mut self,
        (to, life): (Host, u32),
        (from, owner): (SocketAddr, Option<u32>),
        bytes: &[u8],
    ) {
        self.latest = None;
        let Some(kind) = PacketKind::of(self.transport, bytes) else { return };
        self.count += 1;
        let bytes = bytes.to_vec();
        let recorded = Recorded { to, life, from, owner, bytes, is_unread: false };
        let packets = &mut self.packets[kind as usize];
        let place = match packets.len() {
            len if len < RECORDED_MAX => len,
            _ => mixed(self.count) as usize % (4 * RECORDED_MAX),
        };
        if place < RECORDED_MAX {
            self.latest = Some((kind as usize, place));
            match packets.get_mut(place) {
                Some(packet) => *packet = recorded,
                None => packets.push(recorded),
            }
        }
    }

    /// The host has dropped the last one for want of keys.
    pub(super) fn note_unread(&mut self) {
        if let Some((kind, place)) = self.latest.take() {
            self.packets[kind][place].is_unread = true;
        }
    }

    /// One that was recorded; types take turns by `count`, and every eighth is an answer of who has
    /// no key, where there are any.
    pub(super) fn pick(&self, count: u64, word: u64) -> Option<&Recorded> {
        let answers = &self.packets[PacketKind::NoKey as usize];
        if word >> 60 & 7 == 0 && !answers.is_empty() {
            return answers.get(word as usize % answers.len());
        }
        // These have no turn of their own, since there are few.
        let kinds = self.packets.len() - 1;
        let begin = count as usize % kinds;
        let mut found = (0..kinds).map(|step| &self.packets[(begin + step) % kinds]);
        let packets = found.find(|packets| !packets.is_empty())?;
        packets.get(word as usize % packets.len())
    }
}

/// A word of which each bit depends on each of another one (splitmix64).
pub(super) fn mixed(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Bytes of an answer of who has no key.
const ANSWER_LEN: usize = EXTENDED_LEN + 1 + TRAILER_LEN;
/// Bytes of an answer of who has no key, over Homa.
const HOMA_ANSWER_LEN: usize = COMMON_LEN + TRAILER_LEN;

/// Packets of a type that are kept.
const RECORDED_MAX: usize = 96;

/// Place of the type in a packet.
pub(super) const TYPE_AT: usize = 2;
/// Place of the id in a packet.
pub(super) const RPC_ID_AT: usize = 8;
