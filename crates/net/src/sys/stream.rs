//! Bytes of a connection, with timestamps: what read and write cannot carry.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;
use super::control::{Control, TIMESTAMPING};
use crate::stamps::Stamps;

/// Reads bytes, and when the last of their packets was received.
#[inline]
pub(crate) fn receive_stamped(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<(usize, Stamps)> {
    let mut control = Control::EMPTY;
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut header = header(&mut part, &mut control, Control::CAPACITY);
    // SAFETY: the header points to `into`, `part` and `control`, which outlive the call; `control`
    // is only read after it.
    let len = check(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) })?;
    Ok((len, control.stamps(header.msg_controllen as _)))
}

/// Writes bytes, whose last one is to be stamped as `flags` say (SOF_TIMESTAMPING_TX_*).
#[inline]
pub(crate) fn send_stamped(fd: BorrowedFd<'_>, bytes: &[u8], flags: u32) -> io::Result<usize> {
    let mut control = Control::EMPTY;
    let used = control.push(0, TIMESTAMPING, &flags.to_ne_bytes());
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let header = header(&mut part, &mut control, used);
    // SAFETY: the header points to `bytes`, `part` and `control`, which outlive the call; the
    // kernel only reads them.
    check(unsafe {
        libc::sendmsg(fd.as_raw_fd(), &raw const header, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    })
}

fn header(part: &mut libc::iovec, control: &mut Control, used: usize) -> libc::msghdr {
    // SAFETY: all bits zero is a valid header: null pointers, no lengths.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr();
    header.msg_controllen = used as _;
    header
}
