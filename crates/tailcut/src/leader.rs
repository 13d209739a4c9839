//! A server whose thread runs short requests itself, and a deputy that takes over from it where one of them
//! turns out to be long.
//!
//! Two threads take turns at leading: one serves the network, holds the queue, and between two turns runs
//! the requests that the dispatcher's rule calls short ([`InPlace`](tailcut_net::dispatch::InPlace)). The
//! other is its deputy.
//!
//! | the leader | event | then |
//! |---|---|---|
//! | takes a turn | | it has the lock of all that serves |
//! | begins a request | | it lets go of the lock |
//! | is at a request | it ends | it has the lock again, and answers |
//! | is at a request | the deputy has seen it there for 1 ms | the deputy leads, and gives the workers what else was to run in place |
//! | was relieved | its request ends | its answer goes to the leader as from any thread; it is the deputy |
//!
//! While a thread that was relieved is at its request nobody is the deputy, and nothing runs in place.
//!
//! Invariants: whoever leads is named under the lock, by the deputy alone; nobody waits for the lock but
//! for a few instructions, or at the end. A request is run once, by whoever took it out under the lock.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};
use std::thread::{Scope, Thread};
use std::time::Duration;

use tailcut_net::affinity::Usage;
use tailcut_net::clock::Clock;
use tailcut_net::completions::Parcel;
use tailcut_net::dispatch::{Dispatcher, LONG_NS, Metrics as DispatchMetrics};
use tailcut_net::driver::Waker;
use tailcut_proto::node::Time;
use tailcut_proto::scheduler::typed::{TYPES_MAX, TypeId};
use tailcut_proto::scheduler::{Ticket, Wait};

use crate::crew::Crew;
use crate::error::Error;
use crate::lock;
use crate::request::{Job, Outbox, Task};
use crate::server::Server;

/// What the two threads share.
pub(crate) struct Leadership<'a, R> {
    /// What the leader serves with.
    core: Mutex<Core<'a>>,
    /// Where the leader is.
    watch: Watch,
    /// Runs a request.
    run: &'a R,
    /// Where the answer of a leader that was relieved goes.
    answers: Arc<Outbox>,
    /// Wakes the leader.
    waker: Waker,
}

/// What a leader serves with.
struct Core<'a> {
    server: &'a mut Server,
    /// `None` before it has begun and after it has ended.
    crew: Option<Runner>,
    /// What came of it, once it has ended.
    result: Result<(), Error>,
}

/// A dispatcher, and before it the requests that the leader runs itself.
struct Runner {
    dispatcher: Dispatcher<Task>,
    /// To be run in place; never more than the dispatcher's rule has room for.
    pending: VecDeque<Pending>,
    /// There is a deputy, so that requests may run in place.
    is_attended: bool,
}

/// A request that is to be run in place.
struct Pending {
    job: Parcel<Job>,
    /// How it waits where it is given to a worker after all.
    wait: Wait,
}

/// What the leader shows to its deputy.
#[derive(Default)]
#[repr(align(128))]
struct Watch {
    /// Counts requests that begin and end in place, and runs of them: odd while the leader is at one.
    serial: AtomicU64,
    /// The thread that leads, 0 or 1.
    leader: AtomicUsize,
    /// The deputy sleeps until it is roused.
    is_dozing: AtomicBool,
    /// The other thread is there to take over.
    is_attended: AtomicBool,
    /// A bit for each type that a thread was relieved of a long request of.
    long: AtomicU32,
    /// Nobody leads any more.
    has_ended: AtomicBool,
    /// The two threads.
    threads: [OnceLock<Thread>; 2],
}

/// The thread of one who leads or is the deputy.
type Seat = usize;

/// A run of requests of one type in place, from one reading of the clock to the next.
struct Stretch {
    /// When it began.
    began_at: Time,
    /// Requests so far.
    jobs: u32,
}

impl<'a, R: Fn(&mut Task) + Sync> Leadership<'a, R> {
    /// For a server whose requests are run by `run`.
    pub(crate) fn new(server: &'a mut Server, run: &'a R) -> Self {
        let (answers, waker) = (server.answers(), server.waker());
        let core = Mutex::new(Core { server, crew: None, result: Ok(()) });
        Self { core, watch: Watch::default(), run, answers, waker }
    }

    /// Serves until the server is stopped, with a deputy in a thread of `scope`.
    pub(crate) fn serve<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        dispatcher: Dispatcher<Task>,
    ) -> Result<(), Error> {
        // Whatever happens, workers end with the dispatcher, and the deputy with this.
        let _ending = Ending(self);
        let pending = VecDeque::with_capacity(PENDING_CAPACITY);
        let runner = Runner { dispatcher, pending, is_attended: false };
        lock(&self.core).crew = Some(runner);
        let deputy = std::thread::Builder::new().name("tailcut-deputy".to_owned());
        deputy.spawn_scoped(scope, || {
            let _ending = Ending(self);
            self.take_part(DEPUTY, None);
        })?;
        self.take_part(LEADER, Some(lock(&self.core)));
        std::mem::replace(&mut lock(&self.core).result, Ok(()))
    }

    /// Leads, where there is a lock to lead with, and is the deputy, by turns.
    fn take_part<'b>(&'b self, seat: Seat, mut core: Option<MutexGuard<'b, Core<'a>>>) {
        let _ = self.watch.threads[seat].set(std::thread::current());
        loop {
            if let Some(core) = core.take()
                && self.lead(seat, core).is_break()
            {
                return;
            }
            core = self.stand_by(seat);
            if core.is_none() {
                return;
            }
        }
    }

    /// Serves the network until the server ends, or until it is relieved.
    fn lead<'b>(&'b self, seat: Seat, mut core: MutexGuard<'b, Core<'a>>) -> ControlFlow<()> {
        let result = loop {
            let Core { server, crew: Some(runner), .. } = &mut *core else {
                return ControlFlow::Break(());
            };
            runner.is_attended = self.watch.is_attended.load(Ordering::Acquire);
            let turn = match server.crew_turn(runner) {
                Ok(turn) => turn,
                Err(error) => break Err(error),
            };
            if self.watch.long.load(Ordering::Relaxed) != 0 {
                runner.note_long(self.watch.long.swap(0, Ordering::Relaxed));
            }
            if !runner.pending.is_empty() {
                let Some(back) = self.run_pending(seat, core, turn.now) else {
                    return ControlFlow::Continue(());
                };
                core = back;
            }
            let Core { server, crew: Some(runner), .. } = &mut *core else {
                return ControlFlow::Break(());
            };
            match server.crew_wait(turn, runner) {
                Ok(true) if !self.watch.has_ended.load(Ordering::Relaxed) => {}
                Ok(_) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        core.end(result);
        ControlFlow::Break(())
    }

    /// Runs what is to run in place, and sends the answers; without the lock where it was relieved
    /// meanwhile.
    fn run_pending<'b>(
        &'b self,
        seat: Seat,
        mut core: MutexGuard<'b, Core<'a>>,
        now: Time,
    ) -> Option<MutexGuard<'b, Core<'a>>> {
        self.rouse_deputy(seat);
        let before = Usage::of_this_thread();
        let began_at = Clock.now();
        let mut stretch = Stretch { began_at, jobs: 0 };
        while let Some((kind, job)) = core.next_pending() {
            let mut task = Some(job);
            if task.as_ref().is_some_and(|job| !job.is_cancelled()) {
                self.watch.count(1);
                drop(core);
                (self.run)(&mut task);
                let Some(back) = self.lead_again(seat) else {
                    self.hand_in(kind, task, before);
                    return None;
                };
                core = back;
                self.watch.count(1);
            }
            task.into_iter().for_each(|job| core.server.settle_run(now, job));
            stretch.jobs += 1;
            if stretch.jobs >= STRETCH_JOBS || core.next_kind() != Some(kind) {
                let others_ns = stretch.began_at.saturating_sub(began_at);
                let at = core.note_stretch(kind, &stretch, (before, others_ns));
                stretch = Stretch { began_at: at, jobs: 0 };
                if at.saturating_sub(began_at) >= GO_NS_MAX {
                    core.hand_over_pending(now);
                }
            }
        }
        core.server.flush_run(now);
        Some(core)
    }

    /// The lock again, after a request; `None` where the deputy has it.
    #[inline]
    fn lead_again(&self, seat: Seat) -> Option<MutexGuard<'_, Core<'a>>> {
        loop {
            // A deputy that has come too late holds it for a few instructions.
            let core = try_lock(&self.core);
            if self.watch.leader.load(Ordering::Acquire) != seat {
                return None;
            }
            if core.is_some() {
                return core;
            }
            std::thread::yield_now();
        }
    }

    /// Gives the answer of a request that took too long to whoever leads now.
    #[cold]
    fn hand_in(&self, kind: TypeId, task: Task, before: Usage) {
        if Usage::of_this_thread().is_long_since(before, GO_NS_MAX + LONG_NS) {
            self.watch.long.fetch_or(1 << kind.index().min(TYPES_MAX - 1), Ordering::Relaxed);
        }
        task.into_iter().for_each(|job| self.answers.push(job));
    }

    /// Watches the leader; with the lock when it is time to lead, without where the server has ended.
    fn stand_by(&self, seat: Seat) -> Option<MutexGuard<'_, Core<'a>>> {
        self.watch.is_attended.store(true, Ordering::Release);
        self.waker.wake();
        let mut seen = (self.watch.serial.load(Ordering::Acquire), Clock.now());
        while !self.watch.has_ended.load(Ordering::SeqCst) {
            let (serial, now) = (self.watch.serial.load(Ordering::Acquire), Clock.now());
            if serial != seen.0 {
                seen = (serial, now);
            }
            let unchanged_ns = now.saturating_sub(seen.1);
            if is_at_request(serial)
                && unchanged_ns >= STUCK_NS
                && let Some(core) = self.take_over(seat, serial)
            {
                return Some(core);
            }
            if unchanged_ns < QUIET_NS || is_at_request(serial) {
                std::thread::park_timeout(Duration::from_nanos(STUCK_NS));
            } else {
                self.doze(serial);
            }
        }
        None
    }

    /// The lock and the lead, where the leader is still at the request of this serial number.
    fn take_over(&self, seat: Seat, serial: u64) -> Option<MutexGuard<'_, Core<'a>>> {
        let mut core = try_lock(&self.core)?;
        if self.watch.serial.load(Ordering::Acquire) != serial {
            return None;
        }
        // In this order: whoever is relieved says that it attends once it sees who leads.
        self.watch.is_attended.store(false, Ordering::Release);
        self.watch.leader.store(seat, Ordering::Release);
        self.watch.count(1);
        let now = Clock.now();
        if let Some(runner) = &mut core.crew {
            runner.dispatcher.note_taken_over();
        }
        core.hand_over_pending(now);
        Some(core)
    }

    /// Sleeps until the leader runs requests again.
    fn doze(&self, serial: u64) {
        self.watch.is_dozing.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        while self.watch.is_dozing.load(Ordering::SeqCst)
            && self.watch.serial.load(Ordering::SeqCst) == serial
            && !self.watch.has_ended.load(Ordering::SeqCst)
        {
            std::thread::park();
        }
        self.watch.is_dozing.store(false, Ordering::SeqCst);
    }

    /// Has the deputy watch from here on.
    #[inline]
    fn rouse_deputy(&self, seat: Seat) {
        self.watch.count(2);
        // With that of `doze`: the deputy sees the count, or this that it dozes.
        fence(Ordering::SeqCst);
        if self.watch.is_dozing.load(Ordering::Relaxed) {
            self.watch.is_dozing.store(false, Ordering::SeqCst);
            self.unpark(1 - seat);
        }
    }

    fn unpark(&self, seat: Seat) {
        self.watch.threads[seat].get().into_iter().for_each(Thread::unpark);
    }
}

impl Core<'_> {
    /// The next request to run in place.
    #[inline]
    fn next_pending(&mut self) -> Option<(TypeId, Parcel<Job>)> {
        let Pending { job, wait } = self.crew.as_mut()?.pending.pop_front()?;
        Some((wait.kind(), job))
    }

    /// Its type.
    #[inline]
    fn next_kind(&self) -> Option<TypeId> {
        self.crew.as_ref()?.pending.front().map(|pending| pending.wait.kind())
    }

    /// Takes note of how long requests took that have just run in place; returns the time. `before` is what
    /// the thread had of its core `others_ns` before they began.
    fn note_stretch(
        &mut self,
        kind: TypeId,
        stretch: &Stretch,
        (before, others_ns): (Usage, u64),
    ) -> Time {
        let now = Clock.now();
        let took_ns = now.saturating_sub(stretch.began_at);
        if let Some(runner) = &mut self.crew {
            runner.dispatcher.note_run(kind, stretch.jobs, took_ns);
            let is_long = || Usage::of_this_thread().is_long_since(before, LONG_NS + others_ns);
            if took_ns > LONG_NS && is_long() {
                runner.dispatcher.note_long(kind);
            }
        }
        now
    }

    /// Gives the workers what was to run in place.
    fn hand_over_pending(&mut self, now: Time) {
        let Some(runner) = &mut self.crew else { return };
        while let Some(Pending { job, wait }) = runner.pending.pop_front() {
            let id = job.id;
            match Crew::offer(&mut runner.dispatcher, job, wait) {
                Ok(ticket) => {
                    ticket.into_iter().for_each(|ticket| self.server.note_ticket(id, ticket));
                }
                Err(job) => self.server.refuse_run(now, job),
            }
        }
        runner.dispatcher.flush();
    }

    /// Ends the service; the workers end with their dispatcher.
    fn end(&mut self, result: Result<(), Error>) {
        let Some(mut runner) = self.crew.take() else { return };
        if result.is_ok() {
            self.server.end_crew(&mut runner);
        } else {
            self.server.abandon_crew();
        }
        self.result = result;
    }
}

impl Watch {
    /// The leader begins a request or has ended one, 1; or will begin some, 2. The lock is held.
    #[inline]
    fn count(&self, steps: u64) {
        let serial = self.serial.load(Ordering::Relaxed);
        self.serial.store(serial.wrapping_add(steps), Ordering::Release);
    }
}

fn is_at_request(serial: u64) -> bool {
    !serial.is_multiple_of(2)
}

impl Runner {
    /// Of types with these bits a request in place was long.
    #[cold]
    fn note_long(&mut self, bits: u32) {
        for index in (0..TYPES_MAX).filter(|index| bits & 1 << index != 0) {
            self.dispatcher.note_long(TypeId(index as u8));
        }
    }
}

impl Crew for Runner {
    #[inline]
    fn offer(&mut self, job: Parcel<Job>, wait: Wait) -> Result<Option<Ticket>, Parcel<Job>> {
        if self.is_attended && self.pending.len() < self.dispatcher.in_place_room(wait.kind()) {
            self.pending.push_back(Pending { job, wait });
            return Ok(None);
        }
        Crew::offer(&mut self.dispatcher, job, wait)
    }

    fn withdraw(&mut self, ticket: Ticket) -> Option<Parcel<Job>> {
        Crew::withdraw(&mut self.dispatcher, ticket)
    }

    #[inline]
    fn poll_done(&mut self, now: Time, done: impl FnMut(Parcel<Job>)) {
        Crew::poll_done(&mut self.dispatcher, now, done);
    }

    #[inline]
    fn flush(&mut self) {
        self.dispatcher.flush();
    }

    fn fall_asleep(&mut self) -> bool {
        self.dispatcher.fall_asleep()
    }

    fn get_up(&mut self) {
        self.dispatcher.get_up();
    }

    fn next_look(&self) -> Option<Time> {
        self.dispatcher.next_look()
    }

    fn retry_after_ns(&self) -> u64 {
        self.dispatcher.retry_after_ns()
    }

    fn metrics(&self) -> Option<DispatchMetrics> {
        Some(self.dispatcher.metrics())
    }
}

/// Ends what the two threads do when one of them returns or panics: the other, and the workers.
struct Ending<'a, 'b, R: Fn(&mut Task) + Sync>(&'b Leadership<'a, R>);

impl<R: Fn(&mut Task) + Sync> Drop for Ending<'_, '_, R> {
    fn drop(&mut self) {
        self.0.watch.has_ended.store(true, Ordering::SeqCst);
        [LEADER, DEPUTY].into_iter().for_each(|seat| self.0.unpark(seat));
        self.0.waker.wake();
        let core = &mut *lock(&self.0.core);
        if core.crew.take().is_some() {
            // A panic.
            core.server.abandon_crew();
        }
    }
}

/// The lock, unless another has it.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Who leads first.
const LEADER: Seat = 0;
const DEPUTY: Seat = 1;

/// How long the leader may be at one request once the deputy has seen it there, which looks as often.
const STUCK_NS: u64 = 1_000_000;

/// Without any request in place for so long the deputy sleeps until there is one.
const QUIET_NS: u64 = 20_000_000;

/// Requests between two readings of the clock.
const STRETCH_JOBS: u32 = 8;

/// For how long requests run in place before the network is looked at again: the rest is the workers'.
const GO_NS_MAX: u64 = 100_000;

/// Room for as many requests as a rule lets run in one go.
const PENDING_CAPACITY: usize = 256;
