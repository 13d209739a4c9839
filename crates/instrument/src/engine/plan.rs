//! What a load thread is to do.

use std::net::SocketAddr;

use anyhow::{Context, Result, anyhow, bail};
use tailcut_measure::app::{App, Preload, Setting};
use tailcut_measure::arrivals::{Arrivals, Process};
use tailcut_measure::generator::generator;
use tailcut_measure::load::{ClosedLoop, Load, OpenLoop};
use tailcut_net::stamps::StampSource;
use tailcut_net::trace::Trace;
use tailcut_proto::node::Time;

use crate::job::{Job, LoadShare, STREAMS_PER_THREAD};
use crate::{distribution_file, network};

/// What a thread is to do.
pub(super) struct Plan {
    pub(super) index: u32,
    pub(super) app: App,
    pub(super) lanes: Vec<LanePlan>,
    /// Targets that stand for each other, or none.
    pub(super) alternates: Vec<SocketAddr>,
    pub(super) preload: Option<Preload>,
    /// Targets that this thread asks before the load: all, or none.
    pub(super) probed: Vec<SocketAddr>,
    pub(super) job: Job,
    /// Where timestamps come from.
    pub(super) source: StampSource,
}

/// A connection to be opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct LanePlan {
    pub(super) target: SocketAddr,
    /// It fills the target's store.
    pub(super) fills: bool,
}

/// The plans of a job's threads.
pub(super) fn plans(job: &Job, source: StampSource) -> Result<Vec<Plan>> {
    if job.threads == 0
        || job.connections < job.threads
        || job.targets.is_empty()
        || job.pipeline == 0
    {
        bail!(
            "a load needs a target, a thread, a connection for each thread, and one request outstanding at least"
        );
    }
    let app = App::parse_with(&job.app, &mut distribution_file::read)?;
    let preload = if job.preload { app.preload(job.transport.carrier())? } else { None };
    let targets = match job.granted.addresses.as_slice() {
        [] => job.targets.iter().map(|name| network::resolve(name)).collect::<Result<Vec<_>>>()?,
        checked => checked.to_vec(),
    };
    let lane = |index: u32| LanePlan {
        target: targets[index as usize % targets.len()],
        fills: (index as usize) < targets.len() && preload.is_some(),
    };
    let plan = |thread: u32| Plan {
        index: thread,
        app: app.clone(),
        lanes: (0..job.connections)
            .filter(|index| index % job.threads == thread)
            .map(lane)
            .collect(),
        alternates: if job.r2p2.failover { targets.clone() } else { Vec::new() },
        preload: preload.clone(),
        probed: if thread == 0 && !job.no_probe { distinct(&targets) } else { Vec::new() },
        job: job.clone(),
        source,
    };
    Ok((0..job.threads).map(plan).collect())
}

/// Each address once, in the order of their first places.
fn distinct(targets: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut distinct: Vec<SocketAddr> = Vec::new();
    for &target in targets {
        if !distinct.contains(&target) {
            distinct.push(target);
        }
    }
    distinct
}

impl Plan {
    /// The thread's share of the load, which begins at `start_ns`.
    pub(super) fn load(&self, start_ns: Time) -> Result<Load> {
        let stream = self.job.first_stream + u64::from(self.index) * STREAMS_PER_THREAD;
        match &self.job.load {
            LoadShare::Open { rate_per_s, arrivals } => {
                let process = Process::parse(arrivals).map_err(|error| anyhow!("{error}"))?;
                let rate_per_s = rate_per_s / f64::from(self.job.threads);
                let arrivals =
                    Arrivals::new(process, rate_per_s, generator(self.job.seed, stream))?;
                Ok(Load::Open(OpenLoop::new(arrivals, start_ns)))
            }
            LoadShare::Closed { outstanding } => {
                let share = outstanding / self.job.threads
                    + u32::from(self.index < outstanding % self.job.threads);
                Ok(Load::Closed(ClosedLoop::new(share as usize, start_ns).paced(self.gap_ns())))
            }
        }
    }

    /// From one of the thread's requests to the next at least, ns, whatever they are for.
    pub(super) fn gap_ns(&self) -> u64 {
        let rate_max_per_s = self.job.granted.rate_max_per_s;
        rate_max_per_s.map_or(0, |rate| (1e9 / rate * f64::from(self.job.threads)).ceil() as u64)
    }

    /// The trace that the first thread writes, if any is asked for.
    pub(super) fn trace(&self) -> Result<Option<Trace>> {
        let config = self.job.trace.as_ref().filter(|_| self.index == 0);
        let create = |config| Trace::create(config).context("cannot write the trace");
        config.map(create).transpose()
    }

    /// The stream of the seed that requests are drawn from.
    pub(super) fn request_stream(&self) -> u64 {
        self.job.first_stream + u64::from(self.index) * STREAMS_PER_THREAD + 1
    }

    /// What the requests depend on beside the application.
    pub(super) fn setting(&self) -> Setting<'_> {
        Setting { carrier: self.job.transport.carrier(), authority: &self.job.targets[0] }
    }
}
