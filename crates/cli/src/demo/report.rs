//! Reports of the demonstration: a table, JSON, a picture, and one page that holds everything.
//!
//! Invariant: every figure of a point is measured from the time at which a request should have
//! left, and stands beside its prediction; the page loads nothing from anywhere.

use std::fs;

use anyhow::{Result, bail};
use minijinja::context;
use serde::Serialize;
use serde_json::{Value, json};
use tailcut_proto::policy::{PolicySpec, QueueModel};

use super::chart::{self, Group};
use super::cloning::Cloning;
use super::plan::{PLAIN, Point, WARMUP_NS, WORKERS};
use super::point::{PointResult, point_json};
use super::predict::{self, Curve, Figures};
use super::progress;
use crate::chart::{Chart, NARROW, Series, WIDE, look_of};
use crate::{output, page};

/// All that was measured and predicted.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) setting: Setting,
    /// In the order of the plan.
    pub(super) results: Vec<PointResult>,
    /// Each policy's predicted p99, in the order of the plan.
    pub(super) curves: Vec<(PolicySpec, Curve)>,
    /// The p99 of one queue.
    pub(super) ideal_curve: Curve,
    /// One queue at each load that was run, ascending.
    pub(super) ideals: Vec<(f64, Figures)>,
    /// The panel on cloning, where it was run.
    pub(super) cloning: Option<Cloning>,
}

/// Setting of the run: what repeats it, and its machine.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setting {
    /// As a shell takes it.
    pub(super) command: String,
    pub(super) version: String,
    pub(super) seed: u64,
    /// Points measured at once.
    pub(super) lanes: usize,
    /// Scheduling of the processes of a point.
    pub(super) scheduling: String,
    pub(super) machine: Machine,
}

/// Machine of the run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    pub(super) cpu: String,
    pub(super) cores: usize,
    pub(super) kernel: String,
}

impl Machine {
    /// This machine.
    pub(super) fn here() -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: model.map_or_else(
                || format!("unnamed {}", std::env::consts::ARCH),
                |(_, name)| name.trim().to_owned(),
            ),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.trim().to_owned(),
        }
    }
}

impl Report {
    /// An error that names each of `random` and `jbsq:N` at [`CHECK_LOAD`] that departs from its
    /// prediction.
    pub(super) fn check(&self) -> Result<()> {
        let departed =
            self.results.iter().filter(|result| is_checked(&result.point) && result.departs());
        let named = departed.map(|result| {
            format!("{} is {:.2} of its prediction", progress::name(&result.point), result.ratio())
        });
        let named: Vec<String> = named.collect();
        if named.is_empty() {
            Ok(())
        } else {
            bail!("check: the p99 of {}", named.join(", and of "))
        }
    }

    /// The result for people.
    pub(super) fn table(&self) -> String {
        let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
        rows.extend(self.results.iter().map(|result| cells(result).to_vec()));
        let departed = self.results.iter().filter(|result| result.departs()).count();
        let note = if departed > 0 { "* further than 15 % from the prediction\n" } else { "" };
        let cloning = self.cloning.as_ref().map(|cloning| format!("\n{}", cloning.table()));
        format!(
            "{}times in ms, the mean service time is 1 ms; ratio: measured over predicted p99\n{note}{}",
            output::table(&rows, 1),
            cloning.unwrap_or_default()
        )
    }

    /// The result for programs.
    pub(super) fn json(&self) -> Value {
        json!({
            "schema": "tailcut.demo/1",
            "config": {
                "command": self.setting.command,
                "version": self.setting.version,
                "seed": self.setting.seed,
                "lanes": self.setting.lanes,
                "scheduling": self.setting.scheduling,
                "machine": self.setting.machine,
                "workers": WORKERS,
                "service": PLAIN.service,
                "warmup_ns": WARMUP_NS,
            },
            "points": self.results.iter().map(point_json).collect::<Vec<_>>(),
            "one_queue": self.ideals.iter().map(|(load, figures)| {
                json!({ "load": load, "sojourn_over_service": figures })
            }).collect::<Vec<_>>(),
            "cloning": self.cloning.as_ref().map(Cloning::json),
        })
    }

    /// The picture for a README: the p99 over the load, as a file of its own.
    pub(super) fn svg(&self) -> String {
        self.load_chart(WIDE).standalone()
    }

    /// One page with everything.
    pub(super) fn html(&self) -> Result<String> {
        let context = context! {
            setting => self.setting,
            load_charts => [WIDE, NARROW].map(|width| self.load_chart(width).inline()),
            bar_charts => [WIDE, NARROW].map(|width| self.bar_chart(width).inline()),
            bar_load => format!("{:.0}", 100.0 * self.bar_load()),
            head => HEAD,
            rows => self.results.iter().map(row).collect::<Vec<_>>(),
            story => self.story(),
            policies => self.curves.iter().map(|(policy, _)| described(*policy)).collect::<Vec<_>>(),
            workers => WORKERS,
            cloning => self.cloning.as_ref().map(Cloning::section),
            departed => self.results.iter().filter(|result| result.departs()).count(),
            repeated => self.results.iter().filter(|result| result.measurement.repeats > 0).count(),
            failed => self.results.iter().map(|result| result.measurement.failed()).sum::<u64>(),
        };
        page::render(include_str!("report.html"), context)
    }

    fn load_chart(&self, width: u32) -> Chart {
        let mut series: Vec<Series> = (0..)
            .zip(&self.curves)
            .map(|(look, (policy, curve))| self.series(look, *policy, curve))
            .collect();
        let label = ONE_QUEUE.to_owned();
        series.push(Series { label, curve: self.ideal_curve.clone(), ..Series::default() });
        let alternative = "The 99th percentile of the sojourn time over the load, for each policy: predicted curves and \
                           measured points.";
        chart::load_chart(&series, "= ms", width, alternative.to_owned())
    }

    fn series(&self, look: usize, policy: PolicySpec, curve: &Curve) -> Series {
        let points = self.results.iter().filter(|result| result.point.policy == policy);
        Series {
            label: format!("{policy} ({})", predict::basis(policy)),
            look: look_of(look),
            curve: curve.clone(),
            points: points.map(|result| (result.point.load, result.measured.p99)).collect(),
            ranges: Vec::new(),
        }
    }

    fn bar_chart(&self, width: u32) -> Chart {
        let load = self.bar_load();
        let mut groups: Vec<Group> = Vec::new();
        for (look, (policy, _)) in (0..).zip(&self.curves) {
            let here = self
                .results
                .iter()
                .find(|result| result.point.policy == *policy && result.point.load == load);
            groups.extend(here.map(|result| Group {
                label: policy.to_string(),
                look: look_of(look),
                measured: Some(result.measured),
                predicted: result.predicted,
            }));
        }
        let ideal = self.ideals.iter().find(|(ideal_load, _)| *ideal_load == load);
        let label = ONE_QUEUE.to_owned();
        groups.extend(ideal.map(|&(_, predicted)| Group {
            label,
            look: 0,
            measured: None,
            predicted,
        }));
        let alternative = format!(
            "Median, 99th and 99.9th percentile of the sojourn time at {:.0} % load, for each policy: measured bars and \
             predicted marks.",
            100.0 * load
        );
        chart::bar_chart(&groups, width, alternative)
    }

    /// The load nearest to [`CHECK_LOAD`].
    fn bar_load(&self) -> f64 {
        let loads = self.results.iter().map(|result| result.point.load);
        loads
            .min_by(|one, other| (one - CHECK_LOAD).abs().total_cmp(&(other - CHECK_LOAD).abs()))
            .unwrap_or(CHECK_LOAD)
    }

    /// The figures of the text, where random placement and a bounded shortest queue were both run.
    fn story(&self) -> Option<Story> {
        let load = self.bar_load();
        let find = |is_wanted: fn(QueueModel) -> bool| {
            self.results
                .iter()
                .find(|result| is_wanted(result.point.policy.model()) && result.point.load == load)
        };
        let random = find(|model| model == QueueModel::Independent)?;
        let jbsq = find(|model| matches!(model, QueueModel::Bounded(_)))?;
        let (_, ideal) = self.ideals.iter().find(|(ideal_load, _)| *ideal_load == load)?;
        let one = |figure: f64| format!("{figure:.1}");
        Some(Story {
            jbsq: jbsq.point.policy.to_string(),
            random_p50: one(random.measured.p50),
            random_p99: one(random.measured.p99),
            jbsq_p50: one(jbsq.measured.p50),
            jbsq_p99: one(jbsq.measured.p99),
            ideal_p99: one(ideal.p99),
            service_p99: one(100f64.ln()),
        })
    }
}

/// A policy and what it does.
fn described(policy: PolicySpec) -> (String, String) {
    (policy.to_string(), policy.describe())
}

/// True if `--check` looks at a point.
pub(super) fn is_checked(point: &Point) -> bool {
    matches!(point.policy.model(), QueueModel::Independent | QueueModel::Bounded(_))
        && point.load == CHECK_LOAD
}

/// In mean service times.
#[derive(Debug, Serialize)]
struct Story {
    jbsq: String,
    random_p50: String,
    random_p99: String,
    jbsq_p50: String,
    jbsq_p99: String,
    ideal_p99: String,
    /// Percentile of the service alone.
    service_p99: String,
}

/// A row of the page's table.
#[derive(Debug, Serialize)]
struct Row {
    cells: [String; HEAD.len()],
    departs: bool,
}

fn row(result: &PointResult) -> Row {
    Row { cells: cells(result), departs: result.departs() }
}

/// Under [`HEAD`].
fn cells(result: &PointResult) -> [String; HEAD.len()] {
    let PointResult { point, measured, predicted, .. } = result;
    [
        point.policy.to_string(),
        format!("{:.0} %", 100.0 * point.load),
        result.samples(),
        format!("{:.2}", measured.p50),
        format!("{:.2}", measured.p99),
        format!("{:.2}", measured.p999),
        format!("{:.2}", predicted.p99),
        result.marked_ratio(),
        predict::basis(point.policy),
    ]
}

const HEAD: [&str; 9] =
    ["policy", "load", "samples", "p50", "p99", "p99.9", "predicted p99", "ratio", "by"];
const ONE_QUEUE: &str = "one queue (bound)";
/// The load of the bars, of the text and of `--check`.
pub(super) const CHECK_LOAD: f64 = 0.7;
#[cfg(test)]
pub(super) mod tests {
    use super::super::measurement::{Counts, Latencies, Latency, Rates};
    use super::*;
    use crate::demo::measurement::Measurement;

    #[test]
    fn the_table_marks_what_departs() {
        insta::assert_snapshot!(report(&[("random", 1.02), ("jbsq:2", 1.16)]).table());
    }

    #[test]
    fn the_json_has_stable_names() {
        insta::assert_snapshot!(format!("{:#}", report(&[("random", 1.0)]).json()));
    }

    #[test]
    fn the_page_is_drawn_as_recorded() {
        insta::assert_snapshot!(report(&[("random", 1.02), ("jbsq:2", 1.16)]).html().unwrap());
    }

    #[test]
    fn the_panel_on_cloning_is_drawn_as_recorded() {
        let cloning = Some(super::super::cloning::tests::cloning());
        let page = Report { cloning, ..report(&[("rr", 1.0)]) }.html().unwrap();
        let (_, panel) = page.split_once("<h2 id=\"cloning\">").unwrap();
        let (panel, rest) = panel.split_once("<h2 id=\"figures\">").unwrap();
        assert!(rest.contains("one for each copy"));
        insta::assert_snapshot!(panel);
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let cloning = Some(super::super::cloning::tests::cloning());
        let report = report(&[("random", 1.0), ("jbsq:2", 1.0)]);
        let page = Report { cloning, ..report }.html().unwrap();
        let page = page.replace("http://www.w3.org/2000/svg", "");
        for foreign in ["http:", "https:", "src=", "@import", "url(", "<script", "<link"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn a_page_without_random_placement_tells_no_story() {
        let page = report(&[("rr", 1.0)]).html().unwrap();
        assert!(!page.contains("What the picture means"));
    }

    #[test]
    fn a_check_passes_within_the_limit() {
        assert!(report(&[("random", 1.14), ("jbsq:2", 0.86), ("rr", 2.0)]).check().is_ok());
    }

    #[test]
    fn a_check_names_what_departs() {
        let error = report(&[("random", 0.8), ("jbsq:2", 1.25)]).check().unwrap_err();
        let expected = "check: the p99 of random at 70 % is 0.80 of its prediction, and of jbsq:2 at 70 % is 1.25 of its prediction";
        assert_eq!(error.to_string(), expected);
    }

    /// A page with all of its parts.
    pub(in super::super) fn page() -> String {
        let cloning = Some(super::super::cloning::tests::cloning());
        let report = report(&[("random", 1.02), ("rr", 1.0), ("jsq:2", 1.0), ("jbsq:2", 1.16)]);
        Report { cloning, ..report }.html().unwrap()
    }

    /// Every policy at a load of 0.7 with figures that are so many times the predicted ones.
    fn report(ratios: &[(&str, f64)]) -> Report {
        let results: Vec<PointResult> =
            ratios.iter().map(|&(policy, ratio)| result(policy, ratio)).collect();
        let curve = |policy| {
            [0.5, 0.7, 0.9].map(|load| (load, predict::figures(policy, load).unwrap().p99)).to_vec()
        };
        Report {
            setting: Setting {
                command: "tailcut demo --seed 1".to_owned(),
                version: "0.1.0".to_owned(),
                seed: 1,
                lanes: 2,
                scheduling: "on any core, normal priority".to_owned(),
                machine: Machine {
                    cpu: "A <CPU>".to_owned(),
                    cores: 2,
                    kernel: "6.18.0".to_owned(),
                },
            },
            curves: results
                .iter()
                .map(|result| (result.point.policy, curve(result.point.policy)))
                .collect(),
            results,
            ideal_curve: [0.5, 0.9]
                .map(|load| (load, predict::ideal_figures(load).unwrap().p99))
                .to_vec(),
            ideals: vec![(0.7, predict::ideal_figures(0.7).unwrap())],
            cloning: None,
        }
    }

    fn result(policy: &str, ratio: f64) -> PointResult {
        let (policy, duration_ns) = (policy.parse().unwrap(), 8_000_000_000);
        let point = Point { pool: &PLAIN, policy, load: 0.7, duration_ns };
        let predicted = predict::figures(point.policy, 0.7).unwrap();
        let Figures { mean, p50, p99, p999 } = predicted;
        let us = |services: f64| Some((1_000.0 * ratio * services).round());
        let latency = Latency {
            mean: us(mean),
            p50: us(p50),
            p90: us(p50),
            p99: us(p99),
            p999: us(p999),
            max: us(p999),
        };
        let measurement = Measurement {
            rate_per_s: Rates { offered: 5_600.0, sent: 5_600.0, achieved: 5_600.0 },
            counts: Counts { sent: 44_800, replied: 44_798, lost: 0, refused: 0, timeout: 2 },
            latency_us: Latencies { intended: latency, actual: latency },
            repeats: 0,
        };
        let measured = measurement.figures(PLAIN.service_us).unwrap();
        PointResult { point, measurement, measured, predicted }
    }
}
