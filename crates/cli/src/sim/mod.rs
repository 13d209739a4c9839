//! `tailcut sim`: what-if questions and proofs in virtual time.
//!
//! Each simulation is a module with its arguments and a `run` that returns what it found, as JSON
//! and as text; this module prints it. `sweep` runs the others over a grid, and `reproduce` over
//! the published figures.

mod chip;
mod clone;
mod faults;
mod figures;
mod homa;
mod queue;
mod r2p2;
mod reproduce;
mod simulation;
mod sweep;

use anyhow::{Result, bail};
use clap::Subcommand;
use serde_json::Value;

use self::simulation::Simulation;
use crate::output;

/// Simulate queues, a chip, cloning, R2P2 itself, or Homa in virtual time
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Write the result as JSON to a file, or to standard output with `-`, and nothing else there
    #[arg(long, value_name = "FILE", global = true, display_order = 1000)]
    json: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Simulation(Simulation),
    Faults(faults::Args),
    Sweep(sweep::Args),
    Reproduce(reproduce::Args),
}

/// What a simulation found.
#[derive(Clone, Debug)]
struct Outcome {
    /// For programs: `schema`, `config`, and figures under stable names.
    json: Value,
    /// For people.
    text: String,
    /// Why the command fails although it ran, where it does: a verdict that is not met.
    failure: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(path) = &args.json {
        output::check_writable(path)?;
    }
    let outcome = match &args.command {
        Command::Simulation(simulation) => simulation.run()?,
        Command::Faults(args) => faults::run(args)?,
        Command::Sweep(args) => sweep::run(args)?,
        Command::Reproduce(args) => reproduce::run(args)?,
    };
    if args.json.as_deref() != Some("-") {
        output::print(&outcome.text)?;
    }
    if let Some(path) = &args.json {
        output::write_json(path, &outcome.json)?;
    }
    match outcome.failure {
        Some(failure) => bail!(failure),
        None => Ok(()),
    }
}
