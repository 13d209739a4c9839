//! Drives a run's load through an endpoint: due requests become calls, and their events outcomes.

use tailcut_measure::generator::Generator;
use tailcut_measure::load::{Run, Sample};
use tailcut_measure::recorder::Failure as Outcome;
use tailcut_proto::node::Time;
use tailcut_proto::r2p2::Endpoint;
use tailcut_proto::rpc::{Call, CallOptions, Event, Failure, Rpc};

use super::app::App;

/// What every call has in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    pub(super) target: std::net::SocketAddr,
    /// Counts from when the request leaves.
    pub(super) timeout_ns: u64,
    pub(super) options: CallOptions,
    /// Calls that the endpoint can have outstanding; beyond, due requests leave late, which the latency from their intended
    /// time shows.
    pub(super) calls_max: usize,
}

/// A run, and the samples of its outstanding calls.
#[derive(Debug)]
pub(super) struct Loader {
    pub(super) run: Run,
    aim: Aim,
    app: App,
    rng: Generator,
    /// By the call's context.
    samples: Vec<Option<Sample>>,
    /// Contexts without a sample.
    free: Vec<usize>,
    /// Replies that the application would not have given.
    pub(super) mismatched: u64,
    /// Turns in which a due request could not leave because `calls_max` were outstanding.
    pub(super) saturated: u64,
}

impl Loader {
    pub(super) fn new(run: Run, aim: Aim, app: App, rng: Generator) -> Self {
        Self { run, aim, app, rng, samples: Vec::new(), free: Vec::new(), mismatched: 0, saturated: 0 }
    }

    /// Takes what came back and sends what is due, at most a burst of it so that replies are not kept waiting.
    pub(super) fn work(&mut self, endpoint: &mut Endpoint, now: Time) {
        while let Some(event) = endpoint.poll_event() {
            self.handle_event(endpoint, now, event);
        }
        for _ in 0..BURST {
            if self.run.next_send().is_none_or(|due| due > now) {
                return;
            }
            if self.run.in_flight() >= self.aim.calls_max as u64 {
                self.saturated += 1;
                return;
            }
            self.send(endpoint, now);
        }
    }

    fn send(&mut self, endpoint: &mut Endpoint, now: Time) {
        let sample = self.run.handle_sent(now);
        let context = self.free.pop().unwrap_or_else(|| {
            self.samples.push(None);
            self.samples.len() - 1
        });
        let mut payload = endpoint.buffer();
        self.app.write_request(&mut self.rng, &mut payload);
        let Aim { target, timeout_ns, options, .. } = self.aim;
        let deadline = now.saturating_add(timeout_ns);
        match endpoint.call(now, Call { target, payload, deadline, context: context as u64, options }) {
            Ok(_) => self.samples[context] = Some(sample),
            Err(_) => {
                self.free.push(context);
                self.run.handle_failure(sample, Outcome::Lost, now);
            }
        }
    }

    fn handle_event(&mut self, endpoint: &mut Endpoint, now: Time, event: Event) {
        match event {
            Event::Replied { context, payload, .. } => {
                self.mismatched += u64::from(!self.app.is_reply(&payload));
                endpoint.recycle(payload);
                let sample = self.take(context);
                self.run.handle_reply(sample, now);
            }
            Event::Failed { context, failure, .. } => {
                let outcome = match failure {
                    Failure::Deadline => Outcome::Timeout,
                    Failure::Refused(_) => Outcome::Refused,
                    Failure::Broken | Failure::ReplyTooLarge => Outcome::Lost,
                };
                let sample = self.take(context);
                self.run.handle_failure(sample, outcome, now);
            }
            Event::Request { .. } | Event::Cancelled { .. } => {}
        }
    }

    fn take(&mut self, context: u64) -> Sample {
        let context = context as usize;
        self.free.push(context);
        self.samples[context].take().expect("a call ends once")
    }
}

/// Calls of one turn: 64 single datagrams take the kernel some 170 us, and replies wait for no longer.
const BURST: usize = 64;
