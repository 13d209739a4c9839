//! The client's share in cloning: a second copy of a call, and what follows from two answers.
//!
//! | a copy is | event | then |
//! |---|---|---|
//! | none | the call is idempotent, and copies go always | wanted at once |
//! | none | the call is idempotent, and calls are hedged | due after the quantile of its target |
//! | due | its time comes, the budget has room, nobody waits at the servers | wanted |
//! | due | its time comes otherwise | none |
//! | wanted | packet 0 goes to another server, or to the router again | sent |
//! | sent | the first refusal comes | one is left: the call goes on |
//!
//! The first reply ends the call, so that the second finds none and is dropped. Where a router has
//! cloned the call, its reply says so by the clone mark.
//!
//! Invariant: of n calls that may be hedged, at most `budget_permille` thousandths are sent twice.

use tailcut_wire::r2p2::{CloneMark, Flags};

use super::client::{Client, End, Slot};
use super::config::{Cloning, Copies, Loser};
use super::copies::CopyState;
use super::shared::Shared;
use crate::gso_batch::GsoBatch;
use crate::node::{Path, Time};
use tailcut_placement::slab::SlotId;

impl Client {
    /// A call begins: decides whether it will have a copy.
    pub(super) fn plan_copy(&mut self, now: Time, index: SlotId, shared: &Shared) {
        let slot = &mut self.slots[index];
        slot.copy = CopyState::Absent;
        // It must not run twice, its peer knows no clone marks, or one server alone is to run it.
        if !slot.options.idempotent || slot.options.v1 || slot.options.fixed {
            return;
        }
        match shared.config.cloning.copies {
            Copies::Never => {}
            Copies::Always => self.want_copy(now, index, shared),
            Copies::Hedge(hedge) => {
                self.copy_credit.earn(hedge.budget_permille);
                let replies = &self.servers[slot.target.record].state.reply_times;
                slot.copy = match replies.time_ns() {
                    Some(delay_ns) => CopyState::Due(now.saturating_add(delay_ns)),
                    None => CopyState::Absent,
                };
            }
        }
    }

    /// The time of a copy has come.
    pub(super) fn send_due_copy(&mut self, now: Time, index: SlotId, shared: &mut Shared) {
        let slot = &mut self.slots[index];
        slot.copy = CopyState::Absent;
        // Who has answered for it already needs no competitor.
        if slot.server.is_some() || slot.reply.is_begun() {
            return;
        }
        // It would wait there, and be dropped.
        if self.servers[slot.target.record].state.waiting > 0 {
            shared.metrics.clones_withheld += 1;
        } else if self.copy_credit.spend() {
            self.want_copy(now, index, shared);
            self.queue_data(index);
        } else {
            shared.metrics.clones_over_budget += 1;
        }
    }

    fn want_copy(&mut self, now: Time, index: SlotId, shared: &Shared) {
        let target = self.slots[index].target.address;
        let servers = &shared.config.cloning.servers;
        let others = servers.iter().filter(|&&server| server != target);
        let address = match u32::try_from(others.clone().count()) {
            // A router places it on another server than the first.
            Ok(0) if servers.is_empty() => target,
            Ok(count @ 1..) => {
                let rank = self.draws.below(count) as usize;
                others.copied().nth(rank).unwrap_or(target)
            }
            // It is the only server.
            _ => return,
        };
        let party = self.party(now, address, shared);
        self.slots[index].copy = CopyState::Wanted(party);
    }

    /// Writes packet 0 of a call to the server of its copy; `false` when it did not fit.
    pub(super) fn write_copy(
        &mut self,
        now: Time,
        index: SlotId,
        batch: &mut GsoBatch,
        shared: &mut Shared,
    ) -> bool {
        let slot = &mut self.slots[index];
        let CopyState::Wanted(to) = slot.copy else { return true };
        let floor = self.numbering.floor_of(slot.rpc_id.session().0);
        let proof = self.servers[to.record].state.proof;
        let mark = match shared.config.cloning.copies {
            // No server discards it.
            Copies::Always => CloneMark::Original,
            Copies::Never | Copies::Hedge(_) => CloneMark::Copy,
        };
        let mut repr = slot.first_packet(now, (proof.token(), floor));
        repr.flags = Flags(repr.flags).with_clone_mark(mark).0;
        let payload = slot.request.segment(0);
        let Some(room) = batch.room(slot.ends(to.address), repr.header_len() + payload.len())
        else {
            return false;
        };
        repr.emit(room).copy_from_slice(payload);
        proof.tag(room);
        slot.copy = CopyState::Sent(to);
        // Two packets have gone: no demand for a cookie or a name shows now that it is nowhere.
        slot.recovery.is_again = true;
        shared.metrics.clones_sent += 1;
        true
    }

    /// A call is answered, or begins to be, by `path` under `mark`: learns from it, and tells the
    /// server of the other copy.
    #[inline]
    pub(super) fn note_answer(
        &mut self,
        now: Time,
        index: SlotId,
        (path, mark): (&Path, CloneMark),
        shared: &mut Shared,
    ) {
        let is_alone = matches!(self.slots[index].copy, CopyState::Absent);
        if is_alone && mark == CloneMark::Single && shared.config.cloning.copies == Copies::Never {
            return;
        }
        self.note_copied(now, index, (path, mark), shared);
    }

    /// As [`Client::note_answer`], of a call that has, or may have had, a copy.
    fn note_copied(
        &mut self,
        now: Time,
        index: SlotId,
        (path, mark): (&Path, CloneMark),
        shared: &mut Shared,
    ) {
        let slot = &self.slots[index];
        let Cloning { copies, loser, .. } = shared.config.cloning;
        if let Copies::Hedge(hedge) = copies {
            let replies = &mut self.servers[slot.target.record].state.reply_times;
            replies
                .sample(now.saturating_sub(slot.recovery.first_sent_at), hedge.quantile_permille);
        }
        let target = slot.target.address;
        let copied_to = match slot.copy {
            CopyState::Sent(party) => Some(party.address),
            _ => None,
        };
        let is_directly = copied_to.is_some_and(|copy| copy != target);
        // Where the copy went elsewhere the address tells, also if neither was marked as the copy.
        let has_copy_won = match copied_to {
            Some(copy) if is_directly => copy == path.peer,
            _ => mark == CloneMark::Copy,
        };
        shared.metrics.clones_won += u64::from(has_copy_won);
        if loser == Loser::Runs || copied_to.is_none() && mark == CloneMark::Single {
            return;
        }
        shared.metrics.clones_cancelled += 1;
        match copied_to.filter(|_| is_directly) {
            Some(copy) => {
                let to = if has_copy_won { target } else { copy };
                self.say(index, to, End::Cancelled(CloneMark::Single));
            }
            // The router knows where the other is. One that the client has asked for a copy may
            // have answered without a mark before the router heard of that.
            None => {
                let winner = if mark == CloneMark::Single { CloneMark::Original } else { mark };
                self.say(index, target, End::Cancelled(winner));
            }
        }
    }

    /// A server that is not the call's has something for it: another copy, which is not needed any
    /// more once the call has a server of its own. Whether it was that.
    pub(super) fn dismiss_other(&mut self, index: SlotId, path: &Path) -> bool {
        let slot = &self.slots[index];
        // Where packets or credit are waited for. What is whole runs to its end, as published.
        let is_long = slot.request.count() > 1 || slot.reply.is_begun();
        let is_other = slot.options.idempotent && is_long;
        if is_other {
            self.say(index, path.peer, End::Cancelled(CloneMark::Single));
        }
        is_other
    }
}

impl Slot {
    /// A call of two copies has been refused by one: the other goes on. Whether it was so.
    pub(super) fn forgive_refusal(&mut self) -> bool {
        let had_copy = matches!(self.copy, CopyState::Sent(_));
        if had_copy {
            self.copy = CopyState::Absent;
        }
        had_copy
    }
}
