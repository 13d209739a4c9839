//! `tailcut sim faults`.

use anyhow::{Result, bail};

use super::Outcome;

/// faults
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(super) fn run(_args: &Args) -> Result<Outcome> {
    bail!("not yet")
}
