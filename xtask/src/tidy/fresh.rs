//! Generated files that are committed carry the hash of what they were made from; a stale one is
//! refused.
//!
//! The hash is git's, so that `git hash-object SOURCE` gives the line by hand.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::tree::{Tree, Violation};

/// A committed file that something else was turned into.
pub(super) struct Generated {
    pub(super) source: &'static str,
    /// The text file that carries the hash: the generated file, or a note beside it where that is
    /// binary.
    pub(super) generated: &'static str,
    /// Text before the hash on its line, such as `// source: `.
    pub(super) hash_line: &'static str,
}

/// Lists the generated files whose source has changed since, or that are missing.
pub(super) fn stale(tree: &Tree, pairs: &[Generated]) -> Result<Vec<Violation>> {
    let mut violations = Vec::new();
    for Generated { source, generated, hash_line } in pairs {
        let Some(text) = tree.text(source) else {
            violations.push(Violation::new(
                source,
                1,
                format!("missing, but {generated} is made from it"),
            ));
            continue;
        };
        let wanted = format!("{hash_line}{}", git_hash(text)?);
        let carried = tree.text(generated).unwrap_or_default();
        if !carried.lines().any(|line| line == wanted) {
            violations.push(Violation::new(
                generated,
                1,
                format!("stale: {source} now asks for `{wanted}`"),
            ));
        }
    }
    Ok(violations)
}

/// Hash of a text, as `git hash-object` prints it.
pub(crate) fn git_hash(text: &str) -> Result<String> {
    let mut git = Command::new("git")
        .args(["hash-object", "--stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("git is needed to hash the sources")?;
    git.stdin.take().context("git has no standard input")?.write_all(text.as_bytes())?;
    let output = git.wait_with_output()?;
    ensure!(output.status.success(), "git hash-object failed");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Every committed file that is generated.
pub(super) const GENERATED: &[Generated] = &[
    // The header of the C library, by scripts/c-header.
    Generated {
        source: "crates/c/src/client.rs",
        generated: "crates/c/include/tailcut.h",
        hash_line: " * client.rs: ",
    },
    Generated {
        source: "crates/c/src/error.rs",
        generated: "crates/c/include/tailcut.h",
        hash_line: " * error.rs: ",
    },
    Generated {
        source: "crates/c/src/server.rs",
        generated: "crates/c/include/tailcut.h",
        hash_line: " * server.rs: ",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// True if the pair is refused, for what stands in the generated file.
    fn check(generated: &str) -> bool {
        let pairs = [Generated { source: "a.c", generated: "a.h", hash_line: "// source: " }];
        let tree = Tree::from([("a.c", "hello\n"), ("a.h", generated)]);
        !stale(&tree, &pairs).expect("git runs").is_empty()
    }

    #[test]
    fn the_hash_of_the_source_is_fresh() {
        // What `echo hello | git hash-object --stdin` prints.
        assert!(!check("#pragma once\n// source: ce013625030ba8dba906f756967f9e9ca394464a\n"));
    }

    #[test]
    fn the_hash_of_another_source_is_stale() {
        assert!(check("// source: 0000000000000000000000000000000000000000\n"));
    }

    #[test]
    fn a_generated_file_without_a_hash_is_stale() {
        assert!(check("#pragma once\n"));
    }

    #[test]
    fn a_missing_source_is_refused() {
        let pairs = [Generated { source: "gone.c", generated: "a.h", hash_line: "" }];
        let refused = stale(&Tree::from([("a.h", "")]), &pairs).expect("git runs");
        assert_eq!(refused.len(), 1);
    }
}
