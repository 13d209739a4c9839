//! A result for Prometheus and OpenTelemetry.
//!
//! | flag | what |
//! |---|---|
//! | `--prometheus FILE` | a file for node_exporter's textfile collector, replaced as a whole |
//! | `--otlp FILE` | the request of OTLP in JSON, one line |
//! | `--otlp http://HOST:PORT` | the same, sent to the endpoint there |
//!
//! Invariant: whoever reads a file sees a whole one, old or new.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use tailcut_instrument::otlp;
use tailcut_instrument::percentile::PERCENTILES;
use tailcut_instrument::result::{MeasureResult, Point};
use tokio::net::TcpStream;

use crate::admin::text::Page;

/// Writes the textfile.
pub(super) fn write_prometheus(path: &str, result: &MeasureResult) -> Result<()> {
    // The collector looks at files named `.prom` alone.
    let beside = format!("{path}.{}.tmp", std::process::id());
    fs::write(&beside, prometheus(result))
        .and_then(|()| fs::rename(&beside, path))
        .with_context(|| format!("cannot write {path}"))
}

/// Writes the request of OTLP to a file, or sends it to an endpoint.
pub(super) fn write_otlp(to: &str, result: &MeasureResult) -> Result<()> {
    let request =
        serde_json::to_string(&otlp::request(result)?).context("cannot write the result")?;
    if to.contains("://") {
        return send(to, request).with_context(|| format!("cannot send the result to {to}"));
    }
    fs::write(to, request + "\n").with_context(|| format!("cannot write {to}"))
}

/// Refuses what will not be able to take the result, before the work whose result it is.
pub(super) fn check_endpoint(to: &str) -> Result<()> {
    if to.contains("://") { endpoint(to).map(drop) } else { crate::output::check_writable(to) }
}

/// The URL of an endpoint, with the path that the protocol says where it has none.
fn endpoint(to: &str) -> Result<Uri> {
    let uri: Uri = to.parse().with_context(|| format!("{to} is no URL"))?;
    ensure!(
        uri.scheme_str() == Some("http"),
        "{to}: OTLP goes over http://, to a collector of this host that takes it further"
    );
    if uri.path() != "/" {
        return Ok(uri);
    }
    format!("{}/v1/metrics", to.trim_end_matches('/'))
        .parse()
        .with_context(|| format!("{to} is no URL"))
}

fn send(to: &str, request: String) -> Result<()> {
    let uri = endpoint(to)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let sent = async { tokio::time::timeout(SEND_MAX, post(&uri, request)).await };
    runtime.block_on(sent).map_err(|_| anyhow!("no answer in {} s", SEND_MAX.as_secs()))?
}

async fn post(uri: &Uri, body: String) -> Result<()> {
    let authority = uri.authority().context("a host is missing")?.as_str();
    let address = match uri.port() {
        Some(_) => authority.to_owned(),
        None => format!("{authority}:{OTLP_PORT}"),
    };
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(HOST, authority)
        .header(CONTENT_TYPE, "application/json")
        .body(body)?;
    // It ends with the runtime, once the answer is there.
    tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status();
    ensure!(status.is_success(), "the endpoint answers {status}");
    Ok(())
}

/// The page of a textfile collector.
fn prometheus(result: &MeasureResult) -> String {
    let own = std::slice::from_ref(&result.point);
    let points = if result.points.is_empty() { own } else { &result.points };
    let settings = ["app", "target", "transport"].map(|key| {
        let text = match result.config.get(key) {
            Some(serde_json::Value::Array(texts)) => {
                texts.iter().filter_map(|text| text.as_str()).collect::<Vec<_>>().join(",")
            }
            value => value.and_then(|value| value.as_str()).unwrap_or_default().to_owned(),
        };
        (key, text)
    });
    let labels = |point: &Point| {
        let offered = ("offered_per_s", point.rate_per_s.offered.to_string());
        settings.iter().cloned().chain([offered]).collect::<Vec<_>>()
    };
    let points: Vec<Labelled<'_>> =
        points.iter().map(|point| Labelled { point, labels: labels(point) }).collect();
    let mut page = Page::new("tailcut_measure");
    write_counts(&mut page, &points);
    write_latencies(&mut page, &points);
    page.end()
}

/// One load, and what tells it from others.
struct Labelled<'a> {
    point: &'a Point,
    labels: Vec<(&'static str, String)>,
}

impl Labelled<'_> {
    fn with<'b>(&'b self, more: &[(&'b str, &'b str)]) -> Vec<(&'b str, &'b str)> {
        let own = self.labels.iter().map(|(name, value)| (*name, value.as_str()));
        own.chain(more.iter().copied()).collect()
    }
}

fn write_counts(page: &mut Page, points: &[Labelled<'_>]) {
    let mut family = page.gauge("trustworthy", "Whether the figures can be relied on.");
    for labelled in points {
        family.sample(&labelled.with(&[]), u8::from(labelled.point.verdict.trustworthy));
    }
    let mut family = page.gauge("rate_per_second", "Requests a second.");
    for labelled in points {
        let rates = &labelled.point.rate_per_s;
        for (name, rate) in
            [("offered", rates.offered), ("sent", rates.sent), ("achieved", rates.achieved)]
        {
            family.sample(&labelled.with(&[("rate", name)]), rate);
        }
    }
    let mut family = page.gauge("requests", "Requests of the measurement, by what became of them.");
    for labelled in points {
        let counts = &labelled.point.counts;
        for (name, count) in [
            ("sent", counts.sent),
            ("replied", counts.replied),
            ("misses", counts.misses),
            ("lost", counts.lost),
            ("refused", counts.refused),
            ("timeout", counts.timeout),
        ] {
            family.sample(&labelled.with(&[("outcome", name)]), count);
        }
    }
    let mut family = page.gauge("errors", "Errors of the server, by what they say.");
    for labelled in points {
        for (name, count) in &labelled.point.counts.error_codes {
            family.sample(&labelled.with(&[("error", name)]), count);
        }
    }
}

fn write_latencies(page: &mut Page, points: &[Labelled<'_>]) {
    let mut family =
        page.gauge("latency_seconds", "Quantiles of the latency, by where it is counted from.");
    for labelled in points {
        let latencies = &labelled.point.latency_us;
        for (from, latency) in [("intended", latencies.intended), ("actual", latencies.actual)] {
            for percentile in PERCENTILES {
                let quantile = percentile.share.to_string();
                if let Some(value_us) = otlp::value_us(&latency, percentile.name) {
                    let more = [("from", from), ("quantile", &*quantile)];
                    family.sample(&labelled.with(&more), value_us / 1e6);
                }
            }
        }
    }
    let mut family = page.gauge(
        "latency_bound_seconds",
        "Ends of the 95 % intervals of quantiles from the intended send.",
    );
    for labelled in points {
        for percentile in PERCENTILES {
            let Some(interval) = labelled.point.intervals_us.get(percentile.name) else { continue };
            let quantile = percentile.share.to_string();
            for (bound, value_us) in [("low", interval.low), ("high", interval.high)] {
                let more = [("quantile", &*quantile), ("bound", bound)];
                family.sample(&labelled.with(&more), value_us / 1e6);
            }
        }
    }
}

/// The port of OTLP over HTTP.
const OTLP_PORT: u16 = 4_318;

/// Longest wait for an endpoint.
const SEND_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::super::sample;
    use super::*;

    #[test]
    fn a_textfile_has_every_figure_with_its_labels() {
        let text = prometheus(&sample::full());
        for line in [
            "# TYPE tailcut_measure_trustworthy gauge\n",
            "tailcut_measure_trustworthy{app=\"echo:64\",target=\"<b>host</b>:8000\",transport=\"udp\",offered_per_s=\"20000\"} 1\n",
            "offered_per_s=\"80000\"} 0\n",
            ",from=\"intended\",quantile=\"0.99\"} 0.0",
            ",quantile=\"0.99\",bound=\"high\"} 0.0",
            ",outcome=\"timeout\"} ",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        // A family is together, and each of its samples once: what the format asks for.
        let mut seen = std::collections::BTreeSet::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok() && seen.insert(series), "{line}");
        }
    }

    #[test]
    fn the_dashboard_draws_what_a_textfile_has() {
        let dashboard = include_str!("../../../../tools/grafana/measure.json");
        let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        let targets = dashboard["panels"].as_array().unwrap().iter();
        let targets = targets.flat_map(|panel| panel["targets"].as_array().unwrap());
        let text = prometheus(&sample::full());
        let mut drawn = std::collections::BTreeSet::new();
        for expr in targets.map(|target| target["expr"].as_str().unwrap()) {
            let (metric, rest) = expr.split_once('{').unwrap();
            drawn.insert(metric);
            // What is compared with a value and not with a variable or a pattern has such a sample.
            let labels = rest.trim_end_matches('}').split(',').filter(|label| !label.contains('~'));
            let labels: Vec<&str> = labels.collect();
            let fits = |line: &str| {
                line.starts_with(&format!("{metric}{{"))
                    && labels.iter().all(|label| line.contains(label))
            };
            assert!(text.lines().any(fits), "{expr} draws nothing");
        }
        assert_eq!(drawn.len(), 6, "{drawn:?}");
    }

    #[test]
    fn a_textfile_is_replaced_as_a_whole() {
        let path = std::env::temp_dir().join(format!("tailcut-{}.prom", std::process::id()));
        let file = path.to_str().unwrap();
        fs::write(&path, "old").unwrap();
        write_prometheus(file, &sample::single()).unwrap();
        assert!(fs::read_to_string(&path).unwrap().starts_with("# HELP tailcut_measure_"));
        fs::remove_file(&path).unwrap();
        assert!(write_prometheus("/nowhere/at/all.prom", &sample::single()).is_err());
    }

    /// An endpoint that answers one request with this status, and gives what it was sent.
    fn sent_to(status: &str) -> (Result<()>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}");
        let endpoint = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = String::new();
            let mut bytes = [0; 65_536];
            // The request is an object, which ends with its brace.
            while !heard.ends_with("]}]}]}") {
                let len = stream.read(&mut bytes).unwrap();
                assert!(len > 0, "{heard}");
                heard.push_str(std::str::from_utf8(&bytes[..len]).unwrap());
            }
            stream.write_all(answer.as_bytes()).unwrap();
            heard
        });
        let sent = write_otlp(&url, &sample::single());
        (sent, endpoint.join().unwrap())
    }

    #[test]
    fn an_endpoint_is_sent_the_result() {
        let (sent, heard) = sent_to("200 OK");
        sent.unwrap();
        assert!(heard.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{heard}");
        assert!(heard.contains("content-type: application/json\r\n"), "{heard}");
        let (_, body) = heard.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert!(body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].is_array());
        let (refused, _) = sent_to("503 Service Unavailable");
        let error = format!("{:#}", refused.unwrap_err());
        assert!(error.contains("cannot send the result to http://127.0.0.1"), "{error}");
        assert!(error.contains("503 Service Unavailable"), "{error}");
    }

    #[test]
    fn what_is_no_endpoint_is_refused() {
        for (to, part) in [("https://h", "over http://"), ("http://", "no URL")] {
            let error = format!("{:#}", check_endpoint(to).unwrap_err());
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(endpoint("http://h:1/").unwrap().to_string(), "http://h:1/v1/metrics");
        assert_eq!(endpoint("http://h:1/own").unwrap().to_string(), "http://h:1/own");
    }
}
