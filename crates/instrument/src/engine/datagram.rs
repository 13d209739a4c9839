//! A thread's sockets over UDP: one flow for each connection.
//!
//! A reply is matched by the name that its request carried, so that one which is lost, late, twice
//! or out of order never touches another's latency. Where requests have no room for a name, a reply
//! is taken for the oldest request's.
//!
//! | a request | then |
//! |---|---|
//! | has had no reply for a whole timeout | it is given up; its reply, should it still come, is counted as mismatched |
//! | meets a port where nobody listens | ICMP names no request, so the oldest of the flow is refused |
//! | is answered with what is no reply to it | it is lost, and the reply counted as mismatched |
//!
//! Invariant: each request has one outcome, whatever the network does with datagrams.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use foldhash::fast::FixedState;
use tailcut_measure::app::{App, DatagramFramer, Expected, Key, Preload};
use tailcut_measure::load::Sample;
use tailcut_measure::load_loop::ClientTransport;
use tailcut_measure::outcome::Failure;
use tailcut_measure::slices::Slices;
use tailcut_net::clock::Clock;
use tailcut_net::datagram::{DatagramConfig, DatagramEvent, Datagrams, FlowId};
use tailcut_net::driver::Wait;
use tailcut_net::stamps::Stamps as Seen;
use tailcut_proto::node::Time;

use super::connections::{Connections, Expiries, Pace};
use super::netclone::{Envelope, Enveloped};
use super::plan::Plan;
use super::ready_queue::ReadyQueue;
use super::stamped::Sampler;
use crate::job::{ClientCounts, Transport};

/// A request of the load, in the order of sends.
struct Pending {
    /// Nothing once it has an outcome.
    sample: Option<Sample>,
    expected: Expected,
    is_stamped: bool,
}

/// A socket with what it waits for.
struct Lane {
    target: SocketAddr,
    /// It has none yet, before it is opened.
    flow: Option<FlowId>,
    framer: Box<dyn DatagramFramer>,
    /// Begins with a request that has no outcome yet.
    queue: VecDeque<Pending>,
    /// Number of the first of the queue, counted over the lane's life.
    first: u64,
    /// Requests of the queue without an outcome, and those of them that are stamped.
    outstanding: usize,
    stamped: usize,
    fill: Option<Fill>,
}

/// All sockets of a thread.
pub(super) struct Flows {
    datagrams: Datagrams,
    app: App,
    lanes: Vec<Lane>,
    /// Numbers of outstanding requests by their lane and tag.
    names: Names,
    ready: ReadyQueue,
    pipeline: usize,
    timeout_ns: u64,
    expiries: Expiries,
    preload: Option<Preload>,
    pace: Pace,
    /// Envelope in front of requests, over NetClone.
    envelope: Option<Envelope>,
    /// The request being written.
    buffer: Vec<u8>,
    /// Datagrams of each lane that the kernel has dropped, as last asked.
    drops: Vec<u32>,
    /// The lane to be asked next.
    next_asked: usize,
    clock: Clock,
    counts: ClientCounts,
    sampler: Sampler,
}

/// Records that an outcome is written to.
struct Accounting<'a> {
    index: usize,
    now: Time,
    names: &'a mut Names,
    slices: &'a mut Slices,
    sampler: &'a mut Sampler,
}

type Names = HashMap<(usize, u64), u64, FixedState>;

impl Flows {
    /// Sockets for a plan; none is open yet.
    pub(super) fn new(plan: &Plan, wait: Wait, sampler: Sampler) -> Result<Self> {
        let config = DatagramConfig {
            flows_max: FLOWS_MAX,
            stamps: sampler.config(),
            ..DatagramConfig::default()
        };
        let mut flows = Self {
            datagrams: Datagrams::new(wait, config).context("cannot set up polling")?,
            app: plan.app.clone(),
            lanes: Vec::new(),
            names: Names::default(),
            ready: ReadyQueue::default(),
            pipeline: plan.job.pipeline as usize,
            timeout_ns: plan.job.timeout_ns,
            expiries: Expiries::default(),
            preload: plan.preload.clone(),
            pace: Pace::new(plan.gap_ns()),
            envelope: (plan.job.transport == Transport::NetClone).then(|| {
                Envelope::new(plan.job.netclone_servers, plan.job.seed ^ u64::from(plan.index))
            }),
            buffer: Vec::new(),
            drops: Vec::new(),
            next_asked: 0,
            clock: Clock,
            counts: ClientCounts::default(),
            sampler,
        };
        for lane in &plan.lanes {
            let keys =
                flows.preload.as_ref().filter(|_| lane.fills).map(|preload| preload.key_count);
            let framer = flows.framer()?;
            flows.lanes.push(Lane::new(framer, lane.target, keys.map(Fill::new)));
        }
        Ok(flows)
    }

    /// Framer of replies.
    fn framer(&self) -> Result<Box<dyn DatagramFramer>> {
        Ok(match self.envelope {
            Some(_) => Box::new(Enveloped::new(&self.app)),
            None => self.app.datagrams()?,
        })
    }

    fn open_lane(&mut self, index: usize) -> Result<()> {
        let lane = &mut self.lanes[index];
        let flow = match self.envelope {
            // A switch leaves the server's address on a reply.
            Some(_) => self.datagrams.open_unconnected(lane.target),
            None => self.datagrams.open(lane.target),
        };
        let flow = flow.with_context(|| format!("cannot open a socket to {}", lane.target))?;
        // Flows are numbered as lanes are, for both are only ever added.
        debug_assert_eq!(flow.index(), index);
        lane.flow = Some(flow);
        self.ready.add(index);
        self.drops.push(0);
        self.sampler.begin(index);
        Ok(())
    }

    /// Sends what the stores still lack, and takes answers.
    fn fill_stores(&mut self) -> Result<()> {
        let Self { datagrams, lanes, preload, pace, buffer, clock, .. } = self;
        let now = clock.now();
        if let Some(preload) = preload {
            for lane in lanes.iter_mut() {
                if let (Some(fill), Some(flow)) = (&mut lane.fill, lane.flow) {
                    let mut send = |key: u64| {
                        let may_leave = pace.admits(now);
                        may_leave.then(|| {
                            buffer.clear();
                            let expected = (preload.write)(key, buffer);
                            datagrams.queue(flow, buffer);
                            expected
                        })
                    };
                    fill.send(now, &mut send);
                }
            }
        }
        datagrams.flush();
        datagrams.poll(Some(now + FILL_AGAIN_NS), |flow, event| {
            let Lane { framer, fill: Some(fill), .. } = &mut lanes[flow.index()] else { return };
            if let DatagramEvent::Bytes(bytes, _) = event {
                fill.take(framer.as_mut(), bytes);
            }
        })?;
        Ok(())
    }

    /// Takes what has come.
    fn poll(&mut self, until: Time, slices: &mut Slices) -> Result<()> {
        let Self { datagrams, lanes, names, ready, counts, clock, pipeline, sampler, .. } = self;
        datagrams.poll(Some(until), |flow, event| {
            let now = clock.now();
            let index = flow.index();
            let lane = &mut lanes[index];
            let mut accounting = Accounting { index, now, names, slices, sampler };
            match event {
                DatagramEvent::Bytes(bytes, seen) => {
                    counts.mismatched += u64::from(!lane.take(bytes, seen, &mut accounting));
                }
                DatagramEvent::Refused => lane.fail(lane.first, Failure::Refused, &mut accounting),
                DatagramEvent::Unreachable => lane.fail(lane.first, Failure::Lost, &mut accounting),
                DatagramEvent::Sent(sent) => accounting.sampler.handle_sent(index, &sent),
            }
            if lane.has_room(*pipeline) {
                ready.add(index);
            }
        })?;
        Ok(())
    }

    /// Enters a request that has been sent.
    fn enter(&mut self, index: usize, pending: Pending, slices: &mut Slices) {
        let lane = &mut self.lanes[index];
        let (number, tag) = (lane.next_number(), pending.expected.tag);
        let sent_ns = pending.sample.as_ref().map_or(0, |sample| sample.sent_ns);
        self.expiries.push(sent_ns.saturating_add(self.timeout_ns), index, number);
        lane.outstanding += 1;
        lane.stamped += usize::from(pending.is_stamped);
        lane.queue.push_back(pending);
        // A name of 16 bits comes round: whoever still waits under it waits in vain.
        if let Some(displaced) = self.names.insert((index, tag), number) {
            lane.framer.release(tag);
            if let Some((sample, _)) = lane.resolve(displaced) {
                slices.handle_failure(sample, Failure::Lost, sent_ns);
            }
        }
        if lane.has_room(self.pipeline) {
            self.ready.add(index);
        }
    }

    fn expire(&mut self, now: Time, slices: &mut Slices) {
        while let Some((index, number)) = self.expiries.pop(now) {
            let lane = &mut self.lanes[index];
            let mut accounting = Accounting {
                index,
                now,
                names: &mut self.names,
                slices,
                sampler: &mut self.sampler,
            };
            lane.fail(number, Failure::Timeout, &mut accounting);
            self.ready.add(index);
        }
    }

    /// Asks the kernel what it has dropped, of some lanes each time: thousands would take it too
    /// long.
    fn ask_drops(&mut self) {
        for _ in 0..self.drops.len().min(ASKED_MAX) {
            self.next_asked = (self.next_asked + 1) % self.drops.len();
            if let Some(drops) = self.lanes[self.next_asked]
                .flow
                .and_then(|flow| self.datagrams.kernel_drops(flow).ok())
            {
                self.drops[self.next_asked] = drops;
            }
        }
    }
}

impl ClientTransport for Flows {
    type Error = anyhow::Error;

    fn has_room(&mut self) -> bool {
        let Self { ready, lanes, pipeline, .. } = self;
        ready.has_any(|index| lanes[index].has_room(*pipeline))
    }

    fn send(&mut self, slices: &mut Slices, write: &mut dyn FnMut(&mut Vec<u8>) -> Expected) {
        let Some(index) = self.ready.next() else { return };
        let Some(flow) = self.lanes[index].flow else { return };
        self.buffer.clear();
        if self.envelope.is_some() {
            Envelope::open(&mut self.buffer);
        }
        let expected = write(&mut self.buffer);
        if let Some(envelope) = &mut self.envelope {
            envelope.seal(expected.tag, &mut self.buffer);
        }
        let is_picked = self.sampler.picks();
        if is_picked {
            self.datagrams.resume_stamps(flow);
        } else if self.lanes[index].stamped == 0 {
            self.datagrams.pause_stamps(flow);
        }
        let now = self.clock.now();
        let is_prompt = slices.next_send().is_some_and(|due| now.saturating_sub(due) <= PROMPT_NS);
        let leaves_alone = is_prompt && !is_picked && self.datagrams.is_flushed();
        if leaves_alone {
            // Before it is entered in the accounting.
            self.datagrams.send(flow, &self.buffer);
        }
        let sample = slices.handle_sent(now);
        let number = self.lanes[index].next_number();
        let is_stamped = is_picked && self.sampler.handle_request(index, number, sample.sent_ns);
        if is_stamped {
            self.datagrams.queue_stamped(flow, number, &self.buffer);
        } else if !leaves_alone {
            self.datagrams.queue(flow, &self.buffer);
        }
        self.enter(index, Pending { sample: Some(sample), expected, is_stamped }, slices);
    }

    fn flush(&mut self) {
        self.datagrams.flush();
    }

    fn turn(&mut self, slices: &mut Slices, until: Time) -> Result<()> {
        self.expire(self.clock.now(), slices);
        let lanes = &self.lanes;
        let expiry = self.expiries.next_waiting(|lane, number| lanes[lane].is_waiting(number));
        self.poll(expiry.map_or(until, |expiry| expiry.min(until)), slices)
    }
}

impl Connections for Flows {
    fn open(&mut self, until: Time) -> Result<()> {
        for index in 0..self.lanes.len() {
            self.open_lane(index)?;
        }
        while let Some(missing) =
            self.lanes.iter().find_map(|lane| lane.fill.as_ref().filter(|fill| !fill.is_done()))
        {
            if self.clock.now() > until {
                let (done, target) = (missing.first, self.lanes[0].target);
                bail!(
                    "the store at {target} cannot be filled: {done} of {} keys are set",
                    missing.key_count
                );
            }
            self.fill_stores()?;
        }
        Ok(())
    }

    fn add_lane(&mut self, target: SocketAddr) {
        let Ok(framer) = self.framer() else { return };
        self.lanes.push(Lane::new(framer, target, None));
        // A host that has no more sockets goes on with those that it has.
        if self.open_lane(self.lanes.len() - 1).is_err() {
            self.lanes.pop();
        }
    }

    fn counts(&mut self) -> ClientCounts {
        self.ask_drops();
        let metrics = self.datagrams.metrics();
        ClientCounts {
            sleeps: metrics.sleeps,
            icmp_errors: metrics.icmp_errors,
            kernel_drops: self.drops.iter().map(|&drops| u64::from(drops)).sum(),
            ..self.counts
        }
    }

    fn sampler(&mut self) -> &mut Sampler {
        &mut self.sampler
    }
}

impl Lane {
    fn new(framer: Box<dyn DatagramFramer>, target: SocketAddr, fill: Option<Fill>) -> Self {
        Self {
            target,
            flow: None,
            framer,
            queue: VecDeque::new(),
            first: 0,
            outstanding: 0,
            stamped: 0,
            fill,
        }
    }

    fn has_room(&self, pipeline: usize) -> bool {
        self.outstanding < pipeline
    }

    /// The number that its next request has.
    fn next_number(&self) -> u64 {
        self.first + self.queue.len() as u64
    }

    /// Takes a datagram; tells whether it is one that was waited for.
    fn take(&mut self, bytes: &[u8], seen: Seen, accounting: &mut Accounting<'_>) -> bool {
        let number = match self.framer.key(bytes) {
            Ok(Key::Tag(tag)) => accounting.names.get(&(accounting.index, tag)).copied(),
            Ok(Key::Oldest) => Some(self.first),
            Err(_) => None,
        };
        let place = number.and_then(|number| number.checked_sub(self.first));
        let Some(pending) = place.and_then(|place| self.queue.get(place as usize)) else {
            return false;
        };
        let (number, is_stamped) = (self.first + place.unwrap_or(0), pending.is_stamped);
        let outcome = match self.framer.take(bytes, pending.expected) {
            Ok(None) => {
                if is_stamped {
                    accounting.sampler.handle_packet(accounting.index, number, seen);
                }
                return true;
            }
            Err(_) => {
                self.fail(number, Failure::Lost, accounting);
                return false;
            }
            Ok(Some(outcome)) => outcome,
        };
        let Some((sample, expected)) = self.resolve(number) else { return false };
        if is_stamped {
            accounting.sampler.handle_reply(accounting.index, number, seen, accounting.now);
        }
        accounting.names.remove(&(accounting.index, expected.tag));
        accounting.slices.handle_reply(sample, outcome, accounting.now);
        true
    }

    /// Gives a request up, if it still waits.
    fn fail(&mut self, number: u64, failure: Failure, accounting: &mut Accounting<'_>) {
        if let Some((sample, expected)) = self.resolve(number) {
            self.framer.release(expected.tag);
            accounting.names.remove(&(accounting.index, expected.tag));
            accounting.sampler.handle_failure(accounting.index, number);
            accounting.slices.handle_failure(sample, failure, accounting.now);
        }
    }

    fn is_waiting(&self, number: u64) -> bool {
        let place = number.checked_sub(self.first).map(|place| place as usize);
        place
            .and_then(|place| self.queue.get(place))
            .is_some_and(|pending| pending.sample.is_some())
    }

    /// Takes a request that has an outcome now out of the queue; nothing when it has had one.
    fn resolve(&mut self, number: u64) -> Option<(Sample, Expected)> {
        let pending = self.queue.get_mut(number.checked_sub(self.first)? as usize)?;
        let resolved = (pending.sample.take()?, pending.expected);
        self.outstanding -= 1;
        self.stamped -= usize::from(pending.is_stamped);
        while self.queue.front().is_some_and(|pending| pending.sample.is_none()) {
            self.queue.pop_front();
            self.first += 1;
        }
        Some(resolved)
    }
}

/// The filling of a target's store: a window of keys that moves on as they are set, each asked for
/// again until it is.
struct Fill {
    key_count: u64,
    /// The first key that is not set; all before it are.
    first: u64,
    /// Keys from the first on that have been sent: what is due, and when it was sent last; nothing
    /// once it has come.
    window: VecDeque<Option<(Expected, Time)>>,
}

impl Fill {
    fn new(key_count: u64) -> Self {
        Self { key_count, first: 0, window: VecDeque::new() }
    }

    fn is_done(&self) -> bool {
        self.first == self.key_count
    }

    /// Sends what is due for the first time, or again, as far as `send` does; it says what reply is
    /// due.
    fn send(&mut self, now: Time, send: &mut dyn FnMut(u64) -> Option<Expected>) {
        let next = self.first + self.window.len() as u64;
        let end = self.key_count.min(self.first + FILL_WINDOW);
        let sent = (next..end).map_while(&mut *send);
        self.window.extend(sent.map(|expected| Some((expected, now))));
        for (key, entry) in (self.first..).zip(&mut self.window) {
            if let Some((_, sent_at)) = entry
                && now.saturating_sub(*sent_at) >= FILL_AGAIN_NS
                && send(key).is_some()
            {
                *sent_at = now;
            }
        }
    }

    /// Takes an answer; whatever it says, the store has been asked.
    fn take(&mut self, framer: &mut dyn DatagramFramer, bytes: &[u8]) {
        let Ok(Key::Tag(tag)) = framer.key(bytes) else { return };
        let entry = self
            .window
            .iter_mut()
            .find(|entry| matches!(entry, Some((expected, _)) if expected.tag == tag));
        if let Some(entry) = entry
            && let Some((expected, _)) = *entry
            && matches!(framer.take(bytes, expected), Ok(Some(_)))
        {
            *entry = None;
        }
        while self.window.front().is_some_and(Option::is_none) {
            self.window.pop_front();
            self.first += 1;
        }
    }
}

/// A request that is later than this leaves together with those that are due by then.
const PROMPT_NS: u64 = 1_000;

/// More than any host has ports for.
const FLOWS_MAX: usize = 1 << 16;

/// Keys asked for at a time while a store is filled.
const FILL_WINDOW: u64 = 64;

/// Delay until a key is asked for again.
const FILL_AGAIN_NS: u64 = 20_000_000;

/// Lanes whose drops are asked for at a time; a system call each.
const ASKED_MAX: usize = 64;
