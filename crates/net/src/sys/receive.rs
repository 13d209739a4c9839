//! Receiving: one message by recvmsg or up to a batch by recvmmsg, and the socket's error queue.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::address::SockAddr;
use super::check;
use super::control::{Control, PKTINFO_V4, PKTINFO_V6};
use super::mapping::Arena;
use super::slot::Slot;
use crate::stamps::Stamps;

/// Buffers for a batch of messages, allocated once.
///
/// The headers hold pointers into `slots` and `bytes`. Neither is ever resized, and both are
/// read through their `as_ptr`, so that the pointers stay good for as long as the batch lives,
/// wherever it is moved.
pub struct ReceiveBatch {
    /// One a message; they point into the two below.
    headers: Vec<libc::mmsghdr>,
    /// Names and control messages, one a message.
    slots: Vec<Slot>,
    /// Payloads, a stride apart.
    bytes: Arena,
    /// Bytes of the longest message.
    message_len_max: usize,
    /// Headers that the last call may have changed.
    used: usize,
}

/// A received message: a datagram, or a GSO batch of them from one peer.
pub struct Message<'a> {
    /// The sender; `None` when the kernel named nobody that IP knows.
    pub peer: Option<SocketAddr>,
    /// The payload.
    pub bytes: &'a mut [u8],
    /// Bytes of each datagram but the last; all of them when it is a single datagram.
    pub segment_len: usize,
    /// The message was longer than the buffer.
    pub is_truncated: bool,
    /// The control messages beside it.
    pub notes: Notes<'a>,
}

/// The control messages of a received message.
#[derive(Clone, Copy)]
pub struct Notes<'a> {
    /// As the kernel wrote them.
    control: &'a Control,
    /// Bytes of them.
    used: usize,
}

impl Notes<'_> {
    /// Times at which it was received, where the socket has been asked to say so.
    #[inline]
    pub(crate) fn stamps(&self) -> Stamps {
        self.control.stamps(self.used)
    }

    /// The address of this host that it was sent to, where the socket has been asked to say it; for
    /// a broadcast, the one that answers it.
    #[inline]
    pub(crate) fn local_address(&self) -> Option<IpAddr> {
        // An in_pktinfo is the interface, the address of this host and the header's destination; an
        // in6_pktinfo the address and the interface.
        if let Some(data) = self.control.find(self.used, PKTINFO_V4) {
            let ip: [u8; 4] = *data.get(4..)?.first_chunk()?;
            return Some(ip.into());
        }
        let ip: [u8; 16] = *self.control.find(self.used, PKTINFO_V6)?.first_chunk()?;
        // What reaches an IPv6 socket over IPv4 has a mapped address.
        Some(Ipv6Addr::from(ip).to_canonical())
    }

    /// The IP header's traffic class (TOS) byte, where the socket has been asked to say it.
    #[cfg(test)]
    pub(crate) fn traffic_class(&self) -> Option<u8> {
        // IPv4 says it in one byte, IPv6 in four, of which the lowest stands first on the machines
        // that tests run on.
        let kinds = [(libc::IPPROTO_IP, libc::IP_TOS), (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)];
        kinds.into_iter().find_map(|kind| self.control.find(self.used, kind)?.first().copied())
    }
}

/// An entry of the error queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetworkError {
    /// An ICMP message answered one of our datagrams: the system's error number for it, and where
    /// the datagram went.
    Icmp(i32, Option<SocketAddr>),
    /// This host's own account of a send that has already failed.
    Local,
    /// Times at which a marked send left, under the number that the kernel gave it.
    Stamp(u32, Stamps),
}

impl ReceiveBatch {
    /// Buffers for `count` messages of at most `message_len_max` bytes. Pages are only taken from
    /// the machine once used.
    pub fn new(count: usize, message_len_max: usize) -> Self {
        assert!(count > 0 && message_len_max > 0, "a batch holds something");
        let stride = stride(message_len_max);
        let mut bytes = Arena::new(count * stride);
        let mut slots = vec![Slot::EMPTY; count];
        let mut headers = Vec::with_capacity(count);
        for index in 0..count {
            // SAFETY: index < count, so both offsets are inside their memory.
            let (slot, part) =
                unsafe { (slots.as_mut_ptr().add(index), bytes.as_mut_ptr().add(index * stride)) };
            // SAFETY: the slot is inside its vector and nobody else refers to it.
            headers.push(unsafe { Slot::header(slot, part, message_len_max) });
        }
        Self { headers, slots, bytes, message_len_max, used: 0 }
    }

    /// Receives one message, or fails at once with WouldBlock.
    #[inline]
    pub fn receive_one(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.rearm();
        self.used = 1;
        let header = self.headers.as_mut_ptr();
        // SAFETY: the header and what it points to live in `self`, which is borrowed mutably for
        // the call.
        let len = check(unsafe {
            libc::recvmsg(fd.as_raw_fd(), &raw mut (*header).msg_hdr, libc::MSG_DONTWAIT)
        })?;
        self.headers[0].msg_len = len as u32;
        Ok(())
    }

    /// As [`ReceiveBatch::receive_one`], without control messages, which cost a ping-pong 4 %: for
    /// a socket that has been asked for none.
    #[inline]
    pub fn receive_bare(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.rearm();
        let header = &mut self.headers[0];
        // SAFETY: a batch has at least one slot, and nobody else refers to it meanwhile.
        let (name, part) =
            unsafe { (&raw mut (*self.slots.as_mut_ptr()).name, (*self.slots.as_mut_ptr()).part) };
        let mut name_len = SockAddr::CAPACITY as libc::socklen_t;
        // With MSG_TRUNC the kernel returns the length that the datagram has.
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: the part is inside `bytes`, and it and the name live in `self`, which is borrowed
        // mutably for the call; the kernel writes no more of either than the lengths given.
        let len = check(unsafe {
            libc::recvfrom(
                fd.as_raw_fd(),
                part.iov_base,
                part.iov_len,
                flags,
                name.cast(),
                &raw mut name_len,
            )
        })?;
        let is_truncated = len as usize > part.iov_len;
        header.msg_len = len as u32;
        header.msg_hdr.msg_flags = if is_truncated { libc::MSG_TRUNC } else { 0 };
        header.msg_hdr.msg_controllen = 0;
        self.used = 1;
        Ok(())
    }

    /// Receives as many messages as wait, up to the batch's size, or fails at once with WouldBlock.
    #[inline]
    pub fn receive_many(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        self.receive_up_to(fd, self.headers.len())
    }

    /// As [`ReceiveBatch::receive_many`], but at most `count_max` messages, and at least one.
    #[inline]
    pub fn receive_up_to(&mut self, fd: BorrowedFd<'_>, count_max: usize) -> io::Result<usize> {
        self.rearm();
        let count = count_max.clamp(1, self.headers.len());
        self.used = count;
        let (flags, no_timeout) = (libc::MSG_DONTWAIT as _, std::ptr::null_mut());
        // SAFETY: the first `count` headers, which are no more than there are, and what they point
        // to live in `self`, which is borrowed mutably for the call.
        let returned = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as u32,
                flags,
                no_timeout,
            )
        };
        let received = check(returned as isize)?;
        self.used = received;
        Ok(received)
    }

    /// A message of the last receive.
    #[inline]
    pub fn message(&mut self, index: usize) -> Message<'_> {
        let header = &self.headers[index];
        let len = (header.msg_len as usize).min(self.message_len_max);
        // SAFETY: the offset is inside the vector for every header, and the length inside its
        // stride; nobody else refers to it while `self` is borrowed mutably.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(header.msg_hdr.msg_iov.read().iov_base.cast::<u8>(), len)
        };
        // SAFETY: `index` is in bounds, as the line that took the header checked; nobody writes
        // while `self` is borrowed.
        let slot = unsafe { &*self.slots.as_ptr().add(index) };
        let used: usize = header.msg_hdr.msg_controllen as _;
        let segment_len =
            if used == 0 { len } else { slot.control.find(used, GRO).map_or(len, segment_len) };
        let is_truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        Message {
            peer: slot.name.address(),
            bytes,
            segment_len: segment_len.max(1),
            is_truncated,
            notes: Notes { control: &slot.control, used },
        }
    }

    /// All buffers, to send a message back from where it lies.
    pub fn arena(&self) -> &[u8] {
        &self.bytes
    }

    /// Offset of a message in [`ReceiveBatch::arena`].
    pub fn offset(&self, index: usize) -> usize {
        index * stride(self.message_len_max)
    }

    /// Tells the kernel the room for names and control messages again, which it overwrote with what
    /// it used.
    #[inline]
    fn rearm(&mut self) {
        for header in &mut self.headers[..self.used] {
            header.msg_hdr.msg_namelen = SockAddr::CAPACITY as _;
            header.msg_hdr.msg_controllen = Control::CAPACITY as _;
        }
        self.used = 0;
    }
}

// SAFETY: the pointers in the headers point to memory that the batch owns and nobody else knows.
unsafe impl Send for ReceiveBatch {}

impl std::fmt::Debug for ReceiveBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (messages, bytes) = (self.headers.len(), self.bytes.len());
        f.debug_struct("ReceiveBatch").field("messages", &messages).field("bytes", &bytes).finish()
    }
}

/// Takes the oldest entry of the socket's error queue; WouldBlock when there is none.
pub(crate) fn take_error(fd: BorrowedFd<'_>) -> io::Result<NetworkError> {
    let mut slot = Slot::EMPTY;
    let mut payload = [0_u8; 8];
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: slot and payload outlive the header, and nobody else refers to them meanwhile.
    let mut header = unsafe { Slot::header(&raw mut slot, payload.as_mut_ptr(), payload.len()) };
    // SAFETY: the header points to `slot` and `payload`, which outlive the call.
    check(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header.msg_hdr, flags) })?;
    let used = header.msg_hdr.msg_controllen as _;
    let kinds = [(libc::IPPROTO_IP, libc::IP_RECVERR), (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)];
    let data = kinds.into_iter().find_map(|kind| slot.control.find(used, kind));
    let to = slot.name.address();
    Ok(data.map_or(NetworkError::Local, |data| classify(data, to, slot.control.stamps(used))))
}

/// The meaning of a sock_extended_err: four bytes of error number, one of origin, three of other
/// things, four of information (which of the stamps that a send may have it is), four of data (the
/// send's number).
fn classify(data: &[u8], to: Option<SocketAddr>, stamps: Stamps) -> NetworkError {
    let word = |at: usize| data.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    match (data.get(4), word(0), word(8), word(12)) {
        (Some(&libc::SO_EE_ORIGIN_ICMP | &libc::SO_EE_ORIGIN_ICMP6), Some(number), ..) => {
            NetworkError::Icmp(number as i32, to)
        }
        (Some(&libc::SO_EE_ORIGIN_TIMESTAMPING), _, Some(STAMPED_AT_SEND), Some(number)) => {
            NetworkError::Stamp(number, stamps)
        }
        _ => NetworkError::Local,
    }
}

#[inline]
fn segment_len(data: &[u8]) -> usize {
    data.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes)).unsigned_abs() as usize
}

/// Distance between two buffers: an odd number of cache lines, so that the first lines of the
/// batch's buffers, the ones that small datagrams use, do not all fall on one set of the cache.
fn stride(message_len_max: usize) -> usize {
    (message_len_max.div_ceil(CACHE_LINE) | 1) * CACHE_LINE
}

/// SCM_TSTAMP_SND of linux/errqueue.h: the stamp of handing the packet to the device, or of the
/// device.
const STAMPED_AT_SEND: u32 = 0;

const CACHE_LINE: usize = 64;

const GRO: (i32, i32) = (libc::SOL_UDP, libc::UDP_GRO);

#[cfg(test)]
mod tests {
    use super::*;

    /// A sock_extended_err.
    fn extended(number: u32, origin: u8, information: u32, data: u32) -> Vec<u8> {
        let head = number.to_ne_bytes().into_iter().chain([origin, 0, 0, 0]);
        head.chain(information.to_ne_bytes()).chain(data.to_ne_bytes()).collect()
    }

    #[test]
    fn an_error_is_told_from_a_stamp_by_its_origin() {
        let stamps = Stamps { kernel_ns: Some(7), hardware_ns: None };
        // Origins: local 1, ICMP 2, ICMPv6 3, timestamping 4 (linux/errqueue.h); 42 is ENOMSG, 111
        let to = Some(SocketAddr::from(([192, 0, 2, 7], 8000)));
        // ECONNREFUSED.
        for (bytes, expected) in [
            (extended(111, 2, 0, 0), NetworkError::Icmp(111, to)),
            (extended(111, 3, 0, 0), NetworkError::Icmp(111, to)),
            (extended(90, 1, 0, 0), NetworkError::Local),
            (extended(42, 4, 0, 9), NetworkError::Stamp(9, stamps)),
            (extended(42, 4, 1, 9), NetworkError::Local),
            (extended(42, 4, 0, 9)[..14].to_vec(), NetworkError::Local),
            (Vec::new(), NetworkError::Local),
        ] {
            assert_eq!(classify(&bytes, to, stamps), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_stride_is_an_odd_number_of_lines() {
        for len in [1, 64, 1500, 65_536] {
            let stride = stride(len);
            assert!(
                stride >= len && stride.is_multiple_of(CACHE_LINE) && stride / CACHE_LINE % 2 == 1,
                "{len}: {stride}"
            );
        }
    }
}
