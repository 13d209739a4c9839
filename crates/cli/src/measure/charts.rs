//! The charts of a measurement.
//!
//! Invariant: nothing is drawn that the samples do not support.

use hdrhistogram::Histogram;

use crate::chart::{Axis, Growth, LineChart, MarkerTitle, Series};
use crate::output::four_digits;
use crate::page::Drawn;
use tailcut_instrument::hdr;
use tailcut_instrument::percentile::PERCENTILES;
use tailcut_instrument::result::{ArrivalTest, Interval, Moment, Point};
use tailcut_measure::quantity::duration;

/// A curve of latencies: its name, its samples, and the intervals that are known by their shares.
pub(crate) struct Curve<'a> {
    pub(crate) label: String,
    pub(crate) look: usize,
    pub(crate) histogram: &'a Histogram<u64>,
    pub(crate) intervals: Vec<(f64, Interval)>,
}

/// The intervals of a point with the shares of their percentiles.
pub(crate) fn intervals(point: &Point) -> Vec<(f64, Interval)> {
    let known = PERCENTILES
        .iter()
        .filter_map(|named| Some((named.share, *point.intervals_us.get(named.name)?)));
    known.collect()
}

/// Latency over the percentile, which is drawn so that each nine has the same room.
pub(crate) fn percentiles(curves: &[Curve<'_>]) -> Drawn {
    let series: Vec<Series> = curves.iter().map(tail_series).collect();
    let end =
        series.iter().flat_map(|series| series.curve.last()).map(|&(x, _)| x).fold(1.0, f64::max);
    let nines = PERCENTILE_TICKS.iter().map(|&(share, label)| (nines(share), label.to_owned()));
    let ticks: Vec<(f64, String)> = nines.filter(|&(x, _)| x <= end + 1e-9).collect();
    let axes = |growth| {
        let x = Axis::with_ticks("percentile".to_owned(), (0.0, end), ticks.clone());
        (x, latency_axis(growth, &series))
    };
    let title = |label: &str, (x, y): (f64, f64)| {
        format!("{label}, p{}: {}", percent(1.0 - 10f64.powf(-x)), duration(y * 1e3))
    };
    draw_with_switch(&series, axes, ("Latency over the percentile", &title))
}

/// The share of requests that took no longer than a latency.
pub(crate) fn distribution(curves: &[Curve<'_>]) -> Drawn {
    let series = curves.iter().map(|curve| {
        let shares = (0..=1000u32).map(|thousandth| f64::from(thousandth) / 1000.0);
        let places = shares.filter_map(|share| {
            Some((positive(hdr::supported_us(curve.histogram, share)?), share))
        });
        Series {
            label: curve.label.clone(),
            look: curve.look,
            curve: places.collect(),
            ..Series::default()
        }
    });
    let series: Vec<Series> = series.collect();
    let axes = |growth| {
        let latencies = series.iter().flat_map(|series| series.curve.iter().map(|place| place.0));
        let x = Axis::covering_as(growth, "latency".to_owned(), latencies).of_times();
        (x, Axis::linear("share of the requests".to_owned(), (0.0, 1.0), 0.2))
    };
    let about = "The share of requests that took no longer than a latency";
    draw_with_switch(&series, axes, (about, &plain_title))
}

/// Latency over the load; a load that is not trustworthy has a mark and no part in a curve.
pub(crate) fn loads(points: &[Point]) -> Drawn {
    let mut points: Vec<&Point> = points.iter().collect();
    points.sort_by(|one, other| one.rate_per_s.achieved.total_cmp(&other.rate_per_s.achieved));
    let mut series = Vec::new();
    for (percentile, look) in [(PERCENTILES[0], 3), (PERCENTILES[3], 1)] {
        let place = |point: &Point| {
            Some((point.rate_per_s.achieved, positive(percentile.of(&point.latency_us.intended)?)))
        };
        let trusted = || points.iter().filter(|point| point.verdict.trustworthy);
        let curve: Vec<(f64, f64)> = trusted().filter_map(|point| place(point)).collect();
        let range = |point: &&&Point| {
            let interval = point.intervals_us.get(percentile.name)?;
            Some((point.rate_per_s.achieved, positive(interval.low), positive(interval.high)))
        };
        let ranges = trusted().filter_map(|point| range(&point)).collect();
        series.push(Series {
            label: percentile.title.to_owned(),
            look,
            points: curve.clone(),
            curve,
            ranges,
        });
        let doubted: Vec<(f64, f64)> = points
            .iter()
            .filter(|point| !point.verdict.trustworthy)
            .filter_map(|point| place(point))
            .collect();
        if !doubted.is_empty() {
            let label = format!("{}, not trustworthy", percentile.title);
            series.push(Series { label, points: doubted, ..Series::default() });
        }
    }
    let axes = |growth| {
        let rates = points.iter().map(|point| point.rate_per_s.achieved);
        let x = Axis::from_zero("replies per second".to_owned(), rates);
        (x, latency_axis(growth, &series))
    };
    let title = |label: &str, (x, y): (f64, f64)| {
        format!("{label} at {}/s: {}", four_digits(x), duration(y * 1e3))
    };
    draw_with_switch(&series, axes, ("Latency over the load", &title))
}

/// Requests, replies and failures a second, over time.
pub(crate) fn rate(moments: &[Moment]) -> Drawn {
    let kind = |label, look, count: fn(&Moment) -> u64| {
        over_time(label, look, moments, |moment| Some(count(moment) as f64 / moment.length_s))
    };
    let series = [
        kind("sent", 0, |moment| moment.sent),
        kind("replied", 3, |moment| moment.replied),
        kind("failed", 1, |moment| moment.failed),
    ];
    // With zero among them the axis is linear.
    let y = Axis::from_zero("per second".to_owned(), heights(&series).chain([0.0]));
    draw(&series, time_axis(moments), y, ("Rates over time", &plain_title))
}

/// Percentiles over time.
pub(crate) fn latency(moments: &[Moment]) -> Drawn {
    let kind = |label, look, value: fn(&Moment) -> Option<f64>| {
        over_time(label, look, moments, |moment| value(moment).map(positive))
    };
    let series = [
        kind("p50", 3, |moment| moment.p50_us),
        kind("p99", 1, |moment| moment.p99_us),
        kind("max", 0, |moment| moment.max_us),
    ];
    let axes = |growth| (time_axis(moments), latency_axis(growth, &series));
    let title = |label: &str, (x, y): (f64, f64)| {
        format!("{label} at {} s: {}", four_digits(x), duration(y * 1e3))
    };
    draw_with_switch(&series, axes, ("Latency over time", &title))
}

/// Quantiles of the gaps between requests, found over asked for.
pub(crate) fn arrivals(test: &ArrivalTest) -> Drawn {
    let asked = || test.quantiles.iter().map(|quantile| quantile.0);
    let end = asked().fold(0.0, f64::max);
    let series = [
        Series {
            label: "as asked for".to_owned(),
            curve: vec![(0.0, 0.0), (end, end)],
            ..Series::default()
        },
        Series {
            label: "found".to_owned(),
            look: 1,
            curve: test.quantiles.clone(),
            ..Series::default()
        },
    ];
    // With zero among them both axes are linear.
    let x = Axis::from_zero("asked for (mean gaps)".to_owned(), asked().chain([0.0]));
    let y = Axis::from_zero("found (mean gaps)".to_owned(), heights(&series).chain([0.0]));
    draw(
        &series,
        x,
        y,
        ("Quantiles of the gaps between requests: found over asked for", &plain_title),
    )
}

/// Correlation of a latency with the one some requests later.
pub(crate) fn autocorrelation(correlations: &[(u32, f64)]) -> Drawn {
    let places: Vec<(f64, f64)> =
        correlations.iter().map(|&(lag, correlation)| (f64::from(lag), correlation)).collect();
    let points = if places.len() <= MARKED_MAX { places.clone() } else { Vec::new() };
    let series = [Series {
        label: "correlation".to_owned(),
        look: 1,
        curve: places,
        points,
        ranges: Vec::new(),
    }];
    let lowest = correlations.iter().map(|&(_, correlation)| correlation).fold(0.0, f64::min);
    let x = Axis::covering(
        "lag (requests)".to_owned(),
        correlations.iter().map(|&(lag, _)| f64::from(lag)),
    );
    let y = Axis::linear("correlation".to_owned(), ((lowest / 0.2).floor() * 0.2, 1.0), 0.2);
    let title = |_: &str, (lag, correlation): (f64, f64)| {
        format!("lag {lag}: {}", four_digits(correlation))
    };
    draw(&series, x, y, ("Correlation of latencies over the lag", &title))
}

fn latency_axis(growth: Growth, series: &[Series]) -> Axis {
    Axis::from_zero_as(growth, "latency".to_owned(), heights(series)).of_times()
}

/// A chart of which a reader chooses whether the axis of latencies is logarithmic.
fn draw_with_switch(
    series: &[Series],
    axes: impl Fn(Growth) -> (Axis, Axis),
    (about, marker_title): (&str, &MarkerTitle<'_>),
) -> Drawn {
    Drawn::with_switch(about, Growth::Auto, |growth| {
        let (x, y) = axes(growth);
        LineChart { series, x, y, marker_title }
    })
}

fn draw(
    series: &[Series],
    x: Axis,
    y: Axis,
    (about, marker_title): (&str, &MarkerTitle<'_>),
) -> Drawn {
    let chart = LineChart { series, x, y, marker_title };
    Drawn::new(about, |width| chart.draw(width, about.to_owned()))
}

fn tail_series(curve: &Curve<'_>) -> Series {
    // Forty steps a nine; beyond twelve nines there are never samples.
    let steps = (0..480u32).map(|step| f64::from(step) / 40.0);
    let places = steps.map_while(|x| {
        Some((x, positive(hdr::supported_us(curve.histogram, 1.0 - 10f64.powf(-x))?)))
    });
    let low_support = |share: f64| hdr::supported_us(curve.histogram, share).is_some();
    let known = || curve.intervals.iter().filter(|(share, _)| low_support(*share));
    Series {
        label: curve.label.clone(),
        look: curve.look,
        curve: places.collect(),
        points: known()
            .map(|(share, interval)| (nines(*share), positive(interval.value)))
            .collect(),
        ranges: known()
            .map(|(share, interval)| {
                (nines(*share), positive(interval.low), positive(interval.high))
            })
            .collect(),
    }
}

fn over_time(
    label: &str,
    look: usize,
    moments: &[Moment],
    value: impl Fn(&Moment) -> Option<f64>,
) -> Series {
    let places = moments
        .iter()
        .filter_map(|moment| Some((moment.at_s + moment.length_s / 2.0, value(moment)?)));
    Series {
        label: label.to_owned(),
        look,
        curve: places.filter(|place| place.1.is_finite()).collect(),
        ..Series::default()
    }
}

fn time_axis(moments: &[Moment]) -> Axis {
    let end = moments.iter().map(|moment| moment.at_s + moment.length_s).fold(0.0, f64::max);
    // With zero among them the axis is linear.
    Axis::covering("time (s)".to_owned(), [0.0, end])
}

/// Everything that has a height.
fn heights(series: &[Series]) -> impl Iterator<Item = f64> {
    series.iter().flat_map(|series| {
        let places = series.curve.iter().chain(&series.points).map(|&(_, y)| y);
        places.chain(series.ranges.iter().flat_map(|&(_, low, high)| [low, high]))
    })
}

fn plain_title(label: &str, (x, y): (f64, f64)) -> String {
    format!("{label}: {}, {}", four_digits(x), four_digits(y))
}

/// Number of nines of a share: 2 for 0.99.
fn nines(share: f64) -> f64 {
    -(1.0 - share).log10()
}

fn percent(share: f64) -> String {
    let text = format!("{:.4}", 100.0 * share);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A latency that a logarithmic axis can hold: nothing is drawn as 1 ns.
fn positive(latency_us: f64) -> f64 {
    latency_us.max(1e-3)
}

const PERCENTILE_TICKS: [(f64, &str); 8] = [
    (0.0, "0"),
    (0.5, "50"),
    (0.9, "90"),
    (0.99, "99"),
    (0.999, "99.9"),
    (0.9999, "99.99"),
    (0.99999, "99.999"),
    (0.999999, "99.9999"),
];
/// More lags than this have no room for marks.
const MARKED_MAX: usize = 24;
