//! Packets that a server sends: replies within credit and within what an address has paid for,
//! ACKs, refusals, and reports to routers, gathered into GSO batches.

use std::net::SocketAddr;

use tailcut_wire::r2p2::{
    DropReason, EXTENDED_LEN, FeedbackBody, Flags, MessageType, ROUTED_LEN, ReplyRepr, RpcId,
    SackBody,
};
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U16;

use super::config::Pool;
use super::queue::{Item, Written};
use super::server::{Asked, Control, Phase, Server, Slot};
use super::shared::Shared;
use crate::gso_batch::GsoBatch;
use crate::node::{Attached, Path, Transmit};
use tailcut_placement::slab::{SlotId, SlotKey};

impl Server {
    /// True if there is nothing to send.
    pub(super) fn is_silent(&self) -> bool {
        self.queue.is_empty() && !self.routers.is_report_due()
    }

    pub(super) fn poll_transmit(
        &mut self,
        buffer: &mut [u8],
        shared: &mut Shared,
    ) -> Option<Transmit> {
        let mut batch = GsoBatch::with_trailer(buffer, shared.trailer_len());
        self.batches_since_report += 1;
        // Under replies without end routers would not hear of what is concluded.
        if self.batches_since_report >= BATCHES_BETWEEN_REPORTS {
            self.write_reports(&mut batch, shared);
        }
        self.queue.begin_batch();
        while let Some(item) = self.queue.front() {
            let (key, written) = match item {
                Item::Data(key) => match self.slots.find(key) {
                    Some(index) => (Some(key), self.write_data(index, &mut batch, shared)),
                    None => (None, Written::All),
                },
                Item::Sack(key) => match self.slots.find(key) {
                    Some(index) => {
                        (None, Written::at_once(self.write_sack(index, &mut batch, shared)))
                    }
                    None => (None, Written::All),
                },
                Item::Control(control) => {
                    (None, Written::at_once(self.write_control(control, &mut batch, shared)))
                }
            };
            if !self.queue.pass(key, written) {
                break;
            }
        }
        if self.queue.is_empty() {
            self.write_reports(&mut batch, shared);
        }
        shared.metrics.datagrams_out += batch.count() as u64;
        batch.finish()
    }

    /// Writes a packet of no request; `false` when it did not fit.
    fn write_control(
        &mut self,
        control: Control,
        batch: &mut GsoBatch,
        shared: &mut Shared,
    ) -> bool {
        let pool = &shared.config.pool;
        batch.set_addressee(control.addressee());
        match control {
            Control::Drop { to, asked, reason } => {
                // A client keeps the pace that a DROP tells, whatever the reason.
                let is_overload = matches!(reason, DropReason::Overload | DropReason::Expired);
                let repr = ReplyRepr {
                    detail: if is_overload { self.retry_after_ns } else { 0 },
                    ..self.refusal(MessageType::Drop, asked, to.peer, pool)
                };
                write_packet(batch, to, &repr, &[reason as u8])
            }
            Control::Reject { to, asked } => {
                let repr = self.refusal(MessageType::Drop, asked, to.peer, pool);
                let words = self.rejections.front().map_or(&[][..], |words| words);
                let is_written = write_packet(batch, to, &repr, words);
                if is_written && let Some(words) = self.rejections.pop_front() {
                    shared.buffers.give(words);
                }
                is_written
            }
            Control::Validate { to, asked } => {
                let repr = ReplyRepr {
                    clock_echo_us: asked.clock_us,
                    ..self.refusal(MessageType::Ack, asked, to.peer, pool)
                };
                write_packet(batch, to, &repr, EMPTY_SACK.as_bytes())
            }
            Control::Claimed { to, rid, rpc_id, verdict } => {
                let repr = ReplyRepr::control(MessageType::Claimed, rid, rpc_id);
                write_packet(batch, to, &repr, &[verdict as u8])
            }
            v1 => super::server_v1::write_control_v1(batch, v1),
        }
    }

    /// Writes the headers of a GSO batch of a long reply, if that goes next.
    pub(super) fn poll_attached(
        &mut self,
        buffer: &mut [u8],
        shared: &mut Shared,
    ) -> Option<(Transmit, Attached)> {
        let key = self.queue.front_data()?;
        let (server_load, server_waiting) = self.load();
        let index = self.slots.find(key)?;
        let slot = &mut self.slots[index];
        let rpc_id = slot.rpc_id?;
        let client = &self.clients[slot.client];
        // To an address that is not validated packets are weighed one by one; reports may be due.
        if !client.is_validated || self.batches_since_report + 1 >= BATCHES_BETWEEN_REPORTS {
            return None;
        }
        let segment_len = EXTENDED_LEN + usize::from(slot.reply.segment_len());
        let run = slot.reply.run(Attached::datagrams_max(segment_len, buffer))?;
        self.batches_since_report += 1;
        let first = ReplyRepr {
            flags: slot.reply_flags() | self.cookies.flag(),
            server_load,
            server_waiting,
            server_id: shared.config.pool.server_id,
            clock_echo_us: slot.clock_us,
            token: client.state.token,
            ..ReplyRepr::control(MessageType::Response, slot.rid, rpc_id)
        };
        for (packet, room) in
            (run.0..).zip(buffer.chunks_exact_mut(EXTENDED_LEN)).take(run.1.into())
        {
            ReplyRepr { segment: slot.reply.place(packet), ..first }.emit(room);
        }
        let attached = Attached {
            header_len: EXTENDED_LEN,
            message: key.0,
            is_reply: true,
            offset: 0,
            len: 0,
        };
        let attached = slot.reply.sent_run(run, attached);
        let (path, len) = (slot.path, usize::from(run.1) * EXTENDED_LEN + attached.len);
        slot.allowance.sent += len as u64;
        if slot.reply.peek().is_none() {
            slot.reply.is_queued = false;
            self.queue.pop_front();
        }
        shared.metrics.datagrams_out += u64::from(run.1);
        Some((Transmit { segment_len, ..Transmit::single(path, len) }, attached))
    }

    /// The payload that it has left where it is.
    pub(super) fn attached(&self, attached: &Attached) -> &[u8] {
        let slot = self.slots.find(SlotKey(attached.message));
        slot.map_or(&[], |index| self.slots[index].reply.attached(attached))
    }

    /// Writes the reply packets that may go.
    fn write_data(&mut self, index: SlotId, batch: &mut GsoBatch, shared: &mut Shared) -> Written {
        let (server_load, server_waiting) = self.load();
        let slot = &mut self.slots[index];
        let Some(rpc_id) = slot.rpc_id else {
            return Written::at_once(self.write_data_v1(index, batch, shared));
        };
        let client = &self.clients[slot.client];
        batch.set_addressee(shared.addressed(slot.sender));
        if slot.reply.count() == 1 && client.is_validated && !slot.terms.returns {
            return self.write_plain((index, rpc_id), batch, shared);
        }
        while let Some(packet) = slot.reply.peek() {
            let segment = slot.reply.segment(packet);
            let router = slot.returning_router(&shared.config.pool);
            let header_len = if router.is_some() { ROUTED_LEN } else { EXTENDED_LEN };
            let len = header_len + segment.len();
            if !client.is_validated && !slot.allowance.covers(len) {
                self.hold_back(index, shared);
                return Written::All;
            }
            let to = router.map_or(slot.path, |peer| Path { peer, ..slot.path });
            let Some(room) = batch.room(to, len) else {
                return Written::Full;
            };
            let repr = ReplyRepr {
                segment: slot.reply.place(packet),
                flags: slot.reply_flags() | self.cookies.flag(),
                server_load,
                server_waiting,
                server_id: shared.config.pool.server_id,
                clock_echo_us: slot.clock_us,
                token: client.state.token,
                ..ReplyRepr::control(MessageType::Response, slot.rid, rpc_id)
            };
            let room = match router {
                Some(_) => repr.emit_returned(slot.path.peer, room),
                None => repr.emit(room),
            };
            room.copy_from_slice(segment);
            slot.allowance.sent += len as u64;
            slot.reply.sent(packet);
            if slot.reply.is_uneven_after(packet) && self.queue.has_more() {
                return Written::Some;
            }
        }
        slot.reply.is_queued = false;
        Written::All
    }

    /// Writes a reply of one packet to a client at a validated address, as [`Server::write_data`]
    /// would, by fewer steps.
    #[inline]
    fn write_plain(
        &mut self,
        (index, rpc_id): (SlotId, RpcId),
        batch: &mut GsoBatch,
        shared: &Shared,
    ) -> Written {
        let (server_load, server_waiting) = self.load();
        let slot = &mut self.slots[index];
        if let Some(packet) = slot.reply.peek() {
            let payload = slot.reply.segment(packet);
            let (len, Path { local, peer }) = (EXTENDED_LEN + payload.len(), slot.path);
            let Some(room) = batch.room_to((slot.client, local), || peer, len) else {
                return Written::Full;
            };
            let repr = ReplyRepr {
                segment: slot.reply.place(packet),
                flags: slot.reply_flags() | self.cookies.flag(),
                server_load,
                server_waiting,
                server_id: shared.config.pool.server_id,
                clock_echo_us: slot.clock_us,
                token: self.clients[slot.client].state.token,
                ..ReplyRepr::control(MessageType::Response, slot.rid, rpc_id)
            };
            repr.emit(room).copy_from_slice(payload);
            slot.allowance.sent += len as u64;
            slot.reply.sent(packet);
        }
        slot.reply.is_queued = false;
        Written::All
    }

    /// The reply must wait until the address is validated: ask for the token instead.
    fn hold_back(&mut self, index: SlotId, shared: &mut Shared) {
        shared.metrics.amplification_limited += 1;
        let slot = &mut self.slots[index];
        slot.reply.is_queued = false;
        slot.is_validation_asked = true;
        self.queue_sack(index);
    }

    fn write_sack(&mut self, index: SlotId, batch: &mut GsoBatch, shared: &Shared) -> bool {
        let (server_load, server_waiting) = self.load();
        let len = EXTENDED_LEN + size_of::<SackBody>();
        let slot = &mut self.slots[index];
        if !slot.request.is_sack_queued {
            // It has become needless.
            return true;
        }
        let client = &self.clients[slot.client];
        // Else none goes: what the client sends next pays for the next.
        if client.is_validated || slot.allowance.covers(len) {
            batch.set_addressee(shared.addressed(slot.sender));
            let Some(room) = batch.room(slot.path, len) else {
                return false;
            };
            slot.is_acked = true;
            let repr = ReplyRepr {
                flags: self.cookies.flag(),
                server_load,
                server_waiting,
                clock_echo_us: slot.latest_clock_us,
                token: client.state.token,
                ..ReplyRepr::control(MessageType::Ack, slot.rid, slot.rpc_id.unwrap_or_default())
            };
            let body = match slot.phase {
                // Not that it is there: the reply waits for the token.
                _ if slot.is_validation_asked => EMPTY_SACK,
                Phase::Receiving => slot.request.sack(),
                _ => HAVE_IT,
            };
            slot.is_validation_asked = false;
            slot.allowance.sent += len as u64;
            repr.emit(room).copy_from_slice(body.as_bytes());
        }
        slot.request.is_sack_queued = false;
        true
    }

    fn write_reports(&mut self, batch: &mut GsoBatch, shared: &mut Shared) {
        self.batches_since_report = 0;
        batch.set_addressee(0);
        let (server_load, server_waiting) = self.load();
        while let Some((to, body)) = self.routers.peek_report() {
            let repr = ReplyRepr {
                server_load,
                server_waiting,
                server_id: shared.config.pool.server_id,
                flags: if self.stopping_since.is_some() { Flags::STOPPING } else { 0 },
                ..ReplyRepr::control(MessageType::Feedback, 0, RpcId(0))
            };
            // Another router needs another batch, and waits until reports have their turn again.
            if !write_packet(batch, to, &repr, FeedbackBody::as_bytes(&body)) {
                return;
            }
            shared.metrics.feedback += 1;
            self.routers.report_sent();
        }
    }

    /// A packet to a client of which the server may keep nothing.
    fn refusal(&self, kind: MessageType, asked: Asked, to: SocketAddr, pool: &Pool) -> ReplyRepr {
        let (server_load, server_waiting) = self.load();
        let (token, flag) = match asked.is_routers {
            true => (self.tokens.token(to), 0),
            false => (self.token(to), self.cookies.flag()),
        };
        ReplyRepr {
            flags: flag | if asked.is_unnamed { Flags::HELD } else { 0 },
            server_load,
            server_waiting,
            server_id: pool.server_id,
            token,
            ..ReplyRepr::control(kind, asked.rid, asked.rpc_id)
        }
    }

    /// Load that the server reports: requests that the application has, and of these those that
    /// wait for a worker.
    fn load(&self) -> (u16, u16) {
        let count = |requests| u16::try_from(requests).unwrap_or(u16::MAX);
        (count(self.held.waiting), count(self.waiting_len()))
    }
}

impl Control {
    /// Addressee of it, as the seal has told.
    fn addressee(&self) -> u64 {
        match self {
            Self::Drop { asked, .. }
            | Self::Reject { asked, .. }
            | Self::Validate { asked, .. } => asked.addressee,
            _ => 0,
        }
    }
}

impl Slot {
    /// The flags of its reply.
    fn reply_flags(&self) -> u8 {
        self.terms.mark.bits() | if self.terms.takes_long { Flags::LONG } else { 0 }
    }

    /// The router that wants to see the reply, which must be of one packet.
    #[inline]
    fn returning_router(&self, pool: &Pool) -> Option<SocketAddr> {
        pool.router.filter(|_| self.terms.returns && self.reply.count() == 1)
    }
}

fn write_packet(batch: &mut GsoBatch, to: Path, repr: &ReplyRepr, body: &[u8]) -> bool {
    let Some(room) = batch.room(to, EXTENDED_LEN + body.len()) else {
        return false;
    };
    repr.emit(room).copy_from_slice(body);
    true
}

/// An ACK for nothing, with no credit: "say packet 0 again, with this token".
const EMPTY_SACK: SackBody =
    SackBody { base: U16::ZERO, granted: U16::ZERO, bitmap: [0; SackBody::BITMAP_LEN] };

/// An ACK for every packet that a message can have.
const HAVE_IT: SackBody =
    SackBody { base: U16::MAX_VALUE, granted: U16::MAX_VALUE, bitmap: [0; SackBody::BITMAP_LEN] };

/// GSO batches of replies before reports to routers go first.
const BATCHES_BETWEEN_REPORTS: u32 = 8;
