//! Waits for a driver's ports and for connections in one call of the kernel.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use tailcut_net::clock::Clock;
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::{Driver, Wait, Woken};
use tailcut_net::stream::{Event, ListenerId, StreamConfig, Streams};
use tailcut_net::udp::{SegmentedSend, UdpPort};
use tailcut_proto::node::Transmit;

use crate::toy::{self, Echo, PATIENCE_NS, V4};

/// A driver of an echo, and connections, on one thread.
struct Loop {
    driver: Driver<Echo>,
    streams: Streams,
    listener: ListenerId,
}

impl Loop {
    fn new() -> Self {
        let driver = toy::driver(V4, Echo::new(SegmentedSend::On), SLEEPY);
        let mut streams = Streams::new(SLEEPY, StreamConfig::default()).expect("a set");
        let listener = streams.listen(V4.parse().expect("an address"), None).expect("a port");
        Self { driver, streams, listener }
    }

    /// Waits for at most so long.
    fn wait(&mut self, ns: u64) -> Woken {
        self.streams.wait_with(&mut self.driver, Some(Clock.now() + ns)).expect("a sleep")
    }

    /// Waits until there is something to look at, and says what.
    fn woken(&mut self) -> Woken {
        let sleeps = self.driver.metrics().sleeps;
        let woken = self.wait(PATIENCE_NS);
        assert!(self.driver.metrics().sleeps > sleeps, "it asked the kernel");
        woken
    }

    /// Takes what connections bring and says it back; returns how many events that were.
    fn look(&mut self) -> usize {
        let echo = |connection: &mut tailcut_net::stream::Connection<'_>, event: Event<'_>| {
            if let Event::Bytes(bytes) = event {
                connection.output().extend_from_slice(bytes);
            }
        };
        self.streams.look(echo).expect("a look")
    }

    fn connect(&mut self) -> TcpStream {
        let address = self.streams.listen_address(self.listener).expect("an address");
        let client = TcpStream::connect(address).expect("a connection");
        assert_eq!((self.woken(), self.look()), (OTHERS, 1));
        client
    }
}

#[test]
fn a_wait_tells_which_of_both_there_is_to_look_at() {
    let mut both = Loop::new();
    let mut client = both.connect();
    let mut peer = toy::port(V4, SegmentedSend::On);
    for _ in 0..3 {
        client.write_all(b"hello").expect("a write");
        assert_eq!((both.woken(), both.look()), (OTHERS, 1));
        let mut answer = [0; 5];
        client.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"hello");
        send(&mut peer, &both);
        assert_eq!(both.woken(), PORTS);
        assert_eq!(both.driver.turn().expect("a turn").received, 1);
    }
    client.write_all(b"hello").expect("a write");
    send(&mut peer, &both);
    assert_eq!(both.woken(), Woken::ALL);
    // What is left is told again.
    assert_eq!(both.woken(), Woken::ALL);
    assert_eq!((both.driver.turn().expect("a turn").received, both.look()), (1, 1));
}

#[test]
fn a_look_without_a_sleep_passes_over_ports() {
    let mut both = Loop::new();
    let mut client = both.connect();
    let mut peer = toy::port(V4, SegmentedSend::On);
    send(&mut peer, &both);
    assert_eq!((both.look(), both.look()), (0, 0));
    client.write_all(b"hello").expect("a write");
    assert_eq!(both.look(), 1);
    assert_eq!(both.driver.turn().expect("a turn").received, 1);
}

#[test]
fn a_time_and_another_thread_end_a_wait() {
    let mut both = Loop::new();
    let _client = both.connect();
    let began_at = Clock.now();
    let woken = both.wait(1_000_000);
    // Where the thread was descheduled for so long before it slept, it does not sleep and looks at
    // all.
    assert!(woken.own && Clock.now() >= began_at + 1_000_000, "{woken:?}");
    let (waker, told) = (both.driver.waker(), Arc::new(AtomicBool::new(false)));
    let (sleeps, slept) = mpsc::channel();
    let teller = std::thread::spawn({
        let told = told.clone();
        move || {
            for () in slept {
                told.store(true, Ordering::SeqCst);
                waker.wake();
            }
        }
    });
    for _ in 0..100 {
        sleeps.send(()).expect("the thread runs");
        let deadline = Clock.now() + PATIENCE_NS;
        while !told.swap(false, Ordering::SeqCst) {
            assert!(both.wait(PATIENCE_NS).own);
            assert!(Clock.now() < deadline, "it is not woken");
        }
    }
    drop(sleeps);
    teller.join().expect("the thread ends well");
}

#[test]
fn a_port_that_is_closed_after_it_was_ready_accepts_nobody() {
    let mut both = Loop::new();
    let address = both.streams.listen_address(both.listener).expect("an address");
    let _client = TcpStream::connect(address).expect("a connection");
    assert_eq!(both.woken(), OTHERS);
    both.streams.close_listeners();
    assert_eq!((both.look(), both.streams.len()), (0, 0));
}

fn send(peer: &mut UdpPort, both: &Loop) {
    peer.send(&Transmit::single(both.driver.port(0).local_address(), 2), b"hi");
}

const SLEEPY: Wait = Wait::Block { spin_ns: 0 };

const OTHERS: Woken = Woken { extra: true, own: false };

const PORTS: Woken = Woken { extra: false, own: true };
