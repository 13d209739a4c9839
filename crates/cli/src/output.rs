//! Standard output, files, and tables for people.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};

use anyhow::{Context, Result};

/// Writes to standard output. A reader that has gone, such as `head`, is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    unless_reader_left(written.context("cannot write to standard output"))
}

/// Takes it for success that nobody reads the rest.
pub(crate) fn unless_reader_left(result: Result<()>) -> Result<()> {
    let is_broken_pipe = |error: &io::Error| error.kind() == ErrorKind::BrokenPipe;
    match result {
        Err(error)
            if error.chain().filter_map(|cause| cause.downcast_ref()).any(is_broken_pipe) =>
        {
            Ok(())
        }
        result => result,
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

/// Makes sure that [`write_json`] will be able to write, before the work whose result it is.
pub(crate) fn check_writable(path: &str) -> Result<()> {
    if path != "-" {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .with_context(|| format!("cannot write {path}"))?;
    }
    Ok(())
}

/// Rows under a head, columns as wide as they need; the first column is flush left, figures flush
/// right.
pub(crate) fn table(rows: &[Vec<String>], left_columns: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            // Writing to a string cannot fail.
            let _ = if column < left_columns {
                write!(line, "{gap}{cell:<width$}")
            } else {
                write!(line, "{gap}{cell:>width$}")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Four significant digits, and all of a whole number.
pub(crate) fn four_digits(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e15 {
        return value.to_string();
    }
    let decimals = (3.0 - value.abs().log10().floor()).clamp(0.0, 12.0) as usize;
    format!("{value:.decimals$}")
}

/// Text from elsewhere without what would drive a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_need() {
        let rows =
            [["server", "placed"], ["10.0.0.1:80", "7"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows, 1), "server       placed\n10.0.0.1:80       7\n");
    }

    #[test]
    fn four_digits_matter() {
        for (value, written) in [
            (0.0, "0"),
            (123_456.0, "123456"),
            (12_345.6, "12346"),
            (4.560_4, "4.560"),
            (0.012_344, "0.01234"),
        ] {
            assert_eq!(four_digits(value), written);
        }
    }

    #[test]
    fn a_name_does_not_drive_the_terminal() {
        assert_eq!(printable("ERR\u{1b}[2J\r\n"), "ERR\u{fffd}[2J\u{fffd}\u{fffd}");
    }
}
