//! A thread's connections over TCP or TLS.
//!
//! Each connection keeps a queue of what it waits for, in the order in which it was written. A
//! request that is given up stays in the queue until its reply comes or the connection ends,
//! because only so does the next reply find its own request; but where requests are streams that
//! can be cancelled, it leaves at once.
//!
//! | a connection | then |
//! |---|---|
//! | has ended, or says what is no reply | what it waited for is lost; it is opened again after a while |
//! | has been silent for a whole timeout | it is closed and opened again |
//! | takes no more requests, and its last one is answered or given up | the same, at once |

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use tailcut_measure::app::{After, Answer, App, Conversation, Expected, Outcome, Preload};
use tailcut_measure::load::Sample;
use tailcut_measure::load_loop::ClientTransport;
use tailcut_measure::outcome::Failure;
use tailcut_measure::slices::Slices;
use tailcut_net::clock::Clock;
use tailcut_net::driver::Wait;
use tailcut_net::stamps::Stamps as Seen;
use tailcut_net::stream::{ConnectionId, Event, Reason, StreamConfig, Streams, TlsClient};
use tailcut_proto::node::Time;

use super::connections::{Connections, Expiries, Pace};
use super::plan::Plan;
use super::ready_queue::ReadyQueue;
use super::stamped::Sampler;
use super::target::Target;
use crate::job::{ClientCounts, Credentials};

/// Request in a connection's queue.
struct Pending {
    what: Asked,
    /// The key that its stamps are matched by, where it is stamped.
    stamped: Option<u64>,
}

/// Records that an outcome is written to; before the load there are no slices.
struct Accounting<'a, 'b> {
    index: usize,
    now: Time,
    slices: &'a mut Option<&'b mut Slices>,
    sampler: &'a mut Sampler,
    counts: &'a mut ClientCounts,
}

/// Bytes of a connection, and when they were received.
struct Came<'a> {
    bytes: &'a [u8],
    seen: Seen,
}

enum Asked {
    /// A request of the load.
    Load(Sample),
    /// A request of the load that has been given up.
    GivenUp,
    /// Nothing more: it has been answered before those that were sent earlier.
    Nothing,
    /// A request that fills the store.
    Preload,
}

/// A place for a connection, which is opened again when it ends.
struct Lane {
    target: Target,
    id: Option<ConnectionId>,
    /// It can carry requests of the load.
    is_open: bool,
    /// Its greeting is over, and its store is being filled.
    is_filling: bool,
    /// Time from which the connection may be opened again.
    open_at: Time,
    /// Time at which something last came.
    heard_at: Time,
    conversation: Conversation,
    queue: VecDeque<Pending>,
    /// Requests of the queue that are not answered.
    outstanding: usize,
    /// Number of the first of the queue, counted over the lane's life.
    first: u64,
    /// Number of the connection's first.
    base: u64,
    /// Number of the request of this turn that is to be stamped.
    picked: Option<u64>,
    /// Keys that its target is still to be filled with.
    preload: std::ops::Range<u64>,
}

/// All connections of a thread.
pub(super) struct StreamLanes {
    streams: Streams,
    tls: Option<TlsClient>,
    /// Unix socket that all lanes go to, if not to their addresses.
    unix: Option<Arc<Path>>,
    app: App,
    lanes: Vec<Lane>,
    /// Lanes by the index of their connection.
    by_connection: Vec<usize>,
    ready: ReadyQueue,
    /// Lanes that requests were written to in this turn.
    written: Vec<usize>,
    pipeline: usize,
    timeout_ns: u64,
    expiries: Expiries,
    preload: Option<Preload>,
    login: Option<Credentials>,
    pace: Pace,
    clock: Clock,
    counts: ClientCounts,
    /// Reason why the last connection ended.
    last_reason: Option<Reason>,
    /// A connection has been open.
    is_answered: bool,
    closing: Vec<usize>,
    sampler: Sampler,
}

impl StreamLanes {
    /// Connections to the targets of a plan; none is open yet.
    pub(super) fn new(
        plan: &Plan,
        wait: Wait,
        tls: Option<TlsClient>,
        sampler: Sampler,
    ) -> Result<Self> {
        let config = StreamConfig {
            connections_max: CONNECTIONS_MAX,
            stamps: sampler.config(),
            ..StreamConfig::default()
        };
        let streams = Streams::new(wait, config).context("cannot set up polling")?;
        let mut lanes = Self {
            streams,
            tls,
            unix: plan.unix.clone(),
            app: plan.app.clone(),
            lanes: Vec::new(),
            by_connection: Vec::new(),
            ready: ReadyQueue::default(),
            written: Vec::new(),
            pipeline: plan.job.pipeline as usize,
            timeout_ns: plan.job.timeout_ns,
            expiries: Expiries::default(),
            preload: plan.preload.clone(),
            login: plan.job.login.clone(),
            pace: Pace::new(plan.gap_ns()),
            clock: Clock,
            counts: ClientCounts::default(),
            last_reason: None,
            is_answered: false,
            closing: Vec::new(),
            sampler,
        };
        for lane in &plan.lanes {
            lanes.add(lane.target, lane.fills);
        }
        Ok(lanes)
    }

    fn add(&mut self, target: SocketAddr, fills: bool) {
        let keys = self.preload.as_ref().filter(|_| fills).map_or(0, |preload| preload.key_count);
        self.lanes.push(Lane {
            target: Target::of(self.unix.as_ref(), target),
            id: None,
            is_open: false,
            is_filling: false,
            open_at: 0,
            heard_at: 0,
            conversation: Conversation::new(&self.app),
            queue: VecDeque::new(),
            outstanding: 0,
            first: 0,
            base: 0,
            picked: None,
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
            let id = lane.target.connect(&mut self.streams, self.tls.as_ref());
            if let Some(reason) = id.as_ref().err().and_then(|error| lane.target.refusal(error)) {
                self.last_reason = Some(reason);
                lane.open_at = now + REOPEN_NS;
                continue;
            }
            let id = id.with_context(|| format!("cannot open a connection to {}", lane.target))?;
            lane.id = Some(id);
            lane.heard_at = now;
            lane.conversation = Conversation::new(&self.app);
            lane.base = lane.first;
            self.sampler.begin(index);
            if self.by_connection.len() <= id.index() {
                self.by_connection.resize(id.index() + 1, usize::MAX);
            }
            self.by_connection[id.index()] = index;
        }
        Ok(())
    }

    /// Takes what has happened.
    fn poll(&mut self, until: Option<Time>, slices: &mut Option<&mut Slices>) -> Result<usize> {
        let Self {
            streams,
            lanes,
            by_connection,
            ready,
            counts,
            clock,
            preload,
            login,
            pace,
            pipeline,
            last_reason,
            closing,
            is_answered,
            sampler,
            ..
        } = self;
        let events = streams.poll(until, |connection, event| {
            let now = clock.now();
            let index = by_connection[connection.id().index()];
            let lane = &mut lanes[index];
            let mut accounting = Accounting { index, now, slices, sampler, counts };
            match event {
                Event::Connected => {
                    *is_answered = true;
                    let login = login.as_ref().map(Credentials::login);
                    lane.conversation.begin(login, connection.output());
                    lane.fill(connection.output(), preload.as_ref(), &mut *pace, now);
                }
                Event::Bytes(bytes) => {
                    lane.heard_at = now;
                    let came = Came { bytes, seen: connection.received() };
                    let after = lane.take(came, connection.output(), &mut accounting);
                    if after == After::Close || lane.conversation.is_spent() {
                        closing.push(index);
                        return;
                    }
                    lane.fill(connection.output(), preload.as_ref(), &mut *pace, now);
                }
                Event::Finished => closing.push(index),
                Event::Closed(reason) => {
                    *last_reason = Some(reason);
                    lane.id = None;
                    lane.end(&mut accounting);
                }
                Event::Sent(sent) => accounting.sampler.handle_sent(index, &sent),
                Event::Accepted(_) => {}
            }
            if lane.has_room(*pipeline) {
                ready.add(index);
            }
        })?;
        while let Some(index) = self.closing.pop() {
            self.close(index, slices);
        }
        Ok(events)
    }

    /// Goes on filling stores that the pace has held up, which no answer wakes.
    fn fill_on(&mut self, now: Time) {
        let Self { streams, lanes, preload, pace, .. } = self;
        for lane in lanes.iter_mut().filter(|lane| lane.is_filling && !lane.is_open) {
            let Some(id) = lane.id else { continue };
            if let Some(out) = streams.output(id) {
                lane.fill(out, preload.as_ref(), pace, now);
                streams.flush(id);
            }
        }
    }

    fn close(&mut self, index: usize, slices: &mut Option<&mut Slices>) {
        let lane = &mut self.lanes[index];
        if let Some(id) = lane.id.take() {
            self.streams.close(id);
            let (now, sampler, counts) = (self.clock.now(), &mut self.sampler, &mut self.counts);
            lane.end(&mut Accounting { index, now, slices, sampler, counts });
        }
    }

    /// Tells the server that nobody waits for a request any more, where it can be told.
    fn cancel(&mut self, index: usize, number: u64) {
        let Self { lanes, streams, ready, pipeline, .. } = self;
        let lane = &mut lanes[index];
        let Some(id) = lane.id else { return };
        let Some(out) = streams.output(id) else { return };
        if lane.conversation.cancel(number - lane.base, out) {
            lane.release(number);
            streams.flush(id);
            if lane.has_room(*pipeline) {
                ready.add(index);
            }
        }
    }

    fn expire(&mut self, now: Time, slices: &mut Slices) {
        while let Some((index, number)) = self.expiries.pop(now) {
            let lane = &mut self.lanes[index];
            let Some(place) = number.checked_sub(lane.first) else { continue };
            let Some(pending) = lane.queue.get_mut(place as usize) else { continue };
            if !matches!(pending.what, Asked::Load(_)) {
                continue;
            }
            if let Asked::Load(sample) = std::mem::replace(&mut pending.what, Asked::GivenUp) {
                slices.handle_failure(sample, Failure::Timeout, now);
                if let Some(key) = pending.stamped.take() {
                    self.sampler.handle_failure(index, key);
                }
            }
            self.cancel(index, number);
            let lane = &self.lanes[index];
            let is_silent = now.saturating_sub(lane.heard_at) >= self.timeout_ns;
            if is_silent || lane.conversation.is_spent() {
                self.close(index, &mut Some(slices));
            }
        }
    }
}

impl ClientTransport for StreamLanes {
    type Error = anyhow::Error;

    fn has_room(&mut self) -> bool {
        let Self { ready, lanes, pipeline, .. } = self;
        ready.has_any(|index| lanes[index].has_room(*pipeline))
    }

    fn send(&mut self, slices: &mut Slices, write: &mut dyn FnMut(&mut Vec<u8>) -> Expected) {
        let Some(index) = self.ready.next() else { return };
        let Self { lanes, streams, .. } = self;
        let output = lanes[index].id.and_then(|id| streams.output(id));
        let is_written = output.map(|out| lanes[index].conversation.write(out, write)).is_some();
        if !self.written.contains(&index) {
            // What waits for many writes would leave long after the time that is taken here.
            if self.written.len() == WRITES_MAX {
                self.flush();
            }
            self.written.push(index);
        }
        let lane = &mut self.lanes[index];
        let now = self.clock.now();
        let sample = slices.handle_sent(now);
        if !is_written {
            slices.handle_failure(sample, Failure::Lost, now);
            return;
        }
        let number = lane.first + lane.queue.len() as u64;
        self.expiries.push(sample.sent_ns.saturating_add(self.timeout_ns), index, number);
        lane.push(Asked::Load(sample));
        if self.sampler.picks() && lane.picked.replace(number).is_some() {
            // Both leave by one write, which has one stamp.
            self.sampler.skip_request(index);
        }
        if lane.has_room(self.pipeline) {
            self.ready.add(index);
        }
    }

    fn flush(&mut self) {
        for place in 0..self.written.len() {
            let index = self.written[place];
            let lane = &mut self.lanes[index];
            let Some(id) = lane.id else { continue };
            let Some(number) = lane.picked.take() else {
                self.streams.flush(id);
                continue;
            };
            self.streams.stamp(id);
            self.streams.flush(id);
            // What the socket has not taken leaves by a write that no stamp is matched to.
            if self.streams.unsent(id) == 0
                && let Some(key) = self.streams.written(id).checked_sub(1)
            {
                lane.note_stamp(number, key, (index, &mut self.sampler));
            } else {
                self.sampler.skip_request(index);
            }
        }
        self.written.clear();
    }

    fn turn(&mut self, slices: &mut Slices, until: Time) -> Result<()> {
        let now = self.clock.now();
        self.expire(now, slices);
        if self.streams.len() < self.lanes.len() {
            self.open_lanes(now)?;
        }
        let lanes = &self.lanes;
        let expiry = self.expiries.next_waiting(|lane, number| lanes[lane].is_waiting(number));
        self.poll(Some(expiry.map_or(until, |expiry| expiry.min(until))), &mut Some(slices))?;
        Ok(())
    }
}

impl Connections for StreamLanes {
    fn open(&mut self, until: Time) -> Result<()> {
        let patience = self.clock.now() + FIRST_OPEN_NS_MAX;
        let until = until.max(patience);
        loop {
            let now = self.clock.now();
            self.open_lanes(now)?;
            self.fill_on(now);
            self.poll(Some(now + OPEN_STEP_NS), &mut None)?;
            if self.lanes.iter().all(|lane| lane.is_open) {
                return Ok(());
            }
            let refused = self.lanes.iter().find_map(|lane| {
                let why = lane.conversation.refusal().filter(|why| !why.is_empty());
                why.map(|why| format!("{} refuses {why}", lane.target))
            });
            if let Some(refused) = refused {
                bail!(refused);
            }
            // What TLS finds fault with does not mend, and a target that has not answered once
            // probably is not there.
            let is_hopeless = matches!(self.last_reason, Some(Reason::Tls(_)))
                || (now > patience && !self.is_answered);
            if now > until || is_hopeless {
                let missing = self.lanes.iter().filter(|lane| !lane.is_open).count();
                let reason = self
                    .last_reason
                    .as_ref()
                    .map_or_else(String::new, |reason| format!(": {}", say(reason)));
                bail!(
                    "{missing} of {} connections to {} do not open{reason}",
                    self.lanes.len(),
                    self.lanes[0].target
                );
            }
        }
    }

    fn add_lane(&mut self, target: SocketAddr) {
        self.add(target, false);
    }

    fn counts(&mut self) -> ClientCounts {
        ClientCounts { sleeps: self.streams.metrics().sleeps, ..self.counts }
    }

    fn sampler(&mut self) -> &mut Sampler {
        &mut self.sampler
    }
}

impl Lane {
    fn has_room(&self, pipeline: usize) -> bool {
        self.is_open && self.outstanding < pipeline && self.conversation.has_room()
    }

    fn push(&mut self, what: Asked) {
        self.queue.push_back(Pending { what, stamped: None });
        self.outstanding += 1;
    }

    /// Takes the request of a number out of the queue; what has been answered before it, too.
    fn release(&mut self, number: u64) -> Option<Pending> {
        let place = number.checked_sub(self.first)?;
        let pending = self.queue.get_mut(place as usize)?;
        let taken = Pending {
            what: std::mem::replace(&mut pending.what, Asked::Nothing),
            stamped: pending.stamped.take(),
        };
        self.outstanding -= 1;
        while let Some(Pending { what: Asked::Nothing, .. }) = self.queue.front() {
            self.queue.pop_front();
            self.first += 1;
        }
        Some(taken)
    }

    fn is_waiting(&self, number: u64) -> bool {
        let place = number.checked_sub(self.first).map(|place| place as usize);
        place
            .and_then(|place| self.queue.get(place))
            .is_some_and(|pending| matches!(pending.what, Asked::Load(_)))
    }

    /// The write that carried a request is stamped, and its last byte has the offset `key`.
    fn note_stamp(&mut self, number: u64, key: u64, (index, sampler): (usize, &mut Sampler)) {
        let pending =
            number.checked_sub(self.first).and_then(|place| self.queue.get_mut(place as usize));
        if let Some(Pending { what: Asked::Load(sample), stamped, .. }) = pending
            && sampler.handle_request(index, key, sample.sent_ns)
        {
            *stamped = Some(key);
        }
    }

    /// Goes on filling the store; the connection is open once that is done.
    fn fill(&mut self, out: &mut Vec<u8>, preload: Option<&Preload>, pace: &mut Pace, now: Time) {
        if self.is_open || !self.conversation.is_ready() {
            return;
        }
        self.is_filling = true;
        if let Some(preload) = preload {
            while self.outstanding < PRELOAD_PIPELINE
                && !self.preload.is_empty()
                && pace.admits(now)
                && let Some(key) = self.preload.next()
            {
                self.conversation.write(out, &mut |out| (preload.write)(key, out));
                self.push(Asked::Preload);
            }
        }
        self.is_open = self.queue.is_empty() && self.preload.is_empty();
    }

    /// Takes replies; tells whether the connection is of further use.
    fn take(
        &mut self,
        Came { mut bytes, seen }: Came<'_>,
        out: &mut Vec<u8>,
        accounting: &mut Accounting<'_, '_>,
    ) -> After {
        loop {
            match self.conversation.take(&mut bytes, out) {
                Ok(None) => return After::Keep,
                Err(_) => {
                    accounting.counts.mismatched += 1;
                    return After::Close;
                }
                Ok(Some(answer)) => {
                    self.resolve(answer, seen, accounting);
                    if answer.reply.after == After::Close {
                        return After::Close;
                    }
                }
            }
        }
    }

    fn resolve(&mut self, answer: Answer, seen: Seen, accounting: &mut Accounting<'_, '_>) {
        let Some(Pending { what, stamped, .. }) = self.release(self.base + answer.number) else {
            return;
        };
        if let Some(key) = stamped {
            accounting.sampler.handle_reply(accounting.index, key, seen, accounting.now);
        }
        if let (Asked::Load(sample), Some(slices)) = (what, &mut accounting.slices) {
            match answer.reply.outcome {
                Outcome::Error(kind) => {
                    let error = (kind, self.conversation.error_code());
                    slices.handle_error(sample, error, accounting.now);
                }
                outcome => slices.handle_reply(sample, outcome, accounting.now),
            }
        }
    }

    /// The connection has ended: what it waited for is lost, and what was not filled in is filled
    /// in again.
    fn end(&mut self, accounting: &mut Accounting<'_, '_>) {
        let now = accounting.now;
        accounting.counts.reconnects += u64::from(self.is_open);
        // A server that has closed after its reply, as HTTP servers do, is asked again at once.
        let is_orderly = self.is_open && self.outstanding == 0;
        self.open_at = if is_orderly { now } else { now + REOPEN_NS };
        (self.is_open, self.is_filling) = (false, false);
        self.picked = None;
        self.first += self.queue.len() as u64;
        self.outstanding = 0;
        for Pending { what, stamped, .. } in self.queue.drain(..) {
            if let Some(key) = stamped {
                accounting.sampler.handle_failure(accounting.index, key);
            }
            match (what, &mut accounting.slices) {
                (Asked::Load(sample), Some(slices)) => {
                    slices.handle_failure(sample, Failure::Lost, now)
                }
                (Asked::Preload, _) => self.preload.start -= 1,
                _ => {}
            }
        }
    }
}

/// Reason why a connection has ended, as people say it.
fn say(reason: &Reason) -> String {
    match reason {
        Reason::Refused => "nobody listens there".to_owned(),
        Reason::Reset => "the peer has cut it".to_owned(),
        Reason::TimedOut => "no answer in time".to_owned(),
        Reason::Unreachable => "it cannot be reached".to_owned(),
        Reason::Ended => "the peer has ended it while it was being opened".to_owned(),
        Reason::Tls(why) => format!("TLS: {why}"),
        Reason::Other(number) => std::io::Error::from_raw_os_error(*number).to_string(),
    }
}

/// More than any host has ports for.
const CONNECTIONS_MAX: usize = 1 << 16;

/// Requests outstanding on a connection while it fills a store.
const PRELOAD_PIPELINE: usize = 64;

/// Connections that are written to before any of it leaves, so that requests of one that are due
/// together take one write.
const WRITES_MAX: usize = 4;

/// From the end of a connection to the next attempt.
const REOPEN_NS: u64 = 10_000_000;

/// Longest wait for the first connection of all.
const FIRST_OPEN_NS_MAX: u64 = 2_000_000_000;

/// Longest wait for a step of opening.
const OPEN_STEP_NS: u64 = 10_000_000;
