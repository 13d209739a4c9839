//! A client in C over one in Rust: the median round trip of a call of 32 bytes, both polling, to
//! the same server.
//!
//! `cargo bench -p tailcut-c` runs it. Slices of both alternate on the same two pinned cores; it
//! prints the median of the ratios with its quartiles. `TAILCUT_BENCH_QUICK=1` runs it briefly.

#[path = "../../net/benches/support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Barrier, OnceLock};

use support::{CLIENT_CORE, Plan, SERVER_CORE, compare, p50_us, print_head, shielded};
use tailcut::{ClientBuilder, ServerBuilder};
use tailcut_net::affinity;
use tailcut_net::clock::Clock;

fn main() {
    let plan = Plan { pairs: 15, slice_ns: 100_000_000 }.or_brief(3);
    program();
    print_head("Rust", "C");
    affinity::pin_to(CLIENT_CORE).expect("two cores");
    compare("C1 ping-pong 32 B, polling: p50", "us", &plan, (ping_rust, ping_c));
}

fn ping_rust(slice_ns: u64) -> f64 {
    with_server(|target| {
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
    })
}

fn ping_c(slice_ns: u64) -> f64 {
    with_server(|target| {
        // It inherits this thread's core and class.
        let output = Command::new(program())
            .args([target.to_string(), slice_ns.to_string()])
            .output()
            .expect("the program runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("text");
        text.trim().parse::<f64>().expect("nanoseconds") / 1e3
    })
}

/// The client in C, built against the library beside this bench.
fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let bench = std::env::current_exe().expect("this bench has a path");
        let library = bench.parent().expect("a directory");
        let program = library.join("tailcut-c-ping");
        let root = env!("CARGO_MANIFEST_DIR");
        let status = Command::new("cc")
            .args(["-O2", "-std=c11", "-D_POSIX_C_SOURCE=200809L"])
            .arg(format!("-I{root}/include"))
            .arg(format!("{root}/programs/ping.c"))
            .arg("-o")
            .arg(&program)
            .arg(format!("-L{}", library.display()))
            .arg(format!("-Wl,-rpath,{}", library.display()))
            .arg("-ltailcut_c")
            .status();
        assert!(status.expect("a compiler of C").success(), "the program is built");
        program
    })
}

/// An echo on the server's core while `client` runs here.
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
