//! memcached's binary protocol: headers of 24 bytes, then extras, key and value.

use super::super::codec::{Expected, Framer};
use super::super::lines::{HeldHead, skip};
use super::super::reply::{BODY_BYTES_MAX, ErrorKind, Malformed, Outcome, Reply};
use super::GET;

/// Appends the header and the extras of a GET, or of a SET of so many bytes.
#[inline]
pub(super) fn write_head(opaque: u32, key_len: usize, value_len: Option<usize>, out: &mut Vec<u8>) {
    let mut head = [0; HEADER_LEN + SET_EXTRAS_LEN];
    let (opcode, extras_len) =
        if value_len.is_some() { (OPCODE_SET, SET_EXTRAS_LEN) } else { (OPCODE_GET, 0) };
    let body_len = extras_len + key_len + value_len.unwrap_or(0);
    head[0] = MAGIC_REQUEST;
    head[1] = opcode;
    head[2..4].copy_from_slice(&(key_len as u16).to_be_bytes());
    head[4] = extras_len as u8;
    head[8..12].copy_from_slice(&(body_len as u32).to_be_bytes());
    head[12..16].copy_from_slice(&opaque.to_be_bytes());
    out.extend_from_slice(&head[..HEADER_LEN + extras_len]);
}

/// Meaning of a reply's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) outcome: Outcome,
    pub(super) body_len: u64,
}

impl Head {
    /// Reads the header of the reply that is due.
    #[inline]
    pub(super) fn read(header: &[u8; HEADER_LEN], expected: Expected) -> Result<Self, Malformed> {
        let word = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        if header[0] != MAGIC_REPLY {
            return Err(Malformed::Syntax("the magic byte of memcached's binary replies"));
        }
        if u64::from(word(12)) != expected.tag {
            return Err(Malformed::Mismatched("its opaque word is another"));
        }
        let opcode = if expected.due == GET { OPCODE_GET } else { OPCODE_SET };
        if header[1] != opcode {
            return Err(Malformed::Mismatched("its opcode is another"));
        }
        let body_len = u64::from(word(8));
        if u64::from(half(2)) + u64::from(header[4]) > body_len {
            return Err(Malformed::Syntax("a body that holds its key and extras"));
        }
        if body_len > BODY_BYTES_MAX {
            return Err(Malformed::TooLong("bodies"));
        }
        Ok(Self { outcome: outcome(half(6)), body_len })
    }
}

/// The replies of one connection.
#[derive(Debug)]
pub(super) struct Replies {
    header: HeldHead<HEADER_LEN>,
    /// Bytes left of the body under way, and the outcome.
    body: Option<(u64, Outcome)>,
}

impl Framer for Replies {
    #[inline]
    fn take(&mut self, bytes: &mut &[u8], expected: Expected) -> Result<Option<Reply>, Malformed> {
        if self.body.is_none() {
            let header = self.header.take(bytes, HEADER_LEN).and_then(<[u8]>::first_chunk);
            let Some(header) = header else {
                return Ok(None);
            };
            let head = Head::read(header, expected)?;
            self.body = Some((head.body_len, head.outcome));
        }
        let Some((left, outcome)) = &mut self.body else {
            return Ok(None);
        };
        let ended = skip(bytes, left).then_some(*outcome);
        if ended.is_some() {
            self.body = None;
        }
        Ok(ended.map(Reply::keep))
    }

    fn is_within(&self) -> bool {
        self.header.is_within() || self.body.is_some()
    }
}

impl Replies {
    pub(super) fn new() -> Self {
        Self { header: HeldHead::new(), body: None }
    }
}

fn outcome(status: u16) -> Outcome {
    match status {
        0x00 => Outcome::Ok,
        0x01 => Outcome::Miss,
        // The key exists; not stored.
        0x02 | 0x05 => Outcome::Error(ErrorKind::NotStored),
        // The bucket belongs to another server.
        0x07 => Outcome::Error(ErrorKind::Elsewhere),
        // Authentication fails; goes on.
        0x08 | 0x20 | 0x21 => Outcome::Error(ErrorKind::Unauthorised),
        // Out of memory; internal error.
        0x82 | 0x84 => Outcome::Error(ErrorKind::Failed),
        // Busy; temporary failure.
        0x85 | 0x86 => Outcome::Error(ErrorKind::Busy),
        _ => Outcome::Error(ErrorKind::Refused),
    }
}

pub(super) const HEADER_LEN: usize = 24;
/// Flags and expiry.
const SET_EXTRAS_LEN: usize = 8;
const MAGIC_REQUEST: u8 = 0x80;
const MAGIC_REPLY: u8 = 0x81;
const OPCODE_GET: u8 = 0x00;
const OPCODE_SET: u8 = 0x01;
