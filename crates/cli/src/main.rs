//! The `tailcut` command: the only crate that knows files, terminals and formats.
//!
//! Each command is a module with its arguments and its `run`. Exit codes: 0 when it did what was
//! asked, 1 when it could not, 2 when the command line is invalid; 3 and 4 are for measurements
//! that cannot be relied on or break an assertion.

mod admin;
mod agent;
mod apps;
mod bridge;
#[cfg(test)]
mod browser;
mod chart;
mod compare;
mod control;
mod counters;
mod demo;
mod dissect;
mod distribution_file;
mod gateway;
mod keys;
mod life;
mod log;
mod measure;
mod network;
mod orders;
mod output;
mod page;
mod place;
mod pool_key;
mod route;
mod screen;
mod serve;
mod serving;
mod shell;
mod sidecar;
mod signals;
mod sim;
#[cfg(test)]
mod tests;
mod trace;

use std::env;
use std::io::stdout;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use self::route::config::CommandLine;

/// Microsecond RPCs with a short tail: serve, route and measure R2P2.
#[derive(Debug, Parser)]
#[command(name = "tailcut", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    /// Log state changes and limits that are reached, on standard error; without it those that
    /// serve and route log warnings. TAILCUT_LOG filters by target and level, as in `off` or
    /// `info,tailcut_net=off`
    #[arg(long, global = true, value_name = "FORMAT")]
    log: Option<log::Format>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
    Route(route::Args),
    Bridge(bridge::Args),
    Gateway(gateway::Args),
    Control(control::Args),
    Measure(measure::Args),
    Apps(apps::Args),
    Agent(agent::Args),
    Keys(keys::Args),
    Compare(compare::Args),
    Dissect(DissectArgs),
    Sim(sim::Args),
    Demo(demo::Args),
    Completions(shell::Completions),
    Man(shell::Man),
}

impl Command {
    /// Level that is logged without being asked for: nobody watches those that serve.
    fn log_level(&self) -> Option<&'static str> {
        match self {
            Self::Serve(_)
            | Self::Route(_)
            | Self::Bridge(_)
            | Self::Gateway(_)
            | Self::Agent(_) => Some("warn"),
            Self::Keys(args) => args.is_serving().then_some("warn"),
            _ => None,
        }
    }
}

/// Print the R2P2 and Homa packets of a capture, one line each
///
/// Reads classic pcap and pcapng, and shows every UDP datagram, whatever its port, and every Homa
/// packet in IP or in the disguise of TCP: as what it is, or with the reason why it is not.
#[derive(Debug, clap::Args)]
#[command(after_help = DISSECT_AFTER_HELP)]
struct DissectArgs {
    /// The capture
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Open sealed packets by the servers' keys in this file
    #[arg(long, value_name = "FILE")]
    seal: Option<PathBuf>,
    /// Write the capture to FILE with these packets open, as pcapng, for Wireshark
    #[arg(long, value_name = "FILE", requires = "seal")]
    opened: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = |()| ExitCode::SUCCESS;
    let line = CommandLine::new(Cli::command, env::args_os().collect());
    let cli = match line.complete() {
        Ok(words) => Cli::parse_from(words),
        Err(error) => {
            eprintln!("tailcut: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = log::init(cli.log, cli.command.log_level()) {
        eprintln!("tailcut: {error:#}");
        return ExitCode::FAILURE;
    }
    let result = match cli.command {
        Command::Serve(args) => serve::run(args).map(done),
        Command::Route(args) => route::run(&args, &line).map(done),
        Command::Bridge(args) => bridge::run(&args).map(done),
        Command::Gateway(args) => gateway::run(&args).map(done),
        Command::Control(args) => control::run(&args).map(done),
        Command::Measure(args) => measure::run(&args),
        Command::Apps(args) => apps::run(&args).map(done),
        Command::Agent(args) => agent::run(&args).map(done),
        Command::Keys(args) => keys::run(&args).map(done),
        Command::Compare(args) => compare::run(&args),
        Command::Dissect(args) => {
            let keys = args.seal.as_deref().map(keys::read).transpose();
            let opened = args.opened.as_deref();
            let run = |keys| dissect::run(&args.file, keys, opened, &mut stdout().lock());
            output::unless_reader_left(keys.and_then(run)).map(done)
        }
        Command::Sim(args) => sim::run(&args).map(done),
        Command::Demo(args) => demo::run(&args).map(done),
        Command::Completions(args) => shell::print_completions::<Cli>(&args).map(done),
        Command::Man(args) => shell::write_man_pages::<Cli>(&args).map(done),
    };
    match result {
        Ok(status) => status,
        Err(error) => {
            eprintln!("tailcut: {error:#}");
            ExitCode::FAILURE
        }
    }
}

const AFTER_HELP: &str = "\
Examples:
  tailcut serve --listen 127.0.0.1:8000 --app echo
  tailcut measure --target 127.0.0.1:8000 --app echo:64 --rate 10k --duration 5s

  tailcut serve --listen 127.0.0.1:8001 --ports 8 --app synthetic
  tailcut route --listen 127.0.0.1:8000 --policy jbsq:2 --server 127.0.0.1:8001+8
  tailcut measure --target 127.0.0.1:8000 --app synthetic:exp:500us --rate 8k

Times carry a unit (300ns, 25us, 1ms, 2s); sizes and rates may (64, 100kB, 1MiB; 10k, 2.5M).
Distributions: fixed:V uni:MAX exp:MEAN bimodal:V1:V2:P1 trimodal:V1:V2:V3:P1:P2
lognorm:MU:SIGMA gamma:SHAPE:SCALE pareto:LOC:SCALE:SHAPE gev:LOC:SCALE:SHAPE zipf:N:S
file:PATH (one value a line), and V+DISTRIBUTION.

Exit codes:
  0  it did what was asked, or was ended by SIGINT or SIGTERM while serving
  1  it could not; standard error says why
  2  the command line is invalid
  3  a measurement is not trustworthy
  4  an assertion about a measurement does not hold";

const DISSECT_AFTER_HELP: &str = "\
Examples:
  tcpdump -i lo -w calls.pcap udp port 8000
  tailcut dissect calls.pcap
  tailcut dissect sealed.pcap --seal servers.keys --opened open.pcapng";
