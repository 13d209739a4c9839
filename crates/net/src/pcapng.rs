//! Blocks of pcapng: one little-endian section, interfaces whose times are in nanoseconds, and
//! packets with comments.
//!
//! A file begins with [`SECTION`]; each interface is described before its first packet, and they
//! are numbered from 0 in that order.

/// A section header block: little-endian, version 1.0, of unknown length.
pub const SECTION: [u8; 28] = [
    0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0xff, 28, 0, 0, 0,
];

/// The link type of IP packets that have no frame around them.
pub const RAW_IP: u16 = 101;

/// Bytes of a packet's block without packet and comment.
pub const EMPTY_PACKET_LEN: usize = 32;

/// A packet as it is written.
#[derive(Clone, Copy, Debug)]
pub struct PacketRecord<'a> {
    /// The number of its interface.
    pub interface: u32,
    /// The time of day, nanoseconds.
    pub at_ns: u64,
    /// Bytes that were captured of it, shorter than 4 GiB.
    pub frame: &'a [u8],
    /// Bytes that it had on the wire.
    pub wire_len: u32,
    /// Empty for none; no more than 65,532 bytes of it are written.
    pub comment: &'a str,
}

impl PacketRecord<'_> {
    /// An enhanced packet block.
    pub fn to_block(&self) -> Vec<u8> {
        let padded = |bytes: &[u8]| bytes.len().next_multiple_of(4);
        let comment = cut(self.comment);
        let options_len = if comment.is_empty() { 0 } else { 8 + padded(comment.as_bytes()) };
        let len = EMPTY_PACKET_LEN + padded(self.frame) + options_len;
        let (high, low) = ((self.at_ns >> 32) as u32, self.at_ns as u32);
        let frame_len = self.frame.len() as u32;
        let mut block = Vec::with_capacity(len);
        for word in [6, len as u32, self.interface, high, low, frame_len, self.wire_len] {
            block.extend(word.to_le_bytes());
        }
        block.extend_from_slice(self.frame);
        block.resize(block.len().next_multiple_of(4), 0);
        if !comment.is_empty() {
            block.extend([1_u16, comment.len() as u16].into_iter().flat_map(u16::to_le_bytes));
            block.extend_from_slice(comment.as_bytes());
            // Padding, then the end of the options.
            block.resize(block.len().next_multiple_of(4) + 4, 0);
        }
        block.extend((len as u32).to_le_bytes());
        block
    }
}

/// An interface description block, of a link type in the registry of tcpdump.org: no limit of
/// lengths, times in nanoseconds.
pub fn interface(link: u16) -> [u8; 32] {
    let [low, high] = link.to_le_bytes();
    [
        1, 0, 0, 0, 32, 0, 0, 0, low, high, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0,
        32, 0, 0, 0,
    ]
}

/// As much of a comment as an option can have.
fn cut(comment: &str) -> &str {
    let mut len = comment.len().min(COMMENT_LEN_MAX);
    while !comment.is_char_boundary(len) {
        len -= 1;
    }
    &comment[..len]
}

/// The longest comment whose padding 16 bits count too.
const COMMENT_LEN_MAX: usize = 65_532;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_says_its_length_at_both_ends_and_is_padded() {
        for (frame_len, comment) in [(0, "x"), (1, ""), (4, "four"), (61, "a comment")] {
            let frame = vec![7; frame_len];
            let record =
                PacketRecord { interface: 3, at_ns: 5, frame: &frame, wire_len: 99, comment };
            let block = record.to_block();
            let word = |at: usize| u32::from_le_bytes(*block[at..].first_chunk().unwrap());
            assert!(block.len().is_multiple_of(4));
            assert_eq!([word(4), word(block.len() - 4)], [block.len() as u32; 2]);
            assert_eq!([word(8), word(20), word(24)], [3, frame_len as u32, 99]);
        }
    }

    #[test]
    fn a_comment_that_is_too_long_is_cut_between_characters() {
        let comment = format!("{}ü", "x".repeat(COMMENT_LEN_MAX - 1));
        assert_eq!(cut(&comment).len(), COMMENT_LEN_MAX - 1);
        assert_eq!(cut(&comment[..9]), &comment[..9]);
    }
}
