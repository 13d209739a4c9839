//! Memory of whole pages: shared with the kernel, or a buffer of which most is seldom used.

use std::alloc::{Layout, handle_alloc_error};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Mutex;

/// A mapping, for as long as this lives.
#[derive(Debug)]
pub(super) struct Mapping {
    /// Its first byte, aligned to a page.
    start: NonNull<u8>,
    /// Bytes of it.
    len: usize,
}

// SAFETY: it owns the mapping, which any thread may use; who reads and writes it sees to the rest.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory of this process's own.
    pub(super) fn anonymous(len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, (-1, 0))
    }

    /// Mapping of what a descriptor has at an offset.
    pub(super) fn of(fd: BorrowedFd<'_>, len: usize, offset: i64) -> io::Result<Self> {
        Self::map(len, libc::MAP_SHARED | libc::MAP_POPULATE, (fd.as_raw_fd(), offset))
    }

    fn map(len: usize, flags: i32, (fd, offset): (i32, i64)) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of others.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, offset) };
        let start = NonNull::new(start).filter(|start| start.as_ptr() != libc::MAP_FAILED);
        let start = start.ok_or_else(io::Error::last_os_error)?.cast();
        Ok(Self { start, len })
    }

    /// Its first byte.
    #[inline]
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes of it.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// Memory of this process's own, of which pages are taken from the machine once they are used. An
/// allocator would clear all of it where it has had the memory before, which costs more than to
/// open the rest of a client. So its bytes are zero or what an earlier one has left.
#[derive(Debug)]
pub(crate) struct Arena(Option<Mapping>);

impl Arena {
    /// Arena of `len` bytes, more than none. Without memory the process ends, as where any other
    /// buffer has none.
    pub(crate) fn new(len: usize) -> Self {
        let mapping = spare(len).unwrap_or_else(|| {
            Mapping::anonymous(len).unwrap_or_else(|_| {
                handle_alloc_error(Layout::array::<u8>(len).unwrap_or(Layout::new::<u8>()))
            })
        });
        Self(Some(mapping))
    }

    #[inline]
    fn mapping(&self) -> &Mapping {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

/// A mapping of this length that waits.
fn spare(len: usize) -> Option<Mapping> {
    // Where it is locked the next one has its own: so a child of fork waits for nobody.
    let mut spares = SPARES.try_lock().ok()?;
    let at = spares.iter().position(|spare| spare.len == len)?;
    Some(spares.swap_remove(at))
}

/// Mappings that were given back, for a client that comes after another: the kernel would clear
/// their pages.
static SPARES: Mutex<Vec<Mapping>> = Mutex::new(Vec::new());

/// Most of them, and how long each is at most.
const SPARES_MAX: usize = 2;
const SPARE_LEN_MAX: usize = 1 << 23;

impl Deref for Arena {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let mapping = self.mapping();
        // SAFETY: the mapping has so many bytes, all initialized, and is borrowed with this.
        unsafe { std::slice::from_raw_parts(mapping.start.as_ptr(), mapping.len) }
    }
}

impl DerefMut for Arena {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let mapping = self.mapping();
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(mapping.start.as_ptr(), mapping.len) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let spare = self.0.take().filter(|mapping| mapping.len <= SPARE_LEN_MAX);
        if let (Some(spare), Ok(mut spares)) = (spare, SPARES.try_lock())
            && spares.len() < SPARES_MAX
        {
            spares.push(spare);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, of this length, and nothing that was made of it
        // outlives its owner. It cannot fail.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
