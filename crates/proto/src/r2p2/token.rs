//! Address validation: a keyed hash of the client's address, which only who receives there can
//! echo.

use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher24;

/// Makes and checks address tokens. Servers of one pool that share the key accept each other's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens {
    hasher: SipHasher24,
}

impl Tokens {
    pub(super) fn new(key: &[u8; 16]) -> Self {
        Self { hasher: SipHasher24::new_with_key(key) }
    }

    /// The token of `client`; never 0, which stands for none.
    pub(super) fn token(&self, client: SocketAddr) -> u64 {
        let mut hasher = self.hasher;
        match client.ip() {
            IpAddr::V4(ip) => hasher.write_u32(ip.to_bits()),
            IpAddr::V6(ip) => hasher.write_u128(ip.to_bits()),
        }
        hasher.write_u16(client.port());
        hasher.finish() | 1
    }
}

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
