//! Serving over R2P2 or Homa: an endpoint at each port.

use std::net::SocketAddr;
use std::num::NonZeroU32;

use anyhow::{Context, Result};
use tailcut_measure::app::serving::{Limits, Task, Tasks};
use tailcut_measure::generator::{Generator, generator};
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::{Driver, Waker};
use tailcut_net::entropy;
use tailcut_net::log::{self, DriverLog};
use tailcut_net::open::{Opening, Protocol};
use tailcut_net::reuseport::QueueLen;
use tailcut_net::trace::{self, Trace};
use tailcut_net::udp::SegmentedSend;
use tailcut_proto::address::share_of;
use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::node::Time;
use tailcut_proto::policy::{Jbsq, WorkerId};
use tailcut_proto::r2p2;
use tailcut_proto::rpc::{Event, RequestId, Rpc};
use tailcut_proto::scheduler::overload::OverloadConfig;
use tailcut_proto::scheduler::{Cloning, Outcome, Scheduler, Wait};
use tailcut_wire::r2p2::DropReason;

use super::app::{App, HandlerConfig, Jitter};
use super::crew::{Crew, Ending, Sleep, spin};
use super::emulated::{Emulated, Job};
use super::layout::Layout;
use super::report::{self, Snapshot};
use super::times::Times;
use super::{Args, Left, MESSAGE_BYTES_MAX, Numbered, Running, Server, handler_config};
use crate::counters::PortSnapshot;
use crate::keys::Secured;
use crate::{network, pool_key};

/// The ports' endpoints, and the application of each.
pub(super) struct Endpoints {
    pub(super) driver: Driver<Endpoint>,
    handlers: Vec<CallDesk>,
    trace: Option<Trace>,
}

impl Endpoints {
    /// Endpoints at places of their own.
    pub(super) fn open(args: &Args, opening: &Opening, places: Vec<Numbered>) -> Result<Self> {
        let mut opening = opening.clone();
        let mut driver =
            Driver::new(args.serving.polling.wait()).context("cannot set up polling")?;
        let mut handlers = Vec::new();
        for (index, place) in places {
            opening.r2p2.pool.server_id = args.server_id.wrapping_add(index as u32);
            place.add(&opening, &mut driver)?;
            driver.node_mut(handlers.len()).set_workers(args.workers as usize);
            handlers.push(CallDesk::at(args, index, &driver.waker())?);
        }
        let mut trace = args.serving.trace.create()?;
        if let Some(trace) = &mut trace {
            trace.watch(&driver);
        }
        Ok(Self { driver, handlers, trace })
    }

    /// Endpoints of several threads that share a port.
    pub(super) fn open_group(args: &Args, opening: &Opening, count: usize) -> Result<Vec<Server>> {
        let mut opening = opening.clone();
        opening.r2p2.pool.server_id = args.server_id;
        let address = network::resolve(&args.listen)?;
        let wait = args.serving.polling.wait();
        let members: std::io::Result<Vec<_>> = if args.dispatch == Layout::Shortest {
            opening.group_by_queue(wait, address, count).map(|members| {
                members.into_iter().map(|(driver, queue_len)| (driver, Some(queue_len))).collect()
            })
        } else {
            opening
                .group(wait, address, count)
                .map(|drivers| drivers.into_iter().map(|driver| (driver, None)).collect())
        };
        let members = members.with_context(|| format!("cannot listen at {address}"))?;
        let server = |(index, (mut driver, queue_len)): (usize, (Driver<Endpoint>, _))| {
            driver.node_mut(0).set_workers(args.workers as usize);
            let desk = CallDesk::at(args, index, &driver.waker())?;
            let handlers = vec![CallDesk { queue_len, ..desk }];
            Ok(Server::Calls(Self { driver, handlers, trace: None }))
        };
        members.into_iter().enumerate().map(server).collect()
    }

    pub(super) fn serve(&mut self, running: &mut Running) -> Result<()> {
        let mut log = DriverLog::default();
        loop {
            let handlers = &mut self.handlers;
            let mut left = Left::Nothing;
            let is_draining = running.life.is_draining();
            let work = |index: usize, endpoint: &mut Endpoint, now: Time| {
                if is_draining {
                    endpoint.stop(now);
                }
                if handlers[index].work(endpoint, now) == Left::Requests {
                    left = Left::Requests;
                }
            };
            let turn = match &mut self.trace {
                Some(trace) => {
                    let turn = self.driver.turn_observed(trace, work)?;
                    trace.look(&self.driver, turn, |node| trace::of_endpoint(&node.metrics()));
                    turn
                }
                None => self.driver.turn_with(work)?,
            };
            running.follow(turn.now, |snapshot| self.fill(snapshot));
            // What was computed in the turn may have taken long.
            let now = if is_draining { self.driver.clock().now() } else { turn.now };
            if running.life.is_over(now, || self.is_busy()) {
                return Ok(());
            }
            let look_at = log.look(&self.driver, turn, |_, node| log::of_endpoint(&node.metrics()));
            if left == Left::Nothing {
                let finishes = self.handlers.iter().filter_map(CallDesk::next_finish);
                let look_at = finishes.chain(look_at).chain(running.life.look_at()).min();
                self.wait(look_at)?;
            }
        }
    }

    /// Passes the time until there is something to do, unless a worker has done something.
    fn wait(&mut self, look_at: Option<Time>) -> Result<()> {
        if self.driver.keeps_turning() {
            return Ok(());
        }
        let crews = self.handlers.iter_mut().filter_map(|handler| handler.crew.as_mut());
        let sleep = crews.fold(Sleep::until(look_at), Sleep::tell);
        if sleep.is_idle {
            self.driver.wait(None, sleep.until)?;
        }
        let crews = self.handlers.iter_mut().filter_map(|handler| handler.crew.as_mut());
        crews.for_each(|crew| crew.dispatcher.get_up());
        Ok(())
    }

    fn is_busy(&self) -> bool {
        (0..self.driver.count()).map(|index| self.driver.node(index)).any(|endpoint| {
            let held = endpoint.holdings();
            held.waiting > 0 || held.partials > 0 || endpoint.replies_under_way() > 0
        })
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        (0..self.handlers.len()).map(|index| self.driver.port(index).local_address()).collect()
    }

    pub(super) fn fill(&self, snapshot: &mut Snapshot) {
        for (index, handler) in self.handlers.iter().enumerate() {
            let port = PortSnapshot::of(self.driver.port(index));
            snapshot.ports.push(report::Port::Calls(self.driver.node(index).metrics(), port));
            snapshot.times.add(handler.emulated.times());
            snapshot.times.add(&handler.spun_times);
            snapshot.typed_times.add(handler.emulated.typed_times());
            snapshot.typed_times.note(&handler.emulated.type_metrics());
            if let Some(crew) = &handler.crew {
                snapshot.times.add(crew.times());
                snapshot.typed_times.add(crew.typed_times());
                let metrics = crew.metrics();
                snapshot.typed_times.note(&metrics.types);
                snapshot.dispatch.push(metrics);
            }
        }
    }
}

/// Settings by which endpoints are opened, the same for those of all threads.
pub(super) fn opening(args: &Args, secured: Option<&Secured>) -> Result<Opening> {
    let mut opening = args.transport.opening_over(args.serving.datapath)?;
    secured.into_iter().for_each(|secured| secured.apply(&mut opening));
    opening.segmented_send =
        if args.no_segmented_send { SegmentedSend::Off } else { SegmentedSend::On };
    if opening.protocol == Protocol::R2p2 {
        opening.r2p2 = r2p2_config(args)?;
    }
    opening.r2p2.pool.cookies = args.cookies;
    // The ports are one pool even where nobody else shares their key.
    let own_key = || entropy::secret().context("cannot draw a secret");
    let key_file = args.pool_key_file.as_deref();
    opening.r2p2.pool.key = Some(key_file.map_or_else(own_key, pool_key::read)?);
    opening.homa.serving.trusted.extend_from_slice(&args.trust);
    Ok(opening)
}

fn r2p2_config(args: &Args) -> Result<r2p2::Config> {
    let mut config = r2p2::Config::default();
    config.pool.router = args.router.as_deref().map(network::resolve).transpose()?;
    config.serving.trusted.extend_from_slice(&args.trust);
    Ok(config)
}

/// The application of one endpoint. Its requests may be cancelled, and expire by themselves.
#[derive(Debug)]
struct CallDesk {
    app: App,
    emulated: Emulated<Answer>,
    /// Threads that compute in this one's place.
    crew: Option<Crew<(Answer, Vec<u8>)>>,
    /// Requests that wait for this thread to compute.
    spun: Scheduler<Job<Answer>, Jbsq>,
    /// Request that this thread computes next.
    spun_next: Option<Job<Answer>>,
    /// Counter in which it tells how much that is, where clients join the shortest queue.
    queue_len: Option<QueueLen>,
    /// Times of the requests that this thread has computed.
    spun_times: Times,
    rng: Generator,
    /// Draws which services take much longer.
    hits: Jitter,
    limits: Limits,
}

/// Contents of the reply to a request.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// Its service time.
    Service,
    /// Contents that it asks for.
    Asked(Task),
    /// Its own bytes.
    Request,
}

impl CallDesk {
    /// Desk of the endpoint with this number, whose driver `waker` wakes.
    fn at(args: &Args, index: usize, waker: &Waker) -> Result<Self> {
        let config = handler_config(args, index, MESSAGE_BYTES_MAX);
        let mut desk = Self::new(args.app.clone(), config);
        let kinds = args.kinds()?;
        let crew = args.crew_config(index).map(|config| Crew::start(&config, waker)).transpose()?;
        desk.crew = crew.map(|crew| crew.with_kinds(kinds.clone()));
        desk.emulated = desk.emulated.with_kinds(kinds);
        Ok(desk)
    }

    fn new(app: App, config: HandlerConfig) -> Self {
        let overload = OverloadConfig { seed: !config.seed, ..OverloadConfig::DEFAULT };
        let emulated = Emulated::new(config.worker_count, config.queue_len_max, overload)
            .with_cancelled(config.cancelled);
        let mut spun = Scheduler::new(Box::new(Jbsq::new(NonZeroU32::MIN)), config.queue_len_max)
            .with_overload(overload);
        spun.add_worker();
        Self {
            app,
            emulated,
            crew: None,
            spun,
            spun_next: None,
            queue_len: None,
            spun_times: Times::default(),
            rng: generator(config.seed, config.stream),
            hits: Jitter::new(config),
            limits: config.limits,
        }
    }

    /// Answers what has finished and takes what has arrived.
    fn work(&mut self, endpoint: &mut Endpoint, now: Time) -> Left {
        let retry_after_ns = self.crew.as_ref().map(|crew| crew.dispatcher.retry_after_ns());
        let own = self.emulated.retry_after_ns().max(self.spun.retry_after_ns());
        endpoint.set_retry_after(retry_after_ns.unwrap_or(own));
        self.reply_finished(endpoint, now);
        while let Some(event) = endpoint.poll_event() {
            match event {
                Event::Request { id, client, payload, deadline, .. } => {
                    let wait = Wait::of(share_of(client.ip()), now, deadline);
                    self.take(endpoint, now, Arrived { id, payload, deadline, wait });
                }
                // What waits to be computed is asked about when it is its turn.
                Event::Cancelled { id } => {
                    self.emulated.cancel(now, id);
                    let job = self.crew.as_mut().and_then(|crew| crew.cancel(id));
                    job.into_iter().for_each(|job| endpoint.recycle(job.what.1));
                }
                Event::Replied { .. } | Event::Failed { .. } => {}
            }
        }
        self.reply_finished(endpoint, now);
        while let Some(job) = self.emulated.poll_expired(now) {
            refuse(endpoint, now, &job);
        }
        self.tell_queue_len();
        let left = self.spin_one(endpoint, now);
        self.tell_queue_len();
        left
    }

    /// Tells what this thread is at and what waits for it.
    fn tell_queue_len(&self) {
        if let Some(queue_len) = &self.queue_len {
            queue_len.set(self.spun.queue_len() + usize::from(self.spun_next.is_some()));
        }
    }

    /// Picks what this thread computes next; false where nothing waits.
    fn pick_spun(&mut self, endpoint: &mut Endpoint, now: Time) -> bool {
        self.spun.conclude(WorkerId(0));
        while let Some(job) = self.spun.poll_expired(now) {
            refuse(endpoint, now, &job);
        }
        self.spun_next = self.spun.poll_placed(now, 0).map(|(_, job)| job);
        self.spun_next.is_some()
    }

    /// Computes one service, if one waits. One a turn: its reply leaves, and what has arrived
    /// meanwhile is received, before the next.
    fn spin_one(&mut self, endpoint: &mut Endpoint, now: Time) -> Left {
        let job = loop {
            let Some(job) = self.spun_next.take() else { return Left::Nothing };
            if endpoint.is_waiting(job.id) {
                break job;
            }
            self.pick_spun(endpoint, now);
        };
        let (service_ns, arrived_at) = (job.service_ns, job.arrived_at);
        let end = spin(now, service_ns);
        let queueing_ns = end.saturating_sub(arrived_at).saturating_sub(service_ns);
        self.spun_times.record(queueing_ns, service_ns);
        reply(endpoint, end, job);
        if self.pick_spun(endpoint, end) { Left::Requests } else { Left::Nothing }
    }

    /// Time at which the next emulated service ends, something has waited for it for too long, or
    /// workers want to be looked at.
    fn next_finish(&self) -> Option<Time> {
        let look_at = self.crew.as_ref().and_then(|crew| crew.dispatcher.next_look());
        let emulated = self.emulated.next_finish().into_iter().chain(self.emulated.next_expiry());
        emulated.chain(look_at).min()
    }

    fn reply_finished(&mut self, endpoint: &mut Endpoint, now: Time) {
        while let Some(job) = self.emulated.poll_finished(now) {
            reply(endpoint, now, job);
        }
        if let Some(crew) = &mut self.crew {
            crew.poll_ended(
                now,
                |Job { id, what: (what, payload), arrived_at, service_ns }, ending| {
                    let job = Job { id, what, arrived_at, service_ns };
                    match (ending, what) {
                        (Ending::Expired, _) => {
                            endpoint.recycle(payload);
                            refuse(endpoint, now, &job);
                        }
                        // A request that is gone needs no reply.
                        (_, Answer::Request) => drop(endpoint.reply(now, id, payload)),
                        _ => reply(endpoint, now, job),
                    }
                },
            );
        }
    }

    fn take(&mut self, endpoint: &mut Endpoint, now: Time, arrived: Arrived) {
        let Arrived { id, payload, deadline, wait } = arrived;
        // What is refused or answered here may be gone already, and then needs neither.
        if matches!(self.app, App::Echo) {
            let Some(crew) = &mut self.crew else {
                let _ = endpoint.reply(now, id, payload);
                return;
            };
            let what = (Answer::Request, payload);
            let job = Job { id, what, arrived_at: now, service_ns: 0 };
            if let Err(job) = crew.offer(job, deadline, wait) {
                endpoint.recycle(job.what.1);
                let _ = endpoint.refuse(now, id, DropReason::Overload);
            }
            return;
        }
        let asked = self.read(&payload);
        endpoint.recycle(payload);
        let Some((service_ns, what)) = asked else {
            let _ = endpoint.refuse(now, id, DropReason::Application);
            return;
        };
        let job = Job { id, what, arrived_at: now, service_ns };
        let is_taken = if self.app.is_emulated() {
            self.emulated.offer(job, wait)
        } else if let Some(crew) = &mut self.crew {
            let Job { id, what, arrived_at, service_ns } = job;
            let what = (what, Vec::new());
            crew.offer(Job { id, what, arrived_at, service_ns }, deadline, wait).is_ok()
        } else {
            self.offer_spun(job, wait)
        };
        if !is_taken {
            refuse(endpoint, now, &job);
        }
    }

    /// Takes a request for this thread to compute; false when the queue is full.
    fn offer_spun(&mut self, job: Job<Answer>, wait: Wait) -> bool {
        match self.spun.offer(job, Cloning::Forbidden, wait, 0) {
            Outcome::Placed(_, job) => self.spun_next = Some(job),
            Outcome::Held(_) => {}
            Outcome::Full(_) => return false,
        }
        true
    }

    /// Service time of a request, ns, and its answer; nothing for one that asks for too much.
    fn read(&mut self, payload: &[u8]) -> Option<(u64, Answer)> {
        let App::Tasks { form, times, .. } = &self.app else {
            return None;
        };
        if !form.is_time_alone() {
            let task = Tasks::read(*form, self.limits, payload).ok()?;
            return Some((task.service_ns, Answer::Asked(task)));
        }
        // What else such a request carries over R2P2 is not looked at.
        let drawn = times.as_ref().map(|times| self.hits.apply(times.sample_whole(&mut self.rng)));
        let service_ns = drawn.or_else(|| {
            requested_ns(payload).filter(|&asked_ns| asked_ns <= self.limits.service_ns_max)
        });
        Some((service_ns?, Answer::Service))
    }
}

/// A request, as its event has it.
struct Arrived {
    id: RequestId,
    payload: Vec<u8>,
    deadline: Time,
    wait: Wait,
}

/// Refuses a request that would wait, or has waited, for too long.
fn refuse(endpoint: &mut Endpoint, now: Time, job: &Job<Answer>) {
    // A request that is gone needs no answer.
    let _ = endpoint.refuse(now, job.id, DropReason::Overload);
}

fn reply(endpoint: &mut Endpoint, now: Time, job: Job<Answer>) {
    let mut reply = endpoint.buffer();
    match job.what {
        Answer::Service => reply.extend_from_slice(&job.service_ns.to_be_bytes()),
        Answer::Asked(task) => task.write_reply(&mut reply),
        Answer::Request => {}
    }
    // A request that is gone needs no reply.
    let _ = endpoint.reply(now, job.id, reply);
}

/// The service time at the front of a request.
fn requested_ns(payload: &[u8]) -> Option<u64> {
    payload.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}
