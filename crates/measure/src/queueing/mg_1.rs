//! M/G/1: random placement with any service time.
//!
//! Only the mean is given; its service time needs no more than two moments. Exponential and fixed
//! service have their whole distribution in [`MMk`](super::MMk) and [`MDk`](super::MDk).

use super::{QueueingError, check_load};
use crate::distribution::Distribution;

/// One server behind a Poisson stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MG1 {
    mean: f64,
}

impl MG1 {
    /// `service` at `load` of the server's capacity.
    ///
    /// # Errors
    ///
    /// A load outside of (0, 1), or a service whose mean is zero or whose variance is infinite:
    /// its mean wait is infinite too.
    pub fn new(service: &Distribution, load: f64) -> Result<Self, QueueingError> {
        check_load(load)?;
        let mean = service.mean().ok_or(QueueingError::Service)?;
        let variance = service.variance().ok_or(QueueingError::Service)?;
        if mean <= 0.0 {
            return Err(QueueingError::Service);
        }
        let squared_variation = variance / mean / mean;
        let mean_wait = load * (1.0 + squared_variation) / (2.0 * (1.0 - load));
        Ok(Self { mean: 1.0 + mean_wait })
    }

    /// The mean sojourn time in units of the mean service time (Pollaczek and Khinchine).
    pub fn mean(&self) -> f64 {
        self.mean
    }
}
