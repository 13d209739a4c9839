//! Fault runs under the load that is asked for: promises hold when the servers cannot keep up too.

use tailcut_sim::faults::plan::Plan;
use tailcut_sim::faults::{Coverage, Ending, Options, check_plan};

const SEED_COUNT: u64 = 60;

fn check_kept(load: f64) -> Coverage {
    let mut coverage = Coverage::default();
    for seed in 0..SEED_COUNT {
        let report = check_plan(&Plan::of_seed(seed).at_load(load), 8, Options::default());
        coverage.add(&report.coverage);
        assert_eq!(
            report.violation, None,
            "replay it by `tailcut sim faults --seed {seed} --load {load}`"
        );
    }
    coverage
}

#[test]
fn every_promise_is_kept_below_and_far_above_the_capacity() {
    let refused = |coverage: &Coverage| coverage.endings[Ending::Overload as usize];
    let few = refused(&check_kept(0.5));
    let many = refused(&check_kept(20.0));
    assert!(many > few + few / 2, "{few} and {many} refused for overload");
}

#[test]
fn the_load_is_what_was_asked_for() {
    for (seed, load) in (0..SEED_COUNT).flat_map(|seed| [0.5, 2.0, 20.0].map(|load| (seed, load))) {
        let (drawn, plan) = (Plan::of_seed(seed), Plan::of_seed(seed).at_load(load));
        let times = || plan.calls.iter().filter(|call| !call.is_after_all).map(|call| call.at);
        let lasts_ns = (times().max().unwrap() - times().min().unwrap()) as f64;
        let services = plan.servers.iter().map(|server| {
            let mean_ns = server.service.mean().unwrap() * server.service_factor;
            f64::from(server.workers) * lasts_ns / mean_ns
        });
        let found = times().count() as f64 / services.sum::<f64>();
        assert!((found / load - 1.0).abs() < 0.01, "seed {seed}: {found} of {load}");
        assert_eq!(plan.faults, drawn.faults, "seed {seed}");
        let after = |plan: &Plan| plan.calls.iter().filter(|call| call.is_after_all).count();
        assert_eq!(after(&plan), after(&drawn), "seed {seed}");
    }
}
