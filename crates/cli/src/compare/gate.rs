//! `--fail-if`: conditions on a comparison that fail a build, and what tells of them.
//!
//! Invariant: a condition that the interval of the difference leaves open has not failed: noise
//! fails no build, and says so.

use std::fmt::Write as _;
use std::str::FromStr;

use tailcut_instrument::percentile::{PERCENTILES, Percentile};
use tailcut_measure::quantity::{duration, parse_duration_ns};

use super::Comparison;
use super::difference::Row;

/// A condition: `p99>+5%`, or `p99>+20us`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Condition {
    text: String,
    percentile: Percentile,
    limit: Limit,
}

/// Largest increase allowed from A to B.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    /// Share of the time that A takes.
    Share(f64),
    /// In us.
    Us(f64),
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused =
            || format!("{text:?} is no condition; write one such as 'p99>+5%' or 'p50>+20us'");
        let (name, limit) = text.split_once('>').ok_or_else(refused)?;
        let percentile = PERCENTILES.iter().find(|percentile| percentile.title == name.trim());
        let Some(percentile) = percentile else {
            let titles: Vec<&str> = PERCENTILES.iter().map(|percentile| percentile.title).collect();
            return Err(format!("{name:?} is none of {}", titles.join(", ")));
        };
        let limit = limit.trim().strip_prefix('+').ok_or_else(refused)?;
        let limit = match limit.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.trim().parse::<f64>().ok();
                let percent = percent.filter(|percent| percent.is_finite() && *percent >= 0.0);
                Limit::Share(percent.ok_or_else(refused)? / 100.0)
            }
            None => {
                Limit::Us(parse_duration_ns(limit).map_err(|error| error.to_string())? as f64 / 1e3)
            }
        };
        Ok(Self { text: text.to_owned(), percentile: *percentile, limit })
    }
}

/// Judgement of a comparison on a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    /// As it was asked.
    pub(super) asked: String,
    pub(super) outcome: Outcome,
    /// Findings in words.
    pub(super) found: String,
}

/// Outcome of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The whole interval of the difference is beyond the limit.
    Fails,
    /// All of it is within.
    Passes,
    /// The limit lies in it, or there is none.
    Open,
}

impl Condition {
    /// Judgement on it by the rows of a comparison.
    pub(super) fn judge(&self, rows: &[Row]) -> Judged {
        let row = rows.iter().find(|row| row.name == self.percentile.name);
        let (outcome, found) = match row {
            None => (Outcome::Open, "the samples of one result do not support it".to_owned()),
            Some(row) => self.judge_row(row),
        };
        Judged { asked: self.text.clone(), outcome, found }
    }

    fn judge_row(&self, row: &Row) -> (Outcome, String) {
        let time = |us: f64| duration(us * 1e3);
        let change = 100.0 * (row.after_us / row.before_us.max(f64::MIN_POSITIVE) - 1.0);
        let found = format!(
            "{} was {} and is {} ({change:+.1} %)",
            row.title,
            time(row.before_us),
            time(row.after_us)
        );
        let Some(difference) = row.difference_us else {
            return (Outcome::Open, format!("{found}; there is no interval of the difference"));
        };
        let limit_us = match self.limit {
            Limit::Share(share) => share * row.before_us,
            Limit::Us(us) => us,
        };
        let found = format!(
            "{found}; the difference is {} to {}",
            time(difference.low),
            time(difference.high)
        );
        if difference.low > limit_us {
            (Outcome::Fails, found)
        } else if difference.high <= limit_us {
            (Outcome::Passes, found)
        } else {
            (Outcome::Open, format!("{found}, in which the limit lies: measure longer to decide"))
        }
    }
}

impl Outcome {
    /// As people say it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Fails => "fails",
            Self::Passes => "passes",
            Self::Open => "not decided",
        }
    }
}

/// The conditions as a report of JUnit, which CI systems show: a test for each, and one for each
/// result that cannot be relied on.
pub(super) fn junit(comparison: &Comparison, judged: &[Judged]) -> String {
    let mut cases = String::new();
    let (mut failures, mut skipped, mut count) = (0, 0, 0);
    for judged in judged {
        count += 1;
        let (asked, found) = (escaped(&judged.asked), escaped(&judged.found));
        let inner = match judged.outcome {
            Outcome::Fails => {
                failures += 1;
                format!("<failure message=\"{found}\"/>")
            }
            Outcome::Open => {
                skipped += 1;
                format!("<skipped message=\"{found}\"/>")
            }
            Outcome::Passes => format!("<system-out>{found}</system-out>"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            cases,
            "    <testcase classname=\"tailcut.compare\" name=\"{asked}\">{inner}</testcase>"
        );
    }
    for side in [&comparison.before, &comparison.after] {
        count += 1;
        let name = escaped(&side.name);
        let verdict = side.verdict();
        let inner = if verdict.trustworthy {
            String::new()
        } else {
            skipped += 1;
            let reasons: Vec<&str> =
                verdict.reasons.iter().map(|reason| reason.what.as_str()).collect();
            format!("<skipped message=\"not trustworthy: {}\"/>", escaped(&reasons.join("; ")))
        };
        let _ = writeln!(
            cases,
            "    <testcase classname=\"tailcut.trustworthy\" name=\"{name}\">{inner}</testcase>"
        );
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"tailcut compare\" tests=\"{count}\" \
         failures=\"{failures}\" skipped=\"{skipped}\" errors=\"0\">\n{cases}  </testsuite>\n</testsuites>\n"
    )
}

/// The conditions as commands of GitHub's workflows, which annotate the run: errors for those that
/// fail, warnings for those that are open.
pub(super) fn github(comparison: &Comparison, judged: &[Judged]) -> String {
    let mut text = String::new();
    for Judged { asked, outcome, found } in judged {
        let kind = match outcome {
            Outcome::Fails => "error",
            Outcome::Open => "warning",
            Outcome::Passes => "notice",
        };
        let (title, found) = (property(asked), message(found));
        let _ = writeln!(text, "::{kind} title={title} {}::{found}", outcome.word());
    }
    for side in [&comparison.before, &comparison.after] {
        if !side.verdict().trustworthy {
            let name = message(&side.name);
            let _ = writeln!(text, "::warning title=not trustworthy::{name} cannot be relied on");
        }
    }
    text
}

/// Text within XML.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// The text of a workflow's command.
fn message(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of one.
fn property(text: &str) -> String {
    message(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::super::difference::DifferenceUs;
    use super::*;

    fn row(low: f64, high: f64) -> Row {
        let value = f64::midpoint(low, high);
        Row {
            name: "p99",
            title: "p99",
            before_us: 100.0,
            after_us: 100.0 + value,
            difference_us: Some(DifferenceUs { value, low, high, confidence: 0.95 }),
            differs: Some(low > 0.0 || high < 0.0),
            is_episodic: false,
        }
    }

    fn outcome(condition: &str, rows: &[Row]) -> Outcome {
        condition.parse::<Condition>().unwrap().judge(rows).outcome
    }

    #[test]
    fn only_a_whole_interval_beyond_the_limit_fails() {
        for (condition, low, high, expected) in [
            ("p99>+5%", 6.0, 10.0, Outcome::Fails),
            ("p99>+5%", 4.0, 10.0, Outcome::Open),
            ("p99>+5%", 1.0, 5.0, Outcome::Passes),
            ("p99>+5%", -20.0, -10.0, Outcome::Passes),
            ("p99>+10us", 11.0, 12.0, Outcome::Fails),
            ("p99>+0%", 0.5, 1.0, Outcome::Fails),
            ("p50>+5%", 6.0, 10.0, Outcome::Open),
        ] {
            assert_eq!(outcome(condition, &[row(low, high)]), expected, "{condition} {low} {high}");
        }
        let bare = Row { difference_us: None, differs: None, ..row(50.0, 60.0) };
        assert_eq!(outcome("p99>+5%", &[bare]), Outcome::Open);
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in ["", "p99", "p99<5%", "p99>5%", "p98>+5%", "p99>+5", "p99>+x%", "p99>+-1%"] {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
    }

    #[test]
    fn texts_of_others_are_escaped() {
        assert_eq!(escaped("p99>+5% \"<a>&\u{1b}"), "p99&gt;+5% &quot;&lt;a&gt;&amp;\u{fffd}");
        assert_eq!(property("p99>+5%,a:b\n"), "p99>+5%25%2Ca%3Ab%0A");
    }
}
