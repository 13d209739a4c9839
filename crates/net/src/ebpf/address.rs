//! Addresses as the programs have them.

use std::net::{IpAddr, SocketAddr};

/// The bytes of an IP address: those of IPv4 as `::ffff:a.b.c.d`.
pub(super) fn ip_bytes(addr: SocketAddr) -> [u8; 16] {
    match addr.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// The bytes of [`ip_bytes`] as words of this machine, as they lie in memory.
pub(super) fn ip_words(addr: SocketAddr) -> [u32; 4] {
    let bytes = ip_bytes(addr);
    std::array::from_fn(|at| {
        u32::from_ne_bytes([bytes[4 * at], bytes[4 * at + 1], bytes[4 * at + 2], bytes[4 * at + 3]])
    })
}

/// A port in network order, and two zeros.
pub(super) fn port_word(addr: SocketAddr) -> u32 {
    let [high, low] = addr.port().to_be_bytes();
    u32::from_ne_bytes([high, low, 0, 0])
}
