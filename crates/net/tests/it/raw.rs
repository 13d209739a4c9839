//! Raw sends over real sockets on loopback; they need CAP_NET_RAW.

use std::io::{self, Write};
use std::net::SocketAddr;

use tailcut_net::clock::Clock;
use tailcut_net::datapath::Datapath;
use tailcut_net::raw::RawPort;
use tailcut_net::udp::{UdpConfig, UdpPort};
use tailcut_proto::node::{Source, Transmit};

#[test]
fn a_datagram_over_ipv4_comes_from_whom_it_says() {
    check("127.0.0.1:0", "127.0.0.9:5555", b"odd");
}

#[test]
fn a_datagram_over_ipv6_comes_from_whom_it_says() {
    check("[::1]:0", "[2001:db8::7]:5555", b"hello!");
}

#[test]
fn an_empty_datagram_is_sent() {
    check("127.0.0.1:0", "127.0.0.9:5555", b"");
}

#[test]
fn a_train_leaves_as_its_datagrams() {
    let mut receiver = receiver("127.0.0.1:0");
    let Some(mut raw) = open(&receiver) else { return };
    let single = Transmit::single(receiver.local_address(), 250);
    raw.send(
        &Transmit { from: Source::Spoofed(address("127.0.0.9:5555")), segment_len: 100, ..single },
        &[0; 250],
    );
    let lens: Vec<usize> = collect(&mut receiver, 3).iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!((lens, raw.metrics().datagrams_out), (vec![100, 100, 50], 3));
}

#[test]
fn a_source_of_the_other_family_is_counted() {
    let receiver = receiver("127.0.0.1:0");
    let Some(mut raw) = open(&receiver) else { return };
    raw.send(
        &Transmit {
            from: Source::Spoofed(address("[::1]:1")),
            ..Transmit::single(receiver.local_address(), 1)
        },
        &[0],
    );
    raw.send(&Transmit::single(receiver.local_address(), 1), &[0]);
    assert_eq!((raw.metrics().dropped_address, raw.metrics().datagrams_out), (2, 0));
}

fn check(to: &str, from: &str, payload: &[u8]) {
    let mut receiver = receiver(to);
    let Some(mut raw) = open(&receiver) else { return };
    let from = address(from);
    let single = Transmit::single(receiver.local_address(), payload.len());
    raw.send(&Transmit { from: Source::Spoofed(from), priority: 3, ..single }, payload);
    assert_eq!(collect(&mut receiver, 1), [(from, payload.to_vec())]);
}

fn collect(port: &mut UdpPort, count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut received = Vec::new();
    let deadline = Clock.now() + PATIENCE_NS;
    while received.len() < count {
        port.recv_burst(|path, bytes| received.push((path.peer, bytes.to_vec())))
            .expect("a receive");
        let drops = port.kernel_drops();
        assert!(Clock.now() < deadline, "{} of {count} arrived, drops {drops:?}", received.len());
    }
    received
}

/// `None`, said loudly past the test harness's capture, where the process may not open raw sockets.
fn open(receiver: &UdpPort) -> Option<RawPort> {
    match RawPort::open(receiver.local_address().ip()) {
        Ok(raw) => Some(raw),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
            writeln!(io::stderr(), "SKIPPED: {error}").expect("standard error");
            None
        }
        Err(error) => panic!("no raw socket: {error}"),
    }
}

fn receiver(text: &str) -> UdpPort {
    UdpPort::bind(address(text), UdpConfig::default()).expect("a port")
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Longer than any machine takes to move a datagram over loopback.
const PATIENCE_NS: u64 = 10_000_000_000;
