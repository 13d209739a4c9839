//! Calls that have ended and whose server has not been told: what a client owes it.
//!
//! | event | then |
//! |---|---|
//! | a call has ended | it joins a range of consecutive ids, or begins one |
//! | a request goes to the server | takes the oldest range along; to a peer that knows no flags, one id |
//! | ranges are many, or the replies that the server keeps for them are long | the rest is said in ACK packets, behind the data that waits |
//! | half of `need_ack_ns` has passed; a peer without flags is called by nobody | the same |
//!
//! None is ever dropped: each sent request makes room for one that has ended, so that there are
//! never more than calls that may be outstanding.

use std::collections::VecDeque;

use tailcut_wire::homa::{ACKS_MAX, Ack};

use super::ids::ClientId;

/// Calls that have ended and whose server has not been told.
#[derive(Debug, Default)]
pub(super) struct Acks {
    /// In the order of their ids.
    ranges: VecDeque<Range>,
    /// Bytes of their replies, which the server keeps.
    reply_bytes: usize,
    /// They are about to be said in packets of their own.
    is_called: bool,
    /// A timer will look whether they still wait.
    is_timed: bool,
}

/// RPCs with consecutive ids, of one server port.
#[derive(Clone, Copy, Debug)]
struct Range {
    /// The first id.
    first: u64,
    /// Number of ids, 1 to [`ACKED_MAX`].
    count: u16,
    /// The server's.
    server_port: u16,
}

/// Next step for a call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckAction {
    /// Nothing: a packet to the server or a timer will see to it.
    Waits,
    /// Set the timer.
    Later,
    /// Say all that wait.
    Now,
}

impl Acks {
    /// Adds a call that has ended with a reply of so many bytes; tells what is to be done.
    pub(super) fn push(&mut self, id: ClientId, server_port: u16, reply_len: usize) -> AckAction {
        self.join(id.0, server_port);
        self.reply_bytes += reply_len;
        if self.ranges.len() >= RANGES_HELD_MAX || self.reply_bytes > REPLY_BYTES_HELD_MAX {
            return self.call();
        }
        if !std::mem::replace(&mut self.is_timed, true) {
            AckAction::Later
        } else {
            AckAction::Waits
        }
    }

    /// All are to be said in packets of their own, unless they already are, or there are none.
    pub(super) fn call(&mut self) -> AckAction {
        if self.ranges.is_empty() || std::mem::replace(&mut self.is_called, true) {
            AckAction::Waits
        } else {
            AckAction::Now
        }
    }

    /// The timer has come; tells whether any are to be said.
    pub(super) fn expire(&mut self) -> bool {
        self.is_timed = false;
        self.call() == AckAction::Now
    }

    /// The timer has been stopped.
    pub(super) fn note_untimed(&mut self) {
        self.is_timed = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Takes the oldest, to go with a DATA packet: a range for a peer that `knows_ranges`.
    pub(super) fn pop(&mut self, knows_ranges: bool) -> Option<Ack> {
        let first = self.ranges.front_mut()?;
        let ack = if first.count == 1 || !knows_ranges {
            let ack = Ack::new(first.first, first.server_port);
            first.first += 2;
            first.count -= 1;
            ack
        } else {
            let ack = Ack::range(first.last(), first.count);
            first.count = 0;
            ack
        };
        if first.count == 0 {
            self.ranges.pop_front();
        }
        self.note_empty();
        Some(ack)
    }

    /// Takes one RPC, to head an ACK packet.
    pub(super) fn pop_one(&mut self) -> Option<Ack> {
        self.pop(false)
    }

    /// Takes as many as go with `named`, which an ACK packet has in its header: at most
    /// [`ACKED_MAX`] calls.
    pub(super) fn take(&mut self, named: ClientId, knows_ranges: bool) -> ([Ack; ACKS_MAX], usize) {
        self.leave(named.0);
        let mut acks = [Ack::default(); ACKS_MAX];
        let mut count = 0;
        let mut left = ACKED_MAX;
        while count < ACKS_MAX
            && self.ranges.front().is_some_and(|range| !knows_ranges || range.count <= left)
            && let Some(ack) = self.pop(knows_ranges)
        {
            left -= ack.range_count().unwrap_or(1);
            acks[count] = ack;
            count += 1;
        }
        self.note_empty();
        (acks, count)
    }

    fn join(&mut self, id: u64, server_port: u16) {
        let at = self.ranges.partition_point(|range| range.first <= id);
        let takes = |range: &Range| range.count < ACKED_MAX && range.server_port == server_port;
        let before = at.checked_sub(1);
        if let Some(place) = before
            && self.ranges[place].last() + 2 == id
            && takes(&self.ranges[place])
        {
            self.ranges[place].count += 1;
            return self.merge(place);
        }
        if let Some(next) = self.ranges.get_mut(at)
            && next.first == id + 2
            && takes(next)
        {
            // Nothing is left to merge: the range before it does not touch, or may not take more.
            next.first = id;
            next.count += 1;
            return;
        }
        self.ranges.insert(at, Range { first: id, count: 1, server_port });
    }

    /// Joins a range with the next one, if they touch and are not too long.
    fn merge(&mut self, place: usize) {
        let range = self.ranges[place];
        if let Some(&next) = self.ranges.get(place + 1)
            && range.last() + 2 == next.first
            && range.server_port == next.server_port
            && range.count + next.count <= ACKED_MAX
        {
            self.ranges[place].count += next.count;
            self.ranges.remove(place + 1);
        }
    }

    /// Takes one RPC out, wherever it is.
    fn leave(&mut self, id: u64) {
        let Some(place) = self.ranges.partition_point(|range| range.first <= id).checked_sub(1)
        else {
            return;
        };
        let range = self.ranges[place];
        if id > range.last() {
            return;
        }
        let below = ((id - range.first) / 2) as u16;
        let above = range.count - below - 1;
        self.ranges[place].count = below;
        if above > 0 {
            self.ranges.insert(place + 1, Range { first: id + 2, count: above, ..range });
        }
        if below == 0 {
            self.ranges.remove(place);
        }
    }

    fn note_empty(&mut self) {
        // Only here: how many bytes stood for one range is not remembered.
        if self.ranges.is_empty() {
            self.reply_bytes = 0;
            self.is_called = false;
        }
    }
}

impl Range {
    fn last(&self) -> u64 {
        self.first + 2 * (u64::from(self.count) - 1)
    }
}

/// Most RPCs that a packet acknowledges in ranges, so that it makes bounded work: about 1 us where
/// none is in a cache.
pub(super) const ACKED_MAX: u16 = 16;

/// Ranges that a client keeps to itself at most: those of several GSO batches of replies, so that
/// under load each goes with a request and none needs a packet of its own.
const RANGES_HELD_MAX: usize = 4 * crate::node::GSO_DATAGRAMS_MAX;

/// Bytes of replies that a server keeps for them at most.
const REPLY_BYTES_HELD_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledgements of `ids`, given in this order, each as the first id and the count of a
    /// range.
    fn ranges(ids: impl IntoIterator<Item = u64>) -> Vec<(u64, u16)> {
        let mut acks = Acks::default();
        ids.into_iter().for_each(|id| {
            acks.push(ClientId(id), 9, 10);
        });
        acks.ranges.iter().map(|range| (range.first, range.count)).collect()
    }

    #[test]
    fn consecutive_ids_are_one_range_in_any_order() {
        assert_eq!(ranges((1..=15).map(|step| 2 * step)), [(2, 15)]);
        assert_eq!(ranges((1..=15).rev().map(|step| 2 * step)), [(2, 15)]);
        assert_eq!(ranges((0..15).map(|step| 2 * (step * 7 % 15 + 1))), [(2, 15)]);
        assert_eq!(ranges([2, 6, 10, 8]), [(2, 1), (6, 3)]);
        assert_eq!(ranges((1..=17).map(|step| 2 * step)), [(2, 16), (34, 1)], "16 at most");
    }

    #[test]
    fn a_peer_that_knows_ranges_is_told_the_oldest_and_another_one_id() {
        let mut acks = Acks::default();
        (1..=16).for_each(|step| {
            acks.push(ClientId(2 * step), 9, 10);
        });
        assert_eq!(acks.pop(false), Some(Ack::new(2, 9)));
        assert_eq!(acks.pop(true), Some(Ack::range(32, 15)));
        assert_eq!((acks.pop(true), acks.is_empty()), (None, true));
    }

    #[test]
    fn acks_wait_for_a_packet_until_their_ranges_are_many_or_late() {
        let mut acks = Acks::default();
        let told: Vec<AckAction> = (1..=129).map(|id| acks.push(ClientId(4 * id), 9, 10)).collect();
        assert_eq!((told[0], told[127]), (AckAction::Later, AckAction::Now));
        assert!(
            told[1..127].iter().chain(&told[128..]).all(|&telling| telling == AckAction::Waits)
        );
        assert!(!acks.expire(), "they are about to be said");
        assert_eq!(acks.pop_one().unwrap(), Ack::new(4, 9));
        let (taken, count) = acks.take(ClientId(12), false);
        assert_eq!(
            (taken[..count].iter().map(|ack| ack.client_id.get()).collect::<Vec<_>>()),
            [8, 16, 20, 24, 28]
        );
        assert_eq!(std::iter::from_fn(|| acks.pop_one()).count(), 122, "none was dropped");
        assert_eq!(acks.push(ClientId(2), 9, 10), AckAction::Later);
        assert!(acks.expire() && !acks.expire());
    }

    #[test]
    fn what_a_packet_names_leaves_its_range() {
        let mut acks = Acks::default();
        (1..=5).for_each(|step| {
            acks.push(ClientId(2 * step), 9, 10);
        });
        let (taken, count) = acks.take(ClientId(6), true);
        assert_eq!(taken[..count], [Ack::range(4, 2), Ack::range(10, 2)]);
        assert!(acks.is_empty());
    }

    #[test]
    fn a_packet_acknowledges_no_more_calls_than_its_receiver_does_at_once() {
        let counts = |acks: &mut Acks| -> Vec<u16> {
            let (taken, count) = acks.take(ClientId(1000), true);
            taken[..count].iter().map(|ack| ack.range_count().unwrap_or(1)).collect()
        };
        let mut acks = Acks::default();
        (1..40).filter(|step| step % 10 != 0).for_each(|step| {
            acks.push(ClientId(2 * step), 9, 10);
        });
        let taken = [(); 5].map(|()| counts(&mut acks));
        assert_eq!(taken, [vec![9], vec![9], vec![9], vec![9], vec![]]);
        (1..20).filter(|step| step % 4 != 0).for_each(|step| {
            acks.push(ClientId(2 * step), 9, 10);
        });
        assert_eq!(counts(&mut acks), [3; 5], "as many ranges as a packet has room for");
    }

    #[test]
    fn acks_of_long_replies_do_not_wait() {
        let mut acks = Acks::default();
        let told: Vec<AckAction> =
            (1..=3).map(|id| acks.push(ClientId(2 * id), 9, 60_000)).collect();
        assert_eq!(told, [AckAction::Later, AckAction::Now, AckAction::Waits]);
    }

    #[test]
    fn replies_that_hold_much_are_acknowledged_at_once() {
        for (reply_len, expected) in
            [(REPLY_BYTES_HELD_MAX, AckAction::Later), (REPLY_BYTES_HELD_MAX + 1, AckAction::Now)]
        {
            assert_eq!(Acks::default().push(ClientId(2), 9, reply_len), expected, "{reply_len} B");
        }
    }
}
