//! Hostile peers: what strangers send, and plans in which nothing else is wrong.
//!
//! | [`super::plan::Attack`] | what strangers send |
//! |---|---|
//! | `HalfRequests` | first packets of requests of two, from anywhere, through the router or to servers; the second never comes |
//! | `ForgedProbes` | PROBEs to servers from many networks, without a token and with one made up |
//! | `NamedClients` | requests to servers and the router whose route block names a victim |
//! | `EchoingPorts` | half requests from thousands of ports of one address, which echo their tokens |
//! | `StrayCancels` | CANCELs, from elsewhere, of requests that are under way |
//! | `ForgedFeedback` | reports of what a server has to the router, from anywhere and from other ports of servers |
//! | `Unproven` | whole requests without a cookie, or by what was heard of another: from anywhere, and from clients' own addresses |
//! | `StaleFeedback` | reports that servers have sent before, once more and from their own addresses |
//!
//! Over Homa all of them but `Unproven` are half requests, from addresses of a private network that
//! no server trusts, some of which echo half of what they were told. One in four contradicts
//! itself: it says that it may not be sent.
//!
//! Datagrams of strangers arrive from addresses that no host of the run has. What goes back there
//! is counted by `super::watch`: three bytes for one, until the stranger has echoed its token; a
//! victim has paid for nothing and gets nothing.

use std::net::SocketAddr;

use rand::RngExt;
use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::{Generator, generator};
use tailcut_measure::quantity::Unit;
use tailcut_proto::homa::Grants;
use tailcut_proto::r2p2::AskCookies;
use tailcut_proto::router::RouterConfig;
use tailcut_wire::homa::tagged::set_tag;
use tailcut_wire::homa::{DATA_LEN, DataFlags, DataHeader, Ports};
use tailcut_wire::r2p2::{
    EXTENDED_LEN, FeedbackBody, MessageType, ReplyRepr, RequestRepr, Route, RpcId, Segment,
    SessionId,
};
use zerocopy::IntoBytes;

use super::plan::{
    Attack, CallPlan, ClientPlan, Fault, FaultKind, Host, Plan, RouterPlan, ServerPlan, Transport,
    in_time_order,
};
use super::watch::Watch;

/// A datagram of a stranger.
pub(super) struct Forged {
    /// The host that it arrives at.
    pub(super) to: Host,
    /// The source that it has.
    pub(super) from: SocketAddr,
    /// The datagram.
    pub(super) bytes: Vec<u8>,
}

impl Plan {
    /// A plan of R2P2, mostly with a router, in which strangers attack and nothing else is wrong:
    /// every call is to be answered.
    pub fn hostile_of_seed(seed: u64) -> Self {
        let dice = &mut generator(seed, STREAM);
        let service = Distribution::parse("exp:50us", Unit::Time);
        let server = ServerPlan {
            workers: 4,
            service: service.unwrap_or_else(|error| panic!("{error}")),
            clients_max: 64,
            ..ServerPlan::default()
        };
        let router = dice.random_bool(0.75).then(|| RouterPlan {
            config: RouterConfig {
                policy: "jbsq:4".parse().unwrap_or_else(|error| panic!("{error}")),
                ..RouterConfig::default()
            },
            ..RouterPlan::default()
        });
        let lasts_ns = dice.random_range(20 * MS..100 * MS);
        let mut plan = Self {
            seed,
            is_to_be_served: true,
            router,
            servers: vec![server; dice.random_range(2..=4)],
            clients: vec![ClientPlan::default(); dice.random_range(1..=6)],
            ..Self::default()
        };
        plan.calls = calls(dice, &plan, lasts_ns);
        let first = dice.random_range(0..PEERS.len());
        let count = dice.random_range(1..=PEERS.len());
        let chosen = PEERS.iter().cycle().skip(first).take(count);
        plan.faults = chosen.map(|&attack| fault(dice, attack, (0, START_NS + lasts_ns))).collect();
        plan
    }

    /// A plan with a router in which what servers report is forged and replayed, beside other
    /// attacks now and then: every call is to be answered.
    pub fn feedback_of_seed(seed: u64) -> Self {
        let mut plan = Self::hostile_of_seed(seed);
        let dice = &mut generator(seed, STREAM ^ 1);
        plan.router.get_or_insert_default().config.policy = ["jbsq:1", "jbsq:2", "jbsq:4", "jsq:2"]
            [dice.random_range(0..4)]
        .parse()
        .unwrap_or_else(|error| panic!("{error}"));
        if dice.random_bool(0.7) {
            plan.faults.clear();
        }
        // So busy that a wrong count of a server shows.
        plan.servers.iter_mut().for_each(|server| server.workers = 1);
        plan.calls.iter_mut().for_each(|call| call.at = START_NS + (call.at - START_NS) / 6);
        let lasts_ns = plan.quiet_at();
        for attack in [Attack::ForgedFeedback, Attack::StaleFeedback] {
            plan.faults.push(fault(dice, attack, (0, lasts_ns)));
        }
        plan
    }

    /// A plan in which servers and routers ask for cookies: of each request strangers' go on as
    /// well, and nothing runs but what clients have called.
    pub fn cookies_of_seed(seed: u64) -> Self {
        let mut plan = Self::hostile_of_seed(seed);
        let dice = &mut generator(seed, STREAM ^ 2);
        let asks = |dice: &mut Generator| match dice.random_range(0..3) {
            0 => AskCookies::UnderLoad,
            _ => AskCookies::Always,
        };
        plan.cookies = asks(dice);
        if let Some(router) = &mut plan.router {
            router.config.cookies.ask = match dice.random_range(0..3) {
                0 => AskCookies::Never,
                _ => asks(dice),
            };
        }
        for server in &mut plan.servers {
            server.is_pooled = true;
            server.workers = dice.random_range(1..=4);
        }
        if plan.cookies == AskCookies::Always {
            let lasts_ns = plan.quiet_at();
            plan.faults.push(fault(dice, Attack::Unproven, (0, lasts_ns)));
        }
        plan
    }

    /// As [`Plan::hostile_of_seed`], of Homa.
    pub fn hostile_homa_of_seed(seed: u64) -> Self {
        let transport = Transport::Homa(Grants::default().policy);
        Self { transport, router: None, ..Self::hostile_of_seed(seed) }
    }
}

/// An attack in any plan.
pub(super) fn any_fault(dice: &mut Generator, lasts_ns: u64) -> Fault {
    let attack = PEERS[dice.random_range(0..PEERS.len())];
    let at = dice.random_range(0..lasts_ns);
    let lasts_ns = dice.random_range(MS..20 * MS);
    fault(dice, attack, (at, lasts_ns))
}

fn fault(dice: &mut Generator, attack: Attack, (at, lasts_ns): (u64, u64)) -> Fault {
    let every_ns = dice.random_range(25_000..MS);
    Fault { at, lasts_ns, kind: FaultKind::Hostile { attack, every_ns } }
}

fn calls(dice: &mut Generator, plan: &Plan, lasts_ns: u64) -> Vec<CallPlan> {
    let count = dice.random_range(30..300);
    let len = |dice: &mut Generator| match dice.random_range(0..4) {
        0 => dice.random_range(1400..8000),
        _ => dice.random_range(8..1000),
    };
    in_time_order((0..count).map(|_| CallPlan {
        // What is sent again so soon after the start may have run before it.
        at: START_NS + dice.random_range(0..lasts_ns),
        client: dice.random_range(0..plan.clients.len()),
        server: dice.random_range(0..plan.servers.len()),
        request_len: len(dice),
        reply_len: len(dice),
        timeout_ns: dice.random_range(200 * MS..400 * MS),
        is_idempotent: dice.random(),
        word: dice.random(),
        ..CallPlan::default()
    }))
}

/// Datagram `count` of an attack; `None` where there is nothing to send.
pub(super) fn forge(plan: &Plan, attack: Attack, count: u64, watch: &Watch) -> Option<Forged> {
    let word = (plan.seed ^ count).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    let server = Host::Server(word as usize % plan.servers.len());
    if let Transport::Homa(_) = plan.transport {
        return Some(match attack {
            Attack::Unproven => unproven_homa(plan, (server, word), watch),
            _ => forge_homa(server, word, watch),
        });
    }
    let anywhere = SocketAddr::from(([10, 9, word as u8, (word >> 8) as u8], 9));
    let (to, from, bytes) = match attack {
        Attack::HalfRequests => {
            let to = if plan.router.is_some() { Host::Router } else { server };
            (to, anywhere, half_request(word, 0, Route::default()))
        }
        Attack::ForgedProbes => {
            let from = SocketAddr::from(([10, 8, (count % 32) as u8, 1], 9000));
            let token = if count.is_multiple_of(2) { 0 } else { word };
            let control = RequestRepr::control(MessageType::Probe, 0, RpcId(0));
            let header = RequestRepr { token, ..control }.header();
            (server, from, [header.as_bytes(), &(word as u32).to_be_bytes()].concat())
        }
        Attack::NamedClients => {
            let is_routed = plan.router.is_some() && count.is_multiple_of(2);
            let to = if is_routed { Host::Router } else { server };
            let client_ip = std::net::Ipv4Addr::new(10, 9, 9, 9).to_ipv6_mapped().octets();
            let (routed, client_port) = (1, 53.into());
            let route = Route { client_ip, client_port, routed, ..Route::default() };
            (to, anywhere, half_request(word, 0, route))
        }
        Attack::EchoingPorts => {
            // Each port twice: the second time it has been told its token.
            let port = 1024 + (count / 2 % 5000) as u16;
            let from = SocketAddr::from(([10, 9, 0, 1], port));
            let server = Host::Server((count / 2) as usize % plan.servers.len());
            (server, from, half_request(word, watch.token_told(from), Route::default()))
        }
        Attack::ForgedFeedback => {
            let other_port = SocketAddr::new(server.address().ip(), 9);
            let from = if count.is_multiple_of(2) { anywhere } else { other_port };
            plan.router.as_ref()?;
            // Half of them are as the first server's last one, and say that it has nothing left.
            let known = watch.heard.last_report().filter(|_| word.is_multiple_of(2));
            (Host::Router, from, known.map_or_else(|| report(word), emptied))
        }
        Attack::Unproven => return unproven(plan, word, watch),
        // Of nodes with seals.
        Attack::Forged | Attack::Replayed => return None,
        Attack::StaleFeedback => {
            let (router, server, bytes) = watch.heard.report_before(word)?;
            (router, server.address(), bytes)
        }
        Attack::StrayCancels => {
            let (to, id) = watch.heard.last_request?;
            let control = RequestRepr::control(MessageType::Cancel, 0, RpcId(id));
            (to, anywhere, control.header().as_bytes().to_vec())
        }
    };
    Some(Forged { to, from, bytes })
}

/// A whole request that none of the plan's clients makes, or one of theirs from elsewhere.
fn unproven(plan: &Plan, word: u64, watch: &Watch) -> Option<Forged> {
    let server = Host::Server(word as usize % plan.servers.len());
    let to = if plan.router.is_some() && word & 1 << 20 == 0 { Host::Router } else { server };
    let anywhere = SocketAddr::from(([10, 9, word as u8, (word >> 8) as u8], 9));
    let client = Host::Client((word >> 16) as usize % plan.clients.len()).address();
    let made_up = |token| {
        let repr = RequestRepr {
            segment: Segment { message_len: 64, segment_len: 64, index: 0, count: 1 },
            deadline_us: 1_000_000,
            token,
            ..RequestRepr::control(MessageType::Request, 1, RpcId::new(SessionId(word >> 24), 0))
        };
        [repr.header().as_bytes(), Route::default().as_bytes(), &[0xff; 64]].concat()
    };
    let (from, bytes) = match (word >> 32 & 3, watch.heard.first()) {
        (0, _) => (anywhere, made_up(word)),
        (1, _) | (_, None) => (client, made_up(0)),
        // The tag of what was heard, on something else and from the same address.
        (2, Some((client, mut heard))) => {
            heard.iter_mut().skip(EXTENDED_LEN + size_of::<Route>()).for_each(|byte| *byte = 0xff);
            heard[ID_AT] ^= 1 << (word >> 40 & 7);
            (Host::Client(client).address(), heard)
        }
        (_, Some((_, heard))) => (anywhere, heard),
    };
    Some(Forged { to, from, bytes })
}

/// The first of two packets of a request: 136 bytes. Its payload is no number of a call.
fn half_request(word: u64, token: u64, route: Route) -> Vec<u8> {
    let repr = RequestRepr {
        segment: Segment { message_len: 128, segment_len: 64, index: 0, count: 2 },
        deadline_us: 1_000_000,
        token,
        ..RequestRepr::control(MessageType::Request, 1, RpcId::new(SessionId(word >> 24), 0))
    };
    [repr.header().as_bytes(), route.as_bytes(), &[0xff; 64]].concat()
}

/// A server's report of counts that it never had.
fn report(word: u64) -> Vec<u8> {
    let body = FeedbackBody {
        epoch: (word as u32).into(),
        placement_seen: ((word >> 7) as u32).into(),
        received: ((word >> 11) as u32).into(),
        concluded: ((word >> 11) as u32).into(),
    };
    let header = ReplyRepr::control(MessageType::Feedback, 0, RpcId(0)).header();
    [header.as_bytes(), body.as_bytes()].concat()
}

/// A report by which all that the server has got has been concluded.
fn emptied(mut report: Vec<u8>) -> Vec<u8> {
    let counts = report.len() - size_of::<FeedbackBody>();
    report.copy_within(counts + 8..counts + 12, counts + 12);
    report
}

/// DATA of half of a request.
fn forge_homa(to: Host, word: u64, watch: &Watch) -> Forged {
    let from = SocketAddr::from(([192, 168, 0, word as u8 % 64], 33_000));
    let ports = Ports { source: 33_000, destination: 8000 };
    let mut header = DataHeader::new(ports, word & !1 | 2, 20_000, 0);
    header.flags = DataFlags::KNOWN;
    header.incoming = if word >> 40 & 3 == 0 { 0 } else { 20_000 }.into();
    // Half of what is to be echoed, which 65,536 guesses find.
    header.cutoff_version = (watch.token_told(from) as u16).into();
    Forged { to, from, bytes: [header.as_bytes(), &[0xff; 64]].concat() }
}

/// As [`unproven`], over Homa.
fn unproven_homa(plan: &Plan, (to, word): (Host, u64), watch: &Watch) -> Forged {
    let anywhere = SocketAddr::from(([192, 168, 0, word as u8 % 64], 33_000));
    let client = Host::Client((word >> 16) as usize % plan.clients.len());
    let made_up = |tag: u64| {
        let ports = Ports { source: 33_000, destination: 8000 };
        let mut header = DataHeader::new(ports, word & !1 | 2, 64, 0);
        header.flags = DataFlags::KNOWN;
        header.incoming = 64.into();
        if tag != 0 {
            set_tag(&mut header, tag);
        }
        [header.as_bytes(), &[0xff; 64]].concat()
    };
    let (from, bytes) = match (word >> 32 & 3, watch.heard.first()) {
        (0, _) => (anywhere, made_up(word)),
        (1, _) | (_, None) => (client.address(), made_up(0)),
        // The tag of what was heard, on something else and from the same address.
        (2, Some((client, mut heard))) => {
            heard.iter_mut().skip(DATA_LEN).for_each(|byte| *byte = 0xff);
            heard[HOMA_ID_AT] ^= 1 << (word >> 40 & 7);
            (Host::Client(client).address(), heard)
        }
        (_, Some((_, heard))) => (anywhere, heard),
    };
    Forged { to, from, bytes }
}

/// Attacks of peers of any plan, over either transport.
const PEERS: [Attack; 5] = [
    Attack::HalfRequests,
    Attack::ForgedProbes,
    Attack::NamedClients,
    Attack::EchoingPorts,
    Attack::StrayCancels,
];

/// Place of a byte of a request's session.
const ID_AT: usize = 9;
/// Place of a byte of a request's id over Homa.
const HOMA_ID_AT: usize = 22;

/// Time of the first call: servers and routers know then what they have had.
const START_NS: u64 = 20 * MS;

const MS: u64 = 1_000_000;

/// The generator's stream for these plans.
const STREAM: u64 = 0x686f_7374;

#[cfg(test)]
mod tests {
    use tailcut_proto::homa::{Config, Endpoint};
    use tailcut_proto::node::Node;

    use super::super::Options;
    use super::*;

    #[test]
    fn three_of_four_half_requests_over_homa_take_a_place_at_a_server() {
        let plan = Plan::hostile_homa_of_seed(1);
        let watch = Watch::new(&plan, Options::default());
        let mut server = Endpoint::new(0, Config { secret: [9; 16], ..Config::default() });
        for count in 0..400 {
            let mut forged = forge(&plan, Attack::HalfRequests, count, &watch).expect("one");
            server.handle_datagram(MS, forged.from.into(), &mut forged.bytes);
        }
        let refused = server.metrics().protocol_violation;
        assert!((50..150).contains(&refused), "{refused} of 400 say what cannot be");
        assert!(server.holdings().partials >= 400 - 150, "{:?}", server.holdings());
    }
}
