//! Fate of a request: the bytes that go on, the bytes that refuse it, and that it reaches one
//! server only.

use std::net::SocketAddr;

use proptest::prelude::*;
use tailcut_proto::node::{Path, Source, Time};
use tailcut_proto::router::{Forward, Speaks};
use tailcut_wire::r2p2::{
    DropReason, Flags, MessageType, Packet, RequestRepr, Route, RpcId, position,
};
use zerocopy::IntoBytes;

use crate::router_bench::{
    Ask, Bench, FakeServer, MS, Sent, client, drop_reason, hex, route, server, v1_feedback,
    v1_request,
};

fn keep(count: u16) -> Bench {
    Bench::new(Speaks::Extension, count, |config| config.forward = Forward::Keep)
}

fn annotate(count: u16) -> Bench {
    Bench::new(Speaks::Extension, count, |_| {})
}

/// Forwards `ask` and checks that nothing but the 24 bytes of the route has changed, and these to
/// `expected` with the placement that the router chose.
fn check_forwarded(bench: &mut Bench, ask: Ask, (from, expected): (Source, &str)) {
    let bytes = ask.bytes();
    let sent = bench.send(client(), &bytes);
    let placement = route(&sent[0].bytes).placement;
    let written = [&bytes[..48], &hex(expected), placement.as_bytes(), &bytes[72..]].concat();
    assert_eq!(sent, [Sent { to: server(0), from, bytes: written }]);
}

/// A router at two addresses counts as one towards each server, and refuses from where it was
/// asked.
#[test]
fn what_a_router_sends_leaves_from_the_address_that_is_known() {
    let [asked, reported] = [[10, 9, 0, 1], [10, 9, 0, 2]].map(std::net::IpAddr::from);
    let mut bench = annotate(1);
    let from_client = Path { local: Some(asked), peer: client() };
    let mut worker = FakeServer::new(0);
    let first = bench.send(from_client, &Ask::id(1).bytes());
    assert_eq!(first[0].from, Source::Any);
    worker.take(&first[0].bytes);
    bench.send(Path { local: Some(reported), peer: server(0) }, &worker.conclude(1));
    let second = bench.send(from_client, &Ask::id(2).bytes());
    assert_eq!(second[0].from, Source::Local(reported));
    bench.router.remove_server(bench.now, server(0)).unwrap();
    let refused = bench.send(from_client, &Ask::id(3).bytes());
    assert_eq!((refused[0].to, refused[0].from), (client(), Source::Local(asked)));
}

#[test]
fn keep_writes_the_placement_only() {
    check_forwarded(
        &mut keep(1),
        Ask::id(1),
        (Source::Spoofed(client()), &("00".repeat(18) + "0100")),
    );
}

#[test]
fn annotate_writes_the_client_too() {
    check_forwarded(
        &mut annotate(1),
        Ask::id(1),
        (Source::Any, "00000000000000000000ffff0a010001 0fa0 01 00"),
    );
}

#[test]
fn a_client_that_another_router_has_written_stays() {
    let mut route = Route { client_port: 7.into(), ..Route::default() };
    route.client_ip[15] = 1;
    route.client_ip[0] = 0xfd;
    let ask = Ask { route, ..Ask::id(1) };
    let expected = "fd000000000000000000000000000001 0007 01 00";
    for (forward, source) in
        [(Forward::Annotate, Source::Any), (Forward::Keep, Source::Spoofed(client()))]
    {
        let mut bench = Bench::new(Speaks::Extension, 1, |config| {
            (config.forward, config.upstreams) = (forward, vec![client()]);
        });
        check_forwarded(&mut bench, ask, (source, expected));
    }
}

#[test]
fn a_client_that_a_stranger_has_written_is_not_believed() {
    let route = Route { client_port: 7.into(), client_ip: [9; 16], ..Route::default() };
    let ask = Ask { route, ..Ask::id(1) };
    let own = "00000000000000000000ffff0a010001 0fa0 01 00";
    check_forwarded(&mut annotate(1), ask, (Source::Any, own));
    let none = "00000000000000000000000000000000 0000 01 00";
    check_forwarded(&mut keep(1), ask, (Source::Spoofed(client()), none));
}

#[test]
fn placements_rise_by_one() {
    let mut bench = annotate(1);
    let [first, second] = [1, 2]
        .map(|id| route(&bench.send(client(), &Ask::id(id).bytes())[0].bytes).placement.get());
    assert_eq!(second, first.wrapping_add(1));
}

#[test]
fn a_version_1_request_is_kept_to_the_byte() {
    let sent = keep(1).send(client(), &v1_request(5));
    assert_eq!(
        sent,
        [Sent { to: server(0), from: Source::Spoofed(client()), bytes: v1_request(5) }]
    );
}

#[test]
fn a_version_1_request_cannot_be_annotated() {
    let mut bench = annotate(1);
    let sent = bench.send(client(), &v1_request(5));
    assert_eq!(
        sent,
        [Sent { to: client(), from: Source::Any, bytes: hex("cc0841c00005000144524f50") }]
    );
    assert_eq!(bench.metrics().refused.v1_annotate, 1);
}

/// A router that holds requests to their deadlines.
fn patient() -> Bench {
    Bench::new(Speaks::Extension, 1, |config| config.overload.deadline_divisor = 1)
}

#[test]
fn the_deadline_shrinks_by_the_time_held() {
    let mut bench = patient();
    let mut fake = FakeServer::new(0);
    for id in 1..3 {
        fake.take(&bench.send(client(), &Ask::id(id).bytes())[0].bytes);
    }
    let ask = Ask { deadline_us: 900, ..Ask::id(3) };
    assert_eq!(bench.place(&ask.bytes()), None);
    bench.advance(250_900);
    let sent = bench.send(server(0), &fake.conclude(1));
    assert_eq!(
        Packet::parse(&sent[0].bytes).unwrap().request_header().unwrap().deadline_us.get(),
        650
    );
}

/// A router whose only server is at its bound.
fn full(bench: &mut Bench) {
    assert_eq!([901, 902].map(|id| bench.place(&Ask::id(id).bytes())), [Some(0), Some(0)]);
}

#[test]
fn a_held_request_expires_at_its_deadline() {
    let mut bench = patient();
    full(&mut bench);
    bench.place(&Ask { deadline_us: 500, ..Ask::id(3) }.bytes());
    assert_eq!(bench.router.status().queue_len, 1);
    assert_eq!(bench.advance(499_999), []);
    assert_eq!(drop_reason(&bench.advance(1)), DropReason::Expired);
}

#[test]
fn a_held_request_expires_after_the_longest_hold() {
    let mut bench = Bench::new(Speaks::Extension, 1, |config| config.hold_ns_max = MS / 2);
    full(&mut bench);
    bench.place(&Ask::id(3).bytes());
    assert_eq!(bench.advance(MS / 2 - 1), [], "a share of the deadline, not of the longest hold");
    assert_eq!(drop_reason(&bench.advance(1)), DropReason::Expired);
}

/// So that an answer comes within half of the deadline.
#[test]
fn a_request_is_held_for_a_quarter_of_its_deadline() {
    let mut bench = annotate(1);
    full(&mut bench);
    bench.place(&Ask { deadline_us: 400, ..Ask::id(3) }.bytes());
    assert_eq!(bench.advance(99_999), []);
    assert_eq!(drop_reason(&bench.advance(1)), DropReason::Overload);
    assert_eq!(bench.metrics().refused.overload, 1);
}

/// The queue is not empty for an interval, so it stands: who comes now waits for the target.
#[test]
fn a_request_waits_for_the_target_where_the_queue_stands() {
    let mut bench = Bench::new(Speaks::Extension, 1, |config| {
        (config.overload.interval_ns, config.overload.target_ns) = (MS, MS / 4);
    });
    full(&mut bench);
    bench.place(&Ask { deadline_us: 1_000_000, ..Ask::id(3) }.bytes());
    bench.advance(MS);
    bench.place(&Ask { deadline_us: 1_000_000, ..Ask::id(4) }.bytes());
    let refused = |sent: Vec<Sent>| sent.iter().any(|sent| sent.to == client());
    assert!(!refused(bench.advance(MS / 4 - 1)));
    assert!(refused(bench.advance(1)));
    assert_eq!(bench.router.queue_len(), 1);
}

fn long_ask(id: u64, routed: u8) -> Vec<u8> {
    let route = Route { routed, ..Route::default() };
    Ask { deadline_us: 1_000_000, route, ..Ask::id(id) }.bytes()
}

/// A router that keeps clients' addresses, where one request leaves in a millisecond and five wait.
fn with_five_waiting() -> Bench {
    let mut bench = keep(1);
    let mut fake = FakeServer::new(0);
    for id in 1..=10 {
        let sent = bench.send(client(), &long_ask(id, 0));
        sent.iter().for_each(|sent| assert_eq!(fake.take(&sent.bytes), None));
    }
    for _ in 0..3 {
        bench.advance(MS);
        let sent = bench.send(server(0), &fake.conclude(1));
        sent.iter().for_each(|sent| assert_eq!(fake.take(&sent.bytes), None));
    }
    assert_eq!(bench.router.queue_len(), 5);
    bench
}

/// Several routers may be on the way, which the second cannot see where the first keeps the client
/// as the source.
#[test]
fn the_first_router_alone_tells_unasked_that_it_holds_a_request() {
    let mut bench = with_five_waiting();
    let is_told = |sent: Vec<Sent>| {
        let packets = sent.iter().map(|sent| Packet::parse(&sent.bytes).unwrap());
        packets.filter(|packet| packet.flags().has(Flags::HELD)).count() == 1
    };
    assert!(is_told(bench.send(client(), &long_ask(11, 0))));
    assert_eq!(bench.send(client(), &long_ask(12, 1)), []);
    assert!(is_told(bench.send(client(), &long_ask(12, 1))), "it has come again");
    assert_eq!(bench.metrics().told_held, 2);
}

#[test]
fn a_client_is_told_for_how_long_its_request_is_likely_to_wait() {
    let told = with_five_waiting().send(client(), &long_ask(11, 0));
    let packet = Packet::parse(&told[0].bytes).unwrap();
    let wait_ns = u64::from(packet.reply_header().unwrap().detail.get());
    assert!((4 * MS..=8 * MS).contains(&wait_ns), "{wait_ns}");
}

#[test]
fn a_full_queue_refuses_with_these_bytes() {
    let mut bench = Bench::new(Speaks::Extension, 1, |config| config.queue_len_max = 1);
    full(&mut bench);
    assert_eq!(bench.place(&Ask::id(3).bytes()), None);
    let sent = bench.send(client(), &Ask::id(0x0102_0304_0506_0708).bytes());
    let expected = "cc3041c007080001 0102030405060708 00000000 00 01 0000 00000000 00000000 0000000000000000 000003e8 0000 0000 01";
    assert_eq!(sent, [Sent { to: client(), from: Source::Any, bytes: hex(expected) }]);
}

#[test]
fn a_version_1_request_is_refused_with_these_bytes() {
    let mut bench = Bench::new(Speaks::V1, 0, |config| config.forward = Forward::Keep);
    let sent = bench.send(client(), &v1_request(0x1234));
    assert_eq!(
        sent,
        [Sent { to: client(), from: Source::Any, bytes: hex("cc0841c01234000144524f50") }]
    );
}

#[test]
fn the_fixed_policy_takes_the_first_server_past_its_bound() {
    let mut bench = annotate(2);
    let placed: Vec<_> =
        (1..5).map(|id| bench.place(&Ask { is_fixed: true, ..Ask::id(id) }.bytes())).collect();
    assert_eq!(placed, [Some(0); 4]);
    assert_eq!((bench.metrics().fixed, bench.metrics().fixed_past_bound), (4, 2));
}

#[test]
fn the_fixed_policy_knows_no_other_server() {
    let mut bench = annotate(2);
    bench.router.drain_server(0, server(0)).unwrap();
    let sent = bench.send(client(), &Ask { is_fixed: true, ..Ask::id(1) }.bytes());
    assert_eq!(drop_reason(&sent), DropReason::NoServer);
}

#[test]
fn the_same_id_goes_to_the_same_server() {
    let mut bench = annotate(3);
    assert_eq!(bench.place(&Ask::id(1).bytes()), Some(0));
    assert_eq!(bench.place(&Ask::id(2).bytes()), Some(1));
    assert_eq!(bench.place(&Ask::id(1).bytes()), Some(0));
    assert_eq!(bench.place(&Ask { flags: Flags::RETRANSMIT, ..Ask::id(1) }.bytes()), Some(0));
    assert_eq!(bench.outstanding(), [3, 1, 0]);
}

#[test]
fn the_same_id_while_held_is_dropped() {
    let mut bench = annotate(1);
    full(&mut bench);
    assert_eq!([3, 3].map(|id| bench.place(&Ask::id(id).bytes())), [None, None]);
    assert_eq!((bench.router.status().queue_len, bench.metrics().duplicates_held), (1, 1));
}

#[test]
fn an_id_is_forgotten_when_no_copy_of_it_can_come_any_more() {
    let mut bench = annotate(2);
    let ask = Ask { deadline_us: 100, ..Ask::id(1) };
    assert_eq!(bench.place(&ask.bytes()), Some(0));
    // And the time between two probes: a router that has nothing to do may as well be paused.
    bench.advance(100_000 + 20 * MS);
    assert_eq!(bench.place(&ask.bytes()), Some(1));
}

/// A retransmission to a server that is out: refused, unless it may run twice.
fn check_again(flags: u8) -> Vec<Sent> {
    let mut bench = annotate(2);
    let mut other = FakeServer::new(1);
    assert_eq!(bench.place(&Ask { flags, ..Ask::id(1) }.bytes()), Some(0));
    bench.live(&mut [&mut other], 70 * MS);
    bench.send(client(), &Ask { flags: flags | Flags::RETRANSMIT, ..Ask::id(1) }.bytes())
}

#[test]
fn again_to_a_silent_server_stays_with_it_when_it_may_run_once() {
    assert_eq!(check_again(0)[0].to, server(0));
}

#[test]
fn again_to_a_silent_server_moves_when_idempotent() {
    assert_eq!(check_again(Flags::IDEMPOTENT)[0].to, server(1));
}

#[test]
fn a_full_table_forwards_idempotent_requests_only() {
    let mut bench = Bench::new(Speaks::Extension, 2, |config| config.table_len_max = 1);
    assert_eq!(bench.place(&Ask::id(1).bytes()), Some(0));
    assert_eq!(bench.place(&Ask { flags: Flags::IDEMPOTENT, ..Ask::id(2) }.bytes()), Some(1));
    assert_eq!(drop_reason(&bench.send(client(), &Ask::id(3).bytes())), DropReason::Overload);
}

#[test]
fn a_retransmission_of_what_was_sent_before_the_router_started_is_uncertain() {
    let mut bench = Bench::new(Speaks::Extension, 2, |config| config.transit_ns_max = 10 * MS);
    let again = |id| Ask { flags: Flags::RETRANSMIT, ..Ask::id(id) }.bytes();
    assert_eq!(drop_reason(&bench.send(client(), &again(1))), DropReason::Uncertain);
    assert_eq!(bench.place(&Ask::id(2).bytes()), Some(0));
    assert_eq!(bench.place(&again(2)), Some(0));
    assert_eq!(
        bench.place(&Ask { flags: Flags::RETRANSMIT | Flags::IDEMPOTENT, ..Ask::id(3) }.bytes()),
        Some(1)
    );
    bench.advance(11 * MS);
    assert_eq!(bench.place(&again(1)), Some(1));
}

/// Requests from addresses that nobody hears, with the longest deadlines, fill the table for less
/// than a second. What may be a copy of one that has expired is not placed again.
#[test]
fn strangers_fill_the_table_for_a_moment_only() {
    let mut bench = Bench::new(Speaks::Extension, 2, |config| {
        config.table_len_max = 64;
        config.policy = "rr".parse().unwrap();
        (config.silent_ns, config.silent_ns_max) = (10_000 * MS, 10_000 * MS);
    });
    bench.rest_until(1000 * MS);
    let stranger = |place: u8| SocketAddr::from(([10, 9, place, 1], 9));
    for place in 0..70 {
        bench.send(stranger(place), &Ask { deadline_us: 60_000_000, ..Ask::id(7) }.bytes());
    }
    assert_eq!(drop_reason(&bench.send(client(), &Ask::id(1).bytes())), DropReason::Overload);
    bench.rest_until(1400 * MS);
    (0..2).for_each(|id| assert!(bench.place(&Ask::id(10 + id).bytes()).is_some()));
    let again = |id, age_ms| Ask { flags: Flags::RETRANSMIT, age_ms, ..Ask::id(id) }.bytes();
    assert!(bench.place(&again(20, 200)).is_some(), "its first copy would still be known");
    assert_eq!(drop_reason(&bench.send(client(), &again(21, 400))), DropReason::Uncertain);
    let known = bench.place(&Ask::id(10).bytes());
    assert_eq!((known.is_some(), bench.metrics().duplicates_forwarded), (true, 1));
}

fn cancel(id: u64) -> Vec<u8> {
    RequestRepr::control(MessageType::Cancel, 0, RpcId(id)).header().as_bytes().to_vec()
}

#[test]
fn a_cancel_takes_a_held_request_out() {
    let mut bench = annotate(1);
    full(&mut bench);
    bench.place(&Ask::id(3).bytes());
    assert_eq!(bench.send(client(), &cancel(3)), []);
    assert_eq!((bench.router.status().queue_len, bench.metrics().cancelled_held), (0, 1));
}

#[test]
fn a_cancel_follows_a_placed_request() {
    let mut bench = annotate(2);
    bench.place(&Ask::id(1).bytes());
    bench.place(&Ask::id(2).bytes());
    assert_eq!(
        bench.send(client(), &cancel(2)),
        [Sent { to: server(1), from: Source::Any, bytes: cancel(2) }]
    );
}

#[test]
fn a_cancel_by_another_client_does_nothing() {
    let mut bench = annotate(1);
    bench.place(&Ask::id(1).bytes());
    let stranger: SocketAddr = "10.1.0.2:4000".parse().unwrap();
    assert_eq!(bench.send(stranger, &cancel(1)), []);
    assert_eq!(bench.metrics().cancels_unknown, 1);
}

#[test]
fn a_request_without_room_for_the_route_is_malformed() {
    let mut bench = annotate(1);
    let mut bytes = Ask::id(1).bytes();
    bytes.drain(48..72);
    bytes[1] = 48;
    assert_eq!(bench.send(client(), &bytes), []);
    assert_eq!(bench.metrics().malformed.no_route, 1);
}

#[test]
fn a_route_to_nowhere_is_malformed() {
    let mut bench = Bench::new(Speaks::Extension, 1, |config| config.upstreams = vec![client()]);
    let route = Route { client_port: 7.into(), ..Route::default() };
    assert_eq!(bench.send(client(), &Ask { route, ..Ask::id(1) }.bytes()), []);
    assert_eq!(bench.metrics().malformed.client_address, 1);
}

#[test]
fn packets_after_the_first_are_not_the_routers() {
    let mut bench = keep(1);
    assert_eq!(bench.send(client(), &hex("cc0800400001000131323334")), []);
    assert_eq!(bench.metrics().not_first, 1);
}

#[test]
fn a_datagram_above_the_limit_is_refused() {
    let mut bench = Bench::new(Speaks::Extension, 1, |config| config.packet_len_max = 75);
    assert_eq!(drop_reason(&bench.send(client(), &Ask::id(1).bytes())), DropReason::TooLarge);
}

#[test]
fn a_driver_that_does_not_drain_loses_requests_and_no_more() {
    let mut bench = Bench::new(Speaks::Extension, 1, |config| config.outbox_len_max = 2);
    for id in 1..6 {
        let path = client().into();
        tailcut_proto::node::Node::handle_datagram(
            &mut bench.router,
            0,
            path,
            &mut Ask::id(id).bytes(),
        );
    }
    assert_eq!(bench.metrics().outbox_full, 3);
    assert_eq!(bench.advance(MS).len(), 3, "two requests and the probe that waited");
}

/// Bytes that are nearly packets: a valid one of some kind, cut and with a few bytes changed.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let valid = prop_oneof![
        (0u64..8, any::<u8>(), 0u32..3_000).prop_map(|(id, flags, deadline_us)| Ask {
            flags,
            deadline_us,
            ..Ask::id(id)
        }
        .bytes()),
        (0u64..8).prop_map(|id| Ask { is_fixed: true, ..Ask::id(id) }.bytes()),
        (0u64..8).prop_map(cancel),
        any::<u16>().prop_map(v1_request),
        Just(v1_feedback()),
        (any::<u8>(), any::<u32>(), 0u32..9, 0u32..9).prop_map(
            |(epoch, seen, received, concluded)| {
                FakeServer {
                    addr: server(0),
                    epoch: u32::from(epoch % 3),
                    seen,
                    received,
                    concluded,
                    load: 0,
                    waiting: 0,
                    flags: 0,
                    members: 0,
                }
                .feedback()
            }
        ),
        proptest::collection::vec(any::<u8>(), 0..100),
    ];
    (valid, proptest::collection::vec((any::<usize>(), any::<u8>()), 0..3), any::<usize>(), 0u8..8)
        .prop_map(|(mut bytes, edits, cut, is_cut)| {
            let len = bytes.len();
            for (at, byte) in edits.into_iter().filter(|_| len > 0) {
                bytes[at % len] = byte;
            }
            if is_cut == 0 {
                bytes.truncate(cut % (bytes.len() + 1));
            }
            bytes
        })
}

fn is_request(bytes: &[u8]) -> bool {
    Packet::parse(bytes).is_ok_and(|packet| packet.message_type == MessageType::Request)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// No panic, no answer above three times its cause to whom it came from (what feedback releases
    /// of to its own server is no answer), at most the bound placed by the policy, and every
    /// request accounted for.
    #[test]
    fn garbage_is_survived(
        steps in proptest::collection::vec((nearly(), 0u16..5, 0u64..20), 1..120),
        policy in proptest::sample::select(vec!["random", "rr", "jsq:2", "jbsq:2", "jbsq:auto"]),
        forward in proptest::sample::select(vec![Forward::Keep, Forward::Annotate]),
    ) {
        let mut bench = Bench::new(Speaks::Extension, 2, |config| {
            config.policy = policy.parse().unwrap();
            config.forward = forward;
            config.queue_len_max = 3;
            config.table_len_max = 5;
            config.servers.push(tailcut_proto::router::ServerConfig { addr: server(2), speaks: Speaks::V1 });
        });
        for (bytes, from, wait) in steps {
            let peer = if from < 3 { server(from) } else { client() };
            let before = bench.metrics().refused.total();
            let sent = bench.send(peer, &bytes);
            let refused = bench.metrics().refused.total() - before;
            let is_answer = |sent: &&Sent| sent.to == peer && !(from < 3 && is_request(&sent.bytes));
            let back: usize = sent.iter().filter(is_answer).map(|sent| sent.bytes.len()).sum();
            prop_assert!(refused > 1 || back <= 3 * bytes.len());
            prop_assert!(sent.iter().all(|sent| Packet::parse(&sent.bytes).is_ok()));
            bench.advance(wait * MS / 4);
        }
        let metrics = bench.metrics();
        prop_assert_eq!(metrics.outbox_full, 0);
        prop_assert!(metrics.malformed.total() <= metrics.received);
        prop_assert!(bench.router.status().queue_len <= 6);
    }

    /// Whatever is lost or repeated, a request that is not idempotent reaches one server only
    /// before its deadline.
    #[test]
    fn at_most_one_server(steps in proptest::collection::vec((0u64..12, any::<bool>(), 0u64..8), 1..150)) {
        let mut bench = Bench::new(Speaks::Extension, 3, |config| config.queue_len_max = 4);
        let mut fakes = [0, 1, 2].map(FakeServer::new);
        let mut reached = std::collections::BTreeMap::new();
        for (id, is_taken, wait) in steps {
            let mut sent = bench.send(client(), &Ask::id(id).bytes());
            sent.extend(bench.advance(wait * MS / 8));
            while let Some(datagram) = sent.pop() {
                let packet = Packet::parse(&datagram.bytes).unwrap();
                if packet.message_type == MessageType::Request {
                    let server = *reached.entry(packet.rpc_id()).or_insert(datagram.to);
                    prop_assert_eq!(server, datagram.to);
                }
                let Some(fake) = fakes.iter_mut().find(|fake| fake.addr == datagram.to && is_taken) else { continue };
                let feedback = fake.take(&datagram.bytes).unwrap_or_else(|| fake.conclude(1));
                sent.extend(bench.send(datagram.to, &feedback));
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let run = || {
        let mut bench =
            Bench::new(Speaks::Extension, 5, |config| config.policy = "random".parse().unwrap());
        let mut sent: Vec<Sent> =
            (0..50).flat_map(|id| bench.send(client(), &Ask::id(id).bytes())).collect();
        sent.extend(bench.advance(40 * MS));
        sent
    };
    assert_eq!(run(), run());
}

#[test]
fn requests_to_one_server_leave_as_one_batch() {
    let mut bench = annotate(1);
    for id in 1..3 {
        let path = client().into();
        tailcut_proto::node::Node::handle_datagram(
            &mut bench.router,
            0,
            path,
            &mut Ask::id(id).bytes(),
        );
    }
    let mut buffer = [0; 2_000];
    let transmit =
        tailcut_proto::node::Node::poll_transmit(&mut bench.router, 0, &mut buffer).unwrap();
    assert_eq!((transmit.len, transmit.segment_len, transmit.datagram_count()), (152, 76, 2));
    assert!(
        Packet::parse(&buffer[76..152])
            .is_ok_and(|packet| packet.is_last && buffer[3] == position::ONLY)
    );
}

#[test]
fn a_copy_of_a_refused_request_is_refused_while_one_may_be_under_way() {
    let mut bench = Bench::new(Speaks::Extension, 1, |config| config.queue_len_max = 0);
    let mut fake = FakeServer::new(0);
    bench.live(&mut [&mut fake], 20 * MS);
    for id in 1..3 {
        fake.take(&bench.send(client(), &Ask::id(id).bytes())[0].bytes);
    }
    let refused = Ask::id(3).bytes();
    assert_eq!(drop_reason(&bench.send(client(), &refused)), DropReason::Overload);
    bench.send(server(0), &fake.conclude(2));
    assert_eq!(drop_reason(&bench.send(client(), &refused)), DropReason::Overload);
    assert_eq!(bench.place(&Ask::id(4).bytes()), Some(0), "another request finds room");
    bench.advance(30 * MS);
    assert_eq!(bench.place(&refused), Some(0), "nobody remembers it for longer");
}

/// The refusal is under way for that long, and so is a copy sent before the client has it.
#[test]
fn a_copy_of_a_refused_request_is_refused_for_twice_the_longest_transit() {
    for (after, placed) in [(19 * MS, None), (20 * MS, Some(0))] {
        let mut bench = Bench::new(Speaks::Extension, 1, |config| config.queue_len_max = 0);
        let mut fake = FakeServer::new(0);
        bench.live(&mut [&mut fake], 20 * MS);
        full(&mut bench);
        let refused = Ask::id(3).bytes();
        assert_eq!(drop_reason(&bench.send(client(), &refused)), DropReason::Overload);
        bench.live(&mut [&mut fake], after);
        assert_eq!(bench.outstanding(), [0], "both have ended there");
        assert_eq!(bench.place(&refused), placed, "after {after} ns");
    }
}

#[test]
fn an_idempotent_request_that_was_refused_may_be_asked_again() {
    let mut bench = Bench::new(Speaks::Extension, 1, |config| config.queue_len_max = 0);
    let mut fake = FakeServer::new(0);
    bench.live(&mut [&mut fake], 20 * MS);
    for id in 1..3 {
        fake.take(&bench.send(client(), &Ask::id(id).bytes())[0].bytes);
    }
    let refused = Ask { flags: Flags::IDEMPOTENT, ..Ask::id(3) }.bytes();
    assert_eq!(drop_reason(&bench.send(client(), &refused)), DropReason::Overload);
    bench.send(server(0), &fake.conclude(2));
    assert_eq!(bench.place(&refused), Some(0));
}

/// A router that drains still places held requests, and accounts for placed ones.
#[test]
fn a_closed_router_refuses_what_is_new_and_ends_what_it_has() {
    let mut bench = annotate(1);
    let mut fake = FakeServer::new(0);
    for id in 1..3 {
        fake.take(&bench.send(client(), &Ask::id(id).bytes())[0].bytes);
    }
    assert_eq!(bench.place(&Ask::id(3).bytes()), None);
    bench.router.close();
    assert_eq!(drop_reason(&bench.send(client(), &Ask::id(4).bytes())), DropReason::Stopping);
    assert_eq!(bench.place(&Ask::id(2).bytes()), Some(0), "a copy of what is placed");
    let held = bench.send(server(0), &fake.conclude(2));
    assert_eq!(held[0].to, server(0));
    fake.take(&held[0].bytes);
    assert!(!bench.router.is_idle());
    bench.send(server(0), &fake.conclude(1));
    assert!(bench.router.is_idle());
    assert_eq!(bench.router.hold_times().count(), 3);
}

/// The flags and the age, ms, that a server is told of a request that has waited in the socket for
/// so long.
fn told_after(pause: Time, flags: u8) -> (u8, u16) {
    let mut bench = Bench::new(Speaks::Extension, 2, |_| {});
    bench.rest_until(10_000 * MS);
    bench.now += pause;
    let sent = bench.send(client(), &Ask { flags, ..Ask::id(7) }.bytes());
    let header = Packet::parse(&sent[0].bytes).unwrap().request_header().unwrap();
    (header.flags, header.age_ms.get())
}

/// A request that has waited in the socket for as long as servers remember whom they do not hear
/// may be a copy of one that has run through another router: servers are told how old it is.
#[test]
fn what_waited_for_as_long_as_servers_remember_tells_its_age() {
    let again = Flags::RETRANSMIT;
    for (pause, flags, expected) in [
        (5_000 * MS, 0, (again, 5_000)),
        (4_900 * MS, 0, (0, 0)),
        (5_000 * MS, Flags::IDEMPOTENT, (Flags::IDEMPOTENT, 0)),
    ] {
        assert_eq!(told_after(pause, flags), expected, "{pause}, flags {flags}");
    }
}

/// Before it came here, and the copy that ran before it came there: twice the 10 ms of the network.
#[test]
fn what_waited_may_have_been_under_way_for_long_besides() {
    assert_eq!(told_after(4_980 * MS, 0), (Flags::RETRANSMIT, 4_980));
    assert_eq!(told_after(4_980 * MS - 1, 0), (0, 0));
}

/// A copy that waited in the socket of a router that was paused until what the router knows of the
/// request has expired: it has run, and is no new one.
#[test]
fn a_copy_that_waited_in_the_socket_finds_what_expired_meanwhile() {
    for (pause, is_known) in [(23 * MS, true), (0, false)] {
        let mut bench = Bench::new(Speaks::Extension, 2, |_| {});
        bench.now = 1000 * MS;
        bench.advance(0);
        let first = Ask { deadline_us: 3_000, ..Ask::id(7) };
        assert!(bench.place(&first.bytes()).is_some());
        if pause == 0 {
            // It runs all the time.
            (0..23).for_each(|_| drop(bench.advance(MS)));
        }
        bench.now += pause;
        bench.send(client(), &Ask { flags: Flags::RETRANSMIT, ..first }.bytes());
        assert_eq!(bench.metrics().duplicates_forwarded, u64::from(is_known), "{pause}");
    }
}

/// A pause of more than half of what the network may take, which is 10 ms.
#[test]
fn a_short_pause_keeps_what_expires_within_it() {
    let mut bench = annotate(2);
    let first = Ask { deadline_us: 3_000, ..Ask::id(7) };
    assert_eq!(bench.place(&first.bytes()), Some(0));
    (0..12).for_each(|_| drop(bench.advance(MS)));
    bench.now += 8 * MS;
    assert_eq!(bench.place(&Ask { flags: Flags::RETRANSMIT, ..first }.bytes()), Some(0));
    assert_eq!(bench.metrics().duplicates_forwarded, 1);
}
