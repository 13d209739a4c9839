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
