//! Handlers that are tasks: a bounded number of lanes, each a task that runs one request's future
//! after the other, of those that all lanes share.
//!
//! | a lane | until |
//! |---|---|
//! | waits | it is woken for a request, or the server ends |
//! | wakes another, where more requests wait and none is on its way | - |
//! | runs a handler's future | that is done or panics, or its request is cancelled: it is dropped |
//!
//! So a burst costs the server's thread one wake-up, and short handlers run one after the other on
//! as many threads as the runtime has to spare. A lane is spawned when all others are at work, so that
//! there are never more than were needed at once; a future lives in its lane, so that a warm one
//! allocates nothing.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tailcut_net::completions::Parcel;
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
        let shared = Shared {
            handler,
            outbox: self.outbox().clone(),
            ready: Mutex::new(Ready { lanes_left: bound.get(), ..Ready::default() }),
            ended: AtomicU32::new(0),
            is_awaited: AtomicBool::new(false),
            runtime: runtime.clone(),
        };
        self.run_crew(Tasks { scheduler, begun: VecDeque::new(), shared: Arc::new(shared) })
    }
}

/// The server's side of its lanes.
struct Tasks<F> {
    /// The queue before the lanes, which are one worker with as many places.
    scheduler: Scheduler<Parcel<Job>, Jbsq>,
    /// Requests that go to the lanes at the end of the turn.
    begun: VecDeque<Responder>,
    shared: Arc<Shared<F>>,
}

/// What all lanes share.
struct Shared<F> {
    handler: F,
    outbox: Arc<Outbox>,
    ready: Mutex<Ready>,
    /// Futures that have ended and have not been looked at.
    ended: AtomicU32,
    /// The server's thread sleeps, and has something to do once a future ends.
    is_awaited: AtomicBool,
    runtime: Handle,
}

/// Where lanes get their requests.
#[derive(Debug, Default)]
struct Ready {
    requests: VecDeque<Responder>,
    /// Lanes that wait.
    idle: Vec<(LaneId, Waker)>,
    /// The lane that has been woken, or spawned, and has not come yet.
    coming: Option<LaneId>,
    /// Lanes that have been spawned.
    lanes: u32,
    /// Lanes that may still be.
    lanes_left: u32,
    is_closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LaneId(u32);

/// Who is to come for the next request.
enum Summons {
    /// Nobody: none waits, or one is coming, or all are at work.
    Nobody,
    /// One that waits.
    Idle(Waker),
    /// A new one.
    New(LaneId),
}

impl<F, R> Crew for Tasks<F>
where
    F: Fn(Responder) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    fn offer(&mut self, job: Parcel<Job>, wait: Wait) -> Result<Option<Ticket>, Parcel<Job>> {
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

    fn withdraw(&mut self, ticket: Ticket) -> Option<Parcel<Job>> {
        self.scheduler.remove(ticket)
    }

    fn poll_done(&mut self, now: Time, mut done: impl FnMut(Parcel<Job>)) {
        if self.shared.ended.load(Ordering::Relaxed) > 0 {
            for _ in 0..self.shared.ended.swap(0, Ordering::Relaxed) {
                self.scheduler.conclude(WorkerId::at(0));
            }
        }
        if self.scheduler.queue_len() > 0 {
            while let Some(job) = self.scheduler.poll_expired(now) {
                done(job);
            }
            while let Some((_, job)) = self.scheduler.poll_placed(now, 0) {
                self.begin(job);
            }
        }
    }

    fn flush(&mut self) {
        if self.begun.is_empty() {
            return;
        }
        let mut ready = lock(&self.shared.ready);
        ready.requests.append(&mut self.begun);
        let summons = ready.summon();
        drop(ready);
        summon(&self.shared, summons);
    }

    fn fall_asleep(&mut self) -> bool {
        if self.scheduler.queue_len() == 0 {
            return true;
        }
        // Each side writes first and then looks: this one the flag, a lane its end.
        self.shared.is_awaited.store(true, Ordering::SeqCst);
        self.shared.ended.load(Ordering::SeqCst) == 0
    }

    fn get_up(&mut self) {
        self.shared.is_awaited.store(false, Ordering::Relaxed);
    }

    fn next_look(&self) -> Option<Time> {
        self.scheduler.next_expiry()
    }
}

impl<F> Tasks<F> {
    fn begin(&mut self, job: Parcel<Job>) {
        self.begun.push_back(Responder::new(job));
    }
}

impl<F> Drop for Tasks<F> {
    fn drop(&mut self) {
        let mut ready = lock(&self.shared.ready);
        ready.is_closed = true;
        let idle = std::mem::take(&mut ready.idle);
        drop(ready);
        idle.into_iter().for_each(|(_, task)| task.wake());
    }
}

impl Ready {
    /// Takes note of whom to call for the next request.
    fn summon(&mut self) -> Summons {
        if self.requests.is_empty() || self.coming.is_some() {
            return Summons::Nobody;
        }
        if let Some((lane, task)) = self.idle.pop() {
            self.coming = Some(lane);
            return Summons::Idle(task);
        }
        if self.lanes_left == 0 {
            return Summons::Nobody;
        }
        let lane = LaneId(self.lanes);
        self.lanes += 1;
        self.lanes_left -= 1;
        self.coming = Some(lane);
        Summons::New(lane)
    }

    /// A lane has nothing to do: its next request, and who is to come for the one after it; `None`
    /// when there will be none. `is_idle` says whether it waits.
    fn poll_request(
        &mut self,
        lane: LaneId,
        is_idle: &mut bool,
        context: &Context<'_>,
    ) -> Poll<Option<(Responder, Summons)>> {
        if self.coming == Some(lane) {
            self.coming = None;
            *is_idle = false;
        }
        if let Some(request) = self.requests.pop_front() {
            if std::mem::take(is_idle) {
                // Woken for a request of its own that is over.
                self.idle.retain(|(known, _)| *known != lane);
            }
            return Poll::Ready(Some((request, self.summon())));
        }
        if self.is_closed {
            return Poll::Ready(None);
        }
        if !std::mem::replace(is_idle, true) {
            self.idle.push((lane, context.waker().clone()));
        }
        Poll::Pending
    }
}

fn summon<F, R>(shared: &Arc<Shared<F>>, summons: Summons)
where
    F: Fn(Responder) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    match summons {
        Summons::Nobody => {}
        Summons::Idle(task) => task.wake(),
        Summons::New(lane) => drop(shared.runtime.spawn(work(lane, shared.clone()))),
    }
}

/// A lane's task.
async fn work<F, R>(lane: LaneId, shared: Arc<Shared<F>>)
where
    F: Fn(Responder) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let mut is_idle = false;
    let mut next =
        |context: &mut Context<'_>| lock(&shared.ready).poll_request(lane, &mut is_idle, context);
    while let Some((request, summons)) = poll_fn(&mut next).await {
        summon(&shared, summons);
        run_one(request, &shared).await;
        shared.ended.fetch_add(1, Ordering::SeqCst);
        if shared.is_awaited.load(Ordering::SeqCst) {
            shared.outbox.wake();
        }
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
