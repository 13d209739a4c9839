//! Weights and zones of workers: what a policy sees where they are not all alike.
//!
//! | a worker | stands before the policy as |
//! |---|---|
//! | of weight w | w seats, each with its part of the worker's load, evenly among those of the others |
//! | out of service | seats out of service |
//! | of another zone, while its own is well | seats out of service, until the policy holds |
//!
//! So every policy is as it is among equals: at random a worker gets w times as much, in turn w
//! turns, a bound of N is one of w N, and the shortest queue is the shortest by weight. An own zone
//! is well while at least half of its weight is in service: the rest of it would not stand what the
//! whole did.
//!
//! Invariant: where each worker has weight 1 and one zone, every placement is that of no weights at
//! all.

use std::num::NonZeroU8;

use crate::policy::{Load, Loads, OUT_OF_SERVICE, Placement, Policy, WorkerId};

/// Most seats of a worker: a placement looks at each.
pub const WEIGHT_MAX: u8 = 64;

/// Rank of a worker among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Number of workers that it counts as, up to [`WEIGHT_MAX`]. Default 1.
    pub weight: NonZeroU8,
    /// True if it is of the zone that is preferred. Default true.
    pub is_near: bool,
}

impl Default for Rank {
    fn default() -> Self {
        Self { weight: NonZeroU8::MIN, is_near: true }
    }
}

/// The seats of all workers.
#[derive(Debug)]
pub(super) struct Spread {
    /// Rank of each worker.
    ranks: Vec<Rank>,
    /// Some are of another zone.
    has_far: bool,
    /// Seats of each worker.
    seats_of: Vec<Vec<usize>>,
    /// The worker of each seat.
    worker_of: Vec<WorkerId>,
    /// Load of each seat, or [`OUT_OF_SERVICE`].
    outstanding: Vec<u32>,
    /// Load of each seat of the workers nearby; the others are out of service.
    near: Vec<u32>,
    /// Reported load of each seat.
    reported: Vec<u32>,
    /// Number of the reported requests that wait.
    waiting: Vec<u32>,
    /// Weight of the workers nearby that are there, and of these in service.
    near_weight: (u32, u32),
    /// Weight of each worker in `near_weight`: as a whole, and in service.
    counted: Vec<(u32, u32)>,
    /// Workers have been added that have a rank and no seat: nothing but the ranks holds.
    is_stale: bool,
}

/// Presence of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It takes more.
    In,
    /// It does not.
    Out,
    /// It is removed.
    Removed,
}

impl Spread {
    /// The seats of workers that stand so; nothing is known of their loads.
    pub(super) fn new(ranks: Vec<Rank>) -> Self {
        let seats = ranks.iter().enumerate().flat_map(|(index, rank)| {
            let weight = u32::from(rank.weight.get());
            (0..weight).map(move |seat| (2 * seat + 1, weight, index))
        });
        let mut seats: Vec<(u32, u32, usize)> = seats.collect();
        // The seats of a worker lie at equal distances in the circle.
        seats.sort_by_key(|&(seat, weight, index)| {
            (u64::from(seat) * SPREAD_SCALE / u64::from(weight), index)
        });
        let mut seats_of = vec![Vec::new(); ranks.len()];
        for (place, &(_, _, index)) in seats.iter().enumerate() {
            seats_of[index].push(place);
        }
        let count = seats.len();
        #[cfg(test)]
        tests::BUILT.with(|built| built.set(built.get() + 1));
        Self {
            is_stale: false,
            seats_of,
            worker_of: seats.iter().map(|&(_, _, index)| WorkerId::at(index)).collect(),
            outstanding: vec![OUT_OF_SERVICE; count],
            near: vec![OUT_OF_SERVICE; count],
            reported: vec![0; count],
            waiting: vec![0; count],
            near_weight: (0, 0),
            counted: vec![(0, 0); ranks.len()],
            has_far: ranks.iter().any(|rank| !rank.is_near),
            ranks,
        }
    }

    pub(super) fn ranks(&self) -> &[Rank] {
        &self.ranks
    }

    /// A worker is added, of no weight and zone of its own. It has no seat before all are made anew
    /// from the ranks.
    pub(super) fn add(&mut self, worker: WorkerId) {
        let len = self.ranks.len().max(worker.index() + 1);
        self.ranks.resize(len, Rank::default());
        self.ranks[worker.index()] = Rank::default();
        self.is_stale = true;
    }

    /// True if there are workers without a seat.
    #[inline]
    pub(super) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Takes the load of a worker as it is now.
    pub(super) fn update(&mut self, worker: WorkerId, load: Load, presence: Presence) {
        if self.is_stale {
            return;
        }
        let index = worker.index();
        let rank = self.ranks[index];
        let weight = u32::from(rank.weight.get());
        for (seat, &place) in (0..).zip(&self.seats_of[index]) {
            let part = |count: u32| (count + (weight - 1 - seat)) / weight;
            let is_in = presence == Presence::In;
            let outstanding = if is_in { part(load.outstanding) } else { OUT_OF_SERVICE };
            self.outstanding[place] = outstanding;
            self.near[place] = if rank.is_near { outstanding } else { OUT_OF_SERVICE };
            (self.reported[place], self.waiting[place]) = (part(load.reported), part(load.waiting));
        }
        let counted = match presence {
            _ if !rank.is_near => (0, 0),
            Presence::In => (weight, weight),
            Presence::Out => (weight, 0),
            Presence::Removed => (0, 0),
        };
        let before = std::mem::replace(&mut self.counted[index], counted);
        self.near_weight.0 = self.near_weight.0 - before.0 + counted.0;
        self.near_weight.1 = self.near_weight.1 - before.1 + counted.1;
    }

    /// The workers that a policy places on: nearby, or anywhere.
    pub(super) fn place<P: Policy + ?Sized>(&self, policy: &mut P, random: u64) -> Placement {
        let (all, in_service) = self.near_weight;
        if self.has_far && in_service > 0 && 2 * in_service >= all {
            let nearby = self.of_workers(policy.place(self.loads(&self.near), random));
            if nearby != Placement::Hold {
                return nearby;
            }
        }
        self.of_workers(policy.place(self.loads(&self.outstanding), random))
    }

    /// A seat of a worker, for policies that remember.
    pub(super) fn seat(&self, worker: WorkerId) -> WorkerId {
        WorkerId::at(self.seats_of[worker.index()][0])
    }

    fn loads<'a>(&'a self, outstanding: &'a [u32]) -> Loads<'a> {
        Loads { outstanding, reported: &self.reported, waiting: &self.waiting }
    }

    /// Placement on the workers of the seats that were chosen; of two seats of one worker one is
    /// taken.
    fn of_workers(&self, placement: Placement) -> Placement {
        let worker = |seat: WorkerId| self.worker_of[seat.index()];
        match placement {
            Placement::Hold => Placement::Hold,
            Placement::One(seat) => Placement::One(worker(seat)),
            Placement::Two(first, second) if worker(first) == worker(second) => {
                Placement::One(worker(first))
            }
            Placement::Two(first, second) => Placement::Two(worker(first), worker(second)),
        }
    }
}

/// A circle in which no two seats of different weights meet but where they should.
const SPREAD_SCALE: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::super::{Cloning, Outcome, Scheduler, Service};
    use super::*;
    use crate::policy::{Draws, PolicySpec};
    use proptest::prelude::*;
    use std::cell::Cell;

    thread_local! {
        /// Times that seats were made, on this thread.
        pub(super) static BUILT: Cell<u32> = const { Cell::new(0) };
    }

    fn rank(weight: u8, is_near: bool) -> Rank {
        Rank { weight: NonZeroU8::new(weight).expect("a weight"), is_near }
    }

    fn scheduler(policy: &str, ranks: &[Rank]) -> Scheduler<u32> {
        let spec = policy.parse::<PolicySpec>().expect("a policy");
        let mut scheduler = Scheduler::new(spec.build(), 100);
        for &rank in ranks {
            let worker = scheduler.add_worker();
            scheduler.set_rank(worker, rank);
        }
        scheduler
    }

    /// Outstanding items of each worker after so many were offered.
    fn offered(scheduler: &mut Scheduler<u32>, count: u32) -> Vec<u32> {
        let mut draws = Draws::new(7);
        for item in 0..count {
            scheduler.offer(item, Cloning::Allowed, u64::MAX, draws.word());
        }
        outstanding(scheduler)
    }

    fn outstanding(scheduler: &Scheduler<u32>) -> Vec<u32> {
        (0..scheduler.in_service_count())
            .map(|worker| scheduler.outstanding(WorkerId(worker)))
            .collect()
    }

    #[test]
    fn a_bound_is_one_for_each_unit_of_weight() {
        let ranks = [rank(1, true), rank(3, true), rank(2, true)];
        let mut full = scheduler("jbsq:2", &ranks);
        assert_eq!(offered(&mut full, 12), [2, 6, 4]);
        assert_eq!((offered(&mut full, 3), full.queue_len()), (vec![2, 6, 4], 3));
    }

    #[test]
    fn the_shortest_queue_is_the_shortest_by_weight() {
        for policy in ["jbsq:9", "jsq:20"] {
            let mut half = scheduler(policy, &[rank(1, true), rank(3, true)]);
            let shares = offered(&mut half, 12);
            assert!(shares[0].abs_diff(3) <= 1, "{policy} {shares:?}");
        }
    }

    #[test]
    fn turns_are_as_many_as_the_weight_and_not_in_a_row() {
        let mut turns = scheduler("rr", &[rank(1, true), rank(2, true), rank(1, true)]);
        let order: Vec<u32> = (0..8)
            .map(|item| match turns.offer(item, Cloning::Allowed, u64::MAX, 0) {
                Outcome::Placed(workers, _) => workers.first().0,
                outcome => panic!("{outcome:?}"),
            })
            .collect();
        assert_eq!(order, [1, 0, 2, 1, 1, 0, 2, 1]);
    }

    #[test]
    fn at_random_shares_are_the_weights() {
        // 6 sigma of 30,000 draws at 1/6 and at 1/2 are 390 and 520.
        for policy in ["random", "jsq:1"] {
            let mut many = scheduler(policy, &[rank(1, true), rank(2, true), rank(3, true)]);
            let shares = offered(&mut many, 30_000);
            let far =
                shares.iter().zip([5_000, 10_000, 15_000]).map(|(hit, want)| hit.abs_diff(want));
            assert!(far.max() < Some(520), "{policy} {shares:?}");
        }
    }

    #[test]
    fn two_seats_of_one_worker_are_no_clone() {
        let mut pair = scheduler("jbsq:2+clone", &[rank(2, true)]);
        assert_eq!(offered(&mut pair, 1), [1]);
    }

    #[test]
    fn the_own_zone_comes_first_until_it_is_full() {
        let mut zones = scheduler("jbsq:2", &[rank(1, true), rank(1, false), rank(1, true)]);
        assert_eq!(offered(&mut zones, 4), [2, 0, 2]);
        assert_eq!(offered(&mut zones, 1), [2, 1, 2]);
        zones.conclude(WorkerId(0));
        assert_eq!(offered(&mut zones, 1), [2, 1, 2]);
        assert_eq!((offered(&mut zones, 3), zones.queue_len()), (vec![2, 2, 2], 2));
    }

    #[test]
    fn a_zone_of_which_less_than_half_is_left_is_not_preferred() {
        let near = [rank(1, true), rank(1, true), rank(1, true)];
        let mut zones = scheduler("rr", &[&near[..], &[rank(1, false)]].concat());
        zones.set_in_service(WorkerId(0), Service::Out);
        offered(&mut zones, 4);
        assert_eq!(zones.outstanding(WorkerId(3)), 0);
        zones.set_in_service(WorkerId(1), Service::Out);
        offered(&mut zones, 4);
        assert_eq!(zones.outstanding(WorkerId(3)), 2);
        // Those that are removed do not count.
        zones.remove_worker(WorkerId(0));
        zones.remove_worker(WorkerId(1));
        offered(&mut zones, 4);
        assert_eq!(zones.outstanding(WorkerId(3)), 2);
    }

    #[test]
    fn many_ranks_change_as_one_by_one() {
        let ranks = [rank(2, true), rank(1, true), rank(3, false)];
        let mut at_once = scheduler("jbsq:1", &[Rank::default(); 3]);
        let mut singly = scheduler("jbsq:1", &ranks);
        at_once.set_ranks(&[0, 1, 2].map(|index| (WorkerId(index), ranks[index as usize])));
        assert_eq!(offered(&mut at_once, 9), offered(&mut singly, 9));
        assert_eq!(at_once.rank(WorkerId(2)), ranks[2]);
    }

    #[test]
    fn workers_that_are_added_are_seated_once_and_as_one_by_one() {
        let ranks = [rank(2, true), rank(1, false)];
        let (mut at_once, mut singly) = (scheduler("jbsq:2", &ranks), scheduler("jbsq:2", &ranks));
        let built = || BUILT.with(Cell::get);
        let before = built();
        for _ in 0..100 {
            at_once.add_worker();
        }
        assert_eq!(built(), before);
        assert_eq!(at_once.rank(WorkerId(101)), Rank::default());
        at_once.set_ranks(&[(WorkerId(101), rank(3, true)), (WorkerId(50), rank(1, false))]);
        assert_eq!(built(), before + 1);
        for index in 2..102 {
            singly.add_worker();
            assert_eq!(offered(&mut singly, 1).iter().sum::<u32>(), 1);
            (0..=index).for_each(|worker| singly.conclude(WorkerId(worker)));
        }
        singly.set_rank(WorkerId(50), rank(1, false));
        singly.set_rank(WorkerId(101), rank(3, true));
        let shares = offered(&mut at_once, 150);
        assert_eq!(shares, offered(&mut singly, 150));
        // 103 seats are near, and each has one or two.
        assert!((3..=6).contains(&shares[101]) && shares[50] + shares[1] == 0, "{shares:?}");
    }

    #[test]
    fn a_worker_is_concluded_for_and_drained_before_it_is_seated() {
        let mut added = scheduler("jbsq:1", &[rank(2, true)]);
        let second = added.add_worker();
        added.conclude(second);
        let third = added.add_worker();
        added.set_in_service(second, Service::Out);
        added.charge(third);
        let fourth = added.add_worker();
        added.remove_worker(fourth);
        assert_eq!(added.add_worker(), fourth);
        assert_eq!(offered(&mut added, 9)[0], 2);
        assert_eq!((added.outstanding(second), added.outstanding(third)), (0, 1));
        assert_eq!((added.outstanding(fourth), added.queue_len()), (1, 6));
    }

    #[test]
    fn a_rank_may_change_and_is_forgotten_with_its_worker() {
        let mut changing = scheduler("jbsq:1", &[rank(1, true), rank(1, true)]);
        changing.set_rank(WorkerId(1), rank(3, true));
        assert_eq!(offered(&mut changing, 9), [1, 3]);
        assert_eq!(changing.rank(WorkerId(1)), rank(3, true));
        changing.remove_worker(WorkerId(1));
        assert_eq!(
            (changing.add_worker(), changing.rank(WorkerId(1))),
            (WorkerId(1), Rank::default())
        );
        while changing.poll_placed(0, 0).is_some() {}
        assert_eq!(outstanding(&changing), [1, 1]);
    }

    proptest! {
        /// Against a scheduler that knows of no ranks.
        #[test]
        fn weights_of_one_change_nothing(
            policy in 0usize..10,
            steps in proptest::collection::vec((0u32..8, any::<u64>()), 1..200),
        ) {
            let policies = ["random", "rr", "jsq:2", "jsq:9", "jbsq:1", "jbsq:3", "jbsq:2+clone",
                "racksched", "netclone", "auto-clone"];
            let mut plain = scheduler(policies[policy], &[Rank::default(); 4]);
            let mut ranked = scheduler(policies[policy], &[Rank::default(); 4]);
            ranked.spread = Some(Box::new(Spread::new(vec![Rank::default(); 4])));
            ranked.spread_all();
            for (step, random) in steps {
                let worker = WorkerId(step % 4);
                for scheduler in [&mut plain, &mut ranked] {
                    match step / 4 {
                        0 => { scheduler.offer(step, Cloning::Allowed, u64::MAX, random); }
                        _ if random % 8 == 0 => scheduler.set_in_service(worker, Service::Out),
                        _ if random % 8 == 1 => scheduler.set_in_service(worker, Service::In),
                        _ if random % 8 == 2 => scheduler.set_reported(worker, step, step / 3),
                        _ => scheduler.conclude(worker),
                    }
                    while scheduler.poll_placed(0, random).is_some() {}
                }
                let all = (0..4).map(WorkerId);
                prop_assert!(all.clone().map(|worker| plain.outstanding(worker)).eq(all.map(|worker| ranked.outstanding(worker))));
                prop_assert_eq!(plain.queue_len(), ranked.queue_len());
            }
        }
    }

    #[test]
    fn seats_are_made_when_workers_change_and_not_for_each_item() {
        let mut zones = scheduler("jbsq:2", &[rank(2, true), rank(1, false)]);
        let before = BUILT.with(Cell::get);
        assert_eq!(offered(&mut zones, 6), [4, 2]);
        zones.conclude(WorkerId(0));
        assert_eq!(BUILT.with(Cell::get), before);
    }

    #[test]
    fn of_two_seats_of_one_worker_one_is_taken() {
        let spread = Spread::new(vec![rank(2, true), rank(1, true)]);
        let [first, second] = [0, 1].map(|at| WorkerId::at(spread.seats_of[0][at]));
        let other = WorkerId::at(spread.seats_of[1][0]);
        let workers = |one, two| spread.of_workers(Placement::Two(one, two));
        assert_eq!(workers(first, second), Placement::One(WorkerId(0)));
        assert_eq!(workers(other, second), Placement::Two(WorkerId(1), WorkerId(0)));
    }
}
