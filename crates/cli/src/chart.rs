//! Charts as SVG.
//!
//! A chart is drawn for a width in CSS pixels and never scaled up or down much, so that its text
//! stays readable: a page holds a wide and a narrow one. Series differ in colour, dash and marker,
//! so that no reader depends on colour.
//!
//! Invariant: a chart brings no style but classes; [`style`] gives theirs. All text in it is
//! escaped.

mod axis;
mod hover;

use std::fmt::Write as _;

pub(crate) use self::axis::{Axis, Growth};

/// One curve, with or without markers and intervals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    pub(crate) label: String,
    /// Index of its colour, dash and marker: below [`LOOKS`]; 0 is faint, for what the others are
    /// compared with.
    pub(crate) look: usize,
    /// A line through these, by ascending x.
    pub(crate) curve: Vec<(f64, f64)>,
    /// A marker at each.
    pub(crate) points: Vec<(f64, f64)>,
    /// An upright bar at each x, from the lower end of an interval to the upper one.
    pub(crate) ranges: Vec<(f64, f64, f64)>,
}

/// The text of a marker, from the label of its series and its place.
pub(crate) type MarkerTitle<'a> = dyn Fn(&str, (f64, f64)) -> String + 'a;

/// Series in a frame, with a legend above it.
pub(crate) struct LineChart<'a> {
    pub(crate) series: &'a [Series],
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// The text of a place, a marker's or one of a curve without markers, when it is pointed at.
    pub(crate) marker_title: &'a MarkerTitle<'a>,
}

impl LineChart<'_> {
    /// True if values have the same places on another chart.
    pub(crate) fn has_axes_of(&self, other: &Self) -> bool {
        self.x == other.x && self.y == other.y
    }

    /// The chart for a width in pixels, with what it says for those who do not see it.
    ///
    /// What lies above the frame is drawn at its edge: a curve ends there, and a marker's value
    /// stands beside it.
    pub(crate) fn draw(&self, width: u32, alternative: String) -> Chart {
        let legend = Legend::new(self.series, width);
        let frame = Frame::new(&self.x, &self.y, width, legend.height());
        let mut svg = String::new();
        legend.draw(self.series, &mut svg);
        frame.draw_axes(&mut svg);
        for Series { look, curve, .. } in self.series {
            let path = frame
                .clipped(curve)
                .map(|(x, y)| format!("{x:.1},{y:.1}"))
                .collect::<Vec<_>>()
                .join(" ");
            let _ = writeln!(svg, r#"<polyline class="line s{look}" points="{path}"/>"#);
        }
        for Series { look, ranges, .. } in self.series {
            for &(x, low, high) in ranges
                .iter()
                .filter(|(x, low, high)| x.is_finite() && low.is_finite() && high.is_finite())
            {
                let inside = |y: f64| frame.y(y.min(self.y.to()).max(self.y.from()));
                let (x, low, high) = (frame.x(x), inside(low), inside(high));
                let (left, right) = (x - 4.0, x + 4.0);
                let path = format!(
                    "M{left:.1} {low:.1}H{right:.1}M{x:.1} {low:.1}V{high:.1}M{left:.1} {high:.1}H{right:.1}"
                );
                let _ = writeln!(svg, r#"<path class="range s{look}" d="{path}"/>"#);
            }
        }
        for Series { label, look, points, .. } in self.series {
            for &(x, y) in points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()) {
                let title = (self.marker_title)(label, (x, y));
                let place = (frame.x(x), frame.y(y.min(self.y.to())));
                draw_marker(&mut svg, *look, place, &title);
                if y > self.y.to() {
                    let (left, line) = (place.0 - 10.0, place.1 + 4.5);
                    let _ = writeln!(
                        svg,
                        r#"<text x="{left:.1}" y="{line:.1}" text-anchor="end">{y:.0}</text>"#
                    );
                }
            }
        }
        let hover = hover::places(self, &frame);
        Chart { hover, ..Chart::new((width, frame.bottom + AXIS_HEIGHT), alternative, svg) }
    }
}

/// A drawn chart.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    width: u32,
    height: u32,
    /// A text for those who do not see it.
    alternative: String,
    /// Elements.
    body: String,
    /// Elements that only a pointer finds, above the others.
    hover: String,
}

impl Chart {
    /// A picture of elements that carry the classes of [`style`].
    pub(crate) fn new((width, height): (u32, u32), alternative: String, body: String) -> Self {
        Self { width, height, alternative, body, hover: String::new() }
    }

    /// Charts below each other, each under its title.
    pub(crate) fn stacked(charts: &[(String, Self)], alternative: String) -> Self {
        let (mut top, mut body) = (0, String::new());
        for (title, chart) in charts {
            let _ = writeln!(
                body,
                r#"<text class="name" x="4" y="{}">{}</text>"#,
                top + 16,
                escape(title)
            );
            let _ = writeln!(
                body,
                "<g transform=\"translate(0 {})\">\n{}</g>",
                top + HEADING_HEIGHT,
                chart.body
            );
            top += HEADING_HEIGHT + chart.height + STACK_GAP;
        }
        let width = charts.iter().map(|(_, chart)| chart.width).max().unwrap_or(0);
        Self::new((width, top.saturating_sub(STACK_GAP)), alternative, body)
    }

    /// For a page that holds [`style`].
    pub(crate) fn inline(&self) -> String {
        self.element(0, "", ("", &self.hover))
    }

    /// A file of its own, on white paper, in a typeface of the reader's system.
    pub(crate) fn printed(&self, font: &str) -> String {
        let style = format!(
            "<style>\n{}.chart text {{ font-family: {}; }}\n</style>\n",
            style(Theme::Light),
            escape(font)
        );
        self.element(0, &style, ("", ""))
    }

    /// A file of its own, on a light panel that stands on any background.
    pub(crate) fn standalone(&self) -> String {
        let style =
            format!("<style>\n{}.panel {{ fill: #f6f8fa; }}\n</style>\n", style(Theme::Light));
        self.element(
            PANEL_MARGIN,
            &style,
            ("<rect class=\"panel\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n", ""),
        )
    }

    fn element(&self, margin: u32, style: &str, (panel, hover): (&str, &str)) -> String {
        let (width, height, label) =
            (self.width + 2 * margin, self.height + 2 * margin, escape(&self.alternative));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-label=\"{label}\">\n{style}{panel}\
             <g transform=\"translate({margin} {margin})\">\n{}{hover}</g>\n</svg>\n",
            self.body
        )
    }
}

/// Colours for a background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    Light,
    Dark,
}

/// The rules for the classes of every chart.
pub(crate) fn style(theme: Theme) -> String {
    let (text, faint, grid, colours) = match theme {
        Theme::Light => ("#1f2328", "#59636e", "#d1d9e0", LIGHT),
        Theme::Dark => ("#f0f3f6", "#9ea7b3", "#3d444d", DARK),
    };
    let mut css = format!(
        ".chart text {{ font: 13px system-ui, sans-serif; fill: {text}; }}\n\
         .chart .faint {{ fill: {faint}; }}\n\
         .chart .name {{ font-weight: 600; }}\n\
         .chart .grid {{ stroke: {grid}; stroke-width: 1; }}\n\
         .chart .axis {{ stroke: {faint}; stroke-width: 1; }}\n\
         .chart .line {{ fill: none; stroke-width: 2; }}\n\
         .chart .tick {{ stroke: {text}; stroke-width: 2; }}\n\
         .chart .hollow {{ fill: none; stroke-width: 1; }}\n\
         .chart .range {{ fill: none; stroke-width: 2; }}\n\
         .chart .hit {{ fill: transparent; stroke-width: 2; }}\n"
    );
    for (look, (colour, dash)) in colours.iter().zip(DASHES).enumerate() {
        let _ =
            writeln!(css, ".chart .line.s{look} {{ stroke: {colour}; stroke-dasharray: {dash}; }}");
        let _ = writeln!(css, ".chart .mark.s{look}, .chart .bar.s{look} {{ fill: {colour}; }}");
        let _ =
            writeln!(css, ".chart .hollow.s{look}, .chart .range.s{look} {{ stroke: {colour}; }}");
        let _ = writeln!(css, ".chart .hit.s{look}:hover {{ stroke: {colour}; }}");
    }
    css
}

/// Number of looks that series have.
pub(crate) const LOOKS: usize = LIGHT.len();

/// The look of the n-th series, counted from 0; more series than there are looks share them, and
/// none has look 0.
pub(crate) fn look_of(index: usize) -> usize {
    index % (LOOKS - 1) + 1
}

/// Positions of the names of the series, above the frame.
struct Legend {
    /// Left and line of each.
    places: Vec<(u32, u32)>,
}

impl Legend {
    fn new(series: &[Series], width: u32) -> Self {
        let (mut left, mut line) = (LEGEND_LEFT, 0);
        let mut places = Vec::new();
        for Series { label, .. } in series {
            let needed = LEGEND_SAMPLE + label.chars().count() as u32 * LETTER_WIDTH + LEGEND_GAP;
            if left > LEGEND_LEFT && left + needed > width {
                (left, line) = (LEGEND_LEFT, line + 1);
            }
            places.push((left, line));
            left += needed;
        }
        Self { places }
    }

    fn height(&self) -> u32 {
        self.places.last().map_or(0, |(_, line)| (line + 1) * LINE_HEIGHT)
    }

    fn draw(&self, series: &[Series], svg: &mut String) {
        for (&(left, line), Series { label, look, points, .. }) in self.places.iter().zip(series) {
            let y = 14 + line * LINE_HEIGHT;
            let _ = writeln!(
                svg,
                r#"<polyline class="line s{look}" points="{left},{y} {},{y}"/>"#,
                left + 28
            );
            if !points.is_empty() {
                draw_marker(svg, *look, (f64::from(left + 14), f64::from(y)), label);
            }
            let _ = writeln!(
                svg,
                r#"<text x="{}" y="{}">{}</text>"#,
                left + LEGEND_SAMPLE,
                y + 5,
                escape(label)
            );
        }
    }
}

/// The plane between two axes, in pixels.
struct Frame<'a> {
    left: f64,
    right: f64,
    top: f64,
    bottom: u32,
    x_axis: &'a Axis,
    y_axis: &'a Axis,
}

impl<'a> Frame<'a> {
    fn new(x_axis: &'a Axis, y_axis: &'a Axis, width: u32, legend_height: u32) -> Self {
        let top = legend_height + TITLE_HEIGHT;
        let left = (y_axis.label_len_max() * LETTER_WIDTH + 2 * LABEL_GAP).max(LEFT_MIN);
        Self {
            left: f64::from(left),
            right: f64::from(width)
                - f64::from(x_axis.last_label_len() * LETTER_WIDTH / 2).max(RIGHT_MIN),
            top: f64::from(top),
            bottom: top + PLOT_HEIGHT,
            x_axis,
            y_axis,
        }
    }

    fn x(&self, value: f64) -> f64 {
        self.left + self.x_axis.share(value) * (self.right - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        let bottom = f64::from(self.bottom);
        bottom - self.y_axis.share(value) * (bottom - self.top)
    }

    fn draw_axes(&self, svg: &mut String) {
        let (left, right, bottom) = (self.left, self.right, self.bottom);
        let title = escape(self.y_axis.title());
        let _ =
            writeln!(svg, r#"<text class="faint" x="4" y="{:.0}">{title}</text>"#, self.top - 12.0);
        for (value, label) in self.y_axis.ticks() {
            let (y, class) =
                (self.y(*value), if *value == self.y_axis.from() { "axis" } else { "grid" });
            let x = left - f64::from(LABEL_GAP);
            let _ = writeln!(
                svg,
                r#"<line class="{class}" x1="{left}" x2="{right}" y1="{y:.1}" y2="{y:.1}"/>"#
            );
            let _ = writeln!(
                svg,
                r#"<text class="faint" x="{x}" y="{:.1}" text-anchor="end">{label}</text>"#,
                y + 4.5
            );
        }
        for (value, label) in self.labels() {
            let (x, y, label) = (self.x(*value), bottom + 18, escape(label));
            let _ = writeln!(
                svg,
                r#"<line class="axis" x1="{x:.1}" x2="{x:.1}" y1="{bottom}" y2="{}"/>"#,
                bottom + 4
            );
            let _ = writeln!(
                svg,
                r#"<text class="faint" x="{x:.1}" y="{y}" text-anchor="middle">{label}</text>"#
            );
        }
        let (x, y, title) = ((left + right) / 2.0, bottom + 38, escape(self.x_axis.title()));
        let _ = writeln!(
            svg,
            r#"<text class="faint" x="{x:.0}" y="{y}" text-anchor="middle">{title}</text>"#
        );
    }

    /// The ticks of the x axis whose labels have room beside each other.
    fn labels(&self) -> impl Iterator<Item = &(f64, String)> {
        let mut free_from = f64::NEG_INFINITY;
        self.x_axis.ticks().iter().filter(move |(value, label)| {
            let (x, half) =
                (self.x(*value), label.chars().count() as f64 * f64::from(LETTER_WIDTH) / 2.0);
            let has_room = x - half >= free_from;
            if has_room {
                free_from = x + half + f64::from(LABEL_GAP);
            }
            has_room
        })
    }

    /// The curve in pixels up to where it leaves the frame.
    fn clipped<'c>(&'c self, curve: &'c [(f64, f64)]) -> impl Iterator<Item = (f64, f64)> + 'c {
        let y_max = self.y_axis.to();
        let inside = curve.iter().take_while(move |(_, y)| *y <= y_max).copied();
        let leaving =
            curve.windows(2).find(|pair| pair[0].1 <= y_max && pair[1].1 > y_max).map(|pair| {
                let share = (y_max - pair[0].1) / (pair[1].1 - pair[0].1);
                (pair[0].0 + share * (pair[1].0 - pair[0].0), y_max)
            });
        inside.chain(leaving).map(|(x, y)| (self.x(x), self.y(y)))
    }
}

fn draw_marker(svg: &mut String, look: usize, (x, y): (f64, f64), title: &str) {
    let shape = match look % 4 {
        1 => format!(r#"<circle class="mark s{look}" cx="{x:.1}" cy="{y:.1}" r="5">"#),
        2 => format!(
            r#"<rect class="mark s{look}" x="{:.1}" y="{:.1}" width="9" height="9">"#,
            x - 4.5,
            y - 4.5
        ),
        3 => polygon(look, (x, y), &[(0.0, -6.5), (6.0, 4.5), (-6.0, 4.5)]),
        _ => polygon(look, (x, y), &[(0.0, -6.5), (6.5, 0.0), (0.0, 6.5), (-6.5, 0.0)]),
    };
    let element = shape[1..].split(' ').next().unwrap_or_default();
    let _ = writeln!(svg, "{shape}<title>{}</title></{element}>", escape(title));
}

fn polygon(look: usize, (x, y): (f64, f64), corners: &[(f64, f64)]) -> String {
    let corners: Vec<String> =
        corners.iter().map(|(right, down)| format!("{:.1},{:.1}", x + right, y + down)).collect();
    format!(r#"<polygon class="mark s{look}" points="{}">"#, corners.join(" "))
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// After Okabe and Ito (2008), who chose them for all kinds of colour vision; darkened for contrast
/// on white.
const LIGHT: [&str; 9] = [
    "#59636e", "#c04a00", "#a3650a", "#0a66a8", "#007a59", "#a8447f", "#1a7f9c", "#6f5b00",
    "#8a3ffc",
];
const DARK: [&str; 9] = [
    "#9ea7b3", "#ff8a4c", "#f0b429", "#58b0f0", "#2fd0a0", "#e58fc4", "#6fd3ee", "#e3d96b",
    "#c4a1ff",
];
const DASHES: [&str; 9] =
    ["2 4", "none", "8 4", "12 3 2 3", "none", "6 3", "3 3", "10 4", "8 2 2 2"];

// Pixels.
/// For a page.
pub(crate) const WIDE: u32 = 760;
/// For a page on a telephone.
pub(crate) const NARROW: u32 = 340;
const PLOT_HEIGHT: u32 = 300;
const AXIS_HEIGHT: u32 = 48;
const TITLE_HEIGHT: u32 = 36;
const LINE_HEIGHT: u32 = 24;
const LEGEND_LEFT: u32 = 4;
const LEGEND_SAMPLE: u32 = 36;
const LEGEND_GAP: u32 = 16;
/// Width of an average letter at 13 px, generously.
const LETTER_WIDTH: u32 = 8;
/// Between a label and its axis, and between two labels.
const LABEL_GAP: u32 = 6;
/// Room for the labels of the y axis.
const LEFT_MIN: u32 = 36;
/// Room for half of the last label of the x axis.
const RIGHT_MIN: f64 = 12.0;
/// Height of the title of a chart among others, and the gap between them.
const HEADING_HEIGHT: u32 = 28;
const STACK_GAP: u32 = 20;
/// Around a chart in a file of its own.
const PANEL_MARGIN: u32 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_ends_where_it_leaves_the_frame() {
        let (x, y) = (
            Axis::covering("load".into(), [0.2, 0.6]),
            Axis::linear("p99".into(), (0.0, 12.0), 2.0),
        );
        let frame = Frame::new(&x, &y, 400, 0);
        // The frame ends at 12, 7 of the 10 that the curve rises.
        let end = frame.clipped(&[(0.2, 5.0), (0.6, 15.0)]).last().unwrap();
        assert!(
            (end.0 - frame.x(0.48)).abs() < 1e-9 && (end.1 - frame.top).abs() < 1e-9,
            "{end:?}"
        );
    }

    #[test]
    fn labels_without_room_are_left_out() {
        let labels = (0..20).map(|index| format!("category {index}"));
        let (x, y) = (
            Axis::categories("kind".into(), labels.collect()),
            Axis::from_zero("p99".into(), [1.0]),
        );
        let frame = Frame::new(&x, &y, NARROW, 0);
        let written: Vec<f64> = frame.labels().map(|&(value, _)| value).collect();
        // Of ten or eleven letters each; 36 pixels are left of the frame and 44 right of it.
        let pitch = (f64::from(NARROW) - 36.0 - 44.0) / 19.0;
        let apart = written.windows(2).map(|pair| (pair[1] - pair[0]) * pitch);
        assert!(
            written.len() > 2 && apart.clone().all(|pixels| (80.0..94.0 + pitch).contains(&pixels)),
            "{written:?}"
        );
    }

    #[test]
    fn a_file_of_its_own_brings_its_style() {
        let svg = Chart::new((400, 0), "nothing".into(), String::new()).standalone();
        assert!(
            svg.starts_with("<svg xmlns=") && svg.contains("<style>") && svg.ends_with("</svg>\n")
        );
        assert!(!svg.contains("href") && !svg.contains("url("), "nothing from elsewhere");
    }

    #[test]
    fn colours_stand_out_from_their_background() {
        // WCAG 2.1 asks 3:1 of graphics; the light panel is the darker of the two light
        // backgrounds.
        for (colours, background) in [(LIGHT, "#f6f8fa"), (DARK, "#0d1117")] {
            for colour in colours {
                let (one, other) = (luminance(colour), luminance(background));
                let contrast = (one.max(other) + 0.05) / (one.min(other) + 0.05);
                assert!(contrast >= 3.0, "{colour} on {background}: {contrast:.2}");
            }
        }
    }

    fn luminance(colour: &str) -> f64 {
        let channel = |at: usize| {
            let share = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }
}
