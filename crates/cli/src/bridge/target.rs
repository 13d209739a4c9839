//! The server that a bridge asks.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tailcut_net::stream::{ConnectionId, Streams};

use crate::network;

/// Location of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// At an address, and as it was written.
    Tcp(SocketAddr, String),
    /// At a path.
    Unix(PathBuf),
}

impl Target {
    /// Reads `tcp://HOST:PORT`, `http://HOST[:PORT]` or `unix:PATH`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let path = text.strip_prefix("unix:").filter(|path| !path.is_empty());
        if let Some(path) = path {
            return Ok(Self::Unix(path.into()));
        }
        let http = text.strip_prefix("http://").map(|host| host.trim_end_matches('/'));
        let host = match (text.strip_prefix("tcp://"), http) {
            (Some(host), _) => host.to_owned(),
            (_, Some(host)) if !host.contains('/') => {
                let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
                if has_port { host.to_owned() } else { format!("{host}:80") }
            }
            _ => return Err("write tcp://HOST:PORT, http://HOST:PORT or unix:PATH".to_owned()),
        };
        let address = network::resolve(&host).map_err(|error| error.to_string())?;
        Ok(Self::Tcp(address, text.to_owned()))
    }

    /// Begins to connect.
    pub(super) fn connect(&self, streams: &mut Streams) -> io::Result<ConnectionId> {
        match self {
            Self::Tcp(address, _) => streams.connect(*address, None),
            Self::Unix(path) => streams.connect_unix(path),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(_, text) => f.write_str(text),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<String> {
        match Target::parse(text).ok()? {
            Target::Tcp(address, _) => Some(address.to_string()),
            Target::Unix(path) => Some(path.display().to_string()),
        }
    }

    #[test]
    fn a_target_is_a_url_or_a_path() {
        assert_eq!(address("tcp://127.0.0.1:6379").unwrap(), "127.0.0.1:6379");
        assert_eq!(address("http://127.0.0.1").unwrap(), "127.0.0.1:80");
        assert_eq!(address("http://[::1]/").unwrap(), "[::1]:80");
        assert_eq!(address("http://[::1]:81").unwrap(), "[::1]:81");
        assert_eq!(address("unix:/run/a.sock").unwrap(), "/run/a.sock");
        for text in ["127.0.0.1:6379", "unix:", "http://127.0.0.1/path", "tcp://127.0.0.1"] {
            assert_eq!(address(text), None, "{text}");
        }
    }
}
