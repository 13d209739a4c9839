//! A worker: takes jobs from its lane, runs them in place, and sleeps when none come.
//!
//! | a worker | until |
//! |---|---|
//! | runs | its lane is empty |
//! | spins | a job comes, or what [`SpinTime`] allows has passed |
//! | sleeps | the dispatcher has pushed a job and wakes it |
//!
//! Invariant: a wake-up is never lost. Each side writes first and then looks: the worker its bit
//! and then the lane, the dispatcher the lane and then the bits; and likewise the worker what it
//! has done and then the dispatcher's flag, and the dispatcher its flag and then the lanes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use super::{SAMPLE, TIMED};
use crate::affinity;
use crate::cache_line::Line;
use crate::clock::Clock;
use crate::driver::Waker;
use crate::spin::SpinTime;
use crate::sys::{LaneTaken as Taken, Puller, Taker};

/// One worker's side: to be run by a thread of its own, or played turn by turn.
#[derive(Debug)]
pub struct Worker<J> {
    /// Its place among the dispatcher's workers, from 0.
    index: usize,
    /// Source of its jobs.
    source: Source<J>,
    /// State that all workers share.
    shared: Arc<Shared>,
    /// Its time to spin, and what that was learned from.
    spin: SpinTime,
    /// The core to run on.
    core: Option<usize>,
}

/// Source of a worker's jobs.
#[derive(Debug)]
pub(super) enum Source<J> {
    /// Its lane from the dispatcher.
    Lane(Taker<J>),
    /// The queue that all workers share.
    Shared(Puller<J>),
}

impl<J: Send> Source<J> {
    #[inline]
    fn take(&mut self) -> Option<Taken<'_, J>> {
        match self {
            Self::Lane(lane) => lane.take(),
            Self::Shared(puller) => puller.take(),
        }
    }

    #[inline]
    fn has_job(&self) -> bool {
        match self {
            Self::Lane(lane) => lane.has_job(),
            Self::Shared(puller) => puller.has_job(),
        }
    }
}

/// State that a dispatcher and its workers share besides the lanes.
#[derive(Debug)]
pub(super) struct Shared {
    /// A bit for each worker that sleeps or is about to.
    asleep: Line<AtomicU64>,
    /// The dispatcher's thread sleeps or is about to.
    is_dispatcher_asleep: Line<AtomicBool>,
    /// There will be no more jobs.
    is_stopping: Line<AtomicBool>,
    /// The workers' threads, once they run.
    threads: Vec<OnceLock<Thread>>,
    /// Counts of each worker.
    counts: Vec<Line<WorkerCounts>>,
    /// Wakes the dispatcher's thread.
    waker: Waker,
}

/// Counters of a worker.
#[derive(Debug, Default)]
struct WorkerCounts {
    /// Times that it went to sleep.
    sleeps: AtomicU64,
    /// Handlers that panicked.
    panics: AtomicU64,
}

impl Shared {
    pub(super) fn new(count: usize, waker: Waker) -> Self {
        Self {
            asleep: Line::default(),
            is_dispatcher_asleep: Line::default(),
            is_stopping: Line::default(),
            threads: (0..count).map(|_| OnceLock::new()).collect(),
            counts: (0..count).map(|_| Line::default()).collect(),
            waker,
        }
    }

    /// Wakes as many workers as there are jobs, or all that sleep; returns how many.
    pub(super) fn wake_any(&self, jobs: u32) -> u64 {
        fence(Ordering::SeqCst);
        let mut rest = self.asleep.0.load(Ordering::Relaxed);
        let mut chosen = 0;
        for _ in 0..jobs {
            let lowest = rest & rest.wrapping_neg();
            chosen |= lowest;
            rest ^= lowest;
        }
        if chosen == 0 { 0 } else { self.wake(chosen) }
    }

    /// Wakes those of `pushed`, a bit for each worker that has been given something, that sleep;
    /// returns how many.
    #[inline]
    pub(super) fn wake(&self, pushed: u64) -> u64 {
        fence(Ordering::SeqCst);
        let sleeping = self.asleep.0.load(Ordering::Relaxed) & pushed;
        if sleeping == 0 {
            return 0;
        }
        // Only whoever clears a bit unparks, and parks count: one wake-up for each sleep.
        let woken = self.asleep.0.fetch_and(!sleeping, Ordering::SeqCst) & sleeping;
        let mut rest = woken;
        while rest != 0 {
            let index = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            self.threads[index].get().into_iter().for_each(Thread::unpark);
        }
        u64::from(woken.count_ones())
    }

    /// True if a worker sleeps, or is about to.
    pub(super) fn is_asleep(&self, index: usize) -> bool {
        self.asleep.0.load(Ordering::Relaxed) & 1 << index != 0
    }

    /// Ends all workers, each after the job that it is at.
    pub(super) fn stop(&self) {
        self.is_stopping.0.store(true, Ordering::SeqCst);
        self.wake(u64::MAX);
    }

    /// Announces that the dispatcher's thread is about to sleep, or is up again.
    pub(super) fn set_dispatcher_asleep(&self, is_asleep: bool) {
        self.is_dispatcher_asleep.0.store(is_asleep, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    pub(super) fn sleeps(&self) -> u64 {
        self.counts.iter().map(|counts| counts.0.sleeps.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn panics(&self) -> u64 {
        self.counts.iter().map(|counts| counts.0.panics.load(Ordering::Relaxed)).sum()
    }
}

impl<J: Send> Worker<J> {
    pub(super) fn new(
        index: usize,
        source: Source<J>,
        shared: Arc<Shared>,
        spin: SpinTime,
        core: Option<usize>,
    ) -> Self {
        Self { index, source, shared, spin, core }
    }

    /// The worker's index, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Runs jobs by `handler` on the calling thread until the dispatcher is gone. A job whose
    /// handler panics goes back as the handler has left it, and is counted.
    pub fn run(mut self, handler: impl Fn(&mut J)) {
        if let Some(core) = self.core {
            // The cores were looked at before; one that has gone since costs a pin, not the worker.
            let _ = affinity::pin_to(core);
        }
        let _ = self.shared.threads[self.index].set(std::thread::current());
        // The panic has been printed. What the handler shares with others is its own to keep whole.
        while catch_unwind(AssertUnwindSafe(|| self.work(&handler))).is_err() {
            count(&self.shared.counts[self.index].0.panics);
            self.notify();
        }
    }

    /// Runs one job by `handler`, if there is one; tells a dispatcher that sleeps.
    #[inline]
    pub fn turn(&mut self, handler: impl FnOnce(&mut J)) -> bool {
        let has_run = self.turn_quietly(handler);
        if has_run {
            self.notify();
        }
        has_run
    }

    /// Fetches what the next turn looks at: for a thread that plays several workers, so that their
    /// jobs come over at once and not one after the other.
    #[inline]
    pub fn prefetch(&self) {
        if let Source::Lane(lane) = &self.source {
            lane.prefetch();
        }
    }

    /// As [`Worker::turn`], and tells nobody: for a thread that plays several workers and calls
    /// [`Worker::notify`] once for all.
    #[inline]
    pub fn turn_quietly(&mut self, handler: impl FnOnce(&mut J)) -> bool {
        let Some(mut job) = self.source.take() else { return false };
        if job.note() == 0 {
            handler(&mut job);
        } else {
            let began_at = Clock.now();
            handler(&mut job);
            let service_ns = Clock.now().saturating_sub(began_at);
            // To 2 ns, and 2 at least: the last bit is the dispatcher's.
            let service_ns = u32::try_from(service_ns).unwrap_or(u32::MAX) & !SAMPLE;
            job.set_note(service_ns.max(TIMED) | job.note() & SAMPLE);
        }
        true
    }

    fn work(&mut self, handler: &impl Fn(&mut J)) {
        while !self.shared.is_stopping.0.load(Ordering::Relaxed) {
            if !self.turn(handler) {
                self.pass_time();
            }
        }
    }

    /// Tells the dispatcher's thread that something is done, if it sleeps.
    #[inline]
    pub fn notify(&self) {
        fence(Ordering::SeqCst);
        if self.shared.is_dispatcher_asleep.0.load(Ordering::Relaxed) {
            self.shared.waker.wake();
        }
    }

    /// Spins and then sleeps until there is something to do.
    fn pass_time(&mut self) {
        let began_at = Clock.now();
        let spin_ns = self.spin.get(began_at);
        loop {
            for _ in 0..SPINS_PER_READING {
                if self.source.has_job() {
                    break;
                }
                std::hint::spin_loop();
            }
            let gap_ns = Clock.now().saturating_sub(began_at);
            if self.is_wanted() {
                self.spin.note_gap(gap_ns);
                return;
            }
            if gap_ns >= spin_ns {
                break;
            }
            self.spin.give_way(began_at + gap_ns);
        }
        self.sleep();
        self.spin.note_gap(Clock.now().saturating_sub(began_at));
    }

    fn sleep(&self) {
        let bit = 1 << self.index;
        self.shared.asleep.0.fetch_or(bit, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !self.is_wanted() {
            count(&self.shared.counts[self.index].0.sleeps);
            while !self.is_wanted() && self.shared.is_asleep(self.index) {
                std::thread::park();
            }
        }
        self.shared.asleep.0.fetch_and(!bit, Ordering::SeqCst);
    }

    fn is_wanted(&self) -> bool {
        self.source.has_job() || self.shared.is_stopping.0.load(Ordering::SeqCst)
    }
}

/// Adds one to a count of this thread's own.
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Looks at the lane for each reading of the clock.
const SPINS_PER_READING: u32 = 32;
