//! What a path does to the datagrams on it: loss, duplication, corruption, delay and, through jitter, reordering.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use tailcut_proto::node::Time;

/// Properties of a path in one direction. The default is a perfect path of 5 us.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Impairment {
    /// Share of datagrams that never arrive, 0 to 1.
    pub loss: f64,
    /// Share of datagrams that arrive twice, 0 to 1.
    pub duplicate: f64,
    /// Share of datagrams of which one bit is flipped, 0 to 1.
    pub corrupt: f64,
    /// Least time that a datagram takes.
    pub delay_ns: u64,
    /// Most time that a datagram takes longer, uniform; more than the spacing of datagrams reorders them.
    pub jitter_ns: u64,
}

impl Default for Impairment {
    fn default() -> Self {
        Self { loss: 0.0, duplicate: 0.0, corrupt: 0.0, delay_ns: 5000, jitter_ns: 0 }
    }
}

/// An impaired path: decides the fate of each datagram from a seed.
#[derive(Debug)]
pub struct ImpairedPath {
    impairment: Impairment,
    random: Pcg64Mcg,
}

/// What becomes of a datagram: when its copies arrive, and which bit of all of them is flipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// When the datagram arrives; `None` when it is lost.
    pub arrival: Option<Time>,
    /// When a second copy arrives.
    pub second_arrival: Option<Time>,
    /// The bit to flip, counted from the least significant bit of the first byte.
    pub flipped_bit: Option<usize>,
}

impl ImpairedPath {
    /// A path whose decisions follow from `seed`.
    pub fn new(impairment: Impairment, seed: u64) -> Self {
        Self { impairment, random: Pcg64Mcg::seed_from_u64(seed) }
    }

    /// Decides the fate of a datagram of `len` bytes that is sent at `now`.
    pub fn fate(&mut self, now: Time, len: usize) -> Fate {
        let path = self.impairment;
        if self.chance(path.loss) {
            return Fate::default();
        }
        let arrival = Some(self.arrival(now));
        let second_arrival = if self.chance(path.duplicate) { Some(self.arrival(now)) } else { None };
        let flipped_bit = if len > 0 && self.chance(path.corrupt) { Some(self.random.random_range(0..len * 8)) } else { None };
        Fate { arrival, second_arrival, flipped_bit }
    }

    fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.random.random::<f64>() < share
    }

    fn arrival(&mut self, now: Time) -> Time {
        let jitter = if self.impairment.jitter_ns > 0 { self.random.random_range(0..=self.impairment.jitter_ns) } else { 0 };
        now + self.impairment.delay_ns + jitter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_met_and_a_seed_repeats_itself() {
        let impairment = Impairment { loss: 0.1, duplicate: 0.2, corrupt: 0.05, delay_ns: 100, jitter_ns: 50 };
        let run = || {
            let mut path = ImpairedPath::new(impairment, 7);
            (0..100_000).map(|now| path.fate(now, 10)).collect::<Vec<Fate>>()
        };
        let fates = run();
        assert_eq!(fates, run());
        let share = |test: fn(&Fate) -> bool| fates.iter().filter(|fate| test(fate)).count() as f64 / fates.len() as f64;
        // Three standard deviations of a share of 100 000 are at most 0.004.
        assert!((share(|fate| fate.arrival.is_none()) - 0.1).abs() < 0.004);
        assert!((share(|fate| fate.second_arrival.is_some()) - 0.2 * 0.9).abs() < 0.004);
        assert!((share(|fate| fate.flipped_bit.is_some()) - 0.05 * 0.9).abs() < 0.004);
    }
}
