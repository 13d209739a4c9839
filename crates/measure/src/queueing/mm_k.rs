//! M/M/k: one queue before k servers, exponential service.
//!
//! With k = 1 it is random placement. Invariant: the probability of waiting is Erlang's C.

use super::{QueueingError, Sojourn, check_count, check_load};

/// One queue before k servers with exponential service times of mean 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MMk {
    /// Erlang's C: the probability that a request waits.
    wait_probability: f64,
    /// The rate at which a full system drains: k (1 - load).
    drain_rate: f64,
}

impl MMk {
    /// `servers` servers at `load` of their capacity.
    ///
    /// # Errors
    ///
    /// No server, or a load outside of (0, 1).
    pub fn new(servers: usize, load: f64) -> Result<Self, QueueingError> {
        check_count("the number of servers", servers)?;
        check_load(load)?;
        let offered = servers as f64 * load;
        // Erlang's B by its recursion, which is stable; then C from B.
        let blocked = (1..=servers)
            .fold(1.0, |blocked, count| offered * blocked / (count as f64 + offered * blocked));
        Ok(Self {
            wait_probability: blocked / (1.0 - load * (1.0 - blocked)),
            drain_rate: servers as f64 * (1.0 - load),
        })
    }

    /// The probability that a request waits at all (Erlang's C).
    pub fn wait_probability(&self) -> f64 {
        self.wait_probability
    }

    /// The smallest wait that is exceeded with a probability of at most `1 - p`.
    pub fn wait_percentile(&self, p: f64) -> f64 {
        ((self.wait_probability / (1.0 - p)).ln() / self.drain_rate).max(0.0)
    }
}

impl Sojourn for MMk {
    fn mean(&self) -> f64 {
        1.0 + self.wait_probability / self.drain_rate
    }

    fn tail(&self, time: f64) -> f64 {
        if time <= 0.0 {
            return 1.0;
        }
        if time == f64::INFINITY {
            return 0.0;
        }
        let excess_rate = self.drain_rate - 1.0;
        // The probability that a wait carries the sojourn beyond `time` over what service alone
        // does: (e^(-t) - e^(-drain t)) / (drain - 1), whose pole at a drain rate of 1 is taken
        // out where its terms are near.
        let waited = if excess_rate == 0.0 {
            (-time).exp() * time
        } else if (excess_rate * time).abs() < 1.0 {
            (-time).exp() * -(-excess_rate * time).exp_m1() / excess_rate
        } else {
            ((-time).exp() - (-self.drain_rate * time).exp()) / excess_rate
        };
        (-time).exp() + self.wait_probability * waited
    }
}
