//! Round robin.

use super::{
    Argument, Entry, Form, Loads, OUT_OF_SERVICE, Placement, Policy, PolicySpec, QueueModel, Scope,
    WorkerId,
};

/// Workers take turns, those out of service are passed over.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    /// Index of the worker whose turn it is; may be past the end after a removal.
    next: usize,
}

/// Its entry in the registry.
pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: "rr",
    forms: &[Form { parameter: "", about: "servers take turns" }],
    scope: Scope::Everywhere,
    build: |_| Box::new(RoundRobin::default()),
    model: |_| QueueModel::Cyclic,
}];

impl RoundRobin {
    /// `rr`.
    pub const SPEC: PolicySpec = PolicySpec::new(&ENTRIES[0], Argument::None);
}

impl Policy for RoundRobin {
    fn place(&mut self, loads: Loads<'_>, _random: u64) -> Placement {
        let loads = loads.outstanding;
        let start = if self.next < loads.len() { self.next } else { 0 };
        let mut turns = (start..loads.len()).chain(0..start);
        let Some(index) = turns.find(|&index| loads[index] != OUT_OF_SERVICE) else {
            return Placement::Hold;
        };
        self.next = index + 1;
        Placement::One(WorkerId::at(index))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{OUT, check_placed as check};
    use super::*;

    #[test]
    fn round_robin_takes_turns_and_passes_over_those_out_of_service() {
        check(&mut RoundRobin::default(), &[7, OUT, 7, 7], &[0, 2, 3, 0, 2]);
    }

    #[test]
    fn round_robin_survives_a_removal() {
        let mut policy = RoundRobin::default();
        check(&mut policy, &[0, 0, 0], &[0, 1]);
        check(&mut policy, &[0], &[0, 0]);
    }
}
