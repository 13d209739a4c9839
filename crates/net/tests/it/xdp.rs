//! Ports over AF_XDP, between network namespaces.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use tailcut_net::clock::Clock;
use tailcut_net::datapath::{AnyDatapath, Datapath};
use tailcut_net::driver::{Driver, Wait};
use tailcut_net::udp::{SegmentedSend, UdpConfig, UdpPort};
use tailcut_net::xdp::{XdpConfig, XdpMetrics, XdpPort};
use tailcut_proto::node::Node;

use crate::toy::{Echo, PATIENCE_NS, Pinger, turn_until};
use crate::veth::{VethPair, enter, run};

pub(crate) const NEAR: &str = "10.77.0.1";
pub(crate) const FAR: &str = "10.77.0.2";

/// Runs in a namespace, on a thread of its own, since that does not come back.
pub(crate) fn within<T: Send>(namespace: &str, f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(namespace);
            f()
        });
        thread.join().expect("no failure within the namespace")
    })
}

/// A port at an address, by the interface of a namespace.
fn open(namespace: &str, address: &str, options: &str) -> io::Result<XdpPort> {
    let config: XdpConfig = format!("v{namespace}{options}").parse().expect("a configuration");
    let address: SocketAddr = address.parse().expect("an address");
    within(namespace, || XdpPort::bind(address, config, UdpConfig::default()))
}

fn xdp(namespace: &str, ip: &str) -> AnyDatapath {
    open(namespace, &SocketAddr::new(ip.parse().expect("an address"), 0).to_string(), "")
        .expect("a port over AF_XDP")
        .into()
}

fn udp(namespace: &str, ip: &str) -> AnyDatapath {
    let address = SocketAddr::new(ip.parse().expect("an address"), 0);
    within(namespace, || UdpPort::bind(address, UdpConfig::default())).expect("a port").into()
}

fn driver<N: Node>(node: N, port: AnyDatapath) -> Driver<N> {
    let mut driver = Driver::new(Wait::BusyPoll).expect("a driver");
    driver.add(node, port, None);
    driver
}

fn metrics<N: Node>(driver: &Driver<N>) -> XdpMetrics {
    match driver.port(0) {
        AnyDatapath::Xdp(port) => port.xdp_metrics(),
        _ => panic!("it is over AF_XDP"),
    }
}

/// So many datagrams go to an echo and back, so many at a time; returns both ends.
fn exchange(
    (server, client): (AnyDatapath, AnyDatapath),
    len: usize,
    (count, outstanding): (u64, usize),
) -> (Driver<Echo>, Driver<Pinger>) {
    let target = server.local_address();
    let mut server = driver(Echo::new(SegmentedSend::On), server);
    let pinger = Pinger::new(target, len, outstanding, SegmentedSend::On);
    let mut client = driver(pinger, client);
    turn_until(&mut server, &mut client, |_, client| client.completed >= count);
    (server, client)
}

/// Most of what an end has sent has gone past the stack: all but the first to a new neighbour.
fn assert_direct<N: Node>(driver: &Driver<N>, count: u64) {
    let found = metrics(driver);
    assert!(found.direct_in >= count && found.direct_out > count / 2, "{found:?}");
    let dropped = found.malformed + found.bad_ip_checksum + found.bad_udp_checksum + found.martian;
    assert_eq!((dropped, found.dropped_ring_full, found.interface_errors), (0, 0, 0), "{found:?}");
}

#[test]
fn datagrams_pass_the_stack_both_ways() {
    let Some(hosts) = VethPair::create() else { return };
    for len in [1, 64, 1400, 1472] {
        let ends = (xdp(&hosts.far, FAR), xdp(&hosts.near, NEAR));
        let (server, client) = exchange(ends, len, (500, 1));
        assert_direct(&server, 499);
        assert_direct(&client, 499);
    }
}

#[test]
fn batches_pass_the_stack_datagram_by_datagram() {
    let Some(hosts) = VethPair::create() else { return };
    for len in [32, 700] {
        let ends = (xdp(&hosts.far, FAR), xdp(&hosts.near, NEAR));
        let (server, client) = exchange(ends, len, (20_000, 64));
        assert_direct(&server, 19_000);
        assert_direct(&client, 19_000);
    }
}

#[test]
fn one_end_is_a_plain_socket() {
    let Some(hosts) = VethPair::create() else { return };
    for (len, outstanding) in [(64, 1), (64, 64), (1400, 64)] {
        let ends = (xdp(&hosts.far, FAR), udp(&hosts.near, NEAR));
        assert_direct(&exchange(ends, len, (2_000, outstanding)).0, 1_000);
        let ends = (udp(&hosts.far, FAR), xdp(&hosts.near, NEAR));
        assert_direct(&exchange(ends, len, (2_000, outstanding)).1, 1_000);
    }
}

#[test]
fn ipv6_passes_the_stack_too() {
    let Some(hosts) = VethPair::create() else { return };
    for (host, ip) in [(&hosts.near, "fd77::1"), (&hosts.far, "fd77::2")] {
        run("ip", &format!("-n {host} addr add {ip}/64 dev v{host} nodad")).expect("an address");
    }
    let ends = (xdp(&hosts.far, "fd77::2"), xdp(&hosts.near, "fd77::1"));
    let (server, client) = exchange(ends, 1452, (500, 4));
    assert_direct(&server, 490);
    assert_direct(&client, 490);
    let ends = (xdp(&hosts.far, "::"), udp(&hosts.near, "fd77::1"));
    let AnyDatapath::Xdp(port) = &ends.0 else { panic!("it is over AF_XDP") };
    let target =
        SocketAddr::new("fd77::2".parse().expect("an address"), port.local_address().port());
    let server = driver(Echo::new(SegmentedSend::On), ends.0);
    assert_direct(
        &ping(server, driver(Pinger::new(target, 64, 1, SegmentedSend::Off), ends.1)).0,
        90,
    );
}

/// 100 datagrams there and back.
fn ping(mut server: Driver<Echo>, mut client: Driver<Pinger>) -> (Driver<Echo>, Driver<Pinger>) {
    turn_until(&mut server, &mut client, |_, client| client.completed >= 100);
    (server, client)
}

/// A frame from near to far, with a tag and without a checksum of UDP.
fn tagged(to: (&[u8], u16), vlan: u16) -> Vec<u8> {
    let mut frame = to.0.to_vec();
    frame.extend([2, 0, 0, 0, 0, 1, 0x81, 0]);
    frame.extend(vlan.to_be_bytes());
    frame.extend([8, 0, 0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0x26, 0x31]);
    frame.extend([10, 77, 0, 1, 10, 77, 0, 2, 0x1f, 0x40]);
    frame.extend(to.1.to_be_bytes());
    frame.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    frame
}

#[test]
fn a_tag_is_taken_off_and_a_vlan_of_others_is_refused() {
    let Some(hosts) = VethPair::create() else { return };
    let (server, mut client) = (xdp(&hosts.far, FAR), open(&hosts.near, "10.77.0.1:0", ""));
    let rings = client.as_mut().expect("a port").rings_mut();
    let to = server.local_address().port();
    let mut server = driver(Echo::new(SegmentedSend::Off), server);
    // The second tag says a priority alone.
    for vlan in [5, 3 << 13] {
        let frame = tagged((&[2, 0, 0, 0, 0, 2], to), vlan);
        rings.frame()[..frame.len()].copy_from_slice(&frame);
        assert!(rings.push(&[], (0..frame.len(), true)));
    }
    rings.kick().expect("the interface");
    let deadline = Clock.now() + PATIENCE_NS;
    while server.node(0).received == 0 {
        server.turn().expect("a turn");
        assert!(Clock.now() < deadline, "it arrives");
    }
    let found = metrics(&server);
    assert_eq!((found.foreign_vlan, found.direct_in, found.bad_ip_checksum), (1, 1, 0));
}

#[test]
fn long_packets_are_of_several_frames() {
    let Some(hosts) = VethPair::create() else { return };
    for host in [&hosts.near, &hosts.far] {
        run("ip", &format!("-n {host} link set v{host} mtu 9000")).expect("jumbo frames");
    }
    for len in [100, 4000, 8972] {
        let ends = (xdp(&hosts.far, FAR), xdp(&hosts.near, NEAR));
        let (server, client) = exchange(ends, len, (2_000, 8));
        assert_direct(&server, 1_900);
        assert_direct(&client, 1_900);
    }
}

#[test]
fn many_peers_are_answered_each() {
    let Some(hosts) = VethPair::create() else { return };
    for last in 10..110 {
        let near = &hosts.near;
        run("ip", &format!("-n {near} addr add 10.77.0.{last}/24 dev v{near}"))
            .expect("an address");
    }
    let server = xdp(&hosts.far, FAR);
    let target = server.local_address();
    let mut server = driver(Echo::new(SegmentedSend::On), server);
    let mut clients = Driver::new(Wait::BusyPoll).expect("a driver");
    for last in 10..110 {
        let pinger = Pinger::new(target, 64, 4, SegmentedSend::Off);
        clients.add(pinger, udp(&hosts.near, &format!("10.77.0.{last}")), None);
    }
    let deadline = Clock.now() + PATIENCE_NS;
    while (0..100).any(|index| clients.node(index).completed < 50) {
        server.turn().expect("a turn");
        clients.turn().expect("a turn");
        assert!(Clock.now() < deadline, "each is answered: {:?}", metrics(&server));
    }
    let found = metrics(&server);
    assert!(found.lookups >= 100 && found.direct_out > 4_000, "{found:?}");
    // All have been heard by now: at most one reply of each peer may still be on its old way.
    let unresolved = found.kernel_unresolved;
    while metrics(&server).direct_out <= 8_000 {
        server.turn().expect("a turn");
        clients.turn().expect("a turn");
        assert!(Clock.now() < deadline, "all is direct: {:?}", metrics(&server));
    }
    assert!(metrics(&server).kernel_unresolved - unresolved < 100, "{:?}", metrics(&server));
}

/// The interface decides at which queue a flow comes.
#[test]
fn what_comes_at_several_queues_is_one_ports() {
    let Some(hosts) = VethPair::with_queues(2) else { return };
    let server = xdp(&hosts.far, FAR);
    let target = server.local_address();
    let mut server = driver(Echo::new(SegmentedSend::On), server);
    let mut clients = Driver::new(Wait::BusyPoll).expect("a driver");
    for _ in 0..32 {
        let pinger = Pinger::new(target, 64, 4, SegmentedSend::Off);
        clients.add(pinger, udp(&hosts.near, NEAR), None);
    }
    let deadline = Clock.now() + PATIENCE_NS;
    while (0..32).any(|index| clients.node(index).completed < 100) {
        server.turn().expect("a turn");
        clients.turn().expect("a turn");
        assert!(Clock.now() < deadline, "each is answered: {:?}", metrics(&server));
    }
    assert_direct(&server, 3_200);
    for queue in 0..2 {
        let count = queue_packets(&hosts.far, queue);
        assert!(count > 200, "{count} came at queue {queue}");
    }
}

/// Packets that programs before the stack have seen at a queue.
fn queue_packets(host: &str, queue: u32) -> u64 {
    let shown = within(host, || Command::new("ethtool").args(["-S", &format!("v{host}")]).output());
    let text = String::from_utf8(shown.expect("ethtool (Debian: ethtool)").stdout).expect("a text");
    let name = format!("rx_queue_{queue}_xdp_packets:");
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&name));
    line.expect("veth counts them").trim().parse().expect("a number")
}

#[test]
fn a_neighbour_that_appears_late_is_reached() {
    let Some(hosts) = VethPair::create() else { return };
    let target: SocketAddr = "10.77.0.9:8000".parse().expect("an address");
    let mut client = driver(Pinger::new(target, 64, 1, SegmentedSend::Off), xdp(&hosts.near, NEAR));
    client.turn().expect("a turn");
    assert_eq!(metrics(&client).kernel_unresolved, 1);
    let far = &hosts.far;
    run("ip", &format!("-n {far} addr add 10.77.0.9/24 dev v{far}")).expect("an address");
    let port = within(far, || UdpPort::bind(target, UdpConfig::default())).expect("a port");
    let server = driver(Echo::new(SegmentedSend::Off), port.into());
    // The kernel has kept the first datagram, and sends it once it has asked again.
    assert_direct(&ping(server, client).1, 99);
}

#[test]
fn tcp_goes_on_beside() {
    let Some(hosts) = VethPair::create() else { return };
    let ends = (xdp(&hosts.far, FAR), xdp(&hosts.near, NEAR));
    let listener = within(&hosts.far, || TcpListener::bind((FAR, 0)).expect("a listener"));
    let address = listener.local_addr().expect("an address");
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|byte| (byte % 251) as u8).collect();
    std::thread::scope(|scope| {
        let sent = bytes.clone();
        let near = hosts.near.clone();
        scope.spawn(move || {
            enter(&near);
            let mut stream = TcpStream::connect(address).expect("a connection");
            stream.write_all(&sent).expect("all is sent");
        });
        let reader = scope.spawn(|| {
            let mut received = Vec::new();
            listener.accept().expect("a peer").0.read_to_end(&mut received).expect("all comes");
            received
        });
        let (server, _) = exchange(ends, 64, (5_000, 8));
        assert!(reader.join().expect("no failure") == bytes, "TCP's bytes come as they were sent");
        assert_direct(&server, 4_900);
    });
}

#[test]
fn an_interface_that_is_removed_ends_no_driver() {
    let Some(hosts) = VethPair::create() else { return };
    let ends = (xdp(&hosts.far, FAR), xdp(&hosts.near, NEAR));
    let (mut server, mut client) = exchange(ends, 64, (500, 4));
    run("ip", &format!("-n {0} link del v{0}", hosts.near)).expect("it is removed");
    for _ in 0..5_000 {
        server.turn().expect("a turn");
        client.turn().expect("a turn");
    }
    // What the ring's descriptor says for good has been taken note of: it ends no further sleep.
    let fd = client.port(0).as_fd();
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut fds, Some(&now)).expect("a poll"), 0);
}

#[test]
fn sleeping_drivers_are_woken() {
    let Some(hosts) = VethPair::create() else { return };
    let server = xdp(&hosts.far, FAR);
    let pinger = Pinger::new(server.local_address(), 64, 1, SegmentedSend::Off);
    let (stop, client) = (AtomicBool::new(false), xdp(&hosts.near, NEAR));
    let asleep = |port| {
        let mut driver = Driver::new(Wait::Block { spin_ns: 0 }).expect("a driver");
        driver.add(Echo::new(SegmentedSend::Off), port, None);
        driver
    };
    let mut server = asleep(server);
    let waker = server.waker();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                server.turn().expect("a turn");
                server.wait(None, None).expect("a sleep");
            }
        });
        let mut driver = Driver::new(Wait::Block { spin_ns: 0 }).expect("a driver");
        driver.add(pinger, client, None);
        let deadline = Clock.now() + PATIENCE_NS;
        while driver.node(0).completed < 500 && Clock.now() < deadline {
            driver.turn().expect("a turn");
            driver.wait(None, Some(deadline)).expect("a sleep");
        }
        stop.store(true, Ordering::Relaxed);
        waker.wake();
        thread.join().expect("no failure");
        assert!(driver.node(0).completed >= 500, "answers end sleeps");
        assert!(driver.metrics().sleeps > 0);
    });
    assert_direct(&server, 400);
}

#[test]
fn a_warm_turn_allocates_nothing() {
    let Some(hosts) = VethPair::create() else { return };
    let ends = (xdp(&hosts.far, FAR), xdp(&hosts.near, NEAR));
    let (mut server, mut client) = exchange(ends, 64, (5_000, 64));
    // Where the kernel tells of a change, as of an address that has passed duplicate detection some
    // seconds after its interface came up, ways are looked up again: those turns are not warm.
    let asked = |server: &Driver<Echo>, client: &Driver<Pinger>| {
        [metrics(server), metrics(client)].map(|found| (found.lookups, found.ways_flushed))
    };
    for _ in 0..10 {
        let before = asked(&server, &client);
        let completed_min = client.node(0).completed + 10_000;
        let counted = allocation_counter::measure(|| {
            turn_until(&mut server, &mut client, |_, client| client.completed >= completed_min);
        });
        if asked(&server, &client) == before {
            return assert_eq!(counted.count_total, 0);
        }
    }
    panic!("ways are looked up again and again: {:?}", asked(&server, &client));
}

#[test]
fn ports_share_an_interface_and_give_their_frames_back() {
    let Some(hosts) = VethPair::create() else { return };
    let mut server = driver(Echo::new(SegmentedSend::On), xdp(&hosts.far, FAR));
    let target = server.port(0).local_address();
    // Keeps the interface. The others have more frames together than there are.
    let _kept = xdp(&hosts.near, NEAR);
    for _ in 0..30 {
        let mut clients = Driver::new(Wait::BusyPoll).expect("a driver");
        for _ in 0..4 {
            let pinger = Pinger::new(target, 64, 16, SegmentedSend::On);
            clients.add(pinger, xdp(&hosts.near, "0.0.0.0"), None);
        }
        turn_until(&mut server, &mut clients, |_, client| client.completed >= 50);
    }
    assert_direct(&server, 1_500);
}

#[test]
fn what_cannot_be_had_is_named() {
    let Some(hosts) = VethPair::create() else { return };
    let near = &hosts.near;
    let bind = |interface: &str| {
        let config = interface.parse().expect("a configuration");
        let address = "10.77.0.1:0".parse().expect("an address");
        let bound = within(near, || XdpPort::bind(address, config, UdpConfig::default()));
        bound.expect_err("it cannot be had").to_string()
    };
    assert_eq!(bind("no-such"), "no interface is named no-such");
    assert!(bind("lo").contains("no Ethernet interface"));
    let held = open(near, "10.77.0.1:0", "").expect("a port");
    assert!(held.describe().contains("native program, copying"), "{}", held.describe());
    assert!(bind(&format!("v{near},generic")).contains("in use here with other options"));
}
