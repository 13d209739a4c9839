//! A UDP socket that moves bursts and GSO batches.
//!
//! A datagram costs the kernel 2.7 us and a system call 0.13 us of it, so that batching calls gains
//! little and only fewer, larger messages gain much: a GSO batch of equal datagrams to one peer
//! travels the kernel as one message (GSO on the way out, GRO on the way in). A lone datagram takes
//! the shortest calls there are, sendto and recvfrom without control messages, because in a
//! ping-pong nothing else counts: a socket says where the datagrams of a GSO batch end only once
//! one seems to have come. Its priority is the socket's where several in a row have the same, and a
//! control message where it changes.
//!
//! | traffic | receive | send |
//! |---|---|---|
//! | sparse | one recvfrom, then back; one recvmsg where the socket says more, such as the address that was sent to | one sendto |
//! | dense: several messages in a row without an empty call | recvmmsg of up to 64 messages | sendmmsg of up to 64 |
//! | GSO batches | the same, split by the kernel's segment size | sendmsg with UDP_SEGMENT |
//!
//! Own calls instead of a library: the shortest calls above, the source address for raw sends and
//! the steering program are not to be had through one.
//!
//! Invariants: no datagram is ever fragmented (the DF bit is set and too large ones fail here);
//! every datagram that was not delivered or sent is in [`UdpMetrics`] with its reason; a call does
//! bounded work.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};
use tailcut_proto::node::Path;

pub use super::config::{SegmentedSend, UdpConfig, UdpMetrics};
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

    /// Hears one peer alone from now on, and sends there without the kernel looking the route up
    /// each time. For a node that waits for nobody else: what others send is answered by ICMP.
    /// Where this host's address goes that it sends from, it hears all again, at another port.
    ///
    /// # Errors
    ///
    /// What the kernel says: there is no route, say. It hears all then, as before.
    pub fn connect(&mut self, peer: SocketAddr) -> io::Result<()> {
        self.socket.connect(&peer.into())?;
        self.set_peer(peer);
        Ok(())
    }

    /// Takes a socket that somebody else has bound, such as systemd.
    ///
    /// # Errors
    ///
    /// As [`UdpPort::bind`].
    pub fn adopt(socket: UdpSocket, config: UdpConfig) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Self::from_socket(socket.into(), config)
    }

    /// Sets a bound socket up.
    pub(crate) fn from_socket(socket: Socket, config: UdpConfig) -> io::Result<Self> {
        let local = local_address(&socket)?;
        Self::new(socket, local, Udp, config)
    }
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
    use super::super::receive::Beside;
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
        let batch =
            Transmit { segment_len: 100, ..Transmit::single(receiver.local_address(), 250) };
        sender.send(&batch, &[7; 250]);
        sender.send(&batch, &[7; 250]);
        let metrics = sender.metrics();
        assert_eq!(
            (metrics.gso_batches_refused, metrics.gso_batches_out, metrics.datagrams_out),
            (1, 0, 6)
        );
        assert_eq!(sender.segmented_send(), SegmentedSend::Off);
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
        assert_eq!(
            (sender.metrics().dropped_other, sender.segmented_send()),
            (3, SegmentedSend::On)
        );
    }

    /// Sends a datagram, and then headers of 20 bytes and a payload that lies elsewhere; returns
    /// what arrives.
    fn sent_attached(sender: &mut UdpPort) -> Vec<Vec<u8>> {
        let mut receiver = UdpPort::bind(loopback(), UdpConfig::default()).expect("a port");
        let to = receiver.local_address();
        sender.frame(0, 0).payload()[0] = 9;
        sender.queue(&Transmit::single(to, 1));
        sender.frame(0, 0).payload()[..60].copy_from_slice(&[[1; 20], [2; 20], [3; 20]].concat());
        let payload: Vec<u8> = (0..250).collect();
        let transmit = Transmit { segment_len: 120, ..Transmit::single(to, 310) };
        sender.queue_attached(&transmit, 20, &payload);
        let mut arrived = Vec::new();
        while arrived.len() < 4 {
            receiver.recv_burst(|_, bytes| arrived.push(bytes.to_vec())).expect("a receive");
        }
        arrived
    }

    fn whole() -> Vec<Vec<u8>> {
        let payload: Vec<u8> = (0..250).collect();
        let datagram =
            |header: u8, from: usize, to: usize| [&[header; 20], &payload[from..to]].concat();
        vec![vec![9], datagram(1, 0, 100), datagram(2, 100, 200), datagram(3, 200, 250)]
    }

    #[test]
    fn headers_and_a_payload_that_lies_elsewhere_leave_as_datagrams() {
        let mut sender = UdpPort::bind(loopback(), UdpConfig::default()).expect("a port");
        assert_eq!(sent_attached(&mut sender), whole());
        let metrics = sender.metrics();
        assert_eq!(
            (metrics.gso_batches_out, metrics.datagrams_out, metrics.bytes_out),
            (1, 4, 311)
        );
    }

    #[test]
    fn what_the_kernel_does_not_segment_leaves_all_the_same_when_gathered() {
        let mut sender = UdpPort::bind(loopback(), UdpConfig::default()).expect("a port");
        sys::set_int_option(sender.as_fd(), (libc::SOL_SOCKET, libc::SO_NO_CHECK), 1)
            .expect("the option");
        assert_eq!(sent_attached(&mut sender), whole());
        let metrics = sender.metrics();
        assert_eq!((metrics.gso_batches_refused, metrics.datagrams_out), (1, 4));
        assert!(!sender.gathers());
    }

    /// Sends datagrams of 100 bytes, and returns the traffic class of each as it arrived, and how
    /// many GSO batches there were.
    fn classes(address: &str, sends: &[(u8, usize)]) -> (Vec<Option<u8>>, u64) {
        let address: SocketAddr = address.parse().expect("an address");
        let mut receiver = UdpPort::bind(address, UdpConfig::default()).expect("a port");
        let ask = if address.is_ipv4() {
            (libc::IPPROTO_IP, libc::IP_RECVTOS)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS)
        };
        sys::set_int_option(receiver.as_fd(), ask, 1).expect("the option");
        receiver.receiver.set_beside(Beside::All);
        let mut sender = UdpPort::bind(address, UdpConfig::default()).expect("a port");
        for &(priority, count) in sends {
            let single = Transmit::single(receiver.local_address(), 100 * count);
            sender.send(&Transmit { segment_len: 100, priority, ..single }, &vec![0; 100 * count]);
        }
        let mut classes = Vec::new();
        while classes.len() < sends.iter().map(|send| send.1).sum() {
            let UdpPort { receiver, socket, account, .. } = &mut receiver;
            let note = |_, _: &mut [u8], notes: sys::Notes<'_>| classes.push(notes.traffic_class());
            receiver.receive(socket.as_fd(), account, note).expect("a receive");
        }
        (classes, sender.metrics().gso_batches_out)
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
