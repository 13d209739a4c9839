//! `tailcut completions` and `tailcut man`: what a package installs beside the binary.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use crate::output;

/// Print the completion script of a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tailcut completions bash > /etc/bash_completion.d/tailcut
  tailcut completions zsh > ~/.zfunc/_tailcut
  tailcut completions fish > ~/.config/fish/completions/tailcut.fish")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

/// Write the manual pages to a directory
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  tailcut man /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// Directory to write tailcut.1 and one page for each command to; made where it is missing
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn print_completions<C: CommandFactory>(args: &Completions) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut C::command(), "tailcut", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

pub(crate) fn write_man_pages<C: CommandFactory>(args: &Man) -> Result<()> {
    let dir = args.dir.display();
    fs::create_dir_all(&args.dir).with_context(|| format!("cannot make the directory {dir}"))?;
    clap_mangen::generate_to(C::command(), &args.dir)
        .with_context(|| format!("cannot write manual pages to {dir}"))
}
