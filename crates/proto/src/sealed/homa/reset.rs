//! Answers to packets of Homa of whose epoch a server has no key, as of R2P2: an RPC_UNKNOWN under
//! a mark of its own.
//!
//! | bytes | are |
//! |---|---|
//! | 0 to 27 | RPC_UNKNOWN for the RPC, with [`RESET_MARK`] and the reason |
//! | 28 to 35 | the name of who answers |
//! | 36 to 43 | pass and count of the packet, as it has them |
//! | 44 to 51 | client's number, epoch and beginning of the session, as the packet has them |
//! | 52 to 59 | SipHash-2-4 of all before, under the client's reset key |

use tailcut_wire::homa::sealed::{MARK_AT, REASON_AT, RESET_MARK, header};
use tailcut_wire::homa::{COMMON_LEN, CommonHeader, PacketType, Ports};
use tailcut_wire::r2p2::DropReason;
use tailcut_wire::r2p2::sealed::{TRAILER_LEN, Trailer};
use zerocopy::{FromBytes, IntoBytes};

use super::super::keys::{HopKey, Keys};
use super::super::limits::{HOMA_ANSWER_LEN, NoKey};
use super::super::names::Names;
use super::super::packet::{hop_names, hop_trailer};
use super::super::reset::{Answers, is_genuine, put_tag};
use super::packet::{self, Glance};
use crate::node::Time;

impl Answers<HOMA_ANSWER_LEN> {
    /// Answers a packet of an epoch that is not accepted, if it is a client's and waits for
    /// something, under the group's keys and in the name of this server. True if it did.
    #[cold]
    pub(in super::super) fn answer(
        &mut self,
        now: Time,
        (keys, own): (&Keys, u64),
        (seen, bytes): (&Glance, &[u8]),
    ) -> bool {
        let is_request = matches!(seen.kind, PacketType::Data | PacketType::Resend)
            && seen.is_from_client()
            && !seen.is_back;
        let may_be_answered = is_request && bytes.len() >= HOMA_ANSWER_LEN;
        let write = |key: &HopKey, reason| answer(key, own, reason, (seen, bytes));
        self.answer_by(now, (keys, &seen.trailer), may_be_answered, write)
    }
}

/// The trailer of an answer, and the RPC.
pub(super) fn named(bytes: &[u8]) -> Option<(Trailer, u64)> {
    let (common, _) = header(bytes)?;
    let (_, trailer) = Trailer::ref_from_suffix(bytes).ok()?;
    Some((*trailer, common.sender_id.get()))
}

/// Opens an answer; `None` if it is forged.
pub(super) fn open(bytes: &mut [u8], key: &HopKey) -> Option<NoKey> {
    let (trailer, _) = named(bytes)?;
    let is_new = bytes[REASON_AT] == DropReason::NoKey as u8;
    if !is_genuine(bytes, key) {
        return None;
    }
    bytes[MARK_AT..=REASON_AT].fill(0);
    Some(NoKey { epoch: trailer.epoch, is_new })
}

/// The count of the packet that an answer is to.
pub(super) fn count_of(trailer: &Trailer) -> u64 {
    packet::count_of(hop_names(trailer).receiver)
}

/// The answer to a packet.
fn answer(
    key: &HopKey,
    own: u64,
    reason: DropReason,
    (seen, bytes): (&Glance, &[u8]),
) -> [u8; HOMA_ANSWER_LEN] {
    let (common, _) = header(bytes).expect("a packet has a header");
    let Ports { source, destination } = common.ports();
    let ports = Ports { source: destination, destination: source };
    let mut answer = [0; HOMA_ANSWER_LEN];
    answer[..COMMON_LEN]
        .copy_from_slice(CommonHeader::new(PacketType::RpcUnknown, ports, seen.id ^ 1).as_bytes());
    (answer[MARK_AT], answer[REASON_AT]) = (RESET_MARK, reason as u8);
    let names = Names { receiver: seen.trailer.hop.get(), sender: own };
    let mut trailer = hop_trailer(names, seen.trailer.epoch, 0);
    (trailer.high, trailer.low) = (seen.trailer.high, seen.trailer.low);
    answer[HOMA_ANSWER_LEN - TRAILER_LEN..].copy_from_slice(trailer.as_bytes());
    put_tag(&mut answer, key);
    answer
}
