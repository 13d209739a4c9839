//! Plans that look for one kind of trouble: every promise holds, the trouble happens, and bugs that
//! would show in it are found.

use tailcut_sim::faults::family::Family;
use tailcut_sim::faults::plan::{Fault, FaultKind, Plan};
use tailcut_sim::faults::{Coverage, Invariant, Options, Sabotage, check_plan, run};

/// Every promise holds in the plans of so many seeds; what happened in them.
fn check(plan: impl Fn(u64) -> Plan, seeds: u64, flags: &str) -> Coverage {
    let mut coverage = Coverage::default();
    for seed in 0..seeds {
        let report = check_plan(&plan(seed), 16, Options::default());
        let replay = format!("tailcut sim faults --seed {seed} {flags}");
        assert_eq!(report.violation, None, "replay it by `{replay}`");
        coverage.add(&report.coverage);
    }
    coverage
}

/// As [`check`], over Homa.
fn check_homa(family: Family, seeds: u64) -> Coverage {
    let plan = |seed| family.of_homa(seed).expect("a family that Homa has");
    check(plan, seeds, &format!("--plan {family} --transport homa"))
}

fn counted(coverage: &Coverage, name: &str) -> u64 {
    let found = coverage.figures().into_iter().find(|(figure, _)| figure == name);
    found.map_or(0, |(_, count)| count)
}

fn check_found(sabotage: Sabotage, plan: fn(u64) -> Plan, invariant: Invariant) {
    let options = Options { sabotage: Some(sabotage), ..Options::default() };
    let found = (0..40).filter_map(|seed| run(&plan(seed), options).violation);
    let mut found = found.map(|violation| violation.invariant);
    assert!(found.any(|found| found == invariant), "{sabotage:?} is not found by 40 seeds");
}

/// A server whose replies do not arrive is removed as a router dies: what it has run moves to the
/// other router, which cannot ask it.
#[test]
fn what_ran_on_a_removed_server_does_not_run_through_another_router() {
    let plan = |seed| {
        let mut plan = Plan::failover_of_seed(seed);
        let unheard = plan.faults.iter().find_map(|fault| match fault.kind {
            FaultKind::OneWayPartition { from, .. } => Some((fault.at, from)),
            _ => None,
        });
        let (at, host) = unheard.expect("a client does not hear a server");
        let (at, lasts_ns) = (at + 5_000_000, 1_000_000_000);
        plan.faults.push(Fault { at, lasts_ns, kind: FaultKind::Removal { host } });
        plan.loses_nothing = false;
        plan
    };
    let coverage = check(plan, 20, "with its removal");
    assert!(counted(&coverage, "calls.uncertain") > 10);
}

#[test]
fn promises_hold_for_datagrams_that_take_too_long() {
    check(Plan::late_of_seed, 60, "--plan late");
    check_homa(Family::Late, 30);
}

#[test]
fn nothing_is_lost_by_buffers_that_overflow() {
    let coverage = check(Plan::overflow_of_seed, 16, "--plan overflow");
    assert!(counted(&coverage, "effects.dropped_by_switches") > 1_000);
    assert!(counted(&coverage, "effects.overflowed") > 100);
    let coverage = check_homa(Family::Overflow, 8);
    assert!(counted(&coverage, "effects.dropped_by_switches") > 1_000);
}

#[test]
fn what_is_not_sent_again_is_found() {
    check_found(Sabotage::SentAgainIsDropped, Plan::overflow_of_seed, Invariant::NothingLost);
}

#[test]
fn forged_and_stale_reports_of_servers_change_nothing() {
    let coverage = check(Plan::feedback_of_seed, 60, "--plan feedback");
    assert!(counted(&coverage, "faults.hostile") > 100);
}

#[test]
fn a_router_that_believes_any_report_is_found() {
    check_found(Sabotage::ReportsAreBelieved, Plan::feedback_of_seed, Invariant::Bound);
}

/// Work is counted where debug assertions are on.
#[cfg(debug_assertions)]
#[test]
fn a_packet_that_places_all_that_is_held_is_found() {
    check_found(Sabotage::HeldArePlacedAtOnce, Plan::overflow_of_seed, Invariant::Work);
}

#[test]
fn one_flooding_client_leaves_the_others_and_the_servers_their_work() {
    check(Plan::flood_of_seed, 12, "--plan flood");
    check_homa(Family::Flood, 4);
}

#[test]
fn a_queue_without_a_limit_of_time_is_found() {
    check_found(Sabotage::QueueIsPatient, Plan::flood_of_seed, Invariant::Goodput);
}

#[test]
fn clients_without_shares_are_found() {
    check_found(Sabotage::ClientsHaveNoShares, Plan::flood_of_seed, Invariant::Fairness);
}

#[test]
fn streams_carry_every_byte_once_and_in_order() {
    for coverage in
        [check(Plan::streams_of_seed, 60, "--plan streams"), check_homa(Family::Streams, 30)]
    {
        assert!(counted(&coverage, "effects.streams_carried") > 100);
        assert!(counted(&coverage, "effects.streams_failed") > 5);
    }
}

#[test]
fn a_stream_that_is_changed_is_found() {
    check_found(Sabotage::RequestIsChanged, Plan::streams_of_seed, Invariant::InOrder);
}

#[test]
fn a_stream_that_stays_is_found() {
    check_found(Sabotage::RepliesAreKept, Plan::streams_of_seed, Invariant::StreamEnds);
}
