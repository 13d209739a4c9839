//! Agents on other hosts: what loads on behalf of a coordinator elsewhere, and the coordinator's
//! end of it.
//!
//! | module | what |
//! |---|---|
//! | `spec` | agents in text form |
//! | `remote`, `ssh` | the coordinator's end, and how it starts agents on other hosts |
//! | `listen`, `serve`, `limits` | the agent's end, and what it refuses |
//! | `handshake`, `key`, `frames`, `message`, `stream` | the protocol between them |
//! | `clock`, `inbox` | what the coordinator's end knows of the agent's clock, and what it has been told |

mod clock;
mod frames;
mod handshake;
mod inbox;
pub mod key;
pub mod limits;
mod listen;
mod message;
pub(crate) mod remote;
mod serve;
pub mod spec;
mod ssh;
mod stream;

use std::fs::File;
use std::io::{stdin, stdout};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;

use anyhow::{Context, Result, anyhow, bail};

use self::key::Key;
pub use self::listen::Activity;
use self::listen::Door;
pub use self::serve::Service;
use self::serve::Watch;
use self::stream::Stream;

/// Serves coordinators that connect to `address`, one after the other, for ever; without a key on
/// loopback only. `announce` is told where it listens, and `activity` what goes on.
///
/// # Errors
///
/// That it cannot listen there, or must not without a key.
pub fn listen(
    address: SocketAddr,
    key: Option<Key>,
    service: Service,
    activity: Activity,
    announce: &dyn Fn(SocketAddr) -> Result<()>,
) -> Result<()> {
    if key.is_none() && !address.ip().is_loopback() {
        bail!(
            "without a key an agent listens on loopback only, and {address} is not; make a key with `tailcut agent --make-key FILE`, \
             copy it to both hosts and give it with --key-file"
        );
    }
    if key.is_none() {
        (service.note)("no key: on loopback only, for whoever is on this machine");
    }
    if let Some(key) = &key {
        key.check_agent()?;
    }
    let listener =
        TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
    announce(listener.local_addr()?)?;
    Door::new(key, service, activity).keep(&listener)
}

/// Serves one coordinator on standard input and output, as ssh gives them. Whoever started this
/// process may speak for it, so there is no key.
///
/// # Errors
///
/// Why there is no coordinator, or no longer one.
pub fn serve_stdio(service: Service) -> Result<()> {
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

#[cfg(test)]
mod tests;
