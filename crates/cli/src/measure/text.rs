//! A result for a terminal: whether it can be relied on, and then the figures.
//!
//! Invariant: without colour the text is the same, to the letter; nothing in it that came from
//! elsewhere drives a terminal.

use std::env;
use std::io::{IsTerminal as _, stderr, stdout};

use serde_json::Value;
use tailcut_measure::quantity::duration;

use crate::output::{four_digits, printable, table};
use tailcut_instrument::percentile::{self, PERCENTILES, Percentile};
use tailcut_instrument::result::{
    Agent, Interval, Latency, MeasureResult, Point, SamplesFile, Timestamps, Verdict,
};

/// Style of text that is set off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Coloured,
}

impl Style {
    /// Colours where standard output is a terminal that has them and nobody set `NO_COLOR`.
    pub(crate) fn of_stdout() -> Self {
        Self::of(stdout().is_terminal())
    }

    /// Colours where standard error is a terminal that has them and nobody set `NO_COLOR`.
    pub(crate) fn of_stderr() -> Self {
        Self::of(stderr().is_terminal())
    }

    fn of(is_terminal: bool) -> Self {
        let is_unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        if is_terminal && !is_unwanted && !is_dumb { Self::Coloured } else { Self::Plain }
    }

    /// A success, in green.
    pub(crate) fn good(self, text: &str) -> String {
        self.set_off("1;32", text)
    }

    /// A failure, in red.
    pub(crate) fn bad(self, text: &str) -> String {
        self.set_off("1;31", text)
    }

    fn set_off(self, code: &str, text: &str) -> String {
        if self == Self::Plain { text.to_owned() } else { format!("\u{1b}[{code}m{text}\u{1b}[0m") }
    }
}

/// The whole result.
pub(crate) fn describe(result: &MeasureResult, style: Style) -> String {
    let point = &result.point;
    let parts = [
        format!(
            "{}\n{}{}{}",
            printable(&measured(&result.config)),
            in_short(&point.verdict),
            verdict(&point.verdict, style),
            relied_on(point)
        ),
        rates(point),
        latencies(point),
        timestamps(&point.timestamps),
        agents(point),
        points(result),
        search(result),
        assertions(result, style),
        samples_file(result),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

/// Title of a measurement with its transport, by the settings.
pub(crate) fn measured(config: &Value) -> String {
    let title = title(config);
    match config.get("transport").and_then(Value::as_str) {
        Some(_) if title.contains(" at unix:") => format!("{title} over a Unix socket"),
        Some(transport) => format!("{title} over {transport}"),
        None => title,
    }
}

/// The title of a measurement: the request and its target, as the settings have them.
pub(crate) fn title(config: &Value) -> String {
    let text = |key: &str| match config.get(key)? {
        Value::String(text) => Some(text.clone()),
        Value::Array(texts) if !texts.is_empty() => {
            Some(texts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "))
        }
        _ => None,
    };
    match (text("app"), text("target")) {
        (Some(app), Some(target)) => format!("{app} at {target}"),
        (None, Some(target)) => target,
        _ => "A measurement".to_owned(),
    }
}

/// One load of several, in a line.
pub(crate) fn line(point: &Point) -> String {
    let interval = point
        .intervals_us
        .get("p99")
        .map_or_else(String::new, |interval| format!(" ({})", range(interval)));
    let latency = &point.latency_us.intended;
    format!(
        "{}/s offered, {}/s achieved: p50 {}, p99 {}{interval}, {}",
        four_digits(point.rate_per_s.offered),
        four_digits(point.rate_per_s.achieved),
        figure(latency.p50),
        figure(latency.p99),
        short_verdict(&point.verdict)
    )
}

/// Sentence on what was found; empty for results that have none.
fn in_short(verdict: &Verdict) -> String {
    if verdict.in_short.is_empty() {
        return String::new();
    }
    format!("In short: {}\n", printable(&verdict.in_short))
}

/// The verdict with its reasons, what would help, and what was tried.
pub(crate) fn verdict(verdict: &Verdict, style: Style) -> String {
    let mut text = match verdict.trustworthy {
        true => style.good("trustworthy"),
        false => style.bad("not trustworthy"),
    };
    text.push('\n');
    for reason in &verdict.reasons {
        text.push_str(&format!("  {}: {}\n", printable(&reason.name), printable(&reason.what)));
        if !reason.advice.is_empty() {
            text.push_str(&format!("    what would help: {}\n", printable(&reason.advice)));
        }
    }
    if !verdict.tried.is_empty() {
        let tried: Vec<String> = verdict.tried.iter().map(|step| printable(step)).collect();
        text.push_str(&format!("  tried: {}\n", tried.join("; ")));
    }
    text
}

/// Percentiles that can be relied on, whatever was asked for.
fn relied_on(point: &Point) -> String {
    let titles = percentile::trustworthy(point);
    if titles.is_empty() {
        String::new()
    } else {
        format!("  can be relied on: {}\n", printable(&titles.join(", ")))
    }
}

fn rates(point: &Point) -> String {
    let (rates, counts) = (&point.rate_per_s, &point.counts);
    let always = [
        ("offered/s", four_digits(rates.offered)),
        ("sent/s", four_digits(rates.sent)),
        ("achieved/s", four_digits(rates.achieved)),
        ("sent", counts.sent.to_string()),
        ("replied", counts.replied.to_string()),
        ("refused", counts.refused.to_string()),
        ("timeout", counts.timeout.to_string()),
        ("lost", counts.lost.to_string()),
    ];
    let sometimes = [("misses", counts.misses), ("reconnects", counts.reconnects)];
    let sometimes = sometimes
        .into_iter()
        .filter(|&(_, count)| count > 0)
        .map(|(name, count)| (name, count.to_string()));
    let cells = always.into_iter().chain(sometimes);
    let (names, values): (Vec<_>, Vec<_>) =
        cells.map(|(name, value)| (name.to_owned(), value)).unzip();
    let mut text = table(&[names, values], 0);
    for (name, count) in errors(point) {
        text.push_str(&format!("answered with an error: {count} x {}\n", printable(name)));
    }
    let seconds = [point.measured_s, point.warmup_s].map(four_digits);
    text.push_str(&format!("measured for {} s after {} s of warm-up\n", seconds[0], seconds[1]));
    text
}

/// Replies that were errors by what they say, or of results that do not know that by their kinds;
/// the most frequent first.
pub(crate) fn errors(point: &Point) -> Vec<(&str, u64)> {
    let counts = &point.counts;
    let known = if counts.error_codes.is_empty() { &counts.errors } else { &counts.error_codes };
    let mut errors: Vec<_> = known.iter().map(|(name, &count)| (name.as_str(), count)).collect();
    errors.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    errors
}

fn latencies(point: &Point) -> String {
    let mut rows = latency_rows(point);
    // A percentile that the samples do not support has no row here.
    let is_always = |row: &[String]| ["latency", "mean", "max"].contains(&row[0].as_str());
    rows.retain(|row| is_always(row) || row[1] != "-" || row[4] != "-");
    table(&rows, 1)
}

/// A head, and a row for the mean, each percentile and the maximum, supported or not.
pub(crate) fn latency_rows(point: &Point) -> Vec<Vec<String>> {
    let (intended, actual) = (&point.latency_us.intended, &point.latency_us.actual);
    let confidence =
        point.intervals_us.values().next().map_or(0.95, |interval| interval.confidence);
    let interval_head = format!("{} % interval", four_digits(100.0 * confidence));
    let head =
        ["latency", "from intended send", &interval_head, "effective samples", "from actual send"];
    let row = |title: &str, values: [Option<f64>; 2], interval: Option<&Interval>| {
        let range = interval.map_or_else(|| "-".to_owned(), range);
        let worth = interval.map(|interval| format!("{:.0}", interval.effective_samples));
        let worth = worth.unwrap_or_else(|| "-".to_owned());
        vec![title.to_owned(), figure(values[0]), range, worth, figure(values[1])]
    };
    let mut rows =
        vec![head.map(str::to_owned).to_vec(), row("mean", [intended.mean, actual.mean], None)];
    rows.extend(PERCENTILES.iter().map(|percentile| {
        let values = [intended, actual].map(|latency| percentile.of(latency));
        row(percentile.title, values, point.intervals_us.get(percentile.name))
    }));
    rows.extend(percentile::others(point).map(|(title, interval)| {
        row(&printable(&title), [Some(interval.value), None], Some(interval))
    }));
    rows.push(row("max", [intended.max, actual.max], None));
    rows
}

/// Timestamps that were used, each kind beside the others, and what the client itself adds.
fn timestamps(timestamps: &Timestamps) -> String {
    if timestamps.used.is_empty() {
        return String::new();
    }
    let mut text = format!("timestamps: {}", printable(&timestamps.used));
    if timestamps.asked > 0 {
        let share = 100.0 * timestamps.missing as f64 / timestamps.asked as f64;
        text.push_str(&format!(
            "; of {} transmit stamps {} never came ({share:.2} %), {} came late",
            timestamps.asked, timestamps.missing, timestamps.late
        ));
    }
    text.push('\n');
    if let Some(Latency { p50: Some(p50), p99, .. }) = timestamps.bias_us {
        let tail =
            p99.map_or_else(String::new, |p99| format!(", {} at the p99", duration(p99 * 1e3)));
        text.push_str(&format!(
            "the client adds {} at the median{tail} (user space minus kernel)\n",
            duration(p50 * 1e3)
        ));
    }
    if timestamps.latency_us.len() > 1 {
        let mut rows = vec![
            ["latency by timestamp", "requests", "p50", "p99", "p99.9"].map(str::to_owned).to_vec(),
        ];
        rows.extend(timestamps.latency_us.iter().map(|(kind, latency)| {
            let stamped =
                timestamps.stamped.get(kind).map_or_else(|| "-".to_owned(), ToString::to_string);
            [
                vec![printable(kind), stamped],
                [latency.p50, latency.p99, latency.p999].map(figure).to_vec(),
            ]
            .concat()
        }));
        text.push_str(&table(&rows, 1));
        text.push_str(&format!("all other figures are by {}\n", printable(&timestamps.answers)));
    }
    text
}

fn agents(point: &Point) -> String {
    if point.agents.len() < 2 && point.agents.iter().all(|agent| agent.lost.is_none()) {
        return String::new();
    }
    table(&[vec![AGENT_HEAD.map(str::to_owned).to_vec()], agent_rows(point)].concat(), 2)
}

/// A row for each agent, under [`AGENT_HEAD`].
pub(crate) fn agent_rows(point: &Point) -> Vec<Vec<String>> {
    let row = |agent: &Agent| {
        let lost =
            agent.lost.as_ref().map_or_else(String::new, |why| format!("lost: {}", printable(why)));
        let counts =
            [u64::from(agent.threads), u64::from(agent.connections), agent.sent, agent.replied];
        let names = vec![printable(&agent.name), printable(&agent.role)];
        [names, counts.map(|count| count.to_string()).to_vec(), vec![figure(agent.p99_us), lost]]
            .concat()
    };
    point.agents.iter().map(row).collect()
}

fn points(result: &MeasureResult) -> String {
    if result.points.is_empty() {
        return String::new();
    }
    table(&[vec![load_head(result)], load_rows(result)].concat(), 0)
}

/// The percentile that loads are compared by: of the objective, or that was asked for.
fn asked(result: &MeasureResult) -> Percentile {
    let objective = result.search.as_ref().map(|search| search.objective.as_str());
    let percentile = || result.config.get("percentile").and_then(Value::as_str);
    let text = objective.or_else(percentile).unwrap_or_default();
    let name = text.split(['<', '=']).next().unwrap_or_default().trim().replace('.', "");
    let known = PERCENTILES.iter().find(|percentile| percentile.name == name);
    known.copied().unwrap_or(PERCENTILES[3])
}

/// The head of [`load_rows`].
pub(crate) fn load_head(result: &MeasureResult) -> Vec<String> {
    let interval = format!("{} interval", asked(result).title);
    ["offered/s", "achieved/s", "p50", "p99", &interval, "verdict"].map(str::to_owned).to_vec()
}

/// A row for each load, under [`load_head`].
pub(crate) fn load_rows(result: &MeasureResult) -> Vec<Vec<String>> {
    let name = asked(result).name;
    let row = |point: &Point| {
        let latency = &point.latency_us.intended;
        vec![
            four_digits(point.rate_per_s.offered),
            four_digits(point.rate_per_s.achieved),
            figure(latency.p50),
            figure(latency.p99),
            point.intervals_us.get(name).map_or_else(|| "-".to_owned(), range),
            short_verdict(&point.verdict),
        ]
    };
    result.points.iter().map(row).collect()
}

fn search(result: &MeasureResult) -> String {
    let Some(search) = &result.search else { return String::new() };
    let objective = printable(&search.objective);
    let met = match search.met_per_s {
        Some(rate) => format!("the highest load that met {objective} is {}/s", four_digits(rate)),
        None => format!("no load is known to meet {objective}"),
    };
    let mut all = vec![met];
    match (search.missed_per_s, search.not_judged_per_s) {
        (Some(rate), _) => {
            all.push(format!("the lowest that missed it is {}/s", four_digits(rate)))
        }
        (None, None) => all.push("none missed it".to_owned()),
        (None, Some(_)) => {}
    }
    if let Some(rate) = search.not_judged_per_s {
        all.push(format!("{}/s could not be judged: see its verdict", four_digits(rate)));
    }
    format!("{}\n", all.join("; "))
}

fn assertions(result: &MeasureResult, style: Style) -> String {
    let lines = result.assertions.iter().map(|assertion| {
        let word = if assertion.holds { style.good("holds") } else { style.bad("fails") };
        format!("{word}: {} ({})\n", printable(&assertion.asked), printable(&assertion.found))
    });
    lines.collect()
}

fn samples_file(result: &MeasureResult) -> String {
    let Some(SamplesFile { path, written, left_out, .. }) = &result.samples_file else {
        return String::new();
    };
    format!("{written} requests are in {}, {left_out} were left out\n", printable(path))
}

/// A verdict in a cell.
pub(crate) fn short_verdict(verdict: &Verdict) -> String {
    if verdict.trustworthy {
        return "trustworthy".to_owned();
    }
    let names: Vec<String> = verdict.reasons.iter().map(|reason| printable(&reason.name)).collect();
    if names.is_empty() {
        "not trustworthy".to_owned()
    } else {
        format!("not trustworthy: {}", names.join(", "))
    }
}

/// Both ends of an interval.
pub(crate) fn range(interval: &Interval) -> String {
    format!("{} to {}", duration(interval.low * 1e3), duration(interval.high * 1e3))
}

/// A time in us as people say it, or a dash where the samples do not support it.
pub(crate) fn figure(value_us: Option<f64>) -> String {
    value_us.map_or_else(|| "-".to_owned(), |us| duration(us * 1e3))
}

pub(crate) const AGENT_HEAD: [&str; 8] =
    ["agent", "role", "threads", "connections", "sent", "replied", "p99", ""];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::sample;

    #[test]
    fn a_trustworthy_measurement_reads_as_reviewed() {
        let mut result = sample::single();
        result.point.agents.truncate(1);
        insta::assert_snapshot!(describe(&result, Style::Plain));
    }

    #[test]
    fn a_search_that_is_not_trustworthy_reads_as_reviewed() {
        insta::assert_snapshot!(describe(&sample::full(), Style::Plain));
    }

    #[test]
    fn a_load_of_several_is_a_line() {
        let full = sample::full();
        assert_eq!(
            line(&full.points[2]),
            "80000/s offered, 79796/s achieved: p50 61.6 us, p99 296 us (288 us to 308 us), not trustworthy: losses"
        );
        assert_eq!(
            line(&Point::default()),
            "0/s offered, 0/s achieved: p50 -, p99 -, not trustworthy"
        );
    }

    #[test]
    fn colour_changes_no_letter() {
        let coloured = describe(&sample::full(), Style::Coloured);
        assert!(
            coloured.starts_with(
                "echo:64 at <b>host</b>:8000 over udp\nIn short: the figures cannot be relied on: too many <got> no reply.\n\u{1b}[1;31mnot trustworthy\u{1b}[0m\n"
            ),
            "{coloured}"
        );
        let bare = ["\u{1b}[1;31m", "\u{1b}[1;32m", "\u{1b}[0m"]
            .iter()
            .fold(coloured, |text, code| text.replace(code, ""));
        assert_eq!(bare, describe(&sample::full(), Style::Plain));
    }

    #[test]
    fn nothing_from_elsewhere_drives_the_terminal() {
        let text = describe(&sample::full(), Style::Plain);
        assert!(
            text.contains("answered with an error: 2 x ERR <unknown>\u{fffd}[31m command\n"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'));
        let mut result = sample::full();
        result.point.counts.error_codes.clear();
        let text = describe(&result, Style::Plain);
        assert!(text.contains("2 x ERR <unknown>\u{fffd}[31m command") && !text.contains('\u{1b}'));
    }

    #[test]
    fn loads_are_compared_by_the_percentile_of_the_objective() {
        let mut result = sample::full();
        assert_eq!(load_head(&result)[4], "p99 interval");
        result.search.as_mut().unwrap().objective = "p50<1ms".to_owned();
        assert_eq!(load_head(&result)[4], "p50 interval");
        let interval = result.points[0].intervals_us["p50"];
        assert_eq!(load_rows(&result)[0][4], range(&interval));
    }

    #[test]
    fn a_load_that_could_not_be_judged_has_not_missed() {
        let mut result = sample::full();
        let found = result.search.as_mut().unwrap();
        (found.met_per_s, found.missed_per_s, found.not_judged_per_s) = (None, None, Some(1_000.0));
        assert_eq!(
            search(&result),
            "no load is known to meet p99<100us; 1000/s could not be judged: see its verdict\n"
        );
    }

    #[test]
    fn a_measurement_without_a_sample_is_described() {
        let mut result = sample::single();
        result.point = Point::default();
        let text = describe(&result, Style::Plain);
        assert!(text.contains("over r2p2\nnot trustworthy\n") && text.contains("mean"), "{text}");
    }
}
