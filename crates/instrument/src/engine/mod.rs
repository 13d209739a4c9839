//! Loads from this process: threads that send what is due, and tell what became of it slice by
//! slice.
//!
//! | module | what it is |
//! |---|---|
//! | [`stream`] | a thread's connections over TCP or TLS |
//! | [`datagram`] | its sockets over UDP |
//! | [`calls`] | its endpoints of R2P2 or Homa, and the packets of their calls |
//! | [`watch`] | which packets belong to calls that are stamped |
//! | [`stamped`] | which timestamps there are, and what they say |
//! | [`thread`] | the loop over any of them |
//!
//! Invariant: the loop never waits for a reply in order to send: what is due leaves when it is due,
//! or is late because no connection has room for it, which its latency shows.

mod calls;
mod datagram;
mod stamped;
mod stream;
mod thread;
mod turns;
mod watch;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use tailcut_measure::app::{App, Carrier, Preload};
use tailcut_measure::arrivals::{Arrivals, Process};
use tailcut_measure::generator::generator;
use tailcut_measure::load::{ClosedLoop, Load, OpenLoop};
use tailcut_measure::load_loop::ClientTransport;
use tailcut_net::clock::Clock;
use tailcut_net::stamps::StampSource;
use tailcut_proto::node::Time;

use self::stamped::{Found, Sampler};
use super::environment;
use super::job::{Agent, ClientCounts, Job, STREAMS_PER_THREAD, Share, Told, Transport};
use crate::distribution_file;
use crate::network;

/// What a thread is to do.
pub(super) struct Plan {
    pub(super) index: u32,
    pub(super) app: App,
    pub(super) authority: String,
    pub(super) transport: Transport,
    pub(super) lanes: Vec<LanePlan>,
    pub(super) pipeline: usize,
    pub(super) timeout_ns: u64,
    pub(super) slice_ns: u64,
    pub(super) preload: Option<Preload>,
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

/// A thread's connections over a network.
trait Connections: ClientTransport<Error = anyhow::Error> {
    /// Opens all connections and fills the stores, until `until` at most.
    fn open(&mut self, until: Time) -> Result<()>;

    /// One connection more, to be opened while the load goes on.
    fn add_lane(&mut self, target: SocketAddr);

    /// What was counted since the beginning.
    fn counts(&mut self) -> ClientCounts;

    /// What picks requests to be stamped.
    fn sampler(&mut self) -> &mut Sampler;
}

/// When requests are given up: all wait equally long, so the first sent is the first to go.
#[derive(Default)]
struct Expiries {
    /// Deadline, lane, and number within the lane or tag.
    queue: VecDeque<(Time, usize, u64)>,
}

impl Expiries {
    fn push(&mut self, deadline: Time, lane: usize, number: u64) {
        self.queue.push_back((deadline, lane, number));
    }

    /// The next that is over at `now`.
    fn pop(&mut self, now: Time) -> Option<(usize, u64)> {
        let &(deadline, lane, number) = self.queue.front()?;
        (deadline <= now).then(|| self.queue.pop_front())?;
        Some((lane, number))
    }

    /// The next deadline of one that still waits; those before it are forgotten.
    fn next_waiting(&mut self, is_waiting: impl Fn(usize, u64) -> bool) -> Option<Time> {
        while let Some(&(deadline, lane, number)) = self.queue.front() {
            if is_waiting(lane, number) {
                return Some(deadline);
            }
            self.queue.pop_front();
        }
        None
    }
}

/// What the threads of an agent look at.
#[derive(Debug)]
struct Controls {
    /// When the load begins; `NOT_YET` until that is known.
    start: AtomicU64,
    is_stopped: AtomicBool,
    /// Over all threads.
    connections: AtomicU32,
    /// Which timestamps arrive, once a thread has probed.
    found: OnceLock<Found>,
}

/// The agent of this process.
pub struct LocalAgent {
    controls: Arc<Controls>,
    threads: Vec<JoinHandle<()>>,
    told: Option<Receiver<Told>>,
    /// Threads that are not ready yet, and threads that are not done yet.
    unready: u32,
    undone: u32,
    target: Option<SocketAddr>,
    /// Where timestamps come from.
    source: StampSource,
}

impl LocalAgent {
    /// An agent whose stamps come from `source`: the kernel, unless a test makes an interface up.
    pub fn with_stamps(source: StampSource) -> Self {
        let controls = Controls {
            start: AtomicU64::new(NOT_YET),
            is_stopped: AtomicBool::new(false),
            connections: AtomicU32::new(0),
            found: OnceLock::new(),
        };
        Self {
            controls: Arc::new(controls),
            threads: Vec::new(),
            told: None,
            unready: 0,
            undone: 0,
            target: None,
            source,
        }
    }

    /// Turns what threads tell into what an agent tells.
    fn gather(&mut self, told: Told) -> Option<Told> {
        match told {
            Told::Ready { stamps, .. } => {
                self.unready -= 1;
                (self.unready == 0)
                    .then(|| Told::Ready { host: environment::host(self.target), stamps })
            }
            Told::Done => {
                self.undone -= 1;
                (self.undone == 0).then_some(Told::Done)
            }
            told => Some(told),
        }
    }
}

/// What an agent on behalf of another host loads with.
pub(crate) fn local() -> Box<dyn Agent> {
    Box::new(LocalAgent::with_stamps(StampSource::Kernel))
}

impl Agent for LocalAgent {
    fn name(&self) -> &str {
        "local"
    }

    fn prepare(&mut self, job: &Job) -> Result<()> {
        let plans = plans(job, self.source)?;
        self.target = plans.first().and_then(|plan| plan.lanes.first()).map(|lane| lane.target);
        self.controls.connections.store(job.connections, Ordering::Relaxed);
        let (tell, told) = channel();
        self.told = Some(told);
        (self.unready, self.undone) = (job.threads, job.threads);
        for plan in plans {
            let (controls, tell) = (Arc::clone(&self.controls), tell.clone());
            let builder = std::thread::Builder::new().name(format!("load-{}", plan.index));
            let handle = builder.spawn(move || {
                if let Err(error) = thread::run(plan, &controls, &tell) {
                    // Nobody listens once the agent is gone.
                    let _ = tell.send(Told::Failed(format!("{error:#}")));
                }
            });
            self.threads.push(handle.context("cannot start a thread")?);
        }
        Ok(())
    }

    fn start(&mut self, in_ns: u64) -> Result<()> {
        self.controls.start.store(Clock.now().saturating_add(in_ns), Ordering::Release);
        Ok(())
    }

    fn set_connections(&mut self, connections: u32) -> Result<()> {
        self.controls.connections.store(connections, Ordering::Relaxed);
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        self.controls.is_stopped.store(true, Ordering::Release);
        Ok(())
    }

    fn poll(&mut self, wait_ns: u64) -> Option<Told> {
        let deadline = Clock.now().saturating_add(wait_ns);
        loop {
            let left = Duration::from_nanos(deadline.saturating_sub(Clock.now()));
            let told = match self.told.as_ref()?.recv_timeout(left) {
                Ok(told) => told,
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => {
                    return Some(Told::Failed("its threads have ended".to_owned()));
                }
            };
            if let Some(told) = self.gather(told) {
                return Some(told);
            }
        }
    }
}

impl Drop for LocalAgent {
    fn drop(&mut self) {
        self.controls.is_stopped.store(true, Ordering::Release);
        // A thread that waits for its start looks whether it is stopped as well.
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The plans of a job's threads.
fn plans(job: &Job, source: StampSource) -> Result<Vec<Plan>> {
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
    let carrier = match job.transport {
        Transport::Tcp | Transport::Tls => Carrier::Stream,
        Transport::Udp => Carrier::Datagram,
        Transport::R2p2 | Transport::Homa | Transport::HomaIp => Carrier::Message,
    };
    let preload = if job.preload { Preload::new(&app, carrier)? } else { None };
    let targets =
        job.targets.iter().map(|name| network::resolve(name)).collect::<Result<Vec<_>>>()?;
    let lane = |index: u32| LanePlan {
        target: targets[index as usize % targets.len()],
        fills: (index as usize) < targets.len() && preload.is_some(),
    };
    let plan = |thread: u32| Plan {
        index: thread,
        app: app.clone(),
        authority: job.targets[0].clone(),
        transport: job.transport,
        lanes: (0..job.connections)
            .filter(|index| index % job.threads == thread)
            .map(lane)
            .collect(),
        pipeline: job.pipeline as usize,
        timeout_ns: job.timeout_ns,
        slice_ns: job.slice_ns,
        preload: preload.clone(),
        job: job.clone(),
        source,
    };
    Ok((0..job.threads).map(plan).collect())
}

impl Plan {
    /// The thread's share of the load, which begins at `start_ns`.
    fn load(&self, start_ns: Time) -> Result<Load> {
        let stream = self.job.first_stream + u64::from(self.index) * STREAMS_PER_THREAD;
        match &self.job.load {
            Share::Open { rate_per_s, arrivals } => {
                let process = Process::parse(arrivals).map_err(|error| anyhow!("{error}"))?;
                let rate_per_s = rate_per_s / f64::from(self.job.threads);
                let arrivals =
                    Arrivals::new(process, rate_per_s, generator(self.job.seed, stream))?;
                Ok(Load::Open(OpenLoop::new(arrivals, start_ns)))
            }
            Share::Closed { outstanding } => {
                let share = outstanding / self.job.threads
                    + u32::from(self.index < outstanding % self.job.threads);
                Ok(Load::Closed(ClosedLoop::new(share as usize, start_ns)))
            }
        }
    }

    /// The stream of the seed that requests are drawn from.
    fn request_stream(&self) -> u64 {
        self.job.first_stream + u64::from(self.index) * STREAMS_PER_THREAD + 1
    }

    fn carrier(&self) -> Carrier {
        match self.transport {
            Transport::Tcp | Transport::Tls => Carrier::Stream,
            Transport::Udp => Carrier::Datagram,
            Transport::R2p2 | Transport::Homa | Transport::HomaIp => Carrier::Message,
        }
    }
}

/// No start is known.
const NOT_YET: u64 = u64::MAX;
