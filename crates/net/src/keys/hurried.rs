//! A TCP connection that has so long, and so many bytes, whatever its peer does.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tailcut_proto::node::Time;

use crate::clock::Clock;

/// A connection with a deadline; clones are the same connection.
#[derive(Clone, Debug)]
pub(super) struct Hurried {
    /// The connection.
    stream: Arc<TcpStream>,
    /// Time at which it is given up.
    deadline: Time,
    /// Time that it has in all, ns.
    patience_ns: u64,
    /// Time at which the socket's timeout is set again.
    arm_at: Time,
    /// Bytes that may still be read.
    left: usize,
    /// True if anything has come.
    is_heard: Arc<AtomicBool>,
}

impl Hurried {
    pub(super) fn new(stream: TcpStream, patience: Duration, bytes_max: usize) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let patience_ns = patience.as_nanos() as u64;
        let deadline = Clock.now() + patience_ns;
        let (stream, is_heard) = (Arc::new(stream), Arc::default());
        Ok(Self { stream, deadline, patience_ns, arm_at: 0, left: bytes_max, is_heard })
    }

    /// True if nothing has been read of it.
    pub(super) fn is_silent(&self) -> bool {
        !self.is_heard.load(Ordering::Relaxed)
    }

    /// Ends both directions, also for who waits in another thread.
    pub(super) fn close(&self) {
        // It may have ended by itself.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Says that nothing follows, and waits until the peer has said so too: a socket that is closed
    /// over what is unread takes back what it has sent.
    pub(super) fn finish(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let mut bytes = [0; 512];
        while self.read(&mut bytes).is_ok_and(|len| len > 0) {}
    }

    /// Has the socket wait no longer than is left. Not before each call: so it may be an eighth of
    /// all longer.
    fn arm(&mut self) -> io::Result<()> {
        let now = Clock.now();
        if now >= self.deadline {
            return Err(ErrorKind::TimedOut.into());
        }
        if now >= self.arm_at {
            let left = Some(Duration::from_nanos(self.deadline - now));
            self.stream.set_read_timeout(left)?;
            self.stream.set_write_timeout(left)?;
            self.arm_at = now + self.patience_ns / 8;
        }
        Ok(())
    }
}

impl Read for Hurried {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::other("the peer sends too much"));
        }
        self.arm()?;
        let len = bytes.len().min(self.left);
        let read = (&*self.stream).read(&mut bytes[..len]).map_err(timed_out)?;
        self.left -= read;
        self.is_heard.fetch_or(read > 0, Ordering::Relaxed);
        Ok(read)
    }
}

impl Write for Hurried {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.arm()?;
        (&*self.stream).write(bytes).map_err(timed_out)
    }

    /// All records of a flight at once: each would be a segment, and wake the peer, by itself.
    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.arm()?;
        (&*self.stream).write_vectored(parts).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Error of a socket, with a timeout told as such.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    }
}
