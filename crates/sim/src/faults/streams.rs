//! Byte streams under faults: a client opens each, sends its bytes and ends them; the server
//! answers with bytes of its own when it has all of them.
//!
//! | invariant | what holds | checked |
//! |---|---|---|
//! | `InOrder` | what is read is what was written, once and in order, and the end comes after all of it | when it is read |
//! | `StreamEnds` | a stream carries everything or fails, and nothing is held of it | within 2 s after the faults |
//! | `NothingLost` | a stream carries everything, in the plans of even seeds, where nothing worse happens than loss, duplicates and disorder | at the end |

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rand::RngExt;
use tailcut_measure::generator::{Generator, generator};
use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::node::Time;
use tailcut_proto::stream::{Config, Holdings, StreamId, Streams};

use super::host::Station;
use super::plan::{ClientPlan, Fault, FaultKind, Host, Plan, ServerPlan, StreamPlan};
use super::watch::Watch;
use super::{Coverage, Effect, Invariant};
use crate::network::Turn;

impl Plan {
    /// The plan of a seed whose clients open streams. Of even seeds all of them are to carry
    /// everything; of others hosts die, are paused and do not hear each other too.
    pub fn streams_of_seed(seed: u64) -> Self {
        let dice = &mut generator(seed, STREAM);
        let is_mild = seed.is_multiple_of(2);
        let mut plan = Self {
            seed,
            segment_len: [1380, 1380, 256, 8900][dice.random_range(0..4)],
            servers: vec![ServerPlan::default(); dice.random_range(1..=3)],
            clients: vec![ClientPlan::default(); dice.random_range(1..=3)],
            loses_nothing: is_mild,
            ..Self::default()
        };
        plan.streams = (0..dice.random_range(1..=12))
            .map(|_| StreamPlan {
                at: dice.random_range(0..LASTS_NS),
                client: dice.random_range(0..plan.clients.len()),
                server: dice.random_range(0..plan.servers.len()),
                request_len: len(dice).max(8),
                reply_len: len(dice),
            })
            .collect();
        plan.streams.sort_by_key(|stream| stream.at);
        for _ in 0..dice.random_range(1..=5) {
            let at = dice.random_range(0..LASTS_NS);
            let lasts_ns = dice.random_range(MS..LASTS_NS);
            plan.faults.push(Fault { at, lasts_ns, kind: fault(dice, &plan, is_mild) });
        }
        plan
    }

    /// Configuration of streams: what a dead peer leaves is gone before it is looked.
    pub(super) fn stream_config(secret: [u8; 16]) -> Config {
        Config {
            secret,
            message_ns_max: 400 * MS,
            open_ns_max: 400 * MS,
            keepalive_ns: 400 * MS,
            linger_ns_max: 400 * MS,
            ..Config::default()
        }
    }
}

fn len(dice: &mut Generator) -> u64 {
    let most = [1, 100, 70_000, 1_500_000][dice.random_range(0..4)];
    dice.random_range(0..=most)
}

fn fault(dice: &mut Generator, plan: &Plan, is_mild: bool) -> FaultKind {
    let hosts: Vec<Host> = plan.hosts().collect();
    let first = dice.random_range(0..hosts.len());
    let (one, other) = (hosts[first], hosts[(first + 1) % hosts.len()]);
    let from = dice.random::<bool>().then_some(one);
    let share = [0.01, 0.05, 0.2][dice.random_range(0..3)];
    match dice.random_range(0..if is_mild { 4 } else { 8 }) {
        0 => FaultKind::Loss { from, share: share / 2.0 },
        1 => FaultKind::Duplicates { from, share },
        2 => FaultKind::Jitter { from, most_ns: dice.random_range(1_000..MS) },
        3 => FaultKind::Reordering { from, share, held_ns: dice.random_range(1_000..2 * MS) },
        4 => FaultKind::Partition { one, other },
        5 => FaultKind::OneWayPartition { from: one, to: other },
        6 => FaultKind::Pause { host: one },
        _ => FaultKind::Crash { host: one },
    }
}

/// The applications of streams.
#[derive(Debug)]
pub(super) struct Flows<'a> {
    plan: &'a Plan,
    watch: Rc<RefCell<Watch>>,
    hosts: Vec<Host>,
    /// Streams of each host, by its place and the stream.
    flows: BTreeMap<(usize, u64), Flow>,
    /// Streams that have carried everything, and those that have failed, seen by their clients.
    carried: u64,
    failed: u64,
    /// Mixed over how each stream ended, and when.
    hash: u64,
}

/// One end of a stream.
#[derive(Debug)]
struct Flow {
    id: StreamId,
    /// Its number, which a server learns from its first bytes.
    number: Option<u32>,
    head: Vec<u8>,
    written: u64,
    read: u64,
    has_finished: bool,
    has_ended: bool,
}

/// Fate of a flow.
enum Fate {
    Open,
    Carried,
    Failed(String),
}

impl<'a> Flows<'a> {
    pub(super) fn new(plan: &'a Plan, watch: &Rc<RefCell<Watch>>) -> Self {
        Self {
            plan,
            watch: Rc::clone(watch),
            hosts: plan.hosts().collect(),
            flows: BTreeMap::new(),
            carried: 0,
            failed: 0,
            hash: 0,
        }
    }

    /// Opens a stream; the caller flushes.
    pub(super) fn connect(&mut self, number: u32, node: &mut Station, (now, local): (Time, Time)) {
        let stream = self.plan.streams[number as usize];
        let place = self.plan.place(Host::Client(stream.client));
        let Some(streams) = node.node.streams_mut() else { return };
        match streams.connect(local, Host::Server(stream.server).address()) {
            Ok(id) => {
                self.flows.insert((place, key(id)), Flow::new(id, Some(number)));
                self.step(streams, (place, id), (now, local));
            }
            Err(fault) => self.end(number, Some(fault.to_string()), now),
        }
    }

    /// Does what the streams of a host ask for after an input.
    pub(super) fn turn(&mut self, turn: &mut Turn<'_, Station>) {
        let (place, times) = (turn.place, (turn.now, turn.local));
        let Some(streams) = turn.node.node.streams_mut() else { return };
        while let Some((id, _)) = streams.accept() {
            self.flows.insert((place, key(id)), Flow::new(id, None));
        }
        while let Some(id) = streams.poll_changed() {
            self.step(streams, (place, id), times);
        }
    }

    /// A host has died, and its streams with it.
    pub(super) fn crashed(&mut self, host: Host, now: Time) {
        let place = self.plan.place(host);
        let range = (place, 0)..=(place, u64::MAX);
        let gone: Vec<_> = self.flows.range(range).map(|(&key, _)| key).collect();
        for key in gone {
            let number = self.flows.remove(&key).and_then(|flow| flow.number);
            if let (Host::Client(_), Some(number)) = (host, number) {
                self.end(number, Some("its client has died".to_owned()), now);
            }
        }
    }

    /// The first stream that has not ended.
    pub(super) fn busy(&self) -> Option<String> {
        let ((place, _), flow) = self.flows.first_key_value()?;
        Some(format!("stream {:?} has not ended at {}", flow.number, self.hosts[*place]))
    }

    /// Adds what became of the streams to the coverage; a hash over it.
    pub(super) fn report(&self, coverage: &mut Coverage) -> u64 {
        coverage.effects[Effect::StreamsCarried as usize] += self.carried;
        coverage.effects[Effect::StreamsFailed as usize] += self.failed;
        self.hash
    }

    /// A stream whose client is down, or paused.
    pub(super) fn not_opened(&mut self, number: u32, now: Time) {
        self.end(number, Some("its client is down".to_owned()), now);
    }

    fn step(
        &mut self,
        streams: &mut Streams<Endpoint>,
        (place, id): (usize, StreamId),
        (now, local): (Time, Time),
    ) {
        let is_client = matches!(self.hosts[place], Host::Client(_));
        let Some(flow) = self.flows.get_mut(&(place, key(id))) else { return };
        let fate = match flow.read(streams, is_client, self.plan) {
            Ok(()) => flow.write(streams, is_client, self.plan),
            Err(detail) => {
                self.watch.borrow_mut().violate(Invariant::InOrder, || detail);
                return;
            }
        };
        if let Fate::Open = fate {
            return;
        }
        streams.close(local, id);
        let number = flow.number;
        self.flows.remove(&(place, key(id)));
        let Some(number) = number.filter(|_| is_client) else { return };
        match fate {
            Fate::Failed(fault) => self.end(number, Some(fault), now),
            Fate::Open | Fate::Carried => self.end(number, None, now),
        }
    }

    /// A stream has ended for its client, by a fault where there is one.
    fn end(&mut self, number: u32, fault: Option<String>, now: Time) {
        self.carried += u64::from(fault.is_none());
        self.failed += u64::from(fault.is_some());
        let word = now << 16 ^ u64::from(number) << 1 ^ u64::from(fault.is_some());
        self.hash = (self.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let mut watch = self.watch.borrow_mut();
        if let Some(fault) = fault.as_ref().filter(|_| self.plan.loses_nothing) {
            watch.violate(Invariant::NothingLost, || format!("stream {number} fails: {fault}"));
        }
        watch.say(|| format!("stream {number} ends: {}", fault.as_deref().unwrap_or("carried")));
    }
}

impl Flow {
    fn new(id: StreamId, number: Option<u32>) -> Self {
        let (head, has_finished, has_ended) = (Vec::new(), false, false);
        Self { id, number, head, written: 0, read: 0, has_finished, has_ended }
    }

    /// Reads what is there.
    ///
    /// # Errors
    ///
    /// What is not as it was written.
    fn read(
        &mut self,
        streams: &mut Streams<Endpoint>,
        is_client: bool,
        plan: &Plan,
    ) -> Result<(), String> {
        let mut buffer = [0; 10_007];
        while let Ok(Some(len)) = streams.read(self.id, &mut buffer) {
            // A fault, too, ends what can be read; `write` is told of it.
            let has_failed = || streams.status(self.id).is_some_and(|it| it.fault.is_some());
            if len == 0 {
                let lens = self.stream(plan).map(|stream| (stream.request_len, stream.reply_len));
                let expected = lens.map(|(there, back)| if is_client { back } else { there });
                if expected != Some(self.read) && !has_failed() {
                    return Err(format!("stream {:?} ends after {} B", self.number, self.read));
                }
                self.has_ended = true;
                return Ok(());
            }
            self.check(&buffer[..len], !is_client, plan)?;
            self.read += len as u64;
        }
        Ok(())
    }

    fn check(&mut self, bytes: &[u8], is_from_client: bool, plan: &Plan) -> Result<(), String> {
        for (&found, at) in bytes.iter().zip(self.read..) {
            if self.number.is_none() {
                self.head.push(found);
                let number = self.head.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
                self.number = number.map(|number| number.try_into().unwrap_or(u32::MAX));
                if self.number.is_some() && self.stream(plan).is_none() {
                    return Err(format!("no stream has the number {number:?}"));
                }
            } else if found != byte(self.number.unwrap_or(0), is_from_client, at) {
                return Err(format!("byte {at} of stream {:?} is not as written", self.number));
            }
        }
        Ok(())
    }

    /// Writes what there is room for, and tells how the flow stands.
    fn write(&mut self, streams: &mut Streams<Endpoint>, is_client: bool, plan: &Plan) -> Fate {
        let status = streams.status(self.id).unwrap_or_default();
        if let Some(fault) = status.fault {
            return Fate::Failed(fault.to_string());
        }
        let (Some(stream), Some(number)) = (self.stream(plan), self.number) else {
            return Fate::Open;
        };
        let len = if is_client { stream.request_len } else { stream.reply_len };
        // A server answers when it has heard everything.
        while self.written < len && (is_client || self.has_ended) {
            let end = len.min(self.written + 30_011);
            let bytes: Vec<u8> =
                (self.written..end).map(|at| byte(number, is_client, at)).collect();
            match streams.write(self.id, &bytes) {
                Ok(0) => return Fate::Open,
                Ok(taken) => self.written += taken as u64,
                Err(fault) => return Fate::Failed(fault.to_string()),
            }
        }
        if self.written == len && !self.has_finished && (is_client || self.has_ended) {
            self.has_finished = streams.finish(self.id).is_ok();
        }
        if self.has_ended && status.is_finished { Fate::Carried } else { Fate::Open }
    }

    fn stream(&self, plan: &Plan) -> Option<StreamPlan> {
        plan.streams.get(self.number? as usize).copied()
    }
}

/// State held for streams, where there is any.
pub(super) fn held(streams: &Streams<Endpoint>) -> Option<String> {
    let held = streams.holdings();
    (held != Holdings::default()).then(|| format!("{held:?}"))
}

/// The byte at `at` of a stream: the first eight from the client are its number.
fn byte(number: u32, is_from_client: bool, at: u64) -> u8 {
    match at {
        0..8 if is_from_client => u64::from(number).to_be_bytes()[at as usize],
        _ => {
            let word = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
            word as u8 ^ (number as u8) ^ u8::from(is_from_client)
        }
    }
}

fn key(id: StreamId) -> u64 {
    id.place() as u64
}

const MS: u64 = 1_000_000;

/// Time for which streams are opened, and longest duration of faults.
const LASTS_NS: u64 = 100 * MS;

/// The generator's stream for plans of this file.
const STREAM: u64 = 0x7374_7265;
