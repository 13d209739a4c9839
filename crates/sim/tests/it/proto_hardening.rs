//! A bad day for a client and a server of R2P2, in virtual time. Each began as a failing test.

use crate::pair::{Handler, Pair};
use tailcut_proto::rpc::CallOptions;
use tailcut_sim::impair::Impairment;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const ONCE: CallOptions = CallOptions { idempotent: false, fixed: false, v1: false };

#[test]
fn one_slow_call_does_not_make_the_server_refuse_the_fast_ones() {
    let mut pair = Pair::new(Impairment::default(), 1);
    pair.handler = Handler { service_ns: 800 * MS, ..Handler::default() };
    pair.call(0, 32, SECOND, ONCE);
    pair.run_for(MS);
    pair.handler = Handler::default();
    for n in 0..20_000u64 {
        pair.call(n + 1, 32, SECOND, ONCE);
        if n % 16 == 15 {
            pair.run_for(20_000);
        }
    }
    pair.run_for(2 * MS);
    let refused = pair.outcomes.iter().filter(|o| o.result.is_err()).count();
    assert_eq!(refused, 0, "at {} ms", (pair.now() - Pair::START) / MS);
}

#[test]
fn a_lost_partial_does_not_hang_the_call() {
    let mut pair = Pair::new(Impairment::default(), 1);
    pair.call(0, 100_000, 30 * SECOND, ONCE);
    pair.run_for(12_000); // packet 0 there and the first ACK back
    pair.network().set_up(0, false);
    pair.run_for(3 * SECOND); // the client's process is stopped: its partial expires
    pair.network().set_up(0, true);
    pair.run_for(10 * SECOND);
    assert!(!pair.outcomes.is_empty(), "nothing in 10 s");
}

#[test]
fn virtual_time_does_not_go_back() {
    let mut pair = Pair::new(Impairment::default(), 1);
    pair.handler.service_ns = 800 * MS;
    pair.call(0, 32, SECOND, ONCE);
    pair.run_for(MS);
    pair.handler.service_ns = MS;
    pair.call(1, 32, SECOND, ONCE);
    pair.run_for(900 * MS);
    let at: Vec<_> = pair.outcomes.iter().map(|o| ((o.at - Pair::START) / MS, o.context)).collect();
    assert_eq!(at, [(2, 1), (800, 0)]);
}
