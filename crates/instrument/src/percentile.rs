//! The percentiles that a result names.
//!
//! Invariant: in ascending order, and each is a field of [`Latency`].

use tailcut_measure::objective::is_same;

use super::result::{Interval, Latency, Point};

/// One percentile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentile {
    /// In results: `p999`.
    pub name: &'static str,
    /// For people: `p99.9`.
    pub title: &'static str,
    /// In (0, 1).
    pub share: f64,
}

impl Percentile {
    /// Its value among the figures of a latency, us.
    pub fn of(&self, latency: &Latency) -> Option<f64> {
        match self.name {
            "p50" => latency.p50,
            "p90" => latency.p90,
            "p95" => latency.p95,
            "p99" => latency.p99,
            "p999" => latency.p999,
            _ => latency.p9999,
        }
    }
}

/// Titles and intervals of the percentiles of a point that are not among the usual ones: `p995` is
/// the p99.5.
pub fn others(point: &Point) -> impl Iterator<Item = (String, &Interval)> {
    let others = point
        .intervals_us
        .iter()
        .filter(|(name, _)| PERCENTILES.iter().all(|usual| usual.name != name.as_str()));
    others.map(|(name, interval)| {
        let title = match (name.get(..3), name.get(3..)) {
            (Some(whole), Some(rest)) if !rest.is_empty() => format!("{whole}.{rest}"),
            _ => name.clone(),
        };
        (title, interval)
    })
}

/// The name of a percentile in results: `p999` for 0.999.
pub fn key(p: f64) -> String {
    let usual = PERCENTILES.iter().find(|usual| is_same(usual.share, p));
    usual.map_or_else(|| format!("p{}", p * 100.0).replace('.', ""), |usual| usual.name.to_owned())
}

/// Titles of the percentiles of a point that can be relied on.
pub fn trustworthy(point: &Point) -> Vec<String> {
    let is_trustworthy =
        |name: &str| point.intervals_us.get(name).is_some_and(|interval| interval.trustworthy);
    let usual = PERCENTILES
        .iter()
        .filter(|percentile| is_trustworthy(percentile.name))
        .map(|percentile| percentile.title.to_owned());
    usual
        .chain(others(point).filter(|(_, interval)| interval.trustworthy).map(|(title, _)| title))
        .collect()
}

const fn percentile(name: &'static str, title: &'static str, share: f64) -> Percentile {
    Percentile { name, title, share }
}

/// Those of a result.
pub const PERCENTILES: [Percentile; 6] = [
    percentile("p50", "p50", 0.5),
    percentile("p90", "p90", 0.9),
    percentile("p95", "p95", 0.95),
    percentile("p99", "p99", 0.99),
    percentile("p999", "p99.9", 0.999),
    percentile("p9999", "p99.99", 0.9999),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_of_ones_own_has_a_title() {
        let interval = Interval {
            value: 1.0,
            low: 1.0,
            high: 1.0,
            confidence: 0.95,
            effective_samples: 1.0,
            trustworthy: true,
        };
        let mut point = Point::default();
        for name in ["p50", "p75", "p995", "p99995", "p", "pä9"] {
            point.intervals_us.insert(name.to_owned(), interval);
        }
        let titles: Vec<String> = others(&point).map(|(title, _)| title).collect();
        assert_eq!(titles, ["p", "p75", "p99.5", "p99.995", "pä.9"]);
    }

    #[test]
    fn what_can_be_relied_on_is_listed_in_order() {
        let mut point = Point::default();
        for (p, trustworthy) in [(0.995, true), (0.99, false), (0.5, true), (0.95, true)] {
            let interval = Interval {
                value: 1.0,
                low: 1.0,
                high: 1.0,
                confidence: 0.95,
                effective_samples: 1.0,
                trustworthy,
            };
            point.intervals_us.insert(key(p), interval);
        }
        assert_eq!(trustworthy(&point), ["p50", "p95", "p99.5"]);
    }

    #[test]
    fn every_run_is_asked_for_them() {
        assert_eq!(
            PERCENTILES.map(|percentile| percentile.share),
            tailcut_measure::control::PERCENTILES
        );
    }

    #[test]
    fn a_percentile_is_the_field_of_its_name() {
        let latency = Latency {
            p50: Some(50.0),
            p90: Some(90.0),
            p95: Some(95.0),
            p99: Some(99.0),
            p999: Some(99.9),
            p9999: Some(99.99),
            ..Latency::default()
        };
        for percentile in PERCENTILES {
            let value = percentile.of(&latency).unwrap();
            assert!((value - 100.0 * percentile.share).abs() < 1e-9, "{percentile:?}");
            assert_eq!(percentile.title, format!("p{value}"));
        }
    }
}
