//! Cookies of R2P2: a server or a router that asks for them does nothing for a request whose first
//! packet does not show that its sender receives at its address, and has made that packet.
//!
//! | who | event | then |
//! |---|---|---|
//! | server, router | a first packet without a tag, or with another | its address is told its cookie; nothing is remembered |
//! | server, router | a first packet with its tag | as if none were asked for |
//! | server | it answers a client | the cookie of the moment goes with it |
//! | client | it has been told a cookie | first packets to that target bear a tag by it |
//!
//! The tag is of the whole packet, but for what routers write; what both are made of is in
//! [`crate::peer::cookies`].

use std::net::SocketAddr;

use tailcut_wire::r2p2::sealed::blank_route;
use tailcut_wire::r2p2::{EXTENDED_LEN, Flags, Kind, MessageType, Packet, ROUTED_LEN};
use zerocopy::IntoBytes;

use crate::peer::cookies::{Cookies, Extent, tag_of};

impl Cookies {
    /// Flag that marks the token of a packet as a cookie; 0 where cookies are not given.
    #[inline]
    pub(crate) fn flag(&self) -> u8 {
        if self.are_given() { Flags::COOKIE } else { 0 }
    }

    /// True if a packet is the first of a request and bears the tag of `address`.
    pub(crate) fn is_tagged(&self, address: SocketAddr, packet: &Packet) -> bool {
        let Kind::Request { header, route } = packet.kind else { return false };
        if packet.message_type != MessageType::Request || packet.index != 0 {
            return false;
        }
        let tag = header.token.get();
        // The tag names its period, so that a forged one costs one cookie, not three.
        let Some(cookie) = self.cookie_of(address, tag) else { return false };
        let header_len = if route.is_some() { ROUTED_LEN } else { EXTENDED_LEN };
        let mut blank = [0; ROUTED_LEN];
        // The route block stays 0: all of it is written by routers.
        blank[..EXTENDED_LEN].copy_from_slice(header.as_bytes());
        tag == tag_of(cookie, blanked(&mut blank[..header_len]), packet.payload)
    }
}

impl Extent {
    /// That of the request which a packet is of.
    #[inline]
    pub(crate) fn of(packet: &Packet) -> Self {
        if packet.count > 1 { Self::Several } else { Self::Whole }
    }
}

/// Writes the tag of a packet, the first of a request, which is otherwise ready.
pub(crate) fn write_tag(bytes: &mut [u8], cookie: u64) {
    let (header, payload) = bytes.split_at(usize::from(bytes[1]).min(ROUTED_LEN));
    let mut blank = [0; ROUTED_LEN];
    blank[..header.len()].copy_from_slice(header);
    let tag = tag_of(cookie, blanked(&mut blank[..header.len()]), payload);
    bytes[TOKEN_AT..TOKEN_AT + 8].copy_from_slice(&tag.to_be_bytes());
}

/// A copy of a header, blank where the tag stands and where routers write.
fn blanked(header: &mut [u8]) -> &[u8] {
    header[TOKEN_AT..TOKEN_AT + 8].fill(0);
    blank_route(header);
    header
}

/// Place of the token in a header.
const TOKEN_AT: usize = 32;

#[cfg(test)]
mod tests;
