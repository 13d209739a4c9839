//! Objective that a tail is held to, in text form: `p99<200us`.
//!
//! Invariant: an objective is met or missed only where the whole interval of its percentile says
//! so.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::quantity::{QuantityError, Unit, parse_duration_ns};
use crate::statistics::quantile::Estimate;

/// A percentile that is to stay below a limit: `p99<200us`, `p99.9<=1ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// The percentile, as a share in (0, 1): 0.99 for p99.
    pub p: f64,
    /// Limit that the percentile is to stay below, or at where [`Bound::AtMost`] holds; ns.
    pub limit_ns: u64,
    /// Kind of the bound: whether the limit itself will do.
    pub bound: Bound,
}

/// Kind of a bound: whether the limit itself will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// It will not: `<`.
    Below,
    /// It will: `<=`.
    AtMost,
}

/// Answer of an estimate to an objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The whole interval is within the limit.
    Met,
    /// The whole interval is beyond the limit.
    Missed,
    /// The limit lies in the interval.
    Undecided,
}

impl Objective {
    /// Answer of `estimate`, which must be of the objective's percentile.
    pub fn judge(&self, estimate: &Estimate) -> Answer {
        if self.allows(estimate.high_ns) {
            Answer::Met
        } else if !self.allows(estimate.low_ns) {
            Answer::Missed
        } else {
            Answer::Undecided
        }
    }

    /// True if a value of the percentile, ns, is within the limit.
    pub fn allows(&self, value_ns: f64) -> bool {
        let limit_ns = self.limit_ns as f64;
        match self.bound {
            Bound::Below => value_ns < limit_ns,
            Bound::AtMost => value_ns <= limit_ns,
        }
    }
}

impl FromStr for Objective {
    type Err = ObjectiveError;

    fn from_str(text: &str) -> Result<Self, ObjectiveError> {
        let form = || ObjectiveError::Form(text.to_owned());
        let (percentile, rest) = text.split_once('<').ok_or_else(form)?;
        let (bound, limit) =
            rest.strip_prefix('=').map_or((Bound::Below, rest), |limit| (Bound::AtMost, limit));
        let p = parse_percentile(percentile.trim())?;
        let limit_ns = parse_duration_ns(limit.trim())?;
        if limit_ns == 0 {
            return Err(QuantityError::Zero { text: limit.trim().to_owned() }.into());
        }
        Ok(Self { p, limit_ns, bound })
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.bound {
            Bound::Below => "<",
            Bound::AtMost => "<=",
        };
        write!(f, "{}{sign}{}", percentile_name(self.p), Unit::Time.format(self.limit_ns as f64))
    }
}

/// Reason why a text is no objective.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ObjectiveError {
    /// Not a percentile, a sign and a limit.
    #[error("{0:?} is no objective; write one as p99<200us or p99.9<=1ms")]
    Form(String),
    /// No percentile.
    #[error(
        "{0:?} is no percentile; they are written p50, p99, p99.9 and so on, above p0 and below p100"
    )]
    Percentile(String),
    /// No limit.
    #[error(transparent)]
    Limit(#[from] QuantityError),
}

/// Reads a percentile such as `p99` or `p99.9`, as a share in (0, 1).
///
/// # Errors
///
/// That it is none.
pub fn parse_percentile(text: &str) -> Result<f64, ObjectiveError> {
    let refused = || ObjectiveError::Percentile(text.to_owned());
    let digits = text
        .strip_prefix('p')
        .filter(|digits| digits.starts_with(|first: char| first.is_ascii_digit()));
    // Two more decimals, so that 99.9 is rounded once.
    let share: f64 =
        digits.and_then(|digits| format!("{digits}e-2").parse().ok()).ok_or_else(refused)?;
    if share > 0.0 && share < 1.0 { Ok(share) } else { Err(refused()) }
}

/// True if two shares name the same percentile, however they were rounded.
pub fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-12
}

/// Writes a share such as 0.999 as people name the percentile: `p99.9`.
pub fn percentile_name(p: f64) -> String {
    let digits = format!("{:.6}", p * 100.0);
    format!("p{}", digits.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_read_and_written_alike() {
        for (text, p, limit_ns, bound) in [
            ("p99<200us", 0.99, 200_000, Bound::Below),
            ("p99.9<=1ms", 0.999, 1_000_000, Bound::AtMost),
            ("p50<1500ns", 0.5, 1_500, Bound::Below),
            ("p99.99<2s", 0.9999, 2_000_000_000, Bound::Below),
        ] {
            let objective: Objective = text.parse().unwrap();
            assert_eq!(objective, Objective { p, limit_ns, bound }, "{text}");
            assert_eq!(objective.to_string().parse(), Ok(objective));
        }
        assert_eq!("p99.9<1ms".parse::<Objective>().unwrap().to_string(), "p99.9<1ms");
        assert_eq!("p99 < 200us".parse(), "p99<200us".parse::<Objective>());
    }

    #[test]
    fn what_is_no_objective_is_refused_with_its_reason() {
        for (text, reason) in [
            ("p99", "no objective"),
            ("p99>200us", "no objective"),
            ("99<200us", "no percentile"),
            ("p<200us", "no percentile"),
            ("p-1<200us", "no percentile"),
            ("p0<200us", "no percentile"),
            ("p100<200us", "no percentile"),
            ("pNaN<200us", "no percentile"),
            ("p9e1<200us", "no percentile"),
            ("p99<200", "has no unit"),
            ("p99<0us", "must be above zero"),
            ("p99<", "not a number"),
        ] {
            let message = text.parse::<Objective>().unwrap_err().to_string();
            assert!(message.contains(reason), "{text}: {message}");
        }
    }

    #[test]
    fn only_a_whole_interval_decides() {
        let objective: Objective = "p99<200us".parse().unwrap();
        let answer = |low_ns, high_ns| {
            let value_ns = f64::midpoint(low_ns, high_ns);
            objective.judge(&Estimate::with_ends(0.99, value_ns, (low_ns, high_ns)))
        };
        assert_eq!(answer(150e3, 199e3), Answer::Met);
        assert_eq!(answer(150e3, 200e3), Answer::Undecided);
        assert_eq!(answer(199e3, 300e3), Answer::Undecided);
        assert_eq!(answer(200e3, 300e3), Answer::Missed);
    }
}
