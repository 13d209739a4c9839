//! Several packets in one datagram, under one tag.

use tailcut_wire::r2p2::sealed::{COALESCED_VERSION, COALESCED_WORD_LEN, VERSION_AT};
use tailcut_wire::r2p2::{Flags, Packet, RequestRepr, Route, SessionId};

use super::seals::{Seals, call, from_server, request, response, to_server};
use super::*;
use crate::node::Transmit;
use crate::policy::Draws;

/// A client that knows its server, before anything is sent together.
fn acquainted(is_routed: bool) -> Net {
    let mut net = net(is_routed);
    net.turn();
    net.now += 10 * MS;
    net.call(b"the first").unwrap();
    net.log.clear();
    net
}

/// Makes so many calls of 32 B at once, each of another number from `first` on, and waits for their
/// ends.
fn call_at_once(net: &mut Net, first: u64, count: u64) -> Vec<Result<Vec<u8>, Failure>> {
    let before = net.ended.len();
    for number in first..first + count {
        net.begin(&numbered(number));
    }
    let by = net.now + 1_000 * MS;
    while net.ended.len() < before + count as usize && net.now < by {
        net.turn();
        net.now += MS / 10;
    }
    net.ended.split_off(before)
}

fn numbered(number: u64) -> Vec<u8> {
    [&number.to_be_bytes()[..], &message(24)].concat()
}

fn is_coalesced(sent: &Sent) -> bool {
    sent.bytes[VERSION_AT] == COALESCED_VERSION
}

#[test]
fn many_calls_at_once_go_in_few_datagrams() {
    for cipher in [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305] {
        let mut net = Net::new(keys(cipher, u64::MAX), false);
        net.call(b"the first").unwrap();
        net.log.clear();
        let mut ended = call_at_once(&mut net, 0, 100);
        ended.sort_by_key(|end| end.clone().ok());
        let expected: Vec<_> = (0..100).map(|number| Ok(numbered(number))).collect();
        assert_eq!(ended, expected);
        assert!(net.runs_of.values().all(|&runs| runs == 1));
        assert!(net.clients.iter().all(|&client| client == Some(17)));
        // 13 requests of 104 B, and 17 replies of 80 B, are in one of at most 1,428 B.
        let of = |from| {
            net.log.iter().filter(|sent| sent.from == at(from) && is_coalesced(sent)).count()
        };
        assert!((8..=12).contains(&of(CLIENT)), "{}", of(CLIENT));
        assert!((6..=12).contains(&of(SERVER)), "{}", of(SERVER));
        assert!(net.log.iter().all(|sent| sent.bytes.len() <= 1_452), "they fit the MTU");
        assert!(!net.log.iter().any(|sent| holds(&sent.bytes, &message(24))), "in the clear");
        assert_eq!(dropped(net.client.metrics().seal), SealMetrics::default());
        assert_eq!(dropped(net.server.metrics().seal), SealMetrics::default());
    }
}

/// A router places each request by itself.
#[test]
fn nothing_goes_together_through_a_router() {
    let mut net = acquainted(true);
    let ended = call_at_once(&mut net, 0, 40);
    assert!(ended.iter().all(Result::is_ok));
    assert!(!net.log.iter().any(is_coalesced));
}

#[test]
fn each_of_many_calls_is_answered_once_where_datagrams_are_lost() {
    let mut net = acquainted(false);
    net.loss = 5;
    for round in 0..20 {
        let ended = call_at_once(&mut net, round * 50, 50);
        assert!(ended.iter().all(Result::is_ok), "{round}: {ended:?}");
    }
    assert!(net.runs_of.values().all(|&runs| runs == 1), "{:?}", net.runs_of);
    assert!(net.log.iter().filter(|sent| is_coalesced(sent)).count() > 100);
}

/// Nothing that went together is acted on when it is changed in one bit of any byte.
#[test]
fn nothing_forged_is_acted_on() {
    let mut net = acquainted(false);
    call_at_once(&mut net, 0, 40);
    let (runs, ended) = (net.runs, net.ended.len());
    let coalesced: Vec<Sent> = net.log.iter().filter(|sent| is_coalesced(sent)).cloned().collect();
    assert!(coalesced.len() > 4);
    let refused = |net: &Net| {
        [net.client.metrics().seal, net.server.metrics().seal]
            .iter()
            .map(|seal| seal.forged + seal.unsealed + seal.unknown_keys)
            .sum::<u64>()
    };
    let (before, mut forged) = (refused(&net), 0);
    for sent in &coalesced {
        for byte in 0..sent.bytes.len() {
            let mut other = sent.clone();
            other.bytes[byte] ^= 1 << (byte % 8);
            net.deliver(other);
            forged += 1;
        }
    }
    assert_eq!((net.runs, net.ended.len()), (runs, ended));
    assert_eq!(refused(&net) - before, forged);
}

/// Packets that went together come again, as they were or with drawn bytes, lengths and ends of
/// others, from where they came and from a stranger. Two million did as little.
#[test]
fn nothing_drawn_is_acted_on() {
    const FORGED: usize = 1 << 16;
    let mut net = acquainted(false);
    call_at_once(&mut net, 0, 40);
    net.turn();
    let coalesced: Vec<Sent> =
        std::mem::take(&mut net.log).into_iter().filter(is_coalesced).collect();
    let before = (net.runs, net.ended.len(), net.server.holdings(), net.client.holdings());
    let mut draws = Draws::new(5);
    let mut below = |end: usize| draws.below(end as u32) as usize;
    for _ in 0..FORGED {
        let mut sent = coalesced[below(coalesced.len())].clone();
        let len = sent.bytes.len();
        let place = below(len);
        match below(5) {
            0 => (0..=below(8)).for_each(|_| sent.bytes[below(len)] ^= below(256) as u8),
            1 => sent.bytes.truncate(place),
            2 => sent.bytes.extend((0..=below(100)).map(|_| below(256) as u8)),
            3 => {
                let other = &coalesced[below(coalesced.len())].bytes;
                sent.bytes.truncate(place);
                sent.bytes.extend(&other[place.min(other.len())..]);
            }
            _ => {}
        }
        if below(2) == 0 {
            sent.from = at(STRANGER);
        }
        net.deliver(sent);
    }
    let after = (net.runs, net.ended.len(), net.server.holdings(), net.client.holdings());
    assert_eq!(after, before);
    net.now += 10 * MS;
    assert!(call_at_once(&mut net, 100, 40).iter().all(Result::is_ok), "all goes on");
}

/// All that went together comes again: where it was, from elsewhere, at another server, and after a
/// restart.
#[test]
fn nothing_that_was_recorded_runs_again() {
    let mut net = acquainted(false);
    call_at_once(&mut net, 0, 40);
    let runs = net.runs;
    let recorded = std::mem::take(&mut net.log);
    let mut other = server(START, &net.keys, 9);
    for is_restarted in [false, true] {
        for from in [CLIENT, STRANGER] {
            for sent in recorded.iter().filter(|sent| sent.to == at(SERVER)) {
                net.deliver(Sent { from: at(from), ..sent.clone() });
                net.turn();
                let path = Path { local: None, peer: at(from) };
                other.handle_datagram(net.now, path, &mut sent.bytes.clone());
                assert!(other.poll_event().is_none());
            }
        }
        assert_eq!(net.runs, runs, "restarted: {is_restarted}");
        net.restart_server();
    }
}

#[test]
fn no_nonce_is_used_twice() {
    let mut net = acquainted(false);
    net.loss = 7;
    for round in 0..20 {
        call_at_once(&mut net, round * 30, 30);
        let _ = net.call(&message(40));
    }
    let mut seen = BTreeSet::new();
    for sent in &net.log {
        let (header, trailer) = (&sent.bytes[..48], &sent.bytes[sent.bytes.len() - 16..]);
        let nonce = match sent.from == at(CLIENT) {
            true => [&header[8..16], &header[22..28]].concat(),
            false => trailer.to_vec(),
        };
        assert!(seen.insert((sent.from, nonce)), "{sent:?}");
    }
    assert!(net.log.iter().any(is_coalesced) && !net.log.iter().all(is_coalesced));
}

/// A client that has keys says what it likes in what it seals: of what is no part of several
/// packets, and of other sessions than its seal is of, nothing is heard.
#[test]
fn what_is_not_of_the_session_is_not_heard() {
    let other = RpcId::new(SessionId(seals::SESSION + 1), 2);
    let kind = |kind| RequestRepr::control(kind, 0, call(2));
    let routed = Route { routed: 1, ..Route::to_client(at(STRANGER)) };
    let mut behind_router = to_server(&request(2));
    behind_router[48..72].copy_from_slice(routed.as_bytes());
    let with = |place: usize, byte: u8| {
        let mut packet = to_server(&request(2));
        packet[place] = byte;
        packet
    };
    let cases = [
        ("a request", to_server(&request(2)), true),
        ("of another session", to_server(&RequestRepr { rpc_id: other, ..request(2) }), false),
        ("a probe", to_server(&kind(MessageType::Probe)), false),
        ("a claim", to_server(&kind(MessageType::Claim)), false),
        ("a cancel", to_server(&kind(MessageType::Cancel)), false),
        ("a reply", from_server(&response(2), &[0; 24]), false),
        ("of a router", behind_router, false),
        ("of a packet that is sealed itself", with(VERSION_AT, 2), false),
        ("sent again", with(20, 0xc0 | Flags::RETRANSMIT), false),
        ("a clone", with(20, 4), false),
        ("of another magic", with(0, 0), false),
        ("of another header", with(1, 16), false),
        ("of a header that is longer than it", with(1, 200), false),
    ];
    for (what, second, is_heard) in cases {
        let mut seals = Seals::new();
        seals.introduce(SERVER);
        let packets = [to_server(&request(1)), second];
        let opened = opened_together(&mut seals, &packets, |_| {});
        assert_eq!(opened, is_heard.then_some(144), "{what}");
        let heard = seals.server.metrics();
        assert_eq!(heard.forged, u64::from(!is_heard), "{what}");
    }
}

/// Nor is anything of a length that the packets have not.
#[test]
fn lengths_that_cannot_be_are_refused() {
    for (len, is_heard) in
        [(72, true), (0, false), (47, false), (144, false), (145, false), (u16::MAX, false)]
    {
        let mut seals = Seals::new();
        seals.introduce(SERVER);
        let packets = [to_server(&request(1)), to_server(&request(2))];
        let write = |bytes: &mut [u8]| {
            let at = bytes.len() - TRAILER_LEN - COALESCED_WORD_LEN;
            bytes[at..at + 2].copy_from_slice(&len.to_be_bytes());
        };
        assert_eq!(opened_together(&mut seals, &packets, write).is_some(), is_heard, "{len}");
    }
}

/// Result of opening, at the server, packets that the client has sealed together, after `change`.
fn opened_together(
    seals: &mut Seals,
    packets: &[Vec<u8>],
    change: impl FnOnce(&mut [u8]),
) -> Option<usize> {
    let open = packets.iter().map(|packet| &packet[..packet.len() - TRAILER_LEN]);
    let mut bytes = open.collect::<Vec<_>>().concat();
    bytes.extend(((packets[0].len() - TRAILER_LEN) as u16).to_be_bytes());
    bytes.resize(bytes.len() + TRAILER_LEN, 0);
    change(&mut bytes);
    assert!(seals.client.seal_together(seals.now, at(SERVER), (&mut bytes, 72)));
    seals.server.open(seals.now, at(CLIENT), &mut bytes)
}

/// Batches that go together, from a client that has learned who is at an address.
#[test]
fn what_goes_together_is_of_one_session_and_for_the_first_time() {
    let again = RequestRepr { flags: Flags::RETRANSMIT, ..request(2) };
    let ack = RequestRepr::control(MessageType::ReplyAck, 0, call(2));
    let other = RequestRepr { rpc_id: RpcId::new(SessionId(seals::SESSION + 1), 2), ..request(2) };
    let cancel = RequestRepr::control(MessageType::Cancel, 0, call(2));
    for (what, to, second, is_together) in [
        ("a request", SERVER, request(2), true),
        ("an acknowledgement", SERVER, ack, true),
        ("what is sent again", SERVER, again, false),
        ("a cancel", SERVER, cancel, false),
        ("another session's", SERVER, other, false),
        ("to a router", ROUTER, request(2), false),
        ("to nobody known", STRANGER, request(2), false),
    ] {
        let mut seals = Seals::new();
        seals.client = seals.client.gathering(1_428);
        for known in [SERVER, ROUTER] {
            seals.introduce(known);
        }
        seals.client.note_session(seals.now, seals::SESSION);
        let mut buffer = [to_server(&request(1)), to_server(&second)].concat();
        let (len, segment_len) = (buffer.len(), to_server(&request(1)).len());
        let transmit = Transmit { segment_len, ..Transmit::single(at(to), len) };
        let sealed = seals.client.seal_transmit(seals.now, transmit, &mut buffer);
        let sealed = sealed.expect("one of them may go");
        assert_eq!(buffer[VERSION_AT] == COALESCED_VERSION, is_together, "{what}");
        let len = len - 2 * TRAILER_LEN + COALESCED_WORD_LEN + TRAILER_LEN;
        let together = Transmit { len, segment_len: len, ..transmit };
        assert_eq!(sealed == together, is_together, "{what}: {sealed:?}");
    }
}

/// A server sends nothing together to who has not.
#[test]
fn who_sends_one_by_one_is_answered_so() {
    let mut net = net(false);
    net.call(b"the first").unwrap();
    for is_together in [false, true] {
        net.log.clear();
        if is_together {
            call_at_once(&mut net, 100, 2);
        }
        let first = net.log.len();
        // Each leaves by itself, and all are answered at once.
        for number in 0..20 {
            net.begin(&numbered(number));
            let mut under_way = VecDeque::new();
            drain(&mut net.client, CLIENT, net.now, &mut under_way);
            for sent in under_way {
                assert!(!is_coalesced(&sent));
                net.log.push(sent.clone());
                let path = Path { local: None, peer: sent.from };
                net.server.handle_datagram(net.now, path, &mut sent.bytes.clone());
            }
        }
        net.take_events();
        net.turn();
        assert_eq!(net.log[first..].iter().any(is_coalesced), is_together);
    }
}

/// Captures tell all packets of a datagram.
#[test]
fn captures_are_read() {
    let mut net = acquainted(false);
    call_at_once(&mut net, 0, 30);
    let mut reader = Reader::new(net.keys.clone()).unwrap();
    let (mut requests, mut replies) = (0, 0);
    for sent in &net.log {
        let mut bytes = sent.bytes.clone();
        assert!(reader.open((sent.from, sent.to), &mut bytes), "{sent:?}");
        for packet in Reader::packets(&bytes, is_coalesced(sent)) {
            let packet = Packet::parse(packet).unwrap();
            assert_eq!(packet.payload.len(), 32);
            requests += usize::from(packet.message_type == MessageType::Request);
            replies += usize::from(packet.message_type == MessageType::Response);
        }
    }
    assert_eq!((requests, replies), (30, 30));
}

/// Packets of fixed keys, which `conformance/sealed/check.py` computes again.
#[test]
fn packets_are_those_of_the_vectors() {
    let mut text = String::new();
    for cipher in [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305] {
        let mut net = Net::new(keys(cipher, u64::MAX), false);
        net.call(b"the first").unwrap();
        call_at_once(&mut net, 0, 20);
        text += &vectors(&net.keys, &net.log);
    }
    check_vectors("coalesced.txt", &text);
}
