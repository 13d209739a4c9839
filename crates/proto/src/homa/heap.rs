//! A heap of slots whose places are known, so that any of them can move or leave: the order of
//! SRPT.
//!
//! Several heaps may share one [`Places`] as long as a slot is in at most one of them.

/// Where each slot is in its heap.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<u32>);

/// Slots by key, the least first.
#[derive(Debug, Default)]
pub(super) struct Heap {
    items: Vec<(u64, u32)>,
}

/// What ranks a message: fewer bytes first, then the older.
pub(super) fn rank(bytes: u32, birth: u32) -> u64 {
    u64::from(bytes) << 32 | u64::from(birth)
}

impl Places {
    pub(super) fn contains(&self, slot: u32) -> bool {
        self.place(slot) != NONE
    }

    fn place(&self, slot: u32) -> u32 {
        self.0.get(slot as usize).copied().unwrap_or(NONE)
    }

    fn set(&mut self, slot: u32, place: usize) {
        if self.0.len() <= slot as usize {
            self.0.resize(slot as usize + 1, NONE);
        }
        self.0[slot as usize] = place as u32;
    }
}

impl Heap {
    /// The least key and its slot.
    pub(super) fn peek(&self) -> Option<(u64, u32)> {
        self.items.first().copied()
    }

    /// The slots in the first places, among them the `count` least: no more than `2^count - 1`
    /// places hold those.
    pub(super) fn foremost(&self, count: usize) -> &[(u64, u32)] {
        &self.items[..self.items.len().min((1 << count.min(8)) - 1)]
    }

    /// All slots, in no order that says anything.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.items.iter().copied()
    }

    /// Puts `slot` in, or gives it another key.
    pub(super) fn set(&mut self, places: &mut Places, slot: u32, key: u64) {
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
        let place = self.rise(places, place);
        self.sink(places, place);
    }

    /// Takes `slot` out; harmless when it is in no heap.
    pub(super) fn remove(&mut self, places: &mut Places, slot: u32) {
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
            let place = self.rise(places, place);
            self.sink(places, place);
        }
    }

    fn rise(&mut self, places: &mut Places, mut place: usize) -> usize {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.items[parent] <= self.items[place] {
                break;
            }
            self.swap(places, parent, place);
            place = parent;
        }
        place
    }

    fn sink(&mut self, places: &mut Places, mut place: usize) {
        loop {
            let mut least = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if child < self.items.len() && self.items[child] < self.items[least] {
                    least = child;
                }
            }
            if least == place {
                return;
            }
            self.swap(places, least, place);
            place = least;
        }
    }

    fn swap(&mut self, places: &mut Places, one: usize, other: usize) {
        self.items.swap(one, other);
        places.set(self.items[one].1, one);
        places.set(self.items[other].1, other);
    }
}

const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_out_the_least_while_keys_change_and_slots_leave() {
        let (mut heap, mut places) = (Heap::default(), Places::default());
        for slot in 0..100u32 {
            heap.set(&mut places, slot, u64::from(slot * 37 % 100));
        }
        heap.set(&mut places, 0, 1000);
        (50..100).for_each(|slot| heap.remove(&mut places, slot));
        heap.remove(&mut places, 99);
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
    fn fewer_bytes_rank_before_age() {
        assert!(rank(1, 9) < rank(2, 0));
        assert!(rank(2, 0) < rank(2, 1));
    }
}
