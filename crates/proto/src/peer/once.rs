//! The sequences of a session that are taken: the memory behind "at most once".
//!
//! | sequence | answer |
//! |---|---|
//! | above the highest taken, or below it, within the window and not taken | fresh |
//! | within the window and taken | seen |
//! | at least a window below the highest taken | too old: nobody can tell any more |
//!
//! At a server these are the requests that have run or were refused, at a client the calls that
//! have ended. The memory is a floor below which everything is taken, and above it chunks of bits
//! where something is: sequences taken in order need none, and those of a client that spreads its
//! calls over many servers at most [`BYTES_MAX`] bytes. A chunk is no longer than the datagram
//! that makes it necessary, so that no peer makes a server remember more than it has sent.
//!
//! Taking one sequence is a few hundred steps at most, whatever came before: where one closes a gap
//! before a whole window, the floor follows over the next few calls, and until then the bits say
//! what the floor would.

use std::collections::VecDeque;

use crate::work;

/// Sequences that are told apart. A client opens a new session before its oldest unfinished call
/// falls out of them.
pub(crate) const WINDOW: u32 = 1 << 16;

/// Most bytes of the chunks of one session.
#[cfg(test)]
pub(crate) const BYTES_MAX: usize = CHUNKS_MAX * size_of::<Chunk>();

/// Sequences taken of one session.
#[derive(Debug, Default)]
pub(crate) struct Once {
    /// Everything below is taken. It may lag behind the first that is not.
    floor: u32,
    /// One past the highest taken.
    end: u32,
    /// Chunks in which a sequence at or above `floor` is taken, ascending.
    chunks: VecDeque<Chunk>,
}

/// Knowledge of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Fresh,
    Seen,
    TooOld,
}

#[derive(Clone, Copy, Debug)]
struct Chunk {
    /// Its first sequence over [`CHUNK_BITS`].
    number: u32,
    /// One for each sequence that is taken.
    bits: [u64; CHUNK_BITS as usize / 64],
}

impl Once {
    /// Drops everything, for another session, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.floor = 0;
        self.end = 0;
        self.chunks.clear();
    }

    /// Everything below is taken.
    pub(crate) fn floor(&self) -> u32 {
        self.floor
    }

    /// Bytes that it holds besides itself.
    pub(crate) fn held_bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Chunk>()
    }

    /// Knowledge of `sequence`.
    #[inline]
    pub(crate) fn recall(&self, sequence: u32) -> Memory {
        // First, since the floor passes what was never taken when the window moves on.
        if sequence + WINDOW < self.end {
            Memory::TooOld
        } else if sequence < self.floor {
            Memory::Seen
        } else {
            match self.chunk_at(sequence / CHUNK_BITS) {
                Ok(at) if self.chunks[at].has(sequence) => Memory::Seen,
                _ => Memory::Fresh,
            }
        }
    }

    /// Takes `sequence`. Where that needs more memory, `grow` is asked for so many bytes; `false`
    /// when it refuses, and then the sequence is not taken.
    #[inline(always)]
    pub(crate) fn take(&mut self, sequence: u32, grow: impl FnOnce(usize) -> bool) -> bool {
        // In order, as all calls of a client to one server come: the floor alone remembers them.
        if sequence == self.floor && self.chunks.is_empty() {
            self.floor += 1;
            self.end = self.end.max(self.floor);
            return true;
        }
        self.take_apart(sequence, grow)
    }

    /// Takes a sequence that is not the next in order.
    fn take_apart(&mut self, sequence: u32, grow: impl FnOnce(usize) -> bool) -> bool {
        if sequence < self.floor {
            return true;
        }
        if sequence - self.floor >= WINDOW {
            self.raise_floor(sequence - (WINDOW - 1));
        }
        let number = sequence / CHUNK_BITS;
        let at = match self.chunk_at(number) {
            Ok(at) => at,
            Err(at) => {
                if !self.make_room(grow) {
                    return false;
                }
                // The nearer end moves, a chunk a step.
                work::step(at.min(self.chunks.len() - at));
                self.chunks.insert(at, Chunk { number, bits: [0; CHUNK_BITS as usize / 64] });
                at
            }
        };
        self.chunks[at].set(sequence);
        self.end = self.end.max(sequence + 1);
        self.pass_taken();
        true
    }

    fn chunk_at(&self, number: u32) -> Result<usize, usize> {
        // Most sequences are near the highest.
        match self.chunks.back() {
            Some(last) if last.number == number => Ok(self.chunks.len() - 1),
            Some(last) if last.number < number => Err(self.chunks.len()),
            None => Err(0),
            _ => self.chunks.binary_search_by_key(&number, |chunk| chunk.number),
        }
    }

    fn make_room(&mut self, grow: impl FnOnce(usize) -> bool) -> bool {
        let len = self.chunks.len();
        if len < self.chunks.capacity() {
            return true;
        }
        // Doubled, so that few chunks move each time, but to no more than a window needs.
        let more = len.clamp(1, CHUNKS_MAX - len);
        if !grow(more * size_of::<Chunk>()) {
            return false;
        }
        self.chunks.reserve_exact(more);
        true
    }

    fn raise_floor(&mut self, floor: u32) {
        self.floor = floor;
        let passed = self.chunks.partition_point(|chunk| chunk.number < floor / CHUNK_BITS);
        // Plain words are dropped by moving the front alone.
        self.chunks.drain(..passed);
    }

    /// Raises the floor past what is taken without a gap, by [`WORDS_PASSED_MAX`] words at most.
    fn pass_taken(&mut self) {
        for _ in 0..WORDS_PASSED_MAX {
            work::step(1);
            let Some(first) =
                self.chunks.front().filter(|first| first.number == self.floor / CHUNK_BITS)
            else {
                return;
            };
            let (place, bit) = (self.floor % CHUNK_BITS / 64, self.floor % 64);
            let run = (first.bits[place as usize] >> bit).trailing_ones();
            self.floor += run;
            if !self.floor.is_multiple_of(64) || run == 0 {
                return;
            }
            if self.floor.is_multiple_of(CHUNK_BITS) {
                self.chunks.pop_front();
            }
        }
    }
}

impl Chunk {
    fn has(&self, sequence: u32) -> bool {
        self.bits[(sequence % CHUNK_BITS / 64) as usize] >> (sequence % 64) & 1 == 1
    }

    fn set(&mut self, sequence: u32) {
        self.bits[(sequence % CHUNK_BITS / 64) as usize] |= 1 << (sequence % 64);
    }
}

/// Sequences of a chunk: 72 bytes, no more than the shortest datagram that asks for something.
const CHUNK_BITS: u32 = 512;

/// Words of bits that the floor passes at once: 2,048 sequences, many more than one call adds, so
/// that it soon catches up.
const WORDS_PASSED_MAX: u32 = 32;

/// Chunks that a window lies in.
const CHUNKS_MAX: usize = (WINDOW / CHUNK_BITS) as usize + 1;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn take(once: &mut Once, sequence: u32) {
        assert!(once.take(sequence, |_| true));
    }

    #[test]
    fn in_order_it_needs_no_chunk() {
        let mut once = Once::default();
        (0..100_000).for_each(|sequence| take(&mut once, sequence));
        assert_eq!((once.floor(), once.held_bytes()), (100_000, 0));
        assert_eq!(once.recall(99_999), Memory::Seen);
        assert_eq!(once.recall(100_000), Memory::Fresh);
    }

    #[test]
    fn remembers_each_sequence_once_in_any_order() {
        let mut once = Once::default();
        for sequence in [5, 3, 900, 4, 70_000] {
            assert_eq!(once.recall(sequence), Memory::Fresh, "{sequence}");
            take(&mut once, sequence);
            assert_eq!(once.recall(sequence), Memory::Seen, "{sequence}");
        }
    }

    #[test]
    fn in_any_order_it_knows_what_a_set_knows() {
        let (mut once, mut expected) = (Once::default(), BTreeSet::new());
        for step in 0..20_000u32 {
            let sequence = step.wrapping_mul(2_654_435_761) % 30_000;
            let is_seen = once.recall(sequence) != Memory::Fresh;
            assert_eq!(is_seen, expected.contains(&sequence), "{sequence}");
            take(&mut once, sequence);
            expected.insert(sequence);
        }
    }

    #[test]
    fn what_has_left_the_window_is_too_old_never_fresh() {
        let mut once = Once::default();
        take(&mut once, 0);
        take(&mut once, WINDOW - 1);
        assert_eq!(once.recall(0), Memory::Seen);
        take(&mut once, WINDOW);
        assert_eq!(once.recall(0), Memory::TooOld);
        take(&mut once, 10 * WINDOW);
        assert_eq!(once.recall(WINDOW), Memory::TooOld);
        assert_eq!(once.recall(10 * WINDOW - 1), Memory::Fresh);
        once.clear();
        assert_eq!(once.recall(0), Memory::Fresh);
    }

    #[test]
    fn what_lags_a_window_behind_counts_as_taken() {
        let mut once = Once::default();
        take(&mut once, 5);
        take(&mut once, WINDOW);
        assert_eq!([0, 1, 5].map(|at| once.recall(at) != Memory::Fresh), [true, false, true]);
        take(&mut once, 10_000_000);
        assert_ne!(once.recall(10_000_000 - WINDOW), Memory::Fresh);
        assert_eq!(once.recall(10_000_000 - WINDOW + 1), Memory::Fresh);
    }

    #[test]
    fn sliding_keeps_what_is_within_the_window() {
        let mut once = Once::default();
        (0..WINDOW).for_each(|sequence| take(&mut once, sequence));
        take(&mut once, WINDOW + 10);
        assert_eq!(once.recall(WINDOW + 5), Memory::Fresh);
        assert_eq!(once.recall(11), Memory::Seen);
    }

    #[test]
    fn a_datagram_makes_it_hold_no_more_than_a_chunk_or_two_and_all_of_them_a_window() {
        let mut once = Once::default();
        for taken in 1..=1000u32 {
            take(&mut once, taken.wrapping_mul(2_654_435_761) % (4 * WINDOW));
            assert!(once.held_bytes() <= 2 * taken as usize * size_of::<Chunk>());
            assert!(once.held_bytes() <= BYTES_MAX, "{}", once.held_bytes());
        }
    }

    #[test]
    fn a_gap_that_closes_before_a_window_is_passed_in_small_steps() {
        let mut once = Once::default();
        (1..WINDOW).for_each(|sequence| take(&mut once, sequence));
        assert_eq!(once.floor(), 0);
        for calls in 0..40 {
            let before = once.floor();
            take(&mut once, if calls == 0 { 0 } else { WINDOW + calls - 1 });
            assert!(once.floor() - before <= 64 * WORDS_PASSED_MAX, "{calls}");
            assert_eq!(once.recall(0), if calls > 0 { Memory::TooOld } else { Memory::Seen });
            assert_eq!(once.recall(WINDOW - 1), Memory::Seen);
            assert_eq!(once.recall(WINDOW + calls), Memory::Fresh);
        }
        assert_eq!(once.floor(), WINDOW + 39, "it has caught up");
    }

    #[test]
    fn what_it_has_no_memory_for_is_not_taken() {
        let mut once = Once::default();
        take(&mut once, 3);
        assert!(!once.take(1000, |_| false));
        assert_eq!((once.recall(3), once.recall(1000)), (Memory::Seen, Memory::Fresh));
        assert!(once.take(4, |_| false), "it needs none");
    }

    #[test]
    fn a_higher_floor_drops_what_is_below_it_and_nothing_else() {
        let mut once = Once::default();
        for sequence in [100, 10_000, 70_000] {
            take(&mut once, sequence);
        }
        assert_eq!(once.recall(100), Memory::TooOld);
        assert_eq!([10_000, 70_000].map(|at| once.recall(at)), [Memory::Seen; 2]);
        assert_eq!(once.chunks.len(), 2);
    }

    #[test]
    fn another_session_uses_the_same_memory() {
        let mut once = Once::default();
        take(&mut once, 3);
        let held_bytes = once.held_bytes();
        once.clear();
        assert!(once.take(9, |_| false), "it needs none");
        assert_eq!((once.held_bytes(), once.recall(3)), (held_bytes, Memory::Fresh));
    }

    /// The last but one of each chunk, of which the first is not passed while its last is missing.
    #[test]
    fn a_window_that_begins_and_ends_within_chunks_is_all_that_it_holds() {
        let mut once = Once::default();
        let first = CHUNK_BITS - 2;
        let taken = (first..WINDOW).step_by(CHUNK_BITS as usize).chain([first + WINDOW - 1]);
        taken.clone().for_each(|sequence| take(&mut once, sequence));
        assert!(taken.into_iter().all(|sequence| once.recall(sequence) == Memory::Seen));
        assert_eq!((once.chunks.len(), once.held_bytes()), (CHUNKS_MAX, BYTES_MAX));
    }

    #[test]
    fn a_chunk_near_an_end_moves_few_others() {
        let mut once = Once::default();
        (0..60).for_each(|at| take(&mut once, 1_000 + 2 * CHUNK_BITS * at));
        let [first, last] = [0, once.chunks.len() - 1].map(|at| once.chunks[at].number);
        for number in [first - 1, last - 1] {
            work::take();
            take(&mut once, number * CHUNK_BITS + 1);
            assert!(work::take() <= 4, "{number}");
        }
    }
}
