//! Configuration of an R2P2 endpoint, with the defaults and their reasons.

use std::net::SocketAddr;

pub use crate::address::Prefix;
use crate::address::is_within;
use crate::peer::cookies::AskCookies;
use crate::peer::limits::Serving;
use crate::rtt::Bounds;
use crate::sealed::Sealing;

/// Configuration of an R2P2 endpoint.
#[derive(Clone, Debug)]
pub struct Config {
    /// Payload bytes of a packet. Default 1380: with the 72 bytes of the longest header it fits an
    /// Ethernet MTU of 1500 over IPv4 and IPv6. Raise it only where every path carries more. At
    /// least 64, at most 65 000.
    pub segment_len: u16,
    /// Payload bytes of a packet to an endpoint of the same host, at a loopback address, that takes
    /// such packets. Default 16 000: four of them make a GSO batch, and the least credit of many
    /// messages fits a socket's buffer. Where it is not above [`Config::segment_len`] none are
    /// longer, nor taken. At most 65 000; whoever opens the socket makes it less where the loopback
    /// interface carries less.
    pub local_segment_len: u16,
    /// Networks that carry such packets besides: a fabric of jumbo frames, say, whose routers and
    /// servers are all in it, and whose frames [`Config::local_segment_len`] must fit (8000 fits
    /// 9000 bytes). Default none.
    pub long_networks: Vec<Prefix>,
    /// Longest message taken or sent, in bytes. Default 8 MiB. At most 65 534 segments.
    pub message_len_max: usize,
    /// Bytes that peers together may be given credit for. Default 104 kB, half of Linux's default
    /// socket buffer. Whoever opens the socket sets it to half of the buffer it got, since the
    /// kernel charges up to twice a packet's bytes.
    pub credit_bytes: usize,
    /// Retransmission timeout before anything is known of a peer. Default 2 ms: above a round trip
    /// with two wake-ups.
    pub rto_initial_ns: u64,
    /// Shortest retransmission timeout. Default 500 us: several wake-ups of a blocking peer.
    pub rto_min_ns: u64,
    /// Longest retransmission timeout, unless the measured round trip is longer: a slow server is
    /// waited for, up to 2 s. Default 32 ms: some thirty attempts within a deadline of one second.
    pub rto_max_ns: u64,
    /// Distance in packets that a packet may be overtaken by before it counts as lost. Default 3,
    /// as in TCP.
    pub reorder_packets: u16,
    /// Calls outstanding at once. Default 16 384; at most 65 535, the width of the index on the
    /// wire.
    pub calls_max: usize,
    /// Furthest that a deadline may be ahead, and how long a request without one is kept. Default
    /// 60 s.
    pub lifetime_ns_max: u64,
    /// Bytes of capacity kept for reuse. Default 64 MiB.
    pub pool_bytes_max: usize,
    /// Servers whose token and round trip the client remembers. Default 4096.
    pub servers_max: usize,
    /// Targets that stand for each other: routers before one set of servers. A call to one goes to
    /// the next where that does not answer, within 100 ms, and one that may run once still runs
    /// once at most, if all of them know the same servers and see this client at the same address.
    /// Default none: calls go where they are told.
    pub alternates: Vec<SocketAddr>,
    /// True if calls keep the time between them that a target asks for which refuses for overload,
    /// and of the idempotent ones a tenth is tried again. Default true. An instrument that is to
    /// offer a load whatever happens turns it off.
    pub is_paced: bool,
    /// Secret of this endpoint: ids, table seeds. Must be random and different at every start.
    pub secret: [u8; 16],
    /// Clients remembered. Default 131,072, which take some 430 bytes each as they come. Above
    /// 4096, or half of it, only clients whose address is validated are added. One network, a /24
    /// of IPv4 or a /56 of IPv6, has at most three for each that is free.
    pub clients_max: usize,
    /// Configuration of the server half. Version 1 clients, whose address cannot be validated,
    /// get replies of more than three times their request only if it is trusted.
    pub serving: Serving,
    /// The pool that it serves in.
    pub pool: Pool,
    /// Copies of its calls.
    pub cloning: Cloning,
    /// Keys, where packets are sealed: then nothing that is not sealed is taken, and version 1 is
    /// not spoken. A server's keys serve alone, a client's call alone. Default none: packets are
    /// open.
    pub seal: Option<Sealing>,
}

/// Treatment by a client of copies of its idempotent calls, besides taking the first reply of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cloning {
    /// Calls that it sends twice. Default none: it leaves that to routers.
    pub copies: Copies,
    /// Servers that a copy may go to: a random one that is not the call's target. Default none: the
    /// copy goes to the target too, a router, which places it on another server.
    pub servers: Vec<SocketAddr>,
    /// Treatment of the copy that has lost. Default [`Loser::Runs`], as published.
    pub loser: Loser,
}

/// Calls that a client sends twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copies {
    /// None.
    #[default]
    Never,
    /// All, at once, and no server discards the copy: C-Clone (Vulimiri et al., CoNEXT'13). It
    /// halves what the servers can do.
    Always,
    /// Those that take longer than most.
    Hedge(Hedge),
}

/// Condition on which a copy is sent because the first has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hedge {
    /// Quantile of the target's reply times after which a copy goes, in thousandths. Default 950. A
    /// timer's tick is 66 us, so that copies are late by as much.
    pub quantile_permille: u16,
    /// Most copies, in thousandths of calls. Default 50: where the servers are slower than they
    /// were, more calls than intended are late, and copies of all of them would slow them further.
    pub budget_permille: u16,
}

impl Default for Hedge {
    fn default() -> Self {
        Self { quantile_permille: 950, budget_permille: 50 }
    }
}

/// Treatment of a copy once the other has answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loser {
    /// It runs to its end.
    #[default]
    Runs,
    /// Its server is told by a packet that nobody waits for it, which takes it out of the queue,
    /// or stops it where the application can.
    IsCancelled,
}

/// The pool that a server belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    /// The server's identity in replies and feedback. Default 0.
    pub server_id: u32,
    /// Wall-clock time at the endpoint's time 0, nanoseconds, by which tokens expire: the servers
    /// of a pool must agree on it to half an hour. Default 0, enough for a server that has its key
    /// alone.
    pub clock_ns: u64,
    /// Key of the address tokens. `None` derives one from the endpoint's secret; the servers of a
    /// pool behind one router share one, so that a client validates its address once for all.
    pub key: Option<[u8; 16]>,
    /// Condition on which clients must show by a cookie that they receive at their addresses before
    /// anything is done for them, besides those of `serving.trusted`, whose addresses cannot be
    /// forged. Version 1 clients, who cannot, are refused then. Default never: a request of one
    /// packet runs, and its reply is at most three times as long until the address is validated.
    /// Sealed packets need none.
    pub cookies: AskCookies,
    /// The router that keeps clients' addresses (and that version 1 feedback goes to). A router
    /// that writes the client's address into the packet needs no entry: it is believed once it has
    /// echoed its token in a PROBE.
    pub router: Option<SocketAddr>,
    /// Routers besides the configured one whose requests are counted. Default 16; of more, the
    /// network that has most makes room.
    pub routers_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            segment_len: 1380,
            local_segment_len: 16_000,
            long_networks: Vec::new(),
            message_len_max: 8 << 20,
            credit_bytes: 104_000,
            rto_initial_ns: 2_000_000,
            rto_min_ns: 500_000,
            rto_max_ns: 32_000_000,
            reorder_packets: 3,
            calls_max: 16_384,
            lifetime_ns_max: 60_000_000_000,
            pool_bytes_max: 64 << 20,
            servers_max: 4096,
            alternates: Vec::new(),
            is_paced: true,
            secret: [0; 16],
            clients_max: 131_072,
            serving: Serving::default(),
            pool: Pool::default(),
            cloning: Cloning::default(),
            seal: None,
        }
    }
}

impl Default for Pool {
    fn default() -> Self {
        let cookies = AskCookies::Never;
        Self { server_id: 0, clock_ns: 0, key: None, cookies, router: None, routers_max: 16 }
    }
}

impl Config {
    /// The longest message that can be cut into packets.
    pub(super) fn packets_len_max(&self) -> usize {
        usize::from(self.segment_len) * usize::from(u16::MAX - 1)
    }

    /// True if `peer` is on this host or in a network of long packets, and such come from there.
    #[inline]
    pub(super) fn is_local(&self, peer: SocketAddr) -> bool {
        self.local_segment_len > self.segment_len && is_within(peer.ip(), &self.long_networks)
    }

    /// Payload bytes of a packet to a peer that takes long ones, or does not.
    #[inline]
    pub(super) fn segment_len_to(&self, takes_long: bool) -> u16 {
        if takes_long { self.local_segment_len } else { self.segment_len }
    }

    /// Bounds of the retransmission timeout.
    pub(super) fn timeouts(&self) -> Bounds {
        Bounds { initial_ns: self.rto_initial_ns, min_ns: self.rto_min_ns, max_ns: self.rto_max_ns }
    }

    /// Packets that the credit amounts to, at least 4 so that a message always moves.
    pub(super) fn credit_packets(&self) -> u32 {
        (self.credit_bytes / usize::from(self.segment_len.max(1))).max(4) as u32
    }
}
