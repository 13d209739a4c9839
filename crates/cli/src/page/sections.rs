//! A page of a verdict, the figures that matter most, and sections of charts and tables.
//!
//! Invariant: all text is escaped; the page needs nothing else, and holds what it was drawn from.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::context;
use serde::Serialize;

use super::Drawn;
use crate::output::printable;
use tailcut_instrument::result::Reason;

/// The parts of the page, from top to bottom.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Page {
    pub(crate) title: String,
    pub(crate) lead: String,
    pub(crate) judgements: Vec<Judgement>,
    pub(crate) tiles: Vec<Tile>,
    pub(crate) sections: Vec<Section>,
    /// The run's command and hosts: names and values.
    pub(crate) facts: Vec<(String, String)>,
    /// Titles and texts, as they are.
    pub(crate) texts: Vec<(String, String)>,
    /// Meanings of the reasons of the verdicts; what stands in a verdict links there.
    pub(crate) meanings: Vec<Meaning>,
    /// The result itself, for programs.
    pub(crate) download: Option<Download>,
}

/// A verdict and why.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Judgement {
    pub(crate) is_good: bool,
    pub(crate) headline: String,
    /// Findings in a sentence; may be empty.
    pub(crate) in_short: String,
    /// A name and an advice may be empty.
    pub(crate) reasons: Vec<Reason>,
    pub(crate) notes: Vec<String>,
}

/// Meaning of a reason: its name, and paragraphs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Meaning {
    pub(crate) name: String,
    pub(crate) paragraphs: Vec<String>,
}

/// A figure to see first.
#[derive(Debug, Serialize)]
pub(crate) struct Tile {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) note: String,
}

/// A chart, a table or both, under a title.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Section {
    title: String,
    chart: Option<Drawn>,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    /// True for columns that hold words, and are flush left.
    words: Vec<bool>,
    note: String,
}

impl Section {
    pub(crate) fn chart(title: &str, chart: Drawn) -> Self {
        Self { title: title.to_owned(), chart: Some(chart), ..Self::default() }
    }

    pub(crate) fn table(title: &str, head: &[&str], rows: Vec<Vec<String>>) -> Self {
        let is_word =
            |cell: &String| cell.starts_with(|letter: char| !"0123456789+-<".contains(letter));
        let words = (0..head.len())
            .map(|column| rows.iter().filter_map(|row| row.get(column)).any(is_word))
            .collect();
        let head = head.iter().map(|&cell| cell.to_owned()).collect();
        Self { title: title.to_owned(), head, rows, words, ..Self::default() }
    }

    /// With a sentence below it.
    pub(crate) fn noted(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }
}

/// A file that the page holds.
#[derive(Debug, Serialize)]
pub(crate) struct Download {
    name: String,
    /// URI of letters that need no escape.
    uri: String,
}

impl Download {
    /// JSON under the name of a file.
    pub(crate) fn json(name: &str, json: &str) -> Self {
        Self {
            name: name.to_owned(),
            uri: format!("data:application/json;base64,{}", STANDARD.encode(json)),
        }
    }
}

impl Page {
    /// The page as HTML.
    pub(crate) fn render(&self) -> Result<String> {
        let html = super::render(include_str!("sections.html"), context! { page => self })?;
        // What a name from elsewhere may hold and HTML may not.
        Ok(html.lines().map(printable).collect::<Vec<_>>().join("\n") + "\n")
    }
}

#[cfg(test)]
pub(crate) mod checks {
    //! Checks that hold of every page.

    /// Panics unless the page closes what it opens and loads nothing from anywhere.
    pub(crate) fn stands_alone(page: &str) {
        is_well_formed(page);
        let page = page.replace("http://www.w3.org/2000/svg", "");
        for foreign in [
            "http:", "https:", "src=", "@import", "url(", "<script", "<link", "<iframe", "<img",
            "<object",
        ] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }

    fn is_well_formed(page: &str) {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = page.strip_prefix("<!doctype html>").expect("a page begins with its kind");
        while let Some(at) = rest.find('<') {
            let end = at
                + rest[at..]
                    .find('>')
                    .unwrap_or_else(|| panic!("a tag does not end: {:.80}", &rest[at..]));
            let (tag, text) = (&rest[at + 1..end], &rest[..at]);
            assert!(!text.contains('>') || open.last() == Some(&"style"), "a bare >: {text}");
            let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "closes what is not open");
            } else if !tag.ends_with('/') && !["meta", "br", "input"].contains(&name) {
                open.push(name);
            }
            rest = &rest[end + 1..];
        }
        assert!(open.is_empty(), "{open:?} are open at the end");
    }
}
