//! What a dispatcher counts and measures.

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
    /// What happened so far.
    pub counts: Counts,
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
    /// Jobs whose deadline passed in the queue.
    pub expired: u64,
    /// Wake-ups of workers that slept.
    pub wakes: u64,
}
