//! A host's dispatcher, with its hand-off and what it takes for each request: `rpcvalet.md` section
//! 6, the largest load whose p99 is at most 10 mean services, 16 workers, exponential services.

use tailcut_sim::queue::System;

use super::service;

#[test]
fn capacity_of_half_a_microsecond() {
    check("500ns", (65, 30), &[(1, 0.738), (2, 0.914), (3, 0.949)]);
    check("500ns", (250, 30), &[(1, 0.471), (2, 0.757), (3, 0.885), (4, 0.922)]);
}

#[test]
fn capacity_of_a_microsecond() {
    check("1us", (65, 30), &[(1, 0.852), (2, 0.960)]);
    check("1us", (250, 30), &[(1, 0.639), (2, 0.891), (3, 0.947)]);
}

#[test]
fn a_slow_dispatcher_is_the_ceiling() {
    check("500ns", (65, 100), &[(2, 0.29)]);
    check("1us", (65, 100), &[(2, 0.60)]);
    check("1us", (250, 200), &[(2, 0.29)]);
}

#[test]
fn capacity_of_five_microseconds() {
    check("5us", (65, 100), &[(1, 0.945), (2, 0.968)]);
    check("5us", (250, 200), &[(1, 0.868), (2, 0.960)]);
}

/// The way there and the occupancy in nanoseconds, and the largest load by bound. The tolerance is
/// 0.03: with a bound of 1 the decision itself is part of what a worker waits for, and whether once
/// or twice for a request that arrives to an empty queue is a percent of the load.
#[track_caller]
fn check(mean: &str, (way_ns, occupancy_ns): (u64, u64), largest: &[(u32, f64)]) {
    for &(bound, largest) in largest {
        let p99_at = |load: f64| {
            let mut system = System::new(
                16,
                format!("jbsq:{bound}").parse().expect("a policy"),
                service(&format!("exp:{mean}")),
            );
            (system.to_worker_ps, system.feedback_ps) = (way_ns * 1_000, way_ns * 1_000);
            system.occupancy_ps = occupancy_ns * 1_000;
            let run = system.at_load(load).for_requests(1_000_000).run(1);
            // A load that is refused has no end.
            run.map_or(f64::INFINITY, |run| {
                tailcut_measure::queueing::Sojourn::percentile(&run, 0.99)
            })
        };
        let (below, above) = (p99_at(largest - 0.03), p99_at(largest + 0.03));
        assert!(
            below <= 10.0 && above > 10.0,
            "{mean}, {way_ns} ns, {occupancy_ns} ns, bound {bound}: {below} and {above} around {largest}"
        );
    }
}
