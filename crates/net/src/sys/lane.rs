//! A ring of slots between a dispatcher and one worker, in which a job goes there and comes back.
//!
//! | state of a slot | who may touch its job | next |
//! |---|---|---|
//! | empty | the dispatcher | full, when it pushes |
//! | full | neither | taken by the worker, or empty again when the dispatcher takes the job back |
//! | taken | the worker, in place | done |
//! | done | the dispatcher | empty, when it collects the job |
//!
//! Nothing is shared but the slots: each end keeps its own place in the ring. A job does not move
//! while the worker is at it, so that it crosses the cores twice, there and back. Four slots stand
//! together, in one cache line where jobs are words: jobs that one worker gets, or has done, at
//! once cross together.
//!
//! Invariant: one state changes hands at a time, by a store that releases or an exchange that
//! acquires, and only `full` can be contended for: by the worker that takes the job and the
//! dispatcher that takes it back.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A lane with `len` slots.
///
/// # Panics
///
/// When `len` is not a power of two.
pub(crate) fn lane<T: Send>(len: usize) -> (Sender<T>, Taker<T>) {
    assert!(len.is_power_of_two(), "a lane of {len} slots is not supported");
    let slots =
        Ring { groups: (0..len.div_ceil(GROUP_LEN)).map(|_| Group::default()).collect(), len };
    (Sender { slots: slots.clone(), head: 0, tail: 0 }, Taker { slots, next: 0 })
}

/// The slots of a lane.
struct Ring<T> {
    /// As many as `len` needs; the last may have slots that nobody uses.
    groups: Arc<[Group<T>]>,
    /// Slots in use, a power of two.
    len: usize,
}

/// Slots that share cache lines with each other and with nothing else.
#[repr(align(64))]
struct Group<T>([Slot<T>; GROUP_LEN]);

/// The dispatcher's end.
pub(crate) struct Sender<T> {
    /// The ring.
    slots: Ring<T>,
    /// Jobs pushed and not taken back; the place of the next.
    head: usize,
    /// Jobs collected; the place of the oldest that is at the worker.
    tail: usize,
}

/// The worker's end.
pub(crate) struct Taker<T> {
    /// The ring.
    slots: Ring<T>,
    /// Jobs taken; the place of the next.
    next: usize,
}

/// A job that the worker is at; dropping it hands it back.
pub(crate) struct Taken<'a, T> {
    /// Slot of the job, in the state taken.
    pub(super) slot: &'a Slot<T>,
    /// It may go and be shared where a `&mut T` may.
    pub(super) job: PhantomData<&'a mut T>,
}

#[repr(align(16))]
pub(super) struct Slot<T> {
    /// One of the states of the table.
    pub(super) state: AtomicU32,
    /// 32 bits beside the job, both ways.
    pub(super) note: UnsafeCell<u32>,
    /// The job; initialized in every state but empty.
    pub(super) job: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the states say which thread may touch the job and the note, and change hands by release
// and acquire; so threads share a slot as if they sent each other its job.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Ring<T> {
    /// The slot at a place, counted from the start.
    #[inline]
    fn at(&self, place: usize) -> &Slot<T> {
        let index = place & (self.len - 1);
        &self.groups[index / GROUP_LEN].0[index % GROUP_LEN]
    }
}

impl<T> Clone for Ring<T> {
    fn clone(&self) -> Self {
        Self { groups: self.groups.clone(), len: self.len }
    }
}

impl<T> Default for Group<T> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Slot::default()))
    }
}

impl<T: Send> Sender<T> {
    /// Gives the worker a job, or returns it when the lane is full.
    #[inline]
    pub(crate) fn push(&mut self, job: T, note: u32) -> Result<(), T> {
        // Only this end makes slots full or empty, so that a slot outside of tail..head is empty
        // without a look at it.
        if self.head - self.tail == self.slots.len {
            return Err(job);
        }
        let slot = self.slots.at(self.head);
        // SAFETY: the slot is empty, which gives it to this end.
        unsafe {
            (*slot.job.get()).write(job);
            *slot.note.get() = note;
        }
        slot.state.store(FULL, Ordering::Release);
        self.head += 1;
        Ok(())
    }

    /// The oldest job, once the worker is done with it.
    #[inline]
    pub(crate) fn collect(&mut self) -> Option<(T, u32)> {
        if self.head == self.tail {
            return None;
        }
        let slot = self.slots.at(self.tail);
        if slot.state.load(Ordering::Acquire) != DONE {
            return None;
        }
        // SAFETY: the slot is done, which gives it to this end, and its job is initialized; it is
        // empty from here on, so that the job is read once.
        let collected = unsafe { ((*slot.job.get()).assume_init_read(), *slot.note.get()) };
        slot.state.store(EMPTY, Ordering::Relaxed);
        self.tail += 1;
        Some(collected)
    }

    /// Fetches what [`Sender::collect`] will look at.
    #[inline]
    pub(crate) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let slot = self.slots.at(self.tail);
            // SAFETY: a prefetch touches nothing that a program sees, at whichever address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>((&raw const slot.state).cast()) };
        }
    }

    /// True if [`Sender::collect`] would find a job.
    pub(crate) fn is_done(&self) -> bool {
        let slot = self.slots.at(self.tail);
        self.head != self.tail && slot.state.load(Ordering::Acquire) == DONE
    }

    /// Takes back the newest job, if the worker has not begun it.
    pub(crate) fn take_back(&mut self) -> Option<(T, u32)> {
        if self.head == self.tail {
            return None;
        }
        let slot = self.slots.at(self.head - 1);
        // Nothing is read that the worker wrote: it has not touched the job.
        slot.state.compare_exchange(FULL, EMPTY, Ordering::Acquire, Ordering::Relaxed).ok()?;
        self.head -= 1;
        // SAFETY: the exchange gave the slot to this end, with its job initialized; it is empty
        // from here on, so that the job is read once.
        Some(unsafe { ((*slot.job.get()).assume_init_read(), *slot.note.get()) })
    }
}

impl<T: Send> Taker<T> {
    /// The next job, if there is one.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Taken<'_, T>> {
        let slot = self.slots.at(self.next);
        // The line comes to this core once, to be written; a load would fetch it to be read, and
        // the exchange fetch it again.
        prefetch_to_write(slot);
        if slot.state.load(Ordering::Relaxed) != FULL
            || slot
                .state
                .compare_exchange(FULL, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return None;
        }
        self.next = self.next.wrapping_add(1);
        Some(Taken { slot, job: PhantomData })
    }

    /// Fetches what [`Taker::take`] will look at.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_to_write(self.slots.at(self.next));
    }

    /// True if [`Taker::take`] would find a job.
    #[inline]
    pub(crate) fn has_job(&self) -> bool {
        let slot = self.slots.at(self.next);
        slot.state.load(Ordering::Relaxed) == FULL
    }
}

#[inline]
fn prefetch_to_write<T>(slot: &Slot<T>) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: a prefetch touches nothing that a program sees, at whichever address.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>((&raw const slot.state).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = slot;
}

impl<T> Taken<'_, T> {
    /// The note beside the job.
    #[inline]
    pub(crate) fn note(&self) -> u32 {
        // SAFETY: the slot is taken, which gives it to this worker.
        unsafe { *self.slot.note.get() }
    }

    /// Sets the note that goes back.
    #[inline]
    pub(crate) fn set_note(&mut self, note: u32) {
        // SAFETY: as in `note`, and borrowed uniquely.
        unsafe { *self.slot.note.get() = note }
    }
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the slot is taken, which gives its job, initialized, to this worker.
        unsafe { (*self.slot.job.get()).assume_init_ref() }
    }
}

impl<T> DerefMut for Taken<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and borrowed uniquely.
        unsafe { (*self.slot.job.get()).assume_init_mut() }
    }
}

impl<T> Drop for Taken<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.slot.state.store(DONE, Ordering::Release);
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        let job = UnsafeCell::new(MaybeUninit::uninit());
        Self { state: AtomicU32::new(EMPTY), note: UnsafeCell::new(0), job }
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        // Both ends are gone, and what they did happened before: the count of the ring says so.
        if *self.state.get_mut() != EMPTY {
            // SAFETY: the job of every slot that is not empty is initialized, and nobody else is
            // left to touch it.
            unsafe { self.job.get_mut().assume_init_drop() }
        }
    }
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Sender")
            .field("head", &self.head)
            .field("tail", &self.tail)
            .finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for Taker<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Taker").field("next", &self.next).finish_non_exhaustive()
    }
}

/// Slots of 16 bytes in a cache line.
const GROUP_LEN: usize = 4;

pub(super) const EMPTY: u32 = 0;
pub(super) const FULL: u32 = 1;
pub(super) const TAKEN: u32 = 2;
pub(super) const DONE: u32 = 3;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use proptest::prelude::*;

    use super::*;

    /// Counts how many of its kind were dropped.
    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_job_goes_there_and_comes_back_changed() {
        let (mut sender, mut taker) = lane::<u64>(2);
        assert!(taker.take().is_none() && !taker.has_job() && sender.collect().is_none());
        sender.push(7, 1).unwrap();
        assert!(taker.has_job());
        let mut taken = taker.take().unwrap();
        assert_eq!((*taken, taken.note()), (7, 1));
        *taken = 8;
        taken.set_note(9);
        assert!(sender.collect().is_none());
        drop(taken);
        assert_eq!(sender.collect(), Some((8, 9)));
        assert_eq!(sender.collect(), None);
    }

    #[test]
    fn four_jobs_of_a_word_share_a_cache_line_and_no_two_lanes_do() {
        let (one, other) = (lane::<Box<u64>>(16).0, lane::<Box<u64>>(16).0);
        let line = |sender: &Sender<Box<u64>>, place| {
            let slot: *const Slot<Box<u64>> = sender.slots.at(place);
            slot.addr() / 64
        };
        let lines: Vec<usize> = (0..16).map(|place| line(&one, place)).collect();
        let mut distinct = lines.clone();
        distinct.dedup();
        assert_eq!(distinct.len(), 4, "{lines:?}");
        assert!((0..16).all(|place| !lines.contains(&line(&other, place))));
    }

    #[test]
    fn a_full_lane_gives_the_job_back() {
        let (mut sender, mut taker) = lane::<u64>(2);
        assert_eq!(
            [sender.push(1, 0), sender.push(2, 0), sender.push(3, 0)],
            [Ok(()), Ok(()), Err(3)]
        );
        drop(taker.take());
        // Done is not collected yet.
        assert_eq!(sender.push(3, 0), Err(3));
        assert_eq!(sender.collect(), Some((1, 0)));
        assert_eq!(sender.push(3, 0), Ok(()));
    }

    #[test]
    fn what_is_begun_is_not_taken_back() {
        let (mut sender, mut taker) = lane::<u64>(4);
        assert_eq!(sender.take_back(), None);
        for job in [1, 2, 3] {
            sender.push(job, 0).unwrap();
        }
        let first = taker.take().unwrap();
        assert_eq!(
            [sender.take_back(), sender.take_back(), sender.take_back()],
            [Some((3, 0)), Some((2, 0)), None]
        );
        sender.push(4, 0).unwrap();
        drop(first);
        assert_eq!(*taker.take().unwrap(), 4);
        assert_eq!(
            [sender.collect(), sender.collect(), sender.collect()],
            [Some((1, 0)), Some((4, 0)), None]
        );
    }

    #[test]
    fn jobs_in_every_state_are_dropped_once() {
        let drops = Arc::new(AtomicUsize::new(0));
        let (mut sender, mut taker) = lane(8);
        for _ in 0..6 {
            assert!(sender.push(Counted(drops.clone()), 0).is_ok());
        }
        drop(taker.take());
        drop(sender.collect());
        drop(taker.take());
        std::mem::forget(taker.take());
        drop(sender.take_back());
        assert_eq!(drops.load(Ordering::Relaxed), 2);
        drop((sender, taker));
        assert_eq!(drops.load(Ordering::Relaxed), 6);
    }

    proptest! {
        /// One thread plays both ends in any order; a model of two queues says what must come.
        #[test]
        fn a_lane_is_a_queue_whose_end_can_be_taken_back(steps in proptest::collection::vec(0u8..4, 1..300)) {
            let (mut sender, mut taker) = lane::<u64>(4);
            let (mut waiting, mut done) = (std::collections::VecDeque::new(), std::collections::VecDeque::new());
            for (number, step) in (0..).zip(steps) {
                match step {
                    0 => match sender.push(number, 0) {
                        Ok(()) => waiting.push_back(number),
                        Err(job) => {
                            prop_assert_eq!(job, number);
                            prop_assert_eq!(waiting.len() + done.len(), 4);
                        }
                    },
                    1 => {
                        let taken = taker.take().map(|job| *job);
                        prop_assert_eq!(taken, waiting.pop_front());
                        done.extend(taken);
                    }
                    2 => prop_assert_eq!(sender.collect().map(|(job, _)| job), done.pop_front()),
                    _ => prop_assert_eq!(sender.take_back().map(|(job, _)| job), waiting.pop_back()),
                }
            }
        }
    }

    #[test]
    fn every_job_runs_once_while_the_sender_takes_back() {
        let count = 200_000_u64;
        let (mut sender, mut taker) = lane::<Box<u64>>(4);
        std::thread::scope(|scope| {
            let worker = scope.spawn(move || {
                let (mut ran, mut sum) = (0, 0);
                while let Some(job) = wait_for(&mut taker) {
                    ran += 1;
                    sum += job;
                }
                (ran, sum)
            });
            let (mut next, mut collected, mut kept, mut sum) = (1, 0, 0, 0);
            while collected + kept < count {
                if next <= count && sender.push(Box::new(next), 0).is_ok() {
                    next += 1;
                }
                if next % 3 == 0
                    && let Some((job, _)) = sender.take_back()
                {
                    kept += 1;
                    sum += *job;
                }
                while let Some((job, _)) = sender.collect() {
                    assert!(*job > count, "it comes back changed");
                    collected += 1;
                }
            }
            sender.push(Box::new(0), 0).expect("the lane is empty");
            let (ran, ran_sum) = worker.join().unwrap();
            assert_eq!((ran, ran_sum + sum), (collected, count * (count + 1) / 2));
        });

        /// The next job's number; nothing for 0.
        fn wait_for(taker: &mut Taker<Box<u64>>) -> Option<u64> {
            let mut spins = 0_u32;
            loop {
                if let Some(mut job) = taker.take() {
                    let number = **job;
                    **job += 1 << 32;
                    return Some(number).filter(|&number| number > 0);
                }
                spins += 1;
                // Whoever shares the core runs too.
                if spins.is_multiple_of(64) {
                    std::thread::yield_now();
                }
                std::hint::spin_loop();
            }
        }
    }
}
