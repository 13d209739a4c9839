//! What a served port answers.
//!
//! | app | service time | reply |
//! |---|---|---|
//! | echo | none | the request's bytes |
//! | synthetic | emulated: the request's, or drawn | the service time, 8 bytes |
//! | spin | burnt on this thread: the request's, or drawn | the same |

use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::{Generator, generator};
use tailcut_net::clock::Clock;
use tailcut_proto::node::Time;
use tailcut_proto::r2p2::Endpoint;
use tailcut_proto::rpc::{Event, RequestId, Rpc};
use tailcut_wire::r2p2::DropReason;

use super::emulated::{Emulated, Job};
use crate::distribution_file::parse_times;

/// An application as people write it: `echo`, `synthetic`, `synthetic:DIST`, `spin` or `spin:DIST`.
#[derive(Clone, Debug)]
pub(super) enum App {
    Echo,
    /// Service times of the distribution, or else of the requests, on emulated workers.
    Synthetic(Option<Distribution>),
    /// The same, by computing.
    Spin(Option<Distribution>),
}

impl App {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (name, times) = text.split_once(':').map_or((text, None), |(name, times)| (name, Some(times)));
        let times = times.map(parse_times).transpose();
        match name {
            "echo" if text == "echo" => Ok(Self::Echo),
            "synthetic" => times.map(Self::Synthetic),
            "spin" => times.map(Self::Spin),
            _ => Err("write echo, synthetic, synthetic:DIST, spin or spin:DIST, such as synthetic:exp:50us".to_owned()),
        }
    }
}

/// Whether a desk left requests for its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    Requests,
}

/// The application of one port.
#[derive(Debug)]
pub(super) struct Desk {
    app: App,
    emulated: Emulated,
    rng: Generator,
    service_ns_max: u64,
}

/// What a desk is told besides its application.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeskConfig {
    pub(super) worker_count: u32,
    pub(super) queue_len_max: usize,
    /// Longest service that a request may ask for; more is refused.
    pub(super) service_ns_max: u64,
    /// Of the drawn services.
    pub(super) seed: u64,
    /// Which of the ports this is.
    pub(super) stream: u64,
}

impl Desk {
    pub(super) fn new(app: App, config: DeskConfig) -> Self {
        Self {
            app,
            emulated: Emulated::new(config.worker_count, config.queue_len_max),
            rng: generator(config.seed, config.stream),
            service_ns_max: config.service_ns_max,
        }
    }

    /// Answers what has finished and takes what has arrived.
    pub(super) fn work(&mut self, endpoint: &mut Endpoint, now: Time) -> Left {
        self.reply_finished(endpoint, now);
        while let Some(event) = endpoint.poll_event() {
            match event {
                Event::Request { id, payload, deadline, .. } => {
                    if self.take(endpoint, now, Arrived { id, payload, deadline }) == Left::Requests {
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
    pub(super) fn next_finish(&self) -> Option<Time> {
        self.emulated.next_finish()
    }

    fn reply_finished(&mut self, endpoint: &mut Endpoint, now: Time) {
        while let Some(job) = self.emulated.poll_finished(now) {
            reply_service(endpoint, now, job.id, job.service_ns);
        }
    }

    fn take(&mut self, endpoint: &mut Endpoint, now: Time, arrived: Arrived) -> Left {
        let Arrived { id, payload, deadline } = arrived;
        let drawn = match &self.app {
            App::Echo => {
                // A request that is gone needs no reply.
                let _ = endpoint.reply(now, id, payload);
                return Left::Nothing;
            }
            App::Synthetic(times) | App::Spin(times) => times.as_ref().map(|times| times.sample_whole(&mut self.rng)),
        };
        let service_ns = drawn.or_else(|| requested_ns(&payload).filter(|&asked_ns| asked_ns <= self.service_ns_max));
        endpoint.recycle(payload);
        let Some(service_ns) = service_ns else {
            let _ = endpoint.refuse(now, id, DropReason::Application);
            return Left::Nothing;
        };
        if matches!(self.app, App::Spin(_)) {
            let end = spin(now, service_ns);
            reply_service(endpoint, end, id, service_ns);
            // One service a turn: its reply leaves, and what has arrived meanwhile is received, before the next.
            return Left::Requests;
        }
        if !self.emulated.offer(Job { id, arrived_at: now, service_ns }, deadline) {
            let _ = endpoint.refuse(now, id, DropReason::Overload);
        }
        Left::Nothing
    }
}

/// A request, as its event has it.
struct Arrived {
    id: RequestId,
    payload: Vec<u8>,
    deadline: Time,
}

/// Computes for `service_ns` and returns when it ended.
fn spin(now: Time, service_ns: u64) -> Time {
    let started_at = Clock.now().max(now);
    loop {
        let at = Clock.now();
        if at.saturating_sub(started_at) >= service_ns {
            return at;
        }
        std::hint::spin_loop();
    }
}

fn reply_service(endpoint: &mut Endpoint, now: Time, id: RequestId, service_ns: u64) {
    let mut reply = endpoint.buffer();
    reply.extend_from_slice(&service_ns.to_be_bytes());
    // A request that is gone needs no reply.
    let _ = endpoint.reply(now, id, reply);
}

/// The service time at the front of a request.
fn requested_ns(payload: &[u8]) -> Option<u64> {
    payload.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}
