//! A comparison as one page for a browser.

use anyhow::{Context, Result};

use super::settings::shown;
use super::{Comparison, Side, text};
use crate::measure::charts::{self, Curve};
use crate::measure::page::judgement;
use crate::measure::reasons;
use crate::measure::text::title;
use crate::page::sections::{Download, Judgement, Page, Section};
use tailcut_instrument::result::Reason;

/// The page.
pub(super) fn render(comparison: &Comparison) -> Result<String> {
    let Comparison { before, after, rows, warnings, .. } = comparison;
    let json =
        serde_json::to_string_pretty(&comparison.json(&[])).context("the comparison is no JSON")?;
    let mut judgements = vec![headed("A", before), headed("B", after)];
    if !warnings.is_empty() {
        judgements.push(Judgement {
            headline: "Keep in mind".to_owned(),
            reasons: warnings
                .iter()
                .map(|warning| Reason {
                    name: String::new(),
                    what: warning.clone(),
                    advice: String::new(),
                })
                .collect(),
            ..Judgement::default()
        });
    }
    let mut cells = text::cells(rows);
    let head = cells.remove(0);
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let curves = [curve("A", 3, before), curve("B", 1, after)];
    let percentiles = charts::percentiles(&curves)
        .captioned("From the intended send. The bars are the intervals of each result; the table has those of the differences.");
    let mut sections = vec![
        Section::table("Differences", &head, cells).noted(text::NOTE),
        Section::chart("Percentiles", percentiles),
        Section::chart("Distribution", charts::distribution(&curves)),
    ];
    sections.extend(changes(comparison));
    let command =
        |letter: &str, side: &Side| (letter.to_owned(), side.result.environment.command.clone());
    let points = [&comparison.before, &comparison.after].map(|side| &side.result.point);
    let page = Page {
        title: "A comparison".to_owned(),
        lead: lead(before, after),
        judgements,
        sections,
        facts: vec![command("A", before), command("B", after)],
        meanings: reasons::meanings(points.into_iter()),
        download: Some(Download::json("comparison.json", &json)),
        ..Page::default()
    };
    page.render()
}

fn lead(before: &Side, after: &Side) -> String {
    let [first, second] = [before, after].map(|side| title(&side.result.config));
    if first == second { format!("{first}.") } else { format!("A is {first}, B is {second}.") }
}

fn headed(letter: &str, side: &Side) -> Judgement {
    let judgement = judgement(&side.result.point);
    let headline = format!("{letter}: {}: {}", side.name, judgement.headline.to_lowercase());
    Judgement { headline, ..judgement }
}

fn curve<'a>(label: &str, look: usize, side: &'a Side) -> Curve<'a> {
    Curve {
        label: label.to_owned(),
        look,
        histogram: &side.histogram,
        intervals: charts::intervals(&side.result.point),
    }
}

fn changes(comparison: &Comparison) -> Option<Section> {
    let rows = comparison.changes.iter().map(|change| {
        vec![change.key.clone(), shown(change.before.as_ref()), shown(change.after.as_ref())]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    (!rows.is_empty()).then(|| Section::table("Settings that differ", &["setting", "A", "B"], rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::sample;
    use crate::page::sections::checks;

    #[test]
    fn a_page_stands_alone_and_escapes_what_it_shows() {
        let side = |name, result| Side::new(name, result).unwrap();
        let comparison = Comparison::new(
            side("<i>a</i>.json", sample::single()),
            side("b.json", sample::full()),
        );
        let page = render(&comparison).unwrap();
        checks::stands_alone(&page);
        assert!(!page.contains("<i>") && !page.contains("<got>") && !page.contains("<b>host"));
        assert_eq!(
            page.matches("<svg").count(),
            8,
            "percentiles and distribution on two axes, wide and narrow"
        );
        for part in ["longer in B", "Settings that differ", "A: &lt;i&gt;a&lt;", "not trustworthy"]
        {
            assert!(page.contains(part), "{part}");
        }
    }
}
