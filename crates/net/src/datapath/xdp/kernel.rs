//! The kernel's socket of a port: for what does not go past the stack.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use tailcut_proto::node::{Path, Transmit};

use super::headers::UDP;
use crate::datapath::ip::IpPort;
use crate::datapath::udp::{UdpConfig, UdpMetrics, UdpPort};
use crate::datapath::{Datapath, Frame};
use crate::stamps::Stamps;

/// A socket of either kind.
#[derive(Debug)]
pub(super) enum KernelPort {
    /// A socket of UDP.
    Udp(UdpPort),
    /// A socket of Homa directly over IP.
    Ip(IpPort),
}

/// Calls the same method of whichever it is.
macro_rules! either {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match $self {
            Self::Udp(port) => port.$method($($argument),*),
            Self::Ip(port) => port.$method($($argument),*),
        }
    };
}

impl KernelPort {
    pub(super) fn udp(address: SocketAddr, config: UdpConfig) -> io::Result<Self> {
        UdpPort::bind(address, config).map(Self::Udp)
    }

    pub(super) fn ip(address: SocketAddr, config: UdpConfig) -> io::Result<Self> {
        IpPort::bind(address, config).map(Self::Ip)
    }

    /// The protocol in IP.
    pub(super) fn protocol(&self) -> u8 {
        match self {
            Self::Udp(_) => UDP,
            Self::Ip(port) => port.ip_protocol(),
        }
    }

    pub(super) fn local_address(&self) -> SocketAddr {
        either!(self.local_address())
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        either!(self.as_fd())
    }

    pub(super) fn metrics(&self) -> UdpMetrics {
        either!(self.metrics())
    }

    pub(super) fn kernel_drops(&self) -> io::Result<u32> {
        either!(self.kernel_drops())
    }

    pub(super) fn recv_burst_stamped(
        &mut self,
        f: impl FnMut(Path, &mut [u8], Stamps),
    ) -> io::Result<usize> {
        either!(self.recv_burst_stamped(f))
    }

    pub(super) fn frame(&mut self, headroom: usize, tailroom: usize) -> Frame<'_> {
        either!(self.frame(headroom, tailroom))
    }

    pub(super) fn queue(&mut self, transmit: &Transmit) {
        either!(self.queue(transmit));
    }

    pub(super) fn flush(&mut self) {
        either!(self.flush());
    }

    pub(super) fn take_errors(&mut self) -> usize {
        either!(self.take_errors())
    }

    pub(super) fn take_refused(&mut self) -> Option<SocketAddr> {
        either!(self.take_refused())
    }

    pub(super) fn has_refused(&self) -> bool {
        either!(self.has_refused())
    }
}
