//! The result of a measurement: what `--json` writes, what `tailcut compare` reads, and what the
//! pages are drawn from.
//!
//! Times are in microseconds, rates a second. A figure that the samples do not support is absent,
//! never a guess.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Schema of a [`MeasureResult`]; the number changes when a field changes its meaning or goes.
pub(crate) const SCHEMA: &str = "tailcut.measure/2";

/// A measurement, or several at different loads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MeasureResult {
    pub(crate) schema: String,
    /// Everything that repeats the run, with the keys of an experiment file.
    pub(crate) config: Value,
    pub(crate) environment: Environment,
    /// The measurement that the question is answered by: the only one, or of a search the highest
    /// load that met the objective.
    #[serde(flatten)]
    pub(crate) point: Point,
    /// All measurements of a pattern with several loads, in the order they were made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) points: Vec<Point>,
    /// What a search for a load found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) search: Option<SearchResult>,
    /// What `--assert` asked, and whether it holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) assertions: Vec<Assertion>,
    /// What `--samples` wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) samples_file: Option<SamplesFile>,
}

/// Where and how the run was made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Environment {
    pub(crate) version: String,
    pub(crate) command: String,
    /// When the run began, RFC 3339, UTC.
    pub(crate) started: String,
    /// One for each host that loaded.
    pub(crate) hosts: Vec<Host>,
}

/// A host that loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    /// The frequency governor; absent where the host does not say.
    pub(crate) governor: Option<String>,
    /// The interface towards the target, with its driver and speed as far as the host says.
    pub(crate) interface: Option<String>,
}

/// One load, measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) verdict: Verdict,
    pub(crate) rate_per_s: Rates,
    pub(crate) counts: Counts,
    pub(crate) latency_us: Latencies,
    /// Intervals of percentiles of the latency from the intended send, by their names (`p50`,
    /// `p99`): those that the samples support.
    #[serde(default)]
    pub(crate) intervals_us: BTreeMap<String, Interval>,
    pub(crate) histograms: Histograms,
    /// The run over time.
    #[serde(default)]
    pub(crate) series: Vec<Moment>,
    #[serde(default)]
    pub(crate) tests: Tests,
    #[serde(default)]
    pub(crate) timestamps: Timestamps,
    pub(crate) client: Client,
    /// One for each agent.
    #[serde(default)]
    pub(crate) agents: Vec<Agent>,
    /// How long it took, s.
    pub(crate) warmup_s: f64,
    pub(crate) measured_s: f64,
}

/// Whether the figures can be relied on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) trustworthy: bool,
    pub(crate) reasons: Vec<Reason>,
    /// What the run corrected by itself, in order.
    pub(crate) tried: Vec<String>,
}

/// Why they cannot, and what would help.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Reason {
    /// A stable name.
    pub(crate) name: String,
    pub(crate) what: String,
    pub(crate) advice: String,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Rates {
    pub(crate) offered: f64,
    pub(crate) sent: f64,
    pub(crate) achieved: f64,
}

/// What became of the requests. Misses and errors are among the replied.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) replied: u64,
    pub(crate) lost: u64,
    pub(crate) refused: u64,
    pub(crate) timeout: u64,
    pub(crate) misses: u64,
    /// Replies that say that the server did not do what was asked, by kind.
    #[serde(default)]
    pub(crate) errors: BTreeMap<String, u64>,
    /// Connections that ended and were opened again.
    pub(crate) reconnects: u64,
}

/// From the intended and from the actual send.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Latencies {
    pub(crate) intended: Latency,
    pub(crate) actual: Latency,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) mean: Option<f64>,
    pub(crate) p50: Option<f64>,
    pub(crate) p90: Option<f64>,
    pub(crate) p95: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) p999: Option<f64>,
    pub(crate) p9999: Option<f64>,
    pub(crate) max: Option<f64>,
}

/// An interval of a percentile.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Interval {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// How often such an interval contains the truth.
    pub(crate) confidence: f64,
    /// Independent samples that would tell as much.
    pub(crate) effective_samples: f64,
    /// Whether the percentile can be relied on, by the measure of the one that the verdict is on.
    #[serde(default)]
    pub(crate) trustworthy: bool,
}

/// Whole histograms of latencies in ns: HdrHistogram V2, compressed, in base64.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Histograms {
    pub(crate) intended: String,
    pub(crate) actual: String,
}

/// One interval of the series.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Moment {
    /// From the beginning of the measurement to the interval's, s.
    pub(crate) at_s: f64,
    pub(crate) length_s: f64,
    pub(crate) sent: u64,
    pub(crate) replied: u64,
    pub(crate) failed: u64,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) max_us: Option<f64>,
    /// The latencies of this interval alone; what the lines of an HdrHistogram log hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) histograms: Option<Histograms>,
}

/// What the statistical tests found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tests {
    pub(crate) arrivals: Option<ArrivalTest>,
    pub(crate) stationarity: Option<StationarityTest>,
    /// Correlation of a latency with the one `lag` requests later, as pairs of lag and correlation.
    #[serde(default)]
    pub(crate) autocorrelation: Vec<(u32, f64)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ArrivalTest {
    pub(crate) asked: String,
    pub(crate) gaps: usize,
    pub(crate) anderson_darling: f64,
    pub(crate) p_value: f64,
    /// How far the gaps are from those asked for; what the verdict looks at.
    pub(crate) fault: f64,
    /// Quantiles of the gaps, as pairs of asked for and found, in units of the mean gap.
    #[serde(default)]
    pub(crate) quantiles: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct StationarityTest {
    pub(crate) dickey_fuller: Option<f64>,
    pub(crate) dickey_fuller_p_value: Option<f64>,
    /// Share by which the second half differs from the first.
    pub(crate) drift: Option<f64>,
    pub(crate) drift_p_value: Option<f64>,
}

/// Which timestamps there were, side by side.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Timestamps {
    /// The best kind that arrived at the probe: `hardware`, `kernel` or `user`.
    pub(crate) used: String,
    /// The kind that the latencies of the point, its intervals and its verdict are of.
    #[serde(default)]
    pub(crate) answers: String,
    /// Latency from the actual send by each kind, of the requests that several have stamped.
    #[serde(default)]
    pub(crate) latency_us: BTreeMap<String, Latency>,
    /// How many of these each kind has stamped.
    #[serde(default)]
    pub(crate) stamped: BTreeMap<String, u64>,
    /// User space less kernel: what the client itself adds, us.
    pub(crate) bias_us: Option<Latency>,
    /// Transmit stamps asked for, and how many never came or came too late.
    pub(crate) asked: u64,
    pub(crate) missing: u64,
    pub(crate) late: u64,
}

/// What the client did that bears on the result.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Client {
    /// Replies that the application would not have given.
    pub(crate) mismatched: u64,
    /// Times that a limit on what is outstanding held a due request back.
    pub(crate) saturated: u64,
    /// Packets sent again.
    pub(crate) resent: u64,
    /// Times that a thread slept, and may have been woken late.
    pub(crate) sleeps: u64,
    /// Times that the network answered that a datagram cannot be delivered.
    pub(crate) icmp_errors: u64,
    /// Datagrams that the kernel dropped before the client read them.
    pub(crate) kernel_drops: u64,
}

/// One agent's share.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Agent {
    pub(crate) name: String,
    /// `symmetric`, `throughput` or `latency`.
    pub(crate) role: String,
    pub(crate) threads: u32,
    pub(crate) connections: u32,
    pub(crate) sent: u64,
    pub(crate) replied: u64,
    pub(crate) p99_us: Option<f64>,
    /// By how much its start may differ from the others', us; absent for an agent of this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start_uncertainty_us: Option<f64>,
    /// Why it was lost.
    pub(crate) lost: Option<String>,
}

/// What a search found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SearchResult {
    pub(crate) objective: String,
    /// The highest load that met the objective, and the lowest that did not; absent where none did.
    pub(crate) met_per_s: Option<f64>,
    pub(crate) missed_per_s: Option<f64>,
}

/// What `--assert` asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Assertion {
    pub(crate) asked: String,
    pub(crate) found: String,
    pub(crate) holds: bool,
}

/// What `--samples` wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SamplesFile {
    pub(crate) path: String,
    /// Requests in the file.
    pub(crate) written: u64,
    /// Measured requests that are not, because there were too many or the file could not be
    /// written.
    pub(crate) left_out: u64,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::measure::sample;

    #[test]
    fn every_field_is_documented() {
        let docs = include_str!("../../../../docs/measure-result.md");
        assert!(docs.contains(&format!("`{SCHEMA}`")));
        for name in names() {
            assert!(
                docs.contains(&format!("`{name}`")),
                "docs/measure-result.md does not name `{name}`"
            );
        }
    }

    #[test]
    fn the_sample_of_the_tests_has_every_field() {
        // Those that are left out where there is nothing to say; a null would show in the next
        // assertion.
        for name in [
            "points",
            "search",
            "assertions",
            "samples_file",
            "histograms",
            "governor",
            "interface",
        ] {
            assert!(names().contains(name), "{name}");
        }
        let result = serde_json::to_value(sample::full()).unwrap();
        // One agent of each of three loads was not lost, nor one of the answer.
        assert_eq!(nulls(&result), 4, "{result:#}");
    }

    #[test]
    fn a_result_without_what_may_be_absent_is_read() {
        let mut result = serde_json::to_value(sample::single()).unwrap();
        for optional in ["intervals_us", "series", "tests", "timestamps", "agents"] {
            assert!(result.as_object_mut().unwrap().remove(optional).is_some(), "{optional}");
        }
        let read: MeasureResult = serde_json::from_value(result).unwrap();
        assert!(read.point.series.is_empty() && read.points.is_empty() && read.search.is_none());
    }

    /// Of all fields in the sample, but for those of the settings.
    fn names() -> BTreeSet<String> {
        let mut result = serde_json::to_value(sample::full()).unwrap();
        result["config"] = Value::Null;
        let mut names = BTreeSet::new();
        collect(&result, &mut names);
        // Kinds, which the server names.
        names.retain(|name| !name.starts_with("ERR"));
        names
    }

    fn collect(value: &Value, names: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => members.iter().for_each(|(name, member)| {
                names.insert(name.clone());
                collect(member, names);
            }),
            Value::Array(elements) => elements.iter().for_each(|element| collect(element, names)),
            _ => {}
        }
    }

    fn nulls(value: &Value) -> usize {
        match value {
            Value::Null => 1,
            Value::Object(members) => members.values().map(nulls).sum(),
            Value::Array(elements) => elements.iter().map(nulls).sum(),
            _ => 0,
        }
    }
}
