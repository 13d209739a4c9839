//! Two endpoints over no network: who is asked for a cookie, what is done without, and how a client
//! shows one.

use std::net::SocketAddr;

use tailcut_wire::homa::{Body, Packet};

use super::super::{CookieConfig, Serving};
use super::*;
use crate::homa::Config;
use crate::node::{GSO_BYTES_MAX, Node};
use crate::peer::cookies::AskCookies;
use crate::peer::cookies::PERIOD_NS;
use crate::rpc::{Call, CallOptions, Event, Rpc};

const MS: Time = 1_000_000;
const ONCE: CallOptions = CallOptions { idempotent: false, fixed: false, v1: false };

/// A client and a server that hear each other, and all that they have sent.
struct Ends {
    client: Endpoint,
    server: Endpoint,
    now: Time,
    /// From the client or not, and the datagram.
    sent: Vec<(bool, Vec<u8>)>,
    replies: usize,
    requests: usize,
}

fn at(host: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, host], 33_000))
}

fn endpoint(secret: u8, ask: AskCookies) -> Endpoint {
    let cookies = CookieConfig { ask, ..CookieConfig::default() };
    Endpoint::new(0, Config { secret: [secret; 16], cookies, ..Config::default() })
}

impl Ends {
    fn new(ask: AskCookies) -> Self {
        let (client, server) = (endpoint(1, AskCookies::Never), endpoint(2, ask));
        Self { client, server, now: MS, sent: Vec::new(), replies: 0, requests: 0 }
    }

    fn call(&mut self, len: usize) {
        let (payload, deadline) = (vec![5; len], self.now + 1_000 * MS);
        let call = Call { target: at(2), payload, deadline, context: 0, options: ONCE };
        self.client.call(self.now, call).expect("there is room");
    }

    /// Carries what they say until neither says anything; requests are answered by `reply_len`
    /// bytes.
    fn talk(&mut self, reply_len: usize) -> Vec<(bool, Vec<u8>)> {
        loop {
            let there = drain(&mut self.client, self.now);
            self.now += 10_000;
            for bytes in &there {
                self.server.handle_datagram(self.now, at(1).into(), &mut bytes.clone());
            }
            while let Some(event) = self.server.poll_event() {
                if let Event::Request { id, .. } = event {
                    self.requests += 1;
                    self.server.reply(self.now, id, vec![7; reply_len]).expect("it waits");
                }
            }
            let back = drain(&mut self.server, self.now);
            self.now += 10_000;
            for bytes in &back {
                self.client.handle_datagram(self.now, at(2).into(), &mut bytes.clone());
            }
            while let Some(event) = self.client.poll_event() {
                self.replies += usize::from(matches!(event, Event::Replied { .. }));
            }
            if there.is_empty() && back.is_empty() {
                return std::mem::take(&mut self.sent);
            }
            self.sent.extend(there.into_iter().map(|bytes| (true, bytes)));
            self.sent.extend(back.into_iter().map(|bytes| (false, bytes)));
        }
    }

    /// Gives the server a datagram; what it says.
    fn give(&mut self, from: SocketAddr, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.server.handle_datagram(self.now, from.into(), &mut bytes.to_vec());
        drain(&mut self.server, self.now)
    }
}

fn drain(node: &mut Endpoint, now: Time) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; GSO_BYTES_MAX];
    let mut sent = Vec::new();
    while let Some(transmit) = node.poll_transmit(now, &mut buffer) {
        sent.extend(buffer[..transmit.len].chunks(transmit.segment_len).map(<[u8]>::to_vec));
    }
    sent
}

/// DATA of a request, or of a part of one.
fn data(id: u64, (len, offset): (u32, u32), flags: u8) -> Vec<u8> {
    let ports = Ports { source: 32_768, destination: 33_000 };
    let mut header = DataHeader::new(ports, id, len, offset);
    header.incoming = len.into();
    header.flags = flags;
    [header.as_bytes(), &[7; 8]].concat()
}

fn body(bytes: &[u8]) -> Body<'_> {
    Packet::parse(bytes).expect("it is one").body
}

/// The tags of the DATA that a client has sent; `None` of those without one.
fn tags(sent: &[(bool, Vec<u8>)]) -> Vec<Option<u64>> {
    let tag = |(is_clients, bytes): &(bool, Vec<u8>)| match body(bytes) {
        Body::Data { header, .. } if *is_clients => Some(tag_of(header)),
        _ => None,
    };
    sent.iter().filter_map(tag).collect()
}

#[test]
fn nothing_is_done_or_kept_for_a_request_without_a_tag() {
    let mut ends = Ends::new(AskCookies::Always);
    for id in 1..100 {
        let request = data(2 * id, (8, 0), DataFlags::KNOWN);
        let told = ends.give(at(9), &request);
        let [told] = &told[..] else { panic!("{told:?}") };
        let Body::Cookie(cookie) = body(told) else { panic!("{told:?}") };
        assert_eq!((cookie.is_demand, cookie.common.sender_id.get()), (1, (2 * id) | 1));
        assert!(told.len() < request.len());
        // Of a long request one packet is answered, and what is sent again.
        assert_eq!(ends.give(at(9), &data(2 * id, (80, 0), DataFlags::KNOWN)).len(), 1);
        assert_eq!(ends.give(at(9), &data(2 * id, (80, 8), DataFlags::KNOWN)).len(), 0);
    }
    assert!(ends.server.poll_event().is_none());
    assert_eq!(ends.server.holdings(), Default::default());
    assert!(ends.server.peers.find(at(9)).is_none());
    assert_eq!(ends.server.metrics().validations, 198);
}

/// It would take a cookie for nothing that it knows.
#[test]
fn the_module_is_not_answered_but_from_a_trusted_network() {
    let mut ends = Ends::new(AskCookies::Always);
    assert_eq!(ends.give(at(9), &data(2, (8, 0), 0)).len(), 0);
    assert_eq!(ends.server.metrics().drops[DropReason::Unvalidated as usize], 1);
    let loopback = SocketAddr::from(([127, 0, 0, 1], 9));
    assert!(Serving::default().is_trusted(loopback.ip()));
    ends.give(loopback, &data(2, (8, 0), 0));
    assert!(matches!(ends.server.poll_event(), Some(Event::Request { .. })));
}

/// The first call costs a round trip more, and the others nothing; an answer of any length goes at
/// once.
#[test]
fn a_client_tags_what_may_begin_a_request_once_it_has_been_told_a_cookie() {
    let mut ends = Ends::new(AskCookies::Always);
    for (round, len) in [(0, 8), (1, 8), (2, 20_000), (3, 0)] {
        ends.call(len);
        let sent = ends.talk(9_000);
        assert_eq!(ends.replies, round + 1);
        let tags = tags(&sent);
        let untagged = tags.iter().filter(|tag| tag.is_none()).count();
        assert_eq!(untagged, usize::from(round == 0), "call {round}: {tags:x?}");
    }
    let metrics = ends.server.metrics();
    assert_eq!((metrics.validations, metrics.amplification_limited), (1, 0));
    assert_eq!((ends.requests, ends.client.metrics().resends), (4, 0));
}

/// Bytes beyond the unscheduled ones go to the server that has taken the request.
#[test]
fn what_was_granted_bears_no_tag() {
    let mut ends = Ends::new(AskCookies::Always);
    ends.call(8);
    ends.talk(8);
    ends.call(200_000);
    let sent = ends.talk(8);
    assert_eq!(ends.replies, 2);
    let tags = tags(&sent);
    let tagged = tags.iter().filter(|tag| tag.is_some()).count();
    let unscheduled = Config::default().unscheduled_len.div_ceil(1396) as usize;
    assert!(tagged == unscheduled && tags.len() > 2 * tagged, "{tagged} of {}", tags.len());
}

/// Nothing has run of a request whose answer is a cookie: the tagged one is as good as the first,
/// also for a server that has just been started and knows nothing.
#[test]
fn what_is_sent_again_for_a_cookie_goes_as_for_the_first_time() {
    let mut ends = Ends::new(AskCookies::Always);
    ends.call(3_000);
    let first = drain(&mut ends.client, ends.now);
    let demand = ends.give(at(1), &first[0]);
    ends.client.handle_datagram(ends.now, at(2).into(), &mut demand[0].clone());
    let again = drain(&mut ends.client, ends.now);
    assert_eq!(again.len(), first.len());
    for bytes in &again {
        let Body::Data { header, .. } = body(bytes) else { panic!("{bytes:?}") };
        assert!(tag_of(header).is_some() && header.retransmit == 0);
    }
    // The same cookie once more makes it send nothing.
    ends.client.handle_datagram(ends.now, at(2).into(), &mut demand[0].clone());
    assert!(drain(&mut ends.client, ends.now).is_empty());
}

#[test]
fn a_tag_is_of_one_address_one_key_and_one_packet() {
    let mut ends = Ends::new(AskCookies::Always);
    ends.call(8);
    ends.talk(8);
    ends.call(8);
    let good = drain(&mut ends.client, ends.now).remove(0);
    let is_asked = |ends: &mut Ends, from, bytes: &[u8]| {
        let before = ends.server.metrics().validations;
        let drops = ends.server.metrics().drops[DropReason::Unvalidated as usize];
        ends.give(from, bytes);
        let metrics = ends.server.metrics();
        metrics.validations > before || metrics.drops[DropReason::Unvalidated as usize] > drops
    };
    assert!(is_asked(&mut ends, at(3), &good), "from elsewhere");
    for bit in 0..good.len() * 8 {
        let mut changed = good.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        if matches!(Packet::parse(&changed).map(|packet| packet.body), Ok(Body::Data { .. }))
            && changed[27] & 1 == 0
        {
            is_asked(&mut ends, at(1), &changed);
            assert!(ends.server.poll_event().is_none(), "bit {} of byte {}", bit % 8, bit / 8);
        }
    }
    let mut other = Ends::new(AskCookies::Always);
    other.server = endpoint(3, AskCookies::Always);
    assert!(is_asked(&mut other, at(1), &good), "another server's");
    assert!(!is_asked(&mut ends, at(1), &good));
    assert!(matches!(ends.server.poll_event(), Some(Event::Request { .. })));
}

#[test]
fn cookies_change_every_two_minutes_and_a_client_that_calls_follows() {
    let mut ends = Ends::new(AskCookies::Always);
    for round in 0..10 {
        ends.now += PERIOD_NS / 2 + MS;
        ends.client.handle_timeout(ends.now);
        ends.server.handle_timeout(ends.now);
        ends.call(8);
        ends.talk(8);
        assert_eq!(ends.replies, round + 1);
    }
    assert_eq!(ends.server.metrics().validations, 1);
    // One that has been silent for two periods is asked anew.
    ends.now += 2 * PERIOD_NS;
    ends.call(8);
    ends.talk(8);
    assert_eq!((ends.replies, ends.server.metrics().validations), (11, 2));
}

#[test]
fn without_load_they_are_asked_for_of_long_requests_alone() {
    let mut ends = Ends::new(AskCookies::UnderLoad);
    ends.give(at(9), &data(2, (8, 0), DataFlags::KNOWN));
    assert!(matches!(ends.server.poll_event(), Some(Event::Request { .. })));
    let told = ends.give(at(9), &data(4, (80, 0), DataFlags::KNOWN));
    assert!(matches!(body(&told[0]), Body::Cookie(_)));
    // One runs, and one waits: that is load.
    ends.give(at(9), &data(6, (8, 0), DataFlags::KNOWN));
    assert!(matches!(ends.server.poll_event(), Some(Event::Request { .. })));
    let told = ends.give(at(9), &data(8, (8, 0), DataFlags::KNOWN));
    assert!(matches!(body(&told[0]), Body::Cookie(_)));
    assert!(ends.server.poll_event().is_none());
}

/// `conformance/sealed/check.py` computes it from the page.
#[test]
fn a_tag_is_what_the_page_says() {
    let ports = Ports { source: 32_768, destination: 99 };
    let mut header = DataHeader::new(ports, 0x0102_0304_0506_0708, 5, 0);
    (header.incoming, header.cutoff_version) = (5.into(), 1.into());
    header.flags = DataFlags::KNOWN;
    let mut packet = [header.as_bytes(), b"words"].concat();
    write_tag(&mut packet, 0x2388_e24c_26ca_c801);
    let Body::Data { header, .. } = body(&packet) else { panic!("{packet:?}") };
    assert_eq!(tag_of(header), Some(0xb788_3c2b_4ff5_afd9));
}

/// Unsolicited cookies, from another address, for another call, and for the call that waits.
#[test]
fn a_cookie_is_believed_of_a_call_that_waits_and_of_no_other() {
    let mut ends = Ends::new(AskCookies::Never);
    ends.call(8);
    let first = drain(&mut ends.client, ends.now).remove(0);
    let common = Packet::parse(&first).expect("it is one").common;
    let tell = |ends: &mut Ends, from, id| {
        let ports = Ports { source: 33_000, destination: 32_768 };
        let common = CommonHeader::new(PacketType::Cookie, ports, id);
        let packet = CookiePacket { common, cookie: 9.into(), is_demand: 1 };
        ends.client.handle_datagram(ends.now, from, &mut packet.as_bytes().to_vec());
        drain(&mut ends.client, ends.now).len()
    };
    let id = common.sender_id.get();
    assert_eq!(tell(&mut ends, at(3).into(), id | 1), 0);
    assert_eq!(tell(&mut ends, at(2).into(), (id + 2) | 1), 0);
    assert_eq!(tell(&mut ends, at(2).into(), id | 1), 1);
}
