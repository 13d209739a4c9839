//! Requests at the router: placed, held, refused, cancelled.

use std::net::{IpAddr, SocketAddr};

use tailcut_wire::r2p2::{
    DropReason, Flags, Kind, MessageType, Packet, Policy as PolicyNibble, ReplyRepr, V1_DROP,
    V1Repr,
};
use zerocopy::IntoBytes;

use super::Router;
use super::arrival::{Arrival, Request, write_route};
use super::census::Standing;
use super::config::{Forward, Speaks};
use super::ids::{Entered, PlacementState, ServerKey};
use super::lane::Lane;
use super::outbox::Datagram;
use super::server::Server;
use super::workers::AutoBound;
use crate::address::share_of;
use crate::node::{Path, Source, Time, is_unanswerable};
use crate::peer::cookies::Extent;
use crate::peer::limits::SESSION_IDLE_NS;
use crate::policy::WorkerId;
use crate::scheduler::{Outcome, Ticket, Wait};
use crate::sealed::SealVerdict;
use crate::work;

impl Router {
    pub(super) fn handle_request(&mut self, now: Time, path: Path, packet: &Packet, bytes: &[u8]) {
        if packet.index != 0 {
            self.metrics.not_first += 1;
            return;
        }
        // Whatever becomes of it needs room: a placement as well as a refusal.
        if self.outbox.is_full() {
            self.metrics.outbox_full += 1;
            return;
        }
        let Some(mut arrival) = self.read_arrival(now, path, packet) else {
            return;
        };
        if !self.is_fit(now, &arrival) || self.lacks_cookie(now, packet, &arrival) {
            return;
        }
        // Only now: what is asked for a name or a cookie comes again, and would count twice.
        self.note_received(now, path, packet);
        if bytes.len() > self.config.packet_len_max {
            return self.refuse(&arrival, DropReason::TooLarge);
        }
        let Some(rpc_id) = arrival.rpc_id else {
            // Version 1 gives no reason on the wire; this one is counted as `v1_annotate`.
            return match self.config.forward {
                Forward::Keep => self.admit(now, arrival, bytes),
                Forward::Annotate => self.refuse(&arrival, DropReason::Unspecified),
            };
        };
        // The last copy leaves by the deadline, and the network may hold it.
        let taken_until = self.taken_until(now, &arrival);
        let remembered_until = taken_until.saturating_add(self.config.transit_ns_max);
        let key = self.table.key(rpc_id, arrival.client);
        self.table.end_below(key, arrival.floor, now.saturating_add(self.config.transit_ns_max));
        let shared = self.take_shared(now, &arrival, remembered_until);
        match (self.table.enter(self.history.came_at(now), key, remembered_until), shared) {
            (Entered::New(entry), Some(server)) => {
                // The data plane has placed it: that server, and no other, may run it.
                arrival.entry = Some(entry);
                self.table.place(now, entry, server);
                self.handle_duplicate(now, arrival, PlacementState::Placed(server), bytes);
            }
            // It may have run where the data plane has placed it, which cannot be remembered here.
            (Entered::Full, Some(_)) => self.refuse(&arrival, DropReason::Uncertain),
            (entered, _) => self.settle_entered(now, arrival, entered, bytes),
        }
    }

    /// Deals with a request that no data plane has placed.
    fn settle_entered(&mut self, now: Time, mut arrival: Arrival, entered: Entered, bytes: &[u8]) {
        match entered {
            Entered::Known(entry, state) => {
                arrival.entry = Some(entry);
                self.handle_duplicate(now, arrival, state, bytes);
            }
            // Before `predates`: the servers can be asked, and know more than its age tells.
            Entered::New(entry) if arrival.is_moved || self.may_be_placed_unseen(&arrival) => {
                arrival.entry = Some(entry);
                self.claim(now, arrival, bytes);
            }
            // Without an entry it cannot be claimed, and another router may have placed it.
            Entered::Full if arrival.is_moved => self.refuse(&arrival, DropReason::Uncertain),
            Entered::New(entry) if !arrival.is_idempotent && self.predates(now, &arrival) => {
                self.table.release(entry);
                self.refuse(&arrival, DropReason::Uncertain);
            }
            Entered::New(entry) => {
                arrival.entry = Some(entry);
                self.admit(now, arrival, bytes);
            }
            Entered::Full if arrival.is_idempotent => {
                self.metrics.untracked += 1;
                self.admit(now, arrival, bytes);
            }
            Entered::Full if self.predates(now, &arrival) => {
                self.refuse(&arrival, DropReason::Uncertain)
            }
            // No copy may run after this, and it is not remembered: those that may be as old are
            // uncertain from now on.
            Entered::Full => {
                self.history.note_full(now);
                self.refuse(&arrival, DropReason::Overload);
            }
        }
    }

    /// True if a request may be placed, by its seal; answers it if not. One that names nobody is
    /// answered by this router's name, unless it is here already.
    fn is_fit(&mut self, now: Time, arrival: &Arrival) -> bool {
        let verdict = self.seal.as_ref().map_or(SealVerdict::Fit, |seal| seal.verdict());
        match (verdict, arrival.rpc_id) {
            (SealVerdict::Fit, _) => true,
            (SealVerdict::Unnamed, Some(rpc_id)) => {
                let key = self.table.key(rpc_id, arrival.client);
                let is_here = self.table.find(self.history.came_at(now), key).is_some();
                if !is_here {
                    self.tell_name(arrival);
                }
                is_here
            }
            _ => {
                self.refuse(arrival, DropReason::Uncertain);
                false
            }
        }
    }

    /// True if the client of a request is to show a cookie first; tells it then. One that is here
    /// already goes on.
    fn lacks_cookie(&mut self, now: Time, packet: &Packet, arrival: &Arrival) -> bool {
        self.cookies.turn(now);
        let is_loaded = self.queue_len() > 0;
        if !self.cookies.are_asked(now, is_loaded, Extent::of(packet))
            || self.believes(arrival.path.peer)
            || self.config.cookies.trusted.iter().any(|known| known.contains(arrival.client.ip()))
            || self.cookies.is_tagged(arrival.client, packet)
        {
            return false;
        }
        // Version 1 knows no cookies.
        let Some(rpc_id) = arrival.rpc_id else {
            self.refuse(arrival, DropReason::Unvalidated);
            return true;
        };
        let key = self.table.key(rpc_id, arrival.client);
        let is_here = self.table.find(self.history.came_at(now), key).is_some();
        if !is_here {
            let clock_us = packet.request_header().map_or(0, |header| header.client_clock_us.get());
            self.tell_cookie(arrival, rpc_id, clock_us);
        }
        !is_here
    }

    /// Until when packets of a request are taken: by its deadline, or where packets are sealed as
    /// long as their times allow, by clocks that are apart.
    fn taken_until(&self, now: Time, arrival: &Arrival) -> Time {
        let Some(seal) = &self.seal else { return arrival.deadline };
        let lasts_until = match arrival.is_unrouted {
            true => arrival.deadline,
            false => now.saturating_add(self.config.lifetime_ns_max),
        };
        lasts_until.saturating_add(seal.slack_ns())
    }

    /// Reads what matters of a request; counts and drops those that a router cannot use.
    fn read_arrival(&mut self, now: Time, path: Path, packet: &Packet) -> Option<Arrival> {
        let held_to = now.saturating_add(self.config.hold_ns_max);
        let mut arrival = Arrival {
            path,
            sender: self.seal.as_ref().map(|seal| seal.sender()),
            client: path.peer,
            rid: packet.rid,
            rpc_id: None,
            entry: None,
            is_fixed: packet.policy == PolicyNibble::Fixed,
            is_idempotent: packet.flags().has(Flags::IDEMPOTENT),
            floor: 0,
            mark: packet.flags().clone_mark(),
            is_unrouted: true,
            is_moved: false,
            age_ns: None,
            arrived_at: now,
            deadline: held_to,
        };
        let Kind::Request { header, route } = packet.kind else {
            return Some(arrival);
        };
        let Some(route) = route else {
            self.metrics.malformed.no_route += 1;
            return None;
        };
        arrival.is_unrouted = route.routed == 0;
        // Anybody can write a client into a route, and have its replies sent there.
        if route.client_port.get() != 0 && self.believes(path.peer) {
            arrival.client = route.client();
            if is_unanswerable(arrival.client.ip()) {
                self.metrics.malformed.client_address += 1;
                return None;
            }
        }
        let lifetime_ns = match header.deadline_us.get() {
            0 => self.config.lifetime_ns_max,
            deadline_us => (u64::from(deadline_us) * 1_000).min(self.config.lifetime_ns_max),
        };
        arrival.rpc_id = packet.rpc_id();
        arrival.floor = header.floor.get();
        let waited_ns = self.history.waited_ns(now);
        arrival.age_ns = if packet.flags().has(Flags::RETRANSMIT) {
            Some(header.age_ns().saturating_add(waited_ns))
        } else {
            // A server may have run it for another router, and have evicted that since.
            let is_forgotten = waited_ns + 2 * self.config.transit_ns_max >= SESSION_IDLE_NS;
            (is_forgotten && !arrival.is_idempotent).then_some(waited_ns)
        };
        let by_clock_ns = self.seal.as_ref().and_then(|seal| seal.age_ns());
        // `None` is less than any age.
        arrival.age_ns = arrival.age_ns.max(by_clock_ns);
        // What may run twice is placed without asking anybody.
        arrival.is_moved = packet.flags().has(Flags::MOVED) && !arrival.is_idempotent;
        arrival.deadline = now.saturating_add(lifetime_ns);
        Some(arrival)
    }

    fn handle_duplicate(
        &mut self,
        now: Time,
        arrival: Arrival,
        state: PlacementState,
        bytes: &[u8],
    ) {
        let is_somewhere = matches!(state, PlacementState::Placed(_) | PlacementState::Cloned(..));
        if arrival.is_copy() && is_somewhere {
            return self.place_copy(now, arrival, state, bytes);
        }
        let key = match state {
            PlacementState::Placed(key) => key,
            PlacementState::Cloned(first, second) => self.either_of(first, second),
            PlacementState::Claiming(key) => return self.claim_again(now, key),
            // Another router may have placed it meanwhile.
            PlacementState::Refused(_) if arrival.is_moved => {
                return self.claim(now, arrival, bytes);
            }
            PlacementState::Waiting(lane, ticket) if arrival.is_moved => {
                if let Some(request) = self.queues[lane].remove(ticket) {
                    self.outbox.recycle(request.bytes);
                }
                return self.claim(now, arrival, bytes);
            }
            PlacementState::Refused(reason) => return self.refuse_for_good(now, arrival, reason),
            PlacementState::Waiting(..) => {
                self.metrics.duplicates_held += 1;
                return self.tell_held(self.lane(&arrival), &arrival);
            }
            PlacementState::Undecided => {
                self.metrics.duplicates_held += 1;
                return;
            }
        };
        // A request that may run once stays with its server, also a silent one, which may only be
        // slow.
        let may_stay = |server: &Server| !server.is_silent || !arrival.is_idempotent;
        if self.fleet.of(key).is_some_and(may_stay) {
            self.metrics.duplicates_forwarded += 1;
            let bytes = self.outbox.buffer(bytes);
            self.forward(now, key.slot, Request { arrival, bytes });
            if let Some(entry) = arrival.entry {
                // It is still where it was, on two servers perhaps.
                self.table.set(entry, state);
            }
        } else if arrival.is_idempotent {
            self.metrics.duplicates_moved += 1;
            self.admit(now, arrival, bytes);
        } else {
            self.refuse(&arrival, DropReason::Uncertain);
        }
    }

    /// Places, holds or refuses a request that is nowhere yet.
    fn admit(&mut self, now: Time, arrival: Arrival, bytes: &[u8]) {
        if self.is_closed {
            return self.refuse_for_good(now, arrival, DropReason::Stopping);
        }
        let lane = self.lane(&arrival);
        if arrival.is_fixed {
            return match self.first_server(now, &arrival) {
                Some(slot) => self.forward_fixed(now, slot, arrival, bytes),
                None => self.refuse_for_good(now, arrival, DropReason::NoServer),
            };
        }
        // Before it is refused for want of servers: a silent one of version 1 comes back by this
        // alone.
        if let Some(slot) = self.take_trial(now, &arrival) {
            let bytes = self.outbox.buffer(bytes);
            return self.forward(now, slot, Request { arrival, bytes });
        }
        if self.queues[lane].in_service_count() == 0 && !self.is_one_starting(lane) {
            return self.refuse_for_good(now, arrival, DropReason::NoServer);
        }
        let request = Request { arrival, bytes: self.outbox.buffer(bytes) };
        // The overload rules go by the deadline; `hold_ns_max` ends the wait besides.
        let wait = Wait::of(share_of(arrival.client.ip()), now, arrival.deadline)
            .at_most(self.held_until(&arrival));
        let random = self.draws.word();
        match self.queues[lane].offer(request, arrival.cloning(), wait, random) {
            Outcome::Placed(workers, request) => {
                self.queues.hold_times.record(0);
                self.forward_to_each(now, workers, request);
            }
            Outcome::Held(ticket) => {
                self.note_held(lane, arrival, ticket);
                self.tell_if_long(lane, &arrival);
                if self.auto.as_ref().is_some_and(AutoBound::is_by_held) {
                    // The bound may have risen with what is held.
                    self.queues.pump_at = Some(now);
                }
            }
            Outcome::Full(request) => {
                self.outbox.recycle(request.bytes);
                self.refuse_for_good(now, arrival, DropReason::Overload);
            }
        }
    }

    /// Time at which a held request is refused whatever the queue does.
    fn held_until(&self, arrival: &Arrival) -> Time {
        arrival.deadline.min(arrival.arrived_at.saturating_add(self.config.hold_ns_max))
    }

    /// True if a server is about to answer for the first time, which requests may wait for.
    fn is_one_starting(&self, lane: Lane) -> bool {
        lane == Lane::Extension && self.fleet.census().count(Standing::Starting) > 0
    }

    fn note_held(&mut self, lane: Lane, arrival: Arrival, ticket: Ticket) {
        self.metrics.held += 1;
        if let Some(entry) = arrival.entry {
            self.table.set(entry, PlacementState::Waiting(lane, ticket));
        }
    }

    /// The scheduler for a request.
    fn lane(&self, arrival: &Arrival) -> Lane {
        let has_v1 = self.queues[Lane::V1].in_service_count() > 0;
        if arrival.rpc_id.is_none() && has_v1 { Lane::V1 } else { Lane::Extension }
    }

    /// The first server, if it can take the request: the fixed policy knows no other.
    fn first_server(&mut self, now: Time, arrival: &Arrival) -> Option<WorkerId> {
        let slot = self.fleet.first()?;
        let server = &mut self.fleet[slot];
        let is_understood = arrival.rpc_id.is_none() || server.speaks() == Speaks::Extension;
        // Also one that is too slow, or has not answered yet: no other may take it.
        if server.is_able() || server.is_starting && !server.is_draining {
            return is_understood.then_some(slot);
        }
        let is_trial = is_understood
            && server.speaks() == Speaks::V1
            && !server.is_draining
            && server.leases.trial_at <= now;
        if is_trial {
            server.leases.trial_at = now.saturating_add(self.config.v1_trial_interval_ns);
            self.metrics.trials += 1;
        }
        is_trial.then_some(slot)
    }

    fn forward_fixed(&mut self, now: Time, slot: WorkerId, arrival: Arrival, bytes: &[u8]) {
        let server = &self.fleet[slot];
        let is_past = self.queues[self.lane(&arrival)]
            .bound()
            .is_some_and(|bound| server.outstanding() >= bound.saturating_mul(server.units()));
        self.metrics.fixed += 1;
        self.metrics.fixed_past_bound += u64::from(is_past);
        let bytes = self.outbox.buffer(bytes);
        self.forward(now, slot, Request { arrival, bytes });
    }

    /// A silent version 1 server that this request shall try.
    fn take_trial(&mut self, now: Time, arrival: &Arrival) -> Option<WorkerId> {
        if arrival.rpc_id.is_some() {
            return None;
        }
        let chosen = self.fleet.take_trial(now, self.config.v1_trial_interval_ns);
        self.metrics.trials += u64::from(chosen.is_some());
        chosen
    }

    /// Sends a request to a server and counts it there. The caller has seen that the outbox has
    /// room.
    pub(super) fn forward(&mut self, now: Time, slot: WorkerId, mut request: Request) {
        work::step(FORWARD_STEPS);
        work::copy(request.bytes.len());
        let is_extended = request.arrival.rpc_id.is_some();
        if is_extended {
            let placement = self.place_at(now, slot);
            write_route(&mut request, (now, placement), &self.config);
        }
        let server = &mut self.fleet[slot];
        if !is_extended && server.lease(now, &self.config) {
            self.metrics.leases_expired += 1;
        }
        if let Some(entry) = request.arrival.entry {
            self.table.place(now, entry, server.key);
        }
        if self.auto.as_ref().is_some_and(AutoBound::is_by_held) {
            server.ask_whether_some_wait(now, &self.config);
        }
        let (to, server_local) = (server.addr(), server.local);
        let from = self.source(request.arrival.path.peer, server_local);
        self.send(Datagram { to, from, bytes: request.bytes });
        self.metrics.forwarded += 1;
        self.refresh(now, slot);
    }

    pub(super) fn handle_cancel(
        &mut self,
        now: Time,
        peer: SocketAddr,
        packet: &Packet,
        bytes: &[u8],
    ) {
        // By the datagram's source: nobody cancels what is another's.
        let key = self.table.key(packet.rpc_id().unwrap_or_default(), peer);
        match self.table.find(self.history.came_at(now), key) {
            Some((entry, PlacementState::Waiting(lane, ticket))) => {
                if let Some(request) = self.queues[lane].remove(ticket) {
                    self.outbox.recycle(request.bytes);
                }
                self.table.release(entry);
                self.metrics.cancelled_held += 1;
            }
            Some((_, PlacementState::Claiming(key))) => {
                self.cancel_claim(key);
                self.metrics.cancelled_held += 1;
            }
            Some((_, state)) => {
                self.cancel_placed(state, packet.flags().clone_mark(), (peer, bytes));
            }
            None => self.metrics.cancels_unknown += 1,
        }
    }

    pub(super) fn forward_cancel(&mut self, key: ServerKey, peer: SocketAddr, bytes: &[u8]) {
        let Some(server) = self.fleet.of(key) else {
            self.metrics.cancels_unknown += 1;
            return;
        };
        if self.outbox.is_full() {
            self.metrics.outbox_full += 1;
            return;
        }
        let (to, from) = (server.addr(), self.source(peer, server.local));
        let bytes = self.outbox.buffer(bytes);
        self.send(Datagram { to, from, bytes });
        self.metrics.cancelled_forwarded += 1;
    }

    /// Refuses held requests that have expired and places those that may go, a bounded number at a
    /// time.
    pub(super) fn pump(&mut self, now: Time) {
        self.queues.pump_at = None;
        for lane in [Lane::V1, Lane::Extension] {
            let mut left = PUMP_COUNT;
            while self.queues[lane].queue_len() > 0 {
                if left == 0 || self.outbox.is_full() {
                    self.queues.pump_at = Some(now);
                    break;
                }
                left -= 1;
                if !self.pump_one(now, lane) {
                    break;
                }
            }
        }
        if self.auto.is_some() {
            self.look_for_workers(now);
        }
    }

    /// True if a held request has left. The outbox has room.
    fn pump_one(&mut self, now: Time, lane: Lane) -> bool {
        let scheduler = &mut self.queues[lane];
        // First, or a place would go to one that nobody waits for.
        if let Some(request) = scheduler.poll_expired(now) {
            self.outbox.recycle(request.bytes);
            // Where its time is not over, the overload rules have ended the wait.
            let is_expired = self.held_until(&request.arrival) <= now;
            let reason = if is_expired { DropReason::Expired } else { DropReason::Overload };
            self.refuse_for_good(now, request.arrival, reason);
            return true;
        }
        let placed = scheduler.poll_placed(now, self.draws.word());
        let has_left = placed.is_some();
        if let Some((workers, request)) = placed {
            self.auto.iter_mut().for_each(AutoBound::note_placed);
            self.queues.hold_times.record(now.saturating_sub(request.arrival.arrived_at));
            self.forward_to_each(now, workers, request);
        }
        has_left
    }

    /// Refuses what is held, before this router ends: a bounded number at a time. Tells whether
    /// there was any; clients may call again, for none of it has run.
    pub fn refuse_held(&mut self, now: Time) -> bool {
        let mut has_any = false;
        for lane in [Lane::V1, Lane::Extension] {
            for _ in 0..PUMP_COUNT {
                if self.outbox.is_full() {
                    return true;
                }
                let Some(request) = self.queues[lane].pop_held() else { break };
                has_any = true;
                self.outbox.recycle(request.bytes);
                self.refuse_for_good(now, request.arrival, DropReason::Stopping);
            }
        }
        has_any
    }

    /// Refuses a request that has run nowhere, and every copy of it that may reach this router once
    /// the client knows: the refusal and the last copy may each be under way for `transit_ns_max`.
    /// One that may run again is released.
    pub(super) fn refuse_for_good(&mut self, now: Time, arrival: Arrival, reason: DropReason) {
        match arrival.entry {
            Some(entry) if arrival.is_idempotent => self.table.release(entry),
            Some(entry) => {
                let copies_until = now.saturating_add(2 * self.config.transit_ns_max);
                let sealed = self.seal.is_some().then(|| self.taken_until(now, &arrival));
                self.table.refuse(entry, reason, sealed.unwrap_or(0).max(copies_until));
            }
            None => {}
        }
        self.refuse(&arrival, reason);
    }

    /// Sends a DROP: 12 bytes for a request of at least 8, or 49 for one of at least 72.
    pub(super) fn refuse(&mut self, arrival: &Arrival, reason: DropReason) {
        work::step(REFUSE_STEPS);
        self.metrics.refused.count(reason);
        self.note_load();
        let bytes = match arrival.rpc_id {
            Some(rpc_id) => {
                let repr = ReplyRepr {
                    detail: self.retry_after_ns(reason),
                    ..ReplyRepr::control(MessageType::Drop, arrival.rid, rpc_id)
                };
                let mut bytes = self.outbox.buffer(repr.header().as_bytes());
                bytes.push(reason as u8);
                bytes
            }
            None => {
                let repr = V1Repr::control(MessageType::Drop, PolicyNibble::Fixed, arrival.rid);
                let mut bytes = self.outbox.buffer(repr.header().as_bytes());
                bytes.extend_from_slice(V1_DROP);
                bytes
            }
        };
        let from = arrival.path.local.into();
        self.send_to(Datagram { to: arrival.client, from, bytes }, arrival.sender);
    }

    /// The source of what is sent on for `peer` to a server that reports to `local`.
    pub(super) fn source(&self, peer: SocketAddr, local: Option<IpAddr>) -> Source {
        match self.config.forward {
            Forward::Keep => Source::Spoofed(peer),
            Forward::Annotate => local.into(),
        }
    }

    /// True if the request was sent before this router started, so that an earlier run of it may
    /// have placed the request, or so long ago that this one may have, and have evicted it.
    fn predates(&self, now: Time, arrival: &Arrival) -> bool {
        arrival.age_ns.is_some_and(|age_ns| self.was_before(now, age_ns))
    }

    /// True if what is so old may have been sent before this router started, been refused without
    /// being remembered, or been evicted since.
    pub(super) fn was_before(&self, now: Time, age_ns: u64) -> bool {
        let oldest_ns = age_ns.saturating_add(self.config.transit_ns_max);
        self.history.was_before(now, age_ns) || self.table.may_have_evicted(now, oldest_ns)
    }
}

/// Held requests that one call places or refuses, for each generation: a batch that fits a burst of
/// the network card.
const PUMP_COUNT: usize = 256;

/// Steps that a placement counts for.
const FORWARD_STEPS: usize = 24;

/// Steps that a refusal counts for.
const REFUSE_STEPS: usize = 12;
