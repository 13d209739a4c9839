//! Sending: the burst that is being gathered, and what to do when the kernel does not take it.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use tailcut_proto::node::{GSO_BYTES_MAX, Transmit};

use super::config::SegmentedSend;
use super::receive::{Account, take_errors};
use crate::sys::{self, Outgoing};

/// Datagrams that wait for the burst to leave.
///
/// Invariant: after [`Queue::space`] there is room for the longest GSO batch and for one more
/// message.
#[derive(Debug)]
pub(super) struct Queue {
    /// Bytes of all messages, and space for the next.
    arena: sys::Arena,
    /// Bytes of `arena` that belong to `messages`.
    used: usize,
    /// The burst so far, in order; each inside `arena`.
    messages: Vec<Outgoing>,
    /// Messages at which the burst leaves.
    burst_max: usize,
    /// Stamps that transmits with a token ask for; 0 on a port without stamps.
    stamp_flags: u32,
}

impl Queue {
    pub(super) fn new(burst_max: usize) -> Self {
        let messages = Vec::with_capacity(burst_max + SEGMENTS_MAX);
        Self { arena: sys::Arena::new(ARENA_LEN), used: 0, messages, burst_max, stamp_flags: 0 }
    }

    /// Lets transmits with a token ask for transmit stamps.
    pub(super) fn set_stamp_flags(&mut self, stamp_flags: u32) {
        self.stamp_flags = stamp_flags;
    }

    #[inline]
    pub(super) fn space(&mut self) -> &mut [u8] {
        &mut self.arena[self.used..self.used + GSO_BYTES_MAX]
    }

    /// Offset of the space in [`Queue::bytes`].
    pub(super) fn space_at(&self) -> usize {
        self.used
    }

    /// Bytes written to spaces, also after they have left.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.arena
    }

    /// Writes datagrams to the space of an empty queue, each a header and a piece of `payload`:
    /// lengths of headers and of datagrams.
    #[cold]
    pub(super) fn join(
        &mut self,
        headers: Range<usize>,
        (header_len, segment_len): (usize, usize),
        payload: &[u8],
    ) {
        let headers = self.arena[headers].to_vec();
        let pieces = payload.chunks(segment_len - header_len);
        let rooms = self.arena.chunks_mut(segment_len);
        for ((header, piece), room) in headers.chunks(header_len).zip(pieces).zip(rooms) {
            room[..header_len].copy_from_slice(header);
            room[header_len..header_len + piece.len()].copy_from_slice(piece);
        }
    }

    /// Queues what was written to the space; returns whether the burst must leave before there is
    /// space again.
    #[inline]
    pub(super) fn push(&mut self, transmit: &Transmit, segmented_send: SegmentedSend) -> bool {
        assert!(transmit.len <= GSO_BYTES_MAX, "the transmit fits the space it was written to");
        let mut message = outgoing(transmit, self.used);
        message.stamp_flags = if transmit.token == 0 { 0 } else { self.stamp_flags };
        self.used += transmit.len.next_multiple_of(ALIGNMENT);
        let is_batch = message.is_batch();
        if !is_batch
            || (segmented_send == SegmentedSend::On && transmit.datagram_count() <= SEGMENTS_MAX)
        {
            self.messages.push(message);
        } else {
            self.messages.extend(datagrams(&message));
        }
        is_batch
            || self.messages.len() >= self.burst_max
            || self.used + GSO_BYTES_MAX > self.arena.len()
    }

    /// Hands the burst to `send` and drops it.
    #[inline]
    pub(super) fn flush(&mut self, mut send: impl FnMut(&[u8], &[Outgoing])) {
        for burst in self.messages.chunks(self.burst_max) {
            send(&self.arena, burst);
        }
        self.messages.clear();
        self.used = 0;
    }
}

/// The sending half of a port.
#[derive(Debug)]
pub(super) struct Sender {
    /// Headers of a burst.
    batch: sys::SendBatch,
    /// Off when it was never wanted, or from the first GSO batch on that the kernel refused.
    segmented_send: SegmentedSend,
    /// As [`UdpConfig::send_wait_ns`](super::udp::UdpConfig::send_wait_ns).
    send_wait_ns: u64,
    /// The last wait for room was in vain: the next datagrams do not wait too, or a burst would
    /// stall for 64 waits.
    is_congested: bool,
    /// Tokens of the marked messages that the kernel has taken, in order, until somebody asks.
    marked: Vec<u64>,
    /// The traffic class of the last lone datagrams that had another than the socket, and how many.
    newcomer: (u8, u32),
}

impl Sender {
    pub(super) fn new(burst_max: usize, send_wait_ns: u64) -> Self {
        let batch = sys::SendBatch::new(burst_max);
        Self {
            batch,
            segmented_send: SegmentedSend::Off,
            send_wait_ns,
            is_congested: false,
            marked: Vec::new(),
            newcomer: (0, 0),
        }
    }

    pub(super) fn set_segmented_send(&mut self, segmented_send: SegmentedSend) {
        self.segmented_send = segmented_send;
    }

    /// Takes note whom the socket is connected to.
    pub(super) fn set_peer(&mut self, peer: Option<SocketAddr>) {
        self.batch.set_peer(peer);
    }

    #[inline]
    pub(super) fn segmented_send(&self) -> SegmentedSend {
        self.segmented_send
    }

    /// Takes the tokens of the marked messages that the kernel has taken since the last call, in
    /// order.
    #[inline]
    pub(super) fn marked(&mut self) -> impl Iterator<Item = u64> {
        self.marked.drain(..)
    }

    #[inline]
    fn count_sent(&mut self, message: &Outgoing, account: &mut Account) {
        count_sent(message, account);
        if message.stamp_flags != 0 {
            self.marked.push(message.tag);
        }
    }

    /// Sends a GSO batch from where its parts are, or tells that the kernel did not take it.
    pub(super) fn send_attached(
        &mut self,
        fd: BorrowedFd<'_>,
        transmit: &Transmit,
        parts: &sys::Parts<'_>,
        account: &mut Account,
    ) -> bool {
        let message = outgoing(transmit, 0);
        let is_sent = self.batch.send_parts(fd, &message, parts).is_ok();
        if is_sent {
            self.count_sent(&message, account);
            self.is_congested = false;
        }
        is_sent
    }

    /// Sends all messages, at most a batch of them, or counts why not.
    #[inline]
    pub(super) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        arena: &[u8],
        messages: &[Outgoing],
        account: &mut Account,
    ) {
        let mut rest = messages;
        while let Some((first, others)) = rest.split_first() {
            match self.attempt(fd, arena, rest) {
                Ok(sent) => {
                    rest[..sent].iter().for_each(|message| self.count_sent(message, account));
                    rest = &rest[sent..];
                    self.is_congested = false;
                }
                Err(error) => {
                    self.recover(fd, (arena, first), &error, account);
                    rest = others;
                }
            }
        }
    }

    /// One system call for as many messages as the kernel takes.
    #[inline]
    fn attempt(
        &mut self,
        fd: BorrowedFd<'_>,
        arena: &[u8],
        messages: &[Outgoing],
    ) -> io::Result<usize> {
        match messages {
            [
                Outgoing {
                    to: Some(to),
                    from: None,
                    traffic_class,
                    stamp_flags: 0,
                    offset,
                    len,
                    segment_len,
                    ..
                },
            ] if len <= segment_len => {
                if *traffic_class != self.batch.class() && !self.adopts(fd, *traffic_class, to) {
                    return self.batch.send(fd, arena, messages);
                }
                let bytes = &arena[*offset..offset + len];
                let sent = match self.batch.peer() == Some(*to) {
                    true => sys::send_connected(fd, bytes),
                    false => sys::send_one(fd, bytes, to),
                };
                sent.map(|()| 1)
            }
            _ => self.batch.send(fd, arena, messages),
        }
    }

    /// Decides if a traffic class becomes that of the socket, so that its lone datagrams need no
    /// control message: once several in a row have it.
    fn adopts(&mut self, fd: BorrowedFd<'_>, traffic_class: u8, to: &SocketAddr) -> bool {
        let (class, count) = self.newcomer;
        self.newcomer =
            if class == traffic_class { (class, count + 1) } else { (traffic_class, 1) };
        if self.newcomer.1 < ADOPT_AFTER {
            return false;
        }
        self.newcomer.1 = 0;
        self.batch.set_class(fd, traffic_class, to.is_ipv6());
        self.batch.class() == traffic_class
    }

    /// After a failure: a GSO batch leaves as single datagrams when the kernel cannot segment it,
    /// anything else gets one more chance.
    #[cold]
    fn recover(
        &mut self,
        fd: BorrowedFd<'_>,
        message: (&[u8], &Outgoing),
        error: &io::Error,
        account: &mut Account,
    ) {
        let (arena, outgoing) = message;
        if !outgoing.is_batch() || !matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL)) {
            self.retry(fd, message, error, account);
            return;
        }
        account.metrics.gso_batches_refused += 1;
        let sent_before = account.metrics.datagrams_out;
        for datagram in datagrams(outgoing) {
            match self.attempt(fd, arena, &[datagram]) {
                Ok(_) => self.count_sent(&datagram, account),
                Err(error) => self.retry(fd, (arena, &datagram), &error, account),
            }
        }
        // Where the parts pass and the whole does not, it is segmentation that is refused.
        if account.metrics.datagrams_out > sent_before {
            self.segmented_send = SegmentedSend::Off;
        }
    }

    /// Gives the connection of the socket up where the address of this host that it was made from
    /// is no longer there, or has no way to the peer any more: another may have.
    fn disconnects(&mut self, fd: BorrowedFd<'_>, error: &io::Error) -> bool {
        let is_lost = matches!(
            error.raw_os_error(),
            Some(libc::EINVAL | libc::EADDRNOTAVAIL | libc::ENETUNREACH | libc::EHOSTUNREACH)
        );
        let disconnects = is_lost && self.batch.peer().is_some() && sys::disconnect(fd).is_ok();
        if disconnects {
            self.batch.set_peer(None);
        }
        disconnects
    }

    /// One more attempt after room was made, or after taking an error that belongs to an earlier
    /// datagram; then counts.
    fn retry(
        &mut self,
        fd: BorrowedFd<'_>,
        message: (&[u8], &Outgoing),
        error: &io::Error,
        account: &mut Account,
    ) {
        let (arena, outgoing) = message;
        let is_full = error.raw_os_error() == Some(libc::EAGAIN);
        let another = if is_full {
            account.metrics.would_block += 1;
            !self.is_congested && is_writable_within(fd, self.send_wait_ns)
        } else {
            take_errors(fd, account, |_, _| ()) > 0
                || error.kind() == io::ErrorKind::Interrupted
                || self.disconnects(fd, error)
        };
        self.is_congested = is_full && !another;
        let last = if another {
            self.attempt(fd, arena, std::slice::from_ref(outgoing)).err()
        } else {
            None
        };
        match (another, last) {
            (true, None) => self.count_sent(outgoing, account),
            (true, Some(error)) => count_dropped(outgoing, &error, account),
            (false, _) => count_dropped(outgoing, error, account),
        }
    }
}

/// A transmit whose bytes begin at `offset` of the arena.
#[inline]
fn outgoing(transmit: &Transmit, offset: usize) -> Outgoing {
    Outgoing {
        to: Some(transmit.to),
        from: transmit.from.local(),
        offset,
        len: transmit.len,
        segment_len: transmit.segment_len.max(1),
        // Class selector: the three highest bits of the byte.
        traffic_class: transmit.priority.min(7) << 5,
        stamp_flags: 0,
        tag: transmit.token,
    }
}

/// The single datagrams of a GSO batch.
fn datagrams(batch: &Outgoing) -> impl Iterator<Item = Outgoing> + use<> {
    let batch = *batch;
    (0..batch.len).step_by(batch.segment_len).map(move |start| {
        let len = batch.segment_len.min(batch.len - start);
        Outgoing { offset: batch.offset + start, len, segment_len: len, ..batch }
    })
}

pub(crate) fn is_writable_within(fd: BorrowedFd<'_>, wait_ns: u64) -> bool {
    let mut fds = [libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 }];
    sys::poll(&mut fds, Some(wait_ns)).is_ok_and(|ready| ready > 0)
}

#[inline]
fn count_sent(message: &Outgoing, account: &mut Account) {
    account.metrics.bytes_out += message.len as u64;
    if message.is_batch() {
        account.metrics.gso_batches_out += 1;
        account.metrics.datagrams_out += message.len.div_ceil(message.segment_len) as u64;
    } else {
        account.metrics.datagrams_out += 1;
    }
}

fn count_dropped(message: &Outgoing, error: &io::Error, account: &mut Account) {
    let counter = match error.raw_os_error() {
        Some(libc::EAGAIN) => &mut account.metrics.dropped_full,
        Some(libc::ENOBUFS | libc::ENOMEM) => &mut account.metrics.dropped_no_buffers,
        Some(libc::EMSGSIZE) => &mut account.metrics.dropped_too_large,
        Some(
            libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENETDOWN,
        ) => &mut account.metrics.dropped_unreachable,
        _ => &mut account.metrics.dropped_other,
    };
    *counter += message.len.div_ceil(message.segment_len).max(1) as u64;
}

/// Lone datagrams of one traffic class after which the socket takes it on. It costs a system call,
/// which a control message saves 5 % of each: enough of them that two classes in turn do not cost
/// more than they save.
const ADOPT_AFTER: u32 = 16;

/// Datagrams of one GSO batch that every kernel takes (UDP_MAX_SEGMENTS).
const SEGMENTS_MAX: usize = 64;

/// Bytes of a burst: the longest GSO batch after as many again of single datagrams.
const ARENA_LEN: usize = 2 * (1 << 16);

/// Datagrams begin at multiples of this, so that copying them never splits a word.
const ALIGNMENT: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(len: usize, segment_len: usize) -> Transmit {
        Transmit { segment_len, ..Transmit::single(SocketAddr::from(([127, 0, 0, 1], 9)), len) }
    }

    fn lens(len: usize, segment_len: usize) -> Vec<usize> {
        datagrams(&outgoing(&batch(len, segment_len), 0)).map(|datagram| datagram.len).collect()
    }

    #[test]
    fn the_last_datagram_of_a_train_is_the_rest() {
        assert_eq!(lens(250, 100), [100, 100, 50]);
        assert_eq!(lens(200, 100), [100, 100]);
        assert_eq!(lens(100, 100), [100]);
    }

    #[test]
    fn single_datagrams_wait_for_the_burst() {
        let mut queue = Queue::new(3);
        let full: Vec<bool> =
            (0..3).map(|_| queue.push(&batch(64, 64), SegmentedSend::On)).collect();
        assert_eq!(full, [false, false, true]);
    }

    #[test]
    fn a_train_does_not_wait() {
        assert!(Queue::new(8).push(&batch(128, 64), SegmentedSend::On));
    }

    #[test]
    fn a_refused_train_is_queued_as_single_datagrams() {
        let mut queue = Queue::new(2);
        queue.push(&batch(250, 100), SegmentedSend::Off);
        let mut bursts = Vec::new();
        queue.flush(|_, messages| {
            bursts.push(messages.iter().map(|message| message.len).collect::<Vec<_>>())
        });
        assert_eq!(bursts, [vec![100, 100], vec![50]]);
    }

    #[test]
    fn more_datagrams_than_the_kernel_takes_are_queued_alone() {
        let mut queue = Queue::new(64);
        queue.push(&batch(65, 1), SegmentedSend::On);
        let mut count = 0;
        queue.flush(|_, messages| count += messages.len());
        assert_eq!(count, 65);
    }

    #[test]
    fn there_is_always_space_for_the_longest_batch() {
        let mut queue = Queue::new(1000);
        for _ in 0..1000 {
            assert_eq!(queue.space().len(), GSO_BYTES_MAX);
            if queue.push(&batch(9000, 9000), SegmentedSend::On) {
                queue.flush(|_, _| ());
            }
        }
    }

    #[test]
    fn priorities_are_class_selectors() {
        let top = Transmit { priority: 7, ..batch(1, 1) };
        assert_eq!(outgoing(&top, 0).traffic_class, 0xe0);
        assert_eq!(outgoing(&batch(1, 1), 0).traffic_class, 0);
    }
}
