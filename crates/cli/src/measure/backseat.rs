//! The coordinator's place on a host that may be the server's too: behind it.
//!
//! A coordinator that wakes on the server's core keeps it waiting, or sends it to a core where a load thread polls. So it runs only
//! where nothing else wants to, as far as the process may take that back: on a host whose cores are all busy it would hardly run at
//! all, and then it takes its turn as everybody does.
//!
//! Threads that the coordinator starts have its place, so it is taken once all load threads run.

use tailcut_net::affinity;

/// The calling thread's place, until this is dropped.
#[derive(Debug)]
pub(super) struct Backseat {
    is_taken: bool,
}

impl Backseat {
    /// Takes the place, where that is permitted.
    pub(super) fn take() -> Self {
        Self { is_taken: affinity::set_idle().is_ok() }
    }

    /// A wait of `asked_ns` took `took_ns`: who is woken much too late finds no core that is free.
    pub(super) fn note_wait(&mut self, asked_ns: u64, took_ns: u64) {
        if took_ns > asked_ns + LATE_NS_MAX {
            self.leave();
        }
    }

    fn leave(&mut self) {
        // It may be taken back, or it would not have been taken.
        self.is_taken = self.is_taken && affinity::set_normal().is_err();
    }
}

impl Drop for Backseat {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A free core is found sooner, even by who comes last.
const LATE_NS_MAX: u64 = 50_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_given_back() {
        let seat = Backseat::take();
        assert_eq!(affinity::is_idle().unwrap(), seat.is_taken);
        drop(seat);
        assert!(!affinity::is_idle().unwrap());
    }

    #[test]
    fn who_waits_too_long_takes_his_turn() {
        let mut seat = Backseat::take();
        seat.note_wait(10_000_000, 20_000_000);
        assert_eq!(affinity::is_idle().unwrap(), seat.is_taken);
        seat.note_wait(10_000_000, 70_000_000);
        assert!(!affinity::is_idle().unwrap() && !seat.is_taken);
    }
}
