//! Addresses as keys of tables.
//!
//! A table is looked into for every packet. The standard hash of an address feeds the hasher field by field, which costs more
//! than the look itself; here an IPv4 address is one word.

use std::hash::{Hash, Hasher};
use std::net::SocketAddr;

/// An address that is cheap to hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressKey(pub SocketAddr);

impl Hash for AddressKey {
    #[inline]
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        match self.0 {
            SocketAddr::V4(v4) => hasher.write_u64(u64::from(v4.ip().to_bits()) << 16 | u64::from(v4.port())),
            // Equal addresses have equal scopes and flows, so leaving them out of the hash is allowed.
            SocketAddr::V6(v6) => {
                let bits = v6.ip().to_bits();
                hasher.write_u64(bits as u64);
                hasher.write_u64((bits >> 64) as u64);
                hasher.write_u64(u64::from(v6.port()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_address_is_a_key_of_its_own() {
        let written = ["10.0.0.1:80", "10.0.0.1:81", "10.0.0.2:80", "[::ffff:10.0.0.1]:80", "[::1]:80", "[1::]:80", "[::1%2]:80"];
        let keys: HashSet<AddressKey> = written.iter().map(|text| AddressKey(text.parse().unwrap())).collect();
        assert_eq!(keys.len(), written.len());
        assert!(written.iter().all(|text| keys.contains(&AddressKey(text.parse().unwrap()))));
    }
}
