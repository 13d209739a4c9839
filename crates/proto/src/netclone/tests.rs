//! The switch against packets made by hand.

use std::collections::BTreeMap;

use tailcut_wire::netclone::{PACKET_LEN, Trailer};
use zerocopy::IntoBytes;

use super::*;

const MS: Time = 1_000_000;

struct Bench {
    switch: Switch,
    now: Time,
}

fn server(index: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, 100 + index as u8], 1_000))
}

fn client(index: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, 1], 40_000 + index))
}

fn request(grp: u32, tidx: u32) -> Header {
    Header { grp: grp.into(), tidx: tidx.into(), sid: 77.into(), ..Header::default() }
}

/// Response of the published server to a request: it changes three fields.
fn response(request: Header, sid: u32, load: u32) -> Header {
    Header { op: 1.into(), sid: sid.into(), load: load.into(), ..request }
}

fn bytes(header: Header) -> Vec<u8> {
    let trailer = Trailer { stamp: *b"whenever", address: [9; 16] };
    [header.as_bytes(), trailer.as_bytes()].concat()
}

impl Bench {
    fn new(servers: u16, change: impl FnOnce(&mut SwitchConfig)) -> Self {
        let servers = (0..servers).map(server).collect();
        let mut config =
            SwitchConfig { servers, flights_len: 64, seed: 5, ..SwitchConfig::default() };
        change(&mut config);
        Self { switch: Switch::new(0, config).unwrap(), now: 0 }
    }

    fn send(&mut self, peer: SocketAddr, header: Header) -> Vec<(SocketAddr, Header)> {
        self.send_bytes(peer, &bytes(header))
    }

    fn send_bytes(&mut self, peer: SocketAddr, bytes: &[u8]) -> Vec<(SocketAddr, Header)> {
        self.switch.handle_datagram(self.now, peer.into(), &mut bytes.to_vec());
        let mut buffer = [0; 9_000];
        let mut sent = Vec::new();
        while let Some(transmit) = self.switch.poll_transmit(self.now, &mut buffer) {
            for datagram in buffer[..transmit.len].chunks(transmit.segment_len) {
                assert_eq!(datagram.len(), bytes.len());
                assert_eq!(datagram[28..], bytes[28..], "what end hosts append stays");
                let header = Packet::parse(datagram).unwrap().header;
                sent.push((transmit.to, *header));
            }
        }
        sent
    }

    /// Sends a request and gives where it went, with the headers there.
    fn ask(&mut self, grp: u32) -> Vec<(SocketAddr, Header)> {
        self.send(client(0), request(grp, 1))
    }

    /// Does what is due.
    fn tick(&mut self) {
        if self.switch.poll_timeout().is_some_and(|due| due <= self.now) {
            self.switch.handle_timeout(self.now);
        }
    }

    /// Makes servers report these loads.
    fn report(&mut self, loads: &[u32]) {
        for (sid, &load) in (0..).zip(loads) {
            self.send(server(sid as u16), response(Header::default(), sid, load));
        }
    }
}

fn clo(sent: &[(SocketAddr, Header)]) -> Vec<(SocketAddr, u32)> {
    sent.iter().map(|&(to, header)| (to, header.clo.get())).collect()
}

#[test]
fn groups_are_numbered_as_the_published_controller_numbers_them() {
    let all: Vec<_> = (1..=6).map(|group| pair(group, 3).unwrap()).collect();
    assert_eq!(all, [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)]);
    assert_eq!([pair(0, 3), pair(7, 3)], [None, None]);
    let six: BTreeMap<_, _> = (1..=30).map(|group| (pair(group, 6).unwrap(), group)).collect();
    assert!(six.len() == 30 && six.keys().all(|(first, second)| first != second));
    assert_eq!(pair(30, 6), Some((5, 4)));
    assert_eq!(pair(240, 16), Some((15, 14)));
}

#[test]
fn an_idle_pair_gets_both_copies() {
    let mut bench = Bench::new(3, |_| {});
    let sent = bench.ask(6);
    assert_eq!(clo(&sent), [(server(2), 1), (server(1), 2)]);
    // Both name the second server, as the published program writes it.
    assert!(sent.iter().all(|(_, header)| header.sid.get() == 1));
    assert!(
        sent.iter().all(|(_, header)| header.seq == sent[0].1.seq && header.tidx.get() & 1 == 1)
    );
}

#[test]
fn what_is_not_cloned_goes_to_the_first_or_with_racksched_to_the_shorter() {
    for (fallback, loads, to) in [
        (Fallback::First, [0, 1], 0),
        (Fallback::First, [9, 1], 0),
        (Fallback::Shorter, [9, 1], 1),
        (Fallback::Shorter, [1, 9], 0),
        (Fallback::Shorter, [4, 4], 0),
    ] {
        let mut bench = Bench::new(2, |config| config.fallback = fallback);
        bench.report(&loads);
        assert_eq!(clo(&bench.ask(1)), [(server(to), 0)], "{fallback:?} {loads:?}");
    }
}

#[test]
fn the_faster_response_goes_to_the_client_and_the_slower_nowhere() {
    let mut bench = Bench::new(2, |_| {});
    let sent = bench.ask(1);
    let faster = bench.send(server(1), response(sent[1].1, 1, 3));
    let [(to, header)] = faster[..] else { panic!("{faster:?}") };
    assert_eq!((to, header.clo.get(), header.load.get()), (client(0), 2, 3));
    // The client gets the table that it drew.
    assert_eq!((header.tidx.get(), header.seq), (1, sent[0].1.seq));
    assert_eq!(bench.send(server(0), response(sent[0].1, 0, 0)), []);
    let metrics = bench.switch.metrics();
    assert_eq!((metrics.replies_filtered, metrics.clones_won, metrics.cloned), (1, 1, 1));
    // Also the dropped one's load counts: the pair would be cloned to again but for the other.
    assert_eq!(bench.switch.servers().map(|server| server.load).collect::<Vec<_>>(), [0, 3]);
}

#[test]
fn ids_wrap_to_one_and_are_never_zero() {
    let mut bench = Bench::new(2, |_| {});
    bench.switch.seq = SEQ_MAX - 1;
    let ids = [1, 1, 1].map(|grp| bench.ask(grp)[0].1.seq.get());
    assert_eq!(ids, [SEQ_MAX, 1, 2]);
}

#[test]
fn an_earlier_runs_responses_go_nowhere_and_evict_nobody() {
    let mut before = Bench::new(2, |_| {});
    let old = before.ask(1);
    let mut after = Bench::new(2, |config| config.seed = 6);
    // The same id by chance.
    after.switch.seq = old[0].1.seq.get() - 1;
    let new = after.ask(1);
    assert_eq!(new[0].1.seq, old[0].1.seq);
    assert_eq!(after.send(server(0), response(old[0].1, 0, 0)), []);
    assert_eq!(after.switch.metrics().replies_unknown, 1);
    assert_eq!(after.send(server(0), response(new[0].1, 0, 0)).len(), 1);
}

#[test]
fn a_collision_drops_no_first_response() {
    let mut bench = Bench::new(2, |config| config.filter_len = 1);
    let sent: Vec<_> = (0..20).map(|_| bench.ask(1)).collect();
    let mut first = 0;
    for pair in &sent {
        first += bench.send(server(0), response(pair[0].1, 0, 0)).len();
    }
    assert_eq!(first, 20);
    assert_eq!(bench.switch.metrics().replies_filtered, 0);
}

#[test]
fn responses_of_others_than_they_name_are_dropped() {
    let mut bench = Bench::new(2, |_| {});
    let sent = bench.ask(1);
    for (peer, sid) in [(server(0), 1), (server(0), 2), (client(0), 0), (server(5), u32::MAX)] {
        assert_eq!(bench.send(peer, response(sent[0].1, sid, 0)), []);
    }
    assert_eq!(bench.switch.metrics().replies_stranger, 4);
}

#[test]
fn an_id_that_is_long_past_finds_no_client() {
    let mut bench = Bench::new(2, |config| config.flights_len = 4);
    let sent = bench.ask(1);
    (0..4).for_each(|_| drop(bench.ask(1)));
    assert_eq!(bench.send(server(0), response(sent[0].1, 0, 0)), []);
    assert_eq!(bench.switch.metrics().replies_unknown, 1);
}

#[test]
fn an_unknown_group_gets_the_first_pair() {
    let mut bench = Bench::new(2, |_| {});
    assert_eq!(clo(&bench.ask(0)), [(server(0), 1), (server(1), 2)]);
    assert_eq!(clo(&bench.ask(3)), [(server(0), 1), (server(1), 2)]);
    assert_eq!(bench.switch.metrics().unknown_group, 2);
}

#[test]
fn one_server_gets_everything_once() {
    let mut bench = Bench::new(1, |_| {});
    assert_eq!(clo(&bench.ask(1)), [(server(0), 0)]);
}

#[test]
fn a_server_that_dies_while_idle_gets_no_more_but_trials() {
    let mut bench =
        Bench::new(2, |config| (config.silent_ns, config.trial_interval_ns) = (5 * MS, 20 * MS));
    let answer = |bench: &mut Bench, sent: &[(SocketAddr, Header)]| {
        for &(to, header) in sent.iter().filter(|(to, _)| *to == server(1)) {
            bench.send(to, response(header, 1, 0));
        }
    };
    let mut placed = [0; 2];
    for tick in 0..60 {
        bench.now = tick * MS;
        bench.tick();
        let sent = bench.ask(1 + tick as u32 % 2);
        sent.iter().for_each(|(to, _)| placed[usize::from(*to == server(1))] += 1);
        answer(&mut bench, &sent);
    }
    // Until 5 ms each, and trials at 25 and 46.
    assert!(placed[1] == 60 && placed[0] <= 9, "{placed:?}");
    assert_eq!(bench.switch.metrics().servers_silenced, 1);
    // It answers the trial.
    let sent = (0..30).find_map(|tick| {
        bench.now = (60 + tick) * MS;
        bench.ask(1).into_iter().find(|(to, _)| *to == server(0))
    });
    bench.send(server(0), response(sent.unwrap().1, 0, 0));
    assert_eq!(bench.switch.metrics().servers_returned, 1);
    assert_eq!(bench.ask(1).len(), 2);
}

#[test]
fn a_pause_of_the_network_takes_no_server_out() {
    let mut bench = Bench::new(3, |config| config.silent_ns = MS);
    bench.report(&[3, 3, 3]);
    let asked: Vec<_> = [1, 2, 6].map(|grp| bench.ask(grp)).concat();
    assert_eq!(clo(&asked), [(server(0), 0), (server(1), 0), (server(2), 0)]);
    for _ in 0..10 {
        bench.now += MS / 2;
        bench.tick();
    }
    // They are asked as before, and what they have answered comes one after the other.
    assert_eq!(clo(&bench.ask(1)), [(server(0), 0)]);
    for (sid, (to, header)) in (0..).zip(asked) {
        assert_eq!(bench.send(to, response(header, sid, 0)).len(), 1);
        bench.now += 1;
        bench.tick();
    }
    assert_eq!(bench.switch.metrics().servers_silenced, 0);
}

#[test]
fn who_has_answered_last_stays_while_all_others_are_out() {
    let mut bench = Bench::new(3, |config| config.silent_ns = MS);
    bench.report(&[3, 3, 3]);
    (1..=6).for_each(|grp| drop(bench.ask(grp)));
    for tick in 1..=9 {
        bench.now = tick * MS / 3;
        bench.send(server(2), response(Header::default(), 2, 3));
        bench.tick();
    }
    assert_eq!(bench.switch.metrics().servers_silenced, 2);
    // It dies too: nothing shows that it has, and not rather the network.
    for tick in 4..20 {
        bench.now = tick * MS;
        bench.tick();
        assert_eq!(clo(&bench.ask(1)), [(server(2), 0)]);
    }
    assert_eq!(bench.switch.metrics().servers_silenced, 2);
}

#[test]
fn an_outbox_without_room_for_two_copies_is_refused() {
    let servers = vec![server(0), server(1)];
    for outbox_len_max in [0, 1] {
        let config =
            SwitchConfig { servers: servers.clone(), outbox_len_max, ..SwitchConfig::default() };
        let error = Switch::new(0, config).err().map(|error| error.to_string());
        let limit = "outbox_len_max must be at least 2, the copies of a request, and not";
        assert_eq!(error, Some(format!("{limit} {outbox_len_max}")));
    }
    let mut bench = Bench::new(2, |config| config.outbox_len_max = 2);
    assert_eq!(bench.ask(1).len(), 2);
}

#[test]
fn a_header_alone_is_switched_and_less_is_malformed() {
    let mut bench = Bench::new(2, |_| {});
    let header = request(1, 0);
    assert_eq!(bench.send_bytes(client(0), header.as_bytes()).len(), 2);
    let long = [&bytes(header)[..], &[1; 100]].concat();
    assert_eq!(bench.send_bytes(client(0), &long).len(), 2);
    assert_eq!(bench.send_bytes(client(0), &header.as_bytes()[..27]), []);
    assert_eq!(bench.send(client(0), Header { op: 2.into(), ..header }), []);
    assert_eq!(bench.send(client(0), Header { clo: 3.into(), ..header }), []);
    let metrics = bench.switch.metrics();
    let malformed = [metrics.malformed_length, metrics.malformed_op, metrics.malformed_mark];
    assert_eq!((malformed, bytes(header).len()), ([1, 1, 1], PACKET_LEN));
}

#[test]
fn a_switch_without_servers_or_with_too_many_is_refused() {
    let check = |servers: u16, message: &str| {
        let servers = (0..servers).map(|index| SocketAddr::from(([10, 0, 2, 1], index))).collect();
        let made = Switch::new(0, SwitchConfig { servers, ..SwitchConfig::default() });
        assert_eq!(made.err().map(|error| error.to_string()), Some(message.to_owned()));
    };
    check(0, "a NetClone switch has 1 to 16 servers, not 0");
    check(17, "a NetClone switch has 1 to 16 servers, not 17");
    let twice = SwitchConfig { servers: vec![server(0); 2], ..SwitchConfig::default() };
    assert_eq!(Switch::new(0, twice).err(), Some(SwitchError::Exists { addr: server(0) }));
}

/// Destinations of requests of each pair of three servers.
fn placed_on(bench: &mut Bench) -> Vec<SocketAddr> {
    let mut placed: Vec<SocketAddr> = (1..=6)
        .flat_map(|group| bench.send(client(0), request(group, 0)))
        .map(|(to, _)| to)
        .collect();
    placed.sort();
    placed.dedup();
    placed
}

#[test]
fn a_drained_server_gets_nothing_until_it_is_resumed() {
    let mut bench = Bench::new(3, |_| {});
    bench.switch.drain_server(server(1)).unwrap();
    assert_eq!(placed_on(&mut bench), [server(0), server(2)]);
    bench.switch.resume_server(server(1)).unwrap();
    assert_eq!(placed_on(&mut bench), [server(0), server(1), server(2)]);
}

#[test]
fn the_last_server_is_not_drained() {
    let mut bench = Bench::new(2, |_| {});
    bench.switch.drain_server(server(0)).unwrap();
    let last = SwitchError::Last { addr: server(1) };
    assert_eq!(bench.switch.drain_server(server(1)), Err(last));
    assert_eq!(bench.switch.remove_server(server(1)), Err(last));
    let unknown = SwitchError::Unknown { addr: server(7) };
    assert_eq!(bench.switch.drain_server(server(7)), Err(unknown));
    assert_eq!(placed_on(&mut bench), [server(1)]);
}

#[test]
fn a_server_comes_under_the_id_of_one_that_was_removed() {
    let mut bench = Bench::new(3, |_| {});
    assert_eq!(bench.switch.add_server(server(9)), Err(SwitchError::NoId));
    bench.switch.remove_server(server(1)).unwrap();
    assert_eq!(placed_on(&mut bench), [server(0), server(2)]);
    assert_eq!(bench.switch.add_server(server(0)), Err(SwitchError::Exists { addr: server(0) }));
    assert_eq!(bench.switch.add_server(server(9)), Ok(1));
    assert_eq!(placed_on(&mut bench), [server(0), server(2), server(9)]);
    let header = Header { op: 1.into(), sid: 1.into(), ..Header::default() };
    bench.send(server(1), header);
    assert_eq!(bench.switch.metrics().replies_stranger, 1, "its id is another's");
}

/// While all others are silent and who answers is drained, requests go to one that may come back.
#[test]
fn a_server_that_may_come_back_gets_what_nobody_else_may_have() {
    let mut bench = Bench::new(2, |_| {});
    bench.switch.note_elsewhere(0, 0, Elsewhere { asked: 1, ..Elsewhere::default() });
    bench.switch.note_elsewhere(MS, 1, Elsewhere { asked: 1, answered: 1, load: 0 });
    bench.switch.handle_timeout(1_001 * MS);
    bench.now = 1_002 * MS;
    bench.switch.drain_server(server(1)).unwrap();
    assert_eq!(placed_on(&mut bench), [server(0)]);
}

#[test]
fn what_a_data_plane_has_heard_decides_who_is_out() {
    let mut bench = Bench::new(2, |_| {});
    let asked = Elsewhere { asked: 3, ..Elsewhere::default() };
    let answered = Elsewhere { asked: 3, answered: 3, load: 2 };
    let is_silent =
        |bench: &Bench| bench.switch.servers().map(|server| server.is_silent).collect::<Vec<_>>();
    bench.switch.note_elsewhere(0, 0, asked);
    bench.switch.note_elsewhere(500 * MS, 1, answered);
    assert_eq!(bench.switch.poll_timeout(), Some(1_000 * MS));
    bench.switch.handle_timeout(1_000 * MS);
    assert_eq!(is_silent(&bench), [true, false]);
    bench.switch.note_elsewhere(1_001 * MS, 0, answered);
    assert_eq!(is_silent(&bench), [false, false]);
    let servers: Vec<_> = bench.switch.servers().collect();
    assert_eq!((servers[0].placed, servers[0].answered, servers[0].load), (6, 3, 2));
    assert_eq!(bench.switch.metrics().servers_returned, 1);
}

impl Bench {
    /// A request of `peer` that comes before the driver has taken what is to be sent.
    fn press(&mut self, peer: SocketAddr, header: Header) {
        self.switch.handle_datagram(self.now, peer.into(), &mut bytes(header));
    }
}

#[test]
fn a_conversation_is_counted() {
    let mut bench = Bench::new(2, |_| {});
    for load in [0, 1] {
        let sent = bench.ask(1);
        bench.send(server(0), response(sent[0].1, 0, load));
    }
    bench.switch.remove_server(server(1)).unwrap();
    // The second response has told a load, so that the third request goes to one server.
    bench.ask(1);
    let expected = SwitchMetrics {
        received: 5,
        placed: 3,
        cloned: 2,
        replies_forwarded: 2,
        ..SwitchMetrics::default()
    };
    assert_eq!(bench.switch.metrics(), expected);
    let servers: Vec<_> = bench.switch.servers().collect();
    assert_eq!(servers.iter().map(|server| server.placed).collect::<Vec<_>>(), [3, 2]);
    let is_gone = |server: &SwitchServer| (server.is_drained, server.is_removed);
    assert_eq!(servers.iter().map(is_gone).collect::<Vec<_>>(), [(false, false), (true, true)]);
}

#[test]
fn a_drained_server_is_not_removed() {
    let mut bench = Bench::new(2, |_| {});
    bench.switch.drain_server(server(1)).unwrap();
    let last = bench.switch.servers().last().expect("a server");
    assert_eq!((last.is_drained, last.is_removed), (true, false));
}

#[test]
fn a_request_longer_than_allowed_is_dropped() {
    let mut bench = Bench::new(2, |config| config.packet_len_max = PACKET_LEN);
    assert_eq!(bench.ask(1).len(), 2, "as long as allowed");
    let longer = [&bytes(request(1, 0))[..], &[0]].concat();
    assert_eq!(bench.send_bytes(client(0), &longer), []);
    assert_eq!((bench.switch.metrics().too_large, bench.switch.metrics().placed), (1, 1));
}

#[test]
fn a_driver_that_does_not_drain_loses_requests_and_responses() {
    let mut bench = Bench::new(2, |config| config.outbox_len_max = 3);
    assert!(bench.switch.is_idle());
    let sent = bench.ask(1);
    bench.press(client(0), request(1, 0));
    assert!(!bench.switch.is_idle(), "two copies wait");
    bench.press(client(1), request(1, 0));
    assert_eq!((bench.switch.metrics().outbox_full, bench.switch.metrics().placed), (1, 2));
    // One more fits, and the other of its pair does not: it is not judged.
    bench.press(server(0), response(sent[0].1, 0, 0));
    bench.press(server(1), response(sent[1].1, 1, 0));
    let metrics = bench.switch.metrics();
    assert_eq!((metrics.outbox_full, metrics.replies_filtered), (2, 0));
    let mut buffer = [0; 9_000];
    while bench.switch.poll_transmit(0, &mut buffer).is_some() {}
    assert!(bench.switch.is_idle());
}

#[test]
fn a_request_from_where_no_answer_can_reach_is_dropped() {
    let mut bench = Bench::new(2, |_| {});
    for peer in [([10, 0, 1, 1], 0), ([0, 0, 0, 0], 40_000), ([224, 0, 0, 1], 40_000)] {
        assert_eq!(bench.send(peer.into(), request(1, 0)), [], "{peer:?}");
    }
    let metrics = bench.switch.metrics();
    assert_eq!((metrics.replies_stranger, metrics.placed), (3, 0));
}

#[test]
fn what_the_filter_and_the_outbox_lose_is_counted() {
    let mut bench = Bench::new(2, |config| config.filter_len = 1);
    let sent = [bench.ask(1), bench.ask(1)];
    sent.iter().for_each(|pair| drop(bench.send(server(0), response(pair[0].1, 0, 0))));
    assert_eq!(bench.switch.metrics().filter_evicted, 1);
    bench.press(client(0), request(1, 0));
    assert!(bench.switch.poll_transmit(0, &mut [0; PACKET_LEN - 1]).is_none());
    assert_eq!(bench.switch.metrics().oversize, 2);
}

#[test]
fn a_data_plane_that_has_asked_and_heard_nothing_says_nothing() {
    let mut bench = Bench::new(2, |_| {});
    bench.switch.note_elsewhere(0, 0, Elsewhere::default());
    assert_eq!(bench.switch.poll_timeout(), None, "nobody was asked");
    let asked = Elsewhere { asked: 1, ..Elsewhere::default() };
    bench.switch.note_elsewhere(0, 0, asked);
    bench.switch.note_elsewhere(500 * MS, 1, asked);
    bench.switch.handle_timeout(1_000 * MS);
    assert_eq!(bench.switch.metrics().servers_silenced, 0, "nobody has answered");
}

#[test]
fn a_server_that_is_out_is_not_lost_again_by_its_trials() {
    let mut bench = Bench::new(2, |_| {});
    let asked = Elsewhere { asked: 1, ..Elsewhere::default() };
    bench.switch.note_elsewhere(0, 0, asked);
    bench.switch.note_elsewhere(MS, 1, Elsewhere { answered: 1, ..asked });
    bench.switch.handle_timeout(1_001 * MS);
    assert_eq!(bench.switch.metrics().servers_silenced, 1);
    bench.switch.note_elsewhere(1_002 * MS, 0, asked);
    assert_eq!(bench.switch.poll_timeout(), None);
}
