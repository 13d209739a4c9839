//! Effects of signals on a serving command: it drains, ends, reloads, and nothing that it has taken
//! is lost.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use tailcut::{Client, ClientBuilder, Error, Protocol};
use tailcut_proto::rpc::{DropReason, Failure};

use crate::harness::{Admin, Service, assert_all_replied, finish, run, serve, start_measure};

/// A service that outlives whatever a test does meanwhile, and ends within any drain.
const SERVICE_NS: u64 = 300_000_000;

fn client(target: &str) -> Client {
    ClientBuilder::new().timeout(Duration::from_secs(20)).connect(target).expect("a client")
}

/// A server of emulated services, and its admin port.
fn synthetic(transport: &str, more: &[&str]) -> (Service, Admin) {
    served("synthetic", transport, more)
}

fn served(app: &str, transport: &str, more: &[&str]) -> (Service, Admin) {
    let args = [&["--transport", transport, "--admin", "127.0.0.1:0"], more].concat();
    let mut server = serve(app, &args);
    let admin = server.admin();
    (server, admin)
}

#[test]
fn a_drained_server_answers_what_it_has_and_refuses_what_is_new() {
    for signal in ["TERM", "INT"] {
        let (server, admin) = synthetic("r2p2", &[]);
        let address = server.address().to_owned();
        let asked = address.clone();
        let call = thread::spawn(move || {
            client(&asked).call(&SERVICE_NS.to_be_bytes()).map(|reply| reply.to_vec())
        });
        admin.wait_for("tailcut_serve_requests_total", 1.0);
        assert_eq!(admin.get("/readyz").0, 200);
        server.signal(signal);
        // It is told by the server, and not by the lack of one.
        admin.wait_for("tailcut_serve_draining", 1.0);
        assert_eq!(admin.get("/readyz"), (503, "draining\n".to_owned()));
        // The loop hears of the signal a little later, and answers what comes before.
        let refused = (0..100)
            .map(|_| client(&address).call(&0_u64.to_be_bytes()).map(|reply| reply.to_vec()))
            .find(Result::is_err)
            .expect("a call that comes late is refused");
        let stopping = Failure::Refused(DropReason::Stopping);
        assert!(
            matches!(&refused, Err(Error::Failed { source: failure, .. }) if *failure == stopping),
            "{refused:?}"
        );
        let reply = call.join().expect("the call");
        assert_eq!(reply.expect("a reply"), SERVICE_NS.to_be_bytes());
        let (code, _, stderr) = server.wait();
        assert_eq!((code, stderr.contains("served:\n")), (Some(0), true), "{stderr}");
    }
}

#[test]
fn a_drained_server_sends_all_of_a_long_reply() {
    for (transport, protocol) in [("r2p2", Protocol::R2p2), ("homa", Protocol::Homa)] {
        let (server, admin) = served("stss", transport, &[]);
        let builder = ClientBuilder::new().timeout(Duration::from_secs(20)).protocol(protocol);
        let client = builder.connect(server.address()).expect("a client");
        // Time, payload, and 2.5 MB of reply: many rounds of credit, and several RPCs of Homa.
        let words = [SERVICE_NS, 0, 2_500_000].map(u64::to_be_bytes).concat();
        let call = client.start(&words).expect("a call");
        admin.wait_for("tailcut_serve_requests_total", 1.0);
        server.signal("TERM");
        assert_eq!(call.wait().expect("a reply").len(), 2_500_000, "{transport}");
        let (code, _, stderr) = server.wait();
        assert_eq!(code, Some(0), "{transport}: {stderr}");
    }
}

#[test]
fn a_drained_server_answers_its_connections_and_closes_them() {
    let (server, admin) = synthetic("tcp", &[]);
    let [mut busy, mut idle] = [(); 2].map(|()| TcpStream::connect(server.address()).unwrap());
    busy.write_all(&SERVICE_NS.to_be_bytes()).unwrap();
    admin.wait_for("tailcut_serve_requests_total", 1.0);
    admin.wait_for("tailcut_serve_stream_accepted_total", 2.0);
    server.signal("TERM");
    let mut replies = [Vec::new(), Vec::new()];
    idle.read_to_end(&mut replies[0]).expect("the end");
    assert!(TcpStream::connect(server.address()).is_err(), "nobody listens any more");
    busy.read_to_end(&mut replies[1]).expect("a reply and the end");
    assert_eq!(replies, [Vec::new(), SERVICE_NS.to_be_bytes().to_vec()]);
    assert_eq!(server.wait().0, Some(0));
}

#[test]
fn a_drained_server_answers_its_datagrams() {
    let (server, admin) = synthetic("udp", &[]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(&SERVICE_NS.to_be_bytes(), server.address()).unwrap();
    admin.wait_for("tailcut_serve_requests_total", 1.0);
    server.signal("TERM");
    assert_eq!(socket.recv(&mut [0; 64]).expect("a reply"), 8);
    assert_eq!(server.wait().0, Some(0));
}

#[test]
fn a_drain_has_a_limit_and_says_so() {
    let (server, admin) = synthetic("r2p2", &["--drain", "50ms", "--service-max", "60s"]);
    let client = client(server.address());
    let _call = client.start(&60_000_000_000_u64.to_be_bytes()).expect("a call");
    admin.wait_for("tailcut_serve_requests_total", 1.0);
    server.signal("TERM");
    let (code, _, stderr) = server.wait();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("it has not drained within 50ms"), "{stderr}");
}

#[test]
fn a_second_signal_ends_a_drain_at_once() {
    let (server, admin) = synthetic("r2p2", &["--drain", "60s", "--service-max", "60s"]);
    let client = client(server.address());
    let _call = client.start(&60_000_000_000_u64.to_be_bytes()).expect("a call");
    admin.wait_for("tailcut_serve_requests_total", 1.0);
    server.signal("TERM");
    admin.wait_for("tailcut_serve_draining", 1.0);
    server.signal("TERM");
    let (code, _, stderr) = server.wait();
    assert_eq!((code, stderr.as_str()), (Some(1), ""));
}

/// Alone on its core, such a loop leaves no other thread any time.
#[test]
fn a_loop_at_real_time_priority_heeds_signals() {
    if std::env::var_os("TAILCUT_NO_REAL_TIME").is_some() {
        println!("SKIPPED: real-time threads are not run by this kernel");
        return;
    }
    let binary = env!("CARGO_BIN_EXE_tailcut");
    let may = Command::new("chrt").args(["-f", "1", "true"]).status();
    if !may.is_ok_and(|status| status.success()) {
        println!("SKIPPED: real-time priority needs chrt and CAP_SYS_NICE");
        return;
    }
    let real_time = ["-f", "1", "taskset", "-c", "0", binary];
    let echo = ["serve", "--listen", "127.0.0.1:0", "--app", "echo", "--busy-poll"];
    let router = ["route", "--listen", "127.0.0.1:0", "--server", "127.0.0.1:9", "--busy-poll"];
    for args in [&echo[..], &router[..]] {
        let args = [&real_time[..], args].concat();
        let service = Service::start_command(Command::new("chrt").args(args), 1);
        service.signal("HUP");
        service.signal("TERM");
        let (code, _, stderr) = service.wait();
        assert_eq!(code, Some(0), "{stderr}");
    }
}

#[test]
fn sighup_harms_nothing() {
    let (server, admin) = synthetic("r2p2", &[]);
    server.signal("HUP");
    let reply = client(server.address()).call(&1_u64.to_be_bytes()).expect("a reply").to_vec();
    assert_eq!((reply.len(), admin.get("/readyz").0), (8, 200));
    server.signal("TERM");
    assert_eq!(server.wait().0, Some(0));
}

/// A file of this test's own.
fn list(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).expect("a file");
    path
}

fn router(servers: &[&str], more: &[&str]) -> (Service, Admin) {
    let args = ["route", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let patience = ["--hold", "30s", "--silent-after", "30s"];
    let servers: Vec<&str> = servers.iter().flat_map(|address| ["--server", address]).collect();
    let mut router = Service::start(&[&args[..], &patience, &servers, more].concat(), 1);
    let admin = router.admin();
    (router, admin)
}

fn in_service(admin: &Admin, server: &str) -> f64 {
    let sample = format!("tailcut_route_server_state{{server=\"{server}\",state=\"in_service\"}}");
    admin.value(&sample)
}

#[test]
fn sighup_gives_a_router_the_servers_of_its_file() {
    let servers = [(); 3].map(|()| serve("synthetic", &[]));
    let [first, second, third] = [0, 1, 2].map(|index| servers[index].address());
    let file = list("servers", &format!("{first}  # one\n{second}\n"));
    let path = file.to_str().expect("a text");
    let (router, admin) = router(&[], &["--servers", path]);
    let load =
        ["--app", "synthetic:exp:500us", "--rate", "500", "--duration", "2s", "--warmup", "0"];
    let measurement = start_measure(router.address(), &load);
    admin.wait_for("tailcut_route_forwarded_total", 50.0);
    fs::write(&file, format!("{second}\n{third}\n")).expect("a file");
    router.signal("HUP");
    let gone = (0..10_000).any(|_| !admin.get("/metrics").1.contains(first));
    let are_ready = || in_service(&admin, second) == 1.0 && in_service(&admin, third) == 1.0;
    assert!(gone && (0..10_000).any(|_| are_ready()));
    // A mistake changes nothing.
    fs::write(&file, "nonsense\n").expect("a file");
    router.signal("HUP");
    assert_all_replied(&finish(measurement));
    assert!(are_ready());
    router.signal("TERM");
    let (code, _, stderr) = router.wait();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("cannot reload") && stderr.contains("line 1"), "{stderr}");
}

#[test]
fn a_drained_router_places_what_it_holds_and_removes_its_socket() {
    let server = serve("synthetic", &[]);
    let control = list("drained.sock", "");
    fs::remove_file(&control).expect("a path");
    let more = ["--policy", "jbsq:1", "--control", control.to_str().expect("a text")];
    let (router, admin) = router(&[server.address()], &more);
    // While the server is new the first call is held too: two held would not be all.
    assert!((0..10_000).any(|_| in_service(&admin, server.address()) == 1.0));
    let target = router.address().to_owned();
    let calls = [(); 3].map(|()| {
        let target = target.clone();
        thread::spawn(move || {
            client(&target).call(&SERVICE_NS.to_be_bytes()).map(|reply| reply.to_vec())
        })
    });
    admin.wait_for("tailcut_route_held_requests", 2.0);
    router.signal("TERM");
    admin.wait_for("tailcut_route_draining", 1.0);
    // The loop hears of the signal a little later.
    let refused = (0..100)
        .map(|_| client(&target).call(&0_u64.to_be_bytes()).map(|reply| reply.to_vec()))
        .find(Result::is_err)
        .expect("a call that comes late is refused");
    let stopping = Failure::Refused(DropReason::Stopping);
    assert!(
        matches!(&refused, Err(Error::Failed { source: failure, .. }) if *failure == stopping),
        "{refused:?}"
    );
    for call in calls {
        assert_eq!(call.join().expect("the call").expect("a reply"), SERVICE_NS.to_be_bytes());
    }
    let (code, _, stderr) = router.wait();
    assert_eq!((code, control.exists()), (Some(0), false), "{stderr}");
}

/// At the limit of its drain a router holds requests that it could place nowhere, more than leave
/// at once.
#[test]
fn a_router_that_cannot_drain_tells_who_waits_before_it_ends() {
    let server = serve("synthetic", &["--service-max", "60s"]);
    let (router, admin) = router(&[server.address()], &["--policy", "jbsq:1", "--drain", "50ms"]);
    let target = router.address().to_owned();
    let service = 60_000_000_000_u64.to_be_bytes();
    let first = client(&target);
    let _placed = first.start(&service).expect("a call");
    admin.wait_for("tailcut_route_forwarded_total", 1.0);
    let others: Vec<_> = (0..100).map(|_| client(&target)).collect();
    let calls: Vec<_> =
        others.iter().map(|client| client.start(&service).expect("a call")).collect();
    admin.wait_for("tailcut_route_held_requests", 100.0);
    router.signal("TERM");
    for call in calls {
        let refused = call.wait().map(|reply| reply.to_vec());
        // A slow machine lets some wait for too long before.
        let is_told = |failure: &Failure| {
            use DropReason::{Expired, Overload, Stopping};
            matches!(failure, Failure::Refused(Stopping | Overload | Expired))
        };
        assert!(
            matches!(&refused, Err(Error::Failed { source, .. }) if is_told(source)),
            "{refused:?}"
        );
    }
    assert_eq!(router.wait().0, Some(1));
}

/// Eight servers of one emulated worker each, behind a router.
struct Pool {
    servers: Vec<Service>,
    router: Service,
    admin: Admin,
}

impl Pool {
    fn start() -> Self {
        let servers: Vec<Service> = (0..8).map(|_| serve("synthetic", &[])).collect();
        let named: Vec<&str> = servers.iter().map(Service::address).collect();
        let (router, admin) = router(&named, &[]);
        Self { servers, router, admin }
    }

    /// Begins to load it with 70 % of what it can do: 1 000 requests of 8 ms a second.
    fn load(&self) -> Child {
        let load = ["--app", "synthetic:fixed:8ms", "--rate", "700", "--duration", "3s"];
        start_measure(self.router.address(), &[&load[..], &["--warmup", "0"]].concat())
    }

    /// Restarts the servers one after the other.
    fn restart_each(&mut self) {
        for index in 0..self.servers.len() {
            let server = self.servers.remove(0);
            let address = server.address().to_owned();
            server.signal("TERM");
            let (code, _, stderr) = server.wait();
            assert_eq!(code, Some(0), "server {index}: {stderr}");
            let again = ["serve", "--listen", &address, "--app", "synthetic"];
            self.servers.push(Service::start(&again, 1));
            let is_back = (0..10_000).any(|_| in_service(&self.admin, &address) == 1.0);
            assert!(is_back, "server {index} stays out");
        }
    }
}

/// Beside it a pool that nobody restarts has the same load, so that what the machine does to both
/// is not the restart's. A pause may still hit one alone: then both are measured again. With
/// TAILCUT_RESTARTS=5 the median of five, for who wants the number.
#[test]
fn a_rolling_restart_loses_no_call_and_keeps_the_tail() {
    if let Some(count) = std::env::var("TAILCUT_RESTARTS").ok().and_then(|text| text.parse().ok()) {
        let mut ratios: Vec<f64> = (0..count).map(|_| rolling_restart()).collect();
        ratios.sort_by(f64::total_cmp);
        println!("p99 of a pool that is restarted over one that is not: {ratios:.2?}");
        assert!(ratios[ratios.len() / 2] <= 1.5, "the median of {ratios:?}");
        return;
    }
    let mut ratios = Vec::new();
    for _ in 0..3 {
        ratios.push(rolling_restart());
        if ratios.last().is_some_and(|&ratio| ratio <= 1.5) {
            return;
        }
    }
    panic!("a rolling restart takes the p99 to {ratios:?} times what it is without");
}

/// The p99 of a pool whose servers are restarted twice, each in turn, over that of one that nobody
/// restarts. No call of either is lost.
fn rolling_restart() -> f64 {
    let (mut pool, calm) = (Pool::start(), Pool::start());
    let (load, calm_load) = (pool.load(), calm.load());
    for pool in [&pool, &calm] {
        pool.admin.wait_for("tailcut_route_forwarded_total", 100.0);
    }
    for _ in 0..2 {
        pool.restart_each();
    }
    let p99_us = [load, calm_load].map(|load| {
        let result = finish(load);
        assert_all_replied(&result);
        result["latency_us"]["intended"]["p99"].as_f64().expect("a percentile")
    });
    let ratio = p99_us[0] / p99_us[1];
    println!("p99 {p99_us:?} us, restarted over not: {ratio:.2}");
    ratio
}

#[test]
fn an_admin_port_that_is_taken_is_a_mistake() {
    let (_server, admin) = synthetic("r2p2", &[]);
    let args = ["serve", "--listen", "127.0.0.1:0", "--app", "echo", "--admin", &admin.0];
    let second = run(&args);
    let stderr = String::from_utf8_lossy(&second.stderr);
    assert_eq!((second.status.code(), second.stdout), (Some(1), Vec::new()), "{stderr}");
    assert!(stderr.contains(&format!("cannot listen for HTTP at {}", admin.0)), "{stderr}");
}

#[test]
fn an_agent_lets_its_coordinator_finish_and_nobody_new_in() {
    let server = serve("echo", &[]);
    let args = ["agent", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let mut agent = Service::start(&[&args[..], &["--drain", "60s"]].concat(), 1);
    let admin = agent.admin();
    let place = format!("tcp:{}", agent.address());
    let load = ["--app", "echo:64", "--rate", "200", "--duration", "6s", "--warmup", "0"];
    let measurement = start_measure(server.address(), &[&load[..], &["--agent", &place]].concat());
    admin.wait_for("tailcut_agent_has_coordinator", 1.0);
    agent.signal("HUP");
    agent.signal("TERM");
    admin.wait_for("tailcut_agent_draining", 1.0);
    let late = run(
        &[&["measure", "--target", server.address()], &load[..], &["--agent", &place]].concat()
    );
    let stderr = String::from_utf8_lossy(&late.stderr);
    assert!(stderr.contains("about to end"), "{stderr}");
    assert_all_replied(&finish(measurement));
    let (code, _, stderr) = agent.wait();
    assert_eq!(code, Some(0), "{stderr}");
}
