//! A sealed client, its router and its server, or those of Homa, which has no routers, while
//! somebody records what they send, changes it, sends it again and makes up packets: no node
//! panics, nothing that was changed is acted on, no call runs twice and each ends. And whatever a
//! file of keys says, it is refused or written again as it was read.
//!
//! The input is a list of steps: a byte that says what happens, a byte that says to which packet or
//! whom, a length, and the bytes.
#![no_main]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::node::{GSO_BYTES_MAX, Node, Path, Time};
use tailcut_proto::router::{Router, RouterConfig, ServerConfig, Speaks};
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};
use tailcut_proto::sealed::{Cipher, EpochKey, HopKey, Keys, Role, Sealing, Secret};
use tailcut_proto::{homa, r2p2};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(keys) = text.parse::<Keys>()
    {
        let written = keys.to_text();
        assert_eq!(written.parse::<Keys>().map(|keys| keys.to_text()), Ok(written));
    }
    // These bits mean nothing to the first step.
    let has = |bit: u8| bytes.first().is_some_and(|first| first & bit != 0);
    let mut net = Net::new(has(64), has(32), has(128));
    let mut rest = bytes;
    while let [kind, which, len, tail @ ..] = rest {
        let (bytes, next) = tail.split_at(usize::from(*len).min(tail.len()));
        net.step((*kind, *which), bytes);
        rest = next;
    }
    // Longer than any deadline.
    for _ in 0..200 {
        net.pass(5 * MS);
    }
    assert_eq!(net.ended, net.calls.len(), "every call ends");
});

/// The three nodes, and what was sent between them.
struct Net {
    now: Time,
    client: Endpoint,
    router: Router,
    server: Endpoint,
    /// Host that calls go to.
    target: u8,
    buffer: Vec<u8>,
    /// Everything that was sent: from, to, bytes.
    log: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
    /// The payloads of calls, whether each may run twice, and how often it has run.
    calls: Vec<(Vec<u8>, bool, u32)>,
    /// Calls that have ended.
    ended: usize,
    /// The next so many packets are lost.
    losing: u8,
}

impl Net {
    /// Calls go to the server itself if they are direct, or over Homa; where a key is lost it has
    /// not the second one.
    fn new(is_homa: bool, is_direct: bool, is_lost: bool) -> Self {
        let seal = |role| {
            let mut keys = keys().for_role(role).expect("a server's keys derive all");
            if is_lost && role == Role::Server {
                keys.epochs.pop();
            }
            Some(Sealing::new(Arc::new(keys), 0))
        };
        let node = |seal, secret| -> Endpoint {
            let secret = [secret; 16];
            if is_homa {
                let config = homa::Config { seal, secret, ..homa::Config::default() };
                return homa::Endpoint::new(START, config).into();
            }
            let config = r2p2::Config { seal, secret, ..r2p2::Config::default() };
            r2p2::Endpoint::new(START, config).into()
        };
        let router = RouterConfig {
            servers: vec![ServerConfig { addr: at(SERVER), speaks: Speaks::Extension }],
            seal: seal(Role::Router),
            ..RouterConfig::default()
        };
        let mut net = Self {
            now: START,
            client: node(seal(Role::Client(17)), 1),
            router: Router::new(START, router).expect("a configuration"),
            server: node(seal(Role::Server), 2),
            target: if is_homa || is_direct { SERVER } else { ROUTER },
            buffer: vec![0; GSO_BYTES_MAX],
            log: Vec::new(),
            calls: Vec::new(),
            ended: 0,
            losing: 0,
        };
        (0..12).for_each(|_| net.pass(MS));
        net
    }

    fn step(&mut self, (kind, which): (u8, u8), bytes: &[u8]) {
        match kind % 8 {
            0 | 1 => self.call(kind & 8 != 0, bytes),
            2 => self.pass(Time::from(which) * MS / 8),
            3 => self.losing = which % 8,
            4 | 5 => self.send_again(kind, which, bytes),
            _ => {
                let to = at([CLIENT, ROUTER, SERVER][usize::from(which % 3)]);
                let from = at([CLIENT, ROUTER, SERVER, 9][usize::from(which / 3 % 4)]);
                self.deliver(from, to, bytes.to_vec());
            }
        }
        self.settle();
    }

    fn call(&mut self, idempotent: bool, bytes: &[u8]) {
        // Each once, and long enough for several packets where there are many.
        let number = (self.calls.len() as u32).to_be_bytes();
        let payload = [&number, &bytes.repeat(1 + bytes.len() / 8)[..]].concat();
        let options = CallOptions { idempotent, ..CallOptions::default() };
        let call = Call {
            target: at(self.target),
            payload: payload.clone(),
            deadline: self.now + 50 * MS,
            context: self.calls.len() as u64,
            options,
        };
        if self.client.call(self.now, call).is_ok() {
            self.calls.push((payload, idempotent, 0));
        }
    }

    /// Sends a recorded packet, changed where bytes say so, to whom it went or to another, from
    /// where it came or from elsewhere.
    fn send_again(&mut self, kind: u8, which: u8, bytes: &[u8]) {
        let Some(place) = self.log.len().checked_sub(1 + usize::from(which)) else { return };
        let (mut from, mut to, mut packet) = self.log[place].clone();
        if kind & 16 != 0 {
            from = at(9);
        }
        if kind & 32 != 0 {
            to = at(if to == at(SERVER) { ROUTER } else { SERVER });
        }
        if let ([shorter], []) = bytes.as_chunks::<2>() {
            packet.truncate(usize::from(shorter[0]));
        }
        for [position, change] in bytes.as_chunks::<2>().0 {
            let last = packet.len().saturating_sub(1);
            if let Some(byte) = packet.get_mut(usize::from(*position).min(last)) {
                *byte ^= change;
            }
        }
        self.deliver(from, to, packet);
    }

    /// Time passes, and what is under way arrives.
    fn pass(&mut self, ns: Time) {
        self.now += ns;
        self.client.handle_timeout(self.now);
        self.router.handle_timeout(self.now);
        self.server.handle_timeout(self.now);
        self.settle();
    }

    /// Carries what is under way until nothing is.
    fn settle(&mut self) {
        for _ in 0..100 {
            let mut sent = VecDeque::new();
            let nodes: [(&mut dyn Node, u8); 3] = [
                (&mut self.client, CLIENT),
                (&mut self.router, ROUTER),
                (&mut self.server, SERVER),
            ];
            for (node, place) in nodes {
                while let Some(transmit) = node.poll_transmit(self.now, &mut self.buffer) {
                    let bytes = &self.buffer[..transmit.len];
                    let segment = transmit.segment_len.max(1);
                    sent.extend(
                        bytes.chunks(segment).map(|bytes| (at(place), transmit.to, bytes.to_vec())),
                    );
                }
            }
            if sent.is_empty() {
                break;
            }
            for (from, to, bytes) in sent {
                self.log.push((from, to, bytes.clone()));
                match self.losing.checked_sub(1) {
                    Some(left) => self.losing = left,
                    None => self.deliver(from, to, bytes),
                }
            }
        }
    }

    fn deliver(&mut self, from: SocketAddr, to: SocketAddr, mut bytes: Vec<u8>) {
        let path = Path { local: None, peer: from };
        match to.port() {
            1 => self.client.handle_datagram(self.now, path, &mut bytes),
            2 => self.router.handle_datagram(self.now, path, &mut bytes),
            3 => self.server.handle_datagram(self.now, path, &mut bytes),
            _ => {}
        }
        self.take_events();
    }

    fn take_events(&mut self) {
        while let Some(event) = self.server.poll_event() {
            let Event::Request { id, payload, .. } = event else { continue };
            let number = payload.first_chunk().expect("no call is as short");
            let (called, idempotent, runs) = &mut self.calls[u32::from_be_bytes(*number) as usize];
            assert_eq!(*called, payload, "nothing that was changed is acted on");
            *runs += 1;
            assert!(*runs == 1 || *idempotent, "no call runs twice that may run once");
            self.server.reply(self.now, id, payload).expect("a reply is short enough");
        }
        while let Some(event) = self.client.poll_event() {
            match event {
                Event::Replied { context, payload, .. } => {
                    assert_eq!(self.calls[context as usize].0, payload, "its own reply");
                    self.ended += 1;
                }
                Event::Failed { .. } => self.ended += 1,
                _ => {}
            }
        }
    }
}

fn keys() -> Keys {
    let key = |epoch, from_ms| EpochKey {
        epoch,
        from_ms,
        secret: Secret::new([epoch; 32]),
        hop: HopKey::default(),
    };
    // The second one is used from the first moments on.
    let epochs = vec![key(7, 0), key(8, START / MS + 100)];
    Keys {
        role: Role::Server,
        group: "fuzz".into(),
        cipher: Cipher::Aes128Gcm,
        reset: Some(HopKey::new([9; 16])),
        epochs,
    }
}

fn at(place: u8) -> SocketAddr {
    ([10, 0, 0, place], place.into()).into()
}

/// Ports and the last bytes of addresses.
const CLIENT: u8 = 1;
const ROUTER: u8 = 2;
const SERVER: u8 = 3;

const MS: Time = 1_000_000;

/// Time at which nodes start, by their clocks and by the wall's.
const START: Time = 10_000 * MS;
