//! Random draws among workers: a stream of words from one, and workers by rank.

use super::WorkerId;

/// SplitMix64: a stream of words from one, the same on every machine for all time.
#[derive(Clone, Copy, Debug)]
pub struct Draws(u64);

impl Draws {
    /// The stream that `seed` begins.
    #[inline]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 uniform bits.
    #[inline]
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number below `limit`, which is not 0. The bias is below 2^-22 for up to 1,024
    /// workers.
    #[inline]
    pub fn below(&mut self, limit: u32) -> u32 {
        (((self.word() >> 32) * u64::from(limit)) >> 32) as u32
    }

    /// Two distinct numbers below `limit`, which is at least 2; every ordered pair is equally
    /// likely.
    #[inline]
    pub(super) fn distinct_below(&mut self, limit: u32) -> (u32, u32) {
        distinct_of(self.word(), limit)
    }
}

/// Two distinct numbers below `limit` of 64 uniform bits, a half for each number.
#[inline]
pub(super) fn distinct_of(word: u64, limit: u32) -> (u32, u32) {
    let (high, low) = (word >> 32, word & u64::from(u32::MAX));
    let first = ((high * u64::from(limit)) >> 32) as u32;
    let other = ((low * u64::from(limit - 1)) >> 32) as u32;
    (first, other + u32::from(other >= first))
}

/// Workers whose load is below `limit`.
pub(super) fn count_below(loads: &[u32], limit: u32) -> u32 {
    // Not a sum, whose check for overflow keeps a debug build from vector code.
    loads.iter().map(|&load| u32::from(load < limit)).fold(0, u32::wrapping_add)
}

/// The worker of rank `rank` among the `count` whose load is below `limit`.
pub(super) fn nth_below(loads: &[u32], limit: u32, count: u32, rank: u32) -> WorkerId {
    if count as usize == loads.len() {
        return WorkerId(rank);
    }
    let below = loads.iter().enumerate().filter(|&(_, &load)| load < limit);
    let (index, _) = below.into_iter().nth(rank as usize).expect("the rank is below the count");
    WorkerId::at(index)
}
