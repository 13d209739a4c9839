//! Counters and measurements of a dispatcher.

use std::ops::Deref;

use tailcut_proto::policy::{Policy, WorkerId};
use tailcut_proto::scheduler::Scheduler;
use tailcut_proto::scheduler::typed::{TYPES_MAX, TypeId};

use super::config::WORKERS_MAX;

/// Counters and measures of a dispatcher at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Workers.
    pub workers: u64,
    /// Workers that have something.
    pub busy: u64,
    /// Jobs in the queue.
    pub queue_len: u64,
    /// Jobs with workers, running or committed to them.
    pub outstanding: u64,
    /// The most that one worker has.
    pub outstanding_max: u64,
    /// Jobs that each worker has, running or committed to it; of none where workers pull, because a
    /// job is nobody's before.
    pub outstanding_by_worker: ByWorker,
    /// The most that a worker may have now.
    pub bound: u64,
    /// The average round trip to a worker that is awake and has nothing, less its service;
    /// nanoseconds. `None` before it was measured.
    pub hand_off_ns: Option<u64>,
    /// The average service time, nanoseconds. `None` before it was measured.
    pub service_ns: Option<u64>,
    /// Times that a worker went to sleep.
    pub worker_sleeps: u64,
    /// Jobs whose handler panicked, as far as it let the worker see it.
    pub panics: u64,
    /// By type of jobs; all zero past the types that there are, and where there is one.
    pub types: [TypeMetrics; TYPES_MAX],
    /// Events so far.
    pub counts: Counts,
    /// Events so far about jobs that its owner runs in place; nothing where it runs none.
    pub in_place: InPlaceCounts,
}

/// A count of each worker, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByWorker {
    /// As many as there are workers, and zeros.
    counts: [u32; WORKERS_MAX],
    /// Workers.
    len: usize,
}

/// Measurements of a type of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeMetrics {
    /// Jobs in its queue.
    pub queue_len: u64,
    /// Workers that jobs of longer types never get.
    pub reserved: u64,
    /// The average service time, nanoseconds. `None` before it was measured.
    pub service_ns: Option<u64>,
}

/// Events since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Jobs given to a worker; again where they were taken back.
    pub dispatched: u64,
    /// Jobs that found every worker at its bound and were queued.
    pub queued: u64,
    /// Jobs that were committed to a busy worker and given to an idle one.
    pub taken_back: u64,
    /// Jobs that found the queue full.
    pub refused_queue_full: u64,
    /// Jobs whose deadline passed in the queue, or would have before they were done.
    pub expired: u64,
    /// Wake-ups of workers that slept.
    pub wakes: u64,
}

/// Events since the start about jobs that run where they arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InPlaceCounts {
    /// Jobs that the owner's thread ran itself.
    pub run: u64,
    /// Times that a type was found to be short enough.
    pub begun: u64,
    /// Times that a type that ran in place was found to take too long, and went back to the
    /// workers.
    pub ended: u64,
    /// Times that another thread took over the network and the queue from one that did not come
    /// back from a job.
    pub taken_over: u64,
}

impl ByWorker {
    /// Jobs outstanding at each of so many workers, as a scheduler counts them.
    pub(super) fn outstanding<T, P: Policy + ?Sized>(
        scheduler: &Scheduler<T, P>,
        len: usize,
    ) -> Self {
        let mut counts = [0; WORKERS_MAX];
        for (index, count) in counts[..len].iter_mut().enumerate() {
            *count = scheduler.outstanding(WorkerId::at(index));
        }
        Self { counts, len }
    }
}

impl Default for ByWorker {
    fn default() -> Self {
        Self { counts: [0; WORKERS_MAX], len: 0 }
    }
}

impl Deref for ByWorker {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.counts[..self.len]
    }
}

impl TypeMetrics {
    /// Those of a scheduler's types, as in [`Metrics::types`].
    pub fn of<T, P: Policy + ?Sized>(scheduler: &Scheduler<T, P>) -> [Self; TYPES_MAX] {
        let mut all = [Self::default(); TYPES_MAX];
        let Some(types) = scheduler.types() else { return all };
        for (kind, metrics) in (0..types.count()).map(|index| TypeId(index as u8)).zip(&mut all) {
            *metrics = Self {
                queue_len: scheduler.queue_len_of(kind) as u64,
                reserved: u64::from(types.reserved(kind)),
                service_ns: types.service_ns(kind),
            };
        }
        all
    }
}
