//! Bytes in memory in the place of a socket.
//!
//! Invariant: whoever is polled over a pipe is polled again until it asks for no more, so that a
//! wake-up is never lost.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use hyper::rt::{Read, ReadBufCursor, Write};

/// One end of a connection; clones are the same end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pipe(Rc<RefCell<State>>);

#[derive(Debug, Default)]
struct State {
    /// Bytes that have come; the first `read` of them are done with.
    input: Vec<u8>,
    read: usize,
    /// Nothing more comes.
    is_ended: bool,
    /// Bytes to be sent.
    output: Vec<u8>,
}

impl Pipe {
    /// Bytes have come.
    pub(crate) fn push(&self, bytes: &[u8]) {
        let mut state = self.0.borrow_mut();
        if state.read == state.input.len() {
            state.input.clear();
            state.input.shrink_to(KEPT);
            state.read = 0;
        }
        state.input.extend_from_slice(bytes);
    }

    /// Nothing more comes.
    pub(crate) fn end(&self) {
        self.0.borrow_mut().is_ended = true;
    }

    /// Bytes that have come and nobody has taken.
    pub(crate) fn input_len(&self) -> usize {
        let state = self.0.borrow();
        state.input.len() - state.read
    }

    /// Bytes that are to be sent.
    pub(crate) fn output_len(&self) -> usize {
        self.0.borrow().output.len()
    }

    /// Appends what is to be sent.
    pub(crate) fn drain(&self, out: &mut Vec<u8>) {
        let mut state = self.0.borrow_mut();
        out.append(&mut state.output);
        state.output.shrink_to(KEPT);
    }
}

impl Read for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.borrow_mut();
        let rest = &state.input[state.read..];
        let len = rest.len().min(into.remaining());
        if len == 0 && !state.is_ended {
            return Poll::Pending;
        }
        into.put_slice(&rest[..len]);
        state.read += len;
        Poll::Ready(Ok(()))
    }
}

impl Write for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().output.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Polls futures until none asks to be polled again.
#[derive(Debug)]
pub(crate) struct Poller {
    flag: Arc<Flag>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Poller {
    pub(crate) fn new() -> Self {
        let flag = Arc::new(Flag::default());
        Self { waker: flag.clone().into(), flag }
    }

    /// Polls once; [`Poller::is_asked`] tells whether to do so again.
    pub(crate) fn poll<F: Future + ?Sized>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(&self.waker))
    }

    /// True if anything that was polled asks to be polled again; asking takes that back.
    pub(crate) fn is_asked(&self) -> bool {
        self.flag.0.swap(false, Ordering::Relaxed)
    }
}

/// Memory that a connection keeps between messages.
const KEPT: usize = 16 << 10;
