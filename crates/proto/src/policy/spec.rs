//! Policies as people write them.
//!
//! Invariant: the text of a [`PolicySpec`] reads back to the same one.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use super::{BoundEstimator, Jbsq, Jsq, Placement, Policy, Random, RoundRobin};

/// A policy as people write it: `random`, `rr`, `jsq:D`, `jbsq:N` or `jbsq:auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicySpec {
    /// [`Random`].
    Random,
    /// [`RoundRobin`].
    RoundRobin,
    /// [`Jsq`] of so many samples.
    Jsq(NonZeroU32),
    /// [`Jbsq`] with a fixed bound.
    Jbsq(NonZeroU32),
    /// [`Jbsq`] whose bound a [`BoundEstimator`] derives from measured delays.
    JbsqAuto,
}

impl PolicySpec {
    /// The policy in its initial state.
    pub fn build(self) -> AnyPolicy {
        match self {
            Self::Random => AnyPolicy::Random(Random),
            Self::RoundRobin => AnyPolicy::RoundRobin(RoundRobin::default()),
            Self::Jsq(d) => AnyPolicy::Jsq(Jsq::new(d)),
            Self::Jbsq(bound) => AnyPolicy::Jbsq(Jbsq::new(bound)),
            Self::JbsqAuto => AnyPolicy::Jbsq(Jbsq::new(BoundEstimator::INITIAL)),
        }
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random => f.write_str("random"),
            Self::RoundRobin => f.write_str("rr"),
            Self::Jsq(d) => write!(f, "jsq:{d}"),
            Self::Jbsq(bound) => write!(f, "jbsq:{bound}"),
            Self::JbsqAuto => f.write_str("jbsq:auto"),
        }
    }
}

impl FromStr for PolicySpec {
    type Err = PolicyParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, argument) =
            text.split_once(':').map_or((text, None), |(name, argument)| (name, Some(argument)));
        match (name, argument) {
            ("random", None) => Ok(Self::Random),
            ("rr", None) => Ok(Self::RoundRobin),
            ("jbsq", Some("auto")) => Ok(Self::JbsqAuto),
            ("jsq", Some(d)) => Ok(Self::Jsq(parse_count(text, d)?)),
            ("jbsq", Some(bound)) => Ok(Self::Jbsq(parse_count(text, bound)?)),
            ("random" | "rr", Some(_)) => Err(PolicyParseError::Argument { text: text.to_owned() }),
            ("jsq" | "jbsq", None) => Err(PolicyParseError::NoArgument { name: name.to_owned() }),
            _ => Err(PolicyParseError::Unknown { name: name.to_owned() }),
        }
    }
}

/// Why a text is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyParseError {
    /// The name is none that is known.
    #[error("no policy is called {name:?}; there are random, rr, jsq:D, jbsq:N and jbsq:auto")]
    Unknown {
        /// What stands before the colon.
        name: String,
    },
    /// The policy takes no argument.
    #[error("{text:?}: this policy takes no argument")]
    Argument {
        /// The whole text.
        text: String,
    },
    /// The policy needs an argument.
    #[error("{name:?} needs a number: {name}:2, for example")]
    NoArgument {
        /// The policy.
        name: String,
    },
    /// The argument is not a number from 1 to [`COUNT_MAX`].
    #[error("{text:?}: {argument:?} is not a whole number from 1 to {COUNT_MAX}")]
    Number {
        /// The whole text.
        text: String,
        /// What stands after the colon.
        argument: String,
    },
}

/// Any policy of the grammar, without a box.
#[derive(Clone, Copy, Debug)]
pub enum AnyPolicy {
    /// [`Random`].
    Random(Random),
    /// [`RoundRobin`].
    RoundRobin(RoundRobin),
    /// [`Jsq`].
    Jsq(Jsq),
    /// [`Jbsq`].
    Jbsq(Jbsq),
}

impl Policy for AnyPolicy {
    fn place(&mut self, loads: &[u32], random: u64) -> Placement {
        match self {
            Self::Random(policy) => policy.place(loads, random),
            Self::RoundRobin(policy) => policy.place(loads, random),
            Self::Jsq(policy) => policy.place(loads, random),
            Self::Jbsq(policy) => policy.place(loads, random),
        }
    }

    fn bound(&self) -> Option<u32> {
        match self {
            Self::Jbsq(policy) => policy.bound(),
            _ => None,
        }
    }

    fn set_bound(&mut self, bound: u32) {
        if let Self::Jbsq(policy) = self {
            policy.set_bound(bound);
        }
    }
}

fn parse_count(text: &str, argument: &str) -> Result<NonZeroU32, PolicyParseError> {
    let number = argument.parse::<NonZeroU32>().ok().filter(|number| number.get() <= COUNT_MAX);
    number.ok_or_else(|| PolicyParseError::Number {
        text: text.to_owned(),
        argument: argument.to_owned(),
    })
}

/// Largest D of `jsq:D` and N of `jbsq:N`: more outstanding at one worker than any queue here may
/// hold.
pub const COUNT_MAX: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_read_and_print_alike() {
        for text in ["random", "rr", "jsq:2", "jsq:16", "jbsq:1", "jbsq:3", "jbsq:auto"] {
            assert_eq!(text.parse::<PolicySpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn bad_specs_say_what_is_wrong() {
        check_refused(
            "",
            "no policy is called \"\"; there are random, rr, jsq:D, jbsq:N and jbsq:auto",
        );
        check_refused(
            "fifo:2",
            "no policy is called \"fifo\"; there are random, rr, jsq:D, jbsq:N and jbsq:auto",
        );
        check_refused("rr:2", "\"rr:2\": this policy takes no argument");
        check_refused("jbsq", "\"jbsq\" needs a number: jbsq:2, for example");
        check_refused("jsq:0", "\"jsq:0\": \"0\" is not a whole number from 1 to 1048576");
        check_refused("jsq:auto", "\"jsq:auto\": \"auto\" is not a whole number from 1 to 1048576");
        check_refused("jbsq:-1", "\"jbsq:-1\": \"-1\" is not a whole number from 1 to 1048576");
        check_refused(
            "jbsq:9999999999",
            "\"jbsq:9999999999\": \"9999999999\" is not a whole number from 1 to 1048576",
        );
    }

    fn check_refused(text: &str, message: &str) {
        assert_eq!(text.parse::<PolicySpec>().unwrap_err().to_string(), message);
    }
}
