//! Completed work of many threads, for the one that began it: a stack without locks, of which the
//! one takes all at once.
//!
//! | step | by | the head |
//! |---|---|---|
//! | push | any thread | the new parcel, which points to what was the head |
//! | take all | the one | nothing; what was there is turned around |
//! | close | the one | closed: pushes hand their parcel back |
//!
//! A parcel is a box of its own and does not move, however many hands it goes through; the one uses
//! it again. Nothing is taken but all of it, so that a head that comes back is no danger: whoever
//! exchanges it for a parcel has that parcel point to it.
//!
//! Invariant: a parcel has one owner, a `Parcel` or the stack, and only its owner reads `next`.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Something that goes from thread to thread and stays where it is in memory.
pub struct Parcel<T>(Box<Node<T>>);

/// Parcels on their way back to the thread that takes them.
pub struct Completions<T> {
    /// The newest, [`Completions::closed`], or null for nothing.
    head: AtomicPtr<Node<T>>,
}

/// Parcels that have been taken, the oldest first.
pub struct Taken<T> {
    /// The next to hand out; null for nothing.
    next: *mut Node<T>,
}

struct Node<T> {
    /// The one pushed before; null while a `Parcel` owns this.
    next: *mut Node<T>,
    /// Contents of the parcel.
    item: T,
}

// SAFETY: `next` is null while a `Parcel` owns the node, so that it owns its item alone.
unsafe impl<T: Send> Send for Parcel<T> {}
// SAFETY: a shared parcel gives shared references to its item and to nothing else.
unsafe impl<T: Sync> Sync for Parcel<T> {}
// SAFETY: whoever shares it can move parcels in and out, as through a channel.
unsafe impl<T: Send> Send for Completions<T> {}
// SAFETY: as above; the head changes hands by exchanges that release and acquire.
unsafe impl<T: Send> Sync for Completions<T> {}

impl<T> Parcel<T> {
    /// A parcel of `item`; it allocates.
    pub fn new(item: T) -> Self {
        Self(Box::new(Node { next: ptr::null_mut(), item }))
    }
}

impl<T> Deref for Parcel<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0.item
    }
}

impl<T> DerefMut for Parcel<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.item
    }
}

impl<T: Send> Completions<T> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()) }
    }

    /// True if there is something to take.
    #[cfg(test)]
    fn has_some(&self) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        !head.is_null() && head != Self::closed()
    }

    /// Hands a parcel over.
    ///
    /// # Errors
    ///
    /// The parcel, when nobody takes any more.
    #[inline]
    pub fn push(&self, parcel: Parcel<T>) -> Result<(), Parcel<T>> {
        let node = Box::into_raw(parcel.0);
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            if head == Self::closed() {
                // SAFETY: the exchange has not given the node away, and `next` is reset.
                let mut node = unsafe { Box::from_raw(node) };
                node.next = ptr::null_mut();
                return Err(Parcel(node));
            }
            // SAFETY: the node is this thread's until an exchange gives it away.
            unsafe { (*node).next = head };
            match self.head.compare_exchange_weak(head, node, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return Ok(()),
                Err(other) => head = other,
            }
        }
    }

    /// Takes all that there is.
    #[inline]
    pub fn take_all(&self) -> Taken<T> {
        let mut head = self.head.load(Ordering::Relaxed);
        // Not a swap: what is closed stays so.
        while !head.is_null() && head != Self::closed() {
            let new = ptr::null_mut();
            match self.head.compare_exchange_weak(head, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(newest) => return Taken::of(newest),
                Err(other) => head = other,
            }
        }
        Taken { next: ptr::null_mut() }
    }

    /// Takes all that there is; whatever is pushed from here on is handed back.
    pub fn close(&self) -> Taken<T> {
        let newest = self.head.swap(Self::closed(), Ordering::Acquire);
        Taken::of(if newest == Self::closed() { ptr::null_mut() } else { newest })
    }

    /// The head of what is closed: an address that no node has, since none is there.
    fn closed() -> *mut Node<T> {
        ptr::dangling_mut::<Node<T>>()
    }
}

impl<T: Send> Default for Completions<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Taken<T> {
    /// The list that an exchange gave to this thread, turned around.
    fn of(mut newest: *mut Node<T>) -> Self {
        let mut oldest = ptr::null_mut();
        while !newest.is_null() {
            prefetch(newest);
            // SAFETY: the exchange gave the whole list to this thread, and what its pushers wrote
            // happened before.
            let below = unsafe { std::mem::replace(&mut (*newest).next, oldest) };
            oldest = newest;
            newest = below;
        }
        Self { next: oldest }
    }
}

impl<T> Iterator for Taken<T> {
    type Item = Parcel<T>;

    #[inline]
    fn next(&mut self) -> Option<Parcel<T>> {
        if self.next.is_null() {
            return None;
        }
        // SAFETY: the list is this iterator's own, and each node is taken out of it once.
        let mut node = unsafe { Box::from_raw(self.next) };
        self.next = std::mem::replace(&mut node.next, ptr::null_mut());
        Some(Parcel(node))
    }
}

impl<T> Drop for Taken<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl<T> Drop for Completions<T> {
    fn drop(&mut self) {
        let newest = *self.head.get_mut();
        if newest != ptr::dangling_mut::<Node<T>>() {
            // Nobody shares it any more: the newest first is as good.
            drop(Taken { next: newest });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Parcel<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Parcel").field(&self.0.item).finish()
    }
}

impl<T> fmt::Debug for Completions<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Completions").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Taken<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Taken").finish_non_exhaustive()
    }
}

/// Begins to load a node that another thread has written, all of its lines at once.
#[inline]
fn prefetch<T>(node: *const Node<T>) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of::<Node<T>>()).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch touches nothing that a program sees, at whichever address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(node.cast::<i8>().wrapping_add(line)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = node;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn taken(completions: &Completions<Arc<u32>>) -> Vec<u32> {
        completions.take_all().map(|parcel| **parcel).collect()
    }

    #[test]
    fn all_come_out_once_in_the_order_of_their_pushes() {
        let completions = Completions::new();
        assert!(!completions.has_some() && taken(&completions).is_empty());
        for number in 0..5 {
            assert!(completions.push(Parcel::new(Arc::new(number))).is_ok());
        }
        assert!(completions.has_some());
        assert_eq!(taken(&completions), [0, 1, 2, 3, 4]);
        assert!(!completions.has_some() && taken(&completions).is_empty());
    }

    #[test]
    fn a_parcel_goes_round_without_moving() {
        let completions = Completions::new();
        let mut parcel = Parcel::new(7);
        let place: *const u32 = &raw const *parcel;
        for _ in 0..3 {
            assert!(completions.push(parcel).is_ok());
            parcel = completions.take_all().next().expect("it was pushed");
            assert_eq!((&raw const *parcel, *parcel), (place, 7));
        }
    }

    #[test]
    fn what_is_closed_hands_back_and_gives_nothing() {
        let completions = Completions::new();
        assert!(completions.push(Parcel::new(1)).is_ok());
        assert_eq!(completions.close().map(|parcel| *parcel).collect::<Vec<_>>(), [1]);
        let refused = completions.push(Parcel::new(2)).expect_err("it is closed");
        assert_eq!(*refused, 2);
        assert!(!completions.has_some() && completions.take_all().next().is_none());
        assert!(completions.close().next().is_none());
        assert!(completions.push(refused).is_err());
    }

    #[test]
    fn what_nobody_takes_is_dropped_once() {
        let item = Arc::new(0);
        let completions = Completions::new();
        for _ in 0..4 {
            assert!(completions.push(Parcel::new(item.clone())).is_ok());
        }
        let mut some = completions.take_all();
        drop(some.next());
        drop(some);
        assert_eq!(Arc::strong_count(&item), 1);
        assert!(completions.push(Parcel::new(item.clone())).is_ok());
        drop(completions);
        assert_eq!(Arc::strong_count(&item), 1);
    }

    #[test]
    fn many_threads_push_and_all_arrives_in_the_order_of_each() {
        const COUNT: u64 = 20_000;
        let completions = Completions::new();
        std::thread::scope(|scope| {
            for pusher in 0..3 {
                let completions = &completions;
                scope.spawn(move || {
                    for number in 0..COUNT {
                        assert!(completions.push(Parcel::new((pusher, number))).is_ok());
                    }
                });
            }
            let mut next = [0; 3];
            while next.iter().sum::<u64>() < 3 * COUNT {
                for parcel in completions.take_all() {
                    let (pusher, number): (usize, u64) = *parcel;
                    assert_eq!(number, next[pusher]);
                    next[pusher] += 1;
                }
                std::thread::yield_now();
            }
        });
    }
}
