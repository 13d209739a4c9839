//! The bytes between a coordinator and an agent: TCP, one end of a socket pair whose other end is
//! ssh's, or standard input and output.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tailcut_net::clock::Clock;

/// A stream that one thread reads while another writes, and that any thread can end.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    input: Arc<File>,
    output: Arc<File>,
    /// True if input and output are one socket.
    is_socket: bool,
    /// True if any bytes have come.
    is_heard: Arc<AtomicBool>,
}

impl Stream {
    pub(super) fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Self::socket(stream.into())
    }

    pub(super) fn socket(socket: OwnedFd) -> io::Result<Self> {
        SockRef::from(&socket).set_write_timeout(Some(WRITE_MAX))?;
        let both = Arc::new(File::from(socket));
        Ok(Self { input: both.clone(), output: both, is_socket: true, is_heard: Arc::default() })
    }

    pub(super) fn files(input: File, output: File) -> Self {
        Self {
            input: Arc::new(input),
            output: Arc::new(output),
            is_socket: false,
            is_heard: Arc::default(),
        }
    }

    /// True if nothing has been read of the stream.
    pub(super) fn is_silent(&self) -> bool {
        !self.is_heard.load(Ordering::Relaxed)
    }

    /// Ends both directions. Files stay open: whoever serves them ends with the process.
    pub(super) fn close(&self) {
        if self.is_socket {
            // It may have ended by itself.
            let _ = SockRef::from(&*self.output).shutdown(Shutdown::Both);
        }
    }

    /// Files have no timeouts.
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        if self.is_socket { SockRef::from(&*self.input).set_read_timeout(timeout) } else { Ok(()) }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = (&*self.input).read(bytes)?;
        self.is_heard.fetch_or(read > 0, Ordering::Relaxed);
        Ok(read)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.output).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream from which all that is read must have come by one deadline, however it trickles.
#[derive(Debug)]
pub(super) struct Hurried {
    stream: Stream,
    /// `None` from when it waits for as long as it takes.
    deadline_ns: Option<u64>,
}

impl Hurried {
    pub(super) fn new(stream: Stream, patience_ns: u64) -> Self {
        Self { stream, deadline_ns: Some(Clock.now() + patience_ns) }
    }

    /// Takes the deadline away.
    pub(super) fn relax(&mut self) -> io::Result<()> {
        self.deadline_ns = None;
        self.stream.set_read_timeout(None)
    }
}

impl Read for Hurried {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(deadline_ns) = self.deadline_ns else { return self.stream.read(bytes) };
        let left_ns = deadline_ns.saturating_sub(Clock.now());
        if left_ns == 0 {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(Duration::from_nanos(left_ns)))?;
        self.stream.read(bytes).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
            _ => error,
        })
    }
}

impl Write for Hurried {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A peer that takes nothing for so long is gone.
const WRITE_MAX: Duration = Duration::from_secs(2);
