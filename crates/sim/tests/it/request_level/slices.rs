//! Sliced services. With short slices one worker is shared by all its requests: M/G/1-PS, whose
//! mean sojourn is that of the service over 1 - load, whatever the distribution, and so it is for
//! requests of each length (Kleinrock, Queueing Systems II, section 4.4).

use tailcut_measure::queueing::Sojourn;
use tailcut_sim::queue::{System, SystemError, Typing};

use super::{service, sojourns_ps};

/// First come first served, the long ones would make all wait for 4.5 mean services.
#[test]
fn one_worker_shares_its_time_among_all() {
    let system = System {
        types_ps: vec![2_000_000],
        slice_ps: Some(100_000),
        ..System::new(1, "jbsq:1".parse().unwrap(), service("bimodal:1us:10us:0.9"))
    };
    let run = system.at_load(0.7).for_requests(300_000).run(1).unwrap();
    let expected = 1.0 / (1.0 - 0.7);
    assert!((run.mean() / expected - 1.0).abs() < 0.05, "{} of {expected}", run.mean());
    for (sojourns, service_ps) in run.by_type.iter().zip([1e6, 10e6]) {
        let slowdown = sojourns.mean() / service_ps;
        // A slice of a tenth of the shorter service is not yet none.
        assert!((slowdown / expected - 1.0).abs() < 0.1, "{slowdown} of {expected}");
    }
}

/// A slice that no service fills changes nothing, to the bit.
#[test]
fn a_long_slice_is_none() {
    let system = System::new(4, "jbsq:2".parse().unwrap(), service("uni:2us")).for_requests(20_000);
    let sliced = System { slice_ps: Some(2_000_000), ..system.clone() };
    assert_eq!(sojourns_ps(&sliced, 1), sojourns_ps(&system, 1));
}

/// Two workers have long requests nearly always, behind which a short one waits unless they are
/// sliced.
#[test]
fn short_requests_pass_long_ones() {
    let system = System {
        types_ps: vec![10_000_000],
        ..System::new(16, "jbsq:1".parse().unwrap(), service("bimodal:1us:500us:0.995"))
    };
    let p99_ps = |slice_ps| {
        let system = System { slice_ps, ..system.clone() }.at_load(0.8).for_requests(200_000);
        system.run(1).unwrap().by_type[0].percentile(0.99)
    };
    let (whole, sliced) = (p99_ps(None), p99_ps(Some(5_000_000)));
    assert!(sliced < whole / 5.0, "{sliced} and {whole}");
}

#[test]
fn slices_that_cannot_be_are_refused() {
    let system = System::new(4, "jbsq:1".parse().unwrap(), service("exp:1us"));
    let check = |system: System| assert_eq!(system.check(), Err(SystemError::Slice));
    check(System { slice_ps: Some(999), ..system.clone() });
    check(System { slice_ps: Some(1_000), service: service("exp:2us"), ..system.clone() });
    let sliced = System { slice_ps: Some(100_000), ..system };
    check(System { policy: "random".parse().unwrap(), ..sliced.clone() });
    check(System { deadline_ps: Some(1_000_000), ..sliced.clone() });
    check(System { types_ps: vec![1_000], typing: Typing::Reserved, ..sliced });
}
