//! Jobs that agents are asked to do, and the events that they tell while they do so.
//!
//! A job is declarative: it names a load and targets, and nothing that runs. The same job drives
//! the threads of this process and those of an agent elsewhere; a coordinator sees both as
//! [`AgentEvent`] and cannot tell them apart.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use strum::{AsRefStr, EnumString};
use tailcut_measure::app::{Carrier, Login};
use tailcut_measure::slices::Slice;
use tailcut_measure::stamps::{Latencies, MatchCounts};
use tailcut_net::keys::LiveKeys;
use tailcut_net::open::{DatapathKind, Opening, Protocol};
use tailcut_net::trace::TraceConfig;
use tailcut_net::xdp::XdpConfig;
use tailcut_proto::r2p2::{Cloning, Copies, Hedge, Loser};

use super::clones::CloneCounts;
use super::host_load::CpuCounts;
use super::packet_drops::DropCounts;
use super::result::Host;

/// A share of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Transport that carries requests.
    pub transport: Transport,
    /// As people write it: `redis:keys=1M`.
    pub app: String,
    /// Addresses, resolved by the agent.
    pub targets: Vec<String>,
    /// Its part of the load.
    pub load: LoadShare,
    /// Role of the agent.
    pub role: Role,
    /// Load threads.
    pub threads: u32,
    /// Over all threads and targets.
    pub connections: u32,
    /// Requests outstanding on a connection at most; beyond, what is due waits for a free one.
    pub pipeline: u32,
    /// Time after which a request is given up, counted from when it leaves, ns.
    pub timeout_ns: u64,
    /// The seed of the run.
    pub seed: u64,
    /// The first stream of the seed that is this agent's; it takes [`STREAMS_PER_THREAD`] for each
    /// thread.
    pub first_stream: u64,
    /// Length of a slice, ns.
    pub slice_ns: u64,
    /// One request in so many is stamped on transmission, where stamps are to be had; 0 for none.
    pub stamp_every: u32,
    /// Configuration of TLS; for [`Transport::Tls`].
    pub tls: Option<Tls>,
    /// Credentials that connections log in with, where the application has a login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<Credentials>,
    /// Options of calls over R2P2 and Homa.
    pub r2p2: R2p2,
    /// Servers behind the switch, whose pairs a client draws; for [`Transport::NetClone`].
    pub netclone_servers: u32,
    /// As `--datapath` has it, `xdp:eth0`; of R2P2 and Homa. Sockets by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datapath: Option<String>,
    /// Fill the store with every key before the load begins.
    pub preload: bool,
    /// Load whatever a request before the load is answered.
    #[serde(default)]
    pub no_probe: bool,
    /// Spin instead of sleeping between requests.
    pub busy_poll: bool,
    /// Time to spin after the last traffic before sleeping, ns; where it does not spin for ever.
    pub spin_ns: u64,
    /// Trace of the first thread's endpoints. Only an agent of this process makes one.
    #[serde(skip)]
    pub trace: Option<TraceConfig>,
    /// Packets are sealed, by the keys that each agent has; of R2P2 and Homa.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_sealed: bool,
    /// A client's keys: those of this process. No coordinator sends any.
    #[serde(skip)]
    pub seal: Option<LiveKeys>,
    /// Grant of an agent on behalf of another host.
    #[serde(skip)]
    pub granted: Granted,
}

/// Credentials of connections. They are sent to agents, whose connections are encrypted, and are in
/// no result and no text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// The server's default user, if there is none.
    pub user: Option<String>,
    /// In clear.
    pub password: String,
}

impl Credentials {
    /// As applications take them.
    pub fn login(&self) -> Login<'_> {
        Login { user: self.user.as_deref(), password: &self.password }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// Grant for a job: what an agent has found to be within its limits; nothing where there are none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Granted {
    /// Requests a second at most, over all threads and in every loop.
    pub rate_max_per_s: Option<f64>,
    /// The address of each target as it was checked, which a name need not have any more. Where
    /// there are none, names are resolved.
    pub addresses: Vec<SocketAddr>,
}

/// Carrier of requests and their replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, AsRefStr)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Transport {
    /// TCP
    Tcp,
    /// TLS over TCP
    Tls,
    /// Datagrams
    Udp,
    /// R2P2 over UDP
    R2p2,
    /// Homa inside UDP
    Homa,
    /// Homa directly over IP, as protocol 146, which needs CAP_NET_RAW
    HomaIp,
    /// Homa directly over IP in the disguise of TCP, as the Linux module's with hijack_tcp=1
    HomaTcp,
    /// NetClone's published format over UDP
    #[cfg_attr(feature = "clap", value(name = "netclone"))]
    #[serde(rename = "netclone")]
    #[strum(serialize = "netclone")]
    NetClone,
}

impl Transport {
    /// Opening of endpoints of R2P2 and Homa over it: the protocol and what carries it.
    pub fn opening(self) -> Opening {
        let (protocol, datapath) = match self {
            Self::Homa => (Protocol::Homa, DatapathKind::Udp),
            Self::HomaIp => (Protocol::Homa, DatapathKind::Ip),
            Self::HomaTcp => (Protocol::Homa, DatapathKind::HijackedTcp),
            Self::Tcp | Self::Tls | Self::Udp | Self::R2p2 | Self::NetClone => {
                (Protocol::R2p2, DatapathKind::Udp)
            }
        };
        Opening { protocol, datapath, ..Opening::default() }
    }

    /// As [`Transport::opening`], past the kernel's stack where a configuration is given.
    ///
    /// # Errors
    ///
    /// In words, why it goes through the kernel alone.
    pub fn opening_over(self, config: Option<XdpConfig>) -> Result<Opening> {
        let mut opening = self.opening();
        if let Some(config) = config {
            ensure!(
                self.has_endpoints(),
                "--datapath is of R2P2 and Homa; leave it out, or change --transport"
            );
            opening.datapath = opening.datapath.over_xdp(config)?;
        }
        Ok(opening)
    }

    /// Carrier that the transport is to applications.
    pub fn carrier(self) -> Carrier {
        match self {
            Self::Tcp | Self::Tls => Carrier::Stream,
            Self::Udp => Carrier::Datagram,
            Self::R2p2 | Self::Homa | Self::HomaIp | Self::HomaTcp | Self::NetClone => {
                Carrier::Message
            }
        }
    }

    /// Transport of an application that nobody names one for.
    pub fn of(carrier: Carrier) -> Self {
        match carrier {
            Carrier::Stream => Self::Tcp,
            Carrier::Datagram => Self::Udp,
            Carrier::Message => Self::R2p2,
        }
    }

    /// True if the transport is a stream of bytes.
    pub fn is_stream(self) -> bool {
        self.carrier() == Carrier::Stream
    }

    /// True if endpoints of R2P2 or Homa run at its ends.
    pub fn has_endpoints(self) -> bool {
        matches!(self, Self::R2p2 | Self::Homa | Self::HomaIp | Self::HomaTcp)
    }
}

/// Task of an agent.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, AsRefStr, EnumString,
)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Role {
    /// Loads, and measures every request
    #[default]
    Symmetric,
    /// Loads; its latencies are not counted
    Throughput,
    /// One request at a time for each thread, busy polling, lightly; its latencies are those that
    /// count
    Latency,
}

/// Share of the load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadShare {
    /// An open loop with gaps of this shape, at so many requests a second over all threads.
    Open {
        /// Requests a second.
        rate_per_s: f64,
        /// In the text form.
        arrivals: String,
    },
    /// A closed loop with so many requests outstanding over all threads.
    Closed {
        /// Requests.
        outstanding: u32,
    },
}

/// Verification of a TLS server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The name to ask for and to verify; the target's by default.
    pub name: Option<String>,
    /// Certificates to trust, PEM.
    pub roots_pem: Option<String>,
    /// Trust whatever it shows.
    pub insecure: bool,
}

/// Options of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct R2p2 {
    /// Requests may run more than once.
    pub idempotent: bool,
    /// Speak version 1.
    pub v1: bool,
    /// Copies that clients send themselves.
    pub clones: Clones,
    /// The slower of two copies is cancelled when the other has answered.
    pub cancel_loser: bool,
    /// The targets stand for each other: calls move on from one that does not answer.
    pub failover: bool,
    /// Calls keep the time between them that an overloaded target asks for, as the library's do:
    /// the load is then not what was asked for.
    pub paced: bool,
}

impl R2p2 {
    /// The configuration of a client, whose copies go to `targets` if they are several.
    pub(crate) fn cloning(self, targets: &[SocketAddr]) -> Cloning {
        let loser = if self.cancel_loser { Loser::IsCancelled } else { Loser::Runs };
        Cloning { loser, ..self.clones.cloning(targets) }
    }
}

/// Copies of calls that clients send, to another target, or where there is one alone to the router
/// there. In text `off`, `c-clone`, `hedge:p95` or, with a budget, `hedge:p95:10%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Clones {
    /// None.
    #[default]
    Off,
    /// Copies of all calls, at once.
    All,
    /// Copies of calls that take long.
    Hedge {
        /// Quantile of the measured times after which a copy goes, in thousandths.
        quantile_permille: u16,
        /// Most copies, in thousandths of calls.
        budget_permille: u16,
    },
}

impl Clones {
    /// The configuration of a client, whose copies go to `targets` if they are several.
    fn cloning(self, targets: &[SocketAddr]) -> Cloning {
        let copies = match self {
            Self::Off => Copies::Never,
            Self::All => Copies::Always,
            Self::Hedge { quantile_permille, budget_permille } => {
                Copies::Hedge(Hedge { quantile_permille, budget_permille })
            }
        };
        let is_one = targets.iter().all(|target| Some(target) == targets.first());
        let servers = if is_one { Vec::new() } else { targets.to_vec() };
        Cloning { copies, servers, ..Cloning::default() }
    }
}

impl FromStr for Clones {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => return Ok(Self::Off),
            "c-clone" => return Ok(Self::All),
            _ => {}
        }
        let refused = || {
            format!(
                "{text:?} is none of off, c-clone and hedge:pN, such as hedge:p95 or hedge:p95:10%"
            )
        };
        let rest = text.strip_prefix("hedge:p").ok_or_else(refused)?;
        let (quantile, budget) = rest.split_once(':').unwrap_or((rest, "5%"));
        let permille = |text: &str| {
            let percent = text.parse::<f64>().ok().filter(|percent| (0.1..100.0).contains(percent));
            percent.map(|percent| (percent * 10.0).round() as u16)
        };
        let budget = budget.strip_suffix('%').and_then(permille).ok_or_else(refused)?;
        let quantile_permille = permille(quantile).ok_or_else(refused)?;
        Ok(Self::Hedge { quantile_permille, budget_permille: budget })
    }
}

/// Event that an agent tells.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum AgentEvent {
    /// Its connections are open and its store is filled: it can start.
    Ready {
        /// Host on which the agent loads.
        host: Host,
        /// The best stamps that arrive there.
        stamps: StampKind,
    },
    /// Outcomes of a thread's requests in one slice.
    #[serde(skip)]
    Slice {
        /// Number of the thread.
        thread: u32,
        /// Its next slice.
        slice: Slice,
    },
    /// Counts of threads since they last told, and the latencies of requests that several clocks
    /// have stamped.
    #[serde(skip)]
    Client {
        /// Counted by threads.
        client: ClientCounts,
        /// Counted of stamps.
        stamps: MatchCounts,
        /// Latencies by several clocks.
        stamped: Vec<Latencies>,
    },
    /// It has stopped as asked, and told everything.
    Done,
    /// It cannot go on.
    Failed(String),
}

/// Kind of the stamps that a latency is made of, from the best to the least. As text it is its name
/// in results.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, AsRefStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum StampKind {
    /// By the network interface.
    Hardware,
    /// By the kernel.
    Kernel,
    /// By the load thread.
    #[default]
    User,
}

/// Counters of a client that bear on the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCounts {
    /// Connections that ended and were opened again.
    pub reconnects: u64,
    /// Replies that the application would not have given, or that answer nothing.
    pub mismatched: u64,
    /// Times that a limit on what is outstanding held a due request back.
    pub saturated: u64,
    /// Packets sent again.
    pub resent: u64,
    /// Times that a thread slept.
    pub sleeps: u64,
    /// Times that the network answered that a datagram cannot be delivered.
    pub icmp_errors: u64,
    /// Datagrams that the kernel dropped before they were read.
    pub kernel_drops: u64,
    /// Counts of requests with two copies.
    pub clones: CloneCounts,
    /// Times of the CPUs that it ran on.
    pub cpu: CpuCounts,
    /// Packets that its host dropped, whosever they were.
    pub host_drops: DropCounts,
}

impl ClientCounts {
    /// Counts since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            reconnects: self.reconnects - earlier.reconnects,
            mismatched: self.mismatched - earlier.mismatched,
            saturated: self.saturated - earlier.saturated,
            resent: self.resent - earlier.resent,
            sleeps: self.sleeps - earlier.sleeps,
            icmp_errors: self.icmp_errors - earlier.icmp_errors,
            kernel_drops: self.kernel_drops - earlier.kernel_drops,
            clones: self.clones.since(&earlier.clones),
            cpu: self.cpu.since(&earlier.cpu),
            host_drops: self.host_drops.since(&earlier.host_drops),
        }
    }

    /// Adds what another thread counted.
    pub fn add(&mut self, other: &Self) {
        self.reconnects += other.reconnects;
        self.mismatched += other.mismatched;
        self.saturated += other.saturated;
        self.resent += other.resent;
        self.sleeps += other.sleeps;
        self.icmp_errors += other.icmp_errors;
        self.kernel_drops += other.kernel_drops;
        self.clones.add(&other.clones);
        self.cpu.add(&other.cpu);
        self.host_drops.add(&other.host_drops);
    }
}

/// An agent, here or elsewhere. Dropping it stops it.
pub trait Agent: Send {
    /// Its name in reports.
    fn name(&self) -> &str;

    /// Begins to connect; [`AgentEvent::Ready`] or [`AgentEvent::Failed`] follows.
    fn prepare(&mut self, job: &Job) -> Result<()>;

    /// Begins the load in so many ns, counted from now.
    fn start(&mut self, in_ns: u64) -> Result<()>;

    /// By how much the load may begin earlier or later than asked, ns at most: half of a round trip
    /// to an agent elsewhere.
    fn start_uncertainty_ns(&self) -> u64 {
        0
    }

    /// Spreads the load over so many connections from now on.
    fn set_connections(&mut self, connections: u32) -> Result<()>;

    /// Ends the load; slices that are open and [`AgentEvent::Done`] follow.
    fn stop(&mut self) -> Result<()>;

    /// Next event of the agent, waiting for so many ns at most. An agent that is gone tells
    /// [`AgentEvent::Failed`].
    fn poll(&mut self, wait_ns: u64) -> Option<AgentEvent>;
}

/// Streams of the seed that a thread draws from: gaps, and requests.
pub const STREAMS_PER_THREAD: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_clients_are_read_from_their_text() {
        let hedge = |quantile_permille, budget_permille| {
            Ok(Clones::Hedge { quantile_permille, budget_permille })
        };
        for (text, expected) in [
            ("off", Ok(Clones::Off)),
            ("c-clone", Ok(Clones::All)),
            ("hedge:p95", hedge(950, 50)),
            ("hedge:p99.9:0.5%", hedge(999, 5)),
        ] {
            assert_eq!(text.parse::<Clones>(), expected);
        }
        for text in ["", "clone", "hedge", "hedge:95", "hedge:p0", "hedge:p95:10", "hedge:p100"] {
            assert!(text.parse::<Clones>().unwrap_err().contains("hedge:p95:10%"), "{text}");
        }
    }

    #[test]
    fn copies_go_to_other_targets_or_by_the_router() {
        let [one, other] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        assert!(Clones::All.cloning(&[one, one]).servers.is_empty());
        assert_eq!(Clones::All.cloning(&[one, other]).servers, [one, other]);
    }
}
