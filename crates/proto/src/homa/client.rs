//! The client half: calls, from the first packet to the end of the reply.
//!
//! | state of a call | what is known | what the timer does |
//! |---|---|---|
//! | calling | nothing of the reply | asks for all of it, which makes the server say what it knows |
//! | hearing | part of the reply | asks for what is missing of what was granted |
//!
//! Every call ends by a reply, a refusal, its deadline or the peer's silence.

use std::net::SocketAddr;

use tailcut_wire::homa::{DataFlags, DataHeader, Ports};
use tailcut_wire::r2p2::{DropReason, Rejection};

use super::acks::AckAction;
use super::ids::ClientId;
use super::slot::Member;
use super::transmit::Control;
use super::{Endpoint, Origin, Phase, long};
use crate::message::payload::Payload;
use crate::node::Time;
use crate::peer::table::{Peer, PeerId};
use crate::rpc::{Call, CallError, CallId, Caller, Event, Failure, Lent};
use tailcut_placement::slab::{SlotId, SlotKey};

impl Endpoint {
    /// Begins a call; `lent` is the request where [`Call::payload`] is not, and `back` who has
    /// called, where it is a call back.
    #[inline(always)]
    pub(super) fn begin_call(
        &mut self,
        now: Time,
        call: Call,
        (lent, back): (Option<Lent>, Option<Caller>),
    ) -> Result<CallId, CallError> {
        let mut request = lent.map_or(Payload::Own(call.payload), Payload::Lent);
        let limit_ns = self.config.lifetime_ns_max;
        if call.deadline <= now || call.deadline - now > limit_ns {
            return Err(CallError::BadDeadline { limit_ns });
        }
        let limit = self.config.message_len_max;
        if request.len() > limit {
            return Err(CallError::TooLarge { len: request.len(), limit });
        }
        let too_many = |limit| CallError::TooManyOutstanding { limit };
        let rpcs = long::part_count(request.len(), &self.config);
        if self.holdings.calls + rpcs > self.config.calls_max {
            return Err(too_many(self.config.calls_max));
        }
        let peer = self.peer_of(now, call.target).ok_or(too_many(self.config.peers_max))?;
        if self.peers[peer].calls + rpcs > self.config.calls_per_peer_max {
            return Err(too_many(self.config.calls_per_peer_max));
        }
        let (id, sender) = self.id_for(now, peer, back)?;
        let index = self.open(now, peer, (call.target.port(), id));
        let slot = &mut self.rpcs[index];
        slot.sender = sender;
        slot.options = call.options;
        slot.client.context = call.context;
        slot.deadline = call.deadline;
        self.metrics.calls += 1;
        if rpcs == 1 {
            self.send_request(now, index, request)
        } else {
            self.send_parts(now, index, request.bytes());
            self.buffers.give(request.take());
        }
        Ok(CallId(self.handle_of(index)))
    }

    /// An RPC to a peer, of which nothing is sent yet.
    pub(super) fn open(
        &mut self,
        now: Time,
        peer: PeerId,
        (server_port, id): (u16, ClientId),
    ) -> SlotId {
        let index = self.rpcs.take();
        let ports = Ports { source: self.config.client_port, destination: server_port };
        self.rpcs[index].begin(now, Phase::Calling(Member::Whole), (peer, ports, id));
        self.holdings.calls += 1;
        self.peers[peer].calls += 1;
        self.rpcs.enlist(index);
        index
    }

    /// Begins to send the request of an RPC.
    pub(super) fn send_request(&mut self, now: Time, index: SlotId, payload: Payload) {
        let birth = self.rpcs.next_birth();
        let slot = &mut self.rpcs[index];
        slot.flags |= DataFlags::KNOWN | self.config.flags(self.peers[slot.peer].address);
        if slot.options.idempotent {
            slot.flags |= DataFlags::IDEMPOTENT;
        }
        if self.holdings.calls > self.config.incast.calls_max {
            slot.flags |= DataFlags::INCAST;
            self.metrics.incast += 1;
        }
        let unscheduled = self.unscheduled_len(index);
        self.rpcs[index].send(payload, unscheduled, birth);
        self.rank_out(index);
        self.arm_ahead(now, index);
    }

    pub(super) fn cancel_call(&mut self, id: CallId) {
        if let Some(index) = self.slot_of(SlotKey(id.0), Phase::is_client) {
            self.metrics.cancelled += 1;
            self.give_up(index);
        }
    }

    /// DATA of a reply.
    pub(super) fn handle_reply(
        &mut self,
        now: Time,
        origin: &Origin,
        header: &DataHeader,
        payload: &[u8],
    ) {
        let Some(index) = self.hear(now, origin) else {
            return;
        };
        self.note_proof(now, index, header);
        if header.flags().has(DataFlags::REFUSED) {
            if header.offset() != 0 {
                // The reason is in the first packet.
                return;
            }
            self.metrics.refused += 1;
            let Some(Rejection { code, text }) = Rejection::from_payload(payload) else {
                let reason = DropReason::from_payload(payload);
                self.note_refusal(index, reason);
                return self.fail(index, Failure::Refused(reason));
            };
            let mut buffer = self.buffers.take();
            buffer.extend_from_slice(&text[..text.len().min(Rejection::TEXT_LEN_MAX)]);
            return self.fail_saying(index, Failure::Rejected { code }, buffer);
        }
        let slot = &mut self.rpcs[index];
        // All of this RPC's own reply has come: the rest comes by others.
        if matches!(slot.phase, Phase::Fetching(_)) {
            self.metrics.duplicates += 1;
            return;
        }
        if let Phase::Calling(member) = &mut slot.phase {
            slot.phase = Phase::Hearing(std::mem::take(member));
            let peer = &mut self.peers[slot.peer];
            // A question does not spoil the sample, as long as it made neither side repeat itself:
            // or a server that is slower than the first timeout would never be known to be.
            if !slot.out.has_repeated && header.retransmit == 0 {
                peer.state.times.reply.sample(now.saturating_sub(slot.timing.sent_at));
            }
            peer.state.pace.note_reply(now, peer.calls - 1);
            peer.state.knows_flags = header.flags().has(DataFlags::KNOWN);
            peer.note_long(header.flags(), &self.config);
            // The server has all of the request, whatever it was to be sent again.
            self.egress.unrank(index);
            if header.message_length.get() as usize > self.config.message_len_max {
                self.metrics.failed += 1;
                return self.fail(index, Failure::ReplyTooLarge);
            }
            if self.is_whole(header, payload) {
                let message = self.take_whole(now, index, header, payload);
                return self.finish(now, index, header.flags(), message);
            }
            self.begin_incoming(index, header);
            if (payload.len() as u32) < header.message_length.get() {
                self.arm(now, index);
            }
        }
        if self.accept(now, index, header, payload) {
            let message = self.take_message(now, index, header.flags());
            self.finish(now, index, header.flags(), message);
        }
    }

    /// Nothing listens at `address`. Ends the calls to it where that does no harm: the idempotent
    /// ones, and all where it has never answered anything: it was hardly there.
    pub(super) fn end_unreachable(&mut self, now: Time, address: SocketAddr) {
        let Some(peer) = self.peers.find(address) else {
            return;
        };
        let is_stranger = !self.peers[peer].state.is_heard;
        // Each packet to a dead host may draw an ICMP, and a look goes over all slots.
        if !self.unreachable_look.may_look(now, self.rpcs.places()) {
            return;
        }
        for place in 0..self.rpcs.places() {
            let Some(index) = self.rpcs.in_place(place) else {
                continue;
            };
            let slot = &self.rpcs[index];
            let is_unanswered = matches!(slot.phase, Phase::Calling(_)) && slot.peer == peer;
            if is_unanswered && (slot.options.idempotent || is_stranger) {
                self.metrics.unreachable += 1;
                self.fail(index, Failure::Unreachable);
            }
        }
    }

    /// Ends a call without an answer; that of which the RPC is a part, where it is one.
    pub(super) fn fail(&mut self, index: SlotId, failure: Failure) {
        self.fail_saying(index, failure, Vec::new());
    }

    fn fail_saying(&mut self, index: SlotId, failure: Failure, text: Vec<u8>) {
        let is_answer = matches!(failure, Failure::Refused(_) | Failure::Rejected { .. });
        if is_answer {
            self.acknowledge_reply(index, 1);
        }
        let server = match failure {
            Failure::Deadline | Failure::Unreachable => None,
            _ => Some(self.peers[self.rpcs[index].peer].address),
        };
        let call = self.rpcs[index].phase.call().unwrap_or(index);
        let failure = match failure {
            // Who is refused a part of the reply has been served.
            Failure::Refused(_) if matches!(self.rpcs[call].phase, Phase::Fetching(_)) => {
                Failure::Refused(DropReason::Uncertain)
            }
            failure => failure,
        };
        let (id, context) = (CallId(self.handle_of(call)), self.rpcs[call].client.context);
        let retry_after_ns = 0;
        self.events.push_back(Event::Failed { id, context, failure, server, text, retry_after_ns });
        // An RPC that was answered is among the acknowledgements; of the others its server would
        // hear nothing.
        if is_answer && call == index { self.release(call) } else { self.give_up(call) }
    }

    /// Ends a call that nobody waits for, and tells the server: who has an acknowledgement lets go
    /// of the RPC.
    pub(super) fn give_up(&mut self, index: SlotId) {
        let slot = &self.rpcs[index];
        // Before that, no server knows of it.
        if slot.timing.first_sent_at != 0 {
            let (ports, id) = (slot.ports, slot.id);
            let (to, addressee) = (self.path_of(index), self.addressee_of(index));
            self.push_control(Control::Ack { to, ports, id, addressee });
        }
        self.release(index);
    }

    /// All of a reply has come.
    fn finish(&mut self, now: Time, index: SlotId, flags: DataFlags, payload: Vec<u8>) {
        if flags.has(DataFlags::PART) && self.seal.is_some() {
            // Who is sealed sends long messages as they are.
            self.metrics.protocol_violation += 1;
            self.buffers.give(payload);
            return self.fail(index, Failure::Refused(DropReason::Unspecified));
        }
        if flags.has(DataFlags::PART) || self.rpcs[index].phase.call().is_some() {
            return self.take_reply_part(now, index, payload);
        }
        self.answer(index, payload);
    }

    /// Ends a call with its reply.
    pub(super) fn answer(&mut self, index: SlotId, payload: Vec<u8>) {
        self.acknowledge_reply(index, payload.len());
        let slot = &self.rpcs[index];
        let (id, context, server) =
            (CallId(self.handle_of(index)), slot.client.context, self.peers[slot.peer].address);
        self.metrics.replied += 1;
        self.events.push_back(Event::Replied { id, context, server, payload });
        self.release(index);
    }

    /// Takes note that the server of an RPC, whose reply has just come, is to be told that it may
    /// release it.
    pub(super) fn acknowledge_reply(&mut self, index: SlotId, reply_len: usize) {
        let slot = &self.rpcs[index];
        let (peer, now) = (slot.peer, slot.timing.heard_at);
        let (id, server_port) = (slot.id, slot.ports.destination);
        let Peer { calls, state, .. } = &mut self.peers[peer];
        let action = state.acks.push(id, server_port, reply_len);
        // The kernel's module asks for ever, and the next call to it may be far away.
        let is_last = *calls == 1 && !state.knows_flags;
        if action == AckAction::Now || is_last && state.acks.call() == AckAction::Now {
            self.egress.acks_called.push_back(peer);
        }
        if action == AckAction::Later {
            // Before the server asks.
            let due = now.saturating_add(self.config.recovery.need_ack_ns / 2);
            self.egress.acks_due.push_back((due, peer));
        }
    }

    /// Has those acknowledgements said that no packet has taken along.
    pub(super) fn say_late_acks(&mut self, now: Time) {
        while let Some(&(_, peer)) = self.egress.acks_due.front().filter(|(at, _)| *at <= now) {
            self.egress.acks_due.pop_front();
            if self.peers[peer].state.acks.expire() {
                self.egress.acks_called.push_back(peer);
            }
        }
    }
}
