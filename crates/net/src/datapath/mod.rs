//! Datapaths: what moves datagrams between nodes and the network.
//!
//! | implementation | datagrams are |
//! |---|---|
//! | [`UdpPort`] | UDP's, in bursts and GSO batches |
//! | [`IpPort`] | packets of Homa's IP protocol, or of TCP's in its disguise |
//! | [`XdpPort`] | either of UDP's or Homa's, past the kernel's stack (AF_XDP) |
//!
//! [`AnyDatapath`] is one of them, chosen when a program starts; a driver of nodes is generic, so
//! that nothing is dispatched for a packet. `docs/adding-a-datapath.md` says how another is added.
//!
//! Invariants: what arrives from the network makes no call fail, it is counted instead; a datagram
//! whose path says at which of this host's addresses it arrived can be answered from there.

mod config;
pub mod ip;
mod receive;
mod send;
mod socket;
mod source;
pub mod udp;
pub mod xdp;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use tailcut_proto::node::{Path, Transmit};

use self::ip::IpPort;
pub(crate) use self::send::is_writable_within;
pub(crate) use self::source::routed_source;
use self::udp::{UdpMetrics, UdpPort};
use self::xdp::XdpPort;
use crate::stamps::{StampConfig, Stamps};

/// Moves datagrams at one address of this host, or at all of them.
///
/// A turn of its owner: [`Datapath::recv_burst`]; then any number of times [`Datapath::frame`],
/// write, [`Datapath::queue`]; then [`Datapath::flush`]. Between turns it is waited on by
/// [`Datapath::as_fd`].
pub trait Datapath {
    /// Its counters.
    type Metrics: Copy + fmt::Debug;

    /// The address it is bound to, with the port that was picked. An unspecified IP stands for all
    /// addresses of this host.
    fn local_address(&self) -> SocketAddr;

    /// A descriptor that is readable when something has arrived. Reading or writing it behind the
    /// datapath's back loses datagrams.
    fn as_fd(&self) -> BorrowedFd<'_>;

    /// The counters so far.
    fn metrics(&self) -> Self::Metrics;

    /// Bytes that may arrive and wait unread, as the datapath accounts for them. Half of it is a
    /// sound window of payload bytes to grant to peers that send full packets.
    ///
    /// # Errors
    ///
    /// What the kernel says; nothing is known to make it fail.
    fn receive_buffer_bytes(&self) -> io::Result<usize>;

    /// Datagrams that were dropped before they could be read, because the receive buffer was full
    /// or a checksum was wrong. A system call: for reports, not for the data path.
    ///
    /// # Errors
    ///
    /// What the kernel says; nothing is known to make it fail.
    fn kernel_drops(&self) -> io::Result<u32>;

    /// Receives what waits, but never more than one burst, and hands each datagram to `f` with its
    /// path, in the memory that it arrived in: `f` may change it. Returns how many.
    ///
    /// # Errors
    ///
    /// Only what makes the datapath useless. Errors that come from the network are counted.
    fn recv_burst(&mut self, f: impl FnMut(Path, &mut [u8])) -> io::Result<usize>;

    /// As [`Datapath::recv_burst`], and tells when each datagram was received; the datagrams of a
    /// GRO batch have one stamp.
    ///
    /// # Errors
    ///
    /// As [`Datapath::recv_burst`].
    fn recv_burst_stamped(&mut self, f: impl FnMut(Path, &mut [u8], Stamps)) -> io::Result<usize>;

    /// Space for the next transmit, to be written before [`Datapath::queue`], in the memory that it
    /// leaves from. A layer around the node asks for room before and after, and fills it in place.
    fn frame(&mut self, headroom: usize, tailroom: usize) -> Frame<'_>;

    /// Queues what was written to [`Datapath::frame`], from its first byte on: a layer that asks
    /// for headroom fills all of it. It leaves at [`Datapath::flush`] or when the burst is full;
    /// what cannot be sent is counted and dropped, since the protocol recovers.
    ///
    /// # Panics
    ///
    /// When [`Transmit::len`] is more than the frame.
    fn queue(&mut self, transmit: &Transmit);

    /// Sends what is queued, in one burst.
    fn flush(&mut self);

    /// True if [`Datapath::queue_attached`] may be called.
    fn gathers(&self) -> bool {
        false
    }

    /// As [`Datapath::queue`], of a GSO batch whose headers were written to [`Datapath::frame`],
    /// each `header_len` bytes long, and whose payload lies elsewhere. It leaves before this
    /// returns.
    ///
    /// # Panics
    ///
    /// Where the datapath does not gather, or headers and payload are not [`Transmit::len`].
    fn queue_attached(&mut self, _transmit: &Transmit, _header_len: usize, _payload: &[u8]) {
        unreachable!("it does not gather");
    }

    /// True if a GSO batch costs about as much as a datagram. Where it does not, a turn of a driver
    /// sends fewer.
    fn is_segmenting(&self) -> bool {
        true
    }

    /// True where the device has taken so much of what was sent that more may follow.
    fn has_room(&mut self) -> bool;

    /// Asks for timestamps, once, before anything has been sent: of what is received by
    /// [`Datapath::recv_burst_stamped`], and by [`Datapath::take_stamps`] of the transmits whose
    /// [`Transmit::token`] is not 0.
    ///
    /// # Errors
    ///
    /// What the kernel says; it takes every kind on every interface, whether stamps ever arrive or
    /// not.
    fn set_stamps(&mut self, config: StampConfig) -> io::Result<()>;

    /// Hands `f` the tokens of the transmits whose stamps have come, and the stamps; a GSO batch
    /// has one.
    fn take_stamps(&mut self, f: impl FnMut(u64, Stamps));

    /// Takes the errors that keep the descriptor ready; returns how many came from the network.
    fn take_errors(&mut self) -> usize;

    /// A peer where nothing listens, by the word of its host (ICMP), each once; at most some are
    /// remembered. Anybody who knows both ends' ports can forge it.
    fn take_refused(&mut self) -> Option<SocketAddr>;

    /// True if [`Datapath::take_refused`] has a peer to give.
    fn has_refused(&self) -> bool;

    /// Takes note that a poll has found its descriptor ready, for a datapath whose descriptor
    /// stands for several that cost a system call to look at.
    fn handle_ready(&mut self) {}
}

/// Space for one transmit, with room around it for a layer that wraps what a node writes.
#[derive(Debug)]
pub struct Frame<'a> {
    /// All of it, with the room around.
    bytes: &'a mut [u8],
    /// Bytes before the node's; with `tailroom` at most all.
    headroom: usize,
    /// Bytes behind the node's.
    tailroom: usize,
}

impl<'a> Frame<'a> {
    /// Space of which so many bytes before and behind are not the node's.
    ///
    /// # Panics
    ///
    /// When that is more than there is.
    #[inline]
    pub fn new(bytes: &'a mut [u8], headroom: usize, tailroom: usize) -> Self {
        assert!(headroom + tailroom <= bytes.len(), "the room around fits the frame");
        Self { bytes, headroom, tailroom }
    }

    /// The node's space.
    #[inline]
    pub fn payload(self) -> &'a mut [u8] {
        let end = self.bytes.len() - self.tailroom;
        &mut self.bytes[self.headroom..end]
    }

    /// A payload of `len` bytes with the room on both sides of it.
    ///
    /// # Panics
    ///
    /// When the payload is longer than the node's space.
    pub fn wrapped(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[..self.headroom + len + self.tailroom]
    }
}

/// A datapath of any kind.
#[derive(Debug)]
pub enum AnyDatapath {
    /// Datagrams over UDP.
    Udp(UdpPort),
    /// Homa packets directly over IP.
    Ip(IpPort),
    /// Either past the kernel's stack.
    Xdp(Box<XdpPort>),
}

impl From<UdpPort> for AnyDatapath {
    fn from(port: UdpPort) -> Self {
        Self::Udp(port)
    }
}

impl From<IpPort> for AnyDatapath {
    fn from(port: IpPort) -> Self {
        Self::Ip(port)
    }
}

impl From<XdpPort> for AnyDatapath {
    fn from(port: XdpPort) -> Self {
        Self::Xdp(Box::new(port))
    }
}

/// Calls the same method of whichever datapath it is: once a burst or a transmit.
macro_rules! either {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match $self {
            Self::Udp(port) => port.$method($($argument),*),
            Self::Ip(port) => port.$method($($argument),*),
            Self::Xdp(port) => port.$method($($argument),*),
        }
    };
}

impl Datapath for AnyDatapath {
    type Metrics = UdpMetrics;

    fn local_address(&self) -> SocketAddr {
        either!(self.local_address())
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        either!(self.as_fd())
    }

    fn metrics(&self) -> UdpMetrics {
        either!(self.metrics())
    }

    fn receive_buffer_bytes(&self) -> io::Result<usize> {
        either!(self.receive_buffer_bytes())
    }

    fn kernel_drops(&self) -> io::Result<u32> {
        either!(self.kernel_drops())
    }

    #[inline]
    fn recv_burst(&mut self, f: impl FnMut(Path, &mut [u8])) -> io::Result<usize> {
        either!(self.recv_burst(f))
    }

    #[inline]
    fn recv_burst_stamped(&mut self, f: impl FnMut(Path, &mut [u8], Stamps)) -> io::Result<usize> {
        either!(self.recv_burst_stamped(f))
    }

    #[inline]
    fn frame(&mut self, headroom: usize, tailroom: usize) -> Frame<'_> {
        either!(self.frame(headroom, tailroom))
    }

    #[inline]
    fn queue(&mut self, transmit: &Transmit) {
        either!(self.queue(transmit));
    }

    #[inline]
    fn flush(&mut self) {
        either!(self.flush());
    }

    #[inline]
    fn gathers(&self) -> bool {
        either!(self.gathers())
    }

    #[inline]
    fn queue_attached(&mut self, transmit: &Transmit, header_len: usize, payload: &[u8]) {
        either!(self.queue_attached(transmit, header_len, payload));
    }

    #[inline]
    fn is_segmenting(&self) -> bool {
        either!(self.is_segmenting())
    }

    #[inline]
    fn has_room(&mut self) -> bool {
        either!(self.has_room())
    }

    fn set_stamps(&mut self, config: StampConfig) -> io::Result<()> {
        either!(self.set_stamps(config))
    }

    #[inline]
    fn take_stamps(&mut self, f: impl FnMut(u64, Stamps)) {
        either!(self.take_stamps(f));
    }

    fn take_errors(&mut self) -> usize {
        either!(self.take_errors())
    }

    #[inline]
    fn take_refused(&mut self) -> Option<SocketAddr> {
        either!(self.take_refused())
    }

    fn has_refused(&self) -> bool {
        either!(self.has_refused())
    }

    #[inline]
    fn handle_ready(&mut self) {
        either!(self.handle_ready());
    }
}
