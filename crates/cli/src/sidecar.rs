//! Common parts of a bridge and a gateway besides their work: flags, the counters that others ask
//! for, and how they are shown.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;

use anyhow::Result;
use tailcut_net::clock::Clock;
use tailcut_net::driver::Waker;
use tailcut_proto::histogram::Histogram;
use tailcut_proto::node::Time;

use crate::admin::text::{Page, seconds};
use crate::admin::{Admin, AdminFlags, Reading};
use crate::control::protocol::{Reply, Request, SERVICE_SCHEMA, ServiceStatus};
use crate::control::socket::ControlSocket;
use crate::counters::{self, Counters};
use crate::keys::Secured;
use crate::life::{Life, LifeFlags};
use crate::network::Polling;
use crate::orders::{self, Orderer, Orders};

/// The flags of both.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SidecarFlags {
    /// Open a control socket here, for `tailcut control`
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    #[command(flatten)]
    life: LifeFlags,
    #[command(flatten)]
    pub(crate) admin: AdminFlags,
    #[command(flatten)]
    pub(crate) polling: Polling,
}

/// Description of a sidecar, for who looks at it.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// `bridge` or `gateway`.
    pub(crate) command: &'static str,
    /// Prefix of the names of metrics.
    pub(crate) prefix: &'static str,
    /// Configuration at its start.
    pub(crate) config: Vec<(&'static str, String)>,
}

/// A name, what it is, and the value of each group.
pub(crate) type Labelled = (&'static str, &'static str, Vec<(String, u64)>);

/// A sidecar at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Reason why it takes no work; `None` if it does.
    pub(crate) unready: Option<&'static str>,
    /// Current values: names, what they are, values.
    pub(crate) gauges: Vec<(&'static str, &'static str, u64)>,
    /// Current values of each group of servers.
    pub(crate) groups: Vec<Labelled>,
    pub(crate) counters: Counters,
    /// Times: names, what they are, and the times.
    pub(crate) times: Vec<(&'static str, &'static str, Histogram)>,
    /// Since its start; filled in by who asks.
    pub(crate) uptime_ns: u64,
}

/// State that the loop heeds besides its work.
#[derive(Debug)]
pub(crate) struct Sidecar {
    pub(crate) life: Life,
    orders: Orders<SyncSender<Snapshot>>,
    started_at: Time,
    /// Its file goes with it.
    _control: Option<ControlSocket>,
}

impl Sidecar {
    /// Listens to signals, and opens what others ask by, for the loop that `waker` wakes.
    pub(crate) fn open(
        flags: &SidecarFlags,
        setup: &Setup,
        (waker, secured): (Waker, Secured),
    ) -> Result<(Self, Asker)> {
        let life = Life::of_loops(flags.life, vec![waker.clone()]).remove(0);
        let (orderer, orders) = orders::channel(waker);
        let asker = Asker { orderer, setup: setup.clone() };
        let theirs = asker.clone();
        let answer = move |request| theirs.answer(request);
        let path = flags.control.as_deref();
        let control = path.map(|path| ControlSocket::open(path, answer)).transpose()?;
        life.heed_signals(life.wake(), move || secured.reload())?;
        Ok((Self { life, orders, started_at: Clock.now(), _control: control }, asker))
    }

    /// Answers who asks how it is; to call after each turn.
    #[inline]
    pub(crate) fn follow(&self, now: Time, snapshot: impl Fn() -> Snapshot) {
        while let Some(reply) = self.orders.poll() {
            let mut snapshot = snapshot();
            snapshot.uptime_ns = now.saturating_sub(self.started_at);
            if self.life.is_draining() {
                snapshot.unready = Some("draining");
            }
            // Who has given up waiting gets none.
            let _ = reply.try_send(snapshot);
        }
    }
}

/// Asks the loop how it is, from other threads.
#[derive(Clone)]
pub(crate) struct Asker {
    orderer: Orderer<SyncSender<Snapshot>>,
    setup: Setup,
}

impl Asker {
    /// Answers at the admin port.
    pub(crate) fn start_admin(self, admin: Admin) -> Result<()> {
        admin.start(move || {
            let snapshot = self.orderer.ask(|reply| reply)?;
            Ok(Reading { unready: snapshot.unready, metrics: snapshot.page(self.setup.prefix) })
        })
    }

    fn answer(&self, request: Request) -> Result<Reply> {
        let Request::Status = request else {
            let text = format!("a {} has a status and no servers to change", self.setup.command);
            return Ok(Reply::Error(text));
        };
        let snapshot = self.orderer.ask(|reply| reply)?;
        let config = self.setup.config.iter();
        let gauges = snapshot.gauges.iter().map(|&(name, _, value)| (name.to_owned(), value));
        Ok(Reply::Service(Box::new(ServiceStatus {
            schema: SERVICE_SCHEMA.to_owned(),
            command: self.setup.command.to_owned(),
            config: config.map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            uptime_ns: snapshot.uptime_ns,
            unready: snapshot.unready.map(str::to_owned),
            gauges: gauges.collect::<BTreeMap<_, _>>(),
            counters: snapshot.counters.into_iter().collect(),
        })))
    }
}

impl Snapshot {
    /// The counters that are not 0, for the end.
    pub(crate) fn report(&self, title: &str) -> String {
        format!("{title}:\n{}", counters::lines(&self.counters))
    }

    fn page(&self, prefix: &'static str) -> String {
        let mut page = Page::new(prefix);
        page.gauge("uptime_seconds", "Time since the start.").value(seconds(self.uptime_ns));
        let is_ready = u8::from(self.unready.is_none());
        page.gauge("ready", "1 while it takes work.").value(is_ready);
        for &(name, help, value) in &self.gauges {
            page.gauge(name, help).value(value);
        }
        for (name, help, values) in &self.groups {
            let mut family = page.gauge(name, help);
            for (group, value) in values {
                family.sample(&[("group", group)], value);
            }
        }
        for (name, help, times) in &self.times {
            page.histogram(name, help, times);
        }
        page.counters(&self.counters);
        page.end()
    }
}
