//! Sending: one datagram by sendto, a GSO batch by sendmsg, a burst by sendmmsg.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::address::SockAddr;
use super::check;
use super::control::{PKTINFO_V4, PKTINFO_V6, TIMESTAMPING};
use super::options::set_int_option;
use super::slot::Slot;

/// A datagram or a GSO batch, whose bytes stand in an arena.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// Destination; `None` for the peer that the socket is connected to.
    pub to: Option<SocketAddr>,
    /// Address of this host to leave from; `None` for the socket's, or the route's.
    pub from: Option<IpAddr>,
    /// First byte in the arena.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
    /// Bytes of each datagram of a GSO batch but the last; `len` or more for a single datagram.
    pub segment_len: usize,
    /// The IP header's traffic class (TOS) byte; 0 for a connected socket.
    pub traffic_class: u8,
    /// Transmit stamps that it asks for (SOF_TIMESTAMPING_TX_*); 0 for none.
    pub stamp_flags: u32,
    /// Its name in stamps, which its owner chooses.
    pub tag: u64,
}

impl Outgoing {
    /// Several datagrams, which only the kernel's segmentation sends in one message.
    #[inline]
    pub(crate) fn is_batch(&self) -> bool {
        self.len > self.segment_len
    }
}

/// A GSO batch in pieces: each datagram is the next header and the next piece of the payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    /// The headers, one after the other.
    pub(crate) headers: &'a [u8],
    /// Bytes of each.
    pub(crate) header_len: usize,
    /// The payload, of which all datagrams but the last have as much as fits their length.
    pub(crate) payload: &'a [u8],
}

/// Headers for a burst, allocated once and written anew for each call.
pub struct SendBatch {
    /// One a message; written anew for each call.
    headers: Vec<libc::mmsghdr>,
    /// Names and control messages, one a message.
    slots: Vec<Slot>,
    /// Headers and pieces of a GSO batch that is gathered, while it is sent.
    parts: Vec<libc::iovec>,
    /// Values that messages need not say.
    given: Given,
}

/// Values that the socket gives to messages that do not say theirs.
#[derive(Clone, Copy, Debug, Default)]
struct Given {
    /// The traffic class.
    class: u8,
    /// Peer that it is connected to: messages there go without a name, for which the kernel would
    /// look the route up.
    peer: Option<SocketAddr>,
}

impl SendBatch {
    /// Headers for up to `count` messages a call.
    pub fn new(count: usize) -> Self {
        assert!(count > 0, "a burst holds something");
        // SAFETY: all bits zero is a valid header: null pointers, no lengths.
        let headers = (0..count).map(|_| unsafe { std::mem::zeroed() }).collect();
        Self {
            headers,
            slots: vec![Slot::EMPTY; count],
            parts: Vec::with_capacity(PARTS_MAX),
            given: Given::default(),
        }
    }

    /// Takes note whom the socket is connected to now.
    pub(crate) fn set_peer(&mut self, peer: Option<SocketAddr>) {
        self.given.peer = peer;
    }

    /// Peer that the socket is connected to.
    #[inline]
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.given.peer
    }

    /// The traffic class of messages that do not say theirs.
    #[inline]
    pub(crate) fn class(&self) -> u8 {
        self.given.class
    }

    /// Gives messages that do not say theirs another traffic class; of no effect where the kernel
    /// does not take it.
    pub(crate) fn set_class(&mut self, fd: BorrowedFd<'_>, class: u8, is_ipv6: bool) {
        let option = if is_ipv6 { TOS_V6 } else { TOS_V4 };
        if set_int_option(fd, option, i32::from(class)).is_ok() {
            self.given.class = class;
        }
    }

    /// Sends messages in order until one fails; returns how many were sent, or the error of the
    /// first.
    ///
    /// # Panics
    ///
    /// When `messages` is empty or longer than the batch, or a message is not inside the arena.
    #[inline]
    pub fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        arena: &[u8],
        messages: &[Outgoing],
    ) -> io::Result<usize> {
        assert!(
            !messages.is_empty() && messages.len() <= self.headers.len(),
            "between one message and the batch's size"
        );
        for (index, message) in messages.iter().enumerate() {
            let payload = &arena[message.offset..message.offset + message.len];
            // SAFETY: index < messages.len() <= slots.len() = headers.len(), as asserted.
            let (slot, header) = unsafe {
                (self.slots.as_mut_ptr().add(index), self.headers.as_mut_ptr().add(index))
            };
            // SAFETY: both point into the vectors.
            unsafe { Slot::fill(slot, header, (message, payload), self.given) };
        }
        let flags = libc::MSG_DONTWAIT;
        if messages.len() == 1 {
            // SAFETY: the header points to `self.slots` and `arena`, which outlive the call; the
            // kernel only reads.
            let returned = unsafe {
                libc::sendmsg(fd.as_raw_fd(), &raw const (*self.headers.as_ptr()).msg_hdr, flags)
            };
            return check(returned).map(|_| 1);
        }
        let (headers, count) = (self.headers.as_mut_ptr(), messages.len() as u32);
        // SAFETY: the first `count` headers point to `self.slots` and `arena`, which outlive the
        // call.
        check(unsafe { libc::sendmmsg(fd.as_raw_fd(), headers, count, flags as _) } as isize)
    }
}

impl SendBatch {
    /// Sends a GSO batch from where its parts are.
    ///
    /// # Panics
    ///
    /// When it is no GSO batch, or has more datagrams than the kernel takes.
    pub(crate) fn send_parts(
        &mut self,
        fd: BorrowedFd<'_>,
        message: &Outgoing,
        parts: &Parts<'_>,
    ) -> io::Result<()> {
        let piece_len = message.segment_len - parts.header_len;
        let headers = parts.headers.chunks(parts.header_len);
        assert!(message.is_batch() && 2 * headers.len() <= PARTS_MAX, "a GSO batch");
        self.parts.clear();
        for (header, piece) in headers.zip(parts.payload.chunks(piece_len)) {
            self.parts.extend([header, piece].map(part));
        }
        let (slot, header) = (self.slots.as_mut_ptr(), self.headers.as_mut_ptr());
        // SAFETY: a batch has at least one of each, and both point into the vectors.
        unsafe { Slot::fill(slot, header, (message, parts.headers), self.given) };
        let header = &mut self.headers[0].msg_hdr;
        header.msg_iov = self.parts.as_mut_ptr();
        header.msg_iovlen = self.parts.len() as _;
        // SAFETY: the header points to `self.slots` and `self.parts`, and these to `parts`, all of
        // which outlive the call; the kernel only reads.
        check(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const *header, libc::MSG_DONTWAIT) })
            .map(|_| ())
    }
}

fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

// SAFETY: the pointers in headers and parts are only used inside the functions that send, which
// write them first.
unsafe impl Send for SendBatch {}

impl std::fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendBatch").field("messages", &self.headers.len()).finish()
    }
}

/// Sends one datagram without control messages to whom the socket is connected to.
#[inline]
pub(crate) fn send_connected(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    let (data, len) = (bytes.as_ptr().cast(), bytes.len());
    // SAFETY: bytes outlive the call, with the length given; the kernel only reads them.
    check(unsafe { libc::send(fd.as_raw_fd(), data, len, libc::MSG_DONTWAIT) }).map(|_| ())
}

/// Sends one datagram without control messages: the shortest way into the kernel.
#[inline]
pub(crate) fn send_one(fd: BorrowedFd<'_>, bytes: &[u8], to: &SocketAddr) -> io::Result<()> {
    let name = SockAddr::new(to);
    let (data, len, flags) = (bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT);
    // SAFETY: bytes and name outlive the call, with the lengths given; the kernel only reads them.
    check(unsafe { libc::sendto(fd.as_raw_fd(), data, len, flags, name.as_ptr(), name.len()) })
        .map(|_| ())
}

impl Slot {
    /// Writes the slot and the header that sends `message` with it.
    ///
    /// # Safety
    ///
    /// `slot` and `header` are valid for writes.
    #[inline]
    unsafe fn fill(
        slot: *mut Self,
        header: *mut libc::mmsghdr,
        (message, payload): (&Outgoing, &[u8]),
        given: Given,
    ) {
        // SAFETY: the caller vouches for both, and the references end with this function.
        let (slot, header) = unsafe { (&mut *slot, &mut (*header).msg_hdr) };
        let name = message.to.filter(|_| message.to != given.peer);
        if let Some(to) = &name {
            slot.name = SockAddr::new(to);
        }
        slot.part =
            libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() };
        let mut used = 0;
        if message.is_batch() {
            used = slot.control.push(used, SEGMENT, &(message.segment_len as u16).to_ne_bytes());
        }
        if message.traffic_class != given.class {
            let kind = if message.to.is_some_and(|to| to.is_ipv6()) { TOS_V6 } else { TOS_V4 };
            used = slot.control.push(used, kind, &i32::from(message.traffic_class).to_ne_bytes());
        }
        match message.from {
            // The kernel picks the interface by the route, as for any other datagram.
            Some(IpAddr::V4(ip)) => {
                let mut info = [0; size_of::<libc::in_pktinfo>()];
                info[4..8].copy_from_slice(&ip.octets());
                used = slot.control.push(used, PKTINFO_V4, &info);
            }
            Some(IpAddr::V6(ip)) => {
                let mut info = [0; size_of::<libc::in6_pktinfo>()];
                info[..16].copy_from_slice(&ip.octets());
                used = slot.control.push(used, PKTINFO_V6, &info);
            }
            None => {}
        }
        if message.stamp_flags != 0 {
            used = slot.control.push(used, TIMESTAMPING, &message.stamp_flags.to_ne_bytes());
        }
        header.msg_name = if name.is_some() {
            slot.name.as_ptr().cast_mut().cast()
        } else {
            std::ptr::null_mut()
        };
        header.msg_namelen = if name.is_some() { slot.name.len() } else { 0 };
        header.msg_iov = &raw mut slot.part;
        header.msg_iovlen = 1;
        header.msg_control =
            if used == 0 { std::ptr::null_mut() } else { slot.control.as_ptr().cast_mut() };
        header.msg_controllen = used as _;
    }
}

/// A header and a piece for each datagram of the longest GSO batch.
const PARTS_MAX: usize = 128;

const SEGMENT: (i32, i32) = (libc::SOL_UDP, libc::UDP_SEGMENT);
const TOS_V4: (i32, i32) = (libc::IPPROTO_IP, libc::IP_TOS);
const TOS_V6: (i32, i32) = (libc::IPPROTO_IPV6, libc::IPV6_TCLASS);
