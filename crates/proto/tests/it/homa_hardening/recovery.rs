//! Timers: what is asked for, when, and how much of it.

use super::asked::asked;
use super::*;

/// A client that has sent a request of 10 bytes, whose answer it awaits for a minute.
fn calling(change: impl FnOnce(&mut Config)) -> (Lone, u64) {
    let mut client = Lone::with(change);
    let (target, deadline) = (SERVER.parse().unwrap(), client.now + 60 * SECOND);
    let (payload, options) = (vec![1; 10], CallOptions::default());
    client.node.call(client.now, Call { target, payload, deadline, context: 7, options }).unwrap();
    client.drain();
    let id = id_of(&client.take());
    (client, id)
}

#[test]
fn calls_to_a_peer_that_is_silent_for_five_seconds_fail() {
    let (mut client, _) = calling(|_| {});
    client.pass(5 * SECOND);
    assert_eq!(client.failures, []);
    client.pass(SECOND / 10);
    assert_eq!(client.failures, [Failure::Unreachable]);
    assert_eq!((client.node.metrics().unreachable, client.node.holdings().calls), (1, 0));
}

#[test]
fn calls_to_a_peer_that_says_something_wait_for_their_deadline() {
    let (mut client, id) = calling(|_| {});
    for _ in 0..10 {
        client.pass(SECOND);
        client.give(SERVER, &plain(PacketType::Busy, TO_CLIENT, id ^ 1));
    }
    assert_eq!((client.failures.as_slice(), client.node.metrics().unreachable), (&[][..], 0));
}

/// A few of them tell whether it lives.
#[test]
fn of_many_calls_to_a_silent_peer_sixteen_are_asked_about() {
    let mut client = Lone::new();
    (0..40).for_each(|_| client.call(10).unwrap());
    client.take();
    client.pass(MS + MS / 10);
    assert_eq!(asked(&client.take()), [(0, RESEND_ALL); 16]);
}

/// It is the link that holds the request back.
#[test]
fn a_call_is_not_asked_about_while_its_request_leaves() {
    let link = Some(Link { bits_per_second: 100_000, queue_ns_max: 1000, bypass_len: 0 });
    let mut client = Lone::with(|config| config.link = link);
    client.call(5000).unwrap();
    client.pass(SECOND * 3 / 10);
    let sent = client.take();
    assert_eq!((asked(&sent), sent.len()), (vec![], 3), "a packet takes more than 100 ms");
}

#[test]
fn a_call_is_not_asked_about_while_replies_to_others_come() {
    let mut client = Lone::new();
    (0..20).for_each(|_| client.call(10).unwrap());
    let first = id_of(&client.take());
    for place in 1..9 {
        client.pass(MS * 3 / 10);
        client.give(SERVER, &acks::known_reply(first + 2 * place, b"pong"));
        assert_eq!(asked(&client.take()), [], "after {place} replies");
    }
    client.pass(20 * MS);
    assert!(asked(&client.take()).contains(&(0, RESEND_ALL)), "now nothing comes");
}

#[test]
fn need_acks_are_twice_as_far_apart_each_time() {
    let mut server = Lone::new();
    server.give(CLIENT, &marked(2, b"ping", |header| header.time_left = 0.into()));
    server.reply(100).unwrap();
    server.take();
    let at: Vec<u64> = (1..=320u64)
        .filter(|_| {
            server.pass(MS / 10);
            server.take_types() == [PacketType::NeedAck]
        })
        .collect();
    let expected = [20, 60, 140, 300];
    assert_eq!(at.len(), expected.len(), "{at:?} tenths of a millisecond");
    assert!(at.iter().zip(expected).all(|(at, due)| (due..=due + 3).contains(at)), "{at:?}");
}

#[test]
fn a_reply_is_kept_no_longer_than_its_client_waits() {
    let mut server = Lone::new();
    let waits = |header: &mut DataHeader| header.time_left = TimeLeft::of_ns(3 * MS).0.into();
    server.give(CLIENT, &marked(2, b"ping", waits));
    server.reply(100).unwrap();
    server.pass(5 * MS);
    assert_eq!(
        (server.node.holdings(), server.node.metrics().unacknowledged),
        (Default::default(), 1)
    );
}

#[test]
fn a_request_that_is_answered_too_late_is_counted() {
    let mut server = Lone::new();
    let waits = |header: &mut DataHeader| header.time_left = TimeLeft::of_ns(3 * MS).0.into();
    server.give(CLIENT, &marked(2, b"ping", waits));
    server.pass(5 * MS);
    assert_eq!((server.cancelled, server.node.metrics().unanswered), (1, 1));
    server.give(CLIENT, &marked(4, b"ping", waits));
    server.now += 5 * MS;
    assert_eq!((server.reply(4), server.cancelled), (Err(AnswerError::Gone), 2));
}

/// Late packets that are not lost go twice: they are to be few.
#[test]
fn of_an_end_that_does_not_come_sixteen_packets_are_asked_for_and_then_twice_as_many() {
    let mut server = Lone::new();
    server.give(CLIENT, &request(2, 100_000, 0, &[1; 1396]));
    server.pass(MS + MS / 10);
    assert_eq!(asked(&server.take()), [(1396, 16 * 1396)]);
    server.pass(2 * MS + MS / 10);
    assert_eq!(asked(&server.take()), [(1396, 32 * 1396)]);
    server.pass(4 * MS + MS / 10);
    assert_eq!(asked(&server.take()), [(1396, 64 * 1396)]);
    assert_eq!((server.node.metrics().resends, server.node.metrics().gaps), (3, 0));
}

#[test]
fn questions_about_holes_are_counted() {
    let mut server = Lone::new();
    [0, 2792].iter().for_each(|&offset| server.give(CLIENT, &part(2, 4188, offset, 1396)));
    server.pass(MS / 5);
    assert_eq!(asked(&server.take()), [(1396, 1396)]);
    assert_eq!((server.node.metrics().resends, server.node.metrics().gaps), (1, 1));
}

/// Data that are behind in the network's queues do not hold back those ahead.
#[test]
fn what_is_missing_is_asked_for_while_worse_data_come() {
    let mut server = Lone::new();
    server.give(CLIENT, &part(2, 9000, 0, 1396));
    for step in 0..11 {
        server.give("10.0.0.11:32769", &part(2, 1_000_000, step * 800, 800));
        server.pass(MS / 10);
    }
    assert_eq!(asked(&server.take()), [(1396, 9000 - 1396)]);
}

/// From when the grant went to when the first byte of it came. By it the server knows what of a
/// reply has just gone.
#[test]
fn the_first_byte_of_a_grant_measures_the_round_trip() {
    let resent = |after_ns: u64| {
        let mut server = Lone::new();
        server.give(CLIENT, &part(2, 12_000, 1396, 1396));
        assert_eq!(grants(&server.take()).len(), 1);
        server.now += 10_000;
        server.give(CLIENT, &part(2, 12_000, 0, 1396));
        server.now += 10_000;
        (2..9).for_each(|place: u32| {
            let offset = place * 1396;
            server.give(CLIENT, &part(2, 12_000, offset, (12_000 - offset).min(1396)));
        });
        server.reply(100).unwrap();
        server.now += after_ns;
        server.give(CLIENT, &resend(TO_SERVER, 2, 0, RESEND_ALL));
        server.node.metrics().resent_bytes
    };
    assert_eq!((resent(19_999), resent(20_000)), (0, 100));
}

/// The unscheduled part of a message and what was granted of it have two priorities, and the one
/// overtakes the other: a hole is not asked for at once, nor left alone for ever.
#[test]
fn a_hole_in_what_has_two_priorities_may_be_late_while_better_data_come() {
    let mut server = Lone::new();
    server.give("10.0.0.11:32769", &part(2, 900_000, 0, 1396));
    [0, 2792].iter().for_each(|&from| server.give(CLIENT, &part(4, 500_000, from, 1396)));
    let levels: Vec<(u64, u8)> =
        grants(&server.take()).iter().map(|&(id, _, level)| (id, level)).collect();
    assert!(levels.contains(&(4, 1)), "{levels:?}");
    let mut step = 0;
    let mut asked_in = |steps: usize| {
        (0..steps).any(|_| {
            step += 1;
            server.give("10.0.0.12:32769", &part(1000 + 2 * step, 100, 0, 100));
            server.pass(MS / 10);
            asked(&server.take()).contains(&(1396, 1396))
        })
    };
    assert_eq!((asked_in(29), asked_in(6)), (false, true));
}

/// Data that were sent behind it have come, so that nothing can have overtaken it.
#[test]
fn a_hole_in_what_has_one_priority_is_asked_for_while_better_data_come() {
    let mut server = Lone::new();
    [0, 2792].iter().for_each(|&from| server.give(CLIENT, &part(4, 4188, from, 1396)));
    for step in 1..=3 {
        server.give("10.0.0.12:32769", &part(1000 + 2 * step, 100, 0, 100));
        server.pass(MS / 10);
    }
    assert_eq!(asked(&server.take()), [(1396, 1396)]);
}

/// Its server goes on with what is as good, for 3 ms at most.
#[test]
fn a_call_is_not_asked_about_while_a_long_reply_to_another_comes() {
    let mut client = Lone::new();
    (0..2).for_each(|_| client.call(10).unwrap());
    let other = id_of(&client.take()) + 2;
    let mut asked_in = |steps: std::ops::Range<u32>| {
        steps.map(|step| step * 100).any(|from| {
            client.pass(MS / 10);
            client.give(SERVER, &data_of_reply(other, 500_000, from, &[1; 100]));
            asked(&client.take()).contains(&(0, RESEND_ALL))
        })
    };
    assert_eq!((asked_in(0..25), asked_in(25..60)), (false, true));
}

/// And not when the question before would have been repeated.
#[test]
fn what_comes_after_a_question_is_waited_for_as_if_none_had_been_put() {
    let mut server = Lone::new();
    server.give(CLIENT, &part(2, 9000, 0, 1396));
    server.pass(MS + MS / 10);
    assert_eq!(asked(&server.take()).len(), 1);
    server.give(CLIENT, &part(2, 9000, 1396, 1396));
    server.pass(MS + MS / 10);
    assert_eq!(asked(&server.take()), [(2792, 9000 - 2792)]);
}

/// The driver offered no room when something was last to be sent: what was sent before may wait
/// there for as long as that took.
#[test]
fn what_may_still_wait_for_a_device_that_took_no_more_is_not_sent_again() {
    for (room, resent) in [(GSO_BYTES_MAX, 1000), (100, 0)] {
        let mut client = Lone::new();
        client.call(800_000).unwrap();
        let id = id_of(&client.take()) ^ 1;
        client.give(SERVER, &grant(TO_CLIENT, id, 400_000, 3));
        client.now += 10 * MS;
        let mut more = grant(TO_CLIENT, id, 401_000, 3);
        client.node.handle_datagram(client.now, path(SERVER), &mut more);
        assert_eq!(client.node.poll_transmit(client.now, &mut vec![0; room]).is_some(), room > 100);
        client.settle();
        let before = client.node.metrics().resent_bytes;
        client.now += MS;
        client.give(SERVER, &resend(TO_CLIENT, id, 400_000, 1000));
        assert_eq!(client.node.metrics().resent_bytes - before, resent, "room for {room} bytes");
    }
}

/// While nothing was asked of it, it was not slow.
#[test]
fn a_peer_that_had_nothing_to_answer_is_as_fast_as_before() {
    let mut client = Lone::new();
    for _ in 0..2 {
        (0..60).for_each(|_| client.call(10).unwrap());
        let ids: Vec<u64> =
            client.take().iter().map(|sent| sent.packet().common.sender_id.get()).collect();
        for id in ids {
            client.now += 1_000;
            client.give(SERVER, &acks::known_reply(id, b"pong"));
        }
        client.pass(SECOND);
        client.take();
    }
    (0..2).for_each(|_| client.call(10).unwrap());
    let second = id_of(&client.take()) + 2;
    let questions = (0..20).filter(|_| {
        client.pass(MS / 10);
        client.give(SERVER, &plain(PacketType::Busy, TO_CLIENT, second ^ 1));
        !asked(&client.take()).is_empty()
    });
    assert!(questions.count() > 0, "the first call is lost, though its server says something");
}
