//! Addresses, ports and polling as arguments.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, anyhow, bail};
use tailcut_net::driver::Wait;
use tailcut_net::ip::IpPort;
use tailcut_net::port::Port;
use tailcut_net::udp::{Coalescing, UdpConfig, UdpPort};
use tailcut_proto::r2p2::Prefix;

/// How a command waits for the network.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Polling {
    /// Poll without ever sleeping: shortest latency, takes a whole core
    #[arg(long)]
    busy_poll: bool,
    /// Time to keep polling after the last traffic before sleeping, in nanoseconds; 0 where client
    /// and server share a core
    #[arg(long, value_name = "N", default_value_t = Wait::SPIN_NS, conflicts_with = "busy_poll")]
    spin_ns: u64,
}

impl Polling {
    pub(crate) fn wait(self) -> Wait {
        if self.busy_poll { Wait::BusyPoll } else { Wait::Block { spin_ns: self.spin_ns } }
    }
}

impl fmt::Display for Polling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.busy_poll {
            f.write_str("busy")
        } else {
            write!(f, "spin {} ns, then sleep", self.spin_ns)
        }
    }
}

/// The first address of a name such as `localhost:8000`, `10.0.0.1:8000` or `[::1]:8000`.
pub(crate) fn resolve(name: &str) -> Result<SocketAddr> {
    let mut addresses = name.to_socket_addrs().map_err(|error| {
        anyhow!(
            "cannot resolve {name:?}: {error}; write HOST:PORT, such as 10.0.0.1:8000 or [::1]:8000"
        )
    })?;
    addresses.next().ok_or_else(|| anyhow!("{name:?} has no address"))
}

/// The addresses of `ADDR` or `ADDR+COUNT`, which are COUNT consecutive ports.
pub(crate) fn resolve_range(text: &str) -> Result<Vec<SocketAddr>> {
    let Some((name, count)) = text.rsplit_once('+') else {
        return Ok(vec![resolve(text)?]);
    };
    let count: u16 = count.parse().map_err(|_| {
        anyhow!("{text:?}: write ADDR+COUNT, such as 10.0.0.1:8001+8 for eight ports")
    })?;
    let first = resolve(name)?;
    let Some(last) = first.port().checked_add(count.saturating_sub(1)).filter(|_| count > 0) else {
        bail!("{text:?}: {count} ports from {} on do not exist", first.port());
    };
    Ok((first.port()..=last).map(|port| SocketAddr::new(first.ip(), port)).collect())
}

/// A port at `address`.
pub(crate) fn bind(address: SocketAddr, coalescing: Coalescing) -> Result<UdpPort> {
    let config = UdpConfig { coalescing, ..UdpConfig::default() };
    UdpPort::bind(address, config).with_context(|| format!("cannot listen at {address}"))
}

/// A port of Homa inside UDP at `address`.
pub(crate) fn bind_homa(address: SocketAddr, coalescing: Coalescing) -> Result<UdpPort> {
    UdpPort::bind(address, homa_config(coalescing))
        .with_context(|| format!("cannot listen at {address}"))
}

/// A port of Homa directly over IP at `address`.
pub(crate) fn bind_homa_ip(address: SocketAddr) -> Result<IpPort> {
    let port = IpPort::bind(address, homa_config(Coalescing::Off));
    port.with_context(|| format!("cannot listen at {address} over IP protocol 146"))
}

fn homa_config(coalescing: Coalescing) -> UdpConfig {
    UdpConfig {
        coalescing,
        unsent_bytes_max: Some(UdpConfig::HOMA_UNSENT_BYTES),
        ..UdpConfig::default()
    }
}

/// What peers may be given credit for: half of the buffer, for the kernel charges up to twice a
/// packet's bytes.
pub(crate) fn credit_bytes(port: &Port) -> Result<usize> {
    Ok(port.receive_buffer_bytes().context("cannot read the socket's buffer size")? / 2)
}

/// Whether an address belongs to this machine or to a private network.
pub(crate) fn is_private(ip: IpAddr) -> bool {
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

    #[test]
    fn a_range_is_consecutive_ports() {
        let ports = |text| {
            resolve_range(text).map(|all| all.iter().map(SocketAddr::port).collect::<Vec<_>>()).ok()
        };
        assert_eq!(ports("127.0.0.1:8001"), Some(vec![8001]));
        assert_eq!(ports("127.0.0.1:8001+3"), Some(vec![8001, 8002, 8003]));
        assert_eq!(ports("[::1]:65535+1"), Some(vec![65_535]));
        assert_eq!(ports("[::1]:65535+2"), None);
        assert_eq!(ports("127.0.0.1:8001+0"), None);
        assert_eq!(ports("127.0.0.1:8001+x"), None);
        assert_eq!(ports("127.0.0.1"), None);
    }
}
