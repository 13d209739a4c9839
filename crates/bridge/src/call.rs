//! Calls that clients ask for, and how they end.

use std::fmt;

/// A call that a client's bytes ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Names it to [`Front::answer`](crate::Front::answer); no two of a connection have the same.
    pub ticket: u64,
    /// The message.
    pub message: Vec<u8>,
    /// Destination of the call.
    pub route: Route,
    /// The group of servers that has its keys, of [`Groups`](crate::resp::keys::Groups); 0 for
    /// HTTP.
    pub group: usize,
    /// It may run more than once.
    pub is_idempotent: bool,
}

/// Destination of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To any server.
    Any,
    /// To any, but always to the same.
    Same,
    /// To the one that takes writes, where there is one.
    Primary,
}

/// Reason why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// It has not run.
    Refused(String),
    /// It may have run.
    Uncertain(String),
    /// No answer has come in time; it may have run.
    TimedOut,
    /// It asks for what cannot be called, or is malformed.
    Rejected(String),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(text) => write!(f, "it has not run: {text}"),
            Self::Uncertain(text) => write!(f, "it may have run: {text}"),
            Self::TimedOut => write!(f, "it may have run: no answer in time"),
            Self::Rejected(text) => f.write_str(text),
        }
    }
}

/// Limits of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request, and of its answer. Default 8 MiB and what goes around a value of that
    /// length.
    pub message_len_max: usize,
    /// Requests of a connection that are read and not answered. Beyond, it is not read from.
    /// Default 1024.
    pub pipeline_max: usize,
    /// Calls of a connection under way. Default 128.
    pub calls_max: usize,
    /// Bytes of answers that wait for others of their connection, beyond which none of its requests
    /// is called. Default 16 MiB.
    pub answers_len_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_len_max: MESSAGE_LEN_MAX,
            pipeline_max: 1024,
            calls_max: 128,
            answers_len_max: 16 << 20,
        }
    }
}

/// A value of 8 MiB, and what goes around it.
pub const MESSAGE_LEN_MAX: usize = (8 << 20) + (64 << 10);
