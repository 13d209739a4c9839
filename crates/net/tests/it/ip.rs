//! The port of Homa directly over IP, on loopback. It needs CAP_NET_RAW.

use std::io;
use std::net::SocketAddr;

use tailcut_net::clock::Clock;
use tailcut_net::datapath::Datapath;
use tailcut_net::ip::{IpPort, Strays};
use tailcut_net::stamps::{StampConfig, Stamping};
use tailcut_net::udp::UdpConfig;
use tailcut_proto::node::Transmit;
use tailcut_wire::homa::{CLIENT_PORT_MIN, CommonHeader, PacketType, Ports};
use zerocopy::IntoBytes;

use crate::toy::{PATIENCE_NS, ip_port};

#[test]
fn packets_over_ipv4_tell_their_peers_port() {
    check_packets("127.0.0.11:0");
}

#[test]
fn packets_over_ipv6_tell_their_peers_port() {
    check_packets("[::1]:0");
}

fn check_packets(address: &str) {
    let (Some(mut receiver), Some(mut sender)) = (ip_port(address), ip_port(address)) else {
        return;
    };
    let (to, from) = (receiver.local_address(), sender.local_address());
    assert!(from.port() >= CLIENT_PORT_MIN && from != to);
    for priority in [0, 3] {
        queue(
            &mut sender,
            Transmit { priority, ..Transmit::single(to, 28) },
            &packet(from.port(), to.port()),
        );
    }
    sender.flush();
    assert_eq!(collect(&mut receiver, 2), vec![(from, packet(from.port(), to.port())); 2]);
}

#[test]
fn a_train_leaves_packet_by_packet() {
    let (Some(mut receiver), Some(mut sender)) = (ip_port("127.0.0.12:0"), ip_port("127.0.0.12:0"))
    else {
        return;
    };
    let (to, from) = (receiver.local_address(), sender.local_address());
    let batch = packet(from.port(), to.port()).repeat(3);
    queue(&mut sender, Transmit { segment_len: 28, ..Transmit::single(to, 3 * 28) }, &batch);
    sender.flush();
    assert_eq!((collect(&mut receiver, 3).len(), sender.metrics().gso_batches_out), (3, 0));
}

#[test]
fn packets_for_another_port_of_the_host_stay_outside() {
    let (Some(mut one), Some(mut other)) = (ip_port("127.0.0.13:0"), ip_port("127.0.0.13:0"))
    else {
        return;
    };
    let to = one.local_address();
    for _ in 0..10 {
        // The first is for nobody, the second for one of the two.
        for port in [1, to.port()] {
            queue(
                &mut other,
                Transmit::single(SocketAddr::new(to.ip(), port), 28),
                &packet(9, port),
            );
        }
        other.flush();
    }
    assert_eq!(collect(&mut one, 10).len(), 10);
    assert_eq!((one.metrics().datagrams_in, other.metrics().datagrams_in), (10, 0));
    assert_eq!(one.strays(), Strays::default());
}

#[test]
fn a_port_that_is_taken_is_refused() {
    let Some(port) = ip_port("127.0.0.15:0") else { return };
    let error = IpPort::bind(port.local_address(), UdpConfig::default()).expect_err("it is taken");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn the_kernel_stamps_packets() {
    let (Some(mut receiver), Some(mut sender)) = (ip_port("127.0.0.16:0"), ip_port("127.0.0.16:0"))
    else {
        return;
    };
    for port in [&mut receiver, &mut sender] {
        port.set_stamps(StampConfig { stamping: Stamping::Kernel, ..StampConfig::default() })
            .expect("stamps");
    }
    let (to, from) = (receiver.local_address(), sender.local_address());
    let deadline = Clock.now() + PATIENCE_NS;
    let mut is_stamped = false;
    // The kernel turns receive stamps on some time after they were asked for, and packets from
    // before have none.
    while !is_stamped {
        queue(
            &mut sender,
            Transmit { token: 5, ..Transmit::single(to, 28) },
            &packet(from.port(), to.port()),
        );
        sender.flush();
        receiver
            .recv_burst_stamped(|_, _, stamps| is_stamped |= stamps.kernel_ns.is_some())
            .expect("a receive");
        assert!(Clock.now() < deadline, "no stamp");
    }
}

/// A packet that is nothing but its type.
fn packet(source: u16, destination: u16) -> Vec<u8> {
    CommonHeader::new(PacketType::Busy, Ports { source, destination }, 8).as_bytes().to_vec()
}

fn queue(port: &mut IpPort, transmit: Transmit, bytes: &[u8]) {
    port.frame(0, 0).payload()[..bytes.len()].copy_from_slice(bytes);
    port.queue(&transmit);
}

fn collect(port: &mut IpPort, count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut received = Vec::new();
    let deadline = Clock.now() + PATIENCE_NS;
    while received.len() < count {
        port.recv_burst(|path, bytes| received.push((path.peer, bytes.to_vec())))
            .expect("a receive");
        assert!(Clock.now() < deadline, "{} of {count} arrived", received.len());
    }
    received
}
