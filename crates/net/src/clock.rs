//! The clock: the one place where tailcut reads the time.

use std::time::{SystemTime, UNIX_EPOCH};

use tailcut_proto::node::Time;

use crate::sys;

/// The machine's monotonic clock, in nanoseconds since a moment that every process of the machine
/// shares (CLOCK_MONOTONIC). A read costs about 22 ns, which is why a driver reads it once a loop.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// Now. Never decreases, on whichever core it is read.
    #[inline]
    pub fn now(&self) -> Time {
        sys::monotonic_ns()
    }

    /// The wall clock, in nanoseconds since 1970; 0 where it is set before. It may jump.
    #[expect(clippy::disallowed_methods, reason = "tokens expire by the time of day")]
    pub fn unix_ns(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
    }

    /// Both clocks at one moment: the monotonic one and the wall clock. Of several readings, the
    /// one that took least, for a thread may be descheduled between them.
    pub fn both(&self) -> (Time, u64) {
        let reading = |_| {
            let (before, unix_ns, after) = (self.now(), self.unix_ns(), self.now());
            (after - before, before, unix_ns)
        };
        let (_, now, unix_ns) = (0..3).map(reading).min().expect("there are three");
        (now, unix_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_decreases() {
        let mut last = Clock.now();
        for _ in 0..10_000 {
            let now = Clock.now();
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
    }
}
