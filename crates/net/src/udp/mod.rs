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

mod receive;
mod send;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Protocol, Socket, Type};
use tailcut_proto::node::Transmit;

use self::receive::Receiver;
pub(crate) use self::send::is_writable_within;
use self::send::{Queue, Sender};
use crate::stamps::{Ledger, StampConfig, Stamping, Stamps, Transport};
use crate::sys;

/// A bound, unconnected, non-blocking UDP socket of one address family.
#[derive(Debug)]
pub struct UdpPort {
    socket: Socket,
    local: SocketAddr,
    coalescing: Coalescing,
    receiver: Receiver,
    queue: Queue,
    sender: Sender,
    /// There when the port has stamps.
    ledger: Option<Ledger>,
    unsent_bytes_max: Option<usize>,
    /// Bytes queued since the kernel last said that there was room.
    unasked_bytes: usize,
    metrics: UdpMetrics,
}

impl UdpPort {
    /// Opens a socket on `address`; port 0 lets the kernel pick one. An IPv6 socket takes no IPv4.
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
        if config.burst_max == 0 || config.message_len_max == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "burst_max and message_len_max must not be 0",
            ));
        }
        let local = local_address(&socket)?;
        set_options(&socket, &config)?;
        let mut port = Self {
            socket,
            local,
            coalescing: Coalescing::Off,
            receiver: Receiver::new(config.burst_max, config.message_len_max),
            queue: Queue::new(config.burst_max),
            sender: Sender::new(config.burst_max, config.send_wait_ns),
            ledger: None,
            unsent_bytes_max: config.unsent_bytes_max,
            unasked_bytes: 0,
            metrics: UdpMetrics::default(),
        };
        port.set_coalescing(config.coalescing)?;
        Ok(port)
    }

    /// The address the socket is bound to, with the port that the kernel picked.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// The socket, to wait on. Reading or writing it behind the port's back loses datagrams.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What has been counted so far.
    pub fn metrics(&self) -> UdpMetrics {
        self.metrics
    }

    /// The kernel's limit on the memory of received and unread datagrams, as read back from it:
    /// twice what was asked for, in its own accounting, where a datagram of 64 bytes counts 832 and
    /// one of 1,400 bytes 2,304 (measured). Half of it is a sound window of payload bytes to grant
    /// to peers that send full packets; small packets need a limit on their number.
    ///
    /// # Errors
    ///
    /// What the kernel says; nothing is known to make it fail.
    pub fn receive_buffer_bytes(&self) -> io::Result<usize> {
        self.socket.recv_buffer_size()
    }

    /// Datagrams that the kernel dropped before the port could read them, because the receive
    /// buffer was full or a checksum was wrong. A system call: for reports, not for the data path.
    ///
    /// # Errors
    ///
    /// What the kernel says; nothing is known to make it fail.
    pub fn kernel_drops(&self) -> io::Result<u32> {
        sys::memory_info(self.as_fd()).map(|info| info[libc::SK_MEMINFO_DROPS as usize])
    }

    /// Whether trains travel as one message. A kernel without GRO or GSO is not an error: datagrams
    /// then travel alone.
    ///
    /// # Errors
    ///
    /// What the kernel says, except that it does not know the option.
    pub fn set_coalescing(&mut self, coalescing: Coalescing) -> io::Result<()> {
        self.coalescing = coalescing;
        self.sender.set_coalescing(coalescing);
        let value = i32::from(coalescing == Coalescing::On);
        match sys::set_int_option(self.as_fd(), (libc::SOL_UDP, libc::UDP_GRO), value) {
            Err(error) if error.raw_os_error() != Some(libc::ENOPROTOOPT) => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether trains leave as one message at present: as configured, until the kernel refuses one.
    pub fn coalescing(&self) -> Coalescing {
        self.sender.coalescing()
    }

    /// Receives what waits, but never more than one burst, and hands each datagram to `f` with its
    /// sender. Returns how many. Takes one message while traffic is sparse and up to `burst_max`
    /// while it is dense; a message is a datagram or a train.
    ///
    /// # Errors
    ///
    /// Only what makes the socket useless. Errors that come from the network are counted.
    #[inline]
    pub fn recv_burst(&mut self, mut f: impl FnMut(SocketAddr, &mut [u8])) -> io::Result<usize> {
        self.receiver
            .receive(self.socket.as_fd(), &mut self.metrics, |peer, bytes, _| f(peer, bytes))
    }

    /// As [`UdpPort::recv_burst`], and tells when each datagram was received; the datagrams of a
    /// train have one stamp.
    ///
    /// # Errors
    ///
    /// As [`UdpPort::recv_burst`].
    #[inline]
    pub fn recv_burst_stamped(
        &mut self,
        mut f: impl FnMut(SocketAddr, &mut [u8], Stamps),
    ) -> io::Result<usize> {
        let ledger = &self.ledger;
        self.receiver.receive(self.socket.as_fd(), &mut self.metrics, |peer, bytes, notes| {
            f(
                peer,
                bytes,
                ledger.as_ref().map(|ledger| ledger.received(notes.stamps())).unwrap_or_default(),
            );
        })
    }

    /// Gives the port timestamps, once, before it has sent anything: of what it receives by
    /// [`UdpPort::recv_burst_stamped`], and by [`UdpPort::take_stamps`] of the transmits whose
    /// [`Transmit::token`] is not 0.
    ///
    /// # Errors
    ///
    /// What the kernel says; it takes every kind on every interface, whether stamps ever arrive or
    /// not.
    pub fn set_stamps(&mut self, config: StampConfig) -> io::Result<()> {
        if config.stamping != Stamping::Off {
            let ledger = Ledger::new(config, MARKED_MAX);
            ledger.enable(self.socket.as_fd(), Transport::Datagrams)?;
            self.queue.set_stamp_flags(ledger.send_flags());
            self.ledger = Some(ledger);
        }
        Ok(())
    }

    /// Whether a stamp of a transmit may still come.
    #[inline]
    pub fn awaits_stamps(&self) -> bool {
        self.ledger.as_ref().is_some_and(Ledger::is_waiting)
    }

    /// Hands `f` the tokens of the transmits whose stamps have come, and the stamps; a train has
    /// one. Of stamps that come while a send fails some are lost.
    #[inline]
    pub fn take_stamps(&mut self, mut f: impl FnMut(u64, Stamps)) {
        if self.awaits_stamps() {
            self.take_errors();
        }
        while let Some(stamp) = self.ledger.as_mut().and_then(Ledger::poll) {
            f(stamp.last, stamp.stamps);
        }
    }

    /// Empties the socket's error queue, which would otherwise keep it "ready"; returns how many
    /// ICMP errors it held.
    pub fn take_errors(&mut self) -> usize {
        let Self { socket, metrics, ledger, .. } = self;
        take_errors(socket.as_fd(), metrics, |number, stamps| {
            ledger.iter_mut().for_each(|ledger| ledger.handle_stamp(number, stamps));
        })
    }

    /// Sends a datagram or a train at once, and what is queued before it. What cannot be sent is
    /// counted in [`UdpMetrics`] and dropped: the protocol recovers. A spoofed
    /// [`Transmit::from`] is for [`crate::raw`] and is not looked at.
    ///
    /// # Panics
    ///
    /// When [`Transmit::len`] is more than there are bytes or than
    /// [`tailcut_proto::node::TRAIN_BYTES_MAX`].
    pub fn send(&mut self, transmit: &Transmit, bytes: &[u8]) {
        self.space()[..transmit.len].copy_from_slice(&bytes[..transmit.len]);
        self.queue(transmit);
        self.flush();
    }

    /// Where to write the next datagram or train before [`UdpPort::queue`]: always
    /// [`tailcut_proto::node::TRAIN_BYTES_MAX`] bytes.
    #[inline]
    pub fn space(&mut self) -> &mut [u8] {
        self.queue.space()
    }

    /// Queues what was written to [`UdpPort::space`]. Single datagrams leave in one burst at
    /// [`UdpPort::flush`] or when the burst is full; a train leaves now, after those queued before
    /// it.
    ///
    /// # Panics
    ///
    /// When [`Transmit::len`] is more than the space.
    #[inline]
    pub fn queue(&mut self, transmit: &Transmit) {
        self.unasked_bytes += transmit.len;
        if self.queue.push(transmit, self.sender.coalescing()) {
            self.flush();
        }
    }

    /// Whether the device has taken so much of what was sent that more may follow: always, without
    /// [`UdpConfig::unsent_bytes_max`].
    #[inline]
    pub fn has_room(&mut self) -> bool {
        let Some(unsent_bytes_max) = self.unsent_bytes_max else { return true };
        if self.unasked_bytes * ROOM_LOOKS > unsent_bytes_max {
            if !is_writable_within(self.socket.as_fd(), 0) {
                self.metrics.without_room += 1;
                return false;
            }
            self.unasked_bytes = 0;
        }
        true
    }

    /// Sends what is queued, in one burst. As for [`UdpPort::send`], what cannot be sent is
    /// counted.
    #[inline]
    pub fn flush(&mut self) {
        self.queue.flush(|arena, messages| {
            self.sender.send(self.socket.as_fd(), arena, messages, &mut self.metrics);
        });
        if let Some(ledger) = &mut self.ledger {
            self.sender.marked().for_each(|token| ledger.handle_datagram(token));
        }
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

/// The address that a socket is bound to.
pub(crate) fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    let local = socket.local_addr()?.as_socket();
    local.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "the socket is not bound to an IP address")
    })
}

/// Empties the error queue, at most 64 entries a call so that the work is bounded; returns how many
/// came from the network.
fn take_errors(
    fd: BorrowedFd<'_>,
    metrics: &mut UdpMetrics,
    mut stamped: impl FnMut(u32, Stamps),
) -> usize {
    let mut count = 0;
    for entry in std::iter::from_fn(|| sys::take_error(fd).ok()).take(64) {
        match entry {
            sys::NetworkError::Icmp(_) => count += 1,
            sys::NetworkError::Stamp(number, stamps) => stamped(number, stamps),
            sys::NetworkError::Local => {}
        }
    }
    metrics.icmp_errors += count as u64;
    count
}

/// Marked transmits that a port remembers: some milliseconds of them, at 300,000 datagrams a
/// second.
const MARKED_MAX: usize = 1_024;

/// Asks for buffers of that size, as far as the process may.
pub(crate) fn set_buffers(
    socket: &Socket,
    receive_bytes: usize,
    send_bytes: usize,
) -> io::Result<()> {
    let fd = socket.as_fd();
    let receive = (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, receive_bytes);
    let send = (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, send_bytes);
    for (forced, polite, bytes) in [receive, send] {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        if sys::set_int_option(fd, (libc::SOL_SOCKET, forced), bytes).is_err() {
            sys::set_int_option(fd, (libc::SOL_SOCKET, polite), bytes)?;
        }
    }
    Ok(())
}

fn set_options(socket: &Socket, config: &UdpConfig) -> io::Result<()> {
    // A socket is writable while less than half of its buffer waits, and the kernel doubles what it
    // is told.
    set_buffers(
        socket,
        config.receive_buffer_bytes,
        config.unsent_bytes_max.unwrap_or(config.send_buffer_bytes),
    )?;
    let fd = socket.as_fd();
    // PROBE sets DF and ignores the path MTU that ICMP claims, which anybody can forge. RECVERR
    // makes the kernel tell what came back by ICMP and what the device's queue dropped, which it
    // would otherwise keep to itself.
    if local_address(socket)?.is_ipv4() {
        sys::set_int_option(
            fd,
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
            libc::IP_PMTUDISC_PROBE,
        )?;
        sys::set_int_option(fd, (libc::IPPROTO_IP, libc::IP_RECVERR), 1)
    } else {
        sys::set_int_option(
            fd,
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
            libc::IPV6_PMTUDISC_PROBE,
        )?;
        sys::set_int_option(fd, (libc::IPPROTO_IPV6, libc::IPV6_RECVERR), 1)
    }
}

/// How often the kernel is asked for room while as many bytes are sent as may wait: what is sent in
/// between goes unseen.
const ROOM_LOOKS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

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
