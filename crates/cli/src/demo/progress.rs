//! Progress of the points: what runs now, what came of it, and the time that is left.
//!
//! Everything goes to standard error: a bar where that is a terminal, a line a point everywhere.

use indicatif::{ProgressBar, ProgressStyle};
use tailcut_net::clock::Clock;

use super::plan::{self, Point};
use super::predict::Figures;

/// Follows a plan through its points.
pub(super) struct Progress<'a> {
    points: &'a [Point],
    lanes: usize,
    /// By point; ns on [`Clock`].
    states: Vec<State>,
    bar: ProgressBar,
}

impl<'a> Progress<'a> {
    pub(super) fn new(points: &'a [Point], lanes: usize) -> Self {
        let total_ns: u64 = points.iter().map(Point::loaded_ns).sum();
        let bar = ProgressBar::new(total_ns / NS_PER_MS);
        bar.set_style(
            ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}")
                .expect("the template is a valid constant"),
        );
        Self { points, lanes, states: vec![State::Waiting; points.len()], bar }
    }

    pub(super) fn begin(&mut self, index: usize) {
        self.states[index] = State::Running { since_ns: Clock.now() };
        self.show();
    }

    /// A point has been measured.
    pub(super) fn end(&mut self, index: usize, measured: &Figures, predicted: &Figures) {
        self.states[index] = State::Done;
        let done = self.states.iter().filter(|&&state| state == State::Done).count();
        let service_ms = self.points[index].pool.service_us / 1e3;
        let line = format!(
            "[{done:>2}/{}] {}: p99 {:.1} ms, predicted {:.1} ms{}",
            self.points.len(),
            name(&self.points[index]),
            measured.p99 * service_ms,
            predicted.p99 * service_ms,
            if done < self.points.len() {
                format!(" ({} left)", self.left())
            } else {
                String::new()
            },
        );
        self.bar.suspend(|| eprintln!("{line}"));
        self.show();
    }

    /// Brings the bar up to date; call it a few times a second.
    pub(super) fn show(&self) {
        if self.bar.is_hidden() {
            return;
        }
        let now = Clock.now();
        let passed_ns: u64 = self
            .points
            .iter()
            .zip(&self.states)
            .map(|(point, state)| state.passed_ns(point, now))
            .sum();
        let is_running = |state: &State| matches!(state, State::Running { .. });
        let running = self
            .points
            .iter()
            .zip(&self.states)
            .filter(|(_, state)| is_running(state))
            .map(|(point, _)| name(point));
        self.bar.set_position(passed_ns / NS_PER_MS);
        self.bar.set_message(format!(
            "{} ({} left)",
            running.collect::<Vec<_>>().join(", "),
            self.left()
        ));
    }

    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// The time left, as if nothing but loads took time.
    fn left(&self) -> String {
        let now = Clock.now();
        let left_ns = |&index: &usize| {
            self.points[index].loaded_ns() - self.states[index].passed_ns(&self.points[index], now)
        };
        let mut order = plan::order(self.points);
        order.sort_by_key(|&index| self.states[index] == State::Waiting);
        format!("{:.0} s", plan::span_ns(order.iter().map(left_ns), self.lanes) as f64 / 1e9)
    }
}

/// A point for people.
pub(super) fn name(point: &Point) -> String {
    let jitter = if point.pool.jitter > 0.0 { " with jitter" } else { "" };
    format!("{} at {:.0} %{jitter}", point.policy, 100.0 * point.load)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Waiting,
    Running { since_ns: u64 },
    Done,
}

impl State {
    /// Part of the point's load that has passed by `now`, ns.
    fn passed_ns(self, point: &Point, now: u64) -> u64 {
        match self {
            Self::Waiting => 0,
            Self::Running { since_ns } => now.saturating_sub(since_ns).min(point.loaded_ns()),
            Self::Done => point.loaded_ns(),
        }
    }
}

const NS_PER_MS: u64 = 1_000_000;
