//! A child process that cannot outlive who started it, and what it prints.
//!
//! Invariant: however a [`Process`] goes out of scope, by return, error or panic, its child has
//! been killed and reaped.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use signal_hook::consts::{SIGINT, SIGTERM};

/// A command of this very binary, running.
#[derive(Debug)]
pub(super) struct Process {
    /// The command's name, for messages.
    name: String,
    child: Child,
    lines: Receiver<String>,
    /// Gives what the child wrote to standard error; `None` once it has been taken.
    complaints: Option<JoinHandle<String>>,
}

impl Process {
    /// Starts `tailcut` with these words, the first of which is its command.
    pub(super) fn start(words: &[String]) -> Result<Self> {
        let binary = env::current_exe().context("cannot find the tailcut binary")?;
        let mut command = Command::new(binary);
        command.args(words);
        Self::spawn(words.first().cloned().unwrap_or_default(), command)
    }

    /// The next line of its output, or `None` at the end of it.
    ///
    /// # Errors
    ///
    /// When `stop` is set, and when nothing comes for `patience`; what the child said on standard
    /// error is in the message.
    pub(super) fn next_line(
        &mut self,
        stop: &AtomicBool,
        patience: Duration,
    ) -> Result<Option<String>> {
        for _ in 0..patience.div_duration_f64(TICK).ceil() as u64 {
            if stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            match self.lines.recv_timeout(TICK) {
                Ok(line) => return Ok(Some(line)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Err(self.failure(&format!("said nothing for {patience:?}")))
    }

    /// The address of its next line, `listening ADDR`.
    pub(super) fn next_address(&mut self, stop: &AtomicBool) -> Result<String> {
        let line = self.next_line(stop, START_PATIENCE)?.unwrap_or_default();
        match line.strip_prefix("listening ") {
            Some(address) => Ok(address.to_owned()),
            None => Err(self.failure("did not begin to listen")),
        }
    }

    /// Its output to the end, once it has ended well.
    pub(super) fn output(mut self, stop: &AtomicBool, patience: Duration) -> Result<String> {
        let mut output = String::new();
        while let Some(line) = self.next_line(stop, patience)? {
            output.push_str(&line);
            output.push('\n');
        }
        let status =
            self.child.wait().with_context(|| format!("cannot wait for tailcut {}", self.name))?;
        if matches!(status.code(), Some(0 | NOT_TRUSTWORTHY)) {
            Ok(output)
        } else {
            Err(self.failure(&format!("ended with {status}")))
        }
    }

    fn spawn(name: String, mut command: Command) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start tailcut {name}"))?;
        let stdout = child.stdout.take().expect("standard output is piped");
        let stderr = child.stderr.take().expect("standard error is piped");
        Ok(Self {
            name,
            child,
            lines: read_lines(stdout),
            complaints: Some(read_complaints(stderr)),
        })
    }

    fn failure(&mut self, what: &str) -> anyhow::Error {
        self.end();
        // A terminal interrupts all of its processes at once, so a child may go before this one is
        // told.
        let signal = self.child.wait().ok().and_then(|status| status.signal());
        if signal.is_some_and(|signal| [SIGINT, SIGTERM].contains(&signal)) {
            return anyhow!("interrupted");
        }
        let complaints =
            self.complaints.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        let complaints = complaints.trim();
        let separator = if complaints.is_empty() { "" } else { ": " };
        anyhow!("tailcut {} {what}{separator}{complaints}", self.name)
    }

    fn end(&mut self) {
        // Both fail only where the child has been reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// The lines of a pipe, read on a thread that ends with it.
fn read_lines(stdout: ChildStdout) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

fn read_complaints(stderr: ChildStderr) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut complaints = Vec::new();
        // What was read before an error is all that there is to tell.
        let _ = BufReader::new(stderr).read_to_end(&mut complaints);
        String::from_utf8_lossy(&complaints).into_owned()
    })
}

/// Longest time until an interruption is seen.
const TICK: Duration = Duration::from_millis(50);
/// A process that has not bound its ports by then will not.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// Exit code of a measurement that does not trust itself, which the demonstration judges by itself.
const NOT_TRUSTWORTHY: i32 = 3;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_dropped_process_is_gone() {
        let process = shell("exec tail -f /dev/null");
        let entry = entry(&process);
        assert!(entry.exists());
        drop(process);
        assert!(!entry.exists(), "neither running nor a zombie");
    }

    #[test]
    fn a_panic_leaves_no_process() {
        let process = shell("exec tail -f /dev/null");
        let entry = entry(&process);
        let unwound = thread::spawn(move || {
            let _process = process;
            std::panic::resume_unwind(Box::new("out"));
        });
        assert!(unwound.join().is_err());
        assert!(!entry.exists());
    }

    #[test]
    fn an_interruption_ends_the_wait() {
        let error =
            shell("exec tail -f /dev/null").output(&AtomicBool::new(true), FOREVER).unwrap_err();
        assert_eq!(error.to_string(), "interrupted");
    }

    #[test]
    fn silence_is_a_failure() {
        let error = shell("exec tail -f /dev/null")
            .output(&RUNNING, Duration::from_millis(60))
            .unwrap_err();
        assert_eq!(error.to_string(), "tailcut test said nothing for 60ms");
    }

    #[test]
    fn a_child_that_was_interrupted_is_no_failure_of_its_own() {
        // Not by SIGINT, which a child ignores where whoever started the tests ignores it.
        let error = shell("kill -TERM $$").output(&RUNNING, FOREVER).unwrap_err();
        assert_eq!(error.to_string(), "interrupted");
    }

    #[test]
    fn output_comes_whole() {
        assert_eq!(shell("echo one; echo two").output(&RUNNING, FOREVER).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn a_failure_says_what_the_child_said() {
        let error = shell("echo no such thing >&2; exit 5").output(&RUNNING, FOREVER).unwrap_err();
        assert_eq!(error.to_string(), "tailcut test ended with exit status: 5: no such thing");
    }

    #[test]
    fn an_address_follows_the_word_listening() {
        assert_eq!(
            shell("echo listening 127.0.0.1:1").next_address(&RUNNING).unwrap(),
            "127.0.0.1:1"
        );
        let error = shell("echo in use >&2").next_address(&RUNNING).unwrap_err();
        assert_eq!(error.to_string(), "tailcut test did not begin to listen: in use");
    }

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::spawn("test".to_owned(), command).unwrap()
    }

    fn entry(process: &Process) -> PathBuf {
        PathBuf::from(format!("/proc/{}", process.child.id()))
    }

    static RUNNING: AtomicBool = AtomicBool::new(false);
    const FOREVER: Duration = Duration::from_secs(60);
}
