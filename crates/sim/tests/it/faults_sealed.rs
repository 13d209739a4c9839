//! Sealed plans: whatever strangers forge and replay, nothing of it is acted on, and bugs that let
//! it in are found.

use std::ops::Range;
use std::sync::LazyLock;

use tailcut_sim::faults::plan::Plan;
use tailcut_sim::faults::{Coverage, Invariant, Options, Sabotage, check_plan, run};

use crate::lanes::cover;

/// Coverage of the seeds, or what broke.
static SEEDS_OF_HOMA: LazyLock<Result<Coverage, String>> = LazyLock::new(|| {
    let check = |seed| check_plan(&Plan::sealed_homa_of_seed(seed), 16, Options::default());
    cover(SEED_COUNT, check, "tailcut sim faults --plan sealed --transport homa")
});

/// Coverage of the seeds of byte streams, or what broke.
static SEEDS_OF_STREAMS: LazyLock<Result<Coverage, String>> = LazyLock::new(|| {
    let check = |seed| check_plan(&Plan::sealed_streams_of_seed(seed), 16, Options::default());
    cover(SEED_COUNT, check, "tailcut sim faults --plan sealed-streams --transport homa")
});

/// Coverage of the seeds of short calls that go together, or what broke.
static SEEDS_OF_TRAINS: LazyLock<Result<Coverage, String>> = LazyLock::new(|| {
    let check = |seed| check_plan(&Plan::sealed_trains_of_seed(seed), 16, Options::default());
    cover(SEED_COUNT, check, "tailcut sim faults --plan sealed-coalesced")
});

/// Coverage of the seeds of R2P2, or what broke.
static SEEDS: LazyLock<Result<Coverage, String>> = LazyLock::new(|| {
    let check = |seed| check_plan(&Plan::sealed_of_seed(seed), 16, Options::default());
    cover(SEED_COUNT, check, "tailcut sim faults --plan sealed")
});

#[test]
fn nothing_that_strangers_send_is_acted_on_and_every_promise_is_kept() {
    if let Err(broken) = &*SEEDS {
        panic!("{broken}");
    }
}

#[test]
fn of_calls_that_go_together_every_promise_is_kept() {
    let coverage = match &*SEEDS_OF_TRAINS {
        Ok(coverage) => coverage,
        Err(broken) => panic!("{broken}"),
    };
    for kind in ["request_coalesced", "reply_coalesced", "request", "response"] {
        for attack in ["forged", "replayed"] {
            let count = counted(coverage, &format!("{attack}.{kind}"));
            assert!(count > 1_000, "{attack} {kind}: {count}");
        }
    }
}

#[test]
fn nothing_that_strangers_send_over_homa_is_acted_on_and_every_promise_is_kept() {
    if let Err(broken) = &*SEEDS_OF_HOMA {
        panic!("{broken}");
    }
}

#[test]
fn nothing_that_strangers_send_to_streams_is_acted_on_and_every_byte_comes_once_and_in_order() {
    let coverage = match &*SEEDS_OF_STREAMS {
        Ok(coverage) => coverage,
        Err(broken) => panic!("{broken}"),
    };
    assert!(counted(coverage, "effects.streams_carried") > 500);
    assert!(counted(coverage, "effects.streams_failed") > 50);
    for kind in ["request", "reply", "grant", "resend", "question", "cutoffs", "ack"] {
        for attack in ["forged", "replayed"] {
            let count = counted(coverage, &format!("{attack}.homa_{kind}"));
            assert!(count > 100, "{attack} {kind}: {count}");
        }
    }
}

/// Runs in which nothing is forged prove nothing.
#[test]
fn every_type_of_packet_is_forged_and_replayed_and_every_fault_of_seals_happens() {
    // What goes together has plans of its own.
    check_covered(&SEEDS, |name| !name.contains(".homa_") && !name.ends_with("_coalesced"));
}

#[test]
fn every_type_of_packet_of_homa_is_forged_and_replayed_and_every_fault_of_seals_happens() {
    check_covered(&SEEDS_OF_HOMA, |name| {
        name.contains(".homa_")
            || name.ends_with(".no_key")
            || !name.starts_with("forged.") && !name.starts_with("replayed.")
    });
}

/// Is everything of seals that these names concern seen in the seeds?
fn check_covered(seeds: &Result<Coverage, String>, is_concerned: fn(&str) -> bool) {
    let coverage = seeds.as_ref().expect("every promise is kept");
    let is_of_seals = |name: &str| {
        ["forged.", "replayed.", "faults.lost_keys", "faults.wall_clock", "calls.uncertain"]
            .iter()
            .any(|begin| name.starts_with(begin))
    };
    let figures = coverage.figures().into_iter();
    let figures = figures.filter(|(name, _)| is_of_seals(name) && is_concerned(name));
    let rare: Vec<_> = figures.filter(|&(_, count)| count < 5).collect();
    assert!(rare.is_empty(), "{rare:?}");
}

/// Number of times that something was seen.
fn counted(coverage: &Coverage, name: &str) -> u64 {
    let found = coverage.figures().into_iter().find(|(figure, _)| figure == name);
    found.map_or(0, |(_, count)| count)
}

/// Is the bug found by one of these seeds, by this invariant? Where the first is not 0, those
/// before it do not show the bug, and take minutes together.
fn check_found(sabotage: Sabotage, seeds: Range<u64>, invariant: Invariant) {
    check_found_in(Plan::sealed_of_seed, sabotage, (seeds, invariant));
}

/// Checks as [`check_found`] does, with plans of Homa.
fn check_found_over_homa(sabotage: Sabotage, seeds: Range<u64>, invariant: Invariant) {
    check_found_in(Plan::sealed_homa_of_seed, sabotage, (seeds, invariant));
}

fn check_found_in(
    plan: fn(u64) -> Plan,
    sabotage: Sabotage,
    (mut seeds, invariant): (Range<u64>, Invariant),
) {
    let options = Options { sabotage: Some(sabotage), ..Options::default() };
    let breaks = |seed| {
        let violation = run(&plan(seed), options).violation;
        violation.is_some_and(|violation| violation.invariant == invariant)
    };
    assert!(seeds.any(breaks), "{sabotage:?} is not found by {seeds:?}");
}

#[test]
fn bugs_are_found_where_calls_go_together() {
    for (sabotage, invariant) in [
        (Sabotage::SealIsLeftOut, Invariant::NothingForged),
        (Sabotage::DroppedAreAnswered, Invariant::NothingForged),
        (Sabotage::DroppedAreAnswered, Invariant::NothingReplayed),
    ] {
        check_found_in(Plan::sealed_trains_of_seed, sabotage, (0..60, invariant));
    }
}

#[test]
fn bugs_of_sealed_streams_are_found() {
    for (sabotage, invariant) in [
        (Sabotage::SealIsLeftOut, Invariant::NothingForged),
        (Sabotage::DroppedAreAnswered, Invariant::NothingForged),
        (Sabotage::DroppedAreAnswered, Invariant::NothingReplayed),
    ] {
        check_found_in(Plan::sealed_streams_of_seed, sabotage, (0..60, invariant));
    }
    let old = (32..100, Invariant::NothingLost);
    check_found_in(Plan::sealed_streams_of_seed, Sabotage::KeysStayOld, old);
}

#[test]
fn a_server_without_a_seal_is_found() {
    check_found(Sabotage::SealIsLeftOut, 0..40, Invariant::NothingForged);
    check_found_over_homa(Sabotage::SealIsLeftOut, 0..40, Invariant::NothingForged);
}

#[test]
fn an_answer_to_what_is_dropped_is_found() {
    check_found(Sabotage::DroppedAreAnswered, 0..40, Invariant::NothingForged);
    check_found(Sabotage::DroppedAreAnswered, 0..40, Invariant::NothingReplayed);
    check_found_over_homa(Sabotage::DroppedAreAnswered, 0..40, Invariant::NothingForged);
    check_found_over_homa(Sabotage::DroppedAreAnswered, 0..40, Invariant::NothingReplayed);
}

/// Without its name of before, and when it started, a server cannot tell what is older than itself.
#[test]
fn a_server_that_forgets_its_start_is_found() {
    check_found(Sabotage::StartIsLost, 47..400, Invariant::AtMostOnce);
    check_found_over_homa(Sabotage::StartIsLost, 491..1_700, Invariant::AtMostOnce);
    check_found_over_homa(Sabotage::StartIsLost, 0..400, Invariant::NothingReplayed);
}

#[test]
fn a_router_that_keeps_its_name_is_found() {
    check_found(Sabotage::NameIsKept, 0..400, Invariant::AtMostOnce);
}

#[test]
fn keys_that_stay_old_are_found() {
    check_found(Sabotage::KeysStayOld, 0..60, Invariant::Serves);
    check_found_over_homa(Sabotage::KeysStayOld, 0..60, Invariant::Serves);
}

#[test]
fn a_server_that_runs_without_its_keys_is_found() {
    check_found(Sabotage::LostKeysAreKept, 0..400, Invariant::LostKeys);
    check_found_over_homa(Sabotage::LostKeysAreKept, 0..400, Invariant::LostKeys);
}

/// Bugs of answers to requests of whose epoch a node has no key.
#[test]
fn bugs_about_keys_that_are_not_there_are_found() {
    for (sabotage, invariant, first, first_over_homa) in [
        (Sabotage::KeysAreDenied, Invariant::KeysAreThere, 0, 0),
        (Sabotage::AnswersAreBelieved, Invariant::NothingForged, 0, 0),
        (Sabotage::AnswersAreOfAnyCall, Invariant::NothingReplayed, 0, 0),
        (Sabotage::UncertainIsNoKey, Invariant::RefusedHasNotRun, 191, 0),
        (Sabotage::NoKeyNeverEnds, Invariant::EndsOnce, 47, 0),
        (Sabotage::UncertainGoAgain, Invariant::AtMostOnce, 0, 71),
    ] {
        check_found(sabotage, first..1_200, invariant);
        check_found_over_homa(sabotage, first_over_homa..1_200, invariant);
    }
}

/// Uncertain calls go again, where each answer begets a question: it is the datagrams that tell.
/// Earlier seeds show it too, and take longer.
#[test]
fn a_storm_is_found() {
    check_found_over_homa(Sabotage::UncertainGoAgain, 30..60, Invariant::Amplification);
}

#[test]
fn a_server_that_waits_for_who_is_a_day_ahead_is_found() {
    check_found(Sabotage::ClocksAreTrusted, 34..100, Invariant::Clocks);
    check_found_over_homa(Sabotage::ClocksAreTrusted, 0..60, Invariant::Clocks);
}

/// Each has broken a promise once. 78: a stranger sent another server what named nobody, and the
/// client, told its name, asked it for the call by that. 191: a router's answers that taught a
/// client no name were asked for again at once, without end. 76: a call that was refused for want
/// of room ran when there was some. 2166: a router was taken for a server, which then had the call
/// from a stranger. 620284, 631552: what a stranger brought again after it was refused was counted
/// against a router's bound. 703565: a request of before its server was removed and added, brought
/// again, had the server's counts begin anew. 5002050: a call that had moved was lost when its
/// server asked for its token in the middle of its reply. 5004519: the first call of a client that
/// had been idle while its server was replaced went by the name of the former one, and so might
/// have run there.
#[test]
fn seeds_that_found_bugs_stay_fixed() {
    for seed in [76, 78, 126, 191, 2166, 620_284, 631_552, 703_565, 5_002_050, 5_004_519] {
        let report = run(&Plan::sealed_of_seed(seed), Options::default());
        assert_eq!(
            report.violation, None,
            "replay it by `tailcut sim faults --plan sealed --seed {seed}`"
        );
    }
}

/// Seeds of Homa by what they found. 95: a stranger sent a request again that was dropped since its
/// session began in a moment. 1290: a call ended while datagrams left, and its application was not
/// told. 1810: a call that had not gone out was refused for its session. 3636: replies waited for
/// the echo of what their clients had not been told. 6367: a server's answer was passed on as
/// another one's.
#[test]
fn seeds_of_homa_that_found_bugs_stay_fixed() {
    for seed in [95, 1290, 1810, 3636, 6367] {
        let report = run(&Plan::sealed_homa_of_seed(seed), Options::default());
        assert_eq!(
            report.violation, None,
            "replay it by `tailcut sim faults --plan sealed --transport homa --seed {seed}`"
        );
    }
}

const SEED_COUNT: u64 = 240;
