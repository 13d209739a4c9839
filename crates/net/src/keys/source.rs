//! Sources of keys: a file, which is looked at once a second; or a key agent, which a file names,
//! and which is asked again as often as it says.
//!
//! | the file | then |
//! |---|---|
//! | has not changed | nothing |
//! | has changed, and holds keys that follow | they take the place of the old ones, and a line is logged |
//! | names a key agent (`tailcut-keys-from 1`) | the agent is asked, now and before its keys are spent |
//! | holds none, is another's, or cannot be read; or the agent does not answer | a line is logged, and the old ones stay |
//!
//! Whoever was opened with the keys has them renewed, on a thread beside the data path, until the
//! last of them is gone.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tailcut_proto::node::Time;
use tailcut_proto::sealed::Keys;

use super::LiveKeys;
#[cfg(feature = "key-agent")]
use super::fetch::{Answer, Asking};
use super::file::{self, Fingerprint, invalid};
use super::renewal::{Renewal, Renews, lock};
use crate::clock::Clock;
use crate::entropy;

/// Keys that are read again when they change, or asked for again: `builder.seal(&source)` opens
/// with them.
#[derive(Clone, Debug)]
pub struct Source {
    /// The keys, and what renews them.
    live: LiveKeys,
    /// State of where they come from; `None` until they have come.
    state: Arc<Mutex<Option<State>>>,
    /// The thread that renews them.
    renewal: Arc<Renewal>,
}

/// A file and what has come of it.
#[derive(Debug)]
struct State {
    /// The file.
    path: PathBuf,
    /// The keys, without what renews them.
    live: LiveKeys,
    /// The file that was last read; `None` if it was not there.
    seen: Option<Fingerprint>,
    /// Time at which a key agent is asked next, or a file is read again that could not be read;
    /// `None` where neither is due.
    ask_at: Option<Time>,
    /// After what time the agent wants to be asked again; zero before it has said that.
    again_in: Duration,
    /// Times in a row that keys could not be had.
    failures: u32,
}

/// Keys that have just been read.
#[derive(Debug)]
struct Read {
    /// The keys.
    keys: Keys,
    /// Delay until they are to be asked for again, where they do not stand in the file.
    again_in: Option<Duration>,
}

impl Source {
    /// Reads keys from a file, as `tailcut keys` writes it, and reads it again whenever it has
    /// changed; or asks the key agent that it names, which takes some seconds at most, and asks
    /// again in time. That needs the feature `key-agent`.
    ///
    /// # Errors
    ///
    /// As [`file::read`]; that the agent does not answer, or refuses; and that there is no thread
    /// to be had.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let seen = Fingerprint::of(&path);
        let renewed = Arc::default();
        let mut renewal = None;
        // The thread comes up while an agent works, if it does.
        let mut start = || {
            renewal.get_or_insert_with(|| Renewal::start(Arc::clone(&renewed)));
        };
        let Read { keys, again_in } = first(&path, &mut start)?;
        start();
        let live = LiveKeys::new(keys);
        let ask_at = again_in.map(|time| jittered(time, 75));
        let again_in = again_in.unwrap_or_default();
        let state = State { path, live: live.clone(), seen, ask_at, again_in, failures: 0 };
        *lock(&renewed) = Some(state);
        let renewal = renewal.expect("it has been started")?;
        let live = LiveKeys { renewal: Some(renewal.clone()), ..live };
        Ok(Self { live, state: renewed, renewal })
    }

    /// Checks a file, without asking a key agent: the keys in it, or `None` where it names an
    /// agent.
    ///
    /// # Errors
    ///
    /// As [`Source::open`], but for what the agent says.
    pub fn check(path: &Path) -> io::Result<Option<Keys>> {
        match Text::of(path)? {
            Text::Keys(keys) => Ok(Some(keys)),
            #[cfg(feature = "key-agent")]
            Text::Agent(_) => Ok(None),
        }
    }

    /// The keys, which are renewed as long as anybody has them.
    pub fn keys(&self) -> LiveKeys {
        self.live.clone()
    }

    /// Reads the file again at once, whether or not it has changed, or asks the agent. What comes
    /// of it is logged. Returns whether keys were had that follow.
    pub fn reload(&self) -> bool {
        lock(&self.state).renew()
    }

    /// As [`Source::reload`], on the thread that renews keys: whoever calls waits for no file and
    /// no agent.
    pub fn reload_soon(&self) {
        self.renewal.ask();
    }
}

impl From<&Source> for LiveKeys {
    fn from(source: &Source) -> Self {
        source.keys()
    }
}

impl From<Source> for LiveKeys {
    fn from(source: Source) -> Self {
        source.live
    }
}

impl Renews for State {
    fn look(&mut self) {
        let is_due = self.ask_at.is_some_and(|ask_at| ask_at <= Clock.now());
        if is_due || Fingerprint::of(&self.path) != self.seen {
            self.renew();
        }
    }

    fn renew(&mut self) -> bool {
        let file = self.path.display();
        // Looked at first: what changes meanwhile is read once more.
        self.seen = Fingerprint::of(&self.path);
        let updated = read(&self.path, &mut || ()).and_then(|Read { keys, again_in }| {
            let updated = self.live.update(&keys);
            let is_new = updated.map_err(|error| invalid(format!("{file}: {error}")))?;
            Ok((is_new, again_in))
        });
        match &updated {
            Ok((true, _)) => tracing::info!(%file, "keys have been renewed"),
            Ok((false, _)) => tracing::debug!(%file, "keys are what they were"),
            Err(error) => tracing::error!(%error, "keys are not renewed, and the old ones stay"),
        }
        match updated {
            Ok((_, again_in)) => {
                self.failures = 0;
                self.ask_at = again_in.map(|time| jittered(time, 75));
                self.again_in = again_in.unwrap_or_default();
                true
            }
            Err(error) => {
                // A file that is wrong is read again when it changes. An agent is asked again, and
                // a file that could not be read just now is read again.
                let wait = RETRY_MIN.saturating_mul(1 << self.failures.min(10));
                let most = if self.again_in.is_zero() { RETRY_MAX } else { self.again_in };
                let wait = wait.min(RETRY_MAX.min(most).max(RETRY_MIN));
                self.failures += 1;
                let is_again =
                    !is_lasting(error.kind()) || matches!(Source::check(&self.path), Ok(None));
                self.ask_at = is_again.then(|| jittered(wait, 50));
                false
            }
        }
    }

    fn wait(&self) -> Duration {
        let until = |ask_at: Time| Duration::from_nanos(ask_at.saturating_sub(Clock.now()));
        self.ask_at.map_or(INTERVAL, until).min(INTERVAL)
    }
}

/// Contents of a file.
enum Text {
    Keys(Keys),
    #[cfg(feature = "key-agent")]
    Agent(Asking),
}

impl Text {
    fn of(path: &Path) -> io::Result<Self> {
        let text = file::read_secret(path)?;
        #[cfg(feature = "key-agent")]
        if Asking::is_asking(&text) {
            let asking = Asking::parse(&text);
            return asking
                .map(Self::Agent)
                .map_err(|error| invalid(format!("{}: {error}", path.display())));
        }
        #[cfg(not(feature = "key-agent"))]
        if text.trim_start().starts_with("tailcut-keys-from") {
            let shown = path.display();
            return Err(invalid(format!(
                "{shown} names a key agent: build with the feature key-agent"
            )));
        }
        let keys = text.parse();
        keys.map(Self::Keys).map_err(|error| invalid(format!("{}: {error}", path.display())))
    }
}

/// Reads keys for the first time: an agent that was cut off, or is not there yet, is asked again
/// twice.
fn first(path: &Path, meanwhile: &mut dyn FnMut()) -> io::Result<Read> {
    let mut retries = 0;
    loop {
        match read(path, meanwhile) {
            Err(error) if retries < RETRIES && is_passing(error.kind()) => retries += 1,
            done => return done,
        }
        let until = jittered(RETRY_MIN, 20);
        std::thread::park_timeout(Duration::from_nanos(until.saturating_sub(Clock.now())));
    }
}

/// True if an error of a file stays until the file changes.
pub(crate) fn is_lasting(kind: io::ErrorKind) -> bool {
    use io::ErrorKind as Kind;
    matches!(kind, Kind::InvalidData | Kind::InvalidInput | Kind::NotFound | Kind::PermissionDenied)
}

/// True if an error may be gone in a moment.
fn is_passing(kind: io::ErrorKind) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        kind,
        Kind::BrokenPipe
            | Kind::ConnectionAborted
            | Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::TimedOut
            | Kind::UnexpectedEof
    )
}

#[cfg_attr(not(feature = "key-agent"), expect(unused_variables, reason = "a file is read at once"))]
fn read(path: &Path, meanwhile: &mut dyn FnMut()) -> io::Result<Read> {
    match Text::of(path)? {
        Text::Keys(keys) => Ok(Read { keys, again_in: None }),
        #[cfg(feature = "key-agent")]
        Text::Agent(asking) => {
            let Answer { keys, again_in } = asking.fetch(meanwhile)?;
            Ok(Read { keys, again_in: Some(again_in) })
        }
    }
}

/// A time from now: of `time` at least so many percent, and not all of it, so that those who began
/// together do not ask together.
fn jittered(time: Duration, percent: u32) -> Time {
    let share = percent + (entropy::seed_or_zero() % u64::from(100 - percent)) as u32;
    Clock.now() + (time * share / 100).as_nanos() as u64
}

/// Interval between looks at a file.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// Retries of the first reading.
const RETRIES: u32 = 2;

/// After the first failure in a row; twice as long after each.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use tailcut_proto::sealed::{Cipher, Keys, Role};

    use super::*;

    /// A directory that goes when it is dropped.
    pub(crate) struct Directory(pub(crate) PathBuf);

    impl Directory {
        pub(crate) fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tailcut-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).expect("a directory");
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            // What is left is in the directory of temporary files.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn group() -> Keys {
        let epochs = vec![file::new_key(1, 1_000).expect("random numbers")];
        Keys {
            role: Role::Server,
            group: "g".into(),
            cipher: Cipher::Aes128Gcm,
            reset: None,
            epochs,
        }
    }

    fn count(source: &Source) -> usize {
        source.keys().current().epochs.len()
    }

    /// Waits until the thread that watches has seen a change.
    fn wait_for(source: &Source, epochs: usize) {
        while count(source) != epochs {
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_file_that_changes_is_read_again_and_a_wrong_one_is_not_taken() {
        let directory = Directory::new("source");
        let path = directory.0.join("servers.keys");
        let first = group();
        file::create(&path, &first).expect("a file");
        let source = Source::open(&path).expect("keys");
        assert!(source.reload() && count(&source) == 1, "nothing is new");

        let second = file::rotated(first.clone(), u64::MAX >> 20, 1_000).expect("room");
        file::replace(&path, &second).expect("no file is in the way");
        wait_for(&source, 2);

        let check_refused = || assert!(!source.reload() && count(&source) == 2);
        fs::write(&path, "tailcut-keys 1\nrole server\n").expect("it is ours");
        check_refused();
        fs::remove_file(&path).expect("it is there");
        check_refused();
        let client = second.for_role(Role::Client(3)).expect("a server's");
        file::create(&path, &client).expect("a file");
        check_refused();
        file::replace(&path, &Keys { group: "h".into(), ..second.clone() }).expect("a file");
        check_refused();
        file::replace(&path, &second).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("it is ours");
        check_refused();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
        assert!(source.reload());

        // Whoever has the keys has them renewed, also without the source.
        let keys = LiveKeys::from(source);
        file::replace(&path, &first).expect("a file");
        while keys.current().epochs.len() != 1 {
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}
