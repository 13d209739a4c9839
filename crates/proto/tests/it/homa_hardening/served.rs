//! The server half: what runs, what does not run again, and what an answer may be.

use super::*;

/// A packet of a client with the module, which counts from the start again where its host does.
fn module(id: u64, retransmit: u8) -> Vec<u8> {
    let mut packet = request(id, 4, 0, b"ping");
    packet[48] = retransmit;
    packet
}

/// A server that has served request 2 of a client with the module, which has acknowledged it.
fn served() -> Lone {
    let mut server = Lone::new();
    server.give(CLIENT, &module(2, 0));
    server.reply(4).unwrap();
    server.give(CLIENT, &ack(TO_SERVER, 2, &[]));
    server.take();
    server
}

/// A client that has sent the same id before and waits sends it again when it is told that nothing
/// is known.
#[test]
fn a_client_that_counts_from_the_start_again_is_asked_whether_it_waits() {
    let mut server = served();
    server.give(CLIENT, &module(2, 1));
    assert_eq!((server.requests.len(), server.take_types()), (1, vec![]), "it was not asked");
    server.give(CLIENT, &module(2, 0));
    assert_eq!((server.requests.len(), server.take_types()), (1, vec![PacketType::RpcUnknown]));
    server.give(CLIENT, &module(2, 0));
    assert_eq!(server.requests.len(), 1, "a late duplicate");
    server.give(CLIENT, &module(2, 1));
    assert_eq!(server.requests.len(), 2, "it waits");
}

#[test]
fn an_answer_to_another_question_or_a_late_one_restarts_nothing() {
    for (id, after_ns, runs) in [(2, 100 * MS - 1, 2), (2, 100 * MS, 1), (4, MS, 1), (2, MS, 2)] {
        let mut server = served();
        server.give(CLIENT, &module(4, 0));
        server.reply(4).unwrap();
        server.give(CLIENT, &ack(TO_SERVER, 4, &[]));
        server.give(CLIENT, &module(2, 0));
        server.now += after_ns;
        server.give(CLIENT, &module(id, 1));
        assert_eq!(server.requests.len(), runs + 1, "{id} after {after_ns} ns");
    }
}

/// It may be the one that waits for what has run.
#[test]
fn a_client_whose_reply_was_given_up_does_not_count_from_the_start() {
    let lifetime_ns = 10 * SECOND;
    for (after_ns, runs) in [(lifetime_ns - SECOND, 1), (lifetime_ns + SECOND, 2)] {
        let mut server = Lone::with(|config| {
            config.lifetime_ns_max = lifetime_ns;
            config.serving.session_idle_ns = 100 * SECOND;
        });
        server.give(CLIENT, &module(2, 0));
        server.reply(4).unwrap();
        server.pass(6 * SECOND);
        assert_eq!(server.node.metrics().unacknowledged, 1);
        server.pass(after_ns - 2 * SECOND);
        server.give(CLIENT, &module(2, 0));
        server.give(CLIENT, &module(2, 1));
        assert_eq!(server.requests.len(), runs, "after some {after_ns} ns");
    }
}

#[test]
fn a_session_that_was_silent_for_long_begins_anew() {
    let idle_ns = Config::default().serving.session_idle_ns;
    for (silent_ns, runs) in [(idle_ns, 1), (idle_ns + 1, 2)] {
        let mut server = served();
        server.now += silent_ns;
        server.give(CLIENT, &module(2, 0));
        assert_eq!(server.requests.len(), runs, "silent for {silent_ns} ns");
    }
}

/// A server that began at 20 ms.
fn begun_at_20_ms() -> Lone {
    let mut server = Lone::new();
    server.node = Endpoint::new(20 * MS, Config::default());
    server
}

/// Sent at most 32 ms ago, and 10 ms under way.
#[test]
fn a_retransmission_may_have_run_if_it_was_sent_before_the_session_was_known() {
    for (now, runs) in [(62 * MS - 1, 0), (62 * MS, 1)] {
        let mut server = begun_at_20_ms();
        server.now = now;
        server.give(CLIENT, &marked(2, b"ping", |header| header.retransmit = 17 + 8));
        assert_eq!(server.requests.len(), runs, "at {now} ns");
    }
}

#[test]
fn what_may_run_twice_and_clients_without_flags_are_served_whatever_their_age() {
    let mut server = begun_at_20_ms();
    server.now = 30 * MS;
    server.give(
        CLIENT,
        &marked(2, b"ping", |header| {
            header.retransmit = 17 + 8;
            header.flags |= DataFlags::IDEMPOTENT;
        }),
    );
    server.give(CLIENT, &module(4, 17 + 8));
    assert_eq!(server.requests.len(), 2);
}

/// A call that begins just after a start, and loses a packet.
#[test]
fn a_request_that_began_after_the_start_is_served_though_a_packet_comes_again() {
    let mut server = begun_at_20_ms();
    let packet = |offset: u32, retransmit: u8| {
        marked(2, &[1; 1000], |header| {
            (header.message_length, header.incoming) = (2000.into(), 2000.into());
            header.seg_offset = offset.into();
            header.retransmit = retransmit;
        })
    };
    server.now = 20 * MS;
    server.give(CLIENT, &packet(0, 0));
    server.now += MS + 1;
    server.give(CLIENT, &packet(1000, tailcut_wire::homa::Age::of_ns(MS + 1).0));
    assert_eq!(server.requests.len(), 1);
}

/// A request that began as new has gone on as one that may have run.
#[test]
fn a_request_of_which_a_packet_may_be_of_before_the_start_is_refused() {
    for (retransmit, is_refused) in [(0, false), (17 + 8, true)] {
        let mut server = begun_at_20_ms();
        server.now = 30 * MS;
        let packet = |offset: u32, retransmit: u8| {
            marked(2, &[1; 1000], |header| {
                (header.message_length, header.incoming) = (2000.into(), 2000.into());
                header.seg_offset = offset.into();
                header.retransmit = retransmit;
            })
        };
        server.give(CLIENT, &packet(0, 0));
        server.give(CLIENT, &packet(1000, retransmit));
        assert_eq!(server.requests.len(), usize::from(!is_refused));
        let uncertain = server.node.metrics().drops[DropReason::Uncertain as usize];
        assert_eq!(uncertain, u64::from(is_refused));
    }
}

#[test]
fn a_reply_is_at_most_as_long_as_a_message_may_be() {
    for (len, expected) in
        [(5000, Ok(())), (5001, Err(AnswerError::TooLarge { len: 5001, limit: 5000 }))]
    {
        let mut server = Lone::with(|config| config.message_len_max = 5000);
        server.give(CLIENT, &marked(2, b"ping", |_| {}));
        server.take();
        assert_eq!(server.reply(len), expected);
        let refused = server.take()[0].data().0.flags().has(DataFlags::REFUSED);
        assert_eq!(refused, expected.is_err(), "who waits hears of it");
    }
}

/// The module takes no more than its longest message.
#[test]
fn a_reply_to_a_client_without_flags_is_a_message_of_the_module() {
    let limit = 1_000_000;
    let mut server = Lone::with(|config| config.message_len_max = 2 * limit);
    server.give(CLIENT, &module(2, 0));
    let len = limit + 1;
    assert_eq!(server.reply(len), Err(AnswerError::TooLarge { len, limit }));
    server.give(CLIENT, &marked(4, b"ping", |_| {}));
    assert_eq!(server.reply(len), Ok(()));
}

/// It would take the reason for its reply.
#[test]
fn a_refusal_is_not_told_to_a_client_without_flags() {
    for (packet, is_told) in [(module(2, 0), false), (marked(2, b"ping", |_| {}), true)] {
        let mut server = Lone::new();
        server.give(CLIENT, &packet);
        let id = server.requests[0].0;
        server.node.refuse(server.now, id, DropReason::Overload).unwrap();
        server.settle();
        assert_eq!(server.take().is_empty(), !is_told);
        assert_eq!(server.node.holdings().requests, usize::from(is_told));
        assert_eq!(server.node.metrics().drops[DropReason::Overload as usize], 1);
    }
}

#[test]
fn packets_of_a_request_that_is_served_are_counted() {
    let mut server = Lone::new();
    (0..3).for_each(|_| server.give(CLIENT, &module(2, 0)));
    assert_eq!((server.requests.len(), server.node.metrics().repeated), (1, 2));
    let mut other_ports = module(2, 0);
    other_ports[0] ^= 1;
    server.give(CLIENT, &other_ports);
    assert_eq!((server.requests.len(), server.node.metrics().protocol_violation), (1, 1));
}

#[test]
fn what_contradicts_a_message_or_came_before_is_counted() {
    let mut server = Lone::new();
    [0, 0].iter().for_each(|&offset| server.give(CLIENT, &part(2, 5000, offset, 1000)));
    assert_eq!(server.node.metrics().duplicates, 1);
    server.give(CLIENT, &part(2, 6000, 1000, 1000));
    assert_eq!(server.node.metrics().protocol_violation, 1);
    assert_eq!((server.node.holdings().partials, server.node.holdings().expected), (1, 4000));
}

/// A packet makes bounded work.
#[test]
fn ranges_of_one_packet_acknowledge_sixteen_in_all() {
    let mut server = Lone::new();
    for id in 1..=30 {
        server.give(CLIENT, &request(2 * id, 4, 0, b"ping"));
        server.reply(4).unwrap();
    }
    let mut acks = [Ack::default(); 5];
    (acks[0], acks[1]) = (Ack::range(20, 10), Ack::range(40, 10));
    let common = CommonHeader::new(PacketType::Ack, TO_SERVER, 100);
    server.give(CLIENT, AckPacket { common, num_acks: 2.into(), acks }.as_bytes());
    assert_eq!(server.node.holdings().requests, 14);
    assert_eq!(server.node.metrics().protocol_violation, 1);
    acks[0] = Ack::range(28, 4);
    server.give(CLIENT, AckPacket { common, num_acks: 1.into(), acks }.as_bytes());
    assert_eq!(
        (server.node.holdings().requests, server.node.metrics().protocol_violation),
        (10, 1)
    );
}

#[test]
fn an_acknowledgement_of_another_port_is_counted() {
    let mut server = Lone::new();
    server.give(CLIENT, &request(2, 4, 0, b"ping"));
    server.give(CLIENT, &ack(Ports { source: 5, ..TO_SERVER }, 2, &[]));
    assert_eq!((server.node.metrics().protocol_violation, server.cancelled), (1, 0));
    server.give(CLIENT, &ack(TO_SERVER, 2, &[]));
    assert_eq!((server.node.metrics().protocol_violation, server.cancelled), (1, 1));
}

#[test]
fn what_is_remembered_of_sessions_has_a_size() {
    let mut server = Lone::new();
    assert_eq!(server.node.sessions_bytes(), 0);
    let mut grown = Vec::new();
    for session in 1..=3u64 {
        server.give(CLIENT, &module(session << 24 | 2, 0));
        grown.push(server.node.sessions_bytes());
    }
    assert!(grown[0] > 1 && grown[1] > grown[0] && grown[2] > grown[1], "{grown:?}");
}

/// Neither was asked for.
#[test]
fn a_duplicate_that_was_sent_again_and_comes_twice_is_no_answer() {
    let mut server = served();
    (0..3).for_each(|_| server.give(CLIENT, &module(2, 1)));
    assert_eq!((server.requests.len(), server.take_types()), (1, vec![]));
}

/// It has not said that it knows what a refusal is.
#[test]
fn a_request_that_began_without_flags_is_released_without_a_word() {
    let mut server = begun_at_20_ms();
    server.now = 30 * MS;
    server.give(CLIENT, &part(2, 2000, 0, 1000));
    server.take();
    let again = |header: &mut DataHeader| {
        (header.message_length, header.incoming) = (2000.into(), 2000.into());
        (header.seg_offset, header.retransmit) = (1000.into(), 17 + 8);
    };
    server.give(CLIENT, &marked(2, &[1; 1000], again));
    assert_eq!((server.requests.len(), server.node.holdings().partials), (0, 0));
    assert_eq!((server.take_types(), server.node.metrics().drops.iter().sum::<u64>()), (vec![], 0));
}

#[test]
fn cutoffs_that_follow_from_what_comes_are_counted() {
    let mut server = Lone::with(|config| {
        let (messages_min, interval_ns) = (10, SECOND);
        config.priorities.adaptive =
            Some(tailcut_proto::homa::Adaptive { messages_min, interval_ns });
    });
    (1..=10).for_each(|id| server.give(CLIENT, &request(2 * id, 1000, 0, &[1; 1000])));
    assert_eq!(server.node.metrics().cutoffs_changed, 1);
}

/// Others have taken the memory since it began.
#[test]
fn what_cannot_be_remembered_does_not_run_unless_it_may_run_twice() {
    for (flags, runs) in [(0, 0), (DataFlags::IDEMPOTENT, 1)] {
        let mut server = Lone::with(|config| config.serving.sessions_bytes_max = 2_000);
        let half = |offset: u32| {
            marked(2, &[1; 1000], |header| {
                (header.message_length, header.incoming) = (2000.into(), 2000.into());
                (header.seg_offset, header.flags) = (offset.into(), DataFlags::KNOWN | flags);
            })
        };
        server.give(CLIENT, &half(0));
        for session in 1..60 {
            server.give("10.0.0.9:32769", &marked(session << 24 | 2, b"ping", |_| {}));
        }
        let before = server.requests.len();
        server.give(CLIENT, &half(1000));
        assert_eq!(server.requests.len() - before, runs, "flags {flags}");
    }
}
