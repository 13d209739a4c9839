//! Version 1 of R2P2, by both halves of an endpoint: packets in order, nothing sent again.

use std::net::SocketAddr;

use tailcut_proto::r2p2::Config;
use tailcut_proto::rpc::{AnswerError, CallOptions, Event, Failure, Rpc};
use tailcut_wire::r2p2::{
    BASE_LEN, DropReason, MessageType, Packet, Policy, V1_ACK, V1_FIRST_LEN, V1_PACKETS_MAX,
    V1_SEGMENT_LEN, V1Repr,
};
use zerocopy::IntoBytes;

use super::r2p2_support::*;

const V1: CallOptions = CallOptions { v1: true, ..ONCE };

/// Packet `index` of `count`.
fn packet(kind: MessageType, rid: u16, (index, count): (u16, u16), payload: &[u8]) -> Vec<u8> {
    let repr = V1Repr { kind, policy: Policy::Fixed, rid, index, count };
    [repr.header().as_bytes(), payload].concat()
}

fn ask(rid: u16, place: (u16, u16), payload: &[u8]) -> Vec<u8> {
    packet(MessageType::Request, rid, place, payload)
}

/// A reply's packet, or an ACK of a server.
fn answer(kind: MessageType, to: &Sent, place: (u16, u16), payload: &[u8]) -> Vec<u8> {
    packet(kind, to.packet().rid, place, payload)
}

fn server_with(change: impl FnOnce(&mut Config)) -> Solo {
    Solo::new(|config| {
        config.serving.trusted.push("10.2.0.0/16".parse().unwrap());
        change(config);
    })
}

/// A server that has been asked by a request of these packets.
fn asked_by(mut server: Solo, from: SocketAddr, pieces: &[&[u8]]) -> Solo {
    let count = pieces.len() as u16;
    for (index, piece) in pieces.iter().enumerate() {
        server.give(from, &ask(7, (index as u16, count), piece));
    }
    server
}

#[test]
fn a_request_is_put_together_in_order_and_its_first_packet_acknowledged() {
    let mut server = server_with(|_| {});
    let said = server.give(host(1), &ask(7, (0, 3), b"ab"));
    assert_eq!(
        (kinds(&said), said[0].packet().payload),
        (vec![(MessageType::Ack, 0)], &V1_ACK[..])
    );
    assert_eq!(server.node.holdings().partials, 1);
    assert!(server.give(host(1), &ask(7, (1, 3), b"cd")).is_empty());
    assert_eq!(server.node.holdings().held_bytes, 4);
    assert!(server.give(host(1), &ask(7, (2, 3), b"ef")).is_empty());
    let Some(Event::Request { payload, options, client, .. }) = server.node.poll_event() else {
        panic!("there is a request");
    };
    assert_eq!((&payload[..], options, client), (&b"abcdef"[..], V1, host(1)));
    assert_eq!((server.node.holdings().partials, server.node.holdings().waiting), (0, 1));
}

#[test]
fn what_comes_again_is_counted_and_not_taken() {
    let mut server = asked_by(server_with(|_| {}), host(1), &[b"ab"]);
    server.give(host(1), &ask(7, (0, 1), b"ab"));
    assert_eq!((server.metrics().repeated, server.metrics().requests), (1, 1));
    server.give(host(1), &ask(8, (1, 3), b"cd"));
    assert_eq!(server.metrics().unknown, 1);
    server.give(host(1), &ask(8, (0, 3), b"ab"));
    server.give(host(1), &ask(8, (1, 3), b"cd"));
    server.give(host(1), &ask(8, (1, 3), b"cd"));
    assert_eq!((server.metrics().duplicates, server.metrics().protocol_violation), (1, 0));
    assert_eq!(server.node.holdings().partials, 1);
}

/// Lost packets are not asked for, and the client sends each once.
#[test]
fn a_request_out_of_order_or_too_long_ends() {
    for (limit, second) in [
        (100, ask(7, (2, 3), b"ef")),
        (100, ask(7, (2, 4), b"ef")),
        (100, ask(7, (1, 2), b"cd")),
        (3, ask(7, (1, 3), b"cd")),
    ] {
        let mut server = server_with(|config| config.message_len_max = limit);
        server.give(host(1), &ask(7, (0, 3), b"ab"));
        server.give(host(1), &second);
        assert_eq!((server.metrics().protocol_violation, server.node.holdings().partials), (1, 0));
        assert_eq!(server.node.holdings().requests, 0);
    }
    let mut server =
        asked_by(server_with(|config| config.message_len_max = 4), host(1), &[b"ab", b"cd"]);
    assert!(server.request().is_some(), "it is as long as the limit");
}

#[test]
fn replies_go_in_one_burst_and_are_forgotten() {
    let mut server = asked_by(server_with(|_| {}), host(1), &[b"ab"]);
    let id = server.request().unwrap();
    server.node.reply(server.now, id, vec![7; 2 * V1_SEGMENT_LEN + 1]).unwrap();
    assert_eq!(server.node.holdings().waiting, 0);
    let said = server.sent();
    let lens: Vec<_> = said.iter().map(|sent| sent.packet().payload.len()).collect();
    assert_eq!(lens, [V1_SEGMENT_LEN, V1_SEGMENT_LEN, 1]);
    assert!(said.iter().all(|sent| sent.packet().rid == 7));
    assert_eq!((server.node.holdings().requests, server.node.holdings().held_bytes), (0, 0));
    server.give(host(1), &ask(7, (0, 1), b"ab"));
    assert!(server.request().is_some(), "the request id is used again");
}

#[test]
fn a_reply_is_as_long_as_the_limit() {
    for len in [300, 301] {
        let server = server_with(|config| config.message_len_max = 300);
        let mut server = asked_by(server, host(1), &[b"ab"]);
        let id = server.request().unwrap();
        let replied = server.node.reply(server.now, id, vec![7; len]);
        let kind = server.sent()[0].kind().0;
        if len == 300 {
            assert_eq!((replied, kind), (Ok(()), MessageType::Response));
        } else {
            assert_eq!(replied, Err(AnswerError::TooLarge { len, limit: 300 }));
            assert_eq!(kind, MessageType::Drop);
            assert_eq!(server.metrics().drops[DropReason::TooLarge as usize], 1);
        }
    }
}

/// Three bytes for one, with the headers of both.
#[test]
fn a_stranger_gets_no_more_than_three_bytes_for_one() {
    let paid = 3 * (2 * BASE_LEN + 1_000 + 500);
    let headers = paid.div_ceil(V1_SEGMENT_LEN) * BASE_LEN;
    for (len, is_sent) in [(paid - headers, true), (paid - headers + 1, false)] {
        let pieces = [&[1; 1_000][..], &[2; 500]];
        let mut server = asked_by(Solo::new(|_| {}), host(1), &pieces);
        let id = server.request().unwrap();
        let replied = server.node.reply(server.now, id, vec![7; len]);
        let sent: usize = server.sent().iter().map(|sent| sent.bytes.len()).sum();
        let expected = if is_sent { (Ok(()), paid) } else { (Err(AnswerError::Unvalidated), sent) };
        assert_eq!((replied, sent), expected);
    }
}

#[test]
fn strangers_do_not_take_the_places_of_clients_that_are_known() {
    let mut server = Solo::new(|config| config.clients_max = 2);
    server.give(host(1), &ask(7, (0, 1), b"ab"));
    assert!(server.request().is_some());
    let said = server.give(host(2), &ask(7, (0, 1), b"ab"));
    assert_eq!((kinds(&said), server.request()), (vec![(MessageType::Drop, 0)], None));
    server.give(host(1), &ask(8, (0, 1), b"ab"));
    assert!(server.request().is_some());
}

#[test]
fn a_request_of_several_packets_needs_a_place_among_the_half_received() {
    for (count, is_taken) in [(1, true), (2, false)] {
        let mut server = server_with(|config| config.serving.partials_max = 0);
        let said = server.give(host(1), &ask(7, (0, count), b"ab"));
        assert_eq!(said.is_empty(), is_taken, "{count} packets");
    }
}

#[test]
fn a_request_that_there_is_no_room_for_ends() {
    let mut server = server_with(|config| config.serving.held_bytes_max = 3);
    server.give(host(1), &ask(7, (0, 4), b"ab"));
    server.give(host(1), &ask(7, (1, 4), b"cd"));
    assert_eq!((server.metrics().protocol_violation, server.node.holdings().partials), (0, 1));
    server.give(host(1), &ask(7, (2, 4), b"ef"));
    assert_eq!((server.metrics().protocol_violation, server.node.holdings().partials), (1, 0));
}

#[test]
fn the_router_hears_of_each_request_that_ends() {
    let mut server = server_with(|config| config.pool.router = Some(host(9)));
    server.give(host(1), &ask(7, (0, 1), b"ab"));
    let id = server.request().unwrap();
    server.node.reply(server.now, id, vec![7]).unwrap();
    let said = server.sent();
    assert_eq!(targets(&said), [host(1), host(9)]);
    let body = [&7u16.to_be_bytes()[..], &8_000u16.to_be_bytes(), &[10, 2, 0, 1]].concat();
    assert_eq!((said[1].kind().0, said[1].packet().payload), (MessageType::Feedback, &body[..]));
    assert_eq!(server.metrics().feedback, 1);
}

/// A client whose call has several packets: 14 bytes go first, the rest by the ACK.
fn calling() -> (Solo, Sent) {
    let mut client = Solo::new(|_| {});
    let first = client.called(host(1), V1_SEGMENT_LEN + 1, V1);
    assert_eq!(first.packet().payload.len(), V1_FIRST_LEN);
    (client, first)
}

#[test]
fn the_rest_of_a_request_goes_to_who_has_acknowledged_it() {
    let (mut client, first) = calling();
    let rest = client.give(host(3), &answer(MessageType::Ack, &first, (0, 1), V1_ACK));
    assert_eq!(
        (targets(&rest), rest[0].packet().payload.len()),
        (vec![host(3)], V1_SEGMENT_LEN + 1 - V1_FIRST_LEN)
    );
}

#[test]
fn an_ack_that_nothing_waits_for_is_refused() {
    let (mut client, first) = calling();
    let ack = |payload: &[u8]| answer(MessageType::Ack, &first, (0, 1), payload);
    assert!(client.give(host(3), &ack(b"xyz")).is_empty(), "three other bytes");
    assert_eq!(client.metrics().protocol_violation, 1);
    assert!(!client.give(host(3), &ack(V1_ACK)).is_empty());
    assert!(client.give(host(4), &ack(V1_ACK)).is_empty(), "it is at a server");
    assert_eq!(client.metrics().protocol_violation, 2);
    let one = client.called(host(1), 4, V1);
    client.give(host(3), &answer(MessageType::Ack, &one, (0, 1), V1_ACK));
    assert_eq!((client.metrics().protocol_violation, client.metrics().unknown), (3, 0));
    client.give(host(3), &packet(MessageType::Ack, 99, (0, 1), V1_ACK));
    client.give(host(3), &packet(MessageType::Response, 99, (0, 1), b"ab"));
    assert_eq!(client.metrics().unknown, 2);
}

#[test]
fn a_reply_is_put_together_in_order() {
    let mut client = Solo::new(|_| {});
    let sent = client.called(host(1), 4, V1);
    let packet = |place, payload: &[u8]| answer(MessageType::Response, &sent, place, payload);
    client.give(host(3), &packet((0, 3), b"ab"));
    client.give(host(3), &packet((0, 3), b"ab"));
    assert_eq!(client.metrics().duplicates, 1);
    client.give(host(3), &packet((1, 3), b"cd"));
    client.give(host(3), &packet((2, 3), b"ef"));
    assert_eq!(client.reply().as_deref(), Some(&b"abcdef"[..]));
    assert!(client.sent().is_empty(), "version 1 acknowledges no reply");
}

#[test]
fn a_reply_out_of_order_or_by_two_servers_is_broken() {
    for (from, place) in [(host(3), (2, 3)), (host(4), (1, 3))] {
        let mut client = Solo::new(|_| {});
        let sent = client.called(host(1), 4, V1);
        client.give(host(3), &answer(MessageType::Response, &sent, (0, 3), b"ab"));
        client.give(from, &answer(MessageType::Response, &sent, place, b"cd"));
        assert_eq!((client.failure(), client.metrics().failed), (Some(Failure::Broken), 1));
    }
}

#[test]
fn a_reply_has_as_many_packets_as_version_1_can_count() {
    let mut client = Solo::new(|_| {});
    let sent = client.called(host(1), 4, V1);
    for index in 0..V1_PACKETS_MAX {
        let bytes = answer(MessageType::Response, &sent, (index, V1_PACKETS_MAX), b"ab");
        assert!(Packet::parse(&bytes).is_ok());
        client.give(host(3), &bytes);
    }
    assert_eq!(client.reply().map(|reply| reply.len()), Some(2 * usize::from(V1_PACKETS_MAX)));
}

#[test]
fn a_long_request_without_a_place_among_the_half_received_is_refused() {
    for (count, expected) in [(1, vec![]), (2, vec![(MessageType::Drop, 0)])] {
        let mut server = server_with(|config| config.serving.partials_max = 0);
        assert_eq!(kinds(&server.give(host(1), &ask(7, (0, count), b"ab"))), expected);
    }
}

#[test]
fn a_request_is_as_long_as_its_packets_together() {
    let piece = [7; 100];
    let server = server_with(|config| config.message_len_max = 300);
    let mut server = asked_by(server, host(1), &[&piece, &piece, &piece]);
    assert_eq!((server.request().is_some(), server.metrics().protocol_violation), (true, 0));
}
