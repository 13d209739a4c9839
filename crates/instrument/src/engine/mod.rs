//! Loads from this process: threads that send what is due, and tell what became of it slice by
//! slice.
//!
//! | module | what it is |
//! |---|---|
//! | `stream` | a thread's connections over TCP or TLS |
//! | `datagram` | its sockets over UDP |
//! | `netclone` | what NetClone's format puts before requests on them |
//! | `calls` | its endpoints of R2P2 or Homa, and the packets of their calls |
//! | `target` | where a connection goes: an address or a Unix socket |
//! | `plan`, `connections` | what a thread is to do, and by what |
//! | `probe_call`, `identify` | a request before the load, and which protocol is spoken instead |
//! | `watch` | which packets belong to calls that are stamped |
//! | `probing`, `stamped` | which timestamps there are, and what they say |
//! | `thread` | the loop over any of them |
//!
//! Invariant: the loop never waits for a reply in order to send: what is due leaves when it is due,
//! or is late because no connection has room for it, which its latency shows.

mod calls;
mod connections;
mod datagram;
mod identify;
mod netclone;
mod plan;
mod probe_call;
mod probing;
mod ready_queue;
mod stamped;
mod stream;
mod target;
mod thread;
mod watch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use tailcut_net::clock::Clock;
use tailcut_net::stamps::StampSource;

use self::plan::plans;
use self::thread::{Controls, NOT_YET};
use super::environment;
use super::host_load::{CpuWatch, THREAD_NAME};
use super::job::{Agent, AgentEvent, Job};
use super::packet_drops::DropWatch;

/// The agent of this process.
pub struct LocalAgent {
    controls: Arc<Controls>,
    threads: Vec<JoinHandle<()>>,
    told: Option<Receiver<AgentEvent>>,
    /// Threads that are not ready yet, and threads that are not done yet.
    unready: u32,
    undone: u32,
    target: Option<SocketAddr>,
    /// Source of timestamps.
    source: StampSource,
    /// Watch of CPU contention, from when all threads are ready.
    cpu: Option<CpuWatch>,
    /// Watch of dropped packets, from when all threads are ready.
    drops: Option<DropWatch>,
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
            cpu: None,
            drops: None,
        }
    }

    /// Gathers what threads tell into what an agent tells.
    fn gather(&mut self, told: AgentEvent) -> Option<AgentEvent> {
        match told {
            AgentEvent::Ready { stamps, .. } => {
                self.unready -= 1;
                if self.unready == 0 {
                    self.cpu = Some(CpuWatch::new());
                    self.drops = Some(DropWatch::new());
                }
                (self.unready == 0)
                    .then(|| AgentEvent::Ready { host: environment::host(self.target), stamps })
            }
            AgentEvent::Done => {
                self.undone -= 1;
                (self.undone == 0).then_some(AgentEvent::Done)
            }
            AgentEvent::Client { mut client, stamps, stamped } => {
                client.cpu = self.cpu.as_mut().map(CpuWatch::take).unwrap_or_default();
                let is_last = self.controls.is_stopped.load(Ordering::Relaxed);
                client.host_drops =
                    self.drops.as_mut().map(|drops| drops.take(is_last)).unwrap_or_default();
                Some(AgentEvent::Client { client, stamps, stamped })
            }
            told => Some(told),
        }
    }
}

/// Engine of an agent that loads on behalf of another host.
pub(crate) fn local() -> Box<dyn Agent> {
    Box::new(LocalAgent::with_stamps(StampSource::Kernel))
}

impl Agent for LocalAgent {
    fn name(&self) -> &str {
        "local"
    }

    fn prepare(&mut self, job: &Job) -> Result<()> {
        let plans = plans(job, self.source)?;
        let first = plans.first().filter(|plan| plan.unix.is_none());
        self.target = first.and_then(|plan| plan.lanes.first()).map(|lane| lane.target);
        self.controls.connections.store(job.connections, Ordering::Relaxed);
        let (tell, told) = channel();
        self.told = Some(told);
        (self.unready, self.undone) = (job.threads, job.threads);
        for plan in plans {
            let (controls, tell) = (Arc::clone(&self.controls), tell.clone());
            let builder = std::thread::Builder::new().name(format!("{THREAD_NAME}{}", plan.index));
            let handle = builder.spawn(move || {
                if let Err(error) = thread::run(plan, &controls, &tell) {
                    // Nobody listens once the agent is gone.
                    let _ = tell.send(AgentEvent::Failed(format!("{error:#}")));
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

    fn poll(&mut self, wait_ns: u64) -> Option<AgentEvent> {
        let deadline = Clock.now().saturating_add(wait_ns);
        loop {
            let left = Duration::from_nanos(deadline.saturating_sub(Clock.now()));
            let told = match self.told.as_ref()?.recv_timeout(left) {
                Ok(told) => told,
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => {
                    return Some(AgentEvent::Failed("its threads have ended".to_owned()));
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
