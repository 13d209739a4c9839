//! A reproduced figure: its curves as CSV and as SVG, and the verdicts on it.

use super::verdict::Verdict;
use crate::chart::{Axis, Chart, LineChart, Series, WIDE, look_of};

/// What a reproduction gives.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    pub(super) panels: Vec<Panel>,
    pub(super) verdicts: Vec<Verdict>,
}

/// Curves over one pair of axes.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    /// With its unit.
    pub(super) x: &'static str,
    /// With its unit.
    pub(super) y: &'static str,
    /// Where the picture ends; `None` for the highest value.
    pub(super) y_max: Option<f64>,
    pub(super) curves: Vec<Curve>,
}

/// One curve: what was obtained is a line, what was published or is exact are marks.
#[derive(Clone, Debug, Default)]
pub(super) struct Curve {
    pub(super) label: String,
    /// By ascending x.
    pub(super) obtained: Vec<(f64, f64)>,
    /// By ascending x.
    pub(super) expected: Vec<(f64, f64)>,
}

impl Figure {
    /// A line for each point: panel, curve, whether it was obtained or is expected, x and y.
    pub(super) fn csv(&self) -> String {
        let mut text = "panel,curve,kind,x,y\n".to_owned();
        for panel in &self.panels {
            for curve in &panel.curves {
                let obtained = curve.obtained.iter().map(|point| ("obtained", point));
                let expected = curve.expected.iter().map(|point| ("expected", point));
                for (kind, (x, y)) in obtained.chain(expected) {
                    text += &format!(
                        "{},{},{kind},{x},{y}\n",
                        quoted(&panel.title),
                        quoted(&curve.label)
                    );
                }
            }
        }
        text
    }

    /// The panels below each other, as a file of its own.
    pub(super) fn svg(&self, name: &str) -> String {
        let panels: Vec<(String, Chart)> =
            self.panels.iter().map(|panel| (panel.title.clone(), panel.chart())).collect();
        Chart::stacked(
            &panels,
            format!("{name}: lines are simulated here, marks are published or exact"),
        )
        .standalone()
    }
}

impl Panel {
    fn chart(&self) -> Chart {
        let series: Vec<Series> =
            self.curves.iter().enumerate().map(|(index, curve)| curve.series(index)).collect();
        let points = || series.iter().flat_map(|series| series.curve.iter().chain(&series.points));
        let x = Axis::covering(self.x.to_owned(), points().map(|point| point.0));
        let y_max = self.y_max.unwrap_or(f64::INFINITY);
        let y = Axis::from_zero(self.y.to_owned(), points().map(|point| point.1.min(y_max)));
        let marker_title = |label: &str, (x, y): (f64, f64)| format!("{label}: {y} at {x}");
        LineChart { series: &series, x, y, marker_title: &marker_title }
            .draw(WIDE, self.title.clone())
    }
}

impl Curve {
    fn series(&self, index: usize) -> Series {
        let Self { label, obtained, expected } = self.clone();
        Series {
            label,
            look: look_of(index),
            curve: obtained,
            points: expected,
            ranges: Vec::new(),
        }
    }
}

fn quoted(cell: &str) -> String {
    if cell.contains(',') { format!("\"{cell}\"") } else { cell.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_has_a_line_and_every_curve_a_path() {
        let curve = |label: &str| Curve {
            label: label.to_owned(),
            obtained: vec![(0.5, 1.0), (0.9, 3.0)],
            expected: vec![(0.9, 3.1)],
        };
        let panel = |title: &str| Panel {
            title: title.to_owned(),
            x: "load",
            y: "p99 (mean service times)",
            y_max: None,
            curves: vec![curve("1x16"), curve("a, b")],
        };
        let figure = Figure { panels: vec![panel("fixed"), panel("exp")], verdicts: vec![] };
        let csv = figure.csv();
        assert_eq!(csv.lines().count(), 13);
        assert!(csv.contains("\nexp,\"a, b\",expected,0.9,3.1\n"), "{csv}");
        let svg = figure.svg("test");
        // A sample in the legend and the curve itself, in both panels.
        assert_eq!(svg.matches("<polyline class=\"line s2\"").count(), 4);
        assert_eq!(svg.matches("<svg ").count(), 1);
    }
}
