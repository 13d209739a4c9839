//! Emulated workers behind one queue: a service occupies its worker, not a core.
//!
//! | a request | event | then |
//! |---|---|---|
//! | arrives | a worker is free | it starts now |
//! | arrives | all workers are busy | it waits, first come first served |
//! | waits | a worker finishes | it starts at that ideal finish, however late the loop looks at it |
//! | waits | its deadline passes, it is cancelled | it leaves |
//! | runs | it is cancelled, and workers stop | its worker is free now |
//! | waits | it has waited for as long as the overload rule lets it | it is refused |
//! | runs | its service has passed | finished |
//!
//! The queue is the router's own scheduler with a bound of one: RPCValet's single queue. So
//! hundreds of servers fit on a core, and their queueing is that of real ones as long as the loop
//! keeps up.
//!
//! Invariant: starts and finishes depend on arrivals, cancels and services alone, not on when the
//! loop looks.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::num::NonZeroU32;

use foldhash::fast::FixedState;
use tailcut_measure::workers::FifoWorker;
use tailcut_net::dispatch::TypeMetrics;
use tailcut_proto::node::Time;
use tailcut_proto::policy::{Jbsq, WorkerId};
use tailcut_proto::rpc::RequestId;
use tailcut_proto::scheduler::overload::OverloadConfig;
use tailcut_proto::scheduler::typed::TYPES_MAX;
use tailcut_proto::scheduler::{Cloning, Outcome, Scheduler, Ticket, Wait, Workers};

use super::kinds::{Kinds, TypedTimes};
use super::times::Times;

/// A request and its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Job<W> {
    /// Names it for [`Emulated::cancel`].
    pub(super) id: RequestId,
    /// Context by which the owner answers it.
    pub(super) what: W,
    /// Time of its arrival, ns.
    pub(super) arrived_at: Time,
    /// Time that it occupies its worker, ns.
    pub(super) service_ns: u64,
}

/// Workers behind one queue.
#[derive(Debug)]
pub(super) struct Emulated<W> {
    scheduler: Scheduler<Job<W>, Jbsq>,
    workers: Vec<FifoWorker>,
    /// Requests that run, the first to finish on top.
    running: BinaryHeap<Reverse<Running<W>>>,
    /// Places in the queue, for cancels.
    held: HashMap<RequestId, Ticket, FixedState>,
    /// Requests that have waited for too long, and nobody has taken.
    expired: VecDeque<Job<W>>,
    /// Times of the requests that have finished.
    times: Times,
    /// Requests that waited when the last to finish did, before its worker began the next.
    waiting_at_finish: u32,
    /// The types of requests.
    kinds: Kinds,
    /// Times of the requests that have finished, by type.
    typed_times: TypedTimes,
    /// Fate of requests that are cancelled as they run.
    cancelled: Cancelled,
}

/// The fate of a request that is cancelled as it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Cancelled {
    /// It occupies its worker to the end, as one that cannot be interrupted.
    #[default]
    Runs,
    /// Its worker stops it.
    Stops,
}

impl<W: Copy> Emulated<W> {
    /// Idle workers; at most `queue_len_max` requests wait, for as long as `overload` says.
    pub(super) fn new(worker_count: u32, queue_len_max: usize, overload: OverloadConfig) -> Self {
        let mut scheduler = Scheduler::new(Box::new(Jbsq::new(NonZeroU32::MIN)), queue_len_max)
            .with_overload(overload);
        for _ in 0..worker_count {
            scheduler.add_worker();
        }
        Self {
            scheduler,
            workers: vec![FifoWorker::new(); worker_count as usize],
            running: BinaryHeap::new(),
            held: HashMap::with_hasher(FixedState::with_seed(0)),
            expired: VecDeque::new(),
            times: Times::default(),
            waiting_at_finish: 0,
            kinds: Kinds::default(),
            typed_times: TypedTimes::default(),
            cancelled: Cancelled::Runs,
        }
    }

    /// The service with workers that treat cancelled requests so.
    pub(super) fn with_cancelled(self, cancelled: Cancelled) -> Self {
        Self { cancelled, ..self }
    }

    /// The service with requests of types.
    pub(super) fn with_kinds(self, kinds: Kinds) -> Self {
        let scheduler = match kinds.queues() {
            1 => self.scheduler,
            count => self.scheduler.with_types(count),
        };
        Self { scheduler, typed_times: kinds.times(), kinds, ..self }
    }

    /// Times that finished requests waited and ran, by type.
    pub(super) fn typed_times(&self) -> &TypedTimes {
        &self.typed_times
    }

    /// Metrics of its types, where each has a queue.
    pub(super) fn type_metrics(&self) -> [TypeMetrics; TYPES_MAX] {
        TypeMetrics::of(&self.scheduler)
    }

    /// Takes a request; false when the queue is full. Drain [`Emulated::poll_finished`] first.
    pub(super) fn offer(&mut self, job: Job<W>, wait: impl Into<Wait>) -> bool {
        let wait = wait.into().of_type(self.kinds.of(job.service_ns));
        match self.scheduler.offer(job, Cloning::Forbidden, wait, NO_RANDOM) {
            Outcome::Placed(workers, job) => self.start(job.arrived_at, workers, job),
            Outcome::Held(ticket) => self.held.extend([(job.id, ticket)]),
            Outcome::Full(_) => return false,
        }
        true
    }

    /// Takes a request out of the queue, or from its worker where workers stop. Drain
    /// [`Emulated::poll_finished`] first.
    pub(super) fn cancel(&mut self, now: Time, id: RequestId) {
        if let Some(ticket) = self.held.remove(&id) {
            self.scheduler.remove(ticket);
        } else if self.cancelled == Cancelled::Stops {
            let found = self.running.iter().find(|Reverse(running)| running.job.id == id);
            let Some(worker) = found.map(|Reverse(running)| running.worker) else { return };
            self.running.retain(|Reverse(running)| running.worker != worker);
            self.workers[worker.index()].stop(now);
            self.scheduler.conclude(worker);
            self.drop_expired(now);
            self.start_waiting(now);
        }
    }

    /// The next request that has finished by `now`. Its worker starts the first of the queue.
    pub(super) fn poll_finished(&mut self, now: Time) -> Option<Job<W>> {
        let &Reverse(finished) =
            self.running.peek().filter(|Reverse(running)| running.finish_at <= now)?;
        self.running.pop();
        let (job, finish_at) = (&finished.job, finished.finish_at);
        let started_at = finish_at.saturating_sub(job.service_ns);
        let queueing_ns = started_at.saturating_sub(job.arrived_at);
        self.times.record(queueing_ns, job.service_ns);
        let kind = self.kinds.of(job.service_ns);
        self.typed_times.record(kind, queueing_ns, job.service_ns);
        self.scheduler.note_service(kind, job.service_ns);
        self.scheduler.conclude(finished.worker);
        self.drop_expired(finished.finish_at);
        self.waiting_at_finish = self.waiting();
        self.start_waiting(finished.finish_at);
        Some(finished.job)
    }

    /// The next request that has waited for too long by `now`. Drain [`Emulated::poll_finished`]
    /// first: what ended before may have made room for it.
    pub(super) fn poll_expired(&mut self, now: Time) -> Option<Job<W>> {
        self.drop_expired(now);
        self.expired.pop_front()
    }

    /// Time at which the next request will have waited for too long.
    pub(super) fn next_expiry(&self) -> Option<Time> {
        self.scheduler.next_expiry()
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> u32 {
        u32::try_from(self.scheduler.queue_len()).unwrap_or(u32::MAX)
    }

    /// Requests that waited when the last to finish did, before its worker began the next.
    pub(super) fn waiting_at_finish(&self) -> u32 {
        self.waiting_at_finish
    }

    /// Time that the client of a request refused now is to stay away, ns.
    pub(super) fn retry_after_ns(&self) -> u64 {
        self.scheduler.retry_after_ns()
    }

    /// Nothing waits or runs.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Times that finished requests waited and ran.
    pub(super) fn times(&self) -> &Times {
        &self.times
    }

    /// Time at which the next request finishes.
    pub(super) fn next_finish(&self) -> Option<Time> {
        self.running.peek().map(|Reverse(running)| running.finish_at)
    }

    /// A worker is free: starts the next of the queue, or several where types have been dealt other
    /// workers.
    fn start_waiting(&mut self, at: Time) {
        while let Some((workers, job)) = self.scheduler.poll_placed(at, NO_RANDOM) {
            self.held.remove(&job.id);
            self.start(at, workers, job);
            self.drop_expired(at);
        }
    }

    fn start(&mut self, at: Time, workers: Workers, job: Job<W>) {
        for worker in workers {
            let finish_at = self.workers[worker.index()].serve(at, job.service_ns);
            self.running.push(Reverse(Running { finish_at, worker, job }));
        }
    }

    /// Takes out what may wait no longer.
    fn drop_expired(&mut self, now: Time) {
        while let Some(job) = self.scheduler.poll_expired(now) {
            self.held.remove(&job.id);
            self.expired.push_back(job);
        }
    }
}

/// A request at its worker.
#[derive(Clone, Copy, Debug)]
struct Running<W> {
    finish_at: Time,
    worker: WorkerId,
    job: Job<W>,
}

/// By finish, then by worker: no two that run share one, so the order is total.
impl<W> Ord for Running<W> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.finish_at, self.worker).cmp(&(other.finish_at, other.worker))
    }
}

impl<W> PartialEq for Running<W> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<W> Eq for Running<W> {}

impl<W> PartialOrd for Running<W> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// JBSQ breaks ties by rotation and needs no random word.
const NO_RANDOM: u64 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    const FOREVER: Time = Time::MAX;

    fn job(id: u64, arrived_at: Time, service_ns: u64) -> Job<()> {
        Job { id: RequestId(id), what: (), arrived_at, service_ns }
    }

    /// Ids and finishes in order, each looked at as late as `now`.
    fn finishes(emulated: &mut Emulated<()>, now: Time) -> Vec<(u64, Time)> {
        let next = || {
            let finish_at = emulated.next_finish()?;
            emulated.poll_finished(now).map(|job| (job.id.0, finish_at))
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn one_worker_serves_in_order() {
        let mut emulated = Emulated::new(1, 10, OverloadConfig::DEFAULT);
        assert!(
            emulated.offer(job(1, 100, 50), FOREVER) && emulated.offer(job(2, 110, 30), FOREVER)
        );
        assert_eq!(finishes(&mut emulated, 149), []);
        assert_eq!(finishes(&mut emulated, 1_000), [(1, 150), (2, 180)]);
    }

    #[test]
    fn several_workers_share_the_queue() {
        let mut emulated = Emulated::new(2, 10, OverloadConfig::DEFAULT);
        for (id, service_ns) in [(1, 100), (2, 10), (3, 10), (4, 10)] {
            emulated.offer(job(id, 0, service_ns), FOREVER);
        }
        assert_eq!(finishes(&mut emulated, 1_000), [(2, 10), (3, 20), (4, 30), (1, 100)]);
    }

    #[test]
    fn an_idle_worker_does_not_start_before_the_arrival() {
        let mut emulated = Emulated::new(1, 10, OverloadConfig::DEFAULT);
        emulated.offer(job(1, 0, 10), FOREVER);
        assert_eq!(finishes(&mut emulated, 500), [(1, 10)]);
        emulated.offer(job(2, 500, 10), FOREVER);
        assert_eq!(finishes(&mut emulated, 1_000), [(2, 510)]);
    }

    #[test]
    fn a_full_queue_refuses() {
        let mut emulated = Emulated::new(1, 1, OverloadConfig::DEFAULT);
        assert!(emulated.offer(job(1, 0, 10), FOREVER) && emulated.offer(job(2, 0, 10), FOREVER));
        assert!(!emulated.offer(job(3, 0, 10), FOREVER));
    }

    #[test]
    fn a_cancelled_request_does_not_run() {
        let mut emulated = Emulated::new(1, 10, OverloadConfig::DEFAULT);
        for id in [1, 2, 3] {
            emulated.offer(job(id, 0, 10), FOREVER);
        }
        emulated.cancel(1, RequestId(2));
        emulated.cancel(1, RequestId(2));
        // One that runs does, to its end.
        emulated.cancel(1, RequestId(1));
        assert_eq!(finishes(&mut emulated, 1_000), [(1, 10), (3, 20)]);
    }

    #[test]
    fn workers_that_stop_begin_the_next_at_a_cancel() {
        let emulated = Emulated::new(2, 10, OverloadConfig::DEFAULT);
        let mut emulated = emulated.with_cancelled(Cancelled::Stops);
        for (id, service_ns) in [(1, 100), (2, 50), (3, 10), (4, 10)] {
            emulated.offer(job(id, 0, service_ns), FOREVER);
        }
        for id in [1, 1, 9] {
            emulated.cancel(20, RequestId(id));
        }
        assert_eq!(finishes(&mut emulated, 1_000), [(3, 30), (4, 40), (2, 50)]);
        assert!(emulated.is_idle());
    }

    #[test]
    fn an_expired_request_does_not_run() {
        let mut emulated = Emulated::new(1, 10, OverloadConfig::DEFAULT);
        emulated.offer(job(1, 0, 10), FOREVER);
        emulated.offer(job(2, 0, 10), 5);
        emulated.offer(job(3, 0, 10), FOREVER);
        assert_eq!(finishes(&mut emulated, 1_000), [(1, 10), (3, 20)]);
        assert!(emulated.held.is_empty());
        assert_eq!(emulated.poll_expired(1_000).map(|job| job.id), Some(RequestId(2)));
    }

    #[test]
    fn a_request_that_waited_for_a_quarter_of_its_deadline_is_handed_back() {
        let mut emulated = Emulated::new(1, 10, OverloadConfig::DEFAULT);
        emulated.offer(job(1, 0, 500), FOREVER);
        emulated.offer(job(2, 0, 10), Wait::of(1, 0, 1_000));
        assert_eq!(emulated.next_expiry(), Some(250));
        assert_eq!(emulated.poll_expired(249), None);
        assert_eq!(emulated.poll_expired(250).map(|job| job.id), Some(RequestId(2)));
    }
}
