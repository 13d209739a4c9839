//! A node of a network with routers: an endpoint or a router.

use tailcut_proto::node::{Node, Path, Time, Transmit};
use tailcut_proto::router::Router;
use tailcut_proto::sealed::{ChangedKeys, Keys};

/// A node of either kind.
#[derive(Debug)]
pub enum Member<E> {
    /// A client or a server.
    Endpoint(Box<E>),
    /// A router.
    Router(Box<Router>),
}

impl<E> Member<E> {
    /// The endpoint, if it is one.
    pub fn endpoint(&self) -> Option<&E> {
        match self {
            Self::Endpoint(endpoint) => Some(endpoint),
            Self::Router(_) => None,
        }
    }

    /// The endpoint, if it is one.
    pub fn endpoint_mut(&mut self) -> Option<&mut E> {
        match self {
            Self::Endpoint(endpoint) => Some(endpoint),
            Self::Router(_) => None,
        }
    }

    /// The router, if it is one.
    pub fn router(&self) -> Option<&Router> {
        match self {
            Self::Endpoint(_) => None,
            Self::Router(router) => Some(router),
        }
    }

    /// The router, if it is one.
    pub fn router_mut(&mut self) -> Option<&mut Router> {
        match self {
            Self::Endpoint(_) => None,
            Self::Router(router) => Some(router),
        }
    }
}

impl<E: Node> Node for Member<E> {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        match self {
            Self::Endpoint(node) => node.handle_datagram(now, path, bytes),
            Self::Router(node) => node.handle_datagram(now, path, bytes),
        }
    }

    fn handle_wall_clock(&mut self, now: Time, unix_ns: u64) {
        match self {
            Self::Endpoint(node) => node.handle_wall_clock(now, unix_ns),
            Self::Router(node) => node.handle_wall_clock(now, unix_ns),
        }
    }

    fn update_keys(&mut self, now: Time, keys: &Keys) -> Result<(), ChangedKeys> {
        match self {
            Self::Endpoint(node) => node.update_keys(now, keys),
            Self::Router(node) => node.update_keys(now, keys),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::Endpoint(node) => node.handle_timeout(now),
            Self::Router(node) => node.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        match self {
            Self::Endpoint(node) => node.poll_transmit(now, buffer),
            Self::Router(node) => node.poll_transmit(now, buffer),
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self {
            Self::Endpoint(node) => node.poll_timeout(),
            Self::Router(node) => node.poll_timeout(),
        }
    }
}
