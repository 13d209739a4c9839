//! Streams that wait to be accepted, in the order in which they came. Any of them can leave: a peer
//! that resets one costs no more than by another message, however many wait.

use super::slot::Slot;
use tailcut_placement::order::list::{Linked, Links, List};
use tailcut_placement::slab::{Slab, SlotId};

/// The streams that wait.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// In the order in which they came.
    order: List,
    /// Number of them.
    len: usize,
}

impl Backlog {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The one that has waited longest.
    pub(super) fn first(&self) -> Option<SlotId> {
        self.order.first()
    }

    /// Adds a stream that does not wait yet.
    pub(super) fn push(&mut self, slots: &mut Slab<Slot>, index: SlotId) {
        self.order.push(slots, index);
        self.len += 1;
    }

    /// Takes out a stream that waits.
    pub(super) fn remove(&mut self, slots: &mut Slab<Slot>, index: SlotId) {
        self.order.remove(slots, index);
        self.len -= 1;
    }
}

impl Linked for Slot {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}
