//! The load generator as users run it: what it costs on one core over the kernel's own floor, and
//! what it says of servers that stall; and what a server's logs and metrics cost it.
//!
//! `cargo bench -p tailcut-cli --bench instrument -- [ROW]` alternates a slice of the floor with a
//! run of `tailcut measure` and prints the median of the ratios with its quartiles. Rows that need
//! memcached, or NGINX and wrk, skip loudly where there is none. `TAILCUT_BENCH_QUICK=1` runs every
//! row briefly.

#[path = "../../../net/benches/support/mod.rs"]
mod support;

#[path = "../../tests/it/freezer.rs"]
mod freezer;

#[path = "../../../measure/tests/it/servers/port.rs"]
mod port;

mod observed;
mod programs;
mod stalls;

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use serde_json::Value;
use support::*;
use tailcut_measure::arrivals::{Arrivals, Process};
use tailcut_measure::generator::generator;
use tailcut_net::affinity;
use tailcut_net::clock::Clock;

use crate::observed::observed_rate;
use crate::programs::{memcached, nginx, wrk};

fn main() {
    let is_quick = std::env::var_os("TAILCUT_BENCH_QUICK").is_some()
        || !std::env::args().any(|argument| argument == "--bench");
    let (pairs, run_ms) = if is_quick { (1, 200) } else { (7, 1000) };
    let (unsteady_runs, time_max) = if is_quick { (1, "3s") } else { (20, "25s") };
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let is_wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    if is_wanted("stalls") {
        stalls::print_frozen(run_ms);
        stalls::print_unsteady(unsteady_runs, time_max);
    }
    affinity::pin_to(CLIENT_CORE).expect("two cores");
    println!(
        "{:<40} {:>3} {:>10} {:>10} {:>7} {:>15}",
        "", "", "floor", "tailcut", "ratio", "quartiles"
    );
    for (name, unit, row) in rows() {
        if is_wanted(name) {
            match row(pairs, run_ms) {
                Ok(pairs) => print(name, unit, &pairs),
                Err(missing) => println!("SKIPPED: {name}: {missing}"),
            }
        }
    }
}

/// Pairs of the floor's figure and tailcut's, or what is missing.
type Row = fn(usize, u64) -> Result<Vec<(f64, f64)>, String>;

fn rows() -> [(&'static str, &'static str, Row); 9] {
    [
        ("B10 UDP echo at 10 % load: p50", "us", echo_p50),
        ("B10 the same, of even gaps", "us", even_p50),
        ("B10 the same, of a bare open loop", "us", open_p50),
        ("B10 UDP echo: highest rate on schedule", "k/s", udp_rate),
        ("B10 that rate, of even gaps", "k/s", even_udp_rate),
        ("B10 that rate, of a bare open loop", "k/s", open_udp_rate),
        ("memcached, TCP, 64 connections: rate", "k/s", memcached_rate),
        ("HTTP, 64 connections: rate over wrk's", "k/s", http_rate),
        ("serve: logs and metrics on over off", "k/s", observed_rate),
    ]
}

fn print(name: &str, unit: &str, pairs: &[(f64, f64)]) {
    let mut ratios: Vec<f64> = pairs.iter().map(|(floor, ours)| ours / floor).collect();
    ratios.sort_by(f64::total_cmp);
    let quarter = |quarter: usize| ratios[(ratios.len() - 1) * quarter / 4];
    let quartiles = format!("{:.2}-{:.2}", quarter(1), quarter(3));
    let (floor, ours) =
        (median(pairs.iter().map(|pair| pair.0)), median(pairs.iter().map(|pair| pair.1)));
    println!("{name:<40} {unit:>3} {floor:>10.2} {ours:>10.2} {:>7.2} {quartiles:>15}", quarter(2));
}

/// Both polling, against an echo that polls; a fifth of the requests meets another one.
fn echo_p50(pairs: usize, _: u64) -> Result<Vec<(f64, f64)>, String> {
    p50_over_bare(pairs, "poisson")
}

/// The client's own share: no request meets another one.
fn even_p50(pairs: usize, _: u64) -> Result<Vec<(f64, f64)>, String> {
    p50_over_bare(pairs, "fixed")
}

fn p50_over_bare(pairs: usize, arrivals: &str) -> Result<Vec<(f64, f64)>, String> {
    let rate = (0.1 * bare_batched(SLICE_NS) * 1e6).to_string();
    let pair = |_| {
        let floor = bare_ping_spin(SLICE_NS);
        let load = ["--rate", &rate, "--arrivals", arrivals];
        let ours = with_bare(bare::echo_spin, |target| measure(target, &load, &ECHO, SHORT_RUN_MS));
        (floor, number(&ours, "/latency_us/intended/p50"))
    };
    Ok((0..pairs).map(pair).collect())
}

/// p50 of a bare open loop with the same gaps over the bare ping-pong: the part of the load itself.
fn open_p50(pairs: usize, _: u64) -> Result<Vec<(f64, f64)>, String> {
    let rate_per_s = 0.1 * bare_batched(SLICE_NS) * 1e6;
    let open = |pair: usize| {
        let round_trips =
            with_bare(bare::echo_spin, |target| open_loop(target, rate_per_s, pair as u64));
        p50_us(
            &mut round_trips.into_iter().map(|(intended_ns, _)| intended_ns).collect::<Vec<u64>>(),
        )
    };
    Ok((0..pairs).map(|pair| (bare_ping_spin(SLICE_NS), open(pair))).collect())
}

/// Times from intended and from actual sends to replies, ns, of a Poisson load by a loop that does
/// nothing else.
fn open_loop(target: SocketAddr, rate_per_s: f64, seed: u64) -> Vec<(u64, u64)> {
    let mut arrivals =
        Arrivals::new(Process::Poisson, rate_per_s, generator(seed, 0)).expect("a rate");
    let client = bare::bind(loopback()).expect("a socket");
    client.connect(target).expect("a connection");
    client.set_nonblocking(true).expect("the option");
    let (start, mut round_trips, mut in_flight) = (Clock.now(), Vec::with_capacity(ROUND_TRIPS), 0);
    let mut next_ns = arrivals.next_ns();
    let (mut request, mut reply) = ([1; 32], [0; 32]);
    while next_ns < SLICE_NS || in_flight > 0 {
        let now_ns = Clock.now() - start;
        if next_ns < SLICE_NS.min(now_ns) {
            request[..8].copy_from_slice(&next_ns.to_ne_bytes());
            request[8..16].copy_from_slice(&now_ns.to_ne_bytes());
            client.send(&request).expect("a send");
            (in_flight, next_ns) = (in_flight + 1, arrivals.next_ns());
        }
        if in_flight > 0 && client.recv(&mut reply).is_ok() {
            let since = |at: usize| {
                reply[at..]
                    .first_chunk()
                    .map_or(0, |bytes| Clock.now() - start - u64::from_ne_bytes(*bytes))
            };
            round_trips.push((since(0), since(8)));
            in_flight -= 1;
        }
        // A datagram that is lost, at rates beyond what the host can do, is not waited for.
        if now_ns > 2 * SLICE_NS {
            break;
        }
    }
    round_trips
}

/// The highest share of what a bare loop exchanges at which requests still leave on time. At random
/// gaps requests queue before a sender that is busy for most of the time, however fast it is.
fn udp_rate(pairs: usize, _: u64) -> Result<Vec<(f64, f64)>, String> {
    rate_over_bare(pairs, "poisson")
}

/// Highest share at even gaps: the limit of the sender itself.
fn even_udp_rate(pairs: usize, _: u64) -> Result<Vec<(f64, f64)>, String> {
    rate_over_bare(pairs, "fixed")
}

/// Highest share of a bare open loop on this machine, by the same rule.
fn open_udp_rate(pairs: usize, _: u64) -> Result<Vec<(f64, f64)>, String> {
    let late_us = |rate_per_s| {
        let round_trips = with_bare(bare::echo_batched, |target| open_loop(target, rate_per_s, 1));
        let p99_us = |times: Vec<u64>| {
            let mut times = times;
            times.sort_unstable();
            times.get(times.len() * 99 / 100).map_or(f64::INFINITY, |&ns| ns as f64 / 1e3)
        };
        let (intended, actual) = round_trips.into_iter().unzip();
        p99_us(intended) - p99_us(actual)
    };
    Ok((0..pairs).map(|_| kept_over_bare(pairs, late_us)).collect())
}

fn rate_over_bare(pairs: usize, arrivals: &str) -> Result<Vec<(f64, f64)>, String> {
    let late_us = |rate_per_s: f64| {
        let load = ["--rate", &rate_per_s.to_string(), "--arrivals", arrivals];
        let ours =
            with_bare(bare::echo_batched, |target| measure(target, &load, &ECHO, CLEAN_RUN_MS));
        let late_us =
            number(&ours, "/latency_us/intended/p99") - number(&ours, "/latency_us/actual/p99");
        if ours["counts"]["replied"] == ours["counts"]["sent"] { late_us } else { f64::INFINITY }
    };
    Ok((0..pairs).map(|_| kept_over_bare(pairs, late_us)).collect())
}

/// Rate of a bare loop, k/s, and the highest part of it at which `late_us`, by which the p99 is
/// late, is small. A brief bench, of one pair, tries each share once.
fn kept_over_bare(pairs: usize, late_us: impl Fn(f64) -> f64) -> (f64, f64) {
    let attempts = pairs.min(ATTEMPTS);
    let floor = bare_batched(SLICE_NS) * 1e3;
    // A stall of the machine is a thousand requests late, and says nothing of the client.
    let is_kept = |share: &f64| (0..attempts).any(|_| late_us(share * floor * 1e3) <= 10.0);
    let kept = (1..=10).rev().map(|tenths| f64::from(tenths) / 10.0).find(is_kept).unwrap_or(0.0);
    (floor, kept * floor)
}

/// Its floor is a bare exchange of datagrams: what this machine does at all.
fn memcached_rate(pairs: usize, run_ms: u64) -> Result<Vec<(f64, f64)>, String> {
    let server = memcached()?;
    let pair = |_| {
        let floor = bare_batched(SLICE_NS) * 1e3;
        let load = [
            "--transport",
            "tcp",
            "--app",
            "memcached-binary",
            "--preload",
            "--connections",
            "64",
            "--outstanding",
            "64",
        ];
        (floor, rate(&measure(server.address, &[], &load, run_ms)))
    };
    Ok((0..pairs).map(pair).collect())
}

fn http_rate(pairs: usize, run_ms: u64) -> Result<Vec<(f64, f64)>, String> {
    let server = nginx()?;
    let pair = |_| {
        let load =
            ["--transport", "tcp", "--app", "http", "--connections", "64", "--outstanding", "64"];
        Ok((wrk(server.address, run_ms)?, rate(&measure(server.address, &[], &load, run_ms))))
    };
    (0..pairs).map(pair).collect()
}

/// A run of a given length; whether its result can be relied on is not asked here.
fn measure(target: SocketAddr, load: &[&str], app: &[&str], run_ms: u64) -> Value {
    let duration = format!("{run_ms}ms");
    run(target, &[app, load, &["--busy-poll", "--warmup", "1ms", "--duration", &duration]].concat())
}

/// A run of the command on the cores of this thread.
fn run(target: SocketAddr, load: &[&str]) -> Value {
    // A run that does not end is killed: it may have real-time priority.
    let output = Command::new("timeout")
        .args(["-s", "KILL", "120", env!("CARGO_BIN_EXE_tailcut"), "measure"])
        .args(["--target", &target.to_string(), "--seed", "1", "--json", "-"])
        .args(load)
        .stdin(Stdio::null())
        .output()
        .expect("the binary starts");
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no result: {}", said()))
}

/// Thousands of replies a second.
fn rate(result: &Value) -> f64 {
    number(result, "/rate_per_s/achieved") / 1e3
}

fn number(result: &Value, path: &str) -> f64 {
    result.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

const ECHO: [&str; 4] = ["--transport", "udp", "--app", "echo:32"];
const SLICE_NS: u64 = 100_000_000;
const ATTEMPTS: usize = 5;
/// Short enough that some runs meet no stall.
const CLEAN_RUN_MS: u64 = 100;
/// The kernel stops real-time threads for 50 ms of every second; a run is over before.
const SHORT_RUN_MS: u64 = 300;
