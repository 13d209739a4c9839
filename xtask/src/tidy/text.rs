//! Rules that read a file as lines: its length, its name, and words that may not stay.

use std::path::Path;

use crate::tree::{Tree, Violation};

/// Refuses a source file of 1,000 lines or more.
pub(super) fn files_are_short(tree: &Tree) -> Vec<Violation> {
    let sources = tree.texts_of(&["rs", "c", "h", "py", "p4", "lua"]);
    let sized = sources.map(|(path, text)| (path, text.lines().count()));
    let long = sized.filter(|(_, lines)| *lines >= FILE_LINES_MAX);
    long.map(|(path, lines)| {
        Violation::new(path, lines, format!("{lines} lines; a file stays under {FILE_LINES_MAX}"))
    })
    .collect()
}

/// Refuses a comment on lines of its own that are wider than code may be; a row of a table has no
/// other form.
pub(super) fn comments_are_narrow(tree: &Tree) -> Vec<Violation> {
    let lines = tree.texts_of(&["rs"]).flat_map(|(path, text)| {
        text.lines().enumerate().map(move |(index, line)| (path, index, line))
    });
    let wide = lines.filter(|(.., line)| {
        let words = line.trim_start();
        let is_row = words.trim_start_matches(['/', '!', ' ']).starts_with('|');
        words.starts_with("//") && !is_row && line.chars().count() > COLUMNS_MAX
    });
    let refuse = |(path, index, _)| {
        Violation::new(path, index + 1, format!("a comment ends by column {COLUMNS_MAX}"))
    };
    wide.map(refuse).collect()
}

/// Refuses a doc that begins by asking, or by the thing before it: its first words say what the
/// thing is, for who reads them alone. The flags of a command are told as people ask, and what C
/// and Python see is theirs.
pub(super) fn docs_say_what_a_thing_is(tree: &Tree) -> Vec<Violation> {
    let is_ours = |path: &str| !ASKING.iter().any(|other| path.starts_with(other));
    let mut violations = Vec::new();
    for (path, text) in tree.texts_of(&["rs"]).filter(|(path, _)| is_ours(path)) {
        let mut is_inside = false;
        for (index, line) in text.lines().enumerate() {
            let doc = line
                .trim_start()
                .strip_prefix("//")
                .and_then(|rest| rest.strip_prefix('/').or_else(|| rest.strip_prefix('!')));
            let mut words = doc.unwrap_or_default().split_whitespace();
            let word = words.next().unwrap_or_default();
            let word = word.trim_end_matches(|letter: char| !letter.is_alphabetic());
            let is_same = word == "The" && words.next() == Some("same");
            if !is_inside && (is_same || NO_NOUNS.contains(&word)) {
                let message = format!("a doc begins with what the thing is, not with `{word}`");
                violations.push(Violation::new(path, index + 1, message));
            }
            is_inside = doc.is_some();
        }
    }
    violations
}

/// Refuses a file or directory whose name says nothing about what it holds.
pub(super) fn files_have_telling_names(tree: &Tree) -> Vec<Violation> {
    let named =
        tree.paths().filter_map(|path| Some((path, path.split('/').find(|part| is_vague(part))?)));
    named
        .map(|(path, part)| Violation::new(path, 1, format!("`{part}` does not say what is in it")))
        .collect()
}

/// True if a name, with or without an extension, is one of those that fit anything.
pub(super) fn is_vague(name: &str) -> bool {
    let stem = Path::new(name).file_stem().and_then(|stem| stem.to_str());
    stem.is_some_and(|stem| VAGUE_NAMES.contains(&stem))
}

/// Refuses marks of unfinished work.
pub(super) fn no_loose_ends(tree: &Tree) -> Vec<Violation> {
    let lines = tree.texts().flat_map(|(path, text)| {
        text.lines().enumerate().map(move |(index, line)| (path, index, line))
    });
    let ends = lines.filter_map(|(path, index, line)| {
        let word = LOOSE_ENDS.iter().find(|word| has_word(line, word))?;
        Some(Violation::new(
            path,
            index + 1,
            format!("`{word}`: finish it, or say what holds today"),
        ))
    });
    ends.collect()
}

/// Refuses a path that exists on one machine only.
pub(super) fn no_machine_paths(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.texts() {
        for (index, line) in text.lines().enumerate() {
            let found = MACHINE_ROOTS
                .iter()
                .map(|root| format!("/{root}/"))
                .find(|root| has_path(line, root));
            let message = |root| format!("`{root}` is a path of one machine");
            violations.extend(found.map(|root| Violation::new(path, index + 1, message(root))));
        }
    }
    violations
}

/// True if the word stands alone in the line: no letter, digit or underscore touches it.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(start, _)| {
        let after = &line[start + word.len()..];
        !line[..start].ends_with(continues_a_name) && !after.starts_with(continues_a_name)
    })
}

/// True if an absolute path below `root` is in the line, and not merely a directory of that name
/// further down.
fn has_path(line: &str, root: &str) -> bool {
    line.match_indices(root).any(|(start, _)| !line[..start].ends_with(continues_a_name))
}

fn continues_a_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

const FILE_LINES_MAX: usize = 1_000;

/// As in rustfmt.toml, which leaves comments as they are.
const COLUMNS_MAX: usize = 100;

const VAGUE_NAMES: &[&str] = &["common", "utils", "helpers", "types"];

// Put together from halves, so that this file does not break its own rules.
const LOOSE_ENDS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!"),
    concat!("un", "implemented!"),
];

const MACHINE_ROOTS: &[&str] = &["work", "farm", "root", "home"];

/// Words that a doc does not begin with.
const NO_NOUNS: &[&str] =
    &["What", "Whether", "Who", "Whom", "Whose", "When", "Where", "How", "Why", "Which", "Of"];

/// Sources whose docs are told to others than readers of the code.
const ASKING: &[&str] = &["crates/cli/", "crates/c/", "crates/python/", "apps/workers/"];

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that a rule refuses in one file.
    fn check(rule: fn(&Tree) -> Vec<Violation>, path: &str, text: &str) -> Vec<usize> {
        rule(&Tree::from([(path, text)])).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_source_of_999_lines_passes() {
        assert_eq!(check(files_are_short, "a.rs", &"\n".repeat(999)), [0_usize; 0]);
    }

    #[test]
    fn a_wide_comment_is_refused() {
        let wide = "x".repeat(98);
        for (line, expected) in [
            (format!("// {wide}"), &[1_usize][..]),
            (format!("    /// {wide}"), &[1]),
            (format!("// {}", &wide[1..]), &[]),
            (format!("//! | {wide} |"), &[]),
            (format!("let text = \"{wide}\";"), &[]),
        ] {
            assert_eq!(check(comments_are_narrow, "a.rs", &line), expected, "{line}");
        }
    }

    #[test]
    fn a_doc_that_begins_by_asking_is_refused() {
        for (text, expected) in [
            ("/// What it has.", &[1_usize][..]),
            ("//! How packets come.", &[1]),
            ("    /// Bytes that it has,\n    /// What is more.\n/// Whether.", &[]),
            ("/// Bytes.\na: u8,\n/// Whether.", &[3]),
            ("/// The same of a server.", &[1]),
            ("/// Of these, concluded.", &[1]),
            ("/// The sameness.", &[]),
            ("/// Whatever comes.", &[]),
            ("// What follows is an aside.", &[]),
        ] {
            assert_eq!(check(docs_say_what_a_thing_is, "a.rs", text), expected, "{text}");
        }
        let of_flags = check(docs_say_what_a_thing_is, "crates/cli/src/a.rs", "/// What to send");
        assert_eq!(of_flags, [0_usize; 0]);
    }

    #[test]
    fn a_source_of_1000_lines_is_refused() {
        assert_eq!(check(files_are_short, "a.rs", &"\n".repeat(1_000)), [1_000]);
        assert_eq!(check(files_are_short, "a.lua", &"\n".repeat(1_000)), [1_000]);
    }

    #[test]
    fn data_may_be_long() {
        assert_eq!(check(files_are_short, "a.csv", &"\n".repeat(1_000)), [0_usize; 0]);
    }

    #[test]
    fn a_telling_name_passes() {
        assert_eq!(
            check(files_have_telling_names, "crates/wire/src/common_header.rs", ""),
            [0_usize; 0]
        );
    }

    #[test]
    fn a_vague_file_is_refused() {
        assert_eq!(check(files_have_telling_names, "crates/wire/src/utils.rs", ""), [1]);
    }

    #[test]
    fn a_vague_directory_is_refused() {
        assert_eq!(check(files_have_telling_names, "crates/wire/tests/common/mod.rs", ""), [1]);
    }

    #[test]
    fn every_loose_end_is_refused() {
        for word in LOOSE_ENDS {
            assert_eq!(
                check(no_loose_ends, "a.md", &format!("fine\n// {word}(later)\n")),
                [2],
                "{word}"
            );
        }
    }

    #[test]
    fn a_longer_word_is_no_loose_end() {
        assert_eq!(check(no_loose_ends, "a.md", concat!("AUTO", "DOC TO", "DOS")), [0_usize; 0]);
    }

    #[test]
    fn every_machine_root_is_refused() {
        for root in MACHINE_ROOTS {
            assert_eq!(
                check(no_machine_paths, "a.toml", &format!("\npath = \"/{root}/x\"")),
                [2],
                "{root}"
            );
        }
    }

    #[test]
    fn a_directory_further_down_is_no_machine_path() {
        assert_eq!(
            check(no_machine_paths, "a.md", concat!("https://example.com/ho", "me/x")),
            [0_usize; 0]
        );
    }
}
