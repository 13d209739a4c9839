//! Open and closed loops: when the next request should leave.
//!
//! A [`Load`] tells its driver when the next request should leave, and gives each request the
//! [`Sample`] that it carries. The driver owns the clock and the network; [`crate::slices`] records
//! what became of the requests.
//!
//! Invariant: a latency counts from the intended time however late the request left. A send that
//! was missed is due at once; none is skipped.

use std::collections::VecDeque;

use crate::arrivals::Arrivals;
pub use crate::outcome::Sample;

/// Sends on a schedule, whatever became of earlier requests.
#[derive(Clone, Debug)]
pub struct OpenLoop {
    arrivals: Arrivals,
    /// Time that `arrivals` count from; ns.
    start_ns: u64,
    /// The next intended time; ns.
    next_ns: u64,
}

impl OpenLoop {
    /// A load of `arrivals` that begins at `start_ns`.
    pub fn new(mut arrivals: Arrivals, start_ns: u64) -> Self {
        let next_ns = start_ns.saturating_add(arrivals.next_ns());
        Self { arrivals, start_ns, next_ns }
    }

    /// The next intended time, ns; in the past where the driver is late.
    pub fn next_send(&self) -> u64 {
        self.next_ns
    }

    /// Takes the next intended time for a request that leaves at `now_ns`.
    pub fn handle_sent(&mut self, now_ns: u64) -> Sample {
        let intended_ns = self.next_ns;
        self.next_ns = self.start_ns.saturating_add(self.arrivals.next_ns());
        Sample { intended_ns, sent_ns: now_ns }
    }
}

/// Keeps a number of requests outstanding: each outcome makes the next request due.
///
/// A server that stalls also stalls this load, so its tail is not what users see; it measures
/// capacity.
#[derive(Clone, Debug)]
pub struct ClosedLoop {
    /// Since when each free place has been free, oldest first; ns. It never grows beyond its
    /// first length.
    free_since_ns: VecDeque<u64>,
    /// From one intended time to the next at least, ns.
    gap_ns: u64,
    /// The earliest next intended time, ns.
    not_before_ns: u64,
}

impl ClosedLoop {
    /// A load with `outstanding` requests in flight, all due at `start_ns`.
    pub fn new(outstanding: usize, start_ns: u64) -> Self {
        let free_since_ns = VecDeque::from(vec![start_ns; outstanding]);
        Self { free_since_ns, gap_ns: 0, not_before_ns: 0 }
    }

    /// With at least `gap_ns` from one intended time to the next, so that its rate is bounded
    /// however fast the server is.
    #[must_use]
    pub fn paced(self, gap_ns: u64) -> Self {
        Self { gap_ns, ..self }
    }

    /// Since when a place is free and its request may leave, ns; `None` where all are taken.
    pub fn next_send(&self) -> Option<u64> {
        self.free_since_ns.front().map(|&free_ns| free_ns.max(self.not_before_ns))
    }

    /// Takes the place that has been free longest for a request that leaves at `now_ns`, which is
    /// also its intended time where no place is free.
    pub fn handle_sent(&mut self, now_ns: u64) -> Sample {
        let free_ns = self.free_since_ns.pop_front().unwrap_or(now_ns);
        let intended_ns = free_ns.max(self.not_before_ns);
        self.not_before_ns = intended_ns.saturating_add(self.gap_ns);
        Sample { intended_ns, sent_ns: now_ns }
    }

    /// Frees the place of a request whose outcome came at `now_ns`.
    pub fn handle_resolved(&mut self, now_ns: u64) {
        self.free_since_ns.push_back(now_ns);
    }
}

/// Spacing of requests.
#[derive(Clone, Debug)]
pub enum Load {
    /// On a schedule.
    Open(OpenLoop),
    /// On the outcome of an earlier request.
    Closed(ClosedLoop),
}

impl Load {
    /// Time at which the next request should leave, ns; `None` in a closed loop whose places are
    /// all taken.
    #[inline]
    pub fn next_send(&self) -> Option<u64> {
        match self {
            Load::Open(open) => Some(open.next_send()),
            Load::Closed(closed) => closed.next_send(),
        }
    }

    /// Takes the next intended time for a request that leaves at `now_ns`.
    #[inline]
    pub fn handle_sent(&mut self, now_ns: u64) -> Sample {
        match self {
            Load::Open(open) => open.handle_sent(now_ns),
            Load::Closed(closed) => closed.handle_sent(now_ns),
        }
    }

    /// A request had its outcome at `now_ns`.
    #[inline]
    pub fn handle_resolved(&mut self, now_ns: u64) {
        if let Load::Closed(closed) = self {
            closed.handle_resolved(now_ns);
        }
    }
}

/// Requests a second over the measuring phase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Requests intended in the phase, sent or not.
    pub offered_per_s: f64,
    /// Requests that left in the phase. Below the offered rate the client could not keep up.
    pub sent_per_s: f64,
    /// Replies that arrived in the phase, of whichever requests: the throughput.
    pub replied_per_s: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::Process;
    use crate::generator::generator;
    use crate::workers::FifoWorker;

    #[test]
    fn a_late_driver_catches_up_and_counts_from_the_intended_time() {
        let arrivals = Arrivals::new(Process::Fixed, 1e7, generator(1, 0)).unwrap();
        let mut load = Load::Open(OpenLoop::new(arrivals, 1_000));
        let mut samples = Vec::new();
        while load.next_send().is_some_and(|next_ns| next_ns <= 1_450) {
            samples.push(load.handle_sent(1_450));
        }
        // Every 100 ns after the start.
        let intended: Vec<u64> = samples.iter().map(|sample| sample.intended_ns).collect();
        assert_eq!(intended, [1_100, 1_200, 1_300, 1_400]);
        assert!(samples.iter().all(|sample| sample.sent_ns == 1_450));
        assert_eq!(load.next_send(), Some(1_500));
    }

    #[test]
    fn a_paced_closed_loop_keeps_its_gap_however_fast_the_replies_come() {
        let mut load = ClosedLoop::new(4, 1_000).paced(100);
        for place in 0..50 {
            assert_eq!(load.next_send(), Some(1_000 + place * 100));
            assert_eq!(load.handle_sent(1_000 + place * 100).intended_ns, 1_000 + place * 100);
            load.handle_resolved(1_001 + place * 100);
        }
        // After a pause it does not make up for what it has not sent.
        (0..4).for_each(|_| _ = load.handle_sent(6_000));
        load.handle_resolved(9_000);
        load.handle_resolved(9_000);
        assert_eq!(
            [9_000, 9_000].map(|now_ns| load.handle_sent(now_ns).intended_ns),
            [9_000, 9_100]
        );
    }

    #[test]
    fn a_closed_loop_keeps_its_requests_outstanding() {
        let mut load = Load::Closed(ClosedLoop::new(2, 1_000));
        assert_eq!(load.handle_sent(1_000).intended_ns, 1_000);
        assert_eq!(load.handle_sent(1_000).intended_ns, 1_000);
        assert_eq!(load.next_send(), None);
        load.handle_resolved(1_250);
        assert_eq!(load.next_send(), Some(1_250));
        assert_eq!(load.handle_sent(1_260), Sample { intended_ns: 1_250, sent_ns: 1_260 });
        assert_eq!(load.next_send(), None);
    }

    /// A worker that freezes for 100 ms of every second at 10 k/s leaves a p99 of 90 to 91 ms:
    /// one request in ten meets the freeze, and waits for what is left of it.
    #[test]
    fn a_frozen_server_shows_in_the_tail() {
        let arrivals = Arrivals::new(Process::Poisson, 10e3, generator(3, 0)).unwrap();
        let mut load = Load::Open(OpenLoop::new(arrivals, 0));
        let mut worker = FifoWorker::new();
        let (mut frozen_until_ns, mut latencies_ns) = (0, Vec::new());
        while let Some(next_ns) = load.next_send().filter(|&next_ns| next_ns < 5_000_000_000) {
            if next_ns >= frozen_until_ns {
                worker.serve(frozen_until_ns, 100_000_000);
                frozen_until_ns += 1_000_000_000;
            }
            let sample = load.handle_sent(next_ns);
            latencies_ns.push(worker.serve(next_ns, 1_000) - sample.intended_ns);
        }
        latencies_ns.sort_unstable();
        let p99_us = latencies_ns[latencies_ns.len() * 99 / 100] / 1_000;
        assert!((89_000..93_000).contains(&p99_us), "{p99_us}");
        assert!((latencies_ns.len() as f64 / 50e3 - 1.0).abs() < 0.03, "{}", latencies_ns.len());
    }
}
