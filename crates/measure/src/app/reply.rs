//! Replies: their outcomes, the errors of servers, and how bytes fail to be one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use strum::{AsRefStr, EnumCount, IntoStaticStr, VariantArray};
use thiserror::Error;

/// A whole reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its meaning.
    pub outcome: Outcome,
    /// State of the connection behind it.
    pub after: After,
}

impl Reply {
    /// A reply after which more may come.
    pub fn keep(outcome: Outcome) -> Self {
        Self { outcome, after: After::Keep }
    }
}

/// A reply, and the request that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Number of the request on its connection, from 0.
    pub number: u64,
    /// Reply to the request.
    pub reply: Reply,
}

/// Meaning of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The reply that was asked for.
    Ok,
    /// There is nothing under that key. It is a reply like any other.
    Miss,
    /// The server answered that it did not do what was asked.
    Error(ErrorKind),
}

/// Kind of a server's error, for counting. As text it is its stable name in results.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    AsRefStr,
    EnumCount,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum ErrorKind {
    /// It finds fault with the request: 4xx, `CLIENT_ERROR`, `ERR`.
    Refused,
    /// It asks for credentials, or for others: 401, `NOAUTH`.
    Unauthorised,
    /// It cannot now: 429, 503, `LOADING`.
    Busy,
    /// It failed: 5xx, `SERVER_ERROR`, out of memory.
    Failed,
    /// Another server has it: `MOVED`.
    Elsewhere,
    /// A condition of the store did not hold: `NOT_STORED`.
    NotStored,
}

/// An error's own name in its protocol, such as `404` or `WRONGTYPE`: 16 bytes at most, and none
/// where the protocol has no name for it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ErrorCode([u8; 16]);

impl ErrorCode {
    /// The first word of a text, as far as it is of printable ASCII.
    pub fn of(text: &[u8]) -> Self {
        let mut code = [0; 16];
        let word = text.iter().take_while(|byte| byte.is_ascii_graphic());
        code.iter_mut().zip(word).for_each(|(place, &byte)| *place = byte);
        Self(code)
    }

    /// As text, which may come from another host and is of printable ASCII all the same.
    pub fn text(&self) -> String {
        let bytes = self.0.iter().take_while(|byte| byte.is_ascii_graphic());
        bytes.map(|&byte| char::from(byte)).collect()
    }
}

/// Errors of a server, counted by what they say. Of hostile servers it keeps [`ERRORS_MAX`] kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounts(BTreeMap<(ErrorKind, ErrorCode), u64>);

impl ErrorCounts {
    /// Counts errors that say the same.
    pub fn add(&mut self, kind: ErrorKind, code: ErrorCode, count: u64) {
        let is_known = self.0.contains_key(&(kind, code));
        let code = if is_known || self.0.len() < ERRORS_MAX { code } else { ErrorCode::default() };
        *self.0.entry((kind, code)).or_default() += count;
    }

    /// Adds what another part counted.
    pub fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(&(kind, code), &count)| self.add(kind, code, count));
    }

    /// Errors as people name them, the most frequent first.
    pub fn named(&self) -> Vec<(String, u64)> {
        let mut named: Vec<_> =
            self.0.iter().map(|(&(kind, code), &count)| (name(kind, code), count)).collect();
        named.sort_by(|(one, few), (other, many)| many.cmp(few).then(one.cmp(other)));
        named
    }
}

/// An error as people name it: `404 Not Found`, `12 UNIMPLEMENTED`, `WRONGTYPE`, or its kind where
/// there is no code.
pub fn name(kind: ErrorKind, code: ErrorCode) -> String {
    let text = code.text();
    if let Some(number) = text.strip_prefix("grpc-") {
        let named = number.parse().ok().and_then(|number: usize| GRPC_STATUSES.get(number));
        return named.map_or_else(|| text.clone(), |meaning| format!("{number} {meaning}"));
    }
    let Ok(status) = text.parse::<u16>() else {
        return if text.is_empty() { kind.as_ref().to_owned() } else { text };
    };
    let meaning = STATUSES.iter().find(|(known, _)| *known == status).map(|(_, meaning)| meaning);
    meaning.map_or(text, |meaning| format!("{status} {meaning}"))
}

/// State of a connection after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// More replies may come.
    Keep,
    /// The server closes it: what else is outstanding on it is lost.
    Close,
}

/// Replies counted by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Replies that were [`Outcome::Ok`].
    pub ok: u64,
    /// Replies that were [`Outcome::Miss`].
    pub misses: u64,
    /// Replies that were [`Outcome::Error`], in the order of their kinds.
    pub errors: [u64; ErrorKind::COUNT],
}

impl Tally {
    /// Counts a reply.
    pub fn record(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Ok => self.ok += 1,
            Outcome::Miss => self.misses += 1,
            Outcome::Error(kind) => self.errors[kind as usize] += 1,
        }
    }

    /// Adds what another thread or agent counted.
    pub fn merge(&mut self, other: &Tally) {
        self.ok += other.ok;
        self.misses += other.misses;
        for (mine, theirs) in self.errors.iter_mut().zip(other.errors) {
            *mine += theirs;
        }
    }
}

/// Reason why bytes are no reply; the connection that they came on is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Malformed {
    /// They do not follow the protocol.
    #[error("not {0}")]
    Syntax(&'static str),
    /// They follow it, but are the reply to another request.
    #[error("the reply to another request: {0}")]
    Mismatched(&'static str),
    /// They claim to be longer or deeper than the limit.
    #[error("beyond the limit on {0}")]
    TooLong(&'static str),
    /// Nothing was asked.
    #[error("a reply to nothing")]
    Unsolicited,
    /// The connection ended within a reply.
    #[error("the connection ended within a reply")]
    Truncated,
}

/// Errors that are told apart.
pub const ERRORS_MAX: usize = 64;

/// Statuses of HTTP that people meet, in its own words.
const STATUSES: [(u16, &str); 20] = [
    (400, "Bad Request"),
    (401, "Unauthorized"),
    (403, "Forbidden"),
    (404, "Not Found"),
    (405, "Method Not Allowed"),
    (406, "Not Acceptable"),
    (408, "Request Timeout"),
    (409, "Conflict"),
    (410, "Gone"),
    (411, "Length Required"),
    (413, "Content Too Large"),
    (414, "URI Too Long"),
    (415, "Unsupported Media Type"),
    (422, "Unprocessable Content"),
    (429, "Too Many Requests"),
    (500, "Internal Server Error"),
    (501, "Not Implemented"),
    (502, "Bad Gateway"),
    (503, "Service Unavailable"),
    (504, "Gateway Timeout"),
];

/// Statuses of gRPC by their numbers.
const GRPC_STATUSES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The longest body that a reply may claim; bodies are passed over and never held.
pub(super) const BODY_BYTES_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_named_as_its_protocol_does() {
        for (code, expected) in [
            (&b"404"[..], "404 Not Found"),
            (b"418", "418"),
            (b"grpc-12", "12 UNIMPLEMENTED"),
            (b"grpc-99", "grpc-99"),
            (b"WRONGTYPE Operation against a key", "WRONGTYPE"),
            (b"A-WORD-THAT-IS-TOO-LONG", "A-WORD-THAT-IS-T"),
            (b"", "refused"),
            (b"\x1b[2J", "refused"),
        ] {
            assert_eq!(name(ErrorKind::Refused, ErrorCode::of(code)), expected);
        }
    }

    #[test]
    fn a_hostile_server_takes_little_memory() {
        let mut counts = ErrorCounts::default();
        for word in 0..1_000 {
            counts.add(ErrorKind::Refused, ErrorCode::of(format!("E{word}").as_bytes()), 1);
        }
        let named = counts.named();
        assert_eq!(named.iter().map(|(_, count)| count).sum::<u64>(), 1_000);
        assert!(
            named.len() <= ERRORS_MAX + 1 && named[0] == ("refused".to_owned(), 936),
            "{named:?}"
        );
    }
}
