//! The library against the kernel's own floor, and the router against NGINX: every row that the
//! project promises.
//!
//! `make bench` runs it. Each row alternates slices of the baseline and of tailcut on the same two
//! pinned cores and prints the median of the ratios with its quartiles; no row is gated on time.
//! `TAILCUT_BENCH_QUICK=1` runs every row briefly.

#[path = "../../net/benches/support/mod.rs"]
mod support;

mod calls;
mod log;
mod routing;

use std::net::SocketAddr;
use std::sync::Barrier;

use calls::{StopOnDrop, keep_outstanding};
use support::*;
use tailcut::{
    Client, ClientBuilder, DispatchConfig, InPlace, Protocol, Request, SegmentedSend, Server,
    ServerBuilder, Wait,
};
use tailcut_net::affinity;
use tailcut_net::clock::Clock;

fn main() {
    let plan = Plan { pairs: 15, slice_ns: 100_000_000 }.or_brief(3);
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    print_head("baseline", "tailcut");
    affinity::pin_to(CLIENT_CORE).expect("two cores");
    let rows = library_rows().into_iter().chain(dispatcher_rows()).chain(second_packet_rows());
    let rows = rows.chain(log_rows());
    for (name, unit, baseline, ours) in rows {
        if wanted(name) {
            compare(name, unit, &plan, (baseline, ours));
        }
    }
    for (name, unit, baseline, ours) in routing::rows() {
        if wanted(name) {
            compare(name, unit, &plan, (baseline, ours));
        }
    }
}

fn library_rows() -> [(&'static str, &'static str, Side, Side); 12] {
    [
        ("B1 ping-pong 32 B, polling: p50", "us", bare_ping_spin, |slice| {
            ping(slice, Wait::BusyPoll)
        }),
        ("B2 ping-pong 32 B, blocking: p50", "us", bare_ping_blocking, |slice| {
            ping(slice, Wait::Block { spin_ns: 0 })
        }),
        ("B2 the same, spinning 50 us before sleep", "us", bare_ping_blocking, |slice| {
            ping(slice, Wait::default())
        }),
        ("B4 64 outstanding, a datagram a message", "M/s", bare_batched, |slice| {
            exchange(slice, SegmentedSend::Off)
        }),
        ("B5 64 outstanding, coalesced", "M/s", bare_batched, |slice| {
            exchange(slice, SegmentedSend::On)
        }),
        ("B11 1 MB messages: goodput", "GB/s", stream_goodput, |slice| {
            message_goodput(slice, Protocol::R2p2)
        }),
        (
            "H1 Homa ping-pong 100 B, polling: p50",
            "us",
            |slice| bare_ping_spin_of(slice, &[1; 100]),
            |slice| homa_ping(slice, Wait::BusyPoll),
        ),
        (
            "H1 the same, blocking: p50",
            "us",
            |slice| bare_ping_blocking_of(slice, &[1; 100]),
            |slice| homa_ping(slice, Wait::Block { spin_ns: 0 }),
        ),
        ("H2 Homa 1 MB messages: goodput", "GB/s", stream_goodput, |slice| {
            message_goodput(slice, Protocol::Homa)
        }),
        (
            "H3 64 outstanding 100 B: Homa over R2P2",
            "M/s",
            |slice| calls(slice, Protocol::R2p2, (64, &[1; 100])),
            |slice| calls(slice, Protocol::Homa, (64, &[1; 100])),
        ),
        (
            "H3 512 outstanding",
            "M/s",
            |slice| calls(slice, Protocol::R2p2, (512, &[1; 100])),
            |slice| calls(slice, Protocol::Homa, (512, &[1; 100])),
        ),
        (
            "H3 4,096 outstanding",
            "M/s",
            |slice| calls(slice, Protocol::R2p2, (4_096, &[1; 100])),
            |slice| calls(slice, Protocol::Homa, (4_096, &[1; 100])),
        ),
    ]
}

/// A server with a worker of its own, over one whose handler runs on its thread.
fn dispatcher_rows() -> [(&'static str, &'static str, Side, Side); 6] {
    [
        ("D1 64 outstanding, a worker on the same core", "M/s", echo_alone, |slice| {
            echo_by_worker(slice, (SERVER_CORE, InPlace::Auto))
        }),
        ("D1 the same, the worker on the client's core", "M/s", echo_alone, |slice| {
            echo_by_worker(slice, (CLIENT_CORE, InPlace::Auto))
        }),
        ("D1 a worker on the same core, all handed off", "M/s", echo_alone, |slice| {
            echo_by_worker(slice, (SERVER_CORE, InPlace::Never))
        }),
        ("D1 the worker on the client's, all handed off", "M/s", echo_alone, |slice| {
            echo_by_worker(slice, (CLIENT_CORE, InPlace::Never))
        }),
        ("D1 CPU time a call of the server's thread", "ns", cpu_alone, |slice| {
            cpu_by_worker(slice, (CLIENT_CORE, InPlace::Auto))
        }),
        ("D1 the same, a worker on the same core", "ns", cpu_alone, |slice| {
            cpu_by_worker(slice, (SERVER_CORE, InPlace::Auto))
        }),
    ]
}

/// Cost of a second packet.
fn second_packet_rows() -> [(&'static str, &'static str, Side, Side); 4] {
    [
        (
            "B12 1,400 B over 1,024 B, polling: p50",
            "us",
            |slice| ping_over(slice, (Protocol::R2p2, Wait::BusyPoll), &[1; 1_024]),
            |slice| ping_over(slice, (Protocol::R2p2, Wait::BusyPoll), &[1; 1_400]),
        ),
        (
            "B12 the same, 16 outstanding: calls/s",
            "M/s",
            |slice| calls(slice, Protocol::R2p2, (16, &[1; 1_024])),
            |slice| calls(slice, Protocol::R2p2, (16, &[1; 1_400])),
        ),
        (
            "B12 the same over Homa, polling: p50",
            "us",
            |slice| ping_over(slice, (Protocol::Homa, Wait::BusyPoll), &[1; 1_024]),
            |slice| ping_over(slice, (Protocol::Homa, Wait::BusyPoll), &[1; 1_400]),
        ),
        (
            "B12 over Homa, 16 outstanding: calls/s",
            "M/s",
            |slice| calls(slice, Protocol::Homa, (16, &[1; 1_024])),
            |slice| calls(slice, Protocol::Homa, (16, &[1; 1_400])),
        ),
    ]
}

/// Cost of a log at WARN, the command's default, over none.
fn log_rows() -> [(&'static str, &'static str, Side, Side); 1] {
    [(
        "B13 64 outstanding, a log at WARN: calls/s",
        "M/s",
        |slice| calls(slice, Protocol::R2p2, (64, &[1; 32])),
        |slice| {
            let _log = log::Listening::begin();
            calls(slice, Protocol::R2p2, (64, &[1; 32]))
        },
    )]
}

fn ping(slice_ns: u64, wait: Wait) -> f64 {
    ping_over(slice_ns, (Protocol::R2p2, wait), &[1; 32])
}

fn homa_ping(slice_ns: u64, wait: Wait) -> f64 {
    ping_over(slice_ns, (Protocol::Homa, wait), &[1; 100])
}

fn ping_over(slice_ns: u64, (protocol, wait): (Protocol, Wait), request: &[u8]) -> f64 {
    with_server(ServerBuilder::new().wait(wait).protocol(protocol), |target| {
        let client =
            ClientBuilder::new().wait(wait).protocol(protocol).connect(target).expect("a client");
        calls::ping(&client, request, slice_ns)
    })
}

fn exchange(slice_ns: u64, segmented_send: SegmentedSend) -> f64 {
    let server = ServerBuilder::new().busy_poll().segmented_send(segmented_send);
    with_server(server, |target| {
        let client = ClientBuilder::new()
            .busy_poll()
            .segmented_send(segmented_send)
            .connect(target)
            .expect("a client");
        keep_outstanding(&client, (64, &[1; 32]), slice_ns)
    })
}

/// So many calls outstanding.
fn calls(slice_ns: u64, protocol: Protocol, load: (usize, &[u8])) -> f64 {
    with_server(ServerBuilder::new().busy_poll().protocol(protocol), |target| {
        let client =
            ClientBuilder::new().busy_poll().protocol(protocol).connect(target).expect("a client");
        keep_outstanding(&client, load, slice_ns)
    })
}

fn message_goodput(slice_ns: u64, protocol: Protocol) -> f64 {
    with_server_of(ServerBuilder::new().busy_poll().protocol(protocol), 8, |target| {
        let client =
            ClientBuilder::new().busy_poll().protocol(protocol).connect(target).expect("a client");
        calls::goodput(&client, MESSAGE_LEN, slice_ns)
    })
}

/// Millions of calls a second of a server whose handler runs on its thread.
fn echo_alone(slice_ns: u64) -> f64 {
    with_sleeping_server(slice_ns, |server| server.run(echo)).rate
}

/// Millions of calls a second behind the dispatcher, whose one worker is on this core, and runs all
/// requests or those that are not short.
fn echo_by_worker(slice_ns: u64, worker: (usize, InPlace)) -> f64 {
    by_worker(slice_ns, worker).rate
}

/// Nanoseconds of processor that a server's thread takes for a call. They bound how many it serves
/// where every thread has a core of its own, which two cores cannot give to a client, a server and
/// its worker.
fn cpu_alone(slice_ns: u64) -> f64 {
    with_sleeping_server(slice_ns, |server| server.run(echo)).cpu_ns
}

/// Nanoseconds of processor that the dispatching thread takes for a call.
fn cpu_by_worker(slice_ns: u64, worker: (usize, InPlace)) -> f64 {
    by_worker(slice_ns, worker).cpu_ns
}

fn by_worker(slice_ns: u64, (core, in_place): (usize, InPlace)) -> Served {
    let config = DispatchConfig { cores: vec![core], in_place, ..DispatchConfig::new(1) };
    with_sleeping_server(slice_ns, |server| server.run_workers(config, echo))
}

fn echo(request: Request<'_>) {
    // A client that has gone needs no answer.
    let _ = request.reply_in_place(|_| ());
}

/// Results of a server.
struct Served {
    /// Millions of calls a second.
    rate: f64,
    /// Nanoseconds of processor that its thread took for each.
    cpu_ns: f64,
}

/// Three threads share two cores here, so that none may keep one to itself, by its class or by its
/// polling, with a worker or without.
fn with_sleeping_server(
    slice_ns: u64,
    serve: impl FnOnce(&mut Server) -> Result<(), tailcut::Error> + Send,
) -> Served {
    let mut server = Server::bind("127.0.0.1:0").expect("a server");
    let (target, stop) = (server.local_address(), server.stop_handle());
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            let before = thread_cpu_ns();
            serve(&mut server).map(|()| thread_cpu_ns() - before)
        });
        // A client that fails ends the bench, and does not leave it waiting for a server.
        let stop = StopOnDrop(stop);
        let client = Client::connect(target).expect("a client");
        // What a server learns from thousands of calls it has learned by then.
        keep_outstanding(&client, (64, &[1; 32]), slice_ns / 2);
        let began_at = Clock.now();
        let rate = keep_outstanding(&client, (64, &[1; 32]), slice_ns);
        let calls = rate * (Clock.now() - began_at) as f64 / 1e3;
        drop(stop);
        let cpu_ns = thread.join().expect("the server").expect("the server's calls");
        Served { rate, cpu_ns: cpu_ns as f64 / calls }
    })
}

/// Nanoseconds of processor that this thread has taken, as the kernel accounts for it.
fn thread_cpu_ns() -> u64 {
    // Whoever yields is accounted for up to now, and not up to the last tick.
    std::thread::yield_now();
    let text =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel's account");
    let first = text.split_whitespace().next().and_then(|text| text.parse().ok());
    first.expect("nanoseconds first")
}

/// The bare stream's figure, 1 KB datagrams, in bytes.
fn stream_goodput(slice_ns: u64) -> f64 {
    bare_stream(slice_ns) * 1024.0 / 1e3
}

/// An echo server on the server's core while `client` runs here.
fn with_server<T>(builder: ServerBuilder, client: impl FnOnce(SocketAddr) -> T) -> T {
    with_server_of(builder, usize::MAX, client)
}

/// An echo server as of [`with_server`], with replies cut to `reply_len_max` bytes.
fn with_server_of<T>(
    builder: ServerBuilder,
    reply_len_max: usize,
    client: impl FnOnce(SocketAddr) -> T,
) -> T {
    let mut server = builder.bind("127.0.0.1:0").expect("a server");
    let (target, stop, start) = (server.local_address(), server.stop_handle(), Barrier::new(2));
    std::thread::scope(|scope| {
        let stop = StopOnDrop(stop);
        let thread = scope.spawn(|| {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            start.wait();
            shielded(|| {
                server.run(|request| {
                    // A client that has gone needs no answer.
                    let _ = request.reply_in_place(|bytes| bytes.truncate(reply_len_max));
                })
            })
        });
        start.wait();
        let result = shielded(|| client(target));
        drop(stop);
        thread.join().expect("the server").expect("the server's calls");
        result
    })
}

const MESSAGE_LEN: usize = 1_000_000;
