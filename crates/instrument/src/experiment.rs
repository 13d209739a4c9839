//! Description of a measurement, and the jobs of its agents.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use serde_json::Value;
use tailcut_measure::app::App;
use tailcut_measure::control::Settings;
use tailcut_measure::objective::Objective;

use super::agent::key::Key;
use super::agent::spec::{AgentSpec, Place};
use super::apps;
use super::job::{Granted, Job, LoadShare, R2p2, Role, STREAMS_PER_THREAD, Tls, Transport};
use super::pattern::Pattern;
use super::record::Keep;
use super::samples::Samples;

/// A measurement that is to be made.
#[derive(Debug)]
pub struct Experiment {
    /// The job of all agents together. What is one agent's of it, its load and its share of the
    /// connections, is filled in for each.
    pub job: Job,
    /// Load to offer.
    pub load: Load,
    /// Gaps between the requests of an open loop, in the text form. Default `poisson`.
    pub arrivals: String,
    /// One request in so many is stamped as the kernel sends it. `None`, the default, is for as
    /// many as tell the client's bias and cost little at the load's rate.
    pub stamp_every: Option<u32>,
    /// Agents that load. By default threads of this process.
    pub agents: Vec<AgentSpec>,
    /// The key that is shared with agents reached over TCP.
    pub key: Option<Key>,
    /// Settings of the run: the percentile to know, and how well. By default the p99 to 5 %.
    pub settings: Settings,
    /// Objective that [`Pattern::Find`] finds the highest rate for.
    pub objective: Option<Objective>,
    /// Objectives of which the result is to say whether they hold.
    pub assertions: Vec<Objective>,
    /// Latencies kept of the run over time.
    pub keep: Keep,
    /// File that every measured request is written to, if any.
    pub samples: Option<Samples>,
    /// Configuration that repeats the run, for the result; whatever the caller wants there.
    pub config: Value,
    /// The command that began the run, for the result.
    pub command: String,
    /// Ends the run once it is set, with what was measured until then.
    pub is_interrupted: Arc<AtomicBool>,
}

/// Load of an experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// An open loop of so many requests a second.
    Rate(f64),
    /// A closed loop of so many requests outstanding.
    Outstanding(u32),
    /// Several loads, one after the other.
    Pattern(Pattern),
}

impl Experiment {
    /// An experiment with defaults for everything else: `app` in its text form, `targets` as
    /// `HOST:PORT`.
    ///
    /// # Errors
    ///
    /// What is wrong with `app`.
    pub fn new(transport: Transport, app: &str, targets: Vec<String>, load: Load) -> Result<Self> {
        let parsed = apps::parse(app)?;
        let job = Job {
            transport,
            app: app.to_owned(),
            load: LoadShare::Closed { outstanding: 1 },
            role: Role::Symmetric,
            threads: 1,
            connections: targets.len().max(1) as u32,
            targets,
            pipeline: pipeline(&parsed, transport),
            timeout_ns: TIMEOUT_NS,
            seed: 1,
            first_stream: 0,
            slice_ns: SLICE_NS,
            stamp_every: STAMP_EVERY_MIN,
            tls: (transport == Transport::Tls).then(Tls::default),
            login: None,
            r2p2: R2p2::default(),
            netclone_servers: 2,
            datapath: None,
            preload: false,
            no_probe: false,
            busy_poll: false,
            spin_ns: SPIN_NS,
            trace: None,
            is_sealed: false,
            seal: None,
            granted: Granted::default(),
        };
        Ok(Self {
            job,
            load,
            arrivals: "poisson".to_owned(),
            stamp_every: None,
            agents: vec![AgentSpec { place: Place::Local, role: Role::Symmetric }],
            key: None,
            settings: Settings::new(P_DEFAULT),
            objective: None,
            assertions: Vec::new(),
            keep: Keep::Intended,
            samples: None,
            config: Value::Null,
            command: String::new(),
            is_interrupted: Arc::default(),
        })
    }

    /// The agents, with their jobs at a rate; without one, with those of a closed loop of
    /// [`Load::Outstanding`].
    ///
    /// Agents that measure only, one request at a time, add their little to the rate; the others
    /// share it equally.
    pub(crate) fn jobs(&self, rate_per_s: Option<f64>) -> Vec<(AgentSpec, Job)> {
        let loading = self.agents.iter().filter(|spec| spec.role != Role::Latency);
        let loading = loading.count().max(1) as u32;
        let open = |rate_per_s| LoadShare::Open { rate_per_s, arrivals: self.arrivals.clone() };
        let threads = self.job.threads;
        let job = |(index, spec): (usize, &AgentSpec)| {
            let mut job = Job {
                role: spec.role,
                first_stream: index as u64 * u64::from(threads) * STREAMS_PER_THREAD,
                preload: self.job.preload && index == 0,
                // One file has one writer.
                trace: self.job.trace.clone().filter(|_| index == 0),
                ..self.job.clone()
            };
            if spec.role == Role::Latency {
                job.load = open(LATENCY_RATE_PER_S * f64::from(threads));
                (job.connections, job.pipeline, job.busy_poll) = (threads, 1, true);
            } else {
                let outstanding = match self.load {
                    Load::Outstanding(outstanding) => outstanding,
                    Load::Rate(_) | Load::Pattern(_) => 1,
                };
                job.load = match rate_per_s {
                    None => LoadShare::Closed { outstanding: (outstanding / loading).max(1) },
                    Some(rate_per_s) => open(rate_per_s / f64::from(loading)),
                };
                job.connections = (job.connections / loading).max(threads);
            }
            if let LoadShare::Open { rate_per_s, .. } = job.load {
                job.stamp_every = self.stamp_every.unwrap_or_else(|| sparing(rate_per_s));
            }
            (spec.clone(), job)
        };
        self.agents.iter().enumerate().map(job).collect()
    }
}

/// Number of requests of which one is stamped: so large that at most as many a second are as tell
/// the client's bias at the p99 within some seconds, for each costs a thread about 2 us.
fn sparing(rate_per_s: f64) -> u32 {
    ((rate_per_s / STAMPED_PER_S).ceil() as u32).max(STAMP_EVERY_MIN)
}

/// Requests outstanding on a connection at most, by default: so many that a server that stalls does
/// not hold the load back. Where each request is a call of its own, the order that an application
/// keeps on a connection does not matter.
fn pipeline(app: &App, transport: Transport) -> u32 {
    match transport {
        Transport::Udp
        | Transport::R2p2
        | Transport::Homa
        | Transport::HomaIp
        | Transport::HomaTcp
        | Transport::NetClone => 16_384,
        Transport::Tcp | Transport::Tls => app.pipeline_max().unwrap_or(1_024),
    }
}

/// Requests a second of each thread of an agent that only measures.
const LATENCY_RATE_PER_S: f64 = 1_000.0;

const P_DEFAULT: f64 = 0.99;
const TIMEOUT_NS: u64 = 1_000_000_000;
const SLICE_NS: u64 = 100_000_000;
const STAMP_EVERY_MIN: u32 = 16;
const STAMPED_PER_S: f64 = 500.0;

/// A wake-up of 13-50 us would be in every latency below this, which is most of what a datacenter's
/// services take.
const SPIN_NS: u64 = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_bounds_what_is_outstanding_on_a_connection_alone() {
        let of = |app, transport| pipeline(&App::parse(app).unwrap(), transport);
        assert_eq!(of("http:/", Transport::Tcp), 1);
        assert_eq!(of("http:/", Transport::R2p2), 16_384);
        assert_eq!(of("redis:get=1", Transport::Tcp), 1_024);
        assert_eq!(of("redis:get=1", Transport::Homa), 16_384);
    }
}
