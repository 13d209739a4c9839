//! Plans whose servers ask for cookies: whatever strangers send, every call is answered, and no
//! other runs.

use std::sync::LazyLock;

use tailcut_proto::r2p2::AskCookies;
use tailcut_sim::faults::family::Family;
use tailcut_sim::faults::plan::Plan;
use tailcut_sim::faults::{Coverage, Invariant, Options, Sabotage, check_plan, run};

use crate::lanes::cover;

/// Coverage of the seeds, or what broke.
static SEEDS: LazyLock<Result<Coverage, String>> = LazyLock::new(|| {
    let check = |seed| check_plan(&Plan::cookies_of_seed(seed), 16, Options::default());
    cover(SEED_COUNT, check, "tailcut sim faults --plan cookies")
});

/// Coverage of the seeds over Homa, or what broke.
static SEEDS_OF_HOMA: LazyLock<Result<Coverage, String>> = LazyLock::new(|| {
    let check = |seed| check_plan(&over_homa(seed), 16, Options::default());
    cover(SEED_COUNT, check, "tailcut sim faults --plan cookies --transport homa")
});

fn over_homa(seed: u64) -> Plan {
    Family::Cookies.of_homa(seed).expect("Homa has cookies")
}

#[test]
fn every_call_is_answered_and_nothing_runs_that_no_client_has_called() {
    let coverage = SEEDS.as_ref().unwrap_or_else(|broken| panic!("{broken}"));
    assert!(coverage.runs > 0);
}

#[test]
fn every_call_over_homa_is_answered_and_nothing_runs_that_no_client_has_called() {
    let coverage = SEEDS_OF_HOMA.as_ref().unwrap_or_else(|broken| panic!("{broken}"));
    assert!(coverage.runs > 0);
}

/// Losses, restarts, pauses and all else that a plan draws, in which every request begins by a
/// cookie.
#[test]
fn every_promise_over_homa_is_kept_under_faults_whatever_is_asked_for_first() {
    let check = |seed| {
        let plan = Plan { cookies: AskCookies::Always, ..Plan::homa_of_seed(seed) };
        check_plan(&plan, 16, Options::default())
    };
    if let Err(broken) = cover(SEED_COUNT, check, "no command runs these plans") {
        panic!("{broken}");
    }
}

#[test]
fn servers_that_ask_nobody_are_found() {
    let options = Options { sabotage: Some(Sabotage::CookiesAreNotAsked), ..Options::default() };
    let mut found = (0..20).filter_map(|seed| run(&Plan::cookies_of_seed(seed), options).violation);
    assert!(found.any(|violation| violation.invariant == Invariant::Proven));
    let mut found = (0..20).filter_map(|seed| run(&over_homa(seed), options).violation);
    assert!(found.any(|violation| violation.invariant == Invariant::Proven));
}

const SEED_COUNT: u64 = 100;
