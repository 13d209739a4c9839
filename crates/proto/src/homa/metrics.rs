//! Counters of a Homa endpoint.

use tailcut_wire::homa::Malformed;

use crate::call::counters::{Counters, has_common_counters};
use crate::sealed::SealMetrics;

/// Counters of both halves of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Those that every protocol has.
    pub common: Counters,
    /// Bytes of messages handed out, repetitions included.
    pub data_bytes_out: u64,
    /// Datagrams that were no packets, by [`Malformed`].
    pub malformed: [u64; Malformed::COUNT],
    /// Client: calls that ended since the peer was silent.
    pub unreachable: u64,
    /// Client: requests marked since many calls were outstanding.
    pub incast: u64,
    /// Bytes of messages sent again.
    pub resent_bytes: u64,
    /// GRANTs sent.
    pub grants: u64,
    /// GRANTs to the oldest message, against starvation.
    pub fifo_grants: u64,
    /// RESENDs sent.
    pub resends: u64,
    /// Times that holes of a message were asked for.
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
    /// Server: requests whose clients were asked for a cookie before anything was done for them.
    pub validations: u64,
    /// CUTOFFS sent.
    pub cutoffs: u64,
    /// Times that the cutoffs were recomputed and changed.
    pub cutoffs_changed: u64,
    /// Server: replies released since their client acknowledged nothing.
    pub unacknowledged: u64,
    /// Those of the seal; zero where packets are open.
    pub seal: SealMetrics,
}

has_common_counters!(Metrics, Malformed);
