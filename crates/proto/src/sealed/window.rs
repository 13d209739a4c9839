//! Window of a peer's packets that have come, by their counts: each is taken once.
//!
//! | a count is | it is |
//! |---|---|
//! | above all before | fresh |
//! | within [`Window::LEN`] below the highest, and has not come | fresh |
//! | within that, and has come | not |
//! | further below | not: nobody can tell any more |

/// The counts that have come, of the last [`Window::LEN`].
pub(super) struct Window {
    /// One above the highest.
    end: u64,
    /// A bit for each of the last, at the place of the count modulo their number.
    bits: [u64; WORDS],
}

impl Window {
    /// A window in which a count has come, and all below it count as lost.
    pub(super) fn from(count: u64) -> Self {
        Self { end: count.saturating_add(1), bits: [u64::MAX; WORDS] }
    }

    /// Counts that are told apart. What a count higher than all of them has overtaken counts as
    /// lost. Low priorities are overtaken by what ports of switches hold back of them: at 25 Gbit/s
    /// and with 500 kB there, by 1,000 full packets, or 3,500 of the shortest.
    pub(super) const LEN: u64 = WORDS as u64 * BITS;

    /// True if a count has not come, as far as can be told.
    #[inline]
    pub(super) fn is_fresh(&self, count: u64) -> bool {
        let (word, bit) = place(count);
        let is_told = count >= self.end || self.end - count <= Self::LEN;
        // Above the last one there is none.
        is_told && count < u64::MAX && (count >= self.end || self.bits[word] & bit == 0)
    }

    /// Takes a count that is fresh.
    #[inline]
    pub(super) fn take(&mut self, count: u64) {
        let (word, bit) = place(count);
        if count >= self.end {
            self.advance(count);
        }
        self.bits[word] |= bit;
    }

    /// A count above all before has come: those between have not.
    #[inline]
    fn advance(&mut self, count: u64) {
        let (first, last) = (self.end / BITS, count / BITS);
        // Bits from the first count that was passed, and up to this one.
        let (from, to) = (u64::MAX << (self.end % BITS), u64::MAX >> (BITS - 1 - count % BITS));
        let word = |number: u64| (number % WORDS as u64) as usize;
        if count - self.end >= Self::LEN {
            self.bits = [0; WORDS];
        } else if first == last {
            self.bits[word(first)] &= !(from & to);
        } else {
            self.bits[word(first)] &= !from;
            (first + 1..last).for_each(|number| self.bits[word(number)] = 0);
            self.bits[word(last)] &= !to;
        }
        self.end = count + 1;
    }
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Window(below {})", self.end)
    }
}

/// The word and the bit of a count.
#[inline]
fn place(count: u64) -> (usize, u64) {
    ((count / BITS % WORDS as u64) as usize, 1 << (count % BITS))
}

/// Words of a window: a kilobyte.
const WORDS: usize = 128;

/// Bits of a word.
const BITS: u64 = u64::BITS as u64;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Against a set of all that have come.
    #[test]
    fn each_count_is_taken_once_in_any_order() {
        let mut draws = crate::policy::Draws::new(1);
        for spread in [1, 3, 70, 9_000, 40_000] {
            let (mut window, mut taken, mut end) = (Window::from(0), BTreeSet::from([0]), 1);
            for step in 0..20_000_u64 {
                let (ahead, behind) = (draws.below(spread), draws.below(spread));
                let count = (step + u64::from(ahead)).saturating_sub(u64::from(behind));
                let is_fresh = !taken.contains(&count) && count + Window::LEN >= end;
                assert_eq!(window.is_fresh(count), is_fresh, "{count} of {end}");
                if is_fresh {
                    window.take(count);
                    taken.insert(count);
                    end = end.max(count + 1);
                }
            }
        }
    }

    #[test]
    fn what_is_further_below_the_highest_than_a_window_is_not_fresh() {
        let mut window = Window::from(0);
        window.take(Window::LEN);
        assert!(window.is_fresh(1) && !window.is_fresh(0) && !window.is_fresh(Window::LEN));
        window.take(1);
        window.take(u64::MAX - 1);
        assert!(!window.is_fresh(Window::LEN + 1) && !window.is_fresh(u64::MAX - 1));
        assert!(window.is_fresh(u64::MAX - 2) && !window.is_fresh(u64::MAX));
    }

    /// Packets that went before the first may have been taken when nothing was remembered.
    #[test]
    fn what_is_below_the_first_is_not_fresh() {
        let window = Window::from(9);
        assert!((0..10).all(|count| !window.is_fresh(count)) && window.is_fresh(10));
    }
}
