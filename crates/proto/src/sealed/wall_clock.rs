//! The time of day as a node has it: its own time, and what its driver reads now and then.

use crate::node::Time;

/// The wall clock of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct WallClock {
    /// Unix time at the node's time 0, ns.
    pub(super) zero_ns: u64,
}

impl WallClock {
    /// A clock that shows this Unix time, ns, at this time of the node's.
    pub(super) fn showing(now: Time, unix_ns: u64) -> Self {
        Self { zero_ns: unix_ns.saturating_sub(now) }
    }

    /// True if it goes after another one by more than that, ms.
    pub(super) fn is_behind(self, other: Self, ms: u64) -> bool {
        self.zero_ns.saturating_add(ms * 1_000_000) < other.zero_ns
    }

    pub(super) fn ms(&self, now: Time) -> u64 {
        self.zero_ns.saturating_add(now) / 1_000_000
    }

    pub(super) fn us(&self, now: Time) -> u64 {
        self.zero_ns.saturating_add(now) / 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_behind_by_more_than_so_many_milliseconds() {
        let clock = |zero_ns| WallClock { zero_ns };
        for (behind_ns, ms, expected) in [
            (0, 0, false),
            (1, 0, true),
            (100_000_000, 100, false),
            (100_000_001, 100, true),
            (2_000_000, 1, true),
        ] {
            let (late, early) = (clock(5_000_000_000), clock(5_000_000_000 + behind_ns));
            assert_eq!(late.is_behind(early, ms), expected, "{behind_ns} ns");
            assert!(!early.is_behind(late, ms));
        }
    }
}
