//! Behaviour of a router at its limits: a driver that does not drain, requests as long as allowed,
//! tables that are full; and that it counts what it drops.

use tailcut_proto::node::Node;
use tailcut_proto::router::{Forward, RouterError, ServerState, Speaks};
use tailcut_proto::scheduler::Rank;
use tailcut_wire::r2p2::{
    CloneMark, DropReason, Flags, MessageType, Policy, ReplyRepr, RpcId, SackBody, V1_ACK, V1Repr,
};
use zerocopy::IntoBytes;

use crate::router_bench::{
    Ask, Bench, FakeServer, MS, cancel, client, drop_reason, hex, idempotent, server, v1_feedback,
    v1_request,
};

/// A router whose outbox has room for so many datagrams.
fn narrow(servers: u16, outbox_len_max: usize) -> Bench {
    Bench::new(Speaks::Extension, servers, |config| config.outbox_len_max = outbox_len_max)
}

impl Bench {
    /// A datagram that comes before the driver has taken what is to be sent.
    fn press(&mut self, bytes: &[u8]) {
        self.router.handle_datagram(self.now, client().into(), &mut bytes.to_vec());
    }
}

#[test]
fn a_request_may_be_as_long_as_allowed() {
    let len = Ask::id(1).bytes().len();
    for (packet_len_max, refused) in [(len, 0), (len - 1, 1)] {
        let mut bench =
            Bench::new(Speaks::Extension, 1, |config| config.packet_len_max = packet_len_max);
        bench.send(client(), &Ask::id(1).bytes());
        assert_eq!(bench.metrics().refused.too_large, refused, "{packet_len_max}");
    }
}

#[test]
fn a_status_tells_how_many_ids_are_remembered() {
    let mut bench = narrow(2, 9);
    for count in 0..3 {
        assert_eq!(bench.router.status().table_len, count);
        bench.send(client(), &Ask::id(count as u64 + 1).bytes());
    }
    assert_eq!((bench.metrics().forwarded, bench.metrics().received), (3, 5));
}

#[test]
fn a_full_table_takes_idempotent_requests_and_counts_them() {
    let mut bench = Bench::new(Speaks::Extension, 1, |config| config.table_len_max = 1);
    bench.send(client(), &Ask::id(1).bytes());
    bench.send(client(), &idempotent(2, CloneMark::Single));
    assert_eq!((bench.metrics().untracked, bench.metrics().forwarded), (1, 2));
    bench.now = 100 * MS;
    let moved = Ask { flags: Flags::RETRANSMIT | Flags::MOVED, ..Ask::id(3) }.bytes();
    assert_eq!(drop_reason(&bench.send(client(), &moved)), DropReason::Uncertain);
}

#[test]
fn a_datagram_longer_than_the_drivers_buffer_is_counted() {
    let mut bench = narrow(1, 9);
    bench.press(&Ask::id(1).bytes());
    assert!(bench.router.poll_transmit(0, &mut [0; 20]).is_none());
    assert_eq!(bench.metrics().oversize, 1);
}

#[test]
fn packets_that_a_router_has_no_use_for_are_counted() {
    let mut bench = narrow(1, 9);
    // A version 1 ACK, from a server and a stranger; and an ACK of a stranger.
    let v1_ack = hex("cc0842c0000500010000");
    let ack = ReplyRepr::control(MessageType::Ack, 0, RpcId(0)).header();
    let ack = [ack.as_bytes(), &[0; 16]].concat();
    for (from, bytes) in [(server(0), &v1_ack), (client(), &v1_ack), (client(), &ack)] {
        assert_eq!(bench.send(from, bytes), []);
    }
    let metrics = bench.metrics();
    assert_eq!(metrics.unexpected + metrics.malformed.total(), 3);
    bench.send(client(), b"no packet");
    assert_eq!(bench.metrics().malformed.total(), metrics.malformed.total() + 1);
}

#[test]
fn a_clone_that_finds_no_room_is_left_out() {
    let mut bench = Bench::new(Speaks::Extension, 2, |config| {
        (config.policy, config.outbox_len_max) = ("netclone".parse().unwrap(), 1);
    });
    let sent = bench.send(client(), &idempotent(1, CloneMark::Single));
    assert_eq!((sent.len(), bench.metrics().outbox_full, bench.metrics().cloned), (1, 1, 0));
    assert_eq!(bench.outstanding().iter().sum::<u32>(), 1);
}

#[test]
fn a_closed_router_places_no_copies() {
    let mut bench = narrow(2, 9);
    bench.send(client(), &idempotent(1, CloneMark::Single));
    bench.router.close();
    assert_eq!(bench.send(client(), &idempotent(1, CloneMark::Copy)), []);
    assert_eq!(bench.metrics().clones_unplaced, 1);
}

#[test]
fn a_copy_goes_where_there_is_room_and_nobody_waits() {
    let place_copy = |waiting: u16, placed: u64| {
        let mut bench = Bench::new(Speaks::Extension, 2, |_| {});
        let fake = FakeServer { waiting, load: waiting, ..FakeServer::new(1) };
        bench.send(server(1), &fake.feedback());
        // Two for each server are the bound.
        let first = bench.place(&idempotent(1, CloneMark::Single));
        (0..placed).for_each(|at| drop(bench.send(client(), &Ask::id(10 + at).bytes())));
        (first, bench.place(&idempotent(1, CloneMark::Copy)))
    };
    assert_eq!(place_copy(0, 0), (Some(0), Some(1)));
    assert_eq!(place_copy(0, 2), (Some(0), Some(1)), "one of two");
    assert_eq!(place_copy(0, 3), (Some(0), None), "it has no room");
    assert_eq!(place_copy(1, 0), (Some(0), None), "somebody waits there");
}

#[test]
fn a_cancel_that_finds_nothing_is_counted() {
    let mut bench = narrow(2, 9);
    bench.send(client(), &cancel(9, CloneMark::Single));
    assert_eq!(bench.metrics().cancels_unknown, 1, "an id that is not known");
    bench.send(client(), &Ask::id(1).bytes());
    bench.send(client(), &cancel(1, CloneMark::Original));
    assert_eq!(bench.metrics().cancels_unknown, 2, "of two where there is one");
    let sent = bench.send(client(), &cancel(1, CloneMark::Single));
    assert_eq!((sent.len(), bench.metrics().cancelled_forwarded), (1, 1));
    bench.router.remove_server(bench.now, server(0)).unwrap();
    bench.router.remove_server(bench.now, server(1)).unwrap();
    bench.send(client(), &cancel(1, CloneMark::Single));
    assert_eq!(bench.metrics().cancels_unknown, 3, "its server is gone");
}

#[test]
fn a_cancel_that_finds_no_room_is_dropped_and_counted() {
    let mut bench = narrow(1, 1);
    bench.press(&Ask::id(1).bytes());
    bench.press(&cancel(1, CloneMark::Single));
    assert_eq!((bench.metrics().outbox_full, bench.metrics().cancelled_forwarded), (1, 0));
}

#[test]
fn a_silent_server_leaves_an_idempotent_request_to_another() {
    let mut bench = narrow(2, 99);
    let first = bench.place(&idempotent(1, CloneMark::Single)).expect("it is placed");
    let mut other = FakeServer::new(1 - first);
    bench.live(&mut [&mut other], 200 * MS);
    assert_eq!(bench.states()[usize::from(first)], ServerState::Silent);
    assert_eq!(bench.place(&idempotent(1, CloneMark::Single)), Some(1 - first));
    assert_eq!((bench.metrics().duplicates_moved, bench.metrics().held), (1, 0));
}

#[test]
fn the_oldest_of_too_many_leases_gives_way() {
    let mut bench = Bench::new(Speaks::V1, 1, |config| {
        (config.forward, config.lease_len_max) = (Forward::Keep, 1);
    });
    (1..=2).for_each(|rid| assert_eq!(bench.place(&v1_request(rid)), Some(0)));
    assert_eq!((bench.outstanding(), bench.metrics().leases_expired), (vec![1], 1));
}

#[test]
fn feedback_of_another_version_than_the_servers_is_counted() {
    let mut bench = Bench::new(Speaks::V1, 1, |config| config.forward = Forward::Keep);
    bench.send(server(0), &FakeServer::new(0).feedback());
    assert_eq!(bench.metrics().feedback_mismatched, 1);
    bench.send(server(0), &v1_feedback());
    assert_eq!(bench.metrics().feedback_unmatched, 1, "nothing was placed there");
}

#[test]
fn a_fixed_request_tries_a_silent_version_1_server_from_time_to_time() {
    let mut bench = Bench::new(Speaks::V1, 1, |config| {
        (config.forward, config.lease_ns) = (Forward::Keep, 10 * MS);
        (config.v1_failures_max, config.v1_trial_interval_ns) = (1, 100 * MS);
    });
    // The policy is in the header's third byte.
    let fixed = |rid| {
        let mut bytes = v1_request(rid);
        bytes[2] = (bytes[2] & 0xf0) | 1;
        bytes
    };
    assert_eq!(bench.place(&fixed(1)), Some(0));
    bench.advance(20 * MS);
    assert_eq!(bench.states(), [ServerState::Silent]);
    let tried = |bench: &mut Bench, rid| bench.place(&fixed(rid));
    assert_eq!(tried(&mut bench, 2), None, "it has just failed");
    bench.advance(100 * MS);
    assert_eq!((tried(&mut bench, 3), tried(&mut bench, 4)), (Some(0), None));
    assert_eq!(bench.metrics().trials, 1);
    bench.router.drain_server(bench.now, server(0)).unwrap();
    bench.advance(100 * MS);
    assert_eq!(tried(&mut bench, 5), None, "it is to be removed");
}

#[test]
fn a_server_of_twice_the_weight_gets_twice_as_many() {
    let mut bench = narrow(2, 99);
    let rank = |weight| Rank { weight: std::num::NonZeroU8::new(weight).unwrap(), is_near: true };
    let unknown = bench.router.set_rank(0, server(9), rank(2));
    assert_eq!(unknown, Err(RouterError::Unknown { addr: server(9) }));
    let both = [(server(0), rank(1)), (server(1), rank(2))];
    bench.router.set_ranks(0, &both).unwrap();
    let placed: Vec<_> = (1..=7).map(|id| bench.place(&Ask::id(id).bytes())).collect();
    let count = |index| placed.iter().filter(|&&at| at == index).count();
    assert_eq!((count(Some(0)), count(Some(1)), count(None)), (2, 4, 1), "{placed:?}");
    bench.router.set_rank(0, server(0), rank(2)).unwrap();
    assert_eq!(bench.router.status().servers[0].rank, rank(2));
    assert_eq!(bench.router.queue_len(), 0, "there is room for what was held");
}

#[test]
fn what_is_held_is_counted() {
    let mut bench = narrow(1, 99);
    (1..=4).for_each(|id| drop(bench.send(client(), &Ask::id(id).bytes())));
    assert_eq!((bench.metrics().held, bench.metrics().forwarded), (2, 2));
}

#[test]
fn a_server_that_goes_and_comes_is_counted_once() {
    let mut bench = narrow(2, 99);
    let (mut stays, mut goes) = (FakeServer::new(0), FakeServer::new(1));
    bench.live(&mut [&mut stays], 200 * MS);
    assert_eq!((bench.metrics().servers_silenced, bench.metrics().servers_returned), (1, 0));
    bench.live(&mut [&mut stays, &mut goes], 100 * MS);
    assert_eq!((bench.metrics().servers_silenced, bench.metrics().servers_returned), (1, 1));
}

#[test]
fn every_probe_is_counted() {
    let mut bench = narrow(2, 99);
    let before = bench.metrics().probes;
    let sent = bench.advance(20 * MS);
    assert!(sent.len() >= 6, "four for each, less what is random: {}", sent.len());
    assert_eq!(bench.metrics().probes - before, sent.len() as u64);
}

#[test]
fn every_feedback_of_version_1_is_taken_once() {
    let mut bench = Bench::new(Speaks::V1, 1, |config| config.forward = Forward::Keep);
    (1..=2).for_each(|rid| assert_eq!(bench.place(&v1_request(rid)), Some(0)));
    (0..3).for_each(|_| drop(bench.send(server(0), &v1_feedback())));
    assert_eq!((bench.metrics().feedback_taken, bench.metrics().feedback_unmatched), (2, 1));
}

/// Held requests that all expire after a millisecond, with room for so many datagrams to be sent.
fn held(count: u64, outbox_len_max: usize) -> Bench {
    let mut bench = Bench::new(Speaks::Extension, 1, |config| {
        (config.hold_ns_max, config.outbox_len_max) = (MS, outbox_len_max);
    });
    (0..count + 2).for_each(|id| drop(bench.send(client(), &Ask::id(id).bytes())));
    assert_eq!(bench.router.queue_len() as u64, count);
    bench
}

/// So that no timeout costs as much as all that is held.
#[test]
fn what_expires_at_once_is_refused_a_burst_at_a_time() {
    let mut bench = held(300, 999);
    bench.now = MS;
    bench.router.handle_timeout(bench.now);
    assert_eq!(bench.metrics().refused.total(), 256);
    bench.drain();
    assert_eq!((bench.metrics().refused.total(), bench.router.queue_len()), (300, 0));
}

#[test]
fn what_expires_waits_for_room_to_be_refused() {
    let mut bench = held(20, 8);
    bench.now = MS;
    bench.router.handle_timeout(bench.now);
    assert!((1..=8).contains(&bench.metrics().refused.total()));
    let refused = bench.drain().iter().filter(|sent| sent.to == client()).count();
    assert_eq!((refused, bench.router.queue_len()), (20, 0));
}

/// Another router may have placed the one, an earlier run the other.
#[test]
fn a_full_table_leaves_uncertain_what_may_have_run() {
    let mut young = Bench::new(Speaks::Extension, 1, |config| config.table_len_max = 1);
    let mut old = Bench::new(Speaks::Extension, 1, |config| config.table_len_max = 1);
    old.rest_until(1000 * MS);
    let refusal = |bench: &mut Bench, flags| {
        bench.send(client(), &Ask::id(1).bytes());
        drop_reason(&bench.send(client(), &Ask { flags, ..Ask::id(3) }.bytes()))
    };
    assert_eq!(refusal(&mut young, 0), DropReason::Overload);
    assert_eq!(refusal(&mut young, Flags::RETRANSMIT), DropReason::Uncertain);
    assert_eq!(refusal(&mut old, Flags::RETRANSMIT), DropReason::Overload);
    let moved = Flags::RETRANSMIT | Flags::MOVED;
    assert_eq!(refusal(&mut old, moved), DropReason::Uncertain);
}

/// It remembers nothing of that, and the client takes its refusal for a promise.
#[test]
fn what_a_full_table_has_refused_is_not_placed_when_a_copy_comes_later() {
    let mut bench = Bench::new(Speaks::Extension, 1, |config| {
        (config.table_len_max, config.transit_ns_max) = (1, 10 * MS);
    });
    bench.rest_until(1_000 * MS);
    assert_eq!(bench.place(&Ask { deadline_us: 1_000, ..Ask::id(1) }.bytes()), Some(0));
    assert_eq!(drop_reason(&bench.send(client(), &Ask::id(3).bytes())), DropReason::Overload);
    bench.rest_until(1_100 * MS);
    let again = |id, age_ms| Ask { flags: Flags::RETRANSMIT, age_ms, ..Ask::id(id) }.bytes();
    assert_eq!(drop_reason(&bench.send(client(), &again(3, 101))), DropReason::Uncertain);
}

#[test]
fn answers_that_a_router_asks_nobody_for_are_counted() {
    let ack = ReplyRepr::control(MessageType::Ack, 0, RpcId(0)).header();
    let ack = [ack.as_bytes(), &[0; size_of::<SackBody>()]].concat();
    let v1 = V1Repr::control(MessageType::Ack, Policy::Fixed, 5).header();
    let v1_ack = [v1.as_bytes(), V1_ACK].concat();
    let refusal = ReplyRepr::control(MessageType::Drop, 0, RpcId(1)).header();
    let refusal = [refusal.as_bytes(), &[1]].concat();
    for (name, from, bytes, count) in [
        ("a server tells its token", server(0), &ack, 0),
        ("a stranger does", client(), &ack, 1),
        ("a server's of version 1", server(0), &v1_ack, 1),
        ("a refusal", server(0), &refusal, 1),
    ] {
        let mut bench = narrow(1, 9);
        assert_eq!(bench.send(from, bytes), []);
        let metrics = bench.metrics();
        assert_eq!((metrics.unexpected, metrics.malformed.total()), (count, 0), "{name}");
    }
}

/// So that a router with many servers does not hear of all at once.
#[test]
fn probes_are_apart_by_their_interval_less_up_to_an_eighth_at_random() {
    let mut bench = Bench::new(Speaks::Extension, 8, |config| config.probe_interval_ns = 8 * MS);
    let mut sent_at = vec![Vec::new(); 8];
    while let Some(due) = bench.router.poll_timeout().filter(|&due| due < 40 * MS) {
        bench.now = due;
        bench.router.handle_timeout(due);
        for probe in bench.drain() {
            sent_at[usize::from(probe.to.port() - server(0).port())].push(due);
        }
    }
    let apart: Vec<_> =
        sent_at.iter().flat_map(|times| times.windows(2)).map(|pair| pair[1] - pair[0]).collect();
    assert!(apart.len() >= 24 && apart.iter().all(|apart| (7 * MS..=8 * MS).contains(apart)));
    let (least, most) = (apart.iter().min().unwrap(), apart.iter().max().unwrap());
    assert!(most - least > MS / 2, "{least} to {most}");
}
