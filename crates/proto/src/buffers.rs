//! A pool of message buffers, so that a warm endpoint allocates nothing.

/// Buffers given back, to be used again.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// Empty buffers, the one given last at the end.
    free: Vec<Vec<u8>>,
    /// Their capacity.
    held_bytes: usize,
    /// Most bytes of capacity kept.
    held_bytes_max: usize,
}

impl Buffers {
    /// A pool that holds at most `held_bytes_max` bytes of capacity.
    pub(crate) fn new(held_bytes_max: usize) -> Self {
        Self { free: Vec::new(), held_bytes: 0, held_bytes_max }
    }

    pub(crate) fn take(&mut self) -> Vec<u8> {
        let buffer = self.free.pop().unwrap_or_default();
        self.held_bytes -= buffer.capacity();
        buffer
    }

    /// As [`Buffers::take`], for a message of `len` bytes: of the buffers given last, the least that
    /// holds it, or else the longest. Memory that is new must be zeroed by the kernel first, which
    /// costs a long message more than to copy it.
    pub(crate) fn take_for(&mut self, len: usize) -> Vec<u8> {
        let fits = |buffer: &Vec<u8>| (len..2 * len.max(SHORT_LEN)).contains(&buffer.capacity());
        if self.free.last().is_some_and(fits) {
            return self.take();
        }
        let from = self.free.len().saturating_sub(LOOKED_AT);
        let fit = |place: &usize| match self.free[*place].capacity() {
            capacity if capacity >= len => (false, capacity),
            capacity => (true, usize::MAX - capacity),
        };
        // The one given last of those that are as good.
        let Some(best) = (from..self.free.len()).rev().min_by_key(fit) else {
            return Vec::new();
        };
        let buffer = self.free.swap_remove(best);
        self.held_bytes -= buffer.capacity();
        buffer
    }

    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if capacity > 0 && self.held_bytes + capacity <= self.held_bytes_max {
            buffer.clear();
            self.held_bytes += capacity;
            self.free.push(buffer);
        }
    }
}

/// Buffers among which one is chosen by its length.
const LOOKED_AT: usize = 16;

/// Short messages do not choose.
const SHORT_LEN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_what_it_was_given_up_to_its_bound() {
        let mut buffers = Buffers::new(100);
        buffers.give(Vec::with_capacity(60));
        buffers.give(Vec::with_capacity(60));
        assert!(buffers.take().capacity() >= 60);
        assert_eq!(buffers.take().capacity(), 0);
    }

    #[test]
    fn a_message_gets_the_least_buffer_that_holds_it_or_the_longest() {
        let mut buffers = Buffers::new(10_000);
        for capacity in [700, 90, 2000, 60] {
            buffers.give(Vec::with_capacity(capacity));
        }
        let taken = [80, 3000, 1, 1, 1].map(|len| buffers.take_for(len).capacity());
        assert_eq!((taken, buffers.held_bytes), ([90, 2000, 60, 700, 0], 0));
    }
}
