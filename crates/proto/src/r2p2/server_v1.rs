//! The server's rules towards version 1 clients: packets strictly in order, one acknowledgement of
//! exactly three bytes, DROP to refuse, at most 254 packets, replies in one burst and then
//! released, since request ids are used again.

use std::net::{IpAddr, SocketAddr};

use tailcut_wire::r2p2::{
    BASE_LEN, DropReason, FeedbackV1, MessageType, Packet, Policy, Segment, V1_ACK, V1_DROP,
    V1_PACKETS_MAX, V1_SEGMENT_LEN, V1Repr,
};
use zerocopy::IntoBytes;

use super::incoming::InOrder;
use super::server::{Admission, Control, Phase, Server};
use super::shared::Shared;
use super::terms::Terms;
use crate::address::AddressKey;
use crate::gso_batch::GsoBatch;
use crate::node::{Path, Time};
use crate::peer::cookies::Extent;
use crate::peer::limits::Serving;
use crate::rpc::{AnswerError, CallOptions};
use crate::sealed::ClientEpoch;
use tailcut_placement::slab::SlotId;

impl Server {
    pub(super) fn handle_request_v1(
        &mut self,
        now: Time,
        path: Path,
        packet: &Packet,
        shared: &mut Shared,
    ) {
        let known = self.live_v1.get(&(AddressKey(path.peer), packet.rid)).copied();
        match (known, packet.index) {
            // The published client aborts at a second ACK.
            (Some(_), 0) => shared.metrics.repeated += 1,
            (Some(index), _) => self.continue_v1(now, index, packet, shared),
            (None, 0) => self.begin_v1(now, path, packet, shared),
            (None, _) => shared.metrics.unknown += 1,
        }
    }

    pub(super) fn reply_v1(
        &mut self,
        index: SlotId,
        payload: Vec<u8>,
        shared: &mut Shared,
    ) -> Result<(), AnswerError> {
        let len = payload.len();
        let limit =
            (usize::from(V1_PACKETS_MAX) * V1_SEGMENT_LEN).min(shared.config.message_len_max);
        // An empty reply is a packet too.
        let wire_len = len + len.div_ceil(V1_SEGMENT_LEN).max(1) * BASE_LEN;
        let slot = &self.slots[index];
        let is_affordable =
            self.clients[slot.client].is_validated || slot.allowance.covers(wire_len);
        if len > limit || !is_affordable {
            let reason = if is_affordable { DropReason::TooLarge } else { DropReason::Unvalidated };
            let error = if is_affordable {
                AnswerError::TooLarge { len, limit }
            } else {
                AnswerError::Unvalidated
            };
            self.drop_v1(slot.path, slot.rid, reason, shared);
            self.report_v1(index, shared);
            self.release(index, shared);
            shared.buffers.give(payload);
            return Err(error);
        }
        let slot = &mut self.slots[index];
        slot.reply.begin(payload.into(), V1_SEGMENT_LEN as u16, u16::MAX);
        slot.phase = Phase::Replying;
        self.held.waiting -= 1;
        self.hold(index, len);
        self.queue_data(index);
        self.report_v1(index, shared);
        Ok(())
    }

    fn begin_v1(&mut self, now: Time, path: Path, packet: &Packet, shared: &mut Shared) {
        let peer = path.peer;
        let serving = &shared.config.serving;
        if !serving.is_enabled {
            return self.drop_v1(path, packet.rid, DropReason::Application, shared);
        }
        if self.stopping_since.is_some() {
            return self.drop_v1(path, packet.rid, DropReason::Stopping, shared);
        }
        self.turn(now);
        let is_loaded = self.waiting_len() > 0;
        if self.cookies.are_asked(now, is_loaded, Extent::of(packet))
            && !serving.is_trusted(peer.ip())
        {
            // It knows no cookies.
            return self.drop_v1(path, packet.rid, DropReason::Unvalidated, shared);
        }
        let client = match self.clients.find(peer) {
            None if self.clients.has_room_for_unvalidated(now, serving) => {
                self.add_client(now, peer, &shared.config)
            }
            found => found,
        };
        let Some(client) = client.filter(|&client| {
            !self.is_full(client, packet.payload.len(), packet.count > 1, serving)
        }) else {
            return self.drop_v1(path, packet.rid, DropReason::Overload, shared);
        };
        self.validate_client(client, packet, peer, serving);
        let deadline = now + shared.config.lifetime_ns_max;
        let bytes_in = BASE_LEN + packet.payload.len();
        let (rid, rpc_id, clock_us, via) = (packet.rid, None, 0, None);
        let options = CallOptions { v1: true, ..CallOptions::default() };
        let admission = Admission {
            client,
            sender: ClientEpoch::default(),
            path,
            rid,
            rpc_id,
            terms: Terms { options, ..Terms::default() },
            clock_us,
            via,
            deadline,
            bytes_in,
            bytes_out: 0,
        };
        let index = self.take_slot(admission);
        self.live_v1.insert((AddressKey(peer), packet.rid), index);
        let mut payload = shared.buffers.take();
        if packet.count == 1 {
            payload.extend_from_slice(packet.payload);
            return self.deliver(index, payload, shared);
        }
        let mut request = InOrder::begin(payload, packet.count);
        request.accept(packet.payload);
        self.slots[index].phase = Phase::ReceivingV1(request);
        self.held.partials += 1;
        self.clients.begin_partial(self.slots[index].client);
        self.expect_v1(now, index, &shared.config.serving);
        // However much waits, since its client asks once; the limit on partial requests bounds it.
        self.queue.push_control(Control::AckV1 { to: path, rid });
    }

    fn continue_v1(&mut self, now: Time, index: SlotId, packet: &Packet, shared: &mut Shared) {
        let is_crowded = self.is_crowded(index, packet.payload.len(), &shared.config.serving);
        let slot = &mut self.slots[index];
        let request = match &mut slot.phase {
            Phase::ReceivingV1(request) if packet.index >= request.next() => request,
            _ => {
                shared.metrics.duplicates += 1;
                return;
            }
        };
        let is_last_rightly = packet.is_last == (packet.index + 1 == request.count());
        let len = request.len() + packet.payload.len();
        let is_wrong = packet.index != request.next()
            || !is_last_rightly
            || len > shared.config.message_len_max;
        // Nothing is said, as by the published server: a DROP answers packet 0 alone.
        if is_wrong || is_crowded {
            shared.metrics.protocol_violation += 1;
            self.report_v1(index, shared);
            return self.release(index, shared);
        }
        slot.allowance.received += (BASE_LEN + packet.payload.len()) as u64;
        if !request.accept(packet.payload) {
            self.hold(index, len);
            return self.expect_v1(now, index, &shared.config.serving);
        }
        let payload = request.take();
        self.held.partials -= 1;
        self.clients.end_partial(self.slots[index].client);
        self.deliver(index, payload, shared);
    }

    /// Sets when a request that is being received expires.
    fn expect_v1(&mut self, now: Time, index: SlotId, serving: &Serving) {
        let expiry = self.slots[index].deadline.min(now + serving.partial_ns_max);
        self.wheel.arm(index, expiry);
    }

    fn drop_v1(&mut self, to: Path, rid: u16, reason: DropReason, shared: &mut Shared) {
        shared.metrics.drop(reason);
        self.queue_control(Control::DropV1 { to, rid }, shared);
    }

    /// Writes the reply packets; `false` when some did not fit. What has gone is not sent again.
    pub(super) fn write_data_v1(
        &mut self,
        index: SlotId,
        batch: &mut GsoBatch,
        shared: &mut Shared,
    ) -> bool {
        let slot = &mut self.slots[index];
        while let Some(packet) = slot.reply.peek() {
            let Segment { count, .. } = slot.reply.place(packet);
            let payload = slot.reply.segment(packet);
            let Some(room) = batch.room(slot.path, BASE_LEN + payload.len()) else {
                return false;
            };
            let (kind, policy) = (MessageType::Response, Policy::Fixed);
            let repr = V1Repr { kind, policy, rid: slot.rid, index: packet, count };
            repr.emit(room).copy_from_slice(payload);
            slot.reply.sent(packet);
        }
        // The client never asks again, and soon uses the id for another call.
        self.release(index, shared);
        true
    }

    /// Tells a router that lends a place for each version 1 request that this one is free again.
    pub(super) fn report_v1(&mut self, index: SlotId, shared: &mut Shared) {
        let slot = &self.slots[index];
        if let Some(peer) = shared.config.pool.router.filter(|_| slot.rpc_id.is_none()) {
            let to = Path { peer, ..slot.path };
            shared.metrics.feedback += 1;
            let (client, rid) = (slot.path.peer, slot.rid);
            self.queue.push_control(Control::FeedbackV1 { to, client, rid });
        }
    }
}

/// Writes a packet of no request; `false` when it did not fit.
pub(super) fn write_control_v1(batch: &mut GsoBatch, control: Control) -> bool {
    let ip_of = |client: SocketAddr| match client.ip() {
        IpAddr::V4(ip) => ip.octets(),
        // Version 1 knows IPv4 alone, and the published router goes by the report's source.
        IpAddr::V6(_) => [0; 4],
    };
    let feedback;
    let (to, kind, policy, rid, body): (_, _, _, _, &[u8]) = match control {
        Control::AckV1 { to, rid } => (to, MessageType::Ack, Policy::Fixed, rid, V1_ACK),
        Control::DropV1 { to, rid } => (to, MessageType::Drop, Policy::Fixed, rid, V1_DROP),
        Control::FeedbackV1 { to, client, rid } => {
            feedback = FeedbackV1 {
                rid: rid.into(),
                client_port: client.port().into(),
                client_ip: ip_of(client),
            };
            (to, MessageType::Feedback, Policy::Unrestricted, 0, feedback.as_bytes())
        }
        _ => return true,
    };
    let Some(room) = batch.room(to, BASE_LEN + body.len()) else {
        return false;
    };
    V1Repr::control(kind, policy, rid).emit(room).copy_from_slice(body);
    true
}
