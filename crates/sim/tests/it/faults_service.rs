//! One host that dies: within what times that is seen and over, and that nothing is lost by it.

use tailcut_sim::faults::plan::Plan;
use tailcut_sim::faults::{Invariant, Options, Sabotage, check_plan, run};

/// Every promise holds in the plans of so many seeds; how often something happened in them.
fn check(plan: fn(u64) -> Plan, seeds: u64, figure: &str) -> u64 {
    let mut count = 0;
    for seed in 0..seeds {
        let plan = plan(seed);
        let report = check_plan(&plan, 16, Options::default());
        assert_eq!(report.violation, None, "seed {seed}:\n{plan}");
        let figures = report.coverage.figures();
        count += figures.iter().find(|(name, _)| name == figure).map_or(0, |(_, count)| *count);
    }
    count
}

#[test]
fn calls_with_200_ms_survive_their_router_and_run_once() {
    let moved = check(Plan::failover_of_seed, 60, "effects.moved");
    assert!(moved > 60, "{moved}");
}

#[test]
fn deaths_and_returns_of_servers_are_seen_in_time() {
    let silenced = check(Plan::detection_of_seed, 60, "effects.silenced");
    assert!(silenced >= 60, "{silenced}");
}

fn check_found(sabotage: Sabotage, plan: fn(u64) -> Plan, invariant: Invariant) {
    let options = Options { sabotage: Some(sabotage), ..Options::default() };
    let found = (0..20).filter_map(|seed| run(&plan(seed), options).violation);
    let found: Vec<Invariant> = found.map(|violation| violation.invariant).collect();
    assert!(found.contains(&invariant), "{sabotage:?}: {found:?}");
}

#[test]
fn a_router_that_drops_what_has_moved_is_found() {
    check_found(Sabotage::MovedIsDropped, Plan::failover_of_seed, Invariant::NothingLost);
}

#[test]
fn claims_that_are_ignored_are_found() {
    check_found(Sabotage::ClaimsAreIgnored, Plan::failover_of_seed, Invariant::AtMostOnce);
}

#[test]
fn a_router_that_waits_too_long_for_a_dead_server_is_found() {
    check_found(Sabotage::RouterIsPatient, Plan::detection_of_seed, Invariant::Detects);
}

#[test]
fn a_router_that_does_not_hear_who_is_back_is_found() {
    check_found(Sabotage::RouterIsDeaf, Plan::detection_of_seed, Invariant::Returns);
}
