//! By which names a request has gone, as far as that tells whether it can have run.

use crate::node::{Time, clock_us};

/// By which names packet 0 of a call has gone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Named {
    /// The last to the target, and to the server that has answered; 0 before.
    pub(super) known: [u64; 2],
    /// That of the last time, or of the time that is next; 0 for nobody.
    pub(super) latest: u64,
    /// How often it has gone by a name.
    count: u32,
    /// The clock when it last did.
    clock_us: u32,
}

impl Named {
    /// Packet 0 has been written, by the name that was noted last.
    #[inline]
    pub(super) fn note_sent(&mut self, now: Time) {
        if self.latest != 0 {
            self.count = self.count.saturating_add(1);
            self.clock_us = clock_us(now);
        }
    }

    /// True if the call cannot have run, where the node of this name says that the packet with this clock has not: it
    /// has gone by no name, or once, which was that packet to that node.
    pub(super) fn is_unrun(&self, name: u64, echo_us: u32) -> bool {
        match self.count {
            0 => true,
            1 => self.known.contains(&name) && self.clock_us == echo_us,
            _ => false,
        }
    }
}
