//! Calls whose request or reply is longer than a Homa message: several RPCs behind one call.
//!
//! | at the client | RPCs |
//! |---|---|
//! | a long request | one for each part, all at once; the first is the call |
//! | a long reply | it begins in the reply of the first; one for each other part fetches it |
//!
//! | at the server | what becomes of it |
//! |---|---|
//! | a part of a request | waits for the others; when all are there, the application gets the request as that of the first RPC, and the others are answered with nothing |
//! | a fetch | answered from the reply of the first RPC, which is kept until the client acknowledges that RPC |
//!
//! Every RPC keeps to its own limits and deadline; when one of a call fails, the call does.

use tailcut_wire::homa::{DataFlags, PartHeader, PartKind};
use tailcut_wire::r2p2::DropReason;
use zerocopy::IntoBytes;

use super::config::Config;
use super::ids::ClientId;
use super::slot::{Fetch, Member, Part, Reply};
use super::{Endpoint, Phase};
use crate::node::Time;
use crate::peer::table::PeerId;
use crate::rpc::Failure;
use crate::work;
use tailcut_placement::slab::SlotId;

impl Endpoint {
    /// Sends a long request: the first part by the RPC in `first`, the others by RPCs of their own.
    pub(super) fn send_parts(&mut self, now: Time, first: SlotId, payload: &[u8]) {
        let slot = &self.rpcs[first];
        let (peer, server_port, key) = (slot.peer, slot.ports.destination, slot.id);
        let mut others = Vec::new();
        for offset in (0..payload.len()).step_by(PartHeader::PART_LEN) {
            let index =
                if offset == 0 { first } else { self.open_other(now, first, (peer, server_port)) };
            if offset > 0 {
                others.push(index);
            }
            let end = payload.len().min(offset + PartHeader::PART_LEN);
            let header =
                PartHeader::new(PartKind::Request, key.0, payload.len() as u32, offset as u32);
            let message = self.join(&header, &payload[offset..end]);
            self.rpcs[index].flags |= DataFlags::PART;
            self.send_request(now, index, message.into());
        }
        self.rpcs[first].phase = Phase::Calling(Member::First(others));
    }

    /// Takes the reply to an RPC of a long call, or the beginning of a long reply.
    pub(super) fn take_reply_part(&mut self, now: Time, index: SlotId, message: Vec<u8>) {
        let Some(first) = self.rpcs[index].phase.call() else {
            return self.begin_fetching(now, index, message);
        };
        // Before the call, which may end with this part, gives up those of its RPCs that are left.
        self.acknowledge_reply(index, message.len());
        self.release(index);
        // The answer to a part of the request says nothing but that it was taken.
        if matches!(self.rpcs[first].phase, Phase::Fetching(_)) {
            self.take_fetched(first, &message);
        }
        self.buffers.give(message);
    }

    /// A long reply has begun: the rest of it is fetched.
    fn begin_fetching(&mut self, now: Time, first: SlotId, mut message: Vec<u8>) {
        let Some((header, part)) = PartHeader::split(&message, PartKind::Reply) else {
            self.metrics.protocol_violation += 1;
            return self.fail(first, Failure::Refused(DropReason::Unspecified));
        };
        let (total_len, len) = (header.total_len.get() as usize, part.len());
        // Before RPCs are opened for it: the length is the server's word.
        if total_len > self.config.message_len_max {
            self.metrics.failed += 1;
            return self.fail(first, Failure::ReplyTooLarge);
        }
        message.drain(..PartHeader::LEN);
        if len == total_len {
            return self.answer(first, message);
        }
        let slot = &self.rpcs[first];
        let (peer, server_port, key) = (slot.peer, slot.ports.destination, slot.id);
        let offsets = (PartHeader::PART_LEN..total_len).step_by(PartHeader::PART_LEN);
        let mut others = Vec::with_capacity(offsets.len());
        for offset in offsets {
            let index = self.open_other(now, first, (peer, server_port));
            others.push(index);
            let request =
                self.join(&PartHeader::new(PartKind::Fetch, key.0, 0, offset as u32), &[]);
            let slot = &mut self.rpcs[index];
            slot.flags |= DataFlags::PART;
            // A part may be fetched twice.
            slot.options.idempotent = true;
            self.send_request(now, index, request.into());
        }
        // Whatever of the request was not answered yet need not be.
        self.leave_long(first);
        let missing = others.len();
        self.rpcs[first].phase = Phase::Fetching(Fetch { others, reply: message, missing });
        self.arm(now, first);
    }

    fn take_fetched(&mut self, first: SlotId, message: &[u8]) {
        let split = PartHeader::split(message, PartKind::Reply);
        let Phase::Fetching(Fetch { reply, missing, .. }) = &mut self.rpcs[first].phase else {
            return;
        };
        let Some((header, part)) = split else {
            self.metrics.protocol_violation += 1;
            return self.fail(first, Failure::Refused(DropReason::Unspecified));
        };
        let (offset, end) =
            (header.offset.get() as usize, header.offset.get() as usize + part.len());
        // The offset is the server's word, and memory is cleared up to there.
        if end > self.config.message_len_max {
            self.metrics.protocol_violation += 1;
            return self.fail(first, Failure::ReplyTooLarge);
        }
        if reply.len() < end {
            work::clear(end - reply.len());
            reply.resize(end, 0);
        }
        work::copy(part.len());
        reply[offset..end].copy_from_slice(part);
        *missing -= 1;
        if *missing == 0 {
            let reply = std::mem::take(reply);
            self.answer(first, reply);
        }
    }

    /// A message of a request of several RPCs has come, or one that asks for a part of a long
    /// reply.
    pub(super) fn take_request_part(&mut self, now: Time, index: SlotId, message: Vec<u8>) {
        if let Some((header, _)) = PartHeader::split(&message, PartKind::Fetch) {
            let (key, offset) = (ClientId(header.key.get()), header.offset.get() as usize);
            self.buffers.give(message);
            return self.serve_fetch(now, index, key, offset);
        }
        let Some((header, _)) = PartHeader::split(&message, PartKind::Request) else {
            self.metrics.protocol_violation += 1;
            return self.drop_partial(index, DropReason::Unspecified);
        };
        let (key, total_len, offset) =
            (ClientId(header.key.get()), header.total_len.get(), header.offset.get());
        if total_len as usize > self.config.message_len_max {
            return self.drop_partial(index, DropReason::TooLarge);
        }
        let slot = &mut self.rpcs[index];
        // The RPC that the key names carries the first part, and is the one that is answered.
        if (offset == 0) != (slot.id == key) {
            self.metrics.protocol_violation += 1;
            return self.drop_partial(index, DropReason::Unspecified);
        }
        slot.phase = Phase::Parked(Part { key, total_len, offset, message });
        let peer = slot.peer;
        self.rpcs.park(index, key);
        self.assemble(now, peer, key);
    }

    /// Puts a request together when all parts of it are there.
    fn assemble(&mut self, now: Time, peer: PeerId, key: ClientId) {
        let waiting = self.rpcs.parked(peer, key);
        let total_of = |index: SlotId| match &self.rpcs[index].phase {
            Phase::Parked(part) => part.total_len,
            _ => 0,
        };
        let total_len = waiting.first().map_or(0, |&index| total_of(index));
        if waiting.len() < part_count_of(total_len as usize) {
            return;
        }
        let waiting = self.rpcs.take_parked(peer, key);
        let mut parts: Vec<(u32, SlotId, Vec<u8>)> = Vec::with_capacity(waiting.len());
        for &index in &waiting {
            if let Phase::Parked(part) = std::mem::take(&mut self.rpcs[index].phase) {
                parts.push((part.offset, index, part.message));
            }
        }
        parts.sort_unstable_by_key(|part| part.0);
        let mut payload = self.buffers.take_for(total_len as usize);
        payload.reserve_exact(total_len as usize);
        work::copy(total_len as usize);
        for (_, _, message) in &mut parts {
            payload.extend_from_slice(&message[PartHeader::LEN..]);
        }
        let first = parts.iter().find(|part| part.0 == 0).map(|part| part.1);
        for (_, index, message) in parts {
            self.buffers.give(message);
            if Some(index) != first {
                self.unhold(index);
                let nothing = self.buffers.take();
                self.send_reply(now, index, nothing);
            }
        }
        match first.filter(|_| payload.len() == total_len as usize) {
            Some(first) => self.deliver(first, payload),
            // Parts that contradict each other: whoever made them hears nothing.
            None => {
                self.metrics.protocol_violation += 1;
                self.buffers.give(payload);
                first.into_iter().for_each(|first| self.release(first));
            }
        }
    }

    fn serve_fetch(&mut self, now: Time, index: SlotId, key: ClientId, offset: usize) {
        let peer = self.rpcs[index].peer;
        let first = self.rpcs.find(peer, key.0 | 1);
        let reply = match first.map(|first| &self.rpcs[first].phase) {
            Some(Phase::Replying(Reply { whole, .. })) if offset < whole.len() => whole,
            // The reply is gone, but its request has run.
            _ => return self.drop_partial(index, DropReason::Uncertain),
        };
        let end = reply.len().min(offset + PartHeader::PART_LEN);
        let header = PartHeader::new(PartKind::Reply, key.0, reply.len() as u32, offset as u32);
        let mut message = self.buffers.take_for(end - offset + PartHeader::LEN);
        message.extend_from_slice(header.as_bytes());
        message.extend_from_slice(&reply[offset..end]);
        let slot = &mut self.rpcs[index];
        slot.flags |= DataFlags::PART;
        self.peers[peer].state.fetches += 1;
        self.send_reply_of(now, index, message, true);
    }

    /// The message that a reply begins with, and what is kept besides: all of a short reply and
    /// nothing, the first part of a long one and the whole.
    pub(super) fn cut_reply(&mut self, index: SlotId, reply: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
        if reply.len() <= self.config.rpc_len_max as usize {
            return (reply, Vec::new());
        }
        let header = PartHeader::new(PartKind::Reply, self.rpcs[index].id.0, reply.len() as u32, 0);
        let message = self.join(&header, &reply[..PartHeader::PART_LEN]);
        self.rpcs[index].flags |= DataFlags::PART;
        (message, reply)
    }

    /// An RPC has ended, or is no longer what it was to a long call: what hangs on it ends too.
    pub(super) fn leave_long(&mut self, index: SlotId) {
        match &mut self.rpcs[index].phase {
            Phase::Calling(member) | Phase::Hearing(member) => match std::mem::take(member) {
                Member::Whole => {}
                Member::First(others) => self.give_up_others(index, others),
                Member::Other(first) => {
                    if let Some(others) = self.rpcs[first].phase.others() {
                        others.retain(|&other| other != index);
                    }
                }
            },
            Phase::Fetching(fetch) => {
                let Fetch { others, reply, .. } = std::mem::take(fetch);
                self.buffers.give(reply);
                self.give_up_others(index, others);
            }
            Phase::Parked(part) => {
                let Part { key, message, .. } = std::mem::take(part);
                self.buffers.give(message);
                self.rpcs.unpark(index, key);
            }
            Phase::Replying(reply) => self.buffers.give(std::mem::take(&mut reply.whole)),
            Phase::Receiving(_) | Phase::Waiting => {}
        }
    }

    fn give_up_others(&mut self, first: SlotId, others: Vec<SlotId>) {
        for other in others {
            // The slot may be another RPC's by now.
            if self.rpcs[other].phase.call() == Some(first) {
                self.give_up(other);
            }
        }
    }

    fn open_other(
        &mut self,
        now: Time,
        first: SlotId,
        (peer, server_port): (PeerId, u16),
    ) -> SlotId {
        let id = self.next_id(now, peer);
        let index = self.open(now, peer, (server_port, id));
        let (options, deadline) = (self.rpcs[first].options, self.rpcs[first].deadline);
        let slot = &mut self.rpcs[index];
        slot.options = options;
        slot.deadline = deadline;
        slot.phase = Phase::Calling(Member::Other(first));
        index
    }

    fn join(&mut self, header: &PartHeader, part: &[u8]) -> Vec<u8> {
        let mut message = self.buffers.take_for(PartHeader::LEN + part.len());
        message.extend_from_slice(header.as_bytes());
        message.extend_from_slice(part);
        message
    }
}

/// RPCs that a request of `len` bytes takes.
pub(super) fn part_count(len: usize, config: &Config) -> usize {
    if len <= config.rpc_len_max as usize { 1 } else { part_count_of(len) }
}

fn part_count_of(len: usize) -> usize {
    len.div_ceil(PartHeader::PART_LEN)
}
