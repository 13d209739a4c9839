//! `tailcut sim r2p2`.

use anyhow::{Result, bail};

use super::Outcome;

/// r2p2
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(super) fn run(_args: &Args) -> Result<Outcome> {
    bail!("not yet")
}
