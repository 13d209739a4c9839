//! Many TCP connections on one thread, with or without TLS, at either end.
//!
//! | the owner | calls |
//! |---|---|
//! | opens a connection | [`Streams::connect`], then waits for [`Event::Connected`] |
//! | takes connections | [`Streams::listen`]; each begins with [`Event::Accepted`] |
//! | sends | appends to [`Streams::output`], then [`Streams::flush`] |
//! | receives, and answers at once | [`Streams::poll`]: [`Event::Bytes`], and [`Connection::output`] within the event |
//! | is done | [`Streams::close`] or [`Connection::close`]: what is unsent still leaves |
//!
//! What a connection's end means is the owner's decision: nothing connects again by itself. Bytes
//! come as the socket gives them; where a message ends is the owner's knowledge too.
//!
//! A thread that polls, or still spins, reads few connections directly; with more it asks epoll
//! what is ready, which costs one system call for all of them.
//!
//! Invariants: a turn reads each ready connection once and at most 64 KiB of it; a peer that does
//! not read is not read from either once [`StreamConfig::output_len_max`] bytes wait for it; a warm
//! thread allocates nothing, but for TLS, whose library allocates each record; nothing a peer does
//! fails a call: it ends that peer's connection with a [`Reason`].

mod link;
mod table;
mod tls;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tailcut_proto::node::{Node, Time};

use self::link::{Buffers, Link, Phase, Reading};
use self::table::Table;
pub use self::tls::{TlsClient, TlsServer, Verification};
use crate::datapath::Datapath;
use crate::driver::{Driver, Wait, Woken};
use crate::poller::{DIRECT_MAX, Interest, Poller, Ready, ReadySockets};
use crate::stamps::{SentStamp, StampConfig, Stamps};
pub use crate::waker::Waker;

/// The connections of one thread, and the ports it listens at.
#[derive(Debug)]
pub struct Streams {
    /// Connections by id.
    table: Table,
    /// By number; none is ever closed.
    listeners: Vec<Listener>,
    /// Descriptors and wait of the thread; connections have the keys of their ids, listeners
    /// [`LISTENER`] too.
    poller: Poller,
    /// Buffers that connections read through.
    buffers: Buffers,
    /// Limits and timeouts, as configured.
    config: StreamConfig,
    /// Connections that wait for room to write.
    blocked: usize,
    /// Connections that connect, greet or leave: those with a deadline.
    pending: usize,
    /// No deadline is earlier.
    next_deadline: Time,
    /// The last one that [`StreamMetrics::accepts_refused`] counts.
    refused_peer: Option<SocketAddr>,
    /// The counters, but for sleeps, which [`Poller`] counts.
    metrics: StreamMetrics,
}

/// Names a connection for as long as its [`Streams`] live: no two have the same, also after one has
/// ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId {
    /// Its slot in the table.
    index: u32,
    /// Connections that the slot had before, 31 bits.
    generation: u32,
}

impl ConnectionId {
    /// A small number that no other connection has at the same time, counted from 0: to keep the
    /// owner's part of a connection in a table. Numbers of connections that have ended are given
    /// again.
    #[inline]
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// Names a port that is listened at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(usize);

/// An event of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A connection that was asked for is open, or one that was accepted has finished its TLS
    /// handshake: it can be written.
    Connected,
    /// A peer has connected to that port. Without TLS the connection can be written; with it,
    /// [`Event::Connected`] follows.
    Accepted(ListenerId),
    /// Bytes have arrived, one or more, in order and without gaps.
    Bytes(&'a [u8]),
    /// A write that was marked by [`Streams::stamp`] or [`Connection::stamp`] has left. The numbers
    /// are offsets of bytes since the connection opened; with TLS, of the bytes that TLS made.
    Sent(SentStamp),
    /// The peer sends no more, but may still read. The owner closes when it has nothing more to
    /// say: a client at once.
    Finished,
    /// The connection has ended; its [`ConnectionId`] names nothing any more. The owner's own close
    /// is not told.
    Closed(Reason),
}

/// Reason why a connection has ended, or has never begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nobody listens at the peer's port.
    Refused,
    /// The peer, or something on the way, has cut it (RST).
    Reset,
    /// It was not open within [`StreamConfig::connect_timeout_ns`], or the kernel gave the peer up.
    TimedOut,
    /// No route to the peer, or a network or host that says it cannot be reached.
    Unreachable,
    /// The peer has ended it within the TLS handshake.
    Ended,
    /// TLS has failed: a certificate that does not verify, a peer that does not speak it, bytes
    /// that were altered.
    Tls(String),
    /// Something else: the system's error number.
    Other(i32),
}

impl Reason {
    fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ECONNREFUSED) => Self::Refused,
            Some(libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED) => Self::Reset,
            Some(libc::ETIMEDOUT) => Self::TimedOut,
            Some(libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN | libc::ENETDOWN) => {
                Self::Unreachable
            }
            number => Self::Other(number.unwrap_or(0)),
        }
    }
}

/// A connection within one of its events.
#[derive(Debug)]
pub struct Connection<'a> {
    /// Its name.
    id: ConnectionId,
    /// Its state.
    link: &'a mut Link,
}

impl Connection<'_> {
    /// Id of the connection.
    #[inline]
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// The peer.
    pub fn peer(&self) -> SocketAddr {
        self.link.peer
    }

    /// Buffer to append to what is to be sent; it leaves when the event is over. To be appended to
    /// and nothing else: what is in it may be partly on its way. There is no limit within an event:
    /// a peer that does not read is not read from either.
    #[inline]
    pub fn output(&mut self) -> &mut Vec<u8> {
        self.link.output()
    }

    /// Times at which the last packet of the bytes of this event was received; nothing without
    /// [`StreamConfig::stamps`].
    #[inline]
    pub fn received(&self) -> Stamps {
        self.link.received
    }

    /// Bytes that the socket has taken since the connection opened: the offset of the first that is
    /// unsent.
    #[inline]
    pub fn written(&self) -> u64 {
        self.link.written
    }

    /// As [`Streams::stamp`].
    #[inline]
    pub fn stamp(&mut self) {
        self.link.is_marked = true;
    }

    /// Ends the connection once what is unsent has left. No event of it follows.
    pub fn close(&mut self) {
        self.link.is_closed = true;
    }
}

/// Configuration of [`Streams`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// Connections at a time; more are refused. Default 65,536: the ports of one address. Each
    /// costs the kernel some 10 KiB.
    pub connections_max: usize,
    /// Longest time that a connection may take to open, its TLS handshake included. Default 5 s, in
    /// which TCP asks three times.
    pub connect_timeout_ns: u64,
    /// Longest time that a connection that the owner has closed may take to send the rest. Default
    /// 1 s.
    pub linger_ns: u64,
    /// Bytes that may wait for a peer that does not read. Default 1 MiB. Beyond,
    /// [`Streams::output`] gives `None` and the peer is not read from, until it reads.
    pub output_len_max: usize,
    /// Timestamps of connections. Default none.
    pub stamps: StampConfig,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            connections_max: 1 << 16,
            connect_timeout_ns: 5_000_000_000,
            linger_ns: 1_000_000_000,
            output_len_max: 1 << 20,
            stamps: StampConfig::default(),
        }
    }
}

/// Counters of [`Streams`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamMetrics {
    /// Connections asked for.
    pub connects: u64,
    /// Connections that opened: those asked for and, with TLS, those accepted.
    pub connected: u64,
    /// Connections taken at the ports listened at.
    pub accepted: u64,
    /// Connections dropped at once because there were [`StreamConfig::connections_max`].
    pub accepts_refused: u64,
    /// Accepts that failed: the system lacks descriptors or memory, or the peer was gone already.
    pub accept_errors: u64,
    /// Connections that ended otherwise than by the owner's close.
    pub failed: u64,
    /// Connections closed by the owner that had not sent everything within
    /// [`StreamConfig::linger_ns`].
    pub lingered_out: u64,
    /// Times that [`Streams::output`] gave nothing because [`StreamConfig::output_len_max`] bytes
    /// were waiting.
    pub output_full: u64,
    /// Bytes received, TLS's own included.
    pub bytes_in: u64,
    /// Bytes sent, TLS's own included.
    pub bytes_out: u64,
    /// Connections that the kernel would not give timestamps.
    pub unstamped: u64,
    /// Times that the thread was put to sleep.
    pub sleeps: u64,
}

#[derive(Debug)]
struct Listener {
    /// Listening, non-blocking.
    socket: Socket,
    /// There when its connections have TLS.
    tls: Option<TlsServer>,
    /// Not waited for, because the system lacked descriptors.
    is_paused: bool,
}

impl Streams {
    /// No connections yet.
    ///
    /// # Errors
    ///
    /// What the kernel says when it gives no descriptor for epoll or for the waker.
    pub fn new(wait: Wait, config: StreamConfig) -> io::Result<Self> {
        Ok(Self {
            table: Table::default(),
            listeners: Vec::new(),
            poller: Poller::new(wait)?,
            buffers: Buffers::new(),
            config,
            blocked: 0,
            pending: 0,
            next_deadline: Time::MAX,
            refused_peer: None,
            metrics: StreamMetrics::default(),
        })
    }

    /// Begins to connect, without waiting: [`Event::Connected`] or [`Event::Closed`] follows within
    /// [`StreamConfig::connect_timeout_ns`]. TCP_NODELAY is set: what is flushed leaves.
    ///
    /// # Errors
    ///
    /// What this host says: no descriptors, no ports, no such address family,
    /// [`StreamConfig::connections_max`] reached, a name that TLS cannot ask for. That the peer
    /// cannot be reached is an event, not an error.
    pub fn connect(&mut self, to: SocketAddr, tls: Option<&TlsClient>) -> io::Result<ConnectionId> {
        if self.table.len() >= self.config.connections_max {
            return Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "as many connections as are permitted",
            ));
        }
        let socket =
            Socket::new(Domain::for_address(to), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        socket.set_tcp_nodelay(true)?;
        let session = tls.map(|tls| tls.session(to)).transpose()?;
        let deadline = self.poller.now().saturating_add(self.config.connect_timeout_ns);
        let failed = match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => {
                Some(Reason::of(&error))
            }
            _ => None,
        };
        if let Some(Reason::Other(number)) = failed {
            return Err(io::Error::from_raw_os_error(number));
        }
        let mut link = Link::new((socket.into(), to), Phase::Connecting, session, deadline);
        if let Some(reason) = failed {
            link.doom(reason);
        }
        self.adopt(link)
    }

    /// As [`Streams::connect`], to a Unix socket. The peer's address is shown as 0.0.0.0:0.
    ///
    /// # Errors
    ///
    /// As [`Streams::connect`], and that nobody listens at the path.
    pub fn connect_unix(&mut self, path: &Path) -> io::Result<ConnectionId> {
        if self.table.len() >= self.config.connections_max {
            return Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "as many connections as are permitted",
            ));
        }
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        // It connects at once, or the peer takes no more now.
        socket.connect(&SockAddr::unix(path)?)?;
        let peer = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let deadline = self.poller.now().saturating_add(self.config.connect_timeout_ns);
        self.adopt(Link::new((socket.into(), peer), Phase::Connecting, None, deadline))
    }

    fn adopt(&mut self, link: Link) -> io::Result<ConnectionId> {
        let id = self.table.insert(link);
        self.register(id)?;
        self.metrics.connects += 1;
        Ok(id)
    }

    /// Listens at `address`; port 0 lets the kernel pick one. An IPv6 socket takes no IPv4.
    ///
    /// # Errors
    ///
    /// What the kernel says of the address.
    pub fn listen(
        &mut self,
        address: SocketAddr,
        tls: Option<TlsServer>,
    ) -> io::Result<ListenerId> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM.nonblocking(),
            Some(Protocol::TCP),
        )?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        // Connections of an earlier process that are still winding down do not keep the port.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let index = self.listeners.len();
        self.poller.add(socket.as_fd(), LISTENER | index as u64, Interest::IN)?;
        self.listeners.push(Listener { socket, tls, is_paused: false });
        Ok(ListenerId(index))
    }

    /// Listens nowhere any more: who connects from now on is refused. Connections stay, and no id
    /// of a port names anything.
    pub fn close_listeners(&mut self) {
        // A socket that is closed leaves epoll.
        self.listeners.clear();
    }

    /// The address that is listened at, with the port that the kernel picked.
    ///
    /// # Errors
    ///
    /// What the kernel says; nothing is known to make it fail.
    ///
    /// # Panics
    ///
    /// For an id of other [`Streams`].
    pub fn listen_address(&self, id: ListenerId) -> io::Result<SocketAddr> {
        let address = self.listeners[id.0].socket.local_addr()?.as_socket();
        address.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
    }

    /// True if a connection is open, and not closed by its owner.
    #[inline]
    pub fn is_open(&self, id: ConnectionId) -> bool {
        self.table.link(id).is_some_and(|link| link.phase == Phase::Open && !link.is_closed)
    }

    /// This end's address of a connection; `None` when it has ended.
    pub fn local_address(&self, id: ConnectionId) -> Option<SocketAddr> {
        self.table.link(id)?.socket.local_addr().ok()
    }

    /// Buffer to append to what is to be sent, before [`Streams::flush`]. To be appended to and
    /// nothing else. `None`, counted, when [`StreamConfig::output_len_max`] bytes wait already;
    /// `None` too for a connection that is not open.
    #[inline]
    pub fn output(&mut self, id: ConnectionId) -> Option<&mut Vec<u8>> {
        let link = self.table.link_mut(id)?;
        if link.phase != Phase::Open || link.is_closed {
            return None;
        }
        if link.unsent() >= self.config.output_len_max {
            self.metrics.output_full += 1;
            return None;
        }
        Some(link.output())
    }

    /// Offers the socket what was appended. What it does not take leaves during later polls. That
    /// the connection has failed is told by the next poll.
    #[inline]
    pub fn flush(&mut self, id: ConnectionId) {
        let Some(link) = self.table.link_mut(id) else { return };
        self.poller.note_sent();
        if link.has_fresh_output()
            && let Err(reason) = link.write(&mut self.metrics)
        {
            link.doom(reason);
        }
        self.register_changes(id);
    }

    /// Marks what is written next: until the output has been written, each write is stamped, and
    /// [`Event::Sent`] follows, if it follows at all, with the offsets that the write carried.
    /// Costs the kernel about 1 us a write, so that one send in 16 is enough. Does nothing without
    /// [`StreamConfig::stamps`].
    #[inline]
    pub fn stamp(&mut self, id: ConnectionId) {
        if let Some(link) = self.table.link_mut(id) {
            link.is_marked = true;
        }
    }

    /// Bytes that the connection's socket has taken since it opened: after a [`Streams::flush`]
    /// that left nothing unsent, one more than the offset of the last byte. With TLS, of the bytes
    /// that TLS made. 0 for one that has ended.
    #[inline]
    pub fn written(&self, id: ConnectionId) -> u64 {
        self.table.link(id).map_or(0, |link| link.written)
    }

    /// Bytes that the connection's socket has not taken yet; 0 for one that has ended.
    pub fn unsent(&self, id: ConnectionId) -> usize {
        self.table.link(id).map_or(0, Link::unsent)
    }

    /// Stops reading from a connection, or reads on. What its peer sends meanwhile waits in the
    /// sockets; an end of the connection that takes effect at once is still told.
    pub fn set_reading(&mut self, id: ConnectionId, is_reading: bool) {
        if let Some(link) = self.table.link_mut(id)
            && link.is_paused == is_reading
        {
            link.is_paused = !is_reading;
            self.register_changes(id);
        }
    }

    /// Ends a connection once what is unsent has left. No event of it follows. Harmless when it has
    /// ended.
    pub fn close(&mut self, id: ConnectionId) {
        if let Some(link) = self.table.link_mut(id) {
            link.is_closed = true;
            let settled = self.settle(id);
            if settled.is_err() {
                self.remove(id);
            }
        }
    }

    /// Connections that are open, being opened or being closed.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// The counters so far.
    pub fn metrics(&self) -> StreamMetrics {
        StreamMetrics { sleeps: self.poller.sleeps, ..self.metrics }
    }

    /// The peer whose connection was dropped last because there were
    /// [`StreamConfig::connections_max`].
    pub fn refused_peer(&self) -> Option<SocketAddr> {
        self.refused_peer
    }

    /// The waker by which other threads end this thread's sleep.
    pub fn waker(&self) -> Waker {
        self.poller.waker()
    }

    /// True if [`Streams::poll`] would not sleep, for an owner who has something to announce before
    /// a sleep, or others to look at while it spins.
    #[inline]
    pub fn keeps_turning(&mut self) -> bool {
        self.poller.keeps_turning()
    }

    /// Lets another thread have this one's core, if one wants it and that has not taken long
    /// lately; does nothing when busy-polling.
    #[inline]
    pub fn give_way(&mut self) {
        self.poller.give_way();
    }

    /// Tells `f` what has happened, and returns how often. When nothing has, a thread that blocks
    /// sleeps until something does, until `until` (`None` for never), or until a [`Waker`] ends it;
    /// one that polls looks a few times, up to `until`. May return 0 for no reason.
    ///
    /// # Errors
    ///
    /// Only what makes epoll useless. Whatever peers and the network do is an event.
    #[inline]
    pub fn poll<F>(&mut self, until: Option<Time>, mut f: F) -> io::Result<usize>
    where
        F: FnMut(&mut Connection<'_>, Event<'_>),
    {
        self.poll_turns(until, &mut f)
    }

    /// Tells `f` what has happened, and returns how often, without waiting: for an owner who waits
    /// for a driver too, by [`Streams::wait_with`], or for other descriptors, by
    /// [`Streams::as_fd`](AsFd::as_fd), until [`Streams::next_deadline`].
    ///
    /// # Errors
    ///
    /// As [`Streams::poll`].
    #[inline]
    pub fn look<F>(&mut self, mut f: F) -> io::Result<usize>
    where
        F: FnMut(&mut Connection<'_>, Event<'_>),
    {
        self.turn(false, &mut f)
    }

    /// Passes the time as [`Driver::wait`] does, until there is something to do for a driver or
    /// here, and tells for which: both are waited for and asked in one call of the kernel. Wait so
    /// with one driver alone.
    ///
    /// # Errors
    ///
    /// What the kernel says of the descriptors, and when it lacks memory.
    #[inline]
    pub fn wait_with<N: Node, D: Datapath>(
        &mut self,
        driver: &mut Driver<N, D>,
        until: Option<Time>,
    ) -> io::Result<Woken> {
        let until = self.next_deadline().into_iter().chain(until).min();
        driver.wait_by(until, |fds, timeout_ns| self.poller.sleep_among(fds, timeout_ns))
    }

    /// Time at which [`Streams::look`] has something to tell though no descriptor is ready.
    pub fn next_deadline(&self) -> Option<Time> {
        (self.pending > 0).then_some(self.next_deadline)
    }

    /// Does what a connection is ready for, and lets what its owner has written leave.
    #[inline]
    fn serve<F>(&mut self, id: ConnectionId, ready: Ready, f: &mut F) -> usize
    where
        F: FnMut(&mut Connection<'_>, Event<'_>),
    {
        let mut events = 0;
        let served = self.advance(id, ready, &mut events, f).and_then(|()| self.settle(id));
        if let Err(reason) = served {
            events += self.fail(id, reason, f);
        }
        events
    }

    #[inline]
    fn advance<F>(
        &mut self,
        id: ConnectionId,
        ready: Ready,
        events: &mut usize,
        f: &mut F,
    ) -> Result<(), Reason>
    where
        F: FnMut(&mut Connection<'_>, Event<'_>),
    {
        let Some(link) = self.table.link_mut(id) else { return Ok(()) };
        if link.phase == Phase::Connecting {
            link.handle_connected()?;
            if link.phase != Phase::Connecting && link.enable_stamps(self.config.stamps).is_err() {
                self.metrics.unstamped += 1;
            }
            if link.phase == Phase::Open {
                self.metrics.connected += 1;
                f(&mut Connection { id, link }, Event::Connected);
                *events += 1;
            }
            return Ok(());
        }
        if ready.is_writable() {
            link.handle_writable();
        }
        if ready.has_error() || (ready == Ready::DIRECT && link.awaits_stamps()) {
            *events += link.take_stamps(id, f);
        }
        let is_unwanted = ready == Ready::DIRECT && link.is_paused;
        if (ready.is_readable() || ready.has_error()) && !is_unwanted {
            let was_greeting = link.phase == Phase::Greeting;
            let reading = Reading { buffers: &mut self.buffers, metrics: &mut self.metrics };
            *events += link.read(id, reading, f)?;
            self.metrics.connected += u64::from(was_greeting && link.phase != Phase::Greeting);
        }
        Ok(())
    }

    /// Writes what is fresh, follows the owner's wish to close, and registers what is to be waited
    /// for.
    #[inline]
    fn settle(&mut self, id: ConnectionId) -> Result<(), Reason> {
        let Some(link) = self.table.link_mut(id) else { return Ok(()) };
        if link.is_closed && link.phase != Phase::Leaving {
            link.leave(self.poller.now().saturating_add(self.config.linger_ns));
        }
        if link.has_fresh_output() {
            link.write(&mut self.metrics)?;
        }
        if link.is_over() {
            self.remove(id);
        } else {
            self.register_changes(id);
        }
        Ok(())
    }

    /// Keeps epoll and the counts of what is waited for true to the connection.
    #[inline]
    fn register_changes(&mut self, id: ConnectionId) {
        let Some(link) = self.table.link_mut(id) else { return };
        if link.has_deadline() {
            self.pending += usize::from(!link.is_pending);
            self.next_deadline = self.next_deadline.min(link.deadline);
        } else {
            self.pending -= usize::from(link.is_pending);
        }
        link.is_pending = link.has_deadline();
        let (old, new) = (link.interest, link.wanted(self.config.output_len_max));
        if old != new {
            link.interest = new;
            self.blocked += usize::from(is_write(new));
            self.blocked -= usize::from(is_write(old));
            // A descriptor that is registered can be registered otherwise.
            let _ = self.poller.modify(link.as_fd(), table::key_of(id), new);
        }
    }

    fn register(&mut self, id: ConnectionId) -> io::Result<()> {
        let Some(link) = self.table.link_mut(id) else { return Ok(()) };
        link.interest = link.wanted(self.config.output_len_max);
        let added = self.poller.add(link.as_fd(), table::key_of(id), link.interest);
        if let Err(error) = added {
            self.table.remove(id);
            return Err(error);
        }
        self.blocked += usize::from(is_write(link.interest));
        self.register_changes(id);
        Ok(())
    }

    /// Tells that a connection has ended, unless its owner has ended it.
    fn fail<F>(&mut self, id: ConnectionId, reason: Reason, f: &mut F) -> usize
    where
        F: FnMut(&mut Connection<'_>, Event<'_>),
    {
        let Some(mut link) = self.remove(id) else { return 0 };
        if link.is_closed {
            return 0;
        }
        self.metrics.failed += 1;
        f(&mut Connection { id, link: &mut link }, Event::Closed(reason));
        1
    }

    fn remove(&mut self, id: ConnectionId) -> Option<Link> {
        let link = self.table.remove(id)?;
        self.blocked -= usize::from(is_write(link.interest));
        self.pending -= usize::from(link.is_pending);
        for (index, listener) in
            self.listeners.iter_mut().enumerate().filter(|(_, listener)| listener.is_paused)
        {
            let rearmed =
                self.poller.modify(listener.socket.as_fd(), LISTENER | index as u64, Interest::IN);
            listener.is_paused = rearmed.is_err();
        }
        Some(link)
    }

    /// Gives up what has been connecting, greeting or leaving for too long.
    fn expire<F>(&mut self, now: Time, f: &mut F) -> usize
    where
        F: FnMut(&mut Connection<'_>, Event<'_>),
    {
        if self.next_deadline > now {
            return 0;
        }
        let mut events = 0;
        self.next_deadline = Time::MAX;
        for index in 0..self.table.slots() {
            let Some((id, link)) = self.table.at(index).filter(|(_, link)| link.is_pending) else {
                continue;
            };
            if link.deadline > now {
                self.next_deadline = self.next_deadline.min(link.deadline);
                continue;
            }
            self.metrics.lingered_out += u64::from(link.is_closed && link.doom.is_none());
            let reason = match (&link.doom, link.socket.take_error()) {
                (Some(reason), _) => reason.clone(),
                (None, Ok(Some(error))) => Reason::of(&error),
                (None, _) => Reason::TimedOut,
            };
            events += self.fail(id, reason, f);
        }
        events
    }

    /// Takes connections that wait at a port.
    fn accept<F>(&mut self, index: usize, f: &mut F) -> usize
    where
        F: FnMut(&mut Connection<'_>, Event<'_>),
    {
        let mut events = 0;
        for _ in 0..ACCEPTS_MAX {
            // What was ready when a sleep ended may have been closed since.
            let Some(listener) = self.listeners.get(index) else { break };
            let accepted = match listener.socket.accept() {
                Ok((socket, peer)) => peer.as_socket().map(|peer| (socket, peer)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.handle_accept_error(index, &error);
                    break;
                }
            };
            let Some((socket, peer)) = accepted else { continue };
            if self.table.len() >= self.config.connections_max {
                self.metrics.accepts_refused += 1;
                self.refused_peer = Some(peer);
                continue;
            }
            match self.admit(index, socket, peer) {
                Ok(id) => events += self.announce(id, ListenerId(index), f),
                Err(_) => self.metrics.accept_errors += 1,
            }
        }
        events
    }

    fn admit(
        &mut self,
        index: usize,
        socket: Socket,
        peer: SocketAddr,
    ) -> io::Result<ConnectionId> {
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        let session = self.listeners[index].tls.as_ref().map(TlsServer::session).transpose()?;
        let phase = if session.is_some() { Phase::Greeting } else { Phase::Open };
        let deadline = self.poller.now().saturating_add(self.config.connect_timeout_ns);
        let mut link = Link::new((socket.into(), peer), phase, session, deadline);
        self.metrics.unstamped += u64::from(link.enable_stamps(self.config.stamps).is_err());
        let id = self.table.insert(link);
        self.register(id)?;
        self.metrics.accepted += 1;
        Ok(id)
    }

    fn announce<F>(&mut self, id: ConnectionId, listener: ListenerId, f: &mut F) -> usize
    where
        F: FnMut(&mut Connection<'_>, Event<'_>),
    {
        let Some(link) = self.table.link_mut(id) else { return 0 };
        f(&mut Connection { id, link }, Event::Accepted(listener));
        match self.settle(id) {
            Ok(()) => 1,
            Err(reason) => 1 + self.fail(id, reason, f),
        }
    }

    /// Without descriptors a waiting peer would end every sleep: the port rests until a connection
    /// ends.
    fn handle_accept_error(&mut self, index: usize, error: &io::Error) {
        self.metrics.accept_errors += 1;
        let is_exhausted = matches!(
            error.raw_os_error(),
            Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
        );
        let listener = &mut self.listeners[index];
        if is_exhausted && self.table.len() > 0 {
            let rested = self.poller.modify(
                listener.socket.as_fd(),
                LISTENER | index as u64,
                Interest::empty(),
            );
            listener.is_paused = rested.is_ok();
        }
    }
}

impl<F: FnMut(&mut Connection<'_>, Event<'_>)> ReadySockets<F> for Streams {
    fn poller(&mut self) -> &mut Poller {
        &mut self.poller
    }

    #[inline]
    fn turn(&mut self, spins: bool, f: &mut F) -> io::Result<usize> {
        let mut events = 0;
        if self.pending > 0 {
            events += self.expire(self.poller.now(), f);
        }
        let is_plain = self.listeners.is_empty() && self.blocked == 0 && self.pending == 0;
        if spins && is_plain && self.table.slots() <= DIRECT_MAX {
            for index in 0..self.table.slots() {
                if let Some(id) = self.table.id_at(index) {
                    events += self.serve(id, Ready::DIRECT, f);
                }
            }
            return Ok(events);
        }
        for index in 0..self.poller.look()? {
            let ready = self.poller.ready(index);
            events += match ready.key & LISTENER {
                0 => self.serve(table::id_of(ready.key), ready, f),
                _ => self.accept((ready.key & !LISTENER) as usize, f),
            };
        }
        Ok(events)
    }

    fn deadline(&self) -> Option<Time> {
        self.next_deadline()
    }
}

/// Readable while any connection or port is ready for what it is waited for.
impl AsFd for Streams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

#[inline]
fn is_write(interest: Interest) -> bool {
    interest.contains(Interest::OUT)
}

/// Marks the epoll keys of ports that are listened at.
const LISTENER: u64 = 1 << 63;

/// Connections taken at a port in one turn.
const ACCEPTS_MAX: usize = 64;

/// Connections that may wait to be taken; the kernel cuts it to net.core.somaxconn.
const BACKLOG: i32 = 4096;
