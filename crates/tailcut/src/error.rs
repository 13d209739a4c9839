//! The one error type of the library.

use std::io;

use tailcut_proto::rpc::{AnswerError, CallError, Failure};

/// Why an operation did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A socket could not be opened or has become useless.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A name has no address.
    #[error("`{0}` has no address")]
    NoAddress(String),
    /// The call was not made: nothing was sent.
    #[error("the call was not made: {0}")]
    Call(#[from] CallError),
    /// The call was made and ended without a reply.
    #[error("the call failed: {0}")]
    Failed(#[from] Failure),
    /// The answer was not sent.
    #[error("the answer was not sent: {0}")]
    Answer(#[from] AnswerError),
    /// The client's thread has ended.
    #[error("the client has been shut down")]
    Closed,
}

impl Error {
    /// Whether the deadline passed; the request may or may not have run.
    pub fn is_deadline(&self) -> bool {
        matches!(self, Self::Failed(Failure::Deadline))
    }

    /// Whether a server or a router refused the request. It has then not run, except where the
    /// reason is [`Uncertain`](tailcut_proto::rpc::DropReason::Uncertain), or where the handler
    /// itself refused it or gave too long a reply.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Failed(Failure::Refused(_)))
    }
}
