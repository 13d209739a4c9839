//! A heap of slots whose places are known, so that any of them can move or leave: the order of
//! SRPT, of grants and of expiries.
//!
//! Several heaps may share one [`Places`] as long as a slot is in at most one of them.

use crate::slab::{SlotId, room};

/// Place of each slot in its heap.
#[derive(Debug, Default)]
pub struct Places(Vec<u32>);

/// Slots by key, the least first.
#[derive(Debug)]
pub struct Heap<K = u64> {
    /// Binary heap: no item is less than its parent, which is at half its place.
    items: Vec<(K, SlotId)>,
}

impl<K> Default for Heap<K> {
    fn default() -> Self {
        Self { items: Vec::new() }
    }
}

impl Places {
    /// True if the slot is in the heap.
    pub fn contains(&self, slot: SlotId) -> bool {
        self.place(slot) != NONE
    }

    fn place(&self, slot: SlotId) -> u32 {
        self.0.get(slot.index()).copied().unwrap_or(NONE)
    }

    fn set(&mut self, slot: SlotId, place: usize) {
        if self.0.len() <= slot.index() {
            self.0.resize(slot.index() + 1, NONE);
        }
        self.0[slot.index()] = place as u32;
    }
}

impl<K: Copy + Ord> Heap<K> {
    /// A heap, and the places in it, of a table that may have `most` slots.
    pub fn of_at_most(most: usize) -> (Self, Places) {
        let room = room(most);
        (Self { items: Vec::with_capacity(room) }, Places(Vec::with_capacity(room)))
    }

    /// The least key and its slot.
    pub fn peek(&self) -> Option<(K, SlotId)> {
        self.items.first().copied()
    }

    /// The slots in the first places, among them the `count` least: no more than `2^count - 1`
    /// places hold those.
    pub fn foremost(&self, count: usize) -> &[(K, SlotId)] {
        &self.items[..self.items.len().min((1 << count.min(8)) - 1)]
    }

    /// All slots, in no order that says anything.
    pub fn all(&self) -> impl Iterator<Item = (K, SlotId)> + '_ {
        self.items.iter().copied()
    }

    /// Puts `slot` in, or gives it another key.
    pub fn set(&mut self, places: &mut Places, slot: SlotId, key: K) {
        let place = match places.place(slot) {
            NONE => {
                self.items.push((key, slot));
                self.items.len() - 1
            }
            place => {
                self.items[place as usize].0 = key;
                place as usize
            }
        };
        places.set(slot, place);
        self.settle(places, place);
    }

    /// Takes `slot` out; harmless when it is in no heap.
    pub fn remove(&mut self, places: &mut Places, slot: SlotId) {
        let place = places.place(slot);
        if place == NONE {
            return;
        }
        places.set(slot, NONE as usize);
        let place = place as usize;
        let Some(last) = self.items.pop() else {
            return;
        };
        if place < self.items.len() {
            self.items[place] = last;
            places.set(last.1, place);
            self.settle(places, place);
        }
    }

    /// Moves the item at `place` to where it belongs; those that it passes move by one.
    fn settle(&mut self, places: &mut Places, place: usize) {
        let item = self.items[place];
        let mut hole = self.rise(places, (place, item));
        if hole == place {
            hole = self.sink(places, (place, item));
        }
        if hole != place {
            self.put(places, hole, item);
        }
    }

    /// Makes room for an item above `place`, as far as it belongs there; gives where.
    fn rise(&mut self, places: &mut Places, (place, item): (usize, (K, SlotId))) -> usize {
        let mut hole = place;
        while hole > 0 {
            let parent = (hole - 1) / 2;
            let above = self.items[parent];
            if above <= item {
                break;
            }
            self.put(places, hole, above);
            hole = parent;
        }
        hole
    }

    /// Makes room for an item below `place`, as far as it belongs there; gives where.
    fn sink(&mut self, places: &mut Places, (place, item): (usize, (K, SlotId))) -> usize {
        let mut hole = place;
        loop {
            let first = 2 * hole + 1;
            let Some(&(mut below)) = self.items.get(first) else { return hole };
            let mut child = first;
            if let Some(&other) = self.items.get(first + 1)
                && other < below
            {
                (child, below) = (first + 1, other);
            }
            if below >= item {
                return hole;
            }
            self.put(places, hole, below);
            hole = child;
        }
    }

    fn put(&mut self, places: &mut Places, place: usize, item: (K, SlotId)) {
        self.items[place] = item;
        places.0[item.1.index()] = place as u32;
    }
}

const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::policy::Draws;

    #[test]
    fn the_least_are_among_the_foremost() {
        let (mut heap, mut places) = (Heap::default(), Places::default());
        assert!(heap.foremost(3).is_empty());
        for slot in 0..100u32 {
            heap.set(&mut places, SlotId(slot), u64::from(slot * 37 % 100));
        }
        let foremost = heap.foremost(3);
        assert_eq!(foremost.len(), 7);
        assert!((0..3).all(|key| foremost.iter().any(|(found, _)| *found == key)));
    }

    #[test]
    fn hands_out_the_least_while_keys_change_and_slots_leave() {
        let (mut heap, mut places) = (Heap::default(), Places::default());
        for slot in 0..100u32 {
            heap.set(&mut places, SlotId(slot), u64::from(slot * 37 % 100));
        }
        heap.set(&mut places, SlotId(0), 1000);
        (50..100).for_each(|slot| heap.remove(&mut places, SlotId(slot)));
        heap.remove(&mut places, SlotId(99));
        let mut found = Vec::new();
        while let Some((key, slot)) = heap.peek() {
            found.push(key);
            heap.remove(&mut places, slot);
            assert!(!places.contains(slot));
        }
        let mut expected: Vec<u64> = (1..50u64).map(|slot| slot * 37 % 100).chain([1000]).collect();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }

    #[test]
    fn agrees_with_a_sorted_set_in_any_order_of_changes() {
        let (mut heap, mut places) = Heap::of_at_most(64);
        assert!(heap.items.capacity() >= 64 && places.0.capacity() >= 64, "it has room");
        let mut expected = BTreeSet::new();
        let mut draws = Draws::new(7);
        for _ in 0..5_000 {
            let slot = SlotId(draws.below(64));
            expected.retain(|&(_, other)| other != slot);
            if draws.below(3) == 0 {
                heap.remove(&mut places, slot);
            } else {
                let key = u64::from(draws.below(50));
                heap.set(&mut places, slot, key);
                expected.insert((key, slot));
            }
            assert_eq!(heap.peek(), expected.first().copied());
            assert_eq!(heap.all().collect::<BTreeSet<_>>(), expected);
        }
    }
}
