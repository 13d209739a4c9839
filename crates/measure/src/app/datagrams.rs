//! Replies out of datagrams, which may be lost, late, twice and out of order.
//!
//! Invariant: a reply is matched by the name that its request carried, so that a late one is never
//! taken for another. What has come of replies of several datagrams is a few numbers each, in a
//! table of at most [`PARTIALS_MAX`].

use super::memcached::frame::Frame;
use super::memcached::{Dialect, ascii, binary};
use super::replies::Step;
use super::{After, App, Expected, Malformed, Outcome, Reply, Shape, TAG_BYTES};

/// Matches and judges the datagrams of one socket.
///
/// For each datagram ask for its [`Datagrams::key`], find the request that it names, and
/// [`Datagrams::take`] it. One that names no outstanding request is late, or twice: count it. Here
/// a malformed datagram says nothing about those that follow.
#[derive(Clone, Debug)]
pub struct Datagrams {
    kind: Kind,
    /// Replies of which some datagrams have come, oldest first.
    partials: Vec<Partial>,
    /// Replies that were given up because the table was full.
    evicted: u64,
}

/// Which request a datagram answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The one with this [`Expected::tag`].
    Tag(u64),
    /// It has no room for a name: take it for the oldest, and keep one outstanding if that matters.
    Oldest,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Untagged,
    /// The tag begins here.
    Tagged {
        at: usize,
    },
    Memcached(Dialect),
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
    /// What the first datagram says: the outcome, and the bytes of the whole reply.
    head: Option<(Outcome, u64)>,
}

impl Datagrams {
    /// For a new socket of `app`.
    pub fn new(app: &App) -> Self {
        let kind = match app {
            App::Echo(bytes) if *bytes >= TAG_BYTES as u64 => Kind::Tagged { at: 0 },
            App::Stss(_) => Kind::Tagged { at: 0 },
            App::Synthetic(_) => Kind::Tagged { at: size_of::<u64>() },
            App::Memcached(memcached) => Kind::Memcached(memcached.dialect),
            App::Echo(_) | App::Redis(_) | App::Http(_) => Kind::Untagged,
        };
        Self { kind, partials: Vec::new(), evicted: 0 }
    }

    /// Which request the datagram answers.
    ///
    /// # Errors
    ///
    /// Where it names none.
    #[inline]
    pub fn key(&self, datagram: &[u8]) -> Result<Key, Malformed> {
        match self.kind {
            Kind::Untagged => Ok(Key::Oldest),
            Kind::Tagged { at } => {
                let tag = datagram.get(at..).and_then(|rest| rest.first_chunk());
                tag.map(|tag| Key::Tag(u64::from_be_bytes(*tag)))
                    .ok_or(Malformed::Syntax("a datagram with a tag"))
            }
            Kind::Memcached(_) => {
                let frame = Frame::read(datagram).ok_or(NO_FRAME)?;
                Ok(Key::Tag(u64::from(frame.id)))
            }
        }
    }

    /// Takes a datagram of the reply that is due; [`Step::More`] says that others are to come.
    #[inline]
    pub fn take(&mut self, datagram: &[u8], expected: Expected) -> Step {
        let outcome = match (self.kind, expected.shape) {
            (Kind::Memcached(dialect), _) => self.take_frame(dialect, datagram, expected),
            (_, Shape::Bytes(len)) if datagram.len() == len as usize => Ok(Some(Outcome::Ok)),
            _ => Err(Malformed::Mismatched("it has another length")),
        };
        match outcome {
            Ok(Some(outcome)) => Step::Reply(Reply { outcome, after: After::Keep }),
            Ok(None) => Step::More,
            Err(malformed) => Step::Malformed(malformed),
        }
    }

    /// The driver no longer waits for the request of this tag.
    pub fn forget(&mut self, tag: u64) {
        self.partials.retain(|partial| u64::from(partial.id) != tag);
    }

    /// Replies that were given up because too many had come in part; their requests will time out.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    fn take_frame(
        &mut self,
        dialect: Dialect,
        datagram: &[u8],
        expected: Expected,
    ) -> Result<Option<Outcome>, Malformed> {
        let frame = Frame::read(datagram).ok_or(NO_FRAME)?;
        if frame.count == 1 {
            let (outcome, len) = read_head(dialect, frame.content, expected)?;
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
            partial.head = Some(read_head(dialect, frame.content, expected)?);
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

    /// Where the reply's partial is, which may begin with this datagram.
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

fn read_head(
    dialect: Dialect,
    content: &[u8],
    expected: Expected,
) -> Result<(Outcome, u64), Malformed> {
    match dialect {
        Dialect::Ascii => ascii::read_head(content, expected),
        Dialect::Binary => {
            let header = content
                .first_chunk()
                .ok_or(Malformed::Syntax("a datagram that begins with a header"))?;
            let head = binary::Head::read(header, expected)?;
            Ok((head.outcome, binary::HEADER_LEN as u64 + head.body_len))
        }
    }
}

const NO_FRAME: Malformed = Malformed::Syntax("a datagram with memcached's frame header");
const OTHER_LENGTH: Malformed = Malformed::Syntax("a reply of the length that its head says");
/// Datagrams of a reply: a megabyte in those of 1,400 bytes is 750.
const COUNT_MAX: u16 = 1024;
/// Replies in part: a socket has as many outstanding as its load thread gives it, most of them
/// whole.
const PARTIALS_MAX: usize = 64;
