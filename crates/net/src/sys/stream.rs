//! Bytes of a connection, with timestamps: what read and write cannot carry.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};

use socket2::{MsgHdr, SockRef};

use super::check;
use super::control::{Control, TIMESTAMPING};
use super::slot::Slot;
use crate::stamps::Stamps;

/// Reads bytes, and when the last of their packets was received.
#[inline]
pub(crate) fn receive_stamped(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<(usize, Stamps)> {
    let mut slot = Slot::EMPTY;
    // SAFETY: the header is used in this function alone, which `slot` and `into` outlive.
    let mut header = unsafe { Slot::header(&raw mut slot, into.as_mut_ptr(), into.len()) }.msg_hdr;
    // SAFETY: the header points to `slot` and `into`, which outlive the call; `slot` is only read
    // after it.
    let len = check(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) })?;
    Ok((len, slot.control.stamps(header.msg_controllen as _)))
}

/// Writes bytes, whose last one is to be stamped as `flags` say (SOF_TIMESTAMPING_TX_*).
#[inline]
pub(crate) fn send_stamped(fd: BorrowedFd<'_>, bytes: &[u8], flags: u32) -> io::Result<usize> {
    let mut control = Control::EMPTY;
    let used = control.push(0, TIMESTAMPING, &flags.to_ne_bytes());
    let part = [IoSlice::new(bytes)];
    let message = MsgHdr::new().with_buffers(&part).with_control(control.bytes(used));
    SockRef::from(&fd).sendmsg(&message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
}
