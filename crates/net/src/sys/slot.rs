//! The memory that headers of messages point to.

use super::address::SockAddr;
use super::control::Control;

/// The memory that one header points to, besides the payload.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    /// The other end.
    pub(super) name: SockAddr,
    /// Control messages.
    pub(super) control: Control,
    /// The payload's place.
    pub(super) part: libc::iovec,
}

impl Slot {
    /// Nothing.
    pub(super) const EMPTY: Self = Self {
        name: SockAddr::NONE,
        control: Control::EMPTY,
        part: libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 },
    };

    /// A header that points to `slot` and to `len` bytes at `payload`.
    ///
    /// # Safety
    ///
    /// `slot` is valid for writes, and both live as long as the header is used.
    pub(super) unsafe fn header(slot: *mut Self, payload: *mut u8, len: usize) -> libc::mmsghdr {
        // SAFETY: all bits zero is a valid header: null pointers, no lengths.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        // SAFETY: the caller vouches for `slot`.
        unsafe {
            (*slot).part = libc::iovec { iov_base: payload.cast(), iov_len: len };
            header.msg_hdr.msg_name = (&raw mut (*slot).name).cast();
            header.msg_hdr.msg_control = (&raw mut (*slot).control).cast();
            header.msg_hdr.msg_iov = &raw mut (*slot).part;
        }
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_namelen = SockAddr::CAPACITY as _;
        header.msg_hdr.msg_controllen = Control::CAPACITY as _;
        header
    }
}
