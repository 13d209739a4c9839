//! Many connected UDP sockets on one thread: the client's side of protocols over UDP that are not
//! tailcut's own.
//!
//! | the owner | calls |
//! |---|---|
//! | opens a flow, a socket with one peer | [`Datagrams::open`] |
//! | sends one datagram now | [`Datagrams::send`] |
//! | sends many | [`Datagrams::queue`] for each, then [`Datagrams::flush`] |
//! | receives | [`Datagrams::poll`]: [`DatagramEvent::Bytes`], and what ICMP says |
//!
//! A lone datagram takes send and recv; a flow that finds datagrams in a row is read by recvmmsg
//! until it does not; runs of queued datagrams of one flow leave by sendmmsg. A thread that polls,
//! or still spins, with few flows reads them directly, else it asks epoll. A server's side is
//! [`crate::udp::UdpPort`], which answers whoever asked.
//!
//! Invariants: a turn takes at most a burst of each ready flow; a warm thread allocates nothing;
//! what was not sent is counted in [`DatagramMetrics`] with its reason; nothing that the network
//! does fails a call.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, Socket, Type};
use tailcut_proto::node::Time;

use crate::datapath;
use crate::driver::Wait;
use crate::poller::{DIRECT_MAX, Interest, Poller, ReadySockets};
use crate::stamps::{Ledger, SentStamp, StampConfig, Stamping, Stamps, Transport};
use crate::sys::{self, NetworkError, Outgoing, ReceiveBatch, SendBatch};
pub use crate::waker::Waker;

/// The flows of one thread.
#[derive(Debug)]
pub struct Datagrams {
    /// By id; none is ever closed.
    flows: Vec<Flow>,
    /// Descriptors and wait of the thread; flows have the keys of their ids.
    poller: Poller,
    /// Buffers of received bursts.
    receiver: ReceiveBatch,
    /// The buffer of a lone datagram: a byte more than it may have.
    buffer: Vec<u8>,
    /// Datagrams that the next flush sends.
    queue: Queue,
    /// Headers of sent bursts.
    sender: SendBatch,
    /// Limits, as configured.
    config: DatagramConfig,
    /// The counters, but for sleeps, which [`Poller`] counts.
    metrics: DatagramMetrics,
}

/// Names a flow of its [`Datagrams`]: counted from 0 in the order they were opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(u32);

impl FlowId {
    /// The flow's number.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An event of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramEvent<'a> {
    /// A datagram of the peer's has arrived, and when; that is nothing without
    /// [`DatagramConfig::stamps`].
    Bytes(&'a [u8], Stamps),
    /// A datagram that was marked has left. Both its numbers are the tag that it was given.
    Sent(SentStamp),
    /// Nobody listens at the peer's port: ICMP has answered one of our datagrams, nobody says
    /// which.
    Refused,
    /// ICMP says that the peer cannot be reached.
    Unreachable,
}

/// Configuration of [`Datagrams`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramConfig {
    /// Flows that may be opened. Default 4,096.
    pub flows_max: usize,
    /// Longest datagram received; longer ones are counted and dropped. Default 64 KiB, the longest
    /// there is.
    pub datagram_len_max: usize,
    /// Datagrams that one receive or one send moves. Default 64, as for
    /// [`crate::udp::UdpConfig::burst_max`].
    pub burst_max: usize,
    /// Kernel memory for each flow's unread datagrams. Default 4 MiB; cut to net.core.rmem_max
    /// without CAP_NET_ADMIN.
    pub receive_buffer_bytes: usize,
    /// Kernel memory for each flow's datagrams on their way to the device. Default 4 MiB.
    pub send_buffer_bytes: usize,
    /// Longest time that a datagram may wait for room in the send buffer before it is dropped.
    /// Default 1 ms.
    pub send_wait_ns: u64,
    /// Timestamps of flows. Default none.
    pub stamps: StampConfig,
}

impl Default for DatagramConfig {
    fn default() -> Self {
        Self {
            flows_max: 4_096,
            datagram_len_max: 1 << 16,
            burst_max: 64,
            receive_buffer_bytes: 4 << 20,
            send_buffer_bytes: 4 << 20,
            send_wait_ns: 1_000_000,
            stamps: StampConfig::default(),
        }
    }
}

/// Counters of [`Datagrams`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramMetrics {
    /// Datagrams handed out.
    pub datagrams_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Datagrams dropped because they were longer than [`DatagramConfig::datagram_len_max`].
    pub truncated: u64,
    /// Datagrams that the kernel took.
    pub datagrams_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Sends that found no room in the send buffer at first.
    pub would_block: u64,
    /// Datagrams dropped because there was no room within [`DatagramConfig::send_wait_ns`].
    pub dropped_full: u64,
    /// Datagrams dropped because they are longer than a datagram can be.
    pub dropped_too_large: u64,
    /// Datagrams dropped for another reason: no route, no memory, a filter.
    pub dropped_other: u64,
    /// ICMP errors that came back.
    pub icmp_errors: u64,
    /// Times that the thread was put to sleep.
    pub sleeps: u64,
}

/// A socket with its peer.
#[derive(Debug)]
struct Flow {
    /// Non-blocking, and connected where `to` is not set.
    socket: UdpSocket,
    /// Destination of its datagrams, of a flow that takes answers from anybody.
    to: Option<SocketAddr>,
    /// Receives in a row that found one datagram.
    streak: u32,
    /// Ask for a whole burst next time.
    is_dense: bool,
    /// There when the flow has stamps.
    ledger: Option<Ledger>,
    /// Datagrams are wanted with their stamps.
    reads_stamps: bool,
    /// The socket hands stamps over.
    hands_stamps: bool,
}

/// Senders whose datagrams a flow takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    OfPeer,
    OfAnybody,
}

/// Datagrams that wait for [`Datagrams::flush`].
#[derive(Debug)]
struct Queue {
    /// Bytes of all messages, one behind the other.
    arena: Vec<u8>,
    /// The flow of each message.
    flows: Vec<FlowId>,
    /// Each inside the arena, in the order queued.
    messages: Vec<Outgoing>,
}

impl Datagrams {
    /// No flows yet.
    ///
    /// # Errors
    ///
    /// What the kernel says when it gives no descriptor for epoll or for the waker, and
    /// InvalidInput for a configuration of no buffers.
    pub fn new(wait: Wait, config: DatagramConfig) -> io::Result<Self> {
        if config.burst_max == 0 || config.datagram_len_max == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "burst_max and datagram_len_max must not be 0",
            ));
        }
        Ok(Self {
            flows: Vec::new(),
            poller: Poller::new(wait)?,
            receiver: ReceiveBatch::new(config.burst_max, config.datagram_len_max),
            // One more, to tell a datagram that is too long.
            buffer: vec![0; config.datagram_len_max + 1],
            queue: Queue::new(config.burst_max),
            sender: SendBatch::new(config.burst_max),
            config,
            metrics: DatagramMetrics::default(),
        })
    }

    /// Opens a flow to a peer, from an address and a port that the kernel picks. Nothing is sent.
    ///
    /// # Errors
    ///
    /// What this host says: no descriptors, no route, [`DatagramConfig::flows_max`] reached.
    pub fn open(&mut self, to: SocketAddr) -> io::Result<FlowId> {
        self.open_flow(to, Answers::OfPeer)
    }

    /// As [`Datagrams::open`], but for a flow that takes what comes from any address: for protocols
    /// whose answers come from another than was asked. Whoever owns it must know its answers.
    ///
    /// # Errors
    ///
    /// As [`Datagrams::open`].
    pub fn open_unconnected(&mut self, to: SocketAddr) -> io::Result<FlowId> {
        self.open_flow(to, Answers::OfAnybody)
    }

    fn open_flow(&mut self, to: SocketAddr, answers: Answers) -> io::Result<FlowId> {
        if self.flows.len() >= self.config.flows_max {
            return Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "as many flows as are permitted",
            ));
        }
        let socket =
            Socket::new(Domain::for_address(to), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        let DatagramConfig { receive_buffer_bytes, send_buffer_bytes, .. } = self.config;
        sys::set_buffers(socket.as_fd(), receive_buffer_bytes, send_buffer_bytes)?;
        // The kernel would otherwise keep to itself all that ICMP says but of a port where nobody
        // listens.
        match to {
            SocketAddr::V4(_) => {
                sys::set_int_option(socket.as_fd(), (libc::IPPROTO_IP, libc::IP_RECVERR), 1)?
            }
            SocketAddr::V6(_) => {
                sys::set_int_option(socket.as_fd(), (libc::IPPROTO_IPV6, libc::IPV6_RECVERR), 1)?
            }
        }
        match answers {
            Answers::OfPeer => socket.connect(&to.into())?,
            Answers::OfAnybody => socket.bind(&unspecified(to).into())?,
        }
        let stamped = self.config.stamps.stamping != Stamping::Off;
        let ledger = stamped.then(|| Ledger::new(self.config.stamps, MARKED_MAX));
        ledger
            .as_ref()
            .map_or(Ok(()), |ledger| ledger.enable(socket.as_fd(), Transport::Datagrams))?;
        let id = FlowId(self.flows.len() as u32);
        self.poller.add(socket.as_fd(), u64::from(id.0), Interest::IN)?;
        self.flows.push(Flow {
            socket: socket.into(),
            to: (answers == Answers::OfAnybody).then_some(to),
            streak: 0,
            is_dense: false,
            reads_stamps: stamped,
            hands_stamps: stamped,
            ledger,
        });
        Ok(id)
    }

    /// This end's address of a flow.
    ///
    /// # Errors
    ///
    /// What the kernel says; nothing is known to make it fail.
    ///
    /// # Panics
    ///
    /// For a flow of other [`Datagrams`].
    pub fn local_address(&self, flow: FlowId) -> io::Result<SocketAddr> {
        self.flows[flow.index()].socket.local_addr()
    }

    /// Datagrams of a flow that the kernel dropped before they were read, because the receive
    /// buffer was full or a checksum was wrong. A system call: for reports, not for the data path.
    ///
    /// # Errors
    ///
    /// What the kernel says; nothing is known to make it fail.
    ///
    /// # Panics
    ///
    /// For a flow of other [`Datagrams`].
    pub fn kernel_drops(&self, flow: FlowId) -> io::Result<u32> {
        sys::memory_info(self.flows[flow.index()].socket.as_fd())
            .map(|info| info[libc::SK_MEMINFO_DROPS as usize])
    }

    /// Flows that have been opened.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// None has been opened.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// The counters so far.
    pub fn metrics(&self) -> DatagramMetrics {
        DatagramMetrics { sleeps: self.poller.sleeps, ..self.metrics }
    }

    /// The waker by which other threads end this thread's sleep.
    pub fn waker(&self) -> Waker {
        self.poller.waker()
    }

    /// Sends one datagram now, by the shortest way. What cannot be sent is counted and dropped.
    ///
    /// # Panics
    ///
    /// For a flow of other [`Datagrams`].
    #[inline]
    pub fn send(&mut self, flow: FlowId, bytes: &[u8]) {
        self.poller.note_sent();
        match self.flows[flow.index()].send(bytes) {
            Ok(_) => count_sent(bytes.len(), &mut self.metrics),
            Err(error) => {
                self.queue(flow, bytes);
                self.retry(self.queue.messages.len() - 1, &error);
                self.queue.pop();
            }
        }
    }

    /// Queues a datagram until [`Datagrams::flush`], or until the burst is full.
    ///
    /// # Panics
    ///
    /// For a datagram of more than 65,535 bytes.
    #[inline]
    pub fn queue(&mut self, flow: FlowId, bytes: &[u8]) {
        assert!(bytes.len() <= DATAGRAM_LEN_MAX, "the length of a datagram is a number of 16 bits");
        if !self.queue.has_room(bytes.len(), self.config.burst_max) {
            self.flush();
        }
        self.queue.push(flow, self.flows[flow.index()].to, bytes);
    }

    /// Nothing waits for [`Datagrams::flush`].
    pub fn is_flushed(&self) -> bool {
        self.queue.messages.is_empty()
    }

    /// As [`Datagrams::queue`], for a datagram that is to be stamped: [`DatagramEvent::Sent`]
    /// follows, if it follows at all, with `tag`, which the owner chooses. Costs the kernel about 1
    /// us, so that one datagram in 16 is enough. Without [`DatagramConfig::stamps`] it is not
    /// stamped.
    ///
    /// # Panics
    ///
    /// As [`Datagrams::queue`], and for a flow of other [`Datagrams`].
    #[inline]
    pub fn queue_stamped(&mut self, flow: FlowId, tag: u64, bytes: &[u8]) {
        self.resume_stamps(flow);
        self.queue(flow, bytes);
        let flow = &mut self.flows[flow.index()];
        if let (Some(ledger), Some(message)) = (&flow.ledger, self.queue.messages.last_mut()) {
            (message.stamp_flags, message.tag) = (ledger.send_flags(), tag);
            flow.reads_stamps = true;
        }
    }

    /// Undoes [`Datagrams::pause_stamps`], as [`Datagrams::queue_stamped`] does too: for an owner
    /// who takes the time in between.
    ///
    /// # Panics
    ///
    /// For a flow of other [`Datagrams`].
    #[inline]
    pub fn resume_stamps(&mut self, flow: FlowId) {
        let flow = &mut self.flows[flow.index()];
        if let Some(ledger) = flow.ledger.as_ref().filter(|_| !flow.hands_stamps) {
            flow.hands_stamps = ledger.resume(flow.socket.as_fd()).is_ok();
        }
    }

    /// Until the next [`Datagrams::queue_stamped`] a flow's datagrams are received without stamps,
    /// which costs the kernel and the reader less: for an owner who awaits the answer to nothing
    /// that is stamped. Where datagrams are dense they have them all the same.
    ///
    /// # Panics
    ///
    /// For a flow of other [`Datagrams`].
    #[inline]
    pub fn pause_stamps(&mut self, flow: FlowId) {
        let flow = &mut self.flows[flow.index()];
        flow.reads_stamps = false;
        if let Some(ledger) =
            flow.ledger.as_ref().filter(|ledger| flow.hands_stamps && !ledger.is_waiting())
        {
            flow.hands_stamps = ledger.pause(flow.socket.as_fd()).is_err();
        }
    }

    /// Sends what is queued. What cannot be sent is counted and dropped.
    ///
    /// # Panics
    ///
    /// When a flow of other [`Datagrams`] was queued for.
    #[inline]
    pub fn flush(&mut self) {
        let mut first = 0;
        if !self.is_flushed() {
            self.poller.note_sent();
        }
        while first < self.queue.messages.len() {
            let flow = self.queue.flows[first];
            let run = self.queue.flows[first..].iter().take_while(|&&other| other == flow).count();
            match self.attempt(first, run) {
                Ok(sent) => first += sent,
                Err(error) => {
                    self.retry(first, &error);
                    first += 1;
                }
            }
        }
        self.queue.clear();
    }

    /// Tells `f` what has happened, and returns how often. When nothing has, a thread that blocks
    /// sleeps until something does, until `until` (`None` for never), or until a [`Waker`] ends it;
    /// one that polls looks a few times, up to `until`. May return 0 for no reason. What is queued
    /// is not sent by this.
    ///
    /// # Errors
    ///
    /// Only what makes a socket or epoll useless.
    #[inline]
    pub fn poll<F>(&mut self, until: Option<Time>, mut f: F) -> io::Result<usize>
    where
        F: FnMut(FlowId, DatagramEvent<'_>),
    {
        self.poll_turns(until, &mut f)
    }

    /// Receives one datagram or one burst.
    #[inline]
    fn receive<F>(&mut self, id: FlowId, f: &mut F) -> io::Result<usize>
    where
        F: FnMut(FlowId, DatagramEvent<'_>),
    {
        let flow = &mut self.flows[id.index()];
        let received = match (flow.reads_stamps, flow.is_dense) {
            (_, true) => self.receiver.receive_many(flow.socket.as_fd()),
            (true, false) => self.receiver.receive_one(flow.socket.as_fd()).map(|()| 1),
            (false, false) => flow.socket.recv(&mut self.buffer).map(|len| {
                let is_truncated = len > self.config.datagram_len_max;
                if count_received(len, is_truncated, &mut self.metrics) {
                    f(id, DatagramEvent::Bytes(&self.buffer[..len], Stamps::default()));
                }
                0
            }),
        };
        match received {
            Ok(many) => {
                (0..many).for_each(|index| {
                    let message = self.receiver.message(index);
                    let stamps = flow
                        .ledger
                        .as_ref()
                        .map(|ledger| ledger.received(message.notes.stamps()))
                        .unwrap_or_default();
                    if count_received(message.bytes.len(), message.is_truncated, &mut self.metrics)
                    {
                        f(id, DatagramEvent::Bytes(&*message.bytes, stamps));
                    }
                });
                Ok(flow.adapt(many))
            }
            Err(error) => {
                (flow.streak, flow.is_dense) = (0, false);
                self.handle_receive_error(id, error, f)
            }
        }
    }

    /// Nothing waits, or ICMP has spoken, or the socket is useless.
    fn handle_receive_error<F>(
        &mut self,
        id: FlowId,
        error: io::Error,
        f: &mut F,
    ) -> io::Result<usize>
    where
        F: FnMut(FlowId, DatagramEvent<'_>),
    {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(0),
            Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::EINVAL) => Err(error),
            _ => Ok(self.take_errors(id, f)),
        }
    }

    /// Empties a flow's error queue, at most 64 entries a call so that the work is bounded.
    fn take_errors<F>(&mut self, id: FlowId, f: &mut F) -> usize
    where
        F: FnMut(FlowId, DatagramEvent<'_>),
    {
        let mut events = 0;
        for _ in 0..ERRORS_MAX {
            match sys::take_error(self.flows[id.index()].socket.as_fd()) {
                Ok(NetworkError::Icmp(number, _)) => {
                    self.metrics.icmp_errors += 1;
                    events += 1;
                    let is_refused = number == libc::ECONNREFUSED;
                    f(
                        id,
                        if is_refused {
                            DatagramEvent::Refused
                        } else {
                            DatagramEvent::Unreachable
                        },
                    );
                }
                Ok(NetworkError::Stamp(number, stamps)) => {
                    self.flows[id.index()]
                        .ledger
                        .iter_mut()
                        .for_each(|ledger| ledger.handle_stamp(number, stamps));
                }
                Ok(NetworkError::Local) => {}
                Err(_) => break,
            }
        }
        while let Some(stamp) = self.flows[id.index()].ledger.as_mut().and_then(Ledger::poll) {
            f(id, DatagramEvent::Sent(stamp));
            events += 1;
        }
        events
    }

    /// One system call for as many datagrams of a run as the kernel takes.
    #[inline]
    fn attempt(&mut self, first: usize, run: usize) -> io::Result<usize> {
        let Queue { arena, flows, messages } = &self.queue;
        let flow = &mut self.flows[flows[first].index()];
        let sent = match &messages[first..first + run] {
            [only] if only.stamp_flags == 0 => {
                flow.send(&arena[only.offset..only.offset + only.len]).map(|_| 1)?
            }
            many => self.sender.send(flow.socket.as_fd(), arena, many)?,
        };
        let ledger = &mut flow.ledger;
        for message in &messages[first..first + sent] {
            count_sent(message.len, &mut self.metrics);
            if let (Some(ledger), true) = (ledger.as_mut(), message.stamp_flags != 0) {
                ledger.handle_datagram(message.tag);
            }
        }
        Ok(sent)
    }

    /// One more attempt, after room was made or because the error was an earlier datagram's; then
    /// counts.
    #[cold]
    fn retry(&mut self, index: usize, error: &io::Error) {
        let fd = self.flows[self.queue.flows[index].index()].socket.as_fd();
        let another = match error.raw_os_error() {
            Some(libc::EAGAIN) => {
                self.metrics.would_block += 1;
                datapath::is_writable_within(fd, self.config.send_wait_ns)
            }
            // What ICMP said of an earlier datagram: the error queue has it too, which the next
            // poll tells.
            Some(libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EINTR) => true,
            _ => false,
        };
        let number = match another.then(|| self.attempt(index, 1)) {
            Some(Ok(_)) => return,
            Some(Err(last)) => last.raw_os_error(),
            None => error.raw_os_error(),
        };
        let counter = match number {
            Some(libc::EAGAIN) => &mut self.metrics.dropped_full,
            Some(libc::EMSGSIZE) => &mut self.metrics.dropped_too_large,
            _ => &mut self.metrics.dropped_other,
        };
        *counter += 1;
    }
}

impl<F: FnMut(FlowId, DatagramEvent<'_>)> ReadySockets<F> for Datagrams {
    fn poller(&mut self) -> &mut Poller {
        &mut self.poller
    }

    #[inline]
    fn turn(&mut self, spins: bool, f: &mut F) -> io::Result<usize> {
        let mut events = 0;
        if spins && self.flows.len() <= DIRECT_MAX {
            for index in 0..self.flows.len() {
                if self.flows[index].ledger.as_ref().is_some_and(Ledger::is_waiting) {
                    events += self.take_errors(FlowId(index as u32), f);
                }
                events += self.receive(FlowId(index as u32), f)?;
            }
            return Ok(events);
        }
        for index in 0..self.poller.look()? {
            let ready = self.poller.ready(index);
            let id = FlowId(ready.key as u32);
            if ready.has_error() {
                events += self.take_errors(id, f);
            }
            if ready.is_readable() {
                events += self.receive(id, f)?;
            }
        }
        Ok(events)
    }
}

impl Flow {
    #[inline]
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.to {
            Some(to) => self.socket.send_to(bytes, to),
            None => self.socket.send(bytes),
        }
    }

    /// Guesses from what a receive found (0 for one datagram by recv) whether the next finds many;
    /// returns what it found.
    #[inline]
    fn adapt(&mut self, many: usize) -> usize {
        if self.is_dense {
            (self.streak, self.is_dense) = (0, many > 1);
            return many;
        }
        self.streak += 1;
        self.is_dense = self.streak >= DENSE_AFTER;
        1
    }
}

impl Queue {
    fn new(burst_max: usize) -> Self {
        let (flows, messages) = (Vec::with_capacity(burst_max), Vec::with_capacity(burst_max));
        Self { arena: Vec::with_capacity(ARENA_LEN), flows, messages }
    }

    #[inline]
    fn has_room(&self, len: usize, burst_max: usize) -> bool {
        self.messages.len() < burst_max && self.arena.len() + len <= ARENA_LEN
    }

    #[inline]
    fn push(&mut self, flow: FlowId, to: Option<SocketAddr>, bytes: &[u8]) {
        let (offset, len) = (self.arena.len(), bytes.len());
        self.arena.extend_from_slice(bytes);
        self.flows.push(flow);
        let message = Outgoing {
            from: None,
            to,
            offset,
            len,
            segment_len: len,
            traffic_class: 0,
            stamp_flags: 0,
            tag: 0,
        };
        self.messages.push(message);
    }

    fn pop(&mut self) {
        self.flows.pop();
        if let Some(message) = self.messages.pop() {
            self.arena.truncate(message.offset);
        }
    }

    #[inline]
    fn clear(&mut self) {
        self.arena.clear();
        self.flows.clear();
        self.messages.clear();
    }
}

/// Any address of this host, of the family of another.
fn unspecified(to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// Counts a datagram that came in; tells whether it is whole and to be handed out.
#[inline]
fn count_received(len: usize, is_truncated: bool, metrics: &mut DatagramMetrics) -> bool {
    if is_truncated {
        metrics.truncated += 1;
        return false;
    }
    metrics.datagrams_in += 1;
    metrics.bytes_in += len as u64;
    true
}

#[inline]
fn count_sent(len: usize, metrics: &mut DatagramMetrics) {
    metrics.datagrams_out += 1;
    metrics.bytes_out += len as u64;
}

/// Datagrams found in a row before a burst is asked for, as for [`crate::udp`].
const DENSE_AFTER: u32 = 4;

/// Marked datagrams that a flow remembers: some milliseconds of them, at one in sixteen of 300,000
/// a second.
const MARKED_MAX: usize = 256;

/// Entries of one flow's error queue taken in a turn.
const ERRORS_MAX: usize = 64;

/// Bytes that may be queued: two of the longest datagrams.
const ARENA_LEN: usize = 1 << 17;

const DATAGRAM_LEN_MAX: usize = 65_535;
