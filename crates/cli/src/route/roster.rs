//! Servers of a router, of all that name some, and changes of a running router as a whole.
//!
//! | event | then |
//! |---|---|
//! | SIGHUP, or `reload` at the control socket | flags, files and names are read again, checked, and given to the loops of all threads |
//! | a key has changed that needs a restart, or something is wrong | nothing changes, and the reason is told |
//! | a loop does not answer in time | nothing changes, and all loops are given again what was in force, until they have it |
//! | all is well | limits change at once, new servers are added, those that are not named any more drained |
//! | a source of `--discover` tells of its servers | as [`super::discover`] says; the rest stays as it is |
//! | a reload names another source in the place of one | the servers of the old one stay until every source has named some, or as long as an empty answer is not believed |
//!
//! Invariant: one change at a time, and what is refused is refused before a loop does it. A server
//! that several name is as the first of them says: flags before sources, sources in their order.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tailcut_net::clock::Clock;
use tailcut_proto::router::{CookieConfig, RouterError};

use super::config::{CommandLine, Configured, can_reload};
use super::data_plane::DataPlane;
use super::discover::News;
use super::discover::feeds::Feeds;
use super::facts::Facts;
use super::servers::ServerSpec;
use super::service::{Orderers, Plan};
use crate::life::leave_real_time;

/// Handle that changes a running router; clones change the same one.
#[derive(Clone)]
pub(super) struct Roster(Arc<Shared>);

struct Shared {
    orderers: Orderers,
    listen: SocketAddr,
    /// Data plane, which bounds how many servers there may be.
    by: DataPlane,
    line: CommandLine,
    /// Locked for as long as a change takes.
    state: Mutex<State>,
    /// Locked for moments.
    facts: Mutex<Facts>,
}

/// Configuration and servers in force.
struct State {
    configured: Configured,
    /// The servers that flags and files name.
    named: Vec<ServerSpec>,
    feeds: Feeds,
    /// The loops have not taken over what was heard last.
    is_pending: bool,
}

/// A reload that was carried out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reloaded {
    /// Servers that have come.
    pub(super) added: usize,
    /// Servers that are drained, to go.
    pub(super) gone: usize,
    /// Flags that have other values than before.
    pub(super) changed: Vec<String>,
}

impl Roster {
    /// The roster of a router that listens at `listen`; begins to watch its sources.
    pub(super) fn start(
        orderers: Orderers,
        (listen, by): (SocketAddr, DataPlane),
        line: CommandLine,
        named: Vec<ServerSpec>,
    ) -> Result<Self> {
        let configured = line.read()?;
        let (news, heard) = mpsc::channel();
        let mut state =
            State { configured, named, feeds: Feeds::new(listen, news.clone()), is_pending: false };
        let sources = state.configured.args.discover.discover.clone();
        state.feeds.watch(&sources)?;
        let (state, facts) = (Mutex::new(state), Mutex::default());
        let roster = Self(Arc::new(Shared { orderers, listen, by, line, state, facts }));
        roster.0.note(&lock(&roster.0.state));
        let shared = roster.0.clone();
        thread::Builder::new()
            .name("roster".to_owned())
            .spawn(move || shared.listen_to(&heard))
            .context("cannot start the thread for discovery")?;
        Ok(roster)
    }

    pub(super) fn orderers(&self) -> &Orderers {
        &self.0.orderers
    }

    /// Facts at this moment.
    pub(super) fn facts(&self) -> Facts {
        lock(&self.0.facts).clone()
    }

    /// Reads everything again.
    ///
    /// # Errors
    ///
    /// What is wrong; nothing has changed then.
    pub(super) fn reload(&self) -> Result<Reloaded> {
        let outcome = self.0.reload();
        let mut facts = lock(&self.0.facts);
        match &outcome {
            Ok(Reloaded { added, gone, changed }) => {
                facts.reloads += 1;
                facts.refusal = None;
                tracing::info!(added, gone, changed = changed.join(", "), "reloaded");
            }
            Err(error) => {
                facts.reloads_refused += 1;
                facts.refusal = Some(format!("{error:#}"));
                // Also where nothing is logged: somebody has just asked for it.
                eprintln!("tailcut: cannot reload, everything stays as it is: {error:#}");
            }
        }
        outcome
    }
}

impl Shared {
    fn reload(&self) -> Result<Reloaded> {
        let mut state = lock(&self.state);
        let next = self.line.read()?;
        let changed = state.configured.settings.changed(&next.settings);
        let fixed: Vec<&str> = changed.iter().copied().filter(|name| !can_reload(name)).collect();
        if !fixed.is_empty() {
            bail!("a change of {} needs a restart", fixed.join(", "));
        }
        let changed = changed.into_iter().map(str::to_owned).collect();
        next.args.check()?;
        let named = next.args.servers.resolve(Some(self.listen))?;
        let sources = next.args.discover.discover.clone();
        if named.is_empty() && sources.is_empty() {
            bail!("no server is named");
        }
        let servers = merge(&named, state.feeds.servers(), self.listen);
        let plan = plan((&next, self.by), servers)?;
        // What else can fail does before a loop is ordered.
        let watched = state.feeds.prepare(&sources)?;
        let (added, gone) = match self.orderers.reload(&plan) {
            Ok(changed) => changed,
            Err(error) => {
                // Some loops may have done it: what stays in force is ordered again.
                state.is_pending = true;
                state.feeds.wake();
                return Err(error);
            }
        };
        state.feeds.adopt(&sources, watched);
        (state.configured, state.named) = (next, named);
        self.note(&state);
        Ok(Reloaded { added, gone, changed })
    }

    /// Does what sources tell, until the process ends.
    fn listen_to(&self, heard: &Receiver<News>) {
        leave_real_time();
        let mut due_in: Option<Duration> = None;
        loop {
            let first = match due_in {
                None => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(time) => heard.recv_timeout(time),
            };
            let first = match first {
                Ok(news) => Some(news),
                Err(RecvTimeoutError::Timeout) => None,
                // The feeds hold the other end themselves.
                Err(RecvTimeoutError::Disconnected) => return,
            };
            due_in = self.hear(first.into_iter().chain(heard.try_iter()));
        }
    }

    /// Takes over what was heard; returns when it is to be looked at again though nothing is heard.
    fn hear(&self, news: impl Iterator<Item = News>) -> Option<Duration> {
        let mut state = lock(&self.state);
        let now = Clock.now();
        let limit_ns = state.configured.args.discover.discover_empty_after;
        for (number, heard) in news {
            state.is_pending |= state.feeds.take(number, heard, now);
        }
        state.is_pending |= state.feeds.believe(now, limit_ns);
        let mut due_in = state.feeds.due_in(now, limit_ns);
        if state.is_pending {
            match self.apply(&state) {
                Ok((0, 0)) => state.is_pending = false,
                Ok((added, gone)) => {
                    state.is_pending = false;
                    tracing::info!(added, gone, "servers discovered");
                }
                Err(error) => {
                    let why = format!("{error:#}");
                    tracing::warn!(why, "discovered servers cannot be taken over, for now");
                    due_in = Some(
                        due_in.map_or(APPLY_AGAIN_AFTER, |due_in| due_in.min(APPLY_AGAIN_AFTER)),
                    );
                }
            }
        }
        self.note(&state);
        due_in
    }

    fn apply(&self, state: &State) -> Result<(usize, usize)> {
        let servers = merge(&state.named, state.feeds.servers(), self.listen);
        self.orderers.reload(&plan((&state.configured, self.by), servers)?)
    }

    fn note(&self, state: &State) {
        lock(&self.facts).sources = state.feeds.facts();
    }
}

/// Plan that the loops are ordered; more servers than they take are refused here already.
fn plan((configured, by): (&Configured, DataPlane), servers: Vec<ServerSpec>) -> Result<Plan> {
    let limits =
        super::router_config(&configured.args, (&[], by), (None, CookieConfig::default()))?;
    if servers.len() > limits.servers_max {
        return Err(RouterError::TooManyServers { limit: limits.servers_max }.into());
    }
    Ok(Plan { servers, zone: configured.args.servers.zone.clone(), limits })
}

/// All servers once, of the family that a router reaches.
fn merge<'a>(
    named: &'a [ServerSpec],
    found: impl Iterator<Item = &'a ServerSpec>,
    listen: SocketAddr,
) -> Vec<ServerSpec> {
    let mut seen = BTreeSet::new();
    let reached =
        named.iter().chain(found).filter(|server| server.addr.is_ipv4() == listen.is_ipv4());
    reached.filter(|server| seen.insert(server.addr)).cloned().collect()
}

/// A thread that has panicked leaves nothing half done behind: what is guarded is replaced as a
/// whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Delay until the loops are ordered again what they were too busy for.
const APPLY_AGAIN_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};

    use anyhow::ensure;
    use clap::CommandFactory as _;
    use tailcut_net::driver::{Driver, Wait};
    use tailcut_proto::endpoint::Endpoint;

    use crate::orders;
    use crate::route::service::Order;

    /// Order to a loop: the ports of its servers, and how many requests it holds.
    type Ordered = (Vec<u16>, usize);

    /// A loop that does what it is ordered, and tells of it.
    struct Loop {
        is_refusing: Arc<AtomicBool>,
        ordered: Receiver<Ordered>,
    }

    impl Loop {
        /// The loop, and who orders from it.
        fn start() -> (Self, orders::Orderer<Order>) {
            // It never turns, so that a spin would have no end.
            let mut driver = Driver::<Endpoint>::new(Wait::Block { spin_ns: 0 }).expect("a waker");
            let (orderer, orders) = orders::channel(driver.waker());
            let is_refusing = Arc::new(AtomicBool::new(false));
            let (tell, ordered) = mpsc::channel();
            let refuses = is_refusing.clone();
            // It lives as long as the process of the test, as the loops of a router do.
            thread::spawn(move || {
                loop {
                    while let Some(order) = orders.poll() {
                        let Order::Reload(plan, reply) = order else { panic!("no reload") };
                        let is_done = !refuses.load(Ordering::SeqCst);
                        if is_done {
                            let ports = plan.servers.iter().map(|server| server.addr.port());
                            _ = tell.send((ports.collect(), plan.limits.queue_len_max));
                        }
                        let done = || {
                            ensure!(is_done, "it does not answer");
                            Ok((1, 1))
                        };
                        _ = reply.try_send(done());
                    }
                    driver.wait(None, None).expect("a sleep");
                }
            });
            (Self { is_refusing, ordered }, orderer)
        }

        fn ordered(&self) -> Ordered {
            self.ordered.recv_timeout(Duration::from_secs(60)).expect("an order")
        }
    }

    /// A configuration file, as it stands in a moment.
    fn write(path: &PathBuf, port: u16, queue: usize) {
        let text =
            format!("listen = '127.0.0.1:0'\nserver = ['127.0.0.1:{port}']\nqueue = {queue}\n");
        fs::write(path, text).expect("a file");
    }

    #[test]
    fn a_reload_that_one_loop_does_not_do_changes_nothing() {
        let path = std::env::temp_dir().join(format!("tailcut-roster-{}", std::process::id()));
        write(&path, 1, 10);
        let words = ["tailcut", "route", "--config", path.to_str().expect("a text")];
        let line = CommandLine::new(crate::Cli::command, words.map(Into::into).to_vec());
        let ((first, to_first), (second, to_second)) = (Loop::start(), Loop::start());
        let named = vec![ServerSpec::of(([127, 0, 0, 1], 1).into())];
        let listen = ([127, 0, 0, 1], 9).into();
        let orderers = Orderers::new(vec![to_first, to_second]);
        let roster =
            Roster::start(orderers, (listen, DataPlane::Sockets), line, named).expect("a roster");
        write(&path, 2, 20);
        second.is_refusing.store(true, Ordering::SeqCst);
        let error = roster.reload().expect_err("the second loop refuses");
        assert_eq!(format!("{error:#}"), "it does not answer");
        let facts = roster.facts();
        assert_eq!((facts.reloads, facts.reloads_refused), (0, 1));
        assert_eq!(facts.refusal.as_deref(), Some("it does not answer"));
        // The first has done it, and is ordered again what was in force, as is the second once it
        // does.
        assert_eq!(first.ordered(), (vec![2], 20));
        assert_eq!(first.ordered(), (vec![1], 10));
        second.is_refusing.store(false, Ordering::SeqCst);
        assert_eq!(second.ordered(), (vec![1], 10));
        // What differs from what is in force is what differed before.
        while lock(&roster.0.state).is_pending {
            thread::yield_now();
        }
        let changed = roster.reload().expect("both loops do it").changed;
        assert_eq!(changed, ["queue", "server"]);
        assert_eq!(second.ordered(), (vec![2], 20));
        while first.ordered() != (vec![2], 20) {}
        assert_eq!((roster.facts().reloads, roster.facts().refusal), (1, None));
        fs::remove_file(&path).expect("the file");
    }
}
