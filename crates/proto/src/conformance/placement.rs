//! Traces of placement policies: requests, progress that servers report, servers that leave and
//! return.

use std::fmt;

use super::STEPS;
use crate::policy::{Draws, Loads, OUT_OF_SERVICE, Placement, Policy, PolicySpec, WorkerId};

/// A trace of one policy.
#[derive(Clone, Debug)]
pub struct PlacementTrace {
    /// The policy that decides.
    pub policy: PolicySpec,
    /// Its parts, each of which begins with new servers and a new policy.
    pub parts: Vec<PlacementPart>,
}

/// Steps over the same servers.
#[derive(Clone, Debug)]
pub struct PlacementPart {
    /// Number of servers, all in service at first, with [`PlacementPart::FIRST`] placed and seen at
    /// each.
    pub servers: u16,
    /// The steps.
    pub steps: Vec<PlacementStep>,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementStep {
    /// A request comes.
    Place {
        /// The random word of the decision.
        word: u64,
        /// The server and the number of the placement there; `None` where the request is held.
        chosen: Option<(u16, u32)>,
    },
    /// A server reports its counts since its start.
    Report {
        /// The server.
        server: u16,
        /// The last placement that it has seen.
        seen: u32,
        /// Requests that it has received.
        received: u32,
        /// Requests that it has concluded.
        concluded: u32,
    },
    /// A server leaves service, or returns.
    Service {
        /// The server.
        server: u16,
        /// It is in service now.
        is_in_service: bool,
    },
}

impl PlacementPart {
    /// Requests that have been placed on a server, and that it has seen, when a part begins.
    pub const FIRST: u32 = 100;
}

/// A server as the trace has it.
#[derive(Clone, Copy)]
struct Server {
    /// The last placement there.
    placed: u32,
    /// The last placement that it has seen.
    seen: u32,
    /// Requests that it has received.
    received: u32,
    /// Number of these that it has concluded.
    concluded: u32,
    /// It may get requests.
    is_in_service: bool,
}

impl PlacementTrace {
    /// The trace of a policy.
    pub fn new(policy: PolicySpec) -> Self {
        let part = |&servers: &u16| PlacementPart { servers, steps: steps(policy, servers) };
        Self { policy, parts: SERVERS.iter().map(part).collect() }
    }
}

impl fmt::Display for PlacementTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            writeln!(f, "servers {}", part.servers)?;
            part.steps.iter().try_for_each(|step| writeln!(f, "{step}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for PlacementStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Place { word, chosen: Some((server, placement)) } => {
                write!(f, "place {word:016x} -> {server} {placement}")
            }
            Self::Place { word, chosen: None } => write!(f, "place {word:016x} -> hold"),
            Self::Report { server, seen, received, concluded } => {
                write!(f, "report {server} {seen} {received} {concluded}")
            }
            Self::Service { server, is_in_service } => {
                write!(f, "service {server} {}", if is_in_service { "on" } else { "off" })
            }
        }
    }
}

fn steps(policy: PolicySpec, count: u16) -> Vec<PlacementStep> {
    let first = PlacementPart::FIRST;
    let server =
        Server { placed: first, seen: first, received: 0, concluded: 0, is_in_service: true };
    let mut servers = vec![server; count.into()];
    let mut decider = policy.build();
    let mut draws = Draws::new(count.into());
    let mut step = || {
        let index = draws.below(count.into()) as u16;
        let server = usize::from(index);
        match draws.below(100) {
            0..60 => {
                let word = draws.word();
                PlacementStep::Place { word, chosen: decide(&mut *decider, &mut servers, word) }
            }
            60..95 => report(index, &mut servers[server], &mut draws),
            _ => {
                servers[server].is_in_service ^= true;
                let is_in_service = servers[server].is_in_service;
                PlacementStep::Service { server: index, is_in_service }
            }
        }
    };
    (0..STEPS / SERVERS.len()).map(|_| step()).collect()
}

fn decide(decider: &mut dyn Policy, servers: &mut [Server], word: u64) -> Option<(u16, u32)> {
    let outstanding: Vec<u32> = servers.iter().map(Server::load).collect();
    let zeros = vec![0; servers.len()];
    let loads = Loads { outstanding: &outstanding, reported: &zeros, waiting: &zeros };
    match decider.place(loads, word) {
        Placement::Hold => None,
        // No policy of a trace of placements clones.
        Placement::One(WorkerId(index)) | Placement::Two(WorkerId(index), _) => {
            let server = &mut servers[index as usize];
            server.placed += 1;
            Some((index as u16, server.placed))
        }
    }
}

/// The server gets some of what was placed there, loses some, and ends some of what it has.
fn report(index: u16, server: &mut Server, draws: &mut Draws) -> PlacementStep {
    let came = draws.below(server.placed - server.seen + 1);
    let lost = draws.below(came + 1) / 4;
    server.seen += came;
    server.received += came - lost;
    server.concluded += draws.below(server.received - server.concluded + 1);
    let Server { seen, received, concluded, .. } = *server;
    PlacementStep::Report { server: index, seen, received, concluded }
}

impl Server {
    fn load(&self) -> u32 {
        let outstanding = self.placed - self.seen + self.received - self.concluded;
        if self.is_in_service { outstanding } else { OUT_OF_SERVICE }
    }
}

/// Servers of each part: few, many, and as many as a data plane knows.
const SERVERS: [u16; 5] = [1, 2, 4, 9, 32];
