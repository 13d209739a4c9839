//! A watched file: read again when it has been written and closed, or when another has been put in
//! its place, as a ConfigMap of Kubernetes is.

use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

use super::{Answer, Watch};
use crate::route::servers;

/// Tells of a file's servers as they change.
pub(super) fn watch(path: &Path, watch: &Watch<'_>) -> Result<()> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let changes = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)
        .context("cannot watch files")?;
    let kinds = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::DELETE;
    inotify::add_watch(&changes, folder, kinds)
        .with_context(|| format!("cannot watch {}", folder.display()))?;
    let mut known = None;
    while !watch.is_over() {
        match servers::read(path) {
            // Where it is written in place, half of it may have been read: the rest comes with an
            // event.
            Ok(text) if known.as_ref() != Some(&text) && is_settled(path, &text) => {
                let answer = servers::parse_list(&text, path).map(Answer::from);
                // What is no list is looked at again: a name of it may be known by then.
                known = answer.is_ok().then_some(text);
                (watch.tell)(answer);
            }
            Ok(_) => {}
            Err(error) => {
                // When it comes back as it was, that is news.
                known = None;
                (watch.tell)(Err(error));
            }
        }
        wait(&changes)?;
    }
    Ok(())
}

/// True if it still is what was read, a moment later.
fn is_settled(path: &Path, text: &str) -> bool {
    std::thread::park_timeout(SETTLED_AFTER);
    fs::read(path).is_ok_and(|bytes| bytes == text.as_bytes())
}

/// Waits until something has happened in the folder, or for as long as a change may stay unseen
/// where the file system tells of none.
fn wait(changes: &rustix::fd::OwnedFd) -> Result<()> {
    let mut polled = [PollFd::new(changes, PollFlags::IN)];
    match poll(&mut polled, Some(&LOOK_EVERY)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error).context("cannot watch files"),
    }
    let mut bytes = [MaybeUninit::uninit(); 4_096];
    let mut events = inotify::Reader::new(changes, &mut bytes);
    // Which file it was does not matter; the last attempt finds none.
    while events.next().is_ok() {}
    Ok(())
}

const SETTLED_AFTER: Duration = Duration::from_millis(10);

const LOOK_EVERY: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
