//! A byte stream against TCP, and against datagrams in bare GSO batches: goodput of one stream, and
//! a ping-pong.
//!
//! Slices of the baseline and of streams alternate on the same two cores; the client's task and
//! thread share one of them, the server's the other. Tasks run on tokio, current thread, over
//! either. `TAILCUT_BENCH_QUICK=1` runs every row briefly.

#[path = "../../net/benches/support/mod.rs"]
mod support;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::mpsc;

use support::*;
use tailcut::Wait;
use tailcut::stream::{StreamBuilder, StreamListener};
use tailcut_net::affinity;
use tailcut_net::clock::Clock;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn main() {
    let plan = Plan { pairs: 9, slice_ns: 300_000_000 }.or_brief(3);
    print_head("baseline", "streams");
    affinity::pin_to(CLIENT_CORE).expect("two cores");
    let rows: [(&str, &str, Side, Side); 7] = [
        ("one stream over bare GSO batches: goodput", "GB/s", bare_goodput, |slice| {
            goodput(SPINNING, slice)
        }),
        (
            "one stream over TCP: goodput",
            "GB/s",
            |slice| goodput(Kind::Tcp, slice),
            |slice| goodput(SPINNING, slice),
        ),
        (
            "the same, sleeping at once",
            "GB/s",
            |slice| goodput(Kind::Tcp, slice),
            |slice| goodput(SLEEPING, slice),
        ),
        (
            "ping-pong 100 B over TCP: p50",
            "us",
            |slice| ping(Kind::Tcp, slice),
            |slice| ping(SPINNING, slice),
        ),
        (
            "the same, sleeping at once",
            "us",
            |slice| ping(Kind::Tcp, slice),
            |slice| ping(SLEEPING, slice),
        ),
        (
            "64 KiB there, 100 B back over TCP: p50",
            "us",
            |slice| push(Kind::Tcp, slice),
            |slice| push(SPINNING, slice),
        ),
        (
            "the same, sleeping at once",
            "us",
            |slice| push(Kind::Tcp, slice),
            |slice| push(SLEEPING, slice),
        ),
    ];
    for (name, unit, baseline, ours) in rows {
        compare(name, unit, &plan, (baseline, ours));
    }
}

/// Carrier of the bytes.
#[derive(Clone, Copy)]
enum Kind {
    Tcp,
    Streams(Wait),
}

enum Listener {
    Tcp(TcpListener),
    Streams(StreamListener),
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

type End = Box<dyn Duplex>;

impl Kind {
    async fn listen(self) -> (Listener, SocketAddr) {
        match self {
            Self::Tcp => {
                let listener = TcpListener::bind(loopback()).await.expect("a port");
                let address = listener.local_addr().expect("an address");
                (Listener::Tcp(listener), address)
            }
            Self::Streams(wait) => {
                let listener = StreamBuilder::new().wait(wait).bind(loopback()).expect("a port");
                let address = listener.local_address();
                (Listener::Streams(listener), address)
            }
        }
    }

    async fn connect(self, target: SocketAddr) -> End {
        match self {
            Self::Tcp => {
                let stream = TcpStream::connect(target).await.expect("a connection");
                stream.set_nodelay(true).expect("the option");
                Box::new(stream)
            }
            Self::Streams(wait) => {
                Box::new(StreamBuilder::new().wait(wait).connect(target).await.expect("a stream"))
            }
        }
    }
}

impl Listener {
    async fn accept(&mut self) -> End {
        match self {
            Self::Tcp(listener) => {
                let stream = listener.accept().await.expect("a connection").0;
                stream.set_nodelay(true).expect("the option");
                Box::new(stream)
            }
            Self::Streams(listener) => Box::new(listener.accept().await.expect("a stream").0),
        }
    }
}

fn run<T>(task: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(task)
}

/// Runs `serve` on the server's core and `client` here, at the ends of one stream.
fn between<S, C, T>(kind: Kind, serve: fn(End) -> S, client: impl FnOnce(End) -> C) -> T
where
    S: Future<Output = ()>,
    C: Future<Output = T>,
{
    std::thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        scope.spawn(move || {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            run(async {
                let (mut listener, address) = kind.listen().await;
                tell.send(address).expect("it waits");
                serve(listener.accept().await).await;
            });
        });
        run(async { client(kind.connect(told.recv().expect("an address")).await).await })
    })
}

/// Bytes a nanosecond that one stream carries, as long as it takes to have them read.
fn goodput(kind: Kind, slice_ns: u64) -> f64 {
    let drain = |mut end: End| async move {
        let mut buffer = vec![0; CHUNK];
        while end.read(&mut buffer).await.expect("bytes") > 0 {}
        end.shutdown().await.expect("it ends");
    };
    between(kind, drain, |mut end| async move {
        let chunk = vec![7; CHUNK];
        let started = Clock.now();
        let mut written = 0;
        while Clock.now() - started < slice_ns {
            end.write_all(&chunk).await.expect("room");
            written += CHUNK;
        }
        end.shutdown().await.expect("it ends");
        // The other side has read everything when it ends.
        while end.read(&mut [0; 1]).await.expect("the end") > 0 {}
        written as f64 / (Clock.now() - started) as f64
    })
}

fn ping(kind: Kind, slice_ns: u64) -> f64 {
    exchange::<100>(kind, slice_ns)
}

fn push(kind: Kind, slice_ns: u64) -> f64 {
    exchange::<65_536>(kind, slice_ns)
}

/// Median time of `LEN` bytes there and 100 back, in microseconds.
fn exchange<const LEN: usize>(kind: Kind, slice_ns: u64) -> f64 {
    let echo = |mut end: End| async move {
        let mut buffer = vec![0; LEN];
        while end.read_exact(&mut buffer).await.is_ok() {
            end.write_all(&buffer[..100]).await.expect("room");
        }
    };
    between(kind, echo, |mut end| async move {
        let (request, mut reply) = (vec![7; LEN], [0; 100]);
        let mut round_trips = Vec::with_capacity(ROUND_TRIPS);
        let started = Clock.now();
        let mut now = started;
        while now - started < slice_ns {
            end.write_all(&request).await.expect("room");
            end.read_exact(&mut reply).await.expect("a reply");
            let after = Clock.now();
            round_trips.push(after - now);
            now = after;
        }
        end.shutdown().await.expect("it ends");
        p50_us(&mut round_trips)
    })
}

/// Bytes a nanosecond of datagrams of 1024 bytes in GSO batches, with nothing above them.
fn bare_goodput(slice_ns: u64) -> f64 {
    bare_stream(slice_ns) * 1024.0 / 1e3
}

const SLEEPING: Kind = Kind::Streams(Wait::Block { spin_ns: 0 });
const SPINNING: Kind = Kind::Streams(Wait::Block { spin_ns: Wait::SPIN_NS });
const CHUNK: usize = 65_536;
