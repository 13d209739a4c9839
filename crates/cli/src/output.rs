//! Standard output, files, and tables for people.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, ErrorKind, Write as _};

use anyhow::{Context, Result};

/// Writes to standard output. A reader that has gone, such as `head`, is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write to standard output"),
        _ => Ok(()),
    }
}

/// Writes JSON to the file, or to standard output where the path is `-`.
pub(crate) fn write_json(path: &str, value: &serde_json::Value) -> Result<()> {
    let text = format!("{value:#}\n");
    if path == "-" {
        return print(&text);
    }
    fs::write(path, text).with_context(|| format!("cannot write {path}"))
}

/// Rows under a head, columns as wide as they need; the first column is flush left, figures flush right.
pub(crate) fn table(rows: &[Vec<String>], left_columns: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            // Writing to a string cannot fail.
            let _ = if column < left_columns { write!(line, "{gap}{cell:<width$}") } else { write!(line, "{gap}{cell:>width$}") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_need() {
        let rows = [["server", "placed"], ["10.0.0.1:80", "7"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows, 1), "server       placed\n10.0.0.1:80       7\n");
    }
}
