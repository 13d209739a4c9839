//! Cost of a packet to a sealed server, without sockets: a client's, and what strangers make of it.

use std::net::SocketAddr;
use std::sync::Arc;

use tailcut::sealed::Sealing;
use tailcut_net::clock::Clock;
use tailcut_proto::node::{GSO_BYTES_MAX, Node};
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};
use tailcut_proto::{homa, r2p2};

use super::{GROUP, of_client};

/// Nanoseconds that a server of R2P2 takes for a request, up to its application.
pub(super) fn valid(slice_ns: u64) -> f64 {
    taken(Ends::of_r2p2(), slice_ns)
}

/// Nanoseconds that a server of Homa takes for a request, up to its application.
pub(super) fn valid_homa(slice_ns: u64) -> f64 {
    taken(Ends::of_homa(), slice_ns)
}

/// Nanoseconds for each request dropped by R2P2 that somebody without keys has sealed, in the name
/// of a client that the server knows.
pub(super) fn of_a_stranger(slice_ns: u64) -> f64 {
    dropped(Ends::of_r2p2(), slice_ns, as_known)
}

/// Nanoseconds as of [`of_a_stranger`] over Homa, in a session that the server knows.
pub(super) fn of_a_stranger_homa(slice_ns: u64) -> f64 {
    dropped(Ends::of_homa(), slice_ns, as_known)
}

/// Nanoseconds as of [`of_a_stranger`] in the names of clients that the server does not know.
pub(super) fn of_strangers(slice_ns: u64) -> f64 {
    dropped(Ends::of_r2p2(), slice_ns, as_unknown)
}

/// Nanoseconds as of [`of_strangers`] over Homa.
pub(super) fn of_strangers_homa(slice_ns: u64) -> f64 {
    dropped(Ends::of_homa(), slice_ns, as_unknown)
}

/// Nanoseconds for each request dropped whose payload has been changed on the way, which the hop
/// tag does not show.
pub(super) fn changed(slice_ns: u64) -> f64 {
    dropped(Ends::of_r2p2(), slice_ns, |bytes, _| bytes[HEADER_LEN] ^= 1)
}

/// Nanoseconds to drop the first packet of a session that the server does not know, which somebody
/// has recorded and changes.
pub(super) fn of_a_recorded_session(slice_ns: u64) -> f64 {
    let mut ends = Ends::of_r2p2();
    let first = ends.first_packet(&r2p2_endpoint);
    dropped_as(ends, slice_ns, &first, |bytes, at| bytes[HEADER_LEN + at % 32] ^= 1)
}

/// Nanoseconds as of [`of_a_recorded_session`] over Homa, whose first packet asks for all of a
/// reply that is not known yet.
pub(super) fn of_a_recorded_session_homa(slice_ns: u64) -> f64 {
    let mut ends = Ends::of_homa();
    let first = ends.first_packet(&homa_endpoint);
    dropped_as(ends, slice_ns, &first, |bytes, at| bytes[COMMON_LEN + at % 8] ^= 1)
}

/// Nanoseconds for each request dropped that the server has had, and answered.
pub(super) fn replayed(slice_ns: u64) -> f64 {
    let mut ends = Ends::of_r2p2();
    let requests = ends.requests();
    ends.handle(&mut requests.clone());
    ends.answer();
    let (mut packets, mut spent) = (0, 0);
    while spent < slice_ns {
        let mut again = requests.clone();
        packets += again.len();
        spent += ends.handle(&mut again);
        ends.drain();
    }
    spent as f64 / packets as f64
}

fn taken<E: Rpc>(mut ends: Ends<E>, slice_ns: u64) -> f64 {
    let (mut packets, mut answered, mut spent) = (0, 0, 0);
    while spent < slice_ns {
        let mut requests = ends.requests();
        packets += requests.len();
        spent += ends.handle(&mut requests);
        answered += ends.answer();
    }
    assert_eq!(answered, packets, "each is a request");
    spent as f64 / packets as f64
}

/// A hop tag is under no key of the client's, and over Homa the end of a trailer the AEAD's alone.
fn as_known(bytes: &mut [u8], _: usize) {
    *bytes.last_mut().expect("a packet") ^= 1;
}

fn as_unknown(bytes: &mut [u8], at: usize) {
    let number = bytes.len() - 16;
    bytes[number..number + 3].copy_from_slice(&(1_000 + at as u32).to_be_bytes()[1..]);
}

fn dropped<E: Rpc>(mut ends: Ends<E>, slice_ns: u64, forge: fn(&mut [u8], usize)) -> f64 {
    let requests = ends.requests();
    dropped_as(ends, slice_ns, &requests, forge)
}

/// Nanoseconds for each of these packets, forged, that is dropped.
fn dropped_as<E: Rpc>(
    mut ends: Ends<E>,
    slice_ns: u64,
    genuine: &[Vec<u8>],
    forge: fn(&mut [u8], usize),
) -> f64 {
    let (mut packets, mut spent) = (0, 0);
    let mut requests: Vec<_> = genuine.iter().cloned().cycle().take(BATCH).collect();
    requests.iter_mut().enumerate().for_each(|(at, bytes)| forge(bytes, at));
    while spent < slice_ns {
        // What is opened in place is not what it was.
        let mut forged = requests.clone();
        packets += forged.len();
        spent += ends.handle(&mut forged);
    }
    assert_eq!((ends.forged)(&ends.server), packets as u64, "all are dropped");
    assert!(ends.server.poll_event().is_none(), "nothing of them is acted on");
    spent as f64 / packets as f64
}

/// A client and a server that know each other.
struct Ends<E> {
    now: u64,
    client: E,
    server: E,
    /// Packets that the server has found forged.
    forged: fn(&E) -> u64,
    buffer: Vec<u8>,
}

impl Ends<r2p2::Endpoint> {
    fn of_r2p2() -> Self {
        Self::new(&r2p2_endpoint, |server| server.metrics().seal.forged)
    }
}

impl Ends<homa::Endpoint> {
    fn of_homa() -> Self {
        Self::new(&homa_endpoint, |server| server.metrics().seal.forged)
    }
}

fn r2p2_endpoint(now: u64, secret: [u8; 16], seal: Sealing) -> r2p2::Endpoint {
    let config = r2p2::Config { secret, seal: Some(seal), ..Default::default() };
    r2p2::Endpoint::new(now, config)
}

fn homa_endpoint(now: u64, secret: [u8; 16], seal: Sealing) -> homa::Endpoint {
    let config = homa::Config { secret, seal: Some(seal), ..Default::default() };
    homa::Endpoint::new(now, config)
}

/// Makes an endpoint at a time, of a secret and keys.
type New<E> = dyn Fn(u64, [u8; 16], Sealing) -> E;

impl<E: Rpc> Ends<E> {
    fn new(new: &New<E>, forged: fn(&E) -> u64) -> Self {
        let (now, unix_ns) = Clock.both();
        let endpoint = |secret, keys| {
            new(now, [secret; 16], Sealing::new(Arc::new(keys), unix_ns.saturating_sub(now)))
        };
        let (client, server) = (endpoint(1, of_client()), endpoint(2, GROUP.clone()));
        // A session begins later than the server.
        let now = now + 10_000_000;
        let mut ends = Self { now, client, server, forged, buffer: vec![0; GSO_BYTES_MAX] };
        // The first call names nobody, and is answered by a name.
        ends.call();
        for _ in 0..4 {
            let mut requests = carry(now, &mut ends.client, &mut ends.buffer);
            ends.handle(&mut requests);
            ends.answer();
        }
        ends
    }

    fn call(&mut self) {
        let (payload, deadline) = (vec![7; 32], self.now + 1_000_000_000);
        let options = CallOptions { idempotent: false, fixed: false, v1: false };
        let call = Call { target: SERVER, payload, deadline, context: 0, options };
        self.client.call(self.now, call).expect("there is room");
    }

    /// First packets of another process by the client's keys.
    fn first_packet(&mut self, new: &New<E>) -> Vec<Vec<u8>> {
        let unix_ns = Clock.unix_ns();
        let seal = Sealing::new(Arc::new(of_client()), unix_ns.saturating_sub(self.now));
        let known = std::mem::replace(&mut self.client, new(self.now, [3; 16], seal));
        self.call();
        let first = carry(self.now, &mut self.client, &mut self.buffer);
        self.client = known;
        first
    }

    /// Packets of calls that nobody has had, each in a datagram of its own.
    fn requests(&mut self) -> Vec<Vec<u8>> {
        self.now += 1_000;
        let mut requests = Vec::new();
        for _ in 0..BATCH {
            self.call();
            requests.extend(carry(self.now, &mut self.client, &mut self.buffer));
        }
        requests
    }

    /// Hands packets to the server; the time that it takes.
    fn handle(&mut self, packets: &mut [Vec<u8>]) -> u64 {
        let began = Clock.now();
        for bytes in packets {
            self.server.handle_datagram(self.now, CLIENT.into(), bytes);
        }
        Clock.now() - began
    }

    /// Answers what the server's application has been given: how many requests.
    fn answer(&mut self) -> usize {
        let mut answered = 0;
        while let Some(event) = self.server.poll_event() {
            if let Event::Request { id, payload, .. } = event {
                self.server.reply(self.now, id, payload).expect("it waits");
                answered += 1;
            }
        }
        self.drain();
        answered
    }

    /// Carries what the server says to the client.
    fn drain(&mut self) {
        for mut bytes in carry(self.now, &mut self.server, &mut self.buffer) {
            self.client.handle_datagram(self.now, SERVER.into(), &mut bytes);
        }
        while self.client.poll_event().is_some() {}
    }
}

/// The datagrams that a node has to send.
fn carry(now: u64, node: &mut impl Node, buffer: &mut [u8]) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    while let Some(transmit) = node.poll_transmit(now, buffer) {
        sent.extend(buffer[..transmit.len].chunks(transmit.segment_len).map(<[u8]>::to_vec));
    }
    sent
}

const CLIENT: SocketAddr =
    SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::new(10, 0, 0, 1), 33_000));
const SERVER: SocketAddr =
    SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::new(10, 0, 0, 2), 8_000));
/// Packets whose time is taken together.
const BATCH: usize = 256;
/// Bytes of a packet of Homa before what is of its type.
const COMMON_LEN: usize = 28;
/// Bytes of a first packet before its payload.
const HEADER_LEN: usize = 72;
