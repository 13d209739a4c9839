//! Targets of a pointer on a chart: the values of curves that have no markers.
//!
//! A browser shows a title by itself, and a style makes the ring: a page needs no script for it.
//!
//! Invariant: places of a curve are so far apart that each can be pointed at, and its last is among
//! them.

use std::fmt::Write as _;

use super::{Frame, LineChart, Series, escape};

/// Rings on curves without markers, each with the text of its place.
pub(super) fn places(chart: &LineChart<'_>, frame: &Frame<'_>) -> String {
    let mut svg = String::new();
    for Series { label, look, curve, .. } in chart.series.iter().filter(|one| one.points.is_empty())
    {
        for place in apart(curve, frame) {
            let (x, y) = (frame.x(place.0), frame.y(place.1));
            let title = escape(&(chart.marker_title)(label, place));
            let _ = writeln!(
                svg,
                r#"<circle class="hit s{look}" cx="{x:.1}" cy="{y:.1}" r="6"><title>{title}</title></circle>"#
            );
        }
    }
    svg
}

/// The places of a curve inside the frame that are [`APART`] pixels from the one before.
fn apart(curve: &[(f64, f64)], frame: &Frame<'_>) -> Vec<(f64, f64)> {
    let is_inside = |&(x, y): &(f64, f64)| {
        x.is_finite() && y.is_finite() && y <= frame.y_axis.to() && y >= frame.y_axis.from()
    };
    let inside: Vec<(f64, f64)> = curve.iter().copied().take_while(is_inside).collect();
    let mut chosen: Vec<(f64, f64)> = Vec::new();
    for (index, &place) in inside.iter().enumerate() {
        let is_last = index + 1 == inside.len();
        let distance = chosen.last().map_or(f64::INFINITY, |&(x, y)| {
            (frame.x(place.0) - frame.x(x)).hypot(frame.y(place.1) - frame.y(y))
        });
        if distance < APART && is_last {
            chosen.pop();
        }
        if distance >= APART || is_last {
            chosen.push(place);
        }
    }
    chosen
}

/// Pixels between the middles of two rings, which are 12 wide.
const APART: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Axis;

    fn svg(series: &[Series]) -> String {
        let (x, y) = (
            Axis::covering("time (s)".into(), [0.0, 1.0]),
            Axis::linear("latency".into(), (0.0, 12.0), 2.0),
        );
        let title = |label: &str, (x, y): (f64, f64)| format!("{label} at <{x}>: {y}");
        let chart = LineChart { series, x, y, marker_title: &title };
        chart.draw(400, "a curve".into()).inline()
    }

    #[test]
    fn a_curve_tells_its_values_where_they_can_be_pointed_at() {
        let curve: Vec<(f64, f64)> = (0..=1000u32).map(|x| (f64::from(x) / 1e3, 5.0)).collect();
        let svg = svg(&[Series { label: "p99".into(), look: 1, curve, ..Series::default() }]);
        // 352 pixels between the axis and the right edge.
        let rings = svg.matches("<circle class=\"hit s1\"").count();
        assert!((20..=22).contains(&rings), "{rings}");
        assert!(svg.contains("<title>p99 at &lt;0&gt;: 5</title>"));
        assert!(svg.contains("<title>p99 at &lt;1&gt;: 5</title>"), "the last place is told");
    }

    #[test]
    fn markers_and_what_lies_above_the_frame_have_no_rings() {
        let curve = vec![(0.0, 5.0), (1.0, 15.0)];
        let marked = Series { points: curve.clone(), curve: curve.clone(), ..Series::default() };
        assert!(!svg(&[marked]).contains("hit"));
        let above = svg(&[Series { curve, ..Series::default() }]);
        assert_eq!(above.matches("<circle class=\"hit").count(), 1, "{above}");
    }
}
