//! JBSQ by bitmaps: the placements of [`Jbsq`], in a time that does not grow with the workers.
//!
//! Invariant: each worker's bit is in the level of its count, and in no other.
//!
//! [`Jbsq`]: tailcut_proto::policy::Jbsq

use tailcut_proto::policy::{Loads, Placement, Policy, WorkerId};

use super::config::WORKERS_MAX;
use super::hand_off::BOUND_MAX;

/// Join the bounded shortest queue before workers that are always in service; ties rotate.
#[derive(Clone, Debug)]
pub struct Levels {
    /// Outstanding jobs at which a worker takes no more; 1 to [`BOUND_MAX`].
    bound: u32,
    /// By how many jobs a worker has, a bit for each that has so many.
    levels: [u64; BOUND_MAX as usize + 1],
    /// Jobs that each worker has.
    counts: [u8; WORKERS_MAX],
    /// A bit for each worker from the one after that which was placed on last.
    ahead: u64,
}

impl Levels {
    /// `workers` workers that have nothing.
    pub(super) fn new(workers: usize, bound: u32) -> Self {
        let mut levels = [0; BOUND_MAX as usize + 1];
        levels[0] = u64::MAX >> (WORKERS_MAX - workers.clamp(1, WORKERS_MAX));
        Self { bound: bound.clamp(1, BOUND_MAX), levels, counts: [0; WORKERS_MAX], ahead: u64::MAX }
    }
}

impl Policy for Levels {
    #[inline]
    fn place(&mut self, _loads: Loads<'_>, _random: u64) -> Placement {
        let below = &self.levels[..self.bound as usize];
        let Some(level) = below.iter().position(|&level| level != 0) else {
            return Placement::Hold;
        };
        let fewest = self.levels[level];
        let ahead = fewest & self.ahead;
        let bit = lowest(if ahead != 0 { ahead } else { fewest });
        let index = bit.trailing_zeros();
        self.levels[level] ^= bit;
        self.levels[level + 1] |= bit;
        self.counts[index as usize] += 1;
        // The bits above this one; none above the last, and the next round begins at the first.
        self.ahead = !(bit | (bit - 1));
        Placement::One(WorkerId(index))
    }

    fn bound(&self) -> Option<u32> {
        Some(self.bound)
    }

    fn set_bound(&mut self, bound: u32) {
        self.bound = bound.clamp(1, BOUND_MAX);
    }

    #[inline]
    fn note_placed(&mut self, worker: WorkerId) {
        let (index, bit) = (worker.index(), 1 << worker.index());
        let level = usize::from(self.counts[index]);
        if level < BOUND_MAX as usize {
            self.levels[level] ^= bit;
            self.levels[level + 1] |= bit;
            self.counts[index] += 1;
        }
    }

    #[inline]
    fn note_concluded(&mut self, worker: WorkerId) {
        let (index, bit) = (worker.index(), 1 << worker.index());
        let level = usize::from(self.counts[index]);
        if level > 0 {
            self.levels[level] ^= bit;
            self.levels[level - 1] |= bit;
            self.counts[index] -= 1;
        }
    }
}

fn lowest(bits: u64) -> u64 {
    bits & bits.wrapping_neg()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;
    use tailcut_proto::policy::Jbsq;

    use super::*;

    proptest! {
        #[test]
        fn it_places_as_jbsq_does(
            workers in 1usize..65,
            bound in 1u32..17,
            steps in proptest::collection::vec((0usize..64, 0u32..40), 1..400),
        ) {
            let mut levels = Levels::new(workers, bound);
            let mut jbsq = Jbsq::new(NonZeroU32::new(bound).unwrap());
            let (mut outstanding, others) = (vec![0; workers], vec![0; workers]);
            for (worker, what) in steps {
                match what {
                    // Bounds move while workers have more.
                    0 => {
                        levels.set_bound(1 + worker as u32 % 16);
                        jbsq.set_bound(1 + worker as u32 % 16);
                    }
                    1..15 if outstanding[worker % workers] > 0 => {
                        outstanding[worker % workers] -= 1;
                        levels.note_concluded(WorkerId::at(worker % workers));
                    }
                    _ => {
                        let loads = Loads {
                            outstanding: &outstanding,
                            reported: &others,
                            waiting: &others,
                        };
                        let placement = levels.place(loads, 0);
                        prop_assert_eq!(placement, jbsq.place(loads, 0));
                        if let Placement::One(worker) = placement {
                            outstanding[worker.index()] += 1;
                        }
                    }
                }
            }
        }
    }
}
