//! Messages of which something is missing: when it is asked for, and how many there may be.

use std::ops::Range;

use tailcut_proto::node::Node;
use tailcut_wire::homa::{Age, DataHeader, PacketType};
use zerocopy::IntoBytes;

use super::*;

/// Granted bytes of a long message wait in the network while short ones pass it.
#[test]
fn granted_bytes_are_not_missed_while_better_ones_come_but_not_for_ever() {
    let mut server = Lone::new();
    server.give(CLIENT, &part(2, 500_000, 0, 1396));
    assert_eq!(grants(&server.take()).len(), 1);
    assert_eq!(asked_beside(&mut server, 100, 0..30), 0, "for 3 ms nothing is missed");
    let late = asked_beside(&mut server, 100, 30..50);
    assert_eq!(late, 1, "what has not come by then has been lost");
}

/// Number of RESENDs while a request of `len` bytes comes every tenth of a millisecond.
fn asked_beside(server: &mut Lone, len: u32, steps: Range<u64>) -> usize {
    for step in steps {
        server.give("10.0.0.11:32769", &part(1000 + 2 * step, len, 0, len));
        server.pass(MS / 10);
    }
    server.take_types().iter().filter(|&&kind| kind == PacketType::Resend).count()
}

/// Better ones may be of any priority above theirs.
#[test]
fn granted_bytes_are_not_missed_while_somewhat_better_ones_come() {
    let mut server = Lone::new();
    server.give(CLIENT, &part(2, 500_000, 0, 1396));
    server.take();
    assert_eq!(asked_beside(&mut server, 1_000, 0..30), 0);
}

#[test]
fn granted_bytes_are_missed_at_once_where_nothing_else_comes() {
    let mut server = Lone::new();
    server.give(CLIENT, &part(2, 500_000, 0, 1396));
    server.take();
    server.pass(MS + MS / 10);
    assert_eq!(server.take_types(), [PacketType::Resend]);
}

/// Packets that were sent behind it have come, long before silence would say that something is
/// missing.
#[test]
fn a_hole_is_asked_for_after_150_us_and_then_half_as_often_each_time() {
    let mut server = Lone::new();
    for packet in [0, 2, 3, 4, 5] {
        server.give(CLIENT, &part(2, 6 * 1396, packet * 1396, 1396));
    }
    server.take();
    server.pass(MS / 10);
    assert_eq!(server.take_types(), []);
    server.pass(MS / 10);
    let sent = server.take();
    let Body::Resend(resend) = sent[0].packet().body else { panic!("{sent:?}") };
    assert_eq!((sent.len(), resend.offset, resend.length), (1, 1396, 1396));
    server.pass(2 * MS);
    let again = server.take_types().len();
    assert!((2..=4).contains(&again), "{again}");
}

#[test]
fn a_message_that_needs_no_more_grants_leaves_its_place_to_others() {
    let mut server = Lone::with(|config| config.grants.overcommit = 1);
    server.give(CLIENT, &part(2, 20_000, 0, 1396));
    let granted = |server: &mut Lone| -> Vec<u32> {
        grants(&server.take()).iter().map(|grant| grant.1).collect()
    };
    assert_eq!(granted(&mut server), [20_000], "all of it");
    server.give("10.0.0.11:32769", &part(2, 500_000, 0, 1396));
    assert_eq!(granted(&mut server).len(), 1, "though the first has fewer bytes left");
}

/// A process that did not run for a while comes to its timers before it has read what came.
#[test]
fn a_host_that_was_away_reads_before_it_asks() {
    let mut server = Lone::new();
    server.give(CLIENT, &part(2, 500_000, 0, 1396));
    server.take();
    let come_back_after = |server: &mut Lone, ns: u64| {
        server.now += ns;
        server.node.handle_timeout(server.now);
        server.settle();
        server.take_types()
    };
    assert_eq!(come_back_after(&mut server, 20 * MS), []);
    // What was not there to be read has been lost.
    server.pass(MS + MS / 10);
    assert_eq!(server.take_types(), [PacketType::Resend]);
    // Nor does it wait for a host that is always away.
    let questions: usize = (0..10).map(|_| come_back_after(&mut server, 20 * MS).len()).sum();
    assert!((2..10).contains(&questions), "{questions}");
}

/// It says that it may send nothing, and sends something: of what it begins nothing has come, so
/// that nothing would be granted, and nobody asked whether he goes on.
#[test]
fn a_packet_beyond_what_its_sender_may_send_begins_no_request() {
    let mut server = Lone::new();
    for (place, incoming) in [0, 63, 64].into_iter().enumerate() {
        let mut header = DataHeader::new(TO_SERVER, 2 + 2 * place as u64, 20_000, 0);
        header.incoming = incoming.into();
        server.give(CLIENT, &[header.as_bytes(), &[1; 64]].concat());
    }
    assert_eq!(server.node.metrics().protocol_violation, 2);
    assert_eq!((server.node.holdings().partials, server.node.holdings().requests), (1, 1));
}

/// First packets of requests that nobody goes on with, from any address that a stranger likes to
/// write, take half of the places at most: each keeps its own for a second.
#[test]
fn half_received_requests_of_strangers_leave_half_of_the_places() {
    let mut server = Lone::with(|config| config.serving.requests_max = 12);
    for stranger in 0..30 {
        server.give(&format!("192.0.2.{stranger}:33000"), &part(2, 20_000, 0, 64));
    }
    assert_eq!((server.node.holdings().partials, server.node.holdings().requests), (6, 6));
    server.give("192.0.2.99:33000", &part(2, 100, 0, 100));
    assert_eq!(server.requests.len(), 1, "all of it has come");
    for client in 0..5 {
        server.give(&format!("10.0.0.{client}:33000"), &part(2, 20_000, 0, 1396));
    }
    assert_eq!((server.node.holdings().partials, server.node.holdings().requests), (11, 12));
    server.pass(2 * SECOND);
    assert_eq!(server.node.holdings().partials, 0);
    server.give("192.0.2.98:33000", &part(2, 20_000, 0, 64));
    assert_eq!(server.node.holdings().partials, 1, "what they had is counted back");
}

/// It goes on when others have had their turn, and asks for its reply meanwhile.
#[test]
fn a_request_that_waits_for_grants_is_kept_while_its_client_lives() {
    let mut server = Lone::with(|config| {
        let (window, incoming_max, fifo_permille, fifo_increment) = (10_000, 400_000, 0, 0);
        config.grants.policy =
            GrantPolicy::Module { window, incoming_max, fifo_permille, fifo_increment };
        config.grants.overcommit = 1;
    });
    let other = "10.0.0.11:32769";
    server.give(other, &part(2, 100_000, 0, 1396));
    server.take();
    server.give(CLIENT, &part(2, 500_000, 0, 9328));
    for step in 1..50 {
        server.give(CLIENT, &resend(TO_SERVER, 2, 0, RESEND_ALL));
        server.give(other, &part(2, 100_000, step * 1396, 1396));
        server.pass(30 * MS);
    }
    assert!(grants(&server.take()).iter().all(|grant| grant.1 > 9328 + 1396), "of the other");
    assert_eq!((server.node.holdings().partials, server.node.metrics().partials_expired), (2, 0));
    server.pass(SECOND + MS);
    assert_eq!(server.node.holdings().partials, 0, "both clients are gone");
}

/// Other packets of it show that it lives.
#[test]
fn a_client_that_lives_may_leave_questions_unanswered_for_longer() {
    let mut server = Lone::with(|config| config.recovery.partial_silence_ns_max = 50 * MS);
    server.give(CLIENT, &part(2, 500_000, 0, 1396));
    for id in 10..40 {
        server.give(CLIENT, &request(2 * id, 4, 0, b"ping"));
        server.pass(10 * MS);
    }
    assert_eq!(server.node.holdings().partials, 1);
    server.pass(60 * MS);
    assert_eq!(server.node.holdings().partials, 0, "now it says nothing at all");
}

/// Each packet of what needs no grant finds the request refused, and the client hears of it once.
#[test]
fn a_long_request_is_refused_once() {
    let mut server = Lone::with(|config| config.serving.partials_max = 0);
    let packet = |offset: u32, age: Age| {
        let mut header = DataHeader::new(TO_SERVER, 2, 40_000, offset);
        header.incoming = 40_000.into();
        header.cutoff_version = 1.into();
        header.flags = DataFlags::KNOWN;
        header.retransmit = age.0;
        [header.as_bytes(), &[1; 1000]].concat()
    };
    let refusals = |server: &mut Lone| -> Vec<DropReason> {
        server.take().iter().map(|sent| DropReason::from_payload(&sent.data().1)).collect()
    };
    (0..40).for_each(|place| server.give(CLIENT, &packet(1000 * place, Age(0))));
    assert_eq!(refusals(&mut server), [DropReason::Overload]);
    let metrics = server.node.metrics();
    assert_eq!(metrics.drops.iter().sum::<u64>(), 1);
    assert_eq!(metrics.duplicate_after_release, 0);
    // The refusal was lost.
    server.give(CLIENT, &packet(0, Age(0)));
    server.give(CLIENT, &packet(9000, Age::of_ns(MS)));
    assert_eq!(refusals(&mut server), [DropReason::Uncertain; 2]);
    assert_eq!(server.node.metrics().duplicate_after_release, 2);
}

/// Eight requests of 8,000,000 bytes at once, each granted as far as the server will, of which the
/// last `withheld` bytes do not come; returns how many were completed, and the most bytes held. A
/// client may hold two million.
fn flood(withheld: u32) -> (usize, usize) {
    const LEN: u32 = 8_000_000;
    let mut server = Lone::with(|config| config.serving.held_bytes_per_client_max = 2_000_000);
    let mut progress: Vec<(u64, u32, u32)> = (1..=8).map(|id| (2 * id, 0, 100_000)).collect();
    let mut held_bytes_max = 0;
    for _ in 0..2_000 {
        for (id, sent, granted) in &mut progress {
            let len = (*granted).min(LEN - withheld).saturating_sub(*sent).min(50_000);
            if len > 0 {
                server.give(CLIENT, &request(*id, LEN, *sent, &vec![1; len as usize]));
                *sent += len;
            }
        }
        held_bytes_max = held_bytes_max.max(server.node.holdings().held_bytes);
        for (id, offset, _) in grants(&server.take()) {
            let of_id = progress.iter_mut().find(|(other, ..)| *other == id);
            of_id.expect("a request").2 = offset;
        }
        if server.requests.len() == progress.len() {
            break;
        }
    }
    (server.requests.len(), held_bytes_max)
}

/// The best of them comes, and of the others no more than a client may hold.
#[test]
fn long_requests_beyond_what_a_client_may_hold_are_granted_one_after_the_other() {
    let (completed, held_bytes_max) = flood(0);
    assert_eq!(completed, 8);
    assert!((2_000_000..10_500_000).contains(&held_bytes_max), "{held_bytes_max}");
}

/// Each is the best until it is granted whole; the limit holds for all of them together.
#[test]
fn requests_whose_last_byte_is_kept_back_hold_no_more_than_a_client_may_and_a_message() {
    let (completed, held_bytes_max) = flood(1);
    assert_eq!(completed, 0);
    assert!((8_000_000..10_500_000).contains(&held_bytes_max), "{held_bytes_max}");
}
