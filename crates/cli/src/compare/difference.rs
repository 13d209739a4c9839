//! The differences of percentiles between two results.
//!
//! An interval is the result's own where both have one of the same confidence. Otherwise it is read off the histogram, with the
//! least number of independent samples that any percentile of that result is worth, so that it is too wide rather than too narrow.
//!
//! Invariant: a percentile is compared only where the samples of both results support it.

use serde::Serialize;
use tailcut_measure::statistics::difference::Difference;
use tailcut_measure::statistics::quantile::{BEYOND_MIN, Estimate, bounds};

use super::Side;
use crate::measure::hdr;
use crate::measure::percentile::{PERCENTILES, Percentile};
use crate::measure::result::Interval;

/// One percentile of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) name: &'static str,
    #[serde(skip)]
    pub(super) title: &'static str,
    pub(super) before_us: f64,
    pub(super) after_us: f64,
    /// After less before; absent where a result has no interval, and too few independent samples for one.
    pub(super) difference_us: Option<DifferenceUs>,
    /// Whether the interval of the difference leaves zero out.
    pub(super) differs: Option<bool>,
    /// Too few independent samples lie beyond the percentile to rely on the interval.
    pub(super) is_episodic: bool,
}

/// A difference with its interval, us.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct DifferenceUs {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) confidence: f64,
}

/// The percentiles that both support, ascending.
pub(super) fn rows(before: &Side, after: &Side) -> Vec<Row> {
    PERCENTILES.iter().filter_map(|percentile| row(before, after, percentile)).collect()
}

/// What makes the differences say less than they seem to.
pub(super) fn warnings(rows: &[Row]) -> Vec<String> {
    let titles = |is_meant: &dyn Fn(&Row) -> bool| {
        let meant = rows.iter().filter(|row| is_meant(row)).map(|row| row.title);
        meant.collect::<Vec<_>>().join(", ")
    };
    let mut warnings = Vec::new();
    if rows.is_empty() {
        warnings.push("no percentile is supported by the samples of both".to_owned());
    }
    let open = titles(&|row| row.difference_us.is_none());
    if !open.is_empty() {
        warnings.push(format!("no interval for {open}: a result has none, and too few independent samples for another"));
    }
    let episodic = titles(&|row| row.is_episodic);
    if !episodic.is_empty() {
        warnings
            .push(format!("the tail beyond {episodic} is a matter of a few episodes; measure longer to rely on its interval"));
    }
    warnings
}

fn row(before: &Side, after: &Side, percentile: &Percentile) -> Option<Row> {
    let sides = [before, after];
    let supported = sides.map(|side| hdr::supported_us(&side.histogram, percentile.share));
    let values = [supported[0]?, supported[1]?];
    let own = sides.map(|side| side.result.point.intervals_us.get(percentile.name));
    let confidence = own[0].or(own[1]).map_or(CONFIDENCE, |interval| interval.confidence);
    let estimates = [0, 1].map(|index| estimate(sides[index], percentile, (own[index], confidence)));
    let mut row = Row {
        name: percentile.name,
        title: percentile.title,
        before_us: values[0],
        after_us: values[1],
        difference_us: None,
        differs: None,
        is_episodic: false,
    };
    if let [Some(before), Some(after)] = estimates {
        let difference = Difference::between(&before, &after);
        row.before_us = before.value_ns / NS_PER_US;
        row.after_us = after.value_ns / NS_PER_US;
        row.difference_us = Some(DifferenceUs {
            value: difference.value_ns / NS_PER_US,
            low: difference.low_ns / NS_PER_US,
            high: difference.high_ns / NS_PER_US,
            confidence,
        });
        row.differs = Some(difference.is_one());
        row.is_episodic = before.beyond().min(after.beyond()) < BEYOND_MIN;
    }
    Some(row)
}

/// A percentile of a result: its own where it has the confidence, else from the histogram; none where that would be a guess.
fn estimate(side: &Side, percentile: &Percentile, (own, confidence): (Option<&Interval>, f64)) -> Option<Estimate> {
    let (histogram, p) = (&side.histogram, percentile.share);
    let samples = histogram.len();
    let with = |value_ns: f64, ends_ns: (f64, f64), effective: f64| Estimate {
        p,
        value_ns,
        low_ns: ends_ns.0.min(value_ns),
        high_ns: ends_ns.1.max(value_ns),
        confidence,
        samples,
        inflation: (samples as f64 / effective).max(1.0),
    };
    if let Some(own) = own.filter(|own| (own.confidence - confidence).abs() < 1e-9 && own.effective_samples > 0.0) {
        return Some(with(own.value * NS_PER_US, (own.low * NS_PER_US, own.high * NS_PER_US), own.effective_samples));
    }
    let worth = side.result.point.intervals_us.values().map(|interval| interval.effective_samples);
    let effective = worth.fold(f64::INFINITY, f64::min).min(samples as f64);
    let is_known = !side.result.point.intervals_us.is_empty() && effective * p.min(1.0 - p) >= EFFECTIVE_BEYOND_MIN;
    let is_share = confidence > 0.0 && confidence < 1.0;
    (is_known && is_share).then(|| {
        let value = |share: f64| histogram.value_at_quantile(share).min(histogram.max()) as f64;
        let (low, high) = bounds(p, effective, confidence);
        with(value(p), (value(low), value(high)), effective)
    })
}

/// Where neither result says.
const CONFIDENCE: f64 = 0.95;
/// An interval that is read off a histogram needs as many independent samples beyond the percentile as a percentile needs samples.
const EFFECTIVE_BEYOND_MIN: f64 = 10.0;
const NS_PER_US: f64 = 1e3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::result::{Histograms, MeasureResult};
    use crate::measure::sample;

    #[test]
    fn percentiles_of_the_same_distribution_do_not_differ() {
        let rows = rows(&side(sample::single()), &side(sample::single()));
        let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
        assert_eq!(names, ["p50", "p90", "p95", "p99", "p999", "p9999"]);
        assert!(rows.iter().all(|row| row.differs != Some(true)), "{rows:?}");
    }

    #[test]
    fn the_interval_is_that_of_two_independent_runs() {
        let mut other = sample::single();
        set(&mut other, "p99", (100.0, 97.0, 104.0));
        let mut first = sample::single();
        set(&mut first, "p99", (120.0, 117.0, 124.0));
        let row = rows(&side(first), &side(other)).into_iter().find(|row| row.name == "p99").unwrap();
        // 3 below one and 4 above the other: 5 on both sides.
        assert_eq!(row.difference_us, Some(DifferenceUs { value: -20.0, low: -25.0, high: -15.0, confidence: 0.95 }));
        assert_eq!(row.differs, Some(true));
    }

    #[test]
    fn an_interval_that_a_result_lacks_is_read_off_its_histogram() {
        let mut bare = sample::single();
        bare.point.intervals_us.retain(|name, _| name == "p999");
        let effective = bare.point.intervals_us["p999"].effective_samples;
        let (bare, whole) = (side(bare), side(sample::single()));
        let estimate = estimate(&bare, &PERCENTILES[3], (None, 0.95)).unwrap();
        // Of 20 us and an exponential of 15 us the p99 has the density 0.01 / 15 us; the interval is 2 * 1.96 deviations of
        // sqrt(p (1 - p) / n) over it, 1.2 us or so for 10,670 samples; the histogram rounds to 0.1 us.
        let expected = 2.0 * 1.96 * (0.99 * 0.01 / effective).sqrt() * 15_000.0 / 0.01;
        let length = estimate.high_ns - estimate.low_ns;
        assert!((length / expected - 1.0).abs() < 0.05, "{length} is not {expected}");
        let row = rows(&bare, &whole).into_iter().find(|row| row.name == "p99").unwrap();
        assert_eq!(row.differs, Some(false));
    }

    #[test]
    fn a_result_that_does_not_say_what_its_samples_are_worth_has_no_interval() {
        let mut bare = sample::single();
        bare.point.intervals_us.clear();
        let rows = rows(&side(bare), &side(sample::single()));
        assert!(rows.iter().all(|row| row.differs.is_none()) && rows.len() == 6, "{rows:?}");
        assert!(warnings(&rows)[0].starts_with("no interval for p50, p90, p95, p99, p99.9, p99.99"), "{:?}", warnings(&rows));
    }

    #[test]
    fn a_percentile_that_one_does_not_support_is_left_out() {
        let mut short = sample::single();
        let mut histogram = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 100_000_000_000, 3).unwrap();
        (0..999).for_each(|step| histogram.record(20_000 + step).unwrap());
        short.point.histograms = Histograms { intended: hdr::encode(&histogram), actual: hdr::encode(&histogram) };
        let rows = rows(&side(short), &side(sample::single()));
        assert_eq!(rows.iter().map(|row| row.name).collect::<Vec<_>>(), ["p50", "p90", "p95"], "999 samples");
    }

    #[test]
    fn a_tail_of_few_episodes_is_told() {
        let mut few = sample::single();
        few.point.intervals_us.get_mut("p99").unwrap().effective_samples = 2_900.0;
        let rows = rows(&side(few), &side(sample::single()));
        assert!(warnings(&rows).iter().any(|warning| warning.contains("the tail beyond p99,")), "{:?}", warnings(&rows));
    }

    fn side(result: MeasureResult) -> Side {
        Side::new("a.json", result).unwrap()
    }

    fn set(result: &mut MeasureResult, name: &str, (value, low, high): (f64, f64, f64)) {
        let interval = result.point.intervals_us.get_mut(name).unwrap();
        *interval = Interval { value, low, high, ..*interval };
    }
}
