//! The scheduler against what its module says.

use super::*;
use crate::policy::{Basis, NetClone, PolicySpec};
use proptest::prelude::*;
use std::iter;

fn scheduler(policy: &str, workers: usize, queue_len_max: usize) -> Scheduler<u32> {
    let mut scheduler =
        Scheduler::new(policy.parse::<PolicySpec>().unwrap().build(), queue_len_max);
    for _ in 0..workers {
        scheduler.add_worker();
    }
    scheduler
}

fn one(worker: u32) -> Workers {
    Workers { first: WorkerId(worker), last: WorkerId(worker) }
}

fn drain(scheduler: &mut Scheduler<u32>, now: Time) -> Vec<(u32, u32)> {
    iter::from_fn(|| scheduler.poll_placed(now, 0))
        .flat_map(|(workers, item)| workers.into_iter().map(move |worker| (worker.0, item)))
        .collect()
}

/// One worker with one item, and the items 1.. held with these expiries.
fn held(expiries: &[Time]) -> (Scheduler<u32>, Vec<Ticket>) {
    let mut scheduler = scheduler("jbsq:1", 1, 100);
    assert_eq!(scheduler.offer(0, Cloning::Allowed, 1_000, 0), Outcome::Placed(one(0), 0));
    let tickets = expiries.iter().zip(1..).map(|(&expiry, item)| {
        match scheduler.offer(item, Cloning::Allowed, expiry, 0) {
            Outcome::Held(ticket) => ticket,
            outcome => panic!("{outcome:?}"),
        }
    });
    let tickets = tickets.collect();
    (scheduler, tickets)
}

#[test]
fn an_item_goes_at_once_where_there_is_room() {
    let mut scheduler = scheduler("jbsq:1", 2, 1);
    assert_eq!(scheduler.offer(7, Cloning::Allowed, 100, 0), Outcome::Placed(one(0), 7));
    assert_eq!(scheduler.offer(8, Cloning::Allowed, 100, 0), Outcome::Placed(one(1), 8));
    assert!(matches!(scheduler.offer(9, Cloning::Allowed, 100, 0), Outcome::Held(_)));
    assert_eq!(scheduler.offer(10, Cloning::Allowed, 100, 0), Outcome::Full(10));
}

#[test]
fn held_items_go_in_order_as_workers_conclude() {
    let (mut scheduler, _) = held(&[500, 400, 300]);
    assert_eq!(drain(&mut scheduler, 10), []);
    scheduler.conclude(WorkerId(0));
    assert_eq!(drain(&mut scheduler, 10), [(0, 1)]);
    scheduler.conclude(WorkerId(0));
    assert_eq!(drain(&mut scheduler, 10), [(0, 2)]);
}

#[test]
fn a_newcomer_does_not_overtake_the_held() {
    let (mut scheduler, _) = held(&[500]);
    scheduler.conclude(WorkerId(0));
    assert!(matches!(scheduler.offer(2, Cloning::Allowed, 500, 0), Outcome::Held(_)));
    assert_eq!(drain(&mut scheduler, 10), [(0, 1)]);
}

#[test]
fn expired_items_come_earliest_first_and_are_never_placed() {
    let (mut scheduler, _) = held(&[500, 300, 400]);
    assert_eq!(scheduler.next_expiry(), Some(300));
    scheduler.conclude(WorkerId(0));
    assert_eq!(drain(&mut scheduler, 400), []);
    assert_eq!(scheduler.poll_expired(400), Some(2));
    assert_eq!(scheduler.poll_expired(400), Some(3));
    assert_eq!(scheduler.poll_expired(400), None);
    assert_eq!(drain(&mut scheduler, 400), [(0, 1)]);
    assert_eq!(scheduler.next_expiry(), None);
}

/// Items that are wanted for 100, 60 and 200 more, and services of 70.
#[test]
fn an_item_that_could_not_end_in_time_is_refused_when_its_turn_comes() {
    let (mut scheduler, _) = held(&[100, 60, 200, 150]);
    assert_eq!(scheduler.poll_expired(31), None, "no service is known");
    scheduler.note_service(TypeId(0), 70);
    assert_eq!(scheduler.poll_expired(30), None, "it ends just in time");
    assert_eq!(scheduler.poll_expired(31), Some(1));
    assert_eq!(scheduler.poll_expired(31), Some(2));
    assert_eq!(scheduler.poll_expired(31), None);
    // The second of the queue is not looked at.
    assert_eq!(scheduler.poll_expired(81), None);
    scheduler.conclude(WorkerId(0));
    assert_eq!(drain(&mut scheduler, 81), [(0, 3)]);
    assert_eq!(scheduler.poll_expired(81), Some(4));
    assert_eq!(scheduler.queue_len(), 0);
}

#[test]
fn what_finds_an_idle_worker_may_try_to_end_in_time() {
    let mut scheduler = scheduler("jbsq:1", 1, 10);
    scheduler.note_service(TypeId(0), 1_000);
    assert_eq!(scheduler.offer(1, Cloning::Allowed, 100, 0), Outcome::Placed(one(0), 1));
}

#[test]
fn the_mean_service_of_items_without_types_follows_its_samples() {
    let (mut scheduler, _) = held(&[1_000]);
    scheduler.note_service(TypeId(3), 100);
    assert_eq!(scheduler.services.mean_ns(), Some(100));
    for _ in 0..200 {
        scheduler.note_service(TypeId(0), 500);
    }
    assert!(scheduler.services.mean_ns().is_some_and(|ns| (480..=500).contains(&ns)));
}

#[test]
fn a_ticket_takes_its_item_out_once() {
    let (mut scheduler, tickets) = held(&[500, 500]);
    assert_eq!(scheduler.remove(tickets[0]), Some(1));
    assert_eq!(scheduler.remove(tickets[0]), None);
    assert!(matches!(scheduler.offer(3, Cloning::Allowed, 500, 0), Outcome::Held(_)));
    assert_eq!(scheduler.remove(tickets[0]), None);
    assert_eq!(scheduler.queue_len(), 2);
}

#[test]
fn a_worker_out_of_service_gets_nothing_and_keeps_its_count() {
    let mut scheduler = scheduler("jbsq:2", 2, 10);
    assert_eq!(scheduler.offer(1, Cloning::Allowed, 100, 0), Outcome::Placed(one(0), 1));
    scheduler.set_in_service(WorkerId(0), Service::Out);
    assert_eq!(scheduler.in_service_count(), 1);
    assert_eq!(scheduler.offer(2, Cloning::Allowed, 100, 0), Outcome::Placed(one(1), 2));
    assert_eq!(scheduler.offer(3, Cloning::Allowed, 100, 0), Outcome::Placed(one(1), 3));
    assert!(matches!(scheduler.offer(4, Cloning::Allowed, 100, 0), Outcome::Held(_)));
    assert_eq!(scheduler.outstanding(WorkerId(0)), 1);
    scheduler.set_in_service(WorkerId(0), Service::In);
    assert_eq!(drain(&mut scheduler, 10), [(0, 4)]);
}

#[test]
fn a_removed_index_is_given_again() {
    let mut scheduler = scheduler("jbsq:2", 2, 10);
    scheduler.set_outstanding(WorkerId(0), 2);
    scheduler.remove_worker(WorkerId(0));
    scheduler.set_in_service(WorkerId(0), Service::In);
    assert_eq!(scheduler.in_service_count(), 1);
    assert_eq!(scheduler.add_worker(), WorkerId(0));
    assert_eq!(scheduler.outstanding(WorkerId(0)), 0);
}

#[test]
fn a_raised_bound_releases_the_held() {
    let (mut scheduler, _) = held(&[500, 500]);
    scheduler.set_bound(2);
    assert_eq!(drain(&mut scheduler, 10), [(0, 1)]);
}

/// Two workers of one each, from four held on of two each.
fn by_what_is_held() -> Scheduler<u32> {
    let mut scheduler = scheduler("jbsq:9", 2, 100);
    let basis = Basis { servers: 2, workers: 1, way: 0.02, spread: 1.0 };
    scheduler.set_held_bounds(&HeldBounds::new(basis));
    for item in 0..5 {
        let is_held = matches!(scheduler.offer(item, Cloning::Allowed, 100, 0), Outcome::Held(_));
        assert_eq!(is_held, item >= 2, "{item}");
        assert_eq!(drain(&mut scheduler, 10), []);
    }
    scheduler
}

#[test]
fn a_bound_follows_what_is_held() {
    let mut scheduler = by_what_is_held();
    assert_eq!(
        (scheduler.bound(), scheduler.bound_at(1), scheduler.bound_at(4)),
        (Some(1), Some(1), Some(2))
    );
    assert!(matches!(scheduler.offer(5, Cloning::Allowed, 100, 0), Outcome::Held(_)));
    // With three held one is enough again.
    assert_eq!(drain(&mut scheduler, 10), [(0, 2)]);
    scheduler.conclude(WorkerId(1));
    assert_eq!(drain(&mut scheduler, 10), [(1, 3)]);
    scheduler.set_bound(2);
    assert_eq!(drain(&mut scheduler, 10), [(1, 4)]);
}

#[test]
fn one_may_go_past_the_bound() {
    let mut scheduler = by_what_is_held();
    assert_eq!(scheduler.poll_placed_past(10, 0), Some((one(0), 2)));
    assert_eq!((scheduler.bound(), drain(&mut scheduler, 10)), (Some(1), vec![]));
    assert_eq!(scheduler.poll_placed_past(100, 0), None, "an item has expired");
}

/// A policy that always names the same two workers.
#[derive(Debug)]
struct Cloner;

impl Policy for Cloner {
    fn place(&mut self, _: Loads<'_>, _: u64) -> Placement {
        Placement::Two(WorkerId(0), WorkerId(2))
    }
}

fn cloner() -> Scheduler<u32, Cloner> {
    let mut scheduler = Scheduler::new(Box::new(Cloner), 1);
    for _ in 0..3 {
        scheduler.add_worker();
    }
    scheduler
}

fn outstanding(scheduler: &Scheduler<u32, Cloner>) -> [u32; 3] {
    [0, 1, 2].map(|index| scheduler.outstanding(WorkerId(index)))
}

#[test]
fn a_clone_counts_at_both_workers_until_each_concludes() {
    let mut scheduler = cloner();
    let outcome = scheduler.offer(1, Cloning::Allowed, 100, 0);
    let Outcome::Placed(workers, 1) = outcome else { panic!("{outcome:?}") };
    assert!(workers.into_iter().eq([WorkerId(0), WorkerId(2)]));
    assert_eq!(outstanding(&scheduler), [1, 0, 1]);
    workers.into_iter().for_each(|worker| scheduler.conclude(worker));
    assert_eq!(outstanding(&scheduler), [0, 0, 0]);
}

#[test]
fn what_may_not_be_cloned_counts_at_the_first_worker_alone() {
    let mut scheduler = cloner();
    assert_eq!(scheduler.offer(1, Cloning::Forbidden, 100, 0), Outcome::Placed(one(0), 1));
    assert_eq!(outstanding(&scheduler), [1, 0, 0]);
}

#[test]
fn a_clone_never_takes_the_place_of_what_is_held() {
    let policy = "jbsq:1+clone".parse::<PolicySpec>().unwrap().build();
    let mut scheduler = Scheduler::new(policy, 10);
    let workers = [0, 1, 2, 3].map(|_| scheduler.add_worker());
    for item in 0..4 {
        scheduler.offer(item, Cloning::Allowed, 1_000, 0);
    }
    assert_eq!([scheduler.queue_len(), outstanding_of(&scheduler, workers)], [2, 4]);
    workers.into_iter().for_each(|worker| scheduler.conclude(worker));
    // Four are free: the first held item, behind which one more is held, has no copy.
    assert_eq!(drain(&mut scheduler, 10).len(), 1 + 2);
}

fn outstanding_of(scheduler: &Scheduler<u32>, workers: [WorkerId; 4]) -> usize {
    workers.into_iter().map(|worker| scheduler.outstanding(worker) as usize).sum()
}

#[test]
fn a_policy_sees_what_workers_report() {
    let mut scheduler = Scheduler::new(Box::new(NetClone::with_racksched()), 1);
    for _ in 0..2 {
        scheduler.add_worker();
    }
    scheduler.set_reported(WorkerId(0), 3, 3);
    for item in 0..10u64 {
        let outcome = scheduler.offer(item, Cloning::Allowed, 100, item);
        assert_eq!(outcome, Outcome::Placed(one(1), item));
    }
}

/// Exact identity (ii) of the RPCValet tables: with a fixed service JBSQ's rotation is the
/// circle of round robin.
#[test]
fn rotation_is_a_circle_under_fixed_service() {
    let mut scheduler = scheduler("jbsq:2", 4, 10);
    for round in 0..20u32 {
        assert_eq!(
            scheduler.offer(round, Cloning::Allowed, 1_000, 0),
            Outcome::Placed(one(round % 4), round)
        );
        if round >= 5 {
            scheduler.conclude(WorkerId((round - 5) % 4));
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Offer(u64),
    Conclude(u32),
    Cancel(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u64..200).prop_map(Step::Offer),
        3 => (0u32..3).prop_map(Step::Conclude),
        1 => (0usize..64).prop_map(Step::Cancel),
        1 => (0u64..60).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Against a plain list: same order, same expiries, same bound.
    #[test]
    fn agrees_with_a_list(steps in proptest::collection::vec(step(), 1..300)) {
        let mut scheduler = scheduler("jbsq:2", 3, 16);
        let mut list: Vec<(u32, Time, Ticket)> = Vec::new();
        let mut now = 0;
        for (item, step) in (0u32..).zip(steps) {
            match step {
                Step::Offer(lifetime) => match scheduler.offer(item, Cloning::Allowed, now + lifetime, 0) {
                    Outcome::Placed(..) => prop_assert!(list.is_empty()),
                    Outcome::Held(ticket) => list.push((item, now + lifetime, ticket)),
                    Outcome::Full(_) => prop_assert_eq!(list.len(), 16),
                },
                Step::Conclude(worker) => scheduler.conclude(WorkerId(worker)),
                Step::Cancel(at) if at < list.len() => {
                    let (item, _, ticket) = list.remove(at);
                    prop_assert_eq!(scheduler.remove(ticket), Some(item));
                }
                Step::Cancel(_) => {}
                Step::Wait(time) => now += time,
            }
            while let Some(item) = scheduler.poll_expired(now) {
                let earliest = list.iter().map(|&(item, expiry, _)| (expiry, item)).min();
                prop_assert!(earliest.is_some_and(|found| found.1 == item && found.0 <= now));
                list.retain(|held| held.0 != item);
            }
            for (_, item) in drain(&mut scheduler, now) {
                prop_assert_eq!(list.remove(0).0, item);
            }
            prop_assert_eq!(scheduler.queue_len(), list.len());
            prop_assert_eq!(scheduler.next_expiry(), list.iter().map(|held| held.1).min());
            prop_assert!(scheduler.loads.iter().all(|&load| load <= 2));
        }
    }
}

#[test]
fn an_item_that_comes_counts_in_what_the_bound_follows() {
    let mut scheduler = scheduler("jbsq:9", 2, 100);
    // On a way as long as 20 services many go at once, where anything is held at all.
    let basis = Basis { servers: 2, workers: 1, way: 20.0, spread: 1.0 };
    scheduler.set_held_bounds(&HeldBounds::new(basis));
    assert_eq!((scheduler.bound_at(0), scheduler.bound()), (Some(1), Some(1)));
    assert!(scheduler.bound_at(1) > Some(10));
    for item in 0..20 {
        let outcome = scheduler.offer(item, Cloning::Allowed, 100, 0);
        assert!(matches!(outcome, Outcome::Placed(..)), "{item}");
    }
}

#[test]
fn the_first_of_two_that_are_held_has_no_copy_and_the_last_has() {
    let mut scheduler = scheduler("jbsq:1+clone", 4, 10);
    (0..4).for_each(|worker| scheduler.charge(WorkerId(worker)));
    for item in [7, 8] {
        assert!(matches!(scheduler.offer(item, Cloning::Allowed, 1_000, 0), Outcome::Held(_)));
    }
    (0..4).for_each(|worker| scheduler.conclude(WorkerId(worker)));
    let items: Vec<u32> = drain(&mut scheduler, 10).into_iter().map(|(_, item)| item).collect();
    assert_eq!(items, [7, 8, 8]);
}

#[test]
fn without_types_there_is_one_with_samples_of_its_own() {
    let mut scheduler = scheduler("jbsq:1", 1, 10);
    let kind = Wait::of(0, 0, 100).of_type(TypeId(3)).kind();
    assert_eq!(kind, TypeId(3));
    assert!(matches!(
        scheduler.offer(1, Cloning::Allowed, Wait::of(0, 0, 100).of_type(kind), 0),
        Outcome::Placed(..)
    ));
    assert_eq!((scheduler.placed_type(), scheduler.types().is_none()), (TypeId(0), true));
    assert!(scheduler.has_idle(kind), "nobody asks");
    let mut samples = |count| (0..count).filter(|_| scheduler.samples_next(kind)).count();
    assert_eq!(samples(100), 100);
    (0..16).for_each(|_| scheduler.note_service(kind, 1_000));
    let samples = (0..640).filter(|_| scheduler.samples_next(kind)).count();
    assert_eq!(samples, 10);
}

/// Counts that others tell stay below the mark of a worker out of service.
#[test]
fn a_worker_with_the_most_that_can_be_counted_is_in_service() {
    let mut scheduler = scheduler("rr", 1, 10);
    let most = OUT_OF_SERVICE - 1;
    scheduler.set_outstanding(WorkerId(0), u32::MAX);
    assert_eq!((scheduler.outstanding(WorkerId(0)), scheduler.in_service_count()), (most, 1));
    assert_eq!(scheduler.offer(1, Cloning::Allowed, 100, 0), Outcome::Placed(one(0), 1));
    assert_eq!(scheduler.outstanding(WorkerId(0)), most);
    scheduler.conclude(WorkerId(0));
    assert_eq!(scheduler.outstanding(WorkerId(0)), most - 1);
}

#[test]
fn each_worker_of_an_item_is_given_it() {
    let given = |cloning| {
        let mut scheduler = cloner();
        let outcome = scheduler.offer(7, cloning, 100, 0);
        let Outcome::Placed(workers, item) = outcome else { panic!("{outcome:?}") };
        let mut given = Vec::new();
        workers.each(item, |worker, item| given.push((worker.0, item)));
        given
    };
    assert_eq!(given(Cloning::Allowed), [(0, 7), (2, 7)]);
    assert_eq!(given(Cloning::Forbidden), [(0, 7)]);
}

#[test]
fn a_policy_has_no_bound_unless_it_says_so() {
    assert_eq!((cloner().bound(), cloner().bound_at(9)), (None, None));
}
