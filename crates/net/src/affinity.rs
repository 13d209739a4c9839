//! Where and with which priority the calling thread runs. Both matter more to a tail than any code: a migrated or preempted
//! poller costs milliseconds.

use std::io;

use crate::sys;

/// Ties the calling thread to one core, counted from 0.
///
/// # Errors
///
/// InvalidInput when the machine, or the thread's cgroup, has no such core.
pub fn pin_to(core: usize) -> io::Result<()> {
    sys::set_affinity(core)
}

/// Gives the calling thread the real-time class SCHED_FIFO at `priority`, 1 lowest to 99. It then runs until it sleeps: a
/// poller under it must be short or alone on its core (the kernel's fair server takes 50 ms of each second back).
///
/// # Errors
///
/// PermissionDenied without the capability CAP_SYS_NICE, InvalidInput for a priority out of range. A caller who can live
/// without goes on.
pub fn set_fifo(priority: u8) -> io::Result<()> {
    sys::set_scheduler(libc::SCHED_FIFO, priority)
}

/// Gives the calling thread back to the normal class.
///
/// # Errors
///
/// PermissionDenied after [`set_idle`] in a process that may not take that back.
pub fn set_normal() -> io::Result<()> {
    sys::set_scheduler(libc::SCHED_OTHER, 0)
}

/// Lets the calling thread run only on cores that nothing else wants (SCHED_IDLE): whoever wakes there goes first at once, and is
/// not sent to another core on its account. On a host without such a core the thread all but stands still.
///
/// # Errors
///
/// PermissionDenied where [`set_normal`] could not take it back: without CAP_SYS_NICE and with an RLIMIT_NICE below 20.
pub fn set_idle() -> io::Result<()> {
    // Only who has tried knows, and only a thread of its own may be left behind there.
    let there_and_back = || sys::set_scheduler(libc::SCHED_IDLE, 0).and_then(|()| set_normal());
    std::thread::scope(|scope| scope.spawn(there_and_back).join().unwrap_or(Ok(())))?;
    sys::set_scheduler(libc::SCHED_IDLE, 0)
}

/// Whether the calling thread runs as after [`set_idle`].
///
/// # Errors
///
/// What the kernel says; nothing is known to make it fail.
pub fn is_idle() -> io::Result<bool> {
    sys::scheduler().map(|policy| policy == libc::SCHED_IDLE)
}

/// Wakes the calling thread's timed sleeps to the nanosecond, instead of up to 50 us late so as to wake together with others.
///
/// # Errors
///
/// What the kernel says.
pub fn set_precise_sleeps() -> io::Result<()> {
    sys::set_timer_slack(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_to_the_first_core() {
        pin_to(0).expect("core 0 exists");
    }

    #[test]
    fn who_may_take_it_back_runs_when_nothing_else_does() {
        let may = set_idle().is_ok();
        assert_eq!(is_idle().expect("a class"), may);
        set_normal().expect("it may be taken back");
        assert!(!is_idle().expect("a class"));
    }

    #[test]
    fn a_core_that_is_not_there_is_an_error() {
        assert!(pin_to(1_000_000).is_err());
    }
}
