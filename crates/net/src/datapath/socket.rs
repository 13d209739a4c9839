//! Bursts over one socket, whatever stands in its datagrams: what UDP and raw IP have in common.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::Socket;
use tailcut_proto::node::{Path, Transmit};

use super::config::{SegmentedSend, UdpConfig, UdpMetrics};
use super::receive::{Account, Beside, Receiver, take_errors};
use super::send::{Queue, Sender, is_writable_within};
use super::source::Sources;
use super::{Datapath, Frame};
use crate::stamps::{Ledger, StampConfig, Stamping, Stamps, Transport};
use crate::sys;
use crate::sys::Parts;

/// The framing that a socket's protocol adds to its datagrams.
pub trait Framing {
    /// The path and the payload of what the socket has received; `None`, counted, for what is not
    /// for this datapath.
    fn unwrap<'a>(&mut self, path: Path, bytes: &'a mut [u8]) -> Option<(Path, &'a mut [u8])>;

    /// The socket address to send to for a destination.
    fn destination(to: SocketAddr) -> SocketAddr;
}

/// A bound, non-blocking socket of one address family that moves bursts.
#[derive(Debug)]
pub struct SocketPort<F> {
    /// Bound, non-blocking.
    pub(super) socket: Socket,
    /// The headers inside datagrams.
    pub(super) framing: F,
    /// The bound address, with the port as the protocol counts it.
    local: SocketAddr,
    /// Source addresses of what leaves. A socket at one address, or of a node that only asks, is
    /// not told at which address datagrams arrive.
    sources: Sources,
    /// As configured; the sender may have turned it off since.
    segmented_send: SegmentedSend,
    /// Bursts on their way in.
    pub(super) receiver: Receiver,
    /// The burst that is being gathered.
    queue: Queue,
    /// Bursts on their way out.
    sender: Sender,
    /// Transmits whose stamps are awaited; `None` without stamps.
    ledger: Option<Ledger>,
    /// As [`UdpConfig::unsent_bytes_max`].
    unsent_bytes_max: Option<usize>,
    /// Bytes queued since the kernel last said that there was room.
    unasked_bytes: usize,
    /// The counters so far, and who is gone.
    pub(super) account: Account,
}

impl<F: Framing> SocketPort<F> {
    /// Sets a bound socket up; `local` is its address with what its protocol calls a port.
    pub(super) fn new(
        socket: Socket,
        local: SocketAddr,
        framing: F,
        config: UdpConfig,
    ) -> io::Result<Self> {
        if config.burst_max == 0 || config.message_len_max == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "burst_max and message_len_max must not be 0",
            ));
        }
        set_options(&socket, &config)?;
        let sources = Sources::new(local, config.tells_local);
        if sources.tells_local {
            let option = if local.is_ipv4() {
                (libc::IPPROTO_IP, libc::IP_PKTINFO)
            } else {
                (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
            };
            sys::set_int_option(socket.as_fd(), option, 1)?;
        }
        let mut port = Self {
            socket,
            framing,
            local,
            sources,
            segmented_send: SegmentedSend::Off,
            receiver: Receiver::new(config.burst_max, config.message_len_max),
            queue: Queue::new(config.burst_max),
            sender: Sender::new(config.burst_max, config.send_wait_ns),
            ledger: None,
            unsent_bytes_max: config.unsent_bytes_max,
            unasked_bytes: 0,
            account: Account::default(),
        };
        port.set_segmented_send(config.segmented_send)?;
        Ok(port)
    }

    /// Lets GSO batches travel as one message, or not. They arrive so from when the first crowd has
    /// come from one peer: before, nothing is told beside a datagram, where nothing else has to be.
    /// A kernel without GRO or GSO is not an error: datagrams then travel alone.
    ///
    /// # Errors
    ///
    /// What the kernel says, except that it does not know the option.
    pub fn set_segmented_send(&mut self, segmented_send: SegmentedSend) -> io::Result<()> {
        self.segmented_send = segmented_send;
        self.sender.set_segmented_send(segmented_send);
        let is_bare = !self.sources.tells_local && self.ledger.is_none();
        let (beside, is_whole) = match (segmented_send, is_bare) {
            (SegmentedSend::On, true) => (Beside::Batches, false),
            (SegmentedSend::Off, true) => (Beside::Nothing, false),
            (SegmentedSend::On, false) => (Beside::All, true),
            (SegmentedSend::Off, false) => (Beside::All, false),
        };
        self.receiver.set_beside(beside);
        match sys::set_gro(self.as_fd(), is_whole) {
            Err(error) if error.raw_os_error() != Some(libc::ENOPROTOOPT) => Err(error),
            _ => Ok(()),
        }
    }

    /// The socket has been connected.
    pub(super) fn set_peer(&mut self, peer: SocketAddr) {
        self.sender.set_peer(Some(peer));
    }

    /// The present state of segmented sends: as configured, until the kernel refuses
    /// one.
    pub fn segmented_send(&self) -> SegmentedSend {
        self.sender.segmented_send()
    }

    /// Sends a datagram or a GSO batch at once, and what is queued before it. What cannot be sent
    /// is counted in [`UdpMetrics`] and dropped: the protocol recovers. A spoofed
    /// [`Transmit::from`] is for [`crate::raw`] and is not looked at.
    ///
    /// # Panics
    ///
    /// When [`Transmit::len`] is more than there are bytes or than
    /// [`tailcut_proto::node::GSO_BYTES_MAX`].
    pub fn send(&mut self, transmit: &Transmit, bytes: &[u8]) {
        self.queue.space()[..transmit.len].copy_from_slice(&bytes[..transmit.len]);
        self.queue(transmit);
        self.flush();
    }

    /// True while a stamp of a transmit may still come.
    #[inline]
    pub fn awaits_stamps(&self) -> bool {
        self.ledger.as_ref().is_some_and(Ledger::is_waiting)
    }

    /// Receives a burst, and hands out what is for this datapath.
    #[inline]
    fn receive(
        &mut self,
        mut f: impl FnMut(Path, &mut [u8], Stamps),
        stamps_of: impl Fn(&Option<Ledger>, sys::Notes<'_>) -> Stamps,
    ) -> io::Result<usize> {
        let Self { socket, framing, sources, receiver, ledger, account, .. } = self;
        let mut count = 0;
        receiver.receive(socket.as_fd(), account, |peer, bytes, notes| {
            let local = if sources.tells_local { notes.local_address() } else { None };
            if let Some((path, payload)) = framing.unwrap(Path { local, peer }, bytes) {
                count += 1;
                f(path, payload, stamps_of(ledger, notes));
            }
        })?;
        Ok(count)
    }
}

impl<F: Framing> Datapath for SocketPort<F> {
    type Metrics = UdpMetrics;

    fn local_address(&self) -> SocketAddr {
        self.local
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn metrics(&self) -> UdpMetrics {
        self.account.metrics
    }

    /// The kernel's limit, as read back from it: twice what was asked for, in its own accounting,
    /// where a datagram of 64 bytes counts 832 and one of 1,400 bytes 2,304 (measured). Small
    /// packets need a limit on their number.
    fn receive_buffer_bytes(&self) -> io::Result<usize> {
        self.socket.recv_buffer_size()
    }

    fn kernel_drops(&self) -> io::Result<u32> {
        sys::memory_info(self.as_fd()).map(|info| info[libc::SK_MEMINFO_DROPS as usize])
    }

    /// Takes one message while traffic is sparse and up to [`UdpConfig::burst_max`] while it is
    /// dense; a message is a datagram or a GSO batch.
    #[inline]
    fn recv_burst(&mut self, mut f: impl FnMut(Path, &mut [u8])) -> io::Result<usize> {
        self.receive(|path, bytes, _| f(path, bytes), |_, _| Stamps::default())
    }

    #[inline]
    fn recv_burst_stamped(&mut self, f: impl FnMut(Path, &mut [u8], Stamps)) -> io::Result<usize> {
        self.receive(f, |ledger, notes| {
            ledger.as_ref().map(|ledger| ledger.received(notes.stamps())).unwrap_or_default()
        })
    }

    /// Always [`tailcut_proto::node::GSO_BYTES_MAX`] bytes.
    #[inline]
    fn frame(&mut self, headroom: usize, tailroom: usize) -> Frame<'_> {
        Frame::new(self.queue.space(), headroom, tailroom)
    }

    /// Single datagrams leave in one burst at [`Datapath::flush`] or when the burst is full; a
    /// GSO batch leaves now, after those queued before it.
    #[inline]
    fn queue(&mut self, transmit: &Transmit) {
        self.unasked_bytes += transmit.len;
        let local = self.sources.find(transmit.from, &self.account.metrics);
        let to = F::destination(transmit.to);
        let transmit = Transmit { to, from: local.into(), ..*transmit };
        if self.queue.push(&transmit, self.sender.segmented_send()) {
            self.flush();
        }
    }

    #[inline]
    fn flush(&mut self) {
        self.queue.flush(|arena, messages| {
            self.sender.send(self.socket.as_fd(), arena, messages, &mut self.account);
        });
        if let Some(ledger) = &mut self.ledger {
            self.sender.marked().for_each(|token| ledger.handle_datagram(token));
        }
    }

    #[inline]
    fn gathers(&self) -> bool {
        self.is_segmenting()
    }

    fn queue_attached(&mut self, transmit: &Transmit, header_len: usize, payload: &[u8]) {
        self.unasked_bytes += transmit.len;
        let local = self.sources.find(transmit.from, &self.account.metrics);
        let to = F::destination(transmit.to);
        let transmit = Transmit { to, from: local.into(), ..*transmit };
        let headers_at = self.queue.space_at();
        self.flush();
        let headers = headers_at..headers_at + transmit.datagram_count() * header_len;
        assert_eq!(headers.len() + payload.len(), transmit.len, "headers and payload are all");
        let Self { socket, queue, sender, account, .. } = self;
        let parts = Parts { headers: &queue.bytes()[headers.clone()], header_len, payload };
        if !sender.send_attached(socket.as_fd(), &transmit, &parts, account) {
            // As any other GSO batch, which the kernel may refuse for more reasons than one.
            queue.join(headers, (header_len, transmit.segment_len), payload);
            if queue.push(&transmit, sender.segmented_send()) {
                self.flush();
            }
        }
    }

    #[inline]
    fn is_segmenting(&self) -> bool {
        self.sender.segmented_send() == SegmentedSend::On
    }

    /// Always, without [`UdpConfig::unsent_bytes_max`].
    #[inline]
    fn has_room(&mut self) -> bool {
        let Some(unsent_bytes_max) = self.unsent_bytes_max else { return true };
        if self.unasked_bytes * ROOM_LOOKS > unsent_bytes_max {
            if !is_writable_within(self.socket.as_fd(), 0) {
                self.account.metrics.without_room += 1;
                return false;
            }
            self.unasked_bytes = 0;
        }
        true
    }

    fn set_stamps(&mut self, config: StampConfig) -> io::Result<()> {
        if config.stamping != Stamping::Off {
            let ledger = Ledger::new(config, MARKED_MAX);
            ledger.enable(self.socket.as_fd(), Transport::Datagrams)?;
            self.queue.set_stamp_flags(ledger.send_flags());
            self.ledger = Some(ledger);
            self.set_segmented_send(self.segmented_send)?;
        }
        Ok(())
    }

    /// Takes the stamps that have come; some that come while a send fails are lost.
    #[inline]
    fn take_stamps(&mut self, mut f: impl FnMut(u64, Stamps)) {
        if self.awaits_stamps() {
            self.take_errors();
        }
        while let Some(stamp) = self.ledger.as_mut().and_then(Ledger::poll) {
            f(stamp.last, stamp.stamps);
        }
    }

    #[inline]
    fn take_refused(&mut self) -> Option<SocketAddr> {
        self.account.take_refused()
    }

    fn has_refused(&self) -> bool {
        self.account.has_refused()
    }

    /// Empties the socket's error queue, which would otherwise keep it "ready"; returns how many
    /// ICMP errors it held.
    fn take_errors(&mut self) -> usize {
        let Self { socket, account, ledger, .. } = self;
        take_errors(socket.as_fd(), account, |number, stamps| {
            ledger.iter_mut().for_each(|ledger| ledger.handle_stamp(number, stamps));
        })
    }
}

/// The address that a socket is bound to.
pub(crate) fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    let local = socket.local_addr()?.as_socket();
    local.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "the socket is not bound to an IP address")
    })
}

/// Marked transmits that a port remembers: some milliseconds of them, at 300,000 datagrams a
/// second.
const MARKED_MAX: usize = 1_024;

fn set_options(socket: &Socket, config: &UdpConfig) -> io::Result<()> {
    // A socket is writable while less than half of its buffer waits, and the kernel doubles what it
    // is told.
    let fd = socket.as_fd();
    let send_bytes = config.unsent_bytes_max.unwrap_or(config.send_buffer_bytes);
    sys::set_buffers(fd, config.receive_buffer_bytes, send_bytes)?;
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

/// Times that the kernel is asked for room while as many bytes are sent as may wait: what is sent
/// in between goes unseen.
const ROOM_LOOKS: usize = 4;
