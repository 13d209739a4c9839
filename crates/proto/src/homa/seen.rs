//! A set of sequence numbers that are taken roughly in order: everything below a floor, and some
//! above it.
//!
//! The memory behind "at most once": at a server the sequences of a client that have run, at a
//! client those that have ended. In a few words where they are taken in order, and never in more
//! than [`WINDOW`] bits: a sequence that lags further behind counts as taken.

/// Most sequences that the set tells apart.
pub(super) const WINDOW: u32 = 1 << 16;

/// Sequences taken.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Everything below counts as taken.
    floor: u32,
    /// Ring of bits for the sequences from `floor` on, where `ring` is empty: most are taken in
    /// order, and then no other memory is looked at.
    word: u64,
    /// The same in a power of two of words.
    ring: Vec<u64>,
}

impl Seen {
    /// Forgets everything, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.floor = 0;
        self.words_mut().fill(0);
    }

    pub(super) fn floor(&self) -> u32 {
        self.floor
    }

    pub(super) fn contains(&self, sequence: u32) -> bool {
        sequence < self.floor || sequence - self.floor < self.bits() && self.bit(sequence)
    }

    /// Takes `sequence`.
    pub(super) fn insert(&mut self, sequence: u32) {
        if sequence < self.floor {
            return;
        }
        if sequence - self.floor >= WINDOW {
            self.raise_floor(sequence - (WINDOW - 1));
        }
        self.grow_for(sequence);
        self.set(sequence, 1);
        while self.bit(self.floor) {
            self.set(self.floor, 0);
            self.floor += 1;
        }
    }

    fn raise_floor(&mut self, floor: u32) {
        if floor - self.floor >= self.bits() {
            self.words_mut().fill(0);
        } else {
            (self.floor..floor).for_each(|passed| self.set(passed, 0));
        }
        self.floor = floor;
    }

    fn grow_for(&mut self, sequence: u32) {
        let needed = sequence - self.floor + 1;
        if needed <= self.bits() {
            return;
        }
        let words = (needed.div_ceil(64) as usize).next_power_of_two();
        let old_bits = self.bits();
        let old = match std::mem::replace(&mut self.ring, vec![0; words]) {
            none if none.is_empty() => vec![self.word],
            old => old,
        };
        for taken in self.floor..self.floor + old_bits {
            let position = (taken % old_bits) as usize;
            if old[position / 64] >> (position % 64) & 1 == 1 {
                self.set(taken, 1);
            }
        }
    }

    fn words(&self) -> &[u64] {
        if self.ring.is_empty() { std::slice::from_ref(&self.word) } else { &self.ring }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        if self.ring.is_empty() { std::slice::from_mut(&mut self.word) } else { &mut self.ring }
    }

    fn bits(&self) -> u32 {
        self.words().len() as u32 * 64
    }

    fn bit(&self, sequence: u32) -> bool {
        let position = (sequence % self.bits()) as usize;
        self.words()[position / 64] >> (position % 64) & 1 == 1
    }

    fn set(&mut self, sequence: u32, value: u64) {
        let position = (sequence % self.bits()) as usize;
        let word = &mut self.words_mut()[position / 64];
        *word = *word & !(1 << (position % 64)) | value << (position % 64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn in_order_it_needs_no_memory_of_its_own() {
        let mut seen = Seen::default();
        (0..100_000).for_each(|sequence| seen.insert(sequence));
        assert_eq!((seen.floor(), seen.ring.capacity()), (100_000, 0));
        assert!(seen.contains(99_999) && !seen.contains(100_000));
    }

    #[test]
    fn in_any_order_it_knows_what_a_set_knows() {
        let (mut seen, mut expected) = (Seen::default(), BTreeSet::new());
        for step in 0..20_000u32 {
            let sequence = step.wrapping_mul(2_654_435_761) % 30_000;
            assert_eq!(seen.contains(sequence), expected.contains(&sequence), "{sequence}");
            seen.insert(sequence);
            expected.insert(sequence);
        }
    }

    #[test]
    fn what_lags_a_window_behind_counts_as_taken() {
        let mut seen = Seen::default();
        seen.insert(5);
        seen.insert(WINDOW);
        assert!(seen.contains(0) && !seen.contains(1) && seen.contains(5));
        seen.insert(10_000_000);
        assert!(seen.contains(10_000_000 - WINDOW) && !seen.contains(10_000_000 - WINDOW + 1));
        seen.clear();
        assert!(!seen.contains(0));
    }
}
