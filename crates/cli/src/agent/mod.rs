//! `tailcut agent`: loads on behalf of a coordinator elsewhere; and the coordinator's end of it.
//!
//! | module | what |
//! |---|---|
//! | `spec` | agents as people write them |
//! | `remote`, `ssh` | the coordinator's end, and how it starts agents on other hosts |
//! | `listen`, `serve`, `limits` | the agent's end, and what it refuses |
//! | `handshake`, `key`, `frames`, `message`, `stream` | the protocol between them |
//! | `clock`, `inbox` | what the coordinator's end knows of the agent's clock, and what it has been told |

mod clock;
mod frames;
mod handshake;
mod inbox;
pub(crate) mod key;
pub(crate) mod limits;
mod listen;
mod message;
pub(crate) mod remote;
pub(crate) mod serve;
pub(crate) mod spec;
mod ssh;
mod stream;

use std::fs::File;
use std::io::{stdin, stdout};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use tailcut_measure::quantity::parse_rate_per_s;

use self::key::Key;
use self::limits::{Limits, Targets};
use self::listen::Door;
use self::serve::{Engine, Service, Watch};
use self::stream::Stream;
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

/// Runs an agent that loads with what `engine` makes.
pub(crate) fn run(args: &Args, engine: Engine) -> Result<()> {
    if let Some(path) = &args.make_key {
        return Key::make(path);
    }
    let targets = if args.i_own_these_targets { Targets::Any } else { Targets::Private };
    let service = Service { limits: Limits { rate_max_per_s: args.rate_max, targets }, engine };
    if args.stdio { serve_stdio(service) } else { listen(args, service) }
}

fn listen(args: &Args, service: Service) -> Result<()> {
    let address = network::resolve(&args.listen)?;
    let key = args.key_file.as_deref().map(Key::read).transpose()?;
    if key.is_none() && !address.ip().is_loopback() {
        bail!(
            "without a key an agent listens on loopback only, and {address} is not; make a key with `tailcut agent --make-key FILE`, \
             copy it to both hosts and give it with --key-file"
        );
    }
    if key.is_none() {
        eprintln!("tailcut: no key: on loopback only, for whoever is on this machine");
    }
    let listener =
        TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
    output::print(&format!("listening {}\n", listener.local_addr()?))?;
    Door::new(key, service).keep(&listener)
}

/// Whoever started this process may speak for it, so there is no key.
fn serve_stdio(service: Service) -> Result<()> {
    let input = stdin().as_fd().try_clone_to_owned().context("cannot use standard input")?;
    let output = stdout().as_fd().try_clone_to_owned().context("cannot use standard output")?;
    let stream = Stream::files(File::from(input), File::from(output));
    let session = handshake::accept(&stream, STDIO_PATIENCE_NS, None)
        .map_err(|refusal| anyhow!("the coordinator {refusal}"))?;
    serve::serve(session, service, Watch::Process)
        .map_err(|error| anyhow!("the coordinator is gone: {error:#}"))
}

/// Files have no timeouts: ssh ends the process.
const STDIO_PATIENCE_NS: u64 = 60_000_000_000;

const AFTER_HELP: &str = "\
Examples:
  tailcut agent --make-key run.key
  tailcut agent --listen 10.0.0.2:7077 --key-file run.key
  tailcut measure --agent tcp:10.0.0.2:7077 --key-file run.key --agent local,role=latency ...

  tailcut measure --agent ssh:me@load-1 --agent ssh:me@load-2 ...";

#[cfg(test)]
mod tests;
