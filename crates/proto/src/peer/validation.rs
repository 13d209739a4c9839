//! Address validation (RFC 9000 section 8): a keyed hash of the peer's address, which only a host
//! that receives there can echo, and the limit on what goes to an address before it has.

use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher24;
use tailcut_wire::r2p2::DropReason;

use crate::node::Time;

/// Makes tokens of addresses. Servers of one pool that share the key and the time accept each
/// other's. A token expires between one and two periods after it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens {
    /// Has taken the key.
    hasher: SipHasher24,
    /// Wall-clock time at time 0, nanoseconds.
    clock_ns: u64,
    /// The period it is, from [`Tokens::turn`].
    period: u64,
}

/// Bytes from and to an address on behalf of one request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowance {
    /// Bytes of datagrams that came.
    pub(crate) received: u64,
    /// Bytes of datagrams that went.
    pub(crate) sent: u64,
}

/// Reason why a request is not admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// It is dropped, and its client told the reason.
    Drop(DropReason),
    /// The address must be validated first.
    Validate,
}

impl Tokens {
    /// Tokens by a key. `clock_ns` is the wall-clock time at time 0, where servers share the key.
    pub(crate) fn new(key: &[u8; 16], clock_ns: u64) -> Self {
        let hasher = SipHasher24::new_with_key(key);
        Self { hasher, clock_ns, period: clock_ns >> PERIOD_BITS }
    }

    /// It is `now`.
    pub(crate) fn turn(&mut self, now: Time) {
        self.period = now.wrapping_add(self.clock_ns) >> PERIOD_BITS;
    }

    /// The token of `address` in this period; never 0, which stands for none. Its bits above the
    /// lowest are as good as each other.
    pub(crate) fn token(&self, address: SocketAddr) -> u64 {
        self.token_of(address, self.period)
    }

    /// True if `token` was made for `address` in this period or the one before, or in the next one
    /// by a server whose clock is fast.
    pub(crate) fn is_valid(&self, address: SocketAddr, token: u64) -> bool {
        let periods = [self.period, self.period.wrapping_sub(1), self.period.wrapping_add(1)];
        token != 0 && periods.into_iter().any(|period| token == self.token_of(address, period))
    }

    fn token_of(&self, address: SocketAddr, period: u64) -> u64 {
        let mut hasher = self.hasher;
        hasher.write_u64(period);
        match address.ip() {
            IpAddr::V4(ip) => hasher.write_u32(ip.to_bits()),
            IpAddr::V6(ip) => hasher.write_u128(ip.to_bits()),
        }
        hasher.write_u16(address.port());
        hasher.finish() | 1
    }
}

impl Allowance {
    /// True if `len` more bytes may go to an address that is not validated.
    pub(crate) fn covers(&self, len: usize) -> bool {
        self.sent + len as u64 <= AMPLIFICATION_MAX * self.received
    }
}

/// A period is 2^42 ns, some 73 minutes.
const PERIOD_BITS: u32 = 42;

/// Bytes that may go out for each that came in from an address that is not validated (QUIC's limit,
/// RFC 9000 section 8.1).
const AMPLIFICATION_MAX: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_on_key_address_and_port() {
        let address: SocketAddr = "10.0.0.1:33000".parse().unwrap();
        let token = Tokens::new(&[1; 16], 0).token(address);
        assert_eq!(token, Tokens::new(&[1; 16], 0).token(address));
        assert_ne!(token, Tokens::new(&[2; 16], 0).token(address));
        assert_ne!(token, Tokens::new(&[1; 16], 0).token("10.0.0.1:33001".parse().unwrap()));
        assert_ne!(token, Tokens::new(&[1; 16], 0).token("[::1]:33000".parse().unwrap()));
    }

    #[test]
    fn a_token_expires_after_its_period_and_the_next() {
        let address: SocketAddr = "10.0.0.1:33000".parse().unwrap();
        let mut tokens = Tokens::new(&[1; 16], 7 << PERIOD_BITS);
        let token = tokens.token(address);
        for (periods, is_valid) in [(0, true), (1, true), (2, false), (100, false)] {
            tokens.turn(periods << PERIOD_BITS);
            assert_eq!(tokens.is_valid(address, token), is_valid, "after {periods}");
        }
        assert!(!tokens.is_valid(address, 0));
    }

    #[test]
    fn a_token_is_never_0_for_its_lowest_bit_is_set() {
        let tokens = Tokens::new(&[1; 16], 0);
        let addresses = (1..100).map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        assert!(addresses.into_iter().all(|address| tokens.token(address) & 1 == 1));
    }
}
