//! Loads against servers in this process, well-behaved and not: whatever becomes of requests, the
//! counts add up.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tailcut_instrument::engine::LocalAgent;
use tailcut_instrument::job::{
    Agent, AgentEvent, ClientCounts, Granted, Job, LoadShare, R2p2, Role, StampKind, Tls, Transport,
};
use tailcut_measure::outcome::Counts;
use tailcut_measure::stamps::{Bias, Latencies, MatchCounts};
use tailcut_net::clock::Clock;
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::{Driver, Wait};
use tailcut_net::ip::IpPort;
use tailcut_net::open::Opening;
use tailcut_net::stamps::{FakeInterface, StampSource};
use tailcut_net::stream::{Connection, Event as StreamEvent, StreamConfig, Streams};
use tailcut_net::udp::UdpConfig;
use tailcut_proto::r2p2::{Config, Endpoint};
use tailcut_proto::rpc::{Event, Rpc};
use tailcut_wire::r2p2::DropReason;

use super::{Served, serve};

/// Outcome of a load.
#[derive(Debug, Default)]
struct Outcome {
    counts: Counts,
    client: ClientCounts,
    errors: u64,
    kind: StampKind,
    stamps: MatchCounts,
    bias: Bias,
    stamped: Vec<Latencies>,
}

/// A thousand requests a second on four connections of one thread.
fn job(transport: Transport, app: &str, target: SocketAddr) -> Job {
    Job {
        transport,
        app: app.to_owned(),
        targets: vec![target.to_string()],
        load: LoadShare::Open { rate_per_s: 1_000.0, arrivals: "poisson".to_owned() },
        role: Role::Symmetric,
        threads: 1,
        connections: 4,
        pipeline: 16,
        timeout_ns: 20_000 * MS,
        seed: 1,
        first_stream: 0,
        slice_ns: 20 * MS,
        stamp_every: 0,
        tls: None,
        login: None,
        r2p2: R2p2::default(),
        netclone_servers: 2,
        datapath: None,
        preload: false,
        // What is wrong with a target shows in the load, which is what is tested.
        no_probe: true,
        busy_poll: false,
        spin_ns: 20_000,
        trace: None,
        is_sealed: false,
        seal: None,
        granted: Granted::default(),
    }
}

/// Loads until `sent_min` requests have left.
fn load(job: &Job, sent_min: u64) -> Outcome {
    load_by(LocalAgent::with_stamps(StampSource::Kernel), job, sent_min)
}

fn load_by(agent: LocalAgent, job: &Job, sent_min: u64) -> Outcome {
    load_and_meddle(agent, job, sent_min, &mut || ())
}

/// As [`load`], and does `meddle` once half of the requests have left.
fn load_and_meddle(
    mut agent: LocalAgent,
    job: &Job,
    sent_min: u64,
    meddle: &mut dyn FnMut(),
) -> Outcome {
    let mut is_meddled = false;
    agent.prepare(job).expect("it prepares");
    let mut outcome = Outcome::default();
    let mut is_stopped = false;
    let deadline = Clock.now() + 60_000 * MS;
    loop {
        assert!(Clock.now() < deadline, "it does not end: {outcome:?}");
        match agent.poll(10 * MS) {
            Some(AgentEvent::Ready { stamps, .. }) => {
                outcome.kind = stamps;
                agent.start(MS).expect("it starts");
            }
            Some(AgentEvent::Slice { slice, .. }) => {
                outcome.counts.merge(&slice.counts);
                outcome.errors += slice.tally.errors.iter().sum::<u64>();
            }
            Some(AgentEvent::Client { client, stamps, stamped }) => {
                outcome.client.add(&client);
                outcome.stamps.merge(&stamps);
                stamped.iter().for_each(|latencies| outcome.bias.record(latencies));
                outcome.stamped.extend(stamped);
            }
            Some(AgentEvent::Done) => return outcome,
            Some(AgentEvent::Failed(why)) => panic!("{why}"),
            None => {}
        }
        if !is_meddled && outcome.counts.sent >= sent_min / 2 {
            meddle();
            is_meddled = true;
        }
        if !is_stopped && outcome.counts.sent >= sent_min {
            agent.stop().expect("it stops");
            is_stopped = true;
        }
    }
}

/// As [`load`], and every request told has exactly one outcome.
fn load_and_add_up(job: &Job, sent_min: u64) -> Outcome {
    let outcome = load(job, sent_min);
    let Counts { sent, replied, lost, refused, timeout, .. } = outcome.counts;
    assert_eq!(sent, replied + lost + refused + timeout, "{outcome:?}");
    assert!(sent >= sent_min, "{outcome:?}");
    outcome
}

fn assert_all_replied(outcome: &Outcome) {
    assert_eq!(outcome.counts.replied, outcome.counts.sent, "{outcome:?}");
    assert_eq!((outcome.client.mismatched, outcome.errors), (0, 0), "{outcome:?}");
}

/// A thread that serves until it is dropped.
struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Answers each datagram with what `answer` makes of it and of its number.
    fn datagrams(
        listen: &str,
        mut answer: impl FnMut(u64, &[u8]) -> Vec<Vec<u8>> + Send + 'static,
    ) -> Self {
        let socket = UdpSocket::bind(listen).expect("a port");
        socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a timeout");
        let address = socket.local_addr().expect("an address");
        Self::run(address, move |stop| {
            let (mut buffer, mut number) = ([0; 65_536], 0);
            while !stop.load(Ordering::Relaxed) {
                let Ok((len, peer)) = socket.recv_from(&mut buffer) else { continue };
                for reply in answer(number, &buffer[..len]) {
                    // The client may be gone.
                    let _ = socket.send_to(&reply, peer);
                }
                number += 1;
            }
        })
    }

    /// Echoes R2P2 requests, and refuses every `refused`th.
    fn r2p2(listen: &str, refused: u64) -> Self {
        let listen = listen.parse().expect("an address");
        let port = Opening::default().bind(listen).expect("a port");
        let address = port.local_address();
        Self::run(address, move |stop| {
            let mut driver = Driver::new(Wait::default()).expect("a driver");
            let now = driver.clock().now();
            driver.add(
                Endpoint::new(now, Config { secret: [7; 16], ..Config::default() }),
                port,
                None,
            );
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                let turned = driver.turn_with(|_, endpoint, now| {
                    while let Some(event) = endpoint.poll_event() {
                        let Event::Request { id, payload, .. } = event else { continue };
                        number += 1;
                        let _ = match number % refused {
                            0 => endpoint.refuse(now, id, DropReason::Application),
                            _ => endpoint.reply(now, id, payload),
                        };
                    }
                });
                let turn = turned.expect("a turn");
                driver.wait(None, Some(turn.now + 5 * MS)).expect("a wait");
            }
        })
    }

    /// Echoes what comes on connections.
    fn streams(listen: &str) -> Self {
        let mut streams = Streams::new(Wait::default(), StreamConfig::default()).expect("streams");
        let listener = streams.listen(listen.parse().expect("an address"), None).expect("a port");
        let address = streams.listen_address(listener).expect("an address");
        Self::run(address, move |stop| {
            while !stop.load(Ordering::Relaxed) {
                let echo = |connection: &mut Connection<'_>, event: StreamEvent<'_>| match event {
                    StreamEvent::Bytes(bytes) => connection.output().extend_from_slice(bytes),
                    StreamEvent::Finished => connection.close(),
                    _ => {}
                };
                streams.poll(Some(Clock.now() + 5 * MS), echo).expect("a turn");
            }
        })
    }

    fn run(address: SocketAddr, serve: impl FnOnce(&AtomicBool) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        Self { address, stop, thread: Some(std::thread::spawn(move || serve(&flag))) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A server that has panicked has failed its test already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn echo(bytes: &[u8]) -> Vec<Vec<u8>> {
    vec![bytes.to_vec()]
}

#[test]
fn datagrams_are_answered() {
    let server = Server::datagrams("127.0.0.1:0", |_, bytes| echo(bytes));
    assert_all_replied(&load_and_add_up(&job(Transport::Udp, "echo:64", server.address), 200));
}

#[test]
fn datagrams_are_answered_over_ipv6() {
    let server = Server::datagrams("[::1]:0", |_, bytes| echo(bytes));
    assert_all_replied(&load_and_add_up(
        &job(Transport::Udp, "synthetic:fixed:0", server.address),
        200,
    ));
}

#[test]
fn a_lost_datagram_times_out_alone() {
    let server =
        Server::datagrams(
            "127.0.0.1:0",
            |number, bytes| if number % 10 == 3 { Vec::new() } else { echo(bytes) },
        );
    let job = Job { timeout_ns: 100 * MS, ..job(Transport::Udp, "echo:64", server.address) };
    let outcome = load_and_add_up(&job, 200);
    let Counts { sent, timeout, lost, refused, .. } = outcome.counts;
    // A slow machine may time others out.
    assert!(timeout >= sent / 10 && timeout < sent / 2, "{outcome:?}");
    assert_eq!((lost, refused), (0, 0), "{outcome:?}");
}

#[test]
fn a_reply_that_comes_twice_counts_once() {
    let server = Server::datagrams("127.0.0.1:0", |_, bytes| vec![bytes.to_vec(), bytes.to_vec()]);
    let outcome = load_and_add_up(&job(Transport::Udp, "echo:64", server.address), 200);
    assert_eq!(outcome.counts.replied, outcome.counts.sent, "{outcome:?}");
    assert!(outcome.client.mismatched > 0, "{outcome:?}");
}

/// Pairs of requests are answered the second first.
#[test]
fn replies_out_of_order_find_their_requests() {
    let mut held: Option<Vec<u8>> = None;
    let server = Server::datagrams("127.0.0.1:0", move |_, bytes| match held.take() {
        Some(first) => vec![bytes.to_vec(), first],
        None => {
            held = Some(bytes.to_vec());
            Vec::new()
        }
    });
    let job = Job { connections: 1, ..job(Transport::Udp, "echo:64", server.address) };
    let outcome = load_and_add_up(&job, 200);
    assert_eq!(outcome.client.mismatched, 0, "{outcome:?}");
    // The last may lack its second.
    assert!(outcome.counts.replied + 1 >= outcome.counts.sent, "{outcome:?}");
}

#[test]
fn a_reply_of_another_length_is_mismatched_and_its_request_lost() {
    let server = Server::datagrams("127.0.0.1:0", |_, bytes| echo(&bytes[..32]));
    let outcome = load_and_add_up(&job(Transport::Udp, "echo:64", server.address), 100);
    assert_eq!(outcome.counts.lost, outcome.counts.sent, "{outcome:?}");
    // The slice that the stop has cut is not told, but what was counted meanwhile is.
    assert!(outcome.client.mismatched >= outcome.counts.sent, "{outcome:?}");
}

#[test]
fn a_port_where_nobody_listens_refuses() {
    let address =
        UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    let job = Job { timeout_ns: 100 * MS, ..job(Transport::Udp, "echo:64", address) };
    let outcome = load_and_add_up(&job, 100);
    assert_eq!((outcome.counts.replied, outcome.counts.lost), (0, 0), "{outcome:?}");
    assert!(
        outcome.counts.refused > 0 && outcome.client.icmp_errors >= outcome.counts.refused,
        "{outcome:?}"
    );
}

/// Echoes of four bytes have no room for a name.
#[test]
fn requests_without_a_name_are_taken_in_order() {
    let server = Server::datagrams("127.0.0.1:0", |_, bytes| echo(bytes));
    assert_all_replied(&load_and_add_up(&job(Transport::Udp, "echo:4", server.address), 200));
}

#[test]
fn a_pipeline_holds_back_what_is_due() {
    let server = Server::datagrams("127.0.0.1:0", |_, _| Vec::new());
    let job = Job {
        connections: 1,
        pipeline: 2,
        timeout_ns: 50 * MS,
        ..job(Transport::Udp, "echo:64", server.address)
    };
    let outcome = load_and_add_up(&job, 20);
    assert_eq!(outcome.counts.timeout, outcome.counts.sent, "{outcome:?}");
    assert!(outcome.client.saturated > 0, "{outcome:?}");
}

#[test]
fn calls_are_answered() {
    let server = Server::r2p2("127.0.0.1:0", u64::MAX);
    assert_all_replied(&load_and_add_up(&job(Transport::R2p2, "echo:64", server.address), 200));
}

#[test]
fn calls_are_answered_over_ipv6_and_in_many_packets() {
    let server = Server::r2p2("[::1]:0", u64::MAX);
    assert_all_replied(&load_and_add_up(&job(Transport::R2p2, "echo:20kB", server.address), 200));
}

#[test]
fn refused_calls_are_counted() {
    let server = Server::r2p2("127.0.0.1:0", 4);
    let outcome = load_and_add_up(&job(Transport::R2p2, "echo:64", server.address), 200);
    let Counts { sent, refused, lost, timeout, .. } = outcome.counts;
    assert!(refused.abs_diff(sent / 4) <= 1 && lost + timeout == 0, "{outcome:?}");
}

#[test]
fn calls_to_nobody_time_out() {
    let address =
        UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    for transport in [Transport::R2p2, Transport::Homa] {
        let job = Job { timeout_ns: 50 * MS, ..job(transport, "echo:64", address) };
        let outcome = load_and_add_up(&job, 50);
        assert_eq!(outcome.counts.timeout, outcome.counts.sent, "{outcome:?}");
        assert!(outcome.client.icmp_errors > 0, "{outcome:?}");
    }
}

/// Loads with one request in four stamped by the kernel, and looks at what the stamps say.
fn check_stamps(transport: Transport, target: SocketAddr) {
    let job = Job { stamp_every: 4, ..job(transport, "echo:64", target) };
    let outcome = load_and_add_up(&job, 400);
    assert_all_replied(&outcome);
    assert_eq!(outcome.kind, StampKind::Kernel);
    let MatchCounts { missing_kernel, late, unexpected, reversed, .. } = outcome.stamps;
    assert_eq!((missing_kernel, late, unexpected, reversed), (0, 0, 0, 0), "{outcome:?}");
    check_bias(&outcome);
}

/// Looks whether one request in four was picked, and what the stamps of those say that left by a
/// send of their own: on a busy machine several leave by one.
fn check_bias(outcome: &Outcome) {
    let MatchCounts { requests, skipped, .. } = outcome.stamps;
    let quarter = outcome.counts.sent / 4;
    // A few leave outside of the slices that are counted.
    assert!(requests > 0 && (quarter..=quarter + 3).contains(&(requests + skipped)), "{outcome:?}");
    let bias = outcome.bias.summary();
    // A call that was sent again has no stamp of one sending.
    let resent = outcome.client.resent;
    assert!((requests.saturating_sub(resent)..=requests).contains(&bias.count), "{bias:?}");
    // The user's clock is read before the kernel's on the way out and after it on the way in.
    assert!(bias.below == 0 && bias.mean_ns > Some(0.0), "{bias:?} {outcome:?}");
}

#[test]
fn the_kernel_stamps_datagrams() {
    let server = Server::datagrams("127.0.0.1:0", |_, bytes| echo(bytes));
    check_stamps(Transport::Udp, server.address);
}

#[test]
fn the_kernel_stamps_calls() {
    let server = Server::r2p2("127.0.0.1:0", u64::MAX);
    check_stamps(Transport::R2p2, server.address);
    let server = serve(&["127.0.0.1:0", "--transport", "homa", "--app", "echo"]);
    check_stamps(Transport::Homa, server.address);
    if may_open_raw_sockets() {
        let server = serve(&["127.0.0.42:0", "--transport", "homa-ip", "--app", "echo"]);
        check_stamps(Transport::HomaIp, server.address);
    }
}

#[test]
fn the_kernel_stamps_connections() {
    let server = Server::streams("127.0.0.1:0");
    check_stamps(Transport::Tcp, server.address);
}

/// An interface with a clock of its own that loses half of its stamps of sends.
#[test]
fn an_interface_that_loses_stamps_is_counted() {
    let server = Server::datagrams("127.0.0.1:0", |_, bytes| echo(bytes));
    let lossy = FakeInterface {
        offset_ns: 3_600_000_000_000,
        drift_ppb: 10_000,
        lost_per_mille: 500,
        late_per_mille: 0,
        late_by: 0,
        seed: 9,
    };
    let agent = LocalAgent::with_stamps(StampSource::Fake(lossy));
    let job = Job { stamp_every: 2, ..job(Transport::Udp, "echo:64", server.address) };
    let outcome = load_by(agent, &job, 400);
    assert_eq!(outcome.kind, StampKind::Hardware);
    // Five standard deviations of 200 fair coins are 35; some wait for their stamp at the end.
    let MatchCounts { requests, missing_hardware, missing_kernel, .. } = outcome.stamps;
    assert!(requests >= 200 && (35..=135).contains(&missing_hardware), "{outcome:?}");
    assert_eq!(missing_kernel, 0, "{outcome:?}");
    // By all three clocks where the stamp came, and by two where it was lost; no clock's latency is
    // longer than the user's, but for what the interface's clock gains.
    let by_interface: Vec<&Latencies> =
        outcome.stamped.iter().filter(|latencies| latencies.hardware_ns.is_some()).collect();
    assert!(by_interface.len() >= 65 && by_interface.len() < outcome.stamped.len(), "{outcome:?}");
    let gained_ns = |user_ns: u64| user_ns / 100_000 + 1;
    assert!(
        by_interface
            .iter()
            .all(|of| of.user_ns.is_some_and(|ns| of.hardware_ns <= Some(ns + gained_ns(ns)))),
        "{outcome:?}"
    );
}

const APPS: [&str; 3] =
    ["echo:64", "synthetic:fixed:100us", "stss:time=fixed:10us,request=fixed:32,reply=fixed:500"];

/// Every application of our own server, which is given the first word of it.
fn check_own_server(listen: &str, transport: Transport, name: &str) {
    for app in APPS {
        let served = app.split(':').next().unwrap_or(app);
        let mut server = serve(&[
            listen,
            "--transport",
            name,
            "--app",
            served,
            "--workers",
            if served == "echo" { "1" } else { "3" },
        ]);
        assert_all_replied(&load_and_add_up(&job(transport, app, server.address), 200));
        let report = server.stop();
        assert!(report.contains("served:") && !report.contains("malformed"), "{report}");
    }
}

#[test]
fn our_server_answers_over_tcp() {
    check_own_server("127.0.0.1:0", Transport::Tcp, "tcp");
}

#[test]
fn our_server_answers_over_tcp_on_ipv6() {
    check_own_server("[::1]:0", Transport::Tcp, "tcp");
}

#[test]
fn our_server_answers_over_udp() {
    check_own_server("127.0.0.1:0", Transport::Udp, "udp");
}

#[test]
fn our_server_answers_over_udp_on_ipv6() {
    check_own_server("[::1]:0", Transport::Udp, "udp");
}

#[test]
fn our_server_answers_over_r2p2() {
    check_own_server("127.0.0.1:0", Transport::R2p2, "r2p2");
}

#[test]
fn our_server_answers_over_homa() {
    check_own_server("127.0.0.1:0", Transport::Homa, "homa");
    check_own_server("[::1]:0", Transport::Homa, "homa");
}

#[test]
fn our_server_answers_over_homa_directly_over_ip() {
    if may_open_raw_sockets() {
        check_own_server("127.0.0.41:0", Transport::HomaIp, "homa-ip");
        check_own_server("[::1]:0", Transport::HomaIp, "homa-ip");
        check_own_server("127.0.0.41:0", Transport::HomaTcp, "homa-tcp");
        check_own_server("[::1]:0", Transport::HomaTcp, "homa-tcp");
    }
}

/// True if this process may open them; that it may not is said past the test harness's capture. CI
/// must.
fn may_open_raw_sockets() -> bool {
    match IpPort::bind("127.0.0.40:0".parse().expect("an address"), UdpConfig::default()) {
        Ok(_) => true,
        Err(error) if std::env::var_os("CI").is_some_and(|is_ci| is_ci == "true") => {
            panic!("CI has the capability: {error}")
        }
        Err(error) => {
            writeln!(std::io::stderr(), "SKIPPED: {error}").expect("standard error");
            false
        }
    }
}

#[test]
fn a_spinning_server_answers_over_streams_and_datagrams() {
    for (transport, name) in [(Transport::Tcp, "tcp"), (Transport::Udp, "udp")] {
        let server = serve(&["127.0.0.1:0", "--transport", name, "--app", "spin"]);
        assert_all_replied(&load_and_add_up(
            &job(transport, "synthetic:fixed:20us", server.address),
            200,
        ));
    }
}

/// Path of a certificate, for as long as the test's process lives.
fn certificate_file(name: &str) -> String {
    std::env::temp_dir()
        .join(format!("tailcut-{}-{name}.pem", std::process::id()))
        .to_string_lossy()
        .into_owned()
}

/// A server of TLS, and the certificate that it has made.
fn serve_tls(name: &str) -> (Served, String) {
    let file = certificate_file(name);
    let server =
        serve(&["127.0.0.1:0", "--transport", "tls", "--app", "echo", "--self-signed", &file]);
    let pem = std::fs::read_to_string(&file).expect("a certificate");
    std::fs::remove_file(&file).expect("its file");
    (server, pem)
}

#[test]
fn a_server_of_tls_is_verified_and_stamped() {
    let (server, pem) = serve_tls("verified");
    let tls = Some(Tls { roots_pem: Some(pem), ..Tls::default() });
    let job = Job { tls, stamp_every: 4, ..job(Transport::Tls, "echo:64", server.address) };
    let outcome = load_and_add_up(&job, 200);
    assert_all_replied(&outcome);
    assert_eq!(outcome.kind, StampKind::Kernel);
    check_bias(&outcome);
}

/// Reason why a job cannot be done.
fn failure(job: &Job) -> String {
    let mut agent = LocalAgent::with_stamps(StampSource::Kernel);
    agent.prepare(job).expect("it prepares");
    match agent.poll(20_000 * MS) {
        Some(AgentEvent::Failed(why)) => why,
        told => panic!("{told:?}"),
    }
}

#[test]
fn a_server_of_tls_that_nobody_vouches_for_is_not_loaded() {
    let (server, _) = serve_tls("stranger");
    let (_other, pem) = serve_tls("other");
    let tls = Some(Tls { roots_pem: Some(pem), ..Tls::default() });
    let why = failure(&Job { tls, ..job(Transport::Tls, "echo:64", server.address) });
    assert!(why.contains("TLS: invalid peer certificate"), "{why}");
}

#[test]
fn a_target_that_is_not_there_is_said_soon() {
    let address = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("an address");
    let why = failure(&job(Transport::Tcp, "echo:64", address));
    assert!(why.contains("nobody listens there"), "{why}");
}

/// Requests that are due while nobody listens wait for a connection, and are given up.
#[test]
fn a_server_that_dies_leaves_lost_requests_and_timeouts() {
    let mut server = serve(&["127.0.0.1:0", "--transport", "tcp", "--app", "synthetic"]);
    let job =
        Job { timeout_ns: 50 * MS, ..job(Transport::Tcp, "synthetic:fixed:1ms", server.address) };
    let outcome =
        load_and_meddle(LocalAgent::with_stamps(StampSource::Kernel), &job, 200, &mut || {
            drop(server.stop())
        });
    let Counts { sent, replied, lost, refused, timeout } = outcome.counts;
    assert_eq!(sent, replied + lost + refused + timeout, "{outcome:?}");
    assert!(replied > 0 && timeout > 0 && outcome.client.reconnects >= 4, "{outcome:?}");
}

#[test]
fn datagrams_to_a_server_that_dies_are_refused() {
    let mut server = serve(&["127.0.0.1:0", "--transport", "udp", "--app", "echo"]);
    let job = Job { timeout_ns: 50 * MS, ..job(Transport::Udp, "echo:64", server.address) };
    let outcome =
        load_and_meddle(LocalAgent::with_stamps(StampSource::Kernel), &job, 200, &mut || {
            drop(server.stop())
        });
    let Counts { sent, replied, lost, refused, timeout } = outcome.counts;
    assert_eq!(sent, replied + lost + refused + timeout, "{outcome:?}");
    assert!(replied > 0 && refused > 0, "{outcome:?}");
}

/// The process that [`check_frozen`] freezes: this binary again, which serves an echo until its
/// standard input ends. In the run of all tests there is nothing for it to serve.
#[test]
fn serves_another_process() {
    let Ok(transport) = std::env::var("SERVE_TRANSPORT") else { return };
    let server = serve(&["127.0.0.1:0", "--transport", &transport, "--app", "echo"]);
    println!("listening {}", server.address);
    // What is read matters as little as whether reading fails.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Kills the process at the end of the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn check_frozen(transport: Transport, name: &str) {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "serve::tests::loaded::serves_another_process", "--nocapture"]);
    let child =
        command.env("SERVE_TRANSPORT", name).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = Killed(child.expect("a process"));
    let lines = BufReader::new(child.0.stdout.take().expect("it is piped")).lines();
    let address =
        lines.map_while(Result::ok).find_map(|line| line.split_once("listening ")?.1.parse().ok());
    let job =
        Job { timeout_ns: 50 * MS, ..job(transport, "echo:64", address.expect("an address")) };
    let freeze = &mut || {
        let status = Command::new("kill").args(["-STOP", &child.0.id().to_string()]).status();
        assert!(status.expect("kill").success());
    };
    let outcome = load_and_meddle(LocalAgent::with_stamps(StampSource::Kernel), &job, 400, freeze);
    let Counts { sent, replied, lost, refused, timeout } = outcome.counts;
    assert_eq!(sent, replied + lost + refused + timeout, "{outcome:?}");
    assert!(replied > 50 && timeout + lost > 50 && timeout > 0, "{outcome:?}");
}

#[test]
fn requests_to_a_server_that_freezes_time_out() {
    check_frozen(Transport::Tcp, "tcp");
    check_frozen(Transport::Udp, "udp");
    check_frozen(Transport::R2p2, "r2p2");
    check_frozen(Transport::Homa, "homa");
}

const MS: u64 = 1_000_000;
