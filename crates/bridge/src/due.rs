//! Dialect of a connection to a server, and answers that are due there.

/// Dialect that is spoken on one connection to a server. Connections of one are of no use to
/// messages of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Redis' protocol, version 2.
    Resp2,
    /// Redis' protocol, version 3.
    Resp3,
    /// HTTP/1.1.
    Http,
    /// memcached's text protocol.
    Text,
    /// memcached's binary protocol.
    Binary,
}

impl Dialect {
    /// Requests that a connection may have at a time.
    pub fn pipeline_max(self) -> usize {
        match self {
            Self::Resp2 | Self::Resp3 | Self::Text | Self::Binary => usize::MAX,
            Self::Http => 1,
        }
    }
}

/// Answer that a server owes for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Replies, one or more.
    pub replies: u32,
}

/// Bytes of a server that are no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nonsense {
    /// Bytes that are not of its protocol.
    #[error("it does not speak the protocol")]
    Framing,
    /// Bytes that nobody has asked for.
    #[error("it answers what nobody has asked")]
    Unasked,
    /// Nothing: it ends the connection, as it may.
    #[error("it ends the connection")]
    Farewell,
    /// It does not let us in, or does not speak this version.
    #[error("it does not accept the greeting")]
    Greeting,
}
