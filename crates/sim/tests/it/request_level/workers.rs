//! Workers that differ, and services that are longer now and then.

use tailcut_measure::queueing::{MMk, Sojourn};
use tailcut_sim::queue::{Jitter, System};

use super::{service, sojourns_ps};

#[test]
fn equal_speeds_are_no_speeds() {
    let system = System { groups: 4, workers: 4, ..system("jsq:2", 16) };
    let with = System { speeds: vec![1.0; 16], ..system.clone() };
    assert_eq!(sojourns_ps(&with, 1), sojourns_ps(&system, 1));
}

/// Twice the speed at the same load is half the time, for each request: services and gaps of 2^n
/// times a unit halve exactly, up to the picosecond to which each is rounded.
#[test]
fn twice_the_speed_is_half_the_time() {
    let system = system("jbsq:2", 16).for_requests(10_000);
    let fast = System { speeds: vec![2.0; 16], ..system.clone() };
    for (fast_ps, slow_ps) in sojourns_ps(&fast, 1).into_iter().zip(sojourns_ps(&system, 1)) {
        assert!((2 * fast_ps).abs_diff(slow_ps) < 200, "{fast_ps} {slow_ps}");
    }
}

/// M/M/1 of speed 2: half the sojourn. 4 M requests know the p99 at 0.7 to 1 %; three of that.
#[test]
fn one_fast_worker_is_a_queue_of_its_own() {
    let fast =
        System { speeds: vec![2.0], ..system("jbsq:1", 1) }.for_requests(4_000_000).run(1).unwrap();
    let exact = MMk::new(1, 0.7).unwrap();
    assert!((2.0 * fast.mean() / exact.mean() - 1.0).abs() < 0.02, "{}", fast.mean());
    assert!(
        (2.0 * fast.percentile(0.99) / exact.percentile(0.99) - 1.0).abs() < 0.03,
        "{}",
        fast.percentile(0.99)
    );
    assert!((fast.utilisation - 0.7).abs() < 0.005, "{}", fast.utilisation);
}

/// Random placement on two speeds is two M/M/1: at speeds 1.5 and 0.75 and the rate of 0.6 a
/// worker, sojourns of mean 1 / (1.5 - 0.6) and 1 / (0.75 - 0.6).
#[test]
fn random_placement_on_two_speeds_is_two_queues() {
    let system = System { speeds: vec![1.5, 0.75], ..system("random", 2) }
        .at_load(1.2 / 2.25)
        .for_requests(4_000_000);
    let run = system.run(1).unwrap();
    let expected = (1.0 / 0.9 + 1.0 / 0.15) / 2.0;
    assert!((run.mean() / expected - 1.0).abs() < 0.02, "{} {expected}", run.mean());
    // exp(-t 0.9) / 2 + exp(-t 0.15) / 2 = 0.01: the first is nothing by then.
    let p99 = 50f64.ln() / 0.15;
    assert!((run.percentile(0.99) / p99 - 1.0).abs() < 0.03, "{} {p99}", run.percentile(0.99));
}

/// Shortest first finds the fast workers, round robin does not.
#[test]
fn counts_help_where_speeds_differ() {
    let speeds: Vec<f64> = [[1.0; 12].as_slice(), &[0.7; 4]].concat();
    let p99 = |policy| {
        System { speeds: speeds.clone(), ..system(policy, 16) }.run(1).unwrap().percentile(0.99)
    };
    assert!(p99("jbsq:2") < p99("rr"));
}

#[test]
fn a_jitter_of_zero_is_none() {
    let system = system("jbsq:2", 16);
    let with = System { jitter: Jitter { probability: 0.0, factor: 100.0 }, ..system.clone() };
    assert_eq!(sojourns_ps(&with, 1), sojourns_ps(&system, 1));
}

#[test]
fn a_jitter_of_one_is_a_longer_service() {
    let system = System { service: service("fixed:1us"), ..system("jbsq:2", 16) };
    let with = System { jitter: Jitter { probability: 1.0, factor: 15.0 }, ..system.clone() };
    let longer = System { service: service("fixed:15us"), ..system };
    assert_eq!(sojourns_ps(&with, 1), sojourns_ps(&longer, 1));
}

/// One service in a hundred is 15 times as long: the mean is 1.14 services, and the share of
/// services above 10 is 0.01.
#[test]
fn jitter_makes_its_share_longer() {
    let system = System { service: service("fixed:1us"), ..system("jbsq:2", 16) };
    let system = System { jitter: Jitter { probability: 0.01, factor: 15.0 }, ..system };
    let services: Vec<u64> =
        system.requests(1).unwrap().take(1_000_000).map(|request| request.service_ps).collect();
    let longer = services.iter().filter(|&&service_ps| service_ps == 15_000_000).count();
    // Five standard deviations of 1 M draws at 0.01.
    assert!(longer.abs_diff(10_000) < 500, "{longer}");
    assert_eq!(
        services.iter().filter(|&&service_ps| service_ps == 1_000_000).count(),
        1_000_000 - longer
    );
    assert!((system.service_mean_ps() - 1.14e6).abs() < 1e-3);
    let run = system.run(1).unwrap();
    assert!((run.utilisation / 0.7 - 1.0).abs() < 0.01, "{}", run.utilisation);
}

fn system(policy: &str, workers: usize) -> System {
    System::new(workers, policy.parse().unwrap(), service("exp:1us"))
        .at_load(0.7)
        .for_requests(300_000)
}
