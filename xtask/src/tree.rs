//! The repository as the rules see it: paths and texts, so that a rule is a pure function and its
//! tests need no files.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Every file that git tracks or would track, by its path from the root.
pub(crate) struct Tree {
    files: BTreeMap<String, File>,
}

struct File {
    /// `None` for what is not UTF-8.
    text: Option<String>,
    /// The text as Rust, from when somebody first asks: parsing takes longer than all rules.
    parsed: OnceCell<syn::Result<syn::File>>,
}

/// One place where a rule is broken.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    pub(crate) path: String,
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl Tree {
    /// Reads the work tree: what is tracked, and what is new and not ignored.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        // A continuous-integration checkout may belong to another user, which git distrusts by
        // default.
        let listing = Command::new("git")
            .args(["-c", "safe.directory=*", "ls-files", "-z"])
            .args(["--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("git is needed to list the files")?;
        let complaint = String::from_utf8_lossy(&listing.stderr);
        ensure!(listing.status.success(), "git ls-files: {complaint}");

        let mut files = BTreeMap::new();
        for path in String::from_utf8(listing.stdout)?.split_terminator('\0') {
            let file = root.join(path);
            // Deleted but still in the index, or a link to a directory.
            if !file.is_file() {
                continue;
            }
            let bytes = std::fs::read(&file).with_context(|| format!("cannot read {path}"))?;
            files.insert(path.to_owned(), File::new(String::from_utf8(bytes).ok()));
        }
        Ok(Self { files })
    }

    /// Every path, with or without a text.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Every file that is text.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, file)| Some((path.as_str(), file.text.as_deref()?)))
    }

    /// The texts whose path ends in one of the extensions, given without the dot.
    pub(crate) fn texts_of(&self, extensions: &[&str]) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(move |(path, _)| {
            path.rsplit_once('.').is_some_and(|(_, extension)| extensions.contains(&extension))
        })
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.text.as_deref()
    }

    /// Every file of Rust, parsed, or why it is none.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &syn::Result<syn::File>)> {
        self.texts_of(&["rs"]).filter_map(|(path, _)| Some((path, self.parsed(path)?)))
    }

    /// One file of Rust, parsed.
    pub(crate) fn parsed(&self, path: &str) -> Option<&syn::Result<syn::File>> {
        let file = self.files.get(path)?;
        let text = file.text.as_deref()?;
        Some(file.parsed.get_or_init(|| syn::parse_file(text)))
    }

    /// One file of Rust that must be there.
    pub(crate) fn items(&self, path: &str) -> Result<&[syn::Item]> {
        let parsed = self.parsed(path).with_context(|| format!("{path} is missing"))?;
        Ok(&parsed.as_ref().map_err(|error| error.clone()).with_context(|| path.to_owned())?.items)
    }

    /// True if a file or a directory of this path exists; the empty path is the root.
    pub(crate) fn holds(&self, path: &str) -> bool {
        let directory = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.paths().any(|known| known.starts_with(&directory))
    }
}

impl File {
    fn new(text: Option<String>) -> Self {
        Self { text, parsed: OnceCell::new() }
    }
}

impl Violation {
    pub(crate) fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

#[cfg(test)]
impl<const COUNT: usize> From<[(&str, &str); COUNT]> for Tree {
    fn from(files: [(&str, &str); COUNT]) -> Self {
        let own = |(path, text): (&str, &str)| (path.to_owned(), File::new(Some(text.to_owned())));
        Self { files: files.into_iter().map(own).collect() }
    }
}
