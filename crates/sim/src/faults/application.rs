//! The applications of a fault run: handlers behind a central queue, and callers that check what
//! they get.
//!
//! A request begins with its number and the length of its reply; the rest of it, and the reply,
//! follow from the plan.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::rc::Rc;

use strum::EnumCount;
use tailcut_measure::generator::generator;
use tailcut_proto::address::share_of;
use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::node::Time;
use tailcut_proto::policy::{Jbsq, WorkerId};
use tailcut_proto::rpc::{Call, CallId, CallOptions, DropReason, Event, Failure, RequestId, Rpc};
use tailcut_proto::scheduler::overload::OverloadConfig;
use tailcut_proto::scheduler::{Cloning, Outcome, Scheduler, Ticket, Wait};

use super::host::{Sabotage, Station};
use super::plan::{Attack, CallPlan, Host, Plan, ServerPlan, Transport};
use super::watch::Watch;
use super::{Coverage, Ending, Invariant};
use crate::network::Turn;

/// Every application of a run.
#[derive(Debug)]
pub(super) struct Applications<'a> {
    plan: &'a Plan,
    watch: Rc<RefCell<Watch>>,
    hosts: Vec<Host>,
    handlers: Vec<Handlers>,
    calls: Vec<CallState>,
    /// Calls under way: the virtual time by which they must have ended, and their numbers.
    due: BTreeSet<(Time, u32)>,
    endings: [u64; Ending::COUNT],
    /// Time at which each call has ended.
    ended_at: Vec<Time>,
    sabotage: Option<Sabotage>,
    /// Requests handed to each server's application.
    served: Vec<u64>,
    /// By client, and over Homa by server: when it was refused first of all that is made after all,
    /// where packets are sealed. Its next session is younger than everybody.
    renewed_at: BTreeMap<(usize, usize), Time>,
    /// Mixed over how each call ended, and when.
    hash: u64,
}

/// State of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallState {
    Planned,
    Made { id: CallId, due: Time },
    Ended(Ending),
}

/// The handlers of a server since it started.
#[derive(Debug)]
struct Handlers {
    /// The queue before the workers.
    scheduler: Scheduler<RequestId, Jbsq>,
    /// The request that each worker runs.
    running: Vec<Option<RequestId>>,
    jobs: BTreeMap<u64, Job>,
    /// Alarms of earlier incarnations are stale.
    incarnation: u32,
    /// The factor on service times.
    factor: u64,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    number: u32,
    /// Its place in the queue, where it waits.
    ticket: Option<Ticket>,
}

impl<'a> Applications<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        watch: &Rc<RefCell<Watch>>,
        sabotage: Option<Sabotage>,
    ) -> Self {
        let load = plan.load.filter(|_| sabotage != Some(Sabotage::QueueIsPatient));
        Self {
            plan,
            sabotage,
            watch: Rc::clone(watch),
            hosts: plan.hosts().collect(),
            handlers: plan.servers.iter().map(|server| Handlers::new(server, load, 0)).collect(),
            calls: vec![CallState::Planned; plan.calls.len()],
            due: BTreeSet::new(),
            endings: [0; Ending::COUNT],
            ended_at: vec![0; plan.calls.len()],
            served: vec![0; plan.servers.len()],
            renewed_at: BTreeMap::new(),
            hash: 0,
        }
    }

    /// Takes the events of the node that had an input, and ends services.
    pub(super) fn turn(&mut self, turn: &mut Turn<'_, Station>) {
        let host = self.hosts[turn.place];
        if let (Host::Server(server), Some(word)) = (host, turn.alarm) {
            self.end_service(server, word, turn);
        }
        while let Some(event) = turn.node.poll_event() {
            match (event, host) {
                (Event::Request { id, client, payload, deadline, .. }, Host::Server(server)) => {
                    let wait = match (self.plan.load, self.sabotage) {
                        (_, Some(Sabotage::QueueIsPatient)) => Time::MAX.into(),
                        (_, Some(Sabotage::ClientsHaveNoShares)) => {
                            Wait::of(1, turn.local, deadline)
                        }
                        (Some(_), _) => Wait::of(share_of(client.ip()), turn.local, deadline),
                        (None, _) => deadline.into(),
                    };
                    self.begin_request(server, (id, wait), payload, turn);
                }
                (Event::Cancelled { id }, Host::Server(server)) => self.release_request(server, id),
                (Event::Replied { context, payload, .. }, Host::Client(_)) => {
                    self.check_reply(context as u32, &payload);
                    self.end(context as u32, Ending::Replied, turn.now);
                    recycle(turn.node, payload);
                }
                (Event::Failed { context, failure, .. }, Host::Client(_)) => {
                    let ending = ending(failure);
                    self.end(context as u32, ending, turn.now);
                    if self.sabotage == Some(Sabotage::UncertainGoAgain)
                        && ending == Ending::Uncertain
                    {
                        self.call(context as u32, turn.node, (turn.now, turn.local));
                    }
                }
                (event, host) => panic!("{host} is told of {event:?}"),
            }
        }
        self.check_answered();
    }

    /// Notes a violation where a reply has come and its call goes on.
    fn check_answered(&mut self) {
        let Some(number) = self.watch.borrow_mut().take_answered() else { return };
        if let CallState::Made { .. } = self.calls[number as usize] {
            self.watch.borrow_mut().violate(Invariant::FirstReply, || {
                format!("a reply to call {number} has come, and the call goes on")
            });
        }
    }

    /// Makes a call; the caller flushes.
    pub(super) fn call(&mut self, number: u32, node: &mut Station, (now, local): (Time, Time)) {
        let call = &self.plan.calls[number as usize];
        let Some(endpoint) = node.node.endpoint_mut() else { return };
        let mut payload = endpoint.buffer();
        write_request(number, call, &mut payload);
        // With two routers each client prefers one.
        let mut routers = self.plan.routers();
        let target = match routers.next() {
            Some(router) => routers.next().filter(|_| call.client % 2 == 1).unwrap_or(router),
            None => Host::Server(call.server),
        };
        let options =
            CallOptions { idempotent: call.is_idempotent, fixed: call.is_fixed, v1: false };
        let deadline = local + call.timeout_ns;
        let made =
            Call { target: target.address(), payload, deadline, context: number.into(), options };
        match endpoint.call(local, made) {
            Ok(id) => {
                let clock = self.plan.clock(Host::Client(call.client));
                let due = clock.global(deadline.next_multiple_of(TICK_NS));
                self.calls[number as usize] = CallState::Made { id, due };
                self.due.insert((due, number));
                let wire_id = match endpoint {
                    Endpoint::Homa(endpoint) => endpoint.wire_id(id),
                    Endpoint::R2p2(_) => None,
                };
                let mut watch = self.watch.borrow_mut();
                watch.note_made(call.client, number);
                if let Some(wire_id) = wire_id {
                    watch.numbers.insert(wire_id, number);
                }
                watch.say(|| format!("client {} makes call {number}", call.client));
            }
            Err(_) => self.end_unmade(number, Ending::NotMade, now),
        }
    }

    /// Gives a call up, if it has not ended; the caller flushes.
    pub(super) fn cancel(&mut self, number: u32, node: &mut Station, (now, local): (Time, Time)) {
        let CallState::Made { id, .. } = self.calls[number as usize] else { return };
        let Some(endpoint) = node.node.endpoint_mut() else { return };
        endpoint.cancel(local, id);
        self.end(number, Ending::Cancelled, now);
    }

    /// A host has died, and what its application held with it.
    pub(super) fn crashed(&mut self, host: Host, now: Time) {
        match host {
            Host::Router | Host::Standby => {}
            Host::Server(server) => {
                let (incarnation, factor) =
                    (self.handlers[server].incarnation + 1, self.handlers[server].factor);
                let fresh = Handlers::new(&self.plan.servers[server], self.plan.load, incarnation);
                self.handlers[server] = Handlers { factor, ..fresh };
            }
            Host::Client(client) => {
                for number in 0..self.calls.len() {
                    if self.plan.calls[number].client == client
                        && matches!(self.calls[number], CallState::Made { .. })
                    {
                        self.end(number as u32, Ending::ClientDied, now);
                    }
                }
            }
        }
    }

    /// A host is paused until `until`: its calls may end so late.
    pub(super) fn paused(&mut self, host: Host, until: Time) {
        let Host::Client(client) = host else { return };
        for number in 0..self.calls.len() {
            if let CallState::Made { id, due } = self.calls[number]
                && self.plan.calls[number].client == client
                && due <= until
            {
                self.due.remove(&(due, number as u32));
                let due = until + TICK_NS;
                self.due.insert((due, number as u32));
                self.calls[number] = CallState::Made { id, due };
            }
        }
    }

    /// A call that its client, which is paused, does not make.
    pub(super) fn call_of_the_paused(&mut self, number: u32, now: Time) {
        self.end_unmade(number, Ending::NotMade, now);
    }

    /// A call whose client is down.
    pub(super) fn call_of_the_dead(&mut self, number: u32, now: Time) {
        self.end_unmade(number, Ending::ClientDied, now);
    }

    pub(super) fn set_factor(&mut self, server: usize, factor: u64) {
        self.handlers[server].factor = factor;
    }

    /// Notes a violation where a call should have ended.
    pub(super) fn check_due(&mut self, now: Time) {
        if let Some(&(due, number)) = self.due.first().filter(|&&(due, _)| due < now) {
            let call = &self.plan.calls[number as usize];
            let detail = || {
                format!(
                    "call {number} of client {} should have ended at {:.6} ms",
                    call.client,
                    due as f64 / 1e6
                )
            };
            self.watch.borrow_mut().violate(Invariant::EndsOnce, detail);
        }
    }

    /// True once every call has ended.
    pub(super) fn is_idle(&self) -> bool {
        self.due.is_empty()
    }

    pub(super) fn served(&self) -> &[u64] {
        &self.served
    }

    /// Adds what became of the calls to the coverage; a hash over it.
    pub(super) fn report(&self, coverage: &mut Coverage) -> u64 {
        coverage.endings = self.endings;
        coverage.runs = self.served.iter().sum();
        self.hash
    }

    /// Endings, with their times, of the calls that have ended, by their numbers.
    pub(super) fn endings_at(&self) -> impl Iterator<Item = (usize, Ending, Time)> + '_ {
        self.endings().map(|(number, ending)| (number, ending, self.ended_at[number]))
    }

    /// Endings of the calls that have ended, by their numbers.
    pub(super) fn endings(&self) -> impl Iterator<Item = (usize, Ending)> + '_ {
        self.calls.iter().enumerate().filter_map(|(number, state)| match state {
            CallState::Ended(ending) => Some((number, *ending)),
            CallState::Planned | CallState::Made { .. } => None,
        })
    }

    fn begin_request(
        &mut self,
        server: usize,
        named: (RequestId, Wait),
        payload: Vec<u8>,
        turn: &mut Turn<'_, Station>,
    ) {
        let (id, wait) = named;
        self.served[server] += 1;
        let number = payload.first_chunk().map_or(u32::MAX, |bytes| u32::from_le_bytes(*bytes));
        let is_known = (number as usize) < self.calls.len();
        self.check_request(number, &payload);
        recycle(turn.node, payload);
        if !is_known {
            // Damage that was delivered: nobody waits for an answer.
            refuse(turn, id, DropReason::Application);
            return;
        }
        self.watch.borrow_mut().runs_at(server, number);
        let handlers = &mut self.handlers[server];
        handlers.jobs.insert(id.0, Job { number, ticket: None });
        let random = self.plan.calls[number as usize].word;
        match handlers.scheduler.offer(id, Cloning::Forbidden, wait, random) {
            Outcome::Placed(workers, id) => {
                workers.each(id, |worker, id| self.begin_service(server, worker, id, turn));
            }
            Outcome::Held(ticket) => {
                handlers.jobs.insert(id.0, Job { number, ticket: Some(ticket) });
            }
            Outcome::Full(id) => self.refuse_waiting(server, id, turn),
        }
    }

    /// Refuses a request that waits for a worker, or would have to.
    fn refuse_waiting(&mut self, server: usize, id: RequestId, turn: &mut Turn<'_, Station>) {
        let Some(job) = self.handlers[server].jobs.remove(&id.0) else { return };
        let mut watch = self.watch.borrow_mut();
        watch.has_not_run(job.number);
        watch.ends_at(server, job.number);
        drop(watch);
        refuse(turn, id, DropReason::Overload);
    }

    fn begin_service(
        &mut self,
        server: usize,
        worker: WorkerId,
        id: RequestId,
        turn: &mut Turn<'_, Station>,
    ) {
        let handlers = &mut self.handlers[server];
        handlers.running[worker.index()] = Some(id);
        let Some(job) = handlers.jobs.get_mut(&id.0) else { return };
        job.ticket = None;
        let word = self.plan.calls[job.number as usize].word;
        let service_ns = self.plan.servers[server].service_ns(word) * handlers.factor;
        let alarm = u64::from(handlers.incarnation) << 32 | worker.index() as u64;
        if self.plan.is_together && service_ns == 0 {
            return self.end_service(server, alarm, turn);
        }
        turn.wake_in(service_ns.min(SERVICE_NS_MAX), alarm);
    }

    fn end_service(&mut self, server: usize, alarm: u64, turn: &mut Turn<'_, Station>) {
        let handlers = &mut self.handlers[server];
        let worker = alarm as u32 as usize;
        if alarm >> 32 != u64::from(handlers.incarnation) {
            return;
        }
        let Some(id) = handlers.running[worker].take() else { return };
        if let Some(job) = handlers.jobs.remove(&id.0) {
            self.watch.borrow_mut().ends_at(server, job.number);
            self.answer(job.number, id, turn);
        }
        let handlers = &mut self.handlers[server];
        handlers.scheduler.conclude(WorkerId::at(worker));
        while let Some(id) = self.handlers[server].scheduler.poll_expired(turn.local) {
            if self.plan.load.is_some() {
                self.refuse_waiting(server, id, turn);
            } else if let Some(job) = self.handlers[server].jobs.get_mut(&id.0) {
                // The endpoint tells of it by a cancel, or has.
                job.ticket = None;
            }
        }
        while let Some((workers, id)) =
            self.handlers[server].scheduler.poll_placed(turn.local, alarm)
        {
            workers.each(id, |worker, id| self.begin_service(server, worker, id, turn));
        }
    }

    fn answer(&self, number: u32, id: RequestId, turn: &mut Turn<'_, Station>) {
        let call = &self.plan.calls[number as usize];
        if call.is_refused || call.panics {
            let reason = if call.panics { DropReason::Panicked } else { DropReason::Application };
            return refuse(turn, id, reason);
        }
        let local = turn.local;
        if let Some(endpoint) = turn.node.node.endpoint_mut() {
            let mut reply = endpoint.buffer();
            write_reply(call, &mut reply);
            // A request that is gone needs no answer, and one whose reply is too long has been
            // refused.
            let _ = endpoint.reply(local, id, reply);
        }
    }

    /// The endpoint has released a request.
    fn release_request(&mut self, server: usize, id: RequestId) {
        let handlers = &mut self.handlers[server];
        let Some(job) = handlers.jobs.remove(&id.0) else { return };
        if let Some(ticket) = job.ticket {
            handlers.scheduler.remove(ticket);
        }
        self.watch.borrow_mut().ends_at(server, job.number);
    }

    fn check_request(&self, number: u32, payload: &[u8]) {
        let mut expected = Vec::new();
        if let Some(call) = self.plan.calls.get(number as usize) {
            write_request(number, call, &mut expected);
        }
        if expected.is_empty() && self.plan.has_attack(Attack::Unproven) {
            let detail =
                || format!("a request of {} B runs that no client has made", payload.len());
            self.watch.borrow_mut().violate(Invariant::Proven, detail);
        }
        if self.is_strict() && expected != payload {
            let detail = || {
                format!(
                    "the request of call {number} is not what its client sent: {} B",
                    payload.len()
                )
            };
            self.watch.borrow_mut().violate(Invariant::Content, detail);
        }
    }

    fn check_reply(&self, number: u32, payload: &[u8]) {
        let mut expected = Vec::new();
        write_reply(&self.plan.calls[number as usize], &mut expected);
        if self.is_strict() && expected != payload {
            let detail =
                || format!("the reply to call {number} is not the handler's: {} B", payload.len());
            self.watch.borrow_mut().violate(Invariant::Content, detail);
        }
    }

    fn is_strict(&self) -> bool {
        self.plan.damage == crate::network::Damage::Noticed || self.plan.seal.is_some()
    }

    fn end(&mut self, number: u32, ending: Ending, now: Time) {
        let state = self.calls[number as usize];
        if let CallState::Made { due, .. } = state {
            self.due.remove(&(due, number));
            self.end_unmade(number, ending, now);
        } else {
            let detail = || format!("call {number} ends as {ending:?}, and was {state:?}");
            self.watch.borrow_mut().violate(Invariant::EndsOnce, detail);
        }
    }

    /// True if a call after all is refused because its session is older than who refuses it, which
    /// happens to the session of a client once; over Homa it has one with each server.
    fn renews(&mut self, call: &CallPlan, ending: Ending, now: Time) -> bool {
        if !call.is_after_all || !self.plan.may_be_stale(ending) {
            return false;
        }
        let server = match self.plan.transport {
            Transport::R2p2 => 0,
            Transport::Homa(_) => call.server,
        };
        let renewed_at = *self.renewed_at.entry((call.client, server)).or_insert(now);
        call.at <= renewed_at
    }

    fn end_unmade(&mut self, number: u32, ending: Ending, now: Time) {
        self.calls[number as usize] = CallState::Ended(ending);
        self.ended_at[number as usize] = now;
        self.watch.borrow_mut().note_ended(number);
        let call = &self.plan.calls[number as usize];
        let apart = self.plan.judge_apart(call, ending);
        if let Some(Some(invariant)) = apart {
            let detail = || format!("call {number} of a client whose clock is apart: {ending:?}");
            self.watch.borrow_mut().violate(invariant, detail);
        }
        let is_to_be_answered =
            !call.is_refused && call.cancel_after_ns.is_none() && apart.is_none();
        if is_to_be_answered && ending != Ending::Replied && self.plan.is_to_be_served {
            let detail = || format!("call {number} ends as {ending:?}");
            self.watch.borrow_mut().violate(Invariant::Serves, detail);
        }
        let is_excused = ending == Ending::Expired && self.plan.holds_briefly()
            || self.renews(call, ending, now);
        let call = &self.plan.calls[number as usize];
        if call.is_after_all && ending != Ending::Replied && self.is_strict() && !is_excused {
            let detail = || {
                format!("call {number} was made when all was well again, and ends as {ending:?}")
            };
            self.watch.borrow_mut().violate(Invariant::Recovers, detail);
        }
        if matches!(
            ending,
            Ending::Overload
                | Ending::Expired
                | Ending::NoServer
                | Ending::NoKey
                | Ending::Stopping
        ) {
            // Who has recorded what a router had no room for may have it placed.
            let is_recorded = self.plan.router.is_some() && self.plan.has_attack(Attack::Replayed);
            let remembers = ending != Ending::Overload || !is_recorded;
            self.watch.borrow_mut().refused(number, remembers);
        }
        if ending == Ending::NoKey && !self.plan.may_lack_keys() {
            let detail = || format!("call {number} is told that a key is not there");
            self.watch.borrow_mut().violate(Invariant::KeysAreThere, detail);
        }
        self.endings[ending as usize] += 1;
        let word = now << 24 ^ u64::from(number) << 8 ^ ending as u64;
        self.hash = (self.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        self.watch.borrow_mut().say(|| format!("call {number} ends: {ending:?}"));
    }
}

impl Handlers {
    fn new(server: &ServerPlan, load: Option<f64>, incarnation: u32) -> Self {
        let mut scheduler = Scheduler::new(Box::new(Jbsq::new(NonZeroU32::MIN)), QUEUE_LEN_MAX);
        if load.is_some() {
            scheduler = scheduler.with_overload(OverloadConfig::DEFAULT);
        }
        for _ in 0..server.workers {
            scheduler.add_worker();
        }
        let running = vec![None; server.workers as usize];
        Self { scheduler, running, jobs: BTreeMap::new(), incarnation, factor: 1 }
    }
}

impl ServerPlan {
    /// Service time of the call of this word on this server.
    fn service_ns(&self, word: u64) -> u64 {
        let sample_ns = self.service.sample_whole(&mut generator(word, SERVICES));
        (sample_ns as f64 * self.service_factor) as u64
    }

    /// Mean service time on this server.
    pub(super) fn mean_ns(&self) -> f64 {
        self.service.mean().unwrap_or(1.0) * self.service_factor
    }
}

impl Plan {
    /// Service time of a call where all servers are alike.
    pub(super) fn service_ns(&self, call: &CallPlan) -> u64 {
        self.servers[0].service_ns(call.word)
    }
}

fn recycle(node: &mut Station, buffer: Vec<u8>) {
    if let Some(endpoint) = node.node.endpoint_mut() {
        endpoint.recycle(buffer);
    }
}

fn refuse(turn: &mut Turn<'_, Station>, id: RequestId, reason: DropReason) {
    let local = turn.local;
    if let Some(endpoint) = turn.node.node.endpoint_mut() {
        // A request that is gone needs no refusal.
        let _ = endpoint.refuse(local, id, reason);
    }
}

fn ending(failure: Failure) -> Ending {
    match failure {
        Failure::Deadline => Ending::Deadline,
        Failure::ReplyTooLarge => Ending::ReplyTooLarge,
        Failure::Refused(reason) => match reason {
            DropReason::Overload => Ending::Overload,
            DropReason::Stopping => Ending::Stopping,
            DropReason::Panicked => Ending::Panicked,
            DropReason::TooLarge => Ending::TooLarge,
            DropReason::TooOld => Ending::TooOld,
            DropReason::Expired => Ending::Expired,
            DropReason::NoServer => Ending::NoServer,
            DropReason::NoKey => Ending::NoKey,
            DropReason::Application => Ending::Application,
            DropReason::Uncertain => Ending::Uncertain,
            DropReason::Unspecified | DropReason::Unvalidated | DropReason::Unanswered => {
                Ending::Other
            }
        },
        // Broken, unreachable or rejected.
        _ => Ending::Other,
    }
}

fn write_request(number: u32, call: &CallPlan, payload: &mut Vec<u8>) {
    payload.extend_from_slice(&number.to_le_bytes());
    payload.extend_from_slice(&(call.reply_len as u32).to_le_bytes());
    write_pattern(call.word, call.request_len, payload);
}

/// The handler's reply to a request.
fn write_reply(call: &CallPlan, payload: &mut Vec<u8>) {
    write_pattern(!call.word, call.reply_len, payload);
}

/// Fills `payload` up to `len` with bytes of which no two stretches are alike.
fn write_pattern(word: u64, len: usize, payload: &mut Vec<u8>) {
    let start = payload.len();
    payload.resize(len.max(start), 0);
    let mut word = word;
    let mut next = || {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (word ^ word >> 33).to_le_bytes()
    };
    // Whole words apart from the rest: a fault run spends a tenth of its time here.
    let (words, rest) = payload[start..].as_chunks_mut::<8>();
    words.iter_mut().for_each(|place| *place = next());
    if !rest.is_empty() {
        rest.copy_from_slice(&next()[..rest.len()]);
    }
}

/// The tick of a client's timer wheel.
const TICK_NS: u64 = 1 << 16;

/// More than calls of a run.
const QUEUE_LEN_MAX: usize = 4096;

/// A service takes no longer: far beyond every deadline, and what is held for it ends at the
/// deadline.
const SERVICE_NS_MAX: u64 = 1_000_000_000;

/// The generators' stream for services.
const SERVICES: u64 = 0x7365_7276;
