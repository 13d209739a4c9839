//! Estimate of the queue before the NIC, without asking it: what was sent drains at the link's
//! speed.
//!
//! A queue there is one in which a short message cannot overtake (RAMCloud's QueueEstimator).

use super::config::Link;
use crate::node::Time;

/// A running estimate of the queue before the NIC.
#[derive(Debug)]
pub(super) struct NicQueue {
    /// The link; `None` where nothing is known, and then nothing waits.
    link: Option<Link>,
    /// Time at which everything sent so far will have left.
    idle_at: Time,
    /// A packet has been refused since the last was added.
    is_blocked: bool,
}

impl NicQueue {
    pub(super) fn new(link: Option<Link>) -> Self {
        Self { link, idle_at: 0, is_blocked: false }
    }

    /// True if a packet of a message of `message_len` bytes may be added.
    #[inline]
    pub(super) fn takes(&mut self, now: Time, message_len: u32) -> bool {
        let Some(link) = self.link else {
            return true;
        };
        self.is_blocked =
            message_len > link.bypass_len && self.idle_at > now.saturating_add(link.queue_ns_max);
        !self.is_blocked
    }

    /// Time at which the packet that was refused may be added; `None` when none was.
    pub(super) fn opens_at(&self) -> Option<Time> {
        let link = self.link.filter(|_| self.is_blocked)?;
        Some(self.idle_at.saturating_sub(link.queue_ns_max))
    }

    /// Takes note of a packet of `bytes` on the wire.
    #[inline]
    pub(super) fn add(&mut self, now: Time, bytes: u32) {
        if let Some(link) = self.link {
            let ns = (u128::from(bytes) * 8_000_000_000 / u128::from(link.bits_per_second.max(1)))
                as u64;
            // The module counts on 99 % of the link, RAMCloud on 98 %.
            self.idle_at = self.idle_at.max(now).saturating_add(ns + ns / 64);
        }
    }
}

/// Estimate of the time that what was sent may wait for the device, where nobody knows the link: a
/// driver that offers no buffer for a full packet says that as much waits as may. What is asked for
/// meanwhile has not been lost but not yet sent.
#[derive(Debug, Default)]
pub(super) struct Device {
    /// Time at which a packet last found no room; 0 before.
    refused_at: Time,
    /// Times at which the bytes up to each multiple of [`CHUNK_LEN`] had been sent, the last one at
    /// `marked`; a ring.
    marks: [Time; CHUNKS],
    /// Place of the last mark in `marks`.
    marked: usize,
    /// Bytes sent since the last mark.
    unmarked: u32,
}

impl Device {
    /// Takes note that a packet found no room.
    pub(super) fn refuse(&mut self, now: Time) {
        self.refused_at = now;
    }

    /// Takes note of bytes that were sent.
    #[inline]
    pub(super) fn send(&mut self, now: Time, bytes: u32) {
        self.unmarked += bytes;
        if self.unmarked >= CHUNK_LEN {
            self.unmarked = 0;
            self.marked = (self.marked + 1) % CHUNKS;
            self.marks[self.marked] = now;
        }
    }

    /// True if what was sent at `sent_at` may still wait for the device: if no more time has passed
    /// than the last bytes took, as many as the device and its queue hold.
    pub(super) fn may_hold(&self, now: Time, sent_at: Time) -> bool {
        let oldest = self.marks[(self.marked + 1) % CHUNKS];
        let span_ns = self.refused_at.saturating_sub(oldest).min(SPAN_NS_MAX);
        self.refused_at != 0 && now.saturating_sub(sent_at.min(self.refused_at)) <= span_ns
    }
}

/// Twice what a driver lets wait by default, so that the estimate is not too short.
const CHUNK_LEN: u32 = 32 << 10;
const CHUNKS: usize = 8;

/// Longer than any queue before a device should be.
const SPAN_NS_MAX: u64 = 32_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_before_the_last_chunks_has_left() {
        let mut device = Device::default();
        assert!(!device.may_hold(1_000, 1_000), "nothing was refused");
        // 32 KiB in each of 20 ms: the last 256 KiB took 7 ms from mark to mark.
        (1..=20).for_each(|ms| device.send(ms * MS, CHUNK_LEN));
        device.refuse(20 * MS);
        assert!(device.may_hold(20 * MS, 20 * MS) && device.may_hold(20 * MS, 13 * MS));
        assert!(!device.may_hold(20 * MS, 12 * MS));
        assert!(
            device.may_hold(27 * MS, 27 * MS) && !device.may_hold(28 * MS, 28 * MS),
            "it had time to drain"
        );
    }

    #[test]
    fn a_burst_may_wait_for_long_until_its_speed_is_known() {
        let mut device = Device::default();
        device.send(50 * MS, 200_000);
        device.refuse(50 * MS);
        assert!(device.may_hold(82 * MS, 50 * MS) && !device.may_hold(83 * MS, 50 * MS));
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn takes_packets_until_the_queue_is_long_and_again_when_it_has_drained() {
        let link = Link { bits_per_second: 10_000_000_000, queue_ns_max: 2000, bypass_len: 300 };
        let mut queue = NicQueue::new(Some(link));
        let mut sent = 0;
        while queue.takes(1000, 10_000) {
            queue.add(1000, 1538);
            sent += 1;
        }
        // A packet takes 1.25 us with the margin: the second begins within 2 us, the third does
        // not.
        assert_eq!(sent, 2);
        let opens_at = queue.opens_at().unwrap();
        assert!(queue.takes(1000, 300), "short messages do not wait");
        assert!(!queue.takes(opens_at - 1, 10_000));
        assert!(queue.takes(opens_at, 10_000));
        assert_eq!(queue.opens_at(), None);
    }

    #[test]
    fn without_a_link_there_is_no_bound() {
        let mut queue = NicQueue::new(None);
        (0..1000).for_each(|_| queue.add(0, 1538));
        assert!(queue.takes(0, u32::MAX));
    }

    /// Between what the module counts on and what RAMCloud does, 99 % and 98 %.
    #[test]
    fn a_queue_drains_a_little_slower_than_the_link() {
        let link = Link { bits_per_second: 10_000_000_000, queue_ns_max: 0, bypass_len: 0 };
        let mut queue = NicQueue::new(Some(link));
        queue.add(1000, 12_500);
        assert!(!queue.takes(1000, 1));
        let ns = queue.opens_at().unwrap() - 1000;
        assert!((10_100..10_205).contains(&ns), "{ns} ns for 100,000 bits");
    }
}
