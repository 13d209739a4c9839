//! Counts of requests with two copies, by clients, in results and between agents.

use serde::{Deserialize, Serialize};
use tailcut_proto::r2p2::Metrics;

/// Counts of second copies by what became of them, as clients saw it. Copies that a router sends,
/// and nobody answers, they do not see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloneCounts {
    /// Copies that clients sent themselves.
    pub sent: u64,
    /// Requests that the copy has answered, a client's or a router's.
    pub won: u64,
    /// Replies of the slower of two copies, dropped.
    pub filtered: u64,
    /// Copies not sent because of the budget.
    pub over_budget: u64,
    /// Copies not sent because requests waited at the servers.
    pub withheld: u64,
    /// Slower copies that were cancelled.
    pub cancelled: u64,
}

impl CloneCounts {
    /// Adds what an endpoint counted.
    pub fn add_metrics(&mut self, metrics: &Metrics) {
        self.add(&Self {
            sent: metrics.clones_sent,
            won: metrics.clones_won,
            filtered: metrics.clones_filtered,
            over_budget: metrics.clones_over_budget,
            withheld: metrics.clones_withheld,
            cancelled: metrics.clones_cancelled,
        });
    }

    /// Adds what others counted.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.won += other.won;
        self.filtered += other.filtered;
        self.over_budget += other.over_budget;
        self.withheld += other.withheld;
        self.cancelled += other.cancelled;
    }

    /// Counts since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            sent: self.sent - earlier.sent,
            won: self.won - earlier.won,
            filtered: self.filtered - earlier.filtered,
            over_budget: self.over_budget - earlier.over_budget,
            withheld: self.withheld - earlier.withheld,
            cancelled: self.cancelled - earlier.cancelled,
        }
    }

    /// It, where anything was counted.
    pub fn any(self) -> Option<Self> {
        (self != Self::default()).then_some(self)
    }
}
