//! Homa in the disguise of TCP, which the module calls hijacking: IP protocol 6, so that NICs cut
//! long packets (TSO) and spread flows over cores (RSS) as they do for TCP.
//!
//! | bytes | field of TCP | in disguise |
//! |---|---|---|
//! | 4-7 | sequence number | offset of the data: the one field that TSO corrects in the packets it cuts |
//! | 12 | data offset | 14 words in DATA, of which every packet that TSO cuts gets a copy; 5 in the others |
//! | 13 | flags | [`FLAGS`] |
//! | 16-17 | checksum | TCP's, over the pseudo-header with protocol 6; NICs and fabrics may drop what lacks it |
//! | 18-19 | urgent pointer | [`URGENT`] |
//! | 52-55 | | [`OFFSET_IN_SEQUENCE`] in DATA, since each of its copies is the same |

use core::net::IpAddr;

use zerocopy::FromBytes;

use super::{COMMON_LEN, CommonHeader, DataHeader, FLAGS, OFFSET_IN_SEQUENCE, PacketType, URGENT};

/// The IP protocol of a packet in disguise: TCP's.
pub const HIJACKED_IP_PROTOCOL: u8 = 6;

/// True if what came as a TCP segment is a Homa packet in disguise: no segment of TCP has SYN and
/// RST together.
pub fn is_hijacked(segment: &[u8]) -> bool {
    CommonHeader::ref_from_prefix(segment)
        .is_ok_and(|(common, _)| common.flags == FLAGS && common.urgent.get() == URGENT)
}

/// Makes a packet that has been written one in disguise, to be sent from `source` to `destination`:
/// the offset of its data is left to `sequence`, where it must stand already, and the checksum is
/// TCP's. What is shorter than a header stays as it is.
pub fn hijack(packet: &mut [u8], source: IpAddr, destination: IpAddr) {
    if let Ok((header, _)) = DataHeader::mut_from_prefix(packet)
        && header.common.packet_type == PacketType::Data as u8
    {
        header.seg_offset = OFFSET_IN_SEQUENCE.into();
    }
    if packet.len() >= COMMON_LEN {
        packet[CHECKSUM].fill(0);
        let checksum = tcp_checksum(packet, source, destination);
        packet[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// TCP's checksum over `segment` and its pseudo-header (RFC 9293, section 3.1): the value for the
/// field where that is 0, and 0 where it is right.
pub fn tcp_checksum(segment: &[u8], source: IpAddr, destination: IpAddr) -> u16 {
    let len = segment.len() as u64;
    let sum = sum_of(source)
        + sum_of(destination)
        + u64::from(HIJACKED_IP_PROTOCOL)
        + (len >> 16)
        + (len & 0xffff);
    let sum = sum + sum_words(segment);
    let folded = (0..3).fold(sum, |sum, _| (sum & 0xffff) + (sum >> 16));
    !(folded as u16)
}

fn sum_of(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(ip) => sum_words(&ip.octets()),
        IpAddr::V6(ip) => sum_words(&ip.octets()),
    }
}

/// The sum of the words of 16 bits, the last filled up with zero.
fn sum_words(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let last = rest.first().map_or(0, |&high| u64::from(high) << 8);
    words.iter().map(|&word| u64::from(u16::from_be_bytes(word))).sum::<u64>() + last
}

const CHECKSUM: core::ops::Range<usize> = 16..18;
