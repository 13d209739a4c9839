//! What a node is driven over: a UDP port, or Homa's own protocol over IP.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use tailcut_proto::node::Transmit;

use crate::ip::IpPort;
use crate::stamps::{StampConfig, Stamps};
use crate::udp::{UdpMetrics, UdpPort};

/// A port of either kind. What its methods do is said at [`UdpPort`].
#[derive(Debug)]
pub enum Port {
    /// Datagrams over UDP.
    Udp(UdpPort),
    /// Homa packets directly over IP.
    Ip(IpPort),
}

impl From<UdpPort> for Port {
    fn from(port: UdpPort) -> Self {
        Self::Udp(port)
    }
}

impl From<IpPort> for Port {
    fn from(port: IpPort) -> Self {
        Self::Ip(port)
    }
}

impl Port {
    /// The address it is bound to, with the port that was picked.
    pub fn local_address(&self) -> SocketAddr {
        match self {
            Self::Udp(port) => port.local_address(),
            Self::Ip(port) => port.local_address(),
        }
    }

    /// The socket, to wait on.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.bursts().as_fd()
    }

    /// What has been counted so far.
    pub fn metrics(&self) -> UdpMetrics {
        self.bursts().metrics()
    }

    /// As [`UdpPort::kernel_drops`].
    ///
    /// # Errors
    ///
    /// As [`UdpPort::kernel_drops`].
    pub fn kernel_drops(&self) -> io::Result<u32> {
        self.bursts().kernel_drops()
    }

    /// As [`UdpPort::receive_buffer_bytes`].
    ///
    /// # Errors
    ///
    /// As [`UdpPort::receive_buffer_bytes`].
    pub fn receive_buffer_bytes(&self) -> io::Result<usize> {
        self.bursts().receive_buffer_bytes()
    }

    /// As [`UdpPort::set_stamps`].
    ///
    /// # Errors
    ///
    /// As [`UdpPort::set_stamps`].
    pub fn set_stamps(&mut self, config: StampConfig) -> io::Result<()> {
        self.bursts_mut().set_stamps(config)
    }

    #[inline]
    pub(crate) fn recv_burst(&mut self, f: impl FnMut(SocketAddr, &mut [u8])) -> io::Result<usize> {
        match self {
            Self::Udp(port) => port.recv_burst(f),
            Self::Ip(port) => port.recv_burst(f),
        }
    }

    #[inline]
    pub(crate) fn recv_burst_stamped(
        &mut self,
        f: impl FnMut(SocketAddr, &mut [u8], Stamps),
    ) -> io::Result<usize> {
        match self {
            Self::Udp(port) => port.recv_burst_stamped(f),
            Self::Ip(port) => port.recv_burst_stamped(f),
        }
    }

    #[inline]
    pub(crate) fn take_stamps(&mut self, f: impl FnMut(u64, Stamps)) {
        self.bursts_mut().take_stamps(f);
    }

    pub(crate) fn take_errors(&mut self) {
        self.bursts_mut().take_errors();
    }

    #[inline]
    pub(crate) fn space(&mut self) -> &mut [u8] {
        self.bursts_mut().space()
    }

    #[inline]
    pub(crate) fn queue(&mut self, transmit: &Transmit) {
        match self {
            Self::Udp(port) => port.queue(transmit),
            Self::Ip(port) => port.queue(transmit),
        }
    }

    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        self.bursts_mut().has_room()
    }

    #[inline]
    pub(crate) fn flush(&mut self) {
        self.bursts_mut().flush();
    }

    #[inline]
    fn bursts(&self) -> &UdpPort {
        match self {
            Self::Udp(port) => port,
            Self::Ip(port) => port.bursts(),
        }
    }

    #[inline]
    fn bursts_mut(&mut self) -> &mut UdpPort {
        match self {
            Self::Udp(port) => port,
            Self::Ip(port) => port.bursts_mut(),
        }
    }
}
