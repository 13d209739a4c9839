//! Servers that stall: the tail is in the result, or the result says that it cannot be relied on.

use std::time::Duration;

use serde_json::Value;

use crate::freezer::Freezer;
use crate::harness::{Service, measure};

/// Frozen for the last 100 ms of each second, a server delays a tenth of an open loop's requests,
/// evenly up to 100 ms: the p99 is 90 ms. A tool that waits for replies before it sends shows a p99
/// of a fraction of a millisecond.
fn check_freezing(transport: &str, connections: &str) {
    let server = Service::start(
        &["serve", "--listen", "127.0.0.1:0", "--transport", transport, "--app", "echo"],
        1,
    );
    let freezer = Freezer::start(server.pid(), Duration::from_secs(1), Duration::from_millis(100));
    let load =
        ["--rate", "2000", "--duration", "3s", "--warmup", "200ms", "--connections", connections];
    let result = measure(
        server.address(),
        &[&["--transport", transport, "--app", "echo:32"][..], &load].concat(),
    );
    drop(freezer);
    let p99_us = result["latency_us"]["intended"]["p99"].as_f64().expect("enough samples");
    // A machine that is busy delays more, never less.
    assert!(
        (70_000.0..300_000.0).contains(&p99_us),
        "{transport}, {connections} connections: p99 {p99_us} us"
    );
    let is_off = !(85_000.0..=95_000.0).contains(&p99_us);
    let is_said = result["verdict"]["trustworthy"] == Value::Bool(false);
    assert!(
        !is_off || is_said,
        "{transport}, {connections} connections: p99 {p99_us} us: {}",
        result["verdict"]
    );
}

/// A server that is stopped (SIGSTOP) for most of a second is said to have been silent, whatever
/// else came of it.
#[test]
fn a_server_that_was_stopped_is_told() {
    let server = Service::start(
        &["serve", "--listen", "127.0.0.1:0", "--transport", "tcp", "--app", "echo"],
        1,
    );
    let freezer = Freezer::start(server.pid(), Duration::from_secs(2), Duration::from_millis(700));
    let load = ["--transport", "tcp", "--app", "echo:32", "--rate", "1000", "--duration", "3s"];
    let result = measure(server.address(), &[&load[..], &["--warmup", "200ms"]].concat());
    drop(freezer);
    let reasons = result["verdict"]["reasons"].as_array().expect("a list");
    let silent = reasons.iter().find(|reason| reason["name"] == "server_silent");
    let what = silent.and_then(|reason| reason["what"].as_str()).unwrap_or_default();
    assert!(what.starts_with("no reply came for "), "{}", result["verdict"]);
}

#[test]
fn a_freeze_is_seen_by_one_connection() {
    check_freezing("tcp", "1");
}

#[test]
fn a_freeze_is_seen_by_many_connections() {
    check_freezing("tcp", "128");
}

#[test]
fn a_freeze_is_seen_by_thousands_of_connections() {
    check_freezing("tcp", "2048");
}

#[test]
fn a_freeze_is_seen_over_datagrams() {
    check_freezing("udp", "1");
}
