//! Calls between two endpoints over impaired paths, in virtual time.

use crate::pair::{Outcome, Pair};
use tailcut_proto::rpc::CallOptions;
use tailcut_sim::impair::Impairment;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const IDEMPOTENT: CallOptions = CallOptions { idempotent: true, fixed: false, v1: false };
const ONCE: CallOptions = CallOptions { idempotent: false, fixed: false, v1: false };
const V1: CallOptions = CallOptions { idempotent: false, fixed: false, v1: true };

/// `calls` calls of `len` bytes, at most `outstanding` at once; how many were answered, each reply
/// checked.
fn drive(pair: &mut Pair, calls: u64, len: usize, options: CallOptions) -> u64 {
    let outstanding = 16;
    let mut begun = 0;
    while (pair.outcomes.len() as u64) < calls && pair.now() < 7200 * SECOND {
        while begun < calls && begun - (pair.outcomes.len() as u64) < outstanding {
            pair.call(begun, len, SECOND, options);
            begun += 1;
        }
        pair.run_for(MS / 4);
    }
    let expected = |outcome: &Outcome| pair.expected_reply(outcome.context, len);
    let answered = pair.outcomes.iter().filter(|outcome| outcome.result.is_ok());
    answered
        .inspect(|outcome| {
            assert_eq!(outcome.result, Ok(expected(outcome)), "call {}", outcome.context)
        })
        .count() as u64
}

fn check_perfect(len: usize, options: CallOptions) {
    let mut pair = Pair::new(Impairment::default(), 1);
    assert_eq!(drive(&mut pair, 50, len, options), 50, "{len} bytes, {options:?}");
    assert!(pair.runs.iter().all(|&runs| runs == 1));
    let (client, server) = (pair.client_metrics(), pair.server_metrics());
    assert_eq!(
        (client.resent, server.resent, client.timeouts),
        (0, 0, 0),
        "{len} bytes, {options:?}"
    );
}

#[test]
fn a_perfect_path_needs_no_recovery() {
    for options in [ONCE, IDEMPOTENT] {
        for len in [8, 32, 1400, 1401, 2800, 16_800, 100_000, 1_000_000] {
            check_perfect(len, options);
        }
    }
}

#[test]
fn version_1_peers_are_spoken_to_by_their_rules() {
    for len in [8, 32, 1464, 1465, 3000, 100_000, 370_406] {
        check_perfect(len, V1);
    }
}

#[test]
fn a_small_call_is_two_datagrams() {
    let mut pair = Pair::new(Impairment::default(), 1);
    pair.call(0, 32, SECOND, ONCE);
    pair.run_for(10 * MS);
    assert_eq!(pair.statistics().sent, 2);
    assert_eq!(pair.outcomes[0].at, Pair::START + 10_000);
}

#[test]
fn the_largest_message_arrives() {
    let mut pair = Pair::new(Impairment::default(), 1);
    assert_eq!(drive(&mut pair, 1, 8 << 20, ONCE), 1);
}

struct Lossy {
    loss: f64,
    len: usize,
    calls: u64,
    seed: u64,
}

/// The share of idempotent calls that succeed under loss, duplication and reordering; none runs
/// when it may not.
fn check_loss(case: &Lossy, failures_max: u64) {
    let Lossy { loss, len, calls, seed } = *case;
    let impairment = Impairment {
        loss,
        duplicate: 0.01,
        corrupt: 0.0,
        delay_ns: 5000,
        jitter_ns: 20_000,
        ..Impairment::NONE
    };
    let mut pair = Pair::new(impairment, seed);
    let answered = drive(&mut pair, calls, len, IDEMPOTENT);
    let failed = calls - answered;
    assert!(
        failed <= failures_max,
        "loss {loss}, {len} B, seed {seed}: {failed} of {calls} failed"
    );
    assert!(
        pair.runs.iter().all(|&runs| runs <= 1),
        "loss {loss}, {len} B, seed {seed}: a request ran twice"
    );
}

#[test]
fn small_idempotent_calls_survive_loss() {
    for loss in [0.001, 0.01, 0.05, 0.1, 0.3] {
        check_loss(&Lossy { loss, len: 64, calls: 10_000, seed: 11 }, 0);
    }
}

#[test]
fn long_idempotent_calls_survive_loss() {
    for loss in [0.001, 0.01, 0.05, 0.1, 0.3] {
        check_loss(&Lossy { loss, len: 100_000, calls: 2_500, seed: 12 }, 0);
    }
}

#[test]
fn calls_that_are_not_idempotent_never_run_twice_and_survive_loss_too() {
    let impairment = Impairment {
        loss: 0.1,
        duplicate: 0.1,
        corrupt: 0.0,
        delay_ns: 5000,
        jitter_ns: 50_000,
        ..Impairment::NONE
    };
    for (len, calls) in [(64, 5000), (20_000, 300)] {
        let mut pair = Pair::new(impairment, 21);
        let answered = drive(&mut pair, calls, len, ONCE);
        assert!(answered >= calls - calls / 50, "{answered} of {calls}");
        assert!(pair.runs.iter().all(|&runs| runs <= 1));
    }
}

#[test]
fn recovers_a_lost_packet_of_a_long_message_within_two_round_trips() {
    // A round trip of 40 us.
    let quiet = Impairment { delay_ns: 20_000, ..Impairment::default() };
    let span = |impairment, seed| {
        let mut pair = Pair::new(impairment, seed);
        pair.call(0, 100_000, SECOND, ONCE);
        pair.run_to_end(1);
        (pair.statistics().lost, pair.outcomes[0].at - Pair::START)
    };
    let (_, clean) = span(quiet, 5);
    let lossy = Impairment { loss: 0.005, ..quiet };
    let mut spans: Vec<u64> = (0..200)
        .map(|seed| span(lossy, seed))
        .filter(|(lost, _)| *lost == 1)
        .map(|(_, at)| at)
        .collect();
    spans.sort_unstable();
    assert!(spans.len() > 10);
    let median = spans[spans.len() / 2];
    assert!(median <= clean + 2 * 40_000, "{median} ns with one loss, {clean} ns without");
}
