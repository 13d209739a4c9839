//! `tailcut agent`: loads on behalf of a coordinator elsewhere.

use std::path::PathBuf;

use anyhow::Result;
use tailcut_instrument::agent::key::Key;
use tailcut_instrument::agent::limits::{Limits, Targets};
use tailcut_instrument::agent::{Service, listen, serve_stdio};
use tailcut_measure::quantity::parse_rate_per_s;

use crate::{network, output};

/// Load servers on behalf of `tailcut measure` on another host
///
/// Takes one coordinator at a time, which must have the same key. It does what a job says and
/// nothing else: no command, no file. The load ends when the coordinator goes away. Over ssh,
/// `tailcut measure --agent ssh:HOST` starts it by itself.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Where to listen for a coordinator; port 0 for a free one, which is printed
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: String,
    /// Serve one coordinator on standard input and output, and end with it: what is started over
    /// ssh
    #[arg(long, conflicts_with_all = ["listen", "key_file"])]
    stdio: bool,
    /// The key that coordinator and agent share; without one it listens on loopback only
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Write a new key to a new file, and end
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "stdio", "key_file"])]
    make_key: Option<PathBuf>,
    /// Requests a second that it sends at most, whatever a coordinator asks
    #[arg(long, value_name = "R", default_value = "1M", value_parser = parse_rate_per_s)]
    rate_max: f64,
    /// Load targets outside of loopback and private networks too; those you do not own are not
    /// yours to load
    #[arg(long)]
    i_own_these_targets: bool,
}

/// Runs an agent.
pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(path) = &args.make_key {
        return Key::make(path);
    }
    let targets = if args.i_own_these_targets { Targets::Any } else { Targets::Private };
    let limits = Limits { rate_max_per_s: args.rate_max, targets };
    let service = Service::new(limits, |note| eprintln!("tailcut: {note}"));
    if args.stdio {
        return serve_stdio(service);
    }
    let address = network::resolve(&args.listen)?;
    let key = args.key_file.as_deref().map(Key::read).transpose()?;
    listen(address, key, service, &|bound| output::print(&format!("listening {bound}\n")))
}

const AFTER_HELP: &str = "\
Examples:
  tailcut agent --make-key run.key
  tailcut agent --listen 10.0.0.2:7077 --key-file run.key
  tailcut measure --agent tcp:10.0.0.2:7077 --key-file run.key --agent local,role=latency ...

  tailcut measure --agent ssh:me@load-1 --agent ssh:me@load-2 ...";
