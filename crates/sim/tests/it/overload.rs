//! A queue before workers with more than they can serve.

use tailcut_proto::scheduler::overload::{Order, OverloadConfig};
use tailcut_sim::overload::{Config, Run};

/// A run of four seconds before 16 workers of 1 ms.
fn run(load: f64, deadline_ns: u64, overload: Option<OverloadConfig>) -> Run {
    Config::new(load, deadline_ns, overload).run().unwrap()
}

fn check(load: f64, deadline_ns: u64, goodput_min: f64) {
    let run = run(load, deadline_ns, Some(OverloadConfig::default()));
    assert!(run.goodput >= goodput_min, "{load}: goodput {}", run.goodput);
    let p99_ns = run.sojourns.percentile(0.99);
    assert!(p99_ns <= deadline_ns as f64 / 2.0, "{load}: p99 {p99_ns} ns");
    assert!(run.recovery_ns <= 200_000_000, "{load}: recovery {} ns", run.recovery_ns);
}

const DEADLINES_NS: [u64; 2] = [100_000_000, 1_000_000_000];

#[test]
fn twice_the_load_leaves_the_goodput() {
    DEADLINES_NS.into_iter().for_each(|deadline_ns| check(2.0, deadline_ns, 0.95));
}

#[test]
fn ten_times_the_load_leaves_the_goodput() {
    DEADLINES_NS.into_iter().for_each(|deadline_ns| check(10.0, deadline_ns, 0.95));
}

#[test]
fn a_hundred_times_the_load_leaves_the_goodput() {
    DEADLINES_NS.into_iter().for_each(|deadline_ns| check(100.0, deadline_ns, 0.95));
}

/// The rule is worth something: the plain queue answers late, whatever comes.
#[test]
fn a_plain_queue_collapses() {
    for load in [2.0, 10.0] {
        let plain = run(load, DEADLINES_NS[1], None);
        assert!(plain.goodput < 0.6, "{load}: goodput {}", plain.goodput);
    }
}

/// Nothing that a queue can serve is refused.
#[test]
fn a_load_that_can_be_served_is() {
    for load in [0.5, 0.8, 0.9] {
        let limited = run(load, DEADLINES_NS[1], Some(OverloadConfig::default()));
        let plain = run(load, DEADLINES_NS[1], None);
        assert_eq!(limited.refused, 0.0, "{load}");
        assert_eq!(limited.sojourns.percentile(0.99), plain.sojourns.percentile(0.99), "{load}");
    }
}

#[test]
fn the_newest_first_gains_no_goodput() {
    let newest = OverloadConfig { order: Order::NewestFirst, ..OverloadConfig::default() };
    for load in [2.0, 10.0] {
        let [oldest, newest] = [OverloadConfig::default(), newest]
            .map(|overload| run(load, DEADLINES_NS[1], Some(overload)).goodput);
        assert!((oldest - newest).abs() < 0.02, "{load}: {oldest} and {newest}");
    }
}

/// One client of ten sends twenty times what all workers can serve; the others, who use half of the
/// workers, hardly notice.
#[test]
fn a_flooding_client_leaves_the_others_their_latency() {
    let overload = Some(OverloadConfig::default());
    let config = Config { clients: 10, ..Config::new(0.5, DEADLINES_NS[1], overload) };
    let alone = config.run().unwrap();
    let flooded = Config { load: 20.5, flood: 20.0 / 20.5, ..config }.run().unwrap();
    let (before, after) = (alone.sojourns.percentile(0.99), flooded.others.percentile(0.99));
    assert!(after <= 1.2 * before, "p99 of {before} ns is {after} ns");
    assert_eq!(flooded.others_failed, 0);
}
