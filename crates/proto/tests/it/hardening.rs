//! Guarantees that must hold whatever a careful attacker, a bad day or an odd caller does. Each
//! began as a failing test.

use std::collections::VecDeque;
use std::net::SocketAddr;
use tailcut_proto::node::{GSO_BYTES_MAX, Node, Path};
use tailcut_proto::r2p2::{Config, Endpoint};
use tailcut_proto::router::Speaks;
use tailcut_proto::rpc::{Call, CallOptions, Event, Failure, Rpc};
use tailcut_wire::r2p2::{
    DropReason, Flags, MessageType, Packet, ReplyRepr, RequestHeader, RequestRepr, Route, RpcId,
    Segment, SessionId,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::router_bench::{Ask, Bench, client as rclient, server as rserver};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const ONCE: CallOptions = CallOptions { idempotent: false, fixed: false, v1: false };

pub(crate) fn request(
    session: u64,
    sequence: u32,
    message_len: u32,
    payload: &[u8],
    route: Route,
) -> Vec<u8> {
    let count = message_len.div_ceil(1380).max(1) as u16;
    let rpc_id = RpcId::new(SessionId(session), sequence);
    let repr = RequestRepr {
        segment: Segment { message_len, segment_len: 1380, index: 0, count },
        deadline_us: 1_000_000,
        ..RequestRepr::control(MessageType::Request, 1, rpc_id)
    };
    [repr.header().as_bytes(), route.as_bytes(), payload].concat()
}

pub(crate) struct Lone {
    pub(crate) node: Endpoint,
    pub(crate) now: u64,
    pub(crate) runs: usize,
    pub(crate) sent: Vec<(SocketAddr, Vec<u8>)>,
}
impl Lone {
    fn new() -> Self {
        Self::with(|_| {})
    }
    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config { secret: [9; 16], ..Config::default() };
        change(&mut config);
        Self { node: Endpoint::new(0, config), now: 100 * SECOND, runs: 0, sent: vec![] }
    }
    pub(crate) fn give(&mut self, from: &str, bytes: &[u8]) {
        self.node.handle_datagram(self.now, path(from), &mut bytes.to_vec());
        while let Some(event) = self.node.poll_event() {
            if let Event::Request { id, .. } = event {
                self.runs += 1;
                let _ = self.node.reply(self.now, id, b"pong".to_vec());
            }
        }
        let mut buffer = vec![0; GSO_BYTES_MAX];
        while let Some(t) = self.node.poll_transmit(self.now, &mut buffer) {
            self.sent.extend(buffer[..t.len].chunks(t.segment_len).map(|b| (t.to, b.to_vec())));
        }
    }
    pub(crate) fn pass(&mut self, ns: u64) {
        self.now += ns;
        self.node.handle_timeout(self.now);
    }
    fn drops(&self) -> Vec<DropReason> {
        self.sent
            .iter()
            .filter_map(|(_, b)| {
                let p = Packet::parse(b).ok()?;
                (p.message_type == MessageType::Drop).then(|| DropReason::from_payload(p.payload))
            })
            .collect()
    }
}

#[test]
fn old_sessions_make_room() {
    let mut server =
        Lone::with(|config| config.serving.trusted.push("10.0.0.0/8".parse().unwrap()));
    for session in 0..80 {
        server.give("10.0.0.1:33000", &request(session + 1, 0, 4, b"ping", Route::default()));
        server.pass(60 * SECOND);
    }
    assert_eq!((server.runs, server.drops()), (80, vec![]));
}

#[test]
fn claims_do_not_fill_the_server() {
    let mut server = Lone::new();
    for place in 0..32u64 {
        let from = format!("10.9.0.{}:99", place / 8);
        server.give(&from, &request(place + 1, 0, 8 << 20, &[0; 1380], Route::default()));
    }
    server.sent.clear();
    server.give("10.0.0.1:33000", &request(77, 0, 4, b"ping", Route::default()));
    assert_eq!((server.runs, server.drops()), (1, vec![]));
}

#[test]
fn version_1_clients_are_served_after_2048_addresses() {
    let mut server = Lone::new();
    for place in 0..2048u32 {
        let ip = std::net::Ipv4Addr::from(0x0a09_0000 + place);
        server.give(&format!("{ip}:99"), b"\xcc\x08\x00\xc0\0\x01\0\x01ping");
    }
    assert_eq!(server.runs, 2048);
    server.pass(3600 * SECOND);
    server.give("10.0.0.1:33000", b"\xcc\x08\x00\xc0\0\x01\0\x01ping");
    assert_eq!(server.runs, 2049);
}

#[test]
fn a_router_does_not_place_a_late_duplicate_elsewhere() {
    let mut bench =
        Bench::new(Speaks::Extension, 2, |config| config.policy = "rr".parse().unwrap());
    let ask = Ask { deadline_us: 500, ..Ask::id(1) }.bytes();
    let first = bench.place(&ask);
    bench.advance(600_000);
    let second = bench.send(rclient(), &ask);
    let to: Vec<_> = second.iter().map(|s| s.to).collect();
    assert!(to.iter().all(|to| *to == rserver(first.unwrap())), "first {first:?}, then {to:?}");
}

#[test]
fn strangers_do_not_lock_out_the_configured_router() {
    let mut server =
        Lone::with(|config| config.pool.router = Some("10.0.0.9:9000".parse().unwrap()));
    let mut probe =
        RequestRepr::control(MessageType::Probe, 0, RpcId(0)).header().as_bytes().to_vec();
    probe.extend_from_slice(&[0, 0, 0, 1]);
    for round in 0..10 {
        for place in 0..16 {
            server.give(&format!("10.9.0.{place}:99"), &probe);
        }
        server.sent.clear();
        server.give("10.0.0.9:9000", &probe);
        assert_eq!(server.sent.len(), 1, "round {round}: the router gets no report");
        server.pass(5 * SECOND);
    }
}

#[test]
fn a_multicast_client_in_a_route_gets_nothing() {
    let mut server =
        Lone::with(|config| config.pool.router = Some("10.0.0.1:33000".parse().unwrap()));
    let mut route = Route { routed: 1, client_port: 53.into(), ..Route::default() };
    route.client_ip = std::net::Ipv4Addr::new(224, 0, 0, 1).to_ipv6_mapped().octets();
    server.give("10.0.0.1:33000", &request(1, 0, 4, b"ping", route));
    assert!(server.sent.is_empty(), "{:?}", server.sent[0].0);
}

#[test]
fn a_lost_refusal_is_said_again() {
    let mut server = Lone::new();
    let ask = request(1, 0, 4, b"ping", Route::default());
    server.node.handle_datagram(server.now, path("10.0.0.1:1"), &mut ask.clone());
    let Some(Event::Request { id, .. }) = server.node.poll_event() else { panic!() };
    let now = server.now;
    server.node.refuse(now, id, DropReason::Application).unwrap();
    let mut b = vec![0; 9000];
    assert!(server.node.poll_transmit(now, &mut b).is_some());
    server.give("10.0.0.1:1", &ask);
    assert_eq!(server.drops().len(), 1, "the client waits for its deadline");
}
/// ICMP says that nothing listens: what was never answered ends, what may have run waits, and what
/// a server behind the router was to answer goes back to the router.
#[test]
fn a_closed_port_ends_what_cannot_have_run() {
    let (router, server) = ("10.0.0.9:9000", "10.0.0.2:8000");
    let call = |client: &mut Lone, idempotent| {
        let (now, context) = (client.now, 7);
        let options = CallOptions { idempotent, ..ONCE };
        let target = router.parse().unwrap();
        let call = Call { target, payload: vec![1; 4], deadline: now + SECOND, context, options };
        client.node.call(now, call).unwrap();
        client.give(server, b"");
        let (_, bytes) = client.sent.pop().unwrap();
        let packet = Packet::parse(&bytes).unwrap();
        (packet.rid, packet.rpc_id().unwrap())
    };
    let end = |client: &mut Lone, peer: &str| {
        // Who has looked for one does not look for another at once.
        client.now += 10_000;
        client.node.handle_unreachable(client.now, peer.parse().unwrap());
        match client.node.poll_event() {
            Some(Event::Failed { failure, .. }) => Some(failure),
            event => event.map(|event| panic!("{event:?}")),
        }
    };
    let mut client = Lone::new();
    for idempotent in [false, true] {
        call(&mut client, idempotent);
        assert_eq!(end(&mut client, server), None);
        assert_eq!(end(&mut client, router), Some(Failure::Unreachable));
    }
    let acked = |client: &mut Lone, idempotent| {
        let (rid, rpc_id) = call(client, idempotent);
        let repr = ReplyRepr { token: 9, ..ReplyRepr::control(MessageType::Ack, rid, rpc_id) };
        let have_it = [&[0, 1, 0, 1][..], &[0; 32]].concat();
        client.give(server, &[repr.header().as_bytes(), &have_it].concat());
    };
    acked(&mut client, false);
    assert_eq!((end(&mut client, server), end(&mut client, router)), (None, None));
    acked(&mut client, true);
    assert_eq!(end(&mut client, server), None);
    client.give(server, b"");
    assert_eq!(client.sent.last().map(|(to, _)| to.to_string()), Some(router.to_owned()));
    assert_eq!(end(&mut client, router), Some(Failure::Unreachable));
}

/// A client that knows no words takes the refusal without them, which goes second; an address that
/// is not validated gets no more than three times what it paid.
#[test]
fn words_of_a_refusal_are_followed_by_the_reason_alone() {
    for (from, text_len, expected) in [
        ("127.0.0.1:1", 1024, vec![1077, 49]),
        ("10.0.0.1:1", 4, vec![57, 49]),
        ("10.0.0.1:1", 1000, vec![49]),
    ] {
        let mut server = Lone::new();
        let ask = request(1, 0, 4, b"ping", Route::default());
        server.node.handle_datagram(server.now, path(from), &mut ask.clone());
        let Some(Event::Request { id, .. }) = server.node.poll_event() else { panic!() };
        server.node.reject(server.now, id, 404, &vec![b'x'; text_len]).unwrap();
        server.give(from, b"");
        let lens: Vec<usize> = server.sent.iter().map(|(_, bytes)| bytes.len()).collect();
        assert_eq!(lens, expected, "{from}");
        assert!(server.drops().iter().all(|reason| *reason == DropReason::Application));
        let (_, last) = server.sent.last().unwrap();
        assert_eq!(last[48..], [6]);
    }
}

/// Requests that a router placed before it heard that the server stops still run, for a moment.
#[test]
fn a_server_that_stops_takes_what_routers_send_for_a_moment_more() {
    let mut server =
        Lone::with(|config| config.pool.router = Some("10.0.0.9:9000".parse().unwrap()));
    let mut route = Route { routed: 1, client_port: 53.into(), ..Route::default() };
    route.client_ip = std::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets();
    server.give("10.0.0.9:9000", &request(1, 0, 4, b"ping", route));
    server.sent.clear();
    server.node.stop(server.now);
    server.give("10.0.0.9:9000", &request(1, 1, 4, b"ping", route));
    assert_eq!((server.runs, server.drops()), (2, vec![]));
    let is_stopping = |bytes: &[u8]| Packet::parse(bytes).unwrap().flags().has(Flags::STOPPING);
    let reports: Vec<_> = server.sent.iter().filter(|(_, bytes)| is_stopping(bytes)).collect();
    assert!(!reports.is_empty() && reports.iter().all(|(to, _)| to.port() == 9000));
    let told = server.sent.len();
    (0..100).for_each(|_| server.node.stop(server.now));
    server.give("10.0.0.8:9000", b"");
    assert_eq!(server.sent.len(), told, "a router hears of a stop once");
    server.give("10.0.0.1:53", &request(1, 2, 4, b"ping", Route::default()));
    server.pass(50 * MS);
    server.give("10.0.0.9:9000", &request(1, 3, 4, b"ping", route));
    assert_eq!((server.runs, server.drops()), (2, vec![DropReason::Stopping; 2]));
}

#[test]
fn an_idempotent_id_again_and_again_holds_nothing() {
    let mut server = Lone::new();
    for _ in 0..1000 {
        let mut ask = request(1, 0, 4, b"ping", Route::default());
        ask[8 + 12] |= 1;
        server.give("10.0.0.1:1", &ask);
        let mut cancel = RequestRepr::control(MessageType::Cancel, 1, RpcId::new(SessionId(1), 0))
            .header()
            .as_bytes()
            .to_vec();
        cancel[8 + 12] = 0;
        server.give("10.0.0.1:1", &cancel);
    }
    assert_eq!(server.runs, 1000);
    let text = format!("{:?}", server.node);
    let nobody = format!("SlotId({})", u32::MAX);
    let kept = format!("kept: List {{ first: {nobody}, last: {nobody} }}");
    assert!(text.contains(&kept), "entries are kept for no live reply");
}

#[test]
fn a_moved_request_of_several_packets_goes_on_at_once() {
    use tailcut_proto::rpc::Call;
    use tailcut_wire::r2p2::SackBody;
    let mut client = Lone::new();
    let (a, b): (SocketAddr, SocketAddr) =
        ("10.0.0.2:1".parse().unwrap(), "10.0.0.3:1".parse().unwrap());
    let target: SocketAddr = "10.0.0.9:9000".parse().unwrap();
    let options = CallOptions { idempotent: true, ..ONCE };
    let now = client.now;
    client
        .node
        .call(
            now,
            Call {
                target,
                payload: vec![7; 20 * 1380],
                deadline: now + SECOND,
                context: 0,
                options,
            },
        )
        .unwrap();
    let collect = |client: &mut Lone| {
        let mut buffer = vec![0; GSO_BYTES_MAX];
        let mut out: Vec<(SocketAddr, u16, RpcId)> = vec![];
        while let Some(t) = client.node.poll_transmit(client.now, &mut buffer) {
            for bytes in buffer[..t.len].chunks(t.segment_len) {
                let p = Packet::parse(bytes).unwrap();
                out.push((t.to, p.index, p.rpc_id().unwrap()));
            }
        }
        out
    };
    let rpc_id = collect(&mut client)[0].2;
    let ack = |base: u16, granted: u16| {
        let body = SackBody { base: base.into(), granted: granted.into(), bitmap: [0; 32] };
        [ReplyRepr::control(MessageType::Ack, 0, rpc_id).header().as_bytes(), body.as_bytes()]
            .concat()
    };
    client.node.handle_datagram(client.now, a.into(), &mut ack(1, 20));
    assert_eq!(collect(&mut client).len(), 19);
    for _ in 0..1000 {
        client.pass(MS / 4);
        if collect(&mut client).iter().any(|sent| sent.0 == target) {
            break;
        }
    }
    client.node.handle_datagram(client.now, b.into(), &mut ack(1, 20));
    let sent = collect(&mut client);
    assert_eq!(sent.len(), 19, "of packets 1..20 for the new server");
}

#[test]
fn a_call_that_cannot_be_cut_is_refused_by_type() {
    use tailcut_proto::rpc::Call;
    let mut client = Lone::with(|config| config.segment_len = 100);
    let now = client.now;
    let call = Call {
        target: "10.0.0.9:9000".parse().unwrap(),
        payload: vec![7; 7_000_000],
        deadline: now + SECOND,
        context: 0,
        options: ONCE,
    };
    assert!(client.node.call(now, call).is_err(), "it is made and never sent");
}

/// Many clients, each request small, replies of 200 kB; one turn of the driver is 512 kB. Does the
/// router hear of it?
#[test]
fn reports_leave_under_load() {
    let mut server =
        Lone::with(|config| config.serving.trusted.push("10.0.0.0/8".parse().unwrap()));
    let mut probe =
        RequestRepr::control(MessageType::Probe, 0, RpcId(0)).header().as_bytes().to_vec();
    probe.extend_from_slice(&[0, 0, 0, 1]);
    let router: SocketAddr = "10.0.0.9:9000".parse().unwrap();
    let mut buffer = vec![0; GSO_BYTES_MAX];
    let (mut reports, mut session, mut bytes_total) = (0, 0, 0);
    let (mut gap, mut gap_max) = (0, 0);
    for turn in 0..2000 {
        for _ in 0..40 {
            session += 1;
            let from: SocketAddr =
                format!("10.1.{}.{}:99", session % 16, session % 200).parse().unwrap();
            server.node.handle_datagram(
                server.now,
                from.into(),
                &mut request(session % 200 % 16 + 1, session as u32, 4, b"ping", Route::default()),
            );
        }
        if turn % 10 == 5 {
            server.node.handle_datagram(server.now, router.into(), &mut probe);
        }
        while let Some(event) = server.node.poll_event() {
            if let Event::Request { id, .. } = event {
                let _ = server.node.reply(server.now, id, vec![1; 16_000]);
            }
        }
        let mut bytes = 0;
        for _ in 0..64 {
            if bytes >= 1 << 19 {
                break;
            }
            let Some(t) = server.node.poll_transmit(server.now, &mut buffer) else { break };
            bytes += t.len;
            if t.to == router {
                reports += 1;
                gap = 0;
            }
        }
        bytes_total += bytes;
        gap += 1;
        gap_max = gap_max.max(gap);
        server.now += 420_000; // 512 kB at 10 Gb/s
        server.node.handle_timeout(server.now);
    }
    let drops = server.node.metrics().drops;
    assert!(
        gap_max * 420 < 50_000,
        "{} ms without a report, {reports} in all, {} MB sent, drops {drops:?}",
        gap_max * 42 / 100,
        bytes_total >> 20
    );
}

/// A full server says that a request has not run. It knows the session, so that it can keep the
/// promise; why it refused is not remembered, so that a copy hears no more than that it may have
/// run.
#[test]
fn a_copy_of_a_refused_request_does_not_run() {
    let mut server = Lone::with(|config| config.serving.requests_max = 1);
    server.give("10.0.0.1:33000", &request(1, 0, 4, b"ping", Route::default()));
    let refused = request(1, 1, 4, b"ping", Route::default());
    server.give("10.0.0.1:33000", &refused);
    server.pass(2 * SECOND);
    server.give("10.0.0.1:33000", &refused);
    assert_eq!(
        (server.runs, server.drops()),
        (1, vec![DropReason::Overload, DropReason::Uncertain])
    );
}

#[test]
fn a_full_server_does_not_promise_what_it_cannot_know() {
    let mut server = Lone::with(|config| config.serving.requests_max = 0);
    server.now = MS;
    let mut again = request(1, 0, 4, b"ping", Route::default());
    (again[20], again[47]) = (Flags::RETRANSMIT, 2);
    server.give("10.0.0.1:33000", &again);
    assert_eq!(
        server.drops(),
        [DropReason::Uncertain],
        "it may have run before the server started"
    );
}

fn path(from: &str) -> Path {
    from.parse::<SocketAddr>().unwrap().into()
}

/// 76 bytes from each of 100 000 sessions of 2000 clients, answered at once: what one host can send
/// in an instant. Counts how often the request of each ran.
fn flood(server: &mut Lone, runs: &mut [u8]) {
    let mut buffer = vec![0; GSO_BYTES_MAX];
    for session in 0..runs.len() as u32 {
        let client = format!("127.0.0.{}:{}", 1 + session % 4, 10_000 + session % 2000);
        let payload = session.to_be_bytes();
        let mut bytes = request(u64::from(session) + 1, 60_000, 4, &payload, Route::default());
        assert_eq!(bytes.len(), 76);
        server.node.handle_datagram(server.now, path(&client), &mut bytes);
        while let Some(event) = server.node.poll_event() {
            if let Event::Request { id, payload, .. } = event {
                let ran = u32::from_be_bytes(payload[..].try_into().expect("four bytes"));
                runs[ran as usize] += 1;
                server.node.reply(server.now, id, payload).expect("it waits");
            }
        }
        while server.node.poll_transmit(server.now, &mut buffer).is_some() {}
    }
}

#[test]
fn a_hundred_thousand_sessions_are_remembered_within_the_limit_and_none_runs_twice() {
    let mut server = Lone::with(|config| config.serving.sessions_bytes_per_prefix_max = 8 << 20);
    let mut runs = vec![0; 100_000];
    flood(&mut server, &mut runs);
    let ran = runs.iter().filter(|&&runs| runs > 0).count();
    assert!((50_000..70_000).contains(&ran), "{ran} ran");
    let refused = server.node.metrics().sessions_refused_by_prefix;
    assert_eq!(refused, 100_000 - ran as u64);
    assert!(server.node.sessions_bytes() <= 8 << 20);
    // What is remembered does not run again, while its reply is kept and after that.
    flood(&mut server, &mut runs);
    server.pass(2 * SECOND);
    flood(&mut server, &mut runs);
    assert!(runs.iter().all(|&runs| runs <= 1));
    assert!(server.node.sessions_bytes() <= 8 << 20);
    // Once idle, sessions make room for others.
    server.pass(6 * SECOND);
    server.give("127.0.0.1:9", &request(1 << 30, 0, 4, b"ping", Route::default()));
    assert_eq!(server.runs, 1);
}

#[test]
fn a_request_of_an_expired_session_that_is_sent_again_does_not_run_again() {
    let mut server = Lone::with(|config| config.serving.sessions_bytes_per_prefix_max = 4096);
    let mut once = request(77, 3, 4, b"ping", Route::default());
    server.give("127.0.0.1:9", &once);
    server.pass(6 * SECOND);
    // Others take its room.
    for session in 0..100 {
        let other = request(100 + session, 0, 4, b"ping", Route::default());
        server.give(&format!("127.0.0.2:{}", 100 + session), &other);
    }
    let runs = server.runs;
    let (mut header, _) = RequestHeader::read_from_prefix(&once).expect("a header");
    header.flags |= Flags::RETRANSMIT;
    header.age_ms = 8000.into();
    once[..size_of::<RequestHeader>()].copy_from_slice(header.as_bytes());
    server.sent.clear();
    server.pass(2 * SECOND);
    server.give("127.0.0.1:9", &once);
    assert_eq!((server.runs, server.drops()), (runs, vec![DropReason::Uncertain]));
}

#[test]
fn a_thousand_clients_on_one_host_with_whole_windows_are_not_refused() {
    let mut server = Lone::new();
    // Each spreads its calls over many servers, so that nothing of a window is without a gap.
    let sequences = (0..2 * 65_536u32).step_by(512);
    for sequence in sequences.clone() {
        for client in 0..1000u64 {
            let address = format!("127.0.0.1:{}", 10_000 + client);
            server.give(&address, &request(client + 1, sequence, 4, b"ping", Route::default()));
            server.sent.clear();
        }
        // The replies expire.
        server.pass(2 * SECOND);
    }
    let metrics = server.node.metrics();
    let refused = (metrics.sessions_refused, metrics.sessions_refused_by_prefix);
    assert_eq!((server.runs, refused), (1000 * sequences.count(), (0, 0)));
}

/// Every packet that is under way when a server restarts is asked for its token. A client that
/// began anew by each of these answers sent the request as often as it has packets.
#[test]
fn a_server_that_restarts_amid_a_long_request_has_it_once_more() {
    let config = |secret| Config { secret: [secret; 16], segment_len: 256, ..Config::default() };
    let (mut now, mut sent, mut runs, mut has_restarted) = (SECOND, 0, 0, false);
    let mut client = Endpoint::new(now, config(1));
    let mut server = Endpoint::new(now, config(2));
    let options = CallOptions { idempotent: true, ..ONCE };
    let (target, deadline) = ("10.0.0.2:8000".parse().unwrap(), now + 100 * MS);
    let payload = vec![7; 100_000];
    client.call(now, Call { target, payload, deadline, context: 0, options }).unwrap();
    // What is under way to the server, which takes a packet each 2 us, and what has come back.
    let (mut there, mut back): (VecDeque<Vec<u8>>, VecDeque<Vec<u8>>) = Default::default();
    let mut buffer = vec![0; GSO_BYTES_MAX];
    while runs == 0 && now < deadline {
        now += 2_000;
        if !has_restarted && sent > 150 {
            (has_restarted, server) = (true, Endpoint::new(now, config(3)));
        }
        if let Some(mut bytes) = there.pop_front() {
            server.handle_datagram(now, path("10.0.0.1:9000"), &mut bytes);
        }
        if let Some(mut bytes) = back.pop_front() {
            client.handle_datagram(now, path("10.0.0.2:8000"), &mut bytes);
        }
        client.handle_timeout(now);
        while let Some(t) = client.poll_transmit(now, &mut buffer) {
            there.extend(buffer[..t.len].chunks(t.segment_len).map(<[u8]>::to_vec));
            sent += t.len.div_ceil(t.segment_len);
        }
        while let Some(t) = server.poll_transmit(now, &mut buffer) {
            back.extend(buffer[..t.len].chunks(t.segment_len).map(<[u8]>::to_vec));
        }
        runs += usize::from(matches!(server.poll_event(), Some(Event::Request { .. })));
    }
    assert_eq!(runs, 1);
    // All 391 packets, which were under way at the restart, then all of them again; 1,172 with an
    // answer to every ACK.
    assert!(sent <= 2 * 391 + 1, "{sent} packets");
}

/// The first of two packets of version 1, of which the second never comes.
const HALF_V1: &[u8] = b"\xcc\x08\x00\x80\0\x07\0\x02AAAAAAAAAAAAAAAAAAAA";

#[test]
fn half_a_request_of_version_1_is_released_soon() {
    let mut server = Lone::new();
    server.give("127.0.0.1:33000", HALF_V1);
    assert_eq!(server.node.holdings().partials, 1);
    server.pass(60 * MS);
    assert_eq!(server.node.holdings().partials, 0);
}

#[test]
fn a_request_of_version_1_in_one_packet_takes_no_place_of_half_ones() {
    let mut server = Lone::with(|config| config.serving.partials_max = 1);
    server.give("127.0.0.1:33000", HALF_V1);
    assert_eq!(server.node.holdings().partials, 1);
    server.give("127.0.0.2:33000", b"\xcc\x08\x00\xc0\0\x01\0\x01ping");
    assert_eq!(server.runs, 1);
}
