//! A set of packet indexes that grows with the highest index seen, and keeps its memory when it is
//! cleared.

/// Packet indexes, as bits.
#[derive(Clone, Debug, Default)]
pub(super) struct Bits {
    /// 64 indexes each, as far as the highest member; absent beyond.
    words: Vec<u64>,
}

impl Bits {
    pub(super) fn clear(&mut self) {
        self.words.clear();
    }

    pub(super) fn has(&self, index: u16) -> bool {
        let word = self.words.get(usize::from(index) / 64).copied().unwrap_or(0);
        word >> (index % 64) & 1 == 1
    }

    /// Adds `index`; tells whether it was absent.
    pub(super) fn insert(&mut self, index: u16) -> bool {
        let word = usize::from(index) / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let mask = 1 << (index % 64);
        let is_new = self.words[word] & mask == 0;
        self.words[word] |= mask;
        is_new
    }

    pub(super) fn remove(&mut self, index: u16) {
        if let Some(word) = self.words.get_mut(usize::from(index) / 64) {
            *word &= !(1 << (index % 64));
        }
    }

    /// The lowest member at or above `from`.
    pub(super) fn first_from(&self, from: u16) -> Option<u16> {
        let start = usize::from(from) / 64;
        for (index, &word) in self.words.iter().enumerate().skip(start) {
            let word = if index == start { word & u64::MAX << (from % 64) } else { word };
            if word != 0 {
                return Some((index * 64) as u16 + word.trailing_zeros() as u16);
            }
        }
        None
    }

    /// The lowest index at or above `from` that is not a member.
    pub(super) fn first_absent_from(&self, from: u16) -> u16 {
        let start = usize::from(from) / 64;
        for (index, &word) in self.words.iter().enumerate().skip(start) {
            let word = if index == start { word | !(u64::MAX << (from % 64)) } else { word };
            if word != u64::MAX {
                return (index * 64) as u16 + word.trailing_ones() as u16;
            }
        }
        from.max((self.words.len() * 64) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_members_and_gaps_across_words() {
        let mut bits = Bits::default();
        for index in [0, 1, 2, 63, 64, 130] {
            assert!(bits.insert(index));
            assert!(!bits.insert(index));
        }
        assert_eq!(bits.first_absent_from(0), 3);
        assert_eq!(bits.first_absent_from(63), 65);
        assert_eq!(bits.first_absent_from(500), 500);
        assert_eq!(bits.first_from(3), Some(63));
        assert_eq!(bits.first_from(65), Some(130));
        assert_eq!(bits.first_from(131), None);
        bits.remove(130);
        assert!(!bits.has(130));
    }

    #[test]
    fn a_full_set_has_no_gap_below_its_end() {
        let mut bits = Bits::default();
        (0..128).for_each(|index| assert!(bits.insert(index)));
        assert_eq!(bits.first_absent_from(0), 128);
    }
}
