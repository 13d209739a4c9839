//! The page of a sweep: curves, a table, and what repeats it.
//!
//! Invariant: the page depends on the sweep's file and on its results alone, so two runs of a sweep
//! write the same bytes.

use anyhow::{Result, anyhow};
use minijinja::context;
use tailcut_measure::quantity::Unit;

use super::file::{ReportSpec, SweepFile};
use super::table::{Row, Table};
use crate::chart::{Axis, Chart, Growth, LineChart, Series, look_of};
use crate::output::four_digits;
use crate::page::{self, Drawn};

/// The page of a sweep whose results are all there.
///
/// # Errors
///
/// A figure of `[report]` that no result has.
pub(super) fn html(file: &SweepFile, text: &str, table: &Table) -> Result<String> {
    let plan = Plan::new(file, table)?;
    let values = context! {
        name => file.name,
        version => env!("CARGO_PKG_VERSION"),
        points => table.rows.len(),
        charts => plan.panels(table).iter().map(|panel| panel.drawn(&file.report)).collect::<Vec<_>>(),
        head => plan.head(table),
        rows => table.rows.iter().map(|row| plan.cells(row)).collect::<Vec<_>>(),
        text,
    };
    page::render(include_str!("report.html"), values)
}

/// The charts of the page below each other, as a picture for print.
///
/// # Errors
///
/// As [`html`].
pub(super) fn svg(file: &SweepFile, table: &Table) -> Result<String> {
    let plan = Plan::new(file, table)?;
    let chart = |panel: &Panel| (panel.title.clone(), panel.chart(&file.report));
    let charts: Vec<(String, Chart)> = plan.panels(table).iter().map(chart).collect();
    let about = format!("Curves of the sweep {}", file.name);
    Ok(Chart::stacked(&charts, about).printed(file.report.font()))
}

/// The choice of what is drawn, in columns of the table.
#[derive(Debug, PartialEq)]
struct Plan {
    /// Column among the keys; `None` where nothing varies.
    x: Option<usize>,
    /// Columns among the figures.
    ys: Vec<usize>,
    /// Keys whose values name a curve.
    series: Vec<usize>,
    /// Keys of whose values each combination has a chart.
    facets: Vec<usize>,
    /// Figures of the page's table.
    shown: Vec<usize>,
}

impl Plan {
    fn new(file: &SweepFile, table: &Table) -> Result<Self> {
        let key_index = |key: &str| table.keys.iter().position(|other| other == key);
        let x = file
            .report
            .x
            .as_deref()
            .or(Some("load"))
            .and_then(key_index)
            .or(table.keys.len().checked_sub(1));
        let others: Vec<usize> = (0..table.keys.len()).filter(|&key| Some(key) != x).collect();
        let named = file.report.series.as_deref().and_then(key_index);
        let (series, facets) = match named {
            Some(named) => (vec![named], others.into_iter().filter(|&key| key != named).collect()),
            None => (others, Vec::new()),
        };
        let wanted = file.report.y.as_slice().iter().map(|name| {
            let unknown = || {
                anyhow!(
                    "[report]: no result has the figure {name:?}; there are {}",
                    table.figures.join(", ")
                )
            };
            table.figure_index(name).ok_or_else(unknown)
        });
        let mut ys = wanted.collect::<Result<Vec<_>>>()?;
        if ys.is_empty() {
            // What theory says is there to compare with.
            let is_tail = |name: &String| name.ends_with(".p99") && !name.starts_with("exact.");
            let tail = table.figures.iter().position(is_tail);
            ys.extend(tail.or((!table.figures.is_empty()).then_some(0)));
        }
        let shown = (0..table.figures.len())
            .filter(|&index| ys.iter().any(|&y| are_siblings(table, index, y)))
            .collect();
        Ok(Self { x, ys, series, facets, shown })
    }

    /// A chart for each figure and each combination of the facets, in the order of the rows.
    fn panels(&self, table: &Table) -> Vec<Panel> {
        let Some(x) = self.x else { return Vec::new() };
        let mut combinations: Vec<Vec<&str>> = Vec::new();
        for row in &table.rows {
            let here = values(row, &self.facets);
            if !combinations.contains(&here) {
                combinations.push(here);
            }
        }
        let scale = Scale::of(table, x);
        let mut panels = Vec::new();
        for &y in &self.ys {
            for combination in &combinations {
                let rows: Vec<&Row> = table
                    .rows
                    .iter()
                    .filter(|row| values(row, &self.facets) == *combination)
                    .collect();
                let facet = self
                    .facets
                    .iter()
                    .zip(combination)
                    .map(|(&key, value)| format!("{} {value}", table.keys[key]));
                let over = format!("{} over {}", said(&table.figures[y]), table.keys[x]);
                panels.push(Panel {
                    title: [vec![over], facet.collect()].concat().join(", "),
                    y_title: titled(&table.figures[y]),
                    series: self.series(table, &rows, (&scale, x, y)),
                    scale: scale.clone(),
                });
            }
        }
        panels
    }

    /// The curves of one chart.
    fn series(
        &self,
        table: &Table,
        rows: &[&Row],
        (scale, x, y): (&Scale, usize, usize),
    ) -> Vec<Series> {
        let mut curves: Vec<(Vec<&str>, Series)> = Vec::new();
        for row in rows {
            let Some(figure) = row.figures[y] else { continue };
            let place = (scale.place(&row.at[x]), figure);
            let error = error_index(table, y).and_then(|error| row.figures[error]);
            let range = error.map(|error| (place.0, figure - 2.0 * error, figure + 2.0 * error));
            let here = values(row, &self.series);
            let at = curves.iter().position(|(name, _)| *name == here).unwrap_or_else(|| {
                let (label, look) = (self.label(table, row), look_of(curves.len()));
                curves.push((here, Series { label, look, ..Series::default() }));
                curves.len() - 1
            });
            curves[at].1.points.push(place);
            curves[at].1.ranges.extend(range);
        }
        let finished = curves.into_iter().map(|(_, mut series)| {
            series.points.sort_by(|one, other| one.0.total_cmp(&other.0));
            series.curve = series.points.clone();
            series
        });
        finished.collect()
    }

    /// The values that tell a curve; a bare number says its key, too.
    fn label(&self, table: &Table, row: &Row) -> String {
        let word = |&key: &usize| {
            let value = &row.at[key];
            let is_bare = !value.starts_with(|c: char| c.is_ascii_alphabetic())
                || value == "true"
                || value == "false";
            if is_bare { format!("{} {value}", table.keys[key]) } else { value.clone() }
        };
        self.series.iter().map(word).collect::<Vec<_>>().join(", ")
    }

    fn head(&self, table: &Table) -> Vec<String> {
        let figures = self.shown.iter().map(|&figure| table.figures[figure].clone());
        table.keys.iter().cloned().chain(figures).collect()
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let figures = self
            .shown
            .iter()
            .map(|&figure| row.figures[figure].map_or_else(|| "-".to_owned(), four_digits));
        row.at.iter().cloned().chain(figures).collect()
    }
}

/// Scale that turns values of the horizontal axis into places on it.
#[derive(Clone, Debug, PartialEq)]
enum Scale {
    Numbers {
        title: String,
    },
    /// In microseconds.
    Times {
        title: String,
    },
    Names {
        title: String,
        names: Vec<String>,
    },
}

impl Scale {
    /// Numbers or times where all values are, names otherwise.
    fn of(table: &Table, key: usize) -> Self {
        let title = &table.keys[key];
        let mut names: Vec<String> = Vec::new();
        for row in table.rows.iter().map(|row| &row.at[key]) {
            if !names.contains(row) {
                names.push(row.clone());
            }
        }
        if names.iter().all(|name| Unit::Plain.parse(name).is_ok()) {
            let unit = if title == "load" { " (share of the capacity)" } else { "" };
            return Self::Numbers { title: format!("{title}{unit}") };
        }
        if names.iter().all(|name| Unit::Time.parse(name).is_ok()) {
            return Self::Times { title: format!("{title} (us)") };
        }
        Self::Names { title: title.clone(), names }
    }

    fn place(&self, value: &str) -> f64 {
        match self {
            Self::Numbers { .. } => Unit::Plain.parse(value).unwrap_or(f64::NAN),
            Self::Times { .. } => Unit::Time.parse(value).map_or(f64::NAN, |ns| ns / 1_000.0),
            Self::Names { names, .. } => {
                names.iter().position(|name| name == value).map_or(f64::NAN, |index| index as f64)
            }
        }
    }

    /// A place on it as people say it.
    fn said(&self, place: f64) -> String {
        match self {
            Self::Numbers { .. } => place.to_string(),
            Self::Times { .. } => format!("{place} us"),
            Self::Names { names, .. } => names.get(place as usize).cloned().unwrap_or_default(),
        }
    }

    fn axis(&self, growth: Growth, series: &[Series]) -> Axis {
        let values = series.iter().flat_map(|series| series.points.iter().map(|point| point.0));
        match self {
            Self::Numbers { title } | Self::Times { title } => {
                Axis::covering_as(growth, title.clone(), values)
            }
            Self::Names { title, names } => Axis::categories(title.clone(), names.clone()),
        }
    }
}

/// One chart.
struct Panel {
    title: String,
    /// With the unit.
    y_title: String,
    series: Vec<Series>,
    scale: Scale,
}

impl Panel {
    /// For a page, on which a reader may choose another axis.
    fn drawn(&self, spec: &ReportSpec) -> Drawn {
        let marker_title = |label: &str, place: (f64, f64)| self.marker_title(label, place);
        let drawn =
            Drawn::with_switch(&format!("Curves of {}", self.title), spec.y_axis, |growth| {
                LineChart {
                    series: &self.series,
                    x: self.scale.axis(spec.x_axis, &self.series),
                    y: self.y_axis(growth),
                    marker_title: &marker_title,
                }
            });
        let drawn = drawn.titled(&self.title);
        let has_bars = self.series.iter().any(|series| !series.ranges.is_empty());
        if has_bars { drawn.captioned(BARS) } else { drawn }
    }

    /// For a picture.
    fn chart(&self, spec: &ReportSpec) -> Chart {
        let marker_title = |label: &str, place: (f64, f64)| self.marker_title(label, place);
        let chart = LineChart {
            series: &self.series,
            x: self.scale.axis(spec.x_axis, &self.series),
            y: self.y_axis(spec.y_axis),
            marker_title: &marker_title,
        };
        chart.draw(spec.width(), format!("Curves of {}", self.title))
    }

    fn y_axis(&self, growth: Growth) -> Axis {
        // What an interval reaches below zero is cut off with the frame.
        let lowest = self.series.iter().flat_map(|series| &series.points).map(|point| point.1);
        let lowest = lowest.fold(f64::INFINITY, f64::min);
        let values = self.series.iter().flat_map(|series| {
            let ranges = series.ranges.iter().flat_map(|range| [range.1, range.2]);
            series.points.iter().map(|point| point.1).chain(ranges)
        });
        let values = values.filter(|&value| value > 0.0 || lowest <= 0.0);
        Axis::from_zero_as(growth, self.y_title.clone(), values)
    }

    /// The text of a place.
    fn marker_title(&self, label: &str, (x, y): (f64, f64)) -> String {
        let bar = self.series.iter().filter(|series| series.label == label);
        let bar = bar.flat_map(|series| &series.ranges).find(|range| range.0 == x);
        let bar = bar.map_or(String::new(), |range| format!(" ± {}", four_digits(range.2 - y)));
        format!("{label} at {}: {}{bar}", self.scale.said(x), four_digits(y))
    }
}

fn values<'r>(row: &'r Row, keys: &[usize]) -> Vec<&'r str> {
    keys.iter().map(|&key| row.at[key].as_str()).collect()
}

/// True where two figures stand in the same object of a result.
fn are_siblings(table: &Table, one: usize, other: usize) -> bool {
    let parent = |index: usize| table.figures[index].rsplit_once('.').map(|(parent, _)| parent);
    one == other || parent(one).is_some() && parent(one) == parent(other)
}

/// The standard errors that belong to a figure, where its simulation gives them.
fn error_index(table: &Table, figure: usize) -> Option<usize> {
    let (parent, name) = table.figures[figure].rsplit_once('.')?;
    let (_, errors) = ERRORS.iter().find(|(of, _)| *of == parent)?;
    table.figure_index(&format!("{errors}.{name}"))
}

/// A figure as people say it, with its unit, which a part of its name tells: "p99 of the sojourn
/// time (mean service times)".
fn titled(figure: &str) -> String {
    match figure.split('.').rev().find_map(|part| unit_of(part)) {
        Some((_, unit)) => format!("{} ({unit})", said(figure)),
        None => said(figure),
    }
}

/// A figure as people say it, without its unit.
fn said(figure: &str) -> String {
    let word = |part: &str| {
        let part = unit_of(part).map_or(part, |(ending, _)| &part[..part.len() - ending.len()]);
        let known = WORDS.iter().find(|(name, _)| *name == part);
        known.map_or_else(|| part.replace('_', " "), |(_, word)| (*word).to_owned())
    };
    let mut parts: Vec<String> = figure.split('.').map(word).collect();
    let last = parts.pop().unwrap_or_default();
    let is_statistic = ["mean", "max", "min"].contains(&last.as_str())
        || last.strip_prefix('p').is_some_and(|digits| digits.parse::<u32>().is_ok());
    match (parts.is_empty(), is_statistic) {
        (true, _) => last,
        (false, true) => format!("{} of {}", percentile(&last), parts.join(", ")),
        (false, false) => format!("{}: {last}", parts.join(", ")),
    }
}

/// `p999` is p99.9.
fn percentile(name: &str) -> String {
    match name.strip_prefix('p') {
        Some(digits) if digits.len() > 2 && digits.starts_with("99") => {
            format!("p{}.{}", &digits[..2], &digits[2..])
        }
        _ => name.to_owned(),
    }
}

/// The ending of a name's part that says its unit, and the unit.
fn unit_of(part: &str) -> Option<(&'static str, &'static str)> {
    UNITS.iter().find(|(ending, _)| part.ends_with(ending)).copied()
}

const BARS: &str = "Bars reach two standard errors of the mean over the seeds to each side.";

/// Figures whose standard errors a simulation gives, and where.
const ERRORS: [(&str, &str); 3] = [
    ("sojourn_over_service", "standard_error"),
    ("latency_us", "standard_error_us"),
    ("latency_ns", "standard_error_ns"),
];

/// Parts of names that are said otherwise.
const WORDS: [(&str, &str); 4] = [
    ("sojourn", "the sojourn time"),
    ("latency", "the latency"),
    ("replenished", "the time until credit is back"),
    ("goodput_over_capacity", "goodput over the capacity"),
];

/// Endings of names, and what they mean.
const UNITS: [(&str, &str); 7] = [
    ("_over_service", "mean service times"),
    ("_per_s", "per second"),
    ("_ns", "ns"),
    ("_us", "us"),
    ("_ms", "ms"),
    ("_mrps", "million requests per second"),
    ("_share", "share"),
];

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn a_chart_has_a_curve_for_each_value_of_the_series() {
        let page = page("x = \"load\"\ny = \"t_us.p99\"\nseries = \"policy\"");
        for part in [
            "p99 of t (us)",
            "p99 of t over load</h2>",
            "load (share of the capacity)",
            ">random</text>",
            ">rr</text>",
            "<polyline class=\"line s2\"",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert_eq!(page.matches("<svg").count(), 4, "one chart on two axes, wide and narrow");
        assert!(page.contains("<input type=\"checkbox\"> logarithmic axis</label>"));
    }

    #[test]
    fn figures_are_called_as_people_say_them() {
        for (figure, title) in [
            ("sojourn_over_service.p99", "p99 of the sojourn time (mean service times)"),
            ("latency_us.p999", "p99.9 of the latency (us)"),
            ("exact.zero_load_us.mean", "mean of exact, zero load (us)"),
            ("held_share", "held (share)"),
            ("goodput_over_capacity", "goodput over the capacity"),
            ("counts.cloned", "counts: cloned"),
            ("throughput_mrps", "throughput (million requests per second)"),
        ] {
            assert_eq!(titled(figure), title);
        }
    }

    #[test]
    fn points_have_bars_of_two_standard_errors_where_a_simulation_gives_them() {
        let mut table = table();
        table.figures = ["latency_us.p50", "latency_us.p99", "standard_error_us.p99"]
            .map(str::to_owned)
            .to_vec();
        for row in &mut table.rows {
            row.figures[2] = Some(0.5);
        }
        let page = html(&sweep("y = \"latency_us.p99\""), "", &table).unwrap();
        assert_eq!(
            page.matches("<path class=\"range").count(),
            16,
            "four points, two widths and axes"
        );
        assert!(page.contains("<title>rr at 0.5: 6 ± 1</title>"));
        assert!(page.contains(BARS));
        let page = html(&sweep("y = \"latency_us.p50\""), "", &table).unwrap();
        assert!(!page.contains("<path class=\"range") && !page.contains(BARS));
    }

    #[test]
    fn each_figure_has_a_chart() {
        let page = page("x = \"policy\"\ny = [\"t_us.p99\", \"t_us.mean\"]\nseries = \"load\"");
        assert_eq!(page.matches("<svg").count(), 8, "two figures on two axes");
        assert!(page.contains("load 0.5"), "a bare number says its key");
    }

    #[test]
    fn an_axis_is_what_the_file_asks_for_and_the_reader_has_the_other() {
        let on = |report: &str| {
            let page = page(&format!("y = \"t_us.p99\"\n{report}"));
            // The page begins with the axis that is asked for, in its wide and its narrow chart.
            let (first, other) = page.split_once("<div class=\"wide other\">").unwrap();
            let ticks = |part: &str| part.matches(">20</text>").count();
            (ticks(first), ticks(other), page.contains("> linear axis</label>"))
        };
        // 0, 10, 20 and so on, or 5, 10, 20, 50.
        assert_eq!(on("y-axis = \"log\""), (2, 2, true));
        assert_eq!(on("y-axis = \"linear\""), on(""));
        assert!(!on("y-axis = \"linear\"").2);
        let zero = |report: &str| page(report).matches(">0</text>").count();
        assert_eq!([zero("y-axis = \"log\""), zero("")], [2, 2], "on the linear axis alone");
    }

    #[test]
    fn a_picture_has_the_charts_alone_in_the_font_and_width_that_are_asked_for() {
        let svg = |report: &str| svg(&sweep(report), &table()).unwrap();
        let picture = svg(
            "y = [\"t_us.p99\", \"t_us.mean\"]\nwidth = 340\nfont = \"Libertinus Serif, serif\"",
        );
        assert_eq!(picture.matches("<svg ").count(), 1);
        for part in [
            " width=\"340\"",
            ".chart text { font-family: Libertinus Serif, serif; }",
            ">p99 of t over load</text>",
            ">mean of t over load</text>",
        ] {
            assert!(picture.contains(part), "{part}: {picture}");
        }
        // On white paper there is no panel, nor anything that waits for a pointer.
        assert!(!picture.contains("panel") && !picture.contains("class=\"hit"));
        assert!(svg("").contains(" width=\"760\"") && svg("").contains("font-family: sans-serif"));
        assert!(svg("y-axis = \"log\"").matches(">0</text>").count() == 0);
    }

    #[test]
    fn without_a_wish_the_tail_is_drawn_over_the_load() {
        let (file, mut table) = (sweep(""), table());
        let plan = Plan::new(&file, &table).unwrap();
        assert_eq!(
            plan,
            Plan { x: Some(1), ys: vec![1], series: vec![0], facets: vec![], shown: vec![0, 1] }
        );
        table.figures = ["exact.p99", "t_us.p99", "count"].map(str::to_owned).to_vec();
        assert_eq!(Plan::new(&file, &table).unwrap().ys, [1], "what was simulated");
    }

    #[test]
    fn a_figure_that_does_not_exist_is_named_with_those_that_do() {
        let error = html(&sweep("y = \"p98\""), "", &table()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "[report]: no result has the figure \"p98\"; there are t_us.mean, t_us.p99, count"
        );
    }

    #[test]
    fn times_are_placed_by_their_length_and_words_in_their_order() {
        let table = |values: [&str; 2]| Table {
            keys: vec!["delay".to_owned()],
            figures: vec![],
            rows: values.map(|value| Row { at: vec![value.to_owned()], figures: vec![] }).to_vec(),
        };
        let times = Scale::of(&table(["500ns", "2us"]), 0);
        assert_eq!((times.place("500ns"), times.place("2us")), (0.5, 2.0));
        let names = Scale::of(&table(["rr", "2us"]), 0);
        assert_eq!((names.place("rr"), names.place("2us")), (0.0, 1.0));
        assert_eq!((times.said(0.5), names.said(0.0)), ("0.5 us".to_owned(), "rr".to_owned()));
    }

    #[test]
    fn the_page_needs_nothing_else_and_escapes_what_it_shows() {
        let page = html(&sweep(""), "# <b>\n", &table()).unwrap();
        assert!(page.contains("# &lt;b&gt;"));
        let page = page.replace("http://www.w3.org/2000/svg", "");
        for foreign in ["http:", "https:", "src=", "@import", "url(", "<script", "<link"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }

    pub(in super::super) fn page(report: &str) -> String {
        html(&sweep(report), "", &table()).unwrap()
    }

    fn sweep(report: &str) -> SweepFile {
        let grid = "policy = [\"random\", \"rr\"]\nload = [0.5, 0.9]";
        SweepFile::parse(&format!(
            "name = \"test\"\nsimulation = \"queue\"\n[grid]\n{grid}\n[report]\n{report}"
        ))
        .unwrap()
    }

    fn table() -> Table {
        let row = |policy: &str, load: &str, p99: f64| Row {
            at: vec![policy.to_owned(), load.to_owned()],
            figures: vec![Some(p99 / 4.6), Some(p99), Some(1e6)],
        };
        Table {
            keys: ["policy", "load"].map(str::to_owned).to_vec(),
            figures: ["t_us.mean", "t_us.p99", "count"].map(str::to_owned).to_vec(),
            rows: vec![
                row("random", "0.5", 9.2),
                row("random", "0.9", 46.0),
                row("rr", "0.5", 6.0),
                row("rr", "0.9", 25.2),
            ],
        }
    }
}
