//! Requests at two servers: where a copy goes.

use tailcut_proto::router::{ServerConfig, ServerState, Speaks};
use tailcut_proto::scheduler::Rank;
use tailcut_wire::r2p2::CloneMark;

use crate::router_bench::{Bench, FakeServer, MS, client, idempotent, server};

/// Two servers, and request 1 at both: the first of them.
fn cloned() -> (Bench, u16) {
    let mut bench = Bench::new(Speaks::Extension, 2, |config| {
        config.policy = "netclone".parse().unwrap();
    });
    let sent = bench.send(client(), &idempotent(1, CloneMark::Single));
    assert_eq!((sent.len(), bench.metrics().cloned), (2, 1));
    let first = sent[0].to.port() - server(0).port();
    (bench, first)
}

#[test]
fn a_cloned_request_that_comes_again_goes_to_a_server_that_answers() {
    for is_first_away in [false, true] {
        let (mut bench, first) = cloned();
        let [mut one, mut other] = [first, 1 - first].map(FakeServer::new);
        match is_first_away {
            true => bench.live(&mut [&mut other], 200 * MS),
            false => bench.live(&mut [&mut one, &mut other], 200 * MS),
        }
        let is_silent = bench.states()[usize::from(first)] == ServerState::Silent;
        assert_eq!(is_silent, is_first_away);
        let expected = if is_first_away { 1 - first } else { first };
        assert_eq!(bench.place(&idempotent(1, CloneMark::Single)), Some(expected));
        assert_eq!(bench.metrics().duplicates_forwarded, 1, "the same copy: {is_first_away}");
    }
}

#[test]
fn a_server_in_the_place_of_a_removed_one_has_no_copy() {
    let (mut bench, first) = cloned();
    bench.router.remove_server(bench.now, server(first)).unwrap();
    let config = ServerConfig { addr: server(9), speaks: Speaks::Extension };
    bench.router.add_server(bench.now, config).unwrap();
    assert_eq!(bench.place(&idempotent(1, CloneMark::Single)), Some(1 - first));
    assert_eq!(bench.metrics().duplicates_forwarded, 1);
}

/// One of twice the weight with three has less to do than another with two.
#[test]
fn a_copy_goes_where_the_fewest_are_for_the_weight() {
    let mut bench = Bench::new(Speaks::Extension, 3, |config| {
        config.policy = "jbsq:8".parse().unwrap();
    });
    let twice = Rank { weight: std::num::NonZeroU8::new(2).unwrap(), is_near: true };
    bench.router.set_rank(bench.now, server(1), twice).unwrap();
    for (index, received) in [(1, 3), (2, 2)] {
        let fake = FakeServer { received, ..FakeServer::new(index) };
        bench.send(server(index), &fake.feedback());
    }
    assert_eq!(bench.outstanding(), [0, 3, 2]);
    assert_eq!(bench.place(&idempotent(1, CloneMark::Single)), Some(0));
    assert_eq!(bench.place(&idempotent(1, CloneMark::Copy)), Some(1));
}
