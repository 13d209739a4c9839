//! Plans of load threads.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tailcut_measure::app::{App, Preload, Setting};
use tailcut_measure::arrivals::{Arrivals, Process};
use tailcut_measure::generator::generator;
use tailcut_measure::load::{ClosedLoop, Load, OpenLoop};
use tailcut_net::stamps::StampSource;
use tailcut_net::trace::Trace;
use tailcut_proto::node::Time;

use crate::job::{Job, LoadShare, STREAMS_PER_THREAD, Transport};
use crate::{apps, network};

/// Plan of a load thread.
pub(super) struct Plan {
    pub(super) index: u32,
    pub(super) app: App,
    pub(super) lanes: Vec<LanePlan>,
    /// The Unix socket that all lanes go to; their addresses then say nothing.
    pub(super) unix: Option<Arc<Path>>,
    /// Targets that stand for each other, or none.
    pub(super) alternates: Vec<SocketAddr>,
    pub(super) preload: Option<Preload>,
    /// Targets that this thread asks before the load: all, or none.
    pub(super) probed: Vec<SocketAddr>,
    pub(super) job: Job,
    /// Source of timestamps.
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
    let app = apps::parse(&job.app)?;
    let preload = if job.preload { app.preload(job.transport.carrier())? } else { None };
    let unix = unix(job)?;
    let targets = match job.granted.addresses.as_slice() {
        [] if unix.is_some() => vec![NO_ADDRESS],
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
        unix: unix.clone(),
        alternates: if job.r2p2.failover { targets.clone() } else { Vec::new() },
        preload: preload.clone(),
        probed: if thread == 0 && !job.no_probe { distinct(&targets) } else { Vec::new() },
        job: job.clone(),
        source,
    };
    Ok((0..job.threads).map(plan).collect())
}

/// The Unix socket that a job names, which is then its only target.
fn unix(job: &Job) -> Result<Option<Arc<Path>>> {
    let Some(path) = job.targets.iter().find_map(|target| network::unix_path(target)) else {
        return Ok(None);
    };
    ensure!(
        job.targets.len() == 1 && job.transport == Transport::Tcp,
        "a Unix socket is the only target, and without TLS"
    );
    Ok(Some(path.into()))
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

    /// Setting that the requests depend on beside the application.
    pub(super) fn setting(&self) -> Setting<'_> {
        let transport = self.job.transport;
        let is_tls = transport == Transport::Tls;
        let authority = if self.unix.is_some() { "localhost" } else { &self.job.targets[0] };
        Setting { carrier: transport.carrier(), authority, is_tls }
    }
}

/// In the place of a Unix socket's.
const NO_ADDRESS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
