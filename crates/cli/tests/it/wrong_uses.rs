//! Mistakes before the first number: each wrong use is told within seconds, its cause in the first
//! line, what would help in the second.

use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tailcut_net::clock::Clock;

use crate::harness::{free_port, run, serve};
use crate::servers::{memcached, nginx, redis};

/// A UDP socket that swallows what comes; closed and joined when dropped.
struct Swallower {
    address: String,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Swallower {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("an address").to_string();
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let mut bytes = [0; 2_048];
            while !seen.load(Ordering::Relaxed) {
                let _ = socket.recv(&mut bytes);
            }
        });
        Self { address, is_over, thread: Some(thread) }
    }
}

impl Drop for Swallower {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Measures so, and sees that the first line of what is said has all of these parts.
pub(crate) fn check(args: &[&str], parts: &[&str]) {
    let begun = Clock.now();
    let output = run(&[&["measure", "--rate", "1k"], args].concat());
    let took_s = (Clock.now() - begun) as f64 / 1e9;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
    let mut lines = stderr.lines();
    let first = lines.next().unwrap_or_default();
    for part in parts {
        assert!(first.contains(part), "{args:?}: {part:?} is not in {first:?}");
    }
    assert!(is_explained(first), "docs/reasons.md does not explain {first:?}");
    let second = lines.next().unwrap_or_default();
    assert!(second.starts_with("What would help: "), "{args:?}: {stderr}");
    assert_eq!(lines.next(), None, "{args:?}: {stderr}");
    println!("{took_s:.2} s: {first}");
    // A quiet machine takes less than two, whatever is wrong; a load would take ten at least.
    assert!(took_s < 8.0, "{args:?}: {took_s} s");
}

/// True if the book has a row for what a first line says.
fn is_explained(first: &str) -> bool {
    let page = include_str!("../../../../docs/reasons.md");
    let (_, section) = page.split_once("## When a run ends before it measures").expect("a section");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let mut texts = rows.flat_map(|cell| cell.split("`, `"));
    // Dots stand for what differs.
    texts.any(|text| {
        let mut parts = text.trim_end_matches('`').split("...");
        parts.all(|part| first.contains(part.trim()))
    })
}

#[test]
fn nothing_listens() {
    let port = free_port();
    check(&[&format!("redis://{port}")], &["nobody listens there", "over TCP"]);
    check(&[&format!("https://{port}"), "--insecure"], &["nobody listens there"]);
    for transport in ["udp", "r2p2", "homa"] {
        let url = format!("{transport}://{port}");
        check(&[&url, "--app", "echo:64"], &["nobody listens there", "over UDP", transport]);
    }
}

#[test]
fn another_protocol_than_redis_is_asked_of_redis() {
    let Some(server) = redis(&[]) else { return };
    let at = server.address;
    check(&[&format!("memcached://{at}")], &["speaks Redis", "asked for memcached-ascii"]);
    let binary = ["--app", "memcached-binary", "--transport", "tcp", "--target"];
    check(&[&binary[..], &[&at.to_string()]].concat(), &["speaks Redis", "memcached-binary"]);
    check(&[&format!("http://{at}")], &["speaks Redis", "asked for http"]);
    check(&[&format!("rediss://{at}"), "--insecure"], &["speaks Redis without TLS"]);
    check(&[&format!("r2p2://{at}"), "--app", "echo:64"], &["speaks Redis over TCP", "over r2p2"]);
    check(&[&format!("udp://{at}"), "--app", "echo:64"], &["speaks Redis over TCP", "over udp"]);
    check(&[&format!("tcp://{at}"), "--app", "echo:64"], &["speaks Redis", "asked for echo"]);
}

#[test]
fn another_protocol_is_asked_of_memcached() {
    let Some(server) = memcached() else { return };
    let at = server.address;
    check(&[&format!("redis://{at}")], &["speaks memcached", "asked for redis"]);
    check(&[&format!("http://{at}")], &["speaks memcached", "asked for http"]);
}

#[test]
fn another_protocol_is_asked_of_a_web_server() {
    let Some(server) = nginx(false) else { return };
    let at = server.address;
    check(&[&format!("redis://{at}")], &["speaks HTTP", "asked for redis"]);
    check(&[&format!("memcached://{at}")], &["speaks HTTP", "asked for memcached-ascii"]);
    check(&[&format!("https://{at}"), "--insecure"], &["speaks HTTP without TLS"]);
}

#[test]
fn tls_is_asked_without_it() {
    let Some(server) = nginx(true) else { return };
    let at = server.address;
    check(&[&format!("http://{at}")], &["speaks TLS", "asked for http without it"]);
    check(&[&format!("redis://{at}")], &["speaks TLS", "asked for redis without it"]);
    let shown = server.directory.join("shown.pem");
    let shown = shown.to_str().expect("a path");
    let own = serve("echo", &["--transport", "tls", "--self-signed", shown]);
    let url = format!("tcp://{}", own.address());
    check(&[&url, "--app", "echo:64"], &["speaks TLS", "asked for echo without it"]);
}

#[test]
fn a_certificate_is_not_to_be_relied_on() {
    let Some(server) = nginx(true) else { return };
    let at = server.address;
    check(&[&format!("https://{at}")], &["certificate of", "nobody that is trusted has signed it"]);
    let own = server.directory.join("cert.pem");
    let own = own.to_str().expect("a path");
    let args = [&format!("https://{at}"), "--ca", own, "--server-name", "example.com"];
    check(&args, &["certificate of", "it is for another name"]);
}

#[test]
fn a_page_is_not_there() {
    let Some(server) = nginx(false) else { return };
    let at = server.address;
    check(&[&format!("http://{at}/nope")], &["answers http with an error: HTTP/1.1 404 Not Found"]);
    check(&[&format!("http://{at}/forbidden")], &["asks for credentials: HTTP/1.1 403 Forbidden"]);
}

#[test]
fn a_store_is_empty() {
    if let Some(server) = redis(&[]) {
        let url = format!("redis://{}", server.address);
        check(&[&url], &["is empty", " of 20 keys are not there"]);
    }
    if let Some(server) = memcached() {
        let url = format!("memcached://{}", server.address);
        check(&[&url], &["is empty"]);
        check(&[&url, "--app", "memcached-binary:keys=100k"], &["is empty"]);
    }
}

#[test]
fn redis_wants_a_password() {
    let Some(server) = redis(&["--requirepass", "right"]) else { return };
    let at = server.address;
    check(&[&format!("redis://{at}")], &["asks for credentials: -NOAUTH"]);
    check(&[&format!("redis://:wrong@{at}")], &["refuses the login: -WRONGPASS"]);
}

#[test]
fn redis_does_not_know_the_command() {
    let Some(server) = redis(&[]) else { return };
    let url = format!("redis://{}", server.address);
    check(&[&url, "--app", "redis:command=GOT {key}"], &["with an error: -ERR unknown command"]);
}

#[test]
fn nothing_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = listener.local_addr().expect("an address");
    check(&[&format!("redis://{silent}")], &["does not answer redis"]);
    let swallower = Swallower::start();
    for transport in ["udp", "r2p2", "homa"] {
        let url = format!("{transport}://{}", swallower.address);
        check(&[&url, "--app", "echo:64"], &["does not answer echo"]);
    }
}

#[test]
fn the_load_begins_all_the_same_where_that_is_said() {
    let Some(server) = nginx(false) else { return };
    let url = format!("http://{}/nope", server.address);
    let short = ["--rate", "200", "--duration", "300ms", "--warmup", "100ms", "--no-probe"];
    let output = run(&[&["measure", &url], &short[..]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
}
