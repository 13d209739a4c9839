//! The house's own commands: `cargo xtask tidy`, `cargo xtask dissectors`, `cargo xtask ebpf`,
//! `cargo xtask p4`, `cargo xtask wasm`, `cargo xtask lines`, `cargo xtask metrics`,
//! `cargo xtask instructions`, `cargo xtask dist`.

mod dissectors;
mod dist;
mod ebpf;
mod instructions;
mod lines;
mod metrics;
mod p4;
mod tidy;
mod tree;
mod wasm;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        // Its own words only: a backtrace would hide the list of what is wrong.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    let root = root()?;
    match arguments {
        ["tidy"] => tidy::run(&root),
        ["dissectors"] => dissectors::run(&root),
        ["ebpf"] => ebpf::run(&root),
        ["ebpf", "--check"] => ebpf::check(&root),
        ["metrics"] => metrics::run(&root),
        ["p4"] => p4::run(&root),
        ["p4", "--check"] => p4::check(&root),
        ["dist"] => dist::run(&root),
        ["dist", "--check"] => dist::check(&root),
        ["instructions"] => instructions::run(&root),
        ["instructions", "--check"] => instructions::check(&root, None),
        ["instructions", "--check", bench] => instructions::check(&root, Some(bench)),
        ["lines"] => lines::run(&root),
        ["wasm"] => wasm::run(&root),
        _ => bail!("{USAGE}"),
    }
}

/// The repository's root, from the environment that `cargo run` gives.
fn root() -> Result<PathBuf> {
    let manifest_dir =
        std::env::var_os("CARGO_MANIFEST_DIR").context("start this as `cargo xtask`")?;
    let root = Path::new(&manifest_dir).parent().context("xtask has no parent directory")?;
    Ok(root.to_path_buf())
}

const USAGE: &str = "usage: cargo xtask COMMAND

  tidy         check the rules of DESIGN and of the style that no compiler checks
  dissectors   write the tables of the Wireshark dissectors from crates/wire
  ebpf         compile ebpf/*.bpf.c, after writing their header from crates/wire; with --check, compare
               what that gives with what is committed
  metrics      write docs/metrics.md, the counters, metrics and log lines of the source
  p4           write the header of p4/ from crates/wire and the beginnings of the traces, compile the programs and
               record what bmv2 decides for each trace; with --check, compare that with what is committed
  dist         build what a release consists of, in target/dist; with --check, only look at what the
               crates say of themselves and which files their packages have
  instructions record what a call costs, in instructions and cache misses; with --check, compare that with what is
               recorded
  lines        count the lines of code of each crate, without tests, comments and blank lines
  wasm         prove that wire, proto and measure compile to WebAssembly without imports";
