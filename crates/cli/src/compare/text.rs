//! A comparison for a terminal.

use tailcut_measure::quantity::duration;

use super::difference::{DifferenceUs, Row};
use super::gate::{Judged, Outcome};
use super::{Comparison, Side};
use crate::measure::text::{self, Style};
use crate::output::{four_digits, printable, table};

/// The note below every table of differences.
pub(super) const NOTE: &str = "Each interval holds on its own: at 95 %, one in twenty percentiles that do not differ is expected to \
                               look as if it did.";

/// The whole comparison.
pub(super) fn describe(comparison: &Comparison, style: Style) -> String {
    let Comparison { before, after, rows, changes, warnings } = comparison;
    let mut text =
        [("A", before), ("B", after)].map(|(letter, side)| headed(letter, side, style)).concat();
    text.push('\n');
    if changes.is_empty() {
        text.push_str("the settings are the same\n");
    }
    for change in changes {
        text.push_str(&format!("{}\n", printable(&change.describe())));
    }
    for warning in warnings {
        text.push_str(&format!("warning: {}\n", printable(warning)));
    }
    if !rows.is_empty() {
        text.push_str(&format!("\n{}{NOTE}\n", table(&cells(rows), 1)));
    }
    text
}

/// A line for each condition.
pub(super) fn conditions(judged: &[Judged], style: Style) -> String {
    let line = |judged: &Judged| {
        let word = match judged.outcome {
            Outcome::Fails => style.bad(judged.outcome.word()),
            Outcome::Passes => style.good(judged.outcome.word()),
            Outcome::Open => judged.outcome.word().to_owned(),
        };
        format!("{word}: {} ({})\n", printable(&judged.asked), printable(&judged.found))
    };
    let lines: String = judged.iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

/// A head and a row for each percentile.
pub(super) fn cells(rows: &[Row]) -> Vec<Vec<String>> {
    let confidence = rows
        .iter()
        .find_map(|row| row.difference_us)
        .map_or(0.95, |difference| difference.confidence);
    let interval = format!("{} % interval", four_digits(100.0 * confidence));
    let head = ["latency", "A", "B", "B - A", &interval, "change", ""].map(str::to_owned).to_vec();
    let cells = rows.iter().map(|row| {
        let (value, interval) = match row.difference_us {
            Some(DifferenceUs { value, low, high, .. }) => {
                (signed(value), format!("{} to {}", signed(low), signed(high)))
            }
            None => (signed(row.after_us - row.before_us), "-".to_owned()),
        };
        let change = match row.before_us {
            before if before > 0.0 => format!("{:+.1} %", 100.0 * (row.after_us / before - 1.0)),
            _ => "-".to_owned(),
        };
        let figures = [time(row.before_us), time(row.after_us), value, interval, change];
        [vec![row.title.to_owned()], figures.to_vec(), vec![judged(row).to_owned()]].concat()
    });
    std::iter::once(head).chain(cells).collect()
}

fn headed(letter: &str, side: &Side, style: Style) -> String {
    format!("{letter}: {}, {}", printable(&side.name), text::verdict(side.verdict(), style))
}

fn judged(row: &Row) -> &'static str {
    match row.differs {
        Some(true) if row.after_us > row.before_us => "longer in B",
        Some(true) => "shorter in B",
        Some(false) => "no difference shown",
        None => "no interval",
    }
}

fn signed(value: f64) -> String {
    if value > 0.0 { format!("+{}", time(value)) } else { time(value) }
}

/// A time in us as people say it.
fn time(us: f64) -> String {
    duration(us * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::sample;

    #[test]
    fn a_comparison_reads_as_reviewed() {
        insta::assert_snapshot!(describe(&comparison(), Style::Plain));
    }

    #[test]
    fn what_came_from_elsewhere_does_not_drive_the_terminal() {
        let mut comparison = comparison();
        comparison.after.name = "\u{1b}[2J.json".to_owned();
        comparison.changes[0].before = Some("\u{1b}[31m".to_owned());
        assert!(!describe(&comparison, Style::Plain).contains('\u{1b}'));
    }

    fn comparison() -> Comparison {
        let side = |name, result| Side::new(name, result).unwrap();
        Comparison::new(side("a.json", sample::single()), side("b.json", sample::full()))
    }
}
