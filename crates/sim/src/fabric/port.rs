//! An egress: eight queues with strict priorities, a buffer that may be full, and the link behind
//! them.
//!
//! Invariant: a port sends nothing of a lower priority while a higher one waits, and never holds
//! more bytes than its buffer.

use super::NONE;

/// Strict priorities of an egress.
pub const PRIORITIES: usize = 8;

/// The end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// A host.
    Host(u32),
    /// A switch with hosts behind it; the only one of a single switch.
    Leaf(u32),
    /// A switch with only leaves behind it, and cores where there are pods.
    Spine(u32),
    /// A switch with only spines behind it.
    Core(u32),
}

/// A link in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Time on the wire for each byte: 800 at 10 Gbit/s, 80 at 100 Gbit/s; 0 for a link without a
    /// rate.
    pub ps_per_byte: u32,
    /// Propagation.
    pub delay_ps: u64,
}

impl Link {
    /// A link of `gbit_per_s` (rounded to a whole picosecond for each byte) and `delay_ns`.
    ///
    /// # Panics
    /// At a rate that is not above 0.
    pub fn new(gbit_per_s: f64, delay_ns: u64) -> Self {
        assert!(gbit_per_s > 0.0, "a link of {gbit_per_s} Gbit/s");
        Self {
            ps_per_byte: (8000.0 / gbit_per_s).round() as u32,
            delay_ps: delay_ns * crate::PS_PER_NS,
        }
    }
}

/// The buffer of each egress of a switch. The default has no end and marks nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchBuffer {
    /// Bytes that may wait, over all priorities; what comes then is dropped.
    pub capacity_bytes: u64,
    /// Bytes from which packets are marked (ECN).
    pub mark_bytes: u64,
}

impl Default for SwitchBuffer {
    fn default() -> Self {
        Self { capacity_bytes: u64::MAX, mark_bytes: u64::MAX }
    }
}

/// A port's answer to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It waits its turn.
    Queued,
    /// It waits its turn, and is marked because the queue is long.
    Marked,
    /// The buffer is full.
    Full,
}

/// Counters of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Packets sent.
    pub sent: u64,
    /// Bytes sent, as on the wire.
    pub sent_bytes: u64,
    /// Packets dropped because the buffer was full.
    pub dropped: u64,
    /// Packets marked because the queue was long.
    pub marked: u64,
    /// Most bytes that have waited at once.
    pub queued_bytes_max: u64,
}

impl PortCounters {
    /// The sum of two ports; of the longest queues the longer.
    pub fn plus(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            dropped: self.dropped + other.dropped,
            marked: self.marked + other.marked,
            queued_bytes_max: self.queued_bytes_max.max(other.queued_bytes_max),
        }
    }
}

/// One egress and its link. It is two cache lines, because what a hop costs among many ports is the
/// lines that it touches.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Port {
    /// Element that the link leads to.
    pub(super) to: Element,
    /// Time on the link for each byte; 0 for a link without a rate.
    pub(super) ps_per_byte: u32,
    /// From the last bit sent until the packet can be queued at the next element.
    pub(super) delay_ps: u64,
    /// Time at which the link has carried what it is carrying.
    pub(super) free_at: u64,
    /// An event will look at the port when its link is free.
    pub(super) is_armed: bool,
    /// Its owner wants to know each time its link is free.
    pub(super) is_watched: bool,
    /// Its link may lead to another region.
    pub(super) is_border: bool,
    pub(super) counters: PortCounters,
    buffer: SwitchBuffer,
    queued_bytes: u64,
    /// A bit for each priority that has packets.
    occupied: u8,
    /// The last packet of each priority; the one behind it is the first, in a ring.
    last: [u32; PRIORITIES],
}

impl Port {
    pub(super) fn new(link: Link, to: Element, switching_ps: u64, buffer: SwitchBuffer) -> Self {
        Self {
            to,
            ps_per_byte: link.ps_per_byte,
            delay_ps: link.delay_ps + switching_ps,
            free_at: 0,
            is_armed: false,
            is_watched: false,
            is_border: false,
            counters: PortCounters::default(),
            buffer,
            queued_bytes: 0,
            occupied: 0,
            last: [NONE; PRIORITIES],
        }
    }

    pub(super) fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// Decides about a packet of `bytes`, and counts what is not just queued.
    pub(super) fn admit(&mut self, bytes: u32) -> Admission {
        let queued_bytes = self.queued_bytes + u64::from(bytes);
        if queued_bytes > self.buffer.capacity_bytes {
            self.counters.dropped += 1;
            return Admission::Full;
        }
        if queued_bytes > self.buffer.mark_bytes {
            self.counters.marked += 1;
            return Admission::Marked;
        }
        Admission::Queued
    }

    /// Appends a packet to its priority; tells the packet that was last there.
    pub(super) fn push(&mut self, priority: u8, flight: u32, bytes: u32) -> u32 {
        self.queued_bytes += u64::from(bytes);
        self.counters.queued_bytes_max = self.counters.queued_bytes_max.max(self.queued_bytes);
        let level = priority as usize % PRIORITIES;
        self.occupied |= 1 << level;
        std::mem::replace(&mut self.last[level], flight)
    }

    /// The highest priority that has packets, with the last of them.
    pub(super) fn highest(&self) -> Option<(u8, u32)> {
        let level = self.occupied.checked_ilog2()?;
        Some((level as u8, self.last[level as usize]))
    }

    /// The only packet of a priority has left.
    pub(super) fn clear(&mut self, priority: u8) {
        self.last[priority as usize] = NONE;
        self.occupied &= !(1 << priority);
    }

    /// Counts a packet that leaves, and tells when the link has carried it.
    pub(super) fn carry(&mut self, now: u64, bytes: u32) -> u64 {
        self.counters.sent += 1;
        self.counters.sent_bytes += u64::from(bytes);
        self.free_at = now + u64::from(bytes) * u64::from(self.ps_per_byte);
        self.free_at
    }

    /// A packet that waited goes.
    pub(super) fn unqueue(&mut self, bytes: u32) {
        self.queued_bytes -= u64::from(bytes);
    }
}

const _: () = assert!(size_of::<Port>() == 128);
