//! The panel on cloning: servers with rare jitter, the p99 without and with a second copy of
//! requests, beside the simulator's prediction.
//!
//! Invariant: a gain is the p99 of random placement at the same load over that of a policy,
//! measured over measured and predicted over predicted.

use serde::Serialize;
use serde_json::{Value, json};
use tailcut_proto::policy::{PolicySpec, QueueModel};

use super::chart;
use super::plan::JITTERED;
use super::point::{PointResult, point_json};
use super::predict::Curve;
use crate::chart::{Chart, NARROW, Series, WIDE, look_of};
use crate::output;

/// Measurements and predictions before servers with jitter.
#[derive(Clone, Debug)]
pub(super) struct Cloning {
    /// In the order of the plan.
    pub(super) results: Vec<PointResult>,
    /// Each policy's predicted p99, in the order of the plan.
    pub(super) curves: Vec<(PolicySpec, Curve)>,
}

/// Section of the page about cloning.
#[derive(Debug, Serialize)]
pub(super) struct Section {
    /// For a wide page and for a narrow one.
    charts: [String; 2],
    head: [&'static str; HEAD.len()],
    rows: Vec<Row>,
    policies: Vec<(String, String)>,
    servers: usize,
    workers: usize,
    /// The mean service without jitter, ms.
    service_ms: String,
    story: Option<Story>,
}

/// A row of the page's table.
#[derive(Debug, Serialize)]
struct Row {
    cells: [String; HEAD.len()],
    departs: bool,
}

/// Point at which copies gained the most.
#[derive(Debug, Serialize)]
struct Story {
    policy: String,
    /// In percent.
    load: String,
    random_p99: String,
    p99: String,
    gain: String,
    predicted_gain: String,
}

impl Cloning {
    /// The result for people.
    pub(super) fn table(&self) -> String {
        let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
        rows.extend(self.results.iter().map(|result| self.cells(result).to_vec()));
        format!(
            "cloning: {} servers of {} workers, {}, one service in a hundred 15 times as long\n\
             {}times in mean services without jitter; gain: p99 of random over that of the policy\n",
            JITTERED.servers,
            JITTERED.workers,
            JITTERED.service,
            output::table(&rows, 1)
        )
    }

    /// The result for programs.
    pub(super) fn json(&self) -> Value {
        let points = self.results.iter().map(|result| {
            let mut point = point_json(result);
            let gains = self.gains(result);
            point["gain"] = json!(gains.map(|(gain, _)| gain));
            point["predicted_gain"] = json!(gains.map(|(_, predicted)| predicted));
            point
        });
        json!({
            "servers": JITTERED.servers,
            "workers": JITTERED.workers,
            "service": JITTERED.service,
            "jitter": JITTERED.jitter,
            "points": points.collect::<Vec<_>>(),
        })
    }

    /// The result for the page.
    pub(super) fn section(&self) -> Section {
        let row = |result| Row { cells: self.cells(result), departs: result.departs() };
        let described = |(policy, _): &(PolicySpec, Curve)| (policy.to_string(), policy.describe());
        Section {
            charts: [WIDE, NARROW].map(|width| self.chart(width).inline()),
            head: HEAD,
            rows: self.results.iter().map(row).collect(),
            policies: self.curves.iter().map(described).collect(),
            servers: JITTERED.servers,
            workers: JITTERED.workers,
            service_ms: mean_ms(),
            story: self.story(),
        }
    }

    fn chart(&self, width: u32) -> Chart {
        let of = |policy| self.results.iter().filter(move |result| result.point.policy == policy);
        let series = (0..).zip(&self.curves).map(|(look, (policy, curve))| Series {
            label: policy.to_string(),
            look: look_of(look),
            curve: curve.clone(),
            points: of(*policy).map(|result| (result.point.load, result.measured.p99)).collect(),
            ranges: Vec::new(),
        });
        let alternative = "The 99th percentile of the sojourn time before servers with jitter over the load, for each \
                           policy: simulated curves and measured points.";
        let series: Vec<Series> = series.collect();
        chart::load_chart(&series, &format!("= {} ms", mean_ms()), width, alternative.to_owned())
    }

    /// Under [`HEAD`].
    fn cells(&self, result: &PointResult) -> [String; HEAD.len()] {
        let PointResult { point, measured, predicted, .. } = result;
        let gains = self.gains(result);
        let gain = |gain: Option<f64>| gain.map_or_else(String::new, |gain| format!("{gain:.2}"));
        [
            point.policy.to_string(),
            format!("{:.0} %", 100.0 * point.load),
            result.samples(),
            format!("{:.2}", measured.p50),
            format!("{:.2}", measured.p99),
            format!("{:.2}", predicted.p99),
            result.marked_ratio(),
            gain(gains.map(|(measured, _)| measured)),
            gain(gains.map(|(_, predicted)| predicted)),
        ]
    }

    /// The gain of a policy over random placement, measured and predicted; `None` of random
    /// placement itself, and where that was not run at this load.
    fn gains(&self, result: &PointResult) -> Option<(f64, f64)> {
        let random = self.random_at(result.point.load)?;
        (random.point.policy != result.point.policy).then(|| {
            let gain = random.measured.p99 / result.measured.p99;
            (gain, random.predicted.p99 / result.predicted.p99)
        })
    }

    fn random_at(&self, load: f64) -> Option<&PointResult> {
        let is_random = |policy: PolicySpec| policy.model() == QueueModel::Independent;
        let mut here = self.results.iter().filter(|result| result.point.load == load);
        here.find(|result| is_random(result.point.policy))
    }

    fn story(&self) -> Option<Story> {
        let gained = self.results.iter().filter_map(|result| Some((self.gains(result)?, result)));
        let ((gain, predicted), result) =
            gained.max_by(|((one, _), _), ((other, _), _)| one.total_cmp(other))?;
        let random = self.random_at(result.point.load)?;
        Some(Story {
            policy: result.point.policy.to_string(),
            load: format!("{:.0}", 100.0 * result.point.load),
            random_p99: format!("{:.1}", random.measured.p99),
            p99: format!("{:.1}", result.measured.p99),
            gain: format!("{gain:.2}"),
            predicted_gain: format!("{predicted:.2}"),
        })
    }
}

/// The mean service without jitter, ms.
fn mean_ms() -> String {
    format!("{:.0}", JITTERED.service_us / 1e3)
}

const HEAD: [&str; 9] =
    ["policy", "load", "samples", "p50", "p99", "predicted p99", "ratio", "gain", "predicted gain"];

#[cfg(test)]
pub(super) mod tests {
    use super::super::measurement::{Counts, Latencies, Latency, Measurement, Rates};
    use super::super::plan::Point;
    use super::super::predict::Figures;
    use super::*;

    #[test]
    fn the_table_has_gains_over_random_placement() {
        insta::assert_snapshot!(cloning().table());
    }

    #[test]
    fn the_json_has_both_gains() {
        let json = cloning().json();
        assert_eq!((&json["service"], &json["jitter"]), (&json!("exp:10ms"), &json!(0.01)));
        assert_eq!(json["points"][0]["gain"], Value::Null);
        assert_eq!(json["points"][1]["gain"], json!(2.0));
        assert_eq!(json["points"][1]["predicted_gain"], json!(2.5));
        assert_eq!(json["points"][1]["predicted"]["basis"], "simulated");
    }

    #[test]
    fn the_story_is_that_of_the_largest_gain() {
        let story = cloning().story().unwrap();
        assert_eq!((story.policy.as_str(), story.gain.as_str()), ("netclone", "2.00"));
    }

    #[test]
    fn without_random_placement_there_is_no_gain() {
        let mut cloning = cloning();
        cloning.results.remove(0);
        assert!(cloning.story().is_none());
        assert_eq!(cloning.json()["points"][0]["gain"], Value::Null);
    }

    /// Made-up figures of three policies at a load of 0.3.
    pub(in super::super) fn cloning() -> Cloning {
        let made_up = [("random", 6.0, 6.0), ("netclone", 3.0, 2.4), ("auto-clone", 4.0, 4.0)];
        let results = made_up.map(|(policy, measured, predicted)| {
            let figures = |p99: f64| Figures { mean: 1.0, p50: 0.7, p99, p999: 2.0 * p99 };
            let (policy, duration_ns) = (policy.parse().unwrap(), 6_000_000_000);
            let latency = Latency {
                mean: None,
                p50: None,
                p90: None,
                p99: Some(1e4 * measured),
                p999: None,
                max: None,
            };
            PointResult {
                point: Point { pool: &JITTERED, policy, load: 0.3, duration_ns },
                measurement: Measurement {
                    rate_per_s: Rates { offered: 2_368.0, sent: 2_368.0, achieved: 2_368.0 },
                    counts: Counts {
                        sent: 14_000,
                        replied: 14_000,
                        lost: 0,
                        refused: 0,
                        timeout: 0,
                    },
                    latency_us: Latencies { intended: latency, actual: latency },
                    repeats: 0,
                },
                measured: figures(measured),
                predicted: figures(predicted),
            }
        });
        let curve = |p99: f64| vec![(0.1, p99), (0.8, 2.0 * p99)];
        let curves =
            results.iter().map(|result| (result.point.policy, curve(result.predicted.p99)));
        Cloning { curves: curves.collect(), results: results.to_vec() }
    }
}
