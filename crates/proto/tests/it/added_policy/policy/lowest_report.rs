//! The lowest report of all.

use super::{
    Argument, Entry, Form, Loads, OUT_OF_SERVICE, Placement, Policy, PolicySpec, QueueModel, Scope,
    WorkerId,
};

/// The worker in service that reported the least takes the request, the lowest index on a tie.
#[derive(Clone, Copy, Debug)]
pub struct LowestReport;

/// Its entry in the registry.
pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: "lowest-report",
    forms: &[Form { parameter: "", about: "the lowest report of all" }],
    scope: Scope::Everywhere,
    build: |_| Box::new(LowestReport),
    model: |_| QueueModel::Other,
}];

impl LowestReport {
    /// `lowest-report`.
    pub const SPEC: PolicySpec = PolicySpec::new(&ENTRIES[0], Argument::None);
}

impl Policy for LowestReport {
    fn place(&mut self, loads: Loads<'_>, _random: u64) -> Placement {
        let workers = (0..loads.outstanding.len()).map(WorkerId::at);
        workers
            .filter(|&worker| loads.of(worker).outstanding != OUT_OF_SERVICE)
            .min_by_key(|&worker| loads.of(worker).reported)
            .map_or(Placement::Hold, Placement::One)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(outstanding: &[u32], reported: &[u32], expected: Placement) {
        assert_eq!(
            LowestReport.place(Loads { outstanding, reported, waiting: reported }, 0),
            expected
        );
    }

    #[test]
    fn it_goes_by_reports_and_passes_over_those_out_of_service() {
        check(&[0, 9, 0], &[3, 1, 2], Placement::One(WorkerId(1)));
        check(&[0, OUT_OF_SERVICE, 0], &[3, 1, 2], Placement::One(WorkerId(2)));
        check(&[5, 0], &[4, 4], Placement::One(WorkerId(0)));
        check(&[OUT_OF_SERVICE], &[0], Placement::Hold);
    }
}
