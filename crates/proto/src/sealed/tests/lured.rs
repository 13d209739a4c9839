//! Clients that strangers lead to servers which they have not called, and answers that teach no
//! name.

use tailcut_wire::r2p2::sealed::VERSION_AT;
use tailcut_wire::r2p2::{EXTENSION_VERSION, Flags, Packet};

use super::*;

/// A stranger sends another server what names nobody, and passes its answer on: the client, whose
/// call runs elsewhere, does not ask that server for it by name.
#[test]
fn a_client_asks_nobody_by_name_whom_it_has_not_asked() {
    for len in [10, 3_000] {
        let mut net = net(false);
        let mut other = server(START, &net.keys, 9);
        net.begin(&message(len));
        let mut sent = VecDeque::new();
        drain(&mut net.client, CLIENT, net.now, &mut sent);
        let path = Path { local: None, peer: at(CLIENT) };
        other.handle_datagram(net.now, path, &mut sent[0].bytes.clone());
        let mut answers = VecDeque::new();
        drain(&mut other, STRANGER, net.now, &mut answers);
        assert_eq!(answers.len(), 1, "it tells its name");
        net.deliver(answers.pop_front().unwrap());
        let mut sent = VecDeque::new();
        drain(&mut net.client, CLIENT, net.now, &mut sent);
        assert_eq!(sent, [], "nothing goes there");
        assert_eq!(net.client.metrics().protocol_violation, 1);
        // And the call goes on where it was made.
        net.end(1);
        assert_eq!(net.ended, [Ok(message(len))]);
    }
}

/// Twelve calls name nobody, of which eight may be taught a router's name. An answer to another one
/// is not asked for at once, again and again.
#[test]
fn an_answer_that_teaches_no_name_is_not_asked_for_again_at_once() {
    let mut net = net(true);
    (0..12).for_each(|_| net.begin(b"request"));
    let mut sent = VecDeque::new();
    drain(&mut net.client, CLIENT, net.now, &mut sent);
    // What the last one asks arrives, and nothing else.
    let last = sent.pop_back().unwrap();
    net.deliver(last);
    let mut answers = VecDeque::new();
    drain(net.router.as_mut().unwrap(), ROUTER, net.now, &mut answers);
    answers.retain(|answer| answer.to == at(CLIENT));
    assert_eq!(answers.len(), 1);
    net.deliver(answers.pop_front().unwrap());
    drain(&mut net.client, CLIENT, net.now, &mut answers);
    assert_eq!(answers, []);
    net.end(12);
    assert_eq!(net.ended, vec![Ok(b"request".to_vec()); 12]);
}

/// A request that there is no room for is dropped: that it will not run cannot be promised.
#[test]
fn a_server_without_room_promises_nothing() {
    for (idempotent, reason) in [(false, DropReason::Uncertain), (true, DropReason::Overload)] {
        let mut net = net(false);
        let seal = sealing(&net.keys, Role::Server);
        let config = Config { secret: [4; 16], seal, clients_max: 0, ..Config::default() };
        net.server = Endpoint::new(net.now - 10 * MS, config);
        let (now, deadline) = (net.now, net.now + 5 * MS);
        let options = CallOptions { idempotent, ..CallOptions::default() };
        let call = Call { target: at(SERVER), payload: vec![1], deadline, context: 0, options };
        net.client.call(now, call).unwrap();
        net.turn();
        assert_eq!(net.server.metrics().drops[reason as usize], 1, "{reason:?}");
        assert_eq!(net.runs, 0);
    }
}

/// A stranger passes another server's answer on as if it were of who was called, and to that server
/// what the client then sends by its name. The call does not run where it was made as well.
#[test]
fn a_call_that_was_for_another_one_at_its_address_says_so() {
    let mut net = net(false);
    let mut other = server(START, &net.keys, 9);
    net.begin(b"request");
    let named = lure(&mut net, &mut other);
    let path = Path { local: None, peer: at(CLIENT) };
    other.handle_datagram(net.now, path, &mut named.bytes.clone());
    assert!(matches!(other.poll_event(), Some(Event::Request { .. })), "it runs there");
    // Who was called drops that; after a while the client asks who is there.
    net.end(1);
    let own = net.log.iter().filter(|sent| sent.from == at(CLIENT));
    let moved = own.filter(|sent| Packet::parse(&shown(sent)).unwrap().flags().has(Flags::MOVED));
    assert_eq!(moved.count(), 1, "it says so");
    assert_eq!((net.runs, &net.ended[..]), (0, &[UNCERTAIN][..]));
}

/// A stranger sends from its own address what a server has said before: the rest of the request
/// does not go there.
#[test]
fn a_recorded_answer_takes_no_request_elsewhere() {
    let mut net = net(false);
    assert!(net.call(b"request").is_ok());
    let begun = net.log.len();
    net.begin(&message(200_000));
    let own = |net: &Net| {
        let acks = net.log[begun..].iter().filter(|sent| sent.from == at(SERVER));
        acks.cloned().collect::<Vec<_>>()
    };
    let mut under_way = VecDeque::new();
    while own(&net).len() < 2 {
        net.collect(&mut under_way);
        let sent = under_way.pop_front().expect("the request is under way");
        net.log.push(sent.clone());
        net.deliver(sent);
    }
    net.deliver(Sent { from: at(STRANGER), ..own(&net)[0].clone() });
    assert_eq!(net.client.metrics().seal.replayed, 1);
    drain(&mut net.client, CLIENT, net.now, &mut under_way);
    assert!(under_way.iter().all(|sent| sent.to == at(SERVER) || sent.from == at(SERVER)));
    // What is late and comes from where the server is still counts.
    net.deliver(own(&net)[0].clone());
    assert_eq!(net.client.metrics().seal.replayed, 1);
    under_way.into_iter().for_each(|sent| net.deliver(sent));
    net.end(2);
    assert_eq!(net.ended[1..], [Ok(message(200_000))]);
}

/// A server that was started anew has another name: nobody can tell whether the former one has run
/// the call.
#[test]
fn a_call_over_a_restart_is_uncertain() {
    let mut net = net(false);
    assert!(net.call(b"request").is_ok());
    net.begin(b"another");
    let mut lost = VecDeque::new();
    drain(&mut net.client, CLIENT, net.now, &mut lost);
    net.restart_server();
    net.end(2);
    assert_eq!((net.runs, &net.ended[1..]), (1, &[UNCERTAIN][..]));
}

/// Behind a router that was started anew too: the server's refusal ends the call at once, and the
/// next one begins a session that the server can know.
#[test]
fn a_call_over_a_restart_of_router_and_server_ends_at_once() {
    let mut net = net(true);
    assert!(net.call(b"request").is_ok());
    net.restart_server();
    net.router = Some(router(net.now, &net.keys, 1));
    (0..100).for_each(|_| {
        net.turn();
        net.now += MS / 10;
    });
    let begun_at = net.now;
    assert_eq!(net.call(b"another"), UNCERTAIN);
    assert!(net.now - begun_at < 20 * MS, "after {} ns of 500 ms", net.now - begun_at);
    assert!(net.call(b"third").is_ok());
    assert_eq!(net.runs, 2);
}

impl Net {
    /// Goes on until so many calls have ended, for 400 ms at most.
    fn end(&mut self, calls: usize) {
        let by = self.now + 400 * MS;
        while self.ended.len() < calls && self.now < by {
            self.turn();
            self.now += MS / 10;
        }
    }
}

/// Has the client's packet 0 reach `other`, and that one's answer the client as if from its target;
/// what the client sends then.
fn lure(net: &mut Net, other: &mut Endpoint) -> Sent {
    let (mut sent, mut answers) = (VecDeque::new(), VecDeque::new());
    drain(&mut net.client, CLIENT, net.now, &mut sent);
    let path = Path { local: None, peer: at(CLIENT) };
    other.handle_datagram(net.now, path, &mut sent[0].bytes.clone());
    let target = net.target().to_string();
    drain(other, &target, net.now, &mut answers);
    net.deliver(answers.pop_front().unwrap());
    sent.clear();
    drain(&mut net.client, CLIENT, net.now, &mut sent);
    sent.pop_front().unwrap()
}

/// The header of a sealed packet, as if it were open.
fn shown(sent: &Sent) -> Vec<u8> {
    let mut bytes = sent.bytes[..sent.bytes.len() - TRAILER_LEN].to_vec();
    bytes[VERSION_AT] = EXTENSION_VERSION;
    bytes
}

const UNCERTAIN: Result<Vec<u8>, Failure> = Err(Failure::Refused(DropReason::Uncertain));
