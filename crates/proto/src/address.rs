//! Addresses as keys of tables, and ranges of them.
//!
//! A table is looked into for every packet. The standard hash of an address feeds the hasher field
//! by field, which costs more than the look itself; here an IPv4 address is one word.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

/// An address that is cheap to hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressKey(pub SocketAddr);

impl Hash for AddressKey {
    #[inline]
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        match self.0 {
            SocketAddr::V4(v4) => {
                hasher.write_u64(u64::from(v4.ip().to_bits()) << 16 | u64::from(v4.port()))
            }
            // Equal addresses have equal scopes and flows, so leaving them out of the hash is
            // allowed.
            SocketAddr::V6(v6) => {
                let bits = v6.ip().to_bits();
                hasher.write_u64(bits as u64);
                hasher.write_u64((bits >> 64) as u64);
                hasher.write_u64(u64::from(v6.port()));
            }
        }
    }
}

/// The client, or the clients, that share what a host at `ip` may have of a queue: an address of
/// IPv4, or a /64 of IPv6, of which each host may take any. Never 0.
pub fn share_of(ip: IpAddr) -> u64 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => 1 << 32 | u64::from(ip.to_bits()),
        IpAddr::V6(ip) => ((ip.to_bits() >> 64) as u64).max(1),
    }
}

/// True if `ip` is a loopback address, or in one of the networks.
#[inline]
pub(crate) fn is_within(ip: IpAddr, networks: &[Prefix]) -> bool {
    let ip = ip.to_canonical();
    ip.is_loopback() || networks.iter().any(|network| network.contains(ip))
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// An address in the range.
    pub ip: IpAddr,
    /// Leading bits that are the same in all of them.
    pub bits: u8,
}

impl Prefix {
    /// True if `ip` is in the range.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.ip, ip) {
            (IpAddr::V4(own), IpAddr::V4(ip)) => {
                let shift = 32 - u32::from(self.bits.min(32));
                (u64::from(own.to_bits()) ^ u64::from(ip.to_bits())) >> shift == 0
            }
            (IpAddr::V6(own), IpAddr::V6(ip)) => {
                self.bits == 0
                    || (own.to_bits() ^ ip.to_bits()) >> (128 - u32::from(self.bits.min(128))) == 0
            }
            _ => false,
        }
    }
}

impl std::str::FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let describe = || format!("`{text}` is not a network such as 10.0.0.0/8 or fd00::/8");
        let (ip, bits) = text.split_once('/').ok_or_else(describe)?;
        let prefix = Self {
            ip: ip.parse().map_err(|_| describe())?,
            bits: bits.parse().map_err(|_| describe())?,
        };
        let widest = if prefix.ip.is_ipv4() { 32 } else { 128 };
        if prefix.bits > widest { Err(describe()) } else { Ok(prefix) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use super::*;
    use tailcut_placement::keyed::KeyedState;

    #[test]
    fn every_address_is_a_key_of_its_own() {
        let written = [
            "10.0.0.1:80",
            "10.0.0.1:81",
            "10.0.0.2:80",
            "[::ffff:10.0.0.1]:80",
            "[::1]:80",
            "[1::]:80",
            "[::1%2]:80",
        ];
        let keys: HashSet<AddressKey> =
            written.iter().map(|text| AddressKey(text.parse().unwrap())).collect();
        assert_eq!(keys.len(), written.len());
        assert!(written.iter().all(|text| keys.contains(&AddressKey(text.parse().unwrap()))));
    }

    #[test]
    fn address_and_port_count_in_the_hash() {
        let state = KeyedState::with_seed(7);
        let written =
            ["10.0.0.1:9", "10.0.0.1:8", "10.0.1.1:9", "[fd00::1]:9", "[fd00::1]:8", "[fd01::1]:9"];
        let hash = |text: &str| state.hash_one(AddressKey(text.parse().unwrap()));
        let hashes: HashSet<u64> = written.into_iter().map(hash).collect();
        assert_eq!(hashes.len(), written.len());
    }

    fn check(prefix: &str, ip: &str, expected: bool) {
        assert_eq!(
            prefix.parse::<Prefix>().unwrap().contains(ip.parse().unwrap()),
            expected,
            "{prefix} {ip}"
        );
    }

    #[test]
    fn prefixes_contain_what_shares_their_bits() {
        check("127.0.0.0/8", "127.9.9.9", true);
        check("127.0.0.0/8", "128.0.0.1", false);
        check("0.0.0.0/0", "1.2.3.4", true);
        check("10.1.2.3/32", "10.1.2.3", true);
        check("10.1.2.3/32", "10.1.2.2", false);
        check("fd00::/8", "fd12::1", true);
        check("::/0", "::1", true);
        check("::/0", "1.2.3.4", false);
    }

    #[test]
    fn a_bad_prefix_says_what_a_good_one_looks_like() {
        assert!("10.0.0.0/33".parse::<Prefix>().unwrap_err().contains("10.0.0.0/8"));
    }

    #[test]
    fn a_share_is_an_ipv4_address_or_a_64_and_never_0() {
        let share = |ip: &str| share_of(ip.parse().unwrap());
        assert_ne!(share("10.0.0.1"), share("10.0.0.2"));
        assert_eq!(share("10.0.0.1"), share("::ffff:10.0.0.1"));
        assert_eq!(share("2001:db8:0:1::1"), share("2001:db8:0:1:9::2"));
        assert_ne!(share("2001:db8:0:1::1"), share("2001:db8:0:2::1"));
        assert_ne!(share("10.0.0.1"), share("0:0:a00:1::"), "the same 32 bits, but of IPv6");
        assert!(["0.0.0.0", "::", "::1"].into_iter().all(|ip| share(ip) != 0));
    }
}
