//! Exact sojourn times of reference queues.
//!
//! An instrument or a scheduler is trusted when it reproduces queues whose answer is known. Each
//! model here is computed, not simulated. Arrivals are Poisson, queues are first come first
//! served, and the load is the share of the servers' capacity that the arrivals need.
//!
//! | model | what it is in the house | by |
//! |---|---|---|
//! | [`MMk`] | single queue, exponential service | Erlang C |
//! | [`MDk`] | single queue, or round robin, fixed service | embedded chain, Franx (2001) |
//! | [`MG1`] | random placement, any service | Pollaczek and Khinchine; geometric compound of residuals |
//! | [`EkM1`] | round robin, exponential service | the root of a G/M/1 queue |
//! | [`Jbsq`] | bounded shortest queue, exponential service | Markov chain of the bounds |
//!
//! [`MMk`] and [`MDk`] with one server are random placement with exponential and fixed service.
//! [`exact`] chooses the model of a layout of servers, a policy and a service.
//!
//! Invariant: every time is in units of the mean service time, and nothing is simulated: a model
//! asked twice answers the same.

mod ek_m1;
mod exact;
mod jbsq;
mod md_k;
mod mg_1;
mod mm_k;

use thiserror::Error;

pub use self::ek_m1::EkM1;
pub use self::exact::{Exact, System, exact};
pub use self::jbsq::Jbsq;
pub use self::md_k::MDk;
pub use self::mg_1::MG1;
pub use self::mm_k::MMk;

/// The stationary distribution of the sojourn time (waiting and service), in units of the mean
/// service time.
pub trait Sojourn {
    /// The mean.
    fn mean(&self) -> f64;

    /// The probability that a sojourn exceeds `time`.
    fn tail(&self, time: f64) -> f64;

    /// The smallest time that is exceeded with a probability of at most `1 - p`, found by
    /// bisection to 12 digits: `percentile(0.99)` is the p99. It is 0 for a `p` of 0 or less and
    /// infinite for 1 or more.
    fn percentile(&self, p: f64) -> f64 {
        if p.is_nan() || p >= 1.0 {
            return if p.is_nan() { p } else { f64::INFINITY };
        }
        if p <= 0.0 {
            return 0.0;
        }
        let beyond = 1.0 - p;
        let (mut low, mut high) = (0.0, 1.0);
        while self.tail(high) > beyond {
            low = high;
            high *= 2.0;
        }
        while high - low > PERCENTILE_ERROR * high {
            let middle = low + (high - low) / 2.0;
            if self.tail(middle) > beyond {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }
}

impl<S: Sojourn + ?Sized> Sojourn for Box<S> {
    fn mean(&self) -> f64 {
        (**self).mean()
    }

    fn tail(&self, time: f64) -> f64 {
        (**self).tail(time)
    }

    fn percentile(&self, p: f64) -> f64 {
        (**self).percentile(p)
    }
}

/// Reason why a model cannot be computed.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum QueueingError {
    /// A queue that is never used, or never empties.
    #[error("the load must be above 0 and below 1, but is {0}")]
    Load(f64),
    /// No server, or a bound of none.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// More work than a reference is worth.
    #[error("the model is too large: {0}")]
    TooLarge(&'static str),
    /// A service whose mean is infinite or zero.
    #[error("the service time needs a finite mean above zero")]
    Service,
}

fn check_load(load: f64) -> Result<(), QueueingError> {
    if load > 0.0 && load < 1.0 {
        return Ok(());
    }
    Err(QueueingError::Load(load))
}

fn check_count(what: &'static str, count: usize) -> Result<(), QueueingError> {
    if count == 0 {
        return Err(QueueingError::Zero(what));
    }
    Ok(())
}

const PERCENTILE_ERROR: f64 = 1e-12;

#[cfg(test)]
mod tests;
