//! Future events of a network, and the form in which its agenda keeps them.

use crate::fabric;

/// A future event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Fabric(fabric::Event),
    /// A datagram has passed all that delays it.
    Deliver(u32),
    /// The node at a place may have a deadline now.
    Wake(u32),
    /// An alarm of the application at a place.
    Alarm(u32, u64),
}

/// An event as it is kept: in two words, of which each is made at once. Put together of narrower
/// parts, which are then read as words, the processor waits for an event each time it is moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    /// Port, packet, datagram or place in the upper half, and below it the kind.
    what: u64,
    /// Word of an alarm; else 0.
    word: u64,
}

impl Posted {
    /// The event.
    #[inline]
    pub(super) fn event(self) -> Event {
        let number = (self.what >> 32) as u32;
        match self.what as u32 {
            FREE => Event::Fabric(fabric::Event::Free(number)),
            ARRIVE => Event::Fabric(fabric::Event::Arrive(number)),
            DELIVER => Event::Deliver(number),
            WAKE => Event::Wake(number),
            _ => Event::Alarm(number, self.word),
        }
    }
}

impl From<Event> for Posted {
    #[inline]
    fn from(event: Event) -> Self {
        let (kind, number, word) = match event {
            Event::Fabric(fabric::Event::Free(port)) => (FREE, port, 0),
            Event::Fabric(fabric::Event::Arrive(flight)) => (ARRIVE, flight, 0),
            Event::Deliver(datagram) => (DELIVER, datagram, 0),
            Event::Wake(place) => (WAKE, place, 0),
            Event::Alarm(place, word) => (ALARM, place, word),
        };
        Self { what: u64::from(number) << 32 | u64::from(kind), word }
    }
}

impl From<fabric::Event> for Posted {
    #[inline]
    fn from(event: fabric::Event) -> Self {
        Event::Fabric(event).into()
    }
}

/// Kinds of events.
const FREE: u32 = 0;
const ARRIVE: u32 = 1;
const DELIVER: u32 = 2;
const WAKE: u32 = 3;
const ALARM: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_posted_is_what_happens() {
        for number in [0, 7, u32::MAX] {
            for event in [
                Event::Fabric(fabric::Event::Free(number)),
                Event::Fabric(fabric::Event::Arrive(number)),
                Event::Deliver(number),
                Event::Wake(number),
                Event::Alarm(number, u64::MAX - 1),
            ] {
                assert_eq!(Posted::from(event).event(), event);
            }
        }
    }
}
