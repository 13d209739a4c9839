//! Request cloning and in-network scheduling: clients, a switch or a coordinator, and servers with
//! many workers.
//!
//! A request is a token: there are no bytes and no loss, but every delay, every queue and every
//! piece of state that decides who gets a clone and which response survives. The rules are those of
//! the NetClone artifact (its switch program, its servers and its clients), the deciders those of
//! [`tailcut_proto::policy`].
//!
//! | what happens | then |
//! |---|---|
//! | a request passes the switch | it gets the next id, the policy names one server or two; the clone is one recirculation later |
//! | a clone comes to a server whose queue is not empty | discarded; an original never is |
//! | a copy comes to a server otherwise | it starts on a free worker, or waits in the server's one queue |
//! | a worker finishes | the server reports the length of its queue, then starts the first of it on that worker |
//! | a response passes the switch | the report is stored, whatever becomes of the response; of a pair the slower is dropped |
//! | a response comes to the client | the first completes the request, another is a duplicate |
//! | the client tells the other server, where it does | a copy that waits leaves, one that runs is stopped or runs on for nobody |
//!
//! With C-Clone the client sends both copies, so that the switch takes them for two requests: no
//! discard, no filter. With LAEDGE a coordinator takes the place of the policy and of the filter;
//! see [`Coordinator`]. A policy of this repository's router has the router there, which counts
//! what it places and hears when each copy ends.
//!
//! Invariant: the same configuration and seed give the same outcome, and a run ends with the last
//! request's departure: what completes later does not count.

mod client;
mod coordinator;
mod events;
mod router;
mod run;
mod scheme;
mod server;
mod switch;
mod zero_load;

use strum::{Display, EnumString, VariantNames};
use tailcut_measure::arrivals::ArrivalsError;
use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::Unit;
use thiserror::Error;

use crate::PS_PER_NS;
use crate::sojourn::Sojourns;

pub use self::scheme::{Scheme, SchemeParseError};
pub use self::zero_load::ZeroLoad;

/// Relation between the service times of two copies of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Copies {
    /// Each copy draws its service when it starts, base and jitter: the artifact. A clone then also
    /// escapes the request's own size.
    #[default]
    Fresh,
    /// A request has one base, and each copy draws its jitter: a clone escapes only what the server
    /// adds.
    Shared,
}

/// Arrival process of the clients' requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Sending {
    /// Poisson arrivals.
    #[default]
    Poisson,
    /// Two clients with uniform gaps from 0 to twice their mean, which is what the artifact's
    /// formula comes to.
    Artifact,
}

/// The treatment of a clone that finds a server's queue not empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discard {
    /// It discards it.
    #[default]
    On,
    /// It keeps it.
    Off,
}

/// The fate of the slower copy when the client has an answer. It tells the other server, as this
/// repository's clients do where they are told to; what the paper's clients never do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Loser {
    /// It runs to its end: nobody is told.
    #[default]
    Runs,
    /// It leaves the queue if it waits, and runs to its end if it runs: an application that cannot
    /// be interrupted.
    Leaves,
    /// It leaves the queue, or its worker stops it.
    Stops,
}

/// The load that a server reports in a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Report {
    /// The requests that wait, those that run left out: NetClone's servers.
    #[default]
    Waiting,
    /// The requests that wait or run, the answered one left out: RackSched's servers.
    Outstanding,
}

/// Constant delays, each way, in ps; at most [`DELAY_MAX_PS`] each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// Between a client and the switch. Default 1.5 us.
    pub client_switch_ps: u64,
    /// Between the switch and a server. Default 1 us.
    pub switch_server_ps: u64,
    /// By which a clone leaves the switch later than its original. Default 0.7 us.
    pub recirculation_ps: u64,
    /// Between the switch and LAEDGE's coordinator. Default 0.5 us.
    pub switch_coordinator_ps: u64,
}

/// LAEDGE's coordinator: clients and servers talk to it alone.
///
/// Each packet that it receives, request or response, takes a thread for `packet_ps`; packets are
/// taken in order. A request is placed by [`tailcut_proto::policy::Laedge`], or queued. A response
/// frees a slot of its server, is forwarded if it is the request's first, and lets the first of the
/// queue go to that very server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coordinator {
    /// Cost of a packet, ps. Default 0.5 us.
    pub packet_ps: u64,
    /// Threads that share one queue of packets, at least 1. Default 1; the artifact runs 15.
    pub threads: u32,
    /// Threshold at which a server counts as busy. Default: one request.
    pub slots: Slots,
}

/// Outstanding requests at which LAEDGE takes a server for busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Slots {
    /// One: the busy bit of the artifact.
    #[default]
    Server,
    /// As many as the server has workers.
    Worker,
}

/// A simulation of cloning.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The scheme.
    pub scheme: Scheme,
    /// The workers of each server. At least two servers where the scheme compares or clones.
    pub servers: Vec<u32>,
    /// The base service time of a copy, a distribution of times with a finite mean.
    pub service: Distribution,
    /// The probability that a copy takes [`JITTER_FACTOR`] times its base.
    pub jitter: f64,
    /// The rate of requests in units of the capacity: all workers, by the mean service with jitter.
    /// May exceed 1.
    pub load: f64,
    /// Requests to send, 1 to [`REQUESTS_MAX`]. The first tenth warms up.
    pub requests: u32,
    /// Relation between the service times of copies.
    pub copies: Copies,
    /// Arrival process of the clients' requests.
    pub sending: Sending,
    /// The treatment of clones that find a queue.
    pub discard: Discard,
    /// The treatment of slower copies. LAEDGE's run.
    pub loser: Loser,
    /// The load that servers report.
    pub report: Report,
    /// The network.
    pub delays: Delays,
    /// LAEDGE's coordinator; other schemes have none.
    pub coordinator: Coordinator,
}

/// The outcome of a simulation. Counts are of the requests after the warm-up, as far as their
/// packets got by the end.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// From a request's departure to its first response, at the client; ps.
    pub latency: Sojourns,
    /// Counts of requests and copies by their fate.
    pub counts: Counts,
    /// The share of the workers' time in which they ran anything, losers included.
    pub utilisation: f64,
    /// The rate of requests, 1/s.
    pub offered_per_s: f64,
}

/// Counts of requests and copies by their fate after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests sent.
    pub sent: u64,
    /// First responses that reached a client, those of requests from the warm-up included; none
    /// after the last departure.
    pub completed: u64,
    /// Requests of which two copies were made.
    pub cloned: u64,
    /// Clones that a server discarded.
    pub discarded: u64,
    /// Slower responses that the switch's filter or the coordinator dropped.
    pub filtered: u64,
    /// Slower responses that reached a client: every one of C-Clone, and what leaks through the
    /// filter.
    pub duplicates: u64,
    /// Slower copies whose servers the client told.
    pub told: u64,
    /// Told copies that waited and did not run.
    pub withdrawn: u64,
    /// Told copies that ran and were stopped.
    pub stopped: u64,
    /// Requests that the coordinator queued.
    pub held: u64,
    /// The coordinator's queue as its requests found it, added up.
    pub queue_len_sum: u64,
    /// The longest that the coordinator's queue was, warm-up included.
    pub queue_len_max: u64,
}

/// Reason why a simulation cannot be run.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum CloningError {
    /// Nobody to serve, or nobody else.
    #[error("this scheme needs at least {needed} servers, but there are {given}")]
    Servers {
        /// Number of servers that it needs.
        needed: usize,
        /// Number of servers given.
        given: usize,
    },
    /// A server without a worker.
    #[error("every server needs a worker")]
    NoWorkers,
    /// A service time of which no load can be told, or that is no time.
    #[error("the service must be a time with a mean above zero that is finite")]
    Service,
    /// Not a probability.
    #[error("the probability of jitter must be from 0 to 1, but is {0}")]
    Jitter(f64),
    /// No rate.
    #[error("the load must be above 0 and at most {LOAD_MAX}, but is {0}")]
    Load(f64),
    /// Too few requests or too many.
    #[error("the number of requests must be from 1 to {REQUESTS_MAX}, but is {0}")]
    Requests(u32),
    /// Virtual time has an end.
    #[error("the run would last for more than {} days of virtual time", LENGTH_MAX_PS / 8.64e16)]
    TooLong,
    /// A delay, or a packet's cost, with which times would overflow.
    #[error("a delay must be at most a second, but one is {0} ps")]
    Delay(u64),
    /// A coordinator that does nothing.
    #[error("the coordinator needs a thread")]
    NoThreads,
    /// LAEDGE's copies are not cancelled.
    #[error("LAEDGE's coordinator cancels nothing")]
    LaedgeLoser,
    /// Slots that differ between servers.
    #[error("one slot a worker needs the same number of workers at every server")]
    UnevenSlots,
    /// A rate beyond what can be sent.
    #[error(transparent)]
    Arrivals(#[from] ArrivalsError),
}

impl Config {
    /// The artifact's setting with Poisson arrivals: fresh copies, 1 % of jitter, 400,000 requests,
    /// default delays.
    pub fn new(scheme: Scheme, servers: Vec<u32>, service: Distribution, load: f64) -> Self {
        Self {
            scheme,
            servers,
            service,
            jitter: 0.01,
            load,
            requests: 400_000,
            copies: Copies::default(),
            sending: Sending::default(),
            discard: Discard::default(),
            loser: Loser::default(),
            report: Report::default(),
            delays: Delays::default(),
            coordinator: Coordinator::default(),
        }
    }

    /// The mean service of a copy with jitter, ps; `None` where it is infinite.
    pub fn service_ps(&self) -> Option<f64> {
        self.service
            .mean()
            .map(|mean_ns| mean_ns * PS_PER_NS as f64 * (1.0 + self.jitter * (JITTER_FACTOR - 1.0)))
    }

    /// Workers of all servers.
    pub fn workers(&self) -> u64 {
        self.servers.iter().map(|&workers| u64::from(workers)).sum()
    }

    /// Copies that all workers finish in a second; `None` where the mean service is infinite.
    pub fn capacity_per_s(&self) -> Option<f64> {
        self.service_ps().map(|service_ps| self.workers() as f64 / service_ps * PS_PER_S)
    }

    /// From a departure at a client to a response there, without service and queues; ps.
    pub fn round_trip_ps(&self) -> u64 {
        let Delays { client_switch_ps, switch_server_ps, switch_coordinator_ps, .. } = self.delays;
        let detour_ps = match self.scheme {
            Scheme::Laedge => 2 * switch_coordinator_ps + self.coordinator.packet_ps,
            _ => 0,
        };
        2 * (client_switch_ps + switch_server_ps + detour_ps)
    }

    /// Checks that the configuration can be run; every run does so first.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), CloningError> {
        let (needed, given) = (if self.scheme == Scheme::None { 1 } else { 2 }, self.servers.len());
        if given < needed {
            return Err(CloningError::Servers { needed, given });
        }
        if self.servers.contains(&0) {
            return Err(CloningError::NoWorkers);
        }
        if self.service.unit() != Unit::Time || !self.service.mean().is_some_and(|mean| mean > 0.0)
        {
            return Err(CloningError::Service);
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return Err(CloningError::Jitter(self.jitter));
        }
        if !(self.load > 0.0 && self.load <= LOAD_MAX) {
            return Err(CloningError::Load(self.load));
        }
        if !(1..=REQUESTS_MAX).contains(&self.requests) {
            return Err(CloningError::Requests(self.requests));
        }
        let mean_ps = self.service_ps().unwrap_or(f64::INFINITY);
        let length_ps = mean_ps / (self.load * self.workers() as f64) * f64::from(self.requests);
        if mean_ps.max(length_ps) > LENGTH_MAX_PS {
            return Err(CloningError::TooLong);
        }
        let Delays { client_switch_ps, switch_server_ps, recirculation_ps, switch_coordinator_ps } =
            self.delays;
        let delays = [
            client_switch_ps,
            switch_server_ps,
            recirculation_ps,
            switch_coordinator_ps,
            self.coordinator.packet_ps,
        ];
        match delays.into_iter().find(|&delay_ps| delay_ps > DELAY_MAX_PS) {
            Some(delay_ps) => Err(CloningError::Delay(delay_ps)),
            None => self.check_coordinator(),
        }
    }

    fn check_coordinator(&self) -> Result<(), CloningError> {
        if self.scheme != Scheme::Laedge {
            return Ok(());
        }
        if self.coordinator.threads == 0 {
            return Err(CloningError::NoThreads);
        }
        if self.loser != Loser::Runs {
            return Err(CloningError::LaedgeLoser);
        }
        let is_uneven = self.servers.windows(2).any(|pair| pair[0] != pair[1]);
        if self.coordinator.slots == Slots::Worker && is_uneven {
            return Err(CloningError::UnevenSlots);
        }
        Ok(())
    }
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            client_switch_ps: 1_500_000,
            switch_server_ps: 1_000_000,
            recirculation_ps: 700_000,
            switch_coordinator_ps: 500_000,
        }
    }
}

impl Default for Coordinator {
    fn default() -> Self {
        Self { packet_ps: 500_000, threads: 1, slots: Slots::default() }
    }
}

impl Outcome {
    /// Completed by offered requests.
    pub fn goodput_share(&self) -> f64 {
        share(self.counts.completed, self.counts.sent)
    }

    /// The share of requests that were cloned.
    pub fn clone_share(&self) -> f64 {
        share(self.counts.cloned, self.counts.sent)
    }

    /// The share of clones that a server discarded.
    pub fn discarded_share(&self) -> f64 {
        share(self.counts.discarded, self.counts.cloned)
    }

    /// The coordinator's queue as an average request finds it.
    pub fn queue_len_mean(&self) -> f64 {
        share(self.counts.queue_len_sum, self.counts.sent)
    }
}

/// Runs `config` under `seed`.
///
/// # Errors
///
/// A configuration without an answer.
pub fn simulate(config: &Config, seed: u64) -> Result<Outcome, CloningError> {
    config.check()?;
    Ok(run::Run::new(config, seed)?.finish())
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The factor of jitter on a service time: a garbage collection, a compaction, an interrupt.
pub const JITTER_FACTOR: f64 = 15.0;
/// 50 days, which leaves as many again before times saturate.
const LENGTH_MAX_PS: f64 = 4.32e18;
/// Most requests of a run: the ids that the artifact's switch gives before it begins again.
pub const REQUESTS_MAX: u32 = 100_000_000;
/// Far beyond what any scheme survives.
pub const LOAD_MAX: f64 = 100.0;
/// Most of each delay: a second.
pub const DELAY_MAX_PS: u64 = 1_000_000_000_000;
const PS_PER_S: f64 = 1e12;

#[cfg(test)]
mod tests {
    use super::*;

    /// The schemes and their names.
    const SCHEMES: [(Scheme, &str); 6] = [
        (Scheme::None, "none"),
        (Scheme::CClone, "cclone"),
        (Scheme::NetClone, "netclone"),
        (Scheme::RackSched, "racksched"),
        (Scheme::NetCloneRackSched, "netclone+racksched"),
        (Scheme::Laedge, "laedge"),
    ];

    fn config(scheme: Scheme, load: f64) -> Config {
        let service = Distribution::parse("exp:25us", Unit::Time).unwrap();
        Config { requests: 60_000, ..Config::new(scheme, vec![15; 6], service, load) }
    }

    fn check_refused(config: &Config, expected: &CloningError) {
        assert_eq!(simulate(config, 1).map(|_| ()), Err(expected.clone()));
    }

    #[test]
    fn a_seed_replays_and_another_differs() {
        for (scheme, _) in SCHEMES {
            let run = |seed| {
                let outcome = simulate(&config(scheme, 0.05), seed).unwrap();
                (outcome.latency.mean().to_bits(), outcome.counts, outcome.utilisation.to_bits())
            };
            assert_eq!(run(1), run(1));
            assert_ne!(run(1), run(2));
        }
    }

    #[test]
    fn latencies_begin_at_the_round_trip() {
        // Of 54,000 exponential services the shortest is some 0.5 ns.
        for (scheme, round_trip_ps) in
            [(Scheme::None, 5_000_000), (Scheme::NetClone, 5_000_000), (Scheme::Laedge, 8_000_000)]
        {
            let config = config(scheme, 0.01);
            assert_eq!(config.round_trip_ps(), round_trip_ps);
            let shortest_ps = simulate(&config, 1).unwrap().latency.percentile(0.0);
            assert!(
                (shortest_ps / round_trip_ps as f64 - 1.0).abs() < 0.002,
                "{scheme} {shortest_ps}"
            );
        }
    }

    /// Fate of a cloned request's slower response. Some are still on their way at the end.
    #[test]
    fn every_slower_response_is_dropped_somewhere() {
        let counts = |scheme, load| simulate(&config(scheme, load), 1).unwrap().counts;
        let netclone = counts(Scheme::NetClone, 0.7);
        let dropped = netclone.discarded + netclone.filtered;
        assert!(netclone.duplicates == 0 && netclone.cloned - dropped < 300, "{netclone:?}");
        let cclone = counts(Scheme::CClone, 0.3);
        assert!(cclone.filtered == 0 && cclone.cloned - cclone.duplicates < 300, "{cclone:?}");
        let laedge = counts(Scheme::Laedge, 0.02);
        assert!(laedge.duplicates == 0 && laedge.cloned - laedge.filtered < 10, "{laedge:?}");
    }

    /// C-Clone saturates at half of the capacity, since both copies run to their ends. Stopped
    /// copies of exponential services take, in all, what one does: the capacity is whole again.
    #[test]
    fn stopped_copies_give_their_workers_back() {
        let run = |loser| {
            let config = Config { loser, jitter: 0.0, ..config(Scheme::CClone, 0.8) };
            simulate(&config, 1).unwrap()
        };
        let [runs, stops] = [Loser::Runs, Loser::Stops].map(run);
        assert!(runs.goodput_share() < 0.65 && runs.utilisation > 0.99, "{runs:?}");
        assert!(stops.goodput_share() > 0.99, "{stops:?}");
        // The way of the cancel, 5 us of 25 at each, is what it costs more than one copy.
        assert!((0.8..0.99).contains(&stops.utilisation), "{stops:?}");
        assert!(stops.counts.stopped > stops.counts.sent / 2, "{stops:?}");
    }

    /// As many copies are told of as have another, each once.
    #[test]
    fn a_loser_is_told_once_and_by_its_state() {
        for scheme in [Scheme::NetClone, "auto-clone".parse().unwrap()] {
            let counts =
                |loser| simulate(&Config { loser, ..config(scheme, 0.6) }, 1).unwrap().counts;
            let runs = counts(Loser::Runs);
            let second = |counts: &Counts| counts.filtered + counts.duplicates;
            assert_eq!([runs.told, runs.withdrawn, runs.stopped], [0; 3]);
            let leaves = counts(Loser::Leaves);
            assert!(leaves.told.abs_diff(leaves.cloned) < 300, "{leaves:?}");
            // What has ended before it is told answers nevertheless.
            assert!(leaves.stopped == 0 && second(&leaves) < second(&runs) / 2, "{leaves:?}");
            let stops = counts(Loser::Stops);
            assert!(stops.stopped > stops.told / 2, "{stops:?}");
        }
    }

    /// RackSched's rack of unequal servers: 4 of 7 workers, 4 of 4. Random placement is bound by
    /// the smaller, at 32/44.
    #[test]
    fn reported_loads_fill_unequal_servers() {
        let goodput = |scheme| {
            let servers = [[7; 4], [4; 4]].concat();
            simulate(&Config { servers, ..config(scheme, 0.85) }, 1).unwrap().goodput_share()
        };
        assert!(goodput(Scheme::RackSched) > 0.995);
        assert!(goodput(Scheme::None) < 0.97);
    }

    #[test]
    fn names_of_schemes_read_and_print_alike() {
        for (scheme, name) in SCHEMES {
            assert_eq!((scheme.to_string().as_str(), name.parse()), (name, Ok(scheme)));
        }
        assert!("netclon".parse::<Scheme>().unwrap_err().to_string().contains("\"netclon\""));
    }

    #[test]
    fn what_has_no_answer_is_refused() {
        let config = config(Scheme::NetClone, 0.5);
        let with_servers = |servers| Config { servers, ..config.clone() };
        check_refused(&with_servers(vec![15]), &CloningError::Servers { needed: 2, given: 1 });
        check_refused(&with_servers(vec![15, 0]), &CloningError::NoWorkers);
        check_refused(&Config { jitter: 1.5, ..config.clone() }, &CloningError::Jitter(1.5));
        check_refused(&Config { load: 0.0, ..config.clone() }, &CloningError::Load(0.0));
        check_refused(&Config { requests: 0, ..config.clone() }, &CloningError::Requests(0));
        let delays = Delays { recirculation_ps: u64::MAX, ..config.delays };
        check_refused(&Config { delays, ..config.clone() }, &CloningError::Delay(u64::MAX));
        for (text, unit) in
            [("pareto:0:25us:1", Unit::Time), ("fixed:0", Unit::Time), ("exp:25", Unit::Size)]
        {
            let service = Distribution::parse(text, unit).unwrap();
            check_refused(&Config { service, ..config.clone() }, &CloningError::Service);
        }
    }

    #[test]
    fn a_coordinator_without_an_answer_is_refused() {
        let config = config(Scheme::Laedge, 0.05);
        let idle = Coordinator { threads: 0, ..Coordinator::default() };
        check_refused(&Config { coordinator: idle, ..config.clone() }, &CloningError::NoThreads);
        let by_worker = Coordinator { slots: Slots::Worker, ..Coordinator::default() };
        check_refused(
            &Config { coordinator: by_worker, servers: vec![7, 4], ..config },
            &CloningError::UnevenSlots,
        );
    }
}
