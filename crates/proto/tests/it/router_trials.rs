//! Requests at servers that may not answer: trials of version 1 servers, and the first server of
//! the fixed policy.

use tailcut_proto::router::{Forward, ServerConfig, ServerState, Speaks};
use tailcut_wire::r2p2::DropReason;

use crate::router_bench::{
    Ask, Bench, FakeServer, MS, client, drop_reason, server, v1_feedback, v1_request,
};

/// Version 1 servers that are out with their first lease that expires, after 10 ms, and tried every
/// 100 ms. Each has a request.
fn bench(count: u16) -> Bench {
    let mut bench = Bench::new(Speaks::V1, count, |config| {
        (config.policy, config.forward) = ("jbsq:1".parse().unwrap(), Forward::Keep);
        (config.lease_ns, config.v1_failures_max) = (10 * MS, 1);
        config.v1_trial_interval_ns = TRIAL_INTERVAL;
    });
    for index in 0..count {
        assert_eq!(bench.place(&v1_request(index)), Some(index));
    }
    bench
}

const TRIAL_INTERVAL: u64 = 100 * MS;

#[test]
fn a_silent_version_1_server_is_tried_when_it_is_time() {
    for late in [0, 7 * MS] {
        let mut bench = bench(1);
        bench.advance(10 * MS);
        assert_eq!(bench.states(), [ServerState::Silent]);
        bench.advance(TRIAL_INTERVAL - 1);
        assert_eq!(bench.place(&v1_request(7)), None, "it has failed of late");
        bench.advance(1 + late);
        assert_eq!(bench.place(&v1_request(8)), Some(0), "{late}");
        assert_eq!(bench.place(&v1_request(9)), None, "one at a time");
    }
}

#[test]
fn no_request_with_an_id_tries_a_version_1_server() {
    let mut bench = bench(1);
    bench.advance(11 * MS + TRIAL_INTERVAL);
    assert_eq!(drop_reason(&bench.send(client(), &Ask::id(1).bytes())), DropReason::NoServer);
    assert_eq!(bench.metrics().trials, 0);
}

#[test]
fn each_silent_server_has_its_trial() {
    let mut bench = bench(2);
    bench.advance(11 * MS + TRIAL_INTERVAL);
    let tried = [7, 8, 9].map(|rid| bench.place(&v1_request(rid)));
    assert_eq!((tried, bench.metrics().trials), ([Some(0), Some(1), None], 2));
}

#[test]
fn only_a_silent_server_is_tried() {
    let mut bench = bench(2);
    bench.send(server(0), &v1_feedback());
    bench.advance(11 * MS + TRIAL_INTERVAL);
    assert_eq!(bench.states(), [ServerState::InService, ServerState::Silent]);
    assert_eq!([7, 8].map(|rid| bench.place(&v1_request(rid))), [Some(1), Some(0)]);
    assert_eq!(bench.metrics().trials, 1);
}

#[test]
fn a_server_to_be_removed_is_not_tried() {
    let mut bench = bench(1);
    bench.advance(11 * MS + TRIAL_INTERVAL);
    bench.router.drain_server(bench.now, server(0)).unwrap();
    assert_eq!((bench.place(&v1_request(7)), bench.metrics().trials), (None, 0));
}

fn fixed(id: u64) -> Vec<u8> {
    Ask { is_fixed: true, ..Ask::id(id) }.bytes()
}

/// It cannot wait: the fixed policy holds nothing.
#[test]
fn a_fixed_request_goes_to_a_server_that_starts_unless_that_is_to_be_removed() {
    let mut bench = Bench::new(Speaks::Extension, 0, |_| {});
    let config = ServerConfig { addr: server(0), speaks: Speaks::Extension };
    bench.router.add_server(bench.now, config).unwrap();
    assert_eq!(bench.states(), [ServerState::Starting]);
    assert_eq!(bench.place(&fixed(1)), Some(0));
    bench.router.drain_server(bench.now, server(0)).unwrap();
    assert_eq!(drop_reason(&bench.send(client(), &fixed(2))), DropReason::NoServer);
}

/// Its probes tell when it is back.
#[test]
fn a_fixed_request_does_not_try_a_silent_server_that_is_probed() {
    let mut bench = Bench::new(Speaks::Extension, 2, |_| {});
    bench.live(&mut [&mut FakeServer::new(1)], 200 * MS);
    assert_eq!(bench.states(), [ServerState::Silent, ServerState::InService]);
    assert_eq!(drop_reason(&bench.send(client(), &fixed(1))), DropReason::NoServer);
}

#[test]
fn a_fixed_request_past_the_bound_is_counted() {
    let mut bench = Bench::new(Speaks::Extension, 2, |_| {});
    let past: Vec<_> = (1..=5)
        .map(|id| {
            assert_eq!(bench.place(&fixed(id)), Some(0));
            bench.metrics().fixed_past_bound
        })
        .collect();
    assert_eq!(past, [0, 0, 1, 2, 3]);
}
