//! Measures the points of a plan, as many at once as the machine carries.
//!
//! A lane measures one point after the other on a core of its own, where wanted and permitted with
//! real-time priority; its processes inherit both. On one core a wake-up needs no signal to
//! another: on two virtual cores, 5,600 requests/s took 0.5 of a core instead of 0.9. And other
//! work hardly shows: beside builds, jbsq:2 had 1.05 to 1.09 of its predicted p99 in six runs, and
//! 1.10 to 1.32 in three that had neither.
//!
//! A point whose load could not send in time says nothing about queues. It is measured again, at
//! most twice.
//!
//! Invariant: when [`Lanes::measure_all`] returns or panics, no process of it is left.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use tailcut_net::affinity;

use super::measurement::{self, Measurement};
use super::plan::{self, Point};
use super::predict::Figures;
use super::progress::{self, Progress};

/// Configuration of lanes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lanes {
    /// With real-time priority, where that is permitted.
    pub(super) is_real_time: bool,
}

impl Lanes {
    /// Measures every point; the results are in the order of the points.
    ///
    /// # Errors
    ///
    /// The first point that could not be measured, and `stop`.
    pub(super) fn measure_all(
        self,
        points: &[Point],
        predicted: &[Figures],
        seed: u64,
        stop: &AtomicBool,
    ) -> Result<Vec<Measurement>> {
        let lanes = lane_count();
        let waiting = Mutex::new(VecDeque::from(plan::order(points)));
        let (events, received) = mpsc::channel();
        thread::scope(|scope| {
            // Whatever ends this closure, the lanes see it soon and take their processes along.
            let _ending = StopOnDrop(stop);
            for lane in 0..lanes {
                let (events, waiting) = (events.clone(), &waiting);
                let measure = move |point: &_| measure_undisturbed(point, seed, stop);
                scope.spawn(move || {
                    self.settle(lane);
                    run_lane(points, waiting, &events, measure);
                });
            }
            drop(events);
            collect(&received, points, predicted, Progress::new(points, lanes))
        })
    }

    /// Scheduling of a lane's processes here, for people.
    pub(super) fn scheduling(self) -> String {
        let settled = thread::spawn(move || self.settle(0)).join().unwrap_or_default();
        let core = if settled.is_pinned { "on a core of their own" } else { "on any core" };
        let class = if settled.is_real_time { "real-time priority" } else { "normal priority" };
        format!("{core}, {class}")
    }

    /// Takes the calling thread, and the processes that it will start, to the lane's core and
    /// before other work.
    fn settle(self, lane: usize) -> Settled {
        Settled {
            is_pinned: affinity::pin_to(lane).is_ok(),
            is_real_time: self.is_real_time && affinity::set_fifo(LOWEST_REAL_TIME).is_ok(),
        }
    }
}

/// Points at once: one a core, and at most two, so that a larger machine's other cores take what
/// else there is to do.
pub(super) fn lane_count() -> usize {
    thread::available_parallelism().map_or(1, |cores| cores.get().min(LANES_MAX))
}

/// Measures a point, and again, at most twice, while it was starved; keeps the run whose load was
/// least late.
fn measure_undisturbed(point: &Point, seed: u64, stop: &AtomicBool) -> Result<Measurement> {
    let mut best = measurement::measure(point, seed, stop)?;
    for repeats in 1..=REPEATS_MAX {
        if !best.is_starved() {
            break;
        }
        let again = measurement::measure(point, seed, stop)?;
        let least_late = if again.lateness_us() < best.lateness_us() { again } else { best };
        best = Measurement { repeats, ..least_late };
    }
    Ok(best)
}

/// Settings that the machine permitted.
#[derive(Clone, Copy, Debug, Default)]
struct Settled {
    is_pinned: bool,
    is_real_time: bool,
}

/// Event of a lane.
enum Event {
    Begun(usize),
    Ended(usize, Result<Measurement>),
}

/// Takes points until there are none, or one fails.
fn run_lane(
    points: &[Point],
    waiting: &Mutex<VecDeque<usize>>,
    events: &Sender<Event>,
    measure: impl Fn(&Point) -> Result<Measurement>,
) {
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    while let Some(index) = next() {
        // Nobody listens any more after an error of another lane.
        let _ = events.send(Event::Begun(index));
        let result =
            measure(&points[index]).map_err(|error| error.context(progress::name(&points[index])));
        let is_last = result.is_err();
        let _ = events.send(Event::Ended(index, result));
        if is_last {
            return;
        }
    }
}

fn collect(
    events: &Receiver<Event>,
    points: &[Point],
    predicted: &[Figures],
    mut progress: Progress<'_>,
) -> Result<Vec<Measurement>> {
    let mut results = vec![None; predicted.len()];
    loop {
        match events.recv_timeout(SHOW_EVERY) {
            Ok(Event::Begun(index)) => progress.begin(index),
            Ok(Event::Ended(index, result)) => {
                let measurement = result.inspect_err(|_| progress.clear())?;
                if let Some(figures) = measurement.figures(points[index].pool.service_us) {
                    progress.end(index, &figures, &predicted[index]);
                }
                results[index] = Some(measurement);
            }
            Err(RecvTimeoutError::Timeout) => progress.show(),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    progress.clear();
    match results.into_iter().collect() {
        Some(results) => Ok(results),
        None => bail!("a lane ended before its points"),
    }
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const LANES_MAX: usize = 2;
/// Ahead of everything normal, behind everything that is real-time on purpose.
const LOWEST_REAL_TIME: u8 = 1;
const SHOW_EVERY: Duration = Duration::from_millis(200);

/// Times that a starved point is measured again.
const REPEATS_MAX: u32 = 2;
