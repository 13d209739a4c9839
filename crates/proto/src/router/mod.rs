//! The R2P2 router: takes the first packet of each request, picks a server, and gets out of the
//! way.
//!
//! | a request is | event | then |
//! |---|---|---|
//! | new | a server has room | placed: forwarded with the placement written into its route |
//! | new | every server is at the bound | held |
//! | new | no server in service, queue or table full, uncertain | refused by a DROP |
//! | held | a server has room and it is the first in the queue | placed |
//! | held | its deadline or `hold_ns_max` passes | refused: expired |
//! | held | cancelled | released |
//! | new | the router is closed | refused: stopping |
//! | held | its id arrives again | held, the newcomer is dropped |
//! | refused, not idempotent | its id arrives again, within twice `transit_ns_max` | refused again |
//! | placed | its id arrives again | forwarded to the same server again |
//! | placed | its id arrives again, and the server is out or removed | idempotent: placed anew; else refused: uncertain |
//! | placed | cancelled | the cancel is forwarded to the server |
//! | placed | its deadline passes | released |
//!
//! What the server answers goes to the client directly; the router sees only feedback, from which
//! it knows what each server has: absolutely from tailcut servers, by leases from those of
//! version 1. A router speaks both generations. Each has its own scheduler, because a server of the
//! reference would take the extension for payload: tailcut requests go to tailcut servers only,
//! version 1 requests to version 1 servers, or to tailcut servers where no version 1 server is in
//! service. Both schedulers number the servers alike.
//!
//! Where the policy clones, a request that is idempotent goes to two servers; both answer the
//! client, which takes the first reply. Any other goes to the first of them alone.
//!
//! Invariant: as long as the id is remembered (to the deadline, at most `lifetime_ns_max`), a
//! request that is not idempotent reaches one server only. A server's worker in a scheduler has the
//! server's outstanding count whenever the router decides. No datagram is answered with more than
//! three times its length.

mod config;
mod ids;
mod metrics;
mod outbox;
mod server;

pub use config::{Forward, RouterConfig, RouterError, ServerConfig, Speaks};
pub use metrics::{
    MalformedCounts, Refused, RouterMetrics, RouterStatus, ServerState, ServerStatus,
};

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use foldhash::fast::FixedState;
use tailcut_wire::r2p2::{
    DropReason, Flags, Kind, MessageType, Packet, Policy as PolicyNibble, ReplyRepr, RequestHeader,
    RequestRepr, Route, RpcId, V1_DROP, V1Repr,
};
use zerocopy::{FromBytes, IntoBytes};

use self::ids::{Entered, EntryId, PlacementState, ServerKey, Table};
use self::outbox::{Datagram, Outbox};
use self::server::{Crowd, ProbeCause, Server, Shown};
use crate::address::AddressKey;
use crate::histogram::Histogram;
use crate::node::{Node, Path, Source, Time, Transmit, is_unanswerable};
use crate::policy::{BoundEstimator, Draws, QueueModel, WorkerId};
use crate::scheduler::{Cloning, Outcome, Scheduler, Service, Ticket, Workers};

/// A router between clients and servers. See the module for what it does and [`RouterConfig`] for
/// its limits.
#[derive(Debug)]
pub struct Router {
    /// The configuration; its servers are in `servers`.
    config: RouterConfig,
    /// When it was made: nothing is known of requests sent before.
    started_at: Time,
    /// The servers by slot; `None` where one was removed.
    servers: Vec<Option<Server>>,
    /// Slot of each server's address.
    slots: HashMap<AddressKey, u16, FixedState>,
    /// Slots in the order in which the servers were added; the first takes the fixed policy.
    order: Vec<u16>,
    /// Servers ever added.
    serial: u32,
    /// One scheduler for each [`Lane`], with a worker for each slot.
    schedulers: [Scheduler<Request>; 2],
    /// Requests placed or held that have an RPC id.
    table: Table,
    /// Datagrams to send.
    outbox: Outbox,
    /// Every random choice.
    draws: Draws,
    /// Derives the bound, where the policy asks for it.
    estimator: Option<BoundEstimator>,
    /// No server has anything due before this.
    servers_at: Time,
    /// No silent version 1 server may get a trial request before this.
    trial_at: Time,
    /// When held requests are to be looked at again, because the last look was cut short.
    pump_at: Option<Time>,
    /// New requests are refused: it is to end.
    is_closed: bool,
    /// How long placed requests were held.
    hold_times: Histogram,
    /// Counters since the start.
    metrics: RouterMetrics,
}

impl Router {
    /// A router that starts at `now` with the servers of the configuration.
    ///
    /// # Errors
    /// When a field is out of its range, or the servers are too many or two share an address.
    pub fn new(now: Time, mut config: RouterConfig) -> Result<Self, RouterError> {
        config.check()?;
        let servers = std::mem::take(&mut config.servers);
        let scheduler = || Scheduler::new(config.policy.build(), config.queue_len_max);
        let mut draws = Draws::new(config.seed);
        let mut router = Self {
            started_at: now,
            servers: Vec::new(),
            slots: HashMap::with_hasher(FixedState::with_seed(draws.word())),
            order: Vec::new(),
            serial: 0,
            schedulers: [scheduler(), scheduler()],
            table: Table::new(
                config.table_len_max,
                config.lifetime_ns_max + config.transit_ns_max,
                draws.word(),
            ),
            outbox: Outbox::new(config.outbox_len_max, config.queue_len_max),
            draws,
            estimator: (config.policy.model() == QueueModel::Bounded(None))
                .then(BoundEstimator::new),
            servers_at: now,
            trial_at: Time::MAX,
            pump_at: None,
            is_closed: false,
            hold_times: Histogram::default(),
            metrics: RouterMetrics::default(),
            config,
        };
        for server in servers {
            router.add_server(now, server)?;
        }
        Ok(router)
    }

    /// Adds a server behind the others. It is probed at the next timeout and in service with its
    /// first answer; one of version 1, which answers no probe, at once.
    pub fn add_server(&mut self, now: Time, config: ServerConfig) -> Result<(), RouterError> {
        if self.slots.contains_key(&AddressKey(config.addr)) {
            return Err(RouterError::Exists { addr: config.addr });
        }
        if self.order.len() >= self.config.servers_max {
            return Err(RouterError::TooManyServers { limit: self.config.servers_max });
        }
        let lane = Lane::of(config.speaks);
        let worker = self.schedulers[lane as usize].add_worker();
        let shadow = self.schedulers[lane.other() as usize].add_worker();
        assert_eq!(worker, shadow, "the schedulers number the servers alike");
        self.schedulers[lane.other() as usize].set_in_service(shadow, Service::Out);
        let slot = u16::try_from(worker.0).expect("servers_max fits 16 bits");
        let key = ServerKey { slot, serial: self.serial };
        self.serial += 1;
        let server = Server::new(key, config, now, self.draws.word() as u32);
        if worker.index() == self.servers.len() {
            self.servers.push(None);
        }
        self.servers[worker.index()] = Some(server);
        self.slots.insert(AddressKey(config.addr), slot);
        self.order.push(slot);
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
    /// if they are idempotent, else refused as uncertain.
    pub fn remove_server(&mut self, addr: SocketAddr) -> Result<(), RouterError> {
        let slot = self.slots.remove(&AddressKey(addr)).ok_or(RouterError::Unknown { addr })?;
        self.order.retain(|&other| other != slot);
        self.servers[usize::from(slot)] = None;
        for scheduler in &mut self.schedulers {
            scheduler.remove_worker(WorkerId(slot.into()));
        }
        Ok(())
    }

    /// The router as it is now. Allocates; not for the data path.
    pub fn status(&self) -> RouterStatus {
        RouterStatus {
            servers: self.servers().collect(),
            queue_len: self.queue_len(),
            table_len: self.table_len(),
            bound: self.schedulers[0].bound(),
            metrics: self.metrics(),
        }
    }

    /// The servers as they are now, the first of them first.
    pub fn servers(&self) -> impl Iterator<Item = ServerStatus> + '_ {
        let slots = self.order.iter().filter_map(|&slot| self.servers[usize::from(slot)].as_ref());
        slots.map(Server::status)
    }

    /// Requests held.
    pub fn queue_len(&self) -> usize {
        self.schedulers.iter().map(Scheduler::queue_len).sum()
    }

    /// RPC ids remembered.
    pub fn table_len(&self) -> usize {
        self.table.len()
    }

    /// The policy's bound at this moment, where it has one.
    pub fn bound(&self) -> Option<u32> {
        self.schedulers[0].bound()
    }

    /// The counters.
    pub fn metrics(&self) -> RouterMetrics {
        RouterMetrics { oversize: self.outbox.oversize_count, ..self.metrics }
    }

    /// How long placed requests were held, those that were not among them.
    pub fn hold_times(&self) -> &Histogram {
        &self.hold_times
    }

    /// Refuses new requests from now on. What is held or placed is
    /// still accounted for, and its copies and cancels still find their way.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Nothing is held, placed and not known to be concluded, or to be sent: a closed router can
    /// end.
    pub fn is_idle(&self) -> bool {
        self.queue_len() == 0
            && self.servers.iter().flatten().all(|server| server.outstanding() == 0)
            && self.outbox.is_empty()
    }

    fn set_draining(
        &mut self,
        now: Time,
        addr: SocketAddr,
        service: Service,
    ) -> Result<(), RouterError> {
        let &slot = self.slots.get(&AddressKey(addr)).ok_or(RouterError::Unknown { addr })?;
        let server =
            self.servers[usize::from(slot)].as_mut().expect("an address names a configured server");
        server.is_draining = service == Service::Out;
        self.refresh(now, slot);
        self.pump(now);
        Ok(())
    }

    fn handle_request(&mut self, now: Time, path: Path, packet: &Packet, bytes: &[u8]) {
        if packet.index != 0 {
            self.metrics.not_first += 1;
            return;
        }
        if self.outbox.is_full() {
            self.metrics.outbox_full += 1;
            return;
        }
        let Some(mut arrival) = self.read_arrival(now, path, packet) else {
            return;
        };
        if bytes.len() > self.config.packet_len_max {
            return self.refuse(&arrival, DropReason::TooLarge);
        }
        let Some(rpc_id) = arrival.rpc_id else {
            // Version 1 gives no reason on the wire; this one is counted as `v1_annotate`.
            return match self.config.forward {
                Forward::Keep => self.admit(now, arrival, bytes),
                Forward::Annotate => self.refuse(&arrival, DropReason::Unspecified),
            };
        };
        // The last copy leaves by the deadline, and the network may hold it.
        let remembered_until = arrival.deadline.saturating_add(self.config.transit_ns_max);
        let key = self.table.key(rpc_id, arrival.client);
        match self.table.enter(now, key, remembered_until) {
            Entered::Known(entry, state) => {
                arrival.entry = Some(entry);
                self.handle_duplicate(now, arrival, state, bytes);
            }
            Entered::New(entry) if !arrival.is_idempotent && self.predates(now, &arrival) => {
                self.table.release(entry);
                self.refuse(&arrival, DropReason::Uncertain);
            }
            Entered::New(entry) => {
                arrival.entry = Some(entry);
                self.admit(now, arrival, bytes);
            }
            Entered::Full if arrival.is_idempotent => {
                self.metrics.untracked += 1;
                self.admit(now, arrival, bytes);
            }
            Entered::Full if self.predates(now, &arrival) => {
                self.refuse(&arrival, DropReason::Uncertain)
            }
            Entered::Full => self.refuse(&arrival, DropReason::Overload),
        }
    }

    /// Reads what matters of a request; counts and drops those that a router cannot use.
    fn read_arrival(&mut self, now: Time, path: Path, packet: &Packet) -> Option<Arrival> {
        let held_to = now.saturating_add(self.config.hold_ns_max);
        let mut arrival = Arrival {
            path,
            client: path.peer,
            rid: packet.rid,
            rpc_id: None,
            entry: None,
            is_fixed: packet.policy == PolicyNibble::Fixed,
            is_idempotent: packet.flags().has(Flags::IDEMPOTENT),
            age_ns: None,
            arrived_at: now,
            deadline: held_to,
        };
        let Kind::Request { header, route } = packet.kind else {
            return Some(arrival);
        };
        let Some(route) = route else {
            self.metrics.malformed.no_route += 1;
            return None;
        };
        if route.client_port.get() != 0 {
            arrival.client = annotated_client(route);
            if is_unanswerable(arrival.client.ip()) {
                self.metrics.malformed.client_address += 1;
                return None;
            }
        }
        let lifetime_ns = match header.deadline_us.get() {
            0 => self.config.lifetime_ns_max,
            deadline_us => (u64::from(deadline_us) * 1_000).min(self.config.lifetime_ns_max),
        };
        arrival.rpc_id = packet.rpc_id();
        arrival.age_ns = packet
            .flags()
            .has(Flags::RETRANSMIT)
            .then(|| u64::from(header.age_ms.get()) * 1_000_000);
        arrival.deadline = now.saturating_add(lifetime_ns);
        Some(arrival)
    }

    fn handle_duplicate(
        &mut self,
        now: Time,
        arrival: Arrival,
        state: PlacementState,
        bytes: &[u8],
    ) {
        let key = match state {
            PlacementState::Placed(key) => key,
            PlacementState::Refused(reason) => return self.refuse_for_good(now, arrival, reason),
            PlacementState::Undecided | PlacementState::Waiting(..) => {
                self.metrics.duplicates_held += 1;
                return;
            }
        };
        let server = self.servers[usize::from(key.slot)].as_ref();
        // A request that may run once stays with its server, also a silent one, which may only be
        // slow.
        if server.is_some_and(|server| {
            server.key == key && (!server.is_silent || !arrival.is_idempotent)
        }) {
            self.metrics.duplicates_forwarded += 1;
            let bytes = self.outbox.buffer(bytes);
            self.forward(now, key.slot, Request { arrival, bytes });
        } else if arrival.is_idempotent {
            self.metrics.duplicates_moved += 1;
            self.admit(now, arrival, bytes);
        } else {
            self.refuse(&arrival, DropReason::Uncertain);
        }
    }

    /// Places, holds or refuses a request that is nowhere yet.
    fn admit(&mut self, now: Time, arrival: Arrival, bytes: &[u8]) {
        if self.is_closed {
            return self.refuse_for_good(now, arrival, DropReason::Stopping);
        }
        let lane = self.lane(&arrival);
        if arrival.is_fixed {
            return match self.first_server(now, &arrival) {
                Some(slot) => self.forward_fixed(now, slot, arrival, bytes),
                None => self.refuse_for_good(now, arrival, DropReason::NoServer),
            };
        }
        if let Some(slot) = self.take_trial(now, &arrival) {
            let bytes = self.outbox.buffer(bytes);
            return self.forward(now, slot, Request { arrival, bytes });
        }
        if self.schedulers[lane as usize].in_service_count() == 0 && !self.is_one_starting(lane) {
            return self.refuse_for_good(now, arrival, DropReason::NoServer);
        }
        let request = Request { arrival, bytes: self.outbox.buffer(bytes) };
        let expires_at = arrival.deadline.min(now.saturating_add(self.config.hold_ns_max));
        // A request that may run once reaches one server, whatever the policy answers.
        let cloning = if arrival.is_idempotent { Cloning::Allowed } else { Cloning::Forbidden };
        let random = self.draws.word();
        match self.schedulers[lane as usize].offer(request, cloning, expires_at, random) {
            Outcome::Placed(workers, request) => {
                self.hold_times.record(0);
                self.forward_to_each(now, workers, request);
            }
            Outcome::Held(ticket) => self.note_held(lane, arrival, ticket),
            Outcome::Full(request) => {
                self.outbox.recycle(request.bytes);
                self.refuse_for_good(now, arrival, DropReason::Overload);
            }
        }
    }

    /// Whether a server is about to answer for the first time, which requests may wait for.
    fn is_one_starting(&self, lane: Lane) -> bool {
        let mut servers = self.servers.iter().flatten();
        lane == Lane::Extension && servers.any(|server| server.is_starting && !server.is_draining)
    }

    fn note_held(&mut self, lane: Lane, arrival: Arrival, ticket: Ticket) {
        self.metrics.held += 1;
        if let Some(entry) = arrival.entry {
            self.table.set(entry, PlacementState::Waiting(lane as usize, ticket));
        }
    }

    /// The scheduler for a request.
    fn lane(&self, arrival: &Arrival) -> Lane {
        let has_v1 = self.schedulers[Lane::V1 as usize].in_service_count() > 0;
        if arrival.rpc_id.is_none() && has_v1 { Lane::V1 } else { Lane::Extension }
    }

    /// The first server, if it can take the request: the fixed policy knows no other.
    fn first_server(&mut self, now: Time, arrival: &Arrival) -> Option<u16> {
        let &slot = self.order.first()?;
        let server = self.servers[usize::from(slot)].as_mut()?;
        let is_understood = arrival.rpc_id.is_none() || server.speaks() == Speaks::Extension;
        if server.is_in_service() || server.is_starting && !server.is_draining {
            return is_understood.then_some(slot);
        }
        let is_trial = is_understood
            && server.speaks() == Speaks::V1
            && !server.is_draining
            && server.trial_at <= now;
        if is_trial {
            server.trial_at = now.saturating_add(self.config.v1_trial_interval_ns);
            self.metrics.trials += 1;
        }
        is_trial.then_some(slot)
    }

    fn forward_fixed(&mut self, now: Time, slot: u16, arrival: Arrival, bytes: &[u8]) {
        let server =
            self.servers[usize::from(slot)].as_ref().expect("the first server is configured");
        let is_past = self.schedulers[0].bound().is_some_and(|bound| server.outstanding() >= bound);
        self.metrics.fixed += 1;
        self.metrics.fixed_past_bound += u64::from(is_past);
        let bytes = self.outbox.buffer(bytes);
        self.forward(now, slot, Request { arrival, bytes });
    }

    /// A silent version 1 server that this request shall try. Without trials it could never return:
    /// the reference's router gave a revived server 0 of 200 requests.
    fn take_trial(&mut self, now: Time, arrival: &Arrival) -> Option<u16> {
        if arrival.rpc_id.is_some() || now < self.trial_at {
            return None;
        }
        let interval_ns = self.config.v1_trial_interval_ns;
        let is_out = |server: &&mut Server| {
            server.speaks() == Speaks::V1 && server.is_silent && !server.is_draining
        };
        let mut chosen = None;
        self.trial_at = Time::MAX;
        for server in self.servers.iter_mut().flatten().filter(is_out) {
            if chosen.is_none() && server.trial_at <= now {
                server.trial_at = now.saturating_add(interval_ns);
                chosen = Some(server.key.slot);
            }
            self.trial_at = self.trial_at.min(server.trial_at);
        }
        self.metrics.trials += u64::from(chosen.is_some());
        chosen
    }

    /// Sends a request to each server that it was placed on. Later copies of it and a cancel go to
    /// the first.
    fn forward_to_each(&mut self, now: Time, workers: Workers, request: Request) {
        let mut workers = workers.into_iter();
        let first = workers.next().expect("a placement names a worker");
        let clone = workers.next().map(|worker| {
            let arrival = Arrival { entry: None, ..request.arrival };
            (worker, Request { arrival, bytes: self.outbox.buffer(&request.bytes) })
        });
        self.forward(now, slot_of(first), request);
        match clone {
            Some((worker, clone)) if self.outbox.is_full() => {
                self.metrics.outbox_full += 1;
                self.outbox.recycle(clone.bytes);
                // Takes back what the scheduler has counted for the clone.
                self.refresh(now, slot_of(worker));
            }
            Some((worker, clone)) => self.forward(now, slot_of(worker), clone),
            None => {}
        }
    }

    /// Sends a request to a server and counts it there. The caller has seen that the outbox has
    /// room.
    fn forward(&mut self, now: Time, slot: u16, mut request: Request) {
        let arrival = &request.arrival;
        let server = self.servers[usize::from(slot)]
            .as_mut()
            .expect("requests are placed on configured servers");
        if arrival.rpc_id.is_some() {
            let placement = server.place(now);
            write_route(&mut request, (now, placement), self.config.forward);
        } else if server.lease(now, &self.config) {
            self.metrics.leases_expired += 1;
        }
        if let Some(entry) = request.arrival.entry {
            self.table.set(entry, PlacementState::Placed(server.key));
        }
        let (to, server_local) = (server.addr(), server.local);
        let from = self.source(request.arrival.path.peer, server_local);
        self.outbox.push(Datagram { to, from, bytes: request.bytes });
        self.metrics.forwarded += 1;
        self.refresh(now, slot);
    }

    fn handle_feedback(&mut self, now: Time, path: Path, packet: &Packet) {
        let Some(&slot) = self.slots.get(&AddressKey(path.peer)) else {
            self.metrics.feedback_stranger += 1;
            return;
        };
        let server =
            self.servers[usize::from(slot)].as_mut().expect("an address names a configured server");
        let was_silent = server.is_silent;
        server.local = path.local;
        let reported = match packet.kind {
            Kind::Reply { header } => header.server_load.get(),
            Kind::Request { .. } | Kind::V1 => 0,
        };
        match (packet.feedback(), server.speaks()) {
            (Some(_), Speaks::V1) => {
                self.metrics.feedback_mismatched += 1;
                return;
            }
            (Some(body), Speaks::Extension) => {
                let Ok(shown) = server.take_feedback(now, body, reported, &self.config) else {
                    self.metrics.feedback_stale += 1;
                    return;
                };
                server.is_stopping = packet.flags().has(Flags::STOPPING);
                self.metrics.feedback_taken += 1;
                self.learn(shown);
            }
            (None, _) if server.conclude_lease() => self.metrics.feedback_taken += 1,
            (None, _) => self.metrics.feedback_unmatched += 1,
        }
        let server = self.servers[usize::from(slot)].as_mut().expect("the server is still there");
        server.rewatch_bound();
        self.metrics.servers_returned += u64::from(was_silent && !server.is_silent);
        self.refresh(now, slot);
        self.pump(now);
    }

    /// Derives the bound anew from what a feedback has shown.
    fn learn(&mut self, shown: Shown) {
        self.metrics.server_restarts += u64::from(shown.is_restart);
        let Some(estimator) = &mut self.estimator else {
            return;
        };
        if shown.delay_ns.is_none() && shown.service_ns.is_none() {
            return;
        }
        shown.delay_ns.into_iter().for_each(|delay_ns| estimator.sample_delay(delay_ns));
        shown.service_ns.into_iter().for_each(|service_ns| estimator.sample_service(service_ns));
        for scheduler in &mut self.schedulers {
            scheduler.set_bound(estimator.bound());
        }
    }

    fn handle_cancel(&mut self, now: Time, peer: SocketAddr, packet: &Packet, bytes: &[u8]) {
        let key = self.table.key(packet.rpc_id().unwrap_or_default(), peer);
        match self.table.find(now, key) {
            Some((entry, PlacementState::Waiting(lane, ticket))) => {
                if let Some(request) = self.schedulers[lane].remove(ticket) {
                    self.outbox.recycle(request.bytes);
                }
                self.table.release(entry);
                self.metrics.cancelled_held += 1;
            }
            Some((_, PlacementState::Placed(key))) => self.forward_cancel(key, peer, bytes),
            _ => self.metrics.cancels_unknown += 1,
        }
    }

    fn forward_cancel(&mut self, key: ServerKey, peer: SocketAddr, bytes: &[u8]) {
        let server = self.servers[usize::from(key.slot)].as_ref();
        let Some(server) = server.filter(|server| server.key == key) else {
            self.metrics.cancels_unknown += 1;
            return;
        };
        if self.outbox.is_full() {
            self.metrics.outbox_full += 1;
            return;
        }
        let (to, from) = (server.addr(), self.source(peer, server.local));
        let bytes = self.outbox.buffer(bytes);
        self.outbox.push(Datagram { to, from, bytes });
        self.metrics.cancelled_forwarded += 1;
    }

    /// Refuses held requests that have expired and places those that may go, a bounded number at a
    /// time.
    fn pump(&mut self, now: Time) {
        self.pump_at = None;
        for lane in [Lane::V1, Lane::Extension] {
            let mut left = PUMP_COUNT;
            while self.schedulers[lane as usize].queue_len() > 0 {
                if left == 0 || self.outbox.is_full() {
                    self.pump_at = Some(now);
                    break;
                }
                left -= 1;
                if !self.pump_one(now, lane) {
                    break;
                }
            }
        }
    }

    /// True if a held request has left. The outbox has room.
    fn pump_one(&mut self, now: Time, lane: Lane) -> bool {
        let scheduler = &mut self.schedulers[lane as usize];
        if let Some(request) = scheduler.poll_expired(now) {
            self.outbox.recycle(request.bytes);
            self.refuse_for_good(now, request.arrival, DropReason::Expired);
            return true;
        }
        let placed = scheduler.poll_placed(now, self.draws.word());
        let has_left = placed.is_some();
        if let Some((workers, request)) = placed {
            self.hold_times.record(now.saturating_sub(request.arrival.arrived_at));
            self.forward_to_each(now, workers, request);
        }
        has_left
    }

    /// Does what is due at every server, and finds out when the next thing is.
    fn serve_servers(&mut self, now: Time) {
        self.servers_at = Time::MAX;
        let (mut silent_count, count) = self.count_silent();
        for at in 0..self.order.len() {
            let slot = self.order[at];
            let server = self.servers[usize::from(slot)]
                .as_mut()
                .expect("the order names configured servers");
            let was_silent = server.is_silent;
            let expired_count =
                (0..LEASE_COUNT).take_while(|_| server.expire_lease(now, &self.config)).count();
            self.metrics.leases_expired += expired_count as u64;
            let crowd =
                if 2 * (silent_count + 1) <= count { Crowd::Answers } else { Crowd::IsSilent };
            silent_count += usize::from(server.check_silence(now, crowd, &self.config));
            if server.is_silent && !was_silent {
                self.metrics.servers_silenced += 1;
                if server.speaks() == Speaks::V1 {
                    self.trial_at = self.trial_at.min(server.trial_at);
                }
            }
            if let Some(cause) = server.probe_due(now).filter(|_| !self.outbox.is_full()) {
                self.send_probe(now, slot, cause);
            }
            self.refresh(now, slot);
        }
    }

    /// Servers that are silent and all servers, of those that are probed and not on their way out.
    fn count_silent(&self) -> (usize, usize) {
        let probed = self.servers.iter().flatten().filter(|server| {
            server.speaks() == Speaks::Extension && !server.is_draining && !server.is_stopping
        });
        probed
            .fold((0, 0), |(silent, all), server| (silent + usize::from(server.is_silent), all + 1))
    }

    fn send_probe(&mut self, now: Time, slot: u16, cause: ProbeCause) {
        let jitter_max = u32::try_from(self.config.probe_interval_ns / 8).unwrap_or(u32::MAX);
        let jitter_ns = u64::from(self.draws.below(jitter_max.max(1)));
        let server =
            self.servers[usize::from(slot)].as_mut().expect("probes go to configured servers");
        let placed = server.probe(now, jitter_ns, &self.config);
        let (to, from) = (server.addr(), server.local.into());
        let mut bytes = self
            .outbox
            .buffer(RequestRepr::control(MessageType::Probe, 0, RpcId(0)).header().as_bytes());
        bytes.extend_from_slice(&placed.to_be_bytes());
        self.outbox.push(Datagram { to, from, bytes });
        self.metrics.probes += 1;
        self.metrics.stall_probes += u64::from(cause == ProbeCause::Stall);
    }

    /// Gives the scheduler the load of a server and whether it is in service, and notes when
    /// something is due there.
    fn refresh(&mut self, now: Time, slot: u16) {
        let server = self.servers[usize::from(slot)]
            .as_mut()
            .expect("only configured servers are refreshed");
        let scheduler = &mut self.schedulers[Lane::of(server.speaks()) as usize];
        let worker = WorkerId(slot.into());
        let service = if server.is_in_service() { Service::In } else { Service::Out };
        scheduler.set_in_service(worker, service);
        scheduler.set_outstanding(worker, server.outstanding());
        scheduler.set_reported(worker, server.reported);
        server.watch_bound(now, scheduler.bound(), &self.config);
        self.servers_at = self.servers_at.min(server.next_event());
    }

    /// Refuses a request that has run nowhere, and every copy of it that may reach this router once
    /// the client knows: the refusal and the last copy may each be under way for `transit_ns_max`.
    /// One that may run again is released.
    fn refuse_for_good(&mut self, now: Time, arrival: Arrival, reason: DropReason) {
        match arrival.entry {
            Some(entry) if arrival.is_idempotent => self.table.release(entry),
            Some(entry) => {
                self.table.refuse(entry, reason, now.saturating_add(2 * self.config.transit_ns_max))
            }
            None => {}
        }
        self.refuse(&arrival, reason);
    }

    /// Sends a DROP: 12 bytes for a request of at least 8, or 49 for one of at least 72.
    fn refuse(&mut self, arrival: &Arrival, reason: DropReason) {
        self.metrics.refused.count(reason);
        let bytes = match arrival.rpc_id {
            Some(rpc_id) => {
                let repr = ReplyRepr::control(MessageType::Drop, arrival.rid, rpc_id);
                let mut bytes = self.outbox.buffer(repr.header().as_bytes());
                bytes.push(reason as u8);
                bytes
            }
            None => {
                let repr = V1Repr::control(MessageType::Drop, PolicyNibble::Fixed, arrival.rid);
                let mut bytes = self.outbox.buffer(repr.header().as_bytes());
                bytes.extend_from_slice(V1_DROP);
                bytes
            }
        };
        let from = arrival.path.local.into();
        self.outbox.push(Datagram { to: arrival.client, from, bytes });
    }

    /// The source of what is sent on for `peer` to a server that reports to `local`.
    fn source(&self, peer: SocketAddr, local: Option<IpAddr>) -> Source {
        match self.config.forward {
            Forward::Keep => Source::Spoofed(peer),
            Forward::Annotate => local.into(),
        }
    }

    /// True if the request was sent before this router started, so that an earlier run of it may
    /// have placed the request.
    fn predates(&self, now: Time, arrival: &Arrival) -> bool {
        arrival.age_ns.is_some_and(|age_ns| {
            now.saturating_sub(self.started_at) <= age_ns + self.config.transit_ns_max
        })
    }
}

impl Node for Router {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        self.metrics.received += 1;
        let packet = match Packet::parse(bytes) {
            Ok(packet) => packet,
            Err(malformed) => return self.metrics.malformed.count(malformed),
        };
        match packet.message_type {
            MessageType::Request => self.handle_request(now, path, &packet, bytes),
            MessageType::Feedback => self.handle_feedback(now, path, &packet),
            MessageType::Cancel => self.handle_cancel(now, path.peer, &packet, bytes),
            _ => self.metrics.unexpected += 1,
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.servers_at <= now {
            self.serve_servers(now);
        }
        self.pump(now);
    }

    fn poll_transmit(&mut self, _now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        self.outbox.poll(buffer)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let servers_at = (self.servers_at < Time::MAX).then_some(self.servers_at);
        let expiries = self.schedulers.iter().filter_map(Scheduler::next_expiry);
        expiries.chain(servers_at).chain(self.pump_at).min()
    }
}

/// A generation of servers, and its scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    V1 = 0,
    Extension = 1,
}

impl Lane {
    fn of(speaks: Speaks) -> Self {
        match speaks {
            Speaks::V1 => Self::V1,
            Speaks::Extension => Self::Extension,
        }
    }

    fn other(self) -> Self {
        match self {
            Self::V1 => Self::Extension,
            Self::Extension => Self::V1,
        }
    }
}

/// A request that waits for a server.
#[derive(Debug)]
struct Request {
    /// How it came.
    arrival: Arrival,
    /// The datagram as it came.
    bytes: Vec<u8>,
}

/// A request as the router has read it.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// Way of the datagram: a refusal leaves from where it arrived.
    path: Path,
    /// Receiver of the reply: another than the peer behind a chain of routers.
    client: SocketAddr,
    /// The client's own number of it.
    rid: u16,
    /// `None` for version 1.
    rpc_id: Option<RpcId>,
    /// Its entry in the table; `None` when it is not tracked.
    entry: Option<EntryId>,
    /// The first server is to have it.
    is_fixed: bool,
    /// It may run more than once.
    is_idempotent: bool,
    /// How long ago it was first sent, if it was sent before.
    age_ns: Option<u64>,
    /// When it came.
    arrived_at: Time,
    /// When the client stops waiting, or its id expires.
    deadline: Time,
}

/// Writes the placement, the time left and, where the router shows itself as the source, the client
/// into the route. A client that another router has written stays.
fn write_route(request: &mut Request, (now, placement): (Time, u32), forward: Forward) {
    let arrival = &request.arrival;
    let (header, rest) =
        RequestHeader::mut_from_prefix(&mut request.bytes).expect("the request was parsed");
    let (route, _) = Route::mut_from_prefix(rest).expect("the request was parsed with a route");
    let waited_ns = now.saturating_sub(arrival.arrived_at);
    let waited_us = u32::try_from(waited_ns / 1_000).unwrap_or(u32::MAX);
    // 0 means no deadline, and stays; else some time is left, for the request has not expired.
    let deadline_us = header.deadline_us.get();
    header.deadline_us.set(deadline_us.saturating_sub(waited_us).max(deadline_us.min(1)));
    if arrival.age_ns.is_some() {
        let waited_ms = u16::try_from(waited_ns.div_ceil(1_000_000)).unwrap_or(u16::MAX);
        header.age_ms.set(header.age_ms.get().saturating_add(waited_ms));
    }
    route.routed = 1;
    route.placement.set(placement);
    if forward == Forward::Annotate && route.client_port.get() == 0 {
        route.client_ip = match arrival.path.peer.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        route.client_port.set(arrival.path.peer.port());
    }
}

/// The client that another router has written into the route.
fn annotated_client(route: &Route) -> SocketAddr {
    SocketAddr::new(Ipv6Addr::from(route.client_ip).to_canonical(), route.client_port.get())
}

fn slot_of(worker: WorkerId) -> u16 {
    u16::try_from(worker.0).expect("servers_max fits 16 bits")
}

/// Held requests that one call places or refuses, for each generation: a batch that fits a burst of
/// the network card.
const PUMP_COUNT: usize = 256;

/// Leases of one server that one call ends.
const LEASE_COUNT: usize = 64;
