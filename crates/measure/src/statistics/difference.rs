//! Difference of two runs in a percentile.
//!
//! The interval of the difference is recovered from those of its terms (MOVER, Zou and Donner,
//! 2008), so that it is as skewed as they are and two results on paper suffice; no samples are
//! needed.
//!
//! Invariant: the difference lies in its interval.

use super::quantile::Estimate;

/// A difference of two percentiles, with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The second less the first, ns.
    pub value_ns: f64,
    /// The lower end of its interval, ns.
    pub low_ns: f64,
    /// The upper end of its interval, ns.
    pub high_ns: f64,
}

impl Difference {
    /// From `before` to `after`, two independent runs whose intervals have one confidence, which is
    /// that of the difference too.
    pub fn between(before: &Estimate, after: &Estimate) -> Self {
        let value_ns = after.value_ns - before.value_ns;
        let low = (after.value_ns - after.low_ns).hypot(before.high_ns - before.value_ns);
        let high = (after.high_ns - after.value_ns).hypot(before.value_ns - before.low_ns);
        Self { value_ns, low_ns: value_ns - low, high_ns: value_ns + high }
    }

    /// True if the interval leaves zero out: the runs differ.
    pub fn is_one(&self) -> bool {
        self.low_ns > 0.0 || self.high_ns < 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_takes_the_ends_that_face_each_other() {
        let before = estimate(100.0, 97.0, 104.0);
        let after = estimate(120.0, 117.0, 124.0);
        let difference = Difference::between(&before, &after);
        // 3 below one and 4 above the other: 5 on both sides.
        assert_eq!(difference, Difference { value_ns: 20.0, low_ns: 15.0, high_ns: 25.0 });
        assert!(difference.is_one());
    }

    #[test]
    fn intervals_that_meet_may_hide_a_difference_and_may_not() {
        assert!(
            !Difference::between(&estimate(100.0, 90.0, 110.0), &estimate(105.0, 95.0, 115.0))
                .is_one()
        );
        // They overlap, and yet the difference is one: 15 against 14.1.
        assert!(
            Difference::between(&estimate(100.0, 90.0, 110.0), &estimate(115.0, 105.0, 125.0))
                .is_one()
        );
    }

    fn estimate(value_ns: f64, low_ns: f64, high_ns: f64) -> Estimate {
        Estimate::with_ends(0.99, value_ns, (low_ns, high_ns))
    }
}
