//! Deterministic fault runs: the nodes of `proto` under everything that can go wrong, with what
//! they promise checked at every step.
//!
//! | module | what it is |
//! |---|---|
//! | [`plan`] | a run as data: hosts, calls, faults |
//! | `draw` | plans from seeds |
//! | [`hostile`] | what strangers send, and plans of nothing else |
//! | [`family`] | the kinds of plans by name |
//! | `load` | plans under the load that is asked for |
//! | `flood` | one client that calls many times what can be served, among others |
//! | `directed` | plans that look for one kind of trouble: late datagrams, full buffers |
//! | `life` | processes that stop, restart and are reloaded, and handlers that panic |
//! | `service` | one host that dies, and within what times that is seen and over |
//! | `streams` | byte streams in place of calls |
//! | `host`, `hosted` | a node with the watch at its port; bugs for tests of the harness |
//! | `watch`, `replies`, `openers`, `paid` | what is checked of each datagram |
//! | `application` | handlers behind the servers, and what became of the calls |
//! | `run` | carries a plan out |
//! | `sealed`, `seals` | plans whose packets are sealed; keys and wall clocks of their hosts |
//! | `intruder`, `homa_seals`, `recorder`, `sealed_books` | what strangers forge and replay there; what the watch knows of seals |
//! | `heard` | what strangers have heard |
//! | `minimise` | takes away from a failing plan what it does not need |
//!
//! What is checked, and when:
//!
//! | [`Invariant`] | what holds | checked |
//! |---|---|---|
//! | `AtMostOnce` | a call that is not idempotent is handed to a handler once at most | when it is handed over |
//! | `RefusedHasNotRun` | a call that is not idempotent and is refused for want of room, of time or of a key has not run, and does not | when the client hears it, and when one is handed over |
//! | `FirstReply` | the first whole reply that reaches a client ends its call | at the turn in which it comes |
//! | `FilterKeepsFirst` | a reply that the router's filter drops follows one of the same call that it has forwarded | when it is dropped |
//! | `CloneBudget` | copies that a client sends are within its budget | when one leaves |
//! | `Content` | a handler gets the request, a call the handler's reply | when they are handed over |
//! | `EndsOnce` | a call ends once, by its deadline in its client's clock | at its end, and after each event |
//! | `Bound` | a server has at most n requests placed by the JBSQ(n) of the only router | when one is handed over |
//! | `Recovers` | a call that is made half a second after everything, within every limit, is answered | at its end |
//! | `Amplification` | three bytes out for each byte in, to an address that is not validated, strangers' among them; no more than 500,000 datagrams in a run; one answer of who has no key for each request, which is no shorter | at each datagram |
//! | `Serves` | a call is answered, where nothing is wrong but what strangers send | at its end |
//! | `SlotsHome` | the router counts nothing outstanding and holds nothing | within 2 s after the faults |
//! | `Floor` | endpoints hold nothing | within 2 s after the faults |
//! | `Determinism` | the same plan gives the same run | by [`check`], which runs it twice |
//! | `NothingLost` | in plans of [`Plan::life_of_seed`], [`Plan::overflow_of_seed`], `service`, and half of `streams`: every call is answered, but for those whose handler refuses or panics | at the end |
//! | `Detects`, `Returns` | in plans of [`Plan::detection_of_seed`]: every router has a server out 30 ms after its death, and in service 100 ms after its return | then |
//! | `InOrder` | in plans of [`Plan::streams_of_seed`] and [`Plan::sealed_streams_of_seed`]: what is read of a stream is what was written, once and in order | when it is read |
//! | `StreamEnds` | there too: a stream carries everything or fails, and leaves nothing | within 2 s after the faults |
//! | `Goodput` | in plans of [`Plan::flood_of_seed`]: workers spend four fifths of the time on calls that are answered in time | at the end |
//! | `Fairness` | there too: every call of the other clients is answered, and 99 of 100 wait 10 services at most for each call that their client has | at the end |
//! | `Work` | a packet makes its node do at most 256 steps of work, about 2 us, and one for each 32 bytes beyond 9 000, where they are counted: with debug assertions; of several in a sealed datagram each | at each packet |
//! | `Proven` | in plans of [`Plan::cookies_of_seed`] whose servers always ask for cookies: no request runs but what a client has made | when one is handed over |
//! | `NothingForged` | where packets are sealed: a datagram that no holder of keys has written changes nothing at a node but counters of its seal, has a client leave no key alone, and is answered by nothing but that a key is not there | at each |
//! | `NothingReplayed` | there too: one that was recorded and sent again does nothing at a node that it is not for, and where times must rise; nor does an answer of who has no key by which a call has gone | at each |
//! | `LostKeys` | there too: a server without its group's keys runs nothing | when a request is handed over |
//! | `KeysAreThere` | there too: a call is told that a key is not there only where a host may lack one, by a lost file or a wrong clock | at its end |
//! | `Clocks` | there too: a call between hosts whose wall clocks are an hour apart does not run, and its client is told, unless a router ignores it as too old | when one is handed over, and at its end |
//! | `NoPanic` | nothing panics | always |
//!
//! A call ends at the first tick of its client's timer wheel (2^16 ns) at or after the deadline;
//! that is "by its deadline". What a router remembers of calls is released when later calls come,
//! so it is no part of the floor.

mod application;
mod directed;
mod draw;
pub mod family;
mod flood;
mod heard;
mod homa_seals;
mod host;
mod hosted;
pub mod hostile;
mod intruder;
mod life;
mod load;
mod minimise;
mod openers;
mod paid;
pub mod plan;
mod recorder;
mod replies;
mod run;
mod sealed;
mod sealed_books;
mod seals;
mod service;
mod streams;
mod watch;

use std::fmt;
use std::net::SocketAddr;

use strum::{EnumCount, VariantNames};
use tailcut_proto::node::Time;

pub use self::host::Sabotage;
pub use self::minimise::{Minimised, minimise};
use self::plan::{FaultKind, Plan};
pub use self::recorder::PacketKind;
pub use self::run::run;

/// A promise. The module says when each is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table of the module says what each is")]
pub enum Invariant {
    AtMostOnce,
    RefusedHasNotRun,
    FirstReply,
    FilterKeepsFirst,
    CloneBudget,
    Content,
    EndsOnce,
    Bound,
    Recovers,
    Amplification,
    Serves,
    SlotsHome,
    Floor,
    Determinism,
    NothingLost,
    Detects,
    Returns,
    InOrder,
    StreamEnds,
    Goodput,
    Fairness,
    Work,
    NoPanic,
    Proven,
    NothingForged,
    NothingReplayed,
    LostKeys,
    KeysAreThere,
    Clocks,
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Invariant that did not hold.
    pub invariant: Invariant,
    /// Time of the violation.
    pub at: Time,
    /// A description of what was seen.
    pub detail: String,
}

/// Options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A bug to put in.
    pub sabotage: Option<Sabotage>,
    /// Lines kept of what happened last; 0 costs nothing.
    pub trace_len: usize,
    /// A clock of the machine, ns, for who wants to know what each datagram costs its node. It has
    /// no effect on the run.
    pub clock: Option<fn() -> u64>,
}

/// The cost of a datagram that a node was handed.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The node.
    pub host: plan::Host,
    /// The source that the datagram has.
    pub from: SocketAddr,
    /// The byte of its type, which R2P2 and Homa have at different places.
    pub kind: u8,
    /// Its length.
    pub len: usize,
    /// Time that the node took for it, ns.
    pub ns: u64,
}

/// The findings of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The first invariant that did not hold.
    pub violation: Option<Violation>,
    /// Events of the run, counted.
    pub coverage: Coverage,
    /// Requests that each server's application was handed.
    pub served: Vec<u64>,
    /// A hash over every datagram delivered and how every call ended: equal runs have equal hashes.
    pub hash: u64,
    /// The last lines, oldest first.
    pub trace: Vec<String>,
    /// The cost of each datagram in the order of the run, where there was a clock.
    pub costs: Vec<Cost>,
}

/// Events of one or more runs, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Calls by how they ended, in the order of [`Ending`].
    pub endings: [u64; Ending::COUNT],
    /// Faults by kind, in the order of [`FaultKind`].
    pub faults: [u64; FaultKind::COUNT],
    /// Effects by kind, in the order of [`Effect`].
    pub effects: [u64; Effect::COUNT],
    /// Datagrams that strangers made up or changed, by type, in the order of [`PacketKind`].
    pub forged: [u64; PacketKind::COUNT],
    /// Datagrams that were recorded and sent again, in the same order.
    pub replayed: [u64; PacketKind::COUNT],
    /// Requests handed to handlers.
    pub runs: u64,
    /// Datagrams sent.
    pub packets: u64,
    /// Virtual time.
    pub virtual_ns: u64,
}

/// An effect in a run, beside the ends of calls and the faults themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Effect {
    /// A datagram is lost by impairments.
    Lost,
    /// A datagram is delivered twice.
    Duplicated,
    /// A bit of a datagram is flipped.
    Damaged,
    /// A datagram is lost in a partition.
    Partitioned,
    /// A datagram is dropped by a switch.
    DroppedBySwitches,
    /// A datagram is lost that has waited for longer than the network may hold it.
    HeldTooLong,
    /// A datagram reaches a host that is down.
    ToDeadHosts,
    /// A request is overtaken by a later placement or a probe.
    Overtaken,
    /// A copy is lost because it would run again after a restart, which is documented.
    Excused,
    /// A reply is held back until the client's address is validated.
    AmplificationLimited,
    /// Endpoints send again: packets of R2P2, bytes of Homa.
    Resent,
    /// A router holds a request.
    HeldByRouter,
    /// A router takes a server for silent.
    Silenced,
    /// A client moves a call to the other router.
    Moved,
    /// A router places a call by a claim.
    Claimed,
    /// A datagram is lost since the buffer of a socket is full.
    Overflowed,
    /// A run has two routers.
    TwoRouters,
    /// The clock of a host is wrong.
    WrongClocks,
    /// A router places a request on two servers.
    Cloned,
    /// A client sends a copy of a call.
    Hedged,
    /// The copy answers first.
    CloneWon,
    /// A client drops the slower of two replies.
    CloneFiltered,
    /// A router drops the slower of two replies.
    FilteredByRouter,
    /// A server discards a copy.
    CloneDiscarded,
    /// The slower copy is cancelled.
    CloneCancelled,
    /// A stream carries everything.
    StreamsCarried,
    /// A stream fails.
    StreamsFailed,
    /// A run has no router.
    WithoutRouter,
    /// A run has one switch.
    SingleSwitch,
    /// A run has leaves and spines.
    LeafSpine,
}

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount, VariantNames)]
#[strum(serialize_all = "snake_case")]
#[allow(
    missing_docs,
    reason = "the names of `rpc::Failure` and `rpc::DropReason`, and those below"
)]
pub enum Ending {
    Replied,
    Deadline,
    Overload,
    TooLarge,
    TooOld,
    Expired,
    NoServer,
    Application,
    Uncertain,
    NoKey,
    ReplyTooLarge,
    Stopping,
    Panicked,
    /// Its application gave it up.
    Cancelled,
    /// Its client refused to make it.
    NotMade,
    /// Its client died, or was dead.
    ClientDied,
    /// In another way, which tailcut peers do not give.
    Other,
}

impl Report {
    /// Calls that ended so.
    pub fn count(&self, ending: Ending) -> u64 {
        self.coverage.endings[ending as usize]
    }
}

impl Coverage {
    /// Adds what another run showed.
    pub fn add(&mut self, other: &Self) {
        let sum = |own: &mut [u64], others: &[u64]| {
            own.iter_mut().zip(others).for_each(|(own, other)| *own += other)
        };
        sum(&mut self.endings, &other.endings);
        sum(&mut self.faults, &other.faults);
        sum(&mut self.effects, &other.effects);
        sum(&mut self.forged, &other.forged);
        sum(&mut self.replayed, &other.replayed);
        self.runs += other.runs;
        self.packets += other.packets;
        self.virtual_ns += other.virtual_ns;
    }

    /// Everything that is counted, under stable names: `calls.*`, `faults.*`, `effects.*`,
    /// `forged.*`, `replayed.*`.
    pub fn figures(&self) -> Vec<(String, u64)> {
        let calls = named("calls", Ending::VARIANTS, &self.endings);
        let faults = named("faults", FaultKind::VARIANTS, &self.faults);
        let effects = named("effects", Effect::VARIANTS, &self.effects);
        let forged = named("forged", PacketKind::VARIANTS, &self.forged);
        let replayed = named("replayed", PacketKind::VARIANTS, &self.replayed);
        calls.chain(faults).chain(effects).chain(forged).chain(replayed).collect()
    }
}

/// Counts under their names in a group.
fn named(group: &str, names: &[&str], counts: &[u64]) -> impl Iterator<Item = (String, u64)> {
    names.iter().zip(counts).map(move |(name, &count)| (format!("{group}.{name}"), count))
}

/// Runs the plan of a seed, twice where the seed is a multiple of `twice_each`: the same seed must
/// give the same run.
pub fn check(seed: u64, twice_each: u64, options: Options) -> Report {
    check_plan(&Plan::of_seed(seed), twice_each, options)
}

/// Runs a plan, twice where its seed is a multiple of `twice_each`.
pub fn check_plan(plan: &Plan, twice_each: u64, options: Options) -> Report {
    let mut report = run(plan, options);
    if report.violation.is_none() && plan.seed.is_multiple_of(twice_each) {
        report.violation = differs(plan, &report, options);
    }
    report
}

/// Runs the plan again and compares it with the first report.
fn differs(plan: &Plan, first: &Report, options: Options) -> Option<Violation> {
    let second = run(plan, options);
    (second.hash != first.hash || second.coverage != first.coverage).then(|| Violation {
        invariant: Invariant::Determinism,
        at: 0,
        detail: format!("two runs have the hashes {:016x} and {:016x}", first.hash, second.hash),
    })
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} does not hold at {:.6} ms: {}",
            self.invariant,
            self.at as f64 / 1e6,
            self.detail
        )
    }
}
