//! C-Clone: two copies, always.

use super::{Entry, Form, Loads, OUT_OF_SERVICE, Placement, Policy, QueueModel, Scope};

/// The client sends two copies, whatever the load is (Vulimiri et al., CoNEXT'13; "C-Clone" of the
/// NetClone paper).
#[derive(Clone, Copy, Debug, Default)]
pub struct CClone;

/// Its entry in the registry.
pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: "cclone",
    forms: &[Form { parameter: "", about: "two random servers, each request at both" }],
    scope: Scope::Simulated,
    build: |_| Box::new(CClone),
    model: |_| QueueModel::Other,
}];

impl Policy for CClone {
    fn place(&mut self, loads: Loads<'_>, random: u64) -> Placement {
        loads.draw_pair(OUT_OF_SERVICE, random)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{all_pairs_of_three, check_shares as check};
    use super::*;

    #[test]
    fn cclone_clones_whatever_the_load_is() {
        check(CClone, &[7, 0, 3], &all_pairs_of_three());
    }
}
