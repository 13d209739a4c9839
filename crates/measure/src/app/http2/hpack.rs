//! Headers of HTTP/2 as bytes (HPACK, RFC 7541), as far as a load needs them: requests are written
//! once, and of replies only the status is read.
//!
//! | representation | a request | a reply |
//! |---|---|---|
//! | indexed | of the static table | of the static table; another is malformed |
//! | literal | without indexing, without Huffman's code | any; none of them is kept |
//! | size of the dynamic table | none | 0 alone |
//!
//! The session declares a dynamic table of size 0 (`SETTINGS_HEADER_TABLE_SIZE`), which every peer
//! must keep to, so that a block means the same whatever went before it. The crates that decode
//! HPACK make two strings of each header, for a reader that wants two numbers of a block and
//! allocates nothing.
//!
//! Invariant: any bytes are read without a panic, once.

use super::super::reply::Malformed;

/// Contents of a block of headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// `:status`; none in trailers.
    pub(super) status: Option<u16>,
    /// `grpc-status`.
    pub(super) grpc_status: Option<u16>,
}

impl Head {
    /// Reads a whole block.
    pub(super) fn read(mut block: &[u8]) -> Result<Self, Malformed> {
        let mut head = Self::default();
        while let Some(&first) = block.first() {
            let name = match first {
                0x80.. => {
                    let index = integer(&mut block, 7)?;
                    head.status = indexed_status(index)?.or(head.status);
                    continue;
                }
                0x40..=0x7f => integer(&mut block, 6)?,
                0x20..=0x3f => {
                    if integer(&mut block, 5)? > 0 {
                        return Err(NOT_HPACK);
                    }
                    continue;
                }
                _ => integer(&mut block, 4)?,
            };
            let name = match name {
                0 => Name::of(Text::take(&mut block)?),
                STATUS_FIRST..=STATUS_LAST => Name::Status,
                1..=STATIC_LEN => Name::Other,
                _ => return Err(NOT_HPACK),
            };
            let value = Text::take(&mut block)?;
            match name {
                Name::Status => head.status = Some(value.number().ok_or(NOT_HPACK)?),
                Name::GrpcStatus => head.grpc_status = Some(value.number().ok_or(NOT_HPACK)?),
                Name::Other => {}
            }
        }
        Ok(head)
    }
}

/// Appends a header of the static table.
pub(in crate::app) fn write_indexed(index: u8, out: &mut Vec<u8>) {
    out.push(0x80 | index);
}

/// Appends a header whose name is in the static table, and which is not to be indexed.
pub(in crate::app) fn write_named(index: u8, value: &[u8], out: &mut Vec<u8>) {
    write_integer(0, 4, usize::from(index), out);
    write_text(value, out);
}

/// Appends a header that is not to be indexed.
pub(in crate::app) fn write_literal(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.push(0);
    write_text(name, out);
    write_text(value, out);
}

fn write_text(text: &[u8], out: &mut Vec<u8>) {
    write_integer(0, 7, text.len(), out);
    out.extend_from_slice(text);
}

/// RFC 7541, section 5.1.
fn write_integer(flags: u8, bits: u32, value: usize, out: &mut Vec<u8>) {
    let most = (1usize << bits) - 1;
    if value < most {
        return out.push(flags | value as u8);
    }
    out.push(flags | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Takes an integer with a prefix of so many bits.
fn integer(block: &mut &[u8], bits: u32) -> Result<u64, Malformed> {
    let (&first, mut rest) = block.split_first().ok_or(NOT_HPACK)?;
    let most = (1u64 << bits) - 1;
    let mut value = u64::from(first) & most;
    if value == most {
        let mut shift = 0;
        loop {
            let (&byte, after) = rest.split_first().ok_or(NOT_HPACK)?;
            rest = after;
            value += u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
            // No length of a block that is taken has more digits.
            if shift > 28 {
                return Err(NOT_HPACK);
            }
        }
    }
    *block = rest;
    Ok(value)
}

/// The status of an entry of the static table, if it has one.
fn indexed_status(index: u64) -> Result<Option<u16>, Malformed> {
    match index {
        1..STATUS_FIRST => Ok(None),
        STATUS_FIRST..=STATUS_LAST => Ok(Some(STATUSES[(index - STATUS_FIRST) as usize])),
        _ if index > STATUS_LAST && index <= STATIC_LEN => Ok(None),
        _ => Err(NOT_HPACK),
    }
}

/// A name, as far as it matters.
enum Name {
    Status,
    GrpcStatus,
    Other,
}

impl Name {
    fn of(text: Text<'_>) -> Self {
        match (text.is_coded, text.bytes) {
            (false, b":status") | (true, CODED_STATUS) => Self::Status,
            (false, b"grpc-status") | (true, CODED_GRPC_STATUS) => Self::GrpcStatus,
            _ => Self::Other,
        }
    }
}

/// A string, as it is on the wire.
#[derive(Clone, Copy)]
struct Text<'a> {
    bytes: &'a [u8],
    /// True if the string is in Huffman's code.
    is_coded: bool,
}

impl<'a> Text<'a> {
    fn take(block: &mut &'a [u8]) -> Result<Self, Malformed> {
        let is_coded = block.first().is_some_and(|first| first & 0x80 > 0);
        let len = integer(block, 7)?;
        let len = usize::try_from(len).map_err(|_| NOT_HPACK)?;
        let (bytes, rest) = block.split_at_checked(len).ok_or(NOT_HPACK)?;
        *block = rest;
        Ok(Self { bytes, is_coded })
    }

    /// A decimal number of at most five digits.
    fn number(self) -> Option<u16> {
        let mut number = 0u32;
        let mut digits = 0;
        let mut add = |digit: u32| {
            digits += 1;
            let fits = digit < 10 && digits <= 5;
            fits.then(|| number = number * 10 + digit)
        };
        if self.is_coded {
            coded_digits(self.bytes, &mut add)?;
        } else {
            self.bytes.iter().try_for_each(|&byte| add(u32::from(byte.wrapping_sub(b'0'))))?;
        }
        if digits == 0 { None } else { u16::try_from(number).ok() }
    }
}

/// Gives the digits of a string in Huffman's code that has nothing else: 0, 1 and 2 have five bits,
/// the others six; the rest of the last byte is ones (RFC 7541, appendix B).
fn coded_digits(bytes: &[u8], add: &mut dyn FnMut(u32) -> Option<()>) -> Option<()> {
    let (mut held, mut bits) = (0u32, 0u32);
    for (place, &byte) in bytes.iter().enumerate() {
        held = held << 8 | u32::from(byte);
        bits += 8;
        while bits >= 6 {
            let next = held >> (bits - 6) & 0x3f;
            // No digit begins so: the end, if anything.
            if next == 0x3f {
                let is_end = place + 1 == bytes.len() && bits < 8 && held == (1 << bits) - 1;
                return is_end.then_some(());
            }
            let (digit, len) = if next < 6 { (next >> 1, 5) } else { (next.wrapping_sub(22), 6) };
            if digit < 3 && len == 6 {
                return None;
            }
            add(digit)?;
            bits -= len;
            held &= (1 << bits) - 1;
        }
    }
    // What is left is a digit of five bits, or ones.
    if bits == 5 && held < 3 {
        return add(held);
    }
    (held == (1 << bits) - 1).then_some(())
}

const NOT_HPACK: Malformed = Malformed::Syntax("headers of HTTP/2 without a dynamic table");

/// Entries of the static table.
const STATIC_LEN: u64 = 61;
/// Those of them that are statuses.
const STATUS_FIRST: u64 = 8;
const STATUS_LAST: u64 = 14;
const STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];

/// Names in Huffman's code.
const CODED_STATUS: &[u8] = &[0xb8, 0x84, 0x8d, 0x36, 0xa3];
const CODED_GRPC_STATUS: &[u8] = &[0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(block: &[u8], status: Option<u16>, grpc_status: Option<u16>) {
        assert_eq!(Head::read(block), Ok(Head { status, grpc_status }), "{block:02x?}");
    }

    #[test]
    fn statuses_are_read_in_every_form() {
        check(b"\x88", Some(200), None);
        check(b"\x8d", Some(404), None);
        // RFC 7541, appendix C.5.1 and C.6.1: 302 plain and coded, other headers behind it; there
        // is no room for what they index.
        check(b"\x48\x03302\x58\x07private", Some(302), None);
        check(b"\x48\x82\x64\x02\x58\x85\xae\xc3\x77\x1a\x4b", Some(302), None);
        check(b"\x20\x08\x03503", Some(503), None);
        check(b"\x00\x07:status\x03429", Some(429), None);
        check(b"\x00\x85\xb8\x84\x8d\x36\xa3\x82\x10\x01", Some(200), None);
        // As grpc-go and nghttp2 write trailers.
        check(b"\x40\x0bgrpc-status\x010", None, Some(0));
        check(b"\x40\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f\x81\x07", None, Some(0));
        check(b"\x00\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f\x82\x08\xbf", None, Some(12));
        check(b"", None, None);
    }

    /// Each number is written as RFC 7541's table says, and read again.
    #[test]
    fn coded_numbers_are_read() {
        let code =
            |digit: u16| if digit < 3 { (u64::from(digit), 5) } else { (u64::from(digit) + 22, 6) };
        for number in 0..1_000u16 {
            let text = number.to_string();
            let (mut bits, mut len) = (0u64, 0u32);
            for digit in text.bytes() {
                let (code, code_len) = code(u16::from(digit - b'0'));
                (bits, len) = (bits << code_len | code, len + code_len);
            }
            let padding = len.next_multiple_of(8) - len;
            let coded = (bits << padding | ((1 << padding) - 1)).to_be_bytes();
            let coded = &coded[8 - ((len + padding) / 8) as usize..];
            let read = Text { bytes: coded, is_coded: true }.number();
            assert_eq!(read, Some(number), "{coded:02x?}");
        }
    }

    #[test]
    fn what_is_no_block_is_malformed() {
        for block in [
            &b"\x80"[..],
            b"\xbe",
            b"\x3f\x01",
            b"\x48",
            b"\x48\x05302",
            b"\x48\x0330x",
            b"\x48\x00",
            b"\x48\x06000000",
            b"\x48\x82\xff\xff",
            b"\x7f\xff\xff\xff\xff\xff\xff",
            b"\x00\x7f\xff\xff\xff\x7f",
        ] {
            assert!(Head::read(block).is_err(), "{block:02x?}");
        }
    }

    #[test]
    fn long_values_have_long_lengths() {
        let value = vec![b'x'; 1_000];
        let mut block = Vec::new();
        write_named(4, &value, &mut block);
        // 127, and 873 in groups of seven bits.
        assert_eq!(block[..4], [0x04, 0x7f, 0xe9, 0x06]);
        write_indexed(8, &mut block);
        assert_eq!(Head::read(&block).unwrap().status, Some(200));
    }
}
