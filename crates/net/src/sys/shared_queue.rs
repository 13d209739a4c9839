//! A queue that workers share, and pull from under an MCS lock (Mellor-Crummey and Scott, TOCS
//! 1991).
//!
//! | a slot | who may touch its job | next |
//! |---|---|---|
//! | empty | the feeder | full, and its place in the order written |
//! | full | neither | taken by the worker that has found it in the order, under the lock |
//! | taken | that worker, in place | done |
//! | done | the feeder | empty, when it collects the job, in whichever order they end |
//!
//! So a long job keeps no slot but its own. The slots and what a worker has of one are a lane's.
//!
//! Invariant: the order holds each full slot once, and what is before `next` has been taken. A
//! place is emptied after `next` has moved on, so that who finds it empty finds the next one.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use super::lane::{DONE, EMPTY, FULL, Slot, TAKEN, Taken};
use crate::cache_line::Line;

/// A queue of `len` slots before so many workers.
///
/// # Panics
///
/// When `len` is not a power of two below 2^31.
pub(crate) fn shared_queue<T: Send>(len: usize, workers: usize) -> (Feeder<T>, Vec<Puller<T>>) {
    assert!(len.is_power_of_two() && len < 1 << 31, "a queue of {len} slots is not supported");
    let ring = Arc::new(Ring {
        slots: (0..len).map(|_| Alone::default()).collect(),
        order: (0..len).map(|_| AtomicU32::new(NOTHING)).collect(),
        next: Line::default(),
        lock: McsLock::new(workers),
    });
    let pullers = (0..workers).map(|index| Puller { ring: ring.clone(), index }).collect();
    let feeder = Feeder {
        ring,
        head: 0,
        free: (0..len as u32).rev().collect(),
        pushed: VecDeque::with_capacity(len),
        taken: Vec::with_capacity(len),
        tokens: vec![0; len],
    };
    (feeder, pullers)
}

/// The dispatcher's end.
pub(crate) struct Feeder<T> {
    /// The queue.
    ring: Arc<Ring<T>>,
    /// Jobs pushed; the place of the next in the order.
    head: usize,
    /// Slots that are empty.
    free: Vec<u32>,
    /// Slots that were full when they were last looked at, in order.
    pushed: VecDeque<u32>,
    /// Slots that have been taken, and not collected.
    taken: Vec<u32>,
    /// Tokens that the dispatcher keeps beside the job of each slot.
    tokens: Vec<u32>,
}

/// A worker's end.
pub(crate) struct Puller<T> {
    /// The queue.
    ring: Arc<Ring<T>>,
    /// Its place among the workers, which no other has.
    index: usize,
}

/// State that both ends share.
struct Ring<T> {
    /// The jobs, in any order.
    slots: Box<[Alone<Slot<T>>]>,
    /// Indices of full slots, in the order in which they were pushed.
    order: Box<[AtomicU32]>,
    /// Place of the next of them; written under the lock.
    next: Line<AtomicUsize>,
    /// Held by whoever takes the next.
    lock: McsLock,
}

/// A lock whose waiters queue, each looking at a line of its own.
struct McsLock {
    /// The last of the waiters and the holder, plus one; 0 when nobody has the lock.
    tail: Line<AtomicUsize>,
    /// By worker.
    nodes: Box<[Line<Node>]>,
}

/// A worker's place in the lock's queue.
#[derive(Default)]
struct Node {
    /// Index of the worker that waits behind it, plus one; 0 for nobody.
    next: AtomicUsize,
    /// The one before has not passed the lock on.
    is_waiting: AtomicBool,
}

/// A cache line of its own: neighbours go to different workers.
#[derive(Default)]
#[repr(align(64))]
struct Alone<T>(T);

impl<T: Send> Feeder<T> {
    /// Gives the workers a job and keeps a token for it, or returns it when all slots are in use.
    #[inline]
    pub(crate) fn push(&mut self, job: T, note: u32, token: u32) -> Result<(), T> {
        let Some(index) = self.free.pop() else { return Err(job) };
        let slot = &self.ring.slots[index as usize].0;
        // SAFETY: the slot is free, so it is empty, which gives it to this end.
        unsafe {
            (*slot.job.get()).write(job);
            *slot.note.get() = note;
        }
        slot.state.store(FULL, Ordering::Release);
        self.tokens[index as usize] = token;
        self.pushed.push_back(index);
        // Its place in the order has been read and emptied: of as many pushes as there are places
        // one has been collected, and whoever took that did so after who took what was here, or is
        // it.
        let place = &self.ring.order[self.head & (self.ring.order.len() - 1)];
        place.store(index, Ordering::Release);
        self.head = self.head.wrapping_add(1);
        Ok(())
    }

    /// A job that a worker is done with, its note and its token, from place `at` on in the list of
    /// what is taken; moves `at`.
    #[inline]
    pub(crate) fn collect(&mut self, at: &mut usize) -> Option<(T, u32, u32)> {
        while let Some(&index) = self.pushed.front()
            && self.ring.slots[index as usize].0.state.load(Ordering::Relaxed) != FULL
        {
            self.pushed.pop_front();
            self.taken.push(index);
        }
        while let Some(&index) = self.taken.get(*at) {
            let slot = &self.ring.slots[index as usize].0;
            if slot.state.load(Ordering::Acquire) != DONE {
                *at += 1;
                continue;
            }
            // SAFETY: the slot is done, which gives it to this end, and its job is initialized; it
            // is empty from here on, so that the job is read once.
            let (job, note) = unsafe { ((*slot.job.get()).assume_init_read(), *slot.note.get()) };
            slot.state.store(EMPTY, Ordering::Relaxed);
            self.taken.swap_remove(*at);
            self.free.push(index);
            return Some((job, note, self.tokens[index as usize]));
        }
        None
    }

    /// True if [`Feeder::collect`] would find a job.
    pub(crate) fn is_done(&self) -> bool {
        let is_done =
            |&index: &u32| self.ring.slots[index as usize].0.state.load(Ordering::Acquire) == DONE;
        self.taken.iter().chain(&self.pushed).any(is_done)
    }
}

impl<T: Send> Puller<T> {
    /// The next job, if there is one.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Taken<'_, T>> {
        // Who finds nothing leaves the lock to others.
        if !self.has_job() {
            return None;
        }
        let Ring { slots, order, next, lock } = &*self.ring;
        lock.acquire(self.index);
        let at = next.0.load(Ordering::Relaxed);
        let place = &order[at & (order.len() - 1)];
        let index = place.load(Ordering::Acquire);
        let slot = slots.get(index as usize).map(|slot| &slot.0).filter(|slot| {
            // Whoever sees the place emptied sees where the next is.
            next.0.store(at.wrapping_add(1), Ordering::Relaxed);
            place.store(NOTHING, Ordering::Release);
            // The exchange makes it this worker's without a word about the lock. Under it, so that
            // the feeder does not wait at this slot for a worker that is descheduled behind it.
            let (full, taken) = (FULL, TAKEN);
            slot.state.compare_exchange(full, taken, Ordering::Acquire, Ordering::Relaxed).is_ok()
        });
        lock.release(self.index);
        slot.map(|slot| Taken { slot, job: PhantomData })
    }

    /// True if [`Puller::take`] would find a job, if no other worker takes it first.
    #[inline]
    pub(crate) fn has_job(&self) -> bool {
        let Ring { order, next, .. } = &*self.ring;
        loop {
            let at = next.0.load(Ordering::Relaxed);
            if order[at & (order.len() - 1)].load(Ordering::Acquire) != NOTHING {
                return true;
            }
            // Another may have taken that one between the two looks, and there are more.
            if next.0.load(Ordering::Relaxed) == at {
                return false;
            }
        }
    }
}

impl McsLock {
    fn new(workers: usize) -> Self {
        Self { tail: Line::default(), nodes: (0..workers).map(|_| Line::default()).collect() }
    }

    /// Waits for the lock.
    #[inline]
    fn acquire(&self, worker: usize) {
        let node = &self.nodes[worker].0;
        node.next.store(0, Ordering::Relaxed);
        node.is_waiting.store(true, Ordering::Relaxed);
        let before = self.tail.0.swap(worker + 1, Ordering::AcqRel);
        if before > 0 {
            self.nodes[before - 1].0.next.store(worker + 1, Ordering::Release);
            spin_while(|| node.is_waiting.load(Ordering::Acquire));
        }
    }

    /// Passes it on.
    #[inline]
    fn release(&self, worker: usize) {
        let node = &self.nodes[worker].0;
        if node.next.load(Ordering::Acquire) == 0 {
            let (mine, none) = (worker + 1, 0);
            let last =
                self.tail.0.compare_exchange(mine, none, Ordering::AcqRel, Ordering::Relaxed);
            if last.is_ok() {
                return;
            }
            // Somebody is behind it, and is about to say so.
            spin_while(|| node.next.load(Ordering::Acquire) == 0);
        }
        let next = node.next.load(Ordering::Acquire) - 1;
        self.nodes[next].0.is_waiting.store(false, Ordering::Release);
    }
}

/// Spins; where it takes long, whoever is waited for may want this core.
#[inline]
fn spin_while(condition: impl Fn() -> bool) {
    let mut spins = 0_u32;
    while condition() {
        spins += 1;
        if spins.is_multiple_of(SPINS_PER_YIELD) {
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

impl<T> std::fmt::Debug for Feeder<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Feeder").field("head", &self.head).finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for Puller<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Puller").field("index", &self.index).finish_non_exhaustive()
    }
}

/// No slot.
const NOTHING: u32 = u32::MAX;

const SPINS_PER_YIELD: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(feeder: &mut Feeder<u64>) -> Vec<(u64, u32, u32)> {
        let mut at = 0;
        std::iter::from_fn(|| feeder.collect(&mut at)).collect()
    }

    #[test]
    fn jobs_are_taken_in_order_and_come_back_as_they_end() {
        let (mut feeder, mut pullers) = shared_queue::<u64>(4, 2);
        let [first, second] = &mut pullers[..] else { panic!("two workers") };
        assert!(first.take().is_none());
        for job in 0..4 {
            feeder.push(job, 0, 10 + job as u32).unwrap();
        }
        assert_eq!(feeder.push(4, 0, 0), Err(4));
        let long = first.take().unwrap();
        for expected in 1..4 {
            let mut taken = second.take().unwrap();
            assert_eq!(*taken, expected);
            *taken += 100;
            taken.set_note(7);
        }
        assert!(second.take().is_none() && feeder.is_done());
        assert_eq!(all(&mut feeder), [(101, 7, 11), (103, 7, 13), (102, 7, 12)]);
        assert!(!feeder.is_done());
        // The long one keeps its own slot alone, however often the order goes round.
        for job in 10..30 {
            feeder.push(job, 0, 0).unwrap();
            assert_eq!(second.take().map(|job| *job), Some(job));
            assert_eq!(all(&mut feeder), [(job, 0, 0)]);
        }
        drop(long);
        assert_eq!(all(&mut feeder), [(0, 0, 10)]);
    }

    #[test]
    fn every_job_is_taken_once_by_workers_that_contend() {
        let (count, workers) = (60_000_u64, 4);
        let (mut feeder, pullers) = shared_queue::<Box<u64>>(16, workers);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for mut puller in pullers {
                let is_over = &is_over;
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        match puller.take() {
                            Some(mut job) => **job += 1 << 32,
                            None => std::thread::yield_now(),
                        }
                    }
                });
            }
            let (mut next, mut collected, mut sum) = (1, 0, 0);
            while collected < count {
                while next <= count && feeder.push(Box::new(next), 0, next as u32).is_ok() {
                    next += 1;
                }
                let mut at = 0;
                while let Some((job, _, token)) = feeder.collect(&mut at) {
                    assert_eq!(*job, u64::from(token) | 1 << 32, "it was run once");
                    collected += 1;
                    sum += u64::from(token);
                }
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(sum, count * (count + 1) / 2);
        });
    }
}
