//! Timers of an R2P2 client: when it speaks again, to whom, and when it sends a second copy.

use std::net::SocketAddr;

use tailcut_proto::node::Node;
use tailcut_proto::r2p2::{Copies, Hedge, Loser};
use tailcut_proto::rpc::{CallOptions, Failure};
use tailcut_wire::r2p2::{CloneMark, DropReason, Flags, MessageType, ReplyRepr};

use super::r2p2_support::*;

const V1: CallOptions = CallOptions { v1: true, ..ONCE };
const V1_IDEMPOTENT: CallOptions = CallOptions { v1: true, ..IDEMPOTENT };

/// A tick of the client's timers.
const TICK: u64 = 1 << 16;

fn client() -> Solo {
    Solo::new(|_| {})
}

/// A client whose targets 1 and 2 stand for each other.
fn of_two() -> Solo {
    Solo::new(|config| config.alternates = vec![host(1), host(2)])
}

/// Whatever comes next is sent after so long, within a tick by which timers are late.
fn check_timeout(client: &mut Solo, expected_ns: u64) {
    let before = client.now;
    client.wait();
    let found_ns = client.now - before;
    assert!((expected_ns..=expected_ns + TICK).contains(&found_ns), "{found_ns}");
}

/// RFC 6298: the first sample, and four times half of it.
#[test]
fn a_client_waits_as_long_as_its_target_took_before() {
    for (echo_before_us, expected_ns) in [(10_000, 30 * MS), (0, 2 * MS), (-5_000, 2 * MS)] {
        let mut client = client();
        let sent = client.called(host(1), 4, ONCE);
        client.pass(10_000);
        let now_us = (client.now / 1000) as i64;
        // 0 stands for none, and of a clock that is ahead nothing can be learnt.
        let echo = if echo_before_us == 0 { 0 } else { now_us - echo_before_us };
        let repr = ReplyRepr { clock_echo_us: echo as u32, ..sent.answer(MessageType::Response) };
        client.give(host(1), &replied(&repr, 4, 0));
        client.called(host(1), 4, ONCE);
        check_timeout(&mut client, expected_ns);
    }
}

/// A server acknowledges at once, but may take long to reply.
#[test]
fn an_ack_is_waited_for_as_long_as_acks_take_and_a_reply_as_long_as_replies() {
    let (ack_ns, reply_ns) = (500_000, 2 * MS);
    let known = || {
        let mut client = client();
        let first = client.called(host(1), 200, ONCE);
        client.pass(10_000);
        let repr = ReplyRepr { clock_echo_us: first.clock_us(), ..first.answer(MessageType::Ack) };
        client.give(host(1), &acked(&repr, &sack(1, 4, &[])));
        (client, first)
    };
    let (mut client, _) = known();
    check_timeout(&mut client, ack_ns);
    let (mut client, first) = known();
    client.give(host(1), &first.ack(4, 4));
    check_timeout(&mut client, reply_ns);
    client.give(host(1), &first.reply(640, 0));
    check_timeout(&mut client, ack_ns);
}

/// Unless a server has the call.
#[test]
fn a_target_that_others_stand_in_for_is_asked_every_20_ms() {
    for (alternates, options, is_acked, expected_ms) in [
        (vec![], ONCE, false, 30),
        (vec![host(1)], ONCE, false, 30),
        (vec![host(1), host(2)], ONCE, false, 20),
        (vec![host(1), host(2)], ONCE, true, 30),
        (vec![host(1), host(2)], V1_IDEMPOTENT, false, 30),
    ] {
        let mut client = Solo::new(|config| {
            (config.alternates, config.rto_initial_ns) = (alternates, 30 * MS);
        });
        let sent = client.called(host(1), 4, options);
        if is_acked {
            client.give(host(3), &sent.ack(1, 1));
        }
        check_timeout(&mut client, expected_ms * MS);
    }
}

/// Version 1 servers run what comes as often as it comes.
#[test]
fn a_version_1_call_that_may_run_once_is_never_sent_again() {
    for (options, len) in [(V1, 4), (V1_IDEMPOTENT, 2_000)] {
        let mut client = client();
        client.call(host(1), len, options);
        assert_eq!(client.sent().len(), 1);
        for _ in 0..999 {
            assert!(client.pass(MS).is_empty(), "{options:?}");
        }
        assert_eq!(client.failure(), None);
        client.pass(2 * MS);
        assert_eq!(client.failure(), Some(Failure::Deadline));
    }
    let mut client = client();
    client.call(host(1), 4, V1_IDEMPOTENT);
    assert_eq!((client.sent().len(), client.wait().len()), (1, 1));
}

#[test]
fn an_idempotent_call_leaves_a_silent_server_after_six_timeouts() {
    for options in [ONCE, IDEMPOTENT] {
        let mut client = client();
        let sent = client.called(host(1), 4, options);
        client.give(host(3), &sent.ack(1, 1));
        let asked: Vec<Sent> = (0..8).flat_map(|_| client.wait()).collect();
        assert_eq!(kinds(&asked), requests([0; 8]));
        let stayed = if options.idempotent { 5 } else { 8 };
        let expected: Vec<_> = (0..8).map(|at| host(if at < stayed { 3 } else { 1 })).collect();
        assert_eq!(targets(&asked), expected, "{options:?}");
        assert_eq!(client.metrics().timeouts, 8);
    }
}

#[test]
fn a_target_that_ends_is_left_for_the_one_that_stands_in() {
    for reason in [DropReason::Stopping, DropReason::NoServer] {
        let mut client = of_two();
        let sent = client.called(host(1), 4, ONCE);
        let moved = client.give(host(1), &sent.refusal(reason));
        assert_eq!((targets(&moved), client.metrics().moved), (vec![host(2)], 1));
        assert!(!moved[0].has(Flags::MOVED), "it has run nowhere");
        assert_eq!(client.failure(), None);
        // Each copy of it that the first had is refused.
        client.give(host(1), &sent.refusal(DropReason::Overload));
        assert_eq!((client.failure(), client.metrics().refused), (None, 0));
        assert_eq!(targets(&[client.called(host(1), 4, ONCE)]), [host(2)]);
    }
}

#[test]
fn a_refusal_that_is_not_for_the_end_of_a_target_ends_the_call() {
    for (from, reason) in [
        (host(1), DropReason::Overload),
        (host(1), DropReason::Application),
        (host(3), DropReason::Stopping),
    ] {
        let mut client = of_two();
        let sent = client.called(host(1), 4, ONCE);
        client.give(from, &sent.refusal(reason));
        assert_eq!(client.failure(), Some(Failure::Refused(reason)), "by {from}");
        assert_eq!(targets(&[client.called(host(1), 4, ONCE)]), [host(1)]);
    }
}

/// A call that may run once and that its first target has left unanswered until it moved.
fn moved() -> (Solo, Sent) {
    move_from(of_two())
}

/// As [`moved`], by a client that is to make a call.
fn move_from(mut client: Solo) -> (Solo, Sent) {
    client.call(host(1), 200, ONCE);
    loop {
        if let Some(moved) = client.wait().into_iter().find(|sent| sent.to == host(2)) {
            assert!(moved.has(Flags::MOVED));
            return (client, moved);
        }
    }
}

/// The next router's claim finds one of the servers.
#[test]
fn a_moved_call_ends_by_the_word_of_an_application_alone() {
    for (reason, is_end) in [
        (DropReason::Unspecified, false),
        (DropReason::Overload, false),
        (DropReason::TooLarge, true),
        (DropReason::TooOld, false),
        (DropReason::Expired, false),
        (DropReason::NoServer, false),
        (DropReason::Application, true),
        (DropReason::Uncertain, false),
        (DropReason::Unvalidated, true),
        (DropReason::Panicked, true),
        (DropReason::Stopping, false),
        (DropReason::Unanswered, true),
    ] {
        let (mut client, sent) = moved();
        client.give(host(3), &sent.refusal(reason));
        assert_eq!(client.failure(), is_end.then_some(Failure::Refused(reason)));
    }
}

#[test]
fn a_moved_call_goes_to_the_server_that_takes_it() {
    let (mut client, sent) = moved();
    // Who asks for a token takes it, as any server, from the router alone.
    for asks in [3, 4] {
        let again = client.give(host(asks), &sent.ack(0, 0));
        assert_eq!((kinds(&again), targets(&again)), (requests([0]), vec![host(2)]));
        assert!(again[0].has(Flags::MOVED));
    }
    let rest = client.give(host(4), &sent.ack(1, 4));
    assert_eq!((kinds(&rest), targets(&rest)), (requests(1..4), vec![host(4); 3]));
    assert!(rest.iter().all(|sent| sent.has(Flags::MOVED)));
    // It may as well have been answered by way of the first router.
    client.give(host(5), &sent.reply(4, 0));
    assert!(client.reply().is_some());
}

/// A server that knows no address of the client sends what three bytes for one allow, and asks for
/// its token.
#[test]
fn a_moved_call_whose_reply_has_begun_stays_with_its_server() {
    let (mut client, sent) = moved();
    client.give(host(3), &sent.ack(1, 4));
    client.give(host(3), &replied(&sent.answer(MessageType::Response), 200, 0));
    let again = client.give(host(3), &sent.ack(0, 0));
    assert_eq!((kinds(&again), targets(&again)), (requests([0]), vec![host(3)]));
    assert!(again[0].has(Flags::MOVED));
    for packet in 0..4 {
        client.give(host(3), &replied(&sent.answer(MessageType::Response), 200, packet));
    }
    assert!(client.reply().is_some());
}

/// Its payload may be left where it is; the headers say the same.
#[test]
fn a_long_call_that_has_moved_says_so_in_all_its_packets() {
    let mut client = Solo::new(|config| {
        (config.alternates, config.segment_len) = (vec![host(1), host(2)], 1_000);
    });
    client.call(host(1), 40_000, ONCE);
    let moved = loop {
        if let Some(moved) = client.wait().into_iter().find(|sent| sent.to == host(2)) {
            break moved;
        }
    };
    client.node.handle_datagram(client.now, host(3).into(), &mut moved.ack(1, 40));
    let before = client.metrics().datagrams_out;
    let rest = client.attached().expect("they are many");
    assert_eq!((kinds(&rest), targets(&rest)), (requests(1..40), vec![host(3); 39]));
    assert!(rest.iter().all(|sent| sent.has(Flags::MOVED)));
    assert_eq!(client.metrics().datagrams_out - before, 39);
    assert!(client.sent().is_empty());
}

/// It says whether it takes long packets of where it goes, not of where it went first.
#[test]
fn a_call_that_has_moved_to_another_host_takes_no_long_packets_from_there() {
    let here = SocketAddr::from(([127, 0, 0, 1], 7));
    for (first, second, expected) in
        [(here, host(2), [true, false]), (host(2), here, [false, true])]
    {
        let mut client = Solo::new(|config| config.alternates = vec![first, second]);
        let before = client.called(first, 4, ONCE);
        let after = loop {
            if let Some(moved) = client.wait().into_iter().find(|sent| sent.to == second) {
                break moved;
            }
        };
        assert_eq!([&before, &after].map(|sent| sent.has(Flags::LONG)), expected, "{first}");
    }
}

/// A demand for a token says that a target is there, and not that it takes the call.
#[test]
fn a_call_whose_target_asks_for_a_token_and_then_stops_is_the_next_ones() {
    let mut client = of_two();
    let demand = |sent: &Sent, token| {
        let clock_echo_us = sent.clock_us();
        let repr = ReplyRepr { clock_echo_us, token, ..sent.answer(MessageType::Ack) };
        acked(&repr, &sack(0, 0, &[]))
    };
    let first = client.called(host(1), 4, ONCE);
    let again = client.give(host(1), &demand(&first, 5));
    assert_eq!((targets(&again), again[0].packet().token()), (vec![host(1)], 5));
    let moved = client.give(host(1), &again[0].refusal(DropReason::Stopping));
    assert_eq!((targets(&moved), moved[0].packet().token()), (vec![host(2)], 0));
    let shown = client.give(host(2), &demand(&moved[0], 6));
    assert_eq!((targets(&shown), shown[0].packet().token()), (vec![host(2)], 6));
    client.give(host(2), &shown[0].reply(4, 0));
    assert!(client.reply().is_some());
}

/// The target says of each copy that it holds it.
#[test]
fn a_target_that_answers_is_not_left() {
    let mut client = of_two();
    let sent = client.called(host(1), 4, ONCE);
    let repr = ReplyRepr { flags: Flags::HELD, ..sent.answer(MessageType::Ack) };
    let held = acked(&repr, &sack(0, 1, &[]));
    client.give(host(1), &held);
    let started_at = client.now;
    while client.now < started_at + 500 * MS {
        assert_eq!(targets(&client.wait()), [host(1)]);
        client.give(host(1), &held);
    }
    assert_eq!(client.metrics().moved, 0);
}

#[test]
fn what_no_server_has_leaves_a_target_where_nothing_listens() {
    let mut client = of_two();
    let acknowledged = client.called(host(1), 4, ONCE);
    client.give(host(3), &acknowledged.ack(1, 1));
    client.called(host(1), 4, ONCE);
    client.called(host(9), 4, ONCE);
    client.node.handle_unreachable(client.now, host(1));
    let moved = client.sent();
    assert_eq!((targets(&moved), client.metrics().moved), (vec![host(2)], 1));
    assert_eq!(client.failure(), None);
    let id = acknowledged.packet().rpc_id();
    for _ in 0..20 {
        let sent = client.wait();
        let mut of_it = sent.iter().filter(|sent| sent.packet().rpc_id() == id);
        assert!(of_it.all(|sent| sent.to == host(3)), "a server has it");
    }
}

#[test]
fn a_call_is_not_sent_round_and_round() {
    let mut client = of_two();
    client.called(host(1), 4, ONCE);
    client.node.handle_unreachable(client.now, host(1));
    assert_eq!(targets(&client.sent()), [host(2)]);
    client.now += MS;
    client.node.handle_unreachable(client.now, host(2));
    assert_eq!(client.failure(), Some(Failure::Unreachable));
    assert_eq!(client.metrics().moved, 1);
}

/// It may run there at this moment, or its reply may be on the way.
#[test]
fn a_call_that_may_run_once_outlives_a_closed_port_that_has_answered_before() {
    let check = |know: &dyn Fn(&mut Solo), is_failed: bool| {
        let mut client = client();
        know(&mut client);
        client.called(host(1), 4, ONCE);
        client.node.handle_unreachable(client.now, host(1));
        assert_eq!(client.failure(), is_failed.then_some(Failure::Unreachable));
        assert_eq!(client.metrics().failed, u64::from(is_failed));
    };
    check(&|_| {}, true);
    // It has given a token.
    check(
        &|client| {
            let sent = client.called(host(1), 4, ONCE);
            let repr = ReplyRepr { token: 7, ..sent.answer(MessageType::Response) };
            client.give(host(1), &replied(&repr, 4, 0));
            assert!(client.reply().is_some());
        },
        false,
    );
    // Its reply took so long.
    check(
        &|client| {
            let sent = client.called(host(1), 4, ONCE);
            let clock_echo_us = sent.clock_us();
            let repr = ReplyRepr { clock_echo_us, ..sent.answer(MessageType::Response) };
            client.give(host(1), &replied(&repr, 4, 0));
            assert!(client.reply().is_some());
        },
        false,
    );
    let mut client = client();
    let sent = client.called(host(1), 4, ONCE);
    client.give(host(1), &sent.ack(1, 1));
    client.node.handle_unreachable(client.now, host(1));
    assert_eq!(client.failure(), None, "it has the call");
}

#[test]
fn a_closed_port_ends_the_calls_to_it_alone() {
    let mut client = client();
    client.called(host(1), 4, IDEMPOTENT);
    client.called(host(2), 4, IDEMPOTENT);
    client.node.handle_unreachable(client.now, host(2));
    assert_eq!(client.failure(), Some(Failure::Unreachable));
    assert_eq!((client.failure(), client.metrics().failed), (None, 1));
}

/// A client that hedges and has seen replies of 1 ms, of servers where so many requests wait.
fn hedging(waiting: u16, loser: Loser) -> Solo {
    let mut client = Solo::new(|config| {
        config.cloning.copies = Copies::Hedge(Hedge::default());
        config.cloning.servers = vec![host(1), host(2)];
        config.cloning.loser = loser;
        config.rto_initial_ns = 100 * MS;
    });
    for _ in 0..64 {
        let sent = client.called(host(1), 4, IDEMPOTENT);
        client.now += MS;
        let repr = ReplyRepr { server_waiting: waiting, ..sent.answer(MessageType::Response) };
        client.give(host(1), &replied(&repr, 4, 0));
        assert!(client.reply().is_some());
    }
    client
}

/// A call of which a copy has gone, which is returned.
fn copied(client: &mut Solo) -> (Sent, Sent) {
    let first = client.called(host(1), 4, IDEMPOTENT);
    let copy = client.wait().remove(0);
    assert_eq!((copy.to, copy.packet().flags().clone_mark()), (host(2), CloneMark::Copy));
    assert_eq!(copy.packet().rpc_id(), first.packet().rpc_id());
    (first, copy)
}

/// 64 calls have earned three whole copies of twenty calls each, and a fifth.
#[test]
fn a_copy_goes_when_most_calls_are_answered_and_while_the_budget_lasts() {
    let mut client = hedging(0, Loser::Runs);
    let called_at = client.now;
    copied(&mut client);
    let waited_ns = client.now - called_at;
    assert!((MS / 2..3 * MS).contains(&waited_ns), "{waited_ns}");
    copied(&mut client);
    copied(&mut client);
    assert_eq!((client.metrics().clones_sent, client.metrics().clones_over_budget), (3, 0));
    client.called(host(1), 4, IDEMPOTENT);
    assert!(client.pass(5 * MS).is_empty());
    assert_eq!((client.metrics().clones_sent, client.metrics().clones_over_budget), (3, 1));
}

#[test]
fn no_copy_goes_where_requests_wait_or_a_server_has_the_call_or_it_may_run_once() {
    let mut client = hedging(1, Loser::Runs);
    client.called(host(1), 4, IDEMPOTENT);
    assert!(client.pass(5 * MS).is_empty());
    assert_eq!((client.metrics().clones_sent, client.metrics().clones_withheld), (0, 1));

    let mut client = hedging(0, Loser::Runs);
    let sent = client.called(host(1), 4, IDEMPOTENT);
    client.give(host(1), &sent.ack(1, 1));
    assert!(client.pass(5 * MS).is_empty(), "it is acknowledged");
    client.called(host(1), 4, ONCE);
    client.called(host(1), 4, CallOptions { fixed: true, ..IDEMPOTENT });
    assert!(client.pass(5 * MS).is_empty());
    let metrics = client.metrics();
    assert_eq!((metrics.clones_sent, metrics.clones_withheld), (0, 0));
}

#[test]
fn the_server_of_the_copy_that_has_lost_is_told_where_it_is_to_be() {
    for (winner, loser) in [(1, 2), (2, 1)] {
        for rule in [Loser::Runs, Loser::IsCancelled] {
            let mut client = hedging(0, rule);
            let (first, _) = copied(&mut client);
            let said = client.give(host(winner), &first.reply(4, 0));
            assert!(client.reply().is_some());
            let is_told = u64::from(rule == Loser::IsCancelled);
            assert_eq!(said.len() as u64, is_told);
            assert!(said.iter().all(|said| said.kind() == (MessageType::Cancel, 0)));
            assert!(said.iter().all(|said| said.to == host(loser)));
            let metrics = client.metrics();
            assert_eq!(metrics.clones_won, u64::from(winner == 2));
            assert_eq!(metrics.clones_cancelled, is_told);
        }
    }
}

#[test]
fn a_call_with_a_copy_outlives_the_first_refusal() {
    let mut client = hedging(0, Loser::Runs);
    let (first, _) = copied(&mut client);
    client.give(host(2), &first.refusal(DropReason::Overload));
    assert_eq!(client.failure(), None);
    client.give(host(1), &first.refusal(DropReason::Overload));
    assert_eq!(client.failure(), Some(Failure::Refused(DropReason::Overload)));
}

/// The router knows where the other copy is; a reply without a mark left before it had that.
#[test]
fn a_router_is_told_which_copy_has_answered() {
    for (mark, winner) in [
        (CloneMark::Single, CloneMark::Original),
        (CloneMark::Original, CloneMark::Original),
        (CloneMark::Copy, CloneMark::Copy),
    ] {
        let mut client = Solo::new(|config| {
            config.cloning.copies = Copies::Always;
            config.cloning.loser = Loser::IsCancelled;
        });
        client.call(host(1), 4, IDEMPOTENT);
        let sent = client.sent();
        assert_eq!(targets(&sent), [host(1), host(1)], "the router gets both");
        let repr =
            ReplyRepr { flags: mark.bits(), token: 7, ..sent[0].answer(MessageType::Response) };
        let said = client.give(host(3), &replied(&repr, 4, 0));
        assert_eq!((targets(&said), said[0].packet().token()), (vec![host(1)], 7));
        assert_eq!(said[0].packet().flags().clone_mark(), winner);
        assert_eq!(client.metrics().clones_won, u64::from(mark == CloneMark::Copy));
    }
}

/// It has two copies, made by a router.
#[test]
fn a_marked_reply_tells_the_router_though_the_client_has_sent_one() {
    for (mark, is_told) in [(CloneMark::Single, false), (CloneMark::Copy, true)] {
        let mut client = Solo::new(|config| config.cloning.loser = Loser::IsCancelled);
        let sent = client.called(host(1), 4, IDEMPOTENT);
        let repr = ReplyRepr { flags: mark.bits(), ..sent.answer(MessageType::Response) };
        let said = client.give(host(3), &replied(&repr, 4, 0));
        assert_eq!(said.len(), usize::from(is_told));
        assert_eq!(client.metrics().clones_won, u64::from(is_told));
    }
}

/// It has nobody to send one to.
#[test]
fn a_copy_does_not_go_to_the_only_server() {
    for (servers, copies) in [(vec![host(1)], 0), (vec![], 1), (vec![host(1), host(2)], 1)] {
        let mut client = Solo::new(|config| {
            config.cloning.copies = Copies::Always;
            config.cloning.servers = servers;
        });
        client.call(host(1), 4, IDEMPOTENT);
        assert_eq!(client.sent().len(), 1 + copies);
        client.call(host(1), 4, V1_IDEMPOTENT);
        assert_eq!(client.sent().len(), 1, "version 1 knows no copies");
    }
}

/// It cannot know what becomes of the call where it was before.
#[test]
fn a_moved_call_outlives_the_uncertainty_of_its_target() {
    let (mut client, sent) = moved();
    client.give(sent.to, &sent.refusal(DropReason::Uncertain));
    assert_eq!(client.failure(), None);
}

/// A target that finds no room shares a record with others, and would be shown the token of
/// another.
#[test]
fn a_target_that_its_calls_have_left_makes_room_for_others() {
    let (mut client, _) = move_from(Solo::new(|config| {
        (config.alternates, config.servers_max) = (vec![host(1), host(2)], 3);
    }));
    client.pass(2_000 * MS);
    assert!(client.failure().is_some(), "it is over");
    client.now += 10_000 * MS;
    for last in 3..=5 {
        let first = client.called(host(last), 4, ONCE);
        let repr = ReplyRepr { token: last.into(), ..first.answer(MessageType::Response) };
        client.give(host(last), &replied(&repr, 4, 0));
        let kept = client.called(host(last), 4, ONCE);
        assert_eq!(kept.packet().token(), last.into());
    }
    assert_eq!(client.called(host(6), 4, ONCE).packet().token(), 0);
}

/// With many long calls a turn of the sender lasts longer than a timeout.
#[test]
fn the_timer_of_a_long_request_runs_from_its_last_packet() {
    let timeout_ns = 2 * MS;
    let mut client = client();
    let sent = client.called(host(1), 640, ONCE);
    client.now += 10_000;
    let ack = sent.ack(1, 4);
    client.node.handle_datagram(client.now, host(1).into(), &mut ack.clone());
    // Three packets may go, and go only when others have gone, after three timeouts.
    for _ in 0..3 {
        client.now += timeout_ns + TICK;
        client.node.handle_timeout(client.now);
    }
    assert_eq!(kinds(&client.sent()), requests(1..4));
    check_timeout(&mut client, timeout_ns);
    assert_eq!((client.metrics().timeouts, client.metrics().resent), (1, 3));
    // The server is silent, so that from now on it waits longer each time.
    check_timeout(&mut client, 2 * timeout_ns);
}
