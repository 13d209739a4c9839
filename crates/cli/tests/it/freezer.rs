//! Freezes a process for a part of every period, as a garbage collection or a noisy neighbour
//! would.

use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Freezes until it is dropped; the process runs on then.
pub(crate) struct Freezer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Freezer {
    /// Process `pid` pauses for `frozen` at the end of each `period`.
    pub(crate) fn start(pid: u32, period: Duration, frozen: Duration) -> Self {
        let (stop, stopped) = channel::<()>();
        let runs_on =
            move |pause: Duration| stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout);
        let thread = std::thread::spawn(move || {
            while runs_on(period - frozen) {
                signal(pid, "STOP");
                let goes_on = runs_on(frozen);
                signal(pid, "CONT");
                if !goes_on {
                    break;
                }
            }
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed.
            let _ = thread.join();
        }
    }
}

fn signal(pid: u32, name: &str) {
    // It may have ended.
    let _ = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
}
