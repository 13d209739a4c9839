//! What a measured application says: its requests, and where its replies begin and end.
//!
//! The bytes of a load are made and judged here; connections, sockets and the clock are the
//! driver's. For each load thread it keeps a [`Requests`]; for each connection a [`Replies`], and
//! the [`Expected`] of what is outstanding on it, in order:
//!
//! 1. on a new connection it sends [`App::write_greeting`], if there is one, and waits for its
//!    reply;
//! 2. [`Requests::write`] appends a request and says what reply is due;
//! 3. [`Replies::take`] is fed whatever arrives, in any fragments, with the oldest [`Expected`],
//!    and finds each reply's end;
//! 4. a [`Malformed`] reply ends the connection, for nobody knows where the next one begins.
//!
//! | application | requests | what frames a reply on a stream | over datagrams |
//! |---|---|---|---|
//! | [`App::Echo`] | so many bytes | their count | an 8-byte tag in front, if there is room |
//! | [`App::Synthetic`] | 8 bytes: service time, ns | 8 bytes | 8 more: a tag |
//! | [`App::Stss`] | 24 bytes: time, sizes of payload and reply | the size asked for | a tag in front of the payload |
//! | [`App::Memcached`] | GET and SET, binary or ascii | its protocol; the opaque word is checked | its frame header |
//! | [`App::Redis`] | GET and SET, or any command | RESP2 and RESP3 | not spoken |
//! | [`App::Http`] | always the same | HTTP/1.1 | not spoken |
//!
//! Invariant: bytes of a peer never panic here and never take memory in proportion to what they
//! claim; how they are cut into fragments changes nothing. Writing and judging do not allocate when
//! warm.

mod datagrams;
mod grammar;
mod http;
mod lines;
mod memcached;
mod options;
mod replies;
mod requests;
mod resp;
pub mod serving;
mod store;
mod template;

use std::fmt;

use thiserror::Error;

pub use self::datagrams::{Datagrams, Key};
pub use self::grammar::{App, AppError, Command, Loader, Redis, Stss};
pub use self::http::Http;
pub use self::memcached::{Dialect, Memcached};
pub use self::replies::{Replies, Step};
pub use self::requests::{Login, Preload, Requests, Setting};
pub use self::resp::Version;
pub use self::store::{KEYS_MAX, Pick, Store};
pub use self::template::Template;

/// What carries requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A byte stream, on which replies come in the order of requests: TCP, TLS.
    Stream,
    /// Datagrams that may be lost, late or twice, so that a reply names its request: UDP.
    Datagram,
    /// Messages that the transport matches itself: R2P2.
    Message,
}

/// What is due for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// What names the request over datagrams (see [`Key::Tag`]). On a stream it names nothing that
    /// the driver must look at.
    pub tag: u64,
    pub(self) shape: Shape,
}

/// What frames the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// So many bytes.
    Bytes(u32),
    MemcachedGet,
    MemcachedSet,
    Resp,
    Http(http::ReplyBody),
}

/// A whole reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What it says.
    pub outcome: Outcome,
    /// What becomes of the connection.
    pub after: After,
}

/// What a reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// What was asked for.
    Ok,
    /// There is nothing under that key. It is a reply like any other.
    Miss,
    /// The server answered that it did not do what was asked.
    Error(ErrorKind),
}

/// Why a server did not do what was asked, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

impl ErrorKind {
    /// All of them, in order.
    pub const ALL: [ErrorKind; 6] = [
        ErrorKind::Refused,
        ErrorKind::Unauthorised,
        ErrorKind::Busy,
        ErrorKind::Failed,
        ErrorKind::Elsewhere,
        ErrorKind::NotStored,
    ];

    /// Its stable name in results.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Refused => "refused",
            ErrorKind::Unauthorised => "unauthorised",
            ErrorKind::Busy => "busy",
            ErrorKind::Failed => "failed",
            ErrorKind::Elsewhere => "elsewhere",
            ErrorKind::NotStored => "not_stored",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What becomes of a connection after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// More replies may come.
    Keep,
    /// The server closes it: what else is outstanding on it is lost.
    Close,
}

/// Replies by what they say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Replies that were [`Outcome::Ok`].
    pub ok: u64,
    /// Replies that were [`Outcome::Miss`].
    pub misses: u64,
    /// Replies that were [`Outcome::Error`], in the order of [`ErrorKind::ALL`].
    pub errors: [u64; ErrorKind::ALL.len()],
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

/// Why bytes are no reply, so that the connection they came on is of no more use.
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
const BODY_BYTES_MAX: u64 = 1 << 30;

/// The longest message that an endpoint takes by default.
const MESSAGE_BYTES_MAX: u64 = 8 << 20;

/// The most that UDP carries over IPv4.
const DATAGRAM_BYTES_MAX: u64 = 65_507;

/// What names a request in a payload.
const TAG_BYTES: usize = 8;

/// What payloads and values are full of.
const FILL: u8 = 0x5a;

#[cfg(test)]
mod tests;
