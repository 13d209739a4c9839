//! An endpoint of either transport against one of the same, over a network that loses nothing: what
//! each method of [`Endpoint`] does for both.

use std::net::SocketAddr;
use std::sync::Arc;

use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::node::{GSO_BYTES_MAX, Node, Path};
use tailcut_proto::rpc::{Call, CallError, CallId, CallOptions, Event, Failure, RequestId, Rpc};
use tailcut_proto::sealed::{Access, Cipher, EpochKey, HopKey, Keys, Role, Sealing, Secret};
use tailcut_proto::{homa, r2p2};
use tailcut_wire::r2p2::{DropReason, Kind, Packet};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const CALLS_MAX: usize = 3;

/// A client and a server, 1 us apart.
struct Pair {
    now: u64,
    client: Endpoint,
    server: Endpoint,
}

impl Pair {
    fn of_both() -> [Self; 2] {
        let pair = |endpoint: fn(u8) -> Endpoint| Self {
            now: SECOND,
            client: endpoint(1),
            server: endpoint(2),
        };
        [pair(r2p2_endpoint), pair(homa_endpoint)]
    }

    fn call(&mut self, payload: &[u8], timeout_ns: u64) -> Result<CallId, CallError> {
        let options = CallOptions { idempotent: false, fixed: false, v1: false };
        let deadline = self.now + timeout_ns;
        let payload = payload.to_vec();
        let call = Call { target: address(2), payload, deadline, context: 7, options };
        self.client.call(self.now, call)
    }

    /// Calls, and takes the request at the server.
    fn ask(&mut self, payload: &[u8]) -> (CallId, RequestId) {
        let call = self.call(payload, 100 * MS).expect("there is room");
        self.settle();
        match self.server.poll_event() {
            Some(Event::Request { id, payload: found, .. }) => {
                assert_eq!(found, payload);
                (call, id)
            }
            other => panic!("{other:?} instead of a request"),
        }
    }

    /// Carries what both send until neither does.
    fn settle(&mut self) {
        let mut buffer = vec![0; GSO_BYTES_MAX];
        loop {
            self.now += 1_000;
            let there = carry(self.now, (1, &mut self.client), &mut self.server, &mut buffer);
            let back = carry(self.now, (2, &mut self.server), &mut self.client, &mut buffer);
            if there + back == 0 {
                return;
            }
        }
    }

    /// Lets so much time pass, with its timers.
    fn pass(&mut self, ns: u64) {
        let until = self.now + ns;
        loop {
            let timers = [self.client.poll_timeout(), self.server.poll_timeout()];
            let Some(at) = timers.into_iter().flatten().min().filter(|&at| at <= until) else {
                break;
            };
            self.now = at.max(self.now + 1);
            self.client.handle_timeout(self.now);
            self.server.handle_timeout(self.now);
            self.settle();
        }
        self.now = self.now.max(until);
    }

    fn is_idle(&self) -> bool {
        let is_empty = |endpoint: &Endpoint| endpoint.holdings() == r2p2::Holdings::default();
        is_empty(&self.client) && is_empty(&self.server)
    }
}

/// Datagrams that were carried from one to the other.
fn carry(now: u64, from: (u8, &mut Endpoint), to: &mut Endpoint, buffer: &mut [u8]) -> usize {
    let (host, from) = from;
    let mut count = 0;
    while let Some(transmit) = from.poll_transmit(now, buffer) {
        for bytes in buffer[..transmit.len].chunks_mut(transmit.segment_len) {
            to.handle_datagram(now, Path::from(address(host)), bytes);
            count += 1;
        }
    }
    count
}

fn address(host: u8) -> SocketAddr {
    ([10, 0, 0, host], 99).into()
}

fn r2p2_endpoint(host: u8) -> Endpoint {
    let mut config =
        r2p2::Config { secret: [host; 16], calls_max: CALLS_MAX, ..Default::default() };
    config.serving.trusted.push("10.0.0.0/8".parse().unwrap());
    r2p2::Endpoint::new(0, config).into()
}

fn homa_endpoint(host: u8) -> Endpoint {
    let mut config =
        homa::Config { secret: [host; 16], calls_max: CALLS_MAX, ..Default::default() };
    config.serving.trusted.push("10.0.0.0/8".parse().unwrap());
    homa::Endpoint::new(0, config).into()
}

#[test]
fn a_call_is_answered_and_leaves_nothing() {
    for mut pair in Pair::of_both() {
        let (call, request) = pair.ask(b"ping");
        assert!(pair.server.is_waiting(request) && !pair.is_idle());
        pair.server.reply(pair.now, request, b"pong".to_vec()).unwrap();
        assert!(!pair.server.is_waiting(request));
        assert_eq!(pair.server.replies_under_way(), 1);
        pair.settle();
        assert_eq!(pair.server.replies_under_way(), 0);
        match pair.client.poll_event() {
            Some(Event::Replied { id, context, server, payload }) => {
                assert_eq!((id, context, server), (call, 7, address(2)));
                assert_eq!(payload, b"pong");
            }
            other => panic!("{other:?} instead of a reply"),
        }
        assert!(pair.client.poll_event().is_none() && pair.server.poll_event().is_none());
        // The server keeps a reply until it hears that it has come, which waits for another call.
        pair.client.say_farewell();
        pair.settle();
        pair.pass(SECOND);
        assert!(pair.is_idle());
        let metrics = pair.server.metrics();
        assert_eq!(metrics.requests(), 1);
        assert_ne!(metrics.r2p2().is_some(), metrics.homa().is_some());
    }
}

/// Longer than one message of Homa may be.
#[test]
fn long_messages_are_carried_both_ways() {
    let payload: Vec<u8> = (0..2_500_000u32).map(|place| (place / 7) as u8).collect();
    for mut pair in Pair::of_both() {
        let (_, request) = pair.ask(&payload);
        pair.server.reply(pair.now, request, payload.clone()).unwrap();
        pair.settle();
        match pair.client.poll_event() {
            Some(Event::Replied { payload: found, .. }) => assert!(found == payload),
            other => panic!("{other:?} instead of a reply"),
        }
    }
}

#[test]
fn a_refusal_and_a_rejection_are_told() {
    for mut pair in Pair::of_both() {
        let (_, request) = pair.ask(b"one");
        pair.server.refuse(pair.now, request, DropReason::Application).unwrap();
        pair.settle();
        let failure = failure(&mut pair.client).0;
        assert_eq!(failure, Failure::Refused(DropReason::Application));
        let (_, request) = pair.ask(b"two");
        pair.server.reject(pair.now, request, 17, b"no").unwrap();
        pair.settle();
        let (failure, words) = self::failure(&mut pair.client);
        assert_eq!((failure, &words[..]), (Failure::Rejected { code: 17 }, &b"no"[..]));
    }
}

/// The failure of the call that has just ended, and its words.
fn failure(client: &mut Endpoint) -> (Failure, Vec<u8>) {
    match client.poll_event() {
        Some(Event::Failed { failure, text, .. }) => (failure, text),
        other => panic!("{other:?} instead of a failure"),
    }
}

#[test]
fn a_cancelled_call_is_over_at_both_ends() {
    for mut pair in Pair::of_both() {
        let (call, request) = pair.ask(b"ping");
        pair.client.cancel(pair.now, call);
        pair.settle();
        pair.pass(200 * MS);
        assert!(!pair.server.is_waiting(request));
        assert!(pair.is_idle());
        assert!(pair.client.poll_event().is_none());
    }
}

#[test]
fn a_call_ends_at_its_deadline() {
    for mut pair in Pair::of_both() {
        pair.ask(b"ping");
        pair.pass(101 * MS);
        assert_eq!(failure(&mut pair.client).0, Failure::Deadline);
    }
}

#[test]
fn a_closed_port_ends_a_call() {
    for mut pair in Pair::of_both() {
        pair.call(b"ping", 100 * MS).unwrap();
        let mut buffer = vec![0; GSO_BYTES_MAX];
        while pair.client.poll_transmit(pair.now, &mut buffer).is_some() {}
        pair.client.handle_unreachable(pair.now, address(2));
        assert_eq!(failure(&mut pair.client).0, Failure::Unreachable);
    }
}

#[test]
fn outstanding_calls_are_limited_and_told_beforehand() {
    for mut pair in Pair::of_both() {
        for _ in 0..CALLS_MAX {
            assert!(pair.client.may_call(address(2), 4));
            pair.call(b"ping", 100 * MS).unwrap();
        }
        assert!(!pair.client.may_call(address(2), 4));
        assert!(matches!(pair.call(b"ping", MS), Err(CallError::TooManyOutstanding { .. })));
        assert_eq!(pair.client.holdings().calls, CALLS_MAX);
    }
}

#[test]
fn a_server_that_stops_says_so() {
    for mut pair in Pair::of_both() {
        pair.server.stop(pair.now);
        pair.call(b"ping", 100 * MS).unwrap();
        pair.settle();
        assert_eq!(failure(&mut pair.client).0, Failure::Refused(DropReason::Stopping));
        assert!(pair.server.poll_event().is_none());
    }
}

#[test]
fn a_server_that_has_stopped_may_serve_again() {
    for mut pair in Pair::of_both() {
        pair.server.stop(pair.now);
        pair.server.serve_again();
        pair.call(b"ping", 100 * MS).unwrap();
        pair.settle();
        assert!(matches!(pair.server.poll_event(), Some(Event::Request { .. })));
    }
}

#[test]
fn buffers_that_are_given_back_are_handed_out_again() {
    for mut pair in Pair::of_both() {
        let buffer = Vec::with_capacity(12_345);
        pair.server.recycle(buffer);
        assert_eq!(pair.server.buffer().capacity(), 12_345);
    }
}

#[test]
fn a_long_message_gets_a_buffer_that_a_long_one_has_had() {
    for mut pair in Pair::of_both() {
        [1 << 20, 1_000].into_iter().for_each(|len| pair.server.recycle(Vec::with_capacity(len)));
        assert_eq!(pair.server.buffer_for(1 << 20).capacity(), 1 << 20);
        assert_eq!(pair.server.buffer_for(500).capacity(), 1_000);
        assert_eq!(pair.server.buffer_for(1 << 20).capacity(), 0, "there is none");
    }
}

#[test]
fn every_request_counts() {
    for mut pair in Pair::of_both() {
        (0..2).for_each(|_| {
            pair.ask(b"ping");
        });
        assert_eq!((pair.server.metrics().requests(), pair.client.metrics().requests()), (2, 0));
    }
}

/// Homa's client acknowledges a reply with its next call, or when it goes.
#[test]
fn a_server_is_told_of_a_reply_by_a_client_that_goes() {
    let [_, mut pair] = Pair::of_both();
    let (_, request) = pair.ask(b"ping");
    pair.server.reply(pair.now, request, b"pong".to_vec()).unwrap();
    pair.settle();
    assert_eq!(pair.server.holdings().requests, 1, "the reply is kept");
    pair.client.say_farewell();
    pair.settle();
    assert!(pair.is_idle());
}

#[test]
fn an_overloaded_server_says_when_to_come_back_where_its_protocol_can() {
    for (mut pair, expected) in Pair::of_both().into_iter().zip([3 * MS, 0]) {
        let (_, request) = pair.ask(b"ping");
        pair.server.set_retry_after(3 * MS);
        pair.server.refuse(pair.now, request, DropReason::Overload).unwrap();
        pair.settle();
        match pair.client.poll_event() {
            Some(Event::Failed { failure, retry_after_ns, .. }) => {
                assert_eq!(failure, Failure::Refused(DropReason::Overload));
                assert_eq!(retry_after_ns, expected);
            }
            other => panic!("{other:?} instead of a failure"),
        }
    }
}

/// Running requests, which a reply reports beside those that wait for a worker.
#[test]
fn as_many_requests_run_as_there_are_workers() {
    for workers in [1, 2] {
        let [mut pair, _] = Pair::of_both();
        pair.server.set_workers(workers);
        let [first, ..] = [(); CALLS_MAX].map(|()| pair.ask(b"ping").1);
        pair.server.reply(pair.now, first, b"pong".to_vec()).unwrap();
        let mut buffer = vec![0; 1_500];
        let reply = pair.server.poll_transmit(pair.now, &mut buffer).expect("a reply");
        let packet = Packet::parse(&buffer[..reply.len]).unwrap();
        let Kind::Reply { header, .. } = packet.kind else { panic!("{packet:?}") };
        assert_eq!((header.server_load - header.server_waiting).get(), workers as u16);
    }
}

fn keys(group: &str) -> Keys {
    let (secret, hop) = (Secret::new([7; 32]), HopKey::default());
    let epochs = vec![EpochKey { epoch: 1, from_ms: 0, secret, hop }];
    Keys { role: Role::Server, group: group.into(), cipher: Cipher::Aes128Gcm, reset: None, epochs }
}

/// A client with the number 17 and a server, whose packets are sealed.
fn sealed_pair() -> Pair {
    guarded_pair(None)
}

/// A client with the number 17 and a server that may have a policy, whose packets are sealed.
fn guarded_pair(access: Option<Arc<Access>>) -> Pair {
    let end = |host, role| -> Endpoint {
        let sealing = Sealing::new(Arc::new(keys("test").for_role(role).unwrap()), 0);
        let seal = Some(Sealing { access: access.clone(), ..sealing });
        let config = r2p2::Config { secret: [host; 16], seal, ..r2p2::Config::default() };
        r2p2::Endpoint::new(0, config).into()
    };
    Pair { now: SECOND, client: end(1, Role::Client(17)), server: end(2, Role::Server) }
}

fn policy(rules: &str) -> Arc<Access> {
    Arc::new(format!("tailcut-access 1\n{rules}").parse().unwrap())
}

#[test]
fn a_request_tells_its_client_where_packets_are_sealed() {
    let mut sealed = sealed_pair();
    let (_, request) = sealed.ask(b"ping");
    assert_eq!(sealed.server.client_of(request), Some(17));
    for mut pair in Pair::of_both() {
        let (_, request) = pair.ask(b"ping");
        assert_eq!(pair.server.client_of(request), None);
    }
}

#[test]
fn keys_of_another_group_are_not_taken() {
    let mut sealed = sealed_pair();
    assert_eq!(sealed.server.update_keys(SECOND, &keys("test")), Ok(()));
    assert!(sealed.server.update_keys(SECOND, &keys("other")).is_err());
    for mut pair in Pair::of_both() {
        assert_eq!(pair.server.update_keys(SECOND, &keys("other")), Ok(()), "it has none");
    }
}

#[test]
fn a_client_a_day_ahead_is_served_once_the_server_s_clock_is_set() {
    let mut sealed = sealed_pair();
    let day_ns = 86_400 * SECOND;
    sealed.client.handle_wall_clock(SECOND, day_ns);
    sealed.call(b"ping", 100 * MS).unwrap();
    sealed.pass(200 * MS);
    assert!(sealed.server.poll_event().is_none());
    sealed.server.handle_wall_clock(sealed.now, day_ns + sealed.now - SECOND);
    sealed.ask(b"pong");
}

#[test]
fn a_server_tells_whom_it_has_denied_until_its_policy_changes() {
    let mut pair = guarded_pair(Some(policy("allow 18 *")));
    assert_eq!(pair.server.denials(), (0, None));
    pair.call(b"ping", 100 * MS).unwrap();
    pair.settle();
    assert!(pair.server.poll_event().is_none(), "the application does not have it");
    let (count, last) = pair.server.denials();
    assert_eq!((count, last.map(|denial| denial.client)), (1, Some(17)));
    pair.server.update_access(&policy("allow any *"));
    pair.ask(b"pong");
    for pair in Pair::of_both() {
        assert_eq!(pair.server.denials(), (0, None), "it has none");
    }
}
