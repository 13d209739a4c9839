//! `jbsq-bound`: which bound R2P2's router needs, by service and delay.
//!
//! D is the way from the router to a worker and back, S the mean service. A bound of n can serve n
//! S / (S + D) of the capacity at most; beyond 1 + D / S it costs a little again. What is compared
//! is the load up to which the p99 stays below ten mean services (and half of D more where that is
//! five services), in runs as long as the published ones, 300,000 requests: in a longer run, a
//! queue near saturation has more time to grow.
//!
//! The published loads come from one such run each, whose p99 is uncertain by some 2 %, and with it
//! the load by up to 0.02 where the curve is flat. They have two digits, which seem to be cut off
//! and not rounded: what is obtained here lies above them by 0.009 on average. So the tolerance is
//! 0.02 around the middle of a published value's hundredth: 0.015 below the value, and 0.025 above.

use std::num::NonZeroU32;

use anyhow::Result;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::Unit;
use tailcut_measure::queueing::Sojourn;
use tailcut_proto::policy::{PolicySpec, QueueModel};
use tailcut_sim::queue::{System, SystemError, TieRule};

use super::cores::over_seeds;
use super::effort::Effort;
use super::figure::{Curve, Figure, Panel};
use super::search::highest_load;
use super::verdict::{Basis, Tolerance, Verdict};

pub(super) fn figure(effort: Effort) -> Result<Figure> {
    let run = |cell: Cell| {
        let seeds = over_seeds(effort.seed, effort.requests(SEEDS), |seed| {
            highest_load(effort, |load| cell.keeps(seed, load))
        });
        let loads = seeds.into_iter().collect::<Result<Vec<f64>>>()?;
        Ok((loads.iter().sum::<f64>() / loads.len() as f64, cell))
    };
    let found: Vec<(f64, Cell)> = cells().into_par_iter().map(run).collect::<Result<_>>()?;
    let verdict = |(obtained, cell): &(f64, Cell)| {
        let what =
            format!("{} {}, D = {} S: load", cell.policy, cell.service.name, cell.delay.services);
        let expected = (Basis::Simulated, cell.published);
        Verdict::new(
            effort,
            what,
            expected,
            *obtained,
            Tolerance::Sides {
                below: PUBLISHED_ERROR - HALF_DIGIT,
                above: PUBLISHED_ERROR + HALF_DIGIT,
            },
        )
    };
    let panels = DELAYS.iter().map(|delay| panel(delay, &found)).collect();
    Ok(Figure { panels, verdicts: found.iter().map(verdict).collect() })
}

/// One published load.
struct Cell {
    policy: PolicySpec,
    service: &'static Service,
    delay: &'static Delay,
    published: f64,
}

impl Cell {
    /// True if the p99 stays within the limit at a load. No load beyond the ceiling of the bound
    /// does.
    fn keeps(&self, seed: u64, load: f64) -> Result<bool> {
        let system =
            System::new(16, self.policy, Distribution::parse(self.service.form, Unit::Time)?);
        let one_way_ps = (0.5 * self.delay.services * SERVICE_PS).round() as u64;
        let ties = self.bound().map(|_| TieRule::Random);
        let system = System { to_worker_ps: one_way_ps, feedback_ps: one_way_ps, ties, ..system };
        match system.at_load(load).for_requests(REQUESTS).run(seed) {
            Ok(run) => Ok(run.percentile(0.99) <= self.delay.limit),
            Err(SystemError::Overload { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The bound, where the policy has one.
    fn bound(&self) -> Option<u32> {
        match self.policy.model() {
            QueueModel::Bounded(bound) => bound.map(NonZeroU32::get),
            _ => None,
        }
    }
}

fn cells() -> Vec<Cell> {
    let of_row = |(policy, row): &(&str, [[f64; 3]; 4])| {
        let policy: PolicySpec = policy.parse().expect("the table has policies");
        let by_delay = DELAYS.iter().zip(*row);
        by_delay
            .flat_map(|(delay, loads)| {
                let by_service = SERVICES.iter().zip(loads);
                by_service.map(move |(service, published)| Cell {
                    policy,
                    service,
                    delay,
                    published,
                })
            })
            .collect::<Vec<_>>()
    };
    LOADS.iter().flat_map(of_row).collect()
}

/// The load over the bound, for each service.
fn panel(delay: &Delay, found: &[(f64, Cell)]) -> Panel {
    let curve = |service: &Service| {
        let mut curve = Curve { label: service.name.to_owned(), ..Curve::default() };
        for (obtained, cell) in found
            .iter()
            .filter(|(_, cell)| cell.delay == delay && cell.service.name == service.name)
        {
            let Some(bound) = cell.bound().map(f64::from) else { continue };
            curve.obtained.push((bound, *obtained));
            curve.expected.push((bound, cell.published));
        }
        curve
    };
    Panel {
        title: format!("round trip of {} mean services", delay.services),
        x: "bound of JBSQ",
        y: "highest load that keeps the p99",
        y_max: None,
        curves: SERVICES.iter().map(curve).collect(),
    }
}

#[derive(Debug)]
struct Service {
    name: &'static str,
    /// Distribution of mean 1 us.
    form: &'static str,
}

#[derive(Debug, PartialEq)]
struct Delay {
    /// There and back.
    services: f64,
    /// On the p99, in mean services.
    limit: f64,
}

const SERVICES: [Service; 3] = [
    Service { name: "fixed", form: "fixed:1us" },
    Service { name: "exp", form: "exp:1us" },
    Service { name: "bimodal", form: "bimodal:526.315789ns:5263.15789ns:0.9" },
];

const DELAYS: [Delay; 4] = [
    Delay { services: 0.0, limit: 10.0 },
    Delay { services: 0.2, limit: 10.0 },
    Delay { services: 1.0, limit: 10.0 },
    Delay { services: 10.0, limit: 15.0 },
];

/// By delay, then by service.
const LOADS: [(&str, [[f64; 3]; 4]); 8] = [
    ("random", [[0.77, 0.54, 0.34], [0.77, 0.54, 0.33], [0.76, 0.51, 0.30], [0.77, 0.54, 0.34]]),
    ("rr", [[0.98, 0.72, 0.53], [0.98, 0.72, 0.51], [0.98, 0.71, 0.49], [0.98, 0.72, 0.53]]),
    ("jbsq:1", [[0.98, 0.97, 0.95], [0.82, 0.80, 0.79], [0.48, 0.48, 0.46], [0.07, 0.07, 0.07]]),
    ("jbsq:2", [[0.98, 0.97, 0.94], [0.98, 0.95, 0.92], [0.98, 0.77, 0.74], [0.16, 0.16, 0.16]]),
    ("jbsq:3", [[0.97, 0.97, 0.91], [0.97, 0.95, 0.88], [0.98, 0.88, 0.74], [0.25, 0.25, 0.23]]),
    ("jbsq:4", [[0.97, 0.95, 0.91], [0.98, 0.95, 0.86], [0.97, 0.92, 0.72], [0.34, 0.33, 0.31]]),
    ("jbsq:8", [[0.98, 0.95, 0.89], [0.97, 0.95, 0.86], [0.97, 0.92, 0.72], [0.71, 0.63, 0.45]]),
    ("jbsq:16", [[0.97, 0.95, 0.89], [0.97, 0.95, 0.86], [0.97, 0.92, 0.72], [0.98, 0.76, 0.45]]),
];

const SERVICE_PS: f64 = 1e6;
/// Requests of a run, as published; what is near saturation in a longer run is still far from it
/// here.
const REQUESTS: u64 = 300_000;
const SEEDS: u64 = 8;
const PUBLISHED_ERROR: f64 = 0.02;
/// Half of a published load's last digit.
const HALF_DIGIT: f64 = 0.005;
