//! LAEDGE's coordinator: a queue of packets before its threads, and a scheduler of requests.

use std::num::NonZeroU32;

use tailcut_proto::node::Time;
use tailcut_proto::policy::{Laedge, WorkerId};
use tailcut_proto::scheduler::{Cloning, Outcome, Scheduler, Workers};

use super::client::Answered;
use super::events::Packet;
use super::{Config, Slots};

/// The state of LAEDGE's coordinator.
#[derive(Debug)]
pub(super) struct Station {
    /// Cost of a packet, ps.
    packet_ps: u64,
    /// Time at which each thread is free, ps.
    free_ps: Vec<u64>,
    /// The thread that is free first: as all packets cost the same, the threads take turns.
    next_thread: usize,
    scheduler: Scheduler<Packet, Laedge>,
    answered: Answered,
}

impl Station {
    /// All servers idle. The configuration has been checked.
    pub(super) fn new(config: &Config) -> Self {
        let slots = match config.coordinator.slots {
            Slots::Server => 1,
            Slots::Worker => config.servers[0],
        };
        let policy = Laedge::new(NonZeroU32::new(slots).expect("every server has a worker"));
        let mut scheduler = Scheduler::new(Box::new(policy), config.requests as usize);
        for _ in &config.servers {
            scheduler.add_worker();
        }
        Self {
            packet_ps: config.coordinator.packet_ps,
            free_ps: vec![0; config.coordinator.threads as usize],
            next_thread: 0,
            scheduler,
            answered: Answered::new(config.requests),
        }
    }

    /// Takes a packet that arrives now; returns when it has been dealt with.
    pub(super) fn serve(&mut self, now_ps: u64) -> u64 {
        let thread = self.next_thread;
        self.next_thread = (thread + 1) % self.free_ps.len();
        let free_ps = &mut self.free_ps[thread];
        *free_ps = now_ps.max(*free_ps).saturating_add(self.packet_ps);
        *free_ps
    }

    /// Placement of a request; `None` while it is held.
    pub(super) fn place(&mut self, packet: Packet, random: u64) -> Option<Workers> {
        match self.scheduler.offer(packet, Cloning::Allowed, Time::MAX, random) {
            Outcome::Placed(servers, _) => Some(servers),
            Outcome::Held(_) => None,
            Outcome::Full(_) => unreachable!("the queue has a place for every request"),
        }
    }

    /// Takes the response of `server`: whether it is the request's first, and a held request that
    /// now goes, with its server.
    pub(super) fn respond(
        &mut self,
        server: WorkerId,
        packet: &Packet,
        random: u64,
    ) -> (bool, Option<(Workers, Packet)>) {
        self.scheduler.conclude(server);
        // Nothing expires, so the time does not matter.
        (self.answered.is_first(packet.id), self.scheduler.poll_placed(0, random))
    }

    /// Requests held.
    pub(super) fn queue_len(&self) -> u64 {
        self.scheduler.queue_len() as u64
    }
}
