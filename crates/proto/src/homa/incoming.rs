//! A message on its way in: reassembly of ranges of any length, and what its sender may send.
//!
//! Invariant: memory grows with what has arrived and with what was granted, never with what a
//! header claims.

use super::config::Framing;
use super::cutoffs::Cutoffs;
use crate::message::{Arrival, store};
use crate::node::Time;

/// A message that is being received.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// What is stored of it; zeros where nothing has arrived yet.
    payload: Vec<u8>,
    /// Bytes of the message; 0 when none has begun.
    len: u32,
    /// Every byte below this has arrived.
    base: u32,
    /// Ranges above `base` that have arrived: apart from each other and in order.
    ranges: Vec<(u32, u32)>,
    /// Bytes that have arrived.
    received: u32,
    /// One past the highest that has arrived.
    end: u32,
    /// Bytes below this may be sent, as far as this side knows.
    granted: u32,
    /// Bytes below this needed no grant.
    unscheduled: u32,
    /// Bytes on the wire of what may be sent and has not arrived.
    in_flight: u32,
    /// Priority of the last grant.
    pub(super) priority: u8,
    /// Order in which messages have begun.
    pub(super) birth: u32,
    /// Since when the lowest hole has been known, or when it was last asked for; 0 where there is
    /// none.
    pub(super) gap_since: Time,
    /// A grant whose first byte is awaited, and when it went out: a round trip.
    pub(super) probe: Option<(u32, Time)>,
}

impl Incoming {
    /// Begins a message of `len` bytes into `payload`, an empty buffer, of which `unscheduled` need
    /// no grant.
    pub(super) fn begin(
        &mut self,
        payload: Vec<u8>,
        len: u32,
        unscheduled: u32,
        framing: &Framing,
    ) {
        self.payload = payload;
        self.len = len;
        self.base = 0;
        self.ranges.clear();
        self.received = 0;
        self.end = 0;
        self.granted = unscheduled.min(len);
        self.unscheduled = self.granted;
        self.in_flight = self.granted
            + self.granted.div_ceil(framing.unscheduled_len) * framing.unscheduled_overhead;
        self.priority = 0;
        self.gap_since = 0;
        self.probe = None;
    }

    /// Takes bytes from `offset` on of a message that its header says has `len` bytes. Tells how
    /// many are new too.
    pub(super) fn accept(
        &mut self,
        offset: u32,
        len: u32,
        bytes: &[u8],
        framing: &Framing,
    ) -> (Arrival, u32) {
        let end = offset + bytes.len() as u32;
        if len != self.len || end > self.granted {
            return (Arrival::Refused, 0);
        }
        if end <= self.base || bytes.is_empty() {
            return (Arrival::Duplicate, 0);
        }
        let Some(new) = self.note(offset, end) else {
            return (Arrival::Refused, 0);
        };
        if new == 0 {
            return (Arrival::Duplicate, 0);
        }
        let content_len = framing.content_len_max.saturating_sub(offset) as usize;
        self.store(offset as usize, &bytes[..bytes.len().min(content_len)]);
        let overhead = if offset < self.unscheduled {
            framing.unscheduled_overhead
        } else {
            framing.scheduled_overhead
        };
        self.received += new;
        self.end = self.end.max(end);
        // What was cut otherwise than expected is forgotten when nothing is in flight.
        self.in_flight = if self.received == self.granted {
            0
        } else {
            self.in_flight.saturating_sub(new + overhead)
        };
        (if self.received == self.len { Arrival::Complete } else { Arrival::New }, new)
    }

    /// Allows `more` bytes to be sent; tells how many there were left.
    pub(super) fn grant(&mut self, more: u32, framing: &Framing) -> u32 {
        let more = more.min(self.len - self.granted);
        self.granted += more;
        self.in_flight += more + more.div_ceil(framing.scheduled_len) * framing.scheduled_overhead;
        more
    }

    /// Takes it that bytes below `offset` may be sent: the sender asks nobody. Tells by how many
    /// they are more.
    pub(super) fn open(&mut self, offset: u32) -> u32 {
        let offset = offset.min(self.len).max(self.granted);
        let more = offset - self.granted;
        self.granted = offset;
        more
    }

    /// Ends the message and hands over what is stored of it.
    pub(super) fn end(&mut self) -> Vec<u8> {
        self.len = 0;
        self.granted = 0;
        self.received = 0;
        self.in_flight = 0;
        self.base = 0;
        self.ranges.clear();
        std::mem::take(&mut self.payload)
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn granted(&self) -> u32 {
        self.granted
    }

    pub(super) fn received(&self) -> u32 {
        self.received
    }

    /// The priority of what stands at `offset`.
    pub(super) fn level_of(&self, offset: u32, cutoffs: &Cutoffs) -> u8 {
        if offset < self.unscheduled { cutoffs.level(self.len) } else { self.priority }
    }

    /// Bytes that have not been granted.
    pub(super) fn ungranted(&self) -> u32 {
        self.len - self.granted
    }

    /// Bytes that may be sent and have not arrived.
    pub(super) fn expected(&self) -> u32 {
        self.granted - self.received
    }

    /// The same on the wire, with what packets cost besides.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// One past the highest byte that has arrived.
    pub(super) fn highest(&self) -> u32 {
        self.end
    }

    /// Every byte below this has arrived.
    pub(super) fn base(&self) -> u32 {
        self.base
    }

    /// Whether something is missing below something that has arrived.
    pub(super) fn has_gap(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// What is missing below something that has arrived, as offset and length.
    pub(super) fn gaps(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let ends = std::iter::once(self.base).chain(self.ranges.iter().map(|range| range.1));
        ends.zip(&self.ranges).map(|(from, range)| (from, range.0 - from))
    }

    /// What was granted and lies above everything that has arrived, as offset and length.
    pub(super) fn tail(&self) -> Option<(u32, u32)> {
        let from = self.end.max(self.base);
        (self.granted > from).then(|| (from, self.granted - from))
    }

    /// Takes note of a range; tells how many bytes of it are new, or `None` when there is no room
    /// for another hole.
    fn note(&mut self, offset: u32, end: u32) -> Option<u32> {
        if offset <= self.base && self.ranges.is_empty() {
            let new = end - self.base;
            self.base = end;
            return Some(new);
        }
        let (mut start, mut stop) = (offset.max(self.base), end);
        // The ranges that it touches become one with it.
        let first = self.ranges.partition_point(|range| range.1 < start);
        let last = first + self.ranges[first..].iter().take_while(|range| range.0 <= stop).count();
        let known: u32 = self.ranges[first..last]
            .iter()
            .map(|range| range.1.min(end).saturating_sub(range.0.max(start)))
            .sum();
        let new = end - start - known;
        if let (Some(low), Some(high)) =
            (self.ranges[first..last].first(), self.ranges[first..last].last())
        {
            start = start.min(low.0);
            stop = stop.max(high.1);
        }
        if start == self.base {
            self.base = stop;
            self.ranges.drain(first..last);
        } else if first < last {
            self.ranges[first] = (start, stop);
            self.ranges.drain(first + 1..last);
        } else if self.ranges.len() < RANGES_MAX {
            self.ranges.insert(first, (start, stop));
        } else {
            return None;
        }
        Some(new)
    }

    fn store(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        store(&mut self.payload, offset, bytes);
    }
}

/// Most ranges apart from each other that a message remembers: a quarter of the packets of the
/// longest.
const RANGES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMING: Framing = Framing {
        unscheduled_len: 10,
        scheduled_len: 10,
        unscheduled_overhead: 3,
        scheduled_overhead: 2,
        content_len_max: u32::MAX,
    };

    fn message(granted: u32) -> Incoming {
        let mut message = Incoming::default();
        message.begin(Vec::new(), 100, granted, &FRAMING);
        message
    }

    fn accept(message: &mut Incoming, from: u32, to: u32) -> (Arrival, u32) {
        let bytes: Vec<u8> = (from as u8..to as u8).collect();
        message.accept(from, 100, &bytes, &FRAMING)
    }

    #[test]
    fn reassembles_ranges_of_any_length_in_any_order() {
        for stride in [1, 7, 13, 99] {
            let mut message = message(100);
            let mut new = 0;
            for step in 0..100u32 {
                let from = step * stride % 101 % 100;
                let (arrival, bytes) = accept(&mut message, from, (from + 5).min(100));
                assert_ne!(arrival, Arrival::Refused);
                new += bytes;
                assert_eq!(message.received(), new);
                if arrival == Arrival::Complete {
                    break;
                }
            }
            assert_eq!((new, message.end()), (100, (0..100).collect()), "stride {stride}");
        }
    }

    #[test]
    fn tells_duplicates_and_what_contradicts() {
        let mut message = message(50);
        assert_eq!(accept(&mut message, 10, 20), (Arrival::New, 10));
        assert_eq!(accept(&mut message, 12, 20), (Arrival::Duplicate, 0));
        assert_eq!(accept(&mut message, 5, 25), (Arrival::New, 10));
        assert_eq!(accept(&mut message, 45, 51), (Arrival::Refused, 0));
        assert_eq!(message.accept(0, 99, &[0], &FRAMING), (Arrival::Refused, 0));
        assert_eq!(accept(&mut message, 0, 5), (Arrival::New, 5));
        assert_eq!(accept(&mut message, 0, 25), (Arrival::Duplicate, 0));
        assert_eq!(message.base(), 25);
    }

    #[test]
    fn names_its_holes_and_its_tail() {
        let mut message = message(90);
        accept(&mut message, 10, 20);
        accept(&mut message, 40, 50);
        assert_eq!(message.gaps().collect::<Vec<_>>(), [(0, 10), (20, 20)]);
        assert_eq!(message.tail(), Some((50, 40)));
        accept(&mut message, 0, 40);
        assert!(!message.has_gap());
        accept(&mut message, 50, 90);
        assert_eq!(message.tail(), None);
    }

    #[test]
    fn counts_what_is_in_flight_with_what_packets_cost() {
        let mut message = message(20);
        assert_eq!(message.in_flight(), 26);
        accept(&mut message, 0, 10);
        assert_eq!(message.in_flight(), 13);
        assert_eq!(message.grant(15, &FRAMING), 15);
        assert_eq!(message.in_flight(), 13 + 15 + 4);
        accept(&mut message, 10, 20);
        accept(&mut message, 20, 30);
        assert_eq!(message.in_flight(), 7);
        assert_eq!(message.grant(1000, &FRAMING), 65);
    }

    #[test]
    fn what_lies_behind_the_content_is_only_counted() {
        let framing = Framing { content_len_max: 15, ..FRAMING };
        let mut message = message(100);
        for from in [10, 0, 20] {
            message.accept(from, 100, &[7; 10], &framing);
        }
        assert_eq!(message.accept(30, 100, &[7; 70], &framing).0, Arrival::Complete);
        assert_eq!(message.end(), [7; 15]);
    }

    #[test]
    fn holes_have_a_limit() {
        let mut message = Incoming::default();
        message.begin(Vec::new(), 10_000, 10_000, &FRAMING);
        for hole in 0..RANGES_MAX as u32 {
            assert_eq!(message.accept(2 * hole + 1, 10_000, &[1], &FRAMING).0, Arrival::New);
        }
        assert_eq!(message.accept(9000, 10_000, &[1], &FRAMING).0, Arrival::Refused);
        assert_eq!(message.accept(0, 10_000, &[1], &FRAMING), (Arrival::New, 1));
    }
}
