//! A [`Node`] is anything with a network port: an endpoint, a router, a cloner, an impairment.
//!
//! | call | when | what it may do |
//! |---|---|---|
//! | [`Node::handle_datagram`] | a datagram arrived | change state, queue datagrams and events |
//! | [`Node::handle_timeout`] | the deadline has passed | the same |
//! | [`Node::poll_transmit`] | after any number of inputs, until `None` | hand out queued datagrams |
//! | [`Node::poll_timeout`] | after the transmits are drained | tell the next deadline |
//!
//! Spurious calls are harmless and every call does bounded work. One node lives on one thread.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::sealed::{Access, ChangedKeys, Denial, Keys, LostKeys};

pub use tailcut_placement::Time;

/// Both ends of a datagram's way. IPv4 is never in its IPv6-mapped form here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Address of this host at which the datagram arrived, or from which it is to leave. `None`
    /// where nobody knows it: the datapath stands at one address alone and need not say, or the
    /// peer has not answered yet. Then the datapath chooses.
    pub local: Option<IpAddr>,
    /// Address and port of the other end.
    pub peer: SocketAddr,
}

impl From<SocketAddr> for Path {
    /// The path to a peer that has not been heard of.
    fn from(peer: SocketAddr) -> Self {
        Self { local: None, peer }
    }
}

/// Source address of a datagram that a node sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The one that the datapath chooses: that of its socket, or of the route to the destination.
    Any,
    /// This address of the host, with the node's own port: what answers a datagram leaves from
    /// where that arrived. Every datapath honours it.
    Local(IpAddr),
    /// The one that datagrams to this other peer leave from, with the node's own port: what a
    /// client sends to a server that a router has picked, which knows the call by the address that
    /// it came to the router from.
    Toward(SocketAddr),
    /// An address and port that are not this host's: a router that keeps the client's address says
    /// so. Only a raw datapath can honour it.
    Spoofed(SocketAddr),
}

impl Source {
    /// The address of this host that it names.
    pub fn local(self) -> Option<IpAddr> {
        match self {
            Self::Local(ip) => Some(ip),
            Self::Any | Self::Toward(_) | Self::Spoofed(_) => None,
        }
    }
}

impl From<Option<IpAddr>> for Source {
    fn from(local: Option<IpAddr>) -> Self {
        local.map_or(Self::Any, Self::Local)
    }
}

/// One datagram, or a GSO batch of datagrams to one destination, that a node wrote to the driver's
/// buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Destination.
    pub to: SocketAddr,
    /// Source.
    pub from: Source,
    /// Bytes written to the buffer.
    pub len: usize,
    /// Bytes of each datagram of the GSO batch but the last, which may be shorter. Equal to `len`
    /// for a single datagram.
    pub segment_len: usize,
    /// Network priority, 0 lowest to 7.
    pub priority: u8,
    /// Identifies the datagram to whoever asked for its transmit timestamp; 0 when nobody did.
    pub token: u64,
}

impl Transmit {
    /// A single datagram of `len` bytes, along a path or to an address.
    pub fn single(path: impl Into<Path>, len: usize) -> Self {
        let Path { local, peer } = path.into();
        Self { to: peer, from: local.into(), len, segment_len: len, priority: 0, token: 0 }
    }

    /// Datagrams in the GSO batch.
    pub fn datagram_count(&self) -> usize {
        self.len.div_ceil(self.segment_len.max(1))
    }
}

/// The payload of a GSO batch that its node has not copied to the driver's buffer, which has the
/// headers alone, one after the other: each datagram is the next header and the next piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Bytes of each header.
    pub header_len: usize,
    /// The node's own name for the message that the payload is of.
    pub message: u64,
    /// True if the message is a reply.
    pub is_reply: bool,
    /// Place of the payload in the message.
    pub offset: usize,
    /// Bytes of the payload.
    pub len: usize,
}

impl Attached {
    /// Fewest bytes, of several datagrams, that a node leaves where they are: those of 16 packets
    /// of a network. Of fewer the kernel takes longer to gather than a copy does.
    pub const LEN_MIN: usize = 16 * 1380;

    /// Most datagrams of so many bytes, with their headers, that a GSO batch of long ones has;
    /// 0 where the driver's buffer says that no full one may go.
    pub(crate) fn datagrams_max(datagram_len: usize, buffer: &[u8]) -> usize {
        if buffer.len() < datagram_len || datagram_len < GSO_LONG_LEN {
            return 0;
        }
        GSO_BATCH_LEN_MAX / datagram_len
    }
}

/// Most datagrams in one GSO batch. The kernel takes 64; half of that lets the peer work on one GSO
/// batch while the next is made, which carried 1.6 times as many small calls with 64 outstanding
/// (docs/perf-notes.md).
pub const GSO_DATAGRAMS_MAX: usize = 32;

/// Bytes of a datagram from which on [`GSO_BATCH_LEN_MAX`] alone bounds a GSO batch: 63 of them,
/// which the kernel takes. Long messages take fewer messages of the kernel so.
pub const GSO_LONG_LEN: usize = 1024;

/// Most bytes of a transmit: the largest UDP payload over IPv4.
pub const GSO_BYTES_MAX: usize = 65_507;

/// Most bytes in one GSO batch of several datagrams: with the headers of Ethernet (14), IPv6 (40)
/// and UDP (8) fewer than 65,536. The kernel would cut a longer one into packets before the device,
/// also on loopback, where each then takes room of its own in the receiver's buffer: a message of 1
/// MB overflows it.
pub const GSO_BATCH_LEN_MAX: usize = 65_473;

/// The clock that a request carries and its answer echoes, us; never 0, which stands for none.
pub(crate) fn clock_us(now: Time) -> u32 {
    ((now / 1000) as u32).max(1)
}

/// True if no single host answers at `ip`: nothing is sent there.
pub(crate) fn is_unanswerable(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    ip.is_unspecified() || ip.is_multicast() || is_broadcast
}

/// Anything with a network port.
pub trait Node {
    /// Takes one datagram. Malformed bytes are counted and dropped. The node may change the bytes:
    /// a seal is opened in place.
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]);

    /// Takes note that nothing listens at `peer`, by the word of its host or of a router on the way
    /// (ICMP port unreachable), which may be forged and may be old. Most nodes wait and see.
    fn handle_unreachable(&mut self, _now: Time, _peer: SocketAddr) {}

    /// The wall clock shows `unix_ns` (Unix time) at `now`: what the node tells by it is told anew.
    /// Drivers read it now and then, since it may be set, and runs on while a suspended host's time
    /// stands.
    fn handle_wall_clock(&mut self, _now: Time, _unix_ns: u64) {}

    /// Takes newer keys, where the node's packets are sealed; calls in progress finish under the
    /// old ones.
    ///
    /// # Errors
    ///
    /// That they are not the same holder's, or give an epoch in use another key; nothing changes
    /// then.
    fn update_keys(&mut self, _now: Time, _keys: &Keys) -> Result<(), ChangedKeys> {
        Ok(())
    }

    /// Takes another policy of who may call what, where the node has one: for requests that begin
    /// from now on.
    fn update_access(&mut self, _access: &Arc<Access>) {}

    /// Requests that such a policy has refused since the start, and the last of them.
    fn denials(&self) -> (u64, Option<&Denial>) {
        (0, None)
    }

    /// Counters, since the start, of answers sent and received about keys that are not there.
    fn lost_keys(&self) -> LostKeys {
        LostKeys::default()
    }

    /// Does what is due at `now`; harmless when nothing is.
    fn handle_timeout(&mut self, now: Time);

    /// Writes the next datagram, or a GSO batch of datagrams of equal size to one destination, to
    /// `buffer`. `None` when there is nothing to send. A buffer of one datagram's size yields
    /// single datagrams.
    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit>;

    /// As [`Node::poll_transmit`], where what goes next is a GSO batch of a long message: writes
    /// the headers to `buffer`, and leaves the payload to [`Node::attached`]. `None` also where
    /// something else goes next. For drivers whose datapath gathers.
    fn poll_attached(&mut self, _now: Time, _buffer: &mut [u8]) -> Option<(Transmit, Attached)> {
        None
    }

    /// The payload of the last [`Node::poll_attached`], before anything else is asked of the node.
    fn attached(&self, _attached: &Attached) -> &[u8] {
        &[]
    }

    /// Time at which [`Node::handle_timeout`] is to be called next; `None` for never. May be
    /// earlier than there is work.
    fn poll_timeout(&self) -> Option<Time>;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It says no more than a node must.
    struct Silent;

    impl Node for Silent {
        fn handle_datagram(&mut self, _: Time, _: Path, _: &mut [u8]) {}

        fn handle_timeout(&mut self, _: Time) {}

        fn poll_transmit(&mut self, _: Time, _: &mut [u8]) -> Option<Transmit> {
            None
        }

        fn poll_timeout(&self) -> Option<Time> {
            None
        }
    }

    #[test]
    fn a_node_attaches_nothing_unless_it_says_so() {
        assert_eq!(Silent.poll_attached(0, &mut [0; 100]), None);
        let attached = Attached { header_len: 9, message: 1, is_reply: false, offset: 0, len: 50 };
        assert!(Silent.attached(&attached).is_empty());
    }

    #[test]
    fn a_node_without_a_policy_has_denied_nothing() {
        assert_eq!(Silent.denials(), (0, None));
    }

    #[test]
    fn a_source_names_an_address_of_this_host_or_none() {
        let ip = IpAddr::from([10, 0, 0, 1]);
        assert_eq!(Source::from(Some(ip)).local(), Some(ip));
        assert_eq!(Source::from(None).local(), None);
        assert_eq!(Source::Spoofed((ip, 7).into()).local(), None, "it is another host's");
    }

    /// A batch has as many long datagrams as the largest UDP payload holds, if one fits the
    /// driver's buffer.
    #[test]
    fn a_batch_of_attached_datagrams_is_bounded_by_its_bytes() {
        for (datagram_len, buffer_len, expected) in [
            (GSO_LONG_LEN, GSO_LONG_LEN, 63),
            (GSO_LONG_LEN, GSO_LONG_LEN - 1, 0),
            (GSO_LONG_LEN - 1, 1 << 16, 0),
            (1_428, 1 << 16, 45),
            // 46 would be 65,504 bytes, which the kernel cuts into packets.
            (1_424, 1 << 16, 45),
            (8_900, 8_900, 7),
            (8_900, 8_000, 0),
        ] {
            let buffer = vec![0; buffer_len];
            let found = Attached::datagrams_max(datagram_len, &buffer);
            assert_eq!(found, expected, "{datagram_len} B in {buffer_len} B");
        }
    }
}
