//! The server: one port, a handler on the I/O thread, on worker threads or in tasks.

use std::net::{SocketAddr, ToSocketAddrs};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tailcut_net::completions::Parcel;
use tailcut_net::datapath::Datapath;
use tailcut_net::dispatch::Metrics as DispatchMetrics;
use tailcut_net::driver::{Driver, Turn, Waker};
use tailcut_net::log::{self, DriverLog};
use tailcut_proto::address::share_of;
use tailcut_proto::endpoint::{Endpoint, Metrics};
use tailcut_proto::node::Time;
use tailcut_proto::rpc::{DropReason, Event, RequestId, Rpc};
use tailcut_proto::scheduler::typed::TypeId;
use tailcut_proto::scheduler::{Ticket, Wait};

use crate::backlog::Backlog;
use crate::crew::Crew;
use crate::error::Error;
use crate::lock;
use crate::options::{ServerBuilder, resolve};
use crate::request::{Job, Live, Outbox, Request, Verdict};

/// A server on one port.
///
/// A handler that panics ends its own request alone, which is refused with
/// [`DropReason::Panicked`]: the panic is counted and logged, and the server goes on. Dropping the
/// server closes its port at once; [`ServerHandle::stop`] lets what runs be answered first.
#[derive(Debug)]
pub struct Server {
    driver: Driver<Endpoint>,
    /// Order to go on or to stop.
    order: Arc<AtomicU64>,
    live: Live,
    outbox: Arc<Outbox>,
    /// Requests that wait for a handler on the server's own thread.
    backlog: Backlog,
    /// Time at which it began to stop.
    stopping_since: Option<Time>,
    /// Time at which it last had something to do while it stopped.
    busy_at: Time,
    log: DriverLog,
    /// Counters of its workers, for its handles.
    crew_metrics: Arc<Mutex<Option<DispatchMetrics>>>,
    /// Time at which those were last brought up to date.
    crew_read_at: Time,
    /// Tells types of requests apart.
    classifier: Classifier,
}

/// The types of a server's requests.
struct Classifier {
    /// Number of types.
    types: usize,
    /// The type of a request with these bytes; `None` where there is one type.
    of: Option<Box<Classify>>,
}

/// A function that says a request's type.
type Classify = dyn Fn(&[u8]) -> u8 + Send;

impl Classifier {
    /// The type of a request; where the function panics, the last one.
    #[inline]
    fn kind(&self, request: &[u8]) -> TypeId {
        let Some(of) = &self.of else { return TypeId(0) };
        let of = AssertUnwindSafe(|| of(request));
        TypeId(panic::catch_unwind(of).unwrap_or(u8::MAX))
    }

    /// Gives a crew what an endpoint tells.
    fn offer<C: Crew>(
        &self,
        event: Event,
        crew: &mut C,
        endpoint: &mut Endpoint,
        (now, live): (Time, &mut Live),
    ) {
        match event {
            Event::Request { id, client, payload, deadline, options } => {
                let kind = self.kind(&payload);
                let mut job = Job::new(id, client, deadline, options, payload);
                job.identity = endpoint.client_of(id);
                if C::IS_ELSEWHERE {
                    job.reply = endpoint.buffer();
                }
                job.link = Some(live.enlist(id));
                let wait = Wait::of(share_of(client.ip()), now, deadline).of_type(kind);
                match crew.offer(live.wrap(job), wait) {
                    Ok(ticket) => {
                        ticket.into_iter().for_each(|ticket| live.note_ticket(id, ticket))
                    }
                    Err(job) => refuse(endpoint, now, live, job),
                }
            }
            Event::Cancelled { id } => {
                if let Some(job) = live.cancel(id).and_then(|ticket| crew.withdraw(ticket)) {
                    // It has no verdict: nobody hears of it.
                    let _ = live.settle(endpoint, now, job);
                }
            }
            Event::Replied { .. } | Event::Failed { .. } => {}
        }
    }
}

impl std::fmt::Debug for Classifier {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Classifier").field("types", &self.types).finish_non_exhaustive()
    }
}

/// Stops a server from another thread, and tells of it.
#[derive(Clone, Debug)]
pub struct ServerHandle {
    order: Arc<AtomicU64>,
    outbox: Arc<Outbox>,
    waker: Waker,
    crew_metrics: Arc<Mutex<Option<DispatchMetrics>>>,
}

/// Time at which a server looks again though nothing happens.
enum Look {
    /// By then, where there is such a time.
    By(Option<Time>),
    /// It ends.
    Never,
}

/// Next step after a turn before a crew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterTurn {
    /// Another.
    GoOn,
    /// Another, after what may have been a sleep.
    Slept,
    /// Nothing: it is time to end.
    End,
}

impl ServerBuilder {
    /// A server at `address`; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] when the name does not resolve or the port is taken or not to be had, of
    /// kind PermissionDenied where Homa directly over IP lacks CAP_NET_RAW; [`Error::NoAddress`]
    /// when a name stands for no address.
    pub fn bind(&self, address: impl ToSocketAddrs + std::fmt::Debug) -> Result<Server, Error> {
        Ok(Server::new(self.setup.open(resolve(address)?)?))
    }

    /// `count` servers that share one port, one for each thread that will run it. All calls of a
    /// client's session reach the same one; a client draws a new session now and then; over Homa
    /// all calls of a client do. Not for servers behind a router, which would have to count what
    /// all threads have as one: they report to none. Give each of these a port of its own.
    ///
    /// Stop them together, and drop none before all have returned from their `run`: a socket that
    /// closes hands its sessions to another, which does not know them.
    ///
    /// # Errors
    ///
    /// As [`ServerBuilder::bind`]; of kind Unsupported for Homa directly over IP.
    pub fn bind_group(
        &self,
        address: impl ToSocketAddrs + std::fmt::Debug,
        count: usize,
    ) -> Result<Vec<Server>, Error> {
        let drivers = self.setup.open_group(resolve(address)?, count)?;
        Ok(drivers.into_iter().map(Server::new).collect())
    }
}

impl Server {
    /// A server at `address` with the defaults of [`ServerBuilder`]; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// As [`ServerBuilder::bind`].
    pub fn bind(address: impl ToSocketAddrs + std::fmt::Debug) -> Result<Self, Error> {
        ServerBuilder::new().bind(address)
    }

    pub(crate) fn new(driver: Driver<Endpoint>) -> Self {
        let live = Live::new(driver.waker());
        let (order, outbox) = (Arc::new(AtomicU64::new(GO_ON)), live.outbox.clone());
        let (stopping_since, busy_at, log) = (None, 0, DriverLog::default());
        let (crew_metrics, crew_read_at) = (Arc::default(), 0);
        Self {
            driver,
            order,
            live,
            outbox,
            backlog: Backlog::new(),
            stopping_since,
            busy_at,
            log,
            crew_metrics,
            crew_read_at,
            classifier: Classifier { types: 1, of: None },
        }
    }

    /// Tells `types` types of requests apart, up to 16, by a function of their bytes that says 0 to
    /// `types - 1`: where [`Server::run_workers`] serves them, or `run_async`, each type has a
    /// queue of its own, and workers are reserved for the short ones, so that these never wait for
    /// long ones that have all workers (DARC). Which are short is measured. A request that the
    /// function panics at is of the last type.
    ///
    /// ```
    /// # fn main() -> Result<(), tailcut::Error> {
    /// let mut server = tailcut::Server::bind("127.0.0.1:0")?;
    /// server.classify(2, |request| u8::from(request.starts_with(b"SCAN")));
    /// # Ok(()) }
    /// ```
    pub fn classify(&mut self, types: usize, of: impl Fn(&[u8]) -> u8 + Send + 'static) {
        self.classifier = Classifier { types, of: Some(Box::new(of)) };
    }

    /// The server's address.
    pub fn local_address(&self) -> SocketAddr {
        self.driver.port(0).local_address()
    }

    /// Stops the server from another thread, whichever of its methods runs.
    pub fn stop_handle(&self) -> ServerHandle {
        ServerHandle {
            order: self.order.clone(),
            outbox: self.outbox.clone(),
            waker: self.driver.waker(),
            crew_metrics: self.crew_metrics.clone(),
        }
    }

    /// Counters since the start. Handlers that panicked are counted among its drops, where the
    /// request was not answered before, and by [`ServerHandle::panics`].
    pub fn metrics(&self) -> Metrics {
        self.driver.node(0).metrics()
    }

    /// Answers requests on this thread until it is stopped. While the handler runs, nothing else is
    /// received or sent: let it take microseconds, keep the request by [`Request::defer`], or use
    /// [`Server::run_workers`].
    ///
    /// ```
    /// use tailcut::{Client, Server};
    ///
    /// # fn main() -> Result<(), tailcut::Error> {
    /// let mut server = Server::bind("127.0.0.1:0")?;
    /// let (address, handle) = (server.local_address(), server.stop_handle());
    /// let serving = std::thread::spawn(move || {
    ///     server.run(|request| {
    ///         // Answered from another thread; the server meanwhile goes on.
    ///         let responder = request.defer();
    ///         std::thread::spawn(move || responder.reply_in_place(|bytes| bytes.reverse()));
    ///     })
    /// });
    /// assert_eq!(&Client::connect(address)?.call(b"stressed")?[..], b"desserts");
    /// handle.stop();
    /// serving.join().expect("the server does not panic")
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the socket has become useless.
    pub fn run(&mut self, handler: impl FnMut(Request<'_>)) -> Result<(), Error> {
        self.run_beside(handler, |_| None)
    }

    /// As [`Server::run`], and calls `look` each time that `every` has passed, between requests:
    /// for a program that has to look at something else now and then, such as signals, and that
    /// stops by a [`ServerHandle`] for what it sees.
    ///
    /// # Errors
    ///
    /// As [`Server::run`].
    pub fn run_looking(
        &mut self,
        handler: impl FnMut(Request<'_>),
        every: Duration,
        mut look: impl FnMut(),
    ) -> Result<(), Error> {
        let every_ns = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX);
        let mut look_at = None;
        self.run_beside(handler, |now| {
            let at = look_at.get_or_insert(now.saturating_add(every_ns));
            if now >= *at {
                look();
                *at = now.saturating_add(every_ns);
            }
            Some(*at)
        })
    }

    /// `beside` is given the time of each turn, and returns when it wants the next one at the
    /// latest.
    fn run_beside(
        &mut self,
        mut handler: impl FnMut(Request<'_>),
        mut beside: impl FnMut(Time) -> Option<Time>,
    ) -> Result<(), Error> {
        loop {
            let turn = self.turn_once(&mut handler)?;
            let next = beside(turn.now);
            match self.next_look(turn) {
                Look::Never => break,
                Look::By(_) if self.backlog.has_some() => {}
                Look::By(until) if !self.holds_answers() => {
                    self.driver.wait(None, until.into_iter().chain(next).min())?;
                }
                Look::By(_) => {}
            }
        }
        let mut backlog = std::mem::replace(&mut self.backlog, Backlog::new());
        self.give_up(|ticket| backlog.withdraw(ticket));
        Ok(())
    }

    /// Receives one burst, runs handlers for 100 us at most, the last of them to its end, and sends
    /// the replies; never waits. What has not run or left waits for the next turn
    /// ([`Server::has_waiting`]). For a program with a loop of its own, which ends when that does:
    /// [`ServerHandle::stop`] changes nothing here.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the socket has become useless.
    pub fn turn(&mut self, handler: &mut impl FnMut(Request<'_>)) -> Result<(), Error> {
        let turn = self.turn_once(handler)?;
        self.look(turn);
        Ok(())
    }

    /// True if requests wait for the next [`Server::turn`], or answers from elsewhere, which leave
    /// together. A program that sleeps now keeps them waiting.
    pub fn has_waiting(&self) -> bool {
        self.backlog.has_some() || self.live.holds_answers()
    }

    /// Outbox of answers from elsewhere.
    pub(crate) fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    /// Wakes the server's thread.
    pub(crate) fn waker(&self) -> Waker {
        self.driver.waker()
    }

    /// Types of requests that are told apart, where they are.
    pub(crate) fn told_types(&self) -> Option<usize> {
        self.classifier.of.as_ref().map(|_| self.classifier.types)
    }

    /// Types of requests that are told apart.
    pub(crate) fn types(&self) -> usize {
        self.classifier.types
    }

    /// Says how many requests are served at once, so that replies tell how many wait.
    pub(crate) fn set_workers(&mut self, count: usize) {
        self.driver.node_mut(0).set_workers(count);
    }

    /// Answers requests by whoever `crew` is, until it is stopped.
    pub(crate) fn run_crew(&mut self, crew: impl Crew) -> Result<(), Error> {
        let result = self.serve_by(crew);
        if result.is_err() {
            self.abandon_crew();
        }
        result
    }

    fn serve_by(&mut self, mut crew: impl Crew) -> Result<(), Error> {
        loop {
            let turn = self.crew_turn(&mut crew)?;
            if self.crew_wait(turn, &mut crew)? == AfterTurn::End {
                break;
            }
        }
        self.end_crew(&mut crew);
        Ok(())
    }

    /// One turn before a crew.
    #[inline]
    pub(crate) fn crew_turn(&mut self, crew: &mut impl Crew) -> Result<Turn, Error> {
        let (live, classifier) = (&mut self.live, &self.classifier);
        let turn = self.driver.turn_with(|_, endpoint, now| {
            endpoint.set_retry_after(crew.retry_after_ns());
            crew.poll_done(now, |mut job| {
                // Nobody has begun it: it has waited for too long.
                if job.verdict == Verdict::Open {
                    job.verdict = Verdict::Refuse(DropReason::Overload);
                }
                live.hold(job);
            });
            live.take_answers(endpoint, now);
            while let Some(event) = endpoint.poll_event() {
                classifier.offer(event, crew, endpoint, (now, live));
            }
            crew.flush();
        })?;
        Ok(turn)
    }

    /// Passes the time after a turn until there is something to do.
    #[inline]
    pub(crate) fn crew_wait(
        &mut self,
        turn: Turn,
        crew: &mut impl Crew,
    ) -> Result<AfterTurn, Error> {
        let Look::By(until) = self.next_look(turn) else { return Ok(AfterTurn::End) };
        let is_sleeping = !self.holds_answers() && !self.driver.keeps_turning();
        if is_sleeping || turn.now >= self.crew_read_at.saturating_add(CREW_READ_EVERY_NS) {
            self.crew_read_at = turn.now;
            *lock(&self.crew_metrics) = crew.metrics();
        }
        if !is_sleeping {
            return Ok(AfterTurn::GoOn);
        }
        if crew.fall_asleep() {
            self.driver.wait(None, until.into_iter().chain(crew.next_look()).min())?;
        }
        crew.get_up();
        Ok(AfterTurn::Slept)
    }

    /// Ends what a crew and its clients still have.
    pub(crate) fn end_crew(&mut self, crew: &mut impl Crew) {
        self.give_up(|ticket| crew.withdraw(ticket));
        *lock(&self.crew_metrics) = crew.metrics();
    }

    /// Nobody is left to answer, and who runs shall not go on for ever.
    pub(crate) fn abandon_crew(&mut self) {
        self.live.cancel_all();
    }

    /// Gives the answer of a job that this thread has run itself; it leaves by
    /// [`Server::flush_run`].
    #[inline]
    pub(crate) fn settle_run(&mut self, now: Time, job: Parcel<Job>) {
        // A request that is gone by now needs no answer.
        let _ = self.live.settle(self.driver.node_mut(0), now, job);
    }

    /// Sends those answers.
    #[inline]
    pub(crate) fn flush_run(&mut self, now: Time) {
        self.driver.flush(now);
    }

    /// Refuses what neither workers nor a queue have room for.
    pub(crate) fn refuse_run(&mut self, now: Time, job: Parcel<Job>) {
        refuse(self.driver.node_mut(0), now, &mut self.live, job);
    }

    /// A request has a place in the queue, to be cancelled by.
    pub(crate) fn note_ticket(&mut self, id: RequestId, ticket: Ticket) {
        self.live.note_ticket(id, ticket);
    }

    /// True if the thread must not sleep, because it holds answers that others may join: these have
    /// its core meanwhile, if they want it.
    fn holds_answers(&mut self) -> bool {
        let is_holding = self.live.holds_answers();
        if is_holding {
            self.driver.give_way();
        }
        is_holding
    }

    /// Logs what has gone wrong; returns when it wants to look again.
    fn look(&mut self, turn: Turn) -> Option<Time> {
        self.log.look(&self.driver, turn, |_, node| log::of_endpoint(&node.metrics()))
    }

    fn turn_once(&mut self, handler: &mut impl FnMut(Request<'_>)) -> Result<Turn, Error> {
        let Self { driver, live, outbox, backlog, classifier, .. } = self;
        let mut run = |task: Parcel<Job>, endpoint: &mut Endpoint, now, live: &mut Live| {
            let mut task = Some(task);
            outbox.guard(|| handler(Request::here(&mut task, endpoint, now, live)));
        };
        let turn = driver.turn_with(|_, endpoint, now| {
            live.take_answers(endpoint, now);
            endpoint.set_retry_after(backlog.retry_after_ns());
            backlog.begin_turn(now);
            backlog.poll_done(now, |job| refuse(endpoint, now, live, job));
            while let Some(event) = endpoint.poll_event() {
                match event {
                    Event::Request { id, client, payload, deadline, options }
                        if backlog.may_run() =>
                    {
                        let mut job = Job::new(id, client, deadline, options, payload);
                        job.identity = endpoint.client_of(id);
                        run(live.wrap(job), endpoint, now, live);
                    }
                    event => classifier.offer(event, backlog, endpoint, (now, live)),
                }
            }
            // Behind what has been cancelled meanwhile.
            while let Some(job) = backlog.poll_next() {
                run(job, endpoint, now, live);
            }
        })?;
        Ok(turn)
    }

    /// Latest time of the next look, or that it is time to end.
    fn next_look(&mut self, turn: Turn) -> Look {
        let look_at = self.look(turn);
        let order = self.order.load(Ordering::Relaxed);
        if order == GO_ON {
            return Look::By(look_at);
        }
        // The handlers of the turn may have taken long.
        let now = self.driver.clock().now();
        let since = self.stopping_since.unwrap_or(now);
        let until = since.saturating_add(order);
        if self.stopping_since.replace(since).is_none() {
            self.driver.node_mut(0).stop(now);
            self.driver.flush(now);
        }
        let endpoint = self.driver.node(0);
        let holdings = endpoint.holdings();
        let is_idle =
            holdings.waiting == 0 && holdings.partials == 0 && endpoint.replies_under_way() == 0;
        if !is_idle || self.live.has_answered() {
            self.busy_at = now;
        }
        // Whose reply was lost asks again soon, and routers may have placed what they had not heard
        // the stop of.
        let linger_until = since.max(self.busy_at).saturating_add(LINGER_NS);
        if now >= until || is_idle && now >= linger_until {
            return Look::Never;
        }
        let ends_at = if is_idle { linger_until.min(until) } else { until };
        Look::By(Some(look_at.map_or(ends_at, |at| at.min(ends_at))))
    }

    /// Sends the answers that there are, and ends the rest, so that no client waits for its
    /// deadline: what has not begun is for another server, of the rest nobody will know.
    fn give_up(&mut self, mut withdraw: impl FnMut(Ticket) -> Option<Parcel<Job>>) {
        let now = self.driver.clock().now();
        self.live.give_answers(self.driver.node_mut(0), now);
        for (count, (id, ticket)) in self.live.unanswered().into_iter().enumerate() {
            let is_unbegun = ticket.and_then(&mut withdraw).is_some();
            let reason = if is_unbegun { DropReason::Stopping } else { DropReason::Uncertain };
            self.live.cancel(id);
            // Gone already is as good as refused.
            let _ = self.driver.node_mut(0).refuse(now, id, reason);
            // An endpoint queues a bounded number of refusals.
            if count % REFUSALS_A_FLUSH == REFUSALS_A_FLUSH - 1 {
                self.driver.flush_all(now);
            }
        }
        self.driver.flush_all(now);
    }
}

/// Refuses what would wait, or has waited, for too long.
fn refuse(endpoint: &mut Endpoint, now: Time, live: &mut Live, mut job: Parcel<Job>) {
    job.verdict = Verdict::Refuse(DropReason::Overload);
    // Gone already is as good as refused.
    let _ = live.settle(endpoint, now, job);
}

impl ServerHandle {
    /// Stops the server, within 5 s; see [`ServerHandle::stop_within`].
    pub fn stop(&self) {
        self.stop_within(STOP_LIMIT);
    }

    /// Stops the server: it takes no new requests, answers those that it has, and then its `run`
    /// returns; after `limit` in any case. New requests are refused with [`DropReason::Stopping`],
    /// and routers place nothing on it any more. What is not answered at the limit is refused: with
    /// `Stopping` what has not begun, with [`DropReason::Uncertain`] what may have. A second stop
    /// may shorten the limit, which counts from the first.
    ///
    /// It ends 50 ms after the last answer at the earliest, for whoever lost that and asks again. A
    /// handler that is running is waited for, whatever the limit: it can ask
    /// [`Request::is_cancelled`].
    pub fn stop_within(&self, limit: Duration) {
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).min(GO_ON - 1);
        self.order.fetch_min(limit_ns, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Handlers that panicked since the start.
    pub fn panics(&self) -> u64 {
        self.outbox.panics()
    }

    /// Counters and measurements of the dispatcher of [`Server::run_workers`], as of a millisecond
    /// ago or of when it last slept; `None` where none has run.
    pub fn dispatch_metrics(&self) -> Option<DispatchMetrics> {
        *lock(&self.crew_metrics)
    }
}

/// Greatest age of what handles tell of the workers while the server is at work.
const CREW_READ_EVERY_NS: u64 = 1_000_000;

/// The order of a server that is not to stop; any other is the limit in nanoseconds.
const GO_ON: u64 = u64::MAX;

/// Longest time that a server may take to stop where nobody says.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Time that a server that stops stays after its last answer, for whoever lost it and asks again,
/// and for what routers placed before they heard of the stop.
const LINGER_NS: u64 = 50_000_000;

/// Refusals that are sent together when a server gives up.
const REFUSALS_A_FLUSH: usize = 1024;
