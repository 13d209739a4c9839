//! Which loads are measured, one after the other.

use tailcut_measure::search::{Range, Search, Sweep};

/// Several loads instead of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pattern {
    /// From one rate to another by a step.
    Steps {
        /// Requests a second.
        from_per_s: f64,
        /// Requests a second.
        to_per_s: f64,
        /// Requests a second.
        by_per_s: f64,
    },
    /// The highest rate that meets an objective.
    Find {
        /// Requests a second.
        from_per_s: f64,
        /// Requests a second.
        to_per_s: f64,
    },
    /// Rates that settle around the knee.
    Sweep {
        /// Requests a second.
        from_per_s: f64,
        /// Requests a second.
        to_per_s: f64,
        /// How many.
        points: u64,
    },
}

impl Pattern {
    /// The highest rate that it may ask for.
    pub(crate) fn highest_per_s(self) -> f64 {
        match self {
            Self::Steps { to_per_s, .. }
            | Self::Find { to_per_s, .. }
            | Self::Sweep { to_per_s, .. } => to_per_s,
        }
    }
}

/// Goes through the loads of a pattern.
#[derive(Clone, Debug)]
pub(crate) enum Course {
    /// The rates to come, the last first.
    List(Vec<f64>),
    Find(Search),
    Sweep(Sweep),
}

impl Course {
    pub(crate) fn new(pattern: Pattern) -> Self {
        match pattern {
            Pattern::Steps { from_per_s, to_per_s, by_per_s } => {
                // A millionth more, so that rounding does not lose the last step.
                let count = ((to_per_s - from_per_s) / by_per_s + 1e-6) as u32;
                Self::List(
                    (0..=count).rev().map(|step| from_per_s + f64::from(step) * by_per_s).collect(),
                )
            }
            Pattern::Find { from_per_s, to_per_s } => {
                Self::Find(Search::new(Range { from_per_s, to_per_s, resolution: RESOLUTION }))
            }
            Pattern::Sweep { from_per_s, to_per_s, points } => {
                Self::Sweep(Sweep::new(from_per_s, to_per_s, points as usize))
            }
        }
    }

    /// The next rate; `None` at the end.
    pub(crate) fn next_per_s(&mut self) -> Option<f64> {
        match self {
            Self::List(rates) => rates.pop(),
            Self::Find(search) => search.next_per_s(),
            Self::Sweep(sweep) => sweep.next_per_s(),
        }
    }
}

/// A search ends where what is met and what is not are as near as this.
const RESOLUTION: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_include_both_ends() {
        let mut course = Course::new("steps:100:400:100".parse().unwrap());
        let rates: Vec<f64> = std::iter::from_fn(|| course.next_per_s()).collect();
        assert_eq!(rates, [100.0, 200.0, 300.0, 400.0]);
    }
}
