//! Cost of the way out of a host for replies: through the dispatcher, or from each worker's own
//! socket.
//!
//! `cargo bench -p tailcut-net --bench replies` has the dispatcher on one pinned core and 16
//! workers played by the other, and alternates slices. A reply of 32 bytes goes to a socket on
//! loopback that nobody reads. Nothing is received, and no protocol is spoken: it is what the way
//! out costs beside the hand-off.
//!
//! | row | bare | ours |
//! |---|---|---|
//! | lone | the dispatcher sends each reply | the worker does |
//! | one client | the dispatcher sends what it finds done as a GSO batch | the worker sends each |

mod support;

use std::net::{SocketAddr, UdpSocket};
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use support::*;
use tailcut_net::affinity;
use tailcut_net::batches::{Outgoing, SendBatch};
use tailcut_net::clock::Clock;
use tailcut_net::dispatch::{Bound, Config, Dispatcher, Worker};
use tailcut_net::driver::{Driver, Wait};
use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::node::Time;

fn main() {
    // `cargo test` runs benches too, to see that they run.
    let plan = if std::env::args().any(|argument| argument == "--bench") {
        Plan { pairs: 15, slice_ns: 100_000_000 }
    } else {
        Plan { pairs: 1, slice_ns: 2_000_000 }
    };
    affinity::pin_to(CLIENT_CORE).expect("two cores");
    println!(
        "{:<44} {:>10} {:>10} {:>7} {:>15} {:>8}",
        "a request", "dispatcher", "worker", "ratio", "quartiles", "core-core"
    );
    compare("lone replies", "ns", &plan, (lone_by_dispatcher, by_worker));
    compare("replies to one client", "ns", &plan, (batched_by_dispatcher, by_worker));
    compare("no replies, over the worker's", "ns", &plan, (by_worker, none));
}

fn none(slice_ns: u64) -> f64 {
    run(slice_ns, |_| (), |_| ())
}

fn by_worker(slice_ns: u64) -> f64 {
    let way = Way::new();
    run(slice_ns, |_| way.send_one(), |_| ())
}

fn lone_by_dispatcher(slice_ns: u64) -> f64 {
    let way = Way::new();
    run(slice_ns, |_| (), |done| (0..done).for_each(|_| way.send_one()))
}

fn batched_by_dispatcher(slice_ns: u64) -> f64 {
    let (way, mut batch) = (Way::new(), SendBatch::new(1));
    run(slice_ns, |_| (), |done| way.send_batch(&mut batch, done))
}

/// From a socket to one that nobody reads.
struct Way {
    from: UdpSocket,
    to: SocketAddr,
    /// Keeps its port.
    _sink: UdpSocket,
}

impl Way {
    fn new() -> Self {
        let sink = UdpSocket::bind(loopback()).expect("a socket");
        let to = sink.local_addr().expect("an address");
        Self { from: bare::bind(loopback()).expect("a socket"), to, _sink: sink }
    }

    fn send_one(&self) {
        self.from.send_to(&[7; REPLY_BYTES], self.to).expect("a send");
    }

    /// As many replies as there are, GSO batch by GSO batch.
    fn send_batch(&self, sender: &mut SendBatch, mut count: usize) {
        let bytes = [7; REPLY_BYTES * BATCH];
        while count > 0 {
            let segments = count.min(BATCH);
            let message = Outgoing {
                to: Some(self.to),
                from: None,
                offset: 0,
                len: segments * REPLY_BYTES,
                segment_len: REPLY_BYTES,
                traffic_class: 0,
                stamp_flags: 0,
                tag: 0,
            };
            sender.send(self.from.as_fd(), &bytes, &[message]).expect("a send");
            count -= segments;
        }
    }
}

/// Nanoseconds a request, while each of 16 workers has two; `reply` hears how many a poll found
/// done.
fn run(slice_ns: u64, handler: impl Fn(&mut u64) + Sync, mut reply: impl FnMut(usize)) -> f64 {
    let driver = Driver::<Endpoint>::new(Wait::BusyPoll).expect("a driver");
    let config = Config::new(WORKERS).bound(Bound::Fixed(NonZeroU32::new(2).expect("a bound")));
    let (mut dispatcher, mut workers) =
        Dispatcher::new(&config, &driver.waker()).expect("a dispatcher");
    let (stop, start) = (AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            start.wait();
            shielded(|| play(&mut workers, &handler, &stop));
        });
        start.wait();
        let result = shielded(|| {
            let (mut done, mut given) = (0, 0);
            let began_at = Clock.now();
            let mut now = began_at;
            while now < began_at + slice_ns {
                for _ in 0..POLLS_PER_READING {
                    while given - done < 2 * WORKERS {
                        dispatcher.offer(given as u64, Time::MAX).expect("the queue has room");
                        given += 1;
                    }
                    let before = done;
                    dispatcher.poll_done(now, |_| done += 1);
                    reply(done - before);
                }
                now = Clock.now();
            }
            (now - began_at) as f64 / done as f64
        });
        stop.store(true, Ordering::Relaxed);
        result
    })
}

fn play(workers: &mut [Worker<u64>], handler: &impl Fn(&mut u64), stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for worker in &mut *workers {
            worker.turn_quietly(handler);
        }
    }
}

const WORKERS: usize = 16;
const REPLY_BYTES: usize = 32;
const BATCH: usize = 32;
const POLLS_PER_READING: u32 = 64;
