//! Parts that the benches share: the bare loops on two pinned cores, alternated with ours in short
//! slices, and the ratio's median and quartiles. Absolute figures depend on the machine and the
//! minute; ratios of neighbouring slices do not.

#![allow(dead_code, unreachable_pub, reason = "each bench uses its part")]

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tailcut_net::affinity;
use tailcut_net::clock::Clock;

use self::bare::Load;

pub mod bare;

/// Runs one side for a slice and returns its figure.
pub type Side = fn(u64) -> f64;

pub struct Plan {
    pub pairs: usize,
    pub slice_ns: u64,
}

impl Plan {
    /// The plan of a bench that is asked for; a test of it, or `TAILCUT_BENCH_QUICK`, takes `brief`
    /// pairs of short slices.
    pub fn or_brief(self, brief: usize) -> Self {
        if is_quick() { Self { pairs: brief, slice_ns: 20_000_000 } } else { self }
    }
}

/// True if each row is only to be run at all.
pub fn is_quick() -> bool {
    std::env::var_os("TAILCUT_BENCH_QUICK").is_some()
        || !std::env::args().any(|argument| argument == "--bench")
}

/// The heads of the columns that [`compare`] fills.
pub fn print_head(baseline: &str, ours: &str) {
    println!(
        "{:<44} {baseline:>10} {ours:>10} {:>7} {:>15} {:>8}",
        "", "ratio", "quartiles", "core-core"
    );
}

pub fn compare(name: &str, unit: &str, plan: &Plan, (bare, ours): (Side, Side)) {
    let mut rows: Vec<(f64, f64)> =
        (0..plan.pairs).map(|_| (bare(plan.slice_ns), ours(plan.slice_ns))).collect();
    let core_to_core = core_round_trip();
    let (bare, ours) = (median(rows.iter().map(|row| row.0)), median(rows.iter().map(|row| row.1)));
    rows.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
    let ratio = |quarter: usize| {
        rows[(rows.len() - 1) * quarter / 4].1 / rows[(rows.len() - 1) * quarter / 4].0
    };
    let quartiles = format!("{:.2}-{:.2}", ratio(1), ratio(3));
    println!(
        "{name:<40} {unit:>3} {bare:>10.2} {ours:>10.2} {:>7.2} {quartiles:>15} {core_to_core:>6.2} us",
        ratio(2)
    );
}

pub fn bare_ping_spin(slice_ns: u64) -> f64 {
    bare_ping(slice_ns, bare::echo_spin, bare::ping_spin)
}

/// Round trip of [`bare_ping_spin`] with these bytes.
pub fn bare_ping_spin_of(slice_ns: u64, payload: &[u8]) -> f64 {
    bare_ping_of(slice_ns, payload, (bare::echo_spin, bare::ping_spin))
}

pub fn bare_ping_blocking(slice_ns: u64) -> f64 {
    bare_ping(slice_ns, bare::echo_blocking, bare::ping_blocking)
}

/// Round trip of [`bare_ping_blocking`] with these bytes.
pub fn bare_ping_blocking_of(slice_ns: u64, payload: &[u8]) -> f64 {
    bare_ping_of(slice_ns, payload, (bare::echo_blocking, bare::ping_blocking))
}

pub type Echo = fn(&UdpSocket, &AtomicBool) -> io::Result<()>;
pub type Ping = fn(&UdpSocket, &[u8], u64, &mut Vec<u64>) -> io::Result<()>;

pub fn bare_ping(slice_ns: u64, echo: Echo, ping: Ping) -> f64 {
    bare_ping_of(slice_ns, &[1; 32], (echo, ping))
}

fn bare_ping_of(slice_ns: u64, payload: &[u8], (echo, ping): (Echo, Ping)) -> f64 {
    with_bare(echo, |target| {
        let client = bare::bind(loopback()).expect("a socket");
        client.connect(target).expect("a connection");
        let mut round_trips = Vec::with_capacity(ROUND_TRIPS);
        ping(&client, payload, slice_ns, &mut round_trips).expect("the client's calls");
        p50_us(&mut round_trips)
    })
}

pub fn bare_batched(slice_ns: u64) -> f64 {
    bare_exchange(slice_ns, bare::echo_batched, bare::exchange_batched)
}

pub fn bare_gso_batches(slice_ns: u64) -> f64 {
    bare_exchange(slice_ns, bare::echo_batches, bare::exchange_batches)
}

pub fn bare_exchange(
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

pub fn bare_stream(slice_ns: u64) -> f64 {
    let received = AtomicU64::new(0);
    let receive = |socket: &UdpSocket, stop: &AtomicBool| {
        let moved = bare::stream_receive(socket, stop)?;
        received.store((moved.rate() / 1e3) as u64, Ordering::Relaxed);
        Ok(())
    };
    with_bare(receive, |target| {
        let load = Load { target, payload_len: 1024, outstanding: STREAM_BATCH, slice_ns };
        bare::stream_send(&gro_socket(), &load).expect("the sender's calls");
    });
    received.into_inner() as f64 / 1e3
}

/// Runs `echo` on the server's core while `client` runs here.
pub fn with_bare<T>(
    echo: impl FnOnce(&UdpSocket, &AtomicBool) -> io::Result<()> + Send,
    client: impl FnOnce(SocketAddr) -> T,
) -> T {
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

/// Keeps the rest of the machine away while a slice runs, where that is permitted. Then it rests,
/// since Linux stops for 50 ms whoever is shielded for 950 ms of a second. Nobody looks at the
/// numbers of a quick run, which others run beside.
pub fn shielded<T>(slice: impl FnOnce() -> T) -> T {
    let is_shielded = !is_quick() && affinity::set_fifo(10).is_ok();
    let began = Clock.now();
    let result = slice();
    if is_shielded {
        affinity::set_normal().expect("a class may be given back");
        rest((Clock.now() - began) / 16);
    }
    result
}

/// Waits for so long.
pub fn rest(ns: u64) {
    let rested_at = Clock.now() + ns;
    while Clock.now() < rested_at {
        std::thread::park_timeout(Duration::from_nanos(ns));
    }
}

pub fn gro_socket() -> UdpSocket {
    let socket = bare::bind(loopback()).expect("a socket");
    bare::set_gro(&socket).expect("a kernel with GRO");
    socket.set_nonblocking(true).expect("the option");
    socket
}

pub fn p50_us(round_trips: &mut [u64]) -> f64 {
    let middle = round_trips.len() / 2;
    *round_trips.select_nth_unstable(middle).1 as f64 / 1e3
}

pub fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    let middle = figures.len() / 2;
    *figures.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// Microseconds there and back of a cache line between the two cores: tells whether the host has
/// them near or far.
pub fn core_round_trip() -> f64 {
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

pub fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub const SERVER_CORE: usize = 0;
pub const CLIENT_CORE: usize = 1;
pub const ROUND_TRIPS: usize = 100_000;
pub const STREAM_BATCH: usize = 56;
pub const CORE_ROUNDS: u64 = 100_000;
