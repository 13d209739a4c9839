//! A turn of the endpoint: what has come is run in place and answered.
//!
//! | a request | then |
//! |---|---|
//! | is malformed, or no call (`MULTI`, `SUBSCRIBE`, ...) | rejected, with the reason |
//! | comes while the user may not be used | rejected, with the reason |
//! | writes, while clients are asked to pause | refused: overload; it has not run |
//! | else | its commands run, one after the other |
//! | wrote, and commands go to a log | its reply leaves in the next turn, when the log has been written |
//!
//! Invariant: a turn takes a bounded number of requests, and each is answered once.

use std::io;

use tailcut_bridge::resp::message;
use tailcut_bridge::{MESSAGE_LEN_MAX, Refusal};
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::{Driver, Turn, Wait};
use tailcut_proto::endpoint::{Endpoint, Metrics};
use tailcut_proto::node::{Node, Time};
use tailcut_proto::rpc::{DropReason, Event, RequestId, Rpc};

use crate::config::Config;

/// Store that runs commands.
pub(crate) trait Store {
    /// Checks whether calls may run now.
    ///
    /// # Errors
    ///
    /// Why not, for the client.
    fn admit(&mut self, now: Time) -> Result<(), String>;

    /// True if clients are asked to pause, and none may write.
    fn is_paused(&self) -> bool;

    /// True if commands go to a log, before which no reply to a write may leave.
    fn is_logging(&self) -> bool;

    /// Runs a command, its name first, and appends its reply.
    fn run(&mut self, command: &[&[u8]], is_resp3: bool, out: &mut Vec<u8>);
}

/// The endpoint, and what is between two of its turns.
#[derive(Debug)]
pub(crate) struct Service {
    /// The endpoint and its socket.
    driver: Driver<Endpoint>,
    /// The requests.
    desk: Desk,
}

/// The requests of one turn, and what they leave for the next.
#[derive(Debug, Default)]
struct Desk {
    /// Replies that wait for the log.
    held: Vec<(RequestId, Vec<u8>)>,
    /// There are more requests than a turn takes.
    has_more: bool,
    /// The server is about to end.
    is_stopping: bool,
    /// The counters so far.
    counts: Counts,
}

/// Counters of requests, by what has become of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Requests that have come.
    pub(crate) requests: u64,
    /// Commands that have run.
    pub(crate) commands: u64,
    /// Requests that were no commands.
    pub(crate) malformed: u64,
    /// Requests that cannot be called.
    pub(crate) forbidden: u64,
    /// Requests that the user may not make.
    pub(crate) denied: u64,
    /// Writes refused while clients are asked to pause.
    pub(crate) paused: u64,
    /// Requests refused since the server is about to end.
    pub(crate) stopped: u64,
    /// Replies that were errors.
    pub(crate) errors: u64,
    /// Replies that were too long.
    pub(crate) too_long: u64,
    /// Replies that waited for the log.
    pub(crate) logged: u64,
    /// Requests that were gone before they were answered.
    pub(crate) gone: u64,
}

impl Service {
    /// An endpoint at the configured address.
    ///
    /// # Errors
    ///
    /// What is wrong, for the log.
    pub(crate) fn open(config: &Config) -> Result<Self, String> {
        let opening = config.opening()?;
        // The event loop is Redis', so this driver never waits.
        let opened = Driver::new(Wait::Block { spin_ns: 0 }).and_then(|mut driver| {
            opening.add(&mut driver, config.listen)?;
            Ok(driver)
        });
        let driver = opened.map_err(|error| format!("listen {}: {error}", config.listen))?;
        Ok(Self { driver, desk: Desk::default() })
    }

    /// Its socket.
    pub(crate) fn port(&self) -> &impl Datapath {
        self.driver.port(0)
    }

    /// A turn: its time, and what has come.
    ///
    /// # Errors
    ///
    /// What makes the socket useless.
    pub(crate) fn turn(&mut self, store: &mut impl Store) -> io::Result<Turn> {
        let Self { driver, desk } = self;
        driver.turn_with(|_, endpoint, now| desk.serve(endpoint, now, store))
    }

    /// True if there is something to do before anything comes.
    pub(crate) fn wants_turn(&self) -> bool {
        self.desk.has_more || self.is_holding() || self.driver.keeps_turning()
    }

    /// True if replies wait for the next turn, with the log of commands written in between.
    pub(crate) fn is_holding(&self) -> bool {
        !self.desk.held.is_empty()
    }

    /// Latest time at which a turn is wanted.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.driver.node(0).poll_timeout()
    }

    /// The server is about to end: what has run is answered, nothing new is taken, and routers hear
    /// of it. Takes [`ENDING_NS_MAX`] at most.
    pub(crate) fn end(&mut self, store: &mut impl Store) -> io::Result<()> {
        let mut now = self.driver.clock().now();
        let end_at = now + ENDING_NS_MAX;
        self.desk.is_stopping = true;
        self.driver.node_mut(0).stop(now);
        self.driver.node_mut(0).say_farewell();
        loop {
            now = self.turn(store)?.now;
            self.driver.flush_all(now);
            let endpoint = self.driver.node(0);
            let is_busy = self.wants_turn() || endpoint.replies_under_way() > 0;
            if !is_busy || now >= end_at {
                return Ok(());
            }
            self.driver.wait(None, Some(end_at))?;
        }
    }

    /// The server goes on after all.
    pub(crate) fn go_on(&mut self) {
        if std::mem::take(&mut self.desk.is_stopping) {
            self.driver.node_mut(0).serve_again();
        }
    }

    /// The counters so far.
    pub(crate) fn counts(&self) -> (Counts, Metrics) {
        (self.desk.counts, self.driver.node(0).metrics())
    }
}

impl Desk {
    fn serve(&mut self, endpoint: &mut Endpoint, now: Time, store: &mut impl Store) {
        for (id, reply) in self.held.drain(..) {
            // A request that is gone needs no answer.
            let _ = endpoint.reply(now, id, reply);
        }
        for _ in 0..TURN_REQUESTS_MAX {
            match endpoint.poll_event() {
                Some(Event::Request { id, payload, .. }) => {
                    self.take(endpoint, now, (id, payload), store);
                }
                // Nothing waits here that could be given up.
                Some(_) => {}
                None => {
                    self.has_more = false;
                    return;
                }
            }
        }
        self.has_more = true;
    }

    fn take(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        (id, payload): (RequestId, Vec<u8>),
        store: &mut impl Store,
    ) {
        self.counts.requests += 1;
        if !endpoint.is_waiting(id) {
            self.counts.gone += 1;
            endpoint.recycle(payload);
            return;
        }
        if self.is_stopping {
            self.counts.stopped += 1;
            endpoint.recycle(payload);
            // A request that is gone needs no answer; nor do those below.
            let _ = endpoint.refuse(now, id, DropReason::Stopping);
            return;
        }
        match self.read(&payload, now, store) {
            Ok(commands) if !commands.is_idempotent && store.is_paused() => {
                self.counts.paused += 1;
                let _ = endpoint.refuse(now, id, DropReason::Overload);
            }
            Ok(commands) => {
                let reply = self.run(&payload, commands, endpoint.buffer(), store);
                let has_written = !commands.is_idempotent;
                self.answer(endpoint, now, (id, reply), has_written && store.is_logging());
            }
            Err(refusal) => {
                let _ = endpoint.reject(now, id, refusal.code, refusal.text.as_bytes());
            }
        }
        endpoint.recycle(payload);
    }

    fn read(
        &mut self,
        payload: &[u8],
        now: Time,
        store: &mut impl Store,
    ) -> Result<message::Commands, Refusal> {
        if let Err(text) = store.admit(now) {
            self.counts.denied += 1;
            return Err(Refusal { code: Refusal::FORBIDDEN, text });
        }
        let read = message::read(payload).map_err(Refusal::from).and_then(|commands| {
            let text = || "MULTI cannot be called: commands run here one by one".to_owned();
            let refusal = |text| Refusal { code: Refusal::FORBIDDEN, text };
            if commands.is_transaction { Err(refusal(text())) } else { Ok(commands) }
        });
        read.inspect_err(|refusal| {
            let is_malformed = refusal.code == Refusal::MALFORMED;
            self.counts.malformed += u64::from(is_malformed);
            self.counts.forbidden += u64::from(!is_malformed);
        })
    }

    fn run(
        &mut self,
        payload: &[u8],
        commands: message::Commands,
        mut reply: Vec<u8>,
        store: &mut impl Store,
    ) -> Vec<u8> {
        for command in commands.of(payload) {
            let words: Vec<&[u8]> = command.arguments().collect();
            let start = reply.len();
            store.run(&words, commands.is_resp3, &mut reply);
            self.counts.commands += 1;
            self.counts.errors += u64::from(reply.get(start) == Some(&b'-'));
        }
        reply
    }

    fn answer(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        (id, reply): (RequestId, Vec<u8>),
        waits_for_log: bool,
    ) {
        if reply.len() > MESSAGE_LEN_MAX {
            self.counts.too_long += 1;
            endpoint.recycle(reply);
            let _ = endpoint.refuse(now, id, DropReason::TooLarge);
        } else if waits_for_log {
            self.counts.logged += 1;
            self.held.push((id, reply));
        } else {
            let _ = endpoint.reply(now, id, reply);
        }
    }
}

/// Requests of a turn: the other clients of the event loop wait for as many commands at most,
/// unless they are runs.
const TURN_REQUESTS_MAX: usize = 64;

/// Longest time that the server's end may wait for clients to take their replies.
const ENDING_NS_MAX: u64 = 500_000_000;
