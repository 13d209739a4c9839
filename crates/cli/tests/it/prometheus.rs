//! A Prometheus, from its package, that scrapes a router and a server and reads the alert rules.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Admin, Service, assert_all_replied, measure, serve};
use crate::port;

/// A running Prometheus; it is killed when dropped, and its directory removed.
struct Prometheus {
    child: Child,
    http: Admin,
    directory: PathBuf,
}

impl Prometheus {
    /// One that scrapes these; none, where it is not installed.
    fn start(route: &Admin, serve: &Admin) -> Option<Self> {
        let directory =
            std::env::temp_dir().join(format!("tailcut-scraper-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/prometheus/alerts.yml");
        let job = |name: &str, admin: &Admin| {
            format!("- {{job_name: {name}, static_configs: [{{targets: ['{}']}}]}}\n", admin.0)
        };
        let config = format!(
            "global: {{scrape_interval: 100ms, scrape_timeout: 100ms, evaluation_interval: 100ms}}\n\
             rule_files: ['{rules}']\n\
             scrape_configs:\n{}{}",
            job("route", route),
            job("serve", serve)
        );
        let path = directory.join("prometheus.yml");
        fs::write(&path, config).expect("a file");
        let address = format!("127.0.0.1:{}", port::free());
        let started = Command::new("prometheus")
            .arg(format!("--config.file={}", path.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn")
            .stdin(Stdio::null())
            .spawn();
        let Ok(child) = started else {
            println!("SKIPPED: prometheus is missing (Debian: prometheus)");
            return None;
        };
        Some(Self { child, http: Admin(address), directory })
    }

    /// Asks until what a query gives is as expected.
    fn wait_for(&mut self, query: &str, is_expected: impl Fn(&[f64]) -> bool) {
        let path = format!("/api/v1/query?query={query}");
        self.wait_until(&path, |answer| is_expected(&values(answer)));
    }

    /// Asks until what is at a path is as expected.
    fn wait_until(&mut self, path: &str, is_expected: impl Fn(&Value) -> bool) {
        let mut found = Value::Null;
        for _ in 0..10_000 {
            assert!(self.child.try_wait().expect("a child").is_none(), "it has ended");
            if let Some(answer) = self.http.try_get(path) {
                found = serde_json::from_str(&answer).unwrap_or_default();
                if is_expected(&found) {
                    return;
                }
            }
            thread::park_timeout(Duration::from_millis(3));
        }
        panic!("{path} gives {found:#}");
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The samples of an answer.
fn values(answer: &Value) -> Vec<f64> {
    let samples = answer["data"]["result"].as_array();
    let value = |sample: &Value| sample["value"][1].as_str()?.parse().ok();
    samples.into_iter().flatten().filter_map(value).collect()
}

#[test]
fn a_real_prometheus_reads_the_metrics_and_the_rules() {
    let mut server = serve("synthetic", &["--admin", "127.0.0.1:0"]);
    let args = ["route", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--server"];
    let mut router = Service::start(&[&args[..], &[server.address()]].concat(), 1);
    let (of_server, of_router) = (server.admin(), router.admin());
    let Some(mut prometheus) = Prometheus::start(&of_router, &of_server) else { return };
    let load = ["--app", "synthetic:fixed:100us", "--rate", "500"];
    let brief = ["--duration", "300ms", "--warmup", "0"];
    let result = measure(router.address(), &[&load[..], &brief].concat());
    assert_all_replied(&result);
    let (forwarded, requests) = ("tailcut_route_forwarded_total", "tailcut_serve_requests_total");
    let counts = [of_router.value(forwarded), of_server.value(requests)];
    assert!(counts.iter().all(|&count| count >= 100.0), "{counts:?}");
    prometheus.wait_for("up", |values| values == [1.0, 1.0]);
    prometheus.wait_for(forwarded, |values| values == [counts[0]]);
    prometheus.wait_for(requests, |values| values == [counts[1]]);
    let median = "histogram_quantile(0.5,tailcut_serve_service_seconds_bucket)";
    prometheus.wait_for(median, |values| matches!(values, [s] if (5e-5..2e-4).contains(s)));
    // It evaluates the rules, and of a router and a server in health they say nothing.
    prometheus.wait_until("/api/v1/rules", |answer| {
        let rules = answer["data"]["groups"][0]["rules"].as_array();
        let is_quiet = |rule: &Value| rule["health"] == "ok" && rule["state"] == "inactive";
        rules.is_some_and(|rules| !rules.is_empty() && rules.iter().all(is_quiet))
    });
}
