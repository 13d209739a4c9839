//! The result of a measurement: what `--json` writes, what `tailcut compare` reads, and what the
//! pages are drawn from.
//!
//! Times are in microseconds, rates a second. A figure that the samples do not support is absent,
//! never a guess.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::clones::CloneCounts;
use super::packet_drops::DropCounts;

/// Schema of a [`MeasureResult`]; the number changes when a field changes its meaning or goes.
pub const SCHEMA: &str = "tailcut.measure/2";

/// A measurement, or several at different loads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasureResult {
    /// [`SCHEMA`].
    pub schema: String,
    /// Everything that repeats the run, with the keys of an experiment file.
    pub config: Value,
    /// Environment of the run.
    pub environment: Environment,
    /// The measurement that the question is answered by: the only one, or of a search the highest
    /// load that met the objective.
    #[serde(flatten)]
    pub point: Point,
    /// All measurements of a pattern with several loads, in the order they were made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<Point>,
    /// Result of a search for a load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchResult>,
    /// Objectives that `--assert` asked for, and whether they hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assertions: Vec<Assertion>,
    /// File that `--samples` wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_file: Option<SamplesFile>,
}

/// Environment in which the run was made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Environment {
    /// Tailcut's.
    pub version: String,
    /// The command line, as a shell takes it.
    pub command: String,
    /// Time at which the run began, RFC 3339, UTC.
    pub started: String,
    /// One for each host that loaded.
    pub hosts: Vec<Host>,
}

/// A host that loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Model of its CPU.
    pub cpu: String,
    /// CPUs that it has.
    pub cores: usize,
    /// Release of its kernel.
    pub kernel: String,
    /// The frequency governor; absent where the host does not say.
    pub governor: Option<String>,
    /// The interface towards the target, with its driver and speed as far as the host says.
    pub interface: Option<String>,
}

/// One load, measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Point {
    /// Verdict on whether the figures can be relied on.
    pub verdict: Verdict,
    /// Rates that were asked for and that were reached.
    pub rate_per_s: Rates,
    /// Counts of the requests by outcome.
    pub counts: Counts,
    /// Latencies of all measured requests.
    pub latency_us: Latencies,
    /// Intervals of percentiles of the latency from the intended send, by their names (`p50`,
    /// `p99`): those that the samples support.
    #[serde(default)]
    pub intervals_us: BTreeMap<String, Interval>,
    /// All latencies.
    pub histograms: Histograms,
    /// The run over time.
    #[serde(default)]
    pub series: Vec<Moment>,
    /// Statistical tests.
    #[serde(default)]
    pub tests: Tests,
    /// Timestamps by several clocks.
    #[serde(default)]
    pub timestamps: Timestamps,
    /// Counters of the client.
    pub client: Client,
    /// One for each agent.
    #[serde(default)]
    pub agents: Vec<Agent>,
    /// Duration of what came before the measurement, s.
    pub warmup_s: f64,
    /// Duration of the measurement, s.
    pub measured_s: f64,
}

/// Verdict on whether the figures can be relied on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// True if there is no reason against the figures.
    pub trustworthy: bool,
    /// Summary of the finding, in a sentence for people.
    #[serde(default)]
    pub in_short: String,
    /// Reasons against it, the gravest first.
    pub reasons: Vec<Reason>,
    /// Corrections that the run made by itself, in order.
    pub tried: Vec<String>,
}

/// Reason why the figures cannot be relied on, and what would help.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reason {
    /// A stable name.
    pub name: String,
    /// Fault, in a sentence.
    pub what: String,
    /// Advice on what would help.
    pub advice: String,
}

/// Requests a second.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Rates {
    /// Requests that should have left.
    pub offered: f64,
    /// Requests that left.
    pub sent: f64,
    /// Replies that came.
    pub achieved: f64,
}

/// Counts of the requests by outcome. Misses and errors are among the replied.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Requests that left, or should have.
    pub sent: u64,
    /// Requests with a reply.
    pub replied: u64,
    /// Requests whose connection or call ended without a reply.
    pub lost: u64,
    /// Requests that the server, or its host, refused.
    pub refused: u64,
    /// Requests that were given up.
    pub timeout: u64,
    /// Replies that the server has not what was asked for.
    pub misses: u64,
    /// Replies that say that the server did not do what was asked, by kind.
    #[serde(default)]
    pub errors: BTreeMap<String, u64>,
    /// Error replies by what they say: a status of HTTP, the first word of an error of Redis.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub error_codes: BTreeMap<String, u64>,
    /// Connections that ended and were opened again.
    pub reconnects: u64,
}

/// From the intended and from the actual send.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Latencies {
    /// From when a request should have left.
    pub intended: Latency,
    /// From when it left.
    pub actual: Latency,
}

/// Percentiles of a latency; `None` where too few samples lie beyond one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The mean.
    pub mean: Option<f64>,
    /// The median.
    pub p50: Option<f64>,
    /// The 90th percentile.
    pub p90: Option<f64>,
    /// The 95th.
    pub p95: Option<f64>,
    /// The 99th.
    pub p99: Option<f64>,
    /// The 99.9th.
    pub p999: Option<f64>,
    /// The 99.99th.
    pub p9999: Option<f64>,
    /// The highest.
    pub max: Option<f64>,
}

/// An interval of a percentile.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Interval {
    /// The percentile, us.
    pub value: f64,
    /// The interval's lower end, us.
    pub low: f64,
    /// The interval's upper end, us.
    pub high: f64,
    /// Probability with which such an interval contains the truth.
    pub confidence: f64,
    /// Independent samples that would tell as much.
    pub effective_samples: f64,
    /// True if the percentile can be relied on, by the measure of the one that the verdict is on.
    #[serde(default)]
    pub trustworthy: bool,
}

/// Whole histograms of latencies in ns: HdrHistogram V2, compressed, in base64.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histograms {
    /// From the intended send.
    pub intended: String,
    /// From the actual send.
    pub actual: String,
}

/// One interval of the series.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Moment {
    /// From the beginning of the measurement to the interval's, s.
    pub at_s: f64,
    /// Length of the interval, s.
    pub length_s: f64,
    /// Requests that should have left in it.
    pub sent: u64,
    /// Those of them with a reply.
    pub replied: u64,
    /// Those without one.
    pub failed: u64,
    /// Their median latency from the intended send, us.
    pub p50_us: Option<f64>,
    /// The 99th percentile, us.
    pub p99_us: Option<f64>,
    /// The highest, us.
    pub max_us: Option<f64>,
    /// The latencies of this interval alone; what the lines of an HdrHistogram log hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histograms: Option<Histograms>,
}

/// Results of the statistical tests.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tests {
    /// Test of whether requests left as they should have; of open loops.
    pub arrivals: Option<ArrivalTest>,
    /// Test of whether the latency stayed what it was.
    pub stationarity: Option<StationarityTest>,
    /// Correlation of a latency with the one `lag` requests later, as pairs of lag and correlation.
    #[serde(default)]
    pub autocorrelation: Vec<(u32, f64)>,
}

/// Test of whether requests left as they should have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ArrivalTest {
    /// The gaps that were asked for, in the text form.
    pub asked: String,
    /// Gaps that were tested.
    pub gaps: usize,
    /// Anderson and Darling's statistic.
    pub anderson_darling: f64,
    /// Probability of such a statistic if gaps were as asked for.
    pub p_value: f64,
    /// Distance of the gaps from those asked for; what the verdict looks at.
    pub fault: f64,
    /// Quantiles of the gaps, as pairs of asked for and found, in units of the mean gap.
    #[serde(default)]
    pub quantiles: Vec<(f64, f64)>,
}

/// Test of whether the latency stayed what it was.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct StationarityTest {
    /// Dickey and Fuller's statistic.
    pub dickey_fuller: Option<f64>,
    /// Its probability if the latency wandered.
    pub dickey_fuller_p_value: Option<f64>,
    /// Share by which the second half differs from the first.
    pub drift: Option<f64>,
    /// Probability of such a difference without drift.
    pub drift_p_value: Option<f64>,
}

/// Timestamps by kind, side by side.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Timestamps {
    /// The best kind that arrived at the probe: `hardware`, `kernel` or `user`.
    pub used: String,
    /// The kind that the latencies of the point, its intervals and its verdict are of.
    #[serde(default)]
    pub answers: String,
    /// Latency from the actual send by each kind, of the requests that several have stamped.
    #[serde(default)]
    pub latency_us: BTreeMap<String, Latency>,
    /// Number of these that each kind has stamped.
    #[serde(default)]
    pub stamped: BTreeMap<String, u64>,
    /// User space less kernel: what the client itself adds, us.
    pub bias_us: Option<Latency>,
    /// Transmit stamps asked for.
    pub asked: u64,
    /// Stamps that never came.
    pub missing: u64,
    /// Stamps that came too late.
    pub late: u64,
}

/// Counters of the client that bear on the result.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Client {
    /// Replies that the application would not have given.
    pub mismatched: u64,
    /// Times that a limit on what is outstanding held a due request back.
    pub saturated: u64,
    /// Packets sent again.
    pub resent: u64,
    /// Times that a thread slept, and may have been woken late.
    pub sleeps: u64,
    /// Times that the network answered that a datagram cannot be delivered.
    pub icmp_errors: u64,
    /// Datagrams that the kernel dropped before the client read them.
    pub kernel_drops: u64,
    /// CPU contention on the hosts that loaded, as far as their kernels report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Packets that the hosts dropped that loaded, whosever they were; absent where there were
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_drops: Option<DropCounts>,
    /// Counts of requests with two copies, where there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clones: Option<CloneCounts>,
}

/// CPU contention on the hosts while measuring; shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Share of the time that load threads wanted to run in which they waited for a CPU.
    pub waited_share: f64,
    /// Share of the CPUs' time that the hypervisor gave to others.
    pub stolen_share: f64,
    /// Share of the time in which anything on the hosts waited for a CPU; absent where the kernel
    /// does not say.
    pub pressed_share: Option<f64>,
}

/// One agent's share.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Agent {
    /// Its name, as it was given.
    pub name: String,
    /// `symmetric`, `throughput` or `latency`.
    pub role: String,
    /// Its load threads.
    pub threads: u32,
    /// Its connections.
    pub connections: u32,
    /// Requests that it sent.
    pub sent: u64,
    /// Those with a reply.
    pub replied: u64,
    /// The p99 of its own requests, us.
    pub p99_us: Option<f64>,
    /// By how much its start may differ from the others', us; absent for an agent of this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_uncertainty_us: Option<f64>,
    /// Reason why the agent was lost.
    pub lost: Option<String>,
}

/// Result of a search.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SearchResult {
    /// Objective to be met.
    pub objective: String,
    /// The highest load that met the objective; absent where none did, as the next.
    pub met_per_s: Option<f64>,
    /// The lowest load that missed it.
    pub missed_per_s: Option<f64>,
    /// The lowest load that was not met and of which nobody knows whether it missed: this host was
    /// at its end, or the figure too near the limit.
    #[serde(default)]
    pub not_judged_per_s: Option<f64>,
}

/// Objective that `--assert` asked for, and whether it holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Assertion {
    /// The objective.
    pub asked: String,
    /// Measured percentile and its interval as text, or why there is none.
    pub found: String,
    /// True if the whole interval meets the objective.
    pub holds: bool,
}

/// File that `--samples` wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplesFile {
    /// The file.
    pub path: String,
    /// Requests in the file.
    pub written: u64,
    /// Measured requests that are not, because there were too many or the file could not be
    /// written.
    pub left_out: u64,
    /// Reason why the file could not be written to its end.
    #[serde(skip)]
    pub failed: Option<String>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::sample;

    #[test]
    fn every_field_is_documented() {
        let docs = include_str!("../../../docs/measure-result.md");
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

    /// Names of all fields in the sample, but for those of the settings.
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
