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
//!
//! A command has one loop or several, each on a thread, with one life. They drain together: each
//! goes on until none has anything under way, because all share a port, and a socket that is closed
//! hands its sessions to another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use tailcut_measure::quantity::parse_duration_ns;
use tailcut_net::affinity;
use tailcut_net::driver::Waker;
use tailcut_proto::node::Time;

/// How a command ends.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct LifeFlags {
    /// How long work in progress may take to finish after SIGINT or SIGTERM. Nothing new is
    /// accepted meanwhile, and a second signal ends the process at once
    #[arg(long = "drain", value_name = "TIME", default_value = "5s", value_parser = parse_duration_ns)]
    pub(crate) drain_ns: u64,
}

/// The life of one process, as one of its loops sees it.
#[derive(Debug)]
pub(crate) struct Life {
    /// State that its loops share.
    shared: Arc<Shared>,
    /// The loop's bit in masks.
    own: u64,
    /// The loop's drain, once it has begun.
    drain: Option<Drain>,
    /// Time of the loop's next beat for systemd's watchdog.
    beat_at: Time,
}

/// The loops of one process.
#[derive(Debug)]
struct Shared {
    /// Set by a signal handler.
    stop: Arc<AtomicBool>,
    /// A loop has failed: the others end at once.
    has_failed: AtomicBool,
    /// Limit of a drain.
    drain_ns: u64,
    /// Interval of beats for systemd's watchdog, ns: a third of its limit; `None` without one.
    beat_ns: Option<u64>,
    /// A bit for each loop.
    all: u64,
    /// Loops that may have something under way.
    busy: AtomicU64,
    /// Loops that have turned since the watchdog was told last.
    beaten: AtomicU64,
    /// Wakers that end the sleep of each loop.
    wakers: Vec<Waker>,
}

/// A drain under way.
#[derive(Clone, Copy, Debug)]
struct Drain {
    /// Time at which it is given up.
    ends_at: Time,
    /// Since when nothing has been under way in any loop.
    quiet_since: Time,
    /// Something was under way in some loop when it was looked at last.
    is_busy: bool,
}

impl Life {
    /// Life of a process with one loop, which nothing needs to wake.
    pub(crate) fn new(flags: LifeFlags) -> Self {
        Self::start(flags, Vec::new(), 1).remove(0)
    }

    /// Lives of a process with a loop for each waker, at most 64.
    pub(crate) fn of_loops(flags: LifeFlags, wakers: Vec<Waker>) -> Vec<Self> {
        let count = wakers.len();
        Self::start(flags, wakers, count)
    }

    fn start(flags: LifeFlags, wakers: Vec<Waker>, count: usize) -> Vec<Self> {
        // Thrice as often as it must be.
        let beat_ns = sd_notify::watchdog_enabled().map(|limit| limit.as_nanos() as u64 / 3);
        let beat_at = if beat_ns.is_some() { 0 } else { Time::MAX };
        let all = u64::MAX >> (u64::BITS as usize - count);
        let shared = Arc::new(Shared {
            stop: Arc::default(),
            has_failed: AtomicBool::new(false),
            drain_ns: flags.drain_ns,
            beat_ns,
            all,
            busy: AtomicU64::new(all),
            beaten: AtomicU64::new(0),
            wakers,
        });
        let of = |index| Self { shared: shared.clone(), own: FIRST << index, drain: None, beat_at };
        (0..count).map(of).collect()
    }

    /// Flag that a signal sets.
    pub(crate) fn stop_flag(&self) -> Arc<AtomicBool> {
        self.shared.stop.clone()
    }

    /// Function that ends the sleep of all loops.
    pub(crate) fn wake(&self) -> impl Fn() + Send + use<> {
        let shared = self.shared.clone();
        move || shared.wake_all()
    }

    /// Begins to listen for signals; `wake` ends the sleep of the loops. `reload` runs on a thread
    /// of its own for each SIGHUP.
    pub(crate) fn heed_signals(
        &self,
        wake: impl Fn() + Send + 'static,
        mut reload: impl FnMut() + Send + 'static,
    ) -> Result<()> {
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first one finds the flag unset.
            flag::register_conditional_shutdown(signal, 1, self.shared.stop.clone())
                .and_then(|_| flag::register(signal, self.shared.stop.clone()))
                .context("cannot listen for signals")?;
        }
        let mut signals =
            Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot listen for signals")?;
        let stop = self.shared.stop.clone();
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

    /// Tells systemd's watchdog that the loops live, when that is due and all do.
    #[inline]
    pub(crate) fn beat(&mut self, now: Time) {
        if now >= self.beat_at {
            self.beat_at = now.saturating_add(self.shared.beat_ns.unwrap_or(Time::MAX));
            if self.shared.beaten.fetch_or(self.own, Ordering::Relaxed) | self.own
                == self.shared.all
            {
                self.shared.beaten.store(0, Ordering::Relaxed);
                tell(&[NotifyState::Watchdog]);
            }
        }
    }

    /// True if nothing new is to be taken.
    #[inline]
    pub(crate) fn is_draining(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// True if it is over: to call after each turn. `is_busy` tells whether anything is under way;
    /// it is asked only while it drains. The first call that finds a drain asked for begins it.
    #[inline]
    pub(crate) fn is_over(&mut self, now: Time, is_busy: impl FnOnce() -> bool) -> bool {
        self.beat(now);
        self.is_draining() && self.drain_on(now, is_busy())
    }

    fn drain_on(&mut self, now: Time, is_busy: bool) -> bool {
        let is_busy = self.shared.note(self.own, is_busy);
        let drain = self.drain.get_or_insert_with(|| {
            if self.own == FIRST {
                tracing::info!("draining");
                tell(&[NotifyState::Stopping]);
            }
            let ends_at = now.saturating_add(self.shared.drain_ns);
            Drain { ends_at, quiet_since: now, is_busy }
        });
        // Also when it has just become quiet: what ended last may have been sent only now.
        if is_busy || drain.is_busy {
            drain.quiet_since = now;
        }
        drain.is_busy = is_busy;
        now >= drain.ends_at
            || !is_busy && now >= drain.quiet_since.saturating_add(LINGER_NS)
            || self.shared.has_failed.load(Ordering::Relaxed)
    }

    /// Time at which it wants to be asked again though nothing happens.
    pub(crate) fn look_at(&self) -> Option<Time> {
        let beat_at = self.shared.beat_ns.map(|_| self.beat_at);
        let ends_at = self.drain.map(|drain| {
            let quiet_at = drain.quiet_since.saturating_add(LINGER_NS);
            if drain.is_busy { drain.ends_at } else { drain.ends_at.min(quiet_at) }
        });
        ends_at.into_iter().chain(beat_at).min()
    }

    /// All loops of the process.
    pub(crate) fn loops(&self) -> Loops {
        Loops(self.shared.clone())
    }

    /// Result of its drain.
    ///
    /// # Errors
    ///
    /// That the limit passed first, and what was left.
    pub(crate) fn end(&self, left: &str) -> Result<()> {
        if self.drain.is_some_and(|drain| drain.is_busy) {
            let limit = Duration::from_nanos(self.shared.drain_ns);
            bail!("it has not drained within {limit:?}: {left}; --drain gives it longer");
        }
        Ok(())
    }
}

/// The loops of a process, to run them.
#[derive(Debug)]
pub(crate) struct Loops(Arc<Shared>);

impl Loops {
    /// Runs loops, each on a thread, the first of them on this one, until all have ended. One that
    /// fails or panics ends the others at once.
    ///
    /// # Errors
    ///
    /// What the first that failed says.
    pub(crate) fn run<L: Send>(
        &self,
        loops: &mut [L],
        work: impl Fn(&mut L) -> Result<()> + Sync,
    ) -> Result<()> {
        let Some((first, others)) = loops.split_first_mut() else { return Ok(()) };
        // Ends the others also where it fails to return, or one gets no thread.
        let work = |one: &mut L| {
            let mut guard = Guard { shared: &self.0, is_armed: true };
            let ended = work(one);
            guard.is_armed = ended.is_err();
            ended
        };
        let work = &work;
        thread::scope(|scope| {
            let mut guard = Guard { shared: &self.0, is_armed: true };
            let mut running = Vec::new();
            for (index, one) in (1..).zip(others) {
                let builder = thread::Builder::new().name(format!("loop-{index}"));
                let thread = builder.spawn_scoped(scope, move || work(one));
                running.push(thread.context("cannot start a thread")?);
            }
            let ended = work(first);
            guard.is_armed = false;
            let others = running.into_iter().map(|thread| match thread.join() {
                Ok(ended) => ended,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            // Those that end because of another have not failed themselves.
            others.fold(ended, Result::and)
        })
    }
}

impl Shared {
    /// Takes note whether anything is under way in a loop; returns whether there is in any.
    fn note(&self, own: u64, is_busy: bool) -> bool {
        if is_busy {
            self.busy.fetch_or(own, Ordering::Relaxed);
            return true;
        }
        let before = self.busy.fetch_and(!own, Ordering::Relaxed);
        if before == own && self.all != own {
            // The others wait for nothing else.
            self.wake_all();
        }
        before & !own != 0
    }

    fn wake_all(&self) {
        self.wakers.iter().for_each(Waker::wake);
    }
}

/// Ends all loops when it is dropped armed.
struct Guard<'a> {
    shared: &'a Shared,
    is_armed: bool,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            self.shared.has_failed.store(true, Ordering::Relaxed);
            self.shared.stop.store(true, Ordering::Relaxed);
            self.shared.wake_all();
        }
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

/// The loop that speaks for all.
const FIRST: u64 = 1;

/// Time that it stays when nothing is under way: who has lost the last reply asks again.
const LINGER_NS: u64 = 50_000_000;
