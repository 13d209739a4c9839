//! Where a request goes: pure deciders over the outstanding counts of the workers and one random
//! word.
//!
//! | policy | grammar | places on | holds |
//! |---|---|---|---|
//! | [`Random`] | `random` | any worker, all equally likely | when no worker is in service |
//! | [`RoundRobin`] | `rr` | the next worker in a fixed circle | when no worker is in service |
//! | [`Jsq`] | `jsq:D` | the fewest outstanding of D distinct random workers, ties at random | when no worker is in service |
//! | [`Jbsq`] | `jbsq:N`, `jbsq:auto` | the fewest outstanding, ties by rotation | when every worker has N outstanding |
//! | [`CClone`], [`NetClone`], [`RackSched`], [`Laedge`] | none | one or two servers: see their docs | as theirs |
//!
//! A policy sees one `u32` a worker: its outstanding requests, or [`OUT_OF_SERVICE`]. It owns no
//! more than a cursor, and the random word is an argument, so that XDP and P4 data planes replay
//! the same decisions from the same trace.
//!
//! Invariant: a placement names workers that are in service, and `place` neither allocates nor
//! looks at a worker twice more than it must: O(workers) at most.

mod cloning;
mod estimator;
mod spec;

use std::num::NonZeroU32;

pub use self::cloning::{CClone, Laedge, NetClone, RackSched};
pub use self::estimator::BoundEstimator;
pub use self::spec::{AnyPolicy, COUNT_MAX, PolicyParseError, PolicySpec};

/// The load of a worker that takes nothing: removed, drained or silent.
pub const OUT_OF_SERVICE: u32 = u32::MAX;

/// The index of a worker among those of one scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u32);

impl WorkerId {
    /// The worker at `index`.
    ///
    /// # Panics
    /// When `index` does not fit 32 bits; a scheduler has far fewer workers.
    #[inline]
    pub fn at(index: usize) -> Self {
        Self(u32::try_from(index).expect("a worker's index fits 32 bits"))
    }

    /// The index for slices.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a policy decides for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Nobody may take it now: it waits in the central queue.
    Hold,
    /// One worker takes it.
    One(WorkerId),
    /// Two distinct workers take it: a cloned request.
    Two(WorkerId, WorkerId),
}

/// Decides where a request goes.
pub trait Policy {
    /// Places one request. `loads` has the outstanding requests of each worker, or
    /// [`OUT_OF_SERVICE`]; `random` is 64 uniform bits, fresh for each call.
    fn place(&mut self, loads: &[u32], random: u64) -> Placement;

    /// Outstanding requests at which a worker takes no more; `None` where the policy has no such
    /// bound.
    fn bound(&self) -> Option<u32> {
        None
    }

    /// Sets the bound of a policy that has one; the others ignore it. A bound of 0 is taken as 1.
    fn set_bound(&mut self, _bound: u32) {}

    /// Hears that a worker has concluded one request, for policies that remember the order of
    /// conclusions.
    fn note_concluded(&mut self, _worker: WorkerId) {}
}

/// Every worker in service is equally likely: the independent queues of `k x M/G/1`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Random;

impl Policy for Random {
    fn place(&mut self, loads: &[u32], random: u64) -> Placement {
        let count = count_in_service(loads);
        if count == 0 {
            return Placement::Hold;
        }
        Placement::One(nth_in_service(loads, count, Draws::new(random).below(count)))
    }
}

/// Workers take turns, those out of service are passed over.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    /// Index of the worker whose turn it is; may be past the end after a removal.
    next: usize,
}

impl Policy for RoundRobin {
    fn place(&mut self, loads: &[u32], _random: u64) -> Placement {
        let start = if self.next < loads.len() { self.next } else { 0 };
        let turn = rotated(loads.len(), start).find(|&index| loads[index] != OUT_OF_SERVICE);
        let Some(index) = turn else {
            return Placement::Hold;
        };
        self.next = index + 1;
        Placement::One(WorkerId::at(index))
    }
}

/// Join the shortest of `d` queues. With `d` at or above the number of workers in service it sees
/// them all: full JSQ.
///
/// The `d` workers are distinct. A tie goes to each of the tied with equal probability.
#[derive(Clone, Copy, Debug)]
pub struct Jsq {
    /// Workers sampled.
    d: NonZeroU32,
}

impl Jsq {
    /// Samples `d` workers for each request.
    pub fn new(d: NonZeroU32) -> Self {
        Self { d }
    }
}

impl Policy for Jsq {
    fn place(&mut self, loads: &[u32], random: u64) -> Placement {
        let count = count_in_service(loads);
        let mut draws = Draws::new(random);
        let mut best = Shortest::default();
        match (self.d.get(), count) {
            (_, 0) => return Placement::Hold,
            (1, _) => best.see(loads, nth_in_service(loads, count, draws.below(count)), &mut draws),
            (2, 2..) => {
                let (first, second) = draws.distinct_below(count);
                best.see(loads, nth_in_service(loads, count, first), &mut draws);
                best.see(loads, nth_in_service(loads, count, second), &mut draws);
            }
            (d, _) => sample_shortest(loads, (d.min(count), count), &mut best, &mut draws),
        }
        best.worker.map_or(Placement::Hold, Placement::One)
    }
}

/// Join the bounded shortest queue: the worker with the fewest outstanding takes the request if
/// that is below the bound, else it waits centrally.
///
/// The tie rule: the scan begins at the worker after the one that was placed on last and goes round
/// once; of several with the fewest outstanding the first in that order wins. With a fixed service
/// time this is the single queue's optimum, because the worker used longest ago is the one that is
/// free first, where ties at random or by lowest index cost a quarter of the p99 at load 0.8 (the
/// RPCValet tables, JBSQ(2): 1.54 against 1.96). For other services the rule matters little. A hold
/// does not move the start.
#[derive(Clone, Copy, Debug)]
pub struct Jbsq {
    /// Outstanding requests at which a worker takes no more; at least 1.
    bound: u32,
    /// Who wins where several have the fewest.
    ties: Ties,
    /// Index at which the next scan of [`Ties::Rotate`] begins; may be past the end after a
    /// removal.
    next: usize,
}

/// Who takes a request where several workers have the fewest outstanding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// The first of them after the worker that was placed on last: the rule of the router and of
    /// RPCValet's dispatcher.
    #[default]
    Rotate,
    /// Each with equal probability.
    Random,
    /// The one with the lowest index.
    Lowest,
}

impl Jbsq {
    /// Bounds every worker to `bound` outstanding requests; ties rotate.
    pub fn new(bound: NonZeroU32) -> Self {
        Self::with_ties(bound, Ties::Rotate)
    }

    /// Bounds every worker to `bound` outstanding requests, with a tie rule to compare with.
    pub fn with_ties(bound: NonZeroU32, ties: Ties) -> Self {
        Self { bound: bound.get(), ties, next: 0 }
    }

    /// The worker with `fewest` outstanding that the tie rule names.
    #[inline]
    fn tied(&self, loads: &[u32], fewest: u32, random: u64) -> Option<usize> {
        let is_fewest = |&load: &u32| load == fewest;
        match self.ties {
            Ties::Rotate => {
                let (before, after) =
                    loads.split_at(if self.next < loads.len() { self.next } else { 0 });
                let ahead = after.iter().position(is_fewest).map(|offset| before.len() + offset);
                ahead.or_else(|| before.iter().position(is_fewest))
            }
            Ties::Random => {
                // Two passes without a branch on who is tied. The tied worker of some rank comes
                // after as many workers as have not seen it.
                let tied = |load: &u32| u32::from(is_fewest(load));
                let tied_count = loads.iter().map(tied).fold(0, u32::wrapping_add);
                if tied_count == 0 {
                    return None;
                }
                let rank = Draws::new(random).below(tied_count);
                let mut seen = 0u32;
                let before = loads.iter().map(|load| {
                    seen = seen.wrapping_add(tied(load));
                    u32::from(seen <= rank)
                });
                Some(before.fold(0, u32::wrapping_add) as usize)
            }
            Ties::Lowest => loads.iter().position(is_fewest),
        }
    }
}

impl Policy for Jbsq {
    #[inline]
    fn place(&mut self, loads: &[u32], random: u64) -> Placement {
        // Nobody has fewer than an idle worker.
        if let Some(index) = self.tied(loads, 0, random) {
            self.next = index + 1;
            return Placement::One(WorkerId::at(index));
        }
        // Two passes, because each is a loop without branches that the compiler turns into vector
        // instructions.
        let Some(fewest) = loads.iter().copied().min().filter(|&fewest| fewest < self.bound) else {
            return Placement::Hold;
        };
        let index = self.tied(loads, fewest, random).expect("the fewest is somewhere");
        self.next = index + 1;
        Placement::One(WorkerId::at(index))
    }

    fn bound(&self) -> Option<u32> {
        Some(self.bound)
    }

    fn set_bound(&mut self, bound: u32) {
        self.bound = bound.clamp(1, OUT_OF_SERVICE - 1);
    }
}

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
    fn distinct_below(&mut self, limit: u32) -> (u32, u32) {
        let first = self.below(limit);
        let other = self.below(limit - 1);
        (first, if other >= first { other + 1 } else { other })
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
}

/// Shows `best` a uniform sample of `wanted` of the `count` workers in service, in one pass
/// (Knuth's selection sampling).
fn sample_shortest(
    loads: &[u32],
    (wanted, count): (u32, u32),
    best: &mut Shortest,
    draws: &mut Draws,
) {
    let (mut wanted, mut left) = (wanted, count);
    for (index, _) in loads.iter().enumerate().filter(|&(_, &load)| load != OUT_OF_SERVICE) {
        if wanted == left || draws.below(left) < wanted {
            best.see(loads, WorkerId::at(index), draws);
            wanted -= 1;
        }
        left -= 1;
        if wanted == 0 {
            return;
        }
    }
}

fn count_in_service(loads: &[u32]) -> u32 {
    count_below(loads, OUT_OF_SERVICE)
}

/// The worker of rank `rank` among the `count` in service.
fn nth_in_service(loads: &[u32], count: u32, rank: u32) -> WorkerId {
    nth_below(loads, OUT_OF_SERVICE, count, rank)
}

/// Workers whose load is below `limit`.
fn count_below(loads: &[u32], limit: u32) -> u32 {
    // Not a sum, whose check for overflow keeps a debug build from vector code.
    loads.iter().map(|&load| u32::from(load < limit)).fold(0, u32::wrapping_add)
}

/// The worker of rank `rank` among the `count` whose load is below `limit`.
fn nth_below(loads: &[u32], limit: u32, count: u32, rank: u32) -> WorkerId {
    if count as usize == loads.len() {
        return WorkerId(rank);
    }
    let below = loads.iter().enumerate().filter(|&(_, &load)| load < limit);
    let (index, _) = below.into_iter().nth(rank as usize).expect("the rank is below the count");
    WorkerId::at(index)
}

fn rotated(len: usize, start: usize) -> impl Iterator<Item = usize> {
    (start..len).chain(0..start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OUT: u32 = OUT_OF_SERVICE;

    fn count(n: u32) -> NonZeroU32 {
        NonZeroU32::new(n).unwrap()
    }

    /// Places as many requests as there are expected workers, all against the same loads; 99 stands
    /// for a hold.
    fn check(policy: &mut impl Policy, loads: &[u32], expected: &[u32]) {
        let found: Vec<u32> = (0..expected.len() as u64)
            .map(|random| match policy.place(loads, random) {
                Placement::Hold => 99,
                Placement::One(worker) => worker.0,
                Placement::Two(..) => panic!("no policy here clones"),
            })
            .collect();
        assert_eq!(found, expected, "loads {loads:?}");
    }

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

    #[test]
    fn nobody_in_service_holds() {
        for spec in ["random", "rr", "jsq:1", "jsq:2", "jsq:9", "jbsq:2"] {
            let mut policy = spec.parse::<PolicySpec>().unwrap().build();
            check(&mut policy, &[OUT, OUT], &[99]);
            check(&mut policy, &[], &[99]);
        }
    }

    #[test]
    fn jbsq_ties_rotate() {
        check(&mut Jbsq::new(count(2)), &[1, 1, 1], &[0, 1, 2, 0]);
    }

    #[test]
    fn jbsq_ties_go_to_the_lowest_index_when_told() {
        check(&mut Jbsq::with_ties(count(2), Ties::Lowest), &[OUT, 1, 0, 0], &[2, 2, 2]);
    }

    #[test]
    fn jbsq_ties_are_uniform_when_told() {
        // As for `random`: 6 sigma of 30,000 draws over 3.
        let (mut policy, mut hits, mut draws) =
            (Jbsq::with_ties(count(2), Ties::Random), [0u32; 4], Draws::new(4));
        for _ in 0..30_000 {
            if let Placement::One(worker) = policy.place(&[1, 0, 0, 0], draws.word()) {
                hits[worker.index()] += 1;
            }
        }
        assert_eq!(hits[0], 0);
        assert!(hits[1..].iter().all(|hit| hit.abs_diff(10_000) < 500), "{hits:?}");
    }

    #[test]
    fn jbsq_prefers_fewer_to_the_rotation() {
        check(&mut Jbsq::new(count(3)), &[1, 2, 0], &[2, 2]);
    }

    #[test]
    fn jbsq_holds_when_all_are_at_the_bound() {
        check(&mut Jbsq::new(count(2)), &[2, 3, OUT], &[99]);
    }

    #[test]
    fn jbsq_hold_does_not_move_the_rotation() {
        let mut policy = Jbsq::new(count(1));
        check(&mut policy, &[0, 0, 0], &[0]);
        check(&mut policy, &[1, 1, 1], &[99]);
        check(&mut policy, &[0, 0, 0], &[1]);
    }

    #[test]
    fn jbsq_takes_a_new_bound() {
        let mut policy = Jbsq::new(count(1));
        check(&mut policy, &[1], &[99]);
        policy.set_bound(2);
        check(&mut policy, &[1], &[0]);
    }

    #[test]
    fn random_is_uniform_over_those_in_service() {
        // 30,000 draws over 3: sigma is 82, so 500 is 6 sigma.
        let loads = [0, OUT, 5, 9];
        let mut hits = [0u32; 4];
        let mut draws = Draws::new(1);
        for _ in 0..30_000 {
            if let Placement::One(worker) = Random.place(&loads, draws.word()) {
                hits[worker.index()] += 1;
            }
        }
        assert_eq!(hits[1], 0);
        assert!(
            [hits[0], hits[2], hits[3]].iter().all(|hit| hit.abs_diff(10_000) < 500),
            "{hits:?}"
        );
    }

    /// With distinct loads the i-th shortest wins when it is sampled and no shorter one is:
    /// C(k-1-i, d-1)/C(k, d).
    fn check_samples(d: u32, expected: [u32; 4]) {
        // 60,000 draws: sigma is at most 123, so 750 is 6 sigma.
        let mut hits = [0u32; 4];
        let mut draws = Draws::new(2);
        for _ in 0..60_000 {
            if let Placement::One(worker) = Jsq::new(count(d)).place(&[0, 1, 2, 3], draws.word()) {
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
                if let Placement::One(worker) = Jsq::new(count(d)).place(&[4, 4, 4], draws.word()) {
                    hits[worker.index()] += 1;
                }
            }
            assert!(hits.iter().all(|hit| hit.abs_diff(10_000) < 500), "jsq:{d} {hits:?}");
        }
    }

    fn loads() -> impl Strategy<Value = Vec<u32>> {
        proptest::collection::vec(prop_oneof![3 => 0u32..6, 1 => Just(OUT)], 0..20)
    }

    proptest! {
        #[test]
        fn jbsq_places_on_the_fewest_below_the_bound(bound in 1u32..6, steps in proptest::collection::vec(loads(), 1..20)) {
            let mut policy = Jbsq::new(count(bound));
            for loads in steps {
                let fewest = loads.iter().copied().min().filter(|&load| load < bound);
                match policy.place(&loads, 0) {
                    Placement::One(worker) => prop_assert_eq!(Some(loads[worker.index()]), fewest),
                    placement => prop_assert!(placement == Placement::Hold && fewest.is_none()),
                }
            }
        }

        #[test]
        fn jbsq_never_exceeds_its_bound(bound in 1u32..5, steps in proptest::collection::vec(0usize..16, 1..200)) {
            let mut policy = Jbsq::new(count(bound));
            let mut loads = [0u32; 8];
            for step in steps {
                match (step < 8, policy.place(&loads, 0)) {
                    (true, Placement::One(worker)) => loads[worker.index()] += 1,
                    (true, _) => prop_assert!(loads.iter().all(|&load| load == bound)),
                    (false, _) => loads[step - 8] = loads[step - 8].saturating_sub(1),
                }
                prop_assert!(loads.iter().all(|&load| load <= bound));
            }
        }

        #[test]
        fn full_jsq_places_on_a_shortest(loads in loads(), random: u64) {
            let fewest = loads.iter().copied().min().filter(|&load| load != OUT);
            match Jsq::new(count(20)).place(&loads, random) {
                Placement::One(worker) => prop_assert_eq!(Some(loads[worker.index()]), fewest),
                _ => prop_assert!(fewest.is_none()),
            }
        }

        #[test]
        fn jsq_beats_all_but_its_unsampled_rivals(loads in loads(), d in 1u32..20, random: u64) {
            // At least d - 1 of the workers in service are as loaded as the chosen one, for they
            // were sampled too.
            let in_service = loads.iter().filter(|&&load| load != OUT).count();
            if let Placement::One(worker) = Jsq::new(count(d)).place(&loads, random) {
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
