//! The result of a measurement, as JSON and as a table for people.

use serde_json::{Value, json};
use tailcut_measure::load::Rates;
use tailcut_measure::recorder::{LatencyUs, Recorder, Summary};

use crate::output;

/// What a run has shown.
#[derive(Clone, Debug)]
pub(super) struct Report {
    /// Everything that repeats the run.
    pub(super) config: Value,
    pub(super) summary: Summary,
    pub(super) rates: Rates,
    pub(super) client: Client,
}

/// What the client did that bears on the result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    /// Replies that the application would not have given.
    pub(super) mismatched: u64,
    /// Turns in which the limit on outstanding calls held a due request back.
    pub(super) saturated: u64,
    /// Packets sent again.
    pub(super) resent: u64,
    /// Times that the thread slept, and may have been woken late.
    pub(super) sleeps: u64,
    /// Datagrams that the kernel dropped before the client read them.
    pub(super) kernel_drops: u64,
}

impl Report {
    pub(super) fn new(config: Value, recorder: &Recorder, rates: Rates, client: Client) -> Self {
        Self { config, summary: recorder.summary(), rates, client }
    }

    pub(super) fn json(&self) -> Value {
        let counts = self.summary.counts;
        let Client { mismatched, saturated, resent, sleeps, kernel_drops } = self.client;
        json!({
            "schema": "tailcut.measure/1",
            "config": self.config,
            "rate_per_s": {
                "offered": self.rates.offered_per_s,
                "sent": self.rates.sent_per_s,
                "achieved": self.rates.replied_per_s,
            },
            "counts": {
                "sent": counts.sent,
                "replied": counts.replied,
                "lost": counts.lost,
                "refused": counts.refused,
                "timeout": counts.timeout,
            },
            "latency_us": { "intended": latency_json(&self.summary.intended), "actual": latency_json(&self.summary.actual) },
            "client": {
                "mismatched": mismatched,
                "saturated": saturated,
                "resent": resent,
                "sleeps": sleeps,
                "kernel_drops": kernel_drops,
            },
            "warnings": self.warnings(),
        })
    }

    /// The result for people.
    pub(super) fn describe(&self) -> String {
        let Rates { offered_per_s, sent_per_s, replied_per_s } = self.rates;
        let counts = self.summary.counts;
        let tallies = [
            ("offered/s", format!("{offered_per_s:.1}")),
            ("sent/s", format!("{sent_per_s:.1}")),
            ("achieved/s", format!("{replied_per_s:.1}")),
            ("sent", counts.sent.to_string()),
            ("replied", counts.replied.to_string()),
            ("refused", counts.refused.to_string()),
            ("timeout", counts.timeout.to_string()),
            ("lost", counts.lost.to_string()),
        ];
        let (names, values): (Vec<_>, Vec<_>) = tallies.into_iter().map(|(name, value)| (name.to_owned(), value)).unzip();
        let head = ["latency, us", "mean", "p50", "p90", "p99", "p99.9", "max"].map(str::to_owned).to_vec();
        let from = |name: &str, latency: &LatencyUs| {
            let figures = figures(latency).map(|(_, figure)| figure.map_or("-".to_owned(), |us| format!("{us:.1}")));
            [vec![name.to_owned()], figures.to_vec()].concat()
        };
        let latencies =
            [head, from("from intended send", &self.summary.intended), from("from actual send", &self.summary.actual)];
        let warnings: String = self.warnings().iter().map(|warning| format!("\nwarning: {warning}\n")).collect();
        format!("{}\n{}{warnings}", output::table(&[names, values], 0), output::table(&latencies, 1))
    }

    /// What makes the figures say something else than they seem to.
    fn warnings(&self) -> Vec<String> {
        let (rates, counts, client) = (self.rates, self.summary.counts, self.client);
        let mut warnings = Vec::new();
        if counts.sent == 0 {
            warnings.push("no request was due while measuring; raise --rate or --duration".to_owned());
        }
        if rates.sent_per_s < SENT_MIN * rates.offered_per_s {
            let share = 100.0 * rates.sent_per_s / rates.offered_per_s;
            warnings.push(format!("only {share:.1} % of the offered rate left in time: the client was the bottleneck"));
        }
        if client.saturated > 0 {
            let times = client.saturated;
            warnings.push(format!("requests left late {times} times because the limit on outstanding calls was reached"));
        }
        if client.mismatched > 0 {
            let count = client.mismatched;
            warnings.push(format!("{count} replies have another length than this app's; does the target serve it?"));
        }
        let failed = counts.lost + counts.refused + counts.timeout;
        if failed > 0 {
            let share = 100.0 * failed as f64 / counts.sent.max(1) as f64;
            warnings.push(format!("{failed} requests ({share:.3} %) got no reply; the latencies are of the others"));
        }
        warnings
    }
}

fn latency_json(latency: &LatencyUs) -> Value {
    Value::Object(figures(latency).map(|(name, figure)| (name.to_owned(), json!(figure))).into_iter().collect())
}

fn figures(latency: &LatencyUs) -> [(&'static str, Option<f64>); 6] {
    let LatencyUs { mean, p50, p90, p99, p999, max } = *latency;
    [("mean", mean), ("p50", p50), ("p90", p90), ("p99", p99), ("p999", p999), ("max", max)]
}

/// Below this share of the offered rate the load was not what was asked for.
const SENT_MIN: f64 = 0.99;
