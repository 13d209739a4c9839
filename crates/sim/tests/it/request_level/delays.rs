//! Effect of delays on a bound: `r2p2.md` section 3c.
//!
//! D is the round trip, half of it each way. The second table there is the largest load whose p99
//! is at most 10 mean services; as its `random` at D = S shows (0.51: ln 100 / (1 - 0.51) + 1/2 =
//! 10), a sojourn there ends with the service too.

use tailcut_measure::queueing::{MDk, Sojourn};
use tailcut_sim::queue::{System, SystemError};

use super::service;

/// n S / (S + D) with a fixed service: from there on it is refused, and a little below the queue
/// does not grow with the requests.
#[test]
fn a_bound_has_its_ceiling() {
    for (bound, round_trip) in [(1, 0.2), (1, 1.0), (2, 3.0), (3, 10.0), (4, 10.0)] {
        let ceiling = f64::from(bound) / (1.0 + round_trip);
        let system = |share: f64| {
            with_delay(&format!("jbsq:{bound}"), "fixed:1us", round_trip).at_load(ceiling * share)
        };
        let refused = system(1.001).run(1).map(|_| ());
        assert!(
            matches!(refused, Err(SystemError::Overload { .. })),
            "bound {bound}, D {round_trip}"
        );
        let p99 = |requests| system(0.95).for_requests(requests).run(1).unwrap().percentile(0.99);
        assert!(p99(800_000) < 1.1 * p99(200_000), "bound {bound}, D {round_trip}");
    }
}

/// With a bound of one and a fixed service the delays are part of what occupies a worker: M/D/16
/// with a service of S + D. The tolerance is that of the tables.
#[test]
fn a_bound_of_one_with_delay_is_a_queue_with_a_longer_service() {
    let round_trip = 1.0;
    let system = with_delay("jbsq:1", "fixed:1us", round_trip)
        .at_load(0.8 / (1.0 + round_trip))
        .for_requests(4_000_000);
    let (run, exact) = (system.run(1).unwrap(), MDk::new(16, 0.8).unwrap());
    for (found, exact) in
        [(run.mean(), exact.mean()), (run.percentile(0.99), exact.percentile(0.99))]
    {
        let expected = (exact - 1.0) * (1.0 + round_trip) + round_trip / 2.0 + 1.0;
        assert!((found / expected - 1.0).abs() < 0.01, "{found}, not {expected}");
    }
}

#[test]
fn largest_loads_of_random() {
    check_largest_loads("random", [[0.77, 0.54, 0.34], [0.77, 0.54, 0.33], [0.76, 0.51, 0.30]]);
}

#[test]
fn largest_loads_of_jbsq_1() {
    check_largest_loads("jbsq:1", [[0.98, 0.97, 0.95], [0.82, 0.80, 0.79], [0.48, 0.48, 0.46]]);
}

#[test]
fn largest_loads_of_jbsq_2() {
    check_largest_loads("jbsq:2", [[0.98, 0.97, 0.94], [0.98, 0.95, 0.92], [0.98, 0.77, 0.74]]);
}

#[test]
fn largest_loads_of_jbsq_4() {
    check_largest_loads("jbsq:4", [[0.97, 0.95, 0.91], [0.98, 0.95, 0.86], [0.97, 0.92, 0.72]]);
}

#[test]
fn largest_loads_of_jbsq_16() {
    check_largest_loads("jbsq:16", [[0.97, 0.95, 0.89], [0.97, 0.95, 0.86], [0.97, 0.92, 0.72]]);
}

/// The largest loads by D of 0, 0.2 S and S, for fixed, exponential and bimodal service. They are
/// from single runs of 300 k requests and printed to two digits, so the tolerance is 0.02: that
/// much below the p99 must meet the objective, and that much above it must not.
fn check_largest_loads(policy: &str, published: [[f64; 3]; 3]) {
    for (round_trip, loads) in [0.0, 0.2, 1.0].into_iter().zip(published) {
        for (service_time, load) in
            ["fixed:1us", "exp:1us", "bimodal:1us:10us:0.9"].into_iter().zip(loads)
        {
            let meets = |load: f64| {
                let system = with_delay(policy, service_time, round_trip)
                    .at_load(load)
                    .for_requests(500_000);
                match system.run(1) {
                    Ok(run) => run.percentile(0.99) <= 10.0,
                    // Beyond what the bound can serve, or all workers.
                    Err(SystemError::Overload { .. } | SystemError::Load(_)) => false,
                    Err(error) => panic!("{error}"),
                }
            };
            assert!(
                meets(load - 0.02),
                "{policy}, {service_time}, D {round_trip}: less than {load}"
            );
            // Nothing above a load of 1 can be probed.
            assert!(
                !meets((load + 0.02).min(0.998)),
                "{policy}, {service_time}, D {round_trip}: more than {load}"
            );
        }
    }
}

fn with_delay(policy: &str, service_time: &str, round_trip: f64) -> System {
    let system = System::new(16, policy.parse().unwrap(), service(service_time));
    let half_ps = (system.service_mean_ps() * round_trip / 2.0) as u64;
    System { to_worker_ps: half_ps, feedback_ps: half_ps, ..system }
}
