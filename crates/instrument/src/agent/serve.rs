//! The agent's side of a session: orders become calls of the engine, and what the engine tells
//! becomes reports.
//!
//! One thread reads, and answers signs of life at once, whatever the engine does meanwhile; the
//! other drives the engine.
//!
//! | what happens | what becomes of the load |
//! |---|---|
//! | an order that is refused, or that the engine cannot follow | it ends; the coordinator is told why |
//! | the connection ends, by either side or in the middle | it ends |
//! | no sign of life for [`SILENCE_NS_MAX`] | it ends |
//! | the coordinator takes nothing for as long | it ends |
//!
//! Invariant: there is no load without a coordinator that was heard lately.

use std::io::{self, ErrorKind};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use tailcut_net::clock::Clock;
use tailcut_net::keys::LiveKeys;

use super::frames::{Opener, Sealer, lock};
use super::handshake::Session;
use super::limits::{Limits, check_connections};
use super::message::{Order, Report};
use super::stream::{Hurried, Stream};
use crate::engine;
use crate::job::{Agent, AgentEvent, Job};

/// An agent's own settings, for every session.
#[derive(Clone, Debug)]
pub struct Service {
    pub(super) limits: Limits,
    /// By which it seals the calls of a job that says so.
    pub(super) keys: Option<LiveKeys>,
    /// Makes what it loads with.
    pub(super) engine: fn() -> Box<dyn Agent>,
    /// Takes what its owner may want to know: who came and left, and why.
    pub(super) note: fn(&str),
}

impl Service {
    /// An agent that loads by threads of this process, within `limits`; `note` takes a line for its
    /// owner.
    pub fn new(limits: Limits, note: fn(&str)) -> Self {
        Self { limits, keys: None, engine: engine::local, note }
    }

    /// This service with a client's keys for loads that are sealed.
    #[must_use]
    pub fn sealed_by(self, keys: LiveKeys) -> Self {
        Self { keys: Some(keys), ..self }
    }
}

/// Part of the process that ends when the coordinator falls silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// Nothing: reads and writes end when the stream is closed.
    Stream,
    /// Everything: this process serves one coordinator, over files that cannot be closed under a
    /// thread that reads them.
    Process,
}

/// Serves a coordinator until it is gone, which it says by an error, or by [`Ok`] when it left in
/// order.
pub(super) fn serve(session: Session, service: Service, watch: Watch) -> Result<()> {
    let Session { sealer, mut opener } = session;
    opener.relax().context("cannot read from the coordinator")?;
    let link = Arc::new(Link { sealer: Mutex::new(sealer), heard_ns: AtomicU64::new(Clock.now()) });
    let (sender, orders) = mpsc::sync_channel(ORDERS_MAX);
    let ears = link.clone();
    let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
        thread::Builder::new().name(name.to_owned()).spawn(work).context("cannot start a thread")
    };
    spawn("orders", Box::new(move || listen(opener, &ears, &sender)))?;
    if watch == Watch::Process {
        let heard = link.clone();
        spawn("watch", Box::new(move || end_in_silence(&heard)))?;
    }
    Worker { service, agent: None, number: 0, link }.work(&orders)
}

struct Link {
    sealer: Mutex<Sealer<Stream>>,
    /// Time at which the coordinator was last heard, ns.
    heard_ns: AtomicU64,
}

impl Link {
    fn tell(&self, report: &Report) -> io::Result<()> {
        lock(&self.sealer).send(|body| report.put(body))
    }

    fn silence_ns(&self) -> u64 {
        Clock.now().saturating_sub(self.heard_ns.load(Ordering::Relaxed))
    }
}

/// Takes orders off the stream until it ends, and hands on why it did.
fn listen(mut opener: Opener<Hurried>, link: &Link, orders: &SyncSender<Result<Order>>) {
    loop {
        let order = opener.receive().map_err(|broken| anyhow!("it {broken}")).and_then(Order::read);
        link.heard_ns.store(Clock.now(), Ordering::Relaxed);
        let is_last = order.is_err();
        let order = match order {
            Ok(Order::Ping { sent_ns }) => {
                match link.tell(&Report::Pong { sent_ns, agent_ns: Clock.now() }) {
                    Ok(()) => continue,
                    Err(error) => Err(error.into()),
                }
            }
            order => order,
        };
        if orders.send(order).is_err() || is_last {
            return;
        }
    }
}

fn end_in_silence(link: &Link) {
    while link.silence_ns() < SILENCE_NS_MAX + WATCH_NS {
        thread::park_timeout(Duration::from_nanos(WATCH_NS));
    }
    eprintln!("tailcut: the coordinator fell silent");
    process::exit(1);
}

struct Worker {
    service: Service,
    agent: Option<Box<dyn Agent>>,
    /// The job's number.
    number: u64,
    link: Arc<Link>,
}

impl Worker {
    fn work(&mut self, orders: &Receiver<Result<Order>>) -> Result<()> {
        loop {
            let wait_ns = if self.agent.is_some() { 0 } else { WATCH_NS };
            match orders.recv_timeout(Duration::from_nanos(wait_ns)) {
                Ok(order) => self.follow(order?)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("the thread that reads has ended"),
            }
            if self.link.silence_ns() > SILENCE_NS_MAX {
                bail!("it fell silent");
            }
            if let Some(told) = self.agent.as_mut().and_then(|agent| agent.poll(POLL_NS)) {
                self.tell(told)?;
            }
        }
    }

    fn follow(&mut self, order: Order) -> Result<()> {
        let followed = match order {
            Order::Prepare { number, job } => {
                self.number = number;
                self.prepare(*job)
            }
            Order::Start { at_ns } => self.start(at_ns),
            Order::Connections(connections) => check_connections(connections)
                .and_then(|()| self.with_agent(|agent| agent.set_connections(connections))),
            Order::Stop => self.with_agent(|agent| agent.stop()),
            Order::Ping { .. } => Ok(()),
        };
        match followed {
            Ok(()) => Ok(()),
            Err(error) => self.tell(AgentEvent::Failed(format!("{error:#}"))),
        }
    }

    fn prepare(&mut self, mut job: Job) -> Result<()> {
        // The old load ends before the new one begins.
        self.agent = None;
        job.granted = self.service.limits.check(&job).context("it refuses the job")?;
        if job.is_sealed {
            let keys = self.service.keys.clone();
            job.seal = Some(keys.context("it has no keys: start the agent with --seal FILE")?);
        }
        let agent = self.agent.insert((self.service.engine)());
        agent.prepare(&job)
    }

    /// All agents of a run share the moment of the start, so none begins later and says nothing.
    fn start(&mut self, at_ns: u64) -> Result<()> {
        let now_ns = Clock.now();
        let Some(in_ns) = at_ns.checked_sub(now_ns) else {
            bail!(
                "it was told to start {} us too late: leave more time before the start",
                (now_ns - at_ns) / 1_000
            );
        };
        self.with_agent(|agent| agent.start(in_ns))
    }

    /// An agent that has ended was told of already, and what is asked of it since crossed that on
    /// the way.
    fn with_agent(&mut self, work: impl FnOnce(&mut dyn Agent) -> Result<()>) -> Result<()> {
        match &mut self.agent {
            Some(agent) => work(agent.as_mut()),
            None => Ok(()),
        }
    }

    fn tell(&mut self, told: AgentEvent) -> Result<()> {
        if matches!(told, AgentEvent::Done | AgentEvent::Failed(_)) {
            self.agent = None;
        }
        let number = self.number;
        match self.link.tell(&Report::Event { number, told }) {
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                self.agent = None;
                let told = AgentEvent::Failed(format!("{error}: make slices shorter"));
                self.link.tell(&Report::Event { number, told }).context("it takes nothing more")
            }
            told => told.context("it takes nothing more"),
        }
    }
}

/// Eight signs of life that did not come.
pub(super) const SILENCE_NS_MAX: u64 = 2_000_000_000;

const WATCH_NS: u64 = 100_000_000;
/// Longest time that orders wait while the engine has nothing to tell.
const POLL_NS: u64 = 5_000_000;
/// A coordinator waits for answers to most of what it orders.
const ORDERS_MAX: usize = 16;
