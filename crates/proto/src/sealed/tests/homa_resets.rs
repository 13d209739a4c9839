//! Packets of Homa of whose epoch a server has no key.

use tailcut_wire::homa::PacketType;
use tailcut_wire::homa::sealed::{MARK_AT, RESET_MARK};

use super::homa::{Nodes, UNCERTAIN, kind_of};
use super::resets::group;
use super::*;
use crate::sealed::limits::HOMA_ANSWER_LEN;

const NO_KEY: Failure = Failure::Refused(DropReason::NoKey);

/// A client and a server, that each have keys of these epochs.
fn apart(of_client: &[u8], of_server: &[u8]) -> Nodes {
    let mut nodes = Nodes::new(group(of_client));
    nodes.keys = group(of_server);
    nodes.restart_server();
    nodes
}

fn answers(nodes: &Nodes) -> Vec<Sent> {
    let is_answer =
        |sent: &&Sent| sent.bytes.len() == HOMA_ANSWER_LEN && sent.bytes[MARK_AT] == RESET_MARK;
    nodes.log.iter().filter(is_answer).cloned().collect()
}

fn lost(nodes: &mut Nodes) -> [LostKeys; 2] {
    [CLIENT, SERVER].map(|address| nodes.at(address).lost_keys())
}

/// The one answer to a call that begins, on its way to the client.
fn first_answer(nodes: &mut Nodes) -> Sent {
    nodes.begin(CLIENT, b"request", false);
    nodes.is_blocked = |sent| sent.to == at(CLIENT);
    nodes.turn();
    nodes.is_blocked = |_| false;
    let [answer] = &answers(nodes)[..] else { panic!("one answer") };
    answer.clone()
}

#[test]
fn a_call_goes_again_under_the_key_that_its_server_has() {
    for is_idempotent in [false, true] {
        for len in [0, 10, 3_000, 300_000] {
            let mut nodes = apart(&[7, 8], &[7]);
            nodes.begin(CLIENT, &message(len), is_idempotent);
            nodes.turn();
            assert_eq!(nodes.ended, [Ok(message(len))], "without a timeout");
            let [answer] = &answers(&nodes)[..] else { panic!("one answer") };
            check_vectors("homa-resets.txt", &vectors(&group(&[7, 8]), &nodes.log[..2]));
            let request = nodes.log.iter().find(|sent| sent.to == at(SERVER)).expect("it was sent");
            assert!(answer.bytes.len() <= request.bytes.len());
            let [of_client, of_server] = lost(&mut nodes);
            assert_eq!(of_server, LostKeys { sent: 1, received: 0, epoch: 8 });
            assert_eq!(of_client, LostKeys { sent: 0, received: 1, epoch: 8 });
        }
    }
}

/// Others are not asked under that key for a while, and then again.
#[test]
fn an_epoch_is_left_alone_for_a_while() {
    let mut nodes = apart(&[7, 8], &[7]);
    for (after_ms, received) in [(0, 1), (1, 1), (4_000, 1), (1_500, 2)] {
        nodes.now += after_ms * MS;
        nodes.begin(CLIENT, b"request", true);
        nodes.turn();
        assert_eq!(nodes.ended.last(), Some(&Ok(b"request".to_vec())));
        assert_eq!(lost(&mut nodes)[0].received, received, "after {after_ms} ms more");
    }
    let now = nodes.now;
    nodes.at(SERVER).update_keys(now, &group(&[7, 8])).unwrap();
    nodes.now += 5_001 * MS;
    assert!(nodes.call(b"next").is_ok());
    assert_eq!(lost(&mut nodes)[0].received, 2, "the key has come");
}

/// Each time that the epoch is tried again a call asks who is there first, and so may go again.
#[test]
fn no_call_is_lost_while_a_server_has_not_the_key_of_now() {
    let mut nodes = apart(&[7, 8], &[7]);
    for round in 1..=4 {
        for after_ms in [0, 1, 4_990] {
            nodes.now += after_ms * MS;
            assert_eq!(nodes.call(b"once"), Ok(b"once".to_vec()), "{after_ms} ms later");
        }
        assert_eq!(lost(&mut nodes)[0].received, round);
        nodes.now += 10 * MS;
    }
}

#[test]
fn a_call_ends_at_once_where_no_key_is_there() {
    let mut nodes = apart(&[7, 8], &[3]);
    nodes.begin(CLIENT, b"request", false);
    nodes.turn();
    assert_eq!((&nodes.ended[..], nodes.runs.len()), (&[Err(NO_KEY)][..], 0));
    assert_eq!(answers(&nodes).len(), 2, "under either key");
    assert_eq!(nodes.at(CLIENT).holdings(), Default::default());
    let now = nodes.now;
    nodes.at(SERVER).update_keys(now, &group(&[7, 8])).unwrap();
    nodes.now += 5_001 * MS;
    assert!(nodes.call(b"next").is_ok());
}

/// Requests may have run under a key that the node has, and does not accept.
#[test]
fn an_epoch_that_is_over_is_answered_as_uncertain() {
    let mut nodes = apart(&[2, 3], &[3, 4, 5, 6]);
    assert_eq!(nodes.call(b"request"), Err(UNCERTAIN));
    nodes.begin(CLIENT, b"request", true);
    assert_eq!(nodes.end(), Err(NO_KEY));
}

/// The node that is there by now cannot tell what ran at the one before; nor may a call that has
/// gone by the name of the node that answers go again, since it runs once the key is there.
#[test]
fn a_call_that_has_gone_by_a_name_may_have_run() {
    for is_idempotent in [false, true] {
        let mut nodes = Nodes::new(group(&[7]));
        assert!(nodes.call(b"first").is_ok());
        let (now, newer) = (nodes.now, group(&[7, 8]));
        nodes.at(CLIENT).update_keys(now, &newer.for_role(Role::Client(17)).unwrap()).unwrap();
        nodes.begin(CLIENT, b"second", is_idempotent);
        nodes.turn();
        let ended = if is_idempotent { Ok(b"second".to_vec()) } else { Err(UNCERTAIN) };
        assert_eq!(nodes.ended.last(), Some(&ended));
        assert_eq!((answers(&nodes).len(), nodes.runs.len()), (1, 1 + usize::from(is_idempotent)));
        let recorded = nodes.log.clone();
        nodes.at(SERVER).update_keys(now, &newer).unwrap();
        let runs = |nodes: &Nodes| nodes.runs.iter().filter(|run| run.2 == b"second").count();
        for sent in recorded.iter().chain(&recorded) {
            nodes.deliver(sent.clone());
        }
        nodes.pass(1);
        assert!(
            runs(&nodes) <= 1 + usize::from(is_idempotent),
            "who has recorded it sends it again"
        );
        assert!(nodes.call(b"third").is_ok());
    }
}

#[test]
fn no_changed_answer_ends_a_call() {
    let mut nodes = apart(&[8], &[3]);
    let genuine = first_answer(&mut nodes);
    for bit in 0..8 * HOMA_ANSWER_LEN {
        let mut changed = genuine.clone();
        changed.bytes[bit / 8] ^= 1 << (bit % 8);
        nodes.deliver(changed);
    }
    for len in 0..HOMA_ANSWER_LEN {
        let bytes = genuine.bytes[..len].to_vec();
        nodes.deliver(Sent { bytes, ..genuine.clone() });
    }
    assert!(nodes.ended.is_empty() && lost(&mut nodes)[0].received == 0);
    nodes.deliver(genuine.clone());
    assert_eq!(nodes.ended, [Err(NO_KEY)]);
    // What was recorded is of a call that has ended.
    nodes.begin(CLIENT, b"next", false);
    nodes.deliver(genuine);
    assert_eq!((nodes.ended.len(), lost(&mut nodes)[0].received), (1, 1));
}

/// A packet by name arrives, runs, and its reply is lost; the answer to an earlier one, which was
/// held back, says that this one has not run.
#[test]
fn an_answer_that_was_held_back_has_nothing_run_twice() {
    let mut nodes = apart(&[8], &[3]);
    let held_back = first_answer(&mut nodes);
    // The server has the key by now: it runs what is sent again.
    let now = nodes.now;
    nodes.at(SERVER).update_keys(now, &group(&[3, 8])).unwrap();
    nodes.is_blocked = |sent| sent.to == at(CLIENT) && is_data(sent);
    for _ in 0..400 {
        nodes.turn();
        nodes.now += MS / 10;
        if !nodes.runs.is_empty() {
            break;
        }
    }
    assert_eq!((nodes.runs.len(), nodes.ended.len()), (1, 0), "it has run, and nobody knows");
    nodes.deliver(held_back);
    nodes.turn();
    assert_eq!((nodes.runs.len(), &nodes.ended[..]), (1, &[Err(UNCERTAIN)][..]));
}

fn is_data(sent: &Sent) -> bool {
    kind_of(sent) == PacketType::Data
}

#[test]
fn without_a_reset_secret_nothing_is_answered_and_nothing_believed() {
    let without = |epochs: &[u8]| Keys { reset: None, ..group(epochs) };
    for (of_client, of_server) in
        [(without(&[8]), group(&[3])), (group(&[8]), without(&[3])), (without(&[8]), without(&[3]))]
    {
        let is_answered = of_server.reset.is_some();
        let mut nodes = Nodes::new(of_client);
        nodes.keys = of_server;
        nodes.restart_server();
        assert_eq!(nodes.call(b"request"), Err(Failure::Deadline));
        assert_eq!(answers(&nodes).is_empty(), !is_answered);
        assert_eq!(lost(&mut nodes)[0].received, 0);
    }
}

/// Strangers' packets have a thousand answers a second, and some saved up.
#[test]
fn answers_are_paced_and_only_what_waits_is_answered() {
    let mut nodes = apart(&[8], &[3]);
    first_answer(&mut nodes);
    let asked = nodes.log.iter().find(|sent| sent.to == at(SERVER)).expect("a question").clone();
    nodes.log.clear();
    nodes.is_blocked = |sent| sent.to == at(CLIENT);
    for _ in 0..10_000 {
        nodes.deliver(asked.clone());
        if nodes.now.is_multiple_of(MS) {
            nodes.turn();
        }
        nodes.now += MS / 100;
    }
    nodes.turn();
    let count = answers(&nodes).len();
    assert!((100..=132).contains(&count), "{count} answers in 100 ms");
    nodes.now += 100 * MS;
    nodes.log.clear();
    // Not its own form, another type, an answer, and where nobody is.
    for (place, value) in [(MARK_AT, RESET_MARK), (11, 0x13), (11, 0x18), (27, asked.bytes[27] ^ 1)]
    {
        let mut other = asked.clone();
        other.bytes[place] = value;
        nodes.deliver(other);
    }
    nodes.deliver(Sent { from: at("224.0.0.1:9"), ..asked });
    nodes.turn();
    assert_eq!(answers(&nodes).len(), 0);
}
