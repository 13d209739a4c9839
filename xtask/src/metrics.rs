//! `cargo xtask metrics`: writes the book's page of metrics and log lines from the source.
//!
//! Invariant: what a counter means is said once, at its field, and what a gauge means where it is
//! written; the page repeats both. A stale page is refused by `cargo xtask tidy`.

mod counters;
mod events;
mod gauges;

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::tree::{Tree, Violation};

/// Writes the page.
pub(crate) fn run(root: &Path) -> Result<()> {
    fs::write(root.join(PAGE), written(&Tree::read(root)?)?)?;
    Ok(())
}

/// The page, if it is not what the command would write.
pub(crate) fn stale(tree: &Tree) -> Result<Option<Violation>> {
    let is_fresh = tree.text(PAGE) == Some(&written(tree)?);
    Ok((!is_fresh).then(|| Violation::new(PAGE, 1, "stale: run `cargo xtask metrics`")))
}

fn written(tree: &Tree) -> Result<String> {
    let [counters, gauges, events] =
        [counters::section(tree)?, gauges::section(tree)?, events::section(tree)?];
    Ok(format!("{HEAD}{counters}{gauges}{events}"))
}

/// A table of Markdown.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let escaped = |row: &Vec<String>| row.iter().map(|cell| cell.replace('|', "\\|")).collect();
    let head_line = line(head.iter().map(|&cell| cell.to_owned()).collect());
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    let rows: String = rows.iter().map(|row| line(escaped(row))).collect();
    format!("{head_line}{rule}{rows}")
}

const PAGE: &str = "docs/metrics.md";

const HEAD: &str = "\
# Metrics and log lines

This page is written from the source by `cargo xtask metrics`. [Operations](operations.md#metrics-and-health) says where metrics
are read and which ones to look at first.

";
