//! The log on standard error: `--log` and `TAILCUT_LOG`, and what a router has to tell.
//!
//! Without either, commands that serve until they are told to end log warnings, and the others
//! nothing.

use std::env::{self, VarError};
use std::io::stderr;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use tailcut_net::datapath::{AnyDatapath, Datapath};
use tailcut_net::driver::{Driver, Turn};
use tailcut_net::log::{CounterLog, DriverLog, Trouble, of_port};
use tailcut_proto::node::Time;
use tailcut_proto::router::{Router, RouterMetrics, ServerState};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, registry};

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A line for people
    Text,
    /// An object of JSON a line
    Json,
}

/// Begins to log where it was asked for, by either means, or at the level `unasked` where a command
/// has one.
pub(crate) fn init(format: Option<Format>, unasked: Option<&'static str>) -> Result<()> {
    let filter = match env::var(FILTER) {
        Ok(filter) => Some(filter),
        Err(VarError::NotPresent) => None,
        Err(VarError::NotUnicode(_)) => bail!("{FILTER} is not UTF-8"),
    };
    let unfiltered = if format.is_some() { Some("info") } else { unasked };
    let Some(filter) = filter.as_deref().or(unfiltered) else {
        return Ok(());
    };
    let filter: Targets = filter.parse().with_context(|| {
        format!("{FILTER} is a level, or TARGET=LEVEL and more after commas, as in info,tailcut_net=warn")
    })?;
    let lines = fmt::layer().with_ansi(false).with_writer(stderr);
    let lines = match format {
        Some(Format::Json) => lines.json().flatten_event(true).boxed(),
        _ => lines.boxed(),
    };
    registry().with(lines.with_filter(filter)).init();
    Ok(())
}

/// The log of a router: its counters, and its servers as they change their state.
#[derive(Debug, Default)]
pub(crate) struct RouterLog {
    counters: DriverLog,
    /// Log of the socket that only hears, where there is one.
    front: Option<CounterLog>,
    /// Another thread says what becomes of the servers.
    is_silent_on_servers: bool,
    /// As they were last seen.
    servers: Vec<(SocketAddr, ServerState)>,
    /// One of them was in service, or about to be, when they were last seen.
    has_service: bool,
    /// Time of the next look at the servers.
    look_at: Time,
}

impl RouterLog {
    /// The log of the router of a thread; the first tells of the servers.
    pub(crate) fn new(index: usize) -> Self {
        Self { is_silent_on_servers: index > 0, ..Self::default() }
    }

    /// To call after each turn; returns when it wants to be called again.
    pub(crate) fn look(
        &mut self,
        driver: &Driver<Router>,
        front: Option<&AnyDatapath>,
        turn: Turn,
    ) -> Option<Time> {
        if !tracing::enabled!(tracing::Level::WARN) {
            return None;
        }
        if turn.now >= self.look_at {
            self.look_at = turn.now.saturating_add(LOOK_INTERVAL_NS);
            if !self.is_silent_on_servers {
                self.look_at_servers(driver.node(0));
            }
            if let Some(front) = front {
                let log = self.front.get_or_insert_with(|| CounterLog::new(front.local_address()));
                // What must wait is found by the next look.
                log.look(turn.now, of_port(front));
            }
        }
        let counters_at = self.counters.look(driver, turn, |_, node| troubles(&node.metrics()));
        Some(counters_at.map_or(self.look_at, |at| at.min(self.look_at)))
    }

    fn look_at_servers(&mut self, router: &Router) {
        let found = router.status().servers;
        for server in &found {
            let before = self.servers.iter().find(|before| before.0 == server.addr);
            if before.is_none_or(|&(_, state)| state != server.state) {
                let (addr, outstanding) = (server.addr, server.outstanding);
                match server.state {
                    ServerState::Starting => {
                        tracing::info!(server = %addr, "server added, which has not answered yet");
                    }
                    ServerState::InService => {
                        tracing::info!(server = %addr, outstanding, "server in service");
                    }
                    ServerState::Draining => {
                        tracing::info!(server = %addr, outstanding, "server drained");
                    }
                    ServerState::Silent => {
                        tracing::warn!(server = %addr, outstanding, "server silent");
                    }
                    ServerState::Ejected => {
                        tracing::warn!(server = %addr, outstanding, "server ejected: slower than the others");
                    }
                    ServerState::Stopping => {
                        tracing::info!(server = %addr, outstanding, "server stopping");
                    }
                }
            }
        }
        let has_service = found
            .iter()
            .any(|server| matches!(server.state, ServerState::InService | ServerState::Starting));
        if self.has_service && !has_service {
            tracing::error!(servers = found.len(), "no server in service: requests are refused");
        }
        self.has_service = has_service;
        for (gone, _) in &self.servers {
            if !found.iter().any(|server| server.addr == *gone) {
                tracing::info!(server = %gone, "server removed");
            }
        }
        self.servers.clear();
        self.servers.extend(found.iter().map(|server| (server.addr, server.state)));
    }
}

/// Notes an event that an agent's owner may want to know: who came and left, and why. It is on
/// standard error also where nothing is logged.
pub(crate) fn note(text: &str) {
    if tracing::enabled!(tracing::Level::INFO) {
        tracing::info!("{text}");
    } else {
        eprintln!("tailcut: {text}");
    }
}

/// Decisions of a router, for a trace.
pub(crate) fn decisions(metrics: &RouterMetrics) -> impl Iterator<Item = Trouble> + use<> {
    [
        ("held", metrics.held),
        ("duplicates_forwarded", metrics.duplicates_forwarded),
        ("duplicates_held", metrics.duplicates_held),
        ("duplicates_moved", metrics.duplicates_moved),
        ("cancelled_held", metrics.cancelled_held),
        ("leases_expired", metrics.leases_expired),
        ("servers_silenced", metrics.servers_silenced),
        ("servers_returned", metrics.servers_returned),
        ("servers_ejected", metrics.servers_ejected),
        ("servers_readmitted", metrics.servers_readmitted),
    ]
    .into_iter()
    .map(|(counter, total)| Trouble { counter, text: "", total })
    .chain(troubles(metrics))
}

/// Counters of a router that tell of trouble.
fn troubles(metrics: &RouterMetrics) -> impl Iterator<Item = Trouble> + use<> {
    let refused = &metrics.refused;
    [
        ("malformed", "datagrams that are no packets", metrics.malformed.total()),
        ("refused_overload", "requests refused: the queue or the table is full", refused.overload),
        ("refused_too_large", "requests refused: longer than the limit", refused.too_large),
        ("refused_expired", "requests refused: held too long", refused.expired),
        ("refused_no_server", "requests refused: no server in service", refused.no_server),
        ("refused_uncertain", "requests refused: they may have run before", refused.uncertain),
        ("refused_stopping", "requests refused: the router is about to end", refused.stopping),
        ("refused_v1_annotate", "version 1 requests cannot be annotated", refused.v1_annotate),
        ("refused_v1_cookies", "version 1 requests show no cookies", refused.v1_cookies),
        ("feedback_stranger", "feedback from an address of no server", metrics.feedback_stranger),
        (
            "feedback_mismatched",
            "version 1 servers report with the extension",
            metrics.feedback_mismatched,
        ),
        ("probes_stranger", "probes of a router that no --upstream names", metrics.probes_stranger),
        ("server_restarts", "servers restarted", metrics.server_restarts),
        ("untracked", "requests forwarded untracked: the table is full", metrics.untracked),
        ("outbox_full", "datagrams dropped: the outbox is full", metrics.outbox_full),
        ("oversize", "datagrams dropped: longer than a buffer", metrics.oversize),
    ]
    .into_iter()
    .map(|(counter, text, total)| Trouble { counter, text, total })
}

/// The variable that filters the log.
const FILTER: &str = "TAILCUT_LOG";

/// Between two looks at the servers.
const LOOK_INTERVAL_NS: u64 = 100_000_000;
