//! `detection`: how soon a router sees that a server is gone, against how often it takes one for
//! gone that only pauses.
//!
//! Four servers of exponential services of 2 ms at a load of 0.9, each of which pauses once a
//! second on average, by the router's `silent_ns`, which is 24 ms by default. Of each there are two
//! runs: one in which nobody dies, whose alarms are all false, and one in which a server dies every
//! two seconds and is down for one.
//!
//! What must hold is the claim of this repository on its own defaults: no false alarm in an hour of
//! pauses of 20 ms, every crash seen within 30 ms, and from 100 ms after a crash on 95 % of what a
//! router before three servers gets done that pause as well. The other rows are shown.

use anyhow::Result;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use tailcut_proto::router::RouterConfig;
use tailcut_sim::failing::{BIN_NS, Config, Run};

use super::effort::Effort;
use super::figure::{Curve, Figure, Panel};
use super::verdict::{Basis, Tolerance, Verdict};

pub(super) fn figure(effort: Effort) -> Result<Figure> {
    let pausing = |silent_ns: u64| PAUSES_MS.map(|pause_ms| Cell::Pauses { silent_ns, pause_ms });
    let cells = SILENT_MS
        .into_iter()
        .map(|ms| ms * MS)
        .flat_map(|silent_ns| pausing(silent_ns).into_iter().chain([Cell::Crashes { silent_ns }]));
    let cells: Vec<Cell> = cells.chain([Cell::Rest]).collect();
    let found: Vec<(Cell, Run)> = cells
        .into_par_iter()
        .map(|cell| Ok((cell, cell.config(effort).run()?)))
        .collect::<Result<_>>()?;
    Ok(Figure { panels: panels(effort, &found), verdicts: verdicts(effort, &found) })
}

/// Function that gives a run's point on a curve: `silent_ns`, and what is drawn over it.
type Value<'a> = dyn Fn(Cell, &Run) -> Option<(u64, f64)> + 'a;

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    /// All servers pause, and none dies.
    Pauses { silent_ns: u64, pause_ms: u64 },
    /// All pause for 20 ms, and one after the other dies.
    Crashes { silent_ns: u64 },
    /// The three that are left when one is dead: the same load, before servers that pause.
    Rest,
}

impl Cell {
    fn config(self, effort: Effort) -> Config {
        let base = Config { seed: effort.seed, ..Config::new() };
        let paused = |silent_ns: u64, pause_ms: u64| Config {
            pauses: Some((SECOND, pause_ms * MS)),
            length_ns: self.length_ns(effort),
            router: RouterConfig { silent_ns, ..base.router.clone() },
            ..base.clone()
        };
        match self {
            Self::Pauses { silent_ns, pause_ms } => paused(silent_ns, pause_ms),
            Self::Crashes { silent_ns } => {
                Config { crashes: Some((2 * SECOND, SECOND)), ..paused(silent_ns, PAUSE_MS) }
            }
            Self::Rest => {
                let load = base.load * 4.0 / 3.0;
                Config { servers: 3, load, ..paused(default_ns(), PAUSE_MS) }
            }
        }
    }

    /// An hour where the claim is judged.
    fn length_ns(self, effort: Effort) -> u64 {
        let claimed = Self::Pauses { silent_ns: default_ns(), pause_ms: PAUSE_MS };
        effort.requests(if self == claimed { HOUR } else { HOUR / 6 })
    }
}

fn verdicts(effort: Effort, found: &[(Cell, Run)]) -> Vec<Verdict> {
    let silent_ns = default_ns();
    let run = |cell: Cell| &found.iter().find(|(it, _)| *it == cell).expect("it was run").1;
    let (crashes, rest) = (run(Cell::Crashes { silent_ns }), run(Cell::Rest));
    let pauses = Cell::Pauses { silent_ns, pause_ms: PAUSE_MS };
    let (alarms, pauses_s) = (run(pauses).alarms, pauses.length_ns(effort) / SECOND);
    let longest_ns = crashes.seen_ns.iter().max().map_or(f64::INFINITY, |&ns| ns as f64);
    let verdict = |what: &str, expected: f64, obtained: f64, tolerance: Tolerance| {
        Verdict::fixed(what.to_owned(), (Basis::Claimed, expected), obtained, tolerance)
    };
    let exactly = Tolerance::Absolute(0.0);
    // Capacity is over what three servers of 2 ms can do.
    let rest_ns = Cell::Rest.length_ns(effort) as f64;
    let rest = rest.sojourns[0].count() as f64 / (rest_ns * 3.0 / SERVICE_NS);
    let after = &crashes.capacity[BACK_BINS];
    let back = after.iter().sum::<f64>() / after.len() as f64;
    vec![
        verdict(
            &format!("false alarms in {pauses_s} s of pauses of 20 ms"),
            0.0,
            alarms as f64,
            exactly,
        ),
        verdict("crashes unseen", 0.0, crashes.unseen as f64, exactly),
        verdict(
            "30 ms over the longest time to see a crash",
            1.0,
            (30 * MS) as f64 / longest_ns,
            Tolerance::AtLeast,
        ),
        verdict(
            "answers 100 to 200 ms after a crash, over those of the other three alone",
            0.95,
            back / rest,
            Tolerance::AtLeast,
        ),
    ]
}

fn panels(effort: Effort, found: &[(Cell, Run)]) -> Vec<Panel> {
    let curve = |label: String, value: &Value| Curve {
        label,
        obtained: found
            .iter()
            .filter_map(|(cell, run)| value(*cell, run))
            .map(|(silent_ns, y)| ((silent_ns / MS) as f64, y))
            .collect(),
        expected: Vec::new(),
    };
    let alarms = PAUSES_MS.map(|pause_ms| {
        curve(format!("pauses of {pause_ms} ms"), &|cell, run| match cell {
            Cell::Pauses { silent_ns, pause_ms: of } if of == pause_ms => {
                let hours = cell.length_ns(effort) as f64 / HOUR as f64;
                Some((silent_ns, run.alarms as f64 / hours))
            }
            _ => None,
        })
    });
    let seen = [("half", 0.5), ("99 of 100", 0.99), ("all", 1.0)].map(|(label, share)| {
        curve(label.to_owned(), &|cell, run| match cell {
            Cell::Crashes { silent_ns } => {
                let mut seen_ns = run.seen_ns.clone();
                seen_ns.sort_unstable();
                let last = seen_ns.len().checked_sub(1)?;
                Some((silent_ns, seen_ns[(share * last as f64) as usize] as f64 / MS as f64))
            }
            _ => None,
        })
    });
    let panel = |title: &str, y: &'static str, curves: [Curve; 3]| Panel {
        title: title.to_owned(),
        x: "silent_ns, ms",
        y,
        y_max: None,
        curves: curves.into(),
    };
    vec![
        panel("servers taken for gone", "false alarms an hour", alarms),
        panel("crashes, with pauses of 20 ms", "ms until so many are seen", seen),
    ]
}

fn default_ns() -> u64 {
    RouterConfig::default().silent_ns
}

/// The default among them.
const SILENT_MS: [u64; 6] = [6, 12, 18, 24, 36, 50];

const PAUSES_MS: [u64; 3] = [5, PAUSE_MS, 50];

/// Pause of which no alarm is raised.
const PAUSE_MS: u64 = 20;

/// 100 to 200 ms after a crash.
const BACK_BINS: std::ops::Range<usize> =
    (100 * MS / BIN_NS) as usize..(200 * MS / BIN_NS) as usize;

/// Service time of [`Config::new`].
const SERVICE_NS: f64 = 2e6;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const HOUR: u64 = 3_600 * SECOND;
