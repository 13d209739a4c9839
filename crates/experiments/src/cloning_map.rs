//! `cloning-map`: where each way of cloning wins, over load, service, jitter, and both readings of
//! a copy's service time.
//!
//! 6 servers of 15 workers, services of 25 us and more in three shapes, jitter of 1 % and 0.1 %,
//! and copies that each draw their service, as the published artifact does, or share the request's
//! base. Then servers of one worker with services of 1 ms, and servers of unequal size; and what it
//! brings to cancel the slower copy. A scheme that completes less than 99 % of what is offered has
//! no figure at that load.
//!
//! What must hold are the claims on `auto-clone`, where exponential services let a p99 tell: up to
//! 0.9 of the capacity its p99 is no higher than that of NetClone with RackSched, nor than that of
//! JBSQ, and it completes what is offered. Each to 3 %, which is what the p99 of two runs differ
//! by; at 0.95, where it is 10 %, the throughput alone is judged.

use anyhow::Result;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::Unit;
use tailcut_sim::cloning::{Config, Coordinator, Copies, Loser, Scheme, Slots};

use super::cloning::Point;
use super::effort::Effort;
use super::figure::{Curve, Figure, Panel};
use super::verdict::{Basis, Tolerance, Verdict};

pub(super) fn figure(effort: Effort) -> Result<Figure> {
    let (places, mut cells) = (places(), Vec::new());
    for place in &places {
        for scheme in place.schemes {
            let loser = Loser::Runs;
            cells.extend(LOADS.map(|load| Cell { place: place.clone(), scheme, load, loser }));
        }
    }
    for (scheme, loser) in LOSERS {
        let place = Place { title: LOSERS_TITLE.to_owned(), ..places[0].clone() };
        cells.extend(LOADS.map(|load| Cell { place: place.clone(), scheme, load, loser }));
    }
    let found: Vec<Found> = cells.par_iter().map(|cell| cell.run(effort)).collect::<Result<_>>()?;
    let panels = places.iter().map(|place| panel(place, &found)).chain([losers(&found)]).collect();
    let judged = places.iter().filter(|place| place.is_judged);
    let verdicts = judged.flat_map(|place| verdicts(effort, place, &found)).collect();
    Ok(Figure { panels, verdicts })
}

/// Servers and services, and which schemes are run there.
#[derive(Clone)]
struct Place {
    title: String,
    servers: Vec<u32>,
    service: &'static str,
    jitter: f64,
    copies: Copies,
    schemes: [&'static str; SCHEMES],
    is_judged: bool,
}

/// One scheme at one load.
struct Cell {
    place: Place,
    scheme: &'static str,
    load: f64,
    loser: Loser,
}

/// Result of a cell.
struct Found {
    title: String,
    scheme: &'static str,
    load: f64,
    loser: Loser,
    p99_us: f64,
    completed: f64,
}

impl Cell {
    fn run(&self, effort: Effort) -> Result<Found> {
        let Place { servers, service, jitter, copies, .. } = &self.place;
        let service = Distribution::parse(service, Unit::Time)?;
        let scheme: Scheme = self.scheme.parse()?;
        let coordinator = Coordinator { slots: Slots::Worker, ..Coordinator::default() };
        let config = Config {
            jitter: *jitter,
            copies: *copies,
            coordinator,
            loser: self.loser,
            ..Config::new(scheme, servers.clone(), service, self.load)
        };
        let point = Point::run_seeds(effort, &config, REQUESTS, RUNS)?;
        Ok(Found {
            title: self.place.title.clone(),
            scheme: self.scheme,
            load: self.load,
            loser: self.loser,
            p99_us: point.percentile_us(0.99),
            completed: point.average(|run| run.goodput_share()),
        })
    }
}

/// Every place of the map.
fn places() -> Vec<Place> {
    let mut places = Vec::new();
    for service in ["exp:25us", "bimodal:25us:250us:0.9", "fixed:25us"] {
        for jitter in [0.01, 0.001] {
            for copies in [Copies::Fresh, Copies::Shared] {
                places.push(Place {
                    title: format!("6x15, {service}, jitter {jitter}, {copies}"),
                    servers: vec![15; 6],
                    service,
                    jitter,
                    copies,
                    schemes: schemes("laedge", "jbsq:17", "jbsq:15+clone"),
                    is_judged: service.starts_with("exp"),
                });
            }
        }
    }
    let other = |name: &str, servers, service, schemes| Place {
        title: format!("{name}, {service}, jitter 0.01, fresh"),
        servers,
        service,
        jitter: 0.01,
        copies: Copies::Fresh,
        schemes,
        is_judged: false,
    };
    let (single, uneven) = (vec![1; 8], [[7; 4], [4; 4]].concat());
    places.push(other("8x1", single, "exp:1ms", schemes("laedge", "jbsq:2", "jbsq:1+clone")));
    let schemes = schemes("laedge:4", "jbsq:8", "jbsq:7+clone");
    places.push(other("4x7 and 4x4", uneven, "exp:25us", schemes));
    places
}

fn schemes(
    laedge: &'static str,
    jbsq: &'static str,
    jbsq_clone: &'static str,
) -> [&'static str; SCHEMES] {
    let published = ["none", "cclone", "racksched", NETCLONE];
    let [random, cclone, racksched, both] = published;
    [random, cclone, laedge, racksched, "netclone", both, jbsq, jbsq_clone, AUTO]
}

/// The p99 of every scheme over the load, as far as it completes what is offered.
fn panel(place: &Place, found: &[Found]) -> Panel {
    let curve = |scheme: &&'static str| Curve {
        label: if *scheme == "none" { "random".to_owned() } else { (*scheme).to_owned() },
        obtained: found
            .iter()
            .filter(|it| it.title == place.title && it.scheme == *scheme && it.completed >= SERVES)
            .map(|it| (it.load, it.p99_us))
            .collect(),
        expected: Vec::new(),
    };
    over_load(place.title.clone(), place.schemes.iter().map(curve).collect())
}

/// The p99 of schemes whose slower copies run to their ends, leave the queue, or are stopped.
fn losers(found: &[Found]) -> Panel {
    let curve = |(scheme, loser): (&'static str, Loser)| {
        let here = found.iter().filter(|it| it.title == LOSERS_TITLE);
        let mine = here.filter(|it| (it.scheme, it.loser) == (scheme, loser));
        Curve {
            label: format!("{scheme}/{loser}"),
            obtained: mine
                .filter(|it| it.completed >= SERVES)
                .map(|it| (it.load, it.p99_us))
                .collect(),
            expected: Vec::new(),
        }
    };
    over_load(LOSERS_TITLE.to_owned(), LOSERS.map(curve).to_vec())
}

fn over_load(title: String, curves: Vec<Curve>) -> Panel {
    Panel { title, x: "load", y: "p99 (us)", y_max: None, curves }
}

fn verdicts(effort: Effort, place: &Place, found: &[Found]) -> Vec<Verdict> {
    let at = |scheme: &str, load: f64| {
        let mut here = found.iter().filter(|it| it.title == place.title && it.load == load);
        here.find(|it| it.scheme == scheme).expect("every scheme was run at every load")
    };
    let jbsq = place.schemes[SCHEMES - 3];
    let mut verdicts = Vec::new();
    for load in LOADS {
        let tolerance = if load <= 0.9 {
            Tolerance::Sides { below: 0.03, above: f64::INFINITY }
        } else {
            Tolerance::Shown
        };
        for rival in [NETCLONE, jbsq] {
            let ratio = at(rival, load).p99_us / at(AUTO, load).p99_us;
            let what = format!("{} at {load}: p99 of {rival} over {AUTO}", place.title);
            verdicts.push(Verdict::new(effort, what, (Basis::Claimed, 1.0), ratio, tolerance));
        }
        let what = format!("{} at {load}: completed by {AUTO}", place.title);
        let completed = at(AUTO, load).completed;
        let tolerance = Tolerance::Relative(0.005);
        verdicts.push(Verdict::new(effort, what, (Basis::Claimed, 1.0), completed, tolerance));
    }
    verdicts
}

const SCHEMES: usize = 9;
const LOADS: [f64; 8] = [0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];
const NETCLONE: &str = "netclone+racksched";
/// Schemes by what becomes of the slower copy.
const LOSERS: [(&str, Loser); 8] = [
    ("cclone", Loser::Runs),
    ("cclone", Loser::Stops),
    (NETCLONE, Loser::Runs),
    (NETCLONE, Loser::Leaves),
    (NETCLONE, Loser::Stops),
    (AUTO, Loser::Runs),
    (AUTO, Loser::Leaves),
    (AUTO, Loser::Stops),
];
const LOSERS_TITLE: &str = "slower copies: 6x15, exp:25us, jitter 0.01, fresh";
const AUTO: &str = "auto-clone";
/// Requests of a run.
const REQUESTS: u32 = 400_000;
/// Runs of a point.
const RUNS: u64 = 2;
/// Completed of offered by a scheme that keeps up.
const SERVES: f64 = 0.99;
