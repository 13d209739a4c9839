//! Clients that strangers lead to servers which they have not called, and answers that teach no name.

use super::*;

/// A stranger sends another server what names nobody, and passes its answer on: the client, whose call runs
/// elsewhere, does not ask that server for it by name.
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
        let by = net.now + 100 * MS;
        while net.ended.is_empty() && net.now < by {
            net.turn();
            net.now += MS / 10;
        }
        assert_eq!(net.ended, [Ok(message(len))]);
    }
}

/// Twelve calls name nobody, of which eight may be taught a router's name. An answer to another one is not
/// asked for at once, again and again.
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
    let by = net.now + 100 * MS;
    while net.ended.len() < 12 && net.now < by {
        net.turn();
        net.now += MS / 10;
    }
    assert_eq!(net.ended, vec![Ok(b"request".to_vec()); 12]);
}

/// A request that there is no room for is forgotten: that it will not run cannot be promised.
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
