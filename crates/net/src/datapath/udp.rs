//! A UDP socket that moves bursts and trains.
//!
//! A datagram costs the kernel 2.7 us and a system call 0.13 us of it, so that batching calls gains
//! little and only fewer, larger messages gain much: a train of equal datagrams to one peer travels
//! the kernel as one message (GSO on the way out, GRO on the way in). A lone datagram takes the
//! shortest calls there are, sendto without control messages and one recvmsg, because in a
//! ping-pong nothing else counts. Its priority is the socket's where several in a row have the
//! same, and a control message where it changes.
//!
//! | traffic | receive | send |
//! |---|---|---|
//! | sparse | one recvmsg, then back | one sendto |
//! | dense: several messages in a row without an empty call | recvmmsg of up to 64 messages | sendmmsg of up to 64 |
//! | trains | the same, split by the kernel's segment size | sendmsg with UDP_SEGMENT |
//!
//! Own calls instead of a library: the shortest calls above, the source address for raw sends and
//! the steering program are not to be had through one.
//!
//! Invariants: no datagram is ever fragmented (the DF bit is set and too large ones fail here);
//! every datagram that was not delivered or sent is in [`UdpMetrics`] with its reason; a call does
//! bounded work.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};
use tailcut_proto::node::Path;

use super::socket::{Framing, SocketPort, local_address};

/// A UDP socket of one address family.
pub type UdpPort = SocketPort<Udp>;

/// UDP adds nothing: the kernel writes and takes off its header.
#[derive(Clone, Copy, Debug)]
pub struct Udp;

impl Framing for Udp {
    #[inline]
    fn unwrap<'a>(&mut self, path: Path, bytes: &'a mut [u8]) -> Option<(Path, &'a mut [u8])> {
        Some((path, bytes))
    }

    #[inline]
    fn destination(to: SocketAddr) -> SocketAddr {
        to
    }
}

impl UdpPort {
    /// Opens a socket on `address`; port 0 lets the kernel pick one. An IPv6 socket takes no IPv4.
    /// At an unspecified IP it hears all addresses of this host, and its paths say which.
    ///
    /// # Errors
    ///
    /// What the kernel says of the address, and InvalidInput for a configuration of no buffers.
    pub fn bind(address: SocketAddr, config: UdpConfig) -> io::Result<Self> {
        let socket = open(address)?;
        socket.bind(&address.into())?;
        Self::from_socket(socket, config)
    }

    /// Sets a bound socket up.
    pub(crate) fn from_socket(socket: Socket, config: UdpConfig) -> io::Result<Self> {
        let local = local_address(&socket)?;
        Self::new(socket, local, Udp, config)
    }
}

/// How a [`UdpPort`] is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// Kernel memory for received and unread datagrams. Default 4 MiB, which holds 10,000 datagrams
    /// of 64 bytes or 3,600 of 1,400 bytes. More for a server with many clients; without
    /// CAP_NET_ADMIN the kernel cuts it to net.core.rmem_max, see
    /// [`UdpPort::receive_buffer_bytes`].
    pub receive_buffer_bytes: usize,
    /// Kernel memory for datagrams on their way to the device. Default 4 MiB: 3 ms of a 10 Gb/s
    /// link.
    pub send_buffer_bytes: usize,
    /// Longest message received, a datagram or a train. Default 64 KiB, as much as a train can
    /// have; longer ones are counted and dropped. Less saves memory where coalescing is off.
    pub message_len_max: usize,
    /// Bytes, by the kernel's own accounting, that may wait for the device: above that a driver
    /// asks its node only for what is short, so that the rest waits in the node, where what is more
    /// urgent still overtakes it. Takes the place of `send_buffer_bytes`. Default none. For Homa
    /// [`UdpConfig::HOMA_UNSENT_BYTES`]. Loopback takes everything at once.
    pub unsent_bytes_max: Option<usize>,
    /// Messages that one receive or one send moves. Default 64: above it, no call gets cheaper, and
    /// the others wait longer. Costs `message_len_max` bytes of memory each, once used.
    pub burst_max: usize,
    /// Whether trains travel as one message. Default on; off to measure one datagram a message.
    pub coalescing: Coalescing,
    /// How long a burst may wait for room in the send buffer before it is dropped. Default 1 ms, in
    /// which a 10 Gb/s link drains a third of the buffer: longer, and the peer's datagrams wait
    /// behind ours.
    pub send_wait_ns: u64,
}

impl UdpConfig {
    /// What Homa lets wait for the device: two long trains. A link of 25 Gbit/s drains them in 40
    /// us, to which the kernel's module keeps its queue.
    pub const HOMA_UNSENT_BYTES: usize = 128 << 10;
}

impl Default for UdpConfig {
    fn default() -> Self {
        Self {
            receive_buffer_bytes: 4 << 20,
            send_buffer_bytes: 4 << 20,
            unsent_bytes_max: None,
            message_len_max: 1 << 16,
            burst_max: 64,
            coalescing: Coalescing::On,
            send_wait_ns: 1_000_000,
        }
    }
}

/// Whether several datagrams may travel the kernel as one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coalescing {
    /// Trains leave by GSO and arrive by GRO.
    On,
    /// Each datagram is a message of its own.
    Off,
}

/// What a [`UdpPort`] has counted since it was bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpMetrics {
    /// Datagrams handed out.
    pub datagrams_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Messages that held more than one of them.
    pub trains_in: u64,
    /// Messages dropped because they were longer than [`UdpConfig::message_len_max`].
    pub truncated: u64,
    /// Messages dropped because the kernel named no sender.
    pub nameless: u64,
    /// Datagrams that the kernel took.
    pub datagrams_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Messages that held more than one of them.
    pub trains_out: u64,
    /// Looks that found more waiting for the device than [`UdpConfig::unsent_bytes_max`].
    pub without_room: u64,
    /// Sends that found no room in the send buffer at first.
    pub would_block: u64,
    /// Datagrams dropped because there was no room within [`UdpConfig::send_wait_ns`].
    pub dropped_full: u64,
    /// Datagrams dropped because the device's queue or the kernel's memory was full.
    pub dropped_no_buffers: u64,
    /// Datagrams dropped because they do not fit the route without fragments.
    pub dropped_too_large: u64,
    /// Datagrams dropped because there is no route or the neighbour does not answer.
    pub dropped_unreachable: u64,
    /// Datagrams dropped for another reason: a filter, an address of the other family, port 0.
    pub dropped_other: u64,
    /// Trains that the kernel refused to segment and that left as single datagrams.
    pub trains_refused: u64,
    /// ICMP errors that came back: nobody listens at the peer's port, no route there.
    pub icmp_errors: u64,
    /// Receives that failed for a reason that came from the network or the device.
    pub receive_errors: u64,
}

/// An unbound socket of the address's family.
pub(crate) fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket =
        Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use tailcut_proto::node::Transmit;

    use super::super::Datapath;
    use super::*;
    use crate::sys;

    fn loopback() -> SocketAddr {
        "127.0.0.1:0".parse().expect("an address")
    }

    #[test]
    fn a_refused_train_leaves_as_single_datagrams() {
        let mut receiver = UdpPort::bind(loopback(), UdpConfig::default()).expect("a port");
        let mut sender = UdpPort::bind(loopback(), UdpConfig::default()).expect("a port");
        // Without checksums the kernel refuses to segment.
        sys::set_int_option(sender.as_fd(), (libc::SOL_SOCKET, libc::SO_NO_CHECK), 1)
            .expect("the option");
        let train =
            Transmit { segment_len: 100, ..Transmit::single(receiver.local_address(), 250) };
        sender.send(&train, &[7; 250]);
        sender.send(&train, &[7; 250]);
        let metrics = sender.metrics();
        assert_eq!((metrics.trains_refused, metrics.trains_out, metrics.datagrams_out), (1, 0, 6));
        assert_eq!(sender.coalescing(), Coalescing::Off);
        let mut lens = Vec::new();
        while lens.len() < 6 {
            receiver.recv_burst(|_, bytes| lens.push(bytes.len())).expect("a receive");
        }
        assert_eq!(lens, [100, 100, 50, 100, 100, 50]);
    }

    #[test]
    fn a_train_to_nowhere_does_not_end_coalescing() {
        let mut sender = UdpPort::bind(loopback(), UdpConfig::default()).expect("a port");
        let to = SocketAddr::new(loopback().ip(), 0);
        sender.send(&Transmit { segment_len: 100, ..Transmit::single(to, 250) }, &[0; 250]);
        assert_eq!((sender.metrics().dropped_other, sender.coalescing()), (3, Coalescing::On));
    }

    /// Sends datagrams of 100 bytes, and returns the traffic class of each as it arrived, and how
    /// many trains there were.
    fn classes(address: &str, sends: &[(u8, usize)]) -> (Vec<Option<u8>>, u64) {
        let address: SocketAddr = address.parse().expect("an address");
        let mut receiver = UdpPort::bind(address, UdpConfig::default()).expect("a port");
        let ask = if address.is_ipv4() {
            (libc::IPPROTO_IP, libc::IP_RECVTOS)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS)
        };
        sys::set_int_option(receiver.as_fd(), ask, 1).expect("the option");
        let mut sender = UdpPort::bind(address, UdpConfig::default()).expect("a port");
        for &(priority, count) in sends {
            let single = Transmit::single(receiver.local_address(), 100 * count);
            sender.send(&Transmit { segment_len: 100, priority, ..single }, &vec![0; 100 * count]);
        }
        let mut classes = Vec::new();
        while classes.len() < sends.iter().map(|send| send.1).sum() {
            let UdpPort { receiver, socket, metrics, .. } = &mut receiver;
            let note = |_, _: &mut [u8], notes: sys::Notes<'_>| classes.push(notes.traffic_class());
            receiver.receive(socket.as_fd(), metrics, note).expect("a receive");
        }
        (classes, sender.metrics().trains_out)
    }

    #[test]
    fn the_priority_of_each_transmit_arrives_in_the_dscp_bits() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let sends: Vec<(u8, usize)> = (0..8).map(|priority| (priority, 1)).collect();
            let expected = (0..8).map(|priority| Some(priority << 5)).collect();
            assert_eq!(classes(address, &sends), (expected, 0), "{address}");
        }
    }

    #[test]
    fn a_priority_that_stays_becomes_the_sockets_and_the_others_are_still_said() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let sends =
                [vec![(7, 1); 40], vec![(0, 1), (3, 1), (7, 1), (0, 2), (7, 2)], vec![(0, 1); 40]]
                    .concat();
            let expected: Vec<_> = sends
                .iter()
                .flat_map(|&(priority, count)| vec![Some(priority << 5); count])
                .collect();
            assert_eq!(classes(address, &sends).0, expected, "{address}");
        }
    }

    #[test]
    fn all_datagrams_of_a_train_have_its_priority() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let expected = [[Some(0xe0); 3], [Some(0); 3], [Some(0x20); 3]].concat();
            assert_eq!(classes(address, &[(7, 3), (0, 3), (1, 3)]), (expected, 3), "{address}");
        }
    }

    #[test]
    fn fragments_are_forbidden() {
        let port = UdpPort::bind(loopback(), UdpConfig::default()).expect("a port");
        let mode = sys::int_option(port.as_fd(), (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER))
            .expect("the option");
        assert_eq!(mode, libc::IP_PMTUDISC_PROBE);
    }
}
