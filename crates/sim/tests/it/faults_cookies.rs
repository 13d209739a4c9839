//! Plans whose servers ask for cookies: whatever strangers send, every call is answered, and no other runs.

use std::sync::LazyLock;

use tailcut_sim::faults::plan::Plan;
use tailcut_sim::faults::{Coverage, Invariant, Options, Sabotage, check_plan, run};

use crate::lanes::cover;

/// What the seeds showed, or what broke.
static SEEDS: LazyLock<Result<Coverage, String>> = LazyLock::new(|| {
    let check = |seed| check_plan(&Plan::cookies_of_seed(seed), 16, Options::default());
    cover(SEED_COUNT, check, "tailcut sim faults --plan cookies")
});

#[test]
fn every_call_is_answered_and_nothing_runs_that_no_client_has_called() {
    let coverage = SEEDS.as_ref().unwrap_or_else(|broken| panic!("{broken}"));
    assert!(coverage.runs > 0);
}

#[test]
fn servers_that_ask_nobody_are_found() {
    let options = Options { sabotage: Some(Sabotage::CookiesAreNotAsked), ..Options::default() };
    let mut found = (0..20).filter_map(|seed| run(&Plan::cookies_of_seed(seed), options).violation);
    assert!(found.any(|violation| violation.invariant == Invariant::Proven));
}

const SEED_COUNT: u64 = 100;
