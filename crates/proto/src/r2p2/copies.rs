//! State that a client keeps for second copies of its calls: where one is, how many may go, and
//! after which time one goes. `client_copies` has the rules.

use crate::node::Time;

/// State of the copy of a call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum CopyState<P> {
    /// There is none, or none is left.
    #[default]
    Absent,
    /// It goes at this time, if it may.
    Due(Time),
    /// It goes to this party next.
    Wanted(P),
    /// It has gone to this party.
    Sent(P),
}

impl<P> CopyState<P> {
    /// True if it goes or has gone to a party of which this holds.
    #[inline]
    pub(super) fn is_of(&self, holds: impl FnOnce(&P) -> bool) -> bool {
        match self {
            Self::Absent | Self::Due(_) => false,
            Self::Wanted(party) | Self::Sent(party) => holds(party),
        }
    }

    /// Time at which it is due; never in most states.
    pub(super) fn due_at(&self) -> Time {
        match self {
            Self::Due(at) => *at,
            Self::Absent | Self::Wanted(_) | Self::Sent(_) => Time::MAX,
        }
    }
}

/// Budget of what a client may send again: each call adds thousandths, and what is sent takes a
/// whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    /// Thousandths.
    left: u32,
    /// Most of them.
    max: u32,
}

impl Credit {
    /// Nothing yet; `burst` may follow each other after a quiet time.
    pub(super) fn new(burst: u32) -> Self {
        Self { left: 0, max: burst * COST }
    }

    pub(super) fn earn(&mut self, permille: u16) {
        // Quiet calls of the past must not pay for a flood now that the servers are slow.
        self.left = (self.left + u32::from(permille)).min(self.max);
    }

    /// Takes one, if there is one.
    pub(super) fn spend(&mut self) -> bool {
        let left = self.left.checked_sub(COST);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

/// A quantile of times, by stochastic approximation: each sample moves it by a small share of
/// itself, up where it is above and down where it is below, in the ratio that leaves it where the
/// quantile is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quantile {
    /// Estimate, ns.
    at_ns: u64,
    /// Samples so far, as far as it matters.
    samples: u32,
}

impl Quantile {
    pub(super) fn sample(&mut self, time_ns: u64, permille: u16) {
        if self.samples == 0 {
            self.at_ns = time_ns;
        }
        let (above, below) =
            (u64::from(permille.min(1_000)), u64::from(1_000 - permille.min(1_000)));
        // Long steps at first, since the first sample may be far from the quantile.
        let parts = if self.samples < SAMPLES_MIN { 8_000 } else { 64_000 };
        let step = |weight: u64| (self.at_ns.saturating_mul(weight) / parts).max(1);
        self.at_ns = match time_ns > self.at_ns {
            true => self.at_ns.saturating_add(step(above)),
            false => self.at_ns.saturating_sub(step(below)),
        };
        self.at_ns = self.at_ns.max(TIME_MIN_NS);
        self.samples = (self.samples + 1).min(SAMPLES_MIN);
    }

    /// The estimate, once there are enough samples.
    pub(super) fn time_ns(&self) -> Option<u64> {
        (self.samples == SAMPLES_MIN).then_some(self.at_ns)
    }
}

/// Copies that may follow each other after a quiet time.
pub(super) const COPIES_BURST: u32 = 16;

/// Calls that may be tried again one after the other after a quiet time.
pub(super) const RETRIES_BURST: u32 = 10;

/// A whole, in thousandths.
const COST: u32 = 1_000;

/// Samples before a quantile is believed.
const SAMPLES_MIN: u32 = 64;

/// Least quantile, so that a share of it is something.
const TIME_MIN_NS: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::super::config::Hedge;
    use super::*;
    use crate::policy::Draws;

    #[test]
    fn a_quantile_is_found_whatever_it_begins_with() {
        // 1 to 1,000 us, uniform: the 95th percentile is 950 us. A step is 1/64 of 50 thousandths
        // down and of 950 up, whose random walk is within 5 %.
        for first_ns in [1_000, 20_000_000] {
            let (mut quantile, mut draws) = (Quantile::default(), Draws::new(7));
            quantile.sample(first_ns, 950);
            for _ in 0..20_000 {
                quantile.sample(1_000 * (1 + u64::from(draws.below(1_000))), 950);
            }
            let found_ns = quantile.time_ns().unwrap();
            assert!(found_ns.abs_diff(950_000) < 48_000, "{found_ns}");
        }
    }

    #[test]
    fn a_quantile_is_not_believed_at_once() {
        let mut quantile = Quantile::default();
        for _ in 0..SAMPLES_MIN {
            assert_eq!(quantile.time_ns(), None);
            quantile.sample(5_000, 950);
        }
        assert!(quantile.time_ns().is_some());
    }

    #[test]
    fn the_budget_is_never_more_than_its_share() {
        let mut budget = Credit::new(COPIES_BURST);
        let mut copies = 0;
        for calls in 1..=10_000 {
            budget.earn(Hedge::default().budget_permille);
            copies += u32::from(budget.spend());
            assert!(copies * 20 <= calls, "{copies} copies of {calls} calls");
        }
        assert_eq!(copies, 500);
    }

    /// An eighth of its way at first, a sixty-fourth once it is believed.
    #[test]
    fn a_quantile_moves_far_while_it_is_not_believed() {
        let moved_permille = |quantile: &mut Quantile| {
            let before = quantile.at_ns;
            quantile.sample(10 * before, 1_000);
            (quantile.at_ns - before) * 1_000 / before
        };
        let mut quantile = Quantile::default();
        quantile.sample(1_000_000, 0);
        assert_eq!(moved_permille(&mut quantile), 125);
        (2..SAMPLES_MIN - 1).for_each(|_| quantile.sample(1_000_000, 950));
        assert_eq!(moved_permille(&mut quantile), 125);
        assert_eq!(moved_permille(&mut quantile), 15);
    }
}
