//! Keys and clocks that change while nodes run.

use super::*;

/// A key of an epoch, which is used from then on.
fn key(epoch: u8, from_ms: u64) -> EpochKey {
    let mut secret = [epoch; 32];
    secret[..8].copy_from_slice(&from_ms.to_be_bytes());
    EpochKey { epoch, from_ms, secret: Secret::new(secret), hop: HopKey::default() }
}

fn group(epochs: Vec<EpochKey>) -> Keys {
    Keys {
        role: Role::Server,
        group: "test".into(),
        cipher: Cipher::Aes128Gcm,
        reset: None,
        epochs,
    }
}

/// Hands newer keys of the group to the nodes of these roles.
fn hand_out(net: &mut Net, keys: &Keys, roles: &[Role]) {
    for &role in roles {
        let keys = keys.for_role(role).unwrap();
        let taken = match role {
            Role::Server => net.server.update_keys(net.now, &keys),
            Role::Router => net.router.as_mut().unwrap().update_keys(net.now, &keys),
            Role::Client(_) => net.client.update_keys(net.now, &keys),
        };
        assert_eq!(taken, Ok(()));
    }
}

const CLIENT_ROLE: Role = Role::Client(17);
const DAY: Time = 86_400_000 * MS;

/// Time passes, in which nodes say what they have to say.
fn pass(net: &mut Net, ms: u64) {
    for _ in 0..ms.div_ceil(10) {
        net.turn();
        net.now += 10 * MS;
    }
}

/// The wall clock of each node is set: off by so much, ns, from one that is ahead of nodes' time by
/// a day.
fn set_clocks(net: &mut Net, [client, router, server]: [i64; 3]) {
    let shown = |off: i64| net.now + DAY.strict_add_signed(off);
    net.client.handle_wall_clock(net.now, shown(client));
    net.server.handle_wall_clock(net.now, shown(server));
    if let Some(node) = &mut net.router {
        node.handle_wall_clock(net.now, shown(router));
    }
}

/// Numbers of epochs come again, and files have three keys each: no call is lost, whoever gets its
/// keys first.
#[test]
fn no_call_is_lost_by_three_hundred_rotations() {
    const EVERY_MS: u64 = 1_000;
    let from_ms = |at: u64| START / MS + at * EVERY_MS;
    let file = |at: u64| {
        let span = at.saturating_sub(1)..=at + 1;
        group(span.map(|at| key((at % 256) as u8, from_ms(at))).collect())
    };
    let mut net = Net::new(file(0), true);
    pass(&mut net, 30);
    let roles = [Role::Server, Role::Router, CLIENT_ROLE];
    for at in 0..300 {
        // By turns each is the last to get them, after the epoch has begun.
        let late = at as usize % 3;
        let calls = |net: &mut Net| {
            for len in [10, 3_000] {
                let payload = message(len);
                assert_eq!(net.call(&payload), Ok(payload), "epoch {at}");
            }
        };
        hand_out(&mut net, &file(at), &[roles[(late + 1) % 3]]);
        calls(&mut net);
        hand_out(&mut net, &file(at), &[roles[(late + 2) % 3]]);
        calls(&mut net);
        hand_out(&mut net, &file(at), &[roles[late]]);
        calls(&mut net);
        let left_ms = from_ms(at + 1).saturating_sub(net.now / MS);
        pass(&mut net, left_ms);
    }
    let epoch = |sent: &Sent| sent.bytes[sent.bytes.len() - 13];
    let of_client = net.log.iter().filter(|sent| sent.from == at(CLIENT));
    assert_eq!(of_client.map(epoch).collect::<BTreeSet<u8>>().len(), 256);
    assert_eq!(dropped(net.server.metrics().seal), SealMetrics::default());
    assert_eq!(dropped(net.client.metrics().seal), SealMetrics::default());
    assert_eq!(dropped(net.router.as_ref().unwrap().metrics().seal), SealMetrics::default());
}

/// A request that has been taken is answered, though its epoch is in no file any more when it is,
/// and is not accepted either.
#[test]
fn a_call_in_progress_is_answered_under_the_keys_that_it_began_with() {
    let old = group(vec![key(1, 0)]);
    let mut net = Net::new(old, false);
    let options = CallOptions::default();
    let (now, deadline) = (net.now, net.now + 5_000 * MS);
    let call = Call { target: at(SERVER), payload: vec![7], deadline, context: 0, options };
    net.client.call(now, call).unwrap();
    // It has been told whom to name, and what names it arrives: nobody answers yet.
    let mut under_way = VecDeque::new();
    for _ in 0..2 {
        net.collect(&mut under_way);
        for mut sent in under_way.drain(..) {
            let path = Path { local: None, peer: sent.from };
            match sent.to == at(SERVER) {
                true => net.server.handle_datagram(now, path, &mut sent.bytes),
                false => net.client.handle_datagram(now, path, &mut sent.bytes),
            }
        }
        net.collect(&mut under_way);
        for mut sent in under_way.drain(..).filter(|sent| sent.to == at(CLIENT)) {
            let path = Path { local: None, peer: at(SERVER) };
            net.client.handle_datagram(now, path, &mut sent.bytes);
        }
    }
    for (epoch, at) in [(2, 500), (3, 1_000), (4, 1_500)] {
        net.now += 500 * MS;
        let new = group(vec![key(epoch, START / MS + at)]);
        hand_out(&mut net, &new, &[Role::Server, CLIENT_ROLE]);
    }
    assert_eq!(net.runs, 0, "it is only now that the application looks");
    net.take_events();
    net.turn();
    assert_eq!((net.runs, &net.ended[..]), (1, &[Ok(vec![7])][..]));
    assert_eq!(net.call(b"next"), Ok(b"next".to_vec()));
    let epoch = |sent: &&Sent| sent.bytes[sent.bytes.len() - 13];
    let last = net.log.iter().rfind(|sent| sent.from == at(CLIENT)).as_ref().map(epoch);
    assert_eq!(last, Some(4), "sessions begin under what is current");
}

#[test]
fn what_is_no_longer_needed_is_dropped() {
    let of = |epochs: &[(u8, u64)]| group(epochs.iter().map(|&(at, from)| key(at, from)).collect());
    let numbers = |keys: &Keys| keys.epochs.iter().map(|key| key.epoch).collect::<Vec<_>>();
    let old = of(&[(1, 0), (2, 10_000), (3, 20_000), (4, 30_000)]);
    let new = of(&[(4, 30_000), (5, 40_000)]);
    // The first has not been accepted since the third began.
    let at = |wall_ms| numbers(&old.followed_by(&new, wall_ms).unwrap());
    assert_eq!(at(20_000 + EPOCH_KEPT_MS - 1), [1, 2, 3, 4, 5]);
    assert_eq!(at(20_000 + EPOCH_KEPT_MS), [2, 3, 4, 5]);
    assert_eq!(at(30_000 + EPOCH_KEPT_MS), [3, 4, 5]);
    // One that has not begun, and is in the newer ones no more, is nobody's.
    assert_eq!(numbers(&old.followed_by(&of(&[(1, 0)]), 15_000).unwrap()), [1, 2]);
}

/// As of a node that was idle, or had no newer keys, for long.
#[test]
fn a_key_that_is_over_by_newer_ones_makes_room_for_another_of_its_number() {
    let old = group(vec![key(1, 0)]);
    let new = |from_ms| group(vec![key(2, 10_000), key(3, 20_000), key(1, from_ms)]);
    let at = |wall_ms, from_ms| old.followed_by(&new(from_ms), wall_ms);
    let refused = Err(ChangedKeys::Epoch { epoch: 1 });
    assert_eq!(at(20_000 + EPOCH_KEPT_MS - 1, 30_000), refused, "calls in progress may need it");
    assert_eq!(at(20_000 + EPOCH_KEPT_MS, 30_000), Ok(new(30_000)));
    // Two begin after it, and not itself and one more.
    let new = group(vec![key(9, 0), key(2, 10_000)]);
    assert_eq!(old.followed_by(&new, 10_000 + EPOCH_KEPT_MS), refused);
    let new = group(vec![key(2, 10_000), key(3, 20_000)]);
    assert_eq!(old.followed_by(&new, 20_000 + EPOCH_KEPT_MS), Ok(new), "it is dropped");
}

#[test]
fn a_key_that_has_begun_is_kept_though_newer_keys_are_without_it() {
    let old = group(vec![key(1, 0), key(2, 15_000)]);
    let new = group(vec![key(1, 0)]);
    assert_eq!(old.followed_by(&new, 14_999), Ok(new.clone()));
    assert_eq!(old.followed_by(&new, 15_000), Ok(old.clone()), "clients may use it");
}

#[test]
fn keys_of_others_are_refused_and_change_nothing() {
    let old = group(vec![key(1, 0), key(2, 50_000)]);
    let check = |new: &Keys, error: &str| {
        assert_eq!(old.followed_by(new, 60_000).unwrap_err().to_string(), error);
    };
    let router = old.for_role(Role::Router).unwrap();
    check(&router, "the keys are of router, and were of server: that takes a restart");
    let other = Keys { group: "other".into(), ..old.clone() };
    check(&other, "the keys are of the group other, and were of test: that takes a restart");
    let other = Keys { cipher: Cipher::ChaCha20Poly1305, ..old.clone() };
    check(
        &other,
        "the keys are for chacha20-poly1305, and were for aes-128-gcm: that takes a restart",
    );
    let problem = "epoch 2 has another key or time than before: that takes a restart";
    check(&group(vec![key(1, 0), key(2, 60_000)]), problem);
    check(&group(vec![key(1, 0), key(3, 50_000)]), problem);

    let mut net = Net::new(old.clone(), false);
    let client = old.for_role(Role::Client(18)).unwrap();
    let refused = net.client.update_keys(net.now, &client).unwrap_err().to_string();
    assert_eq!(refused, "the keys are of client 18, and were of client 17: that takes a restart");
    assert_eq!(net.call(b"request"), Ok(b"request".to_vec()));
    assert_eq!(net.clients, [Some(17)]);
}

/// As after a suspension, of a host whose monotonic clock was stopped.
#[test]
fn a_clock_that_is_read_again_mends_what_was_off() {
    const HOUR: i64 = 3_600_000 * MS as i64;
    for off in [[-HOUR, 0, 0], [HOUR, 0, 0], [0, -HOUR, 0], [0, 0, -HOUR]] {
        let mut net = Net::new(group(vec![key(1, 0)]), true);
        set_clocks(&mut net, [0; 3]);
        pass(&mut net, 30);
        net.call(b"well").unwrap();
        set_clocks(&mut net, off);
        // A session that is known goes on for ten minutes.
        net.now += 11 * 60_000 * MS;
        pass(&mut net, 300);
        assert_ne!(net.call(b"off"), Ok(b"off".to_vec()), "{off:?}");
        set_clocks(&mut net, [0; 3]);
        let _ = net.call(b"an answer that the session is too old costs a call");
        assert_eq!(net.call(b"mended"), Ok(b"mended".to_vec()), "{off:?}");
    }
}

/// A server whose clock was ahead when it started takes sessions for older than itself, until its
/// clock is set, and nothing of before its start can be under way.
#[test]
fn a_server_that_started_by_a_clock_that_was_ahead_serves_once_that_is_set() {
    let mut net = Net::new(group(vec![key(1, 0)]), false);
    let mut seal = sealing(&net.keys, Role::Server).unwrap();
    set_clocks(&mut net, [0; 3]);
    seal.clock_ns = DAY + 3_600_000 * MS;
    net.server =
        Endpoint::new(net.now, Config { seal: Some(seal), secret: [6; 16], ..Config::default() });
    let refused = Err(Failure::Refused(DropReason::Uncertain));
    assert_eq!(net.call(b"before"), refused);
    set_clocks(&mut net, [0; 3]);
    assert_eq!(net.call(b"a call of before the start may be under way"), refused);
    net.now += EPOCH_KEPT_MS * MS;
    set_clocks(&mut net, [0; 3]);
    assert_eq!(net.call(b"after"), Ok(b"after".to_vec()));
}

/// Requests that a router has placed, and remembers no more, are young again by a clock that is set
/// back: they are for a name that the router has no longer.
#[test]
fn nothing_recorded_is_placed_again_by_a_clock_that_is_set_back() {
    let mut net = net(true);
    set_clocks(&mut net, [0; 3]);
    pass(&mut net, 30);
    net.log.clear();
    let before = net.now;
    for len in [10, 3_000, 20] {
        net.call(&message(len)).unwrap();
    }
    let recorded: Vec<Sent> =
        net.log.iter().filter(|sent| sent.to == at(ROUTER)).cloned().collect();
    net.now += 1_000 * MS;
    pass(&mut net, 300);
    let back = -((net.now - before) as i64);
    set_clocks(&mut net, [0, back, 0]);
    let before = net.router.as_ref().unwrap().metrics();
    for sent in recorded {
        net.deliver(sent);
    }
    net.turn();
    let after = net.router.as_ref().unwrap().metrics();
    assert_eq!((after.forwarded, net.runs), (before.forwarded, 3), "{:?}", after.seal);
    assert!(after.seal.forged - before.seal.forged >= 3, "{:?}", after.seal);
    // It is named anew, by who is set back as well.
    set_clocks(&mut net, [back, back, back]);
    let _ = net.call(b"a session of before");
    assert_eq!(net.call(b"after"), Ok(b"after".to_vec()));
}
