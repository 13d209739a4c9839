//! The life of a command that serves until it is told to end: what signals ask of it, how it
//! drains, and what it tells systemd.
//!
//! | signal | the first | another |
//! |---|---|---|
//! | SIGINT, SIGTERM | it drains, and ends when nothing is under way or the limit has passed | it ends at once, status 1 |
//! | SIGHUP | it reloads what it can, or nothing happens | the same |
//!
//! The handlers set flags, which a loop reads each turn, so that a loop hears of them also where it
//! leaves no core to any other thread. A thread beside it wakes a loop that sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use tailcut_measure::quantity::parse_duration_ns;
use tailcut_net::affinity;
use tailcut_proto::node::Time;

/// How a command ends.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct LifeFlags {
    /// How long SIGINT or SIGTERM lets what is under way come to its end. Nothing new is taken
    /// meanwhile; a second signal ends the process at once
    #[arg(long = "drain", value_name = "TIME", default_value = "5s", value_parser = parse_duration_ns)]
    pub(crate) drain_ns: u64,
}

/// The life of one process.
#[derive(Debug)]
pub(crate) struct Life {
    /// Set by a signal handler.
    stop: Arc<AtomicBool>,
    drain_ns: u64,
    drain: Option<Drain>,
    /// How often systemd's watchdog wants to hear of the loop, if it does.
    beat_ns: Option<u64>,
    /// When it is told next.
    beat_at: Time,
}

/// A drain under way.
#[derive(Clone, Copy, Debug)]
struct Drain {
    /// When it is given up.
    ends_at: Time,
    /// Since when nothing has been under way.
    quiet_since: Time,
    /// Something was under way when it was looked at last.
    is_busy: bool,
}

impl Life {
    pub(crate) fn new(flags: LifeFlags) -> Self {
        // Thrice as often as it must be.
        let beat_ns = sd_notify::watchdog_enabled().map(|limit| limit.as_nanos() as u64 / 3);
        let beat_at = if beat_ns.is_some() { 0 } else { Time::MAX };
        Self { stop: Arc::default(), drain_ns: flags.drain_ns, drain: None, beat_ns, beat_at }
    }

    /// What a signal sets.
    pub(crate) fn stop_flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Begins to listen for signals; `wake` ends the sleep of the loop. `reload` runs on a thread of its own
    /// for each SIGHUP.
    pub(crate) fn heed_signals(
        &self,
        wake: impl Fn() + Send + 'static,
        mut reload: impl FnMut() + Send + 'static,
    ) -> Result<()> {
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first one finds the flag unset.
            flag::register_conditional_shutdown(signal, 1, self.stop.clone())
                .and_then(|_| flag::register(signal, self.stop.clone()))
                .context("cannot listen for signals")?;
        }
        let mut signals =
            Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot listen for signals")?;
        let stop = self.stop.clone();
        let work = move || {
            leave_real_time();
            for signal in signals.forever() {
                if signal == SIGHUP && !stop.load(Ordering::Relaxed) {
                    tell_reloading();
                    reload();
                    tell(&[NotifyState::Ready]);
                } else {
                    wake();
                }
            }
        };
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(work)
            .context("cannot start the thread for signals")?;
        Ok(())
    }

    /// Tells systemd that it serves.
    pub(crate) fn announce_ready(&self) {
        tell(&[NotifyState::Ready]);
    }

    /// Tells systemd's watchdog that the loop lives, when that is due.
    #[inline]
    pub(crate) fn beat(&mut self, now: Time) {
        if now >= self.beat_at {
            tell(&[NotifyState::Watchdog]);
            self.beat_at = now.saturating_add(self.beat_ns.unwrap_or(Time::MAX));
        }
    }

    /// Whether nothing new is to be taken.
    #[inline]
    pub(crate) fn is_draining(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether it is over: to call after each turn. `is_busy` tells whether anything is under way;
    /// it is asked only while it drains. The first call that finds a drain asked for begins it.
    #[inline]
    pub(crate) fn is_over(&mut self, now: Time, is_busy: impl FnOnce() -> bool) -> bool {
        self.beat(now);
        self.is_draining() && self.drain_on(now, is_busy())
    }

    fn drain_on(&mut self, now: Time, is_busy: bool) -> bool {
        let drain = self.drain.get_or_insert_with(|| {
            tracing::info!("draining");
            tell(&[NotifyState::Stopping]);
            Drain { ends_at: now.saturating_add(self.drain_ns), quiet_since: now, is_busy }
        });
        // Also when it has just become quiet: what ended last may have been sent only now.
        if is_busy || drain.is_busy {
            drain.quiet_since = now;
        }
        drain.is_busy = is_busy;
        now >= drain.ends_at || !is_busy && now >= drain.quiet_since.saturating_add(LINGER_NS)
    }

    /// When it wants to be asked again though nothing happens.
    pub(crate) fn look_at(&self) -> Option<Time> {
        let beat_at = self.beat_ns.map(|_| self.beat_at);
        let ends_at = self.drain.map(|drain| {
            let quiet_at = drain.quiet_since.saturating_add(LINGER_NS);
            if drain.is_busy { drain.ends_at } else { drain.ends_at.min(quiet_at) }
        });
        ends_at.into_iter().chain(beat_at).min()
    }

    /// How it has ended.
    ///
    /// # Errors
    ///
    /// That the limit passed first, and what was left.
    pub(crate) fn end(&self, left: &str) -> Result<()> {
        if self.drain.is_some_and(|drain| drain.is_busy) {
            let limit = Duration::from_nanos(self.drain_ns);
            bail!("it has not drained within {limit:?}: {left}; --drain gives it longer");
        }
        Ok(())
    }
}

/// Tells systemd, where it has started this process.
fn tell(states: &[NotifyState<'_>]) {
    // Nobody is helped by a service that ends because systemd does not listen.
    let _ = sd_notify::notify(states);
}

fn tell_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        // Without the time systemd would not take it.
        Err(_) => tell(&[NotifyState::Status("reloading")]),
    }
}

/// Threads beside a loop that polls at real-time priority would never run if they had to wait for
/// it as equals; the kernel keeps a share of each core for normal ones.
pub(crate) fn leave_real_time() {
    // Threads that are normal already stay so, and one that must not change is no worse off.
    let _ = affinity::set_normal();
}

/// How long it stays when nothing is under way: who has lost the last reply asks again.
const LINGER_NS: u64 = 50_000_000;
