//! Sealed byte streams, over a network in memory.

use std::collections::BTreeMap;

use tailcut_wire::homa::sealed::{BACK_AT, MARK_AT, NAMED_AT, header, is_marked};
use tailcut_wire::homa::{CommonHeader, PacketType, Ports};

use super::*;
use crate::homa::{Config, Endpoint};
use crate::stream::{self, Fault, Holdings, StreamId, Streams};

const OTHER: &str = "10.0.0.4:8000";
const NEIGHBOUR: &str = "10.0.0.1:1001";

/// Hosts with streams, by their addresses.
struct Hosts {
    now: Time,
    keys: Keys,
    by_address: BTreeMap<&'static str, Streams<Endpoint>>,
    /// All that was sent.
    log: Vec<Sent>,
    /// Every so many datagrams one is lost, one goes twice, and one is overtaken by the next; 0 for
    /// none.
    loss: usize,
    /// True of what never arrives.
    is_blocked: fn(&Sent) -> bool,
}

/// Configuration that seals as for streams.
fn sealing_of(keys: &Keys, role: Role) -> Option<Sealing> {
    sealing(keys, role).map(|seal| Sealing { calls_back: true, ..seal })
}

fn host_of(now: Time, seal: Option<Sealing>, secret: u8) -> Streams<Endpoint> {
    let mut config = Config { seal, secret: [secret; 16], ..Config::default() };
    config.serving.is_enabled = true;
    let streams = stream::Config { secret: [secret; 16], ..stream::Config::default() };
    Streams::new(Endpoint::new(now, config), streams)
}

impl Hosts {
    /// A listener, and a client.
    fn new(keys: Keys) -> Self {
        let (by_address, log) = (BTreeMap::new(), Vec::new());
        let mut hosts = Self { now: START, keys, by_address, log, loss: 0, is_blocked: |_| false };
        hosts.start(SERVER, Role::Server, 2);
        hosts.now += 2 * MS;
        hosts.start(CLIENT, Role::Client(17), 1);
        hosts
    }

    /// Another process starts at an address.
    fn start(&mut self, address: &'static str, role: Role, secret: u8) {
        let seal = sealing_of(&self.keys, role);
        self.by_address.insert(address, host_of(self.now, seal, secret));
    }

    fn restart(&mut self, address: &'static str, role: Role) {
        self.now += 2 * MS;
        self.start(address, role, 3);
        self.now += 2 * MS;
    }

    fn at(&mut self, address: &str) -> &mut Streams<Endpoint> {
        self.by_address.get_mut(address).expect("there is such a host")
    }

    fn seal_at(&mut self, address: &str) -> SealMetrics {
        self.at(address).rpc().metrics().seal
    }

    fn connect(&mut self, from: &str) -> StreamId {
        let now = self.now;
        self.at(from).connect(now, at(SERVER)).expect("there is room")
    }

    /// A stream that both ends have.
    fn open(&mut self, from: &str) -> (StreamId, StreamId) {
        let id = self.connect(from);
        let by = self.now + 1_000 * MS;
        while self.now < by {
            self.step();
            if let Some((accepted, peer)) = self.at(SERVER).accept() {
                assert_eq!(peer, at(from));
                return (id, accepted);
            }
        }
        panic!("{:?}", self.fault(from, id));
    }

    fn fault(&mut self, address: &str, id: StreamId) -> Option<Fault> {
        self.at(address).status(id).and_then(|status| status.fault)
    }

    /// Writes bytes at one end, and reads them at the other one.
    fn carry(&mut self, from: (&str, StreamId), to: (&str, StreamId), bytes: &[u8]) {
        let (mut left, mut read, mut buffer) = (bytes, Vec::new(), vec![0; 1 << 16]);
        let by = self.now + 20_000 * MS;
        while read.len() < bytes.len() {
            let taken = self.at(from.0).write(from.1, left).expect("it is open");
            left = &left[taken..];
            self.step();
            while let Ok(Some(len @ 1..)) = self.at(to.0).read(to.1, &mut buffer) {
                read.extend_from_slice(&buffer[..len]);
            }
            assert!(self.now < by, "{} of {} B", read.len(), bytes.len());
        }
        assert!(read == bytes, "{} B", bytes.len());
    }

    /// Ends a stream from both ends.
    fn close(&mut self, (id, accepted): (StreamId, StreamId), client: &str) {
        let now = self.now;
        self.at(client).close(now, id);
        self.at(SERVER).close(now, accepted);
        self.pass(40);
    }

    fn step(&mut self) {
        self.turn();
        self.now += MS / 10;
    }

    /// Time passes, in which hosts say what they have to say.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.turn();
            self.now += MS;
        }
    }

    /// Time passes, in which hosts have little to say.
    fn wait(&mut self, ms: u64) {
        let until = self.now + ms * MS;
        while self.now < until {
            self.turn();
            let due = self.by_address.values().filter_map(Node::poll_timeout).min();
            self.now = due.unwrap_or(until).max(self.now + MS / 10).min(until);
        }
    }

    /// Carries everything that is under way.
    fn turn(&mut self) {
        loop {
            let mut under_way = VecDeque::new();
            for (address, node) in &mut self.by_address {
                drain(node, address, self.now, &mut under_way);
            }
            if under_way.is_empty() {
                break;
            }
            let mut held = None;
            for sent in under_way {
                self.log.push(sent.clone());
                let (place, loss) = (self.log.len(), self.loss);
                let is_nth = |shift: usize| loss > 0 && (place + shift).is_multiple_of(loss);
                if is_nth(0) || (self.is_blocked)(&sent) {
                    continue;
                }
                if is_nth(1) {
                    self.deliver(sent.clone());
                }
                match held.take() {
                    None if is_nth(2) => held = Some(sent),
                    before => {
                        self.deliver(sent);
                        before.into_iter().for_each(|sent| self.deliver(sent));
                    }
                }
            }
            held.into_iter().for_each(|sent| self.deliver(sent));
        }
        let now = self.now;
        self.by_address.values_mut().for_each(|node| node.handle_timeout(now));
    }

    fn deliver(&mut self, mut sent: Sent) {
        let now = self.now;
        if let Some(node) = self.by_address.get_mut(sent.to.to_string().as_str()) {
            node.handle_datagram(now, Path { local: None, peer: sent.from }, &mut sent.bytes);
        }
    }

    /// Counters and holdings of every host, but for the counters of its seal.
    fn state(&self) -> Vec<String> {
        let of = |node: &Streams<Endpoint>| {
            let mut metrics = *node.rpc().metrics();
            (metrics.seal, metrics.common.datagrams_in) = Default::default();
            let held = (node.holdings(), node.rpc().holdings());
            format!("{metrics:?} {:?} {held:?} {:?}", node.metrics(), node.poll_timeout())
        };
        self.by_address.values().map(of).collect()
    }
}

fn hosts() -> Hosts {
    Hosts::new(keys(Cipher::Aes128Gcm, u64::MAX))
}

fn is_back(sent: &Sent) -> bool {
    sent.bytes[BACK_AT] == 1
}

fn epoch_of(sent: &Sent) -> u8 {
    sent.bytes[sent.bytes.len() - 13]
}

fn kind_of(sent: &Sent) -> PacketType {
    header(&sent.bytes).expect("a packet").1
}

/// Packets by which the listener calls.
fn calls_of_listener(hosts: &Hosts) -> impl Iterator<Item = &Sent> {
    let is_one = |sent: &&Sent| is_back(sent) && kind_of(sent) == PacketType::Data;
    hosts.log.iter().filter(|sent| sent.from == at(SERVER)).filter(is_one)
}

fn check_streams(mut hosts: Hosts) {
    let (id, accepted) = hosts.open(CLIENT);
    assert_eq!(hosts.at(SERVER).identity(accepted), Some(17));
    assert_eq!(hosts.at(CLIENT).identity(id), None);
    for len in [1, 100, 70_000, 1_000_000] {
        let payload = message(len);
        hosts.carry((CLIENT, id), (SERVER, accepted), &payload);
        hosts.carry((SERVER, accepted), (CLIENT, id), &payload);
        let is_clear = |sent: &Sent| len >= 32 && holds(&sent.bytes, &payload[..32]);
        assert!(!hosts.log.iter().any(is_clear), "a payload of {len} B went in the clear");
    }
    hosts.close((id, accepted), CLIENT);
    assert!(hosts.log.iter().all(|sent| is_marked(&sent.bytes)));
    assert!(hosts.log.iter().all(|sent| sent.bytes.len() <= 1_452), "sealed packets fit the MTU");
    for (from, is_answer) in [(CLIENT, true), (SERVER, false)] {
        let of_calls_back = hosts.log.iter().filter(|sent| sent.from == at(from) && is_back(sent));
        assert!(of_calls_back.count() > 20, "{from}: {is_answer}");
    }
    for address in [CLIENT, SERVER] {
        assert_eq!(dropped(hosts.seal_at(address)), SealMetrics::default(), "{address}");
        assert_eq!(hosts.at(address).holdings(), Holdings::default(), "{address}");
        assert_eq!(hosts.at(address).rpc().holdings(), Default::default(), "{address}");
    }
}

#[test]
fn streams_carry_both_ways_and_nothing_goes_in_the_clear() {
    check_streams(hosts());
    check_streams(Hosts::new(keys(Cipher::ChaCha20Poly1305, u64::MAX)));
}

#[test]
fn eight_mebibytes_go_each_way_at_once_over_many_windows() {
    let mut hosts = hosts();
    let (id, accepted) = hosts.open(CLIENT);
    let payload = message(8 << 20);
    hosts.carry((SERVER, accepted), (CLIENT, id), &payload);
    hosts.carry((CLIENT, id), (SERVER, accepted), &payload);
    assert_eq!(dropped(hosts.seal_at(CLIENT)), SealMetrics::default());
}

/// A packet that comes twice has been taken once: the second is counted, and nothing else.
#[test]
fn streams_carry_where_datagrams_are_lost_doubled_and_overtaken() {
    for loss in [5, 7, 11, 23] {
        let mut hosts = hosts();
        hosts.loss = loss;
        let (id, accepted) = hosts.open(CLIENT);
        for len in [10, 60_000, 10, 300_000] {
            hosts.carry((CLIENT, id), (SERVER, accepted), &message(len));
            hosts.carry((SERVER, accepted), (CLIENT, id), &message(len));
        }
        assert!(hosts.seal_at(CLIENT).replayed > 0 && hosts.seal_at(SERVER).replayed > 0);
    }
}

/// Whoever answers a call back asks whether the answer has come, and is told so, by a packet for
/// its keys.
#[test]
fn an_answer_to_a_call_back_is_acknowledged_when_it_is_asked_for() {
    let mut hosts = hosts();
    let (id, accepted) = hosts.open(CLIENT);
    hosts.wait(1_000);
    hosts.is_blocked = |sent| sent.from == at(SERVER) && kind_of(sent) == PacketType::Ack;
    hosts.carry((SERVER, accepted), (CLIENT, id), b"hello");
    let requests = |hosts: &mut Hosts| hosts.at(CLIENT).rpc().holdings().requests;
    let asks = |sent: &Sent| {
        is_back(sent) && sent.from == at(CLIENT) && kind_of(sent) == PacketType::NeedAck
    };
    let by = hosts.now + 2_000 * MS;
    while !hosts.log.iter().any(asks) && hosts.now < by {
        hosts.step();
    }
    assert_eq!(requests(&mut hosts), 1, "it is kept until then");
    hosts.is_blocked = |_| false;
    hosts.wait(100);
    assert_eq!((requests(&mut hosts), hosts.seal_at(SERVER).unsealable), (0, 0));
}

/// Each of them, changed in one bit of each byte, is nothing to anybody.
#[test]
fn nothing_forged_is_acted_on() {
    let mut hosts = hosts();
    let (id, accepted) = hosts.open(CLIENT);
    hosts.carry((SERVER, accepted), (CLIENT, id), &message(30_000));
    hosts.is_blocked = |_| true;
    for (from, id) in [(CLIENT, id), (SERVER, accepted)] {
        hosts.at(from).write(id, b"under way").unwrap();
    }
    hosts.turn();
    let genuine = std::mem::take(&mut hosts.log);
    let before = hosts.state();
    for sent in &genuine {
        sent.changed().for_each(|forged| hosts.deliver(forged));
        // An answer is no call, and a call no answer.
        for (place, bits) in [(20, 0), (27, 1), (NAMED_AT, 1), (MARK_AT, 3)] {
            let mut forged = sent.clone();
            forged.bytes[BACK_AT] ^= 1;
            forged.bytes[place] ^= bits;
            hosts.deliver(forged.clone());
            // Nor is it what its sender might have been sent.
            hosts.deliver(Sent { from: sent.to, to: sent.from, bytes: forged.bytes });
        }
    }
    assert_eq!(hosts.state(), before);
    for address in [CLIENT, SERVER] {
        let SealMetrics { forged, unsealed, .. } = hosts.seal_at(address);
        assert!(forged > 100 && unsealed > 10, "{forged} {unsealed}");
    }
}

/// Datagrams that have been read before do nothing, where they were read and elsewhere, now and
/// after restarts.
#[test]
fn nothing_that_was_recorded_is_acted_on() {
    let mut hosts = hosts();
    hosts.start(OTHER, Role::Server, 7);
    hosts.now += 2 * MS;
    hosts.start(NEIGHBOUR, Role::Client(17), 8);
    let ids = hosts.open(CLIENT);
    let others = hosts.open(NEIGHBOUR);
    for (from, (id, accepted)) in [(CLIENT, ids), (NEIGHBOUR, others)] {
        hosts.carry((from, id), (SERVER, accepted), &message(70_000));
        hosts.carry((SERVER, accepted), (from, id), &message(70_000));
    }
    hosts.pass(30);
    let recorded: Vec<Sent> = std::mem::take(&mut hosts.log);
    assert!(recorded.iter().filter(|sent| is_back(sent)).count() > 100);
    let before = hosts.state();
    for sent in &recorded {
        hosts.deliver(sent.clone());
    }
    assert_eq!(hosts.state(), before, "what has been read where it was sent");
    for restarts in 0..3 {
        let counted = |hosts: &mut Hosts, address| {
            let metrics = *hosts.at(address).metrics();
            (metrics.messages_in, metrics.bytes_in, metrics.taken, metrics.failed)
        };
        let all = [CLIENT, SERVER, OTHER, NEIGHBOUR];
        let before = all.map(|address| counted(&mut hosts, address));
        for sent in &recorded {
            for to in all {
                for from in [CLIENT, SERVER, STRANGER] {
                    hosts.deliver(Sent { from: at(from), to: at(to), ..sent.clone() });
                }
            }
        }
        hosts.turn();
        let after = all.map(|address| counted(&mut hosts, address));
        assert_eq!(after, before, "after {restarts} restarts");
        match restarts {
            0 => hosts.restart(SERVER, Role::Server),
            _ => hosts.restart(CLIENT, Role::Client(17)),
        }
    }
}

/// A stranger is first with what the listener sends, from elsewhere: it is not the listener's from
/// there.
#[test]
fn a_call_back_comes_from_whom_the_session_is_with() {
    let mut hosts = hosts();
    let (id, accepted) = hosts.open(CLIENT);
    hosts.pass(2);
    hosts.is_blocked = |sent| sent.from == at(SERVER);
    hosts.at(SERVER).write(accepted, b"hello").unwrap();
    hosts.turn();
    let call = hosts.log.last().cloned().unwrap();
    assert!(is_back(&call) && call.to == at(CLIENT));
    let before = hosts.state();
    hosts.deliver(Sent { from: at(STRANGER), ..call.clone() });
    assert_eq!((hosts.state(), hosts.seal_at(CLIENT).misdirected), (before, 1));
    hosts.is_blocked = |_| true;
    hosts.deliver(call);
    let mut buffer = [0; 10];
    assert_eq!(hosts.at(CLIENT).read(id, &mut buffer), Ok(Some(5)));
    // Nor is the answer the client's from there.
    hosts.turn();
    let answers = hosts.log.iter().rev();
    let mut answers = answers.filter(|sent| sent.from == at(CLIENT) && is_back(sent));
    let answer = answers.find(|sent| kind_of(sent) == PacketType::Data).cloned().unwrap();
    let (before, replayed) = (hosts.state(), hosts.seal_at(SERVER).replayed);
    hosts.deliver(Sent { from: at(STRANGER), ..answer.clone() });
    assert_eq!((hosts.state(), hosts.seal_at(SERVER).replayed), (before, replayed + 1));
    assert_eq!(hosts.at(SERVER).holdings().messages, 1);
    hosts.deliver(answer);
    assert_eq!(hosts.at(SERVER).holdings().messages, 0, "it is answered");
}

/// Another client at the same address, which knows the numbers of a stream, is none of its ends;
/// and what is said of the stream is not for it.
#[test]
fn a_stream_is_that_of_the_keys_that_have_opened_it() {
    let mut hosts = hosts();
    let (id, accepted) = hosts.open(CLIENT);
    hosts.carry((CLIENT, id), (SERVER, accepted), b"of 17");
    let is_data = |sent: &&Sent| {
        !is_back(sent) && sent.from == at(CLIENT) && kind_of(sent) == PacketType::Data
    };
    let mut genuine = hosts.log.iter().rev().find(is_data).cloned().unwrap();
    let mut reader = Reader::new(hosts.keys.clone()).unwrap();
    for sent in hosts.log.clone() {
        reader.open_homa((sent.from, sent.to), &mut sent.bytes.clone());
    }
    assert!(reader.open_homa((genuine.from, genuine.to), &mut genuine.bytes));
    let mut payload = genuine.bytes[56..genuine.bytes.len() - TRAILER_LEN].to_vec();
    payload.truncate(40 + 5);
    // The next five bytes of the stream.
    payload[31] = 5;
    let seal = sealing_of(&hosts.keys, Role::Client(18));
    let mut other = host_of(hosts.now, seal, 9);
    std::mem::swap(hosts.at(CLIENT), &mut other);
    let (target, deadline) = (at(SERVER), hosts.now + 500 * MS);
    let options = CallOptions { idempotent: true, ..CallOptions::default() };
    let call = Call { target, payload, deadline, context: 0, options };
    let mut thief = Endpoint::new(
        hosts.now,
        Config { seal: sealing_of(&hosts.keys, Role::Client(18)), ..Config::default() },
    );
    thief.call(hosts.now, call).unwrap();
    let gone = hosts.at(SERVER).metrics().gone;
    let answer = answered(&mut hosts, &mut thief);
    assert_eq!(answer[4], 2, "there is no such stream of its keys");
    assert_eq!(hosts.at(SERVER).metrics().gone, gone + 1);
    assert_eq!(hosts.at(SERVER).read(accepted, &mut [0; 10]), Ok(None));
    std::mem::swap(hosts.at(CLIENT), &mut other);
    hosts.carry((SERVER, accepted), (CLIENT, id), b"for 17");
    hosts.carry((CLIENT, id), (SERVER, accepted), b"goes on");
}

/// The answer to the only call of an endpoint at the client's address.
fn answered(hosts: &mut Hosts, endpoint: &mut Endpoint) -> Vec<u8> {
    for _ in 0..100 {
        let mut under_way = VecDeque::new();
        drain(endpoint, CLIENT, hosts.now, &mut under_way);
        under_way.into_iter().for_each(|sent| hosts.deliver(sent));
        let mut back = VecDeque::new();
        let now = hosts.now;
        drain(hosts.at(SERVER), SERVER, now, &mut back);
        for mut sent in back {
            endpoint.handle_datagram(now, at(SERVER).into(), &mut sent.bytes);
        }
        if let Some(Event::Replied { payload, .. }) = endpoint.poll_event() {
            return payload;
        }
        hosts.now += MS / 10;
        endpoint.handle_timeout(hosts.now);
    }
    panic!("it is not answered");
}

/// Its streams of before are nothing to whoever is there now, and end; the next one is taken.
#[test]
fn a_listener_that_has_started_again_ends_streams_and_takes_others() {
    let mut hosts = hosts();
    let (id, accepted) = hosts.open(CLIENT);
    hosts.carry((SERVER, accepted), (CLIENT, id), b"before");
    hosts.restart(SERVER, Role::Server);
    hosts.at(CLIENT).write(id, b"between").unwrap();
    hosts.wait(1_000);
    let fault = hosts.fault(CLIENT, id);
    assert_eq!(fault, Some(Fault::Lost(Failure::Refused(DropReason::Uncertain))));
    let (id, accepted) = hosts.open(CLIENT);
    hosts.carry((SERVER, accepted), (CLIENT, id), b"after");
}

/// Nobody there knows the session any more, and so nobody answers: the listener gives up by its
/// silence.
#[test]
fn a_client_that_has_started_again_is_silent_to_streams_and_opens_others() {
    let mut hosts = hosts();
    let (id, accepted) = hosts.open(CLIENT);
    hosts.carry((SERVER, accepted), (CLIENT, id), b"before");
    hosts.restart(CLIENT, Role::Client(17));
    hosts.at(SERVER).write(accepted, b"between").unwrap();
    let others = hosts.open(CLIENT);
    hosts.carry((SERVER, others.1), (CLIENT, others.0), b"after");
    hosts.wait(31_000);
    assert!(matches!(hosts.fault(SERVER, accepted), Some(Fault::Lost(_))));
    hosts.carry((SERVER, others.1), (CLIENT, others.0), b"and later");
    assert!(hosts.seal_at(CLIENT).unknown_keys > 0);
}

/// Whoever has no keys, others, or keys of another group, opens nothing, and is not left waiting.
#[test]
fn ends_without_the_same_keys_do_not_open_a_stream() {
    let keys = keys(Cipher::Aes128Gcm, u64::MAX);
    let others = Keys { group: "other".to_owned(), ..keys.clone() };
    let mut changed = keys.clone();
    changed.epochs[0].secret = Secret::new([1; 32]);
    let client = |keys| sealing_of(keys, Role::Client(17));
    let lost = Fault::Lost(Failure::Deadline);
    let server = sealing_of(&keys, Role::Server);
    for (seal, listener, expected) in [
        (client(&others), server.clone(), Fault::NoKeys),
        (client(&changed), server.clone(), Fault::NoKeys),
        (client(&keys), None, Fault::NoKeys),
        (None, server, lost),
    ] {
        let mut hosts = Hosts::new(keys.clone());
        hosts.by_address.insert(SERVER, host_of(START, listener, 2));
        hosts.by_address.insert(CLIENT, host_of(hosts.now, seal, 1));
        let id = hosts.connect(CLIENT);
        hosts.wait(5_100);
        assert_eq!(hosts.fault(CLIENT, id), Some(expected));
        assert_eq!(hosts.at(SERVER).accept(), None);
    }
}

/// The listener does not have the current key: a stream opens under the one before, or ends at once
/// where that is not there either.
#[test]
fn a_stream_opens_under_the_key_that_its_listener_has() {
    use super::resets::group;
    for (epochs, is_there) in [(&[7][..], true), (&[3], false)] {
        let mut hosts = Hosts::new(group(&[7, 8]));
        let listener = sealing_of(&group(epochs), Role::Server);
        hosts.by_address.insert(SERVER, host_of(START, listener, 2));
        let id = hosts.connect(CLIENT);
        hosts.wait(100);
        assert_eq!(hosts.fault(CLIENT, id), (!is_there).then_some(Fault::NoKeys));
        assert_eq!(hosts.at(SERVER).accept().is_some(), is_there);
    }
}

/// A session that began with the listener may be older than it: the client asks again by another
/// one.
#[test]
fn a_stream_is_opened_where_the_listener_has_just_started() {
    let mut hosts = hosts();
    hosts.start(SERVER, Role::Server, 5);
    hosts.start(CLIENT, Role::Client(17), 6);
    let (id, accepted) = hosts.open(CLIENT);
    assert!(hosts.now < START + 20 * MS, "it has not waited for long");
    assert!(hosts.seal_at(SERVER).stale_sessions > 0);
    hosts.carry((SERVER, accepted), (CLIENT, id), b"hello");
}

/// Also where only the listener has something to say.
#[test]
fn a_stream_goes_on_under_the_keys_that_are_current() {
    for is_silent in [false, true] {
        let mut hosts = Hosts::new(keys(Cipher::Aes128Gcm, START / MS + 40_000));
        let (id, accepted) = hosts.open(CLIENT);
        for _ in 0..30 {
            hosts.carry((SERVER, accepted), (CLIENT, id), &message(3_000));
            if !is_silent {
                hosts.carry((CLIENT, id), (SERVER, accepted), b"more");
            }
            hosts.wait(3_000);
        }
        let epochs: Vec<u8> = calls_of_listener(&hosts).map(epoch_of).collect();
        assert_eq!((epochs.first(), epochs.last()), (Some(&7), Some(&8)));
        assert!(epochs.is_sorted());
        assert_eq!(dropped(hosts.seal_at(CLIENT)), SealMetrics::default());
        assert_eq!(dropped(hosts.seal_at(SERVER)), SealMetrics::default());
        hosts.wait(600_000);
        hosts.carry((SERVER, accepted), (CLIENT, id), b"after the session has ended");
    }
}

/// Files of keys follow each other, each of which has no more than the last ones.
#[test]
fn a_stream_outlives_every_key_that_it_has_begun_under() {
    let epoch = |at: u64| EpochKey {
        epoch: at as u8,
        from_ms: START / MS + at * 60_000,
        secret: Secret::new([at as u8; 32]),
        hop: HopKey::default(),
    };
    let file = |at: u64| Keys {
        epochs: (at.saturating_sub(1)..=at + 1).map(epoch).collect(),
        ..keys(Cipher::Aes128Gcm, u64::MAX)
    };
    let mut hosts = Hosts::new(file(0));
    let (id, accepted) = hosts.open(CLIENT);
    for at in 1..8 {
        hosts.wait(50_000);
        let now = hosts.now;
        let newer = file(at);
        hosts.at(SERVER).update_keys(now, &newer).unwrap();
        let of_client = newer.for_role(Role::Client(17)).unwrap();
        hosts.at(CLIENT).update_keys(now, &of_client).unwrap();
        hosts.wait(10_000);
        hosts.carry((SERVER, accepted), (CLIENT, id), &message(100_000));
    }
    let epochs: BTreeSet<u8> = calls_of_listener(&hosts).map(epoch_of).collect();
    assert!(epochs.len() >= 6, "{epochs:?}");
    assert_eq!(hosts.seal_at(SERVER).unsealable, 0);
}

/// A nonce is of one packet, under each key, whoever has begun the RPC.
#[test]
fn no_nonce_is_used_twice_under_a_key() {
    let mut hosts = hosts();
    hosts.start(NEIGHBOUR, Role::Client(17), 8);
    hosts.loss = 5;
    let ids = hosts.open(CLIENT);
    let others = hosts.open(NEIGHBOUR);
    for (from, (id, accepted)) in [(CLIENT, ids), (NEIGHBOUR, others)] {
        hosts.carry((from, id), (SERVER, accepted), &message(60_000));
        hosts.carry((SERVER, accepted), (from, id), &message(60_000));
    }
    let (mut seen, mut calls_back) = (BTreeSet::new(), 0);
    for sent in &hosts.log {
        let trailer = &sent.bytes[sent.bytes.len() - 16..];
        // The session's, or the instance's.
        let key = if sent.from == at(SERVER) { vec![] } else { sent.bytes[20..25].to_vec() };
        assert!(seen.insert((key, trailer.to_vec())), "{sent:?}");
        calls_back += usize::from(is_back(sent));
    }
    assert!(calls_back > 100);
}

/// Nobody is called back where calls go one way alone.
#[test]
fn who_takes_no_calls_back_takes_none() {
    let mut hosts = hosts();
    let (id, accepted) = hosts.open(CLIENT);
    hosts.carry((SERVER, accepted), (CLIENT, id), &message(50_000));
    let seal = sealing(&hosts.keys, Role::Client(17));
    let mut client = Endpoint::new(hosts.now, Config { seal, ..Config::default() });
    let seal = sealing(&hosts.keys, Role::Server);
    let mut server = Endpoint::new(hosts.now, Config { seal, ..Config::default() });
    let recorded: Vec<Sent> = hosts.log.iter().filter(|sent| is_back(sent)).cloned().collect();
    for Sent { from, to, mut bytes } in recorded {
        let node = if to == at(CLIENT) { &mut client } else { &mut server };
        node.handle_datagram(hosts.now, from.into(), &mut bytes);
    }
    for node in [&client, &server] {
        let seal = node.metrics().seal;
        assert_eq!(SealMetrics { unsealed: 0, ..seal }, SealMetrics::default());
        assert!(seal.unsealed > 1);
    }
}

/// Servers' keys call nobody who has not called.
#[test]
fn servers_keys_open_no_stream() {
    let mut hosts = hosts();
    let now = hosts.now;
    let opened = hosts.at(SERVER).connect(now, at(CLIENT));
    assert_eq!(opened, Err(Fault::NotSent(CallError::NoSession)));
    assert!(hosts.at(SERVER).is_empty());
}

#[test]
fn a_policy_says_who_opens_streams() {
    for (rules, expected) in [("allow 17 *", None), ("allow 18 *", Some(Fault::Denied))] {
        let mut hosts = hosts();
        let access = Arc::new(format!("tailcut-access 1\n{rules}").parse().unwrap());
        let seal = sealing_of(&hosts.keys, Role::Server);
        let seal = seal.map(|it| Sealing { access: Some(access), ..it });
        hosts.by_address.insert(SERVER, host_of(hosts.now, seal, 5));
        hosts.now += 2 * MS;
        let id = hosts.connect(CLIENT);
        hosts.wait(100);
        assert_eq!(hosts.fault(CLIENT, id), expected, "{rules}");
        assert_eq!(hosts.at(SERVER).accept().is_some(), expected.is_none());
        assert_eq!(hosts.at(SERVER).denials().0, u64::from(expected.is_some()));
    }
}

/// A server's calls in a session have their own numbers, as many as an id has room for, and are of
/// clients that may call; an eighth of them make the client begin another session.
#[test]
fn a_session_has_room_for_so_many_calls_of_its_server() {
    let keys = keys(Cipher::Aes128Gcm, u64::MAX);
    let [mut server, mut client] = [Role::Server, Role::Client(17)].map(|role| {
        let now = if role == Role::Server { START } else { START + 2 * MS };
        let access = (role == Role::Server).then(|| rules(17));
        let sealing = Sealing { access, ..sealing_of(&keys, role).unwrap() };
        EndpointSeal::of_homa(now, &sealing, &[1; 16], 10)
    });
    let now = START + 3 * MS;
    let (session, to, from) = (5, at(SERVER), at(CLIENT));
    client.note_session(now, session);
    let packet = |kind, id: u64, addressee: u64| {
        let common = CommonHeader::new(kind, Ports { source: 1, destination: 2 }, id);
        let mut bytes = common.as_bytes().to_vec();
        bytes.resize(bytes.len() + TRAILER_LEN - 8, 0);
        bytes.extend(addressee.to_be_bytes());
        bytes
    };
    let cause = |seal: &EndpointSeal| dropped(seal.metrics());
    let mut question = resend(session << 24);
    assert!(client.seal(now, to, &mut question));
    assert!(server.open(now, from, &mut question).is_some());
    let mut answer = packet(PacketType::RpcUnknown, session << 24 | 1, server.addressee());
    assert!(server.seal(now, from, &mut answer));
    assert!(client.open(now, to, &mut answer).is_some());
    let caller = crate::rpc::Caller { client: 17, session, began_ms: 0 };
    assert_eq!(server.call_back(caller, 3), None, "it has not been named yet");
    let mut named = packet(PacketType::Busy, session << 24, 0);
    assert!(client.seal(now, to, &mut named));
    let mut answer = packet(PacketType::Busy, session << 24 | 1, 0);
    assert!(client.seal(now, to, &mut answer));
    assert_eq!(server.open(now, from, &mut answer), None, "no answer begins a session");
    assert_eq!(server.call_back(caller, 3), None);
    assert!(server.open(now, from, &mut named).is_some());
    let numbers: Vec<_> = (0..4).map(|_| server.call_back(caller, 3)).collect();
    let sender = ClientEpoch::new(17, 7);
    assert_eq!(numbers, [Some((sender, 0)), Some((sender, 1)), Some((sender, 2)), None]);
    server.update_access(&rules(18));
    assert_eq!(server.call_back(caller, 4), None, "it may call nothing any more");
    assert_eq!(server.caller(17, session).map(|caller| caller.client), Some(17));
    assert_eq!(server.caller(18, session), None);
    for (sequence, is_over) in [(0, false), ((1 << 20) - 2, false), ((1 << 20) - 1, true)] {
        let id = session << 24 | sequence << 1;
        let mut call = packet(PacketType::Busy, id, sender.addressee());
        assert!(server.seal(now, from, &mut call));
        assert!(client.open(now, to, &mut call).is_some(), "{:?}", cause(&client));
        assert_eq!(client.is_session_over(now, (session, to)), is_over, "{sequence}");
    }
}

/// A policy that lets one client call.
fn rules(client: u32) -> Arc<Access> {
    Arc::new(format!("tailcut-access 1\nallow {client} *").parse().unwrap())
}

/// RESEND with room for a trailer.
fn resend(id: u64) -> Vec<u8> {
    let common = CommonHeader::new(PacketType::Resend, Ports { source: 1, destination: 2 }, id);
    let mut bytes = common.as_bytes().to_vec();
    bytes.resize(bytes.len() + 9 + TRAILER_LEN, 0);
    bytes
}

/// Packets of fixed keys, which `conformance/sealed/check.py` computes again.
#[test]
fn packets_are_those_of_the_vectors() {
    let mut text = String::new();
    for cipher in [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305] {
        let mut hosts = Hosts::new(keys(cipher, u64::MAX));
        let (id, accepted) = hosts.open(CLIENT);
        hosts.loss = 4;
        hosts.carry((SERVER, accepted), (CLIENT, id), &message(3_000));
        hosts.pass(10);
        text += &vectors(&hosts.keys, &hosts.log);
    }
    check_vectors("streams.txt", &text);
}

/// With the servers' keys, as `dissect` does.
#[test]
fn a_capture_is_read_in_both_directions_of_both_kinds_of_calls() {
    let mut hosts = hosts();
    let (id, accepted) = hosts.open(CLIENT);
    hosts.carry((SERVER, accepted), (CLIENT, id), &message(5_000));
    hosts.carry((CLIENT, id), (SERVER, accepted), &message(5_000));
    let mut reader = Reader::new(hosts.keys.clone()).unwrap();
    for sent in &mut hosts.log {
        assert!(reader.open_homa((sent.from, sent.to), &mut sent.bytes), "{sent:?}");
    }
    let is_read = |from| {
        hosts.log.iter().any(|sent| sent.from == at(from) && holds(&sent.bytes, &message(1_000)))
    };
    assert!(is_read(CLIENT) && is_read(SERVER));
}
