//! State of a run as a live view knows it, and its description in words.
//!
//! Time goes by columns: some slices each, ever more of them the longer the load, so that a run of
//! any length has as many columns as a chart can show.
//!
//! Invariant: memory is bounded, whatever the rate and the length; a column is shown once all of
//! its slices were taken; nothing in a line drives a terminal.

use hdrhistogram::Histogram;
use tailcut_measure::control::{Glance, Leg};
use tailcut_measure::objective::percentile_name;
use tailcut_measure::outcome::{Counts, LATENCY_MAX_NS};
use tailcut_measure::quantity::duration;
use tailcut_measure::slices::Slice;
use tailcut_measure::statistics::quantile::Estimate;
use tailcut_measure::verdict::Verdict;

use crate::measure::progress::forecast;
use crate::measure::text::figure;
use crate::output::{four_digits, printable};
use tailcut_instrument::job::Role;
use tailcut_instrument::record::Kept;
use tailcut_instrument::view::Phase;

/// State of a run.
pub(super) struct Board {
    /// The measurement's title.
    pub(super) title: String,
    /// The percentile to know, a share.
    pub(super) p: f64,
    slice_ns: u64,
    pub(super) phase: Phase,
    /// Time of the leg that has passed, ns.
    pub(super) passed_ns: u64,
    pub(super) leg_ns: u64,
    forecast: String,
    columns: Vec<Column>,
    /// Slices of a column.
    width: u32,
    /// All slices below were taken.
    whole: u32,
    measured: Measured,
    look: Option<Estimate>,
    pub(super) agents: Vec<AgentRow>,
    /// The loads before this one, a line each.
    pub(super) said: Vec<String>,
}

/// An agent in the view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AgentRow {
    pub(super) name: String,
    pub(super) role: String,
    pub(super) threads: u32,
    pub(super) connections: u32,
    pub(super) sent: u64,
    pub(super) replied: u64,
    pub(super) standing: String,
    pub(super) is_lost: bool,
}

/// A part of the load, as it is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Point {
    /// Its end, s since the load began.
    pub(super) at_s: f64,
    pub(super) sent_per_s: f64,
    pub(super) replied_per_s: f64,
    /// Median of latencies from the intended send, us; where the samples support them.
    pub(super) p50_us: Option<f64>,
    pub(super) tail_us: Option<f64>,
    pub(super) max_us: Option<f64>,
}

/// A part of the load, as it is kept.
#[derive(Clone, Debug)]
struct Column {
    /// To one part in a hundred, which is what a chart shows.
    latencies: Histogram<u32>,
    max_ns: u64,
    sent: u64,
    replied: u64,
}

/// The measurement so far.
struct Measured {
    glance: Glance,
    intended: Kept,
    actual: Kept,
}

impl Board {
    /// The board of `title`, of runs that are to know the percentile `p`.
    pub(super) fn new(title: &str, p: f64, slice_ns: u64) -> Self {
        Self {
            title: printable(title),
            p,
            slice_ns: slice_ns.max(1),
            phase: Phase::Preparing,
            passed_ns: 0,
            leg_ns: 0,
            forecast: String::new(),
            columns: Vec::new(),
            width: 1,
            whole: 0,
            measured: Measured::new(),
            look: None,
            agents: Vec::new(),
            said: Vec::new(),
        }
    }

    /// See [`View::begin`](tailcut_instrument::view::View::begin).
    pub(super) fn begin(&mut self, phase: Phase, leg: Option<&Leg>) {
        match (self.phase, phase) {
            (_, Phase::Preparing) => {
                let said = std::mem::take(&mut self.said);
                *self = Self { said, ..Self::new(&self.title, self.p, self.slice_ns) };
                self.width =
                    u32::try_from(COLUMN_NS_MIN.div_ceil(self.slice_ns)).unwrap_or(u32::MAX);
            }
            (Phase::Measuring, Phase::Measuring | Phase::Ending) => {}
            _ => (self.measured, self.look) = (Measured::new(), None),
        }
        self.phase = phase;
        if let Some(leg) = leg {
            (self.passed_ns, self.leg_ns) = (0, leg.for_ns);
            self.forecast = forecast(leg);
        }
    }

    /// Takes what one thread told about a slice.
    pub(super) fn take(&mut self, slice: &Slice, role: Role) {
        let place = self.place(slice.index);
        let column = &mut self.columns[place];
        column.sent += slice.sent_meanwhile;
        column.replied += slice.replied_meanwhile;
        if role != Role::Throughput {
            slice.samples.iter().for_each(|sample| column.record(sample.latency_ns));
        }
        self.whole = self.whole.max(slice.index + 1);
        if self.phase == Phase::Measuring {
            self.measured.take(slice, role);
        }
    }

    /// So much of the leg was taken.
    pub(super) fn pass(&mut self, passed_ns: u64) {
        self.measured.glance.measured_ns += passed_ns.saturating_sub(self.passed_ns);
        self.passed_ns = passed_ns;
    }

    pub(super) fn note_look(&mut self, known: Option<&Estimate>) {
        self.look = known.copied();
    }

    /// The columns that are whole.
    pub(super) fn points(&self) -> Vec<Point> {
        let length_s = f64::from(self.width) * self.slice_ns as f64 / 1e9;
        let whole = (self.whole / self.width) as usize;
        let point = |(index, column): (usize, &Column)| Point {
            at_s: (index + 1) as f64 * length_s,
            sent_per_s: column.sent as f64 / length_s,
            replied_per_s: column.replied as f64 / length_s,
            p50_us: column.percentile_us(0.5),
            tail_us: column.percentile_us(self.p),
            max_us: (column.max_ns > 0).then_some(column.max_ns as f64 / 1e3),
        };
        self.columns.iter().take(whole).enumerate().map(point).collect()
    }

    /// The phase, and how much of it is over.
    pub(super) fn progress(&self) -> String {
        let seconds = |ns: u64| format!("{:.1}", ns as f64 / 1e9);
        match self.phase {
            Phase::Preparing | Phase::Ending => self.phase.as_ref().to_owned(),
            Phase::WarmingUp | Phase::Measuring => {
                format!(
                    "{}, {} of {} s{}",
                    self.phase.as_ref(),
                    seconds(self.passed_ns),
                    seconds(self.leg_ns),
                    self.forecast
                )
            }
        }
    }

    /// The measured latencies as a table: the head, from the intended send, from the actual one.
    pub(super) fn latencies(&self) -> Vec<Vec<String>> {
        let mut shares = SHARES.to_vec();
        if SHARES.iter().all(|share| (share - self.p).abs() > 1e-12) {
            shares.push(self.p);
            shares.sort_by(f64::total_cmp);
        }
        let names = shares.iter().map(|&share| percentile_name(share));
        let head = ["latency".to_owned(), "mean".to_owned()]
            .into_iter()
            .chain(names)
            .chain(["max".to_owned()])
            .collect();
        let row = |name: &str, kept: &Kept| {
            let us = |ns: Option<f64>| figure(ns.map(|ns| ns / 1e3));
            let max = (!kept.histogram.is_empty()).then_some(kept.max_ns as f64);
            let percentiles = shares.iter().map(|&share| us(kept.percentile_ns(share)));
            [name.to_owned(), us(kept.mean_ns())]
                .into_iter()
                .chain(percentiles)
                .chain([us(max)])
                .collect()
        };
        vec![
            head,
            row("from intended send", &self.measured.intended),
            row("from actual send", &self.measured.actual),
        ]
    }

    /// The outcomes of the measured requests.
    pub(super) fn counts(&self) -> String {
        let Counts { sent, replied, lost, refused, timeout } = self.measured.glance.counts;
        let mut text = format!("{sent} sent, {replied} replied");
        for (name, count) in [
            ("lost", lost),
            ("refused", refused),
            ("timed out", timeout),
            ("errors", self.measured.glance.errors),
        ] {
            if count > 0 {
                text.push_str(&format!(", {count} {name}"));
            }
        }
        text
    }

    /// The verdict so far; `None` while there is nothing to judge.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        if self.measured.glance.counts.sent == 0 {
            return None;
        }
        let ns = |kept: &Kept| kept.percentile_ns(self.p);
        let (intended_ns, actual_ns) = (ns(&self.measured.intended), ns(&self.measured.actual));
        Some(Glance { intended_ns, actual_ns, ..self.measured.glance }.verdict(self.p))
    }

    /// The verdict so far, in words; what it is depends on the colour of the caller's own.
    pub(super) fn verdict_text(&self) -> String {
        match self.verdict() {
            None => "nothing is measured yet".to_owned(),
            Some(Verdict::Ok) => "nothing speaks against it so far".to_owned(),
            Some(verdict) => verdict
                .reasons()
                .iter()
                .map(|reason| printable(&format!("{reason}")))
                .collect::<Vec<_>>()
                .join("; "),
        }
    }

    /// Precision of the percentile, in words.
    pub(super) fn look_text(&self) -> String {
        let name = percentile_name(self.p);
        let Some(known) = self.look else {
            return format!("the interval of the {name} comes with the first look at all samples");
        };
        let [value, low, high] = [known.value_ns, known.low_ns, known.high_ns].map(duration);
        format!(
            "{name} {value}, {:.0} % interval {low} to {high} at the last look",
            100.0 * known.confidence
        )
    }

    /// The latest whole column in a line, for where nothing can be drawn; `None` without one.
    pub(super) fn line(&self) -> Option<String> {
        let point = self.points().last().copied()?;
        Some(format!(
            "{}: {}/s sent, {}/s replied, p50 {}, {} {}, max {}; {}",
            self.progress(),
            four_digits(point.sent_per_s.round()),
            four_digits(point.replied_per_s.round()),
            figure(point.p50_us),
            percentile_name(self.p),
            figure(point.tail_us),
            figure(point.max_us),
            self.verdict_text()
        ))
    }

    /// The column of a slice; columns are made as they are needed, and merged where they are too
    /// many.
    fn place(&mut self, slice: u32) -> usize {
        while slice / self.width >= COLUMNS_MAX {
            self.width *= 2;
            let mut pairs = std::mem::take(&mut self.columns).into_iter();
            while let Some(mut column) = pairs.next() {
                if let Some(second) = pairs.next() {
                    column.merge(&second);
                }
                self.columns.push(column);
            }
        }
        let place = (slice / self.width) as usize;
        while self.columns.len() <= place {
            self.columns.push(Column::new());
        }
        place
    }
}

impl Column {
    fn new() -> Self {
        let latencies = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 2)
            .expect("the bounds and the digits are valid constants");
        Self { latencies, max_ns: 0, sent: 0, replied: 0 }
    }

    fn record(&mut self, latency_ns: u64) {
        self.latencies.saturating_record(latency_ns.min(LATENCY_MAX_NS));
        self.max_ns = self.max_ns.max(latency_ns);
    }

    fn merge(&mut self, other: &Self) {
        self.latencies.add(&other.latencies).expect("all have the same bounds");
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sent += other.sent;
        self.replied += other.replied;
    }

    /// Percentile of the latencies, us; `None` unless ten samples lie beyond it.
    fn percentile_us(&self, p: f64) -> Option<f64> {
        let is_supported = self.latencies.len() as f64 * (1.0 - p) >= 10.0 - 1e-6;
        is_supported.then(|| self.latencies.value_at_quantile(p).min(self.max_ns) as f64 / 1e3)
    }
}

impl Measured {
    fn new() -> Self {
        Self { glance: Glance::default(), intended: Kept::new(), actual: Kept::new() }
    }

    fn take(&mut self, slice: &Slice, role: Role) {
        self.glance.counts.merge(&slice.counts);
        self.glance.errors += slice.tally.errors.iter().sum::<u64>();
        self.glance.misses += slice.tally.misses;
        self.glance.sent += slice.sent_meanwhile;
        self.glance.replied += slice.replied_meanwhile;
        if role != Role::Throughput {
            for sample in &slice.samples {
                self.intended.record(sample.latency_ns);
                self.actual.record(sample.actual_ns());
            }
        }
    }
}

const SHARES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// A column is at least so long: a p99 wants a thousand samples of it.
const COLUMN_NS_MIN: u64 = 1_000_000_000;

/// As many as a chart has room for; their histograms take 2 MB.
const COLUMNS_MAX: u32 = 120;

#[cfg(test)]
pub(super) mod tests {
    use tailcut_measure::control::{Forecast, Setup};
    use tailcut_measure::statistics::series::Timed;

    use super::*;

    /// A leg of so many slices of 100 ms.
    pub(crate) fn leg(slices: u64) -> Leg {
        Leg { for_ns: slices * SLICE_NS, setup: Setup::default(), forecast: None }
    }

    /// A thread's slice with a hundred replies, from 10 us on in steps of 1 us, one of them sent 3
    /// us late.
    pub(crate) fn slice(index: u32) -> Slice {
        let sample = |place: u64| Timed {
            intended_ns: u64::from(index) * SLICE_NS + place * 1_000_000,
            latency_ns: 10_000 + place * 1_000,
            late_ns: if place == 50 { 3_000 } else { 0 },
        };
        Slice {
            index,
            counts: Counts { sent: 100, replied: 100, ..Counts::default() },
            samples: (0..100).map(sample).collect(),
            sent_meanwhile: 100,
            replied_meanwhile: 100,
            ..Slice::default()
        }
    }

    /// A board that has warmed up for a second, and measured for so many slices of ten seconds.
    pub(crate) fn board(slices: u32) -> Board {
        let mut board = Board::new("echo:64 at 127.0.0.1:8000 over udp", 0.99, SLICE_NS);
        board.begin(Phase::Preparing, None);
        board.begin(Phase::WarmingUp, Some(&leg(10)));
        (0..10).for_each(|index| board.take(&slice(index), Role::Symmetric));
        board.pass(10 * SLICE_NS);
        board.begin(Phase::Measuring, Some(&leg(100)));
        (10..10 + slices).for_each(|index| board.take(&slice(index), Role::Symmetric));
        board.pass(u64::from(slices) * SLICE_NS);
        board
    }

    #[test]
    fn warm_up_is_drawn_and_not_measured() {
        let board = board(0);
        assert_eq!(board.points().len(), 1);
        assert_eq!(board.counts(), "0 sent, 0 replied");
        assert_eq!(board.verdict_text(), "nothing is measured yet");
    }

    #[test]
    fn a_column_is_a_second_and_is_shown_when_it_is_whole() {
        assert_eq!(board(9).points().len(), 1);
        let points = board(10).points();
        assert_eq!(points.len(), 2);
        let Point { at_s, sent_per_s, replied_per_s, p50_us, tail_us, max_us } = points[1];
        assert_eq!((at_s, sent_per_s, replied_per_s, max_us), (2.0, 1_000.0, 1_000.0, Some(109.0)));
        // Of ten of each latency from 10 to 109 us, to a hundredth.
        assert!(
            (p50_us.unwrap() - 59.0).abs() <= 0.6 && (tail_us.unwrap() - 108.0).abs() <= 1.1,
            "{points:?}"
        );
    }

    #[test]
    fn however_long_the_load_the_columns_are_few_and_hold_it_all() {
        let mut board = board(0);
        (10..40_000).for_each(|index| board.take(&slice(index), Role::Symmetric));
        let points = board.points();
        assert!((60..=120).contains(&points.len()), "{}", points.len());
        let replied: f64 = board.columns.iter().map(|column| column.replied as f64).sum();
        assert_eq!(replied, 4_000_000.0);
        assert!(points.iter().all(|point| point.replied_per_s == 1_000.0));
    }

    #[test]
    fn a_measurement_that_is_prolonged_goes_on_and_one_that_begins_again_does_not() {
        let mut board = board(100);
        let longer = Leg {
            forecast: Some(Forecast { total_ns: 25_000_000_000, limit_ns: 60_000_000_000 }),
            ..leg(150)
        };
        board.begin(Phase::Measuring, Some(&longer));
        assert_eq!(board.counts(), "10000 sent, 10000 replied");
        assert_eq!(board.progress(), "measuring, 0.0 of 15.0 s, 25 s in all");
        board.begin(Phase::WarmingUp, Some(&leg(10)));
        assert_eq!(board.counts(), "0 sent, 0 replied");
    }

    #[test]
    fn latencies_that_do_not_count_are_not_shown() {
        let mut board = board(10);
        board.take(&slice(20), Role::Throughput);
        assert_eq!(board.counts(), "1100 sent, 1100 replied");
        assert_eq!(board.measured.intended.histogram.len(), 1_000);
    }

    #[test]
    fn losses_are_in_the_verdict_so_far() {
        let mut board = board(10);
        let lossy = Slice {
            counts: Counts { sent: 200, replied: 100, lost: 100, ..Counts::default() },
            ..slice(20)
        };
        board.take(&Slice { sent_meanwhile: 200, ..lossy }, Role::Symmetric);
        assert!(board.verdict_text().contains("lost"), "{}", board.verdict_text());
        assert_eq!(board.counts(), "1200 sent, 1100 replied, 100 lost");
    }

    #[test]
    fn a_line_says_what_a_screen_would() {
        let line = board(15).line().unwrap();
        assert!(
            line.starts_with("measuring, 1.5 of 10.0 s: 1000/s sent, 1000/s replied, p50 "),
            "{line}"
        );
        assert!(line.ends_with("us, max 109 us; nothing speaks against it so far"), "{line}");
        assert_eq!(Board::new("", 0.99, SLICE_NS).line(), None);
    }

    #[test]
    fn a_percentile_of_ones_own_has_a_column() {
        let mut board = board(10);
        assert_eq!(board.latencies()[0], ["latency", "mean", "p50", "p90", "p99", "p99.9", "max"]);
        board.p = 0.95;
        assert_eq!(
            board.latencies()[0],
            ["latency", "mean", "p50", "p90", "p95", "p99", "p99.9", "max"]
        );
        let row = &board.latencies()[1];
        // A thousand samples leave ten beyond the p99 and one beyond the p99.9.
        assert_eq!(
            (row[1].as_str(), row[5].as_str(), row[6].as_str(), row[7].as_str()),
            ("59.5 us", "108 us", "-", "109 us")
        );
    }

    pub(crate) const SLICE_NS: u64 = 100_000_000;
}
