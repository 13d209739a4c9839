//! The client half: what a call needs, how it ends, and what its server is told of that.

use std::net::SocketAddr;

use tailcut_proto::rpc::CallId;

use super::*;

const OTHER: &str = "10.0.0.3:99";

fn call_of(client: &Lone, len: usize) -> Call {
    let (target, deadline) = (SERVER.parse().unwrap(), client.now + SECOND);
    let options = CallOptions::default();
    Call { target, payload: vec![1; len], deadline, context: 7, options }
}

/// Makes a call, and sends it.
fn make(client: &mut Lone, call: Call) -> (CallId, u64) {
    let id = client.node.call(client.now, call).expect("a call");
    client.drain();
    (id, id_of(&client.take()))
}

fn refused(id: u64) -> Vec<u8> {
    let mut header = DataHeader::new(TO_CLIENT, id | 1, 2, 0);
    header.flags = DataFlags::KNOWN | DataFlags::REFUSED;
    [header.as_bytes(), &[DropReason::Overload as u8, 0]].concat()
}

/// The end of the only call of a client: why, and who is known to have had it.
fn failed(client: &mut Lone) -> (Failure, Option<SocketAddr>) {
    match client.node.poll_event() {
        Some(Event::Failed { failure, server, context: 7, .. }) => (failure, server),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_deadline_is_ahead_and_not_further_than_is_waited() {
    let mut client = Lone::new();
    let limit_ns = Config::default().lifetime_ns_max;
    let mut begun = |deadline: Time| {
        let call = Call { deadline, ..call_of(&client, 1) };
        client.node.call(client.now, call).map(|_| ())
    };
    let (now, bad) = (100 * SECOND, Err(CallError::BadDeadline { limit_ns }));
    assert_eq!((begun(now), begun(now - 1)), (bad, bad));
    assert_eq!((begun(now + 1), begun(now + limit_ns)), (Ok(()), Ok(())));
    assert_eq!(begun(now + limit_ns + 1), bad);
}

#[test]
fn a_request_is_at_most_as_long_as_a_message_may_be() {
    let mut client = Lone::with(|config| config.message_len_max = 1000);
    assert_eq!(client.call(1000), Ok(()));
    assert_eq!(client.call(1001), Err(CallError::TooLarge { len: 1001, limit: 1000 }));
    assert_eq!(client.node.metrics().calls, 1, "what was not begun is not counted");
}

#[test]
fn calls_to_one_peer_have_a_limit_of_their_own() {
    let mut client = Lone::with(|config| config.calls_per_peer_max = 2);
    let (server, other) = (SERVER.parse().unwrap(), OTHER.parse().unwrap());
    (0..2).for_each(|_| client.call(10).unwrap());
    assert_eq!(client.call(10), Err(CallError::TooManyOutstanding { limit: 2 }));
    assert!(!client.node.may_call(server, 10) && client.node.may_call(other, 10));
    let call = Call { target: other, ..call_of(&client, 10) };
    client.node.call(client.now, call).expect("another peer");
}

#[test]
fn padding_goes_behind_the_payload_as_zeros() {
    let mut client = Lone::new();
    let call = Call { payload: vec![7; 3], ..call_of(&client, 0) };
    client.node.call_padded(client.now, call, 10).expect("a call");
    client.drain();
    assert_eq!(client.take()[0].data().1, [7, 7, 7, 0, 0, 0, 0, 0, 0, 0]);
    let mut server = Lone::new();
    server.give(CLIENT, &marked(2, b"ping", |_| {}));
    let id = server.requests[0].0;
    server.node.reply_padded(server.now, id, vec![7; 2], 5).expect("it waits");
    server.drain();
    assert_eq!(server.take()[0].data().1, [7, 7, 0, 0, 0]);
}

/// A long one would have to be cut where nothing is stored.
#[test]
fn a_padded_message_goes_in_one_rpc() {
    let change = |config: &mut Config| config.message_len_max = 5000;
    let limit = 5000;
    let mut client = Lone::with(change);
    for (len, expected) in [(5000, Ok(())), (5001, Err(CallError::TooLarge { len: 5001, limit }))] {
        let call = call_of(&client, 1);
        assert_eq!(client.node.call_padded(client.now, call, len).map(|_| ()), expected);
    }
    let mut server = Lone::with(change);
    server.give(CLIENT, &marked(2, b"ping", |_| {}));
    let id = server.requests[0].0;
    for (len, expected) in [(5001, Err(AnswerError::TooLarge { len: 5001, limit })), (5000, Ok(()))]
    {
        assert_eq!(server.node.reply_padded(server.now, id, vec![1], len), expected);
    }
}

#[test]
fn a_request_says_that_it_may_run_more_than_once() {
    for idempotent in [false, true] {
        let mut client = Lone::new();
        let options = CallOptions { idempotent, ..CallOptions::default() };
        let call = Call { options, ..call_of(&client, 10) };
        client.node.call(client.now, call).expect("a call");
        client.drain();
        let flags = client.take()[0].data().0.flags();
        assert_eq!(flags.has(DataFlags::IDEMPOTENT), idempotent);
        assert!(flags.has(DataFlags::KNOWN));
    }
}

/// Incast is many replies at once.
#[test]
fn calls_beyond_the_limit_of_incast_are_counted() {
    let mut client = Lone::with(|config| config.incast.calls_max = 1);
    (0..3).for_each(|_| client.call(10).unwrap());
    assert_eq!((client.node.metrics().incast, client.node.metrics().calls), (2, 3));
}

#[test]
fn a_cancelled_call_is_told_to_the_server_if_it_was_sent() {
    let mut client = Lone::new();
    let call = call_of(&client, 10);
    let id = client.node.call(client.now, call).expect("a call");
    client.node.cancel(client.now, id);
    client.settle();
    assert_eq!((client.take_types(), client.node.metrics().cancelled), (vec![], 1));
    let call = call_of(&client, 10);
    let (id, _) = make(&mut client, call);
    client.node.cancel(client.now, id);
    client.node.cancel(client.now, id);
    client.settle();
    assert_eq!((client.take_types(), client.node.metrics().cancelled), (vec![PacketType::Ack], 2));
    assert_eq!(client.node.holdings(), Default::default());
}

#[test]
fn the_server_of_a_refusal_is_named_and_acknowledged_with_the_next_call() {
    let mut client = Lone::new();
    client.call(10).unwrap();
    let id = id_of(&client.take());
    client.give(SERVER, &acks::known_reply(id, b"pong"));
    let call = call_of(&client, 10);
    let (_, id) = make(&mut client, call);
    client.node.handle_datagram(client.now, path(SERVER), &mut refused(id));
    let expected = (Failure::Refused(DropReason::Overload), Some(SERVER.parse().unwrap()));
    assert_eq!(failed(&mut client), expected);
    client.drain();
    assert_eq!((client.take_types(), client.node.metrics().refused), (vec![], 1));
    client.call(10).unwrap();
    assert_eq!(client.take()[0].data().0.ack.client_id.get(), id);
}

/// The reason of a refusal is in its first packet.
#[test]
fn the_rest_of_a_refusal_says_nothing() {
    let mut client = Lone::new();
    let call = call_of(&client, 10);
    let (_, id) = make(&mut client, call);
    let mut packet = refused(id);
    packet.truncate(57);
    packet[52..56].copy_from_slice(&1u32.to_be_bytes());
    client.give(SERVER, &packet);
    assert_eq!((client.failures.len(), client.node.holdings().calls), (0, 1));
}

#[test]
fn a_call_that_is_late_names_no_server_and_tells_it() {
    let mut client = Lone::new();
    let call = call_of(&client, 10);
    make(&mut client, call);
    client.now += SECOND;
    client.node.handle_timeout(client.now);
    assert_eq!(failed(&mut client), (Failure::Deadline, None));
    client.drain();
    assert_eq!((client.take_types(), client.node.metrics().deadlines), (vec![PacketType::Ack], 1));
}

/// A timer comes no later than the tick of the wheel after it.
#[test]
fn a_call_ends_at_its_deadline() {
    let mut client = Lone::new();
    let call = Call { deadline: client.now + MS / 2, ..call_of(&client, 10) };
    make(&mut client, call);
    client.pass(MS / 2 - 1);
    assert_eq!(client.failures, []);
    client.pass(20_000);
    assert_eq!(client.failures, [Failure::Deadline]);
}

/// A call that is not idempotent may have run where something has answered before.
#[test]
fn calls_to_an_address_where_nothing_listens_end_if_that_does_no_harm() {
    let unreachable = (Failure::Unreachable, None);
    for (is_heard, idempotent, is_ended) in
        [(false, false, true), (false, true, true), (true, false, false), (true, true, true)]
    {
        let mut client = Lone::new();
        if is_heard {
            client.call(10).unwrap();
            let id = id_of(&client.take());
            client.give(SERVER, &acks::known_reply(id, b"pong"));
        }
        let options = CallOptions { idempotent, ..CallOptions::default() };
        let call = Call { options, ..call_of(&client, 10) };
        make(&mut client, call);
        client.node.handle_unreachable(client.now, OTHER.parse().unwrap());
        assert!(client.node.poll_event().is_none(), "of another address");
        client.node.handle_unreachable(client.now, SERVER.parse().unwrap());
        let message = format!("heard: {is_heard}, idempotent: {idempotent}");
        assert_eq!(client.node.metrics().unreachable, u64::from(is_ended), "{message}");
        assert_eq!(client.node.holdings().calls, usize::from(!is_ended), "{message}");
        if is_ended {
            assert_eq!(failed(&mut client), unreachable, "{message}");
        }
    }
}

#[test]
fn what_nothing_listens_for_ends_neither_other_calls_nor_what_is_answered() {
    let mut client = Lone::new();
    let options = CallOptions { idempotent: true, ..CallOptions::default() };
    let call = Call { options, ..call_of(&client, 10) };
    let (_, id) = make(&mut client, call.clone());
    client.give(SERVER, &data_of_reply(id, 2000, 0, &[1; 1396]));
    make(&mut client, Call { target: OTHER.parse().unwrap(), ..call });
    client.node.handle_unreachable(client.now, SERVER.parse().unwrap());
    client.settle();
    assert_eq!((client.failures.as_slice(), client.node.holdings().calls), (&[][..], 2));
}

/// The time to ask, in steps of 0.1 ms: twice of it at first, and what deviates four times.
fn asked_after(client: &mut Lone) -> u64 {
    client.call(10).unwrap();
    client.take();
    let steps = (1..1000).find(|_| {
        client.pass(MS / 10);
        client.take_types().contains(&PacketType::Resend)
    });
    steps.expect("it asks")
}

/// A server that takes long is not asked before it can have answered.
#[test]
fn the_time_that_a_server_takes_is_measured_unless_something_went_again() {
    for (retransmit, has_gone_again, steps) in [(0, false, 30), (5, false, 10), (0, true, 10)] {
        let mut client = Lone::new();
        client.call(10).unwrap();
        let id = id_of(&client.take());
        client.now += MS / 2;
        if has_gone_again {
            client.give(SERVER, &resend(TO_CLIENT, id ^ 1, 0, RESEND_ALL));
        }
        client.now += MS / 2;
        let mut packet = acks::known_reply(id, b"pong");
        packet[48] = retransmit;
        client.give(SERVER, &packet);
        assert_eq!(client.replies.len(), 1);
        client.take();
        let found = asked_after(&mut client);
        assert!((steps..=steps + 1).contains(&found), "{found}: {retransmit}, {has_gone_again}");
    }
}

#[test]
fn replies_are_counted_with_their_calls() {
    let mut client = Lone::new();
    for _ in 0..2 {
        client.call(10).unwrap();
        let id = id_of(&client.take());
        client.give(SERVER, &acks::known_reply(id, b"pong"));
    }
    let metrics = client.node.metrics();
    assert_eq!((metrics.calls, metrics.replied, client.replies.len()), (2, 2, 2));
}

#[test]
fn a_reply_that_is_too_long_is_counted() {
    let mut client = Lone::with(|config| config.message_len_max = 1000);
    client.call(10).unwrap();
    let id = id_of(&client.take());
    client.give(SERVER, &data_of_reply(id, 1001, 0, &[1; 1000]));
    assert_eq!(
        (client.failures.as_slice(), client.node.metrics().failed),
        (&[Failure::ReplyTooLarge][..], 1)
    );
}

#[test]
fn of_messages_of_one_length_the_older_goes_first() {
    let mut client = Lone::new();
    for _ in 0..6 {
        let call = call_of(&client, 5000);
        client.node.call(client.now, call).expect("a call");
    }
    client.drain();
    let mut ids: Vec<u64> =
        client.take().iter().map(|sent| sent.packet().common.sender_id.get()).collect();
    ids.dedup();
    assert_eq!(ids.len(), 6);
    assert!(ids.is_sorted(), "{ids:?}");
}

#[test]
fn a_buffer_that_was_given_back_is_handed_out_for_a_message_of_its_length() {
    let (mut client, len) = (Lone::new(), 1 << 20);
    client.node.recycle(Vec::with_capacity(len));
    let buffer = client.node.buffer_for(len);
    assert_eq!((buffer.len(), buffer.capacity() >= len), (0, true));
}
