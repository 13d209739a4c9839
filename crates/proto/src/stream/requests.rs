//! Messages that peers send, and the answers to them.

use std::net::SocketAddr;

use tailcut_wire::stream::{
    BLOCKED, FIN, FROM_OPENER, Message, MessageKind, Reply, ReplyHeader, Status,
};
use zerocopy::IntoBytes;

use super::shares::Way;
use super::slot::{Holder, Key, Phase};
use super::{Fault, Streams};
use crate::address::AddressKey;
use crate::node::Time;
use crate::rpc::{Caller, DropReason, RequestId, Rpc};
use tailcut_placement::slab::SlotId;

impl<E: Rpc> Streams<E> {
    /// A request: it is answered at once.
    pub(super) fn handle_request(
        &mut self,
        now: Time,
        (id, peer): (RequestId, SocketAddr),
        payload: Vec<u8>,
    ) {
        let from = (peer, self.rpc.caller(id));
        let reply =
            Message::parse(&payload).ok().map(|message| self.handle_message(now, from, &message));
        self.rpc.recycle(payload);
        // Who has given up meanwhile needs no answer.
        let _ = match reply {
            Some(reply) => {
                let mut answer = self.rpc.buffer();
                answer.extend_from_slice(ReplyHeader::new(reply).as_bytes());
                self.rpc.reply(now, id, answer)
            }
            None => {
                self.metrics.malformed += 1;
                self.rpc.refuse(now, id, DropReason::Application)
            }
        };
    }

    fn handle_message(&mut self, now: Time, from: Sender, message: &Message) -> Reply {
        self.metrics.messages_in += 1;
        if message.kind == MessageKind::Open {
            return self.handle_open(now, from, message);
        }
        let reply = self.handle_known(now, from, message);
        self.metrics.gone += u64::from(reply.is_none());
        let limit = reply.unwrap_or(0);
        let status = if reply.is_some() { Status::Taken } else { Status::Gone };
        Reply { status, acceptor: 0, limit }
    }

    /// A peer opens a stream.
    fn handle_open(&mut self, now: Time, (peer, caller): Sender, message: &Message) -> Reply {
        let key =
            Key { peer: AddressKey(peer), opener: message.header.opener.get(), is_opener: false };
        if let Some(&index) = self.known.get(&key) {
            let slot = &mut self.slots[index];
            if !slot.is_of(caller) {
                return self.refuse_open();
            }
            // It has come before.
            return Reply {
                status: Status::Taken,
                acceptor: slot.acceptor,
                limit: slot.inc.tell(slot.window(Way::In)),
            };
        }
        // Whom nobody has named gets no stream of a sealed end.
        let is_named = caller.is_some() || !self.rpc.is_sealed();
        let is_welcome =
            is_named && self.config.is_listening && self.backlog.len() < self.config.backlog_max;
        if !is_welcome || !self.has_room_for(peer) {
            return self.refuse_open();
        }
        self.make_room(now);
        let acceptor = self.numbers.draw(64);
        let index = self.begin(now, key);
        let slot = &mut self.slots[index];
        slot.acceptor = acceptor;
        slot.caller = caller;
        slot.phase = Phase::HalfOpen;
        slot.holder = Holder::Nobody;
        // Only the opener says first that it hears.
        slot.has_greeted = true;
        slot.out.raise_limit(message.header.limit.get());
        let limit = slot.inc.tell(slot.window(Way::In));
        self.holdings.half_open += 1;
        self.half_open.push_back(self.id_of(index));
        self.arm(index);
        Reply { status: Status::Taken, acceptor, limit }
    }

    fn refuse_open(&mut self) -> Reply {
        self.metrics.refused += 1;
        Reply { status: Status::Refused, acceptor: 0, limit: 0 }
    }

    /// The oldest half-open streams make room for another.
    fn make_room(&mut self, now: Time) {
        while self.holdings.half_open >= self.config.half_open_max
            && let Some(id) = self.half_open.pop_front()
        {
            if let Some(index) = self.half_open_at(id) {
                self.metrics.half_open_dropped += 1;
                self.release(now, index);
            }
        }
        if self.half_open.len() >= 2 * self.config.half_open_max {
            let mut ids = std::mem::take(&mut self.half_open);
            ids.retain(|&id| self.half_open_at(id).is_some());
            self.half_open = ids;
        }
    }

    fn half_open_at(&self, id: super::StreamId) -> Option<SlotId> {
        self.find(id).filter(|&index| self.slots[index].phase == Phase::HalfOpen)
    }

    /// A message of a stream; `None` when there is none, or no longer, else the limit.
    fn handle_known(
        &mut self,
        now: Time,
        (peer, caller): Sender,
        message: &Message,
    ) -> Option<u64> {
        let header = message.header;
        let key = Key {
            peer: AddressKey(peer),
            opener: header.opener.get(),
            is_opener: !header.has(FROM_OPENER),
        };
        let index = self.known.get(&key).copied()?;
        let slot = &mut self.slots[index];
        if slot.acceptor != header.acceptor.get() || !slot.is_of(caller) {
            return None;
        }
        slot.note_caller(caller);
        if self.slots[index].phase == Phase::HalfOpen && !self.confirm(now, index) {
            return None;
        }
        self.hear(now, index);
        let slot = &mut self.slots[index];
        slot.out.raise_limit(header.limit.get());
        match message.kind {
            MessageKind::Reset => {
                self.fail(now, index, Fault::Reset);
                return Some(0);
            }
            MessageKind::Data => self.handle_data(now, index, message)?,
            MessageKind::Window | MessageKind::Open => {}
        }
        let slot = &mut self.slots[index];
        let limit = slot.inc.tell(slot.window(Way::In));
        self.note_change(index);
        self.enqueue(index);
        self.settle(now, index);
        Some(limit)
    }

    /// The opener has shown that it hears: the stream goes to the backlog. False when there is no
    /// room any more.
    fn confirm(&mut self, now: Time, index: SlotId) -> bool {
        let ip = self.slots[index].peer.ip();
        let is_welcome = self.config.is_listening
            && self.backlog.len() < self.config.backlog_max
            && self.shares.has_place(ip, self.open_count(), &self.config)
            && self.has_windows();
        if !is_welcome {
            self.metrics.refused += 1;
            self.release(now, index);
            return false;
        }
        self.metrics.taken += 1;
        self.holdings.half_open -= 1;
        self.shares.begin(ip);
        self.backlog.push(&mut self.slots, index);
        let slot = &mut self.slots[index];
        slot.phase = Phase::Open;
        slot.holder = Holder::Backlog;
        slot.since = now;
        self.arm(index);
        true
    }

    fn handle_data(&mut self, now: Time, index: SlotId, message: &Message) -> Option<()> {
        let slot = &mut self.slots[index];
        if slot.holder == Holder::Nobody && !message.data.is_empty() {
            // Nobody will read it: the peer hears that by the answer.
            self.fail(now, index, Fault::Reset);
            return None;
        }
        let (early, is_last) = (slot.inc.early_bytes(), message.header.has(FIN));
        let taken = slot.inc.take(message.header.offset.get(), message.data, is_last);
        self.metrics.bytes_in += message.data.len() as u64;
        self.metrics.early_bytes += slot.inc.early_bytes().saturating_sub(early) as u64;
        if taken.is_err() {
            self.fail(now, index, Fault::Broken);
            return None;
        }
        if message.header.has(BLOCKED) {
            self.widen(index, Way::In);
        }
        Some(())
    }
}

/// Source of a message, and who has sealed it, where packets are sealed by servers' keys here.
type Sender = (SocketAddr, Option<Caller>);
