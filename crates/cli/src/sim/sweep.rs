//! `tailcut sim sweep`.

use anyhow::{Result, bail};

use super::Outcome;

/// sweep
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(super) fn run(_args: &Args) -> Result<Outcome> {
    bail!("not yet")
}
