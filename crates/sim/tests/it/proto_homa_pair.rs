//! Two Homa endpoints over an impaired path: what is promised when packets are lost, doubled,
//! reordered and damaged.

use crate::pair::{Handler, HomaPair, Outcome};
use tailcut_proto::homa::{Adaptive, Config, Cutoffs, GrantPolicy, Link, Pull};
use tailcut_proto::node::Time;
use tailcut_proto::rpc::{CallOptions, Failure};
use tailcut_sim::impair::Impairment;
use tailcut_wire::homa::MESSAGE_LEN_MAX;

const MS: Time = 1_000_000;
const SECOND: Time = 1000 * MS;
const ONCE: CallOptions = CallOptions { idempotent: false, fixed: false, v1: false };

/// Both ends as the simulations of SIGCOMM'18 had them.
fn sigcomm(client: &mut Config, server: &mut Config) {
    for config in [client, server] {
        let secret = config.secret;
        *config =
            Config { secret, ..Config::sigcomm(4, Cutoffs::descending(&[469, 5521, 15_267], 1)) };
    }
}

fn module(_: &mut Config, _: &mut Config) {}

/// Makes `calls` calls, few enough that they do not wait for each other; tells how many were
/// answered, each with its own reply.
fn drive(pair: &mut HomaPair, calls: u64, len: usize, options: CallOptions) -> u64 {
    for context in 0..calls {
        pair.call(context, len, 10 * SECOND, options);
        pair.run_for(MS / 10 + 2 * len as u64);
    }
    pair.run_to_end(calls as usize);
    assert_eq!(pair.outcomes.len() as u64, calls, "every call ends");
    let expected = |outcome: &Outcome| pair.expected_reply(outcome.context, len);
    let answered = pair.outcomes.iter().filter(|outcome| outcome.result.is_ok());
    answered
        .inspect(|outcome| {
            assert_eq!(outcome.result, Ok(expected(outcome)), "call {}", outcome.context)
        })
        .count() as u64
}

fn check_perfect(len: usize, adjust: fn(&mut Config, &mut Config)) {
    let mut pair = HomaPair::with_config(Impairment::default(), 1, adjust);
    assert_eq!(drive(&mut pair, 50, len, ONCE), 50, "{len} bytes");
    assert!(pair.runs.iter().all(|&runs| runs == 1));
    let (client, server) = (pair.client_metrics(), pair.server_metrics());
    let again = [client, server].map(|metrics| {
        (metrics.resent_bytes, metrics.resends, metrics.duplicates, metrics.protocol_violation)
    });
    assert_eq!(again, [(0, 0, 0, 0); 2], "{len} bytes");
}

#[test]
fn a_perfect_path_needs_no_recovery() {
    for adjust in [module, sigcomm] {
        for len in [8, 32, 1396, 1397, 9328, 9329, 40_000, 40_001, 100_000, 1_000_000] {
            check_perfect(len, adjust);
        }
    }
}

#[test]
fn a_small_call_is_two_datagrams() {
    let mut pair = HomaPair::with_config(Impairment::default(), 1, |client, server| {
        sigcomm(client, server);
        // Others are told the cutoffs with what they are to echo.
        server.serving.trusted.push("10.0.0.0/8".parse().expect("a network"));
    });
    pair.call(0, 32, SECOND, ONCE);
    pair.run_for(MS);
    assert_eq!(pair.statistics().sent, 2);
    assert_eq!(pair.outcomes[0].at, HomaPair::START + 10_000);
}

fn check_loss(loss: f64, len: usize, calls: u64, adjust: fn(&mut Config, &mut Config)) {
    let impairment =
        Impairment { loss, duplicate: 0.01, delay_ns: 5000, jitter_ns: 20_000, ..Impairment::NONE };
    let mut pair = HomaPair::with_config(impairment, 11, adjust);
    let answered = drive(&mut pair, calls, len, ONCE);
    assert_eq!(answered, calls, "loss {loss}, {len} B");
    assert!(pair.runs.iter().all(|&runs| runs == 1), "loss {loss}, {len} B: a request ran twice");
    pair.run_for(5 * SECOND);
    for place in 0..2 {
        assert_eq!(
            pair.network().node(place).holdings(),
            Default::default(),
            "loss {loss}, {len} B: nothing is held for ever"
        );
    }
}

#[test]
fn small_calls_survive_loss_and_run_once() {
    for loss in [0.001, 0.01, 0.1, 0.3] {
        check_loss(loss, 64, 2000, module);
    }
}

#[test]
fn long_calls_survive_loss_and_run_once() {
    for loss in [0.001, 0.01, 0.1, 0.3] {
        check_loss(loss, 100_000, 100, module);
        check_loss(loss, 100_000, 100, sigcomm);
    }
}

#[test]
fn a_dead_peer_ends_a_call_before_its_deadline() {
    let mut pair = HomaPair::new(Impairment { loss: 1.0, ..Impairment::default() }, 1);
    pair.call(0, 32, 50 * SECOND, ONCE);
    pair.run_for(4 * SECOND);
    assert!(pair.outcomes.is_empty());
    pair.run_for(2 * SECOND);
    assert_eq!(pair.outcomes[0].result, Err(Failure::Unreachable));
}

/// Homa's own module waits 5 ms; here one lost packet of any kind costs less than 1 ms, and mostly
/// half of it.
#[test]
fn one_lost_packet_costs_less_than_a_millisecond() {
    let quiet = Impairment { delay_ns: 5000, ..Impairment::default() };
    let span = |loss, len, seed| {
        let mut pair = HomaPair::new(quiet, seed);
        // The round trip is known.
        (0..5).for_each(|context| {
            pair.call(context, len, SECOND, ONCE);
            pair.run_for(5 * MS);
        });
        let before = pair.statistics().lost;
        let start = pair.now();
        (0..2).for_each(|place| {
            pair.network().impair(place, Impairment { loss, ..quiet }, seed + place as u64)
        });
        pair.call(9, len, SECOND, ONCE);
        pair.run_to_end(6);
        (pair.statistics().lost - before, pair.outcomes[5].at - start)
    };
    for (len, loss) in [(100, 0.2), (20_000, 0.02), (200_000, 0.003)] {
        let (_, clean) = span(0.0, len, 1);
        let mut spans: Vec<u64> = (0..300)
            .map(|seed| span(loss, len, seed))
            .filter(|span| span.0 == 1)
            .map(|span| span.1)
            .collect();
        spans.sort_unstable();
        assert!(spans.len() > 30, "{len} B: {} runs with one loss", spans.len());
        let (median, worst) = (spans[spans.len() / 2] - clean, spans[spans.len() - 1] - clean);
        assert!(
            median < 500_000 && worst < 1_000_000,
            "{len} B: median {median} ns, at most {worst} ns"
        );
    }
}

#[test]
fn policies_can_differ_at_the_ends() {
    let mut pair = HomaPair::with_config(Impairment::default(), 1, |client, _| {
        client.grants.policy = GrantPolicy::Sigcomm(Pull::default());
    });
    assert_eq!(drive(&mut pair, 20, 200_000, ONCE), 20);
}

/// Long calls as one RPC, and as several of a million bytes.
fn check_long(request_len: usize, reply_len: usize, loss: f64) {
    check_long_of((request_len, reply_len), loss, module);
    check_long_of((request_len, reply_len), loss, in_parts);
}

/// Towards peers that take no more than a million bytes in one RPC.
fn in_parts(client: &mut Config, server: &mut Config) {
    for config in [client, server] {
        config.rpc_len_max = MESSAGE_LEN_MAX;
    }
}

fn check_long_of(
    (request_len, reply_len): (usize, usize),
    loss: f64,
    adjust: fn(&mut Config, &mut Config),
) {
    let impairment = Impairment { loss, delay_ns: 5000, jitter_ns: 5000, ..Impairment::NONE };
    let mut pair = HomaPair::with_config(impairment, 3, adjust);
    pair.handler = Handler { reply_len: Some(reply_len), ..Handler::default() };
    for context in 0..4 {
        pair.call(context, request_len, 10 * SECOND, ONCE);
    }
    pair.run_to_end(4);
    for outcome in &pair.outcomes {
        let expected = pair.expected_reply(outcome.context, request_len);
        assert!(
            outcome.result.as_ref() == Ok(&expected),
            "{request_len} to {reply_len} B, loss {loss}, call {}",
            outcome.context
        );
    }
    assert_eq!((pair.outcomes.len(), &pair.runs[..]), (4, &[1; 4][..]));
    pair.run_for(10 * SECOND);
    for place in 0..2 {
        assert_eq!(
            pair.network().node(place).holdings(),
            Default::default(),
            "{request_len} to {reply_len} B, loss {loss}"
        );
    }
}

#[test]
fn messages_longer_than_a_homa_message_arrive_whole() {
    for (request_len, reply_len) in
        [(1_000_001, 10), (10, 1_000_001), (3_500_000, 2_000_000), (8 << 20, 8 << 20)]
    {
        check_long(request_len, reply_len, 0.0);
    }
}

#[test]
fn long_messages_survive_loss() {
    check_long(2_500_000, 2_500_000, 0.01);
    check_long(1_500_000, 1_500_000, 0.1);
}

/// Bytes that a server keeps for a client have a limit, and each part that is fetched counts
/// besides the whole: what is beyond it waits for what has been fetched.
#[test]
fn long_replies_beyond_what_a_client_may_hold_are_fetched_one_after_the_other() {
    for (calls, adjust) in [3, 5, 12]
        .into_iter()
        .flat_map(|calls| [(calls, in_parts as fn(&mut Config, &mut Config)), (calls, module)])
    {
        let mut pair = HomaPair::with_config(Impairment::default(), 3, |client, server| {
            adjust(client, server);
            server.serving.held_bytes_per_client_max = 10_000_000;
        });
        let reply_len = Some(2_500_000);
        pair.handler = Handler { reply_len, service_ns: MS, ..Handler::default() };
        for context in 0..calls {
            pair.call(context, 100, 10 * SECOND, ONCE);
        }
        pair.run_to_end(calls as usize);
        let failed = pair.outcomes.iter().find(|outcome| outcome.result.is_err());
        assert_eq!(failed, None, "{calls} outstanding");
        pair.run_for(10 * SECOND);
        for place in 0..2 {
            assert_eq!(pair.network().node(place).holdings(), Default::default());
        }
    }
}

#[test]
fn a_long_call_that_is_cancelled_holds_nothing() {
    for (after_ns, adjust) in [20_000, 100_000, 200_000, 330_000].into_iter().flat_map(|after_ns| {
        [(after_ns, in_parts as fn(&mut Config, &mut Config)), (after_ns, module)]
    }) {
        let mut pair = HomaPair::with_config(Impairment::default(), 1, adjust);
        pair.handler =
            Handler { reply_len: Some(5_000_000), service_ns: 300_000, ..Handler::default() };
        let id = pair.call(0, 5_000_000, SECOND, ONCE);
        pair.run_for(after_ns);
        pair.cancel(id);
        pair.run_for(5 * SECOND);
        assert!(pair.outcomes.is_empty());
        for place in 0..2 {
            assert_eq!(
                pair.network().node(place).holdings(),
                Default::default(),
                "after {after_ns} ns, place {place}"
            );
        }
    }
}

#[test]
fn a_long_call_to_nobody_ends_by_its_deadline() {
    let mut pair = HomaPair::new(Impairment { loss: 1.0, ..Impairment::default() }, 1);
    pair.call(0, 5_000_000, 50 * MS, ONCE);
    pair.run_for(60 * MS);
    let results: Vec<_> = pair.outcomes.iter().map(|outcome| outcome.result.clone()).collect();
    assert_eq!(results, [Err(Failure::Deadline)]);
    assert_eq!(pair.network().node(0).holdings(), Default::default());
}

/// The unscheduled bytes of a request take longer to leave than the cutoffs to come, and what is
/// under way when they come was not lost.
#[test]
fn cutoffs_that_cross_data_make_nothing_go_again() {
    let path = Impairment { delay_ns: MS, ..Impairment::NONE };
    let mut pair = HomaPair::with_config(path, 1, |client, server| {
        let bits_per_second = 50_000_000;
        client.link = Some(Link { bits_per_second, queue_ns_max: 5_000, bypass_len: 0 });
        server.serving.trusted.push("10.0.0.0/8".parse().expect("a network"));
    });
    assert_eq!(drive(&mut pair, 1, 60_000, ONCE), 1);
    assert_eq!(pair.server_metrics().cutoffs, 1);
    assert_eq!((pair.client_metrics().resent_bytes, pair.server_metrics().duplicates), (0, 0));
}

/// Seven levels are for unscheduled bytes where nothing needs a grant, and the client hears of it
/// with its next call.
#[test]
fn cutoffs_follow_the_traffic_and_reach_the_client() {
    let mut pair = HomaPair::with_config(Impairment::default(), 1, |_, server| {
        server.priorities.adaptive = Some(Adaptive { messages_min: 100, interval_ns: MS });
    });
    pair.handler = Handler { reply_len: Some(10), ..Handler::default() };
    assert_eq!(drive(&mut pair, 50, 100, ONCE), 50);
    let before = (pair.network().node(1).cutoffs().0.version, pair.server_metrics().cutoffs);
    assert_eq!(before, (1, 1), "the client did not know any");
    for context in 50..200 {
        pair.call(context, 100, SECOND, ONCE);
        pair.run_for(MS / 10);
    }
    let (cutoffs, scheduled_levels) = pair.network().node(1).cutoffs();
    assert_eq!((cutoffs.version, scheduled_levels, pair.server_metrics().cutoffs), (2, 1, 2));
}
