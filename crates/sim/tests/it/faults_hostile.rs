//! Hostile plans: whatever strangers send, every call is answered, and bugs that let strangers in
//! are found.

use tailcut_sim::faults::plan::Plan;
use tailcut_sim::faults::{Invariant, Options, Sabotage, check_plan, run};

fn check_served(plan: fn(u64) -> Plan, seeds: u64, flags: &str) {
    for seed in 0..seeds {
        let report = check_plan(&plan(seed), 16, Options::default());
        let replay = format!("tailcut sim faults --plan hostile --seed {seed}{flags}");
        if let Some(violation) = report.violation {
            let traced = run(&plan(seed), Options { trace_len: 60, ..Options::default() });
            panic!("{violation}\n{}\nreplay it by `{replay}`", traced.trace.join("\n"));
        }
        assert!(report.coverage.runs > 0, "{replay}");
    }
}

#[test]
fn every_call_is_answered_whatever_strangers_send() {
    check_served(Plan::hostile_of_seed, 100, "");
}

#[test]
fn every_call_is_answered_whatever_strangers_send_over_homa() {
    check_served(Plan::hostile_homa_of_seed, 40, " --transport homa");
}

fn check_found(sabotage: Sabotage, plan: fn(u64) -> Plan, invariant: Invariant) {
    let options = Options { sabotage: Some(sabotage), ..Options::default() };
    let found = (0..40).find_map(|seed| run(&plan(seed), options).violation);
    let violation = found.unwrap_or_else(|| panic!("{sabotage:?} is not found by 40 seeds"));
    assert_eq!(violation.invariant, invariant, "{sabotage:?}: {violation}");
}

#[test]
fn half_requests_that_hold_slots_are_found() {
    check_found(Sabotage::HalfRequestsHoldSlots, Plan::hostile_of_seed, Invariant::Serves);
}

#[test]
fn strangers_that_are_believed_are_found() {
    check_found(Sabotage::NamedClientsAreBelieved, Plan::hostile_of_seed, Invariant::Amplification);
}

#[test]
fn cancels_of_strangers_that_are_believed_are_found() {
    check_found(Sabotage::CancelsAreBelieved, Plan::hostile_of_seed, Invariant::Serves);
}

#[test]
fn answers_to_strangers_that_are_multiplied_are_found() {
    for plan in [Plan::hostile_of_seed, Plan::hostile_homa_of_seed] {
        check_found(Sabotage::AnswersAreMultiplied, plan, Invariant::Amplification);
    }
}
