//! A published or exact value beside what was obtained.

use serde_json::{Value, json};

use super::effort::Effort;

/// One comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The figure, such as `M/M/16 at 0.8: p99`.
    pub what: String,
    /// Source of the expected value.
    pub basis: Basis,
    /// The expected value.
    pub expected: f64,
    /// The obtained value.
    pub obtained: f64,
    /// Tolerance of the difference between expected and obtained value.
    pub tolerance: Tolerance,
}

/// Source of an expected value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Computed: a closed form, or a numeric solution.
    Exact,
    /// Simulated by others with a model of the same rules.
    Simulated,
    /// Published by the authors of a design.
    Published,
    /// Measured on real threads.
    Measured,
    /// A claim of this repository on a design of its own.
    Claimed,
}

/// Tolerance of an obtained value's difference from the expected one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// A share of the expected value.
    Relative(f64),
    /// In the unit of the value.
    Absolute(f64),
    /// So much below the expected value, and so much above it.
    Sides {
        /// Below.
        below: f64,
        /// Above.
        above: f64,
    },
    /// The expected value is a lower bound.
    AtLeast,
    /// The two are shown beside each other; no verdict.
    Shown,
}

impl Tolerance {
    /// The tolerance of figures from fewer requests: wider by the effort's factor, but not beyond
    /// half of the expected value, so that nothing passes that is hardly there.
    fn widened(self, effort: Effort, expected: f64) -> Self {
        let wider = |limit: f64, half: f64| (limit * effort.widening()).min(half.max(limit));
        let half = expected.abs() / 2.0;
        match self {
            Self::Relative(share) => Self::Relative(wider(share, 0.5)),
            Self::Absolute(limit) => Self::Absolute(wider(limit, half)),
            Self::Sides { below, above } => {
                Self::Sides { below: wider(below, half), above: wider(above, half) }
            }
            Self::AtLeast | Self::Shown => self,
        }
    }
}

impl Verdict {
    /// A comparison with the tolerance of a full reproduction, widened where the effort is less.
    pub fn new(
        effort: Effort,
        what: String,
        expected: (Basis, f64),
        obtained: f64,
        tolerance: Tolerance,
    ) -> Self {
        Self::fixed(what, expected, obtained, tolerance.widened(effort, expected.1))
    }

    /// A comparison whose tolerance is not of sampling, so that requests neither widen nor narrow
    /// it.
    pub fn fixed(
        what: String,
        (basis, expected): (Basis, f64),
        obtained: f64,
        tolerance: Tolerance,
    ) -> Self {
        Self { what, basis, expected, obtained, tolerance }
    }

    /// True where there is a tolerance at all.
    pub fn is_judged(&self) -> bool {
        self.tolerance != Tolerance::Shown
    }

    /// True if the obtained value is within the tolerance, if there is one. Nothing that is no
    /// number passes it.
    pub fn passes(&self) -> bool {
        let difference = (self.obtained - self.expected).abs();
        match self.tolerance {
            Tolerance::Relative(share) => difference <= share * self.expected.abs() + ROUNDING,
            Tolerance::Absolute(limit) => difference <= limit + ROUNDING,
            Tolerance::Sides { below, above } => {
                let limit = if self.obtained < self.expected { below } else { above };
                difference <= limit + ROUNDING
            }
            Tolerance::AtLeast => self.obtained >= self.expected,
            Tolerance::Shown => true,
        }
    }

    /// It for programs.
    pub fn json(&self) -> Value {
        let (kind, tolerance) = match self.tolerance {
            Tolerance::Relative(share) => ("relative", json!(share)),
            Tolerance::Absolute(limit) => ("absolute", json!(limit)),
            Tolerance::Sides { below, above } => ("sides", json!([-below, above])),
            Tolerance::AtLeast => ("at least", Value::Null),
            Tolerance::Shown => ("shown", Value::Null),
        };
        json!({
            "what": self.what,
            "basis": self.basis.name(),
            "expected": self.expected,
            "obtained": self.obtained,
            "tolerance": { "kind": kind, "value": tolerance },
            "pass": self.is_judged().then(|| self.passes()),
        })
    }

    /// The heads of [`Verdict::cells`].
    pub const HEAD: [&str; 7] =
        ["figure", "basis", "expected", "obtained", "deviation", "tolerance", "verdict"];

    /// It as a row of a table.
    pub fn cells(&self) -> Vec<String> {
        let tolerance = match self.tolerance {
            Tolerance::Relative(share) => format!("{:.3} %", 100.0 * share),
            Tolerance::Absolute(limit) => format!("{limit:.4}"),
            Tolerance::Sides { below, above } => format!("-{below:.4} +{above:.4}"),
            Tolerance::AtLeast => "at least".to_owned(),
            Tolerance::Shown => "-".to_owned(),
        };
        let deviation = match self.tolerance {
            Tolerance::Relative(_) | Tolerance::Shown => {
                format!("{:+.3} %", 100.0 * (self.obtained / self.expected - 1.0))
            }
            _ => format!("{:+.4}", self.obtained - self.expected),
        };
        let verdict = match (self.is_judged(), self.passes()) {
            (false, _) => "-",
            (true, true) => "pass",
            (true, false) => "FAIL",
        };
        let values = [self.expected, self.obtained].map(|value| format!("{value:.4}"));
        let [expected, obtained] = values;
        vec![
            self.what.clone(),
            self.basis.name().to_owned(),
            expected,
            obtained,
            deviation,
            tolerance,
            verdict.to_owned(),
        ]
    }
}

impl Basis {
    fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Simulated => "simulated",
            Self::Published => "published",
            Self::Measured => "measured",
            Self::Claimed => "claimed",
        }
    }
}

/// So that a difference of just the tolerance passes.
const ROUNDING: f64 = 1e-12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_passes_up_to_its_tolerance() {
        check(Tolerance::Relative(0.01), 4.04, true);
        check(Tolerance::Relative(0.01), 4.05, false);
        check(Tolerance::Absolute(0.02), 3.98, true);
        check(Tolerance::Absolute(0.02), 3.97, false);
        check(Tolerance::AtLeast, 4.0, true);
        check(Tolerance::AtLeast, 3.99, false);
    }

    #[test]
    fn what_is_no_number_fails() {
        for tolerance in [Tolerance::Relative(0.01), Tolerance::Absolute(0.02), Tolerance::AtLeast]
        {
            check(tolerance, f64::NAN, false);
        }
    }

    #[test]
    fn a_quick_verdict_is_wider_but_a_bound_stays() {
        let of = |tolerance| verdict(Effort::quick(1), tolerance, 4.15).tolerance;
        assert_eq!(of(Tolerance::Relative(0.01)), Tolerance::Relative(0.04));
        assert_eq!(of(Tolerance::AtLeast), Tolerance::AtLeast);
    }

    fn check(tolerance: Tolerance, obtained: f64, passes: bool) {
        assert_eq!(
            verdict(Effort::full(1), tolerance, obtained).passes(),
            passes,
            "{tolerance:?} {obtained}"
        );
    }

    fn verdict(effort: Effort, tolerance: Tolerance, obtained: f64) -> Verdict {
        Verdict::new(effort, "a figure".to_owned(), (Basis::Exact, 4.0), obtained, tolerance)
    }
}
