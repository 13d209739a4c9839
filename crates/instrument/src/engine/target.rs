//! Target of a stream: an address, or a Unix socket of this host.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tailcut_net::stream::{ConnectionId, Reason, Streams, TlsClient};

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Address(SocketAddr),
    Unix(Arc<Path>),
}

impl Target {
    /// Target of a lane: the Unix socket where there is one, otherwise the address.
    pub(super) fn of(unix: Option<&Arc<Path>>, address: SocketAddr) -> Self {
        unix.map_or(Self::Address(address), |path| Self::Unix(Arc::clone(path)))
    }

    /// Begins to connect.
    ///
    /// # Errors
    ///
    /// What this host says. Of a Unix socket that is all: nobody listens, or there is no such file.
    pub(super) fn connect(
        &self,
        streams: &mut Streams,
        tls: Option<&TlsClient>,
    ) -> io::Result<ConnectionId> {
        match self {
            Self::Address(address) => streams.connect(*address, tls),
            Self::Unix(path) => streams.connect_unix(path),
        }
    }

    /// Reason why a connection could not be begun, where that may change: nobody listens at a Unix
    /// socket now, or its queue is full.
    pub(super) fn refusal(&self, error: &io::Error) -> Option<Reason> {
        let passes = matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock
        );
        (passes && matches!(self, Self::Unix(_))).then_some(Reason::Refused)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
