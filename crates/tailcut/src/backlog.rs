//! Backlog of a server's own thread: requests that have come while it ran others.
//!
//! | a request | when | then |
//! |---|---|---|
//! | comes | nothing waits, and the turn is young | runs |
//! | comes | otherwise | waits, or is refused where too much does |
//! | waits | it is its turn | runs |
//! | waits | it has waited for too long | refused |
//!
//! So what comes is received after each few handlers, and not left to the socket, which knows
//! neither deadlines nor how long it has held something. How long a request may wait is the
//! scheduler's to say, as before workers and tasks, but that a queue may stand here for as long as
//! half of each deadline.

use std::num::NonZeroU32;

use tailcut_net::clock::Clock;
use tailcut_net::completions::Parcel;
use tailcut_net::dispatch::QUEUE_LEN_MAX;
use tailcut_net::entropy;
use tailcut_proto::node::Time;
use tailcut_proto::policy::{Jbsq, WorkerId};
use tailcut_proto::scheduler::overload::OverloadConfig;
use tailcut_proto::scheduler::{Cloning, Outcome, Scheduler, Ticket, Wait};

use crate::crew::Crew;
use crate::request::Job;

/// Requests that wait for the thread that receives them.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// The thread is its one worker, which always has something: what is offered waits until it is
    /// asked for.
    scheduler: Scheduler<Parcel<Job>, Jbsq>,
    /// Time at which the turn has run handlers for long enough.
    ends_at: Time,
    /// Time at which the clock was read last.
    read_at: Time,
    /// Handlers that have begun since.
    begun: u64,
    /// So many begin before it is read again.
    begun_max: u64,
}

impl Backlog {
    pub(crate) fn new() -> Self {
        // All calls of one client at once are a queue that stands: as long as they are answered in
        // half of their time, nothing is refused.
        let overload = OverloadConfig {
            seed: entropy::seed_or_zero(),
            target_ns: u64::MAX,
            deadline_divisor: 2,
            ..OverloadConfig::DEFAULT
        };
        let policy = Box::new(Jbsq::new(NonZeroU32::MIN));
        let mut scheduler = Scheduler::new(policy, QUEUE_LEN_MAX).with_overload(overload);
        scheduler.add_worker();
        scheduler.charge(OWN);
        Self { scheduler, ends_at: 0, read_at: 0, begun: 0, begun_max: 1 }
    }

    /// True if something waits.
    #[inline]
    pub(crate) fn has_some(&self) -> bool {
        self.scheduler.queue_len() > 0
    }

    /// A turn begins.
    #[inline]
    pub(crate) fn begin_turn(&mut self, now: Time) {
        (self.ends_at, self.read_at) = (now.saturating_add(TURN_NS), now);
        (self.begun, self.begun_max) = (0, 1);
    }

    /// True if a request that has just come may run at once. Reads the clock after the first, and
    /// then as often as handlers are slow.
    #[inline]
    pub(crate) fn may_run(&mut self) -> bool {
        if self.begun >= self.begun_max {
            let now = Clock.now();
            let each_ns = now.saturating_sub(self.read_at) / self.begun;
            self.begun_max = (READING_NS / each_ns.max(1)).clamp(1, BEGUN_MAX);
            (self.read_at, self.begun) = (now, 0);
        }
        self.begun += 1;
        self.read_at < self.ends_at && !self.has_some()
    }

    /// The next request to run, while the turn is young.
    pub(crate) fn poll_next(&mut self) -> Option<Parcel<Job>> {
        if !self.has_some() {
            return None;
        }
        let now = Clock.now();
        if now >= self.ends_at {
            return None;
        }
        self.scheduler.conclude(OWN);
        let placed = self.scheduler.poll_placed(now, 0);
        if placed.is_none() {
            self.scheduler.charge(OWN);
        }
        placed.map(|(_, job)| job)
    }
}

impl Crew for Backlog {
    const IS_ELSEWHERE: bool = false;

    fn offer(&mut self, job: Parcel<Job>, wait: Wait) -> Result<Option<Ticket>, Parcel<Job>> {
        match self.scheduler.offer(job, Cloning::Forbidden, wait, 0) {
            Outcome::Held(ticket) => Ok(Some(ticket)),
            Outcome::Full(job) => Err(job),
            Outcome::Placed(..) => unreachable!("its worker always has something"),
        }
    }

    fn withdraw(&mut self, ticket: Ticket) -> Option<Parcel<Job>> {
        self.scheduler.remove(ticket)
    }

    fn poll_done(&mut self, _now: Time, mut done: impl FnMut(Parcel<Job>)) {
        // The turn may be old: what has expired since it began is not run either.
        while self.has_some()
            && let Some(job) = self.scheduler.poll_expired(Clock.now())
        {
            done(job);
        }
    }

    fn retry_after_ns(&self) -> u64 {
        self.scheduler.retry_after_ns()
    }
}

/// The thread.
const OWN: WorkerId = WorkerId(0);

/// Time for which a turn runs handlers before it receives again.
const TURN_NS: u64 = 100_000;

/// The clock is read about as often while handlers run.
const READING_NS: u64 = 10_000;

/// Handlers for each reading of it, at most.
const BEGUN_MAX: u64 = 8;
