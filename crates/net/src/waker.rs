//! The sleep of a thread that waits for sockets, and what wakes it from other threads.
//!
//! | state | `wake` | driver goes to sleep | driver is up again |
//! |---|---|---|---|
//! | awake | notified | asleep | awake |
//! | asleep | notified, and writes the event | - | awake |
//! | notified | notified | does not sleep: awake | awake |
//!
//! Invariant: a wake-up is never lost, and costs one atomic swap while the driver is awake.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, ThreadId};

use rustix::event::{EventfdFlags, eventfd};
use tailcut_proto::node::Time;

use crate::clock::Clock;
use crate::{affinity, sys};

/// Wakes one driver; clones wake the same one, from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?.into();
        Ok(Self(Arc::new(Shared { state: AtomicU8::new(AWAKE), event })))
    }

    /// Ends the driver's sleep, or keeps it from its next one. Call it after handing the driver
    /// something, such as an entry of a ring.
    pub fn wake(&self) {
        if self.0.state.swap(NOTIFIED, Ordering::SeqCst) == ASLEEP {
            // Only a counter at its maximum, which is readable already, refuses the write.
            let _ = (&self.0.event).write(&1_u64.to_ne_bytes());
        }
    }

    /// Announces a sleep; false, and awake, when there was a wake-up since the last one.
    pub(crate) fn fall_asleep(&self) -> bool {
        if self.0.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            return true;
        }
        // A swap and not a store: it must see what the latest waker did before its own swap.
        self.0.state.swap(AWAKE, Ordering::SeqCst);
        false
    }

    /// Ends an announced sleep; returns whether there was a wake-up.
    fn get_up(&self) -> bool {
        self.0.state.swap(AWAKE, Ordering::SeqCst) == NOTIFIED
    }

    /// Takes the event that made the descriptor readable.
    fn take_event(&self) {
        // Nothing to read means that it has been taken.
        let _ = (&self.0.event).read(&mut [0; 8]);
    }
}

/// The sleeps of one thread at a time.
#[derive(Debug)]
pub(crate) struct Sleeper {
    /// Ends a sleep.
    waker: Waker,
    /// The thread whose sleeps have been made precise.
    precise_thread: Option<ThreadId>,
}

impl Sleeper {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { waker: Waker::new()?, precise_thread: None })
    }

    /// Waker that ends its sleeps.
    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// The entry that [`Sleeper::sleep`] wants first among its descriptors.
    pub(crate) fn entry(&self) -> libc::pollfd {
        poll_entry(self.waker.0.event.as_raw_fd())
    }

    /// Sleeps until a descriptor is ready, a [`Waker`], or `until`; `None` where that has passed or
    /// it was woken before, else how many descriptors are ready.
    ///
    /// # Errors
    ///
    /// What the kernel says of the descriptors, and when it lacks memory.
    pub(crate) fn sleep(
        &mut self,
        fds: &mut [libc::pollfd],
        until: Option<Time>,
    ) -> io::Result<Option<usize>> {
        let ready = self.sleep_by(until, |timeout_ns| sys::poll(fds, timeout_ns))?;
        if ready.is_some() && fds[0].revents != 0 {
            self.take_event();
        }
        Ok(ready)
    }

    /// As [`Sleeper::sleep`], by a call of the kernel that is given the time that it may take,
    /// nanoseconds. Where [`Sleeper::entry`] is readable after it, [`Sleeper::take_event`] is to
    /// follow.
    ///
    /// # Errors
    ///
    /// Those of the call.
    #[inline]
    pub(crate) fn sleep_by<T>(
        &mut self,
        until: Option<Time>,
        sleep: impl FnOnce(Option<u64>) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        self.make_precise()?;
        let timeout_ns = until.map(|time| time.saturating_sub(Clock.now()));
        if timeout_ns == Some(0) || !self.waker.fall_asleep() {
            return Ok(None);
        }
        let slept = sleep(timeout_ns);
        self.waker.get_up();
        slept.map(Some)
    }

    /// Takes the event of a wake-up.
    pub(crate) fn take_event(&self) {
        self.waker.take_event();
    }

    /// Sleeps of this thread end on time: by default the kernel delays them by up to 50 us.
    #[inline]
    fn make_precise(&mut self) -> io::Result<()> {
        let thread = Some(thread::current().id());
        if self.precise_thread != thread {
            affinity::set_precise_sleeps()?;
            self.precise_thread = thread;
        }
        Ok(())
    }
}

/// A descriptor to wait for until it is readable.
pub(crate) fn poll_entry(fd: i32) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

#[derive(Debug)]
struct Shared {
    /// One of the states of the table.
    state: AtomicU8,
    /// Readable once a sleeper was woken.
    event: File,
}

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const NOTIFIED: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_before_the_sleep_prevents_it_once() {
        let waker = Waker::new().expect("an event");
        waker.wake();
        assert!(!waker.fall_asleep());
        assert!(waker.fall_asleep());
    }

    #[test]
    fn only_a_sleeper_is_written_to() {
        let waker = Waker::new().expect("an event");
        waker.wake();
        assert!((&waker.0.event).read(&mut [0; 8]).is_err());
        assert!(!waker.fall_asleep() && waker.fall_asleep());
        waker.wake();
        waker.wake();
        assert!(waker.get_up());
        let mut count = [0; 8];
        (&waker.0.event).read_exact(&mut count).expect("an event");
        assert_eq!(u64::from_ne_bytes(count), 1);
    }

    #[test]
    fn an_undisturbed_sleep_says_so() {
        let waker = Waker::new().expect("an event");
        assert!(waker.fall_asleep());
        assert!(!waker.get_up());
    }
}
