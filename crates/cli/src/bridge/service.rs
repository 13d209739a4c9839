//! The loop of a bridge: calls in front, a queue, connections behind.
//!
//! | a request | event | then |
//! |---|---|---|
//! | comes | it is malformed, or cannot be called | rejected, with the reason |
//! | comes | the server has fewer than `outstanding` | it is sent |
//! | comes | the server has as many | it waits |
//! | waits | one is answered | the next is sent |
//! | waits | it is cancelled, or has waited for too long | it leaves; in the second case refused: overload |
//! | is at the server | it is cancelled | its place is kept until the server answers |
//! | is at the server | its connection ends | refused: uncertain, or tried again where it may run twice |
//!
//! Invariant: a place is given back when the server has answered or its connection has ended, and
//! never otherwise: what a router counts is what the server has.

use std::collections::HashMap;
use std::io;
use std::num::NonZeroU32;

use anyhow::{Context, Result};
use foldhash::fast::FixedState;
use tailcut_bridge::{App, Ended, Ending, Place, Pool, PoolConfig, PoolMetrics, Task};
use tailcut_net::driver::{Driver, Wait as DriverWait, Woken};
use tailcut_net::log::{self, DriverLog};
use tailcut_net::stream::{ConnectionId, Event as StreamEvent, StreamConfig, Streams};
use tailcut_proto::address::share_of;
use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::histogram::Histogram;
use tailcut_proto::node::Time;
use tailcut_proto::policy::{Jbsq, WorkerId};
use tailcut_proto::rpc::{DropReason, Event, RequestId, Rpc};
use tailcut_proto::scheduler::overload::OverloadConfig;
use tailcut_proto::scheduler::{Cloning, Outcome, Scheduler, Service as InService, Ticket, Wait};

use super::target::Target;
use crate::counters::{self, Counters, PortSnapshot};
use crate::sidecar::{Sidecar, Snapshot};

/// Limits of the server and of the queue before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) outstanding: NonZeroU32,
    pub(super) queue_len_max: usize,
}

/// A bridge.
pub(super) struct Service {
    driver: Driver<Endpoint>,
    streams: Streams,
    target: Target,
    handler: RequestHandler,
}

/// The requests, wherever they are.
struct RequestHandler {
    app: App,
    pool: Pool<Job>,
    queue: Scheduler<Task<Job>, Jbsq>,
    /// Places in the queue, for cancels.
    held: HashMap<RequestId, Ticket, FixedState>,
    /// The connection at each place.
    connections: Vec<Option<ConnectionId>>,
    /// Requests that have ended and are not answered; empty between turns.
    ended: Vec<Ended<Job>>,
    /// Connections that have fresh output; empty between turns.
    fresh: Vec<ConnectionId>,
    /// True if routers were last told that it serves.
    is_serving: bool,
    counts: Counts,
    /// From when a request came to its answer.
    service_times: Histogram,
}

/// A request.
#[derive(Clone, Copy, Debug)]
struct Job {
    id: RequestId,
    arrived_at: Time,
}

/// Counters of requests before the server.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Calls taken.
    requests: u64,
    /// Calls that are no message of the server's protocol.
    malformed: u64,
    /// Calls that ask for what no call can do, such as SUBSCRIBE.
    forbidden: u64,
    /// Calls refused because they would have waited for too long.
    overload: u64,
    /// Calls cancelled while they waited for the server.
    cancelled_held: u64,
    /// Answers of the server that are errors.
    server_errors: u64,
    /// Times that the server could not be reached any more.
    outages: u64,
}

impl Service {
    /// A bridge that is not connected yet.
    pub(super) fn open(
        mut driver: Driver<Endpoint>,
        (target, config): (Target, PoolConfig),
        limits: Limits,
    ) -> Result<Self> {
        // What waits for the server is bounded by `outstanding`, not by its bytes.
        let stream_config = StreamConfig { output_len_max: usize::MAX, ..StreamConfig::default() };
        let streams = Streams::new(DriverWait::Block { spin_ns: 0 }, stream_config);
        let streams = streams.context("cannot set up connections")?;
        let overload = OverloadConfig::DEFAULT;
        let mut queue =
            Scheduler::new(Box::new(Jbsq::new(limits.outstanding)), limits.queue_len_max)
                .with_overload(overload);
        queue.add_worker();
        queue.set_in_service(SERVER, InService::Out);
        let now = driver.clock().now();
        driver.node_mut(0).stop(now);
        let handler = RequestHandler {
            app: config.app,
            pool: Pool::new(config),
            queue,
            held: HashMap::with_hasher(FixedState::with_seed(0)),
            connections: Vec::new(),
            ended: Vec::new(),
            fresh: Vec::new(),
            is_serving: false,
            counts: Counts::default(),
            service_times: Histogram::default(),
        };
        Ok(Self { driver, streams, target, handler })
    }

    /// Serves until it has drained.
    pub(super) fn run(&mut self, sidecar: &mut Sidecar) -> Result<()> {
        let (mut log, mut log_at, mut woken) = (DriverLog::default(), None, Woken::ALL);
        loop {
            let is_draining = sidecar.life.is_draining();
            let Self { driver, streams, target, handler } = self;
            let mut now = driver.clock().now();
            if woken.own {
                let turn = driver.turn_with(|_, endpoint, now| {
                    if is_draining {
                        endpoint.stop(now);
                    }
                    handler.take_calls(endpoint, now, streams);
                    handler.dispatch(endpoint, now, streams);
                })?;
                now = turn.now;
                log_at = log.look(driver, turn, |_, node| log::of_endpoint(&node.metrics()));
            }
            if woken.extra || streams.next_deadline().is_some_and(|deadline| deadline <= now) {
                handler.hear(now, streams)?;
            }
            handler.connect(now, streams, target);
            let endpoint = driver.node_mut(0);
            if !is_draining {
                handler.tell_routers(endpoint, now);
            }
            handler.dispatch(endpoint, now, streams);
            driver.flush(now);
            sidecar.follow(now, || self.snapshot());
            if sidecar.life.is_over(now, || self.is_busy()) {
                return Ok(());
            }
            let look_at = log_at.into_iter().chain(sidecar.life.look_at());
            let look_at = look_at.chain(self.handler.next_deadline()).min();
            woken = self.streams.wait_with(&mut self.driver, look_at)?;
        }
    }

    fn is_busy(&self) -> bool {
        let endpoint = self.driver.node(0);
        let held = endpoint.holdings();
        held.waiting > 0 || held.partials > 0 || endpoint.replies_under_way() > 0
    }

    /// Snapshot for others that ask.
    pub(super) fn snapshot(&self) -> Snapshot {
        let Self { driver, streams, handler, .. } = self;
        let mut counters = handler.counters();
        counters.extend(counters::of_endpoint(&driver.node(0).metrics()));
        counters.extend(PortSnapshot::of(driver.port(0)).counters());
        counters.extend(counters::of_streams(&streams.metrics()));
        let pool = &handler.pool;
        Snapshot {
            unready: (!pool.is_up()).then_some("the server cannot be reached"),
            gauges: vec![
                ("server_up", "1 while the server can be asked.", u64::from(pool.is_up())),
                ("connections", "Connections to the server.", pool.up_count() as u64),
                (
                    "outstanding_requests",
                    "Requests that the server has.",
                    pool.outstanding() as u64,
                ),
                (
                    "held_requests",
                    "Requests that wait for it.",
                    (handler.queue.queue_len() + pool.parked()) as u64,
                ),
            ],
            counters,
            times: vec![(
                "service",
                "Time from a request's arrival to its answer.",
                handler.service_times,
            )],
            ..Snapshot::default()
        }
    }
}

impl RequestHandler {
    /// Takes what the network has brought.
    fn take_calls(&mut self, endpoint: &mut Endpoint, now: Time, streams: &mut Streams) {
        endpoint.set_retry_after(self.queue.retry_after_ns());
        while let Some(event) = endpoint.poll_event() {
            match event {
                Event::Request { id, client, payload, deadline, .. } => {
                    let wait = Wait::of(share_of(client.ip()), now, deadline);
                    self.take(endpoint, now, (id, payload), wait);
                }
                Event::Cancelled { id } => {
                    let ticket = self.held.remove(&id);
                    if let Some(task) = ticket.and_then(|ticket| self.queue.remove(ticket)) {
                        self.counts.cancelled_held += 1;
                        endpoint.recycle(task.request);
                    } else if let Some(place) =
                        self.pool.abandon(|job| job.id == id, &mut self.ended)
                    {
                        self.give_up(now, place, streams);
                    }
                }
                Event::Replied { .. } | Event::Failed { .. } => {}
            }
        }
    }

    fn take(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        (id, payload): (RequestId, Vec<u8>),
        wait: Wait,
    ) {
        self.counts.requests += 1;
        let message = match self.app.read(&payload) {
            Ok(message) => message,
            Err(refusal) => {
                let is_malformed = refusal.code == tailcut_bridge::Refusal::MALFORMED;
                self.counts.malformed += u64::from(is_malformed);
                self.counts.forbidden += u64::from(!is_malformed);
                endpoint.recycle(payload);
                // A request that is gone needs no answer.
                let _ = endpoint.reject(now, id, refusal.code, refusal.text.as_bytes());
                return;
            }
        };
        let job = Job { id, arrived_at: now };
        let task = Task::new(job, message, payload, endpoint.buffer());
        match self.queue.offer(task, Cloning::Forbidden, wait, 0) {
            Outcome::Placed(_, task) => self.pool.offer(now, task),
            Outcome::Held(ticket) => {
                self.held.insert(id, ticket);
            }
            Outcome::Full(task) => self.refuse(endpoint, now, task),
        }
    }

    /// Refuses a request that would wait, or has waited, for too long.
    fn refuse(&mut self, endpoint: &mut Endpoint, now: Time, task: Task<Job>) {
        self.counts.overload += 1;
        endpoint.recycle(task.request);
        // A request that is gone needs no answer.
        let _ = endpoint.refuse(now, task.job.id, DropReason::Overload);
    }

    /// Answers what has ended, and sends what may be sent.
    fn dispatch(&mut self, endpoint: &mut Endpoint, now: Time, streams: &mut Streams) {
        self.pool.expire(now, &mut self.ended);
        for _ in 0..self.ended.len() {
            self.queue.conclude(SERVER);
        }
        let mut all = std::mem::take(&mut self.ended);
        all.drain(..).for_each(|ended| self.answer(endpoint, now, ended));
        self.ended = all;
        while let Some(task) = self.queue.poll_expired(now) {
            self.held.remove(&task.job.id);
            self.refuse(endpoint, now, task);
        }
        while let Some((_, task)) = self.queue.poll_placed(now, 0) {
            self.held.remove(&task.job.id);
            self.pool.offer(now, task);
        }
        while let Some((place, task)) = self.pool.poll_send() {
            let id = self.connections[place.0].expect("a connection that is up");
            match streams.output(id) {
                Some(out) => self.pool.send(now, place, task, out),
                // It has just failed, which the next look tells: so does what is sent to it.
                None => self.pool.send(now, place, task, &mut Vec::new()),
            }
            self.fresh.push(id);
        }
        for id in self.fresh.drain(..) {
            streams.flush(id);
        }
    }

    fn answer(&mut self, endpoint: &mut Endpoint, now: Time, ended: Ended<Job>) {
        let Ended { job, ending, request } = ended;
        endpoint.recycle(request);
        // A request that is gone needs no answer.
        let _ = match ending {
            Ending::Answered(reply) => {
                self.counts.server_errors += u64::from(self.app.is_error(&reply));
                self.service_times.record(now.saturating_sub(job.arrived_at));
                endpoint.reply(now, job.id, reply)
            }
            Ending::TooLong => endpoint.refuse(now, job.id, DropReason::TooLarge),
            Ending::Lost => endpoint.refuse(now, job.id, DropReason::Uncertain),
            Ending::Unavailable => endpoint.refuse(now, job.id, DropReason::Overload),
        };
    }

    /// Takes what the server says; returns how often it said something.
    fn hear(&mut self, now: Time, streams: &mut Streams) -> io::Result<usize> {
        let Self { pool, connections, ended, .. } = self;
        let place = |id: ConnectionId, connections: &[Option<ConnectionId>]| {
            connections.iter().position(|&known| known == Some(id)).map(Place)
        };
        streams.look(|connection, event| {
            let Some(at) = place(connection.id(), connections) else { return };
            let is_lost = match event {
                StreamEvent::Connected => {
                    pool.handle_connected(now, at, connection.output());
                    false
                }
                StreamEvent::Bytes(bytes) => match pool.handle_bytes(now, at, bytes, ended) {
                    Ok(()) => false,
                    Err(tailcut_bridge::Nonsense::Farewell) => true,
                    Err(nonsense) => {
                        let words = pool.take_trouble().unwrap_or_default();
                        tracing::warn!(%nonsense, words, "the server is not understood");
                        true
                    }
                },
                StreamEvent::Finished | StreamEvent::Closed(_) => true,
                StreamEvent::Accepted(_) | StreamEvent::Sent(_) => false,
            };
            if is_lost {
                connection.close();
                connections[at.0] = None;
                pool.handle_closed(now, at, ended);
            }
        })
    }

    /// Opens connections, and gives up those that are silent.
    fn connect(&mut self, now: Time, streams: &mut Streams, target: &Target) {
        if self.pool.next_deadline().is_none_or(|at| at > now) {
            return;
        }
        while let Some(place) = self.pool.poll_silent(now) {
            tracing::warn!("the server has been silent for too long: a connection is given up");
            self.give_up(now, place, streams);
        }
        while let Some(place) = self.pool.poll_connect(now) {
            if self.connections.len() <= place.0 {
                self.connections.resize(place.0 + 1, None);
            }
            match target.connect(streams) {
                Ok(id) => self.connections[place.0] = Some(id),
                Err(_) => self.pool.handle_closed(now, place, &mut self.ended),
            }
        }
    }

    /// Closes a connection.
    fn give_up(&mut self, now: Time, place: Place, streams: &mut Streams) {
        if let Some(id) = self.connections[place.0].take() {
            streams.close(id);
        }
        self.pool.handle_closed(now, place, &mut self.ended);
    }

    /// While the server cannot be reached, routers place nothing here.
    fn tell_routers(&mut self, endpoint: &mut Endpoint, now: Time) {
        let is_up = self.pool.is_up();
        if is_up == self.is_serving {
            return;
        }
        self.is_serving = is_up;
        self.queue.set_in_service(SERVER, if is_up { InService::In } else { InService::Out });
        if is_up {
            tracing::info!("the server can be reached");
            endpoint.serve_again();
        } else {
            tracing::warn!("the server cannot be reached");
            self.counts.outages += 1;
            endpoint.stop(now);
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.pool.next_deadline().into_iter().chain(self.queue.next_expiry()).min()
    }

    fn counters(&self) -> Counters {
        let Counts {
            requests,
            malformed,
            forbidden,
            overload,
            cancelled_held,
            server_errors,
            outages,
        } = self.counts;
        let PoolMetrics {
            connected,
            connect_failed,
            disconnected,
            silent,
            nonsense,
            sent,
            answered,
            too_long,
            retried,
            lost,
            unavailable,
        } = self.pool.metrics();
        [
            ("bridge_requests", requests),
            ("bridge_malformed", malformed),
            ("bridge_forbidden", forbidden),
            ("bridge_overload", overload),
            ("bridge_cancelled_held", cancelled_held),
            ("server_errors", server_errors),
            ("server_outages", outages),
            ("server_connected", connected),
            ("server_connect_failed", connect_failed),
            ("server_disconnected", disconnected),
            ("server_silent", silent),
            ("server_nonsense", nonsense),
            ("server_requests", sent),
            ("server_answered", answered),
            ("server_too_long", too_long),
            ("server_retried", retried),
            ("server_lost", lost),
            ("server_unavailable", unavailable),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .to_vec()
    }
}

/// The queue's only worker.
const SERVER: WorkerId = WorkerId(0);
