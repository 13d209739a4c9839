//! Serving over R2P2 or Homa: an endpoint at each port.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use tailcut_measure::app::serving::{Limits, Task, Tasks};
use tailcut_measure::generator::{Generator, generator};
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::Driver;
use tailcut_net::entropy;
use tailcut_net::log::{self, DriverLog};
use tailcut_net::open::{Opening, Protocol};
use tailcut_net::trace::{self, Trace};
use tailcut_net::udp::SegmentedSend;
use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::node::Time;
use tailcut_proto::r2p2;
use tailcut_proto::rpc::{Event, RequestId, Rpc};
use tailcut_wire::r2p2::DropReason;

use super::app::{App, HandlerConfig, spin};
use super::emulated::{Emulated, Job};
use super::{Args, Left, MESSAGE_BYTES_MAX, handler_config, ports};
use crate::counters::{self, Counters};
use crate::{network, output};

/// The ports' endpoints, and the application of each.
pub(super) struct Endpoints {
    pub(super) driver: Driver<Endpoint>,
    handlers: Vec<CallDesk>,
    trace: Option<Trace>,
}

impl Endpoints {
    pub(super) fn open(args: &Args) -> Result<Self> {
        let mut driver = Driver::new(args.polling.wait()).context("cannot set up polling")?;
        let mut opening = opening(args)?;
        let mut handlers = Vec::new();
        for (index, address) in ports(args)?.into_iter().enumerate() {
            opening.r2p2.pool.server_id = args.server_id.wrapping_add(index as u32);
            opening
                .add(&mut driver, address)
                .with_context(|| format!("cannot listen at {address}"))?;
            handlers.push(CallDesk::new(
                args.app.clone(),
                handler_config(args, index, MESSAGE_BYTES_MAX),
            ));
        }
        let mut trace = args.trace.create()?;
        if let Some(trace) = &mut trace {
            trace.watch(&driver);
        }
        Ok(Self { driver, handlers, trace })
    }

    pub(super) fn serve(&mut self, stop: &AtomicBool) -> Result<()> {
        let mut log = DriverLog::default();
        while !stop.load(Ordering::Relaxed) {
            let handlers = &mut self.handlers;
            let mut left = Left::Nothing;
            let work = |index: usize, endpoint: &mut Endpoint, now: Time| {
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
            let look_at = log.look(&self.driver, turn, |_, node| log::of_endpoint(&node.metrics()));
            if left == Left::Nothing {
                let next_finish = handlers.iter().filter_map(CallDesk::next_finish);
                self.driver.wait(None, next_finish.chain(look_at).min())?;
            }
        }
        Ok(())
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        (0..self.handlers.len()).map(|index| self.driver.port(index).local_address()).collect()
    }

    /// The counters of all ports together, and each port's share of the requests.
    pub(super) fn report(&self) -> String {
        let mut all = Counters::new();
        let mut shares = Vec::new();
        for (index, address) in self.addresses().into_iter().enumerate() {
            let metrics = self.driver.node(index).metrics();
            let mut counters = counters::of_endpoint(&metrics);
            counters.extend(counters::of_port(self.driver.port(index)));
            counters::add(&mut all, &counters);
            shares.push(vec![format!("  {address}"), metrics.requests().to_string()]);
        }
        let shares = if shares.len() > 1 {
            format!("requests by port:\n{}", output::table(&shares, 1))
        } else {
            String::new()
        };
        format!("served:\n{}{shares}", counters::lines(&all))
    }
}

fn opening(args: &Args) -> Result<Opening> {
    let mut opening = args.transport.opening();
    opening.segmented_send =
        if args.no_coalescing { SegmentedSend::Off } else { SegmentedSend::On };
    if opening.protocol == Protocol::R2p2 {
        opening.r2p2 = r2p2_config(args)?;
    }
    Ok(opening)
}

fn r2p2_config(args: &Args) -> Result<r2p2::Config> {
    let mut config = r2p2::Config::default();
    config.pool.router = args.router.as_deref().map(network::resolve).transpose()?;
    config.serving.trusted.extend_from_slice(&args.trust);
    // The ports are one pool even where nobody else shares their key.
    let own_key = || entropy::secret().context("cannot draw a secret");
    config.pool.key = Some(args.pool_key_file.as_deref().map_or_else(own_key, read_pool_key)?);
    Ok(config)
}

fn read_pool_key(path: &Path) -> Result<[u8; 16]> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read the pool's key from {}", path.display()))?;
    let digits = text.trim();
    let is_key = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let key = u128::from_str_radix(digits, 16).ok().filter(|_| is_key);
    let hint = "the pool's key is 32 hex digits; `openssl rand -hex 16` makes one";
    Ok(key.with_context(|| format!("{}: {hint}", path.display()))?.to_be_bytes())
}

/// The application of one endpoint. Its requests may be cancelled, and expire by themselves.
#[derive(Debug)]
struct CallDesk {
    app: App,
    emulated: Emulated<Answer>,
    rng: Generator,
    limits: Limits,
}

/// What a request is answered with.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// Its service time.
    Service,
    /// What it asks for.
    Asked(Task),
}

impl CallDesk {
    fn new(app: App, config: HandlerConfig) -> Self {
        let emulated = Emulated::new(config.worker_count, config.queue_len_max);
        Self { app, emulated, rng: generator(config.seed, config.stream), limits: config.limits }
    }

    /// Answers what has finished and takes what has arrived.
    fn work(&mut self, endpoint: &mut Endpoint, now: Time) -> Left {
        self.reply_finished(endpoint, now);
        while let Some(event) = endpoint.poll_event() {
            match event {
                Event::Request { id, payload, deadline, .. } => {
                    if self.take(endpoint, now, Arrived { id, payload, deadline }) == Left::Requests
                    {
                        return Left::Requests;
                    }
                }
                Event::Cancelled { id } => self.emulated.cancel(id),
                Event::Replied { .. } | Event::Failed { .. } => {}
            }
        }
        self.reply_finished(endpoint, now);
        Left::Nothing
    }

    /// When the next emulated service ends.
    fn next_finish(&self) -> Option<Time> {
        self.emulated.next_finish()
    }

    fn reply_finished(&mut self, endpoint: &mut Endpoint, now: Time) {
        while let Some(job) = self.emulated.poll_finished(now) {
            reply(endpoint, now, job);
        }
    }

    fn take(&mut self, endpoint: &mut Endpoint, now: Time, arrived: Arrived) -> Left {
        let Arrived { id, payload, deadline } = arrived;
        if matches!(self.app, App::Echo) {
            // A request that is gone needs no reply.
            let _ = endpoint.reply(now, id, payload);
            return Left::Nothing;
        }
        let asked = self.read(&payload);
        endpoint.recycle(payload);
        let Some((service_ns, what)) = asked else {
            let _ = endpoint.refuse(now, id, DropReason::Application);
            return Left::Nothing;
        };
        let job = Job { id, what, arrived_at: now, service_ns };
        if !self.app.is_emulated() {
            let end = spin(now, service_ns);
            reply(endpoint, end, job);
            // One service a turn: its reply leaves, and what has arrived meanwhile is received,
            // before the next.
            return Left::Requests;
        }
        if !self.emulated.offer(job, deadline) {
            let _ = endpoint.refuse(now, id, DropReason::Overload);
        }
        Left::Nothing
    }

    /// How long a request is served and what it is answered with; nothing for one that asks for too
    /// much.
    fn read(&mut self, payload: &[u8]) -> Option<(u64, Answer)> {
        let App::Tasks { form, times, .. } = &self.app else {
            return None;
        };
        if !form.is_time_alone() {
            let task = Tasks::read(*form, self.limits, payload).ok()?;
            return Some((task.service_ns, Answer::Asked(task)));
        }
        // What else such a request carries over R2P2 is not looked at.
        let drawn = times.as_ref().map(|times| times.sample_whole(&mut self.rng));
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
}

fn reply(endpoint: &mut Endpoint, now: Time, job: Job<Answer>) {
    let mut reply = endpoint.buffer();
    match job.what {
        Answer::Service => reply.extend_from_slice(&job.service_ns.to_be_bytes()),
        Answer::Asked(task) => task.write_reply(&mut reply),
    }
    // A request that is gone needs no reply.
    let _ = endpoint.reply(now, job.id, reply);
}

/// The service time at the front of a request.
fn requested_ns(payload: &[u8]) -> Option<u64> {
    payload.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}
