//! Redis's protocol, versions 2 and 3: what frames its replies.
//!
//! A reply is a value. Its first byte says of what type, a line says its length or itself, and
//! aggregates hold further values.
//!
//! | type | framed by | as a reply |
//! |---|---|---|
//! | `+` `:` `,` `#` `(` | the line | ok |
//! | `-` | the line | an error |
//! | `_` | the line | a miss |
//! | `$` `=` `!` | a length, bytes, CR LF; `$-1` is null | ok, ok, an error |
//! | `$?` | chunks `;N`, up to `;0` | ok |
//! | `*` `~` `%` | a count of values, or of pairs; `*-1` is null; `?` for as many as come before `.` | ok |
//! | `>` | a count | none: passed over |
//! | `\|` | a count of pairs, in front of the value that they describe | that value |
//!
//! Invariant: a claimed count costs nothing; depth is bounded by a stack of fixed size.

use super::super::codec::{Expected, Framer};
use super::super::lines::{Line, Lines, decimal, skip};
use super::super::reply::{BODY_BYTES_MAX, ErrorCode, ErrorKind, Malformed, Outcome, Reply};

/// The replies of one connection.
#[derive(Debug)]
pub(super) struct Replies {
    lines: Lines,
    at: At,
    /// The aggregates that are open, outermost first.
    open: [Aggregate; DEPTH_MAX],
    depth: usize,
    /// Outcome of the reply, from its first value on.
    outcome: Option<Outcome>,
    /// The first word of the last error.
    code: ErrorCode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// A value's first line.
    Head,
    /// Within the bytes of a string, of which so many are left.
    Bytes { left: u64, then: Then },
    /// The end of a string's line.
    BytesEnd(Then),
    /// The length of a streamed string's next chunk.
    Chunk,
}

/// Continuation behind a string's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The value ends.
    End,
    /// Another chunk follows.
    Chunk,
}

/// An open aggregate.
#[derive(Clone, Copy, Debug)]
struct Aggregate {
    /// Values to come; none where the end is streamed.
    left: Option<u64>,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It is a value.
    Value,
    /// It describes the next value.
    Attribute,
    /// It is no reply.
    Push,
}

impl Framer for Replies {
    #[inline]
    fn take(&mut self, bytes: &mut &[u8], _: Expected) -> Result<Option<Reply>, Malformed> {
        Ok(self.find(bytes, Due::Reply)?.map(Reply::keep))
    }

    /// Push messages come when they will.
    fn take_unasked(&mut self, bytes: &mut &[u8]) -> Result<(), Malformed> {
        self.find(bytes, Due::Nothing).map(drop)
    }

    fn error_code(&self) -> ErrorCode {
        self.code
    }

    fn is_within(&self) -> bool {
        self.at != At::Head || self.depth > 0 || self.lines.is_within()
    }
}

impl Replies {
    pub(super) fn new() -> Self {
        let open = [Aggregate { left: Some(0), role: Role::Value }; DEPTH_MAX];
        Self {
            lines: Lines::new(),
            at: At::Head,
            open,
            depth: 0,
            outcome: None,
            code: ErrorCode::default(),
        }
    }

    /// Finds the end of a reply. Where none is due, only what is no reply may come.
    #[inline]
    fn find(&mut self, bytes: &mut &[u8], due: Due) -> Result<Option<Outcome>, Malformed> {
        loop {
            if let At::Bytes { left, then } = &mut self.at {
                let then = *then;
                if !skip(bytes, left) {
                    return Ok(None);
                }
                self.at = At::BytesEnd(then);
            }
            let Self { lines, at, code, .. } = self;
            let Some(line) = lines.take(bytes, REPLY_LINE_BYTES_MAX)? else {
                return Ok(None);
            };
            if !line.has_return {
                return Err(NOT_RESP);
            }
            let ended = match *at {
                At::Head => {
                    if let Some(words) = line.text.strip_prefix(b"-") {
                        *code = ErrorCode::of(words);
                    }
                    let read = Read::of(line)?;
                    if due == Due::Nothing
                        && self.depth == 0
                        && !matches!(read, Read::Open(_, Role::Push | Role::Attribute))
                    {
                        return Err(Malformed::Unsolicited);
                    }
                    self.enter(read)?
                }
                At::BytesEnd(then) if line.text.is_empty() => {
                    *at = if then == Then::Chunk { At::Chunk } else { At::Head };
                    then == Then::End
                }
                At::Chunk => {
                    let len = line.text.strip_prefix(b";").ok_or(NOT_RESP).and_then(body_len)?;
                    *at = if len == 0 {
                        At::Head
                    } else {
                        At::Bytes { left: len, then: Then::Chunk }
                    };
                    len == 0
                }
                _ => return Err(NOT_RESP),
            };
            if ended && self.leave() {
                return Ok(self.outcome.take());
            }
        }
    }

    /// Begins what a first line begins; whether a value has ended with it.
    #[inline]
    fn enter(&mut self, read: Read) -> Result<bool, Malformed> {
        if self.outcome.is_none() {
            // What is no reply, or describes one, says nothing.
            self.outcome = match read {
                Read::Whole(outcome) | Read::String(_, outcome) if self.is_reply() => Some(outcome),
                Read::Streamed | Read::Open(_, Role::Value) if self.is_reply() => Some(Outcome::Ok),
                _ => None,
            };
        }
        match read {
            Read::Whole(_) => return Ok(true),
            Read::String(len, _) => self.at = At::Bytes { left: len, then: Then::End },
            Read::Streamed => self.at = At::Chunk,
            Read::Open(left, role) => return self.open(Aggregate { left, role }),
            Read::Close => return self.close(),
        }
        Ok(false)
    }

    /// True if what stands here belongs to the reply, and not to what is passed over.
    fn is_reply(&self) -> bool {
        self.open[..self.depth].iter().all(|aggregate| aggregate.role == Role::Value)
    }

    fn open(&mut self, aggregate: Aggregate) -> Result<bool, Malformed> {
        if aggregate.role == Role::Push && self.depth > 0 {
            return Err(Malformed::Syntax("a push message between replies"));
        }
        if aggregate.left == Some(0) {
            // Without anything in it, one that is no value has no effect at all.
            return Ok(aggregate.role == Role::Value);
        }
        let place =
            self.open.get_mut(self.depth).ok_or(Malformed::TooLong("the depth of values"))?;
        *place = aggregate;
        self.depth += 1;
        Ok(false)
    }

    /// Ends the innermost aggregate, whose end is streamed.
    fn close(&mut self) -> Result<bool, Malformed> {
        match self.open[..self.depth].last() {
            Some(Aggregate { left: None, role }) => {
                self.depth -= 1;
                Ok(*role == Role::Value)
            }
            _ => Err(NOT_RESP),
        }
    }

    /// Counts a value that has ended, and what ends with it; whether the reply does.
    #[inline]
    fn leave(&mut self) -> bool {
        while let Some(innermost) = self.open[..self.depth].last_mut() {
            let Some(left) = &mut innermost.left else {
                return false;
            };
            *left -= 1;
            if *left > 0 {
                return false;
            }
            self.depth -= 1;
            if innermost.role != Role::Value {
                return false;
            }
        }
        true
    }
}

/// Reply that is due, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Reply,
    Nothing,
}

/// Element that a first line begins.
#[derive(Clone, Copy, Debug)]
enum Read {
    /// A value that is this line.
    Whole(Outcome),
    /// So many bytes, and what they are as a reply.
    String(u64, Outcome),
    /// Chunks.
    Streamed,
    /// An aggregate of so many values, or of as many as come.
    Open(Option<u64>, Role),
    /// The end of what is streamed.
    Close,
}

impl Read {
    #[inline]
    fn of(line: Line<'_>) -> Result<Self, Malformed> {
        let (&kind, rest) = line.text.split_first().ok_or(NOT_RESP)?;
        Ok(match kind {
            b'+' | b'(' => Read::Whole(Outcome::Ok),
            b':' if integer(rest) => Read::Whole(Outcome::Ok),
            b',' if !rest.is_empty() => Read::Whole(Outcome::Ok),
            b'#' if matches!(rest, b"t" | b"f") => Read::Whole(Outcome::Ok),
            b'-' => Read::Whole(Outcome::Error(error_kind(rest))),
            b'_' if rest.is_empty() => Read::Whole(Outcome::Miss),
            b'$' | b'*' if rest == b"-1" => Read::Whole(Outcome::Miss),
            b'$' if rest == b"?" => Read::Streamed,
            b'$' | b'=' => Read::String(body_len(rest)?, Outcome::Ok),
            // What it says stands in its bytes, which are passed over.
            b'!' => Read::String(body_len(rest)?, Outcome::Error(ErrorKind::Refused)),
            b'*' | b'~' | b'%' if rest == b"?" => Read::Open(None, Role::Value),
            b'*' | b'~' => Read::Open(Some(count(rest)?), Role::Value),
            b'%' => Read::Open(Some(2 * count(rest)?), Role::Value),
            b'|' if rest == b"?" => Read::Open(None, Role::Attribute),
            b'|' => Read::Open(Some(2 * count(rest)?), Role::Attribute),
            b'>' if rest == b"?" => Read::Open(None, Role::Push),
            b'>' => Read::Open(Some(count(rest)?), Role::Push),
            b'.' if rest.is_empty() => Read::Close,
            _ => return Err(NOT_RESP),
        })
    }
}

/// Appends the head of a command of so many arguments.
pub(super) fn write_arguments_head(count: usize, out: &mut Vec<u8>) {
    write_head(b'*', count, out);
}

/// Appends the head of an argument of so many bytes.
#[inline]
pub(super) fn write_bulk_head(len: usize, out: &mut Vec<u8>) {
    write_head(b'$', len, out);
}

/// Appends an argument.
pub(super) fn write_bulk(bytes: &[u8], out: &mut Vec<u8>) {
    write_bulk_head(bytes.len(), out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn write_head(kind: u8, count: usize, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn error_kind(text: &[u8]) -> ErrorKind {
    match text.split(|&c| c == b' ').next().unwrap_or_default() {
        b"NOAUTH" | b"NOPERM" | b"WRONGPASS" => ErrorKind::Unauthorised,
        b"LOADING" | b"BUSY" | b"TRYAGAIN" | b"CLUSTERDOWN" | b"MASTERDOWN" | b"READONLY" => {
            ErrorKind::Busy
        }
        b"OOM" | b"MISCONF" | b"NOREPLICAS" => ErrorKind::Failed,
        b"MOVED" | b"ASK" => ErrorKind::Elsewhere,
        _ => ErrorKind::Refused,
    }
}

fn integer(text: &[u8]) -> bool {
    decimal(text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text)).is_some()
}

fn body_len(text: &[u8]) -> Result<u64, Malformed> {
    let len = decimal(text).ok_or(NOT_RESP)?;
    if len > BODY_BYTES_MAX { Err(Malformed::TooLong("bodies")) } else { Ok(len) }
}

fn count(text: &[u8]) -> Result<u64, Malformed> {
    let count = decimal(text).ok_or(NOT_RESP)?;
    if count > COUNT_MAX { Err(Malformed::TooLong("the count of values")) } else { Ok(count) }
}

const NOT_RESP: Malformed = Malformed::Syntax("a value of Redis's protocol");
/// Largest count of values that Redis itself accepts in a request; no memory is taken for it.
const COUNT_MAX: u64 = 1 << 31;
/// Deeper than any command of Redis replies.
const DEPTH_MAX: usize = 16;
/// A simple string or a big number has no length in front.
const REPLY_LINE_BYTES_MAX: u64 = 1 << 16;
