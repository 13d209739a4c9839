//! Control packets: which are believed, what each is answered with, and that each is counted.

use tailcut_wire::homa::Malformed;

use super::*;

/// A reply that went out less than this ago, where the round trip is not known, may not have
/// arrived.
const CROSSING_NS: u64 = 50_000;

/// A server that has answered request 2 with `len` bytes.
fn replied(len: usize) -> Lone {
    let mut server = Lone::new();
    server.give(CLIENT, &marked(2, b"ping", |_| {}));
    server.reply(len).unwrap();
    server.take();
    server
}

/// A client that has sent a request of 10 bytes, and its id.
fn calling(change: impl FnOnce(&mut Config)) -> (Lone, u64) {
    let mut client = Lone::with(change);
    client.call(10).unwrap();
    let id = id_of(&client.take());
    (client, id)
}

fn told_cutoffs(ports: Ports, id: u64, version: u16) -> Vec<u8> {
    let common = CommonHeader::new(PacketType::Cutoffs, ports, id);
    let cutoffs = [1_000_000.into(); 8];
    CutoffsPacket { common, cutoffs, version: version.into() }.as_bytes().to_vec()
}

/// Packets to a client, of which each but the last two says something of an RPC that it takes for
/// alive.
fn about(ports: Ports, id: u64) -> [Vec<u8>; 6] {
    let mut data = DataHeader::new(ports, id, 4, 0);
    data.incoming = 4.into();
    [
        grant(ports, id, 10, 3),
        plain(PacketType::Busy, ports, id),
        told_cutoffs(ports, id, 9),
        [data.as_bytes(), b"pong"].concat(),
        resend(ports, id, 0, RESEND_ALL),
        plain(PacketType::NeedAck, ports, id),
    ]
}

#[test]
fn what_names_an_rpc_with_other_ports_is_counted_and_not_answered() {
    let (mut client, id) = calling(|_| {});
    let other_port = Ports { source: 98, ..TO_CLIENT };
    for (place, packet) in about(other_port, id ^ 1).iter().enumerate() {
        client.give(SERVER, packet);
        assert_eq!(client.node.metrics().protocol_violation, place as u64 + 1);
    }
    assert_eq!((client.take_types(), client.replies.len()), (vec![], 0));
}

#[test]
fn what_names_no_rpc_is_counted_and_who_asks_is_answered() {
    let (mut client, id) = calling(|_| {});
    let packets = about(TO_CLIENT, (id ^ 1) + 2);
    for (place, packet) in packets[..5].iter().enumerate() {
        client.give(SERVER, packet);
        assert_eq!(client.node.metrics().unknown, place as u64 + 1);
    }
    assert_eq!(client.take_types(), [PacketType::RpcUnknown]);
    client.give(SERVER, &packets[5]);
    assert_eq!(client.take_types(), [PacketType::Ack], "what has ended needs to be kept no more");
    client.give(SERVER, &plain(PacketType::RpcUnknown, TO_CLIENT, (id ^ 1) + 2));
    assert_eq!((client.node.metrics().unknown, client.take_types()), (6, vec![]));
}

#[test]
fn what_is_no_packet_or_means_nothing_is_counted() {
    let mut lone = Lone::new();
    lone.give(CLIENT, &[0; 27]);
    let mut unknown_type = plain(PacketType::Busy, TO_SERVER, 2);
    unknown_type[11] = 0xff;
    lone.give(CLIENT, &unknown_type);
    let metrics = *lone.node.metrics();
    let malformed = |reason: Malformed| metrics.malformed[reason as usize];
    assert_eq!((malformed(Malformed::Truncated), malformed(Malformed::Type)), (1, 1));
    lone.give(CLIENT, &plain(PacketType::Freeze, TO_SERVER, 2));
    assert_eq!(lone.node.metrics().unexpected, 1);
    lone.give("224.0.0.1:32769", &request(2, 4, 0, b"ping"));
    assert_eq!((lone.node.metrics().protocol_violation, lone.requests.len()), (1, 0));
    assert_eq!((lone.node.metrics().datagrams_in, lone.take_types()), (4, vec![]));
}

#[test]
fn a_grant_is_of_what_is_sent_and_within_it() {
    let (mut client, id) = calling(|_| {});
    client.give(SERVER, &grant(TO_CLIENT, id ^ 1, 11, 3));
    assert_eq!(client.node.metrics().protocol_violation, 1);
    client.give(SERVER, &data_of_reply(id, 2000, 0, &[1; 1000]));
    client.give(SERVER, &grant(TO_CLIENT, id ^ 1, 10, 3));
    assert_eq!(client.node.metrics().unexpected, 1, "the server has all of the request");
    client.give(SERVER, &resend(TO_CLIENT, id ^ 1, 0, RESEND_ALL));
    assert_eq!((client.node.metrics().unexpected, client.take_types()), (2, vec![]));
    let mut server = Lone::new();
    server.give(CLIENT, &request(2, 4, 0, b"ping"));
    server.give(CLIENT, &grant(TO_SERVER, 2, 4, 3));
    assert_eq!(server.node.metrics().unexpected, 1, "there is no reply yet");
}

#[test]
fn a_range_that_is_asked_for_lies_within_the_message() {
    for (offset, length, is_within) in [
        (0, RESEND_ALL, true),
        (10_000, 0, true),
        (8_604, 1_396, true),
        (8_604, 1_397, false),
        (9_000, 5_000, false),
        (10_001, 0, false),
        (10_001, RESEND_ALL, false),
    ] {
        let mut server = replied(10_000);
        server.now += MS;
        server.give(CLIENT, &resend(TO_SERVER, 2, offset, length));
        let violations = server.node.metrics().protocol_violation;
        assert_eq!(violations, u64::from(!is_within), "{length} from {offset}");
        assert_eq!(server.take().is_empty(), !is_within, "{length} from {offset}");
    }
}

/// The question and the end of the reply cross each other; a hole below the end does not.
#[test]
fn what_has_just_gone_is_not_sent_again() {
    let asked = |after_ns: u64, offset: u32, length: u32| {
        let mut server = replied(10_000);
        server.now += after_ns;
        server.give(CLIENT, &resend(TO_SERVER, 2, offset, length));
        let resent = server.node.metrics().resent_bytes;
        let sent: usize = server.take().iter().filter_map(Sent::payload_len).sum();
        assert_eq!(sent as u64, resent);
        resent
    };
    // Of all the first packet.
    for (offset, length, bytes) in [(0, RESEND_ALL, 1_250), (8_604, 1_396, 1_396)] {
        assert_eq!(asked(0, offset, length), 0);
        assert_eq!(asked(CROSSING_NS - 1, offset, length), 0);
        assert_eq!(asked(CROSSING_NS, offset, length), bytes);
        assert_eq!(asked(10 * CROSSING_NS, offset, length), bytes);
    }
    assert_eq!(asked(0, 0, 1_396), 1_396);
}

/// As for the replies of an incast that a switch has dropped: its receiver says how fast they come
/// again.
#[test]
fn a_message_of_which_nothing_has_come_goes_again_as_it_is_granted() {
    let mut server = replied(10_000);
    server.now += MS;
    server.give(CLIENT, &resend(TO_SERVER, 2, 0, RESEND_ALL));
    let mut client = Lone::new();
    client.call(10_000).unwrap();
    let id = id_of(&client.take());
    client.pass(2 * MS);
    client.take();
    client.give(SERVER, &plain(PacketType::RpcUnknown, TO_CLIENT, id ^ 1));
    for (mut node, peer, ports, id) in
        [(server, CLIENT, TO_SERVER, 2), (client, SERVER, TO_CLIENT, id ^ 1)]
    {
        let data = |sent: &[Sent]| -> Vec<(u32, u32, bool)> {
            let of = |sent: &Sent| match sent.packet().body {
                Body::Data { header, payload } => Some((
                    header.incoming.get(),
                    header.offset() + payload.len() as u32,
                    header.retransmit != 0,
                )),
                _ => None,
            };
            sent.iter().filter_map(of).collect()
        };
        assert_eq!(data(&node.take()), [(1250, 1250, true)], "{peer}");
        node.give(peer, &grant(ports, id, 10_000, 3));
        let rest = data(&node.take());
        assert!(rest.iter().all(|packet| packet.0 == 10_000 && packet.2), "{rest:?}");
        assert_eq!(rest.last().map(|packet| packet.1), Some(10_000));
        assert_eq!(node.node.metrics().resent_bytes, 10_000);
    }
}

#[test]
fn who_asks_too_early_hears_busy() {
    for (offset, length) in [(0, RESEND_ALL), (8_604, 1_396)] {
        let mut server = replied(10_000);
        server.give(CLIENT, &resend(TO_SERVER, 2, offset, length));
        assert_eq!(server.take_types(), [PacketType::Busy]);
    }
}

/// Part of its request has been lost, which a client that asks for its reply cannot know.
#[test]
fn a_client_that_misses_its_reply_is_asked_for_what_is_missing_of_its_request() {
    for (after_ns, expected) in [(MS / 10, PacketType::Busy), (MS * 15 / 100, PacketType::Resend)] {
        let mut server = Lone::new();
        server.give(CLIENT, &request(2, 2000, 0, &[1; 1396]));
        server.now += after_ns;
        server.give(CLIENT, &resend(TO_SERVER, 2, 0, RESEND_ALL));
        assert_eq!(server.take_types(), [expected], "after {after_ns} ns");
    }
}

/// It may be that what it must echo was lost.
#[test]
fn a_stranger_that_misses_its_reply_is_told_again_what_to_echo() {
    let mut server = Lone::new();
    server.give(STRANGER, &marked(2, b"ping", |_| {}));
    server.reply(1000).unwrap();
    assert!(server.take().iter().all(|sent| sent.payload_len().is_none()));
    assert_eq!(server.node.metrics().amplification_limited, 1);
    server.give(STRANGER, &marked(2, b"ping", |_| {}));
    server.take();
    server.give(STRANGER, &resend(TO_SERVER, 2, 0, RESEND_ALL));
    assert_eq!(server.take_types(), [PacketType::Cutoffs; 2], "the second is the demand");
    assert_eq!(server.node.metrics().amplification_limited, 3);
}

#[test]
fn a_server_that_has_asked_believes_that_its_client_knows_nothing() {
    let unknown = plain(PacketType::RpcUnknown, TO_SERVER, 2);
    let mut server = replied(100);
    server.give(CLIENT, &unknown);
    assert_eq!((server.node.metrics().unexpected, server.node.holdings().requests), (1, 1));
    server.pass(3 * MS);
    assert_eq!(server.take_types(), [PacketType::NeedAck]);
    server.give(CLIENT, &unknown);
    assert_eq!((server.node.metrics().unexpected, server.node.holdings()), (1, Default::default()));
    let mut server = Lone::new();
    server.give(CLIENT, &request(2, 2000, 0, &[1; 1396]));
    server.give(CLIENT, &unknown);
    assert_eq!(server.node.holdings().partials, 1);
    server.pass(2 * MS);
    server.give(CLIENT, &unknown);
    assert_eq!(server.node.holdings(), Default::default());
}

#[test]
fn a_call_whose_server_has_released_the_reply_has_run() {
    let (mut client, id) = calling(|_| {});
    client.give(SERVER, &data_of_reply(id, 2000, 0, &[1; 1396]));
    client.pass(2 * MS);
    client.give(SERVER, &plain(PacketType::RpcUnknown, TO_CLIENT, id ^ 1));
    assert_eq!(client.failures, [Failure::Refused(DropReason::Uncertain)]);
    assert_eq!((client.node.metrics().refused, client.node.holdings().calls), (1, 0));
}

#[test]
fn a_request_that_is_unknown_where_it_was_asked_about_goes_again() {
    let (mut client, id) = calling(|_| {});
    client.pass(2 * MS);
    client.take();
    client.give(SERVER, &plain(PacketType::RpcUnknown, TO_CLIENT, id ^ 1));
    assert_eq!(client.take_types(), [PacketType::Data]);
    assert_eq!(client.node.metrics().resent_bytes, 10);
}

#[test]
fn need_ack_is_a_question_of_a_server() {
    let mut server = replied(100);
    server.give(CLIENT, &plain(PacketType::NeedAck, TO_SERVER, 2));
    assert_eq!((server.node.metrics().unexpected, server.take_types()), (1, vec![]));
}

/// A client asks what it misses when it has missed it for as long as a hole is left alone.
#[test]
fn need_ack_for_what_is_missing_draws_a_question_and_else_busy() {
    let gap_ns = Config::default().recovery.gap_ns_min;
    for (after_ns, expected) in [(gap_ns - 1, PacketType::Busy), (gap_ns, PacketType::Resend)] {
        let asked = |client: &mut Lone, id: u64| {
            client.now += after_ns;
            client.give(SERVER, &plain(PacketType::NeedAck, TO_CLIENT, id ^ 1));
            client.take_types()
        };
        let (mut client, id) = calling(|_| {});
        assert_eq!(asked(&mut client, id), [expected], "nothing of the reply, {after_ns} ns");
        let (mut client, id) = calling(|_| {});
        client.give(SERVER, &data_of_reply(id, 2000, 0, &[1; 1396]));
        assert_eq!(asked(&mut client, id), [expected], "its end, {after_ns} ns");
    }
}

/// It is for this side to go on: by a grant, or with the rest of the request.
#[test]
fn need_ack_draws_busy_while_nothing_may_come() {
    let (mut client, id) = calling(|config| {
        let (window, incoming_max, fifo_permille, fifo_increment) = (0, 0, 0, 0);
        config.grants.policy =
            GrantPolicy::Module { window, incoming_max, fifo_permille, fifo_increment };
    });
    let mut header = DataHeader::new(TO_CLIENT, id | 1, 2000, 0);
    (header.incoming, header.cutoff_version) = (1396.into(), 1.into());
    client.give(SERVER, &[header.as_bytes(), &[1; 1396]].concat());
    client.now += MS;
    client.give(SERVER, &plain(PacketType::NeedAck, TO_CLIENT, id ^ 1));
    assert_eq!(client.take_types(), [PacketType::Busy]);
    let link = Some(Link { bits_per_second: 1_000_000, queue_ns_max: 1000, bypass_len: 0 });
    let mut client = Lone::with(|config| config.link = link);
    client.call(10_000).unwrap();
    let id = id_of(&client.take());
    client.now += MS;
    client.give(SERVER, &plain(PacketType::NeedAck, TO_CLIENT, id ^ 1));
    assert_eq!(client.take_types(), [PacketType::Busy]);
}

#[test]
fn who_hears_busy_asks_later() {
    for (is_busy, expected) in [(true, vec![]), (false, vec![PacketType::Resend])] {
        let (mut client, id) = calling(|_| {});
        client.give(SERVER, &data_of_reply(id, 2000, 0, &[1; 1396]));
        client.pass(MS / 5);
        if is_busy {
            client.give(SERVER, &plain(PacketType::Busy, TO_CLIENT, id ^ 1));
        }
        client.pass(MS / 5);
        assert_eq!(client.take_types(), expected);
        client.pass(MS / 5);
        assert_eq!(client.take_types().is_empty(), !is_busy, "each waits as long as the other");
    }
}

/// By it the server knows what has just gone.
#[test]
fn an_ack_that_was_asked_for_measures_the_round_trip() {
    let resent = |is_asked: bool, after_ns: u64| {
        let mut server = replied(4);
        while is_asked && server.sent.is_empty() {
            server.pass(10_000);
        }
        server.now += 20_000;
        server.take();
        server.give(CLIENT, &ack(TO_SERVER, 2, &[]));
        server.give(CLIENT, &marked(4, b"ping", |_| {}));
        server.reply(4).unwrap();
        server.now += after_ns;
        server.give(CLIENT, &resend(TO_SERVER, 4, 0, RESEND_ALL));
        server.node.metrics().resent_bytes
    };
    assert_eq!((resent(true, 19_999), resent(true, 30_000)), (0, 4));
    assert_eq!((resent(false, CROSSING_NS - 1), resent(false, CROSSING_NS)), (0, 4));
}

#[test]
fn control_packets_that_wait_have_a_limit() {
    let mut server = Lone::with(|config| config.control_len_max = 2);
    for id in 1..=5 {
        let mut packet = resend(TO_SERVER, 2 * id, 0, RESEND_ALL);
        server.node.handle_datagram(server.now, path(CLIENT), &mut packet);
    }
    assert_eq!(server.node.metrics().control_dropped_queue_full, 3);
    server.drain();
    assert_eq!(server.take_types(), [PacketType::RpcUnknown; 2]);
}

/// At least one of every kind.
#[test]
fn what_is_sent_is_counted_by_its_kind() {
    let (mut lone, id) = (Lone::new(), 2);
    lone.call(10).unwrap();
    let called = id_of(&lone.sent);
    lone.pass(2 * MS);
    lone.give(CLIENT, &part(id, 500_000, 0, 1396));
    lone.give(CLIENT, &marked(id + 2, b"ping", |header| header.cutoff_version = 0.into()));
    lone.give(CLIENT, &resend(TO_SERVER, id + 2, 0, RESEND_ALL));
    lone.give(CLIENT, &resend(TO_SERVER, id + 4, 0, RESEND_ALL));
    lone.reply(10_000).unwrap();
    lone.give(SERVER, &plain(PacketType::NeedAck, TO_CLIENT, called + 9));
    lone.pass(3 * MS);
    lone.give(SERVER, &acks::known_reply(called, b"pong"));
    lone.pass(3 * MS);
    let metrics = *lone.node.metrics();
    let sent = lone.take();
    assert_eq!(metrics.datagrams_out, sent.len() as u64);
    let bytes: usize = sent.iter().filter_map(Sent::payload_len).sum();
    assert_eq!(metrics.data_bytes_out, bytes as u64);
    for (packet_type, counted) in [
        (PacketType::Grant, metrics.grants),
        (PacketType::Resend, metrics.resends),
        (PacketType::Busy, metrics.busy),
        (PacketType::RpcUnknown, metrics.unknowns),
        (PacketType::NeedAck, metrics.need_acks),
        (PacketType::Cutoffs, metrics.cutoffs),
        (PacketType::Ack, metrics.acks),
    ] {
        let is_it = |sent: &&Sent| sent.packet().packet_type() == packet_type;
        let found = sent.iter().filter(is_it).count() as u64;
        assert!(found > 0 && found == counted, "{packet_type:?}: {found}, counted {counted}");
    }
}

/// A stranger is told what to echo, and nothing is remembered of it, where peers that have not been
/// validated have their half of the places.
#[test]
fn a_stranger_for_whom_there_is_no_place_is_taken_when_it_echoes() {
    let mut server = Lone::with(|config| config.peers_max = 2);
    server.give("198.51.100.1:32769", &marked(2, b"ping", |_| {}));
    server.take();
    let stranger = "192.0.2.1:32769";
    server.give(stranger, &marked(2, b"ping", |_| {}));
    let sent = server.take();
    let Body::Cutoffs(packet) = sent[0].packet().body else { panic!("not cutoffs") };
    let (version, tag) = (packet.version, packet.common.window);
    assert_eq!((sent.len(), packet.common.sender_id.get(), sent[0].priority), (1, 3, 7));
    assert_eq!((server.requests.len(), server.node.metrics().cutoffs), (1, 2));
    let echoing = |version, tag| {
        marked(2, b"ping", |header| (header.cutoff_version, header.common.window) = (version, tag))
    };
    server.give(stranger, &echoing(version, (tag.get() ^ 1).into()));
    assert_eq!(server.requests.len(), 1);
    server.give(stranger, &echoing(version, tag));
    assert_eq!(server.requests.len(), 2);
}

/// Within three bytes for one.
#[test]
fn a_stranger_whose_short_reply_was_lost_gets_it_again() {
    let mut server = Lone::new();
    server.give(STRANGER, &marked(2, b"ping", |_| {}));
    server.reply(10).unwrap();
    let first: Vec<usize> = server.take().iter().filter_map(Sent::payload_len).collect();
    server.now += MS;
    server.give(STRANGER, &resend(TO_SERVER, 2, 0, RESEND_ALL));
    let again: Vec<usize> = server.take().iter().filter_map(Sent::payload_len).collect();
    assert_eq!((first, again), (vec![10], vec![10]));
}

#[test]
fn control_packets_go_at_the_highest_priority() {
    let (mut client, id) = calling(|_| {});
    client.give(SERVER, &data_of_reply(id, 4, 0, b"pong"));
    let sent = client.take();
    assert_eq!((sent[0].packet().packet_type(), sent[0].priority), (PacketType::Ack, 7));
    client.give(SERVER, &resend(TO_CLIENT, 9, 0, RESEND_ALL));
    let sent = client.take();
    assert_eq!((sent[0].packet().packet_type(), sent[0].priority), (PacketType::RpcUnknown, 7));
}
