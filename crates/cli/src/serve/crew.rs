//! Services that are computed on worker threads, behind one dispatcher.
//!
//! | a request | event | then |
//! |---|---|---|
//! | waits | it is cancelled | it leaves |
//! | waits | its deadline passes, it has waited for as long as the overload rule lets it | expired |
//! | is with a worker, not begun | its deadline passes | it is not computed: expired |
//! | is computed | its service has passed | finished |

use std::collections::HashMap;

use anyhow::{Context, Result};
use foldhash::fast::FixedState;
use tailcut_net::clock::Clock;
use tailcut_net::dispatch::{Config, Dispatcher, Metrics};
use tailcut_net::driver::Waker;
use tailcut_proto::node::Time;
use tailcut_proto::rpc::RequestId;
use tailcut_proto::scheduler::{Ticket, Wait as QueueWait};

use super::emulated::Job;
use super::kinds::{Kinds, TypedTimes};
use super::times::Times;

/// The workers of one port. They end when it is dropped, each after the service that it is at.
#[derive(Debug)]
pub(super) struct Crew<W> {
    pub(super) dispatcher: Dispatcher<Computed<W>>,
    /// Threads.
    worker_count: usize,
    /// Places in the queue, for cancels.
    held: HashMap<RequestId, Ticket, FixedState>,
    /// Times of the requests that have finished.
    times: Times,
    /// The types of requests.
    kinds: Kinds,
    /// Times of the requests that have finished, by type.
    typed_times: TypedTimes,
}

/// A request on its way to a worker and back.
#[derive(Debug)]
pub(super) struct Computed<W> {
    job: Job<W>,
    deadline: Time,
    /// Time at which its service began; `None` before.
    began_at: Option<Time>,
}

/// Outcome of a request at its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It has been served.
    Finished,
    /// It waited for too long, and was not.
    Expired,
}

impl<W: Send + 'static> Crew<W> {
    /// Threads behind one queue, which wake whoever sleeps by `waker`.
    pub(super) fn start(config: &Config, waker: &Waker) -> Result<Self> {
        let (dispatcher, workers) = Dispatcher::new(config, waker)?;
        for worker in workers {
            let thread = std::thread::Builder::new().name(format!("worker-{}", worker.index()));
            thread.spawn(move || worker.run(compute)).context("cannot start a worker")?;
        }
        let held = HashMap::with_hasher(FixedState::with_seed(0));
        Ok(Self {
            dispatcher,
            worker_count: config.workers,
            held,
            times: Times::default(),
            kinds: Kinds::default(),
            typed_times: TypedTimes::default(),
        })
    }

    /// The crew with requests of types, for which its [`Config::types`] are.
    pub(super) fn with_kinds(self, kinds: Kinds) -> Self {
        Self { typed_times: kinds.times(), kinds, ..self }
    }

    /// Takes a request, unless the queue is full.
    ///
    /// # Errors
    ///
    /// The request.
    pub(super) fn offer(
        &mut self,
        job: Job<W>,
        deadline: Time,
        wait: QueueWait,
    ) -> Result<(), Job<W>> {
        let id = job.id;
        let wait = wait.of_type(self.kinds.of(job.service_ns));
        let offered = self.dispatcher.offer(Computed { job, deadline, began_at: None }, wait);
        // What has no deadline comes from who cannot cancel.
        if let Some(ticket) = offered.map_err(|computed| computed.job)?
            && deadline != Time::MAX
        {
            self.held.insert(id, ticket);
        }
        Ok(())
    }

    /// Takes a request out of the queue, if it still waits there.
    pub(super) fn cancel(&mut self, id: RequestId) -> Option<Job<W>> {
        let ticket = self.held.remove(&id)?;
        self.dispatcher.withdraw(ticket).map(|computed| computed.job)
    }

    /// Hands back what has been computed and what has expired, and lets workers begin what has come
    /// since.
    pub(super) fn poll_ended(&mut self, now: Time, mut ended: impl FnMut(Job<W>, Ending)) {
        let Self { dispatcher, held, times, kinds, typed_times, .. } = self;
        dispatcher.poll_done(now, |Computed { job, began_at, .. }| {
            if !held.is_empty() {
                held.remove(&job.id);
            }
            if let Some(began_at) = began_at {
                let queueing_ns = began_at.saturating_sub(job.arrived_at);
                times.record(queueing_ns, job.service_ns);
                typed_times.record(kinds.of(job.service_ns), queueing_ns, job.service_ns);
                ended(job, Ending::Finished);
            } else {
                ended(job, Ending::Expired);
            }
        });
    }

    /// Requests that no worker is at.
    pub(super) fn waiting(&self) -> usize {
        self.dispatcher.len().saturating_sub(self.worker_count)
    }

    /// Requests that waited when a service ended, before its worker began the next, and so many
    /// others had not ended.
    pub(super) fn waiting_at_finish(&self, unfinished: usize) -> usize {
        unfinished.saturating_sub(self.worker_count - 1)
    }

    /// Times that finished requests waited and ran.
    pub(super) fn times(&self) -> &Times {
        &self.times
    }

    /// Times that finished requests waited and ran, by type.
    pub(super) fn typed_times(&self) -> &TypedTimes {
        &self.typed_times
    }

    pub(super) fn metrics(&self) -> Metrics {
        self.dispatcher.metrics()
    }
}

/// Longest sleep of a thread whose crews have been told that it falls asleep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sleep {
    /// No worker has done anything meanwhile. Otherwise it does not sleep, but tells the crews that
    /// it is up all the same.
    pub(super) is_idle: bool,
    /// Latest time to look again.
    pub(super) until: Option<Time>,
}

impl Sleep {
    /// Until `until`, for a thread of which no crew has been told yet.
    pub(super) fn until(until: Option<Time>) -> Self {
        Self { is_idle: true, until }
    }

    /// Tells another crew.
    pub(super) fn tell<W: Send + 'static>(self, crew: &mut Crew<W>) -> Self {
        Self {
            is_idle: crew.dispatcher.fall_asleep() && self.is_idle,
            until: self.until.into_iter().chain(crew.dispatcher.next_look()).min(),
        }
    }
}

fn compute<W>(computed: &mut Computed<W>) {
    let now = Clock.now();
    if computed.deadline > now {
        computed.began_at = Some(now);
        spin(now, computed.job.service_ns);
    }
}

/// Computes for `service_ns` and returns when it ended.
pub(super) fn spin(now: Time, service_ns: u64) -> Time {
    let started_at = Clock.now().max(now);
    loop {
        let at = Clock.now();
        if at.saturating_sub(started_at) >= service_ns {
            return at;
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use tailcut_net::dispatch::Bound;
    use tailcut_net::driver::{Driver, Wait};
    use tailcut_proto::endpoint::Endpoint;

    use super::*;

    /// Half a second's work comes at once and is wanted within 400 ms: requests that would wait for
    /// longer than a quarter of that have expired meanwhile.
    #[test]
    fn what_waits_too_long_expires_before_its_deadline() {
        let driver = Driver::<Endpoint>::new(Wait::default()).expect("a driver");
        let config = Config::new(1).bound(Bound::Fixed(NonZeroU32::MIN));
        let mut crew = Crew::start(&config, &driver.waker()).expect("a crew");
        let began_at = Clock.now();
        let deadline = began_at + 400_000_000;
        for number in 0..250 {
            let (id, wait) = (RequestId(number), QueueWait::of(1, began_at, deadline));
            let job = Job { id, what: (), arrived_at: began_at, service_ns: 2_000_000 };
            assert!(crew.offer(job, deadline, wait).is_ok());
        }
        let (mut finished, mut expired) = (0, 0);
        while finished + expired < 250 {
            let now = Clock.now();
            assert!(now < began_at + 5_000_000_000, "{finished} finished, {expired} expired");
            crew.poll_ended(now, |_, ending| match ending {
                Ending::Finished => finished += 1,
                Ending::Expired => expired += 1,
            });
            std::thread::yield_now();
        }
        assert!(finished > 0 && expired > 100, "{finished} finished, {expired} expired");
    }
}
