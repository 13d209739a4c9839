//! A warm system allocates nothing for a request.

use allocation_counter::measure;
use tailcut_sim::queue::{System, TieRule};

use super::service;

/// Allocations of a run grow with the longest queue and the widest histogram, both of which are
/// found early. So the run of ten times the requests may have a few doublings more, and not one
/// allocation a thousand requests.
#[test]
fn requests_allocate_nothing() {
    for (policy, ties) in
        [("jbsq:1", None), ("jbsq:2", Some(TieRule::Tokens)), ("jsq:2", None), ("random", None)]
    {
        let system =
            System { ties, ..System::new(16, policy.parse().unwrap(), service("exp:1us")) };
        let allocations = |requests| {
            let system = system.clone().for_requests(requests);
            measure(|| drop(system.run(1).unwrap())).count_total
        };
        let (few, many) = (allocations(100_000), allocations(1_000_000));
        assert!(many < few + 50, "{policy}: {few} allocations, then {many}");
    }
}
