//! Acknowledgements of calls that have ended, and control packets in batches.

use super::*;

/// The module's server asks every millisecond, for ever.
#[test]
fn the_last_reply_of_a_server_without_flags_is_acknowledged_at_once() {
    let mut client = Lone::new();
    for _ in 0..2 {
        client.call(10).unwrap();
    }
    let ids: Vec<u64> =
        client.take().iter().map(|sent| sent.packet().common.sender_id.get()).collect();
    client.give(SERVER, &data_of_reply(ids[0], 4, 0, b"pong"));
    assert_eq!(client.take_types(), [], "another call is outstanding");
    client.give(SERVER, &data_of_reply(ids[1], 4, 0, b"pong"));
    let sent = client.take();
    let Body::Ack(acks) = sent[0].packet().body else { panic!("not an ack") };
    let named: Vec<u64> = acks.iter().map(|ack| ack.client_id.get()).collect();
    assert_eq!((sent.len(), sent[0].packet().common.sender_id.get()), (1, ids[0]));
    assert_eq!(named, [ids[1]], "one by one, since it knows no ranges");
    client.pass(100 * MS);
    assert_eq!(client.take_types(), []);
}

#[test]
fn a_client_that_goes_acknowledges_what_it_has() {
    let mut client = Lone::new();
    for _ in 0..3 {
        client.call(10).unwrap();
    }
    let ids: Vec<u64> =
        client.take().iter().map(|sent| sent.packet().common.sender_id.get()).collect();
    ids[..2].iter().for_each(|&id| client.give(SERVER, &known_reply(id, b"pong")));
    assert_eq!(client.take_types(), [], "that waits for the next call");
    client.node.say_farewell();
    client.settle();
    let sent = client.take();
    let Body::Ack(acks) = sent[0].packet().body else { panic!("not an ack") };
    let named: Vec<u64> = acks.iter().map(|ack| ack.client_id.get()).collect();
    assert_eq!((sent.len(), sent[0].packet().common.sender_id.get()), (1, ids[0]));
    assert_eq!(named, [ids[1]]);
    client.node.say_farewell();
    client.settle();
    assert_eq!(client.take_types(), [], "there is nothing more to say");
}

/// Half of the time after which the server asks.
#[test]
fn an_acknowledgement_that_nothing_takes_along_goes_after_a_millisecond() {
    let mut client = Lone::new();
    client.call(10).unwrap();
    let id = id_of(&client.take());
    client.give(SERVER, &known_reply(id, b"pong"));
    client.pass(MS - 100_000);
    assert_eq!(client.take_types(), []);
    client.pass(200_000);
    assert_eq!(client.take_types(), [PacketType::Ack]);
}

/// Whoever sleeps would be woken for nothing.
#[test]
fn an_acknowledgement_that_a_call_takes_along_has_no_timer() {
    let mut client = Lone::new();
    client.call(10).unwrap();
    let id = id_of(&client.take());
    // So long that the next call is not asked about before.
    client.pass(5 * MS);
    client.give(SERVER, &known_reply(id, b"pong"));
    let after = |client: &Lone| client.node.poll_timeout().unwrap() - client.now;
    assert!(after(&client) <= MS, "to be said by itself");
    client.now += MS / 10;
    client.call(10).unwrap();
    assert!(after(&client) > MS, "when the call is asked about");
    client.give(SERVER, &known_reply(id + 2, b"pong"));
    assert!(after(&client) <= MS, "the next one's");
}

#[test]
fn who_acknowledges_late_is_asked_later() {
    let mut server = Lone::new();
    let asked_after = |server: &mut Lone, id| {
        server.give(CLIENT, &marked(id, b"ping", |header| header.time_left = 0.into()));
        server.reply(4).unwrap();
        server.take();
        (1..500).find(|_| {
            server.pass(MS / 10);
            server.take_types() == [PacketType::NeedAck]
        })
    };
    let acknowledge = |server: &mut Lone, id| {
        server.give(CLIENT, &marked(id + 2, b"ping", |header| header.ack = Ack::new(id, 99)));
        server.take();
    };
    assert!((20..=23).contains(&asked_after(&mut server, 2).unwrap()), "tenths of a millisecond");
    server.pass(10 * MS);
    acknowledge(&mut server, 2);
    // 12 ms, and four times as much again as half of it, were it not for the bound.
    assert!((320..=324).contains(&asked_after(&mut server, 6).unwrap()));
    for id in (10..400).step_by(4) {
        server.give(CLIENT, &marked(id, b"ping", |header| header.time_left = 0.into()));
        server.reply(4).unwrap();
        acknowledge(&mut server, id);
    }
    assert!((20..=23).contains(&asked_after(&mut server, 400).unwrap()), "it is fast again");
}

#[test]
fn a_reply_that_is_longer_than_the_client_takes_ends_the_call() {
    let mut client = Lone::with(|config| config.message_len_max = 50_000);
    for (len, is_taken) in [(50_000, true), (50_001, false)] {
        client.call(10).unwrap();
        let id = id_of(&client.take());
        client.give(SERVER, &data_of_reply(id, len, 0, &[7; 1000]));
        let failed = if is_taken { vec![] } else { vec![Failure::ReplyTooLarge] };
        assert_eq!(client.failures, failed, "{len}");
    }
}

#[test]
fn a_range_acknowledges_as_many_as_it_says() {
    let mut server = Lone::new();
    for id in (2..=20).step_by(2) {
        server.give(CLIENT, &request(id, 4, 0, b"ping"));
        server.reply(4).unwrap();
    }
    server.give(CLIENT, &marked(22, b"ping", |header| header.ack = Ack::range(8, 3)));
    assert_eq!(server.node.holdings().requests, 8, "4, 6 and 8 went and 22 came");
    server.give(CLIENT, &marked(24, b"ping", |header| header.ack = Ack::range(60, 20)));
    assert_eq!(server.node.holdings().requests, 9, "22 is the 20th of a packet");
    assert_eq!(server.node.metrics().protocol_violation, 1);
    let mut packet = ack(TO_SERVER, 2, &[0]);
    packet[30..40].copy_from_slice(Ack::range(20, 6).as_bytes());
    server.give(CLIENT, &packet);
    assert_eq!(server.node.holdings().requests, 2, "22 and 24");
}

#[test]
fn control_packets_to_one_peer_leave_in_a_gso_batch() {
    let mut server = Lone::new();
    for id in (2..=80).step_by(2) {
        server.give(CLIENT, &request(id, 4, 0, b"ping"));
    }
    server.take();
    let mut buffer = vec![0; GSO_BYTES_MAX];
    for id in (2..=80).step_by(2) {
        let mut packet = resend(TO_SERVER, id, 0, RESEND_ALL);
        server.node.handle_datagram(server.now, path(CLIENT), &mut packet);
    }
    let counts: Vec<usize> = std::iter::from_fn(|| {
        server.node.poll_transmit(server.now, &mut buffer).map(|batch| batch.datagram_count())
    })
    .collect();
    assert_eq!(counts, [32, 8], "forty BUSYs");
}

/// DATA of a reply of a server that knows flags.
pub(super) fn known_reply(id: u64, bytes: &[u8]) -> Vec<u8> {
    let mut packet = data_of_reply(id, bytes.len() as u32, 0, bytes);
    packet[49] = DataFlags::KNOWN;
    packet
}
