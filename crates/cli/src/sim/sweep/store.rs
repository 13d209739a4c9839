//! The directory of results: a file for each point, named by the point's hash, and what is made of
//! all of them.
//!
//! Invariant: a file that has its name is whole. It is written under another name first, so whoever
//! ends the process, at whatever time, loses the points that were running and no other. A file that
//! is not as this module wrote it is as good as none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::point::Point;

/// The directory.
#[derive(Clone, Debug)]
pub(super) struct Store {
    dir: PathBuf,
}

impl Store {
    /// The directory, which need not exist to read from.
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Makes the directory where it does not exist.
    pub(super) fn create(&self) -> Result<()> {
        fs::create_dir_all(&self.dir)
            .with_context(|| format!("cannot make the directory {}", self.dir.display()))
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file of a point, where it is whole and this point's.
    pub(super) fn read(&self, point: &Point) -> Option<Value> {
        let text = fs::read_to_string(self.path(point)).ok()?;
        let value: Value = serde_json::from_str(&text).ok()?;
        let is_ours = value["schema"] == SCHEMA
            && value["hash"] == point.hash
            && value["arguments"] == json!(point.arguments)
            && value["result"]["schema"] == point.schema;
        is_ours.then_some(value)
    }

    /// Keeps a point's result; gives the file's content.
    pub(super) fn write(&self, point: &Point, result: &Value) -> Result<Value> {
        let value = json!({ "schema": SCHEMA, "hash": point.hash, "arguments": point.arguments, "result": result });
        self.write_text(&file_name(point), &format!("{value:#}\n"))?;
        Ok(value)
    }

    /// Writes a file of the directory as a whole; gives its path.
    pub(super) fn write_text(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        let unfinished = self.dir.join(format!(".{name}.{}", process::id()));
        let written = fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, &path));
        if written.is_err() {
            // It may not exist.
            let _ = fs::remove_file(&unfinished);
        }
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    pub(super) fn path(&self, point: &Point) -> PathBuf {
        self.dir.join(file_name(point))
    }
}

fn file_name(point: &Point) -> String {
    format!("{}.json", point.hash)
}

const SCHEMA: &str = "tailcut.sim.point/1";
