//! Endpoints and routers whose packets are sealed, over a network in memory.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use tailcut_wire::r2p2::{MessageType, Rejection, ReplyRepr, RequestHeader, RpcId};
use zerocopy::{FromBytes, IntoBytes};

use self::vectors::{check_vectors, vectors};
use super::*;
use crate::node::{Node, Path, Source, Time};
use crate::r2p2::{Config, Endpoint};
use crate::router::{Router, RouterConfig, ServerConfig, Speaks};
use crate::rpc::{Call, CallError, CallOptions, DropReason, Event, Failure, Rpc};

mod access;
mod coalesced;
mod homa;
mod homa_resets;
mod live;
mod lured;
mod plane;
mod resets;
mod seal_of_client;
mod seal_of_router;
mod seal_of_server;
pub(super) mod seals;
mod streams;
mod vectors;

pub(super) const CLIENT: &str = "10.0.0.1:1000";
const STRANGER: &str = "10.0.0.9:9000";
pub(super) const ROUTER: &str = "10.0.0.2:8000";
const SERVER: &str = "10.0.0.3:8000";
const MS: Time = 1_000_000;
/// Start of the nodes, ns: also by the wall clock, since theirs was 0 at their time 0.
const START: Time = 10_000 * MS;

fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

/// A group's keys: one used from the start of time, the next from `next_ms`.
fn keys(cipher: Cipher, next_ms: u64) -> Keys {
    let key = |epoch, from_ms| EpochKey {
        epoch,
        from_ms,
        secret: Secret::new([epoch; 32]),
        hop: HopKey::default(),
    };
    let epochs = vec![key(7, 0), key(8, next_ms)];
    Keys { role: Role::Server, group: "test".into(), cipher, reset: None, epochs }
}

fn sealing(keys: &Keys, role: Role) -> Option<Sealing> {
    Some(Sealing::new(Arc::new(keys.for_role(role).unwrap()), 0))
}

/// A datagram under way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sent {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

impl Sent {
    /// It, changed in one bit of each byte at either end.
    fn changed(&self) -> impl Iterator<Item = Self> {
        let len = self.bytes.len();
        (0..len.min(90)).chain(len - 40..len).map(|place| {
            let mut changed = self.clone();
            changed.bytes[place] ^= 1 << (place % 8);
            changed
        })
    }
}

/// A client, perhaps a router, and a server that echoes.
struct Net {
    now: Time,
    client: Endpoint,
    router: Option<Router>,
    server: Endpoint,
    keys: Keys,
    /// All that was sent.
    log: Vec<Sent>,
    /// Requests that have run.
    runs: usize,
    /// By the number at the beginning of those that have one.
    runs_of: std::collections::BTreeMap<u64, usize>,
    /// Outcomes of calls.
    ended: Vec<Result<Vec<u8>, Failure>>,
    /// The numbers of the clients of requests.
    clients: Vec<Option<u32>>,
    /// Every so many datagrams one is lost; 0 for none.
    loss: usize,
}

impl Net {
    fn new(keys: Keys, is_routed: bool) -> Self {
        let client = Config { secret: [1; 16], ..Config::default() };
        let client = Config { seal: sealing(&keys, Role::Client(17)), ..client };
        let router = is_routed.then(|| router(START, &keys, 0));
        let mut net = Self {
            now: START,
            client: Endpoint::new(START, client),
            router,
            server: server(START, &keys, 2),
            keys,
            log: Vec::new(),
            runs: 0,
            runs_of: Default::default(),
            ended: Vec::new(),
            clients: Vec::new(),
            loss: 0,
        };
        // What goes again within the time that the network may hold it, from when a router starts,
        // may be older than that.
        for _ in 0..12 {
            net.turn();
            net.now += MS;
        }
        net
    }

    fn target(&self) -> SocketAddr {
        at(if self.router.is_some() { ROUTER } else { SERVER })
    }

    fn begin(&mut self, payload: &[u8]) {
        let call = Call {
            target: self.target(),
            payload: payload.to_vec(),
            deadline: self.now + 500 * MS,
            context: 0,
            options: CallOptions::default(),
        };
        self.client.call(self.now, call).unwrap();
    }

    /// A call that ends, and how.
    fn call(&mut self, payload: &[u8]) -> Result<Vec<u8>, Failure> {
        let before = self.ended.len();
        self.begin(payload);
        let by = self.now + 1_000 * MS;
        while self.ended.len() == before && self.now < by {
            self.turn();
            self.now += MS / 10;
        }
        self.ended.last().cloned().expect("every call ends")
    }

    /// Carries everything that is under way.
    fn turn(&mut self) {
        let mut under_way = VecDeque::new();
        for _ in 0..100 {
            self.collect(&mut under_way);
            if under_way.is_empty() {
                break;
            }
            while let Some(sent) = under_way.pop_front() {
                self.log.push(sent.clone());
                if self.loss == 0 || !self.log.len().is_multiple_of(self.loss) {
                    self.deliver(sent);
                }
            }
        }
        self.client.handle_timeout(self.now);
        self.server.handle_timeout(self.now);
        if let Some(router) = &mut self.router {
            router.handle_timeout(self.now);
        }
        self.take_events();
    }

    fn collect(&mut self, under_way: &mut VecDeque<Sent>) {
        drain(&mut self.client, CLIENT, self.now, under_way);
        drain(&mut self.server, SERVER, self.now, under_way);
        if let Some(router) = &mut self.router {
            drain(router, ROUTER, self.now, under_way);
        }
    }

    fn deliver(&mut self, mut sent: Sent) {
        let path = Path { local: None, peer: sent.from };
        let (now, bytes) = (self.now, &mut sent.bytes);
        match sent.to.to_string().as_str() {
            CLIENT => self.client.handle_datagram(now, path, bytes),
            SERVER => self.server.handle_datagram(now, path, bytes),
            ROUTER => {
                if let Some(router) = &mut self.router {
                    router.handle_datagram(now, path, bytes);
                }
            }
            _ => {}
        }
        self.take_events();
    }

    fn take_events(&mut self) {
        while let Some(event) = self.server.poll_event() {
            if let Event::Request { id, payload, .. } = event {
                self.runs += 1;
                if let Some(number) = payload.first_chunk() {
                    *self.runs_of.entry(u64::from_be_bytes(*number)).or_default() += 1;
                }
                self.clients.push(self.server.client_of(id));
                let _ = self.server.reply(self.now, id, payload);
            }
        }
        while let Some(event) = self.client.poll_event() {
            match event {
                Event::Replied { payload, .. } => self.ended.push(Ok(payload)),
                Event::Failed { failure, .. } => self.ended.push(Err(failure)),
                _ => {}
            }
        }
    }

    /// Another server takes the place of the one that has had everything.
    fn restart_server(&mut self) {
        self.now += 2 * MS;
        self.server = server(self.now, &self.keys, 3);
        self.now += 2 * MS;
    }
}

fn router(now: Time, keys: &Keys, seed: u64) -> Router {
    let server = ServerConfig { addr: at(SERVER), speaks: Speaks::Extension };
    let (servers, seal) = (vec![server], sealing(keys, Role::Router));
    Router::new(now, RouterConfig { servers, seal, seed, ..RouterConfig::default() }).unwrap()
}

fn server(now: Time, keys: &Keys, secret: u8) -> Endpoint {
    let seal = sealing(keys, Role::Server);
    let mut config = Config { secret: [secret; 16], seal, ..Config::default() };
    config.pool.server_id = 5;
    Endpoint::new(now, config)
}

fn drain(node: &mut impl Node, address: &str, now: Time, under_way: &mut VecDeque<Sent>) {
    let mut buffer = vec![0; 1 << 16];
    while let Some(transmit) = node.poll_transmit(now, &mut buffer) {
        assert!(!matches!(transmit.from, Source::Spoofed(_)));
        for bytes in buffer[..transmit.len].chunks(transmit.segment_len) {
            under_way.push_back(Sent { from: at(address), to: transmit.to, bytes: bytes.to_vec() });
        }
    }
}

fn net(is_routed: bool) -> Net {
    Net::new(keys(Cipher::Aes128Gcm, u64::MAX), is_routed)
}

fn message(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8 | 0x80).collect()
}

fn holds(bytes: &[u8], piece: &[u8]) -> bool {
    bytes.windows(piece.len()).any(|window| window == piece)
}

fn check_calls(mut net: Net) {
    for len in [0, 1, 32, 1_348, 1_349, 5_000, 200_000] {
        let payload = message(len);
        assert_eq!(net.call(&payload), Ok(payload.clone()), "{len} B");
        if len >= 32 {
            let is_clear = net.log.iter().any(|sent| holds(&sent.bytes, &payload[..32]));
            assert!(!is_clear, "a payload of {len} B went in the clear");
        }
    }
    assert!(net.log.iter().all(|sent| sent.bytes.len() <= 1_452), "sealed packets fit the MTU");
    assert!(net.clients.iter().all(|&client| client == Some(17)));
    assert_eq!(dropped(net.client.metrics().seal), SealMetrics::default());
    assert_eq!(dropped(net.server.metrics().seal), SealMetrics::default());
    let unnamed =
        net.router.as_ref().map_or(net.server.metrics().seal, |r| r.metrics().seal).unnamed;
    assert_eq!(unnamed, 1, "the first call alone is to learn whom it has reached");
}

/// Counters of a seal, without those of requests that were answered by a name.
fn dropped(seal: SealMetrics) -> SealMetrics {
    SealMetrics { unnamed: 0, ..seal }
}

#[test]
fn calls_of_every_length_are_answered_and_nothing_goes_in_the_clear() {
    check_calls(net(false));
    check_calls(Net::new(keys(Cipher::ChaCha20Poly1305, u64::MAX), false));
}

#[test]
fn a_router_places_what_it_cannot_read() {
    let mut net = net(true);
    net.turn();
    net.now += 10 * MS;
    check_calls(net);
}

#[test]
fn a_router_hears_of_its_servers() {
    let mut net = net(true);
    for _ in 0..20 {
        assert!(net.call(b"request").is_ok());
        net.now += 5 * MS;
        net.turn();
    }
    let router = net.router.as_ref().unwrap();
    let metrics = router.metrics();
    assert!(metrics.feedback_taken > 20, "{metrics:?}");
    assert_eq!(router.servers().next().unwrap().outstanding, 0);
    assert_eq!(dropped(metrics.seal), SealMetrics::default());
}

/// A request that has named nobody is nowhere: no earlier run of the router can have placed it.
#[test]
fn a_router_that_has_just_started_places_the_first_call_of_a_client() {
    let mut net = net(true);
    net.router = Some(router(net.now, &net.keys, 3));
    assert_eq!(net.call(b"request"), Ok(b"request".to_vec()));
    assert_eq!(net.router.as_ref().unwrap().metrics().seal.unnamed, 1);
}

/// Every datagram of calls that were answered, changed in one bit of each byte, is nothing to
/// anybody.
#[test]
fn nothing_forged_is_acted_on() {
    let mut net = net(true);
    for payload in [&b"small"[..], &message(4_000)] {
        net.call(payload).unwrap();
        net.now += 6 * MS;
        net.turn();
    }
    let (genuine, runs) = (std::mem::take(&mut net.log), net.runs);
    let kinds: BTreeSet<u8> = genuine.iter().map(|sent| sent.bytes[2] >> 4).collect();
    assert_eq!(
        kinds,
        BTreeSet::from([0, 1, 2, 3, 14]),
        "requests, replies, feedback, ACKs, probes"
    );
    let counts = |net: &Net| {
        let (client, server) = (net.client.metrics(), net.server.metrics());
        let router = net.router.as_ref().unwrap().metrics();
        // Everything but the datagrams that came, and what the seals have counted of them.
        let of = |metrics: &crate::r2p2::Metrics| {
            let common = crate::r2p2::Counters { datagrams_in: 0, ..metrics.common };
            crate::r2p2::Metrics { common, seal: SealMetrics::default(), ..*metrics }
        };
        let seals = [client.seal, server.seal, router.seal];
        let refused: u64 =
            seals.iter().map(|seal| seal.forged + seal.unsealed + seal.unknown_keys).sum();
        let (forwarded, feedback) = (router.forwarded, router.feedback_taken);
        ((of(client), of(server), forwarded, feedback), refused)
    };
    let before = counts(&net);
    let mut forged = 0;
    for sent in &genuine {
        // A router cannot tell a payload: to it, one that was changed is one that was lost.
        let payload = usize::from(sent.bytes[1])..sent.bytes.len() - TRAILER_LEN;
        let is_told = |byte: &usize| {
            let is_read = sent.to != at(ROUTER) || sent.bytes[2] >> 4 != 0;
            is_read || !payload.contains(byte)
        };
        let bytes = (0..sent.bytes.len()).filter(|byte| *byte < 120 || byte % 61 == 0);
        for byte in bytes.filter(is_told) {
            let mut other = sent.clone();
            other.bytes[byte] ^= 1 << (byte % 8);
            net.deliver(other);
            forged += 1;
        }
    }
    let after = counts(&net);
    assert!(forged > 1_000, "{forged}");
    assert_eq!((after.0, after.1 - before.1), (before.0, forged));
    assert_eq!(net.runs, runs);
    assert_eq!(net.call(b"after"), Ok(b"after".to_vec()));
}

/// Everything that was sent comes again, from where it came and from elsewhere, at once and after a
/// restart of the server.
#[test]
fn nothing_replayed_runs_twice() {
    let mut net = net(false);
    for len in [10, 3_000, 20] {
        net.call(&message(len)).unwrap();
    }
    let recorded = std::mem::take(&mut net.log);
    let replay = |net: &mut Net| {
        for from in [CLIENT, STRANGER] {
            for sent in recorded.iter().filter(|sent| sent.to == at(SERVER)) {
                net.deliver(Sent { from: at(from), ..sent.clone() });
                net.turn();
            }
        }
    };
    replay(&mut net);
    assert_eq!(net.runs, 3);
    assert!(net.server.metrics().seal.stale_sessions > 0, "the session is at another address");
    net.restart_server();
    replay(&mut net);
    assert_eq!(net.runs, 3, "they name the server of before");
    assert!(net.server.metrics().seal.forged > 0 && net.server.metrics().seal.unnamed > 0);
}

/// Whatever was recorded of calls is sent to another server of the group, from anywhere: nothing
/// runs.
#[test]
fn nothing_recorded_runs_at_another_server() {
    for is_routed in [false, true] {
        let mut net = net(is_routed);
        net.turn();
        net.now += 10 * MS;
        for len in [10, 3_000, 20] {
            net.call(&message(len)).unwrap();
        }
        let mut other = server(START, &net.keys, 9);
        for sent in &net.log {
            for from in [sent.from, at(CLIENT), at(ROUTER), at(STRANGER)] {
                let path = Path { local: None, peer: from };
                other.handle_datagram(net.now, path, &mut sent.bytes.clone());
            }
        }
        let event = other.poll_event();
        assert!(event.is_none(), "routed: {is_routed}: {event:?}");
        let seal = other.metrics().seal;
        assert!(seal.forged + seal.unknown_keys > 10, "{seal:?}");
    }
}

/// Nor does a router that has placed it place it once more for somebody elsewhere.
#[test]
fn nothing_recorded_is_placed_for_another_address() {
    let mut net = net(true);
    net.turn();
    net.now += 10 * MS;
    for len in [10, 20, 30] {
        net.call(&message(len)).unwrap();
    }
    let is_request = |sent: &&Sent| sent.to == at(ROUTER) && sent.bytes[2] >> 4 == 0;
    let recorded: Vec<Sent> = net.log.iter().filter(is_request).cloned().collect();
    let forwarded = |net: &Net| net.router.as_ref().unwrap().metrics().forwarded;
    let (before, runs) = (forwarded(&net), net.runs);
    for sent in recorded {
        net.deliver(Sent { from: at(STRANGER), ..sent });
        net.turn();
    }
    assert_eq!((forwarded(&net), net.runs), (before, runs));
    assert!(net.router.as_ref().unwrap().metrics().seal.stale_sessions >= 3);
}

/// Nothing is placed at another router, at the same one when it has started again, and at the same
/// one once the calls have expired.
#[test]
fn nothing_recorded_is_placed_again() {
    let mut net = net(true);
    net.turn();
    net.now += 10 * MS;
    for len in [10, 3_000, 20] {
        net.call(&message(len)).unwrap();
    }
    let recorded: Vec<Sent> =
        net.log.iter().filter(|sent| sent.to == at(ROUTER)).cloned().collect();
    let replay = |net: &mut Net, router: Router| {
        let before = net.router.replace(router);
        // It knows its server, and would place.
        for _ in 0..4 {
            net.turn();
            net.now += 10 * MS;
        }
        let (runs, forwarded) = (net.runs, net.router.as_ref().unwrap().metrics().forwarded);
        for from in [CLIENT, STRANGER] {
            for sent in &recorded {
                net.deliver(Sent { from: at(from), ..sent.clone() });
            }
            net.turn();
        }
        let router = std::mem::replace(&mut net.router, before).unwrap();
        let metrics = router.metrics();
        assert_eq!((net.runs, metrics.forwarded), (runs, forwarded), "{metrics:?}");
        metrics.seal
    };
    let now = net.now;
    for seed in [1, 2] {
        let new = router(now, &net.keys, seed);
        let seal = replay(&mut net, new);
        assert!(seal.forged > 3 && seal.unnamed > 0, "{seal:?}");
    }
    net.now += 1_000 * MS;
    let same = net.router.take().unwrap();
    let seal = replay(&mut net, same);
    assert!(seal.outdated > 3, "{seal:?}");
}

/// Its deadline has not passed, and its id is not remembered; but its client has said since that
/// the call has ended.
#[test]
fn what_has_ended_is_not_placed_again_while_it_is_young() {
    let mut net = net(true);
    net.turn();
    net.now += 10 * MS;
    net.call(b"first").unwrap();
    let recorded = net.log.iter().rfind(|sent| (sent.from, sent.to) == (at(CLIENT), at(ROUTER)));
    let recorded = recorded.unwrap().clone();
    net.call(b"second").unwrap();
    // Its id is released after the time that the network may hold a copy.
    net.now += 100 * MS;
    net.turn();
    let before = net.router.as_ref().unwrap().metrics();
    net.deliver(recorded);
    net.turn();
    let after = net.router.as_ref().unwrap().metrics();
    assert_eq!(
        (after.forwarded, after.seal.replayed),
        (before.forwarded, before.seal.replayed + 1)
    );
}

/// A report of one server is not taken for another's, from whatever address it comes.
#[test]
fn a_report_of_one_server_is_not_anothers() {
    let mut net = net(true);
    for _ in 0..4 {
        net.turn();
        net.now += 10 * MS;
    }
    net.call(b"request").unwrap();
    let other = at("10.0.0.4:8000");
    let router = net.router.as_mut().unwrap();
    let now = net.now;
    router.add_server(now, ServerConfig { addr: other, speaks: Speaks::Extension }).unwrap();
    let reports: Vec<Sent> = net
        .log
        .iter()
        .filter(|sent| (sent.from, sent.to) == (at(SERVER), at(ROUTER)))
        .cloned()
        .collect();
    net.turn();
    let before = net.router.as_ref().unwrap().metrics();
    for sent in &reports {
        net.deliver(Sent { from: other, ..sent.clone() });
    }
    let after = net.router.as_ref().unwrap().metrics();
    assert_eq!(after.feedback_taken, before.feedback_taken);
    assert_eq!(after.seal.misdirected - before.seal.misdirected, reports.len() as u64);
    assert!(reports.len() > 3);
}

/// Another client of the group, which draws what the one with the same secret draws: the same ids.
/// It has begun one call and been told the server's name.
fn another_client(net: &mut Net, secret: u8) -> Endpoint {
    let seal = sealing(&net.keys, Role::Client(18));
    let config = Config { secret: [secret; 16], seal, ..Config::default() };
    let mut other = Endpoint::new(START, config);
    for sent in datagrams_of_call(&mut other, net.now, STRANGER, b"first".to_vec()) {
        net.deliver(sent);
    }
    let mut answers = VecDeque::new();
    drain(&mut net.server, SERVER, net.now, &mut answers);
    for mut answer in answers.into_iter().filter(|answer| answer.to == at(STRANGER)) {
        let path = Path { local: None, peer: at(SERVER) };
        other.handle_datagram(net.now, path, &mut answer.bytes);
    }
    // What names the server is lost.
    drain(&mut other, STRANGER, net.now, &mut VecDeque::new());
    other
}

/// The datagrams of a call that begins, as from an address.
fn datagrams_of_call(client: &mut Endpoint, now: Time, from: &str, payload: Vec<u8>) -> Vec<Sent> {
    let options = CallOptions::default();
    let deadline = now + MS;
    client.call(now, Call { target: at(SERVER), payload, deadline, context: 0, options }).unwrap();
    let mut sent = VecDeque::new();
    drain(client, from, now, &mut sent);
    sent.into()
}

/// Packets of enough sessions of client 18 that the keys which were known at an address are not any
/// more.
fn push_out_keys(net: &mut Net, from: &str) {
    for secret in 40..44 {
        let mut other = another_client(net, secret);
        for sent in datagrams_of_call(&mut other, net.now, from, b"other".to_vec()) {
            net.deliver(sent);
        }
    }
}

#[test]
fn a_client_cannot_run_again_what_another_has_sent() {
    let mut net = net(false);
    net.call(b"the first").unwrap();
    let recorded: Vec<Sent> =
        net.log.iter().filter(|sent| sent.from == at(CLIENT)).cloned().collect();
    net.call(b"releases it").unwrap();
    // The other one makes the session known at its own address, by a call of another sequence.
    let mut other = another_client(&mut net, 1);
    let mut calls =
        (0..2).map(|_| datagrams_of_call(&mut other, net.now, STRANGER, b"of client 18".to_vec()));
    let third = calls.nth(1).unwrap();
    assert_eq!(third[0].bytes[8..13], recorded[0].bytes[8..13], "one session");
    third.into_iter().for_each(|sent| net.deliver(sent));
    push_out_keys(&mut net, STRANGER);
    let (runs, refused) = (net.runs, net.server.metrics().seal.forged);
    assert!(runs > 2 && net.clients[2..].iter().all(|&client| client == Some(18)));
    for sent in recorded {
        net.deliver(Sent { from: at(STRANGER), ..sent });
    }
    assert_eq!(net.runs, runs, "{:?}", net.clients);
    assert!(net.server.metrics().seal.forged > refused);
}

#[test]
fn a_client_cannot_cancel_a_call_of_another_from_its_address() {
    let mut net = net(false);
    net.call(b"of a client that knows the server").unwrap();
    let mut other = another_client(&mut net, 1);
    // Its second packet has yet to come.
    let payload = message(1_400);
    net.begin(&payload);
    let mut sent = VecDeque::new();
    drain(&mut net.client, CLIENT, net.now, &mut sent);
    let first = sent[0].clone();
    sent.into_iter().for_each(|sent| net.deliver(sent));
    let same = datagrams_of_call(&mut other, net.now, CLIENT, b"same id".to_vec());
    assert_eq!(same[0].bytes[8..16], first.bytes[8..16], "one id");
    push_out_keys(&mut net, CLIENT);
    other.handle_timeout(net.now + 2 * MS);
    let mut cancel = VecDeque::new();
    drain(&mut other, CLIENT, net.now + 2 * MS, &mut cancel);
    assert!(cancel.iter().any(|sent| sent.bytes[2] >> 4 == MessageType::Cancel as u8));
    cancel.into_iter().for_each(|sent| net.deliver(sent));
    for _ in 0..1_000 {
        net.now += MS / 10;
        net.turn();
    }
    assert!(
        net.ended[1..] == [Ok(payload)],
        "{:?}",
        net.ended.last().map(|end| end.as_ref().err())
    );
    assert_eq!(net.clients.last(), Some(&Some(17)));
}

#[test]
fn a_client_begins_a_session_for_a_server_that_is_younger() {
    let mut net = net(false);
    net.call(b"before").unwrap();
    net.restart_server();
    let refused = Err(Failure::Refused(DropReason::Uncertain));
    assert_eq!(net.call(b"of the old session"), refused);
    assert_eq!(net.call(b"of a new one"), Ok(b"of a new one".to_vec()));
}

#[test]
fn no_call_is_lost_by_a_rotation() {
    let next_ms = START / MS + 20;
    let mut net = Net::new(keys(Cipher::Aes128Gcm, next_ms), true);
    net.turn();
    for count in 0..400 {
        let payload = message(count);
        assert_eq!(net.call(&payload), Ok(payload), "call {count}");
    }
    let epoch = |sent: &Sent| sent.bytes[sent.bytes.len() - 13];
    let of_client = net.log.iter().filter(|sent| sent.from == at(CLIENT));
    let epochs: BTreeSet<u8> = of_client.map(epoch).collect();
    assert_eq!(epochs, BTreeSet::from([7, 8]));
}

#[test]
fn a_server_that_has_lost_its_keys_answers_nobody() {
    let mut net = net(false);
    net.call(b"before").unwrap();
    net.keys.epochs[0].secret = Secret::new([99; 32]);
    net.restart_server();
    assert_eq!(net.call(b"after"), Err(Failure::Deadline));
    assert_eq!(net.runs, 1);
    assert!(net.server.metrics().seal.forged > 0);
}

/// A client whose clock is off by a day, ahead or behind, is refused, and its calls never run.
#[test]
fn clocks_apart_by_a_day_cost_calls_and_run_nothing_twice() {
    let day = 86_400_000 * MS;
    for is_ahead in [true, false] {
        let mut net = net(false);
        net.now += day;
        net.restart_server();
        let mut seal = sealing(&net.keys, Role::Client(17)).unwrap();
        // The client's time 0 was the server's, so that its wall clock tells how far it is ahead.
        seal.clock_ns = if is_ahead { day } else { 0 };
        net.client = Endpoint::new(
            net.now,
            Config { seal: Some(seal), secret: [5; 16], ..Config::default() },
        );
        if !is_ahead {
            let mut seal = sealing(&net.keys, Role::Server).unwrap();
            seal.clock_ns = day;
            let config = Config { secret: [6; 16], seal: Some(seal), ..Config::default() };
            net.server = Endpoint::new(net.now, config);
            net.now += 2 * MS;
        }
        let refused = Err(Failure::Refused(DropReason::Uncertain));
        assert_eq!(net.call(b"request"), refused, "ahead: {is_ahead}");
        assert_eq!(net.runs, 0);
    }
}

#[test]
fn a_client_that_is_a_little_ahead_is_waited_for() {
    let mut net = net(false);
    net.now += 1_000 * MS;
    let mut seal = sealing(&net.keys, Role::Client(17)).unwrap();
    seal.clock_ns = 20 * MS;
    net.client =
        Endpoint::new(net.now, Config { seal: Some(seal), secret: [5; 16], ..Config::default() });
    assert_eq!(net.call(b"request"), Ok(b"request".to_vec()));
    assert!(net.server.metrics().seal.ahead > 0);
}

#[test]
fn open_and_sealed_do_not_mix() {
    let mut net = net(false);
    net.client = Endpoint::new(net.now, Config { secret: [5; 16], ..Config::default() });
    assert_eq!(net.call(b"open"), Err(Failure::Deadline));
    assert_eq!(net.runs, 0);
    assert!(net.server.metrics().seal.unsealed > 0);

    let mut net = self::net(false);
    let v1 = Call {
        target: at(SERVER),
        payload: Vec::new(),
        deadline: net.now + MS,
        context: 0,
        options: CallOptions { v1: true, ..CallOptions::default() },
    };
    assert_eq!(net.client.call(net.now, v1), Err(CallError::NoSealedForm));
}

/// Whatever is sent again, no two packets of a direction have one nonce: those to a server are told
/// apart by the session and what is in the header, those from it by their count.
#[test]
fn no_nonce_is_used_twice() {
    let mut net = net(false);
    net.loss = 7;
    for count in 0..60 {
        let _ = net.call(&message(count * 200));
    }
    let mut seen = BTreeSet::new();
    let mut packets = BTreeSet::new();
    for sent in &net.log {
        if packets.insert(sent.clone()) {
            let (header, trailer) = (&sent.bytes[..48], &sent.bytes[sent.bytes.len() - 16..]);
            let nonce = match sent.from == at(CLIENT) {
                true => [&header[8..16], &header[22..28]].concat(),
                false => trailer.to_vec(),
            };
            assert!(seen.insert((sent.from, nonce)), "{sent:?}");
        }
    }
    assert!(net.server.metrics().resent + net.client.metrics().resent > 10);
    assert_eq!(packets.len(), net.log.len(), "even what is sent again differs");
}

/// Packets of fixed keys, which `conformance/sealed/check.py` computes again.
#[test]
fn packets_are_those_of_the_vectors() {
    let mut text = String::new();
    for cipher in [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305] {
        let mut net = Net::new(keys(cipher, u64::MAX), true);
        net.turn();
        net.call(b"the first").unwrap();
        net.call(&message(1_400)).unwrap();
        text += &vectors(&net.keys, &net.log);
    }
    check_vectors("packets.txt", &text);
}

/// A network that loses, repeats, delays and changes datagrams, a stranger who sends what it has
/// heard from anywhere at any time, a rotation, and a server that starts again: nothing runs twice,
/// nobody is told what is not so, and every call ends.
struct Hostile {
    net: Net,
    draws: crate::policy::Draws,
    /// A server and a router of the group that nobody calls but the stranger.
    others: (Endpoint, Router),
    /// Datagrams by when they arrive.
    under_way: std::collections::BTreeMap<(Time, usize), Sent>,
    count: usize,
}

impl Hostile {
    fn new(seed: u64) -> Self {
        let cipher =
            if seed.is_multiple_of(2) { Cipher::Aes128Gcm } else { Cipher::ChaCha20Poly1305 };
        let net = Net::new(keys(cipher, START / MS + 40), !seed.is_multiple_of(3));
        let draws = crate::policy::Draws::new(seed);
        let others = (server(START, &net.keys, 77), router(START, &net.keys, 78));
        Self { net, draws, others, under_way: Default::default(), count: 0 }
    }

    fn is_one_in(&mut self, many: u32) -> bool {
        self.draws.below(many) == 0
    }

    fn send(&mut self, sent: Sent) {
        if self.is_one_in(20) {
            return;
        }
        let delay = Time::from(self.draws.below(2_000_000));
        self.count += 1;
        self.under_way.insert((self.net.now + delay, self.count), sent.clone());
        if self.is_one_in(20) {
            self.count += 1;
            self.under_way.insert((self.net.now + 3 * delay, self.count), sent);
        }
    }

    /// The stranger sends something that it has heard, changed or not, from where it will.
    fn intrude(&mut self) {
        let heard = self.net.log.len() as u32;
        if heard == 0 {
            return;
        }
        let mut sent = self.net.log[self.draws.below(heard) as usize].clone();
        if self.is_one_in(2) {
            sent.from = at([CLIENT, ROUTER, SERVER, STRANGER][self.draws.below(4) as usize]);
        }
        if self.is_one_in(2) {
            let byte = self.draws.below(sent.bytes.len() as u32) as usize;
            sent.bytes[byte] ^= 1 << self.draws.below(8);
        }
        let path = Path { local: None, peer: sent.from };
        self.others.0.handle_datagram(self.net.now, path, &mut sent.bytes.clone());
        self.others.1.handle_datagram(self.net.now, path, &mut sent.bytes.clone());
        self.net.deliver(sent);
    }

    fn step(&mut self) {
        self.net.now += MS / 10;
        while let Some(first) = self.under_way.first_entry() {
            if first.key().0 > self.net.now {
                break;
            }
            let sent = first.remove();
            self.net.deliver(sent);
        }
        self.intrude();
        let now = self.net.now;
        self.net.client.handle_timeout(now);
        self.net.server.handle_timeout(now);
        if let Some(router) = &mut self.net.router {
            router.handle_timeout(now);
        }
        let mut sent = VecDeque::new();
        self.net.collect(&mut sent);
        for datagram in sent {
            self.net.log.push(datagram.clone());
            self.send(datagram);
        }
        self.net.take_events();
    }
}

fn check_hostile(seed: u64) {
    let mut run = Hostile::new(seed);
    let calls = 80;
    for number in 0..calls {
        let len = 8 + run.draws.below(3_000) as usize;
        let mut payload = message(len);
        payload[..8].copy_from_slice(&(number as u64).to_be_bytes());
        run.net.begin(&payload);
        (0..10).for_each(|_| run.step());
        if number == 60 {
            run.net.restart_server();
        }
    }
    for _ in 0..8_000 {
        run.step();
    }
    assert!(run.others.0.poll_event().is_none(), "seed {seed}: it ran elsewhere too");
    assert_eq!(run.others.1.metrics().forwarded, 0, "seed {seed}");
    assert_eq!(run.others.1.queue_len(), 0, "seed {seed}");
    let Net { ended, runs_of, .. } = &run.net;
    assert_eq!(ended.len(), calls, "seed {seed}: every call ends once");
    assert!(runs_of.values().all(|&runs| runs == 1), "seed {seed}: {runs_of:?}");
    let replied = ended.iter().flatten();
    for reply in replied.clone() {
        let number = u64::from_be_bytes(reply[..8].try_into().unwrap());
        let expected = &message(reply.len())[8..];
        assert!(runs_of.contains_key(&number) && reply[8..] == *expected, "seed {seed}");
    }
    assert!(replied.count() > calls / 2, "seed {seed}: {ended:?}");
}

#[test]
fn a_hostile_network_makes_nothing_run_twice() {
    (0..24).for_each(check_hostile);
}

#[test]
fn a_capture_is_read_with_the_servers_keys() {
    let mut net = net(true);
    net.turn();
    net.now += 10 * MS;
    net.call(b"the first").unwrap();
    net.log.clear();
    let payload = message(3_000);
    net.call(&payload).unwrap();
    let mut reader = Reader::new(net.keys.clone()).unwrap();
    // Some packets come again, and tell the same.
    let mut opened = std::collections::BTreeMap::new();
    for sent in net.log.iter().filter(|sent| sent.bytes[21] == 2) {
        let mut bytes = sent.bytes.clone();
        assert!(reader.open((sent.from, sent.to), &mut bytes), "{sent:?}");
        bytes.truncate(bytes.len() - TRAILER_LEN);
        let packet = tailcut_wire::r2p2::Packet::parse(&bytes).unwrap();
        if packet.is_data() {
            opened.insert((packet.message_type as u8, packet.index), packet.payload.to_vec());
        }
    }
    let messages: Vec<u8> = opened.into_values().flatten().collect();
    assert_eq!(messages, [&payload[..], &payload[..]].concat(), "request and reply");
    assert!(Reader::new(net.keys.for_role(Role::Router).unwrap()).is_none());
}

/// A DROP of a router for a call that is under way.
fn drop_of_router(request: &Sent, net: &Net, payload: &[u8]) -> Sent {
    let header = RequestHeader::ref_from_prefix(&request.bytes).unwrap().0;
    let rpc_id = RpcId(header.rpc_id.get());
    let repr = ReplyRepr::control(MessageType::Drop, header.base.rid.get(), rpc_id);
    let mut bytes = [repr.header().as_bytes(), payload, &[0; TRAILER_LEN]].concat();
    let key = &net.keys.for_role(Role::Client(17)).unwrap().epochs[0];
    let trailer = packet::trailer(0, key.epoch, 1, 0);
    packet::seal_hop(&mut bytes, &trailer, &key.hop);
    Sent { from: request.to, to: request.from, bytes }
}

#[test]
fn a_router_refuses_in_its_own_words_alone() {
    let words = [&Rejection::prefix(7)[..], b"no"].concat();
    let overload = [DropReason::Overload as u8];
    let with_words = [&overload[..], &words[1..]].concat();
    let application = [DropReason::Application as u8];
    let too_long = [0; 300];
    for payload in [&words[..], &with_words, &application, &[], &too_long] {
        let mut net = net(false);
        net.begin(b"request");
        let mut sent = VecDeque::new();
        drain(&mut net.client, CLIENT, net.now, &mut sent);
        net.deliver(drop_of_router(&sent[0], &net, payload));
        assert_eq!(net.ended, [], "{payload:?}");
        let seal = net.client.metrics().seal;
        let is_long = payload.len() > 200;
        assert_eq!((seal.unsealed, seal.forged), (is_long.into(), (!is_long).into()));
        net.deliver(drop_of_router(&sent[0], &net, &overload));
        assert_eq!(net.ended, [Err(Failure::Refused(DropReason::Overload))]);
    }
}

#[test]
fn a_client_derives_no_key_for_a_session_of_another() {
    let mut net = net(false);
    net.call(b"request").unwrap();
    let reply = net.log.iter().find(|sent| sent.to == at(CLIENT)).unwrap();
    let mut forged = reply.clone();
    let instance = forged.bytes.len() - 8;
    forged.bytes[instance] ^= 1;
    net.deliver(forged.clone());
    assert_eq!(net.client.metrics().seal.forged, 1, "of its own");
    forged.bytes[8] ^= 1;
    net.deliver(forged);
    let seal = net.client.metrics().seal;
    assert_eq!((seal.forged, seal.unknown_keys), (1, 1));
}

/// A derived Debug would print a key as numbers.
#[test]
fn no_key_is_printed() {
    let keys = keys(Cipher::Aes128Gcm, u64::MAX);
    for role in [Role::Server, Role::Router, Role::Client(17)] {
        let own = keys.for_role(role).unwrap();
        let sealing = Sealing::new(Arc::new(own.clone()), 0);
        let config = Config { seal: Some(sealing.clone()), ..Config::default() };
        let printed = format!("{own:?} {sealing:?} {config:?}");
        assert!(printed.contains("HopKey"));
        for key in &own.epochs {
            let hops = key.hop.bytes().windows(4).filter(|_| matches!(role, Role::Client(_)));
            for piece in key.secret.bytes().windows(4).chain(hops) {
                let listed = format!("{piece:?}");
                let listed = listed.trim_matches(['[', ']']);
                let hex: String = piece.iter().map(|byte| format!("{byte:02x}")).collect();
                assert!(!printed.contains(listed) && !printed.contains(&hex), "{printed}");
            }
        }
    }
}
