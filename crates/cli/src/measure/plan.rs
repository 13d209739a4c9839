//! The jobs of an experiment's agents, and when its measurement is good enough.

use anyhow::{Context, Result};
use tailcut_measure::app::App;
use tailcut_measure::control::{Limits, Settings, Setup, Target};

use super::experiment::{Experiment, Precision};
use super::job::{Job, R2p2, Role, STREAMS_PER_THREAD, Share, Tls, Transport};
use super::pattern::Pattern;
use crate::agent::spec::{AgentSpec, Place};

/// An experiment with its defaults.
pub(super) struct Plan {
    experiment: Experiment,
    job: Job,
    arrivals: String,
}

impl Plan {
    /// # Errors
    ///
    /// What the experiment lacks, and a file of certificates that cannot be read.
    pub(super) fn new(experiment: &Experiment) -> Result<Self> {
        let app = experiment.app.as_ref().context("say what to ask: --app")?;
        let transport = experiment.transport.unwrap_or(Transport::R2p2);
        let threads = experiment.threads.unwrap_or(1);
        let targets = experiment.target.len() as u32;
        let arrivals =
            experiment.arrivals.as_ref().map_or("poisson", |arrivals| arrivals.text()).to_owned();
        let read = |path: &String| {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
        };
        let tls = Tls {
            name: experiment.server_name.clone(),
            roots_pem: experiment.ca.as_ref().map(read).transpose()?,
            insecure: experiment.insecure,
        };
        let job = Job {
            transport,
            app: app.text().to_owned(),
            targets: experiment.target.clone(),
            load: Share::Closed { outstanding: experiment.outstanding.unwrap_or(1) },
            role: Role::Symmetric,
            threads,
            connections: experiment.connections.unwrap_or(threads.max(targets)),
            pipeline: experiment.pipeline.unwrap_or_else(|| pipeline(app, transport)),
            timeout_ns: experiment.timeout.as_deref().copied().unwrap_or(TIMEOUT_NS),
            seed: experiment.seed.unwrap_or(1),
            first_stream: 0,
            slice_ns: SLICE_NS,
            stamp_every: experiment.stamp_every.unwrap_or(STAMP_EVERY_MIN),
            tls: (transport == Transport::Tls).then_some(tls),
            r2p2: R2p2 { idempotent: experiment.idempotent, v1: experiment.v1 },
            preload: experiment.preload,
            busy_poll: experiment.busy_poll,
            spin_ns: experiment.spin_ns.unwrap_or(SPIN_NS),
        };
        Ok(Self { experiment: experiment.clone(), job, arrivals })
    }

    /// The rate, where there is one for the whole experiment.
    pub(super) fn rate_per_s(&self) -> Option<f64> {
        self.experiment.rate.as_deref().copied()
    }

    /// As they were written.
    pub(super) fn arrivals(&self) -> &str {
        &self.arrivals
    }

    /// What is measured, in a line.
    pub(super) fn title(&self) -> String {
        let Job { app, targets, transport, .. } = &self.job;
        format!("{app} at {} over {}", targets.join(", "), transport.name())
    }

    pub(super) fn slice_ns(&self) -> u64 {
        self.job.slice_ns
    }

    /// The agents, with their jobs at a rate; without one, with those of a closed loop.
    ///
    /// Agents that measure only, one request at a time, add their little to the rate; the others
    /// share it equally.
    pub(super) fn jobs(&self, rate_per_s: Option<f64>) -> Vec<(AgentSpec, Job)> {
        let local = AgentSpec { place: Place::Local, role: Role::Symmetric };
        let given = self.experiment.agent.iter().map(|agent| AgentSpec::clone(agent));
        let specs: Vec<AgentSpec> =
            if self.experiment.agent.is_empty() { vec![local] } else { given.collect() };
        let loading = specs.iter().filter(|spec| spec.role != Role::Latency).count().max(1) as u32;
        let open = |rate_per_s| Share::Open { rate_per_s, arrivals: self.arrivals.clone() };
        let threads = self.job.threads;
        let job = |(index, spec): (usize, AgentSpec)| {
            let first_stream = index as u64 * u64::from(threads) * STREAMS_PER_THREAD;
            let shared = Job {
                role: spec.role,
                first_stream,
                preload: self.job.preload && index == 0,
                ..self.job.clone()
            };
            let job = match (spec.role, &self.job.load) {
                (Role::Latency, _) => Job {
                    load: open(LATENCY_RATE_PER_S * f64::from(threads)),
                    connections: threads,
                    pipeline: 1,
                    busy_poll: true,
                    ..shared
                },
                (_, Share::Closed { outstanding }) if rate_per_s.is_none() => Job {
                    load: Share::Closed { outstanding: (outstanding / loading).max(1) },
                    ..self.share(shared, loading)
                },
                _ => Job {
                    load: open(rate_per_s.unwrap_or(0.0) / f64::from(loading)),
                    ..self.share(shared, loading)
                },
            };
            (spec, self.stamping(job))
        };
        specs.into_iter().enumerate().map(job).collect()
    }

    /// With as many requests stamped as were asked for, or else at most so many a second as tell
    /// the client's bias at the p99 within some seconds: each costs a thread about 2 us.
    fn stamping(&self, job: Job) -> Job {
        let Share::Open { rate_per_s, .. } = job.load else { return job };
        let sparing = ((rate_per_s / STAMPED_PER_S).ceil() as u32).max(STAMP_EVERY_MIN);
        Job { stamp_every: self.experiment.stamp_every.unwrap_or(sparing), ..job }
    }

    /// One of so many shares of the connections.
    fn share(&self, job: Job, shares: u32) -> Job {
        Job { connections: (job.connections / shares).max(job.threads), ..job }
    }

    /// What the controller is to reach.
    pub(super) fn settings(&self) -> Settings {
        let experiment = &self.experiment;
        let objective = experiment
            .slo
            .as_deref()
            .filter(|_| matches!(experiment.pattern, Some(Pattern::Find { .. })));
        let mut settings = match objective {
            Some(objective) => Settings::deciding(*objective),
            None => Settings::new(experiment.percentile.as_deref().copied().unwrap_or(P_DEFAULT)),
        };
        match experiment.precision.as_deref() {
            Some(&Precision::Share(share)) => settings.target = Target::Share(share),
            Some(&Precision::Nanoseconds(ns)) => settings.target = Target::Nanoseconds(ns),
            None => {}
        }
        settings.setup = Setup { connections: self.job.connections, ..Setup::default() };
        let defaults = Limits::default();
        let warmup = experiment.warmup.as_deref().copied();
        let duration = experiment.duration.as_deref().copied();
        settings.limits = Limits {
            warmup_min_ns: warmup.unwrap_or(defaults.warmup_min_ns),
            // A duration that was given is kept to: nothing is prolonged and nothing begins again.
            warmup_max_ns: match duration {
                Some(_) => warmup.unwrap_or(defaults.warmup_min_ns),
                None => defaults.warmup_max_ns.max(warmup.unwrap_or(0)),
            },
            measure_min_ns: duration
                .or(experiment.duration_min.as_deref().copied())
                .unwrap_or(defaults.measure_min_ns),
            measure_max_ns: duration
                .or(experiment.duration_max.as_deref().copied())
                .unwrap_or(defaults.measure_max_ns),
            total_max_ns: experiment.time_max.as_deref().copied().unwrap_or(defaults.total_max_ns),
            restarts_max: if duration.is_some() { 0 } else { defaults.restarts_max },
            connections_max: experiment.connections_max.unwrap_or(self.job.connections),
            ..defaults
        };
        settings.limits.measure_min_ns =
            settings.limits.measure_min_ns.min(settings.limits.measure_max_ns);
        settings
    }
}

/// How many requests a connection has outstanding at most, by default: so many that a server that
/// stalls does not hold the load back.
fn pipeline(app: &App, transport: Transport) -> u32 {
    app.pipeline_max().unwrap_or(match transport {
        Transport::Udp | Transport::R2p2 | Transport::Homa | Transport::HomaIp => 16_384,
        Transport::Tcp | Transport::Tls => 1_024,
    })
}

/// What a thread of an agent asks that only measures.
const LATENCY_RATE_PER_S: f64 = 1_000.0;

const P_DEFAULT: f64 = 0.99;
const TIMEOUT_NS: u64 = 1_000_000_000;
const SLICE_NS: u64 = 100_000_000;
const STAMP_EVERY_MIN: u32 = 16;
const STAMPED_PER_S: f64 = 500.0;

/// A wake-up of 13-50 us would be in every latency below this, which is most of what a datacenter's
/// services take.
const SPIN_NS: u64 = 200_000;
