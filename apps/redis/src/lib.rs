//! tailcut inside Redis and Valkey: `loadmodule tailcut.so`.
//!
//! An R2P2 endpoint in the server's own event loop. Whoever calls it says one command, or a run of
//! writes, as clients of Redis write them; the command runs in place, without a second process or
//! connection, and its reply's bytes are the call's reply. So routers place calls on Redis itself,
//! and `tailcut gateway` and `tailcut measure` speak to it as they speak to a bridge.
//!
//! | Redis tells | the module |
//! |---|---|
//! | the socket has something, or the timer has ended | notes it |
//! | the loop is about to sleep | takes a turn of the endpoint, if anything was noted |
//! | the server is about to end | answers what has run, and tells routers |
//! | INFO is asked for | writes its section |
//!
//! Turns are taken where the loop is about to sleep, since what runs there is propagated to
//! replicas as it ends, and the log of commands is written next. While a slow script has Redis look
//! after its clients, no turn is taken.

mod api;
mod config;
mod service;
mod store;

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tailcut_net::datapath::Datapath;
use tailcut_proto::endpoint::Metrics;
use tailcut_proto::node::Time;
use tailcut_proto::sealed::SealMetrics;

use self::api::{Api, Arguments, Context, Info, ServerEvent};
use self::config::Config;
use self::service::{Counts, Service};
use self::store::Redis;

/// The module, while it is loaded.
#[derive(Debug)]
struct Module {
    /// Redis' functions.
    api: Api,
    /// Server that runs commands.
    redis: Redis,
    /// The endpoint.
    service: Service,
    /// Ends the loop's sleep at a deadline.
    timer: OwnedFd,
    /// Time at which it does, if it does.
    armed: Option<Time>,
    /// The loop never sleeps.
    is_polling: bool,
    /// The loop does not sleep until a turn has been taken.
    is_hurried: bool,
    /// The socket has failed for good: there are no more turns.
    is_useless: bool,
}

thread_local! {
    /// On the thread of Redis that runs commands. Not dropped where that ends: Redis is half gone
    /// then.
    static MODULE: RefCell<Option<ManuallyDrop<Module>>> = const { RefCell::new(None) };
    /// A turn is to be taken.
    static IS_DUE: Cell<bool> = const { Cell::new(false) };
    /// Contents of INFO, as of the last turn: a call may ask for INFO itself.
    static SHOWN: RefCell<Option<(String, Counts, Metrics)>> = const { RefCell::new(None) };
}

/// Loads the module; Redis calls it.
#[allow(unsafe_code, reason = "a symbol that Redis looks for")]
#[unsafe(no_mangle)]
pub extern "C" fn RedisModule_OnLoad(
    context: Context<'_>,
    arguments: Arguments<'_>,
    count: c_int,
) -> c_int {
    let api = match Api::open(&context, c"tailcut", VERSION) {
        Ok(api) => api,
        Err(problem) => {
            // Redis has told no function yet by which to write to its log, but its own standard
            // error is there.
            eprintln!("tailcut: {problem}");
            return api::FAILED;
        }
    };
    let loaded = panic::catch_unwind(AssertUnwindSafe(|| {
        let config = Config::read(&api.arguments(&arguments, count))?;
        load(api, &context, &config)
    }));
    match loaded {
        Ok(Ok(())) => api::OK,
        Ok(Err(problem)) => {
            api.log(c"warning", &format!("tailcut: {problem}"));
            api::FAILED
        }
        Err(_) => api::FAILED,
    }
}

/// Unloads the module; Redis calls it.
#[allow(unsafe_code, reason = "a symbol that Redis looks for")]
#[unsafe(no_mangle)]
pub extern "C" fn RedisModule_OnUnload(_context: Context<'_>) -> c_int {
    guarded(|| {
        let Some(module) = MODULE.take() else { return };
        let mut module = ManuallyDrop::into_inner(module);
        // Routers place nothing here from now on.
        let _ = module.service.end(&mut module.redis);
        // Threads that read files of keys again end a moment later. Their code is still there: a
        // library is mapped as long as a thread has values of its own to drop, as Redis' has in
        // `SHOWN`.
        module.close();
    });
    api::OK
}

fn load(api: Api, context: &Context<'_>, config: &Config) -> Result<(), String> {
    let module = open(api, context, config)?;
    let listen = module.service.port().local_address().to_string();
    api.register_info(context, handle_info);
    api.log(c"notice", &format!("tailcut: calls are taken at {listen}"));
    let (counts, metrics) = module.service.counts();
    SHOWN.set(Some((listen, counts, metrics)));
    MODULE.set(Some(ManuallyDrop::new(module)));
    Ok(())
}

fn open(api: Api, context: &Context<'_>, config: &Config) -> Result<Module, String> {
    let redis = Redis::open(api, context, config.user.clone())?;
    let service = Service::open(config)?;
    let timer =
        timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC);
    let timer = timer.map_err(|error| format!("a timer: {error}"))?;
    // A socket has room nearly always, so that the loop does not sleep.
    let room = if config.is_polling { api::WRITABLE } else { 0 };
    api.watch(service.port().as_fd().as_raw_fd(), api::READABLE | room, handle_ready)?;
    let is_polling = config.is_polling;
    let module = Module {
        api,
        redis,
        service,
        timer,
        armed: None,
        is_polling,
        is_hurried: false,
        is_useless: false,
    };
    // Last what Redis may call back: a module that is not loaded after all is no longer there.
    let ready = api
        .watch(module.timer.as_raw_fd(), api::READABLE, handle_ready)
        .and_then(|()| api.subscribe(context, ServerEvent::EVENT_LOOP, handle_turn))
        .and_then(|()| api.subscribe(context, ServerEvent::SHUTDOWN, handle_shutdown));
    match ready {
        Ok(()) => Ok(module),
        Err(problem) => {
            module.unwatch();
            Err(problem)
        }
    }
}

impl Module {
    fn turn(&mut self) {
        if self.is_useless || !self.is_polling && !IS_DUE.replace(false) && !self.is_hurried {
            return;
        }
        // Redis has told of its end, and goes on after all.
        self.service.go_on();
        self.redis.begin();
        match self.take_turns() {
            Ok(now) => self.settle(now),
            Err(error) => {
                self.api.log(c"warning", &format!("tailcut: the socket is useless: {error}"));
                self.unwatch();
                self.is_useless = true;
            }
        }
    }

    /// One turn; or, where the loop never sleeps, as many as find something and a few more, since a
    /// round of Redis' loop costs as much as several of them.
    fn take_turns(&mut self) -> io::Result<Time> {
        let mut turn = self.service.turn(&mut self.redis)?;
        let mut idle = 0;
        for _ in 0..if self.is_polling { TURNS_MAX } else { 0 } {
            idle = if turn.received == 0 { idle + 1 } else { 0 };
            // Replies that are held wait for the log of commands, which Redis writes once this
            // returns.
            if idle == IDLE_TURNS_MAX || self.service.is_holding() {
                break;
            }
            turn = self.service.turn(&mut self.redis)?;
        }
        Ok(turn.now)
    }

    /// Sees to it that the next turn comes.
    fn settle(&mut self, now: Time) {
        self.show();
        if self.is_polling {
            return;
        }
        let is_hurried = self.service.wants_turn();
        if is_hurried != self.is_hurried {
            let fd = self.service.port().as_fd().as_raw_fd();
            if !is_hurried {
                self.api.unwatch(fd, api::WRITABLE);
            } else if let Err(problem) = self.api.watch(fd, api::WRITABLE, handle_ready) {
                self.api.log(c"warning", &format!("tailcut: {problem}"));
            }
            self.is_hurried = is_hurried;
        }
        let deadline = self.service.next_deadline();
        let is_over = self.armed.is_some_and(|armed| armed <= now);
        let is_earlier =
            deadline.is_some_and(|deadline| self.armed.is_none_or(|armed| deadline < armed));
        if is_over || is_earlier {
            self.arm(now, deadline);
        }
    }

    /// Sets the timer, or stops it.
    fn arm(&mut self, now: Time, deadline: Option<Time>) {
        // Zero would stop it.
        let left = deadline.map_or(0, |deadline| deadline.saturating_sub(now).max(1));
        let left = Duration::from_nanos(left);
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let timer = Itimerspec { it_interval: zero, it_value: value };
        self.armed = deadline;
        if let Err(error) = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timer) {
            self.api.log(c"warning", &format!("tailcut: the timer: {error}"));
        }
    }

    /// Keeps the counters for INFO.
    fn show(&self) {
        SHOWN.with_borrow_mut(|shown| {
            if let Some((_, counts, metrics)) = shown {
                (*counts, *metrics) = self.service.counts();
            }
        });
    }

    fn unwatch(&self) {
        let both = api::READABLE | api::WRITABLE;
        self.api.unwatch(self.service.port().as_fd().as_raw_fd(), both);
        self.api.unwatch(self.timer.as_raw_fd(), both);
    }

    fn close(self) {
        self.unwatch();
        SHOWN.set(None);
    }
}

/// Notes that a turn is to be taken.
extern "C" fn handle_ready(_fd: c_int, _data: *mut c_void, _mask: c_int) {
    IS_DUE.set(true);
}

/// Takes a turn, if one is due.
extern "C" fn handle_turn(_: Context<'_>, _: ServerEvent, subevent: u64, _: *mut c_void) {
    if subevent == ServerEvent::BEFORE_SLEEP {
        with_module(Module::turn);
    }
}

/// Answers what has run before the server ends.
extern "C" fn handle_shutdown(_: Context<'_>, _: ServerEvent, _: u64, _: *mut c_void) {
    with_module(|module| {
        // What makes the socket useless has nobody left to be told of.
        let _ = module.service.end(&mut module.redis);
        module.show();
    });
}

/// Writes the module's section of INFO.
extern "C" fn handle_info(info: Info<'_>, _for_crash_report: c_int) {
    guarded(|| {
        SHOWN.with_borrow(|shown| {
            let (Some(api), Some((listen, counts, metrics))) = (Api::opened(), shown) else {
                return;
            };
            api.write_info(&info, ("listen", listen), named(counts, metrics));
        });
    });
}

/// The counters by their names.
fn named(counts: &Counts, metrics: &Metrics) -> impl Iterator<Item = (&'static str, u64)> {
    let Counts {
        requests,
        commands,
        malformed,
        forbidden,
        denied,
        paused,
        stopped,
        errors,
        too_long,
        logged,
        gone,
    } = *counts;
    let own = [
        ("requests", requests),
        ("commands", commands),
        ("malformed", malformed),
        ("forbidden", forbidden),
        ("denied", denied),
        ("paused", paused),
        ("stopped", stopped),
        ("errors", errors),
        ("too_long", too_long),
        ("logged", logged),
        ("gone", gone),
    ];
    let endpoint = metrics.r2p2().map(|metrics| {
        let common = &metrics.common;
        [
            ("datagrams_in", common.datagrams_in),
            ("datagrams_out", common.datagrams_out),
            ("datagrams_malformed", metrics.malformed.iter().sum()),
            ("protocol_violation", common.protocol_violation),
            ("repeated", common.repeated),
            ("drops", common.drops.iter().sum()),
            ("partials_expired", common.partials_expired),
            ("unanswered", common.unanswered),
            ("resent", metrics.resent),
            ("feedback", metrics.feedback),
            ("validations", metrics.validations),
            ("amplification_limited", common.amplification_limited),
        ]
    });
    let seal = metrics.r2p2().map(|metrics| of_seal(&metrics.seal));
    let endpoint = endpoint.into_iter().flatten();
    own.into_iter().chain(endpoint).chain(seal.into_iter().flatten())
}

/// Counters of what a server's seal has dropped and refused.
fn of_seal(metrics: &SealMetrics) -> [(&'static str, u64); 11] {
    [
        ("seal_unsealed", metrics.unsealed),
        ("seal_unknown_keys", metrics.unknown_keys),
        ("seal_forged", metrics.forged),
        ("seal_replayed", metrics.replayed),
        ("seal_misdirected", metrics.misdirected),
        ("seal_unnamed", metrics.unnamed),
        ("seal_stale_sessions", metrics.stale_sessions),
        ("seal_ahead", metrics.ahead),
        ("seal_unsealable", metrics.unsealable),
        ("seal_denied", metrics.denied),
        ("seal_no_key_sent", metrics.no_key_sent),
    ]
}

/// Calls the module, unless it is in a call itself.
fn with_module(work: impl FnOnce(&mut Module)) {
    guarded(|| {
        MODULE.with(|module| {
            if let Ok(mut module) = module.try_borrow_mut()
                && let Some(module) = module.as_mut()
            {
                work(module);
            }
        });
    });
}

/// A panic ends the module, not the server.
fn guarded(work: impl FnOnce()) {
    if panic::catch_unwind(AssertUnwindSafe(work)).is_ok() {
        return;
    }
    if let Some(module) = MODULE.take() {
        let module = ManuallyDrop::into_inner(module);
        module.api.log(c"warning", "tailcut: a defect: the module takes no more calls");
        module.close();
    }
}

/// Turns of a round of Redis' loop that never sleeps, for which its other clients wait.
const TURNS_MAX: usize = 64;

/// Turns in succession that find nothing, of these: some 5 us.
const IDLE_TURNS_MAX: usize = 16;

/// The module's version, as Redis shows it.
const VERSION: c_int = 1;
