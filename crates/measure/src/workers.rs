//! Emulated workers that serve in order.
//!
//! A worker stands for a core: it takes one request at a time, first come first served, and is
//! busy for the service time that the request carries. What finishes when is computed, not slept,
//! so a driver that wakes up late does not make the next request late too.
//!
//! Invariant: a worker's finish times never decrease, and depend on arrivals and service times
//! alone.

/// One worker with a first-come-first-served queue of any length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FifoWorker {
    /// Time at which everything given so far is finished; ns. Before the first request it is 0.
    free_at_ns: u64,
}

impl FifoWorker {
    /// A worker that is idle from time 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a request that arrives at `now_ns` and needs `service_ns`; returns when it finishes.
    ///
    /// It starts at its arrival or at the previous request's ideal finish, whichever is later
    /// (Lindley's recursion). Call in the order of arrival.
    pub fn serve(&mut self, now_ns: u64, service_ns: u64) -> u64 {
        self.free_at_ns = self.free_at_ns.max(now_ns).saturating_add(service_ns);
        self.free_at_ns
    }

    /// Stops what it runs at `now_ns`, and anything that it was given after it.
    pub fn stop(&mut self, now_ns: u64) {
        self.free_at_ns = self.free_at_ns.min(now_ns);
    }

    /// Time at which everything given so far is finished, ns.
    pub fn free_at_ns(&self) -> u64 {
        self.free_at_ns
    }

    /// True if a request that arrives at `now_ns` would wait.
    pub fn is_busy(&self, now_ns: u64) -> bool {
        self.free_at_ns > now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_worker_starts_at_the_arrival() {
        assert_eq!(FifoWorker::new().serve(100, 10), 110);
    }

    #[test]
    fn a_busy_worker_starts_at_the_previous_finish() {
        let mut worker = FifoWorker::new();
        worker.serve(100, 50);
        assert_eq!(worker.serve(120, 10), 160);
        assert_eq!(worker.serve(121, 10), 170);
    }

    #[test]
    fn a_worker_is_busy_until_its_finish() {
        let mut worker = FifoWorker::new();
        worker.serve(100, 50);
        assert!(worker.is_busy(149));
        assert!(!worker.is_busy(150));
    }

    #[test]
    fn a_worker_that_is_stopped_is_free() {
        let mut worker = FifoWorker::new();
        worker.serve(100, 50);
        worker.stop(120);
        assert_eq!(worker.serve(121, 10), 131);
        worker.stop(200);
        assert_eq!(worker.free_at_ns(), 131, "it was free before");
    }

    #[test]
    fn time_without_end_saturates() {
        let mut worker = FifoWorker::new();
        assert_eq!(worker.serve(u64::MAX - 1, 10), u64::MAX);
    }
}
