//! The differences of percentiles between two results.
//!
//! There is an interval of a difference where both results have one of the percentile. What their
//! samples are worth at other percentiles does not tell it: at low load neighbours in the tail are
//! more alike than those at the median.
//!
//! Invariant: a percentile is compared only where the samples of both results support it.

use serde::Serialize;
use tailcut_measure::statistics::difference::Difference;
use tailcut_measure::statistics::quantile::{BEYOND_MIN, Estimate};
use tailcut_measure::statistics::reference::student_within;

use super::Side;
use tailcut_instrument::hdr;
use tailcut_instrument::percentile::{PERCENTILES, Percentile};
use tailcut_instrument::result::Interval;

/// One percentile of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) name: &'static str,
    #[serde(skip)]
    pub(super) title: &'static str,
    pub(super) before_us: f64,
    pub(super) after_us: f64,
    /// After less before; absent where a result has no interval of the percentile.
    pub(super) difference_us: Option<DifferenceUs>,
    /// True where the interval of the difference leaves zero out.
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

/// Warnings of differences that say less than they seem to.
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
        warnings.push(format!(
            "no interval of the difference at {open}: a result has none of its own there"
        ));
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
    let mut row = Row {
        name: percentile.name,
        title: percentile.title,
        before_us: values[0],
        after_us: values[1],
        difference_us: None,
        differs: None,
        is_episodic: false,
    };
    if let [Some(one), Some(other)] = own {
        // Of two confidences that of the wider interval, so that nothing is promised that neither
        // result says.
        let confidence = one.confidence.max(other.confidence);
        let samples = sides.map(|side| side.histogram.len());
        let before = estimate(one, percentile.share, (samples[0], confidence))?;
        let after = estimate(other, percentile.share, (samples[1], confidence))?;
        let difference = Difference::between(&before, &after);
        row.before_us = one.value;
        row.after_us = other.value;
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

/// An interval of a result, widened to a confidence as a normal deviation is; none where it is no
/// interval.
fn estimate(own: &Interval, p: f64, (samples, confidence): (u64, f64)) -> Option<Estimate> {
    let is_share = |confidence: f64| confidence > 0.0 && confidence < 1.0;
    if !is_share(own.confidence) || !is_share(confidence) || own.effective_samples <= 0.0 {
        return None;
    }
    let deviations = |confidence: f64| student_within(confidence, FREEDOM_KNOWN);
    let widening = if own.confidence == confidence {
        1.0
    } else {
        deviations(confidence) / deviations(own.confidence)
    };
    Some(Estimate {
        p,
        value_ns: own.value * NS_PER_US,
        low_ns: (own.value - widening * (own.value - own.low).max(0.0)) * NS_PER_US,
        high_ns: (own.value + widening * (own.high - own.value).max(0.0)) * NS_PER_US,
        confidence,
        samples,
        inflation: (samples as f64 / own.effective_samples).max(1.0),
    })
}

/// Degrees of freedom at which Student's distribution is the normal one.
const FREEDOM_KNOWN: f64 = 1e6;
const NS_PER_US: f64 = 1e3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::sample;
    use tailcut_instrument::result::{Histograms, MeasureResult};

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
        let row =
            rows(&side(first), &side(other)).into_iter().find(|row| row.name == "p99").unwrap();
        // 3 below one and 4 above the other: 5 on both sides.
        assert_eq!(
            row.difference_us,
            Some(DifferenceUs { value: -20.0, low: -25.0, high: -15.0, confidence: 0.95 })
        );
        assert_eq!(row.differs, Some(true));
    }

    #[test]
    fn of_two_confidences_the_wider_interval_counts() {
        let (mut first, mut other) = (sample::single(), sample::single());
        set(&mut first, "p99", (100.0, 90.0, 110.0));
        set(&mut other, "p99", (200.0, 190.0, 210.0));
        other.point.intervals_us.get_mut("p99").unwrap().confidence = 0.99;
        let row =
            rows(&side(first), &side(other)).into_iter().find(|row| row.name == "p99").unwrap();
        let difference = row.difference_us.unwrap();
        // 95 % of a normal distribution lie within 1.959964 deviations, 99 % within 2.575829.
        let half = (10.0 * 2.575_829 / 1.959_964f64).hypot(10.0);
        assert_eq!(difference.confidence, 0.99);
        assert!(
            (difference.high - (100.0 + half)).abs() < 1e-3
                && (difference.low - (100.0 - half)).abs() < 1e-3,
            "{difference:?}"
        );
    }

    #[test]
    fn a_difference_has_an_interval_where_both_results_have_one() {
        let mut bare = sample::single();
        bare.point.intervals_us.retain(|name, _| name == "p99");
        let rows = rows(&side(bare), &side(sample::single()));
        let known: Vec<&str> =
            rows.iter().filter(|row| row.differs.is_some()).map(|row| row.name).collect();
        assert_eq!(known, ["p99"]);
        let warnings = warnings(&rows);
        assert!(
            warnings[0]
                .starts_with("no interval of the difference at p50, p90, p95, p99.9, p99.99"),
            "{warnings:?}"
        );
    }

    #[test]
    fn what_is_no_interval_has_no_difference() {
        for (confidence, effective_samples) in
            [(0.0, 1e3), (1.0, 1e3), (-1.0, 1e3), (0.95, 0.0), (0.95, -1.0)]
        {
            let own = Interval {
                value: 1.0,
                low: 1.0,
                high: 1.0,
                confidence,
                effective_samples,
                trustworthy: true,
            };
            assert_eq!(estimate(&own, 0.5, (100, confidence)), None, "{own:?}");
        }
    }

    #[test]
    fn a_percentile_that_one_does_not_support_is_left_out() {
        let mut short = sample::single();
        let mut histogram =
            hdrhistogram::Histogram::<u64>::new_with_bounds(1, 100_000_000_000, 3).unwrap();
        (0..999).for_each(|step| histogram.record(20_000 + step).unwrap());
        short.point.histograms =
            Histograms { intended: hdr::encode(&histogram), actual: hdr::encode(&histogram) };
        let rows = rows(&side(short), &side(sample::single()));
        assert_eq!(
            rows.iter().map(|row| row.name).collect::<Vec<_>>(),
            ["p50", "p90", "p95"],
            "999 samples"
        );
    }

    #[test]
    fn a_tail_of_few_episodes_is_told() {
        let mut few = sample::single();
        few.point.intervals_us.get_mut("p99").unwrap().effective_samples = 2_900.0;
        let rows = rows(&side(few), &side(sample::single()));
        assert!(
            warnings(&rows).iter().any(|warning| warning.contains("the tail beyond p99,")),
            "{:?}",
            warnings(&rows)
        );
    }

    fn side(result: MeasureResult) -> Side {
        Side::new("a.json", result).unwrap()
    }

    fn set(result: &mut MeasureResult, name: &str, (value, low, high): (f64, f64, f64)) {
        let interval = result.point.intervals_us.get_mut(name).unwrap();
        *interval = Interval { value, low, high, ..*interval };
    }
}
