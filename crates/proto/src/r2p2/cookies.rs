//! Cookies, as WireGuard's: a server or a router that asks for them does nothing for a request whose first
//! packet does not show that its sender receives at its address, and has made that packet.
//!
//! | who | event | then |
//! |---|---|---|
//! | server, router | a first packet without a tag, or with another | its address is told its cookie; nothing is remembered |
//! | server, router | a first packet with its tag | as if none were asked for |
//! | server | it answers a client | the cookie of the moment goes with it |
//! | client | it has been told a cookie | first packets to that target bear a tag by it |
//!
//! A cookie is a keyed hash of an address and of the time, in periods of two minutes: it is good for between
//! one and two of them, and nothing is kept of it but by its client. The tag is a hash of the whole packet, but for what
//! routers write, with the cookie as its key: who has heard one packet cannot make another.

use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use siphasher::sip::SipHasher24;
use tailcut_wire::r2p2::sealed::blank_route;
use tailcut_wire::r2p2::{EXTENDED_LEN, Flags, Kind, MessageType, Packet, ROUTED_LEN};
use zerocopy::IntoBytes;

use crate::node::Time;

/// When a server or a router asks for cookies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AskCookies {
    /// Never.
    #[default]
    Never,
    /// While requests wait for a worker or a server, and for a second more; and always before anything is kept
    /// of a request of several packets.
    UnderLoad,
    /// For each request.
    Always,
}

impl FromStr for AskCookies {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "never" => Ok(Self::Never),
            "under-load" => Ok(Self::UnderLoad),
            "always" => Ok(Self::Always),
            _ => Err(format!("`{text}` is none of never, under-load and always")),
        }
    }
}

/// Makes cookies and looks at tags. All of one pool share the key and the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cookies {
    /// When they are asked for.
    ask: AskCookies,
    /// Has taken the key.
    hasher: SipHasher24,
    /// Wall-clock time at time 0, nanoseconds.
    clock_ns: u64,
    /// The period it is, from [`Cookies::turn`].
    period: u64,
    /// Until when there is load, by the last look.
    loaded_until: Time,
}

impl Cookies {
    /// Cookies by a key. `clock_ns` is the wall-clock time at time 0.
    pub(crate) fn new(ask: AskCookies, key: &[u8; 16], clock_ns: u64) -> Self {
        let mut hasher = SipHasher24::new_with_key(key);
        // Tokens of addresses are made by the same key.
        hasher.write(b"cookie");
        Self { ask, hasher, clock_ns, period: clock_ns / PERIOD_NS, loaded_until: 0 }
    }

    /// True if they are asked for at all: then no tokens are given to clients.
    #[inline]
    pub(crate) fn are_given(&self) -> bool {
        self.ask != AskCookies::Never
    }

    /// What a packet that gives a token says of it.
    #[inline]
    pub(crate) fn flag(&self) -> u8 {
        if self.are_given() { Flags::COOKIE } else { 0 }
    }

    /// It is `now`.
    #[inline]
    pub(crate) fn turn(&mut self, now: Time) {
        if self.are_given() {
            self.period = now.wrapping_add(self.clock_ns) / PERIOD_NS;
        }
    }

    /// True if a request needs a tag. `is_loaded` says that requests wait.
    #[inline]
    pub(crate) fn are_asked(&mut self, now: Time, is_loaded: bool, packet: &Packet) -> bool {
        match self.ask {
            AskCookies::Never => false,
            AskCookies::Always => true,
            AskCookies::UnderLoad => {
                if is_loaded {
                    self.loaded_until = now.saturating_add(LOADED_NS);
                }
                now < self.loaded_until || packet.count > 1
            }
        }
    }

    /// The cookie of an address in this period.
    pub(crate) fn cookie(&self, address: SocketAddr) -> u64 {
        self.cookie_in(address, self.period)
    }

    /// True if a packet is the first of a request and bears the tag of `address`: by its cookie of this period
    /// or the one before, or of the next by whose clock is fast.
    pub(crate) fn is_tagged(&self, address: SocketAddr, packet: &Packet) -> bool {
        let Kind::Request { header, route } = packet.kind else { return false };
        if packet.message_type != MessageType::Request || packet.index != 0 {
            return false;
        }
        let tag = header.token.get();
        let period = match (tag >> 1).wrapping_sub(self.period) & 3 {
            0 => self.period,
            3 => self.period.wrapping_sub(1),
            1 => self.period.wrapping_add(1),
            _ => return false,
        };
        let header_len = if route.is_some() { ROUTED_LEN } else { EXTENDED_LEN };
        let mut blank = [0; ROUTED_LEN];
        blank[..EXTENDED_LEN].copy_from_slice(header.as_bytes());
        tag == tag_of(self.cookie_in(address, period), &mut blank[..header_len], packet.payload)
    }

    fn cookie_in(&self, address: SocketAddr, period: u64) -> u64 {
        let mut hasher = self.hasher;
        hasher.write(&period.to_be_bytes());
        match address.ip() {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()),
        }
        hasher.write(&address.port().to_be_bytes());
        hasher.finish() & !PERIOD_MASK | (period & 3) << 1 | 1
    }
}

/// Writes the tag of a packet, the first of a request, which is otherwise ready.
pub(crate) fn write_tag(bytes: &mut [u8], cookie: u64) {
    let (header, payload) = bytes.split_at(usize::from(bytes[1]).min(ROUTED_LEN));
    let mut blank = [0; ROUTED_LEN];
    blank[..header.len()].copy_from_slice(header);
    let tag = tag_of(cookie, &mut blank[..header.len()], payload);
    bytes[TOKEN_AT..TOKEN_AT + 8].copy_from_slice(&tag.to_be_bytes());
}

/// The tag of a packet by a cookie, whose period it names. `header` is a copy, which is blanked where others
/// write.
fn tag_of(cookie: u64, header: &mut [u8], payload: &[u8]) -> u64 {
    header[TOKEN_AT..TOKEN_AT + 8].fill(0);
    blank_route(header);
    let half = cookie.to_be_bytes();
    let key = std::array::from_fn(|place| half[place % half.len()]);
    let mut hasher = SipHasher24::new_with_key(&key);
    hasher.write(header);
    hasher.write(payload);
    hasher.finish() & !PERIOD_MASK | cookie & PERIOD_MASK
}

/// Place of the token in a header.
const TOKEN_AT: usize = 32;
/// How long a cookie is new: two minutes, as WireGuard's secret is.
const PERIOD_NS: u64 = 120_000_000_000;
/// How long load lasts after it was seen, as WireGuard's does.
const LOADED_NS: u64 = 1_000_000_000;
/// Bits of cookies and tags that tell their period; the lowest is 1, so that none is 0, which stands for none.
const PERIOD_MASK: u64 = 7;

#[cfg(test)]
mod tests;
