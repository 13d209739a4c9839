//! `cargo xtask conformance`: the dissectors in `tools/wireshark` read the captures in `conformance/captures`, and must
//! see what stands beside each.
//!
//! Beside `NAME.pcap` stands `NAME.fields`, which is what tshark prints for it: a first line of field names, separated by
//! tabs, and one line of values for each packet. The first line chooses the fields, so a change to what a dissector shows
//! elsewhere, or a newer tshark, breaks nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Compares every capture; an error lists the first difference of each.
pub(crate) fn run(root: &Path) -> Result<()> {
    let dissectors = files_of(&root.join("tools/wireshark"), "lua")?;
    let captures = files_of(&root.join("conformance/captures"), "pcap")?;
    ensure!(dissectors.is_empty() == captures.is_empty(), "dissectors need captures to be tested by, and captures dissectors");

    let mut failures = Vec::new();
    for capture in &captures {
        let fields = capture.with_extension("fields");
        let expected = std::fs::read_to_string(&fields)
            .with_context(|| format!("{} needs what tshark must see in it", capture.display()))?;
        let seen = dissect(&dissectors, capture, expected.lines().next().unwrap_or_default())?;
        failures.extend(difference(&expected, &seen).map(|line| format!("{}:{line}", fields.display())));
    }
    if failures.is_empty() {
        println!("conformance: {} dissectors, {} captures", dissectors.len(), captures.len());
        return Ok(());
    }
    bail!("the dissectors see something else:\n{}", failures.join("\n"));
}

/// The files of a directory with an extension, in order; none when there is no such directory.
fn files_of(directory: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    if !directory.is_dir() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in directory.read_dir()? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// What tshark prints for a capture, with the fields that a header line names.
fn dissect(dissectors: &[PathBuf], capture: &Path, header: &str) -> Result<String> {
    let mut tshark = Command::new("tshark");
    for dissector in dissectors {
        tshark.arg("-X").arg(format!("lua_script:{}", dissector.display()));
    }
    tshark.arg("-r").arg(capture).args(["-T", "fields", "-E", "header=y"]);
    for field in header.split('\t') {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().context("tshark is needed; `make setup` installs it")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "tshark on {}: {complaint}", capture.display());
    // A dissector that fails to load, or that fails on a packet, does not change tshark's exit status.
    ensure!(!complaint.contains("Lua"), "tshark on {}: {complaint}", capture.display());
    Ok(String::from_utf8(output.stdout)?)
}

/// The first line that differs, counted from 1, with both readings.
fn difference(expected: &str, seen: &str) -> Option<String> {
    let count = expected.lines().count().max(seen.lines().count());
    let line = |text: &str, index| text.lines().nth(index).unwrap_or("(nothing)").to_owned();
    let mut pairs = (0..count).map(|index| (index + 1, line(expected, index), line(seen, index)));
    let (number, expected, seen) = pairs.find(|(_, expected, seen)| expected != seen)?;
    Some(format!("{number}:\n  expected {expected}\n  seen     {seen}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_has_no_difference() {
        assert_eq!(difference("udp.port\n1\n", "udp.port\n1\n"), None);
    }

    #[test]
    fn the_first_other_value_is_the_difference() {
        assert_eq!(difference("a\n1\n2\n", "a\n1\n3\n").as_deref(), Some("3:\n  expected 2\n  seen     3"));
    }

    #[test]
    fn a_packet_too_few_is_a_difference() {
        assert_eq!(difference("a\n1\n", "a\n").as_deref(), Some("2:\n  expected 1\n  seen     (nothing)"));
    }

    #[test]
    fn a_packet_too_many_is_a_difference() {
        assert_eq!(difference("a\n", "a\n1\n").as_deref(), Some("2:\n  expected (nothing)\n  seen     1"));
    }
}
