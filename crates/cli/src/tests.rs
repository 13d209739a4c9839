//! The command line as clap checks it, and every example that help and docs show: it parses. Cheap
//! examples are run beside what they are of.

use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory, Parser};

use super::Cli;

#[test]
fn the_command_line_is_coherent() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_has_help() {
    fn check(command: &mut Command) {
        let help = command.render_long_help().to_string();
        assert!(help.contains("Usage:") && command.get_about().is_some(), "{help}");
        command.get_subcommands_mut().for_each(check);
    }
    let mut command = Cli::command();
    command.build();
    check(&mut command);
}

#[test]
fn examples_of_help_parse() {
    fn collect(command: &Command, lines: &mut Vec<String>) {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        lines.extend(commands(&after));
        command.get_subcommands().for_each(|command| collect(command, lines));
    }
    let mut lines = Vec::new();
    collect(&Cli::command(), &mut lines);
    assert!(lines.len() > 30, "{lines:#?}");
    check_parse(&lines);
}

#[test]
fn examples_of_docs_parse() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["docs", "docs/protocol"].map(|folder| fs::read_dir(root.join(folder)));
    let folders = folders.into_iter().flat_map(|folder| folder.expect("the docs"));
    let files = ["README.md", "python/README.md"].map(|page| root.join(page));
    let pages = folders.map(|entry| entry.expect("a page").path()).chain(files);
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut lines = Vec::new();
    for page in pages {
        let text = fs::read_to_string(page).expect("a text");
        // Every second part lies between fences.
        for block in text.split("```").skip(1).step_by(2) {
            lines.extend(commands(block));
        }
    }
    assert!(lines.len() > 30, "{lines:#?}");
    check_parse(&lines);
}

/// Arguments of `tailcut` in each line that begins so, up to what the shell takes for itself or a
/// remark. Lines that end in a backslash go on.
pub(crate) fn commands(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let lines = text.lines().map(|line| line.trim().trim_start_matches("$ "));
    let calls = lines.filter_map(|line| line.strip_prefix("tailcut "));
    let own = calls.map(|call| {
        let end =
            [" |", " > ", " &", " #", " ...", " 2>", "   "].iter().filter_map(|end| call.find(end));
        call[..end.min().unwrap_or(call.len())].trim().to_owned()
    });
    // A dependency in a manifest; a place for whatever its reader puts there.
    own.filter(|call| !call.starts_with('=') && !call.contains('$')).collect()
}

fn check_parse(lines: &[String]) {
    let refused: Vec<String> = lines
        .iter()
        .filter_map(|line| {
            let words = line.split_whitespace().map(|word| word.replace(['\'', '"'], ""));
            let error =
                Cli::try_parse_from(["tailcut".to_owned()].into_iter().chain(words)).err()?;
            // What the reader has in a file, a distribution, a trace or a request's body, is read
            // at once.
            let error = error.to_string();
            let names_a_file = line.contains("=@") || line.contains(" trace:");
            let is_missing = names_a_file && error.contains(": No such file or directory");
            (!is_missing && !error.contains("nor a file: No such file"))
                .then(|| format!("tailcut {line}: {error}"))
        })
        .collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
