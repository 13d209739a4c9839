//! Outcomes of requests, and the times that their latencies count from.
//!
//! Every reply is recorded twice: from the intended send time and from the actual one. A client
//! that falls behind its schedule hides its delay from the second (coordinated omission), so the
//! first is the one to report, and a gap between the two says that the client was the bottleneck.
//!
//! Invariant: a request is counted once, under its outcome.

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// The two times that a request's latency counts from. It goes with the request and comes back
/// with its outcome, once, which is why it cannot be copied.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "give it back to the run with the request's outcome"]
pub struct Sample {
    /// Time at which the request should have left; ns.
    pub intended_ns: u64,
    /// Time at which the request left; ns.
    pub sent_ns: u64,
}

/// Counts of requests by outcome. Each is counted once, under its outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests that left.
    pub sent: u64,
    /// Requests with a reply; each is one latency sample.
    pub replied: u64,
    /// Requests of which nothing came back, known without a timeout of their own.
    pub lost: u64,
    /// Requests that the server or the router refused.
    pub refused: u64,
    /// Requests that were given up after their timeout.
    pub timeout: u64,
}

impl Counts {
    /// Adds another part's counts.
    pub fn merge(&mut self, other: &Counts) {
        self.sent += other.sent;
        self.replied += other.replied;
        self.lost += other.lost;
        self.refused += other.refused;
        self.timeout += other.timeout;
    }
}

/// Failure of a request: how it ended without a reply. As text it is its stable name in results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Failure {
    /// Nothing came back.
    Lost,
    /// The server or the router refused it.
    Refused,
    /// It was given up after its timeout.
    Timeout,
}

/// The largest latency told apart, 100 s. A larger one counts as this in percentiles, and as
/// itself in the mean and the maximum.
pub const LATENCY_MAX_NS: u64 = 100_000_000_000;
