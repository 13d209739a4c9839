//! Counters of an R2P2 endpoint.

use tailcut_wire::r2p2::Malformed;

use crate::call::counters::{Counters, has_common_counters};
use crate::sealed::SealMetrics;

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
    /// Client: calls that went on to another target.
    pub moved: u64,
    /// Client: calls that waited for their turn, since the target refuses for overload.
    pub paced: u64,
    /// Client: calls refused here, since their turn would come too late. They count as refused.
    pub withheld: u64,
    /// Client: calls tried again after a refusal for overload.
    pub retried: u64,
    /// Client: calls of which a router says that it holds them.
    pub told_held: u64,
    /// Server: clients whose address had to be validated first.
    pub validations: u64,
    /// Server: reports sent to routers.
    pub feedback: u64,
    /// Client: calls of which it sent a copy.
    pub clones_sent: u64,
    /// Client: calls that the copy has answered, its own or a router's.
    pub clones_won: u64,
    /// Client: replies of the slower of two copies, dropped.
    pub clones_filtered: u64,
    /// Client: copies not sent since they would have been more than the budget's share.
    pub clones_over_budget: u64,
    /// Client: copies not sent since requests wait at the servers.
    pub clones_withheld: u64,
    /// Client: servers told that the other copy has answered.
    pub clones_cancelled: u64,
    /// Server: copies dropped since requests waited, or since they could not be taken.
    pub clones_discarded: u64,
    /// Those of the seal; zero where packets are open.
    pub seal: SealMetrics,
}

has_common_counters!(Metrics, Malformed);
