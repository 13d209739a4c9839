//! A message on its way out: what may go, what must go again. It knows nothing of time; its owner
//! is told by the receiver.

use std::collections::VecDeque;

use crate::message::payload::Payload;
use crate::node::Attached;

/// A message that is being sent.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Beginning of the message; zeros follow.
    payload: Payload,
    /// Bytes of the message.
    len: u32,
    /// Bytes below this have been sent at least once.
    next: u32,
    /// Bytes below this may be sent.
    granted: u32,
    /// Bytes below this needed no grant.
    unscheduled: u32,
    /// Priority of what a grant allowed, where `apart` does not say.
    priority: u8,
    /// Grants that keep their own priority and of which something has not been sent: up to where,
    /// and the priority.
    apart: VecDeque<(u32, u8)>,
    /// Ranges to be sent again, and their priority, in the order they were asked for.
    again: Vec<(u32, u32, u8)>,
    /// Order in which messages have begun.
    pub(super) birth: u32,
    /// Something of it has been sent twice, or will be.
    pub(super) has_repeated: bool,
    /// Bytes below this went before it began again, and go again.
    old: u32,
}

/// The next packet of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Its first byte in the message.
    pub(super) offset: u32,
    /// Bytes of it.
    pub(super) len: u32,
    /// Source of its priority.
    pub(super) level: Level,
    /// It was sent before.
    pub(super) is_again: bool,
}

/// Source of a packet's priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// The receiver said so.
    Granted(u8),
    /// From the receiver's cutoffs.
    Unscheduled,
}

impl Outgoing {
    /// Begins a message of which `unscheduled` bytes need no grant.
    pub(super) fn begin(&mut self, payload: Payload, unscheduled: u32) {
        self.payload = payload;
        self.next = 0;
        self.priority = 0;
        self.again.clear();
        self.apart.clear();
        self.has_repeated = false;
        self.old = 0;
        self.pad(0, unscheduled);
    }

    /// Makes a message of which nothing has been sent `len` bytes long, if it is shorter, by zeros
    /// that are stored nowhere.
    pub(super) fn pad(&mut self, len: u32, unscheduled: u32) {
        self.len = len.max(self.payload.len() as u32);
        self.granted = unscheduled.min(self.len);
        self.unscheduled = self.granted;
    }

    /// Ends the message and hands its buffer back.
    pub(super) fn end(&mut self) -> Vec<u8> {
        self.len = 0;
        self.next = 0;
        self.granted = 0;
        self.again.clear();
        self.payload.take()
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn granted(&self) -> u32 {
        self.granted
    }

    /// Bytes that were sent at least once.
    pub(super) fn sent_len(&self) -> u32 {
        self.next
    }

    /// True if anything may go.
    pub(super) fn is_sendable(&self) -> bool {
        self.next < self.granted || !self.again.is_empty()
    }

    /// Rank in SRPT: bytes that have not been sent, or not again.
    pub(super) fn remaining(&self) -> u32 {
        let again: u32 = self.again.iter().map(|range| range.1 - range.0).sum();
        self.len() - self.next + again
    }

    /// Takes a grant, whose priority all that is granted and not sent has from now on; tells
    /// whether it is within the message.
    pub(super) fn grant(&mut self, offset: u32, priority: u8) -> bool {
        if offset > self.len() {
            return false;
        }
        // One that is late or comes twice allows nothing, and its priority is of the past.
        if offset > self.granted {
            self.granted = offset;
            self.priority = priority;
            self.apart.clear();
        }
        true
    }

    /// As [`Outgoing::grant`], but what was granted before keeps its priority.
    pub(super) fn grant_apart(&mut self, offset: u32, priority: u8) -> bool {
        if offset > self.granted && offset <= self.len() && self.apart.len() < APART_MAX {
            self.granted = offset;
            self.apart.push_back((offset, priority));
            return true;
        }
        self.grant(offset, priority)
    }

    /// The packet to send next, of at most `lens` bytes: unscheduled and scheduled. One never
    /// straddles the two.
    pub(super) fn peek(&self, lens: (u32, u32)) -> Option<Piece> {
        if let Some(&(from, to, level)) = self.again.first() {
            let len = (to - from).min(self.room(from, lens));
            return Some(Piece { offset: from, len, level: Level::Granted(level), is_again: true });
        }
        if self.next >= self.granted {
            return None;
        }
        let len = (self.granted - self.next).min(self.room(self.next, lens));
        let level = if self.next < self.unscheduled {
            Level::Unscheduled
        } else {
            Level::Granted(self.granted_level())
        };
        Some(Piece { offset: self.next, len, level, is_again: self.next < self.old })
    }

    /// The piece that goes next and those like it that follow, at most `count_max` and together as
    /// one: their bytes, and those of each but the last. `None` where they are few, or may have
    /// different priorities.
    pub(super) fn run(&self, lens: (u32, u32), count_max: usize) -> Option<(Piece, u32)> {
        // The driver gathers the payload from where it is, and padding is nowhere.
        let is_stored = self.payload.len() as u32 == self.len;
        let is_again = !self.again.is_empty() || self.next < self.old;
        if is_again || !self.apart.is_empty() || !is_stored {
            return None;
        }
        let piece = self.peek(lens)?;
        let end = if self.next < self.unscheduled { self.unscheduled } else { self.granted };
        let left = end - self.next;
        let count = (left.div_ceil(piece.len) as usize).min(count_max);
        let len = left.min(count as u32 * piece.len);
        (count > 1 && len as usize >= Attached::LEN_MIN)
            .then_some((Piece { len, ..piece }, piece.len))
    }

    /// Takes note that the piece that [`Outgoing::peek`] gave is sent.
    pub(super) fn sent(&mut self, piece: Piece) {
        let end = piece.offset + piece.len;
        if let Some(first) = self.again.first_mut() {
            first.0 = end;
            if first.0 >= first.1 {
                self.again.remove(0);
            }
            return;
        }
        self.next = end;
        while self.apart.front().is_some_and(|grant| grant.0 <= end) {
            self.priority = self.apart.pop_front().map_or(0, |grant| grant.1);
        }
    }

    /// The bytes of a piece, without the zeros of the padding that it ends with.
    pub(super) fn bytes(&self, piece: Piece) -> &[u8] {
        let [from, to] = [piece.offset, piece.offset + piece.len]
            .map(|place| self.payload.len().min(place as usize));
        &self.payload.bytes()[from..to]
    }

    /// Has what was sent of `from..to` sent again at `priority`; tells how many bytes.
    pub(super) fn resend(&mut self, from: u32, to: u32, priority: u8) -> u32 {
        // What has not gone once is not lost: it goes in its turn.
        let to = to.min(self.next);
        if from >= to || self.again.len() >= AGAIN_MAX {
            return 0;
        }
        // What is asked for twice goes once.
        let is_pending = self.again.iter().any(|range| range.0 < to && from < range.1);
        if is_pending {
            return 0;
        }
        self.again.push((from, to, priority));
        self.has_repeated = true;
        to - from
    }

    /// Nothing of it has come, of which the first `unscheduled` bytes and more went: these go
    /// again, and the rest as its receiver grants it, who may be losing as much of many others.
    /// Tells how much goes again.
    pub(super) fn fall_back(&mut self, unscheduled: u32) -> u32 {
        // It may fall back once more before all of it has gone again.
        let sent = self.next.max(self.old);
        self.begin_again(unscheduled);
        self.old = sent;
        sent
    }

    /// Has all of it sent to who has granted nothing yet and takes `unscheduled` bytes without.
    pub(super) fn begin_again(&mut self, unscheduled: u32) {
        self.again.clear();
        self.apart.clear();
        self.priority = 0;
        self.pad(self.len, unscheduled);
        self.restart();
    }

    /// Has all of it sent once more, as if nothing had gone.
    pub(super) fn restart(&mut self) {
        self.next = 0;
        self.has_repeated = true;
    }

    fn granted_level(&self) -> u8 {
        self.apart.front().map_or(self.priority, |grant| grant.1)
    }

    fn room(&self, offset: u32, (unscheduled, scheduled): (u32, u32)) -> u32 {
        if offset < self.unscheduled {
            // Beyond, the priority is that of a grant, and a packet has only one.
            unscheduled.min(self.unscheduled - offset)
        } else {
            scheduled
        }
    }
}

/// Most grants that keep their own priority; what is granted beyond them has that of the last.
const APART_MAX: usize = 64;

/// Most ranges that wait to be sent again; what does not fit is asked for once more.
const AGAIN_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(unscheduled: u32) -> Outgoing {
        let mut message = Outgoing::default();
        message.begin((0..100).collect::<Vec<u8>>().into(), unscheduled);
        message
    }

    fn drain(message: &mut Outgoing) -> Vec<(u32, u32)> {
        let next = || {
            message
                .peek((30, 40))
                .inspect(|&piece| message.sent(piece))
                .map(|piece| (piece.offset, piece.len))
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn cuts_a_packet_at_the_end_of_the_unscheduled_bytes() {
        let mut message = message(50);
        assert_eq!(drain(&mut message), [(0, 30), (30, 20)]);
        assert!(!message.is_sendable());
        assert!(message.grant(95, 3));
        assert_eq!(message.peek((30, 40)).unwrap().level, Level::Granted(3));
        assert_eq!(drain(&mut message), [(50, 40), (90, 5)]);
        assert_eq!(message.remaining(), 5);
        assert!(message.grant(100, 2));
        assert_eq!(drain(&mut message), [(95, 5)]);
        assert_eq!(message.remaining(), 0);
    }

    #[test]
    fn no_packet_is_partly_unscheduled_whatever_is_granted() {
        let mut message = message(50);
        assert!(message.grant(100, 3));
        assert_eq!(drain(&mut message), [(0, 30), (30, 20), (50, 40), (90, 10)]);
    }

    #[test]
    fn padding_follows_what_is_stored() {
        let mut message = message(50);
        message.pad(130, 120);
        let mut found = Vec::new();
        while let Some(piece) = message.peek((30, 40)) {
            found.push((piece.len, message.bytes(piece).len()));
            message.sent(piece);
        }
        assert_eq!(
            (found, message.remaining()),
            (vec![(30, 30), (30, 30), (30, 30), (30, 10)], 10)
        );
    }

    #[test]
    fn grants_apart_keep_their_priorities() {
        let mut message = message(10);
        message.sent(message.peek((30, 40)).unwrap());
        assert!(message.grant_apart(50, 1) && message.grant_apart(60, 5));
        let mut found = Vec::new();
        while let Some(piece) = message.peek((30, 20)) {
            found.push((piece.offset, piece.level));
            message.sent(piece);
        }
        assert_eq!(
            found,
            [(10, 1), (30, 1), (50, 5)].map(|(offset, level)| (offset, Level::Granted(level)))
        );
        assert!(!message.grant_apart(101, 7));
        assert!(message.grant_apart(70, 1) && message.grant(80, 6));
        assert_eq!(message.peek((30, 20)).unwrap().level, Level::Granted(6));
    }

    #[test]
    fn believes_no_grant_beyond_its_end_and_none_that_is_smaller() {
        let mut message = message(50);
        assert!(!message.grant(101, 7));
        assert!(message.grant(10, 7));
        assert_eq!(message.granted(), 50);
    }

    #[test]
    fn sends_again_what_was_sent_and_nothing_else() {
        let mut message = message(50);
        drain(&mut message);
        assert_eq!(message.resend(40, 100, 5), 10);
        assert_eq!(message.resend(45, 47, 5), 0, "it is pending");
        assert_eq!(message.resend(60, 70, 5), 0, "it was never sent");
        assert_eq!(message.remaining(), 60);
        let piece = message.peek((30, 40)).unwrap();
        assert_eq!(
            (piece.level, piece.is_again, message.bytes(piece)),
            (Level::Granted(5), true, &[40, 41, 42, 43, 44, 45, 46, 47, 48, 49][..])
        );
        assert_eq!(drain(&mut message), [(40, 10)]);
    }

    #[test]
    fn ranges_to_send_again_have_a_limit() {
        let mut message = message(100);
        drain(&mut message);
        assert_eq!(
            (0..50).map(|place| message.resend(2 * place, 2 * place + 1, 0)).sum::<u32>(),
            AGAIN_MAX as u32
        );
    }

    #[test]
    fn a_message_that_ends_hands_its_buffer_back() {
        let mut message = message(50);
        message.resend(0, 10, 1);
        assert_eq!(message.end(), (0..100).collect::<Vec<u8>>());
        assert_eq!((message.is_sendable(), message.len(), message.end()), (false, 0, vec![]));
    }

    #[test]
    fn a_grant_that_allows_no_more_does_not_change_the_priority() {
        let mut message = message(10);
        drain(&mut message);
        assert!(message.grant(60, 3) && message.grant(60, 5));
        assert_eq!(message.peek((30, 40)).unwrap().level, Level::Granted(3));
    }

    #[test]
    fn more_grants_apart_than_are_remembered_have_the_priority_of_the_last() {
        let mut message = message(10);
        drain(&mut message);
        for grant in 1..=APART_MAX as u32 {
            assert!(message.grant_apart(10 + grant, (grant % 2) as u8));
        }
        assert_eq!(message.peek((30, 40)).unwrap().level, Level::Granted(1));
        assert!(message.grant_apart(90, 6));
        assert_eq!(message.peek((30, 40)).unwrap().level, Level::Granted(6));
    }

    #[test]
    fn a_message_that_begins_anew_goes_as_if_it_had_never_gone() {
        let mut message = message(50);
        let sent = drain(&mut message);
        message.restart();
        assert!(message.has_repeated && message.peek((30, 40)).is_some_and(|it| !it.is_again));
        assert_eq!(drain(&mut message), sent);
    }

    #[test]
    fn ranges_that_touch_go_again_each() {
        let mut message = message(100);
        drain(&mut message);
        assert_eq!(message.resend(10, 20, 0), 10);
        assert_eq!((message.resend(20, 30, 0), message.resend(0, 10, 0)), (10, 10));
    }
}
