//! Sealed Homa, over a network in memory.

use std::collections::BTreeMap;

use tailcut_wire::homa::PacketType;
use tailcut_wire::homa::sealed::{header, is_marked};

use super::*;
use crate::homa::{Config, Endpoint};

const OTHER: &str = "10.0.0.4:8000";
const NEIGHBOUR: &str = "10.0.0.1:1001";

/// Endpoints by their addresses.
pub(super) struct Nodes {
    pub(super) now: Time,
    pub(super) keys: Keys,
    by_address: BTreeMap<&'static str, Endpoint>,
    /// All that was sent.
    pub(super) log: Vec<Sent>,
    /// Requests that have run: where, for which client, and their payloads.
    pub(super) runs: Vec<(&'static str, Option<u32>, Vec<u8>)>,
    /// Outcomes of calls.
    pub(super) ended: Vec<Result<Vec<u8>, Failure>>,
    /// Every so many datagrams one is lost; 0 for none.
    loss: usize,
    /// True of what never arrives.
    pub(super) is_blocked: fn(&Sent) -> bool,
}

fn endpoint_of(now: Time, sealing: Option<Sealing>, secret: u8) -> Endpoint {
    Endpoint::new(now, Config { seal: sealing, secret: [secret; 16], ..Config::default() })
}

impl Nodes {
    /// A client, and a server that echoes.
    pub(super) fn new(keys: Keys) -> Self {
        let mut nodes = Self {
            now: START,
            keys,
            by_address: BTreeMap::new(),
            log: Vec::new(),
            runs: Vec::new(),
            ended: Vec::new(),
            loss: 0,
            is_blocked: |_| false,
        };
        nodes.start(SERVER, Role::Server, 2);
        nodes.now += 2 * MS;
        nodes.start(CLIENT, Role::Client(17), 1);
        nodes
    }

    /// Another process starts at an address.
    fn start(&mut self, address: &'static str, role: Role, secret: u8) {
        let seal = sealing(&self.keys, role);
        self.by_address.insert(address, endpoint_of(self.now, seal, secret));
    }

    /// A server starts with a policy.
    fn guard(&mut self, rules: &str) {
        let access = Arc::new(format!("tailcut-access 1\n{rules}").parse().unwrap());
        let seal =
            sealing(&self.keys, Role::Server).map(|it| Sealing { access: Some(access), ..it });
        self.by_address.insert(SERVER, endpoint_of(self.now, seal, 5));
        self.now += 2 * MS;
    }

    pub(super) fn restart_server(&mut self) {
        self.now += 2 * MS;
        self.start(SERVER, Role::Server, 3);
        self.now += 2 * MS;
    }

    pub(super) fn at(&mut self, address: &str) -> &mut Endpoint {
        self.by_address.get_mut(address).expect("there is such a node")
    }

    fn seal_at(&mut self, address: &str) -> SealMetrics {
        self.at(address).metrics().seal
    }

    pub(super) fn begin(&mut self, from: &str, payload: &[u8], is_idempotent: bool) {
        let options = CallOptions { idempotent: is_idempotent, ..CallOptions::default() };
        let (target, payload, deadline) = (at(SERVER), payload.to_vec(), self.now + 900 * MS);
        let call = Call { target, payload, deadline, context: 0, options };
        let now = self.now;
        self.at(from).call(now, call).unwrap();
    }

    /// A call that ends, and how.
    pub(super) fn call(&mut self, payload: &[u8]) -> Result<Vec<u8>, Failure> {
        self.begin(CLIENT, payload, false);
        self.end()
    }

    pub(super) fn end(&mut self) -> Result<Vec<u8>, Failure> {
        let before = self.ended.len();
        let by = self.now + 1_000 * MS;
        while self.ended.len() == before && self.now < by {
            self.turn();
            self.now += MS / 10;
        }
        self.ended.last().cloned().expect("every call ends")
    }

    /// Carries everything that is under way.
    pub(super) fn turn(&mut self) {
        loop {
            let mut under_way = VecDeque::new();
            for (address, node) in &mut self.by_address {
                drain(node, address, self.now, &mut under_way);
            }
            if under_way.is_empty() {
                break;
            }
            for sent in under_way {
                self.log.push(sent.clone());
                let is_lost = self.loss > 0 && self.log.len().is_multiple_of(self.loss);
                if !is_lost && !(self.is_blocked)(&sent) {
                    self.deliver(sent);
                }
            }
        }
        let now = self.now;
        self.by_address.values_mut().for_each(|node| node.handle_timeout(now));
        self.take_events();
    }

    /// Time passes, in which nodes say what they have to say.
    pub(super) fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.turn();
            self.now += MS;
        }
    }

    pub(super) fn deliver(&mut self, mut sent: Sent) {
        let now = self.now;
        if let Some(node) = self.by_address.get_mut(sent.to.to_string().as_str()) {
            node.handle_datagram(now, Path { local: None, peer: sent.from }, &mut sent.bytes);
        }
        self.take_events();
    }

    fn take_events(&mut self) {
        for (address, node) in &mut self.by_address {
            while let Some(event) = node.poll_event() {
                match event {
                    Event::Request { id, payload, .. } => {
                        self.runs.push((address, node.client_of(id), payload.clone()));
                        let _ = node.reply(self.now, id, payload);
                    }
                    Event::Replied { payload, .. } => self.ended.push(Ok(payload)),
                    Event::Failed { failure, .. } => self.ended.push(Err(failure)),
                    _ => {}
                }
            }
        }
    }

    /// Counters and holdings of every node, but for the counters of its seal.
    fn state(&self) -> Vec<String> {
        let of = |node: &Endpoint| {
            let mut metrics = *node.metrics();
            (metrics.seal, metrics.common.datagrams_in) = Default::default();
            format!("{metrics:?} {:?} {:?}", node.holdings(), node.poll_timeout())
        };
        self.by_address.values().map(of).collect()
    }
}

fn nodes() -> Nodes {
    Nodes::new(keys(Cipher::Aes128Gcm, u64::MAX))
}

pub(super) fn kind_of(sent: &Sent) -> PacketType {
    header(&sent.bytes).expect("a packet").1
}

pub(super) const UNCERTAIN: Failure = Failure::Refused(DropReason::Uncertain);

fn check_calls(mut nodes: Nodes) {
    for len in [0, 1, 32, 1_364, 1_365, 5_000, 200_000, 3_000_000] {
        let payload = message(len);
        assert_eq!(nodes.call(&payload), Ok(payload.clone()), "{len} B");
        if len >= 32 {
            let is_clear = nodes.log.iter().any(|sent| holds(&sent.bytes, &payload[..32]));
            assert!(!is_clear, "a payload of {len} B went in the clear");
        }
    }
    nodes.pass(20);
    assert!(nodes.log.iter().all(|sent| is_marked(&sent.bytes)));
    assert!(nodes.log.iter().all(|sent| sent.bytes.len() <= 1_452), "sealed packets fit the MTU");
    assert!(nodes.runs.iter().all(|run| run.1 == Some(17)));
    for address in [CLIENT, SERVER] {
        assert_eq!(dropped(nodes.seal_at(address)), SealMetrics::default());
        let holdings = nodes.at(address).holdings();
        assert_eq!(holdings, Default::default(), "{address}");
    }
    assert_eq!(nodes.seal_at(SERVER).unnamed, 1, "the first call alone asks who is there");
}

/// Nothing is derived for who has no hop key: what the AEAD would find genuine is not even opened.
#[test]
fn a_session_without_its_pass_is_nobodys() {
    let mut nodes = nodes();
    let mut keys = nodes.keys.for_role(Role::Client(17)).unwrap();
    keys.epochs.iter_mut().for_each(|key| key.hop = HopKey::new([1; 16]));
    let sealing = Sealing::new(Arc::new(keys), 0);
    nodes.by_address.insert(CLIENT, endpoint_of(nodes.now, Some(sealing), 1));
    assert!(nodes.call(b"words").is_err() && nodes.runs.is_empty());
    assert!(nodes.seal_at(SERVER).forged > 0);
}

#[test]
fn calls_of_every_length_are_answered_and_nothing_goes_in_the_clear() {
    check_calls(nodes());
    check_calls(Nodes::new(keys(Cipher::ChaCha20Poly1305, u64::MAX)));
}

/// One round trip more than an open call takes.
#[test]
fn a_first_call_asks_who_is_there_before_its_data_go() {
    let mut nodes = nodes();
    nodes.call(b"request").unwrap();
    let kinds: Vec<PacketType> = nodes.log.iter().map(kind_of).collect();
    let [resend, cutoffs, unknown, data] =
        [PacketType::Resend, PacketType::Cutoffs, PacketType::RpcUnknown, PacketType::Data];
    assert_eq!(kinds[..5], [resend, cutoffs, unknown, data, data], "and shows its address");
    nodes.log.clear();
    nodes.call(b"request").unwrap();
    let kinds: Vec<PacketType> = nodes.log.iter().map(kind_of).collect();
    assert_eq!(kinds[..2], [data, data]);
}

#[test]
fn many_calls_that_begin_at_once_are_all_answered() {
    let mut nodes = nodes();
    (0..300).for_each(|call: u32| nodes.begin(CLIENT, &call.to_be_bytes(), false));
    nodes.pass(30);
    assert_eq!((nodes.runs.len(), nodes.ended.len()), (300, 300));
    assert!(nodes.ended.iter().all(Result::is_ok));
}

#[test]
fn calls_are_answered_where_datagrams_are_lost() {
    for loss in [4, 5, 7, 11] {
        let mut nodes = nodes();
        nodes.loss = loss;
        for len in [10, 60_000, 10, 3_000] {
            let payload = message(len);
            assert_eq!(nodes.call(&payload), Ok(payload.clone()), "{len} B, one of {loss}");
        }
        assert_eq!(nodes.runs.len(), 4);
    }
}

/// Each of them, changed in one bit of each byte, is nothing to anybody.
#[test]
fn nothing_forged_is_acted_on() {
    let mut nodes = nodes();
    nodes.call(&message(60_000)).unwrap();
    nodes.begin(CLIENT, b"under way", false);
    nodes.is_blocked = |sent| sent.to == at(CLIENT);
    nodes.turn();
    let genuine = std::mem::take(&mut nodes.log);
    let before = nodes.state();
    for sent in &genuine {
        sent.changed().for_each(|forged| nodes.deliver(forged));
        let mut longer = sent.clone();
        longer.bytes.push(0);
        nodes.deliver(longer);
        let mut shorter = sent.clone();
        shorter.bytes.pop();
        nodes.deliver(shorter);
    }
    assert_eq!(nodes.state(), before);
    for address in [CLIENT, SERVER] {
        let SealMetrics { forged, unsealed, .. } = nodes.seal_at(address);
        assert!(forged > 100 && unsealed > 10, "{forged} {unsealed}");
    }
}

/// Datagrams that have been read before do nothing, where they were read and elsewhere, now and
/// later.
#[test]
fn nothing_that_was_recorded_is_acted_on() {
    let mut nodes = nodes();
    nodes.now += 2 * MS;
    nodes.start(OTHER, Role::Server, 7);
    nodes.start(NEIGHBOUR, Role::Client(17), 8);
    nodes.loss = 7;
    for len in [10, 70_000, 10] {
        nodes.call(&message(len)).unwrap();
    }
    nodes.loss = 0;
    nodes.begin(NEIGHBOUR, b"of another process", false);
    nodes.end().unwrap();
    nodes.pass(30);
    // What was lost has not been read.
    let recorded: Vec<Sent> = std::mem::take(&mut nodes.log);
    let recorded = (1..).zip(&recorded).filter(|(at, _)| at % 7 != 0).map(|(_, sent)| sent);
    let recorded: Vec<Sent> = recorded.cloned().collect();
    let kinds: BTreeSet<u8> = recorded.iter().map(|sent| kind_of(sent) as u8).collect();
    assert!(kinds.len() >= 6, "{kinds:x?}");
    let (before, runs) = (nodes.state(), nodes.runs.len());
    for sent in &recorded {
        nodes.deliver(sent.clone());
    }
    assert_eq!(nodes.state(), before, "what has been read where it was sent");
    for restarts in 0..2 {
        for sent in &recorded {
            for to in [CLIENT, SERVER, OTHER, NEIGHBOUR] {
                for from in [CLIENT, SERVER, STRANGER] {
                    nodes.deliver(Sent { from: at(from), to: at(to), ..sent.clone() });
                }
            }
        }
        nodes.pass(5);
        assert_eq!(nodes.runs.len(), runs, "after {restarts} restarts");
        nodes.restart_server();
    }
}

/// The first answer says what is true of each call: that of the server before may have run it.
#[test]
fn a_call_to_a_server_that_has_started_again_is_uncertain_and_the_next_is_answered() {
    let mut nodes = nodes();
    nodes.call(b"before").unwrap();
    nodes.restart_server();
    assert_eq!(nodes.call(b"between"), Err(UNCERTAIN));
    assert_eq!(nodes.call(b"after"), Ok(b"after".to_vec()));
    assert_eq!(nodes.runs.len(), 2);
}

/// It has had the request, but its answer never came: whoever is there now does not run it again.
#[test]
fn a_request_that_has_gone_by_one_name_goes_by_no_other() {
    for is_idempotent in [false, true] {
        let mut nodes = nodes();
        nodes.call(b"before").unwrap();
        nodes.is_blocked = |sent| sent.from == at(SERVER);
        nodes.begin(CLIENT, b"call", is_idempotent);
        nodes.pass(3);
        assert_eq!(nodes.runs.len(), 2);
        nodes.restart_server();
        nodes.is_blocked = |_| false;
        assert_eq!(nodes.end(), Err(UNCERTAIN), "its session is older than the server");
        assert_eq!(nodes.runs.len(), 2);
    }
}

/// A packet that the network has held back comes for the first time from another address, where
/// nothing is known of its session; and then from its own, where it has been taken.
#[test]
fn a_request_that_was_held_back_is_refused_to_whoever_is_first_with_it() {
    let mut nodes = nodes();
    nodes.call(b"first").unwrap();
    nodes.is_blocked = |sent| sent.from == at(CLIENT) && kind_of(sent) == PacketType::Data;
    nodes.begin(CLIENT, b"once", false);
    nodes.turn();
    let held = nodes.log.last().cloned().unwrap();
    assert_eq!(kind_of(&held), PacketType::Data);
    nodes.is_blocked = |_| false;
    nodes.end().unwrap();
    let runs = nodes.runs.len();
    nodes.deliver(Sent { from: at(STRANGER), ..held.clone() });
    assert_eq!(nodes.seal_at(SERVER).stale_sessions, 1);
    let replayed = nodes.seal_at(SERVER).replayed;
    nodes.deliver(held);
    assert_eq!(nodes.runs.len(), runs);
    assert_eq!(nodes.seal_at(SERVER).replayed, replayed + 1);
}

/// A packet that the network has held back comes from where it was sent: nobody knows any more what
/// of the session has run.
#[test]
fn a_request_that_was_held_back_is_refused_when_its_client_has_been_evicted() {
    let mut nodes = nodes();
    let seal = sealing(&nodes.keys, Role::Server);
    let config = Config { seal, secret: [6; 16], peers_max: 2, ..Config::default() };
    let idle_ns = config.serving.session_idle_ns;
    nodes.by_address.insert(SERVER, Endpoint::new(nodes.now, config));
    nodes.now += 2 * MS;
    nodes.call(b"first").unwrap();
    nodes.is_blocked = |sent| sent.from == at(CLIENT) && kind_of(sent) == PacketType::Data;
    nodes.begin(CLIENT, b"once", false);
    nodes.turn();
    let held = nodes.log.last().cloned().unwrap();
    nodes.is_blocked = |_| false;
    nodes.end().unwrap();
    nodes.pass(20);
    nodes.now += idle_ns + MS;
    nodes.start(NEIGHBOUR, Role::Client(18), 8);
    nodes.begin(NEIGHBOUR, b"others", false);
    assert_eq!(nodes.end(), Ok(b"others".to_vec()));
    let (runs, stale) = (nodes.runs.len(), nodes.seal_at(SERVER).stale_sessions);
    let mut again = held.clone();
    nodes.deliver(held);
    assert_eq!((nodes.runs.len(), nodes.seal_at(SERVER).stale_sessions), (runs, stale + 1));
    // And once only.
    again.from = at(CLIENT);
    nodes.deliver(again);
    assert_eq!(nodes.seal_at(SERVER).stale_sessions, stale + 1);
}

/// A stranger has another server answer who is asked, and passes that on: a request that may have
/// run where it was sent does not go to that one.
#[test]
fn a_call_is_not_lured_to_another_server() {
    for is_idempotent in [false, true] {
        let mut nodes = nodes();
        nodes.start(OTHER, Role::Server, 7);
        nodes.now += 2 * MS;
        nodes.call(b"first").unwrap();
        nodes.is_blocked = |sent| sent.from == at(SERVER);
        nodes.begin(CLIENT, b"once", is_idempotent);
        nodes.pass(60);
        assert_eq!(nodes.runs.len(), 2, "the answer has not come");
        let asks = |sent: &&Sent| kind_of(sent) == PacketType::Resend && sent.bytes[9] == 0;
        let asking = nodes.log.iter().rev().find(asks).cloned().expect("it asks who is there");
        nodes.deliver(Sent { to: at(OTHER), ..asking });
        let mut answers = VecDeque::new();
        let now = nodes.now;
        drain(nodes.at(OTHER), OTHER, now, &mut answers);
        nodes.log.clear();
        for answer in answers {
            nodes.deliver(Sent { from: at(SERVER), ..answer });
        }
        nodes.turn();
        let went = nodes.log.drain(..).filter(|sent| sent.to == at(SERVER));
        for sent in went.collect::<Vec<_>>() {
            nodes.deliver(Sent { to: at(OTHER), ..sent });
        }
        let at_other = nodes.runs.iter().filter(|run| run.0 == OTHER).count();
        assert_eq!(at_other, usize::from(is_idempotent), "{:?}", nodes.runs);
    }
}

#[test]
fn each_end_takes_its_own_form_alone() {
    let mut nodes = nodes();
    nodes.call(b"sealed").unwrap();
    let sealed: Vec<Sent> = std::mem::take(&mut nodes.log);
    let mut open = Nodes::new(nodes.keys.clone());
    open.by_address.insert(SERVER, endpoint_of(START, None, 2));
    open.by_address.insert(CLIENT, endpoint_of(START, None, 1));
    open.call(b"open").unwrap();
    let (before, plain) = (open.state(), std::mem::take(&mut open.log));
    sealed.iter().for_each(|sent| open.deliver(sent.clone()));
    let malformed = |nodes: &mut Nodes, address| nodes.at(address).metrics().malformed;
    let both = [CLIENT, SERVER].map(|address| malformed(&mut open, address));
    let counted: u64 = both.iter().flatten().sum();
    assert_eq!(counted as usize, sealed.len());
    assert_eq!(open.runs.len(), 1);
    assert_ne!(open.state(), before, "it is counted");
    let before = nodes.state();
    plain.iter().for_each(|sent| nodes.deliver(sent.clone()));
    assert_eq!(nodes.state(), before);
    let unsealed = nodes.seal_at(SERVER).unsealed + nodes.seal_at(CLIENT).unsealed;
    assert_eq!(unsealed as usize, plain.len());
}

/// Whoever has the keys of another client is told so; the server's are not derived for it.
#[test]
fn a_client_of_another_group_is_nobody() {
    let mut nodes = nodes();
    let group = "other".to_owned();
    let others = Keys { group, ..nodes.keys.clone() };
    let seal = sealing(&others, Role::Client(17));
    nodes.by_address.insert(CLIENT, endpoint_of(nodes.now, seal, 1));
    assert_eq!(nodes.call(b"request"), Err(Failure::Deadline));
    assert_eq!(nodes.runs.len(), 0);
    let seal = nodes.seal_at(SERVER);
    assert_eq!((dropped(seal).forged, seal.unnamed), (seal.forged, 0));
    assert!(seal.forged > 3);
}

/// A request of a typed service, of so many bytes.
fn typed(path: &str, len: usize) -> Vec<u8> {
    let mut bytes = [&[METHOD_VERSION][..], &method_number(path).to_be_bytes()].concat();
    bytes.resize(len.max(bytes.len()), 5);
    bytes
}

#[test]
fn what_is_not_allowed_is_rejected_by_its_first_packet_and_never_runs() {
    let mut nodes = nodes();
    nodes.guard("allow 17 /a.B/C");
    // The call that finds out who is there.
    let _ = nodes.call(&typed("/a.B/C", 9));
    let runs = nodes.runs.len();
    for (count, len) in (1..).zip([9, 2_000, 300_000]) {
        let denied = nodes.call(&typed("/a.B/D", len));
        assert_eq!(denied, Err(Failure::Rejected { code: DENIED_CODE }), "{len} B");
        let allowed = typed("/a.B/C", len);
        assert_eq!(nodes.call(&allowed), Ok(allowed.clone()), "{len} B");
        assert_eq!((nodes.seal_at(SERVER).denied, nodes.at(SERVER).denials().0), (count, count));
    }
    assert_eq!(nodes.runs.len(), runs + 3);
    nodes.pass(20);
    assert_eq!(nodes.at(SERVER).holdings(), Default::default());
}

/// Packets that come first are not the beginning of the request: that is waited for.
#[test]
fn a_request_whose_beginning_is_overtaken_is_decided_by_it() {
    for (path, expected) in [("/a.B/C", Ok(())), ("/a.B/D", Err(Failure::Rejected { code: 7 }))] {
        let mut nodes = nodes();
        nodes.guard("allow 17 /a.B/C");
        let _ = nodes.call(&typed("/a.B/C", 9));
        nodes.begin(CLIENT, &typed(path, 6_000), false);
        let mut under_way = VecDeque::new();
        let now = nodes.now;
        drain(nodes.at(CLIENT), CLIENT, now, &mut under_way);
        assert!(under_way.len() >= 4);
        for sent in under_way.into_iter().rev() {
            nodes.deliver(sent);
        }
        assert_eq!(nodes.end().map(|_| ()), expected);
    }
}

#[test]
fn no_call_is_lost_while_keys_rotate_and_sessions_grow_old() {
    let rotating = keys(Cipher::Aes128Gcm, START / MS + 300);
    let mut nodes = Nodes::new(rotating);
    for _ in 0..6 {
        let payload = message(50_000);
        assert_eq!(nodes.call(&payload), Ok(payload.clone()));
        nodes.now += 100 * MS;
    }
    let epochs: BTreeSet<u8> =
        nodes.log.iter().map(|sent| sent.bytes[sent.bytes.len() - 13]).collect();
    assert_eq!(epochs, BTreeSet::from([7, 8]));
    let sessions = |nodes: &Nodes| {
        let of_client = nodes.log.iter().filter(|sent| sent.from == at(CLIENT));
        of_client.map(|sent| sent.bytes[20..25].to_vec()).collect::<BTreeSet<_>>().len()
    };
    assert_eq!(sessions(&nodes), 2);
    nodes.now += 601_000 * MS;
    nodes.call(b"much later").unwrap();
    assert_eq!(sessions(&nodes), 3);
}

/// Its first request waits until the server's clock has come so far.
#[test]
fn a_client_whose_clock_is_a_little_ahead_waits_and_one_far_ahead_is_refused() {
    for (ahead_ms, expected) in [(50, Ok(b"request".to_vec())), (500, Err(UNCERTAIN))] {
        let mut nodes = nodes();
        let clock_ns = ahead_ms * MS;
        let seal = sealing(&nodes.keys, Role::Client(17)).map(|it| Sealing { clock_ns, ..it });
        nodes.by_address.insert(CLIENT, endpoint_of(nodes.now, seal, 1));
        assert_eq!(nodes.call(b"request"), expected, "{ahead_ms} ms");
    }
}

/// A nonce is of one packet, under each key.
#[test]
fn no_nonce_is_used_twice_under_a_key() {
    let mut nodes = nodes();
    nodes.now += 2 * MS;
    nodes.start(NEIGHBOUR, Role::Client(17), 8);
    nodes.loss = 5;
    for len in [10, 60_000, 2_000] {
        nodes.begin(NEIGHBOUR, &message(len), false);
        nodes.call(&message(len)).unwrap();
        nodes.pass(30);
    }
    let mut seen = BTreeSet::new();
    for sent in &nodes.log {
        let trailer = &sent.bytes[sent.bytes.len() - 16..];
        // The session's, or the instance's.
        let key = if sent.from == at(SERVER) { vec![] } else { sent.bytes[20..25].to_vec() };
        assert!(seen.insert((key, trailer.to_vec())), "{sent:?}");
    }
}

/// Packets of fixed keys, which `conformance/sealed/check.py` computes again.
#[test]
fn packets_are_those_of_the_vectors() {
    let mut text = String::new();
    for cipher in [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305] {
        let mut nodes = Nodes::new(keys(cipher, u64::MAX));
        nodes.call(b"the first").unwrap();
        nodes.loss = 4;
        nodes.call(&message(3_000)).unwrap();
        nodes.pass(10);
        text += &vectors(&nodes.keys, &nodes.log);
    }
    check_vectors("homa.txt", &text);
}
