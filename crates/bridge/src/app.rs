//! The applications, and what a message of each asks of its server.

use std::fmt;
use std::str::FromStr;

use hyper::Method;

use crate::due::{Dialect, Due};
use crate::{http, memcached, resp};

/// A protocol that existing servers speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum App {
    /// Redis, and what speaks its protocol.
    Redis,
    /// memcached, in text and binary.
    Memcached,
    /// HTTP/1.1.
    Http,
}

/// Requirements of a message on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Dialect that the connection must speak.
    pub dialect: Dialect,
    /// Offset at which the bytes for the server begin.
    pub start: usize,
    /// Answer that the server owes.
    pub due: Due,
    /// It may run more than once.
    pub is_idempotent: bool,
}

/// Reason why a message is not sent to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// [`Refusal::MALFORMED`] or [`Refusal::FORBIDDEN`].
    pub code: u32,
    /// For people.
    pub text: String,
}

impl Refusal {
    /// The message is not of this protocol.
    pub const MALFORMED: u32 = 1;
    /// It asks for what cannot be called.
    pub const FORBIDDEN: u32 = 2;
}

impl App {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Redis, Self::Memcached, Self::Http];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Memcached => "memcached",
            Self::Http => "http",
        }
    }

    /// Dialect where no message asks for another.
    pub fn dialect(self) -> Dialect {
        match self {
            Self::Redis => Dialect::Resp2,
            Self::Memcached => Dialect::Text,
            Self::Http => Dialect::Http,
        }
    }

    /// True if an answer is an error of the server's.
    pub fn is_error(self, answer: &[u8]) -> bool {
        match self {
            Self::Redis => answer.starts_with(b"-"),
            Self::Memcached => memcached::is_error(answer),
            Self::Http => answer.starts_with(b"HTTP/1.1 5"),
        }
    }

    /// Reads a message.
    ///
    /// # Errors
    ///
    /// Where nothing of it may be sent to a server.
    pub fn read(self, message: &[u8]) -> Result<Message, Refusal> {
        match self {
            Self::Redis => {
                let commands = resp::message::read(message)?;
                Ok(Message {
                    dialect: if commands.is_resp3 { Dialect::Resp3 } else { Dialect::Resp2 },
                    start: commands.start,
                    due: Due { replies: commands.count },
                    is_idempotent: commands.is_idempotent,
                })
            }
            Self::Memcached => {
                let request = memcached::read(message)?;
                let (dialect, is_idempotent) = (request.dialect, request.is_idempotent);
                Ok(Message { dialect, start: 0, due: Due { replies: 1 }, is_idempotent })
            }
            Self::Http => {
                let request = http::message::read_request(message)?;
                Ok(Message {
                    dialect: Dialect::Http,
                    start: 0,
                    due: Due { replies: 1 },
                    is_idempotent: matches!(*request.method(), Method::GET | Method::HEAD),
                })
            }
        }
    }
}

impl From<resp::message::MessageError> for Refusal {
    fn from(error: resp::message::MessageError) -> Self {
        let is_forbidden = matches!(error, resp::message::MessageError::Refused { .. });
        let code = if is_forbidden { Self::FORBIDDEN } else { Self::MALFORMED };
        Self { code, text: error.to_string() }
    }
}

impl From<memcached::MessageError> for Refusal {
    fn from(error: memcached::MessageError) -> Self {
        let is_forbidden = error == memcached::MessageError::Forbidden;
        let code = if is_forbidden { Self::FORBIDDEN } else { Self::MALFORMED };
        Self { code, text: error.to_string() }
    }
}

impl From<http::message::MessageError> for Refusal {
    fn from(error: http::message::MessageError) -> Self {
        let is_forbidden = error == http::message::MessageError::Connection;
        let code = if is_forbidden { Self::FORBIDDEN } else { Self::MALFORMED };
        Self { code, text: error.to_string() }
    }
}

impl fmt::Display for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for App {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|app| app.name() == text);
        found.ok_or_else(|| format!("write {}", Self::ALL.map(Self::name).join(", ")))
    }
}
