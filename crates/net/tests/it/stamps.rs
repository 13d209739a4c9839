//! Timestamps for real: by the kernel, over loopback and over a veth pair between two network
//! namespaces, and by a made-up interface below the sockets, with its own clock, which loses half
//! of its transmit stamps and delays others.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use tailcut_measure::stamps::{
    Bias, Latencies, MatchCounts, Matcher, MatcherConfig, Promised, Stamps,
};
use tailcut_net::clock::Clock;
use tailcut_net::datagram::{DatagramConfig, DatagramEvent, Datagrams};
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::{Driver, Observer, Wait};
use tailcut_net::probe::{Arrived, Probe};
use tailcut_net::stamps::{FakeInterface, StampConfig, StampSource, Stamping, Stamps as Seen};
use tailcut_net::stream::{Connection, Event, StreamConfig, Streams};
use tailcut_net::udp::{SegmentedSend, UdpConfig, UdpPort};
use tailcut_proto::node::Transmit;

use crate::toy::Pinger;
use crate::veth::{VethPair, enter};

#[test]
fn the_kernel_stamps_udp_on_loopback() {
    with_servers(None, "127.0.0.1", |servers| {
        check_kernel(&sample_udp(servers.udp, KERNEL, Promised::Kernel))
    });
}

#[test]
fn a_flow_whose_stamps_are_paused_has_them_again_with_the_next_stamped_send() {
    with_servers(None, "127.0.0.1", |servers| {
        let mut datagrams = Datagrams::new(
            Wait::BusyPoll,
            DatagramConfig { stamps: KERNEL, ..DatagramConfig::default() },
        )
        .expect("no flows");
        let flow = datagrams.open(servers.udp).expect("a flow");
        let mut is_answer_stamped = |is_asked: bool| {
            if is_asked {
                datagrams.queue_stamped(flow, 0, &[7; 64]);
            } else {
                datagrams.pause_stamps(flow);
                datagrams.queue(flow, &[7; 64]);
            }
            datagrams.flush();
            let mut answer = None;
            until(|| {
                let note = |_, event: DatagramEvent<'_>| {
                    if let DatagramEvent::Bytes(_, seen) = event {
                        answer = Some(seen.kernel_ns.is_some());
                    }
                };
                datagrams.poll(None, note).expect("a turn");
                answer.is_some()
            });
            answer
        };
        // The kernel may take a while to turn receive stamps on.
        until(|| is_answer_stamped(true) == Some(true));
        assert_eq!(
            [false, true, false].map(&mut is_answer_stamped),
            [Some(false), Some(true), Some(false)]
        );
    });
}

#[test]
fn the_kernel_stamps_tcp_on_loopback() {
    with_servers(None, "127.0.0.1", |servers| {
        check_kernel(&sample_tcp(servers.tcp, KERNEL, Promised::Kernel))
    });
}

#[test]
fn the_kernel_stamps_r2p2_on_loopback() {
    with_servers(None, "127.0.0.1", |servers| {
        check_kernel(&sample_port(servers.udp, KERNEL, Promised::Kernel))
    });
}

#[test]
fn the_kernel_stamps_ipv6() {
    with_servers(None, "::1", |servers| {
        check_kernel(&sample_udp(servers.udp, KERNEL, Promised::Kernel));
        check_kernel(&sample_tcp(servers.tcp, KERNEL, Promised::Kernel));
        check_kernel(&sample_port(servers.udp, KERNEL, Promised::Kernel));
    });
}

#[test]
fn the_kernel_stamps_all_of_them_between_namespaces() {
    let Some(pair) = VethPair::create() else { return };
    with_servers(Some(&pair.far), "10.77.0.2", |servers| {
        std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                enter(&pair.near);
                check_kernel(&sample_udp(servers.udp, KERNEL, Promised::Kernel));
                check_kernel(&sample_tcp(servers.tcp, KERNEL, Promised::Kernel));
                check_kernel(&sample_port(servers.udp, KERNEL, Promised::Kernel));
            });
            client.join().expect("the client");
        });
    });
}

/// No interface of a test machine stamps; this one is made up from what the kernel stamps, with a
/// clock that is an hour ahead and fast by 10 parts per million.
#[test]
fn an_interface_that_loses_half_of_its_stamps_is_matched_rightly() {
    let interface = FakeInterface {
        offset_ns: 3_600_000_000_000,
        drift_ppb: 10_000,
        lost_per_mille: 500,
        late_per_mille: 200,
        late_by: 3,
        seed: 42,
    };
    let config = StampConfig { stamping: Stamping::Hardware, source: StampSource::Fake(interface) };
    with_servers(None, "127.0.0.1", |servers| {
        check_hardware(&sample_udp(servers.udp, config, Promised::Both));
        check_hardware(&sample_tcp(servers.tcp, config, Promised::Both));
        check_hardware(&sample_port(servers.udp, config, Promised::Both));
    });
}

#[test]
fn without_stamping_there_are_no_stamps() {
    with_servers(None, "127.0.0.1", |servers| {
        let samples = sample_udp(servers.udp, StampConfig::default(), Promised::Nothing);
        assert!(
            samples
                .latencies
                .iter()
                .all(|latencies| latencies.kernel_ns.is_none() && latencies.user_ns.is_some())
        );
    });
}

#[test]
fn a_probe_finds_what_loopback_has() {
    let kernel = Arrived {
        sent_kernel: true,
        received_kernel: true,
        is_answered: true,
        ..Arrived::default()
    };
    check_probe(StampSource::Kernel, kernel, Stamping::Kernel);
}

#[test]
fn a_probe_finds_an_interface_that_stamps() {
    let interface = FakeInterface {
        offset_ns: 1,
        drift_ppb: 0,
        lost_per_mille: 500,
        late_per_mille: 0,
        late_by: 0,
        seed: 1,
    };
    let all = Arrived {
        sent_kernel: true,
        sent_hardware: true,
        received_kernel: true,
        received_hardware: true,
        is_answered: true,
    };
    check_probe(StampSource::Fake(interface), all, Stamping::Hardware);
}

#[test]
fn a_probe_that_nobody_answers_knows_of_sends_alone() {
    let silent = UdpPort::bind("127.0.0.1:0".parse().expect("an address"), UdpConfig::default())
        .expect("a port");
    let arrived = probe(silent.local_address(), StampSource::Kernel).datagrams().expect("a probe");
    assert_eq!(
        (arrived, arrived.best()),
        (Arrived { sent_kernel: true, ..Arrived::default() }, Stamping::Off)
    );
}

fn check_probe(source: StampSource, expected: Arrived, best: Stamping) {
    with_servers(None, "127.0.0.1", |servers| {
        let found = [
            probe(servers.udp, source).datagrams(),
            probe(servers.tcp, source).connection(None, &mut &[7_u8; 64][..]),
        ];
        for arrived in found.map(|arrived| arrived.expect("a probe")) {
            assert_eq!((arrived, arrived.best()), (expected, best));
        }
    });
}

fn probe(target: SocketAddr, source: StampSource) -> Probe<'static> {
    Probe { target, request: &[7; 64], wait_ns: 1_000_000_000, interval_ns: 5_000_000, source }
}

/// Results of a run.
struct Samples {
    latencies: Vec<Latencies>,
    counts: MatchCounts,
}

/// Each request has both stamps of the kernel's, between those of the user's.
fn check_kernel(samples: &Samples) {
    let mut bias = Bias::new();
    samples.latencies.iter().for_each(|latencies| bias.record(latencies));
    let summary = bias.summary();
    assert_eq!(samples.latencies.len(), COUNT, "{:?}", samples.counts);
    assert_eq!((summary.count, summary.below), (COUNT as u64, 0), "{:?}", samples.counts);
    let MatchCounts { missing_kernel, late, unexpected, reversed, .. } = samples.counts;
    assert_eq!((missing_kernel, late, unexpected, reversed), (0, 0, 0, 0));
}

/// A latency of the interface's, where there is one, is the kernel's but for the drift; and about
/// half are there.
fn check_hardware(samples: &Samples) {
    let mut stamped = 0;
    for latencies in &samples.latencies {
        let (Some(hardware_ns), Some(kernel_ns)) = (latencies.hardware_ns, latencies.kernel_ns)
        else {
            continue;
        };
        assert!(hardware_ns.abs_diff(kernel_ns) <= 2 + kernel_ns / 50_000, "{latencies:?}");
        stamped += 1;
    }
    // Half, less those still delayed at the end, within five standard deviations.
    assert!(
        (COUNT / 2 - 60..=COUNT / 2 + 60).contains(&stamped),
        "{stamped} of {COUNT}: {:?}",
        samples.counts
    );
    assert_eq!(samples.counts.missing_kernel, 0);
    let missing =
        samples.latencies.iter().filter(|latencies| latencies.hardware_ns.is_none()).count() as u64;
    assert_eq!(
        samples.counts.missing_hardware + samples.counts.ambiguous,
        missing,
        "{:?}",
        samples.counts
    );
}

/// One request at a time. RX stamps begin only some milliseconds after they were asked for; what
/// came before is left out.
struct Run {
    matcher: Matcher,
    latencies: Vec<Latencies>,
    wants_kernel: bool,
    key: u64,
    answered: usize,
}

impl Run {
    fn new(promised: Promised) -> Self {
        let config = MatcherConfig { promised, wait_ns: 500_000_000, ..MatcherConfig::default() };
        let wants_kernel = promised != Promised::Nothing;
        Self {
            matcher: Matcher::new(config),
            latencies: Vec::new(),
            wants_kernel,
            key: 0,
            answered: 0,
        }
    }

    fn send(&mut self, key: u64) {
        self.key = key;
        assert!(
            self.matcher.handle_request(key, user()),
            "one request at a time: {:?}",
            self.matcher.counts()
        );
    }

    fn receive(&mut self, seen: Seen) {
        if self.wants_kernel && seen.kernel_ns.is_none() {
            assert!(self.latencies.is_empty(), "a stamp is missing");
            self.matcher.handle_failure(self.key);
        } else {
            self.answered += 1;
            self.matcher.handle_reply(
                self.key,
                Stamps::of_ns(Some(Clock.now()), seen.kernel_ns, seen.hardware_ns),
                Clock.now(),
            );
        }
    }

    fn poll(&mut self, now: u64) -> usize {
        self.matcher.handle_timeout(now);
        self.latencies.extend(
            std::iter::from_fn(|| self.matcher.poll_sample()).map(|sample| sample.latencies),
        );
        self.latencies.len()
    }

    fn is_over(&mut self) -> bool {
        self.poll(0);
        self.answered >= COUNT
    }

    fn finish(mut self) -> Samples {
        self.poll(u64::MAX);
        Samples { latencies: self.latencies, counts: *self.matcher.counts() }
    }
}

fn sample_udp(to: SocketAddr, stamps: StampConfig, promised: Promised) -> Samples {
    let config = DatagramConfig { stamps, ..DatagramConfig::default() };
    let mut datagrams = Datagrams::new(Wait::BusyPoll, config).expect("no flows");
    let flow = datagrams.open(to).expect("a flow");
    let mut run = Run::new(promised);
    for key in 0.. {
        if run.is_over() {
            break;
        }
        run.send(key);
        datagrams.queue_stamped(flow, key, &[7; 64]);
        datagrams.flush();
        let mut is_answered = false;
        until(|| {
            let note = |_, event: DatagramEvent<'_>| match event {
                DatagramEvent::Bytes(_, seen) => (run.receive(seen), is_answered = true).0,
                DatagramEvent::Sent(sent) => {
                    run.matcher.handle_sent(sent.first..=sent.last, seen_by(sent.stamps))
                }
                other => panic!("{other:?}"),
            };
            datagrams.poll(None, note).expect("a turn");
            is_answered
        });
    }
    run.finish()
}

fn sample_tcp(to: SocketAddr, stamps: StampConfig, promised: Promised) -> Samples {
    let config = StreamConfig { stamps, ..StreamConfig::default() };
    let mut streams = Streams::new(Wait::BusyPoll, config).expect("streams");
    let id = streams.connect(to, None).expect("a connection");
    until(|| {
        streams.poll(None, |_, event| assert_eq!(event, Event::Connected)).expect("a turn") > 0
    });
    let mut run = Run::new(promised);
    while !run.is_over() {
        // Two writes a request: the second one is marked, and carries the last byte.
        for part in 0..2 {
            streams.output(id).expect("an open connection").extend_from_slice(&[7; 32]);
            if part == 1 {
                run.send(streams.written(id) + 31);
                streams.stamp(id);
            }
            streams.flush(id);
        }
        let mut received = 0;
        until(|| {
            let note = |connection: &mut Connection<'_>, event: Event<'_>| match event {
                Event::Bytes(bytes) => {
                    received += bytes.len();
                    if received == 64 {
                        run.receive(connection.received());
                    }
                }
                Event::Sent(sent) => {
                    run.matcher.handle_sent(sent.first..=sent.last, seen_by(sent.stamps))
                }
                other => panic!("{other:?}"),
            };
            streams.poll(None, note).expect("a turn");
            received == 64
        });
    }
    run.finish()
}

/// As R2P2 does: a node on an unconnected port, watched.
fn sample_port(to: SocketAddr, stamps: StampConfig, promised: Promised) -> Samples {
    let any = SocketAddr::new(
        if to.is_ipv4() { "0.0.0.0" } else { "::" }.parse().expect("an address"),
        0,
    );
    let mut port = UdpPort::bind(any, UdpConfig::default()).expect("a port");
    port.set_stamps(stamps).expect("stamps");
    let mut driver = Driver::new(Wait::BusyPoll).expect("a driver");
    driver.add(Pinger::new(to, 64, 1, SegmentedSend::Off), port, None);
    let mut watch = Watch { run: Run::new(promised) };
    until(|| {
        driver.turn_observed(&mut watch, |_, _, _| ()).expect("a turn");
        watch.run.is_over()
    });
    watch.run.finish()
}

struct Watch {
    run: Run,
}

impl Observer for Watch {
    fn handle_received(&mut self, _node: usize, _peer: SocketAddr, _bytes: &[u8], stamps: Seen) {
        self.run.receive(stamps);
    }

    fn handle_transmit(&mut self, _node: usize, transmit: &mut Transmit, _bytes: &[u8]) {
        transmit.token = self.run.key + 1;
        self.run.send(transmit.token);
    }

    fn handle_sent(&mut self, _node: usize, token: u64, stamps: Seen) {
        self.run.matcher.handle_sent(token..=token, seen_by(stamps));
    }
}

/// Echoes on a thread of their own.
struct Servers {
    udp: SocketAddr,
    tcp: SocketAddr,
}

fn with_servers(namespace: Option<&str>, ip: &str, run: impl FnOnce(&Servers)) {
    let ip: IpAddr = ip.parse().expect("an address");
    let stop = AtomicBool::new(false);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        let _guard = Stop(&stop);
        scope.spawn(|| {
            namespace.into_iter().for_each(enter);
            serve(SocketAddr::new(ip, 0), &sender, &stop);
        });
        run(&receiver.recv().expect("the servers"));
    });
}

fn serve(at: SocketAddr, sender: &mpsc::Sender<Servers>, stop: &AtomicBool) {
    let mut port = UdpPort::bind(at, UdpConfig::default()).expect("a port");
    let mut streams = Streams::new(Wait::BusyPoll, StreamConfig::default()).expect("streams");
    let listener = streams.listen(at, None).expect("a port");
    let tcp = streams.listen_address(listener).expect("an address");
    sender.send(Servers { udp: port.local_address(), tcp }).expect("the test");
    let mut answers = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        port.recv_burst(|path, bytes| answers.push((path.peer, bytes.to_vec())))
            .expect("a receive");
        for (peer, bytes) in answers.drain(..) {
            port.send(&Transmit::single(peer, bytes.len()), &bytes);
        }
        let echo = |connection: &mut Connection<'_>, event: Event<'_>| match event {
            Event::Bytes(bytes) => connection.output().extend_from_slice(bytes),
            Event::Finished => connection.close(),
            _ => {}
        };
        streams.poll(None, echo).expect("a turn");
        std::thread::yield_now();
    }
}

/// Ends the servers, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn user() -> Stamps {
    Stamps::of_ns(Some(Clock.now()), None, None)
}

fn seen_by(seen: Seen) -> Stamps {
    Stamps::of_ns(None, seen.kernel_ns, seen.hardware_ns)
}

fn until(mut is_done: impl FnMut() -> bool) {
    let deadline = Clock.now() + PATIENCE_NS;
    while !is_done() {
        assert!(Clock.now() < deadline, "what is expected does not happen");
        std::thread::yield_now();
    }
}

const KERNEL: StampConfig = StampConfig { stamping: Stamping::Kernel, source: StampSource::Kernel };

/// Requests of a run.
const COUNT: usize = 600;

/// Longer than any machine takes for anything here.
const PATIENCE_NS: u64 = 20_000_000_000;
