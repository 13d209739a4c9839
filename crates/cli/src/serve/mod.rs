//! `tailcut serve`: servers on one or many ports, all on one thread.

mod app;
mod calls;
mod certificate;
mod connections;
mod datagrams;
mod emulated;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, anyhow, bail};
use tailcut_measure::app::serving::Limits;
use tailcut_net::driver::Waker;
use tailcut_proto::r2p2::Prefix;

use self::app::{App, HandlerConfig, HandlerCounts};
use self::calls::Endpoints;
use self::connections::Listeners;
use self::datagrams::Ports;
use crate::counters::{self, Counters};
use crate::distribution_file::parse_positive_ns;
use crate::network::{self, Polling};
use crate::trace::TraceFlags;
use crate::{output, signals};
use tailcut_instrument::job::Transport;

/// Serve requests: echo them, or behave like servers with given service times
///
/// Prints one line for each port, `listening 127.0.0.1:8000`, when it is ready, and its counters on
/// standard error when SIGINT or SIGTERM ends it.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Address to serve at; port 0 takes a free one. Homa inside UDP is expected at port 50146,
    /// servers directly over IP have the ports up to 32767
    #[arg(long, value_name = "ADDR")]
    listen: String,
    /// What carries requests and replies
    #[arg(long, value_name = "NAME", default_value = "r2p2")]
    transport: Transport,
    /// What to answer: echo, synthetic, synthetic:DIST, spin, spin:DIST or stss
    #[arg(long, value_name = "APP", value_parser = App::parse)]
    app: App,
    /// Emulated workers of each port, behind one queue (synthetic and stss only)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: u32,
    /// Ports from ADDR on, each a server of its own with its own workers and server id
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    ports: u16,
    /// Router that keeps clients' addresses, which gets the feedback; a router that annotates needs
    /// no mention
    #[arg(long, value_name = "ADDR")]
    router: Option<String>,
    /// Identity of the first port in replies and feedback; the others count up
    #[arg(long, value_name = "N", default_value_t = 0)]
    server_id: u32,
    /// Network whose addresses cannot be forged, besides loopback: its clients need not prove
    /// theirs. May be repeated
    #[arg(long, value_name = "PREFIX")]
    trust: Vec<Prefix>,
    /// File with 32 hex digits, the same for all servers behind one router: clients prove their
    /// address to all of them at once
    #[arg(long, value_name = "FILE")]
    pool_key_file: Option<PathBuf>,
    /// Requests of each port that may wait for a worker; more are refused, dropped over UDP, and
    /// end a connection
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    queue: u32,
    /// Longest service that a request may ask for; longer ones are refused
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_positive_ns)]
    service_max: u64,
    /// The server's certificates, its own first, PEM (TLS only)
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The key of the certificate, PEM (TLS only)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Make a certificate for localhost and ADDR, and write it to FILE for clients to trust (TLS
    /// only)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cert", "key"])]
    self_signed: Option<PathBuf>,
    /// Seed of the drawn service times
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Send every datagram as a message of its own, to measure what GSO batches are worth
    #[arg(long)]
    no_coalescing: bool,
    #[command(flatten)]
    polling: Polling,
    #[command(flatten)]
    trace: TraceFlags,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let mut server = Server::open(&args)?;
    let stop = Arc::new(AtomicBool::new(false));
    let (flag, waker) = (Arc::clone(&stop), server.waker());
    signals::on_stop(move || {
        flag.store(true, Ordering::Relaxed);
        waker.wake();
    })?;
    let listening = server.addresses()?.into_iter().map(|address| format!("listening {address}\n"));
    output::print(&listening.collect::<String>())?;
    server.serve(&stop)?;
    eprint!("{}", server.report()?);
    Ok(())
}

/// The ports, by what carries their requests.
enum Server {
    Calls(Endpoints),
    Datagrams(Ports),
    Connections(Listeners),
}

impl Server {
    fn open(args: &Args) -> Result<Self> {
        check(args)?;
        match args.transport {
            Transport::R2p2 | Transport::Homa | Transport::HomaIp => {
                Endpoints::open(args).map(Self::Calls)
            }
            Transport::Udp => Ports::open(args).map(Self::Datagrams),
            Transport::Tcp => Listeners::open(args, None).map(Self::Connections),
            Transport::Tls => {
                Listeners::open(args, Some(&certificate::tls(args)?)).map(Self::Connections)
            }
        }
    }

    fn addresses(&self) -> Result<Vec<SocketAddr>> {
        match self {
            Self::Calls(endpoints) => Ok(endpoints.addresses()),
            Self::Datagrams(ports) => Ok(ports.addresses()),
            Self::Connections(listeners) => listeners.addresses(),
        }
    }

    fn waker(&self) -> Waker {
        match self {
            Self::Calls(endpoints) => endpoints.driver.waker(),
            Self::Datagrams(ports) => ports.driver.waker(),
            Self::Connections(listeners) => listeners.streams.waker(),
        }
    }

    /// Serves until it is stopped.
    fn serve(&mut self, stop: &AtomicBool) -> Result<()> {
        match self {
            Self::Calls(endpoints) => endpoints.serve(stop),
            Self::Datagrams(ports) => ports.serve(stop),
            Self::Connections(listeners) => listeners.serve(stop),
        }
    }

    /// What was counted.
    fn report(&self) -> Result<String> {
        match self {
            Self::Calls(endpoints) => Ok(endpoints.report()),
            Self::Datagrams(ports) => Ok(ports.report()),
            Self::Connections(listeners) => listeners.report(),
        }
    }
}

/// Whether a turn left requests for the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    Requests,
}

fn check(args: &Args) -> Result<()> {
    if args.workers > 1 && !args.app.is_emulated() {
        bail!(
            "--workers are emulated, which only --app synthetic and stss do; drop --workers, or take --ports for several servers"
        );
    }
    let is_r2p2 = args.transport == Transport::R2p2;
    if !is_r2p2 && (args.router.is_some() || !args.trust.is_empty() || args.pool_key_file.is_some())
    {
        bail!(
            "--router, --trust and --pool-key-file are R2P2's; take --transport r2p2, or leave them out"
        );
    }
    if args.trace.trace.is_some() && !args.transport.has_endpoints() {
        bail!("--trace is for endpoints of R2P2 and Homa; leave it out, or change --transport");
    }
    if args.transport != Transport::Tls && (args.cert.is_some() || args.self_signed.is_some()) {
        bail!("--cert, --key and --self-signed are TLS's; take --transport tls");
    }
    Ok(())
}

/// The addresses to bind: consecutive ports, or free ones where the port is 0.
fn ports(args: &Args) -> Result<Vec<SocketAddr>> {
    let first = network::resolve(&args.listen)?;
    if first.port() == 0 {
        return Ok(vec![first; usize::from(args.ports)]);
    }
    let last = first.port().checked_add(args.ports - 1);
    let last =
        last.ok_or_else(|| anyhow!("{} ports from {} on do not exist", args.ports, first.port()))?;
    Ok((first.port()..=last).map(|port| SocketAddr::new(first.ip(), port)).collect())
}

/// What the application of a port is told, where a message has so many bytes at most.
fn handler_config(args: &Args, index: usize, message_bytes_max: u64) -> HandlerConfig {
    HandlerConfig {
        worker_count: args.workers,
        queue_len_max: args.queue as usize,
        limits: Limits {
            service_ns_max: args.service_max,
            payload_bytes_max: message_bytes_max,
            reply_bytes_max: message_bytes_max,
        },
        seed: args.seed,
        stream: index as u64,
    }
}

/// The counters of all ports together with those of the transport, and each port's share of the
/// requests.
fn report_desks(
    addresses: &[SocketAddr],
    handlers: impl Iterator<Item = HandlerCounts>,
    transport: Counters,
) -> String {
    let mut all = Counters::new();
    let mut shares = Vec::new();
    for (address, counts) in addresses.iter().zip(handlers) {
        let HandlerCounts { requests, replies, malformed, overload, dropped_queue_full } = counts;
        let named = [
            ("requests", requests),
            ("replied", replies),
            ("malformed", malformed),
            ("overload", overload),
            ("dropped_queue_full", dropped_queue_full),
        ];
        counters::add(&mut all, &named.map(|(name, count)| (name.to_owned(), count)).to_vec());
        shares.push(vec![format!("  {address}"), requests.to_string()]);
    }
    all.extend(transport);
    let shares = if shares.len() > 1 {
        format!("requests by port:\n{}", output::table(&shares, 1))
    } else {
        String::new()
    };
    format!("served:\n{}{shares}", counters::lines(&all))
}

/// The longest message over R2P2, Homa and streams: what an endpoint takes by default.
const MESSAGE_BYTES_MAX: u64 = 8 << 20;

/// The most that UDP carries over IPv4.
const DATAGRAM_BYTES_MAX: u64 = 65_507;

const AFTER_HELP: &str = "\
Apps:
  echo             the reply is the request
  synthetic        emulated service: its time is the request's first 8 bytes (nanoseconds,
                   big-endian), and the reply those 8 bytes. It occupies a worker, not a core,
                   so that many servers fit on one machine
  synthetic:DIST   the same with service times drawn here
  spin, spin:DIST  the same times, spent computing on the thread that serves
  stss             emulated service as well; the request says its time, its payload's size and
                   the reply's (8 bytes each, big-endian), and carries the payload
Over UDP a synthetic request may carry 8 bytes more, which return. Over TCP and TLS echo returns
bytes as they come, and replies leave in the order of their connection's requests.

Examples:
  tailcut serve --listen 0.0.0.0:8000 --app echo --busy-poll
  tailcut serve --listen 127.0.0.1:8000 --app synthetic:exp:50us --workers 16
  tailcut serve --listen 127.0.0.1:8000 --transport udp --app echo
  tailcut serve --listen 0.0.0.0:50146 --transport homa --app echo --busy-poll
  tailcut serve --listen 127.0.0.1:8443 --transport tls --app echo --self-signed cert.pem
  tailcut serve --listen 127.0.0.1:8001 --ports 8 --app synthetic:bimodal:10us:1ms:0.99
  tailcut serve --listen 10.0.0.2:8000 --app echo --router 10.0.0.1:8000 --trust 10.0.0.0/8";

#[cfg(test)]
mod tests;
