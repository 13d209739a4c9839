//! Places where a serving command takes datagrams: addresses that it binds, or, with `--listen
//! systemd`, sockets that systemd has bound and keeps open while the command is restarted.

use std::net::{SocketAddr, UdpSocket};

use anyhow::{Context, Result, anyhow, bail};
use listenfd::ListenFd;
use tailcut_net::datapath::AnyDatapath;
use tailcut_net::driver::Driver;
use tailcut_net::open::Opening;
use tailcut_proto::endpoint::Endpoint;

use crate::network;

/// Place of one port.
#[derive(Debug)]
pub(crate) enum Place {
    /// An address to bind.
    Address(SocketAddr),
    /// A socket that was passed.
    Passed(UdpSocket),
}

impl Place {
    /// The places of `count` ports: consecutive ones, free ones where the port is 0, or all that
    /// systemd has passed.
    pub(crate) fn read(listen: &str, count: u16) -> Result<Vec<Self>> {
        if is_passed(listen) {
            return passed(count);
        }
        let first = network::resolve(listen)?;
        if first.port() == 0 {
            return Ok((0..count).map(|_| Self::Address(first)).collect());
        }
        let last = first.port().checked_add(count - 1);
        let last =
            last.ok_or_else(|| anyhow!("{count} ports from {} on do not exist", first.port()))?;
        let ports = first.port()..=last;
        Ok(ports.map(|port| Self::Address(SocketAddr::new(first.ip(), port))).collect())
    }

    /// The address to bind, for what is no datagram.
    pub(crate) fn address(self) -> Result<SocketAddr> {
        match self {
            Self::Address(address) => Ok(address),
            Self::Passed(_) => bail!("--listen {SYSTEMD} is for datagrams; name an address"),
        }
    }

    /// Opens a datapath there.
    pub(crate) fn open(self, opening: &Opening) -> Result<AnyDatapath> {
        match self {
            Self::Address(address) => {
                opening.bind(address).with_context(|| format!("cannot listen at {address}"))
            }
            Self::Passed(socket) => opening.adopt(socket).context(UNUSABLE),
        }
    }

    /// Opens an endpoint there.
    pub(crate) fn add(self, opening: &Opening, driver: &mut Driver<Endpoint>) -> Result<()> {
        match self {
            Self::Address(address) => {
                opening.add(driver, address).with_context(|| format!("cannot listen at {address}"))
            }
            Self::Passed(socket) => opening.add_adopted(driver, socket).context(UNUSABLE),
        }
    }
}

/// True if systemd binds what a command listens at.
pub(crate) fn is_passed(listen: &str) -> bool {
    listen == SYSTEMD
}

fn passed(count: u16) -> Result<Vec<Place>> {
    let mut passed = ListenFd::from_env();
    let len = passed.len();
    if len == 0 {
        bail!("systemd has passed no socket; start this by a socket unit, or name an address");
    }
    if count > 1 && len != usize::from(count) {
        bail!("systemd has passed {len} sockets for {count} ports; leave --ports out");
    }
    let take = |index| {
        let socket = passed.take_udp_socket(index);
        let socket = socket.context("a socket that systemd has passed is not of datagrams")?;
        socket.map(Place::Passed).context("systemd has passed a socket twice")
    };
    (0..len).map(take).collect()
}

/// Stands for an address in `--listen`.
const SYSTEMD: &str = "systemd";

const UNUSABLE: &str = "cannot use the socket that systemd has passed";
