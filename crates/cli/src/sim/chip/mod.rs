//! `tailcut sim chip`: a point, the throughput under a limit, or the paper's claims.

mod claims;

use std::num::NonZeroU32;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use tailcut_experiments::cores;
use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::{Unit, parse_count};
use tailcut_sim::chip::workload::{Preset, Workload};
use tailcut_sim::chip::{Chip, Layout, Point, Source, simulate, slo_throughput};
use tailcut_sim::sojourn::{Estimate, Figures};

use super::Outcome;
use super::figures::{NAMES, errors_json, estimates, values_json};
use crate::distribution_file::{parse_positive_ns, parse_times};
use crate::output;

/// Simulate RPCValet's chip: a network interface that gives messages to 16 cores
///
/// With --load it gives the latency at that load, from a message's last packet until the core has
/// replied; with --slo the throughput at which the p99 reaches the limit. The load is relative to
/// 16 cores that never pause.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Who shares a queue: 1x16 and 4x4 in hardware, 16x1 (random), sw (a lock) or ideal (no
    /// delays)
    #[arg(long, value_name = "NAME", default_value = "1x16")]
    layout: Layout,
    /// Messages that a core may have outstanding, of 1x16 and 4x4 [default: 2]
    #[arg(long, value_name = "N")]
    threshold: Option<NonZeroU32>,
    /// Emulated work of a message; the core loop adds 220 ns [default: 300ns+exp:300ns]
    #[arg(long, value_name = "DIST", value_parser = parse_times)]
    service: Option<Distribution>,
    /// A published workload instead, with its limit: fixed, uniform, exp, gev, herd or masstree
    #[arg(long, value_name = "NAME", conflicts_with = "service")]
    workload: Option<Preset>,
    /// Share of the capacity to load, up to 2
    #[arg(long, value_name = "L")]
    load: Option<f64>,
    /// Find the throughput at which the p99 reaches this limit [default: the workload's]
    #[arg(long, value_name = "TIME", conflicts_with = "load", value_parser = parse_positive_ns)]
    slo: Option<u64>,
    /// Print the reference tables and the claims of the paper beside what is obtained; a minute or
    /// two on two cores
    #[arg(long, conflicts_with_all = ["layout", "threshold", "service", "workload", "load", "slo"])]
    claims: bool,
    /// Messages of a run [default: 1M at a load, else 300k]
    #[arg(long, value_name = "N", value_parser = parse_requests)]
    requests: Option<usize>,
    /// Seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Runs, each with the next seed
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
}

/// The runs of a question.
#[derive(Clone, Copy, Debug)]
struct Runs {
    requests: usize,
    seed: u64,
    seeds: u64,
}

/// A question.
#[derive(Clone, Debug)]
struct Setting {
    chip: Chip,
    preset: Option<Preset>,
    workload: Workload,
    runs: Runs,
}

pub(super) fn check(args: &Args) -> Result<()> {
    chip(args)?;
    if let Some(load) = args.load {
        Source::new(&workload(args)?, load, args.requests.unwrap_or(POINT_REQUESTS), args.seed)?;
    }
    Ok(())
}

pub(super) fn run(args: &Args) -> Result<Outcome> {
    let requests_default = if args.load.is_some() { POINT_REQUESTS } else { SEARCH_REQUESTS };
    let runs = Runs {
        requests: args.requests.unwrap_or(requests_default),
        seed: args.seed,
        seeds: args.seeds,
    };
    if args.claims {
        return claims::run(runs);
    }
    let setting =
        Setting { chip: chip(args)?, preset: args.workload, workload: workload(args)?, runs };
    let slo_ns = args.slo.map(|slo_ns| slo_ns as f64).or(args.workload.map(Preset::slo_ns));
    match (args.load, slo_ns) {
        (Some(load), _) => run_point(&setting, load),
        (None, Some(slo_ns)) => run_search(&setting, slo_ns),
        (None, None) => bail!("say at which --load, or under which limit with --slo"),
    }
}

fn chip(args: &Args) -> Result<Chip> {
    if args.threshold.is_some() && !args.layout.has_threshold() {
        bail!("{} has no threshold; 1x16 and 4x4 have one", args.layout);
    }
    Ok(Chip { layout: args.layout, threshold: args.threshold.unwrap_or(THRESHOLD) })
}

fn workload(args: &Args) -> Result<Workload> {
    if let Some(preset) = args.workload {
        return Ok(preset.workload());
    }
    let default =
        || Distribution::parse(SERVICE, Unit::Time).expect("the default is in the grammar");
    Ok(Workload::new(args.service.clone().unwrap_or_else(default))?)
}

fn run_point(setting: &Setting, load: f64) -> Result<Outcome> {
    let Setting { chip, workload, runs, .. } = setting;
    let run = |seed| simulate(*chip, workload, load, runs.requests, seed);
    let points = cores::over_seeds(runs.seed, runs.seeds, run)
        .into_iter()
        .collect::<Result<Vec<Point>, _>>()?;
    let each =
        |figures: fn(&Point) -> Figures| estimates(&points.iter().map(figures).collect::<Vec<_>>());
    let (latency, replenished) =
        (each(|point| point.latency_ns), each(|point| point.replenished_ns));
    let throughput =
        Estimate::of(&points.iter().map(|point| point.throughput_mrps).collect::<Vec<_>>());
    let mut config = config_json(setting);
    config["load"] = json!(load);
    let json = json!({
        "schema": SCHEMA,
        "config": config,
        "latency_ns": values_json(&latency, 1.0),
        "standard_error_ns": errors_json(&latency, 1.0),
        "replenished_ns": values_json(&replenished, 1.0),
        "throughput_mrps": throughput.value,
    });
    let row = |name: &str, estimates: &[Estimate; 5]| {
        [name.to_owned()]
            .into_iter()
            .chain(estimates.iter().map(|estimate| estimate_text(estimate, 0)))
            .collect::<Vec<_>>()
    };
    let head = ["ns"].into_iter().chain(NAMES).map(str::to_owned).collect();
    let table = output::table(
        &[head, row("core loop's end", &latency), row("replenished", &replenished)],
        1,
    );
    let text = format!("{}, load {load}: {:.2} M/s\n{table}", heading(setting), throughput.value);
    Ok(Outcome { json, text, failure: None })
}

fn run_search(setting: &Setting, slo_ns: f64) -> Result<Outcome> {
    let Setting { chip, workload, runs, .. } = setting;
    let run = |seed| slo_throughput(*chip, workload, slo_ns, runs.requests, seed);
    let found =
        cores::over_seeds(runs.seed, runs.seeds, run).into_iter().collect::<Result<Vec<_>, _>>()?;
    let load = Estimate::of(&found.iter().map(|point| point.load).collect::<Vec<_>>());
    let mrps = Estimate::of(&found.iter().map(|point| point.throughput_mrps).collect::<Vec<_>>());
    let mut config = config_json(setting);
    config["slo_ns"] = json!(slo_ns);
    let json = json!({
        "schema": SCHEMA,
        "config": config,
        "throughput_under_slo": {
            "mrps": mrps.value,
            "mrps_standard_error": mrps.standard_error,
            "load": load.value,
            "load_standard_error": load.standard_error,
        },
    });
    let (limit, mrps) = (Unit::Time.format(slo_ns), estimate_text(&mrps, 2));
    let text = format!(
        "{}: {mrps} M/s with a p99 of {limit}, a load of {}\n",
        heading(setting),
        estimate_text(&load, 3)
    );
    Ok(Outcome { json, text, failure: None })
}

fn heading(setting: &Setting) -> String {
    format!("{}, 220ns + {}", setting.chip, setting.workload)
}

/// All that repeats a run, but the load or the limit.
fn config_json(setting: &Setting) -> Value {
    let Setting { chip, preset, workload, runs } = setting;
    json!({
        "layout": chip.layout.to_string(),
        "threshold": chip.layout.has_threshold().then_some(chip.threshold),
        "workload": preset.map(|preset| preset.to_string()),
        "service": workload.to_string(),
        "service_mean_ns": workload.service_mean_ns(),
        "requests": runs.requests,
        "seed": runs.seed,
        "seeds": runs.seeds,
    })
}

/// The value, and its standard error where there is one.
fn estimate_text(estimate: &Estimate, digits: usize) -> String {
    match estimate.standard_error {
        Some(error) => format!("{:.digits$} ±{error:.digits$}", estimate.value),
        None => format!("{:.digits$}", estimate.value),
    }
}

fn parse_requests(text: &str) -> Result<usize, String> {
    // The cast saturates, and the simulation refuses what it cannot hold.
    parse_count(text).map(|count| count as usize).map_err(|error| error.to_string())
}

const SCHEMA: &str = "tailcut.sim.chip/1";
const SERVICE: &str = "300ns+exp:300ns";
/// The paper's.
const THRESHOLD: NonZeroU32 = NonZeroU32::new(2).unwrap();
const POINT_REQUESTS: usize = 1_000_000;
const SEARCH_REQUESTS: usize = 300_000;

const AFTER_HELP: &str = "\
Examples:
  tailcut sim chip --layout 1x16 --threshold 2 --service 300ns+exp:300ns --load 0.7
  tailcut sim chip --layout 16x1 --workload herd
  tailcut sim chip --layout 4x4 --workload masstree --slo 75us --requests 2M
  tailcut sim chip --claims";
