//! E_k/M/1: what each of k servers sees behind a round robin, exponential service.
//!
//! Every k-th arrival of a Poisson stream makes Erlang gaps, and the sojourn time of a G/M/1 queue
//! is exponential. Invariant: the root lies in (0, 1).

use super::{QueueingError, Sojourn, check_count, check_load};

/// Round robin over k servers with exponential service times of mean 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EkM1 {
    /// 1 - sigma, where sigma is the probability that a request waits; the sojourn's rate.
    rate: f64,
}

impl EkM1 {
    /// Round robin over `servers` servers at `load` of their capacity.
    ///
    /// # Errors
    ///
    /// No server, or a load outside of (0, 1).
    pub fn new(servers: usize, load: f64) -> Result<Self, QueueingError> {
        check_count("the number of servers", servers)?;
        check_load(load)?;
        let stages = servers as f64;
        let arrival_rate = stages * load;
        // sigma = (lambda / (lambda + 1 - sigma))^k, written for 1 - sigma so that nothing cancels
        // near saturation. The excess is positive below the root and negative above it.
        let excess = |rate: f64| -(-stages * (rate / arrival_rate).ln_1p()).exp_m1() - rate;
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..BISECTIONS {
            let middle = low + (high - low) / 2.0;
            if excess(middle) > 0.0 {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(Self { rate: high })
    }

    /// The probability that a request waits (sigma).
    pub fn wait_probability(&self) -> f64 {
        1.0 - self.rate
    }
}

impl Sojourn for EkM1 {
    fn mean(&self) -> f64 {
        1.0 / self.rate
    }

    fn tail(&self, time: f64) -> f64 {
        (-self.rate * time.max(0.0)).exp()
    }
}

/// Halves (0, 1) below the spacing of an `f64` near any root worth asking for.
const BISECTIONS: usize = 80;
