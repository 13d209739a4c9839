//! Rules of an R2P2 client: what it believes of the packets that it gets, what it says to them, and
//! which calls it takes at all.

use tailcut_proto::node::{Node, Path, Source};
use tailcut_proto::r2p2::Copies;
use tailcut_proto::rpc::{Call, CallError, Failure, Rpc};
use tailcut_wire::r2p2::{CloneMark, DropReason, Flags, MessageType, ReplyRepr, Segment};

use super::r2p2_support::*;

fn client() -> Solo {
    Solo::new(|_| {})
}

/// A client that knows host 1 for a server, since it has taken a request of several packets.
fn acquainted() -> Solo {
    let mut client = client();
    let first = client.called(host(1), 200, ONCE);
    client.give(host(1), &first.ack(1, 4));
    client.give(host(1), &first.reply(1, 0));
    assert!(client.reply().is_some());
    client
}

#[test]
fn a_deadline_is_ahead_and_within_the_limit() {
    let limit_ns = 500 * MS;
    for (ahead_ns, is_taken) in [(0, false), (1, true), (limit_ns, true), (limit_ns + 1, false)] {
        let mut client = Solo::new(|config| config.lifetime_ns_max = limit_ns);
        let deadline = client.now + ahead_ns;
        let (target, payload, options) = (host(1), vec![], ONCE);
        let call = Call { target, payload, deadline, context: 0, options };
        let called = client.node.call(client.now, call);
        let expected = Err(CallError::BadDeadline { limit_ns });
        assert_eq!(called.map(|_| true), if is_taken { Ok(true) } else { expected }, "{ahead_ns}");
    }
}

#[test]
fn a_request_is_as_long_as_the_limit_and_as_packets_can_be_counted() {
    let countable = usize::from(SEGMENT_LEN) * 65_534;
    for (message_len_max, limit) in [(100, 100), (8 << 20, countable)] {
        for len in [limit, limit + 1] {
            let mut client = Solo::new(|config| config.message_len_max = message_len_max);
            let deadline = client.now + MS;
            let (target, payload, options) = (host(1), vec![0; len], ONCE);
            let call = Call { target, payload, deadline, context: 0, options };
            let expected = Err(CallError::TooLarge { len, limit });
            let called = client.node.call(client.now, call).map(|_| ());
            assert_eq!(called, if len > limit { expected } else { Ok(()) });
        }
    }
}

/// A server that a router has picked knows the call by the address that it has come to the router
/// from.
#[test]
fn what_follows_to_a_server_behind_the_target_leaves_from_where_the_request_did() {
    let toward = Source::Toward(host(1));
    for (server, local, expected) in [
        (host(1), None, Source::Any),
        (host(3), None, toward),
        (host(3), Some([10, 0, 0, 9].into()), Source::Local([10, 0, 0, 9].into())),
    ] {
        let path = Path { local, peer: server };
        let mut client = client();
        let first = client.called(host(1), 200, ONCE);
        assert_eq!(first.from, Source::Any);
        let rest = client.give_along(path, &first.ack(1, 4));
        assert!(
            rest.len() == 3 && rest.iter().all(|sent| (sent.from, sent.to) == (expected, server))
        );
        let repr = ReplyRepr { token: 5, ..first.answer(MessageType::Response) };
        client.give_along(path, &replied(&repr, 200, 0));
        let acks = client.wait();
        assert_eq!((acks[0].from, acks[0].kind().0), (expected, MessageType::ReplyAck));
    }
    // One packet, of which the reply is lost.
    let mut client = client();
    let first = client.called(host(1), 4, ONCE);
    client.give(host(3), &first.ack(1, 1));
    let again = client.wait();
    assert_eq!((again[0].from, again[0].to), (toward, host(3)));
    // A long one, whose payload stays where it is.
    let mut client = Solo::new(|config| config.segment_len = 1380);
    let first = client.called(host(1), 100_000, ONCE);
    client.node.handle_datagram(client.now, host(3).into(), &mut first.ack(1, 60));
    let rest = client.attached().expect("many packets");
    assert_eq!((rest[0].from, rest[0].to), (toward, host(3)));
}

/// The client itself has sent it there.
#[test]
fn a_copy_leaves_from_where_packets_to_its_server_do() {
    let mut client = Solo::new(|config| {
        config.cloning.copies = Copies::Always;
        config.cloning.servers = vec![host(1), host(2)];
    });
    client.call(host(1), 200, IDEMPOTENT);
    let sent = client.sent();
    let copy = sent.iter().find(|sent| sent.to == host(2)).expect("a copy");
    assert!(sent.iter().all(|sent| sent.from == Source::Any));
    for sent in client.give(host(2), &copy.ack(1, 4)) {
        assert_eq!((sent.from, sent.to), (Source::Any, host(2)));
    }
}

#[test]
fn calls_are_counted_by_how_they_end() {
    let mut client = client();
    let first = client.called(host(1), 4, ONCE);
    client.give(host(1), &first.reply(4, 0));
    let second = client.called(host(1), 4, ONCE);
    client.give(host(1), &second.refusal(DropReason::Overload));
    let third = client.call(host(1), 4, ONCE);
    client.sent();
    client.node.cancel(client.now, third);
    client.call(host(1), 4, ONCE);
    client.pass(2_000 * MS);
    let counts = client.metrics().common;
    assert_eq!((counts.calls, counts.replied, counts.refused), (4, 1, 1));
    assert_eq!((counts.cancelled, counts.deadlines, counts.failed), (1, 1, 0));
    assert!(client.metrics().datagrams_out >= 4);
}

/// A server that knows nothing of the call has nothing to be told; a long call may wait there.
#[test]
fn a_call_that_is_given_up_is_cancelled_once_it_was_sent() {
    let mut client = client();
    let unsent = client.call(host(1), 4, ONCE);
    client.node.cancel(client.now, unsent);
    assert!(client.sent().is_empty());
    let id = client.call(host(1), 4, ONCE);
    let sent = client.sent().remove(0);
    client.node.cancel(client.now, id);
    let cancels = client.sent();
    assert_eq!(kinds(&cancels), [(MessageType::Cancel, 0)]);
    assert_eq!(cancels[0].packet().rpc_id(), sent.packet().rpc_id());
}

#[test]
fn packets_of_no_call_change_nothing_and_are_counted() {
    let mut client = client();
    let sent = client.called(host(1), 4, ONCE);
    client.give(host(1), &sent.reply(4, 0));
    assert!(client.reply().is_some());
    client.give(host(1), &sent.reply(4, 0));
    client.give(host(1), &sent.ack(1, 1));
    client.give(host(1), &sent.refusal(DropReason::Overload));
    assert_eq!(client.metrics().unknown, 3);
    // The slower of two copies of a router's.
    for mark in [CloneMark::Original, CloneMark::Copy] {
        let repr = ReplyRepr { flags: mark.bits(), ..sent.answer(MessageType::Response) };
        client.give(host(1), &replied(&repr, 4, 0));
    }
    assert_eq!((client.metrics().unknown, client.metrics().clones_filtered), (3, 2));
    assert!(client.node.poll_event().is_none());
}

/// The slot of a call is used again, and so is its number in packets.
#[test]
fn a_reply_to_the_last_call_does_not_answer_the_next() {
    let mut client = client();
    let first = client.called(host(1), 4, ONCE);
    client.give(host(1), &first.reply(4, 0));
    assert!(client.reply().is_some());
    let second = client.called(host(1), 4, ONCE);
    assert_eq!(first.packet().rid, second.packet().rid);
    client.give(host(1), &first.reply(4, 0));
    assert_eq!((client.reply(), client.metrics().unknown), (None, 1));
    client.give(host(1), &second.reply(4, 0));
    assert!(client.reply().is_some());
}

/// It has a route block as long as the router has not seen it.
#[test]
fn a_reply_on_its_way_through_a_router_is_not_for_the_client() {
    let mut client = client();
    let sent = client.called(host(1), 4, ONCE);
    let repr = ReplyRepr::control(MessageType::Response, 0, sent.packet().rpc_id().unwrap());
    let segment = Segment { message_len: 4, segment_len: SEGMENT_LEN, index: 0, count: 1 };
    let repr = ReplyRepr { rid: sent.packet().rid, segment, ..repr };
    let mut bytes = vec![0; 72 + 4];
    repr.emit_returned(host(9), &mut bytes);
    client.give(host(1), &bytes);
    assert_eq!((client.reply(), client.metrics().unexpected), (None, 1));
}

/// A call that may run once has one server, beside the router that leads to it.
#[test]
fn who_may_answer_a_call_that_another_server_has() {
    for (options, from, is_answer) in [
        (ONCE, host(1), true),
        (ONCE, host(3), true),
        (ONCE, host(4), false),
        (IDEMPOTENT, host(4), true),
    ] {
        let mut client = client();
        let sent = client.called(host(1), 4, options);
        client.give(host(3), &sent.ack(1, 1));
        client.give(from, &sent.reply(4, 0));
        assert_eq!(client.reply().is_some(), is_answer, "{options:?} by {from}");
        assert_eq!(client.metrics().protocol_violation, u64::from(!is_answer));
    }
}

#[test]
fn who_has_nothing_to_do_with_a_call_does_not_refuse_it() {
    let mut client = client();
    let sent = client.called(host(1), 4, ONCE);
    client.give(host(3), &sent.ack(1, 1));
    client.give(host(4), &sent.refusal(DropReason::Application));
    assert_eq!((client.failure(), client.metrics().protocol_violation), (None, 1));
    client.give(host(3), &sent.refusal(DropReason::Stopping));
    assert_eq!(client.failure(), Some(Failure::Refused(DropReason::Stopping)));
}

#[test]
fn a_reply_as_long_as_the_limit_is_taken_and_a_longer_one_fails_the_call() {
    for len in [300, 301] {
        let mut client = Solo::new(|config| config.message_len_max = 300);
        let sent = client.called(host(1), 4, ONCE);
        let said = client.give(host(3), &sent.reply(len, 0));
        if len == 300 {
            (1..5).for_each(|index| drop(client.give(host(3), &sent.reply(len, index))));
            assert_eq!(client.reply().map(|reply| reply.len()), Some(300));
        } else {
            assert_eq!(kinds(&said), [(MessageType::Cancel, 0)], "nobody waits for the rest");
            assert_eq!(targets(&said), [host(3)]);
            assert_eq!(client.failure(), Some(Failure::ReplyTooLarge));
            assert_eq!(client.metrics().failed, 1);
        }
    }
}

/// The first packet of the other reply is told off; the rest of it was under way by then.
#[test]
fn of_two_long_replies_to_an_idempotent_call_one_is_cancelled() {
    let mut client = client();
    let sent = client.called(host(1), 4, IDEMPOTENT);
    client.give(host(3), &sent.reply(640, 0));
    let said = client.give(host(4), &sent.reply(640, 0));
    assert_eq!((kinds(&said), targets(&said)), (vec![(MessageType::Cancel, 0)], vec![host(4)]));
    assert_eq!((client.metrics().clones_filtered, client.metrics().protocol_violation), (1, 0));
    assert!(client.give(host(4), &sent.reply(640, 1)).is_empty());
    assert_eq!((client.metrics().clones_filtered, client.metrics().protocol_violation), (1, 1));
    (1..10).for_each(|index| drop(client.give(host(3), &sent.reply(640, index))));
    assert_eq!(client.reply().map(|reply| reply.len()), Some(640));
}

/// A request of one packet runs at both before an ACK of either is here.
#[test]
fn of_two_servers_with_a_long_request_one_is_cancelled() {
    for (len, expected) in [(200, vec![(MessageType::Cancel, 0)]), (4, vec![])] {
        let mut client = client();
        let sent = client.called(host(1), len, IDEMPOTENT);
        client.give(host(3), &sent.ack(1, 1));
        let said = client.give(host(4), &sent.ack(1, 1));
        assert_eq!(kinds(&said), expected, "{len} bytes");
        assert_eq!(client.metrics().protocol_violation, u64::from(expected.is_empty()));
    }
}

#[test]
fn packets_of_a_reply_that_contradict_it_are_refused_and_repeated_ones_are_dropped() {
    let mut client = client();
    let sent = client.called(host(1), 4, ONCE);
    client.give(host(1), &sent.reply(640, 0));
    client.give(host(1), &sent.reply(641, 1));
    assert_eq!(client.metrics().protocol_violation, 1);
    client.give(host(1), &sent.reply(640, 0));
    assert_eq!((client.metrics().duplicates, client.metrics().protocol_violation), (1, 1));
}

#[test]
fn the_credit_for_replies_is_held_until_they_are_here() {
    let mut client = client();
    let sent = client.called(host(1), 4, ONCE);
    assert_eq!(client.node.holdings().expected, 0);
    client.give(host(1), &sent.reply(640, 0));
    assert_eq!(client.node.holdings().expected, 9);
    (1..10).for_each(|index| drop(client.give(host(1), &sent.reply(640, index))));
    assert_eq!((client.node.holdings().expected, client.node.holdings().calls), (0, 0));
}

/// Longer ones are a burden to the server, which keeps them until it hears of it.
#[test]
fn a_reply_of_more_than_four_packets_is_acknowledged_at_once() {
    for (packets, is_told) in [(1, false), (4, false), (5, true)] {
        let mut client = client();
        let len = u32::from(SEGMENT_LEN) * u32::from(packets);
        let sent = client.called(host(1), 4, ONCE);
        let said: Vec<Sent> = (0..packets)
            .flat_map(|index| {
                let repr = ReplyRepr { token: 77, ..sent.answer(MessageType::Response) };
                client.give(host(1), &replied(&repr, len, index))
            })
            .collect();
        assert!(client.reply().is_some());
        assert_eq!(said.len(), usize::from(is_told), "{packets} packets");
        for said in &said {
            assert_eq!((said.kind(), said.packet().token()), ((MessageType::ReplyAck, 0), 77));
            assert_eq!(said.packet().flags(), Flags(0));
            assert_eq!(*said.packet().sack().unwrap(), sack(packets, packets, &[]));
        }
    }
}

/// The floor of later requests lets a server release replies, but not past a call that goes on.
#[test]
fn replies_behind_a_slow_call_are_acknowledged_one_by_one_where_there_are_many() {
    for (packets, behind_max) in [(1, 1024), (2, 64)] {
        let mut client = client();
        client.called(host(2), 4, ONCE);
        let len = u32::from(SEGMENT_LEN) * packets;
        for behind in 1..=behind_max + 1 {
            let sent = client.called(host(1), 4, ONCE);
            let said: Vec<Sent> = (0..packets as u16)
                .flat_map(|index| client.give(host(1), &sent.reply(len, index)))
                .collect();
            let expected = usize::from(behind > behind_max);
            assert_eq!(said.len(), expected, "{packets} packets, {behind} behind");
        }
    }
}

/// A single packet is no reason to tell a router that it cannot place it.
#[test]
fn only_requests_of_several_packets_go_without_credit() {
    let mut client = acquainted();
    let several = client.called(host(1), 200, ONCE);
    assert!(several.has(Flags::UNSCHEDULED) && several.packet().route().is_none());
    let one = client.called(host(1), 64, ONCE);
    assert!(!one.has(Flags::UNSCHEDULED) && one.packet().route().is_some());
}

/// In the order of the calls; those with a shorter last packet take turns, as one GSO batch has one
/// length.
#[test]
fn even_requests_go_one_after_the_other() {
    for (len, expected) in [(128, [0, 1, 0, 1, 0, 1]), (127, [0, 0, 0, 1, 1, 1])] {
        let mut client = acquainted();
        for _ in 0..3 {
            client.call(host(1), len, ONCE);
        }
        assert_eq!(kinds(&client.sent()), requests(expected), "{len} bytes");
    }
}

/// Packets that are not acknowledged yet are on their way; only where packet 0 was lost the rest
/// was in vain.
#[test]
fn an_ack_in_time_sends_nothing_again() {
    let mut client = acquainted();
    let first = client.called(host(1), 20 * 64, ONCE);
    let said = client.give(host(1), &first.ack(1, 13));
    assert_eq!(kinds(&said), requests([12]));
    assert_eq!(client.metrics().resent, 0);
}

#[test]
fn packets_behind_a_lost_first_one_go_again_with_it() {
    let mut client = acquainted();
    client.call(host(1), 200, ONCE);
    assert_eq!(kinds(&client.sent()), requests(0..4));
    let again = client.wait();
    assert_eq!(kinds(&again), requests([0]));
    assert_eq!(kinds(&client.give(host(1), &again[0].ack(1, 4))), requests(1..4));
    assert_eq!((client.metrics().resent, client.metrics().timeouts), (4, 1));
}

#[test]
fn progress_after_a_timeout_sends_what_is_new() {
    let mut client = client();
    let first = client.called(host(1), 640, ONCE);
    assert_eq!(kinds(&client.give(host(1), &first.ack(1, 4))), requests(1..4));
    assert_eq!(kinds(&client.wait()), requests(1..4), "what it has sent and what has not come");
    assert_eq!(client.metrics().resent, 3);
    assert_eq!(kinds(&client.give(host(1), &first.ack(2, 5))), requests([4]));
    assert_eq!(client.metrics().resent, 3);
}

#[test]
fn a_hole_that_stays_is_filled_again_after_a_round_trip() {
    let mut client = client();
    let first = client.called(host(1), 640, ONCE);
    client.give(host(1), &first.ack(1, 10));
    let ack = first.ack_of(1, 10, &[3, 4, 5, 6, 7]);
    assert_eq!(kinds(&client.give(host(1), &ack)), requests([1, 2]));
    assert_eq!(kinds(&client.give(host(1), &ack)), [], "they are on their way");
    client.now += MS;
    assert_eq!(kinds(&client.give(host(1), &ack)), requests([1, 2]));
    assert_eq!(client.metrics().resent, 4);
}

#[test]
fn holes_of_a_reply_are_asked_for_once_in_a_round_trip() {
    let mut client = client();
    let sent = client.called(host(1), 4, ONCE);
    let give = |client: &mut Solo, index| {
        let repr = ReplyRepr { token: 77, ..sent.answer(MessageType::Response) };
        client.give(host(1), &replied(&repr, 640, index))
    };
    assert!(give(&mut client, 0).is_empty() && give(&mut client, 3).is_empty(), "overtaken");
    let asked = give(&mut client, 4);
    assert_eq!(kinds(&asked), [(MessageType::ReplyAck, 0)]);
    assert!(asked[0].has(Flags::RESEND) && !asked[0].has(Flags::RESEND_TAIL));
    assert_eq!(*asked[0].packet().sack().unwrap(), sack(1, 10, &[3, 4]));
    assert_eq!(asked[0].packet().token(), 77);
    assert!(give(&mut client, 5).is_empty());
    client.now += MS;
    assert!(give(&mut client, 6)[0].has(Flags::RESEND));
    let tail = client.wait();
    assert!(tail[0].has(Flags::RESEND | Flags::RESEND_TAIL), "it asks for all that is missing");
}

/// Packets that were under way when the server lost the request are answered so one by one.
#[test]
fn a_request_begins_anew_by_the_first_demand_for_a_token() {
    let mut client = client();
    let first = client.called(host(1), 640, ONCE);
    client.give(host(1), &first.ack(1, 10));
    let demand = |clock_us| {
        let repr =
            ReplyRepr { clock_echo_us: clock_us, token: 5, ..first.answer(MessageType::Ack) };
        acked(&repr, &sack(0, 0, &[]))
    };
    client.now += MS;
    let before_us = first.clock_us();
    let again = client.give(host(1), &demand(before_us));
    assert_eq!((kinds(&again), again[0].packet().token()), (requests([0]), 5));
    assert!(client.give(host(1), &demand(before_us)).is_empty());
    assert_eq!(client.metrics().duplicates, 1);
    // The clock of what answered it, or none.
    assert_eq!(kinds(&client.give(host(1), &demand(again[0].clock_us()))), requests([0]));
    assert_eq!(kinds(&client.give(host(1), &demand(0))), requests([0]));
    assert_eq!(client.metrics().duplicates, 1);
}

#[test]
fn a_token_is_for_the_server_that_gave_it_and_for_the_target_that_leads_there() {
    let mut client = client();
    let id = client.call(host(1), 4, ONCE);
    let sent = client.sent().remove(0);
    let repr = ReplyRepr { token: 77, ..sent.answer(MessageType::Ack) };
    client.give(host(3), &acked(&repr, &sack(1, 1, &[])));
    client.node.cancel(client.now, id);
    let cancel = client.sent().remove(0);
    assert_eq!((cancel.to, cancel.packet().token()), (host(3), 77));
    assert_eq!(client.called(host(1), 4, ONCE).packet().token(), 77);
    assert_eq!(client.called(host(2), 4, ONCE).packet().token(), 0);
}

/// There is one place, and one that newcomers share when it is taken.
#[test]
fn a_target_whose_calls_have_ended_makes_room_for_another() {
    let mut client = Solo::new(|config| config.servers_max = 1);
    for last in [1, 2, 3] {
        let sent = client.called(host(last), 4, ONCE);
        assert_eq!(sent.packet().token(), 0, "it knows no token of host {last}");
        let repr = ReplyRepr { token: 77, ..sent.answer(MessageType::Response) };
        client.give(host(last), &replied(&repr, 4, 0));
        assert!(client.reply().is_some());
        assert_eq!(client.called(host(last), 4, ONCE).packet().token(), 77);
        client.pass(2_000 * MS);
        assert_eq!(client.failure(), Some(Failure::Deadline));
        client.now += 10_000 * MS;
    }
}

/// It may have run before the server started.
#[test]
fn a_call_whose_fate_is_uncertain_ends_no_session_where_packets_are_open() {
    let mut client = client();
    let session = |sent: &Sent| sent.packet().rpc_id().unwrap().session();
    let first = client.called(host(1), 4, ONCE);
    client.give(host(1), &first.refusal(DropReason::Uncertain));
    let second = client.called(host(1), 4, ONCE);
    assert_eq!(session(&first), session(&second));
}

/// It has the request, since it replies.
#[test]
fn a_server_that_replies_and_asks_for_its_token_gets_packet_0_alone() {
    let mut client = client();
    let first = client.called(host(1), 256, ONCE);
    assert_eq!(kinds(&client.give(host(1), &first.ack(1, 4))), requests(1..4));
    client.give(host(1), &first.reply(640, 0));
    assert_eq!(kinds(&client.give(host(1), &first.ack(0, 0))), requests([0]));
    assert!(client.give(host(1), &first.ack(1, 4)).is_empty(), "the rest is there");
}
