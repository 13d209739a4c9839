//! What waits for a server's own thread: requests that have come while it ran others.
//!
//! | a request | when | then |
//! |---|---|---|
//! | comes | nothing waits, and the turn is young | runs |
//! | comes | otherwise | waits, or is refused where too much does |
//! | waits | it is its turn | runs |
//! | waits | it has waited for too long | refused |
//!
//! So what comes is received after each few handlers, and not left to the socket, which knows neither
//! deadlines nor how long it has held something. How long a request may wait is the scheduler's to say,
//! as before workers and tasks, but that a queue may stand here for as long as half of each deadline.

use std::num::NonZeroU32;

use tailcut_net::clock::Clock;
use tailcut_net::completions::Parcel;
use tailcut_net::entropy;
use tailcut_proto::node::Time;
use tailcut_proto::policy::{Jbsq, WorkerId};
use tailcut_proto::scheduler::overload::OverloadConfig;
use tailcut_proto::scheduler::{Cloning, Outcome, Scheduler, Ticket, Wait};

use crate::request::Job;

/// Requests that wait for the thread that receives them.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// The thread is its one worker, which always has something: what is offered waits until it is
    /// asked for.
    scheduler: Scheduler<Parcel<Job>, Jbsq>,
    /// When the turn has run handlers for long enough.
    ends_at: Time,
    /// Handlers that the turn has run.
    count: u32,
}

impl Backlog {
    pub(crate) fn new() -> Self {
        // Without a random device the shares' table is as good, but for strangers who know its key.
        let seed = entropy::seed().unwrap_or_default();
        // All calls of one client at once are a queue that stands: as long as they are answered in
        // half of their time, nothing is refused.
        let overload = OverloadConfig {
            seed,
            target_ns: u64::MAX,
            deadline_divisor: 2,
            ..OverloadConfig::DEFAULT
        };
        let policy = Box::new(Jbsq::new(NonZeroU32::MIN));
        let mut scheduler = Scheduler::new(policy, QUEUE_LEN_MAX).with_overload(overload);
        scheduler.add_worker();
        scheduler.charge(OWN);
        Self { scheduler, ends_at: 0, count: 0 }
    }

    /// Whether something waits.
    #[inline]
    pub(crate) fn has_some(&self) -> bool {
        self.scheduler.queue_len() > 0
    }

    /// A turn begins.
    #[inline]
    pub(crate) fn begin_turn(&mut self, now: Time) {
        (self.ends_at, self.count) = (now.saturating_add(TURN_NS), 0);
    }

    /// Whether a request that has just come may run at once. Reads the clock now and then.
    #[inline]
    pub(crate) fn may_run(&mut self) -> bool {
        !self.has_some() && self.is_young()
    }

    #[inline]
    fn is_young(&mut self) -> bool {
        self.count += 1;
        !self.count.is_multiple_of(HANDLERS_PER_READING) || Clock.now() < self.ends_at
    }

    /// Keeps a request for later.
    ///
    /// # Errors
    ///
    /// The request, when too much waits.
    pub(crate) fn hold(&mut self, job: Parcel<Job>, wait: Wait) -> Result<Ticket, Parcel<Job>> {
        match self.scheduler.offer(job, Cloning::Forbidden, wait, 0) {
            Outcome::Held(ticket) => Ok(ticket),
            Outcome::Full(job) => Err(job),
            Outcome::Placed(..) => unreachable!("its worker always has something"),
        }
    }

    /// The next request to run, while the turn is young.
    pub(crate) fn poll_next(&mut self) -> Option<Parcel<Job>> {
        if !self.has_some() || !self.is_young() {
            return None;
        }
        self.scheduler.conclude(OWN);
        let placed = self.scheduler.poll_placed(Clock.now(), 0);
        if placed.is_none() {
            self.scheduler.charge(OWN);
        }
        placed.map(|(_, job)| job)
    }

    /// The next request that has waited for too long.
    pub(crate) fn poll_expired(&mut self) -> Option<Parcel<Job>> {
        if self.has_some() { self.scheduler.poll_expired(Clock.now()) } else { None }
    }

    /// Takes a request out, if it still waits.
    pub(crate) fn withdraw(&mut self, ticket: Ticket) -> Option<Parcel<Job>> {
        self.scheduler.remove(ticket)
    }
}

/// The thread.
const OWN: WorkerId = WorkerId(0);

/// Requests that wait.
const QUEUE_LEN_MAX: usize = 65_536;

/// How long a turn runs handlers before it receives again.
const TURN_NS: u64 = 100_000;

/// Handlers for each reading of the clock.
const HANDLERS_PER_READING: u32 = 8;
