//! Calls whose request or reply takes several RPCs, at either end.

use std::collections::BTreeMap;

use tailcut_proto::rpc::CallId;
use tailcut_wire::homa::{MESSAGE_LEN_MAX, PartHeader, PartKind};

use super::*;

const PART: usize = PartHeader::PART_LEN;
/// Bytes of a message of three parts.
const LONG: usize = 2 * PART + 5;
const FETCH: u8 = DataFlags::KNOWN | DataFlags::PART | DataFlags::IDEMPOTENT;

/// An endpoint that sends no more than the module's longest message in an RPC, at once and in few
/// packets, and takes as much.
fn wide(change: impl FnOnce(&mut Config)) -> Lone {
    Lone::with(|config| {
        config.rpc_len_max = MESSAGE_LEN_MAX;
        (config.unscheduled_len, config.unscheduled_len_max) = (MESSAGE_LEN_MAX, MESSAGE_LEN_MAX);
        config.framing.unscheduled_len = 60_000;
        change(config);
    })
}

/// A message with [`DataFlags::PART`].
fn piece(kind: PartKind, key: u64, (total_len, offset): (usize, usize), part: &[u8]) -> Vec<u8> {
    let header = PartHeader::new(kind, key, total_len as u32, offset as u32);
    [header.as_bytes(), part].concat()
}

/// Part at `offset` of a message of `total_len` bytes.
fn cut(kind: PartKind, key: u64, total_len: usize, offset: usize) -> Vec<u8> {
    let end = total_len.min(offset + PART);
    piece(kind, key, (total_len, offset), &pattern(total_len)[offset..end])
}

/// The packet of a part of a request.
fn part_of_request(id: u64, message: &[u8]) -> Vec<u8> {
    marked(id, message, |header| header.flags |= DataFlags::PART)
}

/// The packet that asks for the part of a reply at `offset`.
fn fetch(id: u64, key: u64, offset: usize) -> Vec<u8> {
    let message = piece(PartKind::Fetch, key, (0, offset), &[]);
    marked(id, &message, |header| header.flags = FETCH)
}

/// The packet of a reply, or of a part of one.
fn reply_of(id: u64, flags: u8, message: &[u8]) -> Vec<u8> {
    let mut packet = data_of_reply(id, message.len() as u32, 0, message);
    packet[49] = DataFlags::KNOWN | flags;
    packet
}

fn refusal_of(id: u64, reason: DropReason) -> Vec<u8> {
    reply_of(id, DataFlags::REFUSED, &[reason as u8])
}

/// The messages among what was sent, by the id that the client has for them: flags and bytes.
fn messages(sent: &[Sent]) -> BTreeMap<u64, (u8, Vec<u8>)> {
    let mut found: BTreeMap<u64, (u8, Vec<u8>)> = BTreeMap::new();
    for sent in sent.iter().filter(|sent| sent.payload_len().is_some()) {
        let (header, payload) = sent.data();
        let id = header.common.sender_id.get() & !1;
        let (flags, bytes) = found.entry(id).or_default();
        *flags = header.flags;
        bytes.resize(bytes.len().max(header.message_length.get() as usize), 0);
        let from = header.offset() as usize;
        bytes[from..from + payload.len()].copy_from_slice(&payload);
    }
    found
}

/// The ids that ACKs among what was sent name, sorted.
fn acked(sent: &[Sent]) -> Vec<u64> {
    let mut ids: Vec<u64> = sent
        .iter()
        .filter(|sent| sent.packet().packet_type() == PacketType::Ack)
        .map(|sent| sent.packet().common.sender_id.get())
        .collect();
    ids.sort_unstable();
    ids
}

/// A client that has sent a request of `len` bytes: the call, and the ids of its RPCs.
fn calling(change: impl FnOnce(&mut Config), len: usize) -> (Lone, CallId, Vec<u64>) {
    let mut client = wide(change);
    let (target, deadline) = (SERVER.parse().unwrap(), client.now + SECOND);
    let (payload, options) = (pattern(len), CallOptions::default());
    let call = Call { target, payload, deadline, context: 7, options };
    let id = client.node.call(client.now, call).expect("a call");
    client.settle();
    let ids = messages(&client.take()).into_keys().collect();
    (client, id, ids)
}

/// A client that fetches a reply of [`LONG`] bytes: the ids of the call and of both fetches.
fn fetching(change: impl FnOnce(&mut Config)) -> (Lone, u64, Vec<u64>) {
    let (mut client, _, ids) = calling(change, 10);
    let message = cut(PartKind::Reply, ids[0], LONG, 0);
    client.give(SERVER, &reply_of(ids[0], DataFlags::PART, &message));
    let fetches = messages(&client.take()).into_keys().collect();
    (client, ids[0], fetches)
}

/// A server that keeps a reply of [`LONG`] bytes to request 2.
fn replying(change: impl FnOnce(&mut Config)) -> Lone {
    let mut server = wide(change);
    server.give(CLIENT, &marked(2, b"ping", |_| {}));
    server.reply(LONG).unwrap();
    server
}

/// The reasons of the refusals among what was sent, by id.
fn refusals(sent: &[Sent]) -> Vec<(u64, DropReason)> {
    let refused =
        messages(sent).into_iter().filter(|(_, (flags, _))| flags & DataFlags::REFUSED != 0);
    refused.map(|(id, (_, bytes))| (id, DropReason::from_payload(&bytes))).collect()
}

#[test]
fn a_long_request_goes_in_parts_that_name_the_first_of_them() {
    let mut client = wide(|_| {});
    client.call(LONG).unwrap();
    assert_eq!(client.node.holdings().calls, 3);
    let sent = messages(&client.take());
    let key = *sent.keys().next().expect("the first was numbered first");
    for (place, (id, (flags, message))) in sent.iter().enumerate() {
        assert_eq!(*id, key + 2 * place as u64);
        assert_eq!(*flags, DataFlags::KNOWN | DataFlags::PART);
        assert!(*message == cut(PartKind::Request, key, LONG, place * PART), "part {place}");
    }
    assert_eq!(sent.len(), 3);
}

#[test]
fn a_request_that_fits_one_rpc_goes_as_it_is() {
    for (len, rpcs) in [(MESSAGE_LEN_MAX as usize, 1), (MESSAGE_LEN_MAX as usize + 1, 2)] {
        let mut client = wide(|_| {});
        client.call(len).unwrap();
        let sent = messages(&client.take());
        assert_eq!((sent.len(), client.node.holdings().calls), (rpcs, rpcs), "{len} bytes");
        let is_part = sent.values().all(|(flags, _)| flags & DataFlags::PART != 0);
        assert_eq!(is_part, rpcs > 1, "{len} bytes");
    }
}

/// Each part counts against what may be outstanding, in all and to a peer.
#[test]
fn a_long_call_needs_room_for_all_of_its_parts() {
    type Change = fn(&mut Config);
    let limits: [Change; 2] =
        [|config| config.calls_max = 3, |config| config.calls_per_peer_max = 3];
    let target = SERVER.parse().unwrap();
    for change in limits {
        let mut client = wide(change);
        assert!(client.node.may_call(target, LONG) && !client.node.may_call(target, 3 * PART + 1));
        let too_many = Err(CallError::TooManyOutstanding { limit: 3 });
        assert_eq!(client.call(3 * PART + 1), too_many);
        client.call(10).unwrap();
        assert!(client.node.may_call(target, 2 * PART) && !client.node.may_call(target, LONG));
        assert_eq!(client.call(LONG), too_many);
        client.call(2 * PART).unwrap();
        assert!(!client.node.may_call(target, 1));
        assert_eq!(client.call(1), too_many);
        assert_eq!(client.node.holdings().calls, 3);
    }
}

#[test]
fn a_call_is_known_by_the_id_of_its_first_rpc_until_it_ends() {
    let (mut client, call, ids) = calling(|_| {}, LONG);
    assert_eq!(client.node.wire_id(call), Some(ids[0]));
    client.node.cancel(client.now, call);
    assert_eq!(client.node.wire_id(call), None);
}

#[test]
fn a_reply_to_the_first_part_ends_the_call_and_what_of_it_is_not_answered() {
    let (mut client, _, ids) = calling(|_| {}, LONG);
    client.give(SERVER, &reply_of(ids[1], DataFlags::EMPTY, &[0]));
    assert_eq!((client.node.holdings().calls, client.replies.len()), (2, 0));
    client.give(SERVER, &reply_of(ids[0], 0, b"pong"));
    assert_eq!(client.replies, [b"pong".to_vec()]);
    assert_eq!(client.node.holdings(), Default::default());
    assert_eq!(acked(&client.take()), [ids[2]], "nobody waits for it");
}

#[test]
fn a_long_call_fails_once_when_one_of_its_parts_does() {
    for refused in 0..3 {
        let (mut client, _, ids) = calling(|_| {}, LONG);
        client.give(SERVER, &refusal_of(ids[refused], DropReason::Overload));
        assert_eq!(client.failures, [Failure::Refused(DropReason::Overload)], "part {refused}");
        assert_eq!(client.node.holdings(), Default::default());
        let others: Vec<u64> = ids.iter().copied().filter(|&id| id != ids[refused]).collect();
        let acked = acked(&client.take());
        assert!(others.iter().all(|id| acked.contains(id)), "the server is told of the others");
    }
}

#[test]
fn a_long_call_that_is_cancelled_or_late_is_given_up_whole() {
    let (mut client, call, ids) = calling(|_| {}, LONG);
    client.node.cancel(client.now, call);
    client.settle();
    assert_eq!((client.failures.len(), acked(&client.take())), (0, ids));
    assert_eq!(client.node.metrics().cancelled, 1);
    let (mut client, _, ids) = calling(|_| {}, LONG);
    client.pass(SECOND + MS);
    let acked = acked(&client.take());
    assert_eq!((client.failures.as_slice(), acked), (&[Failure::Deadline][..], ids));
    assert_eq!(client.node.holdings(), Default::default());
}

#[test]
fn the_rest_of_a_long_reply_is_fetched_and_put_together_in_any_order() {
    let (mut client, _, ids) = calling(|_| {}, 10);
    let message = cut(PartKind::Reply, ids[0], LONG, 0);
    client.give(SERVER, &reply_of(ids[0], DataFlags::PART, &message));
    let fetches = messages(&client.take());
    for (place, (flags, message)) in fetches.values().enumerate() {
        let offset = (place + 1) * PART;
        assert_eq!((*flags, message), (FETCH, &piece(PartKind::Fetch, ids[0], (0, offset), &[])));
    }
    assert_eq!((fetches.len(), client.node.holdings().calls), (2, 3));
    for (place, id) in fetches.into_keys().enumerate().collect::<Vec<_>>().into_iter().rev() {
        assert_eq!(client.replies.len(), 0);
        let message = cut(PartKind::Reply, ids[0], LONG, (place + 1) * PART);
        client.give(SERVER, &reply_of(id, DataFlags::PART, &message));
    }
    assert!(client.replies[0] == pattern(LONG));
    assert_eq!(client.node.metrics().replied, 1);
    assert_eq!(client.node.holdings(), Default::default());
}

/// All of its own message has come, so that nothing that is said of it changes anything.
#[test]
fn a_call_that_fetches_has_nothing_to_send_and_nothing_to_miss() {
    let (mut client, id, _) = fetching(|_| {});
    let others = [grant(TO_CLIENT, id ^ 1, 10, 3), resend(TO_CLIENT, id ^ 1, 0, RESEND_ALL)];
    others.iter().for_each(|packet| client.give(SERVER, packet));
    assert_eq!(client.node.metrics().unexpected, 2);
    client.give(SERVER, &reply_of(id, DataFlags::PART, &[0; 20]));
    assert_eq!(client.node.metrics().duplicates, 1);
    assert_eq!((client.take_types(), client.node.holdings().calls), (vec![], 3));
}

#[test]
fn a_long_reply_is_taken_up_to_the_longest_message() {
    for (limit, fetches) in [(LONG, 2), (LONG - 1, 0)] {
        let (client, _, ids) = fetching(|config| config.message_len_max = limit);
        assert_eq!(ids.len(), fetches, "at most {limit} bytes");
        let failures = if fetches > 0 { vec![] } else { vec![Failure::ReplyTooLarge] };
        assert_eq!(
            (client.node.metrics().failed as usize, client.failures),
            (failures.len(), failures)
        );
    }
}

#[test]
fn a_long_reply_of_one_part_is_complete() {
    let (mut client, _, ids) = calling(|_| {}, 10);
    let message = cut(PartKind::Reply, ids[0], 4, 0);
    client.give(SERVER, &reply_of(ids[0], DataFlags::PART, &message));
    assert_eq!((client.replies.as_slice(), client.node.holdings().calls), (&[pattern(4)][..], 0));
}

/// The call ends: what it gets is no reply. Whose reply had begun has been served.
#[test]
fn a_part_of_a_reply_that_is_none_ends_the_call() {
    let no_part = piece(PartKind::Request, 0, (4, 0), &pattern(4));
    let check = |mut client: Lone, id: u64, reason| {
        client.give(SERVER, &reply_of(id, DataFlags::PART, &no_part));
        assert_eq!(client.failures, [Failure::Refused(reason)]);
        assert_eq!(client.node.metrics().protocol_violation, 1);
        assert_eq!(client.node.holdings(), Default::default());
    };
    let (client, _, ids) = calling(|_| {}, 10);
    check(client, ids[0], DropReason::Unspecified);
    let (client, _, fetches) = fetching(|_| {});
    check(client, fetches[0], DropReason::Uncertain);
}

#[test]
fn a_fetched_part_beyond_the_longest_message_ends_the_call() {
    for (end, is_taken) in [(LONG, true), (LONG + 1, false)] {
        let (mut client, key, fetches) = fetching(|config| config.message_len_max = LONG);
        let message = piece(PartKind::Reply, key, (end, 2 * PART), &pattern(end)[2 * PART..]);
        client.give(SERVER, &reply_of(fetches[1], DataFlags::PART, &message));
        let failed = if is_taken { vec![] } else { vec![Failure::ReplyTooLarge] };
        assert_eq!(client.failures, failed, "up to {end}");
        assert_eq!(client.node.metrics().protocol_violation, u64::from(!is_taken));
    }
}

#[test]
fn who_is_refused_a_part_of_the_reply_has_been_served() {
    let (mut client, _, fetches) = fetching(|_| {});
    client.give(SERVER, &refusal_of(fetches[1], DropReason::Overload));
    assert_eq!(client.failures, [Failure::Refused(DropReason::Uncertain)]);
    assert!(acked(&client.take()).contains(&fetches[0]), "nobody waits for the other part");
    assert_eq!(client.node.holdings(), Default::default());
}

#[test]
fn a_reply_that_is_not_fetched_in_time_is_given_up_whole() {
    let (mut client, key, fetches) = fetching(|_| {});
    client.pass(SECOND + MS);
    assert_eq!(client.failures, [Failure::Deadline]);
    let sent = client.take();
    assert!([key, fetches[0], fetches[1]].iter().all(|id| acked(&sent).contains(id)));
    assert_eq!(client.node.holdings(), Default::default());
}

#[test]
fn parts_that_come_in_any_order_are_one_request_and_the_others_are_answered_with_nothing() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut server = wide(|_| {});
        for place in order {
            assert!(server.requests.is_empty());
            let message = cut(PartKind::Request, 2, LONG, place * PART);
            server.give(CLIENT, &part_of_request(2 + 2 * place as u64, &message));
        }
        assert!(server.requests[0].1 == pattern(LONG), "{order:?}");
        let answers: Vec<(u64, u8)> =
            messages(&server.take()).into_iter().map(|(id, (flags, _))| (id, flags)).collect();
        let nothing = DataFlags::KNOWN | DataFlags::EMPTY;
        assert_eq!(answers, [(4, nothing), (6, nothing)], "{order:?}");
        let holdings = server.node.holdings();
        assert_eq!((holdings.requests, holdings.waiting, holdings.held_bytes), (3, 1, 0));
        server.reply(3).unwrap();
        assert_eq!(messages(&server.take())[&2].1, pattern(3));
        [2, 4, 6].iter().for_each(|&id| server.give(CLIENT, &ack(TO_SERVER, id, &[])));
        assert_eq!(server.node.holdings(), Default::default());
    }
}

#[test]
fn parts_of_two_clients_are_not_mixed() {
    let mut server = wide(|_| {});
    let messages = [0, PART].map(|offset| cut(PartKind::Request, 2, PART + 5, offset));
    server.give(CLIENT, &part_of_request(2, &messages[0]));
    server.give("10.0.0.9:32769", &part_of_request(4, &messages[1]));
    assert_eq!((server.requests.len(), server.node.holdings().waiting), (0, 2));
    server.give(CLIENT, &part_of_request(4, &messages[1]));
    assert!(server.requests[0].1 == pattern(PART + 5));
}

#[test]
fn a_part_of_a_request_that_may_not_be_is_refused() {
    let no_part = piece(PartKind::Reply, 2, (4, 0), &pattern(4));
    let first_of_another = cut(PartKind::Request, 8, LONG, 0);
    let other_of_itself = cut(PartKind::Request, 2, LONG, PART);
    let too_long = cut(PartKind::Request, 2, LONG + 1, 0);
    for (message, reason, violations) in [
        (no_part, DropReason::Unspecified, 1),
        (first_of_another, DropReason::Unspecified, 1),
        (other_of_itself, DropReason::Unspecified, 1),
        (too_long, DropReason::TooLarge, 0),
    ] {
        let mut server = wide(|config| config.message_len_max = LONG);
        server.give(CLIENT, &part_of_request(2, &message));
        assert_eq!(refusals(&server.take()), [(2, reason)]);
        assert_eq!(server.node.metrics().protocol_violation, violations, "{reason:?}");
        assert_eq!(server.node.holdings(), Default::default());
    }
    let mut server = wide(|config| config.message_len_max = LONG);
    server.give(CLIENT, &part_of_request(2, &cut(PartKind::Request, 2, LONG, 0)));
    assert_eq!((server.take_types(), server.node.holdings().waiting), (vec![], 1));
}

/// One says another length, or one comes twice and the first not at all: nothing runs, and nothing
/// of it waits for more.
#[test]
fn parts_that_contradict_each_other_are_no_request() {
    let first = cut(PartKind::Request, 2, PART + 5, 0);
    let other_length = cut(PartKind::Request, 2, PART + 6, PART);
    let second = cut(PartKind::Request, 2, PART + 5, PART);
    let cases = [[(2, first), (4, other_length)], [(4, second.clone()), (6, second)]];
    for parts in cases {
        let mut server = wide(|_| {});
        parts.iter().for_each(|(id, message)| server.give(CLIENT, &part_of_request(*id, message)));
        assert_eq!((server.requests.len(), server.node.metrics().protocol_violation), (0, 1));
        [4, 6].iter().for_each(|&id| server.give(CLIENT, &ack(TO_SERVER, id, &[])));
        assert_eq!(server.node.holdings(), Default::default());
    }
}

/// The application knows nothing of it, and hears nothing.
#[test]
fn a_part_that_waits_for_others_ends_with_its_acknowledgement_or_deadline() {
    let messages = [0, PART].map(|offset| cut(PartKind::Request, 2, PART + 5, offset));
    for is_acknowledged in [true, false] {
        let mut server = wide(|_| {});
        server.give(CLIENT, &part_of_request(2, &messages[0]));
        server.give(CLIENT, &resend(TO_SERVER, 2, 0, RESEND_ALL));
        assert_eq!(server.take_types(), [PacketType::Busy]);
        match is_acknowledged {
            true => server.give(CLIENT, &ack(TO_SERVER, 2, &[])),
            false => server.pass(2 * SECOND),
        }
        assert_eq!(server.node.metrics().unanswered, u64::from(!is_acknowledged));
        assert_eq!((server.node.holdings(), server.cancelled), (Default::default(), 0));
        server.give(CLIENT, &part_of_request(4, &messages[1]));
        assert_eq!((server.requests.len(), server.node.holdings().waiting), (0, 1));
    }
}

#[test]
fn a_long_reply_begins_in_the_first_rpc_and_is_fetched_from_it() {
    let mut server = replying(|_| {});
    let begun = messages(&server.take());
    let is_part = DataFlags::KNOWN | DataFlags::PART;
    assert!(begun[&2] == (is_part, cut(PartKind::Reply, 2, LONG, 0)));
    assert_eq!(server.node.replies_under_way(), 1, "the rest is here");
    for (id, offset) in [(4, 2 * PART), (6, PART)] {
        server.give(CLIENT, &fetch(id, 2, offset));
        let sent = messages(&server.take());
        assert!(sent[&id] == (is_part, cut(PartKind::Reply, 2, LONG, offset)), "from {offset}");
    }
    assert!(server.requests.len() == 1, "the application hears of none");
    for offset in [3 * PART, 100 * PART] {
        server.give(CLIENT, &fetch(8 + offset as u64, 2, offset));
        assert_eq!(refusals(&server.take()), [(8 + offset as u64, DropReason::Uncertain)]);
    }
    server.give(CLIENT, &ack(TO_SERVER, 2, &[4, 6]));
    assert_eq!(server.node.holdings(), Default::default());
    assert_eq!(server.node.replies_under_way(), 0);
    server.give(CLIENT, &fetch(10, 2, PART));
    assert_eq!(refusals(&server.take()), [(10, DropReason::Uncertain)], "it has been released");
}

#[test]
fn a_reply_that_fits_one_rpc_goes_as_it_is() {
    let len = MESSAGE_LEN_MAX as usize;
    for (len, is_part) in [(len, false), (len + 1, true)] {
        let mut server = wide(|_| {});
        server.give(CLIENT, &marked(2, b"ping", |_| {}));
        server.reply(len).unwrap();
        let (flags, message) = &messages(&server.take())[&2];
        assert_eq!(
            (flags & DataFlags::PART != 0, message.len()),
            (is_part, MESSAGE_LEN_MAX as usize)
        );
    }
}

/// At each end of what may end exactly there.
#[test]
fn a_reply_of_whole_parts_ends_with_its_last() {
    let mut server = wide(|_| {});
    server.give(CLIENT, &marked(2, b"ping", |_| {}));
    server.reply(2 * PART).unwrap();
    server.take();
    server.give(CLIENT, &fetch(4, 2, PART));
    assert!(messages(&server.take())[&4].1 == cut(PartKind::Reply, 2, 2 * PART, PART));
    server.give(CLIENT, &fetch(6, 2, 2 * PART));
    assert_eq!(refusals(&server.take()), [(6, DropReason::Uncertain)]);
}

/// The reply that it holds was asked for before it stopped, or began to be full.
#[test]
fn parts_of_a_reply_are_served_while_the_server_stops() {
    let mut server = replying(|_| {});
    server.take();
    server.node.stop(server.now);
    server.give(CLIENT, &fetch(4, 2, PART));
    assert_eq!(messages(&server.take())[&4].1.len(), MESSAGE_LEN_MAX as usize);
    // What only looks like one is refused: not idempotent, of no part, of another length.
    let message = piece(PartKind::Fetch, 2, (0, PART), &[]);
    let longer = [&message[..], &[0]].concat();
    for (id, flags, message) in [
        (6, FETCH & !DataFlags::IDEMPOTENT, &message),
        (8, FETCH & !DataFlags::PART, &message),
        (10, FETCH, &longer),
    ] {
        server.give(CLIENT, &marked(id, message, |header| header.flags = flags));
        assert_eq!(refusals(&server.take()), [(id, DropReason::Stopping)]);
    }
    // Nor is that of which only a part has come.
    server.give(
        CLIENT,
        &marked(12, &message[..10], |header| {
            header.flags = FETCH;
            header.message_length = (message.len() as u32).into();
        }),
    );
    assert_eq!(refusals(&server.take()), [(12, DropReason::Stopping)]);
}

#[test]
fn a_server_that_is_full_serves_the_parts_of_a_reply_one_at_a_time() {
    let mut server = replying(|config| config.serving.requests_per_client_max = 1);
    server.take();
    let overloads = |server: &Lone| server.node.metrics().drops[DropReason::Overload as usize];
    server.give(CLIENT, &fetch(4, 2, PART));
    assert_eq!((messages(&server.take()).len(), overloads(&server)), (1, 0));
    server.give(CLIENT, &fetch(6, 2, 2 * PART));
    assert_eq!(server.take_types(), [], "its client asks again, and is told nothing");
    assert_eq!(overloads(&server), 1);
    server.give(CLIENT, &ack(TO_SERVER, 4, &[]));
    server.give(CLIENT, &fetch(6, 2, 2 * PART));
    assert_eq!((messages(&server.take()).len(), overloads(&server)), (1, 1));
}

/// The fetches take the places of the parts that were answered, and are not given up with those
/// that were not.
#[test]
fn a_long_reply_to_a_long_request_is_fetched_whatever_was_answered_of_its_parts() {
    for answered in 0..3 {
        let (mut client, _, ids) = calling(|_| {}, LONG);
        for &id in &ids[1..=answered] {
            client.give(SERVER, &reply_of(id, DataFlags::EMPTY, &[0]));
        }
        let message = cut(PartKind::Reply, ids[0], LONG, 0);
        client.give(SERVER, &reply_of(ids[0], DataFlags::PART, &message));
        let sent = client.take();
        assert_eq!(acked(&sent), ids[1 + answered..], "parts that nobody waits for");
        assert_eq!(client.node.holdings().calls, 3);
        for (place, id) in messages(&sent).into_keys().enumerate() {
            let message = cut(PartKind::Reply, ids[0], LONG, (place + 1) * PART);
            client.give(SERVER, &reply_of(id, DataFlags::PART, &message));
        }
        assert!(client.replies == [pattern(LONG)], "{answered} parts were answered");
        assert_eq!(client.node.holdings(), Default::default());
    }
}

/// The last parts of many requests, each in one packet, fill no memory beside the limits.
#[test]
fn a_part_in_one_packet_counts_as_held_while_it_waits_for_the_others() {
    let mut server = Lone::new();
    let message = cut(PartKind::Request, 2, LONG, 2 * PART);
    server.give(CLIENT, &part_of_request(6, &message));
    assert_eq!(server.node.holdings().held_bytes, message.len());
}
