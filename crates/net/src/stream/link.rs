//! One connection: its socket, what is still to be sent, and its TLS.
//!
//! | state | becomes | when |
//! |---|---|---|
//! | connecting | greeting, or open without TLS | the socket has connected |
//! | greeting | open | the TLS handshake has ended |
//! | open | leaving | the owner closes while something is unsent |
//! | any | gone | it fails, or is closed with nothing unsent |
//!
//! Invariant: a call reads once and writes once, so that no peer keeps the thread for itself.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::SockRef;
use tailcut_proto::node::Time;

use super::tls::Session;
use super::{Connection, ConnectionId, Event, Reason, StreamMetrics};
use crate::poller::Interest;
use crate::stamps::{Ledger, StampConfig, Stamping, Stamps, Transport};
use crate::sys::{self, NetworkError};

/// A connection's state and buffers.
#[derive(Debug)]
pub(super) struct Link {
    /// Non-blocking.
    pub(super) socket: TcpStream,
    /// The other end.
    pub(super) peer: SocketAddr,
    /// Phase of the connection.
    pub(super) phase: Phase,
    /// Time at which connecting, greeting or leaving is given up.
    pub(super) deadline: Time,
    /// Events that the socket is registered for.
    pub(super) interest: Interest,
    /// The owner has closed it: nothing more is told of it.
    pub(super) is_closed: bool,
    /// Times at which the last bytes were received.
    pub(super) received: Stamps,
    /// Bytes that the socket has taken.
    pub(super) written: u64,
    /// The next write is to be stamped.
    pub(super) is_marked: bool,
    /// There when the connection has stamps.
    ledger: Option<Box<Ledger>>,
    /// It has failed already, which the next turn tells.
    pub(super) doom: Option<Reason>,
    /// It is counted among those with a deadline.
    pub(super) is_pending: bool,
    /// There when the connection has TLS.
    tls: Option<Box<Session>>,
    /// Bytes for the socket; the first `sent` of them are gone.
    out: Vec<u8>,
    /// Bytes of `out` that the socket has taken; at most all.
    sent: usize,
    /// The socket took less than it was given: only readiness ends that.
    is_blocked: bool,
    /// The peer sends no more.
    is_finished: bool,
    /// The owner does not want to read now.
    pub(super) is_paused: bool,
}

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// TCP's handshake is under way.
    Connecting,
    /// TLS's handshake is under way.
    Greeting,
    /// Bytes flow.
    Open,
    /// The rest is being sent.
    Leaving,
}

/// Buffers that all connections of a thread read through.
#[derive(Debug)]
pub(super) struct Buffers {
    /// Bytes as the socket gives them.
    wire: Vec<u8>,
    /// Bytes that TLS has opened.
    plain: Vec<u8>,
}

impl Buffers {
    pub(super) fn new() -> Self {
        Self { wire: vec![0; READ_LEN], plain: vec![0; READ_LEN] }
    }
}

impl Link {
    pub(super) fn new(
        (socket, peer): (TcpStream, SocketAddr),
        phase: Phase,
        tls: Option<Session>,
        deadline: Time,
    ) -> Self {
        Self {
            socket,
            peer,
            phase,
            deadline,
            interest: Interest::empty(),
            is_closed: false,
            received: Stamps::default(),
            written: 0,
            is_marked: false,
            ledger: None,
            doom: None,
            is_pending: false,
            tls: tls.map(Box::new),
            out: Vec::new(),
            sent: 0,
            is_blocked: false,
            is_finished: false,
            is_paused: false,
        }
    }

    /// Buffer that the owner writes to.
    #[inline]
    pub(super) fn output(&mut self) -> &mut Vec<u8> {
        match &mut self.tls {
            Some(session) => &mut session.plain,
            None => &mut self.out,
        }
    }

    /// Bytes that the socket has not taken.
    #[inline]
    pub(super) fn unsent(&self) -> usize {
        let plain = self.tls.as_ref().map_or(0, |session| session.plain.len());
        self.out.len().saturating_sub(self.sent) + plain
    }

    /// Events that the socket should be waited for, when a peer that does not read may have
    /// `unsent_max` bytes unsent.
    #[inline]
    pub(super) fn wanted(&self, unsent_max: usize) -> Interest {
        let reads = self.phase != Phase::Connecting
            && !self.is_finished
            && !self.is_paused
            && self.unsent() < unsent_max;
        let mut wanted = Interest::empty();
        wanted.set(Interest::IN, reads);
        wanted.set(Interest::OUT, self.is_blocked || self.phase == Phase::Connecting);
        wanted
    }

    /// Something is unsent that the socket has not refused yet.
    #[inline]
    pub(super) fn has_fresh_output(&self) -> bool {
        let wants_write = || self.tls.as_ref().is_some_and(|session| session.wants_write());
        !self.is_blocked && self.phase != Phase::Connecting && (self.unsent() > 0 || wants_write())
    }

    /// Ends at a deadline unless something else comes first.
    #[inline]
    pub(super) fn has_deadline(&self) -> bool {
        self.phase != Phase::Open || self.doom.is_some()
    }

    /// Lets the next turn tell that it has failed.
    pub(super) fn doom(&mut self, reason: Reason) {
        self.deadline = 0;
        self.doom = Some(reason);
    }

    /// The owner has closed it and nothing is left to send, or nobody to send it to.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.is_closed && (self.unsent() == 0 || self.phase != Phase::Leaving)
    }

    /// The socket has connected or failed to.
    pub(super) fn handle_connected(&mut self) -> Result<(), Reason> {
        match self.socket.take_error() {
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => return Err(Reason::of(&error)),
        }
        // Readiness may be told of a socket that is still on its way.
        if SockRef::from(&self.socket).peer_addr().is_err() {
            return Ok(());
        }
        self.phase = if self.tls.is_some() { Phase::Greeting } else { Phase::Open };
        self.seal();
        Ok(())
    }

    /// Asks for stamps, once the socket is connected and before anything is written.
    pub(super) fn enable_stamps(&mut self, config: StampConfig) -> io::Result<()> {
        if config.stamping == Stamping::Off {
            return Ok(());
        }
        let ledger = Ledger::new(config, MARKED_MAX);
        ledger.enable(self.socket.as_fd(), Transport::Connection)?;
        self.ledger = Some(Box::new(ledger));
        Ok(())
    }

    /// A stamp may be waiting, which epoll has not been asked about.
    #[inline]
    pub(super) fn awaits_stamps(&self) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.is_waiting())
    }

    /// Takes the stamps of what has been sent, and tells `f`. Returns how many.
    pub(super) fn take_stamps<F>(&mut self, id: ConnectionId, f: &mut F) -> usize
    where
        F: FnMut(&mut Connection<'_>, Event<'_>),
    {
        let Some(mut ledger) = self.ledger.take() else { return 0 };
        for _ in 0..STAMPS_MAX {
            match sys::take_error(self.socket.as_fd()) {
                Ok(NetworkError::Stamp(number, stamps)) => ledger.handle_stamp(number, stamps),
                Ok(NetworkError::Icmp(..) | NetworkError::Local) => {}
                Err(_) => break,
            }
        }
        let mut events = 0;
        while let Some(stamp) = ledger.poll() {
            if !self.is_closed {
                f(&mut Connection { id, link: self }, Event::Sent(stamp));
                events += 1;
            }
        }
        self.ledger = Some(ledger);
        events
    }

    /// There is room again.
    #[inline]
    pub(super) fn handle_writable(&mut self) {
        self.is_blocked = false;
    }

    /// Lets the owner's wish to close take effect: at once before it is open, after the rest has
    /// been sent otherwise.
    pub(super) fn leave(&mut self, deadline: Time) {
        self.is_closed = true;
        if self.phase == Phase::Open {
            if let Some(session) = &mut self.tls {
                session.seal(&mut self.out);
                session.end();
            }
            self.seal();
            (self.phase, self.deadline) = (Phase::Leaving, deadline);
        }
    }

    /// Offers the socket what is unsent, once.
    #[inline]
    pub(super) fn write(&mut self, metrics: &mut StreamMetrics) -> Result<(), Reason> {
        self.seal();
        let unsent = self.out.get(self.sent..).unwrap_or_default();
        if unsent.is_empty() {
            return Ok(());
        }
        let mark = self.ledger.as_mut().filter(|_| self.is_marked);
        let result = match &mark {
            Some(ledger) => sys::send_stamped(self.socket.as_fd(), unsent, ledger.send_flags()),
            None => (&self.socket).write(unsent),
        };
        match result {
            Ok(written) => {
                metrics.bytes_out += written as u64;
                let (first, end) = (self.written, self.written + written as u64);
                if let (Some(ledger), true) = (mark, end > first) {
                    ledger.handle_send(end - 1, (first, end - 1));
                }
                self.is_blocked = written < unsent.len();
                self.is_marked &= self.is_blocked;
                self.sent += written;
                self.written = end;
            }
            Err(error) if is_transient(&error) => self.is_blocked = true,
            Err(error) => return Err(Reason::of(&error)),
        }
        self.release_sent();
        Ok(())
    }

    /// Reads once, and tells `f` what came. Returns how many events it told.
    #[inline]
    pub(super) fn read<F>(
        &mut self,
        id: ConnectionId,
        reading: Reading<'_>,
        f: &mut F,
    ) -> Result<usize, Reason>
    where
        F: FnMut(&mut Connection<'_>, Event<'_>),
    {
        let Reading { buffers, metrics } = reading;
        let read = match &self.ledger {
            None => (&self.socket).read(&mut buffers.wire),
            Some(ledger) => {
                sys::receive_stamped(self.socket.as_fd(), &mut buffers.wire).map(|(len, stamps)| {
                    self.received = ledger.received(stamps);
                    len
                })
            }
        };
        let len = match read {
            Ok(len) => len,
            Err(error) if is_transient(&error) => return Ok(0),
            Err(error) => return Err(Reason::of(&error)),
        };
        metrics.bytes_in += len as u64;
        if len == 0 {
            return self.finish(id, f);
        }
        if self.tls.is_some() {
            return self.open_sealed(id, buffers, len, f);
        }
        if self.is_closed {
            return Ok(0);
        }
        f(&mut Connection { id, link: self }, Event::Bytes(&buffers.wire[..len]));
        Ok(1)
    }

    /// The peer sends no more.
    fn finish<F>(&mut self, id: ConnectionId, f: &mut F) -> Result<usize, Reason>
    where
        F: FnMut(&mut Connection<'_>, Event<'_>),
    {
        if self.phase == Phase::Greeting {
            return Err(Reason::Ended);
        }
        if std::mem::replace(&mut self.is_finished, true) || self.is_closed {
            return Ok(0);
        }
        f(&mut Connection { id, link: self }, Event::Finished);
        Ok(1)
    }

    /// Opens what TLS has sealed.
    fn open_sealed<F>(
        &mut self,
        id: ConnectionId,
        buffers: &mut Buffers,
        len: usize,
        f: &mut F,
    ) -> Result<usize, Reason>
    where
        F: FnMut(&mut Connection<'_>, Event<'_>),
    {
        let Buffers { wire, plain } = buffers;
        let mut sealed = &wire[..len];
        let mut events = 0;
        while let (false, Some(session)) = (sealed.is_empty(), &mut self.tls) {
            let before = sealed.len();
            let taken = session.take(&mut sealed).map_err(|error| self.alert(&error))?;
            events += self.complete(id, f);
            let mut left = taken.plain_len;
            while let (true, Some(session)) = (left > 0, &mut self.tls) {
                let len = session.read(plain);
                left = left.saturating_sub(len.max(1));
                if len > 0 && !self.is_closed {
                    f(&mut Connection { id, link: self }, Event::Bytes(&plain[..len]));
                    events += 1;
                }
            }
            if taken.is_end {
                return Ok(events + self.finish(id, f)?);
            }
            if sealed.len() == before {
                break;
            }
        }
        Ok(events)
    }

    /// Tells of the end of the handshake, once.
    fn complete<F>(&mut self, id: ConnectionId, f: &mut F) -> usize
    where
        F: FnMut(&mut Connection<'_>, Event<'_>),
    {
        if self.phase != Phase::Greeting
            || !self.tls.as_mut().is_some_and(|session| session.completes())
        {
            return 0;
        }
        self.phase = Phase::Open;
        f(&mut Connection { id, link: self }, Event::Connected);
        1
    }

    /// Tells the peer why TLS ends, as far as the socket takes it now.
    fn alert(&mut self, error: &rustls::Error) -> Reason {
        self.seal();
        let _ = (&self.socket).write(self.out.get(self.sent..).unwrap_or_default());
        Reason::Tls(error.to_string())
    }

    #[inline]
    fn seal(&mut self) {
        if let Some(session) = &mut self.tls {
            session.seal(&mut self.out);
        }
    }

    /// Keeps the buffer from growing behind a peer that reads slowly: moved only once most of it is
    /// gone.
    #[inline]
    fn release_sent(&mut self) {
        if self.sent >= self.out.len() {
            self.out.clear();
            self.sent = 0;
        } else if self.sent > self.out.len() / 2 {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The thread's part in a read.
pub(super) struct Reading<'a> {
    /// The thread's.
    pub(super) buffers: &'a mut Buffers,
    /// The thread's.
    pub(super) metrics: &'a mut StreamMetrics,
}

#[inline]
fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Marked writes that a connection remembers: some milliseconds of them, at one in sixteen of
/// 100,000 requests a second.
const MARKED_MAX: usize = 64;

/// Entries of the error queue taken at a time.
const STAMPS_MAX: usize = 64;

/// Bytes read at a time: what a connection may keep others waiting for, about 10 us.
const READ_LEN: usize = 1 << 16;
