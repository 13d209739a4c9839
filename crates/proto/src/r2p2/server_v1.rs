//! The server's rules towards version 1 clients: packets strictly in order, one acknowledgement of
//! exactly three bytes, DROP to refuse, at most 254 packets, replies in one burst and then
//! forgotten, since request ids are used again.

use std::net::{IpAddr, SocketAddr};

use tailcut_wire::r2p2::{
    BASE_LEN, DropReason, FeedbackV1, MessageType, Packet, Policy, V1_ACK, V1_DROP, V1_PACKETS_MAX,
    V1_SEGMENT_LEN, V1Repr,
};
use zerocopy::IntoBytes;

use super::server::{Admission, Item, Phase, Server, Slot};
use super::shared::Shared;
use crate::address::AddressKey;
use crate::node::{Path, Time};
use crate::rpc::AnswerError;
use crate::train::Train;

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
            (Some(_), 0) => shared.metrics.repeated += 1,
            (Some(index), _) => self.continue_v1(now, index, packet, shared),
            (None, 0) => self.begin_v1(now, path, packet, shared),
            (None, _) => shared.metrics.unknown += 1,
        }
    }

    pub(super) fn reply_v1(
        &mut self,
        index: u32,
        payload: Vec<u8>,
        shared: &mut Shared,
    ) -> Result<(), AnswerError> {
        let len = payload.len();
        let limit =
            (usize::from(V1_PACKETS_MAX) * V1_SEGMENT_LEN).min(shared.config.message_len_max);
        let wire_len = len + len.div_ceil(V1_SEGMENT_LEN).max(1) * BASE_LEN;
        let slot = &self.slots[index as usize];
        let is_affordable = self.is_validated(index) || wire_len as u64 <= 3 * slot.bytes_in;
        if len > limit || !is_affordable {
            let reason = if is_affordable { DropReason::TooLarge } else { DropReason::Unvalidated };
            let error = if is_affordable {
                AnswerError::TooLarge { len, limit }
            } else {
                AnswerError::Unvalidated
            };
            self.drop_v1(slot.path(), slot.rid, reason, shared);
            self.report_v1(index, shared);
            self.release(index, shared);
            shared.buffers.give(payload);
            return Err(error);
        }
        let slot = &mut self.slots[index as usize];
        slot.reply.begin(payload, V1_SEGMENT_LEN as u16, u16::MAX);
        slot.phase = Phase::Replying;
        self.end_waiting_v1();
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
        let client = match self.clients.find(peer) {
            None if self.clients.takes_unproven(now, serving) => {
                self.clients.add(now, peer, serving)
            }
            found => found,
        };
        let Some(client) = client.filter(|&client| {
            !self.is_full(client, packet.payload.len(), packet.count > 1, serving)
        }) else {
            return self.drop_v1(path, packet.rid, DropReason::Overload, shared);
        };
        self.clients.record_mut(client).validate(0, peer, serving);
        let deadline = now + shared.config.lifetime_ns_max;
        let bytes_in = (BASE_LEN + packet.payload.len()) as u64;
        let index = self.take_slot(Admission { client, path, rid: packet.rid, deadline, bytes_in });
        self.live_v1.insert((AddressKey(peer), packet.rid), index);
        let mut payload = shared.buffers.take();
        payload.extend_from_slice(packet.payload);
        let slot = &mut self.slots[index as usize];
        slot.is_v1 = true;
        if packet.count == 1 {
            return self.deliver(index, payload, shared);
        }
        slot.v1_request = payload;
        slot.v1_count = packet.count;
        slot.v1_next = 1;
        self.count_partial_v1(index);
        self.expect_v1(now, index, &shared.config.serving);
        self.queue.push_back(Item::AckV1 { to: path, rid: packet.rid });
    }

    fn continue_v1(&mut self, now: Time, index: u32, packet: &Packet, shared: &mut Shared) {
        let slot = &mut self.slots[index as usize];
        if slot.phase != Phase::Receiving || packet.index < slot.v1_next {
            shared.metrics.duplicates += 1;
            return;
        }
        let is_last_rightly = packet.is_last == (packet.index + 1 == slot.v1_count);
        let len = slot.v1_request.len() + packet.payload.len();
        let is_wrong =
            packet.index != slot.v1_next || !is_last_rightly || len > shared.config.message_len_max;
        if is_wrong || self.is_crowded(index, packet.payload.len(), &shared.config.serving) {
            shared.metrics.contradicted += 1;
            self.report_v1(index, shared);
            return self.release(index, shared);
        }
        let slot = &mut self.slots[index as usize];
        slot.v1_request.extend_from_slice(packet.payload);
        slot.bytes_in += (BASE_LEN + packet.payload.len()) as u64;
        slot.v1_next += 1;
        if slot.v1_next < slot.v1_count {
            self.hold(index, len);
            return self.expect_v1(now, index, &shared.config.serving);
        }
        let payload = std::mem::take(&mut slot.v1_request);
        self.end_partial_v1(index);
        self.deliver(index, payload, shared);
    }

    fn drop_v1(&mut self, to: Path, rid: u16, reason: DropReason, shared: &mut Shared) {
        shared.metrics.drop(reason);
        self.queue_control(Item::DropV1 { to, rid }, shared);
    }

    /// Tells a router that lends a place for each version 1 request that this one is free again.
    pub(super) fn report_v1(&mut self, index: u32, shared: &mut Shared) {
        let slot = &self.slots[index as usize];
        if let Some(peer) = shared.config.serving.router.filter(|_| slot.is_v1) {
            let to = Path { local: slot.local, peer };
            shared.metrics.feedback += 1;
            self.queue.push_back(Item::FeedbackV1 { to, client: slot.address, rid: slot.rid });
        }
    }
}

/// Writes packet `packet` of a version 1 reply; `false` when it did not fit.
pub(super) fn write_packet_v1(slot: &Slot, packet: u16, train: &mut Train) -> bool {
    let payload = slot.reply.segment(packet);
    let count = slot.reply.count();
    let Some(room) = train.room(slot.path(), BASE_LEN + payload.len()) else {
        return false;
    };
    let (kind, policy) = (MessageType::Response, Policy::Fixed);
    let repr = V1Repr { kind, policy, rid: slot.rid, index: packet, count };
    repr.emit(room).copy_from_slice(payload);
    true
}

/// Writes a version 1 item; `false` when it did not fit.
pub(super) fn write_item_v1(train: &mut Train, item: Item) -> bool {
    let ip_of = |client: SocketAddr| match client.ip() {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(_) => [0; 4],
    };
    let feedback;
    let (to, kind, policy, rid, body): (_, _, _, _, &[u8]) = match item {
        Item::AckV1 { to, rid } => (to, MessageType::Ack, Policy::Fixed, rid, V1_ACK),
        Item::DropV1 { to, rid } => (to, MessageType::Drop, Policy::Fixed, rid, V1_DROP),
        Item::FeedbackV1 { to, client, rid } => {
            feedback = FeedbackV1 {
                rid: rid.into(),
                client_port: client.port().into(),
                client_ip: ip_of(client),
            };
            (to, MessageType::Feedback, Policy::Unrestricted, 0, feedback.as_bytes())
        }
        _ => return true,
    };
    let Some(room) = train.room(to, BASE_LEN + body.len()) else {
        return false;
    };
    V1Repr::control(kind, policy, rid).emit(room).copy_from_slice(body);
    true
}
