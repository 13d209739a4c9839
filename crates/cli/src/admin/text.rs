//! Metrics in Prometheus' text format, version 0.0.4.
//!
//! Names carry their unit: `_seconds`, `_bytes`, and `_total` where they only rise.

use std::fmt::{Display, Write};

use tailcut_proto::histogram::Histogram;
use tailcut_proto::node::Time;

use crate::counters::Counters;

/// A page of metrics that is being written.
#[derive(Debug)]
pub(crate) struct Page {
    text: String,
    /// Prefix of all names: `tailcut_route`.
    prefix: &'static str,
}

/// A family of samples under one name.
#[derive(Debug)]
pub(crate) struct Family<'a> {
    text: &'a mut String,
    name: String,
}

impl Page {
    /// The page of a command.
    pub(crate) fn new(prefix: &'static str) -> Self {
        let mut page = Self { text: String::new(), prefix };
        let labels = [("version", env!("CARGO_PKG_VERSION"))];
        page.gauge("build_info", "Always 1; the version is its label.").sample(&labels, 1);
        page
    }

    /// Text of the page.
    pub(crate) fn end(self) -> String {
        self.text
    }

    /// A family of values that rise and fall.
    pub(crate) fn gauge(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(name, "gauge", help)
    }

    /// A family of values that only rise; `_total` is added to its name.
    pub(crate) fn counter(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(&format!("{name}_total"), "counter", help)
    }

    /// Counters by their names in reports.
    pub(crate) fn counters(&mut self, counters: &Counters) {
        for (name, count) in counters {
            let help = format!("The counter {name}: see docs/metrics.md.");
            self.counter(&unit_last(name), &help).value(count);
        }
    }

    /// Times in buckets; `_seconds` is added to its name.
    pub(crate) fn histogram(&mut self, name: &str, help: &str, times: &Histogram) {
        self.histograms(name, help, [([], times)]);
    }

    /// Times in buckets, of each of some labels; `_seconds` is added to their name.
    pub(crate) fn histograms<'a, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        all: impl IntoIterator<Item = ([(&'a str, &'a str); N], &'a Histogram)>,
    ) {
        let Family { text, name } = self.family(&format!("{name}_seconds"), "histogram", help);
        for (labels, times) in all {
            for (upper_ns, count) in times.cumulative() {
                let bound = upper_ns.map_or("+Inf".to_owned(), |ns| seconds(ns).to_string());
                let labels = [&labels[..], &[("le", &bound)]].concat();
                push(text, &format!("{name}_bucket"), &labels, count);
            }
            push(text, &format!("{name}_sum"), &labels, seconds(times.sum_ns()));
            push(text, &format!("{name}_count"), &labels, times.count());
        }
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) -> Family<'_> {
        let name = format!("{}_{name}", self.prefix);
        // A string takes whatever is written to it.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { text: &mut self.text, name }
    }
}

impl Family<'_> {
    /// Its only value.
    pub(crate) fn value(self, value: impl Display) {
        push(self.text, &self.name, &[], value);
    }

    /// One of its values.
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        push(self.text, &self.name, labels, value);
    }
}

/// A time in Prometheus' unit.
pub(crate) fn seconds(ns: Time) -> f64 {
    ns as f64 / 1e9
}

fn push(text: &mut String, name: &str, labels: &[(&str, &str)], value: impl Display) {
    text.push_str(name);
    for (place, (label, of)) in labels.iter().enumerate() {
        let of = of.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
        // A string takes whatever is written to it.
        let _ = write!(text, "{}{label}=\"{of}\"", if place == 0 { '{' } else { ',' });
    }
    let _ = writeln!(text, "{} {value}", if labels.is_empty() { "" } else { "}" });
}

/// `udp_bytes_in` as `udp_in_bytes`.
fn unit_last(name: &str) -> String {
    match name.split_once("bytes_") {
        Some((before, after)) => format!("{before}{after}_bytes"),
        None => name.to_owned(),
    }
}

/// Content type of this format in HTTP.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_written_so() {
        let mut page = Page::new("tailcut_x");
        page.text.clear();
        page.counters(&vec![("udp_bytes_in".to_owned(), 7)]);
        let mut family = page.gauge("state", "Whether.");
        family.sample(&[("server", "[::1]:9"), ("state", "a\"b\\")], 1);
        let mut times = Histogram::default();
        times.record(1_500);
        page.histogram("hold", "How long.", &times);
        let text = page.end();
        let head = "# HELP tailcut_x_udp_in_bytes_total The counter udp_bytes_in: see docs/metrics.md.\n\
                    # TYPE tailcut_x_udp_in_bytes_total counter\n\
                    tailcut_x_udp_in_bytes_total 7\n\
                    # HELP tailcut_x_state Whether.\n\
                    # TYPE tailcut_x_state gauge\n\
                    tailcut_x_state{server=\"[::1]:9\",state=\"a\\\"b\\\\\"} 1\n\
                    # HELP tailcut_x_hold_seconds How long.\n\
                    # TYPE tailcut_x_hold_seconds histogram\n\
                    tailcut_x_hold_seconds_bucket{le=\"0.000001024\"} 0\n\
                    tailcut_x_hold_seconds_bucket{le=\"0.000001536\"} 1\n";
        assert!(text.starts_with(head), "{text}");
        let tail = "tailcut_x_hold_seconds_bucket{le=\"+Inf\"} 1\n\
                    tailcut_x_hold_seconds_sum 0.0000015\n\
                    tailcut_x_hold_seconds_count 1\n";
        assert!(text.ends_with(tail), "{text}");
    }
}
