//! Limits that change while a router runs.

use tailcut_proto::router::{RouterConfig, RouterError, Speaks};
use tailcut_wire::r2p2::DropReason;

use crate::router_bench::{Ask, Bench, MS, client, drop_reason};

/// One server at its bound of 2, and two requests held.
fn with_two_held() -> Bench {
    let mut bench = Bench::new(Speaks::Extension, 1, |_| {});
    for id in 1..=4 {
        bench.send(client(), &Ask::id(id).bytes());
    }
    assert_eq!((bench.outstanding(), bench.router.queue_len()), (vec![2], 2));
    bench
}

#[test]
fn a_shorter_queue_keeps_what_is_held_and_refuses_what_comes() {
    let mut bench = with_two_held();
    let shorter = RouterConfig { queue_len_max: 1, ..RouterConfig::default() };
    bench.router.tune(&shorter).expect("a good configuration");
    let refused = bench.send(client(), &Ask::id(5).bytes());
    assert_eq!(drop_reason(&refused), DropReason::Overload);
    assert_eq!(bench.router.queue_len(), 2);
    bench.router.tune(&RouterConfig::default()).expect("a good configuration");
    bench.send(client(), &Ask::id(6).bytes());
    assert_eq!(bench.router.queue_len(), 3);
}

#[test]
fn a_shorter_hold_is_of_what_comes() {
    let mut bench = with_two_held();
    let shorter = RouterConfig { hold_ns_max: 2 * MS, ..RouterConfig::default() };
    bench.router.tune(&shorter).expect("a good configuration");
    bench.send(client(), &Ask::id(5).bytes());
    bench.advance(3 * MS);
    assert_eq!((bench.metrics().refused.expired, bench.router.queue_len()), (1, 2));
}

#[test]
fn what_is_held_is_refused_before_a_router_ends() {
    let mut bench = with_two_held();
    bench.router.close();
    let now = bench.now;
    assert!(bench.router.refuse_held(now));
    let refused = bench.drain();
    assert_eq!(refused.len(), 2);
    assert!(
        refused.iter().all(|sent| drop_reason(std::slice::from_ref(sent)) == DropReason::Stopping)
    );
    assert!(!bench.router.refuse_held(now));
    assert_eq!((bench.outstanding(), bench.router.queue_len()), (vec![2], 0));
}

#[test]
fn what_is_wrong_changes_nothing() {
    let mut bench = with_two_held();
    let wrong = RouterConfig { queue_len_max: 1, lease_ns: 0, ..RouterConfig::default() };
    assert_eq!(bench.router.tune(&wrong), Err(RouterError::Zero { field: "lease_ns" }));
    bench.send(client(), &Ask::id(5).bytes());
    assert_eq!(bench.router.queue_len(), 3);
}
