//! Systems that are refused, and counts of runs.

use std::num::NonZeroU32;

use tailcut_measure::arrivals::Process;
use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::Unit;

use tailcut_proto::policy::{Random, RoundRobin};

use super::*;

#[test]
fn what_has_no_answer_is_refused() {
    check_refused(|system| system.workers = 0, "a layout has at least 1 group");
    check_refused(|system| system.groups = 0, "a layout has at least 1 group");
    check_refused(|system| system.groups = usize::MAX, "at most 65536 workers");
    check_refused(
        |system| system.requests = 0,
        "the number of requests must be 1 to 1073741823, but is 0",
    );
    check_refused(|system| system.warmup = system.requests, "leaves nothing of 1000");
    check_refused(|system| system.speeds = vec![1.0; 3], "3 speeds are given for 4 workers");
    check_refused(
        |system| system.speeds = vec![1.0, 1.0, 1.0, 0.0],
        "must be from 0.001 to 1000, but is 0",
    );
    check_refused(|system| system.speeds = vec![1.0, 1.0, 1.0, f64::NAN], "but is NaN");
    check_refused(|system| system.load = 1.0, "the load must be above 0 and below 1, but is 1");
    check_refused(|system| system.load = f64::NAN, "but is NaN");
    check_refused(|system| system.jitter.probability = 1.5, "from 0 to 1, but is 1.5");
    check_refused(|system| system.jitter.factor = 0.5, "from 1 to 1000000, but is 0.5");
    check_refused(
        |system| system.service = service("pareto:0:1us:1"),
        "needs a finite mean of at least 1 ns",
    );
    check_refused(
        |system| system.service = service("fixed:0"),
        "needs a finite mean of at least 1 ns",
    );
    check_refused(
        |system| system.service = Distribution::parse("exp:1k", Unit::Plain).unwrap(),
        "needs a finite mean",
    );
    check_refused(
        |system| system.arrivals = Process::parse("pareto:0:1:1").unwrap(),
        "have no mean gap above zero",
    );
    check_refused(
        |system| system.service = service("exp:1000000s"),
        "more than 50 days of virtual time",
    );
    check_refused(|system| system.to_worker_ps = u64::MAX, "more than 50 days of virtual time");
}

#[test]
fn a_tie_rule_is_for_jbsq_alone() {
    let ties = |system: &mut System| system.ties = Some(TieRule::Lowest);
    check_refused(
        |system| (ties(system), system.policy = Random::SPEC).0,
        "a tie rule is for jbsq alone, not for random",
    );
    assert_eq!("oldest".parse::<TieRule>(), Err(SystemError::TieRule("oldest".to_owned())));
}

#[test]
fn a_load_that_some_worker_cannot_serve_is_refused() {
    // Random placement gives each worker 0.5 x 2.5 / 4 of a service's worth; the slow one serves
    // 0.25.
    let slow =
        |system: &mut System| (system.load, system.speeds) = (0.5, vec![0.25, 0.75, 0.75, 0.75]);
    check_refused(
        |system| (slow(system), system.policy = Random::SPEC).0,
        "must stay below 0.4000",
    );
    check_refused(
        |system| (slow(system), system.policy = RoundRobin::SPEC).0,
        "must stay below 0.4000",
    );
    check_accepted(|system| (slow(system), system.policy = "jsq:2".parse().unwrap()).0);
    check_accepted(|system| slow(system));
    // Both samples are the slow pair in one of six, and the pair serves 0.2 of 4.2: 6 x 0.2 / 4.2.
    let slow_pair =
        |system: &mut System| (system.load, system.speeds) = (0.3, vec![0.1, 2.0, 0.1, 2.0]);
    check_refused(
        |system| (slow_pair(system), system.policy = "jsq:2".parse().unwrap()).0,
        "must stay below 0.2857",
    );
    check_accepted(|system| (slow_pair(system), system.policy = "jsq:3".parse().unwrap()).0);
    // A group that serves 1.0 of 2.5 gets half.
    check_refused(
        |system| (slow(system), (system.groups, system.workers, system.load) = (2, 2, 0.9)).0,
        "must stay below 0.8000",
    );
}

#[test]
fn a_load_above_the_ceiling_of_a_bound_is_refused() {
    // n S / (S + D) with S = 1 us and D = 3 us.
    let delays =
        |system: &mut System| (system.to_worker_ps, system.feedback_ps) = (1_000_000, 2_000_000);
    check_refused(|system| (delays(system), system.load = 0.5).0, "must stay below 0.5000");
    check_accepted(|system| (delays(system), system.load = 0.49).0);
}

#[test]
fn overload_needs_deadlines_and_a_queue_where_they_count() {
    let overload = |system: &mut System| (system.load, system.deadline_ps) = (2.0, Some(MS));
    check_accepted(|system| overload(system));
    check_refused(|system| system.load = 2.0, "more needs a deadline");
    check_refused(
        |system| (overload(system), system.policy = Random::SPEC).0,
        "with random, by which requests wait at the workers",
    );
    check_refused(
        |system| (overload(system), system.deadline_ps = Some(999)).0,
        "a deadline must be at least 1 ns",
    );
    check_refused(|system| (overload(system), system.load = 1001.0).0, "at most 1000, but is 1001");
    // It places four in a service of four workers at a load of 1.
    check_refused(
        |system| (overload(system), system.occupancy_ps = 250_000).0,
        "must stay below 1.0000",
    );
}

#[test]
fn under_overload_the_workers_answer_what_they_can_in_time() {
    for (load, deadline_ps) in [(2.0, 100 * MS), (10.0, 100 * MS), (10.0, 1000 * MS)] {
        let system = System::new(16, "jbsq:1".parse().unwrap(), service("exp:1ms"));
        let system = System { load, deadline_ps: Some(deadline_ps), ..system };
        let run = system.for_requests((load * 16_000.0 * 8.0) as u64).run(1).unwrap();
        let goodput = load * run.answered_share();
        assert!((0.95..1.02).contains(&goodput), "load {load}: {goodput}");
        assert!(run.sojourns.percentile(0.99) <= deadline_ps as f64 / 2.0, "load {load}");
        let counted = run.sojourns.count() + run.refused + run.late;
        assert_eq!(counted, run.requests - run.requests / 10, "each has one end");
        assert!(run.refused > counted / 3, "{} of {counted}", run.refused);
    }
}

#[test]
fn what_comes_late_is_no_goodput() {
    // One worker that takes 1 ms, placed on at once: what waits behind another at it is late.
    let policy = "jbsq:2".parse().unwrap();
    let mut system = System::new(1, policy, service("fixed:1ms")).at_load(5.0);
    system.deadline_ps = Some(3 * MS / 2);
    let run = system.for_requests(10_000).run(1).unwrap();
    assert!(run.late > 1_000 && run.sojourns.percentile(1.0) <= 1.501e9, "{}", run.late);
}

#[test]
fn a_queue_holds_whatever_comes_at_once() {
    let gaps = Process::parse("bimodal:0:1000:0.999").unwrap();
    let run = System { arrivals: gaps, ..system("jbsq:2") }.at_load(0.5).run(1).unwrap();
    assert!(run.queue_len_max > 950, "{}", run.queue_len_max);
}

/// A trace keeps the order of its gaps, which a distribution of the same gaps loses.
#[test]
fn a_trace_keeps_its_bursts() {
    let gaps = |text: &str| text.split(' ').map(|gap| gap.parse().unwrap()).collect::<Vec<f64>>();
    let trace = |text: &str| Some(Trace::new(gaps(text)).unwrap());
    let arrivals = |trace: Option<Trace>, seed| -> Vec<u64> {
        let system = System { trace, ..System::new(1, Random::SPEC, service("fixed:1us")) };
        let requests = system.at_load(0.5).requests(seed).unwrap().take(9);
        requests.map(|request| request.arrived_ps).collect()
    };
    // A mean service over the load is 2 us, of three gaps together 6 us, whatever their unit was.
    let apart: Vec<u64> =
        arrivals(trace("1 2 0"), 1).windows(2).map(|pair| pair[1] - pair[0]).collect();
    let cycle = [2_000_000, 4_000_000, 0];
    let first = cycle.iter().position(|&gap| gap == apart[0]).unwrap();
    let expected: Vec<u64> = (0..8).map(|index| cycle[(first + index) % 3]).collect();
    assert_eq!(apart, expected);
    assert_eq!(arrivals(trace("10 20 0"), 1), arrivals(trace("1 2 0"), 1));
    let beginnings: std::collections::BTreeSet<u64> =
        (0..20).map(|seed| arrivals(trace("1 2 0"), seed)[0]).collect();
    assert_eq!(beginnings.len(), 3, "seeds begin elsewhere");
}

#[test]
fn bursts_of_a_trace_wait_longer_than_its_gaps_at_random() {
    // A hundred at once, and a pause for them.
    let burst: Vec<f64> = (0..100).map(|index| if index == 0 { 100.0 } else { 0.0 }).collect();
    let base =
        || System::new(1, Random::SPEC, service("fixed:1us")).at_load(0.5).for_requests(100_000);
    let traced = System { trace: Some(Trace::new(burst).unwrap()), ..base() }.run(1).unwrap();
    // In services: the mean of 1 to 100.
    let mean = traced.sojourns.mean() / 1e6;
    assert!((mean - 50.5).abs() < 0.1, "{mean}");
}

#[test]
fn what_is_no_trace_is_refused() {
    for gaps in [vec![], vec![0.0, 0.0], vec![1.0, -1.0], vec![f64::NAN], vec![f64::INFINITY]] {
        assert_eq!(Trace::new(gaps.clone()), Err(TraceError), "{gaps:?}");
    }
}

#[test]
fn the_automatic_bound_follows_the_delays() {
    let mut system = System::new(16, Jbsq::AUTO, service("exp:1us"));
    assert_eq!(system.bound(), NonZeroU32::new(2));
    (system.to_worker_ps, system.feedback_ps) = (1_500_000, 1_500_000);
    assert_eq!(system.bound(), NonZeroU32::new(5));
}

#[test]
fn services_of_a_seed_are_the_same_for_every_policy() {
    let requests = |policy| system(policy).requests(1).unwrap().take(1000).collect::<Vec<_>>();
    assert_eq!(requests("random"), requests("jbsq:2"));
}

#[test]
fn arrivals_do_not_drift() {
    // A third of a picosecond is left out of each gap of 16 workers at load 0.75.
    let system =
        System { arrivals: Process::Fixed, ..System::new(16, Random::SPEC, service("fixed:1ns")) }
            .at_load(0.75);
    let last = system.requests(1).unwrap().nth(12_000_000 - 1).unwrap();
    assert!(last.arrived_ps.abs_diff(1_000_000_000) <= 1, "{last:?}");
}

#[test]
fn the_share_held_is_that_of_the_chain() {
    // JBSQ(2), exponential, load 0.9: the central queue is used with a probability of 0.160
    // (exact). The standard deviation over seeds of a million requests is 0.003.
    let run = System::new(16, "jbsq:2".parse().unwrap(), service("exp:1us"))
        .at_load(0.9)
        .for_requests(1_000_000)
        .run(1)
        .unwrap();
    assert!((run.held_share() - 0.160).abs() < 0.01, "{}", run.held_share());
    assert!((run.utilisation - 0.9).abs() < 0.01, "{}", run.utilisation);
    assert!(run.queue_len_max > 20);
    assert_eq!((run.requests, run.sojourns.count()), (1_000_000, 900_000));
}

#[test]
fn a_policy_without_a_bound_holds_nothing() {
    let run = system("jsq:2").run(1).unwrap();
    assert_eq!((run.held, run.queue_len_max), (0, 0));
}

#[test]
fn delays_add_up_for_a_request_that_meets_nobody() {
    // At a load of 1 in 10,000 with equal gaps.
    let mut system =
        System { arrivals: Process::Fixed, ..System::new(4, Random::SPEC, service("fixed:1us")) }
            .at_load(1e-4);
    (system.to_worker_ps, system.feedback_ps, system.requests, system.warmup) =
        (250_000, 400_000, 100, 0);
    let mut sojourns_ps = Vec::new();
    system.run_observed(1, |_, sojourn_ps| sojourns_ps.push(sojourn_ps)).unwrap();
    assert_eq!(sojourns_ps, [1_250_000; 100]);
}

#[test]
fn a_bound_of_one_waits_for_the_way_there_and_back() {
    // Gaps of 100 ns and 5.1 us; from one placement to the next it is 0.25 + 1 + 1.25 us.
    let gaps = Process::parse("bimodal:100:5100:0.5").unwrap();
    let mut system = System {
        arrivals: gaps,
        ..System::new(1, "jbsq:1".parse().unwrap(), service("fixed:1us"))
    };
    (system.to_worker_ps, system.feedback_ps) = (250_000, 1_250_000);
    let system = System { requests: 1000, warmup: 0, load: 1.0 / 2.6, ..system };
    let (mut free_ps, mut expected_ps, mut sojourns_ps) = (0, Vec::new(), Vec::new());
    for request in system.requests(1).unwrap().take(1000) {
        let placed_ps = request.arrived_ps.max(free_ps);
        free_ps = placed_ps + 2_500_000;
        expected_ps.push(placed_ps + 1_250_000 - request.arrived_ps);
    }
    system.run_observed(1, |_, sojourn_ps| sojourns_ps.push(sojourn_ps)).unwrap();
    assert_eq!(sojourns_ps, expected_ps);
}

#[test]
fn a_time_without_end_is_refused() {
    // The mean is short, but a sample is not.
    let samples = vec![1.0; 100_000].into_iter().chain([5e17]).collect();
    let service = Distribution::empirical("long", samples, Unit::Time).unwrap();
    let system = System::new(1, Random::SPEC, service).at_load(0.999_999).for_requests(400_000);
    assert_eq!(system.run(1).map(|_| ()), Err(SystemError::TooLong));
}

fn check_refused(change: impl FnOnce(&mut System), message: &str) {
    let mut system = system("jbsq:2");
    change(&mut system);
    let error = system.run(1).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(message), "{error}");
}

fn check_accepted(change: impl FnOnce(&mut System)) {
    let mut system = system("jbsq:2");
    change(&mut system);
    assert_eq!(system.check(), Ok(()));
}

fn system(policy: &str) -> System {
    System::new(4, policy.parse().unwrap(), service("exp:1us")).for_requests(1000)
}

fn service(text: &str) -> Distribution {
    Distribution::parse(text, Unit::Time).unwrap()
}

/// 99.5 % of 1 us and 0.5 % of 500 us before 16 workers at 0.7: what DARC is for.
fn bimodal(typing: Typing) -> System {
    let system = System::new(16, "jbsq:1".parse().unwrap(), service("bimodal:1us:500us:0.995"));
    System { types_ps: vec![10_000_000], typing, ..system }.at_load(0.7).for_requests(2_000_000)
}

#[test]
fn short_requests_do_not_wait_behind_long_ones_where_workers_are_reserved() {
    let p999 = |typing| {
        let run = bimodal(typing).run(1).unwrap();
        assert_eq!(run.by_type.len(), 2);
        let counted: u64 = run.by_type.iter().map(Sojourns::count).sum();
        assert_eq!(counted, run.sojourns.count());
        [0, 1].map(|kind| run.by_type[kind].percentile(0.999))
    };
    let ([one, one_long], [reserved, reserved_long]) =
        (p999(Typing::Shown), p999(Typing::Reserved));
    println!(
        "p99.9 of short ones {reserved} over {one} ps, of long ones {reserved_long} over {one_long}"
    );
    assert!(reserved <= 0.2 * one, "{reserved} over {one}");
    // The long ones pay, not without bound.
    assert!(reserved_long < 3.0 * one_long, "{reserved_long} over {one_long}");
}

/// A host's dispatcher of a hand-off of 1 us.
fn dispatched(workers: usize, service_text: &str) -> System {
    let mut system = System::new(workers, "jbsq:2".parse().unwrap(), service(service_text));
    (system.to_worker_ps, system.feedback_ps) = (500_000, 500_000);
    system.for_requests(1_000_000)
}

#[test]
fn requests_that_are_shorter_than_half_a_hand_off_are_the_schedulers_own() {
    // Then it is the one server of a queue: M/M/1's mean sojourn of 1 / (1 - load), with a standard
    // deviation of 0.03 over seeds at this length. By its worker, at a load that this can serve,
    // they take a hand-off more.
    let in_place = System { in_place_ps: Some(500_000), ..dispatched(1, "exp:300ns") };
    let run = in_place.at_load(0.5).run(1).unwrap();
    assert!((run.mean() - 2.0).abs() < 0.1, "{}", run.mean());
    assert!(run.utilisation < 0.01, "the worker has those that were seen first alone");
    let by_worker = dispatched(1, "exp:300ns").at_load(0.4).run(1).unwrap();
    assert!(by_worker.mean() > 1.0 / 0.6 + 1.6, "{}", by_worker.mean());
}

#[test]
fn requests_that_are_longer_than_half_a_hand_off_are_the_workers() {
    let mut sojourns = [None, Some(500_000)].map(|in_place_ps| {
        let system = System { in_place_ps, ..dispatched(4, "exp:520ns") }.at_load(0.3);
        let mut sojourns_ps = Vec::new();
        system.run_observed(1, |_, sojourn_ps| sojourns_ps.push(sojourn_ps)).unwrap();
        sojourns_ps
    });
    assert_eq!(sojourns[0].len(), 1_000_000);
    assert!(std::mem::take(&mut sojourns[0]) == sojourns[1], "the same to the bit");
}

#[test]
fn only_the_types_that_are_short_are_the_schedulers_own() {
    // The short ones meet nobody but each other there, and the long ones find workers.
    let system = dispatched(16, "bimodal:100ns:50us:0.9");
    let typed =
        System { types_ps: vec![1_000_000], typing: Typing::Reserved, ..system }.at_load(0.5);
    let in_place = System { in_place_ps: Some(500_000), ..typed.clone() };
    let [handed, own] = [typed, in_place].map(|system| {
        let run = system.run(1).unwrap();
        [0, 1].map(|kind| run.by_type[kind].percentile(0.99))
    });
    // 100 ns and the way of 500 ns, against 100 ns and what has come just before.
    assert!(handed[0] >= 600_000.0 && own[0] <= 300_000.0, "{handed:?} {own:?}");
    assert!(own[1] <= 1.05 * handed[1], "{handed:?} {own:?}");
}

#[test]
fn a_scheduler_that_serves_cannot_be_given_more_than_it_can() {
    // It is one server, and they are four.
    check_refused(|system| system.in_place_ps = Some(1_000_000), "must stay below 0.2500");
    // Of nine in ten, which take half a microsecond at most, it may run each; a mean service is 1
    // us.
    let typed = |system: &mut System| {
        (system.typing, system.types_ps) = (Typing::Reserved, vec![2_000_000]);
        system.service = service("bimodal:500ns:5500ns:0.9");
        system.in_place_ps = Some(500_000);
    };
    check_refused(|system| (typed(system), system.load = 0.6).0, "must stay below 0.5556");
    check_accepted(|system| (typed(system), system.load = 0.5).0);
    // These are the workers' in any case.
    check_accepted(|system| (system.in_place_ps, system.load) = (Some(999_999), 0.9));
}

#[test]
fn types_need_an_order_and_reserved_workers_need_types() {
    check_refused(|system| system.types_ps = vec![2, 2], "must ascend");
    check_refused(|system| system.types_ps = (1..17).collect(), "15 at most");
    check_refused(|system| system.typing = Typing::Reserved, "give types");
    check_refused(
        |system| {
            (system.typing, system.types_ps) = (Typing::Reserved, vec![1_000]);
            system.policy = Random::SPEC;
        },
        "give types, and jbsq:N",
    );
}

/// A millisecond in picoseconds.
const MS: u64 = 1_000_000_000;
