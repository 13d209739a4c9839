//! The servers of a router: added and removed, what they report, and when they are asked.

use std::net::SocketAddr;

use tailcut_wire::r2p2::{Flags, Kind, MessageType, Packet, RequestRepr, RpcId};
use zerocopy::IntoBytes;

use super::Router;
use super::config::{RouterError, ServerConfig, Speaks};
use super::lane::Lane;
use super::outbox::Datagram;
use super::probes::ProbeCause;
use super::server::Shown;
use crate::node::{Path, Time};
use crate::policy::{Load, WorkerId};
use crate::scheduler::{Rank, Service};

impl Router {
    /// Adds a server behind the others. It is probed at the next timeout and in service with its
    /// first answer; one of version 1, which answers no probe, at once.
    pub fn add_server(&mut self, now: Time, config: ServerConfig) -> Result<(), RouterError> {
        if self.fleet.find(config.addr).is_some() {
            return Err(RouterError::Exists { addr: config.addr });
        }
        if self.fleet.len() >= self.config.servers_max {
            return Err(RouterError::TooManyServers { limit: self.config.servers_max });
        }
        let slot = self.queues.add_worker(Lane::of(config.speaks));
        self.fleet.add(now, slot, config, self.draws.word() as u32);
        self.share_server(now, slot);
        self.refresh(now, slot);
        self.pump(now);
        Ok(())
    }

    /// Gives the server no new requests; those that it has are still accounted for, and go there
    /// again when they arrive again. It can be removed when [`Router::status`] shows nothing
    /// outstanding.
    pub fn drain_server(&mut self, now: Time, addr: SocketAddr) -> Result<(), RouterError> {
        self.set_draining(now, addr, Service::Out)
    }

    /// Takes a draining server back into service.
    pub fn resume_server(&mut self, now: Time, addr: SocketAddr) -> Result<(), RouterError> {
        self.set_draining(now, addr, Service::In)
    }

    /// Releases the server. Of the requests placed there, those that arrive again are placed anew
    /// if they are idempotent, else refused as uncertain; so is what another router may have placed
    /// there before.
    pub fn remove_server(&mut self, now: Time, addr: SocketAddr) -> Result<(), RouterError> {
        let server = self.fleet.remove(addr).ok_or(RouterError::Unknown { addr })?;
        let slot = server.key.slot;
        self.history.note_removal(now);
        self.unshare_server(slot, addr);
        self.release_pace(&server);
        self.recount_workers();
        self.queues.remove_worker(slot);
        Ok(())
    }

    /// Says how a server stands among the others: how much of the load it gets, and how many
    /// requests more than one of weight 1 where the policy bounds them; and whether it is of the
    /// zone that is preferred. It stands so until it is removed. A data plane before the router
    /// knows no weights.
    pub fn set_rank(&mut self, now: Time, addr: SocketAddr, rank: Rank) -> Result<(), RouterError> {
        self.set_ranks(now, &[(addr, rank)])
    }

    /// Sets the ranks of several servers, at the cost of one. Where one of them is unknown, nothing
    /// changes.
    pub fn set_ranks(
        &mut self,
        now: Time,
        ranks: &[(SocketAddr, Rank)],
    ) -> Result<(), RouterError> {
        let slot_of = |&(addr, rank): &(SocketAddr, Rank)| {
            let slot = self.fleet.find(addr).ok_or(RouterError::Unknown { addr })?;
            Ok((slot, rank))
        };
        let ranks = ranks.iter().map(slot_of).collect::<Result<Vec<_>, _>>()?;
        self.queues.set_ranks(&ranks);
        for (slot, rank) in ranks {
            self.fleet[slot].rank = rank;
            self.refresh(now, slot);
        }
        self.pump(now);
        Ok(())
    }

    fn set_draining(
        &mut self,
        now: Time,
        addr: SocketAddr,
        service: Service,
    ) -> Result<(), RouterError> {
        let slot = self.fleet.find(addr).ok_or(RouterError::Unknown { addr })?;
        let server = &mut self.fleet[slot];
        server.is_draining = service == Service::Out;
        self.refresh(now, slot);
        self.pump(now);
        Ok(())
    }

    pub(super) fn handle_feedback(&mut self, now: Time, path: Path, packet: &Packet) {
        let Some(slot) = self.fleet.find(path.peer) else {
            self.metrics.feedback_stranger += 1;
            return;
        };
        let server = &mut self.fleet[slot];
        let is_holding = self.queues[Lane::Extension].queue_len() > 0;
        let was_silent = server.is_silent;
        server.local = path.local;
        let (reported, waiting, members) = match packet.kind {
            Kind::Reply { header, .. } => {
                (header.server_load.get(), header.server_waiting.get(), header.detail.get())
            }
            Kind::Request { .. } | Kind::V1 => (0, 0, 0),
        };
        match (packet.feedback(), server.speaks()) {
            (Some(_), Speaks::V1) => {
                self.metrics.feedback_mismatched += 1;
                return;
            }
            (Some(body), Speaks::Extension) => {
                let mut taken = server.take_feedback(now, body, reported, &self.config);
                if let Ok(shown) = &mut taken {
                    server.reported.waiting = waiting.into();
                    server.note_members(members);
                    server.is_stopping = packet.flags().has(Flags::STOPPING);
                    shown.busy = server.busy_rate(now, shown.newly, is_holding);
                }
                // One that is not taken may have shown where placements go on.
                self.correct_shared(slot);
                let Ok(shown) = taken else {
                    self.metrics.feedback_stale += 1;
                    return;
                };
                self.metrics.feedback_taken += 1;
                self.learn(shown);
                if shown.is_restart {
                    self.begin_pace(now, slot);
                }
                self.learn_workers(slot);
            }
            (None, _) if server.conclude_lease() => self.metrics.feedback_taken += 1,
            (None, _) => self.metrics.feedback_unmatched += 1,
        }
        let server = &mut self.fleet[slot];
        server.rewatch_bound();
        self.metrics.servers_returned += u64::from(was_silent && !server.is_silent);
        self.refresh(now, slot);
        // Placed when packets are polled: one report may free places for all that are held.
        if self.queue_len() > 0 {
            self.queues.pump_at = Some(now);
        }
        self.note_load();
    }

    /// A server that does not know this router asks it to show that it receives at its address.
    pub(super) fn handle_ack(&mut self, now: Time, path: Path, packet: &Packet) {
        let Some(slot) = self.fleet.find(path.peer) else {
            self.metrics.unexpected += 1;
            return;
        };
        let server = &mut self.fleet[slot];
        server.local = path.local;
        server.learn_token(now, packet.token());
        self.refresh(now, slot);
    }

    /// Derives the bound anew from what a feedback has shown.
    fn learn(&mut self, shown: Shown) {
        self.metrics.server_restarts += u64::from(shown.is_restart);
        if self.auto.as_mut().is_some_and(|auto| auto.learn(shown)) {
            self.set_bound();
        }
    }

    /// Does what is due at the servers, of at most [`SERVE_COUNT`] of them.
    pub(super) fn serve_servers(&mut self, now: Time) {
        if self.fleet.next_due().is_some_and(|at| at <= now) {
            self.table.expire(self.history.came_at(now));
        }
        for _ in 0..SERVE_COUNT {
            let Some(slot) = self.fleet.pop_due(now) else {
                return;
            };
            self.metrics.server_looks += 1;
            // What was due may have been put off since.
            if self.fleet[slot].next_event() <= now {
                self.serve(now, slot);
            }
            self.refresh(now, slot);
        }
    }

    /// Does what is due at a server.
    fn serve(&mut self, now: Time, slot: WorkerId) {
        let crowd = self.fleet.census().crowd();
        let server = &mut self.fleet[slot];
        let was_silent = server.is_silent;
        let expired_count =
            (0..LEASE_COUNT).take_while(|_| server.expire_lease(now, &self.config)).count();
        self.metrics.leases_expired += expired_count as u64;
        server.check_silence(now, crowd, &self.config);
        if server.is_silent && !was_silent {
            self.metrics.servers_silenced += 1;
            if server.speaks() == Speaks::V1 {
                self.fleet.await_trial(slot);
            }
        }
        let cause = self.fleet[slot].probe_due(now);
        // One that finds no room stays due.
        if let Some(cause) = cause.filter(|_| !self.outbox.is_full()) {
            self.send_probe(now, slot, cause);
        }
    }

    fn send_probe(&mut self, now: Time, slot: WorkerId, cause: ProbeCause) {
        let jitter_max = u32::try_from(self.config.probe_interval_ns / 8).unwrap_or(u32::MAX);
        let jitter_ns = u64::from(self.draws.below(jitter_max.max(1)));
        let server = &mut self.fleet[slot];
        let placed = server.probe(now, jitter_ns, &self.config);
        // Else the data plane takes the answer, and the probe stays unanswered here.
        self.shared.want_feedback(slot);
        let (to, from) = (server.addr(), server.local.into());
        let control = RequestRepr::control(MessageType::Probe, 0, RpcId(0));
        let repr = RequestRepr { token: server.token(), ..control };
        let mut bytes = self.outbox.buffer(repr.header().as_bytes());
        bytes.extend_from_slice(&placed.to_be_bytes());
        self.send(Datagram { to, from, bytes });
        self.metrics.probes += 1;
        self.metrics.stall_probes += u64::from(cause == ProbeCause::Stall);
    }

    /// Gives the scheduler the load of a server and whether it is in service, and notes when
    /// something is due there.
    pub(super) fn refresh(&mut self, now: Time, slot: WorkerId) {
        let server = &mut self.fleet[slot];
        let scheduler = &mut self.queues[Lane::of(server.speaks())];
        // First: on probation, what is outstanding now decides whether it is in service.
        server.pace.note(now, server.outstanding());
        let service = if server.is_in_service() { Service::In } else { Service::Out };
        scheduler.set_in_service(slot, service);
        self.shared.set_in_service(slot, service == Service::In);
        let Load { outstanding, reported, waiting } = server.load();
        scheduler.set_outstanding(slot, outstanding);
        scheduler.set_reported(slot, reported, waiting);
        server.watch_bound(now, scheduler.bound(), &self.config);
        if self.fleet.note(slot) {
            self.recount_workers();
        }
        self.readmit_if_last(now);
    }
}

/// Leases of one server that one call ends.
const LEASE_COUNT: usize = 64;

/// Servers that one call looks at.
const SERVE_COUNT: usize = 64;
