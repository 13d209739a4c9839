//! Properties of several policies, and the helpers of their own tests.

use std::num::NonZeroU32;

use super::*;
use proptest::prelude::*;

pub(super) const OUT: u32 = OUT_OF_SERVICE;

pub(super) fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).unwrap()
}

/// Workers that have reported exactly what they have outstanding.
pub(super) fn loads_of(loads: &[u32]) -> Loads<'_> {
    Loads { outstanding: loads, reported: loads, waiting: loads }
}

pub(super) fn one(worker: u32) -> Placement {
    Placement::One(WorkerId(worker))
}

pub(super) fn two(first: u32, second: u32) -> Placement {
    Placement::Two(WorkerId(first), WorkerId(second))
}

pub(super) fn laedge(slots: u32) -> Laedge {
    Laedge::new(count(slots))
}

/// Places as many requests as there are expected workers, all against the same loads; 99 stands
/// for a hold.
pub(super) fn check_placed(policy: &mut (impl Policy + ?Sized), loads: &[u32], expected: &[u32]) {
    let found: Vec<u32> = (0..expected.len() as u64)
        .map(|random| match policy.place(loads_of(loads), random) {
            Placement::Hold => 99,
            Placement::One(worker) => worker.0,
            Placement::Two(..) => panic!("the policy clones"),
        })
        .collect();
    assert_eq!(found, expected, "loads {loads:?}");
}

/// Each placement comes up in its share of the draws, and no other does. The standard deviation
/// of a count of 60,000 is at most 123, so 750 is six of them.
pub(super) fn check_shares(mut policy: impl Policy, loads: &[u32], expected: &[(Placement, f64)]) {
    const COUNT: u32 = 60_000;
    let mut draws = Draws::new(1);
    let placements: Vec<Placement> =
        (0..COUNT).map(|_| policy.place(loads_of(loads), draws.word())).collect();
    let mut left = COUNT;
    for &(placement, share) in expected {
        let hits = placements.iter().filter(|&&found| found == placement).count() as u32;
        assert!(
            hits.abs_diff((share * f64::from(COUNT)) as u32) < 750,
            "{placement:?} {hits} times, loads {loads:?}"
        );
        left -= hits;
    }
    assert_eq!(left, 0, "other placements than {expected:?}, loads {loads:?}");
}

/// The six ordered pairs of three servers, equally likely.
pub(super) fn all_pairs_of_three() -> [(Placement, f64); 6] {
    [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)]
        .map(|(first, second)| (two(first, second), 1.0 / 6.0))
}

pub(super) fn loads() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(prop_oneof![3 => 0u32..6, 1 => Just(OUT)], 0..20)
}

#[test]
fn nobody_in_service_holds_in_any_text_form() {
    let specs = ["random", "rr", "jsq:1", "jsq:2", "jsq:9", "jbsq:2", "jbsq:2+clone", "laedge"];
    let reporting = ["racksched", "netclone", "netclone+racksched", "laedge:2", "auto-clone"];
    for spec in specs.into_iter().chain(reporting) {
        let mut policy = spec.parse::<PolicySpec>().unwrap().build();
        check_placed(policy.as_mut(), &[OUT, OUT], &[99]);
        check_placed(policy.as_mut(), &[], &[99]);
    }
}

#[test]
fn servers_out_of_service_get_nothing() {
    let pair = [(two(0, 2), 0.5), (two(2, 0), 0.5)];
    check_shares(CClone, &[4, OUT, 4], &pair);
    check_shares(NetClone::new(), &[0, OUT, 0], &pair);
    check_shares(laedge(1), &[0, OUT, 0], &pair);
    check_shares(RackSched, &[4, OUT, 3], &[(one(2), 1.0)]);
}

#[test]
fn the_only_server_in_service_gets_every_request_once() {
    for loads in [&[OUT, 0, OUT][..], &[OUT, 0][..]] {
        check_shares(CClone, loads, &[(one(1), 1.0)]);
        check_shares(NetClone::new(), loads, &[(one(1), 1.0)]);
        check_shares(NetClone::with_racksched(), loads, &[(one(1), 1.0)]);
        check_shares(RackSched, loads, &[(one(1), 1.0)]);
        check_shares(laedge(1), loads, &[(one(1), 1.0)]);
    }
}

#[test]
fn nobody_in_service_holds() {
    for loads in [&[][..], &[OUT, OUT][..]] {
        check_shares(CClone, loads, &[(Placement::Hold, 1.0)]);
        check_shares(NetClone::new(), loads, &[(Placement::Hold, 1.0)]);
        check_shares(RackSched, loads, &[(Placement::Hold, 1.0)]);
        check_shares(laedge(1), loads, &[(Placement::Hold, 1.0)]);
    }
}

/// Result of a policy's file and its line: each entry is built, printed and, unless it is for
/// simulations alone, read back.
#[test]
fn every_entry_of_the_registry_works() {
    let entries: Vec<_> = REGISTRY.iter().copied().flatten().collect();
    for entry in &entries {
        assert_eq!(entries.iter().filter(|other| other.name == entry.name).count(), 1);
        for form in entry.forms {
            let argument = match form.parameter {
                "" => String::new(),
                "auto" => ":auto".to_owned(),
                _ => format!(":{COUNT_MAX}"),
            };
            let plus = entry.name.find('+').filter(|_| !argument.is_empty());
            let (name, suffix) = entry.name.split_at(plus.unwrap_or(entry.name.len()));
            let text = format!("{name}{argument}{suffix}");
            let spec = text.parse::<PolicySpec>();
            assert_eq!(spec.is_ok(), entry.scope != Scope::Simulated, "{text}");
            if let Ok(spec) = spec {
                assert_eq!(spec.to_string(), text);
                assert!(!spec.describe().contains("{}"), "{text}");
                spec.build();
            }
        }
    }
}

/// One file and one line: every file of a policy is listed.
#[test]
fn every_file_is_in_the_registry() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/policy");
    let names = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
    let others =
        ["mod.rs", "draws.rs", "estimator.rs", "held_bounds.rs", "registry.rs", "tests.rs"];
    let policies = names.filter(|name| !others.iter().any(|other| name == other)).count();
    assert_eq!(REGISTRY.len(), policies);
}
