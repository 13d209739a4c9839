//! Slots in the order in which they came, any of which can leave. The links are in the slots, so
//! that a list costs two words and never allocates.

use crate::slab::{Slab, SlotId};

/// A list's ends.
#[derive(Debug)]
pub struct List {
    /// `SlotId::NONE` where it is empty.
    first: SlotId,
    /// `SlotId::NONE` where it is empty.
    last: SlotId,
}

/// A slot's neighbours in the list that it is in; `SlotId::NONE` where there is none.
#[derive(Clone, Copy, Debug)]
pub struct Links {
    /// The slot before it.
    previous: SlotId,
    /// The slot behind it.
    next: SlotId,
}

/// A slot that can be in one list.
pub trait Linked {
    /// Its neighbours.
    fn links(&mut self) -> &mut Links;
}

impl Default for List {
    fn default() -> Self {
        Self { first: SlotId::NONE, last: SlotId::NONE }
    }
}

impl Default for Links {
    fn default() -> Self {
        Self { previous: SlotId::NONE, next: SlotId::NONE }
    }
}

impl List {
    /// The slot that came first.
    pub fn first(&self) -> Option<SlotId> {
        (self.first != SlotId::NONE).then_some(self.first)
    }

    /// True if no slot is in the list.
    pub fn is_empty(&self) -> bool {
        self.first == SlotId::NONE
    }

    /// Puts `slot`, which is in no list, behind all others.
    pub fn push<T: Linked>(&mut self, slots: &mut Slab<T>, slot: SlotId) {
        *slots[slot].links() = Links { previous: self.last, next: SlotId::NONE };
        match self.last {
            SlotId::NONE => self.first = slot,
            last => slots[last].links().next = slot,
        }
        self.last = slot;
    }

    /// Takes out `slot`, which is in this list.
    pub fn remove<T: Linked>(&mut self, slots: &mut Slab<T>, slot: SlotId) {
        let Links { previous, next } = std::mem::take(slots[slot].links());
        match previous {
            SlotId::NONE => self.first = next,
            previous => slots[previous].links().next = next,
        }
        match next {
            SlotId::NONE => self.last = previous,
            next => slots[next].links().previous = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Linked for Links {
        fn links(&mut self) -> &mut Links {
            self
        }
    }

    #[test]
    fn slots_leave_from_anywhere_and_the_others_keep_their_order() {
        let (mut slots, mut list) = (Slab::default(), List::default());
        let ids: Vec<SlotId> = (0..5).map(|_| slots.take(Links::default)).collect();
        ids.iter().for_each(|&id| list.push(&mut slots, id));
        assert!(!list.is_empty());
        [2, 0, 4].iter().for_each(|&at| list.remove(&mut slots, ids[at]));
        list.push(&mut slots, ids[2]);
        let mut left = Vec::new();
        while let Some(first) = list.first() {
            list.remove(&mut slots, first);
            left.push(first);
        }
        assert_eq!(left, [ids[1], ids[3], ids[2]]);
        assert!(list.is_empty());
    }
}
