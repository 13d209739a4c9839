//! Address validation (RFC 9000 section 8): a keyed hash of the peer's address, which only a host
//! that receives there can echo, and the limit on what goes to an address before it has.

use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher24;
use tailcut_wire::r2p2::DropReason;

/// Makes tokens of addresses. Servers of one pool that share the key accept each other's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens {
    /// Has taken the key.
    hasher: SipHasher24,
}

/// Bytes from and to an address on behalf of one request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowance {
    /// Bytes of datagrams that came.
    pub(crate) received: u64,
    /// Bytes of datagrams that went.
    pub(crate) sent: u64,
}

/// Why a request is not admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// It is dropped, and its client told the reason.
    Drop(DropReason),
    /// The address must be validated first.
    Validate,
}

impl Tokens {
    pub(crate) fn new(key: &[u8; 16]) -> Self {
        Self { hasher: SipHasher24::new_with_key(key) }
    }

    /// The token of `address`; its lowest bits are as good as its highest.
    pub(crate) fn token(&self, address: SocketAddr) -> u64 {
        let mut hasher = self.hasher;
        match address.ip() {
            IpAddr::V4(ip) => hasher.write_u32(ip.to_bits()),
            IpAddr::V6(ip) => hasher.write_u128(ip.to_bits()),
        }
        hasher.write_u16(address.port());
        hasher.finish()
    }
}

impl Allowance {
    /// True if `len` more bytes may go to an address that is not validated.
    pub(crate) fn covers(&self, len: usize) -> bool {
        self.sent + len as u64 <= AMPLIFICATION_MAX * self.received
    }
}

/// Bytes that may go out for each that came in from an address that is not validated (QUIC's limit,
/// RFC 9000 section 8.1).
const AMPLIFICATION_MAX: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_on_key_address_and_port() {
        let address: SocketAddr = "10.0.0.1:33000".parse().unwrap();
        let token = Tokens::new(&[1; 16]).token(address);
        assert_eq!(token, Tokens::new(&[1; 16]).token(address));
        assert_ne!(token, Tokens::new(&[2; 16]).token(address));
        assert_ne!(token, Tokens::new(&[1; 16]).token("10.0.0.1:33001".parse().unwrap()));
        assert_ne!(token, Tokens::new(&[1; 16]).token("[::1]:33000".parse().unwrap()));
    }
}
