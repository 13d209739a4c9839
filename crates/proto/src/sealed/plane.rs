//! State of a sealed router that a data plane before it is told, so that it can place sealed
//! requests itself.

use super::ClientEpoch;
use super::keys::HopKey;

/// The seal of a router, as a data plane has it.
#[derive(Clone, Debug)]
pub struct PlaneSeal {
    /// The router's own name.
    pub name: u64,
    /// Unix time at the node's time 0, ns.
    pub wall_zero_ns: u64,
    /// Most that clocks may be apart, ms.
    pub tolerance_ms: u64,
    /// Longest that a call lasts, ms.
    pub lifetime_ms: u64,
    /// Random, another at every start.
    pub secret: u64,
    /// The epochs whose packets are taken now: three at most.
    pub epochs: Vec<PlaneEpoch>,
}

/// An epoch of keys.
#[derive(Clone, Debug)]
pub struct PlaneEpoch {
    /// Its number.
    pub number: u8,
    /// Time at which it begins: Unix time, ms.
    pub from_ms: u64,
    /// Key of hop tags between routers and servers.
    pub router_key: HopKey,
}

/// A client's session that has been found to be in order, where its requests come straight from the
/// client.
#[derive(Clone, Debug)]
pub struct PlaneSession {
    /// The client in its epoch.
    pub sender: ClientEpoch,
    /// The 40 bits of its ids.
    pub session: u64,
    /// Time at which it began: Unix time, ms.
    pub began_ms: u64,
    /// Its calls below have ended.
    pub floor: u32,
    /// The client's hop key.
    pub hop_key: HopKey,
}
