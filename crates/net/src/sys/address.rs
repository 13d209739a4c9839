//! Socket addresses in the kernel's form, converted without a detour: both directions are on the
//! path of each datagram.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A `sockaddr_in` or a `sockaddr_in6`, as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub(crate) struct SockAddr([u8; SockAddr::CAPACITY]);

impl SockAddr {
    /// Bytes that either form fits in.
    pub(crate) const CAPACITY: usize = 32;

    /// No address: of family 0.
    pub(crate) const NONE: Self = Self([0; Self::CAPACITY]);

    /// The kernel's form of `address`.
    #[inline]
    pub(crate) fn new(address: &SocketAddr) -> Self {
        let mut bytes = [0; Self::CAPACITY];
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(v4) => {
                bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                bytes[4..8].copy_from_slice(&v4.ip().octets());
            }
            SocketAddr::V6(v6) => {
                bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            }
        }
        Self(bytes)
    }

    /// Bytes that the kernel shall read.
    #[inline]
    pub(crate) fn len(&self) -> libc::socklen_t {
        match i32::from(u16::from_ne_bytes([self.0[0], self.0[1]])) {
            libc::AF_INET => size_of::<libc::sockaddr_in>() as libc::socklen_t,
            _ => size_of::<libc::sockaddr_in6>() as libc::socklen_t,
        }
    }

    /// The address; `None` for a family that is neither IPv4 nor IPv6. The flow label is left out:
    /// it is not part of who a peer is.
    #[inline]
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let bytes = &self.0;
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        match i32::from(u16::from_ne_bytes([bytes[0], bytes[1]])) {
            libc::AF_INET => {
                let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
                Some(SocketAddr::V4(SocketAddrV4::new(ip, port)))
            }
            libc::AF_INET6 => {
                let mut ip = [0; 16];
                ip.copy_from_slice(&bytes[8..24]);
                let scope = u32::from_ne_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]);
                Some(SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope)))
            }
            _ => None,
        }
    }

    /// Pointer to the address, by which the kernel reads or writes it.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        self.0.as_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) {
        let address: SocketAddr = text.parse().expect("a socket address");
        assert_eq!(SockAddr::new(&address).address(), Some(address));
    }

    #[test]
    fn ipv4_survives() {
        check("192.0.2.7:65535");
    }

    #[test]
    fn ipv6_survives() {
        check("[2001:db8::1]:80");
    }

    #[test]
    fn a_scope_survives() {
        check("[fe80::1%3]:80");
    }

    #[test]
    fn the_kernel_reads_the_length_of_the_family() {
        assert_eq!(SockAddr::new(&"1.2.3.4:5".parse().expect("v4")).len(), 16);
        assert_eq!(SockAddr::new(&"[::1]:5".parse().expect("v6")).len(), 28);
    }

    #[test]
    fn no_family_is_no_address() {
        assert_eq!(SockAddr::NONE.address(), None);
    }
}
