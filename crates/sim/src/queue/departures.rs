//! The next departure of each worker, with the earliest at hand.
//!
//! A tree of blocks of 16: a leaf is a worker's next departure, a slot above the earliest of the
//! block below it. So 16 workers are one block, whose minimum is a scan without a branch that
//! depends on who wins.
//!
//! Invariant: a slot is the minimum of the block below it, `first` that of the root; at equal times
//! the lower worker departs first.

/// The next departure of each worker.
#[derive(Clone, Debug)]
pub(super) struct Departures {
    /// In each slot the time, and in the low bits the worker; [`NOBODY`] where none departs. The
    /// root is block 0, and the block below slot s of block b is 16 b + s + 1.
    blocks: Vec<[u64; FAN]>,
    /// The first block whose slots are workers.
    first_leaf: usize,
    /// The earliest of all.
    first: u64,
    /// Number of low bits that name the worker.
    worker_bits: u32,
}

impl Departures {
    /// Nobody departs.
    pub(super) fn new(workers: usize) -> Self {
        let (mut first_leaf, mut leaves) = (0, 1);
        while leaves * FAN < workers {
            first_leaf += leaves;
            leaves *= FAN;
        }
        let blocks = vec![[NOBODY; FAN]; first_leaf + workers.div_ceil(FAN)];
        Self { blocks, first_leaf, first: NOBODY, worker_bits: worker_bits(workers) }
    }

    /// The first time that is too late to be kept.
    pub(super) fn time_end(workers: usize) -> u64 {
        NOBODY >> worker_bits(workers)
    }

    /// The time and the worker of the next departure, if that is until `until`.
    #[inline]
    pub(super) fn earliest(&self, until: u64) -> Option<(u64, usize)> {
        let time = self.first >> self.worker_bits;
        (self.first != NOBODY && time <= until)
            .then(|| (time, (self.first - (time << self.worker_bits)) as usize))
    }

    /// Sets when `worker` departs, where nothing departed before.
    #[inline]
    pub(super) fn begin(&mut self, worker: usize, time: u64) {
        let key = (time << self.worker_bits) | worker as u64;
        let mut at = self.first_leaf * FAN + worker;
        loop {
            let slot = &mut self.blocks[at / FAN][at % FAN];
            *slot = key.min(*slot);
            if at < FAN {
                break;
            }
            at = at / FAN - 1;
        }
        self.first = key.min(self.first);
    }

    /// Sets when `worker` departs after its departure before; `None` where nothing does.
    #[inline]
    pub(super) fn follow(&mut self, worker: usize, time: Option<u64>) {
        let mut key = time.map_or(NOBODY, |time| (time << self.worker_bits) | worker as u64);
        let mut at = self.first_leaf * FAN + worker;
        loop {
            let block = &mut self.blocks[at / FAN];
            block[at % FAN] = key;
            key = minimum(block);
            if at < FAN {
                break;
            }
            at = at / FAN - 1;
        }
        self.first = key;
    }
}

/// By halves, because a chain of 16 becomes branches.
#[inline]
fn minimum(block: &[u64; FAN]) -> u64 {
    let mut least = *block;
    for half in [8, 4, 2, 1] {
        for at in 0..half {
            least[at] = least[at].min(least[at + half]);
        }
    }
    least[0]
}

fn worker_bits(workers: usize) -> u32 {
    workers.next_power_of_two().trailing_zeros()
}

/// Slots of a block.
const FAN: usize = 16;
const NOBODY: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_earliest_is_the_minimum(workers in 1usize..600, steps in proptest::collection::vec((0usize..600, 1u64..50), 1..200)) {
            let (mut departures, mut list) = (Departures::new(workers), vec![None; workers]);
            let last = Departures::time_end(workers) - 1;
            prop_assert_eq!(departures.earliest(last), None);
            for (worker, time) in steps {
                let worker = worker % workers;
                match list[worker] {
                    None => {
                        list[worker] = Some(time);
                        departures.begin(worker, time);
                    }
                    Some(before) => {
                        list[worker] = (time % 3 > 0).then_some(before + time);
                        departures.follow(worker, list[worker]);
                    }
                }
                let expected = list.iter().zip(0..).filter_map(|(time, worker)| time.map(|time| (time, worker))).min();
                prop_assert_eq!(departures.earliest(last), expected);
                prop_assert_eq!(departures.earliest(24), expected.filter(|&(time, _)| time <= 24));
            }
        }
    }
}
