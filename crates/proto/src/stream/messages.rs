//! Messages that are sent, and what becomes of them.

use tailcut_wire::stream::{
    BLOCKED, FIN, FROM_OPENER, MAGIC, MessageHeader, MessageKind, Reply, Status,
};
use zerocopy::IntoBytes;

use super::shares::Way;
use super::slot::{Phase, Sent, What};
use super::{Fault, Streams};
use crate::node::Time;
use crate::rpc::{Call, CallError, CallId, CallOptions, DropReason, Failure, Rpc};
use tailcut_placement::slab::{SlotId, SlotKey};

impl<E: Rpc> Streams<E> {
    /// Sends what queued streams have to send, as far as messages may be outstanding.
    pub(super) fn send_queued(&mut self, now: Time) {
        while self.holdings.messages < self.config.messages_max
            && let Some(index) = self.queue.pop_front()
        {
            self.slots[index].is_queued = false;
            if let Err(error) = self.send_all(now, index) {
                self.fail(now, index, Fault::NotSent(error));
            }
        }
    }

    fn send_all(&mut self, now: Time, index: SlotId) -> Result<(), CallError> {
        while self.slots[index].phase == Phase::Open {
            if self.holdings.messages >= self.config.messages_max {
                self.enqueue(index);
                return Ok(());
            }
            let slot = &self.slots[index];
            if let Some(cut) = slot.out.next(self.config.message_len_max) {
                self.send(now, index, What::Data(cut))?;
            } else if !slot.is_window_in_flight
                && (!slot.has_greeted || slot.inc.is_worth_telling(slot.window(Way::In)))
            {
                self.send(now, index, What::Window)?;
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Asks the peer whether it still knows a stream.
    pub(super) fn ask(&mut self, now: Time, index: SlotId) {
        if self.slots[index].messages.is_empty()
            && self.holdings.messages < self.config.messages_max
            && let Err(error) = self.send(now, index, What::Window)
        {
            self.fail(now, index, Fault::NotSent(error));
        }
    }

    /// Sends a message of a stream.
    pub(super) fn send(&mut self, now: Time, index: SlotId, what: What) -> Result<(), CallError> {
        let stream = self.id_of(index);
        let place = self.sent.take(|| Sent { stream, what, call: None });
        let key = self.sent.key(place);
        let mut payload = self.rpc.buffer();
        let target = self.write_message(index, what, &mut payload);
        let slot = &mut self.slots[index];
        let deadline = match what {
            What::Open => slot.since.saturating_add(self.config.open_ns_max),
            _ => now.saturating_add(self.config.message_ns_max),
        };
        slot.sent_at = now;
        let (context, caller) = (key.0, slot.caller);
        // A message that comes twice changes nothing, so that the transport need not refuse what it
        // may have run before it restarted.
        let options = CallOptions { idempotent: true, ..CallOptions::default() };
        let call = Call { target, payload, deadline, context, options };
        let call = match caller {
            Some(caller) => self.rpc.call_back(now, call, caller),
            None => self.rpc.call(now, call),
        };
        self.sent[place] = Sent { stream, what, call: call.ok() };
        if let Err(error) = call {
            self.sent.release(place);
            return Err(error);
        }
        self.holdings.messages += 1;
        self.metrics.messages_out += 1;
        match what {
            What::Reset => self.metrics.resets += 1,
            What::Window => self.metrics.windows += 1,
            What::Data(cut) => self.metrics.bytes_out += cut.len as u64,
            What::Open => {}
        }
        // The answer to RESET means nothing to the stream, which is over.
        if what != What::Reset {
            self.slots[index].messages.push(key);
        }
        Ok(())
    }

    fn write_message(
        &mut self,
        index: SlotId,
        what: What,
        payload: &mut Vec<u8>,
    ) -> std::net::SocketAddr {
        let slot = &mut self.slots[index];
        let (kind, offset, is_last) = match what {
            What::Open => (MessageKind::Open, 0, false),
            What::Data(cut) => (MessageKind::Data, cut.offset, cut.is_last),
            What::Window => (MessageKind::Window, 0, false),
            What::Reset => (MessageKind::Reset, 0, false),
        };
        let is_blocked = matches!(what, What::Data(_)) && slot.out.is_blocked();
        let side = if slot.is_opener { FROM_OPENER } else { 0 };
        let side = if is_blocked { side | BLOCKED } else { side };
        let header = MessageHeader {
            magic: MAGIC.into(),
            kind: kind as u8,
            flags: if is_last { side | FIN } else { side },
            reserved: [0; 2],
            opener: slot.opener.into(),
            acceptor: slot.acceptor.into(),
            offset: offset.into(),
            limit: slot.inc.tell(slot.window(Way::In)).into(),
        };
        payload.extend_from_slice(header.as_bytes());
        match what {
            What::Data(cut) => slot.out.take(cut, payload),
            What::Window => slot.is_window_in_flight = true,
            What::Open | What::Reset => return slot.peer,
        }
        slot.has_greeted = true;
        slot.peer
    }

    pub(super) fn handle_reply(&mut self, now: Time, call: (CallId, u64), payload: Vec<u8>) {
        let reply = Reply::parse(&payload);
        self.rpc.recycle(payload);
        let Some((index, what)) = self.take_sent(call) else {
            return;
        };
        let slot = &mut self.slots[index];
        let fault = match reply {
            Ok(reply) if reply.status == Status::Taken => {
                slot.out.raise_limit(reply.limit);
                return self.handle_taken(now, index, what, reply);
            }
            Ok(reply) if reply.status == Status::Refused && what == What::Open => Fault::Refused,
            Ok(reply) if reply.status == Status::Gone && what != What::Open => Fault::Reset,
            _ => Fault::Broken,
        };
        self.fail(now, index, fault);
    }

    fn handle_taken(&mut self, now: Time, index: SlotId, what: What, reply: Reply) {
        let slot = &mut self.slots[index];
        match what {
            What::Open if reply.acceptor == 0 => return self.fail(now, index, Fault::Broken),
            What::Open => {
                slot.acceptor = reply.acceptor;
                slot.phase = Phase::Open;
                self.metrics.opened += 1;
            }
            What::Data(cut) => slot.out.acknowledge(cut),
            What::Window => slot.is_window_in_flight = false,
            What::Reset => {}
        }
        self.hear(now, index);
        self.note_change(index);
        self.enqueue(index);
        self.settle(now, index);
    }

    pub(super) fn handle_failure(&mut self, now: Time, call: (CallId, u64), failure: Failure) {
        let Some((index, what)) = self.take_sent(call) else {
            return;
        };
        let open_by = self.slots[index].since.saturating_add(self.config.open_ns_max);
        let fault = match (what, failure) {
            // Of a session that began before the peer did: the next call begins another one.
            (What::Open, Failure::Refused(DropReason::Uncertain))
                if now.saturating_add(OPEN_AGAIN_NS) < open_by =>
            {
                return self.wheel.arm(index, now.saturating_add(OPEN_AGAIN_NS));
            }
            (What::Open, Failure::Refused(DropReason::NoKey)) => Fault::NoKeys,
            (What::Open, Failure::Refused(_)) => Fault::Refused,
            (What::Open, Failure::Deadline | Failure::Unreachable) if self.rpc.is_sealed() => {
                Fault::NoKeys
            }
            (_, Failure::Rejected { .. }) => Fault::Denied,
            _ => Fault::Lost(failure),
        };
        self.fail(now, index, fault);
    }

    /// Asks again for a stream that the peer could not take yet.
    pub(super) fn open_again(&mut self, now: Time, index: SlotId) {
        if let Err(error) = self.send(now, index, What::Open) {
            self.fail(now, index, Fault::NotSent(error));
        }
    }

    /// Takes note that the peer of a stream is alive. A timer that is set moves when it is due.
    pub(super) fn hear(&mut self, now: Time, index: SlotId) {
        let slot = &mut self.slots[index];
        if slot.holder != super::Holder::Nobody {
            slot.since = now;
        }
        if !self.wheel.is_armed(index) {
            self.arm(index);
        }
    }

    /// The messages of a stream are wanted no more.
    pub(super) fn cancel_messages(&mut self, now: Time, index: SlotId) {
        while let Some(key) = self.slots[index].messages.pop() {
            if let Some(place) = self.sent.find(key) {
                self.sent[place].call.into_iter().for_each(|call| self.rpc.cancel(now, call));
                self.holdings.messages -= 1;
                self.sent.release(place);
            }
        }
    }

    /// A message has been answered: its stream, if that still is, and what it said.
    fn take_sent(&mut self, (call, context): (CallId, u64)) -> Option<(SlotId, What)> {
        let key = SlotKey(context);
        let place = self.sent.find(key).filter(|&place| self.sent[place].call == Some(call))?;
        let Sent { stream, what, .. } = self.sent[place];
        self.sent.release(place);
        self.holdings.messages -= 1;
        let index = self.find(stream).filter(|_| what != What::Reset)?;
        self.slots[index].messages.retain(|&other| other != key);
        Some((index, what))
    }
}

/// Time after which a stream is asked for again whose peer could not tell whether it had been
/// before: clocks may be apart by ten of them.
const OPEN_AGAIN_NS: u64 = 10_000_000;
