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

impl Command {
    fn run(&self) -> Result<Outcome> {
        match self {
            Self::Simulation(simulation) => simulation.run(),
            Self::Faults(args) => faults::run(args),
            Self::Sweep(args) => sweep::run(args),
            Self::Reproduce(args) => reproduce::run(args),
        }
    }
}

/// A simulation's result.
#[derive(Clone, Debug)]
struct Outcome {
    /// For programs: `schema`, `config`, and figures under stable names.
    json: Value,
    /// For people.
    text: String,
    /// Reason why the command fails although it ran, where it does: a verdict that is not met.
    failure: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(path) = &args.json {
        output::check_writable(path)?;
    }
    let outcome = args.command.run()?;
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

/// For tests of all pages.
#[cfg(test)]
pub(crate) fn page_of_samples() -> String {
    sweep::page_of_samples()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::{CommandFactory as _, Parser as _};

    use crate::tests::commands;
    use crate::{Cli, Command};

    /// Runs the examples in the help of a simulation that have a part, with fewer requests where
    /// they say nothing of them.
    fn check(simulation: &str, part: &str, requests: &str) {
        let cli = Cli::command();
        let sim = cli.find_subcommand("sim").unwrap();
        let help = sim.find_subcommand(simulation).unwrap().get_after_help().unwrap().to_string();
        let dir = std::env::temp_dir().join(format!("tailcut-{}-examples", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        // The help of a sweep shows one.
        let file = help.split("bound.toml:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
        fs::write(dir.join("bound.toml"), file.unwrap_or_default()).unwrap();
        let lines = commands(&help).into_iter().filter(|line| line.contains(part));
        let mut count = 0;
        for line in lines {
            let is_short = requests.is_empty() || line.contains("--requests");
            let more = if is_short { String::new() } else { format!(" --requests {requests}") };
            let line = format!("tailcut {line}{more}")
                .replace("bound.toml", &dir.join("bound.toml").display().to_string());
            let Command::Sim(args) = Cli::parse_from(line.split_whitespace()).command else {
                panic!("{line} is no simulation");
            };
            let outcome = args.command.run().unwrap_or_else(|error| panic!("{line}: {error:#}"));
            assert!(outcome.failure.is_none() && !outcome.text.is_empty(), "{line}");
            count += 1;
        }
        assert!(count > 0, "the help of {simulation} has no example with {part:?}");
        fs::remove_dir_all(&dir).unwrap();
    }

    /// Those of the docs, each with few requests and one seed.
    #[test]
    fn simulations_of_the_docs_run() {
        let pages = [
            include_str!("../../../../README.md"),
            include_str!("../../../../docs/dispatcher.md"),
            include_str!("../../../../docs/simulator.md"),
            include_str!("../../../../docs/tutorial.md"),
        ];
        // Every second part lies between fences.
        let blocks = pages.iter().flat_map(|page| page.split("```").skip(1).step_by(2));
        // What a reader has recorded.
        let gaps = std::env::temp_dir().join(format!("tailcut-{}-gaps", std::process::id()));
        fs::write(&gaps, "12.5us\n0us\n40us\n").unwrap();
        let own = |line: String| line.replace("gaps.txt", &gaps.display().to_string());
        let lines: Vec<String> = blocks.flat_map(commands).map(own).collect();
        let mut count = 0;
        for line in &lines {
            let mut words: Vec<&str> = line.split_whitespace().collect();
            let requests = match words[..] {
                ["sim", "queue" | "clone", ..] => "5k",
                ["sim", "r2p2", ..] => "500",
                _ => continue,
            };
            for length in ["--requests", "--seeds"] {
                if let Some(place) = words.iter().position(|word| *word == length) {
                    words.drain(place..place + 2);
                }
            }
            words.extend(["--requests", requests]);
            let cli = Cli::parse_from(["tailcut"].into_iter().chain(words));
            let Command::Sim(args) = cli.command else { panic!("{line} is no simulation") };
            let outcome = args.command.run().unwrap_or_else(|error| panic!("{line}: {error:#}"));
            assert!(outcome.failure.is_none() && !outcome.text.is_empty(), "{line}");
            count += 1;
        }
        assert!(count > 15, "{lines:#?}");
        fs::remove_file(&gaps).unwrap();
    }

    #[test]
    fn cheap_examples_of_help_run() {
        check("queue", "", "20k");
        check("chip", "--load", "20k");
        check("clone", "", "20k");
        check("r2p2", "--policy jbsq", "2k");
        check("faults", "--seed ", "");
        check("sweep", "--list", "");
    }
}
