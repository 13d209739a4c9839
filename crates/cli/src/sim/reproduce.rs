//! `tailcut sim reproduce`: published figures, simulated again, with a verdict on each value.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tailcut_experiments::figure::{Curve, Figure, Panel};
use tailcut_experiments::verdict::Verdict;
use tailcut_experiments::{Effort, REPRODUCTIONS, Reproduction};
use tailcut_net::clock::Clock;

use super::Outcome;
use crate::chart::{Axis, Chart, LineChart, Series, WIDE, look_of};
use crate::output;

/// Simulate published figures again, and compare
///
/// Writes NAME.csv and NAME.svg for each figure, prints a table of verdicts, and fails when one of
/// them does.
#[derive(Debug, clap::Args)]
#[command(after_help = after_help())]
pub(crate) struct Args {
    /// The figure, or `all`
    #[arg(value_name = "NAME")]
    name: String,
    /// Directory of CSV and SVG files
    #[arg(long, value_name = "DIR", default_value = "reproduced")]
    out: PathBuf,
    /// A sixteenth of the requests, and so tolerances that are four times as wide
    #[arg(long)]
    quick: bool,
    /// Seed of the first run of each point
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(args: &Args) -> Result<Outcome> {
    let effort = if args.quick { Effort::quick(args.seed) } else { Effort::full(args.seed) };
    let chosen: Vec<&Reproduction> =
        REPRODUCTIONS.iter().filter(|it| args.name == "all" || args.name == it.name).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = REPRODUCTIONS.iter().map(|it| it.name).collect();
        bail!("no figure is called {}; there are {} and all", args.name, names.join(", "));
    }
    fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make the directory {}", args.out.display()))?;
    let (mut json, mut text, mut verdicts) = (Vec::new(), String::new(), Vec::new());
    for Reproduction { name, about, run, is_map } in chosen {
        let began = Clock.now();
        // Some take minutes.
        eprintln!("{name}: {about}");
        let figure = run(effort).with_context(|| format!("{name} cannot be simulated"))?;
        // Not among the results, which are the same each time.
        eprintln!("{name} took {:.1} s", (Clock.now() - began) as f64 / 1e9);
        for (ending, content) in [("csv", figure.csv()), ("svg", svg(&figure, name))] {
            let path = args.out.join(format!("{name}.{ending}"));
            fs::write(&path, content)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        json.push(json!({
            "name": name,
            "about": about,
            "verdicts": figure.verdicts.iter().map(Verdict::json).collect::<Vec<_>>(),
        }));
        text += &format!("{name}: {about}\n\n");
        for panel in figure.panels.iter().filter(|_| *is_map) {
            text += &format!("{}, {}\n{}\n", panel.title, panel.y, output::table(&panel.rows(), 0));
        }
        text += &format!("{}\n", table(&figure.verdicts));
        verdicts.extend(figure.verdicts);
    }
    Ok(Outcome {
        json: document(args, effort, json),
        failure: failure(&verdicts),
        text: text + &summary(args, &verdicts),
    })
}

fn document(args: &Args, effort: Effort, figures: Vec<Value>) -> Value {
    json!({
        "schema": "tailcut.sim.reproduce/1",
        "config": { "name": args.name, "quick": args.quick, "seed": args.seed, "widening": effort.widening() },
        "figures": figures,
    })
}

fn summary(args: &Args, verdicts: &[Verdict]) -> String {
    let judged = || verdicts.iter().filter(|verdict| verdict.is_judged());
    let passed = judged().filter(|verdict| verdict.passes()).count();
    format!("{passed} of {} verdicts pass; curves: {}\n", judged().count(), args.out.display())
}

fn failure(verdicts: &[Verdict]) -> Option<String> {
    let failed: Vec<&str> = verdicts
        .iter()
        .filter(|verdict| !verdict.passes())
        .map(|verdict| verdict.what.as_str())
        .collect();
    (!failed.is_empty()).then(|| format!("not reproduced: {}", failed.join("; ")))
}

/// The verdicts for people.
fn table(verdicts: &[Verdict]) -> String {
    let head = Verdict::HEAD.map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> =
        [head].into_iter().chain(verdicts.iter().map(Verdict::cells)).collect();
    output::table(&rows, 2)
}

/// The panels below each other, as a file of its own.
fn svg(figure: &Figure, name: &str) -> String {
    let panels: Vec<(String, Chart)> =
        figure.panels.iter().map(|panel| (panel.title.clone(), chart(panel))).collect();
    let title = format!("{name}: lines are simulated here, marks are published or exact");
    Chart::stacked(&panels, title).standalone()
}

fn chart(panel: &Panel) -> Chart {
    let series: Vec<Series> =
        panel.curves.iter().enumerate().map(|(index, curve)| series(index, curve)).collect();
    let points = || series.iter().flat_map(|series| series.curve.iter().chain(&series.points));
    let x = Axis::covering(panel.x.to_owned(), points().map(|point| point.0));
    let y_max = panel.y_max.unwrap_or(f64::INFINITY);
    let y = Axis::from_zero(panel.y.to_owned(), points().map(|point| point.1.min(y_max)));
    let marker_title = |label: &str, (x, y): (f64, f64)| format!("{label}: {y} at {x}");
    LineChart { series: &series, x, y, marker_title: &marker_title }.draw(WIDE, panel.title.clone())
}

fn series(index: usize, curve: &Curve) -> Series {
    let Curve { label, obtained, expected } = curve.clone();
    let look = look_of(index);
    Series { label, look, curve: obtained, points: expected, ranges: Vec::new() }
}

/// The figures as they call themselves, then examples.
fn after_help() -> String {
    let figures = REPRODUCTIONS.iter().map(|it| format!("  {:21}  {}\n", it.name, it.about));
    format!("Figures:\n{}\n{EXAMPLES}", figures.collect::<String>())
}

const EXAMPLES: &str = "\
Examples:
  tailcut sim reproduce jbsq-bound --quick
  tailcut sim reproduce all --out target/reproduced --json target/reproduced.json";

#[cfg(test)]
mod tests {
    use tailcut_experiments::verdict::{Basis, Tolerance};

    use super::*;

    #[test]
    fn the_help_names_every_figure() {
        for Reproduction { name, .. } in REPRODUCTIONS {
            assert!(after_help().contains(&format!("\n  {name} ")), "{name}");
        }
    }

    #[test]
    fn a_verdict_that_fails_fails_the_command_and_one_that_is_shown_does_not() {
        let verdict = |what: &str, tolerance| {
            Verdict::fixed(what.to_owned(), (Basis::Exact, 2.0), 3.0, tolerance)
        };
        let shown = verdict("shown", Tolerance::Shown);
        assert_eq!(failure(std::slice::from_ref(&shown)), None);
        let failed = [
            shown,
            verdict("p99", Tolerance::Absolute(0.5)),
            verdict("mean", Tolerance::Absolute(1.5)),
        ];
        assert_eq!(failure(&failed), Some("not reproduced: p99".to_owned()));
    }

    #[test]
    fn every_curve_has_a_path() {
        let curve = |label: &str| Curve {
            label: label.to_owned(),
            obtained: vec![(0.5, 1.0), (0.9, 3.0)],
            expected: vec![(0.9, 3.1)],
        };
        let panel = |title: &str| Panel {
            title: title.to_owned(),
            x: "load",
            y: "p99 (mean service times)",
            y_max: None,
            curves: vec![curve("1x16"), curve("a, b")],
        };
        let figure = Figure { panels: vec![panel("fixed"), panel("exp")], verdicts: vec![] };
        let svg = svg(&figure, "test");
        // A sample in the legend and the curve itself, in both panels.
        assert_eq!(svg.matches("<polyline class=\"line s2\"").count(), 4);
        assert_eq!(svg.matches("<svg ").count(), 1);
    }

    #[test]
    fn the_table_says_what_fails() {
        let rows = [4.04, 4.05].map(|obtained| {
            let (what, tolerance) = ("a figure".to_owned(), Tolerance::Relative(0.01));
            Verdict::new(Effort::full(1), what, (Basis::Exact, 4.0), obtained, tolerance)
        });
        let text = table(&rows);
        assert!(
            text.contains("+1.000 %    1.000 %     pass")
                && text.contains("+1.250 %    1.000 %     FAIL"),
            "{text}"
        );
    }
}
