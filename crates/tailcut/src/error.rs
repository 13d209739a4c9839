//! The one error type of the library.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tailcut_proto::rpc::{AnswerError, CallError, Failure};

/// Reason why an operation failed.
///
/// Its text names the address and, where there is something to do about it, says what; the cause is
/// in its source too.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A socket, or a thread for it, could not be had.
    #[error("{address}: {source}{}", advice(source))]
    Open {
        /// The address as it was given.
        address: String,
        /// Error of the system.
        source: io::Error,
    },
    /// A socket has become useless; open another one.
    #[error("the socket has become useless: {0}; open another one")]
    Io(#[from] io::Error),
    /// A name has no address.
    #[error("`{0}` has no address; is it spelled right?")]
    NoAddress(String),
    /// The call was not made: nothing was sent.
    #[error("the call to {target} was not made: {source}")]
    Call {
        /// Target of the call.
        target: SocketAddr,
        /// Reason why it was not made.
        source: CallError,
    },
    /// The call was made and ended without a reply.
    #[error("the call to {target} failed: {source}{}", by(*target, *server))]
    Failed {
        /// Target of the call.
        target: SocketAddr,
        /// Server that refused it, or is known to have had it: one behind the router at `target`,
        /// or whoever is there.
        server: Option<SocketAddr>,
        /// Reason why it failed.
        source: Failure,
        /// Time for which to leave the target alone, where the call was refused for overload. A
        /// client does so by itself: it delays or refuses the calls that come too soon.
        retry_after: Option<Duration>,
    },
    /// The application at the other end refused the request, in its own words.
    #[error("the call to {target} was rejected with code {code}: {text}{}", by(*target, *server))]
    Rejected {
        /// Target of the call.
        target: SocketAddr,
        /// Server whose application it was, also behind a router at `target`.
        server: Option<SocketAddr>,
        /// The application's number for why.
        code: u32,
        /// The application's text.
        text: String,
    },
    /// The answer was not sent.
    #[error("the answer was not sent: {0}")]
    Answer(#[from] AnswerError),
    /// The client's thread has ended, as its socket has become useless.
    #[error("the client of {target} has ended; connect another one")]
    Closed {
        /// Target of its calls.
        target: SocketAddr,
    },
}

/// Failure of a call, as its client's half tells it.
#[derive(Debug)]
pub(crate) struct Ending {
    pub failure: Failure,
    /// Server that refused it, or is known to have had it.
    pub server: Option<SocketAddr>,
    /// Text of the application; empty otherwise.
    pub text: Vec<u8>,
    /// For how long to stay away; 0 where nothing says so.
    pub retry_after_ns: u64,
}

impl Error {
    /// An error of opening something at an address.
    pub(crate) fn open(address: impl ToString, source: io::Error) -> Self {
        Self::Open { address: address.to_string(), source }
    }

    /// Error of a failed call to `target`, with the text of the application.
    pub(crate) fn failed(target: SocketAddr, ending: Ending) -> Self {
        let Ending { failure, server, text, retry_after_ns } = ending;
        match failure {
            Failure::Rejected { code } => {
                let text = String::from_utf8_lossy(&text).into_owned();
                Self::Rejected { target, server, code, text }
            }
            source => {
                let retry_after = Duration::from_nanos(retry_after_ns);
                let retry_after = Some(retry_after).filter(|time| !time.is_zero());
                Self::Failed { target, server, source, retry_after }
            }
        }
    }

    /// Time for which to leave the target alone, where it refused the call for overload.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Failed { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The server that refused the call, or is known to have had it when it failed: the server
    /// itself, also where the call went to a router.
    pub fn server(&self) -> Option<SocketAddr> {
        match self {
            Self::Failed { server, .. } | Self::Rejected { server, .. } => *server,
            _ => None,
        }
    }

    /// True if the deadline passed; the request may or may not have run.
    pub fn is_deadline(&self) -> bool {
        matches!(self, Self::Failed { source: Failure::Deadline, .. })
    }

    /// True if nobody serves at the address.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Failed { source: Failure::Unreachable, .. })
    }

    /// True if a server or a router refused the request. It has then not run, except where the
    /// reason is [`Uncertain`](tailcut_proto::rpc::DropReason::Uncertain),
    /// [`Panicked`](tailcut_proto::rpc::DropReason::Panicked) or
    /// [`Unanswered`](tailcut_proto::rpc::DropReason::Unanswered), or where the handler itself
    /// refused it or gave too long a reply. A call that may run twice may have done so before
    /// [`NoKey`](tailcut_proto::rpc::DropReason::NoKey).
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Failed { source: Failure::Refused(_), .. } | Self::Rejected { .. })
    }
}

/// Names the server of a call, where that is not where the call went.
fn by(target: SocketAddr, server: Option<SocketAddr>) -> String {
    let other = server.filter(|&server| server != target);
    other.map(|server| format!(" (server {server})")).unwrap_or_default()
}

/// Advice about an address that cannot be opened.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another server has it, port 0 takes a free one",
        io::ErrorKind::AddrNotAvailable => "; it is not one of this host's",
        io::ErrorKind::PermissionDenied => {
            "; Homa directly over IP needs the capability CAP_NET_RAW, ports below 1024 need \
             CAP_NET_BIND_SERVICE"
        }
        io::ErrorKind::InvalidInput => "; write HOST:PORT",
        _ => "",
    }
}
