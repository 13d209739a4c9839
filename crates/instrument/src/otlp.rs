//! A result as OpenTelemetry's metrics: the request that an OTLP/HTTP endpoint takes at
//! `/v1/metrics`, in the JSON encoding of the protocol (opentelemetry-proto,
//! `metrics/v1/metrics.proto`): names in lower camel case, 64-bit integers as decimal text,
//! enumerations as numbers.
//!
//! | metric | as |
//! |---|---|
//! | `tailcut.measure.trustworthy` | gauge: 1 or 0 |
//! | `tailcut.measure.rate` | gauge by `rate`: offered, sent, achieved |
//! | `tailcut.measure.requests` | sum by `outcome`, of the measurement alone |
//! | `tailcut.measure.errors` | sum by `error` |
//! | `tailcut.measure.latency` | histogram by `from`: intended, actual |
//! | `tailcut.measure.latency.quantile` | gauge by `from` and `quantile`, of which an interval has `bound`: low, high |
//!
//! Invariant: a figure that the samples do not support is absent, as in the result.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::Value;

use super::hdr;
use super::percentile::PERCENTILES;
use super::result::{Latency, MeasureResult, Point};

/// Message that is sent to an endpoint, or written to a file.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportMetricsServiceRequest {
    resource_metrics: [ResourceMetrics; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceMetrics {
    resource: Resource,
    scope_metrics: [ScopeMetrics; 1],
}

#[derive(Debug, Serialize)]
struct Resource {
    attributes: Vec<KeyValue>,
}

#[derive(Debug, Serialize)]
struct ScopeMetrics {
    scope: Scope,
    metrics: Vec<Metric>,
}

#[derive(Debug, Serialize)]
struct Scope {
    name: &'static str,
    version: String,
}

#[derive(Clone, Debug, Serialize)]
struct KeyValue {
    key: &'static str,
    value: AnyValue,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum AnyValue {
    StringValue(String),
}

#[derive(Debug, Serialize)]
struct Metric {
    name: &'static str,
    description: &'static str,
    unit: &'static str,
    #[serde(flatten)]
    data: Data,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum Data {
    #[serde(rename_all = "camelCase")]
    Gauge { data_points: Vec<NumberDataPoint> },
    #[serde(rename_all = "camelCase")]
    Sum { data_points: Vec<NumberDataPoint>, aggregation_temporality: u8, is_monotonic: bool },
    #[serde(rename_all = "camelCase")]
    Histogram { data_points: Vec<HistogramDataPoint>, aggregation_temporality: u8 },
}

/// Time of a measurement, and what tells its points apart.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Span {
    start_time_unix_nano: String,
    time_unix_nano: String,
    attributes: Vec<KeyValue>,
}

#[derive(Debug, Serialize)]
struct NumberDataPoint {
    #[serde(flatten)]
    span: Span,
    #[serde(flatten)]
    value: Number,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum Number {
    AsDouble(f64),
    AsInt(String),
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct HistogramDataPoint {
    #[serde(flatten)]
    span: Span,
    count: String,
    sum: f64,
    bucket_counts: Vec<String>,
    explicit_bounds: Vec<f64>,
    min: f64,
    max: f64,
}

impl Span {
    fn of(result: &MeasureResult, point: &Point) -> Self {
        let start = humantime::parse_rfc3339(&result.environment.started).unwrap_or(UNIX_EPOCH);
        let took = Duration::try_from_secs_f64(point.warmup_s + point.measured_s);
        let nanos = |after: Duration| {
            let since = start.duration_since(UNIX_EPOCH).unwrap_or_default();
            since.saturating_add(after).as_nanos().to_string()
        };
        let offered = point.rate_per_s.offered.to_string();
        Self {
            start_time_unix_nano: nanos(Duration::ZERO),
            time_unix_nano: nanos(took.unwrap_or_default()),
            attributes: vec![pair("offered_per_s", &offered)],
        }
    }

    fn with(&self, more: &[(&'static str, &str)]) -> Self {
        let mut span = self.clone();
        span.attributes.extend(more.iter().map(|(key, value)| pair(key, value)));
        span
    }

    fn number(&self, more: &[(&'static str, &str)], value: f64) -> NumberDataPoint {
        NumberDataPoint { span: self.with(more), value: Number::AsDouble(value) }
    }

    fn count(&self, more: &[(&'static str, &str)], value: u64) -> NumberDataPoint {
        NumberDataPoint { span: self.with(more), value: Number::AsInt(value.to_string()) }
    }

    fn histogram(&self, from: &str, histogram: &Histogram<u64>) -> HistogramDataPoint {
        let mut counts = vec![0u64; BOUNDS_S.len() + 1];
        let mut sum = 0.0;
        for step in histogram.iter_recorded() {
            let (value_s, count) = (step.value_iterated_to() as f64 / 1e9, step.count_at_value());
            counts[BOUNDS_S.partition_point(|&bound| bound < value_s)] += count;
            sum += value_s * count as f64;
        }
        HistogramDataPoint {
            span: self.with(&[("from", from)]),
            count: histogram.len().to_string(),
            sum,
            bucket_counts: counts.iter().map(u64::to_string).collect(),
            explicit_bounds: BOUNDS_S.to_vec(),
            min: histogram.min() as f64 / 1e9,
            max: histogram.max() as f64 / 1e9,
        }
    }
}

/// A result as a request to an endpoint of OTLP.
///
/// # Errors
///
/// That a histogram of the result cannot be read.
pub fn request(result: &MeasureResult) -> Result<ExportMetricsServiceRequest> {
    let own = std::slice::from_ref(&result.point);
    let points = if result.points.is_empty() { own } else { &result.points };
    let spans: Vec<(&Point, Span)> =
        points.iter().map(|point| (point, Span::of(result, point))).collect();
    let text = |key: &str| match result.config.get(key) {
        Some(Value::Array(texts)) => {
            Some(texts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","))
        }
        value => value.and_then(Value::as_str).map(str::to_owned),
    };
    let settings =
        [("tailcut.app", "app"), ("tailcut.target", "target"), ("tailcut.transport", "transport")];
    let attributes = settings.into_iter().filter_map(|(name, key)| Some(pair(name, &text(key)?)));
    let service = [pair("service.name", "tailcut")];
    let version = result.environment.version.clone();
    Ok(ExportMetricsServiceRequest {
        resource_metrics: [ResourceMetrics {
            resource: Resource { attributes: service.into_iter().chain(attributes).collect() },
            scope_metrics: [ScopeMetrics {
                scope: Scope { name: "tailcut.measure", version },
                metrics: metrics(&spans)?,
            }],
        }],
    })
}

fn metrics(spans: &[(&Point, Span)]) -> Result<Vec<Metric>> {
    let trustworthy = |(point, span): &(&Point, Span)| {
        span.number(&[], f64::from(u8::from(point.verdict.trustworthy)))
    };
    let rates = |(point, span): &(&Point, Span)| {
        let rates = &point.rate_per_s;
        [("offered", rates.offered), ("sent", rates.sent), ("achieved", rates.achieved)]
            .map(|(name, rate)| span.number(&[("rate", name)], rate))
    };
    let requests = |(point, span): &(&Point, Span)| {
        let counts = &point.counts;
        let errors: u64 = counts.errors.values().sum();
        let ok = counts.replied.saturating_sub(counts.misses + errors);
        [
            ("ok", ok),
            ("miss", counts.misses),
            ("error", errors),
            ("lost", counts.lost),
            ("refused", counts.refused),
            ("timeout", counts.timeout),
        ]
        .map(|(name, count)| span.count(&[("outcome", name)], count))
    };
    let errors = spans.iter().flat_map(|(point, span)| {
        point.counts.error_codes.iter().map(|(name, &count)| span.count(&[("error", name)], count))
    });
    let histograms = histograms(spans)?;
    let gauge = |data_points| Data::Gauge { data_points };
    let sum =
        |data_points| Data::Sum { data_points, aggregation_temporality: DELTA, is_monotonic: true };
    let metric = |name, description, unit, data| Metric { name, description, unit, data };
    Ok(vec![
        metric(
            "tailcut.measure.trustworthy",
            "Whether the figures can be relied on.",
            "1",
            gauge(spans.iter().map(trustworthy).collect()),
        ),
        metric(
            "tailcut.measure.rate",
            "Requests a second.",
            "{request}/s",
            gauge(spans.iter().flat_map(rates).collect()),
        ),
        metric(
            "tailcut.measure.requests",
            "Requests of the measurement, by what became of them.",
            "{request}",
            sum(spans.iter().flat_map(requests).collect()),
        ),
        metric(
            "tailcut.measure.errors",
            "Errors of the server, by what they say.",
            "{request}",
            sum(errors.collect()),
        ),
        metric(
            "tailcut.measure.latency",
            "Latencies, from the intended and from the actual send.",
            "s",
            Data::Histogram { data_points: histograms, aggregation_temporality: DELTA },
        ),
        metric(
            "tailcut.measure.latency.quantile",
            "Quantiles of the latency, and their 95 % intervals.",
            "s",
            gauge(spans.iter().flat_map(|(point, span)| quantiles(point, span)).collect()),
        ),
    ])
}

/// All latencies of each load, from both sends.
fn histograms(spans: &[(&Point, Span)]) -> Result<Vec<HistogramDataPoint>> {
    let mut histograms = Vec::new();
    for (point, span) in spans {
        let both = [("intended", &point.histograms.intended), ("actual", &point.histograms.actual)];
        for (from, text) in both {
            let histogram = hdr::decode(text).context("the latencies of a result")?;
            histograms.push(span.histogram(from, &histogram));
        }
    }
    Ok(histograms)
}

/// Quantiles that the samples support, and the intervals of those from the intended send.
fn quantiles(point: &Point, span: &Span) -> Vec<NumberDataPoint> {
    let mut found = Vec::new();
    let both = [("intended", &point.latency_us.intended), ("actual", &point.latency_us.actual)];
    for (from, latency) in both {
        for percentile in PERCENTILES {
            let quantile = percentile.share.to_string();
            let labels = [("from", from), ("quantile", quantile.as_str())];
            let value_us = value_us(latency, percentile.name);
            found.extend(value_us.map(|value_us| span.number(&labels, value_us / 1e6)));
            let interval = point.intervals_us.get(percentile.name).filter(|_| from == "intended");
            for (bound, value_us) in
                interval.into_iter().flat_map(|it| [("low", it.low), ("high", it.high)])
            {
                let labels = [labels[0], labels[1], ("bound", bound)];
                found.push(span.number(&labels, value_us / 1e6));
            }
        }
    }
    found
}

/// The percentile of this name.
pub fn value_us(latency: &Latency, name: &str) -> Option<f64> {
    match name {
        "p50" => latency.p50,
        "p90" => latency.p90,
        "p95" => latency.p95,
        "p99" => latency.p99,
        "p999" => latency.p999,
        "p9999" => latency.p9999,
        _ => None,
    }
}

fn pair(key: &'static str, value: &str) -> KeyValue {
    KeyValue { key, value: AnyValue::StringValue(value.to_owned()) }
}

/// `AGGREGATION_TEMPORALITY_DELTA`: counts are of the measurement, and not since a process began.
const DELTA: u8 = 1;

/// Bounds of the histogram's buckets, s.
const BOUNDS_S: [f64; 22] = [
    1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1,
    0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sample;
    use super::*;

    fn metrics_of(result: &MeasureResult) -> Value {
        let request = request(result).expect("the sample is whole");
        serde_json::to_value(request).expect("it is JSON")
    }

    fn metric<'a>(json: &'a Value, name: &str) -> &'a Value {
        let metrics = json["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array();
        let metrics = metrics.expect("an array");
        metrics.iter().find(|metric| metric["name"] == name).expect(name)
    }

    #[test]
    fn a_result_is_the_request_of_the_protocol() {
        let result = sample::single();
        let json = metrics_of(&result);
        let attributes = json["resourceMetrics"][0]["resource"]["attributes"].as_array().unwrap();
        let service = json!({ "key": "service.name", "value": { "stringValue": "tailcut" } });
        assert!(attributes.contains(&service), "{attributes:?}");
        let trusted = metric(&json, "tailcut.measure.trustworthy");
        assert_eq!(trusted["gauge"]["dataPoints"][0]["asDouble"], 1.0);
        let requests = &metric(&json, "tailcut.measure.requests")["sum"];
        assert_eq!(
            (&requests["aggregationTemporality"], &requests["isMonotonic"]),
            (&json!(1), &json!(true))
        );
        let count = |point: &Value| point["asInt"].as_str().unwrap().parse::<u64>().unwrap();
        let counted: u64 = requests["dataPoints"].as_array().unwrap().iter().map(count).sum();
        let counts = &result.point.counts;
        assert_eq!(counted, counts.replied + counts.lost + counts.refused + counts.timeout);
        let point = &requests["dataPoints"][0];
        let [start, end] = ["startTimeUnixNano", "timeUnixNano"]
            .map(|key| point[key].as_str().expect(key).parse::<u128>().expect(key));
        assert!(start < end, "{point}");
    }

    #[test]
    fn buckets_hold_every_latency() {
        let json = metrics_of(&sample::single());
        let points = &metric(&json, "tailcut.measure.latency")["histogram"]["dataPoints"];
        for point in points.as_array().unwrap() {
            let numbers = |key: &str| point[key].as_array().unwrap().clone();
            let counts = numbers("bucketCounts");
            assert_eq!(counts.len(), numbers("explicitBounds").len() + 1);
            let count = |text: &Value| text.as_str().unwrap().parse::<u64>().unwrap();
            assert_eq!(counts.iter().map(count).sum::<u64>(), count(&point["count"]));
        }
        assert_eq!(points.as_array().unwrap().len(), 2);
    }

    #[test]
    fn every_point_of_a_search_is_there() {
        let result = sample::full();
        let json = metrics_of(&result);
        let points = &metric(&json, "tailcut.measure.trustworthy")["gauge"]["dataPoints"];
        assert_eq!(points.as_array().unwrap().len(), result.points.len());
        let quantiles = &metric(&json, "tailcut.measure.latency.quantile")["gauge"]["dataPoints"];
        let has = |key: &str, value: &str| {
            let attribute = json!({ "key": key, "value": { "stringValue": value } });
            let points = quantiles.as_array().unwrap().iter();
            points
                .filter(|point| point["attributes"].as_array().unwrap().contains(&attribute))
                .count()
        };
        assert!(has("quantile", "0.99") >= 2 && has("bound", "high") >= 1, "{quantiles:#}");
    }
}
