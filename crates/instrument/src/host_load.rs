//! CPU contention on this host while it loaded, as the kernel tells it.
//!
//! | figure | from |
//! |---|---|
//! | time that load threads ran and waited for a CPU | `/proc/self/task/*/schedstat` |
//! | time that the hypervisor gave to others | `steal` in `/proc/stat` |
//! | time that anything on the host waited for a CPU | `/proc/pressure/cpu` |
//!
//! Invariant: what a kernel does not tell counts as nothing, and no load thread does anything for
//! it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};
use tailcut_net::clock::Clock;

/// CPU times that the kernel has counted, us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuCounts {
    /// Time that load threads ran, all together.
    pub ran_us: u64,
    /// Time that they waited for a CPU.
    pub waited_us: u64,
    /// Time of all of the host's CPUs, idle or not.
    pub cpus_us: u64,
    /// Part of the CPUs' time that the hypervisor gave to others.
    pub stolen_us: u64,
    /// Time that passed.
    pub passed_us: u64,
    /// Part of the time that passed in which anything that wanted to run on this host waited for a
    /// CPU.
    pub pressed_us: u64,
}

impl CpuCounts {
    /// Counts since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let less = |now: u64, before: u64| now.saturating_sub(before);
        Self {
            ran_us: less(self.ran_us, earlier.ran_us),
            waited_us: less(self.waited_us, earlier.waited_us),
            cpus_us: less(self.cpus_us, earlier.cpus_us),
            stolen_us: less(self.stolen_us, earlier.stolen_us),
            passed_us: less(self.passed_us, earlier.passed_us),
            pressed_us: less(self.pressed_us, earlier.pressed_us),
        }
    }

    /// Adds what was counted at another time, or on another host.
    pub fn add(&mut self, other: &Self) {
        self.ran_us += other.ran_us;
        self.waited_us += other.waited_us;
        self.cpus_us += other.cpus_us;
        self.stolen_us += other.stolen_us;
        self.passed_us += other.passed_us;
        self.pressed_us += other.pressed_us;
    }

    /// Share of the time that load threads wanted to run in which they waited for a CPU; none where
    /// nothing was counted.
    pub fn waited_share(&self) -> Option<f64> {
        share(self.waited_us, self.ran_us + self.waited_us)
    }

    /// Share of the CPUs' time that the hypervisor gave to others.
    pub fn stolen_share(&self) -> Option<f64> {
        share(self.stolen_us, self.cpus_us)
    }

    /// Share of the time in which anything waited for a CPU.
    pub fn pressed_share(&self) -> Option<f64> {
        share(self.pressed_us, self.passed_us)
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Reads what the kernel counts.
#[derive(Debug)]
pub(crate) struct CpuWatch {
    /// Files of the load threads, one of each.
    threads: Vec<File>,
    start_ns: u64,
    /// Time of the last reading, ns.
    read_ns: u64,
    last: CpuCounts,
}

impl CpuWatch {
    /// Watches the load threads of this process from now on.
    pub(crate) fn new() -> Self {
        let now = Clock.now();
        let threads = load_threads();
        let mut watch = Self { threads, start_ns: now, read_ns: now, last: CpuCounts::default() };
        watch.last = watch.read(now);
        watch
    }

    /// Counts since the last reading; nothing where that was a moment ago.
    pub(crate) fn take(&mut self) -> CpuCounts {
        let now = Clock.now();
        if now < self.read_ns + READ_EVERY_NS {
            return CpuCounts::default();
        }
        self.read_ns = now;
        let counts = self.read(now);
        let since = counts.since(&self.last);
        self.last = counts;
        since
    }

    fn read(&self, now: u64) -> CpuCounts {
        let mut counts =
            CpuCounts { passed_us: (now - self.start_ns) / 1_000, ..CpuCounts::default() };
        let mut text = [0; 128];
        for thread in &self.threads {
            let len = thread.read_at(&mut text, 0).unwrap_or(0);
            let [ran, waited] = schedstat(&String::from_utf8_lossy(&text[..len]));
            counts.ran_us += ran;
            counts.waited_us += waited;
        }
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        [counts.cpus_us, counts.stolen_us] = cpus(&stat);
        let pressure = fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
        counts.pressed_us = pressed(&pressure);
        counts
    }
}

/// Files in which the scheduler tells of each load thread of this process.
fn load_threads() -> Vec<File> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let load = tasks.filter(|task| {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        name.starts_with(THREAD_NAME)
    });
    load.filter_map(|task| File::open(task.path().join("schedstat")).ok()).collect()
}

/// Time that a thread ran and that it waited, us: the first two numbers, in ns.
fn schedstat(text: &str) -> [u64; 2] {
    let mut numbers = text.split_whitespace().map(|number| number.parse::<u64>().unwrap_or(0));
    [(); 2].map(|()| numbers.next().unwrap_or(0) / 1_000)
}

/// Time of all CPUs and what was stolen of it, us, by the first line: user, nice, system, idle,
/// iowait, irq, softirq and steal in ticks. Guests are among the first two.
fn cpus(stat: &str) -> [u64; 2] {
    let line = stat.lines().next().and_then(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let ticks: Vec<u64> =
        line.split_whitespace().take(8).map(|number| number.parse().unwrap_or(0)).collect();
    let stolen = ticks.get(7).copied().unwrap_or(0);
    [ticks.iter().sum::<u64>() * TICK_US, stolen * TICK_US]
}

/// Time that some tasks waited, us: `total` of the line `some`.
fn pressed(pressure: &str) -> u64 {
    let some = pressure.lines().find(|line| line.starts_with("some "));
    let total = some.and_then(|line| line.rsplit_once("total="));
    total.and_then(|(_, number)| number.trim().parse().ok()).unwrap_or(0)
}

/// Name of load threads, up to their number.
pub(crate) const THREAD_NAME: &str = "load-";

/// Least time between two readings.
const READ_EVERY_NS: u64 = 200_000_000;

/// USER_HZ is 100 on every architecture that Linux has had for years.
const TICK_US: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_read() {
        assert_eq!(schedstat("1400000000 651000000 23\n"), [1_400_000, 651_000]);
        assert_eq!(schedstat(""), [0, 0]);
        let stat = "cpu  100 0 50 800 10 0 5 35 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
        assert_eq!(cpus(stat), [1_000 * TICK_US, 35 * TICK_US]);
        assert_eq!(cpus(""), [0, 0]);
        let pressure = "some avg10=12.00 avg60=3.00 avg300=1.00 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(pressed(pressure), 123_456);
        assert_eq!(pressed(""), 0);
    }

    #[test]
    fn shares_are_of_what_was_counted() {
        let counts = CpuCounts {
            ran_us: 749,
            waited_us: 651,
            cpus_us: 2_000,
            stolen_us: 100,
            passed_us: 1_000,
            pressed_us: 600,
        };
        assert_eq!(counts.waited_share(), Some(0.465));
        assert_eq!(counts.stolen_share(), Some(0.05));
        assert_eq!(counts.pressed_share(), Some(0.6));
        assert_eq!(CpuCounts::default().waited_share(), None);
        let mut twice = counts;
        twice.add(&counts);
        assert_eq!(twice.since(&counts), counts);
    }

    /// Three threads that compute on the one CPU that they may use wait for each other.
    #[test]
    fn threads_that_share_a_cpu_wait_for_it() {
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::sync::{Arc, Barrier};
        let is_over = Arc::new(AtomicBool::new(false));
        // A thread has its name from within, and is watched by it: so the watch begins once all
        // run.
        let all_run = Arc::new(Barrier::new(4));
        let spin = |number| {
            let (is_over, all_run) = (Arc::clone(&is_over), Arc::clone(&all_run));
            let body = move || {
                all_run.wait();
                let _ = tailcut_net::affinity::pin_to(0);
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            std::thread::Builder::new().name(format!("load-{number}")).spawn(body).unwrap()
        };
        let threads: Vec<_> = (0..3).map(spin).collect();
        all_run.wait();
        let mut watch = CpuWatch::new();
        let mut counts = CpuCounts::default();
        let deadline = Clock.now() + 60_000_000_000;
        while counts.ran_us + counts.waited_us < 600_000 && Clock.now() < deadline {
            counts.add(&watch.take());
            std::thread::yield_now();
        }
        is_over.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(counts.waited_share() > Some(0.4), "{counts:?}");
    }
}
