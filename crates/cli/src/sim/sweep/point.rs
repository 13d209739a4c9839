//! One point of a sweep: a simulation with its flags, and the name of its result.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;
use serde_json::Value;
use siphasher::sip::SipHasher24;

use super::file::{Flag, Kind, SweepFile};
use crate::sim::simulation::Simulation;

/// A point that clap has accepted.
#[derive(Debug)]
pub(super) struct Point {
    /// Place on the grid, in the order of its keys.
    pub(super) at: Vec<Flag>,
    /// The simulation and its flags, these in the order of the alphabet.
    pub(super) arguments: Vec<String>,
    /// Hash of the configuration: sixteen hexadecimal digits.
    pub(super) hash: String,
    /// The schema of its result.
    pub(super) schema: &'static str,
    simulation: Simulation,
}

impl Point {
    /// All points of a sweep, in the order of its grid.
    ///
    /// # Errors
    ///
    /// The first point that is refused, with the message of the command line's parser; points that
    /// mean the same.
    pub(super) fn all(file: &SweepFile) -> Result<Vec<Self>> {
        let fixed = file.fixed()?;
        let points =
            file.combinations()?.into_iter().map(|at| Self::new(file.simulation, &fixed, at));
        let points = points.collect::<Result<Vec<_>>>()?;
        let mut seen = BTreeMap::new();
        for point in &points {
            if let Some(other) = seen.insert(&point.hash, point) {
                ensure!(
                    other.arguments == point.arguments,
                    "two points share the hash {}: change one slightly",
                    point.hash
                );
                return Err(anyhow!("the point `{point}` is there twice"));
            }
        }
        Ok(points)
    }

    /// Runs the simulation. A panic of it is an error like others, so that it ends one point and
    /// not a sweep of hours.
    pub(super) fn run(&self) -> Result<Value> {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.simulation.run()));
        let outcome = outcome.map_err(|_| anyhow!("it panicked; standard error says where"))??;
        ensure!(outcome.failure.is_none(), "{}", outcome.failure.unwrap_or_default());
        ensure!(outcome.json["schema"] == self.schema, "its result is no {}", self.schema);
        Ok(outcome.json)
    }

    fn new(kind: Kind, fixed: &[Flag], at: Vec<Flag>) -> Result<Self> {
        let (name, schema) = match kind {
            Kind::Queue => ("queue", "tailcut.sim.queue/1"),
            Kind::Chip => ("chip", "tailcut.sim.chip/1"),
            Kind::Clone => ("clone", "tailcut.sim.clone/1"),
            Kind::R2p2 => ("r2p2", "tailcut.sim.r2p2/1"),
            Kind::Homa => ("homa", "tailcut.sim.homa/1"),
        };
        let mut flags: Vec<String> = fixed.iter().chain(&at).filter_map(Flag::argument).collect();
        flags.sort();
        let arguments: Vec<String> = [name.to_owned()].into_iter().chain(flags).collect();
        let words = ["tailcut sim"].into_iter().chain(arguments.iter().map(String::as_str));
        let parsed = PointCommand::try_parse_from(words).map_err(|error| {
            anyhow!(
                "the point `{}`: {}",
                command(&arguments),
                error.render().to_string().trim_end()
            )
        })?;
        parsed
            .simulation
            .check()
            .with_context(|| format!("the point `{}`", command(&arguments)))?;
        Ok(Self {
            at,
            hash: hash(schema, &arguments),
            arguments,
            schema,
            simulation: parsed.simulation,
        })
    }
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&command(&self.arguments))
    }
}

/// The words after `tailcut sim` on a command line, without the flags for where results go.
#[derive(Debug, Parser)]
#[command(name = "tailcut sim", disable_help_flag = true, disable_help_subcommand = true)]
struct PointCommand {
    #[command(subcommand)]
    simulation: Simulation,
}

fn command(arguments: &[String]) -> String {
    format!("tailcut sim {}", arguments.join(" "))
}

/// SipHash-2-4 under the key 0 of the schema and the arguments, a line each; an argument that names
/// a file is followed by what is in it, so that other samples are another point.
///
/// It names results for years: it may change only together with the schema of a point's file. A
/// result's own schema is part of it, so that a simulation that means something else by the same
/// flags has other names.
fn hash(schema: &str, arguments: &[String]) -> String {
    let mut text = format!("{schema}\n");
    for argument in arguments {
        text.extend([argument.as_str(), "\n"]);
        if let Some(path) = file_of(argument) {
            // The parser has read the file just now; one that has gone since is as good as empty.
            text += &fs::read_to_string(path).unwrap_or_default();
        }
    }
    format!("{:016x}", SipHasher24::new().hash(text.as_bytes()))
}

/// The file that an argument names: of samples, or of the sizes of messages.
fn file_of(argument: &str) -> Option<&str> {
    let sizes =
        || ["--workload=", "--buckets="].iter().find_map(|flag| argument.strip_prefix(flag));
    // A word that means something else, such as the name of a workload, is no path with a directory
    // or an ending.
    argument
        .split_once("file:")
        .map(|(_, path)| path)
        .or_else(|| sizes().filter(|path| path.contains(['/', '.'])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_an_argument_names_is_part_of_the_point() {
        let of = |argument: &str| file_of(argument).map(str::to_owned);
        assert_eq!(of("--service=file:a.txt"), Some("a.txt".to_owned()));
        assert_eq!(of("--workload=sizes/w9"), Some("sizes/w9".to_owned()));
        assert_eq!(of("--buckets=sizes.txt"), Some("sizes.txt".to_owned()));
        assert_eq!((of("--workload=w3"), of("--load=0.5"), of("--out=a.txt")), (None, None, None));
    }

    /// Computed apart from this code, by an implementation of SipHash that agrees with the vectors
    /// of its authors.
    #[test]
    fn a_hash_stays_for_years() {
        let arguments = ["queue", "--load=0.5", "--policy=rr"].map(str::to_owned);
        assert_eq!(hash("tailcut.sim.queue/1", &arguments), "6e36efe740c90d56");
    }

    #[test]
    fn a_hash_tells_configurations_apart() {
        let of = |schema: &str, words: &[&str]| {
            hash(schema, &words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
        };
        let hashes = [
            of("a/1", &["queue", "--x=1"]),
            of("a/2", &["queue", "--x=1"]),
            of("a/1", &["queue", "--x=", "1"]),
        ];
        assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2], "{hashes:?}");
    }
}
