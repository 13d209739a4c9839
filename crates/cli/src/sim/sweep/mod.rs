//! `tailcut sim sweep`: a grid of simulations, run on all cores or many machines, as a table and a
//! page with curves.
//!
//! A point's result is a file named by the hash of its configuration, so a sweep goes on where it
//! was left, and machines that share nothing but a directory can each do a share.
//!
//! Invariant: nothing runs before every point of the file has been accepted by the parser of its
//! simulation.

mod file;
mod point;
mod report;
mod runner;
mod store;
mod table;

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use self::file::SweepFile;
use self::point::Point;
use self::runner::Tally;
use self::store::Store;
use self::table::Table;
use tailcut_instrument::text_file::{self, CONFIG_BYTES_MAX};

use super::Outcome;

/// Run a grid of simulations on all cores, and write a table and a page with curves
///
/// Each point has a file of its own, named by the hash of its configuration: a second run makes
/// only what is missing. When all points are there, NAME.csv, NAME.html and the curves alone, as
/// NAME.svg, are written beside them.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The sweep, as TOML
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Directory of the results [default: FILE without its extension, and .results]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run every N-th point from the I-th on, counted from 0: the shards 0/N to N-1/N are all
    /// points, each once
    #[arg(long, value_name = "I/N", conflicts_with_all = ["point", "report_only"])]
    shard: Option<Shard>,
    /// Print the points, a line of JSON each: hash, args, and done where the result is there; run
    /// nothing
    #[arg(long, conflicts_with_all = ["point", "report_only"])]
    list: bool,
    /// Run only the point of this hash; with --json -, print its file
    #[arg(long, value_name = "HASH", conflicts_with = "report_only")]
    point: Option<String>,
    /// Run nothing: write the table and the page from the results that are there
    #[arg(long)]
    report_only: bool,
}

/// A share of the points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shard {
    index: usize,
    count: usize,
}

pub(super) fn run(args: &Args) -> Result<Outcome> {
    let place = || format!("{}", args.file.display());
    let text = text_file::read(&args.file, CONFIG_BYTES_MAX)
        .with_context(|| format!("cannot read {}", place()))?;
    let file = SweepFile::parse(&text).with_context(place)?;
    let points = Point::all(&file).with_context(place)?;
    let share: Vec<&Point> = points
        .iter()
        .enumerate()
        .filter(|(index, _)| args.has(*index))
        .map(|(_, point)| point)
        .collect();
    let store = Store::new(args.out.clone().unwrap_or_else(|| args.file.with_extension("results")));
    if args.list {
        return Ok(list(&share, &store));
    }
    store.create()?;
    if let Some(hash) = &args.point {
        return run_one(&points, hash, &store);
    }
    let tally = if args.report_only { Tally::default() } else { runner::run(&share, &store)? };
    finish(&Sweep { args, file, text, points }, &store, &tally)
}

impl Args {
    /// True where the n-th point is this run's, counted from 0.
    fn has(&self, index: usize) -> bool {
        self.shard.is_none_or(|shard| index % shard.count == shard.index)
    }
}

impl FromStr for Shard {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split_once('/').map(|(index, count)| (index.parse(), count.parse()));
        match numbers {
            Some((Ok(index), Ok(count))) if index < count => Ok(Self { index, count }),
            _ => Err("write I/N, with I from 0 to N-1"),
        }
    }
}

/// A sweep as it was asked for.
struct Sweep<'a> {
    args: &'a Args,
    file: SweepFile,
    text: String,
    points: Vec<Point>,
}

fn list(points: &[&Point], store: &Store) -> Outcome {
    let line = |point: &&Point| {
        let is_done = store.read(point).is_some();
        json!({ "hash": point.hash, "args": point.arguments, "done": is_done })
    };
    let lines: Vec<Value> = points.iter().map(line).collect();
    let text = lines.iter().map(|line| format!("{line}\n")).collect();
    Outcome { json: Value::Array(lines), text, failure: None }
}

fn run_one(points: &[Point], hash: &str, store: &Store) -> Result<Outcome> {
    let point = points.iter().find(|point| point.hash == hash);
    let point = point
        .with_context(|| format!("no point has the hash {hash}; --list prints those of all"))?;
    let json = match store.read(point) {
        Some(file) => file,
        None => point
            .run()
            .and_then(|result| store.write(point, &result))
            .with_context(|| point.to_string())?,
    };
    Ok(Outcome { json, text: format!("{point}: {}\n", store.path(point).display()), failure: None })
}

/// Says what became of the points, and makes the table and the page where all are there.
fn finish(sweep: &Sweep<'_>, store: &Store, tally: &Tally) -> Result<Outcome> {
    let Sweep { args, file, points, .. } = sweep;
    let results: Vec<(&Point, Value)> =
        points.iter().filter_map(|point| Some((point, store.read(point)?))).collect();
    let missing = points.len() - results.len();
    ensure!(!args.report_only || missing == 0, "{missing} of {} points are missing", points.len());
    let made = if missing == 0 { Some(make_report(sweep, store, &results)?) } else { None };
    let failures = tally.failures.iter();
    let json = json!({
        "schema": "tailcut.sim.sweep/1",
        "config": {
            "file": args.file.display().to_string(),
            "name": file.name,
            "shard": args.shard.map(|shard| format!("{}/{}", shard.index, shard.count)),
        },
        "points": {
            "total": points.len(),
            "ran": tally.ran,
            "reused": tally.reused,
            "failed": tally.failures.len(),
            "missing": missing,
        },
        "failures": failures.map(|it| json!({ "hash": it.hash, "point": it.point, "message": it.message })).collect::<Vec<_>>(),
        "results": store.dir().display().to_string(),
        "csv": made.as_ref().map(|[csv, ..]| csv.display().to_string()),
        "report": made.as_ref().map(|[_, report, _]| report.display().to_string()),
        "picture": made.as_ref().map(|[.., picture]| picture.display().to_string()),
    });
    let share = tally.ran + tally.reused + tally.failures.len();
    let first = tally.failures.first();
    let failure = first.map(|it| {
        format!("{} of {share} points failed; {}: {}", tally.failures.len(), it.point, it.message)
    });
    Ok(Outcome { json, text: summary(tally, missing, store, made.as_ref()), failure })
}

fn make_report(
    sweep: &Sweep<'_>,
    store: &Store,
    results: &[(&Point, Value)],
) -> Result<[PathBuf; 3]> {
    let file = &sweep.file;
    let table = Table::new(&file.keys().collect::<Vec<_>>(), results);
    let csv = store.write_text(&format!("{}.csv", file.name), &table.csv())?;
    let page = report::html(file, &sweep.text, &table)?;
    let page = store.write_text(&format!("{}.html", file.name), &page)?;
    let picture = report::svg(file, &table)?;
    Ok([csv, page, store.write_text(&format!("{}.svg", file.name), &picture)?])
}

fn summary(tally: &Tally, missing: usize, store: &Store, made: Option<&[PathBuf; 3]>) -> String {
    let Tally { ran, reused, failures } = tally;
    let mut text = format!("points: {ran} ran, {reused} were there, {} failed\n", failures.len());
    match made {
        Some(files) => {
            for (name, path) in ["table", "page", "picture"].into_iter().zip(files) {
                text += &format!("{:9}{}\n", format!("{name}:"), path.display());
            }
        }
        None => {
            text += &format!(
                "results: {}; {missing} points are missing for the table and the page\n",
                store.dir().display()
            )
        }
    }
    text
}

const AFTER_HELP: &str = "\
A sweep such as bound.toml:
  name = \"jbsq-bound\"
  simulation = \"queue\"               # queue, chip, clone, r2p2 or homa
  [fixed]                            # flags of the simulation, without dashes; true and false for switches
  workers = 16
  service = \"exp:1us\"
  requests = \"2M\"
  [grid]                             # every combination
  policy = [\"jbsq:1\", \"jbsq:2\", \"random\"]
  load = [0.5, 0.6, 0.7, 0.8, 0.9]
  [report]                           # what is drawn; optional
  x = \"load\"
  y = \"sojourn_over_service.p99\"     # or a list of figures; the CSV has all of them
  series = \"policy\"
  y-axis = \"log\"                     # or linear; chosen by the values where it is left out; x-axis too
  font = \"Libertinus Serif, serif\"  # of NAME.svg
  width = 340                        # of NAME.svg, in pixels: a column of a paper; 760 by default

Examples:
  tailcut sim sweep bound.toml
  tailcut sim sweep bound.toml --list
  tailcut sim sweep bound.toml --shard 0/2      # one machine
  tailcut sim sweep bound.toml --shard 1/2      # another one, with the same --out DIR

As a Slurm array from 0 on, sbatch --array=0-7:
  tailcut sim sweep bound.toml --out DIR --shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT
then, once, with --report-only, unless the last to end found all points there.";

/// For tests of all pages.
#[cfg(test)]
pub(super) fn page_of_samples() -> String {
    report::tests::page("x = \"policy\"\ny = [\"t_us.p99\", \"t_us.mean\"]\nseries = \"load\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_counts_from_zero() {
        assert_eq!("0/1".parse(), Ok(Shard { index: 0, count: 1 }));
        assert_eq!("7/8".parse(), Ok(Shard { index: 7, count: 8 }));
        for text in ["8/8", "1", "0/0", "-1/2", "a/b", "1/2/3"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }
}
