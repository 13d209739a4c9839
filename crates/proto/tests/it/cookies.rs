//! Cookies: who asks for them, what is done without, and how a client shows one.

use tailcut_proto::node::{Node, Source};
use tailcut_proto::r2p2::{AskCookies, Config};
use tailcut_proto::router::{CookieConfig, RouterConfig, Speaks};
use tailcut_proto::rpc::Rpc;
use tailcut_wire::r2p2::{DropReason, Flags, MessageType, Packet, RequestRepr, Route};
use zerocopy::IntoBytes;

use super::r2p2_support::{
    IDEMPOTENT, MS, ONCE, Sent, Solo, ask, asked, asking, host, kinds, requests,
};
use super::router_bench::{self, Bench, FakeServer};

/// Hosts of the server and of the client.
const SERVER: u8 = 1;
const CLIENT: u8 = 2;

/// Two minutes, in ns.
const PERIOD: u64 = 120_000 * MS;

fn server_that(ask: AskCookies, change: impl FnOnce(&mut Config)) -> Solo {
    Solo::new(|config| {
        config.pool.cookies = ask;
        config.pool.key = Some([5; 16]);
        config.secret = [3; 16];
        change(config);
    })
}

fn server() -> Solo {
    server_that(AskCookies::Always, |_| {})
}

/// A demand for a cookie, of which nothing is kept.
fn is_demand(sent: &[Sent]) -> bool {
    let [only] = sent else { return false };
    let is_empty = |sent: &Sent| {
        sent.packet().sack().is_some_and(|sack| sack.base.get() == 0 && sack.granted.get() == 0)
    };
    is_empty(only) && only.has(Flags::COOKIE) && only.packet().token() != 0
}

/// Carries what `client` sends to `server` and back until neither says anything; what the server's
/// application is asked is answered by as many bytes. The datagrams from the client.
fn talk(client: &mut Solo, server: &mut Solo, first: Vec<Sent>) -> Vec<Sent> {
    let (mut there, mut all) = (first, Vec::new());
    while !there.is_empty() {
        let mut back = Vec::new();
        for sent in &there {
            back.extend(server.give(host(CLIENT), &sent.bytes));
            while let Some(id) = server.request() {
                server.node.reply(server.now, id, vec![7; 500]).unwrap();
                back.extend(server.sent());
            }
        }
        all.append(&mut there);
        client.now += 20_000;
        server.now = client.now;
        there = back.iter().flat_map(|sent| client.give(host(SERVER), &sent.bytes)).collect();
    }
    all
}

#[test]
fn nothing_is_done_or_kept_for_a_request_without_a_tag() {
    let mut server = server();
    for sequence in 0..100 {
        assert!(is_demand(&server.give(host(CLIENT), &ask(sequence, 4))));
        assert!(is_demand(&server.give(host(CLIENT), &ask(1_000 + sequence, 640))));
    }
    assert!(server.request().is_none());
    assert_eq!(server.metrics().validations, 200);
    assert_eq!(server.node.holdings(), Default::default());
    // The cookie itself, sent back, is no tag; nor is a token that was good without cookies.
    let token = server.give(host(CLIENT), &ask(0, 4))[0].packet().token();
    let echoed = asked(&RequestRepr { token, ..asking(MessageType::Request, 0) }, 4, 0);
    assert!(is_demand(&server.give(host(CLIENT), &echoed)));
}

/// It costs the first call of a client a round trip, and the others nothing.
#[test]
fn a_client_tags_its_first_packets_once_it_has_been_told_a_cookie() {
    let (mut client, mut server) = (Solo::new(|_| {}), server());
    for (round, len) in [(0, 4), (1, 4), (2, 640), (3, 0)] {
        client.call(host(SERVER), len, ONCE);
        let first = client.sent();
        let said = talk(&mut client, &mut server, first);
        assert_eq!(client.reply(), Some(vec![7; 500]), "call {round}");
        let firsts = said.iter().filter(|sent| sent.kind() == (MessageType::Request, 0)).count();
        assert_eq!(firsts, if round == 0 { 2 } else { 1 });
        // What has not begun a request echoes nothing: who hears it learns no cookie.
        let others = said.iter().filter(|sent| sent.kind() != (MessageType::Request, 0));
        assert!(others.into_iter().all(|sent| sent.packet().token() == 0));
    }
    assert_eq!((server.metrics().validations, server.metrics().repeated), (1, 0));
    // It has answered more than three bytes for one: a tag validates the address.
    assert_eq!(server.metrics().amplification_limited, 0);
}

/// Nothing has run of a request whose answer is a cookie: the tagged one is as good as the first,
/// also for one who has just been started and knows nothing.
#[test]
fn what_is_sent_again_for_a_cookie_goes_as_for_the_first_time() {
    let mut client = Solo::new(|_| {});
    let mut server = server();
    server.now = 3 * MS;
    client.now = 3 * MS;
    let first = client.called(host(SERVER), 4, ONCE);
    client.now += MS;
    let demand = server.give(host(CLIENT), &first.bytes);
    let again = client.give(host(SERVER), &demand[0].bytes);
    assert_eq!(kinds(&again), requests([0]));
    assert!(!again[0].has(Flags::RETRANSMIT));
    // A second demand for the same cookie is answered in time alone, and then by what it is.
    assert!(client.give(host(SERVER), &demand[0].bytes).is_empty());
    assert!(client.wait()[0].has(Flags::RETRANSMIT));
}

#[test]
fn cookies_change_every_two_minutes_and_a_client_that_calls_follows() {
    let (mut client, mut server) = (Solo::new(|_| {}), server());
    for _ in 0..10 {
        client.now += PERIOD / 2 + MS;
        server.now = client.now;
        client.node.handle_timeout(client.now);
        client.call(host(SERVER), 4, IDEMPOTENT);
        let first = client.sent();
        talk(&mut client, &mut server, first);
        assert!(client.reply().is_some());
    }
    assert_eq!(server.metrics().validations, 1);
    // One that has been silent for two periods is asked anew.
    client.now += 2 * PERIOD;
    server.now = client.now;
    client.call(host(SERVER), 4, IDEMPOTENT);
    let first = client.sent();
    talk(&mut client, &mut server, first);
    assert!(client.reply().is_some());
    assert_eq!(server.metrics().validations, 2);
}

/// Whoever has heard the packets of a client, and is not where it is, cannot call as it does.
#[test]
fn what_was_heard_is_of_no_use_for_another_packet_or_from_another_address() {
    let (mut client, mut server) = (Solo::new(|_| {}), server());
    client.call(host(SERVER), 4, ONCE);
    let first = client.sent();
    let said = talk(&mut client, &mut server, first);
    let tagged = said[1].bytes.clone();
    let ran = server.metrics().common.requests;
    assert!(is_demand(&server.give(host(9), &tagged)), "from elsewhere");
    let mut other = tagged.clone();
    // Another call, by the same token.
    other[15] ^= 1;
    assert!(is_demand(&server.give(host(CLIENT), &other)));
    let mut words = tagged;
    *words.last_mut().unwrap() ^= 1;
    words[15] ^= 2;
    assert!(is_demand(&server.give(host(CLIENT), &words)));
    assert_eq!(server.metrics().common.requests, ran);
}

#[test]
fn under_load_alone_if_so_configured() {
    let mut server = server_that(AskCookies::UnderLoad, |_| {});
    // One is taken, which the application's one worker has; the next waits, and then there is load.
    assert!(server.give(host(CLIENT), &ask(0, 4)).is_empty());
    assert!(server.give(host(CLIENT), &ask(1, 4)).is_empty());
    assert!(is_demand(&server.give(host(3), &ask(7, 4))), "others are asked");
    assert!(is_demand(&server.give(host(CLIENT), &ask(2, 4))), "and the same again");
    for _ in 0..2 {
        let id = server.request().unwrap();
        server.node.reply(server.now, id, vec![1]).unwrap();
    }
    server.sent();
    assert!(is_demand(&server.give(host(3), &ask(7, 4))), "a second more");
    server.pass(1_001 * MS);
    assert!(server.give(host(3), &ask(7, 4)).is_empty());
    assert!(server.request().is_some());
    // State of several packets is begun for nobody.
    assert!(is_demand(&server.give(host(4), &ask(1, 640))));
    assert_eq!(server.node.holdings().partials, 0);
}

/// Loopback, and what is configured besides: nobody can forge their addresses.
#[test]
fn trusted_networks_show_none() {
    let trust = |config: &mut Config| config.serving.trusted.push("10.2.0.2/32".parse().unwrap());
    let mut server = server_that(AskCookies::Always, trust);
    server.give(host(CLIENT), &ask(0, 4));
    assert!(server.request().is_some());
    assert!(is_demand(&server.give(host(3), &ask(7, 4))));
}

#[test]
fn version_1_knows_no_cookies_and_is_refused() {
    let mut server = server();
    let sent = server.give(host(CLIENT), b"\xcc\x08\x00\xc0\0\x01\0\x011234");
    assert_eq!(kinds(&sent), [(MessageType::Drop, 0)]);
    assert!(server.request().is_none());
    assert_eq!(server.metrics().drops[DropReason::Unvalidated as usize], 1);
}

/// A router is not asked for a cookie, but for its token, which it echoes.
#[test]
fn a_router_is_asked_for_its_token_as_ever() {
    let mut server = server();
    let mut bytes = ask(0, 4);
    let route = Route { routed: 1, ..Route::to_client(host(CLIENT)) };
    bytes[48..72].copy_from_slice(route.as_bytes());
    let sent = server.give(host(9), &bytes);
    assert_eq!((sent[0].to, sent[0].has(Flags::COOKIE)), (host(9), false));
    let token = sent[0].packet().token();
    let probe = RequestRepr { token, ..asking(MessageType::Probe, 0) };
    let probe = [probe.header().as_bytes(), &[0; 4]].concat();
    assert_eq!(kinds(&server.give(host(9), &probe)), [(MessageType::Feedback, 0)]);
    // The client that it names must show a cookie all the same, and is told it there.
    let sent = server.give(host(9), &bytes);
    let demand = sent.iter().find(|sent| sent.to == host(CLIENT)).unwrap();
    assert!(is_demand(std::slice::from_ref(demand)));
    assert!(server.request().is_none());
}

fn cookies(ask: AskCookies) -> CookieConfig {
    CookieConfig { ask, key: Some([5; 16]), ..CookieConfig::default() }
}

fn router(ask: AskCookies, change: impl FnOnce(&mut RouterConfig)) -> Bench {
    Bench::new(Speaks::Extension, 2, |config| {
        config.cookies = cookies(ask);
        change(config);
    })
}

/// Packet 0 of a call to a router, as a client sends it.
fn call_of(client: &mut Solo) -> Vec<u8> {
    client.called(router_bench::server(9), 4, ONCE).bytes
}

#[test]
fn a_router_places_nothing_without_a_tag_and_its_cookie_is_good_at_the_servers() {
    let mut bench = router(AskCookies::Always, |_| {});
    let mut client = Solo::new(|_| {});
    let from = router_bench::client();
    let first = call_of(&mut client);
    let told = bench.send(from, &first);
    assert_eq!((told.len(), told[0].to), (1, from));
    assert_eq!((bench.router.table_len(), bench.outstanding()), (0, vec![0, 0]));
    assert_eq!(bench.metrics().validations, 1);
    let again = client.give(router_bench::server(9), &told[0].bytes);
    assert_eq!(again[0].to, router_bench::server(9), "whose it will be is not known yet");
    let placed = bench.send(from, &again[0].bytes);
    assert_eq!(bench.outstanding().iter().sum::<u32>(), 1);
    // The server, which has the same key, has nothing to ask.
    let mut server = server();
    server.node.handle_datagram(server.now, from.into(), &mut keep(&placed[0].bytes));
    assert!(server.request().is_some());
    // Its reply comes from its own address, and ends the call.
    let packet = Packet::parse(&again[0].bytes).unwrap();
    let answer = Sent { from: Source::Any, to: from, bytes: again[0].bytes.clone() }.reply(4, 0);
    assert_eq!(packet.index, 0);
    client.give(router_bench::server(0), &answer);
    assert!(client.reply().is_some());
}

/// Packet that a router that keeps addresses would have sent.
fn keep(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[48..66].fill(0);
    bytes
}

#[test]
fn a_router_asks_while_it_holds_requests() {
    let mut bench =
        router(AskCookies::UnderLoad, |config| config.policy = "jbsq:1".parse().unwrap());
    let mut server = [FakeServer::new(0), FakeServer::new(1)];
    let mut client = Solo::new(|_| {});
    let from = router_bench::client();
    for _ in 0..3 {
        let sent = bench.send(from, &call_of(&mut client));
        for sent in sent {
            server.iter_mut().filter(|server| server.addr == sent.to).for_each(|server| {
                server.take(&sent.bytes);
            });
        }
    }
    assert_eq!(bench.metrics().held, 1);
    let held = call_of(&mut client);
    let told = bench.send(from, &held);
    assert_eq!((told.len(), bench.metrics().validations, bench.metrics().held), (1, 1, 1));
    // With its cookie it is held too.
    let again = client.give(router_bench::server(9), &told[0].bytes);
    bench.send(from, &again[0].bytes);
    assert_eq!(bench.metrics().held, 2);
    // What is held here and comes again without a tag is not asked.
    bench.send(from, &again[0].bytes);
    assert_eq!((bench.metrics().validations, bench.metrics().duplicates_held), (1, 1));
}

/// Its servers give tokens, which are nothing to it.
#[test]
fn a_router_before_servers_that_ask_for_nothing_asks_once() {
    let mut bench = router(AskCookies::Always, |_| {});
    let mut server = server_that(AskCookies::Never, |_| {});
    let mut client = Solo::new(|_| {});
    let (from, at) = (router_bench::client(), router_bench::server(9));
    for round in 0..3 {
        let mut sent = call_of(&mut client);
        let mut out = bench.send(from, &sent);
        if round == 0 {
            sent = client.give(at, &out[0].bytes).remove(0).bytes;
            out = bench.send(from, &sent);
        }
        server.node.handle_datagram(server.now, from.into(), &mut keep(&out[0].bytes));
        let id = server.request().expect("it is placed");
        server.node.reply(server.now, id, vec![7]).unwrap();
        let reply = server.sent().remove(0);
        assert!(reply.packet().token() != 0 && !reply.has(Flags::COOKIE));
        client.give(out[0].to, &reply.bytes);
        assert_eq!(client.reply(), Some(vec![7]));
        bench.send(out[0].to, &FakeServer::new(0).feedback());
    }
    assert_eq!(bench.metrics().validations, 1);
}
