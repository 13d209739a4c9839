//! A key agent: hands the keys of a group to those who are listed, and adds the next ones ahead of
//! time.
//!
//! | event | then |
//! |---|---|
//! | a connection | a thread that has waited for it, which has five seconds; a stranger's makes room for the next ([`door`](crate::door)) |
//! | it shows a certificate of the authority, or a pinned one, with its private key | an answer |
//! | its identity is listed | its role's keys, derived from the group's, and when to ask again |
//! | it is not | the reason, which is logged once a second at most, and counted |
//! | fewer than two keys begin later than now | one more, in the file first, as a whole |
//! | the group's file, the list, or a certificate has changed | read again; what is wrong is logged, and what was there stays |
//!
//! Invariant: nobody is answered before TLS has verified a certificate and its private key; who
//! cannot show one holds one of a few threads for some seconds, and nothing else.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection};
use tailcut_proto::node::Time;
use tailcut_proto::r2p2::Prefix;
use tailcut_proto::sealed::{Keys, Role};
use zeroize::Zeroizing;

use super::file::{self, Fingerprint, invalid};
use super::hurried::Hurried;
use super::identities::Identities;
use super::tls::{self, ANSWER, BYTES_MAX, Pem, REFUSED};
use crate::clock::Clock;
use crate::door::{Places, make_room, network_of};

/// Configuration of a key agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The file of the group's keys, which the agent alone changes.
    pub group: PathBuf,
    /// The list of those who may have keys, and which.
    pub clients: PathBuf,
    /// Certificate shown to those with X.509 certificates; without it pre-shared keys alone count.
    pub certificate: Option<Certificate>,
    /// Time for which each key is used. One hour is usual.
    pub every: Duration,
}

/// Files of an agent's certificate, and of those that it takes. All PEM.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Its own, and those between it and its authority.
    pub cert: PathBuf,
    /// Its private key, which nobody else may read.
    pub key: PathBuf,
    /// The authority that has signed the certificates of those who ask.
    pub client_ca: PathBuf,
    /// Those of them that are revoked: that authority's lists, and those of authorities between, if
    /// there are any.
    pub client_crl: Option<PathBuf>,
}

/// A key agent.
#[derive(Debug)]
pub struct KeyAgent {
    /// As configured.
    config: AgentConfig,
    /// Keys that it hands out, and those who may have them. Not locked while files are read or
    /// written.
    book: Mutex<Book>,
    /// Its files, as they were read last: who looks at them has it.
    seen: Mutex<Seen>,
    /// Connections, the oldest first.
    strangers: Mutex<Vec<Stranger>>,
    /// Counters so far.
    counts: Counts,
    /// Time from which the next line about a connection may be logged.
    tell_at: Mutex<Time>,
}

/// Counters of an agent.
#[derive(Debug, Default)]
pub struct Counts {
    /// Answers with keys.
    pub handed_out: AtomicU64,
    /// Identities that are not listed, or have no name that could be.
    pub refused: AtomicU64,
    /// Connections that ended without an identity: strangers, and what is no TLS.
    pub failed: AtomicU64,
    /// Keys that it has added.
    pub rotations: AtomicU64,
}

#[derive(Debug)]
struct Book {
    /// The group's keys, as its file has them.
    keys: Keys,
    /// Those who may have them.
    welcome: Arc<Welcome>,
}

#[derive(Debug)]
struct Seen {
    /// The group's file, as it was read or written last.
    keys: Option<Fingerprint>,
    /// The files of who may have them.
    welcome: Vec<Option<Fingerprint>>,
    /// The last problem that was logged; it is logged once.
    problem: Option<String>,
}

/// Those who may have keys, and the agent's end of TLS for them.
#[derive(Debug)]
struct Welcome {
    /// The list.
    identities: Identities,
    /// The agent's end of TLS.
    tls: Arc<ServerConfig>,
}

/// A port and the threads at it. One at least waits for connections.
#[derive(Debug)]
struct Entrance<'a> {
    /// The port.
    listener: &'a TcpListener,
    /// Threads that wait for a connection.
    waiting: AtomicUsize,
    /// Connections that have come.
    count: AtomicU64,
}

/// A connection.
#[derive(Debug)]
struct Stranger {
    /// Counted over all that came.
    number: u64,
    /// Network that it has come from.
    network: Prefix,
    /// The connection.
    stream: Hurried,
}

impl KeyAgent {
    /// An agent with what its files hold. A file beside the group's, which a rotation that was
    /// interrupted has left, is removed.
    ///
    /// # Errors
    ///
    /// That one of them cannot be read or is wrong.
    pub fn open(config: AgentConfig) -> io::Result<Arc<Self>> {
        if config.every < EVERY_MIN {
            return Err(invalid(format!("a key must be used for {EVERY_MIN:?} at least")));
        }
        let keys_seen = Fingerprint::of(&config.group);
        let keys = group(&config.group)?;
        match std::fs::remove_file(file::beside(&config.group)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // It names some of its files; how they are is seen before what counts is read, so that no
        // change is missed.
        let welcome_seen = config.fingerprints(&config.welcome()?);
        let welcome = Arc::new(config.welcome()?);
        config.tell_left_out(&welcome);
        let seen = Seen { keys: keys_seen, welcome: welcome_seen, problem: None };
        let agent = Arc::new(Self {
            config,
            book: Mutex::new(Book { keys, welcome }),
            seen: Mutex::new(seen),
            strangers: Mutex::default(),
            counts: Counts::default(),
            tell_at: Mutex::default(),
        });
        agent.rotate(&mut lock(&agent.seen))?;
        Ok(agent)
    }

    /// Counters so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Reads what has changed, and adds keys that are due; to be called again and again, as often
    /// as [`KeyAgent::interval`] says. What goes wrong is logged, and what was there stays.
    pub fn look(&self) {
        let mut seen = lock(&self.seen);
        // Each by itself: a list that is wrong stops no rotation.
        let looked =
            [self.reread_keys(&mut seen), self.reread_list(&mut seen), self.rotate(&mut seen)];
        let problems: Vec<String> =
            looked.into_iter().filter_map(|look| Some(look.err()?.to_string())).collect();
        let problem = (!problems.is_empty()).then(|| problems.join("; "));
        if let Some(error) = problem.as_ref().filter(|_| problem != seen.problem) {
            tracing::error!(%error, "the key agent goes on with what it had");
        }
        seen.problem = problem;
    }

    /// Interval between looks.
    pub fn interval(&self) -> Duration {
        (self.config.every / 8).min(Duration::from_secs(1))
    }

    fn reread_keys(&self, known: &mut Seen) -> io::Result<()> {
        let seen = Fingerprint::of(&self.config.group);
        if seen != known.keys {
            let keys = group(&self.config.group)?;
            let mut book = lock(&self.book);
            if (&keys.group, keys.cipher) != (&book.keys.group, book.keys.cipher) {
                return Err(invalid(format!(
                    "{} has keys of another group or cipher: that takes a restart",
                    self.config.group.display()
                )));
            }
            (book.keys, known.keys) = (keys, seen);
            tracing::info!("the group's keys are read again");
        }
        Ok(())
    }

    fn reread_list(&self, known: &mut Seen) -> io::Result<()> {
        let welcome = lock(&self.book).welcome.clone();
        // Taken before it is read, so that what changes meanwhile is read by the next look.
        let seen = self.config.fingerprints(&welcome);
        if seen != known.welcome {
            let welcome = Arc::new(self.config.welcome()?);
            self.config.tell_left_out(&welcome);
            lock(&self.book).welcome = welcome;
            known.welcome = seen;
            tracing::info!("the list of those who may have keys is read again");
        }
        Ok(())
    }

    /// Adds keys until two begin later than now: whoever asks in time has the next one before it is
    /// used, also if the agent is away for as long as a key is used.
    fn rotate(&self, known: &mut Seen) -> io::Result<()> {
        let every_ms = self.config.every.as_millis() as u64;
        loop {
            let now_ms = Clock.unix_ns() / 1_000_000;
            let keys = lock(&self.book).keys.clone();
            if keys.epochs.iter().filter(|key| key.from_ms > now_ms).count() >= AHEAD {
                return Ok(());
            }
            let last = keys.epochs.last().expect("there is a key");
            let from_ms = (last.from_ms + every_ms).max(now_ms + every_ms / 2);
            let keys = file::rotated(keys, from_ms, now_ms)?;
            file::replace(&self.config.group, &keys)?;
            known.keys = Fingerprint::of(&self.config.group);
            let epoch = keys.epochs.last().expect("it was added").epoch;
            lock(&self.book).keys = keys;
            self.counts.rotations.fetch_add(1, Ordering::Relaxed);
            tracing::info!(epoch, from_ms, "a key was added");
        }
    }

    /// Answers those who connect, for ever.
    ///
    /// # Errors
    ///
    /// That there are no threads.
    pub fn serve(self: &Arc<Self>, listener: &TcpListener) -> io::Result<()> {
        let (waiting, count) = (AtomicUsize::new(0), AtomicU64::new(0));
        let entrance = Entrance { listener, waiting, count };
        thread::scope(|scope| {
            self.stand_by(scope, &entrance)?;
            self.receive_all(scope, &entrance);
            Ok(())
        })
    }

    /// One more thread that waits for connections.
    fn stand_by<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        entrance: &'scope Entrance<'_>,
    ) -> io::Result<()> {
        let thread = thread::Builder::new().name("key-client".to_owned());
        thread.spawn_scoped(scope, move || self.receive_all(scope, entrance))?;
        Ok(())
    }

    /// Answers one connection after the other, until enough other threads wait for the next: who
    /// comes then waits for no thread to be made.
    fn receive_all<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        entrance: &'scope Entrance<'_>,
    ) {
        loop {
            let others = entrance.waiting.fetch_add(1, Ordering::Relaxed);
            // Unless all others have gone to answer since.
            if others >= SPARE_MAX && entrance.waiting.fetch_sub(1, Ordering::Relaxed) > 1 {
                return;
            } else if others >= SPARE_MAX {
                continue;
            }
            let accepted = entrance.listener.accept();
            let is_last = entrance.waiting.fetch_sub(1, Ordering::Relaxed) == 1;
            match accepted {
                // There are no more threads just now; its end closes the connection.
                Ok(_) if is_last && self.stand_by(scope, entrance).is_err() => {
                    self.counts.failed.fetch_add(1, Ordering::Relaxed);
                }
                Ok((stream, from)) => {
                    self.receive(entrance.count.fetch_add(1, Ordering::Relaxed), stream, from);
                }
                // Out of descriptors, most likely: some will be free again.
                Err(_) => thread::park_timeout(Duration::from_millis(100)),
            }
        }
    }

    fn receive(&self, number: u64, stream: TcpStream, from: SocketAddr) {
        let Ok(mut stream) = Hurried::new(stream, PATIENCE, BYTES_MAX) else {
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let network = network_of(from.ip());
        self.admit(Stranger { number, network, stream: stream.clone() });
        let answered = self.answer(&mut stream, from);
        lock(&self.strangers).retain(|stranger| stranger.number != number);
        if let Err(error) = answered {
            let total = self.counts.failed.fetch_add(1, Ordering::Relaxed) + 1;
            if self.may_tell() {
                tracing::warn!(%from, %error, total, "a connection showed no identity");
            }
        }
    }

    /// Gives a stranger a place: another one's, if there is none for its network.
    fn admit(&self, stranger: Stranger) {
        let about = |stranger: &Stranger| (stranger.network, stranger.stream.is_silent());
        let mut strangers = lock(&self.strangers);
        let displaced = make_room(&mut strangers, stranger.network, PLACES, about);
        strangers.push(stranger);
        drop(strangers);
        displaced.into_iter().for_each(|stranger| stranger.stream.close());
    }

    fn answer(&self, stream: &mut Hurried, from: SocketAddr) -> io::Result<()> {
        let answered = self.converse(stream, from);
        stream.finish();
        answered
    }

    /// The handshake, and the answer if it succeeds.
    pub(super) fn converse(
        &self,
        stream: &mut (impl Read + Write),
        from: SocketAddr,
    ) -> io::Result<()> {
        let welcome = lock(&self.book).welcome.clone();
        let mut tls = ServerConnection::new(welcome.tls.clone()).map_err(io::Error::other)?;
        if let Err(error) = tls.complete_io(stream) {
            // It may hear why.
            let _ = tls.write_tls(stream);
            return Err(error);
        }
        let shown = tls.peer_certificates().and_then(|chain| chain.first());
        let shown = shown.ok_or_else(|| invalid("it shows no certificate".to_owned()))?;
        let text = match welcome.identities.of(shown) {
            Ok((identity, role)) => {
                self.counts.handed_out.fetch_add(1, Ordering::Relaxed);
                tracing::info!(%from, identity, %role, "keys handed out");
                self.keys_for(role)
            }
            Err(why) => {
                let total = self.counts.refused.fetch_add(1, Ordering::Relaxed) + 1;
                if self.may_tell() {
                    tracing::warn!(%from, why, total, "an identity was refused");
                }
                Zeroizing::new(format!("{REFUSED}{why}\n"))
            }
        };
        tls.writer().write_all(text.as_bytes())?;
        tls.send_close_notify();
        while tls.wants_write() {
            tls.write_tls(stream)?;
        }
        Ok(())
    }

    /// The answer with a role's keys.
    fn keys_for(&self, role: Role) -> Zeroizing<String> {
        let keys = lock(&self.book).keys.clone();
        let derived = keys.for_role(role).expect("they are a server's");
        let again_ms = (self.config.every / 4).min(AGAIN_MAX).as_millis();
        let keys = derived.to_text();
        // A text that grew would leave copies of itself.
        let mut text = Zeroizing::new(String::with_capacity(ANSWER.len() + 24 + keys.len()));
        text.push_str(ANSWER);
        text.push_str(&again_ms.to_string());
        text.push('\n');
        text.push_str(&keys);
        text
    }

    /// True if a line about a connection may be logged: one a second.
    fn may_tell(&self) -> bool {
        let (mut tell_at, now) = (lock(&self.tell_at), Clock.now());
        let may = now >= *tell_at;
        if may {
            *tell_at = now + TELL_INTERVAL_NS;
        }
        may
    }
}

impl AgentConfig {
    fn welcome(&self) -> io::Result<Welcome> {
        let identities = Identities::read(&self.clients)?;
        if self.certificate.is_none() && identities.pinned.is_empty() {
            return Err(invalid(format!(
                "without a certificate pre-shared keys alone count, and {} names none (psk:FILE)",
                self.clients.display()
            )));
        }
        let pem = self.certificate.as_ref().map(|certificate| {
            let Certificate { cert, key, client_ca, client_crl } = certificate;
            Pem { ca: client_ca, cert, key, crl: client_crl.as_ref() }
        });
        let tls = tls::agent(pem.as_ref(), &identities)?;
        Ok(Welcome { identities, tls })
    }

    /// Logs that who is listed by certificate cannot show one here.
    fn tell_left_out(&self, welcome: &Welcome) {
        let count = welcome.identities.named_count();
        if self.certificate.is_none() && count > 0 {
            let file = self.clients.display();
            tracing::warn!(%file, count, "listed by certificate, which this agent takes none of: it has none itself");
        }
    }

    /// The files of who may have keys, those of listed pre-shared keys among them, as they are now.
    fn fingerprints(&self, welcome: &Welcome) -> Vec<Option<Fingerprint>> {
        let pem = self.certificate.iter().flat_map(|certificate| {
            let Certificate { cert, key, client_ca, client_crl } = certificate;
            [cert, key, client_ca].into_iter().chain(client_crl)
        });
        let pem = pem.chain([&self.clients]).map(PathBuf::as_path);
        let secrets = welcome.identities.pinned.iter().map(|known| known.file());
        pem.chain(secrets).map(Fingerprint::of).collect()
    }
}

/// The keys of a group of servers.
fn group(path: &Path) -> io::Result<Keys> {
    let keys = file::read(path)?;
    match keys.role {
        Role::Server => Ok(keys),
        role => {
            let shown = path.display();
            Err(invalid(format!("{shown} has the keys of {role}: the servers' derive the others'")))
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keys that begin later than now.
const AHEAD: usize = 2;

/// Numbers of epochs come again after 256 of them, and are kept for some minutes.
const EVERY_MIN: Duration = Duration::from_secs(1);

/// The longest time after which clients ask again: who is listed no more has its keys for so long,
/// and for as long as they are accepted.
const AGAIN_MAX: Duration = Duration::from_secs(3_600);

/// Connections at a time, each with a thread: as many as ask at once where a rack starts.
const PLACES: Places = Places { all: 256, of_network: 64 };

/// Threads that wait for connections when none comes.
const SPARE_MAX: usize = 4;

/// For the handshake and the answer.
const PATIENCE: Duration = Duration::from_secs(5);

const TELL_INTERVAL_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests;
