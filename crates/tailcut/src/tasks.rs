//! Handlers that are tasks: a bounded number of lanes, each a task that runs one request's future
//! after the other.
//!
//! | a lane | until |
//! |---|---|
//! | waits | it is given a request, or the server ends |
//! | runs a handler's future | that is done or panics, or its request is cancelled: it is dropped |
//!
//! A lane is spawned when all others are at work, so that there are never more than were needed at
//! once; a future lives in its lane, so that a warm one allocates nothing.

use std::future::{Future, poll_fn};
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tailcut_net::entropy;
use tailcut_proto::node::Time;
use tailcut_proto::policy::{Jbsq, WorkerId};
use tailcut_proto::scheduler::overload::OverloadConfig;
use tailcut_proto::scheduler::{Cloning, Outcome, Scheduler, Ticket, Wait};
use tokio::runtime::Handle;

use crate::error::Error;
use crate::lock;
use crate::request::{Job, Outbox, Responder};
use crate::server::{Crew, Server};

impl Server {
    /// Answers requests by tasks on `runtime`, at most `running_max` at once, until it is stopped.
    /// It blocks the thread that it is called on, which drives the socket and must not be one of the
    /// runtime's.
    ///
    /// `handler` makes a request's future, on a thread of the runtime, which it must not block. When the request is cancelled, or its
    /// deadline passes, the future is dropped at its next await; one that waits for its turn is never
    /// made. The bound counts futures, also those that have answered and go on. What a stop finds
    /// unanswered at its limit is cancelled likewise.
    ///
    /// ```
    /// use tailcut::{AsyncClient, Server};
    ///
    /// # fn main() -> Result<(), tailcut::Error> {
    /// let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    /// let mut server = Server::bind("127.0.0.1:0")?;
    /// let (address, handle) = (server.local_address(), server.stop_handle());
    /// let tasks = runtime.handle().clone();
    /// let serving = std::thread::spawn(move || {
    ///     server.run_async(&tasks, 1000, |mut request| async move {
    ///         let word = String::from_utf8_lossy(&request.take_bytes()).into_owned();
    ///         tokio::task::yield_now().await;
    ///         match word.as_str() {
    ///             "no" => request.reject(1, "no is not a word"),
    ///             word => request.reply(word.to_uppercase().as_bytes()),
    ///         }
    ///     })
    /// });
    /// let client = AsyncClient::connect(address)?;
    /// runtime.block_on(async {
    ///     assert_eq!(client.call("yes").await?, b"YES");
    ///     assert!(client.call("no").await.is_err_and(|error| error.is_refused()));
    ///     Ok::<_, tailcut::Error>(())
    /// })?;
    /// handle.stop();
    /// serving.join().expect("the server does not panic")
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the socket has become useless.
    pub fn run_async<F, R>(
        &mut self,
        runtime: &Handle,
        running_max: u32,
        handler: F,
    ) -> Result<(), Error>
    where
        F: Fn(Responder) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let bound = NonZeroU32::new(running_max).unwrap_or(NonZeroU32::MIN);
        self.set_workers(bound.get() as usize);
        let mut scheduler = Scheduler::new(Box::new(Jbsq::new(bound)), QUEUE_LEN_MAX)
            .with_overload(OverloadConfig { seed: entropy::seed()?, ..OverloadConfig::DEFAULT });
        scheduler.add_worker();
        let shared = Shared { handler, outbox: self.outbox().clone(), idle: Mutex::default() };
        self.run_crew(Tasks {
            scheduler,
            lanes: Vec::new(),
            idle: Vec::new(),
            ended: Vec::new(),
            shared: Arc::new(shared),
            runtime: runtime.clone(),
        })
    }
}

/// The server's side of its lanes.
struct Tasks<F> {
    /// The queue before the lanes, which are one worker with as many places.
    scheduler: Scheduler<Job, Jbsq>,
    lanes: Vec<Arc<Lane>>,
    /// Lanes that wait, by their place in `lanes`.
    idle: Vec<usize>,
    /// Lanes that have come back and are being looked at; empty between turns.
    ended: Vec<usize>,
    shared: Arc<Shared<F>>,
    runtime: Handle,
}

/// What all lanes share.
struct Shared<F> {
    handler: F,
    outbox: Arc<Outbox>,
    /// Lanes that wait again and have not been looked at.
    idle: Mutex<Vec<usize>>,
}

/// Where a lane gets its requests.
#[derive(Debug, Default)]
struct Lane(Mutex<Slot>);

#[derive(Debug, Default)]
struct Slot {
    request: Option<Responder>,
    /// The lane's task, while it waits.
    task: Option<Waker>,
    is_closed: bool,
}

impl<F, R> Crew for Tasks<F>
where
    F: Fn(Responder) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    fn offer(&mut self, job: Job, wait: Wait) -> Result<Option<Ticket>, Job> {
        match self.scheduler.offer(job, Cloning::Forbidden, wait, 0) {
            Outcome::Placed(_, job) => {
                self.begin(job);
                Ok(None)
            }
            Outcome::Held(ticket) => Ok(Some(ticket)),
            Outcome::Full(job) => Err(job),
        }
    }

    fn retry_after_ns(&self) -> u64 {
        self.scheduler.retry_after_ns()
    }

    fn withdraw(&mut self, ticket: Ticket) -> Option<Job> {
        self.scheduler.remove(ticket)
    }

    fn poll_done(&mut self, now: Time, mut done: impl FnMut(Job)) {
        std::mem::swap(&mut self.ended, &mut lock(&self.shared.idle));
        for lane in self.ended.drain(..) {
            self.scheduler.conclude(WorkerId::at(0));
            self.idle.push(lane);
        }
        while let Some(job) = self.scheduler.poll_expired(now) {
            done(job);
        }
        while let Some((_, job)) = self.scheduler.poll_placed(now, 0) {
            self.begin(job);
        }
    }

    fn next_look(&self) -> Option<Time> {
        self.scheduler.next_expiry()
    }
}

impl<F, R> Tasks<F>
where
    F: Fn(Responder) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    fn begin(&mut self, job: Job) {
        let place = self.idle.pop().unwrap_or_else(|| {
            let (lane, place) = (Arc::new(Lane::default()), self.lanes.len());
            self.lanes.push(lane.clone());
            self.runtime.spawn(work(lane, place, self.shared.clone()));
            place
        });
        let mut slot = lock(&self.lanes[place].0);
        slot.request = Some(Responder::new(job, self.shared.outbox.clone()));
        let task = slot.task.take();
        drop(slot);
        task.into_iter().for_each(Waker::wake);
    }
}

impl<F> Drop for Tasks<F> {
    fn drop(&mut self) {
        for lane in &self.lanes {
            let mut slot = lock(&lane.0);
            slot.is_closed = true;
            let task = slot.task.take();
            drop(slot);
            task.into_iter().for_each(Waker::wake);
        }
    }
}

impl Lane {
    /// The next request; `None` when there will be none.
    fn poll_request(&self, context: &Context<'_>) -> Poll<Option<Responder>> {
        let mut slot = lock(&self.0);
        if let Some(request) = slot.request.take() {
            return Poll::Ready(Some(request));
        }
        if slot.is_closed {
            return Poll::Ready(None);
        }
        slot.task = Some(context.waker().clone());
        Poll::Pending
    }
}

/// A lane's task.
async fn work<F, R>(lane: Arc<Lane>, place: usize, shared: Arc<Shared<F>>)
where
    F: Fn(Responder) -> R,
    R: Future<Output = ()>,
{
    while let Some(request) = poll_fn(|context| lane.poll_request(context)).await {
        run_one(request, &shared).await;
        lock(&shared.idle).push(place);
        shared.outbox.wake();
    }
}

/// Runs a request's future until it is done, panics or is not wanted any more.
async fn run_one<F, R>(request: Responder, shared: &Shared<F>)
where
    F: Fn(Responder) -> R,
    R: Future<Output = ()>,
{
    let Some(link) = request.link().filter(|link| !link.is_cancelled()) else {
        return;
    };
    let outbox = &shared.outbox;
    let mut future = pin!(outbox.guard(|| (shared.handler)(request)));
    poll_fn(|context| {
        link.watch(context.waker());
        if link.is_cancelled() {
            return Poll::Ready(());
        }
        let Some(running) = future.as_mut().as_pin_mut() else {
            return Poll::Ready(());
        };
        outbox.guard(|| running.poll(context)).unwrap_or(Poll::Ready(()))
    })
    .await;
    // Here, since what it holds may panic where it is dropped.
    outbox.guard(|| future.set(None));
}

/// Requests that wait for a lane.
const QUEUE_LEN_MAX: usize = 65_536;
