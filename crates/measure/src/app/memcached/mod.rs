//! `memcached-binary`, `memcached-ascii`: GET and SET of a store in memcached's two protocols, and
//! its frames over UDP.
//!
//! The binary one is what memcached documents as `protocol-binary`, the ascii one and the frames as
//! `protocol.txt`.

mod ascii;
mod binary;
mod datagrams;

use std::fmt;
use std::sync::Arc;

use super::codec::{
    Carrier, Codec, DatagramFramer, Expected, Framer, Loader, Preload, Setting, Write,
};
use super::entry::{Entry, Serves};
use super::error::AppError;
use super::options::Options;
use super::payload::DATAGRAM_BYTES_MAX;
use super::store::{self, Keys, Store, Traffic, write_value};
use crate::generator::Generator;

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: BINARY,
        form: BINARY,
        about: "GET and SET of a store in memcached's binary protocol",
        options: &[store::OPTIONS],
        parse: |text, load| parse(BINARY, Dialect::Binary, text, load),
        carrier: Carrier::Stream,
        with_files: None,
        serves: Serves::Nothing,
    },
    Entry {
        name: ASCII,
        form: ASCII,
        about: "GET and SET of a store in memcached's text protocol, which every memcached speaks",
        options: &[store::OPTIONS],
        parse: |text, load| parse(ASCII, Dialect::Ascii, text, load),
        carrier: Carrier::Stream,
        with_files: None,
        serves: Serves::Nothing,
    },
];

#[derive(Debug)]
struct Memcached {
    /// The protocol that is spoken.
    dialect: Dialect,
    /// Keys and values.
    store: Store,
}

/// A protocol of memcached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    /// `memcached-binary`.
    Binary,
    /// `memcached-ascii`.
    Ascii,
}

fn parse(
    name: &'static str,
    dialect: Dialect,
    text: &str,
    load: &mut Loader<'_>,
) -> Result<Arc<dyn Codec>, AppError> {
    let mut options = Options::parse(name, text)?;
    let store = Store::take(&mut options, load)?;
    options.finish(&[store::OPTIONS])?;
    Ok(Arc::new(Memcached { dialect, store }))
}

impl Codec for Memcached {
    fn requests(&self, setting: Setting<'_>, rng: &mut Generator) -> Result<Write, AppError> {
        let (dialect, carrier) = (self.dialect, setting.carrier);
        let mut traffic = Traffic::new(&self.store, KEY_BYTES_MAX, value_bytes_max(carrier), rng)?;
        Ok(Box::new(move |tag, rng, out| {
            let (index, reads) = traffic.draw(rng);
            let value_len = if reads { None } else { Some(traffic.values.draw(rng)) };
            Request { dialect, carrier, tag, index, value_len }.write(&traffic.keys, out)
        }))
    }

    fn replies(&self) -> Box<dyn Framer> {
        match self.dialect {
            Dialect::Binary => Box::new(binary::Replies::new()),
            Dialect::Ascii => Box::new(ascii::Replies::new()),
        }
    }

    fn datagrams(&self) -> Option<Box<dyn DatagramFramer>> {
        Some(Box::new(datagrams::Frames::new(self.dialect)))
    }

    fn preload(&self, carrier: Carrier) -> Result<Option<Preload>, AppError> {
        let keys = Keys::new(&self.store, KEY_BYTES_MAX)?;
        let values = self.store.values(value_bytes_max(carrier))?;
        let dialect = self.dialect;
        let write = move |index, out: &mut Vec<u8>| {
            let value_len = Some(values.of_value(index));
            Request { dialect, carrier, tag: index, index, value_len }.write(&keys, out)
        };
        Ok(Some(Preload { key_count: self.store.keys, write: Arc::new(write) }))
    }
}

impl fmt::Display for Memcached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
struct Request {
    dialect: Dialect,
    /// Over datagrams a frame goes in front.
    carrier: Carrier,
    /// Its name.
    tag: u64,
    /// Index of its key.
    index: u64,
    /// Length of the value to be set; a request without one reads.
    value_len: Option<usize>,
}

impl Request {
    /// Appends the request.
    #[inline]
    fn write(self, keys: &Keys, out: &mut Vec<u8>) -> Expected {
        // A frame has 16 bits for the name, the opaque word 32.
        let tag = if self.carrier == Carrier::Datagram {
            self.tag & 0xffff
        } else {
            self.tag & 0xffff_ffff
        };
        if self.carrier == Carrier::Datagram {
            datagrams::write_frame(tag as u16, out);
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
        Expected { tag, due: if self.value_len.is_some() { SET } else { GET } }
    }
}

/// The longest value: an item of a megabyte is the most that a server takes by default, and a
/// request over UDP is one datagram.
fn value_bytes_max(carrier: Carrier) -> u64 {
    match carrier {
        Carrier::Stream | Carrier::Message => 1_000_000,
        // A frame, a line or header, and the key.
        Carrier::Datagram => DATAGRAM_BYTES_MAX - 64 - KEY_BYTES_MAX,
    }
}

/// The longest key.
const KEY_BYTES_MAX: u64 = 250;

/// The command that a reply answers ([`Expected::due`]); any other number is a SET too.
const GET: u32 = 0;
const SET: u32 = 1;

const BINARY: &str = "memcached-binary";
const ASCII: &str = "memcached-ascii";
