//! Overhead of Redis: the p50 of a GET of 32 B at the module, over that of tailcut's own echo of as
//! many bytes, both polling, in alternating slices on the same two cores.
//!
//! `scripts/redis-module bench` runs it. The server that is not measured is stopped meanwhile.

#[path = "../tests/it/server.rs"]
mod server;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tailcut::{Client, ClientBuilder, ServerBuilder};
use tailcut_net::affinity;
use tailcut_net::clock::Clock;

use self::server::{RedisServer, line};

fn main() {
    if std::env::args().any(|argument| argument == ECHO) {
        return serve_echo();
    }
    // Servers inherit it.
    affinity::pin_to(0).expect("two cores");
    let program = std::env::var_os("TAILCUT_REDIS").unwrap_or_else(|| "redis-server".into());
    let words = "listen 127.0.0.1:0 polling yes";
    let redis = RedisServer::with_module(Path::new(&program), words, &[]);
    let (mut echo, echo_address) = start_echo();
    affinity::pin_to(1).expect("two cores");
    let value = "x".repeat(32);
    let module = connect(redis.address());
    module.call(&line(&format!("SET a {value}"))).expect("a reply");
    let bare = connect(echo_address);
    let (echo_process, redis_process) = (Pid::from_child(&echo), redis.process());
    signal(redis_process, Signal::STOP);
    let get = line("GET a");
    let rows: Vec<(f64, f64)> = (0..PAIRS)
        .map(|_| {
            let bare = p50_us(&bare, value.as_bytes());
            signal(echo_process, Signal::STOP);
            signal(redis_process, Signal::CONT);
            let module = p50_us(&module, &get);
            signal(redis_process, Signal::STOP);
            signal(echo_process, Signal::CONT);
            (bare, module)
        })
        .collect();
    signal(redis_process, Signal::CONT);
    echo.kill().expect("a process");
    echo.wait().expect("a status");
    let mut ratios: Vec<f64> = rows.iter().map(|(bare, module)| module / bare).collect();
    ratios.sort_by(f64::total_cmp);
    let at = |quarter: usize| ratios[(ratios.len() - 1) * quarter / 4];
    let median = |of: fn(&(f64, f64)) -> f64| {
        let mut values: Vec<f64> = rows.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    println!(
        "p50 of a GET of 32 B at the module over an echo, polling: {:.2} ({:.2}-{:.2}), {:.2} us over {:.2} us",
        at(2),
        at(1),
        at(3),
        median(|row| row.1),
        median(|row| row.0)
    );
}

fn connect(address: SocketAddr) -> Client {
    ClientBuilder::new()
        .busy_poll()
        .timeout(Duration::from_secs(10))
        .connect(address)
        .expect("a socket")
}

/// The median of a slice, whose first calls warm up.
fn p50_us(client: &Client, request: &[u8]) -> f64 {
    let clock = Clock;
    (0..WARM_UP).for_each(|_| drop(client.call(request).expect("a reply")));
    let end = clock.now() + SLICE_NS;
    let mut times = Vec::new();
    let mut start = clock.now();
    while start < end {
        drop(client.call(request).expect("a reply"));
        let now = clock.now();
        times.push(now - start);
        start = now;
    }
    times.sort_unstable();
    times[times.len() / 2] as f64 / 1e3
}

fn start_echo() -> (Child, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().expect("a path"))
        .arg(ECHO)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut address = String::new();
    let stdout = child.stdout.take().expect("a pipe");
    BufReader::new(stdout).read_line(&mut address).expect("an address");
    (child, address.trim().parse().expect("an address"))
}

fn serve_echo() {
    let mut server = ServerBuilder::new().busy_poll().bind("127.0.0.1:0").expect("a socket");
    println!("{}", server.local_address());
    let served = server.run(|request| {
        let bytes = request.bytes().to_vec();
        // A client that has gone needs no answer.
        let _ = request.reply(&bytes);
    });
    served.expect("a socket");
}

fn signal(process: Pid, signal: Signal) {
    kill_process(process, signal).expect("a process of ours");
}

/// Has this program serve an echo.
const ECHO: &str = "--serve-echo";

/// Pairs of slices.
const PAIRS: usize = 15;

/// Length of a slice.
const SLICE_NS: u64 = 100_000_000;

/// Calls before one is counted.
const WARM_UP: usize = 1_000;
