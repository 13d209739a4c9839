//! Raw IP, for the datagrams of a router that keeps the client's address as the source.
//!
//! The IP and UDP headers are written here (by etherparse): kernel UDP refuses a source that is not
//! the socket's. The datagrams carry a full UDP checksum, the DF bit (IPv6 routers never fragment)
//! and 64 hops. GSO batches leave datagram by datagram: raw sockets know no segmentation.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use etherparse::{IpDscp, IpNumber, Ipv4Header, Ipv6Header, UdpHeader};
use socket2::{Domain, Protocol, Socket, Type};
use tailcut_proto::node::{Source, Transmit};

use crate::sys;

/// A raw socket of one address family that only sends.
#[derive(Debug)]
pub struct RawPort {
    /// Takes whole packets and sends nothing of its own.
    socket: Socket,
    /// Its address family: IPv4, or IPv6.
    is_ipv4: bool,
    /// The packet that was written last; its capacity is for the longest.
    packet: Vec<u8>,
    /// The counters so far.
    metrics: RawMetrics,
}

impl RawPort {
    /// Opens a raw socket for the family of `local`, the address of the node that will send.
    ///
    /// # Errors
    ///
    /// PermissionDenied, naming the capability, for a process without CAP_NET_RAW.
    pub fn open(local: IpAddr) -> io::Result<Self> {
        let domain = if local.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let kind = Type::RAW.nonblocking();
        let socket = Socket::new(domain, kind, Some(Protocol::from(libc::IPPROTO_RAW)))
            .map_err(name_capability)?;
        // IPPROTO_RAW implies IP_HDRINCL over IPv4; over IPv6 it is said here as well.
        if local.is_ipv6() {
            sys::set_int_option(socket.as_fd(), (libc::IPPROTO_IPV6, libc::IPV6_HDRINCL), 1)?;
        }
        Ok(Self {
            socket,
            is_ipv4: local.is_ipv4(),
            packet: Vec::with_capacity(PACKET_LEN_MAX),
            metrics: RawMetrics::default(),
        })
    }

    /// Sends a datagram or a GSO batch from its [`Source::Spoofed`]. What cannot be sent is counted
    /// in [`RawMetrics`] and dropped.
    ///
    /// # Panics
    ///
    /// When `bytes` is shorter than [`Transmit::len`].
    pub fn send(&mut self, transmit: &Transmit, bytes: &[u8]) {
        let bytes = &bytes[..transmit.len];
        if bytes.is_empty() {
            self.send_one(transmit, bytes);
        }
        for datagram in bytes.chunks(transmit.segment_len.max(1)) {
            self.send_one(transmit, datagram);
        }
    }

    /// The counters so far.
    pub fn metrics(&self) -> RawMetrics {
        self.metrics
    }

    fn send_one(&mut self, transmit: &Transmit, payload: &[u8]) {
        let from = match transmit.from {
            Source::Spoofed(from) => Some(from),
            Source::Any | Source::Local(_) | Source::Toward(_) => None,
        };
        let traffic_class = transmit.priority.min(7) << 5;
        let written = from.filter(|from| from.is_ipv4() == self.is_ipv4).and_then(|from| {
            let ends = Ends { from, to: transmit.to, traffic_class, protocol: IpNumber::UDP };
            write_packet(&mut self.packet, &ends, payload)
        });
        if written.is_none() {
            self.metrics.dropped_address += 1;
            return;
        }
        // A raw socket takes the destination's address alone: IPv6 reads a port as a protocol.
        let to = SocketAddr::new(transmit.to.ip(), 0);
        match sys::send_one(self.socket.as_fd(), &self.packet, &to) {
            Ok(()) => {
                self.metrics.datagrams_out += 1;
                self.metrics.bytes_out += payload.len() as u64;
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => self.metrics.dropped_full += 1,
                Some(libc::EMSGSIZE) => self.metrics.dropped_too_large += 1,
                _ => self.metrics.dropped_other += 1,
            },
        }
    }
}

/// Counters of a [`RawPort`] since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawMetrics {
    /// Datagrams that the kernel took.
    pub datagrams_out: u64,
    /// Their payload bytes.
    pub bytes_out: u64,
    /// Datagrams dropped for want of room in the send buffer or the device's queue.
    pub dropped_full: u64,
    /// Datagrams dropped because they do not fit the route without fragments.
    pub dropped_too_large: u64,
    /// Datagrams dropped because they name no source, or ends of two address families, or are
    /// longer than IP allows.
    pub dropped_address: u64,
    /// Datagrams dropped for another reason: no route, a filter.
    pub dropped_other: u64,
}

/// The fields of a packet's IP header, besides lengths and checksums.
pub(crate) struct Ends {
    /// Source.
    pub(crate) from: SocketAddr,
    /// Destination.
    pub(crate) to: SocketAddr,
    /// The traffic class (TOS) byte; its lowest two bits are 0.
    pub(crate) traffic_class: u8,
    /// The payload's protocol; UDP's gets a header, with the ports.
    pub(crate) protocol: IpNumber,
}

/// Writes a whole IP packet to a buffer; `None` when the ends are of two families or the packet is
/// too long.
pub(crate) fn write_packet(packet: &mut Vec<u8>, ends: &Ends, payload: &[u8]) -> Option<()> {
    let Ends { from, to, traffic_class, protocol } = *ends;
    let is_udp = protocol == IpNumber::UDP;
    let mut udp = UdpHeader::without_ipv4_checksum(from.port(), to.port(), payload.len()).ok()?;
    let len = if is_udp { udp.length } else { u16::try_from(payload.len()).ok()? };
    packet.clear();
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut ip = Ipv4Header::new(len, HOPS, protocol, from.octets(), to.octets()).ok()?;
            ip.dscp = IpDscp::try_new(traffic_class >> 2).ok()?;
            ip.header_checksum = ip.calc_header_checksum();
            udp.checksum = udp.calc_checksum_ipv4(&ip, payload).ok()?;
            packet.extend_from_slice(&ip.to_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let ip = Ipv6Header {
                traffic_class,
                payload_length: len,
                next_header: protocol,
                hop_limit: HOPS,
                source: from.octets(),
                destination: to.octets(),
                ..Ipv6Header::default()
            };
            udp.checksum = udp.calc_checksum_ipv6(&ip, payload).ok()?;
            packet.extend_from_slice(&ip.to_bytes());
        }
        _ => return None,
    }
    if is_udp {
        packet.extend_from_slice(&udp.to_bytes());
    }
    packet.extend_from_slice(payload);
    Some(())
}

fn name_capability(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let text = "keeping the client's address as the source needs raw sockets, which need the capability CAP_NET_RAW";
            io::Error::new(io::ErrorKind::PermissionDenied, text)
        }
        _ => error,
    }
}

/// As far as a datagram may travel: more than any datacenter has.
const HOPS: u8 = 64;

/// The longest UDP datagram behind the longer IP header.
const PACKET_LEN_MAX: usize = Ipv6Header::LEN + 65_535;

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of UDP's pseudo header: the addresses' sum, protocol and length.
    fn pseudo_header(addresses: u64, udp_len: u16) -> u64 {
        let [high, low] = udp_len.to_be_bytes();
        sum(addresses, &[0, IpNumber::UDP.0, high, low])
    }

    /// Adds `bytes` to a ones' complement sum, four at a time in the machine's own order (RFC 1071,
    /// section 2B: the order does not matter). Only the last piece of a packet may have an odd
    /// length.
    fn sum(mut sum: u64, bytes: &[u8]) -> u64 {
        let mut words = bytes.chunks_exact(4);
        for word in &mut words {
            sum += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        }
        let mut last = [0; 4];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        sum + u64::from(u32::from_ne_bytes(last))
    }

    /// The checksum of a sum, as it stands in the packet.
    fn checksum(mut sum: u64) -> [u8; 2] {
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (!(sum as u16)).to_ne_bytes()
    }

    fn write(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Option<Vec<u8>> {
        let (mut packet, protocol) = (vec![0xaa; 9], IpNumber::UDP);
        let ends = Ends { from, to, traffic_class: 0x20, protocol };
        write_packet(&mut packet, &ends, payload).map(|()| packet)
    }

    /// A packet whose checksums hold sums to all ones, with the pseudo header in place of the IP
    /// header.
    fn check(from: &str, to: &str, payload: &[u8]) {
        let parse = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let (from, to) = (parse(from), parse(to));
        let packet = write(from, to, payload).expect("a packet");
        let (ip_len, addresses) = if from.is_ipv4() { (20, 12..20) } else { (40, 8..40) };
        if from.is_ipv4() {
            assert_eq!(checksum(sum(0, &packet[..20])), [0, 0]);
            assert_eq!(packet[6] & 0x40, 0x40, "DF");
        }
        let udp = &packet[ip_len..];
        assert_eq!(udp.len(), 8 + payload.len());
        let pseudo = pseudo_header(sum(0, &packet[addresses]), udp.len() as u16);
        assert_eq!(checksum(sum(pseudo, udp)), [0, 0]);
    }

    #[test]
    fn ipv4_checksums_hold() {
        check("10.1.2.3:4000", "10.9.8.7:5000", b"even");
    }

    #[test]
    fn ipv6_checksums_hold() {
        check("[2001:db8::1]:4000", "[2001:db8::2]:5000", b"even");
    }

    #[test]
    fn an_odd_length_is_padded_in_the_sum() {
        check("10.1.2.3:4000", "10.9.8.7:5000", b"odd");
    }

    #[test]
    fn no_payload_is_a_datagram_too() {
        check("10.1.2.3:4000", "10.9.8.7:5000", b"");
    }

    /// RFC 1071, section 3: the example's bytes sum to ddf2.
    #[test]
    fn the_rfcs_example_sums_as_it_says() {
        assert_eq!(
            checksum(sum(0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])),
            (!0xddf2_u16).to_be_bytes()
        );
    }

    #[test]
    fn a_checksum_of_zero_is_sent_as_ones() {
        let (from, to) =
            ("0.0.0.0:0".parse().expect("an address"), "0.0.0.0:0".parse().expect("an address"));
        // Protocol 17 and twice the length 10 leave 0xffda to reach all ones.
        let packet = write(from, to, &[0xff, 0xda]).expect("a packet");
        assert_eq!(packet[26..28], [0xff, 0xff]);
    }

    #[test]
    fn ends_of_two_families_are_no_packet() {
        let (from, to) =
            ("10.0.0.1:1".parse().expect("an address"), "[::1]:1".parse().expect("an address"));
        assert!(write(from, to, &[]).is_none());
    }

    #[test]
    fn a_packet_longer_than_ip_allows_is_none() {
        let end = "10.0.0.1:1".parse().expect("an address");
        assert!(write(end, end, &vec![0; 65_508]).is_none());
    }

    #[test]
    fn a_refusal_names_the_capability() {
        let error = name_capability(io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
    }
}
