//! The bytes of a message that come in any order, in a buffer that grows with them.
//!
//! | what comes | then |
//! |---|---|
//! | a quarter of what the buffer has room for, and more is to come | a longer buffer is begun |
//! | a packet, while there is a longer buffer | half as much again of what has come before moves on, until all has |
//! | a packet far beyond all that is stored, or beyond the buffer | it is put aside, and room for the next is made |
//! | a packet, while some are aside | one of them goes where it belongs |
//!
//! Invariants: room is in proportion to what has come, at most 64 times as much, or [`FIRST_ROOM`].
//! A packet costs two and a half copies of its bytes, of [`MOVED_MIN`] at least, or one and
//! [`CLEARED_MAX`] bytes that are cleared: it never waits for a copy of all that came before it.

use crate::work;

/// Bytes of a message.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Stored bytes, with zeros where nothing has come yet.
    bytes: Vec<u8>,
    /// While it moves, a longer buffer with the beginning of `bytes`; after, the one of before.
    other: Vec<u8>,
    /// True while the stored bytes move to `other`.
    is_moving: bool,
    /// Bytes of the whole message, as far as they are stored.
    len_max: usize,
    /// Packets that have come and are not stored yet, and where they begin.
    aside: Vec<(usize, Vec<u8>)>,
}

impl Room {
    /// Begins a message of `len_max` bytes in an empty buffer.
    pub(super) fn begin(&mut self, buffer: Vec<u8>, len_max: usize) {
        *self = Self { bytes: buffer, len_max, ..Self::default() };
    }

    /// Takes the bytes of a packet.
    #[inline]
    pub(super) fn take(&mut self, offset: usize, bytes: &[u8]) {
        if self.reaches(offset, bytes.len()) {
            self.store(offset, bytes);
        } else {
            work::copy(bytes.len());
            self.aside.push((offset, bytes.to_vec()));
        }
        if !self.aside.is_empty() {
            self.settle();
        }
    }

    /// Stores one of those that are aside.
    #[cold]
    fn settle(&mut self) {
        let mut left = SETTLED_MAX;
        let mut at = 0;
        while left > 0 && at < self.aside.len().min(LOOKED_AT_MAX) {
            let (offset, bytes) = &self.aside[at];
            let is_near =
                *offset <= self.bytes.len() && offset + bytes.len() <= self.bytes.capacity();
            work::step(1);
            if !is_near {
                at += 1;
                continue;
            }
            let (offset, bytes) = self.aside.swap_remove(at);
            self.store(offset, &bytes);
            left -= 1;
        }
    }

    /// True if `len` bytes at `offset` can be stored now. If not, that takes too much work for a
    /// packet, of which a part is done.
    #[inline]
    fn reaches(&mut self, offset: usize, len: usize) -> bool {
        let (stored, capacity) = (self.bytes.len(), self.bytes.capacity());
        let is_beyond = offset + len > capacity;
        let is_due = offset <= stored && stored > capacity / 4;
        let mut cleared_max = CLEARED_MAX;
        if capacity < self.len_max && (is_beyond || is_due) {
            self.move_on((len + len / 2).max(MOVED_MIN));
            // What it has moved counts against its work: it clears less.
            cleared_max /= 4;
        }
        let is_near = offset <= self.bytes.len() + cleared_max
            && (offset + len <= self.bytes.capacity() || !self.is_moving);
        if !is_near && !self.is_moving {
            self.clear(cleared_max.min(self.bytes.capacity() - self.bytes.len()));
        }
        is_near
    }

    /// Puts bytes where they belong. What lies between is zeros until it comes.
    #[inline]
    fn store(&mut self, offset: usize, bytes: &[u8]) {
        work::copy(bytes.len());
        if offset > self.bytes.len() {
            self.clear(offset - self.bytes.len());
        }
        let within = bytes.len().min(self.bytes.len() - offset);
        self.bytes[offset..offset + within].copy_from_slice(&bytes[..within]);
        self.bytes.extend_from_slice(&bytes[within..]);
        // What has moved is not read again: the longer buffer needs these bytes too.
        if self.is_moving && offset < self.other.len() {
            let moved = &mut self.other[offset..];
            let len = moved.len().min(bytes.len());
            moved[..len].copy_from_slice(&bytes[..len]);
        }
    }

    /// Ends the message: its bytes, and a buffer that is no longer needed.
    pub(super) fn end(&mut self) -> (Vec<u8>, Vec<u8>) {
        // No later packet takes them along.
        for (offset, bytes) in std::mem::take(&mut self.aside) {
            self.store(offset, &bytes);
        }
        let Self { bytes, other, .. } = std::mem::take(self);
        (bytes, other)
    }

    /// Clears so many bytes beyond what is stored.
    fn clear(&mut self, bytes: usize) {
        work::clear(bytes);
        self.bytes.resize(self.bytes.len() + bytes, 0);
    }

    /// Moves `len` bytes more to a longer buffer, which takes the place of the first with the last
    /// of them. Where there is no memory for a longer one, the first grows when it is full.
    #[cold]
    fn move_on(&mut self, len: usize) {
        if !self.is_moving {
            let capacity = self.bytes.capacity().max(FIRST_ROOM / GROWTH);
            let whole = self.len_max;
            let room = if whole <= 2 * GROWTH * capacity { whole } else { GROWTH * capacity };
            let mut longer = Vec::new();
            if longer.try_reserve_exact(room).is_err() {
                return;
            }
            self.other = longer;
            self.is_moving = true;
        }
        let moved = self.other.len();
        let until = self.bytes.len().min(moved + len);
        work::copy(until - moved);
        self.other.extend_from_slice(&self.bytes[moved..until]);
        if until == self.bytes.len() {
            std::mem::swap(&mut self.bytes, &mut self.other);
            self.other.clear();
            self.is_moving = false;
        }
    }
}

/// Most bytes of room before anything has come: a message of so many never moves, in whatever order
/// its packets come. What is not used of it costs addresses alone.
pub(crate) const FIRST_ROOM: usize = 1 << 20;

/// Times that a buffer grows by; twice as much where that is all of the message.
const GROWTH: usize = 8;

/// Least bytes that a packet moves on: short ones after a hole shall not wait for what is beside
/// it.
const MOVED_MIN: usize = 8 << 10;

/// Most bytes that are cleared because a packet lies beyond them.
const CLEARED_MAX: usize = 56 << 10;

/// Most packets that go where they belong with another one. The rest goes with the last.
const SETTLED_MAX: usize = 1;

/// Most packets that are looked at for that.
const LOOKED_AT_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a message packet by packet, each with bounded work.
    fn carry(whole: &[u8], packet: usize, order: impl Iterator<Item = usize>) -> Vec<u8> {
        let mut room = Room::default();
        // Short, so that much moves.
        room.begin(Vec::with_capacity(104_000), whole.len());
        for index in order {
            let offset = index * packet;
            work::take();
            room.take(offset, &whole[offset..whole.len().min(offset + packet)]);
            let moved = (packet * 3 / 2).max(MOVED_MIN);
            let most = (moved + 3 * packet + CLEARED_MAX / 5) as u64 / 128;
            let looks = LOOKED_AT_MAX as u64 + 2;
            assert!(work::take() <= most + looks + 4, "at {offset}");
        }
        room.end().0
    }

    fn message(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at / 3 % 251) as u8).collect()
    }

    #[test]
    fn bytes_are_where_they_belong_in_any_order_whatever_moves_meanwhile() {
        for (len, packet) in [(50_000, 1400), (400_000, 1400), (3_000_000, 8900), (8 << 20, 1400)] {
            let whole = message(len);
            let count = len.div_ceil(packet);
            assert_eq!(carry(&whole, packet, 0..count), whole);
            assert_eq!(carry(&whole, packet, (0..count).rev()), whole);
            // Coprime with each count.
            let shuffled = (0..count).map(|index| index * 7919 % count);
            assert_eq!(carry(&whole, packet, shuffled), whole);
            // Holes below what has moved.
            let late = (0..count).filter(|index| index % 10 != 3);
            let late = late.chain((0..count).filter(|index| index % 10 == 3));
            assert_eq!(carry(&whole, packet, late), whole);
        }
    }

    #[test]
    fn packets_in_order_are_stored_at_once_and_room_follows_them() {
        let mut room = Room::default();
        room.begin(Vec::with_capacity(FIRST_ROOM), 8 << 20);
        let bytes = [7; 8900];
        for index in 0..(8 << 20) / bytes.len() {
            room.take(index * bytes.len(), &bytes);
            assert!(room.aside.is_empty());
            let held = room.bytes.capacity() + room.other.capacity();
            let came = (index + 1) * bytes.len();
            assert!(held <= 2 * FIRST_ROOM + 64 * came, "{held} for {came}");
        }
        assert_eq!(room.bytes.capacity(), 8 << 20);
    }

    #[test]
    fn a_buffer_that_is_long_enough_stays() {
        let mut room = Room::default();
        room.begin(Vec::with_capacity(300_000), 300_000);
        (0..30).for_each(|index| {
            room.take(index * 10_000, &[1; 10_000]);
        });
        let (bytes, other) = room.end();
        assert_eq!((bytes.len(), bytes.capacity(), other.capacity()), (300_000, 300_000, 0));
    }

    fn room(capacity: usize, len_max: usize) -> Room {
        let mut room = Room::default();
        room.begin(Vec::with_capacity(capacity), len_max);
        room
    }

    #[test]
    fn a_message_is_in_the_memory_that_it_is_given() {
        let buffer = Vec::with_capacity(1_000);
        let memory = buffer.as_ptr();
        let mut room = Room::default();
        room.begin(buffer, 1_000);
        room.take(0, &[1; 1_000]);
        assert_eq!(room.end().0.as_ptr(), memory);
    }

    #[test]
    fn a_longer_buffer_is_begun_beyond_a_quarter_and_half_as_much_again_moves_with_each_packet() {
        let mut room = room(40_000, 100_000);
        for (index, moved) in [None, None, Some(15_000), None, None].into_iter().enumerate() {
            room.take(index * 10_000, &[1; 10_000]);
            assert_eq!(room.is_moving.then_some(room.other.len()), moved, "packet {index}");
        }
        // Packets in order are copied once.
        assert_eq!((room.bytes.capacity(), room.aside.capacity()), (100_000, 0));
        (5..10).for_each(|index| room.take(index * 10_000, &[1; 10_000]));
        let (bytes, other) = room.end();
        assert_eq!((bytes, other.capacity()), (vec![1; 100_000], 40_000));
    }

    /// Capacity of the buffer after a packet beyond the first one, for messages of different
    /// lengths.
    #[test]
    fn a_buffer_is_all_of_a_message_or_eight_times_as_long() {
        let from = FIRST_ROOM / GROWTH;
        for (len_max, expected) in [
            (400_000, 400_000),
            (12 * from, 12 * from),
            (16 * from, 16 * from),
            (16 * from + 1, FIRST_ROOM),
            (64 * from, FIRST_ROOM),
        ] {
            let mut short = room(20_000, len_max);
            short.take(12_000, &[1; 10_000]);
            assert_eq!((short.bytes.capacity(), short.bytes.len()), (expected, 22_000));
            assert!(short.aside.is_empty());
        }
    }

    #[test]
    fn a_packet_that_ends_with_the_buffer_moves_nothing() {
        let mut room = room(20_000, 100_000);
        room.take(12_000, &[1; 8_000]);
        assert_eq!(
            (room.bytes.len(), room.bytes.capacity(), room.is_moving),
            (20_000, 20_000, false)
        );
    }

    #[test]
    fn a_packet_that_fills_a_hole_in_what_has_moved_is_stored_in_both() {
        let whole = message(100_000);
        let mut room = room(80_000, whole.len());
        let order = [1, 2, 3, 0, 4, 5, 6, 7, 8, 9];
        for (count, index) in order.into_iter().enumerate() {
            let place = index * 10_000;
            room.take(place, &whole[place..place + 10_000]);
            assert_eq!(room.is_moving, (2..4).contains(&count), "packet {index}");
        }
        assert_eq!(room.end().0, whole);
    }

    #[test]
    fn what_is_aside_is_stored_with_the_packet_that_reaches_it() {
        let mut room = room(104_000, 400_000);
        room.take(300_000, &[2; 10_000]);
        assert_eq!((room.aside.len(), room.bytes.len()), (1, CLEARED_MAX / 4), "room is made");
        for index in 0..30 {
            assert_eq!(room.aside.len(), 1, "{index}");
            room.take(index * 10_000, &[1; 10_000]);
        }
        assert_eq!((room.aside.len(), room.bytes.len()), (0, 310_000));
    }

    /// It would grow by a copy of all that came before.
    #[test]
    fn what_lies_beyond_a_buffer_that_moves_waits_aside() {
        let mut room = room(104_000, 400_000);
        room.take(90_000, &[1; 1_400]);
        assert_eq!((room.aside.len(), room.bytes.len()), (1, CLEARED_MAX), "room is made");
        // The first begins to move; the others lie above a hole, and move nothing.
        for (offset, len) in [(103_000, 1_400), (70_000, 1_400), (100_000, 1_400), (101_500, 1_500)]
        {
            room.take(offset, &vec![1; len]);
            assert!(room.is_moving && room.bytes.capacity() == 104_000, "{offset}");
        }
        assert_eq!((room.bytes.len(), room.aside.len()), (103_000, 1));
        room.take(103_000, &[1; 1_400]);
        assert_eq!((room.bytes.len(), room.bytes.capacity()), (103_000, 104_000));
        assert_eq!(room.end().0.len(), 104_400);
    }
}
