//! A dispatcher and its workers, played by one thread where the order matters.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};

use allocation_counter::measure;
use tailcut_proto::policy::{Loads, Placement};

use super::*;

/// A job's number, and who did it.
type Job = (u64, Option<usize>);

fn pair(workers: usize, bound: u32) -> (Dispatcher<Job>, Vec<Worker<Job>>) {
    let bound = Bound::Fixed(NonZeroU32::new(bound).unwrap());
    let config = Config { queue_len_max: 4, ..Config::new(workers).bound(bound) };
    Dispatcher::new(&config, &Waker::new().unwrap()).unwrap()
}

fn offer(dispatcher: &mut Dispatcher<Job>, numbers: std::ops::Range<u64>) {
    for number in numbers {
        dispatcher.offer((number, None), Time::MAX).unwrap();
    }
}

fn done(dispatcher: &mut Dispatcher<Job>, now: Time) -> Vec<Job> {
    let mut jobs = Vec::new();
    dispatcher.poll_done(now, |job| jobs.push(job));
    jobs
}

/// One job by this worker; its number.
fn turn(worker: &mut Worker<Job>) -> Option<u64> {
    let (index, mut number) = (worker.index(), None);
    worker.turn(|job| {
        job.1 = Some(index);
        number = Some(job.0);
    });
    number
}

#[test]
fn jobs_go_to_the_worker_with_the_fewest_and_the_rest_wait() {
    let (mut dispatcher, mut workers) = pair(2, 2);
    offer(&mut dispatcher, 0..7);
    assert_eq!((dispatcher.len(), dispatcher.metrics().queue_len), (7, 3));
    assert_eq!([dispatcher.outstanding(0), dispatcher.outstanding(1)], [2, 2]);
    assert_eq!(
        [turn(&mut workers[0]), turn(&mut workers[0]), turn(&mut workers[0])],
        [Some(0), Some(2), None]
    );
    assert_eq!(done(&mut dispatcher, 1), [(0, Some(0)), (2, Some(0))]);
    assert_eq!([turn(&mut workers[0]), turn(&mut workers[1])], [Some(4), Some(1)]);
    assert_eq!(dispatcher.metrics().counts.queued, 3);
}

#[test]
fn a_full_queue_returns_the_job_and_counts_it() {
    let (mut dispatcher, _workers) = pair(1, 1);
    offer(&mut dispatcher, 0..5);
    assert_eq!(dispatcher.offer((5, None), Time::MAX), Err((5, None)));
    assert_eq!(dispatcher.metrics().counts.refused_queue_full, 1);
}

#[test]
fn what_expires_or_is_withdrawn_in_the_queue_does_not_run() {
    let (mut dispatcher, mut workers) = pair(1, 1);
    offer(&mut dispatcher, 0..1);
    dispatcher.offer((1, None), 100).unwrap();
    let ticket = dispatcher.offer((2, None), Time::MAX).unwrap().unwrap();
    assert_eq!(dispatcher.withdraw(ticket), Some((2, None)));
    assert_eq!(dispatcher.withdraw(ticket), None);
    assert_eq!(done(&mut dispatcher, 100), [(1, None)]);
    assert_eq!([turn(&mut workers[0]), turn(&mut workers[0])], [Some(0), None]);
    assert_eq!(done(&mut dispatcher, 101), [(0, Some(0))]);
    assert!(dispatcher.is_empty());
}

#[test]
fn what_could_not_be_done_in_time_is_handed_back_when_its_turn_comes() {
    let (mut dispatcher, mut workers) = pair(1, 1);
    offer(&mut dispatcher, 0..1);
    workers[0].turn(|_| {
        let began_at = Clock.now();
        while Clock.now() < began_at + 1_000_000 {}
    });
    assert_eq!(done(&mut dispatcher, 0).len(), 1);
    let service_ns = dispatcher.metrics().service_ns.expect("the first job is a sample");
    // The second takes the worker; of the others the first would be done too late.
    offer(&mut dispatcher, 1..2);
    for (number, deadline) in [(2, 5_000 + service_ns - 1), (3, 5_000 + service_ns)] {
        dispatcher.offer((number, None), deadline).unwrap();
    }
    assert_eq!(done(&mut dispatcher, 4_999), []);
    assert_eq!(done(&mut dispatcher, 5_000), [(2, None)]);
    assert_eq!(dispatcher.metrics().counts.expired, 1);
    assert_eq!(turn(&mut workers[0]), Some(1));
    assert_eq!(done(&mut dispatcher, 5_000), [(1, Some(0))]);
    assert_eq!(turn(&mut workers[0]), Some(3));
}

/// Two types before four workers, which have learned that those of the second take long.
fn typed() -> (Dispatcher<Job>, Vec<Worker<Job>>) {
    let config = Config::new(4).bound(Bound::Fixed(NonZeroU32::MIN)).types(2);
    let (mut dispatcher, mut workers) = Dispatcher::new(&config, &Waker::new().unwrap()).unwrap();
    for (number, kind) in [(0, TypeId(0)), (1, TypeId(1))] {
        offer_typed(&mut dispatcher, number, kind);
        for worker in &mut workers {
            worker.turn(|_| {
                let began_at = Clock.now();
                while Clock.now() < began_at + number * 1_000_000 {}
            });
        }
        assert_eq!(done(&mut dispatcher, 0).len(), 1);
    }
    (dispatcher, workers)
}

fn offer_typed(dispatcher: &mut Dispatcher<Job>, number: u64, kind: TypeId) {
    dispatcher.offer((number, None), Wait::from(Time::MAX).of_type(kind)).unwrap();
}

#[test]
fn a_short_job_finds_a_worker_that_long_ones_may_not_have() {
    let (mut dispatcher, mut workers) = typed();
    let types = dispatcher.types().unwrap();
    assert!(types.service_ns(TypeId(0)) < types.service_ns(TypeId(1)), "{types:?}");
    assert_eq!([0, 1].map(|kind| types.reserved(TypeId(kind))), [1, 3]);
    (10..20).for_each(|number| offer_typed(&mut dispatcher, number, TypeId(1)));
    assert_eq!((dispatcher.metrics().busy, dispatcher.metrics().queue_len), (3, 7));
    assert_eq!(*dispatcher.metrics().outstanding_by_worker, [0, 1, 1, 1]);
    let types = dispatcher.metrics().types;
    assert_eq!(types.map(|kind| kind.queue_len)[..3], [0, 7, 0]);
    assert_eq!(types.map(|kind| kind.reserved)[..3], [1, 3, 0]);
    assert!(types[0].service_ns < types[1].service_ns && types[2].service_ns.is_none());
    offer_typed(&mut dispatcher, 20, TypeId(0));
    offer_typed(&mut dispatcher, 21, TypeId(0));
    assert_eq!(turn(&mut workers[0]), Some(20));
    assert_eq!(done(&mut dispatcher, 1), [(20, Some(0))]);
    assert_eq!(turn(&mut workers[0]), Some(21));
    assert_eq!(done(&mut dispatcher, 2), [(21, Some(0))]);
    // Long ones wait, and the worker idles.
    assert_eq!((turn(&mut workers[0]), dispatcher.metrics().queue_len), (None, 7));
    assert_eq!(turn(&mut workers[1]), Some(10));
    assert_eq!(done(&mut dispatcher, 3), [(10, Some(1))]);
    assert_eq!(turn(&mut workers[1]), Some(13));
}

#[test]
fn what_is_committed_to_a_busy_worker_stays_away_from_reserved_ones() {
    let (mut dispatcher, mut workers) = typed();
    dispatcher.scheduler.set_bound(4);
    (10..22).for_each(|number| offer_typed(&mut dispatcher, number, TypeId(1)));
    assert_eq!([0, 1, 2, 3].map(|worker| dispatcher.outstanding(worker)), [0, 4, 4, 4]);
    // The reserved worker is idle for long, and gets none of them.
    assert_eq!(done(&mut dispatcher, 1_000_000_000), []);
    assert_eq!((turn(&mut workers[0]), dispatcher.metrics().counts.taken_back), (None, 0));
    while turn(&mut workers[1]).is_some() {}
    assert_eq!(done(&mut dispatcher, 2_000_000_000).len(), 4);
    // But one that long ones may have does.
    assert!(dispatcher.metrics().counts.taken_back > 0);
    assert!(turn(&mut workers[1]).is_some());
}

#[test]
fn what_a_busy_worker_has_not_begun_is_taken_back_by_an_idle_one() {
    let (mut dispatcher, mut workers) = pair(2, 2);
    offer(&mut dispatcher, 0..3);
    // Worker 1 is done at once, and worker 0, which is at job 0 and has job 2, for long not.
    assert_eq!(turn(&mut workers[1]), Some(1));
    let mut runs = workers.remove(0);
    let mut inner = None;
    runs.turn(|job| {
        assert_eq!(job.0, 0);
        assert_eq!(done(&mut dispatcher, 10).len(), 1);
        // It might have begun it by now.
        assert_eq!(turn(&mut workers[0]), None);
        let look_at = dispatcher.next_look().expect("a worker is idle");
        assert!(done(&mut dispatcher, look_at - 1).is_empty());
        assert_eq!(turn(&mut workers[0]), None);
        assert!(done(&mut dispatcher, look_at).is_empty());
        inner = turn(&mut workers[0]);
        assert_eq!(dispatcher.next_look(), None);
    });
    assert_eq!(inner, Some(2));
    assert_eq!(turn(&mut runs), None);
    assert_eq!(done(&mut dispatcher, 2_000), [(0, None), (2, Some(1))]);
    let metrics = dispatcher.metrics();
    assert_eq!((metrics.counts.taken_back, metrics.outstanding, metrics.busy), (1, 0, 0));
    assert_eq!(*metrics.outstanding_by_worker, [0, 0]);
}

/// Three workers that pull, and a job that keeps one of them.
#[test]
fn workers_that_pull_take_what_comes_first() {
    let config = Config { queue_len_max: 4, ..Config::new(3) }.delivery(Delivery::Pull);
    let (mut dispatcher, mut workers) = Dispatcher::new(&config, &Waker::new().unwrap()).unwrap();
    // As many places as workers times 2, and the queue.
    offer(&mut dispatcher, 0..10);
    assert_eq!(dispatcher.offer((10, None), Time::MAX), Err((10, None)));
    let mut runs = workers.remove(0);
    runs.turn(|job| {
        assert_eq!(job.0, 0);
        assert_eq!([turn(&mut workers[1]), turn(&mut workers[0])], [Some(1), Some(2)]);
        assert!(!dispatcher.fall_asleep(), "two are done");
        assert_eq!(done(&mut dispatcher, 1), [(1, Some(2)), (2, Some(1))]);
        let rest = std::iter::from_fn(|| {
            let number = turn(&mut workers[0]);
            dispatcher.poll_done(1, |job| assert_eq!(Some(job.0), number));
            number
        });
        assert!(rest.eq(3..10));
        assert_eq!((dispatcher.len(), dispatcher.metrics().busy), (1, 1));
        assert!(dispatcher.fall_asleep());
    });
    assert_eq!(done(&mut dispatcher, 2), [(0, None)]);
    let metrics = dispatcher.metrics();
    assert_eq!((metrics.counts.dispatched, metrics.outstanding, metrics.bound), (10, 0, 2));
    assert!(metrics.outstanding_by_worker.is_empty(), "a job is nobody's before it is pulled");
    assert!(dispatcher.is_empty() && metrics.service_ns.is_some());
}

#[test]
fn what_is_begun_stays_where_it_is() {
    let (mut dispatcher, mut workers) = pair(2, 2);
    offer(&mut dispatcher, 0..3);
    turn(&mut workers[1]);
    assert_eq!([turn(&mut workers[0]), turn(&mut workers[0])], [Some(0), Some(2)]);
    // Worker 0 is done with both, of which the dispatcher knows nothing when it looks.
    assert_eq!(done(&mut dispatcher, 1_000_000).len(), 3);
    assert_eq!(dispatcher.metrics().counts.taken_back, 0);
}

#[test]
fn the_bound_follows_what_is_measured() {
    // While others want this thread's core, hand-offs take as long as they do.
    let attempts = [(); 20].map(|()| {
        let (mut dispatcher, mut workers) =
            Dispatcher::<Job>::new(&Config::new(1), &Waker::new().unwrap()).unwrap();
        assert_eq!(dispatcher.metrics().bound, 2);
        for number in 0..20 {
            offer(&mut dispatcher, number..number + 1);
            // Longer than twenty hand-offs, which are as long as this thread takes from one to the
            // other.
            workers[0].turn(|_| {
                let began_at = Clock.now();
                while Clock.now() < began_at + 2_000_000 {}
            });
            assert_eq!(done(&mut dispatcher, number).len(), 1);
        }
        let metrics = dispatcher.metrics();
        assert!(metrics.service_ns.is_some_and(|ns| ns >= 2_000_000), "{metrics:?}");
        (metrics.bound, metrics.hand_off_ns.expect("hand-offs"))
    });
    assert!(attempts.iter().any(|&(bound, ns)| bound == 1 && ns < 100_000), "{attempts:?}");
}

#[test]
fn a_thread_that_falls_asleep_is_told_of_what_is_done() {
    let waker = Waker::new().unwrap();
    let config = Config::new(1);
    let (mut dispatcher, mut workers) = Dispatcher::<Job>::new(&config, &waker).unwrap();
    assert!(dispatcher.fall_asleep());
    dispatcher.get_up();
    offer(&mut dispatcher, 0..2);
    assert!(dispatcher.fall_asleep());
    turn(&mut workers[0]);
    // The waker was used: its driver does not fall asleep.
    assert!(!waker.fall_asleep());
    dispatcher.get_up();
    assert!(!dispatcher.fall_asleep(), "a job is done");
    dispatcher.get_up();
    turn(&mut workers[0]);
    assert!(waker.fall_asleep(), "nobody sleeps");
    assert_eq!(done(&mut dispatcher, 0).len(), 2);
}

#[test]
fn a_worker_whose_handler_panics_goes_on() {
    let waker = Waker::new().unwrap();
    let handler = |job: &mut Job| {
        assert!(job.0 != 1, "as asked");
        job.1 = Some(0);
    };
    std::thread::scope(|scope| {
        let config = Config::new(1);
        let mut dispatcher = Dispatcher::start(scope, &config, &waker, &handler).unwrap();
        offer(&mut dispatcher, 0..3);
        dispatcher.flush();
        let mut jobs = Vec::new();
        while jobs.len() < 3 {
            jobs.extend(done(&mut dispatcher, 0));
            std::thread::yield_now();
        }
        assert_eq!(jobs, [(0, Some(0)), (1, None), (2, Some(0))]);
        while dispatcher.metrics().panics == 0 {
            std::thread::yield_now();
        }
    });
}

#[test]
fn workers_that_sleep_are_woken_and_every_job_comes_back_once() {
    let waker = Waker::new().unwrap();
    let handler = |job: &mut Job| job.1 = Some(0);
    for (spin_ns_max, delivery) in
        [(0, Delivery::Push), (50_000, Delivery::Push), (0, Delivery::Pull)]
    {
        std::thread::scope(|scope| {
            let config = Config { spin_ns_max, delivery, ..Config::new(3) };
            let mut dispatcher = Dispatcher::start(scope, &config, &waker, &handler).unwrap();
            let mut seen = vec![0; 3_000];
            for number in 0..3_000 {
                offer(&mut dispatcher, number..number + 1);
                // Now and then it waits for all, and the workers fall asleep.
                if number % 100 == 0 {
                    dispatcher.flush();
                    while !dispatcher.is_empty() {
                        dispatcher.poll_done(number, |job| seen[job.0 as usize] += 1);
                        std::thread::yield_now();
                    }
                }
                dispatcher.poll_done(number, |job| seen[job.0 as usize] += 1);
            }
            while !dispatcher.is_empty() {
                dispatcher.poll_done(9_999, |job| seen[job.0 as usize] += 1);
                std::thread::yield_now();
            }
            assert!(seen.iter().all(|&count| count == 1));
        });
    }
}

#[test]
fn a_short_job_never_waits_for_a_long_one_while_a_worker_is_idle() {
    let waker = Waker::new().unwrap();
    let (is_long, may_end) = (AtomicBool::new(false), AtomicBool::new(false));
    let handler = |job: &mut Job| {
        // The long ones end when all the short ones are done.
        while job.0 < 1 && !may_end.load(Ordering::SeqCst) {
            is_long.store(true, Ordering::SeqCst);
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let config = Config::new(2).bound(Bound::Fixed(NonZeroU32::new(4).unwrap()));
        let mut dispatcher = Dispatcher::start(scope, &config, &waker, &handler).unwrap();
        offer(&mut dispatcher, 0..8);
        dispatcher.flush();
        let mut done = Vec::new();
        while done.len() < 7 || !is_long.load(Ordering::SeqCst) {
            dispatcher.poll_done(Clock.now(), |job| done.push(job.0));
            std::thread::yield_now();
        }
        let taken_back = dispatcher.metrics().counts.taken_back;
        // Before what may fail, or the long one would never end.
        may_end.store(true, Ordering::SeqCst);
        assert!(!done.contains(&0) && taken_back >= 1, "{done:?}, {taken_back} taken back");
    });
}

#[test]
fn a_warm_dispatcher_allocates_nothing() {
    let (mut dispatcher, mut workers) = pair(4, 2);
    let mut round = |first: u64| {
        for number in first..first + 100 {
            let _ = dispatcher.offer((number, None), Time::MAX);
            if number % 3 == 0 {
                workers.iter_mut().for_each(|worker| {
                    worker.turn(|_| ());
                });
            }
            dispatcher.poll_done(number * 1_000, |_| ());
        }
    };
    round(0);
    assert_eq!(measure(|| (1..50).for_each(|hundreds| round(hundreds * 100))).count_total, 0);
}

#[test]
fn a_configuration_that_cannot_be_is_refused() {
    let check = |config: Config, expected: &str| {
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(Config::new(0), "0 workers");
    check(Config::new(65), "65 workers; take 1 to 64");
    check(Config::new(1).types(2).delivery(Delivery::Pull), "let types be pushed");
    check(Config::new(1).bound(Bound::Fixed(NonZeroU32::new(17).unwrap())), "a bound of 17");
    check(Config::new(1).in_place(InPlace::Below(50_001)), "50001 ns in place; take 50000");
}

/// A policy that clones whatever it is asked for.
#[derive(Debug)]
struct Cloner;

impl Policy for Cloner {
    fn place(&mut self, _: Loads<'_>, _: u64) -> Placement {
        Placement::Two(WorkerId(0), WorkerId(1))
    }
}

#[test]
fn a_policy_that_clones_runs_a_job_once_and_leaves_nothing_outstanding() {
    let waker = Waker::new().unwrap();
    let handler = |job: &mut (u64, u64)| job.1 = job.0;
    std::thread::scope(|scope| {
        let (mut dispatcher, workers) =
            Dispatcher::with_policy(&Config::new(2), &waker, Cloner).unwrap();
        for worker in workers {
            scope.spawn(move || worker.run(handler));
        }
        let mut replies = Vec::new();
        for id in 0..100 {
            dispatcher.offer((id, u64::MAX), Time::MAX).unwrap();
            // Nothing is pushed to a lane that may be full.
            while replies.len() as u64 <= id {
                dispatcher.poll_done(0, |job| replies.push(job));
                std::thread::yield_now();
            }
        }
        dispatcher.poll_done(0, |job| replies.push(job));
        let expected: Vec<_> = (0..100).map(|id| (id, id)).collect();
        assert_eq!(replies, expected);
        for worker in [0, 1] {
            assert_eq!(dispatcher.outstanding(worker), 0);
        }
    });
}

/// Offers the owner a job of a type; true if it is kept.
fn offer_in_place(dispatcher: &mut Dispatcher<Job>, number: u64, kind: TypeId) -> bool {
    dispatcher.offer_in_place((number, None), Wait::from(Time::MAX).of_type(kind)).is_ok()
}

/// Two workers that have run jobs of two types, the first of them quickly, until one is for the
/// owner; or so many of each.
fn quick_and_slow(in_place: InPlace, jobs: u64) -> (Dispatcher<Job>, Vec<Worker<Job>>) {
    let config = Config::new(2).types(2).in_place(in_place);
    let (mut dispatcher, mut workers) =
        Dispatcher::<Job>::new(&config, &Waker::new().unwrap()).unwrap();
    dispatcher.set_in_place(true);
    for (number, kind) in (0..jobs).flat_map(|number| [(number, TypeId(0)), (number, TypeId(1))]) {
        if offer_in_place(&mut dispatcher, number, kind) {
            break;
        }
        offer_typed(&mut dispatcher, number, kind);
        for worker in &mut workers {
            worker.turn(|_| {
                let began_at = Clock.now();
                while kind == TypeId(1) && Clock.now() <= began_at + LONG_NS {}
            });
        }
        // So late that a type which looked slow, because others had the core, is timed again.
        assert_eq!(done(&mut dispatcher, number * 1_000_000_000).len(), 1);
    }
    (dispatcher, workers)
}

#[test]
fn what_workers_are_quick_at_is_for_the_owner_until_one_is_long() {
    let (mut dispatcher, mut workers) = quick_and_slow(InPlace::Below(50_000), 1_000_000);
    let taken = dispatcher.next_in_place().expect("workers were quick at thousands");
    assert_eq!((taken.1.kind(), dispatcher.next_in_place().is_none()), (TypeId(0), true));
    dispatcher.note_in_place(TypeId(0), Some(100));
    // The other type is the workers'.
    assert!(!offer_in_place(&mut dispatcher, 1, TypeId(1)) && dispatcher.is_empty());
    assert!(offer_in_place(&mut dispatcher, 2, TypeId(0)) && dispatcher.len() == 1);
    // So is all that comes while the owner runs none, and what it gives them.
    dispatcher.set_in_place(false);
    assert!(!offer_in_place(&mut dispatcher, 1, TypeId(0)));
    offer_typed(&mut dispatcher, 1, TypeId(0));
    let (job, wait) = dispatcher.next_in_place().unwrap();
    assert!(dispatcher.offer(job, wait).is_ok() && !dispatcher.has_in_place());
    let ran: Vec<_> = workers.iter_mut().flat_map(|worker| [turn(worker), turn(worker)]).collect();
    assert!(ran.contains(&Some(1)) && ran.contains(&Some(2)), "{ran:?}");
    assert_eq!(done(&mut dispatcher, Time::MAX / 2).len(), 2);
    // And all after a long one.
    dispatcher.set_in_place(true);
    dispatcher.note_taken_over();
    dispatcher.note_long(TypeId(0));
    assert!(!offer_in_place(&mut dispatcher, 4, TypeId(0)));
    let expected = InPlaceCounts { run: 1, begun: 1, ended: 1, taken_over: 1 };
    assert_eq!(dispatcher.metrics().in_place, expected);
}

#[test]
fn nothing_is_for_the_owner_where_that_is_not_wanted() {
    let (mut dispatcher, _workers) = quick_and_slow(InPlace::Never, 10_000);
    assert!(dispatcher.next_in_place().is_none());
    assert_eq!(dispatcher.metrics().in_place, InPlaceCounts::default());
    let pulled = Config::new(1).delivery(Delivery::Pull);
    assert_eq!((pulled.in_place, in_place_mode(&pulled)), (InPlace::Auto, InPlace::Never));
}
