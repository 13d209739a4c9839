//! `--threads`: several loops in one process, which share an address, stop together and report as
//! one.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use tailcut::{Client, ClientBuilder, Error, Protocol};
use tailcut_proto::rpc::{DropReason, Failure};

use crate::harness::{
    Admin, Service, assert_all_replied, finish, measure, run, serve, start_measure, succeed,
};

/// So many sessions that threads without any are not to be seen.
const CLIENTS: usize = 24;

/// A service that outlives whatever a test does meanwhile, and ends within any drain.
const SERVICE_NS: u64 = 300_000_000;

fn client(target: &str, protocol: Protocol) -> Client {
    let builder = ClientBuilder::new().timeout(Duration::from_secs(20)).protocol(protocol);
    builder.connect(target).expect("a client")
}

/// Each thread's requests, from a report.
fn shares(report: &str) -> Vec<u64> {
    let (_, shares) = report.split_once("by thread:\n").expect("shares");
    let counts = shares.lines().filter_map(|line| line.split_whitespace().last()?.parse().ok());
    counts.collect()
}

/// Two threads, and their admin port.
fn started(args: &[&str]) -> (Service, Admin) {
    let more = ["--threads", "2", "--admin", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
    let mut service = Service::start(&[args, &more].concat(), 1);
    let admin = service.admin();
    (service, admin)
}

fn router(servers: &[&str], more: &[&str]) -> (Service, Admin) {
    let servers: Vec<&str> = servers.iter().flat_map(|address| ["--server", address]).collect();
    let patience = ["--hold", "30s", "--silent-after", "30s"];
    started(&[&["route"], &servers[..], &patience, more].concat())
}

fn assert_stopping(refused: Result<Vec<u8>, Error>) {
    let stopping = Failure::Refused(DropReason::Stopping);
    assert!(
        matches!(&refused, Err(Error::Failed { source, .. }) if *source == stopping),
        "{refused:?}"
    );
}

#[test]
fn threads_of_a_server_share_its_port_and_drain_together() {
    for (transport, protocol) in [("r2p2", Protocol::R2p2), ("homa", Protocol::Homa)] {
        let (server, admin) = started(&["serve", "--app", "synthetic", "--transport", transport]);
        let clients = [(); CLIENTS].map(|()| client(server.address(), protocol));
        for client in &clients {
            assert_eq!(client.call(&1_u64.to_be_bytes()).expect("a reply").len(), 8);
        }
        let requests = admin.value("tailcut_serve_requests_total");
        assert_eq!(requests, CLIENTS as f64, "{transport}");
        assert_eq!(admin.value("tailcut_serve_ports"), 1.0);
        // What runs in one thread keeps the other from ending: its clients are told.
        let call = clients[0].start(&SERVICE_NS.to_be_bytes()).expect("a call");
        admin.wait_for("tailcut_serve_requests_total", CLIENTS as f64 + 1.0);
        server.signal("TERM");
        admin.wait_for("tailcut_serve_draining", 1.0);
        for client in &clients[1..] {
            assert_stopping(client.call(&0_u64.to_be_bytes()).map(|reply| reply.to_vec()));
        }
        assert_eq!(call.wait().expect("a reply").to_vec(), SERVICE_NS.to_be_bytes());
        let (code, _, report) = server.wait();
        assert_eq!(code, Some(0), "{transport}: {report}");
        let shares = shares(&report);
        assert!(shares.len() == 2 && shares.iter().all(|&share| share > 0), "{report}");
    }
}

#[test]
fn threads_of_a_server_have_ports_of_their_own_where_there_are_so_many() {
    for transport in ["r2p2", "udp", "tcp"] {
        let args = ["serve", "--listen", "127.0.0.1:0", "--app", "synthetic"];
        let args = [&args[..], &["--transport", transport]].concat();
        let server = Service::start(&[&args[..], &["--threads", "2", "--ports", "3"]].concat(), 3);
        let targets: Vec<&str> =
            server.addresses[1..].iter().flat_map(|address| ["--target", address]).collect();
        let load = ["--app", "synthetic:fixed:10us", "--transport", transport, "--rate", "500"];
        let brief = ["--duration", "300ms", "--warmup", "0", "--connections", "3"];
        let more = [&targets[..], &load, &brief].concat();
        assert_all_replied(&measure(server.address(), &more));
        server.signal("TERM");
        let (code, _, report) = server.wait();
        assert_eq!(code, Some(0), "{report}");
        let (_, shares) = report.split_once("requests by port:\n").expect("shares");
        assert_eq!(shares.lines().filter(|line| !line.ends_with(" 0")).count(), 3, "{report}");
    }
}

#[test]
fn threads_of_a_router_place_and_drain_together() {
    let servers = [(); 2].map(|()| serve("synthetic", &["--workers", "8"]));
    let named = [servers[0].address(), servers[1].address()];
    let (router, admin) = router(&named, &[]);
    let clients = [(); CLIENTS].map(|()| client(router.address(), Protocol::R2p2));
    for client in &clients {
        assert_eq!(client.call(&1_u64.to_be_bytes()).expect("a reply").len(), 8);
    }
    // Feedback comes back to the threads that placed; a busy machine sends some requests again.
    let sum =
        |metric: &str| named.iter().map(|server| of_server(&admin, metric, server)).sum::<f64>();
    let is_settled = || {
        let placed = sum("placed_total");
        placed >= CLIENTS as f64 && sum("concluded_total") == placed
    };
    assert!((0..10_000).any(|_| is_settled()), "{}", admin.get("/metrics").1);
    let call = clients[0].start(&SERVICE_NS.to_be_bytes()).expect("a call");
    let is_out = || sum("outstanding_requests") == 1.0;
    assert!((0..10_000).any(|_| is_out()), "{}", admin.get("/metrics").1);
    router.signal("TERM");
    admin.wait_for("tailcut_route_draining", 1.0);
    for client in &clients[1..] {
        assert_stopping(client.call(&0_u64.to_be_bytes()).map(|reply| reply.to_vec()));
    }
    assert_eq!(call.wait().expect("a reply").to_vec(), SERVICE_NS.to_be_bytes());
    let (code, _, report) = router.wait();
    assert_eq!(code, Some(0), "{report}");
    let shares = shares(&report);
    assert!(shares.len() == 2 && shares.iter().all(|&share| share > 0), "{report}");
}

fn of_server(admin: &Admin, metric: &str, server: &str) -> f64 {
    admin.value(&format!("tailcut_route_server_{metric}{{server=\"{server}\"}}"))
}

/// Servers come and go by a file and by the control socket while both threads are loaded.
#[test]
fn threads_of_a_router_are_changed_together_under_load() {
    let servers = [(); 3].map(|()| serve("synthetic", &[]));
    let [first, second, third] = [0, 1, 2].map(|index| servers[index].address());
    let path = |name: &str| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let (file, control) = (path("threads-servers"), path("threads.sock"));
    fs::write(&file, format!("{first}\n")).expect("a file");
    let [file_name, control_name] = [&file, &control].map(|path| path.to_str().expect("a text"));
    let (router, admin) = router(&[], &["--servers", file_name, "--control", control_name]);
    let load = ["--app", "synthetic:exp:500us", "--rate", "500", "--connections", "8"];
    let time = ["--duration", "2s", "--warmup", "0"];
    let load = start_measure(router.address(), &[&load[..], &time].concat());
    admin.wait_for("tailcut_route_forwarded_total", 50.0);
    succeed(&["control", control_name, "add", second]);
    let is_in = |server: &str| {
        let sample = format!("server_state{{server=\"{server}\",state=\"in_service\"}}");
        admin.value(&format!("tailcut_route_{sample}")) == 1.0
    };
    assert!((0..10_000).any(|_| is_in(second)));
    fs::write(&file, format!("{third}\n")).expect("a file");
    router.signal("HUP");
    let is_gone = || !admin.get("/metrics").1.contains(first);
    assert!((0..10_000).any(|_| is_gone() && is_in(third)), "{}", admin.get("/metrics").1);
    assert_all_replied(&finish(load));
    let status = succeed(&["control", control_name, "status"]);
    assert!(status.contains(second) && !status.contains(first), "{status}");
    router.signal("TERM");
    let (code, _, report) = router.wait();
    assert_eq!(code, Some(0), "{report}");
    assert!(shares(&report).iter().all(|&share| share > 0), "{report}");
    assert!(!control.exists());
}

#[test]
fn a_drain_of_threads_under_load_loses_nothing_that_was_taken() {
    let servers = [(); 2].map(|()| serve("synthetic", &["--workers", "4"]));
    let named = [servers[0].address(), servers[1].address()];
    let (router, admin) = router(&named, &[]);
    let target = router.address().to_owned();
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let client = client(&target, Protocol::R2p2);
            // Calls until it is told that the router stops; returns how many were answered.
            thread::spawn(move || {
                for answered in 0_u32.. {
                    match client.call(&200_000_u64.to_be_bytes()) {
                        Ok(reply) => assert_eq!(reply.len(), 8),
                        Err(error) => {
                            assert_stopping(Err(error));
                            return answered;
                        }
                    }
                }
                0
            })
        })
        .collect();
    admin.wait_for("tailcut_route_forwarded_total", 200.0);
    router.signal("TERM");
    for caller in callers {
        assert!(caller.join().expect("no call fails otherwise") > 0);
    }
    let (code, _, report) = router.wait();
    assert_eq!(code, Some(0), "{report}");
}

#[test]
fn threads_that_cannot_keep_their_promises_are_refused() {
    let listen = ["--listen", "127.0.0.1:0", "--threads", "2"];
    let serve = [&["serve", "--app", "echo"], &listen[..]].concat();
    let route = [&["route", "--server", "127.0.0.1:9"], &listen[..]].concat();
    for (args, more, hint) in [
        (&serve, &["--transport", "tcp"][..], "--ports"),
        (&serve, &["--router", "127.0.0.1:9"], "--ports"),
        (&serve, &["--trace", "x.pcapng"], "--trace"),
        (&serve, &["--ports", "0"], "--ports"),
        (&route, &["--forward", "keep"], "--forward annotate"),
        (&route, &["--trace", "x.pcapng"], "--trace"),
    ] {
        let ended = run(&[args, more].concat());
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && stderr.contains(hint), "{more:?}: {stderr}");
    }
}
