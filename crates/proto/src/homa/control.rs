//! Control packets, and what they are believed.
//!
//! | packet | at who sends the message | at who receives it | where the RPC is unknown |
//! |---|---|---|---|
//! | GRANT | more may go | nothing | nothing |
//! | RESEND | the range goes again, as far as it was sent; BUSY for the rest. Of all: the first packet, and the rest as it is granted | BUSY | RPC_UNKNOWN |
//! | RPC_UNKNOWN | client that has asked: the same | who has asked: the RPC ends | nothing |
//! | the same, of a server without a key of its epoch | client: it begins again under another key, or ends | nothing | nothing |
//! | NEED_ACK | | client: asks for what is missing; BUSY when it has just come or been asked for | ACK |
//! | ACK | server: the RPC ends | server: the RPC ends | nothing |
//! | CUTOFFS | the peer's priorities; told twice, the address is validated | the same | nothing |

use tailcut_wire::homa::{Ack, CutoffsPacket, GrantPacket, PacketType, Ports, RESEND_ALL, Resend};
use tailcut_wire::r2p2::DropReason;

use super::cutoffs::Cutoffs;
use super::ids::ClientId;
use super::transmit::Control;
use super::{Endpoint, Found, Origin, Phase, UnscheduledRank};
use crate::node::Time;
use crate::rpc::Failure;
use tailcut_placement::slab::SlotId;

impl Endpoint {
    pub(super) fn handle_grant(&mut self, now: Time, origin: &Origin, grant: &GrantPacket) {
        let Some(index) = self.hear(now, origin) else {
            return;
        };
        let slot = &mut self.rpcs[index];
        if !matches!(slot.phase, Phase::Calling(_) | Phase::Replying(_)) {
            self.metrics.unexpected += 1;
            return;
        }
        let is_within = match self.config.priorities.rank {
            UnscheduledRank::Message => slot.out.grant(grant.offset.get(), grant.priority),
            UnscheduledRank::Remaining => slot.out.grant_apart(grant.offset.get(), grant.priority),
        };
        if is_within {
            self.rank_out(index);
        } else {
            self.metrics.protocol_violation += 1;
        }
    }

    pub(super) fn handle_resend(&mut self, now: Time, origin: &Origin, resend: Resend) {
        let index = match self.find(origin) {
            _ if self.is_stranger() => return self.introduce(origin),
            Found::Rpc(index) => index,
            Found::Nothing => return self.say_unknown(origin),
            Found::OtherPorts => {
                self.metrics.protocol_violation += 1;
                return;
            }
        };
        self.touch(now, origin, index);
        match self.rpcs[index].phase {
            // The client misses its reply since part of its request has been lost.
            Phase::Receiving(_) if self.is_starved(now, index) => return self.ask(now, index),
            Phase::Receiving(_) | Phase::Waiting | Phase::Parked(_) => return self.say_busy(index),
            Phase::Calling(_) | Phase::Replying(_) => {}
            Phase::Hearing(_) | Phase::Fetching(_) => {
                self.metrics.unexpected += 1;
                return;
            }
        }
        let slot = &mut self.rpcs[index];
        let Resend { offset: from, length, .. } = resend;
        let is_all = length == RESEND_ALL;
        // In this order: both are the peer's words, and the difference must not wrap.
        if from > slot.out.len() || !is_all && length > slot.out.len() - from {
            self.metrics.protocol_violation += 1;
            return;
        }
        // What has just gone crosses the question.
        let peer = &self.peers[slot.peer];
        let guard_ns = peer.state.times.rtt.smoothed_or(CROSSING_NS);
        if is_all && slot.out.sent_len() == 0 && !slot.server.is_validated {
            // It may wait for a proof that has been lost.
            return self.rank_out(index);
        }
        let priority = resend.priority.unwrap_or_else(|| peer.state.cutoffs.level(slot.out.len()));
        let to = if is_all { slot.out.sent_len() } else { from + length };
        if to > slot.out.granted() {
            // The grant was lost.
            slot.out.grant(to, priority);
        }
        // The end of what was sent may not have left yet, or crosses the question; a hole below it
        // has.
        let is_end = to >= slot.out.sent_len();
        let is_waiting = is_end
            && (self.egress.device.may_hold(now, slot.timing.sent_at)
                || now.saturating_sub(slot.timing.sent_at) < guard_ns);
        let resent = match (is_waiting, is_all) {
            (true, _) => 0,
            (false, true) => self.fall_back(index, priority),
            (false, false) => slot.out.resend(from, to, priority),
        };
        if resent == 0 {
            self.say_busy(index);
        }
        self.rank_out(index);
    }

    pub(super) fn handle_unknown(&mut self, now: Time, origin: &Origin) {
        let told = self.seal.as_mut().and_then(|seal| seal.take_no_key());
        let Found::Rpc(index) = self.find(origin) else {
            self.metrics.unknown += 1;
            return;
        };
        if let Some(told) = told {
            return self.handle_no_key(now, (index, told));
        }
        let slot = &mut self.rpcs[index];
        // It answers a question, so that who has not asked since it last sent does not believe it.
        let has_asked = match slot.phase {
            Phase::Replying(_) => slot.timing.need_acks > 0,
            _ => slot.timing.attempts > 0 && slot.timing.asked_at >= slot.timing.sent_at,
        };
        if !has_asked {
            self.metrics.unexpected += 1;
            return;
        }
        self.touch(now, origin, index);
        let slot = &mut self.rpcs[index];
        match slot.phase {
            Phase::Calling(_) => {
                let priority = self.peers[slot.peer].state.cutoffs.level(slot.out.len());
                self.fall_back(index, priority);
                self.rank_out(index);
            }
            Phase::Hearing(_) => {
                // The server has released the reply.
                self.metrics.refused += 1;
                self.fail(index, Failure::Refused(DropReason::Uncertain));
            }
            // Its client knows nothing of it any more: no more comes, and nobody waits.
            Phase::Receiving(_) | Phase::Replying(_) => self.release(index),
            Phase::Waiting | Phase::Parked(_) | Phase::Fetching(_) => self.metrics.unexpected += 1,
        }
    }

    pub(super) fn handle_cutoffs(&mut self, now: Time, origin: &Origin, packet: &CutoffsPacket) {
        let Some(index) = self.hear(now, origin) else {
            return;
        };
        let slot = &mut self.rpcs[index];
        let peer = &mut self.peers[slot.peer];
        let (version, tag) = (packet.version.get(), packet.common.window.get());
        let is_known = peer.state.cutoffs.version == version && peer.state.shown.tag_told == tag;
        if is_known && matches!(slot.phase, Phase::Calling(_) | Phase::Hearing(_)) {
            // It has not heard the version back for a while. Where it validates our address by
            // that, the reply, or the rest of it, waits for a packet that says it.
            let priority = peer.state.cutoffs.level(slot.out.len());
            let (first_len, _) = self.config.framing.lens(&slot.out, peer.state.takes_long);
            slot.out.resend(0, first_len.min(slot.out.sent_len()), priority);
            self.rank_out(index);
        } else {
            peer.state.cutoffs =
                Cutoffs { by_level: packet.cutoffs.map(|cutoff| cutoff.get()), version };
            peer.state.shown.tag_told = tag;
        }
    }

    pub(super) fn handle_need_ack(&mut self, now: Time, origin: &Origin) {
        // A server asks, and of what this side has as a client.
        if origin.common.local_id() & 1 != 0 {
            self.metrics.unexpected += 1;
            return;
        }
        match self.find(origin) {
            Found::Rpc(index) => {
                self.touch(now, origin, index);
                if self.is_starved(now, index) {
                    self.ask(now, index);
                } else {
                    self.say_busy(index);
                }
            }
            // It has ended here: unanswered, the server would keep its reply and ask on.
            Found::Nothing => {
                let Ports { source, destination } = origin.common.ports();
                let ports = Ports { source: destination, destination: source };
                let id = ClientId(origin.common.local_id());
                let addressee = self.addressee();
                self.push_control(Control::Ack { to: origin.path, ports, id, addressee });
            }
            Found::OtherPorts => self.metrics.protocol_violation += 1,
        }
    }

    pub(super) fn handle_ack(&mut self, now: Time, origin: &Origin, acks: &[Ack]) {
        if let Found::Rpc(index) = self.find(origin) {
            let slot = &self.rpcs[index];
            // After several questions nobody knows which of them it answers.
            if matches!(slot.phase, Phase::Replying(_)) && slot.timing.need_acks == 1 {
                // It answers the question.
                self.peers[slot.peer]
                    .state
                    .times
                    .rtt
                    .sample(now.saturating_sub(slot.timing.asked_at));
            }
        }
        let named = (ClientId(origin.common.sender_id.get()), origin.common.dport.get());
        self.acknowledge(now, origin, named);
        self.acknowledge_all(now, origin, acks);
    }

    /// Has all that went of a message sent again, of which nothing has come: its first packet, and
    /// then what the receiver grants. Tells how many bytes will.
    fn fall_back(&mut self, index: SlotId, priority: u8) -> u32 {
        let slot = &mut self.rpcs[index];
        let state = &self.peers[slot.peer].state;
        let (first_len, _) = self.config.framing.lens(&slot.out, state.takes_long);
        // To who grants nothing it goes whole again, and so does what was one packet.
        if state.is_stripped || slot.out.sent_len() <= first_len {
            return slot.out.resend(0, slot.out.sent_len(), priority);
        }
        slot.out.fall_back(first_len)
    }

    /// Tells the peer of an RPC our cutoffs.
    pub(super) fn advise(&mut self, now: Time, index: SlotId) {
        let peer = &mut self.peers[self.rpcs[index].peer];
        peer.state.shown.advised = Some((now, peer.echo(self.advice.cutoffs.version)));
        self.push_control(Control::Cutoffs { rpc: self.rpcs.key(index) });
    }

    /// Queues a packet that must not go out without bound.
    pub(super) fn push_control(&mut self, control: Control) {
        if self.egress.control.len() < self.config.control_len_max {
            self.egress.control.push_back(control);
        } else {
            self.metrics.control_dropped_queue_full += 1;
        }
    }

    fn say_busy(&mut self, index: SlotId) {
        let rpc = self.rpcs.key(index);
        self.push_control(Control::Plain { rpc, packet_type: PacketType::Busy });
    }

    fn say_unknown(&mut self, origin: &Origin) {
        self.metrics.unknown += 1;
        self.answer_unknown(origin);
    }

    /// Answers that an RPC is not known.
    pub(super) fn answer_unknown(&mut self, origin: &Origin) {
        let Ports { source, destination } = origin.common.ports();
        let ports = Ports { source: destination, destination: source };
        let (to, local_id) = (origin.path, origin.common.local_id());
        let addressee = self.addressee();
        self.push_control(Control::Unknown { to, ports, local_id, addressee });
    }
}

/// A reply that went out less than this ago, where the round trip is not known, may not have
/// arrived.
const CROSSING_NS: u64 = 50_000;
