//! A thread's endpoints of R2P2 or Homa: one for each connection.
//!
//! An endpoint is a port of its own with sessions of its own; unlike a connection over TCP, it
//! carries as many requests side by side as the pipeline lets it. The protocol resends and gives up
//! by itself, so that every call ends by one event.
//!
//! Invariant: each request has one outcome.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use slab::Slab;
use tailcut_measure::app::{Expected, Replies};
use tailcut_measure::load::Sample;
use tailcut_measure::load_loop::ClientTransport;
use tailcut_measure::outcome::Failure;
use tailcut_measure::slices::Slices;
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::{Driver, Observer, Wait};
use tailcut_net::open::Opening;
use tailcut_net::probe::{Arrived, Probe};
use tailcut_net::stamps::{SentStamp, StampConfig, Stamping, Stamps as Seen};
use tailcut_net::trace::{self, Trace};
use tailcut_net::xdp::XdpConfig;
use tailcut_proto::endpoint::{Endpoint, Metrics};
use tailcut_proto::node::{Time, Transmit};
use tailcut_proto::rpc::{
    Call, CallId, CallOptions, DropReason, Event, Failure as CallFailure, Rpc,
};
use tailcut_proto::sealed::DENIED_CODE;

use super::connections::Connections;
use super::plan::Plan;
use super::ready_queue::ReadyQueue;
use super::stamped::Sampler;
use super::watch::{Watch, Wire};
use crate::job::ClientCounts;

/// A request that waits for its reply.
struct Pending {
    sample: Sample,
    expected: Expected,
}

/// An endpoint's calls.
struct Lane {
    target: SocketAddr,
    /// By the call's context.
    pending: Slab<Pending>,
    watch: Watch,
}

/// All endpoints of a thread, numbered as their nodes.
pub(super) struct Endpoints {
    driver: Driver<Endpoint>,
    opening: Opening,
    wire: Wire,
    replies: Replies,
    options: CallOptions,
    lanes: Vec<Lane>,
    ready: ReadyQueue,
    pipeline: usize,
    timeout_ns: u64,
    counts: ClientCounts,
    sampler: Sampler,
    trace: Option<Trace>,
    /// Events of this turn, with their lane and time.
    events: Vec<(usize, Time, Event)>,
    /// Time of the last call that has not been flushed yet.
    called_at: Option<Time>,
}

impl Drop for Endpoints {
    /// Servers keep the last replies, and ask for them, until they hear that they have come.
    fn drop(&mut self) {
        let now = self.driver.clock().now();
        for index in 0..self.driver.count() {
            self.driver.node_mut(index).say_farewell();
        }
        self.driver.flush_all(now);
    }
}

impl Endpoints {
    /// Endpoints for a plan; none has a port yet.
    pub(super) fn new(plan: &Plan, wait: Wait, sampler: Sampler) -> Result<Self> {
        if plan.lanes.len() > ENDPOINTS_MAX {
            bail!(
                "a thread has at most {ENDPOINTS_MAX} endpoints; each carries any number of requests side by side"
            );
        }
        if plan.preload.as_ref().is_some_and(|preload| preload.key_count > 0) {
            bail!("a store is filled over TCP, TLS or UDP; fill it there first");
        }
        let lanes = plan.lanes.iter().map(|lane| Lane::new(lane.target)).collect();
        let mut opening = cloning_opening(plan, sampler.config())?;
        opening.r2p2.alternates.clone_from(&plan.alternates);
        Ok(Self {
            driver: Driver::new(wait).context("cannot set up polling")?,
            opening,
            wire: Wire::of(plan.job.transport),
            replies: Replies::new(&plan.app),
            options: CallOptions {
                idempotent: plan.job.r2p2.idempotent,
                fixed: false,
                v1: plan.job.r2p2.v1,
            },
            lanes,
            ready: ReadyQueue::default(),
            pipeline: (plan.job.pipeline as usize).min(CALLS_MAX),
            timeout_ns: plan.job.timeout_ns,
            counts: ClientCounts::default(),
            sampler,
            trace: plan.trace()?,
            events: Vec::new(),
            called_at: None,
        })
    }

    fn open_lane(&mut self, index: usize) -> Result<()> {
        let lane = &mut self.lanes[index];
        add_endpoint(&mut self.driver, &self.opening, lane.target)?;
        self.sampler.begin(index);
        if let Some(trace) = &mut self.trace {
            trace.watch(&self.driver);
        }
        self.ready.add(index);
        Ok(())
    }

    fn handle(&mut self, index: usize, now: Time, event: Event, slices: &mut Slices) {
        let lane = &mut self.lanes[index];
        match event {
            Event::Replied { id, context, payload, .. } => {
                if let Some(key) = lane.watch.release(id) {
                    self.sampler.handle_reply(index, key, Seen::default(), now);
                }
                if let Some(Pending { sample, expected }) = lane.release(context) {
                    match self.replies.judge(&payload, expected) {
                        Ok(reply) => slices.handle_reply(sample, reply.outcome, now),
                        Err(_) => {
                            self.counts.mismatched += 1;
                            slices.handle_failure(sample, Failure::Lost, now);
                        }
                    }
                }
                self.driver.node_mut(index).recycle(payload);
            }
            Event::Failed { id, context, failure, .. } => {
                if let Some(key) = lane.watch.release(id) {
                    self.sampler.handle_failure(index, key);
                }
                if let Some(Pending { sample, .. }) = lane.release(context) {
                    slices.handle_failure(sample, outcome_of(failure), now);
                }
            }
            Event::Request { .. } | Event::Cancelled { .. } => {}
        }
        if lane.has_room(self.pipeline) {
            self.ready.add(index);
        }
    }
}

/// Adds an endpoint with a port of its own, whose peer is to be `target`.
fn add_endpoint(
    driver: &mut Driver<Endpoint>,
    opening: &Opening,
    target: SocketAddr,
) -> Result<()> {
    opening.add_towards(driver, target).context("cannot open a socket")
}

/// Opening of a plan's endpoints, whose calls may have copies.
fn cloning_opening(plan: &Plan, stamps: StampConfig) -> Result<Opening> {
    let mut opening = opening(plan, stamps)?;
    let targets: Vec<_> = plan.lanes.iter().map(|lane| lane.target).collect();
    opening.r2p2.cloning = plan.job.r2p2.cloning(&targets);
    opening.r2p2.is_paced = plan.job.r2p2.paced;
    Ok(opening)
}

/// Opening of endpoints that only call.
fn opening(plan: &Plan, stamps: StampConfig) -> Result<Opening> {
    let xdp = plan.job.datapath.as_deref().map(XdpConfig::from_datapath).transpose();
    let opening = plan.job.transport.opening_over(xdp.map_err(anyhow::Error::msg)?)?;
    let mut opening = Opening { stamps, ..opening };
    opening.r2p2.calls_max = CALLS_MAX;
    opening.r2p2.serving.is_enabled = false;
    opening.keys = plan.job.seal.clone();
    opening.homa.calls_max = CALLS_MAX;
    opening.homa.calls_per_peer_max = CALLS_PER_PEER_MAX;
    opening.homa.serving.is_enabled = false;
    Ok(opening)
}

/// The number on the wire of a call that has just been made.
fn number_of(endpoint: &Endpoint, id: CallId) -> Option<u64> {
    match endpoint {
        // It is the low half of the id.
        Endpoint::R2p2(_) => Some(u64::from(id.0 as u16)),
        Endpoint::Homa(endpoint) => endpoint.wire_id(id),
    }
}

fn outcome_of(failure: CallFailure) -> Failure {
    match failure {
        CallFailure::Deadline | CallFailure::Unreachable => Failure::Timeout,
        CallFailure::Refused(_) | CallFailure::Rejected { .. } => Failure::Refused,
        // Broken, or with too long a reply.
        _ => Failure::Lost,
    }
}

/// Probes by calls, one after the other, for as long as `probe` says.
pub(super) fn probe(plan: &Plan, probe: &Probe<'_>) -> Result<Arrived> {
    let mut driver = Driver::new(Wait::default()).context("cannot set up polling")?;
    let stamps = StampConfig { stamping: Stamping::Hardware, source: probe.source };
    add_endpoint(&mut driver, &opening(plan, stamps)?, probe.target)?;
    let mut arrived = Seeing::default();
    let options = CallOptions { v1: plan.job.r2p2.v1, ..CallOptions::default() };
    let end = driver.clock().now().saturating_add(probe.wait_ns);
    let mut call_at = 0;
    loop {
        let turn = driver.turn_observed(&mut arrived, |_, endpoint, now| {
            while let Some(event) = endpoint.poll_event() {
                if let Event::Replied { payload, .. } = event {
                    endpoint.recycle(payload);
                }
            }
            if now >= call_at {
                let (payload, deadline) = (probe.request.to_vec(), now + probe.interval_ns.max(1));
                let call = Call { target: probe.target, payload, deadline, context: 0, options };
                call_at = deadline;
                // A call that cannot be made leaves no stamp.
                let _ = endpoint.call(now, call);
            }
        })?;
        if turn.now >= end {
            return Ok(arrived.0);
        }
        driver.wait(None, Some(call_at.min(end)))?;
    }
}

/// Outcome of a call before the load.
pub(super) enum CallEnd {
    /// By a reply, or by a refusal: the peer speaks the protocol.
    Answered,
    /// By the server's policy, which says this.
    Denied(String),
    /// The server has no key under which this client calls.
    NoKey,
    /// The peer's host says that nobody listens there.
    Undeliverable,
    /// Nothing came back.
    Silent,
}

/// Makes one call, and waits for its end for so long.
pub(super) fn ask(plan: &Plan, target: SocketAddr, request: &[u8], ns: u64) -> Result<CallEnd> {
    let mut driver = Driver::new(Wait::default()).context("cannot set up polling")?;
    add_endpoint(&mut driver, &opening(plan, StampConfig::default())?, target)?;
    let options = CallOptions { v1: plan.job.r2p2.v1, ..CallOptions::default() };
    let start = driver.clock().now();
    let (deadline, payload) = (start.saturating_add(ns), request.to_vec());
    let call = Call { target, payload, deadline, context: 0, options };
    driver.node_mut(0).call(start, call).context("cannot make a call")?;
    driver.flush_all(start);
    let mut end = None;
    while end.is_none() {
        let turn = driver.turn_with(|_, endpoint, now| {
            while let Some(event) = endpoint.poll_event() {
                end = match event {
                    Event::Failed { failure: CallFailure::Deadline, .. } => Some(CallEnd::Silent),
                    Event::Failed { failure: CallFailure::Unreachable, .. } => {
                        Some(CallEnd::Undeliverable)
                    }
                    Event::Failed { failure: CallFailure::Refused(DropReason::NoKey), .. } => {
                        Some(CallEnd::NoKey)
                    }
                    Event::Failed {
                        failure: CallFailure::Rejected { code: DENIED_CODE },
                        text,
                        ..
                    } if plan.job.seal.is_some() => {
                        Some(CallEnd::Denied(String::from_utf8_lossy(&text).into_owned()))
                    }
                    _ => Some(CallEnd::Answered),
                };
            }
            if now >= deadline {
                end.get_or_insert(CallEnd::Silent);
            }
        })?;
        if end.is_none() && driver.port(0).metrics().icmp_errors > 0 {
            end = Some(CallEnd::Undeliverable);
        }
        if end.is_none() && turn.is_idle() {
            driver.wait(None, Some(deadline.min(turn.now + ASK_LOOK_NS)))?;
        }
    }
    let now = driver.clock().now();
    driver.node_mut(0).say_farewell();
    driver.flush_all(now);
    // What the peer still says to a port that is closed would come back to it as an error.
    while driver.clock().now() < now + ASK_LOOK_NS {
        driver.turn()?;
        driver.wait(None, Some(now + ASK_LOOK_NS))?;
    }
    Ok(end.unwrap_or(CallEnd::Silent))
}

/// Marks every transmit of a probe, and notes which stamps come.
#[derive(Default)]
struct Seeing(Arrived);

impl Observer for Seeing {
    fn handle_received(&mut self, _node: usize, _peer: SocketAddr, _bytes: &[u8], stamps: Seen) {
        self.0.is_answered = true;
        self.0.received_kernel |= stamps.kernel_ns.is_some();
        self.0.received_hardware |= stamps.hardware_ns.is_some();
    }

    fn handle_transmit(&mut self, _node: usize, transmit: &mut Transmit, _bytes: &[u8]) {
        transmit.token = 1;
    }

    fn handle_sent(&mut self, _node: usize, _token: u64, stamps: Seen) {
        self.0.sent_kernel |= stamps.kernel_ns.is_some();
        self.0.sent_hardware |= stamps.hardware_ns.is_some();
    }
}

/// Watches the packets of calls that are stamped, and those that are traced.
struct Observed<'a> {
    wire: Wire,
    lanes: &'a mut [Lane],
    sampler: &'a mut Sampler,
    trace: Option<&'a mut Trace>,
}

impl Observer for Observed<'_> {
    fn handle_received(&mut self, node: usize, peer: SocketAddr, bytes: &[u8], stamps: Seen) {
        if let Some(trace) = &mut self.trace {
            trace.handle_received(node, peer, bytes, stamps);
        }
        if let Some(key) = self.lanes[node].watch.key_of_reply(self.wire, bytes) {
            self.sampler.handle_packet(node, key, stamps);
        }
    }

    fn handle_transmit(&mut self, node: usize, transmit: &mut Transmit, bytes: &[u8]) {
        if let Some(trace) = &mut self.trace {
            trace.handle_transmit(node, transmit, bytes);
        }
        let watch = &mut self.lanes[node].watch;
        if !watch.is_waiting() {
            return;
        }
        for datagram in bytes.chunks(transmit.segment_len.max(1)) {
            let Some((number, called_at)) = watch.take_picked(self.wire, datagram) else {
                continue;
            };
            // A GSO batch has one stamp, and so one sample.
            if transmit.token != 0 {
                self.sampler.skip_request(node);
            } else if self.sampler.handle_request(node, watch.next_key(), called_at) {
                transmit.token = watch.mark(number);
            }
        }
    }

    fn handle_sent(&mut self, node: usize, token: u64, stamps: Seen) {
        self.sampler.handle_sent(node, &SentStamp { first: token, last: token, stamps });
    }
}

impl ClientTransport for Endpoints {
    type Error = anyhow::Error;

    fn has_room(&mut self) -> bool {
        let Self { ready, lanes, pipeline, .. } = self;
        ready.has_any(|index| lanes[index].has_room(*pipeline))
    }

    fn send(&mut self, slices: &mut Slices, write: &mut dyn FnMut(&mut Vec<u8>) -> Expected) {
        let Some(index) = self.ready.next() else { return };
        let lane = &mut self.lanes[index];
        let mut payload = self.driver.node_mut(index).buffer();
        let expected = write(&mut payload);
        let now = self.driver.clock().now();
        let deadline = now.saturating_add(self.timeout_ns);
        let context = lane.pending.insert(Pending { sample: slices.handle_sent(now), expected });
        let call = Call {
            target: lane.target,
            payload,
            deadline,
            context: context as u64,
            options: self.options,
        };
        self.called_at = Some(now);
        let endpoint = self.driver.node_mut(index);
        match endpoint.call(now, call) {
            Ok(id) if self.sampler.picks() => {
                if let Some(number) = number_of(endpoint, id) {
                    lane.watch.pick(id, number, now);
                }
            }
            Ok(_) => {}
            Err(_) => {
                if let Some(Pending { sample, .. }) = lane.release(context as u64) {
                    slices.handle_failure(sample, Failure::Lost, now);
                }
            }
        }
        if lane.has_room(self.pipeline) {
            self.ready.add(index);
        }
    }

    fn flush(&mut self) {
        // Only what was called now: a node that is given an old time arms its timers in the past,
        // and resends for ever.
        let Some(now) = self.called_at.take() else { return };
        let Self { driver, lanes, sampler, trace, wire, .. } = self;
        if sampler.is_on() || trace.is_some() {
            let trace = trace.as_mut();
            driver.flush_observed(&mut Observed { wire: *wire, lanes, sampler, trace }, now);
        } else {
            driver.flush(now);
        }
    }

    fn turn(&mut self, slices: &mut Slices, until: Time) -> Result<()> {
        // The observer watches the wire while nodes take and give packets; what they have found out
        // is booked after the turn.
        let mut events = std::mem::take(&mut self.events);
        let note = |index: usize, endpoint: &mut Endpoint, now: Time| {
            while let Some(event) = endpoint.poll_event() {
                events.push((index, now, event));
            }
        };
        let Self { driver, lanes, sampler, trace, wire, .. } = self;
        let turn = if sampler.is_on() || trace.is_some() {
            let trace = trace.as_mut();
            driver.turn_observed(&mut Observed { wire: *wire, lanes, sampler, trace }, note)?
        } else {
            driver.turn_with(note)?
        };
        if let Some(trace) = trace {
            trace.look(driver, turn, |node| trace::of_endpoint(&node.metrics()));
        }
        for (index, now, event) in events.drain(..) {
            self.handle(index, now, event, slices);
        }
        self.events = events;
        if turn.is_idle() {
            self.driver.wait(None, Some(until))?;
        }
        Ok(())
    }
}

impl Connections for Endpoints {
    fn open(&mut self, _until: Time) -> Result<()> {
        (0..self.lanes.len()).try_for_each(|index| self.open_lane(index))
    }

    fn add_lane(&mut self, target: SocketAddr) {
        if self.lanes.len() < ENDPOINTS_MAX {
            self.lanes.push(Lane::new(target));
            // A host that has no more sockets goes on with those that it has.
            if self.open_lane(self.lanes.len() - 1).is_err() {
                self.lanes.pop();
            }
        }
    }

    fn counts(&mut self) -> ClientCounts {
        let mut counts = ClientCounts { sleeps: self.driver.metrics().sleeps, ..self.counts };
        for index in 0..self.lanes.len() {
            let port = self.driver.port(index);
            counts.resent += match self.driver.node(index).metrics() {
                Metrics::R2p2(metrics) => {
                    counts.clones.add_metrics(&metrics);
                    metrics.resent
                }
                // Full packets sent again, and holes in replies: RESENDs alone may only ask what a
                // slow server does.
                Metrics::Homa(metrics) => {
                    metrics.resent_bytes.div_ceil(HOMA_PACKET_LEN) + metrics.gaps
                }
            };
            counts.icmp_errors += port.metrics().icmp_errors;
            counts.kernel_drops += port.kernel_drops().map_or(0, u64::from);
        }
        counts
    }

    fn sampler(&mut self) -> &mut Sampler {
        &mut self.sampler
    }
}

impl Lane {
    fn new(target: SocketAddr) -> Self {
        Self { target, pending: Slab::new(), watch: Watch::default() }
    }

    fn has_room(&self, pipeline: usize) -> bool {
        self.pending.len() < pipeline
    }

    fn release(&mut self, context: u64) -> Option<Pending> {
        self.pending.try_remove(context as usize)
    }
}

/// Interval at which a call before the load looks for the network's word.
const ASK_LOOK_NS: u64 = 20_000_000;

/// Ports of a thread: each costs a look in every turn.
const ENDPOINTS_MAX: usize = 64;

/// Calls of an endpoint outstanding at most: the width of their index on the wire.
const CALLS_MAX: usize = 65_535;

/// Calls outstanding to one server over Homa at most: half of its window of ids.
const CALLS_PER_PEER_MAX: usize = 32_768;

/// Bytes of a message in a full packet of Homa.
const HOMA_PACKET_LEN: u64 = 1396;
