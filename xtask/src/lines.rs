//! `cargo xtask lines`: how much code each crate has, so that anybody can repeat the count.
//!
//! Counted are the lines of `crates/*/src` that hold code: no comments, no blank lines, no tests.
//! They are formatted for the count, at 130 columns and with short items on one line, so that it
//! does not depend on the width at which they are kept.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::tree::Tree;

/// Prints the lines of each crate, its share, and their sum.
pub(crate) fn run(root: &Path) -> Result<()> {
    let mut crates = BTreeMap::<String, usize>::new();
    for (path, text) in Tree::read(root)?.texts_of(&["rs"]) {
        if let Some(name) = counted_crate(path) {
            let lines = count(&format(text).with_context(|| format!("cannot format {path}"))?);
            *crates.entry(name.to_owned()).or_default() += lines;
        }
    }
    let total: usize = crates.values().sum();
    for (name, lines) in &crates {
        println!("{name:12} {lines:6} {:5.1} %", 100.0 * *lines as f64 / total as f64);
    }
    println!("{:12} {total:6}", "total");
    Ok(())
}

/// The crate of a source file that counts; `None` for tests and what lies elsewhere.
fn counted_crate(path: &str) -> Option<&str> {
    let (name, file) = path.strip_prefix("crates/")?.split_once('/')?;
    let is_test = path.contains("/tests/") || path.ends_with("/tests.rs");
    (file.starts_with("src/") && !is_test).then_some(name)
}

fn format(text: &str) -> Result<String> {
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024", "--config", "max_width=130,use_small_heuristics=Max"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("rustfmt is needed")?;
    // It reads everything before it writes anything.
    rustfmt.stdin.take().context("a pipe")?.write_all(text.as_bytes())?;
    let output = rustfmt.wait_with_output()?;
    ensure!(output.status.success(), "rustfmt failed");
    Ok(String::from_utf8(output.stdout)?)
}

/// The lines of formatted text that hold code, outside of items for tests.
fn count(text: &str) -> usize {
    let mut lines = text.lines();
    let mut count = 0;
    while let Some(line) = lines.next() {
        if line.trim_start().starts_with("#[cfg(test)]") {
            skip_item(&mut lines);
        } else if !line.trim().is_empty() && !line.trim_start().starts_with("//") {
            count += 1;
        }
    }
    count
}

/// Goes past one item, which ends on its first line or with the brace below that line's begin.
fn skip_item<'a>(lines: &mut impl Iterator<Item = &'a str>) {
    let Some(first) = lines.find(|line| !line.trim_start().starts_with("#[")) else { return };
    if !first.ends_with(';') {
        let indent = &first[..first.len() - first.trim_start().len()];
        let end = format!("{indent}}}");
        lines.find(|line| line.starts_with(&end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blank_lines_and_tests_do_not_count() {
        let text = "//! A.\n\nuse a::b;\n\n/// C.\nfn c() {\n    // D.\n    d();\n}\n\n\
                    #[cfg(test)]\nmod tests {\n    fn e() {}\n}\n\n\
                    #[cfg(test)]\nmod f;\nfn g() {}\n";
        assert_eq!(count(text), 5);
    }

    #[test]
    fn sources_count_and_tests_do_not() {
        assert_eq!(counted_crate("crates/wire/src/lib.rs"), Some("wire"));
        for path in
            ["crates/wire/tests/it/main.rs", "crates/sim/src/fabric/tests.rs", "fuzz/src/a.rs"]
        {
            assert_eq!(counted_crate(path), None);
        }
    }
}
