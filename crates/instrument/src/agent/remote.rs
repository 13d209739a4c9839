//! The coordinator's end of an agent elsewhere.
//!
//! One thread reads what the agent says; another gives a sign of life every quarter of a second,
//! which measures the agent's clock too, and ends the session when none comes back. Whatever ends
//! it, the reason is told once, by name.
//!
//! Invariant: what is handed out belongs to the job that was prepared last, and slices of each
//! thread come in order, without gaps.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tailcut_net::clock::Clock;

use super::clock::{EXCHANGES_MAX, Offsets};
use super::frames::{Opener, Sealer, lock};
use super::handshake::{Before, Session, begin};
use super::inbox::Inbox;
use super::key::Key;
use super::message::{Order, Report, printable};
use super::serve::SILENCE_NS_MAX;
use super::spec::{AgentSpec, Place};
use super::ssh::{self, Payload, Shell};
use super::stream::{Hurried, Stream};
use crate::job::{Agent, AgentEvent, Job};

/// Connects to the agent, or starts it over ssh.
///
/// # Errors
///
/// When that does not succeed, with what to do where that is known. An agent in this process is not
/// this function's.
pub(crate) fn connect(spec: &AgentSpec, key: Option<&Key>) -> Result<Box<dyn Agent>> {
    connect_with(spec, key, &Payload::of_this_binary()?)
}

/// As [`connect`], with another binary to copy.
pub(super) fn connect_with(
    spec: &AgentSpec,
    key: Option<&Key>,
    payload: &Payload,
) -> Result<Box<dyn Agent>> {
    let name = spec.to_string();
    let connected = match &spec.place {
        Place::Local => Err(anyhow!("it is in this process, not elsewhere")),
        Place::Tcp(address) => connect_tcp(&name, address, key),
        Place::Ssh(destination) => {
            let started = ssh::start(destination, payload);
            started.and_then(|(session, stream, shell)| {
                RemoteAgent::new(&name, session, stream, Some(shell))
            })
        }
    };
    Ok(Box::new(connected.with_context(|| format!("agent {name}"))?))
}

fn connect_tcp(name: &str, address: &str, key: Option<&Key>) -> Result<RemoteAgent> {
    let mut last = anyhow!("the name has no address");
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    for address in address.to_socket_addrs().context("cannot resolve the name")? {
        match TcpStream::connect_timeout(&address, CONNECT_MAX) {
            Ok(stream) => {
                let stream = Stream::tcp(stream).context("cannot set up the connection")?;
                let session = begin(&stream, PATIENCE_NS, (key, host), Before::Nothing)
                    .map_err(|refusal| anyhow!("it {refusal}"))?;
                return RemoteAgent::new(name, session, stream, None);
            }
            Err(error) => {
                last = anyhow!(
                    "no agent answers at {address}: {error}; start one there with `tailcut agent --listen`"
                )
            }
        }
    }
    Err(last)
}

/// An agent elsewhere.
pub(super) struct RemoteAgent {
    link: Arc<Link>,
    /// Dropping it ends the thread that gives signs of life.
    beats: Option<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
    /// The job's number, from 1.
    number: u64,
    uncertainty_ns: u64,
}

struct Link {
    name: String,
    stream: Stream,
    sealer: Mutex<Sealer<Stream>>,
    shell: Mutex<Option<Shell>>,
    inbox: Inbox,
    offsets: Mutex<Offsets>,
    progress: Mutex<Progress>,
    /// Time at which the agent was last heard, ns.
    heard_ns: AtomicU64,
    /// The session is over. Whoever finds it so first tells why: what others see is its end.
    ended: AtomicBool,
}

/// Progress of the job that was prepared last.
#[derive(Debug, Default)]
struct Progress {
    number: u64,
    /// The index of each thread's next slice.
    next: Vec<u32>,
}

impl RemoteAgent {
    fn new(name: &str, session: Session, stream: Stream, shell: Option<Shell>) -> Result<Self> {
        let Session { mut sealer, mut opener } = session;
        let mut offsets = Offsets::default();
        for _ in 0..EXCHANGES_MAX {
            exchange(&mut sealer, &mut opener, &mut offsets)?;
        }
        let link = Arc::new(Link {
            name: name.to_owned(),
            stream,
            sealer: Mutex::new(sealer),
            shell: Mutex::new(shell),
            inbox: Inbox::default(),
            offsets: Mutex::new(offsets),
            progress: Mutex::default(),
            heard_ns: AtomicU64::new(Clock.now()),
            ended: AtomicBool::new(false),
        });
        opener.relax().context("cannot read from it")?;
        let (beats, stop) = mpsc::channel();
        let mut agent =
            Self { link, beats: Some(beats), threads: Vec::new(), number: 0, uncertainty_ns: 0 };
        agent.spawn("agent reports", move |link| link.listen(opener))?;
        agent.spawn("agent beats", move |link| link.beat(&stop))?;
        Ok(agent)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce(&Link) + Send + 'static) -> Result<()> {
        let link = self.link.clone();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || work(&link));
        self.threads.push(thread.context("cannot start a thread for an agent")?);
        Ok(())
    }
}

impl Agent for RemoteAgent {
    fn name(&self) -> &str {
        &self.link.name
    }

    fn prepare(&mut self, job: &Job) -> Result<()> {
        self.number += 1;
        *self.link.progress() =
            Progress { number: self.number, next: vec![0; job.threads as usize] };
        self.link.inbox.clear();
        self.link.order(&Order::Prepare { number: self.number, job: Box::new(job.clone()) })
    }

    fn start(&mut self, in_ns: u64) -> Result<()> {
        let at_ns = Clock.now().saturating_add(in_ns);
        let offset = lock(&self.link.offsets).best().context("the agent's clock is not known")?;
        self.uncertainty_ns = offset.uncertainty_ns();
        self.link.order(&Order::Start { at_ns: offset.at_agent_ns(at_ns) })
    }

    fn start_uncertainty_ns(&self) -> u64 {
        self.uncertainty_ns
    }

    fn set_connections(&mut self, connections: u32) -> Result<()> {
        self.link.order(&Order::Connections(connections))
    }

    fn stop(&mut self) -> Result<()> {
        self.link.order(&Order::Stop)
    }

    fn poll(&mut self, wait_ns: u64) -> Option<AgentEvent> {
        self.link.inbox.pop(wait_ns)
    }
}

impl Drop for RemoteAgent {
    fn drop(&mut self) {
        self.beats = None;
        // Nobody is left to be told why, so ssh need not say anything about it either.
        drop(lock(&self.link.shell).take());
        self.link.end("nobody listens any more");
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Link {
    /// Sends an order. A failure to send ends the session, which [`Agent::poll`] tells of.
    fn order(&self, order: &Order) -> Result<()> {
        match self.send(order) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Err(error).context("the job is too large")
            }
            Err(error) => {
                self.end(&format!("takes nothing more: {error}"));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn send(&self, order: &Order) -> io::Result<()> {
        lock(&self.sealer).send(|body| order.put(body))
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }

    /// Takes reports off the stream until it ends.
    fn listen(&self, mut opener: Opener<Hurried>) {
        loop {
            let report = opener.receive().map_err(anyhow::Error::new).and_then(Report::read);
            self.heard_ns.store(Clock.now(), Ordering::Relaxed);
            if let Err(error) = report.and_then(|report| self.handle(report)) {
                return self.end(&format!("{error:#}"));
            }
        }
    }

    fn handle(&self, report: Report) -> Result<()> {
        let (number, told) = match report {
            Report::Pong { sent_ns, agent_ns } => {
                lock(&self.offsets).handle_exchange(sent_ns, agent_ns, Clock.now());
                return Ok(());
            }
            Report::Event { number, told } => (number, told),
        };
        if let (0, AgentEvent::Failed(why)) = (number, &told) {
            bail!("{why}");
        }
        if !self.progress().admits(number, &told)? {
            return Ok(());
        }
        self.inbox.push(match told {
            AgentEvent::Failed(why) => AgentEvent::Failed(format!("agent {}: {why}", self.name)),
            told => told,
        });
        Ok(())
    }

    fn beat(&self, stop: &Receiver<()>) {
        while stop.recv_timeout(Duration::from_nanos(BEAT_NS)) == Err(RecvTimeoutError::Timeout) {
            let silence_ns = Clock.now().saturating_sub(self.heard_ns.load(Ordering::Relaxed));
            // Who reads waits for a place, and hears nothing meanwhile.
            if silence_ns > SILENCE_NS_MAX && !self.inbox.is_full() {
                return self.end(&format!("said nothing for {} ms", silence_ns / 1_000_000));
            }
            if let Err(error) = self.send(&Order::Ping { sent_ns: Clock.now() }) {
                return self.end(&format!("takes nothing more: {error}"));
            }
        }
    }

    /// Ends the session and tells why, with what ssh says about it.
    fn end(&self, why: &str) {
        if self.ended.swap(true, Ordering::Relaxed) {
            return;
        }
        self.stream.close();
        let shell = lock(&self.shell).take();
        let words = shell.map(Shell::last_words).filter(|words| !words.is_empty());
        let ssh_says =
            words.map(|words| format!("; ssh says: {}", printable(&words))).unwrap_or_default();
        self.inbox.close(format!("agent {}: {why}{ssh_says}", self.name));
    }
}

impl Progress {
    /// True if what is told is about the job.
    fn admits(&mut self, number: u64, told: &AgentEvent) -> Result<bool> {
        if number != self.number {
            return Ok(false);
        }
        if let AgentEvent::Slice { thread, slice } = told {
            let next = self
                .next
                .get_mut(*thread as usize)
                .with_context(|| format!("tells of a thread {thread} that it has not"))?;
            ensure!(
                slice.index == *next,
                "tells of slice {} of thread {thread} where {next} is due",
                slice.index
            );
            *next += 1;
        }
        Ok(true)
    }
}

/// One sign of life and its answer.
fn exchange(
    sealer: &mut Sealer<Stream>,
    opener: &mut Opener<Hurried>,
    offsets: &mut Offsets,
) -> Result<()> {
    sealer
        .send(|body| Order::Ping { sent_ns: Clock.now() }.put(body))
        .context("it takes nothing")?;
    let body = opener.receive().map_err(|broken| anyhow!("it {broken}"))?;
    match Report::read(body)? {
        Report::Pong { sent_ns, agent_ns } => {
            offsets.handle_exchange(sent_ns, agent_ns, Clock.now())
        }
        Report::Event { told: AgentEvent::Failed(why), .. } => bail!("{why}"),
        Report::Event { .. } => bail!("it tells something before it was asked"),
    }
    Ok(())
}

const CONNECT_MAX: Duration = Duration::from_secs(5);
/// For the handshake and the first exchanges.
const PATIENCE_NS: u64 = 5_000_000_000;
const BEAT_NS: u64 = 250_000_000;
