//! Open and closed loops, and the phases of a run.
//!
//! A [`Run`] tells its driver when the next request should leave, gives each request the
//! [`Sample`] that it carries, and records what became of it. The driver owns the clock and the
//! network:
//!
//! 1. while [`Run::next_send`] is due, send a request and call [`Run::handle_sent`], which gives
//!    the sample to keep beside the request;
//! 2. on its outcome give the sample back, to [`Run::handle_reply`] or [`Run::handle_failure`];
//! 3. wait until [`Run::poll_timeout`], and stop when [`Run::phase`] is [`Phase::Done`].
//!
//! | phase | from | to | sends | records |
//! |---|---|---|---|---|
//! | warm-up | start | start + warm-up | yes | no |
//! | measuring | end of warm-up | + duration | yes | what is intended in it |
//! | draining | end of measuring | all resolved, or the drain deadline | what is overdue | outcomes of the recorded |
//! | done | | | no | outcomes that are still given back |
//!
//! Invariant: a request is recorded exactly if its intended time lies in the measuring phase, and
//! its latency counts from that time however late it left. A send that was missed is due at once;
//! none is skipped.

use std::collections::VecDeque;

use crate::arrivals::Arrivals;
pub use crate::recorder::Sample;
use crate::recorder::{Failure, Recorder};

/// When a run warms up, measures and drains; ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// When the load begins, on the driver's clock.
    pub start_ns: u64,
    /// How long to load before measuring, so that queues reach their steady state.
    pub warmup_ns: u64,
    /// How long to measure.
    pub duration_ns: u64,
    /// How long after the end of measuring to wait for outcomes at most. Set it beyond the
    /// requests' own timeout.
    pub drain_ns: u64,
}

impl Plan {
    /// When measuring begins, ns.
    pub fn measure_from_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.warmup_ns)
    }

    /// When measuring ends, ns; the first time outside of it.
    pub fn measure_until_ns(&self) -> u64 {
        self.measure_from_ns().saturating_add(self.duration_ns)
    }

    /// When waiting for outcomes ends, ns.
    pub fn drain_until_ns(&self) -> u64 {
        self.measure_until_ns().saturating_add(self.drain_ns)
    }

    /// Whether a request intended for `at_ns` is recorded.
    pub fn is_measured(&self, at_ns: u64) -> bool {
        (self.measure_from_ns()..self.measure_until_ns()).contains(&at_ns)
    }
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Loading, not recording; also before the start.
    WarmUp,
    /// Loading and recording.
    Measuring,
    /// Sending what is overdue, and waiting for outcomes.
    Draining,
    /// Nothing more to do.
    Done,
}

/// Sends on a schedule, whatever became of earlier requests.
#[derive(Clone, Debug)]
pub struct OpenLoop {
    arrivals: Arrivals,
    /// What `arrivals` count from; ns.
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
}

impl ClosedLoop {
    /// A load with `outstanding` requests in flight, all due at `start_ns`.
    pub fn new(outstanding: usize, start_ns: u64) -> Self {
        Self { free_since_ns: VecDeque::from(vec![start_ns; outstanding]) }
    }

    /// Since when a place is free, ns; `None` where all are taken.
    pub fn next_send(&self) -> Option<u64> {
        self.free_since_ns.front().copied()
    }

    /// Takes the place that has been free longest for a request that leaves at `now_ns`, which is
    /// also its intended time where no place is free.
    pub fn handle_sent(&mut self, now_ns: u64) -> Sample {
        Sample { intended_ns: self.free_since_ns.pop_front().unwrap_or(now_ns), sent_ns: now_ns }
    }

    /// Frees the place of a request whose outcome came at `now_ns`.
    pub fn handle_resolved(&mut self, now_ns: u64) {
        self.free_since_ns.push_back(now_ns);
    }
}

/// How requests are spaced.
#[derive(Clone, Debug)]
pub enum Load {
    /// On a schedule.
    Open(OpenLoop),
    /// On the outcome of an earlier request.
    Closed(ClosedLoop),
}

impl Load {
    /// When the next request should leave, ns; `None` in a closed loop whose places are all taken.
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

/// One run: a load, its plan, and the record of what became of its requests.
#[derive(Clone, Debug)]
pub struct Run {
    plan: Plan,
    load: Load,
    recorder: Recorder,
    /// Requests without an outcome, recorded or not.
    in_flight: u64,
    /// Requests that left in the measuring phase.
    sent_in_phase: u64,
    /// Replies that arrived in the measuring phase.
    replied_in_phase: u64,
}

impl Run {
    /// An open-loop run of `plan`, whose arrivals count from its start.
    pub fn open(plan: Plan, arrivals: Arrivals) -> Self {
        Self::new(plan, Load::Open(OpenLoop::new(arrivals, plan.start_ns)))
    }

    /// A closed-loop run of `plan` with `outstanding` requests in flight.
    pub fn closed(plan: Plan, outstanding: usize) -> Self {
        let closed = ClosedLoop::new(outstanding, plan.start_ns);
        Self::new(plan, Load::Closed(closed))
    }

    fn new(plan: Plan, load: Load) -> Self {
        Self {
            plan,
            load,
            recorder: Recorder::new(),
            in_flight: 0,
            sent_in_phase: 0,
            replied_in_phase: 0,
        }
    }

    /// When the next request should leave, ns; in the past where it is overdue. `None` where none
    /// is due any more, or not before an outcome.
    pub fn next_send(&self) -> Option<u64> {
        self.load.next_send().filter(|&next_ns| next_ns < self.plan.measure_until_ns())
    }

    /// A request leaves at `now_ns`; keep the sample with it. Call when [`Run::next_send`] is due.
    pub fn handle_sent(&mut self, now_ns: u64) -> Sample {
        let sample = self.load.handle_sent(now_ns);
        self.in_flight += 1;
        if self.plan.is_measured(sample.intended_ns) {
            self.recorder.handle_sent();
        }
        if self.plan.is_measured(now_ns) {
            self.sent_in_phase += 1;
        }
        sample
    }

    /// The reply to `sample`'s request arrived at `now_ns`.
    ///
    /// # Panics
    ///
    /// When more requests are resolved than were sent.
    pub fn handle_reply(&mut self, sample: Sample, now_ns: u64) {
        self.handle_resolved(now_ns);
        if self.plan.is_measured(now_ns) {
            self.replied_in_phase += 1;
        }
        if self.plan.is_measured(sample.intended_ns) {
            self.recorder.handle_reply(&sample, now_ns);
        }
    }

    /// `sample`'s request ended at `now_ns` without a reply.
    ///
    /// # Panics
    ///
    /// When more requests are resolved than were sent.
    pub fn handle_failure(&mut self, sample: Sample, failure: Failure, now_ns: u64) {
        self.handle_resolved(now_ns);
        if self.plan.is_measured(sample.intended_ns) {
            self.recorder.handle_failure(failure);
        }
    }

    /// Where the run stands at `now_ns`.
    pub fn phase(&self, now_ns: u64) -> Phase {
        if now_ns < self.plan.measure_from_ns() {
            return Phase::WarmUp;
        }
        if now_ns < self.plan.measure_until_ns() {
            return Phase::Measuring;
        }
        let is_resolved = self.in_flight == 0 && self.next_send().is_none();
        if is_resolved || now_ns >= self.plan.drain_until_ns() {
            return Phase::Done;
        }
        Phase::Draining
    }

    /// When to look at the run again, ns: the next send or the next phase that time brings about.
    /// In the past where a send is overdue; `None` once the run is done.
    pub fn poll_timeout(&self, now_ns: u64) -> Option<u64> {
        let phase_ends_ns = match self.phase(now_ns) {
            Phase::WarmUp => self.plan.measure_from_ns(),
            Phase::Measuring => self.plan.measure_until_ns(),
            Phase::Draining => self.plan.drain_until_ns(),
            Phase::Done => return None,
        };
        let next_ns = self.next_send().unwrap_or(phase_ends_ns);
        Some(next_ns.min(phase_ends_ns))
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Requests without an outcome, recorded or not.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// What is recorded so far.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Ends the run, usually when it is [`Phase::Done`]. Recorded requests without an outcome
    /// count as lost.
    pub fn finish(mut self) -> (Recorder, Rates) {
        let unresolved = self.recorder.counts().unresolved();
        self.recorder.handle_failures(Failure::Lost, unresolved);
        let unsent = self.unsent();
        let duration_s = self.plan.duration_ns as f64 / NS_PER_S;
        let per_s = |count: u64| {
            if duration_s > 0.0 { count as f64 / duration_s } else { 0.0 }
        };
        let rates = Rates {
            offered_per_s: per_s(self.recorder.counts().sent + unsent),
            sent_per_s: per_s(self.sent_in_phase),
            replied_per_s: per_s(self.replied_in_phase),
        };
        (self.recorder, rates)
    }

    /// Requests that the measuring phase intended and that never left.
    fn unsent(&mut self) -> u64 {
        let mut unsent = 0;
        while let Some(intended_ns) = self.next_send() {
            if self.plan.is_measured(intended_ns) {
                unsent += 1;
            }
            drop(self.load.handle_sent(intended_ns));
        }
        unsent
    }

    fn handle_resolved(&mut self, now_ns: u64) {
        assert!(self.in_flight > 0, "more requests resolved than were sent");
        self.in_flight -= 1;
        self.load.handle_resolved(now_ns);
    }
}

const NS_PER_S: f64 = 1e9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::Process;
    use crate::generator::generator;
    use crate::workers::FifoWorker;

    #[test]
    fn phases_follow_the_plan() {
        let mut run = open_run();
        assert_eq!(run.phase(0), Phase::WarmUp);
        assert_eq!(run.phase(1_000), Phase::WarmUp);
        assert_eq!(run.phase(1_200), Phase::Measuring);
        assert_eq!(run.phase(1_699), Phase::Measuring);
        assert_eq!(run.phase(1_700), Phase::Draining);
        send_all_on_time(&mut run);
        assert_eq!(run.phase(1_700), Phase::Draining);
        assert_eq!(run.phase(2_699), Phase::Draining);
        assert_eq!(run.phase(2_700), Phase::Done);
    }

    #[test]
    fn only_what_is_intended_in_the_measuring_phase_is_recorded() {
        let mut run = open_run();
        let samples = send_all_on_time(&mut run);
        // Every 100 ns after the start at 1000, up to 1600; measured from 1200 to 1700.
        let intended: Vec<u64> = samples.iter().map(|sample| sample.intended_ns).collect();
        assert_eq!(intended, [1_100, 1_200, 1_300, 1_400, 1_500, 1_600]);
        for sample in samples {
            run.handle_reply(sample, 1_750);
        }
        assert_eq!(run.phase(1_750), Phase::Done);
        let (recorder, _) = run.finish();
        assert_eq!(recorder.counts().sent, 5);
        assert_eq!(recorder.counts().replied, 5);
    }

    #[test]
    fn a_late_driver_catches_up_and_counts_from_the_intended_time() {
        let mut run = open_run();
        let mut samples = Vec::new();
        while run.next_send().is_some_and(|next_ns| next_ns <= 1_450) {
            samples.push(run.handle_sent(1_450));
        }
        assert_eq!(samples.len(), 4);
        for sample in samples {
            run.handle_reply(sample, 1_460);
        }
        let summary = run.recorder().summary();
        assert_eq!(summary.intended.max, Some(0.26));
        assert_eq!(summary.actual.max, Some(0.01));
    }

    #[test]
    fn sends_that_are_overdue_at_the_end_still_leave() {
        let mut run = open_run();
        assert_eq!(run.phase(2_000), Phase::Draining);
        assert_eq!(run.next_send(), Some(1_100));
        assert_eq!(run.poll_timeout(2_000), Some(1_100));
        let mut count = 0;
        while run.next_send().is_some() {
            let sample = run.handle_sent(2_000);
            run.handle_reply(sample, 2_010);
            count += 1;
        }
        assert_eq!(count, 6);
        assert_eq!(run.phase(2_010), Phase::Done);
        let (recorder, rates) = run.finish();
        assert_eq!(recorder.counts().replied, 5);
        // Five in 500 ns were offered, and none left in time.
        assert_eq!(rates.offered_per_s, 1e7);
        assert_eq!(rates.sent_per_s, 0.0);
    }

    #[test]
    fn what_never_left_was_offered_all_the_same() {
        let (recorder, rates) = open_run().finish();
        assert_eq!(recorder.counts().sent, 0);
        assert_eq!(rates.offered_per_s, 1e7);
    }

    #[test]
    fn what_has_no_outcome_at_the_end_is_lost() {
        let mut run = open_run();
        for sample in send_all_on_time(&mut run) {
            match sample.intended_ns {
                1_200 => run.handle_reply(sample, 1_300),
                1_300 => run.handle_failure(sample, Failure::Timeout, 1_600),
                _ => {}
            }
        }
        let (recorder, _) = run.finish();
        assert_eq!(recorder.counts().replied, 1);
        assert_eq!(recorder.counts().timeout, 1);
        assert_eq!(recorder.counts().lost, 3);
        assert_eq!(recorder.counts().unresolved(), 0);
    }

    #[test]
    fn the_deadline_is_the_next_send_or_phase() {
        let mut run = open_run();
        assert_eq!(run.poll_timeout(0), Some(1_100));
        let sample = run.handle_sent(1_100);
        assert_eq!(run.poll_timeout(1_100), Some(1_200));
        run.handle_reply(sample, 1_150);
        for sample in send_all_on_time(&mut run) {
            run.handle_failure(sample, Failure::Refused, 1_800);
        }
        assert_eq!(run.poll_timeout(1_690), Some(1_700));
        assert_eq!(run.poll_timeout(1_800), None);
    }

    #[test]
    fn a_closed_loop_keeps_its_requests_outstanding() {
        let mut run = Run::closed(PLAN, 2);
        let first = run.handle_sent(1_000);
        let second = run.handle_sent(1_000);
        assert_eq!(run.next_send(), None);
        run.handle_reply(first, 1_250);
        assert_eq!(run.next_send(), Some(1_250));
        let third = run.handle_sent(1_260);
        assert_eq!(third.intended_ns, 1_250);
        run.handle_failure(second, Failure::Lost, 1_900);
        run.handle_reply(third, 1_910);
        assert_eq!(run.next_send(), None);
        assert_eq!(run.phase(1_910), Phase::Done);
        let (recorder, _) = run.finish();
        assert_eq!(recorder.counts().sent, 1);
    }

    #[test]
    #[should_panic = "more requests resolved than were sent"]
    fn an_outcome_without_a_request_is_a_broken_invariant() {
        let forged = Sample { intended_ns: 1_200, sent_ns: 1_200 };
        open_run().handle_reply(forged, 1_300);
    }

    /// A worker that freezes for 100 ms of every second at 10 k/s leaves a p99 of 90 to 91 ms:
    /// one request in ten meets the freeze, and waits for what is left of it.
    #[test]
    fn a_frozen_server_shows_in_the_tail() {
        let plan =
            Plan { start_ns: 0, warmup_ns: 0, duration_ns: 5_000_000_000, drain_ns: 1_000_000_000 };
        let arrivals = Arrivals::new(Process::Poisson, 10e3, generator(3, 0)).unwrap();
        let mut run = Run::open(plan, arrivals);
        let mut worker = FifoWorker::new();
        let mut frozen_until_ns = 0;
        while let Some(next_ns) = run.next_send() {
            if next_ns >= frozen_until_ns {
                worker.serve(frozen_until_ns, 100_000_000);
                frozen_until_ns += 1_000_000_000;
            }
            let sample = run.handle_sent(next_ns);
            run.handle_reply(sample, worker.serve(next_ns, 1_000));
        }
        let (recorder, rates) = run.finish();
        let p99_us = recorder.summary().intended.p99.unwrap();
        assert!((89e3..93e3).contains(&p99_us), "{p99_us}");
        assert!((rates.offered_per_s / 10e3 - 1.0).abs() < 0.03, "{rates:?}");
    }

    fn open_run() -> Run {
        let arrivals = Arrivals::new(Process::Fixed, 1e7, generator(1, 0)).unwrap();
        Run::open(PLAN, arrivals)
    }

    fn send_all_on_time(run: &mut Run) -> Vec<Sample> {
        let mut samples = Vec::new();
        while let Some(next_ns) = run.next_send() {
            samples.push(run.handle_sent(next_ns));
        }
        samples
    }

    const PLAN: Plan = Plan { start_ns: 1_000, warmup_ns: 200, duration_ns: 500, drain_ns: 1_000 };
}
