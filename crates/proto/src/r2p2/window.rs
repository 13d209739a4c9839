//! Which sequences of a session a server has taken: the memory behind "at most once".
//!
//! | sequence | answer |
//! |---|---|
//! | above the highest taken, or below it, within the window and not taken | fresh |
//! | within the window and taken | seen |
//! | at least a window below the highest taken | too old: nobody can tell any more |

/// Sequences that one window covers. A client opens a new session before its oldest unfinished call
/// falls out of it.
pub(super) const WINDOW: u32 = 1 << 16;

/// The sequences taken of one session.
#[derive(Debug)]
pub(super) struct Window {
    /// `None` before the first.
    highest: Option<u32>,
    /// Ring of bits; the bit of a sequence above `highest` is clear.
    taken: Box<[u64]>,
}

/// What a window knows of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    Fresh,
    Seen,
    TooOld,
}

impl Window {
    pub(super) fn new() -> Self {
        Self { highest: None, taken: vec![0; WINDOW as usize / 64].into_boxed_slice() }
    }

    /// Forgets everything, for another session.
    pub(super) fn clear(&mut self) {
        self.highest = None;
        self.taken.fill(0);
    }

    pub(super) fn recall(&self, sequence: u32) -> Memory {
        match self.highest {
            Some(highest) if sequence <= highest => {
                if sequence + WINDOW <= highest {
                    Memory::TooOld
                } else if self.bit(sequence) {
                    Memory::Seen
                } else {
                    Memory::Fresh
                }
            }
            _ => Memory::Fresh,
        }
    }

    /// Remembers a fresh sequence.
    pub(super) fn take(&mut self, sequence: u32) {
        match self.highest {
            Some(highest) if sequence <= highest => {}
            Some(highest) if sequence - highest < WINDOW => {
                (highest + 1..sequence).for_each(|between| self.set(between, 0));
                self.highest = Some(sequence);
            }
            _ => {
                self.taken.fill(0);
                self.highest = Some(sequence);
            }
        }
        self.set(sequence, 1);
    }

    /// Forgets a sequence that was taken and has not run.
    pub(super) fn forget(&mut self, sequence: u32) {
        if self.recall(sequence) == Memory::Seen {
            self.set(sequence, 0);
        }
    }

    fn bit(&self, sequence: u32) -> bool {
        let position = (sequence % WINDOW) as usize;
        self.taken[position / 64] >> (position % 64) & 1 == 1
    }

    fn set(&mut self, sequence: u32, value: u64) {
        let position = (sequence % WINDOW) as usize;
        let word = &mut self.taken[position / 64];
        *word = *word & !(1 << (position % 64)) | value << (position % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_each_sequence_once_in_any_order() {
        let mut window = Window::new();
        for sequence in [5, 3, 900, 4, 70_000] {
            assert_eq!(window.recall(sequence), Memory::Fresh, "{sequence}");
            window.take(sequence);
            assert_eq!(window.recall(sequence), Memory::Seen, "{sequence}");
        }
    }

    #[test]
    fn what_has_left_the_window_is_too_old_never_fresh() {
        let mut window = Window::new();
        window.take(0);
        window.take(WINDOW - 1);
        assert_eq!(window.recall(0), Memory::Seen);
        window.take(WINDOW);
        assert_eq!(window.recall(0), Memory::TooOld);
        window.take(10 * WINDOW);
        assert_eq!(window.recall(WINDOW), Memory::TooOld);
        assert_eq!(window.recall(10 * WINDOW - 1), Memory::Fresh);
    }

    #[test]
    fn sliding_clears_what_it_passes_over() {
        let mut window = Window::new();
        (0..WINDOW).for_each(|sequence| window.take(sequence));
        window.take(WINDOW + 10);
        assert_eq!(window.recall(WINDOW + 5), Memory::Fresh);
        assert_eq!(window.recall(11), Memory::Seen);
    }

    #[test]
    fn forgetting_makes_fresh_again() {
        let mut window = Window::new();
        window.take(7);
        window.forget(7);
        assert_eq!(window.recall(7), Memory::Fresh);
    }
}
