//! Counters of a Homa endpoint. Each only rises, and each says when a limit bites.

use tailcut_wire::homa::Malformed;
use tailcut_wire::r2p2::DropReason;

use crate::peer::sessions::Denied;

/// Counters of both halves of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Datagrams taken.
    pub datagrams_in: u64,
    /// Datagrams handed out.
    pub datagrams_out: u64,
    /// Bytes of messages handed out, repetitions included.
    pub data_bytes_out: u64,
    /// Datagrams that were no packets, by [`Malformed`].
    pub malformed: [u64; Malformed::COUNT],
    /// Packets that have no meaning where the RPC stands.
    pub unexpected: u64,
    /// Packets about RPCs that are not, or no longer, known.
    pub unknown: u64,
    /// Packets that contradict what is known: other ports or lengths, beyond the grants, out of
    /// range.
    pub contradicted: u64,
    /// DATA of which every byte had arrived before.
    pub duplicates: u64,
    /// Client: calls made.
    pub calls: u64,
    /// Client: calls answered.
    pub replied: u64,
    /// Client: calls refused by a peer.
    pub refused: u64,
    /// Client: calls whose deadline passed.
    pub deadlines: u64,
    /// Client: calls that ended since the peer was silent.
    pub unreachable: u64,
    /// Client: calls that ended in another way.
    pub failed: u64,
    /// Client: calls given up by the application.
    pub cancelled: u64,
    /// Client: requests marked since many calls were outstanding.
    pub incast: u64,
    /// Bytes of messages sent again.
    pub resent_bytes: u64,
    /// GRANTs sent.
    pub grants: u64,
    /// Of them, those to the oldest message.
    pub fifo_grants: u64,
    /// RESENDs sent.
    pub resends: u64,
    /// Of them, those for a hole.
    pub gaps: u64,
    /// BUSYs sent.
    pub busy: u64,
    /// RPC_UNKNOWNs sent.
    pub unknowns: u64,
    /// NEED_ACKs sent.
    pub need_acks: u64,
    /// ACKs sent as packets.
    pub acks: u64,
    /// Acknowledgements sent with DATA.
    pub acks_piggybacked: u64,
    /// CUTOFFS sent.
    pub cutoffs: u64,
    /// Times that the cutoffs were recomputed and changed.
    pub cutoffs_changed: u64,
    /// Server: requests handed to the application.
    pub requests: u64,
    /// Server: packets of requests that were being served or whose reply was kept.
    pub repeated: u64,
    /// Server: packets of requests that had been served and let go; they were not run again.
    pub forgotten: u64,
    /// Server: requests refused, by [`DropReason`].
    pub drops: [u64; 9],
    /// Server: half-received requests that made no progress and were let go.
    pub partials_expired: u64,
    /// Server: requests whose deadline passed before the application answered.
    pub unanswered: u64,
    /// Server: replies let go since their client acknowledged nothing.
    pub unacknowledged: u64,
    /// Server: requests refused since no more sessions are remembered of their client, or in all.
    pub sessions_refused: u64,
    /// Server: requests refused since no more is remembered of the network around their client.
    pub sessions_refused_by_prefix: u64,
    /// Server: replies held back until the client's address is proven.
    pub held_back: u64,
    /// Control packets that were not said, since too many waited to be sent.
    pub unsaid: u64,
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
