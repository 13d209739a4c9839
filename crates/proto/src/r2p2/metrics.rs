//! Counters of an R2P2 endpoint. Each only rises, and each says when a limit bites.

use tailcut_wire::r2p2::{DropReason, Malformed};

use crate::peer::sessions::Denied;

/// Counters of both halves of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Datagrams taken.
    pub datagrams_in: u64,
    /// Datagrams handed out.
    pub datagrams_out: u64,
    /// Datagrams that were no packets, by [`Malformed`].
    pub malformed: [u64; 9],
    /// Packets of a kind that this endpoint has no use for.
    pub unexpected: u64,
    /// Packets about calls or requests that are not, or no longer, known.
    pub unknown: u64,
    /// Packets that contradict what is known: another sender, other lengths, beyond the credit.
    pub contradicted: u64,
    /// Packets of messages that had arrived before.
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
    /// Packets sent again, by either half.
    pub resent: u64,
    /// Client: timeouts that made it speak again.
    pub timeouts: u64,
    /// Server: requests handed to the application.
    pub requests: u64,
    /// Server: requests that came again while they were being served or their reply was kept.
    pub repeated: u64,
    /// Server: requests that came again after their reply was let go; they were not run again.
    pub forgotten: u64,
    /// Server: requests refused, by [`DropReason`].
    pub drops: [u64; 9],
    /// Server: half-received messages that made no progress and were let go.
    pub partials_expired: u64,
    /// Server: requests whose deadline passed before the application answered.
    pub unanswered: u64,
    /// Server: clients asked to prove their address first.
    pub validations: u64,
    /// Server: requests refused since no more sessions are remembered of their client, or in all.
    pub sessions_refused: u64,
    /// Server: requests refused since no more is remembered of the network around their client.
    pub sessions_refused_by_prefix: u64,
    /// Server: replies held back until the client's address is proven.
    pub held_back: u64,
    /// Server: refusals and demands for proof that were not said, since too many waited to be sent.
    pub unsaid: u64,
    /// Server: reports sent to routers.
    pub feedback: u64,
}

impl Metrics {
    pub(super) fn deny(&mut self, denied: Denied) {
        match denied {
            Denied::Full => self.sessions_refused += 1,
            Denied::PrefixFull => self.sessions_refused_by_prefix += 1,
        }
    }

    pub(super) fn malformed(&mut self, reason: Malformed) {
        self.malformed[reason as usize] += 1;
    }

    pub(super) fn drop(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
    }
}
