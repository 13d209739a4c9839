//! A message on its way in: what of it is in flight, and what its sender may send.

use super::config::Framing;
use super::cutoffs::Cutoffs;
use crate::message::reassembly::{Arrival, Reassembly};
use crate::node::Time;

/// A message that is being received.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Its bytes.
    pub(super) message: Reassembly,
    /// Bytes below this needed no grant.
    unscheduled: u32,
    /// Bytes on the wire of what may be sent and has not arrived.
    in_flight: u32,
    /// Priorities that parts of it have had, a bit for each.
    pub(super) levels: u8,
    /// Priority of the last grant.
    pub(super) priority: u8,
    /// Order in which messages have begun.
    pub(super) birth: u32,
    /// Since when the lowest hole has been known, or when it was last asked for; 0 where there is
    /// none.
    pub(super) gap_since: Time,
    /// Times that its end has been asked for.
    pub(super) tails_asked: u32,
    /// A grant whose first byte is awaited, and when it went out: a round trip.
    pub(super) probe: Option<(u32, Time)>,
}

impl Incoming {
    /// Begins a message of `len` bytes into an empty buffer, of which `unscheduled` need
    /// no grant.
    pub(super) fn begin(&mut self, buffer: Vec<u8>, len: u32, unscheduled: u32, framing: &Framing) {
        self.message.begin(len, unscheduled, RANGES_MAX);
        self.message.store_in(buffer, len.min(framing.content_len_max) as usize);
        self.unscheduled = self.message.granted();
        self.in_flight = self.unscheduled
            + self.unscheduled.div_ceil(framing.unscheduled_len) * framing.unscheduled_overhead;
        self.priority = 0;
        self.levels = 0;
        self.gap_since = 0;
        self.tails_asked = 0;
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
        // Each packet states the length of the whole: with another it is forged, or of another
        // message.
        if len != self.message.len() {
            return (Arrival::Refused, 0);
        }
        // No overflow: the parser takes no packet that ends beyond the length that it states.
        let end = offset + bytes.len() as u32;
        let content_len = framing.content_len_max.saturating_sub(offset) as usize;
        let content = &bytes[..bytes.len().min(content_len)];
        let (arrival, new) = self.message.accept(offset, end, offset as usize, content);
        if new > 0 {
            let overhead = if offset < self.unscheduled {
                framing.unscheduled_overhead
            } else {
                framing.scheduled_overhead
            };
            // The error of what was cut otherwise than expected is dropped when nothing is in
            // flight.
            self.in_flight = match self.message.expected() {
                0 => 0,
                _ => self.in_flight.saturating_sub(new + overhead),
            };
        }
        (arrival, new)
    }

    /// Allows `more` bytes to be sent; tells how many there were left.
    pub(super) fn grant(&mut self, more: u32, framing: &Framing) -> u32 {
        let more = self.message.grant(self.message.granted() + more.min(self.message.ungranted()));
        self.in_flight += more + more.div_ceil(framing.scheduled_len) * framing.scheduled_overhead;
        more
    }

    /// Ends the message and hands over what is stored of it.
    pub(super) fn end(&mut self) -> Vec<u8> {
        self.in_flight = 0;
        self.message.end()
    }

    /// The priority of what stands at `offset`.
    pub(super) fn level_of(&self, offset: u32, cutoffs: &Cutoffs) -> u8 {
        if offset < self.unscheduled { cutoffs.level(self.message.len()) } else { self.priority }
    }

    /// Bytes on the wire that may be sent and have not arrived, with what packets cost besides.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
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
        local_len: 0,
        is_even: false,
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
                assert_eq!(message.message.received(), new);
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
        assert_eq!(message.message.base(), 25);
    }

    #[test]
    fn names_its_holes_and_its_tail() {
        let mut message = message(90);
        accept(&mut message, 10, 20);
        accept(&mut message, 40, 50);
        assert_eq!(message.message.gaps().collect::<Vec<_>>(), [(0, 10), (20, 20)]);
        assert_eq!(message.message.tail(), Some((50, 40)));
        accept(&mut message, 0, 40);
        assert!(message.message.ranges().is_empty());
        accept(&mut message, 50, 90);
        assert_eq!(message.message.tail(), None);
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

    #[test]
    fn what_comes_twice_is_in_flight_once() {
        let mut message = message(20);
        (0..3).for_each(|_| {
            accept(&mut message, 0, 10);
        });
        assert_eq!(message.in_flight(), 13);
    }

    /// Its sender has cut it into fewer packets than expected.
    #[test]
    fn nothing_is_in_flight_when_all_that_may_be_sent_has_come() {
        let mut message = message(20);
        accept(&mut message, 0, 20);
        assert_eq!(message.in_flight(), 0);
    }

    #[test]
    fn a_grant_of_several_packets_costs_what_each_costs() {
        let mut message = message(10);
        accept(&mut message, 0, 10);
        assert_eq!((message.grant(25, &FRAMING), message.in_flight()), (25, 25 + 3 * 2));
    }

    #[test]
    fn what_needed_no_grant_has_the_level_of_the_length_and_the_rest_that_of_the_grant() {
        let mut message = message(20);
        message.priority = 3;
        let found = [0, 19, 20, 99].map(|offset| message.level_of(offset, &Cutoffs::MODULE));
        assert_eq!(found, [7, 7, 3, 3]);
    }
}
