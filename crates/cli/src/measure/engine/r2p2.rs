//! A thread's endpoints of R2P2: one for each connection.
//!
//! An endpoint is a port of its own with sessions of its own; unlike a connection over TCP, it carries as many requests side by
//! side as the pipeline lets it. The protocol resends and gives up by itself, so that every call ends by one event.
//!
//! Invariant: each request has one outcome.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context, Result, bail};
use tailcut_measure::app::{App, Expected, Preload, Replies};
use tailcut_measure::load::Sample;
use tailcut_measure::recorder::Failure;
use tailcut_measure::slices::Slices;
use tailcut_net::driver::{Driver, Wait};
use tailcut_net::entropy;
use tailcut_net::udp::Coalescing;
use tailcut_proto::node::Time;
use tailcut_proto::r2p2::{Config, Endpoint};
use tailcut_proto::rpc::{Call, CallOptions, Event, Failure as CallFailure, Rpc};

use super::{Carries, Plan};
use crate::measure::job::ClientCounts;
use crate::network;

/// A request that waits for its reply.
struct Pending {
    sample: Sample,
    expected: Expected,
}

/// An endpoint's calls.
struct Lane {
    target: SocketAddr,
    /// By the call's context.
    pending: Vec<Option<Pending>>,
    /// Contexts of no call.
    free: Vec<usize>,
    /// It is among those that have room.
    is_ready: bool,
}

/// All endpoints of a thread, numbered as their nodes.
pub(super) struct Endpoints {
    driver: Driver<Endpoint>,
    app: App,
    options: CallOptions,
    lanes: Vec<Lane>,
    /// Lanes with room, the one that has waited longest first.
    ready: VecDeque<usize>,
    pipeline: usize,
    timeout_ns: u64,
    counts: ClientCounts,
    /// When the last call was made.
    called_at: Time,
}

impl Endpoints {
    /// Endpoints for a plan; none has a port yet.
    pub(super) fn new(plan: &Plan, wait: Wait) -> Result<Self> {
        if plan.lanes.len() > ENDPOINTS_MAX {
            bail!("a thread has at most {ENDPOINTS_MAX} endpoints of R2P2; each carries any number of requests side by side");
        }
        if plan.preload.as_ref().is_some_and(|preload| Preload::key_count(preload) > 0) {
            bail!("a store is not filled over R2P2; fill it over another transport");
        }
        let lanes = plan.lanes.iter().map(|lane| Lane::new(lane.target)).collect();
        Ok(Self {
            driver: Driver::new(wait).context("cannot set up polling")?,
            app: plan.app.clone(),
            options: CallOptions { idempotent: plan.job.r2p2.idempotent, fixed: false, v1: plan.job.r2p2.v1 },
            lanes,
            ready: VecDeque::new(),
            pipeline: plan.pipeline.min(CALLS_MAX),
            timeout_ns: plan.timeout_ns,
            counts: ClientCounts::default(),
            called_at: 0,
        })
    }

    fn open_lane(&mut self, index: usize) -> Result<()> {
        let lane = &mut self.lanes[index];
        let any = if lane.target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let port = network::bind(SocketAddr::new(any, 0), Coalescing::On)?;
        let mut config = Config { calls_max: CALLS_MAX, ..Config::default() };
        config.secret = entropy::secret().context("cannot draw a secret")?;
        config.credit_bytes = network::credit_bytes(&port)?;
        config.serving.is_enabled = false;
        let endpoint = Endpoint::new(self.driver.clock().now(), config);
        self.driver.add(endpoint, port, None);
        lane.is_ready = true;
        self.ready.push_back(index);
        Ok(())
    }
}

impl Carries for Endpoints {
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
        let Some(index) = self.ready.pop_front() else { return Some(sample) };
        let lane = &mut self.lanes[index];
        let endpoint = self.driver.node_mut(index);
        lane.is_ready = false;
        let mut payload = endpoint.buffer();
        let expected = write(&mut payload);
        let (now, deadline) = (sample.sent_ns, sample.sent_ns.saturating_add(self.timeout_ns));
        let context = lane.hold(Pending { sample, expected });
        let call = Call { target: lane.target, payload, deadline, context: context as u64, options: self.options };
        self.called_at = now;
        let failed = match endpoint.call(now, call) {
            Ok(_) => None,
            Err(_) => lane.release(context as u64).map(|pending| pending.sample),
        };
        if lane.has_room(self.pipeline) {
            lane.is_ready = true;
            self.ready.push_back(index);
        }
        failed
    }

    fn flush(&mut self) {
        self.driver.flush(self.called_at);
    }

    fn turn(&mut self, slices: &mut Slices, until: Time) -> Result<()> {
        let Self { driver, app, lanes, ready, pipeline, counts, .. } = self;
        let turn = driver.turn_with(|index, endpoint, now| {
            let lane = &mut lanes[index];
            while let Some(event) = endpoint.poll_event() {
                lane.handle(event, app, (endpoint, now), (slices, counts));
            }
            if lane.has_room(*pipeline) && !lane.is_ready {
                lane.is_ready = true;
                ready.push_back(index);
            }
        })?;
        if turn.is_idle() {
            driver.wait(None, Some(until))?;
        }
        Ok(())
    }

    fn counts(&mut self) -> ClientCounts {
        let mut counts = ClientCounts { sleeps: self.driver.metrics().sleeps, ..self.counts };
        for index in 0..self.lanes.len() {
            let port = self.driver.port(index);
            counts.resent += self.driver.node(index).metrics().resent;
            counts.icmp_errors += port.metrics().icmp_errors;
            counts.kernel_drops += port.kernel_drops().map_or(0, u64::from);
        }
        counts
    }
}

impl Lane {
    fn new(target: SocketAddr) -> Self {
        Self { target, pending: Vec::new(), free: Vec::new(), is_ready: false }
    }

    fn has_room(&self, pipeline: usize) -> bool {
        self.pending.len() - self.free.len() < pipeline
    }

    /// Keeps what a call waits for; gives the call's context.
    fn hold(&mut self, pending: Pending) -> usize {
        let context = self.free.pop().unwrap_or_else(|| {
            self.pending.push(None);
            self.pending.len() - 1
        });
        self.pending[context] = Some(pending);
        context
    }

    fn release(&mut self, context: u64) -> Option<Pending> {
        let pending = self.pending.get_mut(context as usize)?.take()?;
        self.free.push(context as usize);
        Some(pending)
    }

    fn handle(
        &mut self,
        event: Event,
        app: &App,
        (endpoint, now): (&mut Endpoint, Time),
        (slices, counts): (&mut Slices, &mut ClientCounts),
    ) {
        match event {
            Event::Replied { context, payload, .. } => {
                let pending = self.release(context);
                if let Some(Pending { sample, expected }) = pending {
                    match Replies::judge(app, &payload, expected) {
                        Ok(reply) => slices.handle_reply(sample, reply.outcome, now),
                        Err(_) => {
                            counts.mismatched += 1;
                            slices.handle_failure(sample, Failure::Lost, now);
                        }
                    }
                }
                endpoint.recycle(payload);
            }
            Event::Failed { context, failure, .. } => {
                let failure = match failure {
                    CallFailure::Deadline => Failure::Timeout,
                    CallFailure::Refused(_) => Failure::Refused,
                    CallFailure::Broken | CallFailure::ReplyTooLarge => Failure::Lost,
                };
                if let Some(Pending { sample, .. }) = self.release(context) {
                    slices.handle_failure(sample, failure, now);
                }
            }
            Event::Request { .. } | Event::Cancelled { .. } => {}
        }
    }
}

/// Ports of a thread: each costs a look in every turn.
const ENDPOINTS_MAX: usize = 64;

/// Calls of an endpoint outstanding at most: the width of their index on the wire.
const CALLS_MAX: usize = 65_535;
