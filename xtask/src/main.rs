//! The house's own commands: `cargo xtask tidy`.

mod tidy;
mod tree;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = root()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy::run(&root),
        _ => bail!("{USAGE}"),
    }
}

/// The repository's root, from the environment that `cargo run` gives.
fn root() -> Result<PathBuf> {
    let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR").context("start this as `cargo xtask`")?;
    let root = Path::new(&manifest_dir).parent().context("xtask has no parent directory")?;
    Ok(root.to_path_buf())
}

const USAGE: &str = "usage: cargo xtask COMMAND

  tidy  check the rules of DESIGN and of the style that no compiler checks";
