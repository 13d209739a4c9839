//! RackSched: the shorter of two by reported loads.

use super::{
    Argument, Entry, Form, Loads, OUT_OF_SERVICE, Placement, Policy, PolicySpec, QueueModel, Scope,
};

/// The less loaded of two samples, by reported loads; the first on a tie (RackSched, OSDI'20, as
/// NetClone integrates it).
///
/// The two samples are distinct, because they are NetClone's pair. RackSched's own switch draws
/// each with a generator of its own: with n servers both draws name the same one once in n times,
/// and the request goes there without a comparison. Its servers report what is outstanding, running
/// requests included and the answered one left out.
///
/// It differs from [`super::Jsq`] of 2 in the tie, which goes to the first of the pair and needs no
/// draw.
#[derive(Clone, Copy, Debug, Default)]
pub struct RackSched;

/// Its entry in the registry.
pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: "racksched",
    forms: &[Form { parameter: "", about: "the lower report of two random servers" }],
    scope: Scope::Routers,
    build: |_| Box::new(RackSched),
    model: |_| QueueModel::Other,
}];

impl RackSched {
    /// `racksched`.
    pub const SPEC: PolicySpec = PolicySpec::new(&ENTRIES[0], Argument::None);
}

impl Policy for RackSched {
    fn place(&mut self, loads: Loads<'_>, random: u64) -> Placement {
        match loads.draw_pair(OUT_OF_SERVICE, random) {
            Placement::Two(first, second) => {
                Placement::One(Loads::shorter(loads.reported, first, second))
            }
            placement => placement,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_shares as check, loads_of, one};
    use super::*;

    use super::super::{CClone, Draws, NetClone};

    #[test]
    fn racksched_takes_the_shorter_and_never_clones() {
        // The i-th shortest of three wins when it is in the pair and no shorter one is.
        check(RackSched, &[2, 0, 1], &[(one(1), 2.0 / 3.0), (one(2), 1.0 / 3.0)]);
        check(RackSched, &[0, 0], &[(one(0), 0.5), (one(1), 0.5)]);
    }

    #[test]
    fn a_tie_goes_to_the_first_of_the_pair() {
        let mut draws = Draws::new(2);
        for _ in 0..1000 {
            let random = draws.word();
            let Placement::Two(first, _) = CClone.place(loads_of(&[3, 3, 3]), random) else {
                panic!("three are in service")
            };
            assert_eq!(RackSched.place(loads_of(&[3, 3, 3]), random), Placement::One(first));
            assert_eq!(
                NetClone::with_racksched().place(loads_of(&[3, 3, 3]), random),
                Placement::One(first)
            );
        }
    }
}
