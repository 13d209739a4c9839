//! Layouts of what is before the threads of `--workers`, those of RPCValet, by their queues and the
//! threads of each.
//!
//! | layout of N workers | queues | who serves the network |
//! |---|---|---|
//! | single | 1 for N | one thread, which pushes to the workers |
//! | shared-queue | 1 for N | one thread; the workers pull under an MCS lock |
//! | grouped:G | G, each for N/G | G threads that share the port, each before its own workers |
//! | partitioned | N | the workers themselves, N threads that share the port: no hand-off |
//! | partitioned:shortest | N | the same, and each new client is given the shortest queue |
//!
//! Threads that share a port are given clients by the kernel, as by RSS or by an eBPF program that
//! knows how long their queues are: `net::reuseport`.

use anyhow::{Result, bail};
use tailcut_instrument::job::Transport;

use super::Args;

/// A layout of queues and workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// One queue.
    Single,
    /// One queue, which workers pull from under a lock.
    SharedQueue,
    /// A queue for each worker.
    Partitioned,
    /// A queue for each worker, of which new clients join the shortest.
    Shortest,
    /// So many queues.
    Grouped(u16),
}

impl Layout {
    /// Reads `single`, `shared-queue`, `partitioned`, `partitioned:shortest` or `grouped:G`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("grouped:")) {
            ("single", _) => Ok(Self::Single),
            ("shared-queue", _) => Ok(Self::SharedQueue),
            ("partitioned", _) => Ok(Self::Partitioned),
            ("partitioned:shortest", _) => Ok(Self::Shortest),
            (_, Some(count)) if count.parse().is_ok_and(|count: u16| count > 0) => {
                Ok(Self::Grouped(count.parse().unwrap_or(1)))
            }
            _ => Err("write single, shared-queue, partitioned, partitioned:shortest or grouped:G, such as grouped:4"
                .to_owned()),
        }
    }
}

impl Args {
    /// As threads that serve and the workers of each, where the layout asks for several queues.
    pub(super) fn laid_out(mut self) -> Result<Self> {
        let workers = self.workers;
        let queues = match self.dispatch {
            Layout::Single => return Ok(self),
            Layout::SharedQueue if !self.has_crew() || self.darc => bail!(
                "--dispatch shared-queue has threads that take what comes first: take --app spin or echo and --workers of 2 or more, and leave --darc out"
            ),
            Layout::SharedQueue => return Ok(self),
            Layout::Partitioned | Layout::Shortest => workers,
            Layout::Grouped(count) => u32::from(count),
        };
        let shares_port = matches!(self.transport, Transport::R2p2 | Transport::Homa);
        if !self.suits_crew() || workers < 2 || !shares_port {
            bail!(
                "--dispatch lays out threads that share a port: take --app spin or echo, --workers of 2 or more, and r2p2 or homa over UDP"
            );
        }
        if self.serving.threads > 1 || self.ports > 1 {
            bail!("--dispatch says how many threads serve; leave --threads and --ports out");
        }
        if self.router.is_some() {
            bail!(
                "several queues at one port are no server behind a router: take --dispatch single, or leave --router out"
            );
        }
        if queues == workers
            && (self.bound.is_some() || self.worker_spin.is_some() || !self.worker_cores.is_empty())
        {
            bail!(
                "--dispatch with a queue for each worker has no hand-off: leave --bound, --worker-cores and --worker-spin out"
            );
        }
        if queues == workers && !self.types.is_empty() {
            bail!(
                "--dispatch with a queue for each worker reserves none: leave --types out, or take --dispatch single"
            );
        }
        if !workers.is_multiple_of(queues) || queues > QUEUES_MAX {
            bail!(
                "--dispatch: {workers} workers are not shared evenly by {queues} queues, {QUEUES_MAX} at most"
            );
        }
        // Within QUEUES_MAX.
        self.serving.threads = queues as u16;
        self.workers = workers / queues;
        Ok(self)
    }
}

/// The most queues: as many threads as may share a port here.
const QUEUES_MAX: u32 = 8;
