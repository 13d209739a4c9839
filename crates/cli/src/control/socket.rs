//! A service's end of its control socket: a thread that takes one connection after the other.
//!
//! Only the socket's owner can connect (mode 0600). A connection that says nothing for a second is
//! closed, so that none can keep the others waiting.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::protocol::{LINE_LEN_MAX, Reply, Request};
use crate::life::leave_real_time;

/// An open control socket. Its file goes when this is dropped.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    path: PathBuf,
}

impl ControlSocket {
    /// Opens the socket and its thread, on which `answer` has the loop do what is asked.
    pub(crate) fn open(
        path: &Path,
        answer: impl Fn(Request) -> Result<Reply> + Send + 'static,
    ) -> Result<Self> {
        let listener = bind(path)
            .with_context(|| format!("cannot open the control socket {}", path.display()))?;
        let serve = move || {
            leave_real_time();
            for stream in listener.incoming().flatten() {
                // Whatever ends a connection is its client's to see.
                let _ = converse(&stream, &answer);
            }
        };
        thread::Builder::new()
            .name("control".to_owned())
            .spawn(serve)
            .context("cannot start the thread for control")?;
        Ok(Self { path: path.to_owned() })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Somebody else has removed it already.
        let _ = fs::remove_file(&self.path);
    }
}

/// Binds in a directory that nobody else may enter and moves the socket to its place only when its
/// mode is set: there is no moment in which another user can connect.
fn bind(path: &Path) -> Result<UnixListener> {
    remove_stale(path)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let private = PathBuf::from(name);
    DirBuilder::new().mode(0o700).create(&private)?;
    let bound = bind_in(&private, path);
    // It is empty; what is left of it after a failure harms nobody.
    let _ = fs::remove_dir(&private);
    bound
}

fn bind_in(private: &Path, path: &Path) -> Result<UnixListener> {
    let inner = private.join("s");
    let listener = UnixListener::bind(&inner)?;
    fs::set_permissions(&inner, Permissions::from_mode(0o600))?;
    fs::rename(&inner, path)?;
    Ok(listener)
}

/// Removes the socket of a service that has ended without doing so.
fn remove_stale(path: &Path) -> Result<()> {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !metadata.file_type().is_socket() {
        bail!("there is a file that is no socket; choose another path");
    }
    match UnixStream::connect(path) {
        Ok(_) => bail!("another service is listening there; choose another path"),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(fs::remove_file(path)?),
        Err(error) => Err(error.into()),
    }
}

/// Answers each line until the client hangs up or falls silent.
fn converse(stream: &UnixStream, answer: &impl Fn(Request) -> Result<Reply>) -> Result<()> {
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    let mut lines = BufReader::new(stream.take(LINE_LEN_MAX));
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        let reply = match serde_json::from_str(&line) {
            Ok(request) => answer(request)?,
            Err(error) => Reply::Error(format!("this is no request: {error}")),
        };
        let mut text = serde_json::to_string(&reply)?;
        text.push('\n');
        (&mut &*stream).write_all(text.as_bytes())?;
        line.clear();
    }
    Ok(())
}

const SILENCE_MAX: Duration = Duration::from_secs(1);
