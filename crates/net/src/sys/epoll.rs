//! Sets of descriptors (epoll) that are waited for to the nanosecond, also with descriptors of
//! other owners.

use std::io;
use std::mem::MaybeUninit;
#[cfg(feature = "tcp")]
use std::os::fd::RawFd;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{check, poll};

/// Waits until a descriptor of the set is ready or `timeout_ns` have passed, `None` for never;
/// returns those that are. A signal ends the wait with none.
#[inline]
pub(crate) fn wait<'a>(
    set: BorrowedFd<'_>,
    events: &'a mut [MaybeUninit<libc::epoll_event>],
    timeout_ns: Option<u64>,
) -> io::Result<&'a [libc::epoll_event]> {
    let count = match wait_precisely(set, events, timeout_ns) {
        // Before Linux 5.11 epoll counts milliseconds, and some filters of containers know of
        // nothing newer.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            let mut fds = [libc::pollfd { fd: set.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
            if timeout_ns != Some(0) && poll(&mut fds, timeout_ns)? == 0 {
                return Ok(&[]);
            }
            wait_not(set, events)
        }
        other => other,
    };
    match count {
        Ok(count) => {
            let found = &events[..count];
            // SAFETY: the kernel has written as many.
            Ok(unsafe { std::slice::from_raw_parts(found.as_ptr().cast(), found.len()) })
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(&[]),
        Err(error) => Err(error),
    }
}

fn wait_precisely(
    set: BorrowedFd<'_>,
    events: &mut [MaybeUninit<libc::epoll_event>],
    timeout_ns: Option<u64>,
) -> io::Result<usize> {
    let timeout = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    });
    let timeout_ptr = timeout.as_ref().map_or(std::ptr::null(), |timeout| &raw const *timeout);
    // SAFETY: the array has the length given, the timeout outlives the call, and no signal mask is
    // passed. musl has no function for it.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            set.as_raw_fd(),
            events.as_mut_ptr(),
            events.len() as libc::c_int,
            timeout_ptr,
            std::ptr::null::<libc::sigset_t>(),
            0_usize,
        )
    };
    check(returned as isize)
}

fn wait_not(
    set: BorrowedFd<'_>,
    events: &mut [MaybeUninit<libc::epoll_event>],
) -> io::Result<usize> {
    // SAFETY: the array has the length given.
    let returned = unsafe {
        libc::epoll_wait(
            set.as_raw_fd(),
            events.as_mut_ptr().cast(),
            events.len() as libc::c_int,
            0,
        )
    };
    check(returned as isize)
}

/// Has a set tell of another owner's descriptor under a key, or tell of other events of it. Closing
/// it removes it.
///
/// # Errors
///
/// What the kernel says, also of a number that is no descriptor.
#[cfg(feature = "tcp")]
pub(crate) fn watch(set: BorrowedFd<'_>, (fd, events): (RawFd, i16), key: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events: events as u32, u64: key };
    let mut control = |operation| {
        // SAFETY: the event outlives the call, and numbers that are no descriptors are refused.
        check(unsafe { libc::epoll_ctl(set.as_raw_fd(), operation, fd, &mut event) } as isize)
    };
    match control(libc::EPOLL_CTL_MOD) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
            control(libc::EPOLL_CTL_ADD)?;
        }
        done => _ = done?,
    }
    Ok(())
}
