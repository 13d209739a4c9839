//! Packets that the client half sends: requests, acknowledgements of replies, farewells.

use tailcut_wire::r2p2::{
    EXTENDED_LEN, Flags, MessageType, Policy, ROUTED_LEN, RequestRepr, SackBody,
};
use zerocopy::IntoBytes;

use super::client::{Client, End, Farewell, Slot};
use super::copies::CopyState;
use super::pace::Start;
use super::queue::{Item, Written};
use super::servers::Proof;
use super::shared::Shared;
use crate::gso_batch::GsoBatch;
use crate::node::{Attached, Time, Transmit, clock_us};
use crate::peer::table::PeerId;
use tailcut_placement::slab::{SlotId, SlotKey};

impl Client {
    pub(super) fn poll_transmit(
        &mut self,
        now: Time,
        buffer: &mut [u8],
        shared: &mut Shared,
    ) -> Option<Transmit> {
        let mut batch = GsoBatch::with_trailer(buffer, shared.trailer_len());
        self.queue.begin_batch();
        while let Some(item) = self.queue.front() {
            let (key, written) = match item {
                Item::Data(key) => match self.slots.find(key) {
                    Some(index) => (Some(key), self.write_data(now, index, &mut batch, shared)),
                    None => (None, Written::All),
                },
                Item::Sack(key) => match self.slots.find(key) {
                    Some(index) => (None, Written::at_once(self.write_sack(index, &mut batch))),
                    None => (None, Written::All),
                },
                Item::Control(farewell) => (None, Written::at_once(farewell.write(&mut batch))),
            };
            if !self.queue.pass(key, written) {
                break;
            }
        }
        shared.metrics.datagrams_out += batch.count() as u64;
        batch.finish()
    }

    /// Writes the headers of a GSO batch of a long request, if that goes next.
    pub(super) fn poll_attached(
        &mut self,
        now: Time,
        buffer: &mut [u8],
        shared: &mut Shared,
    ) -> Option<(Transmit, Attached)> {
        let key = self.queue.front_data()?;
        let index = self.slots.find(key)?;
        let slot = &mut self.slots[index];
        // Before a server has taken it, there is packet 0 and what carries UNSCHEDULED.
        let to = slot.server?;
        // What waits for its turn, has other headers, or a copy that goes first is written whole.
        if slot.start != Start::Now || slot.options.v1 || matches!(slot.copy, CopyState::Wanted(_))
        {
            return None;
        }
        let segment_len = EXTENDED_LEN + usize::from(slot.request.segment_len());
        let run = slot.request.run(Attached::datagrams_max(segment_len, buffer))?;
        if run.0 == 0 {
            // Its header is longer.
            return None;
        }
        let floor = self.numbering.floor_of(slot.rpc_id.session().0);
        let token = self.servers[to.record].state.proof.token();
        let first = slot.first_packet(now, (token, floor));
        for (packet, room) in
            (run.0..).zip(buffer.chunks_exact_mut(EXTENDED_LEN)).take(run.1.into())
        {
            let mut repr = RequestRepr { segment: slot.request.place(packet), ..first };
            if slot.moves.is_moved {
                repr.flags |= Flags::MOVED;
            }
            repr.emit(room);
        }
        let attached = Attached {
            header_len: EXTENDED_LEN,
            message: key.0,
            is_reply: false,
            offset: 0,
            len: 0,
        };
        let attached = slot.request.sent_run(run, attached);
        slot.recovery.sent_at = now;
        let ends = slot.ends(to.address);
        // One batch holds no long request: it keeps its place until all of it has gone.
        if slot.request.peek().is_none() {
            slot.request.is_queued = false;
            self.queue.pop_front();
        }
        shared.metrics.datagrams_out += u64::from(run.1);
        let len = usize::from(run.1) * EXTENDED_LEN + attached.len;
        Some((ends.transmit(len, segment_len), attached))
    }

    /// The payload that it has left where it is.
    pub(super) fn attached(&self, attached: &Attached) -> &[u8] {
        let slot = self.slots.find(SlotKey(attached.message));
        slot.map_or(&[], |index| self.slots[index].request.attached(attached))
    }

    /// Writes the packets that the call may send.
    fn write_data(
        &mut self,
        now: Time,
        index: SlotId,
        batch: &mut GsoBatch,
        shared: &mut Shared,
    ) -> Written {
        let slot = &mut self.slots[index];
        if slot.start != Start::Now {
            // It was refused while it stood in the queue: it goes when its turn comes.
            slot.request.is_queued = false;
            return Written::All;
        }
        if slot.is_plain() && shared.seal.is_none() {
            return self.write_plain(now, index, batch);
        }
        if !self.write_copy(now, index, batch, shared) {
            return Written::Full;
        }
        let slot = &mut self.slots[index];
        while let Some(packet) = slot.request.peek() {
            let is_written = if slot.options.v1 {
                slot.write_packet_v1(packet, batch)
            } else {
                let floor = self.numbering.floor_of(slot.rpc_id.session().0);
                let to = slot.server.unwrap_or(slot.target);
                let proof = self.servers[to.record].state.proof;
                // Before it is written: a second name at one address makes it one that has moved.
                if let (0, Some(seal)) = (packet, &shared.seal) {
                    let is_again = slot.recovery.first_sent_at != 0;
                    slot.note_name(to.address, seal.name(now, to.address, is_again));
                }
                slot.write_packet(now, packet, (proof, floor), batch)
            };
            if !is_written {
                return Written::Full;
            }
            if packet == 0 {
                slot.moves.names.note_sent();
                if slot.recovery.first_sent_at == 0 {
                    // 0 stands for never.
                    slot.recovery.first_sent_at = now.max(1);
                } else {
                    slot.recovery.is_again = true;
                    shared.metrics.resent += 1;
                }
            }
            slot.request.sent(packet);
            slot.recovery.sent_at = now;
            // The next is of another length, and would end the batch, in which others can go on.
            if slot.request.is_uneven_after(packet) && self.queue.has_more() {
                return Written::Some;
            }
        }
        slot.request.is_queued = false;
        Written::All
    }

    /// Writes the packet of a plain call, as [`Client::write_data`] would, by fewer steps.
    #[inline]
    fn write_plain(&mut self, now: Time, index: SlotId, batch: &mut GsoBatch) -> Written {
        let slot = &mut self.slots[index];
        let target = slot.target;
        let floor = self.numbering.floor_of(slot.rpc_id.session().0);
        let proof = self.servers[target.record].state.proof;
        debug_assert_eq!(slot.request.peek(), Some(0), "nobody has taken it");
        let payload = slot.request.segment(0);
        let len = ROUTED_LEN + payload.len();
        let to = (target.record, slot.local);
        let Some(room) = batch.room_to(to, || target.address, len) else {
            return Written::Full;
        };
        slot.first_packet(now, (proof.token(), floor)).emit(room).copy_from_slice(payload);
        proof.tag(room);
        (slot.recovery.first_sent_at, slot.recovery.sent_at) = (now.max(1), now);
        slot.request.sent(0);
        slot.request.is_queued = false;
        Written::All
    }

    fn write_sack(&mut self, index: SlotId, batch: &mut GsoBatch) -> bool {
        let slot = &mut self.slots[index];
        let Some(to) = slot.server else {
            return true;
        };
        let Some(room) = batch.room(slot.ends(to.address), EXTENDED_LEN + size_of::<SackBody>())
        else {
            return false;
        };
        let repr = RequestRepr {
            // Asked for once: the timeout asks again where nothing comes.
            flags: std::mem::take(&mut slot.sack_flags),
            token: self.servers[to.record].state.proof.token(),
            ..RequestRepr::control(MessageType::ReplyAck, slot.rid, slot.rpc_id)
        };
        repr.emit(room).copy_from_slice(slot.reply.sack().as_bytes());
        slot.reply.is_sack_queued = false;
        true
    }
}

impl Farewell {
    /// Writes the control packet that tells the server; whether there was room for it.
    fn write(self, batch: &mut GsoBatch) -> bool {
        let Self { ends, token, rid, rpc_id, end } = self;
        let (kind, flags, sack) = match end {
            End::Received(count) => {
                // An ACK for all of it, at which the server releases the reply.
                let (base, granted, bitmap) =
                    (count.into(), count.into(), [0; SackBody::BITMAP_LEN]);
                (MessageType::ReplyAck, 0, Some(SackBody { base, granted, bitmap }))
            }
            End::Cancelled(winner) => (MessageType::Cancel, winner.bits(), None),
        };
        let body = sack.as_ref().map_or(&[][..], |sack| sack.as_bytes());
        let Some(room) = batch.room(ends, EXTENDED_LEN + body.len()) else {
            return false;
        };
        let repr = RequestRepr { flags, token, ..RequestRepr::control(kind, rid, rpc_id) };
        repr.emit(room).copy_from_slice(body);
        true
    }
}

impl Slot {
    /// True of a call of one packet that goes for the first time, as most do when they are written:
    /// to its target alone, which has a record of its own, and as one that has not moved.
    #[inline]
    fn is_plain(&self) -> bool {
        self.recovery.first_sent_at == 0
            && self.request.count() == 1
            && self.server.is_none()
            && matches!(self.copy, CopyState::Absent)
            && !self.options.v1
            && !self.moves.is_moved
            // A record that newcomers share stands for no address.
            && self.target.record != PeerId::default()
    }

    /// The flags of its request, as it goes for the first time.
    fn request_flags(&self) -> u8 {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        flag(self.options.idempotent, Flags::IDEMPOTENT) | flag(self.is_local, Flags::LONG)
    }

    /// The header of packet 0 of the request with a token and a floor, as it goes for the first
    /// time.
    pub(super) fn first_packet(&self, now: Time, (token, floor): (u64, u32)) -> RequestRepr {
        RequestRepr {
            policy: if self.options.fixed { Policy::Fixed } else { Policy::Unrestricted },
            segment: self.request.place(0),
            flags: self.request_flags(),
            client_clock_us: clock_us(now),
            deadline_us: deadline_us(now, self.deadline),
            token,
            floor,
            ..RequestRepr::control(MessageType::Request, self.rid, self.rpc_id)
        }
    }

    /// Writes packet `packet` of the request, with what shows the client's address and a floor;
    /// `false` when it did not fit.
    fn write_packet(
        &self,
        now: Time,
        packet: u16,
        (proof, floor): (Proof, u32),
        batch: &mut GsoBatch,
    ) -> bool {
        if packet > 0 && self.server.is_none() && !self.is_unscheduled {
            // All but the first packet wait for a server that has taken the call.
            return true;
        }
        let payload = self.request.segment(packet);
        let first = self.first_packet(now, (proof.token(), floor));
        let mut repr = RequestRepr { segment: self.request.place(packet), ..first };
        let first_sent_at = self.recovery.first_sent_at;
        // Packet 0 alone is judged by its age. It goes again without UNSCHEDULED, so with a route
        // block: there may be a router by now.
        if packet == 0 && first_sent_at != 0 {
            repr.flags |= Flags::RETRANSMIT;
            // Rounded up: what seemed younger than it is could run a second time.
            let age_ms = now.saturating_sub(first_sent_at).div_ceil(1_000_000);
            repr.age_ms = u16::try_from(age_ms).unwrap_or(u16::MAX);
        } else if self.is_unscheduled && self.server.is_none() {
            repr.flags |= Flags::UNSCHEDULED;
        }
        if self.moves.is_moved {
            repr.flags |= Flags::MOVED;
        }
        let ends = self.ends(self.server.unwrap_or(self.target).address);
        let Some(room) = batch.room(ends, repr.header_len() + payload.len()) else {
            return false;
        };
        repr.emit(room).copy_from_slice(payload);
        // Last, since the tag is of the packet as it goes.
        if packet == 0 {
            proof.tag(room);
        }
        true
    }
}

/// Time left until `deadline`, in whole microseconds, at least one: 0 would mean none.
fn deadline_us(now: Time, deadline: Time) -> u32 {
    u32::try_from(deadline.saturating_sub(now) / 1000).unwrap_or(u32::MAX).max(1)
}
