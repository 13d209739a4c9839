//! Requests on their way to an answer: borrowed by a handler, or owned until whenever.
//!
//! | a handler of | has | its answer |
//! |---|---|---|
//! | [`Server::run`](crate::Server::run) | a [`Request`] | goes to the endpoint at once |
//! | [`Server::run_workers`](crate::Server::run_workers) | a [`Request`] | goes over the worker's ring; of one that ran in place, to the endpoint at once |
//! | either, after [`Request::defer`] | a [`Responder`] | goes through the [`Outbox`] |
//!
//! Answers from elsewhere leave together: while they keep coming, the server's thread waits for
//! more of them, a few turns at most. One datagram for each costs both ends twice what a GSO batch
//! does.
//!
//! Nothing here allocates when warm: buffers are the endpoint's, parcels go round, and so does what
//! a request shares with the thread that may cancel it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tailcut_net::clock::Clock;
use tailcut_net::completions::{Completions, Parcel};
use tailcut_net::driver::Waker;
use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::node::Time;
use tailcut_proto::rpc::{AnswerError, CallOptions, DropReason, Rejection, RequestId, Rpc};
use tailcut_proto::scheduler::Ticket;

use crate::lock;

/// A request in a handler's hands.
///
/// Answer it by one of the `reply` methods, refuse it by [`Request::reject`], or keep it for later
/// by [`Request::defer`]. Dropping it refuses it with [`DropReason::Unanswered`], a panic with
/// [`DropReason::Panicked`].
#[derive(Debug)]
pub struct Request<'a> {
    /// There until it is answered here, or deferred.
    task: &'a mut Task,
    desk: AnswerReceiver<'a>,
}

/// A request to answer later, from any thread or task.
///
/// It has the methods of [`Request`]. Dropping it refuses the request with
/// [`DropReason::Unanswered`], a panic that drops it with [`DropReason::Panicked`]. An answer to a
/// request that is gone, or to a server that has ended, does nothing.
#[derive(Debug)]
pub struct Responder {
    /// There until it is answered.
    job: Task,
}

/// Time at which a request's client stops waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Time);

impl Deadline {
    /// Time left until then; zero when it has passed.
    pub fn time_left(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(Clock.now()))
    }
}

/// A request in somebody's hands, until another has it.
pub(crate) type Task = Option<Parcel<Job>>;

/// Receiver of the answer of a [`Request`].
#[derive(Debug)]
enum AnswerReceiver<'a> {
    /// The endpoint, on this thread.
    Here { endpoint: &'a mut Endpoint, now: Time, live: &'a mut Live },
    /// Whoever gave the job, when the handler returns it.
    Worker,
}

/// A request, and what becomes of it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: RequestId,
    pub(crate) client: SocketAddr,
    /// The client's number, where packets are sealed.
    pub(crate) identity: Option<u32>,
    pub(crate) deadline: Time,
    pub(crate) options: CallOptions,
    /// The request's bytes.
    pub(crate) request: Vec<u8>,
    /// The reply's bytes, or the text of a rejection.
    pub(crate) reply: Vec<u8>,
    pub(crate) verdict: Verdict,
    /// State that the server's thread shares with whoever has the job; `None` while that thread has
    /// it.
    pub(crate) link: Option<Arc<Link>>,
}

/// Verdict on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing yet.
    Open,
    /// [`Job::reply`] answers it.
    Reply,
    /// The request's own bytes answer it.
    ReplyInPlace,
    /// It is refused with this code and [`Job::reply`] as the text.
    Reject(u32),
    /// It is refused.
    Refuse(DropReason),
}

/// State that a server's thread shares with whoever has a request.
#[derive(Debug)]
pub(crate) struct Link {
    is_cancelled: AtomicBool,
    /// The task that is to hear of it.
    task: Mutex<Option<std::task::Waker>>,
    outbox: Arc<Outbox>,
}

/// Queue of answers from elsewhere for the server's thread.
#[derive(Debug)]
pub(crate) struct Outbox {
    answers: Completions<Job>,
    /// Handlers that panicked.
    panics: AtomicU64,
    waker: Waker,
}

/// The requests that are with workers, tasks or [`Responder`]s.
#[derive(Debug)]
pub(crate) struct Live {
    /// By [`RequestId::place`].
    entries: Vec<Option<Entry>>,
    /// To be used again, the oldest first.
    free: VecDeque<Arc<Link>>,
    pub(crate) outbox: Arc<Outbox>,
    /// Parcels to be used again.
    spare: Vec<Parcel<Job>>,
    /// Answers from elsewhere that are not given yet.
    taken: Vec<Parcel<Job>>,
    /// Time at which the first of them was taken.
    taken_at: Time,
    /// Number of them at the last look.
    known: usize,
    /// Entries that there are.
    enlisted: usize,
    /// An answer was given since [`Live::has_answered`].
    has_answered: bool,
}

#[derive(Debug)]
struct Entry {
    id: RequestId,
    link: Arc<Link>,
    /// Ticket of the queue in which it was last known to wait.
    ticket: Option<Ticket>,
}

/// The methods that both forms of a request have.
macro_rules! answering {
    ($form:ty, $result:ty, $errors:literal) => {
        impl $form {
            /// The request's bytes.
            pub fn bytes(&self) -> &[u8] {
                &self.job().request
            }

            /// Takes the request's bytes out; none are left for [`Self::bytes`] and
            /// [`Self::reply_in_place`].
            pub fn take_bytes(&mut self) -> Vec<u8> {
                std::mem::take(&mut self.job_mut().request)
            }

            /// The client's address: its own, also behind a router.
            pub fn client(&self) -> SocketAddr {
                self.job().client
            }

            /// The number of the client that has sealed the request, as its keys have it; `None`
            /// where packets are open, and anybody may have sent it.
            pub fn identity(&self) -> Option<u32> {
                self.job().identity
            }

            /// Options that the client gave the call: whether it is idempotent, bound to the
            /// router's first server, or of version 1.
            pub fn options(&self) -> CallOptions {
                self.job().options
            }

            /// Time at which the client stops waiting, for who keeps it apart from the request.
            pub fn deadline(&self) -> Deadline {
                Deadline(self.job().deadline)
            }

            /// Time that the client will still wait.
            pub fn time_left(&self) -> Duration {
                self.deadline().time_left()
            }

            /// True if nobody waits for the answer any more: the client gave up, or its deadline
            /// has passed. A handler that works for long asks now and then. In the handler of
            /// [`Server::run`](crate::Server::run), while which nothing is received, always false.
            pub fn is_cancelled(&self) -> bool {
                self.job().is_cancelled()
            }

            /// Answers with `reply`.
            #[doc = $errors]
            pub fn reply(self, reply: &[u8]) -> $result {
                self.reply_with(|_, buffer| buffer.extend_from_slice(reply))
            }

            /// Answers with what `write` puts into a buffer, given the request's bytes: no copy.
            #[doc = $errors]
            pub fn reply_with(mut self, write: impl FnOnce(&[u8], &mut Vec<u8>)) -> $result {
                self.provide_buffer();
                let job = self.job_mut();
                write(&job.request, &mut job.reply);
                self.finish(Verdict::Reply)
            }

            /// Answers with the request's own bytes, after `change`.
            #[doc = $errors]
            pub fn reply_in_place(mut self, change: impl FnOnce(&mut Vec<u8>)) -> $result {
                change(&mut self.job_mut().request);
                self.finish(Verdict::ReplyInPlace)
            }

            /// Refuses the request with a number and a text for the caller, whose call ends by
            /// [`Error::Rejected`](crate::Error::Rejected). Of the text, 1024 bytes arrive.
            #[doc = $errors]
            pub fn reject(mut self, code: u32, text: &str) -> $result {
                self.provide_buffer();
                let job = self.job_mut();
                job.reply.clear();
                job.reply.extend_from_slice(&text.as_bytes()[..cut(text)]);
                self.finish(Verdict::Reject(code))
            }
        }
    };
}

answering!(
    Request<'_>,
    Result<(), AnswerError>,
    "\n\n# Errors\n\n[`AnswerError`] when the reply is too long or the request has expired; nothing is \
     left to do then. A worker is not told: the server counts it."
);
answering!(Responder, (), "");

impl<'a> Request<'a> {
    /// A request that the endpoint has just given, for a handler on its own thread.
    pub(crate) fn here(
        task: &'a mut Task,
        endpoint: &'a mut Endpoint,
        now: Time,
        live: &'a mut Live,
    ) -> Self {
        Self { task, desk: AnswerReceiver::Here { endpoint, now, live } }
    }

    /// A request for a handler on a worker's thread.
    pub(crate) fn at_worker(task: &'a mut Task) -> Self {
        Self { task, desk: AnswerReceiver::Worker }
    }

    /// Keeps the request for later: the handler may return, and the answer may come from any thread
    /// or task.
    pub fn defer(mut self) -> Responder {
        self.provide_buffer();
        let mut job = self.task.take().expect(OPEN);
        if let AnswerReceiver::Here { live, .. } = &mut self.desk
            && job.link.is_none()
        {
            job.link = Some(live.enlist(job.id));
        }
        Responder { job: Some(job) }
    }

    fn job(&self) -> &Job {
        self.task.as_ref().expect(OPEN)
    }

    fn job_mut(&mut self) -> &mut Job {
        self.task.as_mut().expect(OPEN)
    }

    /// A worker's job has its buffer already.
    fn provide_buffer(&mut self) {
        if let AnswerReceiver::Here { endpoint, .. } = &mut self.desk {
            self.task.as_mut().expect(OPEN).reply = endpoint.buffer();
        }
    }

    fn finish(mut self, verdict: Verdict) -> Result<(), AnswerError> {
        self.settle(verdict)
    }

    fn settle(&mut self, verdict: Verdict) -> Result<(), AnswerError> {
        self.job_mut().verdict = verdict;
        match &mut self.desk {
            AnswerReceiver::Here { endpoint, now, live } => {
                live.settle(endpoint, *now, self.task.take().expect(OPEN))
            }
            AnswerReceiver::Worker => Ok(()),
        }
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if self.task.as_ref().is_some_and(|job| job.verdict == Verdict::Open) {
            // Gone already is as good as refused.
            let _ = self.settle(abandoned());
        }
    }
}

impl Responder {
    /// A request that waits for a task.
    #[cfg(feature = "tokio")]
    pub(crate) fn new(job: Parcel<Job>) -> Self {
        Self { job: Some(job) }
    }

    /// Refuses a request that nobody has begun.
    #[cfg(feature = "tokio")]
    pub(crate) fn refuse(self, reason: DropReason) {
        self.finish(Verdict::Refuse(reason));
    }

    /// State that is shared with the server's thread.
    #[cfg(feature = "tokio")]
    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        self.job().link.clone()
    }

    fn job(&self) -> &Job {
        self.job.as_ref().expect(OPEN)
    }

    fn job_mut(&mut self) -> &mut Job {
        self.job.as_mut().expect(OPEN)
    }

    /// The buffer came with it.
    #[expect(clippy::unused_self, reason = "Request's needs its own")]
    fn provide_buffer(&self) {}

    fn finish(mut self, verdict: Verdict) {
        self.send(verdict);
    }

    fn send(&mut self, verdict: Verdict) {
        if let Some(mut job) = self.job.take() {
            job.verdict = verdict;
            // By the link, and not by an outbox of its own: one count that all threads count in
            // would cost each of them more than the rest of the answer.
            let link = job.link.take().expect("the request is enlisted");
            link.outbox.push(job);
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.send(abandoned());
    }
}

impl Job {
    /// A request as its endpoint gives it.
    pub(crate) fn new(
        id: RequestId,
        client: SocketAddr,
        deadline: Time,
        options: CallOptions,
        request: Vec<u8>,
    ) -> Self {
        let (reply, verdict, link) = (Vec::new(), Verdict::Open, None);
        let identity = None;
        Self { id, client, identity, deadline, options, request, reply, verdict, link }
    }

    /// True if somebody waits for its answer at `now`.
    pub(crate) fn is_wanted(&self, now: Time) -> bool {
        !self.is_cancelled() && self.deadline > now
    }

    /// True if nobody waits for its answer any more.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_cancelled())
    }
}

impl Link {
    /// True if nobody waits for the request's answer any more.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::SeqCst)
    }

    fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::SeqCst);
        if let Some(task) = lock(&self.task).take() {
            task.wake();
        }
    }

    /// Has `task` woken when the request is cancelled.
    #[cfg(feature = "tokio")]
    pub(crate) fn watch(&self, task: &std::task::Waker) {
        let mut known = lock(&self.task);
        if !known.as_ref().is_some_and(|known| known.will_wake(task)) {
            *known = Some(task.clone());
        }
    }
}

impl Outbox {
    /// Runs a piece of a handler; `None` where it panicked, which is counted and logged.
    pub(crate) fn guard<T>(&self, piece: impl FnOnce() -> T) -> Option<T> {
        // What a handler shares with others is its own to keep whole; of ours it has a request,
        // which its unwinding has refused.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(piece));
        result
            .map_err(|panic| {
                self.panics.fetch_add(1, Ordering::Relaxed);
                let text = panic.downcast_ref::<&str>().copied();
                let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
                let panic = text.unwrap_or("no text");
                tracing::error!(panic, "a handler panicked; its request was refused");
            })
            .ok()
    }

    /// Handlers that panicked.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Wakes the server's thread.
    #[cfg(feature = "tokio")]
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Gives an answer to the server's thread. Where that has ended, the answer goes nowhere.
    pub(crate) fn push(&self, job: Parcel<Job>) {
        if self.answers.push(job).is_ok() {
            self.waker.wake();
        }
    }
}

impl Live {
    pub(crate) fn new(waker: Waker) -> Self {
        let outbox = Outbox { answers: Completions::new(), panics: AtomicU64::new(0), waker };
        Self {
            entries: Vec::new(),
            free: VecDeque::new(),
            outbox: Arc::new(outbox),
            spare: Vec::new(),
            taken: Vec::new(),
            known: 0,
            taken_at: 0,
            enlisted: 0,
            has_answered: false,
        }
    }

    /// A parcel of a request.
    pub(crate) fn wrap(&mut self, job: Job) -> Parcel<Job> {
        let Some(mut parcel) = self.spare.pop() else { return Parcel::new(job) };
        *parcel = job;
        parcel
    }

    /// True if there are answers that wait for others, for a few turns at most.
    pub(crate) fn holds_answers(&self) -> bool {
        !self.taken.is_empty()
    }

    /// Takes an answer that has come from elsewhere, to give it with others.
    pub(crate) fn hold(&mut self, job: Parcel<Job>) {
        self.taken.push(job);
    }

    /// Takes note of a request that leaves this thread.
    pub(crate) fn enlist(&mut self, id: RequestId) -> Arc<Link> {
        // Whoever answered by it may still look at it; the oldest is the least likely, and one that
        // somebody keeps for long is dropped.
        let mut free = self.free.pop_front();
        if let Some(link) = &mut free {
            match Arc::get_mut(link) {
                Some(link) => *link.is_cancelled.get_mut() = false,
                None => free = None,
            }
        }
        let link = free.unwrap_or_else(|| {
            let outbox = self.outbox.clone();
            Arc::new(Link { is_cancelled: AtomicBool::new(false), task: Mutex::default(), outbox })
        });
        let place = id.place();
        if self.entries.len() <= place {
            self.entries.resize_with(place + 1, || None);
        }
        let entry = Entry { id, link: link.clone(), ticket: None };
        self.enlisted += usize::from(self.entries[place].replace(entry).is_none());
        link
    }

    /// A request that waits in a queue can be taken out by `ticket`.
    pub(crate) fn note_ticket(&mut self, id: RequestId, ticket: Ticket) {
        if let Some(entry) = self.entry(id) {
            entry.ticket = Some(ticket);
        }
    }

    /// Nobody waits for the answer any more: tells whoever has the request. Where it may wait in a
    /// queue, its ticket.
    pub(crate) fn cancel(&mut self, id: RequestId) -> Option<Ticket> {
        let entry = self.remove(id)?;
        entry.link.cancel();
        self.free.push_back(entry.link);
        entry.ticket
    }

    /// True if an answer was given since this was asked last.
    pub(crate) fn has_answered(&mut self) -> bool {
        std::mem::take(&mut self.has_answered)
    }

    /// Nobody waits for any answer any more: tells whoever has a request.
    pub(crate) fn cancel_all(&mut self) {
        self.entries.drain(..).flatten().for_each(|entry| entry.link.cancel());
        self.enlisted = 0;
    }

    /// Every request that has left this thread and is not answered, with its ticket where it may
    /// wait in a queue.
    pub(crate) fn unanswered(&self) -> Vec<(RequestId, Option<Ticket>)> {
        self.entries.iter().flatten().map(|entry| (entry.id, entry.ticket)).collect()
    }

    /// Gives the answers that have come from elsewhere, once no more come, or there are enough of
    /// them for one GSO batch, or nobody owes another.
    pub(crate) fn take_answers(&mut self, endpoint: &mut Endpoint, now: Time) {
        self.taken.extend(self.outbox.answers.take_all());
        let (known, count) = (self.known, self.taken.len());
        if count == 0 {
            return;
        }
        if known == 0 {
            self.taken_at = now;
        }
        let is_early = now < self.taken_at.saturating_add(HOLD_NS);
        if count > known && count < self.enlisted.min(HOLD_COUNT) && is_early {
            self.known = count;
            return;
        }
        self.give_answers(endpoint, now);
    }

    /// Gives the answers that have come from elsewhere, however few.
    pub(crate) fn give_answers(&mut self, endpoint: &mut Endpoint, now: Time) {
        self.known = 0;
        let mut taken = std::mem::take(&mut self.taken);
        taken.extend(self.outbox.answers.take_all());
        for job in taken.drain(..) {
            // A request that is gone by now needs no answer.
            let _ = self.settle(endpoint, now, job);
        }
        self.taken = taken;
    }

    /// Does what a job's verdict says, and takes back what it holds.
    pub(crate) fn settle(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        mut job: Parcel<Job>,
    ) -> Result<(), AnswerError> {
        drop(job.link.take());
        let id = job.id;
        if let Some(entry) = self.remove(id) {
            self.free.push_back(entry.link);
        }
        let result = match job.verdict {
            Verdict::Reply => endpoint.reply(now, id, std::mem::take(&mut job.reply)),
            Verdict::ReplyInPlace => endpoint.reply(now, id, std::mem::take(&mut job.request)),
            Verdict::Reject(code) => endpoint.reject(now, id, code, &job.reply),
            Verdict::Refuse(reason) => endpoint.refuse(now, id, reason),
            // It was cancelled before it was begun.
            Verdict::Open => Ok(()),
        };
        self.has_answered |= job.verdict != Verdict::Open;
        endpoint.recycle(std::mem::take(&mut job.request));
        endpoint.recycle(std::mem::take(&mut job.reply));
        self.spare.push(job);
        result
    }

    fn remove(&mut self, id: RequestId) -> Option<Entry> {
        self.entry(id)?;
        self.enlisted -= 1;
        self.entries[id.place()].take()
    }

    fn entry(&mut self, id: RequestId) -> Option<&mut Entry> {
        self.entries.get_mut(id.place())?.as_mut().filter(|entry| entry.id == id)
    }
}

impl Drop for Live {
    /// Answers that come later go nowhere, and nobody waits for them.
    fn drop(&mut self) {
        self.cancel_all();
        drop(self.outbox.answers.close());
    }
}

/// Verdict on a request that its handler drops.
fn abandoned() -> Verdict {
    let is_panic = std::thread::panicking();
    Verdict::Refuse(if is_panic { DropReason::Panicked } else { DropReason::Unanswered })
}

/// Bytes of a text that a rejection holds, whole characters.
fn cut(text: &str) -> usize {
    let most = text.len().min(Rejection::TEXT_LEN_MAX);
    (0..=most).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0)
}

/// Reason why there is a job: whoever answers or defers gives up what it was asked by.
const OPEN: &str = "it is not answered";

/// Answers that leave together at most: a GSO batch.
const HOLD_COUNT: usize = 32;

/// For how long answers are held though more keep coming: a send of one costs 2.7 us.
const HOLD_NS: u64 = 10_000;
