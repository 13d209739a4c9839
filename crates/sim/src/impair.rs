//! Impairments of a path: loss, alone or in bursts, duplication, corruption,
//! delay, and reordering.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Properties of a path in one direction. The default is a perfect path of 5 us.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Impairment {
    /// Share of datagrams that never arrive, 0 to 1, each for itself.
    pub loss: f64,
    /// Loss that comes in bursts, besides.
    pub bursts: Bursts,
    /// Share of datagrams that arrive twice, 0 to 1.
    pub duplicate: f64,
    /// Share of datagrams of which one bit is flipped, 0 to 1.
    pub corrupt: f64,
    /// Share of datagrams that are held back by `reorder_ns`, so that later ones overtake them, 0
    /// to 1.
    pub reorder: f64,
    /// Time for which a datagram is held back.
    pub reorder_ns: u64,
    /// Least time that a datagram takes.
    pub delay_ns: u64,
    /// Most time that a datagram takes longer, uniform; more than the spacing of datagrams reorders
    /// them.
    pub jitter_ns: u64,
}

/// Loss in bursts (Gilbert's model): a path is good or bad, and a bad one loses everything. The
/// default is always good.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bursts {
    /// Chance at each datagram that a good path turns bad, 0 to 1.
    pub begin: f64,
    /// Chance at each datagram that a bad path turns good, above 0 to 1: the inverse of the mean
    /// length of a burst.
    pub end: f64,
}

impl Impairment {
    /// A path that loses and delays nothing: what lies between hosts does that.
    pub const NONE: Self = Self {
        loss: 0.0,
        bursts: Bursts { begin: 0.0, end: 0.0 },
        duplicate: 0.0,
        corrupt: 0.0,
        reorder: 0.0,
        reorder_ns: 0,
        delay_ns: 0,
        jitter_ns: 0,
    };
}

impl Default for Impairment {
    fn default() -> Self {
        Self { delay_ns: 5000, ..Self::NONE }
    }
}

/// An impaired path: decides the fate of each datagram from a seed.
#[derive(Debug)]
pub struct ImpairedPath {
    impairment: Impairment,
    random: Pcg64Mcg,
    is_bad: bool,
    /// It does nothing to any datagram.
    is_perfect: bool,
}

/// The fate of a datagram: the times of its copies, and the bit that is flipped in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// Time until the datagram arrives; `None` when it is lost.
    pub delay_ns: Option<u64>,
    /// Time until a second copy arrives.
    pub second_delay_ns: Option<u64>,
    /// The bit to flip, counted from the least significant bit of the first byte.
    pub flipped_bit: Option<usize>,
}

impl ImpairedPath {
    /// A path whose decisions follow from `seed`.
    pub fn new(impairment: Impairment, seed: u64) -> Self {
        let is_perfect = impairment == Impairment::NONE;
        Self { impairment, random: Pcg64Mcg::seed_from_u64(seed), is_bad: false, is_perfect }
    }

    /// Decides the fate of a datagram of `len` bytes.
    #[inline]
    pub fn fate(&mut self, len: usize) -> Fate {
        if self.is_perfect {
            Fate { delay_ns: Some(0), ..Fate::default() }
        } else {
            self.draw_fate(len)
        }
    }

    fn draw_fate(&mut self, len: usize) -> Fate {
        let path = self.impairment;
        let turns = if self.is_bad { path.bursts.end } else { path.bursts.begin };
        self.is_bad ^= self.chance(turns);
        if self.is_bad || self.chance(path.loss) {
            return Fate::default();
        }
        let delay_ns = Some(self.delay_ns());
        let second_delay_ns =
            if self.chance(path.duplicate) { Some(self.delay_ns()) } else { None };
        let flipped_bit = if len > 0 && self.chance(path.corrupt) {
            Some(self.random.random_range(0..len * 8))
        } else {
            None
        };
        Fate { delay_ns, second_delay_ns, flipped_bit }
    }

    fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.random.random::<f64>() < share
    }

    fn delay_ns(&mut self) -> u64 {
        let path = self.impairment;
        let jitter_ns =
            if path.jitter_ns > 0 { self.random.random_range(0..=path.jitter_ns) } else { 0 };
        let held_ns = if self.chance(path.reorder) { path.reorder_ns } else { 0 };
        path.delay_ns + jitter_ns + held_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(impairment: Impairment) -> Vec<Fate> {
        let mut path = ImpairedPath::new(impairment, 7);
        (0..100_000).map(|_| path.fate(10)).collect()
    }

    fn share(fates: &[Fate], test: fn(&Fate) -> bool) -> f64 {
        fates.iter().filter(|fate| test(fate)).count() as f64 / fates.len() as f64
    }

    #[test]
    fn shares_are_met_and_a_seed_repeats_itself() {
        let impairment = Impairment {
            loss: 0.1,
            duplicate: 0.2,
            corrupt: 0.05,
            delay_ns: 100,
            jitter_ns: 50,
            ..Impairment::NONE
        };
        let found = fates(impairment);
        assert_eq!(found, fates(impairment));
        // Three standard deviations of a share of 100,000 are at most 0.004.
        assert!((share(&found, |fate| fate.delay_ns.is_none()) - 0.1).abs() < 0.004);
        assert!((share(&found, |fate| fate.second_delay_ns.is_some()) - 0.2 * 0.9).abs() < 0.004);
        assert!((share(&found, |fate| fate.flipped_bit.is_some()) - 0.05 * 0.9).abs() < 0.004);
    }

    #[test]
    fn some_are_held_back() {
        let found =
            fates(Impairment { reorder: 0.3, reorder_ns: 1000, delay_ns: 5, ..Impairment::NONE });
        assert!((share(&found, |fate| fate.delay_ns == Some(1005)) - 0.3).abs() < 0.005);
    }

    #[test]
    fn bursts_have_their_share_and_length() {
        let found =
            fates(Impairment { bursts: Bursts { begin: 0.01, end: 0.1 }, ..Impairment::NONE });
        let lost: Vec<bool> = found.iter().map(|fate| fate.delay_ns.is_none()).collect();
        let count = lost.iter().filter(|&&lost| lost).count() as f64;
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        // Stationary share 0.01 / 0.11; about 900 bursts of a mean of 10, so 3 standard errors are
        // a tenth.
        assert!((count / 1e5 - 1.0 / 11.0).abs() < 0.015, "{count}");
        assert!((count / bursts - 10.0).abs() < 1.0, "{}", count / bursts);
    }
}
