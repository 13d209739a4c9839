//! Servers at all addresses of a host that has two: each address answers what it was asked, and no
//! other does.
//!
//! Two hosts are two network namespaces with a veth pair between. The servers stand on the far one,
//! at an unspecified address; calls from the near one go to each of its addresses in turn.

use std::net::{IpAddr, SocketAddr};

use tailcut_net::clock::Clock;
use tailcut_net::datapath::{AnyDatapath, Datapath};
use tailcut_net::driver::{Driver, Wait};
use tailcut_net::ip::IpPort;
use tailcut_net::open::Opening;
use tailcut_net::udp::{UdpConfig, UdpPort};
use tailcut_proto::endpoint::{Endpoint, Metrics};
use tailcut_proto::node::{Node, Path, Transmit};
use tailcut_proto::router::{Router, RouterConfig, RouterMetrics, ServerConfig, Speaks};
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};
use tailcut_proto::{homa, r2p2};

use crate::toy;
use crate::veth::{VethPair, enter, run};

#[test]
fn r2p2_is_answered_from_the_address_called() {
    check(|bind| {
        let config = r2p2::Config { secret: [7; 16], ..r2p2::Config::default() };
        let started = Clock.now().saturating_sub(SECOND_NS);
        (r2p2::Endpoint::new(started, config).into(), udp(bind).into())
    });
}

#[test]
fn homa_in_udp_is_answered_from_the_address_called() {
    check(|bind| {
        let port = udp(bind);
        (homa_endpoint(homa::Config::default()), port.into())
    });
}

#[test]
fn homa_over_ip_is_answered_from_the_address_called() {
    check(|bind| {
        let port = IpPort::bind(bind, UdpConfig::default())
            .expect("who makes namespaces may open raw sockets");
        let client_port = port.local_address().port();
        let framing = homa::Framing::IP;
        (
            homa_endpoint(homa::Config { client_port, framing, ..homa::Config::default() }),
            port.into(),
        )
    });
}

/// A server of plain UDP gives each answer the path of its request.
#[test]
fn a_datagram_is_answered_from_the_address_asked() {
    let Some(hosts) = Hosts::create() else { return };
    for family in FAMILIES {
        enter(&hosts.0.far);
        let mut server = udp(family.anywhere());
        let port = server.local_address().port();
        enter(&hosts.0.near);
        let mut client = udp(family.anywhere());
        for target in family.targets(port) {
            for len in [1, 100] {
                client.send(&Transmit::single(target, len), &vec![3; len]);
                let (path, bytes) = receive(&mut server, len);
                assert_eq!(path.local, Some(target.ip()));
                // A single datagram, and a GSO batch.
                let answer = Transmit { segment_len: 60, ..Transmit::single(path, len) };
                server.send(&answer, &bytes);
                assert_eq!(receive(&mut client, len).0.peer, target);
            }
        }
    }
}

/// The router and its server both stand at two addresses. The client is answered by the server, at
/// the address that the router knows; the accounts come home, so that no slot leaks.
#[test]
fn a_router_at_two_addresses_is_one_router() {
    let Some(hosts) = Hosts::create() else { return };
    for family in FAMILIES {
        enter(&hosts.0.far);
        let mut server = driver(udp(family.anywhere()), |_| endpoint());
        let [known, _] = family.targets(server.port(0).local_address().port());
        let config = RouterConfig {
            servers: vec![ServerConfig { addr: known, speaks: Speaks::Extension }],
            ..RouterConfig::default()
        };
        let mut router =
            driver(udp(family.anywhere()), |now| Router::new(now, config).expect("one"));
        let port = router.port(0).local_address().port();
        enter(&hosts.0.near);
        let mut client = driver(udp(family.anywhere()), |_| endpoint());
        for target in family.targets(port).repeat(CALLS / 2) {
            begin(&mut client, target);
            let end = Clock.now() + toy::PATIENCE_NS;
            while !is_answered(&mut client, known) {
                router.turn().expect("a turn");
                serve(&mut server);
                assert!(Clock.now() < end, "{target} does not answer");
            }
        }
        let RouterMetrics { forwarded, duplicates_forwarded, feedback_stranger, .. } =
            router.node(0).metrics();
        // On a busy machine a client may send a request again before its reply comes.
        assert_eq!(forwarded - duplicates_forwarded, CALLS as u64);
        assert_eq!(feedback_stranger, 0);
    }
}

/// The client's host reaches the router from one of its addresses and the server from the other.
/// Its socket is told nothing with what arrives, as that of a node that only asks; what follows a
/// request leaves from where that did.
#[test]
fn a_client_with_two_addresses_is_one_client_to_a_server_behind_a_router() {
    let Some(hosts) = Hosts::create() else { return };
    for (anywhere, [server_ip, router_ip]) in
        [("0.0.0.0", ["10.77.0.2", "10.78.0.2"]), ("::", ["fd77::2", "fd78::2"])]
    {
        let at = |ip: &str, port| SocketAddr::new(ip.parse().expect("an address"), port);
        enter(&hosts.0.far);
        let mut server = driver(udp(at(server_ip, 0)), |_| endpoint());
        let known = server.port(0).local_address();
        let config = RouterConfig {
            servers: vec![ServerConfig { addr: known, speaks: Speaks::Extension }],
            ..RouterConfig::default()
        };
        let mut router =
            driver(udp(at(router_ip, 0)), |now| Router::new(now, config).expect("one"));
        let target = router.port(0).local_address();
        enter(&hosts.0.near);
        let mut client = Driver::new(Wait::BusyPoll).expect("a driver");
        let mut opening = Opening::default();
        opening.r2p2.serving.is_enabled = false;
        opening.add(&mut client, at(anywhere, 0)).expect("a client");
        for _ in 0..CALLS {
            begin(&mut client, target);
            let end = Clock.now() + toy::PATIENCE_NS;
            while !is_answered(&mut client, known) {
                router.turn().expect("a turn");
                serve(&mut server);
                assert!(Clock.now() < end, "{target} does not answer");
            }
        }
        let Metrics::R2p2(metrics) = server.node(0).metrics() else { panic!("it speaks R2P2") };
        assert!(
            metrics.validations < CALLS as u64 / 4,
            "each came from a new address: {metrics:?}"
        );
    }
}

/// Calls to each of the server's addresses; every one is answered, from there. `open` makes an
/// endpoint and its datapath.
fn check(open: impl Fn(SocketAddr) -> (Endpoint, AnyDatapath)) {
    let Some(hosts) = Hosts::create() else { return };
    let drive = |bind| {
        let (node, port) = open(bind);
        let mut driver = Driver::new(Wait::BusyPoll).expect("a driver");
        driver.add(node, port, None);
        driver
    };
    for family in FAMILIES {
        enter(&hosts.0.far);
        let mut server: Driver<Endpoint> = drive(family.anywhere());
        let port = server.port(0).local_address().port();
        enter(&hosts.0.near);
        let mut client = drive(family.anywhere());
        for target in family.targets(port).repeat(CALLS / 2) {
            begin(&mut client, target);
            let end = Clock.now() + toy::PATIENCE_NS;
            while !is_answered(&mut client, target) {
                serve(&mut server);
                assert!(Clock.now() < end, "{target} does not answer");
            }
        }
    }
}

fn begin(client: &mut Driver<Endpoint>, target: SocketAddr) {
    let now = client.clock().now();
    let (deadline, options) = (now + toy::PATIENCE_NS, CallOptions::default());
    // Of several packets, so that more than requests and replies go back and forth.
    let call = Call { target, payload: vec![5; 20_000], deadline, context: 0, options };
    client.node_mut(0).call(now, call).expect("a call");
    client.flush(now);
}

/// True if the call has been answered, which `server` must have done.
fn is_answered(client: &mut Driver<Endpoint>, server: SocketAddr) -> bool {
    let mut is_answered = false;
    let turn = client.turn_with(|_, node, _| {
        while let Some(event) = node.poll_event() {
            let Event::Replied { server: found, payload, .. } = event else { panic!("{event:?}") };
            assert_eq!((found, payload.len()), (server, 20_000));
            is_answered = true;
        }
    });
    turn.expect("a turn");
    is_answered
}

fn serve(server: &mut Driver<Endpoint>) {
    let turn = server.turn_with(|_, node, now| {
        while let Some(event) = node.poll_event() {
            if let Event::Request { id, payload, .. } = event {
                node.reply(now, id, payload).expect("a reply");
            }
        }
    });
    turn.expect("a turn");
}

/// The `len` bytes that come, in one datagram or the parts of a GSO batch, and their way.
fn receive(port: &mut UdpPort, len: usize) -> (Path, Vec<u8>) {
    let end = Clock.now() + toy::PATIENCE_NS;
    let (mut bytes, mut ways) = (Vec::new(), Vec::new());
    while bytes.len() < len {
        let note = |path, part: &mut [u8]| {
            ways.push(path);
            bytes.extend_from_slice(part);
        };
        port.recv_burst(note).expect("a receive");
        assert!(Clock.now() < end, "no datagram");
    }
    assert!(ways.iter().all(|way| *way == ways[0]), "{ways:?}");
    (ways[0], bytes)
}

fn driver<N: Node>(port: UdpPort, node: impl FnOnce(u64) -> N) -> Driver<N> {
    let mut driver = Driver::new(Wait::BusyPoll).expect("a driver");
    let node = node(driver.clock().now());
    driver.add(node, port, None);
    driver
}

fn endpoint() -> Endpoint {
    let config = r2p2::Config { secret: [7; 16], ..r2p2::Config::default() };
    r2p2::Endpoint::new(Clock.now().saturating_sub(SECOND_NS), config).into()
}

/// As if it had run for a second: what is sent again to a server that has just started may have run
/// before.
fn homa_endpoint(config: homa::Config) -> Endpoint {
    let config = homa::Config { secret: [7; 16], ..config };
    homa::Endpoint::new(Clock.now().saturating_sub(SECOND_NS), config).into()
}

fn udp(address: SocketAddr) -> UdpPort {
    UdpPort::bind(address, UdpConfig::default()).expect("a port")
}

/// A family of addresses, by the far host's two.
#[derive(Clone, Copy)]
struct Family {
    anywhere: &'static str,
    far: [&'static str; 2],
}

impl Family {
    fn anywhere(self) -> SocketAddr {
        SocketAddr::new(self.anywhere.parse().expect("an address"), 0)
    }

    fn targets(self, port: u16) -> [SocketAddr; 2] {
        self.far.map(|ip| SocketAddr::new(ip.parse::<IpAddr>().expect("an address"), port))
    }
}

/// Two hosts with two addresses of each family.
struct Hosts(VethPair);

impl Hosts {
    /// `None` where they cannot be made, which is said past the test harness's capture.
    fn create() -> Option<Self> {
        let hosts = Self(VethPair::create()?);
        let added = [
            (
                &hosts.0.near,
                ["10.77.0.8/24", "fd77::1/64", "fd77::8/64", "10.78.0.1/24", "fd78::1/64"],
            ),
            (
                &hosts.0.far,
                ["10.77.0.3/24", "fd77::2/64", "fd77::3/64", "10.78.0.2/24", "fd78::2/64"],
            ),
        ];
        for (host, addresses) in added {
            for address in addresses {
                let flags = if address.contains(':') { " nodad" } else { "" };
                run("ip", &format!("-n {host} addr add {address} dev v{host}{flags}"))
                    .expect("an address");
            }
            // The router's server is on its own host.
            run("ip", &format!("-n {host} link set lo up")).expect("loopback");
        }
        Some(hosts)
    }
}

const FAMILIES: [Family; 2] = [
    Family { anywhere: "0.0.0.0", far: ["10.77.0.2", "10.77.0.3"] },
    Family { anywhere: "::", far: ["fd77::2", "fd77::3"] },
];

/// To both addresses together.
const CALLS: usize = 40;

const SECOND_NS: u64 = 1_000_000_000;
