//! `tailcut serve`: servers on one or many ports, on one thread or several. Several share one port,
//! or have some of the ports each.

mod app;
mod calls;
mod certificate;
mod connections;
mod crew;
mod datagrams;
mod emulated;
mod kinds;
mod layout;
mod netclone;
mod peer_log;
mod report;
mod times;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::mpsc::SyncSender;

use anyhow::{Result, bail};
use tailcut_instrument::job::Transport;
use tailcut_measure::app::serving::Limits;
use tailcut_net::clock::Clock;
use tailcut_net::dispatch::{BOUND_MAX, Bound, Config, Delivery, WORKERS_MAX};
use tailcut_net::driver::{Wait, Waker};
use tailcut_proto::node::Time;
use tailcut_proto::r2p2::{AskCookies, Prefix};

use self::app::{App, HandlerConfig};
use self::calls::Endpoints;
use self::connections::Listeners;
use self::datagrams::{Bare, Ports};
use self::emulated::Cancelled;
use self::kinds::Kinds;
use self::layout::Layout;
use self::netclone::NetClone;
use self::report::Snapshot;
use crate::distribution_file::{parse_delay_ns, parse_positive_ns};
use crate::keys::Secured;
use crate::life::Life;
use crate::orders::{self, Orderer, Orders};
use crate::output;
use crate::place::{self, Place};
use crate::serving::ServingFlags;

/// Serve requests: echo them, or behave like servers with given service times
///
/// Prints one line for each port, `listening 127.0.0.1:8000`, when it is ready. SIGINT or SIGTERM
/// drains it and ends it, with its counters on standard error.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Address to serve at; port 0 takes a free one, and `systemd` the sockets that a socket unit
    /// passes, for datagrams. Homa inside UDP is expected at port 50146,
    /// servers directly over IP have the ports up to 32767
    #[arg(long, value_name = "ADDR")]
    listen: String,
    /// What carries requests and replies
    #[arg(long, value_name = "NAME", default_value = "r2p2")]
    transport: Transport,
    /// What to answer: echo, synthetic, synthetic:DIST, spin, spin:DIST or stss
    #[arg(long, value_name = "APP", value_parser = App::parse)]
    app: App,
    /// Workers of each port, behind one queue: emulated ones (synthetic and stss), or threads
    /// (spin, and echo but for streams; up to 64), where 1 runs on the thread that serves
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: u32,
    /// Requests that a thread of --workers may have at once [default: from the measured hand-off]
    #[arg(long, value_name = "N", value_parser = parse_bound)]
    bound: Option<NonZeroU32>,
    /// What is before the threads of --workers: one queue, which pushes to them (single) or which
    /// they pull from under a lock (shared-queue), one for each, which the kernel gives clients to
    /// as RSS does (partitioned) or by their length when they come (partitioned:shortest; CAP_BPF),
    /// or one for each of so many groups (grouped:G)
    #[arg(long, value_name = "LAYOUT", default_value = "single", value_parser = Layout::parse)]
    dispatch: Layout,
    /// Cores to pin the threads of --workers to, in turn, such as 1,2,3 [default: the kernel places
    /// them]
    #[arg(long, value_name = "CORES", value_delimiter = ',')]
    worker_cores: Vec<usize>,
    /// Longest time that an idle thread of --workers spins before it sleeps, learned from the gaps
    /// [default: 50us]
    #[arg(long, value_name = "TIME", value_parser = parse_delay_ns)]
    worker_spin: Option<u64>,
    /// Service times that part the requests into types, such as 10us or 10us,1ms: how long each
    /// waited is reported (R2P2 and Homa only)
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', value_parser = parse_positive_ns)]
    types: Vec<u64>,
    /// Give each of the --types a queue, and reserve workers for short requests (DARC)
    #[arg(long, requires = "types")]
    darc: bool,
    /// Ports from ADDR on, each a server of its own with its own workers and server id
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    ports: u16,
    /// Router that forwards with the client as the source, to which feedback is sent; one that
    /// annotates need not be named
    #[arg(long, value_name = "ADDR")]
    router: Option<String>,
    /// Identity of the first port in replies and feedback, as NetClone's switch knows it from 0;
    /// the others count up
    #[arg(long, value_name = "N", default_value_t = 0)]
    server_id: u32,
    /// Network whose addresses cannot be forged, besides loopback: its clients need no
    /// address validation (R2P2 and Homa). May be repeated
    #[arg(long, value_name = "PREFIX")]
    trust: Vec<Prefix>,
    /// File with 32 hex digits, the same for all servers behind one router: a client then
    /// validates its address once for all of them
    #[arg(long, value_name = "FILE")]
    pool_key_file: Option<PathBuf>,
    /// When clients must show by a cookie that they receive at their addresses before anything is
    /// done for them: never, under-load (and always for requests of several packets) or always;
    /// those of trusted networks never (R2P2 and Homa, and not with --seal)
    #[arg(long, value_name = "WHEN", default_value = "never", value_parser = AskCookies::from_str)]
    cookies: AskCookies,
    /// Accept only sealed packets, with the servers' keys in this file (R2P2 and Homa), which is
    /// read again when it changes; `tailcut keys` makes them
    #[arg(long, value_name = "FILE")]
    seal: Option<PathBuf>,
    /// Let clients call only what the policy in this file allows, by the numbers of their keys
    /// (with --seal); it is read again when it changes
    #[arg(long, value_name = "FILE")]
    access: Option<PathBuf>,
    /// Requests of each port that may wait for a worker; further ones are refused, are dropped over
    /// UDP, and end a connection over TCP
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
    /// Probability that a service time drawn here is 15 times as long, as if the server had been
    /// interrupted (R2P2, Homa and NetClone only)
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    jitter: f64,
    /// Stop emulated services that are cancelled, as by clients with --cancel-loser; otherwise they
    /// occupy their workers to the end
    #[arg(long)]
    stop_cancelled: bool,
    /// Seed of the drawn service times
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Send every datagram as a message of its own, to measure what GSO batches are worth
    #[arg(long)]
    no_segmented_send: bool,
    #[command(flatten)]
    serving: ServingFlags,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let args = args.laid_out()?;
    check(&args)?;
    let secured = Secured::of_server(args.seal.as_deref(), args.access.as_deref())?;
    let servers = Server::open_all(&args, Some(&secured))?;
    let admin = args.serving.admin.bind()?;
    let wakers: Vec<Waker> = servers.iter().map(Server::waker).collect();
    let lives = Life::of_loops(args.serving.life, wakers.clone());
    let (mut loops, mut orderers) = (Vec::new(), Vec::new());
    for ((server, waker), life) in servers.into_iter().zip(wakers).zip(lives) {
        let (orderer, running) = Running::new(life, waker);
        loops.push((server, running));
        orderers.push(orderer);
    }
    let first = &loops[0].1.life;
    first.heed_signals(first.wake(), move || secured.reload())?;
    let mut addresses: Vec<_> = loops.iter().flat_map(|(server, _)| server.addresses()).collect();
    // Threads may share one.
    addresses.dedup();
    let listening = addresses.iter().map(|address| format!("listening {address}\n"));
    output::print(&listening.collect::<String>())?;
    let port_count = addresses.len();
    admin.start(move || Ok(ask(&orderers, port_count)?.reading()))?;
    first.announce_ready();
    first.loops().run(&mut loops, |(server, running)| server.serve(running))?;
    eprint!("{}", report(loops.iter().map(|(server, _)| server)));
    loops[0].1.life.end("requests are unanswered, or their replies not received")
}

impl Args {
    /// The types of requests.
    fn kinds(&self) -> Result<Kinds> {
        Kinds::parse(&self.types, self.darc).map_err(anyhow::Error::msg)
    }

    /// True if threads of their own serve.
    fn has_crew(&self) -> bool {
        self.workers > 1 && self.suits_crew()
    }

    /// True if threads of their own could serve: they take requests, which a stream that is echoed
    /// does not have.
    fn suits_crew(&self) -> bool {
        let is_stream = matches!(self.transport, Transport::Tcp | Transport::Tls);
        self.app.is_spun() || !(self.app.is_emulated() || is_stream)
    }

    /// The threads of the port or loop with this number, if it has some.
    fn crew_config(&self, index: usize) -> Option<Config> {
        let count = self.workers as usize;
        let cores = self.worker_cores.iter().copied().cycle();
        let first = (index * count) % self.worker_cores.len().max(1);
        let config = Config {
            queue_len_max: self.queue as usize,
            types: if self.darc { self.types.len() + 1 } else { 1 },
            spin_ns_max: self.worker_spin.unwrap_or(Wait::SPIN_NS),
            cores: cores.skip(first).take(self.worker_cores.len().min(count)).collect(),
            ..Config::new(count)
        };
        let bound = self.bound.map_or(Bound::Auto, Bound::Fixed);
        let delivery = match self.dispatch {
            Layout::SharedQueue => Delivery::Pull,
            _ => Delivery::Push,
        };
        self.has_crew().then(|| config.bound(bound).delivery(delivery))
    }
}

fn parse_bound(text: &str) -> Result<NonZeroU32, String> {
    let bound = text.parse().ok().filter(|bound: &NonZeroU32| bound.get() <= BOUND_MAX);
    bound.ok_or_else(|| format!("write 1 to {BOUND_MAX}"))
}

/// A thread's request for a snapshot: what to fill in, and where it goes.
type Order = (Box<Snapshot>, SyncSender<Box<Snapshot>>);

/// Asks each loop for a snapshot; all of them in one.
fn ask(orderers: &[Orderer<Order>], port_count: usize) -> Result<Box<Snapshot>> {
    let mut all = Box::new(Snapshot::new(port_count));
    for orderer in orderers {
        let empty = Box::new(Snapshot::new(port_count));
        all.add(*orderer.ask(|reply| (empty, reply))?);
    }
    Ok(all)
}

/// Report of what servers have counted.
fn report<'a>(servers: impl Iterator<Item = &'a Server>) -> String {
    let (mut snapshot, mut addresses) = (Snapshot::new(0), Vec::new());
    for server in servers {
        server.fill(&mut snapshot);
        addresses.extend(server.addresses());
    }
    snapshot.report(&addresses)
}

/// State that a loop heeds besides the network.
struct Running {
    life: Life,
    orders: Orders<Order>,
    started_at: Time,
}

impl Running {
    fn new(life: Life, waker: Waker) -> (Orderer<Order>, Self) {
        let (orderer, orders) = orders::channel(waker);
        (orderer, Self { life, orders, started_at: Clock.now() })
    }

    /// Answers who asks for a snapshot, which `fill` adds the ports to; to call after each turn.
    #[inline]
    fn follow(&self, now: Time, fill: impl Fn(&mut Snapshot)) {
        while let Some((mut snapshot, reply)) = self.orders.poll() {
            fill(&mut snapshot);
            snapshot.uptime_ns = now.saturating_sub(self.started_at);
            snapshot.is_draining = self.life.is_draining();
            // Who has given up waiting gets none.
            let _ = reply.try_send(snapshot);
        }
    }
}

/// The ports, by what carries their requests.
enum Server {
    Calls(Endpoints),
    Datagrams(Ports<Bare>),
    NetClone(Ports<NetClone>),
    Connections(Listeners),
}

impl Server {
    /// The server of each thread.
    fn open_all(args: &Args, secured: Option<&Secured>) -> Result<Vec<Self>> {
        let tls = (args.transport == Transport::Tls).then(|| certificate::tls(args)).transpose()?;
        let thread_count = usize::from(args.serving.threads);
        if args.transport.has_endpoints() {
            let opening = calls::opening(args, secured)?;
            if thread_count > 1 && args.ports == 1 {
                return Endpoints::open_group(args, &opening, thread_count);
            }
            let open = |places| Endpoints::open(args, &opening, places).map(Self::Calls);
            return deal(args)?.into_iter().map(open).collect();
        }
        let open = |places| match args.transport {
            Transport::Udp => Ports::open(args, places, |_| Bare).map(Self::Datagrams),
            Transport::NetClone => {
                let framing = |index| NetClone { sid: args.server_id.wrapping_add(index as u32) };
                Ports::open(args, places, framing).map(Self::NetClone)
            }
            _ => Listeners::open(args, tls.as_ref(), places).map(Self::Connections),
        };
        deal(args)?.into_iter().map(open).collect()
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::Calls(endpoints) => endpoints.addresses(),
            Self::Datagrams(ports) => ports.addresses(),
            Self::NetClone(ports) => ports.addresses(),
            Self::Connections(listeners) => listeners.addresses(),
        }
    }

    fn waker(&self) -> Waker {
        match self {
            Self::Calls(endpoints) => endpoints.driver.waker(),
            Self::Datagrams(ports) => ports.driver.waker(),
            Self::NetClone(ports) => ports.driver.waker(),
            Self::Connections(listeners) => listeners.streams.waker(),
        }
    }

    /// Serves until it has drained.
    fn serve(&mut self, running: &mut Running) -> Result<()> {
        match self {
            Self::Calls(endpoints) => endpoints.serve(running),
            Self::Datagrams(ports) => ports.serve(running),
            Self::NetClone(ports) => ports.serve(running),
            Self::Connections(listeners) => listeners.serve(running),
        }
    }

    /// Adds what was counted.
    fn fill(&self, snapshot: &mut Snapshot) {
        match self {
            Self::Calls(endpoints) => endpoints.fill(snapshot),
            Self::Datagrams(ports) => ports.fill(snapshot),
            Self::NetClone(ports) => ports.fill(snapshot),
            Self::Connections(listeners) => listeners.fill(snapshot),
        }
    }
}

/// A place by the number of its port.
type Numbered = (usize, Place);

/// The places of all ports, dealt to the threads so that each has some, in their order.
fn deal(args: &Args) -> Result<Vec<Vec<Numbered>>> {
    let mut places = Place::read(&args.listen, args.ports)?.into_iter().enumerate();
    let (count, thread_count) = (places.len(), usize::from(args.serving.threads));
    if count < thread_count {
        bail!("{thread_count} threads want as many ports: take --ports {thread_count}");
    }
    let share = |thread| (thread + 1) * count / thread_count - thread * count / thread_count;
    Ok((0..thread_count).map(|thread| places.by_ref().take(share(thread)).collect()).collect())
}

/// Remainder of a turn: requests for the next, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    Requests,
}

fn check(args: &Args) -> Result<()> {
    args.serving.check()?;
    if args.serving.threads > 1 && args.ports == 1 {
        if !args.transport.has_endpoints()
            || matches!(args.transport, Transport::HomaIp | Transport::HomaTcp)
        {
            bail!(
                "over this transport each thread wants a port: take --ports, or leave --threads out"
            );
        }
        if args.router.is_some() || place::is_passed(&args.listen) {
            bail!(
                "threads that share a port are no server behind a router, nor at a socket of systemd's: \
                 take --ports, so that each has its own"
            );
        }
    }
    if place::is_passed(&args.listen) && matches!(args.transport, Transport::Tcp | Transport::Tls) {
        bail!("--listen systemd is for datagrams; name an address, or change --transport");
    }
    check_workers(args)?;
    args.kinds()?;
    let has_services = args.app.is_emulated() || args.app.is_spun() && args.has_crew();
    let has_types = has_services && args.transport.has_endpoints();
    if !has_types && !args.types.is_empty() {
        bail!(
            "--types are of services with workers over R2P2 or Homa: take --app synthetic, or spin and --workers of 2 or more"
        );
    }
    if !(0.0..=1.0).contains(&args.jitter) {
        bail!("--jitter is a probability, from 0 to 1");
    }
    let has_jitter = args.transport.has_endpoints() || args.transport == Transport::NetClone;
    if args.jitter > 0.0 && !(args.app.draws_times() && has_jitter) {
        bail!(
            "--jitter is of service times that are drawn here, over R2P2, Homa or NetClone; take --app synthetic:DIST, or leave it out"
        );
    }
    if args.stop_cancelled && !(args.app.is_emulated() && args.transport.has_endpoints()) {
        bail!("--stop-cancelled is of emulated services over R2P2 or Homa; take --app synthetic");
    }
    let is_r2p2 = args.transport == Transport::R2p2;
    if !is_r2p2 && (args.router.is_some() || args.pool_key_file.is_some()) {
        bail!("--router and --pool-key-file are R2P2's; take --transport r2p2, or leave them out");
    }
    if !args.transport.has_endpoints() && args.seal.is_some() {
        bail!("--seal is of R2P2 and Homa; leave it out, or change --transport");
    }
    let has_cookies = args.transport.has_endpoints() && args.seal.is_none();
    if args.cookies != AskCookies::Never && !has_cookies {
        bail!("--cookies is of R2P2 and Homa without --seal, whose keys show more; leave one out");
    }
    if !args.trust.is_empty() && !args.transport.has_endpoints() {
        bail!("--trust is for R2P2 and Homa, which validate addresses; leave it out");
    }
    if args.serving.trace.trace.is_some() && !args.transport.has_endpoints() {
        bail!("--trace is for endpoints of R2P2 and Homa; leave it out, or change --transport");
    }
    if args.serving.datapath.is_some() && !args.transport.has_endpoints() {
        bail!("--datapath is of R2P2 and Homa; leave it out, or change --transport");
    }
    if args.transport != Transport::Tls && (args.cert.is_some() || args.self_signed.is_some()) {
        bail!("--cert, --key and --self-signed are TLS's; take --transport tls");
    }
    Ok(())
}

fn check_workers(args: &Args) -> Result<()> {
    if args.workers > 1 && !args.app.is_emulated() && !args.has_crew() {
        bail!(
            "--workers take requests, which echo over TCP and TLS does not have; drop --workers, or take --app spin or synthetic"
        );
    }
    if args.has_crew() && args.workers as usize > WORKERS_MAX {
        bail!("--app spin and echo have a thread for each worker, {WORKERS_MAX} at most");
    }
    let is_tuned = args.bound.is_some() || args.worker_spin.is_some();
    if (is_tuned || !args.worker_cores.is_empty()) && !args.has_crew() {
        bail!(
            "--bound, --worker-cores and --worker-spin are of threads; take --app spin or echo and --workers of 2 or more, or leave them out"
        );
    }
    let core_count = std::thread::available_parallelism().map_or(1, usize::from);
    if let Some(core) = args.worker_cores.iter().find(|&&core| core >= core_count) {
        bail!("--worker-cores: there is no core {core}; this machine has 0 to {}", core_count - 1);
    }
    Ok(())
}

/// Configuration of the application of a port, where a message has so many bytes at most.
fn handler_config(args: &Args, index: usize, message_bytes_max: u64) -> HandlerConfig {
    HandlerConfig {
        worker_count: args.workers,
        queue_len_max: args.queue as usize,
        limits: Limits {
            service_ns_max: args.service_max,
            payload_bytes_max: message_bytes_max,
            reply_bytes_max: message_bytes_max,
        },
        jitter: args.jitter,
        cancelled: if args.stop_cancelled { Cancelled::Stops } else { Cancelled::Runs },
        seed: args.seed,
        stream: index as u64,
    }
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
  spin, spin:DIST  the same times, spent computing: on the thread that serves, or on --workers,
                   which take echo's requests as well, but for streams
  stss             emulated service as well; the request says its time, its payload's size and
                   the reply's (8 bytes each, big-endian), and carries the payload
Over UDP a synthetic request may carry 8 bytes more, which return. Over TCP and TLS echo returns
bytes as they come, and replies leave in the order of their connection's requests.

Examples:
  tailcut serve --listen 0.0.0.0:8000 --app echo --busy-poll
  tailcut serve --listen 127.0.0.1:8000 --app synthetic:exp:50us --workers 16
  tailcut serve --listen 0.0.0.0:8000 --app spin:exp:10us --workers 8
  tailcut serve --listen 0.0.0.0:8000 --app spin:exp:10us --workers 8 --dispatch grouped:2
  tailcut serve --listen 0.0.0.0:8000 --app spin:fixed:10us --threads 2
  tailcut serve --listen 127.0.0.1:8000 --transport udp --app echo
  tailcut serve --listen 0.0.0.0:50146 --transport homa --app echo --busy-poll
  tailcut serve --listen 127.0.0.1:8443 --transport tls --app echo --self-signed cert.pem
  tailcut serve --listen 10.0.0.2:1000 --transport netclone --app synthetic:exp:25us --workers 15
  tailcut serve --listen 127.0.0.1:8001 --ports 8 --app synthetic:bimodal:10us:1ms:0.99
  tailcut serve --listen 127.0.0.1:8000 --app synthetic --workers 16 --types 10us --darc
  tailcut serve --listen 10.0.0.2:8000 --app echo --router 10.0.0.1:8000 --trust 10.0.0.0/8";

#[cfg(test)]
mod tests;
