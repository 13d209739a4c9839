//! A result as one page for a browser: whether it can be relied on, the figures, the charts, and
//! what repeats it.

use anyhow::{Context, Result};
use serde_json::Value;

use super::charts::{self, Curve};
use super::reasons;
use super::text::{
    AGENT_HEAD, agent_rows, errors, figure, latency_rows, load_head, load_rows, range, title,
};
use crate::output::four_digits;
use crate::page::sections::{Download, Judgement, Page, Section, Tile};
use tailcut_instrument::hdr;
use tailcut_instrument::percentile::{self, PERCENTILES};
use tailcut_instrument::result::{
    Environment, Host, Latency, MeasureResult, Point, StationarityTest, Timestamps,
};

/// The page.
///
/// # Errors
///
/// That a histogram of the result cannot be read.
pub(crate) fn render(result: &MeasureResult) -> Result<String> {
    let point = &result.point;
    let json = serde_json::to_string_pretty(result).context("the result is no JSON")?;
    let heads = load_head(result);
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut sections = vec![latency_table(point)];
    sections.extend(curves(point)?);
    if result.points.len() > 1 {
        sections.push(load_chart(&result.points));
    }
    sections.extend(over_time(point));
    sections.extend(tests(point));
    sections.push(count_table(point));
    sections.extend(timestamp_table(point));
    sections.extend(
        [
            table_of("Agents", &AGENT_HEAD, agent_rows(point)),
            table_of("Loads", &heads, load_rows(result)),
            assertion_table(result),
        ]
        .into_iter()
        .flatten(),
    );
    let page = Page {
        title: title(&result.config),
        lead: lead(result),
        judgements: vec![judgement(point)],
        tiles: tiles(point),
        sections,
        facts: facts(&result.environment, &result.config),
        texts: vec![("Settings".to_owned(), format!("{:#}", result.config))],
        meanings: reasons::meanings([point].into_iter().chain(&result.points)),
        download: Some(Download::json("result.json", &json)),
    };
    page.render()
}

/// A verdict as a page shows it.
pub(crate) fn judgement(point: &Point) -> Judgement {
    let verdict = &point.verdict;
    let headline = if verdict.trustworthy { "Trustworthy" } else { "Not trustworthy" };
    let tried =
        (!verdict.tried.is_empty()).then(|| format!("Tried: {}.", verdict.tried.join("; ")));
    let titles = percentile::trustworthy(point);
    let relied_on =
        (!titles.is_empty()).then(|| format!("Can be relied on: {}.", titles.join(", ")));
    Judgement {
        is_good: verdict.trustworthy,
        headline: headline.to_owned(),
        in_short: verdict.in_short.clone(),
        reasons: verdict.reasons.clone(),
        notes: tried.into_iter().chain(relied_on).collect(),
    }
}

fn lead(result: &MeasureResult) -> String {
    let point = &result.point;
    let searched = result.search.as_ref().map(|search| match search.met_per_s {
        Some(rate) => {
            format!(" The highest load that met {} is {}/s.", search.objective, four_digits(rate))
        }
        None => format!(" No load is known to meet {}.", search.objective),
    });
    let seconds = [point.measured_s, point.warmup_s].map(four_digits);
    format!(
        "Measured for {} s after {} s of warm-up.{}",
        seconds[0],
        seconds[1],
        searched.unwrap_or_default()
    )
}

fn tiles(point: &Point) -> Vec<Tile> {
    let latency = &point.latency_us.intended;
    let shown =
        PERCENTILES.iter().filter(|percentile| ["p50", "p99", "p999"].contains(&percentile.name));
    let percentiles = shown.filter_map(|percentile| {
        let value = percentile.of(latency)?;
        let note = point.intervals_us.get(percentile.name).map(range).unwrap_or_default();
        Some(Tile { name: percentile.title.to_owned(), value: figure(Some(value)), note })
    });
    let rates = &point.rate_per_s;
    let note = format!("of {} offered", four_digits(rates.offered));
    let achieved =
        Tile { name: "replies per second".to_owned(), value: four_digits(rates.achieved), note };
    percentiles.chain([achieved]).collect()
}

fn latency_table(point: &Point) -> Section {
    let mut rows = latency_rows(point);
    let head = rows.remove(0);
    let head: Vec<&str> = [""].into_iter().chain(head[1..].iter().map(String::as_str)).collect();
    let note = "A percentile is shown if at least ten samples lie beyond it. Latency from the intended send is what a user would see; \
                if it is longer than that from the actual send, the client could not keep to its schedule. Neighbouring requests \
                wait in the same queue, so the samples are worth fewer independent ones; the intervals take that into account.";
    Section::table("Latency", &head, rows).noted(note)
}

fn curves(point: &Point) -> Result<Vec<Section>> {
    let intended =
        hdr::decode(&point.histograms.intended).context("latencies from the intended send")?;
    let actual = hdr::decode(&point.histograms.actual).context("latencies from the actual send")?;
    let curve = |label: &str, look, histogram, intervals| Curve {
        label: label.to_owned(),
        look,
        histogram,
        intervals,
    };
    let curves = [
        curve("from actual send", 0, &actual, Vec::new()),
        curve("from intended send", 1, &intended, charts::intervals(point)),
    ];
    let percentiles = charts::percentiles(&curves).captioned(
        "Each further nine has the same width. The bars are the intervals of the marked percentiles; the curve ends where fewer than ten \
         samples lie beyond.",
    );
    Ok(vec![
        Section::chart("Percentiles", percentiles),
        Section::chart("Distribution", charts::distribution(&curves)),
    ])
}

fn load_chart(points: &[Point]) -> Section {
    Section::chart(
        "Latency against load",
        charts::loads(points).captioned("From the intended send; bars are intervals."),
    )
}

fn over_time(point: &Point) -> Vec<Section> {
    if point.series.len() < 2 {
        return Vec::new();
    }
    vec![
        Section::chart("Rate over time", charts::rate(&point.series)),
        Section::chart(
            "Latency over time",
            charts::latency(&point.series).captioned("From the intended send."),
        ),
    ]
}

fn tests(point: &Point) -> Vec<Section> {
    let mut sections = Vec::new();
    if let Some(test) = point.tests.arrivals.as_ref().filter(|test| !test.quantiles.is_empty()) {
        let caption = format!(
            "Asked for: {}. On the diagonal, requests left as asked; above it, they left in bursts with gaps between.",
            test.asked
        );
        sections.push(Section::chart("Arrivals", charts::arrivals(test).captioned(caption)));
    }
    if !point.tests.autocorrelation.is_empty() {
        let caption = "How similar a latency is to the one that many requests later. The slower this falls, the more samples a result needs.";
        sections.push(Section::chart(
            "Autocorrelation",
            charts::autocorrelation(&point.tests.autocorrelation).captioned(caption),
        ));
    }
    let rows = test_rows(point);
    if !rows.is_empty() {
        sections.push(Section::table("Tests", &["test", "statistic", "p value", "effect"], rows));
    }
    sections
}

fn test_rows(point: &Point) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    if let Some(test) = &point.tests.arrivals {
        let name = format!("arrivals: Anderson-Darling of {} gaps", test.gaps);
        let effect = format!("departs by {:.4}", test.fault);
        rows.push(vec![
            name,
            format!("{:.2}", test.anderson_darling),
            chance(Some(test.p_value)),
            effect,
        ]);
    }
    if let Some(test) = &point.tests.stationarity {
        let StationarityTest { dickey_fuller, dickey_fuller_p_value, drift, drift_p_value } = *test;
        let name = "level: augmented Dickey-Fuller".to_owned();
        let statistic =
            dickey_fuller.map_or_else(|| "-".to_owned(), |statistic| format!("{statistic:.2}"));
        rows.push(vec![name, statistic, chance(dickey_fuller_p_value), String::new()]);
        let effect = drift
            .map_or_else(String::new, |share| format!("{:+.2} % from half to half", 100.0 * share));
        rows.push(vec![
            "drift between the halves".to_owned(),
            "-".to_owned(),
            chance(drift_p_value),
            effect,
        ]);
    }
    rows
}

/// A p value; the smallest ones differ by nothing that matters.
fn chance(p_value: Option<f64>) -> String {
    match p_value {
        Some(p_value) if p_value < 0.001 => "< 0.001".to_owned(),
        Some(p_value) => format!("{p_value:.3}"),
        None => "-".to_owned(),
    }
}

fn count_table(point: &Point) -> Section {
    let (counts, client) = (&point.counts, &point.client);
    let mut rows: Vec<(String, u64)> = [
        ("sent", counts.sent),
        ("replied", counts.replied),
        ("lost", counts.lost),
        ("refused", counts.refused),
        ("timed out", counts.timeout),
        ("misses", counts.misses),
        ("connections reopened", counts.reconnects),
        ("replies that do not fit the request", client.mismatched),
        ("held back by a limit on outstanding requests", client.saturated),
        ("packets sent again", client.resent),
        ("times that a thread slept", client.sleeps),
        ("reported undeliverable by the network (ICMP)", client.icmp_errors),
        ("dropped by the client's kernel", client.kernel_drops),
        (
            "packets dropped by the hosts that loaded",
            client.host_drops.map_or(0, |drops| drops.sum()),
        ),
    ]
    .map(|(name, count)| (name.to_owned(), count))
    .to_vec();
    let clones = client.clones.iter().flat_map(|clones| {
        [
            ("copies that clients sent", clones.sent),
            ("answered by the copy", clones.won),
            ("replies of the slower copy, dropped", clones.filtered),
            ("copies not sent because of the budget", clones.over_budget),
            ("copies not sent because requests waited", clones.withheld),
            ("slower copies cancelled", clones.cancelled),
        ]
    });
    rows.extend(clones.map(|(name, count)| (name.to_owned(), count)));
    let error = |(name, count)| (format!("answered with an error: {name}"), count);
    rows.extend(errors(point).into_iter().map(error));
    let rows = rows.into_iter().map(|(name, count)| vec![name, count.to_string()]).collect();
    Section::table(
        "Counts",
        &["what became of the requests, and events at the client", "count"],
        rows,
    )
}

fn timestamp_table(point: &Point) -> Option<Section> {
    let timestamps = &point.timestamps;
    if timestamps.used.is_empty() {
        return None;
    }
    let row = |name: &str, stamped: Option<&u64>, latency: &Latency| {
        let figures =
            [latency.mean, latency.p50, latency.p99, latency.p999, latency.max].map(figure);
        [
            vec![name.to_owned(), stamped.map_or_else(|| "-".to_owned(), ToString::to_string)],
            figures.to_vec(),
        ]
        .concat()
    };
    let of_kind =
        |(kind, latency): (&String, &Latency)| row(kind, timestamps.stamped.get(kind), latency);
    let mut rows: Vec<Vec<String>> = timestamps.latency_us.iter().map(of_kind).collect();
    rows.extend(timestamps.bias_us.as_ref().map(|bias| row("what the client adds", None, bias)));
    let Timestamps { used, answers, asked, missing, late, .. } = timestamps;
    let note = format!(
        "Used: {used}; all other figures are by {answers}. Of {asked} transmit stamps {missing} never came and {late} came late. \
         Latencies from the actual send, of requests that several have stamped."
    );
    Some(
        Section::table(
            "Timestamps",
            &["stamps of", "requests", "mean", "p50", "p99", "p99.9", "max"],
            rows,
        )
        .noted(note),
    )
}

fn assertion_table(result: &MeasureResult) -> Option<Section> {
    let rows = result.assertions.iter().map(|assertion| {
        let word = if assertion.holds { "holds" } else { "fails" };
        vec![assertion.asked.clone(), word.to_owned(), assertion.found.clone()]
    });
    table_of("Assertions", &["asked", "", "found"], rows.collect())
}

/// A table that has rows.
fn table_of(title: &str, head: &[&str], rows: Vec<Vec<String>>) -> Option<Section> {
    (!rows.is_empty()).then(|| Section::table(title, head, rows))
}

fn facts(environment: &Environment, config: &Value) -> Vec<(String, String)> {
    let mut facts = vec![
        ("Command".to_owned(), environment.command.clone()),
        ("Version".to_owned(), format!("tailcut {}", environment.version)),
        ("Began".to_owned(), environment.started.clone()),
    ];
    facts.extend(config.get("seed").map(|seed| ("Seed".to_owned(), seed.to_string())));
    facts.extend(environment.hosts.iter().map(|host| (host.name.clone(), described(host))));
    facts
}

/// A host's description, in a line.
fn described(host: &Host) -> String {
    let mut parts =
        vec![format!("{}, {} cores", host.cpu, host.cores), format!("Linux {}", host.kernel)];
    parts.extend(host.governor.as_ref().map(|governor| format!("governor {governor}")));
    parts.extend(host.interface.clone());
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::sample;
    use crate::page::sections::checks;

    #[test]
    fn a_page_stands_alone() {
        for result in [sample::single(), sample::full()] {
            checks::stands_alone(&render(&result).unwrap());
        }
    }

    #[test]
    fn a_reason_links_to_what_it_means() {
        let mut result = sample::full();
        result.point.verdict.reasons[0].name = "host_busy".to_owned();
        let page = render(&result).unwrap();
        assert!(page.contains("<a href=\"#reason-host_busy\">host_busy</a>"), "{page}");
        assert!(page.contains("id=\"reason-host_busy\"") && page.contains("the hypervisor took"));
        checks::stands_alone(&page);
    }

    #[test]
    fn names_from_elsewhere_are_escaped() {
        let page = render(&sample::full()).unwrap();
        for raw in ["<b>host", "<load-2>", "<got>", "<unknown>"] {
            assert!(!page.contains(raw), "{raw}");
        }
        for escaped in ["&lt;b&gt;host", "&lt;load-2&gt;", "&lt;got&gt;", "&lt;unknown&gt;"] {
            assert!(page.contains(escaped), "{escaped}");
        }
    }

    #[test]
    fn the_title_says_what_was_asked_of_whom() {
        use serde_json::json;
        for (config, expected) in [
            (json!({ "app": "echo:64", "target": "a:1" }), "echo:64 at a:1"),
            (json!({ "app": "redis", "target": ["a:1", "b:2"] }), "redis at a:1, b:2"),
            (json!({ "target": "a:1" }), "a:1"),
            (json!({ "target": [] }), "A measurement"),
        ] {
            assert_eq!(title(&config), expected);
        }
    }

    #[test]
    fn a_percentile_of_ones_own_is_in_the_table() {
        let mut result = sample::single();
        let interval = result.point.intervals_us["p99"];
        result.point.intervals_us.insert("p995".to_owned(), interval);
        assert!(render(&result).unwrap().contains(">p99.5</th>"));
    }

    #[test]
    fn the_verdict_comes_first() {
        let page = render(&sample::full()).unwrap();
        let (verdict, chart) = (page.find("Not trustworthy").unwrap(), page.find("<svg").unwrap());
        assert!(verdict < page.find("<table").unwrap() && verdict < chart);
        assert!(page.contains("What would help: lower --rate"));
        assert!(render(&sample::single()).unwrap().contains("<strong>Trustworthy</strong>"));
    }

    #[test]
    fn every_chart_is_drawn_wide_and_narrow() {
        let charts = |result: &MeasureResult| render(result).unwrap().matches("<svg").count();
        // Percentiles, distribution, two over time, arrivals, autocorrelation; of several loads the
        // loads too. Percentiles, distribution, latency over time and over loads are there on
        // another axis besides.
        assert_eq!(charts(&sample::single()), 2 * (6 + 3));
        assert_eq!(charts(&sample::full()), 2 * (7 + 4));
    }

    #[test]
    fn no_chart_holds_what_is_no_number() {
        let page = render(&sample::full()).unwrap();
        let charts = page.split("<svg").skip(1).map(|chart| chart.split("</svg>").next().unwrap());
        charts
            .for_each(|chart| assert!(!chart.contains("NaN") && !chart.contains("inf"), "{chart}"));
    }

    #[test]
    fn the_page_holds_the_result() {
        use base64::Engine as _;
        let result = sample::full();
        let page = render(&result).unwrap();
        let data =
            page.split("data:application/json;base64,").nth(1).unwrap().split('"').next().unwrap();
        let json = base64::engine::general_purpose::STANDARD.decode(data).unwrap();
        assert_eq!(
            serde_json::from_slice::<Value>(&json).unwrap(),
            serde_json::to_value(&result).unwrap()
        );
    }

    #[test]
    fn a_measurement_without_a_sample_has_a_page() {
        let mut result = sample::single();
        let empty =
            hdr::encode(&hdrhistogram::Histogram::new_with_bounds(1, 1_000_000, 3).unwrap());
        result.point = Point::default();
        result.point.histograms =
            tailcut_instrument::result::Histograms { intended: empty.clone(), actual: empty };
        checks::stands_alone(&render(&result).unwrap());
    }
}
