//! What stands at an address of an R2P2 network: an endpoint or a router.

use tailcut_proto::node::{Node, Path, Time, Transmit};
use tailcut_proto::r2p2::Endpoint;
use tailcut_proto::router::Router;

/// A node of either kind.
#[derive(Debug)]
pub enum Member {
    /// A client or a server.
    Endpoint(Box<Endpoint>),
    /// A router.
    Router(Box<Router>),
}

impl Node for Member {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        match self {
            Self::Endpoint(node) => node.handle_datagram(now, path, bytes),
            Self::Router(node) => node.handle_datagram(now, path, bytes),
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
