//! A timer wheel: one timer for each slot of a table, armed and disarmed in constant time.
//!
//! Deadlines are rounded up to ticks, so that a timer never fires early. Timers further away than
//! one turn of the wheel stay in their bucket until their turn comes. Nothing is allocated but when
//! the table grows.

use crate::Time;
use crate::slab::{SlotId, room};

/// A timer wheel over slot indexes.
#[derive(Debug)]
pub struct Wheel {
    /// Ticks are `2^tick_bits` ns long.
    tick_bits: u32,
    /// No timer is due in a tick before this one.
    cursor: u64,
    /// Timers that are armed.
    armed_count: u32,
    /// A tick at or before that of every timer; `IDLE` when there is none. It is found anew when it
    /// has passed: between, arming and disarming need not look.
    earliest: u64,
    /// First timer of each bucket.
    heads: Box<[SlotId; BUCKETS]>,
    /// One bit for each bucket that has a timer.
    occupied: [u64; BUCKETS / 64],
    /// The timer of each slot.
    timers: Vec<Timer>,
}

#[derive(Clone, Copy, Debug)]
struct Timer {
    /// `IDLE` when not armed.
    tick: u64,
    /// The timer before it in its bucket.
    previous: SlotId,
    /// The timer behind it in its bucket.
    next: SlotId,
}

impl Wheel {
    /// A wheel whose ticks are `2^tick_bits` ns long.
    pub fn new(tick_bits: u32) -> Self {
        Self {
            tick_bits,
            cursor: 0,
            armed_count: 0,
            earliest: IDLE,
            heads: Box::new([SlotId::NONE; BUCKETS]),
            occupied: [0; BUCKETS / 64],
            timers: Vec::new(),
        }
    }

    /// The wheel with room for the timers of a table that may have `most` slots.
    pub fn of_at_most(mut self, most: usize) -> Self {
        self.timers.reserve(room(most));
        self
    }

    /// Sets the timer of `slot` to `at`, replacing an earlier setting.
    pub fn arm(&mut self, slot: SlotId, at: Time) {
        let round_up = (1 << self.tick_bits) - 1;
        let tick = (at.saturating_add(round_up) >> self.tick_bits).max(self.cursor);
        match self.timers.get(slot.index()).map(|timer| timer.tick) {
            Some(set) if set == tick => return,
            Some(IDLE) => {}
            Some(_) => self.disarm(slot),
            None => self.grow(slot),
        }
        self.armed_count += 1;
        self.earliest = self.earliest.min(tick);
        let bucket = tick as usize % BUCKETS;
        let next = std::mem::replace(&mut self.heads[bucket], slot);
        if next != SlotId::NONE {
            self.timers[next.index()].previous = slot;
        }
        self.occupied[bucket / 64] |= 1 << (bucket % 64);
        self.timers[slot.index()] = Timer { tick, previous: SlotId::NONE, next };
    }

    #[cold]
    fn grow(&mut self, slot: SlotId) {
        let idle = Timer { tick: IDLE, previous: SlotId::NONE, next: SlotId::NONE };
        self.timers.resize(slot.index() + 1, idle);
    }

    /// Sets the timer of `slot` to `at`, unless it is set to an earlier time: for who looks again
    /// when it is due, and moves its deadline with every packet.
    pub fn arm_by(&mut self, slot: SlotId, at: Time) {
        let is_earlier =
            self.timers.get(slot.index()).is_some_and(|timer| timer.tick <= at >> self.tick_bits);
        if !is_earlier {
            self.arm(slot, at);
        }
    }

    /// True if the timer of `slot` is set to `at` or earlier, a tick more or less.
    #[inline]
    pub fn is_armed_by(&self, slot: SlotId, at: Time) -> bool {
        self.timers.get(slot.index()).is_some_and(|timer| timer.tick <= (at >> self.tick_bits) + 1)
    }

    /// Stops the timer of `slot`; harmless when it is not armed.
    pub fn disarm(&mut self, slot: SlotId) {
        let Some(&Timer { tick, previous, next }) =
            self.timers.get(slot.index()).filter(|timer| timer.tick != IDLE)
        else {
            return;
        };
        let bucket = tick as usize % BUCKETS;
        if next != SlotId::NONE {
            self.timers[next.index()].previous = previous;
        }
        if previous != SlotId::NONE {
            self.timers[previous.index()].next = next;
        } else {
            self.heads[bucket] = next;
            if next == SlotId::NONE {
                self.occupied[bucket / 64] &= !(1 << (bucket % 64));
            }
        }
        self.timers[slot.index()].tick = IDLE;
        self.armed_count -= 1;
        if self.armed_count == 0 {
            self.earliest = IDLE;
        }
    }

    /// True if the timer of `slot` is armed.
    pub fn is_armed(&self, slot: SlotId) -> bool {
        self.timers.get(slot.index()).is_some_and(|timer| timer.tick != IDLE)
    }

    /// Takes one timer that is due at `now`.
    pub fn pop_due(&mut self, now: Time) -> Option<SlotId> {
        let current = now >> self.tick_bits;
        if current < self.earliest {
            self.cursor = self.cursor.max(current);
            return None;
        }
        self.cursor = self.cursor.max(current.saturating_sub(BUCKETS as u64 - 1));
        while let Some(ahead) = self.occupied_ahead()
            && self.cursor + ahead <= current
        {
            self.cursor += ahead;
            let mut slot = self.heads[self.cursor as usize % BUCKETS];
            while slot != SlotId::NONE {
                let timer = self.timers[slot.index()];
                if timer.tick <= current {
                    self.disarm(slot);
                    return Some(slot);
                }
                slot = timer.next;
            }
            if self.cursor == current {
                break;
            }
            self.cursor += 1;
        }
        self.cursor = self.cursor.max(current);
        self.earliest = self.first_occupied();
        None
    }

    /// A time at or before the earliest timer, and after the last [`Wheel::pop_due`] when that
    /// found nothing; `None` when no timer is armed.
    pub fn next_due(&self) -> Option<Time> {
        (self.armed_count > 0).then(|| self.earliest.max(self.cursor) << self.tick_bits)
    }

    /// The first tick from the cursor on in whose bucket is a timer, be it of a later turn; `IDLE`
    /// when there is none.
    fn first_occupied(&self) -> u64 {
        let here = self.cursor as usize % BUCKETS;
        if self.has_due_at_cursor(here) {
            return self.cursor;
        }
        self.occupied_from((here + 1) % BUCKETS).map_or(IDLE, |bucket| {
            let ahead = (bucket + BUCKETS - here - 1) % BUCKETS + 1;
            self.cursor + ahead as u64
        })
    }

    /// Distance from the cursor to the next bucket with a timer, be it of a later turn.
    fn occupied_ahead(&self) -> Option<u64> {
        let here = self.cursor as usize % BUCKETS;
        self.occupied_from(here).map(|bucket| ((bucket + BUCKETS - here) % BUCKETS) as u64)
    }

    fn has_due_at_cursor(&self, bucket: usize) -> bool {
        let mut slot = self.heads[bucket];
        while slot != SlotId::NONE {
            let timer = self.timers[slot.index()];
            if timer.tick <= self.cursor {
                return true;
            }
            slot = timer.next;
        }
        false
    }

    /// The first bucket with a timer at or after `start`, around the wheel.
    fn occupied_from(&self, start: usize) -> Option<usize> {
        let words = self.occupied.len();
        for step in 0..=words {
            let index = (start / 64 + step) % words;
            let mut word = self.occupied[index];
            if step == 0 {
                word &= u64::MAX << (start % 64);
            } else if step == words {
                word &= !(u64::MAX << (start % 64));
            }
            if word != 0 {
                return Some(index * 64 + word.trailing_zeros() as usize);
            }
        }
        None
    }
}

const BUCKETS: usize = 512;
const IDLE: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(wheel: &mut Wheel, now: Time) -> Vec<u32> {
        std::iter::from_fn(|| wheel.pop_due(now)).map(|slot| slot.0).collect()
    }

    #[test]
    fn fires_at_or_after_its_time_and_never_before() {
        let mut wheel = Wheel::new(10);
        wheel.arm(SlotId(3), 5000);
        assert!(wheel.next_due().unwrap() >= 5000);
        assert!(drain(&mut wheel, 4999).is_empty());
        assert_eq!(drain(&mut wheel, 5120), [3]);
        assert_eq!(wheel.next_due(), None);
    }

    #[test]
    fn waits_for_its_turn_when_it_is_more_than_a_turn_away() {
        let mut wheel = Wheel::new(0);
        wheel.arm(SlotId(0), 3 * BUCKETS as u64 + 7);
        assert!(drain(&mut wheel, BUCKETS as u64 + 7).is_empty());
        assert!(drain(&mut wheel, 3 * BUCKETS as u64 + 6).is_empty());
        assert_eq!(drain(&mut wheel, 3 * BUCKETS as u64 + 7), [0]);
    }

    #[test]
    fn a_timer_a_turn_away_does_not_ask_for_a_call_at_once() {
        let mut wheel = Wheel::new(0);
        assert!(drain(&mut wheel, 7).is_empty());
        wheel.arm(SlotId(0), 7 + BUCKETS as u64);
        assert!(wheel.next_due().unwrap() > 7);
    }

    #[test]
    fn rearming_moves_and_disarming_removes() {
        let mut wheel = Wheel::new(0);
        wheel.arm(SlotId(0), 10);
        wheel.arm(SlotId(1), 10);
        wheel.arm(SlotId(2), 10);
        wheel.arm(SlotId(1), 20);
        wheel.disarm(SlotId(0));
        assert_eq!(drain(&mut wheel, 15), [2]);
        assert_eq!(drain(&mut wheel, 25), [1]);
    }

    #[test]
    fn an_earlier_timer_stays_and_a_later_one_moves() {
        let mut wheel = Wheel::new(4);
        wheel.arm_by(SlotId(0), 1000);
        wheel.arm_by(SlotId(0), 5000);
        wheel.arm_by(SlotId(1), 5000);
        wheel.arm_by(SlotId(1), 1000);
        assert_eq!(drain(&mut wheel, 1008).len(), 2);
        wheel.arm_by(SlotId(0), 5000);
        assert_eq!((drain(&mut wheel, 4999).len(), drain(&mut wheel, 5008)), (0, vec![0]));
    }

    #[test]
    fn catches_up_after_a_long_pause() {
        let mut wheel = Wheel::new(4);
        for slot in 0..100 {
            wheel.arm(SlotId(slot), u64::from(slot) * 997);
        }
        assert_eq!(drain(&mut wheel, 1 << 40).len(), 100);
    }

    #[test]
    fn a_time_in_the_past_is_due_at_once() {
        let mut wheel = Wheel::new(4);
        wheel.arm(SlotId(0), 1000);
        assert_eq!(drain(&mut wheel, 2000), [0]);
        wheel.arm(SlotId(0), 5);
        assert_eq!(drain(&mut wheel, 2000), [0]);
    }

    /// One timer at `here` that goes, which finds the earliest anew: that of the others.
    fn check_next(here: u64, others: &[u64], expected: u64) {
        let mut wheel = Wheel::new(0);
        (0..).zip(others).for_each(|(slot, &at)| wheel.arm(SlotId(slot), at));
        wheel.arm(SlotId(99), here);
        assert_eq!(drain(&mut wheel, here), [99]);
        assert_eq!(wheel.next_due(), Some(expected), "after {here}, of {others:?}");
    }

    #[test]
    fn the_next_timer_is_found_wherever_in_the_wheel_it_is() {
        check_next(7, &[20], 20);
        check_next(7, &[519, 20], 20);
        check_next(70, &[75, 130], 75);
        check_next(70, &[75, 517], 75);
        check_next(70, &[75, 578], 75);
        check_next(70, &[578, 300], 300);
        check_next(70, &[578], 578);
        check_next(500, &[600, 520], 520);
        check_next(511, &[1_000, 512], 512);
        check_next(511, &[513], 513);
        check_next(1_100, &[1_130, 1_400], 1_130);
    }

    #[test]
    fn a_timer_that_is_disarmed_asks_for_no_call_and_hides_none_of_its_bucket() {
        for at in [10, 70, 300] {
            let mut wheel = Wheel::new(0);
            (0..2).for_each(|slot| wheel.arm(SlotId(slot), at));
            wheel.arm(SlotId(2), at + 20);
            wheel.arm(SlotId(3), 5);
            assert!(wheel.is_armed(SlotId(1)) && !wheel.is_armed(SlotId(9)));
            wheel.disarm(SlotId(1));
            assert!(wheel.is_armed(SlotId(0)) && !wheel.is_armed(SlotId(1)));
            assert_eq!(drain(&mut wheel, 5), [3]);
            assert_eq!(wheel.next_due(), Some(at));
            wheel.disarm(SlotId(0));
            wheel.arm(SlotId(3), 6);
            assert_eq!(drain(&mut wheel, 6), [3]);
            assert_eq!(wheel.next_due(), Some(at + 20), "nothing is left at {at}");
        }
    }

    #[test]
    fn when_the_last_timer_is_disarmed_its_time_is_forgotten() {
        let mut wheel = Wheel::new(0);
        wheel.arm(SlotId(0), 10);
        wheel.disarm(SlotId(0));
        assert_eq!(wheel.next_due(), None);
        wheel.arm(SlotId(0), 300);
        assert_eq!(wheel.next_due(), Some(300));
        wheel.arm(SlotId(0), 600);
        assert_eq!(wheel.next_due(), Some(600), "it has moved");
    }

    #[test]
    fn a_call_with_an_earlier_time_loses_no_timer() {
        let mut wheel = Wheel::new(0);
        (0..3).zip([5, 10, 10]).for_each(|(slot, at)| wheel.arm(SlotId(slot), at));
        assert!((0..2).all(|_| wheel.pop_due(10).is_some()));
        assert_eq!(wheel.pop_due(9), None);
        assert!(wheel.pop_due(10).is_some());
    }
}
