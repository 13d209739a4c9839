//! `rpcvalet-software`: RPCValet's single queue as a dispatcher in software, with the costs that
//! ours was measured to have, against a queue for each worker.
//!
//! The costs are of one run of `cargo bench -p tailcut-net --bench dispatch`
//! (`docs/perf-notes.md`),
//! [`MEASURED`]: two cores of a virtual machine, near each other, the dispatcher on one and all
//! workers played by the other. What those two cores can show is compared with what they did: a
//! worker that is kept busy and the rate of a dispatcher. For the balance of 16 and 64 workers
//! there is the published chip's model (`rpcvalet-chip`), whose synthetic services are 820 ns on
//! average, and the paper's claims: up to 1.4 times the throughput of a partitioned server, and a
//! tail up to 3.5 times lower before that saturates.
//!
//! A partitioned server has no dispatcher: it is given neither hand-off nor occupancy nor what a
//! worker spends on its lane, and requests pick a worker at random, as RSS does. It even has a core
//! more to work with, which a row counts. The limit is a p99 of ten mean services.

use anyhow::{Context, Result};
use rayon::iter::{IntoParallelIterator, IntoParallelRefIterator, ParallelIterator};
use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::Unit;
use tailcut_proto::policy::{PolicySpec, Random};
use tailcut_sim::queue::{System, SystemError};

use super::cores::over_seeds;
use super::effort::Effort;
use super::figure::{Curve, Figure, Panel};
use super::search::highest_load;
use super::verdict::{Basis, Tolerance, Verdict};

pub(super) fn figure(effort: Effort) -> Result<Figure> {
    let run = |service: &&'static Service| Row::run(effort, service);
    let rows: Vec<Row> =
        SERVICES.iter().collect::<Vec<_>>().par_iter().map(run).collect::<Result<_>>()?;
    let mut verdicts = two_cores()?;
    verdicts.extend(rows.iter().flat_map(|row| row.verdicts(effort)));
    verdicts.extend(claims(&rows));
    verdicts.extend(larger(effort)?);
    let panels = [(16, "1 us exp"), (64, "5 us exp")];
    let panels = panels.into_iter().map(|(workers, name)| panel(effort, workers, name));
    Ok(Figure { panels: panels.collect::<Result<_>>()?, verdicts })
}

/// Output of one run of the bench, nanoseconds.
struct Measured {
    /// To a worker that is awake and back: row `hand-off, 1 worker`.
    hand_off: u64,
    /// The dispatcher's time for a job: row `fan-out, 16 workers, bound 2`.
    occupancy: u64,
    /// A worker's own time for a job besides its service: what row `kept busy with 1 us, bound 2`
    /// takes longer than the computing alone.
    worker: u64,
    /// The computing alone, in rows `kept busy with 1 us`.
    compute: u64,
    /// A job of row `kept busy with 1 us, bound 1`.
    kept_busy_bound_1: f64,
    /// A job of row `fan-out, 64 workers, bound 2`.
    fan_out_64: f64,
}

const MEASURED: Measured = Measured {
    hand_off: 115,
    occupancy: 50,
    worker: 21,
    compute: 987,
    kept_busy_bound_1: 1118.95,
    fan_out_64: 50.82,
};

/// Verdicts on the simulation of the two cores that were measured, beside what they did.
fn two_cores() -> Result<Vec<Verdict>> {
    let measured = |what: &str, expected, obtained| {
        let what = format!("two cores: {what}, ns a request");
        Verdict::fixed(what, (Basis::Measured, expected), obtained, Tolerance::Relative(0.02))
    };
    let compute = parse(&format!("fixed:{}ns", MEASURED.compute))?;
    let one = |policy| Server { workers: 1, groups: 1, policy, service: compute.clone() };
    let ceiling_ns = |server: &Server| Ok::<_, anyhow::Error>(1e3 / server.ceiling_mrps()?);
    let zero = parse("fixed:1ns")?;
    let many = Server { workers: 64, groups: 1, policy: Some(jbsq(2)), service: zero };
    Ok(vec![
        measured(
            "a worker kept busy, bound 1",
            MEASURED.kept_busy_bound_1,
            ceiling_ns(&one(Some(jbsq(1))))?,
        ),
        measured("fan-out, 64 workers, bound 2", MEASURED.fan_out_64, ceiling_ns(&many)?),
    ])
}

/// A service, and what the chip's model does with it.
struct Service {
    name: &'static str,
    form: &'static str,
    mean_ns: f64,
    /// The published model's throughput of a partitioned chip and of one with the single queue,
    /// millions of requests a second.
    chip: Option<[f64; 2]>,
}

/// The chip's synthetic services, and such of 1 and 5 us.
const SERVICES: [Service; 6] = [
    Service { name: "820 ns fixed", form: "fixed:820ns", mean_ns: 820.0, chip: Some([15.1, 19.2]) },
    Service {
        name: "820 ns uniform",
        form: "520ns+uni:600ns",
        mean_ns: 820.0,
        chip: Some([14.9, 19.2]),
    },
    Service {
        name: "820 ns exp",
        form: "520ns+exp:300ns",
        mean_ns: 820.0,
        chip: Some([14.5, 19.2]),
    },
    Service { name: "1 us exp", form: "exp:1us", mean_ns: 1e3, chip: None },
    Service { name: "5 us exp", form: "exp:5us", mean_ns: 5e3, chip: None },
    Service {
        name: "5 us, a tenth ten times as long",
        form: "bimodal:2631.578947ns:26315.78947ns:0.9",
        mean_ns: 5e3,
        chip: None,
    },
];

/// 16 workers with one service.
struct Row {
    service: &'static Service,
    /// Throughput under the limit, millions of requests a second.
    partitioned_mrps: f64,
    single_mrps: f64,
    /// The p99 of a partitioned server over that of one queue, at a load of [`TAIL_LOAD`].
    tail: f64,
}

impl Row {
    fn run(effort: Effort, service: &'static Service) -> Result<Self> {
        let (partitioned, single) = (service.server(16, None)?, service.server(16, Some(2))?);
        let limit_ns = LIMIT * service.mean_ns;
        let partitioned_mrps = partitioned.slo_mrps(effort, limit_ns, SEEDS_PARTITIONED)?;
        let mrps = TAIL_LOAD * partitioned.capacity_mrps();
        let p99_ns = |server: &Server| {
            let p99_ns = server.p99_ns(effort, mrps, SEEDS_PARTITIONED)?;
            p99_ns.context("a load that is served")
        };
        let tail = p99_ns(&partitioned)? / p99_ns(&single)?;
        let single_mrps = single.slo_mrps(effort, limit_ns, SEEDS)?;
        Ok(Self { service, partitioned_mrps, single_mrps, tail })
    }

    /// Beside the chip, whose partitioned half has no dispatcher to differ in.
    fn verdicts(&self, effort: Effort) -> Vec<Verdict> {
        let Self { service, partitioned_mrps, single_mrps, .. } = self;
        let Some([partitioned, single]) = service.chip else { return Vec::new() };
        let verdict = |what: &str, expected, obtained, tolerance| {
            let what = format!("{}, 16 workers: {what}", service.name);
            Verdict::new(effort, what, (Basis::Simulated, expected), obtained, tolerance)
        };
        vec![
            verdict("partitioned, MRPS", partitioned, *partitioned_mrps, Tolerance::Relative(0.03)),
            verdict("one queue over the chip's, MRPS", single, *single_mrps, Tolerance::Shown),
        ]
    }
}

/// The paper's claims, on what 16 workers do.
fn claims(rows: &[Row]) -> Vec<Verdict> {
    let published = |what: String, expected, obtained, tolerance| {
        Verdict::fixed(what, (Basis::Published, expected), obtained, tolerance)
    };
    let each = |row: &Row| {
        let name = row.service.name;
        let ratio = row.single_mrps / row.partitioned_mrps;
        vec![
            published(
                format!("{name}, 16 workers: throughput over partitioned"),
                1.4,
                ratio,
                Tolerance::Shown,
            ),
            published(
                format!("{name}, 16 workers: the same, over 17 partitioned"),
                1.4,
                ratio * 16.0 / 17.0,
                Tolerance::Shown,
            ),
            published(
                format!("{name}, 16 workers: p99 of partitioned over one queue's at 0.7"),
                3.5,
                row.tail,
                Tolerance::Shown,
            ),
        ]
    };
    let most = |of: fn(&Row) -> f64| rows.iter().map(of).fold(0.0, f64::max);
    let throughput = most(|row| row.single_mrps / row.partitioned_mrps);
    let mut verdicts: Vec<Verdict> = rows.iter().flat_map(each).collect();
    let up_to = [
        ("throughput of one queue over partitioned, up to", 1.4, throughput),
        ("p99 of partitioned over one queue's at 0.7, up to", 3.5, most(|row| row.tail)),
    ];
    verdicts.extend(up_to.map(|(what, expected, obtained)| {
        published(format!("16 workers: {what}"), expected, obtained, Tolerance::AtLeast)
    }));
    verdicts
}

/// 64 workers, behind one dispatcher and behind four of them, over partitioned ones.
fn larger(effort: Effort) -> Result<Vec<Verdict>> {
    let cells: Vec<(&Service, usize)> =
        SERVICES[3..].iter().flat_map(|service| [(service, 1), (service, 4)]).collect();
    let run = |&(service, groups): &(&Service, usize)| {
        let limit_ns = LIMIT * service.mean_ns;
        let partitioned =
            service.server(64, None)?.slo_mrps(effort, limit_ns, SEEDS_PARTITIONED)?;
        let server = Server { groups, workers: 64 / groups, ..service.server(64, Some(2))? };
        let ratio = server.slo_mrps(effort, limit_ns, SEEDS)? / partitioned;
        let what =
            format!("{}, {groups}x{}: throughput over partitioned", service.name, 64 / groups);
        // What a dispatcher cannot place does not reach its workers.
        let is_fed = 64.0 / groups as f64 / service.mean_ns < 1.0 / MEASURED.occupancy as f64;
        let tolerance = if is_fed { Tolerance::AtLeast } else { Tolerance::Shown };
        Ok(Verdict::fixed(what, (Basis::Published, 1.4), ratio, tolerance))
    };
    cells.par_iter().map(run).collect()
}

/// The p99 over the throughput: partitioned, and one queue with bounds of 1 and 2.
fn panel(effort: Effort, workers: usize, name: &'static str) -> Result<Panel> {
    let service =
        SERVICES.iter().find(|service| service.name == name).expect("one of the services");
    let curve = |(label, bound): (&str, Option<u32>)| {
        let server = service.server(workers, bound)?;
        let capacity_mrps = workers as f64 / service.mean_ns * 1e3;
        let rates: Vec<f64> = (1..=19).map(|step| f64::from(step) / 20.0 * capacity_mrps).collect();
        let run = |&mrps: &f64| Ok((mrps, server.p99_ns(effort, mrps, 1)?));
        let points: Vec<(f64, Option<f64>)> = rates.par_iter().map(run).collect::<Result<_>>()?;
        let obtained =
            points.iter().filter_map(|&(mrps, p99_ns)| Some((mrps, p99_ns? / 1e3))).collect();
        Ok(Curve { label: label.to_owned(), obtained, ..Curve::default() })
    };
    let curves =
        [("partitioned", None), ("one queue, bound 1", Some(1)), ("one queue, bound 2", Some(2))];
    Ok(Panel {
        title: format!("{workers} workers, {name}"),
        x: "throughput (million requests per second)",
        y: "p99 (us)",
        y_max: Some(1.5 * LIMIT * service.mean_ns / 1e3),
        curves: curves.into_par_iter().map(curve).collect::<Result<_>>()?,
    })
}

/// Workers behind dispatchers, or each with a queue of its own.
struct Server {
    groups: usize,
    /// Workers of a group.
    workers: usize,
    /// The dispatchers' policy; `None` where there are none.
    policy: Option<PolicySpec>,
    service: Distribution,
}

impl Service {
    fn server(&self, workers: usize, bound: Option<u32>) -> Result<Server> {
        Ok(Server { groups: 1, workers, policy: bound.map(jbsq), service: parse(self.form)? })
    }
}

impl Server {
    /// The highest throughput that keeps the p99 below a limit, in millions of requests a second.
    fn slo_mrps(&self, effort: Effort, limit_ns: f64, seeds: u64) -> Result<f64> {
        let capacity = self.capacity_mrps();
        let keeps = |load: f64| {
            let p99_ns = self.p99_ns(effort, load * capacity, seeds)?;
            Ok(p99_ns.is_some_and(|p99_ns| p99_ns <= limit_ns))
        };
        Ok(highest_load(effort, keeps)? * capacity)
    }

    /// The rate from which on queues grow without end.
    fn ceiling_mrps(&self) -> Result<f64> {
        match self.system()?.at_load(LOAD_FULL).check() {
            Err(SystemError::Overload { ceiling, .. }) => Ok(ceiling * self.capacity_mrps()),
            checked => Ok(checked.map(|()| self.capacity_mrps())?),
        }
    }

    /// The p99 at a throughput; `None` where that cannot be served.
    fn p99_ns(&self, effort: Effort, mrps: f64, seeds: u64) -> Result<Option<f64>> {
        let system = self.system()?.at_load(mrps / self.capacity_mrps());
        let system = system.for_requests(effort.requests(REQUESTS));
        let runs = over_seeds(effort.seed, seeds, |seed| system.run(seed));
        match runs.into_iter().collect::<Result<Vec<_>, SystemError>>() {
            Ok(runs) => {
                let p99s_ns = runs.iter().map(|run| run.sojourns.percentile(0.99) / 1e3);
                Ok(Some(p99s_ns.sum::<f64>() / seeds as f64))
            }
            Err(SystemError::Overload { .. } | SystemError::Load(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Capacity of workers that never wait.
    fn capacity_mrps(&self) -> f64 {
        let worker_ns = if self.policy.is_some() { MEASURED.worker } else { 0 };
        let mean_ns = self.service.mean().unwrap_or(f64::INFINITY) + worker_ns as f64;
        (self.groups * self.workers) as f64 / mean_ns * 1e3
    }

    fn system(&self) -> Result<System> {
        let Some(policy) = self.policy else {
            return Ok(System::new(self.workers, Random::SPEC, self.service.clone()));
        };
        let system = System::new(self.workers, policy, self.service.clone());
        Ok(System {
            groups: self.groups,
            service: longer(&self.service, MEASURED.worker)?,
            to_worker_ps: MEASURED.hand_off * 500,
            feedback_ps: MEASURED.hand_off * 500,
            occupancy_ps: MEASURED.occupancy * 1000,
            ..system
        })
    }
}

fn parse(form: &str) -> Result<Distribution> {
    Ok(Distribution::parse(form, Unit::Time)?)
}

/// A service and `more_ns` of it.
fn longer(service: &Distribution, more_ns: u64) -> Result<Distribution> {
    let offset_ns = service.offset() + more_ns as f64;
    Ok(Distribution::with_offset(offset_ns, service.form().clone(), Unit::Time)?)
}

fn jbsq(bound: u32) -> PolicySpec {
    format!("jbsq:{bound}").parse().expect("a bound above zero")
}

/// On the p99, in mean services.
const LIMIT: f64 = 10.0;
/// Load at which the paper's tails are compared: before a partitioned server saturates.
const TAIL_LOAD: f64 = 0.7;
/// More than any server with a dispatcher serves.
const LOAD_FULL: f64 = 0.9999;
const REQUESTS: u64 = 1_000_000;
const SEEDS: u64 = 3;
/// A worker's own queue sees a share of the requests, and forgets slowly.
const SEEDS_PARTITIONED: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// That they pass is what `tailcut sim reproduce` checks.
    #[test]
    fn what_a_dispatcher_costs_and_brings_is_judged() {
        let figure = figure(Effort::least(1)).unwrap();
        assert!(figure.verdicts.iter().filter(|verdict| verdict.is_judged()).count() >= 10);
    }
}
