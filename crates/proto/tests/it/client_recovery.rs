//! Retransmissions of a client: what it sends again, where to, and whom it believes about it.

use std::net::SocketAddr;

use tailcut_proto::node::{GSO_BYTES_MAX, Node};
use tailcut_proto::r2p2::{Config, Copies, Endpoint};
use tailcut_proto::rpc::{Call, CallOptions, Rpc};
use tailcut_wire::r2p2::{Flags, MessageType, Packet, ReplyRepr, RpcId, SackBody};
use zerocopy::IntoBytes;

use super::router_bench::MS;

/// A packet of a request that has left: where to, its index and its flags.
#[derive(Clone, Copy, Debug)]
struct Sent {
    to: SocketAddr,
    rid: u16,
    id: RpcId,
    index: u16,
    flags: Flags,
    age_ms: u16,
    deadline_us: u32,
    payload_len: usize,
}

struct Client {
    node: Endpoint,
    now: u64,
}

impl Client {
    /// A client whose targets stand for each other, and that has called the first.
    fn calling(payload_len: usize, idempotent: bool) -> Self {
        Self::calling_with(payload_len, idempotent, |_| {})
    }

    fn calling_with(
        payload_len: usize,
        idempotent: bool,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let alternates = vec![target(1), target(2)];
        let mut config =
            Config { secret: [9; 16], segment_len: 64, alternates, ..Config::default() };
        change(&mut config);
        let mut client = Self { node: Endpoint::new(0, config), now: 1_000 * MS };
        let call = Call {
            target: target(1),
            payload: vec![7; payload_len],
            deadline: client.now + 1_000 * MS,
            context: 0,
            options: CallOptions { idempotent, ..CallOptions::default() },
        };
        client.node.call(client.now, call).unwrap();
        client
    }

    fn sent(&mut self) -> Vec<Sent> {
        let mut buffer = vec![0; GSO_BYTES_MAX];
        let mut sent = Vec::new();
        while let Some(transmit) = self.node.poll_transmit(self.now, &mut buffer) {
            for bytes in buffer[..transmit.len].chunks(transmit.segment_len) {
                let packet = Packet::parse(bytes).unwrap();
                let (rid, id) = (packet.rid, packet.rpc_id().unwrap());
                let (index, flags) = (packet.index, packet.flags());
                let header = packet.request_header().unwrap();
                let (age_ms, deadline_us) = (header.age_ms.get(), header.deadline_us.get());
                let (to, payload_len) = (transmit.to, packet.payload.len());
                sent.push(Sent { to, rid, id, index, flags, age_ms, deadline_us, payload_len });
            }
        }
        sent
    }

    /// An ACK from a server: packets below `base` have come, and those of `arrived`.
    fn ack(&mut self, from: SocketAddr, call: Sent, (base, granted): (u16, u16), arrived: &[u16]) {
        let mut bitmap = [0; SackBody::BITMAP_LEN];
        for packet in arrived {
            let bit = usize::from(packet - base - 1);
            bitmap[bit / 8] |= 1 << (bit % 8);
        }
        let header = ReplyRepr::control(MessageType::Ack, call.rid, call.id).header();
        let sack = SackBody { base: base.into(), granted: granted.into(), bitmap };
        let mut bytes = [header.as_bytes(), sack.as_bytes()].concat();
        self.node.handle_datagram(self.now, from.into(), &mut bytes);
    }
}

fn target(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 2, 0, host], 8_000))
}

#[test]
fn a_hole_is_sent_again_and_counted() {
    let mut client = Client::calling(640, false);
    let first = client.sent()[0];
    client.ack(target(3), first, (1, 10), &[]);
    let indexes: Vec<u16> = client.sent().iter().map(|sent| sent.index).collect();
    assert_eq!(indexes, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    client.ack(target(3), first, (1, 10), &[3, 4, 5, 6, 7, 8, 9]);
    let indexes: Vec<u16> = client.sent().iter().map(|sent| sent.index).collect();
    assert_eq!((indexes, client.node.metrics().resent), (vec![1, 2], 2));
}

/// One server has the call.
#[test]
fn who_has_nothing_to_do_with_a_call_does_not_acknowledge_it() {
    let mut client = Client::calling(640, false);
    let first = client.sent()[0];
    client.ack(target(3), first, (1, 2), &[]);
    assert_eq!(client.sent().len(), 1);
    client.ack(target(4), first, (1, 10), &[]);
    assert_eq!((client.sent().len(), client.node.metrics().protocol_violation), (0, 1));
}

/// The places where it may have run matter only for a call that may run once.
#[test]
fn a_call_that_moves_says_so_if_it_may_run_once() {
    for idempotent in [false, true] {
        let mut client = Client::calling(8, idempotent);
        assert_eq!(client.sent()[0].to, target(1));
        let moved = loop {
            client.now = client.now.max(client.node.poll_timeout().expect("it has a timer"));
            client.node.handle_timeout(client.now);
            if let Some(moved) = client.sent().into_iter().find(|sent| sent.to == target(2)) {
                break moved;
            }
        };
        assert_eq!(moved.flags.has(Flags::MOVED), !idempotent);
    }
}

#[test]
fn a_request_that_is_sent_again_tells_its_age_and_what_is_left() {
    let mut client = Client::calling_with(8, false, |config| config.alternates.clear());
    let first = client.sent()[0];
    assert_eq!((first.flags.has(Flags::RETRANSMIT), first.age_ms), (false, 0));
    assert_eq!(first.deadline_us, 1_000_000);
    let sent_at = client.now;
    let again = loop {
        client.now = client.now.max(client.node.poll_timeout().expect("it has a timer"));
        client.node.handle_timeout(client.now);
        if let [again] = client.sent()[..] {
            break again;
        }
    };
    let passed_ns = client.now - sent_at;
    assert!(again.flags.has(Flags::RETRANSMIT));
    assert_eq!(u64::from(again.age_ms), passed_ns.div_ceil(MS));
    assert_eq!(u64::from(again.deadline_us), (1_000 * MS - passed_ns) / 1_000);
}

#[test]
fn a_copy_goes_to_another_server_with_all_of_the_request() {
    let mut client = Client::calling_with(40, true, |config| {
        config.alternates.clear();
        config.cloning.copies = Copies::Always;
        config.cloning.servers = vec![target(1), target(2)];
    });
    let mut sent = client.sent();
    sent.sort_by_key(|sent| sent.to);
    let found: Vec<_> = sent.iter().map(|sent| (sent.to, sent.id, sent.payload_len)).collect();
    let id = sent[0].id;
    assert_eq!(found, [(target(1), id, 40), (target(2), id, 40)]);
}
