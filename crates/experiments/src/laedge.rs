//! `laedge`: LAEDGE's coordinator as the NetClone artifact has it, 5 servers of 15 workers,
//! exponential services of 25 us with 1 % of jitter.
//!
//! The artifact's coordinator gives a server one request at a time, whatever its workers, so that
//! it saturates at some 6 % of what the same workers can do; with one slot for each worker, it is
//! the coordinator's own work for each packet that saturates. The 99th percentiles were simulated
//! by others, in single runs. At the two lower rates they are held to 5 %. Towards saturation a run
//! of 600,000 requests differs from the next by 6 and 10 %, so there the published value has to be
//! one that such a run could have given: within three standard deviations. The rate that saturates
//! the servers is held to the range in which it was found. Of what saturates the coordinator there
//! is an estimate alone, which is shown.

use anyhow::Result;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use tailcut_sim::cloning::{Config, Coordinator, Scheme, Slots};

use super::cloning::{Point, config};
use super::effort::Effort;
use super::figure::{Curve, Figure, Panel};
use super::search::highest_load;
use super::verdict::{Basis, Tolerance, Verdict};

pub(super) fn figure(effort: Effort) -> Result<Figure> {
    let mut verdicts = Vec::new();
    for (krps, expected) in TAILS_US {
        let point = Point::run_seeds(effort, &slotted(Slots::Server, krps)?, SINGLE_RUN, 16)?;
        let what = format!("one slot a server at {krps} k/s: p99 us");
        let (expected, obtained) = ((Basis::Simulated, expected), point.percentile_us(0.99));
        verdicts.push(if krps < STEADY_KRPS {
            Verdict::new(effort, what, expected, obtained, Tolerance::Relative(0.05))
        } else {
            Verdict::fixed(
                what,
                expected,
                obtained,
                Tolerance::Absolute(3.0 * point.deviation_us(0.99)),
            )
        });
    }
    let what = "one slot a server: k/s at saturation".to_owned();
    let saturated = 250.0 * goodput(effort, Slots::Server, 250.0)?;
    // From 155 to 158.
    verdicts.push(Verdict::fixed(
        what,
        (Basis::Simulated, 156.5),
        saturated,
        Tolerance::Absolute(1.5),
    ));
    let what = "one slot a worker: k/s that all complete, from 800 to 900".to_owned();
    let highest =
        highest_load(
            effort,
            |megarps| Ok(goodput(effort, Slots::Worker, megarps * 1e3)? >= 0.995),
        )?;
    verdicts.push(Verdict::fixed(what, (Basis::Simulated, 850.0), highest * 1e3, Tolerance::Shown));
    Ok(Figure { panels: vec![panel(effort)?], verdicts })
}

fn panel(effort: Effort) -> Result<Panel> {
    let curve = |slots: Slots, label: &str, rates: &[f64], expected: &[(f64, f64)]| {
        let point = |&krps: &f64| Ok((krps, run(effort, slots, krps)?.percentile_us(0.99)));
        let obtained = rates.par_iter().map(point).collect::<Result<_>>()?;
        Ok::<_, anyhow::Error>(Curve {
            label: label.to_owned(),
            obtained,
            expected: expected.to_vec(),
        })
    };
    Ok(Panel {
        title: "LAEDGE, 5 servers of 15 workers".to_owned(),
        x: "throughput (thousand requests per second)",
        y: "p99 (us)",
        y_max: Some(1_000.0),
        curves: vec![
            curve(
                Slots::Server,
                "one slot a server",
                &[13.0, 30.0, 53.0, 80.0, 105.0, 120.0, 131.0, 140.0, 150.0],
                &TAILS_US,
            )?,
            curve(
                Slots::Worker,
                "one slot a worker",
                &[13.0, 53.0, 105.0, 200.0, 400.0, 600.0, 700.0, 800.0],
                &[],
            )?,
        ],
    })
}

/// Completed of offered requests.
fn goodput(effort: Effort, slots: Slots, krps: f64) -> Result<f64> {
    Ok(run(effort, slots, krps)?.average(|run| run.goodput_share()))
}

fn run(effort: Effort, slots: Slots, krps: f64) -> Result<Point> {
    Point::run(effort, &slotted(slots, krps)?, REQUESTS)
}

fn slotted(slots: Slots, krps: f64) -> Result<Config> {
    let config = config(Scheme::Laedge, 5, "exp:25us", 1.0)?;
    let load = krps * 1e3 / config.capacity_per_s().unwrap_or(f64::NAN);
    let coordinator = Coordinator { slots, ..Coordinator::default() };
    Ok(Config { load, coordinator, ..config })
}

const REQUESTS: u32 = 400_000;
/// Requests of a published run.
const SINGLE_RUN: u32 = 600_000;
/// Up to here a percentile hardly varies from run to run.
const STEADY_KRPS: f64 = 100.0;
/// By thousands of requests a second.
const TAILS_US: [(f64, f64); 4] = [(13.0, 73.0), (53.0, 115.0), (105.0, 246.0), (131.0, 614.0)];
