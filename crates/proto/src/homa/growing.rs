//! Requests that are handed over piece by piece: the first packets leave before the last byte has
//! been copied, and what is copied is sent while it is still in a cache.
//!
//! One call grows at a time. Of a long one a part begins when the one before it is complete.

use std::mem;

use tailcut_wire::homa::{DataFlags, PartHeader, PartKind};
use zerocopy::IntoBytes;

use super::slot::{Member, Phase};
use super::{Endpoint, long};
use crate::call::slab::{SlotId, SlotKey};
use crate::node::Time;
use crate::rpc::{Call, CallError, CallId};

/// A call whose request has not been handed over to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growing {
    /// The call.
    first: SlotKey,
    /// The RPC that carries what comes next.
    part: SlotKey,
    /// Bytes handed over.
    offset: usize,
    /// Bytes of the request.
    total: usize,
    /// It is carried by several RPCs.
    is_long: bool,
}

impl Endpoint {
    /// As [`Rpc::call`](crate::rpc::Rpc::call) of a request of `len` bytes, whose first are the
    /// payload; [`Endpoint::grow`] hands over the rest before any other call is made.
    ///
    /// # Errors
    ///
    /// As of [`Rpc::call`](crate::rpc::Rpc::call).
    ///
    /// # Panics
    ///
    /// When the payload is longer than the request.
    pub fn call_growing(
        &mut self,
        now: Time,
        mut call: Call,
        len: usize,
    ) -> Result<CallId, CallError> {
        assert!(call.payload.len() <= len, "a request is as long as was said");
        if call.payload.len() == len {
            return self.begin_call(now, call);
        }
        let payload = mem::take(&mut call.payload);
        let first = self.open_call(now, &call, len)?;
        let is_long = long::part_count(len, &self.config) > 1;
        if is_long {
            self.slots[first].phase = Phase::Calling(Member::First(Vec::new()));
            self.begin_part(now, (first, first), (0, len));
        } else {
            let message = self.buffers.take_for(len);
            self.begin_growing(now, first, (message, len));
        }
        let key = self.slots.key(first);
        self.growing = Some(Growing { first: key, part: key, offset: 0, total: len, is_long });
        self.grow(now, &payload);
        self.buffers.give(payload);
        Ok(CallId(self.handle_of(first)))
    }

    /// Hands over the next bytes of the request of [`Endpoint::call_growing`]. Harmless when the
    /// call has ended.
    pub fn grow(&mut self, now: Time, mut bytes: &[u8]) {
        while !bytes.is_empty()
            && let Some(growing) = self.growing
        {
            let Some(part) = self.part_for(now, growing) else {
                self.growing = None;
                return;
            };
            let left_of_part = if growing.is_long {
                PartHeader::PART_LEN - growing.offset % PartHeader::PART_LEN
            } else {
                growing.total
            };
            let len = bytes.len().min(left_of_part).min(growing.total - growing.offset);
            self.slots[part].out.extend(&bytes[..len]);
            self.rank_out(part);
            bytes = &bytes[len..];
            let offset = growing.offset + len;
            let part = self.slots.key(part);
            self.growing = (offset < growing.total).then_some(Growing { part, offset, ..growing });
        }
    }

    /// The RPC that carries the next bytes: a new one where a part of a long request begins; `None`
    /// when the call has ended.
    fn part_for(&mut self, now: Time, growing: Growing) -> Option<SlotId> {
        let Growing { first, part, offset, total, is_long } = growing;
        let (first, part) = (self.slots.find(first)?, self.slots.find(part)?);
        if !is_long || offset == 0 || !offset.is_multiple_of(PartHeader::PART_LEN) {
            return Some(part);
        }
        let slot = &mut self.slots[first];
        let to = (slot.peer, slot.ports.destination);
        let next = self.open_other(now, first, to);
        self.slots[first].phase.others()?.push(next);
        self.begin_part(now, (first, next), (offset, total));
        Some(next)
    }

    /// Begins to send a part of a long request, of which nothing has been handed over.
    fn begin_part(
        &mut self,
        now: Time,
        (first, index): (SlotId, SlotId),
        (offset, total): (usize, usize),
    ) {
        let key = self.slots[first].id;
        let header = PartHeader::new(PartKind::Request, key.0, total as u32, offset as u32);
        let len = PartHeader::LEN + PartHeader::PART_LEN.min(total - offset);
        let mut message = self.buffers.take_for(len);
        message.extend_from_slice(header.as_bytes());
        self.slots[index].flags |= DataFlags::PART;
        self.begin_growing(now, index, (message, len));
    }

    fn begin_growing(&mut self, now: Time, index: SlotId, (begun, len): (Vec<u8>, usize)) {
        let stored = begun.len();
        self.send_request(now, index, begun.into());
        // What stands for an empty message is no part of one that grows.
        self.slots[index].flags &= !DataFlags::EMPTY;
        let unscheduled = self.unscheduled_len(index);
        self.slots[index].out.grow_to(len as u32, stored, unscheduled);
        self.rank_out(index);
    }
}
