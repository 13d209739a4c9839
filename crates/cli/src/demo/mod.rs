//! `tailcut demo`: shows what a short tail is, and that what is measured is what theory predicts.
//!
//! Each policy runs at each load: servers, a router and a load as processes of this binary, on
//! loopback. The measured percentiles go beside those of the queue that the policy amounts to.

mod chart;
mod lanes;
mod measurement;
mod plan;
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

use self::measurement::Measurement;
use self::plan::Point;
use self::predict::Figures;
use self::report::{CHECK_LOAD, Machine, PointResult, Report, Setting};
use crate::distribution_file::parse_positive_ns;
use crate::{output, signals};

/// Show what a short tail is: measure policies side by side, and write a page with curves
///
/// Eight emulated servers of 1 ms exponential service, a router and an open-loop load run on this
/// machine, for about a minute. The percentiles are printed beside what queueing theory predicts,
/// and the page holds the picture.
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
    /// Fail when the p99 of random or jbsq at 70 % load is further than 15 % from its prediction
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let points = plan::points(&args.policies, &args.loads, args.duration)?;
    if args.check && !points.iter().any(report::is_checked) {
        bail!("--check looks at random and jbsq:N at a load of {CHECK_LOAD}, and neither is run");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    signals::on_stop(move || flag.store(true, Ordering::Relaxed))?;
    let predicted = points
        .iter()
        .map(|point| predict::figures(point.policy, point.load))
        .collect::<Result<Vec<_>>>()?;
    let measured = lanes::measure_all(&points, &predicted, args.seed, &stop)?;
    let report = assemble(args, &points, &measured, &predicted)?;
    write(args, &report)?;
    if args.check { report.check() } else { Ok(()) }
}

fn assemble(
    args: &Args,
    points: &[Point],
    measured: &[Measurement],
    predicted: &[Figures],
) -> Result<Report> {
    let mut results = Vec::new();
    for ((&point, &measurement), &predicted) in points.iter().zip(measured).zip(predicted) {
        let measured = measurement.figures().context("a measured point has all percentiles")?;
        results.push(PointResult { point, measurement, measured, predicted });
    }
    let mut policies: Vec<PolicySpec> = Vec::new();
    let mut loads: Vec<f64> = points.iter().map(|point| point.load).collect();
    for point in points.iter().filter(|point| point.load == points[0].load) {
        policies.push(point.policy);
    }
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    Ok(Report {
        setting: Setting {
            command: command(args),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seed: args.seed,
            lanes: lanes::lane_count(),
            scheduling: lanes::scheduling(),
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

/// What measures the same again; where results go is not part of it.
fn command(args: &Args) -> String {
    let join = |words: Vec<String>| words.join(",");
    let loads = join(args.loads.iter().map(f64::to_string).collect());
    let policies = join(args.policies.iter().map(PolicySpec::to_string).collect());
    let duration = args
        .duration
        .map(|duration_ns| format!(" --duration {}", Unit::Time.format(duration_ns as f64)))
        .unwrap_or_default();
    format!("tailcut demo --seed {} --loads {loads} --policies {policies}{duration}", args.seed)
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
  tailcut demo --policies random,jbsq:2 --loads 0.7 --json - --check

The p99 of a queue varies from run to run, the more the higher the load: longer runs come closer to the prediction.";
