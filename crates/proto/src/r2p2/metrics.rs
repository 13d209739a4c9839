//! Counters of an R2P2 endpoint.

use tailcut_wire::r2p2::Malformed;

use crate::call::counters::{Counters, has_common_counters};

/// Counters of both halves of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Those that every protocol has.
    pub common: Counters,
    /// Datagrams that were no packets, by [`Malformed`].
    pub malformed: [u64; 9],
    /// Packets sent again, by either half.
    pub resent: u64,
    /// Client: timeouts that made it speak again.
    pub timeouts: u64,
    /// Server: clients whose address had to be validated first.
    pub validations: u64,
    /// Server: reports sent to routers.
    pub feedback: u64,
}

impl Metrics {
    pub(super) fn malformed(&mut self, reason: Malformed) {
        self.malformed[reason as usize] += 1;
    }
}

has_common_counters!(Metrics);
