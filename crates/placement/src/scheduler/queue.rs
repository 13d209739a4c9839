//! A bounded queue of shares that take turns, from which any item can be taken in O(log n), with
//! the earliest expiry at hand.
//!
//! | a line, which holds the items of one share | event | then |
//! |---|---|---|
//! | is idle | an item comes | new: it goes before the old ones, once |
//! | is new or old | one of its items leaves by its turn | behind the old ones |
//! | is old | its turn comes and it is empty | idle |
//!
//! These are the turns of FQ-CoDel (RFC 8290 section 4.2) with a quantum of one item: who asks
//! seldom does not wait behind who asks much. A share may hold [`SHARE_FACTOR`] times the room that
//! is left (dynamic thresholds, Choudhury and Hahne), so there is always room for another.
//!
//! A line is a ring of tickets. The ticket of an item that left early is skipped when its turn
//! comes, and the rings are swept when more than half of them are such. So are the lines whose
//! items have all left early: they become idle before their turn.

use std::collections::{HashMap, VecDeque};

use super::{Ticket, TypeId};
use crate::Time;
use crate::keyed::KeyedState;
use crate::order::heap::{Heap, Places};
use crate::slab::Slab;

/// Item of a line that leaves first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The oldest.
    #[default]
    OldestFirst,
    /// The newest.
    NewestFirst,
}

/// The held items.
#[derive(Debug)]
pub(super) struct Queue<T> {
    /// Most items.
    len_max: usize,
    /// The type of its items.
    kind: TypeId,
    /// The held items; `None` in free slots.
    slots: Slab<Option<Held<T>>>,
    /// A line for each share that has, or had, items; the first is that of share 0.
    lines: Vec<Line>,
    /// Lines of the shares other than 0 that are not idle.
    by_share: HashMap<u64, u32, KeyedState>,
    /// Idle lines.
    idle: Vec<u32>,
    /// Lines that were idle before, in the order in which they came.
    new: VecDeque<u32>,
    /// The other lines that are not idle, in the order of their turns.
    old: VecDeque<u32>,
    /// Tickets in all lines, stale ones included.
    ticket_count: usize,
    /// The held items by expiry, then by sequence.
    expiries: Heap<(Time, u64)>,
    /// Place of each slot in `expiries`.
    expiry_places: Places,
    /// Sequence of the next item, so that equal expiries leave in order.
    sequence: u64,
}

/// A held item.
#[derive(Debug)]
struct Held<T> {
    /// The item.
    item: T,
    /// Arrival time.
    since: Time,
    /// Its line.
    line: u32,
}

/// The items of one share.
#[derive(Debug, Default)]
struct Line {
    /// The share.
    share: u64,
    /// Tickets in the order of arrival, some of which are stale.
    tickets: VecDeque<Ticket>,
    /// Items held.
    len: usize,
    /// It has no items and no turn.
    is_idle: bool,
}

impl<T> Queue<T> {
    pub(super) fn new(kind: TypeId, len_max: usize) -> Self {
        let (expiries, expiry_places) = Heap::of_at_most(len_max);
        Self {
            len_max,
            kind,
            slots: Slab::of_at_most(len_max),
            lines: vec![Line { is_idle: true, ..Line::default() }],
            by_share: HashMap::with_hasher(KeyedState::with_seed(0)),
            idle: Vec::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            ticket_count: 0,
            expiries,
            expiry_places,
            sequence: 0,
        }
    }

    /// Keys the table of shares, whose names strangers choose.
    pub(super) fn set_seed(&mut self, seed: u64) {
        self.by_share = HashMap::with_hasher(KeyedState::with_seed(seed));
    }

    pub(super) fn len_max(&self) -> usize {
        self.len_max
    }

    pub(super) fn set_len_max(&mut self, len_max: usize) {
        self.len_max = len_max;
    }

    pub(super) fn len(&self) -> usize {
        self.slots.live_count()
    }

    pub(super) fn push(
        &mut self,
        item: T,
        (since, expires_at): (Time, Time),
        share: u64,
    ) -> Result<Ticket, T> {
        let room = self.len_max.saturating_sub(self.len());
        if room == 0 {
            return Err(item);
        }
        let at = self.line_of(share);
        let line = &mut self.lines[at as usize];
        if line.len >= room.saturating_mul(SHARE_FACTOR) {
            return Err(item);
        }
        if std::mem::replace(&mut line.is_idle, false) {
            self.new.push_back(at);
        }
        line.len += 1;
        let slot = self.slots.take(|| None);
        self.slots[slot] = Some(Held { item, since, line: at });
        self.expiries.set(&mut self.expiry_places, slot, (expires_at, self.sequence));
        self.sequence += 1;
        self.sweep();
        let ticket = Ticket { kind: self.kind, key: self.slots.key(slot) };
        self.lines[at as usize].tickets.push_back(ticket);
        self.ticket_count += 1;
        Ok(ticket)
    }

    /// The item whose turn it is.
    pub(super) fn first(&mut self, order: Order) -> Option<(Ticket, &T)> {
        let ticket = loop {
            let &at = self.new.front().or(self.old.front())?;
            let line = &mut self.lines[at as usize];
            let end = match order {
                Order::OldestFirst => line.tickets.front(),
                Order::NewestFirst => line.tickets.back(),
            };
            match end {
                Some(&ticket) if self.slots.find(ticket.key).is_some() => break ticket,
                Some(_) => {
                    match order {
                        Order::OldestFirst => line.tickets.pop_front(),
                        Order::NewestFirst => line.tickets.pop_back(),
                    };
                    self.ticket_count -= 1;
                }
                None => self.pass_turn_of_empty(),
            }
        };
        let slot = self.slots.find(ticket.key)?;
        Some((ticket, &self.slots[slot].as_ref()?.item))
    }

    /// Takes out the item whose turn it is, and passes the turn; the item, and when it came.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<(T, Time)> {
        let slot = self.slots.find(ticket.key)?;
        let since = self.slots[slot].as_ref()?.since;
        let item = self.remove(ticket)?;
        // The turn is that of the line that `first` has found.
        if let Some(at) = self.new.pop_front().or_else(|| self.old.pop_front()) {
            self.old.push_back(at);
        }
        Some((item, since))
    }

    pub(super) fn earliest(&self) -> Option<(Ticket, Time)> {
        let ((expiry, _), slot) = self.expiries.peek()?;
        Some((Ticket { kind: self.kind, key: self.slots.key(slot) }, expiry))
    }

    pub(super) fn next_expiry(&self) -> Option<Time> {
        self.expiries.peek().map(|((expiry, _), _)| expiry)
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let slot = self.slots.find(ticket.key)?;
        self.slots.release(slot);
        self.expiries.remove(&mut self.expiry_places, slot);
        let Held { item, line, .. } = self.slots[slot].take()?;
        let line = &mut self.lines[line as usize];
        line.len -= 1;
        if line.tickets.front() == Some(&ticket) {
            line.tickets.pop_front();
            self.ticket_count -= 1;
        } else if line.tickets.back() == Some(&ticket) {
            line.tickets.pop_back();
            self.ticket_count -= 1;
        }
        Some(item)
    }

    /// The line of a share, idle where it holds nothing.
    #[inline]
    fn line_of(&mut self, share: u64) -> u32 {
        if share == 0 {
            return 0;
        }
        if let Some(&at) = self.by_share.get(&share) {
            return at;
        }
        let at = self.idle.pop().unwrap_or_else(|| {
            self.lines.push(Line { is_idle: true, ..Line::default() });
            self.lines.len() as u32 - 1
        });
        self.lines[at as usize].share = share;
        self.by_share.insert(share, at);
        at
    }

    /// A line that came to its turn with nothing to give: a new one has had its first turn, an old
    /// one is idle.
    fn pass_turn_of_empty(&mut self) {
        if let Some(at) = self.new.pop_front() {
            return self.old.push_back(at);
        }
        let Some(at) = self.old.pop_front() else { return };
        let line = &mut self.lines[at as usize];
        line.is_idle = true;
        if at != 0 {
            self.by_share.remove(&line.share);
            self.idle.push(at);
        }
    }

    /// Keeps the lines together at most twice as long as the queue, and at most twice as many, at a
    /// cost of O(1) for each item that left early.
    fn sweep(&mut self) {
        let most = 2 * self.slots.live_count() + SWEEP_SLACK;
        if self.by_share.len() > most {
            self.idle_empty_lines();
        }
        if self.ticket_count > most {
            let (slots, lines) = (&self.slots, &mut self.lines);
            self.ticket_count = 0;
            for &at in self.new.iter().chain(&self.old) {
                let tickets = &mut lines[at as usize].tickets;
                tickets.retain(|ticket| slots.find(ticket.key).is_some());
                self.ticket_count += tickets.len();
            }
        }
    }

    /// Takes the turns of all lines that hold nothing.
    fn idle_empty_lines(&mut self) {
        let Self { lines, by_share, idle, ticket_count, .. } = self;
        let mut keeps = |at: &u32| {
            let line = &mut lines[*at as usize];
            let is_empty = line.len == 0;
            if is_empty {
                *ticket_count -= line.tickets.len();
                line.tickets.clear();
                line.is_idle = true;
                if *at != 0 {
                    by_share.remove(&line.share);
                    idle.push(*at);
                }
            }
            !is_empty
        };
        self.new.retain(&mut keeps);
        self.old.retain(&mut keeps);
    }
}

/// A share holds at most so many times the room that is left: a queue of 16 or fewer may be of one
/// share, and one that floods a long queue leaves others a seventeenth.
const SHARE_FACTOR: usize = 16;

/// Stale tickets, and lines that hold nothing, that a short queue may keep before it is worth a
/// sweep.
const SWEEP_SLACK: usize = 64;

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::super::{OverloadConfig, Scheduler};
    use super::*;
    use crate::policy::PolicySpec;

    /// Whoever asks once and gives up, or has waited for too long, leaves no line behind.
    #[test]
    fn lines_are_as_many_as_items_however_items_leave() {
        let mut queue = Queue::new(TypeId(0), 1_000);
        let kept: Vec<Ticket> =
            (1..=10).map(|share| queue.push(share, (0, 9), share).unwrap()).collect();
        for share in 11..=100_000 {
            let ticket = queue.push(share, (0, 9), share).unwrap();
            assert_eq!(queue.remove(ticket), Some(share));
        }
        let most = 2 * (kept.len() + 1) + SWEEP_SLACK + 1;
        assert!(queue.by_share.len() <= most, "{} of {most}", queue.by_share.len());
        assert!(queue.lines.len() <= most + 1, "{} of {most}", queue.lines.len());
        assert!(queue.new.len() + queue.old.len() <= most);
        // Those that have items keep their turns.
        for ticket in kept {
            assert_eq!(queue.first(Order::OldestFirst).map(|(first, _)| first), Some(ticket));
            queue.take(ticket);
        }
        assert_eq!((queue.len(), queue.first(Order::OldestFirst)), (0, None));
        assert_eq!((queue.by_share.len(), queue.ticket_count), (0, 0));
    }

    fn pushed<const N: usize>(queue: &mut Queue<u64>, shares: [u64; N]) -> [Ticket; N] {
        shares.map(|share| queue.push(share, (0, 9), share).unwrap())
    }

    /// The shares of all items in the order of their turns.
    fn turns(queue: &mut Queue<u64>) -> Vec<u64> {
        let mut found = Vec::new();
        while let Some((ticket, &share)) = queue.first(Order::OldestFirst) {
            found.push(share);
            assert!(queue.take(ticket).is_some());
        }
        found
    }

    #[test]
    fn shares_take_turns_and_a_new_one_goes_first_once() {
        let mut queue = Queue::new(TypeId(0), 100);
        pushed(&mut queue, [0, 0, 0, 7, 7, 0, 9]);
        assert_eq!(turns(&mut queue), [0, 7, 9, 0, 7, 0, 0]);
        pushed(&mut queue, [7, 7, 7]);
        let first = queue.first(Order::OldestFirst).unwrap().0;
        queue.take(first);
        pushed(&mut queue, [8, 8]);
        assert_eq!(turns(&mut queue), [8, 7, 8, 7]);
    }

    #[test]
    fn equal_expiries_leave_in_the_order_in_which_they_came() {
        let mut queue = Queue::new(TypeId(0), 100);
        // The slots of these are used again in the other order.
        for ticket in pushed(&mut queue, [1, 2]) {
            queue.remove(ticket);
        }
        for ticket in pushed(&mut queue, [3, 4, 5]) {
            assert_eq!(queue.earliest(), Some((ticket, 9)));
            queue.remove(ticket);
        }
    }

    #[test]
    fn an_item_that_left_early_is_skipped_from_either_end() {
        for order in [Order::OldestFirst, Order::NewestFirst] {
            let mut queue = Queue::new(TypeId(0), 100);
            let [oldest, middle, newest] = pushed(&mut queue, [7; 3]);
            let (end, last) = match order {
                Order::OldestFirst => (oldest, newest),
                Order::NewestFirst => (newest, oldest),
            };
            assert_eq!((queue.remove(middle), queue.ticket_count), (Some(7), 3));
            assert_eq!((queue.remove(end), queue.ticket_count), (Some(7), 2));
            assert_eq!(queue.first(order).map(|(ticket, _)| ticket), Some(last));
            assert_eq!(queue.ticket_count, 1, "the stale one is gone");
        }
    }

    /// So many leave from the middle of a line of 200 that half of the tickets, but for the slack,
    /// are stale.
    #[test]
    fn a_line_is_swept_when_more_than_half_of_it_is_stale() {
        let mut queue = Queue::new(TypeId(0), 1_000);
        let tickets = pushed(&mut queue, [7; 200]);
        tickets[1..134].iter().for_each(|&ticket| assert!(queue.remove(ticket).is_some()));
        assert_eq!((queue.len(), queue.ticket_count), (67, 200));
        pushed(&mut queue, [7]);
        assert_eq!((queue.len(), queue.ticket_count), (68, 201), "exactly half are");
        queue.remove(tickets[134]);
        pushed(&mut queue, [7]);
        assert_eq!((queue.len(), queue.ticket_count), (68, 68));
        assert_eq!(turns(&mut queue).len(), 68);
    }

    #[test]
    fn lines_that_hold_nothing_are_taken_away_when_they_are_many() {
        let mut queue = Queue::new(TypeId(0), 1_000);
        // The last to leave has a stale ticket before it.
        let [oldest, middle, newest] = pushed(&mut queue, [1; 3]);
        for ticket in [middle, oldest, newest] {
            queue.remove(ticket);
        }
        assert_eq!((queue.len(), queue.ticket_count), (0, 1));
        pushed(&mut queue, [2]);
        for share in 3..=SWEEP_SLACK as u64 + 4 {
            let [ticket] = pushed(&mut queue, [share]);
            assert_eq!(queue.by_share.len() as u64, share);
            queue.remove(ticket);
        }
        pushed(&mut queue, [1_000]);
        assert_eq!((queue.by_share.len(), queue.ticket_count), (2, 2));
        assert_eq!(turns(&mut queue), [2, 1_000]);
    }

    /// Names of shares are chosen by strangers.
    #[test]
    fn the_shares_of_every_type_are_hashed_by_the_secret_seed() {
        let policy = "jbsq:1".parse::<PolicySpec>().unwrap().build();
        let config = OverloadConfig { seed: 7, ..OverloadConfig::DEFAULT };
        let scheduler = Scheduler::<u64>::new(policy, 10).with_overload(config).with_types(2);
        let hash = |state: &KeyedState| state.hash_one(1_u64);
        let hashes = scheduler.lines.iter().map(|line| hash(line.queue.by_share.hasher()));
        assert!(hashes.eq([hash(&KeyedState::with_seed(7)); 2]));
    }
}
