//! A pool of message buffers, so that a warm endpoint allocates nothing.
//!
//! Long messages have buffers of their own: a fresh page costs the kernel a fault, which takes as
//! long as copying ten of them, so that no short message keeps what a long one can use again.

use crate::message::room::FIRST_ROOM;

/// Buffers given back, to be used again.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// Empty buffers of less than [`LONG_LEN`] bytes of capacity, the one given last at the end.
    short: Vec<Vec<u8>>,
    /// The other empty buffers, in the order of their capacity.
    long: Vec<Vec<u8>>,
    /// Their capacity, bytes.
    held_bytes: usize,
    /// Most bytes of capacity kept.
    held_bytes_max: usize,
}

impl Buffers {
    /// A pool that holds at most `held_bytes_max` bytes of capacity.
    pub(crate) fn new(held_bytes_max: usize) -> Self {
        Self { short: Vec::new(), long: Vec::new(), held_bytes: 0, held_bytes_max }
    }

    /// A buffer for a short message.
    #[inline]
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let buffer = self.short.pop().unwrap_or_default();
        self.held_bytes -= buffer.capacity();
        buffer
    }

    /// A buffer for a message of `len` bytes: if it is a long one, one that was as long before,
    /// where there is one, for growing a shorter one would copy all of it.
    #[inline]
    pub(crate) fn take_for(&mut self, len: usize) -> Vec<u8> {
        if len < LONG_LEN { self.take() } else { self.take_long(len) }
    }

    /// A buffer for a message of `len` bytes that come in several packets: one that holds all of
    /// it, where there is one, and else one with room for 1 MiB of it at most.
    pub(crate) fn take_to_fill(&mut self, len: usize) -> Vec<u8> {
        let buffer = self.take_for(len);
        let room = len.min(FIRST_ROOM);
        // A longer one takes the place of a short one, so that those of a warm endpoint are long
        // enough.
        if buffer.capacity() >= room { buffer } else { Vec::with_capacity(room) }
    }

    #[cold]
    fn take_long(&mut self, len: usize) -> Vec<u8> {
        let fitting = self.long.partition_point(|buffer| buffer.capacity() < len);
        if fitting == self.long.len() {
            return Vec::new();
        }
        let buffer = self.long.remove(fitting);
        self.held_bytes -= buffer.capacity();
        buffer
    }

    /// A buffer for a message of any length: a long one where there is one, so that none grows
    /// again and again.
    #[inline]
    pub(crate) fn take_any(&mut self) -> Vec<u8> {
        if self.long.is_empty() { self.take() } else { self.take_long(LONG_LEN) }
    }

    #[inline]
    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if capacity >= LONG_LEN {
            return self.give_long(buffer);
        }
        if capacity == 0 || self.held_bytes + capacity > self.held_bytes_max {
            return;
        }
        buffer.clear();
        self.held_bytes += capacity;
        self.short.push(buffer);
    }

    /// A long buffer takes the place of a shorter one where there is no room for both: messages
    /// that have become longer find buffers again.
    #[cold]
    fn give_long(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if self.held_bytes + capacity > self.held_bytes_max
            && self.long.first().is_some_and(|shortest| shortest.capacity() < capacity)
        {
            self.held_bytes -= self.long.remove(0).capacity();
        }
        if self.held_bytes + capacity > self.held_bytes_max {
            return;
        }
        buffer.clear();
        self.held_bytes += capacity;
        let place = self.long.partition_point(|other| other.capacity() < capacity);
        self.long.insert(place, buffer);
    }

    /// A reply's bytes, not in the buffer of a long message where they are few: a reply is kept for
    /// long, and the next request wants the buffer.
    #[inline]
    pub(crate) fn fit_reply(&mut self, payload: Vec<u8>) -> Vec<u8> {
        let is_fitting = payload.capacity() < LONG_LEN || payload.len() > COPIED_LEN_MAX;
        if is_fitting { payload } else { self.copy_short(payload) }
    }

    #[cold]
    fn copy_short(&mut self, payload: Vec<u8>) -> Vec<u8> {
        let mut fitting = self.take();
        fitting.extend_from_slice(&payload);
        self.give(payload);
        fitting
    }
}

/// Capacity from which on a buffer is one of a long message, bytes: what the allocator gets from
/// the kernel and gives back.
const LONG_LEN: usize = 64 << 10;

/// Bytes that are copied to leave a long buffer: a page.
const COPIED_LEN_MAX: usize = 4096;

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
    fn a_message_gets_the_least_buffer_that_holds_it_or_none() {
        let mut buffers = Buffers::new(1 << 30);
        for len in [1 << 20, 1 << 10, 4 << 20, 1 << 17] {
            buffers.give(Vec::with_capacity(len));
        }
        let lens = [100, 200_000, 8 << 20, 100].map(|len| buffers.take_for(len).capacity());
        assert_eq!(lens, [1 << 10, 1 << 20, 0, 0]);
        assert_eq!(buffers.take_for(1 << 20).capacity(), 4 << 20);
        assert_eq!((buffers.take_for(1 << 17).capacity(), buffers.held_bytes), (1 << 17, 0));
    }

    #[test]
    fn a_message_of_several_packets_begins_with_room_for_its_credit() {
        let mut buffers = Buffers::new(1 << 30);
        buffers.give(Vec::with_capacity(1 << 10));
        assert_eq!(buffers.take_to_fill(500).capacity(), 1 << 10);
        buffers.give(Vec::with_capacity(1 << 10));
        assert_eq!(buffers.take_to_fill(20_000).capacity(), 20_000);
        assert!(buffers.short.is_empty(), "the short one is gone");
        assert_eq!(buffers.take_to_fill(8 << 20).capacity(), FIRST_ROOM);
        buffers.give(Vec::with_capacity(8 << 20));
        assert_eq!(buffers.take_to_fill(8 << 20).capacity(), 8 << 20);
    }

    #[test]
    fn a_longer_buffer_takes_the_place_of_a_shorter_one() {
        let mut buffers = Buffers::new(1 << 20);
        let held = |buffers: &Buffers| buffers.long.iter().map(Vec::capacity).collect::<Vec<_>>();
        (0..2).for_each(|_| buffers.give(Vec::with_capacity(1 << 19)));
        buffers.give(Vec::with_capacity(1 << 18));
        assert_eq!(held(&buffers), [1 << 19, 1 << 19], "full, and it is no longer than they");
        buffers.give(Vec::with_capacity(1 << 20));
        assert_eq!(held(&buffers), [1 << 19], "one leaves at a time");
        assert_eq!(buffers.held_bytes, 1 << 19);
        buffers.give(Vec::with_capacity(1 << 20));
        assert_eq!((held(&buffers), buffers.held_bytes), (vec![1 << 20], 1 << 20));
    }

    #[test]
    fn few_bytes_leave_a_long_buffer_to_others_and_many_keep_theirs() {
        let mut buffers = Buffers::new(1 << 30);
        let with = |len, capacity| {
            let mut payload = Vec::with_capacity(capacity);
            payload.resize(len, 7);
            payload
        };
        assert_eq!(buffers.fit_reply(with(8, 1 << 20)), [7; 8]);
        assert_eq!(buffers.held_bytes, 1 << 20);
        assert_eq!(buffers.fit_reply(with(70_000, 2 << 20)).capacity(), 2 << 20);
        assert_eq!(buffers.take_any().capacity(), 1 << 20);
        assert_eq!(buffers.take_any().capacity(), 0);
        assert_eq!(buffers.fit_reply(with(8, 1 << 10)).capacity(), 1 << 10);
    }

    #[test]
    fn a_pool_is_full_at_its_bound_and_not_before() {
        let mut buffers = Buffers::new(120);
        (0..3).for_each(|_| buffers.give(Vec::with_capacity(60)));
        assert_eq!((buffers.short.len(), buffers.held_bytes), (2, 120));
        let mut buffers = Buffers::new(1 << 20);
        [1 << 18, 3 << 18].into_iter().for_each(|len| buffers.give(Vec::with_capacity(len)));
        assert_eq!((buffers.long.len(), buffers.held_bytes), (2, 1 << 20));
        assert_eq!(buffers.take_for(LONG_LEN).capacity(), 1 << 18);
        assert_eq!(buffers.held_bytes, 3 << 18);
    }

    #[test]
    fn a_buffer_is_long_from_its_bound_on_and_a_page_is_few_bytes() {
        let mut buffers = Buffers::new(1 << 30);
        buffers.give(Vec::with_capacity(LONG_LEN));
        buffers.give(Vec::with_capacity(LONG_LEN - 1));
        assert_eq!(buffers.take_for(LONG_LEN - 1).capacity(), LONG_LEN - 1);
        assert_eq!(buffers.take_for(LONG_LEN).capacity(), LONG_LEN);
        let mut fitted = |len| {
            let mut payload = Vec::with_capacity(LONG_LEN);
            payload.resize(len, 7);
            buffers.fit_reply(payload).capacity()
        };
        assert!(fitted(COPIED_LEN_MAX) < LONG_LEN);
        assert_eq!(fitted(COPIED_LEN_MAX + 1), LONG_LEN);
    }
}
