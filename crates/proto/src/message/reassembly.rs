//! A message on its way in: reassembly tolerant of reordering and duplication, and how much of it
//! may be sent.
//!
//! | what comes | then |
//! |---|---|
//! | within the credit, and something in it is new | stored where it belongs |
//! | anything else | counted |
//!
//! Invariant: memory grows with what has arrived and with the credit that is given, never with what
//! a header claims beyond that.

use super::room::Room;
use crate::work;

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Something in it is new, and the message is not complete.
    New,
    /// Something in it is new, and the message is complete.
    Complete,
    /// All of it had arrived before.
    Duplicate,
    /// It contradicts the packets before it, exceeds the credit, or would leave too many holes.
    Refused,
}

/// A message that is being received, in the units in which its protocol counts: packets of R2P2,
/// bytes of Homa.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// Bytes of the message that are stored.
    room: Room,
    /// A buffer that the message before did not need any more.
    spare: Vec<u8>,
    /// Units of the message; 0 when none has begun.
    len: u32,
    /// Every unit below this has arrived.
    base: u32,
    /// Ranges above `base` that have arrived: apart from each other and in order.
    ranges: Vec<(u32, u32)>,
    /// Most ranges.
    ranges_max: usize,
    /// Units that have arrived.
    received: u32,
    /// One past the highest that has arrived.
    end: u32,
    /// Units below this may be sent, as far as this side knows.
    granted: u32,
}

impl Reassembly {
    /// Begins a message of `len` units, of which `granted` may be sent, and which remembers at most
    /// `ranges_max` ranges apart from each other. [`Reassembly::store_in`] says where it is stored.
    pub(crate) fn begin(&mut self, len: u32, granted: u32, ranges_max: usize) {
        self.len = len;
        self.base = 0;
        self.ranges.clear();
        self.ranges_max = ranges_max;
        self.received = 0;
        self.end = 0;
        self.granted = granted.min(len);
    }

    /// Takes the units `from..to`, whose bytes begin at `offset`. Tells how many are new too.
    #[inline]
    pub(crate) fn accept(
        &mut self,
        from: u32,
        to: u32,
        offset: usize,
        bytes: &[u8],
    ) -> (Arrival, u32) {
        // Before anything is kept: the credit alone bounds what a sender can make this end hold.
        if to > self.granted {
            return (Arrival::Refused, 0);
        }
        // Nothing is new in what is empty either.
        if to <= self.base.max(from) {
            return (Arrival::Duplicate, 0);
        }
        // Who sends again does so with other bytes only to put them past what was decided by the
        // first.
        let known = self.base.saturating_sub(from) as usize;
        match self.note(from, to) {
            None => (Arrival::Refused, 0),
            Some(0) => (Arrival::Duplicate, 0),
            Some(new) => {
                if let Some(bytes) = bytes.get(known..).filter(|bytes| !bytes.is_empty()) {
                    self.room.take(offset + known, bytes);
                }
                self.received += new;
                self.end = self.end.max(to);
                (if self.received == self.len { Arrival::Complete } else { Arrival::New }, new)
            }
        }
    }

    /// Raises the credit to the units below `granted`, as far as the message has them; tells by how
    /// many it rose.
    pub(crate) fn grant(&mut self, granted: u32) -> u32 {
        let more = granted.min(self.len).saturating_sub(self.granted);
        self.granted += more;
        more
    }

    /// Stores the message, of which `bytes` are stored in all, in an empty buffer.
    pub(crate) fn store_in(&mut self, buffer: Vec<u8>, bytes: usize) {
        self.room.begin(buffer, bytes);
    }

    /// Ends the message and hands over what is stored of it.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        let payload;
        (payload, self.spare) = self.room.end();
        self.begin(0, 0, 0);
        payload
    }

    /// A buffer that the message which has ended last did not need any more.
    pub(crate) fn take_spare(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.spare)
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Every unit below this may be sent.
    pub(crate) fn granted(&self) -> u32 {
        self.granted
    }

    /// Units that have arrived.
    pub(crate) fn received(&self) -> u32 {
        self.received
    }

    /// Units that may be sent and have not arrived.
    pub(crate) fn expected(&self) -> u32 {
        self.granted - self.received
    }

    /// Units that have not been granted.
    pub(crate) fn ungranted(&self) -> u32 {
        self.len - self.granted
    }

    /// One past the highest unit that has arrived.
    pub(crate) fn highest(&self) -> u32 {
        self.end
    }

    /// Every unit below this has arrived.
    pub(crate) fn base(&self) -> u32 {
        self.base
    }

    /// Ranges that have arrived above a hole.
    pub(crate) fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges
    }

    /// Holes below something that has arrived, as offset and length.
    pub(crate) fn gaps(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let ends = std::iter::once(self.base).chain(self.ranges.iter().map(|range| range.1));
        ends.zip(&self.ranges).map(|(from, range)| (from, range.0 - from))
    }

    /// The granted end above everything that has arrived, as offset and length.
    pub(crate) fn tail(&self) -> Option<(u32, u32)> {
        let from = self.end.max(self.base);
        (self.granted > from).then(|| (from, self.granted - from))
    }

    /// Takes note of a range; tells how many units of it are new, or `None` when there is no room
    /// for another hole.
    fn note(&mut self, from: u32, to: u32) -> Option<u32> {
        // In order, as nearly all packets come.
        if from <= self.base && self.ranges.is_empty() {
            let new = to - self.base;
            self.base = to;
            return Some(new);
        }
        let (mut start, mut stop) = (from.max(self.base), to);
        // The ranges that it touches become one with it.
        let first = self.ranges.partition_point(|range| range.1 < start);
        let last = first + self.ranges[first..].iter().take_while(|range| range.0 <= stop).count();
        let touched = &self.ranges[first..last];
        work::step(touched.len());
        work::copy(size_of_val(&self.ranges[first..]));
        let known = |range: &(u32, u32)| range.1.min(to).saturating_sub(range.0.max(start));
        let new = to - start - touched.iter().map(known).sum::<u32>();
        if let (Some(low), Some(high)) = (touched.first(), touched.last()) {
            start = start.min(low.0);
            stop = stop.max(high.1);
        }
        if start == self.base {
            self.base = stop;
            self.ranges.drain(first..last);
        } else if first < last {
            self.ranges[first] = (start, stop);
            self.ranges.drain(first + 1..last);
        } else if self.ranges.len() < self.ranges_max {
            self.ranges.insert(first, (start, stop));
        } else {
            return None;
        }
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u32 = 20_000;

    #[test]
    fn a_message_is_stored_in_the_buffer_that_it_is_given() {
        let mut reassembly = Reassembly::default();
        let buffer = Vec::with_capacity(100);
        let memory = buffer.as_ptr();
        reassembly.begin(6, 6, 4);
        reassembly.store_in(buffer, 6);
        assert_eq!(reassembly.accept(3, 6, 3, b"def"), (Arrival::New, 3));
        assert_eq!(reassembly.accept(0, 3, 0, b"abc"), (Arrival::Complete, 3));
        let payload = reassembly.end();
        assert_eq!((&payload[..], payload.as_ptr()), (&b"abcdef"[..], memory));
        assert_eq!(reassembly.take_spare().capacity(), 0, "it was long enough");
    }

    #[test]
    fn what_has_come_in_order_is_not_written_over() {
        let mut reassembly = Reassembly::default();
        reassembly.begin(6, 6, 4);
        reassembly.store_in(Vec::with_capacity(6), 6);
        assert_eq!(reassembly.accept(0, 3, 0, b"abc"), (Arrival::New, 3));
        assert_eq!(reassembly.accept(0, 5, 0, b"vwxyz"), (Arrival::New, 2));
        assert_eq!(reassembly.accept(2, 6, 2, b"3456"), (Arrival::Complete, 1));
        assert_eq!(reassembly.end(), b"abcyz6");
    }

    #[test]
    fn a_buffer_that_became_too_short_is_handed_over_once() {
        let mut reassembly = Reassembly::default();
        let len = 10 * PACKET;
        reassembly.begin(len, len, 4);
        reassembly.store_in(Vec::with_capacity(30_000), len as usize);
        for from in (0..len).step_by(PACKET as usize) {
            let packet = [7; PACKET as usize];
            reassembly.accept(from, from + PACKET, from as usize, &packet);
        }
        assert_eq!(reassembly.end(), vec![7; len as usize]);
        let spare = reassembly.take_spare();
        assert_eq!((spare.len(), spare.capacity()), (0, 30_000));
        assert_eq!(reassembly.take_spare().capacity(), 0);
    }
}
