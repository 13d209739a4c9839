//! Cloned calls under faults: the promises of every plan, and that each call is answered once, that
//! the first reply is never dropped, that what may run once does, and that copies have a budget.

use tailcut_proto::policy::PolicySpec;
use tailcut_sim::faults::plan::Plan;
use tailcut_sim::faults::{Coverage, Effect, Invariant, Options, Sabotage, check_plan, run};

/// Every policy that reads reports or clones.
const POLICIES: [&str; 7] = [
    "racksched",
    "netclone",
    "netclone+racksched",
    "laedge",
    "laedge:3",
    "jbsq:2+clone",
    "auto-clone",
];

/// Seeds that once broke a promise, and the policy: a call whose first send failed counted as none
/// in the budget; a claim's reply was dropped because another server had asked for its token; a
/// router with one slot, which holds for 3 ms, refused one of two calls after all faults; a
/// stranger's request that a router had placed overtook two calls, and the watch did not see it.
const SEEDS_ONCE_BROKEN: [(u64, &str); 4] =
    [(1188, "netclone"), (296, "random"), (751, "laedge"), (90, "jbsq:2+clone")];

/// Seeds of each in a test run; `tailcut sim faults --policy P --seeds 2000` runs more.
const SEEDS: u64 = 24;

fn plan(seed: u64, policy: &str) -> Plan {
    let policy: PolicySpec = policy.parse().unwrap();
    Plan::cloning_of_seed(seed, policy)
}

fn check_kept(plan: impl Fn(u64) -> Plan, what: &str) -> Coverage {
    let mut coverage = Coverage::default();
    for seed in 0..SEEDS {
        let report = check_plan(&plan(seed), 8, Options::default());
        let violation = report.violation.map(|violation| violation.to_string());
        assert_eq!(violation, None, "tailcut sim faults {what} --seed {seed}");
        coverage.add(&report.coverage);
    }
    coverage
}

#[test]
fn every_promise_holds_under_every_policy() {
    let mut all = Coverage::default();
    for policy in POLICIES {
        let coverage = check_kept(|seed| plan(seed, policy), &format!("--policy {policy}"));
        let is_cloning = policy != "racksched";
        assert_eq!(coverage.effects[Effect::Cloned as usize] > 100, is_cloning, "{policy}");
        all.add(&coverage);
    }
    let effects = [
        Effect::Hedged,
        Effect::CloneWon,
        Effect::CloneFiltered,
        Effect::FilteredByRouter,
        Effect::CloneDiscarded,
        Effect::CloneCancelled,
    ];
    for effect in effects {
        assert!(all.effects[effect as usize] > 0, "{effect:?} never happens");
    }
}

#[test]
fn what_once_broke_a_promise_keeps_it() {
    for (seed, policy) in SEEDS_ONCE_BROKEN {
        let violation = run(&plan(seed, policy), Options::default()).violation;
        let violation = violation.map(|violation| violation.to_string());
        assert_eq!(violation, None, "tailcut sim faults --policy {policy} --seed {seed}");
    }
}

#[test]
fn every_promise_holds_where_clients_send_copies() {
    let coverage = check_kept(Plan::client_cloning_of_seed, "--client-clones");
    assert!(coverage.effects[Effect::Hedged as usize] > 100);
    assert!(coverage.effects[Effect::CloneWon as usize] > 0);
}

fn check_found(sabotage: Sabotage, invariant: Invariant) {
    let options = Options { sabotage: Some(sabotage), ..Options::default() };
    let mut reports = (0..20).map(|seed| run(&plan(seed, "netclone"), options));
    let found = reports.find_map(|report| report.violation);
    assert_eq!(found.map(|violation| violation.invariant), Some(invariant), "{sabotage:?}");
}

#[test]
fn a_second_reply_is_found() {
    check_found(Sabotage::SecondReplyIsGiven, Invariant::EndsOnce);
}

#[test]
fn a_first_reply_that_is_dropped_is_found() {
    check_found(Sabotage::FirstReplyIsFiltered, Invariant::FirstReply);
}

#[test]
fn a_filter_that_confuses_calls_is_found() {
    check_found(Sabotage::FilterConfusesCalls, Invariant::FilterKeepsFirst);
}

#[test]
fn a_clone_of_what_may_run_once_is_found() {
    check_found(Sabotage::OnceIsCloned, Invariant::AtMostOnce);
}

#[test]
fn copies_beyond_the_budget_are_found() {
    check_found(Sabotage::CopiesAreUnbounded, Invariant::CloneBudget);
}
