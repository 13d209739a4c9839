//! Types that nodes and their seals exchange, in builds with and without sealing.

use tailcut_wire::homa;
use tailcut_wire::r2p2::EXTENDED_LEN;
use tailcut_wire::r2p2::sealed::TRAILER_LEN;

/// Verdict on a packet that a router has opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SealVerdict {
    /// It is acted upon.
    #[default]
    Fit,
    /// It names no receiver.
    Unnamed,
    /// It is not known whether it has been placed before.
    Evicted,
}

/// Limits of a router's seal.
#[derive(Clone, Copy, Debug)]
pub struct RouterLimits {
    /// Clients whose keys it keeps.
    pub clients_max: usize,
    /// Longest that a call lasts, ns.
    pub lifetime_ns_max: u64,
}

/// Counters of answers that a node has sent and received about keys that are not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostKeys {
    /// Requests that it has answered so.
    pub sent: u64,
    /// Calls of its own that were answered so.
    pub received: u64,
    /// The epoch of the last of either.
    pub epoch: u8,
}

/// Contents of a genuine answer to a client about a key that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoKey {
    /// Epoch of which it has no key.
    pub epoch: u8,
    /// It has had none since its start.
    pub is_new: bool,
}

/// Bytes of an answer: a DROP with a reason. No request is shorter.
pub(crate) const ANSWER_LEN: usize = EXTENDED_LEN + 1 + TRAILER_LEN;

/// Bytes of an answer over Homa, RPC_UNKNOWN. No DATA or RESEND is shorter.
pub(crate) const HOMA_ANSWER_LEN: usize = homa::sealed::ANSWER_LEN;

/// Answers of a node that wait to be sent.
pub(crate) const ANSWERS_MAX: usize = 64;
