//! Readiness of many descriptors (epoll), level-triggered: what is left unread is told again at the
//! next call, so that a caller may stop wherever its turn's work ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};

use super::check;

/// A set of descriptors, each under a number of the caller's.
pub(crate) struct Epoll {
    instance: File,
    ready: Vec<libc::epoll_event>,
}

/// What a descriptor is waited for. Errors are always told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Errors alone.
    Nothing,
    /// Something to read, or the peer's end.
    Read,
    /// Room to write.
    Write,
    /// Either.
    ReadWrite,
}

/// A descriptor that something happened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    /// The caller's number.
    pub(crate) key: u64,
    /// There is something to read, the peer has ended, or the descriptor has failed: a read tells
    /// which.
    pub(crate) is_readable: bool,
    /// There is room to write, or the descriptor has failed.
    pub(crate) is_writable: bool,
    /// The error queue holds something, or the descriptor has failed.
    pub(crate) has_error: bool,
}

impl Epoll {
    /// An empty set that tells of up to `ready_max` descriptors a call.
    pub(crate) fn new(ready_max: usize) -> io::Result<Self> {
        // SAFETY: the call takes no pointer.
        let returned = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        check(returned as isize)?;
        // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
        let instance = unsafe { File::from_raw_fd(returned) };
        Ok(Self {
            instance,
            ready: vec![libc::epoll_event { events: 0, u64: 0 }; ready_max.max(1)],
        })
    }

    /// Adds a descriptor. Closing it removes it.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, key: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, key, interest)
    }

    /// Changes what a descriptor is waited for.
    pub(crate) fn modify(
        &self,
        fd: BorrowedFd<'_>,
        key: u64,
        interest: Interest,
    ) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, key, interest)
    }

    /// Asks what is ready, without waiting; returns how many descriptors are.
    #[inline]
    pub(crate) fn poll(&mut self) -> io::Result<usize> {
        let (events, len) = (self.ready.as_mut_ptr(), self.ready.len() as i32);
        // SAFETY: the array has the length given and is borrowed mutably for the call.
        let returned = unsafe { libc::epoll_wait(self.instance.as_raw_fd(), events, len, 0) };
        match check(returned as isize) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            other => other,
        }
    }

    /// A descriptor that the last call found.
    #[inline]
    pub(crate) fn ready(&self, index: usize) -> Ready {
        let libc::epoll_event { events, u64: key } = self.ready[index];
        let has = |flags: i32| events & flags as u32 != 0;
        Ready {
            key,
            is_readable: has(libc::EPOLLIN | libc::EPOLLHUP),
            is_writable: has(libc::EPOLLOUT | libc::EPOLLHUP),
            has_error: has(libc::EPOLLERR),
        }
    }

    fn control(
        &self,
        operation: i32,
        fd: BorrowedFd<'_>,
        key: u64,
        interest: Interest,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest.flags(), u64: key };
        // SAFETY: the event outlives the call.
        let returned = unsafe {
            libc::epoll_ctl(self.instance.as_raw_fd(), operation, fd.as_raw_fd(), &raw mut event)
        };
        check(returned as isize).map(|_| ())
    }
}

impl AsFd for Epoll {
    /// Readable while something in the set is ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.instance.as_fd()
    }
}

impl std::fmt::Debug for Epoll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Epoll").field("ready_max", &self.ready.len()).finish()
    }
}

impl Interest {
    fn flags(self) -> u32 {
        let flags = match self {
            Self::Nothing => 0,
            Self::Read => libc::EPOLLIN,
            Self::Write => libc::EPOLLOUT,
            Self::ReadWrite => libc::EPOLLIN | libc::EPOLLOUT,
        };
        flags as u32
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_is_unread_is_told_again() {
        let (mut near, far) = UnixStream::pair().expect("a pair");
        let mut epoll = Epoll::new(4).expect("a set");
        epoll.add(far.as_fd(), 7, Interest::Read).expect("an entry");
        assert_eq!(epoll.poll().expect("a call"), 0);
        near.write_all(&[1]).expect("a byte");
        for _ in 0..2 {
            assert_eq!(epoll.poll().expect("a call"), 1);
            let expected =
                Ready { key: 7, is_readable: true, is_writable: false, has_error: false };
            assert_eq!(epoll.ready(0), expected);
        }
    }

    #[test]
    fn an_interest_is_changed() {
        let (_near, far) = UnixStream::pair().expect("a pair");
        let mut epoll = Epoll::new(4).expect("a set");
        epoll.add(far.as_fd(), 7, Interest::Nothing).expect("an entry");
        assert_eq!(epoll.poll().expect("a call"), 0);
        epoll.modify(far.as_fd(), 7, Interest::Write).expect("an entry");
        assert_eq!(epoll.poll().expect("a call"), 1);
        assert!(epoll.ready(0).is_writable);
    }
}
