//! Join the shortest queue, of a sample.

use std::num::NonZeroU32;

use super::draws::{Draws, count_below, nth_below};
use super::{
    Argument, Entry, Form, Loads, OUT_OF_SERVICE, Placement, Policy, PolicySpec, QueueModel, Scope,
    WorkerId,
};

/// Join the shortest of `d` queues. With `d` at or above the number of workers in service it sees
/// them all: full JSQ.
///
/// The `d` workers are distinct. A tie goes to each of the tied with equal probability.
#[derive(Clone, Copy, Debug)]
pub struct Jsq {
    /// Workers sampled.
    d: NonZeroU32,
}

/// Its entry in the registry.
pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: "jsq",
    forms: &[Form { parameter: "D", about: "the fewest outstanding of {} random servers" }],
    scope: Scope::Everywhere,
    build: |argument| Box::new(Jsq::new(argument.count())),
    // One sample is placement at random.
    model: |argument| match argument.count() {
        NonZeroU32::MIN => QueueModel::Independent,
        samples => QueueModel::Sampled(samples),
    },
}];

impl Jsq {
    /// Samples `d` workers for each request.
    pub fn new(d: NonZeroU32) -> Self {
        Self { d }
    }

    /// `jsq:D`.
    pub fn spec(d: NonZeroU32) -> PolicySpec {
        PolicySpec::new(&ENTRIES[0], Argument::Count(d))
    }
}

impl Policy for Jsq {
    fn place(&mut self, loads: Loads<'_>, random: u64) -> Placement {
        let loads = loads.outstanding;
        let count = count_below(loads, OUT_OF_SERVICE);
        let nth = |rank| nth_below(loads, OUT_OF_SERVICE, count, rank);
        let mut draws = Draws::new(random);
        let mut best = Shortest::default();
        match (self.d.get(), count) {
            (_, 0) => return Placement::Hold,
            (1, _) => best.see(loads, nth(draws.below(count)), &mut draws),
            (2, 2..) => {
                let (first, second) = draws.distinct_below(count);
                best.see(loads, nth(first), &mut draws);
                best.see(loads, nth(second), &mut draws);
            }
            (d, _) => best.sample(loads, d.min(count), count, &mut draws),
        }
        best.worker.map_or(Placement::Hold, Placement::One)
    }
}

/// The least loaded of the workers seen so far, each tie decided by a draw.
#[derive(Default)]
struct Shortest {
    /// The best so far.
    worker: Option<WorkerId>,
    /// Its load.
    load: u32,
    /// Workers seen with that load.
    tied_count: u32,
}

impl Shortest {
    fn see(&mut self, loads: &[u32], worker: WorkerId, draws: &mut Draws) {
        let load = loads[worker.index()];
        if self.worker.is_none() || load < self.load {
            *self = Self { worker: Some(worker), load, tied_count: 1 };
        } else if load == self.load {
            self.tied_count += 1;
            if draws.below(self.tied_count) == 0 {
                self.worker = Some(worker);
            }
        }
    }

    /// Looks at a uniform sample of `wanted` of the `left` workers in service, in one pass (Knuth's
    /// selection sampling).
    fn sample(&mut self, loads: &[u32], mut wanted: u32, mut left: u32, draws: &mut Draws) {
        for (index, _) in loads.iter().enumerate().filter(|&(_, &load)| load != OUT_OF_SERVICE) {
            if wanted == left || draws.below(left) < wanted {
                self.see(loads, WorkerId::at(index), draws);
                wanted -= 1;
            }
            left -= 1;
            if wanted == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{OUT, count, loads, loads_of};
    use super::*;
    use proptest::prelude::*;

    /// With distinct loads the i-th shortest wins when it is sampled and no shorter one is:
    /// C(k-1-i, d-1)/C(k, d).
    fn check_samples(d: u32, expected: [u32; 4]) {
        // 60,000 draws: sigma is at most 123, so 750 is 6 sigma.
        let mut hits = [0u32; 4];
        let mut draws = Draws::new(2);
        for _ in 0..60_000 {
            if let Placement::One(worker) =
                Jsq::new(count(d)).place(loads_of(&[0, 1, 2, 3]), draws.word())
            {
                hits[worker.index()] += 1;
            }
        }
        assert!(
            hits.iter().zip(expected).all(|(hit, expected)| hit.abs_diff(expected) < 750),
            "{hits:?} of {expected:?}"
        );
    }

    #[test]
    fn jsq_of_one_is_random() {
        check_samples(1, [15_000, 15_000, 15_000, 15_000]);
    }

    #[test]
    fn jsq_of_two_samples_distinct_pairs_uniformly() {
        check_samples(2, [30_000, 20_000, 10_000, 0]);
    }

    #[test]
    fn jsq_of_three_samples_distinct_triples_uniformly() {
        check_samples(3, [45_000, 15_000, 0, 0]);
    }

    #[test]
    fn jsq_of_all_or_more_is_full_jsq() {
        check_samples(4, [60_000, 0, 0, 0]);
        check_samples(100, [60_000, 0, 0, 0]);
    }

    #[test]
    fn jsq_ties_are_decided_uniformly() {
        // As for `random`: 6 sigma of 30,000 draws over 3.
        for d in [2, 3, 4] {
            let mut hits = [0u32; 3];
            let mut draws = Draws::new(3);
            for _ in 0..30_000 {
                if let Placement::One(worker) =
                    Jsq::new(count(d)).place(loads_of(&[4, 4, 4]), draws.word())
                {
                    hits[worker.index()] += 1;
                }
            }
            assert!(hits.iter().all(|hit| hit.abs_diff(10_000) < 500), "jsq:{d} {hits:?}");
        }
    }

    proptest! {
        #[test]
        fn full_jsq_places_on_a_shortest(loads in loads(), random: u64) {
            let fewest = loads.iter().copied().min().filter(|&load| load != OUT);
            match Jsq::new(count(20)).place(loads_of(&loads), random) {
                Placement::One(worker) => prop_assert_eq!(Some(loads[worker.index()]), fewest),
                _ => prop_assert!(fewest.is_none()),
            }
        }

        #[test]
        fn jsq_beats_all_but_its_unsampled_rivals(loads in loads(), d in 1u32..20, random: u64) {
            // At least d - 1 of the workers in service are as loaded as the chosen one, for they
            // were sampled too.
            let in_service = loads.iter().filter(|&&load| load != OUT).count();
            if let Placement::One(worker) = Jsq::new(count(d)).place(loads_of(&loads), random) {
                let chosen = loads[worker.index()];
                prop_assert!(chosen != OUT);
                let not_less = loads.iter().filter(|&&load| load != OUT && load >= chosen).count();
                prop_assert!(not_less >= in_service.min(d as usize));
            } else {
                prop_assert_eq!(in_service, 0);
            }
        }
    }
}
