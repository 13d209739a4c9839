//! Worker threads behind one I/O thread: RPCValet's single queue in software.
//!
//! The I/O thread owns the queue and decides by JBSQ(2) which worker gets a request: the first free
//! one, with one more committed so that it need not wait for the hand-off (spec section 1.2's
//! threshold). Requests and replies cross threads over single-producer single-consumer rings;
//! nothing is locked, nothing is shared.
//!
//! | a worker | until |
//! |---|---|
//! | runs | its ring is empty |
//! | spins | a request comes, or a wake-up's worth of time has passed |
//! | is parked | the I/O thread pushes a request and unparks it |

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::{Scope, Thread};

use rtrb::{Consumer, Producer, RingBuffer};

use tailcut_proto::node::Time;
use tailcut_proto::policy::{Jbsq, Policy, WorkerId};
use tailcut_proto::scheduler::{Cloning, Outcome, Scheduler, Ticket};

use crate::driver::Waker;

/// The I/O thread's side of its workers, which take jobs of type `J`: requests on their way there,
/// and with their answers on the way back.
#[derive(Debug)]
pub struct Workers<J, P = Jbsq> {
    /// The queue, and what each worker has.
    scheduler: Scheduler<J, P>,
    /// The rings of each worker, by its index in the scheduler.
    lanes: Vec<Lane<J>>,
}

#[derive(Debug)]
struct Lane<J> {
    jobs: Producer<J>,
    done: Consumer<J>,
    signals: Arc<Signals>,
    thread: Thread,
}

#[derive(Debug, Default)]
struct Signals {
    is_parked: AtomicBool,
    is_stopping: AtomicBool,
}

impl<J: Send> Workers<J> {
    /// Starts `count` workers (at least one) that do jobs by `handler` and wake the driver of
    /// `waker`. They end when this is dropped, each after the job that it is at.
    ///
    /// # Errors
    ///
    /// What the system says when it gives no thread.
    pub fn start<'scope, F>(
        scope: &'scope Scope<'scope, '_>,
        count: usize,
        waker: &Waker,
        handler: &'scope F,
    ) -> io::Result<Self>
    where
        F: Fn(&mut J) + Sync,
        J: 'scope,
    {
        Self::start_with(scope, Jbsq::new(BOUND), count, waker, handler)
    }
}

impl<J: Send, P: Policy> Workers<J, P> {
    /// As [`Workers::start`], with another policy, which bounds what a worker has to
    /// `RING_LEN`.
    fn start_with<'scope, F>(
        scope: &'scope Scope<'scope, '_>,
        policy: P,
        count: usize,
        waker: &Waker,
        handler: &'scope F,
    ) -> io::Result<Self>
    where
        F: Fn(&mut J) + Sync,
        J: 'scope,
    {
        let scheduler = Scheduler::new(Box::new(policy), QUEUE_LEN_MAX);
        let mut workers = Self { scheduler, lanes: Vec::new() };
        for index in 0..count.max(1) {
            let (jobs, theirs) = RingBuffer::new(RING_LEN);
            let (done, results) = RingBuffer::new(RING_LEN);
            let signals = Arc::new(Signals::default());
            let worker =
                Worker { jobs: theirs, done, signals: signals.clone(), waker: waker.clone() };
            let builder = std::thread::Builder::new().name(format!("tailcut-worker-{index}"));
            let thread = builder.spawn_scoped(scope, move || worker.run(handler))?.thread().clone();
            workers.lanes.push(Lane { jobs, done: results, signals, thread });
            workers.scheduler.add_worker();
        }
        Ok(workers)
    }

    /// Gives a job to a worker, or queues it until `deadline` and returns the ticket to withdraw it
    /// by. No policy makes it run twice: a job does not say that it may.
    ///
    /// # Errors
    ///
    /// The job, when the queue is full.
    pub fn offer(&mut self, job: J, deadline: Time) -> Result<Option<Ticket>, J> {
        match self.scheduler.offer(job, Cloning::Forbidden, deadline, 0) {
            Outcome::Placed(workers, job) => {
                self.lanes[workers.first().index()].push(job);
                Ok(None)
            }
            Outcome::Held(ticket) => Ok(Some(ticket)),
            Outcome::Full(job) => Err(job),
        }
    }

    /// Takes a job out of the queue, if it still waits there.
    pub fn withdraw(&mut self, ticket: Ticket) -> Option<J> {
        self.scheduler.remove(ticket)
    }

    /// Takes every job that has come back, done, or expired in the queue, and gives the workers that
    /// are free for it what is queued.
    ///
    /// # Errors
    ///
    /// When a worker has panicked, which the handler must not let happen: its jobs would never come
    /// back.
    pub fn poll_done(&mut self, now: Time, mut done: impl FnMut(J)) -> io::Result<()> {
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let is_gone = lane.done.is_abandoned();
            while let Ok(job) = lane.done.pop() {
                self.scheduler.conclude(WorkerId::at(index));
                done(job);
            }
            if is_gone {
                return Err(io::Error::other("a worker thread has panicked"));
            }
        }
        while let Some(job) = self.scheduler.poll_expired(now) {
            done(job);
        }
        while let Some((workers, job)) = self.scheduler.poll_placed(now, 0) {
            self.lanes[workers.first().index()].push(job);
        }
        Ok(())
    }
}

impl<J, P> Drop for Workers<J, P> {
    fn drop(&mut self) {
        for lane in &self.lanes {
            lane.signals.is_stopping.store(true, Ordering::SeqCst);
            lane.thread.unpark();
        }
    }
}

impl<J> Lane<J> {
    fn push(&mut self, job: J) {
        // The bound keeps the ring from filling; a ring whose worker has died is noticed by
        // `poll_done`.
        let _ = self.jobs.push(job);
        // The worker must see the job or be seen parked.
        fence(Ordering::SeqCst);
        if self.signals.is_parked.swap(false, Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}

/// A worker's side.
struct Worker<J> {
    jobs: Consumer<J>,
    done: Producer<J>,
    signals: Arc<Signals>,
    waker: Waker,
}

impl<J> Worker<J> {
    fn run(mut self, handler: &impl Fn(&mut J)) {
        // The panic has been printed; the ring that is abandoned with it tells the driver, which is
        // woken to look.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.work(handler)));
        let waker = self.waker.clone();
        drop(self);
        waker.wake();
    }

    fn work(&mut self, handler: &impl Fn(&mut J)) {
        let mut idle_spins = 0;
        while !self.signals.is_stopping.load(Ordering::Relaxed) {
            if let Ok(mut job) = self.jobs.pop() {
                handler(&mut job);
                // The ring holds more than the bound allows outstanding.
                let _ = self.done.push(job);
                self.waker.wake();
                idle_spins = 0;
            } else if idle_spins < IDLE_SPINS_MAX {
                idle_spins += 1;
                std::hint::spin_loop();
            } else {
                self.park();
            }
        }
    }

    fn park(&self) {
        self.signals.is_parked.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.jobs.is_empty() && !self.signals.is_stopping.load(Ordering::SeqCst) {
            std::thread::park();
        }
        self.signals.is_parked.store(false, Ordering::SeqCst);
    }
}

/// One request runs and one is committed.
const BOUND: NonZeroU32 = NonZeroU32::new(2).unwrap();

/// More than the bound, so that a push never fails.
const RING_LEN: usize = 4;

/// Requests that wait for a worker.
const QUEUE_LEN_MAX: usize = 65_536;

/// About 20 us of spinning, a wake-up's worth.
const IDLE_SPINS_MAX: u32 = 500;

#[cfg(test)]
mod tests {
    use tailcut_proto::policy::{Loads, Placement};

    use super::*;

    /// A policy that clones whatever it is asked for.
    #[derive(Debug)]
    struct Cloner;

    impl Policy for Cloner {
        fn place(&mut self, _: Loads<'_>, _: u64) -> Placement {
            Placement::Two(WorkerId(0), WorkerId(1))
        }
    }

    #[test]
    fn a_policy_that_clones_runs_a_job_once_and_leaves_nothing_outstanding() {
        let waker = Waker::new().unwrap();
        let handler = |job: &mut (u64, u64)| job.1 = job.0;
        std::thread::scope(|scope| {
            let mut workers = Workers::start_with(scope, Cloner, 2, &waker, &handler).unwrap();
            let mut replies = Vec::new();
            for id in 0..100 {
                workers.offer((id, u64::MAX), Time::MAX).unwrap();
                // Nothing is pushed to a ring that may be full.
                while replies.len() as u64 <= id {
                    workers.poll_done(0, |job| replies.push(job)).unwrap();
                    std::thread::yield_now();
                }
            }
            workers.poll_done(0, |job| replies.push(job)).unwrap();
            let expected: Vec<_> = (0..100).map(|id| (id, id)).collect();
            assert_eq!(replies, expected);
            for worker in [0, 1] {
                assert_eq!(workers.scheduler.outstanding(WorkerId(worker)), 0);
            }
        });
    }
}
