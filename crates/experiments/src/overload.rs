//! `overload`: what a queue does with more than it can serve, by its rule of waiting.
//!
//! 16 workers with exponential services of 1 ms, deadlines of 100 ms and of 1 s, and loads from
//! half of the capacity to a hundred times it. Three queues: a plain one, from which a request goes
//! when its deadline passes; CoDel's limit of waiting, which is the default of router and server;
//! and the same limit with the newest first while the queue stands (adaptive LIFO).
//!
//! What must hold is the claim of this repository on its own design: goodput of 95 % of the
//! capacity at twice the load, 90 % at ten times and 80 % at a hundred times, a p99 within half of
//! the deadline, and service as usual within 200 ms of the end. The other two are shown.

use anyhow::Result;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use tailcut_proto::scheduler::overload::{Order, OverloadConfig};
use tailcut_sim::overload::{Config, Run};

use super::effort::Effort;
use super::figure::{Curve, Figure, Panel};
use super::verdict::{Basis, Tolerance, Verdict};

pub(super) fn figure(effort: Effort) -> Result<Figure> {
    let cells: Vec<Cell> = DEADLINES
        .iter()
        .flat_map(|deadline| {
            RULES
                .iter()
                .flat_map(move |rule| LOADS.iter().map(move |&load| Cell { deadline, rule, load }))
        })
        .collect();
    let run = |cell: Cell| Ok((cell.run(effort)?, cell));
    let found: Vec<(Run, Cell)> = cells.into_par_iter().map(run).collect::<Result<_>>()?;
    let panels = DEADLINES.iter().flat_map(|deadline| panels(deadline, &found)).collect();
    Ok(Figure { panels, verdicts: found.iter().flat_map(verdicts).collect() })
}

/// A run's place in the table.
struct Cell {
    deadline: &'static Deadline,
    rule: &'static Rule,
    load: f64,
}

impl Cell {
    fn run(&self, effort: Effort) -> Result<Run> {
        let length_ns = effort.requests(LENGTH_NS).max(LENGTH_NS_MIN);
        let config = Config::new(self.load, self.deadline.ns, self.rule.config);
        Ok(Config { length_ns, seed: effort.seed, ..config }.run()?)
    }

    fn what(&self, what: &str) -> String {
        format!("{} deadlines, load {}, {}: {what}", self.deadline.name, self.load, self.rule.name)
    }
}

fn verdicts((run, cell): &(Run, Cell)) -> Vec<Verdict> {
    let required = REQUIRED.iter().find(|&&(load, _)| load == cell.load).map(|&(_, share)| share);
    let tolerance = |is_required: bool| match cell.rule.is_default && is_required {
        true => Tolerance::AtLeast,
        false => Tolerance::Shown,
    };
    let p99_ns = run.sojourns.percentile(0.99).max(1.0);
    let verdict = |what: &str, expected: f64, obtained: f64, tolerance: Tolerance| {
        Verdict::fixed(cell.what(what), (Basis::Claimed, expected), obtained, tolerance)
    };
    vec![
        verdict(
            "goodput over capacity",
            required.unwrap_or(cell.load.min(1.0)),
            run.goodput,
            tolerance(required.is_some()),
        ),
        verdict(
            "half of the deadline over p99",
            1.0,
            cell.deadline.ns as f64 / 2.0 / p99_ns,
            tolerance(true),
        ),
        verdict(
            "200 ms over the time to recover",
            1.0,
            200e6 / (run.recovery_ns as f64).max(1e6),
            tolerance(required.is_some()),
        ),
    ]
}

/// Goodput and p99 over the load, which is drawn as a power of ten.
fn panels(deadline: &'static Deadline, found: &[(Run, Cell)]) -> [Panel; 2] {
    let curves = |value: fn(&Run) -> f64| {
        let curve = |rule: &Rule| {
            let of_rule = found
                .iter()
                .filter(|(_, cell)| cell.deadline.ns == deadline.ns && cell.rule.name == rule.name);
            Curve {
                label: rule.name.to_owned(),
                obtained: of_rule.map(|(run, cell)| (cell.load.log10(), value(run))).collect(),
                expected: Vec::new(),
            }
        };
        RULES.iter().map(curve).collect()
    };
    let panel = |title: &str, y: &'static str, curves| Panel {
        title: format!("{title}, {} deadlines", deadline.name),
        x: "load, as a power of ten",
        y,
        y_max: None,
        curves,
    };
    [
        panel("goodput", "answers in time over capacity", curves(|run| run.goodput)),
        panel("p99 of answers in time", "ms", curves(|run| run.sojourns.percentile(0.99) / 1e6)),
    ]
}

/// A limit of waiting.
struct Rule {
    name: &'static str,
    config: Option<OverloadConfig>,
    is_default: bool,
}

struct Deadline {
    name: &'static str,
    ns: u64,
}

const CODEL: OverloadConfig = OverloadConfig::DEFAULT;

const RULES: [Rule; 3] = [
    Rule { name: "FIFO", config: None, is_default: false },
    Rule { name: "CoDel", config: Some(CODEL), is_default: true },
    Rule {
        name: "adaptive LIFO",
        config: Some(OverloadConfig { order: Order::NewestFirst, ..CODEL }),
        is_default: false,
    },
];

const DEADLINES: [Deadline; 2] =
    [Deadline { name: "100 ms", ns: 100_000_000 }, Deadline { name: "1 s", ns: 1_000_000_000 }];

const LOADS: [f64; 8] = [0.5, 0.8, 0.9, 1.0, 1.2, 2.0, 10.0, 100.0];

/// Goodput over capacity that a load must keep.
const REQUIRED: [(f64, f64); 3] = [(2.0, 0.95), (10.0, 0.9), (100.0, 0.8)];

const LENGTH_NS: u64 = 16_000_000_000;
/// Several deadlines and intervals.
const LENGTH_NS_MIN: u64 = 4_000_000_000;
