//! The rings that AF_XDP sockets share with the kernel, and the options that make them: one side of
//! a ring writes entries and a count of them, the other reads entries and counts what it has read.
//!
//! Invariant: an entry is read after the count that covers it, and written before it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{xdp_desc, xdp_mmap_offsets, xdp_ring_offset};

use super::check;
use super::mapping::Mapping;

/// Offsets of the parts of rings in their mappings.
pub(super) struct Offsets(xdp_mmap_offsets);

impl Offsets {
    /// As the kernel says for a socket.
    pub(super) fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        option(fd, libc::XDP_MMAP_OFFSETS).map(Self)
    }

    pub(super) fn receive(&self, fd: BorrowedFd<'_>, len: u32) -> io::Result<Consumer<xdp_desc>> {
        Ring::map(fd, &self.0.rx, (len, libc::XDP_PGOFF_RX_RING)).map(Consumer)
    }

    pub(super) fn transmit(&self, fd: BorrowedFd<'_>, len: u32) -> io::Result<Producer<xdp_desc>> {
        Ring::map(fd, &self.0.tx, (len, libc::XDP_PGOFF_TX_RING)).map(Producer)
    }

    pub(super) fn fill(&self, fd: BorrowedFd<'_>, len: u32) -> io::Result<Producer<u64>> {
        Ring::map(fd, &self.0.fr, (len, libc::XDP_UMEM_PGOFF_FILL_RING as i64)).map(Producer)
    }

    pub(super) fn completion(&self, fd: BorrowedFd<'_>, len: u32) -> io::Result<Consumer<u64>> {
        let place = (len, libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64);
        Ring::map(fd, &self.0.cr, place).map(Consumer)
    }
}

/// A ring into which this process writes.
#[derive(Debug)]
pub(super) struct Producer<T>(Ring<T>);

/// A ring from which this process reads.
#[derive(Debug)]
pub(super) struct Consumer<T>(Ring<T>);

impl<T: Copy> Producer<T> {
    /// True if so many entries may be pushed.
    #[inline]
    pub(super) fn has_room(&mut self, count: u32) -> bool {
        let ring = &mut self.0;
        let len = ring.mask + 1;
        if len - ring.own.wrapping_sub(ring.other) < count {
            ring.other = ring.consumed().load(Ordering::Acquire);
        }
        len - ring.own.wrapping_sub(ring.other) >= count
    }

    /// Writes an entry, which the kernel sees after [`Producer::submit`].
    ///
    /// # Panics
    ///
    /// When there is no room.
    #[inline]
    pub(super) fn push(&mut self, entry: T) {
        assert!(self.has_room(1), "a ring has a place for each entry that there is");
        let ring = &mut self.0;
        let place = ring.place(ring.own);
        // SAFETY: the place is in the mapping, and the kernel, which has read what was there, reads
        // it again only after the count says so.
        unsafe { place.write(entry) };
        ring.own = ring.own.wrapping_add(1);
    }

    /// Lets the kernel see what was pushed.
    #[inline]
    pub(super) fn submit(&mut self) {
        self.0.produced().store(self.0.own, Ordering::Release);
    }

    /// Entries that the kernel has not read.
    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.0.own.wrapping_sub(self.0.consumed().load(Ordering::Acquire))
    }

    /// True if the kernel wants a call before it looks.
    #[inline]
    pub(super) fn wants_wakeup(&self) -> bool {
        // SAFETY: the place is in the mapping, aligned, and an integer whatever the kernel writes.
        let flags = unsafe { self.0.flags.as_ref() };
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Entries that the kernel has not read, once it reads no more.
    pub(super) fn take_back(&mut self) -> Vec<T> {
        let ring = &mut self.0;
        let consumed = ring.consumed().load(Ordering::Acquire);
        let count = ring.own.wrapping_sub(consumed).min(ring.mask + 1);
        // SAFETY: the places are in the mapping, and were written by this side.
        (0..count).map(|index| unsafe { ring.place(consumed.wrapping_add(index)).read() }).collect()
    }
}

impl<T: Copy> Consumer<T> {
    /// Reads the next entry, if there is one. Its place is the kernel's again after
    /// [`Consumer::release`].
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        let ring = &mut self.0;
        if ring.own == ring.other {
            ring.other = ring.produced().load(Ordering::Acquire);
            if ring.own == ring.other {
                return None;
            }
        }
        // SAFETY: the place is in the mapping; the kernel has written it before the count, and
        // writes it again only after it is released.
        let entry = unsafe { ring.place(ring.own).read() };
        ring.own = ring.own.wrapping_add(1);
        Some(entry)
    }

    /// Lets the kernel write where entries have been read.
    #[inline]
    pub(super) fn release(&mut self) {
        self.0.consumed().store(self.0.own, Ordering::Release);
    }
}

/// A ring in shared memory.
#[derive(Debug)]
struct Ring<T> {
    /// Holds what the pointers are to.
    _mapping: Mapping,
    /// Entries written.
    producer: NonNull<AtomicU32>,
    /// Entries read.
    consumer: NonNull<AtomicU32>,
    /// Flags that say what the kernel wants.
    flags: NonNull<AtomicU32>,
    /// The first entry.
    entries: NonNull<T>,
    /// Entries that there are places for, less one: they are a power of two.
    mask: u32,
    /// This side's count, which the other has been told of or will be.
    own: u32,
    /// The other side's, as it was last read.
    other: u32,
}

// SAFETY: the pointers are to the mapping that it owns; one thread at a time has this side of it,
// and the kernel keeps to the ring's protocol from any.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: through a shared reference only atomics are read.
unsafe impl<T: Sync> Sync for Ring<T> {}

impl<T: Copy> Ring<T> {
    fn map(
        fd: BorrowedFd<'_>,
        offset: &xdp_ring_offset,
        (len, page): (u32, i64),
    ) -> io::Result<Self> {
        assert!(len.is_power_of_two(), "a ring has a power of two of entries");
        let mapping_len = offset.desc as usize + len as usize * size_of::<T>();
        let mapping = Mapping::of(fd, mapping_len, page)?;
        Ok(Self::in_mapping(mapping, offset, len))
    }

    fn in_mapping(mapping: Mapping, offset: &xdp_ring_offset, len: u32) -> Self {
        let ends = [offset.producer, offset.consumer, offset.flags].map(|at| at as usize + 4);
        let end = offset.desc as usize + len as usize * size_of::<T>();
        assert!(
            ends.into_iter().chain([end]).all(|end| end <= mapping.len()),
            "within the mapping"
        );
        // SAFETY: by the assertion within the mapping.
        let at = |offset: u64| unsafe { mapping.start().add(offset as usize) };
        let (producer, consumer) = (at(offset.producer).cast(), at(offset.consumer).cast());
        let (flags, entries) = (at(offset.flags).cast(), at(offset.desc).cast());
        assert!(
            [producer, consumer, flags].into_iter().all(NonNull::is_aligned)
                && NonNull::<T>::is_aligned(entries),
            "the kernel lays rings out as C does"
        );
        let mut ring = Self {
            _mapping: mapping,
            producer,
            consumer,
            flags,
            entries,
            mask: len - 1,
            own: 0,
            other: 0,
        };
        ring.own = ring.consumed().load(Ordering::Relaxed);
        ring.other = ring.own;
        ring
    }

    #[inline]
    fn produced(&self) -> &AtomicU32 {
        // SAFETY: within the mapping, aligned, and an integer whatever the kernel writes.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumed(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    /// The place of an entry by its number.
    #[inline]
    fn place(&self, number: u32) -> NonNull<T> {
        // SAFETY: masked, it is one of the places in the mapping.
        unsafe { self.entries.add((number & self.mask) as usize) }
    }
}

/// Sets an option of AF_XDP, whose value the kernel takes as plain bytes.
pub(super) fn set_option<T>(fd: BorrowedFd<'_>, name: i32, value: &T) -> io::Result<()> {
    let len = size_of_val(value) as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the value outlives the call and `len` is its size.
    let returned = unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, name, value, len) };
    check(returned as isize).map(|_| ())
}

/// Reads an option of AF_XDP: a struct of integers, of which an older kernel may fill a part.
pub(super) fn option<T: Copy>(fd: BorrowedFd<'_>, name: i32) -> io::Result<T> {
    // SAFETY: the types that this module asks for are structs of integers, which zeros are valid
    // for.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut len = size_of::<T>() as libc::socklen_t;
    let place = (&raw mut value).cast();
    // SAFETY: both places outlive the call and `len` is the size of `value`.
    let returned =
        unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, name, place, &raw mut len) };
    check(returned as isize).map(|_| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFSET: xdp_ring_offset =
        xdp_ring_offset { producer: 0, consumer: 64, desc: 192, flags: 128 };

    /// Both sides of a ring of four, in one memory.
    fn both() -> (Producer<u64>, Consumer<u64>) {
        use std::os::fd::{AsFd, FromRawFd, OwnedFd};
        // SAFETY: the name ends with a zero, and the descriptor is new and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"ring".as_ptr(), 0)) };
        std::fs::File::from(fd.try_clone().expect("a copy")).set_len(4096).expect("memory");
        let side = || Ring::map(fd.as_fd(), &OFFSET, (4, 0)).expect("a mapping");
        (Producer(side()), Consumer(side()))
    }

    #[test]
    fn entries_are_seen_once_submitted_and_in_order() {
        let (mut producer, mut consumer) = both();
        producer.push(7);
        producer.push(8);
        assert_eq!(consumer.pop(), None);
        producer.submit();
        assert_eq!([consumer.pop(), consumer.pop(), consumer.pop()], [Some(7), Some(8), None]);
    }

    #[test]
    fn a_full_ring_has_room_once_entries_are_released() {
        let (mut producer, mut consumer) = both();
        (0..4).for_each(|entry| producer.push(entry));
        producer.submit();
        assert!(!producer.has_room(1));
        assert_eq!((consumer.pop(), producer.has_room(1)), (Some(0), false));
        consumer.release();
        assert_eq!((producer.has_room(1), producer.has_room(2), producer.len()), (true, false, 3));
    }

    #[test]
    fn counts_wrap() {
        let (mut producer, mut consumer) = both();
        for ring in [&mut producer.0, &mut consumer.0] {
            (ring.own, ring.other) = (u32::MAX - 1, u32::MAX - 1);
        }
        producer.submit();
        consumer.release();
        for entry in 0..100 {
            producer.push(entry);
            producer.submit();
            assert_eq!(consumer.pop(), Some(entry));
            consumer.release();
        }
        assert!(producer.has_room(4) && producer.len() == 0);
    }

    #[test]
    fn what_was_not_read_is_taken_back() {
        let (mut producer, mut consumer) = both();
        (0..3).for_each(|entry| producer.push(entry));
        producer.submit();
        consumer.pop();
        consumer.release();
        assert_eq!(producer.take_back(), [1, 2]);
    }
}
