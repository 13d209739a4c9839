//! The router of this repository in the switch's place: it counts, holds, and hears of every copy.
//!
//! | what happens | then |
//! |---|---|
//! | a request comes | the policy names one server or two, or the request is held |
//! | a server answers a copy, or discards one | the router hears of it when a response would pass: the copy is concluded, the report stored, and what is held goes where there is room |
//!
//! It drops no response: the client does that.

use tailcut_proto::node::Time;
use tailcut_proto::policy::{PolicySpec, WorkerId};
use tailcut_proto::scheduler::{Cloning, Outcome, Scheduler, Workers};

use super::Config;
use super::events::{Packet, Standing};

/// The state of the router.
#[derive(Debug)]
pub(super) struct Router {
    scheduler: Scheduler<Packet>,
}

impl Router {
    /// All servers in service.
    pub(super) fn new(config: &Config, policy: PolicySpec) -> Self {
        let mut scheduler = Scheduler::new(policy.build(), config.requests as usize);
        for _ in &config.servers {
            scheduler.add_worker();
        }
        Self { scheduler }
    }

    /// Placement of a request; `None` while it is held.
    pub(super) fn place(&mut self, packet: Packet, random: u64) -> Option<Workers> {
        match self.scheduler.offer(packet, Cloning::Allowed, Time::MAX, random) {
            Outcome::Placed(servers, _) => Some(servers),
            Outcome::Held(_) => None,
            Outcome::Full(_) => unreachable!("the queue has a place for every request"),
        }
    }

    /// Hears that `server` has concluded a copy, and how it stands.
    pub(super) fn note(&mut self, server: WorkerId, standing: Standing) {
        self.scheduler.conclude(server);
        self.scheduler.set_reported(server, standing.outstanding, standing.waiting);
    }

    /// A held request that may go now.
    pub(super) fn poll_placed(&mut self, random: u64) -> Option<(Workers, Packet)> {
        // Nothing expires, so the time does not matter.
        self.scheduler.poll_placed(0, random)
    }

    /// Requests held.
    pub(super) fn queue_len(&self) -> u64 {
        self.scheduler.queue_len() as u64
    }
}
