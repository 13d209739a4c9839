//! A packet of either transport, as the watch reads it.

use std::net::SocketAddr;

use tailcut_wire::homa;
use tailcut_wire::homa::tagged::tag_of;
use tailcut_wire::r2p2::{Kind, MessageType, Packet, Route};

use crate::faults::plan::Transport;

/// A packet of either transport.
pub(super) enum AnyPacket<'a> {
    R2p2(Packet<'a>),
    Homa(homa::Packet<'a>),
}

impl<'a> AnyPacket<'a> {
    pub(super) fn parse(transport: Transport, bytes: &'a [u8]) -> Result<Self, String> {
        match transport {
            Transport::R2p2 => {
                Packet::parse(bytes).map(Self::R2p2).map_err(|reason| format!("{reason:?}"))
            }
            Transport::Homa(_) => {
                homa::Packet::parse(bytes).map(Self::Homa).map_err(|reason| format!("{reason:?}"))
            }
        }
    }

    /// The id of its call, as the client has it.
    pub(super) fn id(&self) -> u64 {
        match self {
            Self::R2p2(packet) => packet.rpc_id().map_or(0, |id| id.0),
            Self::Homa(packet) if packet.is_from_client() => packet.common.sender_id.get(),
            Self::Homa(packet) => packet.common.local_id(),
        }
    }

    /// The client of a request: its own address, or what a router has written.
    pub(super) fn client(&self, from: SocketAddr) -> SocketAddr {
        match self {
            Self::R2p2(packet) => client_of(from, packet),
            Self::Homa(_) => from,
        }
    }

    /// True if it is of a request.
    pub(super) fn is_request(&self) -> bool {
        match self {
            Self::R2p2(packet) => packet.message_type == MessageType::Request,
            Self::Homa(packet) => packet.is_from_client(),
        }
    }

    /// The first bytes of a request, if it has them.
    pub(super) fn request_begin(&self) -> Option<&[u8]> {
        match self {
            Self::R2p2(packet) => {
                (self.is_request() && packet.index == 0).then_some(packet.payload)
            }
            Self::Homa(packet) => match packet.body {
                homa::Body::Data { header, payload } if self.is_request() => {
                    (header.offset() == 0).then_some(payload)
                }
                _ => None,
            },
        }
    }

    /// The token that a client echoes, or 0.
    pub(super) fn echoed_token(&self) -> u64 {
        match self {
            Self::R2p2(packet) => packet.token(),
            Self::Homa(packet) => match packet.body {
                homa::Body::Data { header, .. } => tag_of(header)
                    .unwrap_or_else(|| homa_token(header.cutoff_version.get(), &header.common)),
                _ => 0,
            },
        }
    }

    /// The token that a server gives with this packet, where it says one.
    pub(super) fn given_token(&self) -> Option<u64> {
        match self {
            Self::R2p2(packet) => Some(packet.token()),
            Self::Homa(packet) => match packet.body {
                homa::Body::Cutoffs(cutoffs) => {
                    Some(homa_token(cutoffs.version.get(), &cutoffs.common))
                }
                _ => None,
            },
        }
    }
}

/// The 32 bits that show that a peer of Homa receives at its address.
fn homa_token(version: u16, common: &homa::CommonHeader) -> u64 {
    u64::from(common.window.get()) << 16 | u64::from(version)
}

/// The client of a request: its own address, or the one that a router has written.
fn client_of(from: SocketAddr, packet: &Packet) -> SocketAddr {
    match route(packet) {
        Some(route) if route.client_port.get() != 0 => route.client(),
        _ => from,
    }
}

/// A reply that goes back through the router.
pub(super) fn is_returned(packet: &Packet) -> bool {
    packet.message_type == MessageType::Response && packet.route().is_some()
}

/// The route block, if a router has written it.
pub(super) fn route<'a>(packet: &Packet<'a>) -> Option<&'a Route> {
    match packet.kind {
        Kind::Request { route, .. } => route.filter(|route| route.routed != 0),
        Kind::V1 | Kind::Reply { .. } => None,
    }
}
