//! The simulations that answer one question with one result, which is what a sweep is made of.

use anyhow::Result;
use clap::Subcommand;

use super::{Outcome, chip, clone, homa, queue, r2p2};

/// One of them, with its arguments.
#[derive(Debug, Subcommand)]
pub(super) enum Simulation {
    Queue(queue::Args),
    Chip(chip::Args),
    Clone(clone::Args),
    R2p2(r2p2::Args),
    Homa(homa::Args),
}

impl Simulation {
    /// A check of the arguments beyond what their parser sees; runs nothing.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Self::Queue(args) => queue::check(args),
            Self::Chip(args) => chip::check(args),
            Self::Clone(args) => clone::check(args),
            Self::R2p2(args) => r2p2::check(args),
            Self::Homa(args) => homa::check(args),
        }
    }

    pub(super) fn run(&self) -> Result<Outcome> {
        match self {
            Self::Queue(args) => queue::run(args),
            Self::Chip(args) => chip::run(args),
            Self::Clone(args) => clone::run(args),
            Self::R2p2(args) => r2p2::run(args),
            Self::Homa(args) => homa::run(args),
        }
    }
}
