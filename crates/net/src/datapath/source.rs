//! Source addresses of datagrams, among those of this host.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use tailcut_proto::node::Source;

use super::config::UdpMetrics;

/// The address that packets from `own` to `peer` have as their source: the kernel chooses where
/// `own` has none.
pub(crate) fn routed_source(own: SocketAddr, peer: SocketAddr) -> SocketAddr {
    let routed = || {
        let socket = UdpSocket::bind(SocketAddr::new(own.ip(), 0)).ok()?;
        socket.connect(peer).ok()?;
        Some(SocketAddr::new(socket.local_addr().ok()?.ip(), own.port()))
    };
    if own.ip().is_unspecified() { routed().unwrap_or(own) } else { own }
}

/// The sources of a port's datagrams, where the kernel is not to choose.
#[derive(Debug)]
pub(super) struct Sources {
    /// The address that the port is bound to.
    own: SocketAddr,
    /// It is all addresses of this host: what arrives says at which, and what answers leaves from
    /// there.
    pub(super) tells_local: bool,
    /// The source of what last went as if to another peer.
    found: Option<Found>,
}

/// Source address that the kernel has chosen for a peer.
#[derive(Debug)]
struct Found {
    /// The peer.
    peer: SocketAddr,
    /// The source of what goes there.
    ip: IpAddr,
    /// Sends that the kernel had refused by then: an address that is the host's no more is refused.
    refused: u64,
}

impl Sources {
    pub(super) fn new(own: SocketAddr, tells_local: bool) -> Self {
        Self { own, tells_local: tells_local && own.ip().is_unspecified(), found: None }
    }

    /// The source that a datagram asks for; `None` where the kernel chooses, or the port has only
    /// one.
    #[inline]
    pub(super) fn find(&mut self, from: Source, metrics: &UdpMetrics) -> Option<IpAddr> {
        match from {
            Source::Any | Source::Spoofed(_) => None,
            Source::Local(ip) => self.tells_local.then_some(ip),
            Source::Toward(peer) => self.toward(peer, metrics),
        }
    }

    /// Source towards a peer. The kernel is asked once for the same peer in a row, as in long
    /// calls.
    #[cold]
    fn toward(&mut self, peer: SocketAddr, metrics: &UdpMetrics) -> Option<IpAddr> {
        if !self.own.ip().is_unspecified() {
            return None;
        }
        let refused = metrics.dropped_unreachable + metrics.dropped_other;
        match &self.found {
            Some(found) if found.peer == peer && found.refused == refused => Some(found.ip),
            _ => {
                let ip = routed_source(self.own, peer).ip();
                self.found = (!ip.is_unspecified()).then_some(Found { peer, ip, refused });
                self.found.as_ref().map(|found| found.ip)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_port_at_all_addresses_sends_as_if_to_another_peer() {
        let mut metrics = UdpMetrics::default();
        for (own, peer, ip) in
            [("0.0.0.0:7", "127.0.0.9:8", "127.0.0.1"), ("[::]:7", "[::1]:8", "::1")]
        {
            let mut sources = Sources::new(address(own), false);
            let ip: IpAddr = ip.parse().expect("an address");
            for _ in 0..2 {
                assert_eq!(sources.find(Source::Toward(address(peer)), &metrics), Some(ip));
                metrics.dropped_other += 1;
            }
            assert_eq!(sources.find(Source::Local(ip), &metrics), None, "it need not say");
            assert_eq!(
                Sources::new(address(own), true).find(Source::Local(ip), &metrics),
                Some(ip)
            );
        }
    }

    #[test]
    fn a_port_at_one_address_has_that_one() {
        let metrics = UdpMetrics::default();
        let mut sources = Sources::new(address("127.0.0.1:7"), true);
        let ip = [127, 0, 0, 2].into();
        for from in [Source::Any, Source::Local(ip), Source::Toward(address("127.0.0.9:8"))] {
            assert_eq!(sources.find(from, &metrics), None, "{from:?}");
        }
    }

    #[test]
    fn what_is_refused_has_the_kernel_asked_anew() {
        let mut sources = Sources::new(address("0.0.0.0:7"), false);
        let mut metrics = UdpMetrics::default();
        let peer = address("127.0.0.9:8");
        let from = Source::Toward(peer);
        sources.found = Some(Found { peer, ip: [127, 0, 0, 7].into(), refused: 0 });
        assert_eq!(sources.find(from, &metrics), Some([127, 0, 0, 7].into()));
        metrics.dropped_other = 1;
        assert_eq!(sources.find(from, &metrics), Some([127, 0, 0, 1].into()));
    }
}
