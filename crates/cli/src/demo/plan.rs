//! Plan of the points: every policy at every load before the servers of a panel, and the duration
//! of each.
//!
//! The p99 of a queue is read from a sample whose neighbours resemble each other, the longer the
//! higher the load and the worse the policy. So the points differ in duration. The durations here
//! were chosen by simulation: over 13.6 s, random placement at a load of 0.7 has a p99 whose
//! standard deviation is 4.5 %, and leaves 15 % once in a thousand runs; JBSQ has 1.5 % over 5.6 s.
//!
//! Invariant: a plan has at least one point, and none twice.

use anyhow::{Result, bail};
use tailcut_proto::policy::{PolicySpec, QueueModel};
use tailcut_sim::cloning::JITTER_FACTOR;

/// The emulated servers of a panel.
#[derive(Debug, PartialEq)]
pub(super) struct Pool {
    pub(super) servers: usize,
    /// Workers of each server.
    pub(super) workers: usize,
    /// Service times, as a measurement is told.
    pub(super) service: &'static str,
    /// Their mean, without jitter.
    pub(super) service_us: f64,
    /// The share of services that take [`JITTER_FACTOR`] times as long. Where there is one each
    /// copy of a request draws its own service, and requests may run twice.
    pub(super) jitter: f64,
}

impl Pool {
    /// Requests that all workers finish in a second, one copy of each.
    fn capacity_per_s(&self) -> f64 {
        let mean_us = self.service_us * (1.0 + self.jitter * (JITTER_FACTOR - 1.0));
        (self.servers * self.workers) as f64 * US_PER_S / mean_us
    }
}

/// One policy under one load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) pool: &'static Pool,
    pub(super) policy: PolicySpec,
    /// Share of the workers' capacity that the requests need, in (0, 1).
    pub(super) load: f64,
    pub(super) duration_ns: u64,
}

impl Point {
    /// Requests a second.
    pub(super) fn rate_per_s(&self) -> f64 {
        self.load * self.pool.capacity_per_s()
    }

    /// From the start of the load to its end.
    pub(super) fn loaded_ns(&self) -> u64 {
        self.duration_ns + WARMUP_NS
    }
}

/// Every policy at every load, policy by policy; each lasts `duration_ns`, or what its tail needs.
///
/// # Errors
///
/// Nothing to run, and `jbsq:auto`, whose bound moves and so has no prediction.
pub(super) fn points(
    pool: &'static Pool,
    policies: &[PolicySpec],
    loads: &[f64],
    duration_ns: Option<u64>,
) -> Result<Vec<Point>> {
    let moves = |policy: &&PolicySpec| policy.model() == QueueModel::Bounded(None);
    if let Some(policy) = policies.iter().find(moves) {
        bail!("the bound of {policy} moves, so nothing predicts it; give one, such as jbsq:2");
    }
    let mut points: Vec<Point> = Vec::new();
    for &policy in policies {
        for &load in loads {
            let duration_ns = duration_ns.unwrap_or_else(|| needed_ns(pool, policy, load));
            if !points.iter().any(|point| (point.policy, point.load) == (policy, load)) {
                points.push(Point { pool, policy, load, duration_ns });
            }
        }
    }
    if points.is_empty() {
        bail!("nothing to run; give at least one policy and one load");
    }
    Ok(points)
}

/// Indices of the points in the order in which to begin them: the longest first, so that lanes end
/// together.
pub(super) fn order(points: &[Point]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(points[index].duration_ns));
    order
}

/// Time that the points of these durations take when `lanes` run at once and each lane takes the
/// next of the list.
pub(super) fn span_ns(durations_ns: impl IntoIterator<Item = u64>, lanes: usize) -> u64 {
    let mut lanes_ns = vec![0; lanes.max(1)];
    for duration_ns in durations_ns {
        if let Some(lane_ns) = lanes_ns.iter_mut().min() {
            *lane_ns += duration_ns;
        }
    }
    lanes_ns.into_iter().max().unwrap_or(0)
}

/// Reads a load.
pub(super) fn parse_load(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(load) if (LOAD_MIN..=LOAD_MAX).contains(&load) => Ok(load),
        _ => Err(format!("{text:?} is not a load from {LOAD_MIN} to {LOAD_MAX}")),
    }
}

fn needed_ns(pool: &Pool, policy: PolicySpec, load: f64) -> u64 {
    if pool.jitter > 0.0 {
        let needed_s = JITTERED_REQUESTS / (load * pool.capacity_per_s());
        return JITTERED_NS_MIN.max((needed_s * 1e3).ceil() as u64 * NS_PER_MS);
    }
    let base_ms = if load <= 0.6 {
        4_000
    } else if load <= 0.75 {
        8_000
    } else {
        10_000
    };
    let percent = match policy.model() {
        QueueModel::Independent => 170,
        QueueModel::Cyclic => 120,
        QueueModel::Sampled(_) | QueueModel::Other => 100,
        QueueModel::Bounded(_) => 70,
    };
    base_ms * percent / 100 * NS_PER_MS
}

/// Servers behind the router, each one worker.
pub(super) const WORKERS: usize = 8;
/// The servers of the curves over the load.
pub(super) const PLAIN: Pool =
    Pool { servers: WORKERS, workers: 1, service: "exp:1ms", service_us: 1_000.0, jitter: 0.0 };
/// The servers of the panel on cloning, which are those of NetClone's testbed with services that
/// let one core carry a lane: 5,500 requests a second at a load of 0.7, and a third as many copies.
pub(super) const JITTERED: Pool =
    Pool { servers: 6, workers: 15, service: "exp:10ms", service_us: 10_000.0, jitter: 0.01 };
/// By simulation a p99 of so many requests has a standard deviation of 5 % at a load of 0.3.
const JITTERED_REQUESTS: f64 = 14_000.0;
/// More requests at a higher load, whose neighbours resemble each other.
const JITTERED_NS_MIN: u64 = 4_000 * NS_PER_MS;
/// An empty system is steady after some relaxation times; the longest, M/M/1 at 0.85, is 0.16 s.
pub(super) const WARMUP_NS: u64 = 700 * NS_PER_MS;
const NS_PER_MS: u64 = 1_000_000;
const US_PER_S: f64 = 1e6;
/// Below, there are too few requests for a tail; above, a run of seconds does not reach a steady
/// state.
const LOAD_MIN: f64 = 0.05;
const LOAD_MAX: f64 = 0.95;

#[cfg(test)]
mod tests {
    use tailcut_proto::policy::{Jbsq, Random};

    use super::*;

    #[test]
    fn the_usual_plan_takes_about_a_minute_on_two_lanes() {
        let points = usual(None);
        assert_eq!(points.len(), 12);
        assert!((50..62).contains(&span_s(&points)), "{} s", span_s(&points));
    }

    #[test]
    fn the_panel_on_cloning_takes_a_third_of_that() {
        let points = points(&JITTERED, &specs(["random", "netclone"]), &[0.3, 0.5, 0.7], None);
        let points = points.unwrap();
        assert_eq!(points.len(), 6);
        assert!((15..20).contains(&span_s(&points)), "{} s", span_s(&points));
        assert!(points.iter().all(|point| point.rate_per_s() < 5_600.0));
    }

    #[test]
    fn a_given_duration_holds_for_every_point() {
        assert!(usual(Some(5)).iter().all(|point| point.duration_ns == 5));
    }

    #[test]
    fn a_point_is_run_once() {
        assert_eq!(points(&PLAIN, &[Random::SPEC; 2], &[0.5, 0.5], None).unwrap().len(), 1);
    }

    #[test]
    fn every_point_supports_a_p999() {
        let samples = |point: &Point| point.rate_per_s() * point.duration_ns as f64 / 1e9;
        assert!(usual(None).iter().all(|point| samples(point) > 10_500.0));
    }

    #[test]
    fn a_bound_that_moves_is_refused() {
        assert!(points(&PLAIN, &[Jbsq::AUTO], &[0.5], None).is_err());
    }

    #[test]
    fn lanes_take_the_next_of_the_list() {
        assert_eq!(span_ns([5, 4, 3, 2], 2), 7);
        assert_eq!(span_ns([5, 4], 1), 9);
        assert_eq!(span_ns([], 2), 0);
    }

    #[test]
    fn a_load_is_a_share() {
        assert_eq!(parse_load("0.7"), Ok(0.7));
        for text in ["0", "1", "70", "NaN", "-0.5", "x"] {
            assert!(parse_load(text).is_err(), "{text}");
        }
    }

    fn usual(duration_ns: Option<u64>) -> Vec<Point> {
        let policies = specs(["random", "rr", "jsq:2", "jbsq:2"]);
        points(&PLAIN, &policies, &[0.5, 0.7, 0.85], duration_ns).unwrap()
    }

    fn specs<const N: usize>(texts: [&str; N]) -> [PolicySpec; N] {
        texts.map(|text| text.parse().unwrap())
    }

    /// On two lanes.
    fn span_s(points: &[Point]) -> u64 {
        let durations = order(points).into_iter().map(|index| points[index].loaded_ns());
        span_ns(durations, 2) / 1_000_000_000
    }
}
