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

    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if capacity > 0 && self.held_bytes + capacity <= self.held_bytes_max {
            buffer.clear();
            self.held_bytes += capacity;
            self.free.push(buffer);
        }
    }
}

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
}
