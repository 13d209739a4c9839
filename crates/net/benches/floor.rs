//! What the driver costs above the kernel: toy nodes over it against the bare loops of [`tailcut_net::bare`].
//!
//! `cargo bench -p tailcut-net` alternates slices of both on two pinned cores and prints the median and the quartiles of the
//! ratios. Absolute figures depend on the machine and the minute, ratios of neighbouring slices do not.

#[path = "../tests/toy/mod.rs"]
mod toy;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tailcut_net::affinity;
use tailcut_net::bare::{self, Load};
use tailcut_net::clock::Clock;
use tailcut_net::driver::{Driver, Wait};
use tailcut_net::udp::Coalescing;
use tailcut_proto::node::{Node, Path, TRAIN_BYTES_MAX, Time, Transmit};
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
    println!("{:<44} {:>10} {:>10} {:>7} {:>15} {:>8}", "", "bare", "driver", "ratio", "quartiles", "core-core");
    for (name, unit, bare, ours) in comparisons() {
        if wanted(name) {
            compare(name, unit, &plan, (bare, ours));
        }
    }
}

type Side = fn(u64) -> f64;

/// Name, unit, and both sides; a side runs for a slice and returns its figure.
fn comparisons() -> [(&'static str, &'static str, Side, Side); 7] {
    [
        ("bare against itself, polling", "us", bare_ping_spin, bare_ping_spin),
        ("ping-pong 32 B, polling: p50", "us", bare_ping_spin, |slice| our_ping(slice, Wait::BusyPoll)),
        ("ping-pong 32 B, blocking: p50", "us", bare_ping_blocking, |slice| our_ping(slice, Wait::Block { spin_ns: 0 })),
        ("the same, the driver spinning 20 us first", "us", bare_ping_blocking, |slice| our_ping(slice, Wait::default())),
        ("64 outstanding 32 B, a message each", "M/s", bare_batched, |slice| our_exchange(slice, Coalescing::Off)),
        ("64 outstanding 32 B, in trains", "M/s", bare_trains, |slice| our_exchange(slice, Coalescing::On)),
        ("stream of 1,024 B in trains of 56", "M/s", bare_stream, our_stream),
    ]
}

struct Plan {
    pairs: usize,
    slice_ns: u64,
}

fn compare(name: &str, unit: &str, plan: &Plan, (bare, ours): (Side, Side)) {
    let mut rows: Vec<(f64, f64)> = (0..plan.pairs).map(|_| (bare(plan.slice_ns), ours(plan.slice_ns))).collect();
    let core_to_core = core_round_trip();
    let (bare, ours) = (median(rows.iter().map(|row| row.0)), median(rows.iter().map(|row| row.1)));
    rows.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
    let ratio = |quarter: usize| rows[(rows.len() - 1) * quarter / 4].1 / rows[(rows.len() - 1) * quarter / 4].0;
    let quartiles = format!("{:.2}-{:.2}", ratio(1), ratio(3));
    println!("{name:<40} {unit:>3} {bare:>10.2} {ours:>10.2} {:>7.2} {quartiles:>15} {core_to_core:>6.2} us", ratio(2));
}

fn bare_ping_spin(slice_ns: u64) -> f64 {
    bare_ping(slice_ns, bare::echo_spin, bare::ping_spin)
}

fn bare_ping_blocking(slice_ns: u64) -> f64 {
    bare_ping(slice_ns, bare::echo_blocking, bare::ping_blocking)
}

fn bare_ping(
    slice_ns: u64,
    echo: fn(&UdpSocket, &AtomicBool) -> io::Result<()>,
    ping: fn(&UdpSocket, &[u8], u64, &mut Vec<u64>) -> io::Result<()>,
) -> f64 {
    with_bare(echo, |target| {
        let client = bare::bind(loopback()).expect("a socket");
        client.connect(target).expect("a connection");
        let mut round_trips = Vec::with_capacity(ROUND_TRIPS);
        ping(&client, &[1; 32], slice_ns, &mut round_trips).expect("the client's calls");
        p50_us(&mut round_trips)
    })
}

fn bare_batched(slice_ns: u64) -> f64 {
    bare_exchange(slice_ns, bare::echo_batched, bare::exchange_batched)
}

fn bare_trains(slice_ns: u64) -> f64 {
    bare_exchange(slice_ns, bare::echo_trains, bare::exchange_trains)
}

fn bare_exchange(
    slice_ns: u64,
    echo: fn(&UdpSocket, &AtomicBool) -> io::Result<()>,
    exchange: fn(&UdpSocket, &Load) -> io::Result<bare::Moved>,
) -> f64 {
    with_bare(echo, |target| {
        let client = gro_socket();
        let load = Load { target, payload_len: 32, outstanding: 64, slice_ns };
        exchange(&client, &load).expect("the client's calls").rate() / 1e6
    })
}

fn bare_stream(slice_ns: u64) -> f64 {
    let received = AtomicU64::new(0);
    let receive = |socket: &UdpSocket, stop: &AtomicBool| {
        let moved = bare::stream_receive(socket, stop)?;
        received.store((moved.rate() / 1e3) as u64, Ordering::Relaxed);
        Ok(())
    };
    with_bare(receive, |target| {
        let load = Load { target, payload_len: 1024, outstanding: STREAM_TRAIN, slice_ns };
        bare::stream_send(&gro_socket(), &load).expect("the sender's calls");
    });
    received.into_inner() as f64 / 1e3
}

fn our_ping(slice_ns: u64, wait: Wait) -> f64 {
    let server = toy::driver(V4, Echo::new(Coalescing::On), wait);
    with_driver(server, |target| {
        let mut pinger = Pinger::new(target, 32, 1, Coalescing::On);
        pinger.round_trips.reserve(ROUND_TRIPS);
        let mut client = toy::driver(V4, pinger, wait);
        run_for(&mut client, slice_ns);
        p50_us(&mut client.node_mut(0).round_trips)
    })
    .1
}

fn our_exchange(slice_ns: u64, coalescing: Coalescing) -> f64 {
    let driver = |node| {
        let mut driver = Driver::new(Wait::BusyPoll).expect("a driver");
        driver.add(node, toy::port(V4, coalescing), None);
        driver
    };
    with_driver(driver(Echo::new(coalescing)), |target| {
        let mut client = Driver::new(Wait::BusyPoll).expect("a driver");
        client.add(Pinger::new(target, 32, 64, coalescing), toy::port(V4, coalescing), None);
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

/// Runs `echo` on the server's core while `client` runs here.
fn with_bare<T>(echo: impl FnOnce(&UdpSocket, &AtomicBool) -> io::Result<()> + Send, client: impl FnOnce(SocketAddr) -> T) -> T {
    let server = gro_socket();
    let target = server.local_addr().expect("an address");
    let (stop, start) = (AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            start.wait();
            shielded(|| echo(&server, &stop))
        });
        start.wait();
        let result = shielded(|| client(target));
        stop.store(true, Ordering::Relaxed);
        // Ends the sleep of an echo that blocks.
        gro_socket().send_to(&[0], target).expect("a last datagram");
        thread.join().expect("the echo").expect("the echo's calls");
        result
    })
}

/// Runs a driver on the server's core while `client` runs here; returns both.
fn with_driver<N: Node + Send, T>(mut server: Driver<N>, client: impl FnOnce(SocketAddr) -> T) -> (Driver<N>, T) {
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

/// Keeps the rest of the machine away while a slice runs, where that is permitted.
fn shielded<T>(slice: impl FnOnce() -> T) -> T {
    let is_shielded = affinity::set_fifo(10).is_ok();
    let result = slice();
    if is_shielded {
        affinity::set_normal().expect("a class may be given back");
    }
    result
}

/// Sends trains without end.
struct Source {
    target: SocketAddr,
}

impl Node for Source {
    fn handle_datagram(&mut self, _now: Time, _path: Path, _bytes: &[u8]) {}

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, _buffer: &mut [u8]) -> Option<Transmit> {
        let len = STREAM_TRAIN * 1024;
        const { assert!(STREAM_TRAIN * 1024 <= TRAIN_BYTES_MAX) };
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
    fn handle_datagram(&mut self, now: Time, _path: Path, _bytes: &[u8]) {
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

fn gro_socket() -> UdpSocket {
    let socket = bare::bind(loopback()).expect("a socket");
    bare::set_gro(&socket).expect("a kernel with GRO");
    socket.set_nonblocking(true).expect("the option");
    socket
}

fn p50_us(round_trips: &mut [u64]) -> f64 {
    let middle = round_trips.len() / 2;
    *round_trips.select_nth_unstable(middle).1 as f64 / 1e3
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    let middle = figures.len() / 2;
    *figures.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// Microseconds there and back of a cache line between the two cores: tells whether the host has them near or far.
fn core_round_trip() -> f64 {
    let (there, back, start) = (AtomicU64::new(0), AtomicU64::new(0), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            start.wait();
            for round in 1..=CORE_ROUNDS {
                while there.load(Ordering::Acquire) < round {}
                back.store(round, Ordering::Release);
            }
        });
        start.wait();
        let began = Clock.now();
        for round in 1..=CORE_ROUNDS {
            there.store(round, Ordering::Release);
            while back.load(Ordering::Acquire) < round {}
        }
        (Clock.now() - began) as f64 / CORE_ROUNDS as f64 / 1e3
    })
}

fn loopback() -> SocketAddr {
    V4.parse().expect("an address")
}

const SERVER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;
const ROUND_TRIPS: usize = 100_000;
const STREAM_TRAIN: usize = 56;
const CORE_ROUNDS: u64 = 100_000;
