//! Answers to requests of whose epoch a node has no key.
//!
//! | a request under an epoch | then |
//! |---|---|
//! | that the node does not have | answered: [`DropReason::NoKey`], nothing has run at this node since its start |
//! | that it has, and does not accept | answered: [`DropReason::Uncertain`] |
//! | either, without a reset secret, or more often than 1,000 times a second | counted |
//!
//! | such an answer is, at a client | then |
//! |---|---|
//! | not under its reset key, or of no session of its own | counted, dropped |
//! | genuine | the epoch is left alone for a while: the call goes again under another one, or ends |
//!
//! Invariant: an answer is no longer than the request, costs two SipHashes, and is remembered by
//! nobody. It names the packet that it answers, and who answers.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use tailcut_wire::r2p2::sealed::{RESET_VERSION, Trailer, VERSION_AT};
use tailcut_wire::r2p2::{
    DropReason, EXTENDED_LEN, EXTENSION_VERSION, MessageType, ReplyRepr, RpcId,
};
use zerocopy::{FromBytes, IntoBytes};

use super::keys::{HopKey, Keys};
use super::limits::{ANSWER_LEN, NoKey};
use super::names::Names;
use super::packet::{CLOCK_AT, COUNT_AT, Glance, hop_trailer};
use super::primitives::are_equal;
use super::wall_clock::WallClock;
use crate::node::Time;

/// A node's answers, of so many bytes.
#[derive(Debug, Default)]
pub(super) struct Answers<const LEN: usize> {
    /// Time at which the next one may go, if none were saved up.
    free_at: Time,
    /// The answer to the packet that came last.
    latest: Option<[u8; LEN]>,
    /// The epoch that was answered last.
    epoch: u8,
}

/// Epochs of which servers had no key just now.
#[derive(Debug, Default)]
pub(super) struct Avoided {
    /// Until when each is left alone.
    until: Vec<(u8, Time)>,
    /// Answer that the last packet told, until it is taken.
    told: Option<NoKey>,
    /// The epoch that was told last.
    epoch: u8,
}

impl Answers<ANSWER_LEN> {
    /// Answers a packet of R2P2 of an epoch that is not accepted, if it is a request, under the
    /// group's keys and in the name of this node. True if it did.
    #[cold]
    pub(super) fn answer(
        &mut self,
        now: Time,
        (keys, own): (&Keys, u64),
        (seen, bytes): (&Glance, &[u8]),
    ) -> bool {
        let is_request = seen.is_sealed && seen.kind == MessageType::Request;
        let may_be_answered = is_request && bytes.len() >= ANSWER_LEN;
        let write = |key: &HopKey, reason| answer(key, own, reason, (seen, bytes));
        self.answer_by(now, (keys, &seen.trailer), may_be_answered, write)
    }
}

impl<const LEN: usize> Answers<LEN> {
    /// Answers a packet with this trailer by what `write` makes of its client's reset key and the
    /// reason, if it `may_be_answered`. True if it did.
    pub(super) fn answer_by(
        &mut self,
        now: Time,
        (keys, trailer): (&Keys, &Trailer),
        may_be_answered: bool,
        write: impl FnOnce(&HopKey, DropReason) -> [u8; LEN],
    ) -> bool {
        self.latest = None;
        let Some(secret) = &keys.reset else { return false };
        let is_due = self.free_at <= now.saturating_add(SAVED_NS);
        if !may_be_answered || !is_due {
            return false;
        }
        self.free_at = self.free_at.max(now) + INTERVAL_NS;
        self.epoch = trailer.epoch;
        let reason = match keys.place_of(self.epoch) {
            None => DropReason::NoKey,
            Some(_) => DropReason::Uncertain,
        };
        self.latest = Some(write(&secret.of_client(trailer.client()), reason));
        true
    }

    /// The answer to the packet that came last, if there is one.
    pub(super) fn take(&mut self) -> Option<[u8; LEN]> {
        self.latest.take()
    }

    /// The epoch that was answered last.
    pub(super) fn epoch(&self) -> u8 {
        self.epoch
    }
}

impl Avoided {
    /// The place of the key under which sessions begin: the current one, or the one before while
    /// that is left alone.
    pub(super) fn place(&self, (now, clock): (Time, WallClock), keys: &Keys) -> usize {
        let current = keys.current(clock.ms(now));
        let is_free = |at: &usize| !self.has(now, keys.epochs[*at].epoch);
        let before = (current > 0).then(|| current - 1);
        [current].into_iter().chain(before).find(is_free).unwrap_or(current)
    }

    /// Leaves an epoch alone for a while.
    pub(super) fn add(&mut self, now: Time, avoided: u8) {
        self.until.retain(|&(epoch, until)| until > now && epoch != avoided);
        self.until.push((avoided, now.saturating_add(AVOIDED_NS)));
        self.epoch = avoided;
    }

    /// True where sessions begin again under an epoch that has been left alone.
    pub(super) fn tries_again(&mut self, now: Time, epoch: u8) -> bool {
        let is_over = |&(avoided, until): &(u8, Time)| avoided == epoch && until <= now;
        let tries_again = self.until.iter().any(is_over);
        self.until.retain(|avoided| !is_over(avoided));
        tries_again
    }

    /// Drops what an earlier packet has told: it is of no other.
    pub(super) fn evict_told(&mut self) {
        self.told = None;
    }

    /// A genuine answer has told this.
    pub(super) fn tell(&mut self, told: NoKey) {
        self.told = Some(told);
    }

    /// True if an epoch is left alone.
    pub(super) fn has(&self, now: Time, epoch: u8) -> bool {
        self.until.iter().any(|&(avoided, until)| avoided == epoch && until > now)
    }

    /// True if sessions can begin under a key that is not left alone.
    pub(super) fn leaves_one(&self, at: (Time, WallClock), keys: &Keys) -> bool {
        !self.has(at.0, keys.epochs[self.place(at, keys)].epoch)
    }

    /// Takes the answer that the last packet has told.
    pub(super) fn take(&mut self) -> Option<NoKey> {
        self.told.take()
    }

    /// The epoch that was told last.
    pub(super) fn epoch(&self) -> u8 {
        self.epoch
    }
}

/// True if a datagram says that it is an answer.
pub(super) fn is_answer(bytes: &[u8]) -> bool {
    bytes.len() == ANSWER_LEN && bytes[VERSION_AT] == RESET_VERSION
}

/// Opens an answer, of which `seen` has been read; `None` if it is forged.
pub(super) fn open(bytes: &mut [u8], key: &HopKey) -> Option<NoKey> {
    let (_, trailer) = Trailer::ref_from_suffix(bytes).ok()?;
    let reason = DropReason::from_payload(&bytes[EXTENDED_LEN..]);
    let told = NoKey { epoch: trailer.epoch, is_new: reason == DropReason::NoKey };
    if !is_genuine(bytes, key) {
        return None;
    }
    bytes[VERSION_AT] = EXTENSION_VERSION;
    bytes[COUNT_AT..COUNT_AT + 2].fill(0);
    Some(told)
}

/// The answer to a request.
fn answer(
    key: &HopKey,
    own: u64,
    reason: DropReason,
    (seen, bytes): (&Glance, &[u8]),
) -> [u8; ANSWER_LEN] {
    let word = |at: usize| *bytes[at..].first_chunk().expect("a header is longer");
    let repr = ReplyRepr {
        clock_echo_us: u32::from_be_bytes(word(CLOCK_AT)),
        ..ReplyRepr::control(MessageType::Drop, seen.rid, RpcId(seen.rpc_id))
    };
    let mut answer = [0; ANSWER_LEN];
    repr.emit(&mut answer[..EXTENDED_LEN + 1]).copy_from_slice(&[reason as u8]);
    answer[VERSION_AT] = RESET_VERSION;
    answer[COUNT_AT..COUNT_AT + 2].copy_from_slice(&bytes[COUNT_AT..COUNT_AT + 2]);
    let mut trailer = hop_trailer(Names { receiver: 0, sender: own }, seen.trailer.epoch, 0);
    (trailer.high, trailer.low) = (seen.trailer.high, seen.trailer.low);
    answer[EXTENDED_LEN + 1..].copy_from_slice(trailer.as_bytes());
    put_tag(&mut answer, key);
    answer
}

/// Writes the tag at the end of an answer.
pub(super) fn put_tag(answer: &mut [u8], key: &HopKey) {
    let (rest, tag) = answer.split_at_mut(answer.len() - TAG_LEN);
    tag.copy_from_slice(&tag_of(rest, key));
}

/// True if an answer, which is longer than its tag, has been written by who has this key.
pub(super) fn is_genuine(answer: &[u8], key: &HopKey) -> bool {
    let (rest, tag) = answer.split_at(answer.len() - TAG_LEN);
    are_equal(&tag_of(rest, key), tag)
}

/// SipHash-2-4 of all before it.
fn tag_of(rest: &[u8], key: &HopKey) -> [u8; TAG_LEN] {
    let mut hasher = SipHasher24::new_with_key(key.bytes());
    hasher.write(rest);
    hasher.finish().to_be_bytes()
}

/// Bytes of the tag.
const TAG_LEN: usize = 8;

/// Between two answers of a node, and how many may go at once where none went for long: strangers'
/// requests are answered no faster.
const INTERVAL_NS: u64 = 1_000_000;
const SAVED_NS: u64 = 31 * INTERVAL_NS;

/// For how long a client leaves an epoch alone: its servers have had their newer keys by then.
const AVOIDED_NS: u64 = 5_000_000_000;
