//! The clock, random numbers, sleeping and scheduling.

use std::io;

use super::check;

/// CLOCK_MONOTONIC in nanoseconds.
#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place outlives the call. The call cannot fail: the clock exists and the pointer
    // is good.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sixteen random bytes. Waits at the start of a machine that has none yet.
pub(crate) fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    loop {
        // SAFETY: the place has so many bytes and outlives the call.
        let returned = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        match check(returned) {
            Ok(16) => return Ok(bytes),
            // So few bytes come at once or not at all.
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            // It waits where the machine has just started.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sleeps until a descriptor is ready or `timeout_ns` have passed, `None` for never; returns how
/// many are ready. A signal ends the sleep with none ready.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout_ns: Option<u64>) -> io::Result<usize> {
    let timeout = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    });
    let timeout_ptr = timeout.as_ref().map_or(std::ptr::null(), |timeout| &raw const *timeout);
    // SAFETY: the descriptors' array has the length given, the timeout outlives the call, and no
    // signal mask is passed.
    let returned = unsafe {
        libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ptr, std::ptr::null())
    };
    match check(returned as isize) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            fds.iter_mut().for_each(|fd| fd.revents = 0);
            Ok(0)
        }
        other => other,
    }
}

/// Sets the calling thread's scheduling class.
pub(crate) fn set_scheduler(policy: i32, priority: u8) -> io::Result<()> {
    // SAFETY: all bits zero is a valid parameter block.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = i32::from(priority);
    // SAFETY: the parameters outlive the call; 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } as isize)
        .map(|_| ())
}

/// True if the calling thread's scheduling class is a real-time one.
pub(crate) fn is_realtime() -> bool {
    // SAFETY: the call takes no pointer; 0 is the calling thread. Not by the C library, whose musl
    // has a stub.
    let class = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    let class = class & !libc::c_long::from(libc::SCHED_RESET_ON_FORK);
    [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE]
        .map(libc::c_long::from)
        .contains(&class)
}

/// The calling thread's time on a processor, nanoseconds; and how often it has given its core up to
/// wait for something.
pub(crate) fn thread_usage() -> (u64, u64) {
    let mut cpu = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place outlives the call. The call cannot fail: the clock exists and the pointer
    // is good. What getrusage says of that time is as old as the last tick.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut cpu) };
    // SAFETY: all bits zero is a valid block of counts.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above: there is such a thread.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    (cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64, usage.ru_nvcsw as u64)
}
