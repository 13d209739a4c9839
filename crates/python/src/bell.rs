//! Wakes an event loop: one wake for however many things have come.
//!
//! | state | `ring` | `answer` |
//! |---|---|---|
//! | silent | rung, and writes the event | silent |
//! | rung | nothing | silent, and takes the event |
//!
//! Invariant: what was put down before a `ring` is seen by who looks after the next `answer`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// An event that a loop waits for.
#[derive(Debug)]
pub(crate) struct Bell {
    is_rung: AtomicBool,
    event: File,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?.into();
        Ok(Self { is_rung: AtomicBool::new(false), event })
    }

    /// Has the loop look. From any thread.
    pub(crate) fn ring(&self) {
        if !self.is_rung.swap(true, Ordering::SeqCst) {
            // Only a counter at its maximum, which is readable already, refuses the write.
            let _ = (&self.event).write(&1_u64.to_ne_bytes());
        }
    }

    /// The loop is about to look.
    pub(crate) fn answer(&self) {
        // Nothing to read means that it has been taken.
        let _ = (&self.event).read(&mut [0; 8]);
        self.is_rung.store(false, Ordering::SeqCst);
    }

    /// What the loop waits for.
    pub(crate) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}
