//! Configuration of a Homa endpoint, with the defaults and their reasons.

use std::net::{IpAddr, SocketAddr};

use tailcut_wire::homa::DataFlags;

use super::cutoffs::{Cutoffs, Priorities, UnscheduledRank};
use super::outgoing::Outgoing;
pub use crate::address::Prefix;
use crate::address::is_within;
use crate::peer::cookies::AskCookies;
use crate::peer::limits::Serving;
use crate::sealed::{Sealing, TRAILER_LEN};

/// Configuration of a Homa endpoint.
#[derive(Clone, Debug)]
pub struct Config {
    /// Division of messages into packets.
    pub framing: Framing,
    /// Networks that carry packets of [`Framing::local_len`] besides those within this host: a
    /// fabric of jumbo frames, say. Default none.
    pub long_networks: Vec<Prefix>,
    /// Form in which packets are sent. Default [`Carrier::Own`]. Either is taken, whatever this
    /// says.
    pub carrier: Carrier,
    /// Longest message taken or sent, in bytes. Default 8 MiB. Above
    /// [`tailcut_wire::homa::MESSAGE_LEN_MAX`], which is all that the kernel's module takes, the
    /// peer must be of this implementation.
    pub message_len_max: usize,
    /// Longest message sent in one RPC, in bytes: a call that has more is carried by several.
    /// Default no limit but `message_len_max`, since each part is copied twice more at either end.
    /// At least [`tailcut_wire::homa::MESSAGE_LEN_MAX`], and that towards peers that take no more.
    pub rpc_len_max: u32,
    /// Bytes of a message that are sent without waiting for a grant. Default 40 000, as the
    /// module's: a round trip of 30 us at 10 Gbit/s. SIGCOMM'18 has 9328, for one of 7.8 us.
    pub unscheduled_len: u32,
    /// Most bytes taken of a message without a grant, whatever its sender says. Default 100 kB,
    /// more than twice the module's default.
    pub unscheduled_len_max: u32,
    /// Incast control, for when many calls are outstanding.
    pub incast: Incast,
    /// Configuration of grants.
    pub grants: Grants,
    /// Rules by which this endpoint's peers choose priorities for what they send to it.
    pub priorities: Priorities,
    /// Cutoffs taken for a peer's before it has told them. Default: everything at level 6, as the
    /// module has it.
    pub assumed: Cutoffs,
    /// The link below, so that no long queue builds before the NIC, where a short message could not
    /// overtake. Default `None`: whoever drives the endpoint asks for datagrams only when there is
    /// room.
    pub link: Option<Link>,
    /// Most datagrams in one GSO batch. Default [`crate::node::GSO_DATAGRAMS_MAX`]; 1 where each is
    /// to be chosen by itself.
    pub gso_batch_len_max: usize,
    /// Timeouts and limits of loss recovery.
    pub recovery: Recovery,
    /// Calls outstanding at once. Default 16 384.
    pub calls_max: usize,
    /// Calls outstanding to one peer. Default 16 384; at most 32 768, half of a window of ids.
    pub calls_per_peer_max: usize,
    /// Furthest that a deadline may be ahead, and how long a request without one is kept. Default
    /// 60 s.
    pub lifetime_ns_max: u64,
    /// Bytes of capacity kept for reuse. Default 64 MiB.
    pub pool_bytes_max: usize,
    /// Peers remembered. Default 8192. Above half of it, only peers that are trusted or validated
    /// their address are added. One network, a /24 of IPv4 or a /56 of IPv6, has at most three for
    /// each that is free.
    pub peers_max: usize,
    /// Control packets of no live RPC that wait to be sent. Default 4096.
    pub control_len_max: usize,
    /// The Homa port of this endpoint's calls. Default 32 768, the first of clients.
    pub client_port: u16,
    /// Secret of this endpoint: ids, proofs of address, table seeds. Must be random and different
    /// at every start.
    pub secret: [u8; 16],
    /// Keys, where packets are sealed: then nothing that is not sealed is taken, and the keys say
    /// whether this is a server or a client, which alone it can be. Default `None`: packets are
    /// open. The kernel's module takes no sealed ones.
    pub seal: Option<Sealing>,
    /// Cookies by which clients must show that they receive at their addresses. Default: never
    /// asked for.
    pub cookies: CookieConfig,
    /// Configuration of the server half.
    pub serving: Serving,
}

/// Configuration of a server's cookies: when it asks clients for them, and by what it makes them.
#[derive(Clone, Copy, Debug, Default)]
pub struct CookieConfig {
    /// Condition on which it asks those that are not trusted. Default never. The kernel's module,
    /// which knows no cookies, is not served then. Sealed packets need none, and those in the
    /// disguise of TCP have none: there it never asks.
    pub ask: AskCookies,
    /// Key of the cookies, by which several endpoints make the same. Default `None`: one is derived
    /// from the secret.
    pub key: Option<[u8; 16]>,
    /// Wall-clock time at the endpoint's time 0, nanoseconds, by which cookies expire: who shares
    /// the key must agree on it to a minute. Default 0.
    pub clock_ns: u64,
}

/// Division of messages into packets, and the cost of a packet on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// Bytes of data in a packet of unscheduled data. Default 1396: with UDP it fits an Ethernet
    /// MTU of 1500 over IPv6 too.
    pub unscheduled_len: u32,
    /// Bytes of data in a packet of scheduled data. Default 1396.
    pub scheduled_len: u32,
    /// Bytes of data in a packet to an endpoint of the same host, at a loopback address, that takes
    /// such packets. Default 16 000, of which four make a GSO batch; directly over IP, which has
    /// none, 60 000. Where it is not above [`Framing::scheduled_len`] none are longer, nor taken.
    /// At most 60 000; whoever opens the socket makes it less where the loopback interface carries
    /// less.
    pub local_len: u32,
    /// A message of up to twelve packets that needs no grant is cut into equal ones, so that one
    /// GSO batch holds several such messages. Default true, but directly over IP, which has no GSO.
    pub is_even: bool,
    /// Bytes on the wire of a packet of unscheduled data besides its data. Default 122: 56 of Homa,
    /// 28 of IPv4 and UDP, 38 of Ethernet with preamble and gap.
    pub unscheduled_overhead: u32,
    /// Bytes on the wire of a packet of scheduled data besides its data. Default 122.
    pub scheduled_overhead: u32,
    /// Bytes of a message, from its beginning, that are stored and delivered; those behind them are
    /// only counted. Default all. Only simulations, whose long messages say nothing, have a reason
    /// for less: it spares them the memory. See
    /// [`Endpoint::call_padded`](super::Endpoint::call_padded).
    pub content_len_max: u32,
}

/// Form in which packets are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Payload of UDP, or IP protocol 146.
    Own,
    /// Segments of TCP to NICs, which then cut them and spread them over cores: what the module's
    /// `hijack_tcp` does. Whoever drives the endpoint sends them as IP protocol 6, and gives it the
    /// segments that [`tailcut_wire::homa::is_hijacked`] tells. For peers that take such; some
    /// fabrics drop them.
    HijackedTcp {
        /// The address that packets are sent from, which TCP's checksum covers.
        source: IpAddr,
    },
}

/// Incast control: when many replies are awaited, they come with few unscheduled bytes (SIGCOMM'18
/// section 3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incast {
    /// Calls outstanding above which requests are marked. Default 100: 4 MB of the default
    /// unscheduled bytes, what the buffer of a switch holds for a port.
    pub calls_max: usize,
    /// Unscheduled bytes of a reply to a marked request. Default 400, "a few hundred" in the paper.
    pub unscheduled_len: u32,
}

/// Configuration of grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grants {
    /// Grant policy: which messages get grants, of how many bytes, and in which order.
    pub policy: GrantPolicy,
    /// Messages that may have grants at once. Default 8, as the module's; SIGCOMM'18: as many as
    /// scheduled levels. At most 16.
    pub overcommit: usize,
}

/// A receiver's policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantPolicy {
    /// As the kernel module: rank by bytes not received, and grant a window beyond what has
    /// arrived.
    Module {
        /// Bytes granted ahead of what has arrived, for each message; 0, the default, divides
        /// `incoming_max` by the messages that have grants and one more.
        window: u32,
        /// Most bytes granted and not arrived, in all. Default 400 000.
        incoming_max: u32,
        /// Share of what is granted that goes to the oldest message, against starvation, in
        /// thousandths. Default 50.
        fifo_permille: u32,
        /// Bytes of one such grant. Default 50 000.
        fifo_increment: u32,
    },
    /// As the simulations of SIGCOMM'18: rank senders by the bytes that their best message has not
    /// been granted, and keep as much of each in flight, by grants that follow each other in no
    /// less than their data's time.
    Sigcomm(Pull),
}

/// Parameters by which [`GrantPolicy::Sigcomm`] grants a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pull {
    /// Bytes on the wire in flight at which a message gets no more grants. Default 10 000, as the
    /// paper's. Also the length of the tail that gets the priority of an unscheduled message of its
    /// length.
    pub rtt_bytes: u32,
    /// Bytes of data in a grant. Default 1396, a packet; those of several where packets are short,
    /// so that grants do not become more.
    pub grant_len: u32,
    /// Time that the packets of a grant take on the link. Default 1231, that of a full frame at 10
    /// Gbit/s.
    pub grant_ns: u64,
}

/// The link below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its speed.
    pub bits_per_second: u64,
    /// Longest queue before the NIC, as the time that it takes to drain. Default of the module 5
    /// us, of RAMCloud 2 us.
    pub queue_ns_max: u64,
    /// Messages up to this length are sent whatever the queue. RAMCloud has 300, the module 1000.
    pub bypass_len: u32,
}

/// Timeouts and limits of loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Silence after which a receiver asks, before anything is known of the peer. Default 1 ms:
    /// above a round trip with two wake-ups, a fifth of the module's.
    pub silence_initial_ns: u64,
    /// Shortest such silence, once round trips are known. Default 300 us. Where nothing is ever
    /// lost, higher values spare packets.
    pub silence_min_ns: u64,
    /// Longest such silence, after doubling with every time that nothing has come. Default 32 ms.
    pub silence_max_ns: u64,
    /// Longest time that granted bytes which do not come are not missed while data of their
    /// priority or a better one does: they wait behind it. Default 3 ms: what a few long messages
    /// take at 10 Gbit/s. What is lost meanwhile is asked for that much later.
    pub crowding_ns_max: u64,
    /// Age of a hole at which it is asked for; a round trip, where that is longer. Default 150 us:
    /// packets of one message pass through queues of several priorities, and the module lost
    /// throughput with 100.
    pub gap_ns_min: u64,
    /// Bytes that this endpoint asks for again and that have not come, over all messages; what else
    /// is missing waits. Default 100 000, a bandwidth-delay product: many messages that lose
    /// packets together lose them together again where all is asked for at once.
    pub asked_bytes_max: u32,
    /// Silence of a client after the last byte of a reply after which the server asks whether it
    /// may release it; longer where acknowledgements of this client take longer, up to
    /// `silence_max_ns`. Doubles. Default 2 ms: most acknowledgements come with other packets.
    pub need_ack_ns: u64,
    /// Number of times that it asks before it releases the reply. Default 10.
    pub need_acks_max: u8,
    /// Time for which questions about a request that is half received, at least four, stay
    /// unanswered until it is released, counted from the last sign of life of its client. Default
    /// 100 ms: a machine that does much else may not run a client for 50, and what it sends of a
    /// request after that is refused, `Uncertain`.
    pub partial_silence_ns_max: u64,
    /// Silence of a peer after which calls to it fail. Default 5 s: longer than a switch takes to
    /// come back.
    pub peer_silence_ns_max: u64,
}

impl Config {
    /// True if `peer` is on this host or in a network of long packets, and such come from there. As
    /// segments of TCP they do not.
    #[inline]
    pub(super) fn is_local(&self, peer: SocketAddr) -> bool {
        self.framing.local_len > self.framing.scheduled_len
            && self.carrier == Carrier::Own
            && is_within(peer.ip(), &self.long_networks)
    }

    /// Flags of DATA to `peer` about packets between the two.
    pub(super) fn flags(&self, peer: SocketAddr) -> u8 {
        if self.is_local(peer) { DataFlags::LONG } else { 0 }
    }

    /// Longest message that goes in one RPC.
    pub(super) fn single_len_max(&self) -> usize {
        self.message_len_max.min(self.rpc_len_max as usize)
    }

    /// Receiver and sender as the simulations of SIGCOMM'18 had them, on links of 10 Gbit/s: spec
    /// and figures are in `docs/protocol/homa.md`. `overcommit` is also the number of scheduled
    /// levels.
    pub fn sigcomm(overcommit: u8, cutoffs: Cutoffs) -> Self {
        let framing = Framing {
            unscheduled_len: 1442,
            scheduled_len: 1456,
            is_even: false,
            unscheduled_overhead: 96,
            scheduled_overhead: 82,
            ..Framing::default()
        };
        let policy = GrantPolicy::Sigcomm(Pull { grant_len: 1456, ..Pull::default() });
        let rank = UnscheduledRank::Remaining;
        Self {
            framing,
            unscheduled_len: 9328,
            grants: Grants { policy, overcommit: usize::from(overcommit) },
            priorities: Priorities {
                levels: 8,
                cutoffs,
                scheduled_levels: overcommit,
                adaptive: None,
                rank,
            },
            assumed: cutoffs,
            gso_batch_len_max: 1,
            ..Self::default()
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            framing: Framing::default(),
            long_networks: Vec::new(),
            carrier: Carrier::Own,
            message_len_max: 8 << 20,
            rpc_len_max: u32::MAX,
            unscheduled_len: 40_000,
            unscheduled_len_max: 100_000,
            incast: Incast { calls_max: 100, unscheduled_len: 400 },
            grants: Grants::default(),
            priorities: Priorities::default(),
            assumed: Cutoffs::UNKNOWN,
            link: None,
            gso_batch_len_max: crate::node::GSO_DATAGRAMS_MAX,
            recovery: Recovery::default(),
            calls_max: 16_384,
            calls_per_peer_max: 16_384,
            lifetime_ns_max: 60_000_000_000,
            pool_bytes_max: 64 << 20,
            peers_max: 8192,
            control_len_max: 4096,
            client_port: tailcut_wire::homa::CLIENT_PORT_MIN,
            secret: [0; 16],
            seal: None,
            cookies: CookieConfig::default(),
            serving: Serving {
                partial_ns_max: 1_000_000_000,
                sessions_unvalidated_max: 64,
                ..Serving::default()
            },
        }
    }
}

impl Framing {
    /// Directly over IP: packets of 1404 bytes of data, which fit an Ethernet MTU of 1500 over IPv6
    /// too. Each costs 56 bytes of Homa, 20 of IPv4 and 38 of Ethernet.
    pub const IP: Self = Self {
        unscheduled_len: 1404,
        scheduled_len: 1404,
        local_len: 60_000,
        is_even: false,
        unscheduled_overhead: 114,
        scheduled_overhead: 114,
        content_len_max: u32::MAX,
    };

    /// Division for datagrams of the same length, of which a seal has some bytes.
    pub(super) fn sealed(mut self) -> Self {
        let trailer_len = TRAILER_LEN as u32;
        self.unscheduled_len = self.unscheduled_len.saturating_sub(trailer_len).max(1);
        self.scheduled_len = self.scheduled_len.saturating_sub(trailer_len).max(1);
        self.local_len = self.local_len.saturating_sub(trailer_len);
        self.unscheduled_overhead += trailer_len;
        self.scheduled_overhead += trailer_len;
        self
    }

    /// Bytes of data in the packets of a message, unscheduled and scheduled, to a peer that takes
    /// long ones or does not.
    #[inline]
    pub(super) fn lens(&self, message: &Outgoing, takes_long: bool) -> (u32, u32) {
        let (first, rest) = match takes_long {
            true => (self.local_len, self.local_len),
            false => (self.unscheduled_len, self.scheduled_len),
        };
        let len = message.len();
        let is_short = len > first && len <= first * EVEN_PACKETS_MAX;
        if self.is_even && is_short && message.granted() == len {
            return (len.div_ceil(len.div_ceil(first)), rest);
        }
        (first, rest)
    }
}

/// Longer messages fill batches by themselves.
const EVEN_PACKETS_MAX: u32 = 12;

impl Default for Framing {
    fn default() -> Self {
        let (unscheduled_overhead, scheduled_overhead) = (122, 122);
        Self {
            unscheduled_len: 1396,
            scheduled_len: 1396,
            local_len: 16_000,
            is_even: true,
            unscheduled_overhead,
            scheduled_overhead,
            content_len_max: u32::MAX,
        }
    }
}

impl Default for Grants {
    fn default() -> Self {
        let policy = GrantPolicy::Module {
            window: 0,
            incoming_max: 400_000,
            fifo_permille: 50,
            fifo_increment: 50_000,
        };
        Self { policy, overcommit: 8 }
    }
}

impl Default for Pull {
    fn default() -> Self {
        Self { rtt_bytes: 10_000, grant_len: 1396, grant_ns: 1231 }
    }
}

impl Default for Recovery {
    fn default() -> Self {
        Self {
            silence_initial_ns: 1_000_000,
            silence_min_ns: 300_000,
            silence_max_ns: 32_000_000,
            crowding_ns_max: 3_000_000,
            gap_ns_min: 150_000,
            asked_bytes_max: 100_000,
            need_ack_ns: 2_000_000,
            need_acks_max: 10,
            partial_silence_ns_max: 100_000_000,
            peer_silence_ns_max: 5_000_000_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_messages_are_cut_into_equal_packets() {
        for (len, expected) in
            [(100, 1396), (1396, 1396), (1400, 700), (4_001, 1334), (16_752, 1396), (16_753, 1396)]
        {
            let mut message = Outgoing::default();
            message.begin(vec![0; len].into(), 40_000);
            assert_eq!(Framing::default().lens(&message, false), (expected, 1396), "{len} B");
            assert_eq!(Framing::IP.lens(&message, false), (1404, 1404), "{len} B");
        }
        let mut message = Outgoing::default();
        message.begin(vec![0; 1400].into(), 400);
        assert_eq!(
            Framing::default().lens(&message, false),
            (1396, 1396),
            "the rest waits for a grant"
        );
    }

    /// On an Ethernet of 10 Gbit/s, as in the paper's simulations: frames are full, and what needs
    /// no grant is what is kept in flight.
    #[test]
    fn packets_of_sigcomm_are_full_frames_and_its_unscheduled_bytes_a_round_trip() {
        let cutoffs = Cutoffs::descending(&[469, 5521, 15_267], 1);
        let config = Config::sigcomm(3, cutoffs);
        let framing = config.framing;
        assert_eq!(framing.unscheduled_len + framing.unscheduled_overhead, 1538);
        assert_eq!(framing.scheduled_len + framing.scheduled_overhead, 1538);
        let packets = config.unscheduled_len.div_ceil(framing.unscheduled_len);
        let round_trip = config.unscheduled_len + packets * framing.unscheduled_overhead;
        let GrantPolicy::Sigcomm(pull) = config.grants.policy else { panic!("another policy") };
        assert_eq!((round_trip, pull.grant_len), (pull.rtt_bytes, framing.scheduled_len));
        assert_eq!((config.grants.overcommit, config.priorities.scheduled_levels), (3, 3));
        assert_eq!((config.assumed, config.priorities.cutoffs), (cutoffs, cutoffs));
    }

    #[test]
    fn one_rpc_carries_no_more_than_a_message_or_than_it_may() {
        for (message_len_max, rpc_len_max, expected) in [(5, 9, 5), (9, 5, 5), (7, 7, 7)] {
            let config = Config { message_len_max, rpc_len_max, ..Config::default() };
            assert_eq!(config.single_len_max(), expected);
        }
    }
}
