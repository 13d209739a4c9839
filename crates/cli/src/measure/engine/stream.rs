//! A thread's connections over TCP or TLS.
//!
//! Replies on a stream come in the order of requests, so each connection keeps a queue of what it waits for. A request that is given
//! up stays in the queue until its reply comes or the connection ends, because only so does the next reply find its own request.
//!
//! | a connection | then |
//! |---|---|
//! | has ended, or says what is no reply | what it waited for is lost; it is opened again after a while |
//! | has been silent for a whole timeout | it is closed and opened again |

use std::collections::VecDeque;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use tailcut_measure::app::{After, App, Expected, Outcome, Preload, Replies, Step};
use tailcut_measure::load::Sample;
use tailcut_measure::recorder::Failure;
use tailcut_measure::slices::Slices;
use tailcut_net::clock::Clock;
use tailcut_net::driver::Wait;
use tailcut_net::stream::{Connection, ConnectionId, Event, StreamConfig, Streams, TlsClient};
use tailcut_proto::node::Time;

use super::{Carries, Expiries, Plan};
use crate::measure::job::ClientCounts;

/// What is waited for on a connection.
struct Pending {
    what: Asked,
    expected: Expected,
}

enum Asked {
    /// A request of the load.
    Load(Sample),
    /// A request of the load that has been given up.
    GivenUp,
    /// The answer to the greeting.
    Greeting,
    /// A request that fills the store.
    Preload,
}

/// A place for a connection, which is opened again when it ends.
struct Lane {
    target: SocketAddr,
    id: Option<ConnectionId>,
    /// It can carry requests of the load.
    is_open: bool,
    /// It is among those that have room.
    is_ready: bool,
    /// When it may be opened again.
    open_at: Time,
    /// When something came last.
    heard_at: Time,
    replies: Replies,
    queue: VecDeque<Pending>,
    /// Number of the first of the queue, counted over the lane's life.
    first: u64,
    /// Keys that its target is still to be filled with.
    preload: std::ops::Range<u64>,
}

/// All connections of a thread.
pub(super) struct StreamLanes {
    streams: Streams,
    tls: Option<TlsClient>,
    app: App,
    lanes: Vec<Lane>,
    /// Lanes by the index of their connection.
    by_connection: Vec<usize>,
    /// Lanes with room, the one that has waited longest first.
    ready: VecDeque<usize>,
    /// Lanes that requests were written to in this turn.
    written: Vec<usize>,
    pipeline: usize,
    timeout_ns: u64,
    expiries: Expiries,
    preload: Option<Preload>,
    clock: Clock,
    counts: ClientCounts,
    /// Why the last connection ended.
    last_reason: Option<String>,
    closing: Vec<usize>,
}

impl StreamLanes {
    /// Connections to the targets of a plan; none is open yet.
    pub(super) fn new(plan: &Plan, wait: Wait, tls: Option<TlsClient>) -> Result<Self> {
        let config = StreamConfig { connections_max: CONNECTIONS_MAX, ..StreamConfig::default() };
        let streams = Streams::new(wait, config).context("cannot set up polling")?;
        let mut lanes = Self {
            streams,
            tls,
            app: plan.app.clone(),
            lanes: Vec::new(),
            by_connection: Vec::new(),
            ready: VecDeque::new(),
            written: Vec::new(),
            pipeline: plan.pipeline,
            timeout_ns: plan.timeout_ns,
            expiries: Expiries::default(),
            preload: plan.preload.clone(),
            clock: Clock,
            counts: ClientCounts::default(),
            last_reason: None,
            closing: Vec::new(),
        };
        for lane in &plan.lanes {
            lanes.add(lane.target, lane.fills);
        }
        Ok(lanes)
    }

    fn add(&mut self, target: SocketAddr, fills: bool) {
        let keys = self.preload.as_ref().filter(|_| fills).map_or(0, Preload::key_count);
        self.lanes.push(Lane {
            target,
            id: None,
            is_open: false,
            is_ready: false,
            open_at: 0,
            heard_at: 0,
            replies: Replies::new(&self.app),
            queue: VecDeque::new(),
            first: 0,
            preload: 0..keys,
        });
    }

    /// Opens what may be opened.
    fn open_lanes(&mut self, now: Time) -> Result<()> {
        for index in 0..self.lanes.len() {
            let lane = &mut self.lanes[index];
            if lane.id.is_some() || lane.open_at > now {
                continue;
            }
            let id = self.streams.connect(lane.target, self.tls.as_ref());
            let id = id.with_context(|| format!("cannot open a connection to {}", lane.target))?;
            lane.id = Some(id);
            lane.heard_at = now;
            lane.replies = Replies::new(&self.app);
            if self.by_connection.len() <= id.index() {
                self.by_connection.resize(id.index() + 1, usize::MAX);
            }
            self.by_connection[id.index()] = index;
        }
        Ok(())
    }

    /// Takes what has happened.
    fn poll(&mut self, until: Option<Time>, slices: &mut Option<&mut Slices>) -> Result<usize> {
        let Self { streams, lanes, by_connection, ready, app, counts, clock, preload, pipeline, last_reason, closing, .. } = self;
        let events = streams.poll(until, |connection, event| {
            let now = clock.now();
            let index = by_connection[connection.id().index()];
            let lane = &mut lanes[index];
            match event {
                Event::Connected => lane.greet(app, connection, preload.as_ref()),
                Event::Bytes(bytes) => {
                    lane.heard_at = now;
                    if lane.take(bytes, now, slices, counts) == After::Close {
                        closing.push(index);
                        return;
                    }
                    lane.fill(connection, preload.as_ref());
                }
                Event::Finished => closing.push(index),
                Event::Closed(reason) => {
                    *last_reason = Some(format!("{reason:?}"));
                    lane.id = None;
                    lane.end(now, slices, counts);
                }
                Event::Accepted(_) | Event::Sent(_) => {}
            }
            if lane.has_room(*pipeline) && !lane.is_ready {
                lane.is_ready = true;
                ready.push_back(index);
            }
        })?;
        while let Some(index) = self.closing.pop() {
            self.close(index, slices);
        }
        Ok(events)
    }

    fn close(&mut self, index: usize, slices: &mut Option<&mut Slices>) {
        let lane = &mut self.lanes[index];
        if let Some(id) = lane.id.take() {
            self.streams.close(id);
            lane.end(self.clock.now(), slices, &mut self.counts);
        }
    }

    fn expire(&mut self, now: Time, slices: &mut Slices) {
        while let Some((index, number)) = self.expiries.pop(now) {
            let lane = &mut self.lanes[index];
            let Some(place) = number.checked_sub(lane.first) else { continue };
            let Some(pending) = lane.queue.get_mut(place as usize) else { continue };
            if let Asked::Load(sample) = std::mem::replace(&mut pending.what, Asked::GivenUp) {
                slices.handle_failure(sample, Failure::Timeout, now);
            }
            if now.saturating_sub(lane.heard_at) >= self.timeout_ns {
                self.close(index, &mut Some(slices));
            }
        }
    }
}

impl Carries for StreamLanes {
    fn open(&mut self, until: Time) -> Result<()> {
        loop {
            let now = self.clock.now();
            self.open_lanes(now)?;
            self.poll(Some(now + OPEN_STEP_NS), &mut None)?;
            if self.lanes.iter().all(|lane| lane.is_open) {
                return Ok(());
            }
            if now > until {
                let missing = self.lanes.iter().filter(|lane| !lane.is_open).count();
                let reason = self.last_reason.as_deref().map_or_else(String::new, |reason| format!(": {reason}"));
                bail!("{missing} of {} connections to {} do not open{reason}", self.lanes.len(), self.lanes[0].target);
            }
        }
    }

    fn add_lane(&mut self, target: SocketAddr) {
        self.add(target, false);
    }

    fn has_room(&mut self) -> bool {
        while let Some(&index) = self.ready.front() {
            if self.lanes[index].has_room(self.pipeline) {
                return true;
            }
            self.lanes[index].is_ready = false;
            self.ready.pop_front();
        }
        false
    }

    fn send(&mut self, sample: Sample, write: &mut dyn FnMut(&mut Vec<u8>) -> Expected) -> Option<Sample> {
        let index = self.ready.pop_front()?;
        let lane = &mut self.lanes[index];
        lane.is_ready = false;
        let Some(output) = lane.id.and_then(|id| self.streams.output(id)) else { return Some(sample) };
        let deadline = sample.sent_ns.saturating_add(self.timeout_ns);
        let expected = write(output);
        self.expiries.push(deadline, index, lane.first + lane.queue.len() as u64);
        lane.queue.push_back(Pending { what: Asked::Load(sample), expected });
        if lane.has_room(self.pipeline) {
            lane.is_ready = true;
            self.ready.push_back(index);
        }
        self.written.push(index);
        None
    }

    fn flush(&mut self) {
        while let Some(index) = self.written.pop() {
            if let Some(id) = self.lanes[index].id {
                self.streams.flush(id);
            }
        }
    }

    fn turn(&mut self, slices: &mut Slices, until: Time) -> Result<()> {
        let now = self.clock.now();
        self.expire(now, slices);
        if self.streams.len() < self.lanes.len() {
            self.open_lanes(now)?;
        }
        let until = self.expiries.next().map_or(until, |expiry| expiry.min(until));
        self.poll(Some(until), &mut Some(slices))?;
        Ok(())
    }

    fn counts(&self) -> ClientCounts {
        ClientCounts { sleeps: self.streams.metrics().sleeps, ..self.counts }
    }
}

impl Lane {
    fn has_room(&self, pipeline: usize) -> bool {
        self.is_open && self.queue.len() < pipeline
    }

    /// Says what a new connection begins with.
    fn greet(&mut self, app: &App, connection: &mut Connection<'_>, preload: Option<&Preload>) {
        match app.write_greeting(None, connection.output()) {
            Some(expected) => self.queue.push_back(Pending { what: Asked::Greeting, expected }),
            None => self.fill(connection, preload),
        }
    }

    /// Goes on filling the store; the connection is open once that is done.
    fn fill(&mut self, connection: &mut Connection<'_>, preload: Option<&Preload>) {
        if self.is_open || matches!(self.queue.front(), Some(Pending { what: Asked::Greeting, .. })) {
            return;
        }
        if let Some(preload) = preload {
            while self.queue.len() < PRELOAD_PIPELINE
                && let Some(key) = self.preload.next()
            {
                let expected = preload.write(key, connection.output());
                self.queue.push_back(Pending { what: Asked::Preload, expected });
            }
        }
        self.is_open = self.queue.is_empty();
    }

    /// Takes replies; tells whether the connection is of further use.
    fn take(
        &mut self,
        mut bytes: &[u8],
        now: Time,
        slices: &mut Option<&mut Slices>,
        counts: &mut ClientCounts,
    ) -> After {
        while !bytes.is_empty() {
            match self.replies.take(&mut bytes, self.queue.front().map(|pending| pending.expected)) {
                Step::More => return After::Keep,
                Step::Malformed(_) => {
                    counts.mismatched += 1;
                    return After::Close;
                }
                Step::Reply(reply) => {
                    self.resolve(reply.outcome, now, slices);
                    if reply.after == After::Close {
                        return After::Close;
                    }
                }
            }
        }
        After::Keep
    }

    fn resolve(&mut self, outcome: Outcome, now: Time, slices: &mut Option<&mut Slices>) {
        let pending = self.queue.pop_front();
        self.first += 1;
        if let (Some(Pending { what: Asked::Load(sample), .. }), Some(slices)) = (pending, slices) {
            slices.handle_reply(sample, outcome, now);
        }
    }

    /// The connection has ended: what it waited for is lost, and what was not filled in is filled in again.
    fn end(&mut self, now: Time, slices: &mut Option<&mut Slices>, counts: &mut ClientCounts) {
        counts.reconnects += u64::from(self.is_open);
        // A server that has closed after its reply, as HTTP servers do, is asked again at once.
        let is_orderly = self.is_open && self.queue.is_empty();
        self.open_at = if is_orderly { now } else { now + REOPEN_NS };
        self.is_open = false;
        self.first += self.queue.len() as u64;
        for Pending { what, .. } in self.queue.drain(..) {
            match (what, &mut *slices) {
                (Asked::Load(sample), Some(slices)) => slices.handle_failure(sample, Failure::Lost, now),
                (Asked::Preload, _) => self.preload.start -= 1,
                _ => {}
            }
        }
    }
}

/// More than any host has ports for.
const CONNECTIONS_MAX: usize = 1 << 16;

/// Requests outstanding on a connection while it fills a store.
const PRELOAD_PIPELINE: usize = 64;

/// From the end of a connection to the next attempt.
const REOPEN_NS: u64 = 10_000_000;

/// How long to wait for a step of opening.
const OPEN_STEP_NS: u64 = 10_000_000;
