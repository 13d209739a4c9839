//! By what the streams of a socket are sealed.

use std::io;

use tailcut_net::keys::{LiveAccess, LiveKeys};
use tailcut_proto::sealed::{Role, Sealing};

/// Keys, and who may open streams.
#[derive(Clone, Debug, Default)]
pub(super) struct Seal {
    /// Those of [`StreamBuilder::seal`](super::StreamBuilder::seal).
    pub(super) keys: Option<LiveKeys>,
    /// The policy of [`StreamBuilder::access`](super::StreamBuilder::access).
    pub(super) access: Option<LiveAccess>,
}

/// Role of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Listener,
    Connector,
}

impl Seal {
    /// By what packets of a socket are sealed, if they are, and what may follow those keys;
    /// `configured` is what the transport's configuration says of it.
    ///
    /// # Errors
    ///
    /// InvalidInput for keys with which this end can do nothing, and for a policy that nothing
    /// would go by.
    pub(super) fn sealing(
        &self,
        configured: Option<Sealing>,
        end: End,
    ) -> io::Result<Option<(Sealing, LiveKeys)>> {
        let keys = self.keys.clone();
        let live =
            keys.or_else(|| configured.as_ref().map(|seal| LiveKeys::from(seal.keys.clone())));
        let role = live.as_ref().map(|keys| keys.current().role);
        if let Some(problem) = self.problem(role, end) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        Ok(live.map(|live| {
            let keys = live.current();
            let mut seal = match configured {
                Some(seal) => Sealing { keys, ..seal },
                None => Sealing::new(keys, 0),
            };
            if let Some(access) = &self.access {
                seal.access = Some(access.current());
            }
            // Both ends of a stream call.
            seal.calls_back = true;
            (seal, live)
        }))
    }

    fn problem(&self, role: Option<Role>, end: End) -> Option<&'static str> {
        match (role, end) {
            (Some(Role::Router), _) => Some("these are a router's keys, which open no payload"),
            (Some(Role::Server), End::Connector) => {
                Some("these are a server's keys: who opens streams has a client's")
            }
            (Some(Role::Client(_)), End::Listener) => {
                Some("these are a client's keys: who takes streams has the servers'")
            }
            (None, _) if self.access.is_some() => {
                Some("an access policy names clients by their keys: give keys too, or no policy")
            }
            (_, End::Connector) if self.access.is_some() => {
                Some("an access policy is a listener's: leave it out where streams are opened")
            }
            _ => None,
        }
    }
}
