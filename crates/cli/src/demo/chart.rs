//! Charts as SVG: the p99 over the load, and percentiles at one load.
//!
//! A chart is drawn for a width in CSS pixels and never scaled up or down much, so that its text stays readable: the page
//! holds a wide and a narrow one. Series differ in colour, dash and marker, so that no reader depends on colour.
//!
//! Invariant: a chart brings no style but classes; [`style`] gives theirs. All text in it is escaped.

use std::fmt::Write as _;

use super::predict::{Curve, Figures};

/// One policy over the load.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) label: String,
    /// Which colour, dash and marker: 0 is the bound, policies count from 1.
    pub(super) look: usize,
    /// Predicted.
    pub(super) curve: Curve,
    /// Measured: load and p99.
    pub(super) points: Vec<(f64, f64)>,
}

/// One policy at one load.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) label: String,
    pub(super) look: usize,
    pub(super) measured: Option<Figures>,
    pub(super) predicted: Figures,
}

/// A drawn chart.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    width: u32,
    height: u32,
    /// What it says, for those who do not see it.
    alternative: String,
    /// Elements.
    body: String,
}

impl Chart {
    /// For a page that holds [`style`].
    pub(super) fn inline(&self) -> String {
        self.element(0, "", "")
    }

    /// A file of its own, on a light panel that stands on any background.
    pub(super) fn standalone(&self) -> String {
        let style = format!("<style>\n{}.panel {{ fill: #f6f8fa; }}\n</style>\n", style(Theme::Light));
        self.element(PANEL_MARGIN, &style, "<rect class=\"panel\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n")
    }

    fn element(&self, margin: u32, style: &str, panel: &str) -> String {
        let (width, height, label) = (self.width + 2 * margin, self.height + 2 * margin, escape(&self.alternative));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-label=\"{label}\">\n{style}{panel}\
             <g transform=\"translate({margin} {margin})\">\n{}</g>\n</svg>\n",
            self.body
        )
    }
}

/// Colours for a background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Theme {
    Light,
    Dark,
}

/// The p99 over the load: curves are predictions, markers are measurements.
pub(super) fn load_chart(series: &[Series], width: u32, alternative: String) -> Chart {
    let legend = Legend::new(series, width);
    let frame = Frame::new(series, width, legend.height());
    let mut svg = String::new();
    legend.draw(series, &mut svg);
    frame.draw_axes(&mut svg);
    for Series { look, curve, .. } in series {
        let path = frame.clipped(curve).map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ");
        let _ = writeln!(svg, r#"<polyline class="line s{look}" points="{path}"/>"#);
    }
    for Series { label, look, points, .. } in series {
        for &(load, p99) in points {
            let title = format!("{label} at {:.0} %: measured {p99:.1}", 100.0 * load);
            let place = (frame.x(load), frame.y(p99.min(frame.p99_max)));
            draw_marker(&mut svg, *look, place, &title);
            if p99 > frame.p99_max {
                let (x, y) = (place.0 - 10.0, place.1 + 4.5);
                let _ = writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="end">{p99:.0}</text>"#);
            }
        }
    }
    Chart { width, height: frame.bottom + AXIS_HEIGHT, alternative, body: svg }
}

/// Percentiles at one load: bars are measurements, ticks are predictions.
pub(super) fn bar_chart(groups: &[Group], width: u32, alternative: String) -> Chart {
    let longest_of = |figures: &mut dyn Iterator<Item = Figures>| figures.map(|figures| figures.p999).fold(1.0, f64::max);
    let longest_predicted = longest_of(&mut groups.iter().map(|group| group.predicted));
    let longest =
        longest_of(&mut groups.iter().filter_map(|group| group.measured)).clamp(longest_predicted, OUTLIER * longest_predicted);
    let scale = f64::from(width - BAR_LEFT - BAR_VALUE_WIDTH) / longest;
    let height = groups.len() as u32 * GROUP_HEIGHT + 4;
    let mut svg = String::new();
    for (row, group) in (0u32..).zip(groups) {
        draw_group(&mut svg, group, row * GROUP_HEIGHT, (scale, longest));
    }
    Chart { width, height, alternative, body: svg }
}

/// The rules for the classes of every chart.
pub(super) fn style(theme: Theme) -> String {
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
         .chart .hollow {{ fill: none; stroke-width: 1; }}\n"
    );
    for (look, (colour, dash)) in colours.iter().zip(DASHES).enumerate() {
        let _ = writeln!(css, ".chart .line.s{look} {{ stroke: {colour}; stroke-dasharray: {dash}; }}");
        let _ = writeln!(css, ".chart .mark.s{look}, .chart .bar.s{look} {{ fill: {colour}; }}");
        let _ = writeln!(css, ".chart .hollow.s{look} {{ stroke: {colour}; }}");
    }
    css
}

/// How many policies look different.
pub(super) const LOOKS: usize = LIGHT.len();

/// Where the names of the series stand, above the frame.
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
            let _ = writeln!(svg, r#"<polyline class="line s{look}" points="{left},{y} {},{y}"/>"#, left + 28);
            if !points.is_empty() {
                draw_marker(svg, *look, (f64::from(left + 14), f64::from(y)), label);
            }
            let _ = writeln!(svg, r#"<text x="{}" y="{}">{}</text>"#, left + LEGEND_SAMPLE, y + 5, escape(label));
        }
    }
}

/// The plane of load and p99, in pixels.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: u32,
    /// Loads at the edges.
    loads: (f64, f64),
    /// At the top; services.
    p99_max: f64,
    /// Between lines of the grid; services.
    p99_step: f64,
}

impl Frame {
    fn new(series: &[Series], width: u32, legend_height: u32) -> Self {
        let curves = || series.iter().flat_map(|series| &series.curve);
        let measured = || series.iter().flat_map(|series| &series.points);
        let loads = || curves().chain(measured()).map(|&(load, _)| load);
        let last_load = measured().map(|&(load, _)| load).fold(0.0, f64::max);
        let predicted = curves().filter(|&&(load, _)| load <= last_load).map(|&(_, p99)| p99).fold(10.0, f64::max);
        let highest = measured().map(|&(_, p99)| p99).fold(predicted, f64::max).min(OUTLIER * predicted);
        let p99_step = STEPS.into_iter().find(|step| highest / step <= 8.0).unwrap_or(highest / 8.0);
        let top = legend_height + TITLE_HEIGHT;
        Self {
            left: 36.0,
            right: f64::from(width) - 12.0,
            top: f64::from(top),
            bottom: top + PLOT_HEIGHT,
            loads: (loads().fold(1.0, f64::min), loads().fold(0.0, f64::max)),
            p99_max: (highest * 1.05 / p99_step).ceil() * p99_step,
            p99_step,
        }
    }

    fn x(&self, load: f64) -> f64 {
        self.left + (load - self.loads.0) / (self.loads.1 - self.loads.0) * (self.right - self.left)
    }

    fn y(&self, p99: f64) -> f64 {
        let bottom = f64::from(self.bottom);
        bottom - p99 / self.p99_max * (bottom - self.top)
    }

    fn draw_axes(&self, svg: &mut String) {
        let (left, right, bottom) = (self.left, self.right, self.bottom);
        let _ = writeln!(svg, r#"<text class="faint" x="4" y="{:.0}">{Y_TITLE}</text>"#, self.top - 12.0);
        for step in 0..=(self.p99_max / self.p99_step).round() as u32 {
            let p99 = f64::from(step) * self.p99_step;
            let (y, class) = (self.y(p99), if step == 0 { "axis" } else { "grid" });
            let _ = writeln!(svg, r#"<line class="{class}" x1="{left}" x2="{right}" y1="{y:.1}" y2="{y:.1}"/>"#);
            let _ = writeln!(svg, r#"<text class="faint" x="{}" y="{:.1}" text-anchor="end">{p99}</text>"#, left - 6.0, y + 4.5);
        }
        for tenth in 1..10 {
            let load = f64::from(tenth) / 10.0;
            if load < self.loads.0 - 1e-9 || load > self.loads.1 {
                continue;
            }
            let (x, y) = (self.x(load), bottom + 18);
            let text = format!("{} %", 10 * tenth);
            let _ = writeln!(svg, r#"<line class="axis" x1="{x:.1}" x2="{x:.1}" y1="{bottom}" y2="{}"/>"#, bottom + 4);
            let _ = writeln!(svg, r#"<text class="faint" x="{x:.1}" y="{y}" text-anchor="middle">{text}</text>"#);
        }
        let (x, y) = ((left + right) / 2.0, bottom + 38);
        let _ = writeln!(svg, r#"<text class="faint" x="{x:.0}" y="{y}" text-anchor="middle">{X_TITLE}</text>"#);
    }

    /// The curve in pixels up to where it leaves the frame.
    fn clipped<'c>(&'c self, curve: &'c Curve) -> impl Iterator<Item = (f64, f64)> + 'c {
        let inside = curve.iter().take_while(|(_, p99)| *p99 <= self.p99_max).copied();
        let leaving = curve.windows(2).find(|pair| pair[0].1 <= self.p99_max && pair[1].1 > self.p99_max).map(|pair| {
            let share = (self.p99_max - pair[0].1) / (pair[1].1 - pair[0].1);
            (pair[0].0 + share * (pair[1].0 - pair[0].0), self.p99_max)
        });
        inside.chain(leaving).map(|(load, p99)| (self.x(load), self.y(p99)))
    }
}

fn draw_marker(svg: &mut String, look: usize, (x, y): (f64, f64), title: &str) {
    let shape = match look % 4 {
        1 => format!(r#"<circle class="mark s{look}" cx="{x:.1}" cy="{y:.1}" r="5">"#),
        2 => format!(r#"<rect class="mark s{look}" x="{:.1}" y="{:.1}" width="9" height="9">"#, x - 4.5, y - 4.5),
        3 => polygon(look, (x, y), &[(0.0, -6.5), (6.0, 4.5), (-6.0, 4.5)]),
        _ => polygon(look, (x, y), &[(0.0, -6.5), (6.5, 0.0), (0.0, 6.5), (-6.5, 0.0)]),
    };
    let element = shape[1..].split(' ').next().unwrap_or_default();
    let _ = writeln!(svg, "{shape}<title>{}</title></{element}>", escape(title));
}

fn polygon(look: usize, (x, y): (f64, f64), corners: &[(f64, f64)]) -> String {
    let corners: Vec<String> = corners.iter().map(|(right, down)| format!("{:.1},{:.1}", x + right, y + down)).collect();
    format!(r#"<polygon class="mark s{look}" points="{}">"#, corners.join(" "))
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
        let (length, end) = (drawn * scale, drawn.max(expected) * scale + f64::from(BAR_LEFT) + 8.0);
        let _ = writeln!(svg, r#"<text class="faint" x="{}" y="{}" text-anchor="end">{name}</text>"#, BAR_LEFT - 6, y + 12);
        let _ = writeln!(svg, r#"<rect class="{class} s{look}" x="{BAR_LEFT}" y="{y}" width="{length:.1}" height="14"/>"#);
        if measured.is_some() {
            let x = expected * scale + f64::from(BAR_LEFT);
            let _ = writeln!(svg, r#"<line class="tick" x1="{x:.1}" x2="{x:.1}" y1="{}" y2="{}"/>"#, y - 2, y + 16);
        }
        let _ = writeln!(svg, r#"<text x="{end:.1}" y="{}">{shown:.1}</text>"#, y + 12);
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// After Okabe and Ito (2008), who chose them for all kinds of colour vision; darkened for contrast on white.
const LIGHT: [&str; 9] = ["#59636e", "#c04a00", "#a3650a", "#0a66a8", "#007a59", "#a8447f", "#1a7f9c", "#6f5b00", "#8a3ffc"];
const DARK: [&str; 9] = ["#9ea7b3", "#ff8a4c", "#f0b429", "#58b0f0", "#2fd0a0", "#e58fc4", "#6fd3ee", "#e3d96b", "#c4a1ff"];
const DASHES: [&str; 9] = ["2 4", "none", "8 4", "12 3 2 3", "none", "6 3", "3 3", "10 4", "8 2 2 2"];
/// What is measured beyond so many times what is predicted is drawn at the edge, so that it does not hide the rest.
const OUTLIER: f64 = 1.5;
const STEPS: [f64; 6] = [2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
const Y_TITLE: &str = "p99 sojourn time, in mean service times (= ms)";
const X_TITLE: &str = "load";

// Pixels.
const PLOT_HEIGHT: u32 = 300;
const AXIS_HEIGHT: u32 = 48;
const TITLE_HEIGHT: u32 = 36;
const LINE_HEIGHT: u32 = 24;
const LEGEND_LEFT: u32 = 4;
const LEGEND_SAMPLE: u32 = 36;
const LEGEND_GAP: u32 = 16;
/// Of an average letter at 13 px, generously.
const LETTER_WIDTH: u32 = 8;
/// Around a chart in a file of its own.
const PANEL_MARGIN: u32 = 14;
const GROUP_HEIGHT: u32 = 98;
const BAR_PITCH: u32 = 22;
const BAR_LEFT: u32 = 48;
const BAR_VALUE_WIDTH: u32 = 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_chart_is_drawn_as_recorded() {
        let bound = Series { label: "one queue".into(), look: 0, curve: vec![(0.3, 4.6), (0.9, 6.0)], points: vec![] };
        let random = Series {
            label: "random <1>".into(),
            look: 1,
            curve: vec![(0.3, 6.6), (0.6, 11.5), (0.9, 46.1)],
            points: vec![(0.5, 9.4)],
        };
        insta::assert_snapshot!(load_chart(&[bound, random], 400, "p99 \"over\" load".into()).inline());
    }

    #[test]
    fn a_bar_chart_is_drawn_as_recorded() {
        let figures = |p50: f64| Figures { mean: 1.4 * p50, p50, p99: 6.6 * p50, p999: 10.0 * p50 };
        let random = Group { label: "random".into(), look: 1, measured: Some(figures(2.0)), predicted: figures(2.3) };
        let bound = Group { label: "one queue".into(), look: 0, measured: None, predicted: figures(0.8) };
        insta::assert_snapshot!(bar_chart(&[random, bound], 400, "percentiles".into()).inline());
    }

    #[test]
    fn a_curve_ends_where_it_leaves_the_frame() {
        let series = Series { label: String::new(), look: 1, curve: vec![(0.2, 5.0), (0.6, 15.0)], points: vec![(0.2, 5.0)] };
        let frame = Frame::new(std::slice::from_ref(&series), 400, 0);
        // The frame ends at 12 services, 7 of the 10 that the curve rises.
        assert_eq!(frame.p99_max, 12.0);
        let end = frame.clipped(&series.curve).last().unwrap();
        assert!((end.0 - frame.x(0.48)).abs() < 1e-9 && (end.1 - frame.top).abs() < 1e-9, "{end:?}");
    }

    #[test]
    fn a_file_of_its_own_brings_its_style() {
        let svg = bar_chart(&[], 400, "nothing".into()).standalone();
        assert!(svg.starts_with("<svg xmlns=") && svg.contains("<style>") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("href") && !svg.contains("url("), "nothing from elsewhere");
    }

    #[test]
    fn colours_stand_out_from_their_background() {
        // WCAG 2.1 asks 3:1 of graphics; the light panel is the darker of the two light backgrounds.
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
