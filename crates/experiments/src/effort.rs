//! Effort of a reproduction: how much is simulated, and how far a figure may be off because of it.

/// The share of a full reproduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// One request in so many.
    divisor: u32,
    /// Seed of the first run of each point.
    pub seed: u64,
}

impl Effort {
    /// As many requests as the published figures have.
    pub fn full(seed: u64) -> Self {
        Self { divisor: 1, seed }
    }

    /// A sixteenth of the requests.
    pub fn quick(seed: u64) -> Self {
        Self { divisor: 16, seed }
    }

    /// A thousandth of the requests: enough to see what is compared, and not whether it agrees.
    #[cfg(test)]
    pub(crate) fn least(seed: u64) -> Self {
        Self { divisor: 1_000, seed }
    }

    /// This share of a run with another seed.
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Requests where a full reproduction takes `full`.
    pub fn requests(self, full: u64) -> u64 {
        (full / u64::from(self.divisor)).max(1)
    }

    /// By what a tolerance is wider than that of a full reproduction: the error of sampling grows
    /// with the root of the requests that are left out.
    pub fn widening(self) -> f64 {
        f64::from(self.divisor).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_reproduction_has_four_times_the_error() {
        let (full, quick) = (Effort::full(1), Effort::quick(1));
        assert_eq!((full.requests(2_000_000), full.widening()), (2_000_000, 1.0));
        assert_eq!((quick.requests(2_000_000), quick.widening()), (125_000, 4.0));
    }
}
