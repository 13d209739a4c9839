//! `racksched-hetero`: RackSched where servers differ, four with 7 workers and four with 4.
//!
//! Random placement loads all servers alike, and so saturates with the small ones, at the worth of
//! 8 x 4 workers; RackSched can use all 44: a ratio of 1.375 whatever the service, held to 2 %. The
//! paper's artifact sweeps each policy up to loads around where it saturates, on a grid whose next
//! step is 4 to 7 % away for both, so the ratios of the last loads are held to 10 %. (Of the loads
//! themselves nothing can be said, because its services took about 0.8 of their nominal time.) At a
//! p99 of ten mean services the ratio is larger, because four workers have the longer tail, too; it
//! is shown.

use anyhow::{Context, Result};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::Unit;
use tailcut_sim::cloning::{Config, Report, Scheme};

use super::cloning::{Point, name};
use super::effort::Effort;
use super::figure::{Curve, Figure, Panel};
use super::search::highest_load;
use super::verdict::{Basis, Tolerance, Verdict};

pub(super) fn figure(effort: Effort) -> Result<Figure> {
    let (mut verdicts, mut panels) = (Vec::new(), Vec::new());
    for Service { name: service, form, ratio } in &SERVICES {
        let saturated =
            over(|scheme| highest_load(effort, |load| completes(effort, scheme, form, load)))?;
        let kept = over(|scheme| highest_load(effort, |load| keeps(effort, scheme, form, load)))?;
        let of = |what: &str| format!("{service}: {what}");
        let (exact, published) = ((Basis::Exact, 1.375), (Basis::Published, *ratio));
        let what = of("saturation over random's");
        verdicts.push(Verdict::new(
            effort,
            what.clone(),
            exact,
            saturated,
            Tolerance::Relative(0.02),
        ));
        verdicts.push(Verdict::fixed(what, published, saturated, Tolerance::Relative(0.1)));
        let what = of("load at a p99 of 10 services over random's");
        verdicts.push(Verdict::fixed(what, published, kept, Tolerance::Shown));
        panels.push(panel(effort, service, form)?);
    }
    Ok(Figure { panels, verdicts })
}

/// RackSched's load over that of random placement.
fn over(reached: impl Fn(Scheme) -> Result<f64> + Sync) -> Result<f64> {
    let reached =
        SCHEMES.par_iter().map(|&scheme| reached(scheme)).collect::<Result<Vec<f64>>>()?;
    Ok(reached[1] / reached[0])
}

/// True where all but one in two hundred complete while the next come.
fn completes(effort: Effort, scheme: Scheme, form: &str, load: f64) -> Result<bool> {
    Ok(run(effort, scheme, form, load)?.average(|run| run.goodput_share()) >= 0.995)
}

/// True where the p99 is ten mean services or less.
fn keeps(effort: Effort, scheme: Scheme, form: &str, load: f64) -> Result<bool> {
    Ok(run(effort, scheme, form, load)?.percentile_us(0.99) <= 10.0 * mean_us(form)?)
}

/// The p99 over the load.
fn panel(effort: Effort, service: &str, form: &str) -> Result<Panel> {
    let service_us = mean_us(form)?;
    let curve = |&scheme: &Scheme| {
        let loads = [0.1, 0.2, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95];
        let run = |&load: &f64| {
            Ok((load, run(effort, scheme, form, load)?.percentile_us(0.99) / service_us))
        };
        let obtained = loads.par_iter().map(run).collect::<Result<_>>()?;
        Ok(Curve { label: name(scheme).to_owned(), obtained, expected: Vec::new() })
    };
    Ok(Panel {
        title: service.to_owned(),
        x: "load of all 44 workers",
        y: "p99 (mean service times)",
        y_max: Some(20.0),
        curves: SCHEMES.iter().map(curve).collect::<Result<_>>()?,
    })
}

fn run(effort: Effort, scheme: Scheme, form: &str, load: f64) -> Result<Point> {
    let service = Distribution::parse(form, Unit::Time)?;
    let servers = vec![7, 7, 7, 7, 4, 4, 4, 4];
    let config = Config {
        jitter: 0.0,
        report: Report::Outstanding,
        ..Config::new(scheme, servers, service, load)
    };
    Point::run(effort, &config, REQUESTS)
}

fn mean_us(form: &str) -> Result<f64> {
    let mean_ns =
        Distribution::parse(form, Unit::Time)?.mean().context("the services here have a mean")?;
    Ok(mean_ns / 1e3)
}

struct Service {
    name: &'static str,
    form: &'static str,
    /// The last load of the artifact's sweep of RackSched over that of random placement.
    ratio: f64,
}

const SCHEMES: [Scheme; 2] = [Scheme::None, Scheme::RackSched];

const SERVICES: [Service; 3] = [
    Service { name: "Exp(50)", form: "exp:50us", ratio: 780.0 / 600.0 },
    Service { name: "Bimodal(90-50/10-500)", form: "bimodal:50us:500us:0.9", ratio: 560.0 / 400.0 },
    Service { name: "Bimodal(50-50/50-500)", form: "bimodal:50us:500us:0.5", ratio: 160.0 / 120.0 },
];

const REQUESTS: u32 = 400_000;
