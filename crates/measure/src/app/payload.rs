//! Payloads of counted bytes, and the tags in them that name requests over datagrams.

use super::codec::{Carrier, DatagramFramer, Expected, Framer, Key};
use super::lines::skip;
use super::reply::{Malformed, Outcome, Reply};

/// The least and the most bytes of a payload behind `head_len` others. On a stream nothing tells of
/// an empty one.
pub(super) fn payload_bounds(carrier: Carrier, head_len: u64) -> (u64, u64) {
    match carrier {
        Carrier::Stream => (1, MESSAGE_BYTES_MAX - head_len),
        Carrier::Message => (0, MESSAGE_BYTES_MAX - head_len),
        Carrier::Datagram => (1, DATAGRAM_BYTES_MAX - head_len),
    }
}

/// Appends a payload that begins with its tag, if it has the room.
#[inline]
pub(super) fn write_payload(tag: u64, len: usize, out: &mut Vec<u8>) {
    let end = out.len() + len;
    if len >= TAG_BYTES {
        out.extend_from_slice(&tag.to_be_bytes());
    }
    out.resize(end, FILL);
}

/// Replies on a stream that are as many bytes as are due.
#[derive(Debug, Default)]
pub(super) struct Counted {
    /// Bytes left of the reply under way.
    left: Option<u64>,
}

impl Framer for Counted {
    #[inline]
    fn take(&mut self, bytes: &mut &[u8], expected: Expected) -> Result<Option<Reply>, Malformed> {
        if !skip(bytes, self.left.get_or_insert(u64::from(expected.due))) {
            return Ok(None);
        }
        self.left = None;
        Ok(Some(Reply::keep(Outcome::Ok)))
    }

    fn is_within(&self) -> bool {
        self.left.is_some()
    }
}

/// Replies that are datagrams of as many bytes as are due.
#[derive(Debug)]
pub(super) struct Tagged {
    /// Offset of the tag; none where there is no room for it.
    pub(super) at: Option<usize>,
}

impl DatagramFramer for Tagged {
    #[inline]
    fn key(&self, datagram: &[u8]) -> Result<Key, Malformed> {
        let Some(at) = self.at else {
            return Ok(Key::Oldest);
        };
        let tag = datagram.get(at..).and_then(|rest| rest.first_chunk());
        tag.map(|tag| Key::Tag(u64::from_be_bytes(*tag)))
            .ok_or(Malformed::Syntax("a datagram with a tag"))
    }

    #[inline]
    fn take(&mut self, datagram: &[u8], expected: Expected) -> Result<Option<Outcome>, Malformed> {
        if datagram.len() == expected.due as usize {
            Ok(Some(Outcome::Ok))
        } else {
            Err(Malformed::Mismatched("it has another length"))
        }
    }
}

/// The longest message that an endpoint takes by default.
pub(super) const MESSAGE_BYTES_MAX: u64 = 8 << 20;

/// The most that UDP carries over IPv4.
pub(super) const DATAGRAM_BYTES_MAX: u64 = 65_507;

/// Length of a tag.
pub(super) const TAG_BYTES: usize = 8;

/// Filling byte of payloads and values.
pub(super) const FILL: u8 = 0x5a;
