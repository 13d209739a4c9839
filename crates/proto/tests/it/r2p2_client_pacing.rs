//! Turns that an R2P2 client keeps between calls to a target that refuses, and which calls it tries
//! again.

use tailcut_proto::rpc::{CallOptions, Event, Failure, Rpc};
use tailcut_wire::r2p2::{DropReason, Flags, MessageType, ReplyRepr};
use zerocopy::IntoBytes;

use super::r2p2_support::*;

/// A refusal that asks for 10 ms between calls: the first turn is 5 to 15 ms away.
fn refusal(call: &Sent, reason: DropReason) -> Vec<u8> {
    let repr = ReplyRepr { detail: 10_000_000, ..call.answer(MessageType::Drop) };
    [repr.header().as_bytes(), &[reason as u8]].concat()
}

/// An ACK of a router that holds a call for 30 ms.
fn held(call: &Sent) -> Vec<u8> {
    let repr =
        ReplyRepr { flags: Flags::HELD, detail: 30_000_000, ..call.answer(MessageType::Ack) };
    acked(&repr, &sack(0, 1, &[]))
}

/// A client of which host 1 has refused a call.
fn refused() -> Solo {
    let mut client = Solo::new(|_| {});
    let sent = client.called(host(1), 4, ONCE);
    client.give(host(1), &refusal(&sent, DropReason::Overload));
    assert_eq!(retry_after_ns(&mut client), 10 * MS);
    client
}

/// The time to stay away that a refused call ends with.
fn retry_after_ns(client: &mut Solo) -> u64 {
    match client.node.poll_event() {
        Some(Event::Failed { failure, retry_after_ns, .. }) => {
            assert_eq!(failure, Failure::Refused(DropReason::Overload));
            retry_after_ns
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_call_after_a_refusal_waits_for_its_turn_and_the_next_is_refused_here() {
    let mut client = refused();
    let refused_at = client.now;
    client.call(host(1), 4, ONCE);
    assert!(client.sent().is_empty());
    assert_eq!((client.metrics().paced, client.metrics().withheld), (1, 0));
    client.call(host(1), 4, ONCE);
    assert_eq!((client.metrics().paced, client.metrics().withheld), (1, 1));
    assert!(client.pass(MS / 10).is_empty());
    let away_ns = retry_after_ns(&mut client);
    assert!((15 * MS..=25 * MS).contains(&away_ns), "{away_ns}: the turn after the next");
    assert_eq!(client.metrics().refused, 2);
    assert_eq!(client.wait().len(), 1);
    let waited_ns = client.now - refused_at;
    assert!((5 * MS..=16 * MS).contains(&waited_ns), "{waited_ns}");
}

#[test]
fn a_call_goes_at_once_when_its_turn_has_come_and_to_others_always() {
    let mut client = refused();
    client.call(host(2), 4, ONCE);
    assert_eq!(client.sent().len(), 1);
    client.now += 60 * MS;
    client.call(host(1), 4, ONCE);
    assert_eq!((client.sent().len(), client.metrics().paced), (1, 0));
}

#[test]
fn replies_shorten_the_time_between_calls() {
    let mut client = Solo::new(|_| {});
    let calls: Vec<Sent> = (0..200).map(|_| client.called(host(1), 4, ONCE)).collect();
    client.give(host(1), &refusal(&calls[0], DropReason::Overload));
    for call in &calls[1..] {
        client.give(host(1), &call.reply(4, 0));
    }
    client.call(host(1), 4, ONCE);
    assert_eq!((client.sent().len(), client.metrics().paced), (1, 0));
}

/// Twenty calls earn two tries, one call none; a turn has to come within an eighth of what is left.
#[test]
fn a_refused_call_is_tried_again_where_that_is_harmless_and_in_time() {
    let check = |options: CallOptions, reason, (calls, within_ms), is_retried: bool| {
        let mut client = Solo::new(|_| {});
        (1..calls).for_each(|_| drop(client.called(host(1), 4, options)));
        client.call_within(host(1), 4, options, within_ms * MS);
        let sent = client.sent().remove(0);
        client.give(host(1), &refusal(&sent, reason));
        assert_eq!(client.metrics().retried, u64::from(is_retried));
        assert_eq!(client.metrics().refused, u64::from(!is_retried), "{options:?} {reason:?}");
    };
    check(IDEMPOTENT, DropReason::Overload, (20, 1_000), true);
    check(ONCE, DropReason::Overload, (20, 1_000), false);
    check(IDEMPOTENT, DropReason::Application, (20, 1_000), false);
    check(IDEMPOTENT, DropReason::Overload, (20, 30), false);
    check(IDEMPOTENT, DropReason::Overload, (5, 1_000), false);
}

/// It has been placed meanwhile.
#[test]
fn a_router_does_not_hold_what_a_server_has() {
    let mut client = Solo::new(|_| {});
    let sent = client.called(host(1), 4, ONCE);
    client.give(host(3), &sent.ack(1, 1));
    client.give(host(1), &held(&sent));
    assert_eq!((client.metrics().told_held, client.metrics().protocol_violation), (0, 0));
    let before = client.now;
    client.wait();
    assert!(client.now - before < 10 * MS, "it asks for its reply as before");
}

/// One that has nobody to stand in for it is believed.
#[test]
fn a_held_call_asks_within_20_ms_where_it_may_leave_its_target() {
    for (alternates, waits_ms) in
        [(vec![], 30..=40), (vec![host(1)], 30..=40), (vec![host(1), host(2)], 15..=21)]
    {
        let mut client = Solo::new(|config| config.alternates = alternates);
        let sent = client.called(host(1), 4, ONCE);
        client.give(host(1), &held(&sent));
        assert_eq!(client.metrics().told_held, 1);
        let before = client.now;
        client.wait();
        assert!(waits_ms.contains(&((client.now - before) / MS)), "{waits_ms:?}");
    }
}
