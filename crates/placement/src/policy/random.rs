//! Random placement.

use super::{Argument, Entry, Form, Loads, Placement, Policy, PolicySpec, QueueModel, Scope};

/// Every worker in service is equally likely: the independent queues of `k x M/G/1`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Random;

/// Its entry in the registry.
pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: "random",
    forms: &[Form { parameter: "", about: "any server" }],
    scope: Scope::Everywhere,
    build: |_| Box::new(Random),
    model: |_| QueueModel::Independent,
}];

impl Random {
    /// `random`.
    pub const SPEC: PolicySpec = PolicySpec::new(&ENTRIES[0], Argument::None);
}

impl Policy for Random {
    fn place(&mut self, loads: Loads<'_>, random: u64) -> Placement {
        loads.draw_one(random)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Draws;
    use super::super::tests::{OUT, loads_of};
    use super::*;

    #[test]
    fn random_is_uniform_over_those_in_service() {
        // 30,000 draws over 3: sigma is 82, so 500 is 6 sigma.
        let loads = [0, OUT, 5, 9];
        let mut hits = [0u32; 4];
        let mut draws = Draws::new(1);
        for _ in 0..30_000 {
            if let Placement::One(worker) = Random.place(loads_of(&loads), draws.word()) {
                hits[worker.index()] += 1;
            }
        }
        assert_eq!(hits[1], 0);
        assert!(
            [hits[0], hits[2], hits[3]].iter().all(|hit| hit.abs_diff(10_000) < 500),
            "{hits:?}"
        );
    }
}
