//! The nodes that a host of a fault run may have: an endpoint, a router, or an endpoint with
//! streams.

use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::node::{Node, Path, Time, Transmit};
use tailcut_proto::router::Router;
use tailcut_proto::sealed::{ChangedKeys, Keys};
use tailcut_proto::stream::Streams;

use crate::member::Member;

/// A node of any of the kinds.
#[derive(Debug)]
pub(super) enum Hosted {
    /// An endpoint whose calls are the plan's, or a router.
    Member(Member<Endpoint>),
    /// An endpoint whose calls are those of streams.
    Streams(Box<Streams<Endpoint>>),
}

impl Hosted {
    /// The endpoint, if it has one.
    pub(super) fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Self::Member(member) => member.endpoint(),
            Self::Streams(streams) => Some(streams.rpc()),
        }
    }

    /// True if it speaks Homa.
    pub(super) fn is_homa(&self) -> bool {
        matches!(self.endpoint(), Some(Endpoint::Homa(_)))
    }

    /// The endpoint whose calls are the plan's, if it has one.
    pub(super) fn endpoint_mut(&mut self) -> Option<&mut Endpoint> {
        match self {
            Self::Member(member) => member.endpoint_mut(),
            Self::Streams(_) => None,
        }
    }

    /// The router, if it is one.
    pub(super) fn router(&self) -> Option<&Router> {
        match self {
            Self::Member(member) => member.router(),
            Self::Streams(_) => None,
        }
    }

    /// The router, if it is one.
    pub(super) fn router_mut(&mut self) -> Option<&mut Router> {
        match self {
            Self::Member(member) => member.router_mut(),
            Self::Streams(_) => None,
        }
    }

    /// The streams, if it has any.
    pub(super) fn streams(&self) -> Option<&Streams<Endpoint>> {
        match self {
            Self::Member(_) => None,
            Self::Streams(streams) => Some(streams),
        }
    }

    /// The streams, if it has any.
    pub(super) fn streams_mut(&mut self) -> Option<&mut Streams<Endpoint>> {
        match self {
            Self::Member(_) => None,
            Self::Streams(streams) => Some(streams),
        }
    }
}

impl Node for Hosted {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        match self {
            Self::Member(node) => node.handle_datagram(now, path, bytes),
            Self::Streams(node) => node.handle_datagram(now, path, bytes),
        }
    }

    fn handle_wall_clock(&mut self, now: Time, unix_ns: u64) {
        match self {
            Self::Member(node) => node.handle_wall_clock(now, unix_ns),
            Self::Streams(node) => node.handle_wall_clock(now, unix_ns),
        }
    }

    fn update_keys(&mut self, now: Time, keys: &Keys) -> Result<(), ChangedKeys> {
        match self {
            Self::Member(node) => node.update_keys(now, keys),
            Self::Streams(node) => node.update_keys(now, keys),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::Member(node) => node.handle_timeout(now),
            Self::Streams(node) => node.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        match self {
            Self::Member(node) => node.poll_transmit(now, buffer),
            Self::Streams(node) => node.poll_transmit(now, buffer),
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self {
            Self::Member(node) => node.poll_timeout(),
            Self::Streams(node) => node.poll_timeout(),
        }
    }
}
