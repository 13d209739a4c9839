//! Headers of Ethernet, VLAN, IPv4, IPv6 and UDP around datagrams: written and checked.
//!
//! A [`Template`] holds what is the same for all datagrams to a host, with the sums of it, so that
//! a datagram costs the sum of its own bytes. What arrives is checked whole: it has passed no
//! stack.
//!
//! A host on the same machine leaves the checksum of UDP to an interface that never computes it (a
//! partial checksum: the pseudo header's sum alone). Such a datagram has been on no wire, and is
//! taken.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ops::Range;

/// Both ends of the way to a host, below UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    /// This interface's address.
    pub(super) own_mac: [u8; 6],
    /// That of the next hop.
    pub(super) peer_mac: [u8; 6],
    /// The tag, where the network has one.
    pub(super) vlan: Option<u16>,
    /// Source; of the same family as the destination.
    pub(super) source: IpAddr,
    /// Destination.
    pub(super) destination: IpAddr,
}

/// Header fields that differ from datagram to datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Varying {
    /// Ports of UDP, source and destination; `None` directly over IP.
    pub(super) ports: Option<(u16, u16)>,
    /// 0 to 7, for the tag's PCP and the three high bits of the DSCP.
    pub(super) priority: u8,
}

/// Headers to a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Template {
    /// Ethernet and IP, with lengths, checksums and priorities of 0.
    bytes: [u8; ETHERNET_LEN_MAX + IPV6_LEN],
    /// Length of Ethernet's header.
    ethernet_len: usize,
    /// Length of IP's header.
    ip_len: usize,
    /// Sum of the IPv4 header.
    ip_sum: u64,
    /// Sum of addresses and protocol, as the pseudo header has them.
    pseudo_sum: u64,
}

/// Headers of one datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    /// In front.
    bytes: [u8; HEADERS_LEN_MAX],
    /// Length of these headers.
    len: usize,
}

impl Headers {
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Template {
    /// Headers of a protocol of IP; `None` for ends of two families.
    pub(super) fn new(ends: &Ends, protocol: u8) -> Option<Self> {
        let mut bytes = [0; ETHERNET_LEN_MAX + IPV6_LEN];
        bytes[..6].copy_from_slice(&ends.peer_mac);
        bytes[6..12].copy_from_slice(&ends.own_mac);
        let mut ethernet_len = 14;
        if let Some(vlan) = ends.vlan {
            bytes[12..14].copy_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
            bytes[14..16].copy_from_slice(&vlan.to_be_bytes());
            ethernet_len = 18;
        }
        let ethertype =
            if ends.source.is_ipv4() { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 }.to_be_bytes();
        bytes[ethernet_len - 2..ethernet_len].copy_from_slice(&ethertype);
        let ip = &mut bytes[ethernet_len..];
        let (ip_len, addresses) = match (ends.source, ends.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                // Version and length, and DF.
                (ip[0], ip[6], ip[8], ip[9]) = (0x45, 0x40, HOPS, protocol);
                ip[12..16].copy_from_slice(&source.octets());
                ip[16..20].copy_from_slice(&destination.octets());
                (IPV4_LEN, 12..20)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                (ip[0], ip[6], ip[7]) = (0x60, protocol, HOPS);
                ip[8..24].copy_from_slice(&source.octets());
                ip[24..40].copy_from_slice(&destination.octets());
                (IPV6_LEN, 8..40)
            }
            _ => return None,
        };
        let pseudo_sum = sum(0, &ip[addresses]) + word(u16::from(protocol));
        let ip_sum = sum(0, &ip[..IPV4_LEN]);
        Some(Self { bytes, ethernet_len, ip_len, ip_sum, pseudo_sum })
    }

    /// Headers for a payload; IP's and UDP's lengths hold for whatever fits a frame.
    #[inline]
    pub(super) fn headers(&self, payload: &[u8], varying: Varying) -> Headers {
        let Self { ethernet_len, ip_len, .. } = *self;
        let mut bytes = [0; HEADERS_LEN_MAX];
        bytes[..self.bytes.len()].copy_from_slice(&self.bytes);
        let priority = varying.priority.min(7);
        if ethernet_len == ETHERNET_LEN_MAX {
            bytes[14] |= priority << 5;
        }
        let udp_len = if varying.ports.is_some() { UDP_LEN } else { 0 };
        let len = (udp_len + payload.len()) as u16;
        let ip = &mut bytes[ethernet_len..];
        if ip_len == IPV4_LEN {
            let total_len = len + IPV4_LEN as u16;
            ip[1] = priority << 5;
            ip[2..4].copy_from_slice(&total_len.to_be_bytes());
            let sum = self.ip_sum + word(total_len) + word(u16::from(ip[1]));
            ip[10..12].copy_from_slice(&checksum(sum));
        } else {
            ip[0] |= priority << 1;
            ip[4..6].copy_from_slice(&len.to_be_bytes());
        }
        if let Some((from, to)) = varying.ports {
            let udp = &mut ip[ip_len..ip_len + UDP_LEN];
            udp[..2].copy_from_slice(&from.to_be_bytes());
            udp[2..4].copy_from_slice(&to.to_be_bytes());
            udp[4..6].copy_from_slice(&len.to_be_bytes());
            let head = self.pseudo_sum + word(from) + word(to) + 2 * word(len);
            let found = checksum(sum(head, payload));
            // None is sent as its other form: zeros say that there is none.
            udp[6..8].copy_from_slice(if found == [0, 0] { &[0xff, 0xff] } else { &found });
        }
        Headers { bytes, len: ethernet_len + ip_len + udp_len }
    }
}

/// Contents of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parsed {
    /// The tag, but 0, which says a priority alone.
    pub(super) vlan: Option<u16>,
    /// The sender, with the port of UDP's header or of Homa's.
    pub(super) peer: SocketAddr,
    /// Address that it was sent to.
    pub(super) destination: IpAddr,
    /// The destination's port.
    pub(super) port: u16,
    /// The protocol in IP.
    pub(super) protocol: u8,
    /// Range of the datagram in the frame.
    pub(super) payload: Range<usize>,
    /// The sender has left the checksum to an interface.
    pub(super) is_partial: bool,
}

/// Reason why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Lengths that contradict each other, or no IP that the program passes.
    Malformed,
    /// The checksum of IPv4's header.
    IpChecksum,
    /// UDP's.
    UdpChecksum,
    /// A source that no host has, or port 0.
    Martian,
}

/// Reads a frame.
#[inline]
pub(super) fn parse(frame: &[u8], interface: u32) -> Result<Parsed, Refusal> {
    let (vlan, ethertype, ip_at) = parse_ethernet(frame).ok_or(Refusal::Malformed)?;
    let ip = &frame[ip_at..];
    let parsed = match ethertype {
        ETHERTYPE_IPV4 => parse_ipv4(ip)?,
        ETHERTYPE_IPV6 => parse_ipv6(ip, interface).ok_or(Refusal::Malformed)?,
        _ => return Err(Refusal::Malformed),
    };
    let Ip { source, destination, protocol, body, pseudo_sum } = parsed;
    let segment = &ip[body.clone()];
    let (Some(from), Some(port)) = (be16(segment, 0), be16(segment, 2)) else {
        return Err(Refusal::Malformed);
    };
    if from == 0 || is_martian(source.ip()) {
        return Err(Refusal::Martian);
    }
    let (mut payload, mut is_partial) = (body, false);
    if protocol == UDP {
        let (Some(len @ 8..), Some(found)) = (be16(segment, 4), be16(segment, 6)) else {
            return Err(Refusal::Malformed);
        };
        let datagram = segment.get(..usize::from(len)).ok_or(Refusal::Malformed)?;
        // Zeros say that there is none, which IPv6 forbids.
        if found != 0 || source.is_ipv6() {
            let head = pseudo_sum + word(len);
            if checksum(sum(head, datagram)) != [0, 0] {
                is_partial = checksum(head) == (!found).to_be_bytes();
                if !is_partial {
                    return Err(Refusal::UdpChecksum);
                }
            }
        }
        payload = payload.start + UDP_LEN..payload.start + datagram.len();
    }
    let mut peer = source;
    peer.set_port(from);
    let payload = ip_at + payload.start..ip_at + payload.end;
    Ok(Parsed { vlan, peer, destination, port, protocol, payload, is_partial })
}

/// A packet of IP.
struct Ip {
    /// Its source, with port 0.
    source: SocketAddr,
    /// Its destination.
    destination: IpAddr,
    /// The protocol of its body.
    protocol: u8,
    /// Range of the bytes behind its header.
    body: Range<usize>,
    /// Sum of addresses and protocol.
    pseudo_sum: u64,
}

/// Tag, EtherType, and where what it says begins.
#[inline]
fn parse_ethernet(frame: &[u8]) -> Option<(Option<u16>, u16, usize)> {
    match be16(frame, 12)? {
        ETHERTYPE_VLAN | ETHERTYPE_SERVICE_VLAN => {
            let vlan = be16(frame, 14)? & 0x0fff;
            Some((Some(vlan).filter(|&vlan| vlan != 0), be16(frame, 16)?, 18))
        }
        ethertype => Some((None, ethertype, 14)),
    }
}

#[inline]
fn parse_ipv4(ip: &[u8]) -> Result<Ip, Refusal> {
    let header: &[u8; IPV4_LEN] = ip.first_chunk().ok_or(Refusal::Malformed)?;
    let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    if header[0] != 0x45 || is_fragment || !(IPV4_LEN..=ip.len()).contains(&total_len) {
        return Err(Refusal::Malformed);
    }
    if checksum(sum(0, header)) != [0, 0] {
        return Err(Refusal::IpChecksum);
    }
    let address =
        |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let protocol = header[9];
    Ok(Ip {
        source: SocketAddr::from((address(12), 0)),
        destination: address(16).into(),
        protocol,
        body: IPV4_LEN..total_len,
        pseudo_sum: sum(0, &header[12..]) + word(u16::from(protocol)),
    })
}

#[inline]
fn parse_ipv6(ip: &[u8], interface: u32) -> Option<Ip> {
    let header: &[u8; IPV6_LEN] = ip.first_chunk()?;
    let len = IPV6_LEN + usize::from(u16::from_be_bytes([header[4], header[5]]));
    if header[0] >> 4 != 6 || len > ip.len() {
        return None;
    }
    let address = |at: usize| Some(Ipv6Addr::from(*header.get(at..)?.first_chunk::<16>()?));
    let (source, protocol) = (address(8)?, header[6]);
    // What holds on one link says which.
    let scope = if source.is_unicast_link_local() { interface } else { 0 };
    Some(Ip {
        source: SocketAddrV6::new(source, 0, 0, scope).into(),
        destination: address(24)?.into(),
        protocol,
        body: IPV6_LEN..len,
        pseudo_sum: sum(0, &header[8..]) + word(u16::from(protocol)),
    })
}

/// No host sends from there over a link.
fn is_martian(source: IpAddr) -> bool {
    let is_broadcast = matches!(source, IpAddr::V4(ip) if ip.is_broadcast());
    source.is_unspecified() || source.is_multicast() || source.is_loopback() || is_broadcast
}

#[inline]
fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

/// A word of the network as it is summed.
#[inline]
fn word(word: u16) -> u64 {
    u64::from(u16::from_ne_bytes(word.to_be_bytes()))
}

/// Adds bytes to a ones' complement sum, in the machine's own order (RFC 1071, section 2B: the
/// order does not matter). Only the last piece of a packet may have an odd length.
#[inline]
fn sum(mut sum: u64, bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(4);
    // A packet has fewer words than the sum has room for carries.
    for word in &mut words {
        sum += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    }
    let mut last = [0; 4];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    sum + u64::from(u32::from_ne_bytes(last))
}

/// The checksum of a sum, as it stands in the packet.
#[inline]
fn checksum(mut sum: u64) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_ne_bytes()
}

/// The most bytes of headers: a tag, IPv6 and UDP.
pub(super) const HEADERS_LEN_MAX: usize = ETHERNET_LEN_MAX + IPV6_LEN + UDP_LEN;

/// Number of UDP among IP's protocols.
pub(super) const UDP: u8 = 17;

/// Bytes of IP's header, and UDP's.
pub(super) const IPV4_LEN: usize = 20;
pub(super) const IPV6_LEN: usize = 40;
pub(super) const UDP_LEN: usize = 8;

/// Length of Ethernet's header with a tag.
pub(super) const ETHERNET_LEN_MAX: usize = 18;

/// As far as a datagram may travel: more than any datacenter has.
const HOPS: u8 = 64;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_SERVICE_VLAN: u16 = 0x88a8;

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    use super::*;

    fn ends(source: &str, destination: &str, vlan: Option<u16>) -> Ends {
        let parse = |text: &str| text.parse().expect("an address");
        Ends {
            own_mac: [2, 0, 0, 0, 0, 1],
            peer_mac: [2, 0, 0, 0, 0, 2],
            vlan,
            source: parse(source),
            destination: parse(destination),
        }
    }

    fn frame(ends: &Ends, payload: &[u8], (protocol, varying): (u8, Varying)) -> Vec<u8> {
        let template = Template::new(ends, protocol).expect("one family");
        [template.headers(payload, varying).bytes(), payload].concat()
    }

    const VARYING: Varying = Varying { ports: Some((4000, 5000)), priority: 5 };

    /// A frame is what another library takes it for, and is read back.
    fn check(ends: &Ends, payload: &[u8]) {
        let frame = frame(ends, payload, (UDP, VARYING));
        let sliced = SlicedPacket::from_ethernet(&frame).expect("a packet");
        assert_eq!(sliced.vlan_ids().first().map(|id| id.value()), ends.vlan);
        if ends.vlan.is_some() {
            assert_eq!(frame[14] >> 5, 5, "PCP");
        }
        let Some(TransportSlice::Udp(udp)) = &sliced.transport else { panic!("UDP") };
        let header = udp.to_header();
        let expected = match sliced.net.as_ref().expect("IP") {
            NetSlice::Ipv4(ip) => {
                let ip = ip.header().to_header();
                assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                assert!(ip.dont_fragment && ip.dscp.value() == 5 << 3);
                header.calc_checksum_ipv4(&ip, payload)
            }
            NetSlice::Ipv6(ip) => {
                let ip = ip.header().to_header();
                assert_eq!(ip.traffic_class, 5 << 5);
                header.calc_checksum_ipv6(&ip, payload)
            }
            NetSlice::Arp(_) => panic!("IP"),
        };
        assert_eq!(header.checksum, expected.expect("a length"));
        let parsed = parse(&frame, 7).expect("a datagram");
        assert_eq!(frame[parsed.payload.clone()], *payload);
        assert_eq!((parsed.vlan, parsed.port, parsed.is_partial), (ends.vlan, 5000, false));
        assert_eq!((parsed.peer.ip(), parsed.peer.port()), (ends.source, 4000));
        assert_eq!((parsed.destination, parsed.protocol), (ends.destination, UDP));
    }

    #[test]
    fn ipv4() {
        check(&ends("10.1.2.3", "10.9.8.7", None), b"even");
    }

    #[test]
    fn ipv6() {
        check(&ends("2001:db8::1", "2001:db8::2", None), b"even");
    }

    #[test]
    fn a_tag() {
        check(&ends("10.1.2.3", "10.9.8.7", Some(5)), b"even");
        check(&ends("2001:db8::1", "2001:db8::2", Some(4094)), b"even");
    }

    #[test]
    fn every_length() {
        let payload: Vec<u8> = (0..1472_u32).map(|byte| (byte * 7) as u8).collect();
        for len in (0..80).chain(1460..1472) {
            check(&ends("10.1.2.3", "10.9.8.7", None), &payload[..len]);
        }
    }

    #[test]
    fn no_checksum_is_sent_as_ones() {
        let ends = ends("0.0.0.1", "0.0.0.0", None);
        let varying = Varying { ports: Some((0, 0)), priority: 0 };
        // Protocol 17, the address and twice the length 10 leave 0xffd9 to reach all ones.
        let frame = frame(&ends, &[0xff, 0xd9], (UDP, varying));
        assert_eq!(frame[40..42], [0xff, 0xff]);
    }

    #[test]
    fn directly_over_ip_there_is_no_header_of_udp() {
        let ends = ends("10.1.2.3", "10.9.8.7", None);
        let payload = [0x0f, 0xa0, 0x13, 0x88, 1, 2, 3];
        let frame = frame(&ends, &payload, (146, Varying { ports: None, priority: 0 }));
        let parsed = parse(&frame, 7).expect("a packet");
        assert_eq!(frame[parsed.payload.clone()], payload);
        assert_eq!((parsed.peer.port(), parsed.port, parsed.protocol), (4000, 5000, 146));
    }

    #[test]
    fn ends_of_two_families_have_no_headers() {
        assert!(Template::new(&ends("10.1.2.3", "2001:db8::1", None), UDP).is_none());
    }

    /// Result of parsing a frame from 10.1.2.3 whose bytes are changed.
    fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Result<Parsed, Refusal> {
        let mut frame = frame(&ends("10.1.2.3", "10.9.8.7", None), b"payload", (UDP, VARYING));
        change(&mut frame);
        parse(&frame, 7)
    }

    #[test]
    fn a_wrong_checksum_is_refused() {
        assert_eq!(changed(|frame| frame[43] ^= 1), Err(Refusal::UdpChecksum));
        assert_eq!(changed(|frame| frame[22] -= 1), Err(Refusal::IpChecksum));
        assert_eq!(changed(|frame| frame[40] ^= 1), Err(Refusal::UdpChecksum));
    }

    #[test]
    fn no_checksum_is_taken_over_ipv4_alone() {
        assert!(changed(|frame| frame[40..42].fill(0)).is_ok());
        let mut six = frame(&ends("2001:db8::1", "2001:db8::2", None), b"payload", (UDP, VARYING));
        six[60..62].fill(0);
        assert_eq!(parse(&six, 7), Err(Refusal::UdpChecksum));
    }

    #[test]
    fn a_partial_checksum_is_taken() {
        let partial = |frame: &mut Vec<u8>| {
            // The pseudo header's: addresses, protocol and the length of 15.
            let head = sum(0, &frame[26..34]) + word(17) + word(15);
            let found = checksum(head).map(|byte| !byte);
            frame[40..42].copy_from_slice(&found);
        };
        assert_eq!(changed(partial).map(|parsed| parsed.is_partial), Ok(true));
    }

    #[test]
    fn bytes_behind_the_packet_are_the_links() {
        let parsed = changed(|frame| frame.extend([0; 20])).expect("a datagram");
        assert_eq!(parsed.payload, 42..49);
    }

    #[test]
    fn what_is_cut_anywhere_is_refused() {
        for len in 0..49 {
            assert_eq!(changed(|frame| frame.truncate(len)), Err(Refusal::Malformed), "{len}");
        }
    }

    #[test]
    fn fragments_and_options_are_refused() {
        assert_eq!(changed(|frame| frame[20] |= 0x20), Err(Refusal::Malformed));
        assert_eq!(changed(|frame| frame[14] = 0x46), Err(Refusal::Malformed));
    }

    #[test]
    fn sources_that_no_host_has_are_refused() {
        for source in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255"] {
            let frame = frame(&ends(source, "10.9.8.7", None), b"payload", (UDP, VARYING));
            assert_eq!(parse(&frame, 7), Err(Refusal::Martian), "{source}");
        }
        let from_0 = Varying { ports: Some((0, 5000)), priority: 0 };
        let frame = frame(&ends("10.1.2.3", "10.9.8.7", None), b"payload", (UDP, from_0));
        assert_eq!(parse(&frame, 7), Err(Refusal::Martian));
    }

    #[test]
    fn what_holds_on_one_link_says_which() {
        let frame = frame(&ends("fe80::1", "fe80::2", None), b"payload", (UDP, VARYING));
        let Ok(Parsed { peer: SocketAddr::V6(peer), .. }) = parse(&frame, 7) else {
            panic!("a datagram")
        };
        assert_eq!(peer.scope_id(), 7);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(mut bytes: Vec<u8>, kind in 0_usize..3) {
            if bytes.len() > 14 {
                let ethertype = [ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN][kind];
                bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
                bytes[14] = [0x45, 0x60, 0][kind];
            }
            let _ = parse(&bytes, 1);
        }
    }
}
