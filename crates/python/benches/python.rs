//! Python's ends over Rust's: the median round trip of a call of 32 bytes, both ends polling.
//!
//! `cargo bench -p tailcut-python` runs it. Slices of both alternate on the same two pinned cores;
//! it prints the median of the ratios with its quartiles. `TAILCUT_BENCH_QUICK=1` runs it briefly.

#[path = "../tests/it/python.rs"]
mod python;
#[path = "../../net/benches/support/mod.rs"]
mod support;

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Barrier;

use python::Program;
use support::{CLIENT_CORE, Plan, SERVER_CORE, compare, p50_us, print_head, shielded};
use tailcut::{ClientBuilder, ServerBuilder};
use tailcut_net::affinity;
use tailcut_net::clock::Clock;

fn main() {
    let plan = Plan { pairs: 15, slice_ns: 100_000_000 }.or_brief(1);
    print_head("Rust", "Python");
    affinity::pin_to(CLIENT_CORE).expect("two cores");
    let rust = |slice_ns| with_server(|target| ping(target, slice_ns));
    compare("P1 ping-pong 32 B, polling: client's p50", "us", &plan, (rust, ping_by_python));
    compare("P2 ping-pong 32 B, polling: server's p50", "us", &plan, (rust, ping_python));
}

/// Calls of a client in Rust.
fn ping(target: SocketAddr, slice_ns: u64) -> f64 {
    let client = ClientBuilder::new().busy_poll().connect(target).expect("a client");
    let mut round_trips = Vec::with_capacity(1 << 20);
    let mut now = Clock.now();
    let end = now + slice_ns;
    while now < end {
        drop(client.call(&[1; 32]).expect("a reply"));
        let after = Clock.now();
        round_trips.push(after - now);
        now = after;
    }
    p50_us(&mut round_trips)
}

/// Calls of a client in Python, which inherits this thread's core and class.
fn ping_by_python(slice_ns: u64) -> f64 {
    with_server(|target| {
        let arguments = [target.to_string(), slice_ns.to_string()];
        let mut program = Program::start("ping.py", &arguments.each_ref().map(String::as_str));
        let said = program.line();
        program.end();
        said.parse::<f64>().expect("nanoseconds") / 1e3
    })
}

/// Calls of a client in Rust to a server in Python.
fn ping_python(slice_ns: u64) -> f64 {
    let server = std::thread::spawn(|| {
        affinity::pin_to(SERVER_CORE).expect("two cores");
        shielded(|| Program::start("polling_server.py", &[]))
    });
    let mut server = server.join().expect("the server starts");
    let address = server.line().to_socket_addrs().expect("an address").next().expect("one");
    let result = shielded(|| ping(address, slice_ns));
    server.interrupt();
    server.end();
    result
}

/// An echo in Rust on the server's core while `client` runs here.
fn with_server<T>(client: impl FnOnce(SocketAddr) -> T) -> T {
    let mut server = ServerBuilder::new().busy_poll().bind("127.0.0.1:0").expect("a server");
    let (target, stop, start) = (server.local_address(), server.stop_handle(), Barrier::new(2));
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            start.wait();
            shielded(|| {
                server.run(|request| {
                    // A client that has gone needs no answer.
                    let _ = request.reply_in_place(|_| ());
                })
            })
        });
        start.wait();
        let result = shielded(|| client(target));
        stop.stop();
        thread.join().expect("the server").expect("the server's calls");
        result
    })
}
