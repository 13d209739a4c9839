//! Agents on hosts that ssh reaches: started over it, spoken to through it, and copied there when
//! they are not.
//!
//! The system's ssh does it, with the user's configuration, keys and known hosts. The library
//! `openssh` drives the same program but needs an asynchronous runtime, which nothing else here
//! does; what is needed of it is a dozen lines.
//!
//! | what is on the host | what runs |
//! |---|---|
//! | a `tailcut` of the same version in the path | that |
//! | this very binary in the cache, by its hash | that |
//! | neither, and the same kind of machine | this binary, copied to the cache and checked there |
//!
//! Invariant: an unknown or a changed host key is refused, whatever the user's configuration says;
//! nothing is asked of the user; and what is started on the host ends with its standard input.

use std::env::consts::ARCH;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use aws_lc_rs::digest;

use super::handshake::{Before, Refusal, Session, begin};
use super::message::printable;
use super::spec::Destination;
use super::stream::Stream;

/// Binary that runs on the host.
#[derive(Clone, Debug)]
pub(super) struct Payload {
    path: PathBuf,
    /// SHA-256, in hexadecimal.
    hash: String,
}

impl Payload {
    pub(super) fn of_this_binary() -> Result<Self> {
        Self::of(Path::new("/proc/self/exe"))
    }

    pub(super) fn of(path: &Path) -> Result<Self> {
        let read = || -> std::io::Result<String> {
            let mut context = digest::Context::new(&digest::SHA256);
            let mut file = File::open(path)?;
            let mut bytes = vec![0; 1 << 16];
            loop {
                match file.read(&mut bytes)? {
                    0 => break,
                    len => context.update(&bytes[..len]),
                }
            }
            Ok(context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
        };
        let hash = read().with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self { path: path.to_owned(), hash })
    }

    /// Directory of the binary on a host, as a shell there writes it: one for each version and
    /// build.
    fn cache(&self) -> String {
        format!("${{XDG_CACHE_HOME:-$HOME/.cache}}/tailcut/{VERSION}-{}", &self.hash[..16])
    }

    /// Becomes the agent, or says that there is none and what the host is.
    fn start_script(&self) -> String {
        let Self { hash, .. } = self;
        format!(
            "b=\"{}/tailcut\"; \
             if [ \"$(tailcut --version 2>/dev/null)\" = \"tailcut {VERSION}\" ]; then exec tailcut agent --stdio; fi; \
             if [ -x \"$b\" ] && [ \"$(sha256sum <\"$b\" | cut -c 1-64)\" = {hash} ]; then exec \"$b\" agent --stdio; fi; \
             echo tcabsent $(uname -s -m)",
            self.cache()
        )
    }

    /// Takes the binary from standard input. It is at its place only once it is whole and right,
    /// and a copy at the same time does no harm.
    fn copy_script(&self) -> String {
        let Self { hash, .. } = self;
        format!(
            "set -e; umask 077; d=\"{}\"; mkdir -p \"$d\"; t=$(mktemp -p \"$d\"); trap \"rm -f $t\" EXIT; cat >\"$t\"; \
             if [ \"$(sha256sum <\"$t\" | cut -c 1-64)\" != {hash} ]; then echo the copy is not what was sent >&2; exit 1; fi; \
             chmod 700 \"$t\"; mv -f \"$t\" \"$d/tailcut\"",
            self.cache()
        )
    }
}

/// Starts an agent and begins a session with it.
pub(super) fn start(
    destination: &Destination,
    payload: &Payload,
) -> Result<(Session, Stream, Shell)> {
    match try_start(destination, payload)? {
        Ok(started) => return Ok(started),
        Err((Refusal::Absent(host), _)) => {
            check_host(&host)?;
            copy(destination, payload)?;
        }
        Err((refusal, shell)) => return Err(explain(&refusal, shell)),
    }
    try_start(destination, payload)?.map_err(|(refusal, shell)| explain(&refusal, shell))
}

type Started = Result<(Session, Stream, Shell), (Refusal, Shell)>;

fn try_start(destination: &Destination, payload: &Payload) -> Result<Started> {
    let (mine, theirs) = UnixStream::pair().context("cannot make a pair of sockets")?;
    let input = OwnedFd::from(theirs.try_clone().context("cannot share a socket")?);
    let shell = Shell::start(
        destination,
        &payload.start_script(),
        input.into(),
        OwnedFd::from(theirs).into(),
    )?;
    let stream = Stream::socket(mine.into()).context("cannot set up a socket")?;
    Ok(match begin(&stream, PATIENCE_NS, (None, ""), Before::ShellNoise) {
        Ok(session) => Ok((session, stream, shell)),
        Err(refusal) => Err((refusal, shell)),
    })
}

fn explain(refusal: &Refusal, shell: Shell) -> anyhow::Error {
    let words = printable(&shell.last_words());
    if words.is_empty() {
        anyhow!("it {refusal}")
    } else {
        anyhow!("it {refusal}; ssh says: {words}")
    }
}

/// A binary runs only on the kind of machine that it is for.
fn check_host(host: &[u8]) -> Result<()> {
    let host = printable(String::from_utf8_lossy(host).trim());
    if host != format!("Linux {ARCH}") {
        bail!(
            "it has no tailcut {VERSION}, and is {host:?} where this binary is for Linux {ARCH}: install tailcut there"
        );
    }
    Ok(())
}

fn copy(destination: &Destination, payload: &Payload) -> Result<()> {
    let binary = File::open(&payload.path)
        .with_context(|| format!("cannot read {}", payload.path.display()))?;
    let mut shell =
        Shell::start(destination, &payload.copy_script(), binary.into(), Stdio::null())?;
    let status = shell.child.wait().context("cannot wait for ssh")?;
    if !status.success() {
        bail!("cannot copy this tailcut to it: {}", printable(&shell.last_words()));
    }
    Ok(())
}

/// A running ssh. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Shell {
    child: Child,
    /// Output on standard error, sent when that ends.
    words: Receiver<String>,
}

impl Shell {
    fn start(destination: &Destination, script: &str, input: Stdio, output: Stdio) -> Result<Self> {
        assert!(!script.contains('\''), "a script is put between single quotes");
        let mut command = Command::new("ssh");
        command.args(OPTIONS);
        if let Some(config) = &destination.config {
            command.arg("-F").arg(config);
        }
        // Whatever the login shell is, it starts a POSIX one.
        command.args(["--", &destination.name, &format!("exec sh -c '{script}'")]);
        // An interrupt from the terminal is this process's to handle: the agents shall tell what
        // they have first.
        command.stdin(input).stdout(output).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().context("cannot run ssh; is it installed?")?;
        let stderr = child.stderr.take().expect("it is piped");
        let (sender, words) = mpsc::channel();
        let read = move || {
            // The receiver may have gone.
            let _ = sender.send(last_of(stderr));
        };
        thread::Builder::new()
            .name("ssh".to_owned())
            .spawn(read)
            .context("cannot start a thread for ssh")?;
        Ok(Self { child, words })
    }

    /// Last words on standard error, once it has ended; it gets a moment to do so by itself.
    pub(super) fn last_words(self) -> String {
        let words = self.words.recv_timeout(LAST_WORDS_MAX);
        words
            .unwrap_or_default()
            .lines()
            .map(str::trim)
            .collect::<Vec<_>>()
            .join(" ")
            .trim()
            .to_owned()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The end of what is read.
fn last_of(mut reader: impl Read) -> String {
    let mut kept = Vec::new();
    let mut bytes = [0; 1024];
    while let Ok(len @ 1..) = reader.read(&mut bytes) {
        kept.extend(&bytes[..len]);
        let excess = kept.len().saturating_sub(WORDS_LEN_MAX);
        kept.drain(..excess);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The command line comes before any configuration file.
const OPTIONS: [&str; 17] = [
    "-T",
    "-oBatchMode=yes",
    "-oStrictHostKeyChecking=yes",
    "-oCheckHostIP=no",
    "-oUpdateHostKeys=no",
    "-oConnectTimeout=10",
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=3",
    "-oForwardAgent=no",
    "-oForwardX11=no",
    "-oClearAllForwardings=yes",
    "-oPermitLocalCommand=no",
    "-oRequestTTY=no",
    "-oRemoteCommand=none",
    "-oEscapeChar=none",
    "-oControlPersist=no",
    "-oLogLevel=ERROR",
];

/// To log in, and to check the hash of what is in the cache.
const PATIENCE_NS: u64 = 30_000_000_000;
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);
const WORDS_LEN_MAX: usize = 2_000;
