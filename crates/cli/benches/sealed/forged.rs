//! What a sealed server pays for a packet, without sockets: a client's, and what strangers make of it.

use std::net::SocketAddr;
use std::sync::Arc;

use tailcut::sealed::Sealing;
use tailcut_net::clock::Clock;
use tailcut_proto::node::{GSO_BYTES_MAX, Node};
use tailcut_proto::r2p2::{Config, Endpoint};
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};

use super::{GROUP, of_client};

/// Nanoseconds that a server takes for a request, up to its application.
pub(super) fn valid(slice_ns: u64) -> f64 {
    let mut ends = Ends::new();
    let (mut packets, mut spent) = (0, 0);
    while spent < slice_ns {
        let mut requests = ends.requests();
        packets += requests.len();
        spent += ends.handle(&mut requests);
        ends.answer();
    }
    spent as f64 / packets as f64
}

/// The same of requests that somebody without keys has sealed.
pub(super) fn of_a_stranger(slice_ns: u64) -> f64 {
    dropped(slice_ns, |bytes| {
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
    })
}

/// The same of requests whose payload has been changed on the way, which the hop tag does not show.
pub(super) fn changed(slice_ns: u64) -> f64 {
    dropped(slice_ns, |bytes| bytes[HEADER_LEN] ^= 1)
}

/// The same of requests that the server has had, and answered.
pub(super) fn replayed(slice_ns: u64) -> f64 {
    let mut ends = Ends::new();
    let mut requests = ends.requests();
    ends.handle(&mut requests.clone());
    ends.answer();
    let (mut packets, mut spent) = (0, 0);
    while spent < slice_ns {
        let mut again = requests.clone();
        packets += again.len();
        spent += ends.handle(&mut again);
        ends.drain();
    }
    requests.clear();
    spent as f64 / packets as f64
}

fn dropped(slice_ns: u64, forge: fn(&mut [u8])) -> f64 {
    let mut ends = Ends::new();
    let (mut packets, mut spent) = (0, 0);
    let mut requests = ends.requests();
    requests.iter_mut().for_each(|bytes| forge(bytes));
    while spent < slice_ns {
        // What is opened in place is not what it was.
        let mut forged = requests.clone();
        packets += forged.len();
        spent += ends.handle(&mut forged);
    }
    assert_eq!(ends.server.metrics().seal.forged, packets as u64, "all are dropped");
    assert!(ends.server.poll_event().is_none(), "nothing of them is acted on");
    spent as f64 / packets as f64
}

/// A client and a server that know each other.
struct Ends {
    now: u64,
    client: Endpoint,
    server: Endpoint,
    buffer: Vec<u8>,
}

impl Ends {
    fn new() -> Self {
        let (now, unix_ns) = Clock.both();
        let endpoint = |secret, keys| {
            let seal = Some(Sealing::new(Arc::new(keys), unix_ns.saturating_sub(now)));
            Endpoint::new(now, Config { secret: [secret; 16], seal, ..Config::default() })
        };
        let (client, server) = (endpoint(1, of_client()), endpoint(2, GROUP.clone()));
        // A session begins later than the server.
        let now = now + 10_000_000;
        let mut ends = Self { now, client, server, buffer: vec![0; GSO_BYTES_MAX] };
        // The first call names nobody, and is answered by a name.
        ends.call();
        for _ in 0..4 {
            let requests = carry(now, &mut ends.client, &mut ends.buffer);
            for mut bytes in requests {
                ends.server.handle_datagram(now, CLIENT.into(), &mut bytes);
            }
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

    /// Packets of calls that nobody has had.
    fn requests(&mut self) -> Vec<Vec<u8>> {
        (0..BATCH).for_each(|_| self.call());
        self.now += 1_000;
        carry(self.now, &mut self.client, &mut self.buffer)
    }

    /// Hands packets to the server; the time that it takes.
    fn handle(&mut self, packets: &mut [Vec<u8>]) -> u64 {
        let began = Clock.now();
        for bytes in packets {
            self.server.handle_datagram(self.now, CLIENT.into(), bytes);
        }
        Clock.now() - began
    }

    /// Answers what the server's application has been given.
    fn answer(&mut self) {
        while let Some(event) = self.server.poll_event() {
            if let Event::Request { id, payload, .. } = event {
                self.server.reply(self.now, id, payload).expect("it waits");
            }
        }
        self.drain();
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
fn carry(now: u64, node: &mut Endpoint, buffer: &mut [u8]) -> Vec<Vec<u8>> {
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
/// Bytes of a first packet before its payload.
const HEADER_LEN: usize = 72;
