//! Memory that is shared with the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

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

    /// What a descriptor has at an offset.
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

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, of this length, and nothing that was made of it outlives
        // its owner. It cannot fail.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
