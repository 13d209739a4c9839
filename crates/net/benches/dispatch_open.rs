//! Sojourns behind the dispatcher under open load, for comparison with the simulator's: one worker
//! on a core of its own, Poisson arrivals at the dispatcher's.
//!
//! `cargo bench -p tailcut-net --bench dispatch_open` prints for each row the lower quartile over
//! slices, because whoever else uses the machine can only add, and the command that predicts it.
//! Both are in mean services; a sojourn lasts from the intended arrival until the dispatcher has
//! the job back.

mod support;

use std::num::NonZeroU32;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use support::*;
use tailcut_net::affinity;
use tailcut_net::clock::Clock;
use tailcut_net::dispatch::{Bound, Config, Dispatcher};
use tailcut_net::driver::{Driver, Wait};
use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::node::Time;

fn main() {
    // `cargo test` runs benches too, to see that they run.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (slices, slice_ns) = if is_bench { (15, 200_000_000) } else { (1, 2_000_000) };
    affinity::pin_to(CLIENT_CORE).expect("two cores");
    println!(
        "{:<22} {:>7} {:>7} {:>7} {:>7}   predicted by",
        "in mean services", "mean", "p50", "p90", "p99"
    );
    for row in ROWS {
        let found: Vec<[f64; 4]> = (0..slices).map(|seed| row.run(seed + 1, slice_ns)).collect();
        let figure = |at: usize| {
            let mut figures: Vec<f64> = found.iter().map(|figures| figures[at]).collect();
            figures.sort_by(f64::total_cmp);
            figures[(figures.len() - 1) / 4]
        };
        let Row { name, bound, mean_ns, load, .. } = row;
        println!(
            "{:<22} {:>7.3} {:>7.3} {:>7.3} {:>7.3}   tailcut sim queue --workers 1 --policy jbsq:{bound} \
             --service {name}:{mean_ns}ns --handoff .. --occupancy .. --load {load}",
            format!("{name}, {mean_ns} ns, {load}"),
            figure(0),
            figure(1),
            figure(2),
            figure(3),
        );
    }
}

/// A load of one worker.
struct Row {
    name: &'static str,
    draw: fn(&mut u64) -> f64,
    mean_ns: f64,
    bound: u32,
    load: f64,
}

const ROWS: [Row; 4] = [
    Row { name: "exp", draw: exponential, mean_ns: 5_000.0, bound: 2, load: 0.7 },
    Row { name: "exp", draw: exponential, mean_ns: 2_000.0, bound: 2, load: 0.7 },
    Row { name: "fixed", draw: |_| 1.0, mean_ns: 2_000.0, bound: 2, load: 0.7 },
    Row { name: "fixed", draw: |_| 1.0, mean_ns: 1_000.0, bound: 1, load: 0.7 },
];

/// A job: when it was to arrive, and how long it computes.
#[derive(Clone, Copy)]
struct Job {
    arrives_at: Time,
    service_ns: u64,
}

impl Row {
    /// Mean, p50, p90 and p99 of a slice, in mean services.
    fn run(&self, seed: u64, slice_ns: u64) -> [f64; 4] {
        let driver = Driver::<Endpoint>::new(Wait::BusyPoll).expect("a driver");
        let bound = Bound::Fixed(NonZeroU32::new(self.bound).expect("a bound"));
        let (mut dispatcher, mut workers) =
            Dispatcher::new(&Config::new(1).bound(bound), &driver.waker()).expect("a dispatcher");
        let (stop, start) = (AtomicBool::new(false), Barrier::new(2));
        let mut sojourns_ns = std::thread::scope(|scope| {
            scope.spawn(|| {
                affinity::pin_to(SERVER_CORE).expect("two cores");
                start.wait();
                shielded(|| {
                    while !stop.load(Ordering::Relaxed) {
                        workers[0].turn(compute);
                    }
                });
            });
            start.wait();
            let sojourns_ns = shielded(|| self.load(&mut dispatcher, seed, slice_ns));
            stop.store(true, Ordering::Relaxed);
            sojourns_ns
        });
        sojourns_ns.sort_unstable();
        let percentile = |share: f64| {
            sojourns_ns[((sojourns_ns.len() - 1) as f64 * share) as usize] as f64 / self.mean_ns
        };
        let mean = sojourns_ns.iter().sum::<u64>() as f64 / sojourns_ns.len() as f64;
        [mean / self.mean_ns, percentile(0.5), percentile(0.9), percentile(0.99)]
    }

    fn load(&self, dispatcher: &mut Dispatcher<Job>, seed: u64, slice_ns: u64) -> Vec<u64> {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut sojourns_ns = Vec::with_capacity(1 << 18);
        let began_at = Clock.now();
        let mut next_at = began_at as f64;
        let mut now = began_at;
        while now < began_at + slice_ns {
            while next_at as Time <= now {
                let service_ns = ((self.draw)(&mut random) * self.mean_ns) as u64;
                let job = Job { arrives_at: next_at as Time, service_ns };
                if dispatcher.offer(job, Time::MAX).is_err() {
                    unreachable!("the queue has room");
                }
                next_at += exponential(&mut random) * self.mean_ns / self.load;
            }
            dispatcher.poll_done(now, |job| {
                sojourns_ns.push(Clock.now().saturating_sub(job.arrives_at));
            });
            now = Clock.now();
        }
        sojourns_ns
    }
}

fn compute(job: &mut Job) {
    let began_at = Clock.now();
    while Clock.now() < began_at + job.service_ns {
        std::hint::spin_loop();
    }
}

/// Exponential draw of mean 1.
fn exponential(random: &mut u64) -> f64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    -(((*random >> 11) + 1) as f64 / (1_u64 << 53) as f64).ln()
}
