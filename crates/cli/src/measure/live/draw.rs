//! A board on a screen, of whatever size.
//!
//! Invariant: without colours nothing is lost but the colours; what has no room is left out, the
//! charts first.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Axis, Block, Chart, Dataset, Gauge, GraphType, Paragraph, Row, Table, Wrap,
};
use tailcut_measure::objective::percentile_name;
use tailcut_measure::quantity::duration;
use tailcut_measure::verdict::Verdict;

use super::board::{AgentRow, Board, Point};
use crate::measure::text;
use crate::output::four_digits;

/// Draws it.
pub(super) fn draw(board: &Board, style: text::Style, frame: &mut Frame<'_>) {
    let paint = Paint(style);
    let agents = if board.agents.len() > 1 || board.agents.iter().any(|agent| agent.is_lost) {
        &board.agents[..]
    } else {
        &[]
    };
    let agents_len = if agents.is_empty() { 0 } else { 1 + agents.len().min(AGENTS_MAX) as u16 };
    let said_len = board.said.len().min(SAID_MAX) as u16;
    let fixed = 2 + 4 + VERDICT_LEN + agents_len + said_len + 1;
    let charts_len = frame.area().height.saturating_sub(fixed);
    let charts_len = if charts_len < CHARTS_LEN_MIN { 0 } else { charts_len };
    let lengths =
        [1, 1, charts_len, 4, VERDICT_LEN, agents_len, said_len, 1].map(Constraint::Length);
    let [title, progress, charts, figures, verdict, agent_area, said, keys] =
        Layout::vertical(lengths).areas(frame.area());

    frame.render_widget(Line::from(board.title.as_str()).style(paint.strong()), title);
    draw_progress(board, paint, frame, progress);
    if charts_len > 0 {
        let [rate, latency] =
            Layout::horizontal([Constraint::Fill(2), Constraint::Fill(3)]).areas(charts);
        let points = board.points();
        draw_rate(&points, paint, frame, rate);
        draw_latency(&points, board.p, paint, frame, latency);
    }
    draw_figures(board, frame, figures);
    draw_verdict(board, paint, frame, verdict);
    draw_agents(agents, paint, frame, agent_area);
    let latest = board.said.iter().rev().take(SAID_MAX).rev().map(|line| Line::from(line.as_str()));
    frame.render_widget(Paragraph::new(latest.collect::<Vec<_>>()), said);
    frame.render_widget(Line::from("q or Ctrl-C ends it").style(paint.faint()), keys);
}

fn draw_progress(board: &Board, paint: Paint, frame: &mut Frame<'_>, area: Rect) {
    let share = board.passed_ns as f64 / board.leg_ns.max(1) as f64;
    let [bar, words] = Layout::horizontal([Constraint::Length(BAR_WIDTH), Constraint::Fill(1)])
        .spacing(1)
        .areas(area);
    let gauge = Gauge::default().ratio(share.clamp(0.0, 1.0)).use_unicode(true);
    frame.render_widget(
        gauge.gauge_style(paint.series(Series::Sent)).label(format!("{:.0} %", 100.0 * share)),
        bar,
    );
    frame.render_widget(Line::from(board.progress()), words);
}

fn draw_rate(points: &[Point], paint: Paint, frame: &mut Frame<'_>, area: Rect) {
    let of = |value: fn(&Point) -> f64| {
        points.iter().map(|point| (point.at_s, value(point))).collect::<Vec<_>>()
    };
    let (sent, replied) = (of(|point| point.sent_per_s), of(|point| point.replied_per_s));
    let top = 1.1 * sent.iter().chain(&replied).map(|&(_, rate)| rate).fold(1.0, f64::max);
    let labels = [0.0, top / 2.0, top].map(|rate| four_digits(rate.round()));
    let curves = [(Series::Sent, &sent), (Series::Replied, &replied)];
    let title = paint.legend(
        "requests/s:",
        &[(Series::Sent, "sent".to_owned()), (Series::Replied, "replied".to_owned())],
    );
    frame.render_widget(
        chart(&curves, title, points, Axis::default().bounds([0.0, top]).labels(labels), paint),
        area,
    );
}

/// On a scale of powers of ten.
fn draw_latency(points: &[Point], p: f64, paint: Paint, frame: &mut Frame<'_>, area: Rect) {
    let of = |value: fn(&Point) -> Option<f64>| {
        let known = points
            .iter()
            .filter_map(|point| Some((point.at_s, value(point).filter(|&us| us > 0.0)?.log10())));
        known.collect::<Vec<_>>()
    };
    let (p50, tail, max) =
        (of(|point| point.p50_us), of(|point| point.tail_us), of(|point| point.max_us));
    let all = || p50.iter().chain(&tail).chain(&max).map(|&(_, power)| power);
    let (low, high) = (
        all().fold(f64::INFINITY, f64::min).floor(),
        all().fold(f64::NEG_INFINITY, f64::max).ceil(),
    );
    let (low, high) = if low.is_finite() { (low, high.max(low + 1.0)) } else { (0.0, 3.0) };
    let labels = (low as i32..=high as i32).map(|power| short_time(10_f64.powi(power)));
    let curves = [(Series::Max, &max), (Series::Tail, &tail), (Series::Median, &p50)];
    let named = [
        (Series::Median, "p50".to_owned()),
        (Series::Tail, percentile_name(p)),
        (Series::Max, "max".to_owned()),
    ];
    let title = paint.legend("latency from intended send:", &named);
    let axis = Axis::default().bounds([low, high]).labels(labels.collect::<Vec<_>>());
    frame.render_widget(chart(&curves, title, points, axis, paint), area);
}

/// A power of ten of us: `10 ms`.
fn short_time(us: f64) -> String {
    let text = duration(us * 1e3);
    text.replace(".00 ", " ").replace(".0 ", " ")
}

fn chart<'a>(
    curves: &[(Series, &'a Vec<(f64, f64)>)],
    title: Line<'a>,
    points: &[Point],
    values: Axis<'a>,
    paint: Paint,
) -> Chart<'a> {
    let end_s = points.last().map_or(1.0, |point| point.at_s);
    let start_s = points.first().map_or(0.0, |point| point.at_s);
    let dataset = |&(series, data): &(Series, &'a Vec<(f64, f64)>)| {
        let kind = if points.len() > 1 { GraphType::Line } else { GraphType::Scatter };
        Dataset::default()
            .data(data)
            .marker(series.marker())
            .graph_type(kind)
            .style(paint.series(series))
    };
    let times = Axis::default()
        .bounds([start_s, end_s.max(start_s + 1.0)])
        .labels([start_s, end_s].map(|s| format!("{s:.0} s")));
    Chart::new(curves.iter().map(dataset).collect())
        .block(Block::bordered().title(title))
        .x_axis(times)
        .y_axis(values)
        .legend_position(None)
}

fn draw_figures(board: &Board, frame: &mut Frame<'_>, area: Rect) {
    let [table, counts] =
        Layout::vertical([Constraint::Length(3), Constraint::Length(1)]).areas(area);
    let rows = board.latencies();
    let columns = rows.first().map_or(0, Vec::len);
    let widths = std::iter::once(FIRST_WIDTH)
        .chain(std::iter::repeat_n(FIGURE_WIDTH, columns.saturating_sub(1)));
    let rows = rows.into_iter().map(|row| {
        let cells = row.into_iter().enumerate();
        Row::new(cells.map(|(column, cell)| {
            if column == 0 { Line::from(cell) } else { Line::from(cell).right_aligned() }
        }))
    });
    frame.render_widget(Table::new(rows, widths.map(Constraint::Length)), table);
    frame.render_widget(Line::from(board.counts()), counts);
}

fn draw_verdict(board: &Board, paint: Paint, frame: &mut Frame<'_>, area: Rect) {
    let (word, style) = match board.verdict() {
        None => ("so far: ", paint.faint()),
        Some(Verdict::Ok) => ("", paint.good()),
        Some(Verdict::NotTrustworthy(_)) => ("not trustworthy so far: ", paint.bad()),
    };
    let said = Line::from(vec![Span::from(word), Span::from(board.verdict_text())]).style(style);
    frame.render_widget(
        Paragraph::new(vec![Line::from(board.look_text()), said]).wrap(Wrap { trim: true }),
        area,
    );
}

fn draw_agents(agents: &[AgentRow], paint: Paint, frame: &mut Frame<'_>, area: Rect) {
    if agents.is_empty() {
        return;
    }
    // Those that are lost come first, for there may be more than there is room for.
    let mut agents: Vec<&AgentRow> = agents.iter().collect();
    agents.sort_by_key(|agent| !agent.is_lost);
    let row = |agent: &AgentRow| {
        let counts =
            [u64::from(agent.threads), u64::from(agent.connections), agent.sent, agent.replied];
        let names = [agent.name.clone(), agent.role.clone()].map(Line::from).into_iter();
        let counts = counts.map(|count| Line::from(count.to_string()).right_aligned());
        let cells = names.chain(counts).chain([Line::from(format!(" {}", agent.standing))]);
        Row::new(cells).style(if agent.is_lost { paint.bad() } else { Style::default() })
    };
    let hidden = agents.len().saturating_sub(AGENTS_MAX);
    let first = if hidden > 0 { format!("agent ({hidden} more)") } else { "agent".to_owned() };
    let head = [first.as_str(), "role", "threads", "connections", "sent", "replied", ""]
        .map(|word| Line::from(word.to_owned()));
    let head = head
        .into_iter()
        .enumerate()
        .map(|(column, word)| if column > 1 { word.right_aligned() } else { word });
    let widths = [
        Constraint::Length(24),
        Constraint::Length(10),
        Constraint::Length(7),
        Constraint::Length(11),
    ];
    let widths = widths.into_iter().chain([
        Constraint::Length(12),
        Constraint::Length(12),
        Constraint::Fill(1),
    ]);
    let table = Table::new(agents.into_iter().take(AGENTS_MAX).map(row), widths);
    frame.render_widget(table.header(Row::new(head).style(paint.faint())), area);
}

/// A curve of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Series {
    Sent,
    Replied,
    Median,
    Tail,
    Max,
}

impl Series {
    /// Curves differ where there are no colours either.
    fn marker(self) -> Marker {
        match self {
            Self::Sent | Self::Max => Marker::Dot,
            Self::Replied | Self::Tail => Marker::Braille,
            Self::Median => Marker::HalfBlock,
        }
    }

    /// The marker as a letter.
    fn sign(self) -> &'static str {
        match self.marker() {
            Marker::Dot => "•",
            Marker::Braille => "⠒",
            _ => "▀",
        }
    }
}

/// Colours, or none.
#[derive(Clone, Copy)]
struct Paint(text::Style);

impl Paint {
    fn of(self, style: Style) -> Style {
        if self.0 == text::Style::Coloured { style } else { Style::default() }
    }

    fn strong(self) -> Style {
        self.of(Style::new().add_modifier(Modifier::BOLD))
    }

    fn faint(self) -> Style {
        self.of(Style::new().add_modifier(Modifier::DIM))
    }

    fn good(self) -> Style {
        self.of(Style::new().fg(Color::Green))
    }

    fn bad(self) -> Style {
        self.of(Style::new().fg(Color::Red).add_modifier(Modifier::BOLD))
    }

    fn series(self, series: Series) -> Style {
        self.of(Style::new().fg(match series {
            Series::Sent => Color::Blue,
            Series::Replied | Series::Median => Color::Green,
            Series::Tail => Color::Yellow,
            Series::Max => Color::Red,
        }))
    }

    /// A legend of the curves.
    fn legend(self, title: &'static str, named: &[(Series, String)]) -> Line<'static> {
        let name = |(series, name): &(Series, String)| {
            Span::styled(format!(" {} {name}", series.sign()), self.series(*series))
        };
        Line::from(
            std::iter::once(Span::from(title)).chain(named.iter().map(name)).collect::<Vec<_>>(),
        )
    }
}

/// A line for the percentile, and some for what speaks against the run.
const VERDICT_LEN: u16 = 4;
const AGENTS_MAX: usize = 6;
const SAID_MAX: usize = 4;
/// With fewer lines a chart says nothing.
const CHARTS_LEN_MIN: u16 = 7;
const BAR_WIDTH: u16 = 30;
const FIRST_WIDTH: u16 = 18;
const FIGURE_WIDTH: u16 = 9;

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use tailcut_measure::outcome::Counts;
    use tailcut_measure::slices::Slice;
    use tailcut_measure::statistics::quantile::estimate;

    use super::super::board::tests::{board, slice};
    use super::*;
    use tailcut_instrument::job::Role;

    fn drawn(board: &Board, size: (u16, u16), style: text::Style) -> Terminal<TestBackend> {
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        terminal.draw(|frame| draw(board, style, frame)).unwrap();
        terminal
    }

    /// Fifteen seconds of a run whose latency rises to ten times its value and falls again.
    fn rising() -> Board {
        let mut board = board(0);
        for index in 10..150 {
            let mut slice = slice(index);
            let factor = if (60..100).contains(&index) { 10 } else { 1 };
            slice.samples.iter_mut().for_each(|sample| sample.latency_ns *= factor);
            board.take(&slice, Role::Symmetric);
        }
        board.pass(9_000_000_000);
        let samples: Vec<f32> =
            (0..50_000).map(|place| (place % 1_000) as f32 * 100.0 + 10_000.0).collect();
        board.note_look(estimate(&samples, 0.99, 0.95).ok().as_ref());
        board
    }

    fn agent(name: &str, standing: &str, is_lost: bool) -> AgentRow {
        let standing = standing.to_owned();
        let (name, role) = (name.to_owned(), "symmetric".to_owned());
        AgentRow {
            name,
            role,
            threads: 2,
            connections: 64,
            sent: 70_000,
            replied: 69_900,
            standing,
            is_lost,
        }
    }

    #[test]
    fn a_run_on_a_screen_looks_as_reviewed() {
        insta::assert_snapshot!(drawn(&rising(), (110, 32), text::Style::Plain).backend());
    }

    #[test]
    fn a_run_that_is_in_trouble_looks_as_reviewed() {
        let mut board = rising();
        let counts = Counts { sent: 200, replied: 100, timeout: 100, ..Counts::default() };
        board.take(&Slice { counts, sent_meanwhile: 200, ..slice(150) }, Role::Symmetric);
        board.agents =
            vec![agent("load-1", "running", false), agent("load-2", "no word for 3 s", true)];
        board.said = (1..=6)
            .map(|load| format!("{load}000/s offered: p99 {load}0 us, trustworthy"))
            .collect();
        insta::assert_snapshot!(drawn(&board, (100, 36), text::Style::Plain).backend());
    }

    #[test]
    fn a_small_terminal_has_the_figures() {
        insta::assert_snapshot!(drawn(&rising(), (80, 14), text::Style::Plain).backend());
    }

    #[test]
    fn no_size_is_too_small() {
        for width in [1, 2, 7, 20, 300] {
            for height in 1..40 {
                drawn(&rising(), (width, height), text::Style::Coloured);
            }
        }
        drawn(&Board::new("", 0.99, 1), (80, 24), text::Style::Coloured);
    }

    #[test]
    fn colours_change_no_letter_and_can_be_left_out() {
        let letters = |terminal: &Terminal<TestBackend>| terminal.backend().to_string();
        let [plain, coloured] = [text::Style::Plain, text::Style::Coloured]
            .map(|style| drawn(&rising(), (110, 32), style));
        assert_eq!(letters(&plain), letters(&coloured));
        let is_set_off = |terminal: &Terminal<TestBackend>| {
            let cells = &terminal.backend().buffer().content;
            cells.iter().any(|cell| {
                cell.fg != Color::Reset || cell.bg != Color::Reset || !cell.modifier.is_empty()
            })
        };
        assert!(is_set_off(&coloured) && !is_set_off(&plain));
    }

    #[test]
    fn lost_agents_are_seen_among_many() {
        let mut board = rising();
        board.agents =
            (0..20).map(|index| agent(&format!("load-{index}"), "running", false)).collect();
        board.agents[19] = agent("load-19", "no word for 3 s", true);
        let text = drawn(&board, (110, 40), text::Style::Plain).backend().to_string();
        assert!(text.contains("load-19") && text.contains("agent (14 more)"), "{text}");
    }
}
