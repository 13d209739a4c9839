//! A table of slots that are used again, behind typed ids.
//!
//! | a slot is | event | then |
//! |---|---|---|
//! | free, or not there yet | [`Slab::take`] | live |
//! | live | [`Slab::release`] | free; keys of it find nothing any more |
//!
//! The value outlives the slot's use, so that the buffers in it serve the next: a warm table
//! allocates nothing. That is why this is not the `slab` crate, which drops what is removed.

use std::ops::{Index, IndexMut};

/// The place of a slot in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

/// A use of a slot: its place and generation. Of a slot that has been released since, it finds
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotKey(pub u64);

/// Slots, live and free.
#[derive(Debug)]
pub struct Slab<T> {
    /// Every slot that was ever taken, by place.
    entries: Vec<Entry<T>>,
    /// Free slots, the one released last at the end.
    free: Vec<SlotId>,
}

#[derive(Debug)]
struct Entry<T> {
    /// Uses of the slot that have ended.
    generation: u32,
    /// It is in use.
    is_live: bool,
    /// Its content; of a free slot, the rest of its last use.
    value: T,
}

impl SlotId {
    /// No slot.
    pub const NONE: Self = Self(u32::MAX);

    /// As an index of a vector.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }
}

/// Entries for which a table that may have `most` has room from the beginning. To grow is to copy a
/// table, or to hash all of it again, within one packet; room that is not used costs addresses and
/// no memory. Beyond it a table grows as vectors do.
pub fn room(most: usize) -> usize {
    most.min(ROOM_MAX)
}

impl<T> Slab<T> {
    /// A table that may have `most` slots.
    pub fn of_at_most(most: usize) -> Self {
        let room = room(most);
        Self { entries: Vec::with_capacity(room), free: Vec::with_capacity(room) }
    }

    /// Makes a slot live; its value is that of its last use, or `fresh` in a new slot.
    pub fn take(&mut self, fresh: impl FnOnce() -> T) -> SlotId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, is_live: false, value: fresh() });
            SlotId(self.entries.len() as u32 - 1)
        });
        self.entries[id.index()].is_live = true;
        id
    }

    /// Ends the use of a live slot.
    pub fn release(&mut self, id: SlotId) {
        let entry = &mut self.entries[id.index()];
        debug_assert!(entry.is_live, "{id:?} is released twice");
        entry.is_live = false;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(id);
    }

    /// The key of the present use of a slot.
    pub fn key(&self, id: SlotId) -> SlotKey {
        SlotKey(u64::from(self.entries[id.index()].generation) << 32 | u64::from(id.0))
    }

    /// The live slot that a key was given for.
    pub fn find(&self, key: SlotKey) -> Option<SlotId> {
        let (id, generation) = (SlotId(key.0 as u32), (key.0 >> 32) as u32);
        let entry = self.entries.get(id.index())?;
        (entry.is_live && entry.generation == generation).then_some(id)
    }

    /// The live slot at a place that a packet names.
    pub fn at(&self, place: u32) -> Option<SlotId> {
        self.entries.get(place as usize).filter(|entry| entry.is_live).map(|_| SlotId(place))
    }

    /// Places below this are, or have been, slots.
    pub fn places(&self) -> u32 {
        self.entries.len() as u32
    }

    /// The values of all slots, free ones included.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|entry| &entry.value)
    }

    /// Live slots.
    pub fn live_count(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

impl<T> Index<SlotId> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, id: SlotId) -> &T {
        &self.entries[id.index()].value
    }
}

impl<T> IndexMut<SlotId> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, id: SlotId) -> &mut T {
        &mut self.entries[id.index()].value
    }
}

/// More than are under way at once but under attack or overload: some 3 MB of addresses for the
/// largest slots.
pub const ROOM_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_finds_the_use_that_it_was_given_for_and_no_other() {
        let mut slab = Slab::default();
        let (one, other) = (slab.take(|| 1), slab.take(|| 2));
        let key = slab.key(one);
        assert_eq!((slab.find(key), slab.at(one.0), slab.live_count()), (Some(one), Some(one), 2));
        slab.release(one);
        assert_eq!((slab.find(key), slab.at(one.0), slab.at(9)), (None, None, None));
        let again = slab.take(|| unreachable!("the value of the last use is there"));
        assert_eq!((again, slab[again], slab[other]), (one, 1, 2));
        assert_eq!(slab.find(key), None);
    }

    /// To grow is to copy a table within one packet, and room that is not used costs no memory.
    #[test]
    fn a_table_has_room_from_the_beginning_and_no_more_than_is_worth_it() {
        let slab = Slab::<u8>::of_at_most(100);
        assert!(slab.entries.capacity() >= 100 && slab.free.capacity() >= 100);
        let most = Slab::<u8>::of_at_most(1 << 40);
        assert!((ROOM_MAX..2 * ROOM_MAX).contains(&most.entries.capacity()));
    }
}
