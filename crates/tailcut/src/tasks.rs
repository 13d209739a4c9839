//! Handlers that are tasks: a bounded number of lanes, each a task that runs one request's future
//! after the other, of those that all lanes share.
//!
//! | a lane | until |
//! |---|---|
//! | waits | it is woken for a request, or the server ends |
//! | wakes another, where more requests wait and none is on its way | - |
//! | runs a handler's future | that is done or panics, or its request is cancelled: it is dropped |
//! | lets the runtime's other tasks go first, after so many requests in a row | they have |
//! | is dropped by its runtime, which is shut down | what nobody has begun is refused |
//!
//! So a burst costs the server's thread one wake-up, and short handlers run one after the other on
//! as many threads as the runtime has to spare. A lane is spawned when all others are at work, so
//! that there are never more than were needed at once; a future lives in its lane, so that a warm
//! one allocates nothing.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tailcut_net::clock::Clock;
use tailcut_net::completions::Parcel;
use tailcut_net::dispatch::{self, QUEUE_LEN_MAX};
use tailcut_net::entropy;
use tailcut_proto::node::Time;
use tailcut_proto::policy::{Jbsq, WorkerId};
use tailcut_proto::rpc::DropReason;
use tailcut_proto::scheduler::overload::OverloadConfig;
use tailcut_proto::scheduler::typed::TypeId;
use tailcut_proto::scheduler::{Cloning, Outcome, Scheduler, Ticket, Wait};
use tokio::runtime::Handle;

use crate::crew::Crew;
use crate::error::Error;
use crate::lock;
use crate::request::{Job, Outbox, Responder};
use crate::server::Server;

impl Server {
    /// Answers requests by tasks on `runtime`, at most `running_max` at once, until it is stopped.
    /// It blocks the thread that it is called on, which drives the socket and must not be one of
    /// the runtime's.
    ///
    /// `handler` makes a request's future, on a thread of the runtime, which it must not block.
    /// When the request is cancelled, or its deadline passes, the future is dropped at its next
    /// await; one that waits for its turn is never made. The bound counts futures, also those that
    /// have answered and go on. What a stop finds unanswered at its limit is cancelled likewise.
    /// Once the runtime is shut down, every request is refused, those that none has begun with
    /// [`DropReason::Stopping`].
    ///
    /// Where [`Server::classify`] tells types apart, each has a queue of its own, and of the
    /// `running_max` futures, then 1,024 at most, some are kept for the types that are over
    /// soonest.
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
    /// [`Error::Io`] when the socket has become useless, of kind InvalidInput for more types than
    /// there may be.
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
        let types = self.types();
        dispatch::Config { types, ..dispatch::Config::new(1) }
            .check()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let places = if types > 1 { running_max.min(TYPED_PLACES_MAX) } else { running_max };
        let places = NonZeroU32::new(places).unwrap_or(NonZeroU32::MIN);
        self.set_workers(places.get() as usize);
        let overload = OverloadConfig { seed: entropy::seed_or_zero(), ..OverloadConfig::DEFAULT };
        let scheduler = scheduler(places, types).with_overload(overload);
        let shared = Shared {
            handler,
            outbox: self.outbox().clone(),
            ready: Mutex::new(Ready { lanes_left: places.get(), ..Ready::default() }),
            ended: AtomicU32::new(0),
            endings: Mutex::new(Vec::new()),
            has_types: types > 1,
            is_awaited: AtomicBool::new(false),
            runtime: runtime.clone(),
        };
        let (begun, endings) = (VecDeque::new(), Vec::new());
        self.run_crew(Tasks { scheduler, begun, endings, shared: Arc::new(shared) })
    }
}

/// A scheduler before so many places: one worker that has them all, or, so that some can be kept
/// for a type, a worker each.
fn scheduler(places: NonZeroU32, types: usize) -> Scheduler<Parcel<Job>, Jbsq> {
    let (workers, bound) = if types > 1 { (places.get(), NonZeroU32::MIN) } else { (1, places) };
    let mut scheduler = Scheduler::new(Box::new(Jbsq::new(bound)), QUEUE_LEN_MAX);
    if types > 1 {
        scheduler = scheduler.with_types(types);
    }
    (0..workers).for_each(|_| {
        scheduler.add_worker();
    });
    scheduler
}

/// The server's side of its lanes.
struct Tasks<F> {
    /// The queue before the lanes, whose places are its workers', by [`scheduler`].
    scheduler: Scheduler<Parcel<Job>, Jbsq>,
    /// Requests that go to the lanes at the end of the turn.
    begun: VecDeque<Begun>,
    /// Endings that are looked at; empty in between.
    endings: Vec<Ending>,
    shared: Arc<Shared<F>>,
}

/// State that all lanes share.
struct Shared<F> {
    handler: F,
    outbox: Arc<Outbox>,
    ready: Mutex<Ready>,
    /// Futures that have ended and have not been looked at.
    ended: AtomicU32,
    /// Endings of those: of each where there are types, and else of those whose service was
    /// measured. It is written before `ended`.
    endings: Mutex<Vec<Ending>>,
    /// Each request has a place of its own.
    has_types: bool,
    /// The server's thread sleeps, and has something to do once a future ends.
    is_awaited: AtomicBool,
    runtime: Handle,
}

/// A request that may run.
#[derive(Debug)]
struct Begun {
    request: Responder,
    place: Place,
}

/// Place of a request.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The worker of the scheduler.
    worker: WorkerId,
    kind: TypeId,
    /// Its service is to be measured.
    is_sample: bool,
}

/// A future that has ended.
#[derive(Clone, Copy, Debug)]
struct Ending {
    place: Place,
    /// Service time, where that was measured.
    service_ns: Option<u64>,
}

/// Queue from which lanes get their requests.
#[derive(Debug, Default)]
struct Ready {
    requests: VecDeque<Begun>,
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

/// A lane.
struct Lane<F> {
    id: LaneId,
    shared: Arc<Shared<F>>,
    /// It waits, and is among those that do.
    is_idle: bool,
    /// Place of its request, while one runs.
    place: Option<Place>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LaneId(u32);

/// Lane that is to come for the next request.
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
            Outcome::Placed(workers, job) => {
                self.begin(job, workers.first());
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
            self.conclude_ended();
        }
        while self.scheduler.queue_len() > 0 {
            while let Some(job) = self.scheduler.poll_expired(now) {
                done(job);
            }
            let Some((workers, job)) = self.scheduler.poll_placed(now, 0) else { break };
            self.begin(job, workers.first());
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
    fn begin(&mut self, job: Parcel<Job>, worker: WorkerId) {
        let kind = self.scheduler.placed_type();
        let place = Place { worker, kind, is_sample: self.scheduler.samples_next(kind) };
        self.begun.push_back(Begun { request: Responder::new(job), place });
    }

    /// Frees the places of what has ended, and learns how long it took.
    fn conclude_ended(&mut self) {
        let ended = self.shared.ended.swap(0, Ordering::Acquire);
        std::mem::swap(&mut self.endings, &mut *lock(&self.shared.endings));
        if !self.shared.has_types {
            (0..ended).for_each(|_| self.scheduler.conclude(WorkerId::at(0)));
        }
        for Ending { place, service_ns } in self.endings.drain(..) {
            if self.shared.has_types {
                self.scheduler.conclude(place.worker);
            }
            if let Some(service_ns) = service_ns {
                self.scheduler.note_service(place.kind, service_ns);
            }
        }
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
    ) -> Poll<Option<(Begun, Summons)>> {
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

    /// A lane is no more; what nobody has begun by now, since its runtime, if that has dropped it,
    /// drops all others.
    fn abandon(&mut self, lane: LaneId) -> VecDeque<Begun> {
        self.coming.take_if(|coming| *coming == lane);
        self.idle.retain(|(known, _)| *known != lane);
        self.lanes_left += 1;
        std::mem::take(&mut self.requests)
    }
}

impl<F> Shared<F> {
    /// A future has ended; how long it took, where that was measured.
    fn note_end(&self, place: Place, service_ns: Option<u64>) {
        if self.has_types || service_ns.is_some() {
            lock(&self.endings).push(Ending { place, service_ns });
        }
        self.ended.fetch_add(1, Ordering::SeqCst);
        if self.is_awaited.load(Ordering::SeqCst) {
            self.outbox.wake();
        }
    }
}

impl<F> Lane<F> {
    fn poll_request(&mut self, context: &Context<'_>) -> Poll<Option<(Begun, Summons)>> {
        lock(&self.shared.ready).poll_request(self.id, &mut self.is_idle, context)
    }
}

impl<F> Drop for Lane<F> {
    /// The server has ended, or the runtime is shut down, perhaps before the lane's first turn.
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.shared.note_end(place, None);
        }
        let unbegun = lock(&self.shared.ready).abandon(self.id);
        for Begun { request, place } in unbegun {
            request.refuse(DropReason::Stopping);
            self.shared.note_end(place, None);
        }
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
        Summons::New(id) => {
            let lane = Lane { id, shared: shared.clone(), is_idle: false, place: None };
            drop(shared.runtime.spawn(work(lane)));
        }
    }
}

/// A lane's task.
async fn work<F, R>(mut lane: Lane<F>)
where
    F: Fn(Responder) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let shared = lane.shared.clone();
    loop {
        for _ in 0..RUNS_IN_A_ROW_MAX {
            let next = poll_fn(|context| lane.poll_request(context)).await;
            let Some((Begun { request, place }, summons)) = next else { return };
            summon(&shared, summons);
            lane.place = Some(place);
            let began_at = place.is_sample.then(|| Clock.now());
            let is_complete = run_one(request, &shared).await;
            lane.place = None;
            // What was cancelled says nothing.
            let service_ns =
                began_at.filter(|_| is_complete).map(|at| Clock.now().saturating_sub(at));
            shared.note_end(place, service_ns);
        }
        // Handlers that await nothing would keep a thread of the runtime for as long as requests
        // come.
        tokio::task::yield_now().await;
    }
}

/// Runs a request's future until it is done, panics or is not wanted any more; false for the last.
async fn run_one<F, R>(request: Responder, shared: &Shared<F>) -> bool
where
    F: Fn(Responder) -> R,
    R: Future<Output = ()>,
{
    let Some(link) = request.link().filter(|link| !link.is_cancelled()) else {
        return false;
    };
    let outbox = &shared.outbox;
    let mut future = pin!(outbox.guard(|| (shared.handler)(request)));
    let is_complete = poll_fn(|context| {
        if link.is_cancelled() {
            return Poll::Ready(false);
        }
        let Some(running) = future.as_mut().as_pin_mut() else {
            return Poll::Ready(true);
        };
        let polled = outbox.guard(|| running.poll(context)).unwrap_or(Poll::Ready(()));
        if polled.is_pending() {
            link.watch(context.waker());
            // Cancelled before it was watched: nobody would wake this task.
            if link.is_cancelled() {
                return Poll::Ready(false);
            }
        }
        polled.map(|()| true)
    })
    .await;
    // Here, since what it holds may panic where it is dropped.
    outbox.guard(|| future.set(None));
    is_complete
}

/// Requests that a lane runs before it lets other tasks go first, where no handler has.
const RUNS_IN_A_ROW_MAX: u32 = 64;

/// Most places where there are types: a placement looks at each.
const TYPED_PLACES_MAX: u32 = 1024;
