//! Calls of both transports over AF_XDP, between network namespaces.

use std::net::SocketAddr;

use tailcut_net::clock::Clock;
use tailcut_net::datapath::{AnyDatapath, Datapath};
use tailcut_net::driver::{Driver, Wait};
use tailcut_net::open::{DatapathKind, Opening, Protocol};
use tailcut_net::udp::UdpConfig;
use tailcut_net::xdp::XdpPort;
use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::node::{Node, Path, Time, Transmit};
use tailcut_proto::r2p2;
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};

use crate::toy::PATIENCE_NS;
use crate::veth::VethPair;
use crate::xdp::{FAR, NEAR, within};

/// An endpoint of which every so many datagrams are lost on their way in; 0 for none.
struct Lossy {
    endpoint: Endpoint,
    lost_every: u32,
    count: u32,
}

impl Node for Lossy {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        self.count += 1;
        if self.lost_every == 0 || !self.count.is_multiple_of(self.lost_every) {
            self.endpoint.handle_datagram(now, path, bytes);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        self.endpoint.poll_transmit(now, buffer)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.endpoint.poll_timeout()
    }
}

/// Carrier of a kind of datapath's packets.
type Carried = (Protocol, DatapathKind);

/// An endpoint of a namespace, past the stack or over sockets.
fn open(
    namespace: &str,
    ip: &str,
    ((protocol, kind), is_xdp): (Carried, bool),
) -> Driver<Endpoint> {
    let config = format!("v{namespace}").parse().expect("a configuration");
    let datapath =
        if is_xdp { kind.over_xdp(config).expect("it goes past the stack") } else { kind };
    let address = SocketAddr::new(ip.parse().expect("an address"), 0);
    within(namespace, || {
        let mut driver = Driver::new(Wait::BusyPoll).expect("a driver");
        let opening = Opening { protocol, datapath, ..Opening::default() };
        opening.add(&mut driver, address).expect("an endpoint");
        driver
    })
}

/// The reply to a call, which the server makes of the same bytes.
fn call<N: Node>(
    (server, client): (&mut Driver<N>, &mut Driver<N>),
    of: fn(&mut N) -> &mut Endpoint,
    request: &[u8],
) -> Vec<u8> {
    let target = server.port(0).local_address();
    let now = client.clock().now();
    let (deadline, payload) = (now + PATIENCE_NS, request.to_vec());
    let call = Call { target, payload, deadline, context: 0, options: CallOptions::default() };
    of(client.node_mut(0)).call(now, call).expect("a call");
    let mut reply = None;
    while reply.is_none() {
        let echo = |_, node: &mut N, now| {
            while let Some(event) = of(node).poll_event() {
                if let Event::Request { id, payload, .. } = event {
                    of(node).reply(now, id, payload).expect("a reply");
                }
            }
        };
        server.turn_with(echo).expect("a turn");
        let take = |_, node: &mut N, _| {
            while let Some(event) = of(node).poll_event() {
                match event {
                    Event::Replied { payload, .. } => reply = Some(payload),
                    other => panic!("{other:?}"),
                }
            }
        };
        client.turn_with(take).expect("a turn");
        assert!(Clock.now() < deadline + PATIENCE_NS, "the call ends");
    }
    reply.expect("the loop has ended")
}

fn direct<N: Node>(driver: &Driver<N>) -> u64 {
    match driver.port(0) {
        AnyDatapath::Xdp(port) => port.xdp_metrics().direct_in,
        _ => 0,
    }
}

/// Calls of all sizes, with both ends past the stack, and with either.
fn check(carried: Carried) {
    let Some(hosts) = VethPair::create() else { return };
    for (far, near) in [(true, true), (true, false), (false, true)] {
        let mut server = open(&hosts.far, FAR, (carried, far));
        let mut client = open(&hosts.near, NEAR, (carried, near));
        for len in [0, 32, 1_400, 1 << 20] {
            let request: Vec<u8> = (0..len).map(|place: u32| (place * 31) as u8).collect();
            let reply = call((&mut server, &mut client), |endpoint| endpoint, &request);
            assert!(reply == request, "{carried:?}, {len} bytes");
        }
        assert_eq!((direct(&server) > 700, direct(&client) > 700), (far, near), "{carried:?}");
    }
}

#[test]
fn r2p2() {
    check((Protocol::R2p2, DatapathKind::Udp));
}

#[test]
fn homa_inside_udp() {
    check((Protocol::Homa, DatapathKind::Udp));
}

#[test]
fn homa_directly_over_ip() {
    check((Protocol::Homa, DatapathKind::Ip));
}

#[test]
fn calls_outlive_loss() {
    let Some(hosts) = VethPair::create() else { return };
    let open = |namespace: &str, ip: &str, secret: u8| {
        let config = format!("v{namespace}").parse().expect("a configuration");
        let address = SocketAddr::new(ip.parse().expect("an address"), 0);
        let port = within(namespace, || XdpPort::bind(address, config, UdpConfig::default()));
        let mut driver: Driver<Lossy> = Driver::new(Wait::BusyPoll).expect("a driver");
        // As if it had run for a second: what is sent again to a server that has just started may
        // have run before.
        let started = driver.clock().now().saturating_sub(1_000_000_000);
        let config = r2p2::Config { secret: [secret; 16], ..r2p2::Config::default() };
        let endpoint = r2p2::Endpoint::new(started, config).into();
        driver.add(Lossy { endpoint, lost_every: 11, count: 0 }, port.expect("a port"), None);
        driver
    };
    let (mut server, mut client) = (open(&hosts.far, FAR, 1), open(&hosts.near, NEAR, 2));
    for len in [32, 1_400, 300_000].into_iter().cycle().take(30) {
        let request: Vec<u8> = (0..len).map(|place: u32| (place * 7) as u8).collect();
        let reply = call((&mut server, &mut client), |lossy| &mut lossy.endpoint, &request);
        assert!(reply == request, "{len} bytes");
    }
}
