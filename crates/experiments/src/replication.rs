//! `replication-threshold`: the load up to which sending every request twice helps.
//!
//! Servers of one worker. The mean response of exponential services is S / (1 - load) without
//! replication and S / (2 (1 - 2 load)) with it, so the threshold is exactly 1/3; for constant
//! services it is about 0.258 (Vulimiri et al., CoNEXT'13), and none is above 1/2. The published
//! threshold of constant services holds for some 20 servers, of which a pair's queues fill together
//! now and then; over many servers they are independent, and two M/D/1 queues of twice the load
//! cross at 0.2719. Means are held to 2 %, thresholds to 0.01.

use anyhow::Result;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::Unit;
use tailcut_sim::cloning::{Config, Delays, Scheme};

use super::cloning::{Point, config};
use super::effort::Effort;
use super::figure::{Curve, Figure, Panel};
use super::verdict::{Basis, Tolerance, Verdict};

pub(super) fn figure(effort: Effort) -> Result<Figure> {
    let mut verdicts = Vec::new();
    for (name, servers, service, basis, threshold) in [
        ("exponential", 20, EXP, Basis::Exact, 1.0 / 3.0),
        ("constant", 20, FIXED, Basis::Published, 0.258),
        ("constant", 400, FIXED, Basis::Exact, 0.2719),
    ] {
        let what = format!("{name} services, {servers} servers: threshold of the load");
        let found = found_threshold(effort, servers, service)?;
        verdicts.push(Verdict::new(
            effort,
            what,
            (basis, threshold),
            found,
            Tolerance::Absolute(0.01),
        ));
    }
    for (scheme, what, exact) in [
        (Scheme::None, "one copy", S_US / 0.75),
        (Scheme::CClone, "two copies", S_US / (2.0 * 0.5)),
    ] {
        let what = format!("exponential services at 0.25, {what}: mean us");
        let mean_us = mean_us(effort, scheme, (20, EXP), 0.25)?;
        verdicts.push(Verdict::new(
            effort,
            what,
            (Basis::Exact, exact),
            mean_us,
            Tolerance::Relative(0.02),
        ));
    }
    verdicts.push(saturation(effort)?);
    Ok(Figure {
        panels: vec![panel(effort, "exponential", EXP)?, panel(effort, "constant", FIXED)?],
        verdicts,
    })
}

/// Load at which the mean responses cross, by bisection to 0.001.
fn found_threshold(effort: Effort, servers: usize, service: &str) -> Result<f64> {
    let (mut low, mut high) = (0.05, 0.45);
    while high - low > 0.001 {
        let load = f64::midpoint(low, high);
        let mean_us = |scheme| mean_us(effort, scheme, (servers, service), load);
        let helps = mean_us(Scheme::CClone)? < mean_us(Scheme::None)?;
        *(if helps { &mut low } else { &mut high }) = load;
    }
    Ok(f64::midpoint(low, high))
}

/// C-Clone's throughput where more comes than it can do, as a share of the capacity.
fn saturation(effort: Effort) -> Result<Verdict> {
    let offered = 0.7;
    let point = Point::run(effort, &config(Scheme::CClone, 6, EXP, offered)?, REQUESTS)?;
    let completed = offered * point.average(|run| run.goodput_share());
    let what = "C-Clone, 6 servers of 15 workers: share of the capacity at saturation".to_owned();
    Ok(Verdict::new(effort, what, (Basis::Exact, 0.5), completed, Tolerance::Relative(0.01)))
}

fn panel(effort: Effort, name: &str, service: &str) -> Result<Panel> {
    let curve = |scheme: Scheme, label: &str, loads: &[f64], exact: Option<Response>| {
        let obtained = loads
            .par_iter()
            .map(|&load| Ok((load, mean_us(effort, scheme, (20, service), load)? / S_US)));
        let expected =
            exact.into_iter().flat_map(|exact| loads.iter().map(move |&load| (load, exact(load))));
        let (obtained, expected) = (obtained.collect::<Result<_>>()?, expected.collect());
        Ok::<_, anyhow::Error>(Curve { label: label.to_owned(), obtained, expected })
    };
    let [one, two]: [Option<Response>; 2] = match service {
        EXP => [Some(|load| 1.0 / (1.0 - load)), Some(|load| 0.5 / (1.0 - 2.0 * load))],
        // M/D/1; of two copies there is no closed form.
        _ => [Some(|load| 1.0 + load / (2.0 * (1.0 - load))), None],
    };
    let loads = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45];
    Ok(Panel {
        title: format!("{name} services, 20 servers"),
        x: "load without replication",
        y: "mean response (mean service times)",
        y_max: Some(3.0),
        curves: vec![
            curve(Scheme::None, "one copy", &loads, one)?,
            curve(Scheme::CClone, "two copies", &loads[..8], two)?,
        ],
    })
}

/// The mean response over the load, in mean services.
type Response = fn(f64) -> f64;

fn mean_us(
    effort: Effort,
    scheme: Scheme,
    (servers, service): (usize, &str),
    load: f64,
) -> Result<f64> {
    let delays = Delays {
        client_switch_ps: 0,
        switch_server_ps: 0,
        recirculation_ps: 0,
        switch_coordinator_ps: 0,
    };
    let service = Distribution::parse(service, Unit::Time)?;
    let config =
        Config { jitter: 0.0, delays, ..Config::new(scheme, vec![1; servers], service, load) };
    Ok(Point::run(effort, &config, REQUESTS)?.mean_us())
}

const EXP: &str = "exp:25us";
const FIXED: &str = "fixed:25us";
const S_US: f64 = 25.0;
const REQUESTS: u32 = 500_000;
