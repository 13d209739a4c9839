//! Servers that stall or change: what the command says of them.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tailcut_net::clock::Clock;

use super::freezer::Freezer;
use super::{measure, number};

/// Prints the p99 of a server that is frozen for 100 ms in every second, which is 90 ms, by
/// connections.
pub(crate) fn print_frozen(run_ms: u64) {
    for (transport, connections) in
        [("tcp", "1"), ("tcp", "16"), ("tcp", "128"), ("tcp", "2048"), ("udp", "1")]
    {
        let server = Server::start(transport);
        let freezer =
            Freezer::start(server.child.id(), Duration::from_secs(1), Duration::from_millis(100));
        let load = ["--rate", "10000", "--connections", connections];
        let result = measure(
            server.address,
            &load,
            &["--transport", transport, "--app", "echo:32"],
            run_ms * 10,
        );
        drop(freezer);
        let p99_ms = number(&result, "/latency_us/intended/p99") / 1e3;
        let name = format!("frozen 100 ms in 1 s, {transport}, {connections}: p99");
        println!("{name:<40}  ms {:>10.2} {p99_ms:>10.2}  {}", 90.0, verdict(&result));
    }
}

/// Prints how many of `runs` runs were called trustworthy before a server that pauses for 1
/// s in 10, and before one whose service grows by a twentieth a second. A run chooses its own
/// length, up to `time_max`: 25 s have two of the pauses.
pub(crate) fn print_unsteady(runs: u32, time_max: &str) {
    let corrected = |target| corrected(target, time_max);
    let server = Server::start("udp");
    let freezer =
        Freezer::start(server.child.id(), Duration::from_secs(10), Duration::from_secs(1));
    let pausing: Vec<Value> = (0..runs).map(|_| corrected(server.address)).collect();
    drop(freezer);
    print_share("paused 1 s in 10 s: trustworthy", &pausing);
    let drifting: Vec<Value> = (0..runs).map(|_| with_drifting(corrected)).collect();
    print_share("service grows 5 % a second: trustworthy", &drifting);
}

fn print_share(name: &str, results: &[Value]) {
    let ok = results.iter().filter(|result| is_ok(result)).count();
    println!(
        "{name:<40} {:>3} {:>10} {ok:>10}  {}",
        "",
        format!("of {}", results.len()),
        results.first().map_or(String::new(), verdict)
    );
}

fn corrected(target: SocketAddr, time_max: &str) -> Value {
    super::run(
        target,
        &["--transport", "udp", "--app", "echo:32", "--rate", "5000", "--time-max", time_max],
    )
}

/// Runs `load` against an echo that takes 40 us for a reply at first.
fn with_drifting(load: impl FnOnce(SocketAddr) -> Value) -> Value {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let target = socket.local_addr().expect("an address");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("the option");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (started, mut buffer) = (Clock.now(), [0; 2048]);
            while !stop.load(Ordering::Relaxed) {
                let Ok((len, peer)) = socket.recv_from(&mut buffer) else { continue };
                let now = Clock.now();
                let service_ns = 40_000.0 * (1.0 + 0.05 * (now - started) as f64 / 1e9);
                while Clock.now() < now + service_ns as u64 {}
                // The load may have ended.
                let _ = socket.send_to(&buffer[..len], peer);
            }
        });
        let result = load(target);
        stop.store(true, Ordering::Relaxed);
        result
    })
}

fn is_ok(result: &Value) -> bool {
    result["verdict"]["trustworthy"] == Value::Bool(true)
}

fn verdict(result: &Value) -> String {
    let reasons = result["verdict"]["reasons"].as_array();
    let names = reasons.into_iter().flatten().filter_map(|reason| reason["name"].as_str());
    if is_ok(result) {
        "trustworthy".to_owned()
    } else {
        format!("not trustworthy: {}", names.collect::<Vec<_>>().join(", "))
    }
}

/// A `tailcut serve` of an echo on one port, ended when this is dropped.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(transport: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tailcut"));
        command.args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--transport",
            transport,
            "--app",
            "echo",
        ]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the binary starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped"))
            .read_line(&mut line)
            .expect("it is text");
        let address =
            line.trim_end().strip_prefix("listening ").and_then(|address| address.parse().ok());
        Self { child, address: address.expect("it listens") }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
