//! Latencies of the same requests by each clock that has stamped them, side by side.
//!
//! The latencies of a result are the user's, for every request has those. One request in so many is
//! stamped by the kernel too, and by the interface where it can; these tell how much of what the
//! user sees is the client's own doing.
//!
//! Invariant: only requests that two clocks at least have stamped are in any of these, so that what
//! differs is the clock. Stamps come after their requests: those of the last slice before the
//! measurement may be among them, and those of its last may not.

use tailcut_measure::stamps::{Bias, BiasSummary, Latencies, MatchCounts};

use super::job::StampKind;
use super::record::Kept;

/// Latencies by each clock, and counts of stamps, over all agents.
#[derive(Debug)]
pub(super) struct Clocks {
    user: Kept,
    kernel: Kept,
    hardware: Kept,
    bias: Bias,
    pub(super) counts: MatchCounts,
}

impl Clocks {
    pub(super) fn new() -> Self {
        let [user, kernel, hardware] = [(); 3].map(|()| Kept::new());
        Self { user, kernel, hardware, bias: Bias::new(), counts: MatchCounts::default() }
    }

    /// Takes what an agent told.
    pub(super) fn take(&mut self, counts: &MatchCounts, stamped: &[Latencies]) {
        self.counts.merge(counts);
        for latencies in stamped {
            let Latencies { user_ns, kernel_ns, hardware_ns } = *latencies;
            for (kept, ns) in [
                (&mut self.user, user_ns),
                (&mut self.kernel, kernel_ns),
                (&mut self.hardware, hardware_ns),
            ] {
                if let Some(ns) = ns {
                    kept.record(ns);
                }
            }
            self.bias.record(latencies);
        }
    }

    /// The clocks that have stamped anything, each with its latencies.
    pub(super) fn by_kind(&self) -> impl Iterator<Item = (StampKind, &Kept)> {
        let all = [
            (StampKind::User, &self.user),
            (StampKind::Kernel, &self.kernel),
            (StampKind::Hardware, &self.hardware),
        ];
        all.into_iter().filter(|(_, kept)| !kept.histogram.is_empty())
    }

    /// The user's latency less the kernel's.
    pub(super) fn bias(&self) -> BiasSummary {
        self.bias.summary()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_clock_has_its_latencies_and_the_client_adds_the_difference() {
        let mut clocks = Clocks::new();
        let stamped = |us: u64| Latencies {
            user_ns: Some(us * 1_000 + 2_000),
            kernel_ns: Some(us * 1_000),
            // The interface loses every second stamp.
            hardware_ns: us.is_multiple_of(2).then_some(us * 1_000 - 500),
        };
        let counts = MatchCounts { requests: 50, ..MatchCounts::default() };
        let all: Vec<Latencies> = (1..=100).map(stamped).collect();
        all.chunks(50).for_each(|chunk| clocks.take(&counts, chunk));
        let counted: Vec<(StampKind, u64)> =
            clocks.by_kind().map(|(kind, kept)| (kind, kept.histogram.len())).collect();
        assert_eq!(
            counted,
            [(StampKind::User, 100), (StampKind::Kernel, 100), (StampKind::Hardware, 50)]
        );
        let medians: Vec<f64> =
            clocks.by_kind().map(|(_, kept)| kept.percentile_ns(0.5).unwrap()).collect();
        for (median, exact) in medians.iter().zip([52_000.0, 50_000.0, 49_500.0]) {
            assert!((median - exact).abs() <= exact / 1_000.0, "{medians:?}");
        }
        assert_eq!(clocks.bias().mean_ns, Some(2_000.0));
        assert_eq!(clocks.counts.requests, 100);
    }

    #[test]
    fn a_clock_that_has_stamped_nothing_is_not_there() {
        assert_eq!(Clocks::new().by_kind().count(), 0);
    }
}
