//! Rules of an R2P2 server: what it takes, what it answers, and what it counts.

use std::net::SocketAddr;

use tailcut_proto::node::{Node, Source};
use tailcut_proto::r2p2::Config;
use tailcut_proto::rpc::{AnswerError, Event, Rpc};
use tailcut_wire::r2p2::{
    ClaimBody, CloneMark, DropReason, Flags, MessageType, Policy, RequestHeader, RequestRepr,
    Route, RpcId, SackBody, SessionId, Verdict,
};
use zerocopy::{FromBytes, IntoBytes};

use super::r2p2_support::*;

/// A server that takes the addresses of its clients for validated.
fn server() -> Solo {
    server_with(|_| {})
}

fn server_with(change: impl FnOnce(&mut Config)) -> Solo {
    Solo::new(|config| {
        config.serving.trusted.push("10.2.0.0/16".parse().unwrap());
        change(config);
    })
}

/// A server behind a router at host 9, which keeps clients' addresses.
fn behind_a_router() -> Solo {
    server_with(|config| config.pool.router = Some(host(9)))
}

fn flagged(sequence: u32, flags: u8, len: u32, index: u16) -> Vec<u8> {
    asked(&RequestRepr { flags, ..asking(MessageType::Request, sequence) }, len, index)
}

/// A first packet that came through a router.
fn routed(mut bytes: Vec<u8>, route: Route) -> Vec<u8> {
    bytes[48..72].copy_from_slice(Route { routed: 1, ..route }.as_bytes());
    bytes
}

fn refusals(sent: &[Sent]) -> Vec<DropReason> {
    let drops = sent.iter().filter(|sent| sent.kind().0 == MessageType::Drop);
    drops.map(|sent| DropReason::from_payload(sent.packet().payload)).collect()
}

/// A demand for the token, before anything is kept.
fn is_demand(sent: &[Sent]) -> bool {
    let [only] = sent else { return false };
    only.packet().sack().is_some_and(|sack| sack.granted.get() == 0)
}

/// Says that it has the whole request.
fn has_it(sent: &[Sent]) -> bool {
    let [only] = sent else { return false };
    only.packet().sack().is_some_and(|sack| sack.base.get() == u16::MAX)
}

#[test]
fn what_is_no_packet_is_counted_as_that() {
    let mut server = server();
    for bytes in [&b"\xcd\x08\x00\xc0\0\x01\0\x01ping"[..], b"", b"\xcc\x09\x00\xc0\0\x01\0\x01"] {
        server.give(host(1), bytes);
    }
    let metrics = server.metrics();
    assert_eq!((metrics.datagrams_in, metrics.malformed.iter().sum::<u64>()), (3, 3));
    assert!(metrics.malformed.iter().all(|&count| count <= 1), "{:?}", metrics.malformed);
}

#[test]
fn what_a_router_is_told_means_nothing_to_an_endpoint() {
    let mut server = server();
    let request = Sent { from: Source::Any, to: host(1), bytes: ask(0, 4) };
    let header = request.answer(MessageType::Claimed).header();
    server.give(host(1), &[header.as_bytes(), &[1]].concat());
    assert_eq!(server.metrics().unexpected, 1);
}

#[test]
fn an_application_hears_how_a_request_may_be_treated_and_until_when() {
    for (deadline_us, expected_ns) in [(0, 60_000 * MS), (1_000, MS), (u32::MAX, 60_000 * MS)] {
        for (policy, is_fixed) in [(Policy::Fixed, true), (Policy::Unrestricted, false)] {
            let mut server = server();
            let repr = RequestRepr { deadline_us, policy, ..asking(MessageType::Request, 0) };
            server.give(host(1), &asked(&repr, 4, 0));
            let Some(Event::Request { deadline, options, client, .. }) = server.node.poll_event()
            else {
                panic!("there is a request");
            };
            assert_eq!((deadline - server.now, options.fixed), (expected_ns, is_fixed));
            assert_eq!((client, options.idempotent, options.v1), (host(1), false, false));
        }
    }
}

/// One that was sent without credit will come again; who relies on credit is to begin again.
#[test]
fn a_later_packet_of_an_unknown_request_asks_it_to_begin_again() {
    let mut server = server();
    assert!(server.give(host(1), &flagged(0, Flags::UNSCHEDULED, 200, 1)).is_empty());
    assert_eq!(server.metrics().unknown, 1);
    assert!(is_demand(&server.give(host(1), &flagged(0, 0, 200, 1))));
    assert_eq!(server.metrics().unknown, 2);
}

#[test]
fn a_request_is_its_clients_alone() {
    let mut server = server();
    server.give(host(1), &ask(0, 4));
    assert!(server.give(host(2), &ask(0, 4)).is_empty());
    assert_eq!(server.metrics().protocol_violation, 1);
    server.give(host(2), &told(MessageType::Cancel, 0, 0, &[]));
    assert_eq!(server.metrics().protocol_violation, 2);
    let id = server.request().unwrap();
    assert!(server.node.is_waiting(id));
    server.give(host(1), &told(MessageType::Cancel, 0, 0, &[]));
    assert!(!server.node.is_waiting(id));
}

#[test]
fn words_about_unknown_requests_are_counted() {
    let mut server = server();
    let have_it = sack(1, 1, &[]);
    server.give(host(1), &told(MessageType::ReplyAck, 0, 0, have_it.as_bytes()));
    server.give(host(1), &told(MessageType::Cancel, 0, 0, &[]));
    assert_eq!((server.metrics().unknown, server.metrics().unexpected), (2, 0));
    server.give(host(1), &ask(0, 4));
    server.give(host(1), &told(MessageType::ReplyAck, 0, 0, have_it.as_bytes()));
    assert_eq!((server.metrics().unknown, server.metrics().unexpected), (2, 1));
    let id = server.request().unwrap();
    assert!(server.node.is_waiting(id), "it has no reply yet");
}

/// It would run after what waits, when the original has been answered.
#[test]
fn the_second_of_two_copies_does_not_wait_behind_others() {
    let original = Flags::IDEMPOTENT | CloneMark::Original.bits();
    for (flags, busy, is_taken) in [
        (COPY, 1, true),
        (COPY, 2, false),
        (original, 2, true),
        (Flags::IDEMPOTENT, 2, true),
        (CloneMark::Copy.bits(), 2, true),
    ] {
        let mut server = server();
        (0..busy).for_each(|sequence| drop(server.give(host(1), &ask(sequence, 4))));
        (0..busy).for_each(|_| assert!(server.request().is_some()));
        assert!(server.give(host(1), &flagged(9, flags, 4, 0)).is_empty());
        assert_eq!(server.request().is_some(), is_taken, "{flags:x} behind {busy}");
        assert_eq!(server.metrics().clones_discarded, u64::from(!is_taken));
    }
}

/// A refusal would end the call, which the original may answer.
#[test]
fn the_second_of_two_copies_is_not_refused() {
    let mut server = server_with(|config| config.serving.is_enabled = false);
    assert!(server.give(host(1), &flagged(0, COPY, 4, 0)).is_empty());
    assert_eq!(server.metrics().clones_discarded, 1);
    let said = server.give(host(1), &flagged(1, Flags::IDEMPOTENT, 4, 0));
    assert_eq!(refusals(&said), [DropReason::Application]);
}

#[test]
fn messages_are_as_long_as_the_limit_both_ways() {
    for len in [300, 301] {
        let mut server = server_with(|config| config.message_len_max = 300);
        server.give(host(1), &ask(0, 4));
        let id = server.request().unwrap();
        let replied = server.node.reply(server.now, id, vec![7; len as usize]);
        let said = server.sent();
        let asked = server.give(host(1), &ask(1, len));
        if len == 300 {
            assert_eq!((replied, said.len()), (Ok(()), 5));
            assert_eq!(kinds(&asked), [(MessageType::Ack, 0)]);
        } else {
            assert_eq!(replied, Err(AnswerError::TooLarge { len: 301, limit: 300 }));
            assert_eq!(refusals(&said), [DropReason::TooLarge]);
            assert_eq!(refusals(&asked), [DropReason::TooLarge]);
        }
    }
}

/// Three bytes for one: 76 came, and 228 may go. The words need 101 bytes beside the text.
#[test]
fn words_of_a_refusal_go_as_far_as_the_client_has_paid() {
    for (text_len, expected) in [(126, vec![48 + 5 + 126, 49]), (127, vec![49])] {
        let mut server = Solo::new(|_| {});
        assert_eq!(ask(0, 4).len(), 76);
        server.give(host(1), &ask(0, 4));
        let id = server.request().unwrap();
        server.node.reject(server.now, id, 404, &vec![b'x'; text_len]).unwrap();
        let lens: Vec<usize> = server.sent().iter().map(|sent| sent.bytes.len()).collect();
        assert_eq!(lens, expected);
    }
}

#[test]
fn a_reply_to_an_address_that_is_not_validated_waits_beyond_three_bytes_for_one() {
    for (len, is_sent) in [(180, true), (181, false)] {
        let mut server = Solo::new(|config| config.segment_len = 1000);
        server.give(host(1), &ask(0, 4));
        let id = server.request().unwrap();
        server.node.reply(server.now, id, vec![7; len]).unwrap();
        let said = server.sent();
        let limited = server.metrics().amplification_limited;
        assert_eq!((said.len() - limited as usize, limited), if is_sent { (1, 0) } else { (0, 1) });
        if !is_sent {
            assert!(is_demand(&said));
            let token = said[0].packet().token();
            let repr = RequestRepr { token, ..asking(MessageType::Request, 0) };
            assert_eq!(
                kinds(&server.give(host(1), &asked(&repr, 4, 0))),
                [(MessageType::Response, 0)]
            );
        }
    }
}

#[test]
fn a_half_received_request_lives_while_it_makes_progress() {
    let mut server = server();
    server.give(host(1), &flagged(0, 0, 640, 0));
    assert_eq!((server.node.holdings().partials, server.node.holdings().held_bytes), (1, 640));
    assert_eq!(server.node.holdings().expected, 9);
    for index in 1..3 {
        server.pass(45 * MS);
        server.give(host(1), &flagged(0, 0, 640, index));
    }
    assert_eq!((server.node.holdings().partials, server.metrics().partials_expired), (1, 0));
    server.pass(55 * MS);
    assert_eq!((server.node.holdings().partials, server.metrics().partials_expired), (0, 1));
    assert_eq!((server.node.holdings().held_bytes, server.node.holdings().expected), (0, 0));
    // It has not run, so that it may begin again.
    (0..10).for_each(|index| drop(server.give(host(1), &flagged(0, 0, 640, index))));
    assert!(server.request().is_some());
    assert_eq!((server.node.holdings().partials, server.node.holdings().waiting), (0, 1));
}

#[test]
fn packets_of_a_request_that_contradict_it_are_refused_and_repeated_ones_acknowledged() {
    let mut server = server();
    let repr = RequestRepr { client_clock_us: 70, ..asking(MessageType::Request, 0) };
    let said = server.give(host(1), &asked(&repr, 640, 0));
    assert_eq!(said[0].packet().reply_header().unwrap().clock_echo_us.get(), 70);
    server.give(host(1), &flagged(0, 0, 641, 1));
    assert_eq!(server.metrics().protocol_violation, 1);
    let repr = RequestRepr { client_clock_us: 90, ..repr };
    let said = server.give(host(1), &asked(&repr, 640, 0));
    assert_eq!((kinds(&said), server.metrics().duplicates), (vec![(MessageType::Ack, 0)], 1));
    assert_eq!(said[0].packet().reply_header().unwrap().clock_echo_us.get(), 90);
}

#[test]
fn a_request_that_comes_again_is_answered_by_where_it_stands() {
    let mut server = server();
    (0..4).for_each(|index| drop(server.give(host(1), &flagged(0, 0, 200, index))));
    let id = server.request().unwrap();
    assert!(has_it(&server.give(host(1), &flagged(0, 0, 200, 0))));
    assert_eq!(server.metrics().repeated, 1);
    server.node.reply(server.now, id, vec![7; 100]).unwrap();
    assert_eq!(server.sent().len(), 2);
    assert!(has_it(&server.give(host(1), &flagged(0, 0, 200, 1))), "packet 0 asks for the reply");
    assert_eq!((server.metrics().repeated, server.metrics().duplicates), (1, 1));
    let again = server.give(host(1), &flagged(0, 0, 200, 0));
    assert_eq!(kinds(&again), [(MessageType::Response, 0), (MessageType::Response, 1)]);
    assert_eq!((server.metrics().repeated, server.metrics().resent), (2, 2));
}

#[test]
fn a_reply_goes_on_by_credit_and_again_as_it_is_asked_for() {
    let mut server = server();
    server.give(host(1), &ask(0, 4));
    let id = server.request().unwrap();
    server.node.reply(server.now, id, vec![7; 20 * 64]).unwrap();
    let indexes = |sent: Vec<Sent>| sent.iter().map(|sent| sent.kind().1).collect::<Vec<_>>();
    assert_eq!(indexes(server.sent()), (0..12).collect::<Vec<_>>());
    assert_eq!(server.node.replies_under_way(), 1);
    let mut tell = |flags, sack: SackBody| {
        let said = server.give(host(1), &told(MessageType::ReplyAck, 0, flags, sack.as_bytes()));
        (indexes(said), server.metrics().resent, server.node.holdings().requests)
    };
    assert_eq!(tell(0, sack(1, 14, &[3])), (vec![12, 13], 0, 1));
    assert_eq!(tell(Flags::RESEND, sack(1, 14, &[3])), (vec![1, 2], 2, 1));
    assert_eq!(tell(Flags::RESEND_TAIL, sack(12, 14, &[])), (vec![12, 13], 4, 1));
    assert_eq!(tell(0, sack(14, 20, &[])), ((14..20).collect(), 4, 1));
    assert_eq!(tell(0, sack(20, 20, &[])), (vec![], 4, 0));
}

/// In the order of the answers; those with a shorter last packet take turns, as one GSO batch has
/// one length.
#[test]
fn even_replies_go_one_after_the_other() {
    for (len, expected) in [(128, [0, 1, 0, 1, 0, 1]), (127, [0, 0, 0, 1, 1, 1])] {
        let mut server = server();
        (0..3).for_each(|sequence| drop(server.give(host(1), &ask(sequence, 4))));
        while let Some(id) = server.request() {
            server.node.reply(server.now, id, vec![7; len]).unwrap();
        }
        let indexes: Vec<u16> = server.sent().iter().map(|sent| sent.kind().1).collect();
        assert_eq!(indexes, expected, "{len} bytes");
    }
}

#[test]
fn memory_of_a_long_message_serves_the_next() {
    let mut server = server();
    server.node.recycle(vec![7; 1 << 20]);
    let buffer = server.node.buffer_for(1 << 20);
    assert!(buffer.is_empty() && buffer.capacity() >= 1 << 20);
}

#[test]
fn what_is_left_where_it_is_says_all_that_other_replies_say() {
    let mut server = server_with(|config| {
        (config.segment_len, config.pool.server_id) = (1_000, 42);
    });
    server.give(host(1), &flagged(0, COPY, 4, 0));
    let id = server.request().unwrap();
    (1..4).for_each(|sequence| drop(server.give(host(1), &ask(sequence, 4))));
    server.node.reply(server.now, id, vec![7; 40_000]).unwrap();
    let written = server.sent().remove(0);
    let credit = told(MessageType::ReplyAck, 0, 0, sack(12, 40, &[]).as_bytes());
    server.node.handle_datagram(server.now, host(1).into(), &mut credit.clone());
    let left = server.attached().unwrap().remove(0);
    let words = |sent: &Sent| {
        let header = *sent.packet().reply_header().unwrap();
        (header.server_load, header.server_waiting, header.server_id, header.flags, header.token)
    };
    assert_eq!(words(&left), words(&written));
    assert_eq!((words(&left).0.get(), words(&left).1.get(), words(&left).2.get()), (3, 2, 42));
    assert_eq!(left.packet().flags().clone_mark(), CloneMark::Copy);
}

/// A stranger may not have paid for it.
#[test]
fn the_payload_of_a_long_reply_is_left_where_it_is_for_a_validated_client() {
    for (mut server, is_left) in [
        (server_with(|config| config.segment_len = 1_000), true),
        (Solo::new(|config| config.segment_len = 1_000), false),
    ] {
        server.give(host(1), &ask(0, 4));
        let id = server.request().unwrap();
        server.node.reply(server.now, id, vec![7; 40_000]).unwrap();
        server.sent();
        let credit = told(MessageType::ReplyAck, 0, 0, sack(12, 40, &[]).as_bytes());
        server.node.handle_datagram(server.now, host(1).into(), &mut credit.clone());
        let before = server.metrics().datagrams_out;
        let rest = server.attached();
        assert_eq!(rest.is_some(), is_left);
        let rest = rest.unwrap_or_default();
        assert!(rest.iter().map(|sent| sent.kind().1).eq(if is_left { 12..40 } else { 0..0 }));
        assert_eq!(server.metrics().datagrams_out - before, rest.len() as u64);
    }
}

#[test]
fn a_request_that_nobody_answers_ends_with_its_deadline() {
    let mut server = server();
    server.give(host(1), &ask(0, 4));
    let id = server.request().unwrap();
    server.pass(1_002 * MS);
    assert!(matches!(server.node.poll_event(), Some(Event::Cancelled { id: gone }) if gone == id));
    assert_eq!((server.metrics().unanswered, server.node.holdings().requests), (1, 0));
    assert_eq!(server.node.reply(server.now, id, vec![]), Err(AnswerError::Gone));
}

/// It was answered, and what of it was lost is not remembered.
#[test]
fn a_request_whose_reply_is_released_does_not_run_again() {
    let mut server = server();
    server.give(host(1), &ask(0, 4));
    let id = server.request().unwrap();
    server.node.reply(server.now, id, vec![7]).unwrap();
    server.sent();
    let have_it = sack(1, 1, &[]);
    server.give(host(1), &told(MessageType::ReplyAck, 0, 0, have_it.as_bytes()));
    let said = server.give(host(1), &ask(0, 4));
    assert_eq!(refusals(&said), [DropReason::Uncertain]);
    assert_eq!((server.request(), server.metrics().duplicate_after_release), (None, 1));
    let drops = server.metrics().drops;
    assert_eq!(drops[DropReason::Uncertain as usize], 1);
}

/// Requests that the application has, and of these those beyond the one that it runs.
#[test]
fn all_that_a_server_says_tells_its_load() {
    let mut server = server_with(|config| {
        (config.pool.server_id, config.pool.router) = (42, Some(host(9)));
    });
    let mut ids = Vec::new();
    for sequence in 0..6 {
        let repr = RequestRepr { client_clock_us: 70, ..asking(MessageType::Request, sequence) };
        server.give(host(1), &routed(asked(&repr, 4, 0), Route::default()));
        ids.push(server.request().unwrap());
    }
    let load = |sent: &Sent| {
        let header = *sent.packet().reply_header().unwrap();
        (header.server_load.get(), header.server_waiting.get(), header.server_id.get())
    };
    server.node.reply(server.now, ids[0], vec![7]).unwrap();
    let sent = server.sent();
    let kind: Vec<_> = sent.iter().map(|sent| sent.kind().0).collect();
    assert_eq!(kind, [MessageType::Response, MessageType::Feedback]);
    assert_eq!((load(&sent[0]), load(&sent[1])), ((5, 4, 42), (5, 4, 42)));
    let header = *sent[0].packet().reply_header().unwrap();
    assert!(header.clock_echo_us.get() == 70 && header.token.get() != 0);
    assert_eq!((sent[1].to, server.metrics().feedback), (host(9), 1));
    server.node.refuse(server.now, ids[1], DropReason::Application).unwrap();
    assert_eq!(load(&server.sent()[0]), (4, 3, 42));
    let ack = server.give(host(1), &ask(2, 4)).remove(0);
    assert_eq!((ack.kind().0, load(&ack).0, load(&ack).1), (MessageType::Ack, 4, 3));
    server.node.set_workers(3);
    let ack = server.give(host(1), &ask(2, 4)).remove(0);
    assert_eq!((load(&ack).0, load(&ack).1), (4, 1));
}

#[test]
fn an_overloaded_server_says_when_to_come_back() {
    let mut server = server_with(|config| config.serving.requests_per_client_max = 1);
    server.node.set_retry_after(7 * MS);
    server.give(host(1), &ask(0, 4));
    let said = server.give(host(1), &ask(1, 4));
    assert_eq!(refusals(&said), [DropReason::Overload]);
    assert_eq!(said[0].packet().reply_header().unwrap().detail.get(), 7_000_000);
    let id = server.request().unwrap();
    server.node.refuse(server.now, id, DropReason::Application).unwrap();
    assert_eq!(server.sent()[0].packet().reply_header().unwrap().detail.get(), 0);
}

#[test]
fn answers_that_anybody_may_ask_for_do_not_pile_up() {
    let mut server = server();
    let mut lost = flagged(0, 0, 200, 1);
    for _ in 0..8_200 {
        server.node.handle_datagram(server.now, host(1).into(), &mut lost);
    }
    assert_eq!(server.metrics().control_dropped_queue_full, 8);
    assert_eq!((server.sent().len(), server.metrics().datagrams_out), (8_192, 8_192));
}

/// Only a router can ask where else it may have run.
#[test]
fn a_moved_request_is_taken_from_a_router_alone() {
    let moved = || flagged(0, Flags::MOVED, 4, 0);
    let said = behind_a_router().give(host(1), &moved());
    assert_eq!(refusals(&said), [DropReason::Uncertain]);
    let mut server = behind_a_router();
    server.give(host(1), &routed(moved(), Route::default()));
    assert!(server.request().is_some());
}

#[test]
fn a_request_of_one_packet_needs_no_place_among_the_half_received() {
    let mut server = server_with(|config| config.serving.partials_max = 0);
    server.give(host(1), &ask(0, 4));
    assert!(server.request().is_some());
    let said = server.give(host(1), &ask(1, 200));
    assert_eq!(refusals(&said), [DropReason::Overload]);
}

/// Clients whose addresses cannot be forged fill no table by forged ones.
#[test]
fn trusted_clients_need_no_token_however_many_there_are() {
    for is_trusted in [true, false] {
        let mut server = Solo::new(|config| {
            config.clients_max = 40;
            let network = if is_trusted { "10.2.0.0/16" } else { "10.3.0.0/16" };
            config.serving.trusted.push(network.parse().unwrap());
        });
        for number in 0..20 {
            server.give(host(number), &ask(number.into(), 4));
            assert!(server.request().is_some());
        }
        let sent = server.give(host(20), &ask(20, 4));
        assert_eq!((sent.is_empty(), server.request().is_some()), (is_trusted, is_trusted));
    }
}

/// It has room for more once it is validated.
#[test]
fn a_client_with_more_sessions_than_a_stranger_may_have_is_asked_for_its_token() {
    let mut server = Solo::new(|config| config.serving.sessions_unvalidated_max = 1);
    let of_session = |session: u64, token| {
        let repr = asking(MessageType::Request, 0);
        let id = RpcId::new(SessionId(session), 0);
        asked(&RequestRepr { rpc_id: id, token, ..repr }, 4, 0)
    };
    server.give(host(1), &of_session(1, 0));
    assert!(server.request().is_some());
    let said = server.give(host(1), &of_session(2, 0));
    assert!(is_demand(&said) && server.request().is_none());
    assert_eq!(server.metrics().validations, 1);
    let token = said[0].packet().token();
    assert!(server.give(host(1), &of_session(2, token)).is_empty());
    assert!(server.request().is_some());
    assert!(server.node.sessions_bytes() > 1);
}

/// A trusted client in a packet of somebody who is not: a router may be asked by anybody.
#[test]
fn a_router_that_is_not_trusted_does_not_make_its_clients_so() {
    let route = Route::to_client(host(1));
    let router = "10.9.0.9:9000".parse().unwrap();
    let server = || server_with(|config| config.pool.router = Some(router));
    let mut several = server();
    let said = several.give(router, &routed(ask(0, 200), route));
    let (to_client, reports): (Vec<Sent>, _) =
        said.into_iter().partition(|sent| sent.to == host(1));
    assert!(is_demand(&to_client) && targets(&reports) == [router]);
    let mut one = server();
    one.give(router, &routed(ask(0, 4), route));
    let id = one.request().unwrap();
    one.node.reply(one.now, id, vec![7; 1_000]).unwrap();
    one.sent();
    assert_eq!(one.metrics().amplification_limited, 1);
}

#[test]
fn nobody_is_answered_at_an_address_of_many() {
    let mut server = behind_a_router();
    let many = "224.0.0.1:53".parse().unwrap();
    let said = server.give(host(9), &routed(ask(0, 4), Route::to_client(many)));
    assert!(said.is_empty() && server.request().is_none());
    assert_eq!(server.metrics().protocol_violation, 1);
}

/// Replies go first, but not for ever.
#[test]
fn a_report_goes_after_eight_batches_of_replies() {
    let mut server = behind_a_router();
    for last in 10..40 {
        let mut bytes = routed(ask(u32::from(last), 4), Route::default());
        RequestHeader::mut_from_prefix(&mut bytes).unwrap().0.base.rid.set(u16::from(last));
        server.node.handle_datagram(server.now, host(last).into(), &mut bytes);
        let id = server.request().unwrap();
        server.node.reply(server.now, id, vec![7]).unwrap();
    }
    let sent = server.sent();
    let at = sent.iter().position(|sent| sent.to == host(9)).unwrap();
    assert!((5..10).contains(&at), "after {at} of {} replies", sent.len());
}

/// A router at host 9 asks a server never to run a request of host 1.
fn claim(sequence: u32, flags: u8, age_ms: u16, client: SocketAddr) -> Vec<u8> {
    let repr = RequestRepr { flags, age_ms, ..asking(MessageType::Claim, sequence) };
    [repr.header().as_bytes(), ClaimBody::of_client(client).as_bytes()].concat()
}

/// Verdict of a server on a claim of what has just been sent for the first time.
fn verdict(server: &mut Solo, sequence: u32) -> Option<Verdict> {
    verdict_of(server, &claim(sequence, 0, 0, host(1)))
}

fn verdict_of(server: &mut Solo, claim: &[u8]) -> Option<Verdict> {
    let said = server.give(host(9), claim);
    let [said] = &said[..] else { return None };
    assert_eq!((said.to, said.kind().0), (host(9), MessageType::Claimed));
    Some(Verdict::from_payload(said.packet().payload))
}

#[test]
fn a_request_that_was_renounced_never_runs() {
    let mut server = behind_a_router();
    assert_eq!(verdict(&mut server, 5), Some(Verdict::Renounced));
    assert_eq!(verdict(&mut server, 5), Some(Verdict::Renounced), "the answer may be lost");
    let said = server.give(host(1), &routed(ask(5, 4), Route::default()));
    assert_eq!(refusals(&said), [DropReason::Uncertain]);
    assert_eq!(server.request(), None);
    server.give(host(1), &routed(ask(6, 4), Route::default()));
    assert!(server.request().is_some());
}

#[test]
fn a_request_that_is_here_or_was_is_not_renounced() {
    let mut server = behind_a_router();
    server.give(host(1), &routed(ask(0, 4), Route::default()));
    assert_eq!(verdict(&mut server, 0), Some(Verdict::Seen));
    let id = server.request().unwrap();
    server.node.refuse(server.now, id, DropReason::Application).unwrap();
    server.sent();
    assert_eq!(verdict(&mut server, 0), Some(Verdict::Seen));
}

/// It may have run before the server began to remember, a second ago.
#[test]
fn a_request_that_may_be_older_than_the_server_is_not_renounced() {
    for (flags, age_ms, expected) in [
        (Flags::RETRANSMIT, 1_000, Verdict::Uncertain),
        (Flags::RETRANSMIT, 100, Verdict::Renounced),
        (0, 1_000, Verdict::Renounced),
        (Flags::RETRANSMIT | Flags::IDEMPOTENT, 1_000, Verdict::Renounced),
    ] {
        let mut server = behind_a_router();
        let claim = claim(0, flags, age_ms, host(1));
        assert_eq!(verdict_of(&mut server, &claim), Some(expected), "{flags:x}, {age_ms} ms");
    }
}

/// The end of the field tells no more than that it is as old.
#[test]
fn an_age_that_no_field_can_tell_is_older_than_every_server() {
    for (age_ms, expected) in [(u16::MAX - 1, Verdict::Renounced), (u16::MAX, Verdict::Uncertain)] {
        let mut server = behind_a_router();
        // Its session is known for 100 s.
        server.give(host(1), &routed(ask(0, 4), Route::default()));
        server.request().expect("it is new");
        server.now += 100_000_000_000;
        let claim = claim(5, Flags::RETRANSMIT, age_ms, host(1));
        assert_eq!(verdict_of(&mut server, &claim), Some(expected), "{age_ms} ms");
    }
}

#[test]
fn a_server_without_room_for_a_client_cannot_tell() {
    let mut server = server_with(|config| {
        (config.clients_max, config.pool.router) = (2, Some(host(9)));
    });
    server.give(host(2), &ask(0, 4));
    assert_eq!(verdict(&mut server, 5), Some(Verdict::Uncertain));
}

#[test]
fn a_claim_is_a_believed_routers_of_a_single_host() {
    let serving = |is_enabled| {
        server_with(|config| {
            (config.pool.router, config.serving.is_enabled) = (Some(host(9)), is_enabled);
        })
    };
    let good = claim(5, 0, 0, host(1));
    for (mut server, from, bytes) in [
        (serving(false), host(9), good.clone()),
        (serving(true), host(8), good.clone()),
        (serving(true), host(9), claim(5, 0, 0, "224.0.0.1:53".parse().unwrap())),
    ] {
        assert!(server.give(from, &bytes).is_empty());
        assert_eq!(server.metrics().protocol_violation, 1);
    }
}

/// An address has at most three times what is left of the upper half of the memory.
#[test]
fn long_requests_get_no_credit_beyond_the_share_of_their_client() {
    let mut server = server_with(|config| {
        (config.serving.held_bytes_max, config.credit_bytes) = (10_000, 640);
    });
    let packets = (0..100).flat_map(|index| (0..3).map(move |sequence| (sequence, index)));
    let held = packets.map(|(sequence, index)| {
        server.give(host(1), &flagged(sequence, 0, 6_400, index));
        server.node.holdings().held_bytes
    });
    let most = held.max().unwrap();
    assert!((8_000..9_500).contains(&most), "{most}");
}

/// So that a router which waits for reports is not kept waiting by long replies.
#[test]
fn reports_go_between_the_batches_of_long_replies() {
    let mut server = server_with(|config| config.segment_len = 1_000);
    server.give(host(1), &ask(0, 4));
    let id = server.request().unwrap();
    server.node.reply(server.now, id, vec![7; 3_000_000]).unwrap();
    let credit = told(MessageType::ReplyAck, 0, 0, sack(1, 3_000, &[]).as_bytes());
    server.node.handle_datagram(server.now, host(1).into(), &mut credit.clone());
    let mut buffer = vec![0; tailcut_proto::node::GSO_BYTES_MAX];
    let mut batches = || {
        let attached = std::iter::from_fn(|| server.attached()).take(20).count();
        server.node.poll_transmit(server.now, &mut buffer).expect("there is more of it");
        attached
    };
    batches();
    assert_eq!([batches(), batches()], [7, 7], "and one of the eight that is written");
}
