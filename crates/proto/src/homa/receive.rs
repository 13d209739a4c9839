//! DATA of a message, be it a request or a reply: reassembly, and what follows from it.

use tailcut_wire::homa::{DataFlags, DataHeader};

use super::peers::Echo;
use super::{Endpoint, Phase};
use crate::message::reassembly::Arrival;
use crate::node::Time;
use crate::peer::table::PeerId;
use tailcut_placement::slab::SlotId;

impl Endpoint {
    /// Begins the message that an RPC receives, at the first of its packets that comes.
    pub(super) fn begin_incoming(&mut self, index: SlotId, header: &DataHeader) {
        let birth = self.rpcs.next_birth();
        let longest = u32::try_from(self.config.message_len_max).unwrap_or(u32::MAX);
        let len = header.message_length.get().min(longest);
        let stored = len.min(self.config.framing.content_len_max);
        let buffer = self.buffers.take_to_fill(stored as usize);
        // The sender's word, up to what is taken of anybody without a grant.
        let unscheduled = header.incoming.get().min(self.config.unscheduled_len_max);
        let slot = &mut self.rpcs[index];
        slot.inc.begin(buffer, len, unscheduled, &self.config.framing);
        slot.inc.birth = birth;
        slot.inc.levels = 1 << self.advice.cutoffs.level(len);
        let (peer, expected) = (slot.peer, slot.inc.message.expected());
        self.expect_more(peer, expected);
        let pace = &mut self.peers[peer].state.pace;
        pace.owed += u64::from(len);
        pace.messages += 1;
    }

    /// True of a packet that is all of a message: it is taken as it is, without reassembly. Not of
    /// a part of a longer one, whose bytes count as held while it waits for the others.
    #[inline]
    pub(super) fn is_whole(&self, header: &DataHeader, payload: &[u8]) -> bool {
        let len = header.message_length.get();
        let unscheduled = header.incoming.get().min(self.config.unscheduled_len_max);
        payload.len() == len as usize
            && len <= unscheduled.min(self.config.framing.content_len_max)
            && len as usize <= self.config.message_len_max
            && !header.is_stripped()
            && !header.flags().has(DataFlags::PART)
    }

    /// Takes a message that is whole in the only packet that has come of it; see
    /// [`Endpoint::is_whole`].
    #[inline]
    pub(super) fn take_whole(
        &mut self,
        now: Time,
        index: SlotId,
        header: &DataHeader,
        payload: &[u8],
    ) -> Vec<u8> {
        let len = header.message_length.get();
        let slot = &mut self.rpcs[index];
        slot.timing.progress_at = now;
        slot.timing.attempts = 0;
        if header.retransmit == 0 {
            let level = self.advice.cutoffs.level(len);
            self.book.data_at[usize::from(level & 7)] = now;
        }
        let state = &mut self.peers[slot.peer].state;
        state.is_stripped = false;
        state.pace.note_bytes(now, len);
        self.book.pace.note_bytes(now, len, self.book.expected_bytes > 0);
        if self.advice.observe(now, len) {
            self.metrics.cutoffs_changed += 1;
        }
        let mut message = self.buffers.take_for(payload.len());
        if !header.flags().has(DataFlags::EMPTY) {
            message.extend_from_slice(payload);
        }
        message
    }

    /// Takes note that a peer may send `bytes` more.
    pub(super) fn expect_more(&mut self, peer: PeerId, bytes: u32) {
        self.book.expected_bytes += u64::from(bytes);
        self.peers[peer].state.pace.expected += u64::from(bytes);
    }

    /// Takes note that `bytes` that a peer might send have come, or are no longer wanted.
    pub(super) fn expect_less(&mut self, peer: PeerId, bytes: u32) {
        self.book.expected_bytes -= u64::from(bytes);
        self.peers[peer].state.pace.expected -= u64::from(bytes);
    }

    /// Takes the bytes of a packet; tells whether the message is complete.
    pub(super) fn accept(
        &mut self,
        now: Time,
        index: SlotId,
        header: &DataHeader,
        payload: &[u8],
    ) -> bool {
        self.peers[self.rpcs[index].peer].state.is_stripped = header.is_stripped();
        if header.is_stripped() {
            self.open_for_stripped(index);
        }
        let slot = &mut self.rpcs[index];
        let (arrival, new) = slot.inc.accept(
            header.offset(),
            header.message_length.get(),
            payload,
            &self.config.framing,
        );
        match arrival {
            Arrival::Refused => self.metrics.protocol_violation += 1,
            Arrival::Duplicate => self.metrics.duplicates += 1,
            Arrival::New | Arrival::Complete => {
                slot.timing.progress_at = now;
                if header.retransmit == 0 {
                    let level = slot.inc.level_of(header.offset(), &self.advice.cutoffs);
                    self.book.data_at[usize::from(level & 7)] = now;
                }
                let has_asked = std::mem::take(&mut slot.timing.attempts) > 0;
                let peer = slot.peer;
                self.expect_less(peer, new);
                let pace = &mut self.peers[peer].state.pace;
                pace.owed -= u64::from(new);
                pace.note_bytes(now, new);
                self.book.pace.note_bytes(now, new, self.book.expected_bytes > 0);
                self.sample_round_trip(now, index);
                if arrival == Arrival::New {
                    // The wait had doubled with each question, and is short again.
                    if has_asked {
                        self.arm(now, index);
                    }
                    self.watch_for_gaps(now, index);
                    if !header.is_stripped() {
                        self.grant_after(now, index);
                    }
                } else if new < header.message_length.get() {
                    self.note_complete();
                }
            }
        }
        // Duplicates too: whatever becomes of it, it is no longer under way.
        if header.retransmit != 0 {
            self.note_sent_again(now, index, payload.len());
        }
        arrival == Arrival::Complete
    }

    /// Takes what is stored of a complete message: all of it, unless its end is only counted.
    pub(super) fn take_message(&mut self, now: Time, index: SlotId, flags: DataFlags) -> Vec<u8> {
        self.unwant(index);
        let slot = &self.rpcs[index];
        let (peer, expected, len) =
            (slot.peer, slot.inc.message.expected(), slot.inc.message.len());
        self.expect_less(peer, expected);
        self.peers[peer].state.pace.messages -= 1;
        if self.advice.observe(now, len) {
            self.metrics.cutoffs_changed += 1;
        }
        let inc = &mut self.rpcs[index].inc;
        let mut payload = inc.end();
        self.buffers.give(inc.message.take_spare());
        if flags.has(DataFlags::EMPTY) {
            payload.clear();
        }
        payload
    }

    /// A peer that knows no grants sends all it has: as much is taken as is taken without a grant,
    /// beyond what has arrived.
    fn open_for_stripped(&mut self, index: SlotId) {
        let ahead = self.config.unscheduled_len_max;
        let slot = &mut self.rpcs[index];
        let more = slot.inc.message.grant(slot.inc.message.base().saturating_add(ahead));
        let (peer, is_receiving) = (slot.peer, matches!(slot.phase, Phase::Receiving(_)));
        self.expect_more(peer, more);
        if is_receiving {
            self.hold(index, more as usize);
        }
    }

    /// A round trip has passed when the first byte of a grant comes.
    fn sample_round_trip(&mut self, now: Time, index: SlotId) {
        let slot = &mut self.rpcs[index];
        if let Some((offset, at)) = slot.inc.probe
            && slot.inc.message.highest() > offset
        {
            slot.inc.probe = None;
            self.peers[slot.peer].state.times.rtt.sample(now - at);
            self.book.rtt.sample(now - at);
        }
    }

    /// Begins, goes on or ends to wait for what is missing below something that has come.
    fn watch_for_gaps(&mut self, now: Time, index: SlotId) {
        let slot = &mut self.rpcs[index];
        if slot.inc.message.ranges().is_empty() {
            slot.inc.gap_since = 0;
        } else if slot.inc.gap_since == 0 {
            slot.inc.gap_since = now.max(1);
            self.arm(now, index);
        }
    }

    /// Takes note of the version of the cutoffs in a packet, which says that the peer receives at
    /// its address, or that it must be told anew.
    pub(super) fn note_proof(&mut self, now: Time, index: SlotId, header: &DataHeader) {
        let version = self.advice.cutoffs.version;
        let slot = &mut self.rpcs[index];
        let peer = &mut self.peers[slot.peer];
        let echo = Echo::of(header);
        let is_known = header.flags().has(DataFlags::KNOWN);
        if echo == peer.echo(version) && (peer.is_validated || is_known) {
            slot.server.is_validated = true;
            return;
        }
        if !peer.is_validated && !is_known {
            peer.state.shown.proof.advance(echo, version);
        }
        slot.server.is_validated |= peer.is_validated_by(echo, version);
        let told = peer.echo(version);
        // The variant without grants knows no cutoffs, and echoes none.
        let is_stale = echo != told && !header.is_stripped();
        let is_late = peer.state.shown.advised.is_none_or(|(at, last)| {
            // Who is told the same again takes it for a demand to echo it, and sends a packet
            // again. Where nothing waits for the echo, what comes without it may have been under
            // way, or waited at the peer.
            let is_again = last == told && slot.server.is_validated;
            now.saturating_sub(at) >= if is_again { ADVICE_AGAIN_NS } else { ADVICE_NS_MIN }
        });
        if is_stale && is_late {
            self.advise(now, index);
        }
    }
}

/// A peer is told the cutoffs at most once in this time.
const ADVICE_NS_MIN: u64 = 1_000_000;

/// Time after which a peer that is validated has lost what it was told.
const ADVICE_AGAIN_NS: u64 = 100_000_000;
