//! `jbsq-auto`: the default policy of the router against the best fixed bound.
//!
//! The router is the node itself, before servers that are modelled (`tailcut_sim::failing`). In
//! each place the p99 of `jbsq:auto` is over that of the best of several fixed bounds, among them
//! one request for each worker, and what hides the way and twice that. A request that is not
//! answered counts as one that takes for ever, and nothing is refused for having waited. So a bound
//! that starves servers loses.
//!
//! What must hold is the claim of this repository on its own default: a p99 within 1.1 of the best
//! bound's, which nobody knows beforehand, and as many answers as with the bound that gives most.
//! It is 1.2 where services vary as those of searches do: what is good for them is not for others,
//! and how much they vary is known only about. Where processes wait for cores the p99 is shown, and
//! the answers are judged.

use anyhow::Result;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::Unit;
use tailcut_proto::router::RouterConfig;
use tailcut_proto::scheduler::overload::OverloadConfig;
use tailcut_sim::failing::Config;

use super::effort::Effort;
use super::figure::{Curve, Figure, Panel};
use super::verdict::{Basis, Tolerance, Verdict};

pub(super) fn figure(effort: Effort) -> Result<Figure> {
    let of_place = |place: &'static Place| {
        let of_service = move |service: &'static Service| {
            LOADS.iter().map(move |&load| Cell { place, service, load })
        };
        SERVICES.iter().flat_map(of_service)
    };
    // Before servers that wait for cores for much longer than services last there is no bound that
    // carries them.
    let is_fit =
        |cell: &Cell| cell.place.wakes.is_none() || cell.service.mean_ns >= WITH_WAKES_NS_MIN;
    let cells: Vec<Cell> = PLACES.iter().flat_map(of_place).filter(is_fit).collect();
    let found: Vec<(Found, Cell)> = cells
        .into_par_iter()
        .map(|cell| Ok((cell.compare(effort)?, cell)))
        .collect::<Result<_>>()?;
    let panels = PLACES.iter().map(|place| panel(place, &found)).collect();
    let verdicts = found.iter().flat_map(|(found, cell)| verdicts(effort, *found, cell));
    Ok(Figure { panels, verdicts: verdicts.collect() })
}

/// A cell of the table.
struct Cell {
    place: &'static Place,
    service: &'static Service,
    load: f64,
}

/// The default against the best.
#[derive(Clone, Copy)]
struct Found {
    /// The best bound.
    bound: u64,
    /// The p99 over that of the best bound.
    p99: f64,
    /// Requests answered over those of the bound that answers most.
    answered: f64,
}

impl Cell {
    fn compare(&self, effort: Effort) -> Result<Found> {
        let mut best = (0, f64::INFINITY);
        let mut most = 0.0_f64;
        for bound in self.bounds() {
            let (p99_ns, answered) = self.run(effort, &format!("jbsq:{bound}"))?;
            most = most.max(answered);
            if p99_ns < best.1 {
                best = (bound, p99_ns);
            }
        }
        let (p99_ns, answered) = self.run(effort, "jbsq:auto")?;
        Ok(Found { bound: best.0, p99: p99_ns / best.1, answered: answered / most })
    }

    /// One for each worker, and more.
    fn bounds(&self) -> Vec<u64> {
        let workers = u64::from(self.place.workers);
        let hidden = (2 * self.place.delay_ns).div_ceil(self.service.mean_ns) * workers;
        let waits = if self.place.wakes.is_some() { 32 } else { 4 };
        let more = [0, 1, 2, 4, hidden, 2 * hidden, waits];
        let mut bounds = more.map(|more| workers + more).to_vec();
        bounds.sort_unstable();
        bounds.dedup();
        bounds
    }

    /// The p99 of all that is offered, ns, and the share of it that is answered.
    fn run(&self, effort: Effort, policy: &str) -> Result<(f64, f64)> {
        let Place { servers, workers, delay_ns, pauses, wakes, .. } = *self.place;
        let capacity = f64::from(servers) * f64::from(workers) / self.service.mean_ns as f64;
        let requests = effort.requests(REQUESTS).max(REQUESTS_MIN);
        // Of a shorter run what is under way at its end would be a part.
        let lasts_ns = (requests as f64 / (capacity * self.load)) as u64;
        let lasts_ns = lasts_ns.max(800 * delay_ns);
        let patient = OverloadConfig {
            target_ns: PATIENCE_NS,
            interval_ns: PATIENCE_NS,
            deadline_divisor: 1,
            ..OverloadConfig::DEFAULT
        };
        let router = RouterConfig {
            policy: policy.parse()?,
            overload: patient,
            queue_len_max: QUEUE_LEN_MAX,
            ..RouterConfig::default()
        };
        let wakes = wakes.map(|wakes| {
            Ok::<_, anyhow::Error>((lasts_ns / 4, Distribution::parse(wakes, Unit::Time)?))
        });
        let config = Config {
            servers,
            workers,
            delay_ns,
            pauses,
            wakes: wakes.transpose()?,
            service: Distribution::parse(self.service.form, Unit::Time)?,
            load: self.load,
            length_ns: WARM_UP_NS + lasts_ns,
            seed: effort.seed,
            router,
            ..Config::new()
        };
        let run = config.run()?;
        let answered = run.sojourns[0].count() as f64 / run.offered.max(1) as f64;
        let p99_ns = match answered {
            0.99.. => run.sojourns[0].percentile(0.99 / answered),
            _ => f64::INFINITY,
        };
        Ok((p99_ns, answered))
    }

    fn what(&self) -> String {
        format!("{}, {}, load {}", self.place.name, self.service.name, self.load)
    }
}

fn verdicts(effort: Effort, found: Found, cell: &Cell) -> [Verdict; 2] {
    let tolerance = match cell.place.wakes {
        None => Tolerance::Sides { below: 1.0, above: cell.service.above },
        Some(_) => Tolerance::Shown,
    };
    let p99 = format!("{}: p99 over that of jbsq:{}", cell.what(), found.bound);
    let answered = format!("{}: answers over the most", cell.what());
    let claimed = |expected| (Basis::Claimed, expected);
    [
        Verdict::new(effort, p99, claimed(1.0), found.p99, tolerance),
        Verdict::fixed(answered, claimed(0.97), found.answered, Tolerance::AtLeast),
    ]
}

/// The ratio over the load, for each service.
fn panel(place: &'static Place, found: &[(Found, Cell)]) -> Panel {
    let curve = |service: &Service| {
        let of_curve = found
            .iter()
            .filter(|(_, cell)| cell.place.name == place.name && cell.service.name == service.name);
        Curve {
            label: service.name.to_owned(),
            obtained: of_curve.map(|(found, cell)| (cell.load, found.p99)).collect(),
            expected: Vec::new(),
        }
    };
    Panel {
        title: place.name.to_owned(),
        x: "load",
        y: "p99 over that of the best fixed bound",
        y_max: Some(2.0),
        curves: SERVICES.iter().map(curve).collect(),
    }
}

struct Service {
    name: &'static str,
    form: &'static str,
    mean_ns: u64,
    /// Share by which the p99 may be above that of the best bound.
    above: f64,
}

/// Servers, and the way to them.
struct Place {
    name: &'static str,
    servers: u16,
    workers: u16,
    /// One way.
    delay_ns: u64,
    /// Time between two pauses of a server, and how long each is.
    pauses: Option<(u64, u64)>,
    /// Time that a server that has nothing waits for a core, from a quarter of the run on.
    wakes: Option<&'static str>,
}

const SERVICES: [Service; 4] = [
    Service { name: "exp 10 us", form: "exp:10us", mean_ns: 10_000, above: 0.1 },
    Service { name: "exp 1 ms", form: "exp:1ms", mean_ns: 1_000_000, above: 0.1 },
    Service { name: "fixed 1 ms", form: "fixed:1ms", mean_ns: 1_000_000, above: 0.1 },
    Service { name: "lognorm 1 ms", form: "lognorm:12.97:1.3", mean_ns: 1_000_000, above: 0.2 },
];

const PLAIN: Place =
    Place { name: "", servers: 16, workers: 1, delay_ns: 10_000, pauses: None, wakes: None };

const PLACES: [Place; 8] = [
    Place { name: "16 servers, 1 us away", delay_ns: 1_000, ..PLAIN },
    Place { name: "16 servers, 10 us away", ..PLAIN },
    Place { name: "16 servers, 100 us away", delay_ns: 100_000, ..PLAIN },
    Place { name: "2 servers, 10 us away", servers: 2, ..PLAIN },
    Place {
        name: "8 servers of 2 workers, 1 us away",
        servers: 8,
        workers: 2,
        delay_ns: 1_000,
        ..PLAIN
    },
    Place { name: "4 servers of 16 workers, 10 us away", servers: 4, workers: 16, ..PLAIN },
    Place {
        name: "16 servers that pause for 5 ms",
        pauses: Some((200_000_000, 5_000_000)),
        ..PLAIN
    },
    Place { name: "4 servers that wait for cores", servers: 4, wakes: Some("exp:5ms"), ..PLAIN },
];

const LOADS: [f64; 3] = [0.5, 0.8, 0.95];

/// Requests of each run.
const REQUESTS: u64 = 320_000;

/// With fewer the beginning, when nothing is known, is the p99.
const REQUESTS_MIN: u64 = 20_000;

const WITH_WAKES_NS_MIN: u64 = 100_000;

/// Before the first request, in the model.
const WARM_UP_NS: u64 = 100_000_000;

/// Nothing is refused for having waited.
const PATIENCE_NS: u64 = 900_000_000;

const QUEUE_LEN_MAX: usize = 60_000;
