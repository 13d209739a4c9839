//! Files of keys: read for their owner's eyes alone, and replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use tailcut_proto::sealed::{EpochKey, HopKey, Keys, Role, Secret};
use zeroize::Zeroizing;

use crate::entropy;

/// The keys in a file, which nobody else may read.
///
/// # Errors
///
/// That it cannot be read, that others may read it, or that it holds no keys; never what it holds.
pub fn read(path: &Path) -> io::Result<Keys> {
    let text = read_secret(path)?;
    text.parse().map_err(|error| invalid(format!("{}: {error}", path.display())))
}

/// The text of a file that nobody else may read.
pub(crate) fn read_secret(path: &Path) -> io::Result<Zeroizing<String>> {
    let shown = path.display();
    let unreadable = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot read the keys from {shown}: {error}"))
    };
    // What is read is what was looked at, whatever has the name by then.
    let file = File::open(path).map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    if about.mode() & 0o077 != 0 {
        let text = format!("others may read the keys in {shown}: chmod 600 {shown}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    // A text that grew would leave copies of itself.
    let len = about.len().min(BYTES_MAX) as usize;
    let mut text = Zeroizing::new(String::with_capacity(len + 1));
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(invalid(format!("{shown} is too long")));
    }
    Ok(text)
}

/// The text of a file that is no secret.
#[cfg(feature = "key-agent")]
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let shown = path.display();
    let mut text = String::new();
    File::open(path)
        .and_then(|file| {
            text.reserve(file.metadata()?.len().min(TEXT_BYTES_MAX) as usize + 1);
            file.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text)
        })
        .map_err(|error| named(&error, format!("cannot read {shown}")))?;
    if text.len() as u64 > TEXT_BYTES_MAX {
        return Err(invalid(format!("{shown} is too long")));
    }
    Ok(text)
}

/// Writes keys to a file that was not there, for its owner alone.
///
/// # Errors
///
/// That it is there already, or cannot be written.
pub fn create(path: &Path, keys: &Keys) -> io::Result<()> {
    let shown = path.display();
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(|error| named(&error, format!("cannot create {shown}")))?;
    let text = keys.to_text();
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| {
        // Half a file helps nobody, and would be in the way.
        let _ = fs::remove_file(path);
        named(&error, format!("cannot write {shown}"))
    })
}

/// The file beside one that takes its place.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Puts keys in the place of those in a file: whoever reads it has either all of the old or all of
/// the new.
///
/// # Errors
///
/// That a file beside it, which ends in `.new`, is in the way, or that one of them cannot be
/// written.
pub fn replace(path: &Path, keys: &Keys) -> io::Result<()> {
    let beside = beside(path);
    if beside.exists() {
        let text = format!(
            "{} is in the way, perhaps of a rotation that was interrupted: delete it",
            beside.display()
        );
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    create(&beside, keys)?;
    // Whoever has had the new keys must find them after a loss of power too.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    fs::rename(&beside, path)
        .and_then(|()| File::open(folder.unwrap_or(Path::new(".")))?.sync_all())
        .map_err(|error| named(&error, format!("cannot replace {}", path.display())))
}

/// A group's keys with one more, which begins at a Unix time, ms, and without those of which
/// packets are no longer taken at `now_ms`.
///
/// # Errors
///
/// That the keys are not a server's, that there is no room for another, or that the system gives no
/// random numbers.
pub fn rotated(mut keys: Keys, from_ms: u64, now_ms: u64) -> io::Result<Keys> {
    if keys.role != Role::Server {
        let text =
            format!("the keys of {} are not a server's keys, from which all derive", keys.role);
        return Err(invalid(text));
    }
    let last = keys.epochs.last().expect("there is a key");
    let next = new_key(last.epoch.wrapping_add(1), from_ms)?;
    // The one before the current is still taken.
    let oldest = keys.current(now_ms).saturating_sub(1);
    keys.epochs.drain(..oldest);
    keys.epochs.push(next);
    // What cannot be read again must not be written.
    keys.to_text()
        .parse()
        .map_err(|error| invalid(format!("there is no room for another key: {error}")))
}

/// A new key of a group, which begins at a Unix time, ms.
///
/// # Errors
///
/// That the system gives no random numbers.
pub fn new_key(epoch: u8, from_ms: u64) -> io::Result<EpochKey> {
    let mut secret = Zeroizing::new([0; 32]);
    for half in secret.chunks_mut(16) {
        half.copy_from_slice(&entropy::secret()?);
    }
    Ok(EpochKey { epoch, from_ms, secret: Secret::new(*secret), hop: HopKey::default() })
}

/// A reset secret of a group.
///
/// # Errors
///
/// That the system gives no random numbers.
pub fn new_reset() -> io::Result<HopKey> {
    entropy::secret().map(HopKey::new)
}

/// Identity of a file and time of its last change: it has not changed as long as this is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint([i64; 6]);

impl Fingerprint {
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let about = fs::metadata(path).ok()?;
        let times = [about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec()];
        let [seconds, nanos, changed, changed_nanos] = times;
        let which = [about.ino().cast_signed(), about.len().cast_signed()];
        Some(Self([seconds, nanos, changed, changed_nanos, which[0], which[1]]))
    }
}

fn named(error: &io::Error, what: String) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

pub(crate) fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// A list of some 100,000 identities, or of a million certificates that are revoked.
#[cfg(feature = "key-agent")]
const TEXT_BYTES_MAX: u64 = 1 << 26;

/// A file of 64 keys has 8 kB.
const BYTES_MAX: u64 = 1 << 16;
