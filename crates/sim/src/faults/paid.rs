//! Bytes that clients pay for each call, and those that they get for it of a router and the servers
//! behind it together while they are not validated.

use std::collections::{BTreeMap, BTreeSet};

/// The books of all calls.
#[derive(Debug, Default)]
pub(super) struct Paid {
    /// By client and id: bytes that it has sent, and bytes that it got.
    calls: BTreeMap<(usize, u64), (u64, u64)>,
    /// By router, server and placement: what has come.
    placements: BTreeSet<(bool, usize, u32)>,
}

impl Paid {
    /// A packet of a client has come, or a copy of one that the network has made behind a router.
    pub(super) fn note_in(&mut self, call: (usize, u64), len: u64) {
        self.calls.entry(call).or_default().0 += len;
    }

    /// A packet goes to a client that is not validated; the books of the call, if that is more than
    /// it has paid for.
    pub(super) fn note_out(&mut self, call: (usize, u64), len: u64) -> Option<(u64, u64)> {
        let paid = self.calls.entry(call).or_default();
        paid.1 += len;
        (paid.1 > AMPLIFICATION_MAX * paid.0).then_some(*paid)
    }

    /// True if what a router has placed has come before: the network has doubled it.
    pub(super) fn is_doubled(&mut self, placement: (bool, usize, u32)) -> bool {
        !self.placements.insert(placement)
    }
}

/// Bytes out for each byte in.
pub(super) const AMPLIFICATION_MAX: u64 = 3;
