//! Messages under load at the grain of packets: Homa's published simulation with the endpoint that
//! also runs over sockets, and what it is compared with.
//!
//! | module | what it is |
//! |---|---|
//! | [`paper`] | the network of the published simulation, what it charges for packets, and its ideal times |
//! | [`slowdown`] | how much longer messages took than those, by size |
//! | [`levels`] | which priorities unscheduled data has |
//! | `endpoint` | Homa itself |
//! | `load` | who sends how much to whom, and when |
//! | `messenger` | what an experiment asks of a transport |
//! | `lanes` | messages without priorities and grants, and streams |
//! | `oracle` | the bound: shortest remaining message first, without packets |
//! | [`bound`] | the bound: what a message waits behind packets that links are carrying |
//! | `packets` | a run of a transport over links and switches |
//! | `record` | when what was counted arrived |
//!
//! A message goes one way, and is done when the last of it is there. Messages come for
//! [`Experiment::duration_ns`], and those of the warm-up are not counted. Then the run goes on for
//! as long again, so that what was begun can end.
//!
//! Invariant: the same experiment gives the same findings, and every transport is given the same
//! messages.

pub mod bound;
pub mod levels;
pub mod paper;
pub mod slowdown;

mod endpoint;
mod lanes;
mod load;
mod messenger;
mod oracle;
mod packets;
mod record;

use tailcut_measure::arrivals::ArrivalsError;
use tailcut_measure::workload::Workload;

use self::endpoint::{Answers, HomaHost, UNSCHEDULED_LEN_MAX};
pub use self::endpoint::{Policy, Settings, Timers};
use self::lanes::{Lanes, Sharing};
use self::load::{Message, Source};
use self::messenger::{ASK_LEN, ASKED_LEN_MIN};
use self::paper::PodShape;
use self::record::Record;
use self::slowdown::Bucket;
use crate::fabric::topology::Spreading;
use crate::network::{Framing, Statistics};

/// A simulation to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Sizes of messages.
    pub workload: Workload,
    /// Above 0. Share of the hosts' links that messages need with their headers and grants; where
    /// they are echoed, the share of the 9.5 Gbit/s of data that RAMCloud's measurements call a
    /// full load.
    pub load: f64,
    /// Hosts: 2 to 16 at one switch, or whole racks of 16.
    pub hosts: u32,
    /// Racks are in pods, which hosts fill; `None` where all are under the same spines, as
    /// published.
    pub pods: Option<PodShape>,
    /// The pattern of senders and receivers.
    pub pattern: Pattern,
    /// Incasts besides; none if `None`.
    pub incast: Option<Incast>,
    /// Bytes that wait at most at each port of a switch, and at least 10,000; without end, as
    /// published, if `None`. What is dropped is sent again by Homa with [`Timers::Network`] alone.
    pub buffer_bytes: Option<u64>,
    /// Time for which messages come, ns.
    pub duration_ns: u64,
    /// Messages count that come later than this, ns; below `duration_ns`. A heavy workload takes
    /// long to fill the network.
    pub warmup_ns: u64,
    /// The transport that carries them.
    pub transport: Transport,
    /// Upper sizes of the buckets of slowdowns, ascending.
    pub buckets: Vec<u64>,
    /// Everything random.
    pub seed: u64,
    /// Threads at most, of which each has some of the racks; the findings are the same on any
    /// number.
    pub threads: usize,
}

/// Many hosts that send to one at the same time, again and again, besides the load: which ones is
/// drawn each time. Their messages are in no bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incast {
    /// Hosts that send, at least 2.
    pub senders: u32,
    /// Bytes of each message, at least 1; 9 where they are asked for.
    pub len: u64,
    /// From one to the next, ns, at least 1 us; the first comes after as long.
    pub every_ns: u64,
    /// The receiver asks for the messages, each of which is the reply of a call, and counts from
    /// then. Else the senders send by themselves. Only Homa has calls.
    pub is_asked: bool,
}

/// The pattern of senders and receivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
    /// Every host to all others, one way.
    #[default]
    OneWay,
    /// The first half of the hosts to the other half, which sends each message back, as in
    /// RAMCloud's measurements: a message is done when it is back. A host has at most 50
    /// outstanding, and what is due waits.
    Echo,
}

/// A transport of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Homa: the endpoint of `tailcut-proto`.
    Homa(Settings),
    /// Packets of all messages in turns, without priorities and grants.
    Plain,
    /// A byte stream between each two hosts, whose messages wait for each other.
    Streams,
    /// Shortest remaining message first, by one who knows all: the bound, without packets.
    Oracle,
}

/// The findings of an [`Experiment`].
#[derive(Clone, Debug)]
pub struct Findings {
    /// Slowdowns of the counted messages, by size.
    pub buckets: Vec<Bucket>,
    /// Slowdowns of the counted messages of all sizes.
    pub all: Bucket,
    /// Counted incasts of which everything has arrived: how much longer they took than the
    /// receiver's link does for all of it on an idle network. `None` where there are none.
    pub incasts: Option<Bucket>,
    /// Counts of the counted messages by their fate.
    pub counts: Counts,
    /// Utilisation of links and switches; `None` of the oracle, which has none.
    pub links: Option<Links>,
    /// Control packets of Homa's endpoints; `None` of other transports.
    pub homa: Option<Said>,
    /// Counters of the network; with Homa, of what went beside the links too.
    pub network: Statistics,
    /// Virtual time of the run, ns.
    pub elapsed_ns: u64,
}

/// Counts of messages by their fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages begun.
    pub sent: u64,
    /// Messages that arrived.
    pub received: u64,
    /// Messages that the transport did not take.
    pub refused: u64,
    /// Messages that had not arrived when the run ended.
    pub unfinished: u64,
}

impl Counts {
    fn plus(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            received: self.received + other.received,
            refused: self.refused + other.refused,
            unfinished: self.unfinished + other.unfinished,
        }
    }
}

/// Utilisation of links and switches while messages came, without the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Links {
    /// Share of the time that the hosts' links towards the network carried something.
    pub uplink_share: f64,
    /// Share of the time that the links from the network to hosts carried something.
    pub downlink_share: f64,
    /// Share of the hosts' links that data took as it arrived, without any header.
    pub data_share: f64,
    /// Bytes that waited at a switch port towards a host, the mean over ports and time.
    pub last_hop_queue_mean_bytes: f64,
    /// Most bytes that waited at a switch port towards a host.
    pub last_hop_queue_max_bytes: u64,
    /// Most bytes that waited at any switch port.
    pub queue_max_bytes: u64,
    /// Packets that switches dropped.
    pub dropped: u64,
}

/// Control packets of all of Homa's endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// GRANTs.
    pub grants: u64,
    /// RESENDs. Where nothing is lost each is in vain.
    pub resends: u64,
    /// BUSYs.
    pub busy: u64,
    /// Bytes of messages that were sent again.
    pub resent_bytes: u64,
}

/// Reason why an experiment cannot be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// Hosts that no topology here has.
    #[error(
        "there can be 2 to 16 hosts at one switch, or up to {HOSTS_MAX} in whole racks of 16, but there are {0}"
    )]
    Hosts(u32),
    /// No load, or one that means nothing.
    #[error("the load must be above 0 and at most {LOAD_MAX}, but is {0}")]
    Load(f64),
    /// Nothing to simulate, or too much.
    #[error("the duration must be from 1 us to 100 s, but is {0} ns")]
    Duration(u64),
    /// Nothing is counted.
    #[error("the warm-up must be shorter than the time for which messages come")]
    Warmup,
    /// Pods that there are not.
    #[error(
        "pods have whole racks, a multiple of the oversubscription, and hosts fill at least two of them: {0} hosts do not"
    )]
    Pods(u32),
    /// Incasts that cannot be.
    #[error(
        "an incast has from 2 senders to all hosts but one, messages of a byte and more, at least 1 us between two, and no echoes; Homa alone can ask for it, and then for 9 bytes and more"
    )]
    Incast,
    /// A buffer for a transport that sends nothing again.
    #[error(
        "a switch's buffer holds at least {BUFFER_BYTES_MIN} bytes, and has an end only for Homa with the timers of a network: nothing else sends again what is dropped"
    )]
    Buffer,
    /// Echoes over racks, or by a transport that sends none.
    #[error("messages are echoed by Homa between hosts at one switch, 2 to 16 of them")]
    Echo,
    /// Priorities, an overcommitment or unscheduled bytes that no endpoint has.
    #[error(
        "there are 1 to 8 priorities, 1 to 16 messages that are granted at once, and 1 to {UNSCHEDULED_LEN_MAX} bytes without a grant"
    )]
    Settings,
    /// Buckets that do not ascend.
    #[error("the sizes of buckets must ascend from 1")]
    Buckets,
    /// Messages that cannot be scheduled.
    #[error(transparent)]
    Arrivals(#[from] ArrivalsError),
}

impl Experiment {
    /// Messages one way between hosts in racks for 20 ms, of which the first tenth is a warm-up, on
    /// the published network, and nothing besides.
    pub fn new(workload: Workload, load: f64, hosts: u32, transport: Transport) -> Self {
        Self {
            buckets: slowdown::equal_shares(&workload),
            workload,
            load,
            hosts,
            pods: None,
            pattern: Pattern::OneWay,
            incast: None,
            buffer_bytes: None,
            duration_ns: 20_000_000,
            warmup_ns: 2_000_000,
            transport,
            seed: 1,
            threads: 1,
        }
    }

    /// Checks that it can be run.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), ExperimentError> {
        let is_rack = (2..=paper::RACK_HOSTS).contains(&self.hosts);
        let is_racks =
            self.hosts.is_multiple_of(paper::RACK_HOSTS) && (1..=HOSTS_MAX).contains(&self.hosts);
        if !is_rack && !is_racks {
            return Err(ExperimentError::Hosts(self.hosts));
        }
        let is_possible = |pods: PodShape| {
            let PodShape { racks, oversubscription } = pods;
            let pod_hosts = racks.saturating_mul(paper::RACK_HOSTS);
            oversubscription > 0
                && racks >= oversubscription
                && racks.is_multiple_of(oversubscription)
                && self.hosts > pod_hosts
                && self.hosts.is_multiple_of(pod_hosts)
        };
        if !self.pods.is_none_or(is_possible) {
            return Err(ExperimentError::Pods(self.hosts));
        }
        if !(self.load > 0.0 && self.load <= LOAD_MAX) {
            return Err(ExperimentError::Load(self.load));
        }
        if !(1000..=DURATION_MAX_NS).contains(&self.duration_ns) {
            return Err(ExperimentError::Duration(self.duration_ns));
        }
        if self.warmup_ns >= self.duration_ns {
            return Err(ExperimentError::Warmup);
        }
        let settings = match self.transport {
            Transport::Homa(settings) => Some(settings),
            Transport::Plain | Transport::Streams | Transport::Oracle => None,
        };
        if settings.is_some_and(|settings| !settings.are_possible()) {
            return Err(ExperimentError::Settings);
        }
        if self.pattern == Pattern::Echo && (!is_rack || settings.is_none()) {
            return Err(ExperimentError::Echo);
        }
        let is_possible = |incast: Incast| {
            (2..self.hosts).contains(&incast.senders)
                && (1..=INCAST_LEN_MAX).contains(&incast.len)
                && incast.every_ns >= 1000
                && self.pattern == Pattern::OneWay
                && (!incast.is_asked || settings.is_some() && incast.len >= ASKED_LEN_MIN)
        };
        if !self.incast.is_none_or(is_possible) {
            return Err(ExperimentError::Incast);
        }
        let sends_again = settings.is_some_and(|settings| settings.timers == Timers::Network);
        if self.buffer_bytes.is_some_and(|bytes| bytes < BUFFER_BYTES_MIN || !sends_again) {
            return Err(ExperimentError::Buffer);
        }
        let is_ascending = self.buckets.is_sorted_by(|before, after| before < after);
        if !is_ascending || self.buckets.first().is_some_and(|&first| first == 0) {
            return Err(ExperimentError::Buckets);
        }
        self.sources().map(|_| ())
    }

    /// The messages of every host.
    fn sources(&self) -> Result<Vec<Source>, ExperimentError> {
        let (senders, receivers, full_gbit) = match self.pattern {
            Pattern::OneWay => {
                (self.hosts, 0..self.hosts, paper::HOST_GBIT * paper::data_share(&self.workload))
            }
            Pattern::Echo => (self.hosts / 2, self.hosts / 2..self.hosts, ECHO_GBIT),
        };
        let rate_per_s = self.load * full_gbit * 1e9 / 8.0 / self.workload.mean_bytes();
        let source = |host| {
            let source = Source::new(self.seed, host, receivers.clone(), rate_per_s)?;
            Ok(match self.incast {
                Some(incast) => source.with_incasts(self.seed, incast, self.hosts),
                None => source,
            })
        };
        let sources: Result<_, ArrivalsError> = (0..senders).map(source).collect();
        Ok(sources?)
    }

    /// The time that a message's slowdown is a multiple of.
    fn ideal_ps(&self, message: &Message) -> u64 {
        match self.pattern {
            Pattern::OneWay => {
                let links = self.links_between(message.from, message.to);
                let ask_ps =
                    if message.is_asked { paper::ideal_ps(ASK_LEN as u64, links) } else { 0 };
                ask_ps + paper::ideal_ps(message.len, links)
            }
            Pattern::Echo => 2 * paper::single_switch_ps(message.len),
        }
    }

    /// Links between the switches from a host to another.
    fn links_between(&self, from: u32, to: u32) -> u64 {
        let [from, to] = [from, to].map(|host| host / paper::RACK_HOSTS);
        match self.pods {
            _ if from == to => 0,
            Some(pods) if from / pods.racks != to / pods.racks => 4,
            _ => 2,
        }
    }
}

impl Pattern {
    /// Messages that a host may have outstanding.
    fn outstanding_max(self) -> u32 {
        match self {
            Self::OneWay => u32::MAX,
            Self::Echo => ECHO_OUTSTANDING_MAX,
        }
    }
}

/// Runs an experiment.
///
/// # Errors
///
/// An experiment that cannot be run; see [`Experiment::check`].
pub fn run(experiment: &Experiment) -> Result<Findings, ExperimentError> {
    experiment.check()?;
    let sources = experiment.sources()?;
    Ok(match experiment.transport {
        Transport::Homa(settings) => run_homa(experiment, sources, settings),
        Transport::Plain => {
            let carrier = packets::Carrier {
                framing: lanes::framing,
                head_len: lanes::HEADER_LEN,
                spreading: Spreading::Spray,
            };
            packets::run(experiment, sources, carrier, |_| Lanes::new(Sharing::Plain))
        }
        Transport::Streams => {
            // As a stream's packets must, those of a pair of hosts keep their order.
            let carrier = packets::Carrier {
                framing: lanes::framing,
                head_len: lanes::HEADER_LEN,
                spreading: Spreading::Flow,
            };
            packets::run(experiment, sources, carrier, |_| Lanes::new(Sharing::Streams))
        }
        Transport::Oracle => run_oracle(experiment, sources),
    })
}

fn run_homa(experiment: &Experiment, sources: Vec<Source>, settings: Settings) -> Findings {
    let (framing, answers): (Framing, Answers) = match experiment.pattern {
        Pattern::OneWay => (endpoint::one_way_framing, Answers::Ack),
        Pattern::Echo => (endpoint::echo_framing, Answers::Echo),
    };
    let carrier =
        packets::Carrier { framing, head_len: endpoint::HEAD_LEN, spreading: Spreading::Spray };
    let config = settings.config(&experiment.workload);
    packets::run(experiment, sources, carrier, |host| {
        HomaHost::new(config.clone(), (experiment.seed, host), answers)
    })
}

fn run_oracle(experiment: &Experiment, mut sources: Vec<Source>) -> Findings {
    let mut record = Record::new(experiment);
    let mut elapsed_ns = 0;
    let workload = &experiment.workload;
    oracle::run(
        &mut sources,
        workload,
        experiment.duration_ns,
        paper::ideal_link_ps,
        |message, waited_ps| {
            let ideal_ps = experiment.ideal_ps(message);
            let took_ps = ideal_ps + waited_ps;
            elapsed_ns = elapsed_ns.max(message.at_ns + took_ps / crate::PS_PER_NS);
            if message.at_ns >= experiment.warmup_ns {
                record.note(message, took_ps);
            }
        },
    );
    Findings {
        buckets: record.slowdowns.buckets(),
        all: record.slowdowns.all(),
        incasts: record.incasts(),
        counts: Counts { sent: record.count, received: record.count, ..Counts::default() },
        links: None,
        homa: None,
        network: Statistics::default(),
        elapsed_ns,
    }
}

/// Data of a full load in RAMCloud's measurements, which call 7.6 Gbit/s 80 %.
const ECHO_GBIT: f64 = 9.5;
/// RAMCloud's bound on the outstanding RPCs of a client.
const ECHO_OUTSTANDING_MAX: u32 = 50;
/// Hosts of one experiment.
const HOSTS_MAX: u32 = 4096;
/// Longest message of an incast: 1 GB.
const INCAST_LEN_MAX: u64 = 1_000_000_000;
/// More than all links can carry, for what saturates.
const LOAD_MAX: f64 = 2.0;
/// A port has room for what a sender may have under way.
const BUFFER_BYTES_MIN: u64 = paper::RTT_BYTES;
const DURATION_MAX_NS: u64 = 100_000_000_000;
