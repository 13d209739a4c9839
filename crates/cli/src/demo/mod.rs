//! `tailcut demo`: shows what a short tail is, and that what is measured is what theory predicts.
//!
//! Each policy runs at each load: servers, a router and a load as processes of this binary, on
//! loopback. The measured percentiles go beside those of the queue that the policy amounts to. A
//! panel of its own shows what copies of requests gain before servers with jitter, beside the
//! simulation.

mod chart;
mod cloning;
mod lanes;
mod measurement;
mod plan;
mod point;
mod predict;
mod process;
mod progress;
mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use tailcut_measure::quantity::Unit;
use tailcut_proto::policy::{self, PolicySpec};

use self::cloning::Cloning;
use self::lanes::Lanes;
use self::measurement::Measurement;
use self::plan::Point;
use self::point::PointResult;
use self::predict::Figures;
use self::report::{CHECK_LOAD, Machine, Report, Setting};
use crate::distribution_file::parse_positive_ns;
use crate::{output, signals};

/// Demonstrate a short tail: measure policies side by side, and write a page with curves
///
/// Eight emulated servers of 1 ms exponential service, a router and an open-loop load run on this
/// machine, for about a minute. The percentiles are printed beside what queueing theory predicts,
/// and the page holds the picture. Then six servers of 15 workers, where one service in a hundred
/// takes 15 times as long, show for a quarter of a minute what a second copy of a request gains.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Where to write the page [default: target/demo.html if ./target exists, else
    /// tailcut-demo.html]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the result as JSON to FILE, or with `-` to standard output and nothing else
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Write the curves alone as an SVG picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// How long to measure each point [default: 3 to 17 s, by how much its tail varies]
    #[arg(long, value_name = "TIME", value_parser = parse_positive_ns)]
    duration: Option<u64>,
    /// Seed of arrivals and service times
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Shares of the servers' capacity to load them with
    #[arg(long, value_name = "L,...", value_delimiter = ',', default_value = "0.5,0.7,0.85", value_parser = plan::parse_load)]
    loads: Vec<f64>,
    #[arg(
        help = format!("Policies of the router to compare: {}", policy::grammar("or")),
        long,
        value_name = "P,...",
        value_delimiter = ',',
        default_value = "random,rr,jsq:2,jbsq:2"
    )]
    policies: Vec<PolicySpec>,
    /// Policies of the panel on cloning
    #[arg(long, value_name = "P,...", value_delimiter = ',', default_value = "random,netclone")]
    clone_policies: Vec<PolicySpec>,
    /// Loads of the panel on cloning, copies left out
    #[arg(long, value_name = "L,...", value_delimiter = ',', default_value = "0.3,0.5,0.7", value_parser = plan::parse_load)]
    clone_loads: Vec<f64>,
    /// Leave the panel on cloning out
    #[arg(long, conflicts_with_all = ["clone_policies", "clone_loads"])]
    no_cloning: bool,
    /// Leave other work on this machine its share: no real-time priority
    #[arg(long)]
    normal_priority: bool,
    /// Fail when the p99 of random or jbsq at 70 % load is further than 15 % from its prediction
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut points = plan::points(&plan::PLAIN, &args.policies, &args.loads, args.duration)?;
    let plain_count = points.len();
    if args.check && !points.iter().any(report::is_checked) {
        bail!("--check looks at random and jbsq:N at a load of {CHECK_LOAD}, and neither is run");
    }
    if !args.no_cloning {
        let (policies, loads) = (&args.clone_policies, &args.clone_loads);
        points.extend(plan::points(&plan::JITTERED, policies, loads, args.duration)?);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    signals::on_stop(move || flag.store(true, Ordering::Relaxed))?;
    let predicted = points.iter().map(predict::figures_at).collect::<Result<Vec<_>>>()?;
    let lanes = Lanes { is_real_time: !args.normal_priority };
    let measured = lanes.measure_all(&points, &predicted, args.seed, &stop)?;
    let mut results = results(&points, &measured, &predicted)?;
    let jittered = results.split_off(plain_count);
    let report = assemble(args, lanes, (results, jittered))?;
    write(args, &report)?;
    if args.check { report.check() } else { Ok(()) }
}

fn results(
    points: &[Point],
    measured: &[Measurement],
    predicted: &[Figures],
) -> Result<Vec<PointResult>> {
    let each = points.iter().zip(measured).zip(predicted);
    let results = each.map(|((&point, &measurement), &predicted)| {
        let measured = measurement.figures(point.pool.service_us);
        let measured = measured.context("a measured point has all percentiles")?;
        Ok(PointResult { point, measurement, measured, predicted })
    });
    results.collect()
}

/// The report on the servers without jitter, and on those with it.
fn assemble(
    args: &Args,
    lanes: Lanes,
    (results, jittered): (Vec<PointResult>, Vec<PointResult>),
) -> Result<Report> {
    let mut loads: Vec<f64> = results.iter().map(|result| result.point.load).collect();
    let policies = policies_of(&results);
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let cloning = match jittered.is_empty() {
        true => None,
        false => Some(Cloning {
            curves: policies_of(&jittered)
                .into_iter()
                .map(|policy| Ok((policy, predict::jittered_curve(policy)?)))
                .collect::<Result<_>>()?,
            results: jittered,
        }),
    };
    Ok(Report {
        cloning,
        setting: Setting {
            command: command(args),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seed: args.seed,
            lanes: lanes::lane_count(),
            scheduling: lanes.scheduling(),
            machine: Machine::here(),
        },
        results,
        curves: policies
            .into_iter()
            .map(|policy| Ok((policy, predict::curve(policy)?)))
            .collect::<Result<_>>()?,
        ideal_curve: predict::ideal_curve()?,
        ideals: loads
            .into_iter()
            .map(|load| Ok((load, predict::ideal_figures(load)?)))
            .collect::<Result<_>>()?,
    })
}

/// The policies that were run, each once.
fn policies_of(results: &[PointResult]) -> Vec<PolicySpec> {
    let mut policies: Vec<PolicySpec> = results.iter().map(|result| result.point.policy).collect();
    // Policy by policy, as the plan has them.
    policies.dedup();
    policies
}

fn write(args: &Args, report: &Report) -> Result<()> {
    let page = args.html.clone().unwrap_or_else(default_page);
    write_file(&page, &report.html()?)?;
    if let Some(picture) = &args.svg {
        write_file(picture, &report.svg())?;
    }
    if let Some(file) = &args.json {
        output::write_json(file, &report.json())?;
    }
    if args.json.as_deref() == Some("-") {
        return Ok(());
    }
    output::print(&format!("{}\nThe picture: {}\n", report.table(), page.display()))
}

/// Command that measures the same again; where results go is not part of it.
fn command(args: &Args) -> String {
    let join = |words: Vec<String>| words.join(",");
    let both = |loads: &[f64], policies: &[PolicySpec]| {
        [
            join(loads.iter().map(f64::to_string).collect()),
            join(policies.iter().map(PolicySpec::to_string).collect()),
        ]
    };
    let [loads, policies] = both(&args.loads, &args.policies);
    let [clone_loads, clone_policies] = both(&args.clone_loads, &args.clone_policies);
    let cloning = if args.no_cloning {
        "--no-cloning".to_owned()
    } else {
        format!("--clone-loads {clone_loads} --clone-policies {clone_policies}")
    };
    let duration = args
        .duration
        .map(|duration_ns| format!(" --duration {}", Unit::Time.format(duration_ns as f64)))
        .unwrap_or_default();
    let priority = if args.normal_priority { " --normal-priority" } else { "" };
    let seed = args.seed;
    format!(
        "tailcut demo --seed {seed} --loads {loads} --policies {policies} {cloning}{duration}{priority}"
    )
}

fn default_page() -> PathBuf {
    if Path::new("target").is_dir() {
        "target/demo.html".into()
    } else {
        "tailcut-demo.html".into()
    }
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

const AFTER_HELP: &str = "\
Examples:
  tailcut demo
  tailcut demo --policies random,jbsq:1,jbsq:2,jbsq:4 --loads 0.7,0.9 --html /tmp/bounds.html
  tailcut demo --policies random,jbsq:2 --loads 0.7 --no-cloning --json - --check
  tailcut demo --policies jbsq:2 --clone-policies random,netclone,auto-clone,jbsq:15+clone

The p99 of a queue varies from run to run, the more the higher the load: longer runs come closer to the prediction.";

/// For tests of all pages.
#[cfg(test)]
pub(crate) fn page_of_samples() -> String {
    report::tests::page()
}
