//! `tailcut keys serve`: the key agent of a group.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use tailcut_net::clock::Clock;
use tailcut_net::keys::agent::{AgentConfig, Certificate, KeyAgent};
use tailcut_proto::node::Time;

use crate::admin::text::{Page, seconds};
use crate::admin::{AdminFlags, Reading};
use crate::distribution_file::parse_positive_ns;
use crate::life::{Life, LifeFlags};
use crate::{network, output};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where to listen, tcp://HOST:PORT; port 0 for a free one, which is printed
    #[arg(long, value_name = "ADDR")]
    listen: String,
    /// The servers' keys. The agent adds the next ones to it, and nobody else should
    #[arg(long, value_name = "FILE")]
    seal: PathBuf,
    /// Those who may have keys, one a line: an identity (spiffe://DOMAIN/PATH, dns:NAME, or
    /// psk:FILE) and a role (server, router, or client N), below `tailcut-key-clients 1`
    #[arg(long, value_name = "FILE")]
    clients: PathBuf,
    /// This agent's certificate, PEM; without it pre-shared keys alone count
    #[arg(long, value_name = "FILE", requires_all = ["key", "client_ca"])]
    cert: Option<PathBuf>,
    /// Its private key, PEM, which nobody else may read
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// The authority that has signed the certificates of those who ask, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    client_ca: Option<PathBuf>,
    /// The certificates of that authority that are revoked: its list, PEM, and one of each
    /// authority between. Read again when it changes; one that has expired lets nobody in by
    /// certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    client_crl: Option<PathBuf>,
    /// How long each key is used
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_every)]
    every: Duration,
    #[command(flatten)]
    admin: AdminFlags,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let certificate = args.cert.clone().zip(args.key.clone()).zip(args.client_ca.clone());
    let certificate = certificate.map(|((cert, key), client_ca)| Certificate {
        cert,
        key,
        client_ca,
        client_crl: args.client_crl.clone(),
    });
    let agent = KeyAgent::open(AgentConfig {
        group: args.seal.clone(),
        clients: args.clients.clone(),
        certificate,
        every: args.every,
    })?;
    let address = network::resolve(args.listen.trim_start_matches("tcp://"))?;
    let listener =
        TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
    let bound = listener.local_addr().context("the socket has no address")?;
    let admin = args.admin.bind()?;
    // What is under way is over within seconds, and who is cut off asks again.
    let mut life = Life::new(LifeFlags { drain_ns: 0 });
    let (stop, told) = mpsc::channel();
    let (failed, again) = (stop.clone(), agent.clone());
    life.heed_signals(move || stop.send(Ok(())).unwrap_or_default(), move || again.look())?;
    let door = agent.clone();
    thread::Builder::new().name("door".to_owned()).spawn(move || {
        failed.send(door.serve(&listener)).unwrap_or_default();
    })?;
    announce(bound)?;
    let (seen, is_stopped, started_at) = (agent.clone(), life.stop_flag(), Clock.now());
    admin.start(move || Ok(reading(&seen, &is_stopped, started_at)))?;
    life.announce_ready();
    loop {
        match told.recv_timeout(agent.interval()) {
            Err(RecvTimeoutError::Timeout) => {
                agent.look();
                life.beat(Clock.now());
            }
            Ok(ended) => return ended.context("the key agent cannot go on"),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

fn announce(bound: SocketAddr) -> Result<()> {
    output::print(&format!("listening {bound}\n"))
}

fn reading(agent: &Arc<KeyAgent>, is_stopped: &AtomicBool, started_at: Time) -> Reading {
    let mut page = Page::new("tailcut_keys");
    let uptime_ns = Clock.now().saturating_sub(started_at);
    page.gauge("uptime_seconds", "Time since the start.").value(seconds(uptime_ns));
    let counts = agent.counts();
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    page.counter("handed_out", "Answers with keys.").value(of(&counts.handed_out));
    let help = "Identities that are not listed, or have no name that could be.";
    page.counter("refused", help).value(of(&counts.refused));
    let help = "Connections that ended without an identity.";
    page.counter("connections_failed", help).value(of(&counts.failed));
    page.counter("rotations", "Keys that were added.").value(of(&counts.rotations));
    let unready = is_stopped.load(Ordering::Relaxed).then_some("ending");
    Reading { unready, metrics: page.end() }
}

fn parse_every(text: &str) -> Result<Duration, String> {
    // A word that the other times lack: keys are used for hours.
    let hours = text.strip_suffix('h').and_then(|hours| hours.parse::<u64>().ok());
    let every = match hours {
        Some(hours) => Duration::from_secs(hours.saturating_mul(3_600)),
        None => Duration::from_nanos(parse_positive_ns(text)?),
    };
    match every.as_secs() {
        1..=EVERY_S_MAX => Ok(every),
        _ => Err("a key is used for 1s at least, and 28 days at most".to_owned()),
    }
}

/// A key must be rotated within 49 days of its beginning.
const EVERY_S_MAX: u64 = 28 * 86_400;

const EXAMPLES: &str = "\
Examples:
  tailcut keys new servers.keys --group search
  tailcut keys serve --listen tcp://10.0.0.9:7000 --seal servers.keys --clients clients.txt \\
    --cert agent.pem --key agent.key --client-ca ca.pem

  tailcut keys psk web.psk
  printf 'tailcut-key-clients 1\\npsk:web.psk client 17\\n' > clients.txt
  tailcut keys serve --listen tcp://10.0.0.9:7000 --seal servers.keys --clients clients.txt
  printf 'tailcut-keys-from 1\\nagent 10.0.0.9:7000\\npsk web.psk\\n' > web.keys; chmod 600 web.keys
  tailcut measure --target 10.0.0.1:8000 --app echo:64 --rate 10k --seal web.keys";
