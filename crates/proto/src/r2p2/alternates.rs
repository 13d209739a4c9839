//! Targets that stand for each other, routers before one set of servers as a rule, and which of
//! them calls go to.
//!
//! | a target is | event | then |
//! |---|---|---|
//! | used | its copies of requests stay unanswered, three of them and [`PATIENCE_NS`] | the next one stands in for it |
//! | used | nothing listens there, or it refuses because it is to end | the next one stands in for it |
//! | stood in for | the one that stands in fails too | the one after that |
//!
//! Only copies count, since a request itself is answered when it has run, but a copy at once: by
//! the server that has the request, or by the router that holds it. An answer counts for the target
//! if it echoes the clock of a packet that was sent after the first unanswered copy: what comes
//! from a server only shows that its router was there when it placed the request.
//!
//! Nothing goes back by itself: a target that has failed is used again when the others have failed.

use std::net::SocketAddr;

use crate::node::Time;

/// The targets of a client that stand for each other; none where calls go where they are told.
#[derive(Debug, Default)]
pub(super) struct Alternates {
    /// In the order in which they follow each other, the first behind the last.
    targets: Vec<Alternate>,
}

#[derive(Debug)]
struct Alternate {
    /// Its address.
    address: SocketAddr,
    /// The place of the target that calls to it go to; its own as it begins.
    stand_in: usize,
    /// Time at which the first unanswered copy was sent.
    asked_at: Option<Time>,
    /// Number of unanswered copies.
    asked: u32,
    /// Time at which it was last found to have failed.
    failed_at: Option<Time>,
}

impl Alternates {
    /// Targets in the order of `addresses`, of which there may be none.
    pub(super) fn new(addresses: &[SocketAddr]) -> Self {
        let mut targets: Vec<Alternate> = Vec::new();
        for &address in addresses {
            if targets.iter().all(|target| target.address != address) {
                let stand_in = targets.len();
                let (asked_at, asked, failed_at) = (None, 0, None);
                targets.push(Alternate { address, stand_in, asked_at, asked, failed_at });
            }
        }
        // One alone has nobody to stand in for it.
        targets.truncate(if targets.len() == 1 { 0 } else { targets.len() });
        Self { targets }
    }

    /// True if `address` has others that may stand in for it.
    #[inline]
    pub(super) fn has(&self, address: SocketAddr) -> bool {
        self.place(address).is_some()
    }

    /// Destination of a call to `address` at present, which may be that address.
    #[inline]
    pub(super) fn choose(&self, address: SocketAddr) -> SocketAddr {
        self.stand_in(&address).unwrap_or(address)
    }

    /// Whoever stands in for `address` at present, be it that address; `None` where it has no
    /// others.
    #[inline]
    pub(super) fn stand_in(&self, address: &SocketAddr) -> Option<SocketAddr> {
        if self.targets.is_empty() {
            return None;
        }
        let place = self.place(*address)?;
        Some(self.targets[self.targets[place].stand_in].address)
    }

    /// A copy of a request goes to `address`, where nobody has answered for it; whether that has
    /// failed by now.
    pub(super) fn ask(&mut self, now: Time, address: SocketAddr) -> bool {
        let Some(place) = self.place(address) else {
            return false;
        };
        let target = &mut self.targets[place];
        target.asked = target.asked.saturating_add(1);
        let asked_at = *target.asked_at.get_or_insert(now);
        let is_silent = target.asked >= ASKED_MIN && now >= asked_at.saturating_add(PATIENCE_NS);
        if is_silent {
            self.fail(now, address);
        }
        is_silent
    }

    /// Something was answered that was sent to `address` at `sent_at`.
    pub(super) fn note_answer(&mut self, sent_at: Time, address: SocketAddr) {
        if let Some(place) = self.place(address) {
            let target = &mut self.targets[place];
            if target.asked_at.is_some_and(|asked_at| sent_at >= asked_at) {
                (target.asked_at, target.asked) = (None, 0);
            }
        }
    }

    /// The target has failed: the next one stands in for it. False where there is none that has not
    /// just failed too, so that a call is not sent round and round.
    pub(super) fn fail(&mut self, now: Time, address: SocketAddr) -> bool {
        let Some(place) = self.place(address) else {
            return false;
        };
        let next = (place + 1) % self.targets.len();
        let target = &mut self.targets[place];
        (target.asked_at, target.asked, target.failed_at) = (None, 0, Some(now));
        // All calls that came here go on, those of targets that it stood in for too.
        for other in self.targets.iter_mut().filter(|other| other.stand_in == place) {
            other.stand_in = next;
        }
        let has_failed = |at: Time| now.saturating_sub(at) < PATIENCE_NS;
        // Another than the next one, where the target had been stood in for already.
        let stand_in = self.targets[place].stand_in;
        !self.targets[stand_in].failed_at.is_some_and(has_failed)
    }

    fn place(&self, address: SocketAddr) -> Option<usize> {
        self.targets.iter().position(|target| target.address == address)
    }
}

/// Longest time between two copies of a request that nobody has answered for, where it may go to
/// another target: a server that takes long says that it has it.
pub(super) const ASK_NS: u64 = 20_000_000;

/// Time without an answer to copies after which the target has failed: longer than a busy machine
/// pauses a router, and with two [`ASK_NS`] less than 100 ms.
const PATIENCE_NS: u64 = 30_000_000;

/// Copies that must have stayed unanswered besides: each of them may have been lost.
const ASKED_MIN: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Time = 1_000_000;

    fn address(host: u8) -> SocketAddr {
        ([10, 0, 0, host], 9000).into()
    }

    fn alternates(count: u8) -> Alternates {
        Alternates::new(&(0..count).map(address).collect::<Vec<_>>())
    }

    #[test]
    fn one_target_alone_is_what_it_is() {
        let mut alone = alternates(1);
        assert!(!alone.has(address(0)) && !alone.fail(0, address(0)));
        assert_eq!(alone.choose(address(0)), address(0));
    }

    #[test]
    fn a_target_that_answers_no_copy_is_stood_in_for() {
        let mut two = alternates(2);
        let failed: Vec<bool> = (0..10).map(|at| two.ask(at * 10 * MS, address(0))).collect();
        assert_eq!(failed.iter().position(|failed| *failed), Some(3), "after 30 ms");
        assert_eq!(two.choose(address(0)), address(1));
        assert_eq!(two.choose(address(1)), address(1));
    }

    #[test]
    fn an_answer_to_what_was_sent_before_says_nothing() {
        let mut two = alternates(2);
        for at in 0..6 {
            let _ = two.ask(100 * MS + at * MS, address(0));
            two.note_answer(99 * MS, address(0));
        }
        assert!(two.ask(131 * MS, address(0)));
        let mut two = alternates(2);
        for at in 0..100 {
            assert!(!two.ask(at * 10 * MS, address(0)), "{at}");
            two.note_answer(at * 10 * MS, address(0));
        }
    }

    #[test]
    fn they_follow_each_other_round_and_not_at_once() {
        let mut three = alternates(3);
        assert!(three.fail(100 * MS, address(0)));
        assert!(three.fail(101 * MS, address(1)));
        assert_eq!([0, 1, 2].map(|host| three.choose(address(host))), [address(2); 3]);
        assert!(!three.fail(102 * MS, address(2)), "the first has just failed");
        assert!(three.fail(200 * MS, address(0)));
        assert_eq!(three.choose(address(2)), address(1));
    }

    #[test]
    fn a_target_is_tried_again_as_soon_as_its_patience_is_over() {
        let mut two = alternates(2);
        assert!(two.has(address(0)) && !two.has(address(2)));
        assert!(two.fail(0, address(0)));
        assert!(!two.fail(PATIENCE_NS - 1, address(1)));
        assert!(!two.fail(PATIENCE_NS, address(0)), "the other has failed just before");
        let mut two = alternates(2);
        assert!(two.fail(0, address(0)) && two.fail(PATIENCE_NS, address(1)));
    }
}
