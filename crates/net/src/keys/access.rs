//! Access policy of sealed servers, while they run: one that may be followed by another, and a file
//! of one.
//!
//! | the file | then |
//! |---|---|
//! | has not changed | nothing |
//! | has changed, and holds a policy | it takes the place of the old one, and a line is logged |
//! | holds none, or cannot be read | a line is logged, and the old one stays |

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tailcut_proto::sealed::Access;

use super::file::{Fingerprint, invalid};
use super::renewal::{Renewal, Renews};
use super::source::{INTERVAL, is_lasting};

/// A policy that may be followed by another, for any number of servers and threads; clones are the
/// same one.
#[derive(Clone, Debug)]
pub struct LiveAccess {
    /// The policy.
    shared: Arc<Shared>,
    /// Reads it again as long as anybody has it, where it comes from a [`AccessSource`].
    _renewal: Option<Arc<Renewal>>,
}

#[derive(Debug)]
struct Shared {
    /// Number of its changes so far.
    version: AtomicU64,
    /// The policy as it is now.
    access: Mutex<Arc<Access>>,
}

/// A policy in a file, which is read again when that changes: `builder.access(&source)` opens with
/// it.
#[derive(Clone, Debug)]
pub struct AccessSource {
    /// The policy, and what reads it again.
    live: LiveAccess,
    /// State of the file.
    state: Arc<Mutex<State>>,
    /// The thread that reads it again.
    renewal: Arc<Renewal>,
}

/// A file and what has come of it.
#[derive(Debug)]
struct State {
    /// The file.
    path: PathBuf,
    /// The policy, without what reads it again.
    live: LiveAccess,
    /// The file that was last read; `None` if it was not there, or is to be read once more.
    seen: Option<Fingerprint>,
}

impl LiveAccess {
    /// A policy to begin with.
    pub fn new(access: Access) -> Self {
        let shared = Shared { version: AtomicU64::new(0), access: Mutex::new(Arc::new(access)) };
        Self { shared: Arc::new(shared), _renewal: None }
    }

    /// The policy as it is now.
    pub fn current(&self) -> Arc<Access> {
        self.lock().clone()
    }

    /// Puts another policy in place: requests that begin from now on go by it. Returns whether it
    /// is another.
    pub fn update(&self, access: Access) -> bool {
        let mut known = self.lock();
        let is_new = **known != access;
        if is_new {
            *known = Arc::new(access);
            self.shared.version.fetch_add(1, Ordering::Release);
        }
        is_new
    }

    /// Number of its changes so far.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.shared.version.load(Ordering::Relaxed)
    }

    /// The policy, and how often it has changed.
    pub(super) fn read(&self) -> (Arc<Access>, u64) {
        let access = self.lock();
        (access.clone(), self.shared.version.load(Ordering::Acquire))
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Access>> {
        self.shared.access.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Access> for LiveAccess {
    fn from(access: Access) -> Self {
        Self::new(access)
    }
}

impl From<&LiveAccess> for LiveAccess {
    fn from(access: &Self) -> Self {
        access.clone()
    }
}

impl From<&AccessSource> for LiveAccess {
    fn from(source: &AccessSource) -> Self {
        source.live.clone()
    }
}

impl From<AccessSource> for LiveAccess {
    fn from(source: AccessSource) -> Self {
        source.live
    }
}

impl AccessSource {
    /// Reads a policy from a file, and reads it again whenever that has changed.
    ///
    /// # Errors
    ///
    /// As [`read`], and that there is no thread to be had.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let seen = Fingerprint::of(&path);
        let live = LiveAccess::new(read(&path)?);
        let state = Arc::new(Mutex::new(State { path, live: live.clone(), seen }));
        let renewal = Renewal::start(state.clone())?;
        let live = LiveAccess { _renewal: Some(renewal.clone()), ..live };
        Ok(Self { live, state, renewal })
    }

    /// Reads the file again at once, whether or not it has changed. What comes of it is logged.
    /// Returns whether it holds a policy.
    pub fn reload(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).renew()
    }

    /// As [`AccessSource::reload`], on the thread that reads it: whoever calls waits for no file.
    pub fn reload_soon(&self) {
        self.renewal.ask();
    }
}

impl Renews for State {
    fn look(&mut self) {
        if Fingerprint::of(&self.path) != self.seen {
            self.renew();
        }
    }

    fn renew(&mut self) -> bool {
        let file = self.path.display();
        // Looked at first: what changes meanwhile is read once more.
        self.seen = Fingerprint::of(&self.path);
        match read(&self.path).map(|access| self.live.update(access)) {
            Ok(true) => {
                tracing::info!(%file, "the access policy has been renewed");
                true
            }
            Ok(false) => {
                tracing::debug!(%file, "the access policy is what it was");
                true
            }
            Err(error) => {
                tracing::error!(%error, "the access policy is not renewed, and the old one stays");
                if !is_lasting(error.kind()) {
                    self.seen = None;
                }
                false
            }
        }
    }

    fn wait(&self) -> Duration {
        INTERVAL
    }
}

/// The policy in a file, which not everybody may write.
///
/// # Errors
///
/// That it cannot be read, that anybody may write to it, or that it holds no policy.
pub fn read(path: &Path) -> io::Result<Access> {
    let shown = path.display();
    let unreadable = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot read the policy from {shown}: {error}"))
    };
    // What is read is what was looked at, whatever has the name by then.
    let file = File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.mode() & 0o002 != 0 {
        let text = format!("anybody may write to the policy in {shown}: chmod o-w {shown}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let mut text = String::new();
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(invalid(format!("{shown} is too long")));
    }
    text.parse().map_err(|error| invalid(format!("{shown}: {error}")))
}

/// Some 50,000 lines.
const BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::source::tests::Directory;
    use super::*;

    #[test]
    fn a_policy_that_changes_is_read_again_and_a_wrong_one_is_not_taken() {
        let directory = Directory::new("access");
        let path = directory.0.join("access");
        let policy = |client: u32| format!("tailcut-access 1\nallow {client} *\n");
        fs::write(&path, policy(1)).expect("a file");
        let source = AccessSource::open(&path).expect("a policy");
        let live = LiveAccess::from(&source);
        let may = |client| live.current().check(client, b"", true).is_ok();
        assert!(source.reload() && may(1) && !may(2), "nothing is new");

        let beside = directory.0.join("new");
        fs::write(&beside, policy(2)).expect("a file");
        fs::rename(&beside, &path).expect("it is there");
        while !may(2) {
            std::thread::park_timeout(Duration::from_millis(10));
        }

        let check_refused = || assert!(!source.reload() && may(2) && !may(1));
        fs::write(&path, "tailcut-access 1\nallow 1 Capitals\n").expect("it is ours");
        check_refused();
        fs::write(&path, [0xff; 10]).expect("it is ours");
        check_refused();
        fs::write(&path, format!("{}{}", policy(1), "#".repeat(1 << 20))).expect("it is ours");
        check_refused();
        fs::remove_file(&path).expect("it is there");
        check_refused();
        fs::write(&path, policy(1)).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o646)).expect("it is ours");
        check_refused();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("it is ours");
        assert!(source.reload() && may(1));

        // Whoever has the policy has it renewed, also without the source.
        drop(source);
        fs::write(&path, policy(3)).expect("it is ours");
        while !may(3) {
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_file_that_holds_no_policy_is_told() {
        let directory = Directory::new("no-access");
        let path = directory.0.join("access");
        let error = AccessSource::open(&path).expect_err("it is not there").to_string();
        assert!(error.contains("cannot read the policy from"), "{error}");
        fs::write(&path, "tailcut-access 1\n\nallow 5-2 *\n").expect("a file");
        let error = AccessSource::open(&path).expect_err("no policy").to_string();
        assert!(error.contains("access: line 3 of the policy: the range 5-2"), "{error}");
    }
}
