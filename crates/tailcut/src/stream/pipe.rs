//! Pipe of one stream between a task and the engine's thread: bytes both ways, under a lock that is
//! held to copy them.
//!
//! | field | set by the task | set by the engine |
//! |---|---|---|
//! | `outgoing`, `room` | appends, takes from the room | takes, tells the room anew |
//! | `incoming` | takes | fills when it is empty, appends up to [`INCOMING_MAX`] |
//! | `wants_end`, `is_dropped` | at shutdown and drop | |
//! | `is_open`, `is_ended`, `is_finished`, `fault` | | as the stream stands |
//!
//! Invariant: `outgoing` never has more than the stream has room for, so that a dropped stream can
//! hand over all of it at once.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use tailcut_proto::rpc::{CallError, Failure, Rpc};
use tailcut_proto::stream::{Fault, StreamId, Streams};

use crate::lock;

/// One stream between its task and the engine.
#[derive(Debug, Default)]
pub(super) struct Pipe(Mutex<State>);

#[derive(Debug, Default)]
pub(super) struct State {
    /// The engine knows it by this.
    pub(super) id: Option<StreamId>,
    /// Written, and not taken by the engine.
    pub(super) outgoing: VecDeque<u8>,
    /// Bytes that may still be appended to `outgoing`.
    pub(super) room: usize,
    /// To be read.
    pub(super) incoming: VecDeque<u8>,
    /// The engine has more to read than found place.
    pub(super) has_more: bool,
    pub(super) is_open: bool,
    /// Nothing comes after `incoming`.
    pub(super) is_ended: bool,
    /// Nothing more will be written.
    pub(super) wants_end: bool,
    /// The peer has everything, and knows that.
    pub(super) is_finished: bool,
    pub(super) is_dropped: bool,
    /// It is in the engine's inbox.
    pub(super) is_listed: bool,
    pub(super) fault: Option<Fault>,
    opener: Option<Waker>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// Tasks to be woken once the lock is free.
#[derive(Debug, Default)]
pub(super) struct Woken([Option<Waker>; 3]);

impl Pipe {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Ends it: nobody drives it any more.
    pub(super) fn end(&self, fault: Fault) {
        let mut state = self.lock();
        state.fault = state.fault.or(Some(fault));
        let woken = state.woken();
        drop(state);
        woken.wake();
    }
}

impl State {
    pub(super) fn poll_open(&mut self, context: &Context<'_>) -> Poll<io::Result<()>> {
        match self.fault {
            Some(fault) => Poll::Ready(Err(error(fault))),
            None if self.is_open => Poll::Ready(Ok(())),
            None => wait(&mut self.opener, context),
        }
    }

    /// Takes bytes that have come; 0 at the end.
    pub(super) fn poll_read(
        &mut self,
        context: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if self.incoming.is_empty() {
            return match self.fault {
                _ if self.is_ended => Poll::Ready(Ok(0)),
                Some(fault) => Poll::Ready(Err(error(fault))),
                None => wait(&mut self.reader, context),
            };
        }
        let len = buffer.len().min(self.incoming.len());
        let (front, back) = self.incoming.as_slices();
        let from_front = len.min(front.len());
        buffer[..from_front].copy_from_slice(&front[..from_front]);
        buffer[from_front..len].copy_from_slice(&back[..len - from_front]);
        self.incoming.drain(..len);
        Poll::Ready(Ok(len))
    }

    /// Appends what there is room for.
    pub(super) fn poll_write(
        &mut self,
        context: &Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.fault {
            Some(fault) => return Poll::Ready(Err(error(fault))),
            None if self.wants_end => return Poll::Ready(Err(error(Fault::Finished))),
            None if self.room == 0 && !bytes.is_empty() => return wait(&mut self.writer, context),
            None => {}
        }
        let len = bytes.len().min(self.room);
        self.outgoing.extend(&bytes[..len]);
        self.room -= len;
        Poll::Ready(Ok(len))
    }

    pub(super) fn poll_shutdown(&mut self, context: &Context<'_>) -> Poll<io::Result<()>> {
        match self.fault {
            _ if self.is_finished => Poll::Ready(Ok(())),
            Some(fault) => Poll::Ready(Err(error(fault))),
            None => wait(&mut self.writer, context),
        }
    }

    /// Exchanges data with the engine's stream whenever something has changed on either side. True
    /// when the task has released it.
    pub(super) fn exchange<E: Rpc>(&mut self, streams: &mut Streams<E>) -> bool {
        let Some(id) = self.id else {
            return false;
        };
        if let Err(fault) = self.hand_out(streams, id).and_then(|()| self.take_in(streams, id)) {
            self.fault = Some(fault);
            self.outgoing.clear();
        }
        let status = streams.status(id).unwrap_or_default();
        self.is_open = status.is_open;
        self.is_finished |= status.is_finished;
        self.fault = self.fault.or(status.fault);
        self.room = status.writable_len;
        self.is_dropped
    }

    fn hand_out<E: Rpc>(&mut self, streams: &mut Streams<E>, id: StreamId) -> Result<(), Fault> {
        if !self.outgoing.is_empty() {
            streams.write_all(id, &mut self.outgoing)?;
            debug_assert!(self.outgoing.is_empty(), "there was room for all of it");
        }
        if self.wants_end && !self.is_finished {
            streams.finish(id)?;
        }
        Ok(())
    }

    fn take_in<E: Rpc>(&mut self, streams: &mut Streams<E>, id: StreamId) -> Result<(), Fault> {
        while !self.is_ended {
            let room = INCOMING_MAX.saturating_sub(self.incoming.len());
            self.has_more = room == 0;
            if room == 0 {
                break;
            }
            match streams.read_all(id, &mut self.incoming, room)? {
                None => break,
                Some(0) => self.is_ended = true,
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// The tasks that have something to do now.
    pub(super) fn woken(&mut self) -> Woken {
        let is_dead = self.fault.is_some();
        let opener = if is_dead || self.is_open { self.opener.take() } else { None };
        let reader = if is_dead || self.is_ended || !self.incoming.is_empty() {
            self.reader.take()
        } else {
            None
        };
        let is_writable = self.room > 0 && !self.wants_end;
        let writer =
            if is_dead || is_writable || self.is_finished { self.writer.take() } else { None };
        Woken([opener, reader, writer])
    }
}

impl Woken {
    pub(super) fn wake(self) {
        self.0.into_iter().flatten().for_each(Waker::wake);
    }
}

fn wait<T>(place: &mut Option<Waker>, context: &Context<'_>) -> Poll<T> {
    if !place.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
        *place = Some(context.waker().clone());
    }
    Poll::Pending
}

/// A fault as programs written for sockets know it.
pub(super) fn error(fault: Fault) -> io::Error {
    let kind = match fault {
        Fault::Refused => io::ErrorKind::ConnectionRefused,
        Fault::Reset => io::ErrorKind::ConnectionReset,
        Fault::Aborted => io::ErrorKind::ConnectionAborted,
        Fault::NoKeys | Fault::Lost(Failure::Deadline | Failure::Unreachable) => {
            io::ErrorKind::TimedOut
        }
        Fault::Denied => io::ErrorKind::PermissionDenied,
        Fault::Finished => io::ErrorKind::BrokenPipe,
        Fault::NotSent(CallError::NoSession) => io::ErrorKind::ConnectionReset,
        Fault::NotSent(_) | Fault::TooMany => io::ErrorKind::QuotaExceeded,
        Fault::Closed => io::ErrorKind::NotConnected,
        // Lost otherwise, or broken.
        _ => io::ErrorKind::ConnectionReset,
    };
    io::Error::new(kind, fault)
}

/// Bytes that are appended for a task that does not read, besides those in the stream's window.
pub(super) const INCOMING_MAX: usize = 256 << 10;
