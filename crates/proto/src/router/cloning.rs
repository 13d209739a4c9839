//! Requests at two servers: placed there by the policy, or because the client asks for a copy of
//! one that takes long.
//!
//! | a request is | event | then |
//! |---|---|---|
//! | new, idempotent | the policy names two servers | cloned: marked original and copy, one to each |
//! | new, marked by its client or by another router | the policy names two servers | placed on the first |
//! | placed | its id arrives marked as a copy, and a second server has room | cloned |
//! | placed, cloned | its id arrives marked as a copy otherwise | the copy is dropped |
//! | cloned | its id arrives again | forwarded to the first server; to the second if the first is out |
//! | cloned | cancelled | the cancel is forwarded to both servers |
//! | cloned | cancelled, marked with the copy that has answered | the cancel is forwarded to the other |
//!
//! A clone takes no place from a request that waits for one: what is held is placed uncloned while
//! more is held, and a copy that a client asks for goes where the policy's bound has room and where
//! the server reports that nobody waits.
//!
//! Invariant: a request that is not idempotent is never cloned, a cloned one has two different
//! servers, and none has a third.

use std::net::SocketAddr;

use tailcut_wire::r2p2::{CloneMark, Flags, RequestHeader};
use zerocopy::FromBytes;

use super::Router;
use super::arrival::{Arrival, Request};
use super::ids::{PlacementState, ServerKey};
use super::lane::Lane;
use crate::node::Time;
use crate::policy::WorkerId;
use crate::scheduler::{Cloning, Workers};

impl Arrival {
    /// True if it is the copy of a request that its client has sent before.
    pub(super) fn is_copy(&self) -> bool {
        self.is_idempotent && self.mark == CloneMark::Copy
    }

    /// Permission for the policy to clone it: one that may run once reaches one server, and what
    /// somebody has cloned is not cloned again.
    pub(super) fn cloning(&self) -> Cloning {
        match self.is_idempotent && self.mark == CloneMark::Single {
            true => Cloning::Allowed,
            false => Cloning::Forbidden,
        }
    }
}

impl Router {
    /// Sends a request to each server that it was placed on.
    pub(super) fn forward_to_each(&mut self, now: Time, workers: Workers, mut request: Request) {
        let mut others = workers.into_iter().skip(1);
        let first = workers.first();
        let Some(second) = others.next() else {
            return self.forward(now, first, request);
        };
        let arrival = request.arrival;
        let bytes = self.outbox.buffer(&request.bytes);
        set_mark(&mut request.bytes, CloneMark::Original);
        self.forward(now, first, request);
        if self.outbox.is_full() {
            self.metrics.outbox_full += 1;
            self.outbox.recycle(bytes);
            // Takes back what the scheduler has counted for the clone.
            return self.refresh(now, second);
        }
        self.forward_copy(now, (first, second), Request { arrival, bytes });
    }

    /// Sends a request that the first server has to the second too.
    fn forward_copy(
        &mut self,
        now: Time,
        (first, second): (WorkerId, WorkerId),
        mut request: Request,
    ) {
        let (Some(first), Some(key)) = (self.key_at(first), self.key_at(second)) else { return };
        set_mark(&mut request.bytes, CloneMark::Copy);
        // With its entry, `forward` would write this server over the first one.
        let entry = request.arrival.entry.take();
        self.forward(now, second, request);
        if let Some(entry) = entry {
            self.table.set(entry, PlacementState::Cloned(first, key));
        }
        self.metrics.cloned += 1;
    }

    /// Places the copy that a client sends of a request that is placed already.
    pub(super) fn place_copy(
        &mut self,
        now: Time,
        arrival: Arrival,
        state: PlacementState,
        bytes: &[u8],
    ) {
        let first = match state {
            PlacementState::Placed(key) if !self.is_closed => Some(key),
            _ => None,
        };
        let placed = first.and_then(|key| Some((key.slot, self.second_server(key)?)));
        match placed {
            Some(slots) => {
                let bytes = self.outbox.buffer(bytes);
                self.forward_copy(now, slots, Request { arrival, bytes });
            }
            None => self.metrics.clones_unplaced += 1,
        }
    }

    /// The server with the fewest outstanding besides `first`, if it has room and nobody waits
    /// there.
    fn second_server(&self, first: ServerKey) -> Option<WorkerId> {
        let scheduler = &self.queues[Lane::Extension];
        let bound = scheduler.bound().unwrap_or(u32::MAX);
        let weight = |slot: WorkerId| u32::from(scheduler.rank(slot).weight.get());
        let has_room = |&slot: &WorkerId| {
            let load = scheduler.load(slot);
            let limit = bound.saturating_mul(weight(slot));
            slot != first.slot && load.waiting == 0 && load.outstanding < limit
        };
        let others = self.fleet.slots().filter(has_room);
        others.min_by_key(|&slot| scheduler.load(slot).outstanding / weight(slot))
    }

    /// The server of a cloned request that another copy of it goes to.
    pub(super) fn either_of(&self, first: ServerKey, second: ServerKey) -> ServerKey {
        let answers = |key: ServerKey| self.fleet.of(key).is_some_and(|server| !server.is_silent);
        if !answers(first) && answers(second) { second } else { first }
    }

    /// Forwards the cancel of a request that is placed on one server or on two. `winner` marks the
    /// copy that has answered.
    pub(super) fn cancel_placed(
        &mut self,
        state: PlacementState,
        winner: CloneMark,
        (peer, bytes): (SocketAddr, &[u8]),
    ) {
        match (state, winner) {
            (PlacementState::Placed(key), CloneMark::Single) => {
                self.forward_cancel(key, peer, bytes);
            }
            (PlacementState::Cloned(first, second), CloneMark::Single) => {
                self.forward_cancel(first, peer, bytes);
                self.forward_cancel(second, peer, bytes);
            }
            (PlacementState::Cloned(first, second), winner) => {
                let has_copy_won = winner == CloneMark::Copy;
                self.metrics.clones_won += u64::from(has_copy_won);
                self.metrics.clones_cancelled += 1;
                self.forward_cancel(if has_copy_won { first } else { second }, peer, bytes);
            }
            _ => self.metrics.cancels_unknown += 1,
        }
    }

    fn key_at(&self, slot: WorkerId) -> Option<ServerKey> {
        self.fleet.get(slot).map(|server| server.key)
    }
}

/// Marks an extended request as one of two, or as the only one.
fn set_mark(bytes: &mut [u8], mark: CloneMark) {
    if let Ok((header, _)) = RequestHeader::mut_from_prefix(bytes) {
        header.flags = Flags(header.flags).with_clone_mark(mark).0;
    }
}
