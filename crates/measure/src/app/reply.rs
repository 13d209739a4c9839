//! Replies: their outcomes, the errors of servers, and how bytes fail to be one.

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

/// The longest body that a reply may claim; bodies are passed over and never held.
pub(super) const BODY_BYTES_MAX: u64 = 1 << 30;
