//! `serve --workers`: threads behind one dispatcher, over every transport.

use std::time::Duration;

use tailcut::{Client, ClientBuilder, Protocol};
use tailcut_net::clock::Clock;

use crate::harness::{Admin, Service, assert_all_replied, measure, run, serve};

/// Longer than all that happens meanwhile.
const LONG_NS: u64 = 900_000_000;

/// Shorter by far, and longer than what comes between two calls.
const SHORT_NS: u64 = 10_000_000;

const SHORT_COUNT: usize = 6;

/// A server of `app` on workers, and its admin port.
fn started(app: &str, more: &[&str]) -> (Service, Admin) {
    let mut service = serve(app, &[more, &["--admin", "127.0.0.1:0"]].concat());
    let admin = service.admin();
    (service, admin)
}

fn client(target: &str, protocol: Protocol) -> Client {
    let builder = ClientBuilder::new().timeout(Duration::from_secs(20)).protocol(protocol);
    builder.connect(target).expect("a client")
}

/// Measures an app on two workers; gives the median latency, microseconds.
fn measured(served: &str, transport: &str, load: &str) -> f64 {
    let (server, admin) = started(served, &["--workers", "2", "--transport", transport]);
    let brief = ["--duration", "300ms", "--warmup", "100ms", "--rate", "100"];
    let load = ["--app", load, "--transport", transport];
    let result = measure(server.address(), &[&brief[..], &load].concat());
    assert_all_replied(&result);
    let dispatched = admin.value("tailcut_serve_dispatched_total");
    assert!(dispatched >= 20.0, "{transport}: {dispatched} by workers");
    server.signal("TERM");
    let (code, _, report) = server.wait();
    assert_eq!(code, Some(0), "{transport}: {report}");
    result["latency_us"]["actual"]["p50"].as_f64().expect("a median")
}

#[test]
fn workers_compute_behind_one_queue_over_every_transport() {
    for transport in ["r2p2", "homa", "udp", "tcp", "netclone"] {
        let p50_us = measured("spin", transport, "synthetic:fixed:200us");
        assert!(p50_us >= 200.0, "{transport}: {p50_us} us");
    }
}

#[test]
fn workers_echo_over_what_has_requests() {
    for transport in ["r2p2", "homa", "udp", "netclone"] {
        measured("echo", transport, "echo:64");
    }
}

/// The long call takes one worker, and some of the short ones are committed behind it before they
/// go to the other; then the server drains while the long one runs.
#[test]
fn a_short_call_never_waits_for_a_long_one_while_a_worker_is_idle() {
    for (transport, protocol) in [("r2p2", Protocol::R2p2), ("homa", Protocol::Homa)] {
        let more = ["--workers", "2", "--bound", "4", "--transport", transport];
        let (server, admin) = started("spin", &more);
        let client = client(server.address(), protocol);
        let long = client.start(&LONG_NS.to_be_bytes()).expect("a call");
        admin.wait_for("tailcut_serve_workers_busy", 1.0);
        let short = [(); SHORT_COUNT].map(|()| client.start(&SHORT_NS.to_be_bytes()));
        for call in short {
            let reply = call.expect("a call").wait().expect("a reply").to_vec();
            assert_eq!(reply, SHORT_NS.to_be_bytes());
        }
        assert_eq!(admin.value("tailcut_serve_outstanding"), 1.0, "{transport}: the long one runs");
        let by_worker = ["0", "1"].map(|worker| {
            admin.value(&format!("tailcut_serve_worker_outstanding{{worker=\"{worker}\"}}"))
        });
        assert_eq!(by_worker.iter().sum::<f64>(), 1.0, "{transport}: {by_worker:?}");
        let taken_back = admin.value("tailcut_serve_dispatch_taken_back_total");
        assert!(taken_back >= 1.0, "{transport}: some were committed to the busy worker");
        server.signal("TERM");
        assert_eq!(long.wait().expect("a reply").to_vec(), LONG_NS.to_be_bytes());
        let (code, _, report) = server.wait();
        assert_eq!(code, Some(0), "{transport}: {report}");
        assert!(report.contains("\ndispatcher: 2 workers, bound 4, hand-off "), "{report}");
    }
}

/// Two long calls and two workers, one of which the server has learned to keep from them.
#[test]
fn a_short_call_finds_the_worker_that_is_reserved_for_its_type() {
    for app in ["synthetic", "spin"] {
        let (server, _) = started(app, &["--workers", "2", "--types", "20ms", "--darc"]);
        let client = client(server.address(), Protocol::R2p2);
        let call = |service_ns: u64| client.start(&service_ns.to_be_bytes()).expect("a call");
        // Of the short ones the longest does not count, and the long one is so much longer that a
        // thread which others keep off its core for a while still tells them apart.
        for service_ns in [SHORT_NS, SHORT_NS, SHORT_NS, LONG_NS / 3] {
            call(service_ns).wait().expect("a reply");
        }
        let begun_at = Clock.now();
        let long = [LONG_NS; 2].map(call);
        call(SHORT_NS).wait().expect("a reply");
        let took_ns = Clock.now() - begun_at;
        assert!(took_ns < LONG_NS, "{app}: {took_ns} ns");
        for call in long {
            call.wait().expect("a reply");
        }
        let took_ns = Clock.now() - begun_at;
        assert!(took_ns >= 2 * LONG_NS, "{app}: one worker has both, {took_ns} ns");
        server.signal("TERM");
        let (code, _, report) = server.wait();
        assert_eq!(code, Some(0), "{app}: {report}");
        let (_, waited) = report.split_once("waited, by type:\n").expect("a table");
        let counts = waited.lines().map(|line| line.split_whitespace().rev().nth(3));
        let counts: Vec<_> = counts.skip(1).take(2).flatten().collect();
        assert_eq!(counts, ["4", "3"], "{app}: {report}");
    }
}

#[test]
fn layouts_have_queues_as_the_kernel_shares_clients() {
    for (layout, workers) in [("partitioned", "2"), ("grouped:2", "4")] {
        let (server, admin) = started("spin", &["--workers", workers, "--dispatch", layout]);
        let clients = [(); 24].map(|()| client(server.address(), Protocol::R2p2));
        for client in &clients {
            assert_eq!(client.call(&1_u64.to_be_bytes()).expect("a reply").len(), 8);
        }
        let dispatched = admin.value("tailcut_serve_dispatched_total");
        assert_eq!(dispatched, if layout == "partitioned" { 0.0 } else { 24.0 });
        server.signal("TERM");
        let (code, _, report) = server.wait();
        assert_eq!(code, Some(0), "{report}");
        let (_, shares) = report.split_once("requests by thread:\n").expect("shares");
        assert_eq!(shares.lines().filter(|line| !line.ends_with(" 0")).count(), 2, "{report}");
    }
}

/// A client whose call takes long keeps one of two threads, and all who come then are given the
/// other.
#[test]
fn new_clients_join_the_shortest_queue() {
    for (transport, protocol) in [("r2p2", Protocol::R2p2), ("homa", Protocol::Homa)] {
        let more = ["--workers=2", "--dispatch=partitioned:shortest", "--transport", transport];
        let listen = ["serve", "--listen", "127.0.0.1:0", "--app", "spin"];
        if !may_load_programs() {
            let ended = run(&[&listen[..], &more].concat());
            let stderr = String::from_utf8_lossy(&ended.stderr);
            assert!(stderr.contains("CAP_BPF"), "{stderr}");
            println!("SKIPPED: joining the shortest queue needs CAP_BPF and CAP_NET_ADMIN");
            return;
        }
        let (server, _) = started("spin", &more);
        let busy = client(server.address(), protocol);
        busy.call(&1_u64.to_be_bytes()).expect("a reply");
        let begun_at = Clock.now();
        let long = busy.start(&LONG_NS.to_be_bytes()).expect("a call");
        // Until the thread is at it.
        while Clock.now() < begun_at + LONG_NS / 9 {
            std::thread::yield_now();
        }
        for _ in 0..8 {
            let short = client(server.address(), protocol);
            assert_eq!(short.call(&1_u64.to_be_bytes()).expect("a reply").len(), 8);
        }
        let took_ns = Clock.now() - begun_at;
        assert!(took_ns < LONG_NS, "{transport}: a client waited, {took_ns} ns");
        assert_eq!(long.wait().expect("a reply").to_vec(), LONG_NS.to_be_bytes());
        server.signal("TERM");
        let (code, _, report) = server.wait();
        assert_eq!(code, Some(0), "{transport}: {report}");
    }
}

/// True if this process has CAP_BPF and CAP_NET_ADMIN.
fn may_load_programs() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("of Linux");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:\t"));
    let effective = effective.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let needed = 1_u64 << 39 | 1 << 12;
    effective.is_some_and(|effective| effective & needed == needed)
}

/// One of two workers has the long call, and the other pulls all short ones; then the server
/// drains.
#[test]
fn workers_that_pull_share_one_queue() {
    for (transport, protocol) in [("r2p2", Protocol::R2p2), ("homa", Protocol::Homa)] {
        let more = ["--workers", "2", "--dispatch", "shared-queue", "--transport", transport];
        let (server, admin) = started("spin", &more);
        let client = client(server.address(), protocol);
        let long = client.start(&(LONG_NS / 3).to_be_bytes()).expect("a call");
        admin.wait_for("tailcut_serve_workers_busy", 1.0);
        let short = [(); SHORT_COUNT].map(|()| client.start(&SHORT_NS.to_be_bytes()));
        for call in short {
            assert_eq!(call.expect("a call").wait().expect("a reply").len(), 8);
        }
        assert_eq!(admin.value("tailcut_serve_outstanding"), 1.0, "{transport}: the long one runs");
        assert_eq!(admin.value("tailcut_serve_dispatched_total"), 1.0 + SHORT_COUNT as f64);
        server.signal("TERM");
        assert_eq!(long.wait().expect("a reply").len(), 8);
        let (code, _, report) = server.wait();
        assert_eq!(code, Some(0), "{transport}: {report}");
    }
}

#[test]
fn workers_that_cannot_be_are_refused() {
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    for (more, hint) in [
        (&["--app", "spin", "--workers", "65"][..], "64 at most"),
        (&["--app", "synthetic", "--bound", "2"], "--bound"),
        (&["--app", "spin", "--workers", "2", "--worker-cores", "4096"], "no core 4096"),
        (&["--app", "synthetic", "--worker-spin", "1us"], "--worker-spin"),
        (&["--app", "spin", "--workers", "2", "--darc"], "--types"),
        (&["--app", "spin", "--workers", "2", "--types", "2us,1us"], "ascending"),
        (&["--app", "synthetic", "--types", "2us", "--transport", "udp"], "R2P2 or Homa"),
        (&["--app", "echo", "--workers", "2", "--types", "2us"], "synthetic, or spin"),
        (&["--app", "spin", "--workers", "4", "--dispatch", "grouped:3"], "shared evenly"),
        (&["--app", "spin", "--workers", "4", "--dispatch", "grouped:0"], "grouped:4"),
        (&["--app", "spin", "--dispatch", "partitioned"], "--workers"),
        (&["--app", "spin", "--dispatch", "shared-queue"], "--workers"),
        (&["--app", "spin", "--workers=2", "--dispatch=partitioned", "--transport=tcp"], "r2p2"),
        (&["--app", "spin", "--workers=2", "--dispatch=partitioned", "--ports=2"], "--ports"),
    ] {
        let ended = run(&[&serve[..], more].concat());
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && stderr.contains(hint), "{more:?}: {stderr}");
    }
}
