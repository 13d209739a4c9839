//! A fault run as plain data: hosts, a list of calls and a list of faults, all of which
//! can be read and taken away.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use strum::{EnumCount, EnumDiscriminants, VariantNames};
use tailcut_measure::distribution::{Distribution, Form};
use tailcut_measure::quantity::Unit;
use tailcut_proto::homa::GrantPolicy;
use tailcut_proto::node::Time;
use tailcut_proto::policy::PolicySpec;
use tailcut_proto::r2p2::{AskCookies, Config, Copies, Hedge, Loser};
use tailcut_proto::router::{FilterAt, Forward, RouterConfig};
use tailcut_proto::sealed::Cipher;

use crate::clock::Clock;
use crate::fabric::topology::{Racks, Topology};
use crate::network::Damage;

/// A fault run. [`Plan::of_seed`] draws one; taking calls, faults or hosts away leaves a plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Everything random that happens during the run.
    pub seed: u64,
    /// Nothing is wrong but what strangers send: every call is to be answered.
    pub is_to_be_served: bool,
    /// Calls that a client makes in one moment leave together, and what takes no time is answered
    /// at once.
    pub is_together: bool,
    /// Condition under which servers ask for cookies.
    pub cookies: AskCookies,
    /// Links and switches, with a host for each of the plan's; `None` for 5 us between any two
    /// hosts.
    pub topology: Option<Topology>,
    /// The fate of damaged datagrams. Where they are delivered a bit may be flipped in
    /// anything, so that only what a node owes itself is checked: it does not panic, and every call
    /// ends once and by its deadline.
    pub damage: Damage,
    /// The transport of the endpoints.
    pub transport: Transport,
    /// Policy of every client for copies of its calls. Without a router they go to other servers.
    pub copies: Copies,
    /// Fate of the slower of two copies.
    pub loser: Loser,
    /// Payload bytes of a packet, at every endpoint.
    pub segment_len: u16,
    /// Payload bytes of a long packet, which the network then carries between all of them; 0 where
    /// there are none.
    pub long_len: u16,
    /// The router; `None` where clients call servers themselves.
    pub router: Option<RouterPlan>,
    /// At least one.
    pub servers: Vec<ServerPlan>,
    /// At least one.
    pub clients: Vec<ClientPlan>,
    /// Calls; their places are the numbers that requests carry.
    pub calls: Vec<CallPlan>,
    /// Byte streams, in place of calls.
    pub streams: Vec<StreamPlan>,
    /// Faults, each of which ends by itself.
    pub faults: Vec<Fault>,
    /// Every call must be answered, but for those whose handler refuses or panics.
    pub loses_nothing: bool,
    /// Every router must know soon that a server is dead, or back.
    pub is_timed: bool,
    /// Calls over what the workers can serve, where [`Plan::at_load`] has set it. Handlers then
    /// refuse what has waited for too long.
    pub load: Option<f64>,
    /// The client that calls far more than its share, where there is one: the others are to be
    /// answered, and soon, and the servers are to do what is of use.
    pub flooding_client: Option<usize>,
    /// Datagrams may take longer than the protocol is told: what may run once may run again where
    /// a copy arrives when its call has ended for longer than that.
    pub is_late: bool,
    /// Sealing of packets; `None` where they are open.
    pub seal: Option<SealPlan>,
}

/// The transport of a plan's endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// R2P2, with or without a router.
    R2p2,
    /// Homa, without a router, and how its receivers grant.
    Homa(GrantPolicy),
}

/// The router of a plan.
#[derive(Clone, Debug, Default)]
pub struct RouterPlan {
    /// Configuration, but for its servers and its seed, which the run fills in.
    pub config: RouterConfig,
    /// The host's clock.
    pub clock: Clock,
    /// There is a second router, set up alike, before the same servers. Clients know both, and move
    /// on from one to the other.
    pub has_standby: bool,
    /// Offset of the wall clocks of both, ms.
    pub off_ms: i64,
}

/// Sealing of a plan's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SealPlan {
    /// The group's AEAD.
    pub cipher: Cipher,
    /// Time for which each key is used, at least 20 ms; `None` for one in all the run.
    pub every_ns: Option<u64>,
    /// Clients have one number by twos, as processes that share a file.
    pub is_shared: bool,
    /// The group has a reset secret, so that hosts tell of keys that they have not.
    pub has_reset: bool,
}

/// A server of a plan.
#[derive(Clone, Debug)]
pub struct ServerPlan {
    /// Requests that run at once; the others wait in a central queue.
    pub workers: u32,
    /// Service time of a request, ns.
    pub service: Distribution,
    /// The factor on that; 1 but under a load that is asked for.
    pub service_factor: f64,
    /// [`tailcut_proto::r2p2::Serving::requests_max`].
    pub requests_max: usize,
    /// [`tailcut_proto::r2p2::Serving::partials_max`].
    pub partials_max: usize,
    /// [`tailcut_proto::r2p2::Config::clients_max`].
    pub clients_max: usize,
    /// [`tailcut_proto::r2p2::Config::message_len_max`].
    pub message_len_max: usize,
    /// Its tokens are those of a pool.
    pub is_pooled: bool,
    /// It takes every address for validated.
    pub is_trusting: bool,
    /// It is of a version that knows no claims.
    pub is_former: bool,
    /// The host's clock.
    pub clock: Clock,
    /// Offset of its wall clock, ms.
    pub off_ms: i64,
}

/// A client of a plan.
#[derive(Clone, Copy, Debug)]
pub struct ClientPlan {
    /// [`tailcut_proto::r2p2::Config::calls_max`].
    pub calls_max: usize,
    /// [`tailcut_proto::r2p2::Config::message_len_max`].
    pub message_len_max: usize,
    /// [`tailcut_proto::r2p2::Config::credit_bytes`].
    pub credit_bytes: usize,
    /// The host's clock.
    pub clock: Clock,
    /// Offset of its wall clock, ms.
    pub off_ms: i64,
}

/// A call of a plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallPlan {
    /// Time at which it is made.
    pub at: Time,
    /// Its client, by its place among the clients.
    pub client: usize,
    /// The server that it goes to where there is no router.
    pub server: usize,
    /// Bytes of the request, at least 8.
    pub request_len: usize,
    /// Bytes of the reply.
    pub reply_len: usize,
    /// Time to its deadline by the client's clock.
    pub timeout_ns: u64,
    /// Time from the call until the application gives it up, ns.
    pub cancel_after_ns: Option<u64>,
    /// It may run more than once.
    pub is_idempotent: bool,
    /// It must go to the router's first server.
    pub is_fixed: bool,
    /// The handler refuses it.
    pub is_refused: bool,
    /// The handler panics.
    pub panics: bool,
    /// Nothing is wrong any more when it is made, so that it must be answered.
    pub is_after_all: bool,
    /// The seed of its bytes and its service time, so that they stay when other calls are
    /// taken away.
    pub word: u64,
}

/// A stream of a plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamPlan {
    /// Time at which it is opened.
    pub at: Time,
    /// Its client, by its place among the clients.
    pub client: usize,
    /// Its server, by its place among the servers.
    pub server: usize,
    /// Bytes from the client, at least 8: the first are the stream's number.
    pub request_len: u64,
    /// Bytes from the server.
    pub reply_len: u64,
}

/// Something bad that begins and ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// Time at which it begins.
    pub at: Time,
    /// Duration, ns.
    pub lasts_ns: u64,
    /// Its kind.
    pub kind: FaultKind,
}

/// A kind of fault. `from` is the host whose datagrams suffer, `None` for those of all hosts.
#[derive(Clone, Copy, Debug, PartialEq, EnumCount, EnumDiscriminants, VariantNames)]
#[strum(serialize_all = "snake_case")]
#[strum_discriminants(vis())]
pub enum FaultKind {
    /// Datagrams are lost, each for itself.
    Loss {
        /// Sender of the datagrams; `None` for every host.
        from: Option<Host>,
        /// Share, 0 to 1.
        share: f64,
    },
    /// Datagrams are lost in bursts.
    Bursts {
        /// Sender of the datagrams; `None` for every host.
        from: Option<Host>,
        /// [`crate::impair::Bursts::begin`].
        begin: f64,
        /// [`crate::impair::Bursts::end`].
        end: f64,
    },
    /// Datagrams arrive twice.
    Duplicates {
        /// Sender of the datagrams; `None` for every host.
        from: Option<Host>,
        /// Share, 0 to 1.
        share: f64,
    },
    /// A bit of a datagram is flipped.
    Corruption {
        /// Sender of the datagrams; `None` for every host.
        from: Option<Host>,
        /// Share, 0 to 1.
        share: f64,
    },
    /// Datagrams take longer, uniformly.
    Jitter {
        /// Sender of the datagrams; `None` for every host.
        from: Option<Host>,
        /// At most so much, ns.
        most_ns: u64,
    },
    /// Datagrams are held back, so that others overtake them.
    Reordering {
        /// Sender of the datagrams; `None` for every host.
        from: Option<Host>,
        /// Share, 0 to 1.
        share: f64,
        /// For so long, ns.
        held_ns: u64,
    },
    /// Nothing that one sends arrives at the other.
    OneWayPartition {
        /// The host that is not heard.
        from: Host,
        /// The host that does not hear.
        to: Host,
    },
    /// Nothing arrives either way.
    Partition {
        /// One host.
        one: Host,
        /// The other.
        other: Host,
    },
    /// A host dies, and comes back knowing nothing.
    Crash {
        /// The host.
        host: Host,
    },
    /// A host's software is slow.
    Slowness {
        /// The host.
        host: Host,
        /// Added to each datagram on its way in and out, ns.
        delay_ns: u64,
        /// The factor on service times.
        factor: u64,
    },
    /// A host's processes are paused: what comes waits in the socket's buffer, as far as there is
    /// room, and what is due is done late.
    Pause {
        /// The host.
        host: Host,
    },
    /// A host's clock leaps forward, for good.
    ClockJump {
        /// The host.
        host: Host,
        /// By so much, ns.
        by_ns: u64,
    },
    /// Sends of a host fail, whole GSO batches at once.
    FailedSends {
        /// The host.
        host: Host,
        /// One of so many.
        one_of: u32,
    },
    /// The router is told to drain a server, and to resume it.
    Drain {
        /// The server.
        host: Host,
    },
    /// The router is told to remove a server, and to add it again.
    Removal {
        /// The server.
        host: Host,
    },
    /// Strangers send what they should not.
    Hostile {
        /// Datagrams that they send.
        attack: Attack,
        /// Time between two datagrams, ns.
        every_ns: u64,
    },
    /// A process is told to end: it drains, and another takes its place.
    Stop {
        /// A server, or the router.
        host: Host,
    },
    /// A server is restarted with other keys than its group's, and at the end with those.
    LostKeys {
        /// The server.
        host: Host,
        /// They are the group's of long ago; else of another secret under the same numbers.
        is_old: bool,
    },
    /// The wall clock of a host is set wrong, and at the end right.
    WallClock {
        /// The host.
        host: Host,
        /// By so much, ms.
        by_ms: i64,
    },
}

/// A kind of hostile traffic; [`super::hostile`] says what each sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table of `hostile` says what each is")]
pub enum Attack {
    HalfRequests,
    ForgedProbes,
    NamedClients,
    EchoingPorts,
    StrayCancels,
    ForgedFeedback,
    StaleFeedback,
    Unproven,
    Forged,
    Replayed,
}

/// A host of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// The router.
    Router,
    /// The second router.
    Standby,
    /// A server, by its place among the servers.
    Server(usize),
    /// A client, by its place among the clients.
    Client(usize),
}

impl Default for ServerPlan {
    /// A server of 16 workers that take 100 us.
    fn default() -> Self {
        let config = Config::default();
        let service = Distribution::new(Form::Fixed { value: 100_000.0 }, Unit::Time);
        Self {
            workers: 16,
            service: service.unwrap_or_else(|error| panic!("{error}")),
            service_factor: 1.0,
            requests_max: config.serving.requests_max,
            partials_max: config.serving.partials_max,
            clients_max: config.clients_max,
            message_len_max: config.message_len_max,
            is_pooled: false,
            is_trusting: false,
            is_former: false,
            clock: Clock::default(),
            off_ms: 0,
        }
    }
}

impl Default for ClientPlan {
    fn default() -> Self {
        let Config { calls_max, message_len_max, credit_bytes, .. } = Config::default();
        Self { calls_max, message_len_max, credit_bytes, clock: Clock::default(), off_ms: 0 }
    }
}

impl Default for Plan {
    /// One client, one server, no router and nothing to do.
    fn default() -> Self {
        Self {
            seed: 0,
            is_to_be_served: false,
            is_together: false,
            cookies: AskCookies::Never,
            topology: None,
            damage: Damage::Noticed,
            transport: Transport::R2p2,
            copies: Copies::Never,
            loser: Loser::Runs,
            segment_len: Config::default().segment_len,
            long_len: 0,
            router: None,
            servers: vec![ServerPlan::default()],
            clients: vec![ClientPlan::default()],
            calls: Vec::new(),
            streams: Vec::new(),
            faults: Vec::new(),
            loses_nothing: false,
            is_timed: false,
            load: None,
            flooding_client: None,
            is_late: false,
            seal: None,
        }
    }
}

impl Plan {
    /// The plan of a seed with Homa endpoints, and without what only R2P2 has.
    pub fn homa_of_seed(seed: u64) -> Self {
        Self::of_seed(seed).over_homa()
    }

    /// The plan of a seed whose network carries long packets: those of [`Plan::of_seed`], half of
    /// them without a router.
    pub fn long_of_seed(seed: u64) -> Self {
        let plan = Self::of_seed(seed);
        let mut plan = if seed.is_multiple_of(2) { plan.without_router() } else { plan };
        plan.long_len = plan.segment_len.saturating_mul(4).min(20_000);
        plan
    }

    /// The plan of a seed with a router of this policy, and mostly calls that may be cloned. Of
    /// four seeds one has clients that hedge, and every other one cancels the slower copy.
    pub fn cloning_of_seed(seed: u64, policy: PolicySpec) -> Self {
        let mut plan = Self::of_seed(seed);
        let config = &mut plan.router.get_or_insert_default().config;
        config.policy = policy;
        if config.hold_ns_max < HOLD_NS_LONG {
            // With few slots for all, one may refuse the other within the limits.
            plan.calls.retain(|call| !call.is_after_all);
        }
        plan.filter_in_router();
        plan.allow_copies();
        if seed.is_multiple_of(4) {
            // Early and many, so that short runs have some.
            plan.copies = Copies::Hedge(Hedge { quantile_permille: 500, budget_permille: 200 });
        }
        plan
    }

    /// The plan of a seed without a router, whose clients send copies themselves: hedge, and where
    /// the seed is odd of all calls.
    pub fn client_cloning_of_seed(seed: u64) -> Self {
        let mut plan = Self::of_seed(seed);
        plan.router = None;
        plan.faults.retain(|fault| !fault.kind.concerns_router());
        plan.allow_copies();
        let hedge = Hedge { quantile_permille: 500, budget_permille: 200 };
        plan.copies = if seed % 2 == 1 { Copies::Always } else { Copies::Hedge(hedge) };
        plan
    }

    /// Replies come back through the router where it keeps the clients' addresses, but for every
    /// fourth seed. Its tables are short, so that calls compete for cells.
    fn filter_in_router(&mut self) {
        let config = &mut self.router.get_or_insert_default().config;
        if config.forward == Forward::Keep && !self.seed.is_multiple_of(4) {
            config.filter = FilterAt::Router;
            config.filter_len = [1, 7, 256][(self.seed % 3) as usize];
        }
    }

    /// Three of four calls become idempotent, and the slower copy is cancelled by every other seed.
    fn allow_copies(&mut self) {
        for call in &mut self.calls {
            call.is_idempotent |= call.word % 4 > 0;
        }
        self.loser =
            if (self.seed / 4).is_multiple_of(2) { Loser::Runs } else { Loser::IsCancelled };
    }

    /// Time from which nothing new happens: the last call has been made, the last stream opened,
    /// and the last fault has ended.
    pub fn quiet_at(&self) -> Time {
        let calls = self.calls.iter().map(|call| call.at);
        let streams = self.streams.iter().map(|stream| stream.at);
        let faults = self.faults.iter().map(|fault| fault.at + fault.lasts_ns);
        calls.chain(streams).chain(faults).max().unwrap_or(0)
    }

    /// Calls, streams and faults, which is what there is to take away.
    pub fn item_count(&self) -> usize {
        self.calls.len() + self.streams.len() + self.faults.len()
    }

    /// True if a router may refuse a call as expired when all is well, because it holds none for
    /// long and another one is there: docs/concepts.md promises no more for `hold_ns_max`.
    pub(super) fn holds_briefly(&self) -> bool {
        self.router.as_ref().is_some_and(|router| router.config.hold_ns_max < HOLD_NS_LONG)
    }

    /// Times at which servers are added again that were removed, and their indices.
    pub(super) fn servers_added(&self) -> Vec<(Time, usize)> {
        let added = self.faults.iter().filter_map(|fault| match fault.kind {
            FaultKind::Removal { host: Host::Server(server) } => {
                Some((fault.at + fault.lasts_ns, server))
            }
            _ => None,
        });
        added.collect()
    }

    /// Longest time that the network holds a datagram for `to`, ns; `None` where that has no bound.
    ///
    /// Queues without a limit of bytes may hold more than the links carry in the time that nodes
    /// are told, on which at most once rests: what waits there for longer is lost. A router says
    /// nothing of how long a request was under way to it, so that the ways before and behind it
    /// share the time. A client needs no bound.
    pub(super) fn transit_ns_max(&self, to: Host) -> Option<u64> {
        let hops = if self.router.is_some() { 2 } else { 1 };
        let is_bound = !self.is_late && !matches!(to, Host::Client(_));
        is_bound.then_some(TRANSIT_NS_MAX / hops)
    }

    /// True if strangers attack so.
    pub(super) fn has_attack(&self, attack: Attack) -> bool {
        let is_it = |fault: &Fault| match fault.kind {
            FaultKind::Hostile { attack: found, .. } => found == attack,
            _ => false,
        };
        self.faults.iter().any(is_it)
    }

    /// Every host, by its place in the network.
    pub fn hosts(&self) -> impl Iterator<Item = Host> {
        self.routers()
            .chain((0..self.servers.len()).map(Host::Server))
            .chain((0..self.clients.len()).map(Host::Client))
    }

    /// The routers.
    pub(super) fn routers(&self) -> impl Iterator<Item = Host> + use<> {
        let standby = self.has_standby().then_some(Host::Standby);
        self.router.as_ref().map(|_| Host::Router).into_iter().chain(standby)
    }

    /// True if there are two routers.
    pub(super) fn has_standby(&self) -> bool {
        self.router.as_ref().is_some_and(|router| router.has_standby)
    }

    /// The place of a host in the network.
    pub(super) fn place(&self, host: Host) -> usize {
        let routers = self.routers().count();
        match host {
            Host::Router => 0,
            Host::Standby => 1,
            Host::Server(index) => routers + index,
            Host::Client(index) => routers + self.servers.len() + index,
        }
    }

    /// The clock of a host.
    pub(super) fn clock(&self, host: Host) -> Clock {
        match host {
            Host::Router | Host::Standby => {
                self.router.as_ref().map_or(Clock::default(), |router| router.clock)
            }
            Host::Server(index) => self.servers[index].clock,
            Host::Client(index) => self.clients[index].clock,
        }
    }
}

/// Calls by the time at which they are made.
pub(super) fn in_time_order(calls: impl IntoIterator<Item = CallPlan>) -> Vec<CallPlan> {
    let mut calls: Vec<CallPlan> = calls.into_iter().collect();
    calls.sort_by_key(|call| call.at);
    calls
}

impl FaultKind {
    /// Its place in [`FaultKind::VARIANTS`](strum::VariantNames::VARIANTS).
    pub fn index(&self) -> usize {
        FaultKindDiscriminants::from(self) as usize
    }

    /// True for a fault of the router's servers, or of the router itself.
    pub(super) fn concerns_router(&self) -> bool {
        matches!(self, Self::Drain { .. } | Self::Removal { .. })
            || self.hosts().iter().any(|host| matches!(host, Host::Router | Host::Standby))
    }

    /// Every host that it names.
    pub fn hosts(mut self) -> Vec<Host> {
        self.hosts_mut().into_iter().map(|host| *host).collect()
    }

    /// Every host that it names, to be renamed.
    pub(super) fn hosts_mut(&mut self) -> Vec<&mut Host> {
        match self {
            Self::Loss { from, .. }
            | Self::Bursts { from, .. }
            | Self::Duplicates { from, .. }
            | Self::Corruption { from, .. }
            | Self::Jitter { from, .. }
            | Self::Reordering { from, .. } => from.iter_mut().collect(),
            Self::OneWayPartition { from: one, to: other } | Self::Partition { one, other } => {
                vec![one, other]
            }
            Self::Crash { host }
            | Self::Pause { host }
            | Self::ClockJump { host, .. }
            | Self::FailedSends { host, .. }
            | Self::Slowness { host, .. }
            | Self::Drain { host }
            | Self::Removal { host }
            | Self::LostKeys { host, .. }
            | Self::WallClock { host, .. }
            | Self::Stop { host } => vec![host],
            Self::Hostile { .. } => Vec::new(),
        }
    }
}

impl Host {
    /// Its address.
    pub fn address(self) -> SocketAddr {
        match self {
            Self::Router => ([10, 0, 0, 1], 9000).into(),
            Self::Standby => ([10, 0, 0, 2], 9000).into(),
            Self::Server(index) => ([10, 0, 1, index as u8], 8000).into(),
            Self::Client(index) => ([10, 0, 2, index as u8], 33_000).into(),
        }
    }

    /// The host that has the address.
    pub fn at(address: SocketAddr) -> Option<Self> {
        let IpAddr::V4(ip) = address.ip() else { return None };
        match (ip.octets(), address.port()) {
            ([10, 0, 0, 1], 9000) => Some(Self::Router),
            ([10, 0, 0, 2], 9000) => Some(Self::Standby),
            ([10, 0, 1, index], 8000) => Some(Self::Server(index.into())),
            ([10, 0, 2, index], 33_000) => Some(Self::Client(index.into())),
            _ => None,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Router => write!(f, "router"),
            Self::Standby => write!(f, "second router"),
            Self::Server(index) => write!(f, "server {index}"),
            Self::Client(index) => write!(f, "client {index}"),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_topology(f)?;
        writeln!(
            f,
            ", segments of {} B, damaged datagrams are {:?}",
            self.segment_len, self.damage
        )?;
        if self.long_len > 0 {
            writeln!(f, "long ones of {} B", self.long_len)?;
        }
        if let Some(seal) = self.seal {
            writeln!(f, "sealed: {seal:?}")?;
        }
        if let Some(RouterPlan { config, clock, has_standby, .. }) = &self.router {
            let RouterConfig { policy, forward, queue_len_max, table_len_max, .. } = config;
            let count = if *has_standby { "two routers" } else { "router" };
            write!(f, "{count}: {policy}, {forward:?}, holds {queue_len_max}")?;
            write!(f, " for {} and knows {table_len_max},", Span(config.hold_ns_max))?;
            writeln!(f, " probes every {}{}", Span(config.probe_interval_ns), Skew(*clock))?;
        }
        if self.copies != Copies::Never || self.loser != Loser::Runs {
            writeln!(f, "clients: copies {:?}, the slower {:?}", self.copies, self.loser)?;
        }
        if self.cookies != AskCookies::Never {
            let router = self.router.as_ref().map(|router| router.config.cookies.ask);
            writeln!(f, "cookies: servers ask {:?}, the router {router:?}", self.cookies)?;
        }
        for (index, server) in self.servers.iter().enumerate() {
            let pooled = if server.is_pooled { ", in the pool" } else { "" };
            let trusting = if server.is_trusting { ", trusting" } else { "" };
            write!(f, "server {index}: {} x {}{pooled}{trusting}", server.workers, server.service)?;
            if server.service_factor != 1.0 {
                write!(f, ", times {:.3}", server.service_factor)?;
            }
            f.write_str(if server.is_former { ", of a former version" } else { "" })?;
            write!(
                f,
                ", at most {} requests, {} partials",
                server.requests_max, server.partials_max
            )?;
            writeln!(
                f,
                ", {} clients, messages of {} B{}",
                server.clients_max,
                server.message_len_max,
                Skew(server.clock)
            )?;
        }
        for (index, client) in self.clients.iter().enumerate() {
            write!(
                f,
                "client {index}: at most {} calls, messages of {} B",
                client.calls_max, client.message_len_max
            )?;
            writeln!(f, ", {} B of credit{}", client.credit_bytes, Skew(client.clock))?;
        }
        for fault in &self.faults {
            writeln!(f, "{fault}")?;
        }
        for (number, call) in self.calls.iter().enumerate() {
            writeln!(f, "{} call {number}: {call}", Moment(call.at))?;
        }
        for stream in &self.streams {
            writeln!(f, "{stream}")?;
        }
        Ok(())
    }
}

impl fmt::Display for CallPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {}, {} B for {} B", self.client, self.request_len, self.reply_len)?;
        write!(f, " from server {} or the router within {}", self.server, Span(self.timeout_ns))?;
        for (is_so, text) in [
            (self.is_idempotent, ", idempotent"),
            (self.is_fixed, ", fixed"),
            (self.is_refused, ", refused by the handler"),
            (self.panics, ", whose handler panics"),
            (self.is_after_all, ", after all faults"),
        ] {
            if is_so {
                f.write_str(text)?;
            }
        }
        match self.cancel_after_ns {
            Some(after_ns) => write!(f, ", given up after {}", Span(after_ns)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for StreamPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, client, server, request_len, reply_len } = self;
        write!(f, "{} stream from client {client} to server {server}: ", Moment(*at))?;
        write!(f, "{request_len} B there and {reply_len} B back")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose =
            |from: Option<Host>| from.map_or("everyone".to_owned(), |host| host.to_string());
        write!(f, "{} for {}: ", Moment(self.at), Span(self.lasts_ns))?;
        match self.kind {
            FaultKind::Loss { from, share } => {
                write!(f, "a share of {share:.3} from {} is lost", whose(from))
            }
            FaultKind::Bursts { from, begin, end } => {
                write!(f, "what {} sends is lost in bursts ({begin:.4}, {end:.3})", whose(from))
            }
            FaultKind::Duplicates { from, share } => {
                write!(f, "a share of {share:.3} from {} is doubled", whose(from))
            }
            FaultKind::Corruption { from, share } => {
                write!(f, "a share of {share:.3} from {} is damaged", whose(from))
            }
            FaultKind::Jitter { from, most_ns } => {
                write!(f, "jitter of {} from {}", Span(most_ns), whose(from))
            }
            FaultKind::Reordering { from, share, held_ns } => {
                write!(
                    f,
                    "a share of {share:.3} from {} is held for {}",
                    whose(from),
                    Span(held_ns)
                )
            }
            FaultKind::OneWayPartition { from, to } => {
                write!(f, "nothing gets from {from} to {to}")
            }
            FaultKind::Partition { one, other } => {
                write!(f, "nothing gets between {one} and {other}")
            }
            FaultKind::Crash { host } => write!(f, "{host} is down"),
            FaultKind::Pause { host } => write!(f, "{host} is paused"),
            FaultKind::ClockJump { host, by_ns } => {
                write!(f, "the clock of {host} leaps by {}", Span(by_ns))
            }
            FaultKind::FailedSends { host, one_of } => {
                write!(f, "one of {one_of} sends of {host} fails")
            }
            FaultKind::Slowness { host, delay_ns, factor } => {
                write!(f, "{host} is slow by {} and {factor} times", Span(delay_ns))
            }
            FaultKind::Drain { host } => write!(f, "{host} is drained"),
            FaultKind::Removal { host } => write!(f, "{host} is removed from the router"),
            FaultKind::Hostile { attack, every_ns } => {
                write!(f, "strangers send {attack:?} every {}", Span(every_ns))
            }
            FaultKind::Stop { host } => write!(f, "{host} drains, and is replaced"),
            FaultKind::LostKeys { host, is_old } => {
                write!(f, "{host} has {} keys", if is_old { "old" } else { "another group's" })
            }
            FaultKind::WallClock { host, by_ms } => {
                write!(f, "the wall clock of {host} is off by {by_ms} ms")
            }
        }
    }
}

/// A point in time, in columns.
pub(super) struct Moment(pub(super) Time);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>11.6} ms", self.0 as f64 / 1e6)
    }
}

/// A length of time.
pub(super) struct Span(pub(super) u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= 1_000_000 {
            write!(f, "{:.2} ms", self.0 as f64 / 1e6)
        } else {
            write!(f, "{:.1} us", self.0 as f64 / 1e3)
        }
    }
}

/// Error of a clock, for texts.
struct Skew(Clock);

impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == Clock::default() {
            return Ok(());
        }
        write!(f, ", clock off by {} and {} ppb", Span(self.0.offset_ns), self.0.drift_ppb)
    }
}

impl Plan {
    fn write_topology(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Topology { link, switch, racks }) = self.topology else {
            return write!(f, "5 us between any two hosts");
        };
        let (rate, buffer) = (link.ps_per_byte, switch.buffer.capacity_bytes);
        match racks {
            None => write!(f, "one switch, {rate} ps/B, buffers of {buffer} B"),
            Some(Racks { hosts, spines, spreading, .. }) => {
                let racks = self.hosts().count().div_ceil(hosts as usize);
                write!(f, "{racks} racks of {hosts} under {spines} spines, {spreading:?}, ")?;
                write!(f, "{rate} ps/B, buffers of {buffer} B")
            }
        }
    }
}

/// Longest time that the network may hold a datagram, as nodes are told (`transit_ns_max`, by
/// default).
pub(super) const TRANSIT_NS_MAX: u64 = 10_000_000;

/// A router that holds for less may refuse a call because another one is there.
const HOLD_NS_LONG: u64 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_their_hosts() {
        for host in [Host::Router, Host::Standby, Host::Server(7), Host::Client(5)] {
            assert_eq!(Host::at(host.address()), Some(host));
        }
        assert_eq!(Host::at(([10, 0, 3, 0], 33_000).into()), None);
    }
}
