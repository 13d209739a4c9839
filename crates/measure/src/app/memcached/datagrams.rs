//! memcached's frames over UDP, and replies of several datagrams.
//!
//! In front of each datagram are eight bytes: request id, sequence number, count, and two that are
//! reserved.
//!
//! Invariant: what has come of replies of several datagrams is a few numbers each, in a table of at
//! most [`PARTIALS_MAX`].

use super::super::codec::{DatagramFramer, Expected, Key};
use super::super::reply::{Malformed, Outcome};
use super::{Dialect, ascii, binary};

/// The replies of one socket.
#[derive(Debug)]
pub(super) struct Frames {
    dialect: Dialect,
    /// Replies of which some datagrams have come, oldest first.
    partials: Vec<Partial>,
    /// Replies that were given up because the table was full.
    evicted: u64,
}

/// A reply of which some datagrams have come.
#[derive(Clone, Debug)]
struct Partial {
    id: u16,
    count: u16,
    /// One bit for each datagram that has come.
    seen: [u64; COUNT_MAX as usize / 64],
    seen_count: u16,
    /// The reply's bytes that have come.
    bytes: u64,
    /// Contents of the first datagram: the outcome, and the bytes of the whole reply.
    head: Option<(Outcome, u64)>,
}

impl Frames {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { dialect, partials: Vec::new(), evicted: 0 }
    }

    /// Index of the reply's partial, which may begin with this datagram.
    fn place(&mut self, frame: Frame<'_>) -> usize {
        if let Some(at) = self.partials.iter().position(|partial| partial.id == frame.id) {
            return at;
        }
        if self.partials.len() == PARTIALS_MAX {
            self.partials.remove(0);
            self.evicted += 1;
        }
        let seen = [0; COUNT_MAX as usize / 64];
        self.partials.push(Partial {
            id: frame.id,
            count: frame.count,
            seen,
            seen_count: 0,
            bytes: 0,
            head: None,
        });
        self.partials.len() - 1
    }
}

impl DatagramFramer for Frames {
    #[inline]
    fn key(&self, datagram: &[u8]) -> Result<Key, Malformed> {
        let frame = Frame::read(datagram).ok_or(NO_FRAME)?;
        Ok(Key::Tag(u64::from(frame.id)))
    }

    fn take(&mut self, datagram: &[u8], expected: Expected) -> Result<Option<Outcome>, Malformed> {
        let frame = Frame::read(datagram).ok_or(NO_FRAME)?;
        if frame.count == 1 {
            let (outcome, len) = read_head(self.dialect, frame.content, expected)?;
            return if len == frame.content.len() as u64 {
                Ok(Some(outcome))
            } else {
                Err(OTHER_LENGTH)
            };
        }
        if frame.count > COUNT_MAX {
            return Err(Malformed::TooLong("the datagrams of a reply"));
        }
        let at = self.place(frame);
        let partial = &mut self.partials[at];
        if partial.count != frame.count {
            return Err(Malformed::Syntax("the same count in each of a reply's datagrams"));
        }
        let (word, bit) = (usize::from(frame.sequence) / 64, 1 << (frame.sequence % 64));
        if partial.seen[word] & bit != 0 {
            return Ok(None);
        }
        if frame.sequence == 0 {
            partial.head = Some(read_head(self.dialect, frame.content, expected)?);
        }
        partial.seen[word] |= bit;
        partial.seen_count += 1;
        partial.bytes += frame.content.len() as u64;
        if partial.seen_count < partial.count {
            return Ok(None);
        }
        let partial = self.partials.remove(at);
        match partial.head {
            Some((outcome, len)) if len == partial.bytes => Ok(Some(outcome)),
            _ => Err(OTHER_LENGTH),
        }
    }

    fn release(&mut self, tag: u64) {
        self.partials.retain(|partial| u64::from(partial.id) != tag);
    }

    fn evicted(&self) -> u64 {
        self.evicted
    }
}

/// Meaning of the datagram at the head of a reply, and the length of the whole reply.
fn read_head(
    dialect: Dialect,
    content: &[u8],
    expected: Expected,
) -> Result<(Outcome, u64), Malformed> {
    if dialect == Dialect::Ascii {
        return ascii::read_head(content, expected);
    }
    let header =
        content.first_chunk().ok_or(Malformed::Syntax("a datagram that begins with a header"))?;
    let head = binary::Head::read(header, expected)?;
    Ok((head.outcome, binary::HEADER_LEN as u64 + head.body_len))
}

/// A datagram's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame<'a> {
    /// The request's name.
    id: u16,
    /// Number of this one among the reply's datagrams; below `count`.
    sequence: u16,
    /// Datagrams of the reply.
    count: u16,
    /// The reply's bytes in this one.
    content: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads a datagram; none if it is not coherent.
    #[inline]
    fn read(datagram: &'a [u8]) -> Option<Self> {
        let (head, content) = datagram.split_first_chunk::<FRAME_LEN>()?;
        let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let frame = Self { id: half(0), sequence: half(2), count: half(4), content };
        (frame.sequence < frame.count).then_some(frame)
    }
}

/// Appends the frame of a request, which is one datagram.
#[inline]
pub(super) fn write_frame(id: u16, out: &mut Vec<u8>) {
    let [high, low] = id.to_be_bytes();
    out.extend_from_slice(&[high, low, 0, 0, 0, 1, 0, 0]);
}

const NO_FRAME: Malformed = Malformed::Syntax("a datagram with memcached's frame header");
const OTHER_LENGTH: Malformed = Malformed::Syntax("a reply of the length that its head says");
/// Datagrams of a reply: a megabyte in those of 1,400 bytes is 750.
const COUNT_MAX: u16 = 1024;
/// Replies in part: a socket has as many outstanding as its load thread gives it, most of them
/// whole.
const PARTIALS_MAX: usize = 64;
const FRAME_LEN: usize = 8;
