//! Cookies, as WireGuard's: who asks for them does nothing for a request before its sender has
//! shown that it receives at its address, and has made the packet.
//!
//! A cookie is a keyed hash of an address and of the time, in periods of two minutes: it is good
//! for between one and two of them, and nothing is kept of it but by its client. A tag is a hash of
//! a packet with the cookie as its key: who has heard one packet cannot make another. What of a
//! packet that is, and where the tag stands in it, each protocol says.

use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use siphasher::sip::SipHasher24;

use crate::node::Time;

/// Condition on which a server or a router asks for cookies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AskCookies {
    /// Never.
    #[default]
    Never,
    /// While requests wait for a worker or a server, and for a second more; and always before
    /// anything is kept of a request of several packets.
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

/// Makes cookies, and says by which of them a tag may have been made. All of one pool share the key
/// and the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cookies {
    /// Condition on which they are asked for.
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

/// Number of packets of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The one that has come.
    Whole,
    /// More, for which something would be kept.
    Several,
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

    /// It is `now`.
    #[inline]
    pub(crate) fn turn(&mut self, now: Time) {
        if self.are_given() {
            self.period = now.wrapping_add(self.clock_ns) / PERIOD_NS;
        }
    }

    /// True if a request needs a tag. `is_loaded` says that requests wait.
    #[inline]
    pub(crate) fn are_asked(&mut self, now: Time, is_loaded: bool, extent: Extent) -> bool {
        match self.ask {
            AskCookies::Never => false,
            AskCookies::Always => true,
            AskCookies::UnderLoad => {
                if is_loaded {
                    self.loaded_until = now.saturating_add(LOADED_NS);
                }
                now < self.loaded_until || extent == Extent::Several
            }
        }
    }

    /// The cookie of an address in this period.
    pub(crate) fn cookie(&self, address: SocketAddr) -> u64 {
        self.cookie_in(address, self.period)
    }

    /// The cookie by which a tag of `address` can have been made, by the period that it names: this
    /// one or the one before, or the next by whose clock is fast.
    pub(crate) fn cookie_of(&self, address: SocketAddr, tag: u64) -> Option<u64> {
        // Two bits tell them apart, since no more than three periods can be meant.
        let period = match (tag >> 1).wrapping_sub(self.period) & 3 {
            0 => self.period,
            3 => self.period.wrapping_sub(1),
            1 => self.period.wrapping_add(1),
            _ => return None,
        };
        Some(self.cookie_in(address, period))
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

/// The tag of a packet by a cookie, whose period it names. `header` is blank where the tag stands,
/// and where others write.
pub(crate) fn tag_of(cookie: u64, header: &[u8], payload: &[u8]) -> u64 {
    let half = cookie.to_be_bytes();
    // SipHash takes 16 bytes, and a cookie has 8.
    let key = std::array::from_fn(|place| half[place % half.len()]);
    let mut hasher = SipHasher24::new_with_key(&key);
    hasher.write(header);
    hasher.write(payload);
    hasher.finish() & !PERIOD_MASK | cookie & PERIOD_MASK
}

/// Time for which a cookie is new: two minutes, as WireGuard's secret is.
pub(crate) const PERIOD_NS: u64 = 120_000_000_000;
/// Time for which load lasts after it was seen, as WireGuard's does.
const LOADED_NS: u64 = 1_000_000_000;
/// Bits of cookies and tags that tell their period; the lowest is 1, so that none is 0, which
/// stands for none.
const PERIOD_MASK: u64 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_load_they_are_asked_for_a_second_and_of_long_requests_always() {
        let mut cookies = Cookies::new(AskCookies::UnderLoad, &[7; 16], 0);
        assert!(!cookies.are_asked(0, false, Extent::Whole));
        assert!(cookies.are_asked(0, false, Extent::Several));
        assert!(cookies.are_asked(10, true, Extent::Whole));
        assert!(cookies.are_asked(10 + LOADED_NS - 1, false, Extent::Whole));
        assert!(!cookies.are_asked(10 + LOADED_NS, false, Extent::Whole));
        let mut never = Cookies::new(AskCookies::Never, &[7; 16], 0);
        assert!(!never.are_asked(0, true, Extent::Several) && !never.are_given());
    }
}
