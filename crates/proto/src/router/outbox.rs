//! Datagrams on their way to the driver, in buffers that are used again.
//!
//! | event | then |
//! |---|---|
//! | `push` | the datagram waits behind the others |
//! | `poll`, the first is for a raw source | it goes alone |
//! | `poll`, the next ones have its destination and length | they go with it as a GSO batch |
//! | `poll`, the first is longer than the driver's buffer | it is dropped and counted |
//!
//! Invariant: datagrams leave in the order in which they were pushed.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::node::{GSO_BATCH_LEN_MAX, GSO_DATAGRAMS_MAX, Source, Transmit};

/// A queue of datagrams and the buffers they are in.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// Datagrams to send; at most `len_max`.
    queue: VecDeque<Datagram>,
    /// Most datagrams.
    len_max: usize,
    /// Empty buffers; at most `free_len_max`.
    free: Vec<Vec<u8>>,
    /// Most empty buffers kept: those of the outbox and of the held requests.
    free_len_max: usize,
    /// Datagrams dropped because the driver's buffer was too short.
    pub(crate) oversize_count: u64,
}

/// One datagram.
#[derive(Debug)]
pub(crate) struct Datagram {
    /// Destination.
    pub(crate) to: SocketAddr,
    /// Source: the router's address that whom it is for knows, or the client's.
    pub(crate) from: Source,
    /// Its bytes, from [`Outbox::buffer`].
    pub(crate) bytes: Vec<u8>,
}

impl Outbox {
    pub(crate) fn new(len_max: usize, held_len_max: usize) -> Self {
        let free_len_max = len_max.saturating_add(held_len_max);
        Self { queue: VecDeque::new(), len_max, free: Vec::new(), free_len_max, oversize_count: 0 }
    }

    /// Another number of requests may be held.
    pub(crate) fn set_held_len_max(&mut self, held_len_max: usize) {
        self.free_len_max = self.len_max.saturating_add(held_len_max);
        self.free.truncate(self.free_len_max);
    }

    /// True if a push would be one too many.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= self.len_max
    }

    /// Number of pushes that there is room for.
    pub(crate) fn room(&self) -> usize {
        self.len_max.saturating_sub(self.queue.len())
    }

    /// True if nothing waits to be sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Queues a datagram. The caller has checked that there is room.
    pub(crate) fn push(&mut self, datagram: Datagram) {
        debug_assert!(!self.is_full(), "whoever pushes has looked for room");
        self.queue.push_back(datagram);
    }

    /// A buffer that holds `bytes`.
    pub(crate) fn buffer(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.free.pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_LEN));
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// Takes a buffer back.
    pub(crate) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.free.len() < self.free_len_max {
            buffer.clear();
            self.free.push(buffer);
        }
    }

    /// Writes the next datagram or GSO batch to `buffer`.
    pub(crate) fn poll(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let first = loop {
            let first = self.queue.pop_front()?;
            if first.bytes.len() <= buffer.len() {
                break first;
            }
            self.oversize_count += 1;
            self.recycle(first.bytes);
        };
        let segment_len = first.bytes.len();
        let mut transmit = Transmit { from: first.from, ..Transmit::single(first.to, segment_len) };
        buffer[..segment_len].copy_from_slice(&first.bytes);
        self.recycle(first.bytes);
        let len_max = buffer.len().min(GSO_BATCH_LEN_MAX).min(segment_len * GSO_DATAGRAMS_MAX);
        let is_spoofed = matches!(transmit.from, Source::Spoofed(_));
        while !is_spoofed && transmit.len + segment_len <= len_max {
            let fits = |next: &Datagram| {
                next.to == transmit.to
                    && next.from == transmit.from
                    && next.bytes.len() == segment_len
            };
            if !self.queue.front().is_some_and(fits) {
                break;
            }
            let next = self.queue.pop_front().expect("there is a front");
            buffer[transmit.len..transmit.len + segment_len].copy_from_slice(&next.bytes);
            transmit.len += segment_len;
            self.recycle(next.bytes);
        }
        Some(transmit)
    }
}

/// First capacity of a buffer: an Ethernet frame, rounded up.
const BUFFER_LEN: usize = 1_536;

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes datagrams (port, is from another source, length) and checks the transmits (port, len,
    /// segment_len).
    fn check(pushed: &[(u16, bool, usize)], buffer_len: usize, expected: &[(u16, usize, usize)]) {
        let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let mut outbox = Outbox::new(1_000, 0);
        for &(port, raw, len) in pushed {
            let bytes = outbox.buffer(&vec![port as u8; len]);
            let from = if raw { Source::Spoofed(address(9)) } else { Source::Any };
            outbox.push(Datagram { to: address(port), from, bytes });
        }
        let mut buffer = vec![0; buffer_len];
        let found: Vec<_> = std::iter::from_fn(|| {
            let transmit = outbox.poll(&mut buffer)?;
            assert!(buffer[..transmit.len].iter().all(|&byte| byte == transmit.to.port() as u8));
            Some((transmit.to.port(), transmit.len, transmit.segment_len))
        })
        .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn equal_datagrams_to_one_destination_are_one_batch() {
        check(
            &[(1, false, 80), (1, false, 80), (2, false, 80)],
            9_000,
            &[(1, 160, 80), (2, 80, 80)],
        );
    }

    #[test]
    fn another_length_ends_a_batch() {
        check(
            &[(1, false, 80), (1, false, 60), (1, false, 60)],
            9_000,
            &[(1, 80, 80), (1, 120, 60)],
        );
    }

    #[test]
    fn a_raw_source_goes_alone() {
        check(
            &[(1, true, 80), (1, true, 80), (1, false, 80), (1, true, 80)],
            9_000,
            &[(1, 80, 80), (1, 80, 80), (1, 80, 80), (1, 80, 80)],
        );
    }

    #[test]
    fn a_train_ends_at_the_buffer() {
        check(&[(1, false, 80), (1, false, 80), (1, false, 80)], 200, &[(1, 160, 80), (1, 80, 80)]);
    }

    #[test]
    fn a_train_ends_at_its_limit() {
        check(
            &[(1, false, 10); GSO_DATAGRAMS_MAX + 1],
            9_000,
            &[(1, 10 * GSO_DATAGRAMS_MAX, 10), (1, 10, 10)],
        );
    }

    #[test]
    fn what_the_buffer_cannot_hold_is_dropped() {
        check(&[(1, false, 80), (2, false, 50)], 64, &[(2, 50, 50)]);
    }

    #[test]
    fn as_many_buffers_are_kept_as_may_be_in_use() {
        let mut outbox = Outbox::new(1, 2);
        let buffers = [(); 5].map(|()| outbox.buffer(b"bytes"));
        buffers.into_iter().for_each(|buffer| outbox.recycle(buffer));
        assert_eq!(outbox.free.len(), 3);
        assert_eq!(outbox.buffer(b"new"), b"new", "nothing is left of what was in it");
        outbox.set_held_len_max(0);
        assert_eq!(outbox.free.len(), 1);
        outbox.set_held_len_max(1);
        (0..3).for_each(|_| outbox.recycle(Vec::new()));
        assert_eq!(outbox.free.len(), 2);
    }

    #[test]
    fn what_is_longer_than_the_drivers_buffer_is_dropped_and_counted() {
        let mut outbox = Outbox::new(3, 0);
        assert!(outbox.is_empty());
        for bytes in [b"long".to_vec(), b"longer".to_vec(), b"ok".to_vec()] {
            let to = SocketAddr::from(([10, 0, 0, 1], 1));
            outbox.push(Datagram { to, from: Source::Any, bytes });
        }
        assert!(outbox.is_full() && !outbox.is_empty());
        assert_eq!(outbox.poll(&mut [0; 2]).map(|transmit| transmit.len), Some(2));
        assert_eq!((outbox.oversize_count, outbox.is_empty()), (2, true));
    }
}
