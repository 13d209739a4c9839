//! Calls that leave their target for one that stands in for it, and what ends them where nobody
//! listens. Of a call that has moved its former ways have nothing to say any more.

use std::net::SocketAddr;

use tailcut_wire::r2p2::DropReason;

use super::client::{ATTEMPTS_BEFORE_ANOTHER, Client, Recovery};
use super::named::Named;
use super::pace::Start;
use super::servers::Proof;
use super::shared::Shared;
use crate::node::Time;
use crate::rpc::Failure;
use tailcut_placement::slab::SlotId;

impl Client {
    /// True if a refusal does not end the call: it is about a former way of a call that has moved,
    /// or the target takes no calls and another one stands in for it.
    pub(super) fn outlives(
        &mut self,
        now: Time,
        index: SlotId,
        (peer, reason): (SocketAddr, DropReason),
        shared: &mut Shared,
    ) -> bool {
        let slot = &self.slots[index];
        let is_target = slot.target.address == peer;
        if !is_target && self.alternates.has(peer) {
            // A former target refuses each copy that it had, and cannot know what becomes of it
            // now.
            return true;
        }
        if slot.moves.is_moved {
            // Nor can a server that is not the one which the claim found. Of a call that its first
            // target alone has had, under two names, there is no other.
            let is_last_word = is_target || !slot.moves.has_left;
            let is_told = slot.moves.is_renamed && is_last_word && reason == DropReason::Uncertain;
            return !is_of_application(reason) && !is_told;
        }
        if slot.options.v1
            || !is_target
            || !matches!(reason, DropReason::Stopping | DropReason::NoServer)
        {
            return false;
        }
        // It has not run, and does not: no more than a new call to the next.
        let is_sent_on = self.alternates.fail(now, peer);
        if is_sent_on {
            self.slots[index].recovery = Recovery::default();
            self.send_elsewhere(now, index, shared);
        }
        is_sent_on
    }

    /// Sends a call of which nobody has answered to the target that stands in for its own.
    pub(super) fn send_elsewhere(&mut self, now: Time, index: SlotId, shared: &mut Shared) {
        let former = self.slots[index].target;
        let target = self.party(now, self.alternates.choose(former.address), shared);
        self.servers[former.record].calls -= 1;
        self.servers[target.record].calls += 1;
        let is_local = self.servers.is_local(target.record, &target.address, &shared.config);
        let slot = &mut self.slots[index];
        (slot.target, slot.is_local) = (target, is_local);
        // Whoever has asked for a token there is not whom it is asked of now.
        (slot.server, slot.local) = (None, None);
        slot.moves.names = Named::default();
        slot.moves.is_moved |= !slot.options.idempotent && slot.recovery.first_sent_at != 0;
        slot.moves.has_left = true;
        slot.recovery.attempt = 0;
        slot.start = Start::Now;
        slot.request.restart();
        shared.metrics.moved += 1;
        self.queue_data(index);
        self.arm_retry(now, index, &shared.config);
    }

    /// True if the call leaves its target for another that stands in for it, rather than being sent
    /// there again.
    pub(super) fn leaves_target(&mut self, now: Time, index: SlotId) -> bool {
        let slot = &self.slots[index];
        let target = slot.target.address;
        let is_free = slot.server.is_none() && !slot.options.v1 && !slot.reply.is_begun();
        is_free
            && (self.alternates.choose(target) != target || self.alternates.ask(now, target))
            && self.alternates.choose(target) != target
    }

    /// Nothing listens at `peer`. Ends the calls that it was to answer where that does no harm: the
    /// idempotent ones, and all where it has never answered anything: it was hardly there. What
    /// a server behind a router was to answer is asked of the router again, if it may be.
    pub(super) fn handle_unreachable(&mut self, now: Time, peer: SocketAddr, shared: &mut Shared) {
        let has_stand_in = self.alternates.fail(now, peer);
        if !self.unreachable_look.may_look(now, self.slots.places()) {
            return;
        }
        for place in 0..self.slots.places() {
            let Some(index) = self.slots.at(place) else {
                continue;
            };
            if has_stand_in
                && self.slots[index].target.address == peer
                && self.leaves_target(now, index)
            {
                self.send_elsewhere(now, index, shared);
                continue;
            }
            let slot = &self.slots[index];
            let is_server = slot.server.is_some_and(|server| server.address == peer);
            let is_target = slot.target.address == peer;
            let known = &self.servers[slot.target.record].state;
            let is_stranger =
                slot.server.is_none() && known.proof == Proof::None && !known.reply.is_known();
            if slot.reply.is_begun() || !(slot.options.idempotent || is_stranger) {
                continue;
            }
            if is_target && (is_server || slot.server.is_none()) {
                shared.metrics.failed += 1;
                self.fail(index, Failure::Unreachable, shared);
            } else if is_server {
                self.slots[index].recovery.attempt = ATTEMPTS_BEFORE_ANOTHER;
                self.retry(now, index, shared);
            }
        }
    }
}

/// True for a refusal by the server that has the request, not by one that might have had it.
fn is_of_application(reason: DropReason) -> bool {
    match reason {
        DropReason::Application
        | DropReason::Panicked
        | DropReason::Unanswered
        | DropReason::TooLarge
        | DropReason::Unvalidated => true,
        DropReason::Unspecified
        | DropReason::Overload
        | DropReason::TooOld
        | DropReason::Expired
        | DropReason::NoServer
        | DropReason::Uncertain
        | DropReason::Stopping
        | DropReason::NoKey => false,
    }
}
