//! Cloned calls from end to end in virtual time: through one router and through two, of one packet
//! and of several, with a server that dies, and with the slower copy cancelled.

use tailcut_proto::r2p2::Loser;
use tailcut_proto::rpc::CallOptions;

use crate::proto_router_chain::{Chain, MS, PATH, SERVICE_NS, US, address};

const CALLS: usize = 200;

/// A router that places at random and one that clones, before three servers; and calls one after
/// the other.
fn chain(loser: Loser) -> Chain {
    Chain::with_policies(1, &[3], (["random", "netclone"], loser), PATH)
}

fn idempotent() -> CallOptions {
    CallOptions { idempotent: true, ..CallOptions::default() }
}

/// Makes calls one after the other, all of which are answered.
fn check(chain: &mut Chain) {
    chain.calls(CALLS, 500 * US, idempotent());
    chain.run(20 * MS);
    assert_eq!((chain.replied, &chain.failed), (CALLS as u64, &vec![]));
}

#[test]
fn a_call_runs_at_two_servers_and_is_answered_once() {
    let mut chain = chain(Loser::Runs);
    check(&mut chain);
    assert!(chain.runs.iter().all(|&runs| runs == 2), "{:?}", chain.runs);
    assert_eq!(chain.inner(0).metrics().cloned, CALLS as u64);
    assert_eq!((chain.outer().metrics().cloned, chain.cancelled), (0, 0));
}

/// Both routers would clone: the outer one does, and what it has marked the inner ones place once.
#[test]
fn of_two_routers_on_the_way_one_clones() {
    let policies = ["netclone"; 2];
    let mut chain = Chain::with_policies(1, &[2, 2], (policies, Loser::Runs), PATH);
    check(&mut chain);
    assert_eq!(chain.outer().metrics().cloned, CALLS as u64);
    assert_eq!([0, 1].map(|index| chain.inner(index).metrics().cloned), [0, 0]);
    assert!(chain.runs.iter().all(|&runs| runs == 2), "{:?}", chain.runs);
}

/// Four packets: the first goes to both, the rest to the server that is ready first, and the other
/// is told that it will not come.
#[test]
fn a_long_request_is_cloned_by_its_first_packet() {
    let mut chain = chain(Loser::Runs);
    chain.request_len = 5_000;
    check(&mut chain);
    assert_eq!(chain.inner(0).metrics().cloned, CALLS as u64);
    assert!(chain.runs.iter().all(|&runs| runs == 1), "{:?}", chain.runs);
}

/// Two thirds of the calls have a copy at the server that dies, and none waits for a
/// retransmission.
#[test]
fn a_server_that_dies_with_a_copy_delays_no_call() {
    let mut chain = chain(Loser::Runs);
    chain.calls(20, 500 * US, idempotent());
    let server = chain.outer_count + 1;
    chain.network.set_up(server, false);
    chain.calls(20, 500 * US, idempotent());
    chain.run(20 * MS);
    assert_eq!((chain.replied, &chain.failed), (40, &vec![]));
    let longest = chain.latencies.iter().copied().max();
    assert!(longest < Some(SERVICE_NS + 100 * US), "{longest:?}");
    assert!(chain.runs[20..].iter().filter(|&&runs| runs == 1).count() > 5, "{:?}", chain.runs);
}

/// A server that takes ten times as long as the others is told that nobody waits, if the client
/// says so. A cancel goes no further than to the first router.
#[test]
fn the_slower_copy_is_cancelled_where_the_client_says_so() {
    for (loser, is_told) in [(Loser::Runs, false), (Loser::IsCancelled, true)] {
        let mut chain = chain(loser);
        chain.target = address(1, 0);
        chain.services[0] = 10 * SERVICE_NS;
        chain.calls(CALLS, 2 * MS, idempotent());
        chain.run(20 * MS);
        assert_eq!((chain.replied, &chain.failed), (CALLS as u64, &vec![]));
        assert_eq!(chain.cancelled >= chain.served[0] * 9 / 10, is_told, "{}", chain.cancelled);
        assert_eq!(chain.inner(0).metrics().clones_cancelled > 0, is_told);
        let longest = chain.latencies.iter().copied().max();
        assert!(longest < Some(2 * SERVICE_NS), "{longest:?}");
    }
}
