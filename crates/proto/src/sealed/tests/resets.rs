//! Requests of whose epoch a server or a router has no key.

use tailcut_wire::r2p2::Route;
use tailcut_wire::r2p2::sealed::VERSION_AT;

use super::*;

/// The group's keys of these epochs, of which the last is current.
pub(super) fn group(epochs: &[u8]) -> Keys {
    let key = |epoch: u8| EpochKey {
        epoch,
        from_ms: u64::from(epoch) * 1_000,
        secret: Secret::new([epoch; 32]),
        hop: HopKey::default(),
    };
    let reset = Some(HopKey::new([9; 16]));
    Keys {
        reset,
        epochs: epochs.iter().map(|&epoch| key(epoch)).collect(),
        ..keys(CIPHER, u64::MAX)
    }
}

const CIPHER: Cipher = Cipher::Aes128Gcm;

/// A client and a server, that each have keys of these epochs.
fn apart(of_client: &[u8], of_server: &[u8]) -> Net {
    let mut net = Net::new(group(of_client), false);
    net.server = server(net.now, &group(of_server), 4);
    net.now += 2 * MS;
    net
}

/// A call that may run twice.
fn idempotent(net: &mut Net) -> Result<Vec<u8>, Failure> {
    let options = CallOptions { idempotent: true, ..CallOptions::default() };
    let (target, deadline) = (net.target(), net.now + 500 * MS);
    let call = Call { target, payload: vec![7], deadline, context: 0, options };
    net.client.call(net.now, call).unwrap();
    net.turn();
    net.ended.last().cloned().expect("it has ended")
}

fn answers(net: &Net) -> Vec<Sent> {
    net.log.iter().filter(|sent| reset::is_answer(&sent.bytes)).cloned().collect()
}

/// The one answer to a call that begins, on its way to the client.
fn first_answer(net: &mut Net) -> Sent {
    net.begin(b"request");
    let mut under_way = VecDeque::new();
    net.collect(&mut under_way);
    under_way.drain(..).for_each(|sent| net.deliver(sent));
    net.collect(&mut under_way);
    let answer = under_way.pop_front().expect("the answer");
    assert!(under_way.is_empty() && reset::is_answer(&answer.bytes));
    answer
}

const NO_KEY: Result<Vec<u8>, Failure> = Err(Failure::Refused(DropReason::NoKey));
const UNCERTAIN: Result<Vec<u8>, Failure> = Err(Failure::Refused(DropReason::Uncertain));

#[test]
fn a_call_goes_again_under_the_key_that_its_server_has() {
    let mut net = apart(&[7, 8], &[7]);
    net.begin(b"request");
    net.turn();
    assert_eq!(net.ended, [Ok(b"request".to_vec())], "without a timeout");
    let [answer] = &answers(&net)[..] else { panic!("one answer") };
    let request = net.log.iter().find(|sent| sent.to == at(SERVER)).expect("it was sent");
    assert!(answer.bytes.len() == ANSWER_LEN && ANSWER_LEN <= request.bytes.len());
    check_vectors("resets.txt", &vectors(&net.keys, &net.log[..2]));
    let lost = LostKeys { sent: 1, received: 0, epoch: 8 };
    assert_eq!(net.server.lost_keys(), lost);
    assert_eq!(net.client.lost_keys(), LostKeys { sent: 0, received: 1, ..lost });
    // Others are not asked under that key for a while, and then again.
    for (after_ms, received) in [(1, 1), (4_000, 1), (1_500, 2)] {
        net.now += after_ms * MS;
        assert!(idempotent(&mut net).is_ok());
        assert_eq!(net.client.lost_keys().received, received);
    }
    net.server.update_keys(net.now, &group(&[7, 8])).unwrap();
    net.now += 5_001 * MS;
    assert!(net.call(b"next").is_ok());
    assert_eq!(net.client.lost_keys().received, 2, "the key has come");
}

/// Each time that the epoch is tried again a call asks who is there first, and so may go again.
#[test]
fn no_call_is_lost_while_a_server_has_not_the_key_of_now() {
    let mut net = apart(&[7, 8], &[7]);
    for round in 1..=4 {
        for after_ms in [0, 1, 4_990] {
            net.now += after_ms * MS;
            assert_eq!(net.call(b"once"), Ok(b"once".to_vec()), "{after_ms} ms later");
        }
        assert_eq!(net.client.lost_keys().received, round);
        net.now += 10 * MS;
    }
}

#[test]
fn a_call_ends_at_once_where_no_key_is_there() {
    let mut net = apart(&[7, 8], &[3]);
    net.begin(b"request");
    net.turn();
    assert_eq!((&net.ended[..], net.runs), (&[NO_KEY][..], 0));
    assert_eq!(answers(&net).len(), 2, "under either key");
    // The servers get theirs.
    net.server.update_keys(net.now, &group(&[7, 8])).unwrap();
    net.now += 5_001 * MS;
    assert!(net.call(b"next").is_ok());
}

/// Requests may have run under a key that the node has, and does not accept.
#[test]
fn an_epoch_that_is_over_is_answered_as_uncertain() {
    let mut net = apart(&[2, 3], &[3, 4, 5, 6]);
    assert_eq!(net.call(b"request"), UNCERTAIN);
    assert_eq!(idempotent(&mut net), NO_KEY);
}

/// The node that is there by now cannot tell what ran at the one before.
#[test]
fn a_call_that_has_gone_by_another_name_may_have_run() {
    for may_run_twice in [false, true] {
        let mut net = Net::new(group(&[7, 8]), false);
        assert!(net.call(b"first").is_ok());
        net.server = server(net.now, &group(&[3]), 4);
        if may_run_twice {
            assert_eq!(idempotent(&mut net), NO_KEY);
        } else {
            net.begin(b"second");
            net.turn();
            assert_eq!(net.ended.last(), Some(&UNCERTAIN));
            // The next one asks who is there.
            net.now += 6_000 * MS;
            assert_eq!(net.call(b"third"), NO_KEY);
        }
        assert_eq!(net.runs, 1);
    }
}

/// A call that has gone by the name of the node that answers has not run, but may once the key is
/// there: it does not go again.
#[test]
fn a_call_by_the_name_of_who_answers_may_run_later() {
    let old = group(&[7]);
    let mut net = Net::new(old, false);
    assert!(net.call(b"first").is_ok());
    net.client.update_keys(net.now, &group(&[7, 8]).for_role(Role::Client(17)).unwrap()).unwrap();
    net.log.clear();
    net.begin(b"second");
    net.turn();
    assert_eq!((net.ended.last(), net.runs), (Some(&UNCERTAIN), 1));
    assert_eq!(answers(&net).len(), 1);
    // Who has recorded it sends it again.
    net.server.update_keys(net.now, &group(&[7, 8])).unwrap();
    let recorded = net.log.iter().find(|sent| sent.to == at(SERVER)).expect("it was sent").clone();
    for _ in 0..2 {
        net.deliver(recorded.clone());
        net.turn();
    }
    assert_eq!(net.runs, 2, "once, and its client knows that it may have");
    assert!(net.call(b"third").is_ok());
}

#[test]
fn no_changed_answer_ends_a_call() {
    let mut net = apart(&[8], &[3]);
    let genuine = first_answer(&mut net);
    for bit in 0..8 * ANSWER_LEN {
        let mut changed = genuine.clone();
        changed.bytes[bit / 8] ^= 1 << (bit % 8);
        net.deliver(changed);
    }
    for len in 0..ANSWER_LEN {
        let bytes = genuine.bytes[..len].to_vec();
        net.deliver(Sent { bytes, ..genuine.clone() });
    }
    assert!(net.ended.is_empty() && net.client.lost_keys().received == 0);
    net.deliver(genuine.clone());
    assert_eq!(net.ended, [NO_KEY]);
    // What was recorded is of a call that has ended.
    net.begin(b"next");
    net.deliver(genuine);
    assert_eq!((net.ended.len(), net.client.lost_keys().received), (1, 1));
}

/// A client's reset key is of no use to forge what others hear.
#[test]
fn an_answer_is_for_one_client() {
    let mut net = apart(&[8], &[3]);
    let all = group(&[8]);
    let [own, other] = [17, 18].map(|n| all.for_role(Role::Client(n)).unwrap().reset.unwrap());
    assert!(own != other && all.for_role(Role::Router).unwrap().reset == all.reset);
    net.client = {
        let keys = Keys { reset: Some(other), ..all.for_role(Role::Client(17)).unwrap() };
        let seal = Some(Sealing::new(Arc::new(keys), 0));
        Endpoint::new(net.now, Config { secret: [1; 16], seal, ..Config::default() })
    };
    assert_eq!(net.call(b"request"), Err(Failure::Deadline));
    assert!(net.client.metrics().seal.forged > 0);
}

/// A packet by name arrives, runs, and its reply is lost; the answer to an earlier one, which was
/// held back, says that this one has not run.
#[test]
fn an_answer_that_was_held_back_has_nothing_run_twice() {
    let mut net = apart(&[8], &[3]);
    let (held_back, mut under_way) = (first_answer(&mut net), VecDeque::new());
    // The server has the key by now: it runs what is sent again.
    net.server.update_keys(net.now, &group(&[3, 8])).unwrap();
    for _ in 0..40 {
        net.now += MS;
        net.client.handle_timeout(net.now);
        net.collect(&mut under_way);
        let is_reply =
            |sent: &Sent| sent.to == at(CLIENT) && sent.bytes.len() < 100 && net.runs > 0;
        under_way.retain(|sent| !is_reply(sent));
        while let Some(sent) = under_way.pop_front() {
            net.deliver(sent);
        }
        if net.runs > 0 {
            break;
        }
    }
    assert_eq!((net.runs, net.ended.len()), (1, 0), "it has run, and its client knows nothing");
    net.deliver(held_back);
    net.turn();
    assert_eq!((net.runs, &net.ended[..]), (1, &[UNCERTAIN][..]));
}

#[test]
fn without_a_reset_secret_nothing_is_answered_and_nothing_believed() {
    let without = |epochs: &[u8]| Keys { reset: None, ..group(epochs) };
    for (of_client, of_server) in
        [(without(&[8]), group(&[3])), (group(&[8]), without(&[3])), (without(&[8]), without(&[3]))]
    {
        let mut net = Net::new(of_client.clone(), false);
        net.server = server(net.now, &of_server, 4);
        assert_eq!(net.call(b"request"), Err(Failure::Deadline));
        let is_answered = of_server.reset.is_some();
        assert_eq!(answers(&net).is_empty(), !is_answered);
        assert_eq!(net.client.lost_keys().received, 0);
        let text = of_client.to_text();
        assert_eq!(text.contains("reset"), of_client.reset.is_some());
        assert_eq!(text.parse(), Ok(of_client));
    }
}

/// Strangers' requests have a thousand answers a second, and some saved up.
#[test]
fn answers_are_paced() {
    let mut net = apart(&[8], &[3]);
    net.begin(b"request");
    let mut under_way = VecDeque::new();
    net.collect(&mut under_way);
    let request = under_way.pop_front().expect("a request");
    let mut count = 0;
    for _ in 0..10_000 {
        net.deliver(request.clone());
        net.collect(&mut under_way);
        count += under_way.drain(..).filter(|sent| sent.to == at(CLIENT)).count();
        net.now += MS / 100;
    }
    assert!((100..=132).contains(&count), "{count} answers in 100 ms");
    assert_eq!(net.server.metrics().seal.unknown_keys, 10_000);
    // Nothing but requests is answered, and none to where nobody is.
    net.now += 100 * MS;
    for (place, value) in [(2, 0x30), (VERSION_AT, 3), (VERSION_AT, 5)] {
        let mut other = request.clone();
        other.bytes[place] = value;
        net.deliver(other);
    }
    net.deliver(Sent { from: at("224.0.0.1:9"), ..request.clone() });
    // Nor to where somebody says who is no router.
    let mut elsewhere = request.clone();
    let route = Route { routed: 1, ..Route::to_client(at(STRANGER)) };
    elsewhere.bytes[48..72].copy_from_slice(route.as_bytes());
    net.deliver(elsewhere);
    net.collect(&mut under_way);
    assert!(under_way.is_empty());
}

/// A router that lacks a key, and a server that lacks it behind one which has it.
#[test]
fn routers_and_servers_behind_them_answer_clients() {
    let mut net = Net::new(group(&[7]), true);
    for _ in 0..20 {
        net.turn();
        net.now += MS;
    }
    net.client.update_keys(net.now, &group(&[7, 8]).for_role(Role::Client(17)).unwrap()).unwrap();
    net.begin(b"request");
    net.turn();
    assert_eq!(net.ended, [Ok(b"request".to_vec())]);
    let lost = LostKeys { sent: 1, received: 0, epoch: 8 };
    assert_eq!(net.router.as_ref().unwrap().lost_keys(), lost);

    // The next key, by a client whose clock is ahead, within what is forgiven.
    let mut next = group(&[7, 8]);
    next.epochs[1].from_ms = START / MS + 100;
    let mut net = Net::new(next, true);
    net.server = server(net.now, &group(&[7]), 4);
    for _ in 0..40 {
        net.turn();
        net.now += MS;
    }
    net.client.handle_wall_clock(net.now, net.now + 60 * MS);
    net.begin(b"request");
    net.turn();
    assert_eq!((&net.ended[..], net.server.lost_keys()), (&[UNCERTAIN][..], lost));
    assert!(net.log.iter().all(|sent| !reset::is_answer(&sent.bytes) || sent.to == at(CLIENT)));
    net.now += 5_001 * MS;
    net.client.handle_wall_clock(net.now, START + 110 * MS);
    assert_eq!(idempotent(&mut net), Ok(vec![7]));
}
