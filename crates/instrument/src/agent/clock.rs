//! Offset of an agent's clock, estimated from round trips.
//!
//! An answer that came quickly was stamped close to the middle of its round trip; how far from it
//! nobody can know, but not by more than half of the round trip. So of the latest exchanges the one
//! with the smallest round trip counts. Clocks drift by some 50 us in a second at worst, which is
//! why old exchanges are dropped.

use std::collections::VecDeque;

/// The latest exchanges.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    exchanges: VecDeque<Offset>,
}

/// Offset of the agent's clock from the clock here, with the round trip that it is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offset {
    ns: i128,
    round_trip_ns: u64,
}

impl Offsets {
    /// An answer came at `now_ns` to what was sent at `sent_ns`, when the agent's clock showed
    /// `agent_ns`.
    pub(super) fn handle_exchange(&mut self, sent_ns: u64, agent_ns: u64, now_ns: u64) {
        let Some(round_trip_ns) = now_ns.checked_sub(sent_ns) else { return };
        if self.exchanges.len() == EXCHANGES_MAX {
            self.exchanges.pop_front();
        }
        let ns = i128::from(agent_ns) - i128::from(sent_ns + round_trip_ns / 2);
        self.exchanges.push_back(Offset { ns, round_trip_ns });
    }

    /// The best of them; `None` before the first.
    pub(super) fn best(&self) -> Option<Offset> {
        self.exchanges.iter().min_by_key(|offset| offset.round_trip_ns).copied()
    }
}

impl Offset {
    /// A time here as the agent's clock shows it.
    pub(super) fn at_agent_ns(self, here_ns: u64) -> u64 {
        (i128::from(here_ns) + self.ns).clamp(0, i128::from(u64::MAX)) as u64
    }

    /// By how much that may be wrong at most, ns, but for drift.
    pub(super) fn uncertainty_ns(self) -> u64 {
        self.round_trip_ns.div_ceil(2)
    }
}

/// Four seconds of signs of life.
pub(super) const EXCHANGES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_quickest_exchange_counts() {
        let mut offsets = Offsets::default();
        assert_eq!(offsets.best(), None);
        offsets.handle_exchange(1_000, 50_900, 2_000);
        offsets.handle_exchange(3_000, 52_050, 3_100);
        offsets.handle_exchange(5_000, 54_800, 6_000);
        let best = offsets.best().unwrap();
        assert_eq!((best.at_agent_ns(10_000), best.uncertainty_ns()), (59_000, 50));
    }

    #[test]
    fn an_answer_to_what_was_not_sent_yet_is_passed_over() {
        let mut offsets = Offsets::default();
        offsets.handle_exchange(u64::MAX, 0, 5);
        assert_eq!(offsets.best(), None);
    }

    #[test]
    fn old_exchanges_are_forgotten() {
        let mut offsets = Offsets::default();
        offsets.handle_exchange(0, 0, 1);
        for _ in 0..EXCHANGES_MAX {
            offsets.handle_exchange(1_000, 7_000, 1_100);
        }
        assert_eq!(offsets.best().unwrap().uncertainty_ns(), 50);
    }

    proptest! {
        /// The bound of Cristian's algorithm: half of the round trip, wherever in it the agent read
        /// its clock.
        #[test]
        fn the_error_is_within_the_uncertainty(
            trips in prop::collection::vec((0..1_000_000_u64, 0..1_000_000_u64), 1..20),
            agent_ahead_ns in 0..1_u64 << 50,
        ) {
            let mut offsets = Offsets::default();
            let mut now_ns = 1_000_000_000;
            for (there_ns, back_ns) in trips {
                offsets.handle_exchange(now_ns, now_ns + there_ns + agent_ahead_ns, now_ns + there_ns + back_ns);
                now_ns += 2_000_000;
            }
            let best = offsets.best().unwrap();
            prop_assert!(best.at_agent_ns(now_ns).abs_diff(now_ns + agent_ahead_ns) <= best.uncertainty_ns());
        }
    }
}
