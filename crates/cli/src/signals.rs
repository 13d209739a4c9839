//! SIGINT and SIGTERM, delivered as a call on a thread of its own.

use std::process;
use std::thread;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::screen;

/// Calls `stop` at the first SIGINT or SIGTERM. A second one ends the process at once, for a loop
/// that does not come to its end.
pub(crate) fn on_stop(stop: impl FnOnce() + Send + 'static) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot listen for signals")?;
    let wait = move || {
        let mut received = signals.forever();
        if received.next().is_some() {
            stop();
        }
        if received.next().is_some() {
            screen::restore();
            process::exit(1);
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .context("cannot start the thread for signals")?;
    Ok(())
}
