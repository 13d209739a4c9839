//! The event queue: events in the order of their times, and at equal times in the order in which
//! they were posted.
//!
//! A calendar of buckets around the present, and a heap for what lies beyond it. Posting and taking
//! an event costs the same whether tens or ten thousands are pending, because the width of a bucket
//! follows the events: where many share a bucket it shrinks, where most lie beyond the calendar it
//! grows.
//!
//! | an event is posted | it goes |
//! |---|---|
//! | into the bucket that is being emptied, or before it | into `current`, at its place |
//! | within the calendar | into its bucket, unsorted |
//! | beyond | into `far`, and into its bucket once the calendar has moved there |
//!
//! Invariant: events leave in the order (time, post), whatever the widths were. Nothing is
//! allocated once as many events have been pending as ever will be.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events of type `E` by time, in ticks of the caller's choice.
#[derive(Debug)]
pub struct Agenda<E> {
    /// Time of the event that was taken last.
    now: u64,
    /// Events posted so far.
    posted: u64,
    /// Events in buckets and beyond; a free slot has the next free one in `next`.
    slots: Vec<Slot<E>>,
    /// First free slot.
    free: u32,
    /// Pending events.
    len: usize,
    /// The bucket being emptied, latest first.
    current: Vec<Due<E>>,
    /// First slot of each bucket's list.
    buckets: Vec<u32>,
    /// A bit for each bucket that has events.
    occupied: [u64; WORDS],
    /// Ticks in a bucket, as a power of two.
    width_log2: u32,
    /// Number of the bucket being emptied, counted from time 0.
    present: u64,
    /// Events beyond the calendar.
    far: BinaryHeap<Reverse<Far>>,
    /// The counts that the width is judged by.
    census: Census,
}

/// An event of the bucket being emptied.
#[derive(Debug)]
struct Due<E> {
    time: u64,
    order: u64,
    event: E,
}

impl<E> Due<E> {
    fn key(&self) -> (u64, u64) {
        (self.time, self.order)
    }
}

/// An event beyond the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Far {
    time: u64,
    order: u64,
    slot: u32,
}

#[derive(Debug)]
struct Slot<E> {
    time: u64,
    order: u64,
    next: u32,
    event: Option<E>,
}

/// Since the width was last judged.
#[derive(Clone, Copy, Debug, Default)]
struct Census {
    /// Events taken.
    taken: u32,
    /// Buckets emptied.
    emptied: u32,
    /// Events that went beyond the calendar.
    far: u32,
}

impl<E> Agenda<E> {
    /// No events, at time 0.
    pub fn new() -> Self {
        Self {
            now: 0,
            posted: 0,
            slots: Vec::new(),
            free: NONE,
            len: 0,
            current: Vec::new(),
            buckets: vec![NONE; BUCKETS as usize],
            occupied: [0; WORDS],
            width_log2: WIDTH_LOG2_FIRST,
            present: 0,
            far: BinaryHeap::new(),
            census: Census::default(),
        }
    }

    /// The time of the event that was taken last.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Pending events.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True while nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Posts an event. One that is due before [`Agenda::now`] is due now.
    pub fn post(&mut self, time: u64, event: E) {
        let time = time.max(self.now);
        self.posted += 1;
        self.len += 1;
        self.place(Due { time, order: self.posted, event });
    }

    /// Time at which the next event is due.
    pub fn next_time(&mut self) -> Option<u64> {
        self.advance();
        self.current.last().map(|entry| entry.time)
    }

    /// Takes the next event, with its time.
    pub fn pop(&mut self) -> Option<(u64, E)> {
        self.pop_until(u64::MAX)
    }

    /// Takes the next event if it is due at `until` or before.
    pub fn pop_until(&mut self, until: u64) -> Option<(u64, E)> {
        let due =
            if self.current.is_empty() { self.pop_ahead(until)? } else { self.pop_current(until)? };
        self.len -= 1;
        self.now = due.time;
        self.census.taken += 1;
        Some((due.time, due.event))
    }

    fn pop_current(&mut self, until: u64) -> Option<Due<E>> {
        self.current.last().filter(|due| due.time <= until)?;
        self.current.pop()
    }

    /// From the next bucket; straight out of it where the event is alone there, as most are.
    fn pop_ahead(&mut self, until: u64) -> Option<Due<E>> {
        let index = self.turn_to_next()?;
        let slot = self.buckets[index];
        if self.slots[slot as usize].next == NONE && self.slots[slot as usize].time <= until {
            self.clear(index);
            return Some(self.release(slot));
        }
        self.empty(index);
        self.pop_current(until)
    }

    fn take_slot(&mut self, Due { time, order, event }: Due<E>) -> u32 {
        if self.free == NONE {
            self.slots.push(Slot { time, order, next: NONE, event: Some(event) });
            return u32::try_from(self.slots.len() - 1)
                .expect("fewer than 2^32 events are pending");
        }
        let index = self.free;
        // One after the other, where they stay: put together first, they would be copied.
        let slot = &mut self.slots[index as usize];
        self.free = slot.next;
        (slot.time, slot.order, slot.next) = (time, order, NONE);
        slot.event = Some(event);
        index
    }

    fn place(&mut self, due: Due<E>) {
        let bucket = due.time >> self.width_log2;
        if bucket <= self.present {
            let at = self.current.partition_point(|other| other.key() > due.key());
            self.current.insert(at, due);
            return;
        }
        let (time, order) = (due.time, due.order);
        let slot = self.take_slot(due);
        if bucket - self.present < BUCKETS {
            self.link(bucket, slot);
        } else {
            self.census.far += 1;
            self.far.push(Reverse(Far { time, order, slot }));
        }
    }

    fn link(&mut self, bucket: u64, slot: u32) {
        let index = (bucket % BUCKETS) as usize;
        self.slots[slot as usize].next = self.buckets[index];
        self.buckets[index] = slot;
        self.occupied[index / 64] |= 1 << (index % 64);
    }

    /// Makes sure that the next event, if there is one, is the last of `current`.
    fn advance(&mut self) {
        if self.current.is_empty()
            && let Some(index) = self.turn_to_next()
        {
            self.empty(index);
        }
    }

    /// Moves the present to the next bucket that has events, which is then to be emptied; tells its
    /// index.
    fn turn_to_next(&mut self) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        self.judge_width();
        let mut next = self.next_occupied();
        if let Some(&Reverse(first)) = self.far.peek() {
            next = next.min(first.time >> self.width_log2);
            self.draw_in(next);
        }
        self.present = next;
        self.census.emptied += 1;
        Some((next % BUCKETS) as usize)
    }

    /// Whatever the calendar reaches from `present` on comes into its bucket.
    fn draw_in(&mut self, present: u64) {
        while let Some(&Reverse(entry)) = self.far.peek()
            && (entry.time >> self.width_log2) - present < BUCKETS
        {
            self.far.pop();
            self.link(entry.time >> self.width_log2, entry.slot);
        }
    }

    /// Moves a bucket's events to `current`.
    fn empty(&mut self, index: usize) {
        let mut slot = self.clear(index);
        while slot != NONE {
            let next = self.slots[slot as usize].next;
            let due = self.release(slot);
            self.current.push(due);
            slot = next;
        }
        if self.current.len() > 1 {
            self.current.sort_unstable_by_key(|due| Reverse(due.key()));
        }
    }

    /// Takes a bucket's list off it.
    fn clear(&mut self, index: usize) -> u32 {
        self.occupied[index / 64] &= !(1 << (index % 64));
        std::mem::replace(&mut self.buckets[index], NONE)
    }

    fn release(&mut self, index: u32) -> Due<E> {
        let slot = &mut self.slots[index as usize];
        slot.next = std::mem::replace(&mut self.free, index);
        let event = slot.event.take().expect("a slot on a list has an event");
        Due { time: slot.time, order: slot.order, event }
    }

    /// The number of the first bucket after the present one that has events; `u64::MAX` where none
    /// has.
    fn next_occupied(&self) -> u64 {
        let start = ((self.present + 1) % BUCKETS) as usize;
        let mut bits = self.occupied[start / 64] & (!0 << (start % 64));
        let mut word = start / 64;
        // The first word may have to be looked at from both ends.
        for _ in 0..WORDS {
            if bits != 0 {
                break;
            }
            word = (word + 1) % WORDS;
            bits = self.occupied[word];
        }
        if bits == 0 {
            return u64::MAX;
        }
        let found = word as u64 * 64 + u64::from(bits.trailing_zeros());
        self.present + 1 + (found + BUCKETS - start as u64) % BUCKETS
    }

    /// Looks from time to time whether the width fits the events, and changes it.
    fn judge_width(&mut self) {
        let Census { taken, emptied, far } = self.census;
        if taken < CENSUS_EVENTS {
            return;
        }
        self.census = Census::default();
        let is_crowded = taken > emptied.saturating_mul(CROWD_EVENTS) && self.width_log2 > 0;
        let is_short = far > taken / 4
            && taken <= emptied.saturating_mul(CROWD_EVENTS / 2)
            && self.width_log2 < WIDTH_LOG2_MAX;
        if is_crowded {
            self.set_width(self.width_log2 - 1);
        } else if is_short {
            self.set_width(self.width_log2 + 1);
        }
    }

    /// Puts every event where a new width wants it. Called with `current` empty.
    fn set_width(&mut self, width_log2: u32) {
        let mut chain = NONE;
        for index in 0..self.buckets.len() {
            let mut slot = std::mem::replace(&mut self.buckets[index], NONE);
            while slot != NONE {
                let next = std::mem::replace(&mut self.slots[slot as usize].next, chain);
                chain = slot;
                slot = next;
            }
        }
        self.occupied = [0; WORDS];
        self.width_log2 = width_log2;
        self.present = self.now >> width_log2;
        while chain != NONE {
            let next = self.slots[chain as usize].next;
            let due = self.release(chain);
            self.place(due);
            chain = next;
        }
    }
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self::new()
    }
}

/// No slot.
const NONE: u32 = u32::MAX;
/// Buckets of the calendar.
const BUCKETS: u64 = 8192;
const WORDS: usize = BUCKETS as usize / 64;
/// The width until the events have been seen: 2^16 ps are 65 ns.
const WIDTH_LOG2_FIRST: u32 = 16;
const WIDTH_LOG2_MAX: u32 = 52;
/// Events between two looks at the width.
const CENSUS_EVENTS: u32 = 4096;
/// Events in an emptied bucket, on average, from which the width is halved.
const CROWD_EVENTS: u32 = 3;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_at_one_time_leave_as_they_came() {
        let mut agenda = Agenda::new();
        for event in 0..100 {
            agenda.post(7, event);
        }
        let left: Vec<u32> = std::iter::from_fn(|| agenda.pop().map(|(_, event)| event)).collect();
        assert_eq!(left, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn the_past_is_now() {
        let mut agenda = Agenda::new();
        agenda.post(50, 'a');
        assert_eq!(agenda.pop(), Some((50, 'a')));
        agenda.post(20, 'b');
        assert_eq!(agenda.pop(), Some((50, 'b')));
    }

    #[test]
    fn an_event_can_be_left_for_later() {
        let mut agenda = Agenda::new();
        agenda.post(1_000_000_000_000, 'a');
        assert_eq!(agenda.pop_until(999_999_999_999), None);
        agenda.post(5, 'b');
        assert_eq!(agenda.next_time(), Some(5));
        assert_eq!(agenda.pop_until(5), Some((5, 'b')));
        assert_eq!(agenda.pop_until(u64::MAX), Some((1_000_000_000_000, 'a')));
        assert!(agenda.is_empty());
    }

    #[test]
    fn the_end_of_time_is_a_time() {
        let mut agenda = Agenda::new();
        agenda.post(u64::MAX, 'z');
        agenda.post(3, 'a');
        assert_eq!(agenda.pop(), Some((3, 'a')));
        assert_eq!(agenda.pop(), Some((u64::MAX, 'z')));
        assert_eq!(agenda.pop(), None);
    }

    /// Hold model: as many events stay pending, each posted again after a gap.
    fn check_width(pending: u64, gap: u64, expected: std::ops::RangeInclusive<u32>) {
        let mut agenda = Agenda::new();
        for event in 0..pending {
            agenda.post(event * gap / pending, event);
        }
        let mut draws = tailcut_proto::policy::Draws::new(1);
        for _ in 0..400_000 {
            let (now, event) = agenda.pop().unwrap();
            agenda.post(now + 1 + draws.word() % (2 * gap), event);
        }
        assert!(expected.contains(&agenda.width_log2), "{}", agenda.width_log2);
    }

    #[test]
    fn the_width_shrinks_where_events_are_dense() {
        check_width(20_000, 1_000_000, 7..=8);
    }

    #[test]
    fn the_width_grows_where_events_are_sparse() {
        check_width(4, 1_000_000_000_000, 28..=40);
    }

    #[test]
    fn nothing_is_allocated_for_a_steady_number_of_events() {
        let mut agenda = Agenda::new();
        (0..1000).for_each(|event| agenda.post(event, event));
        for _ in 0..100_000 {
            let (now, event) = agenda.pop().unwrap();
            agenda.post(now + 1000, event);
        }
        assert_eq!(agenda.slots.len(), 1000);
    }

    proptest! {
        /// Against a sorted list, with gaps over many widths.
        #[test]
        fn agrees_with_a_list(steps in proptest::collection::vec((0u32..50, 0u64..1000, 0usize..3), 1..400)) {
            let mut agenda = Agenda::new();
            let mut list: Vec<(u64, u64)> = Vec::new();
            let mut now = 0;
            for (number, (shift, factor, pops)) in (0u64..).zip(steps) {
                let time = now + (factor << shift);
                agenda.post(time, number);
                list.push((time, number));
                for _ in 0..pops {
                    list.sort_unstable();
                    let expected = if list.is_empty() { None } else { Some(list.remove(0)) };
                    prop_assert_eq!(agenda.pop(), expected);
                    now = expected.map_or(now, |(time, _)| time);
                }
                prop_assert_eq!(agenda.len(), list.len());
            }
        }

        /// The order does not depend on the width, also when it changes with events pending.
        #[test]
        fn a_new_width_keeps_the_order(times in proptest::collection::vec(0u64..1 << 30, 1..300), width in 0u32..40) {
            let mut agenda = Agenda::new();
            times.iter().zip(0usize..).for_each(|(&time, number)| agenda.post(time, number));
            agenda.set_width(width);
            let mut expected: Vec<_> = times.iter().copied().zip(0usize..).collect();
            expected.sort_unstable();
            let left: Vec<_> = std::iter::from_fn(|| agenda.pop()).collect();
            prop_assert_eq!(left, expected);
        }
    }
}
