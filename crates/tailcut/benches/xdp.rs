//! Calls over AF_XDP against calls over UDP's sockets on the same veth pair, and against two bare
//! AF_XDP sockets that do nothing but move frames.
//!
//! `cargo bench -p tailcut --bench xdp` makes two network namespaces, which takes root, and
//! alternates slices of both sides on two pinned cores; it prints the median of the ratios with
//! their quartiles. `TAILCUT_XDP_OPTIONS=,generic` runs the program behind the driver.

#[path = "../../net/benches/support/mod.rs"]
mod support;

mod calls;
#[path = "../../net/tests/it/toy/mod.rs"]
mod toy;
#[path = "../../net/tests/it/veth/mod.rs"]
mod veth;

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, OnceLock};

use support::bare::Load;
use support::*;
use tailcut::{Client, ClientBuilder, DatapathKind, SegmentedSend, ServerBuilder};
use tailcut_net::affinity;
use tailcut_net::batches::Xsk;
use tailcut_net::clock::Clock;
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::{Driver, Wait};
use tailcut_net::open::Opening;
use tailcut_net::udp::UdpConfig;
use tailcut_net::xdp::XdpPort;
use toy::{Echo, Pinger};
use veth::{VethPair, enter, run};

fn main() {
    let plan = Plan { pairs: 15, slice_ns: 100_000_000 }.or_brief(1);
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let Some(pair) = VethPair::create() else { return };
    for (host, mac) in [(&pair.near, NEAR_MAC), (&pair.far, FAR_MAC)] {
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        run("ip", &format!("-n {host} link set v{host} address {mac}")).expect("an address");
    }
    let hosts = Hosts { near: pair.near.clone(), far: pair.far.clone() };
    HOSTS.set(hosts).expect("they are set once");
    affinity::pin_to(CLIENT_CORE).expect("two cores");
    print_head("baseline", "AF_XDP");
    for (name, unit, baseline, ours) in rows() {
        if only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
            compare(name, unit, &plan, (baseline, ours));
        }
    }
}

fn rows() -> [(&'static str, &'static str, Side, Side); 13] {
    let (udp_ping, xdp_ping): (Side, Side) =
        (|slice| ping(slice, false), |slice| ping(slice, true));
    let (udp_rate, xdp_rate): (Side, Side) =
        (|slice| exchange(slice, false), |slice| exchange(slice, true));
    [
        ("X1 ping-pong 32 B over UDP's calls: p50", "us", udp_ping, xdp_ping),
        ("X1 the same over UDP's bare sockets", "us", bare_udp_ping, xdp_ping),
        ("X1 the same over bare AF_XDP", "us", bare_xdp_ping, xdp_ping),
        ("X1 bare AF_XDP over UDP's bare sockets", "us", bare_udp_ping, bare_xdp_ping),
        ("X1 datagrams over UDP's datagrams: p50", "us", udp_echo, xdp_echo),
        ("X1 the same over UDP's bare sockets", "us", bare_udp_ping, xdp_echo),
        ("X1 the same over bare AF_XDP", "us", bare_xdp_ping, xdp_echo),
        ("X2 64 outstanding over UDP's calls", "M/s", udp_rate, xdp_rate),
        ("X2 the same over UDP's bare sockets", "M/s", bare_udp_exchange, xdp_rate),
        ("X2 the same over bare AF_XDP", "M/s", bare_xdp_exchange, xdp_rate),
        ("X2 datagrams over UDP's bare sockets", "M/s", bare_udp_exchange, xdp_echoes),
        ("X2 the same over bare AF_XDP", "M/s", bare_xdp_exchange, xdp_echoes),
        ("X2 bare AF_XDP over UDP's bare sockets", "M/s", bare_udp_exchange, bare_xdp_exchange),
    ]
}

/// The two namespaces.
#[derive(Debug)]
struct Hosts {
    near: String,
    far: String,
}

static HOSTS: OnceLock<Hosts> = OnceLock::new();

fn hosts() -> &'static Hosts {
    HOSTS.get().expect("they were made first")
}

/// Runs on the client's core, in the near namespace.
fn near<T: Send>(client: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            affinity::pin_to(CLIENT_CORE).expect("two cores");
            enter(&hosts().near);
            shielded(client)
        });
        thread.join().expect("the client")
    })
}

/// Runs `serve` on the server's core, in the far namespace, while `client` runs.
fn with_far<T: Send>(
    serve: impl FnOnce(&AtomicBool, &Barrier) + Send,
    client: impl FnOnce() -> T + Send,
) -> T {
    let (stop, start) = (AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            enter(&hosts().far);
            shielded(|| serve(&stop, &start));
        });
        start.wait();
        let result = near(client);
        stop.store(true, Ordering::Relaxed);
        server.join().expect("the server");
        result
    })
}

fn datapath(host: &str, is_xdp: bool) -> DatapathKind {
    let options = std::env::var("TAILCUT_XDP_OPTIONS").unwrap_or_default();
    let config = format!("v{host}{options}").parse().expect("a configuration");
    if is_xdp { DatapathKind::Xdp(config) } else { DatapathKind::Udp }
}

/// Calls of an echo server.
fn with_server<T: Send>(is_xdp: bool, client: impl FnOnce(Client) -> T + Send) -> T {
    let (handles, handle) = std::sync::mpsc::channel();
    let serve = move |_: &AtomicBool, start: &Barrier| {
        let builder = ServerBuilder::new().busy_poll().segmented_send(SegmentedSend::Off);
        let builder = builder.datapath(datapath(&hosts().far, is_xdp));
        let mut server = builder.bind(FAR).expect("a server");
        handles.send(server.stop_handle()).expect("the client is there");
        start.wait();
        let run = server.run(|request| {
            // A client that has gone needs no answer.
            let _ = request.reply_in_place(|_| ());
        });
        run.expect("the server's calls");
    };
    with_far(serve, move || {
        let builder = ClientBuilder::new().busy_poll().segmented_send(SegmentedSend::Off);
        let builder = builder.datapath(datapath(&hosts().near, is_xdp));
        let result = client(builder.connect(FAR).expect("a client"));
        handle.recv().expect("the server's handle").stop();
        result
    })
}

fn ping(slice_ns: u64, is_xdp: bool) -> f64 {
    with_server(is_xdp, |client| calls::ping(&client, &[1; 32], slice_ns))
}

/// Millions of calls a second, with 64 of them outstanding.
fn exchange(slice_ns: u64, is_xdp: bool) -> f64 {
    with_server(is_xdp, |client| calls::keep_outstanding(&client, (64, &[1; 32]), slice_ns))
}

/// Datagrams that a driver's nodes send back as they come.
fn echo(slice_ns: u64, is_xdp: bool, outstanding: usize) -> Driver<Pinger> {
    let open = move |host: &str, address: &str| {
        let opening = Opening {
            datapath: datapath(host, is_xdp),
            segmented_send: SegmentedSend::Off,
            ..Opening::default()
        };
        opening.bind(address.parse().expect("an address")).expect("a port")
    };
    let serve = move |stop: &AtomicBool, start: &Barrier| {
        let mut driver = Driver::new(Wait::BusyPoll).expect("a driver");
        driver.add(Echo::new(SegmentedSend::Off), open(&hosts().far, FAR), None);
        start.wait();
        while !stop.load(Ordering::Relaxed) {
            driver.turn().expect("a turn");
        }
    };
    with_far(serve, move || {
        let mut driver = Driver::new(Wait::BusyPoll).expect("a driver");
        let target = FAR.parse().expect("an address");
        let mut pinger = Pinger::new(target, 32, outstanding, SegmentedSend::Off);
        pinger.round_trips.reserve(ROUND_TRIPS);
        driver.add(pinger, open(&hosts().near, NEAR), None);
        let started = Clock.now();
        while driver.turn().expect("a turn").now.saturating_sub(started) < slice_ns {}
        driver
    })
}

fn udp_echo(slice_ns: u64) -> f64 {
    p50_us(&mut echo(slice_ns, false, 1).node_mut(0).round_trips)
}

fn xdp_echo(slice_ns: u64) -> f64 {
    p50_us(&mut echo(slice_ns, true, 1).node_mut(0).round_trips)
}

/// Millions of datagrams a second, with 64 of them outstanding.
fn xdp_echoes(slice_ns: u64) -> f64 {
    echo(slice_ns, true, 64).node(0).completed as f64 * 1e3 / slice_ns as f64
}

/// Bare sockets of UDP: `echo` at the far end.
fn with_udp<T: Send>(
    echo: fn(&UdpSocket, &AtomicBool) -> std::io::Result<()>,
    client: impl FnOnce(&UdpSocket) -> T + Send,
) -> T {
    let open = |address: &str| {
        let socket = bare::bind(address.parse().expect("an address")).expect("a socket");
        socket.set_nonblocking(true).expect("the option");
        socket
    };
    let serve = |stop: &AtomicBool, start: &Barrier| {
        let socket = open(FAR);
        start.wait();
        echo(&socket, stop).expect("the echo's calls");
    };
    with_far(serve, || client(&open(NEAR)))
}

fn bare_udp_ping(slice_ns: u64) -> f64 {
    with_udp(bare::echo_spin, |socket| {
        socket.connect(FAR).expect("a connection");
        let mut round_trips = Vec::with_capacity(ROUND_TRIPS);
        bare::ping_spin(socket, &[1; 32], slice_ns, &mut round_trips).expect("the client's calls");
        p50_us(&mut round_trips)
    })
}

fn bare_udp_exchange(slice_ns: u64) -> f64 {
    with_udp(bare::echo_batched, |socket| {
        let target: SocketAddr = FAR.parse().expect("an address");
        let load = Load { target, payload_len: 32, outstanding: 64, slice_ns };
        bare::exchange_batched(socket, &load).expect("the client's calls").rate() / 1e6
    })
}

/// Bare rings: frames are sent back as they come, but for their addresses.
fn with_xdp<T: Send>(client: impl FnOnce(&mut Xsk) -> T + Send) -> T {
    let open = |host: &str, address: &str| {
        let DatapathKind::Xdp(config) = datapath(host, true) else {
            unreachable!("it is asked for")
        };
        let address = address.parse().expect("an address");
        XdpPort::bind(address, config, UdpConfig::default()).expect("a port")
    };
    let serve = |stop: &AtomicBool, start: &Barrier| {
        let mut port = open(&hosts().far, FAR);
        assert_eq!(port.local_address().to_string(), FAR);
        start.wait();
        let rings = port.rings_mut();
        let mut frames: Vec<[u8; FRAME_LEN]> = Vec::with_capacity(64);
        while !stop.load(Ordering::Relaxed) {
            rings.receive(64, |frame| frames.extend(frame.first_chunk().copied()));
            for frame in frames.drain(..) {
                send(rings, &answer(frame));
            }
            rings.kick().expect("the interface");
        }
    };
    with_far(serve, || client(open(&hosts().near, NEAR).rings_mut()))
}

/// Puts a frame into the ring.
fn send(rings: &mut Xsk, frame: &[u8; FRAME_LEN]) {
    rings.frame()[..FRAME_LEN].copy_from_slice(frame);
    assert!(rings.push(&[], (0..FRAME_LEN, true)), "there is room for 64");
}

fn answer(mut frame: [u8; FRAME_LEN]) -> [u8; FRAME_LEN] {
    for (first, len) in [(0, 6), (26, 4), (34, 2)] {
        let (ours, theirs) = frame[first..].split_at_mut(len);
        ours.swap_with_slice(&mut theirs[..len]);
    }
    frame
}

/// Ethernet, IPv4 and UDP without a checksum, from near to far, with 32 bytes.
fn request() -> [u8; FRAME_LEN] {
    let mut frame = [1; FRAME_LEN];
    frame[..6].copy_from_slice(&FAR_MAC);
    frame[6..12].copy_from_slice(&NEAR_MAC);
    let ip = [8, 0, 0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2];
    frame[12..34].copy_from_slice(&ip);
    frame[34..42].copy_from_slice(&[0x1f, 0x41, 0x1f, 0x40, 0, 40, 0, 0]);
    frame
}

fn bare_xdp_ping(slice_ns: u64) -> f64 {
    with_xdp(|rings| {
        let mut round_trips = Vec::with_capacity(ROUND_TRIPS);
        let end = Clock.now() + slice_ns;
        let mut now = Clock.now();
        while now < end {
            send(rings, &request());
            rings.kick().expect("the interface");
            while rings.receive(1, |_| ()) == 0 {
                let waited_until = Clock.now();
                if waited_until > end {
                    break;
                }
                if waited_until - now > LOST_NS {
                    send(rings, &request());
                    rings.kick().expect("the interface");
                    now = Clock.now();
                }
            }
            let after = Clock.now();
            round_trips.push(after - now);
            now = after;
        }
        assert!(!round_trips.is_empty(), "something came back");
        p50_us(&mut round_trips)
    })
}

fn bare_xdp_exchange(slice_ns: u64) -> f64 {
    with_xdp(|rings| {
        let (started, mut to_send, mut completed) = (Clock.now(), 64, 0);
        while Clock.now() - started < slice_ns {
            (0..to_send).for_each(|_| send(rings, &request()));
            rings.kick().expect("the interface");
            to_send = rings.receive(64, |_| ());
            completed += to_send;
        }
        completed as f64 * 1e3 / (Clock.now() - started) as f64
    })
}

const NEAR: &str = "10.77.0.1:8001";
const FAR: &str = "10.77.0.2:8000";
const NEAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Time after which what has not come back was lost: an interface drops what comes while a program
/// is attached.
const LOST_NS: u64 = 10_000_000;

/// Headers of 42 bytes, and 32.
const FRAME_LEN: usize = 74;
