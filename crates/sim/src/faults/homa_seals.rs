//! Sealed packets of Homa, as strangers see and change them.
//!
//! | a packet that was recorded, as it was | may |
//! |---|---|
//! | has been read by whom it was for | do nothing |
//! | has not been read there, for want of keys, since a session was not known, or as it names another server | do what it would have done |
//! | of a server, has reached another host than its client | do that at its client |
//! | asks who is there | be answered by any server |
//! | any other, elsewhere or after a restart | do nothing |

use std::borrow::Cow;

use tailcut_wire::homa::COMMON_LEN;
use tailcut_wire::homa::sealed::{BACK_AT, MARK_AT, NAMED_AT, SEALED_MARK, is_marked};
use tailcut_wire::r2p2::sealed::TRAILER_LEN;

use super::recorder::{Expected, PacketKind, Recorded, mixed};

/// The id of the RPC of a packet, as its client numbers it.
pub(super) fn rpc_of(bytes: &[u8]) -> Option<u64> {
    let id = bytes.get(ID_AT..)?.first_chunk()?;
    Some(u64::from_be_bytes(*id) & !1)
}

/// True if it is for a client: of a call of the client, what answers it, and of one back the call.
pub(super) fn is_for_client(bytes: &[u8]) -> bool {
    bytes.get(ID_AT + 7).is_some_and(|last| (last & 1 != 0) != (bytes[BACK_AT] == 1))
}

/// Permitted effect of a recorded packet that is sent to a host: `is_home` says that it was sent
/// there, and `number` is the client's there.
pub(super) fn expected_of(recorded: &Recorded, is_home: bool, number: Option<u32>) -> Expected {
    let is_read = is_home && !recorded.is_unread;
    let is_owner = recorded.owner.is_none_or(|owner| number == Some(owner));
    let may_act = match (is_for_client(&recorded.bytes), number) {
        (true, Some(_)) => !is_read && is_owner,
        (false, None) => {
            recorded.is_unread
                || PacketKind::of_homa(&recorded.bytes) == Some(PacketKind::HomaQuestion)
        }
        _ => false,
    };
    if may_act { Expected::Anything } else { Expected::Ignored }
}

/// Changes a packet in one of many ways.
pub(super) fn change(bytes: &mut Vec<u8>, word: u64, other: Option<&Recorded>) {
    let (len, noise) = (bytes.len(), mixed(word ^ 1));
    let mut flip = |at: usize| bytes[at % len] ^= 1 << (noise & 7);
    let place = (noise >> 8) as usize;
    match word >> 48 & 15 {
        0..4 => flip(place),
        4 => flip(place % COMMON_LEN),
        5 => flip(len - 1 - place % TRAILER_LEN),
        6 => bytes.truncate(len - 1 - place % len),
        7 => bytes.extend_from_slice(&noise.to_be_bytes()[..1 + place % 8]),
        8 => noisy(&mut bytes[len - TRAILER_LEN..][..16], noise),
        9 => bytes[MARK_AT] = [0, 1, 3, noise as u8][place % 4],
        10 => {
            // An open packet.
            bytes[MARK_AT..=BACK_AT].fill(0);
            bytes.truncate(len - TRAILER_LEN);
        }
        11 => {
            if let Some(other) = other {
                let from = other.bytes.len() - TRAILER_LEN;
                bytes[len - TRAILER_LEN..].copy_from_slice(&other.bytes[from..]);
            }
        }
        12 => bytes[ID_AT + 5 + place % 3] ^= noise as u8 | 1,
        13 => bytes[len - 16 + place % 3] ^= noise as u8 | 1,
        14 => bytes[if place & 1 == 0 { NAMED_AT } else { BACK_AT }] ^= 1,
        _ => {
            // Another count.
            let count = bytes.last_chunk_mut().expect("a trailer has one");
            *count = u64::from_be_bytes(*count).wrapping_add(1 + noise % 9).to_be_bytes();
        }
    }
}

/// Makes an answer of who has no key one to another packet, but for the trailer's end.
pub(super) fn turn_answer(packet: &[u8], answer: &mut [u8]) {
    answer[ID_AT..][..8].copy_from_slice(&packet[ID_AT..][..8]);
    answer[ID_AT + 7] ^= 1;
    let count_at = answer.len() - TRAILER_LEN + 8;
    answer[count_at..][..8].copy_from_slice(&packet[packet.len() - 8..]);
}

/// Puts what is meant for nodes without seals into the form of a sealed packet.
pub(super) fn dress(bytes: &mut Vec<u8>, noise: u64) {
    if bytes.len() > NAMED_AT {
        bytes[MARK_AT] = SEALED_MARK;
        bytes[NAMED_AT] = noise as u8 & 1;
        let at = bytes.len();
        bytes.resize(at + TRAILER_LEN, 0);
        noisy(&mut bytes[at..], noise);
        // The number of the first key.
        bytes[at + 19] = 0;
    }
}

/// A datagram as it would be if it were open; the payload of a sealed one is noise.
pub(super) fn shown(datagram: &[u8]) -> Cow<'_, [u8]> {
    if !is_marked(datagram) || datagram.len() < COMMON_LEN + TRAILER_LEN {
        return Cow::Borrowed(datagram);
    }
    let mut open = datagram[..datagram.len() - TRAILER_LEN].to_vec();
    open[MARK_AT..=BACK_AT].fill(0);
    Cow::Owned(open)
}

pub(super) fn noisy(bytes: &mut [u8], noise: u64) {
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = mixed(noise ^ at as u64) as u8;
    }
}

/// Place of the id in a packet.
const ID_AT: usize = 20;
