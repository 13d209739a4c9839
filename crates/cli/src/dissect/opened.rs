//! A copy of a capture whose sealed packets are open, as pcapng: for Wireshark and tshark, whose
//! Lua has no ciphers in Debian 12's version 4.0.
//!
//! | a frame of the capture | in the copy |
//! |---|---|
//! | a sealed packet that the keys open | as it would have been sent without a seal; a comment has what the trailer has told |
//! | all else | as it is |
//!
//! Times, links and comments stay. Lengths and checksums of IP and UDP are those of the open
//! packet.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, bail};
use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice, UdpHeader};
use pcap_parser::Linktype;
use tailcut_net::pcapng::{self, PacketRecord, SECTION};

/// The copy that is being written.
pub(super) struct Opened {
    out: BufWriter<File>,
    /// Interfaces described so far.
    interfaces: u32,
    /// The time of the last record that has one; what has none is given that.
    last_ns: u64,
    /// Sealed packets that are open in it.
    opened: u64,
    /// Sealed packets that are not.
    sealed: u64,
}

impl Opened {
    /// A new file; what is being read must not be overwritten.
    pub(super) fn create(path: &Path, source: &Path) -> anyhow::Result<Self> {
        let is_source = matches!(
            (path.canonicalize(), source.canonicalize()),
            (Ok(path), Ok(source)) if path == source
        );
        if is_source {
            bail!("{} is the capture itself: give --opened another file", path.display());
        }
        let file = File::create(path)
            .with_context(|| format!("cannot create the opened capture {}", path.display()))?;
        let mut opened =
            Self { out: BufWriter::new(file), interfaces: 0, last_ns: 0, opened: 0, sealed: 0 };
        opened.write(&SECTION)?;
        Ok(opened)
    }

    /// Describes an interface; its number.
    pub(super) fn interface(&mut self, link: Linktype) -> anyhow::Result<u32> {
        let number = self.interfaces;
        self.interfaces += 1;
        // Both formats have 16 bits for it.
        self.write(&pcapng::interface(link.0 as u16))?;
        Ok(number)
    }

    /// Writes a record whose time is `at_ns`.
    pub(super) fn record(
        &mut self,
        at_ns: Option<i128>,
        record: PacketRecord<'_>,
    ) -> anyhow::Result<()> {
        if let Some(at_ns) = at_ns {
            self.last_ns = u64::try_from(at_ns.max(0)).unwrap_or(u64::MAX);
        }
        self.write(&PacketRecord { at_ns: self.last_ns, ..record }.to_block())
    }

    /// Counts a sealed packet.
    pub(super) fn note(&mut self, is_open: bool) {
        *(if is_open { &mut self.opened } else { &mut self.sealed }) += 1;
    }

    /// Writes what is left; what people are told.
    pub(super) fn finish(mut self) -> anyhow::Result<String> {
        self.out.flush().context("cannot write the opened capture")?;
        let Self { opened, sealed, .. } = self;
        Ok(match sealed {
            0 => format!("{opened} sealed packets are open in the copy"),
            _ => format!(
                "{opened} sealed packets are open in the copy, {sealed} are not: by other keys, or captured without what their peer said before"
            ),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.out.write_all(bytes).context("cannot write the opened capture")
    }
}

/// A frame with `open` in the place of `payload`, which is what it carries; without what follows
/// that.
pub(super) fn rewritten(
    frame: &[u8],
    packet: &LaxSlicedPacket<'_>,
    (payload, open): (&[u8], &[u8]),
) -> Vec<u8> {
    let mut bytes = frame[..place(frame, payload)].to_vec();
    bytes.extend_from_slice(open);
    let rest = |at: usize| u16::try_from(bytes.len() - at).unwrap_or(u16::MAX);
    match &packet.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let at = place(frame, ip.header().slice());
            let mut header = ip.header().to_header();
            header.total_len = rest(at);
            header.header_checksum = header.calc_header_checksum();
            let header = header.to_bytes();
            bytes[at..at + header.len()].copy_from_slice(&header);
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let at = place(frame, ip.header().slice());
            let mut header = ip.header().to_header();
            header.payload_length = rest(at + header.header_len());
            let header = header.to_bytes();
            bytes[at..at + header.len()].copy_from_slice(&header);
        }
        _ => {}
    }
    if let Some(TransportSlice::Udp(udp)) = &packet.transport {
        let at = place(frame, udp.slice());
        let header = udp_header(packet, &udp.to_header(), open);
        bytes[at..at + UdpHeader::LEN].copy_from_slice(&header.to_bytes());
    }
    bytes
}

/// The header of a datagram with another payload.
fn udp_header(packet: &LaxSlicedPacket<'_>, header: &UdpHeader, payload: &[u8]) -> UdpHeader {
    let length = u16::try_from(UdpHeader::LEN + payload.len()).unwrap_or(u16::MAX);
    let mut header = UdpHeader { length, ..header.clone() };
    let checksum = match &packet.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let (from, to) = (ip.header().source(), ip.header().destination());
            header.calc_checksum_ipv4_raw(from, to, payload)
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let (from, to) = (ip.header().source(), ip.header().destination());
            header.calc_checksum_ipv6_raw(from, to, payload)
        }
        _ => return header,
    };
    // 0 says that there is none.
    header.checksum = checksum.unwrap_or(0);
    header
}

/// Offset of a part of a frame in it.
fn place(frame: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr() - frame.as_ptr().addr()
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::super::frame::{LINK_ETHERNET, datagram, slice};
    use super::*;

    /// A frame in whose packet something shorter takes the place of the payload is as if that had
    /// been sent, and what has followed the packet is gone.
    fn check(builder: impl Fn(&[u8]) -> Vec<u8>) {
        let (sealed, open) = (&[7; 61][..], &[9; 29][..]);
        let frame = [builder(sealed), vec![0; 5]].concat();
        let Ok(packet) = slice(Linktype(LINK_ETHERNET), &frame) else { panic!("it is a frame") };
        let Ok(found) = datagram(&packet) else { panic!("it has a datagram") };
        assert_eq!(found.payload, sealed);
        assert_eq!(rewritten(&frame, &packet, (found.payload, open)), builder(open));
    }

    fn written(step: etherparse::PacketBuilderStep<UdpHeader>, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 200];
        let len = step.write_to_slice(&mut bytes, payload).expect("it is short");
        bytes[..len].to_vec()
    }

    #[test]
    fn a_datagram_of_either_family_is_as_if_it_had_been_sent_open() {
        let ethernet = || PacketBuilder::ethernet2([2; 6], [4; 6]);
        let (v4, v6) = ([10, 0, 0, 1], [3; 16]);
        check(|payload| written(ethernet().ipv4(v4, [10, 0, 0, 2], 64).udp(8000, 9), payload));
        check(|payload| written(ethernet().ipv6(v6, [5; 16], 64).udp(8000, 9), payload));
        let vlan = || ethernet().single_vlan(7.try_into().expect("12 bits"));
        check(|payload| written(vlan().ipv4(v4, [10, 0, 0, 2], 64).udp(8000, 9), payload));
    }

    /// Over IP itself there is no checksum but that of IPv4.
    #[test]
    fn a_packet_of_homa_in_ip_is_as_if_it_had_been_sent_open() {
        check(|payload| {
            let step = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([1; 4], [2; 4], 64);
            let mut bytes = vec![0; 200];
            let len = step.write_to_slice(&mut bytes, 146.into(), payload).expect("it is short");
            bytes[..len].to_vec()
        });
    }
}
