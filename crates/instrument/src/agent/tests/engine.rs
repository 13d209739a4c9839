//! An engine that sends nothing, and tells slices that a test can foretell.

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use tailcut_measure::outcome::Counts;
use tailcut_measure::slices::Slice;
use tailcut_measure::stamps::MatchCounts;
use tailcut_measure::statistics::series::Timed;
use tailcut_net::clock::Clock;

use crate::agent::serve::Service;
use crate::agent::tests::LIMITS;
use crate::job::{Agent, AgentEvent, ClientCounts, Job, LoadShare, StampKind};
use crate::result::Host;

pub(super) const SERVICE: Service =
    Service { limits: LIMITS, keys: None, engine: make, note: |note| eprintln!("{note}") };

/// Says on standard error when its load has ended.
fn make() -> Box<dyn Agent> {
    Box::new(Engine { told: VecDeque::new(), job: None, start_ns: None, made: 0 })
}

struct Engine {
    told: VecDeque<AgentEvent>,
    job: Option<Job>,
    start_ns: Option<u64>,
    /// Slices so far.
    made: u32,
}

/// The slice of a thread, as the engine tells it.
pub(super) fn slice(job: &Job, thread: u32, index: u32) -> Slice {
    let LoadShare::Open { rate_per_s, .. } = job.load else {
        panic!("the engine is for open loops")
    };
    let count = (rate_per_s * job.slice_ns as f64 / 1e9 / f64::from(job.threads)) as u64;
    let sample = |place: u64| Timed {
        intended_ns: u64::from(index) * job.slice_ns + place * job.slice_ns / count,
        latency_ns: (job.seed + u64::from(thread) + place).wrapping_mul(0x9e37_79b9) % 1_000_000,
        late_ns: place % 100,
    };
    Slice {
        index,
        counts: Counts { sent: count, replied: count, ..Counts::default() },
        samples: (0..count).map(sample).collect(),
        ..Slice::default()
    }
}

impl Agent for Engine {
    fn name(&self) -> &str {
        "engine of a test"
    }

    fn prepare(&mut self, job: &Job) -> Result<()> {
        if job.app == "none" {
            bail!("no server answers");
        }
        self.job = Some(job.clone());
        let host = Host { name: "host of a test".to_owned(), ..Host::default() };
        self.told.push_back(AgentEvent::Ready { host, stamps: StampKind::Kernel });
        Ok(())
    }

    fn start(&mut self, in_ns: u64) -> Result<()> {
        self.start_ns = Some(Clock.now() + in_ns);
        Ok(())
    }

    fn set_connections(&mut self, connections: u32) -> Result<()> {
        let client = ClientCounts { reconnects: u64::from(connections), ..ClientCounts::default() };
        self.told.push_back(AgentEvent::Client {
            client,
            stamps: MatchCounts::default(),
            stamped: Vec::new(),
        });
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        self.start_ns = None;
        self.told.push_back(AgentEvent::Done);
        Ok(())
    }

    fn poll(&mut self, wait_ns: u64) -> Option<AgentEvent> {
        if let Some(told) = self.told.pop_front() {
            return Some(told);
        }
        let (Some(job), Some(start_ns)) = (&self.job, self.start_ns) else {
            thread::park_timeout(Duration::from_nanos(wait_ns));
            return None;
        };
        let (index, thread) = (self.made / job.threads, self.made % job.threads);
        let due_ns = start_ns + u64::from(index + 1) * job.slice_ns;
        if let Some(early_ns @ 1..) = due_ns.checked_sub(Clock.now()) {
            thread::park_timeout(Duration::from_nanos(early_ns.min(wait_ns)));
            return None;
        }
        self.made += 1;
        Some(AgentEvent::Slice { thread, slice: slice(job, thread, index) })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        eprintln!("load ended");
    }
}
