//! Requests that a server has renounced for a router's claim.

use std::collections::{HashSet, VecDeque};

use foldhash::fast::FixedState;
use tailcut_wire::r2p2::RpcId;

/// Requests that were renounced of late, so that a claim whose answer was lost is answered alike.
#[derive(Debug)]
pub(super) struct Renounced {
    /// Their ids.
    ids: HashSet<u64, FixedState>,
    /// In the order in which they were renounced, at most [`RENOUNCED_MAX`].
    order: VecDeque<u64>,
}

impl Renounced {
    pub(super) fn new(seed: u64) -> Self {
        Self { ids: HashSet::with_hasher(FixedState::with_seed(seed)), order: VecDeque::new() }
    }

    pub(super) fn contains(&self, id: RpcId) -> bool {
        self.ids.contains(&id.0)
    }

    pub(super) fn add(&mut self, id: RpcId) {
        // A claim of one that was evicted is answered Seen; its request is refused then: Uncertain.
        if self.order.len() >= RENOUNCED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        self.order.push_back(id.0);
        self.ids.insert(id.0);
    }
}

/// Most requests remembered as renounced: those of a router's failure at 100,000 requests a second,
/// for 160 ms.
const RENOUNCED_MAX: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_for_the_newest() {
        let mut renounced = Renounced::new(7);
        assert!(!renounced.contains(RpcId(0)));
        let count = RENOUNCED_MAX as u64;
        (0..count).for_each(|id| renounced.add(RpcId(id)));
        assert!((0..count).all(|id| renounced.contains(RpcId(id))));
        renounced.add(RpcId(count));
        assert!(!renounced.contains(RpcId(0)) && renounced.contains(RpcId(1)));
        assert!(renounced.contains(RpcId(count)));
    }
}
