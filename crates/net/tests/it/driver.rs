//! Drivers of toy nodes over real sockets on loopback.

use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use tailcut_net::clock::Clock;
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::{Driver, Wait};
use tailcut_net::raw::RawPort;
use tailcut_net::udp::{SegmentedSend, UdpPort};
use tailcut_proto::node::{Node, Path, Source, Time, Transmit};

use crate::toy::{self, Alarm, Echo, PATIENCE_NS, Pinger, V4, V6};

#[test]
fn an_echo_answers_over_ipv4() {
    check_echo(V4, 1, 32);
}

#[test]
fn an_echo_answers_over_ipv6() {
    check_echo(V6, 1, 32);
}

#[test]
fn many_outstanding_travel_as_gso_batches() {
    let (sent, batches) = check_echo(V4, 64, 1000);
    assert!(batches > 0, "{batches} GSO batches of {sent} datagrams");
}

#[test]
fn a_sleeping_echo_answers() {
    let mut server = toy::driver(V4, Echo::new(SegmentedSend::On), SLEEPY);
    let target = server.port(0).local_address();
    let waker = server.waker();
    let (done, is_done) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        while is_done.try_recv().is_err() {
            server.turn().expect("a turn");
            server.wait(None, None).expect("a sleep");
        }
        server.metrics().sleeps
    });
    let mut client = toy::driver(V4, Pinger::new(target, 32, 1, SegmentedSend::On), SLEEPY);
    let deadline = Clock.now() + PATIENCE_NS;
    while client.node(0).completed < 100 {
        client.turn().expect("a turn");
        client.wait(None, Some(deadline)).expect("a sleep");
        assert!(Clock.now() < deadline, "{} answers", client.node(0).completed);
    }
    done.send(()).expect("the server runs");
    waker.wake();
    assert!(thread.join().expect("the server") > 0, "the server slept");
}

#[test]
fn a_waker_ends_sleeps_without_end() {
    let mut driver = toy::driver(V4, Alarm { deadline: None, rang: None }, SLEEPY);
    let waker = driver.waker();
    let rounds = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&rounds);
    let thread = std::thread::spawn(move || {
        for round in 1..=ROUNDS {
            driver.wait(None, None).expect("a sleep");
            counter.store(round, Ordering::Release);
        }
        driver.metrics().sleeps
    });
    // The driver is on its way back to sleep when it is woken: before it, while falling asleep, or
    // asleep. A wake-up that is lost would leave it there for ever.
    for round in 0..ROUNDS {
        while rounds.load(Ordering::Acquire) < round {
            std::thread::yield_now();
        }
        waker.wake();
    }
    // The event of a wake-up that came while falling asleep ends the next sleep too, so that the
    // rounds may be over early.
    assert!(thread.join().expect("the driver") > 0);
}

#[test]
fn a_wake_up_ends_one_sleep_only() {
    let mut driver = toy::driver(V4, Alarm { deadline: None, rang: None }, SLEEPY);
    driver.waker().wake();
    driver.wait(None, None).expect("no sleep");
    assert_eq!(driver.metrics().sleeps, 0);
    driver.wait(None, Some(Clock.now() + 1_000_000)).expect("a sleep");
    assert_eq!(driver.metrics().sleeps, 1);
}

#[test]
fn the_owners_descriptor_ends_a_sleep() {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(&[1]).expect("a pipe");
    let mut driver = toy::driver(V4, Alarm { deadline: None, rang: None }, SLEEPY);
    driver.wait(Some(reader.as_fd()), None).expect("a sleep");
    assert_eq!(driver.metrics().sleeps, 1);
}

#[test]
fn a_deadline_is_never_early_and_seldom_late() {
    let mut late = Vec::new();
    for _ in 0..50 {
        let deadline = Clock.now() + 200_000;
        let mut driver = toy::driver(V4, Alarm { deadline: Some(deadline), rang: None }, SLEEPY);
        while driver.turn().expect("a turn").timeouts == 0 {
            driver.wait(None, None).expect("a sleep");
        }
        late.push(
            driver.node(0).rang.and_then(|rang| rang.checked_sub(deadline)).expect("never early"),
        );
    }
    late.sort_unstable();
    // A wake-up takes 13-25 us here; a quarter of a millisecond leaves room for a busy machine and
    // none for a timer tick.
    assert!(late[10] < 250_000, "{late:?}");
}

#[test]
fn the_spin_time_passes_before_a_sleep() {
    let mut server =
        toy::driver(V4, Echo::new(SegmentedSend::On), Wait::Block { spin_ns: PATIENCE_NS });
    let mut client = toy::driver(
        V4,
        Pinger::new(server.port(0).local_address(), 32, 1, SegmentedSend::On),
        Wait::BusyPoll,
    );
    toy::turn_until(&mut server, &mut client, |server, _| server.received > 0);
    server.wait(None, None).expect("no sleep");
    assert_eq!(server.metrics().sleeps, 0);
}

#[test]
fn a_timer_without_a_packet_does_not_keep_a_thread_awake() {
    let wait = Wait::Block { spin_ns: PATIENCE_NS };
    let alarm = Alarm { deadline: Some(Clock.now()), rang: None };
    let mut driver = toy::driver(V4, alarm, wait);
    assert_eq!(driver.turn().expect("a turn").timeouts, 1);
    assert!(driver.node(0).rang.is_some() && !driver.keeps_turning());
    toy::port(V4, SegmentedSend::On)
        .send(&Transmit::single(driver.port(0).local_address(), 2), b"hi");
    while driver.turn().expect("a turn").received == 0 {
        assert!(driver.node(0).rang.expect("it rang") + PATIENCE_NS > Clock.now());
    }
    assert!(driver.keeps_turning());
}

#[test]
fn several_nodes_share_a_thread() {
    let mut servers = Driver::new(SLEEPY).expect("a driver");
    for _ in 0..5 {
        servers.add(Echo::new(SegmentedSend::On), toy::port(V4, SegmentedSend::On), None);
    }
    for index in 0..5 {
        let target = servers.port(index).local_address();
        let mut client =
            toy::driver(V4, Pinger::new(target, 32, 4, SegmentedSend::On), Wait::BusyPoll);
        let deadline = Clock.now() + PATIENCE_NS;
        while client.node(0).completed < 100 {
            client.turn().expect("a turn");
            servers.wait(None, Some(deadline)).expect("a sleep");
            servers.turn().expect("a turn");
            assert!(Clock.now() < deadline, "server {index} does not answer");
        }
    }
    assert!((0..5).all(|index| servers.node(index).received >= 100));
}

/// A node that notes when it was given a datagram, and when it was done with it.
#[derive(Default)]
struct Noting {
    handled: Vec<(Time, Time)>,
}

impl Node for Noting {
    fn handle_datagram(&mut self, now: Time, _: Path, _: &mut [u8]) {
        self.handled.push((now, Clock.now()));
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn poll_transmit(&mut self, _: Time, _: &mut [u8]) -> Option<Transmit> {
        None
    }
}

#[test]
fn a_burst_has_no_time_before_the_burst_of_another_port_was_read() {
    let mut driver = Driver::new(Wait::BusyPoll).expect("a driver");
    let mut sender = toy::port(V4, SegmentedSend::On);
    for _ in 0..2 {
        driver.add(Noting::default(), toy::port(V4, SegmentedSend::On), None);
    }
    // Both are there in one turn unless the kernel puts one off.
    for _ in 0..100 {
        for index in 0..2 {
            sender.send(&Transmit::single(driver.port(index).local_address(), 2), b"hi");
        }
        let turn = driver.turn().expect("a turn");
        let handled = [0, 1].map(|index| std::mem::take(&mut driver.node_mut(index).handled));
        if let [[first], [second]] = handled.each_ref().map(Vec::as_slice) {
            assert!(second.0 >= first.1 && turn.now >= second.0, "{first:?} {second:?} {turn:?}");
            return;
        }
    }
    panic!("two datagrams are never there at once");
}

#[test]
fn work_is_called_for_each_node_and_leaves_in_the_same_burst() {
    let mut receiver = toy::port(V4, SegmentedSend::On);
    let mut driver = toy::driver(
        V4,
        Pinger::new(receiver.local_address(), 32, 0, SegmentedSend::On),
        Wait::BusyPoll,
    );
    let turn = driver
        .turn_with(|index, node, now| {
            assert_eq!(index, 0);
            *node = Pinger::new(receiver.local_address(), 32, 3, SegmentedSend::On);
            assert!(now > 0);
        })
        .expect("a turn");
    assert_eq!((turn.received, turn.sent), (0, 1));
    receive(&mut receiver, 3);
}

#[test]
fn a_full_burst_leaves_the_rest_for_the_next_turn_and_forbids_sleep() {
    let mut receiver = toy::port(V4, SegmentedSend::On);
    let mut driver =
        toy::driver(V4, Pinger::new(receiver.local_address(), 32, 100, SegmentedSend::Off), SLEEPY);
    assert_eq!(driver.turn().expect("a turn").sent, 64);
    driver.wait(None, None).expect("no sleep");
    assert_eq!(driver.turn().expect("a turn").sent, 36);
    assert_eq!(driver.metrics().bursts_full, 1);
    receive(&mut receiver, 100);
}

#[test]
fn a_foreign_source_needs_a_raw_port() {
    let mut client = toy::port(V4, SegmentedSend::On);
    let mut echo = Echo::new(SegmentedSend::On);
    echo.from = Source::Spoofed("127.0.0.9:4444".parse().expect("an address"));
    let mut server = toy::driver(V4, echo, Wait::BusyPoll);
    client.send(&Transmit::single(server.port(0).local_address(), 2), b"hi");
    while server.turn().expect("a turn").received == 0 {}
    assert_eq!((server.metrics().dropped_no_raw, server.port(0).metrics().datagrams_out), (1, 0));
}

#[test]
fn a_foreign_source_is_honoured_by_a_raw_port() {
    let raw = match RawPort::open("127.0.0.1".parse().expect("an address")) {
        Ok(raw) => raw,
        Err(error) => {
            writeln!(std::io::stderr(), "SKIPPED: {error}").expect("standard error");
            return;
        }
    };
    let mut client = toy::port(V4, SegmentedSend::On);
    let mut echo = Echo::new(SegmentedSend::On);
    let from = "127.0.0.9:4444".parse().expect("an address");
    echo.from = Source::Spoofed(from);
    let mut server = Driver::new(Wait::BusyPoll).expect("a driver");
    server.add(echo, toy::port(V4, SegmentedSend::On), Some(raw));
    client.send(&Transmit::single(server.port(0).local_address(), 2), b"hi");
    while server.turn().expect("a turn").received == 0 {}
    let peers = receive(&mut client, 1);
    assert_eq!((peers, server.metrics().dropped_no_raw), (vec![from], 0));
}

#[test]
fn a_dead_peer_does_not_keep_a_driver_awake() {
    let closed = toy::port(V4, SegmentedSend::On).local_address();
    let mut driver = toy::driver(V4, Pinger::new(closed, 32, 1, SegmentedSend::On), SLEEPY);
    driver.turn().expect("a turn");
    let deadline = Clock.now() + 5_000_000;
    while Clock.now() < deadline {
        driver.wait(None, Some(deadline)).expect("a sleep");
        driver.turn().expect("a turn");
    }
    assert!(driver.port(0).metrics().icmp_errors > 0);
    assert!(driver.metrics().sleeps < 10, "{} sleeps", driver.metrics().sleeps);
}

/// Exchanges datagrams with an echo; returns how many the client sent, and in how many GSO batches.
fn check_echo(address: &str, outstanding: usize, len: usize) -> (u64, u64) {
    let mut server = toy::driver(address, Echo::new(SegmentedSend::On), Wait::BusyPoll);
    let target = server.port(0).local_address();
    let mut client = toy::driver(
        address,
        Pinger::new(target, len, outstanding, SegmentedSend::On),
        Wait::BusyPoll,
    );
    toy::turn_until(&mut server, &mut client, |_, client| client.completed >= 1000);
    let metrics = client.port(0).metrics();
    (metrics.datagrams_out, metrics.gso_batches_out)
}

/// Waits for `count` datagrams; returns who sent them.
fn receive(port: &mut UdpPort, count: usize) -> Vec<SocketAddr> {
    let mut peers = Vec::new();
    let deadline = Clock.now() + PATIENCE_NS;
    while peers.len() < count {
        port.recv_burst(|path, _| peers.push(path.peer)).expect("a receive");
        assert!(Clock.now() < deadline, "{} of {count} arrived", peers.len());
    }
    peers
}

const ROUNDS: u64 = 10_000;

const SLEEPY: Wait = Wait::Block { spin_ns: 0 };
