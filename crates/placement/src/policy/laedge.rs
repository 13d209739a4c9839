//! LAEDGE: a copy where two are idle, a queue where none is.

use std::num::NonZeroU32;

use super::{
    Argument, Entry, Form, Loads, OUT_OF_SERVICE, Placement, Policy, PolicySpec, QueueModel, Scope,
};

/// A coordinator sends two copies while two servers are idle, one while one is, and queues the rest
/// (LAEDGE, ICDE'21).
///
/// A server is idle while it has fewer outstanding requests than slots. One slot a server is the
/// busy bit of the NetClone artifact; one slot a worker is what a server can run. A request that
/// was held meets exactly one idle server, the one that has just answered, and so goes there
/// uncloned.
#[derive(Clone, Copy, Debug)]
pub struct Laedge {
    /// Outstanding requests at which a server is busy; 1 to `OUT_OF_SERVICE - 1`.
    slots: u32,
}

/// Its entry in the registry.
pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: "laedge",
    forms: &[
        Form {
            parameter: "",
            about: "two idle servers, or the only one; the rest wait in one queue",
        },
        Form {
            parameter: "N",
            about: "the same with servers idle below {} outstanding, one for each of their workers",
        },
    ],
    scope: Scope::Routers,
    build: |argument| Box::new(Laedge::new(slots(argument))),
    model: |_| QueueModel::Other,
}];

impl Laedge {
    /// `laedge`: one slot a server.
    pub const SPEC: PolicySpec = PolicySpec::new(&ENTRIES[0], Argument::None);

    /// Takes a server for idle while it has fewer than `slots` outstanding requests.
    pub fn new(slots: NonZeroU32) -> Self {
        Self { slots: slots.get().min(OUT_OF_SERVICE - 1) }
    }
}

impl Policy for Laedge {
    fn place(&mut self, loads: Loads<'_>, random: u64) -> Placement {
        loads.draw_pair(self.slots, random)
    }

    fn bound(&self) -> Option<u32> {
        Some(self.slots)
    }

    fn set_bound(&mut self, bound: u32) {
        self.slots = bound.clamp(1, OUT_OF_SERVICE - 1);
    }
}

/// The slots of a server: one where no number is written.
fn slots(argument: Argument) -> NonZeroU32 {
    if argument == Argument::None { NonZeroU32::MIN } else { argument.count() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{OUT, all_pairs_of_three, check_shares as check, laedge, one, two};
    use super::*;

    #[test]
    fn laedge_clones_on_idle_servers_alone() {
        check(laedge(1), &[0, 0, 0], &all_pairs_of_three());
        check(laedge(1), &[0, 1, 0], &[(two(0, 2), 0.5), (two(2, 0), 0.5)]);
        check(laedge(15), &[14, 15, 3], &[(two(0, 2), 0.5), (two(2, 0), 0.5)]);
    }

    #[test]
    fn laedge_sends_to_the_only_idle_server() {
        check(laedge(1), &[1, 1, 0], &[(one(2), 1.0)]);
        check(laedge(2), &[2, 1, 2], &[(one(1), 1.0)]);
    }

    #[test]
    fn laedge_holds_where_nobody_is_idle() {
        check(laedge(1), &[1, 1, 1], &[(Placement::Hold, 1.0)]);
        check(laedge(3), &[3, OUT, 4], &[(Placement::Hold, 1.0)]);
    }

    #[test]
    fn laedge_takes_a_new_number_of_slots() {
        let mut policy = laedge(1);
        policy.set_bound(2);
        assert_eq!(policy.bound(), Some(2));
        check(policy, &[1, 2], &[(one(0), 1.0)]);
    }
}
