//! The charts of the demonstration: the p99 over the load, and percentiles at one load.

use std::fmt::Write as _;

use super::predict::Figures;
use crate::chart::{Axis, Chart, LineChart, Series, escape};

/// One policy at one load.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) label: String,
    pub(super) look: usize,
    pub(super) measured: Option<Figures>,
    pub(super) predicted: Figures,
}

/// The p99 over the load: curves are predictions, markers are measurements. `unit` is what a mean
/// service time is.
pub(super) fn load_chart(series: &[Series], unit: &str, width: u32, alternative: String) -> Chart {
    let marker_title = |label: &str, (load, p99): (f64, f64)| {
        format!("{label} at {:.0} %: measured {p99:.1}", 100.0 * load)
    };
    LineChart {
        series,
        x: load_axis(series),
        y: p99_axis(series, unit),
        marker_title: &marker_title,
    }
    .draw(width, alternative)
}

/// Percentiles at one load: bars are measurements, ticks are predictions.
pub(super) fn bar_chart(groups: &[Group], width: u32, alternative: String) -> Chart {
    let longest_of = |figures: &mut dyn Iterator<Item = Figures>| {
        figures.map(|figures| figures.p999).fold(1.0, f64::max)
    };
    let longest_predicted = longest_of(&mut groups.iter().map(|group| group.predicted));
    let longest = longest_of(&mut groups.iter().filter_map(|group| group.measured))
        .clamp(longest_predicted, OUTLIER * longest_predicted);
    let scale = f64::from(width - BAR_LEFT - BAR_VALUE_WIDTH) / longest;
    let height = groups.len() as u32 * GROUP_HEIGHT + 4;
    let mut svg = String::new();
    for (row, group) in (0u32..).zip(groups) {
        draw_group(&mut svg, group, row * GROUP_HEIGHT, (scale, longest));
    }
    Chart::new((width, height), alternative, svg)
}

/// Tenths, in percent.
fn load_axis(series: &[Series]) -> Axis {
    let loads = || {
        series
            .iter()
            .flat_map(|series| series.curve.iter().chain(&series.points))
            .map(|&(load, _)| load)
    };
    let (from, to) = (loads().fold(1.0, f64::min), loads().fold(0.0, f64::max));
    let tenths = (1..10).map(|tenth| (f64::from(tenth) / 10.0, format!("{} %", 10 * tenth)));
    let ticks = tenths.filter(|&(load, _)| load >= from - 1e-9 && load <= to).collect();
    Axis::with_ticks("load".to_owned(), (from, to), ticks)
}

/// As high as the predictions and what is measured not too far above them.
fn p99_axis(series: &[Series], unit: &str) -> Axis {
    let measured = || series.iter().flat_map(|series| &series.points);
    let last_load = measured().map(|&(load, _)| load).fold(0.0, f64::max);
    let curves = series.iter().flat_map(|series| &series.curve);
    let predicted =
        curves.filter(|&&(load, _)| load <= last_load).map(|&(_, p99)| p99).fold(LEAST, f64::max);
    let highest =
        measured().map(|&(_, p99)| p99).fold(predicted, f64::max).min(OUTLIER * predicted);
    let step = STEPS.into_iter().find(|step| highest / step <= 8.0).unwrap_or(highest / 8.0);
    let title = format!("p99 sojourn time, in mean service times ({unit})");
    Axis::linear(title, (0.0, (highest * 1.05 / step).ceil() * step), step)
}

/// Bars of `scale` pixels a service that end at `longest` services.
fn draw_group(svg: &mut String, group: &Group, top: u32, (scale, longest): (f64, f64)) {
    let Group { label, look, measured, predicted } = group;
    let _ = writeln!(svg, r#"<text class="name" x="0" y="{}">{}</text>"#, top + 16, escape(label));
    let rows = [("p50", 0), ("p99", 1), ("p99.9", 2)];
    for ((name, percentile), row) in rows.into_iter().zip(0u32..) {
        let of = |figures: &Figures| [figures.p50, figures.p99, figures.p999][percentile];
        let (y, expected) = (top + 24 + row * BAR_PITCH, of(predicted));
        let shown = measured.as_ref().map_or(expected, of);
        let class = if measured.is_some() { "bar" } else { "hollow" };
        let drawn = shown.min(longest);
        let (length, end) =
            (drawn * scale, drawn.max(expected) * scale + f64::from(BAR_LEFT) + 8.0);
        let _ = writeln!(
            svg,
            r#"<text class="faint" x="{}" y="{}" text-anchor="end">{name}</text>"#,
            BAR_LEFT - 6,
            y + 12
        );
        let _ = writeln!(
            svg,
            r#"<rect class="{class} s{look}" x="{BAR_LEFT}" y="{y}" width="{length:.1}" height="14"/>"#
        );
        if measured.is_some() {
            let x = expected * scale + f64::from(BAR_LEFT);
            let _ = writeln!(
                svg,
                r#"<line class="tick" x1="{x:.1}" x2="{x:.1}" y1="{}" y2="{}"/>"#,
                y - 2,
                y + 16
            );
        }
        let _ = writeln!(svg, r#"<text x="{end:.1}" y="{}">{shown:.1}</text>"#, y + 12);
    }
}

/// Largest multiple of the prediction that is drawn to scale: what is measured beyond it is drawn
/// at the edge, so that it does not hide the rest.
const OUTLIER: f64 = 1.5;
/// The least that the axis reaches to, in mean services.
const LEAST: f64 = 5.0;
const STEPS: [f64; 6] = [2.0, 5.0, 10.0, 20.0, 50.0, 100.0];

// Pixels.
const GROUP_HEIGHT: u32 = 98;
const BAR_PITCH: u32 = 22;
const BAR_LEFT: u32 = 48;
const BAR_VALUE_WIDTH: u32 = 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_chart_is_drawn_as_recorded() {
        let bound = Series {
            label: "one queue".into(),
            curve: vec![(0.3, 4.6), (0.9, 6.0)],
            ..Series::default()
        };
        let random = Series {
            label: "random <1>".into(),
            look: 1,
            curve: vec![(0.3, 6.6), (0.6, 11.5), (0.9, 46.1)],
            points: vec![(0.5, 9.4)],
            ranges: vec![],
        };
        insta::assert_snapshot!(
            load_chart(&[bound, random], "= ms", 400, "p99 \"over\" load".into()).inline()
        );
    }

    #[test]
    fn a_bar_chart_is_drawn_as_recorded() {
        let figures = |p50: f64| Figures { mean: 1.4 * p50, p50, p99: 6.6 * p50, p999: 10.0 * p50 };
        let random = Group {
            label: "random".into(),
            look: 1,
            measured: Some(figures(2.0)),
            predicted: figures(2.3),
        };
        let bound =
            Group { label: "one queue".into(), look: 0, measured: None, predicted: figures(0.8) };
        insta::assert_snapshot!(bar_chart(&[random, bound], 400, "percentiles".into()).inline());
    }
}
