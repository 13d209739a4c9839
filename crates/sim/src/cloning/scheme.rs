//! The schemes: who decides where a request goes, and where a copy of it.

use std::fmt;
use std::str::FromStr;

use tailcut_proto::policy::{
    self, Argument, Loads, Placement, Policy, PolicyParseError, PolicySpec, Random,
};
use thiserror::Error;

/// The scheme: where a request goes, and where it is cloned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// A random server, no clone: the baseline.
    None,
    /// The client sends two copies to two random servers, always.
    CClone,
    /// The switch clones where the pair reports empty queues, else the first of the pair gets the
    /// request.
    NetClone,
    /// The shorter of a random pair by reported load, no clone.
    RackSched,
    /// NetClone, and RackSched where it cannot clone.
    NetCloneRackSched,
    /// A coordinator clones while two servers are idle, and queues while none is.
    Laedge,
    /// This repository's router with a policy of its own.
    Routed(PolicySpec),
}

/// The schemes that have names of their own.
const NAMED: [(Scheme, &str); 6] = [
    (Scheme::None, "none"),
    (Scheme::CClone, "cclone"),
    (Scheme::NetClone, "netclone"),
    (Scheme::RackSched, "racksched"),
    (Scheme::NetCloneRackSched, "netclone+racksched"),
    (Scheme::Laedge, "laedge"),
];

impl Scheme {
    /// True where a request that meets no other has two copies.
    pub fn clones(self) -> bool {
        match self {
            Self::None | Self::RackSched => false,
            Self::CClone | Self::NetClone | Self::NetCloneRackSched | Self::Laedge => true,
            Self::Routed(policy) => {
                let loads = Loads { outstanding: &[0; 2], reported: &[0; 2], waiting: &[0; 2] };
                matches!(policy.build().place(loads, 0), Placement::Two(..))
            }
        }
    }

    /// The policy of its switch. LAEDGE's only forwards to the coordinator, and a router is in its
    /// place, so neither asks.
    pub(super) fn policy(self) -> Box<dyn Policy> {
        let name = NAMED.iter().find(|(scheme, _)| *scheme == self && self != Self::Laedge);
        match name.and_then(|(_, name)| policy::find(name)) {
            Some(entry) => (entry.build)(Argument::None),
            None => Box::new(Random),
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, NAMED.iter().find(|(scheme, _)| scheme == self)) {
            (_, Some((_, name))) => f.pad(name),
            (Self::Routed(policy), _) => f.pad(&policy.to_string()),
            _ => unreachable!("every other scheme has a name"),
        }
    }
}

impl FromStr for Scheme {
    type Err = SchemeParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match NAMED.iter().find(|(_, name)| *name == text) {
            Some((scheme, _)) => Ok(*scheme),
            None => match text.parse() {
                Ok(policy) => Ok(Self::Routed(policy)),
                Err(PolicyParseError::Unknown { .. }) => {
                    Err(SchemeParseError::Unknown(text.to_owned()))
                }
                Err(error) => Err(SchemeParseError::Policy(error)),
            },
        }
    }
}

/// Reason why a text is no scheme.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SchemeParseError {
    /// The name is none that is known.
    #[error(
        "no scheme is called {0:?}; there are none, cclone, netclone, racksched, \
         netclone+racksched, laedge, and policies of the router: {policies}",
        policies = policy::grammar("and")
    )]
    Unknown(String),
    /// It is a policy of the router, with an argument that it does not take.
    #[error(transparent)]
    Policy(#[from] PolicyParseError),
}
