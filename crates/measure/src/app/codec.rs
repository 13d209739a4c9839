//! The seam of applications: a [`Codec`] for each, and the parts of which its exchanges are made.
//!
//! Invariant: any [`Expected`] is one that any framer can take: what `due` means is the codec's
//! own, and no number is out of its range.

use std::fmt;
use std::sync::Arc;

use super::error::AppError;
use super::reply::{Answer, ErrorCode, Malformed, Outcome, Reply};
use crate::distribution::Distribution;
use crate::generator::Generator;
use crate::quantity::Unit;

/// A measured application, as its text form says it. It prints as the part of that behind the name,
/// in full.
///
/// docs/adding-a-codec.md shows how one is added.
pub trait Codec: fmt::Debug + fmt::Display + Send + Sync {
    /// The writer of one load thread's requests; `rng` draws what is fixed for the thread.
    ///
    /// # Errors
    ///
    /// Where the carrier cannot carry any request as long as asked for.
    fn requests(&self, setting: Setting<'_>, rng: &mut Generator) -> Result<Write, AppError>;

    /// The framer of one connection's replies, where they come in the order of requests.
    fn replies(&self) -> Box<dyn Framer> {
        Box::new(NoFramer)
    }

    /// Session of a connection that has a life of its own, such as HTTP/2's; none where
    /// [`Codec::replies`] frames all that comes. [`Codec::requests`] then writes what
    /// [`Session::write`] reads, for streams alone.
    fn session(&self) -> Option<Box<dyn Session>> {
        None
    }

    /// The name by which TLS agrees on the protocol (ALPN); none where servers need none.
    fn alpn(&self) -> Option<&'static str> {
        None
    }

    /// Question to a server in clear before TLS begins; none where TLS comes first of all.
    fn tls_upgrade(&self) -> Option<TlsUpgrade> {
        None
    }

    /// The framer of one socket's datagrams; none for an application that needs a stream.
    fn datagrams(&self) -> Option<Box<dyn DatagramFramer>> {
        None
    }

    /// The requests that fill a store before a run; none where there is no store, or no way to fill
    /// it is known.
    ///
    /// # Errors
    ///
    /// As [`Codec::requests`].
    fn preload(&self, _carrier: Carrier) -> Result<Option<Preload>, AppError> {
        Ok(None)
    }

    /// Appends what a new connection sends first, and returns the reply that is due for it; none
    /// where it sends nothing.
    ///
    /// An error as its reply means that the server does not speak this version, or does not let the
    /// login in.
    fn write_greeting(&self, _login: Option<Login<'_>>, _out: &mut Vec<u8>) -> Option<Expected> {
        None
    }

    /// Requests outstanding on a connection at most, where servers are not to be trusted with as
    /// many as the transport takes.
    fn pipeline_max(&self) -> Option<u32> {
        None
    }

    /// Advice to who is told `said` when a server refuses the greeting.
    fn login_advice(&self, _said: &str) -> &'static str {
        "Correct the user or the password."
    }

    /// Advice to who is asked for credentials by the reply to a request.
    fn credentials_advice(&self) -> &'static str {
        "Send credentials, as the server wants them."
    }

    /// Service times of the requests, ns, where they alone are what the text form says.
    fn service_times(&self) -> Option<&Distribution> {
        None
    }
}

/// A source of the samples of `file:PATH`, in the base unit of what is drawn; or the reason why it
/// has none.
pub type Loader<'a> = dyn FnMut(&str, Unit) -> Result<Vec<f64>, String> + 'a;

/// A writer of requests: appends the request that a tag names, and returns the reply that is due.
/// It allocates nothing once the buffer has grown.
pub type Write = Box<dyn FnMut(u64, &mut Generator, &mut Vec<u8>) -> Expected + Send>;

/// The requests that fill a store before a run: every key, once.
#[derive(Clone)]
pub struct Preload {
    /// Number of requests: one for each key.
    pub key_count: u64,
    /// Appends the request that sets the key of an index below that. Several connections share the
    /// work.
    pub write: WriteKey,
}

/// A writer of the request that sets the key of an index; it returns the reply that is due.
pub type WriteKey = Arc<dyn Fn(u64, &mut Vec<u8>) -> Expected + Send + Sync>;

/// A framer of the replies on one connection, whatever fragments they come in.
pub trait Framer: fmt::Debug + Send {
    /// Takes bytes up to the end of the reply that is due; none where all are taken and it goes on.
    ///
    /// # Errors
    ///
    /// Where they are no such reply.
    fn take(&mut self, bytes: &mut &[u8], expected: Expected) -> Result<Option<Reply>, Malformed>;

    /// Takes bytes that come while no reply is due.
    ///
    /// # Errors
    ///
    /// Where the protocol has no such messages.
    fn take_unasked(&mut self, bytes: &mut &[u8]) -> Result<(), Malformed> {
        if bytes.is_empty() { Ok(()) } else { Err(Malformed::Unsolicited) }
    }

    /// True if a reply has begun.
    fn is_within(&self) -> bool;

    /// The protocol's own name of the error that the last reply was; none where it has none.
    fn error_code(&self) -> ErrorCode {
        ErrorCode::default()
    }

    /// The reply that the end of the connection ends, if it does.
    fn finish(&mut self) -> Option<Reply> {
        None
    }
}

/// One connection that is more than requests and replies in their order: a handshake of several
/// steps, streams that are answered in any order, windows.
///
/// Requests are numbered from 0 as they are written. It takes no memory in proportion to what the
/// server claims, and allocates nothing when warm.
pub trait Session: fmt::Debug + Send {
    /// Appends what a new connection begins with.
    fn begin(&mut self, login: Option<Login<'_>>, out: &mut Vec<u8>);

    /// True if the handshake is over.
    fn is_ready(&self) -> bool;

    /// True if the server takes another request now.
    fn has_room(&self) -> bool;

    /// True if the server takes no more requests on this connection, and owes nothing on it: close
    /// it.
    fn is_spent(&self) -> bool {
        false
    }

    /// Appends a request, or as much of it as the server has room for; the rest follows when it
    /// has.
    fn write(&mut self, request: &[u8], out: &mut Vec<u8>);

    /// Takes bytes up to the end of a reply; appends what the server is owed for them. `None` says
    /// that all bytes are taken.
    ///
    /// # Errors
    ///
    /// After which the connection is of no more use.
    fn take(&mut self, bytes: &mut &[u8], out: &mut Vec<u8>) -> Result<Option<Answer>, Malformed>;

    /// Gives up the request of a number. Whether nothing more is to come for it; otherwise its
    /// reply is.
    fn cancel(&mut self, _number: u64, _out: &mut Vec<u8>) -> bool {
        false
    }

    /// The protocol's own name of the error that the last reply was.
    fn error_code(&self) -> ErrorCode {
        ErrorCode::default()
    }

    /// Reason why the server lets nobody in, in its words; none where it does, or has not said yet.
    fn refusal(&self) -> Option<String> {
        None
    }
}

/// Stand-in for the framer of an application that has sessions.
#[derive(Debug)]
struct NoFramer;

impl Framer for NoFramer {
    fn take(&mut self, _: &mut &[u8], _: Expected) -> Result<Option<Reply>, Malformed> {
        Err(Malformed::Mismatched("it is spoken over connections of its own"))
    }

    fn is_within(&self) -> bool {
        false
    }
}

/// A framer of replies that come in datagrams, which may be lost, late, twice and out of order.
pub trait DatagramFramer: fmt::Debug + Send {
    /// The request that a datagram answers.
    ///
    /// # Errors
    ///
    /// Where it names none.
    fn key(&self, datagram: &[u8]) -> Result<Key, Malformed>;

    /// Takes a datagram of the reply that is due; none where others are to come.
    ///
    /// # Errors
    ///
    /// Where it is none.
    fn take(&mut self, datagram: &[u8], expected: Expected) -> Result<Option<Outcome>, Malformed>;

    /// Releases what is held for the request of this tag.
    fn release(&mut self, _tag: u64) {}

    /// Replies that were given up because too many had come in part.
    fn evicted(&self) -> u64 {
        0
    }
}

/// The request that a datagram answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The one with this [`Expected::tag`].
    Tag(u64),
    /// The datagram has no room for a name: take it for the oldest, and keep one outstanding if
    /// that matters.
    Oldest,
}

/// The reply that is due for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The request's name over datagrams (see [`Key::Tag`]). On a stream it names nothing that the
    /// driver must look at.
    pub tag: u64,
    /// Framing of the reply, in the codec's own terms: its bytes, or which command it answers.
    pub due: u32,
}

/// The carrier of requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A byte stream, on which replies come in the order of requests: TCP, TLS.
    Stream,
    /// Datagrams that may be lost, late or twice, so that a reply names its request: UDP.
    Datagram,
    /// Messages that the transport matches itself: R2P2.
    Message,
}

/// The circumstances of a run, besides its application, on which requests depend.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// Carrier of the requests.
    pub carrier: Carrier,
    /// The target's name and port, for HTTP.
    pub authority: &'a str,
    /// True if the stream is encrypted, which HTTP/2's requests say.
    pub is_tls: bool,
}

/// A question in clear whether a server speaks TLS, of protocols whose port TLS came to later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsUpgrade {
    /// Bytes that are sent first of all.
    pub request: &'static [u8],
    /// The byte by which the server agrees. The handshake follows.
    pub agreed: u8,
}

/// Credentials of a connection. They are no part of an application's text form, which goes into
/// results.
#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    /// The default user, if there is none.
    pub user: Option<&'a str>,
    /// In clear; use it on a connection that nobody else reads.
    pub password: &'a str,
}

/// Reads the distribution of `option`.
pub(super) fn distribution(
    option: &'static str,
    text: &str,
    unit: Unit,
    load: &mut Loader<'_>,
) -> Result<Distribution, AppError> {
    Distribution::parse_with(text, unit, |path| load(path, unit))
        .map_err(|source| AppError::Distribution { option, source })
}
