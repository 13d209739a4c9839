//! Common parts of the connections of a load thread, whatever carries them.

use std::collections::VecDeque;
use std::net::SocketAddr;

use anyhow::Result;
use tailcut_measure::load_loop::ClientTransport;
use tailcut_proto::node::Time;

use super::stamped::Sampler;
use crate::job::ClientCounts;

/// A thread's connections over a network.
pub(super) trait Connections: ClientTransport<Error = anyhow::Error> {
    /// Opens all connections and fills the stores, until `until` at most.
    fn open(&mut self, until: Time) -> Result<()>;

    /// One connection more, to be opened while the load goes on.
    fn add_lane(&mut self, target: SocketAddr);

    /// Counts since the beginning.
    fn counts(&mut self) -> ClientCounts;

    /// Sampler that picks requests to be stamped.
    fn sampler(&mut self) -> &mut Sampler;
}

/// Deadlines of requests: all wait equally long, so the first sent is the first to expire.
#[derive(Default)]
pub(super) struct Expiries {
    /// Deadline, lane, and number within the lane or tag.
    queue: VecDeque<(Time, usize, u64)>,
}

impl Expiries {
    pub(super) fn push(&mut self, deadline: Time, lane: usize, number: u64) {
        self.queue.push_back((deadline, lane, number));
    }

    /// The next that is over at `now`.
    pub(super) fn pop(&mut self, now: Time) -> Option<(usize, u64)> {
        let &(deadline, lane, number) = self.queue.front()?;
        (deadline <= now).then(|| self.queue.pop_front())?;
        Some((lane, number))
    }

    /// The next deadline of one that still waits; those before it are dropped.
    pub(super) fn next_waiting(&mut self, is_waiting: impl Fn(usize, u64) -> bool) -> Option<Time> {
        while let Some(&(deadline, lane, number)) = self.queue.front() {
            if is_waiting(lane, number) {
                return Some(deadline);
            }
            self.queue.pop_front();
        }
        None
    }
}

/// Pace of the requests that fill a store.
pub(super) struct Pace {
    gap_ns: u64,
    /// The next; any before the first.
    next: Option<Time>,
}

impl Pace {
    /// One each `gap_ns` on average at most.
    pub(super) fn new(gap_ns: u64) -> Self {
        Self { gap_ns, next: None }
    }

    /// True if a request may leave at `now`, which then does.
    pub(super) fn admits(&mut self, now: Time) -> bool {
        let next = *self.next.get_or_insert(now);
        let is_due = next <= now;
        self.next = Some(if is_due { next + self.gap_ns } else { next });
        is_due
    }
}
