//! Traces that every data plane replays: what happens to a router or a switch step by step, and
//! what the Rust policy decides at each step.
//!
//! | trace | decider | replayed by |
//! |---|---|---|
//! | [`PlacementTrace`] | a [`crate::policy::Policy`] over the counts of FEEDBACK | XDP; P4 for `jbsq:N` |
//! | [`CloningTrace`] | [`crate::netclone::Switch`] with its reply filter | XDP, P4 |
//!
//! A trace is made from a fixed seed, so it is the same everywhere for all time, and its text form
//! is what other languages read: one line a step, `->` before the decision. `conformance/traces`
//! has the beginning and the hash of each text, and `cargo run -p tailcut-proto --example
//! conformance NAME` prints all of it.
//!
//! Invariant: a step depends on those before it and on the seed alone.

mod cloning;
mod placement;

use std::fmt;

pub use self::cloning::{CloningPart, CloningStep, CloningTrace, Copies};
pub use self::placement::{PlacementPart, PlacementStep, PlacementTrace};
use crate::netclone::Fallback;

/// Steps of each trace, its parts together.
pub const STEPS: usize = 20_000;

/// The names of all traces.
pub const NAMES: [&str; 7] =
    ["random", "rr", "jsq:2", "jbsq:1", "jbsq:3", "netclone", "netclone+racksched"];

/// A trace of either kind.
#[derive(Clone, Debug)]
pub enum Trace {
    /// Trace of a policy.
    Placement(PlacementTrace),
    /// Trace of a switch that clones.
    Cloning(CloningTrace),
}

impl Trace {
    /// The trace of a name in [`NAMES`]; `None` for another.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "netclone" => Some(Self::Cloning(CloningTrace::new(Fallback::First))),
            "netclone+racksched" => Some(Self::Cloning(CloningTrace::new(Fallback::Shorter))),
            name if NAMES.contains(&name) => {
                let policy = name.parse().ok()?;
                Some(Self::Placement(PlacementTrace::new(policy)))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Placement(trace) => trace.fmt(f),
            Self::Cloning(trace) => trace.fmt(f),
        }
    }
}
