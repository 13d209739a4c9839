//! memcached: its two protocols, and its frames over UDP.
//!
//! The binary one is what memcached documents as `protocol-binary`, the ascii one and the frames as
//! `protocol.txt`.

pub(super) mod ascii;
pub(super) mod binary;
pub(super) mod frame;

use super::store::{Keys, Store, write_value};
use super::{Carrier, DATAGRAM_BYTES_MAX, Expected, Shape};

/// What a measured memcached is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Memcached {
    /// Which protocol is spoken.
    pub dialect: Dialect,
    /// Keys and values.
    pub store: Store,
}

/// A protocol of memcached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `memcached-binary`.
    Binary,
    /// `memcached-ascii`.
    Ascii,
}

/// A request to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) dialect: Dialect,
    /// Whether a frame goes in front.
    pub(super) carrier: Carrier,
    /// What names it.
    pub(super) tag: u64,
    /// Of the key.
    pub(super) index: u64,
    /// Of the value to be set; a request without one reads.
    pub(super) value_len: Option<usize>,
}

impl Request {
    /// Appends the request.
    #[inline]
    pub(super) fn write(self, keys: &Keys, out: &mut Vec<u8>) -> Expected {
        // A frame has 16 bits for the name, the opaque word 32.
        let tag = if self.carrier == Carrier::Datagram {
            self.tag & 0xffff
        } else {
            self.tag & 0xffff_ffff
        };
        if self.carrier == Carrier::Datagram {
            frame::write(tag as u16, out);
        }
        let key_len = keys.len(self.index);
        match (self.dialect, self.value_len) {
            (Dialect::Binary, value_len) => {
                binary::write_head(tag as u32, key_len, value_len, out);
                keys.write(self.index, key_len, out);
                write_value(value_len.unwrap_or(0), out);
            }
            (Dialect::Ascii, None) => {
                out.extend_from_slice(b"get ");
                keys.write(self.index, key_len, out);
                out.extend_from_slice(b"\r\n");
            }
            (Dialect::Ascii, Some(value_len)) => {
                out.extend_from_slice(b"set ");
                keys.write(self.index, key_len, out);
                // No flags, and no expiry.
                out.extend_from_slice(b" 0 0 ");
                out.extend_from_slice(itoa::Buffer::new().format(value_len).as_bytes());
                out.extend_from_slice(b"\r\n");
                write_value(value_len, out);
                out.extend_from_slice(b"\r\n");
            }
        }
        let shape =
            if self.value_len.is_some() { Shape::MemcachedSet } else { Shape::MemcachedGet };
        Expected { tag, shape }
    }
}

/// The longest value: an item of a megabyte is the most that a server takes by default, and a
/// request over UDP is one datagram.
pub(super) fn value_bytes_max(carrier: Carrier) -> u64 {
    match carrier {
        Carrier::Stream | Carrier::Message => 1_000_000,
        // A frame, a line or header, and the key.
        Carrier::Datagram => DATAGRAM_BYTES_MAX - 64 - KEY_BYTES_MAX,
    }
}

/// The longest key.
pub(super) const KEY_BYTES_MAX: u64 = 250;
