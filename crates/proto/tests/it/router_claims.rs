//! Requests that may run once and have gone to another router before: claimed of the servers.

use tailcut_proto::node::Node;
use tailcut_proto::router::Speaks;
use tailcut_wire::r2p2::{
    DropReason, Flags, MessageType, Packet, ReplyRepr, RequestRepr, RpcId, Verdict,
};
use zerocopy::IntoBytes;

use super::router_bench::{Ask, Bench, MS, Sent, client, drop_reason, server};

const MOVED: u8 = Flags::RETRANSMIT | Flags::MOVED;

fn bench(count: u16) -> Bench {
    let mut bench = Bench::new(Speaks::Extension, count, |_| {});
    grow_old(&mut bench);
    bench
}

/// The router is up for longer than any request is old, and has not just been paused.
fn grow_old(bench: &mut Bench) {
    bench.now = 970 * MS;
    bench.live(&mut [], 30 * MS);
}

fn moved(id: u64) -> Vec<u8> {
    Ask { flags: MOVED, deadline_us: 500_000, ..Ask::id(id) }.bytes()
}

fn types(sent: &[Sent]) -> Vec<MessageType> {
    sent.iter().map(|sent| Packet::parse(&sent.bytes).unwrap().message_type).collect()
}

/// A server's answer to a CLAIM.
fn claimed(claim: &Sent, verdict: Verdict) -> Vec<u8> {
    let packet = Packet::parse(&claim.bytes).unwrap();
    assert_eq!(packet.message_type, MessageType::Claim);
    let (rid, id) = (packet.rid, packet.rpc_id().unwrap());
    let header = ReplyRepr::control(MessageType::Claimed, rid, id).header();
    [header.as_bytes(), &[verdict as u8]].concat()
}

#[test]
fn it_is_placed_once_all_other_servers_have_renounced_it() {
    let mut bench = bench(4);
    let claims = bench.send(client(), &moved(7));
    assert_eq!(types(&claims), [MessageType::Claim; 3]);
    let body = *Packet::parse(&claims[0].bytes).unwrap().claim().unwrap();
    assert_eq!(body.client_port.get(), client().port());
    for claim in &claims[..2] {
        assert_eq!(bench.send(claim.to, &claimed(claim, Verdict::Renounced)), []);
    }
    let placed = bench.send(claims[2].to, &claimed(&claims[2], Verdict::Renounced));
    assert_eq!(types(&placed), [MessageType::Request]);
    assert!(claims.iter().all(|claim| claim.to != placed[0].to), "the one that was not asked");
    // A copy goes there too.
    assert_eq!(bench.send(client(), &moved(7))[0].to, placed[0].to);
}

#[test]
fn a_server_that_drains_is_asked_and_gets_nothing_new() {
    let mut bench = bench(2);
    bench.router.drain_server(bench.now, server(0)).unwrap();
    // They take turns.
    for id in 7..11 {
        let claims = bench.send(client(), &moved(id));
        assert_eq!((types(&claims), claims[0].to), (vec![MessageType::Claim], server(0)), "{id}");
        let placed = bench.send(server(0), &claimed(&claims[0], Verdict::Renounced));
        assert_eq!((types(&placed), placed[0].to), (vec![MessageType::Request], server(1)));
    }
}

#[test]
fn it_goes_to_the_server_that_has_seen_it() {
    let mut bench = bench(4);
    let claims = bench.send(client(), &moved(7));
    let placed = bench.send(claims[1].to, &claimed(&claims[1], Verdict::Seen));
    assert_eq!((types(&placed), placed[0].to), (vec![MessageType::Request], claims[1].to));
    assert_eq!(bench.send(claims[0].to, &claimed(&claims[0], Verdict::Renounced)), []);
}

#[test]
fn it_is_refused_where_a_server_cannot_tell() {
    let mut bench = bench(2);
    let claims = bench.send(client(), &moved(7));
    let sent = bench.send(claims[0].to, &claimed(&claims[0], Verdict::Uncertain));
    assert_eq!(drop_reason(&sent), DropReason::Uncertain);
}

/// The driver has not taken what is to be sent: the refusal is dropped, and the client asks again.
#[test]
fn a_refusal_that_finds_no_room_to_be_sent_is_dropped_and_counted() {
    let mut bench = Bench::new(Speaks::Extension, 2, |config| config.outbox_len_max = 2);
    grow_old(&mut bench);
    let claims = bench.send(client(), &moved(7));
    for id in 8..10 {
        let Bench { router, now } = &mut bench;
        router.handle_datagram(*now, client().into(), &mut Ask::id(id).bytes());
    }
    let full = bench.metrics().outbox_full;
    let sent = bench.send(claims[0].to, &claimed(&claims[0], Verdict::Uncertain));
    assert_eq!(types(&sent), [MessageType::Request; 2]);
    assert_eq!((bench.metrics().outbox_full, bench.metrics().refused.uncertain), (full + 1, 0));
    // Nothing is left of it.
    assert_eq!(types(&bench.send(client(), &moved(7))), [MessageType::Claim]);
}

#[test]
fn a_server_that_has_not_answered_is_asked_again_when_the_request_comes_again() {
    let mut bench = bench(3);
    let claims = bench.send(client(), &moved(7));
    bench.send(claims[0].to, &claimed(&claims[0], Verdict::Renounced));
    assert_eq!(bench.send(client(), &moved(7)), [], "not at once");
    bench.now += 2 * MS;
    let again = bench.send(client(), &moved(7));
    assert_eq!((again.len(), again[0].to), (1, claims[1].to));
    // Nobody waits for one that never answers: it is released.
    let mut sent = bench.advance(1100 * MS);
    sent.retain(|sent| types(std::slice::from_ref(sent)) == [MessageType::Request]);
    assert_eq!(sent, []);
    assert_eq!(bench.metrics().claims_expired, 1);
}

/// Another router may have placed there what was sent before.
#[test]
fn what_was_sent_before_a_server_was_removed_is_refused() {
    let mut bench = bench(3);
    bench.router.remove_server(bench.now, server(0)).unwrap();
    bench.live(&mut [], 9 * MS);
    let sent = bench.send(client(), &moved(7));
    assert_eq!(drop_reason(&sent), DropReason::Uncertain, "the network may hold it for so long");
    bench.live(&mut [], 2 * MS);
    assert_eq!(types(&bench.send(client(), &moved(8))), [MessageType::Claim]);
    let old = Ask { flags: MOVED, age_ms: 2, ..Ask::id(9) }.bytes();
    assert_eq!(drop_reason(&bench.send(client(), &old)), DropReason::Uncertain);
}

#[test]
fn a_claim_of_which_a_removed_server_has_not_answered_is_uncertain() {
    let mut bench = bench(3);
    let claims = bench.send(client(), &moved(7));
    bench.router.remove_server(bench.now, claims[0].to).unwrap();
    let last = bench.send(claims[1].to, &claimed(&claims[1], Verdict::Renounced));
    assert_eq!(last, []);
    assert_eq!(drop_reason(&bench.send(client(), &moved(7))), DropReason::Uncertain);
}

/// It does not know which servers other routers had before it started.
#[test]
fn what_was_sent_before_the_router_started_is_refused() {
    let mut bench = bench(2);
    let old = Ask { flags: MOVED, age_ms: 990, deadline_us: 5_000_000, ..Ask::id(7) }.bytes();
    assert_eq!(drop_reason(&bench.send(client(), &old)), DropReason::Uncertain);
    let young = Ask { flags: MOVED, age_ms: 989, deadline_us: 5_000_000, ..Ask::id(8) }.bytes();
    assert_eq!(types(&bench.send(client(), &young)), [MessageType::Claim]);
}

#[test]
fn the_only_server_needs_no_claim() {
    let mut bench = bench(1);
    assert_eq!(types(&bench.send(client(), &moved(7))), [MessageType::Request]);
}

/// Refused here, and then perhaps placed by another router.
#[test]
fn one_that_was_refused_or_held_here_before_it_moved_is_claimed() {
    let mut bench = Bench::new(Speaks::Extension, 2, |config| {
        config.policy = "jbsq:1".parse().unwrap();
        config.queue_len_max = 1;
    });
    grow_old(&mut bench);
    for id in 1..=2 {
        assert!(bench.place(&Ask::id(id).bytes()).is_some());
    }
    assert_eq!(bench.send(client(), &Ask::id(3).bytes()), [], "held");
    let sent = bench.send(client(), &Ask::id(4).bytes());
    assert_eq!(drop_reason(&sent), DropReason::Overload);
    for id in 3..=4 {
        assert_eq!(types(&bench.send(client(), &moved(id))), [MessageType::Claim], "{id}");
    }
    assert_eq!(bench.router.queue_len(), 0);
}

#[test]
fn answers_of_strangers_and_to_other_claims_count_nothing() {
    let mut bench = bench(2);
    let claims = bench.send(client(), &moved(7));
    let mut other = claims[0].clone();
    other.bytes[15] ^= 1;
    for (from, bytes) in [
        (client(), claimed(&claims[0], Verdict::Renounced)),
        (server(9), claimed(&claims[0], Verdict::Renounced)),
        (claims[0].to, claimed(&other, Verdict::Renounced)),
    ] {
        assert_eq!(bench.send(from, &bytes), []);
    }
    assert_eq!(bench.metrics().claimed_unmatched, 3);
}

/// A flood of requests that have moved does not become a flood of claims.
#[test]
fn claims_have_a_budget() {
    let mut bench = bench(64);
    let sent: usize = (1..1000).map(|id| bench.send(client(), &moved(id)).len()).sum();
    assert!((3_000..=4_096).contains(&sent), "{sent}");
    assert!(bench.metrics().claims_dropped > 900);
    // It is that of 10 ms.
    bench.now += 9 * MS;
    assert_eq!(bench.send(client(), &moved(1_000)), []);
    bench.now += MS;
    assert_eq!(bench.send(client(), &moved(1_001)).len(), 63);
}

#[test]
fn a_claim_tells_how_old_its_request_is() {
    let mut bench = bench(2);
    let request = Ask { flags: MOVED, age_ms: 5, deadline_us: 500_000, ..Ask::id(7) }.bytes();
    let first = bench.send(client(), &request);
    bench.rest_until(1_020 * MS);
    let again = bench.send(client(), &request);
    for (claim, age_ms) in [(&first[0], 5), (&again[0], 25)] {
        let packet = Packet::parse(&claim.bytes).unwrap();
        assert!(packet.flags().has(Flags::RETRANSMIT));
        assert_eq!(packet.request_header().unwrap().age_ms.get(), age_ms);
    }
    assert_eq!((bench.metrics().claims, bench.metrics().duplicates_held), (1, 1));
}

#[test]
fn a_server_answers_a_claim_once() {
    let mut bench = bench(3);
    let claims = bench.send(client(), &moved(7));
    let answer = claimed(&claims[0], Verdict::Renounced);
    (0..2).for_each(|_| assert_eq!(bench.send(claims[0].to, &answer), []));
    assert_eq!(bench.metrics().claimed_unmatched, 1);
}

#[test]
fn a_cancelled_claim_places_nothing() {
    let mut bench = bench(2);
    let claims = bench.send(client(), &moved(7));
    let cancel = RequestRepr::control(MessageType::Cancel, 0, RpcId(7)).header();
    assert_eq!(bench.send(client(), cancel.as_bytes()), []);
    assert_eq!((bench.metrics().cancelled_held, bench.router.table_len()), (1, 0));
    assert_eq!(bench.send(claims[0].to, &claimed(&claims[0], Verdict::Renounced)), []);
    assert_eq!(bench.metrics().claimed_unmatched, 1);
    // Neither does it expire.
    bench.advance(1_100 * MS);
    assert_eq!(bench.metrics().claims_expired, 0);
}

#[test]
fn a_claimed_request_is_placed_by_its_deadline_only() {
    for (late_ns, placed) in [(499 * MS, 1), (500 * MS, 0)] {
        let mut bench = bench(2);
        let mut fakes = [0, 1].map(crate::router_bench::FakeServer::new);
        let claims = bench.send(client(), &moved(7));
        let [first, second] = &mut fakes;
        bench.live(&mut [first, second], late_ns);
        let sent = bench.send(claims[0].to, &claimed(&claims[0], Verdict::Renounced));
        assert_eq!(sent.len(), placed, "after {late_ns} ns");
        assert_eq!(bench.metrics().claims_placed, placed as u64);
    }
}

/// The chosen server is removed meanwhile.
#[test]
fn a_claim_for_a_removed_server_is_released() {
    let mut bench = bench(2);
    let claims = bench.send(client(), &moved(7));
    let chosen = server(u16::from(claims[0].to == server(0)));
    bench.router.remove_server(bench.now, chosen).unwrap();
    assert_eq!(bench.send(claims[0].to, &claimed(&claims[0], Verdict::Renounced)), []);
    assert_eq!((bench.metrics().claims_placed, bench.router.table_len()), (0, 0));
}

#[test]
fn the_fixed_policy_claims_for_the_first_server() {
    let mut bench = bench(3);
    for id in 7..10 {
        let fixed = Ask { flags: MOVED, is_fixed: true, ..Ask::id(id) }.bytes();
        let mut asked: Vec<_> = bench.send(client(), &fixed).iter().map(|sent| sent.to).collect();
        asked.sort();
        assert_eq!(asked, [server(1), server(2)], "{id}");
    }
}

#[test]
fn servers_take_turns_with_claimed_requests() {
    let mut bench = bench(3);
    let chosen = (7..13).map(|id| {
        let asked: Vec<_> = bench.send(client(), &moved(id)).iter().map(|sent| sent.to).collect();
        (0..3).find(|&index| !asked.contains(&server(index))).expect("one is not asked")
    });
    let chosen: Vec<u16> = chosen.collect();
    assert_eq!(chosen[3..], chosen[..3]);
    let mut first = chosen[..3].to_vec();
    first.sort_unstable();
    assert_eq!(first, [0, 1, 2]);
}

#[test]
fn claims_that_find_no_room_to_be_sent_are_counted() {
    let mut bench = Bench::new(Speaks::Extension, 3, |config| config.outbox_len_max = 2);
    grow_old(&mut bench);
    let Bench { router, now } = &mut bench;
    router.handle_datagram(*now, client().into(), &mut Ask::id(8).bytes());
    let sent = bench.send(client(), &moved(7));
    assert_eq!(types(&sent), [MessageType::Request, MessageType::Claim]);
    assert_eq!(bench.metrics().outbox_full, 1);
}

/// It is the only one left that takes requests, and the others are asked.
#[test]
fn a_claim_is_for_the_server_that_takes_requests_wherever_it_stands() {
    for in_service in 0..3 {
        let mut bench = bench(3);
        let others = (0..3).filter(|&index| index != in_service).map(server);
        let others: Vec<_> = others.collect();
        for &addr in &others {
            bench.router.drain_server(bench.now, addr).unwrap();
        }
        // They take turns.
        for id in 7..10 {
            let asked: Vec<_> =
                bench.send(client(), &moved(id)).iter().map(|sent| sent.to).collect();
            assert_eq!(asked, others, "{id}");
        }
    }
}

#[test]
fn a_claim_wakes_the_router_to_end() {
    let mut bench = Bench::new(Speaks::Extension, 2, |config| {
        config.probe_interval_ns = 100_000 * MS;
    });
    grow_old(&mut bench);
    bench.send(client(), &moved(7));
    assert_eq!(bench.router.poll_timeout(), Some(bench.now + 1_000 * MS));
}

/// Claims that strangers make up cannot take more memory.
#[test]
fn so_many_claims_are_under_way_at_most() {
    let mut bench = bench(2);
    let claims: Vec<Sent> = (1..=4_096).flat_map(|id| bench.send(client(), &moved(id))).collect();
    assert_eq!(claims.len(), 4_096);
    // By the budget there would be more.
    bench.now += 10 * MS;
    assert_eq!(bench.send(client(), &moved(5_000)), []);
    assert_eq!(bench.metrics().claims_dropped, 1);
    assert_eq!(bench.send(claims[0].to, &claimed(&claims[0], Verdict::Renounced)).len(), 1);
    assert_eq!(types(&bench.send(client(), &moved(5_001))), [MessageType::Claim]);
}
