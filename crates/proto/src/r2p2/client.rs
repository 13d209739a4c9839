//! The client half: calls from first packet to reply.
//!
//! | state of a call | what is known | what the timer does |
//! |---|---|---|
//! | asking | nothing | sends packet 0 to the target again |
//! | sending | a server has acknowledged part of the request | sends again what it has not acknowledged |
//! | held | a server has all of the request | sends packet 0 to that server again, which makes it say what it knows |
//! | receiving | part of the reply | tells what has arrived and asks for the rest |
//!
//! The client alone keeps time for recovery; a server answers what it is asked. Every call ends by
//! a reply, a refusal or its deadline. Where targets stand for each other, a call of which nobody
//! has answered leaves one that has failed ([`super::alternates`]); if it may run once, it says so
//! (MOVED), and no refusal ends it that may be about its former way. Calls to version 1 peers live
//! in the same table; their rules are in [`super::client_v1`].

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use tailcut_wire::r2p2::{
    CloneMark, DropReason, Flags, Packet, Rejection, ReplyHeader, RpcId, SessionId, V1_FIRST_LEN,
    V1_PACKETS_MAX, V1_SEGMENT_LEN,
};

use super::alternates::{ASK_NS, Alternates};
use super::config::Config;
use super::copies::{COPIES_BURST, CopyState, Credit, RETRIES_BURST};
use super::incoming::{InOrder, Incoming};
use super::named::Moves;
use super::outgoing::Outgoing;
use super::pace::Start;
use super::queue::SendQueue;
use super::servers::{Proof, Servers};
use super::shared::Shared;
use crate::call::numbering::{Numbering, Numbers};
use crate::call::unreachable::UnreachableLook;
use crate::gso_batch::Ends;
use crate::message::payload::Payload;
use crate::message::reassembly::Arrival;
use crate::node::{Path, Source, Time, clock_us};
use crate::peer::table::{NOBODY, PeerId};
use crate::policy::Draws;
use crate::rpc::{Call, CallError, CallId, CallOptions, Event, Failure, Lent};
use tailcut_placement::keyed::KeyedState;
use tailcut_placement::order::wheel::Wheel;
use tailcut_placement::slab::{Slab, SlotId, SlotKey};

/// The calls of an endpoint.
#[derive(Debug)]
pub(super) struct Client {
    /// Calls, each in its slot.
    pub(super) slots: Slab<Slot>,
    /// Sessions of the ids of calls.
    pub(super) sessions: Numbers,
    /// The ids of calls.
    pub(super) numbering: Numbering,
    /// Records of servers and routers.
    pub(super) servers: Servers,
    /// Draws servers for copies, and times to stay away.
    pub(super) draws: Draws,
    /// Copies of calls that may be sent.
    pub(super) copy_credit: Credit,
    /// Calls that may be tried again.
    pub(super) retry_credit: Credit,
    /// Targets that stand for each other.
    pub(super) alternates: Alternates,
    /// Timers of the calls' timeouts and deadlines, by slot.
    wheel: Wheel,
    /// Packets to be sent.
    pub(super) queue: SendQueue<Farewell>,
    /// Slots of calls to version 1 peers, by their request id.
    pub(super) v1_slots: HashMap<u16, SlotId, KeyedState>,
    /// The request id of version 1 that was drawn last.
    pub(super) v1_last_rid: u16,
    /// Limit on how often calls to an address where nothing listens are searched for.
    pub(super) unreachable_look: UnreachableLook,
}

/// One call. The slot outlives it and is used again.
#[derive(Debug)]
pub(super) struct Slot {
    /// Its id; that of the last call but of version 1 in the slot where the peer speaks that.
    pub(super) rpc_id: RpcId,
    /// Its number in packets: its place in the table, or the request id of version 1.
    pub(super) rid: u16,
    /// The address that the application has called: a server, or a router that picks one.
    pub(super) target: Party,
    /// The server that has answered for the request so far.
    pub(super) server: Option<Party>,
    /// This host's address that was last answered: what follows leaves from there, since the server
    /// behind a router knows the call by it. `None` before, and where the datapath does not say.
    pub(super) local: Option<IpAddr>,
    /// Options of its treatment on the way.
    pub(super) options: CallOptions,
    /// Others that may have it.
    pub(super) moves: Moves,
    /// Packets behind the first go before anybody has taken it.
    pub(super) is_unscheduled: bool,
    /// Its target is on this host, and long packets are taken from there.
    pub(super) is_local: bool,
    /// The application's.
    context: u64,
    /// Deadline at which it fails.
    pub(super) deadline: Time,
    /// State of its first transmission.
    pub(super) start: Start,
    /// Time for which its target is to be left alone, if it fails now; 0 where nobody has said.
    pub(super) retry_after_ns: u64,
    /// The request, until the call ends.
    pub(super) request: Outgoing,
    /// The reply, once something of it has come.
    pub(super) reply: Incoming,
    /// The reply of a version 1 server.
    pub(super) reply_v1: InOrder,
    /// State of its recovery from loss.
    pub(super) recovery: Recovery,
    /// The second copy of it that this client sends, if any.
    pub(super) copy: CopyState<Party>,
    /// Flags of the next ACK.
    pub(super) sack_flags: u8,
}

/// State of a call's recovery from loss: its last transmissions and its next timeout.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recovery {
    /// Time of the first transmission of packet 0; 0 before.
    pub(super) first_sent_at: Time,
    /// Packet 0 has gone out more than once, or to another one.
    pub(super) is_again: bool,
    /// Time of the last transmission of a packet of the request; 0 before.
    pub(super) sent_at: Time,
    /// Timeouts since the last progress.
    pub(super) attempt: u32,
    /// The next timeout.
    pub(super) retry_at: Time,
    /// Time at which holes were last asked for or sent again.
    mended_at: Time,
    /// The clock when a server was last sent the token that it has asked for; 0 before.
    pub(super) validated_us: u32,
}

/// An address that a call speaks to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Party {
    /// The address.
    pub(super) address: SocketAddr,
    /// Its record among the servers.
    pub(super) record: PeerId,
}

/// An ACK that asks for a token or a cookie.
pub(super) struct Demand<'a> {
    /// Server that asks.
    pub(super) server: Party,
    /// Its header, which tells it.
    pub(super) header: &'a ReplyHeader,
    /// It is what the call's target has been shown so far.
    pub(super) is_known: bool,
}

/// The last word on a call that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Farewell {
    /// From where, and to whom it is told.
    pub(super) ends: Ends,
    /// The token for that address.
    pub(super) token: u64,
    /// The call.
    pub(super) rid: u16,
    /// The call's id.
    pub(super) rpc_id: RpcId,
    /// The end that is told.
    pub(super) end: End,
}

/// Outcome of a call that has ended, as the server is told.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// All packets of the reply, this many, have arrived.
    Received(u16),
    /// The reply is not wanted: of two copies only that which has not this mark.
    Cancelled(CloneMark),
}

impl Client {
    pub(super) fn new(config: &Config, seed: u64) -> Self {
        Self {
            slots: Slab::of_at_most(config.calls_max),
            sessions: Numbers::new(&config.secret, b""),
            numbering: Numbering::default(),
            servers: Servers::of_client(config, seed),
            draws: Draws::new(seed),
            copy_credit: Credit::new(COPIES_BURST),
            retry_credit: Credit::new(RETRIES_BURST),
            alternates: Alternates::new(&config.alternates),
            wheel: Wheel::new(TICK_BITS).of_at_most(config.calls_max),
            queue: SendQueue::new(),
            v1_slots: HashMap::with_hasher(KeyedState::with_seed(seed)),
            v1_last_rid: 0,
            unreachable_look: UnreachableLook::default(),
        }
    }

    /// Begins a call; `lent` is the request where [`Call::payload`] is not.
    #[inline(always)]
    pub(super) fn call(
        &mut self,
        now: Time,
        mut call: Call,
        lent: Option<Lent>,
        shared: &mut Shared,
    ) -> Result<CallId, CallError> {
        let request = lent.map_or(Payload::Own(call.payload), Payload::Lent);
        let limit_ns = shared.config.lifetime_ns_max;
        if call.deadline <= now || call.deadline - now > limit_ns {
            return Err(CallError::BadDeadline { limit_ns });
        }
        if let Some(seal) = &shared.seal {
            if seal.is_server() {
                return Err(CallError::NoSession);
            }
            if call.options.v1 {
                return Err(CallError::NoSealedForm);
            }
        }
        let limit = if call.options.v1 { V1_REQUEST_MAX } else { shared.config.packets_len_max() }
            .min(shared.config.message_len_max);
        if request.len() > limit {
            return Err(CallError::TooLarge { len: request.len(), limit });
        }
        let index = self.take_slot(shared)?;
        if let Some(stand_in) = self.alternates.stand_in(&call.target) {
            call.target = stand_in;
        }
        // The address stays where it is until it is in the slot: its parts are not taken apart.
        let record = self.servers.find_or_add(now, &call.target, &shared.config);
        self.servers[record].calls += 1;
        let is_local = self.servers.is_local(record, &call.target, &shared.config);
        let slot = &mut self.slots[index];
        slot.target.address = call.target;
        slot.target.record = record;
        slot.is_local = is_local;
        (slot.server, slot.local) = (None, None);
        (slot.options, slot.context) = (call.options, call.context);
        (slot.moves, slot.is_unscheduled) = (Moves::default(), false);
        (slot.start, slot.retry_after_ns) = (Start::Now, 0);
        slot.deadline = call.deadline;
        slot.recovery = Recovery::default();
        slot.sack_flags = 0;
        if call.options.v1 {
            self.begin_v1(index, request);
        } else {
            slot.rid = index.0 as u16;
            if shared.seal.as_ref().is_some_and(|seal| seal.is_session_due(now)) {
                self.numbering.renew();
            }
            let id = self.numbering.draw(&mut self.sessions, RpcId::SEQUENCE_MAX);
            if let Some(seal) = &mut shared.seal {
                seal.note_session(now, id.0);
            }
            slot.rpc_id = RpcId::new(SessionId(id.0), id.1);
            let takes_long = self.takes_long(record, &shared.config);
            let segment_len = shared.config.segment_len_to(takes_long);
            self.slots[index].request.begin_even(request, segment_len);
        }
        shared.metrics.calls += 1;
        self.plan_copy(now, index, shared);
        self.plan_unscheduled(index, shared);
        if call.options.v1 || self.starts_now(now, index, shared) {
            self.queue_data(index);
            self.arm_retry(now, index, &shared.config);
        }
        Ok(self.call_id(index))
    }

    /// Calls that have not ended.
    pub(super) fn calls(&self) -> usize {
        self.slots.live_count()
    }

    pub(super) fn cancel(&mut self, id: CallId, shared: &mut Shared) {
        if let Some(index) = self.slots.find(SlotKey(id.0)) {
            shared.metrics.cancelled += 1;
            self.say_cancelled(index);
            self.release(index, shared);
        }
    }

    /// A reply packet.
    pub(super) fn handle_response(
        &mut self,
        now: Time,
        path: &Path,
        packet: &Packet,
        shared: &mut Shared,
    ) {
        let Some(header) = packet.reply_header() else {
            return self.handle_response_v1(now, path, packet, shared);
        };
        if packet.route().is_some() {
            // It was on its way through a router.
            shared.metrics.unexpected += 1;
            return;
        }
        let mark = packet.flags().clone_mark();
        let Some(index) = self.find(packet) else {
            if mark == CloneMark::Single {
                shared.metrics.unknown += 1;
            } else {
                shared.metrics.clones_filtered += 1;
            }
            return;
        };
        let record = self.learn(now, index, path, header, shared);
        let server = Party { address: path.peer, record };
        self.learn_waiting(index, record, header.server_waiting.get());
        let slot = &mut self.slots[index];
        // The record tells it, but for one that newcomers share. A router, which may send long
        // packets on to another host, gives no reply.
        let is_target = slot.target.record == record && record != PeerId::default();
        if !is_target && !slot.may_be_answered_by(path.peer) {
            shared.metrics.protocol_violation += 1;
            return;
        }
        if !slot.reply.is_begun() {
            self.servers[slot.target.record].state.takes_long =
                is_target && slot.is_local && packet.flags().has(Flags::LONG);
            if let Some(sample) = round_trip_ns(now, header) {
                self.servers[slot.target.record].state.reply.sample(sample);
            }
            let (message_len, segment_len) = packet.lengths();
            if message_len as usize > shared.config.message_len_max {
                slot.server = Some(server);
                self.say_cancelled(index);
                shared.metrics.failed += 1;
                return self.fail(index, Failure::ReplyTooLarge, shared);
            }
            self.note_answer(now, index, (path, mark), shared);
            if packet.count == 1 {
                let mut payload = shared.buffers.take_for(message_len as usize);
                payload.extend_from_slice(packet.payload);
                return self.finish(index, (path.peer, 1), payload, shared);
            }
            let slot = &mut self.slots[index];
            slot.server = Some(server);
            let buffer = shared.buffers.take_to_fill(message_len as usize);
            shared.begin_incoming(&mut slot.reply, buffer, (message_len, segment_len));
        } else if slot.server_address() != Some(path.peer) {
            if packet.index == 0 && self.dismiss_other(index, path) {
                shared.metrics.clones_filtered += 1;
            } else {
                shared.metrics.protocol_violation += 1;
            }
            return;
        }
        self.receive(now, index, packet, shared);
    }

    /// A server's ACK and credit for the request.
    pub(super) fn handle_ack(
        &mut self,
        now: Time,
        path: &Path,
        packet: &Packet,
        shared: &mut Shared,
    ) {
        let (Some(sack), Some(header)) = (packet.sack(), packet.reply_header()) else {
            return self.handle_ack_v1(now, path, packet, shared);
        };
        let Some(index) = self.find(packet) else {
            shared.metrics.unknown += 1;
            return;
        };
        let is_name =
            packet.flags().has(Flags::HELD) && sack.granted.get() == 0 && shared.seal.is_some();
        if is_name && !self.may_name(now, index, path.peer, shared) {
            return;
        }
        // A router gives no token.
        if is_name && header.token.get() == 0 {
            return self.take_name(index);
        }
        if packet.flags().has(Flags::HELD) && !is_name {
            return self.note_held(now, index, (path, header), shared);
        }
        let is_claimed = self.slots[index].moves.is_moved && sack.granted.get() > 0;
        let is_other = self.slots[index].server_address().is_some_and(|server| server != path.peer);
        // Of a moved request the server that takes it counts, not one that asked for its token
        // before.
        if is_other && !is_claimed {
            // Of several packets, the request goes to the server that was ready first.
            if !self.dismiss_other(index, path) {
                shared.metrics.protocol_violation += 1;
            }
            return;
        }
        let shown = self.servers[self.slots[index].target.record].state.proof;
        let is_known = shown.is_given(header);
        let record = self.learn(now, index, path, header, shared);
        let server = Party { address: path.peer, record };
        if sack.granted.get() == 0 {
            return self.validate(now, index, Demand { server, header, is_known }, shared);
        }
        self.slots[index].server = Some(server);
        let was_early = self.learn_direct(index, path.peer);
        if let Some(sample) = round_trip_ns(now, header) {
            self.servers[server.record].state.ack.sample(sample);
        }
        let slot = &mut self.slots[index];
        if slot.request.apply(sack) {
            let is_again = std::mem::take(&mut slot.recovery.attempt) > 0;
            if was_early && is_again {
                // Packet 0 was lost, and for want of it what came behind.
                shared.metrics.resent += u64::from(slot.request.resend_unscheduled());
            }
        }
        self.mend_request(now, index, shared);
        if self.slots[index].request.peek().is_some() {
            self.queue_data(index);
        }
        self.arm_retry(now, index, &shared.config);
    }

    /// A refusal.
    pub(super) fn handle_drop(
        &mut self,
        now: Time,
        peer: SocketAddr,
        packet: &Packet,
        shared: &mut Shared,
    ) {
        let (found, reason) = if packet.is_extended() {
            (self.find(packet), DropReason::from_payload(packet.payload))
        } else {
            (self.v1_slots.get(&packet.rid).copied(), DropReason::Unspecified)
        };
        let told = shared.seal.as_mut().and_then(|seal| seal.take_no_key());
        let Some(index) = found else {
            shared.metrics.unknown += 1;
            return;
        };
        if !self.slots[index].may_be_answered_by(peer) {
            shared.metrics.protocol_violation += 1;
            return;
        }
        if let Some(told) = told {
            return self.handle_no_key(now, (index, peer), told, shared);
        }
        if self.slots[index].start == Start::Waiting {
            // Of a copy that was sent before the one whose refusal it waits for.
            shared.metrics.duplicates += 1;
            return;
        }
        if self.slots[index].forgive_refusal() {
            return;
        }
        if self.outlives(now, index, (peer, reason), shared) {
            return;
        }
        if let Some(header) = packet.reply_header()
            && self.tries_again(now, index, (header, reason), shared)
        {
            return;
        }
        shared.metrics.refused += 1;
        if reason == DropReason::Uncertain && shared.seal.is_some() {
            // The session may be older than the server, which then takes none of its calls.
            self.numbering.renew();
        }
        let words = packet.is_extended().then(|| Rejection::from_payload(packet.payload)).flatten();
        let (mut failure, mut buffer) = (Failure::Refused(reason), Vec::new());
        if let Some(Rejection { code, text }) = words {
            buffer = shared.buffers.take();
            buffer.extend_from_slice(text);
            failure = Failure::Rejected { code };
        }
        self.end(index, Ending { failure, server: Some(peer), text: buffer }, shared);
    }

    pub(super) fn handle_timeout(&mut self, now: Time, shared: &mut Shared) {
        while let Some(index) = self.wheel.pop_due(now) {
            let slot = &self.slots[index];
            if slot.deadline <= now {
                shared.metrics.deadlines += 1;
                self.say_cancelled(index);
                self.fail(index, Failure::Deadline, shared);
            } else if slot.recovery.retry_at <= now && slot.start != Start::Now {
                self.start(now, index, shared);
            } else if slot.recovery.retry_at <= now {
                self.retry(now, index, shared);
            } else {
                if slot.copy.due_at() <= now {
                    self.send_due_copy(now, index, shared);
                }
                self.arm(index);
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.wheel.next_due()
    }

    /// True if there is nothing to send.
    pub(super) fn is_silent(&self) -> bool {
        self.queue.is_empty()
    }

    fn take_slot(&mut self, shared: &mut Shared) -> Result<SlotId, CallError> {
        let limit = shared.config.calls_max.min(usize::from(u16::MAX));
        if self.slots.live_count() >= limit {
            return Err(CallError::TooManyOutstanding { limit });
        }
        Ok(self.slots.take(Slot::new))
    }

    fn call_id(&self, index: SlotId) -> CallId {
        CallId(self.slots.key(index).0)
    }

    /// The live call that an extended packet speaks of.
    fn find(&self, packet: &Packet) -> Option<SlotId> {
        let index = self.slots.at(u32::from(packet.rid))?;
        let slot = &self.slots[index];
        (!slot.options.v1 && Some(slot.rpc_id) == packet.rpc_id()).then_some(index)
    }

    /// An address that a call speaks to from now on.
    #[inline]
    pub(super) fn party(&mut self, now: Time, address: SocketAddr, shared: &Shared) -> Party {
        let record = self.servers.find_or_add(now, &address, &shared.config);
        Party { address, record }
    }

    /// Remembers where the peer answers to, and the token that it gave, for it and for the target
    /// that leads to it. The peer's record.
    #[inline(always)]
    pub(super) fn learn(
        &mut self,
        now: Time,
        index: SlotId,
        path: &Path,
        header: &ReplyHeader,
        shared: &Shared,
    ) -> PeerId {
        let slot = &mut self.slots[index];
        slot.local = path.local;
        let target = slot.target.record;
        let is_target = slot.target.address == path.peer;
        if shared.config.alternates.len() > 1 {
            // What the target says itself shows that it is there now.
            let age_ns = if is_target { Some(0) } else { round_trip_ns(now, header) };
            let sent_at = age_ns.map_or(0, |age_ns| now.saturating_sub(age_ns));
            self.alternates.note_answer(sent_at, slot.target.address);
        }
        let record = match is_target {
            true => target,
            false => self.servers.find_or_add(now, &path.peer, &shared.config),
        };
        if let Some(proof) = Proof::given(header) {
            self.servers[record].state.proof = proof;
            self.servers[target].state.proof.follow(proof, record == target);
        }
        record
    }

    fn receive(&mut self, now: Time, index: SlotId, packet: &Packet, shared: &mut Shared) {
        let slot = &mut self.slots[index];
        let before = slot.reply.expected_packets();
        let arrival = slot.reply.accept(packet.index, packet.lengths(), packet.payload);
        shared.note_expected(before, &slot.reply);
        match arrival {
            Arrival::Refused => shared.metrics.protocol_violation += 1,
            Arrival::Duplicate => shared.metrics.duplicates += 1,
            Arrival::Complete => {
                let (server, count) = (slot.server_address(), slot.reply.count());
                let payload = shared.end(&mut slot.reply);
                if let Some(server) = server {
                    self.finish(index, (server, count), payload, shared);
                }
            }
            Arrival::New => {
                slot.recovery.attempt = 0;
                shared.extend_credit(&mut slot.reply);
                let server = slot.server.unwrap_or(slot.target);
                let guard_ns = self.servers[server.record].state.ack.smoothed_or(GUARD_NS);
                if slot.reply.has_gap(shared.config.reorder_packets)
                    && now >= slot.recovery.mended_at + guard_ns
                {
                    slot.recovery.mended_at = now;
                    slot.sack_flags |= Flags::RESEND;
                    self.queue_sack(index);
                } else if shared.is_credit_due(&slot.reply) {
                    self.queue_sack(index);
                }
                self.arm_retry(now, index, &shared.config);
            }
        }
    }

    /// Sends again the holes that the server's ACKs show, each at most once in a round trip.
    fn mend_request(&mut self, now: Time, index: SlotId, shared: &mut Shared) {
        let slot = &mut self.slots[index];
        let server = slot.server.unwrap_or(slot.target);
        let guard_ns = self.servers[server.record].state.ack.smoothed_or(GUARD_NS).max(GUARD_NS);
        if now >= slot.recovery.mended_at + guard_ns {
            let marked = slot.request.resend_holes(shared.config.reorder_packets);
            if marked > 0 {
                slot.recovery.mended_at = now;
                shared.metrics.resent += u64::from(marked);
            }
        }
    }

    pub(super) fn retry(&mut self, now: Time, index: SlotId, shared: &mut Shared) {
        if self.was_sent_later(now, index, &shared.config) {
            return;
        }
        shared.metrics.timeouts += 1;
        if self.leaves_target(now, index) {
            return self.send_elsewhere(now, index, shared);
        }
        let slot = &mut self.slots[index];
        slot.recovery.attempt += 1;
        if slot.options.v1 {
            // A version 1 server runs a single packet again, and drops a longer request for one.
            if slot.options.idempotent && slot.request.count() == 1 {
                slot.request.resend_first();
                self.queue_data(index);
            }
        } else if slot.reply.is_begun() {
            slot.sack_flags |= Flags::RESEND | Flags::RESEND_TAIL;
            self.queue_sack(index);
        } else {
            if slot.options.idempotent
                && slot.recovery.attempt >= ATTEMPTS_BEFORE_ANOTHER
                && slot.server_address() != Some(slot.target.address)
            {
                // The server that took it is silent; another may run it again.
                slot.server = None;
                slot.request.restart();
            }
            if slot.server.is_none() || slot.request.is_complete() {
                slot.request.resend_first();
            } else {
                shared.metrics.resent += u64::from(slot.request.resend_some());
            }
            self.queue_data(index);
        }
        self.arm_retry(now, index, &shared.config);
    }

    /// True, and the timer begins anew, if what the server has given credit for has yet to be sent
    /// or was sent since the timer began: with many long calls a turn lasts longer than a timeout.
    fn was_sent_later(&mut self, now: Time, index: SlotId, config: &Config) -> bool {
        let Slot { server, request, reply, recovery, .. } = &self.slots[index];
        if server.is_none() || request.is_complete() || reply.is_begun() {
            return false;
        }
        let sent_at = if request.peek().is_some() { now } else { recovery.sent_at };
        self.arm_retry(sent_at, index, config);
        self.queue_data(index);
        self.slots[index].recovery.retry_at > now
    }

    pub(super) fn arm_retry(&mut self, now: Time, index: SlotId, config: &Config) {
        let slot = &mut self.slots[index];
        let timeout_ns = match slot.server {
            // Never, since the deadline comes first; half, since `now` is added.
            _ if slot.options.v1 && !slot.options.idempotent => u64::MAX / 2,
            Some(server) if !slot.request.is_complete() || slot.reply.is_begun() => {
                let ack = &self.servers[server.record].state.ack;
                ack.timeout_ns(config.timeouts(), slot.recovery.attempt)
            }
            _ => {
                let reply = &self.servers[slot.target.record].state.reply;
                reply.timeout_ns(config.timeouts(), slot.recovery.attempt)
            }
        };
        // Its target is to show soon whether it is there, where it may leave it.
        let is_asking = slot.server.is_none() && config.alternates.len() > 1 && !slot.options.v1;
        let timeout_ns = if is_asking { timeout_ns.min(ASK_NS) } else { timeout_ns };
        slot.recovery.retry_at = now + timeout_ns;
        self.arm(index);
    }

    /// Arms the timer of a call.
    pub(super) fn arm(&mut self, index: SlotId) {
        let Slot { recovery, deadline, copy, .. } = &self.slots[index];
        self.wheel.arm(index, recovery.retry_at.min(*deadline).min(copy.due_at()));
    }

    /// Remembers how many requests wait at a server, for it and for the target that leads to it.
    #[inline(always)]
    fn learn_waiting(&mut self, index: SlotId, server: PeerId, waiting: u16) {
        let target = self.slots[index].target.record;
        self.servers[server].state.waiting = waiting;
        self.servers[target].state.waiting = waiting;
    }

    pub(super) fn finish(
        &mut self,
        index: SlotId,
        (server, packets): (SocketAddr, u16),
        payload: Vec<u8>,
        shared: &mut Shared,
    ) {
        shared.metrics.replied += 1;
        self.speed_up(index);
        let id = self.call_id(index);
        let slot = &self.slots[index];
        let context = slot.context;
        // The floor of later requests lets the server release replies, unless it waits for a slow
        // call. Those of several packets hold more there.
        let lag_max = match packets {
            1 => FLOOR_LAG_MAX,
            _ => FLOOR_LAG_MAX / 16,
        };
        let (session, sequence) = (slot.rpc_id.session().0, slot.rpc_id.sequence());
        let is_long = packets > RELEASED_PACKETS_MAX;
        if !slot.options.v1 && (is_long || self.numbering.floor_lag(session, sequence) > lag_max) {
            self.say(index, server, End::Received(packets));
        }
        shared.tell_replied((id, context), server, payload);
        self.release(index, shared);
    }

    pub(super) fn fail(&mut self, index: SlotId, failure: Failure, shared: &mut Shared) {
        let server = self.slots[index].server_address();
        self.end(index, Ending { failure, server, text: Vec::new() }, shared);
    }

    fn end(&mut self, index: SlotId, ending: Ending, shared: &mut Shared) {
        let Ending { failure, server, text } = ending;
        let id = self.call_id(index);
        let Slot { context, retry_after_ns, .. } = self.slots[index];
        let event = Event::Failed { id, context, failure, server, text, retry_after_ns };
        shared.events.push_back(event);
        self.release(index, shared);
    }

    fn release(&mut self, index: SlotId, shared: &mut Shared) {
        self.wheel.disarm(index);
        let slot = &mut self.slots[index];
        self.servers[slot.target.record].calls -= 1;
        slot.reply.is_sack_queued = false;
        if slot.reply.is_begun() {
            let rest = shared.end(&mut slot.reply);
            shared.buffers.give(rest);
        }
        shared.buffers.give(slot.request.end());
        if slot.options.v1 {
            shared.buffers.give(slot.reply_v1.take());
            self.v1_slots.remove(&slot.rid);
        } else {
            self.numbering.end(slot.rpc_id.session().0, slot.rpc_id.sequence());
        }
        self.slots.release(index);
    }

    /// Tells the server, or whoever leads to it, that the reply is no longer wanted.
    fn say_cancelled(&mut self, index: SlotId) {
        let slot = &self.slots[index];
        if !slot.options.v1 && !slot.request.is_unsent() {
            let to = slot.server.unwrap_or(slot.target).address;
            self.say(index, to, End::Cancelled(CloneMark::Single));
        }
    }

    pub(super) fn say(&mut self, index: SlotId, to: SocketAddr, end: End) {
        let record = self.servers.find(to).unwrap_or_default();
        let token = self.servers[record].state.proof.token();
        let slot = &self.slots[index];
        let (ends, rid, rpc_id) = (slot.ends(to), slot.rid, slot.rpc_id);
        self.queue.push_control(Farewell { ends, token, rid, rpc_id, end });
    }

    pub(super) fn queue_data(&mut self, index: SlotId) {
        let key = self.slots.key(index);
        self.queue.push_data(key, &mut self.slots[index].request);
    }

    fn queue_sack(&mut self, index: SlotId) {
        let key = self.slots.key(index);
        self.queue.push_sack(key, &mut self.slots[index].reply);
    }
}

impl Slot {
    fn new() -> Self {
        Self {
            rpc_id: RpcId::default(),
            rid: 0,
            target: Party { address: NOBODY, record: PeerId::default() },
            server: None,
            local: None,
            options: CallOptions::default(),
            moves: Moves::default(),
            is_unscheduled: false,
            is_local: false,
            context: 0,
            deadline: 0,
            start: Start::Now,
            retry_after_ns: 0,
            request: Outgoing::default(),
            reply: Incoming::default(),
            reply_v1: InOrder::default(),
            recovery: Recovery::default(),
            sack_flags: 0,
            copy: CopyState::Absent,
        }
    }

    /// The ends of what goes to `peer`. Who has the call of its target knows it by the address that
    /// it has gone there from.
    #[inline]
    pub(super) fn ends(&self, peer: SocketAddr) -> Ends {
        let target = self.target.address;
        let is_asked = peer == target || self.copy.is_of(|party| party.address == peer);
        let from = match self.local {
            None if !is_asked => Source::Toward(target),
            local => local.into(),
        };
        Ends { from, to: peer }
    }

    /// The address that has answered for the request so far.
    pub(super) fn server_address(&self) -> Option<SocketAddr> {
        self.server.map(|server| server.address)
    }
}

/// The end of a call without an answer.
struct Ending {
    /// Reason for the failure.
    failure: Failure,
    /// Address of the node that said so, or is known to have had the request.
    server: Option<SocketAddr>,
    /// Text of the application; empty where there is none.
    text: Vec<u8>,
}

/// True if one clock of requests is before another; they wrap.
pub(super) fn is_before_us(one: u32, other: u32) -> bool {
    other.wrapping_sub(one).wrapping_sub(1) < u32::MAX / 2
}

/// Time since the packet that `header` answers was sent; `None` when it echoes nothing, or
/// nonsense.
fn round_trip_ns(now: Time, header: &ReplyHeader) -> Option<u64> {
    let echo = header.clock_echo_us.get();
    let round_trip_us = clock_us(now).wrapping_sub(echo);
    (echo != 0 && round_trip_us < ROUND_TRIP_US_MAX).then(|| u64::from(round_trip_us) * 1000)
}

/// Longer than any call lasts.
const ROUND_TRIP_US_MAX: u32 = 120_000_000;

/// Ticks of 2^16 ns, 66 us: an eighth of the shortest timeout.
const TICK_BITS: u32 = 16;

/// A hole is mended at most once in this time where the round trip is not known or shorter.
const GUARD_NS: u64 = 50_000;

/// Replies that a server keeps for a session because an older call has not ended.
const FLOOR_LAG_MAX: u32 = 1024;

/// Longer replies are acknowledged at once: 5.5 kB of full packets.
const RELEASED_PACKETS_MAX: u16 = 4;

/// Timeouts without a sign of life after which an idempotent call leaves its server.
pub(super) const ATTEMPTS_BEFORE_ANOTHER: u32 = 6;

/// The longest request that a version 1 server takes.
const V1_REQUEST_MAX: usize = V1_FIRST_LEN + (V1_PACKETS_MAX as usize - 1) * V1_SEGMENT_LEN;
