//! Meanings of the reasons of a verdict: docs/reasons.md, which pages hold as far as it is about
//! theirs.

use tailcut_instrument::result::{Point, Reason};

use crate::page::sections::Meaning;

/// Meaning of a reason by its name, as the page has it: paragraphs of plain text. `None` for names
/// that it does not have.
fn meaning(name: &str) -> Option<Meaning> {
    let heading = format!("## `{name}`\n");
    let (_, rest) = PAGE.split_once(&heading)?;
    let text = rest.split("\n## ").next().unwrap_or_default();
    let paragraphs = text.trim().split("\n\n").map(|paragraph| {
        let words: Vec<&str> = paragraph.split_whitespace().collect();
        words.join(" ").replace('`', "")
    });
    Some(Meaning { name: name.to_owned(), paragraphs: paragraphs.collect() })
}

/// The meanings of the reasons of these points, each once.
pub(crate) fn meanings<'a>(points: impl Iterator<Item = &'a Point>) -> Vec<Meaning> {
    let mut meanings: Vec<Meaning> = Vec::new();
    let reasons = points.flat_map(|point| &point.verdict.reasons);
    for Reason { name, .. } in reasons {
        if !meanings.iter().any(|known| known.name == *name) {
            meanings.extend(meaning(name));
        }
    }
    meanings
}

const PAGE: &str = include_str!("reasons.page");

#[cfg(test)]
mod tests {
    use strum::VariantNames;
    use tailcut_measure::verdict;

    use super::*;

    #[test]
    fn every_reason_has_its_place_and_every_place_its_reason() {
        for name in verdict::Reason::VARIANTS {
            let Meaning { paragraphs, .. } = meaning(name).unwrap_or_else(|| panic!("{name}"));
            assert!(paragraphs.iter().all(|text| text.len() > 80), "{name}: {paragraphs:?}");
        }
        assert_eq!(PAGE.matches("\n## `").count(), verdict::Reason::VARIANTS.len());
        // Weightiest first, as verdicts have them.
        let places: Vec<usize> = verdict::Reason::VARIANTS
            .iter()
            .map(|name| PAGE.find(&format!("\n## `{name}`\n")).expect("it has a place"))
            .collect();
        assert!(places.is_sorted(), "{places:?}");
    }
}
