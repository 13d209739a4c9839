//! Requests of which a Homa server has only a part: what a client that stops, is paused or has
//! something else to send first leaves there, and for how long.

use crate::pair::HomaPair;
use tailcut_proto::homa::{Holdings, Link};
use tailcut_proto::node::Time;
use tailcut_proto::rpc::CallOptions;
use tailcut_sim::impair::Impairment;

const US: Time = 1_000;
const MS: Time = 1_000_000;
const ONCE: CallOptions = CallOptions { idempotent: false, fixed: false, v1: false };

/// Bytes of a request that takes several grants.
const LEN: usize = 600_000;

/// A pair whose client has sent part of a long request, for `sent_ns`, and is paused. Its server
/// waits for answers so long.
fn half_sent(sent_ns: u64, silence_ns: u64) -> HomaPair {
    let path = Impairment { delay_ns: 10 * US, ..Impairment::NONE };
    let mut pair = HomaPair::with_config(path, 1, |_, server| {
        server.recovery.partial_silence_ns_max = silence_ns;
    });
    pair.call(0, LEN, 2_000 * MS, ONCE);
    pair.run_for(sent_ns);
    pair.network().pause(0, 256);
    pair
}

fn partials(pair: &mut HomaPair) -> usize {
    pair.network().node(1).holdings().partials
}

#[test]
fn a_request_whose_client_is_gone_is_released_soon() {
    for sent_ns in [15 * US, 35 * US, 55 * US] {
        let mut pair = half_sent(sent_ns, 50 * MS);
        pair.run_for(40 * MS);
        assert_eq!(partials(&mut pair), 1, "it may only be paused");
        pair.run_for(25 * MS);
        assert_eq!(pair.network().node(1).holdings(), Holdings::default(), "{sent_ns}");
        assert_eq!(pair.server_metrics().partials_expired, 1);
    }
}

/// Each pause costs a few round trips when it is over, and no message.
#[test]
fn a_client_that_stands_still_loses_no_request() {
    for sent_ns in [15 * US, 35 * US, 45 * US, 55 * US] {
        for paused_ms in [5, 40, 60, 100, 400, 1_500] {
            let mut pair = half_sent(sent_ns, 1_000 * MS);
            pair.run_for(paused_ms * MS);
            pair.network().resume(0);
            let resumed_at = pair.now();
            pair.run_to_end(1);
            let outcome = &pair.outcomes[0];
            assert!(outcome.result.is_ok(), "{paused_ms} ms after {sent_ns} ns: {outcome:?}");
            let took_ns = outcome.at - resumed_at;
            assert!(took_ns < 5 * MS, "{paused_ms} ms after {sent_ns} ns: {took_ns} ns");
            assert_eq!(pair.runs, [1]);
        }
    }
}

/// Shorter messages go first at the sender, for as long as there are any.
#[test]
fn a_request_that_its_client_has_put_off_is_kept() {
    let mut pair = HomaPair::with_config(Impairment::NONE, 1, |client, _| {
        let bits_per_second = 100_000_000;
        client.link = Some(Link { bits_per_second, queue_ns_max: 500 * US, bypass_len: 300 });
    });
    pair.call(0, 60_000, 2_000 * MS, ONCE);
    pair.run_for(2 * MS);
    assert_eq!(partials(&mut pair), 1);
    for context in 1..=150 {
        pair.call(context, 30_000, 2_000 * MS, ONCE);
        pair.run_for(2 * MS);
        let first = pair.outcomes.iter().find(|outcome| outcome.context == 0);
        assert_eq!(first, None, "the others go first");
    }
    pair.run_to_end(151);
    assert!(pair.outcomes.iter().all(|outcome| outcome.result.is_ok()));
    assert_eq!(pair.server_metrics().partials_expired, 0);
}
