//! Replay protection of a server: which requests it may run, and which it cannot tell from what was
//! recorded.
//!
//! | the session of a request | then |
//! |---|---|
//! | is known where requests are run, at that address and as this client's | it may run |
//! | began after the server's start, and has never been known | the same |
//! | is to begin in a moment by this server's clock | waited for |
//! | anything else | it may have run: refused |

use std::collections::HashMap;
use std::net::SocketAddr;

use super::keys::EPOCH_KEPT_MS;
use super::known::{Known, SessionKey};
use super::wall_clock::WallClock;
use crate::address::AddressKey;
use crate::node::Time;
use tailcut_placement::keyed::KeyedState;

/// Facts of a packet that only its seal tells.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrival {
    /// The client and the session.
    pub(super) key: SessionKey,
    /// Epoch of the keys.
    pub(super) epoch: u8,
    /// Time at which its session began: Unix time, ms.
    pub(super) began_ms: u64,
    /// It is a router's own.
    pub(super) is_hop: bool,
    /// It names this server as its receiver.
    pub(super) is_named: bool,
    /// Its session is known, or nothing is remembered of packets but by requests.
    pub(super) is_known: bool,
}

/// The sessions that have been known where requests are run, whatever the address: there they are
/// known by address, which may be forged, and until they are evicted.
#[derive(Debug)]
pub(super) struct Replay {
    /// Start time of the server.
    started_at: Time,
    /// Start time by the wall clock: sessions that began by then may be older. Unix ms.
    started_ms: u64,
    /// Sessions that have been known.
    bound: Known<Bound>,
    /// The client of each of them, by its address and session: where calls are told apart by those,
    /// no other client is believed.
    owners: HashMap<(AddressKey, u64), u32, KeyedState>,
    /// A session that is to begin within so long is waited for.
    pub(super) tolerance_ms: u64,
}

/// A session that has been known.
#[derive(Clone, Copy, Debug)]
struct Bound {
    /// Time at which it began: Unix time, ms.
    began_ms: u64,
    /// Address at which it was known.
    address: AddressKey,
}

impl Replay {
    /// Nothing is known yet at a server that starts.
    pub(super) fn new((started_at, started_ms): (Time, u64), tolerance_ms: u64, seed: u64) -> Self {
        Self {
            started_at,
            started_ms,
            bound: Known::new(BOUND_MAX, 0, seed),
            owners: HashMap::with_hasher(KeyedState::with_seed(seed)),
            tolerance_ms,
        }
    }

    /// The wall clock has been read again. By one that was ahead, the server has started later than
    /// it did; but one that is set back without need would make sessions of before the start look
    /// new. So that waits until no call of before the start can be under way.
    pub(super) fn set_clock(&mut self, now: Time, clock: &WallClock) {
        let started_ms = clock.ms(self.started_at);
        let is_settled = now.saturating_sub(self.started_at) >= EPOCH_KEPT_MS * 1_000_000;
        if started_ms > self.started_ms || is_settled {
            self.started_ms = started_ms;
        }
    }

    /// True if a session that is not known where requests are run may be begun.
    pub(super) fn may_begin(&self, wall_ms: u64, arrival: &Arrival) -> bool {
        let Arrival { key, began_ms, .. } = *arrival;
        let is_ahead = began_ms > wall_ms;
        let may_be_old =
            began_ms <= self.started_ms || self.bound.may_be_lost(key.client, began_ms);
        !is_ahead && !may_be_old && self.bound.find(key).is_none()
    }

    /// True if the session of a request has been known at this address, as this client's.
    pub(super) fn is_bound(&self, address: SocketAddr, arrival: &Arrival) -> bool {
        let bound = self.bound.find(arrival.key);
        bound.is_some_and(|bound| (bound.address.0, bound.began_ms) == (address, arrival.began_ms))
    }

    /// True if a session at an address has been known as that of another client.
    pub(super) fn is_of_another(&self, address: SocketAddr, key: SessionKey) -> bool {
        let owner = self.owners.get(&(AddressKey(address), key.session));
        owner.is_some_and(|&owner| owner != key.client)
    }

    /// True if a session has been known at another address.
    pub(super) fn is_elsewhere(&self, address: SocketAddr, key: SessionKey) -> bool {
        self.bound.find(key).is_some_and(|bound| bound.address.0 != address)
    }

    pub(super) fn bind(&mut self, address: SocketAddr, arrival: &Arrival) {
        let Arrival { key, began_ms, .. } = *arrival;
        if self.bound.find(key).is_some() {
            return;
        }
        let address = AddressKey(address);
        let evicted = self.bound.add(key, began_ms, Bound { began_ms, address });
        if let Some((key, bound)) = evicted {
            self.owners.remove(&(bound.address, key.session));
        }
        self.owners.insert((address, key.session), key.client);
    }
}

/// Sessions that are remembered as known. What is evicted is refused.
const BOUND_MAX: usize = 1 << 17;
