//! `tailcut serve`: servers on one or many ports, all on one thread.

mod app;
mod emulated;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use tailcut_net::driver::Driver;
use tailcut_net::entropy;
use tailcut_net::udp::{Coalescing, UdpPort};
use tailcut_proto::r2p2::{Config, Endpoint, Prefix};

use self::app::{App, Desk, DeskConfig, Left};
use crate::counters::{self, Counters};
use crate::distribution_file::parse_positive_ns;
use crate::network::{self, Polling};
use crate::{output, signals};

/// Serve requests: echo them, or behave like servers with given service times
///
/// Prints one line for each port, `listening 127.0.0.1:8000`, when it is ready, and its counters on standard error when SIGINT
/// or SIGTERM ends it.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Address to serve at; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    listen: String,
    /// What to answer: echo, synthetic[:DIST] or spin[:DIST]
    #[arg(long, value_name = "APP", value_parser = App::parse)]
    app: App,
    /// Emulated workers of each port, behind one queue (synthetic only)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: u32,
    /// Ports from ADDR on, each a server of its own with its own workers and server id
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    ports: u16,
    /// Router that keeps clients' addresses, which gets the feedback; a router that annotates needs no mention
    #[arg(long, value_name = "ADDR")]
    router: Option<String>,
    /// Identity of the first port in replies and feedback; the others count up
    #[arg(long, value_name = "N", default_value_t = 0)]
    server_id: u32,
    /// Network whose addresses cannot be forged, besides loopback: its clients need not prove theirs. May be repeated
    #[arg(long, value_name = "PREFIX")]
    trust: Vec<Prefix>,
    /// File with 32 hex digits, the same for all servers behind one router: clients prove their address to all of them at once
    #[arg(long, value_name = "FILE")]
    pool_key_file: Option<PathBuf>,
    /// Requests of each port that may wait for a worker; more are refused
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    queue: u32,
    /// Longest service that a request may ask for; longer ones are refused
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_positive_ns)]
    service_max: u64,
    /// Seed of the drawn service times
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Send every datagram as a message of its own, to measure what trains are worth
    #[arg(long)]
    no_coalescing: bool,
    #[command(flatten)]
    polling: Polling,
}

/// The ports' endpoints, and the application of each.
struct Servers {
    driver: Driver<Endpoint>,
    desks: Vec<Desk>,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let mut servers = open(&args)?;
    let stop = Arc::new(AtomicBool::new(false));
    let (flag, waker) = (stop.clone(), servers.driver.waker());
    signals::on_stop(move || {
        flag.store(true, Ordering::Relaxed);
        waker.wake();
    })?;
    let listening = servers.addresses().map(|address| format!("listening {address}\n"));
    output::print(&listening.collect::<String>())?;
    servers.serve(&stop)?;
    eprint!("{}", servers.report());
    Ok(())
}

impl Servers {
    fn serve(&mut self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let desks = &mut self.desks;
            let mut left = Left::Nothing;
            self.driver.turn_with(|index, endpoint, now| {
                if desks[index].work(endpoint, now) == Left::Requests {
                    left = Left::Requests;
                }
            })?;
            if left == Left::Nothing {
                let next_finish = desks.iter().filter_map(Desk::next_finish).min();
                self.driver.wait(None, next_finish)?;
            }
        }
        Ok(())
    }

    fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        (0..self.desks.len()).map(|index| self.driver.port(index).local_address())
    }

    /// The counters of all ports together, and each port's share of the requests.
    fn report(&self) -> String {
        let mut all = Counters::new();
        let mut shares = Vec::new();
        for (index, address) in self.addresses().enumerate() {
            let metrics = self.driver.node(index).metrics();
            let mut counters = counters::of_endpoint(metrics);
            counters.extend(counters::of_udp(&self.driver.port(index).metrics()));
            counters.push(("kernel_drops".to_owned(), self.driver.port(index).kernel_drops().map_or(0, u64::from)));
            counters::add(&mut all, &counters);
            shares.push(vec![format!("  {address}"), metrics.requests.to_string()]);
        }
        let shares = if shares.len() > 1 { format!("requests by port:\n{}", output::table(&shares, 1)) } else { String::new() };
        format!("served:\n{}{shares}", counters::lines(&all))
    }
}

fn open(args: &Args) -> Result<Servers> {
    if args.workers > 1 && !matches!(args.app, App::Synthetic(_)) {
        bail!("--workers are emulated, which only --app synthetic does; drop --workers, or take --ports for several servers");
    }
    let mut driver = Driver::new(args.polling.wait()).context("cannot set up polling")?;
    let mut config = endpoint_config(args)?;
    let mut desks = Vec::new();
    for (index, address) in ports(args)?.into_iter().enumerate() {
        let coalescing = if args.no_coalescing { Coalescing::Off } else { Coalescing::On };
        let port = network::bind(address, coalescing)?;
        config.secret = entropy::secret().context("cannot draw a secret")?;
        config.credit_bytes = credit_bytes(&port)?;
        config.serving.server_id = args.server_id.wrapping_add(index as u32);
        let endpoint = Endpoint::new(driver.clock().now(), config.clone());
        driver.add(endpoint, port, None);
        desks.push(Desk::new(args.app.clone(), desk_config(args, index)));
    }
    Ok(Servers { driver, desks })
}

/// The addresses to bind: consecutive ports, or free ones where the port is 0.
fn ports(args: &Args) -> Result<Vec<SocketAddr>> {
    let first = network::resolve(&args.listen)?;
    if first.port() == 0 {
        return Ok(vec![first; usize::from(args.ports)]);
    }
    let last = first.port().checked_add(args.ports - 1);
    let last = last.ok_or_else(|| anyhow!("{} ports from {} on do not exist", args.ports, first.port()))?;
    Ok((first.port()..=last).map(|port| SocketAddr::new(first.ip(), port)).collect())
}

fn endpoint_config(args: &Args) -> Result<Config> {
    let mut config = Config::default();
    config.serving.router = args.router.as_deref().map(network::resolve).transpose()?;
    config.serving.trusted.extend_from_slice(&args.trust);
    // The ports are one pool even where nobody else shares their key.
    let own_key = || entropy::secret().context("cannot draw a secret");
    config.serving.pool_key = Some(args.pool_key_file.as_deref().map_or_else(own_key, read_pool_key)?);
    Ok(config)
}

fn desk_config(args: &Args, index: usize) -> DeskConfig {
    DeskConfig {
        worker_count: args.workers,
        queue_len_max: args.queue as usize,
        service_ns_max: args.service_max,
        seed: args.seed,
        stream: index as u64,
    }
}

/// Half of the buffer: the kernel charges up to twice a packet's bytes.
pub(crate) fn credit_bytes(port: &UdpPort) -> Result<usize> {
    Ok(port.receive_buffer_bytes().context("cannot read the socket's buffer size")? / 2)
}

fn read_pool_key(path: &Path) -> Result<[u8; 16]> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read the pool's key from {}", path.display()))?;
    let digits = text.trim();
    let is_key = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let key = u128::from_str_radix(digits, 16).ok().filter(|_| is_key);
    let hint = "the pool's key is 32 hex digits; `openssl rand -hex 16` makes one";
    Ok(key.with_context(|| format!("{}: {hint}", path.display()))?.to_be_bytes())
}

const AFTER_HELP: &str = "\
Apps:
  echo             the reply is the request
  synthetic        emulated service: its time is the request's first 8 bytes (nanoseconds,
                   big-endian), and the reply those 8 bytes. It occupies a worker, not a core,
                   so that many servers fit on one machine
  synthetic:DIST   the same with service times drawn here
  spin, spin:DIST  the same times, spent computing on the thread that serves

Examples:
  tailcut serve --listen 0.0.0.0:8000 --app echo --busy-poll
  tailcut serve --listen 127.0.0.1:8000 --app synthetic:exp:50us --workers 16
  tailcut serve --listen 127.0.0.1:8001 --ports 8 --app synthetic:bimodal:10us:1ms:0.99
  tailcut serve --listen 10.0.0.2:8000 --app echo --router 10.0.0.1:8000 --trust 10.0.0.0/8";
