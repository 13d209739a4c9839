//! Cost of the dispatcher above a bare ring: hand-offs, fan-out, and a worker that is kept busy.
//!
//! `cargo bench -p tailcut-net --bench dispatch` alternates slices of both on two pinned cores: the
//! dispatcher on one, all workers played by the other. Nothing goes over a network here.
//!
//! | row | bare | ours |
//! |---|---|---|
//! | hand-off | there and back over two rings with a parity bit in each slot | offer, turn, poll |
//! | fan-out | a message of such a ring in a stream, and 25 ns for a decision | a job, of 16 workers |
//! | kept busy | a microsecond of computing | a job of as much, at a bound of 2 |
//! | pulled | a job of the fan-out at bound 2 | a job that 16 workers, half of them on each core, pull under an MCS lock |

mod support;

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use support::*;
use tailcut_net::affinity;
use tailcut_net::clock::Clock;
use tailcut_net::dispatch::{Bound, Config, Delivery, Dispatcher, Worker};
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
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    affinity::pin_to(CLIENT_CORE).expect("two cores");
    print_head("bare", "ours");
    for (name, bare, ours) in comparisons() {
        if only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
            compare(name, "ns", &plan, (bare, ours));
        }
    }
}

/// Name and both sides.
fn comparisons() -> [(&'static str, Side, Side); 11] {
    [
        ("bare against itself", bare_round_trip, bare_round_trip),
        ("hand-off, 1 worker", bare_round_trip, |slice| saturated(slice, 1, 1)),
        ("fan-out, 16 workers, bound 1", bare_fan_out, |slice| saturated(slice, 16, 1)),
        ("fan-out, 16 workers, bound 2", bare_fan_out, |slice| saturated(slice, 16, 2)),
        ("fan-out, 16 workers, bound 4", bare_fan_out, |slice| saturated(slice, 16, 4)),
        ("fan-out, 64 workers, bound 2", bare_fan_out, |slice| saturated(slice, 64, 2)),
        ("both ends on one core, 16 workers", bare_fan_out, |slice| on_one_core(slice, 16, 2)),
        ("kept busy with 1 us, bound 1", bare_compute, |slice| kept_busy(slice, 1)),
        ("kept busy with 1 us, bound 2", bare_compute, |slice| kept_busy(slice, 2)),
        ("pulled by both cores, over pushed", pushed, |slice| pulled(slice, 8)),
        ("pulled by one core, over pushed", pushed, |slice| pulled(slice, 0)),
    ]
}

/// Nanoseconds a job while every worker has as many as the bound allows.
fn saturated(slice_ns: u64, workers: usize, bound: u32) -> f64 {
    with_workers(workers, bound, |_| (), |dispatcher| keep_full(dispatcher, &mut [], slice_ns))
}

/// Nanoseconds a job that is pushed to one of 16 workers.
fn pushed(slice_ns: u64) -> f64 {
    saturated(slice_ns, 16, 2)
}

/// Nanoseconds a job that 16 workers pull, so many of them played by the dispatcher's core.
fn pulled(slice_ns: u64, here: usize) -> f64 {
    let config = Config::new(16).delivery(Delivery::Pull);
    with_workers_of(&config, (here, |_| ()), |dispatcher, mine| {
        keep_full(dispatcher, mine, slice_ns)
    })
}

/// Nanoseconds a job of one worker that computes for about a microsecond.
fn kept_busy(slice_ns: u64, bound: u32) -> f64 {
    let handler = |job: &mut u64| *job = compute(*job);
    with_workers(1, bound, handler, |dispatcher| keep_full(dispatcher, &mut [], slice_ns))
}

/// Keeps as many jobs with the workers as may be; `mine` are those that this core plays.
fn keep_full(dispatcher: &mut Dispatcher<u64>, mine: &mut [Worker<u64>], slice_ns: u64) -> f64 {
    let metrics = dispatcher.metrics();
    let room = metrics.workers * metrics.bound;
    let (mut done, mut given) = (0_u64, 0_u64);
    let began_at = Clock.now();
    let mut now = began_at;
    while now < began_at + slice_ns {
        for _ in 0..TURNS_PER_READING {
            while given - done < room {
                dispatcher.offer(given, Time::MAX).expect("the queue has room");
                given += 1;
            }
            for worker in &mut *mine {
                worker.turn_quietly(|_| ());
            }
            dispatcher.poll_done(now, |_| done += 1);
        }
        now = Clock.now();
    }
    (now - began_at) as f64 / done as f64
}

/// Runs `dispatch` here, while the other core plays the workers.
fn with_workers(
    count: usize,
    bound: u32,
    handler: fn(&mut u64),
    dispatch: impl FnOnce(&mut Dispatcher<u64>) -> f64,
) -> f64 {
    let bound = Bound::Fixed(NonZeroU32::new(bound).expect("a bound"));
    let config = Config::new(count).bound(bound);
    with_workers_of(&config, (0, handler), |dispatcher, _| dispatch(dispatcher))
}

/// Runs `dispatch` here with the first `here` workers, while the other core plays the rest.
fn with_workers_of(
    config: &Config,
    (here, handler): (usize, fn(&mut u64)),
    dispatch: impl FnOnce(&mut Dispatcher<u64>, &mut [Worker<u64>]) -> f64,
) -> f64 {
    let driver = Driver::<Endpoint>::new(Wait::BusyPoll).expect("a driver");
    let (mut dispatcher, mut workers) =
        Dispatcher::new(config, &driver.waker()).expect("a dispatcher");
    let (mine, others) = workers.split_at_mut(here);
    let (stop, start) = (AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            start.wait();
            shielded(|| play(others, handler, &stop));
        });
        start.wait();
        let result = shielded(|| dispatch(&mut dispatcher, mine));
        stop.store(true, Ordering::Relaxed);
        result
    })
}

/// Nanoseconds a job where this thread plays the workers too: what both do, without a line that
/// crosses.
fn on_one_core(slice_ns: u64, workers: usize, bound: u32) -> f64 {
    let driver = Driver::<Endpoint>::new(Wait::BusyPoll).expect("a driver");
    let config = Config::new(workers).bound(Bound::Fixed(NonZeroU32::new(bound).expect("a bound")));
    let (mut dispatcher, mut workers) =
        Dispatcher::new(&config, &driver.waker()).expect("a dispatcher");
    let (mut done, mut given) = (0_u64, 0_u64);
    let room = workers.len() as u64 * u64::from(bound);
    per_message(slice_ns, || {
        while given - done < room {
            dispatcher.offer(given, Time::MAX).expect("the queue has room");
            given += 1;
        }
        for worker in &mut workers {
            worker.turn_quietly(|_| ());
        }
        dispatcher.poll_done(0, |_| done += 1);
    }) / 16.0
}

fn play(workers: &mut [Worker<u64>], handler: fn(&mut u64), stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let mut have_run = false;
        workers.iter().for_each(Worker::prefetch);
        for worker in &mut *workers {
            have_run |= worker.turn_quietly(handler);
        }
        if have_run {
            workers[0].notify();
        }
    }
}

/// A microsecond's worth of arithmetic that nothing can be left out of.
fn compute(mut value: u64) -> u64 {
    for _ in 0..COMPUTE_STEPS {
        value = black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ value >> 29);
    }
    value
}

/// Nanoseconds of [`compute`], on the core that plays the workers.
fn bare_compute(slice_ns: u64) -> f64 {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            shielded(|| {
                let (began_at, mut count, mut value) = (Clock.now(), 0_u64, 1);
                let mut now = began_at;
                while now < began_at + slice_ns {
                    for _ in 0..TURNS_PER_READING {
                        value = compute(value);
                    }
                    count += u64::from(TURNS_PER_READING);
                    now = Clock.now();
                }
                (now - began_at) as f64 / count as f64
            })
        });
        thread.join().expect("the other core")
    })
}

/// Nanoseconds there and back over two rings.
fn bare_round_trip(slice_ns: u64) -> f64 {
    let (there, back) = (Ring::default(), Ring::default());
    with_other_core(
        |stop| {
            let (mut from, mut to) = (0, 0);
            while !stop.load(Ordering::Relaxed) {
                if let Some(message) = there.receive(&mut from) {
                    back.send(&mut to, message);
                }
            }
        },
        || {
            let (mut to, mut from) = (0, 0);
            per_message(slice_ns, || {
                there.send(&mut to, 7);
                while back.receive(&mut from).is_none() {}
            })
        },
    )
}

/// Nanoseconds a message in a stream over one ring, and what a decision may cost.
fn bare_fan_out(slice_ns: u64) -> f64 {
    let ring = Ring::default();
    let read = Counter::default();
    let stream = with_other_core(
        |stop| {
            let mut from = 0;
            while !stop.load(Ordering::Relaxed) {
                if ring.receive(&mut from).is_some() && from % (RING_LEN / 4) == 0 {
                    read.0.store(from, Ordering::Release);
                }
            }
        },
        || {
            let (mut to, mut known) = (0, 0);
            per_message(slice_ns, || {
                while to - known >= RING_LEN {
                    known = read.0.load(Ordering::Acquire);
                }
                ring.send(&mut to, 7);
            })
        },
    );
    stream + DECISION_NS
}

fn per_message(slice_ns: u64, mut step: impl FnMut()) -> f64 {
    let (began_at, mut count) = (Clock.now(), 0_u64);
    let mut now = began_at;
    while now < began_at + slice_ns {
        for _ in 0..TURNS_PER_READING {
            step();
        }
        count += u64::from(TURNS_PER_READING);
        now = Clock.now();
    }
    (now - began_at) as f64 / count as f64
}

fn with_other_core(other: impl FnOnce(&AtomicBool) + Send, here: impl FnOnce() -> f64) -> f64 {
    let (stop, start) = (AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            start.wait();
            shielded(|| other(&stop));
        });
        start.wait();
        let result = shielded(here);
        stop.store(true, Ordering::Relaxed);
        result
    })
}

/// A ring in the manner of LRPC: 16 bytes a slot, whose parity says whether its message is new.
struct Ring {
    slots: Vec<Slot>,
}

#[derive(Default)]
#[repr(align(16))]
struct Slot {
    message: AtomicU64,
    parity: AtomicU64,
}

#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

impl Default for Ring {
    fn default() -> Self {
        Self { slots: (0..RING_LEN).map(|_| Slot::default()).collect() }
    }
}

impl Ring {
    /// Writes the message that comes next, into a slot that has been read.
    #[inline]
    fn send(&self, at: &mut u64, message: u64) {
        let slot = &self.slots[(*at % RING_LEN) as usize];
        slot.message.store(message, Ordering::Relaxed);
        slot.parity.store(*at / RING_LEN + 1, Ordering::Release);
        *at += 1;
    }

    #[inline]
    fn receive(&self, at: &mut u64) -> Option<u64> {
        let slot = &self.slots[(*at % RING_LEN) as usize];
        (slot.parity.load(Ordering::Acquire) == *at / RING_LEN + 1).then(|| {
            *at += 1;
            slot.message.load(Ordering::Relaxed)
        })
    }
}

const RING_LEN: u64 = 1024;

/// Cost that the dispatcher's work for a job may have beside the ring.
const DECISION_NS: f64 = 25.0;

const TURNS_PER_READING: u32 = 256;

const COMPUTE_STEPS: u32 = 900;
