//! Where keys come from: a file, which is looked at once a second.
//!
//! | the file | then |
//! |---|---|
//! | has not changed | nothing |
//! | has changed, and holds keys that follow | they take the place of the old ones, and a line is logged |
//! | holds none, is another's, or cannot be read | a line is logged once, and the old ones stay |
//!
//! Whoever was opened with the keys has them renewed, on a thread beside the data path, until the last of
//! them is gone.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::LiveKeys;
use super::file::{self, Fingerprint};

/// Keys that are read again when they change: `builder.seal(&source)` opens with them.
#[derive(Clone, Debug)]
pub struct Source {
    /// The keys, and what renews them.
    live: LiveKeys,
    /// What is known of their file.
    state: Arc<Mutex<State>>,
}

/// A thread that renews keys: it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Renewal {
    /// Nothing is ever sent: it is its end that is heard.
    _end: Sender<()>,
}

/// A file and what was last read of it.
#[derive(Debug)]
struct State {
    /// Where the keys are.
    path: PathBuf,
    /// The keys, without what renews them.
    live: LiveKeys,
    /// The file that was last read; `None` if it was not there.
    seen: Option<Fingerprint>,
}

impl Source {
    /// Reads keys from a file, as `tailcut keys` writes it, and reads it again whenever it has changed.
    ///
    /// # Errors
    ///
    /// As [`file::read`], and that there is no thread to be had.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let seen = Fingerprint::of(&path);
        let live = LiveKeys::new(file::read(&path)?);
        let state = Arc::new(Mutex::new(State { path, live: live.clone(), seen }));
        let (end, ended) = mpsc::channel();
        let watched = state.clone();
        std::thread::Builder::new()
            .name("tailcut-keys".to_owned())
            .spawn(move || watch(&watched, &ended))?;
        let live = LiveKeys { _renewal: Some(Arc::new(Renewal { _end: end })), ..live };
        Ok(Self { live, state })
    }

    /// The keys, which are renewed as long as anybody has them.
    pub fn keys(&self) -> LiveKeys {
        self.live.clone()
    }

    /// Reads the file again at once, whether or not it has changed. What comes of it is logged. Returns
    /// whether the file is well.
    pub fn reload(&self) -> bool {
        lock(&self.state).read()
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

impl State {
    /// Reads the file if it has changed.
    fn look(&mut self) {
        if Fingerprint::of(&self.path) != self.seen {
            self.read();
        }
    }

    fn read(&mut self) -> bool {
        let file = self.path.display();
        // Looked at first: what changes meanwhile is read once more.
        self.seen = Fingerprint::of(&self.path);
        let keys = file::read(&self.path);
        let updated = keys.and_then(|keys| {
            self.live.update(&keys).map_err(|error| file::invalid(format!("{file}: {error}")))
        });
        match &updated {
            Ok(true) => tracing::info!(%file, "keys have been renewed"),
            Ok(false) => tracing::debug!(%file, "keys are what they were"),
            Err(error) => tracing::error!(%error, "keys are not renewed, and the old ones stay"),
        }
        updated.is_ok()
    }
}

fn watch(state: &Mutex<State>, ended: &Receiver<()>) {
    while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        lock(state).look();
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often a file is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use tailcut_proto::sealed::{Cipher, Keys, Role};

    use super::*;

    /// A directory that goes when it is dropped.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
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
        Keys { role: Role::Server, group: "g".into(), cipher: Cipher::Aes128Gcm, epochs }
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
