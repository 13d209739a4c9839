//! Clients with the defaults of the library before servers with the defaults of theirs, under more
//! than those can serve: the bench `overload` without sockets.

use tailcut_sim::r2p2::{Experiment, Findings, GOODPUT_SLICES, run};

use super::r2p2::{plan, times};

/// Four workers of 2 ms, of one server or of four behind a router, for four seconds.
fn overload(load: f64, deadline_ms: u64, clients: u32, is_routed: bool) -> Findings {
    let experiment = Experiment {
        clients,
        servers: if is_routed { 4 } else { 1 },
        workers: if is_routed { 1 } else { 4 },
        policy: is_routed.then(|| "jbsq:auto".parse().unwrap()),
        service: times("exp:2ms"),
        load,
        load_after: Some(0.5),
        calls: (load * 8_000.0) as u64,
        timeout_ns: deadline_ms * 1_000_000,
        is_paced: true,
        ..plan()
    };
    run(&experiment).unwrap()
}

/// Checks a load by what is answered after a second, when the queues have been full.
fn check(load: f64, goodput_min: f64, (deadlines_ms, clients): (&[u64], &[u32])) {
    for is_routed in [false, true] {
        for (&deadline_ms, &clients) in
            deadlines_ms.iter().flat_map(|at| clients.iter().map(move |of| (at, of)))
        {
            let found = overload(load, deadline_ms, clients, is_routed);
            let what = format!("{load} of {clients} clients, {deadline_ms} ms, {is_routed}");
            let slices = &found.goodput_over_time[GOODPUT_SLICES / 4 - GOODPUT_SLICES / 10..];
            let goodput = slices.iter().sum::<f64>() / slices.len() as f64;
            assert!(goodput >= goodput_min, "{what}: goodput {goodput} of {slices:.2?}");
            let p99_ms = found.latencies.percentile(0.99) / 1e6;
            assert!(p99_ms <= deadline_ms as f64 / 2.0, "{what}: p99 {p99_ms} ms");
            let normal_after_ns = found.normal_after_ns;
            assert!(normal_after_ns <= 200_000_000, "{what}: {normal_after_ns} ns");
        }
    }
}

#[test]
fn twice_the_load_of_clients_that_keep_the_pace_leaves_the_goodput() {
    check(2.0, 0.95, (&[100, 1_000], &[10, 1_000]));
}

#[test]
fn ten_times_the_load_of_clients_that_keep_the_pace_leaves_the_goodput() {
    check(10.0, 0.95, (&[100, 1_000], &[10]));
    check(10.0, 0.95, (&[1_000], &[100]));
}

#[test]
fn a_hundred_times_the_load_of_clients_that_keep_the_pace_leaves_the_goodput() {
    check(100.0, 0.95, (&[1_000], &[10]));
}
