//! Classic pcap files from datagrams, and from packets directly in IP.

use std::net::{IpAddr, SocketAddr};

/// One capture file.
pub(crate) struct Capture {
    /// File name without its ending.
    pub(crate) name: &'static str,
    /// Form in which it is written.
    pub(crate) form: Form,
    /// Protocol that it shows.
    pub(crate) protocol: Protocol,
    /// Datagrams that were sent, 10 us apart.
    pub(crate) datagrams: Vec<Datagram>,
}

/// Protocol that a capture shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    R2p2,
    Homa,
    NetClone,
}

/// One UDP datagram, or one packet of another protocol in IP.
pub(crate) struct Datagram {
    /// Source; the port of UDP alone counts.
    pub(crate) from: SocketAddr,
    /// Destination, of the source's family.
    pub(crate) to: SocketAddr,
    /// Payload of UDP, or of IP.
    pub(crate) payload: Vec<u8>,
    /// Number of the protocol in IP.
    pub(crate) ip_protocol: u8,
    /// Network priority, in the upper three bits of the traffic class.
    pub(crate) priority: u8,
    /// True if the UDP checksum is there; the reference's router zeroes it.
    pub(crate) has_checksum: bool,
}

/// The captures differ in their form, so that a reader of captures is tested too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Little-endian, microseconds, Ethernet frames padded to 60 bytes.
    Ethernet,
    /// Little-endian, nanoseconds, no link header.
    RawNanoseconds,
    /// Big-endian, microseconds, Ethernet frames in VLAN 7.
    VlanBigEndian,
}

impl Datagram {
    /// A datagram between two addresses such as `10.77.0.3:33000`.
    pub(crate) fn new(from: &str, to: &str, payload: Vec<u8>) -> Self {
        let address = |text: &str| text.parse().expect("an address and a port");
        Self {
            from: address(from),
            to: address(to),
            payload,
            ip_protocol: UDP,
            priority: 0,
            has_checksum: true,
        }
    }

    /// A packet of the protocol `ip_protocol` between two addresses such as `10.77.0.3`.
    pub(crate) fn in_ip(ip_protocol: u8, ends: [&str; 2], payload: Vec<u8>) -> Self {
        let [from, to] = ends.map(|text| SocketAddr::new(text.parse().expect("an address"), 0));
        Self { from, to, payload, ip_protocol, priority: 0, has_checksum: true }
    }

    /// This datagram at a priority.
    pub(crate) fn at(self, priority: u8) -> Self {
        Self { priority, ..self }
    }

    fn to_ip(&self) -> Vec<u8> {
        let transport = if self.ip_protocol == UDP { self.to_udp() } else { self.payload.clone() };
        [self.ip_header(transport.len()), transport].concat()
    }

    fn to_udp(&self) -> Vec<u8> {
        let mut udp = Vec::new();
        udp.extend(self.from.port().to_be_bytes());
        udp.extend(self.to.port().to_be_bytes());
        udp.extend((8 + self.payload.len() as u16).to_be_bytes());
        udp.extend([0, 0]);
        udp.extend(&self.payload);
        if self.has_checksum {
            let sum = match checksum(&[&self.pseudo_header(udp.len()), &udp]) {
                0 => 0xffff,
                sum => sum,
            };
            udp[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        udp
    }

    fn ip_header(&self, len: usize) -> Vec<u8> {
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let [high, low] = (20 + len as u16).to_be_bytes();
                let mut header = vec![
                    0x45,
                    self.priority << 5,
                    high,
                    low,
                    0,
                    0,
                    0x40,
                    0,
                    64,
                    self.ip_protocol,
                    0,
                    0,
                ];
                header.extend(from.octets());
                header.extend(to.octets());
                let sum = checksum(&[&header]);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                header
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let [high, low] = (len as u16).to_be_bytes();
                let mut header =
                    vec![0x60 | self.priority << 1, 0, 0, 0, high, low, self.ip_protocol, 64];
                header.extend(from.octets());
                header.extend(to.octets());
                header
            }
            _ => panic!("{} and {} are of two families", self.from, self.to),
        }
    }

    fn pseudo_header(&self, len: usize) -> Vec<u8> {
        let mut header = [octets(self.from.ip()), octets(self.to.ip())].concat();
        header.extend([0, UDP]);
        header.extend((len as u16).to_be_bytes());
        header
    }
}

impl Capture {
    /// The file.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [self.form.magic(), 0x0002_0004, 0, 0, 0x0004_0000, self.form.link_type()] {
            match word {
                0x0002_0004 => [2u16, 4].iter().for_each(|half| file.extend(self.form.half(*half))),
                word => file.extend(self.form.word(word)),
            }
        }
        for (index, datagram) in self.datagrams.iter().enumerate() {
            let frame = self.form.frame(datagram);
            let fraction = index as u32 * SPACING_US * self.form.per_microsecond();
            for word in [START_S, fraction, frame.len() as u32, frame.len() as u32] {
                file.extend(self.form.word(word));
            }
            file.extend(frame);
        }
        file
    }
}

impl Form {
    fn magic(self) -> u32 {
        if self == Self::RawNanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }
    }

    fn link_type(self) -> u32 {
        if self == Self::RawNanoseconds { 101 } else { 1 }
    }

    fn per_microsecond(self) -> u32 {
        if self == Self::RawNanoseconds { 1000 } else { 1 }
    }

    fn word(self, word: u32) -> [u8; 4] {
        if self == Self::VlanBigEndian { word.to_be_bytes() } else { word.to_le_bytes() }
    }

    fn half(self, half: u16) -> [u8; 2] {
        if self == Self::VlanBigEndian { half.to_be_bytes() } else { half.to_le_bytes() }
    }

    fn frame(self, datagram: &Datagram) -> Vec<u8> {
        let ip = datagram.to_ip();
        let mut frame = Vec::new();
        if self != Self::RawNanoseconds {
            frame.extend(station(datagram.to.ip()));
            frame.extend(station(datagram.from.ip()));
        }
        if self == Self::VlanBigEndian {
            frame.extend([0x81, 0x00, 0x00, 0x07]);
        }
        if self != Self::RawNanoseconds {
            frame.extend(if datagram.to.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] });
        }
        frame.extend(ip);
        if self != Self::RawNanoseconds {
            frame.resize(frame.len().max(FRAME_LEN_MIN), 0);
        }
        frame
    }
}

/// A locally administered MAC address for whoever has the IP address.
fn station(ip: IpAddr) -> [u8; 6] {
    [2, 0, 0, 0, 0, octets(ip).last().copied().unwrap_or_default()]
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// The internet checksum over `parts`, each but the last of even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u32::from(low)))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// 2026-01-01 00:00:00 UTC.
const START_S: u32 = 1_767_225_600;
const SPACING_US: u32 = 10;
const FRAME_LEN_MIN: usize = 60;
const UDP: u8 = 17;
