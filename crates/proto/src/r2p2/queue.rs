//! What one half of an endpoint has to send, in the order in which it came up.

use std::collections::VecDeque;

use super::incoming::Incoming;
use super::outgoing::Outgoing;
use crate::call::slab::SlotKey;

/// Packets of slots, and control packets `C` of no slot. What a slot's item means is decided when
/// its turn comes; where the slot has been released by then, it means nothing.
#[derive(Debug)]
pub(super) struct SendQueue<C>(VecDeque<Item<C>>);

/// An entry of the queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item<C> {
    /// Whatever the message of a slot may send.
    Data(SlotKey),
    /// An ACK and credit for the message that a slot receives.
    Sack(SlotKey),
    /// A packet of no slot.
    Control(C),
}

impl<C> SendQueue<C> {
    pub(super) fn new() -> Self {
        Self(VecDeque::new())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn front(&self) -> Option<&Item<C>> {
        self.0.front()
    }

    pub(super) fn pop_front(&mut self) {
        self.0.pop_front();
    }

    /// Queues the message of a slot, once.
    #[inline]
    pub(super) fn push_data(&mut self, slot: SlotKey, message: &mut Outgoing) {
        if !std::mem::replace(&mut message.is_queued, true) {
            self.0.push_back(Item::Data(slot));
        }
    }

    /// Queues an ACK of a slot, once.
    pub(super) fn push_sack(&mut self, slot: SlotKey, message: &mut Incoming) {
        if !std::mem::replace(&mut message.is_sack_queued, true) {
            self.0.push_back(Item::Sack(slot));
        }
    }

    pub(super) fn push_control(&mut self, control: C) {
        self.0.push_back(Item::Control(control));
    }

    /// Queues what answers a packet that is not kept, unless too much waits: anybody can send such
    /// packets.
    pub(super) fn try_push_control(&mut self, control: C) -> bool {
        let has_room = self.0.len() < CONTROL_LEN_MAX;
        if has_room {
            self.push_control(control);
        }
        has_room
    }
}

/// Control packets are dropped while so much waits to be sent.
const CONTROL_LEN_MAX: usize = 8192;
