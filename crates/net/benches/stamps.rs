//! Latencies that a client in user space measures, request by request, against the server's own
//! kernel stamps; and the cost of the sockets under the instrument above the kernel.
//!
//! `cargo bench -p tailcut-net --bench stamps`: two pinned cores, the client busy-polling. An error
//! is the client's latency minus the time from the server's kernel receiving the request to its
//! kernel sending the reply. On loopback nothing lies between the two but the client, and the
//! server's transmit stamp itself, which the kernel makes before the reply goes on: every other
//! reply is not stamped, and the difference of the client's medians is what the stamp takes. The
//! ratios alternate slices with the bare loops of [`support::bare`].

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use support::*;
use tailcut_net::affinity;
use tailcut_net::clock::Clock;
use tailcut_net::datagram::{DatagramConfig, DatagramEvent, Datagrams, FlowId};
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::Wait;
use tailcut_net::stamps::{StampConfig, StampSource, Stamping};
use tailcut_net::stream::{Connection, ConnectionId, Event, StreamConfig, Streams};
use tailcut_net::udp::{UdpConfig, UdpPort};
use tailcut_proto::node::Transmit;

fn main() {
    let is_quick = std::env::var_os("TAILCUT_BENCH_QUICK").is_some();
    let slices = if is_quick { 1 } else { 5 };
    let _stamped = hold_receive_stamps();
    println!(
        "{:<32} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "error at 10 k requests/s, us", "median", "p99", "p99.9", "the stamp", "requests"
    );
    // Slices of the floor and of ours alternate, so that both have the same minutes.
    let pairs = |errors: fn(Client) -> Errors| {
        (0..slices).map(move |_| [errors(Client::Bare), errors(Client::Ours)])
    };
    print_errors("UDP", pairs(udp_errors));
    print_errors("TCP", pairs(tcp_errors));
    let plan = Plan { pairs: if is_quick { 3 } else { 15 }, slice_ns: 80_000_000 };
    println!(
        "{:<40} {:>3} {:>10} {:>10} {:>7} {:>15} {:>9}",
        "against the bare loops", "", "bare", "ours", "ratio", "quartiles", "cores"
    );
    compare("UDP ping-pong, p50", "us", &plan, (bare_ping_spin, udp_ping));
    compare("TCP ping-pong, p50", "us", &plan, (bare_stream_ping, tcp_ping));
    compare("UDP, 64 outstanding, one flow", "M/s", &plan, (bare_batched, udp_rate));
    compare("TCP, 64 connections, over bare mmsg UDP", "M/s", &plan, (bare_batched, tcp_rate));
}

/// The kernel turns receive stamps on for the whole machine by a worker of its own, which does not
/// get to run while two pollers have the cores: so they are turned on before, and stay on while
/// this socket lives.
fn hold_receive_stamps() -> UdpPort {
    let mut port = UdpPort::bind(loopback(), UdpConfig::default()).expect("a port");
    port.set_stamps(KERNEL).expect("stamps");
    let own = port.local_address();
    let mut is_stamped = false;
    while !is_stamped {
        port.send(&Transmit::single(own, 1), &[0]);
        port.recv_burst_stamped(|_, _, stamps| is_stamped |= stamps.kernel_ns.is_some())
            .expect("a receive");
    }
    port
}

fn print_errors(name: &str, pairs: impl Iterator<Item = [Errors; 2]>) {
    let (floors, ours): (Vec<_>, Vec<_>) = pairs.map(|[floor, ours]| (floor, ours)).unzip();
    print_client(&format!("{name}, a bare loop"), floors);
    print_client(&format!("{name}, tailcut's sockets"), ours);
}

fn print_client(name: &str, slices: Vec<Errors>) {
    let stamp = median(slices.iter().map(|slice| slice.stamp_ns)) / 1e3;
    let mut errors_ns: Vec<i64> = slices.into_iter().flat_map(|slice| slice.errors_ns).collect();
    errors_ns.sort_unstable();
    let at = |per_mille: usize| errors_ns[(errors_ns.len() - 1) * per_mille / 1_000] as f64 / 1e3;
    println!(
        "{name:<32} {:>10.2} {:>10.2} {:>10.2} {stamp:>10.2} {:>10}",
        at(500),
        at(990),
        at(999),
        errors_ns.len()
    );
}

/// Client whose latencies are held against the server's stamps.
#[derive(Clone, Copy)]
enum Client {
    /// The least there is: a send, and reads until there is something.
    Bare,
    /// The sockets under the instrument.
    Ours,
}

/// Result of one slice.
struct Errors {
    /// Errors of the requests whose reply was stamped.
    errors_ns: Vec<i64>,
    /// Time that the stamp adds to the client's median.
    stamp_ns: f64,
}

/// Errors in nanoseconds of one slice.
fn udp_errors(client: Client) -> Errors {
    let mut port = UdpPort::bind(loopback(), UdpConfig::default()).expect("a port");
    port.set_stamps(KERNEL).expect("stamps");
    let target = port.local_address();
    let (times, users) = on_two_cores(
        |stop| {
            let mut times = Times::new();
            while !stop.load(Ordering::Relaxed) {
                let mut request = None;
                port.recv_burst_stamped(|path, bytes, stamps| {
                    times.receive(number(bytes), stamps.kernel_ns);
                    request = Some((path.peer, number(bytes)));
                })
                .expect("a receive");
                if let Some((peer, number)) = request {
                    let token = if is_stamped(number) { number + 1 } else { 0 };
                    let reply = Transmit { token, ..Transmit::single(peer, LEN) };
                    port.send(&reply, &message(number));
                }
                port.take_stamps(|token, stamps| times.send(token - 1, stamps.kernel_ns));
            }
            times
        },
        || match client {
            Client::Bare => bare_udp(target),
            Client::Ours => our_udp(target),
        },
    );
    times.errors(&users)
}

fn bare_udp(target: SocketAddr) -> Vec<u64> {
    let socket = bare::bind(loopback()).expect("a socket");
    socket.connect(target).expect("a connection");
    socket.set_nonblocking(true).expect("the option");
    let mut buffer = [0; LEN];
    run_schedule(|number| {
        socket.send(&message(number)).expect("a send");
        while socket.recv(&mut buffer).is_err() {}
    })
}

fn our_udp(target: SocketAddr) -> Vec<u64> {
    let mut datagrams =
        Datagrams::new(Wait::BusyPoll, DatagramConfig::default()).expect("no flows");
    let flow = datagrams.open(target).expect("a flow");
    run_schedule(|number| {
        datagrams.send(flow, &message(number));
        while datagrams.poll(None, |_, _| ()).expect("a turn") == 0 {}
    })
}

/// Errors in nanoseconds of one slice.
fn tcp_errors(client: Client) -> Errors {
    let config = StreamConfig { stamps: KERNEL, ..StreamConfig::default() };
    let mut streams = Streams::new(Wait::BusyPoll, config).expect("streams");
    let listener = streams.listen(loopback(), None).expect("a port");
    let target = streams.listen_address(listener).expect("an address");
    let (times, users) = on_two_cores(
        |stop| {
            let mut times = Times::new();
            while !stop.load(Ordering::Relaxed) {
                let serve = |connection: &mut Connection<'_>, event: Event<'_>| match event {
                    Event::Bytes(bytes) => {
                        times.receive(number(bytes), connection.received().kernel_ns);
                        connection.output().extend_from_slice(bytes);
                        if is_stamped(number(bytes)) {
                            connection.stamp();
                        }
                    }
                    // Each message has the same length, the first has number 0.
                    Event::Sent(sent) => times.send(sent.last / LEN as u64, sent.stamps.kernel_ns),
                    _ => {}
                };
                streams.poll(None, serve).expect("a turn");
            }
            times
        },
        || match client {
            Client::Bare => bare_tcp(target),
            Client::Ours => our_tcp(target),
        },
    );
    times.errors(&users)
}

fn bare_tcp(target: SocketAddr) -> Vec<u64> {
    let mut stream = TcpStream::connect(target).expect("a connection");
    stream.set_nodelay(true).expect("the option");
    stream.set_nonblocking(true).expect("the option");
    let mut buffer = [0; LEN];
    run_schedule(|number| {
        stream.write_all(&message(number)).expect("a write");
        while stream.read(&mut buffer).is_err() {}
    })
}

fn our_tcp(target: SocketAddr) -> Vec<u64> {
    let mut streams = Streams::new(Wait::BusyPoll, StreamConfig::default()).expect("streams");
    let id = streams.connect(target, None).expect("a connection");
    while streams.poll(None, |_, event| assert_eq!(event, Event::Connected)).expect("a turn") == 0 {
    }
    run_schedule(|number| {
        streams.output(id).expect("an open connection").extend_from_slice(&message(number));
        streams.flush(id);
        while streams.poll(None, |_, _| ()).expect("a turn") == 0 {}
    })
}

/// Times at which the server's kernel saw each request and its reply, by the request's number; 0
/// for never.
struct Times {
    received: Vec<u64>,
    sent: Vec<u64>,
}

impl Times {
    fn new() -> Self {
        Self { received: vec![0; REQUESTS], sent: vec![0; REQUESTS] }
    }

    fn receive(&mut self, number: u64, time_ns: Option<u64>) {
        self.received[number as usize] = time_ns.unwrap_or(0);
    }

    fn send(&mut self, number: u64, time_ns: Option<u64>) {
        self.sent[number as usize] = time_ns.unwrap_or(0);
    }

    /// The user's latencies minus the server's; warming up is left out.
    fn errors(&self, users_ns: &[u64]) -> Errors {
        let server = self.received.iter().zip(&self.sent).zip(users_ns).skip(WARM_UP);
        let stamped = server.filter(|((received, sent), _)| **received > 0 && **sent > 0);
        let errors_ns: Vec<i64> = stamped
            .map(|((received, sent), user)| *user as i64 - (*sent as i64 - *received as i64))
            .collect();
        let count = errors_ns.len();
        assert!(
            count * 20 >= (REQUESTS - WARM_UP) * 9,
            "{count} of {REQUESTS} requests have stamps"
        );
        let user = |stamped: bool| {
            let chosen = (WARM_UP..REQUESTS).filter(|&number| is_stamped(number as u64) == stamped);
            median(chosen.map(|number| users_ns[number] as f64))
        };
        Errors { errors_ns, stamp_ns: user(true) - user(false) }
    }
}

/// True if the reply to a request is stamped: every other one.
fn is_stamped(number: u64) -> bool {
    number.is_multiple_of(2)
}

/// Calls at 10,000 a second, one at a time; returns how long each took from before its send to
/// after its receive.
fn run_schedule(mut call: impl FnMut(u64)) -> Vec<u64> {
    let start = Clock.now();
    let one = |number: u64| {
        let intended = start + number * GAP_NS;
        while Clock.now() < intended {}
        let sent = Clock.now();
        call(number);
        Clock.now() - sent
    };
    (0..REQUESTS as u64).map(one).collect()
}

/// Runs a server on its core while the client runs here; returns what both say.
fn on_two_cores<S: Send, C>(
    server: impl FnOnce(&AtomicBool) -> S + Send,
    client: impl FnOnce() -> C,
) -> (S, C) {
    let (stop, start) = (AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            start.wait();
            shielded(|| server(&stop))
        });
        affinity::pin_to(CLIENT_CORE).expect("two cores");
        start.wait();
        let result = shielded(client);
        stop.store(true, Ordering::Relaxed);
        (thread.join().expect("the server"), result)
    })
}

fn bare_stream_ping(slice_ns: u64) -> f64 {
    let listener = TcpListener::bind(loopback()).expect("a port");
    let target = listener.local_addr().expect("an address");
    let client = TcpStream::connect(target).expect("a connection");
    let (server, _) = listener.accept().expect("a connection");
    let ping = || {
        let mut round_trips = Vec::with_capacity(ROUND_TRIPS);
        bare::ping_stream_spin(&client, &[1; 32], slice_ns, &mut round_trips)
            .expect("the client's calls");
        p50_us(&mut round_trips)
    };
    on_two_cores(|stop| bare::echo_stream_spin(&server, stop).expect("the echo's calls"), ping).1
}

fn udp_ping(slice_ns: u64) -> f64 {
    with_bare(bare::echo_spin, |target| {
        let mut datagrams =
            Datagrams::new(Wait::BusyPoll, DatagramConfig::default()).expect("no flows");
        let flow = datagrams.open(target).expect("a flow");
        let exchange = || {
            datagrams.send(flow, &[1; 32]);
            while datagrams.poll(None, |_, _| ()).expect("a turn") == 0 {}
        };
        round_trip(slice_ns, exchange)
    })
}

fn tcp_ping(slice_ns: u64) -> f64 {
    let listener = TcpListener::bind(loopback()).expect("a port");
    let target = listener.local_addr().expect("an address");
    let mut streams = Streams::new(Wait::BusyPoll, StreamConfig::default()).expect("streams");
    let id = streams.connect(target, None).expect("a connection");
    let (server, _) = listener.accept().expect("a connection");
    while streams.poll(None, |_, event| assert_eq!(event, Event::Connected)).expect("a turn") == 0 {
    }
    let exchange = || {
        streams.output(id).expect("an open connection").extend_from_slice(&[1; 32]);
        streams.flush(id);
        while streams.poll(None, |_, _| ()).expect("a turn") == 0 {}
    };
    on_two_cores(
        |stop| bare::echo_stream_spin(&server, stop).expect("the echo's calls"),
        || round_trip(slice_ns, exchange),
    )
    .1
}

/// The median of what one exchange takes, us.
fn round_trip(slice_ns: u64, mut exchange: impl FnMut()) -> f64 {
    let mut round_trips = Vec::with_capacity(ROUND_TRIPS);
    let mut last = Clock.now();
    let end = last + slice_ns;
    while last < end {
        exchange();
        let now = Clock.now();
        if round_trips.len() < round_trips.capacity() {
            round_trips.push(now - last);
        }
        last = now;
    }
    p50_us(&mut round_trips)
}

fn udp_rate(slice_ns: u64) -> f64 {
    with_bare(bare::echo_batched, |target| {
        let mut datagrams =
            Datagrams::new(Wait::BusyPoll, DatagramConfig::default()).expect("no flows");
        let flow = datagrams.open(target).expect("a flow");
        let mut to_send = 64;
        rate(slice_ns, || udp_turn(&mut datagrams, flow, &mut to_send))
    })
}

/// Sends as many as have come back; returns how many did.
fn udp_turn(datagrams: &mut Datagrams, flow: FlowId, to_send: &mut usize) -> u64 {
    (0..*to_send).for_each(|_| datagrams.queue(flow, &[1; 32]));
    datagrams.flush();
    *to_send = 0;
    let count = |_, event: DatagramEvent<'_>| {
        *to_send += usize::from(matches!(event, DatagramEvent::Bytes(..)))
    };
    datagrams.poll(None, count).expect("a turn");
    *to_send as u64
}

/// One message on its way on each of 64 connections.
fn tcp_rate(slice_ns: u64) -> f64 {
    let mut server = Streams::new(Wait::BusyPoll, StreamConfig::default()).expect("streams");
    let listener = server.listen(loopback(), None).expect("a port");
    let target: SocketAddr = server.listen_address(listener).expect("an address");
    let serve = |stop: &AtomicBool| {
        while !stop.load(Ordering::Relaxed) {
            let echo = |connection: &mut Connection<'_>, event: Event<'_>| {
                if let Event::Bytes(bytes) = event {
                    connection.output().extend_from_slice(bytes);
                }
            };
            server.poll(None, echo).expect("a turn");
        }
    };
    let client = || {
        let mut streams = Streams::new(Wait::BusyPoll, StreamConfig::default()).expect("streams");
        let ids: Vec<ConnectionId> =
            (0..64).map(|_| streams.connect(target, None).expect("a connection")).collect();
        let mut connected = 0;
        while connected < ids.len() {
            connected += streams.poll(None, |_, _| ()).expect("a turn");
        }
        for id in ids {
            streams.output(id).expect("an open connection").extend_from_slice(&[1; 32]);
            streams.flush(id);
        }
        rate(slice_ns, || {
            let again = |connection: &mut Connection<'_>, event: Event<'_>| {
                if let Event::Bytes(bytes) = event {
                    connection.output().extend_from_slice(bytes);
                }
            };
            streams.poll(None, again).expect("a turn") as u64
        })
    };
    on_two_cores(serve, client).1
}

/// Millions a second of what `turn` returns.
fn rate(slice_ns: u64, mut turn: impl FnMut() -> u64) -> f64 {
    let (start, mut count, mut elapsed_ns) = (Clock.now(), 0, 0);
    while elapsed_ns < slice_ns {
        count += turn();
        elapsed_ns = Clock.now() - start;
    }
    count as f64 * 1e3 / elapsed_ns as f64
}

fn message(number: u64) -> [u8; LEN] {
    let mut message = [0; LEN];
    message[..8].copy_from_slice(&number.to_le_bytes());
    message
}

fn number(message: &[u8]) -> u64 {
    message.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

const KERNEL: StampConfig = StampConfig { stamping: Stamping::Kernel, source: StampSource::Kernel };

/// Bytes of a request and of a reply.
const LEN: usize = 64;

/// 10,000 a second.
const GAP_NS: u64 = 100_000;

/// Requests of one slice: 0.8 s, so that the kernel's fair server does not take the core.
const REQUESTS: usize = 8_000;

/// Receive stamps begin some milliseconds after they were asked for.
const WARM_UP: usize = 1_000;
