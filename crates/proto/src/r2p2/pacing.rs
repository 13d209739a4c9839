//! Pacing of a client's calls to a target that refuses for overload: it keeps a time between its
//! calls, and tries a few of them again, of those that may run more than once.
//!
//! | a call is | event | then |
//! |---|---|---|
//! | new | its target has refused lately, and the next turn comes soon | waits for its turn |
//! | new | the next turn comes too late for its deadline | refused here, and nothing is sent |
//! | waiting | its turn comes | sent |
//! | waiting | another copy of it is refused | goes on waiting |
//! | sent | refused for overload, and it is idempotent, while the budget and the deadline have room | waits |
//! | sent | refused otherwise | ended, with the time to stay away |
//!
//! A call that is held by a router has been sent, and hears of it: it asks again when it should
//! have been placed and answered.
//!
//! The time between two calls is a `Pace`.
//!
//! Invariant: of n calls at most [`RETRIES_PERMILLE`] thousandths are tried again, so that retries
//! never are what keeps a target overloaded.

use tailcut_wire::r2p2::{DropReason, ReplyHeader};

use super::alternates::ASK_NS;
use super::client::{Client, Recovery};
use super::copies::CopyState;
use super::pace::{Start, WAIT_DIVISOR};
use super::shared::Shared;
use crate::node::{Path, Time};
use crate::peer::table::PeerId;
use crate::rpc::Failure;
use tailcut_placement::slab::SlotId;

impl Client {
    /// A call begins: true if it goes at once. Otherwise its timer has been set.
    pub(super) fn starts_now(&mut self, now: Time, index: SlotId, shared: &mut Shared) -> bool {
        self.retry_credit.earn(RETRIES_PERMILLE);
        let slot = &mut self.slots[index];
        slot.start = Start::Now;
        slot.retry_after_ns = 0;
        let pace = &mut self.servers[slot.target.record].state.pace;
        // Who goes at once takes a turn too, so that the next call keeps its distance.
        let Some(at) = pace.turn(now).filter(|&at| at > now) else {
            pace.take(now);
            return true;
        };
        let left_ns = slot.deadline.saturating_sub(now);
        // A copy would be one request more for a target that refuses some.
        slot.copy = CopyState::Absent;
        if at - now <= pace.wait_ns_max(left_ns) {
            pace.take(at);
            slot.start = Start::Waiting;
            slot.recovery.retry_at = at;
            shared.metrics.paced += 1;
        } else {
            // By its timer, not at once: the caller must have its id before the event that ends it.
            slot.start = Start::Refused;
            slot.retry_after_ns = at - now;
            slot.recovery.retry_at = now;
            shared.metrics.withheld += 1;
        }
        self.arm(index);
        false
    }

    /// The timer of a call that has not been sent: its turn, or its end.
    pub(super) fn start(&mut self, now: Time, index: SlotId, shared: &mut Shared) {
        let slot = &mut self.slots[index];
        if slot.start == Start::Refused {
            shared.metrics.refused += 1;
            return self.fail(index, Failure::Refused(DropReason::Overload), shared);
        }
        slot.start = Start::Now;
        self.queue_data(index);
        self.arm_retry(now, index, &shared.config);
    }

    /// A call is refused with this header: true if it is to be tried again.
    pub(super) fn tries_again(
        &mut self,
        now: Time,
        index: SlotId,
        (header, reason): (&ReplyHeader, DropReason),
        shared: &mut Shared,
    ) -> bool {
        let told_ns = u64::from(header.detail.get());
        let slot = &mut self.slots[index];
        let target = slot.target.record;
        slot.retry_after_ns = told_ns;
        // A record that newcomers share is nobody's.
        if told_ns == 0 || !shared.config.is_paced || target == PeerId::default() {
            return false;
        }
        let draw = self.draws.word();
        let pace = &mut self.servers[target].state.pace;
        pace.slow_down(now, told_ns, draw);
        let at = pace.next_at;
        let left_ns = slot.deadline.saturating_sub(now);
        // What may run once is for the caller to try again, who knows whether it may.
        let is_possible = reason == DropReason::Overload
            && slot.options.idempotent
            && !slot.reply.is_begun()
            && at - now <= left_ns / WAIT_DIVISOR
            // Last: what cannot be tried again takes nothing of the budget.
            && self.retry_credit.spend();
        if !is_possible {
            return false;
        }
        pace.take(at);
        // It keeps its id: another copy may be under way, whose reply is as good.
        slot.server = None;
        slot.is_unscheduled = false;
        slot.copy = CopyState::Absent;
        slot.request.restart();
        // As for the first time: of what may run twice nobody asks how old it is.
        slot.recovery = Recovery::default();
        slot.recovery.retry_at = at;
        slot.start = Start::Waiting;
        shared.metrics.retried += 1;
        self.arm(index);
        true
    }

    /// A router says that it holds a call, which then need not ask again for so long.
    pub(super) fn note_held(
        &mut self,
        now: Time,
        index: SlotId,
        (path, header): (&Path, &ReplyHeader),
        shared: &mut Shared,
    ) {
        let slot = &self.slots[index];
        // A router behind the target may hold it as well.
        if !slot.may_be_answered_by(path.peer) || slot.start != Start::Now {
            shared.metrics.protocol_violation += 1;
            return;
        }
        self.learn(now, index, path, header, shared);
        let slot = &mut self.slots[index];
        if slot.server.is_some() || slot.reply.is_begun() {
            // It has been placed meanwhile.
            return;
        }
        shared.metrics.told_held += 1;
        let target = &self.servers[slot.target.record].state;
        let timeout_ns = target.reply.timeout_ns(shared.config.timeouts(), 0);
        let told_ns = u64::from(header.detail.get()).min(HELD_NS_MAX);
        // What a router expects is wrong while its servers are paused: then nobody knows better
        // than that what has lasted for so long goes on as long.
        let waited_ns = match slot.recovery.first_sent_at {
            0 => 0,
            first_sent_at => now.saturating_sub(first_sent_at),
        };
        // While there is time for it, it asks at least twice more.
        let left_ns = slot.deadline.saturating_sub(now);
        let waited_ns = waited_ns.min(HELD_AGAIN_NS_MAX).min(left_ns / 4);
        let patience_ns = told_ns.max(waited_ns) + timeout_ns;
        // Its target is to show that it is still there, where the call may leave it.
        let is_free = shared.config.alternates.len() > 1;
        let wait_ns = if is_free { patience_ns.min(ASK_NS) } else { patience_ns };
        // It is a sign of life, after which timeouts begin to double anew.
        slot.recovery.attempt = 0;
        slot.recovery.retry_at = now.saturating_add(wait_ns);
        self.arm(index);
    }

    /// A target has answered a call.
    #[inline]
    pub(super) fn speed_up(&mut self, index: SlotId) {
        self.servers[self.slots[index].target.record].state.pace.speed_up();
    }
}

/// Longest that a held call waits, besides the time for an answer, before it asks again: who held
/// it may have gone, and what it was placed by may be lost.
const HELD_NS_MAX: u64 = 30_000_000;
/// A call that is held asks again at least so often, in case that its reply was lost.
const HELD_AGAIN_NS_MAX: u64 = 100_000_000;

/// Calls that are tried again, in thousandths: the budget of gRPC, Envoy and Finagle, within a
/// factor of two.
const RETRIES_PERMILLE: u16 = 100;
