//! `tailcut route --transport netclone`: NetClone's switch as a process, one loop with the counters of a
//! [`Switch`]. It has no control socket, and no state that outlives it.

use std::net::SocketAddr;
use std::sync::mpsc::SyncSender;

use anyhow::{Context, Result, anyhow, bail};
use tailcut_net::clock::Clock;
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::Driver;
use tailcut_net::entropy;
use tailcut_net::log::DriverLog;
use tailcut_proto::netclone::{Fallback, Switch, SwitchConfig, SwitchMetrics, SwitchServer};
use tailcut_proto::node::Time;
use tailcut_proto::router::{RouterConfig, Speaks};
use tailcut_proto::scheduler::Rank;

use super::servers::ServerSpec;
use super::{Args, FilterPlace, ForwardMode};
use crate::admin::Reading;
use crate::admin::text::{Page, seconds};
use crate::counters::{self, Counters, PortSnapshot};
use crate::life::Life;
use crate::orders::{self, Orders};
use crate::output;

/// A switch at one moment.
#[derive(Debug)]
struct Snapshot {
    metrics: SwitchMetrics,
    port: Option<PortSnapshot>,
    servers: Vec<SwitchServer>,
    uptime_ns: u64,
    is_draining: bool,
}

/// A request for a snapshot: what to fill in, and where it goes.
type Order = (Box<Snapshot>, SyncSender<Box<Snapshot>>);

/// The loop.
struct Loop {
    driver: Driver<Switch>,
    orders: Orders<Order>,
    life: Life,
    started_at: Time,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let port = super::open_port(args)?;
    let listen = port.local_address();
    let started_at = Clock.now();
    let switch = Switch::new(started_at, config(args, Some(listen))?)?;
    let mut driver = Driver::new(args.serving.polling.wait()).context("cannot set up polling")?;
    driver.add(switch, port, None);
    let (orderer, orders) = orders::channel(driver.waker());
    let admin = args.serving.admin.bind()?;
    let life = Life::of_loops(args.serving.life, vec![driver.waker()]).remove(0);
    life.heed_signals(life.wake(), || {
        eprintln!("tailcut: the servers of a NetClone switch stay as they are")
    })?;
    output::print(&format!("listening {listen}\n"))?;
    admin.start(move || {
        let snapshot: Box<Snapshot> = orderer.ask(|reply| (Box::new(Snapshot::new()), reply))?;
        Ok(snapshot.reading())
    })?;
    life.announce_ready();
    let mut switch = Loop { driver, orders, life, started_at };
    switch.serve()?;
    let mut snapshot = Snapshot::new();
    switch.fill(switch.started_at, &mut snapshot);
    eprint!("routed:\n{}{}", counters::lines(&snapshot.counters()), snapshot.shares());
    switch.life.end("datagrams wait to be sent")
}

/// Refuses what the format, or a switch, cannot do; returns the servers that are named.
pub(super) fn check(args: &Args, listen: Option<SocketAddr>) -> Result<Vec<ServerSpec>> {
    check_flags(args)?;
    Switch::new(0, config(args, listen)?)?;
    args.servers.resolve(listen)
}

fn check_flags(args: &Args) -> Result<()> {
    let is_plain = args.serving.threads == 1
        && args.serving.trace.trace.is_none()
        && args.control.is_none()
        && matches!(args.forward, ForwardMode::Annotate);
    if !is_plain {
        bail!(
            "--threads, --trace, --control and --forward are R2P2's; leave them out, or take --transport r2p2"
        );
    }
    if args.seal.is_some() {
        bail!("NetClone's format has no sealed form: leave --seal out, or take --transport r2p2");
    }
    let default = RouterConfig::default();
    let has_no_queue = args.queue == default.queue_len_max
        && args.hold == default.hold_ns_max
        && args.lease == default.lease_ns
        && args.transit == default.transit_ns_max;
    if !has_no_queue {
        bail!(
            "a NetClone switch holds nothing and keeps no slots: leave --queue, --hold, --lease and --transit out, or take --transport r2p2"
        );
    }
    if !args.discover.discover.is_empty() || args.servers.zone.is_some() {
        bail!("--discover and --zone are R2P2's; leave them out, or take --transport r2p2");
    }
    let knows_answers_alone = args.probe_interval == default.probe_interval_ns
        && args.slow_factor == default.outliers.factor
        && args.filter == FilterPlace::Client
        && args.upstream.is_empty();
    if !knows_answers_alone {
        bail!(
            "a NetClone switch learns from replies alone, and filters them all: leave --probe-interval, --slow-factor, --filter and --upstream out, or take --transport r2p2"
        );
    }
    Ok(())
}

pub(super) fn config(args: &Args, listen: Option<SocketAddr>) -> Result<SwitchConfig> {
    let named = args.servers.resolve(listen)?;
    if named.iter().any(|server| server.speaks == Speaks::V1) {
        bail!("--server-v1 is R2P2's; take --server");
    }
    if named.iter().any(|server| server.rank(None) != Rank::default()) {
        bail!("weights are R2P2's; leave them out, or take --transport r2p2");
    }
    let fallback = match args.policy.map(|policy| policy.to_string()).as_deref() {
        None | Some("netclone") => Fallback::First,
        Some("netclone+racksched") => Fallback::Shorter,
        Some(other) => {
            return Err(anyhow!(
                "a NetClone switch has --policy netclone or netclone+racksched, not {other}"
            ));
        }
    };
    let silent_ns = args.silent_after.unwrap_or(SwitchConfig::default().silent_ns);
    Ok(SwitchConfig {
        servers: named.iter().map(|server| server.addr).collect(),
        fallback,
        silent_ns,
        seed: entropy::seed().context("cannot draw a seed")?,
        ..SwitchConfig::default()
    })
}

impl Loop {
    fn serve(&mut self) -> Result<()> {
        let mut log = DriverLog::default();
        loop {
            let turn = self.driver.turn_with(|_, _, _| {})?;
            while let Some((mut snapshot, reply)) = self.orders.poll() {
                self.fill(turn.now, &mut snapshot);
                snapshot.is_draining = self.life.is_draining();
                // Who has given up waiting gets none.
                let _ = reply.try_send(snapshot);
            }
            if self.life.is_over(turn.now, || !self.driver.node(SWITCH).is_idle()) {
                return Ok(());
            }
            let look_at = log.look(&self.driver, turn, |_, _| []);
            let look_at = look_at.into_iter().chain(self.life.look_at()).min();
            self.driver.wait(None, look_at)?;
        }
    }

    fn fill(&self, now: Time, snapshot: &mut Snapshot) {
        let switch = self.driver.node(SWITCH);
        snapshot.metrics = switch.metrics();
        snapshot.port = Some(PortSnapshot::of(self.driver.port(SWITCH)));
        snapshot.servers.clear();
        snapshot.servers.extend(switch.servers());
        snapshot.uptime_ns = now.saturating_sub(self.started_at);
    }
}

impl Snapshot {
    fn new() -> Self {
        Self {
            metrics: SwitchMetrics::default(),
            port: None,
            // So that the loop need not make room.
            servers: Vec::with_capacity(tailcut_wire::netclone::SERVERS_MAX as usize),
            uptime_ns: 0,
            is_draining: false,
        }
    }

    fn counters(&self) -> Counters {
        let mut counters = counters::of_switch(&self.metrics);
        counters.extend(self.port.iter().flat_map(PortSnapshot::counters));
        counters
    }

    /// What each server got.
    fn shares(&self) -> String {
        let row = |server: &SwitchServer| {
            vec![
                format!("  {}", server.addr),
                server.placed.to_string(),
                server.answered.to_string(),
            ]
        };
        let rows: Vec<_> = self.servers.iter().map(row).collect();
        format!("requests to each server, and its answers:\n{}", output::table(&rows, 1))
    }

    fn reading(&self) -> Reading {
        let in_service = self.servers.iter().filter(|server| !server.is_silent).count();
        let unready = match (self.is_draining, in_service) {
            (true, _) => Some("draining"),
            (false, 0) => Some("no server in service"),
            _ => None,
        };
        let mut page = Page::new("tailcut_route");
        page.gauge("uptime_seconds", "Time since the start.").value(seconds(self.uptime_ns));
        page.gauge("draining", "1 while it takes nothing new.").value(u8::from(self.is_draining));
        page.gauge("servers_in_service", "Servers that get requests.").value(in_service);
        let mut loads = page.gauge("server_load_requests", "Waiting there, as it reported last.");
        for server in &self.servers {
            loads.sample(&[("server", &server.addr.to_string())], f64::from(server.load));
        }
        page.counters(&self.counters());
        Reading { unready, metrics: page.end() }
    }
}

/// The driver's only node.
const SWITCH: usize = 0;
