//! What nodes and their seals say to each other, with and without what seals.

/// What may become of a packet that a router has opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SealVerdict {
    /// It is acted upon.
    #[default]
    Fit,
    /// It names no receiver.
    Unnamed,
    /// Whether it has been placed before is not known.
    Forgotten,
}

/// What bounds a router's seal.
#[derive(Clone, Copy, Debug)]
pub struct RouterLimits {
    /// Clients whose keys it keeps.
    pub clients_max: usize,
    /// Longest that a call lasts, ns.
    pub lifetime_ns_max: u64,
}

/// What a node has answered and been told of keys that are not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostKeys {
    /// Requests that it has answered so.
    pub sent: u64,
    /// Calls of its own that were answered so.
    pub received: u64,
    /// The epoch of the last of either.
    pub epoch: u8,
}
