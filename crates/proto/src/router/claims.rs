//! Requests that a client has sent to another router before this one, and that may run once: this
//! router does not know where the other has placed them, so it asks the servers.
//!
//! | a request that has moved is | event | then |
//! |---|---|---|
//! | new, refused or held here | a server is in service | claimed for it: every other server is asked never to run it |
//! | new, refused or held here | a server was removed, or the router started, since it was first sent | refused: uncertain |
//! | claimed | all others have renounced it | placed on the chosen server |
//! | claimed | one has seen it | placed on that one, which answers what it has |
//! | claimed | one cannot tell | refused: uncertain |
//! | claimed | its id arrives again | who has not answered is asked again; uncertain if such a server has been removed |
//! | claimed | it is cancelled, or [`CLAIM_NS`] pass | released |
//!
//! The client drives it: nothing is asked again but when the request comes again. A server that is
//! silent may have run the request, so a claim waits for it, whatever that costs. One that has been
//! removed cannot be asked, and other routers may have placed there what was sent before.
//!
//! Invariant: a claim places a request on a server only if every other server has said that it
//! neither runs nor has run it, or if this one has said that it has it.

use std::collections::VecDeque;

use tailcut_wire::r2p2::{ClaimBody, DropReason, Flags, MessageType, Packet, RequestRepr, Verdict};
use zerocopy::IntoBytes;

use super::Router;
use super::arrival::{Arrival, Request};
use super::config::Speaks;
use super::ids::{PlacementState, ServerKey};
use super::outbox::Datagram;
use crate::node::{Path, Time};
use tailcut_placement::slab::{Slab, SlotId, SlotKey};

/// Claims under way.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Each in its slot, which its packets name.
    slots: Slab<Claim>,
    /// Expiry times of the claims, the oldest first; some have ended.
    expiries: VecDeque<(Time, SlotKey)>,
    /// Counts the servers that were chosen, so that they take turns.
    turn: usize,
    /// Begin of the time in which `asked` are counted.
    window_at: Time,
    /// CLAIMs sent in it.
    asked: u32,
}

/// One claim. The slot outlives it and is used again.
#[derive(Debug, Default)]
struct Claim {
    /// The request; `None` once it has ended.
    request: Option<Request>,
    /// Runs the request if nobody else has.
    chosen: Option<ServerKey>,
    /// Servers that have not answered.
    waiting: Vec<ServerKey>,
    /// Time at which they were last asked.
    asked_at: Time,
}

impl Claims {
    /// Expiry time of the oldest.
    pub(super) fn next_expiry(&self) -> Option<Time> {
        self.expiries.front().map(|&(at, _)| at)
    }

    /// Counts `count` CLAIMs, if they are within the budget.
    fn may_ask(&mut self, now: Time, count: usize) -> bool {
        if now >= self.window_at + WINDOW_NS {
            (self.window_at, self.asked) = (now, 0);
        }
        // The first of a window always, or of more servers than the budget none would ever be
        // asked.
        let is_within = self.asked == 0 || self.asked as usize + count <= ASKED_MAX;
        self.asked += if is_within { count as u32 } else { 0 };
        is_within
    }
}

impl Router {
    /// Claims a request that is placed nowhere here and has an entry. The client asks again where
    /// there is no room.
    pub(super) fn claim(&mut self, now: Time, arrival: Arrival, bytes: &[u8]) {
        let Some(entry) = arrival.entry else {
            return;
        };
        if self.may_be_elsewhere(now, &arrival) {
            self.table.release(entry);
            return self.refuse(&arrival, DropReason::Uncertain);
        }
        let chosen = self.choose_for_claim(&arrival);
        let others = self.fleet.len().saturating_sub(1);
        let has_room =
            self.claims.slots.live_count() < CLAIMS_MAX && self.claims.may_ask(now, others.max(1));
        let Some(chosen) = chosen.filter(|_| has_room) else {
            self.metrics.claims_dropped += 1;
            return self.table.release(entry);
        };
        self.metrics.claims += 1;
        let request = Request { arrival, bytes: self.outbox.buffer(bytes) };
        let others = self.fleet.in_order();
        let others = others
            // Servers of version 1 get no request with an id, so that none of them can have run it.
            .filter(|server| server.speaks() == Speaks::Extension && server.key != chosen)
            .map(|server| server.key);
        let id = self.claims.slots.take(Claim::default);
        let key = self.claims.slots.key(id);
        let claim = &mut self.claims.slots[id];
        claim.request = Some(request);
        claim.chosen = Some(chosen);
        claim.waiting.clear();
        claim.waiting.extend(others);
        self.claims.expiries.push_back((now + CLAIM_NS, key));
        self.table.set(entry, PlacementState::Claiming(key));
        if self.claims.slots[id].waiting.is_empty() {
            self.place_claimed(now, id, chosen);
        } else {
            self.ask_servers(now, id);
        }
    }

    /// A claimed request has come again.
    pub(super) fn claim_again(&mut self, now: Time, key: SlotKey) {
        self.metrics.duplicates_held += 1;
        let Some(id) = self.claims.slots.find(key) else {
            return;
        };
        let Claim { waiting, asked_at, .. } = &self.claims.slots[id];
        if waiting.iter().any(|server| self.fleet.of(*server).is_none()) {
            return self.end_uncertain(id);
        }
        let (is_late, count) = (now >= asked_at + ASK_AGAIN_NS, waiting.len());
        if is_late && self.claims.may_ask(now, count) {
            self.ask_servers(now, id);
        }
    }

    /// A server answers a claim.
    pub(super) fn handle_claimed(&mut self, now: Time, path: Path, packet: &Packet) {
        let server = self.fleet.find(path.peer).map(|slot| self.fleet[slot].key);
        // Slots are used again: an answer that comes late names the slot of another claim.
        let id = self.claims.slots.at(u32::from(packet.rid)).filter(|&id| {
            let request = self.claims.slots[id].request.as_ref();
            request.is_some_and(|request| request.arrival.rpc_id == packet.rpc_id())
        });
        let (Some(server), Some(id)) = (server, id) else {
            self.metrics.claimed_unmatched += 1;
            return;
        };
        let claim = &mut self.claims.slots[id];
        let Some(at) = claim.waiting.iter().position(|&key| key == server) else {
            self.metrics.claimed_unmatched += 1;
            return;
        };
        let asked = claim.waiting.swap_remove(at);
        match Verdict::from_payload(packet.payload) {
            Verdict::Seen => self.place_claimed(now, id, asked),
            Verdict::Renounced => {
                if let Some(chosen) = claim.chosen.filter(|_| claim.waiting.is_empty()) {
                    self.place_claimed(now, id, chosen);
                }
            }
            Verdict::Uncertain => self.end_uncertain(id),
        }
    }

    /// Ends a claim whose request is not wanted any more.
    pub(super) fn cancel_claim(&mut self, key: SlotKey) {
        if let Some(id) = self.claims.slots.find(key)
            && let Some(request) = self.end_claim(id)
        {
            self.outbox.recycle(request.bytes);
            request.arrival.entry.into_iter().for_each(|entry| self.table.release(entry));
        }
    }

    /// Ends the claims that have waited for too long.
    pub(super) fn expire_claims(&mut self, now: Time) {
        // Those that have ended go too, so that they wake nobody.
        while let Some(&(at, key)) = self.claims.expiries.front()
            && (at <= now || self.claims.slots.find(key).is_none())
        {
            self.claims.expiries.pop_front();
            self.metrics.claims_expired += u64::from(self.claims.slots.find(key).is_some());
            self.cancel_claim(key);
        }
    }

    /// Places a claimed request, if the server is still there and the client still waits.
    fn place_claimed(&mut self, now: Time, id: SlotId, key: ServerKey) {
        let Some(request) = self.end_claim(id) else {
            return;
        };
        let is_there = self.fleet.of(key).is_some();
        if is_there && request.arrival.deadline > now && !self.outbox.is_full() {
            self.metrics.claims_placed += 1;
            return self.forward(now, key.slot, request);
        }
        self.outbox.recycle(request.bytes);
        request.arrival.entry.into_iter().for_each(|entry| self.table.release(entry));
    }

    /// The server that shall run a claimed request if none has it: the first for the fixed policy,
    /// else they take turns.
    fn choose_for_claim(&mut self, arrival: &Arrival) -> Option<ServerKey> {
        let count = if arrival.is_fixed { 1 } else { self.fleet.len() };
        self.claims.turn = self.claims.turn.wrapping_add(usize::from(!arrival.is_fixed));
        let first = if arrival.is_fixed { 0 } else { self.claims.turn };
        let turns = 0..count.min(self.fleet.len());
        let mut servers = turns.map(|at| &self.fleet[self.fleet.nth((first + at) % count)]);
        servers
            .find(|server| server.speaks() == Speaks::Extension && server.is_in_service())
            .map(|server| server.key)
    }

    /// Sends a CLAIM to every server that has not answered.
    fn ask_servers(&mut self, now: Time, id: SlotId) {
        let claim = &mut self.claims.slots[id];
        claim.asked_at = now;
        let Some(request) = &claim.request else {
            return;
        };
        let arrival = &request.arrival;
        let held_ns = now.saturating_sub(arrival.arrived_at);
        let waited_ns = held_ns.saturating_add(arrival.age_ns.unwrap_or(0));
        // Rounded up: a server must not take for younger than itself what is not.
        let age_ms = u16::try_from(waited_ns.div_ceil(1_000_000)).unwrap_or(u16::MAX);
        let rpc_id = arrival.rpc_id.unwrap_or_default();
        // Slots are at most `CLAIMS_MAX`, and so within the 16 bits of a rid.
        let repr = RequestRepr {
            flags: Flags::RETRANSMIT,
            age_ms,
            ..RequestRepr::control(MessageType::Claim, id.0 as u16, rpc_id)
        };
        let body = ClaimBody::of_client(arrival.client);
        for at in 0..claim.waiting.len() {
            let key = self.claims.slots[id].waiting[at];
            let Some(server) = self.fleet.of(key) else {
                continue;
            };
            if self.outbox.is_full() {
                self.metrics.outbox_full += 1;
                return;
            }
            let mut bytes = self.outbox.buffer(repr.header().as_bytes());
            bytes.extend_from_slice(body.as_bytes());
            self.send(Datagram { to: server.addr(), from: server.local.into(), bytes });
        }
    }

    /// Refuses a claimed request that may have run where nobody can be asked.
    fn end_uncertain(&mut self, id: SlotId) {
        if let Some(request) = self.end_claim(id) {
            self.outbox.recycle(request.bytes);
            request.arrival.entry.into_iter().for_each(|entry| self.table.release(entry));
            if self.outbox.is_full() {
                // A server's answer brings it here, and the client asks again.
                self.metrics.outbox_full += 1;
                return;
            }
            self.refuse(&request.arrival, DropReason::Uncertain);
        }
    }

    /// True if another router may have placed a request on a server that this one cannot ask.
    fn may_be_elsewhere(&self, now: Time, arrival: &Arrival) -> bool {
        arrival.age_ns.is_none_or(|age_ns| self.history.was_before_removal(now, age_ns))
    }

    fn end_claim(&mut self, id: SlotId) -> Option<Request> {
        let request = self.claims.slots[id].request.take()?;
        self.claims.slots.release(id);
        Some(request)
    }
}

/// Most claims under way: what a router fails with that held all it may.
const CLAIMS_MAX: usize = 4_096;

/// A claim that servers have not answered for so long is released: the client asks again.
const CLAIM_NS: u64 = 1_000_000_000;

/// Servers are asked again after this, when the request comes again.
const ASK_AGAIN_NS: u64 = 1_000_000;

/// Most CLAIMs sent in [`WINDOW_NS`]: 400,000 a second, so that strangers who make up requests that
/// have moved cannot have servers flooded.
const ASKED_MAX: usize = 4_096;

const WINDOW_NS: u64 = 10_000_000;
