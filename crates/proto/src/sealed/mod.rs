//! Sealed R2P2 and Homa: payloads encrypted and authenticated from end to end, headers clear and
//! authenticated, so that a router of R2P2 which holds no key of a payload can place requests. What
//! only Homa does, which has no routers, is in `homa`.
//!
//! A seal stands between a node and the network. What arrives is opened in place before the node
//! parses it, and what the node has written is sealed in place, in room that the node has left:
//!
//! | packet | from, to | payload | header | what a router writes |
//! |---|---|---|---|---|
//! | REQUEST, REPLY_ACK, CANCEL | client, server | sealed | associated data | hop tag, anew at each router |
//! | RESPONSE, ACK, DROP | server, client | sealed | associated data | none |
//! | PROBE, CLAIM, FEEDBACK, CLAIMED, ACK | router, server | clear | hop tag | none |
//! | ACK with HELD, DROP | router, client | clear | hop tag | none |
//!
//! | an arriving packet is | then |
//! |---|---|
//! | open, or of version 1 | counted, dropped |
//! | of an epoch that is not accepted | counted, dropped; a request is answered ([`NoKey`]) |
//! | of R2P2, without its hop tag, or for another node | counted, dropped, before anything else is derived |
//! | not what was sealed | counted, dropped |
//! | a request that names no receiver | not run: its client is told whom it has reached |
//! | a request that the server's policy does not allow its client ([`Access`]) | rejected with a text |
//! | genuine | the node hears of it |
//!
//! | while a node runs | then |
//! |---|---|
//! | newer keys come | those in use are kept beside them; sessions begin under what is current |
//! | keys of another role, group or cipher come, or another key of an epoch | refused, nothing changes |
//! | the wall clock is read again | epochs, beginnings and ages are told by it |
//! | it has been set back | a router takes another name: what was recorded is for the one before |
//!
//! Invariant: nothing that is not genuine makes a node remember anything, no nonce is used twice
//! under a key, and what was recorded is nothing to a node that it was not for. `docs/sealed.md` is
//! the normative text.

mod access;
mod beginning;
mod client;
mod client_epoch;
mod clients;
mod coalesced;
mod endpoint;
mod homa;
mod keys;
mod known;
mod limits;
mod names;
mod neighbours;
mod packet;
mod plane;
mod primitives;
mod reader;
mod replay;
mod reset;
mod router;
mod server;
mod text;
mod wall_clock;
mod window;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

pub use self::access::{
    Access, AccessError, Called, DENIED_CODE, Denial, METHOD_VERSION, method_number, method_of,
};
pub use self::client_epoch::{CLIENT_MAX, ClientEpoch};
pub use self::endpoint::EndpointSeal;
pub use self::keys::{
    CLOCK_TOLERANCE_MS, ChangedKeys, EPOCH_KEPT_MS, EpochKey, HopKey, Keys, Role, Sealing, Secret,
};
pub(crate) use self::limits::{ANSWER_LEN, ANSWERS_MAX, HOMA_ANSWER_LEN};
pub use self::limits::{LostKeys, NoKey, RouterLimits, SealVerdict};
pub use self::plane::{PlaneEpoch, PlaneSeal, PlaneSession};
pub use self::primitives::Cipher;
pub use self::reader::Reader;
pub use self::router::RouterSeal;
pub use self::text::KeysError;
pub use tailcut_wire::r2p2::sealed::TRAILER_LEN;

use crate::address::AddressKey;
use tailcut_placement::keyed::KeyedState;

/// Counters of a seal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SealMetrics {
    /// Datagrams dropped because they are not sealed, or of a type that is not for this node.
    pub unsealed: u64,
    /// Datagrams dropped because they name an epoch or a session whose keys are not at hand.
    pub unknown_keys: u64,
    /// Datagrams dropped because a tag is not that of the key.
    pub forged: u64,
    /// Packets between router and server dropped because a later one has come, or the same; at a
    /// router requests whose call has ended; at a client packets of a server that come from where
    /// it was not heard, after later ones. Over Homa packets that have come before, or may have.
    pub replayed: u64,
    /// Packets between router and server dropped because they are for another node, or of another.
    /// Over Homa packets that name nobody and ask nothing, and calls back that are not of whom, or
    /// from where, the session is with.
    pub misdirected: u64,
    /// Requests dropped by a router because their deadline has passed by the client's clock.
    pub outdated: u64,
    /// Requests, over Homa questions, that named no node: unless they are known, this node answers
    /// them with its own name.
    pub unnamed: u64,
    /// Requests refused because their session may be older than the server, is at another address,
    /// or may have been evicted; over Homa their packets, and questions about them.
    pub stale_sessions: u64,
    /// Requests dropped because their session begins in a moment by this server's clock.
    pub ahead: u64,
    /// Datagrams not sent because the keys for their peer are not at hand.
    pub unsealable: u64,
    /// Requests rejected because the access policy does not allow their client what they are for.
    pub denied: u64,
    /// Requests of whose epoch this node has no key, and that it has answered so.
    pub no_key_sent: u64,
    /// Genuine answers of that kind to calls of this client.
    pub no_key_received: u64,
}

/// Reason why a datagram is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Unsealed,
    UnknownKeys,
    Forged,
    Replayed,
    Misdirected,
    Outdated,
    Ahead,
}

impl SealMetrics {
    fn count(&mut self, cause: Cause) {
        let counter = match cause {
            Cause::Unsealed => &mut self.unsealed,
            Cause::UnknownKeys => &mut self.unknown_keys,
            Cause::Forged => &mut self.forged,
            Cause::Replayed => &mut self.replayed,
            Cause::Misdirected => &mut self.misdirected,
            Cause::Outdated => &mut self.outdated,
            Cause::Ahead => &mut self.ahead,
        };
        *counter += 1;
    }
}

/// Values that a node remembers of peers, by their addresses: the oldest make room.
#[derive(Debug)]
struct Peers<T> {
    /// Value of each.
    by_address: HashMap<AddressKey, T, KeyedState>,
    /// In the order in which they were added.
    order: VecDeque<SocketAddr>,
    /// Most of them.
    len_max: usize,
}

impl<T> Peers<T> {
    fn new(len_max: usize, seed: u64) -> Self {
        let by_address = HashMap::with_hasher(KeyedState::with_seed(seed));
        Self { by_address, order: VecDeque::new(), len_max: len_max.max(1) }
    }

    #[inline]
    fn find(&self, address: SocketAddr) -> Option<&T> {
        self.by_address.get(&AddressKey(address))
    }

    /// The record of an address, made if need be.
    fn entry(&mut self, address: SocketAddr, new: impl FnOnce() -> T) -> &mut T {
        let key = AddressKey(address);
        if !self.by_address.contains_key(&key) {
            if self.order.len() >= self.len_max
                && let Some(oldest) = self.order.pop_front()
            {
                self.by_address.remove(&AddressKey(oldest));
            }
            self.order.push_back(address);
        }
        self.by_address.entry(key).or_insert_with(new)
    }
}

/// Counts the packets of one node that name their time: strictly rising.
#[derive(Debug, Default)]
struct Times(u64);

impl Times {
    fn next(&mut self, wall_us: u64) -> u64 {
        self.0 = wall_us.max(self.0 + 1);
        self.0
    }
}

#[cfg(test)]
mod tests;
