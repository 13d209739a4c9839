//! memcached's ascii protocol: lines, and a block of data behind `VALUE`.
//!
//! | due | replies |
//! |---|---|
//! | get | `VALUE key flags bytes` with data and `END`, or `END` alone: a miss |
//! | set | `STORED`, or `NOT_STORED` |
//! | either | `ERROR`, `CLIENT_ERROR reason`, `SERVER_ERROR reason` |

use super::super::codec::{Expected, Framer};
use super::super::lines::{Line, Lines, decimal, skip};
use super::super::reply::{BODY_BYTES_MAX, ErrorCode, ErrorKind, Malformed, Outcome, Reply};
use super::GET;

/// The replies of one connection.
#[derive(Debug)]
pub(super) struct Replies {
    lines: Lines,
    at: At,
    /// The first word of the last reply that was one line.
    code: ErrorCode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Its first line.
    First,
    /// Within the data, of which so much is left.
    Data(u64),
    /// The end of the data's line.
    DataEnd,
    /// `END` behind the data.
    End,
}

/// Meaning of a reply's first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// The reply is this line.
    Whole(Outcome),
    /// So many bytes of data follow.
    Value(u64),
}

impl Replies {
    pub(super) fn new() -> Self {
        Self { lines: Lines::new(), at: At::First, code: ErrorCode::default() }
    }
}

impl Framer for Replies {
    #[inline]
    fn take(&mut self, bytes: &mut &[u8], expected: Expected) -> Result<Option<Reply>, Malformed> {
        loop {
            if let At::Data(left) = &mut self.at {
                if !skip(bytes, left) {
                    return Ok(None);
                }
                self.at = At::DataEnd;
            }
            let Some(line) = self.lines.take(bytes, REPLY_LINE_BYTES_MAX)? else {
                return Ok(None);
            };
            if !line.has_return {
                return Err(Malformed::Syntax("a line of memcached's, which ends in CR LF"));
            }
            self.at = match self.at {
                At::First => match first(line, expected)? {
                    First::Whole(outcome) => {
                        if matches!(outcome, Outcome::Error(_)) {
                            self.code = ErrorCode::of(line.text);
                        }
                        return Ok(Some(Reply::keep(outcome)));
                    }
                    First::Value(len) => At::Data(len),
                },
                At::DataEnd if line.text.is_empty() => At::End,
                At::End if line.text == b"END" => {
                    self.at = At::First;
                    return Ok(Some(Reply::keep(Outcome::Ok)));
                }
                _ => return Err(Malformed::Syntax("the end of memcached's data")),
            };
        }
    }

    fn error_code(&self) -> ErrorCode {
        self.code
    }

    fn is_within(&self) -> bool {
        self.at != At::First || self.lines.is_within()
    }
}

/// Meaning of the datagram at the head of a reply, and the length of the whole reply.
pub(super) fn read_head(mut bytes: &[u8], expected: Expected) -> Result<(Outcome, u64), Malformed> {
    let all = bytes.len();
    let mut lines = Lines::new();
    let Some(line) = lines.take(&mut bytes, REPLY_LINE_BYTES_MAX)? else {
        return Err(Malformed::Syntax("a datagram that begins with a line"));
    };
    let first = first(line, expected)?;
    let line_len = (all - bytes.len()) as u64;
    Ok(match first {
        First::Whole(outcome) => (outcome, line_len),
        First::Value(len) => (Outcome::Ok, line_len + len + b"\r\nEND\r\n".len() as u64),
    })
}

fn first(line: Line<'_>, expected: Expected) -> Result<First, Malformed> {
    let word_end = memchr::memchr(b' ', line.text).unwrap_or(line.text.len());
    let (word, rest) = line.text.split_at(word_end);
    let outcome = match (word, expected.due == GET) {
        (b"VALUE", true) => return value_len(rest).map(First::Value),
        (b"END", true) => Outcome::Miss,
        (b"STORED", false) => Outcome::Ok,
        (b"NOT_STORED" | b"EXISTS" | b"NOT_FOUND", false) => Outcome::Error(ErrorKind::NotStored),
        (b"ERROR", _) => Outcome::Error(ErrorKind::Refused),
        (b"CLIENT_ERROR", _) if rest == b" unauthenticated" => {
            Outcome::Error(ErrorKind::Unauthorised)
        }
        (b"CLIENT_ERROR", _) => Outcome::Error(ErrorKind::Refused),
        (b"SERVER_ERROR", _) => Outcome::Error(ErrorKind::Failed),
        (b"VALUE" | b"END" | b"STORED" | b"NOT_STORED" | b"EXISTS" | b"NOT_FOUND", _) => {
            return Err(Malformed::Mismatched("it answers another command"));
        }
        _ => return Err(Malformed::Syntax("a reply of memcached's")),
    };
    Ok(First::Whole(outcome))
}

/// The length in ` key flags bytes`, behind which a `cas` may stand.
fn value_len(rest: &[u8]) -> Result<u64, Malformed> {
    let len = rest
        .split(|&c| c == b' ')
        .nth(3)
        .and_then(decimal)
        .ok_or(Malformed::Syntax("memcached's VALUE key flags bytes"))?;
    if len > BODY_BYTES_MAX { Err(Malformed::TooLong("bodies")) } else { Ok(len) }
}

/// An error may carry a reason.
const REPLY_LINE_BYTES_MAX: u64 = 4096;
