//! `tailcut compare`: whether two measurements differ, percentile by percentile.

mod difference;
mod gate;
mod page;
mod settings;
mod text;

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use self::difference::Row;
use self::gate::{Condition, Judged, Outcome};
use self::settings::Change;
use crate::measure::text::Style;
use crate::output;
use tailcut_instrument::result::{MeasureResult, Verdict};
use tailcut_instrument::{hdr, saved};

/// Compare two results of `tailcut measure`: which percentiles differ, by how much, and how sure
/// that is
///
/// Latencies are those from the intended send. A percentile is compared where the samples of both
/// results support it. Its difference is B minus A, with an interval that accounts for the
/// correlation of neighbouring samples; if the interval excludes zero, the two differ. The runs
/// must be independent of each other.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The result to compare with
    #[arg(value_name = "A.json")]
    before: String,
    /// The result that is compared
    #[arg(value_name = "B.json")]
    after: String,
    /// Write the comparison as JSON; - prints it and nothing else
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Write the comparison as a page for a browser, in one file
    #[arg(long, value_name = "FILE")]
    html: Option<String>,
    /// Exit with status 4 where B takes so much longer: 'p99>+5%' or 'p50>+20us'. The whole
    /// interval of the difference must be beyond it; may be repeated
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<Condition>,
    /// Write the conditions as a JUnit report, which CI systems show
    #[arg(long, value_name = "FILE")]
    junit: Option<String>,
    /// Print the conditions as annotations for a CI system
    #[arg(long, value_name = "SYSTEM")]
    annotate: Option<Annotations>,
}

/// A CI system that takes annotations from standard output.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Annotations {
    /// Commands of GitHub's workflows
    Github,
}

/// Compares; the status tells whether both results can be relied on.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let comparison = Comparison::new(Side::read(&args.before)?, Side::read(&args.after)?);
    if let Some(file) = &args.html {
        fs::write(file, page::render(&comparison)?)
            .with_context(|| format!("cannot write {file}"))?;
    }
    let judged: Vec<Judged> =
        args.fail_if.iter().map(|condition| condition.judge(&comparison.rows)).collect();
    if let Some(file) = &args.junit {
        fs::write(file, gate::junit(&comparison, &judged))
            .with_context(|| format!("cannot write {file}"))?;
    }
    if let Some(file) = &args.json {
        output::write_json(file, &comparison.json(&judged))?;
    }
    if args.json.as_deref() != Some("-") {
        let style = Style::of_stdout();
        output::print(&text::describe(&comparison, style))?;
        output::print(&text::conditions(&judged, style))?;
        if args.annotate.is_some() {
            output::print(&gate::github(&comparison, &judged))?;
        }
    }
    if judged.iter().any(|judged| judged.outcome == Outcome::Fails) {
        return Ok(ExitCode::from(CONDITION_FAILS));
    }
    Ok(if comparison.is_trustworthy() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(NOT_TRUSTWORTHY)
    })
}

/// One of the two results.
#[derive(Clone, Debug)]
struct Side {
    /// Its file.
    name: String,
    result: MeasureResult,
    /// Latencies from the intended send, ns.
    histogram: Histogram<u64>,
}

impl Side {
    fn read(path: &str) -> Result<Self> {
        Self::new(path, saved::read(path)?)
    }

    fn new(name: &str, result: MeasureResult) -> Result<Self> {
        let histogram = hdr::decode(&result.point.histograms.intended);
        let histogram = histogram
            .with_context(|| format!("{name} cannot be used: latencies from the intended send"))?;
        Ok(Self { name: name.to_owned(), result, histogram })
    }

    fn verdict(&self) -> &Verdict {
        &self.result.point.verdict
    }
}

/// Two results, and what became of the comparison.
#[derive(Clone, Debug)]
struct Comparison {
    before: Side,
    after: Side,
    rows: Vec<Row>,
    /// Settings in which they differ.
    changes: Vec<Change>,
    warnings: Vec<String>,
}

impl Comparison {
    fn new(before: Side, after: Side) -> Self {
        let rows = difference::rows(&before, &after);
        let changes = settings::changes(&before.result.config, &after.result.config);
        let mut warnings = settings::warnings(&before.result, &after.result, &changes);
        warnings.extend(difference::warnings(&rows));
        Self { before, after, rows, changes, warnings }
    }

    fn is_trustworthy(&self) -> bool {
        self.before.verdict().trustworthy && self.after.verdict().trustworthy
    }

    fn json(&self, judged: &[Judged]) -> Value {
        let conditions = judged.iter().map(|judged| {
            json!({
                "asked": judged.asked,
                "outcome": judged.outcome.word(),
                "found": judged.found,
            })
        });
        let side = |side: &Side| {
            json!({
                "file": side.name,
                "started": side.result.environment.started,
                "config": side.result.config,
                "verdict": side.verdict(),
            })
        };
        json!({
            "schema": "tailcut.compare/1",
            "config": { "before": self.before.name, "after": self.after.name },
            "trustworthy": self.is_trustworthy(),
            "before": side(&self.before),
            "after": side(&self.after),
            "changes": self.changes,
            "warnings": self.warnings,
            "percentiles": self.rows,
            "conditions": conditions.collect::<Vec<_>>(),
        })
    }
}

/// The exit status where a result cannot be relied on.
const NOT_TRUSTWORTHY: u8 = 3;
/// The exit status where a condition fails.
const CONDITION_FAILS: u8 = 4;

const AFTER_HELP: &str = "\
Examples:
  tailcut compare yesterday.json today.json
  tailcut compare random.json jbsq.json --html comparison.html
  tailcut compare main.json branch.json --fail-if 'p99>+5%' --junit report.xml --annotate github
  tailcut compare a.json b.json --json - | jq '.percentiles[] | select(.differs)'

Exit codes:
  0  both results can be relied on, whether they differ or not
  1  there is no comparison; standard error says why
  2  the command line is invalid
  3  a result is not trustworthy; the comparison is printed all the same
  4  a condition of --fail-if is met: B takes longer than that";

/// For tests of all pages.
#[cfg(test)]
pub(crate) fn page_of_samples(before: MeasureResult, after: MeasureResult) -> String {
    let side = |name, result| Side::new(name, result).expect("histograms");
    page::render(&Comparison::new(side("a.json", before), side("b.json", after))).expect("a page")
}
