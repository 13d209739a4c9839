//! A result as comma-separated values: one table a file, as spreadsheets and data frames read them.
//!
//! Invariant: a percentile is there only where ten samples lie beyond it; a cell without a value is
//! empty; no cell holds text from elsewhere.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::hdr;
use super::percentile::PERCENTILES;
use super::result::{MeasureResult, Point};

/// Writes the percentile curve to `path`, and the series beside it; gives the path of the latter.
///
/// # Errors
///
/// That a file cannot be written, or a histogram of the result cannot be read.
pub fn write(result: &MeasureResult, path: &Path) -> Result<PathBuf> {
    let beside = series_path(path);
    for (path, text) in [(path, curve(result)?), (&beside, series(result))] {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(beside)
}

/// Path of the series if the curve goes to `path`: `result.csv` and `result-series.csv`.
pub fn series_path(path: &Path) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path
        .extension()
        .map_or_else(String::new, |extension| format!(".{}", extension.to_string_lossy()));
    path.with_file_name(format!("{stem}-series{extension}"))
}

/// Percentile, latency from the intended send with its interval, and from the actual one; for each
/// load.
///
/// # Errors
///
/// That a histogram of the result cannot be read.
pub fn curve(result: &MeasureResult) -> Result<String> {
    let mut text = "offered_per_s,percentile,intended_us,low_us,high_us,actual_us\n".to_owned();
    for point in points(result) {
        let intended =
            hdr::decode(&point.histograms.intended).context("latencies from the intended send")?;
        let actual =
            hdr::decode(&point.histograms.actual).context("latencies from the actual send")?;
        for (share, percentile) in grid() {
            let [from_intended, from_actual] =
                [&intended, &actual].map(|histogram| hdr::supported_us(histogram, share));
            if from_intended.is_none() && from_actual.is_none() {
                continue;
            }
            let name = PERCENTILES
                .iter()
                .find(|named| (named.share - share).abs() < 1e-9)
                .map(|named| named.name);
            let interval = name.and_then(|name| point.intervals_us.get(name));
            let (low, high) =
                (interval.map(|interval| interval.low), interval.map(|interval| interval.high));
            let cells = [from_intended, low, high, from_actual].map(cell);
            let _ = writeln!(text, "{},{percentile},{}", point.rate_per_s.offered, cells.join(","));
        }
    }
    Ok(text)
}

/// Counts and percentiles over time; for each load.
pub fn series(result: &MeasureResult) -> String {
    let mut text =
        "offered_per_s,at_s,length_s,sent,replied,failed,p50_us,p99_us,max_us\n".to_owned();
    for point in points(result) {
        for moment in &point.series {
            let figures = [moment.p50_us, moment.p99_us, moment.max_us].map(cell).join(",");
            let (at, length) = (moment.at_s, moment.length_s);
            let counts = format!("{},{},{}", moment.sent, moment.replied, moment.failed);
            let _ = writeln!(text, "{},{at},{length},{counts},{figures}", point.rate_per_s.offered);
        }
    }
    text
}

/// All loads that were measured.
fn points(result: &MeasureResult) -> &[Point] {
    if result.points.is_empty() { std::slice::from_ref(&result.point) } else { &result.points }
}

/// Shares and percentiles, ascending: whole ones to 99, tenths to 99.9, and so on.
fn grid() -> impl Iterator<Item = (f64, String)> {
    let mut texts: Vec<String> = (0..=99).map(|percent: u32| percent.to_string()).collect();
    let mut nines = "99.".to_owned();
    for _ in 0..FINEST {
        texts.extend((1..=9).map(|digit| format!("{nines}{digit}")));
        nines.push('9');
    }
    // Read from the digits, since a hundredth of 99.9 is not what 0.999 is to a computer.
    texts
        .into_iter()
        .map(|text| (format!("0.{:0>2}", text.replace('.', "")).parse().unwrap_or(0.0), text))
}

fn cell(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Digits after the point of the finest percentile: 99.99999.
const FINEST: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn the_curve_ends_where_the_samples_do() {
        let curve = curve(&sample::single()).unwrap();
        let percentiles: Vec<&str> =
            curve.lines().skip(1).map(|line| line.split(',').nth(1).unwrap()).collect();
        // 100,000 samples: ten lie beyond p99.99.
        assert_eq!((percentiles[0], *percentiles.last().unwrap()), ("0", "99.99"));
        assert_eq!(percentiles.len(), 100 + 9 + 9);
    }

    #[test]
    fn a_row_has_the_interval_of_its_percentile() {
        let curve = curve(&sample::single()).unwrap();
        // The p99 of 20 us and an exponential of 15 us: 20 + 15 ln 100 = 89.08; the histogram is
        // within 0.1 %.
        let row = curve.lines().find(|line| line.starts_with("50000,99,")).unwrap();
        let cells: Vec<f64> = row.split(',').map(|cell| cell.parse().unwrap()).collect();
        assert!((cells[2] / 89.08 - 1.0).abs() < 2e-3, "{row}");
        assert!((cells[3] - 87.08).abs() < 0.01 && (cells[4] - 92.08).abs() < 0.01, "{row}");
        assert!(
            curve.lines().any(|line| line.contains(",98,") && line.contains(",,,")),
            "no interval at p98"
        );
    }

    #[test]
    fn every_row_is_as_long_as_its_head() {
        let result = sample::full();
        for text in [curve(&result).unwrap(), series(&result)] {
            let commas = text.lines().next().unwrap().matches(',').count();
            assert!(text.lines().all(|line| line.matches(',').count() == commas), "{text}");
        }
    }

    #[test]
    fn the_series_lies_beside_the_curve() {
        for (path, beside) in [
            ("a/run.csv", "a/run-series.csv"),
            ("run", "run-series"),
            ("a.b/c.d.csv", "a.b/c.d-series.csv"),
        ] {
            assert_eq!(series_path(Path::new(path)), Path::new(beside));
        }
    }
}
