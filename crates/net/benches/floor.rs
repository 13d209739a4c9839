//! Cost of the driver above the kernel: toy nodes over it against the bare loops of
//! [`support::bare`].
//!
//! `cargo bench -p tailcut-net` alternates slices of both on two pinned cores and prints the median
//! and the quartiles of the ratios. Absolute figures depend on the machine and the minute, ratios
//! of neighbouring slices do not.

#[path = "../tests/it/toy/mod.rs"]
mod toy;

mod support;

use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use support::*;
use tailcut_net::affinity;
use tailcut_net::clock::Clock;
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::{Driver, Wait};
use tailcut_net::udp::SegmentedSend;
use tailcut_proto::node::{GSO_BYTES_MAX, Node, Path, Time, Transmit};
use toy::{Echo, Pinger, V4};

fn main() {
    // `cargo test` runs benches too, to see that they run.
    let plan = if std::env::args().any(|argument| argument == "--bench") {
        Plan { pairs: 15, slice_ns: 100_000_000 }
    } else {
        Plan { pairs: 1, slice_ns: 2_000_000 }
    };
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    affinity::pin_to(CLIENT_CORE).expect("two cores");
    let wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    print_head("bare", "driver");
    for (name, unit, bare, ours) in comparisons() {
        if wanted(name) {
            compare(name, unit, &plan, (bare, ours));
        }
    }
}

/// Name, unit, and both sides.
fn comparisons() -> [(&'static str, &'static str, Side, Side); 7] {
    [
        ("bare against itself, polling", "us", bare_ping_spin, bare_ping_spin),
        ("ping-pong 32 B, polling: p50", "us", bare_ping_spin, |slice| {
            our_ping(slice, Wait::BusyPoll)
        }),
        ("ping-pong 32 B, blocking: p50", "us", bare_ping_blocking, |slice| {
            our_ping(slice, Wait::Block { spin_ns: 0 })
        }),
        ("the same, the driver spinning 50 us first", "us", bare_ping_blocking, |slice| {
            our_ping(slice, Wait::default())
        }),
        ("64 outstanding 32 B, a message each", "M/s", bare_batched, |slice| {
            our_exchange(slice, SegmentedSend::Off)
        }),
        ("64 outstanding 32 B, in GSO batches", "M/s", bare_gso_batches, |slice| {
            our_exchange(slice, SegmentedSend::On)
        }),
        ("stream of 1,024 B in GSO batches of 56", "M/s", bare_stream, our_stream),
    ]
}

fn our_ping(slice_ns: u64, wait: Wait) -> f64 {
    let server = toy::driver(V4, Echo::new(SegmentedSend::On), wait);
    with_driver(server, |target| {
        let mut pinger = Pinger::new(target, 32, 1, SegmentedSend::On);
        pinger.round_trips.reserve(ROUND_TRIPS);
        let mut client = toy::driver(V4, pinger, wait);
        run_for(&mut client, slice_ns);
        p50_us(&mut client.node_mut(0).round_trips)
    })
    .1
}

fn our_exchange(slice_ns: u64, segmented_send: SegmentedSend) -> f64 {
    let driver = |node| {
        let mut driver = Driver::new(Wait::BusyPoll).expect("a driver");
        driver.add(node, toy::port(V4, segmented_send), None);
        driver
    };
    with_driver(driver(Echo::new(segmented_send)), |target| {
        let mut client = Driver::new(Wait::BusyPoll).expect("a driver");
        client.add(
            Pinger::new(target, 32, 64, segmented_send),
            toy::port(V4, segmented_send),
            None,
        );
        let elapsed_ns = run_for(&mut client, slice_ns);
        client.node(0).completed as f64 * 1e3 / elapsed_ns as f64
    })
    .1
}

fn our_stream(slice_ns: u64) -> f64 {
    let sink = toy::driver(V4, Sink { received: 0, first: None, last: 0 }, Wait::BusyPoll);
    let (sink, ()) = with_driver(sink, |target| {
        run_for(&mut toy::driver(V4, Source { target }, Wait::BusyPoll), slice_ns);
    });
    let sink = sink.node(0);
    sink.received as f64 * 1e3 / (sink.last - sink.first.unwrap_or(0)) as f64
}

/// Runs a driver on the server's core while `client` runs here; returns both.
fn with_driver<N: Node + Send, T>(
    mut server: Driver<N>,
    client: impl FnOnce(SocketAddr) -> T,
) -> (Driver<N>, T) {
    let target = server.port(0).local_address();
    let waker = server.waker();
    let (stop, start) = (AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            start.wait();
            shielded(|| {
                while !stop.load(Ordering::Relaxed) {
                    server.turn().expect("a turn");
                    server.wait(None, None).expect("a sleep");
                }
            });
            server
        });
        start.wait();
        let result = shielded(|| client(target));
        stop.store(true, Ordering::Relaxed);
        waker.wake();
        (thread.join().expect("the server"), result)
    })
}

/// Turns for a slice; returns how long it was.
fn run_for<N: Node>(driver: &mut Driver<N>, slice_ns: u64) -> u64 {
    let start = Clock.now();
    loop {
        let elapsed_ns = driver.turn().expect("a turn").now.saturating_sub(start);
        if elapsed_ns >= slice_ns {
            return elapsed_ns;
        }
        driver.wait(None, None).expect("a sleep");
    }
}

/// Sends GSO batches without end.
struct Source {
    target: SocketAddr,
}

impl Node for Source {
    fn handle_datagram(&mut self, _now: Time, _path: Path, _bytes: &mut [u8]) {}

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, _buffer: &mut [u8]) -> Option<Transmit> {
        let len = STREAM_BATCH * 1024;
        const { assert!(STREAM_BATCH * 1024 <= GSO_BYTES_MAX) };
        Some(Transmit { segment_len: 1024, ..Transmit::single(self.target, len) })
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}

/// Counts datagrams.
struct Sink {
    received: u64,
    first: Option<Time>,
    last: Time,
}

impl Node for Sink {
    #[inline]
    fn handle_datagram(&mut self, now: Time, _path: Path, _bytes: &mut [u8]) {
        self.received += 1;
        self.first = self.first.or(Some(now));
        self.last = now;
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, _buffer: &mut [u8]) -> Option<Transmit> {
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}
