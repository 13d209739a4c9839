//! Counters that every protocol has. Each only rises, and each says when a limit bites.

use tailcut_wire::r2p2::DropReason;

use crate::peer::sessions::Denied;

/// Counters of both halves of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams taken.
    pub datagrams_in: u64,
    /// Datagrams handed out.
    pub datagrams_out: u64,
    /// Packets that have no meaning here, or where their call stands.
    pub unexpected: u64,
    /// Packets about calls or requests that are not, or no longer, known.
    pub unknown: u64,
    /// Packets that contradict what is known: another sender, other ports or lengths, beyond the
    /// credit, out of range.
    pub protocol_violation: u64,
    /// Packets of which everything had arrived before.
    pub duplicates: u64,
    /// Client: calls made.
    pub calls: u64,
    /// Client: calls answered.
    pub replied: u64,
    /// Client: calls refused by a peer.
    pub refused: u64,
    /// Client: calls whose deadline passed.
    pub deadlines: u64,
    /// Client: calls that ended in another way.
    pub failed: u64,
    /// Client: calls given up by the application.
    pub cancelled: u64,
    /// Server: requests handed to the application.
    pub requests: u64,
    /// Server: packets of requests that were being served or whose reply was kept.
    pub repeated: u64,
    /// Server: requests that came again after their reply was released; they were not run again.
    pub duplicate_after_release: u64,
    /// Server: requests refused, by [`DropReason`].
    pub drops: [u64; DropReason::COUNT],
    /// Server: half-received requests that made no progress and expired.
    pub partials_expired: u64,
    /// Server: requests whose deadline passed before the application answered.
    pub unanswered: u64,
    /// Server: requests refused since no more sessions are remembered of their client, or in all.
    pub sessions_refused: u64,
    /// Server: requests refused since no more is remembered of the network around their client.
    pub sessions_refused_by_prefix: u64,
    /// Server: replies that wait until the client's address is validated.
    pub amplification_limited: u64,
    /// Control packets that were dropped since too many waited to be sent.
    pub control_dropped_queue_full: u64,
}

impl Counters {
    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
    }

    pub(crate) fn deny(&mut self, denied: Denied) {
        match denied {
            Denied::Full => self.sessions_refused += 1,
            Denied::PrefixFull => self.sessions_refused_by_prefix += 1,
        }
    }
}

/// Lets the counters of a protocol be used as those that every protocol has, too.
macro_rules! has_common_counters {
    ($metrics:ty, $malformed:ty) => {
        impl $metrics {
            pub(super) fn malformed(&mut self, reason: $malformed) {
                self.malformed[reason as usize] += 1;
            }
        }

        impl std::ops::Deref for $metrics {
            type Target = crate::call::counters::Counters;

            fn deref(&self) -> &Self::Target {
                &self.common
            }
        }

        impl std::ops::DerefMut for $metrics {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.common
            }
        }
    };
}

pub(crate) use has_common_counters;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_to_remember_no_more_is_counted_apart() {
        let mut counters = Counters::default();
        for denied in [Denied::PrefixFull, Denied::Full, Denied::PrefixFull, Denied::PrefixFull] {
            counters.deny(denied);
        }
        let expected =
            Counters { sessions_refused: 1, sessions_refused_by_prefix: 3, ..Counters::default() };
        assert_eq!(counters, expected);
    }
}
