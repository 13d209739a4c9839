//! Queue of lanes for the next request: of those that have room, the one that has waited longest is
//! next.
//!
//! Invariant: a lane waits at most once.

use std::collections::VecDeque;

/// Lanes with room, as far as is known.
#[derive(Debug, Default)]
pub(super) struct ReadyQueue {
    waiting: VecDeque<usize>,
    /// By lane: whether it is among them.
    waits: Vec<bool>,
}

impl ReadyQueue {
    /// A lane has room, and waits behind the others; without effect where it waits already.
    pub(super) fn add(&mut self, lane: usize) {
        if self.waits.len() <= lane {
            self.waits.resize(lane + 1, false);
        }
        if !std::mem::replace(&mut self.waits[lane], true) {
            self.waiting.push_back(lane);
        }
    }

    /// True if a lane waits that has room indeed; those before it that have none any more wait no
    /// longer.
    pub(super) fn has_any(&mut self, has_room: impl Fn(usize) -> bool) -> bool {
        while let Some(&lane) = self.waiting.front() {
            if has_room(lane) {
                return true;
            }
            self.next();
        }
        false
    }

    /// The lane whose turn it is; it waits no longer.
    pub(super) fn next(&mut self) -> Option<usize> {
        let lane = self.waiting.pop_front()?;
        self.waits[lane] = false;
        Some(lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_take_ready_in_the_order_in_which_they_had_room() {
        let mut ready = ReadyQueue::default();
        [2, 0, 2, 1].into_iter().for_each(|lane| ready.add(lane));
        assert_eq!(std::iter::from_fn(|| ready.next()).collect::<Vec<_>>(), [2, 0, 1]);
        ready.add(2);
        assert_eq!((ready.next(), ready.next()), (Some(2), None));
    }

    #[test]
    fn a_lane_that_has_no_room_any_more_is_passed_over_until_it_is_added_again() {
        let mut ready = ReadyQueue::default();
        [0, 1].into_iter().for_each(|lane| ready.add(lane));
        assert!(ready.has_any(|lane| lane == 1));
        assert_eq!(ready.next(), Some(1));
        assert!(!ready.has_any(|_| true));
        ready.add(0);
        assert_eq!(ready.next(), Some(0));
    }
}
