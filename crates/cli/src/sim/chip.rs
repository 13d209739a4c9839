//! `tailcut sim chip`.

use anyhow::{Result, bail};

use super::Outcome;

/// chip
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(super) fn run(_args: &Args) -> Result<Outcome> {
    bail!("not yet")
}
