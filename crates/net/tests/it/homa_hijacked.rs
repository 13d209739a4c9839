//! Homa in the disguise of TCP over real sockets on loopback, beside TCP itself. It needs
//! CAP_NET_RAW.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use tailcut_net::clock::Clock;
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::{Driver, Observer, Wait};
use tailcut_net::ip::IpPort;
use tailcut_net::stamps::Stamps;
use tailcut_net::udp::UdpConfig;
use tailcut_proto::homa::{Carrier, Config, Endpoint, Framing};
use tailcut_proto::node::Transmit;
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};
use tailcut_wire::homa::{is_hijacked, tcp_checksum};

use crate::toy::{PATIENCE_NS, ip_port};

#[test]
fn calls_are_answered_over_hijacked_frames() {
    for ip in ["127.0.0.41", "::1"] {
        let (Some(mut server), Some(mut client)) = (open(ip, 0), open(ip, 0)) else { return };
        for len in [1, 1404, 1405, 40_000, 400_000] {
            assert_eq!(exchange(&mut server, &mut client, len), len, "{ip}");
        }
    }
}

/// The kernel's TCP gets every frame too. It neither answers nor takes them for a connection's, and
/// what is its own stays its own.
#[test]
fn tcp_on_the_same_port_is_not_disturbed() {
    let listener = TcpListener::bind("127.0.0.42:0").expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    let (Some(mut server), Some(mut client)) = (open("127.0.0.42", port), open("127.0.0.42", 0))
    else {
        return;
    };
    let mut stream =
        TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (mut accepted, _) = listener.accept().expect("a connection");
    for _ in 0..10 {
        assert_eq!(exchange(&mut server, &mut client, 10_000), 10_000);
        stream.write_all(b"ping").expect("a write");
        let mut bytes = [0; 4];
        accepted.read_exact(&mut bytes).expect("a read");
        assert_eq!(&bytes, b"ping");
    }
    listener.set_nonblocking(true).expect("an option");
    assert!(listener.accept().is_err(), "no other connection has come");
    let received = server.port(0).metrics().datagrams_in;
    // Ten requests of eight packets, and a few control packets; each segment of TCP would be one
    // more, and malformed.
    assert!(received >= 80 && server.node(0).metrics().malformed == [0; 4], "{received}");
}

/// Looks at every packet that comes.
struct Guard {
    own: IpAddr,
}

impl Observer for Guard {
    fn handle_received(&mut self, _node: usize, peer: SocketAddr, bytes: &[u8], _stamps: Stamps) {
        assert!(is_hijacked(bytes));
        assert_eq!(tcp_checksum(bytes, peer.ip(), self.own), 0, "{bytes:02x?}");
    }

    fn handle_transmit(&mut self, _node: usize, _transmit: &mut Transmit, _bytes: &[u8]) {}

    fn handle_sent(&mut self, _node: usize, _token: u64, _stamps: Stamps) {}
}

/// Calls with `len` bytes; the server answers with them. Returns how many came back. Both drivers
/// turn on this thread.
fn exchange(server: &mut Driver<Endpoint>, client: &mut Driver<Endpoint>, len: usize) -> usize {
    let target = server.port(0).local_address();
    let mut guard = Guard { own: target.ip() };
    let now = client.clock().now();
    let call = Call {
        target,
        payload: vec![7; len],
        deadline: now + PATIENCE_NS,
        context: 0,
        options: CallOptions::default(),
    };
    client.node_mut(0).call(now, call).expect("a call");
    let mut reply = None;
    while reply.is_none() {
        let turned = server.turn_observed(&mut guard, |_, node, now| {
            while let Some(event) = node.poll_event() {
                if let Event::Request { id, payload, .. } = event {
                    node.reply(now, id, payload).expect("a reply");
                }
            }
        });
        turned.expect("a turn");
        let turned = client.turn_observed(&mut guard, |_, node, _| {
            while let Some(event) = node.poll_event() {
                let Event::Replied { payload, .. } = event else { panic!("{event:?}") };
                reply = Some(payload.len());
            }
        });
        turned.expect("a turn");
        assert!(Clock.now() < now + PATIENCE_NS, "it took too long");
    }
    reply.unwrap_or_default()
}

/// `None` where the process may not open raw sockets; it has been said.
fn open(ip: &str, port: u16) -> Option<Driver<Endpoint>> {
    let ip: IpAddr = ip.parse().expect("an address");
    ip_port(&SocketAddr::new(ip, 0).to_string())?;
    let port =
        IpPort::bind_hijacked(SocketAddr::new(ip, port), UdpConfig::default()).expect("a port");
    let client_port = port.local_address().port();
    let carrier = Carrier::HijackedTcp { source: ip };
    let framing = Framing { unscheduled_len: 1404, scheduled_len: 1404, ..Framing::default() };
    let config = Config {
        client_port,
        carrier,
        framing,
        secret: [client_port as u8; 16],
        ..Config::default()
    };
    let mut driver = Driver::new(Wait::BusyPoll).expect("a driver");
    // As if it had run for a second: what is sent again to a server that has just started may have
    // run before.
    let started = driver.clock().now().saturating_sub(1_000_000_000);
    driver.add(Endpoint::new(started, config), port, None);
    Some(driver)
}
