//! JBSQ with copies: room that nobody needs is given to clones.

use std::num::NonZeroU32;
use std::ops::Range;

use super::{
    Argument, Entry, Form, Jbsq, Loads, Placement, Policy, PolicySpec, QueueModel, Scope, WorkerId,
};

/// [`Jbsq`], and a copy to another worker that is below the bound and reports that nobody waits.
///
/// Whoever is held centrally never competes with a clone: a scheduler asks for the placement of
/// what has been held only once room is free, and clones nothing while more is held. So a clone
/// takes a place that would otherwise stay empty, and with a bound of one a worker thread the
/// server has a thread for it.
#[derive(Clone, Copy, Debug)]
pub struct JbsqClone {
    /// Places the original.
    jbsq: Jbsq,
    /// Outstanding requests at which a worker takes no clone; at least 1.
    bound: u32,
}

/// Its entry in the registry.
pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: "jbsq+clone",
    forms: &[Form {
        parameter: "N",
        about: "jbsq:{}, and a copy at a second server below {} where nobody waits",
    }],
    scope: Scope::Routers,
    build: |argument| Box::new(JbsqClone::new(argument.count())),
    model: |_| QueueModel::Other,
}];

impl JbsqClone {
    /// `jbsq:N+clone`.
    pub fn spec(bound: NonZeroU32) -> PolicySpec {
        PolicySpec::new(&ENTRIES[0], Argument::Count(bound))
    }

    /// Bounds every worker to `bound` outstanding requests, copies among them.
    pub fn new(bound: NonZeroU32) -> Self {
        Self { jbsq: Jbsq::new(bound), bound: bound.get() }
    }

    /// Places on `idle` and the fewest that follow it; where nobody is idle by [`Jbsq`].
    #[inline(never)]
    fn place_behind(&mut self, loads: Loads<'_>, idle: Option<usize>, random: u64) -> Placement {
        let first = match idle {
            Some(first) => self.jbsq.place_on(first),
            None => match self.jbsq.place_behind(loads.outstanding, random) {
                Placement::One(first) => first,
                other => return other,
            },
        };
        match self.other(loads, first.index()) {
            Some(second) => Placement::Two(first, WorkerId::at(second)),
            None => Placement::One(first),
        }
    }

    /// Destination of the copy; on a tie the first after the original, as far as it goes round.
    #[inline]
    fn other(&self, loads: Loads<'_>, first: usize) -> Option<usize> {
        // Workers out of service are above any bound.
        let (mut fewest, mut second) = (self.bound, None);
        let mut see = |range: Range<usize>| {
            let columns =
                loads.outstanding[range.clone()].iter().zip(&loads.waiting[range.clone()]);
            for (index, (&outstanding, &waiting)) in range.zip(columns) {
                if outstanding < fewest && waiting == 0 {
                    (fewest, second) = (outstanding, Some(index));
                }
            }
        };
        see(first + 1..loads.outstanding.len());
        see(0..first);
        second
    }
}

impl Policy for JbsqClone {
    #[inline]
    fn place(&mut self, loads: Loads<'_>, random: u64) -> Placement {
        // Nobody has fewer than an idle worker.
        let Some(first) = self.jbsq.next_idle(loads.outstanding) else {
            return self.place_behind(loads, None, random);
        };
        let waiting = &loads.waiting[..loads.outstanding.len()];
        let is_idle = |&index: &usize| loads.outstanding[index] | waiting[index] == 0;
        let ahead = (first + 1..waiting.len()).find(is_idle);
        if let Some(second) = ahead.or_else(|| (0..first).find(is_idle)) {
            // An index of a worker, as that of every load.
            return Placement::Two(self.jbsq.place_on(first), WorkerId(second as u32));
        }
        self.place_behind(loads, Some(first), random)
    }

    fn bound(&self) -> Option<u32> {
        Some(self.bound)
    }

    fn set_bound(&mut self, bound: u32) {
        self.jbsq.set_bound(bound);
        self.bound = bound.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{OUT, count, one, two};
    use super::*;

    fn check(outstanding: &[u32], waiting: &[u32], expected: Placement) {
        let loads = Loads { outstanding, reported: outstanding, waiting };
        assert_eq!(JbsqClone::new(count(2)).place(loads, 0), expected);
    }

    #[test]
    fn a_copy_goes_where_there_is_room_and_nobody_waits() {
        check(&[0, 1, 0], &[0; 3], two(0, 2));
        check(&[1, 0, 2], &[0; 3], two(1, 0));
        check(&[0, 1, 0], &[0, 0, 1], two(0, 1));
    }

    #[test]
    fn a_copy_goes_to_the_next_of_those_with_the_fewest() {
        let mut policy = JbsqClone::new(count(2));
        let none = [0; 4];
        let loads = Loads { outstanding: &none, reported: &none, waiting: &none };
        let placed: Vec<Placement> = (0..4).map(|_| policy.place(loads, 0)).collect();
        assert_eq!(placed, [two(0, 1), two(1, 2), two(2, 3), two(3, 0)]);
    }

    #[test]
    fn no_copy_goes_where_the_bound_is_reached() {
        check(&[1, 2, 2], &[0; 3], one(0));
        check(&[1, OUT, OUT], &[0; 3], one(0));
        check(&[0, 1], &[0, 1], one(0));
    }

    #[test]
    fn who_finds_no_room_is_held() {
        check(&[2, 2, OUT], &[0; 3], Placement::Hold);
    }
}
