//! Emulated servers that speak HTTP/1.1 or Redis' protocol, each on a port of its own with one
//! worker and one queue.
//!
//! A request occupies its server's worker for its service time, and no core: sixteen servers fit on
//! two cores. What is emulated is the time alone: replies hold nothing. A service begins when the
//! one before it should have ended, not when this process noticed, so that a late wake-up delays
//! one reply and takes nothing of the server's capacity.
//!
//! Everything is one thread over epoll and a timer.

mod protocol;
mod server;

use std::net::{IpAddr, SocketAddr, TcpListener};

use anyhow::{Context, Result};
use clap::Parser;
use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::Unit;

use crate::protocol::App;
use crate::server::{Servers, Services};

/// Emulate servers whose workers occupy no core.
///
/// Prints `listening 127.0.0.1:8000` for each server, and serves until it is ended.
#[derive(Parser)]
struct Arguments {
    /// Address to serve at; port 0 takes free ones
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Servers, at consecutive ports, or at free ones
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    servers: u16,
    /// What clients speak. http: the service time is in the path, as in /?ns=1000. redis: it is
    /// drawn
    #[arg(long)]
    app: App,
    /// Service times of commands of Redis, such as exp:1ms or file:PATH
    #[arg(long, value_name = "DIST", default_value = "fixed:1ms", value_parser = times)]
    service: Distribution,
    /// The same of SET [default: --service]
    #[arg(long, value_name = "DIST", value_parser = times)]
    write_service: Option<Distribution>,
    /// Seed of the times that are drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let listeners = (0..arguments.servers)
        .map(|index| listen(arguments.listen, index))
        .collect::<Result<Vec<_>>>()?;
    for listener in &listeners {
        println!("listening {}", listener.local_addr()?);
    }
    let services = Services {
        app: arguments.app,
        write: arguments.write_service.unwrap_or_else(|| arguments.service.clone()),
        read: arguments.service,
        seed: arguments.seed,
    };
    Servers::new(listeners, services)?.run()
}

fn listen(first: SocketAddr, index: u16) -> Result<TcpListener> {
    let port = match first.port() {
        0 => 0,
        port => port.checked_add(index).context("the last port is above 65535")?,
    };
    let address: (IpAddr, u16) = (first.ip(), port);
    TcpListener::bind(address).with_context(|| format!("cannot listen at {}:{port}", first.ip()))
}

fn times(text: &str) -> Result<Distribution, String> {
    let load = |path: &str| -> Result<Vec<f64>, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(|line| Unit::Time.parse(line).map_err(|error| error.to_string())).collect()
    };
    Distribution::parse_with(text, Unit::Time, load).map_err(|error| error.to_string())
}
