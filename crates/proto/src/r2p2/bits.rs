//! A set of packet indexes that grows with the highest index seen, and keeps its memory when it is
//! cleared.

use crate::work;

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

    /// Adds the indexes from `from` to below `to` that are not in `others`; tells how many were
    /// absent.
    pub(super) fn insert_range(&mut self, from: u16, to: u16, others: &Self) -> u16 {
        let mut added = 0;
        for (word, mask) in words(from, to) {
            work::step(1);
            let wanted = mask & !others.words.get(word).copied().unwrap_or(0);
            if wanted != 0 && self.words.len() <= word {
                self.words.resize(word + 1, 0);
            }
            if wanted != 0 {
                added += (wanted & !self.words[word]).count_ones();
                self.words[word] |= wanted;
            }
        }
        added as u16
    }

    /// Removes the indexes from `from` to below `to`; tells how many were members.
    pub(super) fn remove_range(&mut self, from: u16, to: u16) -> u16 {
        let mut removed = 0;
        // Beyond the highest member there is nothing to remove.
        let end = u16::try_from(self.words.len() * 64).unwrap_or(u16::MAX);
        for (word, mask) in words(from, to.min(end)) {
            work::step(1);
            if let Some(bits) = self.words.get_mut(word) {
                removed += (*bits & mask).count_ones();
                *bits &= !mask;
            }
        }
        removed as u16
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

/// The words that hold the indexes from `from` to below `to`, each with a mask of these.
fn words(from: u16, to: u16) -> impl Iterator<Item = (usize, u64)> {
    let first = usize::from(from / 64);
    // `to` may be 0, below which there is no index.
    let end = if from < to { usize::from((to - 1) / 64) + 1 } else { first };
    (first..end).map(move |word| {
        let begin = word * 64;
        let low = usize::from(from).saturating_sub(begin);
        let high = (usize::from(to) - begin).min(64);
        // Ones shifted out at the top: to shift a 1 up would overflow for a whole word.
        (word, u64::MAX >> (64 - (high - low)) << low)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_what_one_after_the_other_is() {
        for (from, to) in [(0, 0), (0, 1), (3, 64), (63, 65), (64, 128), (1, 200), (130, 131)] {
            let mut others = Bits::default();
            for index in [2, 64, 70, 150] {
                others.insert(index);
            }
            let mut bits = Bits::default();
            bits.insert(5);
            bits.insert(199);
            let mut slow = bits.clone();
            let wanted = (from..to).filter(|&index| !others.has(index));
            let added = wanted.filter(|&index| slow.insert(index)).count();
            assert_eq!(usize::from(bits.insert_range(from, to, &others)), added, "{from} to {to}");
            let is_same =
                |bits: &Bits, slow: &Bits| (0..300).all(|at| bits.has(at) == slow.has(at));
            assert!(is_same(&bits, &slow), "{from} to {to}");
            let members = (from..to).filter(|&index| slow.has(index)).count();
            (from..to).for_each(|index| slow.remove(index));
            assert_eq!(usize::from(bits.remove_range(from, to)), members, "{from} to {to}");
            assert!(is_same(&bits, &slow), "{from} to {to}");
        }
    }

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

    #[test]
    fn the_lowest_absent_is_looked_for_above_a_place_alone() {
        let mut bits = Bits::default();
        assert!([5, 70].iter().all(|&index| bits.insert(index)));
        assert_eq!([0, 5, 6, 70].map(|from| bits.first_absent_from(from)), [0, 6, 6, 71]);
    }

    #[test]
    fn a_cleared_set_has_no_members() {
        let mut bits = Bits::default();
        assert!([5, 70].iter().all(|&index| bits.insert(index)));
        bits.clear();
        assert!(!bits.has(5) && !bits.has(70) && bits.first_from(0).is_none());
    }
}
