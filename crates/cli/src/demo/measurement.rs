//! One point measured: servers, a router and a load as processes of this binary, and what the load
//! says in the end.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::plan::{Point, Pool, WARMUP_NS};
use super::predict::Figures;
use super::process::Process;

/// Result of `tailcut measure`, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct Measurement {
    pub(super) rate_per_s: Rates,
    pub(super) counts: Counts,
    pub(super) latency_us: Latencies,
    /// Number of repetitions after starved runs.
    #[serde(default)]
    pub(super) repeats: u32,
}

/// Requests a second.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct Rates {
    pub(super) offered: f64,
    pub(super) sent: f64,
    pub(super) achieved: f64,
}

/// Counts of the requests by outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Counts {
    pub(super) sent: u64,
    /// Each is a sample.
    pub(super) replied: u64,
    pub(super) lost: u64,
    pub(super) refused: u64,
    pub(super) timeout: u64,
}

/// Microseconds, from the time at which a request should have left, and from when it did.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct Latencies {
    pub(super) intended: Latency,
    pub(super) actual: Latency,
}

/// Microseconds; a percentile is there only where the samples support it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct Latency {
    pub(super) mean: Option<f64>,
    pub(super) p50: Option<f64>,
    pub(super) p90: Option<f64>,
    pub(super) p99: Option<f64>,
    pub(super) p999: Option<f64>,
    pub(super) max: Option<f64>,
}

impl Measurement {
    /// Reads the JSON of `tailcut measure`.
    ///
    /// # Errors
    ///
    /// Another schema, and too few samples for a p99.9: a point without one has no place in the
    /// picture.
    pub(super) fn parse(json: &str) -> Result<Self> {
        let document: Document =
            serde_json::from_str(json).context("tailcut measure wrote no result")?;
        if document.schema != SCHEMA {
            bail!("tailcut measure wrote {}, which is not {SCHEMA}", document.schema);
        }
        let measurement = document.measurement;
        let replied = measurement.counts.replied;
        measurement.figures(1.0).with_context(|| {
            format!("{replied} replies are too few for a p99.9; raise --duration")
        })?;
        Ok(measurement)
    }

    /// Latency that users see, in units of `service_us`; `None` without all percentiles.
    pub(super) fn figures(&self, service_us: f64) -> Option<Figures> {
        let Latency { mean, p50, p99, p999, .. } = self.latency_us.intended;
        let services = |us: Option<f64>| us.map(|us| us / service_us);
        Some(Figures {
            mean: services(mean)?,
            p50: services(p50)?,
            p99: services(p99)?,
            p999: services(p999)?,
        })
    }

    /// Delay of the load, by how far the p99 from the intended and from the actual send part.
    /// Nothing that a policy does makes a load late, for it waits for no reply: the machine does,
    /// and then it has made the latency too.
    pub(super) fn lateness_us(&self) -> f64 {
        let Latencies { intended, actual } = self.latency_us;
        intended.p99.zip(actual.p99).map_or(0.0, |(intended, actual)| intended - actual)
    }

    /// True if the load left so late that the point says nothing about queues.
    pub(super) fn is_starved(&self) -> bool {
        self.lateness_us() > LATE_US_MAX
    }

    /// Requests that got no reply.
    pub(super) fn failed(&self) -> u64 {
        let Counts { lost, refused, timeout, .. } = self.counts;
        lost + refused + timeout
    }
}

/// Measures a point; every process is gone when it returns.
pub(super) fn measure(point: &Point, seed: u64, stop: &AtomicBool) -> Result<Measurement> {
    let mut servers = Process::start(&serve_words(point.pool))?;
    let servers_at =
        (0..point.pool.servers).map(|_| servers.next_address(stop)).collect::<Result<Vec<_>>>()?;
    let mut router = Process::start(&route_words(point, &servers_at))?;
    let router_at = router.next_address(stop)?;
    let load = Process::start(&measure_words(point, seed, &router_at))?;
    let output = load.output(stop, Duration::from_nanos(point.loaded_ns()) + DRAIN_PATIENCE)?;
    Measurement::parse(&output)
}

fn serve_words(pool: &Pool) -> Vec<String> {
    let Pool { servers, workers, service, jitter, .. } = pool;
    let emulated = if *jitter > 0.0 {
        format!(":{service} --workers {workers} --jitter {jitter}")
    } else {
        String::new()
    };
    words(&format!(
        "serve --listen {ANY_PORT} --ports {servers} --app synthetic{emulated} --spin-ns {SPIN_NS}"
    ))
}

fn route_words(point: &Point, servers: &[String]) -> Vec<String> {
    let servers: String = servers.iter().map(|address| format!(" --server {address}")).collect();
    words(&format!(
        "route --listen {ANY_PORT} --policy {} --spin-ns {SPIN_NS} --probe-interval {PROBE_INTERVAL} \
         --silent-after {SILENT_AFTER}{servers}",
        point.policy
    ))
}

fn measure_words(point: &Point, seed: u64, target: &str) -> Vec<String> {
    let (rate, duration_ns) = (point.rate_per_s().round(), point.duration_ns);
    let Pool { service, jitter, .. } = point.pool;
    let idempotent = if *jitter > 0.0 { " --idempotent" } else { "" };
    words(&format!(
        "measure --target {target} --app synthetic:{service} --rate {rate} --duration {duration_ns}ns \
         --warmup {WARMUP_NS}ns --timeout {TIMEOUT} --seed {seed} --spin-ns {SPIN_NS} --json -{idempotent}"
    ))
}

/// The words of a command line, none of which holds a space.
fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[derive(Debug, Deserialize)]
struct Document {
    schema: String,
    #[serde(flatten)]
    measurement: Measurement,
}

const SCHEMA: &str = "tailcut.measure/2";
/// Over 60 points on two virtual cores it was 25 to 140 us where nothing interfered, and 520 us and
/// more where a pause of the machine had made the p99; between them the two kinds mix.
const LATE_US_MAX: f64 = 200.0;
/// On this machine alone.
const ANY_PORT: &str = "127.0.0.1:0";
/// The three share a core.
const SPIN_NS: &str = "0";
/// The servers do not fail, but a busy machine may keep them from answering for a while.
const SILENT_AFTER: &str = "2s";
const PROBE_INTERVAL: &str = "100ms";
/// One in a hundred thousand services of 10 ms with jitter takes more than a second.
const TIMEOUT: &str = "5s";
/// A load waits for its last replies no longer than that.
const DRAIN_PATIENCE: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::super::plan::{JITTERED, PLAIN};
    use super::*;

    #[test]
    fn a_recorded_result_is_read() {
        let measurement = Measurement::parse(RECORDED).unwrap();
        assert_eq!(measurement.counts.replied, 44_781);
        assert_eq!(measurement.failed(), 3);
        let Figures { p50, p99, .. } = measurement.figures(1_000.0).unwrap();
        assert_eq!((p50, p99), (2.622, 16.67));
    }

    #[test]
    fn a_load_that_left_late_was_starved() {
        assert!(!Measurement::parse(RECORDED).unwrap().is_starved());
        let late = RECORDED.replace("\"p99\": 16670.0", "\"p99\": 16810.0");
        assert!(Measurement::parse(&late).unwrap().is_starved());
    }

    #[test]
    fn another_schema_is_refused() {
        let error = Measurement::parse(&RECORDED.replace("measure/2", "measure/3")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "tailcut measure wrote tailcut.measure/3, which is not tailcut.measure/2"
        );
    }

    #[test]
    fn a_tail_without_samples_is_refused() {
        let error = Measurement::parse(&RECORDED.replace("\"p999\": 32110.0", "\"p999\": null"))
            .unwrap_err();
        assert_eq!(error.to_string(), "44781 replies are too few for a p99.9; raise --duration");
    }

    #[test]
    fn output_that_is_no_result_is_refused() {
        assert_eq!(
            Measurement::parse("").unwrap_err().to_string(),
            "tailcut measure wrote no result"
        );
    }

    #[test]
    fn a_point_is_run_as_its_commands_say() {
        let (policy, duration_ns) = ("jbsq:2".parse().unwrap(), 5_600_000_000);
        let point = Point { pool: &PLAIN, policy, load: 0.7, duration_ns };
        let expected = "serve --listen 127.0.0.1:0 --ports 8 --app synthetic --spin-ns 0";
        assert_eq!(serve_words(&PLAIN).join(" "), expected);
        let servers = ["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()];
        let expected = "route --listen 127.0.0.1:0 --policy jbsq:2 --spin-ns 0 --probe-interval 100ms --silent-after 2s \
                        --server 127.0.0.1:1 --server 127.0.0.1:2";
        assert_eq!(route_words(&point, &servers).join(" "), expected);
        let expected = "measure --target 127.0.0.1:9 --app synthetic:exp:1ms --rate 5600 --duration 5600000000ns \
                        --warmup 700000000ns --timeout 5s --seed 7 --spin-ns 0 --json -";
        assert_eq!(measure_words(&point, 7, "127.0.0.1:9").join(" "), expected);
    }

    #[test]
    fn servers_with_jitter_draw_their_services_and_requests_may_run_twice() {
        let (policy, duration_ns) = ("netclone".parse().unwrap(), 8_000_000_000);
        let point = Point { pool: &JITTERED, policy, load: 0.57, duration_ns };
        let expected = "serve --listen 127.0.0.1:0 --ports 6 --app synthetic:exp:10ms --workers 15 --jitter 0.01 \
                        --spin-ns 0";
        assert_eq!(serve_words(&JITTERED).join(" "), expected);
        let expected = "measure --target 127.0.0.1:9 --app synthetic:exp:10ms --rate 4500 --duration 8000000000ns \
                        --warmup 700000000ns --timeout 5s --seed 7 --spin-ns 0 --json - --idempotent";
        assert_eq!(measure_words(&point, 7, "127.0.0.1:9").join(" "), expected);
    }

    const RECORDED: &str = r#"{
      "schema": "tailcut.measure/2",
      "config": { "seed": 1 },
      "rate_per_s": { "offered": 5598.0, "sent": 5598.0, "achieved": 5597.1 },
      "counts": { "sent": 44784, "replied": 44781, "lost": 1, "refused": 0, "timeout": 2 },
      "latency_us": {
        "intended": { "mean": 3700.0, "p50": 2622.0, "p90": 8120.0, "p99": 16670.0, "p999": 32110.0, "max": 36610.0 },
        "actual": { "mean": 3690.0, "p50": 2615.0, "p90": 8110.0, "p99": 16600.0, "p999": 32100.0, "max": 36600.0 }
      },
      "warnings": []
    }"#;
}
