//! Two endpoints and an application, for protocol tests: a client that calls, a server whose
//! handler is checked.
//!
//! The handler answers with the request's bytes in reverse, so that a reply that is not the
//! handler's is noticed, and counts how often it has run each request.

use std::net::SocketAddr;

use tailcut_proto::node::Time;
use tailcut_proto::rpc::{Call, CallId, CallOptions, Event, Failure, RequestId, Rpc};
use tailcut_proto::{homa, r2p2};

use tailcut_sim::impair::Impairment;
use tailcut_sim::network::{Network, Statistics};

/// A transport whose endpoints can be paired.
pub(crate) trait Transport: Rpc + Sized {
    /// Its configuration.
    type Config;
    /// Its counters.
    type Metrics: Copy;

    /// The default configuration with a secret.
    fn config(secret: [u8; 16]) -> Self::Config;

    /// An endpoint that starts at time 0.
    fn start(config: Self::Config) -> Self;

    /// Its counters so far.
    fn counters(&self) -> Self::Metrics;

    /// Takes no new requests from now on; how many replies are under way.
    fn end(&mut self, now: Time) -> usize;
}

impl Transport for r2p2::Endpoint {
    type Config = r2p2::Config;
    type Metrics = r2p2::Metrics;

    fn config(secret: [u8; 16]) -> r2p2::Config {
        r2p2::Config { secret, ..r2p2::Config::default() }
    }

    fn start(config: r2p2::Config) -> Self {
        Self::new(0, config)
    }

    fn counters(&self) -> r2p2::Metrics {
        *self.metrics()
    }

    fn end(&mut self, now: Time) -> usize {
        self.stop(now);
        self.replies_under_way()
    }
}

impl Transport for homa::Endpoint {
    type Config = homa::Config;
    type Metrics = homa::Metrics;

    fn config(secret: [u8; 16]) -> homa::Config {
        homa::Config { secret, ..homa::Config::default() }
    }

    fn start(config: homa::Config) -> Self {
        Self::new(0, config)
    }

    fn counters(&self) -> homa::Metrics {
        *self.metrics()
    }

    fn end(&mut self, now: Time) -> usize {
        self.stop(now);
        self.replies_under_way()
    }
}

/// Two R2P2 endpoints.
pub(crate) type Pair = EndpointPair<r2p2::Endpoint>;

/// Two Homa endpoints.
pub(crate) type HomaPair = EndpointPair<homa::Endpoint>;

/// Two endpoints over an impaired path.
#[derive(Debug)]
pub(crate) struct EndpointPair<E> {
    network: Network<E>,
    /// Behaviour of the server's application.
    pub(crate) handler: Handler,
    /// Outcomes that the client's application has heard, in order.
    pub(crate) outcomes: Vec<Outcome>,
    /// Number of times that the server has run each request, by the number in its first 8 bytes.
    pub(crate) runs: Vec<u32>,
    /// Texts of the server's application when it refused.
    pub(crate) texts: Vec<Vec<u8>>,
    /// Requests that the server's application was told are cancelled.
    pub(crate) cancelled: u64,
    waiting: Vec<(Time, RequestId, Vec<u8>)>,
    /// Replies that were refused because the request was gone.
    pub(crate) gone: u64,
}

/// Behaviour of the server's application.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Handler {
    /// Time between a request and its answer.
    pub(crate) service_ns: u64,
    /// Bytes of the answer where it is not the request in reverse.
    pub(crate) reply_len: Option<usize>,
    /// Never answers.
    pub(crate) is_silent: bool,
    /// Refuses with this code, and the request's bytes as the text.
    pub(crate) code: Option<u32>,
}

/// Outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// [`Call::context`].
    pub(crate) context: u64,
    /// Time at which it ended.
    pub(crate) at: Time,
    /// The reply's bytes or the failure.
    pub(crate) result: Result<Vec<u8>, Failure>,
}

impl<E: Transport> EndpointPair<E> {
    /// Time at which the first call can be made.
    pub(crate) const START: Time = 1_000_000_000;
    /// The client's address.
    pub(crate) const CLIENT: &'static str = "10.0.0.1:33000";
    /// The server's address.
    pub(crate) const SERVER: &'static str = "10.0.0.2:8000";

    /// Two endpoints with default configurations.
    pub(crate) fn new(impairment: Impairment, seed: u64) -> Self {
        Self::with_config(impairment, seed, |_, _| {})
    }

    /// Two endpoints whose configurations, the client's and the server's, `adjust` changes. They
    /// have been up for a second.
    pub(crate) fn with_config(
        impairment: Impairment,
        seed: u64,
        adjust: impl FnOnce(&mut E::Config, &mut E::Config),
    ) -> Self {
        let (mut client, mut server) = (E::config(secret(seed, 1)), E::config(secret(seed, 2)));
        adjust(&mut client, &mut server);
        let mut network = Network::new();
        network.add(
            address(Self::CLIENT),
            E::start(client),
            impairment,
            seed.wrapping_mul(2).wrapping_add(1),
        );
        network.add(
            address(Self::SERVER),
            E::start(server),
            impairment,
            seed.wrapping_mul(2).wrapping_add(2),
        );
        network.run(Self::START, |_| {});
        let (outcomes, runs, waiting) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            network,
            handler: Handler::default(),
            outcomes,
            runs,
            texts: Vec::new(),
            cancelled: 0,
            waiting,
            gone: 0,
        }
    }

    /// The virtual time.
    pub(crate) fn now(&self) -> Time {
        self.network.now()
    }

    /// The network, to impair it or look at what went over it.
    pub(crate) fn network(&mut self) -> &mut Network<E> {
        &mut self.network
    }

    /// Statistics of the network.
    pub(crate) fn statistics(&self) -> Statistics {
        self.network.statistics()
    }

    /// The client's counters.
    pub(crate) fn client_metrics(&self) -> E::Metrics {
        self.network.node(0).counters()
    }

    /// The server's counters.
    pub(crate) fn server_metrics(&self) -> E::Metrics {
        self.network.node(1).counters()
    }

    /// Begins a call numbered `context` with a request of `len` bytes (at least 8: they hold the
    /// number).
    pub(crate) fn call(
        &mut self,
        context: u64,
        len: usize,
        timeout_ns: u64,
        options: CallOptions,
    ) -> CallId {
        let now = self.network.now();
        let payload = request(context, len);
        let call = Call {
            target: address(Self::SERVER),
            payload,
            deadline: now + timeout_ns,
            context,
            options,
        };
        let id = self.network.node_mut(0).call(now, call);
        self.network.flush(0);
        id.unwrap_or_else(|error| panic!("call {context}: {error}"))
    }

    /// Stops the server; replies that are under way.
    pub(crate) fn stop(&mut self) -> usize {
        let now = self.network.now();
        let under_way = self.network.node_mut(1).end(now);
        self.network.flush(1);
        under_way
    }

    /// Gives up a call.
    pub(crate) fn cancel(&mut self, id: CallId) {
        let now = self.network.now();
        self.network.node_mut(0).cancel(now, id);
        self.network.flush(0);
    }

    /// Runs for `duration_ns` of virtual time.
    pub(crate) fn run_for(&mut self, duration_ns: u64) {
        let until = self.network.now() + duration_ns;
        loop {
            let earliest = (0..self.waiting.len()).min_by_key(|&place| self.waiting[place].0);
            let answer_at = earliest.map_or(u64::MAX, |place| self.waiting[place].0);
            let next = self.network.next_time().unwrap_or(u64::MAX).min(answer_at);
            if next > until {
                return self.network.run(until, |_| {});
            }
            self.run_network(next);
            if let Some(place) = earliest.filter(|_| answer_at <= next) {
                let (_, id, payload) = self.waiting.remove(place);
                self.answer(id, payload);
            }
        }
    }

    /// Runs until every call has ended, or for a minute of virtual time.
    pub(crate) fn run_to_end(&mut self, calls: usize) {
        let limit = self.network.now() + 60_000_000_000;
        while self.outcomes.len() < calls && self.network.now() < limit {
            self.run_for(1_000_000);
        }
    }

    /// The bytes that a correct reply to call `context` of `len` bytes has.
    pub(crate) fn expected_reply(&self, context: u64, len: usize) -> Vec<u8> {
        answer_to(&self.handler, request(context, len))
    }

    fn run_network(&mut self, until: Time) {
        let Self { network, handler, outcomes, runs, texts, cancelled, waiting, .. } = self;
        network.run(until, |turn| {
            let (now, node) = (turn.now, &mut *turn.node);
            while let Some(event) = node.poll_event() {
                match event {
                    Event::Request { id, payload, .. } => {
                        note_run(runs, &payload);
                        if let Some(code) = handler.code {
                            node.reject(now, id, code, &payload).expect("the client waits");
                        } else if handler.service_ns > 0 && !handler.is_silent {
                            waiting.push((now + handler.service_ns, id, payload));
                        } else if !handler.is_silent {
                            // A request that is gone by now needs no answer.
                            let _ = node.reply(now, id, answer_to(handler, payload));
                        }
                    }
                    Event::Cancelled { .. } => *cancelled += 1,
                    Event::Replied { context, payload, .. } => {
                        outcomes.push(Outcome { context, at: now, result: Ok(payload) });
                    }
                    Event::Failed { context, failure, text, .. } => {
                        texts.extend((!text.is_empty()).then_some(text));
                        outcomes.push(Outcome { context, at: now, result: Err(failure) });
                    }
                }
            }
        });
    }

    fn answer(&mut self, id: RequestId, payload: Vec<u8>) {
        let now = self.network.now();
        let answer = answer_to(&self.handler, payload);
        if self.network.node_mut(1).reply(now, id, answer).is_err() {
            self.gone += 1;
        }
        self.network.flush(1);
    }
}

fn request(context: u64, len: usize) -> Vec<u8> {
    let mut bytes = context.to_be_bytes().to_vec();
    bytes.extend((8..len.max(8)).map(|place| (place as u64 * 31 + context) as u8));
    bytes
}

fn answer_to(handler: &Handler, mut request: Vec<u8>) -> Vec<u8> {
    if let Some(len) = handler.reply_len {
        let first = request.first().copied().unwrap_or(0);
        return (0..len).map(|place| (place as u8).wrapping_mul(7) ^ first).collect();
    }
    request.reverse();
    request
}

fn note_run(runs: &mut Vec<u32>, payload: &[u8]) {
    let number = payload.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)) as usize;
    // A corrupted number must not make the table large.
    if number < 1 << 20 {
        if runs.len() <= number {
            runs.resize(number + 1, 0);
        }
        runs[number] += 1;
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap_or_else(|_| panic!("{text} is an address"))
}

fn secret(seed: u64, salt: u64) -> [u8; 16] {
    (u128::from(seed) << 64 | u128::from(salt)).to_be_bytes()
}
