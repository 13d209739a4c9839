//! The dispatcher: one queue before worker threads, RPCValet's in software.
//!
//! One thread, which polls the datapath, holds the queue and pushes each job to the worker that has
//! the fewest, by the router's own [`Scheduler`] and JBSQ. A job crosses to its worker and back in
//! the slot of a lane (`sys::lane`), which no other thread touches: nothing is locked, nothing is
//! contended for, and what a job points to stays where it is.
//!
//! | a job is | event | then |
//! |---|---|---|
//! | offered in place | its type is short, and the owner runs such jobs (`in_place`) | kept for the owner |
//! | offered | a worker has fewer than the bound | pushed to the one with the fewest |
//! | offered | all have as many | queued, or refused where the queue is full |
//! | queued | a worker is done with a job | pushed there, first come first served |
//! | queued | its deadline passes, it is withdrawn | handed back |
//! | queued, the next to go | a mean service would end after its deadline | handed back |
//! | pushed, not begun | another worker is idle and nothing is queued | taken back and pushed there |
//! | done | the dispatcher looks | handed back: the worker is free for the next |
//!
//! The bound is how many jobs a worker may have. It follows from what is measured while it runs
//! ([`Bound::Auto`]): 1, the true single queue, where services are long against the hand-off, and
//! as many as hide the hand-off where they are short. What is committed to a worker that turns out
//! to be busy for long is taken back as soon as another is idle, so that nothing waits for a busy
//! worker for longer than a hand-off while another has nothing to do.
//!
//! Invariant: every job that was taken is handed back once; a worker has never more than the bound
//! that was in force when it got the last; nothing is allocated when warm.

mod config;
mod hand_off;
mod in_place;
mod levels;
mod metrics;
mod pull;
mod worker;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::Scope;

use tailcut_proto::node::Time;
use tailcut_proto::policy::{Policy, WorkerId};
use tailcut_proto::scheduler::overload::OverloadConfig;
use tailcut_proto::scheduler::typed::{TypeId, Types};
use tailcut_proto::scheduler::{Cloning, Outcome, Scheduler, Ticket, Wait};

pub use self::config::{
    Bound, Config, ConfigError, Delivery, InPlace, LONG_NS, QUEUE_LEN_MAX, WORKERS_MAX,
};
pub use self::hand_off::BOUND_MAX;
pub use self::levels::Levels;
pub use self::metrics::{ByWorker, Counts, InPlaceCounts, Metrics, TypeMetrics};
pub use self::worker::Worker;

use self::hand_off::{HandOff, Sample};
use self::in_place::OwnJobs;
use self::pull::Pulled;
use self::worker::{Shared, Source};
use crate::clock::Clock;
use crate::driver::Waker;
use crate::entropy;
use crate::sys::{Sender, lane};

/// The side of the thread that polls the datapath: the queue before its workers, which take jobs of
/// type `J`, requests on their way there and with their answers on the way back.
///
/// After calls of [`Dispatcher::offer`], call [`Dispatcher::flush`]; before the thread sleeps,
/// [`Dispatcher::fall_asleep`].
#[derive(Debug)]
pub struct Dispatcher<J, P = Levels> {
    /// The queue, and what each worker has.
    scheduler: Scheduler<J, P>,
    /// By the index of the worker in the scheduler.
    lanes: Vec<Lane<J>>,
    /// The queue that workers pull from, where they do; the lanes are not used then, and a worker
    /// of the scheduler is a place in it.
    pulled: Option<Pulled<J>>,
    /// State that it shares with the workers besides the lanes.
    shared: Arc<Shared>,
    /// A bit for each worker that has something.
    busy: u64,
    /// A bit for each worker that has more than it can be at.
    committed: u64,
    /// A bit for each worker that has been given something since the last flush.
    pushed: u64,
    /// Measurements of hand-offs, and the bound that follows.
    hand_off: HandOff,
    /// As configured.
    bound: Bound,
    /// The jobs that the owner's thread runs itself.
    in_place: OwnJobs<J>,
    /// Events so far.
    counts: Counts,
    /// Time of the last poll.
    now: Time,
}

/// The dispatcher's side of one worker.
#[derive(Debug)]
struct Lane<J> {
    /// The lane to it.
    sender: Sender<J>,
    /// Time at which it last had a job done, or was given one while it had none.
    progress_at: Time,
    /// The job whose times are taken, if one is at the worker.
    sample: Option<Sample>,
    /// The types of the jobs at the worker, where there are several.
    kinds: VecDeque<TypeId>,
}

impl<J: Send> Dispatcher<J> {
    /// A dispatcher and its workers, each to be run by a thread of its own. Threads wake the driver
    /// of `waker`, which is the dispatcher's.
    ///
    /// # Errors
    ///
    /// What is wrong with the configuration.
    pub fn new(config: &Config, waker: &Waker) -> Result<(Self, Vec<Worker<J>>), ConfigError> {
        config.check()?;
        let policy = Levels::new(config.workers, config.bound.initial().get());
        Self::with_policy(config, waker, policy)
    }

    /// A dispatcher whose workers run in threads of `scope` and do jobs by `handler`. They end when
    /// it is dropped, each after the job that it is at.
    ///
    /// # Errors
    ///
    /// InvalidInput with a [`ConfigError`]; what the system says when it gives no thread.
    pub fn start<'scope, F>(
        scope: &'scope Scope<'scope, '_>,
        config: &Config,
        waker: &Waker,
        handler: &'scope F,
    ) -> io::Result<Self>
    where
        F: Fn(&mut J) + Sync,
        J: 'scope,
    {
        let (dispatcher, workers) = Self::new(config, waker)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        for worker in workers {
            let name = format!("tailcut-worker-{}", worker.index());
            let builder = std::thread::Builder::new().name(name);
            builder.spawn_scoped(scope, move || worker.run(handler))?;
        }
        Ok(dispatcher)
    }
}

impl<J: Send, P: Policy> Dispatcher<J, P> {
    /// As [`Dispatcher::new`], with another policy, which gives no worker more than [`BOUND_MAX`].
    fn with_policy(
        config: &Config,
        waker: &Waker,
        policy: P,
    ) -> Result<(Self, Vec<Worker<J>>), ConfigError> {
        config.check()?;
        let shared = Arc::new(Shared::new(config.workers, waker.clone()));
        let overload = OverloadConfig { seed: entropy::seed_or_zero(), ..OverloadConfig::DEFAULT };
        let mut dispatcher = Self {
            scheduler: typed(Scheduler::new(Box::new(policy), config.queue_len_max), config.types)
                .with_overload(overload),
            lanes: Vec::with_capacity(config.workers),
            pulled: None,
            shared,
            busy: 0,
            committed: 0,
            pushed: 0,
            hand_off: HandOff::new(),
            bound: config.bound,
            in_place: OwnJobs::new(in_place_mode(config)),
            counts: Counts::default(),
            now: 0,
        };
        let (pulled, mut pullers) = Pulled::new(config);
        dispatcher.pulled = pulled;
        let mut workers = Vec::with_capacity(config.workers);
        for index in 0..config.workers {
            let (sender, taker) = lane(BOUND_MAX as usize);
            let source = pullers.next().map_or(Source::Lane(taker), Source::Shared);
            let kinds = VecDeque::new();
            dispatcher.lanes.push(Lane { sender, progress_at: 0, sample: None, kinds });
            dispatcher.scheduler.add_worker();
            let core = config.cores.get(index % config.cores.len().max(1)).copied();
            let shared = dispatcher.shared.clone();
            workers.push(Worker::new(index, source, shared, config.spin_time(), core));
        }
        Ok((dispatcher, workers))
    }

    /// Gives a job to a worker, or queues it for as long as it may wait, and returns the ticket to
    /// withdraw it by. No policy makes it run twice: a job does not say that it may.
    ///
    /// # Errors
    ///
    /// The job, when the queue is full.
    #[inline]
    pub fn offer(&mut self, job: J, wait: impl Into<Wait>) -> Result<Option<Ticket>, J> {
        match self.scheduler.offer(job, Cloning::Forbidden, wait, NO_RANDOM) {
            Outcome::Placed(workers, job) => {
                self.push(workers.first(), job);
                Ok(None)
            }
            Outcome::Held(ticket) => {
                self.counts.queued += 1;
                Ok(Some(ticket))
            }
            Outcome::Full(job) => {
                self.counts.refused_queue_full += 1;
                Err(job)
            }
        }
    }

    /// Delay after which a job that is refused now may come again, ns.
    pub fn retry_after_ns(&self) -> u64 {
        self.scheduler.retry_after_ns()
    }

    /// Takes a job out of the queue, if it still waits there.
    pub fn withdraw(&mut self, ticket: Ticket) -> Option<J> {
        self.scheduler.remove(ticket)
    }

    /// Hands back every job that is done, or has expired in the queue, and gives the workers that
    /// are free for it what is queued, or what others have not begun.
    #[inline]
    pub fn poll_done(&mut self, now: Time, mut done: impl FnMut(J)) {
        self.now = now;
        if self.pulled.is_some() {
            self.collect_pulled(&mut done);
        } else {
            self.collect(&mut done);
        }
        if self.scheduler.queue_len() > 0 {
            loop {
                while let Some(job) = self.scheduler.poll_expired(now) {
                    self.counts.expired += 1;
                    done(job);
                }
                let Some((workers, job)) = self.scheduler.poll_placed(now, NO_RANDOM) else {
                    break;
                };
                self.push(workers.first(), job);
            }
        }
        if self.committed != 0 {
            self.rebalance();
        }
        self.flush();
    }

    /// Hands back what comes over the lanes.
    #[inline]
    fn collect(&mut self, done: &mut impl FnMut(J)) {
        // What several workers are done with comes over at once.
        bits(self.busy).for_each(|index| self.lanes[index].sender.prefetch());
        let mut rest = self.busy;
        while rest != 0 {
            let index = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            while let Some((job, note)) = self.lanes[index].sender.collect() {
                self.conclude(index, note);
                done(job);
            }
        }
    }

    /// Wakes workers that sleep and have been given something. What is offered runs at once where
    /// its worker is awake, and otherwise from here on.
    #[inline]
    pub fn flush(&mut self) {
        if self.pushed != 0 {
            self.counts.wakes += self.shared.wake(self.pushed);
            self.pushed = 0;
        }
        if let Some(pulled) = &mut self.pulled {
            self.counts.wakes += pulled.flush(&self.shared);
        }
    }

    /// Announces that this thread is about to sleep; false when a job is done meanwhile, and it
    /// must not. Call [`Dispatcher::get_up`] afterwards in either case.
    pub fn fall_asleep(&mut self) -> bool {
        self.flush();
        if self.busy == 0 {
            return true;
        }
        self.shared.set_dispatcher_asleep(true);
        match &self.pulled {
            Some(pulled) => !pulled.is_done(),
            None => !self.lanes.iter().any(|lane| lane.sender.is_done()),
        }
    }

    /// This thread is awake.
    pub fn get_up(&mut self) {
        if self.busy != 0 {
            self.shared.set_dispatcher_asleep(false);
        }
    }

    /// Time at which to poll again though nothing is done: a job will have waited for too long, or
    /// a worker is idle while another has more than it can be at.
    pub fn next_look(&self) -> Option<Time> {
        self.scheduler.next_expiry().into_iter().chain(self.next_steal()).min()
    }

    fn next_steal(&self) -> Option<Time> {
        let has_idle = self.busy.count_ones() < self.lanes.len() as u32;
        if self.committed == 0 || !has_idle {
            return None;
        }
        let oldest = bits(self.committed).map(|index| self.lanes[index].progress_at).min()?;
        Some(oldest.saturating_add(self.patience_ns()).max(self.now + 1))
    }

    /// Jobs queued, with workers or for its owner to run.
    pub fn len(&self) -> usize {
        let with_workers = |index| self.scheduler.outstanding(WorkerId::at(index)) as usize;
        let waiting = self.scheduler.queue_len() + self.in_place.len();
        waiting + bits(self.busy).map(with_workers).sum::<usize>()
    }

    /// Nothing is queued, with workers or for its owner to run.
    pub fn is_empty(&self) -> bool {
        self.busy == 0 && self.scheduler.queue_len() == 0 && !self.has_in_place()
    }

    /// Jobs that a worker has. Panics for a worker that there is not.
    pub fn outstanding(&self, worker: usize) -> u32 {
        self.scheduler.outstanding(WorkerId::at(worker))
    }

    /// The types of jobs and the workers that are reserved for each; `None` where there is one.
    pub fn types(&self) -> Option<&Types> {
        self.scheduler.types()
    }

    /// Sets whether the owner runs jobs itself from here on, of types that are short ([`InPlace`]):
    /// those that it offers by [`Dispatcher::offer_in_place`]. It then takes all that
    /// [`Dispatcher::next_in_place`] has after each poll, and says how long each took; and has
    /// another thread take over where it does not return from one, for such a job is not known
    /// before. At first it runs none.
    #[inline]
    pub fn set_in_place(&mut self, is_possible: bool) {
        self.in_place.set_open(is_possible);
    }

    /// Keeps a job for the owner to run.
    ///
    /// # Errors
    ///
    /// The job, when it is not short, the owner runs none now, or has enough: it is for
    /// [`Dispatcher::offer`].
    #[inline]
    pub fn offer_in_place(&mut self, job: J, wait: Wait) -> Result<(), J> {
        self.in_place.offer(job, wait)
    }

    /// The next job for the owner to run, as it was offered.
    #[inline]
    pub fn next_in_place(&mut self) -> Option<(J, Wait)> {
        self.in_place.next()
    }

    /// True if there are jobs for the owner to run.
    #[inline]
    pub fn has_in_place(&self) -> bool {
        self.in_place.len() > 0
    }

    /// True if the owner is to time the job of a type that it runs next, as it is one in eight of
    /// its type.
    #[inline]
    pub fn times_next_in_place(&mut self, kind: TypeId) -> bool {
        self.in_place.rule.times_next(kind)
    }

    /// The owner has run a job of a type, which took `service_ns`; `None` where it was not timed,
    /// or others had the core meanwhile.
    #[inline]
    pub fn note_in_place(&mut self, kind: TypeId, service_ns: Option<u64>) {
        let known = (self.hand_off.round_trip_ns(), self.now);
        self.in_place.rule.note_in_place(kind, service_ns, known);
    }

    /// A job of a type that was begun in place was longer than [`LONG_NS`], and somebody else has
    /// taken over.
    pub fn note_long(&mut self, kind: TypeId) {
        self.in_place.rule.note_long(kind, self.now);
    }

    /// Another thread has taken over from one that has not returned from a job.
    pub fn note_taken_over(&mut self) {
        self.in_place.rule.counts.taken_over += 1;
    }

    /// Counters and measurements so far.
    pub fn metrics(&self) -> Metrics {
        let outstanding = (0..self.lanes.len()).map(|index| self.outstanding(index));
        let pushed_to = if self.pulled.is_some() { 0 } else { self.lanes.len() };
        Metrics {
            workers: self.lanes.len() as u64,
            busy: u64::from(self.busy.count_ones()),
            queue_len: self.scheduler.queue_len() as u64,
            outstanding: outstanding.clone().map(u64::from).sum(),
            outstanding_max: outstanding.map(u64::from).max().unwrap_or(0),
            outstanding_by_worker: ByWorker::outstanding(&self.scheduler, pushed_to),
            bound: u64::from(self.scheduler.bound().unwrap_or(0)),
            hand_off_ns: self.hand_off.round_trip_ns(),
            service_ns: self.hand_off.service_ns(),
            worker_sleeps: self.shared.sleeps(),
            panics: self.shared.panics(),
            types: TypeMetrics::of(&self.scheduler),
            counts: self.counts,
            in_place: self.in_place.rule.counts,
        }
    }

    #[inline]
    fn push(&mut self, worker: WorkerId, job: J) {
        if self.pulled.is_some() {
            return self.push_pulled(worker, job);
        }
        let (index, bit) = (worker.index(), 1 << worker.index());
        let lane = &mut self.lanes[index];
        let is_idle = self.busy & bit == 0;
        if is_idle {
            lane.progress_at = self.now;
            self.busy |= bit;
        } else {
            self.committed |= bit;
        }
        let (kind, samples_next) = if self.scheduler.types().is_none() {
            (TypeId(0), self.hand_off.samples_next())
        } else {
            let kind = self.scheduler.placed_type();
            lane.kinds.push_back(kind);
            (kind, self.scheduler.samples_next(kind))
        };
        let mut note = if self.in_place.is_timed(kind, self.now) { TIMED } else { 0 };
        if lane.sample.is_none() && samples_next {
            let is_hand_off = is_idle && !self.shared.is_asleep(index);
            lane.sample = Some(Sample { pushed_at: Clock.now(), is_hand_off });
            note = SAMPLE;
        }
        let is_pushed = lane.sender.push(job, note).is_ok();
        assert!(is_pushed, "the bound is a lane's length at most");
        self.pushed |= bit;
        self.counts.dispatched += 1;
    }

    /// Takes note that a worker has one job less.
    #[inline]
    fn release(&mut self, index: usize) {
        let worker = WorkerId::at(index);
        self.scheduler.conclude(worker);
        match self.scheduler.outstanding(worker) {
            0 => {
                self.busy &= !(1 << index);
                self.committed &= !(1 << index);
            }
            1 => self.committed &= !(1 << index),
            _ => {}
        }
    }

    #[inline]
    fn conclude(&mut self, index: usize, note: u32) {
        self.release(index);
        self.lanes[index].progress_at = self.now;
        let kind = self.lanes[index].kinds.pop_front();
        if note == 0 {
            return;
        }
        let (kind, service_ns) = (kind.unwrap_or_default(), u64::from(note));
        self.in_place.rule.note_at_worker(
            kind,
            service_ns,
            (self.hand_off.round_trip_ns(), self.now),
        );
        if note & SAMPLE == 0 {
            return;
        }
        self.scheduler.note_service(kind, service_ns);
        if let Some(sample) = self.lanes[index].sample.take() {
            self.hand_off.record(sample, service_ns, Clock.now());
            if self.bound == Bound::Auto {
                self.scheduler.set_bound(self.hand_off.bound());
            }
        }
    }

    /// Gives workers that are idle what others have and have not begun, of those without progress
    /// for longest first. Only once they had none for as long as a hand-off takes: before that the
    /// worker is as likely about to begin it.
    #[inline(never)]
    fn rebalance(&mut self) {
        let all = u64::MAX >> (u64::BITS as usize - self.lanes.len());
        let mut candidates = self.committed;
        let patience_ns = self.patience_ns();
        while self.busy != all && self.scheduler.queue_len() == 0 {
            let slowest = bits(candidates).min_by_key(|&index| self.lanes[index].progress_at);
            let Some(index) = slowest.filter(|&index| {
                self.now >= self.lanes[index].progress_at.saturating_add(patience_ns)
            }) else {
                return;
            };
            let kind = self.lanes[index].kinds.back().copied().unwrap_or_default();
            if !self.scheduler.has_idle(kind) {
                candidates &= !(1 << index);
                continue;
            }
            let Some((job, note)) = self.lanes[index].sender.take_back() else {
                // It has begun the last of them.
                candidates &= !(1 << index);
                continue;
            };
            if note & SAMPLE != 0 {
                self.lanes[index].sample = None;
            }
            self.release(index);
            candidates &= self.committed;
            self.counts.taken_back += 1;
            // Its queueing is over, and with it its deadline there: the worker asks.
            self.lanes[index].kinds.pop_back();
            let wait = Wait::from(Time::MAX).of_type(kind);
            match self.scheduler.offer(job, Cloning::Forbidden, wait, NO_RANDOM) {
                Outcome::Placed(workers, job) => self.push(workers.first(), job),
                Outcome::Held(_) => {}
                Outcome::Full(_) => unreachable!("a worker is idle"),
            }
        }
    }

    fn patience_ns(&self) -> u64 {
        self.hand_off.round_trip_ns().unwrap_or(0).clamp(PATIENCE_MIN_NS, PATIENCE_MAX_NS)
    }
}

impl<J, P> Drop for Dispatcher<J, P> {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

/// Jobs that may run in place: none where workers pull, which is there to be compared with.
fn in_place_mode(config: &Config) -> InPlace {
    if config.delivery == Delivery::Pull { InPlace::Never } else { config.in_place }
}

/// A scheduler of so many types of jobs.
fn typed<J, P: Policy>(scheduler: Scheduler<J, P>, types: usize) -> Scheduler<J, P> {
    if types > 1 { scheduler.with_types(types) } else { scheduler }
}

/// The places of the bits that are set.
fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = set.trailing_zeros();
        set &= set.checked_sub(1)?;
        Some(index as usize)
    })
}

/// The note of a job whose service and hand-off are measured. As the last bit it comes back beside
/// the service.
const SAMPLE: u32 = 1;

/// The note of one whose service alone is.
const TIMED: u32 = 2;

/// JBSQ breaks ties by rotation and needs no random word.
const NO_RANDOM: u64 = 0;

/// The least time without progress after which what a worker has not begun is taken back: to take
/// it costs about as much as a hand-off.
const PATIENCE_MIN_NS: u64 = 1_000;

/// The most: a hand-off that takes longer is one of a worker that was asleep or descheduled.
const PATIENCE_MAX_NS: u64 = 50_000;

#[cfg(test)]
mod tests;
