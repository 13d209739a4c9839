//! Data that are asked for again: no more at once than the network holds. Many messages that lose
//! packets together, as those of an incast do, would lose them together again.
//!
//! | an RPC misses | then |
//! |---|---|
//! | all of a reply | RESEND for all, which the server answers with one packet and by what is granted |
//! | holes and the granted tail, and there is room | RESEND for each |
//! | the same, and what others have asked for is to come | it waits for that, in turn, or for the next silence |
//!
//! Invariant: what was asked for and has not come is within [`Recovery::asked_bytes_max`], but for
//! a single question, which may be for as much; after a silence, or a crowd's time, it counts as
//! lost, so that nobody keeps others from asking. Clients that have not shown their addresses have
//! no part in that: they are asked as it comes.

use std::collections::VecDeque;

use tailcut_wire::homa::RESEND_ALL;

use super::config::Recovery;
use super::slot::Slot;
use super::transmit::Control;
use super::{Endpoint, Phase};
use crate::node::Time;
use crate::work;
use tailcut_placement::slab::{SlotId, SlotKey};

/// Data asked for again, over all messages.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Bytes of it that have not come.
    bytes: u32,
    /// Time at which the first of them was asked for.
    since: Time,
    /// Time at which something was last asked for, or came.
    at: Time,
    /// RPCs that wait until they may ask, each once.
    waiting: VecDeque<SlotKey>,
}

impl Asked {
    /// True if `bytes` more may be asked for.
    fn has_room(&mut self, now: Time, bytes: u32, recovery: &Recovery) -> bool {
        let is_lost = now.saturating_sub(self.at) >= recovery.silence_min_ns
            || now.saturating_sub(self.since) >= recovery.crowding_ns_max;
        if is_lost {
            self.bytes = 0;
        }
        self.bytes == 0 || self.bytes.saturating_add(bytes) <= recovery.asked_bytes_max
    }

    fn add(&mut self, now: Time, bytes: u32) {
        if self.bytes == 0 {
            self.since = now;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.at = now;
    }
}

/// Ranges of a message that are missing.
struct Missing {
    /// First byte and bytes of each.
    ranges: [(u32, u32); ASKED_MAX],
    /// Number of ranges.
    count: usize,
    /// The last of them is the granted tail.
    has_tail: bool,
}

impl Missing {
    /// Ranges to be asked for of the message that an RPC receives, of no more than `bytes_max`.
    fn of(now: Time, slot: &Slot, (bytes_max, packet_len, gap_ns): (u32, u32, u64)) -> Self {
        let mut missing = Self { ranges: [(0, 0); ASKED_MAX], count: 0, has_tail: false };
        let since = slot.timing.progress_at.max(slot.timing.asked_at);
        let is_silent = now.saturating_sub(since) >= gap_ns;
        // A tail may be under way still. That of who waits for his turn was silent when he began
        // to, which set `asked_at`.
        let tail = slot.inc.message.tail().filter(|_| is_silent || slot.is_asking);
        // What is late and not lost goes twice: of that it shall be little, and of what is
        // lost, all in a few rounds.
        let tail_len_max = (TAIL_PACKETS << slot.inc.tails_asked.min(10)) * packet_len;
        let tail = tail.map(|(from, len)| (from, len.min(tail_len_max)));
        let gaps = slot.inc.message.gaps().map(|range| (range, false));
        let mut left = bytes_max;
        let ranges = gaps.chain(tail.map(|range| (range, true)));
        for (place, ((from, len), is_tail)) in missing.ranges.iter_mut().zip(ranges) {
            work::step(1);
            if left == 0 {
                break;
            }
            *place = (from, len.min(left));
            left -= len.min(left);
            missing.count += 1;
            missing.has_tail |= is_tail;
        }
        missing
    }

    fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges[..self.count]
    }

    fn bytes(&self) -> u32 {
        self.ranges().iter().map(|range| range.1).sum()
    }
}

impl Endpoint {
    /// Asks for what is missing of the message that an RPC receives, now or in its turn.
    pub(super) fn ask(&mut self, now: Time, index: SlotId) {
        let slot = &self.rpcs[index];
        if matches!(slot.phase, Phase::Calling(_)) {
            return self.ask_for(now, index, &[(0, RESEND_ALL)]);
        }
        let missing = self.missing_of(now, index);
        // What strangers leave out on purpose takes no turns, and so holds up nobody.
        let is_alone = missing.count == 0 || slot.phase.is_unvalidated_partial();
        if is_alone
            || self.asked.waiting.is_empty()
                && self.asked.has_room(now, missing.bytes(), &self.config.recovery)
        {
            return self.ask_for_missing(now, index, &missing);
        }
        let slot = &mut self.rpcs[index];
        slot.timing.asked_at = now;
        // Who finds no place asks again after the next silence.
        if !slot.is_asking && self.asked.waiting.len() < self.config.control_len_max {
            slot.is_asking = true;
            self.asked.waiting.push_back(self.rpcs.key(index));
        }
        // What was asked for may count as lost by now, and nothing that comes would tell those that
        // wait.
        self.let_ask(now);
    }

    /// Takes note that `bytes` of a message have come that were sent again, and lets those ask who
    /// wait for that.
    #[cold]
    pub(super) fn note_sent_again(&mut self, now: Time, index: SlotId, bytes: usize) {
        if !self.rpcs[index].phase.is_unvalidated_partial() {
            // What has counted as lost, and as nothing, may come all the same.
            self.asked.bytes = self.asked.bytes.saturating_sub(bytes as u32);
            self.asked.at = now;
            self.let_ask(now);
        }
    }

    /// Lets those ask who wait, the first of them first, as far as there is room.
    fn let_ask(&mut self, now: Time) {
        // There is seldom room for more, whatever else waits no more.
        for _ in 0..TURNS_MAX {
            let Some(&rpc) = self.asked.waiting.front() else { return };
            work::step(1);
            if let Some(index) = self.rpcs.at(rpc).filter(|&index| self.rpcs[index].is_asking) {
                let missing = self.missing_of(now, index);
                if !self.asked.has_room(now, missing.bytes(), &self.config.recovery) {
                    return;
                }
                self.ask_for_missing(now, index, &missing);
            }
            self.asked.waiting.pop_front();
        }
    }

    fn missing_of(&self, now: Time, index: SlotId) -> Missing {
        let recovery = &self.config.recovery;
        let limits =
            (recovery.asked_bytes_max, self.config.framing.scheduled_len, recovery.gap_ns_min);
        let slot = &self.rpcs[index];
        Missing::of(now, slot, if slot.is_receiving() { limits } else { (0, 0, 0) })
    }

    fn ask_for_missing(&mut self, now: Time, index: SlotId, missing: &Missing) {
        let slot = &mut self.rpcs[index];
        if missing.count > 0 && !slot.phase.is_unvalidated_partial() {
            self.asked.add(now, missing.bytes());
        }
        slot.is_asking = false;
        slot.inc.tails_asked += u32::from(missing.has_tail);
        let is_receiving = slot.is_receiving();
        self.metrics.gaps += u64::from(is_receiving && !slot.inc.message.ranges().is_empty());
        self.ask_for(now, index, missing.ranges());
    }

    fn ask_for(&mut self, now: Time, index: SlotId, ranges: &[(u32, u32)]) {
        let rpc = self.rpcs.key(index);
        let slot = &mut self.rpcs[index];
        slot.timing.asked_at = now;
        if !ranges.is_empty() {
            // What comes now may be what was asked for: that measures no round trip.
            slot.inc.probe = None;
            slot.timing.attempts = slot.timing.attempts.saturating_add(1);
            let (questions, since) = slot.timing.in_vain;
            slot.timing.in_vain =
                (questions.saturating_add(1), if questions == 0 { now } else { since });
        }
        // The hole is as old as the question, or it would be asked for again at once.
        if slot.inc.gap_since != 0 {
            slot.inc.gap_since = now.max(1);
        }
        for &(offset, length) in ranges {
            self.push_control(Control::Resend { rpc, offset, length });
        }
    }
}

/// Packets of the end of a message that are asked for first; twice as many each time that follows.
const TAIL_PACKETS: u32 = 16;

/// RPCs that wait and are looked at for each packet that comes, or each that asks.
const TURNS_MAX: usize = 4;

/// Ranges asked for at once.
const ASKED_MAX: usize = 8;
