//! The UDP port over real sockets on loopback.

use std::net::{Ipv6Addr, SocketAddr, UdpSocket};

use tailcut_net::clock::Clock;
use tailcut_net::datapath::Datapath;
use tailcut_net::udp::{SegmentedSend, UdpConfig, UdpPort};
use tailcut_proto::node::{GSO_DATAGRAMS_MAX, Transmit};

/// A layer around a node writes its header and trailer where the node left room for them.
#[test]
fn a_frame_has_room_around_its_payload() {
    let mut receiver = port(V4, UdpConfig::default());
    let mut sender = port(V4, UdpConfig::default());
    let mut frame = sender.frame(2, 3);
    frame.wrapped(4).copy_from_slice(b"<<.....>>");
    sender.frame(2, 3).payload()[..4].copy_from_slice(b"seal");
    sender.queue(&Transmit::single(receiver.local_address(), 9));
    sender.flush();
    assert_eq!(collect(&mut receiver, 1), [b"<<seal.>>".to_vec()]);
    assert_eq!(sender.frame(0, 0).payload().len(), sender.frame(2, 3).payload().len() + 5);
}

#[test]
fn a_datagram_arrives_over_ipv4_with_its_sender() {
    check_echo(V4);
}

#[test]
fn a_datagram_arrives_over_ipv6_with_its_sender() {
    check_echo(V6);
}

#[test]
fn an_empty_datagram_arrives() {
    let (mut sender, mut receiver) = pair(UdpConfig::default());
    sender.send(&Transmit::single(receiver.local_address(), 0), &[]);
    assert_eq!(collect(&mut receiver, 1), [Vec::<u8>::new()]);
}

#[test]
fn a_train_arrives_as_its_datagrams() {
    let (lens, batches) = batch_lens(UdpConfig::default(), GSO_DATAGRAMS_MAX * 1000, 1000);
    assert_eq!((lens, batches), (vec![1000; GSO_DATAGRAMS_MAX], (1, 1)));
}

#[test]
fn the_last_datagram_of_a_train_may_be_shorter() {
    let (lens, batches) = batch_lens(UdpConfig::default(), 250, 100);
    assert_eq!((lens, batches), (vec![100, 100, 50], (1, 1)));
}

#[test]
fn without_coalescing_no_train_travels() {
    let config = UdpConfig { segmented_send: SegmentedSend::Off, ..UdpConfig::default() };
    let (lens, batches) = batch_lens(config, 250, 100);
    assert_eq!((lens, batches), (vec![100, 100, 50], (0, 0)));
}

#[test]
fn a_train_to_a_receiver_without_coalescing_is_split_by_the_kernel() {
    let (mut sender, mut receiver) = pair(UdpConfig::default());
    send_many(&mut sender, receiver.local_address(), 10);
    collect(&mut receiver, 10);
    receiver.set_segmented_send(SegmentedSend::Off).expect("the option");
    sender.send(&batch(&receiver, 250, 100), &[0; 250]);
    let lens: Vec<usize> = collect(&mut receiver, 3).iter().map(Vec::len).collect();
    assert_eq!((lens, receiver.metrics().gso_batches_in), (vec![100, 100, 50], 0));
}

#[test]
fn the_bytes_of_a_train_are_in_order() {
    let (mut sender, mut receiver) = pair(UdpConfig::default());
    let bytes: Vec<u8> = (0..=255).cycle().take(36_000).collect();
    sender.send(&batch(&receiver, bytes.len(), 1200), &bytes);
    assert_eq!(collect(&mut receiver, 30).concat(), bytes);
}

#[test]
fn a_message_longer_than_the_buffer_is_counted_and_dropped() {
    let (mut sender, mut receiver) =
        pair(UdpConfig { message_len_max: 100, ..UdpConfig::default() });
    sender.send(&Transmit::single(receiver.local_address(), 101), &[0; 101]);
    sender.send(&Transmit::single(receiver.local_address(), 100), &[0; 100]);
    assert_eq!(collect(&mut receiver, 1), [vec![0; 100]]);
    assert_eq!((receiver.metrics().truncated, receiver.metrics().datagrams_in), (1, 1));
}

#[test]
fn a_crowd_is_received_in_few_calls() {
    let (mut sender, mut receiver) = pair(UdpConfig::default());
    send_many(&mut sender, receiver.local_address(), 200);
    let (mut received, mut calls, mut most) = (0, 0, 0);
    let deadline = Clock.now() + PATIENCE_NS;
    while received < 200 {
        let count = receiver.recv_burst(|_, _| ()).expect("a receive");
        received += count;
        calls += usize::from(count > 0);
        most = most.max(count);
        assert!(Clock.now() < deadline, "{received} of 200 arrived");
    }
    assert!(calls < 50 && most > 1 && most <= 64, "{calls} calls, at most {most} datagrams");
}

#[test]
fn one_call_receives_at_most_a_burst() {
    let (mut sender, mut receiver) = pair(UdpConfig { burst_max: 8, ..UdpConfig::default() });
    send_many(&mut sender, receiver.local_address(), 100);
    let mut received = 0;
    while received < 100 {
        let count = receiver.recv_burst(|_, _| ()).expect("a receive");
        assert!(count <= 8, "{count} datagrams in a call");
        received += count;
    }
}

#[test]
fn a_prioritised_datagram_arrives() {
    for address in [V4, V6] {
        let mut sender = port(address, UdpConfig::default());
        let mut receiver = port(address, UdpConfig::default());
        sender.send(&Transmit { priority: 5, ..batch(&receiver, 250, 100) }, &[0; 250]);
        assert_eq!(collect(&mut receiver, 3).len(), 3);
    }
}

#[test]
fn a_closed_port_is_counted_and_harms_nobody() {
    let (mut sender, mut receiver) = pair(UdpConfig::default());
    let closed = UdpSocket::bind(V4).and_then(|socket| socket.local_addr()).expect("an address");
    for _ in 0..10 {
        sender.send(&Transmit::single(closed, 1), &[0]);
        sender.send(&Transmit::single(receiver.local_address(), 1), &[1]);
    }
    assert_eq!(collect(&mut receiver, 10).len(), 10);
    assert_eq!(sender.recv_burst(|_, _| ()).expect("not fatal"), 0);
    assert_eq!((sender.metrics().datagrams_out, sender.metrics().dropped_unreachable), (20, 0));
    let deadline = Clock.now() + PATIENCE_NS;
    while sender.metrics().icmp_errors == 0 {
        sender.take_errors();
        assert!(Clock.now() < deadline, "{:?}", sender.metrics());
    }
}

#[test]
fn an_address_of_the_other_family_is_counted() {
    let mut sender = port(V4, UdpConfig::default());
    sender.send(&Transmit::single(SocketAddr::from((Ipv6Addr::LOCALHOST, 9)), 1), &[0]);
    assert_eq!((sender.metrics().dropped_other, sender.metrics().datagrams_out), (1, 0));
}

#[test]
fn a_full_receive_buffer_is_counted_by_the_kernel() {
    let (mut sender, receiver) =
        pair(UdpConfig { receive_buffer_bytes: 4096, ..UdpConfig::default() });
    send_many(&mut sender, receiver.local_address(), 200);
    let deadline = Clock.now() + PATIENCE_NS;
    while receiver.kernel_drops().expect("the figure") == 0 {
        assert!(Clock.now() < deadline, "nothing was dropped");
    }
}

#[test]
fn the_receive_buffer_is_read_back() {
    let port = port(V4, UdpConfig { receive_buffer_bytes: 100_000, ..UdpConfig::default() });
    assert_eq!(port.receive_buffer_bytes().expect("the figure") / 2, 100_000);
}

#[test]
fn no_buffers_is_a_configuration_error() {
    let address: SocketAddr = V4.parse().expect("an address");
    assert!(UdpPort::bind(address, UdpConfig { burst_max: 0, ..UdpConfig::default() }).is_err());
}

fn check_echo(address: &str) {
    let mut client = port(address, UdpConfig::default());
    let mut server = port(address, UdpConfig::default());
    client.send(&Transmit::single(server.local_address(), 5), b"hello");
    let (peer, bytes) = receive_one(&mut server);
    assert_eq!((peer, &bytes[..]), (client.local_address(), &b"hello"[..]));
    server.send(&Transmit::single(peer, bytes.len()), &bytes);
    assert_eq!(receive_one(&mut client), (server.local_address(), bytes));
}

#[test]
fn batches_arrive_whole_from_when_several_datagrams_in_a_row_came_from_one_peer() {
    for address in [V4, V6] {
        let [mut receiver, mut sender, mut other] =
            [(); 3].map(|()| port(address, UdpConfig::default()));
        let to = receiver.local_address();
        let gso = batch(&receiver, 2_950, 100);
        sender.send(&gso, &[1; 2_950]);
        let cut = collect(&mut receiver, 30);
        assert_eq!((cut.len(), receiver.metrics().gso_batches_in), (30, 0), "it was not asked");
        sender.send(&gso, &[2; 2_950]);
        other.send(&Transmit::single(to, 70), &[3; 70]);
        let lens: Vec<usize> = collect(&mut receiver, 31).iter().map(Vec::len).collect();
        assert_eq!(lens, [&[100; 29][..], &[50, 70]].concat());
        assert_eq!(receiver.metrics().gso_batches_in, 1);
    }
}

/// No GSO batch would come of it, and each receive would cost more.
#[test]
fn a_crowd_of_many_peers_is_no_batch() {
    let mut receiver = port(V4, UdpConfig::default());
    let mut senders: Vec<UdpPort> = (0..10).map(|_| port(V4, UdpConfig::default())).collect();
    for _ in 0..10 {
        for sender in &mut senders {
            sender.send(&Transmit::single(receiver.local_address(), 100), &[1; 100]);
        }
    }
    collect(&mut receiver, 100);
    senders[0].send(&batch(&receiver, 250, 100), &[2; 250]);
    let lens: Vec<usize> = collect(&mut receiver, 3).iter().map(Vec::len).collect();
    assert_eq!((lens, receiver.metrics().gso_batches_in), (vec![100, 100, 50], 0));
}

/// The datagrams' lengths, and the GSO batches that were sent and received, where a crowd has come
/// before.
fn batch_lens(config: UdpConfig, len: usize, segment_len: usize) -> (Vec<usize>, (u64, u64)) {
    let (mut sender, mut receiver) = pair(config);
    send_many(&mut sender, receiver.local_address(), 10);
    collect(&mut receiver, 10);
    sender.send(&batch(&receiver, len, segment_len), &vec![0; len]);
    let lens = collect(&mut receiver, len.div_ceil(segment_len)).iter().map(Vec::len).collect();
    (lens, (sender.metrics().gso_batches_out, receiver.metrics().gso_batches_in))
}

fn send_many(sender: &mut UdpPort, to: SocketAddr, count: usize) {
    for _ in 0..count {
        sender.queue(&Transmit::single(to, 64));
    }
    sender.flush();
}

fn receive_one(port: &mut UdpPort) -> (SocketAddr, Vec<u8>) {
    let mut received = None;
    let deadline = Clock.now() + PATIENCE_NS;
    while received.is_none() {
        port.recv_burst(|path, bytes| received = Some((path.peer, bytes.to_vec())))
            .expect("a receive");
        assert!(Clock.now() < deadline, "nothing arrived");
    }
    received.expect("as the loop says")
}

fn collect(port: &mut UdpPort, count: usize) -> Vec<Vec<u8>> {
    let mut received = Vec::new();
    let deadline = Clock.now() + PATIENCE_NS;
    while received.len() < count {
        port.recv_burst(|_, bytes| received.push(bytes.to_vec())).expect("a receive");
        assert!(Clock.now() < deadline, "{} of {count} arrived", received.len());
    }
    received
}

fn batch(receiver: &UdpPort, len: usize, segment_len: usize) -> Transmit {
    Transmit { segment_len, ..Transmit::single(receiver.local_address(), len) }
}

fn pair(config: UdpConfig) -> (UdpPort, UdpPort) {
    (port(V4, config), port(V4, config))
}

fn port(address: &str, config: UdpConfig) -> UdpPort {
    UdpPort::bind(address.parse().expect("an address"), config).expect("a port")
}

const V4: &str = "127.0.0.1:0";
const V6: &str = "[::1]:0";

/// Longer than any machine takes to move a datagram over loopback.
const PATIENCE_NS: u64 = 10_000_000_000;
