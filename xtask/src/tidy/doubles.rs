//! The rule that the two protocols do not write one thing twice: what both need is in the rooms
//! that they share.

use std::collections::BTreeMap;

use crate::tree::{Tree, Violation};

/// Refuses [`LINES_MAX`] lines of code in a row that R2P2 and Homa both have, tests apart.
pub(super) fn protocols_share_code(tree: &Tree) -> Vec<Violation> {
    let mut known = BTreeMap::new();
    for (path, text) in sources(tree, ROOMS[0]) {
        for (line, run) in runs(text) {
            known.entry(run).or_insert((path, line));
        }
    }
    let mut violations = Vec::new();
    for (path, text) in sources(tree, ROOMS[1]) {
        let mut reported_to = 0;
        for (line, run) in runs(text) {
            if let Some((other, at)) = known.get(&run).filter(|_| line >= reported_to) {
                let message = format!("{LINES_MAX} lines of code that {other}:{at} has too");
                violations.push(Violation::new(path, line, message));
                reported_to = line + LINES_MAX;
            }
        }
    }
    violations
}

fn sources<'a>(tree: &'a Tree, room: &'static str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let texts = tree.texts_of(&["rs"]);
    texts.filter(move |(path, _)| path.starts_with(room) && !path.contains("/tests"))
}

/// Every so many lines of code in a row, with the number of the first. Left out is what layout and
/// imports make alike.
fn runs(text: &str) -> Vec<(usize, Vec<&str>)> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code: Vec<(usize, &str)> = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
        .filter(|(_, line)| line.contains(char::is_alphanumeric))
        .filter(|(_, line)| !NO_CODE.iter().any(|beginning| line.starts_with(beginning)))
        .collect();
    let run = |run: &[(usize, &'_ str)]| run[0].0;
    code.windows(LINES_MAX)
        .map(|window| (run(window), window.iter().map(|(_, line)| *line).collect()))
        .collect()
}

const ROOMS: [&str; 2] = ["crates/proto/src/r2p2/", "crates/proto/src/homa/"];

/// Beginnings of lines that do not count.
const NO_CODE: &[&str] = &["//", "use ", "#["];

/// Lines in a row that are too many.
const LINES_MAX: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    const SIX: &str =
        "fn a() {\n    one();\n    two();\n    three();\n    four();\n    five();\n}\n";

    /// The lines of Homa's file that the rule refuses.
    fn check(r2p2: &str, homa: &str) -> Vec<usize> {
        let files = [("crates/proto/src/r2p2/a.rs", r2p2), ("crates/proto/src/homa/b.rs", homa)];
        let violations = protocols_share_code(&Tree::from(files));
        violations.iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn six_lines_of_code_in_both_are_refused_once() {
        let homa = format!("use a;\n\n// An aside.\n{SIX}");
        assert_eq!(check(SIX, &homa), [4]);
    }

    #[test]
    fn five_lines_and_tests_pass() {
        assert_eq!(check(SIX, &SIX.replace("five", "six")), [0_usize; 0]);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{SIX}}}\n");
        assert_eq!(check(SIX, &tests), [0_usize; 0]);
    }
}
