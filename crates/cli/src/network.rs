//! Ranges of addresses, and polling, as arguments.

use std::fmt;
use std::net::SocketAddr;

use anyhow::{Result, anyhow, bail};
pub(crate) use tailcut_instrument::network::resolve;
use tailcut_net::driver::Wait;

/// How a command waits for the network.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Polling {
    /// Poll without ever sleeping: shortest latency, takes a whole core
    #[arg(long)]
    busy_poll: bool,
    /// Time to keep polling after the last traffic before sleeping, in nanoseconds, where traffic
    /// often comes as soon as that; 0 where client and server share a core
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
            write!(f, "spin up to {} ns, then sleep", self.spin_ns)
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
