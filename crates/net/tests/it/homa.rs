//! Endpoints of Homa over real sockets on loopback, in UDP and directly over IP.

use std::net::SocketAddr;

use tailcut_net::clock::Clock;
use tailcut_net::datapath::{AnyDatapath, Datapath};
use tailcut_net::driver::{Driver, Wait};
use tailcut_net::udp::{UdpConfig, UdpPort};
use tailcut_proto::homa::{Config, Endpoint, Framing};
use tailcut_proto::node::Time;
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};

use crate::toy::{self, PATIENCE_NS, V4, V6, ip_port};
use crate::veth::{VethPair, enter, run};

/// Carrier of a test's packets.
#[derive(Clone, Copy, Debug)]
enum Carrier {
    Udp,
    Ip,
}

#[test]
fn calls_are_answered_over_each_carrier_and_family() {
    // Loopback has more IPv4 addresses than one, so that tests over IP do not see each other's
    // packets.
    for (carrier, address) in
        [(Carrier::Udp, V4), (Carrier::Udp, V6), (Carrier::Ip, "127.0.0.31:0"), (Carrier::Ip, V6)]
    {
        let (Some(mut server), Some(mut client)) = (open(carrier, address), open(carrier, address))
        else {
            continue;
        };
        for len in [0, 1, 1396, 1397, 40_000, 100_000, 2_000_000] {
            let request = pattern(len);
            let replies = exchange(&mut server, &mut client, std::slice::from_ref(&request));
            assert!(replies == [request], "{carrier:?} {address}: {len} bytes");
        }
    }
}

#[test]
fn long_messages_travel_as_gso_batches_and_nothing_is_asked_for_again() {
    // Two GSO batches of 28 full packets for a round trip's bytes would be the best; grants that
    // come piecemeal cut them. Of long packets four make a batch.
    for (local_len, fewest) in [(0, 4), (Framing::default().local_len, 2)] {
        let [mut server, mut client] = [(); 2].map(|()| {
            let port = UdpPort::bind(V4.parse().expect("an address"), UdpConfig::default());
            drive_with(port.expect("a port").into(), local_len)
        });
        let requests = vec![pattern(900_000); 4];
        assert!(exchange(&mut server, &mut client, &requests) == requests);
        for driver in [&server, &client] {
            let sent = driver.port(0).metrics();
            assert!(
                sent.gso_batches_out > 0 && sent.datagrams_out > fewest * sent.gso_batches_out,
                "{sent:?}"
            );
            let metrics = driver.node(0).metrics();
            assert_eq!(
                (metrics.gaps, metrics.duplicates, metrics.resent_bytes),
                (0, 0, 0),
                "{metrics:?}"
            );
        }
    }
}

#[test]
fn what_a_small_receive_buffer_loses_is_sent_again() {
    // The least that the kernel gives, 2,304 bytes of its own accounting, holds one full packet.
    let mut server = udp(UdpConfig { receive_buffer_bytes: 1, ..UdpConfig::default() });
    let mut client = udp(UdpConfig::default());
    let requests = vec![pattern(100_000); 8];
    assert!(exchange(&mut server, &mut client, &requests) == requests);
    let drops = server.port(0).kernel_drops().expect("a count");
    assert!(drops > 0 && client.node(0).metrics().resent_bytes > 0, "{drops} drops");
    assert_eq!(server.node(0).metrics().requests, 8);
}

/// At first a link of 2 Mbit/s, which carries 250 bytes in a millisecond, so that next to all of
/// what a turn sends waits for the device, however long the machine lets the test wait. Then a
/// hundred times that, for the rest to pass.
#[test]
fn what_a_slow_link_has_not_taken_waits_in_the_node_where_short_messages_overtake_it() {
    let Some(pair) = VethPair::create() else { return };
    let limit_link = |what_to_do: &str, rate: &str| {
        let limit = format!(
            "-n {0} qdisc {what_to_do} dev v{0} root tbf rate {rate} burst 10kb limit 4mb",
            pair.near
        );
        run("tc", &limit).expect("a slow link");
    };
    limit_link("add", "2mbit");
    let open_in = |namespace: &str, address: &str| {
        let (namespace, address) = (namespace.to_owned(), address.to_owned());
        let config = UdpConfig {
            unsent_bytes_max: Some(UdpConfig::HOMA_UNSENT_BYTES),
            ..UdpConfig::default()
        };
        let bound = std::thread::spawn(move || {
            enter(&namespace);
            UdpPort::bind(address.parse().expect("an address"), config).expect("a port")
        });
        drive(bound.join().expect("a port").into())
    };
    let (mut server, mut client) =
        (open_in(&pair.far, "10.77.0.2:0"), open_in(&pair.near, "10.77.0.1:0"));
    let long = vec![pattern(400_000); 10];
    let mut calls = Calls::begin(&mut client, server.port(0).local_address(), &long);
    client.turn().expect("a turn");
    // Of each message 40 kB may go at once, 400 kB in all.
    let before = client.port(0).metrics();
    assert!((100_000..250_000).contains(&before.bytes_out), "{before:?}");
    calls.add(&mut client, &pattern(10));
    client.turn().expect("a turn");
    let after = client.port(0).metrics();
    assert!(
        after.bytes_out > before.bytes_out && after.bytes_out < before.bytes_out + 10_000,
        "{before:?} {after:?}"
    );
    limit_link("change", "200mbit");
    calls.finish(&mut server, &mut client);
    let metrics = client.port(0).metrics();
    // Nearly nothing finds the socket's buffer full, where it would be dropped after a millisecond.
    assert!(metrics.dropped_full <= 2 && metrics.dropped_no_buffers == 0, "{metrics:?}");
    assert!(metrics.without_room > 0, "{metrics:?}");
    // What waits for the device is not sent twice: of 4 MB a twentieth at most, while the speed of
    // the link is not known.
    assert!(client.node(0).metrics().resent_bytes < 200_000, "{:?}", client.node(0).metrics());
}

/// Calls with every request at once, echoed by the server; returns the replies by request. Both
/// drivers turn on this thread.
fn exchange(
    server: &mut Driver<Endpoint>,
    client: &mut Driver<Endpoint>,
    requests: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    Calls::begin(client, server.port(0).local_address(), requests).finish(server, client)
}

/// Calls that are under way, and their replies by request.
struct Calls {
    target: SocketAddr,
    deadline: Time,
    replies: Vec<Option<Vec<u8>>>,
}

impl Calls {
    fn begin(client: &mut Driver<Endpoint>, target: SocketAddr, requests: &[Vec<u8>]) -> Self {
        let mut calls =
            Self { target, deadline: client.clock().now() + PATIENCE_NS, replies: Vec::new() };
        requests.iter().for_each(|request| calls.add(client, request));
        calls
    }

    fn add(&mut self, client: &mut Driver<Endpoint>, request: &[u8]) {
        let (payload, options) = (request.to_vec(), CallOptions::default());
        let call = Call {
            target: self.target,
            payload,
            deadline: self.deadline,
            context: self.replies.len() as u64,
            options,
        };
        let now = client.clock().now();
        client.node_mut(0).call(now, call).expect("a call");
        self.replies.push(None);
    }

    fn finish(
        mut self,
        server: &mut Driver<Endpoint>,
        client: &mut Driver<Endpoint>,
    ) -> Vec<Vec<u8>> {
        let replies = &mut self.replies;
        while replies.iter().any(Option::is_none) {
            let turned = server.turn_with(|_, node, now| {
                while let Some(event) = node.poll_event() {
                    if let Event::Request { id, payload, .. } = event {
                        node.reply(now, id, payload).expect("a reply");
                    }
                }
            });
            turned.expect("a turn");
            let turned = client.turn_with(|_, node, _| {
                while let Some(event) = node.poll_event() {
                    match event {
                        Event::Replied { context, payload, .. } => {
                            replies[context as usize] = Some(payload)
                        }
                        event => panic!("{event:?}"),
                    }
                }
            });
            turned.expect("a turn");
        }
        assert!(Clock.now() < self.deadline, "it took too long");
        self.replies.into_iter().flatten().collect()
    }
}

fn udp(config: UdpConfig) -> Driver<Endpoint> {
    let address: SocketAddr = V4.parse().expect("an address");
    drive(UdpPort::bind(address, config).expect("a port").into())
}

/// `None` where the process may not open the port; it has been said.
fn open(carrier: Carrier, address: &str) -> Option<Driver<Endpoint>> {
    match carrier {
        Carrier::Udp => Some(drive(toy::port(address, tailcut_net::udp::SegmentedSend::On).into())),
        Carrier::Ip => ip_port(address).map(|port| drive(port.into())),
    }
}

fn drive(port: AnyDatapath) -> Driver<Endpoint> {
    drive_with(port, Framing::default().local_len)
}

fn drive_with(port: AnyDatapath, local_len: u32) -> Driver<Endpoint> {
    let client_port = port.local_address().port();
    let mut config = Config { client_port, secret: [client_port as u8; 16], ..Config::default() };
    config.framing.local_len = local_len;
    let mut driver = Driver::new(Wait::BusyPoll).expect("a driver");
    // As if it had run for a second: what is sent again to a server that has just started may have
    // run before.
    let endpoint = Endpoint::new(driver.clock().now().saturating_sub(1_000_000_000), config);
    driver.add(endpoint, port, None);
    driver
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|place| place as u8 ^ (place >> 8) as u8).collect()
}
