//! Reports of a router to a router before it.

use std::net::SocketAddr;

use tailcut_proto::node::Node;
use tailcut_proto::router::Speaks;
use tailcut_wire::r2p2::{
    ClaimBody, FeedbackBody, Flags, MessageType, Packet, RequestRepr, Route, RpcId, Verdict,
};
use zerocopy::IntoBytes;

use super::router_bench::{Ask, Bench, FakeServer, MS, Sent, client, server};

/// Contents of a report: received less concluded, placement seen, waiting, servers, and its flags.
type Report = (u32, u32, u16, u16, u8);

fn upstream() -> SocketAddr {
    SocketAddr::from(([10, 3, 0, 1], 9_000))
}

/// Two servers at a bound of two, and an upstream at any port; up for longer than any request is
/// old.
fn bench() -> Bench {
    let mut bench = young_bench();
    bench.rest_until(1000 * MS);
    bench
}

/// A router that has just started.
fn young_bench() -> Bench {
    Bench::new(Speaks::Extension, 2, |config| {
        config.upstreams = vec![SocketAddr::new(upstream().ip(), 0)];
    })
}

fn probe(placement: u32) -> Vec<u8> {
    let header = RequestRepr::control(MessageType::Probe, 0, RpcId(0)).header();
    [header.as_bytes(), &placement.to_be_bytes()].concat()
}

fn request(id: u64, placement: u32) -> Vec<u8> {
    let mut route = Route { client_port: 7.into(), routed: 1, ..Route::default() };
    (route.client_ip[0], route.client_ip[15]) = (0xfd, 1);
    route.placement = placement.into();
    Ask { route, ..Ask::id(id) }.bytes()
}

fn report(sent: &Sent) -> Report {
    let packet = Packet::parse(&sent.bytes).unwrap();
    let (header, body) = (packet.reply_header().unwrap(), *packet.feedback().unwrap());
    let FeedbackBody { placement_seen, received, concluded, .. } = body;
    let outstanding = received.get().wrapping_sub(concluded.get());
    assert_eq!(u32::from(header.server_load.get()), outstanding);
    (
        outstanding,
        placement_seen.get(),
        header.server_waiting.get(),
        header.detail.get() as u16,
        header.flags,
    )
}

fn only_report(sent: &[Sent]) -> Report {
    let reports: Vec<&Sent> = sent.iter().filter(|sent| sent.to == upstream()).collect();
    assert_eq!(reports.len(), 1, "{sent:?}");
    report(reports[0])
}

#[test]
fn it_tells_the_sum_of_its_servers() {
    let mut bench = bench();
    assert_eq!(only_report(&bench.send(upstream(), &probe(100))), (0, 100, 0, 2, 0));
    let mut servers = [FakeServer::new(0), FakeServer::new(1)];
    for id in 1..7 {
        for sent in bench.send(upstream(), &request(id, 100 + id as u32)) {
            let index = usize::from(sent.to.port() - server(0).port());
            assert_eq!(servers[index].take(&sent.bytes), None);
        }
    }
    // Two at each server, two held.
    assert_eq!(only_report(&bench.send(upstream(), &probe(106))), (6, 106, 2, 2, 0));
    // One ends, one of those held takes its place: one report for both.
    let feedback = servers[0].conclude(1);
    assert_eq!(only_report(&bench.send(server(0), &feedback)), (5, 106, 1, 2, 0));
    let feedback = servers[0].feedback();
    assert_eq!(bench.send(server(0), &feedback), [], "nothing is new");
}

#[test]
fn it_asks_for_nothing_where_it_has_no_server_or_is_to_end() {
    let mut bench = bench();
    bench.send(upstream(), &probe(1));
    bench.router.close();
    assert_eq!(only_report(&bench.send(upstream(), &probe(1))), (0, 1, 0, 2, Flags::STOPPING));
    let mut empty = Bench::new(Speaks::Extension, 0, |config| config.upstreams = vec![upstream()]);
    assert_eq!(only_report(&empty.send(upstream(), &probe(1))), (0, 1, 0, 0, Flags::STOPPING));
}

#[test]
fn a_refusal_is_concluded() {
    let mut bench = Bench::new(Speaks::Extension, 1, |config| {
        (config.upstreams, config.packet_len_max) = (vec![upstream()], 75);
    });
    bench.send(upstream(), &probe(1));
    let sent = bench.send(upstream(), &request(1, 2));
    assert_eq!(only_report(&sent), (0, 2, 0, 1, 0));
}

#[test]
fn a_stranger_is_told_nothing() {
    let mut bench = bench();
    let stranger = SocketAddr::from(([10, 3, 0, 2], 9_000));
    assert_eq!(bench.send(stranger, &probe(1)), []);
    assert_eq!(bench.send(stranger, &claim(1)), []);
    assert_eq!((bench.metrics().probes_stranger, bench.metrics().unexpected), (1, 1));
    let feedback = FakeServer { received: 1, concluded: 1, ..FakeServer::new(0) }.feedback();
    assert_eq!(bench.send(server(0), &feedback), []);
}

fn claim(id: u64) -> Vec<u8> {
    claim_of_age(id, 5)
}

fn claim_of_age(id: u64, age_ms: u16) -> Vec<u8> {
    let mut body = ClaimBody { client_ip: [0; 16], client_port: 7.into() };
    (body.client_ip[0], body.client_ip[15]) = (0xfd, 1);
    let repr = RequestRepr {
        flags: Flags::RETRANSMIT,
        age_ms,
        ..RequestRepr::control(MessageType::Claim, 9, RpcId(id))
    };
    [repr.header().as_bytes(), body.as_bytes()].concat()
}

fn verdict(sent: &[Sent]) -> Verdict {
    assert_eq!((sent.len(), sent[0].to), (1, upstream()));
    let packet = Packet::parse(&sent[0].bytes).unwrap();
    assert_eq!((packet.message_type, packet.rid), (MessageType::Claimed, 9));
    Verdict::from_payload(packet.payload)
}

#[test]
fn what_it_has_renounced_it_never_places() {
    let mut bench = bench();
    for _ in 0..2 {
        assert_eq!(verdict(&bench.send(upstream(), &claim(1))), Verdict::Renounced);
    }
    bench.send(upstream(), &request(1, 5));
    assert_eq!(bench.metrics().forwarded, 0);
    assert_eq!(bench.metrics().refused.uncertain, 1);
}

#[test]
fn what_it_has_it_says() {
    let mut bench = bench();
    bench.send(upstream(), &request(1, 5));
    assert_eq!(verdict(&bench.send(upstream(), &claim(1))), Verdict::Seen);
}

#[test]
fn what_an_earlier_run_may_have_had_is_uncertain() {
    let mut bench = young_bench();
    bench.now = 2 * MS;
    assert_eq!(verdict(&bench.send(upstream(), &claim(1))), Verdict::Uncertain);
    bench.rest_until(1000 * MS);
    assert_eq!(verdict(&bench.send(upstream(), &claim(1))), Verdict::Renounced);
}

/// By what it says of its age, and 10 ms that it may have been under way.
#[test]
fn a_claim_of_what_was_sent_before_this_run_began_is_uncertain() {
    let mut bench = bench();
    for (age_ms, expected) in [(989, Verdict::Renounced), (990, Verdict::Uncertain)] {
        let id = age_ms.into();
        assert_eq!(verdict(&bench.send(upstream(), &claim_of_age(id, age_ms))), expected, "{id}");
    }
}

/// It may have come at any time of a pause: as young as it says when this run had hardly begun.
#[test]
fn a_claim_is_older_by_what_it_may_have_waited_in_the_socket() {
    for (is_paused, expected) in [(true, Verdict::Uncertain), (false, Verdict::Renounced)] {
        let mut bench = young_bench();
        if is_paused {
            bench.now = 80 * MS;
        } else {
            bench.rest_until(80 * MS);
        }
        assert_eq!(verdict(&bench.send(upstream(), &claim(1))), expected, "{is_paused}");
    }
}

/// A router that is told of several servers puts so many times its bound there.
#[test]
fn a_server_that_is_a_router_has_the_bound_of_all_its_servers() {
    let mut bench = Bench::new(Speaks::Extension, 2, |_| {});
    let inner = FakeServer { members: 3, ..FakeServer::new(0) };
    bench.send(server(0), &inner.feedback());
    let placed: Vec<Option<u16>> = (1..10).map(|id| bench.place(&Ask::id(id).bytes())).collect();
    let count = |index| placed.iter().filter(|&&at| at == index).count();
    assert_eq!((count(Some(0)), count(Some(1)), count(None)), (6, 2, 1), "{placed:?}");
}

/// A router that stands for ten servers, and one server alone, with these loads and of them
/// waiting.
fn placed_beside_ten(policy: &str, loads: [(u16, u16); 2]) -> Vec<usize> {
    let mut bench = Bench::new(Speaks::Extension, 2, |config| {
        config.policy = policy.parse().unwrap();
    });
    for (index, (members, (load, waiting))) in (0..).zip([10, 0].into_iter().zip(loads)) {
        let fake = FakeServer { members, load, waiting, ..FakeServer::new(index) };
        bench.send(server(index), &fake.feedback());
    }
    let mut placed = vec![0; 2];
    for id in 1..=20 {
        let ask = Ask { flags: Flags::IDEMPOTENT, ..Ask::id(id) };
        for sent in bench.send(client(), &ask.bytes()) {
            placed[usize::from(sent.to == server(1))] += 1;
        }
    }
    placed
}

#[test]
fn what_a_router_reports_counts_for_each_of_its_servers() {
    assert_eq!(placed_beside_ten("racksched", [(20, 0), (10, 0)]), [20, 0]);
    assert_eq!(placed_beside_ten("racksched", [(20, 0), (1, 0)]), [0, 20]);
    // Both copies of all, while most of the ten have nobody who waits.
    assert_eq!(placed_beside_ten("netclone", [(14, 4), (1, 0)]), [20, 20]);
    let once: usize = placed_beside_ten("netclone", [(16, 6), (1, 0)]).iter().sum();
    assert_eq!(once, 20);
}

#[test]
fn what_upstreams_ask_and_are_told_is_counted() {
    let mut bench = bench();
    let before = bench.metrics();
    (0..2).for_each(|at| drop(bench.send(upstream(), &probe(100 + at))));
    let metrics = bench.metrics();
    assert_eq!(metrics.probes_answered - before.probes_answered, 2);
    assert_eq!(metrics.reports - before.reports, 2);
    assert_eq!(metrics.received - before.received, 2);
}

#[test]
fn a_claim_that_finds_no_room_for_its_answer_is_dropped() {
    let mut bench = Bench::new(Speaks::Extension, 2, |config| {
        (config.upstreams, config.outbox_len_max) = (vec![upstream()], 2);
    });
    bench.rest_until(1000 * MS);
    for id in 1..=3 {
        let Bench { router, now } = &mut bench;
        router.handle_datagram(*now, upstream().into(), &mut claim(id));
    }
    assert_eq!((bench.drain().len(), bench.metrics().outbox_full), (2, 1));
    assert_eq!(verdict(&bench.send(upstream(), &claim(3))), Verdict::Renounced);
}
