//! Batches of packets that go out together, and their priorities; what grants allow.

use super::*;

const OTHER: &str = "10.0.0.11:32769";

/// Number of datagrams in each batch that is sent now.
fn batches(lone: &mut Lone) -> Vec<usize> {
    let mut buffer = vec![0; GSO_BYTES_MAX];
    let next = || lone.node.poll_transmit(lone.now, &mut buffer);
    std::iter::from_fn(next).map(|transmit| transmit.datagram_count()).collect()
}

/// A module's window of `window` bytes, and nothing for the oldest.
fn windows(window: u32, overcommit: usize) -> Lone {
    Lone::with(|config| {
        let (incoming_max, fifo_permille, fifo_increment) = (400_000, 0, 0);
        config.grants.policy =
            GrantPolicy::Module { window, incoming_max, fifo_permille, fifo_increment };
        config.grants.overcommit = overcommit;
    })
}

#[test]
fn a_batch_is_no_longer_than_it_may_be() {
    let mut server = Lone::with(|config| config.gso_batch_len_max = 8);
    for id in 1..=20 {
        let mut packet = resend(TO_SERVER, 2 * id, 0, RESEND_ALL);
        server.node.handle_datagram(server.now, path(CLIENT), &mut packet);
    }
    assert_eq!(batches(&mut server), [8, 8, 4], "control packets");
    server.give(CLIENT, &marked(2, b"ping", |_| {}));
    server.take();
    let id = server.requests[0].0;
    server.node.reply(server.now, id, vec![1; 20 * 1396]).unwrap();
    assert_eq!(batches(&mut server), [8, 8, 4], "data");
}

#[test]
fn acknowledgements_that_go_by_themselves_are_in_batches_as_long_as_may_be() {
    let mut client = Lone::with(|config| config.gso_batch_len_max = 2);
    let mut ids = Vec::new();
    for _ in 0..60 {
        client.call(10).unwrap();
        ids.extend(client.take().iter().map(|sent| sent.packet().common.sender_id.get()));
    }
    // A server without flags has them one by one: six in a packet.
    let replies = ids[..59].iter().map(|&id| data_of_reply(id, 4, 0, b"pong"));
    replies.for_each(|packet| client.give(SERVER, &packet));
    client.take();
    client.node.say_farewell();
    let before = client.node.metrics().datagrams_out;
    assert_eq!(batches(&mut client), [2, 2, 2, 2, 2]);
    assert_eq!(
        (client.node.metrics().datagrams_out - before, client.node.metrics().acks),
        (10, 10)
    );
}

#[test]
fn packets_of_two_priorities_are_not_in_one_batch() {
    let mut server = Lone::new();
    for id in [2, 4] {
        server.give(CLIENT, &marked(id, b"ping", |_| {}));
    }
    server.node.reply(server.now, server.requests[0].0, vec![1; 1396]).unwrap();
    server.settle();
    server.take();
    server.now += MS;
    let mut packet = resend(TO_SERVER, 2, 0, RESEND_ALL);
    server.node.handle_datagram(server.now, path(CLIENT), &mut packet);
    server.node.reply(server.now, server.requests[1].0, vec![2; 1396]).unwrap();
    server.drain();
    let mut found: Vec<(u64, u8)> = server
        .take()
        .iter()
        .map(|sent| (sent.packet().common.sender_id.get() & !1, sent.priority))
        .collect();
    found.sort_unstable();
    assert_eq!(found, [(2, 3), (4, 6)], "what was asked for at 3, and what is new");
}

/// 9328 bytes in seven packets, each at the level of what is left with it.
#[test]
fn sigcomm_sends_each_packet_at_the_level_of_what_remains() {
    let mut client = Lone::with(sigcomm(4));
    client.call(12_000).unwrap();
    let found: Vec<(u32, usize, u8)> = client
        .take()
        .iter()
        .map(|sent| (sent.data().0.offset(), sent.data().1.len(), sent.priority))
        .collect();
    let levels = [5, 5, 5, 5, 5, 6, 6];
    let expected: Vec<(u32, usize, u8)> = (0..7)
        .zip(levels)
        .map(|(place, level)| (1442 * place, if place < 6 { 1442 } else { 676 }, level))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn sigcomm_lets_no_message_be_cut_evenly_and_no_packet_go_with_another() {
    let mut client = Lone::with(sigcomm(4));
    let (target, deadline) = (SERVER.parse().unwrap(), client.now + SECOND);
    let (payload, options) = (vec![1; 2884], CallOptions::default());
    client.node.call(client.now, Call { target, payload, deadline, context: 7, options }).unwrap();
    assert_eq!(batches(&mut client), [1, 1]);
    client.call(2000).unwrap();
    let lens: Vec<Option<usize>> = client.take().iter().map(Sent::payload_len).collect();
    assert_eq!(lens, [Some(1442), Some(558)]);
}

/// Six packets of 1538 bytes and one with as much of 10,000 as is left: 9426 bytes of data.
#[test]
fn sigcomm_boosts_what_is_in_flight_at_once_with_what_packets_cost() {
    for (left, level) in [(9426, 5), (9427, 0)] {
        let mut server = Lone::with(sigcomm(4));
        server.give(CLIENT, &part(2, 9328 + left, 0, 1442));
        assert_eq!(grants(&server.take()), [(2, 9328 + 1456, level)], "{left} bytes");
    }
}

#[test]
fn sigcomm_gives_a_grant_that_had_to_wait_at_its_time_and_looks_no_sooner() {
    let mut server = Lone::with(sigcomm(4));
    server.give(CLIENT, &part(2, 100_000, 0, 1442));
    server.take();
    let full_at = server.node.poll_timeout().expect("it would be asked for");
    assert!(full_at > server.now + MS / 10, "10,000 bytes are in flight");
    server.give(CLIENT, &part(2, 100_000, 1442, 1442));
    let at = server.node.poll_timeout().expect("a grant waits");
    assert_eq!(at, server.now + 1231);
    for late_ns in [0, 5000] {
        let mut server = Lone::with(sigcomm(4));
        [0, 1442].iter().for_each(|&from| server.give(CLIENT, &part(2, 100_000, from, 1442)));
        server.take();
        server.now = at + late_ns;
        server.node.handle_timeout(server.now);
        server.drain();
        assert_eq!(grants(&server.take()), [(2, 9328 + 2 * 1456, 0)], "{late_ns} ns late");
    }
}

/// 2672 bytes need two grants; whoever takes the place has one in the time of the last.
#[test]
fn sigcomm_gives_the_place_of_a_request_that_is_granted_whole_to_the_next_at_once() {
    let mut server = Lone::with(sigcomm(1));
    server.give(CLIENT, &part(2, 12_000, 0, 1442));
    for offset in (0..9328).step_by(1442) {
        server.give(OTHER, &part(4, 50_000, offset, (9328 - offset).min(1442)));
    }
    server.pass(2000);
    server.take();
    server.give(CLIENT, &part(2, 12_000, 1442, 1442));
    assert_eq!(grants(&server.take()), [(2, 12_000, 6), (4, 10_784, 0)]);
}

/// Less than a packet is not worth one.
#[test]
fn a_window_is_opened_by_packets() {
    for (window, expected) in [(9328 - 1, vec![]), (9328, vec![(2, 10_724, 0)])] {
        let mut server = windows(window, 8);
        server.give(CLIENT, &part(2, 500_000, 0, 1396));
        assert_eq!(grants(&server.take()), expected, "a window of {window}");
    }
}

#[test]
fn a_message_that_needs_no_grant_takes_no_place() {
    let mut server = windows(10_000, 1);
    server.give(CLIENT, &part(2, 5000, 0, 1396));
    server.give(OTHER, &part(2, 500_000, 0, 1396));
    assert_eq!(grants(&server.take()), [(2, 11_396, 0)]);
}

/// The best of each client come first, and then the best of the others, whoever they are of.
#[test]
fn places_that_clients_leave_are_for_more_of_their_messages() {
    let mut server = windows(10_000, 3);
    let mut step = |from: &str, id: u64, len: u32, offset: u32| {
        server.give(from, &part(id, len, offset, 1396));
        grants(&server.take())
    };
    assert_eq!(step(CLIENT, 8, 100_000, 0), [(8, 11_396, 0)]);
    assert_eq!(step(CLIENT, 6, 200_000, 0), [(6, 11_396, 0)]);
    assert_eq!(step(CLIENT, 4, 300_000, 0), [(4, 11_396, 0)]);
    assert_eq!(step(CLIENT, 2, 400_000, 0), [], "three have grants");
    assert_eq!(step(CLIENT, 10, 150_000, 0), [(10, 11_396, 1)], "it is better than the third");
    assert_eq!(step(CLIENT, 4, 300_000, 1396), []);
    assert_eq!(step(CLIENT, 6, 200_000, 1396), [(6, 12_792, 0)]);
    assert_eq!(step(CLIENT, 8, 100_000, 1396), [(8, 12_792, 2)]);
    assert_eq!(step(OTHER, 12, 500_000, 0), [(12, 11_396, 1)], "the best of its client");
    assert_eq!(step(CLIENT, 6, 200_000, 2792), [], "one place is left, for the next best");
    assert_eq!(step(CLIENT, 10, 150_000, 1396), [(10, 12_792, 0)]);
}

/// Nothing but the link, which takes more than 100 ms for a packet, brings it on.
#[test]
fn a_call_that_the_link_holds_back_wakes_its_client_seldom() {
    let link = Some(Link { bits_per_second: 100_000, queue_ns_max: 1000, bypass_len: 0 });
    let mut client = Lone::with(|config| config.link = link);
    client.call(5000).unwrap();
    let (until, mut woken) = (client.now + SECOND / 10, 0);
    while let Some(at) = client.node.poll_timeout().filter(|&at| at <= until) {
        client.now = at.max(client.now + 1);
        client.node.handle_timeout(client.now);
        client.settle();
        woken += 1;
    }
    assert!(woken <= 20, "{woken} times in 100 ms");
}
