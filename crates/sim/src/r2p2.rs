//! R2P2 at the grain of packets: clients under an open-loop load, a router, servers with workers,
//! over links and switches.
//!
//! Every node is the state machine that also runs over sockets. A server's host gives requests to
//! its cores through a [`Scheduler`], as the router gives them to servers.
//!
//! | host | does |
//! |---|---|
//! | client | calls when its schedule says so, whatever became of earlier calls |
//! | router | places requests by its policy; without one each client draws a server for each call |
//! | server | queues requests for its workers; answers when the service time is over |
//!
//! Invariant: a latency is counted from the intended send to the reply at the client. The same
//! experiment gives the same result.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use foldhash::fast::FixedState;
use tailcut_measure::arrivals::{Arrivals, ArrivalsError, Process};
use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::{Generator, generator};
use tailcut_measure::workers::FifoWorker;
use tailcut_proto::address::share_of;
use tailcut_proto::node::Time;
use tailcut_proto::policy::{Draws, PolicySpec, Scope, WorkerId};
use tailcut_proto::r2p2::{Config, Endpoint};
use tailcut_proto::router::{
    Forward, Router, RouterConfig, RouterError, RouterMetrics, ServerConfig, Speaks,
};
use tailcut_proto::rpc::{Call, CallOptions, DropReason, Event, Failure, RequestId, Rpc};
use tailcut_proto::scheduler::overload::OverloadConfig;
use tailcut_proto::scheduler::{Cloning, Outcome, Scheduler, Ticket, Wait};
use tailcut_proto::sealed::{Cipher, EpochKey, HopKey, Keys, Role, Sealing, Secret};

use crate::WARMUP_SHARE;
use crate::fabric::port::PortCounters;
use crate::fabric::topology::Topology;
use crate::impair::Impairment;
use crate::member::Member;
use crate::network::{HostDelays, Network, Statistics, Turn};
use crate::sojourn::Sojourns;

/// A simulation to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Hosts that call, at least 1.
    pub clients: u32,
    /// Hosts that serve, at least 1.
    pub servers: u32,
    /// Workers of each server, at least 1.
    pub workers: u32,
    /// The router's policy; `None` for no router: each client draws a server for each call.
    pub policy: Option<PolicySpec>,
    /// Policy by which a server's host gives requests to its workers. Default `jbsq:1`, the single
    /// queue.
    pub dispatch: PolicySpec,
    /// Service times at a worker, ns.
    pub service: Distribution,
    /// Bytes of a request.
    pub request_len: usize,
    /// Bytes of a reply.
    pub reply_len: usize,
    /// The calls over what the workers can serve; above 1 is overload. At most 1,000.
    pub load: f64,
    /// A load that follows for [`AFTER_NS`] when that of the calls is over: how soon is all normal?
    /// The load of the calls then ends with the time that so many take on average. `None` for
    /// nothing after.
    pub load_after: Option<f64>,
    /// Calls, of which the first tenth is not counted.
    pub calls: u64,
    /// Timeout of a call, ns.
    pub timeout_ns: u64,
    /// True if clients keep the pace that an overloaded target asks for, as they do by default over
    /// sockets; calls that they do not send for it count as refused.
    pub is_paced: bool,
    /// Links and switches between the hosts: clients, router and servers fill the racks in this
    /// order.
    pub topology: Topology,
    /// Delays of each host's software.
    pub delays: HostDelays,
    /// Impairments of every datagram besides.
    pub impairment: Impairment,
    /// Keys, where packets are sealed. Default none.
    pub seal: Option<Rotation>,
    /// Everything random.
    pub seed: u64,
}

/// Keys of a group, whose hosts have them ahead of time and agree on the time; each client has a
/// number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Time from the first call until the second key is used, ns; [`Time::MAX`] for never.
    pub at_ns: u64,
}

/// The findings of an [`Experiment`].
#[derive(Clone, Debug)]
pub struct Findings {
    /// Latencies of replied calls from intended send to reply, in ns, without the warm-up.
    pub latencies: Sojourns,
    /// Counts of the counted calls by their fate.
    pub counts: Counts,
    /// Answers over what the workers can serve, by when the calls were intended: for each
    /// [`GOODPUT_SLICES`]th of the time that the load takes, those of the warm-up left out.
    pub goodput_over_time: Vec<f64>,
    /// From the end of the load until the last call was intended that failed, or took longer than a
    /// standing queue and ten services. 0 without a load after.
    pub normal_after_ns: u64,
    /// Counters of the network.
    pub network: Statistics,
    /// Counters of the switches.
    pub switches: PortCounters,
    /// The router's counters.
    pub router: Option<RouterMetrics>,
    /// Packets that clients sent again.
    pub resent: u64,
    /// Share of the workers' time in service, over the whole run.
    pub utilisation: f64,
    /// Virtual time of the run, ns.
    pub elapsed_ns: u64,
}

/// Counts of calls by their fate. Each is in one of the others than `sent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls begun.
    pub sent: u64,
    /// Calls answered.
    pub replied: u64,
    /// Calls that nobody answered in time.
    pub timeout: u64,
    /// Calls that a router or server refused, or that the client could not make.
    pub refused: u64,
}

/// Reason why an experiment cannot be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// Nobody calls, serves or works, or there is nothing to do.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// More hosts, or links between switches, than are worth it.
    #[error("at most {HOSTS_MAX} hosts or links between switches are simulated, but there are {0}")]
    Hosts(u64),
    /// A delay that no datacenter has.
    #[error("a delay must be at most a second, but one is {0} ns")]
    Delay(u64),
    /// The run would go on for too long: routers and endpoints have timers, which go on too.
    #[error(
        "the run would last for {0:.0} s of virtual time, of at most {LENGTH_MAX_S} s: raise the load or shorten the services"
    )]
    TooLong(f64),
    /// The load is none, or more than is worth it.
    #[error("the load must be above 0 and at most {LOAD_MAX}, but is {0}")]
    Load(f64),
    /// The mean service time is infinite or zero.
    #[error("{0} has no mean above zero, so no load can be computed")]
    Service(String),
    /// A policy that needs more than workers.
    #[error("{0} is for routers, whose servers report their load, and not for a server's workers")]
    Dispatch(PolicySpec),
    /// A message or deadline that an endpoint does not take.
    #[error("{0}")]
    Limit(String),
    /// The calls cannot be scheduled.
    #[error(transparent)]
    Arrivals(#[from] ArrivalsError),
    /// The router refuses its configuration.
    #[error(transparent)]
    Router(#[from] RouterError),
}

/// Runs an experiment to its end: until every call has ended.
///
/// # Errors
///
/// What does not make sense in it.
pub fn run(experiment: &Experiment) -> Result<Findings, ExperimentError> {
    experiment.check()?;
    let mut hosts = Hosts::new(experiment)?;
    let mut network = hosts.network()?;
    network.run(START, |_| {});
    for client in 0..experiment.clients as usize {
        if let Some(first) = hosts.next_call_at(client) {
            network.wake_at(client, first, first);
        }
    }
    // A call that has begun ends by its timeout.
    while !hosts.is_over() {
        assert!(
            network.step(Time::MAX, |turn| hosts.handle(turn)),
            "a call is outstanding or to come, so something will happen"
        );
    }
    Ok(hosts.findings(&network))
}

impl Experiment {
    /// Checks that the experiment can be run; every run does so first.
    ///
    /// # Errors
    ///
    /// What does not make sense in it.
    pub fn check(&self) -> Result<(), ExperimentError> {
        let counts = [
            ("the number of clients", u64::from(self.clients)),
            ("the number of servers", u64::from(self.servers)),
            ("the number of workers", u64::from(self.workers)),
            ("the number of calls", self.calls),
        ];
        if let Some((what, _)) = counts.into_iter().find(|&(_, count)| count == 0) {
            return Err(ExperimentError::Zero(what));
        }
        self.check_fabric()?;
        for load in [self.load].into_iter().chain(self.load_after) {
            if !(load > 0.0 && load <= LOAD_MAX) {
                return Err(ExperimentError::Load(load));
            }
        }
        if self.dispatch.scope() == Scope::Routers {
            return Err(ExperimentError::Dispatch(self.dispatch));
        }
        let limits = Config::default();
        if self.request_len.max(self.reply_len) > limits.message_len_max {
            return Err(ExperimentError::Limit(format!(
                "a message has at most {} bytes",
                limits.message_len_max
            )));
        }
        if self.timeout_ns == 0 || self.timeout_ns > limits.lifetime_ns_max {
            return Err(ExperimentError::Limit(format!(
                "a timeout is from 1 ns to {} ns",
                limits.lifetime_ns_max
            )));
        }
        let length_s = self.length_ns()? / 1e9;
        if length_s > LENGTH_MAX_S { Err(ExperimentError::TooLong(length_s)) } else { Ok(()) }
    }

    fn check_fabric(&self) -> Result<(), ExperimentError> {
        let hosts = u64::from(self.clients) + u64::from(self.servers) + 1;
        let Topology { link, switch, racks } = self.topology;
        let (places, spine_links) = racks.map_or((hosts, 0), |racks| {
            let leaves = hosts.div_ceil(u64::from(racks.hosts.max(1)));
            (leaves * u64::from(racks.hosts.max(1)), leaves * u64::from(racks.spines))
        });
        let spine_link = racks.map_or(link, |racks| racks.link);
        if places.max(spine_links) > HOSTS_MAX {
            return Err(ExperimentError::Hosts(places.max(spine_links)));
        }
        let Impairment { delay_ns, jitter_ns, reorder_ns, .. } = self.impairment;
        let HostDelays { transmit_ns, receive_ns } = self.delays;
        let in_ps =
            [link.delay_ps, spine_link.delay_ps, switch.delay_ps].map(|delay_ps| delay_ps / 1000);
        let delays =
            [delay_ns, jitter_ns, reorder_ns, transmit_ns, receive_ns].into_iter().chain(in_ps);
        delays
            .into_iter()
            .find(|&delay| delay > DELAY_MAX_NS)
            .map_or(Ok(()), |delay| Err(ExperimentError::Delay(delay)))
    }

    /// Mean duration of the load of the calls.
    fn length_ns(&self) -> Result<f64, ExperimentError> {
        Ok(self.calls as f64 / (self.capacity_per_s()? * self.load) * 1e9)
    }

    /// Requests that the workers can serve in a second.
    fn capacity_per_s(&self) -> Result<f64, ExperimentError> {
        let workers = f64::from(self.servers) * f64::from(self.workers);
        Ok(workers * 1e9 / self.service_mean_ns()?)
    }

    /// Mean service time in ns.
    fn service_mean_ns(&self) -> Result<f64, ExperimentError> {
        let mean = self.service.mean().filter(|&mean| mean > 0.0);
        mean.ok_or_else(|| ExperimentError::Service(self.service.to_string()))
    }
}

/// The applications of all hosts. Clients stand at the first places, then the router, then the
/// servers.
struct Hosts<'a> {
    experiment: &'a Experiment,
    clients: Vec<Client>,
    servers: Vec<Server>,
    /// Calls begun, and calls ended.
    begun: u64,
    ended: u64,
    /// Time at which the load ends that another follows; the end of time where none does.
    load_ends_at: Time,
    /// Clients that make no more calls.
    quiet: usize,
    /// Answers by slice of the time that the load takes.
    answered: [u64; GOODPUT_SLICES],
    /// Length of a slice.
    slice_ns: u64,
    /// Longest that a call takes when all is normal.
    normal_ns: u64,
    /// Intended time of the last call after the load that was not normal.
    disturbed_at: Time,
    counts: Counts,
    latencies: Sojourns,
    /// Service given, ns.
    served_ns: u64,
}

struct Client {
    arrivals: Arrivals,
    /// Time at which the load of `arrivals` began.
    began_at: Time,
    /// Arrivals of the load that follows.
    after: Option<Arrivals>,
    /// Draws of servers, where there is no router.
    draws: Draws,
}

/// The application of a server: a scheduler before its cores.
struct Server {
    scheduler: Scheduler<Job>,
    cores: Vec<FifoWorker>,
    /// Requests at a core, by the word of their alarm.
    running: Vec<Option<(WorkerId, Job)>>,
    /// Places of those that wait.
    held: HashMap<RequestId, Ticket, FixedState>,
    free: Vec<usize>,
    services: Generator,
    draws: Draws,
    /// End times of the jobs of the present turn, with the words of their alarms; empty between
    /// turns.
    started: Vec<(Time, u64)>,
}

#[derive(Clone)]
struct Job {
    id: RequestId,
    payload: Vec<u8>,
    service_ns: u64,
}

impl<'a> Hosts<'a> {
    fn new(experiment: &'a Experiment) -> Result<Self, ExperimentError> {
        let each_per_s = experiment.capacity_per_s()? / f64::from(experiment.clients);
        let arrivals = |load: f64, stream: u64| {
            let gaps = generator(experiment.seed, stream);
            Arrivals::new(Process::Poisson, each_per_s * load, gaps)
        };
        let clients = (0..u64::from(experiment.clients)).map(|index| {
            let after = experiment.load_after.map(|load| arrivals(load, ARRIVALS_AFTER + index));
            Ok(Client {
                arrivals: arrivals(experiment.load, ARRIVALS + index)?,
                began_at: START,
                after: after.transpose()?,
                draws: Draws::new(experiment.seed ^ (index << 32)),
            })
        });
        let length_ns = experiment.length_ns()? as u64;
        let servers =
            (0..u64::from(experiment.servers)).map(|index| Server::new(experiment, index));
        Ok(Self {
            experiment,
            clients: clients.collect::<Result<_, ArrivalsError>>()?,
            servers: servers.collect(),
            begun: 0,
            ended: 0,
            load_ends_at: experiment.load_after.map_or(Time::MAX, |_| START + length_ns),
            quiet: 0,
            answered: [0; GOODPUT_SLICES],
            slice_ns: (length_ns / GOODPUT_SLICES as u64).max(1),
            normal_ns: OverloadConfig::DEFAULT.target_ns
                + 10 * experiment.service_mean_ns()? as u64,
            disturbed_at: 0,
            counts: Counts::default(),
            latencies: Sojourns::new(),
            served_ns: 0,
        })
    }

    fn network(&self) -> Result<Network<Member<Endpoint>>, ExperimentError> {
        let Experiment { clients, servers, seed, .. } = *self.experiment;
        let mut network = Network::over(&self.experiment.topology, clients + 1 + servers, seed);
        let mut join = |address: SocketAddr, member: Member<Endpoint>| {
            let place = network.add(
                address,
                member,
                self.experiment.impairment,
                seed.wrapping_mul(31) ^ ip_word(address),
            );
            network.set_delays(place, self.experiment.delays);
        };
        for client in 0..clients {
            join(
                host(client),
                self.endpoint(client, |config| {
                    config.serving.is_enabled = false;
                    config.seal = self.seal(Role::Client(client));
                }),
            );
        }
        match self.experiment.policy {
            Some(policy) => join(host(clients), self.router(policy)?),
            // The router's place is kept, so that hosts stand at the same ports with and without
            // it.
            None => join(
                host(clients),
                self.endpoint(clients, |config| config.serving.is_enabled = false),
            ),
        }
        for server in 0..servers {
            let router = self.experiment.policy.map(|_| host(clients));
            let mut member = self.endpoint(clients + 1 + server, |config| {
                config.pool.router = router;
                config.seal = self.seal(Role::Server);
            });
            if let Some(endpoint) = member.endpoint_mut() {
                endpoint.set_workers(self.experiment.workers as usize);
            }
            join(host(clients + 1 + server), member);
        }
        Ok(network)
    }

    fn endpoint(&self, index: u32, adjust: impl FnOnce(&mut Config)) -> Member<Endpoint> {
        let secret = (u128::from(self.experiment.seed) << 64 | u128::from(index)).to_be_bytes();
        let is_paced = self.experiment.is_paced;
        let mut config = Config { secret, is_paced, ..Config::default() };
        // Many hosts share the caches of one machine.
        config.serving.table_room = TABLE_ROOM;
        config.pool.key = Some(u128::from(self.experiment.seed).to_be_bytes());
        adjust(&mut config);
        Member::Endpoint(Box::new(Endpoint::new(0, config)))
    }

    /// The seal of a host, if packets are sealed.
    fn seal(&self, role: Role) -> Option<Sealing> {
        let rotation = self.experiment.seal?;
        let key = |epoch: u8, from_ms| {
            let (secret, hop) = (Secret::new([epoch; 32]), HopKey::default());
            EpochKey { epoch, from_ms, secret, hop }
        };
        let first_ms = WALL_NS / 1_000_000;
        let next_ms = WALL_NS.saturating_add(START).saturating_add(rotation.at_ns) / 1_000_000;
        // The third one, half as long after the second, ends the first.
        let last_ms = next_ms.saturating_add(rotation.at_ns / 2_000_000);
        let epochs = vec![key(1, first_ms), key(2, next_ms), key(3, last_ms)];
        let (group, cipher) = ("sim".to_owned(), Cipher::Aes128Gcm);
        let group = Keys { role: Role::Server, group, cipher, reset: None, epochs };
        let keys = match role {
            Role::Server => group,
            role => group.for_role(role).expect("a server's keys are all others'"),
        };
        Some(Sealing::new(Arc::new(keys), WALL_NS))
    }

    fn router(&self, policy: PolicySpec) -> Result<Member<Endpoint>, RouterError> {
        let Experiment { clients, servers, seed, .. } = *self.experiment;
        let addresses = (0..servers).map(|server| host(clients + 1 + server));
        let servers =
            addresses.map(|addr| ServerConfig { addr, speaks: Speaks::Extension }).collect();
        // The client's address stays the source: servers answer clients directly.
        let config = RouterConfig {
            policy,
            forward: Forward::Keep,
            servers,
            seed,
            seal: self.seal(Role::Router),
            ..RouterConfig::default()
        };
        Ok(Member::Router(Box::new(Router::new(0, config)?)))
    }

    fn handle(&mut self, turn: &mut Turn<'_, Member<Endpoint>>) {
        let clients = self.experiment.clients as usize;
        match turn.place {
            place if place < clients => self.handle_client(turn),
            place if place == clients => {}
            place => self.handle_server(turn, place - clients - 1),
        }
    }

    fn handle_client(&mut self, turn: &mut Turn<'_, Member<Endpoint>>) {
        if let Some(intended) = turn.alarm {
            self.call(turn, intended);
        }
        let Some(endpoint) = turn.node.endpoint_mut() else { return };
        while let Some(event) = endpoint.poll_event() {
            let (context, fate) = match event {
                Event::Replied { context, payload, .. } => {
                    endpoint.recycle(payload);
                    (context, Fate::Replied(turn.now))
                }
                Event::Failed { context, failure: Failure::Deadline, .. } => {
                    (context, Fate::Timeout)
                }
                Event::Failed { context, .. } => (context, Fate::Refused),
                Event::Request { .. } | Event::Cancelled { .. } => continue,
            };
            self.end(context, fate);
        }
    }

    /// Counts a call that has ended.
    fn end(&mut self, intended: Time, fate: Fate) {
        self.ended += 1;
        if intended == WARMUP {
            return;
        }
        if intended >= self.load_ends_at {
            let is_normal = matches!(fate, Fate::Replied(at) if at - intended <= self.normal_ns);
            let disturbed_at = if is_normal { 0 } else { intended };
            self.disturbed_at = self.disturbed_at.max(disturbed_at);
            return;
        }
        match fate {
            Fate::Replied(at) => {
                self.counts.replied += 1;
                self.latencies.record(at - intended);
                let slice = ((intended - START) / self.slice_ns) as usize;
                self.answered[slice.min(GOODPUT_SLICES - 1)] += 1;
            }
            Fate::Timeout => self.counts.timeout += 1,
            Fate::Refused => self.counts.refused += 1,
        }
    }

    fn is_over(&self) -> bool {
        match self.experiment.load_after {
            None => self.ended == self.experiment.calls,
            Some(_) => self.quiet == self.clients.len() && self.ended == self.begun,
        }
    }

    /// Time of a client's next call; `None` for never.
    fn next_call_at(&mut self, client: usize) -> Option<Time> {
        let ends_at = self.load_ends_at;
        let client = &mut self.clients[client];
        let mut next = client.began_at + client.arrivals.next_ns();
        if next >= ends_at
            && let Some(after) = client.after.take()
        {
            (client.arrivals, client.began_at) = (after, ends_at);
            next = ends_at + client.arrivals.next_ns();
        }
        let is_last = next >= ends_at.saturating_add(AFTER_NS);
        self.quiet += usize::from(is_last);
        (!is_last).then_some(next)
    }

    fn call(&mut self, turn: &mut Turn<'_, Member<Endpoint>>, intended: Time) {
        let Experiment { clients, servers, calls, request_len, timeout_ns, .. } = *self.experiment;
        if self.begun == calls && self.experiment.load_after.is_none() {
            return;
        }
        let is_counted = self.begun >= calls / WARMUP_SHARE;
        self.begun += 1;
        self.counts.sent += u64::from(is_counted && intended < self.load_ends_at);
        if let Some(next) = self.next_call_at(turn.place) {
            turn.wake_in(next - turn.now, next);
        }
        let target = match self.experiment.policy {
            Some(_) => host(clients),
            None => host(clients + 1 + self.clients[turn.place].draws.below(servers)),
        };
        let Some(endpoint) = turn.node.endpoint_mut() else { return };
        let mut payload = endpoint.buffer();
        payload.resize(request_len, 0);
        let context = if is_counted { intended } else { WARMUP };
        let call = Call {
            target,
            payload,
            deadline: turn.local + timeout_ns,
            context,
            // What clones does so with idempotent calls alone.
            options: CallOptions { idempotent: self.clones(), ..CallOptions::default() },
        };
        if endpoint.call(turn.local, call).is_err() {
            self.end(context, Fate::Refused);
        }
    }

    fn clones(&self) -> bool {
        self.experiment.policy.is_some_and(|policy| policy.scope() == Scope::Routers)
    }

    fn handle_server(&mut self, turn: &mut Turn<'_, Member<Endpoint>>, index: usize) {
        let Some(endpoint) = turn.node.endpoint_mut() else { return };
        let server = &mut self.servers[index];
        if let Some(word) = turn.alarm {
            let mut job = server.finish(word as usize);
            self.served_ns += job.service_ns;
            job.payload.clear();
            job.payload.resize(self.experiment.reply_len, 0);
            // A request that is gone by now needs no answer.
            let _ = endpoint.reply(turn.local, job.id, job.payload);
            server.refuse_expired(turn.now, endpoint);
            while let Some((workers, job)) =
                server.scheduler.poll_placed(turn.now, server.draws.word())
            {
                workers.each(job, |worker, job| server.start(turn.now, worker, job));
            }
        }
        server.refuse_expired(turn.now, endpoint);
        while let Some(event) = endpoint.poll_event() {
            let (id, client, payload, deadline) = match event {
                Event::Request { id, client, payload, deadline, .. } => {
                    (id, client, payload, deadline)
                }
                Event::Cancelled { id } => {
                    if let Some(ticket) = server.held.remove(&id) {
                        server.scheduler.remove(ticket);
                    }
                    continue;
                }
                Event::Replied { .. } | Event::Failed { .. } => continue,
            };
            let service_ns = self.experiment.service.sample_whole(&mut server.services);
            let job = Job { id, payload, service_ns };
            let random = server.draws.word();
            // A request does not say to its host whether it may run twice.
            let wait = Wait::of(share_of(client.ip()), turn.now, deadline);
            match server.scheduler.offer(job, Cloning::Forbidden, wait, random) {
                Outcome::Placed(workers, job) => {
                    workers.each(job, |worker, job| server.start(turn.now, worker, job));
                }
                Outcome::Held(ticket) => drop(server.held.insert(id, ticket)),
                Outcome::Full(job) => {
                    let _ = endpoint.refuse(turn.local, job.id, DropReason::Overload);
                    endpoint.recycle(job.payload);
                }
            }
        }
        endpoint.set_retry_after(server.scheduler.retry_after_ns());
        for (at, word) in server.started.drain(..) {
            turn.wake_in(at - turn.now, word);
        }
    }

    fn findings(self, network: &Network<Member<Endpoint>>) -> Findings {
        let place = self.experiment.clients as usize;
        let router = network.node(place).router().map(Router::metrics);
        let clients = (0..place).filter_map(|client| network.node(client).endpoint());
        let resent = clients.map(|endpoint| endpoint.metrics().resent);
        let elapsed_ns = network.now() - START;
        let workers = f64::from(self.experiment.servers) * f64::from(self.experiment.workers);
        // What the workers can serve in a slice.
        let full = self.experiment.calls as f64 / self.experiment.load / GOODPUT_SLICES as f64;
        let counted = self.answered.iter().skip(GOODPUT_SLICES / WARMUP_SHARE as usize);
        Findings {
            latencies: self.latencies,
            counts: self.counts,
            goodput_over_time: counted.map(|&count| count as f64 / full).collect(),
            normal_after_ns: self.disturbed_at.saturating_sub(self.load_ends_at),
            network: network.statistics(),
            switches: network.fabric().map(|fabric| fabric.switch_counters()).unwrap_or_default(),
            router,
            resent: resent.sum(),
            utilisation: self.served_ns as f64 / (elapsed_ns as f64 * workers),
            elapsed_ns,
        }
    }
}

impl Server {
    fn new(experiment: &Experiment, index: u64) -> Self {
        let mut scheduler = Scheduler::new(experiment.dispatch.build(), JOBS_MAX)
            .with_overload(OverloadConfig::DEFAULT);
        for _ in 0..experiment.workers {
            scheduler.add_worker();
        }
        Self {
            scheduler,
            cores: vec![FifoWorker::new(); experiment.workers as usize],
            running: Vec::new(),
            held: HashMap::with_hasher(FixedState::with_seed(0)),
            free: Vec::new(),
            services: generator(experiment.seed, SERVICES + index),
            draws: Draws::new(experiment.seed.wrapping_mul(3) ^ index),
            started: Vec::new(),
        }
    }

    /// Refuses what has waited for too long. A host looks when something happens to it, which under
    /// overload is often.
    fn refuse_expired(&mut self, now: Time, endpoint: &mut Endpoint) {
        while let Some(job) = self.scheduler.poll_expired(now) {
            self.held.remove(&job.id);
            // A request that is gone by now needs no answer.
            let _ = endpoint.refuse(now, job.id, DropReason::Overload);
            endpoint.recycle(job.payload);
        }
    }

    /// Gives a job to a core.
    fn start(&mut self, now: Time, worker: WorkerId, job: Job) {
        self.held.remove(&job.id);
        let finish = self.cores[worker.index()].serve(now, job.service_ns);
        let word = self.free.pop().unwrap_or(self.running.len());
        if word == self.running.len() {
            self.running.push(None);
        }
        self.running[word] = Some((worker, job));
        self.started.push((finish, word as u64));
    }

    fn finish(&mut self, word: usize) -> Job {
        let (worker, job) = self.running[word].take().expect("an alarm is set for a job that runs");
        self.free.push(word);
        self.scheduler.conclude(worker);
        job
    }
}

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Answered, at a time.
    Replied(Time),
    /// Nobody answered in time.
    Timeout,
    /// A router, a server or the client itself has refused it.
    Refused,
}

/// The address of the host at a place.
fn host(place: u32) -> SocketAddr {
    ((0x0a00_0000 + place).to_be_bytes(), PORT).into()
}

fn ip_word(address: SocketAddr) -> u64 {
    match address.ip() {
        std::net::IpAddr::V4(ip) => u64::from(ip.to_bits()),
        std::net::IpAddr::V6(ip) => ip.to_bits() as u64,
    }
}

/// Time for which a load is observed that follows the load of the calls.
pub const AFTER_NS: u64 = 600_000_000;
/// Slices of the time that the load takes, whose goodput is told.
pub const GOODPUT_SLICES: usize = 40;
/// Nodes have been up for so long when the first call comes: a router that has just started refuses
/// what may have run before.
const START: Time = 1_000_000_000;
/// [`tailcut_proto::r2p2::Serving::table_room`] of hosts, which changes nothing but where memory
/// lies.
const TABLE_ROOM: usize = 64;
/// Context of a call that is not counted; no call is intended at time 0.
const WARMUP: u64 = 0;
/// Requests that a server's host holds: as many as an endpoint does.
const JOBS_MAX: usize = 65_536;
const PORT: u16 = 9000;
/// Load of an experiment.
const LOAD_MAX: f64 = 1000.0;
/// Hosts of one experiment.
/// What wall clocks show at time 0: the first key's time.
const WALL_NS: u64 = 1_764_086_400_000_000_000;
const HOSTS_MAX: u64 = 1 << 20;
const DELAY_MAX_NS: u64 = 1_000_000_000;
/// Virtual time of one experiment.
const LENGTH_MAX_S: f64 = 3600.0;
/// Streams of the generator.
const ARRIVALS: u64 = 1 << 32;
const SERVICES: u64 = 2 << 32;
const ARRIVALS_AFTER: u64 = 3 << 32;
