//! Patterns of loads that are measured, one after the other.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tailcut_measure::quantity::{parse_count, parse_rate_per_s};
use tailcut_measure::search::{Range, Search, Sweep};

/// Several loads instead of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
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
        /// Number of rates.
        points: u64,
    },
}

impl Pattern {
    /// The highest rate that it may ask for.
    pub fn highest_per_s(self) -> f64 {
        match self {
            Self::Steps { to_per_s, .. }
            | Self::Find { to_per_s, .. }
            | Self::Sweep { to_per_s, .. } => to_per_s,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Steps { from_per_s, to_per_s, by_per_s } => {
                write!(f, "steps:{from_per_s}:{to_per_s}:{by_per_s}")
            }
            Self::Find { from_per_s, to_per_s } => write!(f, "find:{from_per_s}:{to_per_s}"),
            Self::Sweep { from_per_s, to_per_s, points } => {
                write!(f, "sweep:{from_per_s}:{to_per_s}:{points}")
            }
        }
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "{text:?} is no pattern; write steps:10k:100k:10k, find:1k:1M or sweep:10k:200k:12"
            )
        };
        let rate = |part: Option<&&str>| {
            part.ok_or_else(refused)
                .and_then(|part| parse_rate_per_s(part).map_err(|error| error.to_string()))
        };
        let parts: Vec<&str> = text.split(':').collect();
        let (from_per_s, to_per_s) = (rate(parts.get(1))?, rate(parts.get(2))?);
        if to_per_s < from_per_s {
            return Err(format!("{text:?} goes down; write the lower rate first"));
        }
        match (parts[0], parts.len()) {
            ("steps", 4) => {
                let by_per_s = rate(parts.get(3))?;
                if (to_per_s - from_per_s) / by_per_s > POINTS_MAX as f64 {
                    return Err(format!("{text:?} has more than {POINTS_MAX} steps"));
                }
                Ok(Self::Steps { from_per_s, to_per_s, by_per_s })
            }
            ("find", 3) => Ok(Self::Find { from_per_s, to_per_s }),
            ("sweep", 3) => Ok(Self::Sweep { from_per_s, to_per_s, points: SWEEP_POINTS }),
            ("sweep", 4) => match parse_count(parts[3]) {
                Ok(points) if (2..=POINTS_MAX).contains(&points) => {
                    Ok(Self::Sweep { from_per_s, to_per_s, points })
                }
                _ => Err(format!("{:?} is no number of points from 2 to {POINTS_MAX}", parts[3])),
            },
            _ => Err(refused()),
        }
    }
}

impl Serialize for Pattern {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Goes through the loads of a pattern.
#[derive(Clone, Debug)]
pub(crate) enum RateSchedule {
    /// The rates to come, the last first.
    List(Vec<f64>),
    Find(Search),
    Sweep(Sweep),
}

impl RateSchedule {
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

/// Points of a sweep without a number.
const SWEEP_POINTS: u64 = 12;

const POINTS_MAX: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_include_both_ends() {
        let mut schedule = RateSchedule::new("steps:100:400:100".parse().unwrap());
        let rates: Vec<f64> = std::iter::from_fn(|| schedule.next_per_s()).collect();
        assert_eq!(rates, [100.0, 200.0, 300.0, 400.0]);
    }

    #[test]
    fn patterns_are_written_so() {
        for text in ["steps:1000:5000:500", "find:1000:1000000", "sweep:10000:200000:12"] {
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
        }
        assert_eq!(
            "sweep:10k:200k".parse::<Pattern>().unwrap().to_string(),
            "sweep:10000:200000:12"
        );
        for (text, part) in [
            ("steps:1k", "no pattern"),
            ("find:2k:1k", "goes down"),
            ("sweep:1k:2k:1", "points"),
            ("x:1:2", "no pattern"),
        ] {
            let error = text.parse::<Pattern>().unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
