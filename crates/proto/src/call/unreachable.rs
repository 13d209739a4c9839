//! Looks for the calls to an address where nothing listens, as an ICMP says.
//!
//! Every packet to a dead host may draw one, so that a look at every slot is paid for by not
//! looking again for a while.

use crate::node::Time;

/// Limit on how often slots are searched for calls to unreachable addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnreachableLook {
    /// Until then none is.
    deaf_until: Time,
}

impl UnreachableLook {
    /// True if so many places may be looked at now, which counts as done.
    pub(crate) fn may_look(&mut self, now: Time, places: u32) -> bool {
        let may = now >= self.deaf_until;
        if may {
            self.deaf_until = now.saturating_add(LOOK_NS * u64::from(places));
        }
        may
    }
}

/// Pause after a look, for each place that was looked at: looks take some 1 % of the time.
const LOOK_NS: u64 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_paid_for_by_the_places_that_it_looks_at() {
        let mut look = UnreachableLook::default();
        assert!(look.may_look(0, 1000));
        assert!(!look.may_look(499_999, 1));
        assert!(look.may_look(500_000, 0) && look.may_look(500_000, 1));
        assert!(!look.may_look(500_499, 1));
    }
}
