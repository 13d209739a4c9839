//! NetClone: a copy where nobody waits.

use super::{
    Argument, Entry, Form, Loads, OUT_OF_SERVICE, Placement, Policy, PolicySpec, QueueModel, Scope,
};

/// The switch clones where nobody waits at either server of the pair (NetClone, SIGCOMM'23).
///
/// It goes by reports alone, which are late by a response, because a switch counts nothing.
/// Of a report it reads the requests that wait, those that run left out, so that 0 says "nobody
/// waits" and not "a worker is free"; also where it places by the shorter, as the published switch
/// program has one register a server.
#[derive(Clone, Copy, Debug)]
pub struct NetClone {
    /// Rule for a request that is not cloned.
    fallback: Fallback,
}

/// Rule that picks the one of a pair that takes a request that is not cloned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fallback {
    /// The first, which makes it random placement.
    First,
    /// The one where less wait, the first on a tie.
    Shorter,
}

/// Its entries in the registry.
pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "netclone",
        forms: &[Form {
            parameter: "",
            about: "two random servers where nobody waits at either, else the first of them",
        }],
        scope: Scope::Routers,
        build: |_| Box::new(NetClone::new()),
        model: |_| QueueModel::Other,
    },
    Entry {
        name: "netclone+racksched",
        forms: &[Form {
            parameter: "",
            about: "two random servers where nobody waits at either, else the one where less wait",
        }],
        scope: Scope::Routers,
        build: |_| Box::new(NetClone::with_racksched()),
        model: |_| QueueModel::Other,
    },
];

impl NetClone {
    /// `netclone`.
    pub const SPEC: PolicySpec = PolicySpec::new(&ENTRIES[0], Argument::None);
    /// `netclone+racksched`.
    pub const RACKSCHED_SPEC: PolicySpec = PolicySpec::new(&ENTRIES[1], Argument::None);

    /// Plain NetClone: what is not cloned is placed at random.
    pub fn new() -> Self {
        Self { fallback: Fallback::First }
    }

    /// NetClone with RackSched: what is not cloned goes to the shorter of the pair.
    pub fn with_racksched() -> Self {
        Self { fallback: Fallback::Shorter }
    }
}

impl Default for NetClone {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for NetClone {
    fn place(&mut self, loads: Loads<'_>, random: u64) -> Placement {
        match loads.draw_pair(OUT_OF_SERVICE, random) {
            Placement::Two(first, second)
                if (loads.waiting[first.index()] | loads.waiting[second.index()]) > 0 =>
            {
                Placement::One(match self.fallback {
                    Fallback::First => first,
                    Fallback::Shorter => Loads::shorter(loads.waiting, first, second),
                })
            }
            placement => placement,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{all_pairs_of_three, check_shares as check, one, two};
    use super::*;

    #[test]
    fn netclone_clones_where_both_report_zero() {
        check(NetClone::new(), &[0, 0, 0], &all_pairs_of_three());
        check(NetClone::with_racksched(), &[0, 0, 0], &all_pairs_of_three());
    }

    #[test]
    fn netclone_without_a_clone_is_random() {
        check(NetClone::new(), &[0, 9], &[(one(0), 0.5), (one(1), 0.5)]);
        check(NetClone::new(), &[1, 1], &[(one(0), 0.5), (one(1), 0.5)]);
    }

    #[test]
    fn netclone_decides_by_the_pair_alone() {
        let sixth = 1.0 / 6.0;
        check(
            NetClone::new(),
            &[0, 0, 5],
            &[
                (two(0, 1), sixth),
                (two(1, 0), sixth),
                (one(0), sixth),
                (one(1), sixth),
                (one(2), 2.0 * sixth),
            ],
        );
    }

    #[test]
    fn netclone_with_racksched_takes_the_shorter_where_it_cannot_clone() {
        check(NetClone::with_racksched(), &[0, 9], &[(one(0), 1.0)]);
        check(NetClone::with_racksched(), &[2, 1], &[(one(1), 1.0)]);
        check(NetClone::with_racksched(), &[4, 4], &[(one(0), 0.5), (one(1), 0.5)]);
    }
}
