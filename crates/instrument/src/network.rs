//! Names to addresses, and private networks.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;

use anyhow::{Result, anyhow};
use tailcut_proto::r2p2::Prefix;

/// The first address of a name such as `localhost:8000`, `10.0.0.1:8000` or `[::1]:8000`.
///
/// # Errors
///
/// That the name has none, with how it is written.
pub fn resolve(name: &str) -> Result<SocketAddr> {
    let mut addresses = name.to_socket_addrs().map_err(|error| {
        anyhow!(
            "cannot resolve {name:?}: {error}; write HOST:PORT, such as 10.0.0.1:8000 or [::1]:8000"
        )
    })?;
    addresses.next().ok_or_else(|| anyhow!("{name:?} has no address"))
}

/// The path in `unix:PATH`, which names a socket of this host.
pub fn unix_path(target: &str) -> Option<&Path> {
    target.strip_prefix("unix:").map(Path::new)
}

/// True if an address belongs to this machine or to a private network.
pub fn is_private(ip: IpAddr) -> bool {
    PRIVATE.iter().any(|prefix| prefix.contains(ip.to_canonical()))
}

const PRIVATE: [Prefix; 8] = [
    Prefix { ip: v4(127, 0), bits: 8 },
    Prefix { ip: v4(10, 0), bits: 8 },
    Prefix { ip: v4(172, 16), bits: 12 },
    Prefix { ip: v4(192, 168), bits: 16 },
    Prefix { ip: v4(169, 254), bits: 16 },
    Prefix { ip: v6(0, 1), bits: 128 },
    Prefix { ip: v6(0xfc00, 0), bits: 7 },
    Prefix { ip: v6(0xfe80, 0), bits: 10 },
];

const fn v4(first: u8, second: u8) -> IpAddr {
    IpAddr::V4(std::net::Ipv4Addr::new(first, second, 0, 0))
}

const fn v6(first: u16, last: u16) -> IpAddr {
    IpAddr::V6(std::net::Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_private(ip: &str, expected: bool) {
        assert_eq!(is_private(ip.parse().expect("an address")), expected, "{ip}");
    }

    #[test]
    fn private_networks_are_told_from_public_ones() {
        check_private("127.1.2.3", true);
        check_private("10.255.0.1", true);
        check_private("172.31.0.1", true);
        check_private("172.32.0.1", false);
        check_private("192.168.1.1", true);
        check_private("192.169.1.1", false);
        check_private("8.8.8.8", false);
        check_private("::1", true);
        check_private("::2", false);
        check_private("fd00::1", true);
        check_private("fe80::1", true);
        check_private("2001:db8::1", false);
        check_private("::ffff:10.0.0.1", true);
        check_private("::ffff:8.8.8.8", false);
    }
}
