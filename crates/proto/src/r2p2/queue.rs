//! Send queue of one half of an endpoint, in the order in which its items came up.
//!
//! Packets of a short message differ in length, and a GSO batch takes one length. So the first
//! packets of several go together, and what follows them in the next batch: those messages are set
//! aside meanwhile.

use std::collections::VecDeque;

use super::incoming::Incoming;
use super::outgoing::Outgoing;
use tailcut_placement::slab::SlotKey;

/// Packets of slots, and control packets `C` of no slot. What a slot's item means is decided when
/// its turn comes; where the slot has been released by then, it means nothing.
#[derive(Debug)]
pub(super) struct SendQueue<C> {
    /// In the order in which they came up.
    items: VecDeque<Queued>,
    /// Control packets, of which each has its place among the items: apart, since those of slots,
    /// which most are, are short.
    controls: VecDeque<C>,
    /// Slots of messages that were set aside, before all others.
    aside: VecDeque<SlotKey>,
    /// The batch that is written began with those.
    is_asides_turn: bool,
}

/// Result of writing an item whose turn it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// All of it is written that may go.
    All,
    /// Some of it, and others have packets of that length.
    Some,
    /// Some of it or nothing: it did not fit.
    Full,
}

impl Written {
    /// Result for an item that is written at once or not at all.
    pub(super) fn at_once(is_written: bool) -> Self {
        if is_written { Self::All } else { Self::Full }
    }
}

/// An entry of the queue.
#[derive(Clone, Copy, Debug)]
enum Queued {
    /// As [`Item::Data`].
    Data(SlotKey),
    /// As [`Item::Sack`].
    Sack(SlotKey),
    /// The control packet that came up next.
    Control,
}

/// An entry of the queue whose turn has come.
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
        let (items, controls, aside) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Self { items, controls, aside, is_asides_turn: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.aside.is_empty()
    }

    /// A batch begins: what was set aside goes first.
    pub(super) fn begin_batch(&mut self) {
        self.is_asides_turn = true;
    }

    /// The item whose turn it is.
    pub(super) fn front(&mut self) -> Option<Item<C>>
    where
        C: Copy,
    {
        // A batch of first packets goes on with these: what was set aside behind them is of other
        // lengths, and has its turn when the next batch begins, or nothing else is left.
        self.is_asides_turn =
            !self.aside.is_empty() && (self.is_asides_turn || self.items.is_empty());
        match self.is_asides_turn {
            true => self.aside.front().copied().map(Item::Data),
            false => match *self.items.front()? {
                Queued::Data(key) => Some(Item::Data(key)),
                Queued::Sack(key) => Some(Item::Sack(key)),
                Queued::Control => self.controls.front().copied().map(Item::Control),
            },
        }
    }

    /// True if others of its kind come behind that item.
    pub(super) fn has_more(&self) -> bool {
        if self.is_asides_turn { self.aside.len() > 1 } else { self.items.len() > 1 }
    }

    /// That item has been written so far; true if the batch goes on.
    pub(super) fn pass(&mut self, key: Option<SlotKey>, written: Written) -> bool {
        // It keeps its turn for the next batch.
        if written == Written::Full {
            return false;
        }
        match self.is_asides_turn {
            true => drop(self.aside.pop_front()),
            false => self.pop_front(),
        }
        if written == Written::Some {
            self.aside.extend(key);
        }
        true
    }

    /// The message whose turn it is, if that is one.
    pub(super) fn front_data(&self) -> Option<SlotKey> {
        match self.items.front() {
            // What was set aside goes before it.
            Some(&Queued::Data(key)) if self.aside.is_empty() => Some(key),
            _ => None,
        }
    }

    /// The first item has been written.
    pub(super) fn pop_front(&mut self) {
        if let Some(Queued::Control) = self.items.pop_front() {
            self.controls.pop_front();
        }
    }

    /// Queues the message of a slot, once.
    #[inline]
    pub(super) fn push_data(&mut self, slot: SlotKey, message: &mut Outgoing) {
        if !std::mem::replace(&mut message.is_queued, true) {
            self.items.push_back(Queued::Data(slot));
        }
    }

    /// Queues an ACK of a slot, once.
    pub(super) fn push_sack(&mut self, slot: SlotKey, message: &mut Incoming) {
        if !std::mem::replace(&mut message.is_sack_queued, true) {
            self.items.push_back(Queued::Sack(slot));
        }
    }

    pub(super) fn push_control(&mut self, control: C) {
        self.items.push_back(Queued::Control);
        self.controls.push_back(control);
    }

    /// Queues what answers a packet that is not kept, unless too much waits: anybody can send such
    /// packets.
    pub(super) fn try_push_control(&mut self, control: C) -> bool {
        let has_room = self.items.len() < CONTROL_LEN_MAX;
        if has_room {
            self.push_control(control);
        }
        has_room
    }
}

/// Control packets are dropped while so much waits to be sent.
const CONTROL_LEN_MAX: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots with messages, queued in the order of their keys.
    fn queued(keys: &[u64]) -> SendQueue<u8> {
        let mut queue = SendQueue::new();
        keys.iter().for_each(|&key| queue.push_data(SlotKey(key), &mut Outgoing::default()));
        queue
    }

    /// The key of the message whose turn it is.
    fn front(queue: &mut SendQueue<u8>) -> Option<u64> {
        match queue.front()? {
            Item::Data(key) => Some(key.0),
            other => panic!("{other:?}"),
        }
    }

    /// Writes so much of the message whose turn it is.
    fn write(queue: &mut SendQueue<u8>, written: Written) -> (Option<u64>, bool) {
        let key = front(queue);
        (key, queue.pass(key.map(SlotKey), written))
    }

    #[test]
    fn what_was_set_aside_begins_the_next_batch() {
        let mut queue = queued(&[1, 2, 3]);
        queue.begin_batch();
        assert_eq!(write(&mut queue, Written::Some), (Some(1), true));
        assert_eq!(write(&mut queue, Written::Some), (Some(2), true));
        assert_eq!(write(&mut queue, Written::Full), (Some(3), false));
        queue.begin_batch();
        assert_eq!(write(&mut queue, Written::All), (Some(1), true));
        assert_eq!(write(&mut queue, Written::All), (Some(2), true));
        assert_eq!(write(&mut queue, Written::All), (Some(3), true));
        assert!(queue.is_empty());
    }

    /// Within a batch, messages that have been set aside wait for those that have not.
    #[test]
    fn what_is_set_aside_waits_until_the_others_have_had_their_turn() {
        let mut queue = queued(&[1, 2]);
        queue.begin_batch();
        assert_eq!(write(&mut queue, Written::Some), (Some(1), true));
        assert_eq!(write(&mut queue, Written::All), (Some(2), true));
        assert_eq!(write(&mut queue, Written::All), (Some(1), true));
        assert!(queue.is_empty());
    }

    #[test]
    fn one_has_more_behind_it_of_its_own_kind_alone() {
        let mut queue = queued(&[1, 2, 3]);
        queue.begin_batch();
        let mut seen = Vec::new();
        for written in [Written::Some, Written::Some, Written::All, Written::All, Written::All] {
            front(&mut queue);
            seen.push(queue.has_more());
            write(&mut queue, written);
        }
        // 1 and 2 are set aside; 3 is the last of the others; then 1 has 2 behind it.
        assert_eq!(seen, [true, true, false, true, false]);
    }

    #[test]
    fn a_message_is_left_where_it_is_only_when_its_turn_has_come() {
        let mut queue = queued(&[1, 2]);
        assert_eq!(queue.front_data(), Some(SlotKey(1)));
        queue.pop_front();
        assert_eq!(queue.front_data(), Some(SlotKey(2)));
        queue.begin_batch();
        write(&mut queue, Written::Some);
        queue.push_data(SlotKey(3), &mut Outgoing::default());
        assert_eq!(queue.front_data(), None, "another one was set aside");
        let mut queue = SendQueue::new();
        queue.push_control(7);
        assert_eq!(queue.front_data(), None);
    }

    #[test]
    fn what_anybody_may_ask_for_is_dropped_when_too_much_waits() {
        let mut queue = SendQueue::new();
        let taken = (0..2 * CONTROL_LEN_MAX).filter(|_| queue.try_push_control(7)).count();
        assert_eq!(taken, CONTROL_LEN_MAX);
        queue.push_control(8);
        assert_eq!(queue.items.len(), CONTROL_LEN_MAX + 1);
    }
}
