//! Batches whose payload the endpoint leaves where it is, and when it does not.

use tailcut_proto::homa::UnscheduledRank;
use tailcut_proto::node::{Attached, Transmit};

use super::*;

/// Bytes that go in the fewest packets for which the payload is left.
const FEWEST: usize = Attached::LEN_MIN.next_multiple_of(1396);

/// A client that is to send a request of `len` bytes.
fn about_to_send(change: impl FnOnce(&mut Config), len: usize) -> Lone {
    let mut client = Lone::with(change);
    let payload: Vec<u8> = (0..len).map(|place| (place / 7) as u8).collect();
    let (target, deadline) = (SERVER.parse().unwrap(), client.now + SECOND);
    let call = Call { target, payload, deadline, context: 7, options: CallOptions::default() };
    client.node.call(client.now, call).expect("a call");
    client
}

/// A batch by its headers alone, put together with the payload.
fn attached(lone: &mut Lone) -> Option<(Transmit, Vec<u8>)> {
    let mut buffer = vec![0; GSO_BYTES_MAX];
    let (transmit, attached) = lone.node.poll_attached(lone.now, &mut buffer)?;
    let payload = lone.node.attached(&attached);
    assert_eq!(payload.len(), attached.len);
    let pieces = payload.chunks(transmit.segment_len - attached.header_len);
    let headers = buffer.chunks(attached.header_len);
    let datagrams: Vec<u8> =
        headers.zip(pieces).flat_map(|(header, piece)| [header, piece].concat()).collect();
    assert_eq!(datagrams.len(), transmit.len);
    Some((transmit, datagrams))
}

fn whole(lone: &mut Lone) -> Option<(Transmit, Vec<u8>)> {
    let mut buffer = vec![0; GSO_BYTES_MAX];
    let transmit = lone.node.poll_transmit(lone.now, &mut buffer)?;
    buffer.truncate(transmit.len);
    Some((transmit, buffer))
}

/// Has both send a batch, and sees that they are alike.
fn check_alike(attaching: &mut Lone, writing: &mut Lone) -> usize {
    let (found, expected) = (attached(attaching).expect("a run"), whole(writing).expect("a batch"));
    assert_eq!(found.0, expected.0);
    assert!(found.1 == expected.1);
    assert_eq!(attaching.node.metrics(), writing.node.metrics());
    assert_eq!(attaching.node.poll_timeout(), writing.node.poll_timeout());
    found.0.datagram_count()
}

#[test]
fn a_batch_without_its_payload_is_the_one_that_would_be_written() {
    let mut nodes = [0, 1].map(|_| about_to_send(|_| {}, 200_000));
    let [attaching, writing] = &mut nodes;
    // 40,000 bytes need no grant.
    assert_eq!(check_alike(attaching, writing), 29);
    assert!(attached(attaching).is_none() && whole(writing).is_none(), "more needs a grant");
    let id = id_of_first();
    for node in [&mut *attaching, &mut *writing] {
        let mut packet = grant(TO_CLIENT, id ^ 1, 150_000, 3);
        node.node.handle_datagram(node.now, path(SERVER), &mut packet);
    }
    assert_eq!(check_alike(attaching, writing), 45, "as many as a batch holds");
    assert_eq!(check_alike(attaching, writing), 34);
    assert!(attached(attaching).is_none() && whole(writing).is_none());
}

/// The id of the first call of each client, for their secret is the same.
fn id_of_first() -> u64 {
    let mut client = Lone::new();
    client.call(10).unwrap();
    id_of(&client.take())
}

#[test]
fn few_packets_are_written() {
    assert!(attached(&mut about_to_send(|_| {}, FEWEST)).is_some());
    assert!(attached(&mut about_to_send(|_| {}, FEWEST - 1396)).is_none());
}

/// The carrier changes the payload, the link counts packets, a batch is to be short, or each packet
/// has its own priority.
#[test]
fn what_depends_on_each_packet_is_written() {
    type Change = fn(&mut Config);
    let changes: [Change; 4] = [
        |config| config.carrier = Carrier::HijackedTcp { source: "10.0.0.1".parse().unwrap() },
        |config| {
            let bits_per_second = 10_000_000_000;
            config.link = Some(Link { bits_per_second, queue_ns_max: SECOND, bypass_len: 0 });
        },
        |config| config.gso_batch_len_max -= 1,
        |config| config.priorities.rank = UnscheduledRank::Remaining,
    ];
    for change in changes {
        let mut client = about_to_send(change, FEWEST);
        assert!(attached(&mut client).is_none());
        client.drain();
        let bytes: usize = client.take().iter().filter_map(Sent::payload_len).sum();
        assert_eq!(bytes, FEWEST);
    }
}

/// A grant says one priority for all that it allows.
#[test]
fn what_was_granted_goes_without_its_payload_where_unscheduled_packets_do_not() {
    let change = |config: &mut Config| config.priorities.rank = UnscheduledRank::Remaining;
    let mut client = about_to_send(change, 100_000);
    client.drain();
    let id = id_of(&client.take());
    for offset in [62_336, 84_672] {
        let mut packet = grant(TO_CLIENT, id ^ 1, offset, 2);
        client.node.handle_datagram(client.now, path(SERVER), &mut packet);
    }
    assert!(attached(&mut client).is_none(), "two grants keep their own priorities");
    client.drain();
    let mut packet = grant(TO_CLIENT, id ^ 1, 100_000, 2);
    client.node.handle_datagram(client.now, path(SERVER), &mut packet);
    assert!(attached(&mut client).is_none(), "11 packets");
}

#[test]
fn what_is_padded_or_goes_again_is_written() {
    let mut client = Lone::new();
    let (target, deadline) = (SERVER.parse().unwrap(), client.now + SECOND);
    let (payload, options) = (vec![1; 10], CallOptions::default());
    let call = Call { target, payload, deadline, context: 7, options };
    client.node.call_padded(client.now, call, FEWEST as u32).expect("a call");
    assert!(attached(&mut client).is_none());
    let mut client = about_to_send(|_| {}, 200_000);
    client.drain();
    let id = id_of(&client.take());
    client.now += MS;
    for mut packet in [resend(TO_CLIENT, id ^ 1, 0, 1396), grant(TO_CLIENT, id ^ 1, 150_000, 3)] {
        client.node.handle_datagram(client.now, path(SERVER), &mut packet);
    }
    assert!(attached(&mut client).is_none());
}

#[test]
fn control_packets_and_strangers_come_before() {
    for (from, is_attached) in [(CLIENT, true), (STRANGER, false)] {
        let mut server = Lone::new();
        server.give(from, &request(2, 4, 0, b"ping"));
        let id = server.requests[0].0;
        server.node.reply(server.now, id, vec![1; FEWEST]).unwrap();
        let mut packet = resend(TO_SERVER, 4, 0, RESEND_ALL);
        server.node.handle_datagram(server.now, path(from), &mut packet);
        assert!(attached(&mut server).is_none(), "RPC_UNKNOWN goes first");
        let (transmit, _) = whole(&mut server).expect("a packet");
        assert_eq!(transmit.priority, 7);
        let found = attached(&mut server);
        assert_eq!(found.is_some(), is_attached, "{from}: a stranger gets three bytes for one");
    }
}

#[test]
fn a_batch_without_its_payload_says_of_which_message_it_is() {
    let mut server = Lone::new();
    server.give(CLIENT, &marked(2, b"ping", |_| {}));
    let id = server.requests[0].0;
    server.node.reply(server.now, id, vec![1; FEWEST]).unwrap();
    for (mut lone, is_reply) in [(about_to_send(|_| {}, FEWEST), false), (server, true)] {
        let mut buffer = vec![0; GSO_BYTES_MAX];
        let (_, attached) = lone.node.poll_attached(lone.now, &mut buffer).expect("a run");
        assert_eq!((attached.is_reply, attached.offset, attached.len), (is_reply, 0, FEWEST));
    }
}

/// The payload of packets so long that one fills a batch is written.
#[test]
fn a_single_datagram_is_written() {
    let long = |config: &mut Config| config.framing.unscheduled_len = 40_000;
    assert!(attached(&mut about_to_send(long, 40_000)).is_none());
    let halves = |config: &mut Config| config.framing.unscheduled_len = 20_000;
    let (transmit, _) = attached(&mut about_to_send(halves, 40_000)).expect("a run of two");
    assert_eq!(transmit.datagram_count(), 2);
}
