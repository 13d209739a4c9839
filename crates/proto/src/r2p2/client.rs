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
//! a reply, a refusal or its deadline. Calls to version 1 peers live in the same table; their rules
//! are in [`super::client_v1`].

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use foldhash::fast::FixedState;
use tailcut_wire::r2p2::{
    DropReason, EXTENDED_LEN, Flags, MessageType, Packet, Policy, Rejection, ReplyHeader,
    RequestRepr, RpcId, SackBody, Segment, V1_FIRST_LEN, V1_PACKETS_MAX, V1_SEGMENT_LEN,
};
use zerocopy::IntoBytes;

use super::UNSCHEDULED_PACKETS;
use super::config::Config;
use super::incoming::{InOrder, Incoming};
use super::outgoing::Outgoing;
use super::servers::Servers;
use super::session::Sessions;
use super::shared::Shared;
use crate::call::slab::{Slab, SlotId, SlotKey};
use crate::gso_batch::GsoBatch;
use crate::message::Arrival;
use crate::node::{Path, Time, Transmit};
use crate::order::wheel::Wheel;
use crate::peer::table::PeerId;
use crate::rpc::{Call, CallError, CallId, CallOptions, Event, Failure};

/// The calls of an endpoint.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) slots: Slab<Slot>,
    sessions: Sessions,
    servers: Servers,
    wheel: Wheel,
    queue: VecDeque<Item>,
    /// Slots of calls to version 1 peers, by their request id.
    pub(super) v1_slots: HashMap<u16, SlotId, FixedState>,
    pub(super) v1_last_rid: u16,
}

/// One call. The slot outlives it and is used again.
#[derive(Debug, Default)]
pub(super) struct Slot {
    rpc_id: RpcId,
    pub(super) rid: u16,
    pub(super) target: Option<SocketAddr>,
    target_peer: PeerId,
    /// Who has answered for the request so far.
    pub(super) server: Option<SocketAddr>,
    server_peer: PeerId,
    /// This host's address that was last answered: what follows leaves from there, since the server
    /// behind a router knows the call by it. `None` before.
    pub(super) local: Option<IpAddr>,
    pub(super) options: CallOptions,
    context: u64,
    deadline: Time,
    pub(super) request: Outgoing,
    pub(super) reply: Incoming,
    /// The reply of a version 1 server.
    pub(super) reply_v1: InOrder,
    /// When packet 0 first went out; 0 before.
    pub(super) first_sent_at: Time,
    /// Timeouts since the last progress.
    attempt: u32,
    retry_at: Time,
    /// When holes were last asked for or sent again.
    mended_at: Time,
    is_data_queued: bool,
    is_sack_queued: bool,
    sack_flags: u8,
}

/// What waits to be sent.
#[derive(Clone, Copy, Debug)]
enum Item {
    /// Whatever a call's request may send.
    Data(SlotKey),
    /// A call's ACK for its reply.
    Sack(SlotKey),
    /// The last word on a call that has ended.
    End { to: Path, token: u64, rid: u16, rpc_id: RpcId, end: End },
}

#[derive(Clone, Copy, Debug)]
enum End {
    /// All packets of the reply, this many, have arrived.
    Received(u16),
    /// The reply is not wanted.
    Cancelled,
}

impl Client {
    pub(super) fn new(config: &Config, seed: u64) -> Self {
        Self {
            slots: Slab::default(),
            sessions: Sessions::new(config.secret),
            servers: Servers::new(config.servers_max, seed),
            wheel: Wheel::new(TICK_BITS),
            queue: VecDeque::new(),
            v1_slots: HashMap::with_hasher(FixedState::with_seed(seed)),
            v1_last_rid: 0,
        }
    }

    pub(super) fn call(
        &mut self,
        now: Time,
        call: Call,
        shared: &mut Shared,
    ) -> Result<CallId, CallError> {
        let limit_ns = shared.config.lifetime_ns_max;
        if call.deadline <= now || call.deadline - now > limit_ns {
            return Err(CallError::BadDeadline { limit_ns });
        }
        let limit = if call.options.v1 { V1_REQUEST_MAX } else { shared.config.packets_len_max() }
            .min(shared.config.message_len_max);
        if call.payload.len() > limit {
            return Err(CallError::TooLarge { len: call.payload.len(), limit });
        }
        let index = self.take_slot(shared)?;
        let target_peer = self.servers.find_or_add(call.target);
        let slot = &mut self.slots[index];
        slot.target = Some(call.target);
        slot.target_peer = target_peer;
        slot.server = None;
        slot.local = None;
        slot.options = call.options;
        slot.context = call.context;
        slot.deadline = call.deadline;
        slot.first_sent_at = 0;
        slot.attempt = 0;
        slot.mended_at = 0;
        slot.sack_flags = 0;
        if call.options.v1 {
            self.begin_v1(index, call.payload);
        } else {
            slot.rid = index.0 as u16;
            slot.rpc_id = self.sessions.draw();
            slot.request.begin(call.payload, shared.config.segment_len, 1);
        }
        shared.metrics.calls += 1;
        self.queue_data(index);
        self.arm_retry(now, index, &shared.config);
        Ok(self.call_id(index))
    }

    /// Calls that have not ended.
    pub(super) fn calls(&self) -> usize {
        self.slots.len()
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
        path: Path,
        packet: &Packet,
        shared: &mut Shared,
    ) {
        let peer = path.peer;
        let Some(header) = packet.reply_header() else {
            return self.handle_response_v1(now, path, packet, shared);
        };
        let Some(index) = self.find(packet) else {
            shared.metrics.unknown += 1;
            return;
        };
        self.learn(index, path, header.token.get());
        let lengths = packet.lengths();
        let slot = &mut self.slots[index];
        if !slot.reply.is_begun() {
            let target = self.slots[index].target_peer;
            if let Some(sample) = round_trip_ns(now, header) {
                self.servers.peer_mut(target).reply.sample(sample);
            }
            if lengths.0 as usize > shared.config.message_len_max {
                self.slots[index].server = Some(peer);
                self.say_cancelled(index);
                shared.metrics.failed += 1;
                return self.fail(index, Failure::ReplyTooLarge, shared);
            }
            if packet.count == 1 {
                let mut payload = shared.buffers.take();
                payload.extend_from_slice(packet.payload);
                return self.finish(index, peer, payload, shared);
            }
            let slot = &mut self.slots[index];
            slot.server = Some(peer);
            slot.server_peer = self.servers.find_or_add(peer);
            slot.reply.begin(shared.buffers.take(), lengths.0, lengths.1, UNSCHEDULED_PACKETS);
            shared.note_expected(0, &slot.reply);
        } else if slot.server != Some(peer) {
            shared.metrics.protocol_violation += 1;
            return;
        }
        self.receive(now, index, (packet.index, lengths), packet.payload, shared);
    }

    /// A server's ACK and credit for the request.
    pub(super) fn handle_ack(
        &mut self,
        now: Time,
        path: Path,
        packet: &Packet,
        shared: &mut Shared,
    ) {
        let peer = path.peer;
        let (Some(sack), Some(header)) = (packet.sack(), packet.reply_header()) else {
            return self.handle_ack_v1(now, path, packet, shared);
        };
        let Some(index) = self.find(packet) else {
            shared.metrics.unknown += 1;
            return;
        };
        if self.slots[index].server.is_some_and(|server| server != peer) {
            shared.metrics.protocol_violation += 1;
            return;
        }
        self.learn(index, path, header.token.get());
        let server_peer = self.servers.find_or_add(peer);
        let slot = &mut self.slots[index];
        if sack.granted.get() == 0 {
            // The server asks for its token before it keeps or sends anything.
            slot.server = Some(peer);
            slot.server_peer = server_peer;
            if slot.request.is_under_way() && !slot.reply.is_begun() {
                // It has released what it had, or never had it.
                slot.request.restart();
            } else {
                slot.request.resend_first();
            }
            return self.queue_data(index);
        }
        if slot.server.is_none() {
            slot.server = Some(peer);
            slot.server_peer = server_peer;
        }
        if let Some(sample) = round_trip_ns(now, header) {
            self.servers.peer_mut(server_peer).ack.sample(sample);
        }
        if slot.request.apply(sack) {
            slot.attempt = 0;
        }
        self.mend_request(now, index, shared);
        if self.slots[index].request.peek().is_some() {
            self.queue_data(index);
        }
        self.arm_retry(now, index, &shared.config);
    }

    /// A refusal.
    pub(super) fn handle_drop(&mut self, packet: &Packet, shared: &mut Shared) {
        let (found, reason) = if packet.is_extended() {
            (self.find(packet), DropReason::from_payload(packet.payload))
        } else {
            (self.v1_slots.get(&packet.rid).copied(), DropReason::Unspecified)
        };
        let Some(index) = found else {
            shared.metrics.unknown += 1;
            return;
        };
        shared.metrics.refused += 1;
        let words = packet.is_extended().then(|| Rejection::from_payload(packet.payload)).flatten();
        match words {
            Some(Rejection { code, text }) => {
                let mut buffer = shared.buffers.take();
                buffer.extend_from_slice(text);
                self.fail_saying(index, Failure::Rejected { code }, buffer, shared);
            }
            None => self.fail(index, Failure::Refused(reason), shared),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time, shared: &mut Shared) {
        while let Some(index) = self.wheel.pop_due(now) {
            let slot = &self.slots[index];
            if slot.deadline <= now {
                shared.metrics.deadlines += 1;
                self.say_cancelled(index);
                self.fail(index, Failure::Deadline, shared);
            } else if slot.retry_at <= now {
                self.retry(now, index, shared);
            } else {
                self.wheel.arm(index, slot.retry_at.min(slot.deadline));
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.wheel.next_due()
    }

    /// Whether there is nothing to send.
    pub(super) fn is_silent(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn poll_transmit(
        &mut self,
        now: Time,
        buffer: &mut [u8],
        shared: &mut Shared,
    ) -> Option<Transmit> {
        let mut batch = GsoBatch::new(buffer);
        while let Some(&item) = self.queue.front() {
            let is_written = match item {
                Item::Data(key) => match self.slots.find(key) {
                    Some(index) => self.write_data(now, index, &mut batch, shared),
                    None => true,
                },
                Item::Sack(key) => match self.slots.find(key) {
                    Some(index) => self.write_sack(index, &mut batch),
                    None => true,
                },
                Item::End { to, token, rid, rpc_id, end } => {
                    end.write(&mut batch, to, token, rid, rpc_id)
                }
            };
            if !is_written {
                break;
            }
            self.queue.pop_front();
        }
        shared.metrics.datagrams_out += batch.count() as u64;
        batch.finish()
    }

    fn take_slot(&mut self, shared: &mut Shared) -> Result<SlotId, CallError> {
        let limit = shared.config.calls_max.min(usize::from(u16::MAX));
        if self.slots.len() >= limit {
            return Err(CallError::TooManyOutstanding { limit });
        }
        Ok(self.slots.take(Slot::default))
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

    /// Remembers where the peer answers to, and the token that it gave, for it and for the target
    /// that leads to it.
    #[inline]
    fn learn(&mut self, index: SlotId, path: Path, token: u64) {
        self.slots[index].local = path.local;
        if token == 0 {
            return;
        }
        let server = self.servers.find_or_add(path.peer);
        self.servers.peer_mut(server).token = token;
        let target = self.slots[index].target_peer;
        self.servers.peer_mut(target).token = token;
    }

    fn receive(
        &mut self,
        now: Time,
        index: SlotId,
        place: (u16, (u32, u16)),
        bytes: &[u8],
        shared: &mut Shared,
    ) {
        let slot = &mut self.slots[index];
        let before = slot.reply.expected_packets();
        let arrival = slot.reply.accept(place.0, place.1, bytes);
        shared.note_expected(before, &slot.reply);
        match arrival {
            Arrival::Refused => shared.metrics.protocol_violation += 1,
            Arrival::Duplicate => shared.metrics.duplicates += 1,
            Arrival::Complete => {
                let (peer, count) = (slot.server, slot.reply.count());
                let payload = shared.end(&mut slot.reply);
                if let Some(peer) = peer {
                    self.say(index, peer, End::Received(count));
                    self.finish(index, peer, payload, shared);
                }
            }
            Arrival::New => {
                slot.attempt = 0;
                shared.extend_credit(&mut slot.reply);
                let guard_ns = self.servers.peer(slot.server_peer).ack.smoothed_or(GUARD_NS);
                if slot.reply.has_gap(shared.config.reorder_packets)
                    && now >= slot.mended_at + guard_ns
                {
                    slot.mended_at = now;
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
        let guard_ns = self.servers.peer(slot.server_peer).ack.smoothed_or(GUARD_NS).max(GUARD_NS);
        if now >= slot.mended_at + guard_ns {
            let marked = slot.request.resend_holes(shared.config.reorder_packets);
            if marked > 0 {
                slot.mended_at = now;
                shared.metrics.resent += u64::from(marked);
            }
        }
    }

    fn retry(&mut self, now: Time, index: SlotId, shared: &mut Shared) {
        shared.metrics.timeouts += 1;
        let slot = &mut self.slots[index];
        slot.attempt += 1;
        if slot.options.v1 {
            if slot.options.idempotent && slot.request.count() == 1 {
                slot.request.resend_first();
                self.queue_data(index);
            }
        } else if slot.reply.is_begun() {
            slot.sack_flags |= Flags::RESEND | Flags::RESEND_TAIL;
            self.queue_sack(index);
        } else {
            if slot.options.idempotent
                && slot.attempt >= ATTEMPTS_BEFORE_ANOTHER
                && slot.server != slot.target
            {
                // The server that took it is silent; another may run it again.
                slot.server = None;
                slot.request.restart();
            }
            if slot.server.is_none() || slot.request.is_complete() {
                slot.request.resend_first();
            } else {
                shared.metrics.resent += u64::from(slot.request.resend_all(RESEND_PACKETS_MAX));
            }
            self.queue_data(index);
        }
        self.arm_retry(now, index, &shared.config);
    }

    pub(super) fn arm_retry(&mut self, now: Time, index: SlotId, config: &Config) {
        let slot = &mut self.slots[index];
        let is_acknowledged =
            slot.server.is_some() && !slot.request.is_complete() || slot.reply.is_begun();
        let timeout_ns = if slot.options.v1 && !slot.options.idempotent {
            u64::MAX / 2
        } else if is_acknowledged {
            self.servers.peer(slot.server_peer).ack.timeout_ns(config.timeouts(), slot.attempt)
        } else {
            self.servers.peer(slot.target_peer).reply.timeout_ns(config.timeouts(), slot.attempt)
        };
        slot.retry_at = now + timeout_ns;
        self.wheel.arm(index, slot.retry_at.min(slot.deadline));
    }

    pub(super) fn finish(
        &mut self,
        index: SlotId,
        server: SocketAddr,
        payload: Vec<u8>,
        shared: &mut Shared,
    ) {
        shared.metrics.replied += 1;
        let id = self.call_id(index);
        let slot = &self.slots[index];
        let context = slot.context;
        if !slot.options.v1
            && !slot.reply.is_begun()
            && self.sessions.is_far_from_floor(slot.rpc_id)
        {
            // The floor, which lets the server forget replies, waits for a slow call.
            self.say(index, server, End::Received(1));
        }
        shared.events.push_back(Event::Replied { id, context, server, payload });
        self.release(index, shared);
    }

    pub(super) fn fail(&mut self, index: SlotId, failure: Failure, shared: &mut Shared) {
        self.fail_saying(index, failure, Vec::new(), shared);
    }

    fn fail_saying(&mut self, index: SlotId, failure: Failure, text: Vec<u8>, shared: &mut Shared) {
        let id = self.call_id(index);
        let context = self.slots[index].context;
        shared.events.push_back(Event::Failed { id, context, failure, text });
        self.release(index, shared);
    }

    fn release(&mut self, index: SlotId, shared: &mut Shared) {
        self.wheel.disarm(index);
        let slot = &mut self.slots[index];
        slot.is_data_queued = false;
        slot.is_sack_queued = false;
        if slot.reply.is_begun() {
            let rest = shared.end(&mut slot.reply);
            shared.buffers.give(rest);
        }
        shared.buffers.give(slot.request.end());
        shared.buffers.give(slot.reply_v1.take());
        if slot.options.v1 {
            self.v1_slots.remove(&slot.rid);
        } else {
            self.sessions.end(slot.rpc_id);
        }
        self.slots.release(index);
    }

    /// Tells the server, or whoever leads to it, that the reply is no longer wanted.
    fn say_cancelled(&mut self, index: SlotId) {
        let slot = &self.slots[index];
        if let Some(to) = slot.server.or(slot.target)
            && !slot.options.v1
            && !slot.request.is_unsent()
        {
            self.say(index, to, End::Cancelled);
        }
    }

    fn say(&mut self, index: SlotId, to: SocketAddr, end: End) {
        let peer = self.servers.find_or_add(to);
        let token = self.servers.peer(peer).token;
        let slot = &self.slots[index];
        let to = Path { local: slot.local, peer: to };
        self.queue.push_back(Item::End { to, token, rid: slot.rid, rpc_id: slot.rpc_id, end });
    }

    pub(super) fn queue_data(&mut self, index: SlotId) {
        let slot = &mut self.slots[index];
        if !slot.is_data_queued {
            slot.is_data_queued = true;
            self.queue.push_back(Item::Data(self.slots.key(index)));
        }
    }

    fn queue_sack(&mut self, index: SlotId) {
        let slot = &mut self.slots[index];
        if !slot.is_sack_queued {
            slot.is_sack_queued = true;
            self.queue.push_back(Item::Sack(self.slots.key(index)));
        }
    }

    /// Writes the packets that the call may send; `false` when some did not fit.
    fn write_data(
        &mut self,
        now: Time,
        index: SlotId,
        batch: &mut GsoBatch,
        shared: &mut Shared,
    ) -> bool {
        while let Some(packet) = self.slots[index].request.peek() {
            let is_written = if self.slots[index].options.v1 {
                self.write_packet_v1(index, packet, batch)
            } else {
                self.write_packet(now, index, packet, batch)
            };
            if !is_written {
                return false;
            }
            let slot = &mut self.slots[index];
            if packet == 0 {
                if slot.first_sent_at == 0 {
                    slot.first_sent_at = now.max(1);
                } else {
                    shared.metrics.resent += 1;
                }
            }
            slot.request.sent(packet);
        }
        self.slots[index].is_data_queued = false;
        true
    }

    fn write_packet(&self, now: Time, index: SlotId, packet: u16, batch: &mut GsoBatch) -> bool {
        let slot = &self.slots[index];
        let (Some(to), true) = (slot.server.or(slot.target), packet == 0 || slot.server.is_some())
        else {
            return true;
        };
        let payload = slot.request.segment(packet);
        let peer = if slot.server.is_some() { slot.server_peer } else { slot.target_peer };
        let mut repr = RequestRepr {
            policy: if slot.options.fixed { Policy::Fixed } else { Policy::Unrestricted },
            segment: Segment {
                message_len: slot.request.len() as u32,
                segment_len: slot.request.segment_len(),
                index: packet,
                count: slot.request.count(),
            },
            flags: if slot.options.idempotent { Flags::IDEMPOTENT } else { 0 },
            client_clock_us: clock_us(now),
            deadline_us: deadline_us(now, slot.deadline),
            token: self.servers.peer(peer).token,
            floor: self.sessions.floor_for(slot.rpc_id),
            ..RequestRepr::control(MessageType::Request, slot.rid, slot.rpc_id)
        };
        if packet == 0 && slot.first_sent_at != 0 {
            repr.flags |= Flags::RETRANSMIT;
            let age_ms = now.saturating_sub(slot.first_sent_at).div_ceil(1_000_000);
            repr.age_ms = u16::try_from(age_ms).unwrap_or(u16::MAX);
        }
        let Some(room) = batch.room(slot.path(to), repr.header_len() + payload.len()) else {
            return false;
        };
        repr.emit(room).copy_from_slice(payload);
        true
    }

    fn write_sack(&mut self, index: SlotId, batch: &mut GsoBatch) -> bool {
        let slot = &mut self.slots[index];
        let Some(to) = slot.server else {
            return true;
        };
        let Some(room) = batch.room(slot.path(to), EXTENDED_LEN + size_of::<SackBody>()) else {
            return false;
        };
        let repr = RequestRepr {
            flags: std::mem::take(&mut slot.sack_flags),
            token: self.servers.peer(slot.server_peer).token,
            ..RequestRepr::control(MessageType::ReplyAck, slot.rid, slot.rpc_id)
        };
        repr.emit(room).copy_from_slice(slot.reply.sack().as_bytes());
        slot.is_sack_queued = false;
        true
    }
}

impl End {
    /// Writes the control packet that tells the server; whether there was room for it.
    fn write(self, batch: &mut GsoBatch, to: Path, token: u64, rid: u16, rpc_id: RpcId) -> bool {
        let (kind, sack) = match self {
            Self::Received(count) => {
                let bitmap = [0; SackBody::BITMAP_LEN];
                (
                    MessageType::ReplyAck,
                    Some(SackBody { base: count.into(), granted: count.into(), bitmap }),
                )
            }
            Self::Cancelled => (MessageType::Cancel, None),
        };
        let body = sack.as_ref().map_or(&[][..], |sack| sack.as_bytes());
        let Some(room) = batch.room(to, EXTENDED_LEN + body.len()) else {
            return false;
        };
        let repr = RequestRepr { token, ..RequestRepr::control(kind, rid, rpc_id) };
        repr.emit(room).copy_from_slice(body);
        true
    }
}

impl Slot {
    /// The way to `peer`.
    pub(super) fn path(&self, peer: SocketAddr) -> Path {
        Path { local: self.local, peer }
    }
}

/// What is left until `deadline`, in whole microseconds, at least one: 0 would mean none.
fn deadline_us(now: Time, deadline: Time) -> u32 {
    u32::try_from(deadline.saturating_sub(now) / 1000).unwrap_or(u32::MAX).max(1)
}

/// The clock that a request carries and its answer echoes; never 0, which stands for none.
fn clock_us(now: Time) -> u32 {
    ((now / 1000) as u32).max(1)
}

/// How long ago the packet was sent that `header` answers; `None` when it echoes nothing, or
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

/// Packets that one timeout sends again: 60 kB of full ones.
const RESEND_PACKETS_MAX: u16 = 44;

/// Timeouts without a sign of life after which an idempotent call leaves its server.
const ATTEMPTS_BEFORE_ANOTHER: u32 = 6;

/// The longest request that a version 1 server takes.
const V1_REQUEST_MAX: usize = V1_FIRST_LEN + (V1_PACKETS_MAX as usize - 1) * V1_SEGMENT_LEN;
