//! The client's rules towards version 1 peers, which abort or misbehave at anything else: 14 bytes
//! in the first packet of a longer request, the rest in one burst to whoever acknowledged it,
//! replies in order, and no retransmission but of requests that are idempotent and fit one packet.

use tailcut_wire::r2p2::{
    BASE_LEN, MessageType, Packet, Policy, V1_ACK, V1_FIRST_LEN, V1_PACKETS_MAX, V1_SEGMENT_LEN,
    V1Repr,
};

use super::client::{Client, Slot};
use super::incoming::InOrder;
use super::shared::Shared;
use crate::gso_batch::GsoBatch;
use crate::message::payload::Payload;
use crate::node::{Path, Time};
use crate::rpc::Failure;
use tailcut_placement::slab::SlotId;

impl Client {
    /// Gives the call a request id that is free, and its packets.
    pub(super) fn begin_v1(&mut self, index: SlotId, payload: Payload) {
        loop {
            self.v1_last_rid = self.v1_last_rid.wrapping_add(1);
            if !self.v1_slots.contains_key(&self.v1_last_rid) {
                break;
            }
        }
        self.v1_slots.insert(self.v1_last_rid, index);
        let slot = &mut self.slots[index];
        slot.rid = self.v1_last_rid;
        let lead = if payload.len() <= V1_SEGMENT_LEN { 0 } else { V1_SEGMENT_LEN - V1_FIRST_LEN };
        slot.request.begin_after_lead(payload, V1_SEGMENT_LEN as u16, lead as u16, 1);
    }

    pub(super) fn handle_ack_v1(
        &mut self,
        now: Time,
        path: &Path,
        packet: &Packet,
        shared: &mut Shared,
    ) {
        let Some(&index) = self.v1_slots.get(&packet.rid) else {
            shared.metrics.unknown += 1;
            return;
        };
        let slot = &mut self.slots[index];
        if packet.payload != V1_ACK || slot.request.count() == 1 || slot.server.is_some() {
            shared.metrics.protocol_violation += 1;
            return;
        }
        slot.local = path.local;
        slot.request.grant(u16::MAX);
        self.slots[index].server = Some(self.party(now, path.peer, shared));
        self.queue_data(index);
        self.arm_retry(now, index, &shared.config);
    }

    pub(super) fn handle_response_v1(
        &mut self,
        now: Time,
        path: &Path,
        packet: &Packet,
        shared: &mut Shared,
    ) {
        let Some(&index) = self.v1_slots.get(&packet.rid) else {
            shared.metrics.unknown += 1;
            return;
        };
        let slot = &mut self.slots[index];
        if packet.index < slot.reply_v1.next() {
            shared.metrics.duplicates += 1;
            return;
        }
        let is_expected = packet.index == slot.reply_v1.next()
            && (packet.index == 0 || slot.server_address() == Some(path.peer));
        if !is_expected || packet.count > V1_PACKETS_MAX {
            shared.metrics.failed += 1;
            return self.fail(index, Failure::Broken, shared);
        }
        if packet.index == 0 {
            slot.reply_v1 = InOrder::begin(shared.buffers.take(), packet.count);
            self.slots[index].server = Some(self.party(now, path.peer, shared));
        }
        let slot = &mut self.slots[index];
        if slot.reply_v1.accept(packet.payload) {
            let payload = slot.reply_v1.take();
            self.finish(index, (path.peer, 1), payload, shared);
        } else {
            self.arm_retry(now, index, &shared.config);
        }
    }
}

impl Slot {
    /// Writes packet `packet` of the request; `false` when it did not fit.
    pub(super) fn write_packet_v1(&self, packet: u16, batch: &mut GsoBatch) -> bool {
        // What follows the first packet goes to the server that has taken that.
        let to = if packet == 0 { Some(self.target) } else { self.server };
        let Some(to) = to else {
            return true;
        };
        let payload = self.request.segment(packet);
        let Some(room) = batch.room(self.ends(to.address), BASE_LEN + payload.len()) else {
            return false;
        };
        let policy = if self.options.fixed { Policy::Fixed } else { Policy::Unrestricted };
        let (kind, count) = (MessageType::Request, self.request.count());
        let repr = V1Repr { kind, policy, rid: self.rid, index: packet, count };
        repr.emit(room).copy_from_slice(payload);
        true
    }
}
