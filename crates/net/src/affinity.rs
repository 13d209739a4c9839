//! Core and priority of the calling thread. Both matter more to a tail than any code: a migrated or
//! preempted poller costs milliseconds.

use std::io;
use std::num::NonZeroU64;

use rustix::thread::{self, CpuSet};

use crate::sys;

/// Ties the calling thread to one core, counted from 0.
///
/// # Errors
///
/// InvalidInput when the machine, or the thread's cgroup, has no such core.
pub fn pin_to(core: usize) -> io::Result<()> {
    if core >= CpuSet::MAX_CPU {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut cores = CpuSet::new();
    cores.set(core);
    Ok(thread::sched_setaffinity(None, &cores)?)
}

/// Gives the calling thread the real-time class SCHED_FIFO at `priority`, 1 lowest to 99. It then
/// runs until it sleeps: a poller under it must be short or alone on its core (the kernel's fair
/// server takes 50 ms of each second back).
///
/// # Errors
///
/// PermissionDenied without the capability CAP_SYS_NICE, InvalidInput for a priority out of range.
/// A caller who can live without goes on.
pub fn set_fifo(priority: u8) -> io::Result<()> {
    sys::set_scheduler(libc::SCHED_FIFO, priority)
}

/// Gives the calling thread back to the normal class.
///
/// # Errors
///
/// What the kernel says.
pub fn set_normal() -> io::Result<()> {
    sys::set_scheduler(libc::SCHED_OTHER, 0)
}

/// True if the calling thread has a real-time class, which keeps its core from the threads of the
/// normal one.
#[must_use]
pub fn is_realtime() -> bool {
    sys::is_realtime()
}

/// Wakes the calling thread's timed sleeps to the nanosecond, instead of up to 50 us late so as to
/// wake together with others.
///
/// # Errors
///
/// What the kernel says.
pub fn set_precise_sleeps() -> io::Result<()> {
    Ok(thread::set_current_timer_slack(Some(NonZeroU64::MIN))?)
}

/// Use that the calling thread has made of its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Time on a core, nanoseconds.
    cpu_ns: u64,
    /// Times that it gave the core up to wait for something.
    sleeps: u64,
}

impl Usage {
    /// That of the calling thread, so far: two calls of the kernel's.
    #[must_use]
    pub fn of_this_thread() -> Self {
        let (cpu_ns, sleeps) = sys::thread_usage();
        Self { cpu_ns, sleeps }
    }

    /// True if the thread has computed for more than `ns` since then, or has waited for something:
    /// what took long took that long of its own, and not because others had the core.
    #[must_use]
    pub fn is_long_since(self, before: Self, ns: u64) -> bool {
        self.sleeps != before.sleeps || self.cpu_ns.saturating_sub(before.cpu_ns) > ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_to_the_first_core() {
        pin_to(0).expect("core 0 exists");
    }

    #[test]
    fn a_core_that_is_not_there_is_an_error() {
        assert!(pin_to(1_000_000).is_err());
    }

    #[test]
    fn a_thread_of_the_normal_class_is_not_real_time() {
        set_normal().expect("the class of every thread");
        assert!(!is_realtime());
        if std::env::var_os("TAILCUT_NO_REAL_TIME").is_some() {
            println!("SKIPPED: real-time threads are not run by this kernel");
            return;
        }
        if set_fifo(1).is_err() {
            println!("SKIPPED: the real-time class needs CAP_SYS_NICE");
            return;
        }
        assert!(is_realtime());
        set_normal().expect("the class of every thread");
    }

    #[test]
    fn what_computes_or_sleeps_is_long_and_what_does_neither_is_not() {
        let before = Usage::of_this_thread();
        assert!(!before.is_long_since(before, 0));
        // Shorter than a tick. Where something else made it sleep it is tried again.
        let is_found = (0..100).any(|_| {
            let before = Usage::of_this_thread();
            let mut now = before;
            while now.cpu_ns < before.cpu_ns + 200_000 {
                now = Usage::of_this_thread();
            }
            let is_awake = now.sleeps == before.sleeps;
            assert!(now.is_long_since(before, 100_000));
            is_awake && now.cpu_ns < before.cpu_ns + 1_000_000
        });
        assert!(is_found, "the time of a thread is read as it passes");
        let before = Usage::of_this_thread();
        std::thread::park_timeout(std::time::Duration::from_millis(1));
        assert!(Usage::of_this_thread().is_long_since(before, u64::MAX));
    }
}
