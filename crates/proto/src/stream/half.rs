//! The two directions of a stream: what is written until the peer has it, and what has come until
//! it is read.
//!
//! | [`Outgoing`] | bytes |
//! |---|---|
//! | `pending` | written and not sent |
//! | in flight | sent, each in exactly one message, and not answered |
//!
//! | [`Incoming`] | bytes |
//! |---|---|
//! | `ready` | from `read` on, in order |
//! | `early` | beyond a gap, by offset |
//!
//! Invariants: nothing is sent beyond the peer's limit; `ready` and `early` do not overlap and lie
//! below the limit that was told, so that they hold at most a window.

use std::collections::{BTreeMap, VecDeque};

use tailcut_wire::stream::{IN_FLIGHT_MAX, OFFSET_MAX};

/// The direction away from here.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Written and not sent.
    pending: VecDeque<u8>,
    /// Offset of the first byte of `pending`: so much has been sent.
    sent: u64,
    /// The peer takes bytes below this.
    limit: u64,
    /// Bytes sent and not acknowledged.
    in_flight_bytes: usize,
    /// Messages sent and not acknowledged.
    in_flight: usize,
    /// A message that is not full is in flight.
    is_small_in_flight: bool,
    /// Progress of the end.
    end: End,
}

/// Progress of the end of a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// More may be written.
    #[default]
    Open,
    /// Nothing more is written.
    Wanted,
    /// The message that says so is in flight.
    Sent,
    /// The peer knows.
    Known,
}

/// A message to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Offset of its first byte.
    pub(super) offset: u64,
    /// Bytes of it.
    pub(super) len: usize,
    /// It is less than a full message.
    pub(super) is_small: bool,
    /// Nothing comes after it.
    pub(super) is_last: bool,
}

impl Outgoing {
    /// Takes what there is room for in `window` bytes, in flight included; tells how much.
    pub(super) fn write(&mut self, bytes: &[u8], window: usize) -> usize {
        let len = bytes.len().min(self.room(window));
        self.pending.extend(&bytes[..len]);
        len
    }

    /// Writes bytes by moving them: without a copy where nothing else waits.
    pub(super) fn write_all(&mut self, bytes: &mut VecDeque<u8>, window: usize) -> usize {
        let len = bytes.len().min(self.room(window));
        if self.pending.is_empty() && len == bytes.len() {
            std::mem::swap(&mut self.pending, bytes);
        } else {
            shift(bytes, len, &mut self.pending);
        }
        len
    }

    pub(super) fn room(&self, window: usize) -> usize {
        window.saturating_sub(self.in_flight_bytes + self.pending.len())
    }

    /// Nothing more will be written.
    pub(super) fn finish(&mut self) {
        if self.end == End::Open {
            self.end = End::Wanted;
        }
    }

    pub(super) fn end(&self) -> End {
        self.end
    }

    /// The peer has told a limit. What it told before holds too.
    pub(super) fn raise_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// The next message, if one may be sent now.
    pub(super) fn next(&self, message_len_max: usize) -> Option<Cut> {
        let room = usize::try_from(self.limit.min(OFFSET_MAX) - self.sent.min(self.limit))
            .unwrap_or(usize::MAX);
        let wanted = self.pending.len().min(message_len_max);
        let len = wanted.min(room);
        let is_small = len < message_len_max;
        let is_last = self.end == End::Wanted && len == self.pending.len();
        // What the limit cuts short waits for an answer, which tells the next limit.
        let is_early = (len < wanted && self.in_flight > 0)
            || (is_small && len > 0 && self.is_small_in_flight);
        let is_blocked = is_early || self.in_flight >= IN_FLIGHT_MAX;
        let is_worth = len > 0 || is_last;
        (is_worth && !is_blocked).then_some(Cut { offset: self.sent, len, is_small, is_last })
    }

    /// Moves the bytes of a message to `message`.
    pub(super) fn take(&mut self, cut: Cut, message: &mut Vec<u8>) {
        let (front, back) = self.pending.as_slices();
        let from_front = cut.len.min(front.len());
        message.extend_from_slice(&front[..from_front]);
        message.extend_from_slice(&back[..cut.len - from_front]);
        self.pending.drain(..cut.len);
        self.sent += cut.len as u64;
        self.in_flight += 1;
        self.in_flight_bytes += cut.len;
        self.is_small_in_flight |= cut.is_small && cut.len > 0;
        if cut.is_last {
            self.end = End::Sent;
        }
    }

    /// The peer has taken a message.
    pub(super) fn acknowledge(&mut self, cut: Cut) {
        self.in_flight -= 1;
        self.in_flight_bytes -= cut.len;
        if cut.is_small && cut.len > 0 {
            self.is_small_in_flight = false;
        }
        if cut.is_last {
            self.end = End::Known;
        }
    }

    /// True if what waits here passes the peer's limit, or reaches it and more may be written.
    pub(super) fn is_blocked(&self) -> bool {
        let end = self.sent + self.pending.len() as u64;
        end > self.limit || (end == self.limit && self.end == End::Open)
    }

    /// Nothing is held, neither here nor by the transport.
    pub(super) fn is_empty(&self) -> bool {
        self.in_flight == 0 && self.pending.is_empty()
    }

    /// The peer has everything, and knows that nothing comes after it.
    pub(super) fn is_over(&self) -> bool {
        self.end == End::Known && self.in_flight == 0
    }

    /// Bytes that wait here; those in flight are the transport's.
    pub(super) fn buffered(&self) -> usize {
        self.pending.len()
    }
}

/// The direction towards here.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// In order and not read.
    ready: VecDeque<u8>,
    /// Offset of the first byte of `ready`: so much has been read.
    read: u64,
    /// Bytes that came before those that precede them, by offset; nothing overlaps.
    early: BTreeMap<u64, Box<[u8]>>,
    /// Bytes of `early`.
    early_bytes: usize,
    /// Offset after the last byte, once it is known.
    end: Option<u64>,
    /// The highest limit that the peer has been told.
    told: u64,
}

/// The peer has broken the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Violation;

impl Incoming {
    /// Takes the bytes of a message, which lie below the told limit and the end. A message that has
    /// come before changes nothing; any other overlap is a violation.
    pub(super) fn take(
        &mut self,
        offset: u64,
        data: &[u8],
        is_last: bool,
    ) -> Result<(), Violation> {
        let end = offset + data.len() as u64;
        let received = self.received();
        let highest =
            self.early.last_key_value().map_or(received, |(at, data)| at + data.len() as u64);
        let is_beyond_end = self.end.is_some_and(|known| end > known || (is_last && end < known));
        if end > self.told || is_beyond_end || (is_last && end < highest) {
            return Err(Violation);
        }
        if is_last {
            self.end = Some(end);
        }
        if data.is_empty() || end <= received {
            return Ok(());
        }
        if offset < received {
            return Err(Violation);
        }
        if offset > received {
            return self.keep_early(offset, data);
        }
        if self.early.first_key_value().is_some_and(|(&at, _)| at < end) {
            return Err(Violation);
        }
        self.ready.extend(data);
        while let Some(entry) = self
            .early
            .first_entry()
            .filter(|entry| *entry.key() == self.read + self.ready.len() as u64)
        {
            let data = entry.remove();
            self.early_bytes -= data.len();
            self.ready.extend(&data[..]);
        }
        Ok(())
    }

    fn keep_early(&mut self, offset: u64, data: &[u8]) -> Result<(), Violation> {
        let end = offset + data.len() as u64;
        if self.early.get(&offset).is_some_and(|known| known.len() == data.len()) {
            return Ok(());
        }
        let before = self.early.range(..=offset).next_back();
        let after = self.early.range(offset..).next();
        let overlaps = before.is_some_and(|(at, data)| at + data.len() as u64 > offset)
            || after.is_some_and(|(&at, _)| at < end);
        if overlaps || self.early.len() >= IN_FLIGHT_MAX {
            return Err(Violation);
        }
        self.early_bytes += data.len();
        self.early.insert(offset, data.into());
        Ok(())
    }

    /// Moves bytes to `buffer`; tells how many.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> usize {
        let len = buffer.len().min(self.ready.len());
        let (front, back) = self.ready.as_slices();
        let from_front = len.min(front.len());
        buffer[..from_front].copy_from_slice(&front[..from_front]);
        buffer[from_front..len].copy_from_slice(&back[..len - from_front]);
        self.ready.drain(..len);
        self.read += len as u64;
        len
    }

    /// Moves bytes to the end of `into`: everything, without a copy, where that is empty, and else
    /// at most `room` bytes.
    pub(super) fn read_all(&mut self, into: &mut VecDeque<u8>, room: usize) -> usize {
        let len = if into.is_empty() { self.ready.len() } else { self.ready.len().min(room) };
        if into.is_empty() {
            std::mem::swap(&mut self.ready, into);
        } else {
            shift(&mut self.ready, len, into);
        }
        self.read += len as u64;
        len
    }

    /// The limit that holds with this window; it is the told one from now on.
    pub(super) fn tell(&mut self, window: usize) -> u64 {
        self.told = self.told.max((self.read + window as u64).min(OFFSET_MAX));
        self.told
    }

    /// The limit has moved so far since it was told that the peer must be told.
    pub(super) fn is_worth_telling(&self, window: usize) -> bool {
        self.end.is_none() && self.read + window as u64 >= self.told + (window as u64).div_ceil(2)
    }

    /// Everything has been read, and nothing will come.
    pub(super) fn is_over(&self) -> bool {
        self.end == Some(self.read)
    }

    /// The end is known and every byte before it has come.
    pub(super) fn is_complete(&self) -> bool {
        self.end == Some(self.received())
    }

    /// Something has come that has not been read.
    pub(super) fn has_unread(&self) -> bool {
        !self.ready.is_empty() || !self.early.is_empty()
    }

    pub(super) fn ready_len(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn early_bytes(&self) -> usize {
        self.early_bytes
    }

    /// Bytes held.
    pub(super) fn buffered(&self) -> usize {
        self.ready.len() + self.early_bytes
    }

    /// Lets go of the memory that is not in use.
    pub(super) fn shrink(&mut self) {
        if self.ready.is_empty() {
            self.ready.shrink_to(0);
        }
    }

    /// Releases what cannot be put in order any more.
    pub(super) fn drop_early(&mut self) {
        self.early.clear();
        self.early_bytes = 0;
    }

    /// All bytes below this have come.
    fn received(&self) -> u64 {
        self.read + self.ready.len() as u64
    }
}

/// Moves the first `len` bytes of one queue to the end of another.
fn shift(from: &mut VecDeque<u8>, len: usize, to: &mut VecDeque<u8>) {
    let (front, back) = from.as_slices();
    let from_front = len.min(front.len());
    to.extend(&front[..from_front]);
    to.extend(&back[..len - from_front]);
    from.drain(..len);
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: usize = 10;

    fn outgoing(limit: u64, written: usize) -> Outgoing {
        let mut out = Outgoing::default();
        out.raise_limit(limit);
        out.write(&vec![1; written], 1000);
        out
    }

    /// Sends all that may be sent; tells offsets and lengths.
    fn send(out: &mut Outgoing) -> Vec<Cut> {
        std::iter::from_fn(|| out.next(FULL).inspect(|&cut| out.take(cut, &mut Vec::new())))
            .collect()
    }

    fn lens(cuts: &[Cut]) -> Vec<(u64, usize)> {
        cuts.iter().map(|cut| (cut.offset, cut.len)).collect()
    }

    #[test]
    fn full_messages_leave_at_once_and_one_small_one() {
        let mut out = outgoing(1000, 25);
        let cuts = send(&mut out);
        assert_eq!(lens(&cuts), [(0, 10), (10, 10), (20, 5)]);
        out.write(&[1; 3], 1000);
        assert_eq!(send(&mut out), []);
        out.write(&[1; 8], 1000);
        assert_eq!(lens(&send(&mut out)), [(25, 10)], "a full message does not wait");
        out.acknowledge(cuts[0]);
        assert_eq!(send(&mut out), []);
        out.acknowledge(cuts[2]);
        assert_eq!(lens(&send(&mut out)), [(35, 1)]);
    }

    #[test]
    fn nothing_is_sent_beyond_the_limit() {
        let mut out = outgoing(12, 25);
        let cuts = send(&mut out);
        assert_eq!(
            lens(&cuts),
            [(0, 10)],
            "two bytes are not worth a message while an answer is to come"
        );
        out.raise_limit(5);
        out.acknowledge(cuts[0]);
        assert_eq!(lens(&send(&mut out)), [(10, 2)]);
        out.raise_limit(22);
        assert_eq!(lens(&send(&mut out)), [(12, 10)]);
    }

    #[test]
    fn the_end_is_in_the_last_message_or_in_one_of_its_own() {
        let mut out = outgoing(1000, 15);
        out.finish();
        let cuts = send(&mut out);
        assert_eq!(cuts.iter().map(|cut| cut.is_last).collect::<Vec<_>>(), [false, true]);
        out.acknowledge(cuts[1]);
        assert!(!out.is_over());
        out.acknowledge(cuts[0]);
        assert!(out.is_over());

        let mut out = outgoing(1000, 3);
        assert_eq!(send(&mut out).len(), 1);
        out.finish();
        assert_eq!(send(&mut out), [Cut { offset: 3, len: 0, is_small: true, is_last: true }]);
        assert_eq!((send(&mut out).len(), out.end()), (0, End::Sent));
    }

    #[test]
    fn what_is_written_is_bounded_by_the_window_with_what_is_in_flight() {
        let mut out = outgoing(10, 0);
        assert_eq!(out.write(&[1; 100], 30), 30);
        let cuts = send(&mut out);
        assert_eq!(out.write(&[1; 100], 30), 0);
        out.acknowledge(cuts[0]);
        assert_eq!(out.write(&[1; 100], 30), 10);
    }

    #[test]
    fn at_most_so_many_messages_are_in_flight() {
        let mut out = Outgoing::default();
        out.raise_limit(10_000);
        out.write(&[1; 1000], 1000);
        assert_eq!(send(&mut out).len(), IN_FLIGHT_MAX);
    }

    /// Takes `(offset, bytes, is last)` with a window of 100; reads everything in the end.
    fn check(messages: &[(u64, &str, bool)], expected: Result<&str, Violation>) {
        let mut inc = Incoming::default();
        inc.tell(100);
        let taken = messages
            .iter()
            .try_for_each(|&(at, text, is_last)| inc.take(at, text.as_bytes(), is_last));
        let mut buffer = [0; 200];
        let len = inc.read(&mut buffer);
        assert_eq!(
            taken.map(|()| str::from_utf8(&buffer[..len]).unwrap()),
            expected,
            "{messages:?}"
        );
    }

    #[test]
    fn bytes_are_put_in_order() {
        check(&[(0, "ab", false), (2, "cd", true)], Ok("abcd"));
        check(&[(2, "cd", true), (0, "ab", false)], Ok("abcd"));
        check(&[(4, "ef", false), (2, "cd", false), (0, "ab", false), (6, "", true)], Ok("abcdef"));
        check(&[(4, "", true), (2, "cd", false), (0, "ab", false)], Ok("abcd"));
        check(&[(2, "cd", false)], Ok(""));
        check(&[(0, "", true)], Ok(""));
    }

    #[test]
    fn a_message_that_comes_twice_changes_nothing() {
        check(
            &[
                (0, "ab", false),
                (0, "ab", false),
                (2, "cd", true),
                (2, "cd", true),
                (0, "ab", false),
            ],
            Ok("abcd"),
        );
        check(&[(2, "cd", false), (2, "cd", false), (0, "ab", false)], Ok("abcd"));
        check(&[(2, "", true), (2, "", true), (0, "ab", false), (2, "", true)], Ok("ab"));
    }

    #[test]
    fn bytes_are_moved_whether_or_not_they_are_copied() {
        let mut out = outgoing(1000, 0);
        let mut bytes: VecDeque<u8> = (0..30).collect();
        assert_eq!(
            (out.write_all(&mut bytes, 20), bytes.len()),
            (20, 10),
            "as far as there is room"
        );
        let mut sent = Vec::new();
        while let Some(cut) = out.next(FULL) {
            out.take(cut, &mut sent);
            out.acknowledge(cut);
        }
        assert_eq!((out.write_all(&mut bytes, 20), bytes.len()), (10, 0), "all of it");
        out.take(out.next(FULL).unwrap(), &mut sent);
        assert_eq!(sent, (0..30).collect::<Vec<u8>>());

        let (mut inc, mut into) = (Incoming::default(), VecDeque::new());
        inc.tell(100);
        inc.take(0, &sent[..10], false).unwrap();
        assert_eq!(inc.read_all(&mut into, 5), 10, "everything, where there is nothing");
        inc.take(10, &sent[10..], false).unwrap();
        assert_eq!((inc.read_all(&mut into, 15), inc.read_all(&mut into, 15)), (15, 5));
        assert_eq!((into, inc.tell(100)), (sent.into(), 130));
    }

    #[test]
    fn what_overlaps_or_goes_beyond_is_a_violation() {
        let violation = Err(Violation);
        check(&[(0, "ab", false), (1, "bc", false)], violation);
        check(&[(0, "ab", false), (1, "", true)], violation);
        check(&[(2, "cd", false), (3, "d", false)], violation);
        check(&[(2, "cd", false), (1, "bc", false)], violation);
        check(&[(2, "cd", false), (0, "abc", false)], violation);
        check(&[(2, "", true), (2, "c", false)], violation);
        check(&[(2, "cd", false), (3, "", true)], violation);
        check(&[(2, "", true), (1, "", true)], violation);
        check(&[(98, "abc", false)], violation);
        check(&[(u64::MAX / 4, "a", false)], violation);
    }

    #[test]
    fn only_so_many_messages_may_come_early() {
        let mut inc = Incoming::default();
        inc.tell(1000);
        for place in 0..IN_FLIGHT_MAX as u64 {
            inc.take(1 + 2 * place, b"x", false).unwrap();
        }
        assert_eq!(inc.take(999, b"x", false), Err(Violation));
    }

    #[test]
    fn the_limit_moves_with_what_is_read_and_never_back() {
        let mut inc = Incoming::default();
        assert_eq!(inc.tell(10), 10);
        inc.take(0, b"abcdefgh", false).unwrap();
        assert_eq!((inc.tell(10), inc.is_worth_telling(10)), (10, false));
        inc.read(&mut [0; 4]);
        assert!(!inc.is_worth_telling(10));
        inc.read(&mut [0; 1]);
        assert!(inc.is_worth_telling(10));
        assert_eq!((inc.tell(10), inc.tell(5)), (15, 15));
    }

    #[test]
    fn a_direction_holds_what_was_written_until_it_is_sent() {
        let mut out = outgoing(1000, 25);
        assert_eq!((out.buffered(), out.is_empty()), (25, false));
        let cuts = send(&mut out);
        assert_eq!((out.buffered(), out.is_empty()), (0, false), "the transport has it");
        cuts.into_iter().for_each(|cut| out.acknowledge(cut));
        assert!(out.is_empty());
        out.write(&[1; 3], 1000);
        assert!(!out.is_empty());
    }

    #[test]
    fn what_comes_early_is_held_until_it_is_read_or_released() {
        let mut inc = Incoming::default();
        inc.tell(100);
        let held = |inc: &Incoming| (inc.ready_len(), inc.early_bytes(), inc.buffered());
        inc.take(5, b"fgh", false).unwrap();
        inc.take(8, b"ij", false).unwrap();
        assert_eq!(held(&inc), (0, 5, 5));
        inc.take(0, b"ab", false).unwrap();
        assert_eq!(held(&inc), (2, 5, 7));
        inc.take(2, b"cde", false).unwrap();
        assert_eq!(held(&inc), (10, 0, 10), "it is in order now");
        inc.take(12, b"mn", false).unwrap();
        assert_eq!((held(&inc), inc.has_unread()), ((10, 2, 12), true));
        inc.drop_early();
        assert_eq!(held(&inc), (10, 0, 10));
        inc.read(&mut [0; 10]);
        assert_eq!((held(&inc), inc.has_unread()), ((0, 0, 0), false));
    }

    #[test]
    fn early_bytes_may_touch_each_other_and_no_more() {
        check(&[(3, "de", false), (5, "f", false), (0, "abc", false)], Ok("abcdef"));
        check(&[(3, "de", false), (5, "", true), (0, "abc", false)], Ok("abcde"));
        check(&[(3, "de", false), (2, "cd", false)], Err(Violation));
        check(&[(6, "gh", false), (2, "cdefg", false)], Err(Violation));
    }

    #[test]
    fn memory_is_given_back_where_nothing_waits_to_be_read() {
        let mut inc = Incoming::default();
        inc.tell(1000);
        inc.take(0, &[1; 500], false).unwrap();
        inc.shrink();
        assert_eq!(inc.read(&mut [0; 1000]), 500, "what waits is kept");
        assert!(inc.ready.capacity() >= 500);
        inc.shrink();
        assert_eq!(inc.ready.capacity(), 0);
    }

    #[test]
    fn what_comes_early_is_not_early_once_all_before_it_is_there() {
        let mut inc = Incoming::default();
        inc.tell(100);
        inc.take(2, b"cde", false).unwrap();
        assert_eq!(inc.early_bytes(), 3);
        inc.take(0, b"ab", false).unwrap();
        assert_eq!((inc.early_bytes(), inc.buffered()), (0, 5));
    }
}
