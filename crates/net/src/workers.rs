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
use tailcut_proto::policy::Jbsq;
use tailcut_proto::rpc::RequestId;
use tailcut_proto::scheduler::{Outcome, Scheduler};

use crate::driver::Waker;

/// A request on its way to a worker, or its reply on the way back.
#[derive(Debug)]
pub struct Job {
    /// The request.
    pub id: RequestId,
    /// Its bytes.
    pub request: Vec<u8>,
    /// The reply's bytes; empty on the way to the worker.
    pub reply: Vec<u8>,
}

/// The I/O thread's side of its workers.
#[derive(Debug)]
pub struct Workers {
    scheduler: Scheduler<Job, Jbsq>,
    lanes: Vec<Lane>,
}

#[derive(Debug)]
struct Lane {
    jobs: Producer<Job>,
    done: Consumer<Job>,
    signals: Arc<Signals>,
    thread: Thread,
}

#[derive(Debug, Default)]
struct Signals {
    is_parked: AtomicBool,
    is_stopping: AtomicBool,
}

impl Workers {
    /// Starts `count` workers (at least one) that answer jobs by `handler` and wake the driver of
    /// `waker`. They end when this is dropped.
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
        F: Fn(&[u8], &mut Vec<u8>) + Send + Sync,
    {
        let mut workers =
            Self { scheduler: Scheduler::new(Jbsq::new(BOUND), QUEUE_LEN_MAX), lanes: Vec::new() };
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

    /// Gives a request to a worker or queues it until `deadline`.
    ///
    /// # Errors
    ///
    /// The job, when the queue is full.
    pub fn offer(&mut self, job: Job, deadline: Time) -> Result<(), Job> {
        match self.scheduler.offer(job, deadline, 0) {
            Outcome::Placed(workers, job) => self.lanes[workers.first.index()].push(job),
            Outcome::Held(_) => {}
            Outcome::Full(job) => return Err(job),
        }
        Ok(())
    }

    /// Takes every reply that has come back, and gives the workers that are free for it what is
    /// queued.
    ///
    /// # Errors
    ///
    /// When a worker has panicked: its requests would never be answered.
    pub fn poll_done(&mut self, now: Time, mut reply: impl FnMut(Job)) -> io::Result<()> {
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let is_gone = lane.done.is_abandoned();
            while let Ok(job) = lane.done.pop() {
                self.scheduler.conclude(tailcut_proto::policy::WorkerId::at(index));
                reply(job);
            }
            if is_gone {
                return Err(io::Error::other("a worker thread has panicked"));
            }
        }
        // An expired request has left the endpoint too.
        while self.scheduler.poll_expired(now).is_some() {}
        while let Some((workers, job)) = self.scheduler.poll_placed(now, 0) {
            self.lanes[workers.first.index()].push(job);
        }
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for lane in &self.lanes {
            lane.signals.is_stopping.store(true, Ordering::SeqCst);
            lane.thread.unpark();
        }
    }
}

impl Lane {
    fn push(&mut self, job: Job) {
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
struct Worker {
    jobs: Consumer<Job>,
    done: Producer<Job>,
    signals: Arc<Signals>,
    waker: Waker,
}

impl Worker {
    fn run(mut self, handler: &impl Fn(&[u8], &mut Vec<u8>)) {
        // The panic has been printed; the ring that is abandoned with it tells the driver, which is
        // woken to look.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.work(handler)));
        let waker = self.waker.clone();
        drop(self);
        waker.wake();
    }

    fn work(&mut self, handler: &impl Fn(&[u8], &mut Vec<u8>)) {
        let mut idle_spins = 0;
        while !self.signals.is_stopping.load(Ordering::Relaxed) {
            if let Ok(mut job) = self.jobs.pop() {
                handler(&job.request, &mut job.reply);
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
