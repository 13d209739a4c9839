//! The UDP datagram or the packet of Homa in a captured frame, whatever link it was on.

use std::net::IpAddr;

use etherparse::{EtherType, IpNumber, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::Linktype;
use tailcut_wire::homa;

/// A UDP datagram or a Homa packet in a frame.
pub(super) struct Datagram<'a> {
    /// Its source.
    pub(super) from: IpAddr,
    /// Its destination.
    pub(super) to: IpAddr,
    /// Protocol that carries it.
    pub(super) carrier: Carrier,
    /// Captured bytes of its payload.
    pub(super) payload: &'a [u8],
    /// Bytes of it on the wire.
    pub(super) len: usize,
}

/// Protocol that carries a datagram.
#[derive(Clone, Copy)]
pub(super) enum Carrier {
    /// UDP, between these ports.
    Udp(u16, u16),
    /// IP, as Homa.
    Homa,
    /// IP, as TCP.
    HijackedTcp,
}

/// Reason why a frame has no line.
#[derive(Clone, Copy)]
pub(super) enum Skip {
    /// Frame of a link type that is not read, or shorter than a header.
    Unreadable,
    /// Something else.
    Foreign,
    /// A part of a packet.
    Fragment,
}

/// The layers of a frame.
pub(super) fn slice(link: Linktype, frame: &[u8]) -> Result<LaxSlicedPacket<'_>, Skip> {
    let network = |protocol: Option<[u8; 2]>, header_len: usize| {
        let ether_type = EtherType(u16::from_be_bytes(protocol.ok_or(Skip::Unreadable)?));
        let rest = frame.get(header_len..).ok_or(Skip::Unreadable)?;
        Ok(LaxSlicedPacket::from_ether_type(ether_type, rest))
    };
    let ip = |header_len: usize| {
        let rest = frame.get(header_len..).ok_or(Skip::Unreadable)?;
        LaxSlicedPacket::from_ip(rest).map_err(|_| Skip::Unreadable)
    };
    let pair = |at: usize| frame.get(at..at + 2).and_then(|pair| pair.try_into().ok());
    match link.0 {
        LINK_ETHERNET => LaxSlicedPacket::from_ethernet(frame).map_err(|_| Skip::Unreadable),
        LINK_COOKED => network(pair(14), 16),
        LINK_COOKED_2 => network(pair(0), 20),
        // The address family in front is in the byte order of another machine; the IP version says
        // the same.
        LINK_NULL | LINK_LOOP => ip(4),
        LINK_RAW | LINK_RAW_BSD | LINK_RAW_OPENBSD | LINK_IPV4 | LINK_IPV6 => ip(0),
        _ => Err(Skip::Unreadable),
    }
}

/// The datagram in a frame.
pub(super) fn datagram<'a>(packet: &LaxSlicedPacket<'a>) -> Result<Datagram<'a>, Skip> {
    let (from, to): (IpAddr, IpAddr) = match &packet.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        _ if packet.stop_err.is_some() => return Err(Skip::Unreadable),
        _ => return Err(Skip::Foreign),
    };
    let Some(ip) = packet.ip_payload() else { return Err(Skip::Unreadable) };
    let (carrier, payload, len) = match (ip.ip_number.0, &packet.transport) {
        (homa::IP_PROTOCOL, _) => (Carrier::Homa, ip.payload, ip_payload_len(packet)),
        (homa::HIJACKED_IP_PROTOCOL, _) if homa::is_hijacked(ip.payload) => {
            (Carrier::HijackedTcp, ip.payload, ip_payload_len(packet))
        }
        (UDP, Some(TransportSlice::Udp(udp))) => {
            // A length of 0 means the rest of the IP packet.
            let len =
                usize::from(udp.length()).saturating_sub(UDP_HEADER_LEN).max(udp.payload().len());
            (Carrier::Udp(udp.source_port(), udp.destination_port()), udp.payload(), len)
        }
        (UDP, _) if ip.fragmented => return Err(Skip::Fragment),
        (UDP, _) => return Err(Skip::Unreadable),
        _ => return Err(Skip::Foreign),
    };
    if ip.fragmented {
        Err(Skip::Fragment)
    } else {
        Ok(Datagram { from, to, carrier, payload, len })
    }
}

/// Bytes that the IP header says follow it and its extensions.
fn ip_payload_len(packet: &LaxSlicedPacket) -> usize {
    match &packet.net {
        Some(LaxNetSlice::Ipv4(ip)) => ip.header().payload_len().map_or(0, usize::from),
        Some(LaxNetSlice::Ipv6(ip)) => {
            usize::from(ip.header().payload_length()).saturating_sub(ip.extensions().slice().len())
        }
        _ => 0,
    }
}

const UDP: u8 = IpNumber::UDP.0;
const UDP_HEADER_LEN: usize = 8;

// Numbers of the tcpdump.org registry of link types.
pub(super) const LINK_NULL: i32 = 0;
pub(super) const LINK_ETHERNET: i32 = 1;
pub(super) const LINK_RAW_BSD: i32 = 12;
pub(super) const LINK_RAW_OPENBSD: i32 = 14;
pub(super) const LINK_RAW: i32 = 101;
pub(super) const LINK_LOOP: i32 = 108;
pub(super) const LINK_COOKED: i32 = 113;
pub(super) const LINK_IPV4: i32 = 228;
pub(super) const LINK_IPV6: i32 = 229;
pub(super) const LINK_COOKED_2: i32 = 276;
