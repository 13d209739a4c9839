//! The seal of a client by itself.

use tailcut_wire::r2p2::{Flags, RequestRepr, SessionId};

use super::seals::*;
use super::*;
use crate::sealed::keys::Master;

/// An address where nothing has been heard.
const NOBODY: &str = "10.0.0.77:7000";

/// Later than a target is believed to be there without being heard.
const SILENCE: Time = 30 * MS;

impl Seals {
    /// True if what the client sends again still names the node at [`SERVER`].
    fn is_believed(&self) -> bool {
        self.client.name(self.now, at(SERVER), true) != 0
    }

    /// The client opens what comes from an address.
    fn comes(&mut self, from: &str, bytes: &[u8]) -> bool {
        self.client.open(self.now, at(from), &mut bytes.to_vec()).is_some()
    }

    /// A server is asked by a request for nobody, and answers as to that.
    fn answer_of(&mut self, server: &mut EndpointSeal, repr: &ReplyRepr, granted: u16) -> Vec<u8> {
        let mut asking = self.of_client(NOBODY, &request(repr.rpc_id.sequence()));
        assert!(server.open(self.now, at(CLIENT), &mut asking).is_some());
        answer(server, self.now, repr, &sack(granted))
    }

    fn another_server(&self) -> EndpointSeal {
        endpoint(&of_role(&self.keys, Role::Server), 9)
    }
}

/// A call may outlast the session in which it began; but not everything is kept.
#[test]
fn calls_of_earlier_sessions_go_on() {
    let mut seals = Seals::new();
    let is_sealed = |seals: &mut Seals, later: u64| {
        let rpc_id = RpcId::new(SessionId(SESSION + later), 1);
        let mut bytes = to_server(&RequestRepr { rpc_id, ..request(1) });
        seals.client.seal(seals.now, at(SERVER), &mut bytes)
    };
    for later in 1..10 {
        seals.client.note_session(seals.now, SESSION + later);
        assert!((0..=later).all(|before| is_sealed(&mut seals, before)), "{later}");
    }
    (10..1_000).for_each(|later| seals.client.note_session(seals.now, SESSION + later));
    assert!(!is_sealed(&mut seals, 0) && is_sealed(&mut seals, 999));
}

#[test]
fn what_is_for_one_hop_and_no_routers_word_is_not_taken() {
    let mut seals = Seals::new();
    let plain = seals.of_router(&ack(1), &sack(1));
    assert!(!seals.comes(ROUTER, &plain), "an ACK that holds nothing");
    let held = seals.held(1, 1);
    assert!(seals.comes(ROUTER, &held));
    assert_eq!(seals.client.metrics(), SealMetrics { unsealed: 1, ..SealMetrics::default() });
}

/// Nothing is derived for what cannot be for a client.
#[test]
fn a_packet_of_another_direction_is_dropped_as_such() {
    let mut seals = Seals::new();
    let own = seals.of_client(SERVER, &request(1));
    assert!(!seals.comes(SERVER, &own), "its own");
    let (now, keys) = (seals.now, seals.keys.clone());
    acquaint(now, &mut seals.router, &mut seals.server);
    let feedback = ReplyRepr::control(MessageType::Feedback, 0, call(1));
    let feedback = seals.server.says(now, &feedback).unwrap();
    assert!(!seals.comes(SERVER, &feedback));
    let mut response = from_server(&response(1), &[]);
    let key = Master::of_server(&keys.epochs[0], "test").hop_key(17);
    packet::seal_hop(&mut response, &packet::trailer(0, 7, 1, 0), &key);
    assert!(!seals.comes(ROUTER, &response), "a router answers nothing");
    assert_eq!(seals.client.metrics(), SealMetrics { unsealed: 3, ..SealMetrics::default() });
}

#[test]
fn a_reply_shows_that_its_server_is_there_and_a_recorded_one_does_not() {
    let mut seals = Seals::new();
    let mut server = seals.another_server();
    seals.of_client(SERVER, &request(0));
    let first = seals.answer_of(&mut server, &ack(0), 0);
    let second = seals.answer_of(&mut server, &response(1), 0);
    for reply in [first.clone(), second.clone()] {
        assert!(seals.comes(SERVER, &reply) && seals.is_believed());
        seals.now += SILENCE;
        assert!(seals.comes(SERVER, &reply) && !seals.is_believed(), "the same again");
    }
    // Nor once another server has answered.
    let mut other = endpoint(&of_role(&seals.keys, Role::Server), 10);
    let of_other = seals.answer_of(&mut other, &response(1), 0);
    assert!(seals.comes(STRANGER, &of_other));
    for reply in [&first, &second] {
        assert!(seals.comes(SERVER, reply) && !seals.is_believed());
    }
    let third = seals.answer_of(&mut server, &response(2), 0);
    assert!(seals.comes(SERVER, &third) && seals.is_believed());
}

/// Threads that share an address count on their own, under one key.
#[test]
fn each_member_of_a_name_has_counts_of_its_own() {
    let mut seals = Seals::new();
    let shared = Sealing { name: Some(0x5500), ..of_role(&seals.keys, Role::Server) };
    let mut counts = BTreeSet::new();
    seals.of_client(SERVER, &request(9));
    let mut first = endpoint(&Sealing { member: 7, ..shared.clone() }, 9);
    let told = seals.answer_of(&mut first, &ack(9), 0);
    assert!(seals.comes(SERVER, &told));
    for member in [255, 1, 0] {
        let mut server = endpoint(&Sealing { member, ..shared.clone() }, member);
        for sequence in 0..2 {
            let reply = seals.answer_of(&mut server, &response(sequence), 0);
            counts.insert(reply[reply.len() - 16..].to_vec());
            assert!(seals.comes(SERVER, &reply) && seals.is_believed(), "member {member}");
            seals.now += SILENCE;
            assert!(!seals.is_believed());
        }
    }
    assert_eq!(counts.len(), 6, "no nonce is that of another member");
}

/// Credit is for who has been named: a packet that gives some answers no request that named nobody.
#[test]
fn an_ack_with_credit_tells_no_name() {
    let mut seals = Seals::new();
    seals.introduce(SERVER);
    let mut other = seals.another_server();
    let with_credit = seals.answer_of(&mut other, &ack(1), 1);
    assert!(seals.comes(SERVER, &with_credit));
    assert_eq!(seals.client.name(seals.now, at(SERVER), false), 0, "another one is there");
    seals.of_client(SERVER, &request(1));
    let asking = seals.answer_of(&mut other, &ack(1), 0);
    let response = seals.answer_of(&mut other, &response(1), 0);
    for (packet, is_told) in [(with_credit, false), (response, false), (asking, true)] {
        assert!(seals.comes(SERVER, &packet));
        assert_eq!(seals.client.name(seals.now, at(SERVER), false) != 0, is_told);
    }
    seals.of_client(ROUTER, &request(2));
    for granted in [1, 0] {
        let held = seals.held(2, granted);
        assert!(seals.comes(ROUTER, &held));
        assert_eq!(seals.client.name(seals.now, at(ROUTER), false) != 0, granted == 0);
    }
}

/// On the way it is the time since the session began, of which the node knows nothing.
#[test]
fn a_clock_that_is_echoed_is_the_one_that_was_sent() {
    let mut seals = Seals::new();
    for after in [0, 1_000, 77 * MS, 40 * 60_000 * MS] {
        let now = seals.now + after;
        let mut bytes = to_server(&request(1));
        assert!(seals.client.seal(now, at(SERVER), &mut bytes));
        assert!(seals.server.open(now, at(CLIENT), &mut bytes).is_some());
        let clock = RequestHeader::ref_from_prefix(&bytes).unwrap().0.client_clock_us.get();
        let reply = ReplyRepr { clock_echo_us: clock, ..response(1) };
        let mut reply = answer(&mut seals.server, now, &reply, &[]);
        assert!(seals.client.open(now + MS, at(SERVER), &mut reply).is_some());
        assert_eq!(echo(&reply), (now / 1_000) as u32);
    }
    let mut none = answer(&mut seals.server, seals.now, &response(1), &[]);
    assert!(seals.client.open(seals.now, at(SERVER), &mut none).is_some());
    assert_eq!(echo(&none), 0, "none was sent");
}

/// Within a microsecond 16 bits tell packets apart: what has no nonce of its own left is not sent.
#[test]
fn a_microsecond_has_no_more_packets_than_nonces() {
    let mut seals = Seals::new();
    let short = RequestRepr::control(MessageType::ReplyAck, 0, call(1));
    let mut bytes = to_server(&short);
    let mut counts = vec![false; 1 << 16];
    for packet in 0..(1 << 16) + 10 {
        // By nodes' time it goes on within the microsecond.
        let now = seals.now + packet % 1_000;
        if seals.client.seal(now, at(SERVER), &mut bytes) {
            let count = usize::from(u16::from_be_bytes([bytes[22], bytes[23]]));
            assert!(!std::mem::replace(&mut counts[count], true), "{count} comes twice");
        }
    }
    assert!(counts.iter().filter(|&&is_used| is_used).count() > 65_000);
    assert!(!seals.client.seal(seals.now, at(SERVER), &mut bytes));
    assert!(seals.client.seal(seals.now + 1_000, at(SERVER), &mut bytes), "the next one has all");
}

/// After silence another one may be there, but only what may have reached the former one says so.
#[test]
fn what_goes_for_the_first_time_names_its_target_after_silence_too() {
    let mut seals = Seals::new();
    seals.introduce(SERVER);
    seals.now += SILENCE;
    for (flags, is_unnamed) in [(0, false), (Flags::RETRANSMIT, true)] {
        let mut bytes = seals.of_client(SERVER, &RequestRepr { flags, ..request(1) });
        assert!(seals.server.open(seals.now, at(CLIENT), &mut bytes).is_some());
        assert_eq!(seals.server.is_unnamed(), is_unnamed);
    }
}

/// Its tag stays as it is through routers, none of which it names.
#[test]
fn a_cancel_is_for_whoever_has_the_call() {
    let mut seals = Seals::new();
    let now = seals.now;
    seals.introduce(SERVER);
    seals.introduce(ROUTER);
    let cancel = RequestRepr::control(MessageType::Cancel, 0, call(1));
    let mut direct = seals.of_client(SERVER, &cancel);
    assert!(seals.server.open(now, at(CLIENT), &mut direct).is_some());
    let mut passed = seals.of_client(ROUTER, &cancel);
    assert!(seals.router.open(now, at(CLIENT), &mut passed).is_some());
    assert_eq!(
        (seals.router.verdict(), seals.router.sender()),
        (SealVerdict::Fit, ClientEpoch::new(17, 7))
    );
    assert!(seals.router.seal(now, (at(SERVER), None), &mut passed));
    assert!(seals.server.open(now, at(ROUTER), &mut passed).is_some());
}
