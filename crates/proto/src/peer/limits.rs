//! Limits of what a server admits: their configuration, and what is held against them.

use std::net::IpAddr;

use crate::address::Prefix;
use tailcut_placement::slab::{ROOM_MAX, room};

/// Configuration of the server half of an endpoint.
#[derive(Clone, Debug)]
pub struct Serving {
    /// True if requests are taken at all; otherwise they are refused. Default true.
    pub is_enabled: bool,
    /// Addresses taken for validated. Default the loopback networks, from which nothing can be
    /// spoofed. Others must echo a token; until then they get at most three bytes for one. Homa's
    /// kernel module echoes half of it: add the networks of its hosts.
    pub trusted: Vec<Prefix>,
    /// Requests being received, waiting for the application or kept with their reply, in all.
    /// Default 65 536. Of the upper half, clients of one address, or /64 of IPv6, have at most
    /// three times what is left.
    pub requests_max: usize,
    /// Requests of one client, likewise. Default 16 384, a client's own default limit.
    pub requests_per_client_max: usize,
    /// Messages half received, in all. Default 4096. One client's address, or /64 of IPv6, has at
    /// most three times what is left of them. Of Homa's clients whose addresses are not validated,
    /// which of R2P2 send one packet at first, there are half as many, and half of `requests_max`,
    /// at most.
    pub partials_max: usize,
    /// Bytes of messages half received and of replies kept, in all. Default 256 MiB, with the same
    /// shares as the requests.
    pub held_bytes_max: usize,
    /// Bytes of one client, likewise. Default 64 MiB.
    pub held_bytes_per_client_max: usize,
    /// Longest time that a half-received message may make no progress. Default 50 ms with R2P2: a
    /// client whose packets are lost sends again within 32 ms, and one that has died leaves its
    /// place to others. 1 s with Homa, whose clients may have much else to send first.
    pub partial_ns_max: u64,
    /// Sessions remembered for each client. Default 64.
    pub sessions_per_client_max: usize,
    /// Sessions remembered of a client whose address is not validated. Default 2 with R2P2, whose
    /// clients need one, 64 with Homa.
    pub sessions_unvalidated_max: usize,
    /// Bytes of all sessions and of what they remember of their requests, which is what keeps a
    /// copy from running again. Default 32 MiB: some 230 000 sessions of clients that call one
    /// server, or 3 500 of clients that spread calls over many. Addresses that are not validated
    /// have half of it.
    pub sessions_bytes_max: usize,
    /// Bytes of the sessions of one network, a /24 of IPv4 or a /56 of IPv6. Default 16 MiB, half
    /// of the whole, so that no network leaves the others without, and room for 1 000 clients on
    /// one host, whatever they do. Raise both where more are behind one address.
    pub sessions_bytes_per_prefix_max: usize,
    /// Time for which an idle client or session is remembered, so that a late duplicate does not
    /// run. Default 5 s: longer than any network of a datacenter holds a packet. Routers rely on no
    /// less.
    pub session_idle_ns: u64,
    /// Longest that the network takes to carry a datagram. A retransmission that is not idempotent
    /// and may have been sent first before this server started, or before the session expired, is
    /// refused, since it may have run. Default 10 ms: more than a datacenter's queues hold.
    pub transit_ns_max: u64,
    /// Entries for which the tables of peers and of ids and Homa's queue of control packets have
    /// room from the beginning, at most. Default 4096, and no more: to grow is to hash or to copy
    /// all of a table within one packet. Less where one process has hundreds of endpoints, whose
    /// tables then share its caches. Where no requests are taken, tables of peers have none: a
    /// client has few, and is opened sooner.
    pub table_room: usize,
}

impl Serving {
    /// Entries for which a table that may have `most` has room from the beginning.
    pub(crate) fn room(&self, most: usize) -> usize {
        room(most).min(self.table_room)
    }

    /// As [`Serving::room`], of a table that fills with those who call: none where no requests are
    /// taken.
    pub(crate) fn callers_room(&self, most: usize) -> usize {
        if self.is_enabled { self.room(most) } else { 0 }
    }
}

/// Holdings of an endpoint at a moment. All of it is 0 when nothing is under way: what it remembers
/// of peers and the buffers that it keeps for reuse do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Client: calls that have not ended.
    pub calls: usize,
    /// Server: requests being received, waiting for the application, or kept with their reply.
    pub requests: usize,
    /// Server: requests half received.
    pub partials: usize,
    /// Server: requests that the application has and has not answered.
    pub waiting: usize,
    /// Server: bytes of messages half received and of replies kept.
    pub held_bytes: usize,
    /// Credit that peers have and have not used, over all messages: packets of R2P2, bytes
    /// of Homa.
    pub expected: u64,
}

impl Serving {
    /// True if `ip` is in a trusted network.
    pub(crate) fn is_trusted(&self, ip: IpAddr) -> bool {
        self.trusted.iter().any(|prefix| prefix.contains(ip))
    }
}

impl Default for Serving {
    fn default() -> Self {
        Self {
            is_enabled: true,
            trusted: vec![
                Prefix { ip: IpAddr::from([127, 0, 0, 0]), bits: 8 },
                Prefix { ip: IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1u16]), bits: 128 },
            ],
            requests_max: 65_536,
            requests_per_client_max: 16_384,
            partials_max: 4096,
            held_bytes_max: 256 << 20,
            held_bytes_per_client_max: 64 << 20,
            partial_ns_max: 50_000_000,
            sessions_per_client_max: 64,
            sessions_unvalidated_max: 2,
            sessions_bytes_max: 32 << 20,
            sessions_bytes_per_prefix_max: 16 << 20,
            session_idle_ns: SESSION_IDLE_NS,
            transit_ns_max: 10_000_000,
            table_room: ROOM_MAX,
        }
    }
}

/// Default of [`Serving::session_idle_ns`].
pub(crate) const SESSION_IDLE_NS: u64 = 5_000_000_000;
