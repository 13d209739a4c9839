//! Results for tests, in which every field has a value, and names that a page must escape.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde_json::json;

use super::hdr;
use super::packet_drops::DropCounts;
use super::percentile::PERCENTILES;
use super::result::{
    Agent, ArrivalTest, Assertion, Client, Counts, Cpu, Environment, Histograms, Host, Interval,
    Latencies, Latency, MeasureResult, Moment, Point, Rates, Reason, SCHEMA, SamplesFile,
    SearchResult, StationarityTest, Tests, Timestamps, Verdict,
};

/// A trustworthy measurement at one load: 100,000 latencies of 20 us and an exponential of 15 us.
pub(crate) fn single() -> MeasureResult {
    MeasureResult {
        schema: SCHEMA.to_owned(),
        config: json!({ "target": "127.0.0.1:8000", "app": "echo:64", "transport": "r2p2", "rate_per_s": 50_000.0, "seed": 1 }),
        environment: environment(),
        point: point(50_000.0, 15_000.0),
        points: Vec::new(),
        search: None,
        assertions: Vec::new(),
        samples_file: None,
    }
}

/// A search over three loads that is not trustworthy, with every field there.
pub(crate) fn full() -> MeasureResult {
    let mut points =
        vec![point(20_000.0, 8_000.0), point(50_000.0, 15_000.0), point(80_000.0, 60_000.0)];
    let what = "0.4 % of the requests <got> no reply".to_owned();
    let advice = "lower --rate, or look at the server's \"queue\"".to_owned();
    points[2].verdict = Verdict {
        trustworthy: false,
        in_short: "the figures cannot be relied on: too many <got> no reply.".to_owned(),
        reasons: vec![Reason { name: "losses".to_owned(), what, advice }],
        tried: vec!["warm-up 1 s, then 2 s".to_owned(), "100 k samples, then 200 k".to_owned()],
    };
    let config = json!({ "target": "<b>host</b>:8000", "app": "echo:64", "transport": "udp", "find": "p99<100us", "seed": 1 });
    let search = SearchResult {
        objective: "p99<100us".to_owned(),
        met_per_s: Some(50_000.0),
        missed_per_s: Some(80_000.0),
        not_judged_per_s: Some(120_000.0),
    };
    let asked = "p99<200us".to_owned();
    let samples_file = SamplesFile {
        path: "<samples>.csv".to_owned(),
        written: 10_000_000,
        left_out: 7,
        failed: None,
    };
    MeasureResult {
        config,
        point: points[2].clone(),
        points,
        search: Some(search),
        assertions: vec![Assertion { asked, found: "p99 is 296.3 us".to_owned(), holds: false }],
        samples_file: Some(samples_file),
        ..single()
    }
}

/// 100,000 latencies: a constant and an exponential with a mean, ns.
pub(crate) fn histogram(constant_ns: f64, mean_ns: f64) -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, 100_000_000_000, 3).unwrap();
    for index in 0..SAMPLES {
        let share = (index as f64 + 0.5) / SAMPLES as f64;
        histogram.record((constant_ns - mean_ns * (1.0 - share).ln()) as u64).unwrap();
    }
    histogram
}

fn point(rate: f64, mean_ns: f64) -> Point {
    let (intended, actual) = (histogram(20_000.0, mean_ns), histogram(19_000.0, mean_ns));
    let histograms = Histograms { intended: hdr::encode(&intended), actual: hdr::encode(&actual) };
    let latency_us =
        Latencies { intended: latency(20.0, mean_ns / 1e3), actual: latency(19.0, mean_ns / 1e3) };
    Point {
        verdict: Verdict {
            trustworthy: true,
            in_short: "p99 is 89.1 us (87.1 us to 92.1 us) at 49796 replies/s.".to_owned(),
            reasons: vec![],
            tried: vec![],
        },
        rate_per_s: Rates { offered: rate, sent: rate - 3.5, achieved: rate - 204.25 },
        counts: Counts {
            sent: SAMPLES + 414,
            replied: SAMPLES,
            lost: 401,
            refused: 10,
            timeout: 3,
            misses: 7,
            errors: BTreeMap::from([("ERR <unknown>\u{1b}[31m command".to_owned(), 2)]),
            error_codes: BTreeMap::from([("ERR <unknown>\u{1b}[31m command".to_owned(), 2)]),
            reconnects: 1,
        },
        intervals_us: intervals(&latency_us.intended, mean_ns / 15_000.0),
        series: (0..10u32).map(|second| moment(second, rate, &histograms)).collect(),
        latency_us,
        histograms,
        tests: tests(),
        timestamps: timestamps(mean_ns / 1e3),
        client: Client {
            mismatched: 1,
            saturated: 2,
            resent: 3,
            sleeps: 4,
            icmp_errors: 5,
            kernel_drops: 6,
            cpu: Some(Cpu { waited_share: 0.07, stolen_share: 0.01, pressed_share: Some(0.2) }),
            host_drops: Some(DropCounts { interfaces: 7, backlog: 8, sockets: 9 }),
            clones: None,
        },
        agents: vec![agent("load-1", None), agent("<load-2>", Some("no word for 3 s"))],
        warmup_s: 2.0,
        measured_s: 10.0,
    }
}

fn environment() -> Environment {
    let host = |name: &str, cpu: &str| Host {
        name: name.to_owned(),
        cpu: cpu.to_owned(),
        cores: 8,
        kernel: "6.18.1".to_owned(),
        governor: Some("performance".to_owned()),
        interface: Some("eth0: mlx5_core, 100 Gbit/s".to_owned()),
    };
    Environment {
        version: "0.1.0".to_owned(),
        command: "tailcut measure --target '<b>host</b>:8000' --app echo:64".to_owned(),
        started: "2026-11-22T04:34:56Z".to_owned(),
        hosts: vec![host("load-1", "An \"EPYC\" CPU"), host("<load-2>", "Another")],
    }
}

fn latency(constant_us: f64, mean_us: f64) -> Latency {
    let quantile = |share: f64| Some(constant_us - mean_us * (1.0 - share).ln());
    Latency {
        mean: Some(constant_us + mean_us),
        p50: quantile(0.5),
        p90: quantile(0.9),
        p95: quantile(0.95),
        p99: quantile(0.99),
        p999: quantile(0.999),
        p9999: quantile(0.9999),
        max: quantile(1.0 - 0.5 / SAMPLES as f64),
    }
}

/// A few percent wide, and wider above.
fn intervals(latency: &Latency, scale: f64) -> BTreeMap<String, Interval> {
    let supported = PERCENTILES.iter().filter(|percentile| percentile.share < 0.9995);
    let spread = |share: f64| 0.2 * scale / (1.0 - share).sqrt();
    let named = supported.filter_map(|percentile| {
        let value = percentile.of(latency)?;
        let (low, high) =
            (value - spread(percentile.share), value + 1.5 * spread(percentile.share));
        let effective_samples = 60_000.0 * (1.0 - percentile.share).powf(0.25);
        let trustworthy = percentile.share < 0.98;
        Some((
            percentile.name.to_owned(),
            Interval { value, low, high, confidence: 0.95, effective_samples, trustworthy },
        ))
    });
    named.collect()
}

fn moment(second: u32, rate: f64, histograms: &Histograms) -> Moment {
    let wave = 1.0 + 0.05 * f64::from(second % 4);
    Moment {
        at_s: f64::from(second),
        length_s: 1.0,
        sent: rate as u64,
        replied: (rate * 0.996) as u64,
        failed: u64::from(second),
        p50_us: Some(30.4 * wave),
        p99_us: Some(89.1 * wave * wave),
        max_us: Some(190.0 * wave * wave * wave),
        histograms: Some(histograms.clone()),
    }
}

fn tests() -> Tests {
    let gap = |share: f64| -(1.0 - share).ln();
    let shares = (0..100u32).map(|step| (f64::from(step) + 0.5) / 100.0);
    let lags = [1u32, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000];
    Tests {
        arrivals: Some(ArrivalTest {
            asked: "poisson".to_owned(),
            gaps: 20_000,
            anderson_darling: 0.84,
            p_value: 0.45,
            fault: 0.003,
            quantiles: shares
                .map(|share| (gap(share), gap(share) * (1.0 + 0.04 * share)))
                .collect(),
        }),
        stationarity: Some(StationarityTest {
            dickey_fuller: Some(-12.3),
            dickey_fuller_p_value: Some(0.000_01),
            drift: Some(0.004),
            drift_p_value: Some(0.61),
        }),
        autocorrelation: lags
            .map(|lag| (lag, 0.8 * (-f64::from(lag) / 40.0).exp() - 0.005))
            .to_vec(),
    }
}

fn timestamps(mean_us: f64) -> Timestamps {
    let kinds = [("user", 19.0), ("kernel", 17.0)]
        .map(|(kind, constant)| (kind.to_owned(), latency(constant, mean_us)));
    Timestamps {
        used: "kernel".to_owned(),
        answers: "user".to_owned(),
        stamped: BTreeMap::from([("user".to_owned(), 99_880), ("kernel".to_owned(), 99_880)]),
        latency_us: BTreeMap::from(kinds),
        bias_us: Some(latency(2.0, 0.3)),
        asked: SAMPLES,
        missing: 120,
        late: 7,
    }
}

fn agent(name: &str, lost: Option<&str>) -> Agent {
    Agent {
        name: name.to_owned(),
        role: "symmetric".to_owned(),
        threads: 4,
        connections: 64,
        sent: SAMPLES / 2,
        replied: SAMPLES / 2,
        p99_us: Some(88.75),
        start_uncertainty_us: Some(35.0),
        lost: lost.map(str::to_owned),
    }
}

const SAMPLES: u64 = 100_000;
