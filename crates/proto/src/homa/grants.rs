//! The receiver's side of the bargain: who may send scheduled bytes, how many, and at which
//! priority.
//!
//! Peers with messages that want grants are kept in the order of their best message.
//! [`GrantPolicy::Sigcomm`] looks at the `overcommit` first of them whenever one of their packets
//! arrives; [`GrantPolicy::Module`] opens the window of each message that is active. Both look
//! again before the next transmit when a message has ended: what it leaves is for those that wait,
//! of which nothing else may ever come.
//!
//! | messages active | priorities of the scheduled levels |
//! |---|---|
//! | fewer than levels | the lowest, the best message the highest of them: room is left above for a better one |
//! | as many or more | the best have levels of their own, the rest share the lowest |

use super::config::{GrantPolicy, Grants, Pull};
use super::pace::Meter;
use super::slot::rank;
use super::transmit::Control;
use super::{Endpoint, Phase};
use crate::node::Time;
use crate::peer::holdings::Spare;
use crate::peer::table::PeerId;
use crate::rtt::Rtt;
use crate::work;
use tailcut_placement::order::heap::Places;
use tailcut_placement::slab::SlotId;

/// Peers that want grants.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// Place of each message in the heap of its peer.
    places: Places,
    /// Peers by the rank of their best message; the best last, where most change.
    order: Vec<(u64, PeerId)>,
    /// By peer: its rank in `order`.
    ranks: Vec<u64>,
    /// Bytes that peers may send and that have not arrived, over all messages.
    pub(super) expected_bytes: u64,
    /// Thousandths of bytes that the oldest message has a claim to.
    fifo_claim: u64,
    /// A message has ended since grants were last given, and may have left something for others.
    pub(super) is_due: bool,
    /// Time at which a peer may be given its next grant.
    pub(super) wake_at: Option<Time>,
    /// From grants to their first bytes, over all peers: what waits before this host is in it.
    pub(super) rtt: Rtt,
    /// Pace at which bytes of messages come, from all peers.
    pub(super) pace: Meter,
    /// Times at which data of each priority last came, except retransmissions, which tell nothing
    /// of who waits; 0 before.
    pub(super) data_at: [Time; 8],
    /// Time at which this host last came so late to a timer that much may have arrived unread; 0
    /// before.
    pub(super) late_at: Time,
}

/// Standing of a message among those that want grants.
#[derive(Clone, Copy, Debug)]
enum Standing {
    /// The best of all.
    BestOfAll,
    /// The best of its client.
    BestOfClient,
    /// Neither.
    Behind,
}

impl Standing {
    /// Standing of the message numbered `rank`, from 0, of those that are active, of which the
    /// first `best_ones` are the best of their clients.
    fn of(rank: usize, best_ones: usize) -> Self {
        match rank {
            0 => Self::BestOfAll,
            rank if rank < best_ones => Self::BestOfClient,
            _ => Self::Behind,
        }
    }
}

impl Book {
    /// The peer whose best message is the one numbered `rank`, from 0.
    fn peer_at(&self, rank: usize) -> Option<PeerId> {
        let place = self.order.len().checked_sub(rank + 1)?;
        Some(self.order[place].1)
    }

    /// Place of a peer among the `count` first, if it is one of them.
    fn rank_of(&self, peer: PeerId, count: usize) -> Option<usize> {
        self.order.iter().rev().take(count).position(|entry| entry.1 == peer)
    }

    /// Moves a peer to where its best message has it.
    fn place(&mut self, peer: PeerId, best: Option<u64>) {
        if self.ranks.len() <= peer.index() {
            self.ranks.resize(peer.index() + 1, ABSENT);
        }
        let best = best.unwrap_or(ABSENT);
        let old = std::mem::replace(&mut self.ranks[peer.index()], best);
        if old == best {
            return;
        }
        let at = |rank| move |entry: &(u64, PeerId)| *entry > (rank, peer);
        if old != ABSENT {
            self.order.remove(self.order.partition_point(at(old)));
        }
        if best != ABSENT {
            self.order.insert(self.order.partition_point(at(best)), (best, peer));
        }
    }

    fn wake_by(&mut self, at: Time) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }
}

impl Endpoint {
    /// Takes note that something of a message has arrived, and gives the grants that follow.
    pub(super) fn grant_after(&mut self, now: Time, index: SlotId) {
        let slot = &self.rpcs[index];
        let (peer, is_wanting) = (slot.peer, slot.inc.message.ungranted() > 0);
        match self.config.grants.policy {
            GrantPolicy::Sigcomm(pull) => {
                if is_wanting {
                    // Its rank is by what is not granted, which an arrival does not change.
                    if !self.book.places.contains(index) {
                        self.want(index);
                    }
                    self.grant_to_peer(now, peer, pull);
                }
            }
            GrantPolicy::Module { .. } => {
                if is_wanting {
                    self.want(index);
                }
                // What has come makes room for others, whether or not this message wants more.
                if !self.book.order.is_empty() {
                    self.grant_windows(now);
                }
            }
        }
    }

    /// Takes note that a message of several packets is complete: with [`GrantPolicy::Module`]
    /// others may send what it no longer does.
    pub(super) fn note_complete(&mut self) {
        self.book.is_due |= matches!(self.config.grants.policy, GrantPolicy::Module { .. });
    }

    /// Gives the grants that messages which have ended leave to others.
    #[inline]
    pub(super) fn grant_due(&mut self, now: Time) {
        if std::mem::take(&mut self.book.is_due) && !self.book.order.is_empty() {
            match self.config.grants.policy {
                GrantPolicy::Sigcomm(pull) => self.grant_to_first(now, pull),
                GrantPolicy::Module { .. } => self.grant_windows(now),
            }
        }
    }

    /// Takes a message out of those that want grants; harmless when it is not among them.
    pub(super) fn unwant(&mut self, index: SlotId) {
        if self.book.places.contains(index) {
            let peer = self.rpcs[index].peer;
            self.peers[peer].state.wanting.remove(&mut self.book.places, index);
            self.replace(peer);
        }
    }

    /// Gives the grants that had to wait until `now`.
    pub(super) fn give_late_grants(&mut self, now: Time) {
        if self.book.wake_at.is_none_or(|at| at > now) {
            return;
        }
        self.book.wake_at = None;
        if let GrantPolicy::Sigcomm(pull) = self.config.grants.policy {
            self.grant_to_first(now, pull);
        }
    }

    /// SIGCOMM'18: a grant to each peer that is among the first.
    fn grant_to_first(&mut self, now: Time, pull: Pull) {
        // The first are noted beforehand: each grant may move its peer in the order.
        let mut due = [None; OVERCOMMIT_MAX];
        let count = self.config.grants.overcommit.min(self.book.order.len());
        for (rank, place) in due[..count].iter_mut().enumerate() {
            *place = self.book.peer_at(rank);
        }
        due.iter().flatten().for_each(|&peer| self.grant_to_peer(now, peer, pull));
    }

    /// Ranks the message that an RPC receives anew, by the bytes that it wants.
    fn want(&mut self, index: SlotId) {
        let slot = &self.rpcs[index];
        let bytes = match self.config.grants.policy {
            GrantPolicy::Sigcomm { .. } => slot.inc.message.ungranted(),
            GrantPolicy::Module { .. } => slot.inc.message.len() - slot.inc.message.received(),
        };
        let (peer, key) = (slot.peer, rank(bytes, slot.inc.birth));
        self.peers[peer].state.wanting.set(&mut self.book.places, index, key);
        self.replace(peer);
    }

    fn replace(&mut self, peer: PeerId) {
        let best = self.peers[peer].state.wanting.peek().map(|(key, _)| key);
        self.book.place(peer, best);
    }

    /// SIGCOMM'18: a grant to the best message of a peer, and then to whoever takes its place among
    /// the first.
    fn grant_to_peer(&mut self, now: Time, peer: PeerId, pull: Pull) {
        let overcommit = self.config.grants.overcommit;
        let mut peer = peer;
        for _ in 0..OVERCOMMIT_MAX {
            if !self.grant_packet(now, peer, pull) || self.book.rank_of(peer, overcommit).is_some()
            {
                return;
            }
            match self.book.peer_at(overcommit - 1) {
                Some(next) => peer = next,
                None => return,
            }
        }
        // A packet makes bounded work: what is left is for the timer.
        self.book.wake_by(now + 1);
    }

    /// A grant to the best message of a peer, if it is among the first and little of it is in
    /// flight; tells whether.
    fn grant_packet(&mut self, now: Time, peer: PeerId, pull: Pull) -> bool {
        let overcommit = self.config.grants.overcommit;
        let (Some(rank), Some((_, index))) =
            (self.book.rank_of(peer, overcommit), self.peers[peer].state.wanting.peek())
        else {
            return false;
        };
        let inc = &self.rpcs[index].inc;
        if inc.in_flight() >= pull.rtt_bytes {
            return false;
        }
        let grant_at = self.peers[peer].state.grant_at;
        // Grants no faster than their data take on the link, or they would queue in the network.
        if grant_at > now {
            self.book.wake_by(grant_at);
            return false;
        }
        let (left, framing) = (inc.message.ungranted(), self.config.framing);
        // As in the published simulations, the last round trip of a message goes as a short one
        // would.
        let is_tail = left + left.div_ceil(framing.scheduled_len) * framing.scheduled_overhead
            <= pull.rtt_bytes;
        let active = overcommit.min(self.book.order.len());
        let priority = if is_tail {
            self.advice.cutoffs.level(left)
        } else {
            level(rank, active, self.advice.scheduled_levels)
        };
        self.grant(now, index, (pull.grant_len, priority));
        // With 0 the timer would be due again at once, for ever.
        let next_at = now + pull.grant_ns.max(1);
        let peer = &mut self.peers[peer];
        peer.state.grant_at = next_at;
        let is_hungry =
            |(_, index): (u64, SlotId)| self.rpcs[index].inc.in_flight() < pull.rtt_bytes;
        if peer.state.wanting.peek().is_some_and(is_hungry) {
            self.book.wake_by(next_at);
        }
        true
    }

    /// The module: a window beyond what has arrived of each message that is active.
    fn grant_windows(&mut self, now: Time) {
        let Grants { policy, overcommit } = self.config.grants;
        let GrantPolicy::Module { window, incoming_max, fifo_permille, fifo_increment } = policy
        else {
            return;
        };
        let (active, count) = self.active(overcommit);
        let best_ones = count.min(self.book.order.len());
        // As the module has it: one share more than there are active messages.
        let window = if window > 0 { window } else { incoming_max / (count as u32 + 1) };
        for (rank, &index) in active[..count].iter().enumerate() {
            let inc = &self.rpcs[index].inc;
            let target = inc.message.received().saturating_add(window).min(inc.message.len());
            // Unscheduled bytes are among those expected, and may be more than `incoming_max` by
            // themselves.
            let headroom = u64::from(incoming_max).saturating_sub(self.book.expected_bytes);
            let more = u64::from(target.saturating_sub(inc.message.granted())).min(headroom) as u32;
            // Less than a packet is not worth a grant, unless it is all that is left.
            if more == 0
                || more < self.config.framing.scheduled_len && more < inc.message.ungranted()
                || self.is_crowded_by(index, more, Standing::of(rank, best_ones))
            {
                continue;
            }
            let priority = level(rank, count, self.advice.scheduled_levels);
            self.grant(now, index, (more, priority));
            self.book.fifo_claim += u64::from(more) * u64::from(fifo_permille);
        }
        if fifo_increment > 0 && self.book.fifo_claim >= 1000 * u64::from(fifo_increment) {
            self.book.fifo_claim -= 1000 * u64::from(fifo_increment);
            self.grant_to_oldest(now, window, fifo_increment);
        }
    }

    /// True if `bytes` more of a request are more than a client or all of them may hold. The best
    /// message of a client may exceed the client's limit by a message's length, and the best of all
    /// the limit of all too, so that what is held ends; messages whose last bytes do not come
    /// expire.
    fn is_crowded_by(&self, index: SlotId, bytes: u32, standing: Standing) -> bool {
        let slot = &self.rpcs[index];
        let most = self.config.message_len_max;
        let spare = match standing {
            Standing::BestOfAll => Spare { client: most, all: most },
            Standing::BestOfClient => Spare { client: most, all: 0 },
            Standing::Behind => Spare::default(),
        };
        let bytes = bytes as usize;
        // Requests alone are charged to who sends them; a reply has been asked for from here.
        matches!(slot.phase, Phase::Receiving(_))
            && self.peers.is_crowded_beyond(
                slot.peer,
                &self.holdings,
                bytes,
                &self.config.serving,
                spare,
            )
    }

    /// The messages that may have grants, best first: one of each peer, and more of one only where
    /// that leaves places.
    fn active(&self, overcommit: usize) -> ([SlotId; OVERCOMMIT_MAX], usize) {
        let mut active = [SlotId::NONE; OVERCOMMIT_MAX];
        let mut count = 0;
        for &(_, peer) in self.book.order.iter().rev().take(overcommit) {
            if let Some((_, index)) = self.peers[peer].state.wanting.peek() {
                active[count] = index;
                count += 1;
            }
        }
        let first_ones = count;
        let mut others = [(u64::MAX, SlotId::NONE); OVERCOMMIT_MAX];
        let places = overcommit - count;
        for &(_, peer) in self.book.order.iter().rev().take(if places > 0 { first_ones } else { 0 })
        {
            for &(key, index) in self.peers[peer].state.wanting.foremost(places + 1).iter().skip(1)
            {
                // The last place goes to whoever is better than who has it.
                if key < others[places - 1].0 {
                    others[places - 1] = (key, index);
                    others[..places].sort_unstable();
                }
            }
        }
        for &(_, index) in others[..places].iter().filter(|other| other.0 != u64::MAX) {
            active[count] = index;
            count += 1;
        }
        (active, count)
    }

    /// Against starvation: a part of all grants goes to the oldest message, at the highest
    /// priority.
    fn grant_to_oldest(&mut self, now: Time, window: u32, increment: u32) {
        let wanting =
            self.book.order.iter().flat_map(|&(_, peer)| self.peers[peer].state.wanting.all());
        let slots = &self.rpcs;
        let Some(index) =
            wanting.map(|(_, index)| index).min_by_key(|&index| slots[index].inc.birth)
        else {
            return;
        };
        // As the module: who has a window and two such grants unused gets no third.
        let expected = self.rpcs[index].inc.message.expected();
        let is_crowded = self.is_crowded_by(index, increment, Standing::BestOfClient);
        if expected >= window.saturating_add(2 * increment) || is_crowded {
            return;
        }
        self.metrics.fifo_grants += 1;
        self.grant(now, index, (increment, 7));
    }

    fn grant(&mut self, now: Time, index: SlotId, (more, priority): (u32, u8)) {
        work::step(GRANT_STEPS);
        let framing = self.config.framing;
        let slot = &mut self.rpcs[index];
        let was_idle = slot.inc.message.expected() == 0;
        slot.inc.probe = slot.inc.probe.or(Some((slot.inc.message.granted(), now)));
        let more = slot.inc.grant(more, &framing);
        slot.inc.priority = priority;
        slot.inc.levels |= 1 << priority;
        // Silence counts from here.
        slot.timing.asked_at = now;
        slot.timing.in_vain.0 = 0;
        let (peer, is_receiving) = (slot.peer, matches!(slot.phase, Phase::Receiving(_)));
        self.expect_more(peer, more);
        if is_receiving {
            self.hold(index, more as usize);
        }
        // Past the limit of `push_control`: there is one for each RPC at most, and without it its
        // sender would stop.
        let slot = &mut self.rpcs[index];
        if !slot.is_grant_queued {
            slot.is_grant_queued = true;
            self.egress.control.push_back(Control::Grant { rpc: self.rpcs.key(index) });
        }
        if was_idle {
            // Now there is something to be silent about, and the wait for it was not the sender's.
            self.rpcs[index].timing.progress_at = now;
            self.arm(now, index);
        }
        if self.rpcs[index].inc.message.ungranted() > 0 {
            self.want(index)
        } else {
            self.unwant(index)
        }
    }
}

/// The priority of the message numbered `rank` of `active`, from 0, on `levels` scheduled levels.
fn level(rank: usize, active: usize, levels: u8) -> u8 {
    let levels = usize::from(levels);
    active.min(levels).saturating_sub(rank + 1) as u8
}

const ABSENT: u64 = u64::MAX;

/// Steps that a grant counts for.
const GRANT_STEPS: usize = 8;

/// Most messages that may have grants at once: more than any network has levels.
pub(super) const OVERCOMMIT_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(active: usize, levels: u8, expected: &[u8]) {
        let found: Vec<u8> = (0..active).map(|rank| level(rank, active, levels)).collect();
        assert_eq!(found, expected, "{active} on {levels}");
    }

    #[test]
    fn few_messages_take_the_lowest_levels() {
        check(1, 4, &[0]);
        check(2, 4, &[1, 0]);
        check(4, 4, &[3, 2, 1, 0]);
    }

    #[test]
    fn who_has_no_level_of_his_own_shares_the_lowest() {
        check(6, 4, &[3, 2, 1, 0, 0, 0]);
        check(3, 1, &[0, 0, 0]);
    }

    #[test]
    fn peers_are_in_the_order_of_their_best_message() {
        let mut book = Book::default();
        for (peer, best) in [(0, 50), (1, 20), (2, 90), (1, 70)] {
            book.place(PeerId(peer), Some(best));
        }
        let found: Vec<u32> =
            (0..4).map_while(|rank| book.peer_at(rank)).map(|peer| peer.0).collect();
        assert_eq!(found, [0, 1, 2]);
        assert_eq!((book.rank_of(PeerId(2), 3), book.rank_of(PeerId(2), 2)), (Some(2), None));
        book.place(PeerId(0), None);
        assert_eq!(book.peer_at(0), Some(PeerId(1)));
    }

    #[test]
    fn the_first_is_the_best_of_all_and_others_are_the_best_of_their_clients() {
        let found = [0, 1, 2, 3].map(|rank| Standing::of(rank, 3));
        assert!(matches!(
            found,
            [Standing::BestOfAll, Standing::BestOfClient, Standing::BestOfClient, Standing::Behind]
        ));
    }
}
